// Work that comes again is launched as one CUDA graph: a step of small layers is dozens of kernels
// of a few microseconds, and launching them one by one takes longer than they do.
//
// A cache of EW_CUDA_GRAPHS_MAX keys, the least recently used one makes room. A key seen for the
// first time is run as it is (cuBLAS loads what it needs then); the second time its launches are
// captured. What cannot be captured is run as it is, for good. No kernels here.
#include "edge_worker/device/cuda/ew_cuda_parts.h"

#include <string.h>

static ew_cuda_graph *find(ew_cuda *cuda, const void *key, size_t bytes)
{
    for (uint32_t i = 0; i < cuda->graph_count; i++) {
        ew_cuda_graph *graph = &cuda->graphs[i];
        if (graph->key_bytes == bytes && memcmp(graph->key, key, bytes) == 0)
            return graph;
    }
    return NULL;
}

static void forget(ew_cuda_graph *graph)
{
    if (graph->exec)
        (void)cudaGraphExecDestroy(graph->exec);
    *graph = {};
}

static ew_cuda_graph *make_room(ew_cuda *cuda)
{
    if (cuda->graph_count < EW_CUDA_GRAPHS_MAX)
        return &cuda->graphs[cuda->graph_count++];
    ew_cuda_graph *oldest = cuda->graphs;
    for (uint32_t i = 1; i < cuda->graph_count; i++)
        if (cuda->graphs[i].used < oldest->used)
            oldest = &cuda->graphs[i];
    forget(oldest);
    return oldest;
}

// Operations note what the runtime reports; a capture that fails is no failure of the device.
static bool capture(ew_cuda *cuda, ew_cuda_graph *graph, void (*work)(void *), void *context)
{
    cudaGraph_t captured = NULL;
    ew_cuda_lock_compute(cuda);
    // Of this thread alone: rows come and go on another one meanwhile.
    cudaError_t error = cudaStreamBeginCapture(cuda->compute, cudaStreamCaptureModeThreadLocal);
    if (!error) {
        work(context);
        error = cudaStreamEndCapture(cuda->compute, &captured);
    }
    ew_cuda_unlock_compute(cuda);
    if (ew_cuda_forgive(cuda) && !error)
        error = cudaErrorStreamCaptureUnsupported;
    if (!error)
        error = cudaGraphInstantiateWithFlags(&graph->exec, captured, 0);
    if (captured)
        (void)cudaGraphDestroy(captured);
    if (error) {
        (void)cudaGetLastError();
        graph->exec = NULL;
        graph->refused = true;
    }
    return error == cudaSuccess;
}

extern "C" void ew_cuda_repeat(void *state, const void *key, size_t bytes, void (*work)(void *),
                               void *context)
{
    ew_cuda *cuda = (ew_cuda *)state;
    if (!ew_cuda_enter(cuda))
        return;
    rt_assert(bytes <= sizeof cuda->graphs->key);
    ew_cuda_graph *graph = find(cuda, key, bytes);
    bool seen = graph != NULL;
    if (!seen) {
        graph = make_room(cuda);
        memcpy(graph->key, key, bytes);
        graph->key_bytes = bytes;
    }
    graph->used = ++cuda->graph_clock;
    if (!seen || graph->refused || (!graph->exec && !capture(cuda, graph, work, context))) {
        work(context);
        return;
    }
    ew_cuda_check(cuda, cudaGraphLaunch(graph->exec, cuda->compute), "graph");
    ew_cuda_leave(cuda, "graph");
}

void ew_cuda_forget_graphs(ew_cuda *cuda)
{
    if (cuda->graph_count > 0)
        (void)cudaStreamSynchronize(cuda->compute); // one may still be running
    for (uint32_t i = 0; i < cuda->graph_count; i++)
        forget(&cuda->graphs[i]);
    cuda->graph_count = 0;
}
