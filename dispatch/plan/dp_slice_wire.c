#include "dispatch/plan/dp_slice_wire.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "runtime/rt_hash.h"

#define LOG_ODDS_MAX 100.0f // from many samples of one label alone, of large weights, to the other

static uint64_t padded(uint64_t bytes)
{
    return (bytes + 7) & ~UINT64_C(7);
}

// A number, or flag, that stands only where something is so; else 0.
static uint64_t where(bool is_so, uint64_t number)
{
    return is_so ? number : 0;
}

// Every array of a slice, once: XX(member, element type, count). Encoder, decoder and size agree
// because all three are made from this list.
#define SLICE_ARRAYS(XX)                                              \
    XX(labels, float, label_count(c, limits))                         \
    XX(weights, float, weight_count(c, limits))                       \
    XX(more_odds, float, more_odds_count(c, limits))                  \
    XX(dense, float, (uint64_t)c->sample_count * limits->dense_count) \
    XX(bag_offsets, uint32_t, bag_offset_count(c, limits))            \
    XX(lookup_rows, uint32_t, c->lookup_count)                        \
    XX(row_slots, uint32_t, c->row_count)                             \
    XX(row_versions, uint32_t, c->row_count)                          \
    XX(row_modes, uint8_t, c->row_count)                              \
    XX(push_slots, uint32_t, c->push_count)                           \
    XX(push_versions, uint32_t, c->push_count)                        \
    XX(push_reasons, uint8_t, c->push_count)                          \
    XX(push_homes, uint8_t, home_count(c, c->push_count))             \
    XX(push_peers, uint8_t, peer_count(c, c->push_count))             \
    XX(drop_slots, uint32_t, c->drop_count)                           \
    XX(pull_keys, uint64_t, c->pull_count)                            \
    XX(pull_slots, uint32_t, c->pull_count)                           \
    XX(pull_versions, uint32_t, c->pull_count)                        \
    XX(pull_flags, uint8_t, c->pull_count)                            \
    XX(pull_homes, uint8_t, home_count(c, c->pull_count))             \
    XX(pull_peers, uint8_t, peer_count(c, c->pull_count))             \
    XX(init_keys, uint64_t, c->init_count)                            \
    XX(init_slots, uint32_t, c->init_count)                           \
    XX(grad_masks, uint64_t, c->grad_count)                           \
    XX(grad_rows, uint32_t, c->grad_count)                            \
    XX(grad_bases, uint32_t, c->grad_count)                           \
    XX(grad_homes, uint8_t, home_count(c, c->grad_count))             \
    XX(grad_peers, uint8_t, adder_count(c))                           \
    XX(sum_keys, uint64_t, c->sum_count)                              \
    XX(sum_masks, uint64_t, c->sum_count)                             \
    XX(sum_rows, uint32_t, c->sum_count)                              \
    XX(delta_slots, uint32_t, c->delta_count)                         \
    XX(delta_held, uint32_t, c->delta_count)                          \
    XX(delta_versions, uint32_t, c->delta_count)                      \
    XX(delta_bases, uint32_t, c->delta_count)                         \
    XX(delta_pulls, uint8_t, c->delta_count)                          \
    XX(delta_reasons, uint8_t, c->delta_count)                        \
    XX(forget_keys, uint64_t, c->forget_count)                        \
    XX(forget_versions, uint32_t, c->forget_count)                    \
    XX(forget_homes, uint8_t, c->forget_count)

static uint64_t label_count(const rt_wire_slice *c, const dp_slice_limits *limits)
{
    return (uint64_t)c->sample_count * (limits->more_labels + 1);
}

static uint64_t weight_count(const rt_wire_slice *c, const dp_slice_limits *limits)
{
    return where(c->flags & DP_SLICE_WEIGHTED, label_count(c, limits));
}

static uint64_t more_odds_count(const rt_wire_slice *c, const dp_slice_limits *limits)
{
    return where(c->flags & DP_SLICE_SHIFTS, limits->more_labels);
}

static uint64_t home_count(const rt_wire_slice *c, uint32_t count)
{
    return where(c->flags & DP_SLICE_HOMES, count);
}

static uint64_t peer_count(const rt_wire_slice *c, uint32_t count)
{
    return where(c->flags & DP_SLICE_HANDS, count);
}

static uint64_t adder_count(const rt_wire_slice *c)
{
    return where(c->flags & DP_SLICE_SUMS, c->grad_count);
}

static uint64_t bag_offset_count(const rt_wire_slice *c, const dp_slice_limits *limits)
{
    if (c->flags & DP_SLICE_UNIFORM)
        return 0;
    return (uint64_t)c->sample_count * limits->field_count + 1;
}

static uint64_t payload_bytes(const rt_wire_slice *c, const dp_slice_limits *limits)
{
    uint64_t bytes = sizeof *c;
#define XX(name, type, count) bytes += padded(sizeof(type) * (uint64_t)(count));
    SLICE_ARRAYS(XX)
#undef XX
    return bytes;
}

// Of the SUMs of a row, which follow each other.
static bool is_first_sum(const dp_ops *ops, uint32_t i)
{
    const dp_op *op = &ops->items[i];
    return i == 0 || op[-1].kind != DP_OP_SUM || op[-1].slot != op->slot;
}

static void count_ops(const dp_ops *ops, rt_wire_slice *counts)
{
    for (uint32_t i = 0; i < ops->count; i++) {
        switch ((dp_op_kind)ops->items[i].kind) {
        case DP_OP_PUSH_ROW:
        case DP_OP_SEND:
            counts->push_count++;
            break;
        case DP_OP_DROP:
            counts->drop_count++;
            break;
        case DP_OP_PULL:
        case DP_OP_RECV:
            counts->pull_count++;
            break;
        case DP_OP_INIT:
            counts->init_count++;
            break;
        case DP_OP_PUSH_GRAD:
        case DP_OP_REDUCE:
            counts->grad_count++;
            break;
        case DP_OP_SUM:
            counts->sum_count += is_first_sum(ops, i);
            break;
        case DP_OP_PUSH_DELTA:
            counts->delta_count++;
            break;
        case DP_OP_FORGET:
            counts->forget_count++;
            break;
        case DP_OP_MARK:
        case DP_OP_KINDS:
            rt_assert(!"an operation that slices do not carry");
        }
    }
}

// Of the slice's samples. Where fields share tables a plan has every row of a sample once, and what
// travels is what every field looks up.
static uint32_t count_lookups(const dp_slice *slice, const rt_batch *batch,
                              const dp_slice_limits *limits)
{
    uint32_t count = 0;
    if (!batch || !batch->tables)
        return slice->lookup_count;
    for (uint32_t k = 0; k < slice->sample_count; k++) {
        const uint32_t *bags = batch->bag_offsets + (size_t)slice->samples[k] * limits->field_count;
        count += bags[limits->field_count] - bags[0];
    }
    return count;
}

static rt_wire_slice slice_counts(const dp_plan *plan, const dp_slice *slice, const rt_batch *batch,
                                  const dp_slice_limits *limits)
{
    const bool weighted = batch && (batch->is_weighted || rt_batch_is_balanced(batch));
    const uint32_t lookup_count = count_lookups(slice, batch, limits);
    bool uniform = !(batch && batch->has_gaps) &&
                   lookup_count == (uint64_t)slice->sample_count * limits->field_count;
    const bool shifts = batch && rt_batch_shifts(batch);
    const bool is_untrained = batch && batch->learning.is_untrained;
    const uint64_t flags =
        where(uniform, DP_SLICE_UNIFORM) | where(weighted, DP_SLICE_WEIGHTED) |
        where(plan->iteration == 0, DP_SLICE_FLUSH) | where(limits->shard_count, DP_SLICE_HOMES) |
        where(limits->hands, DP_SLICE_HANDS) | where(limits->sums, DP_SLICE_SUMS) |
        where(shifts, DP_SLICE_SHIFTS) | where(is_untrained, DP_SLICE_UNTRAINED);
    rt_wire_slice counts = {.flags = (uint32_t)flags,
                            .iteration = plan->iteration,
                            .batch_samples =
                                (uint32_t)where(plan->iteration, limits->batch_samples),
                            .step = plan->step,
                            .trained = (uint32_t)where(plan->iteration, plan->sample_count),
                            .sample_count = slice->sample_count,
                            .lookup_count = lookup_count,
                            .row_count = slice->row_count,
                            .dense_chunk_floats = plan->dense_chunk_floats,
                            .workers = where(plan->iteration, plan->participants)};
    count_ops(&slice->release, &counts);
    count_ops(&slice->fill, &counts);
    counts.delta_late = counts.delta_count;
    counts.push_late = counts.push_count;
    count_ops(&slice->after, &counts);
    counts.delta_late = counts.delta_count - counts.delta_late;
    counts.push_late = counts.push_count - counts.push_late;
    return counts;
}

// Points every array of the view to its place behind the counts.
static void lay_out(const uint8_t *payload, const rt_wire_slice *c, const dp_slice_limits *limits,
                    dp_slice_view *view)
{
    const uint8_t *at = payload + sizeof *c;
    view->counts = *c;
#define XX(name, type, count)                                         \
    view->name = (count) > 0 ? (const type *)(const void *)at : NULL; \
    at += padded(sizeof(type) * (uint64_t)(count));
    SLICE_ARRAYS(XX)
#undef XX
}

// The encoder fills its own message in, through the same layout that a reader gets.
#define WRITABLE(pointer, type) ((type *)(uintptr_t)(pointer))

// Ends of the bags of one sample of a folded batch, whose first look-up is this one.
static uint32_t put_bags(const rt_batch *batch, uint32_t sample, uint32_t field_count,
                         uint32_t lookup, uint32_t *bags)
{
    const uint32_t *own = batch->bag_offsets + (size_t)sample * field_count;
    for (uint32_t f = 0; f < field_count; f++)
        bags[f + 1] = lookup + own[f + 1] - own[0];
    return bags[field_count];
}

// Labels and weights of a sample as they are trained: those that train nothing are as those that it
// lacks, and the class of which there is too much counts less; but not what corrects one that was
// trained before.
static void weigh(const rt_batch *batch, float *labels, float *weights)
{
    const rt_batch_learning *learning = &batch->learning;
    for (uint32_t l = 0; l < batch->label_count; l++) {
        const float one = labels[l] * (1 - learning->less[1]);
        const float zero = (weights[l] - labels[l]) * (1 - learning->less[0]);
        if (learning->unknown >> l & 1) {
            labels[l] = weights[l] = 0;
        } else if (weights[l] >= labels[l]) {
            labels[l] = one;
            weights[l] = one + zero;
        }
    }
}

static void put_samples(const dp_slice *slice, const rt_batch *batch, const dp_slice_limits *limits,
                        const dp_slice_view *view)
{
    float *labels = WRITABLE(view->labels, float);
    float *weights = WRITABLE(view->weights, float);
    float *dense = WRITABLE(view->dense, float);
    uint32_t *offsets = WRITABLE(view->bag_offsets, uint32_t);
    const size_t label_bytes = batch->label_count * sizeof *labels;
    rt_assert(batch->label_count == limits->more_labels + 1);
    uint32_t lookup = 0;
    if (offsets)
        memset(offsets, 0, bag_offset_count(&view->counts, limits) * sizeof *offsets);
    for (uint32_t k = 0; k < slice->sample_count; k++) {
        uint32_t sample = slice->samples[k];
        const size_t to = (size_t)k * batch->label_count,
                     from = (size_t)sample * batch->label_count;
        memcpy(labels + to, batch->labels + from, label_bytes);
        for (uint32_t l = 0; weights && l < batch->label_count; l++)
            weights[to + l] = batch->is_weighted ? batch->weights[from + l] : 1;
        if (weights && (batch->learning.unknown || rt_batch_is_balanced(batch)))
            weigh(batch, labels + to, weights + to);
        if (batch->dense_count)
            memcpy(dense + (size_t)k * batch->dense_count,
                   batch->dense + (size_t)sample * batch->dense_count,
                   batch->dense_count * sizeof *dense);
        if (!offsets)
            continue;
        uint32_t *bags = offsets + (size_t)k * limits->field_count;
        if (batch->tables) {
            lookup = put_bags(batch, sample, limits->field_count, lookup, bags);
            continue;
        }
        for (uint32_t at = batch->key_offsets[sample]; at < batch->key_offsets[sample + 1]; at++)
            bags[rt_key_field(batch->keys[at]) + 1] = ++lookup;
    }
    if (!offsets)
        return;
    for (uint64_t i = 1; i < bag_offset_count(&view->counts, limits); i++) {
        if (!offsets[i]) // an empty bag
            offsets[i] = offsets[i - 1];
    }
}

// Of a folded batch: rows of the slice by look-up, where the plan has them by key.
static void put_lookups(const dp_slice *slice, const rt_batch *batch, const dp_slice_limits *limits,
                        const dp_slice_view *view)
{
    uint32_t *to = WRITABLE(view->lookup_rows, uint32_t);
    const uint32_t *rows = slice->lookup_rows;
    for (uint32_t k = 0; k < slice->sample_count; k++) {
        const uint32_t sample = slice->samples[k], first = batch->key_offsets[sample];
        const uint32_t *bags = batch->bag_offsets + (size_t)sample * limits->field_count;
        for (uint32_t l = bags[0]; l < bags[limits->field_count]; l++)
            *to++ = rows[batch->lookups[l] - first];
        rows += batch->key_offsets[sample + 1] - first;
    }
}

static void put_rows(const dp_slice *slice, const rt_batch *batch, const dp_slice_limits *limits,
                     const dp_slice_view *view)
{
    uint32_t *slots = WRITABLE(view->row_slots, uint32_t);
    uint32_t *versions = WRITABLE(view->row_versions, uint32_t);
    uint8_t *modes = WRITABLE(view->row_modes, uint8_t);
    if (batch && batch->tables)
        put_lookups(slice, batch, limits, view);
    else if (slice->lookup_count)
        memcpy(WRITABLE(view->lookup_rows, uint32_t), slice->lookup_rows,
               slice->lookup_count * sizeof *slice->lookup_rows);
    for (uint32_t r = 0; r < slice->row_count; r++) {
        slots[r] = slice->rows[r].slot;
        versions[r] = slice->rows[r].version;
        modes[r] = (uint8_t)slice->rows[r].mode;
    }
}

static void put_delta(const dp_op *op, const dp_slice_view *view, uint32_t at)
{
    WRITABLE(view->delta_slots, uint32_t)[at] = op->slot;
    WRITABLE(view->delta_held, uint32_t)[at] = (uint32_t)op->mask;
    WRITABLE(view->delta_versions, uint32_t)[at] = op->version;
    WRITABLE(view->delta_bases, uint32_t)[at] = op->base;
    WRITABLE(view->delta_pulls, uint8_t)[at] = op->pulls;
    WRITABLE(view->delta_reasons, uint8_t)[at] = op->reason;
}

// Where homes are hashed nobody is told.
static void put_home(const uint8_t *homes, uint32_t at, const dp_op *op)
{
    if (homes)
        WRITABLE(homes, uint8_t)[at] = (uint8_t)dp_op_shard(op, 1);
}

// The worker at the other end. Only with dispatch.hand_over do rows have one, and only with
// dispatch.reduce gradients.
static void put_peer(const uint8_t *peers, uint32_t at, const dp_op *op)
{
    rt_assert(peers || op->peer == DP_NO_WORKER);
    if (peers)
        WRITABLE(peers, uint8_t)[at] = op->peer;
}

static void put_push(const dp_op *op, const dp_slice_view *view, uint32_t at)
{
    WRITABLE(view->push_slots, uint32_t)[at] = op->slot;
    WRITABLE(view->push_versions, uint32_t)[at] = op->version;
    WRITABLE(view->push_reasons, uint8_t)
    [at] = (uint8_t)(op->reason | where(op->flags & DP_OP_WHOLE, DP_PUSH_WHOLE));
    put_home(view->push_homes, at, op);
    put_peer(view->push_peers, at, op);
}

static void put_forget(const dp_op *op, const dp_slice_view *view, uint32_t at)
{
    WRITABLE(view->forget_keys, uint64_t)[at] = op->key;
    WRITABLE(view->forget_versions, uint32_t)[at] = op->version;
    put_home(view->forget_homes, at, op);
}

static void put_release(const dp_slice *slice, const dp_slice_view *view)
{
    uint32_t push = 0, drop = 0, delta = 0;
    for (uint32_t i = 0; i < slice->release.count; i++) {
        const dp_op *op = &slice->release.items[i];
        if (op->kind == DP_OP_DROP) {
            WRITABLE(view->drop_slots, uint32_t)[drop++] = op->slot;
            continue;
        }
        if (op->kind == DP_OP_PUSH_DELTA) {
            put_delta(op, view, delta++);
            continue;
        }
        put_push(op, view, push++);
    }
}

static void put_fill(const dp_slice *slice, const dp_slice_view *view)
{
    uint32_t pull = 0, init = 0;
    for (uint32_t i = 0; i < slice->fill.count; i++) {
        const dp_op *op = &slice->fill.items[i];
        if (op->kind == DP_OP_INIT) {
            WRITABLE(view->init_keys, uint64_t)[init] = op->key;
            WRITABLE(view->init_slots, uint32_t)[init++] = op->slot;
        } else {
            WRITABLE(view->pull_keys, uint64_t)[pull] = op->key;
            WRITABLE(view->pull_slots, uint32_t)[pull] = op->slot;
            WRITABLE(view->pull_versions, uint32_t)[pull] = op->version;
            WRITABLE(view->pull_flags, uint8_t)[pull] = op->flags & (DP_OP_STATE | DP_OP_WHOLE);
            put_home(view->pull_homes, pull, op);
            put_peer(view->pull_peers, pull++, op);
        }
    }
}

static void put_gradient(const dp_op *op, const dp_slice_view *view, uint32_t row, uint32_t at)
{
    WRITABLE(view->grad_masks, uint64_t)[at] = op->mask;
    WRITABLE(view->grad_rows, uint32_t)[at] = row;
    WRITABLE(view->grad_bases, uint32_t)[at] = op->base;
    put_home(view->grad_homes, at, op);
    put_peer(view->grad_peers, at, op);
}

// Gradients and sums name the row of the slice: rows and their operations stand in the same order.
static void put_after(const dp_slice *slice, const dp_slice_view *view)
{
    uint32_t grad = 0, row = 0, forget = 0, sum = 0;
    uint32_t delta = view->counts.delta_count - view->counts.delta_late;
    uint32_t push = view->counts.push_count - view->counts.push_late;
    for (uint32_t i = 0; i < slice->after.count; i++) {
        const dp_op *op = &slice->after.items[i];
        if (op->kind == DP_OP_PUSH_DELTA) {
            put_delta(op, view, delta++);
            continue;
        }
        if (op->kind == DP_OP_PUSH_ROW) {
            put_push(op, view, push++);
            continue;
        }
        if (op->kind == DP_OP_FORGET) {
            put_forget(op, view, forget++);
            continue;
        }
        while (slice->rows[row].slot != op->slot) {
            row++;
            rt_assert(row < slice->row_count);
        }
        if (op->kind != DP_OP_SUM) {
            put_gradient(op, view, row, grad++);
            continue;
        }
        if (!is_first_sum(&slice->after, i))
            continue;
        WRITABLE(view->sum_keys, uint64_t)[sum] = op->key;
        WRITABLE(view->sum_masks, uint64_t)[sum] = op->mask;
        WRITABLE(view->sum_rows, uint32_t)[sum++] = row;
    }
}

rt_status dp_slice_encode(const dp_plan *plan, uint32_t worker, const rt_batch *batch,
                          const dp_slice_limits *limits, uint32_t sender, uint64_t sequence,
                          rt_message *message)
{
    const dp_slice *slice = &plan->slices[worker];
    rt_wire_slice counts = slice_counts(plan, slice, batch, limits);
    if (counts.flags & DP_SLICE_SHIFTS)
        counts.log_odds = batch->learning.log_odds[0];
    uint64_t bytes = payload_bytes(&counts, limits);
    rt_status status = rt_message_create(message, RT_MESSAGE_SLICE, sender, sequence, 1, bytes);
    if (status)
        return status;
    dp_slice_view view;
    uint8_t *payload = rt_message_payload(message);
    memset(payload, 0, bytes);
    memcpy(payload, &counts, sizeof counts);
    lay_out(payload, &counts, limits, &view);
    if (view.more_odds)
        memcpy(WRITABLE(view.more_odds, float), batch->learning.log_odds + 1,
               limits->more_labels * sizeof(float));
    if (batch)
        put_samples(slice, batch, limits, &view);
    put_rows(slice, batch, limits, &view);
    put_release(slice, &view);
    put_fill(slice, &view);
    put_after(slice, &view);
    return RT_OK;
}

void dp_slice_set_fingerprint(rt_message *message, uint64_t fingerprint)
{
    memcpy(rt_message_payload(message) + offsetof(rt_wire_slice, fingerprint), &fingerprint,
           sizeof fingerprint);
}

void dp_slice_set_place(rt_message *message, uint32_t left_out, uint32_t cut)
{
    uint8_t *payload = rt_message_payload(message);
    memcpy(payload + offsetof(rt_wire_slice, left_out), &left_out, sizeof left_out);
    memcpy(payload + offsetof(rt_wire_slice, cut), &cut, sizeof cut);
}

uint64_t dp_slice_bytes(const dp_plan *plan, uint32_t worker, const rt_batch *batch,
                        const dp_slice_limits *limits)
{
    rt_wire_slice counts = slice_counts(plan, &plan->slices[worker], batch, limits);
    return sizeof(rt_wire_header) + payload_bytes(&counts, limits);
}

static rt_status bad(rt_error *error, const char *what)
{
    return rt_fail(error, RT_WIRE, "slice: %s", what);
}

static bool all_below(const uint32_t *values, uint32_t count, uint32_t bound)
{
    bool below = true;
    for (uint32_t i = 0; i < count; i++)
        below &= values[i] < bound;
    return below;
}

// A flush has none; of an iteration those of a slice are some of the batch.
static bool has_samples_of_kind(const rt_wire_slice *c, bool flush)
{
    if (flush)
        return c->lookup_count + c->sample_count + c->row_count + c->grad_count + c->trained +
                   c->step ==
               0;
    return c->batch_samples >= c->trained && c->trained >= c->sample_count && c->trained > 0 &&
           c->step > 0 && c->step <= c->iteration;
}

static rt_status check_counts(const rt_wire_slice *c, const dp_slice_limits *limits,
                              rt_error *error)
{
    bool flush = c->flags & DP_SLICE_FLUSH;
    const bool has_odds = c->log_odds != 0 || signbit(c->log_odds);
    const bool shifts = c->flags & DP_SLICE_SHIFTS;
    if ((has_odds && !shifts) || (shifts && flush) || !(fabsf(c->log_odds) <= LOG_ODDS_MAX))
        return bad(error, "impossible log odds of its labels");
    if (c->flags & DP_SLICE_UNTRAINED && flush)
        return bad(error, "its iteration does not fit its kind");
    if (limits->more_labels && c->sample_count && !(c->flags & DP_SLICE_WEIGHTED))
        return bad(error, "several labels without weights");
    if (flush != (c->iteration == 0) || (c->cut && !flush))
        return bad(error, "its iteration does not fit its kind");
    if (c->flags & ~(DP_SLICE_UNIFORM | DP_SLICE_FLUSH | DP_SLICE_WEIGHTED | DP_SLICE_HOMES |
                     DP_SLICE_HANDS | DP_SLICE_SUMS | DP_SLICE_SHIFTS | DP_SLICE_UNTRAINED) ||
        !(c->flags & DP_SLICE_HOMES) != (limits->shard_count == 0) ||
        !(c->flags & DP_SLICE_HANDS) != !limits->hands ||
        !(c->flags & DP_SLICE_SUMS) != !limits->sums || flush != (c->dense_chunk_floats == 0) ||
        c->dense_chunk_floats > RT_WIRE_DENSE_CHUNK_FLOATS_MAX)
        return bad(error, "unknown flags");
    if (flush != (c->workers == 0) || c->workers & ~rt_bits_below(limits->worker_count))
        return bad(error, "no worker takes part, or one that does not exist");
    if (c->sample_count > limits->sample_count_max || c->lookup_count > limits->lookup_count_max)
        return bad(error, "more samples or look-ups than announced at the start");
    if (c->row_count > c->lookup_count || (c->lookup_count && c->row_count == 0))
        return bad(error, "rows and look-ups do not fit together");
    if (!has_samples_of_kind(c, flush))
        return bad(error, "samples do not fit the kind of slice");
    if (c->flags & DP_SLICE_UNIFORM &&
        c->lookup_count != (uint64_t)c->sample_count * limits->field_count)
        return bad(error, "look-ups do not fit the fields");
    if (c->push_count > limits->slot_count || c->drop_count > limits->slot_count ||
        c->pull_count > limits->slot_count || c->init_count > limits->slot_count ||
        c->grad_count > c->row_count || c->sum_count > where(limits->sums, c->row_count) ||
        c->delta_count > 2 * (uint64_t)limits->slot_count || c->delta_late > c->delta_count ||
        (flush && c->delta_late) || c->push_late > c->push_count || (flush && c->push_late) ||
        (c->push_late && !(c->flags & DP_SLICE_HOMES)) ||
        c->forget_count > where(c->flags & DP_SLICE_HOMES, 2 * (uint64_t)limits->slot_count))
        return bad(error, "more operations than slots");
    return RT_OK;
}

static rt_status check_bags(const dp_slice_view *v, const dp_slice_limits *limits, rt_error *error)
{
    uint64_t count = bag_offset_count(&v->counts, limits);
    if (count == 0)
        return RT_OK;
    if (v->bag_offsets[0] != 0 || v->bag_offsets[count - 1] != v->counts.lookup_count)
        return bad(error, "bag offsets do not cover the look-ups");
    for (uint64_t i = 1; i < count; i++) {
        if (v->bag_offsets[i] < v->bag_offsets[i - 1])
            return bad(error, "bag offsets fall");
    }
    return RT_OK;
}

// Rows of mode GRAD have one gradient each and rows of mode REDUCE one sum, in the order of rows.
static rt_status check_modes(const dp_slice_view *v, rt_error *error)
{
    const rt_wire_slice *c = &v->counts;
    uint32_t grad = 0, sum = 0;
    for (uint32_t r = 0; r < c->row_count; r++) {
        const uint8_t mode = v->row_modes[r];
        if (mode != DP_MODE_OWN && mode != DP_MODE_GRAD && mode != DP_MODE_REDUCE)
            return bad(error, "an unknown training mode");
        if (mode == DP_MODE_GRAD && (grad == c->grad_count || v->grad_rows[grad++] != r))
            return bad(error, "gradients do not fit the rows' modes");
        if (mode == DP_MODE_REDUCE && (sum == c->sum_count || v->sum_rows[sum++] != r))
            return bad(error, "sums do not fit the rows' modes");
    }
    if (grad != c->grad_count || sum != c->sum_count)
        return bad(error, "more gradients than rows that have one");
    return RT_OK;
}

static bool are_shards(const uint8_t *homes, uint32_t count, const dp_slice_limits *limits)
{
    bool below = true;
    for (uint32_t i = 0; homes && i < count; i++)
        below &= homes[i] < limits->shard_count;
    return below;
}

// Of pushes or pulls: who is at the other end. flags: of each, what those with a worker have.
static bool are_workers(const uint8_t *peers, const uint8_t *flags, uint8_t expected,
                        uint32_t count, const dp_slice_limits *limits)
{
    for (uint32_t i = 0; peers && i < count; i++) {
        if (peers[i] == DP_NO_WORKER)
            continue;
        if (peers[i] >= limits->worker_count || peers[i] == limits->rank || flags[i] != expected)
            return false;
    }
    return true;
}

// Who sums takes part, and so do all whose gradients it waits for.
static rt_status check_sums(const dp_slice_view *v, const dp_slice_limits *limits, rt_error *error)
{
    const rt_wire_slice *c = &v->counts;
    const uint64_t own = rt_bit(limits->rank);
    for (uint32_t i = 0; v->grad_peers && i < c->grad_count; i++) {
        const uint64_t mask = v->grad_masks[i];
        if (v->grad_peers[i] == DP_NO_WORKER)
            continue;
        if (v->grad_peers[i] >= limits->worker_count || v->grad_peers[i] == limits->rank ||
            !(mask >> v->grad_peers[i] & 1) || !(mask & own) || mask & ~c->workers)
            return bad(error, "a gradient for a worker that cannot sum it");
    }
    for (uint32_t i = 0; i < c->sum_count; i++) {
        if (!(v->sum_masks[i] & own) || v->sum_masks[i] == own || v->sum_masks[i] & ~c->workers)
            return bad(error, "a sum of gradients of workers that do not train the row");
    }
    return RT_OK;
}

static rt_status check_ops(const dp_slice_view *v, const dp_slice_limits *limits, rt_error *error)
{
    const rt_wire_slice *c = &v->counts;
    if (!are_shards(v->push_homes, c->push_count, limits) ||
        !are_shards(v->pull_homes, c->pull_count, limits) ||
        !are_shards(v->grad_homes, c->grad_count, limits) ||
        !are_shards(v->forget_homes, c->forget_count, limits))
        return bad(error, "a row's home is no shard of this run");
    if (!are_workers(v->push_peers, v->push_reasons, DP_REASON_UPDATE, c->push_count, limits) ||
        !are_workers(v->pull_peers, v->pull_flags, DP_OP_STATE, c->pull_count, limits))
        return bad(error, "a row that is handed over by or to no other worker, or without state");
    for (uint32_t i = 0; i < c->push_count; i++) {
        if ((v->push_reasons[i] & ~DP_PUSH_WHOLE) > DP_REASON_FLUSH)
            return bad(error, "an unknown reason of a push");
    }
    for (uint32_t i = 0; i < c->pull_count; i++) {
        if (v->pull_flags[i] & ~(DP_OP_STATE | DP_OP_WHOLE))
            return bad(error, "unknown flags of a pull");
    }
    for (uint32_t i = 0; i < c->delta_count; i++) {
        if (v->delta_reasons[i] > DP_REASON_FLUSH || v->delta_pulls[i] > limits->worker_count ||
            v->delta_versions[i] <= v->delta_bases[i])
            return bad(error, "a change that can be that of no row");
    }
    for (uint32_t i = 0; i < c->grad_count; i++) {
        if (v->grad_masks[i] == 0 ||
            (limits->worker_count < 64 && v->grad_masks[i] >> limits->worker_count))
            return bad(error, "a gradient names workers that do not exist");
    }
    return RT_OK;
}

static rt_status check_values(const dp_slice_view *v, const dp_slice_limits *limits,
                              rt_error *error)
{
    const rt_wire_slice *c = &v->counts;
    uint32_t slots = limits->slot_count;
    for (uint32_t l = 0; v->more_odds && l < limits->more_labels; l++)
        if (!(fabsf(v->more_odds[l]) <= LOG_ODDS_MAX))
            return bad(error, "impossible log odds of its labels");
    if (!all_below(v->lookup_rows, c->lookup_count, c->row_count) ||
        !all_below(v->grad_rows, c->grad_count, c->row_count) ||
        !all_below(v->sum_rows, c->sum_count, c->row_count))
        return bad(error, "a row index is out of range");
    if (!all_below(v->row_slots, c->row_count, slots) ||
        !all_below(v->push_slots, c->push_count, slots) ||
        !all_below(v->drop_slots, c->drop_count, slots) ||
        !all_below(v->delta_slots, c->delta_count, slots) ||
        !all_below(v->pull_slots, c->pull_count, slots) ||
        !all_below(v->init_slots, c->init_count, slots))
        return bad(error, "a slot is out of range");
    rt_status status = check_modes(v, error);
    if (!status)
        status = check_ops(v, limits, error);
    if (!status)
        status = check_sums(v, limits, error);
    if (status)
        return status;
    return check_bags(v, limits, error);
}

rt_status dp_slice_decode(const rt_message *message, const dp_slice_limits *limits,
                          dp_slice_view *view, rt_error *error)
{
    size_t size = message->size - sizeof(rt_wire_header);
    rt_wire_slice counts;
    if (size < sizeof counts)
        return bad(error, "shorter than its counts");
    memcpy(&counts, rt_message_payload(message), sizeof counts);
    rt_status status = check_counts(&counts, limits, error);
    if (status)
        return status;
    if (payload_bytes(&counts, limits) != size)
        return bad(error, "its length does not fit its counts");
    lay_out(rt_message_payload(message), &counts, limits, view);
    return check_values(view, limits, error);
}
