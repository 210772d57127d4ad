#include "dispatch/planner/dp_reduce.h"
#include "dispatch/cost/dp_ticks.h"
#include "dispatch/planner/dp_handover.h"
#include "dispatch/planner/dp_homes.h"

#define LINKS_MAX (RT_WORKERS_MAX + RT_SITE_BOXES_MAX)
_Static_assert(RT_WORKERS_MAX <= 64, "workers are bits");

// Ticks that every link is busy with, each way: those of workers and behind them that of the PS; or
// those of boxes.
typedef struct {
    const dp_planner *planner;
    uint32_t ps; // the link of the PS, where boxes are not told
    int64_t up[LINKS_MAX], down[LINKS_MAX];
} loads;

static uint32_t link_of(const loads *l, uint32_t worker)
{
    const dp_ticks *ticks = &l->planner->ticks;
    return ticks->box_count ? ticks->box_of[worker] : worker;
}

static uint32_t link_of_home(const loads *l, const dp_record *record)
{
    return l->planner->ticks.box_count ? dp_homes_box(l->planner, record, true) : l->ps;
}

static void begin(const dp_planner *planner, loads *l)
{
    const dp_ticks *ticks = &planner->ticks;
    *l = (loads){.planner = planner, .ps = planner->config.worker_count};
    for (uint32_t b = 0; b < ticks->box_count; b++) {
        l->up[b] = ticks->box_dense_up[b];
        l->down[b] = ticks->box_dense_down[b];
    }
    for (uint32_t j = 0; j < ticks->worker_count && !ticks->box_count; j++) {
        const bool trains = planner->participants >> j & 1;
        l->up[j] = trains ? ticks->dense_up[j] : 0;
        l->down[j] = trains ? ticks->dense_down[j] : 0;
    }
    if (!ticks->box_count)
        l->up[l->ps] = l->down[l->ps] = (int64_t)dp_ticks_shards(ticks, 0);
}

// Ticks of a gradient at the far end: a worker, or the PS.
static int64_t grad_in(const loads *l, uint32_t field, uint32_t link)
{
    const dp_ticks *ticks = &l->planner->ticks;
    if (ticks->box_count)
        return ticks->box_grad[field][link];
    return link == l->ps ? ticks->ps_grad[field] : ticks->pull[field][link];
}

static int64_t row_at_home(const loads *l, uint32_t field, uint32_t link, bool in)
{
    const dp_ticks *ticks = &l->planner->ticks;
    if (!ticks->box_count)
        return ticks->ps_row[field];
    return (in ? ticks->box_down : ticks->box_up)[field][link];
}

// What rows take that come before the training, whoever sums.
static void add_moves(loads *l, const dp_record *record, uint64_t trainers)
{
    const dp_planner *planner = l->planner;
    const dp_ticks *ticks = &planner->ticks;
    const uint32_t field = rt_key_field(record->key), home = link_of_home(l, record);
    const uint64_t holders = record->copies.holders;
    const bool dirty = record->version_ps < record->version && holders;
    const bool sends = dp_handover_is_better(planner, record, trainers);
    if (record->version == 0 && planner->config.dispatch.first_touch == RT_FIRST_TOUCH_LOCAL)
        return;
    if (dirty && trainers != holders) {
        const uint32_t from = rt_lowest_bit(holders), link = link_of(l, from);
        const bool is_away = sends ? link != link_of(l, rt_lowest_bit(trainers)) : link != home;
        if (is_away)
            l->up[link] += ticks->push[field][from];
        if (is_away && !sends)
            l->down[home] += row_at_home(l, field, home, true);
    }
    for (uint64_t rest = trainers & ~holders; rest; rest &= rest - 1) {
        const uint32_t to = rt_lowest_bit(rest), link = link_of(l, to);
        const uint32_t from = sends ? link_of(l, rt_lowest_bit(holders)) : home;
        if (link != from)
            l->down[link] += ticks->pull[field][to];
        if (link != from && !sends)
            l->up[home] += row_at_home(l, field, home, false);
    }
}

// What the busiest link has to do if all of `from` send a gradient to a link; adds them where
// `add`.
static int64_t busiest(loads *l, uint32_t field, uint64_t from, uint32_t to, bool add)
{
    const dp_ticks *ticks = &l->planner->ticks;
    int64_t longest = 0, in = 0;
    for (uint64_t rest = from; rest; rest &= rest - 1) {
        const uint32_t worker = rt_lowest_bit(rest), link = link_of(l, worker);
        if (link == to)
            continue;
        const int64_t up = l->up[link] + ticks->grad[field][worker];
        if (up > longest)
            longest = up;
        in += grad_in(l, field, to);
        if (add)
            l->up[link] = up;
    }
    const int64_t down = l->down[to] + in;
    if (add)
        l->down[to] = down;
    return down > longest ? down : longest;
}

// A summer that has no copy pulls the optimizer's state, too.
static int64_t state_ticks(const loads *l, const dp_record *record, uint32_t worker)
{
    const dp_ticks *ticks = &l->planner->ticks;
    const uint32_t field = rt_key_field(record->key);
    const int64_t more = (int64_t)ticks->pull[field][worker] - ticks->grad[field][worker];
    return record->copies.holders >> worker & 1 || more < 0 ? 0 : more;
}

static uint8_t choose_summer(loads *l, const dp_record *record, uint64_t trainers)
{
    const uint32_t field = rt_key_field(record->key), home = link_of_home(l, record);
    int64_t best = busiest(l, field, trainers, home, false);
    uint8_t summer = DP_NO_WORKER;
    for (uint64_t rest = trainers; rest; rest &= rest - 1) {
        const uint32_t worker = rt_lowest_bit(rest);
        const int64_t longest =
            busiest(l, field, trainers & ~rt_bit(worker), link_of(l, worker), false) +
            state_ticks(l, record, worker);
        if (longest >= best)
            continue;
        best = longest;
        summer = (uint8_t)worker;
    }
    if (summer == DP_NO_WORKER)
        busiest(l, field, trainers, home, true);
    else
        busiest(l, field, trainers & ~rt_bit(summer), link_of(l, summer), true);
    return summer;
}

void dp_reduce_choose(dp_planner *planner)
{
    dp_work *work = &planner->work;
    const uint32_t count = planner->view.distinct_count;
    const dp_record *records = planner->directory.records;
    uint32_t most = 0;
    loads l;
    begin(planner, &l);
    for (uint32_t d = 0; d < count; d++) {
        const uint64_t trainers = work->trainers[d];
        add_moves(&l, &records[work->distinct[d].record], trainers);
        if (rt_bit_count(trainers) > most)
            most = rt_bit_count(trainers);
    }
    for (; most > 1; most--) {
        for (uint32_t d = 0; d < count; d++) {
            if (rt_bit_count(work->trainers[d]) == most)
                work->summers[d] =
                    choose_summer(&l, &records[work->distinct[d].record], work->trainers[d]);
        }
    }
}

static rt_status add_op(dp_planner *planner, uint32_t worker, uint32_t row, dp_op_kind kind,
                        uint32_t other)
{
    dp_work *work = &planner->work;
    dp_slice *slice = &work->plan.slices[worker];
    const uint32_t d = work->row_keys[worker][row];
    dp_op *op = dp_ops_add(&slice->after, kind);
    if (!op)
        return RT_NO_MEMORY;
    op->key = work->distinct[d].key;
    op->mask = work->trainers[d];
    op->slot = slice->rows[row].slot;
    op->version = work->plan.iteration;
    op->base = work->distinct[d].version;
    op->peer = (uint8_t)other;
    return RT_OK;
}

rt_status dp_reduce_add(dp_planner *planner, uint32_t worker, uint32_t row)
{
    dp_work *work = &planner->work;
    const uint32_t d = work->row_keys[worker][row], summer = work->summers[d];
    if (worker != summer) {
        work->plan.slices[worker].rows[row].mode = DP_MODE_GRAD;
        return add_op(planner, worker, row, DP_OP_REDUCE, summer);
    }
    work->plan.slices[worker].rows[row].mode = DP_MODE_REDUCE;
    for (uint64_t rest = work->trainers[d] & ~rt_bit(summer); rest; rest &= rest - 1) {
        if (add_op(planner, worker, row, DP_OP_SUM, rt_lowest_bit(rest)))
            return RT_NO_MEMORY;
    }
    return RT_OK;
}
