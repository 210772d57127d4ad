// A worker is lost, and the run goes on without it, from where it is (docs/PROTOCOL.md, "A worker
// that is lost").
#include <time.h>

#include "dispatch/coordinator/dp_run.h"
#include "runtime/rt_log.h"

static bool may_go(const dp_run *c, uint32_t worker)
{
    const uint64_t bit = rt_bit(worker);
    const bool trains = c->phase == DP_RUN_TRAINS || c->phase == DP_RUN_DRAINS;
    return trains && c->site_config.on_worker_loss == RT_LOSS_SHRINK &&
           c->run_config.dispatch.participants != RT_PARTICIPANTS_ALL &&
           !rt_dispatch_is_mutual(&c->run_config.dispatch) && (dp_run_workers(c) & ~bit) != 0 &&
           dp_membership_can_spare(dp_roster_members(c->roster), worker);
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
    dp_membership *members = dp_roster_members(c->roster);
    const uint32_t rank = rt_bit_at(members->worker_places, worker);
    if (!may_go(c, worker))
        return false;
    rt_warn("%s; it sat out, and had nothing that others lack: the run goes on without it", why);
    dp_membership_lose(members, worker);
    dp_cut_lose(&c->cut, worker);
    dp_feed_tell(c->feed, &input);
    note(c, rank);
    dp_run_put_off_taking_back(c);
    rt_json *json = rt_metrics_begin(dp_tally_metrics(c->tally), "lost");
    rt_json_u64(json, "worker", rank);
    rt_json_string(json, "why", why);
    rt_metrics_end(dp_tally_metrics(c->tally));
    return true;
}
