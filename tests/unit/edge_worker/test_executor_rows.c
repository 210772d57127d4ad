// An executor alone: rows that nobody asked for, and messages of all kinds that are wrong.
#include "tests/support/executor_case.h"

// ---- rows, bad -------------------------------------------------------------------------------

static void refuse_rows(rt_message_type type, uint32_t shard, uint64_t iteration, rt_wire_row head,
                        uint32_t floats)
{
    rig r;
    rt_error error;
    setup(&r, 2, 4, 4096);
    pull_slice(&r);
    rt_message message = rows_message(type, iteration, head, floats, 1);
    assert_int_equal(give(&r, rt_peer(RT_ROLE_PS, shard), &message, &error), RT_WIRE);
    assert_non_null(strstr(error.text, "PS shard"));
    teardown(&r);
}

static void rows_nobody_asked_for(void **state)
{
    (void)state;
    rig r;
    setup(&r, 2, 4, 4096);
    pull_slice(&r);
    rt_wire_pull a = pull_at(&r, 0, 0), b = pull_at(&r, 1, 0);
    teardown(&r);
    const rt_wire_row good = {a.key, 0, a.tag};
    rt_wire_row bad = good;
    bad.key = key_of(0, 0, 1);
    refuse_rows(RT_MESSAGE_ROWS, 0, 1, bad, DIM + STATE); // another key
    bad = good;
    bad.tag = b.tag;
    refuse_rows(RT_MESSAGE_ROWS, 0, 1, bad, DIM + STATE); // another's tag
    bad.tag = 1000;
    refuse_rows(RT_MESSAGE_ROWS, 0, 1, bad, DIM + STATE); // no tag at all
    bad.tag = 2;                                          // an operation that is no pull
    refuse_rows(RT_MESSAGE_ROWS, 0, 1, bad, DIM + STATE);
    bad.tag = UINT32_MAX;
    refuse_rows(RT_MESSAGE_ROWS, 0, 1, bad, DIM + STATE);
    refuse_rows(RT_MESSAGE_ROWS, 1, 1, good, DIM + STATE); // of the other shard
    refuse_rows(RT_MESSAGE_ROWS, 0, 0, good, DIM + STATE); // for no slice
    refuse_rows(RT_MESSAGE_ROWS, 0, 2, good, DIM + STATE); // for a slice to come
    refuse_rows(RT_MESSAGE_ROWS, 0, 3, good, DIM + STATE); // same place in the ring
    refuse_rows(RT_MESSAGE_ROWS, 0, 1ull << 40, good, DIM + STATE);
}

static void rows_of_a_wrong_version(void **state)
{
    (void)state;
    rig r;
    rt_error error;
    const uint64_t keys[] = {key_of(0, 0, 0), key_of(1, 0, 0)};
    for (uint32_t version = 0; version <= 3; version++) {
        setup(&r, 3, 4, 4096);
        init_slice(&r, keys, 2);
        train(&r, NULL);
        begin(&r);
        add_op(&r, DP_OP_PULL, key_of(0, 0, 3), 4, 1);
        give_slice(&r);
        rt_wire_pull pull = pull_at(&r, 0, 0);
        rt_status status = answer(&r, 0, &pull, version, DIM + STATE, 1, &error);
        assert_int_equal(status, version == 1 ? RT_OK : RT_WIRE);
        assert_true(version == 1 || strstr(error.text, "expected exactly 1"));
        teardown(&r);
    }
}

static void rows_cut_short_or_too_long(void **state)
{
    (void)state;
    rig r;
    setup(&r, 2, 4, 4096);
    pull_slice(&r);
    rt_wire_pull a = pull_at(&r, 0, 0), b = pull_at(&r, 1, 0);
    teardown(&r);
    const rt_wire_row with_state = {a.key, 0, a.tag}, without = {b.key, 0, b.tag};
    for (uint32_t floats = 0; floats <= DIM + STATE + 2; floats++) {
        if (floats != DIM + STATE)
            refuse_rows(RT_MESSAGE_ROWS, 0, 1, with_state, floats);
        if (floats != DIM)
            refuse_rows(RT_MESSAGE_ROWS, 1, 1, without, floats);
    }
}

// A count that promises more records than there are.
static void more_records_than_bytes(void **state)
{
    (void)state;
    rig r;
    rt_error error;
    setup(&r, 2, 4, 4096);
    pull_slice(&r);
    rt_wire_pull a = pull_at(&r, 0, 0);
    rt_wire_row head = {a.key, 0, a.tag};
    rt_message message = rows_message(RT_MESSAGE_ROWS, 1, head, DIM + STATE, 1);
    rt_message_header(&message)->count = 2;
    assert_int_equal(give(&r, rt_peer(RT_ROLE_PS, 0), &message, &error), RT_WIRE);
    teardown(&r);
}

static void a_row_comes_once(void **state)
{
    (void)state;
    rig r;
    rt_error error;
    setup(&r, 2, 4, 4096);
    pull_slice(&r);
    rt_wire_pull a = pull_at(&r, 0, 0);
    assert_int_equal(answer(&r, 0, &a, 0, DIM + STATE, 1, &error), RT_OK);
    assert_int_equal(answer(&r, 0, &a, 0, DIM + STATE, 1, &error), RT_WIRE);
    teardown(&r);
}

static void strangers_and_strange_messages(void **state)
{
    (void)state;
    static const rt_message_type types[] = {RT_MESSAGE_PULL,      RT_MESSAGE_PUSH_ROW,
                                            RT_MESSAGE_DENSE_SUM, RT_MESSAGE_WELCOME,
                                            RT_MESSAGE_HEARTBEAT, RT_MESSAGE_REPORT,
                                            RT_MESSAGE_ROWS_CODED}; // rows travel as they are
    const uint32_t peers[] = {COORDINATOR, rt_peer(RT_ROLE_WORKER, 0), rt_peer(RT_ROLE_PS, SHARDS)};
    rig r;
    rt_error error;
    rt_message message;
    setup(&r, 2, 4, 4096);
    for (size_t i = 0; i < RT_COUNT_OF(types); i++) {
        assert_int_equal(rt_message_create(&message, types[i], rt_peer(RT_ROLE_PS, 0), 1, 0, 0),
                         RT_OK);
        assert_int_equal(give(&r, rt_peer(RT_ROLE_PS, 0), &message, &error), RT_WIRE);
    }
    for (size_t i = 0; i < RT_COUNT_OF(peers); i++) {
        assert_int_equal(rt_message_create(&message, RT_MESSAGE_ROWS, peers[i], 1, 0, 0), RT_OK);
        assert_int_equal(give(&r, peers[i], &message, &error), RT_WIRE);
    }
    teardown(&r);
}

// Of a run that was rolled back: no error, no effect.
static void messages_of_another_epoch(void **state)
{
    (void)state;
    rig r;
    rt_error error;
    setup(&r, 2, 4, 4096);
    pull_slice(&r);
    rt_wire_pull a = pull_at(&r, 0, 0);
    rt_wire_row head = {a.key, 0, a.tag};
    for (uint32_t epoch = 2; epoch-- > 0;) {
        rt_message message = rows_message(RT_MESSAGE_ROWS, 1, head, DIM + STATE, 9);
        rt_message_header(&message)->epoch = epoch;
        assert_int_equal(give(&r, rt_peer(RT_ROLE_PS, 0), &message, &error), RT_OK);
        assert_int_equal(row_at(&r, 0)[0] == 9, epoch == 0);
    }
    teardown(&r);
}

TEST_MAIN(TEST(rows_nobody_asked_for), TEST(rows_of_a_wrong_version),
          TEST(rows_cut_short_or_too_long), TEST(more_records_than_bytes), TEST(a_row_comes_once),
          TEST(strangers_and_strange_messages), TEST(messages_of_another_epoch))
