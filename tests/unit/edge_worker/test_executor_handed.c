// An executor alone: rows that go to another worker and that come from one, and what is wrong with
// some of them. It is worker 1 of 4.
#define HANDS true
#include "tests/support/executor_case.h"

#define FROM 3u // the worker at the other end

// As worker FROM sends it: floats from first on.
static rt_message handed(uint64_t sequence, uint64_t row_key, uint32_t version, uint32_t floats,
                         float first)
{
    const rt_wire_row head = {row_key, version, 0};
    return rows_message(RT_MESSAGE_HANDED, sequence, head, floats, first);
}

static rt_status give_handed(rig *r, uint64_t sequence, uint64_t row_key, uint32_t version,
                             float first, rt_error *error)
{
    rt_message message = handed(sequence, row_key, version, DIM + STATE, first);
    return give(r, rt_peer(RT_ROLE_WORKER, FROM), &message, error);
}

// Slice 1 makes two rows; slice 2 sends the first away, and takes another one into its slot.
static void exchange_rows(rig *r)
{
    const uint64_t keys[] = {key(0), key(1)};
    setup(r, 3, 4, 4096);
    init_slice(r, keys, 2);
    begin(r);
    add_op(r, DP_OP_SEND, key(0), 0, 1)->peer = FROM;
    add_op(r, DP_OP_RECV, key(2), 0, 1)->peer = FROM;
    add_row(r, 0, 1, DP_MODE_OWN);
    add_row(r, 1, 1, DP_MODE_OWN);
}

static void a_row_goes_out_with_its_state(void **state)
{
    (void)state;
    rig r;
    rt_wire_row head;
    rt_counts done;
    rt_error error;
    ew_job job;
    float row[DIM + STATE];
    const float gradients[] = {3, 4, 0, 0};
    exchange_rows(&r);
    give_slice(&r);
    assert_int_equal(r.sent_count, 0); // nobody is asked for the row that comes
    train(&r, gradients);              // of slice 1
    memcpy(row, row_at(&r, 0), sizeof row);
    assert_int_equal(r.sent_count, 1);
    assert_int_equal(r.sent[0].shard, SHARDS + FROM);
    const rt_wire_header *header = rt_message_header(&r.sent[0].message);
    assert_int_equal(header->type, RT_MESSAGE_HANDED);
    assert_int_equal(header->iteration, 2);
    assert_int_equal(header->count, 1);
    assert_int_equal(header->payload_bytes, sizeof head + sizeof row);
    memcpy(&head, rt_message_payload(&r.sent[0].message), sizeof head);
    assert_true(head.key == key(0) && head.version == 1 && head.tag == 0);
    assert_memory_equal(rt_message_payload(&r.sent[0].message) + sizeof head, row, sizeof row);
    assert_no_job(&r);
    assert_int_equal(give_handed(&r, 2, key(2), 1, 50, &error), RT_OK);
    assert_true(row_at(&r, 0)[0] == 50 && row_at(&r, 0)[DIM] == 50 + DIM);
    assert_int_equal(ew_executor_next_job(r.executor, &job), RT_OK);
    assert_int_equal(ew_executor_trained(r.executor, gradients, true, &done, &error), RT_OK);
    assert_int_equal(done.update_push + done.miss_pull + done.first_touch, 0);
    assert_int_equal(ew_executor_get_statistics(r.executor).handed, 1);
    assert_int_equal(ew_executor_get_statistics(r.executor).stale_reads, 0);
    assert_true(ew_executor_idle(r.executor)); // nobody confirms
    teardown(&r);
}

// Who sends may be ahead: the row waits for the slice, then for its slot.
static void a_row_may_come_before_its_slice(void **state)
{
    (void)state;
    rig r;
    rt_error error;
    float before[DIM + STATE];
    exchange_rows(&r);
    assert_int_equal(give_handed(&r, 2, key(2), 1, 50, &error), RT_OK);
    memcpy(before, row_at(&r, 0), sizeof before);
    give_slice(&r);
    assert_memory_equal(row_at(&r, 0), before, sizeof before);
    assert_int_equal(ew_executor_get_statistics(r.executor).rows_early, 1);
    train(&r, NULL);
    assert_true(row_at(&r, 0)[0] == 50);
    train(&r, NULL);
    assert_int_equal(ew_executor_get_statistics(r.executor).stale_reads, 0);
    teardown(&r);
}

static void a_row_that_waits_at_the_end_is_given_back(void **state)
{
    (void)state;
    rig r;
    rt_error error;
    exchange_rows(&r);
    assert_int_equal(give_handed(&r, 2, key(2), 1, 50, &error), RT_OK);
    teardown(&r); // a leak otherwise
}

// ---- lies ------------------------------------------------------------------------------------

static void refuse(uint32_t worker, rt_message message, const char *words)
{
    rig r;
    exchange_rows(&r);
    give_slice(&r);
    must_refuse(&r, rt_peer(RT_ROLE_WORKER, worker), &message, words);
    teardown(&r);
}

static void lies_are_named(void **state)
{
    (void)state;
    const uint32_t all = DIM + STATE;
    refuse(FROM, handed(2, key(3), 1, all, 1), "worker 3 handed over key");
    refuse(FROM, handed(2, key(1), 1, all, 1), "which slice 2 does not take from it");
    refuse(2, handed(2, key(2), 1, all, 1), "worker 2 handed over key");
    refuse(FROM, handed(2, key(2), 2, all, 1), "at version 2 (tag 0), expected exactly 1");
    refuse(FROM, handed(2, key(2), 1, all - 1, 1), "worker 3: rows are cut short");
    refuse(FROM, handed(2, key(2), 1, all + 1, 1), "worker 3: bytes after the last row");
    refuse(FROM, handed(0, key(2), 1, all, 1), "worker 3 answers slice 0, which is not open");
    refuse(FROM, handed(1, key(2), 1, all, 1), "which slice 1 does not take from it");
    refuse(FROM, handed(6, key(2), 1, all, 1),
           "worker 3 hands rows over for slice 6, the last one here is 2 and 3 may be outstanding");
    refuse(1, handed(2, key(2), 1, all, 1), "HANDED from worker 1");
    refuse(4, handed(2, key(2), 1, all, 1), "HANDED from worker 4");
    rt_message tagged = handed(2, key(2), 1, all, 1);
    rt_message_payload(&tagged)[12] = 1;
    refuse(FROM, tagged, "at version 1 (tag 1)");
    rt_message empty = handed(3, key(2), 1, all, 1);
    rt_message_header(&empty)->count = 0;
    refuse(FROM, empty, "worker 3 hands over 0 rows for slice 3");
}

static void a_row_comes_once(void **state)
{
    (void)state;
    rig r;
    rt_error error;
    exchange_rows(&r);
    give_slice(&r);
    assert_int_equal(give_handed(&r, 2, key(2), 1, 50, &error), RT_OK);
    rt_message again = handed(2, key(2), 1, DIM + STATE, 50);
    must_refuse(&r, rt_peer(RT_ROLE_WORKER, FROM), &again, "which slice 2 does not take from it");
    teardown(&r);
}

// Of one worker, for one slice: as many rows as there are slots.
static void what_waits_is_bounded(void **state)
{
    (void)state;
    rig r;
    rt_error error;
    exchange_rows(&r);
    for (uint32_t i = 0; i < SLOTS; i++) {
        assert_int_equal(give_handed(&r, 2, key(i), 1, 50, &error), RT_OK);
        assert_int_equal(give_handed(&r, 3, key(i), 1, 50, &error), RT_OK);
    }
    rt_message more = handed(2, key(2), 1, DIM + STATE, 50);
    must_refuse(&r, rt_peer(RT_ROLE_WORKER, FROM), &more, "worker 3 hands over 1 rows for slice 2");
    teardown(&r);
}

// What lied before its slice came is found then.
static void a_lie_that_waited_is_named(void **state)
{
    (void)state;
    rig r;
    rt_error error;
    exchange_rows(&r);
    assert_int_equal(give_handed(&r, 2, key(3), 1, 50, &error), RT_OK);
    refuse_slice(&r, ++r.sequence, "worker 3 handed over key");
    teardown(&r);
}

// The transport does not tell when a worker's connection has room again: who waits for that asks.
// Nobody has to ask for what shards do not take: a credit comes back first.
static void a_full_connection_to_a_worker_is_known(void **state)
{
    (void)state;
    rig r;
    rt_error error;
    exchange_rows(&r);
    r.answer = RT_AGAIN;
    add_op(&r, DP_OP_PUSH_ROW, key(1), 1, 1);
    r.plan.slices[0].rows[1].version = 1;
    give_slice(&r);
    assert_false(ew_executor_is_held_up(r.executor)); // slice 1 is not trained yet
    train(&r, NULL);
    assert_true(ew_executor_is_held_up(r.executor));
    assert_int_equal(ew_executor_waits_for(r.executor), EW_WAIT_PUSH);
    r.answer = RT_OK;
    assert_int_equal(ew_executor_flush(r.executor, &error), RT_OK);
    assert_false(ew_executor_is_held_up(r.executor));
    assert_int_equal(r.sent_count, 2);
    teardown(&r);

    const uint64_t keys[] = {key(0), key(1)};
    setup(&r, 3, 4, 4096);
    init_slice(&r, keys, 2);
    train(&r, NULL);
    r.answer = RT_AGAIN;
    begin(&r);
    add_op(&r, DP_OP_PUSH_ROW, key(0), 0, 1);
    give_slice(&r);
    assert_false(ew_executor_is_held_up(r.executor)); // it waits for a shard
    teardown(&r);
}

// Each once, though what is known of a slice is kept where an earlier one's was.
static void rows_of_every_slice_are_counted(void **state)
{
    (void)state;
    rig r;
    rt_error error;
    const uint64_t keys[] = {key(0), key(1)};
    setup(&r, 3, 4, 4096);
    init_slice(&r, keys, 2);
    train(&r, NULL);
    for (uint32_t t = 2; t < 10; t++) {
        begin(&r);
        add_op(&r, DP_OP_DROP, key(t - 1), 1, 0);
        add_op(&r, DP_OP_RECV, key(t), 1, 1)->peer = FROM;
        add_row(&r, 0, t - 1, DP_MODE_OWN);
        add_row(&r, 1, 1, DP_MODE_OWN);
        give_slice(&r);
        assert_int_equal(give_handed(&r, t, key(t), 1, 50, &error), RT_OK);
        train(&r, NULL);
        assert_int_equal(ew_executor_get_statistics(r.executor).handed, t - 1);
    }
    assert_int_equal(ew_executor_get_statistics(r.executor).stale_reads, 0);
    teardown(&r);
}

static void rows_of_another_epoch_are_dropped(void **state)
{
    (void)state;
    rig r;
    rt_error error;
    rt_message old = handed(2, key(2), 1, DIM + STATE, 7);
    exchange_rows(&r);
    give_slice(&r);
    rt_message_header(&old)->epoch = 9;
    assert_int_equal(give(&r, rt_peer(RT_ROLE_WORKER, FROM), &old, &error), RT_OK);
    train(&r, NULL);
    assert_no_job(&r);
    teardown(&r);
}

TEST_MAIN(TEST(a_row_goes_out_with_its_state), TEST(a_row_may_come_before_its_slice),
          TEST(a_row_that_waits_at_the_end_is_given_back), TEST(lies_are_named),
          TEST(a_row_comes_once), TEST(what_waits_is_bounded), TEST(a_lie_that_waited_is_named),
          TEST(a_full_connection_to_a_worker_is_known), TEST(rows_of_every_slice_are_counted),
          TEST(rows_of_another_epoch_are_dropped))
