// Micro-batches that a device with graphs takes for one shape (ew_shape): samples, look-ups and
// rows are rounded up, and not a bit of what a step gives differs from the same step without that.
#include <stdio.h>
#include <string.h>

#include "edge_worker/device/ew_cuda.h"
#include "edge_worker/model/ew_model_parts.h"
#include "runtime/config/rt_models.h"
#include "runtime/config/rt_optimizers.h"
#include "runtime/rt_hash.h"
#include "tests/support/cuda_model.h"
#include "tests/support/devices.h"
#include "tests/support/test.h"

#define FIELDS 4u
#define DENSE 3u
#define DIM 8u
#define ROWS 400u
#define VALUES_MAX 3u // of a bag
// 32 steps of 9: what is rounded up passes the ends of the chunks that sums are made in.
#define SAMPLES_MAX 280u
#define LOOKUPS_MAX (SAMPLES_MAX * FIELDS * VALUES_MAX)
#define LABELS_MAX 2u

typedef struct {
    rt_model_kind kind;
    bool has_bags, has_weights;
    uint32_t label_count;
    float label_weight; // of the last label
} variant;

// One model, on a device of its own. The less it has room for, the less it rounds.
typedef struct {
    variant v;
    uint32_t fields;
    ew_device device;
    ew_model *model;
    float *slab;
} subject;

typedef struct {
    float labels[SAMPLES_MAX * LABELS_MAX], weights[SAMPLES_MAX * LABELS_MAX];
    float dense[SAMPLES_MAX * DENSE];
    uint32_t lookups[LOOKUPS_MAX], offsets[SAMPLES_MAX * FIELDS + 1], slots[ROWS];
    ew_micro_batch micro;
} batch;

typedef struct {
    float predictions[SAMPLES_MAX * LABELS_MAX], rows[ROWS * DIM], dense[4096];
    double loss;
    uint32_t dense_count;
} outcome;

static uint32_t fields_of(rt_model_kind kind)
{
    return kind == RT_MODEL_NCF ? 2 : FIELDS;
}

static void open_subject(subject *s, const variant *v, uint32_t samples_max, uint32_t lookups_max,
                         uint32_t rows_max)
{
    static float values[ROWS * DIM];
    const ew_model_config config = {
        .model = {.kind = v->kind,
                  .embedding_dim = DIM,
                  .deep_input = RT_DEEP_ALL,
                  .pooling = v->has_bags ? RT_POOL_MEAN : RT_POOL_SUM,
                  .mlp_layer_count = 2,
                  .mlp = {10, 6},
                  .mlp_bottom_layer_count = 1,
                  .mlp_bottom = {7},
                  .cross = v->has_bags ? RT_CROSS_VECTOR : RT_CROSS_MATRIX,
                  .cross_layer_count = 2},
        .optimizer = {.kind = RT_OPTIMIZER_SGD},
        .seed = 4,
        .dense_count = v->kind == RT_MODEL_NCF ? 0 : DENSE,
        .field_count = fields_of(v->kind),
        .more_labels = v->label_count - 1,
        .label_weights = {1, v->label_weight},
        .sample_count_max = samples_max,
        .lookup_count_max = lookups_max,
        .row_count_max = rows_max};
    *s = (subject){.v = *v, .fields = config.field_count};
    cuda_model_open(&config, &s->device, &s->model, &s->slab, values, RT_COUNT_OF(values));
}

static void close_subject(subject *s)
{
    cuda_model_close(&s->device, s->model, s->slab);
}

// Rows of a field: every fields-th of row_count.
static void fill(batch *b, const variant *v, uint32_t samples, uint32_t row_count, uint64_t seed)
{
    const uint32_t fields = fields_of(v->kind);
    rt_random random = {seed};
    uint32_t lookups = 0;
    for (uint32_t bag = 0; bag < samples * fields; bag++) {
        const uint32_t count = v->has_bags ? rt_random_below(&random, VALUES_MAX + 1) : 1;
        b->offsets[bag] = lookups;
        for (uint32_t k = 0; k < count; k++)
            b->lookups[lookups++] =
                rt_random_below(&random, row_count / fields) * fields + bag % fields;
    }
    b->offsets[samples * fields] = lookups;
    for (uint32_t r = 0; r < row_count; r++)
        b->slots[r] = (r + (uint32_t)seed) % ROWS;
    for (uint32_t i = 0; i < samples * DENSE; i++)
        b->dense[i] = (float)rt_random_unit(&random);
    for (uint32_t i = 0; i < samples * v->label_count; i++) {
        b->weights[i] = 1 + (float)rt_random_below(&random, 3);
        b->labels[i] = rt_random_below(&random, 2) ? b->weights[i] : 0;
    }
    b->micro = (ew_micro_batch){.sample_count = samples,
                                .lookup_count = lookups,
                                .row_count = row_count,
                                .labels = b->labels,
                                .weights = v->has_weights ? b->weights : NULL,
                                .dense = b->dense,
                                .lookup_rows = b->lookups,
                                .bag_offsets = v->has_bags ? b->offsets : NULL,
                                .row_slots = b->slots,
                                .row_stride = DIM,
                                .scale = 1.0f / SAMPLES_MAX};
}

static void step(subject *s, const batch *b, outcome *out)
{
    rt_error error = {0};
    ew_step_result result;
    ew_micro_batch micro = b->micro;
    micro.slab = s->slab;
    if (ew_model_check(s->model, &micro, ROWS, &error) ||
        ew_model_step(s->model, &micro, NULL, NULL, &result, &error))
        fail_msg("%s", error.text);
    memset(out, 0, sizeof *out);
    memcpy(out->predictions, result.predictions,
           micro.sample_count * s->v.label_count * sizeof(float));
    out->loss = result.loss_sum;
    (void)ew_model_dense(s->model, EW_GRADIENTS, &out->dense_count);
    assert_true(out->dense_count <= RT_COUNT_OF(out->dense));
    assert_int_equal(ew_model_dense_read(s->model, EW_GRADIENTS, out->dense, &error), RT_OK);
    s->device.ops->copy(s->device.state, EW_COPY_OUT, out->rows, result.row_gradients,
                        (size_t)micro.row_count * DIM * sizeof(float));
    assert_int_equal(s->device.ops->finish(s->device.state, &error), RT_OK);
}

// Of a row without look-ups the gradient is a zero of either sign.
static void expect_same(const float *got, const float *want, size_t count, const char *what,
                        const batch *b)
{
    for (size_t i = 0; i < count; i++)
        if (memcmp(&got[i], &want[i], sizeof *got) != 0 && (got[i] != 0 || want[i] != 0))
            fail_msg("%u samples, %u rows: %s %zu is %.9g, expected %.9g", b->micro.sample_count,
                     b->micro.row_count, what, i, (double)got[i], (double)want[i]);
}

// The same batch where there is room for it and no more, so that no sample is added.
static void check_bits(subject *rounding, uint32_t samples, uint32_t row_count, uint64_t seed)
{
    static batch b;
    static outcome got, want;
    subject exact;
    fill(&b, &rounding->v, samples, row_count, seed);
    open_subject(&exact, &rounding->v, samples, b.micro.lookup_count, row_count);
    step(rounding, &b, &got);
    step(&exact, &b, &want);
    close_subject(&exact);
    assert_int_equal(got.dense_count, want.dense_count);
    expect_same(got.predictions, want.predictions, RT_COUNT_OF(got.predictions), "prediction", &b);
    expect_same(got.dense, want.dense, RT_COUNT_OF(got.dense), "dense gradient", &b);
    expect_same(got.rows, want.rows, (size_t)row_count * DIM, "row gradient", &b);
    assert_true(got.loss == want.loss && got.loss > 0);
}

static uint64_t launched(uint64_t *alive_p)
{
    void (*graphs)(uint64_t *, uint64_t *);
    uint64_t count;
    test_plugin_function("cuda_cpu_graphs", &graphs);
    assert_non_null(graphs);
    graphs(&count, alive_p);
    return count;
}

static const variant variants[] = {
    {RT_MODEL_WDL, false, false, 1, 1},  {RT_MODEL_WDL, true, false, 1, 1},
    {RT_MODEL_WDL, false, true, 1, 1},   {RT_MODEL_WDL, true, true, 2, 1},
    {RT_MODEL_WDL, false, true, 2, 0.5}, {RT_MODEL_DFM, false, false, 1, 1},
    {RT_MODEL_DFM, true, false, 1, 1},   {RT_MODEL_DCN, false, false, 1, 1},
    {RT_MODEL_DCN, true, false, 1, 1},   {RT_MODEL_DLRM, false, false, 1, 1},
    {RT_MODEL_DLRM, true, true, 1, 1},   {RT_MODEL_NCF, false, false, 1, 1},
};

static void what_is_added_changes_no_bit(void **state)
{
    // Samples and rows; few rows are popular ones.
    static const uint32_t shapes[][2] = {{190, 240}, {192, 40}, {197, 244},
                                         {1, 4},     {252, 40}, {250, 400}};
    (void)state;
    for (size_t v = 0; v<RT_COUNT_OF(variants); v += test_device_slowness()> 10 ? 6 : 1) {
        subject rounding;
        open_subject(&rounding, &variants[v], SAMPLES_MAX, LOOKUPS_MAX, ROWS);
        for (size_t i = 0; i < RT_COUNT_OF(shapes); i++)
            check_bits(&rounding, shapes[i][0], shapes[i][1], i + 1);
        close_subject(&rounding);
    }
}

// Batches of 190 to 198 samples, of bags with several values each: from the second on one graph.
static void batches_of_about_one_size_are_one_graph(void **state)
{
    static batch b;
    static outcome out;
    (void)state;
    for (size_t v = 0; v<RT_COUNT_OF(variants); v += test_device_slowness()> 10 ? 6 : 1) {
        subject s;
        uint64_t alive, before = launched(&alive);
        open_subject(&s, &variants[v], SAMPLES_MAX, LOOKUPS_MAX, ROWS);
        for (uint32_t turn = 0; turn < 9; turn++) {
            fill(&b, &s.v, 190 + turn, 240, 7 + turn);
            b.micro.weights = turn < 8 ? b.micro.weights : b.weights; // 198: nothing is added
            step(&s, &b, &out);
        }
        // Random numbers of look-ups are now and then in the next of the 32 steps.
        const uint32_t most = s.v.has_bags ? 2 : 1;
        const uint64_t count = launched(&alive) - before;
        if (alive > most || count < 9 - most)
            fail_msg("variant %zu: %u graphs, launched %u times", v, (unsigned)alive,
                     (unsigned)count);
        close_subject(&s);
        (void)launched(&alive);
        assert_int_equal(alive, 0);
    }
}

// The rows of the batch have its look-ups and no others; those of samples that are none spread over
// rows that are none. starts: of the index on the device.
static void check_index(const batch *b, const uint32_t *starts, uint32_t rounded)
{
    uint32_t counts[ROWS] = {0};
    for (uint32_t l = 0; l < b->micro.lookup_count; l++)
        counts[b->lookups[l]]++;
    for (uint32_t r = 0; r < b->micro.row_count; r++)
        assert_int_equal(starts[r + 1] - starts[r], counts[r]);
    for (uint32_t r = b->micro.row_count; r < rounded; r++)
        assert_true(starts[r + 1] - starts[r] <= 32);
}

static void added_samples_look_up_added_rows(void **state)
{
    static batch b;
    static outcome out;
    static uint32_t starts[2 * ROWS];
    (void)state;
    for (size_t v = 0; v < 2; v++) {
        subject s;
        rt_error error = {0};
        open_subject(&s, &variants[v], SAMPLES_MAX, LOOKUPS_MAX, ROWS);
        fill(&b, &s.v, 190, ROWS, 5);
        step(&s, &b, &out);
        const ew_lookups *l = &s.model->lookups;
        assert_int_equal(l->sample_count, 198);
        assert_true(l->row_count >= ROWS && l->row_count < RT_COUNT_OF(starts));
        s.device.ops->copy(s.device.state, EW_COPY_OUT, starts, l->row_starts,
                           (l->row_count + 1) * sizeof *starts);
        assert_int_equal(s.device.ops->finish(s.device.state, &error), RT_OK);
        check_index(&b, starts, l->row_count);
        assert_int_equal(starts[l->row_count], s.v.has_bags ? b.micro.lookup_count : 198 * FIELDS);
        close_subject(&s);
    }
}

// Nothing is added to a batch of no samples, to what is only predicted, and to classes.
static void what_must_stay_as_it_is_does(void **state)
{
    static batch b;
    static outcome out;
    subject s;
    rt_error error = {0};
    ew_step_result result;
    (void)state;
    open_subject(&s, &variants[0], SAMPLES_MAX, LOOKUPS_MAX, ROWS);
    fill(&b, &s.v, 0, 0, 1);
    step(&s, &b, &out);
    for (uint32_t k = 0; k < out.dense_count; k++)
        assert_true(out.dense[k] == 0);
    assert_true(out.loss == 0);
    fill(&b, &s.v, 190, 240, 1);
    b.micro.labels = NULL;
    b.micro.slab = s.slab;
    assert_int_equal(ew_model_predict(s.model, &b.micro, &result, &error), RT_OK);
    memcpy(out.predictions, result.predictions, 190 * sizeof(float));
    b.micro.labels = b.labels;
    assert_int_equal(ew_model_step(s.model, &b.micro, NULL, NULL, &result, &error), RT_OK);
    assert_memory_equal(out.predictions, result.predictions, 190 * sizeof(float));
    close_subject(&s);
}

TEST_MAIN(TEST_SLOW(what_is_added_changes_no_bit, 120),
          TEST_SLOW(batches_of_about_one_size_are_one_graph, 120),
          TEST(added_samples_look_up_added_rows), TEST(what_must_stay_as_it_is_does))
