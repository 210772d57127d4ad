// A few iterations of training, rows and all, on every device against the CPU: what a worker does,
// without its messages. And the rows of a device against rows in host memory.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/config/rt_models.h"
#include "tests/support/devices.h"
#include "tests/support/test.h"

#include "edge_worker/executor/ew_device_rows.h"
#include "edge_worker/model/ew_model.h"
#include "runtime/config/rt_optimizers.h"
#include "runtime/rt_hash.h"

#define SAMPLES 24u
#define FIELDS 5u
#define DENSE 3u
#define IDS 12u // per field
#define ROWS (FIELDS * IDS)
#define DIM 12u
#define STEPS 6u

typedef struct {
    double loss[STEPS];
    float predictions[STEPS][SAMPLES];
    float rows[ROWS][2 * DIM]; // values and state, at the end
    float *dense;
    uint32_t dense_count;
} trained;

// One way of keeping the slab.
typedef struct {
    ew_host_rows host;
    ew_device_rows on_device;
    const ew_rows_ops *ops;
    void *context;
    const float *slab;
    uint32_t stride;
} slab;

static const rt_optimizer_config adagrad = {.kind = RT_OPTIMIZER_ADAGRAD,
                                            .learning_rate = 0.05f,
                                            .epsilon = 1e-10f,
                                            .initial_accumulator = 0.1f};

static void slab_init(slab *s, const ew_device *device, const rt_optimizer_config *optimizer)
{
    *s = (slab){0};
    if (device->unified) {
        assert_int_equal(ew_host_rows_init(&s->host, ROWS, DIM, optimizer, 3, 0.1f), RT_OK);
        s->ops = &ew_host_rows_ops;
        s->context = &s->host;
        s->slab = s->host.slab;
        s->stride = s->host.stride;
        return;
    }
    assert_int_equal(ew_device_rows_init(&s->on_device, device, ROWS, DIM, optimizer, 3, 0.1f),
                     RT_OK);
    s->ops = &ew_device_rows_ops;
    s->context = &s->on_device;
    s->slab = s->on_device.slab;
    s->stride = s->on_device.stride;
}

static void slab_fini(slab *s)
{
    if (s->host.slab)
        ew_host_rows_fini(&s->host);
    ew_device_rows_fini(&s->on_device);
}

static void slab_settle(slab *s)
{
    if (s->context == &s->on_device)
        ew_device_rows_flush(&s->on_device);
}

typedef struct {
    float labels[SAMPLES], dense[SAMPLES * DENSE];
    uint32_t lookups[SAMPLES * FIELDS], slots[ROWS];
    uint32_t row_count;
} batch;

static uint32_t table_of(rt_model_kind kind, uint32_t field)
{
    const bool is_first =
        kind == RT_MODEL_GRAPHSAGE || (kind == RT_MODEL_DIN && field == FIELDS - 1);
    return is_first ? 0 : field;
}

// A user and an item.
static uint32_t fields_of(rt_model_kind kind)
{
    return kind == RT_MODEL_NCF ? 2 : FIELDS;
}

// A sequence has the rows of the first field; of a graph all fields have.
static void fill_batch(batch *b, uint64_t seed, rt_model_kind kind)
{
    rt_random random = {seed};
    const uint32_t fields = fields_of(kind);
    uint32_t numbers[ROWS];
    memset(numbers, 0xff, sizeof numbers);
    b->row_count = 0;
    for (uint32_t i = 0; i < SAMPLES; i++) {
        uint32_t sum = 0;
        for (uint32_t f = 0; f < fields; f++) {
            const uint32_t id = rt_random_below(&random, IDS), slot = table_of(kind, f) * IDS + id;
            if (numbers[slot] == UINT32_MAX) {
                b->slots[b->row_count] = slot;
                numbers[slot] = b->row_count++;
            }
            b->lookups[i * fields + f] = numbers[slot];
            sum += id;
        }
        for (uint32_t d = 0; d < DENSE; d++)
            b->dense[i * DENSE + d] = (float)rt_random_unit(&random);
        b->labels[i] = sum > fields * IDS / 2 ? 1 : 0;
    }
}

static void make_graph(ew_model_config *config)
{
    config->model.pooling = RT_POOL_MEAN;
    config->model.fan_out = FIELDS / 2;
    config->dense_count = 0;
    config->class_count = 2;
}

static ew_model *create_model(const ew_device *device, rt_model_kind kind)
{
    ew_model_config config = {.model = {.kind = kind,
                                        .embedding_dim = DIM,
                                        .deep_input = RT_DEEP_ALL,
                                        .mlp_layer_count = 2,
                                        .mlp = {20, 9},
                                        .mlp_bottom_layer_count = 1,
                                        .mlp_bottom = {7},
                                        .cross = RT_CROSS_VECTOR,
                                        .cross_layer_count = 2,
                                        .attention_layer_count = 1,
                                        .attention = {6},
                                        .base_rate_auto = true},
                              .optimizer = adagrad,
                              .seed = 4,
                              .dense_count = kind == RT_MODEL_NCF ? 0 : DENSE,
                              .field_count = fields_of(kind),
                              .sequence_field = FIELDS - 1,
                              .sample_count_max = SAMPLES,
                              .lookup_count_max = SAMPLES * FIELDS,
                              .row_count_max = ROWS};
    ew_model *model;
    rt_error error;
    config.tables = (rt_tables){.are_shared = kind >= RT_MODEL_DIN, .field_count = fields_of(kind)};
    for (uint32_t f = 0; f < fields_of(kind); f++) {
        config.tables.of[f] = (uint8_t)table_of(kind, f);
        config.tables.borrows[f] = table_of(kind, f) != f;
    }
    if (kind == RT_MODEL_GRAPHSAGE)
        make_graph(&config);
    if (ew_model_create(&config, device, &model, &error) != RT_OK)
        fail_msg("%s", error.text);
    return model;
}

static void train_step(const ew_device *device, ew_model *model, slab *s, uint64_t step,
                       rt_model_kind kind, trained *out)
{
    batch b;
    rt_error error;
    ew_step_result result;
    fill_batch(&b, step, kind);
    ew_micro_batch micro = {.sample_count = SAMPLES,
                            .lookup_count = SAMPLES * fields_of(kind),
                            .row_count = b.row_count,
                            .labels = b.labels,
                            .dense = b.dense,
                            .lookup_rows = b.lookups,
                            .row_slots = b.slots,
                            .slab = s->slab,
                            .row_stride = s->stride,
                            .scale = 1.0f / SAMPLES,
                            .log_odds = step == 1 ? -1.25f : 0};
    uint32_t *slots = device->ops->alloc_shared(device->state, b.row_count);
    assert_non_null(slots);
    memcpy(slots, b.slots, b.row_count * sizeof *slots);
    slab_settle(s);
    assert_int_equal(ew_model_check(model, &micro, ROWS, &error), RT_OK);
    if (ew_model_step(model, &micro, NULL, NULL, &result, &error) != RT_OK)
        fail_msg("%s", error.text);
    out->loss[step - 1] = result.loss_sum;
    memcpy(out->predictions[step - 1], result.predictions, sizeof out->predictions[0]);
    device->ops->rows_step(device->state, &adagrad, DIM, step, (float *)(uintptr_t)s->slab,
                           s->stride, slots, NULL, b.row_count, result.row_gradients);
    ew_model_dense_step(model, step);
    assert_int_equal(device->ops->finish(device->state, &error), RT_OK);
    device->ops->free_shared(device->state, slots);
}

static trained train_on(const ew_device *device, rt_model_kind kind)
{
    trained out = {0};
    slab s;
    rt_error error;
    float *rows[ROWS];
    ew_model *model = create_model(device, kind);
    slab_init(&s, device, &adagrad);
    for (uint32_t slot = 0; slot < ROWS; slot++) {
        uint64_t key = rt_key(slot / IDS, slot % IDS);
        s.ops->init(s.context, &slot, &key, 1);
    }
    for (uint64_t step = 1; step <= STEPS; step++)
        train_step(device, model, &s, step, kind, &out);
    uint32_t slots[ROWS];
    for (uint32_t slot = 0; slot < ROWS; slot++) {
        slots[slot] = slot;
        rows[slot] = out.rows[slot];
    }
    s.ops->read(s.context, slots, ROWS, 2 * DIM, rows);
    (void)ew_model_dense(model, EW_VALUES, &out.dense_count);
    out.dense = calloc(out.dense_count, sizeof *out.dense);
    assert_int_equal(ew_model_dense_read(model, EW_VALUES, out.dense, &error), RT_OK);
    slab_fini(&s);
    ew_model_destroy(model);
    return out;
}

// Sums in another order differ by 1e-7 of their terms; Adagrad's first steps divide a gradient by
// its own size, which for the smallest ones turns that into more: 1e-3 of a learning rate or so.
static void compare(const trained *got, const trained *want)
{
    for (uint32_t step = 0; step < STEPS; step++) {
        test_close(got->loss[step], want->loss[step], 1e-4, 1, "loss");
        for (uint32_t i = 0; i < SAMPLES; i++)
            test_close(got->predictions[step][i], want->predictions[step][i], 1e-3, 0.1,
                       "prediction");
    }
    for (uint32_t slot = 0; slot < ROWS; slot++)
        for (uint32_t d = 0; d < DIM; d++)
            test_close(got->rows[slot][d], want->rows[slot][d], 1e-3, 0.1, "value of a row");
    assert_int_equal(got->dense_count, want->dense_count);
    for (uint32_t k = 0; k < got->dense_count; k++)
        test_close(got->dense[k], want->dense[k], 1e-3, 0.1, "dense parameter");
    assert_true(want->loss[STEPS - 1] != want->loss[0]);
}

static void check_model(rt_model_kind kind)
{
    trained reference = {0};
    for (uint32_t i = 0; i < test_device_count(); i++) {
        ew_device device;
        rt_error error;
        if (test_device_open(i, &device, &error) != RT_OK)
            fail_msg("%s", error.text);
        trained one = train_on(&device, kind), again = train_on(&device, kind);
        assert_memory_equal(one.predictions, again.predictions, sizeof one.predictions);
        assert_memory_equal(one.rows, again.rows, sizeof one.rows);
        if (i == 0)
            reference = one;
        else
            compare(&one, &reference);
        free(again.dense);
        if (i > 0)
            free(one.dense);
        ew_device_close(&device);
    }
    free(reference.dense);
}

static void training_agrees(void **state)
{
    (void)state;
    for (rt_model_kind kind = 0; kind < RT_MODEL_COUNT; kind++)
        check_model(kind);
}

// Random operations on few slots, so that batches are broken up in every way.
static void check_rows_against_host(const ew_device *device)
{
    slab s, want;
    rt_random random = {8};
    ew_device unified = {.unified = true};
    float in[2 * DIM], got[2 * DIM], expected[2 * DIM];
    const float *in_p = in;
    float *got_p = got, *expected_p = expected;
    slab_init(&s, device, &adagrad);
    slab_init(&want, &unified, &adagrad);
    for (uint32_t turn = 0; turn < 400; turn++) {
        uint32_t slot = rt_random_below(&random, 6),
                 floats = rt_random_below(&random, 2) ? DIM : 2 * DIM;
        uint64_t key = rt_random_u64(&random);
        for (uint32_t d = 0; d < 2 * DIM; d++)
            in[d] = (float)rt_random_unit(&random);
        switch (rt_random_below(&random, 8)) {
        case 0:
            s.ops->step(s.context, &slot, &in_p, 1, 3);
            want.ops->step(want.context, &slot, &in_p, 1, 3);
            break;
        case 1:
            s.ops->read(s.context, &slot, 1, floats, &got_p);
            want.ops->read(want.context, &slot, 1, floats, &expected_p);
            assert_memory_equal(got, expected, floats * sizeof *got);
            break;
        case 2:
        case 3:
        case 4:
            s.ops->init(s.context, &slot, &key, 1);
            want.ops->init(want.context, &slot, &key, 1);
            break;
        default:
            s.ops->write(s.context, &slot, 1, floats, &in_p);
            want.ops->write(want.context, &slot, 1, floats, &in_p);
        }
    }
    for (uint32_t slot = 0; slot < 6; slot++) {
        s.ops->read(s.context, &slot, 1, 2 * DIM, &got_p);
        want.ops->read(want.context, &slot, 1, 2 * DIM, &expected_p);
        assert_memory_equal(got, expected, sizeof got);
    }
    slab_fini(&s);
    slab_fini(&want);
}

static void rows_are_those_of_the_host(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < test_device_count(); i++) {
        ew_device device;
        rt_error error;
        if (test_device_open(i, &device, &error) != RT_OK)
            fail_msg("%s", error.text);
        check_rows_against_host(&device);
        ew_device_close(&device);
    }
}

// What an executor names in an iteration: rows of both sizes and new ones by turns, rows that are
// read in between, steps of single rows. It takes a few launches and waits, not one or two for
// each.
static void rows_go_over_together(void **state)
{
    void (*counts)(uint64_t *, uint64_t *);
    uint64_t launches[2], waits[2];
    ew_device device;
    rt_error error;
    slab s;
    float row[2 * DIM] = {0}, got[2 * DIM];
    const float *in = row;
    float *out = got;
    (void)state;
    test_plugin_function("cuda_cpu_counts", &counts);
    if (!counts)
        test_skip("only what stands in for CUDA counts");
    if (test_device_open(1, &device, &error) != RT_OK)
        fail_msg("%s", error.text);
    slab_init(&s, &device, &adagrad);
    counts(&launches[0], &waits[0]);
    for (uint32_t slot = 0; slot + 5 <= ROWS; slot += 5) {
        uint32_t slots[] = {slot, slot + 1, slot + 2, slot + 3, slot + 4};
        uint64_t key = rt_key(0, slot);
        s.ops->write(s.context, &slots[0], 1, DIM, &in);
        s.ops->write(s.context, &slots[1], 1, 2 * DIM, &in);
        s.ops->init(s.context, &slots[2], &key, 1);
        s.ops->step(s.context, &slots[3], &in, 1, 7);
        if (slot % 20 == 0)
            s.ops->read(s.context, &slots[4], 1, DIM, &out);
    }
    slab_settle(&s);
    counts(&launches[1], &waits[1]);
    // Three lists, what steps read and write, and three reads of what was not pending.
    assert_int_equal(launches[1] - launches[0], 3 + 2 + 3);
    assert_true(waits[1] - waits[0] <= 3 + 2 + 3 + 1);
    slab_fini(&s);
    ew_device_close(&device);
}

TEST_MAIN(TEST(rows_go_over_together), TEST_SLOW(training_agrees, 240),
          TEST(rows_are_those_of_the_host))
