// rt_tensors - a file of named float32 arrays in the layout of safetensors, which numpy and torch
// read as it is; docs/MODEL_FORMAT.md describes the bytes.
//
// For the dense part of a model. Written as rt_file does; a reader holds the whole file in memory
// and has validated all of it: sizes, names, checksums.
#ifndef RT_TENSORS_H
#define RT_TENSORS_H

#include "runtime/wire/rt_bytes.h"

#define RT_TENSOR_NAME_MAX 64
#define RT_TENSOR_RANK_MAX 4
#define RT_TENSORS_MAX 4096u

typedef struct {
    char name[RT_TENSOR_NAME_MAX]; // "mlp.0.weight"; unique in a file, zero-terminated, ASCII
                                   // without quotes and backslashes
    uint32_t rank;                 // dimensions, 0 (one value) to RT_TENSOR_RANK_MAX
    uint64_t shape[RT_TENSOR_RANK_MAX];
    const float *values; // row major; the product of the dimensions
} rt_tensor;

typedef struct rt_tensors rt_tensors;

// RT_IO, RT_NO_MEMORY, RT_LIMIT (more than RT_TENSORS_MAX).
rt_status rt_tensors_write(const char *path, const rt_tensor *tensors, uint32_t count,
                           rt_error *error);

// Appends the bytes of such a file. RT_NO_MEMORY, RT_LIMIT.
rt_status rt_tensors_encode(const rt_tensor *tensors, uint32_t count, rt_bytes *bytes);

// What a checkpoint's dense.bin has besides the arrays of a model.
#define RT_TENSOR_STATE "optimizer.state"

// Appends the bytes of a file with the same arrays, but for the optimizer's state. RT_NO_MEMORY.
rt_status rt_tensors_encode_values(const rt_tensors *tensors, rt_bytes *bytes);

// RT_IO, RT_DATA (not such a file, or damaged), RT_NO_MEMORY. error names the file and the tensor.
rt_status rt_tensors_open(const char *path, rt_tensors **tensors_p, rt_error *error);

// The same from bytes, which are copied; name stands for the file in errors.
rt_status rt_tensors_decode(const char *name, const void *bytes, size_t size,
                            rt_tensors **tensors_p, rt_error *error);
void rt_tensors_close(rt_tensors *tensors);

uint32_t rt_tensors_count(const rt_tensors *tensors);
const rt_tensor *rt_tensors_at(const rt_tensors *tensors, uint32_t index); // in order of writing
const rt_tensor *rt_tensors_find(const rt_tensors *tensors, const char *name); // NULL: none

#endif
