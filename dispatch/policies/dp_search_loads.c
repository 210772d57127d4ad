// What a placement moves over every link: dp_search_loads.
#include <string.h>

#include "dispatch/policies/dp_search_parts.h"

// From a worker to the box of a row (up), or back. there: by box, what it costs that one's link.
static void add_passing(const dp_view *view, uint32_t worker, uint32_t box, bool up, int32_t own,
                        const int32_t *there, dp_loads *loads)
{
    const uint32_t here = view->ticks->box_of[worker];
    if (here == box || box == DP_NO_BOX)
        return;
    if (up) {
        loads->up[worker] += own;
        loads->box_up[here] += own;
        loads->box_down[box] += there[box];
    } else {
        loads->down[worker] += own;
        loads->box_down[here] += own;
        loads->box_up[box] += there[box];
    }
}

// As add_loads, where boxes are told. A row that is nowhere yet will be with one of its trainers,
// as will one that several train and none has at home, where homes are planned.
static void add_box_loads(const dp_view *view, uint32_t index, uint64_t users, dp_loads *loads)
{
    const dp_ticks *ticks = view->ticks;
    const dp_distinct *d = &view->distinct[index];
    const int32_t *row_up = ticks->box_up[d->field], *row_down = ticks->box_down[d->field];
    const int32_t *grad = ticks->box_grad[d->field];
    if (d->dirty && d->holders && users != d->holders) {
        const uint32_t owner = rt_lowest_bit(d->holders);
        add_passing(view, owner, d->box, true, ticks->push[d->field][owner], row_down, loads);
    }
    for (uint64_t rest = users & ~d->holders; rest; rest &= rest - 1) {
        const uint32_t j = rt_lowest_bit(rest);
        add_passing(view, j, d->box, false, ticks->pull[d->field][j], row_up, loads);
    }
    if (!(users & (users - 1)) && !view->always_summed)
        return;
    uint32_t box = d->box;
    if (box == DP_NO_BOX)
        box = ticks->box_of[rt_lowest_bit(users)];
    for (uint64_t rest = users; rest; rest &= rest - 1) {
        const uint32_t j = rt_lowest_bit(rest);
        add_passing(view, j, box, true, ticks->grad[d->field][j], grad, loads);
    }
}

static void add_loads(const dp_view *view, uint32_t index, uint64_t users, dp_loads *loads)
{
    const dp_ticks *ticks = view->ticks;
    if (ticks->box_count) {
        add_box_loads(view, index, users, loads);
        return;
    }
    const dp_distinct *d = &view->distinct[index];
    bool dirty = d->dirty && d->holders;
    if (dirty && users != d->holders) {
        uint32_t owner = rt_lowest_bit(d->holders);
        loads->up[owner] += ticks->push[d->field][owner];
        loads->ps_up += ticks->ps_row[d->field];
    }
    for (uint64_t rest = users & ~d->holders; rest; rest &= rest - 1) {
        uint32_t j = rt_lowest_bit(rest);
        loads->down[j] += ticks->pull[d->field][j];
        loads->ps_down += ticks->ps_row[d->field];
    }
    if (view->owed) {
        for (uint64_t rest = users & view->owed[index]; rest; rest &= rest - 1) {
            loads->up[rt_lowest_bit(rest)] += ticks->push[d->field][rt_lowest_bit(rest)];
            loads->ps_up += ticks->ps_row[d->field];
        }
        return;
    }
    if (!(users & (users - 1)) && !view->always_summed)
        return;
    for (uint64_t rest = users; rest; rest &= rest - 1) {
        uint32_t j = rt_lowest_bit(rest);
        loads->up[j] += ticks->grad[d->field][j];
        loads->ps_up += ticks->ps_grad[d->field];
    }
}

typedef struct {
    const dp_search *s;
    dp_loads *loads; // by part
    uint64_t busy;   // workers with samples
    uint32_t part_count;
} adding;

// Keys outside the search have more than USES_MAX samples: they are trained wherever there are any.
static void add_keys(const adding *all, uint32_t part, dp_loads *loads)
{
    const dp_search *s = all->s;
    const dp_view *view = s->view;
    const uint32_t count = view->distinct_count;
    const uint32_t end = dp_search_part_begin(count, part + 1, all->part_count);
    for (uint32_t d = dp_search_part_begin(count, part, all->part_count); d < end; d++) {
        if (s->shared_of[d] != NONE)
            add_loads(view, d, s->keys[s->shared_of[d]].users, loads);
        else if (view->distinct[d].uses > USES_MAX)
            add_loads(view, d, all->busy, loads);
    }
}

static void add_some(void *context, uint32_t part)
{
    const adding *all = context;
    const dp_search *s = all->s;
    const dp_view *view = s->view;
    dp_loads *loads = &all->loads[part];
    const uint32_t end = dp_search_part_begin(s->sample_count, part + 1, all->part_count);
    memset(loads, 0, sizeof *loads);
    add_keys(all, part, loads);
    for (uint32_t i = dp_search_part_begin(s->sample_count, part, all->part_count); i < end; i++) {
        for (uint32_t at = view->offsets[i]; at < view->offsets[i + 1]; at++) {
            if (view->distinct[view->lookups[at]].uses == 1)
                add_loads(view, view->lookups[at], rt_bit(s->worker_of[i]), loads);
        }
    }
}

static void add_part(const dp_search *s, const dp_loads *part, dp_loads *loads)
{
    for (uint32_t j = 0; j < s->worker_count; j++) {
        loads->up[j] += part->up[j];
        loads->down[j] += part->down[j];
    }
    for (uint32_t b = 0; b < s->view->ticks->box_count; b++) {
        loads->box_up[b] += part->box_up[b];
        loads->box_down[b] += part->box_down[b];
    }
    loads->ps_up += part->ps_up;
    loads->ps_down += part->ps_down;
}

void dp_search_loads(dp_search *s, dp_loads *loads)
{
    adding all = {.s = s, .loads = s->part_loads, .part_count = dp_search_parts(s->view)};
    for (uint32_t j = 0; j < s->worker_count; j++)
        if (s->loads[j])
            all.busy |= rt_bit(j);
    rt_pool_run(s->view->pool, all.part_count, add_some, &all);
    memset(loads, 0, sizeof *loads);
    memcpy(loads->samples, s->loads, sizeof loads->samples);
    memcpy(loads->rows, s->rows, sizeof loads->rows);
    for (uint32_t part = 0; part < all.part_count; part++)
        add_part(s, &all.loads[part], loads);
}
