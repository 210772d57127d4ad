// Runs that are looked at: over HTTP, in a terminal, and by those who mean no good.
#include "tests/support/test.h"

#include <arpa/inet.h>
#include <cjson/cJSON.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/rt_base.h"
#include "tests/support/run_case.h"

#define WAIT_S 30.0
#define STEP_MS 100

static const char config[] =
    "{\"workers\": 3, \"batch\": {\"samples_per_worker\": 16},"
    " \"stream\": {\"format\": \"synthetic\", \"synthetic\": {\"scale\": 0.001}},"
    " \"model\": {\"embedding_dim\": 4, \"mlp\": [8, 4]}, \"cache\": {\"rows\": 600},"
    " \"links\": {\"pin\": true}, \"timeouts\": {\"start_s\": 20},"
    " \"watch\": {\"listen\": \"127.0.0.1:0\", \"column\": \"C3\"}}";

// The address that a run says it listens at, from an offset of its output on.
static const char *await_address(process *p, size_t from)
{
    static char address[128];
    const size_t at = process_await(p, from, "watch: listening on http://", WAIT_S);
    process_await(p, at, "\n", WAIT_S);
    snprintf(address, sizeof address, "%.*s", (int)strcspn(p->text + at, "\n"), p->text + at);
    return address;
}

// What curl prints for a path, and the status code behind it.
static const char *get(const char *address, const char *path, unsigned *code_p)
{
    static char text[1 << 20];
    char command[512];
    if (system("command -v curl >/dev/null") != 0)
        test_skip("curl is not installed (tools/setup test)");
    snprintf(command, sizeof command, "curl -s --max-time 10 -w ' %%{http_code}' http://%s%s",
             address, path);
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    const size_t size = fread(text, 1, sizeof text - 1, pipe);
    text[size] = '\0';
    pclose(pipe);
    char *last = strrchr(text, ' ');
    *code_p = last ? (unsigned)atoi(last) : 0;
    if (last)
        *last = '\0';
    return text;
}

static const char *must_get(const char *address, const char *path)
{
    unsigned code;
    const char *text = get(address, path, &code);
    if (code != 200)
        fail_msg("GET %s: %u, %s", path, code, text);
    return text;
}

static double number_of(const cJSON *json, const char *name)
{
    const cJSON *one = cJSON_GetObjectItem(json, name);
    return cJSON_IsNumber(one) ? one->valuedouble : -1;
}

// Asks until a number of /status has reached a value.
static double await_number(const char *address, const char *name, double least)
{
    double value = -1;
    for (double s = 0; s < WAIT_S && value < least; s += STEP_MS * 1e-3) {
        unsigned code;
        cJSON *json = cJSON_Parse(get(address, "/status", &code));
        value = number_of(json, name);
        cJSON_Delete(json);
        if (value < least)
            (void)poll(NULL, 0, STEP_MS);
    }
    if (value < least)
        fail_msg("%s has %g, expected %g", name, value, least);
    return value;
}

// Of a metric that has no labels.
static double metric(const char *text, const char *name)
{
    char line[128];
    snprintf(line, sizeof line, "\n%s ", name);
    const char *at = strstr(text, line);
    if (!at)
        fail_msg("no %s", name);
    return strtod(at + strlen(line), NULL);
}

static void must_have(const char *text, const char *part)
{
    if (!strstr(text, part))
        fail_msg("\"%s\" is not in: %.300s", part, text);
}

// `lanyard top` with up to three arguments; its output is the caller's (process_fini).
static void run_top(process *p, const char *one, const char *two, const char *three, int want)
{
    run_start(p, (const char *const[]){"top", one, two, three, NULL}, NULL);
    run_must_end(p, want);
}

static void must_fit(const char *text)
{
    for (const char *at = text; *at;) {
        const size_t length = strcspn(at, "\n");
        if (length > 80)
            fail_msg("%zu characters: %.*s", length, (int)length, at);
        at += length + (at[length] == '\n');
    }
}

static void stop(process *p)
{
    kill(p->pid, SIGINT);
    run_must_end(p, 0);
}

static void shows_a_run(void **state)
{
    (void)state;
    process p, top;
    unsigned code;
    char address[128];
    run_start_up(&p, config, "out", NULL, NULL);
    snprintf(address, sizeof address, "%s", await_address(&p, 0));
    const double least = await_number(address, "iteration", 50);
    run_await_records(&p, "out", "\"record\":\"slices\"", 1);
    (void)poll(NULL, 0, 1500); // what the members said is shown within a second

    const char *text = must_get(address, "/metrics");
    assert_true(metric(text, "lanyard_iteration") >= least);
    assert_true(metric(text, "lanyard_samples_total") ==
                metric(text, "lanyard_iterations_total") * 48);
    assert_true(metric(text, "lanyard_workers") == 3 && metric(text, "lanyard_workers_out") == 0);
    assert_true(metric(text, "lanyard_window_log_loss") > 0);
    must_have(text, "lanyard_worker_time_seconds_total{worker=\"2\",part=\"compute\"}");
    must_have(text, "lanyard_process_resident_memory_bytes{process=\"ps\",rank=\"0\"}");
    must_have(text, "lanyard_shard_rows{shard=\"0\"}");
    must_have(text, "lanyard_column_values_total{column=\"C26\"}");
    must_have(text, "lanyard_slice_log_loss{column=\"C3\"");
    must_have(must_get(address, "/health"), "\"status\":\"ok\"");
    must_have(must_get(address, "/ready"), "\"state\":\"trains\"");
    text = must_get(address, "/");
    must_have(text, "<b id=\"state\">trains</b>");
    must_have(text, "<svg ");
    (void)get(address, "/nothing", &code);
    assert_int_equal(code, 404);

    run_top(&top, address, "--once", NULL, 0);
    must_fit(top.text);
    must_have(top.text, "trains");
    must_have(top.text, "coordinator: memory");
    process_fini(&top);
    stop(&p);
    process_fini(&p);

    run_top(&top, run_path("out"), "--once", "--json", 0);
    cJSON *json = cJSON_Parse(top.text);
    size_t size;
    char *summary = run_file("out", "summary.json", &size);
    cJSON *whole = cJSON_Parse(summary);
    assert_true(number_of(json, "samples") == number_of(whole, "samples"));
    assert_true(number_of(json, "iteration") == number_of(whole, "iterations"));
    assert_string_equal(cJSON_GetObjectItem(json, "state")->valuestring, "ended");
    cJSON_Delete(json);
    cJSON_Delete(whole);
    free(summary);
    process_fini(&top);
}

static void says_what_is_wrong(void **state)
{
    (void)state;
    static const struct {
        const char *set, *says;
    } cases[] = {
        {"watch.listen=0.0.0.0:0", "watch.listen: 0.0.0.0:0 can be reached from other machines"},
        {"watch.listen=nonsense", "watch.listen: \"nonsense\" is no address"},
        {"watch.column=shop", "watch.column: expected a categorical column of the stream, found "
                              "\"shop\""}};
    process p;
    for (size_t i = 0; i < RT_COUNT_OF(cases); i++) {
        run_start_up(&p, config, "wrong", NULL, (const char *const[]){cases[i].set, NULL});
        run_must_end(&p, 1);
        run_must_say(&p, cases[i].says);
        process_fini(&p);
    }
    run_top(&p, "/nowhere", "--once", NULL, 1);
    run_must_say(&p, "/nowhere: neither the folder of a run nor HOST:PORT");
    process_fini(&p);
    run_top(&p, "127.0.0.1:1", "--once", NULL, 1);
    run_must_say(&p, "does a run listen there (watch.listen)?");
    process_fini(&p);
    run_top(&p, run_folder(), "--once", NULL, 1);
    run_must_say(&p, "no metrics.jsonl");
    process_fini(&p);
}

// ---- disturbance -----------------------------------------------------------------------------

typedef struct {
    char address[64];
    atomic_bool ends;
} hammering;

static int connect_to(const char *address)
{
    const struct sockaddr_in place = {.sin_family = AF_INET,
                                      .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                                      .sin_port = htons((uint16_t)atoi(strrchr(address, ':') + 1))};
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(fd, (const struct sockaddr *)&place, sizeof place) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

// Asks for events again and again, from before the run listens until it is told to end.
static void *hammer(void *context)
{
    hammering *h = context;
    static const char question[] = "GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n";
    while (!atomic_load(&h->ends)) {
        const int fd = connect_to(h->address);
        if (fd >= 0) {
            (void)!send(fd, question, sizeof question - 1, MSG_NOSIGNAL);
            close(fd);
        }
    }
    return NULL;
}

// Who is there too early is answered like others.
static void begins_under_fire(void **state)
{
    (void)state;
    process p;
    pthread_t threads[4];
    hammering h = {.ends = false};
    char listen_at[96], out[32];
    for (int round = 0; round < 3; round++) {
        snprintf(h.address, sizeof h.address, "127.0.0.1:%u", test_free_port());
        snprintf(listen_at, sizeof listen_at, "watch.listen=%s", h.address);
        atomic_store(&h.ends, false);
        for (size_t i = 0; i < RT_COUNT_OF(threads); i++)
            assert_int_equal(pthread_create(&threads[i], NULL, hammer, &h), 0);
        snprintf(out, sizeof out, "early%d", round);
        run_start_up(&p, config, out, NULL, (const char *const[]){listen_at, NULL});
        run_await_iterations(&p, out, 5);
        atomic_store(&h.ends, true);
        for (size_t i = 0; i < RT_COUNT_OF(threads); i++)
            pthread_join(threads[i], NULL);
        stop(&p);
        process_fini(&p);
    }
}

// Listeners that never read, requests without an end, nonsense, and questions all the while: the
// run ends as it does when nobody looks.
static void holds_nothing_up(void **state)
{
    (void)state;
    enum { COUNT = 100 };
    static const char *const openings[] = {
        "GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "POST /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000000\r\n\r\n",
        "GET /met",
        "\x16\x03\x01\x02",
        ""};
    static const char *const bounded[] = {"stream.samples_max=48000", NULL};
    static const char *const unseen[] = {"stream.samples_max=48000", "watch.listen=", NULL};
    process p;
    int fds[COUNT];
    char address[128];
    run_start_up(&p, config, "seen", NULL, bounded);
    snprintf(address, sizeof address, "%s", await_address(&p, 0));
    for (int i = 0; i < COUNT; i++) {
        const char *text = openings[(size_t)i % RT_COUNT_OF(openings)];
        fds[i] = connect_to(address);
        if (fds[i] >= 0)
            (void)!send(fds[i], text, strlen(text), MSG_NOSIGNAL);
    }
    for (int i = 0; i < 20; i++) {
        unsigned code;
        (void)get(address, i % 2 ? "/metrics" : "/status", &code);
    }
    run_must_end(&p, 0);
    process_fini(&p);
    for (int i = 0; i < COUNT; i++) {
        if (fds[i] >= 0)
            close(fds[i]);
    }
    run_up(config, "unseen", NULL, unseen);
    run_must_be_the_same("seen", "unseen", 1);
}

// ---- a run that starts again -----------------------------------------------------------------

// The same address, and what was before is still in the page.
static void goes_on(void **state)
{
    (void)state;
    process p;
    char address[64], listen_at[96];
    snprintf(address, sizeof address, "127.0.0.1:%u", test_free_port());
    snprintf(listen_at, sizeof listen_at, "watch.listen=%s", address);
    const char *const sets[] = {listen_at, "on_worker_loss=restart", "checkpoint.every_s=0.5",
                                NULL};
    run_start_up(&p, config, "again", NULL, sets);
    const size_t begin = process_await(&p, 0, "watch: listening on ", WAIT_S);
    run_await_checkpoint(&p, "again");
    const double before = await_number(address, "iteration", 20);
    kill(process_child(&p, "--rank 1"), SIGKILL);
    process_await(&p, begin, "watch: listening on ", WAIT_S);
    run_await_going_on(&p, "again", 3);
    const double after = await_number(address, "iteration", before + 1);
    const char *text = must_get(address, "/metrics");
    assert_true(metric(text, "lanyard_iterations_total") >= after - 1); // those of both starts
    stop(&p);
    process_fini(&p);
}

// ---- alerts ----------------------------------------------------------------------------------

// Between two iterations some time passes: with a threshold of next to nothing that fires. The
// command hangs.
static void tells_somebody(void **state)
{
    (void)state;
    process p;
    char command[600];
    snprintf(command, sizeof command, "alerts.command=cat >>%s; sleep 1000", run_path("told"));
    const char *const sets[] = {"watch.listen=", command, "alerts.no_progress_s=1e-4", NULL};
    run_start_up(&p, config, "told_of", NULL, sets);
    char *told = NULL;
    for (double s = 0; s < WAIT_S && !told; s += STEP_MS * 1e-3) {
        size_t size = 0;
        told = run_file(".", "told", &size);
        if (told && size == 0) {
            free(told);
            told = NULL;
        }
        if (!told)
            (void)poll(NULL, 0, STEP_MS);
    }
    assert_non_null(told);
    cJSON *json = cJSON_Parse(told);
    assert_string_equal(cJSON_GetObjectItem(json, "alert")->valuestring, "no_progress");
    assert_string_equal(cJSON_GetObjectItem(json, "run")->valuestring, run_path("told_of"));
    cJSON_Delete(json);
    free(told);
    run_await_iterations(&p, "told_of", 100); // and the run goes on
    stop(&p);
    process_fini(&p); // and nothing of the command is left, or its end would not have come
}

TEST_MAIN(TEST(shows_a_run), TEST(says_what_is_wrong), TEST(begins_under_fire),
          TEST(holds_nothing_up), TEST(goes_on), TEST(tells_somebody))
