// `lanyard trace`: of made-up iterations, whose spans are known, and of a run.
#include "tests/support/test.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/run_case.h"

#define TRAIN                                                                          \
    "{\"workers\":3,\"batch\":{\"samples_per_worker\":100},\"cache\":{\"rows\":4000}," \
    "\"stream\":{\"format\":\"synthetic\",\"samples_max\":3000},"                      \
    "\"model\":{\"mlp\":[16],\"embedding_dim\":4},\"log\":{\"level\":\"warn\"}}"
#define WORKERS 3
#define US 1e3 // in a millisecond
#define NEAR_US 1.0

// Two workers; the first reported 2 ms before the record, the other 1; its plan 40 ms before.
static const char made_up[] =
    "{\"record\":\"iteration\",\"time_s\":0.5,\"iteration\":9,\"planned_before_ms\":1,"
    "\"reported_before_ms\":[0,0],\"times_ms\":[{\"compute\":1},{\"compute\":1}]}\n"
    "{\"record\":\"resumed\",\"time_s\":0.1,\"iteration\":6}\n"
    "{\"record\":\"iteration\",\"time_s\":1,\"iteration\":7,\"decision_ms\":3,\"commit_ms\":2,"
    "\"planned_before_ms\":40,\"reported_before_ms\":[2,1],\"bytes_up\":[11,12],"
    "\"bytes_down\":[21,22],\"times_ms\":"
    "[{\"compute\":8,\"dense\":4,\"push\":2,\"pull\":1,\"plan\":16},"
    "{\"compute\":9,\"dense\":0,\"push\":0,\"pull\":0,\"plan\":1}]}\n"
    "{\"record\":\"links\",\"time_s\":1}\n"
    "{\"record\":\"iteration\",\"time_s\":2,\"iteration\":8,\"planned_before_ms\":900,"
    "\"reported_before_ms\":[0,0],\"times_ms\":[{\"compute\":1003},{\"compute\":5}]}\n"
    "{\"record\":\"iteration\",\"time_s\":3,\"itera";

static cJSON *trace(const char *out, const char *iteration, const char *count)
{
    process p = {0};
    const char *const arguments[] = {process_lanyard(),
                                     "trace",
                                     run_path(out),
                                     "--out",
                                     run_path("trace.json"),
                                     "--count",
                                     count,
                                     iteration ? "--iteration" : NULL,
                                     iteration,
                                     NULL};
    const int code = process_run(&p, arguments, RUN_CASE_S);
    if (code != 0)
        fail_msg("exit status %d:\n%s", code, p.text);
    process_fini(&p);
    size_t size;
    char *text = run_file("", "trace.json", &size);
    assert_non_null(text);
    cJSON *json = cJSON_Parse(text);
    if (!cJSON_IsArray(cJSON_GetObjectItem(json, "traceEvents")))
        fail_msg("no trace: %s", text);
    free(text);
    return json;
}

static double number(const cJSON *json, const char *name)
{
    const cJSON *one = cJSON_GetObjectItem(json, name);
    if (!cJSON_IsNumber(one))
        fail_msg("no number \"%s\"", name);
    return one->valuedouble;
}

static bool is_phase(const cJSON *event, const char *phase)
{
    return strcmp(cJSON_GetStringValue(cJSON_GetObjectItem(event, "ph")), phase) == 0;
}

// The span of that name of a process: one, from from_ms on.
static void must_have(const cJSON *json, int pid, const char *name, double from_ms, double ms)
{
    const cJSON *event;
    int found = 0;
    cJSON_ArrayForEach(event, cJSON_GetObjectItem(json, "traceEvents"))
    {
        if (!is_phase(event, "X") || (int)number(event, "pid") != pid ||
            strcmp(cJSON_GetStringValue(cJSON_GetObjectItem(event, "name")), name) != 0)
            continue;
        found++;
        if (fabs(number(event, "ts") - from_ms * US) > NEAR_US ||
            fabs(number(event, "dur") - ms * US) > NEAR_US)
            fail_msg("%s of %d is %g us from %g on, expected %g from %g", name, pid,
                     number(event, "dur"), number(event, "ts"), ms * US, from_ms * US);
    }
    if (found != 1)
        fail_msg("%d spans \"%s\" of process %d", found, name, pid);
}

static int count_of(const cJSON *json, const char *phase)
{
    const cJSON *event;
    int count = 0;
    cJSON_ArrayForEach(event, cJSON_GetObjectItem(json, "traceEvents"))
    {
        count += is_phase(event, phase);
    }
    return count;
}

static void spans_are_those_of_the_records(void **state)
{
    (void)state;
    run_write("metrics.jsonl", made_up, sizeof made_up - 1);
    cJSON *json = trace("", "7", "1");
    must_have(json, 0, "decision", 955, 3);
    must_have(json, 0, "commit of the plan", 958, 2);
    must_have(json, 1, "waiting for the plan", 967, 16);
    must_have(json, 1, "waiting for rows", 983, 1);
    must_have(json, 1, "waiting for rows, own pushes under way", 984, 2);
    must_have(json, 1, "compute", 986, 8);
    must_have(json, 1, "dense exchange", 994, 4);
    must_have(json, 2, "waiting for the plan", 989, 1);
    must_have(json, 2, "compute", 990, 9);
    assert_int_equal(count_of(json, "X"), 9);
    assert_int_equal(count_of(json, "M"), 3);
    assert_int_equal(count_of(json, "C"), 2);
    cJSON_Delete(json);
}

// A report that came late makes its iteration seem to end after the next one has begun: it ended
// then.
static void spans_do_not_overlap(void **state)
{
    (void)state;
    run_write("metrics.jsonl", made_up, sizeof made_up - 1);
    cJSON *json = trace("", NULL, "1");
    must_have(json, 1, "compute", 997, 1003);
    cJSON_Delete(json);
    json = trace("", NULL, "5"); // both since it was resumed
    assert_int_equal(count_of(json, "C"), 4);
    must_have(json, 1, "dense exchange", 993, 4); // its report came at 998
    const cJSON *event;
    double ended = 0;
    cJSON_ArrayForEach(event, cJSON_GetObjectItem(json, "traceEvents"))
    {
        if (!is_phase(event, "X") || (int)number(event, "pid") != 1)
            continue;
        assert_true(number(event, "ts") >= ended - NEAR_US);
        ended = number(event, "ts") + number(event, "dur");
    }
    assert_true(fabs(ended - 2000 * US) <= NEAR_US);
    cJSON_Delete(json);
}

// Every worker's spans fill its iteration, and all is within the run.
static void a_run_can_be_drawn(void **state)
{
    (void)state;
    run_up(TRAIN, "out", "--trace", NULL);
    cJSON *json = trace("out", "2", "8");
    double begin[WORKERS + 1], end[WORKERS + 1] = {0}, sum[WORKERS + 1] = {0};
    const cJSON *event;
    int computed[WORKERS + 1] = {0};
    for (int p = 0; p <= WORKERS; p++)
        begin[p] = INFINITY;
    cJSON_ArrayForEach(event, cJSON_GetObjectItem(json, "traceEvents"))
    {
        if (!is_phase(event, "X"))
            continue;
        const int p = (int)number(event, "pid");
        assert_true(p <= WORKERS);
        begin[p] = fmin(begin[p], number(event, "ts"));
        end[p] = fmax(end[p], number(event, "ts") + number(event, "dur"));
        sum[p] += number(event, "dur");
        computed[p] +=
            strcmp(cJSON_GetStringValue(cJSON_GetObjectItem(event, "name")), "compute") == 0;
    }
    assert_true(begin[0] > 0 && sum[0] > 0);
    for (int p = 1; p <= WORKERS; p++) {
        assert_int_equal(computed[p], 8);
        assert_true(begin[p] > 0 && sum[p] > 0 && sum[p] <= end[p] - begin[p] + NEAR_US);
    }
    cJSON_Delete(json);
}

static void wrong_usage_is_named(void **state)
{
    (void)state;
    static const struct {
        const char *arguments[5];
        int status;
        const char *text;
    } cases[] = {{{"trace"}, 2, "expected RUN"},
                 {{"trace", "nowhere"}, 1, "nowhere: no metrics.jsonl"},
                 {{"trace", "nowhere", "--count", "0"}, 2, "--count: expected a number"},
                 {{"trace", "nowhere", "--iteration", "-1"}, 2, "--iteration: expected a number"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *all[6] = {process_lanyard()};
        process p = {0};
        memcpy(all + 1, cases[i].arguments, sizeof cases[i].arguments);
        const int status = process_run(&p, all, RUN_CASE_S);
        if (status != cases[i].status || !strstr(p.text, cases[i].text))
            fail_msg("exit status %d, expected \"%s\":\n%s", status, cases[i].text, p.text);
        process_fini(&p);
    }
    run_write("metrics.jsonl", made_up, sizeof made_up - 1);
    process p = {0};
    const char *const none[] = {process_lanyard(), "trace", run_folder(), "--iteration", "6", NULL};
    assert_int_equal(process_run(&p, none, RUN_CASE_S), 1);
    run_must_say(&p, "none of these iterations is in it");
    process_fini(&p);
}

TEST_MAIN(TEST(spans_are_those_of_the_records), TEST(spans_do_not_overlap),
          TEST(a_run_can_be_drawn), TEST(wrong_usage_is_named))
