// Slices on the wire: what the planner wrote is what a worker reads, and nothing else is taken.
#include "tests/support/test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dispatch/plan/dp_slice_wire.h"
#include "runtime/config/rt_policies.h"
#include "tests/support/planner_case.h"

#define COORDINATOR rt_peer(RT_ROLE_COORDINATOR, 0)
#define WORKERS 3u
#define FIELDS 3u

// Plans a batch.
static void plan_next(planner_case *pc)
{
    planner_case_look_up(pc, pc->shape.sample_count_max);
    planner_case_commit(pc);
}

static dp_slice_limits limits_of(const planner_case *pc, uint32_t worker)
{
    uint32_t samples = dp_planner_micro_batch_max(&pc->config);
    return (dp_slice_limits){.field_count = pc->shape.field_count,
                             .worker_count = pc->shape.worker_count,
                             .batch_samples = pc->config.sample_count_max,
                             .sample_count_max = samples,
                             .lookup_count_max = samples * pc->config.keys_per_sample_max,
                             .slot_count = pc->config.slot_count[worker],
                             .rank = worker,
                             .hands = pc->config.dispatch.hand_over,
                             .sums = pc->config.dispatch.reduce};
}

static planner_shape shape_of(uint64_t seed, uint32_t bag_max)
{
    return (planner_shape){.seed = seed,
                           .worker_count = WORKERS,
                           .sample_count_max = 12,
                           .field_count = FIELDS,
                           .ids_per_field = 15,
                           .bag_max = bag_max,
                           .zipf = 1,
                           .cache = CACHE_MIDDLE,
                           .dispatch = {.policy = RT_POLICY_RANDOM}};
}

// ---- round trips -----------------------------------------------------------------------------

static void check_samples(const dp_slice *slice, const rt_batch *batch, const dp_slice_view *v)
{
    uint32_t lookup = 0;
    assert_int_equal(v->counts.sample_count, slice->sample_count);
    assert_int_equal(v->counts.lookup_count, slice->lookup_count);
    for (uint32_t k = 0; k < slice->sample_count; k++) {
        uint32_t sample = slice->samples[k], at = batch->key_offsets[sample];
        assert_true(v->labels[k] == batch->labels[sample]);
        for (uint32_t f = 0; f < FIELDS; f++) {
            uint32_t bag = k * FIELDS + f;
            uint32_t end = v->bag_offsets ? v->bag_offsets[bag + 1] : bag + 1;
            assert_int_equal(v->bag_offsets ? v->bag_offsets[bag] : bag, lookup);
            for (; lookup < end; lookup++, at++) {
                assert_int_equal(rt_key_field(batch->keys[at]), f);
                assert_int_equal(v->lookup_rows[lookup], slice->lookup_rows[lookup]);
            }
        }
        assert_int_equal(at, batch->key_offsets[sample + 1]);
    }
}

// Who is at the other end, where rows go from worker to worker.
static void check_peer(const dp_op *op, dp_op_kind handed, const uint8_t *peers, uint32_t k)
{
    if (op->kind == handed)
        assert_non_null(peers);
    if (peers)
        assert_int_equal(peers[k], op->kind == handed ? op->peer : DP_NO_WORKER);
}

// Every operation of the plan is at its place in the view; each kind keeps its order.
static void check_ops(const dp_ops *ops, const dp_slice *slice, const dp_slice_view *v,
                      rt_wire_slice *seen)
{
    for (uint32_t i = 0; i < ops->count; i++) {
        const dp_op *op = &ops->items[i];
        uint32_t k = 0;
        switch ((dp_op_kind)op->kind) {
        case DP_OP_PUSH_ROW:
        case DP_OP_SEND:
            k = seen->push_count++;
            check_peer(op, DP_OP_SEND, v->push_peers, k);
            assert_int_equal(v->push_slots[k], op->slot);
            assert_int_equal(v->push_versions[k], op->version);
            assert_int_equal(v->push_reasons[k], op->reason);
            break;
        case DP_OP_DROP:
            assert_int_equal(v->drop_slots[seen->drop_count++], op->slot);
            break;
        case DP_OP_PULL:
        case DP_OP_RECV:
            k = seen->pull_count++;
            check_peer(op, DP_OP_RECV, v->pull_peers, k);
            assert_true(v->pull_keys[k] == op->key);
            assert_int_equal(v->pull_slots[k], op->slot);
            assert_int_equal(v->pull_versions[k], op->version);
            assert_int_equal(v->pull_flags[k], op->flags);
            break;
        case DP_OP_INIT:
            k = seen->init_count++;
            assert_true(v->init_keys[k] == op->key);
            assert_int_equal(v->init_slots[k], op->slot);
            break;
        case DP_OP_PUSH_GRAD:
        case DP_OP_REDUCE:
            k = seen->grad_count++;
            check_peer(op, DP_OP_REDUCE, v->grad_peers, k);
            assert_true(v->grad_masks[k] == op->mask);
            assert_int_equal(slice->rows[v->grad_rows[k]].slot, op->slot);
            assert_int_equal(v->grad_bases[k], op->base);
            break;
        case DP_OP_SUM: // one entry for all of a row
            if (i > 0 && op[-1].kind == DP_OP_SUM && op[-1].key == op->key)
                break;
            k = seen->sum_count++;
            assert_true(v->sum_keys[k] == op->key && v->sum_masks[k] == op->mask);
            assert_true(op->mask >> op->peer & 1);
            assert_int_equal(slice->rows[v->sum_rows[k]].slot, op->slot);
            break;
        default:
            fail_msg("operation %d in a slice", op->kind);
        }
    }
}

static void check_slice(const planner_case *pc, const dp_plan *plan, const rt_batch *batch,
                        uint32_t worker, uint64_t sequence)
{
    rt_message message;
    dp_slice_view view;
    rt_error error = {0};
    const dp_slice *slice = &plan->slices[worker];
    dp_slice_limits limits = limits_of(pc, worker);
    assert_int_equal(dp_slice_encode(plan, worker, batch, &limits, COORDINATOR, sequence, &message),
                     RT_OK);
    assert_int_equal(rt_message_validate(&message, COORDINATOR, &error), RT_OK);
    assert_int_equal(rt_message_header(&message)->type, RT_MESSAGE_SLICE);
    assert_int_equal(rt_message_header(&message)->iteration, sequence);
    if (dp_slice_decode(&message, &limits, &view, &error))
        fail_msg("%s", error.text);
    rt_wire_slice seen = {0};
    check_ops(&slice->release, slice, &view, &seen);
    check_ops(&slice->fill, slice, &view, &seen);
    check_ops(&slice->after, slice, &view, &seen);
    seen.flags = view.counts.flags;
    seen.iteration = plan->iteration;
    seen.log_odds = batch ? batch->learning.log_odds[0] : 0;
    seen.batch_samples = plan->iteration ? limits.batch_samples : 0;
    seen.step = plan->step;
    seen.trained = plan->iteration ? plan->sample_count : 0;
    seen.sample_count = slice->sample_count;
    seen.lookup_count = slice->lookup_count;
    seen.row_count = slice->row_count;
    seen.dense_chunk_floats = plan->dense_chunk_floats;
    seen.workers = plan->iteration ? plan->participants : 0;
    assert_memory_equal(&view.counts, &seen, sizeof seen);
    assert_int_equal(!!(seen.flags & DP_SLICE_FLUSH), plan->iteration == 0);
    if (batch)
        check_samples(slice, batch, &view);
    for (uint32_t r = 0; r < slice->row_count; r++) {
        assert_int_equal(view.row_slots[r], slice->rows[r].slot);
        assert_int_equal(view.row_versions[r], slice->rows[r].version);
        assert_int_equal(view.row_modes[r], slice->rows[r].mode);
    }
    rt_message_release(&message);
}

static void what_is_written_is_read(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 8; seed++) {
        planner_case pc;
        planner_shape shape = shape_of(seed, seed % 2 ? 1 : 3);
        shape.dispatch.policy = (rt_policy_kind)(seed % RT_POLICY_COUNT);
        shape.dispatch.first_touch = (rt_first_touch)(seed / 4 % 2);
        shape.dispatch.hand_over = seed % 3 == 0;
        shape.dispatch.reduce = seed % 4 < 2;
        planner_case_init(&pc, &shape);
        for (uint32_t t = 1; t <= 20; t++) {
            planner_case_look_up(&pc, t == 20 ? 2 : shape.sample_count_max); // one worker idles
            planner_case_commit(&pc);
            for (uint32_t w = 0; w < WORKERS; w++)
                check_slice(&pc, pc.plan, &pc.batch, w, t);
        }
        planner_case_flush(&pc);
        for (uint32_t w = 0; w < WORKERS; w++)
            check_slice(&pc, pc.plan, NULL, w, 21);
        planner_case_fini(&pc);
    }
}

// ---- bad bytes -------------------------------------------------------------------------------

// A rich slice.
typedef struct {
    rt_message message;
    dp_slice_limits limits;
} sample_slice;

// Of the plan that the case has made last.
static sample_slice slice_of(const planner_case *pc, uint32_t worker, uint64_t sequence)
{
    sample_slice one = {.limits = limits_of(pc, worker)};
    assert_int_equal(dp_slice_encode(pc->plan, worker, &pc->batch, &one.limits, COORDINATOR,
                                     sequence, &one.message),
                     RT_OK);
    return one;
}

static dp_slice_view view_of(const sample_slice *one)
{
    dp_slice_view view;
    rt_error error = {0};
    if (dp_slice_decode(&one->message, &one->limits, &view, &error))
        fail_msg("%s", error.text);
    return view;
}

static sample_slice make_slice_of(uint32_t bag_max, uint32_t iteration)
{
    planner_case pc;
    planner_shape shape = shape_of(3, bag_max);
    shape.cache = CACHE_SMALLEST;
    planner_case_init(&pc, &shape);
    for (uint32_t t = 1; t <= iteration; t++)
        plan_next(&pc);
    const sample_slice one = slice_of(&pc, 1, iteration);
    planner_case_fini(&pc);
    return one;
}

static sample_slice make_slice(uint32_t bag_max)
{
    return make_slice_of(bag_max, 6);
}

// In a block of exactly its size, so that sanitizers see every byte too far.
static rt_message exact_copy(const rt_message *from, size_t size)
{
    uint8_t *data = malloc(size);
    assert_non_null(data);
    memcpy(data, from->data, size);
    return (rt_message){data, size, free, data};
}

static rt_status decode_copy(const sample_slice *one, const rt_message *copy)
{
    dp_slice_view view;
    rt_error error = {0};
    rt_status status = dp_slice_decode(copy, &one->limits, &view, &error);
    if (status) {
        assert_int_equal(status, RT_WIRE);
        assert_int_equal(error.status, RT_WIRE);
        assert_true(strlen(error.text) > 8);
    }
    return status;
}

static void every_truncation_is_refused(void **state)
{
    (void)state;
    for (uint32_t bag_max = 1; bag_max <= 3; bag_max += 2) {
        sample_slice one = make_slice(bag_max);
        assert_int_equal(decode_copy(&one, &one.message), RT_OK);
        for (size_t size = sizeof(rt_wire_header); size < one.message.size; size++) {
            rt_message cut = exact_copy(&one.message, size);
            assert_int_equal(decode_copy(&one, &cut), RT_WIRE);
            rt_message_release(&cut);
        }
        rt_message_release(&one.message);
    }
}

static void longer_is_refused(void **state)
{
    (void)state;
    sample_slice one = make_slice(1);
    uint8_t *data = calloc(1, one.message.size + 8);
    memcpy(data, one.message.data, one.message.size);
    rt_message longer = {data, one.message.size + 8, free, data};
    assert_int_equal(decode_copy(&one, &longer), RT_WIRE);
    rt_message_release(&longer);
    rt_message_release(&one.message);
}

// Each number among the counts, set to what is near, large or wraps. One more or less may hide in
// the padding of an array; then all that is read is still inside.
static void every_count_is_checked(void **state)
{
    (void)state;
    for (uint32_t bag_max = 1; bag_max <= 3; bag_max += 2) {
        sample_slice one = make_slice(bag_max);
        for (size_t at = 0; at < sizeof(rt_wire_slice) / 4; at++) {
            if (at * 4 == offsetof(rt_wire_slice, iteration) ||
                at * 4 == offsetof(rt_wire_slice, batch_samples) ||
                at * 4 == offsetof(rt_wire_slice, left_out) ||
                at * 4 / 8 * 8 == offsetof(rt_wire_slice, fingerprint))
                continue; // any larger number is possible there
            uint32_t old;
            memcpy(&old, rt_message_payload(&one.message) + at * 4, 4);
            const uint32_t values[] = {old + 1,     old - 1,     old + 2,   0,
                                       0x7fffffffu, 0x80000000u, UINT32_MAX};
            for (size_t i = 0; i < RT_COUNT_OF(values); i++) {
                rt_message bad = exact_copy(&one.message, one.message.size);
                memcpy(rt_message_payload(&bad) + at * 4, &values[i], 4);
                bool near = i < 3;
                if (decode_copy(&one, &bad) != RT_WIRE && values[i] != old && !near)
                    fail_msg("count %zu: %u instead of %u was taken", at, values[i], old);
                rt_message_release(&bad);
            }
        }
        rt_message_release(&one.message);
    }
}

// They shift a model's bias, so they come where a slice says so, and as a number that labels can
// have.
static void log_odds_are_checked(void **state)
{
    (void)state;
    sample_slice one = make_slice(1);
    rt_wire_slice *counts = (rt_wire_slice *)(void *)rt_message_payload(&one.message);
    counts->log_odds = -1.5f;
    assert_int_equal(decode_copy(&one, &one.message), RT_WIRE);
    counts->flags |= DP_SLICE_SHIFTS;
    assert_int_equal(decode_copy(&one, &one.message), RT_OK);
    const float bad[] = {101, -101, NAN, INFINITY};
    for (size_t i = 0; i < RT_COUNT_OF(bad); i++) {
        counts->log_odds = bad[i];
        assert_int_equal(decode_copy(&one, &one.message), RT_WIRE);
    }
    rt_message_release(&one.message);
}

// Labels and weights of every label come with their samples, and the log odds of all of them where
// biases are shifted; a label that trains nothing is as one that no sample has.
static void several_labels_come_along(void **state)
{
    (void)state;
    planner_case pc;
    planner_shape shape = shape_of(7, 1);
    planner_case_init(&pc, &shape);
    for (uint32_t t = 1; t <= 2; t++) {
        rt_batch batch;
        rt_message message;
        dp_slice_view view;
        rt_error error = {0};
        dp_slice_limits limits = limits_of(&pc, 1);
        limits.more_labels = 2;
        plan_next(&pc);
        rt_batch_init(&batch, 0);
        rt_batch_begin(&batch, 3, true);
        for (uint32_t i = 0; i < pc.batch.sample_count; i++) {
            const float labels[] = {i % 2 == 0, i % 3 == 0, i % 5 ? 1 : NAN};
            const uint64_t *keys = pc.batch.keys + pc.batch.key_offsets[i];
            assert_int_equal(rt_batch_append(&batch, 0, NULL, keys, FIELDS), RT_OK);
            rt_batch_set_labels(&batch, i, labels, (float)(i + 1));
        }
        if (t == 1)
            batch.learning = (rt_batch_learning){{-1, 2, 3}, .unknown = 2};
        assert_int_equal(dp_slice_encode(pc.plan, 1, &batch, &limits, COORDINATOR, t, &message),
                         RT_OK);
        if (dp_slice_decode(&message, &limits, &view, &error))
            fail_msg("%s", error.text);
        const dp_slice *slice = &pc.plan->slices[1];
        assert_true(slice->sample_count > 0);
        for (uint32_t k = 0; k < slice->sample_count; k++) {
            const uint32_t i = slice->samples[k];
            const float weight = (float)(i + 1), third = i % 5 ? weight : 0;
            const float second = t == 1 ? 0 : weight;
            const float want[] = {i % 2 ? 0 : weight, i % 3 ? 0 : second, third};
            assert_memory_equal(view.labels + 3 * k, want, sizeof want);
            assert_memory_equal(view.weights + 3 * k, ((float[]){weight, second, third}), 12);
        }
        assert_int_equal(view.more_odds != NULL, t == 1);
        if (t == 1) {
            assert_true(view.counts.log_odds == -1);
            assert_memory_equal(view.more_odds, ((float[]){2, 3}), 8);
            ((float *)(uintptr_t)view.more_odds)[1] = NAN;
            assert_int_equal(dp_slice_decode(&message, &limits, &view, &error), RT_WIRE);
        }
        rt_wire_slice *counts = (rt_wire_slice *)(void *)rt_message_payload(&message);
        counts->flags &= ~DP_SLICE_WEIGHTED;
        assert_int_equal(dp_slice_decode(&message, &limits, &view, &error), RT_WIRE);
        rt_message_release(&message);
        rt_batch_fini(&batch);
    }
    planner_case_fini(&pc);
}

static void a_flush_trains_nothing(void **state)
{
    (void)state;
    sample_slice one = make_slice(1);
    rt_wire_slice *counts = (rt_wire_slice *)(void *)rt_message_payload(&one.message);
    counts->iteration = 0;
    assert_int_equal(decode_copy(&one, &one.message), RT_WIRE);
    counts->flags |= DP_SLICE_FLUSH;
    assert_int_equal(decode_copy(&one, &one.message), RT_WIRE);
    counts->iteration = 6;
    assert_int_equal(decode_copy(&one, &one.message), RT_WIRE);
    counts->flags &= ~DP_SLICE_FLUSH;
    assert_int_equal(decode_copy(&one, &one.message), RT_OK);
    counts->batch_samples = counts->trained - 1;
    assert_int_equal(decode_copy(&one, &one.message), RT_WIRE);
    rt_message_release(&one.message);
}

// One element of an array, replaced for the time of one decode.
#define REFUSED(member, count, type, value)                         \
    do {                                                            \
        assert_true((count) > 0);                                   \
        type *element = (type *)(uintptr_t)&view.member[(count)-1]; \
        type old = *element;                                        \
        *element = (type)(value);                                   \
        if (decode_copy(&one, &one.message) != RT_WIRE)             \
            fail_msg("%s: %s was taken", #member, #value);          \
        *element = old;                                             \
        assert_int_equal(decode_copy(&one, &one.message), RT_OK);   \
    } while (0)

static void every_index_is_checked(void **state)
{
    (void)state;
    sample_slice one = make_slice(3);
    const dp_slice_view view = view_of(&one);
    const rt_wire_slice *c = &view.counts;
    uint32_t slots = one.limits.slot_count;
    REFUSED(bag_offsets, c->sample_count * FIELDS + 1, uint32_t, c->lookup_count + 1);
    REFUSED(bag_offsets, c->sample_count * FIELDS + 1, uint32_t, c->lookup_count - 1);
    REFUSED(bag_offsets, c->sample_count * FIELDS, uint32_t, c->lookup_count + 1);
    REFUSED(bag_offsets, 1, uint32_t, 1);
    REFUSED(lookup_rows, c->lookup_count, uint32_t, c->row_count);
    REFUSED(row_slots, c->row_count, uint32_t, slots);
    REFUSED(row_modes, c->row_count, uint8_t, DP_MODE_REDUCE);
    REFUSED(row_modes, c->row_count, uint8_t,
            view.row_modes[c->row_count - 1] == DP_MODE_OWN ? DP_MODE_GRAD : DP_MODE_OWN);
    REFUSED(row_modes, c->row_count, uint8_t, 2);
    REFUSED(push_slots, c->push_count, uint32_t, slots);
    REFUSED(push_reasons, c->push_count, uint8_t, 3);
    REFUSED(drop_slots, c->drop_count, uint32_t, slots);
    REFUSED(pull_slots, c->pull_count, uint32_t, slots);
    REFUSED(pull_flags, c->pull_count, uint8_t, 4);
    REFUSED(grad_masks, c->grad_count, uint64_t, 0);
    REFUSED(grad_masks, c->grad_count, uint64_t, rt_bit(WORKERS));
    REFUSED(grad_rows, c->grad_count, uint32_t, c->row_count);
    REFUSED(grad_rows, c->grad_count, uint32_t, view.grad_rows[c->grad_count - 2]);
    rt_message_release(&one.message);
}

// Of rows that are trained for the first time.
static void slots_of_new_rows_are_checked(void **state)
{
    (void)state;
    sample_slice one = make_slice_of(1, 1);
    const dp_slice_view view = view_of(&one);
    REFUSED(init_slots, view.counts.init_count, uint32_t, one.limits.slot_count);
    rt_message_release(&one.message);
}

// A slice of a worker that takes rows from another one, and sends some.
static void partners_are_checked(void **state)
{
    (void)state;
    planner_case pc;
    planner_shape shape = shape_of(3, 1);
    uint32_t sent = 0, taken = 0;
    shape.dispatch.hand_over = true;
    planner_case_init(&pc, &shape);
    for (uint32_t t = 1; t <= 20; t++) {
        plan_next(&pc);
        sample_slice one = slice_of(&pc, 1, t);
        const dp_slice_view view = view_of(&one);
        for (uint32_t i = 0; i < view.counts.push_count; i++) {
            if (view.push_peers[i] == DP_NO_WORKER)
                continue;
            REFUSED(push_peers, i + 1, uint8_t, WORKERS);
            REFUSED(push_peers, i + 1, uint8_t, 1); // the worker itself
            REFUSED(push_reasons, i + 1, uint8_t, DP_REASON_EVICT);
            sent++;
        }
        for (uint32_t i = 0; i < view.counts.pull_count; i++) {
            if (view.pull_peers[i] == DP_NO_WORKER)
                continue;
            REFUSED(pull_peers, i + 1, uint8_t, WORKERS);
            REFUSED(pull_peers, i + 1, uint8_t, 1);
            REFUSED(pull_flags, i + 1, uint8_t, 0); // without its state
            taken++;
        }
        one.limits.hands = false;
        assert_int_equal(decode_copy(&one, &one.message), RT_WIRE);
        rt_message_release(&one.message);
    }
    assert_true(sent > 10 && taken > 10);
    planner_case_fini(&pc);
}

// Slices of workers that sum gradients of others, and send others some.
static void sums_are_checked(void **state)
{
    (void)state;
    planner_case pc;
    planner_shape shape = shape_of(3, 1);
    uint32_t sent = 0, summed = 0;
    shape.dispatch.reduce = true;
    planner_case_init(&pc, &shape);
    for (uint32_t t = 1; t <= 30; t++) {
        const uint32_t w = t % WORKERS, other = (w + 1) % WORKERS;
        plan_next(&pc);
        sample_slice one = slice_of(&pc, w, t);
        const dp_slice_view view = view_of(&one);
        for (uint32_t i = 0; i < view.counts.grad_count; i++) {
            if (view.grad_peers[i] == DP_NO_WORKER)
                continue;
            REFUSED(grad_peers, i + 1, uint8_t, WORKERS);
            REFUSED(grad_peers, i + 1, uint8_t, w); // the worker itself
            REFUSED(grad_masks, i + 1, uint64_t, rt_bit(w));
            REFUSED(grad_masks, i + 1, uint64_t, rt_bit(view.grad_peers[i]));
            sent++;
        }
        for (uint32_t i = 0; i < view.counts.sum_count; i++) {
            REFUSED(sum_masks, i + 1, uint64_t, rt_bit(w)); // nobody else
            REFUSED(sum_masks, i + 1, uint64_t, rt_bit(other));
            REFUSED(sum_masks, i + 1, uint64_t, rt_bit(w) | rt_bit(WORKERS));
            REFUSED(sum_rows, i + 1, uint32_t, view.counts.row_count);
            REFUSED(row_modes, view.sum_rows[i] + 1, uint8_t, DP_MODE_OWN);
            summed++;
        }
        one.limits.sums = false;
        assert_int_equal(decode_copy(&one, &one.message), RT_WIRE);
        rt_message_release(&one.message);
    }
    assert_true(sent > 10 && summed > 10);
    planner_case_fini(&pc);
}

// A chunk of the dense exchange may be as long as a message of it, and no longer.
static void the_longest_dense_chunk(void **state)
{
    (void)state;
    planner_case pc;
    const planner_shape shape = shape_of(5, 1);
    rt_message message;
    dp_slice_view view;
    planner_case_init(&pc, &shape);
    plan_next(&pc);
    const dp_slice_limits limits = limits_of(&pc, 0);
    dp_plan plan = *pc.plan;
    plan.dense_chunk_floats = RT_WIRE_DENSE_CHUNK_FLOATS_MAX;
    check_slice(&pc, &plan, &pc.batch, 0, 1);
    plan.dense_chunk_floats++;
    assert_int_equal(dp_slice_encode(&plan, 0, &pc.batch, &limits, COORDINATOR, 1, &message),
                     RT_OK);
    assert_int_equal(dp_slice_decode(&message, &limits, &view, NULL), RT_WIRE);
    rt_message_release(&message);
    planner_case_fini(&pc);
}

// Whatever passes is within its bounds: flipped bits, from a seed.
static void flipped_bits_harm_nobody(void **state)
{
    (void)state;
    rt_random random = {77};
    sample_slice one = make_slice(3);
    uint32_t taken = 0;
    for (uint32_t i = 0; i < 20000; i++) {
        dp_slice_view v;
        rt_error error = {0};
        rt_message bad = exact_copy(&one.message, one.message.size);
        for (uint32_t flips = 1 + rt_random_below(&random, 3); flips; flips--) {
            uint32_t at = rt_random_below(&random, (uint32_t)(bad.size - sizeof(rt_wire_header)));
            rt_message_payload(&bad)[at] ^= (uint8_t)(1u << rt_random_below(&random, 8));
        }
        if (dp_slice_decode(&bad, &one.limits, &v, &error) == RT_OK) {
            taken++;
            for (uint32_t k = 0; k < v.counts.lookup_count; k++)
                assert_true(v.lookup_rows[k] < v.counts.row_count);
            for (uint32_t k = 0; k < v.counts.row_count; k++)
                assert_true(v.row_slots[k] < one.limits.slot_count);
            for (uint32_t k = 0; k < v.counts.pull_count; k++)
                assert_true(v.pull_slots[k] < one.limits.slot_count);
            for (uint32_t k = 0; k < v.counts.grad_count; k++)
                assert_true(v.row_modes[v.grad_rows[k]] == DP_MODE_GRAD);
        }
        rt_message_release(&bad);
    }
    assert_true(taken > 1000 && taken < 19000); // versions, keys and labels may be anything
    rt_message_release(&one.message);
}

TEST_MAIN(TEST(what_is_written_is_read), TEST(every_truncation_is_refused), TEST(longer_is_refused),
          TEST(every_count_is_checked), TEST(log_odds_are_checked), TEST(several_labels_come_along),
          TEST(a_flush_trains_nothing), TEST(every_index_is_checked),
          TEST(slots_of_new_rows_are_checked), TEST(partners_are_checked), TEST(sums_are_checked),
          TEST(the_longest_dense_chunk), TEST(flipped_bits_harm_nobody))
