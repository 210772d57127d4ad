// Real processes on loopback: `lanyard up` from start to end, and all the ways in which it can be
// cut short. LANYARD names the program.
#include "tests/support/test.h"

#include <arpa/inet.h>
#include <cjson/cJSON.h>
#include <errno.h>
#include <math.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/rt_base.h"
#include "tests/support/process_case.h"

#define END_S 10.0 // what a run may take to notice that a part of it is gone, and to end
#define RUN_S 50.0
#define ARGUMENTS_MAX 64

// ---- a run -----------------------------------------------------------------------------------

typedef struct {
    char config[300], out[300];
    const char *arguments[ARGUMENTS_MAX];
    size_t count;
    process process;
} run;

static const char *folder(void)
{
    static char path[200];
    if (!path[0])
        snprintf(path, sizeof path, "%s", test_directory());
    return path;
}

static void write_file(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static char *read_file(const char *path)
{
    FILE *file = fopen(path, "r");
    if (!file)
        fail_msg("%s: %s", path, strerror(errno));
    char *text = calloc(1 << 22, 1);
    assert_true(fread(text, 1, (1 << 22) - 1, file) < (1 << 22) - 1);
    fclose(file);
    return text;
}

// Small: 2 or 3 workers, 16 samples each, a tiny model; links as configured, so that runs repeat.
static const char small_config[] =
    "{\"workers\": 3, \"batch\": {\"samples_per_worker\": 16},"
    " \"stream\": {\"format\": \"synthetic\", \"samples_max\": 3000,"
    "  \"synthetic\": {\"scale\": 0.001, \"clusters\": 4}},"
    " \"model\": {\"embedding_dim\": 4, \"mlp\": [8, 4]},"
    " \"cache\": {\"rows\": 600}, \"links\": {\"pin\": true}, \"timeouts\": {\"start_s\": 20}}";

static void add(run *r, const char *argument)
{
    assert_true(r->count + 1 < ARGUMENTS_MAX);
    r->arguments[r->count++] = argument;
    r->arguments[r->count] = NULL;
}

static void set(run *r, const char *assignment)
{
    add(r, "--set");
    add(r, assignment);
}

// "up CONFIG --out OUT"; the last part only with a name.
static void prepare(run *r, const char *command, const char *out)
{
    *r = (run){0};
    snprintf(r->config, sizeof r->config, "%s/small.json", folder());
    write_file(r->config, small_config);
    add(r, process_lanyard());
    add(r, command);
    add(r, r->config);
    if (!out)
        return;
    snprintf(r->out, sizeof r->out, "%s/%s", folder(), out);
    add(r, "--out");
    add(r, r->out);
}

static void must_run(run *r)
{
    int status = process_run(&r->process, r->arguments, RUN_S);
    if (status != 0)
        fail_msg("exit status %d; it said:\n%s", status, r->process.text);
}

static void must_say(const run *r, const char *text)
{
    if (!strstr(r->process.text, text))
        fail_msg("nothing about \"%s\" in:\n%s", text, r->process.text);
}

// Ends by itself, fails, and says what it is about.
static void must_fail(run *r, const char *text)
{
    int status = process_run(&r->process, r->arguments, END_S);
    must_say(r, text);
    if (status != 1 && status != 2)
        fail_msg("exit status %d; it said:\n%s", status, r->process.text);
    process_fini(&r->process);
}

static cJSON *read_json(const char *directory, const char *name)
{
    char path[600];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    char *text = read_file(path);
    cJSON *json = cJSON_Parse(text);
    if (!json)
        fail_msg("%s is not JSON", path);
    free(text);
    return json;
}

static double number(const cJSON *json, const char *name)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(json, name);
    if (!cJSON_IsNumber(item))
        fail_msg("no number \"%s\"", name);
    return item->valuedouble;
}

static bool exists(const char *directory, const char *name)
{
    char path[600];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    return access(path, R_OK) == 0;
}

// ---- what a run leaves -----------------------------------------------------------------------

static void check_summary(const run *r, double samples, double iterations, bool interrupted)
{
    static const char *const fields[] = {"samples_per_s",
                                         "seconds",
                                         "logloss",
                                         "auc",
                                         "cost",
                                         "normalised_entropy",
                                         "logloss_last_fifth",
                                         "predicted_iteration_ms"};
    cJSON *json = read_json(r->out, "summary.json");
    if (samples > 0) {
        assert_true(number(json, "samples") == samples);
        assert_true(number(json, "iterations") == iterations);
    }
    assert_true(number(json, "stale_reads") == 0);
    assert_true(number(json, "malformed_lines") == 0);
    assert_true(number(json, "invalid_predictions") == 0);
    for (size_t i = 0; i < RT_COUNT_OF(fields); i++)
        assert_true(isfinite(number(json, fields[i])));
    assert_true(number(json, "logloss") > 0 && number(json, "logloss") < 2);
    assert_int_equal(cJSON_IsTrue(cJSON_GetObjectItem(json, "interrupted")), interrupted);
    const cJSON *ops = cJSON_GetObjectItem(json, "ops");
    assert_true(number(ops, "first_touch") > 0);
    assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItem(json, "ops_by_worker")), 3);
    const cJSON *hits = cJSON_GetObjectItem(json, "hit_ratio");
    assert_true(number(hits, "lookups") > 0 && number(hits, "lookups") <= 1);
    cJSON_Delete(json);
}

static void check_eval(const run *r, double samples)
{
    run eval = {0};
    char model[400];
    snprintf(model, sizeof model, "%s/model", r->out);
    add(&eval, process_lanyard());
    add(&eval, "eval");
    add(&eval, model);
    add(&eval, "--json");
    set(&eval, "stream.samples_max=500");
    must_run(&eval);
    const char *begin = strchr(eval.process.text, '{');
    assert_non_null(begin);
    cJSON *json = cJSON_Parse(begin);
    assert_non_null(json);
    assert_true(number(json, "samples") == samples);
    assert_true(number(json, "logloss") < 1);
    assert_true(number(json, "unknown_lookups") < 0.5); // the samples that it was trained on
    cJSON_Delete(json);
    process_fini(&eval.process);
}

// The reader for other programs, where Python and numpy are there.
static void check_python(const run *r, uint32_t shards)
{
    process p = {0};
    char model[400];
    snprintf(model, sizeof model, "%s/model", r->out);
    const char *const read[] = {"/usr/bin/python3", "tools/read_model.py", model, NULL};
    if (!process_has_numpy() || access(read[1], R_OK) != 0) {
        printf("not checked: python3 with numpy, or tools/read_model.py, is not here\n");
        return;
    }
    if (process_run(&p, read, RUN_S) != 0)
        fail_msg("read_model.py: %s", p.text);
    assert_non_null(strstr(p.text, "rows of 4 values, optimizer adagrad (4 floats of state)"));
    assert_non_null(strstr(p.text, "dense"));
    process_fini(&p);
    for (uint32_t i = 0; i < shards; i++) {
        char name[64];
        snprintf(name, sizeof name, "model/rows-%03u-of-%03u.bin", i, shards);
        assert_true(exists(r->out, name));
    }
}

static void a_run_and_its_files(void **state)
{
    (void)state;
    run r;
    prepare(&r, "up", "out");
    set(&r, "ps.shards=2");
    must_run(&r);
    check_summary(&r, 3000, 63, false); // 62 full batches of 48, and 24 samples
    must_say(&r, "63 iterations, 3000 samples");
    assert_true(exists(r.out, "model/dense.bin") && exists(r.out, "model/config.json"));
    char path[400];
    snprintf(path, sizeof path, "%s/metrics.jsonl", r.out);
    char *metrics = read_file(path);
    uint32_t lines = 0;
    for (const char *at = metrics; (at = strstr(at, "\"predicted_ms\"")); at++)
        lines++;
    assert_int_equal(lines, 63);
    free(metrics);
    process_fini(&r.process);
    check_python(&r, 2);
    check_eval(&r, 500);
}

// The same configuration gives the same model, whatever the operating system's scheduler does.
static void a_run_repeats(void **state)
{
    (void)state;
    static const char *const files[] = {"dense.bin", "rows-000-of-001.bin"};
    run r[2];
    for (uint32_t i = 0; i < 2; i++) {
        prepare(&r[i], "up", i ? "second" : "first");
        set(&r[i], "optimizer.rows.name=adam");
        must_run(&r[i]);
        process_fini(&r[i].process);
    }
    cJSON *first = read_json(r[0].out, "summary.json"),
          *second = read_json(r[1].out, "summary.json");
    assert_true(number(first, "logloss") == number(second, "logloss"));
    cJSON_Delete(first);
    cJSON_Delete(second);
    char a[700], b[700];
    snprintf(a, sizeof a, "%s/model/%s", r[0].out, files[0]);
    snprintf(b, sizeof b, "%s/model/%s", r[1].out, files[0]);
    process p = {0};
    const char *const compare[] = {"/usr/bin/cmp", a, b, NULL};
    if (process_run(&p, compare, RUN_S) != 0)
        fail_msg("%s", p.text);
    process_fini(&p);
    // Rows of a shard stand in the order in which they came, so only their number is the same.
    struct stat sizes[2];
    snprintf(a, sizeof a, "%s/model/%s", r[0].out, files[1]);
    snprintf(b, sizeof b, "%s/model/%s", r[1].out, files[1]);
    assert_true(stat(a, &sizes[0]) == 0 && stat(b, &sizes[1]) == 0);
    assert_int_equal(sizes[0].st_size, sizes[1].st_size);
}

// ---- simulation and run ----------------------------------------------------------------------

static int compare_lines(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

// Sorts the lines of a trace: workers report in any order. Returns their number.
static uint32_t sort_lines(char *text, char **lines, uint32_t most)
{
    uint32_t count = 0;
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
        assert_true(count < most);
        lines[count++] = line;
    }
    qsort(lines, count, sizeof *lines, compare_lines);
    return count;
}

static void compare_traces(const char *const *sets, size_t set_count)
{
    static char *lines[2][8192];
    uint32_t counts[2];
    char *texts[2], paths[2][400];
    run sim, up;
    prepare(&sim, "sim", NULL);
    prepare(&up, "up", "traced");
    snprintf(paths[0], sizeof paths[0], "%s/sim.jsonl", folder());
    snprintf(paths[1], sizeof paths[1], "%s/trace.jsonl", up.out);
    add(&sim, "--trace");
    add(&sim, paths[0]);
    add(&up, "--trace");
    for (size_t i = 0; i < set_count; i++) {
        set(&sim, sets[i]);
        set(&up, sets[i]);
    }
    must_run(&sim);
    must_run(&up);
    for (uint32_t i = 0; i < 2; i++) {
        texts[i] = read_file(paths[i]);
        counts[i] = sort_lines(texts[i], lines[i], 8192);
    }
    assert_int_equal(counts[0], counts[1]);
    assert_true(counts[0] >= 2 * 20);
    for (uint32_t i = 0; i < counts[0]; i++)
        assert_string_equal(lines[0][i], lines[1][i]);
    free(texts[0]);
    free(texts[1]);
    process_fini(&sim.process);
    process_fini(&up.process);
}

// What the simulator counts is what workers do: operation for operation, per worker and iteration.
// Measured times must not weigh on decisions.
static void simulation_and_run_agree(void **state)
{
    (void)state;
    static const char *const sets[][7] = {
        {"dispatch.policy=esd", "cache.rows=500"},
        {"dispatch.policy=random", "cache.rows=416", "dispatch.first_touch=pull"},
        {"dispatch.policy=laia", "cache.rows=20000", "workers=2"},
        {"dispatch.policy=laia", "cache.rows=450", "dispatch.full_sync=true"},
        {"dispatch.policy=random", "cache.rows=430", "cache.eviction=lru", "network.row_wire=bf16"},
        {"dispatch.policy=makespan", "cache.rows=3000", "ps.shards=2",
         "dispatch.measure_compute=false"},
        {"dispatch.policy=esd", "cache.rows=500", "cache.lookahead=2", "dispatch.window=4"},
        {"dispatch.policy=esd", "cache.rows=2000", "dispatch.participants=rotate", "ps.shards=3",
         "dispatch.measure_compute=false"},
        {"dispatch.policy=makespan", "cache.rows=2000", "dispatch.participants=rotate",
         "dispatch.measure_compute=false"},
        {"dispatch.policy=esd", "cache.rows=500", "network.row_wire=int8", "ps.shards=2"},
        {"dispatch.policy=random", "cache.rows=2000", "dispatch.participants=rotate",
         "network.row_wire=bf16", "network.dense_wire=int8", "dispatch.measure_compute=false"},
        {"dispatch.policy=makespan", "cache.rows=2000", "dispatch.participants=auto",
         "dispatch.measure_compute=false", "links.workers=[1,0.2,0.01]", "dispatch.window=3"},
        {"dispatch.policy=esd", "cache.rows=2000", "dispatch.participants=auto",
         "cache.lookahead=2", "links.workers=[1,0.01,0.3]", "dispatch.measure_compute=false"},
        {"dispatch.policy=het", "cache.rows=430"},
        {"dispatch.policy=het", "cache.rows=300", "consistency.staleness=10",
         "dispatch.first_touch=pull", "ps.shards=2"},
        {"dispatch.policy=random", "cache.rows=430", "consistency.staleness=0"},
        {"dispatch.policy=laia", "cache.rows=300", "consistency.staleness=10",
         "cache.eviction=light_lfu", "network.row_wire=int8"},
        {"dispatch.policy=esd", "cache.rows=500", "consistency.staleness=100", "ps.shards=2",
         "dispatch.first_touch=pull"},
        {"dispatch.policy=makespan", "cache.rows=400", "consistency.staleness=3",
         "dispatch.measure_compute=false"},
        {"dispatch.policy=esd", "cache.rows=2000", "dispatch.participants=rotate",
         "consistency.staleness=10", "dispatch.measure_compute=false"},
    };
    for (size_t i = 0; i < RT_COUNT_OF(sets); i++) {
        size_t count = 0;
        while (count < RT_COUNT_OF(sets[i]) && sets[i][count])
            count++;
        printf("%s, %s\n", sets[i][0], sets[i][1]); // shown when the case fails
        compare_traces(sets[i], count);
    }
}

// ---- interrupted -----------------------------------------------------------------------------

static void start_endless(run *r, const char *out)
{
    prepare(r, "up", out);
    set(r, "stream.samples_max=0");
    set(r, "timeouts.peer_s=1");
    process_start(&r->process, r->arguments);
    process_await(&r->process, 0, "iteration ", RUN_S); // the progress line of the first
}

static void stop_with(int signal)
{
    run r;
    start_endless(&r, "out");
    kill(r.process.pid, signal);
    int status = process_end(&r.process, END_S);
    if (status != 0)
        fail_msg("exit status %d; it said:\n%s", status, r.process.text);
    must_say(&r, "(interrupted)");
    check_summary(&r, 0, 0, true);
    check_eval(&r, 500);
    process_fini(&r.process);
}

static void interrupt_ends_cleanly(void **state)
{
    (void)state;
    stop_with(SIGINT);
}

static void terminate_ends_cleanly(void **state)
{
    (void)state;
    stop_with(SIGTERM);
}

// A saved model of an endless stream: evaluating needs an end.
static void eval_needs_an_end(void **state)
{
    (void)state;
    run r, eval = {0};
    char model[400];
    start_endless(&r, "out");
    kill(r.process.pid, SIGINT);
    assert_int_equal(process_end(&r.process, END_S), 0);
    process_fini(&r.process);
    snprintf(model, sizeof model, "%s/model", r.out);
    add(&eval, process_lanyard());
    add(&eval, "eval");
    add(&eval, model);
    must_fail(&eval, "stream.samples_max");
}

// ---- a process is lost -----------------------------------------------------------------------

static void lose(const char *command, int signal, const char *named)
{
    run r;
    start_endless(&r, "out");
    size_t before = r.process.length;
    kill(process_child(&r.process, command), signal);
    int status = process_end(&r.process, END_S);
    if (status != 1)
        fail_msg("exit status %d; it said:\n%s", status, r.process.text);
    if (!strstr(r.process.text + before, named))
        fail_msg("\"%s\" is not named:\n%s", named, r.process.text);
    process_fini(&r.process);
}

static void coordinator_killed(void **state)
{
    (void)state;
    lose("coordinator", SIGKILL, "coordinator");
}

static void shard_killed(void **state)
{
    (void)state;
    lose("ps", SIGKILL, "ps 0");
}

static void worker_killed(void **state)
{
    (void)state;
    lose("--rank 1", SIGKILL, "worker 1");
}

static void coordinator_stopped(void **state)
{
    (void)state;
    lose("coordinator", SIGSTOP, "the coordinator was silent");
}

static void shard_stopped(void **state)
{
    (void)state;
    lose("ps", SIGSTOP, "ps 0 was silent");
}

static void worker_stopped(void **state)
{
    (void)state;
    lose("--rank 1", SIGSTOP, "worker 1 was silent");
}

// The parent itself: its children go with it (process_end sees the end of their output).
static void parent_killed(void **state)
{
    (void)state;
    run r;
    start_endless(&r, NULL);
    kill(r.process.pid, SIGKILL);
    assert_int_equal(process_end(&r.process, END_S), 128 + SIGKILL);
    process_fini(&r.process);
}

// ---- wrong from the start --------------------------------------------------------------------

static void a_port_in_use(void **state)
{
    (void)state;
    run r;
    char assignment[64], port[16];
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t size = sizeof address;
    int taken = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(taken, (const struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(taken, 1), 0);
    assert_int_equal(getsockname(taken, (struct sockaddr *)&address, &size), 0);
    snprintf(port, sizeof port, "%u", ntohs(address.sin_port));
    snprintf(assignment, sizeof assignment, "network.coordinator=127.0.0.1:%s", port);
    prepare(&r, "up", NULL);
    set(&r, assignment);
    must_fail(&r, port);
    close(taken);
}

static void a_bad_bind_address(void **state)
{
    (void)state;
    static const char *const addresses[] = {"203.0.113.77", "no such host", "300.1.2.3"};
    for (size_t i = 0; i < RT_COUNT_OF(addresses); i++) {
        run r;
        char assignment[64];
        snprintf(assignment, sizeof assignment, "network.bind=%s", addresses[i]);
        prepare(&r, "up", NULL);
        set(&r, assignment);
        set(&r, "timeouts.start_s=0.5");
        must_fail(&r, addresses[i]);
    }
}

static void a_missing_file(void **state)
{
    (void)state;
    run r;
    prepare(&r, "up", NULL);
    set(&r, "stream.format=criteo");
    set(&r, "stream.files=/nonexistent/rows.tsv");
    must_fail(&r, "/nonexistent/rows.tsv");
    prepare(&r, "up", NULL);
    r.arguments[2] = "/nonexistent/config.json";
    must_fail(&r, "/nonexistent/config.json");
}

static void an_unwritable_folder(void **state)
{
    (void)state;
    run r;
    prepare(&r, "up", NULL);
    add(&r, "--out");
    add(&r, "/nonexistent/out");
    must_fail(&r, "/nonexistent/out");
}

static void an_unknown_key(void **state)
{
    (void)state;
    run r;
    prepare(&r, "up", NULL);
    set(&r, "cache.rosw=3");
    must_fail(&r, "cache.rosw");
    prepare(&r, "up", NULL);
    add(&r, "--verbose");
    must_fail(&r, "--verbose");
    prepare(&r, "up", NULL);
    set(&r, "cache.rows=3"); // fewer than a micro-batch needs
    must_fail(&r, "cache.rows");
}

// ---- files and standard input ----------------------------------------------------------------

// Lines of a table: label, number, two ids.
static void put_lines(FILE *file, uint32_t count, uint32_t bad_every)
{
    for (uint32_t i = 1; i <= count; i++) {
        if (bad_every && i % bad_every == 0)
            fputs("1,x,a\n", file);
        else
            fprintf(file, "%u,%u,u%u,i%u\n", i % 3 == 0, i % 10, i * 7 % 101, i * i % 53);
    }
}

static void prepare_table(run *r, const char *files, const char *out)
{
    prepare(r, "up", out);
    set(r, "stream.format=table");
    set(r, "stream.table.columns=[{\"name\": \"y\", \"kind\": \"label\"}, {\"name\": \"x\", "
           "\"kind\": \"dense\"}, {\"name\": \"u\", \"kind\": \"categorical\"}, "
           "{\"name\": \"i\", \"kind\": \"categorical\"}]");
    set(r, files);
    set(r, "stream.samples_max=0");
    set(r, "timeouts.peer_s=1");
}

static void malformed_lines(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 2; i++) {
        run r;
        char path[300], files[330];
        snprintf(path, sizeof path, "%s/lines.csv", folder());
        snprintf(files, sizeof files, "stream.files=%s", path);
        FILE *file = fopen(path, "w");
        put_lines(file, 3000, i ? 20 : 200); // 5% or 0.5%; 1% is allowed
        fclose(file);
        prepare_table(&r, files, "out");
        if (i) {
            must_fail(&r, "stream.malformed_share_max");
            continue;
        }
        must_run(&r);
        must_say(&r, "15 of 3000 lines were malformed");
        cJSON *json = read_json(r.out, "summary.json");
        assert_true(number(json, "malformed_lines") == 15);
        assert_true(number(json, "samples") == 2985);
        cJSON_Delete(json);
        process_fini(&r.process);
    }
}

// Two batches; in the second, one value lets the loss of one worker overflow.
static void write_bad_batch(const char *path, const char *value)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    put_lines(file, 60, 0);
    fprintf(file, "1,%s,u3,i4\n", value);
    put_lines(file, 35, 0);
    assert_int_equal(fclose(file), 0);
}

static void prepare_bad_batch(run *r, const char *files, const char *out)
{
    prepare_table(r, files, out);
    set(r, "model.name=dcn");
    set(r, "model.cross=matrix");
    set(r, "dispatch.policy=random");
    set(r, "stream.dense_scaling=none"); // or the value would be clipped
}

static double eval_first_batch(const run *r)
{
    run eval = {0};
    char model[400];
    snprintf(model, sizeof model, "%s/model", r->out);
    add(&eval, process_lanyard());
    add(&eval, "eval");
    add(&eval, model);
    add(&eval, "--json");
    set(&eval, "stream.samples_max=48");
    must_run(&eval);
    cJSON *json = cJSON_Parse(strchr(eval.process.text, '{'));
    assert_non_null(json);
    double loss = number(json, "logloss");
    cJSON_Delete(json);
    process_fini(&eval.process);
    return loss;
}

// Applied nowhere: not by the workers whose own loss is finite, not by the PS.
static void a_bad_batch_changes_nothing(void **state)
{
    (void)state;
    run before, after, last;
    char path[300], files[330], a[600], b[600];
    snprintf(path, sizeof path, "%s/bad.csv", folder());
    snprintf(files, sizeof files, "stream.files=%s", path);
    write_bad_batch(path, "3e38");
    prepare_bad_batch(&before, files, "before");
    set(&before, "stream.samples_max=48");
    must_run(&before);
    process_fini(&before.process);
    prepare_bad_batch(&after, files, "after");
    must_run(&after);
    must_say(&after, "iteration 2: the loss is not finite, nothing of it is applied");
    must_say(&after, "1 batches had a loss that is not finite; nothing of them was applied");
    cJSON *json = read_json(after.out, "summary.json");
    assert_true(number(json, "iterations") == 2 && number(json, "bad_batches") == 1);
    const cJSON *ranges = cJSON_GetObjectItem(json, "ranges");
    assert_true(cJSON_GetArrayItem(cJSON_GetObjectItem(ranges, "dense_max"), 0)->valuedouble >
                2e38);
    assert_true(number(ranges, "label_min") == 0 && number(ranges, "label_max") == 1);
    cJSON_Delete(json);
    process_fini(&after.process);
    snprintf(a, sizeof a, "%s/model/dense.bin", before.out);
    snprintf(b, sizeof b, "%s/model/dense.bin", after.out);
    process p = {0};
    const char *const compare[] = {"/usr/bin/cmp", a, b, NULL};
    if (process_run(&p, compare, RUN_S) != 0)
        fail_msg("%s", p.text);
    process_fini(&p);
    assert_true(eval_first_batch(&before) == eval_first_batch(&after)); // the rows too
    prepare_bad_batch(&last, files, "last");
    set(&last, "guards.skip_bad_batches=false");
    must_run(&last);
    must_say(&last, "and it is applied");
    process_fini(&last.process);
}

static FILE *start_with_input(run *r)
{
    prepare_table(r, "stream.files=-", "out");
    r->process.with_input = true;
    process_start(&r->process, r->arguments);
    FILE *input = fdopen(r->process.input, "w");
    assert_non_null(input);
    r->process.input = -1; // the FILE's
    return input;
}

static void standard_input_to_its_end(void **state)
{
    (void)state;
    run r;
    FILE *input = start_with_input(&r);
    put_lines(input, 1000, 0);
    fclose(input);
    assert_int_equal(process_end(&r.process, RUN_S), 0);
    cJSON *json = read_json(r.out, "summary.json");
    assert_true(number(json, "samples") == 1000);
    assert_true(number(json, "stale_reads") == 0);
    assert_true(cJSON_IsFalse(cJSON_GetObjectItem(json, "interrupted")));
    cJSON_Delete(json);
    process_fini(&r.process);
}

// Ctrl-C while the input is open but nothing comes: what came is trained, half a line is not.
static void interrupt_while_input_is_idle(void **state)
{
    (void)state;
    run r;
    FILE *input = start_with_input(&r);
    put_lines(input, 100, 0); // two full batches and 4 samples
    fputs("1,5,u1", input);
    fflush(input);
    process_await(&r.process, 0, "iteration ", RUN_S);
    kill(r.process.pid, SIGINT);
    int status = process_end(&r.process, END_S);
    if (status != 0)
        fail_msg("exit status %d; it said:\n%s", status, r.process.text);
    cJSON *json = read_json(r.out, "summary.json");
    assert_true(number(json, "samples") == 100);
    assert_true(number(json, "malformed_lines") == 0);
    assert_true(cJSON_IsTrue(cJSON_GetObjectItem(json, "interrupted")));
    cJSON_Delete(json);
    process_fini(&r.process);
    fclose(input);
}

// The same when a process is lost: the run must not wait for the input.
static void a_worker_is_lost_while_input_is_idle(void **state)
{
    (void)state;
    run r;
    FILE *input = start_with_input(&r);
    put_lines(input, 100, 0);
    fflush(input);
    process_await(&r.process, 0, "iteration ", RUN_S);
    kill(process_child(&r.process, "--rank 2"), SIGKILL);
    assert_int_equal(process_end(&r.process, END_S), 1);
    must_say(&r, "worker 2");
    process_fini(&r.process);
    fclose(input);
}

TEST_MAIN(TEST(a_run_and_its_files), TEST(a_run_repeats), TEST_SLOW(simulation_and_run_agree, 120),
          TEST(interrupt_ends_cleanly), TEST(terminate_ends_cleanly), TEST(eval_needs_an_end),
          TEST(coordinator_killed), TEST(shard_killed), TEST(worker_killed),
          TEST(coordinator_stopped), TEST(shard_stopped), TEST(worker_stopped), TEST(parent_killed),
          TEST(a_port_in_use), TEST(a_bad_bind_address), TEST(a_missing_file),
          TEST(an_unwritable_folder), TEST(an_unknown_key), TEST(malformed_lines),
          TEST(a_bad_batch_changes_nothing), TEST(standard_input_to_its_end),
          TEST(interrupt_while_input_is_idle), TEST(a_worker_is_lost_while_input_is_idle))
