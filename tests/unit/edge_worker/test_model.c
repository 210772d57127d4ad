// What holds for every model: sizes, initial values, checks of what a peer sent, idle workers,
// shares of a batch, files. The arithmetic is in test_model_golden.c and test_model_gradients.c.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/test.h"

#include "edge_worker/model/ew_model.h"
#include "runtime/config/rt_models.h"
#include "runtime/config/rt_optimizers.h"

#define SAMPLES 10u
#define FIELDS 3u
#define DIM 6u
#define DENSE 4u

typedef struct {
    ew_device device;
    ew_model *model;
    ew_model_config config;
    ew_micro_batch batch;
    float labels[SAMPLES], dense[SAMPLES * DENSE], slab[FIELDS * 4 * DIM];
    uint32_t rows[SAMPLES * FIELDS], bags[SAMPLES * FIELDS + 1], slots[FIELDS * 4];
} fixture;

static void setup(fixture *f)
{
    rt_error error;
    *f = (fixture){.config = {.model = {.kind = RT_MODEL_WDL,
                                        .embedding_dim = DIM,
                                        .deep_input = RT_DEEP_ALL,
                                        .mlp_layer_count = 2,
                                        .mlp = {8, 5}},
                              .optimizer = {.kind = RT_OPTIMIZER_SGD, .learning_rate = 0.1f},
                              .seed = 1,
                              .dense_count = DENSE,
                              .field_count = FIELDS,
                              .sample_count_max = SAMPLES,
                              .lookup_count_max = SAMPLES * FIELDS,
                              .row_count_max = FIELDS * 4}};
    for (uint32_t i = 0; i < SAMPLES; i++) {
        f->labels[i] = (float)(i % 3 == 0);
        for (uint32_t k = 0; k < DENSE; k++)
            f->dense[i * DENSE + k] = (float)((i * 7 + k * 3) % 11) / 11;
        for (uint32_t field = 0; field < FIELDS; field++) {
            f->rows[i * FIELDS + field] = field * 4 + (i * (field + 1)) % 4;
            f->bags[i * FIELDS + field + 1] = i * FIELDS + field + 1;
        }
    }
    for (uint32_t r = 0; r < FIELDS * 4; r++)
        f->slots[r] = FIELDS * 4 - 1 - r;
    for (uint32_t i = 0; i < FIELDS * 4 * DIM; i++)
        f->slab[i] = (float)((i * 13) % 29) / 29 - 0.5f;
    f->batch = (ew_micro_batch){.sample_count = SAMPLES,
                                .lookup_count = SAMPLES * FIELDS,
                                .row_count = FIELDS * 4,
                                .labels = f->labels,
                                .dense = f->dense,
                                .lookup_rows = f->rows,
                                .row_slots = f->slots,
                                .slab = f->slab,
                                .row_stride = DIM,
                                .scale = 1.0f / SAMPLES};
    if (ew_device_open("cpu", &f->device, &error) != RT_OK ||
        ew_model_create(&f->config, &f->device, &f->model, &error) != RT_OK)
        fail_msg("%s", error.text);
}

static void teardown(fixture *f)
{
    ew_model_destroy(f->model);
    ew_device_close(&f->device);
}

// Wide & Deep as the papers run it on Criteo: 13-256-256-256, 26 fields.
static void papers_wide_and_deep_has_136673_weights(void **state)
{
    (void)state;
    fixture f;
    ew_model *model;
    rt_error error;
    uint32_t count;
    setup(&f);
    ew_model_config config = f.config;
    config.model = (rt_model_config){.kind = RT_MODEL_WDL,
                                     .embedding_dim = 48,
                                     .deep_input = RT_DEEP_DENSE,
                                     .mlp_layer_count = 3,
                                     .mlp = {256, 256, 256}};
    config.dense_count = 13;
    config.field_count = 26;
    assert_int_equal(ew_model_create(&config, &f.device, &model, &error), RT_OK);
    ew_model_dense(model, EW_VALUES, &count);
    assert_int_equal(count, 136673);
    ew_model_destroy(model);
    teardown(&f);
}

static void initial_values_follow_the_seed(void **state)
{
    (void)state;
    fixture f, other;
    rt_tensor tensor;
    uint32_t count;
    setup(&f);
    setup(&other);
    const float *values = ew_model_dense(f.model, EW_VALUES, &count);
    assert_memory_equal(values, ew_model_dense(other.model, EW_VALUES, &count),
                        count * sizeof *values);
    for (uint32_t i = 0; ew_model_tensor(f.model, i, values, &tensor); i++) {
        uint64_t size = tensor.shape[0] * (tensor.rank > 1 ? tensor.shape[1] : 1);
        double inputs = strncmp(tensor.name, "mlp.0", 5) == 0   ? FIELDS * DIM + DENSE
                        : strncmp(tensor.name, "mlp.1", 5) == 0 ? 8
                                                                : 5 + FIELDS * DIM;
        double largest = 0;
        for (uint64_t k = 0; k < size; k++)
            largest = fmax(largest, fabs((double)tensor.values[k]));
        assert_true(largest <= 1 / sqrt(inputs) * (1 + 1e-6));
        assert_true(largest > 0.7 / sqrt(inputs) || size < 8);
    }
    teardown(&other);
    other.config.seed = 2;
    rt_error error;
    assert_int_equal(ew_device_open("cpu", &other.device, &error), RT_OK);
    assert_int_equal(ew_model_create(&other.config, &other.device, &other.model, &error), RT_OK);
    assert_memory_not_equal(values, ew_model_dense(other.model, EW_VALUES, &count),
                            count * sizeof *values);
    // The same bits on every machine: values written down once.
    assert_true(values[0] == -0x1.aa5b3ap-4f && values[count - 1] == -0x1.c81d9p-7f);
    teardown(&other);
    teardown(&f);
}

static void steps_repeat_to_the_bit(void **state)
{
    (void)state;
    fixture f;
    ew_step_result result;
    rt_error error;
    uint32_t count;
    setup(&f);
    const float *gradients = ew_model_dense(f.model, EW_GRADIENTS, &count);
    float *dense = calloc(count, sizeof *dense), rows[FIELDS * 4 * DIM];
    assert_int_equal(ew_model_step(f.model, &f.batch, NULL, NULL, &result, &error), RT_OK);
    memcpy(dense, gradients, count * sizeof *dense);
    memcpy(rows, result.row_gradients, sizeof rows);
    f.batch.bag_offsets = f.bags; // the same look-ups, said the other way
    assert_int_equal(ew_model_step(f.model, &f.batch, NULL, NULL, &result, &error), RT_OK);
    assert_memory_equal(dense, gradients, count * sizeof *dense);
    assert_memory_equal(rows, result.row_gradients, sizeof rows);
    free(dense);
    teardown(&f);
}

// A worker without samples: zero gradients, whatever was there before, and all pieces reported.
static void count_pieces(void *context, uint32_t offset, uint32_t count)
{
    (void)offset;
    *(uint32_t *)context += count;
}

// The last field is the sequence, the first the target.
static void attend(ew_model_config *config)
{
    config->model.kind = RT_MODEL_DIN;
    config->model.attention_layer_count = 1;
    config->model.attention[0] = 5;
    config->tables = (rt_tables){.are_shared = true, .field_count = FIELDS};
    for (uint32_t f = 0; f + 1 < FIELDS; f++)
        config->tables.of[f] = (uint8_t)f;
    config->tables.borrows[FIELDS - 1] = true;
    config->sequence_field = FIELDS - 1;
}

// Of FIELDS fields: a node, neighbours, and the neighbours of these.
static void make_graph(ew_model_config *config)
{
    config->model.kind = RT_MODEL_GRAPHSAGE;
    config->model.fan_out = FIELDS / 2;
    config->model.pooling = RT_POOL_MEAN;
    config->model.mlp_layer_count = 2;
    config->model.mlp[0] = config->model.mlp[1] = 5;
    config->dense_count = 0;
    config->tables = (rt_tables){.are_shared = true, .field_count = FIELDS};
    for (uint32_t f = 1; f < FIELDS; f++)
        config->tables.borrows[f] = true;
}

static void check_idle(const fixture *f, rt_model_kind kind)
{
    ew_model *model;
    ew_step_result result;
    rt_error error;
    uint32_t count, reported = 0;
    ew_model_config config = f->config;
    config.model.kind = kind;
    config.model.cross_layer_count = 2;
    if (kind == RT_MODEL_DIN)
        attend(&config);
    config.field_count = kind == RT_MODEL_NCF ? 2 : FIELDS;
    config.dense_count = kind == RT_MODEL_NCF ? 0 : DENSE;
    if (kind == RT_MODEL_GRAPHSAGE)
        make_graph(&config);
    assert_int_equal(ew_model_create(&config, &f->device, &model, &error), RT_OK);
    float *gradients = ew_model_dense(model, EW_GRADIENTS, &count);
    for (uint32_t i = 0; i < count; i++)
        gradients[i] = 7;
    ew_micro_batch none = {.row_stride = DIM, .slab = f->slab, .scale = 1};
    assert_int_equal(ew_model_check(model, &none, 0, &error), RT_OK);
    assert_int_equal(ew_model_step(model, &none, count_pieces, &reported, &result, &error), RT_OK);
    for (uint32_t i = 0; i < count; i++)
        assert_true(gradients[i] == 0);
    assert_true(result.loss_sum == 0);
    assert_int_equal(reported, count);
    ew_model_destroy(model);
}

static void idle_worker_contributes_zero(void **state)
{
    (void)state;
    fixture f;
    setup(&f);
    for (rt_model_kind kind = 0; kind < RT_MODEL_COUNT; kind++)
        check_idle(&f, kind);
    teardown(&f);
}

static void din_says_what_it_lacks(void **state)
{
    (void)state;
    fixture f;
    setup(&f);
    for (uint32_t i = 0; i < 5; i++) {
        static const char *const says[] = {"model.sequence", "model.target", "stream.tables",
                                           "stream.tables", "stream.tables"};
        rt_error error = {0};
        ew_model *model;
        ew_model_config config = f.config;
        attend(&config);
        config.sequence_field = i == 0 ? FIELDS : FIELDS - 1;
        config.target_field = i == 1 ? UINT32_MAX : i == 2 ? FIELDS - 1 : 0;
        config.tables.of[FIELDS - 1] = i == 3 ? FIELDS - 1 : 0;
        config.tables.borrows[FIELDS - 1] = i != 4;
        assert_int_equal(ew_model_create(&config, &f.device, &model, &error), RT_CONFIG);
        if (!strstr(error.text, says[i]))
            fail_msg("nothing about %s: %s", says[i], error.text);
    }
    teardown(&f);
}

static void a_graph_says_what_it_lacks(void **state)
{
    (void)state;
    static const char *const says[] = {"expects 5: a node", "expected 1 to 32", "stream.tables",
                                       "stream.tables",     "dense features",   "model.pooling",
                                       "model.mlp: has 1",  "1 classes",        "of 2 labels"};
    fixture f;
    setup(&f);
    for (uint32_t i = 0; i < RT_COUNT_OF(says); i++) {
        rt_error error = {0};
        ew_model *model;
        ew_model_config config = f.config;
        make_graph(&config);
        config.model.fan_out = i == 0 ? 2 : i == 1 ? 33 : 1;
        config.tables.of[2] = i == 2 ? 2 : 0;
        config.tables.borrows[1] = i != 3;
        config.dense_count = i == 4 ? 1 : 0;
        config.model.pooling = i == 5 ? RT_POOL_SUM : RT_POOL_MEAN;
        config.model.mlp_layer_count = i == 6 ? 1 : 2;
        config.class_count = i == 7 ? 1 : i == 8 ? 3 : 0;
        config.more_labels = i == 8 ? 1 : 0;
        assert_int_equal(ew_model_create(&config, &f.device, &model, &error), RT_CONFIG);
        if (!strstr(error.text, says[i]))
            fail_msg("nothing about %s: %s", says[i], error.text);
    }
    teardown(&f);
}

static void classes_are_checked(void **state)
{
    (void)state;
    fixture f;
    rt_error error;
    ew_model *model;
    setup(&f);
    ew_model_config config = f.config;
    config.class_count = 3;
    assert_int_equal(ew_model_create(&config, &f.device, &model, &error), RT_OK);
    float labels[SAMPLES] = {2, 0, 1}, weights[SAMPLES] = {0};
    const float bad[] = {3, -1, 0.5f, NAN};
    ew_micro_batch batch = f.batch;
    batch.labels = labels;
    assert_int_equal(ew_model_check(model, &batch, FIELDS * 4, &error), RT_OK);
    for (size_t i = 0; i < RT_COUNT_OF(bad); i++) {
        labels[4] = bad[i];
        assert_int_equal(ew_model_check(model, &batch, FIELDS * 4, &error), RT_WIRE);
        assert_non_null(strstr(error.text, "sample 4 has class"));
    }
    labels[4] = 0;
    batch.weights = weights;
    assert_int_equal(ew_model_check(model, &batch, FIELDS * 4, &error), RT_WIRE);
    ew_model_destroy(model);
    teardown(&f);
}

// Workers' gradients add up to those of the whole batch. A sum of at most 10 terms in two parts:
// 12 u of the sum of magnitudes, which is a few times the largest gradient.
static void shares_add_up(void **state)
{
    (void)state;
    fixture f;
    ew_step_result result;
    rt_error error;
    uint32_t count;
    setup(&f);
    const float *gradients = ew_model_dense(f.model, EW_GRADIENTS, &count);
    double *sum = calloc(count + FIELDS * 4 * DIM, sizeof *sum), *row_sum = sum + count, loss = 0;
    const uint32_t shares[] = {3, 7};
    ew_micro_batch part = f.batch;
    for (size_t s = 0; s < RT_COUNT_OF(shares); s++) {
        part.sample_count = shares[s];
        part.lookup_count = shares[s] * FIELDS;
        assert_int_equal(ew_model_step(f.model, &part, NULL, NULL, &result, &error), RT_OK);
        for (uint32_t i = 0; i < count; i++)
            sum[i] += gradients[i];
        for (uint32_t i = 0; i < FIELDS * 4 * DIM; i++)
            row_sum[i] += result.row_gradients[i];
        loss += result.loss_sum;
        part.labels += shares[s];
        part.dense += shares[s] * DENSE;
        part.lookup_rows += shares[s] * FIELDS;
    }
    assert_int_equal(ew_model_step(f.model, &f.batch, NULL, NULL, &result, &error), RT_OK);
    test_close(result.loss_sum, loss, 1e-14, 0, "loss");
    for (uint32_t i = 0; i < count; i++)
        test_close(gradients[i], sum[i], 1e-6, 0.1, "dense gradient");
    for (uint32_t i = 0; i < FIELDS * 4 * DIM; i++)
        test_close(result.row_gradients[i], row_sum[i], 1e-6, 0.1, "row gradient");
    free(sum);
    teardown(&f);
}

static void nan_reaches_the_loss(void **state)
{
    (void)state;
    fixture f;
    ew_step_result result;
    rt_error error;
    setup(&f);
    f.dense[5] = NAN;
    assert_int_equal(ew_model_step(f.model, &f.batch, NULL, NULL, &result, &error), RT_OK);
    assert_true(isnan(result.loss_sum));
    assert_true(isnan(result.predictions[1]) && !isnan(result.predictions[0]));
    teardown(&f);
}

static void expect_refused(fixture *f, ew_micro_batch batch, const char *text)
{
    rt_error error = {0};
    assert_int_equal(ew_model_check(f->model, &batch, FIELDS * 4, &error), RT_WIRE);
    if (!strstr(error.text, text))
        fail_msg("the error \"%s\" lacks \"%s\"", error.text, text);
}

static void bad_micro_batches_are_refused(void **state)
{
    (void)state;
    fixture f;
    rt_error error;
    setup(&f);
    ew_micro_batch good = f.batch, bad = f.batch;
    assert_int_equal(ew_model_check(f.model, &good, FIELDS * 4, &error), RT_OK);
    bad.sample_count = SAMPLES + 1;
    expect_refused(&f, bad, "11 samples, expected at most 10");
    bad = good, bad.lookup_count++;
    expect_refused(&f, bad, "31 look-ups, expected at most 30");
    bad = good, bad.lookup_count--;
    expect_refused(&f, bad, "29 look-ups, expected 30");
    bad = good, bad.row_count++;
    expect_refused(&f, bad, "13 rows, expected at most 12");
    bad = good, bad.row_count--;
    expect_refused(&f, bad, "row 11, expected below 11");
    bad = good, bad.row_stride = DIM - 1;
    expect_refused(&f, bad, "5 floats apart, expected at least 6");
    f.slots[4] = FIELDS * 4;
    expect_refused(&f, good, "row 4 is in slot 12, expected below 12");
    f.slots[4] = 0;
    f.rows[7] = 0;
    expect_refused(&f, good, "row 0 is in field 0 and in field 1");
    f.rows[7] = 4;
    good.bag_offsets = f.bags;
    assert_int_equal(ew_model_check(f.model, &good, FIELDS * 4, &error), RT_OK);
    f.bags[3] = 29;
    expect_refused(&f, good, "bag 3 ends before it begins (29, 4)");
    f.bags[3] = 3;
    f.bags[SAMPLES * FIELDS] = 29;
    expect_refused(&f, good, "bags hold look-ups 0 to 29, expected 0 to 30");
    teardown(&f);
}

static void bad_sizes_are_refused(void **state)
{
    (void)state;
    fixture f;
    ew_model *model = NULL;
    rt_error error;
    setup(&f);
    ew_model_config bad = f.config;
    bad.model.mlp_layer_count = 0;
    assert_int_equal(ew_model_create(&bad, &f.device, &model, &error), RT_CONFIG);
    bad = f.config, bad.model.mlp[1] = 0;
    assert_int_equal(ew_model_create(&bad, &f.device, &model, &error), RT_CONFIG);
    bad = f.config, bad.model.mlp[0] = bad.model.mlp[1] = 100000;
    assert_int_equal(ew_model_create(&bad, &f.device, &model, &error), RT_CONFIG);
    bad = f.config, bad.model.deep_input = RT_DEEP_DENSE, bad.dense_count = 0;
    assert_int_equal(ew_model_create(&bad, &f.device, &model, &error), RT_CONFIG);
    assert_non_null(strstr(error.text, "model.deep_input"));
    bad = f.config, bad.model.kind = RT_MODEL_DLRM, bad.dense_count = 0;
    assert_int_equal(ew_model_create(&bad, &f.device, &model, &error), RT_CONFIG);
    bad = f.config, bad.model.kind = RT_MODEL_NCF;
    assert_int_equal(ew_model_create(&bad, &f.device, &model, &error), RT_CONFIG);
    assert_non_null(strstr(error.text, "3 fields and 4 dense"));
    bad.dense_count = 0, bad.field_count = 2, bad.model.embedding_dim = 7;
    assert_int_equal(ew_model_create(&bad, &f.device, &model, &error), RT_CONFIG);
    assert_non_null(strstr(error.text, "even number"));
    bad = f.config, bad.model.kind = RT_MODEL_DCN;
    assert_int_equal(ew_model_create(&bad, &f.device, &model, &error), RT_CONFIG);
    assert_non_null(strstr(error.text, "model.cross_layers"));
    bad.model.cross = RT_CROSS_MATRIX, bad.model.cross_layer_count = 8;
    bad.field_count = 200, bad.model.embedding_dim = 4096;
    assert_int_equal(ew_model_create(&bad, &f.device, &model, &error), RT_CONFIG);
    assert_null(model);
    teardown(&f);
}

static void parameters_survive_a_file(void **state)
{
    (void)state;
    fixture f;
    rt_error error;
    rt_tensor tensors[8];
    rt_tensors *file;
    char path[128];
    uint32_t count, tensor_count = 0;
    setup(&f);
    float *values = ew_model_dense(f.model, EW_VALUES, &count);
    float *saved = calloc(count, sizeof *saved);
    assert_int_equal(ew_model_dense_read(f.model, EW_VALUES, saved, &error), RT_OK);
    while (ew_model_tensor(f.model, tensor_count, saved, &tensors[tensor_count]))
        tensor_count++;
    assert_int_equal(tensor_count, 6);
    assert_string_equal(tensors[0].name, "mlp.0.weight");
    assert_string_equal(tensors[5].name, "output.bias");
    snprintf(path, sizeof path, "%s/model", test_directory());
    assert_int_equal(rt_tensors_write(path, tensors, tensor_count, &error), RT_OK);
    memset(values, 0, count * sizeof *values);
    assert_int_equal(rt_tensors_open(path, &file, &error), RT_OK);
    assert_int_equal(ew_model_load(f.model, file, &error), RT_OK);
    rt_tensors_close(file);
    assert_memory_equal(values, saved, count * sizeof *values);

    tensors[2].shape[0] = 4; // smaller than the model's
    assert_int_equal(rt_tensors_write(path, tensors, tensor_count, &error), RT_OK);
    assert_int_equal(rt_tensors_open(path, &file, &error), RT_OK);
    assert_int_equal(ew_model_load(f.model, file, &error), RT_DATA);
    assert_non_null(strstr(error.text, "\"mlp.1.weight\" is 4 x 8"));
    rt_tensors_close(file);
    assert_int_equal(rt_tensors_write(path, tensors, 2, &error), RT_OK);
    assert_int_equal(rt_tensors_open(path, &file, &error), RT_OK);
    assert_int_equal(ew_model_load(f.model, file, &error), RT_DATA);
    assert_non_null(strstr(error.text, "no tensor \"mlp.1.weight\""));
    rt_tensors_close(file);
    assert_memory_equal(values, saved, count * sizeof *values);
    free(saved);
    teardown(&f);
}

static uint32_t bias_of(const ew_model *model)
{
    static const float origin[1 << 16];
    rt_tensor tensor = {0};
    for (uint32_t i = 0; strcmp(tensor.name, "output.bias") != 0; i++)
        assert_true(ew_model_tensor(model, i, origin, &tensor));
    return (uint32_t)(tensor.values - origin);
}

static bool equal_floats(const float *a, const float *b, uint32_t count)
{
    return memcmp(a, b, count * sizeof *a) == 0;
}

// The first batch is predicted as if nothing were known of it, and trained with its base rate. Of a
// worker that has no sample of it, too.
static void log_odds_shift_the_bias_between_prediction_and_training(void **state)
{
    (void)state;
    for (uint32_t samples = 0; samples <= SAMPLES; samples += SAMPLES) {
        fixture f;
        rt_error error;
        ew_step_result result;
        uint32_t count;
        float before[SAMPLES], gradients[1024];
        setup(&f);
        f.model = (ew_model_destroy(f.model), NULL);
        f.config.model.base_rate_auto = true;
        assert_int_equal(ew_model_create(&f.config, &f.device, &f.model, &error), RT_OK);
        float *bias = ew_model_dense(f.model, EW_VALUES, &count) + bias_of(f.model);
        const float old = *bias, odds = -2.5f;
        assert_true(count <= RT_COUNT_OF(gradients));
        if (samples == 0)
            f.batch = (ew_micro_batch){.row_stride = DIM, .scale = f.batch.scale, .slab = f.slab};
        assert_int_equal(ew_model_predict(f.model, &f.batch, &result, &error), RT_OK);
        memcpy(before, result.predictions, samples * sizeof *before);
        const double loss = result.loss_sum;
        f.batch.log_odds = odds;
        assert_int_equal(ew_model_step(f.model, &f.batch, NULL, NULL, &result, &error), RT_OK);
        assert_true(equal_floats(result.predictions, before, samples) && result.loss_sum == loss);
        assert_true(*bias == old + odds);
        memcpy(gradients, ew_model_dense(f.model, EW_GRADIENTS, &count), count * sizeof(float));
        f.batch.log_odds = 0; // the same training, of a model that starts there
        assert_int_equal(ew_model_step(f.model, &f.batch, NULL, NULL, &result, &error), RT_OK);
        assert_true(equal_floats(gradients, ew_model_dense(f.model, EW_GRADIENTS, &count), count));
        assert_true(*bias == old + odds);
        teardown(&f);
    }
}

// A base rate that is given stands in the bias from the start, and labels do not change that.
static void a_base_rate_that_is_given(void **state)
{
    (void)state;
    fixture f, rare;
    rt_error error;
    ew_step_result result;
    uint32_t count;
    setup(&f);
    setup(&rare);
    ew_model_destroy(rare.model);
    rare.config.model.base_rate = 0.002;
    assert_int_equal(ew_model_create(&rare.config, &rare.device, &rare.model, &error), RT_OK);
    const float zero = ew_model_dense(f.model, EW_VALUES, &count)[bias_of(f.model)];
    const float *bias = ew_model_dense(rare.model, EW_VALUES, &count) + bias_of(rare.model);
    assert_true(*bias == zero + (float)log(0.002 / 0.998));
    const float old = *bias;
    rare.batch.log_odds = 1;
    assert_int_equal(ew_model_step(rare.model, &rare.batch, NULL, NULL, &result, &error), RT_OK);
    assert_true(*bias == old);
    teardown(&f);
    teardown(&rare);
}

TEST_MAIN(TEST(log_odds_shift_the_bias_between_prediction_and_training),
          TEST(a_base_rate_that_is_given), TEST(papers_wide_and_deep_has_136673_weights),
          TEST(initial_values_follow_the_seed), TEST(steps_repeat_to_the_bit),
          TEST(idle_worker_contributes_zero), TEST(din_says_what_it_lacks),
          TEST(a_graph_says_what_it_lacks), TEST(classes_are_checked), TEST(shares_add_up),
          TEST(nan_reaches_the_loss), TEST(bad_micro_batches_are_refused),
          TEST(bad_sizes_are_refused), TEST(parameters_survive_a_file))
