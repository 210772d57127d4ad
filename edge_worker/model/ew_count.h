// ew_count - a device that computes nothing and counts what the others would have to.
//
// A model that runs on it tells its own costs. Bytes are the least that must move: every operand
// of an operation once, a row of the slab once per operation however often it is looked up. A
// multiplication, an addition, a root, a comparison is one operation each; one of a logarithm or
// exponential too. Memory is real, but never touched by operations. For one thread.
#ifndef EW_COUNT_H
#define EW_COUNT_H

#include "edge_worker/model/ew_model.h"

typedef struct {
    uint64_t gemm_flops, gemm_bytes; // of matrix products
    uint64_t flops, bytes;           // of all other operations
} ew_counts;

typedef struct {
    ew_counts counts;
    const ew_device *products;
} ew_count;

// count outlives the device, and begins with nothing counted. products: a device with whose memory
// matrix products are carried out after all, and nothing else, to time them; or NULL. Close with
// ew_device_close.
void ew_count_open(ew_count *count, const ew_device *products, ew_device *device);

// Of one model and one micro-batch.
typedef struct {
    uint32_t parameter_count; // dense
    ew_counts forward;        // prediction
    ew_counts pass;           // forward and backward
    ew_counts step;           // of the dense parameters and all rows
} ew_model_counts;

// sample_count samples with one key per field, every look-up of a row of its own; within the
// limits of config. Errors as ew_model_create.
rt_status ew_count_model(const ew_model_config *config, const rt_optimizer_config *rows,
                         uint32_t sample_count, ew_model_counts *counts, rt_error *error);

#endif
