// A run on a machine whose clock is set while it trains, and while it is down: labels, checkpoints,
// alerts.
#include <cjson/cJSON.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "runtime/rt_base.h"
#include "tests/support/run_case.h"
#include "tests/support/test.h"

#define LIBRARY "build/release/tests/libday.so"
#define WAIT_S 30.0
#define EVENTS 200u
#define HOUR_S 3600L
#define CENTURY_S 3155760000L

// Windows are long for what a test takes, and short for the hours by which the clock is set.
static const char config_format[] =
    "{\"workers\": 1, \"batch\": {\"samples_per_worker\": 20, \"wait_ms\": 100}, \"cache\": "
    "{\"rows\": "
    "2000}, \"model\": {\"embedding_dim\": 4, \"mlp\": [8]}, \"links\": {\"pin\": true},"
    " \"checkpoint\": {\"every_s\": 1, \"keep\": 50, \"keep_s\": 1800},"
    " \"watch\": {\"listen\": \"127.0.0.1:%d\"}, \"alerts\": {\"no_progress_s\": 600, \"command\": "
    "\"cat >> %s/alerts\"}, \"stream\": {\"source\": \"http\", \"http\": {\"listen\": "
    "\"127.0.0.1:%d\"},"
    " \"format\": \"table\", \"table\": {\"columns\": [{\"name\": \"id\", \"kind\": \"id\"}, "
    "{\"name\": "
    "\"c\", \"kind\": \"categorical\"}]}, \"join\": {\"source\": \"http\", \"window_s\": 1200, "
    "\"resend_s\": 0, \"columns\": [{\"name\": \"id\", \"kind\": \"id\"}, {\"name\": \"y\", "
    "\"kind\": "
    "\"label\"}]}}}";

static char config[2048];
static int http_port, watch_port;

static void set_day(long ahead_s)
{
    char text[32];
    const int size = snprintf(text, sizeof text, "%ld\n", ahead_s);
    run_write("day.new", text, (size_t)size);
    assert_int_equal(rename(run_path("day.new"), run_path("day")), 0);
}

static void begin(process *p, long ahead_s, const char *flag)
{
    set_day(ahead_s);
    setenv("LANYARD_DAY", run_path("day"), 1);
    setenv("LD_PRELOAD", LIBRARY, 1);
    setenv("ASAN_OPTIONS", "verify_asan_link_order=0", 1); // it stands before the sanitizer
    http_port = http_port ? http_port : test_free_port();
    watch_port = watch_port ? watch_port : test_free_port();
    snprintf(config, sizeof config, config_format, watch_port, run_folder(), http_port);
    *p = (process){0};
    run_start_up(p, config, "out", flag, NULL);
    unsetenv("LD_PRELOAD");
    process_await(p, 0, "listening on http://", WAIT_S);
}

static const char *ask(const char *path, int port, const char *body)
{
    static char text[1 << 16];
    char command[300];
    const char *how = "";
    if (system("command -v curl >/dev/null") != 0)
        test_skip("curl is not installed (tools/setup test)");
    if (body) {
        run_write("body", body, strlen(body));
        how = "--data-binary @body";
    }
    snprintf(command, sizeof command,
             "cd %s; curl -s --max-time 10 --retry 50 --retry-delay 1 --retry-connrefused %s "
             "http://127.0.0.1:%d%s",
             run_folder(), how, port, path);
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    const size_t size = fread(text, 1, sizeof text - 1, pipe);
    text[size] = '\0';
    pclose(pipe);
    return text;
}

static void post(const char *path, char what, uint32_t from, bool is_outcome)
{
    static char body[EVENTS * 24];
    char want[40];
    size_t length = 0;
    for (uint32_t i = 0; i < EVENTS; i++)
        length += (size_t)snprintf(body + length, sizeof body - length, "%c%u,%u\n", what, from + i,
                                   is_outcome ? 1 : i % 10);
    snprintf(want, sizeof want, "{\"stored\":%u}", EVENTS);
    const char *got = ask(path, http_port, body);
    if (strcmp(got, want) != 0)
        fail_msg("POST %s: %s", path, got);
}

static void end(process *p)
{
    kill(p->pid, SIGINT);
    run_must_end(p, 0);
}

static double in_summary(const char *section, const char *name)
{
    size_t size;
    char *text = run_file("out", "summary.json", &size);
    assert_non_null(text);
    cJSON *json = cJSON_Parse(text);
    const cJSON *object = section ? cJSON_GetObjectItem(json, section) : json;
    const cJSON *item = cJSON_GetObjectItem(object, name);
    assert_true(cJSON_IsNumber(item));
    const double value = item->valuedouble;
    cJSON_Delete(json);
    free(text);
    return value;
}

static void must_be_calm(void)
{
    unsigned code;
    (void)code;
    cJSON *json = cJSON_Parse(ask("/status", watch_port, NULL));
    assert_non_null(json);
    const cJSON *alerts = cJSON_GetObjectItem(json, "alerts");
    if (cJSON_GetArraySize(alerts) != 0)
        fail_msg("alerts: %s", cJSON_PrintUnformatted(alerts));
    assert_true(cJSON_GetObjectItem(json, "iteration_age_s")->valuedouble < 600);
    const double now_s = cJSON_GetObjectItem(json, "unix_s")->valuedouble;
    cJSON_Delete(json);
    assert_string_equal(strstr(ask("/health", watch_port, NULL), "\"ok\"") ? "ok" : "", "ok");
    // What others read is the machine's time.
    FILE *file = fopen(run_path("day"), "r");
    long ahead_s = 0;
    assert_true(file && fscanf(file, "%ld", &ahead_s) == 1);
    fclose(file);
    assert_true(llabs((long long)now_s - (long long)time(NULL) - ahead_s) < 600);
}

static void while_it_trains(void **state)
{
    (void)state;
    static const long steps_s[] = {-CENTURY_S / 2, 0, 2 * HOUR_S, -2 * HOUR_S, CENTURY_S};
    process p;
    begin(&p, steps_s[0], NULL);
    size_t said = 0;
    for (uint32_t i = 0; i < RT_COUNT_OF(steps_s); i++) {
        set_day(steps_s[i]);
        post("/events", 'e', EVENTS * i, false);
        post("/events", 'x', EVENTS * i, false); // answered at once: they are trained
        post("/outcomes", 'x', EVENTS * i, true);
        run_await_iterations(&p, "out", (i + 1) * EVENTS / 20);
        if (i > 0)
            said = process_await(&p, said, "the clock of this machine was set ", WAIT_S);
        must_be_calm();
    }
    for (uint32_t i = 0; i < RT_COUNT_OF(steps_s); i++)
        post("/outcomes", 'e', EVENTS * i, true);
    run_await_iterations(&p, "out", 2 * RT_COUNT_OF(steps_s) * EVENTS / 20);
    must_be_calm();
    end(&p);
    assert_true(in_summary("join", "unanswered") == 0);
    assert_true(in_summary(NULL, "samples") == 2 * RT_COUNT_OF(steps_s) * EVENTS);
    assert_int_not_equal(access(run_path("alerts"), F_OK), 0);
    process_fini(&p);
}

static void while_it_is_down(void **state)
{
    (void)state;
    process p;
    begin(&p, -CENTURY_S / 2, NULL);
    post("/events", 'e', 0, false);
    post("/events", 'x', 0, false);
    post("/outcomes", 'x', 0, true);
    run_await_iterations(&p, "out", EVENTS / 20);
    run_await_checkpoint(&p, "out");
    end(&p);
    process_fini(&p);
    begin(&p, 2 * HOUR_S, "--resume");
    post("/events", 'y', 0, false);
    post("/outcomes", 'y', 0, true);
    post("/outcomes", 'e', 0, true);
    run_await_iterations(&p, "out", 3 * EVENTS / 20);
    must_be_calm();
    end(&p);
    assert_true(in_summary("join", "unanswered") == 0);
    process_fini(&p);
}

TEST_MAIN(TEST_SLOW(while_it_trains, 120), TEST_SLOW(while_it_is_down, 120))
