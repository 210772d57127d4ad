// dp_site - what transfers cost depends on: how large rows are, and how fast the links.
#ifndef DP_SITE_H
#define DP_SITE_H

#include "dispatch/plan/dp_input.h"
#include "runtime/config/rt_config.h"
#include "runtime/numbers/rt_coding.h"

// Floats per row by field.
typedef struct {
    uint32_t field_count;
    uint32_t values[RT_FIELDS_MAX];
    uint32_t state[RT_FIELDS_MAX]; // of the optimizer
    rt_coding wire;                // of values and gradients
} dp_layout;

typedef struct {
    double up_bytes_per_s;   // worker to PS
    double down_bytes_per_s; // PS to worker
} dp_link;

// Rows are spread over the shards by hash, evenly; so is the dense exchange over its shards.
typedef struct {
    uint32_t count;
    uint32_t dense_count; // shards 0 to dense_count - 1 have the dense exchange (rt_stripes_shards)
    double bytes_per_s[RT_SHARDS_MAX]; // each way, shared by all workers; 0: no limit
} dp_shards;

// Machines with one link each, that their workers and shards share (rt_config, "boxes").
typedef struct {
    uint32_t count; // 0: every worker has a link of its own, and no shard is on its box
    uint32_t worker_count;
    uint8_t of_worker[RT_WORKERS_MAX];
    uint8_t of_shard[RT_SHARDS_MAX];
    dp_link given[RT_SITE_BOXES_MAX]; // bytes/s; of a box with workers their rates tell (dp_rates)
} dp_boxes;

// What input records change of it (dp_input): a planner and an account each have one.
typedef struct {
    dp_link links[RT_WORKERS_MAX];
    double ps_bytes_per_s; // of all shards together, each way; 0: no limit
    dp_shards shards;
    double compute_s_per_sample[RT_WORKERS_MAX]; // 0 where not known
} dp_rates;

// The links of all boxes, as far as it is known today.
void dp_box_links(const dp_boxes *boxes, const dp_rates *rates, dp_link links[RT_SITE_BOXES_MAX]);

// Bytes on the link of every box, and how many rows and gradients are among them.
typedef struct {
    uint64_t up[RT_SITE_BOXES_MAX], down[RT_SITE_BOXES_MAX];
    uint64_t rows_up[RT_SITE_BOXES_MAX], rows_down[RT_SITE_BOXES_MAX];
} dp_box_traffic;

// What goes from one box to another.
static inline void dp_box_traffic_pass(uint32_t from, uint32_t to, uint64_t bytes,
                                       dp_box_traffic *traffic)
{
    if (from == to)
        return;
    traffic->up[from] += bytes;
    traffic->down[to] += bytes;
}

// The dense exchange of those who take part: bytes of one worker each way, in equal parts at the
// shards that have it.
void dp_boxes_add_dense(const dp_boxes *boxes, const dp_shards *shards, uint64_t participants,
                        uint64_t bytes, dp_box_traffic *traffic);

// Bytes of the dense exchange in an iteration, of one who takes part: `whole` in the first ones of
// a run, unless that is 0; none where one alone takes part, whose gradients are the sum. iteration
// 0: of none of a run, as later ones.
static inline uint64_t dp_dense_bytes(uint64_t bytes, uint64_t whole, uint32_t iteration,
                                      uint64_t participants)
{
    if (rt_bit_count(participants) == 1)
        return 0;
    if (whole > 0 && iteration > 0 && iteration <= RT_CODING_WHOLE_ITERATIONS)
        return whole;
    return bytes;
}

// The value that records of a kind are about, of a worker or shard; NULL: none of these.
double *dp_rates_at(dp_rates *rates, dp_input_kind kind, uint32_t index);

#endif
