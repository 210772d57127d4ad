// dp_view - one batch as a policy sees it: distinct keys, who holds them, what a transfer costs.
//
// Who holds a key is what dispatch.view says. strict: the workers' caches, in which at most one
// worker has the latest version. snapshot: the caches as they follow from the placements, in which
// every worker that trained a row in its last iteration holds it (dp_viewed.c); one of several
// trainers has an update of its own there, which the PS lacks until it is pushed, so their row is
// dirty.
//
// Made by the planner from one directory probe per distinct key. All costs are integers: a tick is
// a fixed fraction of the slowest transfer (dp_ticks), so sums are exact and every exact solver
// reaches the same total.
#ifndef DP_VIEW_H
#define DP_VIEW_H

#include "runtime/rt_base.h"
#include "runtime/rt_pool.h"

// Transfer costs in ticks by field and worker (T_j of ESD, section 4, for rows of that field).
typedef struct {
    double tick_s; // seconds per tick
    uint32_t worker_count;
    uint32_t field_count;
    int32_t pull[RT_FIELDS_MAX][RT_WORKERS_MAX]; // PS to worker, row with state
    int32_t push[RT_FIELDS_MAX][RT_WORKERS_MAX]; // worker to PS, row with state
    int32_t grad[RT_FIELDS_MAX][RT_WORKERS_MAX]; // worker to PS, gradient

    // What the predicted iteration time (dp_predict_s) adds to the rows on a worker's own link.
    int32_t compute[RT_WORKERS_MAX];    // per sample; 0: not known; cut at DP_COMPUTE_TICKS_MAX
    int64_t dense_up[RT_WORKERS_MAX];   // the worker's part of the dense exchange
    int64_t dense_down[RT_WORKERS_MAX]; //
    int32_t ps_row[RT_FIELDS_MAX];      // row with state on the PS link, one way; 0: no limit
    int32_t ps_grad[RT_FIELDS_MAX];     // gradient on the PS link
    struct {
        double share;  // of its time for rows in that of the slowest, which ps_row and ps_grad are
        int64_t dense; // all workers' dense exchange on it, one way
    } ps_limits[3];    // all shards, the first, the slowest of the others: those that are known
    uint32_t ps_limit_count;

    // Where boxes are told (dp_site.h): their links, in place of what is above for the parameter
    // servers. A worker's pull, push and grad are then for its box's link, where they pass it.
    uint32_t box_count;             // 0: they are not
    bool homes_move;                // a row that is pushed stays on the box of who pushes it
    uint8_t box_of[RT_WORKERS_MAX]; // DP_NO_BOX beyond the workers
    uint64_t shard_boxes;           // boxes with a shard
    int32_t box_up[RT_FIELDS_MAX][RT_SITE_BOXES_MAX]; // a row
    int32_t box_down[RT_FIELDS_MAX][RT_SITE_BOXES_MAX];
    int32_t box_grad[RT_FIELDS_MAX][RT_SITE_BOXES_MAX]; // a gradient, down
    int64_t box_dense_up[RT_SITE_BOXES_MAX];            // the whole dense exchange
    int64_t box_dense_down[RT_SITE_BOXES_MAX];
} dp_ticks;

#define DP_NO_BOX 0xffu // of a row that is on no box yet

// Thousands of slow transfers: nothing but computing matters beyond it.
#define DP_COMPUTE_TICKS_MAX (INT32_C(1) << 30)

// How the latest version of a key is held, in one byte for the inner loops.
#define DP_HELD_BY_NONE 0xffu // pull only (the PS has it, or nobody)
#define DP_HELD_BY_MANY 0xfeu // see holders
#define DP_HELD_CLEAN 0x40u   // flag: the PS has it too; without it a pull elsewhere needs a push
#define DP_HELD_WORKER 0x3fu  // mask: the only holder

typedef struct {
    uint64_t key;
    uint64_t holders; // as the view shows them
    uint32_t record;
    uint32_t version; // L before the iteration
    uint32_t uses;    // samples of the batch that have the key
    uint8_t held;     // DP_HELD_...
    uint8_t field;
    bool dirty;  // the holders have what the PS lacks
    uint8_t box; // that others would have the row of; DP_NO_BOX: of none, or boxes are not told
} dp_distinct;

typedef struct {
    uint32_t iteration;
    uint32_t worker_count;
    uint32_t sample_count;
    uint32_t lookup_count;
    uint32_t distinct_count;
    bool uniform;                // every sample has exactly one key per field, in field order
    const uint32_t *offsets;     // sample_count + 1, into lookups
    const uint32_t *lookups;     // lookup_count indices into distinct
    const dp_distinct *distinct; // distinct_count, in order of first appearance
    const uint8_t *held;         // distinct[i].held, packed
    const uint32_t *capacity;    // samples of each worker when all take equally many
    const uint8_t *ranks;        // of the workers: a view has those that take part, numbered from
                                 // 0; NULL: all of them
    uint32_t micro_batch_min, micro_batch_max; // what a policy may give a worker instead
    const uint32_t *rows_max; // by worker: distinct rows that its cache holds, at least those of
                              // capacity samples; NULL: as many as there are
    const dp_ticks *ticks;
    const uint32_t *cached; // by field: latest copies in all caches together, as the view shows
                            // them; NULL: not counted (policies that score some tables only)
    const uint64_t *owed; // bounded staleness (dp_stale.h): by distinct key, workers whose copy is
                          // pushed before they pull it; holders may be several, none of them has
                          // to push. NULL: strict
    bool always_summed;   // every trainer pushes its gradient, also where it is the only one
    const uint8_t *next;  // dispatch.window: by distinct key, the worker that alone is expected to
                          // train it next, or DP_NO_NEXT; NULL: nothing is expected
    int32_t *changes; // scratch of dp_cost_matrix: distinct_count x worker_count, rounded up to a
                      // multiple of 4, 16-byte aligned; NULL: none, and with more workers than
                      // DP_COST_WORKERS_MAX
    rt_pool *pool;    // threads that a policy may use beside its own; NULL: none. No placement may
                      // depend on them
} dp_view;

#define DP_NO_NEXT 0xffu

// With more, what every key changes in the cost of a sample takes more memory than it saves time.
#define DP_COST_WORKERS_MAX 16u

// Where boxes are told: ticks of a pull by worker j of a row on a box, and of its push there. A
// transfer is as fast as the slower of the two links that it passes.
static inline int32_t dp_box_slower(int32_t one, int32_t other)
{
    return one > other ? one : other;
}

static inline int32_t dp_box_pull(const dp_ticks *ticks, uint32_t field, uint32_t box, uint32_t j)
{
    if (box == DP_NO_BOX || box == ticks->box_of[j])
        return 0;
    return dp_box_slower(ticks->pull[field][j], ticks->box_up[field][box]);
}

static inline int32_t dp_box_push(const dp_ticks *ticks, uint32_t field, uint32_t box, uint32_t j)
{
    if (box == DP_NO_BOX || box == ticks->box_of[j])
        return 0;
    return dp_box_slower(ticks->push[field][j], ticks->box_down[field][box]);
}

// ESD, Algorithm 1: cost[i][j] = sum over the keys of sample i whose latest version is not on j of
// pull_j, plus push_o for every worker o that holds it dirty. (With several holders the paper does
// not say what to add; in the state model of Herald, appendix A, each of them pushes its own
// update.) A key never seen costs a pull on every worker, also where the first touch is made
// locally. With evict, every pull costs evict_j more; with next, a row costs push_j and a pull by
// next wherever j is not next. stride >= worker_count elements between rows.
void dp_cost_matrix(const dp_view *view, int32_t *cost, uint32_t stride);

#endif
