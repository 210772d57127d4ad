// ew_cuda_parts - what the files of the CUDA device share: its state, the entry of an operation,
// and the shapes of launches. Compiles with nvcc, and as C++ for the CPU (tests/support/cuda_cpu).
//
// One operation per file: kernels, how they are launched, and the checked entry, which is a member
// of the tables in ew_device.h. Kernels multiply and add without fusing (-fmad=false), so that
// element-wise results are those of the CPU device, bit for bit.
#ifndef EW_CUDA_PARTS_H
#define EW_CUDA_PARTS_H

#include <cublas_v2.h>

#include "runtime/rt_cuda_kernel.h"

extern "C" {
#include "edge_worker/device/ew_cuda.h"
}

#define EW_CUDA_THREADS 256u
#define EW_CUDA_WARP RT_CUDA_WARP
#define EW_CUDA_FULL RT_CUDA_FULL
#define EW_CUDA_SCRATCH_FLOATS ((size_t)8 << 20)
#define EW_CUDA_STAGE_BYTES ((size_t)4 << 20) // each of two halves, in and out
#define EW_CUDA_OUTS_MAX 16u
#define EW_CUDA_SHARED_MAX 32u
#define EW_CUDA_GRAPHS_MAX 256u

typedef struct {
    void *to;
    const void *from; // in the staging buffer
    size_t bytes;
} ew_cuda_out;

typedef struct {
    uint8_t key[EW_REPEAT_KEY_BYTES_MAX];
    size_t key_bytes;
    uint64_t used;        // the later, the larger
    cudaGraphExec_t exec; // NULL: not yet
    bool refused;         // it cannot be captured
} ew_cuda_graph;

typedef struct {
    uint32_t index;
    uint32_t processor_count;
    cudaStream_t compute, rows;
    cublasHandle_t blas;
    bool tf32; // products may round their factors
    void *blas_workspace;
    float *scratch;    // EW_CUDA_SCRATCH_FLOATS, of the compute stream: partial sums
    const void *owner; // the thread that queued last; see ew_cuda_enter_rows
    int compute_lock;  // held while the compute stream is being captured, or waited for by
                       // enter_rows
    int failed;        // 1 after the first failure since finish, 2 once failure is written
    rt_error failure;
    const void *failed_in; // the thread

    // Host memory that the device reads: copies go through its halves by turns.
    char *stage_in, *stage_out;
    cudaEvent_t stage_event[2];
    uint32_t stage_half;
    size_t stage_used, out_used;
    ew_cuda_out outs[EW_CUDA_OUTS_MAX]; // to be copied once the stream has got there
    uint32_t out_count;
    struct {
        char *begin;
        size_t bytes;
    } shared[EW_CUDA_SHARED_MAX];
    uint32_t shared_count;
    ew_cuda_graph graphs[EW_CUDA_GRAPHS_MAX]; // graph_count, in no order
    uint32_t graph_count;
    uint64_t graph_clock;
} ew_cuda;

// Every operation begins with enter (false: do nothing, the device has failed) and ends with leave,
// which takes note of what the launches reported.
bool ew_cuda_enter(ew_cuda *cuda);
void ew_cuda_leave(ew_cuda *cuda, const char *operation);
void ew_cuda_check(ew_cuda *cuda, cudaError_t error, const char *operation);

// Forgets this thread's failure, which is none of the device's; false: there was none.
bool ew_cuda_forgive(ew_cuda *cuda);

// Graphs hold addresses: once memory is given back none of them may be launched again.
void ew_cuda_forget_graphs(ew_cuda *cuda);

// While a capture lasts, no other thread may touch the compute stream.
void ew_cuda_lock_compute(ew_cuda *cuda);
void ew_cuda_unlock_compute(ew_cuda *cuda);

// Whether so many bytes there are memory of the host that the device reads.
bool ew_cuda_is_shared(const ew_cuda *cuda, const void *at, size_t bytes);

// For rows_init, rows_get, rows_put: the stream of rows, which leave_rows waits for. For the thread
// that queued last, what it queued has run before.
bool ew_cuda_enter_rows(ew_cuda *cuda, cudaStream_t *stream_p);
void ew_cuda_leave_rows(ew_cuda *cuda, cudaStream_t stream, const char *operation);

// ---- shapes ------------------------------------------------------------------------------------

static inline uint32_t ew_cuda_blocks(uint64_t count, uint32_t per_block)
{
    return (uint32_t)((count + per_block - 1) / per_block);
}

// The power of two that is at least count, within [1, limit].
static inline uint32_t ew_cuda_power(uint32_t count, uint32_t limit)
{
    uint32_t power = 1;
    while (power < count && power < limit)
        power *= 2;
    return power;
}

// Threads of a matrix: x over its columns, so that neighbours read neighbours; y over its rows.
typedef struct {
    dim3 grid, block;
} ew_cuda_tile;

static inline ew_cuda_tile ew_cuda_tile_of(uint32_t row_count, uint32_t column_count)
{
    uint32_t x = ew_cuda_power(column_count, EW_CUDA_THREADS), y = EW_CUDA_THREADS / x;
    return {dim3(ew_cuda_blocks(row_count, y), ew_cuda_blocks(column_count, x)), dim3(x, y)};
}

// One group of lanes, at most a warp, per row.
static inline ew_cuda_tile ew_cuda_groups_of(uint32_t row_count, uint32_t lane_count)
{
    uint32_t x = ew_cuda_power(lane_count, EW_CUDA_WARP), y = EW_CUDA_THREADS / x;
    return {dim3(ew_cuda_blocks(row_count, y)), dim3(x, y)};
}

static __device__ inline uint32_t ew_cuda_row(void)
{
    return blockIdx.x * blockDim.y + threadIdx.y;
}

static __device__ inline uint32_t ew_cuda_column(void)
{
    return blockIdx.y * blockDim.x + threadIdx.x;
}

// W neighbouring floats, read and written in one go.
template <uint32_t W> struct alignas(4 * W) ew_cuda_pack {
    float at[W];
};

template <uint32_t W> static __device__ inline ew_cuda_pack<W> ew_cuda_load(const float *from)
{
    return *(const ew_cuda_pack<W> *)(const void *)from;
}

template <uint32_t W>
static __device__ inline void ew_cuda_store(float *to, const ew_cuda_pack<W> &values)
{
    *(ew_cuda_pack<W> *)(void *)to = values;
}

// Whether rows of so many floats, so far apart, from there, consist of whole packs of 4.
static inline bool ew_cuda_fits_4(const void *base, uint64_t count, uint64_t stride)
{
    return (uintptr_t)base % 16 == 0 && count % 4 == 0 && stride % 4 == 0;
}

// ---- sums --------------------------------------------------------------------------------------

// Of the threads with one y, a power of two of them up to a warp. All threads of the warp call.
template <typename T> static __device__ inline T ew_cuda_group_sum(T value)
{
    for (uint32_t bits = blockDim.x / 2; bits > 0; bits /= 2)
        value += __shfl_xor_sync(EW_CUDA_FULL, value, bits);
    return value;
}

// Of a block of whole warps, one-dimensional; shared: 32 numbers. All threads call, and get the
// sum. Two calls in a row may use the same shared numbers.
template <typename T> static __device__ inline T ew_cuda_block_sum(T value, T *shared)
{
    uint32_t lane = threadIdx.x % EW_CUDA_WARP, warp = threadIdx.x / EW_CUDA_WARP;
    for (uint32_t bits = EW_CUDA_WARP / 2; bits > 0; bits /= 2)
        value += __shfl_xor_sync(EW_CUDA_FULL, value, bits);
    __syncthreads();
    if (lane == 0)
        shared[warp] = value;
    __syncthreads();
    T sum = 0;
    for (uint32_t i = 0; i < blockDim.x / EW_CUDA_WARP; i++)
        sum += shared[i];
    return sum;
}

// out[k] = sum over part_count of parts[part x stride + k], in order (ew_cuda_sums.cu).
void ew_cuda_sum_parts(ew_cuda *cuda, uint32_t part_count, uint32_t count, const float *parts,
                       float *out);

// How many parts of a sum over item_count items, count floats each, to make: enough to occupy the
// device, no more than fit into scratch, at least 1. *chunk_p: items of each but the last. It is a
// multiple of item_min, so that a few items more, whose terms are 0, change no bit of the sum.
uint32_t ew_cuda_part_count(const ew_cuda *cuda, uint32_t item_count, uint32_t item_min,
                            uint64_t count, uint32_t *chunk_p);

// ---- look-ups ----------------------------------------------------------------------------------

static __device__ inline float ew_cuda_bag_weight(const ew_lookups &l, uint32_t bag)
{
    if (l.pooling == RT_POOL_SUM || !l.bag_offsets)
        return 1;
    uint32_t size = l.bag_offsets[bag + 1] - l.bag_offsets[bag];
    return size ? 1 / (float)size : 0;
}

static __device__ inline uint32_t ew_cuda_bag_begin(const ew_lookups &l, uint32_t bag)
{
    return l.bag_offsets ? l.bag_offsets[bag] : bag;
}

static __device__ inline uint32_t ew_cuda_bag_end(const ew_lookups &l, uint32_t bag)
{
    return l.bag_offsets ? l.bag_offsets[bag + 1] : bag + 1;
}

static __device__ inline const float *ew_cuda_row_values(const ew_lookups &l, uint32_t row)
{
    return l.slab + (size_t)l.row_slots[row] * l.row_stride;
}

// ---- the operations, by file -------------------------------------------------------------------

extern "C" {
void ew_cuda_repeat(void *state, const void *key, size_t bytes, void (*work)(void *context),
                    void *context);
void ew_cuda_rows_init(void *state, const rt_optimizer_config *optimizer, uint32_t dim,
                       uint64_t seed, float scale, const uint64_t *keys, const uint32_t *slots,
                       uint32_t count, float *slab, uint32_t row_stride);
void ew_cuda_rows_get(void *state, const float *slab, uint32_t row_stride, uint32_t float_count,
                      const uint32_t *slots, uint32_t count, float *packed);
void ew_cuda_rows_put(void *state, float *slab, uint32_t row_stride, uint32_t float_count,
                      const uint32_t *slots, uint32_t count, const float *packed);
void ew_cuda_rows_step(void *state, const rt_optimizer_config *optimizer, uint32_t dim,
                       uint64_t step, float *slab, uint32_t row_stride, const uint32_t *slots,
                       const uint32_t *rows, uint32_t count, const float *gradients);
void ew_cuda_index(void *state, const ew_lookups *lookups);
void ew_cuda_pool(void *state, const ew_lookups *lookups, const float *dense, uint32_t dense_count,
                  float *out, uint32_t stride);
void ew_cuda_wide(void *state, const ew_lookups *lookups, const float *weights, float *logits);
void ew_cuda_wide_back(void *state, const ew_lookups *lookups, const float *logit_gradients,
                       float *weight_gradients);
void ew_cuda_rows_back(void *state, const ew_lookups *lookups, const float *pooled_gradients,
                       uint32_t stride, const float *weights, float *gradients);
void ew_cuda_gemm(void *state, bool a_transposed, bool b_transposed, uint32_t m, uint32_t n,
                  uint32_t k, const float *a, uint32_t a_stride, const float *b, uint32_t b_stride,
                  float beta, float *c, uint32_t c_stride);
void ew_cuda_activate(void *state, ew_activation activation, uint32_t row_count,
                      uint32_t column_count, const float *bias, float *values, uint32_t stride);
void ew_cuda_activate_back(void *state, ew_activation activation, uint32_t row_count,
                           uint32_t column_count, const float *values, float *gradients,
                           uint32_t stride, float *bias_gradients);
void ew_cuda_loss(void *state, uint32_t count, const float *logits, const float *labels,
                  const float *weights, float scale, float *predictions, float *gradients,
                  double *loss);
void ew_cuda_classes(void *state, uint32_t sample_count, uint32_t class_count, const float *logits,
                     const float *labels, float scale, float *predictions, float *gradients,
                     double *loss);
void ew_cuda_step(void *state, const rt_optimizer_config *optimizer, uint32_t count, uint64_t step,
                  float *values, float *optimizer_state, const float *gradients);
void ew_cuda_fm(void *state, uint32_t sample_count, uint32_t count, uint32_t dim, const float *x,
                uint32_t stride, float *sums, float *logits);
void ew_cuda_fm_back(void *state, uint32_t sample_count, uint32_t count, uint32_t dim,
                     const float *x, uint32_t stride, const float *sums,
                     const float *logit_gradients, float *x_gradients);
void ew_cuda_cross(void *state, uint32_t sample_count, uint32_t layer_count, uint32_t dim,
                   const float *weights, const float *biases, const float *products,
                   uint32_t stride, float *logits);
void ew_cuda_cross_back(void *state, uint32_t sample_count, uint32_t layer_count, uint32_t dim,
                        const float *weights, const float *biases, const float *products,
                        uint32_t stride, const float *logit_gradients, float *product_gradients,
                        float *weight_gradients, float *bias_gradients);
void ew_cuda_cross_matrix(void *state, uint32_t sample_count, uint32_t dim, const float *x0,
                          const float *x, const float *bias, float *z, float *next,
                          uint32_t stride);
void ew_cuda_cross_matrix_back(void *state, uint32_t sample_count, uint32_t dim, bool is_first,
                               bool is_last, const float *x0, const float *z,
                               const float *next_gradients, float *z_gradients, float *x0_gradients,
                               float *bias_gradients, uint32_t stride);
void ew_cuda_dots(void *state, uint32_t sample_count, uint32_t count, uint32_t dim, const float *x,
                  uint32_t stride, float *out, uint32_t out_stride);
void ew_cuda_dots_back(void *state, uint32_t sample_count, uint32_t count, uint32_t dim,
                       const float *x, uint32_t stride, const float *out_gradients,
                       uint32_t out_stride, float *x_gradients);
void ew_cuda_gmf(void *state, uint32_t sample_count, uint32_t dim, const float *u, const float *v,
                 uint32_t stride, const float *weights, float *logits);
void ew_cuda_gmf_back(void *state, uint32_t sample_count, uint32_t dim, const float *u,
                      const float *v, uint32_t stride, const float *weights,
                      const float *logit_gradients, float *u_gradients, float *v_gradients,
                      float *weight_gradients);
}

#endif
