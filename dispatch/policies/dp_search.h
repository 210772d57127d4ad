// dp_search - local search for a placement under the true cost of an iteration.
//
// ESD's matrix counts a row once per sample; a worker pulls it once. The true cost of a placement
// is a sum over the distinct keys of the batch. U: workers that train the key, o: its dirty owner.
//     now:    a pull by every worker of U without the latest copy; a push by o unless U = {o}
//     later:  one trainer: it owns the row and will push it with probability DP_SEARCH_LATER;
//             several: each pushes its gradient, and nobody holds the row
// For example, with a pull of 10 ticks, a push of 10 (so 7 later) and a gradient of 12 on every
// worker, and a key whose dirty owner is worker 0:
//     U = {0}     7: nothing moves now                                              7
//     U = {1}     push by 0, pull by 1; later 7                          10 + 10 + 7 = 27
//     U = {0, 1}  push by 0, pull by 1, a gradient of each          10 + 10 + 12 + 12 = 44
// So taking the only sample with this key from worker 1, while 0 has another, is worth 37; ESD's
// matrix sees 20.
// Every transfer is weighted by worker and direction (prices), so that the caller can aim at the
// slowest link instead of the sum. One evaluation gives the cost of a sample on all workers at
// once. Bounded by a count of evaluations; deterministic. The threads of a view prepare a search
// and add up its loads; one searches.
#ifndef DP_SEARCH_H
#define DP_SEARCH_H

#include "dispatch/cost/dp_view.h"
#include "runtime/rt_hash.h"

// Share of owned rows that are pushed before they are trained again (0 to 1 differ by 1% in cost).
#define DP_SEARCH_LATER 0.7

// Who trains a row next (dp_view.next) decides in its place, as one part in so many. (In the race's
// setting 4 lowers the time by 5.0%, 2 by 4.0%, 1 by 2.2%.)
#define DP_SEARCH_EXPECTED 4

typedef struct dp_search dp_search;

// Weights of what a worker moves, relative to ticks: 1 everywhere minimises the transmission cost.
typedef struct {
    double up[RT_WORKERS_MAX];
    double down[RT_WORKERS_MAX];
    // Where boxes are told: of their links, in place of those by worker.
    double box_up[RT_SITE_BOXES_MAX], box_down[RT_SITE_BOXES_MAX];
    int32_t sample[RT_WORKERS_MAX]; // ticks that one more sample costs
} dp_prices;

typedef struct {
    uint32_t evaluations_max;
    uint32_t min[RT_WORKERS_MAX], max[RT_WORKERS_MAX]; // samples per worker
    uint32_t rows_max[RT_WORKERS_MAX];                 // distinct rows: what its cache holds
} dp_search_limits;

// What a worker would move in this iteration, in ticks, and how many samples it trains; and all of
// it on the link of the parameter servers.
typedef struct {
    int64_t up[RT_WORKERS_MAX], down[RT_WORKERS_MAX];
    // Where boxes are told: on their links, what they serve included.
    int64_t box_up[RT_SITE_BOXES_MAX], box_down[RT_SITE_BOXES_MAX];
    int64_t ps_up, ps_down; // 0 where that link is no limit
    uint32_t samples[RT_WORKERS_MAX];
    uint32_t rows[RT_WORKERS_MAX]; // distinct; never fewer than there are
} dp_loads;

// box_count: 0 where boxes are not told.
rt_status dp_search_create(uint32_t worker_count, uint32_t box_count, uint32_t sample_count_max,
                           uint32_t lookup_count_max, dp_search **search_p);
void dp_search_destroy(dp_search *search);

// Takes a placement that respects the limits and improves it in place: the weighted cost falls or
// stays. A worker with more rows than its cache holds first gives samples to those that have room;
// if an equal share of samples fits everywhere, there is always one. Returns the evaluations spent.
uint32_t dp_search_run(dp_search *search, const dp_view *view, const dp_prices *prices,
                       const dp_search_limits *limits, rt_random *random,
                       uint32_t *worker_of_sample);

// The loads of the placement that dp_search_run left, gradients included, later pushes not.
void dp_search_loads(dp_search *search, dp_loads *loads);

// The weighted cost of a placement, from scratch; later pushes included. All prices are scaled down
// where the rows of one sample could cost more than 10^9.
int64_t dp_search_cost(dp_search *search, const dp_view *view, const dp_prices *prices,
                       const uint32_t *worker_of_sample);

#endif
