// Kafka by librdkafka's mock cluster: partitions in the order of their messages' times, and labels
// that come later (stream.join) after an hour in which nobody read, whatever is on its way first.
#include "tests/support/test.h"

#if defined(RT_HAS_KAFKA) && __has_include(<librdkafka/rdkafka_mock.h>)

#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "runtime/config/rt_sources.h"
#include "runtime/rt_hash.h"
#include "runtime/stream/rt_source.h"
#include "tests/support/config_case.h"
#include "tests/support/kafka_case.h"
#include "tests/support/open_quote_case.h"

#define EVENTS 1200u
#define WINDOW_MS 60000
#define BEGIN_MS (INT64_C(3600) * 1000) // before now
#define SOON_NS UINT64_C(50000000)

typedef struct {
    int64_t time_ms;
    uint32_t id;
    bool is_event, label;
} input;

static void join_outcomes(void)
{
    char text[100];
    config_must_set(&kafka_config,
                    "stream.join.columns=[{\"name\":\"id\",\"kind\":\"id\"},{\"name\":\"y\","
                    "\"kind\":\"label\"}]");
    config_must_set(&kafka_config, "stream.join.source=kafka");
    snprintf(text, sizeof text, "stream.join.window_s=%d", WINDOW_MS / 1000);
    config_must_set(&kafka_config, text);
    config_must_set(&kafka_config, "stream.join.events_max=200");
}

static int by_time(const void *left, const void *right)
{
    const input *a = left, *b = right;
    return (a->time_ms > b->time_ms) - (a->time_ms < b->time_ms);
}

// Event i in the order of time has id i + 1; two thirds have an outcome, after 0 to 120 s. All of
// it is over by two windows ago.
static uint32_t make_inputs(uint64_t seed, input *inputs)
{
    rt_random random = {seed};
    uint32_t count = 0;
    const int64_t begin_ms = now_ms() - BEGIN_MS;
    for (uint32_t i = 0; i < EVENTS; i++) {
        // Odd times are outcomes', so that no two inputs that meet have the same.
        const input event = {begin_ms + 2000 * (int64_t)i, i + 1, true, false};
        inputs[count++] = event;
        if (rt_random_below(&random, 3) == 0)
            continue;
        inputs[count] = event;
        inputs[count].is_event = false;
        inputs[count].label = rt_random_below(&random, 4) > 0;
        inputs[count++].time_ms += 1 + 2 * (int64_t)rt_random_below(&random, 60000);
    }
    qsort(inputs, count, sizeof *inputs, by_time);
    return count;
}

static void send_inputs(const input *inputs, uint32_t count, bool is_event)
{
    char line[64];
    for (uint32_t i = 0; i < count; i++) {
        const input *one = &inputs[i];
        if (one->is_event != is_event)
            continue;
        snprintf(line, sizeof line, "e%u,%u", one->id, is_event ? one->id : (unsigned)one->label);
        send_one(is_event ? "events" : "outcomes", (int)(rt_mix(one->id) % KAFKA_PARTITIONS),
                 one->time_ms, line);
    }
    flush_all();
}

// What every event must come to, by the times alone.
static void find_labels(const input *inputs, uint32_t count, float *labels)
{
    int64_t times[EVENTS] = {0};
    for (uint32_t i = 0; i < count; i++) {
        if (inputs[i].is_event)
            times[inputs[i].id - 1] = inputs[i].time_ms;
    }
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t e = inputs[i].id - 1;
        if (!inputs[i].is_event && inputs[i].time_ms - times[e] <= WINDOW_MS)
            labels[e] = inputs[i].label;
    }
}

static rt_stream *open_stream(void)
{
    rt_stream *stream;
    rt_error error = {0};
    if (rt_stream_open(&kafka_config.stream, 1, &stream, &error))
        fail_msg("%s", error.text);
    rt_stream_remember(stream);
    rt_stream_set_wait(stream, SOON_NS);
    return stream;
}

// Reads until `until` samples came in all; each event once, with its label.
static uint32_t must_train(rt_stream *stream, uint32_t until, const float *labels, bool *seen)
{
    uint32_t count = 0;
    rt_batch batch;
    rt_error error = {0};
    rt_batch_init(&batch, 0);
    for (uint32_t i = 0; i < EVENTS; i++)
        count += seen[i];
    while (count < until) {
        if (rt_stream_read(stream, &batch, until - count, &error))
            fail_msg("%s", error.text);
        for (uint32_t i = 0; i < batch.sample_count; i++) {
            const uint32_t e = (uint32_t)(batch.keys[i] & 0xffffff) - 1;
            assert_true(e < EVENTS && !seen[e]);
            if (!isnan(labels[e]) && batch.labels[i] != labels[e])
                fail_msg("event %u: label %g, expected %g", e + 1, (double)batch.labels[i],
                         (double)labels[e]);
            seen[e] = true;
        }
        count += batch.sample_count;
    }
    rt_batch_fini(&batch);
    return count;
}

static void must_be_calm(const rt_stream *stream)
{
    const rt_join_counts counts = rt_stream_statistics(stream).join;
    assert_int_equal(counts.crowded, 0);
    assert_int_equal(counts.waiting, 0);
    assert_int_equal(counts.events, EVENTS);
}

// ---- cases -------------------------------------------------------------------------------------

// A partition that does not answer holds up the others of a join alone.
static void must_wait_in_a_join_only(void)
{
    static rt_stream_config alone;
    void *source;
    rt_line line;
    rt_error error = {0};
    alone = kafka_config.stream;
    alone.join = (rt_join_config){.source = RT_SOURCE_FILE};
    rd_kafka_mock_partition_set_leader(cluster, "events", 0, -1);
    assert_int_equal(rt_source_kafka.open(&kafka_config.stream, 1, &source, &error), RT_OK);
    assert_int_equal(rt_source_kafka.line(source, rt_now_ns() + 10 * SOON_NS, 0, &line, &error),
                     RT_AGAIN);
    rt_source_kafka.close(source);
    assert_int_equal(rt_source_kafka.open(&alone, 1, &source, &error), RT_OK);
    for (uint32_t i = 0; i < EVENTS / 2; i++)
        assert_int_equal(rt_source_kafka.line(source, 0, 0, &line, &error), RT_OK);
    rt_source_kafka.close(source);
}

// Lines of all partitions by the times of their messages, from the start and from a place within.
static void partitions_go_by_time(void **state)
{
    (void)state;
    static input inputs[2 * EVENTS];
    void *source;
    char want[32];
    rt_line line;
    rt_error error = {0};
    rt_bytes position = {0};
    begin_cluster();
    join_outcomes();
    send_inputs(inputs, make_inputs(1, inputs), true);
    const int64_t begin_ms = inputs[0].time_ms;
    assert_int_equal(rt_source_kafka.open(&kafka_config.stream, 1, &source, &error), RT_OK);
    assert_true(rt_source_kafka.is_behind(source));
    for (uint32_t i = 0; i < EVENTS; i++) {
        if (i == EVENTS / 3) { // another process
            rt_source_kafka.tell(source, &position);
            rt_source_kafka.close(source);
            assert_int_equal(rt_source_kafka.open(&kafka_config.stream, 1, &source, &error), RT_OK);
            rt_reader reader = rt_bytes_reader(&position);
            assert_int_equal(rt_source_kafka.seek(source, &reader, NULL, &error), RT_OK);
        }
        assert_int_equal(rt_source_kafka.line(source, 0, 0, &line, &error), RT_OK);
        snprintf(want, sizeof want, "e%u,%u", i + 1, i + 1);
        assert_int_equal(line.length, strlen(want));
        assert_memory_equal(line.text, want, line.length);
        assert_int_equal(line.arrival_ns / 1000000, begin_ms + 2000 * (int64_t)i);
    }
    assert_int_equal(rt_source_kafka.line(source, rt_now_ns() + SOON_NS, 0, &line, &error),
                     RT_AGAIN);
    for (int i = 0; i < 100 && rt_source_kafka.is_behind(source); i++)
        assert_int_equal(rt_source_kafka.line(source, rt_now_ns() + SOON_NS, 0, &line, &error),
                         RT_AGAIN);
    assert_false(rt_source_kafka.is_behind(source));
    rt_source_kafka.close(source);
    rt_bytes_fini(&position);
    must_wait_in_a_join_only();
    end_cluster();
}

// An hour that nobody read, and a run that is lost while it catches up.
static void an_hour_is_caught_up(void **state)
{
    (void)state;
    static input inputs[2 * EVENTS];
    float labels[EVENTS] = {0};
    bool seen[EVENTS] = {false}, kept[EVENTS];
    rt_bytes position = {0}, waiting = {0}, restored = {0};
    rt_error error = {0};
    begin_cluster();
    join_outcomes();
    const uint32_t count = make_inputs(2, inputs);
    find_labels(inputs, count, labels);
    send_inputs(inputs, count, true);
    send_inputs(inputs, count, false);
    rt_stream *stream = open_stream();
    must_train(stream, EVENTS / 3, labels, seen);
    rt_stream_tell(stream, &position);
    rt_stream_save(stream, &position, &waiting);
    memcpy(kept, seen, sizeof kept);
    must_train(stream, EVENTS / 2, labels, seen); // lost
    rt_stream_close(stream);
    stream = open_stream();
    rt_reader reader = rt_bytes_reader(&waiting);
    assert_true(rt_stream_take_waiting(&reader, &restored));
    if (rt_stream_seek(stream, &position, &error) || rt_stream_restore(stream, &restored, &error))
        fail_msg("%s", error.text);
    must_train(stream, EVENTS, labels, kept);
    assert_int_equal(rt_stream_statistics(stream).join.waiting, 0);
    assert_int_equal(rt_stream_statistics(stream).join.crowded, 0);
    rt_stream_close(stream);
    rt_bytes_fini(&position);
    rt_bytes_fini(&waiting);
    rt_bytes_fini(&restored);
    end_cluster();
}

// Stamps of some producers are wrong: the labels of all others are what they would be.
static void wrong_stamps_hold_up_nothing(void **state)
{
    (void)state;
    static const int64_t wrongs_ms[] = {3600000, 86400000, 3155760000000};
    static input inputs[2 * EVENTS];
    float labels[EVENTS] = {0};
    bool seen[EVENTS] = {false};
    begin_cluster();
    join_outcomes();
    config_must_set(&kafka_config, "stream.join.events_max=100000");
    const uint32_t count = make_inputs(4, inputs);
    find_labels(inputs, count, labels);
    for (uint32_t i = 0; i < count; i++) {
        if (i % 41 == 7) {
            inputs[i].time_ms += wrongs_ms[i % 3];
            labels[inputs[i].id - 1] = NAN; // with a wrong time it is any
        }
    }
    send_inputs(inputs, count, true);
    send_inputs(inputs, count, false);
    rt_stream *stream = open_stream();
    must_train(stream, EVENTS * 95 / 100, labels, seen);
    assert_true(rt_stream_statistics(stream).join.doubted > 0);
    rt_stream_close(stream);
    end_cluster();
}

static void set_leaders(const char *topic, int broker)
{
    for (int p = 0; p < KAFKA_PARTITIONS; p++)
        rd_kafka_mock_partition_set_leader(cluster, topic, p, broker);
}

static void *answer_again(void *topic)
{
    (void)poll(NULL, 0, 700);
    set_leaders(topic, strcmp(topic, "events") == 0 ? 1 : 2);
    return NULL;
}

// One topic answers later than the other: nothing of the other is judged before.
static void one_topic_waits_for_the_other(void **state)
{
    (void)state;
    static input inputs[2 * EVENTS];
    char *late[] = {"outcomes", "events"};
    float labels[EVENTS] = {0};
    begin_cluster();
    join_outcomes();
    const uint32_t count = make_inputs(3, inputs);
    find_labels(inputs, count, labels);
    send_inputs(inputs, count, true);
    send_inputs(inputs, count, false);
    for (int i = 0; i < 2; i++) {
        bool seen[EVENTS] = {false};
        pthread_t thread;
        set_leaders(late[i], -1);
        assert_int_equal(pthread_create(&thread, NULL, answer_again, late[i]), 0);
        rt_stream *stream = open_stream();
        must_train(stream, EVENTS, labels, seen);
        must_be_calm(stream);
        pthread_join(thread, NULL);
        rt_stream_close(stream);
    }
    end_cluster();
}

static void look_until(void *source, bool is_behind)
{
    rt_line line;
    rt_error error = {0};
    const uint64_t end = rt_now_ns() + 20 * UINT64_C(1000000000);
    while (rt_source_kafka.is_behind(source) != is_behind) {
        assert_int_equal(rt_source_kafka.line(source, rt_now_ns() + SOON_NS, 0, &line, &error),
                         RT_AGAIN);
        assert_true(rt_now_ns() < end);
    }
}

// What came to a broker that cannot be reached is not known, so nobody is at its end.
static void an_end_is_asked_for_again(void **state)
{
    (void)state;
    void *source;
    rt_line line;
    rt_error error = {0};
    begin_cluster();
    join_outcomes();
    send_one("events", 1, now_ms() - 5000, "e1,1");
    flush_all();
    assert_int_equal(rt_source_kafka.open(&kafka_config.stream, 1, &source, &error), RT_OK);
    assert_int_equal(rt_source_kafka.line(source, 0, 0, &line, &error), RT_OK);
    look_until(source, false);
    rd_kafka_mock_broker_set_down(cluster, 1);
    look_until(source, true);
    rd_kafka_mock_broker_set_up(cluster, 1);
    look_until(source, false);
    send_one("events", 2, now_ms(), "e2,2");
    flush_all();
    assert_int_equal(rt_source_kafka.line(source, 0, 0, &line, &error), RT_OK);
    assert_memory_equal(line.text, "e2,2", line.length);
    rt_source_kafka.close(source);
    end_cluster();
}

// A message of three lines.
static void an_open_quote_is_one_bad_line(void **state)
{
    (void)state;
    begin_cluster();
    open_quote_configure(&kafka_config);
    send_one("events", 0, now_ms(), OPEN_QUOTE_LINES);
    flush_all();
    open_quote_must_read(&kafka_config);
    end_cluster();
}

TEST_MAIN(TEST(partitions_go_by_time), TEST(an_hour_is_caught_up),
          TEST(wrong_stamps_hold_up_nothing), TEST(one_topic_waits_for_the_other),
          TEST(an_end_is_asked_for_again), TEST(an_open_quote_is_one_bad_line))

#else

static void kafka_is_there(void **state)
{
    (void)state;
    test_skip("this build has no librdkafka with its mock cluster (tools/setup kafka)");
}

TEST_MAIN(TEST(kafka_is_there))

#endif
