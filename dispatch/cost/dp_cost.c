#include "dispatch/cost/dp_view.h"

#include <string.h>

// Per sample: start from "pull everything everywhere"; then every key that somebody holds takes its
// pull (and, if dirty, the pushes that all others would cause) off the holders' columns. One byte
// per look-up decides, so a batch costs O(look-ups + samples x workers), and a pass over the
// holders where there are several.

#define GROUP 4u // workers whose holder bits are looked up together

// All ones where bit k of the index is set: popular keys are held by many workers, and a loop over
// the bits of a mask costs more than all the additions.
typedef struct {
    int32_t of[1u << GROUP][GROUP];
} lane_masks;

static lane_masks make_masks(void)
{
    lane_masks masks;
    for (uint32_t bits = 0; bits < 1u << GROUP; bits++) {
        for (uint32_t k = 0; k < GROUP; k++)
            masks.of[bits][k] = -(int32_t)(bits >> k & 1);
    }
    return masks;
}

// Tables by worker have RT_WORKERS_MAX members, so that a sum may run past the last worker.
static void add_replicated(const dp_view *view, const dp_distinct *key, const lane_masks *masks,
                           int32_t *row)
{
    static const int32_t none[RT_WORKERS_MAX] = {0};
    const int32_t *pull = view->ticks->pull[key->field];
    const int32_t *push = view->ticks->push[key->field];
    const int32_t *evict = view->evict ? view->evict : none;
    const uint32_t n = view->worker_count;
    int32_t sums[GROUP] = {0};
    for (uint32_t j = 0; j < n && key->dirty; j += GROUP) {
        const int32_t *mask = masks->of[key->holders >> j & ((1u << GROUP) - 1)];
        for (uint32_t k = 0; k < GROUP; k++)
            sums[k] += push[j + k] & mask[k];
    }
    const int32_t pushes = sums[0] + sums[1] + sums[2] + sums[3];
    uint32_t j = 0;
    for (; j + GROUP <= n; j += GROUP) {
        const int32_t *mask = masks->of[key->holders >> j & ((1u << GROUP) - 1)];
        for (uint32_t k = 0; k < GROUP; k++)
            row[j + k] += pushes - ((pull[j + k] + pushes + evict[j + k]) & mask[k]);
    }
    for (; j < n; j++) {
        if (key->holders >> j & 1)
            row[j] -= pull[j] + evict[j];
        else
            row[j] += pushes;
    }
}

static void sample_row(const dp_view *view, uint32_t begin, uint32_t end, const lane_masks *masks,
                       int32_t *row)
{
    const dp_ticks *ticks = view->ticks;
    const int32_t *evict = view->evict;
    int32_t everywhere = 0;
    for (uint32_t k = begin; k < end; k++) {
        uint32_t index = view->lookups[k];
        uint32_t held = view->held[index];
        if (held == DP_HELD_BY_NONE)
            continue;
        uint32_t field = view->uniform ? k - begin : view->distinct[index].field;
        if (RT_UNLIKELY(held == DP_HELD_BY_MANY)) {
            add_replicated(view, &view->distinct[index], masks, row);
            continue;
        }
        uint32_t owner = held & DP_HELD_WORKER;
        int32_t push = held & DP_HELD_CLEAN ? 0 : ticks->push[field][owner];
        everywhere += push;
        row[owner] -= push + ticks->pull[field][owner] + (evict ? evict[owner] : 0);
    }
    for (uint32_t j = 0; j < view->worker_count; j++)
        row[j] += everywhere;
}

// Bounded staleness: a worker pushes the copy that it has before it pulls it anew.
static void add_owed(const dp_view *view, uint32_t begin, uint32_t end, int32_t *row)
{
    for (uint32_t k = begin; k < end; k++) {
        const uint32_t index = view->lookups[k];
        const int32_t *push = view->ticks->push[view->distinct[index].field];
        for (uint64_t rest = view->owed[index]; rest; rest &= rest - 1)
            row[rt_lowest_bit(rest)] += push[rt_lowest_bit(rest)];
    }
}

void dp_cost_matrix(const dp_view *view, int32_t *cost, uint32_t stride)
{
    const dp_ticks *ticks = view->ticks;
    const lane_masks masks = make_masks();
    uint32_t n = view->worker_count;
    int32_t base[RT_WORKERS_MAX] = {0};
    for (uint32_t f = 0; f < ticks->field_count; f++) {
        for (uint32_t j = 0; j < n; j++)
            base[j] += ticks->pull[f][j] + (view->evict ? view->evict[j] : 0);
    }
    for (uint32_t i = 0; i < view->sample_count; i++) {
        int32_t *row = cost + (size_t)i * stride;
        uint32_t begin = view->offsets[i], end = view->offsets[i + 1];
        if (view->uniform) {
            memcpy(row, base, n * sizeof *row);
        } else {
            memset(row, 0, n * sizeof *row);
            for (uint32_t k = begin; k < end; k++) {
                const int32_t *pull = ticks->pull[view->distinct[view->lookups[k]].field];
                for (uint32_t j = 0; j < n; j++)
                    row[j] += pull[j] + (view->evict ? view->evict[j] : 0);
            }
        }
        sample_row(view, begin, end, &masks, row);
        if (view->owed)
            add_owed(view, begin, end, row);
    }
}
