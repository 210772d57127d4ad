// The operations of ew_device.h, one by one, at the sizes that the models give them.
#include <string.h>

#include "runtime/config/rt_optimizers.h"
#include "tests/bench/device/ew_bench.h"

#define CROSS_LAYERS 3u
#define CROSS_STRIDE 16u

typedef struct {
    const ew_bench_case *one;
    const ew_device *device; // the measured one, or one that counts
    uint32_t inputs, stride; // columns of x: all embeddings, dense features
    float *x[5];             // sample_count x stride
    float *h[2];             // sample_count x EW_BENCH_WIDTH
    float *weights, *weight_gradients, *optimizer_state; // EW_BENCH_WIDTH x inputs
    float *bias, *bias_gradients;                        // inputs
    float *logits, *predictions, *logit_gradients;       // sample_count
    float *products[2];                                  // sample_count x CROSS_STRIDE
    float *pairs;                                        // sample_count x stride of dots
    uint32_t pairs_stride;
    float *sums;                                           // sample_count x dim
    float *cross_weights, *cross_biases, *cross_gradients; // (CROSS_LAYERS + 1) x inputs
    float *rows;                                           // lookup_count x dim
    uint64_t *keys;                                        // lookup_count
    double *loss;
} operands;

static const rt_optimizer_config adagrad = {.kind = RT_OPTIMIZER_ADAGRAD,
                                            .learning_rate = 0.02f,
                                            .epsilon = 1e-8f,
                                            .initial_accumulator = 0.1f};

#define OPERATION(name) static void run_##name(void *context)
#define SELF                              \
    const operands *o = context;          \
    const ew_bench_case *one = o->one;    \
    const ew_lookups *l = &one->lookups;  \
    const uint32_t n = one->sample_count; \
    void *state = o->device->state;       \
    (void)l, (void)n, (void)state

OPERATION(index)
{
    SELF;
    o->device->layers->index(state, l);
}
OPERATION(pool)
{
    SELF;
    o->device->layers->pool(state, l, one->dense, EW_BENCH_DENSE, o->x[0], o->stride);
}
OPERATION(wide)
{
    SELF;
    o->device->layers->wide(state, l, o->weights, o->logits);
}
OPERATION(wide_back)
{
    SELF;
    o->device->layers->wide_back(state, l, o->logit_gradients, o->weight_gradients);
}
OPERATION(rows_back)
{
    SELF;
    o->device->layers->rows_back(state, l, o->x[1], o->stride, o->weights, o->rows);
}
OPERATION(gemm_forward)
{
    SELF;
    o->device->layers->gemm(state, false, true, n, EW_BENCH_WIDTH, o->inputs, o->x[0], o->stride,
                            o->weights, o->inputs, 0, o->h[0], EW_BENCH_WIDTH);
}
OPERATION(gemm_weights)
{
    SELF;
    o->device->layers->gemm(state, true, false, EW_BENCH_WIDTH, o->inputs, n, o->h[0],
                            EW_BENCH_WIDTH, o->x[0], o->stride, 0, o->weight_gradients, o->inputs);
}
OPERATION(gemm_inputs)
{
    SELF;
    o->device->layers->gemm(state, false, false, n, o->inputs, EW_BENCH_WIDTH, o->h[0],
                            EW_BENCH_WIDTH, o->weights, o->inputs, 0, o->x[1], o->stride);
}
OPERATION(activate)
{
    SELF;
    o->device->layers->activate(state, EW_RELU, n, EW_BENCH_WIDTH, o->bias, o->h[0],
                                EW_BENCH_WIDTH);
}
OPERATION(activate_back)
{
    SELF;
    o->device->layers->activate_back(state, EW_RELU, n, EW_BENCH_WIDTH, o->h[0], o->h[1],
                                     EW_BENCH_WIDTH, o->bias_gradients);
}
OPERATION(loss)
{
    SELF;
    o->device->layers->loss(state, n, o->logits, one->labels, NULL, 1, o->predictions,
                            o->logit_gradients, o->loss);
}
OPERATION(step)
{
    SELF;
    o->device->layers->step(state, &adagrad, EW_BENCH_WIDTH * o->inputs, 1, o->weights,
                            o->optimizer_state, o->weight_gradients);
}
OPERATION(fm)
{
    SELF;
    o->device->interactions->fm(state, n, EW_BENCH_FIELDS, one->dim, o->x[0], o->stride, o->sums,
                                o->logits);
}
OPERATION(fm_back)
{
    SELF;
    o->device->interactions->fm_back(state, n, EW_BENCH_FIELDS, one->dim, o->x[0], o->stride,
                                     o->sums, o->logit_gradients, o->x[1]);
}
OPERATION(cross)
{
    SELF;
    o->device->interactions->cross(state, n, CROSS_LAYERS, o->inputs, o->cross_weights,
                                   o->cross_biases, o->products[0], CROSS_STRIDE, o->logits);
}
OPERATION(cross_back)
{
    SELF;
    o->device->interactions->cross_back(
        state, n, CROSS_LAYERS, o->inputs, o->cross_weights, o->cross_biases, o->products[0],
        CROSS_STRIDE, o->logit_gradients, o->products[1], o->cross_gradients, o->bias_gradients);
}
OPERATION(cross_matrix)
{
    SELF;
    o->device->interactions->cross_matrix(state, n, o->inputs, o->x[0], o->x[1], o->bias, o->x[2],
                                          o->x[3], o->stride);
}
OPERATION(cross_matrix_back)
{
    SELF;
    o->device->interactions->cross_matrix_back(state, n, o->inputs, false, false, o->x[0], o->x[1],
                                               o->x[2], o->x[3], o->x[4], o->bias_gradients,
                                               o->stride);
}
OPERATION(dots)
{
    SELF;
    o->device->interactions->dots(state, n, EW_BENCH_FIELDS, one->dim, o->x[0], o->stride, o->pairs,
                                  o->pairs_stride);
}
OPERATION(dots_back)
{
    SELF;
    o->device->interactions->dots_back(state, n, EW_BENCH_FIELDS, one->dim, o->x[0], o->stride,
                                       o->pairs, o->pairs_stride, o->x[1]);
}
OPERATION(gmf)
{
    SELF;
    o->device->interactions->gmf(state, n, one->dim, o->x[0], o->x[0] + one->dim, o->stride,
                                 o->bias, o->logits);
}
OPERATION(gmf_back)
{
    SELF;
    o->device->interactions->gmf_back(state, n, one->dim, o->x[0], o->x[0] + one->dim, o->stride,
                                      o->bias, o->logit_gradients, o->x[1], o->x[1] + one->dim,
                                      o->bias_gradients);
}
OPERATION(rows_init)
{
    SELF;
    o->device->ops->rows_init(state, &adagrad, one->dim, 1, 0.01f, o->keys, l->row_slots,
                              l->row_count, one->slab, l->row_stride);
}
OPERATION(rows_get)
{
    SELF;
    o->device->ops->rows_get(state, one->slab, l->row_stride, one->dim, l->row_slots, l->row_count,
                             o->rows);
}
OPERATION(rows_put)
{
    SELF;
    o->device->ops->rows_put(state, one->slab, l->row_stride, one->dim, l->row_slots, l->row_count,
                             o->rows);
}
OPERATION(rows_step)
{
    SELF;
    o->device->ops->rows_step(state, &adagrad, one->dim, 1, one->slab, l->row_stride, l->row_slots,
                              NULL, l->row_count, o->rows);
}

#define CASE(name)        \
    {                     \
#name, run_##name \
    }
// Those that make operands come before those that read them.
static const struct {
    const char *name;
    void (*run)(void *context);
} operations[] = {
    CASE(rows_init),
    CASE(index),
    CASE(pool),
    CASE(wide),
    CASE(loss),
    CASE(wide_back),
    CASE(gemm_forward),
    CASE(activate),
    CASE(activate_back),
    CASE(gemm_weights),
    CASE(gemm_inputs),
    CASE(rows_back),
    CASE(step),
    CASE(fm),
    CASE(fm_back),
    CASE(cross),
    CASE(cross_back),
    CASE(cross_matrix),
    CASE(cross_matrix_back),
    CASE(dots),
    CASE(dots_back),
    CASE(gmf),
    CASE(gmf_back),
    CASE(rows_get),
    CASE(rows_put),
    CASE(rows_step),
};

#define BLOCKS_MAX 32u

typedef struct {
    size_t count;
    void *place;
} wanted_block;

static rt_status allocate(const ew_device *device, const wanted_block *wanted, size_t count,
                          void **blocks, rt_error *error)
{
    for (size_t i = 0; i < count; i++) {
        blocks[i] = device->ops->alloc(device->state, wanted[i].count);
        if (!blocks[i])
            return rt_fail(error, RT_NO_MEMORY, "out of memory on the device");
        memcpy(wanted[i].place, &blocks[i], sizeof blocks[i]);
    }
    return RT_OK;
}

static rt_status create_operands(const ew_bench_case *one, operands *o, void **blocks,
                                 rt_error *error)
{
    const size_t n = one->sample_count, lookups = n * EW_BENCH_FIELDS;
    const uint32_t pairs = EW_BENCH_FIELDS * (EW_BENCH_FIELDS - 1) / 2;
    *o = (operands){.one = one, .device = &one->device};
    o->inputs = EW_BENCH_FIELDS * one->dim + EW_BENCH_DENSE;
    o->stride = (o->inputs + 15) / 16 * 16;
    o->pairs_stride = (one->dim + pairs + 15) / 16 * 16;
    const size_t x = n * o->stride, w = (size_t)EW_BENCH_WIDTH * o->inputs;
    const size_t cross = (CROSS_LAYERS + 1) * (size_t)o->inputs;
    const wanted_block wanted[] = {
        {x, &o->x[0]},
        {x, &o->x[1]},
        {x, &o->x[2]},
        {x, &o->x[3]},
        {x, &o->x[4]},
        {n * EW_BENCH_WIDTH, &o->h[0]},
        {n * EW_BENCH_WIDTH, &o->h[1]},
        {w, &o->weights},
        {w, &o->weight_gradients},
        {w, &o->optimizer_state},
        {cross, &o->bias},
        {cross, &o->bias_gradients},
        {n, &o->logits},
        {n, &o->predictions},
        {n, &o->logit_gradients},
        {n * CROSS_STRIDE, &o->products[0]},
        {n * CROSS_STRIDE, &o->products[1]},
        {n * o->pairs_stride, &o->pairs},
        {n * one->dim, &o->sums},
        {cross, &o->cross_weights},
        {cross, &o->cross_biases},
        {cross, &o->cross_gradients},
        {lookups * one->dim, &o->rows},
        {2 * lookups, &o->keys},
        {2, &o->loss},
    };
    _Static_assert(RT_COUNT_OF(wanted) <= BLOCKS_MAX, "blocks");
    return allocate(&one->device, wanted, RT_COUNT_OF(wanted), blocks, error);
}

// Each operation twice: on a device that counts what it takes, and on the one that is measured.
static void measure_all(const ew_bench_case *one, operands *o)
{
    ew_count count;
    ew_device counting;
    for (size_t i = 0; i < RT_COUNT_OF(operations); i++) {
        operands same = *o;
        ew_count_open(&count, NULL, &counting);
        same.device = &counting;
        operations[i].run(&same);
        const double seconds = ew_bench_measure(one, operations[i].run, o);
        ew_bench_row(one, operations[i].name, seconds, &count.counts);
        rt_report_end_row(one->bench->report);
    }
}

rt_status ew_bench_operations(const ew_bench_case *one, rt_error *error)
{
    operands o;
    void *blocks[BLOCKS_MAX] = {NULL};
    const rt_status status = create_operands(one, &o, blocks, error);
    if (!status)
        measure_all(one, &o);
    for (size_t i = 0; i < BLOCKS_MAX; i++)
        one->device.ops->free(one->device.state, blocks[i]);
    return status;
}
