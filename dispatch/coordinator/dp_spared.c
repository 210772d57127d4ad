// A worker is lost, and the run goes on without it, from where it is. See dp_lost.h.
#include <time.h>

#include "dispatch/coordinator/dp_run.h"
#include "runtime/rt_log.h"

// What is under way waits for it no longer: it had nothing to do there.
static void stop_waiting_for(dp_run *c, uint32_t worker)
{
    dp_flight *f;
    while ((f = dp_flights_awaited(&c->flights, worker))) {
        f->reported |= rt_bit(worker);
        f->planned->left_out |= rt_bit(worker);
    }
    c->lost.gone |= rt_bit(worker);
    dp_cut_lose(&c->cut, worker);
    dp_prober_lose(&c->prober, worker);
}

static bool may_go(const dp_run *c, uint32_t worker)
{
    const uint64_t bit = rt_bit(worker);
    const bool trains = c->phase == DP_RUN_TRAINS || c->phase == DP_RUN_DRAINS;
    return trains && c->configs.whole.on_worker_loss == RT_LOSS_SHRINK &&
           c->configs.part.dispatch.participants != RT_PARTICIPANTS_ALL &&
           !rt_dispatch_is_mutual(&c->configs.part.dispatch) && (dp_run_workers(c) & ~bit) != 0 &&
           dp_lost_is_spare(&c->lost, worker);
}

// For who waits to be taken back, and the next start.
static void note(dp_run *c, uint32_t rank)
{
    if (!*c->checkpoints)
        return;
    dp_flaps_note(&c->flaps, rank, time(NULL));
    dp_flaps_write(&c->flaps, c->checkpoints);
}

bool dp_run_spares(void *context, uint32_t worker, const char *why)
{
    dp_run *c = context;
    const dp_input input = {.kind = DP_INPUT_LOST, .worker = worker, .value = 1};
    const uint32_t rank = rt_bit_at(dp_roster_workers(c->roster), worker);
    if (!may_go(c, worker))
        return false;
    rt_warn("%s; it sat out, and had nothing that others lack: the run goes on without it", why);
    stop_waiting_for(c, worker);
    dp_feed_tell(c->feed, &input);
    note(c, rank);
    dp_run_put_off_taking_back(c);
    rt_json *json = rt_metrics_begin(dp_tally_metrics(c->tally), "lost");
    rt_json_u64(json, "worker", rank);
    rt_json_string(json, "why", why);
    rt_metrics_end(dp_tally_metrics(c->tally));
    return true;
}
