// ps_aggregate - gradients of (key, iteration) that wait until all workers of their mask are in.
//
// For one thread. Gradients are kept apart until the sum is taken, because the sum is made in
// worker order whatever the order of arrival. Storage grows up to a bound, then stays.
#ifndef PS_AGGREGATE_H
#define PS_AGGREGATE_H

#include "runtime/rt_base.h"

typedef struct ps_aggregates ps_aggregates;

typedef struct {
    uint64_t key;
    uint64_t mask;      // workers of the sum
    uint64_t arrived;   // of them
    uint32_t iteration; // the version that the sum makes
    uint32_t base;      // the version that it applies to
    uint32_t step;      // of a gradient: as in rt_wire_grad
    uint32_t pulls;     // of a change (ps_shard_delta.c): as in rt_wire_delta
    uint64_t place;     // likewise: where the step stands (rt_optimizer_place)
    uint32_t gradients; // list in worker order; internal
} ps_aggregate;

// RT_NO_MEMORY leaves *aggregates_p untouched.
rt_status ps_aggregates_create(uint32_t dim, ps_aggregates **aggregates_p);
void ps_aggregates_destroy(ps_aggregates *aggregates);

// Room for count more sums and count more gradients; pointers from find may move. RT_NO_MEMORY.
rt_status ps_aggregates_reserve(ps_aggregates *aggregates, uint32_t count);

// NULL when there is none. Pointers are valid until the next reserve or close.
ps_aggregate *ps_aggregates_find(ps_aggregates *aggregates, uint64_t key, uint32_t iteration);

// Walks over the sums of a key, in no order: NULL starts, NULL ends.
ps_aggregate *ps_aggregates_next(ps_aggregates *aggregates, uint64_t key,
                                 const ps_aggregate *after);

// A new, empty sum, after a reserve. The caller fills the rest in.
ps_aggregate *ps_aggregates_open(ps_aggregates *aggregates, uint64_t key, uint32_t iteration);

// Copies a worker's gradient (dim floats, any alignment), after a reserve.
void ps_aggregates_add(ps_aggregates *aggregates, ps_aggregate *aggregate, uint32_t worker,
                       const void *gradient);

// ((g_a + g_b) + g_c) + ... in ascending worker order, over all that are in.
void ps_aggregates_sum(const ps_aggregates *aggregates, const ps_aggregate *aggregate, float *sum);

// Forgets the sum and its gradients.
void ps_aggregates_close(ps_aggregates *aggregates, ps_aggregate *aggregate);

uint32_t ps_aggregates_count(const ps_aggregates *aggregates);
uint32_t ps_aggregates_gradients(const ps_aggregates *aggregates); // buffered now

#endif
