// The CPU device on several threads: every float of a step of every model is the one that a single
// thread computes. Sizes are such that all operations are cut, at odd places too.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "edge_worker/model/ew_model.h"
#include "runtime/config/rt_models.h"
#include "runtime/config/rt_optimizers.h"
#include "runtime/rt_hash.h"
#include "tests/support/test.h"

#define FIELDS_MAX 7u
#define DENSE_MAX 5u
#define IDS 400u // of a field
#define PER_BAG_MAX 3u
#define SAMPLES_MAX 1500u
#define STEPS 2u

typedef struct {
    rt_model_config model;
    rt_optimizer_kind optimizer;
    float clip_norm;
    uint32_t sample_count, field_count, dense_count;
    uint32_t class_count; // of the label; 0: it is 0 or 1
    bool bags;
} scenario;

// All that a run of some steps leaves: predictions, row gradients, dense gradients, values, rows.
typedef struct {
    float *floats;
    size_t count, capacity;
} record;

static void keep(record *r, const float *floats, size_t count)
{
    if (r->count + count > r->capacity) {
        r->capacity = 2 * (r->count + count);
        r->floats = realloc(r->floats, r->capacity * sizeof *floats);
        assert_non_null(r->floats);
    }
    memcpy(r->floats + r->count, floats, count * sizeof *floats);
    r->count += count;
}

typedef struct {
    float *labels, *dense, *slab;
    uint32_t *rows, *bags, *slots;
    uint32_t lookups;
} input;

static void *blank(size_t count)
{
    void *block = calloc(count, sizeof(float));
    assert_non_null(block);
    return block;
}

// A sequence has the rows of the first field; of a graph all fields have.
static uint32_t table_of(const scenario *s, uint32_t field)
{
    const bool is_sequence = s->model.kind == RT_MODEL_DIN && field == s->field_count - 1;
    return is_sequence || s->model.kind == RT_MODEL_GRAPHSAGE ? 0 : field;
}

// Ids are skewed, so that some rows have hundreds of look-ups.
static input make_input(const scenario *s, uint32_t row_stride)
{
    rt_random random = {s->sample_count};
    const uint32_t bag_count = s->sample_count * s->field_count, row_count = s->field_count * IDS;
    input in = {blank(s->sample_count + 1),
                blank(s->sample_count * s->dense_count + 1),
                blank((size_t)row_count * row_stride),
                blank(bag_count * PER_BAG_MAX + 1),
                blank(bag_count + 1),
                blank(row_count),
                0};
    for (uint32_t i = 0; i < s->sample_count; i++)
        in.labels[i] = (float)rt_random_below(&random, s->class_count ? s->class_count : 2);
    for (uint32_t i = 0; i < s->sample_count * s->dense_count; i++)
        in.dense[i] = (float)rt_random_unit(&random) - 0.5f;
    for (size_t i = 0; i < (size_t)row_count * row_stride; i++)
        in.slab[i] = 0.1f + 0.3f * (float)rt_random_unit(&random);
    for (uint32_t r = 0; r < row_count; r++)
        in.slots[r] = row_count - 1 - r;
    for (uint32_t bag = 0; bag < bag_count; bag++) {
        const uint32_t count = s->bags ? rt_random_below(&random, PER_BAG_MAX + 1) : 1;
        for (uint32_t k = 0; k < count; k++) {
            const uint32_t id = rt_random_below(&random, 1 + rt_random_below(&random, IDS));
            in.rows[in.lookups++] = table_of(s, bag % s->field_count) * IDS + id;
        }
        in.bags[bag + 1] = in.lookups;
    }
    return in;
}

static void free_input(input *in)
{
    void *all[] = {in->labels, in->dense, in->slab, in->rows, in->bags, in->slots};
    for (size_t i = 0; i < RT_COUNT_OF(all); i++)
        free(all[i]);
}

static void take_steps(const scenario *s, ew_device *device, ew_model *model, uint32_t stride,
                       const rt_optimizer_config *optimizer, record *out)
{
    const uint32_t dim = s->model.embedding_dim, row_count = s->field_count * IDS;
    input in = make_input(s, stride);
    rt_error error = {0};
    const ew_micro_batch batch = {.sample_count = s->sample_count,
                                  .lookup_count = in.lookups,
                                  .row_count = row_count,
                                  .labels = in.labels,
                                  .dense = in.dense,
                                  .lookup_rows = in.rows,
                                  .bag_offsets = s->bags ? in.bags : NULL,
                                  .row_slots = in.slots,
                                  .slab = in.slab,
                                  .row_stride = stride,
                                  .scale = 1 / ((float)s->sample_count + 1)};
    for (uint32_t step = 1; step <= STEPS; step++) {
        ew_step_result result;
        uint32_t count;
        if (ew_model_check(model, &batch, row_count, &error) ||
            ew_model_step(model, &batch, NULL, NULL, &result, &error))
            fail_msg("%s", error.text);
        const float loss = (float)result.loss_sum;
        keep(out, &loss, 1);
        keep(out, result.predictions,
             s->sample_count * (size_t)(s->class_count ? s->class_count : 1));
        keep(out, result.row_gradients, (size_t)row_count * dim);
        const float *gradients = ew_model_dense(model, EW_GRADIENTS, &count);
        keep(out, gradients, count);
        device->ops->rows_step(device->state, optimizer, dim, step, in.slab, stride, in.slots, NULL,
                               row_count, result.row_gradients);
        keep(out, in.slab, (size_t)row_count * stride);
        ew_model_dense_step(model, step);
        keep(out, ew_model_dense(model, EW_VALUES, &count), count);
    }
    free_input(&in);
}

static record run(const scenario *s, uint32_t threads)
{
    const rt_optimizer_config optimizer = {.kind = s->optimizer,
                                           .learning_rate = 0.05f,
                                           .epsilon = 1e-6f,
                                           .momentum = 0.9f,
                                           .beta1 = 0.9f,
                                           .beta2 = 0.99f,
                                           .beta = 1,
                                           .clip_norm = s->clip_norm};
    const uint32_t dim = s->model.embedding_dim;
    const uint32_t stride = dim + rt_optimizer_state_floats(&optimizer, dim);
    const uint32_t lookups_max = SAMPLES_MAX * FIELDS_MAX * PER_BAG_MAX;
    ew_model_config config = {.model = s->model,
                              .optimizer = optimizer,
                              .seed = 3,
                              .dense_count = s->dense_count,
                              .field_count = s->field_count,
                              .class_count = s->class_count,
                              .sequence_field = s->field_count - 1,
                              .sample_count_max = SAMPLES_MAX,
                              .lookup_count_max = lookups_max,
                              .row_count_max = FIELDS_MAX * IDS};
    const ew_device_wish wish = {.name = "cpu", .threads = threads};
    ew_device device;
    ew_model *model;
    record out = {0};
    config.tables.are_shared = s->model.kind >= RT_MODEL_DIN;
    config.tables.field_count = s->field_count;
    for (uint32_t f = 0; f < s->field_count; f++) {
        config.tables.of[f] = (uint8_t)table_of(s, f);
        config.tables.borrows[f] = table_of(s, f) != f;
    }
    rt_error error = {0};
    if (ew_device_open_as(&wish, &device, &error) ||
        ew_model_create(&config, &device, &model, &error))
        fail_msg("%s", error.text);
    take_steps(s, &device, model, stride, &optimizer, &out);
    ew_model_destroy(model);
    ew_device_close(&device);
    return out;
}

static void expect_same_bits(const scenario *s)
{
#ifdef __SANITIZE_THREAD__ // slow, and sees every order at once
    static const uint32_t thread_counts[] = {3};
#else
    static const uint32_t thread_counts[] = {2, 3, 8};
#endif
    record alone = run(s, 1);
    for (size_t i = 0; i < RT_COUNT_OF(thread_counts); i++) {
        record shared = run(s, thread_counts[i]);
        assert_int_equal(shared.count, alone.count);
        for (size_t k = 0; k < alone.count; k++)
            if (memcmp(&alone.floats[k], &shared.floats[k], sizeof(float)) != 0)
                fail_msg("model %d, %u samples: float %zu of %zu is %a on one thread, %a on %u",
                         s->model.kind, s->sample_count, k, alone.count, (double)alone.floats[k],
                         (double)shared.floats[k], thread_counts[i]);
        free(shared.floats);
    }
    free(alone.floats);
}

static rt_model_config model_of(rt_model_kind kind, uint32_t dim)
{
    rt_model_config model = {.kind = kind,
                             .embedding_dim = dim,
                             .deep_input = RT_DEEP_ALL,
                             .mlp_layer_count = 2,
                             .mlp = {300, 64}};
    if (kind == RT_MODEL_DLRM) {
        model.mlp_bottom_layer_count = 1;
        model.mlp_bottom[0] = 40;
    }
    if (kind == RT_MODEL_DCN)
        model.cross_layer_count = 2;
    return model;
}

static scenario scenario_of(rt_model_kind kind, uint32_t dim, uint32_t sample_count)
{
    const bool is_ncf = kind == RT_MODEL_NCF;
    return (scenario){.model = model_of(kind, dim),
                      .sample_count = sample_count,
                      .field_count = is_ncf ? 2 : FIELDS_MAX,
                      .dense_count = is_ncf ? 0 : DENSE_MAX};
}

static void models(uint32_t sample_count, bool bags, uint32_t dim)
{
    static const rt_model_kind kinds[] = {RT_MODEL_WDL, RT_MODEL_DFM, RT_MODEL_DCN, RT_MODEL_DLRM,
                                          RT_MODEL_NCF};
    static const rt_optimizer_kind optimizers[] = {RT_OPTIMIZER_ADAM, RT_OPTIMIZER_ADAGRAD,
                                                   RT_OPTIMIZER_MOMENTUM, RT_OPTIMIZER_FTRL,
                                                   RT_OPTIMIZER_ADAM};
    for (size_t i = 0; i < RT_COUNT_OF(kinds); i++) {
        scenario s = scenario_of(kinds[i], dim, sample_count);
        s.optimizer = optimizers[i];
        s.clip_norm = i % 2 ? 0.01f : 0;
        s.bags = bags;
        s.model.pooling = bags && i % 2 ? RT_POOL_MEAN : RT_POOL_SUM;
        expect_same_bits(&s);
    }
}

static void one_look_up_per_field(void **state)
{
    (void)state;
    models(1000, false, 16);
}

static void bags_of_look_ups(void **state)
{
    (void)state;
    models(777, true, 24);
}

static void few_samples_or_none(void **state)
{
    (void)state;
    models(0, false, 8);
    models(3, true, 8);
}

static void cross_matrices_and_one_accumulator_for_all(void **state)
{
    (void)state;
    scenario s = scenario_of(RT_MODEL_DCN, 32, SAMPLES_MAX);
    s.optimizer = RT_OPTIMIZER_ROWWISE_ADAGRAD;
    s.model.cross = RT_CROSS_MATRIX;
    expect_same_bits(&s);
}

static void long_vectors_meet_by_matrix_products(void **state)
{
    (void)state;
    scenario s = scenario_of(RT_MODEL_DLRM, 64, 600);
    s.optimizer = RT_OPTIMIZER_SGD;
    expect_same_bits(&s);
}

// Attention over a sequence that has the rows of another field.
static void attention_over_a_history(void **state)
{
    (void)state;
    scenario s = scenario_of(RT_MODEL_DIN, 16, 900);
    s.optimizer = RT_OPTIMIZER_ADAGRAD;
    s.bags = true;
    s.model.attention_layer_count = 1;
    s.model.attention[0] = 20;
    expect_same_bits(&s);
}

static void neighbours_in_a_graph(void **state)
{
    (void)state;
    scenario s = scenario_of(RT_MODEL_GRAPHSAGE, 16, 900);
    s.optimizer = RT_OPTIMIZER_ADAM;
    s.dense_count = 0;
    s.class_count = 5;
    s.model.pooling = RT_POOL_MEAN;
    s.model.fan_out = FIELDS_MAX / 2;
    expect_same_bits(&s);
}

static void a_label_of_classes(void **state)
{
    (void)state;
    scenario s = scenario_of(RT_MODEL_WDL, 16, 1000);
    s.optimizer = RT_OPTIMIZER_ADAGRAD;
    s.class_count = 7;
    expect_same_bits(&s);
}

TEST_MAIN(TEST_SLOW(one_look_up_per_field, 240), TEST_SLOW(bags_of_look_ups, 240),
          TEST(few_samples_or_none), TEST(cross_matrices_and_one_accumulator_for_all),
          TEST(long_vectors_meet_by_matrix_products), TEST(attention_over_a_history),
          TEST(neighbours_in_a_graph), TEST(a_label_of_classes))
