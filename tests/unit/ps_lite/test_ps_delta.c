// PUSH_DELTA at a shard: added in the order of versions, each after the pulls of its base; refused
// where it breaks the protocol.
#include "tests/support/test.h"

#include <string.h>

#include "tests/support/shard_case.h"

typedef struct {
    rt_wire_delta head;
    float floats[ROW];
} delta_record;

static rt_message delta_of(uint32_t worker, uint64_t key, uint32_t base, uint32_t version,
                           uint32_t pulls, float value)
{
    const delta_record record = {{.key = key, .version = version, .base = base, .pulls = pulls},
                                 {value, 2 * value, 3 * value, 4 * value, 5 * value}};
    return message_of(worker, RT_MESSAGE_PUSH_DELTA, 1, 1, &record,
                      sizeof(rt_wire_delta) + ROW * 4);
}

static void begin(fixture *f)
{
    ps_shard_config config = config_of(f);
    config.init_scale = 0; // rows start at 0, their state at 0
    config.adds_deltas = true;
    start(f, &config);
}

static void expect_sum(const fixture *f, uint64_t key, uint32_t version, float sum)
{
    uint32_t got = 0;
    const float *row = ps_shard_find(f->shard, key, &got);
    assert_non_null(row);
    assert_int_equal(got, version);
    for (int i = 0; i < ROW; i++)
        assert_true(row[i] == (float)(i + 1) * sum);
}

// Whatever comes first: 4 on 0, 5 on 4, 9 on 5. Floats that add up to different bits in other
// orders.
static void in_the_order_of_versions(void **state)
{
    (void)state;
    static const uint8_t orders[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2},
                                         {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    static const uint32_t bases[] = {0, 4, 5}, versions[] = {4, 5, 9};
    static const float values[] = {1e8f, 1.5f, -1e8f};
    for (size_t o = 0; o < RT_COUNT_OF(orders); o++) {
        fixture f;
        begin(&f);
        for (uint32_t i = 0; i < 3; i++) {
            const uint32_t k = orders[o][i];
            accepted(&f, k, delta_of(k, 7, bases[k], versions[k], 0, values[k]));
        }
        uint32_t version = 0;
        const float *row = ps_shard_find(f.shard, 7, &version);
        assert_int_equal(version, 9);
        assert_true(row[0] == (1e8f + 1.5f) - 1e8f);
        assert_int_equal(statistics_of(&f).deltas, 3);
        assert_int_equal(statistics_of(&f).deltas_waiting, 0);
        flush(&f);
        assert_int_equal(count_sent(&f, RT_MESSAGE_PUSHED), 3);
        teardown(&f);
    }
}

// A pull gets the version that it names, though the next one came before it.
static void pulls_come_before_the_next_version(void **state)
{
    (void)state;
    fixture f;
    rt_wire_row head;
    begin(&f);
    accepted(&f, 0, delta_of(0, 7, 0, 3, 0, 1));
    accepted(&f, 1, delta_of(1, 7, 3, 4, 2, 10)); // two pulls of 3 come first
    expect_sum(&f, 7, 3, 1);
    accepted(&f, 0, pull_of(0, RT_MESSAGE_PULL, 1, 7, 3, RT_WIRE_TAG_STATE));
    assert_int_equal(statistics_of(&f).deltas_waiting, 1);
    assert_true(only_record(&f, RT_MESSAGE_ROWS, 0, &head)[4] == 5);
    assert_int_equal(head.version, 3);
    drop_sent(&f);
    accepted(&f, 0, pull_of(0, RT_MESSAGE_PULL, 1, 7, 4, RT_WIRE_TAG_STATE)); // parks
    accepted(&f, 2, pull_of(2, RT_MESSAGE_PULL, 1, 7, 3, RT_WIRE_TAG_STATE));
    expect_sum(&f, 7, 4, 11);
    flush(&f);
    assert_int_equal(count_sent(&f, RT_MESSAGE_ROWS), 2);
    assert_int_equal(statistics_of(&f).pulls_parked, 0);
    teardown(&f);
}

// The initial row, pulled by two before anybody pushes.
static void pulls_of_the_initial_row(void **state)
{
    (void)state;
    fixture f;
    begin(&f);
    accepted(&f, 0, delta_of(0, 7, 0, 1, 2, 3));
    expect_sum(&f, 7, 0, 0);
    accepted(&f, 0, pull_of(0, RT_MESSAGE_PULL, 1, 7, 0, RT_WIRE_TAG_STATE));
    accepted(&f, 1, pull_of(1, RT_MESSAGE_PULL, 1, 7, 0, RT_WIRE_TAG_STATE));
    expect_sum(&f, 7, 1, 3);
    teardown(&f);
}

static void refused(fixture *f, rt_message message, const char *words)
{
    rt_error error = {0};
    assert_int_equal(receive(f, 0, message, &error), RT_WIRE);
    if (!strstr(error.text, words))
        fail_msg("%s; expected: %s", error.text, words);
}

static void what_breaks_the_protocol(void **state)
{
    (void)state;
    fixture f;
    begin(&f);
    accepted(&f, 0, delta_of(0, 7, 0, 5, 0, 1));
    accepted(&f, 0, delta_of(0, 7, 8, 9, 0, 1)); // waits
    refused(&f, delta_of(0, 7, 0, 5, 0, 1), "base 0, but the row has version 5");
    refused(&f, delta_of(0, 7, 8, 10, 0, 1), "base 8 is that of version 9 too");
    refused(&f, delta_of(0, 7, 5, 5, 0, 1), "version 5 on base 5");
    refused(&f, delta_of(0, 7, 5, 6, 4, 1), "4 pulls of one version by 3 workers");
    accepted(&f, 1, pull_of(1, RT_MESSAGE_PULL, 1, 7, 5, RT_WIRE_TAG_STATE));
    refused(&f, delta_of(0, 7, 5, 6, 0, 1), "0 pulls of version 5, but 1 were answered");
    expect_sum(&f, 7, 5, 1);
    teardown(&f);
    setup(&f);
    refused(&f, delta_of(0, 7, 0, 5, 0, 1), "rows are never stale here");
    teardown(&f);
}

// As many bytes as the values of a row, and 104 that are kept beside them.
static void what_waits_is_bounded(void **state)
{
    (void)state;
    for (uint32_t room = 1; room < 4; room++) {
        for (uint32_t less = 0; less < 2; less++) {
            fixture f;
            ps_shard_config config = config_of(&f);
            rt_error error = {0};
            config.adds_deltas = true;
            config.gradient_bytes_max = room * (DIM * sizeof(float) + 104) - less;
            start(&f, &config);
            for (uint32_t i = 0; i < room - less; i++)
                accepted(&f, 0, delta_of(0, i, 3, 4, 0, 1)); // waits for version 3
            assert_int_equal(receive(&f, 0, delta_of(0, 99, 3, 4, 0, 1), &error), RT_LIMIT);
            assert_non_null(strstr(error.text, "worker 0: changes of 1 rows while"));
            assert_int_equal(statistics_of(&f).deltas_waiting, room - less);
            teardown(&f);
        }
    }
}

// Versions that cannot follow each other, to the number; more pulls than there are workers.
static void numbers_at_the_edge(void **state)
{
    (void)state;
    fixture f;
    begin(&f);
    refused(&f, delta_of(0, 1, 4, 4, 0, 1), "version 4 on base 4");
    accepted(&f, 0, delta_of(0, 1, 4, 5, 3, 1)); // as many pulls as workers
    refused(&f, delta_of(0, 2, 4, 5, 4, 1), "4 pulls of one version by 3 workers");
    rt_message strange = delta_of(0, 3, 0, 5, 0, 1);
    rt_wire_delta head;
    memcpy(&head, rt_message_payload(&strange), sizeof head);
    head.reserved = 1;
    memcpy(rt_message_payload(&strange), &head, sizeof head);
    refused(&f, strange, "version 5 on base 0");
    delta_record two[2] = {{.head = {.key = 8, .version = 5}}, {.head = {.key = 8, .version = 6}}};
    uint8_t bytes[2 * (sizeof(rt_wire_delta) + ROW * 4)];
    for (uint32_t i = 0; i < 2; i++)
        memcpy(bytes + i * sizeof bytes / 2, &two[i], sizeof bytes / 2);
    refused(&f, message_of(0, RT_MESSAGE_PUSH_DELTA, 1, 2, bytes, sizeof bytes),
            "twice in one message");
    teardown(&f);
}

TEST_MAIN(TEST(what_waits_is_bounded), TEST(numbers_at_the_edge), TEST(in_the_order_of_versions),
          TEST(pulls_come_before_the_next_version), TEST(pulls_of_the_initial_row),
          TEST(what_breaks_the_protocol))
