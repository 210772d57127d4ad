// The CUDA device: streams, memory, copies, errors, and the tables.
//
// Copies go through pinned host memory, in two halves: while the device reads one, the host fills
// the other. What is copied out arrives in pinned memory first and is handed over by finish. Memory
// from alloc_shared is pinned itself: copies to and from there go straight.
#include "edge_worker/device/cuda/ew_cuda_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define LOCK_PAUSE_NS 20000
#define BLAS_WORKSPACE_BYTES ((size_t)32 << 20)

// ---- errors ------------------------------------------------------------------------------------

// The first failure wins; both threads may come here.
static const void *this_thread(void);

static void fail(ew_cuda *cuda, rt_status status, const char *operation, const char *text)
{
    int none = 0;
    if (!__atomic_compare_exchange_n(&cuda->failed, &none, 1, false, __ATOMIC_ACQ_REL,
                                     __ATOMIC_ACQUIRE))
        return;
    (void)rt_fail(&cuda->failure, status, "cuda:%u: %s: %s", cuda->index, operation, text);
    __atomic_store_n(&cuda->failed_in, this_thread(), __ATOMIC_RELAXED);
    __atomic_store_n(&cuda->failed, 2, __ATOMIC_RELEASE);
}

void ew_cuda_check(ew_cuda *cuda, cudaError_t error, const char *operation)
{
    if (error == cudaSuccess)
        return;
    (void)cudaGetLastError(); // else this thread's next operation would tell of it again
    fail(cuda, error == cudaErrorMemoryAllocation ? RT_NO_MEMORY : RT_IO, operation,
         cudaGetErrorString(error));
}

bool ew_cuda_forgive(ew_cuda *cuda)
{
    int written = 2;
    return __atomic_load_n(&cuda->failed, __ATOMIC_ACQUIRE) == written &&
           __atomic_load_n(&cuda->failed_in, __ATOMIC_RELAXED) == this_thread() &&
           __atomic_compare_exchange_n(&cuda->failed, &written, 0, false, __ATOMIC_ACQ_REL,
                                       __ATOMIC_ACQUIRE);
}

static bool has_failed(const ew_cuda *cuda)
{
    return __atomic_load_n(&cuda->failed, __ATOMIC_ACQUIRE) != 0;
}

// CUDA's current device belongs to the thread.
static void select_device(ew_cuda *cuda)
{
    static thread_local uint32_t selected = UINT32_MAX;
    if (selected == cuda->index)
        return;
    ew_cuda_check(cuda, cudaSetDevice((int)cuda->index), "cudaSetDevice");
    selected = cuda->index;
}

// An address that only this thread has.
static const void *this_thread(void)
{
    static thread_local char mark;
    return &mark;
}

bool ew_cuda_enter(ew_cuda *cuda)
{
    __atomic_store_n(&cuda->owner, this_thread(), __ATOMIC_RELAXED);
    select_device(cuda);
    return !has_failed(cuda);
}

void ew_cuda_leave(ew_cuda *cuda, const char *operation)
{
    ew_cuda_check(cuda, cudaGetLastError(), operation);
}

// Held for a capture or for one wait: microseconds to a few milliseconds, and hardly ever asked
// for.
void ew_cuda_lock_compute(ew_cuda *cuda)
{
    const timespec pause = {0, LOCK_PAUSE_NS};
    while (__atomic_exchange_n(&cuda->compute_lock, 1, __ATOMIC_ACQUIRE))
        (void)nanosleep(&pause, NULL);
}

void ew_cuda_unlock_compute(ew_cuda *cuda)
{
    __atomic_store_n(&cuda->compute_lock, 0, __ATOMIC_RELEASE);
}

bool ew_cuda_enter_rows(ew_cuda *cuda, cudaStream_t *stream_p)
{
    select_device(cuda);
    *stream_p = cuda->rows;
    // Between the look and the wait the training thread may begin a capture: hence the lock, which
    // is taken only by who queued last.
    if (__atomic_load_n(&cuda->owner, __ATOMIC_RELAXED) == this_thread()) {
        ew_cuda_lock_compute(cuda);
        if (__atomic_load_n(&cuda->owner, __ATOMIC_RELAXED) == this_thread())
            ew_cuda_check(cuda, cudaStreamSynchronize(cuda->compute), "rows");
        ew_cuda_unlock_compute(cuda);
    }
    return !has_failed(cuda);
}

void ew_cuda_leave_rows(ew_cuda *cuda, cudaStream_t stream, const char *operation)
{
    ew_cuda_check(cuda, cudaGetLastError(), operation);
    ew_cuda_check(cuda, cudaStreamSynchronize(stream), operation);
}

// ---- memory ------------------------------------------------------------------------------------

static void *cuda_alloc(void *state, size_t count)
{
    ew_cuda *cuda = (ew_cuda *)state;
    void *block = NULL;
    select_device(cuda);
    if (count > SIZE_MAX / 8)
        return NULL;
    size_t bytes = count ? count * sizeof(float) : sizeof(float);
    if (cudaMalloc(&block, bytes) != cudaSuccess) {
        (void)cudaGetLastError(); // running out of memory is no failure of the device
        return NULL;
    }
    if (cudaMemsetAsync(block, 0, bytes, cuda->compute) != cudaSuccess ||
        cudaStreamSynchronize(cuda->compute) != cudaSuccess) {
        (void)cudaGetLastError();
        (void)cudaFree(block);
        return NULL;
    }
    return block;
}

static void cuda_free(void *state, void *block)
{
    ew_cuda *cuda = (ew_cuda *)state;
    select_device(cuda);
    if (!block)
        return;
    ew_cuda_forget_graphs(cuda);
    (void)cudaFree(block);
}

static void *cuda_alloc_shared(void *state, size_t count)
{
    ew_cuda *cuda = (ew_cuda *)state;
    void *block = NULL;
    size_t bytes = count ? count * sizeof(float) : sizeof(float);
    select_device(cuda);
    if (cuda->shared_count == EW_CUDA_SHARED_MAX || count > SIZE_MAX / 8 ||
        cudaHostAlloc(&block, bytes, cudaHostAllocPortable | cudaHostAllocMapped) != cudaSuccess) {
        (void)cudaGetLastError();
        return NULL;
    }
    memset(block, 0, bytes);
    cuda->shared[cuda->shared_count].begin = (char *)block;
    cuda->shared[cuda->shared_count++].bytes = bytes;
    return block;
}

static void cuda_free_shared(void *state, void *block)
{
    ew_cuda *cuda = (ew_cuda *)state;
    select_device(cuda);
    for (uint32_t i = 0; i < cuda->shared_count; i++) {
        if (cuda->shared[i].begin != block)
            continue;
        ew_cuda_forget_graphs(cuda);
        cuda->shared[i] = cuda->shared[--cuda->shared_count];
        (void)cudaFreeHost(block);
        return;
    }
}

bool ew_cuda_is_shared(const ew_cuda *cuda, const void *at, size_t bytes)
{
    const char *begin = (const char *)at;
    for (uint32_t i = 0; i < cuda->shared_count; i++)
        if (begin >= cuda->shared[i].begin &&
            begin + bytes <= cuda->shared[i].begin + cuda->shared[i].bytes)
            return true;
    return false;
}

// ---- copies ------------------------------------------------------------------------------------

static void copy_in(ew_cuda *cuda, char *to, const char *from, size_t bytes)
{
    while (bytes > 0 && !has_failed(cuda)) {
        if (cuda->stage_used == EW_CUDA_STAGE_BYTES) {
            ew_cuda_check(cuda, cudaEventRecord(cuda->stage_event[cuda->stage_half], cuda->compute),
                          "copy");
            cuda->stage_half ^= 1;
            cuda->stage_used = 0;
            ew_cuda_check(cuda, cudaEventSynchronize(cuda->stage_event[cuda->stage_half]), "copy");
        }
        size_t room = EW_CUDA_STAGE_BYTES - cuda->stage_used, piece = bytes < room ? bytes : room;
        char *at = cuda->stage_in + cuda->stage_half * EW_CUDA_STAGE_BYTES + cuda->stage_used;
        memcpy(at, from, piece);
        ew_cuda_check(cuda, cudaMemcpyAsync(to, at, piece, cudaMemcpyHostToDevice, cuda->compute),
                      "copy");
        cuda->stage_used += (piece + 63) / 64 * 64; // stage sizes are multiples of it
        to += piece;
        from += piece;
        bytes -= piece;
    }
}

// Hands over what was copied out.
static void deliver(ew_cuda *cuda)
{
    ew_cuda_check(cuda, cudaStreamSynchronize(cuda->compute), "finish");
    for (uint32_t i = 0; i < cuda->out_count && !has_failed(cuda); i++)
        memcpy(cuda->outs[i].to, cuda->outs[i].from, cuda->outs[i].bytes);
    cuda->out_count = 0;
    cuda->out_used = 0;
}

static void copy_out(ew_cuda *cuda, char *to, const char *from, size_t bytes)
{
    const size_t all = 2 * EW_CUDA_STAGE_BYTES;
    while (bytes > 0 && !has_failed(cuda)) {
        if (cuda->out_used == all || cuda->out_count == EW_CUDA_OUTS_MAX)
            deliver(cuda);
        size_t room = all - cuda->out_used, piece = bytes < room ? bytes : room;
        char *at = cuda->stage_out + cuda->out_used;
        ew_cuda_check(cuda, cudaMemcpyAsync(at, from, piece, cudaMemcpyDeviceToHost, cuda->compute),
                      "copy");
        cuda->outs[cuda->out_count++] = {to, at, piece};
        cuda->out_used += (piece + 63) / 64 * 64;
        to += piece;
        from += piece;
        bytes -= piece;
    }
}

// Whether the device reaches the host's side of a copy by itself.
static bool is_reached(const ew_cuda *cuda, ew_copy kind, const void *to, const void *from,
                       size_t bytes)
{
    if (kind == EW_COPY_WITHIN)
        return true;
    return ew_cuda_is_shared(cuda, kind == EW_COPY_IN ? from : to, bytes);
}

static void cuda_copy(void *state, ew_copy kind, void *to, const void *from, size_t bytes)
{
    static const cudaMemcpyKind kinds[] = {cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost,
                                           cudaMemcpyDeviceToDevice}; // as in ew_copy
    ew_cuda *cuda = (ew_cuda *)state;
    if (bytes == 0 || !ew_cuda_enter(cuda))
        return;
    if (is_reached(cuda, kind, to, from, bytes))
        ew_cuda_check(cuda, cudaMemcpyAsync(to, from, bytes, kinds[kind], cuda->compute), "copy");
    else if (kind == EW_COPY_OUT)
        copy_out(cuda, (char *)to, (const char *)from, bytes);
    else
        copy_in(cuda, (char *)to, (const char *)from, bytes);
    ew_cuda_leave(cuda, "copy");
}

static rt_status cuda_finish(void *state, rt_error *error)
{
    ew_cuda *cuda = (ew_cuda *)state;
    (void)ew_cuda_enter(cuda);
    deliver(cuda);
    ew_cuda_leave(cuda, "finish");
    if (!has_failed(cuda))
        return RT_OK;
    while (__atomic_load_n(&cuda->failed, __ATOMIC_ACQUIRE) == 1)
        ; // the other thread is writing its sentence
    rt_status status = cuda->failure.status;
    if (error)
        *error = cuda->failure;
    __atomic_store_n(&cuda->failed, 0, __ATOMIC_RELEASE);
    return status;
}

// ---- products ----------------------------------------------------------------------------------

// Only the beta c of a product over nothing. One thread per element: blocks share none.
static __global__ void scale_matrix(uint32_t m, uint32_t n, float beta, float *c, uint32_t c_stride)
{
    uint32_t i = ew_cuda_row(), j = ew_cuda_column();
    if (i < m && j < n)
        c[(size_t)i * c_stride + j] = beta == 0 ? 0 : beta * c[(size_t)i * c_stride + j];
}

// cuBLAS is column major: it computes the transposed product with the factors swapped.
extern "C" void ew_cuda_gemm(void *state, bool a_transposed, bool b_transposed, uint32_t m,
                             uint32_t n, uint32_t k, const float *a, uint32_t a_stride,
                             const float *b, uint32_t b_stride, float beta, float *c,
                             uint32_t c_stride)
{
    ew_cuda *cuda = (ew_cuda *)state;
    const float one = 1;
    if (m == 0 || n == 0 || !ew_cuda_enter(cuda))
        return;
    if (k == 0) {
        ew_cuda_tile tile = ew_cuda_tile_of(m, n);
        LAUNCH(scale_matrix, tile.grid, tile.block, 0, cuda->compute, m, n, beta, c, c_stride);
    } else {
        cublasStatus_t status =
            cublasSgemm(cuda->blas, b_transposed ? CUBLAS_OP_T : CUBLAS_OP_N,
                        a_transposed ? CUBLAS_OP_T : CUBLAS_OP_N, (int)n, (int)m, (int)k, &one, b,
                        (int)b_stride, a, (int)a_stride, &beta, c, (int)c_stride);
        if (status != CUBLAS_STATUS_SUCCESS)
            fail(cuda, RT_IO, "gemm", cublasGetStatusString(status));
    }
    ew_cuda_leave(cuda, "gemm");
}

// ---- opening -----------------------------------------------------------------------------------

static void cuda_close(void *state)
{
    ew_cuda *cuda = (ew_cuda *)state;
    select_device(cuda);
    if (cuda->compute)
        (void)cudaStreamSynchronize(cuda->compute);
    ew_cuda_forget_graphs(cuda);
    if (cuda->blas)
        (void)cublasDestroy(cuda->blas);
    for (int i = 0; i < 2; i++)
        if (cuda->stage_event[i])
            (void)cudaEventDestroy(cuda->stage_event[i]);
    if (cuda->stage_in)
        (void)cudaFreeHost(cuda->stage_in);
    if (cuda->stage_out)
        (void)cudaFreeHost(cuda->stage_out);
    if (cuda->scratch)
        (void)cudaFree(cuda->scratch);
    if (cuda->blas_workspace)
        (void)cudaFree(cuda->blas_workspace);
    if (cuda->compute)
        (void)cudaStreamDestroy(cuda->compute);
    if (cuda->rows)
        (void)cudaStreamDestroy(cuda->rows);
    free(cuda);
}

// A workspace of our own: then products on one stream repeat bit for bit.
static cublasStatus_t open_blas(ew_cuda *cuda)
{
    cublasStatus_t status = cublasCreate(&cuda->blas);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = cublasSetStream(cuda->blas, cuda->compute);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = cublasSetWorkspace(cuda->blas, cuda->blas_workspace, BLAS_WORKSPACE_BYTES);
    if (status == CUBLAS_STATUS_SUCCESS && cuda->tf32)
        status = cublasSetMathMode(cuda->blas, CUBLAS_TF32_TENSOR_OP_MATH);
    return status;
}

static cudaError_t open_memory(ew_cuda *cuda)
{
    const size_t bytes = 2 * EW_CUDA_STAGE_BYTES;
    const unsigned flags = cudaHostAllocPortable | cudaHostAllocMapped;
    cudaDeviceProp properties;
    cudaError_t error = cudaSetDevice((int)cuda->index);
    if (!error)
        error = cudaGetDeviceProperties(&properties, (int)cuda->index);
    cuda->processor_count = error ? 1 : (uint32_t)properties.multiProcessorCount;
    if (!error)
        error = cudaStreamCreateWithFlags(&cuda->compute, cudaStreamNonBlocking);
    if (!error)
        error = cudaStreamCreateWithFlags(&cuda->rows, cudaStreamNonBlocking);
    for (int i = 0; i < 2 && !error; i++)
        error = cudaEventCreateWithFlags(&cuda->stage_event[i], cudaEventDisableTiming);
    if (!error)
        error = cudaHostAlloc((void **)&cuda->stage_in, bytes, flags);
    if (!error)
        error = cudaHostAlloc((void **)&cuda->stage_out, bytes, flags);
    if (!error)
        error = cudaMalloc((void **)&cuda->scratch, EW_CUDA_SCRATCH_FLOATS * sizeof(float));
    if (!error)
        error = cudaMalloc(&cuda->blas_workspace, BLAS_WORKSPACE_BYTES);
    return error;
}

extern "C" rt_status ew_cuda_create(uint32_t index, bool tf32, void **state_p, rt_error *error)
{
    ew_cuda *cuda = (ew_cuda *)calloc(1, sizeof *cuda);
    if (!cuda)
        return rt_fail(error, RT_NO_MEMORY, "no memory for a device");
    cuda->index = index;
    cuda->tf32 = tf32;
    cudaError_t failed = open_memory(cuda);
    cublasStatus_t status = failed ? CUBLAS_STATUS_SUCCESS : open_blas(cuda);
    if (failed || status) {
        cuda_close(cuda);
        return rt_fail(error, failed == cudaErrorMemoryAllocation ? RT_NO_MEMORY : RT_UNSUPPORTED,
                       "cuda:%u: %s", index,
                       failed ? cudaGetErrorString(failed) : cublasGetStatusString(status));
    }
    *state_p = cuda;
    return RT_OK;
}

static const ew_device_ops device_ops = {
    cuda_close,       cuda_alloc,       cuda_free,         cuda_alloc_shared,
    cuda_free_shared, cuda_copy,        cuda_finish,       ew_cuda_rows_init,
    ew_cuda_rows_get, ew_cuda_rows_put, ew_cuda_rows_step, ew_cuda_repeat,
};

static const ew_layer_ops layer_ops = {
    ew_cuda_index,     ew_cuda_pool,    ew_cuda_wide,     ew_cuda_wide_back,
    ew_cuda_rows_back, ew_cuda_gemm,    ew_cuda_activate, ew_cuda_activate_back,
    ew_cuda_loss,      ew_cuda_classes, ew_cuda_step,
};

static const ew_interaction_ops interaction_ops = {
    ew_cuda_fm,           ew_cuda_fm_back,           ew_cuda_cross, ew_cuda_cross_back,
    ew_cuda_cross_matrix, ew_cuda_cross_matrix_back, ew_cuda_dots,  ew_cuda_dots_back,
    ew_cuda_gmf,          ew_cuda_gmf_back,
};

extern "C" {
extern const ew_cuda_table ew_cuda_device_table;
const ew_cuda_table ew_cuda_device_table = {&device_ops, &layer_ops, &interaction_ops,
                                            ew_cuda_create};
}
