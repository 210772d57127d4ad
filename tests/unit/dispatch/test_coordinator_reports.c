// What workers and shards must not say to a coordinator.
#include "tests/unit/dispatch/test_coordinator_support.h"

#include "tests/support/json_case.h"

typedef void (*change)(rt_wire_report *report, uint64_t *sequence);

static void more_samples(rt_wire_report *report, uint64_t *sequence)
{
    (void)sequence;
    report->sample_count++;
}

static void another_plan(rt_wire_report *report, uint64_t *sequence)
{
    (void)sequence;
    report->fingerprint ^= 1;
}

static void another_slice(rt_wire_report *report, uint64_t *sequence)
{
    (void)report;
    *sequence += 100;
}

static void nothing_applied(rt_wire_report *report, uint64_t *sequence)
{
    (void)sequence;
    report->skipped = 1;
}

static void bad_and_applied(rt_wire_report *report, uint64_t *sequence)
{
    (void)sequence;
    report->loss_sum = NAN;
}

// Worker 0's report on the iteration after those is changed so, worker 1's is as it should be.
static void later_report_must_fail(uint32_t iterations, change how, const char *text)
{
    fixture f;
    prepare(&f);
    start(&f);
    for (uint32_t t = 0; t < iterations;)
        (void)train_next(&f, &t);
    for (uint32_t w = WORKERS; w-- > 0;) {
        uint32_t iteration;
        rt_message slice = expect(&f, 1 + w, RT_MESSAGE_SLICE);
        uint64_t sequence = rt_message_header(&slice)->iteration;
        rt_wire_report one = report_on(&slice, &iteration);
        if (w == 0)
            how(&one, &sequence);
        report(&f, w, sequence, &one);
        rt_message_release(&slice);
    }
    expect_stop(&f, RT_REASON_FAILED);
    finish(&f, RT_WIRE, text);
    assert_int_equal(f.saved, 0);
}

static void report_must_fail(change how, const char *text)
{
    later_report_must_fail(0, how, text);
}

static void a_report_on_other_samples(void **state)
{
    (void)state;
    report_must_fail(more_samples, "worker 0: a report on 9 samples, expected 8");
}

static void a_report_by_another_plan(void **state)
{
    (void)state;
    report_must_fail(another_plan, "worker 0 trained iteration 1 by another plan");
}

static void a_report_on_another_slice(void **state)
{
    (void)state;
    report_must_fail(another_slice, "worker 0: a report on slice 101 that nobody waits for");
}

static void a_verdict_that_differs(void **state)
{
    (void)state;
    later_report_must_fail(5, nothing_applied,
                           "workers 0x1 applied nothing, but every loss is finite");
}

static void a_bad_batch_that_was_applied(void **state)
{
    (void)state;
    later_report_must_fail(5, bad_and_applied, "workers 0 applied nothing, the others did");
}

static void a_report_twice(void **state)
{
    (void)state;
    fixture f;
    uint32_t iteration;
    prepare(&f);
    start(&f);
    rt_message slice = expect(&f, 1, RT_MESSAGE_SLICE);
    const rt_wire_report one = report_on(&slice, &iteration);
    for (uint32_t i = 0; i < 2; i++)
        report(&f, 0, rt_message_header(&slice)->iteration, &one);
    rt_message_release(&slice);
    expect_stop(&f, RT_REASON_FAILED);
    finish(&f, RT_WIRE, "worker 0: a report on slice 1 that nobody waits for");
}

// A worker trains slices in their order.
static void a_report_before_its_turn(void **state)
{
    (void)state;
    fixture f;
    uint32_t iteration;
    prepare(&f);
    start(&f);
    rt_message first = expect(&f, 1, RT_MESSAGE_SLICE), second = expect(&f, 1, RT_MESSAGE_SLICE);
    const rt_wire_report one = report_on(&second, &iteration);
    report(&f, 0, rt_message_header(&second)->iteration, &one);
    rt_message_release(&first);
    rt_message_release(&second);
    expect_stop(&f, RT_REASON_FAILED);
    finish(&f, RT_WIRE, "worker 0: a report on slice 2 that nobody waits for");
}

// Batches without a finite loss, of all workers, up to guard_bad_batches_max.
static void bad_batches_are_counted(void **state)
{
    (void)state;
    fixture f;
    prepare(&f);
    f.config.guard_bad_batches_max = 2;
    start(&f);
    for (uint32_t t = 1; t <= 3; t++) {
        for (uint32_t w = 0; w < WORKERS; w++) {
            uint32_t iteration;
            rt_message slice = expect(&f, 1 + w, RT_MESSAGE_SLICE);
            rt_wire_report one = report_on(&slice, &iteration);
            one.loss_sum = w == 0 ? INFINITY : 1; // one worker's is enough
            one.skipped = 1;
            report(&f, w, rt_message_header(&slice)->iteration, &one);
            rt_message_release(&slice);
        }
    }
    expect_stop(&f, RT_REASON_LASTS);
    finish(
        &f, RT_DATA,
        "iteration 3 is bad batch number 3: its loss is not finite; a run ends after more than 2");
}

// Each of these ends a run that trains.
static void messages_that_nobody_waits_for(void **state)
{
    (void)state;
    static const struct {
        uint32_t member;
        rt_message_type type;
        size_t size;
        const char *text;
    } cases[] = {
        {1, RT_MESSAGE_FINISHED, 168, "worker 0: a FINISHED of 168 bytes that nobody waits for"},
        {1, RT_MESSAGE_MARK, 0, "worker 0: a MARK that nobody waits for"},
        {1, RT_MESSAGE_PART, 16, "a PART of the dense weights that nobody waits for"},
        {0, RT_MESSAGE_PIECE, 40, "ps 0: a PIECE of a file that nobody waits for"},
        {0, RT_MESSAGE_CUT, 0, "ps 0: a CUT that nobody asked for"},
        {0, RT_MESSAGE_WRITTEN, 32, "ps 0: WRITTEN that nobody waits for"},
        {2, RT_MESSAGE_WELCOME, 176, "worker 1: unexpected WELCOME"},
        {0, RT_MESSAGE_REPORT, 176, "ps 0: a report on slice 1 that nobody waits for"},
    };
    const rt_wire_report zeros = {0};
    for (size_t i = 0; i < RT_COUNT_OF(cases); i++) {
        fixture f;
        prepare(&f);
        start(&f);
        say(&f, cases[i].member, cases[i].type, 1, &zeros, cases[i].size, NULL, 0);
        expect_stop(&f, RT_REASON_FAILED);
        finish(&f, RT_WIRE, cases[i].text);
        assert_int_equal(rmdir(f.out) == 0, false); // the metrics of the attempt
        remove_out(&f);
    }
}

static void whoever_answers_finish_twice(void **state)
{
    (void)state;
    fixture f;
    prepare(&f);
    f.config.stream.samples_max = WORKERS * BATCH;
    start(&f);
    train_to(&f, 1);
    take_flush(&f);
    for (uint32_t w = 0; w < WORKERS; w++) {
        rt_message message = expect(&f, 1 + w, RT_MESSAGE_FINISH);
        rt_message_release(&message);
    }
    const rt_wire_report flushed = {0};
    for (uint32_t i = 0; i < 2; i++)
        say(&f, 2, RT_MESSAGE_FINISHED, 0, &flushed, sizeof flushed, NULL, 0);
    expect_stop(&f, RT_REASON_FAILED);
    finish(&f, RT_WIRE, "worker 1: a FINISHED of 168 bytes that nobody waits for");
}

// ---- what processes have in memory -----------------------------------------------------------

static void members_are_recorded(void **state)
{
    (void)state;
    static const rt_wire_vitals vitals[MEMBERS] = {
        {.resident_bytes = 1, .memory_max_bytes = 2, .rows = 3, .row_bytes = 4, .row_bytes_max = 5},
        {.resident_bytes = 6, .memory_max_bytes = 7, .traffic.bytes[RT_CAUSE_rows] = 1000},
        {.resident_bytes = 8, .traffic.bytes = {[RT_CAUSE_rows] = 200, [RT_CAUSE_dense] = 30}}};
    static const char expected[] =
        "{\"record\":\"members\",\"iteration\":40,\"policy\":\"esd\",\"solver\":\"transport\","
        "\"dense_bytes\":4000,"
        "\"workers\":[{\"rank\":0,\"up\":62500000,\"down\":31250000,\"rss_bytes\":6,"
        "\"memory_max_bytes\":7},{\"rank\":1,\"up\":125000000,\"down\":250000000,\"rss_bytes\":8,"
        "\"memory_max_bytes\":null}],\"out\":[],\"shards\":[{\"keys\":3,\"row_bytes\":4,"
        "\"row_bytes_max\":5,\"image_bytes\":0,\"rss_bytes\":1,\"memory_max_bytes\":2}],"
        "\"checkpoint\":{\"every_s\":0,\"iteration\":0},\"lag\":{},"
        "\"input\":{\"events_lost\":0,\"breaks\":0},\"waits_for_input\":false,"
        "\"ended\":true}";
    fixture f;
    prepare(&f);
    for (uint32_t w = 0; w < WORKERS; w++) {
        f.config.links.workers[w].gbps_up = w ? 1 : 0.5;
        f.config.links.workers[w].gbps_down = w ? 2 : 0.25;
    }
    start(&f);
    train_to(&f, 2);
    for (uint32_t m = 0; m < MEMBERS; m++)
        say(&f, m, RT_MESSAGE_VITALS, 0, &vitals[m], sizeof vitals[m], NULL, 0);
    train_to(&f, ITERATIONS);
    take_flush(&f);
    end_well(&f);
    finish(&f, RT_OK, "");
    cJSON *record = last_record(&f, "members"), *want = cJSON_Parse(expected);
    cJSON *coordinator = cJSON_DetachItemFromObjectCaseSensitive(record, "coordinator");
    cJSON *traffic = cJSON_DetachItemFromObjectCaseSensitive(record, "traffic");
    test_close(number(traffic, "rows"), 1200, 0, 0, "bytes of rows, of both workers");
    test_close(number(traffic, "dense"), 30, 0, 0, "bytes of gradients");
    test_close(number(traffic, "samples"), ITERATIONS * 16, 0, 0, "samples");
    assert_true(number(traffic, "slices") > 0); // the coordinator's own
    cJSON_Delete(traffic);
    assert_true(number(coordinator, "rss_bytes") > 1e5);
    assert_true(cJSON_HasObjectItem(coordinator, "memory_max_bytes"));
    json_take_between(record, "time_s", 0, 3600);
    json_take_between(record, "unix_s", 1.7e9, 1e11);
    json_take_between(cJSON_GetObjectItem(record, "checkpoint"), "age_s", 0, 3600);
    json_must_equal(record, want, "members");
    cJSON_Delete(coordinator);
    cJSON_Delete(record);
    cJSON_Delete(want);
}

// Too few bytes of them.
static void half_of_the_vitals(void **state)
{
    (void)state;
    const rt_wire_vitals vitals = {0};
    fixture f;
    prepare(&f);
    start(&f);
    say(&f, 2, RT_MESSAGE_VITALS, 0, &vitals, sizeof vitals / 2, NULL, 0);
    expect_stop(&f, RT_REASON_FAILED);
    finish(&f, RT_WIRE, "worker 1: VITALS of 80 bytes, expected 160");
}

TEST_MAIN(TEST(a_report_on_other_samples), TEST(a_report_by_another_plan),
          TEST(a_report_on_another_slice), TEST(a_verdict_that_differs),
          TEST(a_bad_batch_that_was_applied), TEST(a_report_twice), TEST(a_report_before_its_turn),
          TEST(bad_batches_are_counted), TEST(messages_that_nobody_waits_for),
          TEST(whoever_answers_finish_twice), TEST(members_are_recorded), TEST(half_of_the_vitals))
