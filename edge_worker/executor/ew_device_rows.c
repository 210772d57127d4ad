#include "edge_worker/executor/ew_device_rows.h"

#include <string.h>

#define BATCH_BYTES (8u << 20) // of rows
#define BATCH_ROWS_MIN 16u
#define BATCH_ROWS_MAX 16384u

void ew_device_rows_fini(ew_device_rows *rows)
{
    const ew_device *device = rows->device;
    if (!device)
        return;
    device->ops->free(device->state, rows->slab);
    device->ops->free_shared(device->state, rows->slots);
    device->ops->free_shared(device->state, rows->keys);
    device->ops->free_shared(device->state, rows->packed);
    rt_free(rows->marks);
    memset(rows, 0, sizeof *rows);
}

rt_status ew_device_rows_init(ew_device_rows *rows, const ew_device *device, uint32_t slot_count,
                              uint32_t values, const rt_optimizer_config *optimizer, uint64_t seed,
                              float init_scale)
{
    uint32_t state = rt_optimizer_state_floats(optimizer, values), floats = values + state;
    uint64_t fitting = BATCH_BYTES / (floats * sizeof(float));
    ew_device_rows made = {.device = device,
                           .slot_count = slot_count,
                           .values = values,
                           .state = state,
                           .stride = (floats + 15) / 16 * 16,
                           .optimizer = *optimizer,
                           .seed = seed,
                           .init_scale = init_scale,
                           .batch = 1};
    made.batch_max = (uint32_t)rt_min_u64(rt_max_u64(fitting, BATCH_ROWS_MIN), BATCH_ROWS_MAX);
    const ew_device_ops *ops = device->ops;
    made.slab = ops->alloc(device->state, (size_t)slot_count * made.stride);
    made.slots = ops->alloc_shared(device->state, made.batch_max);
    made.keys = ops->alloc_shared(device->state, 2 * (size_t)made.batch_max);
    made.packed = ops->alloc_shared(device->state, (size_t)made.batch_max * floats);
    made.marks = rt_alloc(slot_count, sizeof *made.marks);
    if (!made.slab || !made.slots || !made.keys || !made.packed || !made.marks) {
        ew_device_rows_fini(&made);
        return RT_NO_MEMORY;
    }
    *rows = made;
    return RT_OK;
}

void ew_device_rows_flush(ew_device_rows *rows)
{
    const ew_device *device = rows->device;
    if (rows->pending == EW_ROWS_WRITE)
        device->ops->rows_put(device->state, rows->slab, rows->stride, rows->pending_floats,
                              rows->slots, rows->pending_count, rows->packed);
    else if (rows->pending == EW_ROWS_INIT)
        device->ops->rows_init(device->state, &rows->optimizer, rows->values, rows->seed,
                               rows->init_scale, rows->keys, rows->slots, rows->pending_count,
                               rows->slab, rows->stride);
    rows->pending = EW_ROWS_NONE;
    rows->pending_count = 0;
    if (++rows->batch == 0) { // after 2^32 batches the marks begin anew
        memset(rows->marks, 0, rows->slot_count * sizeof *rows->marks);
        rows->batch = 1;
    }
}

// A place in the batch for slot; a batch names no slot twice.
static uint32_t append(ew_device_rows *rows, ew_rows_pending kind, uint32_t float_count,
                       uint32_t slot)
{
    rt_assert(slot < rows->slot_count);
    if (rows->pending != kind || rows->pending_floats != float_count ||
        rows->pending_count == rows->batch_max || rows->marks[slot] == rows->batch)
        ew_device_rows_flush(rows);
    rows->pending = kind;
    rows->pending_floats = float_count;
    rows->marks[slot] = rows->batch;
    rows->slots[rows->pending_count] = slot;
    return rows->pending_count++;
}

static void write_rows(void *context, const uint32_t *slots, uint32_t count, uint32_t float_count,
                       const float *const *in)
{
    ew_device_rows *rows = context;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t at = append(rows, EW_ROWS_WRITE, float_count, slots[i]);
        memcpy(rows->packed + (size_t)at * float_count, in[i], float_count * sizeof(float));
    }
}

static void init_rows(void *context, const uint32_t *slots, const uint64_t *keys, uint32_t count)
{
    ew_device_rows *rows = context;
    for (uint32_t i = 0; i < count; i++)
        rows->keys[append(rows, EW_ROWS_INIT, 0, slots[i])] = keys[i];
}

static void read_rows(void *context, const uint32_t *slots, uint32_t count, uint32_t float_count,
                      float *const *out)
{
    ew_device_rows *rows = context;
    const ew_device *device = rows->device;
    ew_device_rows_flush(rows);
    for (uint32_t first = 0; first < count; first += rows->batch_max) {
        uint32_t some = (uint32_t)rt_min_u64(count - first, rows->batch_max);
        memcpy(rows->slots, slots + first, some * sizeof *slots);
        device->ops->rows_get(device->state, rows->slab, rows->stride, float_count, rows->slots,
                              some, rows->packed);
        for (uint32_t i = 0; i < some; i++)
            memcpy(out[first + i], rows->packed + (size_t)i * float_count,
                   float_count * sizeof(float));
    }
}

// Rare (a keeper's sum came in): on the host, since the device's own step is the other thread's.
static void step_rows(void *context, const uint32_t *slots, const float *const *gradients,
                      uint32_t count, uint64_t iteration)
{
    ew_device_rows *rows = context;
    const ew_device *device = rows->device;
    ew_device_rows_flush(rows);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t floats = rows->values + rows->state;
        rows->slots[0] = slots[i];
        device->ops->rows_get(device->state, rows->slab, rows->stride, floats, rows->slots, 1,
                              rows->packed);
        rt_optimizer_step(&rows->optimizer, rows->values, iteration, rows->packed,
                          rows->packed + rows->values, gradients[i]);
        device->ops->rows_put(device->state, rows->slab, rows->stride, floats, rows->slots, 1,
                              rows->packed);
    }
}

const ew_rows_ops ew_device_rows_ops = {read_rows, write_rows, init_rows, step_rows};
