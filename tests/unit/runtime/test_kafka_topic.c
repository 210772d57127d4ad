// Kafka: a topic that is not the one any more that was read. Nothing is waited for in vain, and
// what is there is read once, and what is gone is counted.
#include "tests/support/test.h"

#if defined(RT_HAS_KAFKA) && __has_include(<librdkafka/rdkafka_mock.h>)

#include <stdlib.h>
#include <unistd.h>

#include "runtime/stream/rt_kafka_place.h"
#include "runtime/stream/rt_source.h"
#include "tests/support/kafka_case.h"

#define SOON_NS UINT64_C(50000000)
#define CALM_NS UINT64_C(300000000) // at its end: all is read
#define LIMIT_NS (UINT64_C(30) * 1000000000)
#define FIRST_MS INT64_C(1700000000000)
#define API_FETCH 1

static void *open_topic(const rt_bytes *position)
{
    void *source;
    rt_error error = {0};
    assert_int_equal(rt_source_kafka.open(&kafka_config.stream, 1, &source, &error), RT_OK);
    if (position) {
        rt_reader reader = rt_bytes_reader(position);
        if (rt_source_kafka.seek(source, &reader, NULL, &error))
            fail_msg("%s", error.text);
    }
    return source;
}

// Lines "eN,..." until none comes for a while, or so many came; how often each number came.
static uint32_t read_lines(void *source, uint32_t limit, uint8_t *seen)
{
    rt_line line;
    rt_error error = {0};
    uint32_t count = 0;
    const uint64_t end = rt_now_ns() + LIMIT_NS;
    uint64_t calm = end;
    while (count < limit && rt_now_ns() < calm) {
        const rt_status status =
            rt_source_kafka.line(source, rt_now_ns() + SOON_NS, 0, &line, &error);
        if (status == RT_AGAIN) {
            if (limit != UINT32_MAX || rt_source_kafka.is_behind(source))
                calm = end;
            else if (calm == end)
                calm = rt_now_ns() + CALM_NS;
            continue;
        }
        assert_int_equal(status, RT_OK);
        seen[atoi(line.text + 1)]++;
        count++;
        calm = end;
    }
    return count;
}

static void tell_and_close(void *source, rt_bytes *position)
{
    rt_bytes_clear(position);
    rt_source_kafka.tell(source, position);
    rt_source_kafka.close(source);
}

// Numbers [from, to) to the partitions in turn, of stamps that depend on them.
static void send_range(uint32_t from, uint32_t to, int partitions, int64_t begin_ms)
{
    char line[40];
    for (uint32_t i = from; i < to; i++) {
        snprintf(line, sizeof line, "e%u,%u", i, i);
        send_one("events", (int)(i % (uint32_t)partitions), begin_ms + i, line);
    }
    flush_all();
}

// A cluster whose topic was read up to its end, 0 to 29; it is gone. The position.
static void read_thirty(rt_bytes *position)
{
    uint8_t seen[64] = {0};
    begin_cluster();
    send_range(0, 30, KAFKA_PARTITIONS, FIRST_MS);
    void *source = open_topic(NULL);
    assert_int_equal(read_lines(source, 30, seen), 30);
    rt_line line;
    rt_error error = {0};
    assert_int_equal(rt_source_kafka.line(source, rt_now_ns() + SOON_NS, 0, &line, &error),
                     RT_AGAIN); // the last one is done
    tell_and_close(source, position);
    end_cluster();
}

// Goes on at the position; [from, to) must come, each once, and nothing else.
static rt_source_counts must_bring(const rt_bytes *position, uint32_t from, uint32_t to,
                                   uint8_t *seen)
{
    rt_source_counts counts;
    uint8_t own[1024] = {0};
    if (!seen)
        seen = own;
    void *source = open_topic(position);
    read_lines(source, UINT32_MAX, seen);
    rt_source_kafka.counts(source, &counts);
    rt_source_kafka.close(source);
    for (uint32_t i = 0; i < 1024; i++) {
        const bool is_wanted = i >= from && i < to;
        if (seen[i] != is_wanted)
            fail_msg("e%u came %u times, expected %d", i, seen[i], is_wanted);
    }
    return counts;
}

// Deleted and made again: shorter than the one that was read, of equal length, longer, empty at
// first, with fewer partitions and with more.
static void a_topic_that_was_made_again(void **state)
{
    (void)state;
    static const struct {
        uint32_t to;
        int partitions;
    } again[] = {{109, 3}, {130, 3}, {190, 3}, {112, 1}, {150, 2}, {160, 5}};
    rt_bytes position = {0};
    read_thirty(&position);
    for (size_t i = 0; i < RT_COUNT_OF(again); i++) {
        begin_cluster_of(again[i].partitions);
        send_range(100, again[i].to, again[i].partitions, FIRST_MS + 500);
        const rt_source_counts counts = must_bring(&position, 100, again[i].to, NULL);
        assert_true(counts.breaks > 0);
        end_cluster();
    }
    rt_bytes_fini(&position);
}

// The same topic: nothing comes twice, wherever the position stands, in the midst of a message too.
static void the_same_topic_goes_on(void **state)
{
    (void)state;
    rt_bytes position = {0};
    begin_cluster();
    send_one("events", 0, FIRST_MS, "e0,0\ne1,1\ne2,2");
    flush_all();
    send_range(3, 30, KAFKA_PARTITIONS, FIRST_MS);
    for (uint32_t first = 0; first <= 30; first += 1 + first / 4) {
        uint8_t seen[1024] = {0};
        void *source = open_topic(NULL);
        read_lines(source, first, seen);
        tell_and_close(source, &position);
        const rt_source_counts counts = must_bring(&position, 0, 30, seen);
        assert_int_equal(counts.breaks + counts.lost, 0);
    }
    end_cluster();
    rt_bytes_fini(&position);
}

// A broker led that lacked the last messages: those that are there had been read, and what comes
// then has their offsets.
static void an_end_that_was_taken_back(void **state)
{
    (void)state;
    rt_bytes position = {0};
    read_thirty(&position);
    begin_cluster();
    send_range(0, 24, KAFKA_PARTITIONS, FIRST_MS);
    uint8_t seen[1024] = {0};
    void *source = open_topic(&position);
    read_lines(source, UINT32_MAX, seen);
    send_range(300, 306, KAFKA_PARTITIONS, FIRST_MS);
    read_lines(source, 6, seen);
    rt_source_counts counts;
    rt_source_kafka.counts(source, &counts);
    assert_int_equal(counts.breaks, KAFKA_PARTITIONS);
    rt_source_kafka.close(source);
    for (uint32_t i = 0; i < 1024; i++)
        assert_int_equal(seen[i], i >= 300 && i < 306);
    end_cluster();
    rt_bytes_fini(&position);
}

// The mock keeps 5 MiB of a partition.
static void what_retention_took_is_counted(void **state)
{
    (void)state;
    enum { BIG = 700000, COUNT = 14 };
    rt_bytes position = {0};
    uint8_t seen[1024] = {0}, behind[1024] = {0};
    char *big = malloc(BIG + 1);
    begin_cluster();
    send_range(0, 9, KAFKA_PARTITIONS, FIRST_MS);
    void *source = open_topic(NULL);
    assert_int_equal(read_lines(source, 9, seen), 9);
    tell_and_close(source, &position);
    memset(big, 'x', BIG);
    big[BIG] = '\0';
    for (int i = 0; i < COUNT; i++) {
        const int length = snprintf(big, 40, "e%d,", 100 + i);
        big[length] = 'x';
        send_one("events", 1, FIRST_MS + 1000 + i, big);
        flush_all();
    }
    source = open_topic(&position);
    const uint32_t count = read_lines(source, UINT32_MAX, behind);
    rt_source_counts counts;
    rt_source_kafka.counts(source, &counts);
    assert_in_range(count, 1, COUNT - 1);
    assert_int_equal(counts.lost, COUNT - count);
    for (uint32_t i = 0; i < COUNT; i++)
        assert_int_equal(behind[100 + i], i >= COUNT - count);
    rt_source_kafka.close(source);
    end_cluster();
    free(big);
    rt_bytes_fini(&position);
}

// Offsets that a broker refuses for a moment are asked for again, and nothing comes twice.
static void a_refusal_that_passes(void **state)
{
    (void)state;
    uint8_t seen[1024] = {0};
    begin_cluster();
    send_range(0, 12, KAFKA_PARTITIONS, FIRST_MS);
    void *source = open_topic(NULL);
    assert_int_equal(read_lines(source, 12, seen), 12);
    rd_kafka_mock_push_request_errors(cluster, API_FETCH, 2, RD_KAFKA_RESP_ERR_OFFSET_OUT_OF_RANGE,
                                      RD_KAFKA_RESP_ERR_OFFSET_OUT_OF_RANGE);
    rt_line line;
    rt_error error = {0};
    (void)rt_source_kafka.line(source, rt_now_ns() + 10 * SOON_NS, 0, &line, &error);
    send_range(12, 24, KAFKA_PARTITIONS, FIRST_MS);
    assert_int_equal(read_lines(source, 12, seen), 12);
    rt_source_counts counts;
    rt_source_kafka.counts(source, &counts);
    assert_int_equal(counts.lost + counts.breaks, 0);
    for (uint32_t i = 0; i < 24; i++)
        assert_int_equal(seen[i], 1);
    rt_source_kafka.close(source);
    end_cluster();
}

// Offsets as earlier checkpoints have them: without hashes.
static void positions_of_before(void **state)
{
    (void)state;
    rt_bytes old = {0};
    rt_bytes_put_u64(&old, KAFKA_PARTITIONS);
    for (int p = 0; p < KAFKA_PARTITIONS; p++) {
        rt_bytes_put_u64(&old, 4);
        rt_bytes_put_u64(&old, 0);
    }
    begin_cluster();
    send_range(0, 30, KAFKA_PARTITIONS, FIRST_MS);
    const rt_source_counts counts = must_bring(&old, 12, 30, NULL);
    assert_int_equal(counts.lost + counts.breaks, 0);
    end_cluster();
    begin_cluster();
    send_range(0, 9, KAFKA_PARTITIONS, FIRST_MS); // shorter: it can only be another one
    assert_int_equal(must_bring(&old, 0, 9, NULL).breaks, KAFKA_PARTITIONS);
    end_cluster();
    rt_error error = {0};
    rt_kafka_place *places;
    uint32_t count;
    rt_bytes_clear(&old);
    rt_kafka_places_begin(&old, 0);
    old.data[0]++; // a later version
    rt_reader reader = rt_bytes_reader(&old);
    assert_int_equal(rt_kafka_places_take(&reader, 10, &places, &count, &error), RT_UNSUPPORTED);
    rt_bytes_fini(&old);
}

// The anchor is some thousands of messages behind, of a short partition its first.
static void anchors_follow(void **state)
{
    (void)state;
    rt_kafka_place at = {0};
    uint64_t coming_offset = 0, coming = 0;
    for (uint64_t i = 0; i < 30000; i++) {
        rt_kafka_place_pass(&at, &coming_offset, &coming, i, i + 1);
        assert_int_equal(at.next, i + 1);
        assert_int_equal(at.last, i + 1);
        assert_int_equal(at.anchor, at.anchor_offset + 1);
        if (i >= 8192)
            assert_in_range(i - at.anchor_offset, 4096, 8192);
        else if (i < 4096)
            assert_int_equal(at.anchor_offset, 0);
    }
}

TEST_MAIN(TEST(a_topic_that_was_made_again), TEST(the_same_topic_goes_on),
          TEST(an_end_that_was_taken_back), TEST(what_retention_took_is_counted),
          TEST(a_refusal_that_passes), TEST(positions_of_before), TEST(anchors_follow))

#else

static void kafka_is_there(void **state)
{
    (void)state;
    test_skip("this build has no librdkafka with its mock cluster (tools/setup kafka)");
}

TEST_MAIN(TEST(kafka_is_there))

#endif
