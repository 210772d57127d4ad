// An executor alone: what it sends of its rows, record by record, and what it counts of that.
#define SLOTS 2000u
#include "tests/support/executor_case.h"

#include "edge_worker/executor/ew_executor_parts.h"

#define EPOCH 3u

static const rt_wire_header *sent_as(const rig *r, uint32_t i, uint32_t shard, rt_message_type type,
                                     uint64_t iteration, uint32_t count)
{
    assert_true(i < r->sent_count);
    const rt_wire_header *header = rt_message_header(&r->sent[i].message);
    assert_int_equal(r->sent[i].shard, shard);
    assert_string_equal(rt_message_type_name(header->type), rt_message_type_name(type));
    assert_int_equal(header->iteration, iteration);
    assert_int_equal(header->count, count);
    assert_int_equal(header->sender, rt_peer(RT_ROLE_WORKER, 1));
    return header;
}

static const uint8_t *payload_of(const rig *r, uint32_t i)
{
    return rt_message_payload(&r->sent[i].message);
}

// ---- gradients -------------------------------------------------------------------------------

// Rows 1, 3 and 4 of 6 go to shard 0, row 5 to shard 1; each record has the gradient of its row.
static void push_gradients(bool apply)
{
    enum { ROWS = 6 };
    static const uint32_t shards[ROWS] = {0, 0, 1, 0, 0, 1}, order[] = {1, 3, 4};
    rig r;
    ew_job job;
    rt_counts done;
    rt_error error = {0};
    uint64_t keys[ROWS];
    float gradients[ROWS * DIM];
    setup(&r, 2, 4, 4096);
    begin(&r);
    for (uint32_t i = 0; i < ROWS; i++) {
        const bool pushed = i == 1 || i > 2;
        keys[i] = key_of(i % FIELDS, shards[i], i);
        add_op(&r, DP_OP_INIT, keys[i], 10 + i, 0);
        add_row(&r, 10 + i, 0, pushed ? DP_MODE_GRAD : DP_MODE_OWN);
        if (!pushed)
            continue;
        dp_op *op = add_op(&r, DP_OP_PUSH_GRAD, keys[i], 10 + i, 1);
        op->mask = 3 + 8 * (i % 2);
        op->base = 0;
    }
    give_slice(&r);
    for (uint32_t i = 0; i < ROWS * DIM; i++)
        gradients[i] = 100 + (float)i;
    assert_int_equal(ew_executor_next_job(r.executor, &job), RT_OK);
    assert_int_equal(ew_executor_trained(r.executor, gradients, apply, &done, &error), RT_OK);
    assert_int_equal(r.sent_count, 2);
    const size_t bytes = sizeof(rt_wire_grad) + DIM * sizeof(float);
    assert_int_equal(sent_as(&r, 0, 0, RT_MESSAGE_PUSH_GRAD, 1, 3)->payload_bytes, 3 * bytes);
    assert_int_equal(sent_as(&r, 1, 1, RT_MESSAGE_PUSH_GRAD, 1, 1)->payload_bytes, bytes);
    for (uint32_t k = 0; k < 4; k++) {
        const uint32_t row = k < 3 ? order[k] : 5;
        const uint8_t *record = k < 3 ? payload_of(&r, 0) + k * bytes : payload_of(&r, 1);
        rt_wire_grad head;
        memcpy(&head, record, sizeof head);
        assert_true(head.key == keys[row] && head.base == 0);
        assert_int_equal(head.mask, 3 + 8 * (row % 2));
        assert_int_equal(head.step, apply ? RT_WIRE_STEP : RT_WIRE_NO_STEP);
        assert_memory_equal(record + sizeof head, gradients + row * DIM, DIM * sizeof(float));
    }
    assert_true(done.grad_push == 4 && done.first_touch == 6 && done.miss_pull == 0);
    begin(&r);
    for (uint32_t i = 0; i < ROWS; i++)
        add_row(&r, 10 + i, i == 0 || i == 2 ? 1 : 0, DP_MODE_OWN);
    give_slice(&r);
    assert_int_equal(ew_executor_get_statistics(r.executor).stale_reads, 4); // those are gone
    teardown(&r);
}

static void gradients_go_out_with_their_rows(void **state)
{
    (void)state;
    push_gradients(true);
    push_gradients(false);
}

// ---- rows ------------------------------------------------------------------------------------

// By reason, and by whether the copy stays.
static void pushes_are_counted_by_reason(void **state)
{
    (void)state;
    static const dp_reason reasons[] = {DP_REASON_EVICT, DP_REASON_UPDATE, DP_REASON_FLUSH,
                                        DP_REASON_FLUSH, DP_REASON_FLUSH,  DP_REASON_UPDATE};
    enum { ROWS = 6 };
    rig r;
    uint64_t keys[ROWS];
    rt_counts done;
    rt_error error = {0};
    ew_job job;
    static const float zeros[ROWS * DIM];
    setup(&r, 3, 4, 4096);
    for (uint32_t i = 0; i < ROWS; i++)
        keys[i] = key_of(i % FIELDS, 1, i);
    init_slice(&r, keys, ROWS);
    train(&r, NULL);
    begin(&r);
    for (uint32_t i = 0; i < ROWS; i++) {
        add_op(&r, DP_OP_PUSH_ROW, keys[i], i, 1)->reason = (uint8_t)reasons[i];
        add_row(&r, i, 1, DP_MODE_OWN);
    }
    float rows[ROWS][DIM + STATE];
    for (uint32_t i = 0; i < ROWS; i++)
        memcpy(rows[i], row_at(&r, i), sizeof rows[i]);
    give_slice(&r);
    assert_int_equal(ew_executor_get_statistics(r.executor).stale_reads, 1); // the evicted one
    const size_t bytes = sizeof(rt_wire_row) + sizeof rows[0];
    assert_int_equal(sent_as(&r, 0, 1, RT_MESSAGE_PUSH_ROW, 2, ROWS)->payload_bytes, ROWS * bytes);
    for (uint32_t i = 0; i < ROWS; i++) {
        rt_wire_row head;
        memcpy(&head, payload_of(&r, 0) + i * bytes, sizeof head);
        assert_true(head.key == keys[i] && head.version == 1 && head.tag == reasons[i]);
        assert_memory_equal(payload_of(&r, 0) + i * bytes + sizeof head, rows[i], sizeof rows[i]);
    }
    assert_int_equal(ew_executor_next_job(r.executor, &job), RT_OK);
    assert_int_equal(ew_executor_trained(r.executor, zeros, true, &done, &error), RT_OK);
    assert_true(done.evict_push == 1 && done.update_push == 2 && done.flush_push == 3);
    const ew_executor_statistics all = ew_executor_get_statistics(r.executor);
    assert_true(all.done.first_touch == ROWS && all.done.flush_push == 3 && all.rows_early == 0);
    teardown(&r);
}

// Where rows travel rounded fewer of them are read at once: all go out, in order, each with what
// has changed of it.
static void more_changes_than_a_batch(void **state)
{
    (void)state;
    static const uint32_t counts[] = {EW_BATCH_CODED - 1, EW_BATCH_CODED, EW_BATCH_CODED + 1, 1500};
    for (uint32_t c = 0; c < RT_COUNT_OF(counts); c++) {
        const uint32_t count = counts[c];
        rig r;
        ew_codes codes;
        uint64_t *keys = rt_alloc(count, sizeof *keys);
        uint32_t found = 0, pushed = 0;
        ew_executor_config config = config_of(&r, 2, 64, 300 * 32);
        config.epoch = EPOCH;
        config.codes = &codes;
        assert_int_equal(ew_codes_init(&codes, RT_CODING_INT8, SLOTS, DIM, 7, 0.1f), RT_OK);
        create(&r, &config);
        for (uint64_t id = 0; found < count; id++)
            if (rt_key_shard(rt_key(0, id), SHARDS) == 0)
                keys[found++] = rt_key(0, id);
        begin(&r);
        r.plan.iteration = r.plan.step = r.plan.sample_count = 0; // a flush
        r.plan.dense_chunk_floats = 0;
        for (uint32_t i = 0; i < count; i++)
            add_op(&r, DP_OP_INIT, keys[i], i, 0);
        rt_error error;
        rt_message message = slice_message(&r, ++r.sequence);
        rt_message_header(&message)->epoch = EPOCH;
        assert_int_equal(give(&r, COORDINATOR, &message, &error), RT_OK);
        for (uint32_t i = 0; i < count; i++)
            row_at(&r, i)[1] += (float)(i % 127); // a multiple of the scale
        begin(&r);
        r.plan.iteration = r.plan.step = r.plan.sample_count = 0;
        r.plan.dense_chunk_floats = 0;
        for (uint32_t i = 0; i < count; i++)
            add_op(&r, DP_OP_PUSH_ROW, keys[i], i, 0)->reason = DP_REASON_FLUSH;
        message = slice_message(&r, ++r.sequence);
        rt_message_header(&message)->epoch = EPOCH;
        assert_int_equal(give(&r, COORDINATOR, &message, &error), RT_OK);
        const size_t bytes = sizeof(rt_wire_change) + (2 + STATE) * sizeof(float);
        for (uint32_t m = 0; m < r.sent_count; m++) {
            const rt_wire_header *header = rt_message_header(&r.sent[m].message);
            assert_true(header->type == RT_MESSAGE_PUSH_CHANGE && header->epoch == EPOCH);
            assert_true(header->payload_bytes == header->count * bytes && header->count <= 300);
            for (uint32_t i = 0; i < header->count; i++, pushed++) {
                rt_wire_change head;
                float values[DIM];
                memcpy(&head, payload_of(&r, m) + i * bytes, sizeof head);
                rt_coding_unpack(RT_CODING_INT8, payload_of(&r, m) + i * bytes + sizeof head, DIM,
                                 values);
                assert_true(head.key == keys[pushed] && values[0] == 0);
                assert_true(values[1] > (float)(pushed % 127) - 0.01f &&
                            values[1] < (float)(pushed % 127) + 0.01f);
            }
        }
        assert_int_equal(pushed, count);
        assert_int_equal(ew_executor_get_statistics(r.executor).done.flush_push, count);
        teardown(&r);
        ew_codes_fini(&codes);
        rt_free(keys);
    }
}

// ---- rows that moved -------------------------------------------------------------------------

// Once all of the slice is carried out, each shard is told which of its rows it may forget, in
// messages that have room for two.
static void shards_are_told_what_to_forget(void **state)
{
    (void)state;
    static const uint32_t homes[] = {1, 0, 1, 1, 0, 1, 1};
    static const uint32_t shards[] = {0, 1, 1, 1}, counts[] = {2, 2, 2, 1};
    const uint64_t keys[] = {key_of(0, 0, 0), key_of(1, 0, 0)};
    rig r;
    uint32_t at[2] = {0, 0};
    ew_executor_config config = config_of(&r, 2, 4, 2 * sizeof(rt_wire_pull) + 1);
    config.limits.shard_count = SHARDS; // homes are planned
    create(&r, &config);
    begin(&r);
    for (uint32_t i = 0; i < 2; i++) {
        dp_op_set_shard(add_op(&r, DP_OP_INIT, keys[i], i, 0), 0);
        add_row(&r, i, 0, DP_MODE_OWN);
    }
    for (uint32_t i = 0; i < RT_COUNT_OF(homes); i++)
        dp_op_set_shard(add_op(&r, DP_OP_FORGET, 1000 + i, 0, 20 + i), homes[i]);
    give_slice(&r);
    assert_int_equal(r.sent_count, 0);
    train(&r, NULL);
    assert_int_equal(r.sent_count, 4);
    for (uint32_t m = 0; m < 4; m++) {
        const uint32_t shard = shards[m];
        const rt_wire_header *header = sent_as(&r, m, shard, RT_MESSAGE_FORGET, 1, counts[m]);
        assert_int_equal(header->payload_bytes, counts[m] * sizeof(rt_wire_pull));
        for (uint32_t i = 0; i < counts[m]; i++) {
            const rt_wire_pull one = pull_at(&r, m, i);
            while (homes[at[shard]] != shard)
                at[shard]++;
            assert_true(one.key == 1000 + at[shard] && one.version == 20 + at[shard]);
            assert_int_equal(one.tag, 0);
            at[shard]++;
        }
    }
    assert_false(ew_executor_idle(r.executor)); // they are pushes, to be confirmed
    begin(&r);
    add_row(&r, 0, 1, DP_MODE_OWN);
    add_row(&r, 1, 1, DP_MODE_OWN);
    give_slice(&r);
    train(&r, NULL);
    assert_int_equal(r.sent_count, 4); // this one has none
    teardown(&r);
}

// Where homes are planned, operations go to the shard that the slice names, whatever the hash says.
static void operations_go_where_the_slice_says(void **state)
{
    (void)state;
    const uint64_t own[] = {key_of(0, 0, 0), key_of(1, 0, 0)}, pulled = key_of(0, 0, 5);
    rig r;
    rt_error error;
    ew_executor_config config = config_of(&r, 3, 4, 4096);
    config.limits.shard_count = SHARDS;
    create(&r, &config);
    begin(&r);
    for (uint32_t i = 0; i < 2; i++) {
        dp_op_set_shard(add_op(&r, DP_OP_INIT, own[i], i, 0), 1);
        add_row(&r, i, 0, i ? DP_MODE_GRAD : DP_MODE_OWN);
    }
    dp_op_set_shard(add_op(&r, DP_OP_PUSH_GRAD, own[1], 1, 1), 1);
    give_slice(&r);
    train(&r, NULL);
    (void)sent_as(&r, 0, 1, RT_MESSAGE_PUSH_GRAD, 1, 1);
    begin(&r);
    dp_op_set_shard(add_op(&r, DP_OP_PUSH_ROW, own[0], 0, 1), 1);
    dp_op_set_shard(add_op(&r, DP_OP_PULL, pulled, 2, 1), 1);
    give_slice(&r);
    (void)sent_as(&r, 1, 1, RT_MESSAGE_PULL, 2, 1);
    (void)sent_as(&r, 2, 1, RT_MESSAGE_PUSH_ROW, 2, 1);
    const rt_wire_pull pull = pull_at(&r, 1, 0);
    assert_int_equal(answer(&r, 0, &pull, 1, DIM + STATE, 4, &error), RT_WIRE); // not that one
    teardown(&r);
}

// Rows that are taken in on the way to another home: they come, go to the new one, and are trained.
static void rows_pass_through_to_a_new_home(void **state)
{
    (void)state;
    const uint64_t keys[] = {key_of(0, 0, 0), key_of(1, 0, 0), key_of(0, 0, 1)};
    rig r;
    rt_error error;
    ew_executor_config config = config_of(&r, 3, 4, 4096);
    config.limits.shard_count = SHARDS;
    create(&r, &config);
    begin(&r);
    dp_op_set_shard(add_op(&r, DP_OP_INIT, keys[2], 4, 0), 0);
    give_slice(&r);
    train(&r, NULL);
    begin(&r);
    dp_op_set_shard(add_op(&r, DP_OP_PUSH_ROW, keys[2], 4, 0), 0); // early
    for (uint32_t i = 0; i < 2; i++) {
        dp_op_set_shard(add_op(&r, DP_OP_PULL, keys[i], i, 5 + i), 0);
        add_row(&r, i, 5 + i, DP_MODE_OWN);
        dp_op *late = dp_ops_add(&r.plan.slices[0].after, DP_OP_PUSH_ROW);
        late->key = keys[i];
        late->slot = i;
        late->version = 5 + i;
        dp_op_set_shard(late, 1);
    }
    give_slice(&r);
    assert_int_equal(r.sent_count, 2);
    (void)sent_as(&r, 0, 0, RT_MESSAGE_PULL, 2, 2);
    (void)sent_as(&r, 1, 0, RT_MESSAGE_PUSH_ROW, 2, 1);
    for (uint32_t i = 0; i < 2; i++) {
        const rt_wire_pull pull = pull_at(&r, 0, i);
        assert_no_job(&r);
        assert_int_equal(answer(&r, 0, &pull, 5 + i, DIM + STATE, 10 * (float)(i + 1), &error),
                         RT_OK);
        (void)sent_as(&r, 2 + i, 1, RT_MESSAGE_PUSH_ROW, 2, 1);
        rt_wire_row head;
        float value;
        memcpy(&head, payload_of(&r, 2 + i), sizeof head);
        memcpy(&value, payload_of(&r, 2 + i) + sizeof head, sizeof value);
        assert_true(head.key == keys[i] && head.version == 5 + i);
        assert_true(value == 10 * (float)(i + 1));
    }
    train(&r, NULL);
    assert_int_equal(ew_executor_get_statistics(r.executor).stale_reads, 0);
    teardown(&r);
}

// ---- what comes next -------------------------------------------------------------------------

// Sizes of the next training, as soon as its slice is there; of a flush, which trains nothing,
// none.
static void what_is_trained_next_is_known(void **state)
{
    (void)state;
    const uint64_t keys[] = {key_of(0, 0, 0), key_of(1, 0, 0)};
    rig r;
    ew_job job;
    rt_error error = {0};
    static const float zeros[2 * DIM];
    setup(&r, 3, 4, 4096);
    assert_null(ew_executor_next_counts(r.executor));
    assert_int_equal(ew_executor_waits_for(r.executor), EW_WAIT_PLAN);
    begin(&r);
    add_op(&r, DP_OP_PULL, keys[0], 0, 1);
    add_op(&r, DP_OP_INIT, keys[1], 1, 0);
    add_row(&r, 0, 1, DP_MODE_OWN);
    add_row(&r, 1, 0, DP_MODE_OWN);
    give_slice(&r);
    const rt_wire_slice *counts = ew_executor_next_counts(r.executor);
    assert_non_null(counts);
    assert_true(counts->iteration == 1 && counts->row_count == 2);
    assert_int_equal(ew_executor_waits_for(r.executor), EW_WAIT_PULL);
    assert_no_job(&r);
    const rt_wire_pull pull = pull_at(&r, 0, 0);
    assert_int_equal(answer(&r, 0, &pull, 1, DIM + STATE, 3, &error), RT_OK);
    assert_int_equal(ew_executor_next_job(r.executor, &job), RT_OK);
    assert_non_null(ew_executor_next_counts(r.executor));
    assert_int_equal(ew_executor_trained(r.executor, zeros, true, NULL, &error), RT_OK);
    assert_null(ew_executor_next_counts(r.executor));
    assert_int_equal(ew_executor_waits_for(r.executor), EW_WAIT_PLAN);
    begin(&r);
    r.plan.iteration = r.plan.step = r.plan.sample_count = 0; // a flush, whose row cannot come
    r.plan.dense_chunk_floats = 0;
    add_op(&r, DP_OP_PULL, key_of(0, 0, 7), 5, 1);
    give_slice(&r);
    assert_null(ew_executor_next_counts(r.executor));
    assert_false(ew_executor_idle(r.executor)); // its row is awaited
    teardown(&r);
}

TEST_MAIN(TEST(rows_pass_through_to_a_new_home), TEST(what_is_trained_next_is_known),
          TEST(gradients_go_out_with_their_rows), TEST(pushes_are_counted_by_reason),
          TEST(more_changes_than_a_batch), TEST(shards_are_told_what_to_forget),
          TEST(operations_go_where_the_slice_says))
