// An executor alone: slices that were left out, because its worker sits out and has nothing to do.
#define HANDS true
#include "tests/support/executor_case.h"

#define FROM 3u // a worker that hands rows over

static rt_message slice_behind(rig *r, uint32_t left_out)
{
    rt_message message = slice_message(r, ++r->sequence);
    dp_slice_set_place(&message, left_out, 0);
    return message;
}

static void give_behind(rig *r, uint32_t left_out)
{
    rt_error error;
    rt_message message = slice_behind(r, left_out);
    if (give(r, COORDINATOR, &message, &error))
        fail_msg("%s", error.text);
}

static void refuse_behind(rig *r, uint64_t sequence, uint32_t left_out, const char *text)
{
    rt_error error;
    rt_message message = slice_message(r, sequence);
    dp_slice_set_place(&message, left_out, 0);
    assert_int_equal(give(r, COORDINATOR, &message, &error), RT_WIRE);
    if (!strstr(error.text, text))
        fail_msg("\"%s\" does not say \"%s\"", error.text, text);
}

static void begin_two_rows(rig *r, uint32_t version)
{
    begin(r);
    add_row(r, 0, version, DP_MODE_OWN);
    add_row(r, 1, version, DP_MODE_OWN);
}

static void make_rows(rig *r)
{
    const uint64_t keys[] = {key_of(0, 0, 0), key_of(1, 0, 0)};
    setup(r, 3, 4, 4096);
    init_slice(r, keys, 2);
}

// Whoever was left out for long, beyond any number that may be outstanding, is called back by one
// slice, and trains it at once.
static void who_is_called_back_trains_at_once(void **state)
{
    (void)state;
    rig r;
    ew_job job;
    make_rows(&r);
    train(&r, NULL);
    assert_int_equal(ew_executor_iteration(r.executor), 1);
    r.sequence += 1000;
    begin_two_rows(&r, 1);
    give_behind(&r, 1000);
    const rt_wire_slice *next = ew_executor_next_counts(r.executor);
    assert_non_null(next);
    assert_int_equal(next->iteration, 1002);
    assert_int_equal(ew_executor_next_job(r.executor, &job), RT_OK);
    assert_int_equal(job.sequence, 1002);
    rt_error error;
    const float zeros[2 * DIM] = {0};
    assert_int_equal(ew_executor_trained(r.executor, zeros, true, NULL, &error), RT_OK);
    assert_int_equal(ew_executor_iteration(r.executor), 1002);
    assert_true(ew_executor_idle(r.executor));
    assert_int_equal(ew_executor_get_statistics(r.executor).stale_reads, 0);
    teardown(&r);
}

// It may come while the slice before those that were left out is being trained, and is the next one
// then.
static void a_gap_is_passed_in_its_turn(void **state)
{
    (void)state;
    rig r;
    make_rows(&r);
    r.sequence++;
    begin_two_rows(&r, 1);
    give_behind(&r, 1); // slice 3
    assert_int_equal(ew_executor_next_counts(r.executor)->iteration, 1);
    train(&r, NULL);
    assert_int_equal(ew_executor_next_counts(r.executor)->iteration, 3);
    r.sequence++;
    begin_two_rows(&r, 3);
    give_behind(&r, 1); // slice 5
    train(&r, NULL);
    train(&r, NULL);
    assert_no_job(&r);
    assert_int_equal(ew_executor_iteration(r.executor), 5);
    assert_int_equal(ew_executor_get_statistics(r.executor).stale_reads, 0);
    teardown(&r);
}

// A flush says which iteration is trained before it, if by others: worker 0 hands its weights out.
static void a_flush_tells_what_is_trained(void **state)
{
    (void)state;
    rig r;
    rt_error error;
    make_rows(&r);
    train(&r, NULL);
    r.sequence += 7;
    begin(&r);
    r.plan.iteration = r.plan.step = r.plan.sample_count = r.plan.dense_chunk_floats = 0;
    rt_message flush = slice_message(&r, ++r.sequence);
    dp_slice_set_place(&flush, 7, 8);
    assert_int_equal(give(&r, COORDINATOR, &flush, &error), RT_OK);
    assert_int_equal(ew_executor_iteration(r.executor), 8);
    assert_true(ew_executor_idle(r.executor));
    begin_two_rows(&r, 1);
    give_behind(&r, 0);
    train(&r, NULL);
    teardown(&r);
}

// Only a flush does.
static void a_slice_that_trains_names_no_cut(void **state)
{
    (void)state;
    rig r;
    rt_error error;
    make_rows(&r);
    begin_two_rows(&r, 1);
    rt_message message = slice_message(&r, ++r.sequence);
    dp_slice_set_place(&message, 0, 1);
    assert_int_equal(give(&r, COORDINATOR, &message, &error), RT_WIRE);
    assert_non_null(strstr(error.text, "its iteration does not fit its kind"));
    teardown(&r);
}

// What was lost is not taken for left out, nor is more outstanding than may be.
static void gaps_are_checked(void **state)
{
    (void)state;
    rig r;
    make_rows(&r);
    begin_two_rows(&r, 1);
    refuse_behind(&r, 3, 0, "slice 3 came after slice 1, and 0 were left out");
    refuse_behind(&r, 3, 2, "slice 3 came after slice 1, and 2 were left out");
    refuse_behind(&r, 2, 1, "slice 2 came after slice 1, and 1 were left out");
    refuse_behind(&r, 1, UINT32_MAX, "slice 1 came after slice 1");
    refuse_behind(&r, 4, 2, "more than 3 outstanding"); // 3: the last that may be
    r.sequence = 2;
    give_behind(&r, 1);
    train(&r, NULL);
    train(&r, NULL);
    teardown(&r);
}

// A row for a slice that has not come: of those that may be out, whichever they are.
static void rows_for_whoever_is_called_back(void **state)
{
    (void)state;
    rig r;
    rt_error error;
    const uint64_t key = key_of(0, 1, 3);
    const rt_wire_row head = {key, 1, 0};
    make_rows(&r);
    train(&r, NULL);
    static const struct {
        uint64_t sequence;
        rt_status status;
    } rows[] = {{500, RT_OK}, {503, RT_WIRE}, {497, RT_WIRE}, {502, RT_OK}, {499, RT_WIRE}};
    for (size_t i = 0; i < RT_COUNT_OF(rows); i++) {
        rt_message message =
            rows_message(RT_MESSAGE_HANDED, rows[i].sequence, head, DIM + STATE, 50);
        assert_int_equal(give(&r, rt_peer(RT_ROLE_WORKER, FROM), &message, &error), rows[i].status);
    }
    r.sequence = 499;
    begin(&r);
    add_op(&r, DP_OP_DROP, key_of(0, 0, 0), 0, 1);
    add_op(&r, DP_OP_RECV, key, 0, 1)->peer = FROM;
    add_row(&r, 0, 1, DP_MODE_OWN);
    add_row(&r, 1, 1, DP_MODE_OWN);
    give_behind(&r, 498);
    assert_true(row_at(&r, 0)[0] == 50);
    train(&r, NULL);
    assert_int_equal(ew_executor_get_statistics(r.executor).stale_reads, 0);
    teardown(&r);
}

TEST_MAIN(TEST(who_is_called_back_trains_at_once), TEST(a_gap_is_passed_in_its_turn),
          TEST(a_flush_tells_what_is_trained), TEST(a_slice_that_trains_names_no_cut),
          TEST(gaps_are_checked), TEST(rows_for_whoever_is_called_back))
