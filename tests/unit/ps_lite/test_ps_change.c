// Rows that travel rounded, at a shard: what pulls get, what changes and gradients do to a row, and
// what is refused.
#include "tests/support/test.h"

#include <math.h>
#include <string.h>

#include "runtime/numbers/rt_coding.h"
#include "tests/support/shard_case.h"

enum { WORDS = 2 }; // of int8: a scale, four codes

typedef struct {
    rt_wire_change head;
    uint32_t words[WORDS];
    float state;
} change_record;

typedef struct {
    rt_wire_grad head;
    uint32_t words[WORDS];
} coded_grad;

static const float steps[DIM] = {127, -64, 1, 0}; // whole multiples of 1, the scale

static rt_message change_of(uint64_t key, uint32_t base, uint32_t version, float state)
{
    change_record record = {{key, version, base}, {0}, state};
    rt_coding_pack(RT_CODING_INT8, steps, DIM, record.words);
    return message_of(0, RT_MESSAGE_PUSH_CHANGE, 9, 1, &record, sizeof(rt_wire_change) + 12);
}

static rt_message gradient_of(uint32_t worker, uint64_t key, uint64_t mask, uint32_t base)
{
    coded_grad record = {{key, mask, base, RT_WIRE_STEP}, {0}};
    rt_coding_pack(RT_CODING_INT8, steps, DIM, record.words);
    return message_of(worker, RT_MESSAGE_PUSH_GRAD_CODED, 9, 1, &record,
                      sizeof(rt_wire_grad) + 4 * WORDS);
}

static void begin(fixture *f)
{
    ps_shard_config config = config_of(f);
    config.row_wire = RT_CODING_INT8;
    start(f, &config);
}

static void initial(float *row)
{
    rt_row_init(7, 5, 1, DIM, row);
}

// Values are added in 32 bits, state is replaced; waiting pulls get the row rounded.
static void a_change_is_added(void **state)
{
    (void)state;
    fixture f;
    rt_wire_row head;
    float want[DIM], got[DIM];
    uint32_t version;
    begin(&f);
    initial(want);
    accepted(&f, 1, pull_of(1, RT_MESSAGE_PULL, 4, 7, 3, RT_WIRE_TAG_STATE)); // parks
    accepted(&f, 0, change_of(7, 0, 3, 0.5f));                                // makes the row
    for (uint32_t i = 0; i < DIM; i++)
        want[i] += steps[i];
    const float *row = ps_shard_find(f.shard, 7, &version);
    assert_true(version == 3 && row[DIM] == 0.5f);
    assert_memory_equal(row, want, sizeof want);
    const float *record = only_record(&f, RT_MESSAGE_ROWS_CODED, 1, &head);
    assert_true(head.version == 3 && record[WORDS] == 0.5f);
    rt_coding_unpack(RT_CODING_INT8, record, DIM, got);
    for (uint32_t i = 0; i < DIM; i++)
        assert_true(fabsf(got[i] - want[i]) <= 0.6f); // half a scale of 1.01
    assert_memory_not_equal(got, want, sizeof got);
    drop_sent(&f);
    accepted(&f, 0, change_of(7, 3, 8, 0.25f));
    for (uint32_t i = 0; i < DIM; i++)
        want[i] += steps[i];
    assert_memory_equal(ps_shard_find(f.shard, 7, &version), want, sizeof want);
    assert_true(version == 8 && statistics_of(&f).row_pushes == 2);
    teardown(&f);
}

// Everybody can make it: it need not be rounded.
static void an_initial_row_is_whole(void **state)
{
    (void)state;
    fixture f;
    rt_wire_row head;
    float want[DIM];
    begin(&f);
    initial(want);
    accepted(&f, 1, pull_of(1, RT_MESSAGE_PULL, 4, 7, 0, 0));
    assert_memory_equal(only_record(&f, RT_MESSAGE_ROWS_CODED, 1, &head), want, sizeof want);
    assert_int_equal(head.version, 0);
    teardown(&f);
}

// One step with the sum of what the rounded gradients are.
static void gradients_are_summed(void **state)
{
    (void)state;
    fixture coded, plain;
    const grad_record record = {{7, 3, 0, RT_WIRE_STEP}, {127, -64, 1, 0}};
    uint32_t version = 0;
    begin(&coded);
    setup(&plain);
    for (uint32_t w = 0; w < 2; w++) {
        accepted(&coded, w, gradient_of(w, 7, 3, 0));
        accepted(
            &plain, w,
            message_of(w, RT_MESSAGE_PUSH_GRAD, 9, 1, &record, sizeof(rt_wire_grad) + DIM * 4));
    }
    const float *row = ps_shard_find(coded.shard, 7, &version);
    assert_int_equal(version, 9);
    assert_memory_equal(row, ps_shard_find(plain.shard, 7, &version), ROW * sizeof *row);
    teardown(&coded);
    teardown(&plain);
}

// Several in a message, each what its own bytes say.
static void records_of_a_message_are_told_apart(void **state)
{
    (void)state;
    enum { COUNT = 3, BYTES = sizeof(rt_wire_delta) + 4 * WORDS + 4 };
    fixture f;
    uint8_t bytes[COUNT * BYTES];
    ps_shard_config config = config_of(&f);
    config.row_wire = RT_CODING_INT8;
    config.adds_deltas = true;
    config.init_scale = 0;
    start(&f, &config);
    for (uint32_t i = 0; i < COUNT; i++) {
        const rt_wire_delta head = {.key = 7 + i, .version = 2 + i};
        const float values[DIM] = {127, (float)i, -1 - (float)i, 5}, own = 0.5f + (float)i;
        memcpy(bytes + i * BYTES, &head, sizeof head);
        rt_coding_pack(RT_CODING_INT8, values, DIM, bytes + i * BYTES + sizeof head);
        memcpy(bytes + i * BYTES + sizeof head + 4 * WORDS, &own, sizeof own);
    }
    accepted(&f, 0, message_of(0, RT_MESSAGE_PUSH_DELTA_CODED, 9, COUNT, bytes, sizeof bytes));
    for (uint32_t i = 0; i < COUNT; i++) {
        const float want[ROW] = {127, (float)i, -1 - (float)i, 5, 0.5f + (float)i};
        uint32_t version = 0;
        const float *row = ps_shard_find(f.shard, 7 + i, &version);
        assert_int_equal(version, 2 + i);
        assert_memory_equal(row, want, sizeof want);
    }
    assert_int_equal(statistics_of(&f).deltas, COUNT);
    teardown(&f);

    begin(&f);
    coded_grad grads[COUNT];
    for (uint32_t i = 0; i < COUNT; i++) {
        const float values[DIM] = {127, (float)i, 0, 1};
        grads[i] = (coded_grad){{7 + i, 1, 0, RT_WIRE_STEP}, {0}};
        rt_coding_pack(RT_CODING_INT8, values, DIM, grads[i].words);
    }
    accepted(&f, 0, message_of(0, RT_MESSAGE_PUSH_GRAD_CODED, 9, COUNT, grads, sizeof grads));
    for (uint32_t i = 0; i < COUNT; i++) {
        const ps_shard_config own = config_of(&f);
        const float sum[DIM] = {127, (float)i, 0, 1};
        float want[ROW] = {0};
        uint32_t version = 0;
        rt_row_init(7 + i, 5, 1, DIM, want);
        rt_optimizer_step(&own.optimizer, DIM, 9, want, want + DIM, sum);
        assert_memory_equal(ps_shard_find(f.shard, 7 + i, &version), want, sizeof want);
    }
    teardown(&f);
}

// Rows whole where the pull asks for that, with state where it asks for that; sums rounded.
static void answers_are_as_they_are_asked_for(void **state)
{
    (void)state;
    fixture f;
    rt_wire_row head;
    float want[ROW], rounded[DIM];
    uint32_t words[WORDS];
    begin(&f);
    accepted(&f, 0, change_of(7, 0, 3, 0.5f));
    uint32_t version;
    memcpy(want, ps_shard_find(f.shard, 7, &version), sizeof want);
    rt_coding_pack(RT_CODING_INT8, want, DIM, words);
    for (uint32_t tag = 0; tag < 4; tag++) {
        const bool with_state = tag & 1, whole = tag & 2;
        drop_sent(&f);
        accepted(
            &f, 1,
            pull_of(1, RT_MESSAGE_PULL, 4, 7, 3,
                    77 | (with_state ? RT_WIRE_TAG_STATE : 0) | (whole ? RT_WIRE_TAG_WHOLE : 0)));
        const float *record = only_record(&f, RT_MESSAGE_ROWS_CODED, 1, &head);
        const size_t values = whole ? sizeof rounded : sizeof words;
        assert_true(head.key == 7 && head.version == 3 && (head.tag & 77) == 77);
        assert_int_equal(rt_message_header(&f.sent[0])->payload_bytes,
                         sizeof head + values + (with_state ? sizeof(float) : 0));
        assert_memory_equal(record, whole ? (const void *)want : words, values);
        if (with_state)
            assert_memory_equal((const uint8_t *)record + values, want + DIM, sizeof(float));
    }
    drop_sent(&f);
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
    uint8_t bytes[2 * 28];
    const change_record twice = {.head = {8, 1, 0}};
    begin(&f);
    refused(&f, change_of(7, 2, 3, 0), "never been pushed");
    accepted(&f, 0, change_of(7, 0, 5, 0));
    refused(&f, change_of(7, 0, 5, 0), "version 5 on base 0, but the row has version 5");
    refused(&f, change_of(7, 4, 6, 0), "version 6 on base 4, but the row has version 5");
    refused(&f, change_of(7, 5, 5, 0), "version 5 on base 5");
    refused(&f, change_of(7, 5, 0, 0), "version 0, which is never pushed");
    memcpy(bytes, &twice, 28);
    memcpy(bytes + 28, &twice, 28);
    refused(&f, message_of(0, RT_MESSAGE_PUSH_CHANGE, 9, 2, bytes, sizeof bytes),
            "version 1 on base 0, but the row has version 1");
    refused(&f, message_of(0, RT_MESSAGE_PUSH_CHANGE, 9, 2, bytes, 32), "do not make its payload");
    refused(&f, message_of(0, RT_MESSAGE_PUSH_GRAD_CODED, 9, 1, bytes, 36),
            "do not make its payload");
    refused(&f, message_of(0, RT_MESSAGE_PUSH_DELTA_CODED, 9, 1, bytes, 44),
            "PUSH_DELTA_CODED of iteration 9: 1 records");
    refused(&f, gradient_of(0, 7, 6, 5), "mask 6 lacks the sender");
    accepted(&f, 0, gradient_of(0, 9, 3, 0)); // waits for the other's, on version 0
    refused(&f, change_of(9, 0, 1, 0), "while gradients of iteration 9 wait for version 0");
    teardown(&f);
    setup(&f);
    memset(bytes, 0, sizeof bytes);
    refused(&f,
            message_of(0, RT_MESSAGE_PUSH_CHANGE, 9, 1, bytes, sizeof(rt_wire_change) + 4 * ROW),
            "rows travel as they are here");
    refused(&f, gradient_of(0, 7, 3, 0), "rows travel as they are here");
    teardown(&f);
}

TEST_MAIN(TEST(a_change_is_added), TEST(an_initial_row_is_whole), TEST(gradients_are_summed),
          TEST(records_of_a_message_are_told_apart), TEST(answers_are_as_they_are_asked_for),
          TEST(what_breaks_the_protocol))
