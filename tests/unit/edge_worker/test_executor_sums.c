// An executor alone: gradients of rows that it sums, gradients that it sends to who does, and what
// is wrong with some of them. It is worker 1 of 4.
#define SUMS true
#include "tests/support/executor_case.h"

#define BEFORE 0u // a worker whose gradients come before its own in a sum
#define BEHIND 3u // and one behind
#define ALL (rt_bit(BEFORE) | rt_bit(1) | rt_bit(BEHIND))

// A message with one gradient: floats from first on.
static rt_message gradient_message(uint64_t sequence, rt_wire_grad head, uint32_t floats,
                                   float first)
{
    return record_message(RT_MESSAGE_GRADS, sequence, &head, sizeof head, floats, first);
}

static rt_status give_gradient(rig *r, uint32_t worker, uint64_t sequence, uint64_t row_key,
                               uint32_t base, float first, rt_error *error)
{
    const rt_wire_grad head = {row_key, ALL, base, RT_WIRE_STEP};
    rt_message message = gradient_message(sequence, head, DIM, first);
    return give(r, rt_peer(RT_ROLE_WORKER, worker), &message, error);
}

static void must_give(rig *r, uint32_t worker, uint64_t sequence, uint64_t row_key, uint32_t base,
                      float first)
{
    rt_error error;
    if (give_gradient(r, worker, sequence, row_key, base, first, &error))
        fail_msg("%s", error.text);
}

// The row of a slot, with the gradients of three workers, this one's among them.
static void add_summed(rig *r, uint64_t row_key, uint32_t slot, uint32_t version)
{
    const uint32_t others[] = {BEFORE, BEHIND};
    add_row(r, slot, version, DP_MODE_REDUCE);
    for (uint32_t i = 0; i < 2; i++) {
        dp_op *op = add_op(r, DP_OP_SUM, row_key, slot, r->plan.iteration);
        op->mask = ALL;
        op->base = version;
        op->peer = (uint8_t)others[i];
    }
}

// Slice 1 makes two rows; slice 2 sums the first and steps the second.
static void sum_a_row(rig *r)
{
    const uint64_t keys[] = {key(0), key(1)};
    setup(r, 3, 4, 4096);
    init_slice(r, keys, 2);
    train(r, NULL);
    begin(r);
    add_summed(r, key(0), 0, 1);
    add_row(r, 1, 1, DP_MODE_OWN);
    give_slice(r);
}

// What one step with ((a + own) + b) makes of the row.
static void expect_step(const rig *r, float *row, const float *a, const float *own, const float *b)
{
    float sum[DIM];
    for (uint32_t i = 0; i < DIM; i++) {
        sum[i] = a[i] + own[i];
        sum[i] += b[i];
    }
    rt_optimizer_step(&r->rows.optimizer, DIM, 2, row, row + DIM, sum);
}

// Values of which the sum in another order is another one.
static void the_order_is_that_of_workers(void **state)
{
    (void)state;
    const float own[2 * DIM] = {1, -3e-8f, 0, 0}, before[] = {3e-8f, 1 + 3e-8f}, behind[] = {-1, 0};
    for (uint32_t order = 0; order < 3; order++) { // before the training, behind it, mixed
        rig r;
        float want[DIM + STATE];
        rt_error error;
        sum_a_row(&r);
        memcpy(want, row_at(&r, 0), sizeof want);
        expect_step(&r, want, before, own, behind);
        for (uint32_t i = 0; i < 2; i++) {
            const rt_wire_grad head = {key(0), ALL, 1, RT_WIRE_STEP};
            const uint32_t from = order == 1 ? (i ? BEFORE : BEHIND) : (i ? BEHIND : BEFORE);
            rt_message message = gradient_message(2, head, DIM, 0);
            memcpy(rt_message_payload(&message) + sizeof head, from == BEFORE ? before : behind,
                   sizeof before);
            if ((order == 1 && i == 0) || (order == 2 && i == 1))
                train(&r, own);
            assert_int_equal(give(&r, rt_peer(RT_ROLE_WORKER, from), &message, &error), RT_OK);
        }
        if (order == 0) {
            assert_memory_not_equal(row_at(&r, 0), want, sizeof want);
            train(&r, own);
        }
        assert_memory_equal(row_at(&r, 0), want, sizeof want);
        assert_true(ew_executor_idle(r.executor)); // nobody confirms
        teardown(&r);
    }
}

// Floats of which the sums depend on the order.
static void gradient_of(uint32_t worker, uint32_t row, float *values)
{
    for (uint32_t k = 0; k < DIM; k++)
        values[k] = (float)(1 + worker) * 1e-3f + (float)(row + k) * (worker % 2 ? 1e4f : 7.7f);
}

// This worker, and one of the others at least.
static uint64_t some_trainers(rt_random *random)
{
    static const uint64_t others[] = {1, 4, 8, 5, 9, 12, 13};
    return rt_bit(1) | others[rt_random_below(random, RT_COUNT_OF(others))];
}

// The gradients that a worker has of rows, so many to a message, the last row first.
static void give_all(rig *r, uint32_t worker, const uint64_t *keys, const uint64_t *masks,
                     uint32_t row_count, uint32_t most, rt_error *error)
{
    struct {
        rt_wire_grad head;
        float values[DIM];
    } records[8];
    uint32_t count = 0;
    for (uint32_t i = row_count; i-- > 0;) {
        if (masks[i] >> worker & 1) {
            records[count].head = (rt_wire_grad){keys[i], masks[i], 1, RT_WIRE_STEP};
            gradient_of(worker, i, records[count++].values);
        }
        if (count == 0 || (count < most && i > 0))
            continue;
        rt_message message;
        assert_int_equal(rt_message_create(&message, RT_MESSAGE_GRADS,
                                           rt_peer(RT_ROLE_WORKER, worker), 2, count,
                                           count * sizeof records[0]),
                         RT_OK);
        memcpy(rt_message_payload(&message), records, count * sizeof records[0]);
        if (give(r, rt_peer(RT_ROLE_WORKER, worker), &message, error))
            fail_msg("%s", error->text);
        count = 0;
    }
}

// Many rows, each with trainers of its own; a worker's gradients come in one message, or in two,
// the rows in any order.
static void every_row_has_its_own_trainers(void **state)
{
    (void)state;
    enum { ROWS = 8, ME = 1, WORKERS = 4 };
    for (uint64_t seed = 0; seed < 60; seed++) {
        rig r;
        rt_error error;
        rt_random random = {seed};
        uint64_t keys[ROWS], masks[ROWS];
        float own[ROWS * DIM], want[ROWS][DIM + STATE];
        setup(&r, 3, 4, 4096);
        for (uint32_t i = 0; i < ROWS; i++)
            keys[i] = key(ROWS - i);
        init_slice(&r, keys, ROWS);
        train(&r, NULL);
        begin(&r);
        for (uint32_t i = 0; i < ROWS; i++) {
            masks[i] = some_trainers(&random);
            add_row(&r, i, 1, DP_MODE_REDUCE);
            for (uint32_t w = 0; w < WORKERS; w++) {
                if (w == ME || !(masks[i] >> w & 1))
                    continue;
                dp_op *op = add_op(&r, DP_OP_SUM, keys[i], i, 2);
                op->mask = masks[i];
                op->base = 1;
                op->peer = (uint8_t)w;
            }
            gradient_of(ME, i, own + i * DIM);
            memcpy(want[i], row_at(&r, i), sizeof want[i]);
        }
        give_slice(&r);
        if (seed % 3 == 0)
            train(&r, own);
        for (uint32_t w = WORKERS; w-- > 0;)
            if (w != ME)
                give_all(&r, w, keys, masks, ROWS, seed % 2 ? ROWS : 3, &error);
        if (seed % 3)
            train(&r, own);
        for (uint32_t i = 0; i < ROWS; i++) {
            float sum[DIM], one[DIM];
            bool first = true;
            for (uint32_t w = 0; w < WORKERS; w++) {
                if (!(masks[i] >> w & 1))
                    continue;
                gradient_of(w, i, first ? sum : one);
                for (uint32_t k = 0; !first && k < DIM; k++)
                    sum[k] += one[k];
                first = false;
            }
            rt_optimizer_step(&r.rows.optimizer, DIM, 2, want[i], want[i] + DIM, sum);
            assert_memory_equal(row_at(&r, i), want[i], sizeof want[i]);
        }
        assert_true(ew_executor_idle(r.executor));
        teardown(&r);
    }
}

static void a_gradient_goes_to_who_sums(void **state)
{
    (void)state;
    rig r;
    rt_wire_grad head;
    rt_counts done;
    rt_error error;
    ew_job job;
    const uint64_t keys[] = {key(0), key(1)};
    const float gradients[] = {5, 6, 7, 8};
    for (uint32_t apply = 0; apply < 2; apply++) {
        setup(&r, 3, 4, 4096);
        init_slice(&r, keys, 2);
        train(&r, NULL);
        begin(&r);
        add_row(&r, 0, 1, DP_MODE_GRAD);
        add_row(&r, 1, 1, DP_MODE_OWN);
        dp_op *op = add_op(&r, DP_OP_REDUCE, key(0), 0, 2);
        op->mask = ALL;
        op->base = 1;
        op->peer = BEHIND;
        give_slice(&r);
        assert_int_equal(ew_executor_next_job(r.executor, &job), RT_OK);
        assert_int_equal(ew_executor_trained(r.executor, gradients, apply, &done, &error), RT_OK);
        assert_int_equal(done.grad_push, 0);
        assert_int_equal(ew_executor_get_statistics(r.executor).gradients, 1);
        assert_int_equal(r.sent_count, 1);
        assert_int_equal(r.sent[0].shard, SHARDS + BEHIND);
        const rt_message *out = &r.sent[0].message;
        assert_int_equal(rt_message_header(out)->type, RT_MESSAGE_GRADS);
        assert_int_equal(rt_message_header(out)->iteration, 2);
        assert_int_equal(rt_message_header(out)->payload_bytes, sizeof head + DIM * sizeof(float));
        memcpy(&head, rt_message_payload(out), sizeof head);
        assert_true(head.key == key(0) && head.mask == ALL && head.base == 1);
        assert_int_equal(head.step, apply ? RT_WIRE_STEP : RT_WIRE_NO_STEP);
        assert_memory_equal(rt_message_payload(out) + sizeof head, gradients, DIM * sizeof(float));
        assert_true(ew_executor_idle(r.executor));
        begin(&r); // the copy lacks the others' gradients: it must not be pushed
        add_op(&r, DP_OP_PUSH_ROW, key(0), 0, 1);
        refuse_slice(&r, ++r.sequence, "slice 3 pushes slot 0 at version 1");
        teardown(&r);
    }
}

// Who sends may be ahead of this worker's slice.
static void gradients_may_come_before_their_slice(void **state)
{
    (void)state;
    rig r;
    const uint64_t keys[] = {key(0), key(1)};
    const float own[2 * DIM] = {1, 1}, before[] = {10, 11}, behind[] = {20, 21};
    float want[DIM + STATE];
    setup(&r, 3, 4, 4096);
    init_slice(&r, keys, 2);
    must_give(&r, BEHIND, 2, key(0), 1, 20);
    must_give(&r, BEFORE, 2, key(0), 1, 10);
    train(&r, NULL);
    begin(&r);
    add_summed(&r, key(0), 0, 1);
    add_row(&r, 1, 1, DP_MODE_OWN);
    memcpy(want, row_at(&r, 0), sizeof want);
    expect_step(&r, want, before, own, behind);
    give_slice(&r);
    train(&r, own);
    assert_memory_equal(row_at(&r, 0), want, sizeof want);
    teardown(&r);
}

// A push of the row waits for the sum, and the training whose slice has that push does, too; one
// that needs another row alone does not.
static void what_follows_waits(void **state)
{
    (void)state;
    rig r;
    rt_counts done;
    rt_error error;
    ew_job job;
    sum_a_row(&r);
    train(&r, NULL);
    assert_false(ew_executor_idle(r.executor));
    begin(&r);
    add_row(&r, 1, 2, DP_MODE_OWN);
    add_row(&r, 2, 0, DP_MODE_OWN);
    add_op(&r, DP_OP_INIT, key(2), 2, 0);
    give_slice(&r);
    train(&r, NULL);
    begin(&r);
    add_op(&r, DP_OP_PUSH_ROW, key(0), 0, 2);
    add_row(&r, 1, 3, DP_MODE_OWN);
    add_row(&r, 2, 3, DP_MODE_OWN);
    give_slice(&r);
    assert_no_job(&r);
    must_give(&r, BEHIND, 2, key(0), 1, 1);
    assert_no_job(&r);
    assert_int_equal(r.sent_count, 0);
    must_give(&r, BEFORE, 2, key(0), 1, 1);
    assert_int_equal(r.sent_count, 1);
    assert_int_equal(rt_message_header(&r.sent[0].message)->type, RT_MESSAGE_PUSH_ROW);
    assert_int_equal(ew_executor_next_job(r.executor, &job), RT_OK);
    assert_int_equal(ew_executor_trained(r.executor, (float[2 * DIM]){0}, true, &done, &error),
                     RT_OK);
    assert_int_equal(done.update_push, 1);
    assert_int_equal(ew_executor_get_statistics(r.executor).stale_reads, 0);
    teardown(&r);
}

// As many slices as may be outstanding go on without the sum of one before them, and no more.
static void a_sum_is_not_left_behind(void **state)
{
    (void)state;
    rig r;
    sum_a_row(&r);
    for (uint32_t t = 2; t < 5; t++) {
        train(&r, NULL);
        begin(&r);
        add_row(&r, 1, t, DP_MODE_OWN);
        add_row(&r, 1 + t, 0, DP_MODE_OWN);
        add_op(&r, DP_OP_INIT, key(t), 1 + t, 0);
        give_slice(&r);
    }
    assert_no_job(&r); // slice 5: three behind the one whose sum is open
    must_give(&r, BEHIND, 2, key(0), 1, 1);
    must_give(&r, BEFORE, 2, key(0), 1, 1);
    train(&r, NULL);
    teardown(&r);
}

static void more_slices_are_refused(void **state)
{
    (void)state;
    rig r;
    const uint64_t keys[] = {key(0), key(1)};
    setup(&r, 3, 4, 4096);
    init_slice(&r, keys, 2);
    for (uint32_t t = 2; t < 5; t++) {
        begin(&r);
        add_row(&r, 0, t - 1, DP_MODE_OWN);
        add_row(&r, 1, t - 1, DP_MODE_OWN);
        if (t < 4)
            give_slice(&r);
    }
    refuse_slice(&r, 4, "slice 4 came, but slice 1 is not done: more than 3 outstanding");
    teardown(&r);
}

// A batch that does not count: the version, and no step.
static void a_bad_batch(void **state)
{
    (void)state;
    rig r;
    ew_job job;
    rt_error error;
    const float own[2 * DIM] = {1, 2};
    for (uint32_t agree = 0; agree < 2; agree++) {
        float before[DIM + STATE];
        const rt_wire_grad head = {key(0), ALL, 1, agree ? RT_WIRE_NO_STEP : RT_WIRE_STEP};
        rt_message first = gradient_message(2, head, DIM, 1);
        rt_message last = gradient_message(2, head, DIM, 1);
        sum_a_row(&r);
        memcpy(before, row_at(&r, 0), sizeof before);
        assert_int_equal(give(&r, rt_peer(RT_ROLE_WORKER, BEFORE), &first, &error), RT_OK);
        assert_int_equal(ew_executor_next_job(r.executor, &job), RT_OK);
        assert_int_equal(ew_executor_trained(r.executor, own, false, NULL, &error), RT_OK);
        const rt_status status = give(&r, rt_peer(RT_ROLE_WORKER, BEHIND), &last, &error);
        assert_int_equal(status, agree ? RT_OK : RT_WIRE);
        if (!agree)
            assert_non_null(strstr(error.text, "do not agree whether the iteration counts"));
        assert_memory_equal(row_at(&r, 0), before, sizeof before);
        teardown(&r);
    }
    sum_a_row(&r);
    must_give(&r, BEFORE, 2, key(0), 1, 1);
    must_give(&r, BEHIND, 2, key(0), 1, 1);
    assert_int_equal(ew_executor_next_job(r.executor, &job), RT_OK);
    assert_int_equal(ew_executor_trained(r.executor, own, false, NULL, &error), RT_WIRE);
    teardown(&r);
}

// ---- lies ------------------------------------------------------------------------------------

static void refuse(uint32_t worker, rt_message message, const char *words)
{
    rig r;
    sum_a_row(&r);
    must_refuse(&r, rt_peer(RT_ROLE_WORKER, worker), &message, words);
    teardown(&r);
}

static void lies_are_named(void **state)
{
    (void)state;
    const rt_wire_grad right = {key(0), ALL, 1, RT_WIRE_STEP};
    rt_wire_grad wrong = right;
    refuse(2, gradient_message(2, right, DIM, 1), "worker 2 sent a gradient of key");
    refuse(BEHIND, gradient_message(1, right, DIM, 1), "gradients for slice 1, which is not open");
    refuse(BEHIND, gradient_message(0, right, DIM, 1), "gradients for slice 0, which is not open");
    refuse(BEHIND, gradient_message(6, right, DIM, 1), "worker 3 hands gradients over for slice 6");
    refuse(BEHIND, gradient_message(2, right, DIM - 1, 1), "worker 3: gradients are cut short");
    refuse(BEHIND, gradient_message(2, right, DIM + 1, 1), "bytes after the last gradient");
    refuse(1, gradient_message(2, right, DIM, 1), "GRADS from worker 1");
    refuse(4, gradient_message(2, right, DIM, 1), "GRADS from worker 4");
    wrong.key = key(1); // which this worker steps alone
    refuse(BEHIND, gradient_message(2, wrong, DIM, 1), "which slice 2 does not sum from it");
    wrong = right;
    wrong.mask = ALL | 4;
    refuse(BEHIND, gradient_message(2, wrong, DIM, 1), "for workers f at version 1");
    wrong = right;
    wrong.base = 2;
    refuse(BEHIND, gradient_message(2, wrong, DIM, 1), "at version 2 (step 0), expected b at 1");
    wrong = right;
    wrong.step = 2;
    refuse(BEHIND, gradient_message(2, wrong, DIM, 1), "(step 2)");
    rt_message handed = gradient_message(2, right, DIM, 1);
    rt_message_header(&handed)->type = RT_MESSAGE_HANDED; // dispatch.hand_over is off
    refuse(BEHIND, handed, "HANDED from worker 3");
}

static void a_gradient_comes_once(void **state)
{
    (void)state;
    rig r;
    const rt_wire_grad head = {key(0), ALL, 1, RT_WIRE_STEP};
    rt_message again = gradient_message(2, head, DIM, 1);
    sum_a_row(&r);
    must_give(&r, BEHIND, 2, key(0), 1, 1);
    must_refuse(&r, rt_peer(RT_ROLE_WORKER, BEHIND), &again, "which slice 2 does not sum from it");
    teardown(&r);
}

// Of one worker, for one slice: as many as there are slots.
static void what_waits_is_bounded(void **state)
{
    (void)state;
    rig r;
    const rt_wire_grad head = {key(0), ALL, 1, RT_WIRE_STEP};
    rt_message more = gradient_message(3, head, DIM, 1);
    sum_a_row(&r);
    for (uint32_t i = 0; i < SLOTS; i++)
        must_give(&r, BEHIND, 3, key(i), 1, 1);
    must_refuse(&r, rt_peer(RT_ROLE_WORKER, BEHIND), &more,
                "worker 3 hands over 1 gradients for slice 3");
    teardown(&r);
}

// The slot has the row that the slice names, or it is the coordinator who lies.
static void a_sum_needs_its_row(void **state)
{
    (void)state;
    rig r;
    ew_job job;
    rt_error error;
    const uint64_t keys[] = {key(0), key(1)};
    setup(&r, 3, 4, 4096);
    init_slice(&r, keys, 2);
    train(&r, NULL);
    begin(&r);
    add_summed(&r, key(2), 0, 1);
    add_row(&r, 1, 1, DP_MODE_OWN);
    give_slice(&r);
    assert_int_equal(ew_executor_next_job(r.executor, &job), RT_OK);
    assert_int_equal(ew_executor_trained(r.executor, (float[2 * DIM]){0}, true, NULL, &error),
                     RT_WIRE);
    assert_non_null(strstr(error.text, "in slot 0, which does not have it"));
    teardown(&r);
}

static void gradients_of_another_epoch_are_dropped(void **state)
{
    (void)state;
    rig r;
    rt_error error;
    const rt_wire_grad head = {key(0), ALL, 1, RT_WIRE_STEP};
    rt_message old = gradient_message(2, head, DIM, 1);
    sum_a_row(&r);
    rt_message_header(&old)->epoch = 9;
    assert_int_equal(give(&r, rt_peer(RT_ROLE_WORKER, BEHIND), &old, &error), RT_OK);
    must_give(&r, BEHIND, 2, key(0), 1, 1); // the first that counts
    teardown(&r);                           // with one that is still awaited: a leak otherwise
}

TEST_MAIN(TEST(the_order_is_that_of_workers), TEST(every_row_has_its_own_trainers),
          TEST(a_gradient_goes_to_who_sums), TEST(gradients_may_come_before_their_slice),
          TEST(what_follows_waits), TEST(a_sum_is_not_left_behind), TEST(more_slices_are_refused),
          TEST(a_bad_batch), TEST(lies_are_named), TEST(a_gradient_comes_once),
          TEST(what_waits_is_bounded), TEST(a_sum_needs_its_row),
          TEST(gradients_of_another_epoch_are_dropped))
