#include "dispatch/cost/dp_site.h"

#include <math.h>
#include <string.h>

// A box without workers is known by what is left for each of its shards, in equal parts.
static void limit_by_shards(const dp_boxes *boxes, const dp_rates *rates, uint32_t box,
                            dp_link *link)
{
    double sum = 0;
    for (uint32_t s = 0; s < rates->shards.count; s++)
        if (boxes->of_shard[s] == box)
            sum += rates->shards.bytes_per_s[s];
    if (sum > 0)
        *link = (dp_link){sum, sum};
}

void dp_box_links(const dp_boxes *boxes, const dp_rates *rates, dp_link links[RT_SITE_BOXES_MAX])
{
    uint64_t measured = 0;
    memcpy(links, boxes->given, boxes->count * sizeof *links);
    for (uint32_t j = 0; j < boxes->worker_count; j++) {
        dp_link *link = &links[boxes->of_worker[j]];
        const dp_link *own = &rates->links[j];
        const bool first = !(measured >> boxes->of_worker[j] & 1);
        measured |= rt_bit(boxes->of_worker[j]);
        if (first) {
            *link = *own;
            continue;
        }
        link->up_bytes_per_s = fmax(link->up_bytes_per_s, own->up_bytes_per_s);
        link->down_bytes_per_s = fmax(link->down_bytes_per_s, own->down_bytes_per_s);
    }
    for (uint32_t b = 0; b < boxes->count; b++)
        if (!(measured >> b & 1))
            limit_by_shards(boxes, rates, b, &links[b]);
}

void dp_boxes_add_dense(const dp_boxes *boxes, const dp_shards *shards, uint64_t participants,
                        uint64_t bytes, dp_box_traffic *traffic)
{
    for (uint64_t rest = participants; rest && bytes; rest &= rest - 1) {
        const uint32_t here = boxes->of_worker[rt_lowest_bit(rest)];
        for (uint32_t s = 0; s < shards->dense_count; s++) {
            dp_box_traffic_pass(here, boxes->of_shard[s], bytes / shards->dense_count, traffic);
            dp_box_traffic_pass(boxes->of_shard[s], here, bytes / shards->dense_count, traffic);
        }
    }
}

double *dp_rates_at(dp_rates *rates, dp_input_kind kind, uint32_t index)
{
    switch (kind) {
    case DP_INPUT_LINK_UP:
        return &rates->links[index].up_bytes_per_s;
    case DP_INPUT_LINK_DOWN:
        return &rates->links[index].down_bytes_per_s;
    case DP_INPUT_COMPUTE:
        return &rates->compute_s_per_sample[index];
    case DP_INPUT_PS_LINK:
        return &rates->ps_bytes_per_s;
    case DP_INPUT_SHARD_LINK:
        return &rates->shards.bytes_per_s[index];
    case DP_INPUT_ALPHA:
    case DP_INPUT_SEARCH_EVALUATIONS:
    case DP_INPUT_TABLES:
    case DP_INPUT_PARTICIPATES:
    case DP_INPUT_ROWS_FLOOR:
    case DP_INPUT_POLICY:
    case DP_INPUT_FORGET:
    case DP_INPUT_LOST:
    case DP_INPUT_KINDS:
        break;
    }
    return NULL;
}
