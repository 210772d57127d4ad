#include "edge_worker/executor/ew_rows.h"

#include <string.h>

rt_status ew_host_rows_init(ew_host_rows *rows, uint32_t slot_count, uint32_t values,
                            const rt_optimizer_config *optimizer, uint64_t seed, float init_scale)
{
    uint32_t state = rt_optimizer_state_floats(optimizer, values);
    uint32_t stride = (values + state + 15) / 16 * 16;
    float *slab = rt_alloc((size_t)slot_count * stride, sizeof *slab);
    if (!slab)
        return RT_NO_MEMORY;
    *rows = (ew_host_rows){slab, slot_count, values, state, stride, *optimizer, seed, init_scale};
    return RT_OK;
}

void ew_host_rows_fini(ew_host_rows *rows)
{
    rt_free(rows->slab);
    memset(rows, 0, sizeof *rows);
}

static float *row_at(const ew_host_rows *rows, uint32_t slot)
{
    return rows->slab + (size_t)slot * rows->stride;
}

static void read_rows(void *context, const uint32_t *slots, uint32_t count, uint32_t float_count,
                      float *const *out)
{
    const ew_host_rows *rows = context;
    for (uint32_t i = 0; i < count; i++) {
        if (i + 8 < count)
            __builtin_prefetch(row_at(rows, slots[i + 8]));
        memcpy(out[i], row_at(rows, slots[i]), float_count * sizeof(float));
    }
}

static void write_rows(void *context, const uint32_t *slots, uint32_t count, uint32_t float_count,
                       const float *const *in)
{
    const ew_host_rows *rows = context;
    for (uint32_t i = 0; i < count; i++)
        memcpy(row_at(rows, slots[i]), in[i], float_count * sizeof(float));
}

static void init_rows(void *context, const uint32_t *slots, const uint64_t *keys, uint32_t count)
{
    const ew_host_rows *rows = context;
    for (uint32_t i = 0; i < count; i++) {
        float *row = row_at(rows, slots[i]);
        rt_row_init(keys[i], rows->seed, rows->init_scale, rows->values, row);
        rt_optimizer_init_state(&rows->optimizer, rows->values, row + rows->values);
    }
}

static void step_rows(void *context, const uint32_t *slots, const float *const *gradients,
                      uint32_t count, uint64_t iteration)
{
    const ew_host_rows *rows = context;
    for (uint32_t i = 0; i < count; i++) {
        float *row = row_at(rows, slots[i]);
        if (i + 4 < count)
            __builtin_prefetch(row_at(rows, slots[i + 4]), 1);
        rt_optimizer_step(&rows->optimizer, rows->values, iteration, row, row + rows->values,
                          gradients[i]);
    }
}

const ew_rows_ops ew_host_rows_ops = {read_rows, write_rows, init_rows, step_rows};
