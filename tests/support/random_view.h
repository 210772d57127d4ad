// random_view - a batch as a policy sees it, made by chance, with any of what a view can tell.
//
// Not what a planner's caches lead to: holders, links and prices are independent of each other.
// Filled again and again with other batches; about 1 MB.
#ifndef RANDOM_VIEW_H
#define RANDOM_VIEW_H

#include "dispatch/cost/dp_view.h"
#include "runtime/rt_hash.h"

#define RANDOM_VIEW_SAMPLES_MAX 640u
#define RANDOM_VIEW_KEYS_MAX 2048u
#define RANDOM_VIEW_LOOKUPS_MAX 8192u

typedef struct {
    uint32_t workers, samples, fields;
    uint32_t ids;     // of each field; small ones are popular
    uint32_t bag_max; // keys of a field in a sample; 1: uniform
    uint32_t common;  // as many more keys of field 0 are in all samples but every eighth
    uint32_t boxes;   // 0: not told
    bool homes;       // of rows move
    bool owed, summed, next;
    bool changes;
    bool ranks; // of workers that take part; those of the others lie between them
    bool ps;    // the parameter servers' link is a limit, too
    bool compute;
    bool equal_rows; // of all fields
    bool uneven;     // links of 1:300
    bool tight;      // caches hold the rows of an equal share, no more
    uint32_t micro_batch_min, micro_batch_max;
} view_shape;

typedef struct {
    dp_view view;
    dp_ticks ticks;
    dp_distinct distinct[RANDOM_VIEW_KEYS_MAX];
    uint8_t held[RANDOM_VIEW_KEYS_MAX];
    uint8_t next[RANDOM_VIEW_KEYS_MAX];
    uint64_t owed[RANDOM_VIEW_KEYS_MAX];
    uint32_t offsets[RANDOM_VIEW_SAMPLES_MAX + 1];
    uint32_t lookups[RANDOM_VIEW_LOOKUPS_MAX];
    uint32_t capacity[RT_WORKERS_MAX], rows_max[RT_WORKERS_MAX];
    uint32_t cached[RT_FIELDS_MAX];
    uint8_t ranks[RT_WORKERS_MAX];
    int32_t changes[RANDOM_VIEW_KEYS_MAX * DP_COST_WORKERS_MAX] __attribute__((aligned(16)));
} random_view;

void random_view_fill(const view_shape *shape, rt_random *random, random_view *made);

// Workers that have samples with the key in a placement.
uint64_t random_view_users(const random_view *made, uint32_t distinct,
                           const uint32_t *worker_of_sample);

#endif
