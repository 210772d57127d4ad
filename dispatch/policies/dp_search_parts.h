// dp_search_parts - the inside of a search, for dp_search.c and dp_search_loads.c.
#ifndef DP_SEARCH_PARTS_H
#define DP_SEARCH_PARTS_H

#include "dispatch/policies/dp_search.h"

#define LANES 8u
#define USES_MAX 255u // keys with more are trained everywhere: they decide nothing
#define CLASSES_MAX RT_FIELDS_MAX
#define PARTS_MAX 16u // that threads work off at once
#define NONE UINT32_MAX

// Weighted ticks of one row size; lanes beyond the workers are never chosen.
typedef struct {
    int32_t pull[RT_WORKERS_MAX] __attribute__((aligned(32)));
    int32_t push[RT_WORKERS_MAX] __attribute__((aligned(32)));
    int32_t grad[RT_WORKERS_MAX] __attribute__((aligned(32)));
    int32_t both[RT_WORKERS_MAX] __attribute__((aligned(32)));  // pull + grad
    int32_t alone[RT_WORKERS_MAX] __attribute__((aligned(32))); // pull + later push
    int32_t later[RT_WORKERS_MAX] __attribute__((aligned(32))); // later push
} row_class;

// A distinct key that several samples have.
typedef struct {
    uint64_t users;     // U
    uint64_t held;      // workers with the latest copy, or one that may be read
    uint64_t owed;      // workers that push before they pull (dp_view)
    int32_t pull_sum;   // over U without held
    int32_t grad_sum;   // over U
    int32_t owner_push; // what the dirty owner's push costs; 0 when the PS has the row
    uint16_t row_class;
    uint8_t owner; // dirty owner, or NO_OWNER
    uint8_t next;  // who trains it next, or DP_NO_NEXT
} shared_key;

#define NO_OWNER 0xffu

struct dp_search {
    uint32_t worker_count, lane_count;
    uint32_t sample_count;
    double scale; // of all prices
    const dp_view *view;
    row_class *classes; // by row size; class_of_field
    uint32_t class_count;
    uint16_t class_of_field[RT_FIELDS_MAX];
    shared_key *keys;
    uint32_t *shared_of; // by distinct key: index into keys, or NONE
    uint8_t *uses;       // worker x key_count_max: samples of the key on that worker
    uint32_t key_count, key_count_max;
    uint32_t *members;   // shared keys of every sample: from its offset in the view on
    uint32_t *ends;      // by sample, in members
    int32_t *base;       // sample x lane_count: keys that only this sample has, and its price
    int32_t *scores;     // sample x lane_count: as last evaluated
    uint32_t *worker_of; // of the placement in progress
    uint32_t loads[RT_WORKERS_MAX]; // samples
    uint32_t rows[RT_WORKERS_MAX];  // distinct rows; keys with more than USES_MAX count everywhere
    uint32_t *singles;              // by sample: its keys that no other sample has
    uint64_t *order, *scratch;
    uint32_t *candidates; // worker x worker x CANDIDATES
    uint32_t evaluations;
    dp_loads part_loads[PARTS_MAX];
};

// Parts that a stage of the search is worked off in, by the threads of the view, and where one of
// them begins among so many samples or keys.
static inline uint32_t dp_search_parts(const dp_view *view)
{
    return (uint32_t)rt_min_u64(rt_pool_threads(view->pool), PARTS_MAX);
}

static inline uint32_t dp_search_part_begin(uint64_t count, uint32_t part, uint32_t part_count)
{
    return (uint32_t)(count * part / part_count);
}

#endif
