// An executor alone, against slices and rows made by hand: legal ones in odd orders, and wrong
// ones.
#include "tests/support/test.h"

#include <stdlib.h>
#include <string.h>

#include "edge_worker/ew_executor.h"
#include "runtime/rt_hash.h"

#define DIM 2u
#define STATE 2u // adagrad
#define FIELDS 2u
#define SLOTS 8u
#define SHARDS 2u
#define SENT_MAX 64u
#define COORDINATOR rt_peer(RT_ROLE_COORDINATOR, 0)

typedef struct {
    uint32_t shard;
    rt_message message;
} sent;

typedef struct {
    ew_executor *executor;
    ew_host_rows rows;
    dp_slice_limits limits;
    sent sent[SENT_MAX];
    uint32_t sent_count;
    rt_status answer; // of send
    dp_plan plan;     // of the next slice
    uint64_t sequence;
} rig;

static rt_status take(void *context, uint32_t shard, rt_message *message)
{
    rig *r = context;
    if (r->answer)
        return r->answer;
    assert_true(r->sent_count < SENT_MAX);
    r->sent[r->sent_count++] = (sent){shard, *message};
    *message = (rt_message){0};
    return RT_OK;
}

static void forget_sent(rig *r)
{
    for (uint32_t i = 0; i < r->sent_count; i++)
        rt_message_release(&r->sent[i].message);
    r->sent_count = 0;
}

static void setup_as(rig *r, uint32_t slices, uint32_t credits, uint32_t message_bytes,
                     bool one_at_a_time)
{
    rt_optimizer_config optimizer = {.kind = RT_OPTIMIZER_ADAGRAD,
                                     .learning_rate = 0.5f,
                                     .epsilon = 1e-6f,
                                     .initial_accumulator = 1};
    *r = (rig){.limits = {.dense_count = 0,
                          .field_count = FIELDS,
                          .worker_count = 4,
                          .sample_count_max = 4,
                          .lookup_count_max = 4 * FIELDS,
                          .slot_count = SLOTS}};
    assert_int_equal(ew_host_rows_init(&r->rows, SLOTS, DIM, &optimizer, 7, 0.1f), RT_OK);
    ew_executor_config config = {.rank = 1,
                                 .shard_count = SHARDS,
                                 .epoch = 0,
                                 .slice_count_max = slices,
                                 .push_credits = credits,
                                 .message_bytes = message_bytes,
                                 .one_at_a_time = one_at_a_time,
                                 .limits = r->limits,
                                 .values = DIM,
                                 .state = STATE,
                                 .rows = &ew_host_rows_ops,
                                 .rows_context = &r->rows,
                                 .send = take,
                                 .send_context = r};
    assert_int_equal(ew_executor_create(&config, &r->executor), RT_OK);
    assert_int_equal(dp_plan_init(&r->plan, 1), RT_OK);
    assert_int_equal(dp_slice_reserve(&r->plan.slices[0], 4, 4 * FIELDS), RT_OK);
}

static void setup(rig *r, uint32_t slices, uint32_t credits, uint32_t message_bytes)
{
    setup_as(r, slices, credits, message_bytes, false);
}

static void teardown(rig *r)
{
    forget_sent(r);
    ew_executor_destroy(r->executor);
    ew_host_rows_fini(&r->rows);
    dp_plan_fini(&r->plan);
}

// The n-th key of field f that belongs to a shard.
static uint64_t key_of(uint32_t field, uint32_t shard, uint32_t n)
{
    for (uint64_t id = 0;; id++) {
        if (rt_key_shard(rt_key(field, id), SHARDS) == shard && n-- == 0)
            return rt_key(field, id);
    }
}

// ---- slices ----------------------------------------------------------------------------------

static dp_slice *begin(rig *r)
{
    dp_plan_clear(&r->plan);
    r->plan.iteration = (uint32_t)r->sequence + 1;
    r->plan.sample_count = 4;
    r->plan.dense_chunk_floats = 1;
    return &r->plan.slices[0];
}

// One sample per pair of rows: slots and the versions that they must have.
static void add_row(rig *r, uint32_t slot, uint32_t version, dp_mode mode)
{
    dp_slice *slice = &r->plan.slices[0];
    slice->rows[slice->row_count] = (dp_row){slot, version, mode};
    slice->lookup_rows[slice->lookup_count++] = slice->row_count++;
    slice->sample_count = slice->lookup_count / FIELDS;
}

static dp_op *add_op(rig *r, dp_op_kind kind, uint64_t key, uint32_t slot, uint32_t version)
{
    dp_slice *slice = &r->plan.slices[0];
    bool release = kind == DP_OP_PUSH_ROW || kind == DP_OP_DROP;
    bool after = kind == DP_OP_PUSH_GRAD || kind == DP_OP_KEEP;
    dp_op *op = dp_ops_add(release ? &slice->release : after ? &slice->after : &slice->fill, kind);
    assert_non_null(op);
    op->key = key;
    op->slot = slot;
    op->version = version;
    op->flags = kind == DP_OP_PULL ? DP_OP_STATE : 0;
    op->mask = 3;
    return op;
}

static rt_message slice_message(rig *r, uint64_t sequence)
{
    rt_message message;
    rt_batch batch;
    const uint64_t keys[] = {rt_key(0, 1), rt_key(1, 1)};
    rt_batch_init(&batch, 0);
    for (uint32_t i = 0; i < r->plan.slices[0].sample_count; i++) {
        r->plan.slices[0].samples[i] = i;
        assert_int_equal(rt_batch_append(&batch, 1, NULL, keys, FIELDS), RT_OK);
    }
    assert_int_equal(
        dp_slice_encode(&r->plan, 0, &batch, &r->limits, COORDINATOR, sequence, &message), RT_OK);
    rt_batch_fini(&batch);
    return message;
}

static rt_status give(rig *r, uint32_t peer, rt_message *message, rt_error *error)
{
    *error = (rt_error){0};
    rt_status status = ew_executor_receive(r->executor, peer, message, error);
    assert_null(message->data); // taken in every case
    assert_int_equal(error->status, status);
    return status;
}

static void give_slice(rig *r)
{
    rt_error error;
    rt_message message = slice_message(r, ++r->sequence);
    if (give(r, COORDINATOR, &message, &error))
        fail_msg("%s", error.text);
}

static void refuse_slice(rig *r, uint64_t sequence, const char *text)
{
    rt_error error;
    rt_message message = slice_message(r, sequence);
    assert_int_equal(give(r, COORDINATOR, &message, &error), RT_WIRE);
    if (!strstr(error.text, text))
        fail_msg("\"%s\" does not say \"%s\"", error.text, text);
}

static void init_slice(rig *r, const uint64_t *keys, uint32_t count)
{
    begin(r);
    for (uint32_t i = 0; i < count; i++) {
        add_op(r, DP_OP_INIT, keys[i], i, 0);
        add_row(r, i, 0, DP_MODE_OWN);
    }
    give_slice(r);
}

static void train(rig *r, const float *gradients)
{
    static const float zeros[4 * FIELDS * DIM];
    ew_job job;
    rt_error error = {0};
    assert_int_equal(ew_executor_next_job(r->executor, &job), RT_OK);
    assert_int_equal(ew_executor_next_job(r->executor, &job), RT_AGAIN); // one at a time
    if (ew_executor_trained(r->executor, gradients ? gradients : zeros, true, NULL, &error))
        fail_msg("%s", error.text);
}

static void assert_no_job(rig *r)
{
    ew_job job;
    assert_int_equal(ew_executor_next_job(r->executor, &job), RT_AGAIN);
}

// ---- rows ------------------------------------------------------------------------------------

// A ROWS or SUM_ROWS message with one record, the request's tag, and floats from first on.
static rt_message rows_message(rt_message_type type, uint64_t iteration, rt_wire_row head,
                               uint32_t floats, float first)
{
    rt_message message;
    uint32_t bytes = (uint32_t)sizeof head + floats * (uint32_t)sizeof(float);
    assert_int_equal(rt_message_create(&message, type, rt_peer(RT_ROLE_PS, 0), iteration, 1, bytes),
                     RT_OK);
    memcpy(rt_message_payload(&message), &head, sizeof head);
    for (uint32_t i = 0; i < floats; i++) {
        float value = first + (float)i;
        memcpy(rt_message_payload(&message) + sizeof head + i * sizeof value, &value, sizeof value);
    }
    return message;
}

// The i-th pull of a request message.
static rt_wire_pull pull_at(const rig *r, uint32_t message, uint32_t i)
{
    rt_wire_pull pull;
    const rt_message *request = &r->sent[message].message;
    assert_true(i < rt_message_header(request)->count);
    memcpy(&pull, rt_message_payload(request) + i * sizeof pull, sizeof pull);
    return pull;
}

static rt_status answer(rig *r, uint32_t shard, const rt_wire_pull *pull, uint32_t version,
                        uint32_t floats, float first, rt_error *error)
{
    rt_wire_row head = {pull->key, version, pull->tag};
    rt_message message = rows_message(RT_MESSAGE_ROWS, r->sequence, head, floats, first);
    return give(r, rt_peer(RT_ROLE_PS, shard), &message, error);
}

static const float *row_at(const rig *r, uint32_t slot)
{
    return r->rows.slab + (size_t)slot * r->rows.stride;
}

// A slice that pulls key a (shard 0) with state into slot 0 and b (shard 1) into slot 1.
static void pull_slice(rig *r)
{
    begin(r);
    add_op(r, DP_OP_PULL, key_of(0, 0, 0), 0, 0);
    add_op(r, DP_OP_PULL, key_of(1, 1, 0), 1, 0)->flags = 0;
    add_row(r, 0, 0, DP_MODE_OWN);
    add_row(r, 1, 0, DP_MODE_GRAD);
    add_op(r, DP_OP_PUSH_GRAD, key_of(1, 1, 0), 1, 1);
    give_slice(r);
    assert_int_equal(r->sent_count, 2);
}

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
    r.plan.iteration = 0; // a flush
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

static void begin_next(rig *r)
{
    rt_error error = {0};
    if (ew_executor_begin(r->executor, &error))
        fail_msg("%s", error.text);
}

// Slice 2 could push, and ask for its row, while slice 1 trains; slice 3 needs nothing at all. One
// at a time, each waits for the end of the one before, confirmation of its push included.
static void slices_one_at_a_time(void **state)
{
    (void)state;
    rig r;
    rt_error error;
    rt_message confirm;
    const uint64_t keys[] = {key_of(0, 0, 0), key_of(1, 0, 0)};
    setup_as(&r, 3, 4, 4096, true);
    assert_int_equal(ew_executor_waits_for(r.executor), EW_WAIT_PLAN);
    init_slice(&r, keys, 2);
    assert_no_job(&r);
    begin_next(&r);
    begin(&r);
    add_op(&r, DP_OP_PUSH_ROW, keys[0], 0, 1)->reason = DP_REASON_EVICT;
    add_op(&r, DP_OP_PULL, key_of(0, 1, 5), 0, 0);
    add_row(&r, 0, 0, DP_MODE_OWN);
    add_row(&r, 1, 1, DP_MODE_OWN);
    give_slice(&r);
    begin_next(&r); // slice 1 is not trained
    assert_int_equal(r.sent_count, 0);
    train(&r, NULL);
    assert_int_equal(r.sent_count, 0);
    begin_next(&r);
    assert_int_equal(r.sent_count, 2);
    assert_int_equal(ew_executor_waits_for(r.executor), EW_WAIT_PUSH);
    rt_wire_pull pull = pull_at(&r, 1, 0);
    assert_int_equal(answer(&r, 1, &pull, 0, DIM + STATE, 50, &error), RT_OK);
    begin(&r);
    add_row(&r, 0, 2, DP_MODE_OWN);
    add_row(&r, 1, 2, DP_MODE_OWN);
    give_slice(&r);
    train(&r, NULL); // slice 2
    begin_next(&r);
    assert_no_job(&r); // its push is not confirmed
    assert_int_equal(ew_executor_waits_for(r.executor), EW_WAIT_PUSH);
    assert_int_equal(
        rt_message_create(&confirm, RT_MESSAGE_PUSHED, rt_peer(RT_ROLE_PS, 0), 2, 0, 0), RT_OK);
    assert_int_equal(give(&r, rt_peer(RT_ROLE_PS, 0), &confirm, &error), RT_OK);
    assert_int_equal(ew_executor_waits_for(r.executor), EW_WAIT_PULL);
    assert_no_job(&r);
    begin_next(&r);
    train(&r, NULL);
    assert_int_equal(ew_executor_get_statistics(r.executor).stale_reads, 0);
    assert_true(ew_executor_idle(r.executor));
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

// ---- the keeper ------------------------------------------------------------------------------

// Row 0 is trained by several, kept here; then the others' sum comes, and it steps with all.
static void a_keeper_steps_with_the_sum(void **state)
{
    (void)state;
    rig r;
    rt_error error;
    const uint64_t keys[] = {key_of(0, 0, 0), key_of(1, 0, 0)};
    const float gradients[] = {1, -2, 0, 0};
    setup(&r, 3, 4, 4096);
    begin(&r);
    add_op(&r, DP_OP_INIT, keys[0], 0, 0);
    add_op(&r, DP_OP_INIT, keys[1], 1, 0);
    add_row(&r, 0, 0, DP_MODE_KEEP);
    add_row(&r, 1, 0, DP_MODE_OWN);
    add_op(&r, DP_OP_KEEP, keys[0], 0, 1)->keeper = 1;
    give_slice(&r);
    begin(&r);
    add_op(&r, DP_OP_PULL_SUM, keys[0], 0, 1);
    add_row(&r, 0, 1, DP_MODE_OWN);
    add_row(&r, 1, 1, DP_MODE_OWN);
    give_slice(&r);
    assert_int_equal(r.sent_count, 1);
    assert_int_equal(rt_message_header(&r.sent[0].message)->type, RT_MESSAGE_PULL_SUM);
    rt_wire_pull pull = pull_at(&r, 0, 0);
    assert_int_equal(pull.version, 1);
    float want[DIM + STATE], sum[DIM] = {1 + 7, -2 + 8};
    memcpy(want, row_at(&r, 0), sizeof want);
    rt_wire_row head = {keys[0], 1, pull.tag};
    rt_message rows = rows_message(RT_MESSAGE_SUM_ROWS, 2, head, DIM, 7); // before training 1
    assert_int_equal(give(&r, rt_peer(RT_ROLE_PS, 0), &rows, &error), RT_OK);
    assert_memory_equal(row_at(&r, 0), want, sizeof want);
    train(&r, gradients);
    rt_optimizer_step(&r.rows.optimizer, DIM, 1, want, want + DIM, sum);
    assert_memory_equal(row_at(&r, 0), want, sizeof want);
    train(&r, NULL);
    assert_int_equal(ew_executor_get_statistics(r.executor).stale_reads, 0);
    assert_int_equal(ew_executor_get_statistics(r.executor).done.pull_sum, 1);
    teardown(&r);
}

static void a_sum_needs_a_kept_gradient(void **state)
{
    (void)state;
    rig r;
    const uint64_t keys[] = {key_of(0, 0, 0), key_of(1, 0, 0)};
    setup(&r, 3, 4, 4096);
    init_slice(&r, keys, 2);
    train(&r, NULL);
    begin(&r);
    add_op(&r, DP_OP_PULL_SUM, keys[0], 0, 1);
    refuse_slice(&r, 2, "keeps no gradient");
    teardown(&r);
}

static void a_gradient_is_kept_once(void **state)
{
    (void)state;
    rig r;
    rt_error error = {0};
    const float gradients[8] = {0};
    const uint64_t keys[] = {key_of(0, 0, 0), key_of(1, 0, 0)};
    setup(&r, 3, 4, 4096);
    for (uint32_t t = 0; t < 2; t++) {
        ew_job job;
        begin(&r);
        if (t == 0)
            add_op(&r, DP_OP_INIT, keys[0], 0, 0);
        add_op(&r, DP_OP_INIT, keys[1], 1, 0);
        add_row(&r, 0, 0, DP_MODE_KEEP);
        add_row(&r, 1, 0, DP_MODE_OWN);
        add_op(&r, DP_OP_KEEP, keys[0], 0, t + 1)->keeper = 1;
        give_slice(&r);
        assert_int_equal(ew_executor_next_job(r.executor, &job), RT_OK);
        assert_int_equal(ew_executor_trained(r.executor, gradients, true, NULL, &error),
                         t == 0 ? RT_OK : RT_WIRE);
    }
    teardown(&r);
}

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
    refuse_rows(RT_MESSAGE_SUM_ROWS, 0, 1, good, DIM);     // of the other kind
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
                                            RT_MESSAGE_HEARTBEAT, RT_MESSAGE_REPORT};
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

TEST_MAIN(TEST(slices_come_in_order), TEST(slices_outstanding_are_bounded),
          TEST(slices_come_from_the_coordinator), TEST(a_row_is_trained_once),
          TEST(a_push_has_the_version_of_its_slot), TEST(stale_reads_are_counted),
          TEST(requests_go_out_with_the_slice), TEST(requests_are_split),
          TEST(an_early_row_waits_for_its_slot), TEST(pushes_wait_for_credits),
          TEST(slices_one_at_a_time), TEST(a_full_transport_gets_it_again),
          TEST(a_broken_transport_is_named), TEST(a_keeper_steps_with_the_sum),
          TEST(a_sum_needs_a_kept_gradient), TEST(a_gradient_is_kept_once),
          TEST(rows_nobody_asked_for), TEST(rows_of_a_wrong_version),
          TEST(rows_cut_short_or_too_long), TEST(more_records_than_bytes), TEST(a_row_comes_once),
          TEST(strangers_and_strange_messages), TEST(messages_of_another_epoch))
