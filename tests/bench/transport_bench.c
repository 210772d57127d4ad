// transport_bench - GB/s between two processes over loopback: rt_transport against plain ZeroMQ
// sockets that carry the same bytes, and against itself with keys (CURVE), in turns, in one run.
//
// Both sides fill every message from a buffer, as a sender of rows does. Ours counts on credits
// (the receiver reports every quarter of a window), plain sends block at ZeroMQ's own mark.
// usage: transport_bench [MEGABYTES per measurement]
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zmq.h>

#include "runtime/config/rt_config.h"
#include "runtime/transport/rt_transport.h"

#define SERVER (rt_peer(RT_ROLE_PS, 0))
#define CLIENT (rt_peer(RT_ROLE_WORKER, 0))
#define WINDOW 128
#define TURNS_MAX 9
#define FEW_BYTES 100000000u // of a measurement that only shows whether it works: one turn

static int turns; // of every measurement

typedef enum { OURS, PLAIN, KEYS, WAYS } way;

typedef struct {
    size_t message_bytes;
    uint64_t count;
    bool to_server;      // who receives
    const rt_keys *keys; // NULL: none
} load;

typedef struct {
    double bytes_per_s;
    uint64_t copied; // messages that the transport could not hand out in place
} result;

static const rt_transport_ops *const ops = &rt_transport_zmq;

// ---- ours

static void send_all(rt_endpoint *endpoint, uint32_t self, uint32_t peer, const load *work,
                     const void *bytes)
{
    size_t payload_bytes = work->message_bytes - sizeof(rt_wire_header);
    uint64_t acknowledged = 0;
    for (uint64_t sent = 0; acknowledged < work->count;) {
        rt_message message = {0};
        uint32_t from;
        if (sent < work->count && sent < acknowledged + WINDOW) {
            rt_assert(!rt_message_create(&message, RT_MESSAGE_SLICE, self, sent, 0, payload_bytes));
            memcpy(rt_message_payload(&message), bytes, payload_bytes);
            rt_assert(ops->send(endpoint, peer, &message) == RT_OK);
            sent++;
            continue;
        }
        bool ready = false;
        rt_assert(ops->wait(&endpoint, 1, -1, 10000, &ready) == RT_OK && ready);
        while (ops->receive(endpoint, &from, &message, NULL) == RT_OK) {
            acknowledged = rt_message_header(&message)->iteration;
            rt_message_release(&message);
        }
    }
}

static result receive_all(rt_endpoint *endpoint, uint32_t self, uint32_t peer, const load *work)
{
    result got = {0};
    uint64_t start_ns = 0;
    for (uint64_t received = 0; received < work->count;) {
        rt_message message = {0};
        uint32_t from;
        bool ready = false;
        if (ops->receive(endpoint, &from, &message, NULL) != RT_OK) {
            rt_assert(ops->wait(&endpoint, 1, -1, 10000, &ready) == RT_OK && ready);
            continue;
        }
        if (received == 0)
            start_ns = rt_now_ns();
        got.copied += message.hint == message.data;
        rt_message_release(&message);
        if (++received % (WINDOW / 4) == 0 || received == work->count) {
            rt_assert(!rt_message_create(&message, RT_MESSAGE_PUSHED, self, received, 0, 0));
            rt_assert(ops->send(endpoint, peer, &message) == RT_OK);
        }
    }
    double seconds = (double)(rt_now_ns() - start_ns) * 1e-9;
    got.bytes_per_s = (double)(work->count - 1) * (double)work->message_bytes / seconds;
    return got;
}

static result ours_server(const load *work, const void *bytes, int address_fd)
{
    rt_transport *transport;
    rt_endpoint *endpoint;
    char address[RT_NAME_MAX] = {0};
    rt_message hello = {0};
    uint32_t from;
    bool ready;
    result got = {0};
    rt_assert(!rt_transport_open(ops, work->keys, &transport, NULL));
    rt_assert(!ops->listen(transport, SERVER, "tcp://127.0.0.1:0", address, &endpoint, NULL));
    rt_assert(write(address_fd, address, sizeof address) == (ssize_t)sizeof address);
    while (ops->receive(endpoint, &from, &hello, NULL) != RT_OK)
        rt_assert(ops->wait(&endpoint, 1, -1, 10000, &ready) == RT_OK);
    rt_message_release(&hello);
    if (work->to_server)
        got = receive_all(endpoint, SERVER, CLIENT, work);
    else
        send_all(endpoint, SERVER, CLIENT, work, bytes);
    ops->end(endpoint, 10000);
    ops->close(transport);
    return got;
}

static result ours_client(const load *work, const void *bytes, const char *address)
{
    rt_transport *transport;
    rt_endpoint *endpoint;
    rt_message hello = {0};
    result got = {0};
    rt_assert(!rt_transport_open(ops, work->keys, &transport, NULL));
    rt_assert(!work->keys || !ops->trust(transport, SERVER, work->keys->own.bytes, NULL));
    rt_assert(!ops->connect(transport, CLIENT, SERVER, address, &endpoint, NULL));
    rt_assert(!rt_message_create(&hello, RT_MESSAGE_HELLO, CLIENT, 0, 0, 0));
    rt_assert(ops->send(endpoint, SERVER, &hello) == RT_OK);
    if (work->to_server)
        send_all(endpoint, CLIENT, SERVER, work, bytes);
    else
        got = receive_all(endpoint, CLIENT, SERVER, work);
    ops->end(endpoint, 10000);
    ops->close(transport);
    return got;
}

// ---- plain: the same pattern of sockets, the simplest calls

static result plain_receive(void *socket, bool is_router, const load *work)
{
    zmq_msg_t message;
    uint64_t start_ns = 0;
    zmq_msg_init(&message);
    for (uint64_t i = 0; i < work->count; i++) {
        if (is_router)
            rt_assert(zmq_msg_recv(&message, socket, 0) >= 0);
        rt_assert(zmq_msg_recv(&message, socket, 0) == (int)work->message_bytes);
        if (i == 0)
            start_ns = rt_now_ns();
    }
    zmq_msg_close(&message);
    double seconds = (double)(rt_now_ns() - start_ns) * 1e-9;
    return (result){(double)(work->count - 1) * (double)work->message_bytes / seconds, 0};
}

static void plain_send(void *socket, bool is_router, const load *work, const void *bytes)
{
    for (uint64_t i = 0; i < work->count; i++) {
        if (is_router)
            zmq_send(socket, "client", 6, ZMQ_SNDMORE);
        rt_assert(zmq_send(socket, bytes, work->message_bytes, 0) == (int)work->message_bytes);
    }
}

static result plain_server(const load *work, const void *bytes, int address_fd)
{
    char address[RT_NAME_MAX] = {0}, word[8];
    size_t size = sizeof address;
    int mandatory = 1;
    result got = {0};
    void *context = zmq_ctx_new(), *socket = zmq_socket(context, ZMQ_ROUTER);
    zmq_setsockopt(socket, ZMQ_ROUTER_MANDATORY, &mandatory, sizeof mandatory);
    rt_assert(zmq_bind(socket, "tcp://127.0.0.1:*") == 0);
    zmq_getsockopt(socket, ZMQ_LAST_ENDPOINT, address, &size);
    rt_assert(write(address_fd, address, sizeof address) == (ssize_t)sizeof address);
    zmq_recv(socket, word, sizeof word, 0);
    zmq_recv(socket, word, sizeof word, 0);
    if (work->to_server)
        got = plain_receive(socket, true, work);
    else
        plain_send(socket, true, work, bytes);
    zmq_close(socket);
    zmq_ctx_term(context);
    return got;
}

static result plain_client(const load *work, const void *bytes, const char *address)
{
    result got = {0};
    void *context = zmq_ctx_new(), *socket = zmq_socket(context, ZMQ_DEALER);
    zmq_setsockopt(socket, ZMQ_ROUTING_ID, "client", 6);
    rt_assert(zmq_connect(socket, address) == 0);
    zmq_send(socket, "hello", 5, 0);
    if (work->to_server)
        plain_send(socket, false, work, bytes);
    else
        got = plain_receive(socket, false, work);
    zmq_close(socket);
    zmq_ctx_term(context);
    return got;
}

// ---- the comparison

// The server in a child, the client here; the receiver's figures.
static result measure(way how, const load *given, const rt_keys *keys, const void *bytes)
{
    const bool plain = how == PLAIN;
    load with = *given, *work = &with;
    with.keys = how == KEYS ? keys : NULL;
    int address_pipe[2], result_pipe[2];
    char address[RT_NAME_MAX];
    rt_assert(pipe(address_pipe) == 0 && pipe(result_pipe) == 0);
    fflush(stdout);
    pid_t child = fork();
    rt_assert(child >= 0);
    if (child == 0) {
        result got = (plain ? plain_server : ours_server)(work, bytes, address_pipe[1]);
        rt_assert(write(result_pipe[1], &got, sizeof got) == (ssize_t)sizeof got);
        _exit(EXIT_SUCCESS);
    }
    rt_assert(read(address_pipe[0], address, sizeof address) == (ssize_t)sizeof address);
    result here = (plain ? plain_client : ours_client)(work, bytes, address), there;
    rt_assert(read(result_pipe[0], &there, sizeof there) == (ssize_t)sizeof there);
    waitpid(child, NULL, 0);
    for (int i = 0; i < 2; i++) {
        close(address_pipe[i]);
        close(result_pipe[i]);
    }
    return work->to_server ? there : here;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values)
{
    qsort(values, turns, sizeof *values, compare);
    return values[turns / 2];
}

// One line of the table. The ratio is taken turn by turn, against what else the machine does.
static void measure_line(const load *work, const rt_keys *keys, const void *bytes)
{
    double rates[WAYS][TURNS_MAX], ratios[WAYS][TURNS_MAX];
    uint64_t copied = 0;
    for (int turn = 0; turn < turns; turn++) {
        for (int i = 0; i < WAYS; i++) {
            const way how = (way)((turn + i) % WAYS);
            result got = measure(how, work, keys, bytes);
            rates[how][turn] = got.bytes_per_s * 1e-9;
            copied += how == OURS ? got.copied : 0;
        }
        ratios[PLAIN][turn] = rates[OURS][turn] / rates[PLAIN][turn];
        ratios[KEYS][turn] = rates[KEYS][turn] / rates[OURS][turn];
    }
    printf("%-10s %9zu %10.2f %10.2f %7.2f %9.1f %10.2f %7.2f\n",
           work->to_server ? "to server" : "to client", work->message_bytes, median(rates[OURS]),
           median(rates[PLAIN]), median(ratios[PLAIN]),
           (double)copied * 100 / (double)(work->count * turns), median(rates[KEYS]),
           median(ratios[KEYS]));
}

static rt_keys make_keys(void)
{
    rt_keys keys = {.is_set = true, .own.name = "bench"};
    char public_text[RT_KEY_TEXT_SIZE], secret_text[RT_KEY_TEXT_SIZE];
    rt_assert(zmq_curve_keypair(public_text, secret_text) == 0);
    rt_assert(zmq_z85_decode(keys.own.bytes, public_text) != NULL);
    rt_assert(zmq_z85_decode(keys.secret, secret_text) != NULL);
    keys.coordinator = keys.own;
    return keys;
}

int main(int argc, char **argv)
{
    static const size_t sizes[] = {2048, 65536, 262144, 1048576};
    uint64_t total_bytes = (argc > 1 ? strtoull(argv[1], NULL, 10) : 400) * 1000000;
    turns = total_bytes < FEW_BYTES ? 1 : TURNS_MAX;
    void *bytes = malloc(sizes[3]);
    rt_assert(bytes && total_bytes >= 2 * sizes[3]);
    memset(bytes, 0x5a, sizes[3]);
    printf("medians of %d turns, %llu MB each\n", turns, (unsigned long long)total_bytes / 1000000);
    static rt_keys keys;
    keys = make_keys();
    printf("%-10s %9s %10s %10s %7s %9s %10s %7s\n", "direction", "bytes", "ours GB/s",
           "plain GB/s", "ratio", "copied %", "keys GB/s", "ratio");
    for (int direction = 0; direction < 2; direction++) {
        for (size_t i = 0; i < RT_COUNT_OF(sizes); i++) {
            uint64_t count = rt_min_u64(total_bytes / sizes[i], 100000);
            measure_line(&(load){sizes[i], count, direction == 0, NULL}, &keys, bytes);
        }
    }
    free(bytes);
    return EXIT_SUCCESS;
}
