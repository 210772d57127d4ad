// ew_bases - rows as they came, by slot: what is pushed of them is what has changed since.
//
// For bounded staleness (dispatch/planner/dp_stale.h), in host memory, beside the slab of whatever
// device. One thread.
#ifndef EW_BASES_H
#define EW_BASES_H

#include "runtime/numbers/rt_optimizer.h"
#include "runtime/rt_base.h"

typedef struct {
    float *rows; // slot_count x (values + state)
    uint32_t values, state;
    rt_optimizer_config optimizer;
    uint64_t seed;
    float init_scale;
} ew_bases;

// RT_NO_MEMORY. The settings of initial rows are those of ew_rows.
rt_status ew_bases_init(ew_bases *bases, uint32_t slot_count, uint32_t values,
                        const rt_optimizer_config *optimizer, uint64_t seed, float init_scale);
void ew_bases_fini(ew_bases *bases);

// A row came into a slot, values and state; or a first touch.
void ew_bases_keep(ew_bases *bases, uint32_t slot, const float *row);
void ew_bases_first(ew_bases *bases, uint32_t slot, uint64_t key);

// row, as it is now, becomes its change.
void ew_bases_subtract(const ew_bases *bases, uint32_t slot, float *row);

#endif
