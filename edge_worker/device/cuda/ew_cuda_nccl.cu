// NCCL: all-reduce from GPU to GPU (ew_collective.h), on a stream of its own, so that it runs
// beside the backward pass.
//
// libnccl is opened at run time: the rest of the plug-in does not need it. Communicators are
// non-blocking (ncclConfig_t), because a wait of NCCL has no end of its own: everything is started,
// and then looked at until it is done, the time is over, or the owner says stop; a communicator
// whose peer is lost is aborted. No kernels here; races between blocks are NCCL's business.
#include "edge_worker/device/cuda/ew_cuda_parts.h"

extern "C" {
#include "edge_worker/collective/ew_collective.h"
extern const ew_collective_ops *const ew_cuda_nccl_ops;
}

#if __has_include(<nccl.h>)
#include <dlfcn.h>
#include <nccl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define NCCL_FILE "libnccl.so.2"
#define SPINS 2000u // looks without a pause, then with one
#define PAUSE_NS 20000

static_assert(sizeof(ncclUniqueId) == EW_MEETING_ID_BYTES, "an id of NCCL");

typedef struct {
    decltype(&ncclGetVersion) get_version;
    decltype(&ncclGetUniqueId) get_unique_id;
    decltype(&ncclCommInitRankConfig) init;
    decltype(&ncclCommGetAsyncError) get_state;
    decltype(&ncclCommFinalize) finalize;
    decltype(&ncclCommDestroy) destroy;
    decltype(&ncclCommAbort) abort;
    decltype(&ncclAllReduce) all_reduce;
    decltype(&ncclGetErrorString) text;
} library;

typedef struct {
    ew_collective_config config;
    library nccl;
    ew_cuda *cuda;
    ncclComm_t comm;
    cudaStream_t stream;
    cudaEvent_t queued, done; // on the compute stream, on the own one
    float *value, *staged;    // of reduce_host: on the device, and pinned
    uint64_t end_ns;          // of what is waited for
    uint32_t spins;
    bool failed;
} nccl;

// ---- the library -------------------------------------------------------------------------------

#ifdef NCCL_STAND_IN // tests: linked, not opened
static rt_status load(library *to, rt_error *)
{
    *to = {ncclGetVersion,        ncclGetUniqueId,  ncclCommInitRankConfig,
           ncclCommGetAsyncError, ncclCommFinalize, ncclCommDestroy,
           ncclCommAbort,         ncclAllReduce,    ncclGetErrorString};
    return RT_OK;
}
#else
template <typename F> static bool find(void *handle, const char *name, F *function_p)
{
    *function_p = reinterpret_cast<F>(dlsym(handle, name));
    return *function_p != NULL;
}

// It is never closed, as little as the plug-in is.
static rt_status load(library *to, rt_error *error)
{
    void *handle = dlopen(NCCL_FILE, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!handle)
        return rt_fail(error, RT_UNSUPPORTED, "%s", dlerror());
    if (find(handle, "ncclGetVersion", &to->get_version) &&
        find(handle, "ncclGetUniqueId", &to->get_unique_id) &&
        find(handle, "ncclCommInitRankConfig", &to->init) &&
        find(handle, "ncclCommGetAsyncError", &to->get_state) &&
        find(handle, "ncclCommFinalize", &to->finalize) &&
        find(handle, "ncclCommDestroy", &to->destroy) &&
        find(handle, "ncclCommAbort", &to->abort) &&
        find(handle, "ncclAllReduce", &to->all_reduce) &&
        find(handle, "ncclGetErrorString", &to->text))
        return RT_OK;
    return rt_fail(error, RT_UNSUPPORTED, NCCL_FILE " is older than NCCL 2.14");
}
#endif

// ---- waiting -----------------------------------------------------------------------------------

static rt_status check_nccl(nccl *self, ncclResult_t result, const char *what, rt_error *error)
{
    if (result == ncclSuccess || result == ncclInProgress)
        return RT_OK;
    self->failed = true;
    return rt_fail(error, RT_PEER, "NCCL: %s of worker %u with the %u others: %s", what,
                   self->config.rank, self->config.worker_count - 1, self->nccl.text(result));
}

static rt_status check_cuda(nccl *self, cudaError_t result, const char *what, rt_error *error)
{
    if (result == cudaSuccess)
        return RT_OK;
    self->failed = true;
    (void)cudaGetLastError();
    return rt_fail(error, RT_IO, "cuda:%u: %s: %s", self->cuda->index, what,
                   cudaGetErrorString(result));
}

static void begin_wait(nccl *self)
{
    self->end_ns = rt_now_ns() + (uint64_t)(self->config.timeout_s * 1e9);
    self->spins = 0;
}

// Between two looks.
static rt_status pause_or_give_up(nccl *self, const char *what, rt_error *error)
{
    const timespec pause = {0, PAUSE_NS};
    bool stop = __atomic_load_n(self->config.stop, __ATOMIC_ACQUIRE);
    if (stop || rt_now_ns() > self->end_ns) {
        self->failed = true;
        return stop ? rt_fail(error, RT_STOPPED, "stopped")
                    : rt_fail(error, RT_TIMEOUT, "NCCL: %s: not all workers within %g s", what,
                              self->config.timeout_s);
    }
    if (++self->spins > SPINS)
        (void)nanosleep(&pause, NULL);
    return RT_OK;
}

// Until the communicator has taken what it was given.
static rt_status await_comm(nccl *self, const char *what, rt_error *error)
{
    for (;;) {
        ncclResult_t state = ncclSuccess;
        rt_status status = check_nccl(self, self->nccl.get_state(self->comm, &state), what, error);
        if (!status)
            status = check_nccl(self, state, what, error);
        if (status || state == ncclSuccess)
            return status;
        status = pause_or_give_up(self, what, error);
        if (status)
            return status;
    }
}

static rt_status await_done(nccl *self, rt_error *error)
{
    for (;;) {
        ncclResult_t state = ncclSuccess;
        cudaError_t at = cudaEventQuery(self->done);
        if (at != cudaErrorNotReady)
            return check_cuda(self, at, "all-reduce", error);
        (void)cudaGetLastError();
        rt_status status =
            check_nccl(self, self->nccl.get_state(self->comm, &state), "all-reduce", error);
        if (!status)
            status = check_nccl(self, state, "all-reduce", error);
        if (!status)
            status = pause_or_give_up(self, "all-reduce", error);
        if (status)
            return status;
    }
}

// ---- the table ---------------------------------------------------------------------------------

static rt_status identify(void *device_state, uint8_t *device, uint32_t *version, uint8_t *id,
                          rt_error *error)
{
    const ew_cuda *cuda = (const ew_cuda *)device_state;
    library found = {};
    cudaDeviceProp properties;
    rt_status status = load(&found, error);
    if (status)
        return status;
    if (cudaGetDeviceProperties(&properties, (int)cuda->index) != cudaSuccess)
        return rt_fail(error, RT_UNSUPPORTED, "cuda:%u does not say which it is", cuda->index);
    memcpy(device, &properties.uuid, EW_DEVICE_ID_BYTES);
    int number = 0;
    ncclUniqueId unique;
    ncclResult_t result = found.get_version(&number);
    if (result != ncclSuccess)
        return rt_fail(error, RT_UNSUPPORTED, "NCCL: %s", found.text(result));
    *version = (uint32_t)number;
    if (!id)
        return RT_OK;
    result = found.get_unique_id(&unique);
    if (result != ncclSuccess)
        return rt_fail(error, RT_UNSUPPORTED, "NCCL: %s", found.text(result));
    memcpy(id, &unique, sizeof unique);
    return RT_OK;
}

static void destroy(void *state, bool is_complete)
{
    nccl *self = (nccl *)state;
    rt_error ignored = {};
    begin_wait(self);
    if (self->comm && is_complete && !self->failed &&
        !check_nccl(self, self->nccl.finalize(self->comm), "end", &ignored) &&
        !await_comm(self, "end", &ignored))
        (void)self->nccl.destroy(self->comm);
    else if (self->comm)
        (void)self->nccl.abort(self->comm);
    if (self->value)
        (void)cudaFree(self->value);
    if (self->staged)
        (void)cudaFreeHost(self->staged);
    if (self->queued)
        (void)cudaEventDestroy(self->queued);
    if (self->done)
        (void)cudaEventDestroy(self->done);
    if (self->stream)
        (void)cudaStreamDestroy(self->stream);
    free(self);
}

static rt_status open_stream(nccl *self, rt_error *error)
{
    cudaError_t result = cudaSetDevice((int)self->cuda->index);
    if (!result)
        result = cudaStreamCreateWithFlags(&self->stream, cudaStreamNonBlocking);
    if (!result)
        result = cudaEventCreateWithFlags(&self->queued, cudaEventDisableTiming);
    if (!result)
        result = cudaEventCreateWithFlags(&self->done, cudaEventDisableTiming);
    if (!result)
        result = cudaMalloc((void **)&self->value, sizeof(float));
    if (!result)
        result = cudaHostAlloc((void **)&self->staged, sizeof(float), cudaHostAllocPortable);
    return check_cuda(self, result, "NCCL", error);
}

static rt_status meet(nccl *self, rt_error *error)
{
    ncclConfig_t settings = NCCL_CONFIG_INITIALIZER;
    ncclUniqueId unique;
    settings.blocking = 0;
    memcpy(&unique, self->config.id, sizeof unique);
    begin_wait(self);
    ncclResult_t result = self->nccl.init(&self->comm, (int)self->config.worker_count, unique,
                                          (int)self->config.rank, &settings);
    rt_status status = check_nccl(self, result, "meeting", error);
    return status ? status : await_comm(self, "meeting", error);
}

static rt_status create(const ew_collective_config *config, void **state_p, rt_error *error)
{
    nccl *self = (nccl *)calloc(1, sizeof *self);
    if (!self)
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    self->config = *config;
    self->cuda = (ew_cuda *)config->device_state;
    rt_status status = load(&self->nccl, error);
    if (!status)
        status = open_stream(self, error);
    if (!status)
        status = meet(self, error);
    if (status) {
        destroy(self, false);
        return status;
    }
    *state_p = self;
    return RT_OK;
}

// By the training thread, whose current device this is.
static void mark(void *state)
{
    nccl *self = (nccl *)state;
    ew_cuda_check(self->cuda, cudaEventRecord(self->queued, self->cuda->compute), "mark");
}

static rt_status reduce(void *state, float *values, uint32_t count, rt_error *error)
{
    nccl *self = (nccl *)state;
    begin_wait(self);
    rt_status status =
        check_cuda(self, cudaStreamWaitEvent(self->stream, self->queued, 0), "all-reduce", error);
    if (!status)
        status = check_nccl(self,
                            self->nccl.all_reduce(values, values, count, ncclFloat, ncclSum,
                                                  self->comm, self->stream),
                            "all-reduce", error);
    if (!status)
        status = await_comm(self, "all-reduce", error);
    if (!status)
        status = check_cuda(self, cudaEventRecord(self->done, self->stream), "all-reduce", error);
    return status ? status : await_done(self, error);
}

static rt_status copy_value(nccl *self, float *to, const float *from, cudaMemcpyKind kind,
                            rt_error *error)
{
    return check_cuda(self, cudaMemcpyAsync(to, from, sizeof(float), kind, self->stream),
                      "all-reduce", error);
}

static rt_status reduce_host(void *state, float *value, rt_error *error)
{
    nccl *self = (nccl *)state;
    *self->staged = *value;
    begin_wait(self);
    rt_status status = copy_value(self, self->value, self->staged, cudaMemcpyHostToDevice, error);
    if (!status)
        status = reduce(self, self->value, 1, error);
    if (!status)
        status = copy_value(self, self->staged, self->value, cudaMemcpyDeviceToHost, error);
    if (!status)
        status = check_cuda(self, cudaEventRecord(self->done, self->stream), "all-reduce", error);
    if (!status)
        status = await_done(self, error);
    if (!status)
        *value = *self->staged;
    return status;
}

static const ew_collective_ops ops = {"nccl",  true, identify, create,
                                      destroy, mark, reduce,   reduce_host};
const ew_collective_ops *const ew_cuda_nccl_ops = &ops;

#else
#ifndef __CUDA_ARCH__
#pragma message "nccl.h was not found: the plug-in is built without NCCL"
#endif
const ew_collective_ops *const ew_cuda_nccl_ops = NULL;
#endif
