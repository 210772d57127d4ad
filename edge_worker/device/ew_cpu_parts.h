// ew_cpu_parts - what the files of the CPU device share: its state, and how an operation is split
// over its threads.
//
// Threads change no bit. What belongs to one sample, row or column is computed by one thread, in
// the order in which one alone would; only matrix products depend on where they are cut, and their
// cuts follow from their shapes alone (cpu_gemm), or they are made by our own loops (is_steady).
#ifndef EW_CPU_PARTS_H
#define EW_CPU_PARTS_H

#include "edge_worker/device/ew_blas.h"
#include "edge_worker/device/ew_cpu_kernels.h"
#include "runtime/rt_pool.h"

typedef struct {
    ew_blas blas;
    const ew_cpu_kernels *kernels;
    rt_pool *pool;  // NULL: one thread
    bool is_steady; // as ew_device_wish has it
} ew_cpu;

// Items [from, to) of an operation, whose arguments are behind call.
typedef void (*ew_cpu_range)(const void *call, uint32_t from, uint32_t to);

// All of count items, by range, on the threads that there are. item_floats: about how many floats
// one item reads and writes; a part has so many that waking a thread for it pays. Parts begin at
// multiples of 16.
void ew_cpu_split(const ew_cpu *cpu, uint32_t count, uint64_t item_floats, ew_cpu_range range,
                  const void *call);

// The samples, or the rows, [from, to) of look-ups.
ew_lookups ew_cpu_samples(const ew_lookups *lookups, uint32_t from, uint32_t to);
ew_lookups ew_cpu_rows(const ew_lookups *lookups, uint32_t from, uint32_t to);

// Two of the three tables of ew_device.h; their state is an ew_cpu.
extern const ew_layer_ops ew_cpu_layers;
extern const ew_interaction_ops ew_cpu_interactions;

#endif
