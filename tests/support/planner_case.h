// planner_case - a planner, batches to feed it, and a checker of what it makes of them.
//
// A value on the stack of a test; failures end the test with a sentence.
#ifndef PLANNER_CASE_H
#define PLANNER_CASE_H

#include "dispatch/planner/dp_hot.h"
#include "dispatch/planner/dp_planner.h"
#include "tests/support/plan_checker.h"
#include "tests/support/random_batches.h"

typedef enum {
    CACHE_SMALLEST,  // one micro-batch
    CACHE_MIDDLE,    // a few, other sizes on every worker
    CACHE_EVERYTHING // every key there is
} cache_size;

typedef struct {
    uint64_t seed; // of batches and planner
    uint32_t worker_count;
    uint32_t sample_count_max;
    uint32_t field_count;
    uint32_t ids_per_field;
    uint32_t bag_max;
    double zipf;
    cache_size cache;
    rt_eviction_kind eviction;
    uint32_t lookahead;
    uint32_t participants_min;         // 0: all workers train, always
    rt_dispatch_config dispatch;       // micro_batch_min and _max included
    rt_consistency_config consistency; // staleness 0, if any
    rt_coding row_wire;
    uint32_t hot_ids; // of every field, the most popular: all workers keep them; 0: none
} planner_shape;

typedef struct {
    planner_shape shape;
    dp_planner_config config;
    dp_hot *hot; // or NULL
    dp_planner *planner;
    plan_checker *checker;
    random_batches batches;
    rt_batch batch;                       // looked up last
    rt_batch ahead[DP_LOOKAHEAD_MAX + 1]; // previewed, the next first; and a spare
    uint32_t ahead_count;
    rt_random random; // for the test's own choices
    uint32_t iteration;
    const dp_plan *plan; // of the last commit or flush
    uint64_t fills;      // pulls and first touches in it
} planner_case;

// Rows of different sizes by field; every other link is ten times slower, so
// that costs have ties.
void planner_case_init(planner_case *pc, const planner_shape *shape);
void planner_case_fini(planner_case *pc);

// Plans the next batch of sample_count samples up to the look-up: dp_planner_view is there. With
// look-ahead the batch of that size is the last that is previewed.
void planner_case_look_up(planner_case *pc, uint32_t sample_count);

// The iteration in which a key is used next, by reading all batches ahead; 0: in none.
uint32_t planner_case_next_use(const planner_case *pc, uint64_t key);

// Places and commits it, and checks the plan.
void planner_case_commit(planner_case *pc);

// Flushes and checks.
void planner_case_flush(planner_case *pc);

// The directory and the checker agree on every key; dp_planner_legal.
void planner_case_compare(planner_case *pc);

#endif
