// Strangers at the ports of a live run: it must end as if they had not been there, bit for bit.
//
// The run reads samples from its standard input, so that it lasts as long as the attack does.
#include "tests/support/test.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>
#include <zmq.h>

#include "ps_lite/ps_model_file.h"
#include "runtime/wire/rt_control.h"
#include "runtime/transport/rt_keys.h"
#include "tests/support/process_case.h"

#define RUN_S 100.0
#define LINES 4000
#define SILENT_MAX 1000 // connections
#define WARNINGS_MAX 60 // of a run that heard tens of thousands of things it did not like
#define WORKERS 2u
#define PORTS 3u
#define FLOATS_MAX 16 // of a row with its state

typedef struct {
    char config[300], out[300];
    uint32_t ports[PORTS]; // coordinator, shard, worker 0
    bool with_keys;
    process process;
} live;

static const char *folder(void)
{
    static char path[200];
    if (!path[0])
        snprintf(path, sizeof path, "%s", test_directory());
    return path;
}

// ---- the run ---------------------------------------------------------------------------------

static void write_config(live *run)
{
    char keys[2000] = "";
    if (run->with_keys)
        snprintf(keys, sizeof keys,
                 " \"security\": {\"key\": \"%s/keys/here.secret\", \"allow\": \"%s/keys\","
                 "  \"server_key\": \"%s/keys/here.public\"},",
                 folder(), folder(), folder());
    FILE *file = fopen(run->config, "w");
    assert_non_null(file);
    fprintf(file,
            "{\"workers\": %u, \"batch\": {\"samples_per_worker\": 16},%s"
            " \"stream\": {\"format\": \"criteo\", \"files\": \"-\"},"
            " \"model\": {\"embedding_dim\": 4, \"deep_input\": \"dense\", \"mlp\": [8]},"
            " \"cache\": {\"rows\": 600}, \"links\": {\"ps_gbps\": 1},"
            " \"dispatch\": {\"hand_over\": true, \"reduce\": true},"
            " \"network\": {\"coordinator\": \"127.0.0.1:%u\", \"ps\": [\"127.0.0.1:%u\"]},"
            " \"timeouts\": {\"peer_s\": 20, \"start_s\": 40}}",
            WORKERS, keys, run->ports[0], run->ports[1]);
    assert_int_equal(fclose(file), 0);
}

static void start(live *run, const char *name, bool with_keys)
{
    static const char listens[] = "worker 0 listens for other workers at tcp://127.0.0.1:";
    *run = (live){.ports = {test_free_port(), test_free_port()}, .with_keys = with_keys};
    snprintf(run->config, sizeof run->config, "%s/%s.json", folder(), name);
    snprintf(run->out, sizeof run->out, "%s/%s", folder(), name);
    write_config(run);
    const char *const arguments[] = {process_lanyard(), "up", run->config, "--out", run->out, NULL};
    run->process.with_input = true;
    process_start(&run->process, arguments);
    const size_t at = process_await(&run->process, 0, listens, RUN_S);
    run->ports[2] = (uint32_t)strtoul(run->process.text + at, NULL, 10);
    assert_true(run->ports[2] > 0);
    process_await(&run->process, 0, "worker 0: device", RUN_S);
    process_await(&run->process, 0, "worker 1: device", RUN_S);
}

// Half of the samples: the same in every run.
static void feed(live *run, int half)
{
    for (int i = half * LINES / 2; i < (half + 1) * LINES / 2; i++) {
        char line[512];
        int used = snprintf(line, sizeof line, "%d", (i * 7919) % 3 == 0);
        for (int d = 0; d < 13; d++)
            used += snprintf(line + used, sizeof line - (size_t)used, "\t%d", (i * 31 + d) % 50);
        for (int f = 0; f < 26; f++)
            used += snprintf(line + used, sizeof line - (size_t)used, "\t%08x",
                             (unsigned)((i * (f + 3)) % 97 * 2654435761u));
        line[used++] = '\n';
        for (int sent = 0; sent < used;) {
            ssize_t got = write(run->process.input, line + sent, (size_t)(used - sent));
            if (got < 0)
                fail_msg("the run takes no more samples: %s", strerror(errno));
            sent += (int)got;
        }
    }
}

static void finish(live *run)
{
    close(run->process.input);
    run->process.input = -1;
    int status = process_end(&run->process, RUN_S);
    if (status != 0)
        fail_msg("exit status %d; it said:\n%s", status, run->process.text);
}

// One row of a model file: rows come in the order of their first arrival, which differs.
typedef struct {
    uint64_t key;
    uint32_t version;
    float values[FLOATS_MAX];
} model_row;

static int compare_rows(const void *left, const void *right)
{
    const model_row *a = left, *b = right;
    return a->key < b->key ? -1 : a->key > b->key;
}

static model_row *read_rows(const live *run, size_t *count_p)
{
    char path[400];
    ps_model_info info;
    ps_model_reader *reader;
    rt_error error = {0};
    const float *values;
    snprintf(path, sizeof path, "%s/model/rows-000-of-001.bin", run->out);
    if (ps_model_reader_open(path, NULL, NULL, &info, &reader, &error))
        fail_msg("%s", error.text);
    const size_t floats = info.dim + info.state_floats;
    assert_true(floats <= FLOATS_MAX && info.row_count > 0);
    model_row *rows = calloc(info.row_count, sizeof *rows);
    assert_non_null(rows);
    for (size_t i = 0; i < info.row_count; i++) {
        assert_int_equal(
            ps_model_reader_next(reader, &rows[i].key, &rows[i].version, &values, &error), RT_OK);
        memcpy(rows[i].values, values, floats * sizeof *values);
    }
    ps_model_reader_close(reader);
    qsort(rows, info.row_count, sizeof *rows, compare_rows);
    *count_p = info.row_count;
    return rows;
}

static char *read_dense(const live *run, size_t *size_p)
{
    char path[400];
    snprintf(path, sizeof path, "%s/model/dense.bin", run->out);
    FILE *file = fopen(path, "r");
    if (!file)
        fail_msg("%s: %s", path, strerror(errno));
    char *bytes = malloc(1 << 20);
    *size_p = fread(bytes, 1, 1 << 20, file);
    fclose(file);
    assert_true(*size_p > 0 && *size_p < 1 << 20);
    return bytes;
}

static void must_be_equal(const live *one, const live *other)
{
    size_t size, other_size;
    char *bytes = read_dense(one, &size), *other_bytes = read_dense(other, &other_size);
    assert_int_equal(size, other_size);
    assert_memory_equal(bytes, other_bytes, size);
    model_row *rows = read_rows(one, &size), *other_rows = read_rows(other, &other_size);
    assert_int_equal(size, other_size);
    assert_memory_equal(rows, other_rows, size * sizeof *rows);
    free(bytes);
    free(other_bytes);
    free(rows);
    free(other_rows);
}

// ---- raw TCP ---------------------------------------------------------------------------------

static int dial(uint32_t port)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_addr = {htonl(INADDR_LOOPBACK)},
                                  .sin_port = htons((uint16_t)port)};
    int one = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(one >= 0);
    if (connect(one, (const struct sockaddr *)&address, sizeof address) != 0)
        fail_msg("port %u: %s", port, strerror(errno));
    return one;
}

static void say(int connection, const void *bytes, size_t size)
{
    (void)send(connection, bytes, size, MSG_NOSIGNAL); // it may have been cut off already
}

// ZMTP 3.0 (ZeroMQ RFC 23): the greeting and READY of a DEALER with this identity.
static void greet(int connection, const uint8_t identity[12])
{
    uint8_t greeting[64] = {0xff, 0, 0, 0, 0, 0, 0, 0, 1, 0x7f, 3, 0, 'N', 'U', 'L', 'L'};
    uint8_t ready[] = "\x04\x35\x05READY\x0bSocket-Type\0\0\0\x06"
                      "DEALER\x08Identity\0\0\0\x0c............";
    _Static_assert(sizeof ready - 1 == 2 + 6 + 12 + 4 + 6 + 9 + 4 + 12, "as RFC 23 has it");
    memcpy(ready + sizeof ready - 1 - 12, identity, 12);
    say(connection, greeting, sizeof greeting);
    say(connection, ready, sizeof ready - 1);
}

static void identity_of(rt_role role, uint32_t rank, uint64_t number, uint8_t identity[12])
{
    const uint8_t bytes[4] = {(uint8_t)role, 0, 0, (uint8_t)rank};
    memcpy(identity, bytes, 4);
    memcpy(identity + 4, &number, 8);
}

// What stays open until the run has ended.
typedef struct {
    int connections[SILENT_MAX + 64];
    size_t count;
} openings;

static int hold(openings *open, int connection)
{
    assert_true(open->count < RT_COUNT_OF(open->connections));
    return open->connections[open->count++] = connection;
}

static void attack_with_bytes(const live *run, openings *open)
{
    uint8_t noise[512], identity[12];
    const uint8_t two_gb[9] = {2, 0, 0, 0, 0, 0x80, 0, 0, 0};  // a frame of 2^31 bytes
    const uint8_t hundred_mb[9] = {2, 0, 0, 0, 0, 6, 0, 0, 0}; // of 100,663,296
    const uint8_t endless[9] = {2, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
    const uint8_t cut[3] = {0, 200, 'R'}; // announces 200 bytes and ends
    srandom(1);
    for (uint32_t i = 0; i < SILENT_MAX; i++)
        hold(open, dial(run->ports[i % PORTS]));
    for (uint32_t p = 0; p < PORTS; p++) {
        for (uint32_t i = 0; i < 8; i++) {
            const uint8_t *const announced[] = {two_gb, hundred_mb, endless};
            identity_of(RT_ROLE_WORKER, i, 77 + i, identity);
            int connection = hold(open, dial(run->ports[p]));
            greet(connection, identity);
            say(connection, announced[i % 3], 9);
            connection = dial(run->ports[p]);
            greet(connection, identity);
            say(connection, cut, sizeof cut);
            close(connection);
            for (size_t b = 0; b < sizeof noise; b++)
                noise[b] = (uint8_t)random();
            connection = dial(run->ports[p]);
            say(connection, noise, sizeof noise);
            close(connection);
        }
    }
}

// ---- strangers that speak ZeroMQ -------------------------------------------------------------

typedef struct {
    void *context;
    const uint8_t *server_key; // NULL: without keys
} side;

static void *join_as(const side *from, uint32_t port, const void *identity, size_t size)
{
    char address[64], public_text[41], secret_text[41];
    int linger = 200, hwm = 1 << 16;
    void *socket = zmq_socket(from->context, ZMQ_DEALER);
    assert_non_null(socket);
    zmq_setsockopt(socket, ZMQ_LINGER, &linger, sizeof linger);
    zmq_setsockopt(socket, ZMQ_SNDHWM, &hwm, sizeof hwm);
    if (size)
        zmq_setsockopt(socket, ZMQ_ROUTING_ID, identity, size);
    if (from->server_key) { // a key pair that nobody knows
        assert_int_equal(zmq_curve_keypair(public_text, secret_text), 0);
        zmq_setsockopt(socket, ZMQ_CURVE_SERVERKEY, from->server_key, RT_KEY_BYTES);
        zmq_setsockopt(socket, ZMQ_CURVE_PUBLICKEY, public_text, sizeof public_text);
        zmq_setsockopt(socket, ZMQ_CURVE_SECRETKEY, secret_text, sizeof secret_text);
    }
    snprintf(address, sizeof address, "tcp://127.0.0.1:%u", port);
    assert_int_equal(zmq_connect(socket, address), 0);
    return socket;
}

static void say_message(void *socket, uint32_t type, uint32_t sender, uint16_t version,
                        uint32_t count, const void *payload, size_t size)
{
    rt_message message;
    assert_int_equal(rt_message_create(&message, (rt_message_type)type, sender, 1, count, size),
                     RT_OK);
    rt_message_header(&message)->version = version;
    memcpy(rt_message_payload(&message), payload, size);
    (void)zmq_send(socket, message.data, message.size, ZMQ_DONTWAIT);
    rt_message_release(&message);
}

// The highest number of all messages.
static uint32_t last_message(void)
{
    uint32_t last = 0;
#define XX(name, number, ...) last = number > last ? number : last;
    RT_MESSAGE_MAP(XX)
#undef XX
    return last;
}

// Everything that a stranger could say in the name of a peer.
static void say_everything(void *socket, uint32_t peer)
{
    static const uint8_t zeros[5000];
    rt_wire_hello hello = {.role = (uint32_t)rt_peer_role(peer), .rank = rt_peer_rank(peer)};
    rt_control_put_text(hello.program, sizeof hello.program, "9.9.9");
    say_message(socket, RT_MESSAGE_HELLO, peer, 9, 1, &hello, 48);
    rt_control_put_text(hello.program, sizeof hello.program, rt_build());
    say_message(socket, RT_MESSAGE_HELLO, peer, RT_WIRE_VERSION, 1, &hello, sizeof hello);
    for (uint32_t type = 0; type <= last_message() + 1; type++) {
        for (uint32_t count = 0; count < 3; count++)
            say_message(socket, type, peer, RT_WIRE_VERSION, count, zeros, count * 40);
        say_message(socket, type, peer, RT_WIRE_VERSION, 1u << 28, zeros, sizeof zeros);
        say_message(socket, type, rt_peer(RT_ROLE_COORDINATOR, 0), RT_WIRE_VERSION, 0, zeros, 0);
        say_message(socket, type, peer, 7, 0, zeros, 0);
    }
    say_message(socket, RT_MESSAGE_FAILED, peer, RT_WIRE_VERSION, 0, "I give up", 9);
    say_message(socket, RT_MESSAGE_STOP, peer, RT_WIRE_VERSION, 0, "stop", 4);
    for (size_t size = 0; size < 60; size++)
        (void)zmq_send(socket, zeros, size, ZMQ_DONTWAIT);
    (void)zmq_send(socket, "a", 1, ZMQ_SNDMORE | ZMQ_DONTWAIT);
    (void)zmq_send(socket, "b", 1, ZMQ_DONTWAIT);
    for (int i = 0; i < 3000; i++)
        (void)zmq_send(socket, zeros, 100, ZMQ_DONTWAIT);
}

static void attack_with_messages(const live *run, const uint8_t *server_key)
{
    const side from = {zmq_ctx_new(), server_key};
    const uint32_t peers[] = {rt_peer(RT_ROLE_WORKER, 0), rt_peer(RT_ROLE_WORKER, WORKERS),
                              rt_peer(RT_ROLE_WORKER, 63), rt_peer(RT_ROLE_PS, 0),
                              rt_peer(RT_ROLE_COORDINATOR, 0)};
    for (uint32_t p = 0; p < PORTS; p++) {
        void *sockets[RT_COUNT_OF(peers) + 2];
        for (size_t i = 0; i < RT_COUNT_OF(peers); i++) {
            uint8_t identity[12];
            identity_of(rt_peer_role(peers[i]), rt_peer_rank(peers[i]), 999 + i, identity);
            sockets[i] = join_as(&from, run->ports[p], identity, sizeof identity);
            say_everything(sockets[i], peers[i]);
        }
        sockets[RT_COUNT_OF(peers)] = join_as(&from, run->ports[p], NULL, 0);
        sockets[RT_COUNT_OF(peers) + 1] = join_as(&from, run->ports[p], "nobody at all", 13);
        for (size_t i = RT_COUNT_OF(peers); i < RT_COUNT_OF(sockets); i++)
            say_everything(sockets[i], peers[0]);
        for (size_t i = 0; i < RT_COUNT_OF(sockets); i++)
            zmq_close(sockets[i]);
    }
    zmq_ctx_term(from.context); // when all is sent, or the linger time is over
}

// ---- cases -----------------------------------------------------------------------------------

static void raise_descriptors(void)
{
    struct rlimit files;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &files), 0);
    if (files.rlim_max < 2 * SILENT_MAX)
        test_skip("this user may open only %lu files", (unsigned long)files.rlim_max);
    files.rlim_cur = 2 * SILENT_MAX;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &files), 0);
}

static size_t count_text(const char *text, const char *part)
{
    size_t count = 0;
    for (const char *at = text; (at = strstr(at, part)); at++)
        count++;
    return count;
}

// The flush at the end is part of what was planned and of what every worker says it did.
static void flush_must_be_counted(const live *run)
{
    static char text[1 << 16];
    char path[400];
    size_t found = 0;
    snprintf(path, sizeof path, "%s/summary.json", run->out);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    for (const char *at = text; (at = strstr(at, "\"flush_push\":")); found++) {
        at += strlen("\"flush_push\":");
        if (strtod(at, NULL) <= 0)
            fail_msg("no flush counted: %.40s", at);
    }
    assert_int_equal(found, 1 + WORKERS); // the plan's per run, and what each worker executed
}

static void undisturbed(live *run, bool with_keys)
{
    start(run, "undisturbed", with_keys);
    feed(run, 0);
    feed(run, 1);
    finish(run);
    flush_must_be_counted(run);
}

static void disturb(live *run, const uint8_t *server_key)
{
    static openings open;
    open.count = 0;
    feed(run, 0);
    attack_with_bytes(run, &open);
    attack_with_messages(run, NULL);
    if (server_key)
        attack_with_messages(run, server_key);
    feed(run, 1);
    finish(run);
    for (size_t i = 0; i < open.count; i++)
        close(open.connections[i]);
    size_t warnings = count_text(run->process.text, ": warn: ");
    if (warnings == 0 || warnings > WARNINGS_MAX)
        fail_msg("%zu warnings, expected 1 to %d:\n%s", warnings, WARNINGS_MAX, run->process.text);
}

static void strangers_change_nothing(void **state)
{
    (void)state;
    live alone, attacked;
    raise_descriptors();
    undisturbed(&alone, false);
    start(&attacked, "attacked", false);
    disturb(&attacked, NULL);
    must_be_equal(&alone, &attacked);
    process_fini(&alone.process);
    process_fini(&attacked.process);
}

static void strangers_without_our_keys_change_nothing(void **state)
{
    (void)state;
    live alone, attacked;
    char path[300];
    rt_keys keys;
    rt_config config;
    raise_descriptors();
    snprintf(path, sizeof path, "%s/keys", folder());
    assert_int_equal(rt_keys_create(path, "here", NULL), RT_OK);
    undisturbed(&alone, true);
    start(&attacked, "attacked", true);
    assert_int_equal(rt_config_init(&config), RT_OK);
    assert_int_equal(rt_config_load(&config, attacked.config, NULL), RT_OK);
    assert_int_equal(rt_keys_load(&config, &keys, NULL), RT_OK);
    disturb(&attacked, keys.own.bytes);
    must_be_equal(&alone, &attacked);
    assert_non_null(strstr(attacked.process.text, "which security.allow does not have"));
    assert_non_null(strstr(attacked.process.text, "from 127.0.0.1"));
    assert_null(strstr(attacked.process.text, "of strangers")); // nobody got so far
    rt_config_fini(&config);
    process_fini(&alone.process);
    process_fini(&attacked.process);
}

// ---- what a process is given wrong

static void must_say(const char *const *words, int status, const char *text)
{
    const char *arguments[24] = {process_lanyard()};
    size_t count = 1;
    for (; words[count - 1]; count++)
        arguments[count] = words[count - 1];
    process one = {0};
    int got = process_run(&one, arguments, RUN_S);
    if (got != status || !strstr(one.text, text))
        fail_msg("exit status %d, expected %d; \"%s\" belongs into:\n%s", got, status, text,
                 one.text);
    process_fini(&one);
}

static void wrong_addresses_are_named(void **state)
{
    (void)state;
    static const char demo[] = "configs/demo.json";
    must_say((const char *[]){"coordinator", demo, "--set", "network.coordinator=203.0.113.7:7000",
                              NULL},
             5, "security.key");
    must_say((const char *[]){"coordinator", demo, "--set", "network.coordinator=203.0.113.7:7000",
                              "--set", "security.insecure=true", "--set", "timeouts.start_s=0.5",
                              NULL},
             1, "no such interface on this machine");
    must_say((const char *[]){"coordinator", demo, "--set", "network.interface=nothere0", "--set",
                              "timeouts.start_s=0.5", NULL},
             1, "this machine has no \"nothere0\"");
    must_say((const char *[]){"coordinator", demo, "--set", "network.coordinator=box", NULL}, 5,
             "expected \"HOST:PORT\"");
    must_say((const char *[]){"check", demo, "--set", "network.ps=[\"a:1\",\"b:2\"]", NULL}, 1,
             "network.ps: 2 addresses");
    must_say((const char *[]){"check", demo, "--set", "ps.shards=17", NULL}, 1, "ps.shards");
    must_say((const char *[]){"worker", demo, "--rank", "0", NULL}, 2, "network.coordinator");
    must_say((const char *[]){"worker", demo, "--rank", "4", "--coordinator", "127.0.0.1:1", NULL},
             2, "4 workers");
    must_say((const char *[]){"ps", demo, "--rank", "0", "--coordinator", "203.0.113.7:1", "--set",
                              "security.insecure=true", NULL},
             5, "cannot reach");
    must_say((const char *[]){"worker", demo, "--rank", "0", "--coordinator", "127.0.0.1:1",
                              "--set", "timeouts.start_s=0.5", NULL},
             1, "no answer from the coordinator at tcp://127.0.0.1:1");
}

static void what_cannot_fit_is_refused(void **state)
{
    (void)state;
    static const char demo[] = "configs/demo.json";
    must_say((const char *[]){"check", demo, NULL}, 0, "link of worker 3");
    must_say((const char *[]){"check", demo, "--set", "cache.rows=100", NULL}, 1,
             "raise cache.rows");
    must_say((const char *[]){"check", demo, "--set", "cache.distinct_keys=1000000000", NULL}, 1,
             "ps.memory_bytes_max");
    must_say((const char *[]){"doctor", demo, NULL}, 0, "ok   config");
    must_say((const char *[]){"doctor", demo, "--json", NULL}, 0, "\"healthy\": true");
    must_say((const char *[]){"doctor", demo, "--set", "cache.rows=100", NULL}, 1, "FIX  memory");
    must_say((const char *[]){"doctor", demo, "--set", "device=cuda:77", NULL}, 1, "FIX  device");
    must_say((const char *[]){"doctor", "/nowhere.json", NULL}, 1, "FIX  config");
    must_say((const char *[]){"doctor", demo, "--set", "network.coordinator=127.0.0.1:7", "--set",
                              "network.interface=nothere0", NULL},
             1, "FIX  interface");
    must_say(
        (const char *[]){"doctor", demo, "--set", "network.coordinator=no-such.invalid:7", NULL}, 1,
        "FIX  names");
    must_say((const char *[]){"doctor", demo, "--set", "security.key=/nowhere", "--set",
                              "security.allow=/nowhere", "--set", "security.server_key=/nowhere",
                              NULL},
             1, "FIX  keys");
}

TEST_MAIN(TEST(wrong_addresses_are_named), TEST(what_cannot_fit_is_refused),
          TEST_SLOW(strangers_change_nothing, 240),
          TEST_SLOW(strangers_without_our_keys_change_nothing, 240))
