#include "edge_worker/ew_run.h"

#include <inttypes.h>
#include <math.h>

#include "bandwidth_probe/bw_table.h"

static rt_status measure_box(const ew_links_config *config, const uint32_t *box_of, uint32_t box,
                             rt_wire_link *link, rt_error *error)
{
    bw_result result;
    bw_stream_end streams[RT_SHARDS_MAX];
    bw_probe_config probe = {.ops = config->ops,
                             .streams = streams,
                             .turn_s = config->turn_s,
                             .silence_s = config->silence_s,
                             .progress = config->progress,
                             .context = config->context};
    for (uint32_t s = box; s < config->shard_count; s++) {
        if (box_of[s] == box)
            streams[probe.stream_count++] =
                (bw_stream_end){config->shards[s], config->self,
                                rt_peer(RT_ROLE_PS, rt_bit_at(config->shards_in, s))};
    }
    rt_status status = bw_probe_run(&probe, &result, error);
    if (status == RT_NOT_FOUND)
        return rt_fail(error, RT_PEER, "PS shard %" PRIu32 ", or one on its box, is gone", box);
    if (status)
        return status;
    for (uint32_t s = box; s < config->shard_count; s++) {
        if (box_of[s] != box)
            continue;
        bw_passive_timed(config->passive, s, BW_UP, result.up_us, rt_now_ns() / 1000);
        bw_passive_timed(config->passive, s, BW_DOWN, result.down_us, rt_now_ns() / 1000);
    }
    *link = (rt_wire_link){.shard = box,
                           .streams = probe.stream_count,
                           .up_bytes_per_s = result.up.bytes_per_s,
                           .down_bytes_per_s = result.down.bytes_per_s,
                           .up_spread = result.up.spread,
                           .down_spread = result.down.spread,
                           .rtt_s = result.rtt_s};
    return RT_OK;
}

// Of boxes, the worker's own is not beyond its link. Where there is no other, nothing is measured.
static bool is_own(const ew_links_config *config, const uint32_t *box_of, uint32_t box)
{
    for (uint32_t s = box; s < config->shard_count; s++)
        if (box_of[s] == box && config->passive->local >> s & 1)
            return true;
    return false;
}

// The best box shows what the worker's own link carries.
static void tell_rates(const ew_links_config *config, const rt_wire_link *links, uint32_t count)
{
    double best[BW_WAYS] = {0};
    for (uint32_t i = 0; i < count; i++) {
        best[BW_UP] = fmax(best[BW_UP], links[i].up_bytes_per_s);
        best[BW_DOWN] = fmax(best[BW_DOWN], links[i].down_bytes_per_s);
    }
    bw_passive_probed(config->passive, BW_UP, best[BW_UP]);
    bw_passive_probed(config->passive, BW_DOWN, best[BW_DOWN]);
}

rt_status ew_links_measure(const ew_links_config *config, rt_wire_link *links, uint32_t *count,
                           rt_error *error)
{
    uint32_t box_of[RT_SHARDS_MAX];
    *count = 0;
    bw_boxes(config->addresses, config->shard_count, box_of);
    for (uint32_t s = 0; s < config->shard_count; s++) {
        if (box_of[s] != s || is_own(config, box_of, s))
            continue;
        const rt_status status = measure_box(config, box_of, s, &links[(*count)++], error);
        if (status)
            return status;
    }
    if (*count)
        tell_rates(config, links, *count);
    return RT_OK;
}
