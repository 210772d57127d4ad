// executor_case - an executor alone: slices and rows made by hand, its requests and pushes caught.
//
// Eight slots (or as many as the test says), two fields, two shards, Adagrad. Static: every test
// has its own copy.
#ifndef EXECUTOR_CASE_H
#define EXECUTOR_CASE_H

#include <string.h>

#include "edge_worker/executor/ew_executor.h"
#include "runtime/config/rt_optimizers.h"
#include "runtime/rt_hash.h"
#include "tests/support/test.h"

#ifndef DIM
#define DIM 2u
#endif
#define STATE DIM // adagrad
#define FIELDS 2u
#ifndef SLOTS
#define SLOTS 8u
#endif
#define SHARDS 2u
#ifndef HANDS // rows go from worker to worker
#define HANDS false
#endif
#ifndef SUMS // trainers sum gradients
#define SUMS false
#endif
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

static inline rt_status take(void *context, uint32_t shard, rt_message *message)
{
    rig *r = context;
    if (r->answer)
        return r->answer;
    assert_true(r->sent_count < SENT_MAX);
    r->sent[r->sent_count++] = (sent){shard, *message};
    *message = (rt_message){0};
    return RT_OK;
}

static inline void forget_sent(rig *r)
{
    for (uint32_t i = 0; i < r->sent_count; i++)
        rt_message_release(&r->sent[i].message);
    r->sent_count = 0;
}

// Of an executor of this rig, whose rows are ready.
static inline ew_executor_config config_of(rig *r, uint32_t slices, uint32_t credits,
                                           uint32_t message_bytes)
{
    rt_optimizer_config optimizer = {.kind = RT_OPTIMIZER_ADAGRAD,
                                     .learning_rate = 0.5f,
                                     .epsilon = 1e-6f,
                                     .initial_accumulator = 1};
    *r = (rig){.limits = {.dense_count = 0,
                          .field_count = FIELDS,
                          .worker_count = 4,
                          .rank = 1,
                          .hands = HANDS,
                          .sums = SUMS,
                          .batch_samples = 4,
                          .sample_count_max = 4,
                          .lookup_count_max = 4 * FIELDS,
                          .slot_count = SLOTS}};
    assert_int_equal(ew_host_rows_init(&r->rows, SLOTS, DIM, &optimizer, 7, 0.1f), RT_OK);
    return (ew_executor_config){.rank = 1,
                                .shard_count = SHARDS,
                                .epoch = 0,
                                .slice_count_max = slices,
                                .push_credits = credits,
                                .message_bytes = message_bytes,
                                .limits = r->limits,
                                .values = DIM,
                                .state = STATE,
                                .rows = &ew_host_rows_ops,
                                .rows_context = &r->rows,
                                .send = take,
                                .send_context = r};
}

static inline void create(rig *r, const ew_executor_config *config)
{
    r->limits = config->limits;
    assert_int_equal(ew_executor_create(config, &r->executor), RT_OK);
    assert_int_equal(dp_plan_init(&r->plan, 1), RT_OK);
    assert_int_equal(dp_slice_reserve(&r->plan.slices[0], 4, 4 * FIELDS), RT_OK);
}

static inline void setup(rig *r, uint32_t slices, uint32_t credits, uint32_t message_bytes)
{
    const ew_executor_config config = config_of(r, slices, credits, message_bytes);
    create(r, &config);
}

static inline void teardown(rig *r)
{
    forget_sent(r);
    ew_executor_destroy(r->executor);
    ew_host_rows_fini(&r->rows);
    dp_plan_fini(&r->plan);
}

// The n-th key of field f that belongs to a shard.
static inline uint64_t key_of(uint32_t field, uint32_t shard, uint32_t n)
{
    for (uint64_t id = 0;; id++) {
        if (rt_key_shard(rt_key(field, id), SHARDS) == shard && n-- == 0)
            return rt_key(field, id);
    }
}

// The n-th of field 0, of one shard after the other.
static inline uint64_t key(uint32_t n)
{
    return key_of(0, n % SHARDS, n / SHARDS);
}

// ---- slices ----------------------------------------------------------------------------------

static inline dp_slice *begin(rig *r)
{
    dp_plan_clear(&r->plan);
    r->plan.iteration = r->plan.step = (uint32_t)r->sequence + 1;
    r->plan.sample_count = 4;
    r->plan.dense_chunk_floats = 1;
    r->plan.participants = SUMS ? 15 : 1;
    return &r->plan.slices[0];
}

// One sample per pair of rows: slots and the versions that they must have.
static inline void add_row(rig *r, uint32_t slot, uint32_t version, dp_mode mode)
{
    dp_slice *slice = &r->plan.slices[0];
    slice->rows[slice->row_count] = (dp_row){slot, version, mode};
    slice->lookup_rows[slice->lookup_count++] = slice->row_count++;
    slice->sample_count = slice->lookup_count / FIELDS;
}

static inline dp_op *add_op(rig *r, dp_op_kind kind, uint64_t key, uint32_t slot, uint32_t version)
{
    dp_slice *slice = &r->plan.slices[0];
    bool release = kind == DP_OP_PUSH_ROW || kind == DP_OP_DROP || kind == DP_OP_SEND ||
                   kind == DP_OP_PUSH_DELTA;
    bool after = kind == DP_OP_PUSH_GRAD || kind == DP_OP_REDUCE || kind == DP_OP_SUM ||
                 kind == DP_OP_FORGET;
    dp_op *op = dp_ops_add(release ? &slice->release : after ? &slice->after : &slice->fill, kind);
    assert_non_null(op);
    op->key = key;
    op->slot = slot;
    op->version = version;
    op->flags = kind == DP_OP_PULL || kind == DP_OP_RECV ? DP_OP_STATE : 0;
    op->mask = 3;
    return op;
}

static inline rt_message slice_message(rig *r, uint64_t sequence)
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

static inline rt_status give(rig *r, uint32_t peer, rt_message *message, rt_error *error)
{
    *error = (rt_error){0};
    rt_status status = ew_executor_receive(r->executor, peer, message, error);
    assert_null(message->data); // taken in every case
    assert_int_equal(error->status, status);
    return status;
}

static inline void give_slice(rig *r)
{
    rt_error error;
    rt_message message = slice_message(r, ++r->sequence);
    if (give(r, COORDINATOR, &message, &error))
        fail_msg("%s", error.text);
}

static inline void must_refuse(rig *r, uint32_t peer, rt_message *message, const char *text)
{
    rt_error error;
    assert_int_equal(give(r, peer, message, &error), RT_WIRE);
    if (!strstr(error.text, text))
        fail_msg("\"%s\" does not say \"%s\"", error.text, text);
}

static inline void refuse_slice(rig *r, uint64_t sequence, const char *text)
{
    rt_message message = slice_message(r, sequence);
    must_refuse(r, COORDINATOR, &message, text);
}

static inline void init_slice(rig *r, const uint64_t *keys, uint32_t count)
{
    begin(r);
    for (uint32_t i = 0; i < count; i++) {
        add_op(r, DP_OP_INIT, keys[i], i, 0);
        add_row(r, i, 0, DP_MODE_OWN);
    }
    give_slice(r);
}

static inline void train(rig *r, const float *gradients)
{
    static const float zeros[4 * FIELDS * DIM];
    ew_job job;
    rt_error error = {0};
    assert_int_equal(ew_executor_next_job(r->executor, &job), RT_OK);
    assert_int_equal(ew_executor_next_job(r->executor, &job), RT_AGAIN); // one at a time
    if (ew_executor_trained(r->executor, gradients ? gradients : zeros, true, NULL, &error))
        fail_msg("%s", error.text);
}

static inline void assert_no_job(rig *r)
{
    ew_job job;
    assert_int_equal(ew_executor_next_job(r->executor, &job), RT_AGAIN);
}

// ---- rows ------------------------------------------------------------------------------------

// A message with one record: its head, and floats from first on.
static inline rt_message record_message(rt_message_type type, uint64_t iteration, const void *head,
                                        uint32_t head_bytes, uint32_t floats, float first)
{
    rt_message message;
    const uint32_t bytes = head_bytes + floats * (uint32_t)sizeof(float);
    assert_int_equal(rt_message_create(&message, type, rt_peer(RT_ROLE_PS, 0), iteration, 1, bytes),
                     RT_OK);
    memcpy(rt_message_payload(&message), head, head_bytes);
    for (uint32_t i = 0; i < floats; i++) {
        const float value = first + (float)i;
        memcpy(rt_message_payload(&message) + head_bytes + i * sizeof value, &value, sizeof value);
    }
    return message;
}

// Of a row, as shards (ROWS, SUM_ROWS) and workers (HANDED) send it.
static inline rt_message rows_message(rt_message_type type, uint64_t iteration, rt_wire_row head,
                                      uint32_t floats, float first)
{
    return record_message(type, iteration, &head, sizeof head, floats, first);
}

// The i-th pull of a request message.
static inline rt_wire_pull pull_at(const rig *r, uint32_t message, uint32_t i)
{
    rt_wire_pull pull;
    const rt_message *request = &r->sent[message].message;
    assert_true(i < rt_message_header(request)->count);
    memcpy(&pull, rt_message_payload(request) + i * sizeof pull, sizeof pull);
    return pull;
}

static inline rt_status answer(rig *r, uint32_t shard, const rt_wire_pull *pull, uint32_t version,
                               uint32_t floats, float first, rt_error *error)
{
    rt_wire_row head = {pull->key, version, pull->tag};
    rt_message message = rows_message(RT_MESSAGE_ROWS, r->sequence, head, floats, first);
    return give(r, rt_peer(RT_ROLE_PS, shard), &message, error);
}

static inline float *row_at(const rig *r, uint32_t slot)
{
    return r->rows.slab + (size_t)slot * r->rows.stride;
}

// A slice that pulls key a (shard 0) with state into slot 0 and b (shard 1) into slot 1.
static inline void pull_slice(rig *r)
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

#endif
