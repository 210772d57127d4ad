// dp_boxes - what the transfers of a plan take on the links of boxes (dp_site.h).
//
// A box's link carries what its workers exchange with shards elsewhere, and what workers elsewhere
// exchange with its shards. What a worker and a shard of one box exchange takes no link. Plain
// values.
#ifndef DP_BOXES_H
#define DP_BOXES_H

#include "dispatch/cost/dp_site.h"
#include "dispatch/plan/dp_plan.h"

void dp_box_traffic_add(const dp_box_traffic *one, uint32_t box_count, dp_box_traffic *sum);

// Operations of one worker: rows, gradients, requests, and words to shards that a row leaves.
void dp_boxes_add_slice(const dp_boxes *boxes, const dp_layout *layout, uint32_t shard_count,
                        uint32_t worker, const dp_slice *slice, dp_box_traffic *traffic);

// What those who sat out before fetch of the shards, and what who trained alone gives to them.
void dp_boxes_add_return(const dp_boxes *boxes, const dp_shards *shards, uint64_t returning,
                         uint64_t sharing, uint64_t bytes, dp_box_traffic *traffic);

// Iteration time: the slowest link, with the computing time of who waits for it.
//     max( max_b max(up_b / U_b, down_b / D_b), max_j [ the same of j's box + c_j m_j ] )
double dp_boxes_predict_s(const dp_boxes *boxes, const dp_rates *rates, uint64_t participants,
                          const dp_box_traffic *traffic, const uint32_t *micro_batch);

// Seconds that the operations of one worker take one after another (dp_passing_cost_s): each at the
// rate of the slower of the two links that it passes, and none where it passes none.
double dp_boxes_slice_cost_s(const dp_boxes *boxes, const dp_layout *layout, const dp_rates *rates,
                             uint32_t worker, const dp_slice *slice);

#endif
