#include "dispatch/cost/dp_ticks.h"

#include <math.h>
#include <string.h>

#include "dispatch/solvers/dp_solver.h"
#include "runtime/numbers/rt_coding.h"
#include "runtime/rt_hash.h"
#include "runtime/wire/rt_wire.h"

#define TICKS_MAX (1 << 18)
#define DENSE_CHUNK_FLOATS_MIN 4096

_Static_assert(sizeof(rt_wire_change) == sizeof(rt_wire_row), "a push is as long either way");

static uint32_t words(const dp_layout *layout, uint32_t field)
{
    return rt_coding_words(layout->wire, layout->values[field]);
}

uint32_t dp_row_bytes(const dp_layout *layout, uint32_t field, bool with_state)
{
    uint32_t floats = words(layout, field);
    if (with_state)
        floats += layout->state[field];
    return (uint32_t)(sizeof(rt_wire_row) + floats * sizeof(float));
}

uint32_t dp_whole_row_bytes(const dp_layout *layout, uint32_t field, bool with_state)
{
    uint32_t floats = layout->values[field];
    if (with_state)
        floats += layout->state[field];
    return (uint32_t)(sizeof(rt_wire_row) + floats * sizeof(float));
}

uint32_t dp_grad_bytes(const dp_layout *layout, uint32_t field)
{
    return (uint32_t)(sizeof(rt_wire_grad) + words(layout, field) * sizeof(float));
}

static uint32_t delta_bytes(const dp_layout *layout, uint32_t field)
{
    const uint32_t floats = words(layout, field) + layout->state[field];
    return (uint32_t)(sizeof(rt_wire_delta) + floats * sizeof(float));
}

static double slowest_transfer_s(const dp_layout *layout, const dp_link *links,
                                 uint32_t worker_count)
{
    double bytes = 0, seconds = 0;
    for (uint32_t f = 0; f < layout->field_count; f++)
        bytes = fmax(bytes, fmax(dp_row_bytes(layout, f, true), dp_grad_bytes(layout, f)));
    for (uint32_t j = 0; j < worker_count; j++) {
        seconds = fmax(seconds, bytes / links[j].up_bytes_per_s);
        seconds = fmax(seconds, bytes / links[j].down_bytes_per_s);
    }
    return seconds;
}

static int32_t to_ticks(double bytes, double bytes_per_s, double tick_s)
{
    double ticks = rint(bytes / bytes_per_s / tick_s);
    return (int32_t)fmin(fmax(ticks, 1), INT32_MAX);
}

void dp_ticks_compute(const dp_layout *layout, const dp_link *links, uint32_t worker_count,
                      uint32_t keys_per_sample_max, dp_ticks *ticks)
{
    // A sample costs at most a pull and a push per key.
    double ticks_max = fmin(TICKS_MAX, floor(DP_COST_MAX / (2.0 * keys_per_sample_max)) - 1);
    memset(ticks, 0, sizeof *ticks);
    ticks->tick_s = slowest_transfer_s(layout, links, worker_count) / ticks_max;
    ticks->worker_count = worker_count;
    ticks->field_count = layout->field_count;
    for (uint32_t f = 0; f < layout->field_count; f++) {
        double row = dp_row_bytes(layout, f, true), grad = dp_grad_bytes(layout, f);
        for (uint32_t j = 0; j < worker_count; j++) {
            ticks->pull[f][j] = to_ticks(row, links[j].down_bytes_per_s, ticks->tick_s);
            ticks->push[f][j] = to_ticks(row, links[j].up_bytes_per_s, ticks->tick_s);
            ticks->grad[f][j] = to_ticks(grad, links[j].up_bytes_per_s, ticks->tick_s);
        }
    }
}

// A long sum of transfers; a link that is slow beyond reason must not overflow it.
static int64_t to_long_ticks(double bytes, double bytes_per_s, double tick_s)
{
    return llrint(fmin(bytes / bytes_per_s / tick_s, 1e15));
}

void dp_ticks_add_load(const dp_link *links, uint64_t dense_bytes,
                       const double *compute_s_per_sample, dp_ticks *ticks)
{
    double bytes = (double)dense_bytes;
    for (uint32_t j = 0; j < ticks->worker_count; j++) {
        double compute = rint(compute_s_per_sample[j] / ticks->tick_s);
        ticks->compute[j] = (int32_t)fmin(compute, DP_COMPUTE_TICKS_MAX);
        ticks->dense_up[j] = to_long_ticks(bytes, links[j].up_bytes_per_s, ticks->tick_s);
        ticks->dense_down[j] = to_long_ticks(bytes, links[j].down_bytes_per_s, ticks->tick_s);
    }
}

// What limits all workers together: bytes of rows that pass per second, and of the dense exchange.
typedef struct {
    double rows_per_s, dense_per_s; // dense_per_s 0: the dense exchange does not pass
} limit;

// The slowest of the shards from `first` to before `end`; 0: none has a limit.
static double slowest_shard(const dp_shards *shards, uint32_t first, uint32_t end)
{
    double slowest = 0;
    for (uint32_t s = first; s < end; s++) {
        const double rate = shards->bytes_per_s[s];
        if (rate > 0 && (slowest <= 0 || rate < slowest))
            slowest = rate;
    }
    return slowest;
}

// Of the shards with dense gradients, and of those without, only the slowest can be what limits.
static uint32_t limits_of(double ps_bytes_per_s, const dp_shards *shards, limit limits[3])
{
    uint32_t count = 0;
    const double with = slowest_shard(shards, 0, shards->dense_count);
    const double others = slowest_shard(shards, shards->dense_count, shards->count);
    if (ps_bytes_per_s > 0)
        limits[count++] = (limit){ps_bytes_per_s, ps_bytes_per_s};
    if (with > 0)
        limits[count++] = (limit){with * shards->count, with * shards->dense_count};
    if (others > 0)
        limits[count++] = (limit){others * shards->count, 0};
    return count;
}

void dp_ticks_add_shards(const dp_layout *layout, double ps_bytes_per_s, const dp_shards *shards,
                         uint64_t dense_bytes, dp_ticks *ticks)
{
    limit limits[3];
    const uint32_t count = limits_of(ps_bytes_per_s, shards, limits);
    double slowest = INFINITY;
    for (uint32_t i = 0; i < count; i++)
        slowest = fmin(slowest, limits[i].rows_per_s);
    ticks->ps_limit_count = count;
    for (uint32_t i = 0; i < count; i++) {
        const limit *one = &limits[i];
        const double dense = (double)dense_bytes;
        ticks->ps_limits[i].share = slowest / one->rows_per_s;
        ticks->ps_limits[i].dense = 0;
        if (one->dense_per_s > 0)
            ticks->ps_limits[i].dense = to_long_ticks(dense, one->dense_per_s, ticks->tick_s);
    }
    for (uint32_t f = 0; f < layout->field_count && count; f++) {
        double row = dp_row_bytes(layout, f, true), grad = dp_grad_bytes(layout, f);
        ticks->ps_row[f] = to_ticks(row, slowest, ticks->tick_s);
        ticks->ps_grad[f] = to_ticks(grad, slowest, ticks->tick_s);
    }
}

static void add_box_rows(const dp_layout *layout, const dp_link *links, dp_ticks *ticks)
{
    for (uint32_t f = 0; f < layout->field_count; f++) {
        const double row = dp_row_bytes(layout, f, true), grad = dp_grad_bytes(layout, f);
        for (uint32_t b = 0; b < ticks->box_count; b++) {
            ticks->box_up[f][b] = to_ticks(row, links[b].up_bytes_per_s, ticks->tick_s);
            ticks->box_down[f][b] = to_ticks(row, links[b].down_bytes_per_s, ticks->tick_s);
            ticks->box_grad[f][b] = to_ticks(grad, links[b].down_bytes_per_s, ticks->tick_s);
        }
        for (uint32_t j = 0; j < ticks->worker_count; j++) {
            const dp_link *link = &links[ticks->box_of[j]];
            ticks->pull[f][j] = ticks->box_down[f][ticks->box_of[j]];
            ticks->push[f][j] = ticks->box_up[f][ticks->box_of[j]];
            ticks->grad[f][j] = to_ticks(grad, link->up_bytes_per_s, ticks->tick_s);
        }
    }
}

void dp_ticks_add_boxes(const dp_layout *layout, const dp_boxes *boxes, const dp_rates *rates,
                        uint64_t participants, uint64_t dense_bytes, dp_ticks *ticks)
{
    dp_link links[RT_SITE_BOXES_MAX];
    dp_box_traffic dense = {0};
    dp_box_links(boxes, rates, links);
    ticks->box_count = boxes->count;
    memset(ticks->box_of, DP_NO_BOX, sizeof ticks->box_of);
    memcpy(ticks->box_of, boxes->of_worker, ticks->worker_count);
    for (uint32_t s = 0; s < rates->shards.count; s++)
        ticks->shard_boxes |= rt_bit(boxes->of_shard[s]);
    add_box_rows(layout, links, ticks);
    dp_boxes_add_dense(boxes, &rates->shards, participants, dense_bytes, &dense);
    for (uint32_t b = 0; b < boxes->count; b++) {
        ticks->box_dense_up[b] =
            to_long_ticks((double)dense.up[b], links[b].up_bytes_per_s, ticks->tick_s);
        ticks->box_dense_down[b] =
            to_long_ticks((double)dense.down[b], links[b].down_bytes_per_s, ticks->tick_s);
    }
    for (uint32_t j = 0; j < ticks->worker_count; j++) {
        ticks->dense_up[j] = ticks->box_dense_up[boxes->of_worker[j]];
        ticks->dense_down[j] = ticks->box_dense_down[boxes->of_worker[j]];
    }
}

double dp_ticks_shards(const dp_ticks *ticks, double row_ticks)
{
    double longest = 0;
    for (uint32_t i = 0; i < ticks->ps_limit_count; i++)
        longest = fmax(longest,
                       ticks->ps_limits[i].share * row_ticks + (double)ticks->ps_limits[i].dense);
    return longest;
}

double dp_shards_s(double ps_bytes_per_s, const dp_shards *shards, double row_bytes,
                   double dense_bytes)
{
    limit limits[3];
    const uint32_t count = limits_of(ps_bytes_per_s, shards, limits);
    double longest = 0;
    for (uint32_t i = 0; i < count; i++) {
        double dense = 0;
        if (limits[i].dense_per_s > 0)
            dense = dense_bytes / limits[i].dense_per_s;
        longest = fmax(longest, row_bytes / limits[i].rows_per_s + dense);
    }
    return longest;
}

uint32_t dp_dense_chunk_floats(double bytes_per_s, rt_coding coding)
{
    const double seconds = 2e-3;
    const size_t size = coding == RT_CODING_INT8 ? sizeof(uint8_t) : sizeof(float);
    double floats = bytes_per_s * seconds / (double)size;
    return (uint32_t)fmin(fmax(floats, DENSE_CHUNK_FLOATS_MIN), RT_WIRE_DENSE_CHUNK_FLOATS_MAX);
}

static uint32_t row_bytes(const dp_layout *layout, uint32_t field, bool with_state, bool is_whole)
{
    if (is_whole)
        return dp_whole_row_bytes(layout, field, with_state);
    return dp_row_bytes(layout, field, with_state);
}

// Adds up in place: this goes over every operation of every plan.
static void add_op(const dp_layout *layout, const dp_op *op, dp_passing *sum)
{
    const uint32_t field = rt_key_field(op->key);
    const bool state = op->flags & DP_OP_STATE, whole = op->flags & DP_OP_WHOLE;
    switch ((dp_op_kind)op->kind) {
    case DP_OP_PUSH_ROW:
        sum->up += row_bytes(layout, field, true, whole);
        break;
    case DP_OP_PUSH_DELTA:
        sum->up += delta_bytes(layout, field);
        break;
    case DP_OP_PUSH_GRAD:
        sum->up += dp_grad_bytes(layout, field);
        break;
    case DP_OP_PULL:
        sum->down += row_bytes(layout, field, state, op->version == 0 || whole);
        sum->request += sizeof(rt_wire_pull);
        break;
    case DP_OP_FORGET:
        sum->request += sizeof(rt_wire_pull);
        break;
    case DP_OP_SEND:
        sum->sent += row_bytes(layout, field, true, false);
        break;
    case DP_OP_RECV:
        sum->received += row_bytes(layout, field, true, false);
        break;
    case DP_OP_REDUCE:
        sum->sent += dp_grad_bytes(layout, field);
        break;
    case DP_OP_SUM:
        sum->received += dp_grad_bytes(layout, field);
        break;
    case DP_OP_DROP:
    case DP_OP_INIT:
    case DP_OP_MARK:
    case DP_OP_KINDS:
        break;
    }
}

dp_passing dp_op_passing(const dp_layout *layout, const dp_op *op)
{
    dp_passing sum = {0};
    add_op(layout, op, &sum);
    return sum;
}

static void add_ops(const dp_layout *layout, const dp_ops *ops, dp_passing *sum)
{
    for (uint32_t i = 0; i < ops->count; i++)
        add_op(layout, &ops->items[i], sum);
}

dp_passing dp_slice_passing(const dp_layout *layout, const dp_slice *slice)
{
    dp_passing sum = {0};
    add_ops(layout, &slice->release, &sum);
    add_ops(layout, &slice->fill, &sum);
    add_ops(layout, &slice->after, &sum);
    return sum;
}

dp_traffic dp_passing_traffic(const dp_passing *all)
{
    return (dp_traffic){all->up + all->request + all->sent, all->down + all->received};
}

double dp_passing_cost_s(const dp_passing *all, const dp_link *link)
{
    return (double)all->up / link->up_bytes_per_s + (double)all->down / link->down_bytes_per_s;
}

static void add_handed(const dp_layout *layout, const dp_link *links, const uint8_t *box_of,
                       uint32_t worker, const dp_ops *ops, dp_handed *sum)
{
    for (uint32_t i = 0; i < ops->count; i++) {
        const dp_op *op = &ops->items[i];
        if (op->kind != DP_OP_RECV && op->kind != DP_OP_SUM)
            continue;
        const uint64_t bytes = dp_op_passing(layout, op).received;
        sum->rows += op->kind == DP_OP_RECV;
        sum->gradients += op->kind == DP_OP_SUM;
        sum->bytes += bytes;
        uint32_t from = op->peer, to = worker;
        if (box_of) {
            from = box_of[from];
            to = box_of[to];
        }
        if (from != to)
            sum->cost_s +=
                (double)bytes / fmin(links[from].up_bytes_per_s, links[to].down_bytes_per_s);
    }
}

dp_handed dp_slice_handed(const dp_layout *layout, const dp_link *links, const uint8_t *box_of,
                          uint32_t worker, const dp_slice *slice)
{
    dp_handed sum = {0};
    add_handed(layout, links, box_of, worker, &slice->fill, &sum);
    add_handed(layout, links, box_of, worker, &slice->after, &sum);
    return sum;
}

void dp_handed_add(dp_handed *sum, const dp_handed *one)
{
    sum->rows += one->rows;
    sum->gradients += one->gradients;
    sum->bytes += one->bytes;
    sum->cost_s += one->cost_s;
}
