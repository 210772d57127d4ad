// ew_device_rows - the cache slab in the memory of a device with memory of its own: ew_rows_ops.
//
// The executor names rows one or a few at a time; a device wants many. So rows to write, to make
// and to step are collected, a list for each kind, and go over when a slot is named again, when a
// list is full, and at ew_device_rows_flush, which the owner calls before it trains. Until then
// reading other slots disturbs nothing. All calls from one thread, the second of the device
// (ew_device.h).
#ifndef EW_DEVICE_ROWS_H
#define EW_DEVICE_ROWS_H

#include "edge_worker/device/ew_device.h"
#include "edge_worker/executor/ew_rows.h"

// Rows with their state, rows without, rows to be made.
typedef enum { EW_ROWS_WHOLE, EW_ROWS_VALUES, EW_ROWS_FRESH, EW_ROWS_LIST_COUNT } ew_rows_kind;

// What goes over in one go, in memory that host and device share; no slot is in two lists.
typedef struct {
    uint32_t count;
    uint32_t *slots; // shared with the device, batch_max
    void *content;   // likewise: rows one after another, or keys
} ew_rows_list;

typedef struct {
    const ew_device *device;
    float *slab; // device, slot_count x stride
    uint32_t slot_count;
    uint32_t values, state;
    uint32_t stride; // floats between rows, a multiple of 16
    rt_optimizer_config optimizer;
    uint64_t seed;
    float init_scale;

    uint32_t batch_max; // rows of a list
    ew_rows_list lists[EW_ROWS_LIST_COUNT];
    ew_rows_list reading; // count is 0
    struct {
        uint32_t count;
        uint32_t *slots;
        uint64_t *iterations;
        float *gradients; // batch_max x values
    } steps;
    uint32_t *marks; // slot_count: the batch that last named the slot
    uint32_t batch;  // number of what is pending
} ew_device_rows;

// RT_NO_MEMORY. device outlives rows.
rt_status ew_device_rows_init(ew_device_rows *rows, const ew_device *device, uint32_t slot_count,
                              uint32_t values, const rt_optimizer_config *optimizer, uint64_t seed,
                              float init_scale);
void ew_device_rows_fini(ew_device_rows *rows);

// Whatever is pending has gone over when this returns.
void ew_device_rows_flush(ew_device_rows *rows);

extern const ew_rows_ops ew_device_rows_ops; // context: ew_device_rows

#endif
