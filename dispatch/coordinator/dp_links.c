#include "dispatch/coordinator/dp_links.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "runtime/rt_log.h"

void dp_links_init(const rt_config *config, dp_links *links)
{
    *links = (dp_links){.boxes_told = config->box_count > 0};
    bw_table_init(config, &links->table);
}

void dp_links_place(dp_links *links, const char (*addresses)[RT_ADDRESS_MAX])
{
    bw_boxes(addresses, links->table.shard_count, links->table.box_of);
}

void dp_links_resume(dp_links *links, const dp_planner *planner)
{
    bw_table *table = &links->table;
    const double ps = dp_planner_value(planner, DP_INPUT_PS_LINK, 0);
    for (uint32_t w = 0; w < table->worker_count; w++) {
        table->links[w][BW_UP].bytes_per_s = dp_planner_value(planner, DP_INPUT_LINK_UP, w);
        table->links[w][BW_DOWN].bytes_per_s = dp_planner_value(planner, DP_INPUT_LINK_DOWN, w);
    }
    table->ps[BW_UP].bytes_per_s = table->ps[BW_DOWN].bytes_per_s = ps;
    for (uint32_t s = 0; s < table->shard_count; s++)
        bw_table_set_shard_rate(table, s, dp_planner_value(planner, DP_INPUT_SHARD_LINK, s));
}

static void tell_link(const dp_links *links, uint32_t worker, bw_way way, double before,
                      dp_feed *feed)
{
    const dp_input input = {.kind = way == BW_UP ? DP_INPUT_LINK_UP : DP_INPUT_LINK_DOWN,
                            .worker = worker,
                            .value = bw_table_rate(&links->table, worker, way)};
    rt_info("link of worker %" PRIu32 ", %s: %.1f -> %.1f Mbit/s, as measured", worker,
            way == BW_UP ? "up" : "down", before * 8e-6, input.value * 8e-6);
    dp_feed_tell(feed, &input);
}

static void tell_changes(const dp_links *links, const bw_table *before, const bw_changes *changes,
                         dp_feed *feed)
{
    for (bw_way way = 0; way < BW_WAYS; way++) {
        for (uint64_t rest = changes->links[way]; rest; rest &= rest - 1) {
            const uint32_t j = rt_lowest_bit(rest);
            tell_link(links, j, way, bw_table_rate(before, j, way), feed);
        }
    }
    for (uint64_t rest = changes->shards; rest; rest &= rest - 1) {
        const uint32_t s = rt_lowest_bit(rest);
        const dp_input input = {.kind = DP_INPUT_SHARD_LINK,
                                .worker = s,
                                .value = bw_table_shard_rate(&links->table, s)};
        rt_info("link of PS shard %" PRIu32 ": %.1f Mbit/s of its box are left for it, as measured",
                s, input.value * 8e-6);
        dp_feed_tell(feed, &input);
    }
    if (changes->ps) {
        const dp_input input = {.kind = DP_INPUT_PS_LINK, .value = bw_table_ps_rate(&links->table)};
        rt_info("link of the parameter servers: %.1f Mbit/s, as measured", input.value * 8e-6);
        dp_feed_tell(feed, &input);
    }
}

// ---- probes ----------------------------------------------------------------------------------

static bool is_rate(double bytes_per_s)
{
    return isfinite(bytes_per_s) && bytes_per_s >= 0;
}

rt_status dp_links_take(dp_links *links, uint32_t peer, const rt_message *message, rt_error *error)
{
    char name[32];
    const uint32_t count = rt_message_header(message)->count, worker = rt_peer_rank(peer);
    rt_peer_name(peer, name);
    if (rt_peer_role(peer) != RT_ROLE_WORKER || worker >= links->table.worker_count ||
        (count == 0 && !links->boxes_told) || count > links->table.shard_count ||
        !rt_control_has(message, count * sizeof(rt_wire_link)))
        return rt_fail(error, RT_WIRE, "%s: a LINK of %zu bytes with %" PRIu32 " boxes", name,
                       message->size - sizeof(rt_wire_header), count);
    memcpy(links->probes[worker], rt_message_payload(message), count * sizeof(rt_wire_link));
    links->probe_counts[worker] = 0;
    for (uint32_t i = 0; i < count; i++) {
        const rt_wire_link *one = &links->probes[worker][i];
        if (one->shard >= links->table.shard_count ||
            (i > 0 && one->shard <= links->probes[worker][i - 1].shard) ||
            !is_rate(one->up_bytes_per_s) || !is_rate(one->down_bytes_per_s) ||
            !is_rate(one->rtt_s))
            return rt_fail(error, RT_WIRE, "%s: a LINK to shard %" PRIu32 " that cannot be", name,
                           one->shard);
        rt_debug("%s measured %.1f Mbit/s up, %.1f down, %.3f ms to the box of shard %" PRIu32,
                 name, one->up_bytes_per_s * 8e-6, one->down_bytes_per_s * 8e-6, one->rtt_s * 1e3,
                 one->shard);
    }
    links->probe_counts[worker] = count;
    return RT_OK;
}

static void write_probe(const dp_links *links, uint32_t worker, const rt_wire_link *probe,
                        rt_metrics *metrics)
{
    rt_json *json = rt_metrics_begin(metrics, "probe");
    rt_json_u64(json, "worker", worker);
    rt_json_u64(json, "shard", probe->shard);
    rt_json_u64(json, "streams", probe->streams);
    rt_json_double(json, "up", probe->up_bytes_per_s);
    rt_json_double(json, "down", probe->down_bytes_per_s);
    rt_json_double(json, "up_spread", probe->up_spread);
    rt_json_double(json, "down_spread", probe->down_spread);
    rt_json_double(json, "rtt_ms", probe->rtt_s * 1e3);
    rt_json_u64(json, "version", links->table.version);
    rt_json_u64(json, "iteration", links->iteration);
    rt_metrics_end(metrics);
}

void dp_links_tell(dp_links *links, uint32_t worker, dp_feed *feed, rt_metrics *metrics)
{
    bw_changes changes;
    bw_reading readings[RT_SHARDS_MAX];
    const bw_table before = links->table;
    const uint32_t count = links->probe_counts[worker];
    if (count == 0)
        return;
    for (uint32_t i = 0; i < count; i++) {
        const rt_wire_link *one = &links->probes[worker][i];
        readings[i] = (bw_reading){.shard = one->shard,
                                   .ways = {one->up_bytes_per_s, one->down_bytes_per_s},
                                   .rtt_s = one->rtt_s};
    }
    links->probe_counts[worker] = 0;
    bw_table_probed(&links->table, worker, readings, count, &changes);
    tell_changes(links, &before, &changes, feed);
    for (uint32_t i = 0; i < count; i++)
        write_probe(links, worker, &links->probes[worker][i], metrics);
}

// ---- transfers -------------------------------------------------------------------------------

void dp_links_reported(dp_links *links, uint32_t worker, const rt_wire_report *report)
{
    links->estimates[worker] =
        (bw_rates){.ways = {report->up_bytes_per_s, report->down_bytes_per_s},
                   .at_least = {report->up_at_least, report->down_at_least}};
}

static void write_way(const dp_links *links, const char *name, bw_way way, rt_json *json)
{
    const uint32_t count = links->table.worker_count;
    rt_json_begin_object(json, name);
    rt_json_begin_array(json, "in_force");
    for (uint32_t j = 0; j < count; j++)
        rt_json_double(json, NULL, bw_table_rate(&links->table, j, way));
    rt_json_end_array(json);
    rt_json_begin_array(json, "estimate");
    for (uint32_t j = 0; j < count; j++)
        rt_json_double(json, NULL, links->estimates[j].ways[way]);
    rt_json_end_array(json);
    rt_json_begin_array(json, "at_least");
    for (uint32_t j = 0; j < count; j++)
        rt_json_double(json, NULL, links->estimates[j].at_least[way]);
    rt_json_end_array(json);
    rt_json_end_object(json);
}

static void write_iteration(const dp_links *links, uint32_t iteration, rt_metrics *metrics)
{
    const bw_table *table = &links->table;
    rt_json *json = rt_metrics_begin(metrics, "links");
    rt_json_u64(json, "iteration", iteration);
    rt_json_u64(json, "version", table->version);
    write_way(links, "up", BW_UP, json);
    write_way(links, "down", BW_DOWN, json);
    rt_json_begin_array(json, "rtt_ms");
    for (uint32_t j = 0; j < table->worker_count; j++)
        rt_json_double(json, NULL, table->rtt_s[j] * 1e3);
    rt_json_end_array(json);
    rt_json_double(json, "ps", bw_table_ps_rate(table));
    rt_json_begin_array(json, "shards");
    for (uint32_t s = 0; s < table->shard_count; s++)
        rt_json_double(json, NULL, bw_table_shard_rate(table, s));
    rt_json_end_array(json);
    rt_metrics_end(metrics);
}

void dp_links_iterated(dp_links *links, uint32_t iteration, dp_feed *feed, rt_metrics *metrics)
{
    bw_changes changes;
    const bw_table before = links->table;
    links->iteration = iteration;
    if (before.pinned)
        return;
    bw_table_estimated(&links->table, links->estimates, &changes);
    tell_changes(links, &before, &changes, feed);
    write_iteration(links, iteration, metrics);
    memset(links->estimates, 0, sizeof links->estimates);
}

// ---- probes while a run goes on --------------------------------------------------------------

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
