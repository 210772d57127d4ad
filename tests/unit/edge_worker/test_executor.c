// An executor alone: slices, legal ones in odd orders, and wrong ones.
#include "tests/support/executor_case.h"

// ---- slices, good and bad --------------------------------------------------------------------

static void slices_come_in_order(void **state)
{
    (void)state;
    rig r;
    const uint64_t keys[] = {key_of(0, 0, 0), key_of(1, 0, 0)};
    setup(&r, 3, 4, 4096);
    begin(&r);
    refuse_slice(&r, 2, "slice 2 came after slice 0");
    refuse_slice(&r, 0, "slice 0 came after slice 0");
    init_slice(&r, keys, 2);
    refuse_slice(&r, 1, "slice 1 came after slice 1");
    refuse_slice(&r, UINT64_MAX, "came after slice 1");
    teardown(&r);
}

static void slices_outstanding_are_bounded(void **state)
{
    (void)state;
    rig r;
    const uint64_t keys[] = {key_of(0, 0, 0), key_of(1, 0, 0)};
    setup(&r, 2, 4, 4096);
    init_slice(&r, keys, 2);
    for (uint32_t t = 1; t <= 2; t++) {
        begin(&r);
        add_row(&r, 0, t, DP_MODE_OWN);
        add_row(&r, 1, t, DP_MODE_OWN);
        if (t == 2)
            refuse_slice(&r, 3, "slice 1 is not done: more than 2 outstanding");
        else
            give_slice(&r);
    }
    train(&r, NULL); // makes room
    give_slice(&r);
    train(&r, NULL);
    train(&r, NULL);
    assert_true(ew_executor_idle(r.executor));
    assert_int_equal(ew_executor_get_statistics(r.executor).stale_reads, 0);
    teardown(&r);
}

static void slices_come_from_the_coordinator(void **state)
{
    (void)state;
    rig r;
    rt_error error;
    setup(&r, 2, 4, 4096);
    begin(&r);
    rt_message message = slice_message(&r, 1);
    assert_int_equal(give(&r, rt_peer(RT_ROLE_PS, 0), &message, &error), RT_WIRE);
    message = slice_message(&r, 1);
    assert_int_equal(give(&r, rt_peer(RT_ROLE_WORKER, 0), &message, &error), RT_WIRE);
    teardown(&r);
}

static void a_row_is_trained_once(void **state)
{
    (void)state;
    rig r;
    setup(&r, 2, 4, 4096);
    begin(&r);
    add_op(&r, DP_OP_INIT, key_of(0, 0, 0), 0, 0);
    add_row(&r, 0, 0, DP_MODE_OWN);
    add_row(&r, 0, 0, DP_MODE_OWN);
    refuse_slice(&r, 1, "trains slot 0 twice");
    teardown(&r);
}

static void a_push_has_the_version_of_its_slot(void **state)
{
    (void)state;
    const uint64_t keys[] = {key_of(0, 0, 0), key_of(1, 0, 0)};
    for (uint32_t version = 0; version <= 2; version++) {
        rig r;
        setup(&r, 2, 4, 4096);
        init_slice(&r, keys, 2);
        train(&r, NULL);
        begin(&r);
        add_op(&r, DP_OP_PUSH_ROW, keys[0], 0, version);
        if (version == 1)
            give_slice(&r);
        else
            refuse_slice(&r, 2, "pushes slot 0 at version");
        teardown(&r);
    }
    rig r;
    setup(&r, 2, 4, 4096);
    begin(&r);
    add_op(&r, DP_OP_PUSH_ROW, keys[0], 5, 0);
    refuse_slice(&r, 1, "pushes slot 5"); // which holds nothing
    teardown(&r);
}

// A stale read is counted, not hidden.
static void stale_reads_are_counted(void **state)
{
    (void)state;
    rig r;
    setup(&r, 2, 4, 4096);
    begin(&r);
    add_op(&r, DP_OP_INIT, key_of(0, 0, 0), 0, 0);
    add_row(&r, 0, 3, DP_MODE_OWN); // it has version 0
    add_row(&r, 1, 0, DP_MODE_OWN); // it holds no row
    give_slice(&r);
    assert_int_equal(ew_executor_get_statistics(r.executor).stale_reads, 2);
    train(&r, NULL);
    teardown(&r);
}

// A row that went to the parameter server to make room is here no more, nor is one whose gradient
// went there, where others' are added to it.
static void what_was_pushed_away_is_gone(void **state)
{
    (void)state;
    const uint64_t keys[] = {key_of(0, 0, 0), key_of(1, 0, 0)};
    for (uint32_t is_gradient = 0; is_gradient < 2; is_gradient++) {
        const uint32_t version = !is_gradient;
        rig r;
        setup(&r, 3, 4, 4096);
        begin(&r);
        for (uint32_t i = 0; i < 2; i++) {
            add_op(&r, DP_OP_INIT, keys[i], i, 0);
            add_row(&r, i, 0, is_gradient ? DP_MODE_GRAD : DP_MODE_OWN);
            if (is_gradient)
                add_op(&r, DP_OP_PUSH_GRAD, keys[i], i, 1);
        }
        give_slice(&r);
        train(&r, NULL);
        if (!is_gradient) {
            begin(&r);
            add_op(&r, DP_OP_PUSH_ROW, keys[0], 0, version)->reason = DP_REASON_EVICT;
            give_slice(&r);
            train(&r, NULL);
        }
        begin(&r);
        add_row(&r, 0, version, DP_MODE_OWN);
        add_row(&r, 1, version, DP_MODE_OWN);
        give_slice(&r);
        assert_int_equal(ew_executor_get_statistics(r.executor).stale_reads, 1 + is_gradient);
        train(&r, NULL);
        teardown(&r);
    }
}

// ---- order -----------------------------------------------------------------------------------

static void requests_go_out_with_the_slice(void **state)
{
    (void)state;
    rig r;
    rt_error error;
    setup(&r, 2, 4, 4096);
    pull_slice(&r);
    for (uint32_t i = 0; i < 2; i++) {
        const rt_wire_header *header = rt_message_header(&r.sent[i].message);
        rt_wire_pull pull = pull_at(&r, i, 0);
        assert_int_equal(r.sent[i].shard, i);
        assert_int_equal(header->type, RT_MESSAGE_PULL);
        assert_int_equal(header->iteration, 1);
        assert_int_equal(header->count, 1);
        assert_int_equal(header->sender, rt_peer(RT_ROLE_WORKER, 1));
        assert_true(pull.key == key_of(i, i, 0));
        assert_int_equal(!!(pull.tag & RT_WIRE_TAG_STATE), i == 0);
    }
    assert_no_job(&r);
    rt_wire_pull a = pull_at(&r, 0, 0), b = pull_at(&r, 1, 0);
    assert_int_equal(answer(&r, 1, &b, 0, DIM, 10, &error), RT_OK);
    assert_no_job(&r);
    assert_int_equal(answer(&r, 0, &a, 0, DIM + STATE, 20, &error), RT_OK);
    assert_true(row_at(&r, 0)[3] == 23 && row_at(&r, 1)[1] == 11);
    train(&r, NULL);
    assert_int_equal(ew_executor_get_statistics(r.executor).stale_reads, 0);
    teardown(&r);
}

// Small messages: as many as needed, each of one shard.
static void requests_are_split(void **state)
{
    (void)state;
    rig r;
    setup(&r, 2, 4, 2 * sizeof(rt_wire_pull));
    begin(&r);
    for (uint32_t i = 0; i < 5; i++)
        add_op(&r, DP_OP_PULL, key_of(0, 1, i), i, 0);
    give_slice(&r);
    assert_int_equal(r.sent_count, 3);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(r.sent[i].shard, 1);
        assert_int_equal(rt_message_header(&r.sent[i].message)->count, i < 2 ? 2 : 1);
        assert_int_equal(rt_message_header(&r.sent[i].message)->payload_bytes,
                         (i < 2 ? 2 : 1) * sizeof(rt_wire_pull));
    }
    teardown(&r);
}

// The answer for t + 1 may come while its slot still holds a row that t trains: it waits, the row
// is trained and pushed, then it lands.
static void an_early_row_waits_for_its_slot(void **state)
{
    (void)state;
    rig r;
    rt_error error;
    const uint64_t keys[] = {key_of(0, 0, 0), key_of(1, 0, 0)};
    const float gradients[] = {3, 4, 0, 0};
    setup(&r, 3, 4, 4096);
    init_slice(&r, keys, 2);
    begin(&r);
    add_op(&r, DP_OP_PUSH_ROW, keys[0], 0, 1)->reason = DP_REASON_EVICT;
    add_op(&r, DP_OP_PULL, key_of(0, 1, 5), 0, 0);
    add_row(&r, 0, 0, DP_MODE_OWN);
    add_row(&r, 1, 1, DP_MODE_OWN);
    give_slice(&r);
    assert_int_equal(r.sent_count, 1); // the pull only
    rt_wire_pull pull = pull_at(&r, 0, 0);
    float before[2];
    memcpy(before, row_at(&r, 0), sizeof before);
    assert_int_equal(answer(&r, 1, &pull, 0, DIM + STATE, 50, &error), RT_OK);
    assert_memory_equal(before, row_at(&r, 0), sizeof before);
    assert_int_equal(ew_executor_get_statistics(r.executor).rows_early, 1);
    train(&r, gradients); // of slice 1
    assert_int_equal(r.sent_count, 2);
    assert_int_equal(rt_message_header(&r.sent[1].message)->type, RT_MESSAGE_PUSH_ROW);
    float pushed[2];
    rt_wire_row head;
    memcpy(&head, rt_message_payload(&r.sent[1].message), sizeof head);
    memcpy(pushed, rt_message_payload(&r.sent[1].message) + sizeof head, sizeof pushed);
    assert_true(head.key == keys[0] && head.version == 1);
    assert_memory_equal(pushed, before, sizeof pushed); // captured before the new row landed
    assert_true(row_at(&r, 0)[0] == 50);
    train(&r, NULL);
    teardown(&r);
}

static void pushes_wait_for_credits(void **state)
{
    (void)state;
    rig r;
    rt_error error;
    const uint64_t keys[] = {key_of(0, 0, 0), key_of(1, 0, 0)};
    setup(&r, 3, 1, 1); // one credit, one row a message
    init_slice(&r, keys, 2);
    train(&r, NULL);
    begin(&r);
    r.plan.iteration = r.plan.step = r.plan.sample_count = 0; // a flush
    r.plan.dense_chunk_floats = 0;
    add_op(&r, DP_OP_PUSH_ROW, keys[0], 0, 1)->reason = DP_REASON_FLUSH;
    add_op(&r, DP_OP_PUSH_ROW, keys[1], 1, 1)->reason = DP_REASON_FLUSH;
    give_slice(&r);
    assert_int_equal(r.sent_count, 1);
    assert_int_equal(ew_executor_flush(r.executor, &error), RT_OK);
    assert_int_equal(r.sent_count, 1);
    assert_false(ew_executor_idle(r.executor));
    for (uint32_t i = 0; i < 3; i++) {
        rt_message confirm;
        assert_int_equal(
            rt_message_create(&confirm, RT_MESSAGE_PUSHED, rt_peer(RT_ROLE_PS, 0), 2, 0, 0), RT_OK);
        rt_status status = give(&r, rt_peer(RT_ROLE_PS, 0), &confirm, &error);
        assert_int_equal(status, i < 2 ? RT_OK : RT_WIRE); // the third is of no push
        assert_int_equal(r.sent_count, 2);
        assert_int_equal(ew_executor_idle(r.executor), i >= 1);
    }
    assert_int_equal(ew_executor_get_statistics(r.executor).done.flush_push, 2);
    teardown(&r);
}

// What two slices push at the same moment goes in messages of each: a shard files by slice.
static void a_message_is_of_one_slice(void **state)
{
    (void)state;
    rig r;
    const uint64_t keys[] = {key_of(0, 0, 0), key_of(1, 0, 0)};
    setup(&r, 4, 4, 4096);
    init_slice(&r, keys, 2);
    for (uint32_t i = 0; i < 2; i++) { // both wait for the training of slice 1
        begin(&r);
        add_op(&r, DP_OP_PUSH_ROW, keys[i], i, 1)->reason = DP_REASON_EVICT;
        give_slice(&r);
    }
    train(&r, NULL);
    assert_int_equal(r.sent_count, 2);
    for (uint32_t i = 0; i < 2; i++) {
        const rt_wire_header *header = rt_message_header(&r.sent[i].message);
        uint64_t key;
        memcpy(&key, rt_message_payload(&r.sent[i].message), sizeof key);
        assert_int_equal(header->type, RT_MESSAGE_PUSH_ROW);
        assert_int_equal(header->iteration, 2 + i);
        assert_int_equal(header->count, 1);
        assert_true(key == keys[i]);
    }
    teardown(&r);
}

static void a_full_transport_gets_it_again(void **state)
{
    (void)state;
    rig r;
    rt_error error;
    setup(&r, 2, 4, sizeof(rt_wire_pull));
    r.answer = RT_AGAIN;
    begin(&r);
    for (uint32_t i = 0; i < 4; i++)
        add_op(&r, DP_OP_PULL, key_of(0, 0, i), i, 0);
    give_slice(&r);
    assert_int_equal(r.sent_count, 0);
    assert_false(ew_executor_idle(r.executor));
    r.answer = RT_OK;
    assert_int_equal(ew_executor_flush(r.executor, &error), RT_OK);
    assert_int_equal(r.sent_count, 4);
    for (uint32_t i = 0; i < 4; i++)
        assert_true(pull_at(&r, i, 0).key == key_of(0, 0, i));
    teardown(&r);
}

static void a_broken_transport_is_named(void **state)
{
    (void)state;
    rig r;
    rt_error error;
    setup(&r, 2, 4, 4096);
    r.answer = RT_NOT_FOUND;
    begin(&r);
    add_op(&r, DP_OP_PULL, key_of(0, 1, 0), 0, 0);
    rt_message message = slice_message(&r, 1);
    assert_int_equal(give(&r, COORDINATOR, &message, &error), RT_NOT_FOUND);
    assert_non_null(strstr(error.text, "PS shard 1"));
    teardown(&r);
}

TEST_MAIN(TEST(slices_come_in_order), TEST(slices_outstanding_are_bounded),
          TEST(slices_come_from_the_coordinator), TEST(a_row_is_trained_once),
          TEST(a_push_has_the_version_of_its_slot), TEST(stale_reads_are_counted),
          TEST(what_was_pushed_away_is_gone), TEST(a_message_is_of_one_slice),
          TEST(requests_go_out_with_the_slice), TEST(requests_are_split),
          TEST(an_early_row_waits_for_its_slot), TEST(pushes_wait_for_credits),
          TEST(a_full_transport_gets_it_again), TEST(a_broken_transport_is_named))
