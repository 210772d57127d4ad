#include "edge_worker/executor/ew_bases.h"

#include <string.h>

rt_status ew_bases_init(ew_bases *bases, uint32_t slot_count, uint32_t values,
                        const rt_optimizer_config *optimizer, uint64_t seed, float init_scale)
{
    const uint32_t state = rt_optimizer_state_floats(optimizer, values);
    float *rows = rt_alloc(slot_count, (values + state) * sizeof *rows);
    if (!rows)
        return RT_NO_MEMORY;
    *bases = (ew_bases){rows, values, state, *optimizer, seed, init_scale};
    return RT_OK;
}

void ew_bases_fini(ew_bases *bases)
{
    rt_free(bases->rows);
    *bases = (ew_bases){0};
}

static float *base_of(const ew_bases *bases, uint32_t slot)
{
    return bases->rows + (size_t)slot * (bases->values + bases->state);
}

void ew_bases_keep(ew_bases *bases, uint32_t slot, const float *row)
{
    memcpy(base_of(bases, slot), row, (bases->values + bases->state) * sizeof *row);
}

void ew_bases_first(ew_bases *bases, uint32_t slot, uint64_t key)
{
    float *row = base_of(bases, slot);
    rt_row_init(key, bases->seed, bases->init_scale, bases->values, row);
    rt_optimizer_init_state(&bases->optimizer, bases->values, row + bases->values);
}

void ew_bases_subtract(const ew_bases *bases, uint32_t slot, float *row)
{
    const float *restrict base = base_of(bases, slot);
    for (uint32_t i = 0; i < bases->values + bases->state; i++)
        row[i] -= base[i];
}
