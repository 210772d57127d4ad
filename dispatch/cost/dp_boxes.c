#include "dispatch/cost/dp_boxes.h"

#include <math.h>

#include "dispatch/cost/dp_ticks.h"

void dp_box_traffic_add(const dp_box_traffic *one, uint32_t box_count, dp_box_traffic *sum)
{
    for (uint32_t b = 0; b < box_count; b++) {
        sum->up[b] += one->up[b];
        sum->down[b] += one->down[b];
        sum->rows_up[b] += one->rows_up[b];
        sum->rows_down[b] += one->rows_down[b];
    }
}

static void add_row(uint32_t from, uint32_t to, uint64_t bytes, dp_box_traffic *traffic)
{
    if (from == to || bytes == 0)
        return;
    dp_box_traffic_pass(from, to, bytes, traffic);
    traffic->rows_up[from]++;
    traffic->rows_down[to]++;
}

static void add_ops(const dp_boxes *boxes, const dp_layout *layout, uint32_t shard_count,
                    uint32_t worker, const dp_ops *ops, dp_box_traffic *traffic)
{
    const uint32_t here = boxes->of_worker[worker];
    for (uint32_t i = 0; i < ops->count; i++) {
        const dp_op *op = &ops->items[i];
        const dp_passing bytes = dp_op_passing(layout, op);
        const uint32_t there = boxes->of_shard[dp_op_shard(op, shard_count)];
        add_row(here, there, bytes.up, traffic);
        add_row(there, here, bytes.down, traffic);
        dp_box_traffic_pass(here, there, bytes.request, traffic);
        if (bytes.received)
            add_row(boxes->of_worker[ops->items[i].peer], here, bytes.received, traffic);
    }
}

void dp_boxes_add_slice(const dp_boxes *boxes, const dp_layout *layout, uint32_t shard_count,
                        uint32_t worker, const dp_slice *slice, dp_box_traffic *traffic)
{
    add_ops(boxes, layout, shard_count, worker, &slice->release, traffic);
    add_ops(boxes, layout, shard_count, worker, &slice->fill, traffic);
    add_ops(boxes, layout, shard_count, worker, &slice->after, traffic);
}

void dp_boxes_add_return(const dp_boxes *boxes, const dp_shards *shards, uint64_t returning,
                         uint64_t sharing, uint64_t bytes, dp_box_traffic *traffic)
{
    for (uint64_t rest = returning; rest && bytes; rest &= rest - 1) {
        const uint32_t here = boxes->of_worker[rt_lowest_bit(rest)];
        for (uint32_t s = 0; s < shards->dense_count; s++)
            dp_box_traffic_pass(boxes->of_shard[s], here, bytes / shards->dense_count, traffic);
    }
    for (uint64_t rest = sharing; rest && bytes; rest &= rest - 1) {
        const uint32_t here = boxes->of_worker[rt_lowest_bit(rest)];
        for (uint32_t s = 0; s < shards->dense_count; s++)
            dp_box_traffic_pass(here, boxes->of_shard[s], bytes / shards->dense_count, traffic);
    }
}

double dp_boxes_predict_s(const dp_boxes *boxes, const dp_rates *rates, uint64_t participants,
                          const dp_box_traffic *traffic, const uint32_t *micro_batch)
{
    dp_link links[RT_SITE_BOXES_MAX];
    double times[RT_SITE_BOXES_MAX], slowest = 0;
    dp_box_links(boxes, rates, links);
    for (uint32_t b = 0; b < boxes->count; b++) {
        times[b] = fmax((double)traffic->up[b] / links[b].up_bytes_per_s,
                        (double)traffic->down[b] / links[b].down_bytes_per_s);
        slowest = fmax(slowest, times[b]);
    }
    for (uint64_t rest = participants; rest; rest &= rest - 1) {
        const uint32_t j = rt_lowest_bit(rest);
        slowest = fmax(slowest, times[boxes->of_worker[j]] +
                                    rates->compute_s_per_sample[j] * micro_batch[j]);
    }
    return slowest;
}

static double ops_cost_s(const dp_boxes *boxes, const dp_layout *layout, const dp_link *links,
                         uint32_t shard_count, uint32_t worker, const dp_ops *ops)
{
    const uint32_t here = boxes->of_worker[worker];
    double seconds = 0;
    for (uint32_t i = 0; i < ops->count; i++) {
        const dp_passing bytes = dp_op_passing(layout, &ops->items[i]);
        const uint32_t there = boxes->of_shard[dp_op_shard(&ops->items[i], shard_count)];
        if (here == there)
            continue;
        seconds +=
            (double)bytes.up / fmin(links[here].up_bytes_per_s, links[there].down_bytes_per_s);
        seconds +=
            (double)bytes.down / fmin(links[here].down_bytes_per_s, links[there].up_bytes_per_s);
    }
    return seconds;
}

double dp_boxes_slice_cost_s(const dp_boxes *boxes, const dp_layout *layout, const dp_rates *rates,
                             uint32_t worker, const dp_slice *slice)
{
    dp_link links[RT_SITE_BOXES_MAX];
    const uint32_t shards = rates->shards.count;
    dp_box_links(boxes, rates, links);
    return ops_cost_s(boxes, layout, links, shards, worker, &slice->release) +
           ops_cost_s(boxes, layout, links, shards, worker, &slice->fill) +
           ops_cost_s(boxes, layout, links, shards, worker, &slice->after);
}
