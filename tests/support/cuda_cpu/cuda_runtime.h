// cuda_runtime (CPU) - the part of CUDA that the kernels of this project use, on a CPU.
//
// A .cu file compiled as C++ with this folder on the include path runs here: the threads of a
// block are fibers that take turns, in an order that a seed shuffles; blocks run one after another,
// shuffled too. Every call of the runtime has run when it returns.
// - Shared memory starts out as NaN in every block, and each array is a heap block of its own, so
//   that the address sanitizer sees what leaves it.
// - A barrier or shuffle that not all threads of the block (the warp) reach ends the program with
//   file and line.
// - Pointers among the arguments of a kernel must be pinned memory, or the memory of the device
// that
//   is the thread's current one; so must its stream. No other thread may use a stream that is being
//   captured. Under the address sanitizer the host may not touch device memory.
// - Under the thread sanitizer threads of a launch are ordered by nothing but barriers, within a
//   block and between blocks: it reports races of both kinds. Shuffles order no memory.
// What is not here does not compile: constant and managed memory, textures, plain __shared__
// variables (see SHARED), <<<>>> (see LAUNCH), streams' callbacks, cooperative groups.
// Not shown by any run here: too little memory on the chip, timing, rounding of a GPU's library
// functions, a warp's true interleaving, and what a missing synchronisation of streams does.
#ifndef CUDA_CPU_RUNTIME_H
#define CUDA_CPU_RUNTIME_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <new>
#include <string.h>

#define CUDA_CPU 1
#define CUDA_CPU_WARP 32u

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __shared__ static_assert(false, "use SHARED or SHARED_DYNAMIC")
#define __constant__ static_assert(false, "constant memory is not supported here")
#define __managed__ static_assert(false, "managed memory is not supported here")

struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_)
    {
    }
};

// ---- the engine (cuda_cpu.cc) ------------------------------------------------------------------

struct cuda_cpu_thread {
    dim3 thread, block, block_dim, grid_dim;
};

typedef struct cuda_cpu_stream *cudaStream_t;
typedef struct cuda_cpu_event *cudaEvent_t;
typedef struct cuda_cpu_graph *cudaGraph_t, *cudaGraphExec_t;
typedef enum { cudaStreamCaptureModeThreadLocal = 1 } cudaStreamCaptureMode;

extern "C" {
const cuda_cpu_thread *cuda_cpu_self(void);
void cuda_cpu_run(const char *kernel, dim3 grid, dim3 block, size_t shared_bytes,
                  void (*body)(void *context), void *context);
// pointer must be the current device's, or pinned. Of a launch: stream must be that device's too.
void cuda_cpu_argument(const char *kernel, const void *pointer);
void cuda_cpu_launch_on(const char *kernel, cudaStream_t stream);
void cuda_cpu_block_barrier(const char *file, int line);
void cuda_cpu_warp_barrier(const char *file, int line);
// All lanes give size bytes; the result is those of lane source.
void cuda_cpu_exchange(const void *value, void *result, size_t size, unsigned source,
                       const char *file, int line);
unsigned cuda_cpu_lane(void);
void *cuda_cpu_shared(size_t bytes, const char *file, int line);
void *cuda_cpu_shared_dynamic(void);

// For tests: the order of threads and blocks; how many devices there are (at the start
// CUDA_CPU_DEVICES of the environment, or 1; negative: no driver); the call of the runtime after
// which all fail (0: none), or the one that fails alone (from 1; 0: none), and how many calls these
// two have made fail; of each capture, from its begin to the making of its graph, the call that
// fails and breaks it (0: none); whether kernels have code for the devices (at the start they have,
// unless CUDA_CPU_NO_CODE is in the environment). For whole processes: CUDA_CPU_FAIL="DEVICE CALLS"
// of the environment, after so many calls all of that device fail.
void cuda_cpu_seed(uint64_t seed);
void cuda_cpu_device_count(int count);
void cuda_cpu_fail_after(uint64_t calls);
void cuda_cpu_fail_once(uint64_t call);
uint64_t cuda_cpu_failures(void);
void cuda_cpu_fail_captures(uint64_t call);
void cuda_cpu_has_code(bool yes);

// From now on memory comes from one stretch, and always the first gap that is large enough: what
// was freed last is given out again at once, as a GPU's allocator does.
void cuda_cpu_first_fit(void);

// Graphs that were launched, and that there are. Since the start: kernels, products and graphs that
// were launched one by one, and waits for a stream or an event; with CUDA_CPU_COUNTS in the
// environment a process says so at its end, and how many graphs it made and launched.
void cuda_cpu_graphs(uint64_t *launched, uint64_t *alive);
void cuda_cpu_counts(uint64_t *launches, uint64_t *waits);

// Pieces of memory, streams, events and handles of cuBLAS that were made and not yet given back.
uint64_t cuda_cpu_alive(void);

// Of the bytes that copies have moved between host and device since begin was given: those whose
// side on the host lies in these size bytes, and the others.
void cuda_cpu_watch_copies(const void *begin, size_t size);
void cuda_cpu_watched_copies(uint64_t *inside, uint64_t *outside);

// For what stands in for a library of CUDA's: device memory can be used between true and false.
void cuda_cpu_device_memory(bool usable);
}

#define threadIdx (cuda_cpu_self()->thread)
#define blockIdx (cuda_cpu_self()->block)
#define blockDim (cuda_cpu_self()->block_dim)
#define gridDim (cuda_cpu_self()->grid_dim)

// What a stream under capture is given, until its graph is launched.
struct cuda_cpu_step {
    void (*run)(const cuda_cpu_step *step);
    cuda_cpu_step *next;
};
extern "C" bool cuda_cpu_recording(void);
extern "C" void cuda_cpu_record(cuda_cpu_step *step); // from malloc

template <typename F> struct cuda_cpu_recorded : cuda_cpu_step {
    F work;
};
template <typename F> void cuda_cpu_record_work(const F &work)
{
    void *room = malloc(sizeof(cuda_cpu_recorded<F>));
    auto run = [](const cuda_cpu_step *step) {
        static_cast<const cuda_cpu_recorded<F> *>(step)->work();
    };
    cuda_cpu_record(new (room) cuda_cpu_recorded<F>{{run, NULL}, work});
}

// With CUDA_CPU_PTX a launch runs what nvcc made of the kernel (tests/support/ptx), not what the
// host's compiler did.
#ifdef CUDA_CPU_PTX
struct ptx_kernel;
extern "C" const ptx_kernel *ptx_find(const char *pretty_name);
extern "C" void ptx_check(const ptx_kernel *kernel, unsigned threads);
extern "C" void ptx_run(const ptx_kernel *kernel, void **arguments);
template <auto F> const ptx_kernel *ptx_of()
{
    static const ptx_kernel *const kernel = ptx_find(__PRETTY_FUNCTION__);
    return kernel;
}
#define CUDA_CPU_MACHINE(kernel) ptx_of<kernel>()
#else
struct ptx_kernel;
#define CUDA_CPU_MACHINE(kernel) NULL
#endif

template <typename... P> struct cuda_cpu_launcher {
    const char *name;
    dim3 grid, block;
    size_t shared_bytes;
    cudaStream_t stream;
    void (*kernel)(P...);
    const ptx_kernel *machine; // or NULL

    template <typename T> void check(T *pointer) const
    {
        cuda_cpu_argument(name, pointer);
    }
    template <typename T> void check(const T &) const
    {
    }
    void operator()(P... arguments) const
    {
        cuda_cpu_launch_on(name, stream);
        (check(arguments), ...);
        if (cuda_cpu_recording()) {
            const cuda_cpu_launcher self = *this;
            cuda_cpu_record_work([=]() { self(arguments...); });
            return;
        }
#ifdef CUDA_CPU_PTX
        void *addresses[] = {(void *)&arguments...};
        ptx_check(machine, block.x * block.y * block.z);
        auto body = [&]() { ptx_run(machine, addresses); };
#else
        auto body = [&]() { kernel(arguments...); };
#endif
        cuda_cpu_run(
            name, grid, block, shared_bytes,
            [](void *context) { (*static_cast<decltype(body) *>(context))(); }, &body);
    }
};

template <typename... P>
cuda_cpu_launcher<P...> cuda_cpu_launch(const char *name, void (*kernel)(P...), dim3 grid,
                                        dim3 block, size_t shared_bytes, cudaStream_t stream,
                                        const ptx_kernel *machine)
{
    return {name, grid, block, shared_bytes, stream, kernel, machine};
}

#define LAUNCH(kernel, grid, block, shared_bytes, stream, ...)          \
    cuda_cpu_launch(#kernel, kernel, grid, block, shared_bytes, stream, \
                    CUDA_CPU_MACHINE(kernel))(__VA_ARGS__)
#define SHARED(type, name, count) \
    type *name = static_cast<type *>(cuda_cpu_shared((count) * sizeof(type), __FILE__, __LINE__))
#define SHARED_DYNAMIC(type, name) type *name = static_cast<type *>(cuda_cpu_shared_dynamic())

// ---- what kernels call -------------------------------------------------------------------------

#define __syncthreads() cuda_cpu_block_barrier(__FILE__, __LINE__)
#define __syncwarp() cuda_cpu_warp_barrier(__FILE__, __LINE__)

#define CUDA_CPU_FULL 0xffffffffu

template <typename T>
inline T cuda_cpu_shuffle(unsigned mask, T value, unsigned source, const char *file, int line)
{
    T result;
    static_assert(__is_trivially_copyable(T), "shuffles move numbers");
    // A partial mask is no feature of this header.
    cuda_cpu_exchange(&value, &result, sizeof value, mask == CUDA_CPU_FULL ? source : ~0u, file,
                      line);
    return result;
}

#define __shfl_sync(mask, value, lane) \
    cuda_cpu_shuffle(mask, value, (unsigned)(lane) % CUDA_CPU_WARP, __FILE__, __LINE__)
#define __shfl_xor_sync(mask, value, bits) \
    cuda_cpu_shuffle(mask, value, cuda_cpu_lane() ^ (unsigned)(bits), __FILE__, __LINE__)
// Below lane 0 and above lane 31 a thread gets its own value.
#define __shfl_up_sync(mask, value, delta)                                            \
    cuda_cpu_shuffle(mask, value,                                                     \
                     cuda_cpu_lane() >= (unsigned)(delta) ? cuda_cpu_lane() - (delta) \
                                                          : cuda_cpu_lane(),          \
                     __FILE__, __LINE__)

// Relaxed, as on a GPU: they order nothing else.
template <typename T> inline T atomicAdd(T *at, T value)
{
    static_assert(__is_same(T, int) || __is_same(T, unsigned),
                  "sums of floats depend on the order");
    return __atomic_fetch_add(at, value, __ATOMIC_RELAXED);
}
template <typename T> inline T atomicSub(T *at, T value)
{
    return __atomic_fetch_sub(at, value, __ATOMIC_RELAXED);
}
template <typename T> inline T atomicMin(T *at, T value)
{
    T old = __atomic_load_n(at, __ATOMIC_RELAXED);
    while (value < old &&
           !__atomic_compare_exchange_n(at, &old, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        ;
    return old;
}
template <typename T> inline T atomicMax(T *at, T value)
{
    T old = __atomic_load_n(at, __ATOMIC_RELAXED);
    while (old < value &&
           !__atomic_compare_exchange_n(at, &old, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        ;
    return old;
}

inline float __fmul_rn(float a, float b)
{
    return a * b;
}
template <typename T> inline T min(T a, T b)
{
    return b < a ? b : a;
}
template <typename T> inline T max(T a, T b)
{
    return a < b ? b : a;
}

// ---- the runtime -------------------------------------------------------------------------------

typedef enum {
    cudaSuccess = 0,
    cudaErrorInvalidValue = 1,
    cudaErrorMemoryAllocation = 2,
    cudaErrorInvalidConfiguration = 9,
    cudaErrorInsufficientDriver = 35,
    cudaErrorNoDevice = 100,
    cudaErrorInvalidDevice = 101,
    cudaErrorNoKernelImageForDevice = 209,
    cudaErrorInvalidResourceHandle = 400,
    cudaErrorNotReady = 600,
    cudaErrorIllegalAddress = 700,
    cudaErrorStreamCaptureUnsupported = 900,
    cudaErrorStreamCaptureInvalidated = 901
} cudaError_t;
typedef enum {
    cudaMemcpyHostToDevice = 1,
    cudaMemcpyDeviceToHost,
    cudaMemcpyDeviceToDevice
} cudaMemcpyKind;
enum { cudaStreamNonBlocking = 1, cudaEventDefault = 0, cudaEventDisableTiming = 2 };
enum { cudaHostAllocPortable = 1, cudaHostAllocMapped = 2 };

typedef struct {
    char name[256];
    size_t totalGlobalMem;
    int multiProcessorCount;
    int major, minor;
    struct {
        char bytes[16];
    } uuid;
} cudaDeviceProp;

extern "C" {
cudaError_t cudaGetDeviceCount(int *count);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp *properties, int device);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetLastError(void);
const char *cudaGetErrorString(cudaError_t error);
cudaError_t cudaMalloc(void **pointer, size_t bytes);
cudaError_t cudaFree(void *pointer);
cudaError_t cudaHostAlloc(void **pointer, size_t bytes, unsigned flags);
cudaError_t cudaFreeHost(void *pointer);
cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream);
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph);
cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *exec, cudaGraph_t graph,
                                          unsigned long long flags);
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec);
cudaError_t cudaEventQuery(cudaEvent_t event);
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t begin, cudaEvent_t end);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags);
}

#endif
