// The CPU as a device: memory, rows, and opening it.
#include <stdio.h>
#include <string.h>

#include "edge_worker/device/ew_cpu_parts.h"
#include "edge_worker/device/ew_device_backends.h"
#include "runtime/rt_thread.h"

#define PREFETCH_ROWS 8u // ahead

static void *cpu_alloc(void *state, size_t count)
{
    (void)state;
    return rt_alloc(count, sizeof(float));
}

static void cpu_free(void *state, void *block)
{
    (void)state;
    rt_free(block);
}

static void cpu_copy(void *state, ew_copy kind, void *to, const void *from, size_t bytes)
{
    (void)state, (void)kind;
    if (bytes > 0)
        memcpy(to, from, bytes);
}

static rt_status cpu_finish(void *state, rt_error *error)
{
    (void)state, (void)error;
    return RT_OK;
}

static float *slot_row(float *slab, uint32_t row_stride, uint32_t slot)
{
    return slab + (size_t)slot * row_stride;
}

// Rows lie anywhere in the slab; beyond some lines the hardware sees where it goes.
static void prefetch_row(const float *row, uint32_t float_count)
{
    for (uint32_t i = 0; i < float_count && i < 128; i += 16)
        __builtin_prefetch(row + i, 1);
}

static void cpu_rows_init(void *state, const rt_optimizer_config *optimizer, uint32_t dim,
                          uint64_t seed, float scale, const uint64_t *keys, const uint32_t *slots,
                          uint32_t count, float *slab, uint32_t row_stride)
{
    (void)state;
    for (uint32_t k = 0; k < count; k++) {
        float *row = slot_row(slab, row_stride, slots[k]);
        rt_row_init(keys[k], seed, scale, dim, row);
        rt_optimizer_init_state(optimizer, dim, row + dim);
    }
}

static void cpu_rows_get(void *state, const float *slab, uint32_t row_stride, uint32_t float_count,
                         const uint32_t *slots, uint32_t count, float *packed)
{
    (void)state;
    for (uint32_t k = 0; k < count; k++)
        memcpy(packed + (size_t)k * float_count, slab + (size_t)slots[k] * row_stride,
               float_count * sizeof(float));
}

static void cpu_rows_put(void *state, float *slab, uint32_t row_stride, uint32_t float_count,
                         const uint32_t *slots, uint32_t count, const float *packed)
{
    (void)state;
    for (uint32_t k = 0; k < count; k++)
        memcpy(slot_row(slab, row_stride, slots[k]), packed + (size_t)k * float_count,
               float_count * sizeof(float));
}

typedef struct {
    const rt_optimizer_config *optimizer;
    uint32_t dim, row_stride;
    uint64_t step;
    float *slab;
    const uint32_t *slots, *rows;
    const float *gradients;
} rows_step;

static void step_rows(const void *call, uint32_t from, uint32_t to)
{
    const rows_step *c = call;
    const uint32_t floats = c->dim + rt_optimizer_state_floats(c->optimizer, c->dim);
    for (uint32_t k = from; k < to; k++) {
        float *row = slot_row(c->slab, c->row_stride, c->slots[k]);
        uint32_t r = c->rows ? c->rows[k] : k;
        if (k + PREFETCH_ROWS < to)
            prefetch_row(slot_row(c->slab, c->row_stride, c->slots[k + PREFETCH_ROWS]), floats);
        rt_optimizer_step(c->optimizer, c->dim, c->step, row, row + c->dim,
                          c->gradients + (size_t)r * c->dim);
    }
}

static void cpu_rows_step(void *state, const rt_optimizer_config *optimizer, uint32_t dim,
                          uint64_t step, float *slab, uint32_t row_stride, const uint32_t *slots,
                          const uint32_t *rows, uint32_t count, const float *gradients)
{
    const rows_step call = {optimizer, dim, row_stride, step, slab, slots, rows, gradients};
    ew_cpu_split(state, count, UINT64_C(4) * dim, step_rows, &call);
}

static const ew_cpu_kernels *fastest_kernels(void)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
        return &ew_cpu_kernels_avx512;
    if (__builtin_cpu_supports("avx2"))
        return &ew_cpu_kernels_avx2;
#endif
    return &ew_cpu_kernels_base;
}

static void cpu_close(void *state)
{
    ew_cpu *cpu = state;
    rt_pool_destroy(cpu->pool);
    ew_blas_close(&cpu->blas);
    rt_free(cpu);
}

static const ew_device_ops cpu_ops = {
    .close = cpu_close,
    .alloc = cpu_alloc,
    .free = cpu_free,
    .alloc_shared = cpu_alloc,
    .free_shared = cpu_free,
    .copy = cpu_copy,
    .finish = cpu_finish,
    .rows_init = cpu_rows_init,
    .rows_get = cpu_rows_get,
    .rows_put = cpu_rows_put,
    .rows_step = cpu_rows_step,
};

static rt_status cpu_open(const ew_device_wish *wish, ew_device *device, rt_error *error)
{
    const uint32_t threads = wish->threads ? wish->threads : rt_thread_cores();
    ew_cpu *cpu = rt_alloc(1, sizeof *cpu);
    if (!cpu)
        return rt_fail(error, RT_NO_MEMORY, "no memory for the CPU device");
    rt_status status = ew_blas_open(&cpu->blas, error);
    if (!status && threads > 1)
        status = rt_pool_create((uint32_t)rt_min_u64(threads, RT_THREADS_MAX), &cpu->pool, error);
    if (status) {
        cpu_close(cpu);
        return status;
    }
    cpu->kernels = fastest_kernels();
    cpu->is_steady = wish->is_steady;
    *device = (ew_device){.ops = &cpu_ops,
                          .layers = &ew_cpu_layers,
                          .interactions = &ew_cpu_interactions,
                          .state = cpu,
                          .unified = true};
    snprintf(device->description, sizeof device->description, "cpu: %s kernels, %s, %u thread%s",
             cpu->kernels->name, cpu->blas.description, rt_pool_threads(cpu->pool),
             cpu->pool ? "s" : "");
    return RT_OK;
}

const ew_device_backend ew_device_cpu = {"cpu", cpu_open};
