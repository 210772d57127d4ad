// An executor alone: messages with so many rows, and so different ones, that they land in batches.
#define SLOTS 9000u
#include "tests/support/executor_case.h"

#include "edge_worker/executor/ew_executor_parts.h"

// The i-th key of shard 0.
static void find_keys(uint64_t *keys, uint32_t count)
{
    uint32_t found = 0;
    for (uint64_t id = 0; found < count; id++) {
        if (rt_key_shard(rt_key(0, id), SHARDS) == 0)
            keys[found++] = rt_key(0, id);
    }
}

// Answers a pull with its i-th row, with state if it asks for that.
static void put_row(rt_message *message, size_t *at, const rt_wire_pull *pull, uint32_t i)
{
    const rt_wire_row head = {pull->key, 0, pull->tag};
    const uint32_t floats = pull->tag & RT_WIRE_TAG_STATE ? DIM + STATE : DIM;
    memcpy(rt_message_payload(message) + *at, &head, sizeof head);
    *at += sizeof head;
    for (uint32_t k = 0; k < floats; k++, *at += sizeof(float)) {
        const float value = (float)(10 * i + k);
        memcpy(rt_message_payload(message) + *at, &value, sizeof value);
    }
}

// Every slot holds the row of its key: it can be pushed, which takes the right version.
static void push_and_check(rig *r, const uint64_t *keys, uint32_t count)
{
    const size_t record_bytes = sizeof(rt_wire_row) + (DIM + STATE) * sizeof(float);
    uint32_t pushed = 0;
    forget_sent(r);
    begin(r);
    r->plan.iteration = r->plan.step = r->plan.sample_count = 0; // a flush
    r->plan.dense_chunk_floats = 0;
    for (uint32_t i = 0; i < count; i++)
        add_op(r, DP_OP_PUSH_ROW, keys[i], i, 0)->reason = DP_REASON_FLUSH;
    give_slice(r);
    for (uint32_t m = 0; m < r->sent_count; m++) {
        const rt_message *message = &r->sent[m].message;
        for (uint32_t i = 0; i < rt_message_header(message)->count; i++) {
            rt_wire_row head;
            memcpy(&head, rt_message_payload(message) + i * record_bytes, sizeof head);
            assert_true(head.key == keys[pushed++] && head.version == 0);
        }
    }
    assert_int_equal(pushed, count);
}

// Pulls count rows, every state_every-th of them with state, and answers with one message.
static void pull_and_check(uint32_t count, uint32_t state_every)
{
    rig r;
    rt_error error;
    rt_message rows;
    size_t at = 0;
    uint64_t *keys = rt_alloc(count, sizeof *keys);
    uint32_t asked = 0;
    find_keys(keys, count);
    setup(&r, 2, 4, 1 << 20);
    begin(&r);
    for (uint32_t i = 0; i < count; i++)
        add_op(&r, DP_OP_PULL, keys[i], i, 0)->flags = i % state_every == 0 ? DP_OP_STATE : 0;
    give_slice(&r);
    assert_int_equal(rt_message_create(&rows, RT_MESSAGE_ROWS, rt_peer(RT_ROLE_PS, 0), 1, count,
                                       count * (sizeof(rt_wire_row) + (DIM + STATE) * 4)),
                     RT_OK);
    for (uint32_t m = 0; m < r.sent_count; m++) {
        for (uint32_t i = 0; i < rt_message_header(&r.sent[m].message)->count; i++) {
            const rt_wire_pull pull = pull_at(&r, m, i);
            put_row(&rows, &at, &pull, asked++);
        }
    }
    assert_int_equal(asked, count);
    rt_message_finish(&rows, count, at);
    assert_int_equal(give(&r, rt_peer(RT_ROLE_PS, 0), &rows, &error), RT_OK);
    for (uint32_t i = 0; i < count; i++) {
        for (uint32_t k = 0; k < (i % state_every == 0 ? DIM + STATE : DIM); k++)
            assert_true(row_at(&r, i)[k] == (float)(10 * i + k));
    }
    assert_true(row_at(&r, count)[0] == 0); // behind the last
    train(&r, NULL);
    push_and_check(&r, keys, count);
    teardown(&r);
    rt_free(keys);
}

static void rows_of_two_sizes(void **state)
{
    (void)state;
    pull_and_check(2, 2);
    pull_and_check(7, 3);
    pull_and_check(1000, 2);
}

static void more_rows_than_a_batch(void **state)
{
    (void)state;
    pull_and_check(EW_BATCH_MAX - 1, 1);
    pull_and_check(EW_BATCH_MAX, 1);
    pull_and_check(EW_BATCH_MAX + 1, 1);
    pull_and_check(2 * EW_BATCH_MAX + 5, 1);
    pull_and_check(2 * EW_BATCH_MAX + 5, EW_BATCH_MAX + 1);
}

TEST_MAIN(TEST(rows_of_two_sizes), TEST(more_rows_than_a_batch))
