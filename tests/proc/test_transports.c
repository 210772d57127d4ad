// Whole runs over every transport: the same model, and the same words when a process is lost.
#include "tests/support/test.h"

#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/rt_base.h"
#include "tests/support/process_case.h"
#include "tests/support/transport_case.h"

#define RUN_S 50.0
#define END_S 10.0
#define WORKERS 4

// Two of the workers reach a mixed run by ZeroMQ, two by UCX.
static const char config_text[] =
    "{\"workers\": 4, \"batch\": {\"samples_per_worker\": 16},"
    " \"stream\": {\"format\": \"synthetic\", \"samples_max\": %s,"
    "  \"synthetic\": {\"scale\": 0.001, \"clusters\": 4}},"
    " \"model\": {\"embedding_dim\": 4, \"mlp\": [8, 4]}, \"cache\": {\"rows\": 600},"
    " \"optimizer\": {\"rows\": {\"name\": \"adam\"}}, \"ps\": {\"shards\": 2},"
    " \"links\": {\"pin\": true, \"workers\": [{\"gbps\": 5, \"count\": 2},"
    "  {\"gbps\": 0.5, \"count\": 2, \"transport\": \"zmq\"}]},"
    " \"network\": {\"transport\": \"%s\", \"message_bytes\": 4096},"
    " \"timeouts\": {\"start_s\": 20, \"peer_s\": 2}}";

typedef struct {
    char config[300], out[300];
    process process;
} run;

static void prepare(run *r, const char *transport, const char *samples)
{
    static const char *folder; // one for the case
    folder = folder ? folder : test_directory();
    *r = (run){0};
    snprintf(r->config, sizeof r->config, "%s/%s.json", folder, transport);
    snprintf(r->out, sizeof r->out, "%s/%s", folder, transport);
    FILE *file = fopen(r->config, "w");
    assert_non_null(file);
    assert_true(fprintf(file, config_text, samples, transport) > 0);
    assert_int_equal(fclose(file), 0);
}

static void start(run *r)
{
    const char *const arguments[] = {process_lanyard(), "up", r->config, "--out", r->out, NULL};
    process_start(&r->process, arguments);
}

// ---- the same model --------------------------------------------------------------------------

static uint8_t *read_all(const run *r, const char *name, size_t *size_p)
{
    char path[400];
    snprintf(path, sizeof path, "%s/model/%s", r->out, name);
    FILE *file = fopen(path, "rb");
    if (!file)
        fail_msg("%s: %s", path, strerror(errno));
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    *size_p = (size_t)ftell(file);
    rewind(file);
    uint8_t *bytes = malloc(*size_p);
    assert_true(bytes && fread(bytes, 1, *size_p, file) == *size_p);
    fclose(file);
    return bytes;
}

// Rows stand in the order of their keys: equal models have equal files.
static void compare_shard(const run *a, const run *b, const char *name)
{
    size_t sizes[2];
    uint8_t *left = read_all(a, name, &sizes[0]), *right = read_all(b, name, &sizes[1]);
    assert_true(sizes[0] > 1000);
    assert_int_equal(sizes[0], sizes[1]);
    assert_memory_equal(left, right, sizes[0]);
    free(left);
    free(right);
}

static void same_model(const run *a, const run *b)
{
    size_t sizes[2];
    uint8_t *left = read_all(a, "dense.bin", &sizes[0]);
    uint8_t *right = read_all(b, "dense.bin", &sizes[1]);
    assert_int_equal(sizes[0], sizes[1]);
    assert_memory_equal(left, right, sizes[0]);
    free(left);
    free(right);
    compare_shard(a, b, "rows-000-of-002.bin");
    compare_shard(a, b, "rows-001-of-002.bin");
}

static void every_transport_gives_the_same_model(void **state)
{
    (void)state;
    static const char *const transports[] = {"zmq", "ucx", "mixed"};
    run runs[3];
    (void)test_ucx(); // or skip
    for (size_t i = 0; i < RT_COUNT_OF(transports); i++) {
        prepare(&runs[i], transports[i], "4000");
        start(&runs[i]);
        int status = process_end(&runs[i].process, RUN_S);
        if (status != 0)
            fail_msg("%s: exit status %d; it said:\n%s", transports[i], status,
                     runs[i].process.text);
        process_fini(&runs[i].process);
        same_model(&runs[0], &runs[i]);
    }
}

// ---- an end before the end -------------------------------------------------------------------

static void start_endless(run *r, const char *transport)
{
    (void)test_ucx(); // or skip
    prepare(r, transport, "0");
    start(r);
    process_await(&r->process, 0, "iteration", RUN_S);
}

static void lose(const char *transport, const char *command, int signal, const char *named)
{
    run r;
    start_endless(&r, transport);
    size_t before = r.process.length;
    kill(process_child(&r.process, command), signal);
    int status = process_end(&r.process, END_S);
    if (status != 1)
        fail_msg("exit status %d; it said:\n%s", status, r.process.text);
    if (!strstr(r.process.text + before, named))
        fail_msg("\"%s\" is not named:\n%s", named, r.process.text);
    process_fini(&r.process);
}

static void interrupt(const char *transport)
{
    run r;
    start_endless(&r, transport);
    kill(r.process.pid, SIGINT);
    int status = process_end(&r.process, END_S);
    if (status != 0)
        fail_msg("exit status %d; it said:\n%s", status, r.process.text);
    process_fini(&r.process);
}

#define CASES(XX, transport)                                                       \
    XX(transport, coordinator_killed, "coordinator", SIGKILL, "coordinator")       \
    XX(transport, shard_killed, "ps", SIGKILL, "ps ")                              \
    XX(transport, worker_killed, "--rank 1", SIGKILL, " 1")                        \
    XX(transport, last_worker_killed, "--rank 3", SIGKILL, "worker 3")             \
    XX(transport, last_worker_stopped, "--rank 3", SIGSTOP, "worker 3 was silent") \
    XX(transport, coordinator_stopped, "coordinator", SIGSTOP, "the coordinator was silent")

#define STAMP(transport, name, command, signal, named) \
    static void transport##_##name(void **state)       \
    {                                                  \
        (void)state;                                   \
        lose(#transport, command, signal, named);      \
    }
CASES(STAMP, ucx)
CASES(STAMP, mixed)

static void ucx_interrupted(void **state)
{
    (void)state;
    interrupt("ucx");
}

static void mixed_interrupted(void **state)
{
    (void)state;
    interrupt("mixed");
}

// ---- without it ------------------------------------------------------------------------------

static void run_alone(const char *folder, const char *transport, int want, const char *said)
{
    run r;
    char program[400];
    prepare(&r, transport, "640");
    snprintf(program, sizeof program, "%s/lanyard", folder);
    const char *const arguments[] = {program, "up", r.config, "--out", r.out, NULL};
    if (process_run(&r.process, arguments, RUN_S) != want)
        fail_msg("%s: expected exit status %d; it said:\n%s", transport, want, r.process.text);
    const char *at = strstr(r.process.text, said);
    if (!at)
        fail_msg("%s: no \"%s\" in:\n%s", transport, said, r.process.text);
    if (want != 0 && strstr(at + strlen(said), "UCX:"))
        fail_msg("%s: said twice:\n%s", transport, r.process.text);
    process_fini(&r.process);
}

static void shell(const char *command)
{
    if (system(command) != 0)
        fail_msg("failed: %s", command);
}

// A program that stands alone trains by ZeroMQ; who asks for UCX is told once what is missing: the
// plug-in, or the library that it needs.
static void only_who_asks_needs_ucx(void **state)
{
    (void)state;
    char folder[300], command[2000];
    snprintf(folder, sizeof folder, "%s/alone", test_directory());
    snprintf(command, sizeof command, "! ldd %s | grep libuc[pst] && mkdir %s && cp %s %s/lanyard",
             process_lanyard(), folder, process_lanyard(), folder);
    shell(command);
    run_alone(folder, "zmq", 0, "AUC");
    run_alone(folder, "ucx", 1, "network.transport needs UCX: " RT_UCX_FILE " is neither beside");
    run_alone(folder, "mixed", 1, "network.transport needs UCX: " RT_UCX_FILE " is neither beside");
    (void)test_ucx(); // or skip
    snprintf(command, sizeof command,
             "LC_ALL=C sed 's/libucp\\.so\\.0/libucq.so.0/g' <%s >%s/" RT_UCX_FILE,
             process_beside(RT_UCX_FILE), folder);
    shell(command);
    run_alone(folder, "ucx", 1, "libucq.so.0: cannot open shared object file");
}

// Everybody listens on the loopback of IPv6, workers too.
static void ipv6(void **state)
{
    (void)state;
    static const char *const forms[] = {"network.bind=::1", "network.bind=[::1]"};
    const struct sockaddr_in6 place = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    const int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const bool may_listen = fd >= 0 && bind(fd, (const struct sockaddr *)&place, sizeof place) == 0;
    if (fd >= 0)
        close(fd);
    if (!may_listen)
        test_skip("no IPv6 on this machine");
    for (size_t i = 0; i < RT_COUNT_OF(forms); i++) {
        run r;
        prepare(&r, "zmq", "640");
        const char *const arguments[] = {
            process_lanyard(),         "up", r.config, "--out", r.out, "--set", forms[i], "--set",
            "dispatch.hand_over=true", NULL};
        if (process_run(&r.process, arguments, RUN_S) != 0)
            fail_msg("%s: %s", forms[i], r.process.text);
        assert_non_null(strstr(r.process.text, "listens for other workers at tcp://[::1]:"));
        process_fini(&r.process);
    }
}

#define ENTRY(transport, name, command, signal, named) TEST(transport##_##name),
TEST_MAIN(TEST_SLOW(every_transport_gives_the_same_model, 170),
          CASES(ENTRY, ucx) CASES(ENTRY, mixed) TEST(ucx_interrupted), TEST(mixed_interrupted),
          TEST(only_who_asks_needs_ucx), TEST(ipv6))
