#include "dispatch/solvers/cuda/dp_cuda_parts.h"

static cudaError_t allocate(dp_cuda_solver *solver, size_t work_bytes)
{
    size_t rows = solver->row_count_max, all = rows * solver->sink_count_max;
    size_t cost_bytes = (all + 1) * sizeof(int32_t), place_bytes = (all + 1) * sizeof(uint32_t);
    cudaError_t error = cudaSetDevice((int)solver->index);
    if (!error)
        error = cudaStreamCreateWithFlags(&solver->stream, cudaStreamNonBlocking);
    if (!error)
        error = cudaEventCreateWithFlags(&solver->begin, cudaEventDefault);
    if (!error)
        error = cudaEventCreateWithFlags(&solver->end, cudaEventDefault);
    if (!error)
        error = cudaMalloc((void **)&solver->cost, cost_bytes);
    if (!error)
        error = cudaHostAlloc((void **)&solver->staged_cost, cost_bytes, cudaHostAllocPortable);
    if (!error)
        error = cudaMalloc((void **)&solver->place, place_bytes);
    if (!error)
        error = cudaHostAlloc((void **)&solver->staged_place, place_bytes, cudaHostAllocPortable);
    if (!error)
        error = cudaMalloc(&solver->work, (all + 1) * work_bytes);
    return error;
}

void dp_cuda_destroy(void *state)
{
    dp_cuda_solver *solver = (dp_cuda_solver *)state;
    if (!solver)
        return;
    (void)cudaSetDevice((int)solver->index);
    if (solver->cost)
        (void)cudaFree(solver->cost);
    if (solver->place)
        (void)cudaFree(solver->place);
    if (solver->work)
        (void)cudaFree(solver->work);
    if (solver->staged_cost)
        (void)cudaFreeHost(solver->staged_cost);
    if (solver->staged_place)
        (void)cudaFreeHost(solver->staged_place);
    if (solver->begin)
        (void)cudaEventDestroy(solver->begin);
    if (solver->end)
        (void)cudaEventDestroy(solver->end);
    if (solver->stream)
        (void)cudaStreamDestroy(solver->stream);
    rt_free(solver);
}

rt_status dp_cuda_create(uint32_t index, uint32_t row_count_max, uint32_t sink_count_max,
                         size_t work_bytes, void **state_p, rt_error *error)
{
    dp_cuda_solver *solver = (dp_cuda_solver *)rt_alloc(1, sizeof *solver);
    if (!solver)
        return rt_fail(error, RT_NO_MEMORY, "no memory for a solver");
    solver->index = index;
    solver->row_count_max = row_count_max;
    solver->sink_count_max = sink_count_max;
    cudaError_t failed = allocate(solver, work_bytes);
    if (failed) {
        (void)cudaGetLastError();
        dp_cuda_destroy(solver);
        const rt_status status =
            failed == cudaErrorMemoryAllocation ? RT_NO_MEMORY : RT_UNSUPPORTED;
        return rt_fail(error, status, "a solver on cuda:%u: %s", index, cudaGetErrorString(failed));
    }
    *state_p = solver;
    return RT_OK;
}

bool dp_cuda_begin(dp_cuda_solver *solver, const dp_problem *problem, dp_cuda_problem *p)
{
    uint32_t rows = problem->row_count;
    rt_assert(rows <= solver->row_count_max && problem->sink_count <= solver->sink_count_max);
    *p = {};
    p->real_count = rows;
    p->cost = solver->cost;
    for (uint32_t j = 0; j < problem->sink_count; j++) {
        uint32_t places = (uint32_t)rt_min_u64(problem->capacity[j], rows);
        if (places == 0)
            continue;
        int32_t *to = solver->staged_cost + (size_t)p->sink_count * rows;
        for (uint32_t i = 0; i < rows; i++) {
            to[i] = problem->cost[(size_t)i * problem->stride + j];
            if (to[i] > p->cost_highest)
                p->cost_highest = to[i];
        }
        solver->sinks[p->sink_count] = j;
        p->capacity[p->sink_count++] = places;
        p->row_count += places;
    }
    solver->device_s = 0;
    if (rows == 0)
        return false;
    (void)cudaSetDevice((int)solver->index);
    (void)cudaEventRecord(solver->begin, solver->stream);
    (void)cudaMemcpyAsync(solver->cost, solver->staged_cost,
                          (size_t)p->sink_count * rows * sizeof(int32_t), cudaMemcpyHostToDevice,
                          solver->stream);
    return true;
}

uint32_t dp_cuda_threads(const dp_cuda_problem *p)
{
    uint32_t threads = (p->row_count + RT_CUDA_WARP - 1) / RT_CUDA_WARP * RT_CUDA_WARP;
    return (uint32_t)rt_min_u64(threads, DP_CUDA_THREADS_MAX);
}

rt_status dp_cuda_end(dp_cuda_solver *solver, const dp_cuda_problem *p, uint32_t *sink_of_row,
                      rt_error *error)
{
    cudaError_t launched = cudaGetLastError();
    (void)cudaMemcpyAsync(solver->staged_place, solver->place, p->real_count * sizeof(uint32_t),
                          cudaMemcpyDeviceToHost, solver->stream);
    (void)cudaEventRecord(solver->end, solver->stream);
    cudaError_t failed = cudaStreamSynchronize(solver->stream);
    if (launched)
        failed = launched;
    else if (!failed)
        failed = cudaGetLastError();
    if (failed) {
        (void)cudaGetLastError(); // else this thread's next use of a device would fail by it
        return rt_fail(error, RT_IO, "cuda:%u: %s", solver->index, cudaGetErrorString(failed));
    }
    float ms = 0;
    if (cudaEventElapsedTime(&ms, solver->begin, solver->end) == cudaSuccess)
        solver->device_s = (double)ms * 1e-3;
    else
        (void)cudaGetLastError();
    for (uint32_t i = 0; i < p->real_count; i++) {
        if (solver->staged_place[i] >= p->sink_count)
            return rt_fail(error, RT_IO, "cuda:%u: row %u was not placed", solver->index, i);
        sink_of_row[i] = solver->sinks[solver->staged_place[i]];
    }
    return RT_OK;
}

double dp_cuda_device_s(const void *state)
{
    return ((const dp_cuda_solver *)state)->device_s;
}
