#include "edge_worker/executor/ew_device_rows.h"

#include <string.h>

#define BATCH_BYTES (8u << 20) // of rows
#define BATCH_ROWS_MIN 16u
#define BATCH_ROWS_MAX 16384u

static uint32_t whole_floats(const ew_device_rows *rows)
{
    return rows->values + rows->state;
}

static void list_fini(const ew_device *device, ew_rows_list *list)
{
    device->ops->free_shared(device->state, list->slots);
    device->ops->free_shared(device->state, list->content);
}

static bool list_init(const ew_device *device, ew_rows_list *list, uint32_t count,
                      size_t content_floats)
{
    list->slots = device->ops->alloc_shared(device->state, count);
    list->content = device->ops->alloc_shared(device->state, count * content_floats);
    return list->slots && list->content;
}

void ew_device_rows_fini(ew_device_rows *rows)
{
    const ew_device *device = rows->device;
    if (!device)
        return;
    device->ops->free(device->state, rows->slab);
    for (size_t i = 0; i < RT_COUNT_OF(rows->lists); i++)
        list_fini(device, &rows->lists[i]);
    list_fini(device, &rows->reading);
    rt_free(rows->marks);
    rt_free(rows->steps.slots);
    rt_free(rows->steps.iterations);
    rt_free(rows->steps.gradients);
    memset(rows, 0, sizeof *rows);
}

static bool allocate(ew_device_rows *rows)
{
    const ew_device *device = rows->device;
    const size_t key_floats = sizeof(uint64_t) / sizeof(float);
    uint32_t count = rows->batch_max;
    rows->slab = device->ops->alloc(device->state, (size_t)rows->slot_count * rows->stride);
    rows->marks = rt_alloc(rows->slot_count, sizeof *rows->marks);
    rows->steps.slots = rt_alloc(count, sizeof *rows->steps.slots);
    rows->steps.iterations = rt_alloc(count, sizeof *rows->steps.iterations);
    rows->steps.gradients = rt_alloc((size_t)count * rows->values, sizeof(float));
    return rows->slab && rows->marks && rows->steps.slots && rows->steps.iterations &&
           rows->steps.gradients &&
           list_init(device, &rows->lists[EW_ROWS_WHOLE], count, whole_floats(rows)) &&
           list_init(device, &rows->lists[EW_ROWS_VALUES], count, rows->values) &&
           list_init(device, &rows->lists[EW_ROWS_FRESH], count, key_floats) &&
           list_init(device, &rows->reading, count, whole_floats(rows));
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
    if (!allocate(&made)) {
        ew_device_rows_fini(&made);
        return RT_NO_MEMORY;
    }
    *rows = made;
    return RT_OK;
}

static void put_list(ew_device_rows *rows, ew_rows_kind kind)
{
    const ew_device *device = rows->device;
    ew_rows_list *list = &rows->lists[kind];
    if (list->count == 0)
        return;
    uint32_t floats = rows->values;
    if (kind == EW_ROWS_WHOLE)
        floats = whole_floats(rows);
    if (kind == EW_ROWS_FRESH)
        device->ops->rows_init(device->state, &rows->optimizer, rows->values, rows->seed,
                               rows->init_scale, list->content, list->slots, list->count,
                               rows->slab, rows->stride);
    else
        device->ops->rows_put(device->state, rows->slab, rows->stride, floats, list->slots,
                              list->count, list->content);
    list->count = 0;
}

// Brings rows to reading.content; at most batch_max.
static float *fetch(ew_device_rows *rows, const uint32_t *slots, uint32_t count,
                    uint32_t float_count)
{
    const ew_device *device = rows->device;
    memcpy(rows->reading.slots, slots, count * sizeof *slots);
    device->ops->rows_get(device->state, rows->slab, rows->stride, float_count, rows->reading.slots,
                          count, rows->reading.content);
    return rows->reading.content;
}

// On the host, since the device's own step is the other thread's.
static void put_steps(ew_device_rows *rows)
{
    const ew_device *device = rows->device;
    uint32_t floats = whole_floats(rows), count = rows->steps.count;
    if (count == 0)
        return;
    float *packed = fetch(rows, rows->steps.slots, count, floats);
    for (uint32_t i = 0; i < count; i++) {
        float *row = packed + (size_t)i * floats;
        rt_optimizer_step(&rows->optimizer, rows->values, rows->steps.iterations[i], row,
                          row + rows->values, rows->steps.gradients + (size_t)i * rows->values);
    }
    device->ops->rows_put(device->state, rows->slab, rows->stride, floats, rows->reading.slots,
                          count, packed);
    rows->steps.count = 0;
}

void ew_device_rows_flush(ew_device_rows *rows)
{
    for (ew_rows_kind kind = 0; kind < EW_ROWS_LIST_COUNT; kind++)
        put_list(rows, kind);
    put_steps(rows);
    if (++rows->batch == 0) { // after 2^32 batches the marks begin anew
        memset(rows->marks, 0, rows->slot_count * sizeof *rows->marks);
        rows->batch = 1;
    }
}

static bool is_pending(const ew_device_rows *rows, uint32_t slot)
{
    rt_assert(slot < rows->slot_count);
    return rows->marks[slot] == rows->batch;
}

// For a list with so many entries: there is room, and slot is in no other.
static void claim(ew_device_rows *rows, uint32_t slot, uint32_t list_count)
{
    if (is_pending(rows, slot) || list_count == rows->batch_max)
        ew_device_rows_flush(rows);
    rows->marks[slot] = rows->batch;
}

// A place in the list for slot.
static uint32_t append(ew_device_rows *rows, ew_rows_kind kind, uint32_t slot)
{
    ew_rows_list *list = &rows->lists[kind];
    claim(rows, slot, list->count);
    list->slots[list->count] = slot;
    return list->count++;
}

static void write_rows(void *context, const uint32_t *slots, uint32_t count, uint32_t float_count,
                       const float *const *in)
{
    ew_device_rows *rows = context;
    ew_rows_kind kind = float_count == whole_floats(rows) ? EW_ROWS_WHOLE : EW_ROWS_VALUES;
    rt_assert(kind == EW_ROWS_WHOLE || float_count == rows->values);
    for (uint32_t i = 0; i < count; i++) {
        size_t at = append(rows, kind, slots[i]);
        memcpy((float *)rows->lists[kind].content + at * float_count, in[i],
               float_count * sizeof(float));
    }
}

static void init_rows(void *context, const uint32_t *slots, const uint64_t *keys, uint32_t count)
{
    ew_device_rows *rows = context;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t at = append(rows, EW_ROWS_FRESH, slots[i]);
        ((uint64_t *)rows->lists[EW_ROWS_FRESH].content)[at] = keys[i];
    }
}

// So that what is pending for any of the slots is in the slab.
static void settle(ew_device_rows *rows, const uint32_t *slots, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (is_pending(rows, slots[i])) {
            ew_device_rows_flush(rows);
            return;
        }
}

static void read_rows(void *context, const uint32_t *slots, uint32_t count, uint32_t float_count,
                      float *const *out)
{
    ew_device_rows *rows = context;
    settle(rows, slots, count);
    for (uint32_t first = 0; first < count; first += rows->batch_max) {
        uint32_t some = (uint32_t)rt_min_u64(count - first, rows->batch_max);
        const float *packed = fetch(rows, slots + first, some, float_count);
        for (uint32_t i = 0; i < some; i++)
            memcpy(out[first + i], packed + (size_t)i * float_count, float_count * sizeof(float));
    }
}

// Sums of gradients came in, one by one: put down.
static void step_rows(void *context, const uint32_t *slots, const float *const *gradients,
                      uint32_t count, uint64_t iteration)
{
    ew_device_rows *rows = context;
    for (uint32_t i = 0; i < count; i++) {
        claim(rows, slots[i], rows->steps.count);
        uint32_t at = rows->steps.count++;
        rows->steps.slots[at] = slots[i];
        rows->steps.iterations[at] = iteration;
        memcpy(rows->steps.gradients + (size_t)at * rows->values, gradients[i],
               rows->values * sizeof(float));
    }
}

const ew_rows_ops ew_device_rows_ops = {read_rows, write_rows, init_rows, step_rows};
