// Every model's gradients against finite differences of a naive one in double precision, which
// shares no code with the models.
//
// Central differences with h = 1e-5 are off by h^2 f''' / 6 + u / h, about 1e-10 here; the model's
// float sums of fewer than 256 terms by at most 256 x 2^-24 = 1.5e-5 of the sum of magnitudes, were
// all errors of one sign. BOUND is relative to the largest gradient.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/test.h"

#include "edge_worker/model/ew_model.h"
#include "runtime/config/rt_models.h"
#include "runtime/config/rt_optimizers.h"
#include "runtime/rt_hash.h"

#define BOUND 1e-5
#define STEP 1e-5
#define INPUTS_MAX 256u
#define ROWS_MAX 64u
#define LOOKUPS_MAX 512u

typedef struct {
    ew_model_config config;
    ew_micro_batch batch;
    ew_model *model;
    ew_device device;
    float labels[32], dense[256];
    uint32_t lookup_rows[LOOKUPS_MAX], bag_offsets[256], row_slots[ROWS_MAX];
    float *slab;
    double *parameters, *rows; // of the naive model
    uint32_t parameter_count;
} fixture;

typedef double (*naive_logit)(const fixture *f, const double *pooled, const float *dense);

static const double *parameter(const fixture *f, const char *name)
{
    static const float origin[1 << 16];
    rt_tensor tensor;
    for (uint32_t i = 0; ew_model_tensor(f->model, i, origin, &tensor); i++)
        if (strcmp(tensor.name, name) == 0)
            return f->parameters + (tensor.values - origin);
    fail_msg("no parameter %s", name);
    return NULL;
}

static uint32_t naive_mlp(const fixture *f, const char *name, double *x, uint32_t inputs)
{
    double y[INPUTS_MAX];
    for (uint32_t l = 0; l < f->config.model.mlp_layer_count; l++) {
        char weight[64], bias[64];
        uint32_t outputs = f->config.model.mlp[l];
        snprintf(weight, sizeof weight, "%s.%u.weight", name, l);
        snprintf(bias, sizeof bias, "%s.%u.bias", name, l);
        for (uint32_t o = 0; o < outputs; o++) {
            y[o] = parameter(f, bias)[o];
            for (uint32_t i = 0; i < inputs; i++)
                y[o] += parameter(f, weight)[o * inputs + i] * x[i];
            y[o] = y[o] > 0 ? y[o] : 0;
        }
        memcpy(x, y, outputs * sizeof *x);
        inputs = outputs;
    }
    return inputs;
}

static double naive_wdl(const fixture *f, const double *pooled, const float *dense)
{
    double x[INPUTS_MAX], logit = *parameter(f, "output.bias");
    const double *output = parameter(f, "output.weight");
    uint32_t pooled_count = f->config.field_count * f->config.model.embedding_dim, inputs = 0;
    if (f->config.model.deep_input == RT_DEEP_ALL)
        for (; inputs < pooled_count; inputs++)
            x[inputs] = pooled[inputs];
    for (uint32_t i = 0; i < f->config.dense_count; i++)
        x[inputs++] = dense[i];
    uint32_t hidden = naive_mlp(f, "mlp", x, inputs);
    for (uint32_t i = 0; i < hidden; i++)
        logit += output[i] * x[i];
    for (uint32_t i = 0; i < pooled_count; i++)
        logit += output[hidden + i] * pooled[i];
    return logit;
}

static double naive_output(const fixture *f, const double *x, uint32_t count)
{
    double logit = *parameter(f, "output.bias");
    for (uint32_t i = 0; i < count; i++)
        logit += parameter(f, "output.weight")[i] * x[i];
    return logit;
}

static double product(const double *a, const double *b, uint32_t count)
{
    double sum = 0;
    for (uint32_t i = 0; i < count; i++)
        sum += a[i] * b[i];
    return sum;
}

// Embeddings, then dense features.
static uint32_t naive_input(const fixture *f, const double *pooled, const float *dense, double *x)
{
    uint32_t count = f->config.field_count * f->config.model.embedding_dim;
    memcpy(x, pooled, count * sizeof *x);
    for (uint32_t i = 0; i < f->config.dense_count; i++)
        x[count++] = dense[i];
    return count;
}

static double naive_dfm(const fixture *f, const double *pooled, const float *dense)
{
    double x[2 * INPUTS_MAX], h[INPUTS_MAX];
    uint32_t dim = f->config.model.embedding_dim, fields = f->config.field_count;
    uint32_t inputs = naive_input(f, pooled, dense, h);
    uint32_t hidden = naive_mlp(f, "mlp", h, inputs);
    memcpy(x, h, hidden * sizeof *x);
    double logit = naive_output(f, x, hidden + naive_input(f, pooled, dense, x + hidden));
    for (uint32_t a = 0; a < fields; a++)
        for (uint32_t b = 0; b < a; b++)
            logit += product(pooled + a * dim, pooled + b * dim, dim);
    return logit;
}

static void naive_cross(const fixture *f, const double *x0, double *x, uint32_t count)
{
    double next[INPUTS_MAX];
    memcpy(x, x0, count * sizeof *x);
    for (uint32_t l = 0; l < f->config.model.cross_layer_count; l++) {
        char weight[64], bias[64];
        snprintf(weight, sizeof weight, "cross.%u.weight", l);
        snprintf(bias, sizeof bias, "cross.%u.bias", l);
        for (uint32_t i = 0; i < count; i++) {
            if (f->config.model.cross == RT_CROSS_VECTOR)
                next[i] = x0[i] * product(parameter(f, "cross.weight") + l * count, x, count) +
                          parameter(f, "cross.bias")[l * count + i] + x[i];
            else
                next[i] = x0[i] * (product(parameter(f, weight) + i * count, x, count) +
                                   parameter(f, bias)[i]) +
                          x[i];
        }
        memcpy(x, next, count * sizeof *x);
    }
}

static double naive_dcn(const fixture *f, const double *pooled, const float *dense)
{
    double x0[INPUTS_MAX], x[2 * INPUTS_MAX];
    uint32_t inputs = naive_input(f, pooled, dense, x0);
    naive_cross(f, x0, x, inputs);
    memcpy(x + inputs, x0, inputs * sizeof *x);
    return naive_output(f, x, inputs + naive_mlp(f, "mlp", x + inputs, inputs));
}

static double naive_dlrm(const fixture *f, const double *pooled, const float *dense)
{
    double vectors[INPUTS_MAX], d[INPUTS_MAX], x[INPUTS_MAX];
    uint32_t dim = f->config.model.embedding_dim, fields = f->config.field_count, count = dim;
    for (uint32_t i = 0; i < f->config.dense_count; i++)
        d[i] = dense[i];
    fixture bottom = *f; // with the bottom's widths
    bottom.config.model.mlp_layer_count = f->config.model.mlp_bottom_layer_count + 1;
    memcpy(bottom.config.model.mlp, f->config.model.mlp_bottom, sizeof bottom.config.model.mlp);
    bottom.config.model.mlp[f->config.model.mlp_bottom_layer_count] = dim;
    naive_mlp(&bottom, "bottom", d, f->config.dense_count);
    memcpy(vectors, pooled, fields * dim * sizeof *vectors);
    memcpy(vectors + fields * dim, d, dim * sizeof *vectors);
    memcpy(x, d, dim * sizeof *x);
    for (uint32_t a = 0; a <= fields; a++)
        for (uint32_t b = 0; b < a; b++)
            x[count++] = product(vectors + a * dim, vectors + b * dim, dim);
    return naive_output(f, x, naive_mlp(f, "top", x, count));
}

static double naive_ncf(const fixture *f, const double *pooled, const float *dense)
{
    (void)dense;
    uint32_t half = f->config.model.embedding_dim / 2;
    double x[INPUTS_MAX], h[INPUTS_MAX];
    memcpy(h, pooled + half, 2 * half * sizeof *h);
    uint32_t hidden = naive_mlp(f, "mlp", h, 2 * half);
    for (uint32_t i = 0; i < half; i++)
        x[i] = pooled[i] * pooled[3 * half + i];
    memcpy(x + half, h, hidden * sizeof *x);
    return naive_output(f, x, half + hidden);
}

static double naive_din(const fixture *f, const double *pooled, const float *dense)
{
    double x[INPUTS_MAX];
    return naive_output(f, x, naive_mlp(f, "mlp", x, naive_input(f, pooled, dense, x)));
}

// A node's own row and the mean of others give what the first layer makes of it; count of values.
static uint32_t naive_node(const fixture *f, const double *own, const double *others,
                           uint32_t count, double *x)
{
    const uint32_t dim = f->config.model.embedding_dim;
    fixture inner = *f; // with one layer
    inner.config.model.mlp_layer_count = 1;
    for (uint32_t d = 0; d < dim; d++) {
        x[d] = own[d];
        x[dim + d] = 0;
        for (uint32_t k = 0; k < count; k++)
            x[dim + d] += others[k * dim + d] / count;
    }
    return naive_mlp(&inner, "inner", x, 2 * dim);
}

// Nobody is missing.
static double naive_sage(const fixture *f, const double *pooled, const float *unused)
{
    const uint32_t dim = f->config.model.embedding_dim, fan_out = f->config.model.fan_out;
    double y[INPUTS_MAX], x[INPUTS_MAX];
    (void)unused;
    const uint32_t width = naive_node(f, pooled, pooled + dim, fan_out, y);
    memset(y + width, 0, width * sizeof *y);
    for (uint32_t k = 1; k <= fan_out; k++) {
        naive_node(f, pooled + k * dim, pooled + (fan_out + k) * dim, 1, x);
        for (uint32_t i = 0; i < width; i++)
            y[width + i] += x[i] / fan_out;
    }
    fixture outer = *f; // without the first layer
    outer.config.model.mlp_layer_count--;
    memcpy(outer.config.model.mlp, f->config.model.mlp + 1, sizeof(uint32_t[2]));
    return naive_output(f, y, naive_mlp(&outer, "outer", y, 2 * width));
}

// The sequence is the last field, the target the first.
static void naive_attention(const fixture *f, uint32_t sample, double *pooled)
{
    const uint32_t dim = f->config.model.embedding_dim, fields = f->config.field_count;
    const uint32_t bag = sample * fields + fields - 1, *bags = f->batch.bag_offsets;
    double *sum = pooled + (fields - 1) * dim;
    fixture unit = *f; // with the unit's widths
    unit.config.model.mlp_layer_count = f->config.model.attention_layer_count;
    memcpy(unit.config.model.mlp, f->config.model.attention, sizeof unit.config.model.mlp);
    memset(sum, 0, dim * sizeof *sum);
    for (uint32_t l = bags ? bags[bag] : bag; l < (bags ? bags[bag + 1] : bag + 1); l++) {
        double x[INPUTS_MAX], weight = *parameter(f, "attention.output.bias");
        const double *h = f->rows + f->lookup_rows[l] * dim;
        for (uint32_t d = 0; d < dim; d++) {
            x[d] = h[d];
            x[dim + d] = pooled[d];
            x[2 * dim + d] = h[d] * pooled[d];
        }
        const uint32_t units = naive_mlp(&unit, "attention", x, 3 * dim);
        weight += product(parameter(f, "attention.output.weight"), x, units);
        for (uint32_t d = 0; d < dim; d++)
            sum[d] += weight * h[d];
    }
}

static void naive_pool(const fixture *f, uint32_t sample, double *pooled)
{
    uint32_t dim = f->config.model.embedding_dim, fields = f->config.field_count;
    memset(pooled, 0, fields * dim * sizeof *pooled);
    for (uint32_t field = 0; field < fields; field++) {
        uint32_t bag = sample * fields + field;
        const uint32_t *bags = f->batch.bag_offsets;
        uint32_t from = bags ? bags[bag] : bag, end = bags ? bags[bag + 1] : bag + 1;
        bool mean = f->config.model.pooling == RT_POOL_MEAN;
        for (uint32_t l = from; l < end; l++)
            for (uint32_t d = 0; d < dim; d++)
                pooled[field * dim + d] +=
                    f->rows[f->lookup_rows[l] * dim + d] / (mean ? end - from : 1);
    }
    if (f->config.model.kind == RT_MODEL_DIN)
        naive_attention(f, sample, pooled);
}

// The loss whose gradients a step gives: scale x the summed log loss.
static double naive_loss(const fixture *f, naive_logit logit)
{
    double sum = 0, pooled[INPUTS_MAX];
    for (uint32_t i = 0; i < f->batch.sample_count; i++) {
        naive_pool(f, i, pooled);
        double z = logit(f, pooled, f->dense + i * f->config.dense_count);
        sum += log(1 + exp(z)) - f->labels[i] * z;
    }
    return sum * f->batch.scale;
}

// With shared tables the last field has the rows of the first.
static void fill_batch(fixture *f, bool bags, rt_random *random)
{
    ew_micro_batch *batch = &f->batch;
    uint32_t fields = f->config.field_count, ids = 5, count = 0;
    for (uint32_t i = 0; i < batch->sample_count; i++)
        f->labels[i] = (float)rt_random_below(random, 2);
    for (uint32_t i = 0; i < batch->sample_count * f->config.dense_count; i++)
        f->dense[i] = (float)(2 * rt_random_unit(random) - 1);
    for (uint32_t bag = 0; bag < batch->sample_count * fields; bag++) {
        for (uint32_t size = bags ? rt_random_below(random, 4) : 1; size > 0; size--)
            f->lookup_rows[count++] =
                rt_tables_of(&f->config.tables, bag % fields) * ids + rt_random_below(random, ids);
        f->bag_offsets[bag + 1] = count;
    }
    batch->lookup_count = count;
    batch->row_count = fields * ids;
    for (uint32_t r = 0; r < batch->row_count; r++)
        f->row_slots[r] = (r * 7 + 2) % batch->row_count;
    batch->labels = f->labels;
    batch->dense = f->dense;
    batch->lookup_rows = f->lookup_rows;
    batch->bag_offsets = bags ? f->bag_offsets : NULL;
    batch->row_slots = f->row_slots;
}

static void make_graph(ew_model_config *config)
{
    config->dense_count = 0;
    config->field_count = 2 * config->model.fan_out + 1;
    config->tables = (rt_tables){.are_shared = true, .field_count = config->field_count};
    for (uint32_t f = 1; f < config->field_count; f++)
        config->tables.borrows[f] = true;
}

static void setup(fixture *f, const rt_model_config *model, bool bags, bool shares)
{
    rt_random random = {(uint64_t)model->kind * 10 + bags};
    rt_error error;
    f->config = (ew_model_config){.model = *model,
                                  .optimizer = {.kind = RT_OPTIMIZER_SGD},
                                  .seed = 3,
                                  .dense_count = model->kind == RT_MODEL_NCF ? 0 : 4,
                                  .field_count = model->kind == RT_MODEL_NCF ? 2 : 3,
                                  .sample_count_max = 12,
                                  .lookup_count_max = LOOKUPS_MAX,
                                  .row_count_max = ROWS_MAX};
    f->config.tables = (rt_tables){.are_shared = shares, .of = {0, 1, 0}, .borrows = {[2] = true}};
    if (model->kind == RT_MODEL_GRAPHSAGE)
        make_graph(&f->config);
    f->config.sequence_field = 2;
    f->config.target_field = 0;
    f->batch = (ew_micro_batch){
        .sample_count = 12, .row_stride = model->embedding_dim, .scale = 1.0f / 16};
    fill_batch(f, bags, &random);
    if (ew_device_open("cpu", &f->device, &error) != RT_OK ||
        ew_model_create(&f->config, &f->device, &f->model, &error) != RT_OK)
        fail_msg("%s", error.text);
    const float *values = ew_model_dense(f->model, EW_VALUES, &f->parameter_count);
    f->parameters = calloc(f->parameter_count, sizeof(double));
    for (uint32_t i = 0; i < f->parameter_count; i++)
        f->parameters[i] = values[i];
    uint32_t count = f->batch.row_count * model->embedding_dim;
    f->slab = calloc(count, sizeof(float));
    f->rows = calloc(count, sizeof(double));
    for (uint32_t i = 0; i < count; i++) {
        uint32_t row = i / model->embedding_dim, column = i % model->embedding_dim;
        float value = (float)(2 * rt_random_unit(&random) - 1);
        f->rows[i] = value;
        f->slab[f->row_slots[row] * model->embedding_dim + column] = value;
    }
    f->batch.slab = f->slab;
    assert_int_equal(ew_model_check(f->model, &f->batch, f->batch.row_count, &error), RT_OK);
}

static void compare(const fixture *f, naive_logit logit, double *arguments, const float *gradients,
                    uint32_t count, const char *what)
{
    double largest = 0;
    for (uint32_t i = 0; i < count; i++)
        largest = fmax(largest, fabs((double)gradients[i]));
    assert_true(largest > 1e-4);
    for (uint32_t i = 0; i < count; i++) {
        double at = arguments[i];
        arguments[i] = at + STEP;
        double above = naive_loss(f, logit);
        arguments[i] = at - STEP;
        double below = naive_loss(f, logit);
        arguments[i] = at;
        double want = (above - below) / (2 * STEP);
        if (!(fabs(gradients[i] - want) <= BOUND * largest))
            fail_msg("%s gradient %u is %.9g, finite difference %.9g (largest %.3g)", what, i,
                     gradients[i], want, largest);
    }
}

static void check_as(rt_model_config model, bool bags, bool shares, naive_logit logit)
{
    static fixture f;
    ew_step_result result;
    rt_error error;
    uint32_t count;
    setup(&f, &model, bags, shares);
    assert_int_equal(ew_model_step(f.model, &f.batch, NULL, NULL, &result, &error), RT_OK);
    test_close(result.loss_sum * f.batch.scale, naive_loss(&f, logit), BOUND, 0, "loss");
    compare(&f, logit, f.parameters, ew_model_dense(f.model, EW_GRADIENTS, &count),
            f.parameter_count, "dense");
    compare(&f, logit, f.rows, result.row_gradients, f.batch.row_count * model.embedding_dim,
            "row");
    ew_model_destroy(f.model);
    ew_device_close(&f.device);
    free(f.parameters);
    free(f.rows);
    free(f.slab);
}

static void check_model(rt_model_config model, bool bags, naive_logit logit)
{
    check_as(model, bags, false, logit);
}

static void wide_and_deep(void **state)
{
    (void)state;
    rt_model_config model = {.kind = RT_MODEL_WDL,
                             .embedding_dim = 5,
                             .deep_input = RT_DEEP_DENSE,
                             .mlp_layer_count = 2,
                             .mlp = {9, 6}};
    check_model(model, false, naive_wdl);
    model.deep_input = RT_DEEP_ALL;
    check_model(model, false, naive_wdl);
    check_model(model, true, naive_wdl);
    check_as(model, false, true, naive_wdl);
    check_as(model, true, true, naive_wdl);
    model.pooling = RT_POOL_MEAN;
    check_model(model, true, naive_wdl);
    check_as(model, true, true, naive_wdl);
}

// One look-up per bag, and averaged bags.
static void check_both(rt_model_config model, naive_logit logit)
{
    check_model(model, false, logit);
    model.pooling = RT_POOL_MEAN;
    check_model(model, true, logit);
}

static void deep_fm(void **state)
{
    (void)state;
    check_both(
        (rt_model_config){
            .kind = RT_MODEL_DFM, .embedding_dim = 6, .mlp_layer_count = 2, .mlp = {9, 6}},
        naive_dfm);
}

static void deep_and_cross(void **state)
{
    (void)state;
    rt_model_config model = {.kind = RT_MODEL_DCN,
                             .embedding_dim = 5,
                             .mlp_layer_count = 1,
                             .mlp = {9},
                             .cross_layer_count = 3};
    check_both(model, naive_dcn);
    model.cross = RT_CROSS_MATRIX;
    check_both(model, naive_dcn);
    model.cross_layer_count = 1;
    check_both(model, naive_dcn);
}

static void dlrm(void **state)
{
    (void)state;
    rt_model_config model = {
        .kind = RT_MODEL_DLRM, .embedding_dim = 17, .mlp_layer_count = 2, .mlp = {9, 6}};
    check_both(model, naive_dlrm);
    model.mlp_bottom_layer_count = 1;
    model.mlp_bottom[0] = 8;
    model.embedding_dim = 50;
    check_both(model, naive_dlrm);
}

static void neural_collaborative_filtering(void **state)
{
    (void)state;
    check_both(
        (rt_model_config){
            .kind = RT_MODEL_NCF, .embedding_dim = 10, .mlp_layer_count = 2, .mlp = {9, 6}},
        naive_ncf);
}

static void deep_interest(void **state)
{
    (void)state;
    rt_model_config model = {.kind = RT_MODEL_DIN,
                             .embedding_dim = 5,
                             .mlp_layer_count = 2,
                             .mlp = {9, 6},
                             .attention_layer_count = 2,
                             .attention = {7, 4}};
    check_as(model, false, true, naive_din);
    check_as(model, true, true, naive_din);
    model.pooling = RT_POOL_MEAN; // of the other fields
    check_as(model, true, true, naive_din);
}

static void graphsage(void **state)
{
    (void)state;
    check_as((rt_model_config){.kind = RT_MODEL_GRAPHSAGE,
                               .embedding_dim = 5,
                               .pooling = RT_POOL_MEAN,
                               .fan_out = 2,
                               .mlp_layer_count = 3,
                               .mlp = {9, 7, 6}},
             false, true, naive_sage);
}

TEST_MAIN(TEST(wide_and_deep), TEST(deep_fm), TEST_SLOW(deep_and_cross, 240), TEST_SLOW(dlrm, 240),
          TEST(neural_collaborative_filtering), TEST(deep_interest), TEST(graphsage))
