// ps_link_bench - rows per second between workers and one shard, over loopback, everything real:
// ps_server with its table, the transport, workers that gather rows from a slab and scatter them
// into it. Beside it a plain ZeroMQ send of the same bytes, in turns, in one run.
//
// Messages of 2,048 random keys (or as many as fit MESSAGE_BYTES, as `network.message_bytes` does
// in a run), rows of 2 KB and of 64 bytes in a table of 64 MB, one worker and four at once. A push
// counts once the shard has confirmed it. Processes: a shard, the workers, this one as coordinator.
// The last columns are CPU time, user and system, of shard and workers together: what the
// processors spend on a gigabyte of rows says more than the clock on a machine that others use too.
// usage: ps_link_bench [MEGABYTES per measurement [TRANSPORT [MESSAGE_BYTES]]]
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <zmq.h>

#include "ps_lite/ps_server.h"
#include "runtime/rt_hash.h"
#include "runtime/transport/rt_ucx.h"

#define COORDINATOR (rt_peer(RT_ROLE_COORDINATOR, 0))
#define SHARD (rt_peer(RT_ROLE_PS, 0))
#define RECORDS_MAX 2048u
#define WORKERS_MAX 4u
#define TURNS_MAX 3
#define FEW_BYTES 100000000u // of a measurement that only shows whether it works: one turn
#define WINDOW_RECORDS (8 * RECORDS_MAX) // that are not answered yet
#define SLAB_ROWS 16384u                 // of a worker's cache
#define TABLE_BYTES (UINT64_C(64) << 20) // of the shard, over all workers
#define WAIT_MS 20000u

typedef struct {
    const rt_transport_ops *ops;
    uint32_t dim, workers;
    uint32_t records;  // of a message
    uint64_t messages; // of a worker and direction
} load;

// When a worker's pushes and pulls began and ended.
typedef struct {
    uint64_t push_begin_ns, push_end_ns, pull_begin_ns, pull_end_ns;
} times;

typedef struct {
    double push, pull, plain;             // rows per second, of all workers together
    double push_cpu, pull_cpu, plain_cpu; // seconds per row
} speeds;

static int turns;

static void must(bool holds, const char *what)
{
    if (holds)
        return;
    fprintf(stderr, "ps_link_bench: %s failed\n", what);
    exit(EXIT_FAILURE);
}

static void read_exactly(int fd, void *bytes, size_t size)
{
    must(read(fd, bytes, size) == (ssize_t)size, "reading from a process");
}

static void write_exactly(int fd, const void *bytes, size_t size)
{
    must(write(fd, bytes, size) == (ssize_t)size, "writing to a process");
}

// ---- a worker

typedef struct {
    const load *work;
    rt_endpoint *endpoint;
    uint32_t self, key_count;
    float *slab;
    rt_random random;
    uint32_t iteration; // also the version of pushed rows
    uint64_t in_flight, rows_left;
} worker;

static uint64_t random_key(worker *w)
{
    return (uint64_t)rt_peer_rank(w->self) * w->key_count +
           rt_random_below(&w->random, w->key_count);
}

static void send_message(worker *w, rt_message *message)
{
    rt_status status;
    while ((status = w->work->ops->send(w->endpoint, SHARD, message)) == RT_AGAIN) {
        bool ready;
        must(w->work->ops->wait(&w->endpoint, 1, -1, 1, &ready) == RT_OK, "waiting");
    }
    must(status == RT_OK, "sending");
}

static void push(worker *w)
{
    const size_t floats = w->work->dim * sizeof(float), size = sizeof(rt_wire_row) + floats;
    rt_message message;
    must(!rt_message_create(&message, RT_MESSAGE_PUSH_ROW, w->self, ++w->iteration,
                            w->work->records, w->work->records * size),
         "memory");
    uint8_t *at = rt_message_payload(&message);
    for (uint32_t i = 0; i < w->work->records; i++, at += size) {
        const rt_wire_row head = {random_key(w), w->iteration, 0};
        memcpy(at, &head, sizeof head);
        memcpy(at + sizeof head,
               w->slab + (size_t)rt_random_below(&w->random, SLAB_ROWS) * w->work->dim, floats);
    }
    send_message(w, &message);
    w->in_flight++;
}

static void pull(worker *w)
{
    rt_message message;
    must(!rt_message_create(&message, RT_MESSAGE_PULL, w->self, ++w->iteration, w->work->records,
                            w->work->records * sizeof(rt_wire_pull)),
         "memory");
    rt_wire_pull *at = (rt_wire_pull *)(void *)rt_message_payload(&message);
    for (uint32_t i = 0; i < w->work->records; i++)
        at[i] = (rt_wire_pull){random_key(w), 0, rt_random_below(&w->random, SLAB_ROWS)};
    send_message(w, &message);
    w->rows_left += w->work->records;
}

static void take(worker *w, const rt_message *message)
{
    const rt_wire_header *header = rt_message_header(message);
    const size_t floats = w->work->dim * sizeof(float), size = sizeof(rt_wire_row) + floats;
    if (header->type == RT_MESSAGE_PUSHED) {
        w->in_flight--;
        return;
    }
    must(header->type == RT_MESSAGE_ROWS && header->count <= w->rows_left, "an answer");
    const uint8_t *at = rt_message_payload(message);
    for (uint32_t i = 0; i < header->count; i++, at += size) {
        rt_wire_row head;
        memcpy(&head, at, sizeof head);
        memcpy(w->slab + (size_t)head.tag * w->work->dim, at + sizeof head, floats);
    }
    w->rows_left -= header->count;
}

// Takes what has come; waits for something first.
static void take_some(worker *w)
{
    rt_message message;
    uint32_t peer;
    bool ready = false;
    must(w->work->ops->wait(&w->endpoint, 1, -1, WAIT_MS, &ready) == RT_OK && ready, "waiting");
    while (w->work->ops->receive(w->endpoint, &peer, &message, NULL) == RT_OK) {
        take(w, &message);
        rt_message_release(&message);
    }
}

static void push_all(worker *w, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        push(w);
        while (w->in_flight * w->work->records >= WINDOW_RECORDS)
            take_some(w);
    }
    while (w->in_flight)
        take_some(w);
}

static void pull_all(worker *w, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        pull(w);
        while (w->rows_left >= WINDOW_RECORDS)
            take_some(w);
    }
    while (w->rows_left)
        take_some(w);
}

// NULL: it is left out.
static const rt_transport_ops *find(const char *name)
{
    const rt_ucx_plugin *plugin;
    rt_error error = {0};
    if (strcmp(name, "zmq") == 0)
        return &rt_transport_zmq;
    if (rt_ucx_open("build/" RT_UCX_FILE, &plugin, &error) == RT_OK)
        return plugin->ucx;
    printf("%s is left out: %s\n", name, error.text);
    return NULL;
}

// Goes through the phases as the coordinator says "go" for each.
// A shard hears only those who said it.
static void say_hello(worker *w)
{
    rt_message message;
    rt_wire_hello hello = {.role = RT_ROLE_WORKER, .rank = rt_peer_rank(w->self)};
    rt_control_put_text(hello.program, sizeof hello.program, rt_build());
    must(!rt_message_create(&message, RT_MESSAGE_HELLO, w->self, 0, 1, sizeof hello), "memory");
    memcpy(rt_message_payload(&message), &hello, sizeof hello);
    send_message(w, &message);
}

static int run_worker(const load *work, uint32_t rank, int in, int out)
{
    char address[RT_ADDRESS_MAX], go;
    rt_transport *transport;
    times took;
    worker w = {.work = work, .self = rt_peer(RT_ROLE_WORKER, rank), .random = {rank + 1}};
    w.key_count = (uint32_t)(TABLE_BYTES / work->workers / (work->dim * sizeof(float)));
    w.slab = rt_alloc(SLAB_ROWS, work->dim * sizeof(float));
    must(w.slab != NULL, "memory");
    memset(w.slab, 0, (size_t)SLAB_ROWS * work->dim * sizeof(float));
    read_exactly(in, address, sizeof address);
    must(!work->ops->open(&transport, NULL), "opening the transport");
    must(!work->ops->connect(transport, w.self, SHARD, address, &w.endpoint, NULL), "connecting");
    say_hello(&w);
    pull_all(&w, w.key_count / work->records * 2); // creates most of the rows
    push_all(&w, 4);
    write_exactly(out, &go, 1);
    read_exactly(in, &go, 1);
    took.push_begin_ns = rt_now_ns();
    push_all(&w, work->messages);
    took.push_end_ns = rt_now_ns();
    write_exactly(out, &go, 1);
    read_exactly(in, &go, 1);
    took.pull_begin_ns = rt_now_ns();
    pull_all(&w, work->messages);
    took.pull_end_ns = rt_now_ns();
    write_exactly(out, &took, sizeof took);
    read_exactly(in, &go, 1);
    work->ops->end(w.endpoint, 0);
    work->ops->close(transport);
    return EXIT_SUCCESS;
}

// ---- the shard

static int run_shard(const load *work, int in)
{
    char coordinator[RT_NAME_MAX], set[64];
    rt_config config;
    rt_error error = {0};
    rt_log_setup(RT_LOG_ERROR, "ps");
    read_exactly(in, coordinator, sizeof coordinator);
    must(!rt_config_init(&config), "memory");
    snprintf(set, sizeof set, "model.embedding_dim=%u", work->dim);
    must(!rt_config_set(&config, set, &error), error.text);
    snprintf(set, sizeof set, "workers=%u", work->workers);
    must(!rt_config_set(&config, set, &error), error.text);
    must(!rt_config_set(&config, "optimizer.rows.name=sgd", &error), error.text);
    must(!rt_config_set(&config, "timeouts.peer_s=600", &error), error.text);
    const ps_server_config server = {
        .transport = work->ops, .config = &config, .rank = 0, .coordinator = coordinator};
    rt_status status = ps_server_run(&server, &error);
    must(status == RT_STOPPED, error.text);
    rt_config_fini(&config);
    return EXIT_SUCCESS;
}

// ---- the coordinator

typedef struct {
    pid_t pid;
    int in, out; // of this process
} child;

static child start(const load *work, uint32_t rank, bool is_shard)
{
    int down[2], up[2];
    must(pipe(down) == 0 && pipe(up) == 0, "a pipe");
    fflush(NULL);
    child one = {fork(), up[0], down[1]};
    must(one.pid >= 0, "fork");
    if (one.pid == 0)
        exit(is_shard ? run_shard(work, down[0]) : run_worker(work, rank, down[0], up[1]));
    close(down[0]);
    close(up[1]);
    return one;
}

static void finish(child *one)
{
    int status;
    must(waitpid(one->pid, &status, 0) == one->pid && WIFEXITED(status) && !WEXITSTATUS(status),
         "a process");
    close(one->in);
    close(one->out);
}

// The shard's HELLO, which has its address, and a WELCOME.
static void admit_shard(const load *work, rt_endpoint *endpoint, char address[RT_ADDRESS_MAX])
{
    uint32_t peer;
    bool ready;
    rt_message message;
    rt_wire_hello hello;
    rt_wire_welcome welcome = {.worker_count = work->workers,
                               .workers = rt_bit(work->workers) - 1,
                               .shards_in = 1,
                               .shard_count = 1,
                               .field_count = 1,
                               .slot_count = 1,
                               .sample_count_max = 1,
                               .keys_per_sample_max = 1,
                               .run_ahead = 1};
    while (work->ops->receive(endpoint, &peer, &message, NULL) != RT_OK)
        must(work->ops->wait(&endpoint, 1, -1, WAIT_MS, &ready) == RT_OK, "waiting");
    must(rt_control_has(&message, sizeof hello), "the shard's HELLO");
    memcpy(&hello, rt_message_payload(&message), sizeof hello);
    rt_message_release(&message);
    memcpy(address, hello.address, RT_ADDRESS_MAX);
    must(!rt_message_create(&message, RT_MESSAGE_WELCOME, COORDINATOR, 0, 1, sizeof welcome),
         "memory");
    memcpy(rt_message_payload(&message), &welcome, sizeof welcome);
    must(work->ops->send(endpoint, SHARD, &message) == RT_OK, "sending");
    work->ops->wait(&endpoint, 1, -1, 200, &ready); // also moves it
}

static double rate(const load *work, const times *all, bool of_push)
{
    uint64_t begin = UINT64_MAX, end = 0;
    for (uint32_t i = 0; i < work->workers; i++) {
        begin = rt_min_u64(begin, of_push ? all[i].push_begin_ns : all[i].pull_begin_ns);
        end = rt_max_u64(end, of_push ? all[i].push_end_ns : all[i].pull_end_ns);
    }
    return (double)work->workers * (double)work->messages * work->records /
           ((double)(end - begin) * 1e-9);
}

static double clock_s(clockid_t clock)
{
    struct timespec now;
    must(clock_gettime(clock, &now) == 0, "a clock");
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static double cpu_s(const child *shard, const child *workers, uint32_t worker_count)
{
    clockid_t clock;
    double sum = 0;
    for (uint32_t i = 0; i <= worker_count; i++) {
        pid_t pid = i < worker_count ? workers[i].pid : shard->pid;
        must(clock_getcpuclockid(pid, &clock) == 0, "a process's clock");
        sum += clock_s(clock);
    }
    return sum;
}

static void run_ours(const load *work, speeds *got)
{
    double cpu[3]; // before the pushes, between, after the pulls
    char address[RT_ADDRESS_MAX], bound[RT_NAME_MAX] = {0}, go = 1;
    child shard = start(work, 0, true), workers[WORKERS_MAX];
    times took[WORKERS_MAX];
    rt_transport *transport;
    rt_endpoint *endpoint;
    rt_message message;
    for (uint32_t i = 0; i < work->workers; i++)
        workers[i] = start(work, i, false);
    must(!work->ops->open(&transport, NULL), "opening the transport");
    must(!work->ops->listen(transport, COORDINATOR, "tcp://127.0.0.1:0", bound, &endpoint, NULL),
         "listening");
    write_exactly(shard.out, bound, sizeof bound);
    admit_shard(work, endpoint, address);
    for (uint32_t i = 0; i < work->workers; i++)
        write_exactly(workers[i].out, address, sizeof address);
    for (uint32_t phase = 0; phase < 2; phase++) {
        for (uint32_t i = 0; i < work->workers; i++)
            read_exactly(workers[i].in, &go, 1);
        cpu[phase] = cpu_s(&shard, workers, work->workers);
        for (uint32_t i = 0; i < work->workers; i++)
            write_exactly(workers[i].out, &go, 1);
    }
    for (uint32_t i = 0; i < work->workers; i++)
        read_exactly(workers[i].in, &took[i], sizeof took[i]);
    cpu[2] = cpu_s(&shard, workers, work->workers);
    for (uint32_t i = 0; i < work->workers; i++) {
        write_exactly(workers[i].out, &go, 1);
        finish(&workers[i]);
    }
    must(!rt_control_create_text(&message, RT_MESSAGE_STOP, COORDINATOR, "done"), "memory");
    must(work->ops->send(endpoint, SHARD, &message) == RT_OK, "sending");
    work->ops->end(endpoint, 5000);
    work->ops->close(transport);
    finish(&shard);
    const double rows = (double)work->workers * (double)work->messages * work->records;
    got->push = rate(work, took, true);
    got->pull = rate(work, took, false);
    got->push_cpu = (cpu[1] - cpu[0]) / rows;
    got->pull_cpu = (cpu[2] - cpu[1]) / rows;
}

// ---- plain: the same bytes as a push, from DEALERs to a ROUTER, the simplest calls

static int plain_send(const char *address, const load *work, const void *bytes, size_t size)
{
    void *context = zmq_ctx_new(), *socket = zmq_socket(context, ZMQ_DEALER);
    must(zmq_connect(socket, address) == 0, "connecting");
    for (uint64_t i = 0; i < work->messages; i++)
        must(zmq_send(socket, bytes, size, 0) == (int)size, "sending");
    zmq_close(socket);
    zmq_ctx_term(context);
    return EXIT_SUCCESS;
}

// Of this process and of those that it waited for.
static double own_cpu_s(void)
{
    struct rusage waited;
    must(getrusage(RUSAGE_CHILDREN, &waited) == 0, "getrusage");
    return clock_s(CLOCK_PROCESS_CPUTIME_ID) +
           (double)(waited.ru_utime.tv_sec + waited.ru_stime.tv_sec) +
           (double)(waited.ru_utime.tv_usec + waited.ru_stime.tv_usec) * 1e-6;
}

static void run_plain(const load *work, speeds *got)
{
    const double cpu = own_cpu_s();
    const size_t size =
        sizeof(rt_wire_header) + work->records * (sizeof(rt_wire_row) + work->dim * sizeof(float));
    char address[64];
    size_t address_size = sizeof address;
    uint64_t begin_ns = 0;
    int ports[2];
    pid_t pids[WORKERS_MAX];
    void *bytes = calloc(1, size);
    must(bytes && pipe(ports) == 0, "memory");
    memset(bytes, 1, size);
    fflush(NULL);
    for (uint32_t i = 0; i < work->workers; i++) {
        pids[i] = fork();
        must(pids[i] >= 0, "fork");
        if (pids[i])
            continue;
        read_exactly(ports[0], address, sizeof address);
        exit(plain_send(address, work, bytes, size));
    }
    void *context = zmq_ctx_new(), *socket = zmq_socket(context, ZMQ_ROUTER);
    must(zmq_bind(socket, "tcp://127.0.0.1:*") == 0, "listening");
    must(zmq_getsockopt(socket, ZMQ_LAST_ENDPOINT, address, &address_size) == 0, "listening");
    for (uint32_t i = 0; i < work->workers; i++)
        write_exactly(ports[1], address, sizeof address);
    zmq_msg_t message;
    zmq_msg_init(&message);
    const uint64_t count = work->messages * work->workers;
    for (uint64_t i = 0; i < count; i++) {
        must(zmq_msg_recv(&message, socket, 0) >= 0, "receiving");
        must(zmq_msg_recv(&message, socket, 0) == (int)size, "receiving");
        begin_ns = i == 0 ? rt_now_ns() : begin_ns;
    }
    got->plain = (double)(count - 1) * work->records / ((double)(rt_now_ns() - begin_ns) * 1e-9);
    zmq_msg_close(&message);
    zmq_close(socket);
    zmq_ctx_term(context);
    for (uint32_t i = 0; i < work->workers; i++)
        must(waitpid(pids[i], NULL, 0) == pids[i], "a process");
    got->plain_cpu = (own_cpu_s() - cpu) / ((double)count * work->records);
    close(ports[0]);
    close(ports[1]);
    free(bytes);
}

// ---- measuring

static int compare(const void *a, const void *b)
{
    const double *left = a, *right = b;
    return (*left > *right) - (*left < *right);
}

static double median(double *values)
{
    qsort(values, turns, sizeof *values, compare);
    return values[turns / 2];
}

static void measure(const load *work)
{
    double push[TURNS_MAX], pull[TURNS_MAX], plain[TURNS_MAX];
    double push_cpu[TURNS_MAX], pull_cpu[TURNS_MAX], plain_cpu[TURNS_MAX];
    for (int turn = 0; turn < turns; turn++) {
        speeds got = {0};
        run_ours(work, &got);
        run_plain(work, &got);
        push[turn] = got.push;
        pull[turn] = got.pull;
        plain[turn] = got.plain;
        push_cpu[turn] = got.push_cpu;
        pull_cpu[turn] = got.pull_cpu;
        plain_cpu[turn] = got.plain_cpu;
    }
    const double to_gb = work->dim * sizeof(float) * 1e-9, base = median(plain);
    const double up = median(push), down = median(pull);
    printf("%-5s %5zu %8u %8.2f %8.2f %8.2f %9.2f %9.2f %9.2f %6.2f %6.2f %6.2f %6.2f %6.2f\n",
           work->ops->name, work->dim * sizeof(float), work->workers, up * to_gb, down * to_gb,
           base * to_gb, up * 1e-6, down * 1e-6, base * 1e-6, up / base, down / base,
           median(push_cpu) / to_gb, median(pull_cpu) / to_gb, median(plain_cpu) / to_gb);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    rt_keep_freed_memory(); // as the program does
    static const char *const transports[] = {"zmq", "ucx"};
    static const struct {
        uint32_t dim, workers;
    } cases[] = {{512, 1}, {16, 1}, {512, 4}, {16, 4}};
    const uint64_t message_bytes = argc > 3 ? strtoul(argv[3], NULL, 10) : UINT64_MAX;
    const uint64_t total = (uint64_t)((argc > 1 ? atof(argv[1]) : 2000) * 1e6);
    turns = total < FEW_BYTES ? 1 : TURNS_MAX;
    printf("%-5s %5s %8s %8s %8s %8s %9s %9s %9s %6s %6s %6s %6s %6s\n", "", "row", "workers",
           "push", "pull", "plain", "push", "pull", "plain", "push", "pull", "push", "pull",
           "plain");
    printf("%-5s %5s %8s %8s %8s %8s %9s %9s %9s %6s %6s %6s %6s %6s\n", "", "bytes", "", "GB/s",
           "GB/s", "GB/s", "M rows/s", "M rows/s", "M rows/s", "/plain", "/plain", "CPU s",
           "per GB", "");
    for (size_t t = 0; t < RT_COUNT_OF(transports); t++) {
        if (argc > 2 && strcmp(argv[2], transports[t]) != 0)
            continue;
        const rt_transport_ops *ops = find(transports[t]);
        if (!ops)
            continue;
        for (size_t i = 0; i < RT_COUNT_OF(cases); i++) {
            const uint64_t row_bytes = (uint64_t)cases[i].dim * sizeof(float);
            const uint64_t fit = message_bytes / (row_bytes + sizeof(rt_wire_row));
            const uint32_t records = (uint32_t)rt_min_u64(RECORDS_MAX, rt_max_u64(fit, 1));
            measure(&(load){ops, cases[i].dim, cases[i].workers, records,
                            total / (row_bytes * records) / cases[i].workers + 1});
        }
    }
    return EXIT_SUCCESS;
}
