#include "dispatch/coordinator/dp_prober.h"

#include <inttypes.h>
#include <math.h>

#include "runtime/rt_log.h"

#define NS_PER_S 1e9

static double since_s(uint64_t then_ns, uint64_t now_ns)
{
    return now_ns > then_ns ? (double)(now_ns - then_ns) / NS_PER_S : 0;
}

void dp_prober_init(dp_prober *prober, uint64_t now_ns)
{
    for (uint32_t w = 0; w < prober->worker_count; w++)
        prober->workers[w] = (dp_prober_worker){{now_ns, now_ns}, now_ns, 1};
    prober->counted_ns = now_ns;
    prober->allowance_s = DP_PROBER_SAVED_S;
}

void dp_prober_reported(dp_prober *prober, uint32_t worker, const rt_wire_report *report,
                        uint64_t now_ns)
{
    if (report->up_bytes_per_s > 0)
        prober->workers[worker].told_ns[BW_UP] = now_ns;
    if (report->down_bytes_per_s > 0)
        prober->workers[worker].told_ns[BW_DOWN] = now_ns;
}

static uint64_t workers_of(const dp_prober *p)
{
    return dp_membership_workers(dp_roster_members(p->roster));
}

static uint64_t due(const dp_prober *p, uint64_t now_ns)
{
    uint64_t mask = 0;
    for (uint64_t rest = workers_of(p); rest; rest &= rest - 1) {
        const uint32_t w = rt_lowest_bit(rest);
        const dp_prober_worker *one = &p->workers[w];
        const uint64_t told = rt_min_u64(one->told_ns[BW_UP], one->told_ns[BW_DOWN]);
        const bool doubted =
            bw_table_doubts(&p->links->table, w) &&
            since_s(one->probed_ns, now_ns) >= DP_PROBER_SOON * p->every_s * one->back_off;
        const bool unknown = since_s(rt_max_u64(told, one->probed_ns), now_ns) >= p->every_s;
        if (doubted || unknown)
            mask |= rt_bit(w);
    }
    return mask;
}

static void count_allowance(dp_prober *p, uint64_t now_ns)
{
    p->allowance_s =
        fmin(DP_PROBER_SAVED_S, p->allowance_s + DP_PROBER_SHARE * since_s(p->counted_ns, now_ns));
    p->counted_ns = now_ns;
}

static rt_status ask(dp_prober *p, uint32_t worker, rt_message_type type, uint64_t number,
                     rt_error *error)
{
    rt_message message;
    if (rt_message_create(&message, type, p->sender, number, 0, 0))
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    return dp_roster_send(p->roster, rt_peer(RT_ROLE_WORKER, worker), &message, error);
}

static rt_status drain(dp_prober *p, uint64_t now_ns, rt_error *error)
{
    p->begin_ns = now_ns;
    p->drains = true;
    p->marks = 0;
    p->number++;
    for (uint64_t rest = workers_of(p); rest; rest &= rest - 1) {
        const rt_status status = ask(p, rt_lowest_bit(rest), RT_MESSAGE_MARK, p->number, error);
        if (status)
            return status;
    }
    return RT_OK;
}

static uint32_t longest_unprobed(const dp_prober *p)
{
    uint32_t best = rt_lowest_bit(p->wanted);
    for (uint64_t rest = p->wanted; rest; rest &= rest - 1) {
        const uint32_t w = rt_lowest_bit(rest);
        if (p->workers[w].probed_ns < p->workers[best].probed_ns)
            best = w;
    }
    return best;
}

static void close_pause(dp_prober *p, uint64_t now_ns)
{
    const double pause_s = since_s(p->begin_ns, now_ns);
    p->open = p->drains = false;
    p->allowance_s -= pause_s;
    rt_debug("training paused for %.2f s to measure links", pause_s);
}

rt_status dp_prober_step(dp_prober *p, bool may_begin, bool quiet, uint64_t now_ns, rt_error *error)
{
    if (p->every_s <= 0 || p->links->table.pinned)
        return RT_OK;
    count_allowance(p, now_ns);
    if (!p->open && (!may_begin || p->allowance_s <= 0))
        return RT_OK;
    if (!p->open) {
        p->wanted = due(p, now_ns);
        p->open = p->wanted != 0;
    }
    if (!p->open || !quiet)
        return RT_OK;
    if (!p->drains)
        return drain(p, now_ns, error);
    p->wanted &= workers_of(p);
    p->asked &= workers_of(p);
    if (p->asked || workers_of(p) & ~p->marks)
        return RT_OK;
    if (!p->wanted) {
        close_pause(p, now_ns);
        return RT_OK;
    }
    const uint32_t worker = longest_unprobed(p);
    p->asked = rt_bit(worker);
    return ask(p, worker, RT_MESSAGE_LINK, 0, error);
}

rt_status dp_prober_mark(dp_prober *p, uint32_t peer, const rt_message *message, rt_error *error)
{
    char name[32];
    const uint32_t worker = rt_peer_rank(peer);
    if (rt_peer_role(peer) != RT_ROLE_WORKER || !p->drains || p->marks >> worker & 1 ||
        rt_message_header(message)->iteration != p->number)
        return rt_fail(error, RT_WIRE, "%s: a MARK that nobody waits for",
                       rt_peer_name(peer, name));
    p->marks |= rt_bit(worker);
    return RT_OK;
}

// What transfers said is in force and the probe of the worker says something else.
static bool tell(const dp_prober *p, uint32_t worker)
{
    const bool doubted = bw_table_doubts(&p->links->table, worker);
    const uint64_t version = p->links->table.version;
    dp_links_tell(p->links, worker, p->feed, p->metrics);
    return doubted && p->links->table.version != version;
}

rt_status dp_prober_take(dp_prober *p, uint32_t peer, const rt_message *message, uint64_t now_ns,
                         rt_error *error)
{
    const uint32_t worker = rt_peer_rank(peer);
    const uint64_t bit = rt_bit(worker);
    rt_status status = dp_links_take(p->links, peer, message, error);
    if (status)
        return status;
    if (p->joined & bit && p->asked != bit)
        return rt_fail(error, RT_WIRE, "worker %" PRIu32 ": a LINK that nobody waits for", worker);
    dp_prober_worker *one = &p->workers[worker];
    if (p->feed && tell(p, worker))
        one->back_off = (uint32_t)rt_min_u64(2 * one->back_off, DP_PROBER_BACK_OFF);
    else
        one->back_off = 1;
    one->told_ns[BW_UP] = one->told_ns[BW_DOWN] = one->probed_ns = now_ns;
    p->joined |= bit;
    p->asked &= ~bit;
    p->wanted &= ~bit;
    if (p->open && since_s(p->begin_ns, now_ns) >= DP_PROBER_PAUSE_S)
        p->wanted = 0;
    return RT_OK;
}

dp_awaited dp_prober_awaited(const dp_prober *p)
{
    dp_awaited awaited = {.what = "has not measured its link", .number = p->number};
    if (p->drains)
        awaited.workers = workers_of(p) & (p->asked ? p->asked : ~p->marks);
    return awaited;
}

void dp_prober_stop(dp_prober *p)
{
    p->wanted &= p->asked;
}
