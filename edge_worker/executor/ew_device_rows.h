// ew_device_rows - the cache slab in the memory of a device with memory of its own: ew_rows_ops.
//
// The executor names rows one or a few at a time; a device wants many. So rows to write and to make
// are collected in memory that host and device share, and go over when something else comes, when
// no more fit, and at ew_device_rows_flush, which the owner calls before it trains. All calls from
// one thread, the second of the device (ew_device.h).
#ifndef EW_DEVICE_ROWS_H
#define EW_DEVICE_ROWS_H

#include "edge_worker/device/ew_device.h"
#include "edge_worker/executor/ew_rows.h"

typedef enum { EW_ROWS_NONE, EW_ROWS_WRITE, EW_ROWS_INIT } ew_rows_pending;

typedef struct {
    const ew_device *device;
    float *slab; // device, slot_count x stride
    uint32_t slot_count;
    uint32_t values, state;
    uint32_t stride; // floats between rows, a multiple of 16
    rt_optimizer_config optimizer;
    uint64_t seed;
    float init_scale;

    uint32_t batch_max; // rows of the shared buffers
    uint32_t *slots;    // shared with the device, like keys and packed
    uint64_t *keys;
    float *packed; // batch_max x (values + state)
    ew_rows_pending pending;
    uint32_t pending_count, pending_floats;
    uint32_t *marks; // slot_count: the batch that last named the slot
    uint32_t batch;  // number of the one that is pending
} ew_device_rows;

// RT_NO_MEMORY. device outlives rows.
rt_status ew_device_rows_init(ew_device_rows *rows, const ew_device *device, uint32_t slot_count,
                              uint32_t values, const rt_optimizer_config *optimizer, uint64_t seed,
                              float init_scale);
void ew_device_rows_fini(ew_device_rows *rows);

void ew_device_rows_flush(ew_device_rows *rows);

extern const ew_rows_ops ew_device_rows_ops; // context: ew_device_rows

#endif
