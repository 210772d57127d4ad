#include "edge_worker/model/ew_count.h"

#include <stdio.h>
#include <string.h>

#define LOSS_FLOPS 12u // per sample

// 64 bits from the start: products of counts pass 32.
typedef uint64_t u64;

static void add(void *state, u64 flops, u64 floats)
{
    ew_counts *counts = &((ew_count *)state)->counts;
    counts->flops += flops;
    counts->bytes += floats * sizeof(float);
}

// ---- memory and rows -------------------------------------------------------------------------

static void count_close(void *state)
{
    (void)state;
}

static void *count_alloc(void *state, size_t count)
{
    const ew_device *products = ((ew_count *)state)->products;
    if (products)
        return products->ops->alloc(products->state, count);
    return rt_alloc(count, sizeof(float));
}

static void count_free(void *state, void *block)
{
    const ew_device *products = ((ew_count *)state)->products;
    if (products)
        products->ops->free(products->state, block);
    else
        rt_free(block);
}

static void count_copy(void *state, ew_copy kind, void *to, const void *from, size_t bytes)
{
    (void)state, (void)kind, (void)to, (void)from, (void)bytes;
}

static rt_status count_finish(void *state, rt_error *error)
{
    const ew_device *products = ((ew_count *)state)->products;
    if (products)
        return products->ops->finish(products->state, error);
    return RT_OK;
}

static void count_rows_init(void *state, const rt_optimizer_config *optimizer, uint32_t dim,
                            uint64_t seed, float scale, const uint64_t *keys, const uint32_t *slots,
                            uint32_t count, float *slab, uint32_t row_stride)
{
    (void)seed, (void)scale, (void)keys, (void)slots, (void)slab, (void)row_stride;
    add(state, (u64)count * dim,
        count * ((u64)dim + rt_optimizer_state_floats(optimizer, dim) + 3));
}

static void count_rows_get(void *state, const float *slab, uint32_t row_stride,
                           uint32_t float_count, const uint32_t *slots, uint32_t count,
                           float *packed)
{
    (void)slab, (void)row_stride, (void)slots, (void)packed;
    add(state, 0, count * (2 * (u64)float_count + 1));
}

static void count_rows_put(void *state, float *slab, uint32_t row_stride, uint32_t float_count,
                           const uint32_t *slots, uint32_t count, const float *packed)
{
    (void)slab, (void)row_stride, (void)slots, (void)packed;
    add(state, 0, count * (2 * (u64)float_count + 1));
}

// One block of dim values: values read and written, the state too, gradients read.
static void add_step(void *state, const rt_optimizer_config *optimizer, u64 blocks, uint32_t dim)
{
    add(state, blocks * dim * rt_optimizer_find(optimizer->kind)->about->flops_per_value,
        blocks * (3 * (u64)dim + 2 * (u64)rt_optimizer_state_floats(optimizer, dim)));
}

static void count_rows_step(void *state, const rt_optimizer_config *optimizer, uint32_t dim,
                            uint64_t step, float *slab, uint32_t row_stride, const uint32_t *slots,
                            const uint32_t *rows, uint32_t count, const float *gradients)
{
    (void)step, (void)slab, (void)row_stride, (void)slots, (void)rows, (void)gradients;
    add_step(state, optimizer, count, dim);
}

// ---- layers ----------------------------------------------------------------------------------

static void count_index(void *state, const ew_lookups *l)
{
    add(state, 0, 2 * (u64)l->lookup_count + 2 * (u64)l->row_count);
}

static u64 pooled_floats(const ew_lookups *l)
{
    return (u64)l->sample_count * l->field_count * l->dim;
}

static u64 row_floats(const ew_lookups *l)
{
    return (u64)l->row_count * l->dim;
}

static void count_pool(void *state, const ew_lookups *l, const float *dense, uint32_t dense_count,
                       float *out, uint32_t stride)
{
    (void)dense, (void)out, (void)stride;
    add(state, l->bag_offsets ? (u64)l->lookup_count * l->dim : 0,
        row_floats(l) + pooled_floats(l) + l->lookup_count +
            2 * (u64)l->sample_count * dense_count);
}

static void count_wide(void *state, const ew_lookups *l, const float *weights, float *logits)
{
    (void)weights, (void)logits;
    add(state, 2 * row_floats(l) + l->lookup_count,
        row_floats(l) + (u64)l->field_count * l->dim + l->lookup_count + 2 * (u64)l->sample_count);
}

static void count_wide_back(void *state, const ew_lookups *l, const float *logit_gradients,
                            float *weight_gradients)
{
    (void)logit_gradients, (void)weight_gradients;
    add(state, 2 * row_floats(l) + l->lookup_count,
        row_floats(l) + (u64)l->field_count * l->dim + l->lookup_count + l->row_count);
}

static void count_rows_back(void *state, const ew_lookups *l, const float *pooled_gradients,
                            uint32_t stride, const float *weights, float *gradients)
{
    (void)stride, (void)gradients;
    u64 flops = 0, floats = row_floats(l);
    if (pooled_gradients) {
        flops += (u64)l->lookup_count * l->dim;
        floats += pooled_floats(l) + l->lookup_count;
    }
    if (weights) {
        flops += 2 * row_floats(l);
        floats += l->row_count + (u64)l->field_count * l->dim;
    }
    add(state, flops, floats);
}

static void count_gemm(void *state, bool a_transposed, bool b_transposed, uint32_t m, uint32_t n,
                       uint32_t k, const float *a, uint32_t a_stride, const float *b,
                       uint32_t b_stride, float beta, float *c, uint32_t c_stride)
{
    ew_count *count = state;
    const ew_device *products = count->products;
    u64 floats = (u64)m * k + (u64)k * n + (u64)m * n * (beta != 0 ? 2 : 1);
    count->counts.gemm_flops += 2 * (u64)m * n * k;
    count->counts.gemm_bytes += floats * sizeof(float);
    if (products)
        products->layers->gemm(products->state, a_transposed, b_transposed, m, n, k, a, a_stride, b,
                               b_stride, beta, c, c_stride);
}

static void count_activate(void *state, ew_activation activation, uint32_t row_count,
                           uint32_t column_count, const float *bias, float *values, uint32_t stride)
{
    (void)bias, (void)values, (void)stride;
    const u64 count = (u64)row_count * column_count;
    const u64 flops = activation == EW_RELU ? 2 * count : count;
    add(state, flops, 2 * count + column_count);
}

static void count_activate_back(void *state, ew_activation activation, uint32_t row_count,
                                uint32_t column_count, const float *values, float *gradients,
                                uint32_t stride, float *bias_gradients)
{
    (void)values, (void)gradients, (void)stride, (void)bias_gradients;
    const u64 count = (u64)row_count * column_count;
    if (activation == EW_RELU)
        add(state, 2 * count, 3 * count + column_count);
    else
        add(state, count, count + column_count);
}

static void count_loss(void *state, uint32_t count, const float *logits, const float *labels,
                       const float *weights, float scale, float *predictions, float *gradients,
                       double *loss)
{
    (void)logits, (void)weights, (void)scale, (void)predictions, (void)gradients, (void)loss;
    add(state, (u64)count * LOSS_FLOPS, (labels ? 4 : 2) * (u64)count);
}

static void count_classes(void *state, uint32_t sample_count, uint32_t class_count,
                          const float *logits, const float *labels, float scale, float *predictions,
                          float *gradients, double *loss)
{
    const u64 count = (u64)sample_count * class_count;
    (void)logits, (void)scale, (void)predictions, (void)gradients, (void)loss;
    if (labels)
        add(state, count * LOSS_FLOPS, 3 * count + sample_count);
    else
        add(state, count * LOSS_FLOPS, 2 * count);
}

static void count_step(void *state, const rt_optimizer_config *optimizer, uint32_t count,
                       uint64_t step, float *values, float *optimizer_state, const float *gradients)
{
    (void)step, (void)values, (void)optimizer_state, (void)gradients;
    add_step(state, optimizer, 1, count);
}

// ---- interactions ----------------------------------------------------------------------------

static void count_fm(void *state, uint32_t sample_count, uint32_t count, uint32_t dim,
                     const float *x, uint32_t stride, float *sums, float *logits)
{
    (void)x, (void)stride, (void)sums, (void)logits;
    u64 n = sample_count, vectors = (u64)count * dim;
    add(state, n * (3 * vectors + 3 * (u64)dim), n * (vectors + dim + 2));
}

static void count_fm_back(void *state, uint32_t sample_count, uint32_t count, uint32_t dim,
                          const float *x, uint32_t stride, const float *sums,
                          const float *logit_gradients, float *x_gradients)
{
    (void)x, (void)stride, (void)sums, (void)logit_gradients, (void)x_gradients;
    u64 n = sample_count, vectors = (u64)count * dim;
    add(state, 3 * n * vectors, n * (3 * vectors + dim + 1));
}

// Per sample a few numbers per layer; per layer dot products of biases with all later weights.
static void count_cross(void *state, uint32_t sample_count, uint32_t layer_count, uint32_t dim,
                        const float *weights, const float *biases, const float *products,
                        uint32_t stride, float *logits)
{
    (void)weights, (void)biases, (void)products, (void)stride, (void)logits;
    u64 n = sample_count, layers = layer_count;
    add(state, 4 * n * layers + layers * (layers + 1) * dim,
        n * (layers + 3) + (2 * layers + 1) * dim);
}

static void count_cross_back(void *state, uint32_t sample_count, uint32_t layer_count, uint32_t dim,
                             const float *weights, const float *biases, const float *products,
                             uint32_t stride, const float *logit_gradients,
                             float *product_gradients, float *weight_gradients,
                             float *bias_gradients)
{
    (void)weights, (void)biases, (void)products, (void)stride, (void)logit_gradients;
    (void)product_gradients, (void)weight_gradients, (void)bias_gradients;
    u64 n = sample_count, layers = layer_count;
    add(state, 8 * n * layers + 3 * layers * (layers + 1) * dim,
        n * (2 * layers + 3) + 2 * (2 * layers + 1) * dim);
}

static void count_cross_matrix(void *state, uint32_t sample_count, uint32_t dim, const float *x0,
                               const float *x, const float *bias, float *z, float *next,
                               uint32_t stride)
{
    (void)x0, (void)x, (void)bias, (void)z, (void)next, (void)stride;
    u64 floats = (u64)sample_count * dim;
    add(state, 3 * floats, 5 * floats + dim);
}

static void count_cross_matrix_back(void *state, uint32_t sample_count, uint32_t dim, bool is_first,
                                    bool is_last, const float *x0, const float *z,
                                    const float *next_gradients, float *z_gradients,
                                    float *x0_gradients, float *bias_gradients, uint32_t stride)
{
    (void)x0, (void)z, (void)next_gradients, (void)z_gradients, (void)x0_gradients;
    (void)bias_gradients, (void)stride;
    u64 floats = (u64)sample_count * dim;
    add(state, floats * (3 + (u64)!is_last + (u64)is_first), floats * (5 + (u64)!is_last) + dim);
}

static u64 pairs_of(uint32_t count)
{
    return (u64)count * (count - 1) / 2;
}

static void count_dots(void *state, uint32_t sample_count, uint32_t count, uint32_t dim,
                       const float *x, uint32_t stride, float *out, uint32_t out_stride)
{
    (void)x, (void)stride, (void)out, (void)out_stride;
    u64 n = sample_count;
    add(state, 2 * n * pairs_of(count) * dim, n * ((u64)count * dim + dim + pairs_of(count)));
}

static void count_dots_back(void *state, uint32_t sample_count, uint32_t count, uint32_t dim,
                            const float *x, uint32_t stride, const float *out_gradients,
                            uint32_t out_stride, float *x_gradients)
{
    (void)x, (void)stride, (void)out_gradients, (void)out_stride, (void)x_gradients;
    u64 n = sample_count;
    add(state, 4 * n * pairs_of(count) * dim, n * (2 * (u64)count * dim + dim + pairs_of(count)));
}

static void count_gmf(void *state, uint32_t sample_count, uint32_t dim, const float *u,
                      const float *v, uint32_t stride, const float *weights, float *logits)
{
    (void)u, (void)v, (void)stride, (void)weights, (void)logits;
    u64 floats = (u64)sample_count * dim;
    add(state, 3 * floats, 2 * floats + dim + 2 * (u64)sample_count);
}

static void count_gmf_back(void *state, uint32_t sample_count, uint32_t dim, const float *u,
                           const float *v, uint32_t stride, const float *weights,
                           const float *logit_gradients, float *u_gradients, float *v_gradients,
                           float *weight_gradients)
{
    (void)u, (void)v, (void)stride, (void)weights, (void)logit_gradients;
    (void)u_gradients, (void)v_gradients, (void)weight_gradients;
    u64 floats = (u64)sample_count * dim;
    add(state, 6 * floats, 4 * floats + 2 * (u64)dim + sample_count);
}

// ---- the device ------------------------------------------------------------------------------

static const ew_device_ops count_ops = {
    .close = count_close,
    .alloc = count_alloc,
    .free = count_free,
    .alloc_shared = count_alloc,
    .free_shared = count_free,
    .copy = count_copy,
    .finish = count_finish,
    .rows_init = count_rows_init,
    .rows_get = count_rows_get,
    .rows_put = count_rows_put,
    .rows_step = count_rows_step,
};

static const ew_layer_ops count_layers = {
    .index = count_index,
    .pool = count_pool,
    .wide = count_wide,
    .wide_back = count_wide_back,
    .rows_back = count_rows_back,
    .gemm = count_gemm,
    .activate = count_activate,
    .activate_back = count_activate_back,
    .loss = count_loss,
    .classes = count_classes,
    .step = count_step,
};

static const ew_interaction_ops count_interactions = {
    .fm = count_fm,
    .fm_back = count_fm_back,
    .cross = count_cross,
    .cross_back = count_cross_back,
    .cross_matrix = count_cross_matrix,
    .cross_matrix_back = count_cross_matrix_back,
    .dots = count_dots,
    .dots_back = count_dots_back,
    .gmf = count_gmf,
    .gmf_back = count_gmf_back,
};

void ew_count_open(ew_count *count, const ew_device *products, ew_device *device)
{
    *count = (ew_count){.products = products};
    *device = (ew_device){.ops = &count_ops,
                          .layers = &count_layers,
                          .interactions = &count_interactions,
                          .state = count,
                          .unified = !products || products->unified};
    const char *what = products ? "matrix products" : "nothing";
    snprintf(device->description, sizeof device->description, "counts, computes %s", what);
}

rt_status ew_count_model(const ew_model_config *config, const rt_optimizer_config *rows,
                         uint32_t sample_count, ew_model_counts *counts, rt_error *error)
{
    ew_count sum;
    ew_device device;
    ew_model *model;
    ew_step_result result;
    const float label = 0; // its address says that there are labels
    const uint32_t lookups = sample_count * config->field_count;
    uint32_t *numbers = rt_alloc(lookups, sizeof *numbers); // every look-up a row of its own
    ew_micro_batch batch = {.sample_count = sample_count,
                            .lookup_count = lookups,
                            .row_count = lookups,
                            .lookup_rows = numbers,
                            .row_slots = numbers,
                            .row_stride = config->model.embedding_dim,
                            .scale = 1};
    if (!numbers)
        return rt_fail(error, RT_NO_MEMORY, "no memory for the model");
    for (uint32_t i = 0; i < lookups; i++)
        numbers[i] = i;
    ew_count_open(&sum, NULL, &device);
    rt_status status = ew_model_create(config, &device, &model, error);
    if (status) {
        rt_free(numbers);
        return status;
    }
    memset(counts, 0, sizeof *counts);
    (void)ew_model_dense(model, EW_VALUES, &counts->parameter_count);
    status = ew_model_predict(model, &batch, &result, error);
    counts->forward = sum.counts;
    sum.counts = (ew_counts){0};
    batch.labels = &label;
    batch.weights = config->more_labels ? &label : NULL;
    if (!status)
        status = ew_model_step(model, &batch, NULL, NULL, &result, error);
    counts->pass = sum.counts;
    sum.counts = (ew_counts){0};
    ew_model_dense_step(model, 1);
    device.ops->rows_step(device.state, rows, config->model.embedding_dim, 1, NULL, 0, NULL, NULL,
                          batch.row_count, NULL);
    counts->step = sum.counts;
    ew_model_destroy(model);
    rt_free(numbers);
    return status;
}
