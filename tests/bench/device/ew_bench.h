// ew_bench - measurements of a device: `lanyard_bench device`.
//
// Every operation and a training step of every model, with Criteo's 26 fields and 13 dense
// features: time, bytes and operations (ew_count), and the share of what the device can do at most,
// both measured in the same run: the bandwidth of a large copy, the rate of a large matrix product.
// On the CPU times are processor times of one thread, so that other programs disturb less.
#ifndef EW_BENCH_H
#define EW_BENCH_H

#include "edge_worker/model/ew_count.h"
#include "runtime/metrics/rt_report.h"

typedef struct {
    rt_report *report;
    const char *device; // as in ew_device_open
    bool quick;         // one batch, one dimension, fewer repeats: shows that all of it works
} ew_bench;

// RT_UNSUPPORTED: no such device; RT_NO_MEMORY.
rt_status ew_bench_device(const ew_bench *bench, rt_error *error);

// ---- what its two files share ----------------------------------------------------------------

#define EW_BENCH_FIELDS 26u
#define EW_BENCH_DENSE 13u
#define EW_BENCH_WIDTH 256u // units of a layer

typedef struct {
    const ew_bench *bench;
    ew_device device;
    bool is_unified;         // the measured device: then times are processor times
    double copy_bytes_per_s; // read + write
    double gemm_flops_per_s;
    uint32_t sample_count, dim;
    // Look-ups as Criteo has them: half of the fields with few ids, half with many. On the device.
    ew_lookups lookups;
    float *labels, *dense, *slab;
    uint32_t *host_rows, *host_slots;
    float *host_labels, *host_dense;
    uint32_t slot_count;
} ew_bench_case;

// Median seconds of run(context), which queues work on the device.
double ew_bench_measure(const ew_bench_case *one, void (*run)(void *context), void *context);

// The cells of a row: how long it took, what it had to do.
void ew_bench_row(const ew_bench_case *one, const char *what, double seconds,
                  const ew_counts *counts);

// Every operation once. RT_NO_MEMORY.
rt_status ew_bench_operations(const ew_bench_case *one, rt_error *error);

#endif
