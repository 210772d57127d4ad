#include "dispatch/cost/dp_view.h"

#include <string.h>

// Per sample: start from "pull everything everywhere"; then every key that somebody holds takes its
// pull (and, if dirty, the push that all others would cause) off the holder's column. One byte per
// look-up decides, so a batch costs O(look-ups + samples x workers).

static void add_replicated(const dp_view *view, const dp_distinct *key, int32_t *row)
{
    const int32_t *pull = view->ticks->pull[key->field];
    const int32_t *push = view->ticks->push[key->field];
    const int32_t *evict = view->evict;
    int32_t cheapest = 0;
    if (key->dirty) { // any holder can push; the planner chooses the cheapest
        cheapest = INT32_MAX;
        for (uint64_t rest = key->holders; rest; rest &= rest - 1) {
            int32_t cost = push[rt_lowest_bit(rest)];
            cheapest = cost < cheapest ? cost : cheapest;
        }
        for (uint32_t j = 0; j < view->worker_count; j++)
            row[j] += cheapest;
    }
    for (uint64_t rest = key->holders; rest; rest &= rest - 1) {
        uint32_t j = rt_lowest_bit(rest);
        row[j] -= pull[j] + cheapest + (evict ? evict[j] : 0);
    }
}

static void sample_row(const dp_view *view, uint32_t begin, uint32_t end, int32_t *row)
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
            add_replicated(view, &view->distinct[index], row);
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

void dp_cost_matrix(const dp_view *view, int32_t *cost, uint32_t stride)
{
    const dp_ticks *ticks = view->ticks;
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
        sample_row(view, begin, end, row);
    }
}
