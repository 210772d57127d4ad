// Every model against the PyTorch dumps of tests/golden: predictions, loss, gradients, and
// parameters after one and three steps of every optimizer.
//
// Bounds. The dumps are double precision results rounded once. A float sum of n products is off by
// at most n u of the sum of magnitudes, u = 2^-24 (Higham, Accuracy and Stability, section 3.1).
// The longest chain of sums behind any number here is n = (inputs + hidden units + batch) < 256,
// twice (forward, backward): 512 u = 3e-5 of the largest magnitude if every error had the same
// sign; they do not, and 1e-5 holds with room. Steps of sgd, momentum and ftrl are linear in the
// gradient up to factors near 1. Adagrad starts at 0.1, so it divides by at least 0.3. Adam divides
// a gradient by its own size: a relative error of that gradient (not of the largest) enters, times
// the rate.
// FTRL subtracts two roots near sqrt(0.1), each off by up to half an ulp, 2^-26, and as much again
// from the squares under them: sigma is off by 4 x 2^-26 / rate = 1.2e-6, its product with a value
// up to 1.6 by 1.9e-6, and what follows is divided by (beta + 0.3) / rate = 26: 7e-8, however small
// the result.
#include <math.h>

#include "runtime/config/rt_models.h"
#include "tests/unit/edge_worker/golden.h"

#include "edge_worker/model/ew_model.h"
#include "runtime/config/rt_optimizers.h"

#define BOUND 1e-5
#define BOUND_ADAM 1e-4
#define FLOOR_FTRL (7e-8 / BOUND)

typedef struct {
    golden dump;
    ew_model_config config;
    ew_micro_batch batch;
    uint32_t *lookup_rows, *bag_offsets, *row_slots, *widths;
    ew_device device;
    ew_model *model;
    float *slab;
    uint32_t slot_count, label_count;
} fixture;

static void read_labels(fixture *f)
{
    const golden_array *weights = golden_find(&f->dump, "label_weights");
    f->label_count = weights->count;
    f->config.more_labels = weights->count - 1;
    memcpy(f->config.label_weights, weights->values, weights->count * sizeof(float));
    f->batch.weights = golden_values(&f->dump, "weights", f->batch.sample_count * weights->count);
}

// A graph's fields are all of the first one's table.
static void read_graph(fixture *f)
{
    ew_model_config *config = &f->config;
    config->model.fan_out = golden_number(&f->dump, "fan_out");
    config->tables = (rt_tables){.are_shared = true, .field_count = config->field_count};
    for (uint32_t k = 1; k < config->field_count; k++)
        config->tables.borrows[k] = true;
}

static void read_config(fixture *f, const char *name, rt_model_kind kind)
{
    const golden *dump = &f->dump;
    ew_model_config *config = &f->config;
    ew_micro_batch *batch = &f->batch;
    uint32_t count;
    config->model.kind = kind;
    config->model.embedding_dim = golden_number(dump, "dim");
    config->model.pooling = (rt_pooling)golden_number(dump, "pooling");
    config->model.deep_input = strstr(name, "_all") ? RT_DEEP_ALL : RT_DEEP_DENSE;
    f->widths = golden_integers(dump, "mlp", &config->model.mlp_layer_count);
    memcpy(config->model.mlp, f->widths, config->model.mlp_layer_count * sizeof(uint32_t));
    uint32_t *bottom = golden_integers(dump, "mlp_bottom", &config->model.mlp_bottom_layer_count);
    if (bottom)
        memcpy(config->model.mlp_bottom, bottom,
               config->model.mlp_bottom_layer_count * sizeof(uint32_t));
    free(bottom);
    if (golden_find(dump, "cross")) {
        config->model.cross = (rt_cross)golden_number(dump, "cross");
        config->model.cross_layer_count = golden_number(dump, "cross_layers");
    }
    uint32_t *attention = golden_integers(dump, "attention", &config->model.attention_layer_count);
    if (attention)
        memcpy(config->model.attention, attention,
               config->model.attention_layer_count * sizeof(uint32_t));
    free(attention);
    config->dense_count = golden_number(dump, "dense_count");
    config->field_count = golden_number(dump, "fields");
    if (kind == RT_MODEL_DIN) {
        config->tables = (rt_tables){.are_shared = true, .of = {0, 1}, .borrows = {[2] = true}};
        config->sequence_field = config->field_count - 1; // the target is field 0
    }
    if (kind == RT_MODEL_GRAPHSAGE)
        read_graph(f);
    batch->sample_count = golden_number(dump, "samples");
    f->lookup_rows = golden_integers(dump, "lookup_rows", &batch->lookup_count);
    f->bag_offsets = golden_integers(dump, "bag_offsets", &count);
    batch->row_count = golden_find(dump, "rows")->count / config->model.embedding_dim;
    f->label_count = 1;
    if (golden_find(dump, "label_weights"))
        read_labels(f);
    if (golden_find(dump, "classes"))
        f->config.class_count = golden_number(dump, "classes");
    batch->labels = golden_values(dump, "labels", batch->sample_count * f->label_count);
    batch->dense = golden_values(dump, "dense", batch->sample_count * config->dense_count);
    batch->lookup_rows = f->lookup_rows;
    batch->bag_offsets = f->bag_offsets;
    batch->scale = *golden_values(dump, "scale", 1);
    config->sample_count_max = batch->sample_count + 3;
    config->lookup_count_max = batch->lookup_count;
    config->row_count_max = batch->row_count;
}

// Rows lie in every third slot, last row first, with NaN in all other floats.
static void fill_slab(fixture *f, const rt_optimizer_config *optimizer)
{
    uint32_t dim = f->config.model.embedding_dim, rows = f->batch.row_count;
    const float *values = golden_values(&f->dump, "rows", rows * dim);
    for (size_t i = 0; i < (size_t)f->slot_count * f->batch.row_stride; i++)
        f->slab[i] = NAN;
    for (uint32_t r = 0; r < rows; r++) {
        f->row_slots[r] = 3 * (rows - 1 - r) + 1;
        float *row = f->slab + (size_t)f->row_slots[r] * f->batch.row_stride;
        memcpy(row, values + (size_t)r * dim, dim * sizeof(float));
        rt_optimizer_init_state(optimizer, dim, row + dim);
    }
}

static void load_parameters(fixture *f)
{
    uint32_t count;
    ew_model_dense(f->model, EW_VALUES, &count);
    float *values = calloc(count, sizeof *values);
    rt_tensor tensor;
    rt_error error;
    for (uint32_t i = 0; ew_model_tensor(f->model, i, values, &tensor); i++) {
        uint32_t size = 1;
        for (uint32_t k = 0; k < tensor.rank; k++)
            size *= (uint32_t)tensor.shape[k];
        memcpy(values + (tensor.values - values), golden_values(&f->dump, tensor.name, size),
               size * sizeof(float));
    }
    assert_int_equal(ew_model_dense_write(f->model, EW_VALUES, values, &error), RT_OK);
    free(values);
}

static void setup(fixture *f, const char *name, rt_model_kind kind, rt_optimizer_config optimizer)
{
    rt_error error = {0};
    *f = (fixture){0};
    golden_open(&f->dump, name);
    read_config(f, name, kind);
    f->config.optimizer = optimizer;
    if (ew_device_open("cpu", &f->device, &error) != RT_OK ||
        ew_model_create(&f->config, &f->device, &f->model, &error) != RT_OK)
        fail_msg("%s", error.text);
    f->batch.row_stride = 3 * f->config.model.embedding_dim + 1;
    f->slot_count = 3 * f->batch.row_count;
    f->slab = calloc((size_t)f->slot_count * f->batch.row_stride, sizeof(float));
    f->row_slots = calloc(f->batch.row_count, sizeof *f->row_slots);
    f->batch.slab = f->slab;
    f->batch.row_slots = f->row_slots;
    fill_slab(f, &optimizer);
    load_parameters(f);
    if (ew_model_check(f->model, &f->batch, f->slot_count, &error) != RT_OK)
        fail_msg("%s", error.text);
}

static void teardown(fixture *f)
{
    ew_model_destroy(f->model);
    ew_device_close(&f->device);
    golden_close(&f->dump);
    free(f->lookup_rows);
    free(f->bag_offsets);
    free(f->row_slots);
    free(f->widths);
    free(f->slab);
}

// Pieces of the dense block must come from its end to its beginning without gaps, and be final.
typedef struct {
    uint32_t from; // of the last piece
    const float *gradients;
    float *reported;
} pieces;

static void expect_piece(void *context, uint32_t offset, uint32_t count)
{
    pieces *p = context;
    assert_true(count > 0);
    assert_int_equal(offset + count, p->from);
    memcpy(p->reported + offset, p->gradients + offset, count * sizeof(float));
    p->from = offset;
}

// Every array by its name, the number of a layer being L.
static void expect_in_document(const ew_model *model)
{
    rt_tensor tensor;
    for (uint32_t i = 0; ew_model_tensor(model, i, NULL, &tensor); i++) {
        char name[sizeof tensor.name + 2];
        snprintf(name, sizeof name, "`%s`", tensor.name);
        char *layer = strpbrk(name, "0123456789");
        if (layer)
            *layer = 'L';
        if (!test_file_has("docs/MODEL_FORMAT.md", name))
            fail_msg("docs/MODEL_FORMAT.md does not name %s", name);
    }
}

static void check_pass(const char *name, rt_model_kind kind)
{
    fixture f;
    ew_step_result result;
    rt_error error;
    uint32_t dense_count;
    setup(&f, name, kind, (rt_optimizer_config){.kind = RT_OPTIMIZER_SGD});
    expect_in_document(f.model);
    const float *gradients = ew_model_dense(f.model, EW_GRADIENTS, &dense_count);
    const uint32_t outputs = f.batch.sample_count * ew_model_output_count(f.model);
    const float *want = golden_values(&f.dump, "predictions", outputs);
    uint32_t row_floats = f.batch.row_count * f.config.model.embedding_dim;

    assert_int_equal(ew_model_predict(f.model, &f.batch, &result, &error), RT_OK);
    golden_compare(result.predictions, want, outputs, BOUND, 0, "prediction");
    assert_null(result.row_gradients);

    pieces seen = {dense_count, gradients, calloc(dense_count, sizeof(float))};
    assert_int_equal(ew_model_step(f.model, &f.batch, expect_piece, &seen, &result, &error), RT_OK);
    assert_int_equal(seen.from, 0);
    assert_memory_equal(seen.reported, gradients, dense_count * sizeof(float));
    free(seen.reported);
    golden_compare(result.predictions, want, outputs, BOUND, 0, "prediction");
    test_close(result.loss_sum, *golden_values(&f.dump, "loss_sum", 1), BOUND, 0, "loss");
    golden_compare(gradients, golden_values(&f.dump, "dense_gradients", dense_count), dense_count,
                   BOUND, 0, "dense gradient");
    golden_compare(result.row_gradients, golden_values(&f.dump, "row_gradients", row_floats),
                   row_floats, BOUND, 0, "row gradient");
    teardown(&f);
}

static void compare_parameters(fixture *f, const char *optimizer, uint32_t step, double bound,
                               double floor)
{
    char name[64];
    uint32_t count, dim = f->config.model.embedding_dim;
    const float *dense = ew_model_dense(f->model, EW_VALUES, &count);
    snprintf(name, sizeof name, "%s.%u.dense", optimizer, step);
    golden_compare(dense, golden_values(&f->dump, name, count), count, bound, floor, name);
    float *rows = calloc((size_t)f->batch.row_count * dim, sizeof *rows);
    f->device.ops->rows_get(f->device.state, f->slab, f->batch.row_stride, dim, f->row_slots,
                            f->batch.row_count, rows);
    snprintf(name, sizeof name, "%s.%u.rows", optimizer, step);
    golden_compare(rows, golden_values(&f->dump, name, f->batch.row_count * dim),
                   f->batch.row_count * dim, bound, floor, name);
    free(rows);
}

static void check_optimizer(const char *name, rt_model_kind kind, const char *optimizer,
                            rt_optimizer_kind optimizer_kind, double bound, double floor)
{
    rt_optimizer_config rows = {.kind = optimizer_kind,
                                .learning_rate = 0.05f,
                                .epsilon = 1e-8f,
                                .initial_accumulator = 0.1f,
                                .momentum = 0.9f,
                                .beta1 = 0.9f,
                                .beta2 = 0.999f,
                                .l1 = 1e-3f,
                                .l2 = optimizer_kind == RT_OPTIMIZER_FTRL ? 1e-2f : 0,
                                .beta = 1};
    rt_optimizer_config dense = rows;
    if (optimizer_kind == RT_OPTIMIZER_ROWWISE_ADAGRAD)
        dense.kind = RT_OPTIMIZER_SGD; // as in the dumps: it is for rows
    fixture f;
    setup(&f, name, kind, dense);
    fill_slab(&f, &rows);
    for (uint32_t step = 1; step <= 3; step++) {
        ew_step_result result;
        rt_error error;
        assert_int_equal(ew_model_step(f.model, &f.batch, NULL, NULL, &result, &error), RT_OK);
        ew_model_dense_step(f.model, step);
        f.device.ops->rows_step(f.device.state, &rows, f.config.model.embedding_dim, step, f.slab,
                                f.batch.row_stride, f.row_slots, NULL, f.batch.row_count,
                                result.row_gradients);
        if (step != 2)
            compare_parameters(&f, optimizer, step, bound, floor);
    }
    teardown(&f);
}

static void check_model(const char *name, rt_model_kind kind)
{
    check_pass(name, kind);
    check_optimizer(name, kind, "sgd", RT_OPTIMIZER_SGD, BOUND, 0);
    check_optimizer(name, kind, "momentum", RT_OPTIMIZER_MOMENTUM, BOUND, 0);
    check_optimizer(name, kind, "adagrad", RT_OPTIMIZER_ADAGRAD, BOUND, 0);
    check_optimizer(name, kind, "rowwise_adagrad", RT_OPTIMIZER_ROWWISE_ADAGRAD, BOUND, 0);
    check_optimizer(name, kind, "adam", RT_OPTIMIZER_ADAM, BOUND_ADAM, 0);
    check_optimizer(name, kind, "ftrl", RT_OPTIMIZER_FTRL, BOUND, FLOOR_FTRL);
}

static void wide_and_deep_with_dense_deep_input(void **state)
{
    (void)state;
    check_model("wdl_dense", RT_MODEL_WDL);
}

static void wide_and_deep_with_all_inputs(void **state)
{
    (void)state;
    check_model("wdl_all", RT_MODEL_WDL);
}

static void wide_and_deep_with_summed_bags(void **state)
{
    (void)state;
    check_model("wdl_dense_sum", RT_MODEL_WDL);
}

static void wide_and_deep_with_averaged_bags(void **state)
{
    (void)state;
    check_model("wdl_all_mean", RT_MODEL_WDL);
}

static void deep_fm(void **state)
{
    (void)state;
    check_model("dfm", RT_MODEL_DFM);
}

static void deep_and_cross_with_vectors(void **state)
{
    (void)state;
    check_model("dcn_vector", RT_MODEL_DCN);
}

static void deep_and_cross_with_matrices(void **state)
{
    (void)state;
    check_model("dcn_matrix", RT_MODEL_DCN);
}

static void dlrm(void **state)
{
    (void)state;
    check_model("dlrm", RT_MODEL_DLRM);
}

static void neural_collaborative_filtering(void **state)
{
    (void)state;
    check_model("ncf", RT_MODEL_NCF);
}

// Three labels, of which samples lack some, with weights of their losses, and of samples.
static void deep_interest(void **state)
{
    (void)state;
    check_model("din", RT_MODEL_DIN);
    check_model("din_mean", RT_MODEL_DIN);
}

static void check_labels(const char *name, rt_model_kind kind)
{
    check_pass(name, kind);
    check_optimizer(name, kind, "sgd", RT_OPTIMIZER_SGD, BOUND, 0);
}

static void several_labels(void **state)
{
    (void)state;
    check_labels("labels_wdl_dense", RT_MODEL_WDL);
    check_labels("labels_wdl_all", RT_MODEL_WDL);
    check_labels("labels_dfm", RT_MODEL_DFM);
    check_labels("labels_dcn_vector", RT_MODEL_DCN);
    check_labels("labels_dcn_matrix", RT_MODEL_DCN);
    check_labels("labels_dlrm", RT_MODEL_DLRM);
    check_labels("labels_ncf", RT_MODEL_NCF);
    check_labels("labels_din", RT_MODEL_DIN);
}

static void graphs(void **state)
{
    (void)state;
    check_model("graphsage", RT_MODEL_GRAPHSAGE);
    check_labels("graphsage_deep", RT_MODEL_GRAPHSAGE);
    check_labels("labels_graphsage", RT_MODEL_GRAPHSAGE);
}

// One label that is one of five classes.
static void several_classes(void **state)
{
    (void)state;
    check_model("classes_wdl_dense", RT_MODEL_WDL);
    check_labels("classes_wdl_all", RT_MODEL_WDL);
    check_labels("classes_dfm", RT_MODEL_DFM);
    check_labels("classes_dcn_vector", RT_MODEL_DCN);
    check_labels("classes_dcn_matrix", RT_MODEL_DCN);
    check_labels("classes_dlrm", RT_MODEL_DLRM);
    check_labels("classes_din", RT_MODEL_DIN);
}

TEST_MAIN(TEST(wide_and_deep_with_dense_deep_input), TEST(wide_and_deep_with_all_inputs),
          TEST(wide_and_deep_with_summed_bags), TEST(wide_and_deep_with_averaged_bags),
          TEST(deep_fm), TEST(deep_and_cross_with_vectors), TEST(deep_and_cross_with_matrices),
          TEST(dlrm), TEST(neural_collaborative_filtering), TEST(deep_interest),
          TEST(several_labels), TEST(graphs), TEST(several_classes))
