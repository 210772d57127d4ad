// Steps of a shape that was seen before are launched as graphs, and compute what they computed
// when they were launched operation by operation (a caller that asks for layer_done gets that).
#include <pthread.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "edge_worker/device/ew_cuda.h"
#include "edge_worker/model/ew_model.h"
#include "runtime/config/rt_models.h"
#include "runtime/config/rt_optimizers.h"
#include "runtime/rt_hash.h"
#include "tests/support/cuda_model.h"
#include "tests/support/devices.h"
#include "tests/support/test.h"

#define SAMPLES 20u
#define FIELDS 4u
#define DENSE 3u
#define DIM 8u
#define ROWS 40u
#define GRAPHS_MAX 256u // EW_CUDA_GRAPHS_MAX

typedef struct {
    ew_device device;
    ew_model *model;
    float *slab;
} fixture;

typedef struct {
    float labels[SAMPLES], dense[SAMPLES * DENSE];
    uint32_t lookups[SAMPLES * FIELDS], slots[ROWS];
} batch;

typedef struct {
    float predictions[SAMPLES], *gradients;
    double loss;
    uint32_t count;
} outcome;

static void setup(fixture *f, rt_model_kind kind)
{
    const ew_model_config config = {.model = {.kind = kind,
                                              .embedding_dim = DIM,
                                              .deep_input = RT_DEEP_ALL,
                                              .mlp_layer_count = 2,
                                              .mlp = {10, 6},
                                              .mlp_bottom_layer_count = 1,
                                              .mlp_bottom = {7},
                                              .cross = RT_CROSS_MATRIX,
                                              .cross_layer_count = 2},
                                    .optimizer = {.kind = RT_OPTIMIZER_SGD, .learning_rate = 0.1f},
                                    .seed = 4,
                                    .dense_count = kind == RT_MODEL_NCF ? 0 : DENSE,
                                    .field_count = kind == RT_MODEL_NCF ? 2 : FIELDS,
                                    .sample_count_max = SAMPLES,
                                    .lookup_count_max = SAMPLES * FIELDS,
                                    .row_count_max = ROWS};
    static float values[ROWS * 16];
    cuda_model_open(&config, &f->device, &f->model, &f->slab, values, RT_COUNT_OF(values));
}

static void teardown(fixture *f)
{
    cuda_model_close(&f->device, f->model, f->slab);
}

static void not_asked(void *context, uint32_t offset, uint32_t count)
{
    (void)context, (void)offset, (void)count;
}

static void step(fixture *f, uint32_t samples, uint32_t fields, uint64_t seed, bool directly,
                 outcome *out)
{
    batch b;
    rt_random random = {seed};
    rt_error error = {0};
    ew_step_result result;
    for (uint32_t i = 0; i < ROWS; i++)
        b.slots[i] = (i + (uint32_t)seed) % ROWS;
    for (uint32_t i = 0; i < samples * fields; i++) // rows of a field: every fields-th
        b.lookups[i] = rt_random_below(&random, ROWS / fields) * fields + i % fields;
    for (uint32_t i = 0; i < SAMPLES * DENSE; i++)
        b.dense[i] = (float)rt_random_unit(&random);
    for (uint32_t i = 0; i < SAMPLES; i++)
        b.labels[i] = (float)rt_random_below(&random, 2);
    const ew_micro_batch micro = {.sample_count = samples,
                                  .lookup_count = samples * fields,
                                  .row_count = ROWS,
                                  .labels = b.labels,
                                  .dense = b.dense,
                                  .lookup_rows = b.lookups,
                                  .row_slots = b.slots,
                                  .slab = f->slab,
                                  .row_stride = 16,
                                  .scale = 1.0f / SAMPLES};
    if (ew_model_check(f->model, &micro, ROWS, &error) ||
        ew_model_step(f->model, &micro, directly ? not_asked : NULL, NULL, &result, &error))
        fail_msg("%s", error.text);
    memset(out->predictions, 0, sizeof out->predictions);
    memcpy(out->predictions, result.predictions, samples * sizeof(float));
    out->loss = result.loss_sum;
    (void)ew_model_dense(f->model, EW_GRADIENTS, &out->count);
    out->gradients = rt_alloc(out->count, sizeof(float));
    assert_int_equal(ew_model_dense_read(f->model, EW_GRADIENTS, out->gradients, &error), RT_OK);
    ew_model_dense_step(f->model, seed);
}

static void compare(fixture *graph, fixture *direct, uint32_t samples, uint32_t fields,
                    uint64_t seed)
{
    outcome got, want;
    step(graph, samples, fields, seed, false, &got);
    step(direct, samples, fields, seed, true, &want);
    assert_memory_equal(got.predictions, want.predictions, sizeof got.predictions);
    assert_true(got.loss == want.loss && got.count == want.count);
    assert_memory_equal(got.gradients, want.gradients, got.count * sizeof(float));
    rt_free(got.gradients);
    rt_free(want.gradients);
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

static void a_graph_is_its_operations(void **state)
{
    static const rt_model_kind kinds[] = {RT_MODEL_WDL, RT_MODEL_DFM, RT_MODEL_DCN, RT_MODEL_DLRM,
                                          RT_MODEL_NCF};
    // The first two of a shape are the direct one and the capture, which is launched.
    static const uint32_t shapes[] = {20, 20, 20, 7, 20, 7, 7, 0, 0, 0, 20};
    static const uint32_t launches[] = {0, 1, 2, 2, 3, 4, 5, 5, 6, 7, 8};
    (void)state;
    for (size_t k = 0; k < RT_COUNT_OF(kinds); k++) {
        fixture graph, direct;
        uint64_t alive, before = launched(&alive);
        setup(&graph, kinds[k]);
        setup(&direct, kinds[k]);
        for (size_t i = 0; i < RT_COUNT_OF(shapes); i++) {
            compare(&graph, &direct, shapes[i], kinds[k] == RT_MODEL_NCF ? 2 : FIELDS, i + 1);
            assert_int_equal(launched(&alive) - before, launches[i]);
        }
        assert_int_equal(alive, 3);
        teardown(&graph);
        teardown(&direct);
        (void)launched(&alive);
        assert_int_equal(alive, 0);
    }
}

// More keys than graphs are kept: the oldest go, those in use stay.
typedef struct {
    ew_device device;
    float *block;
} activated;

static void activate_once(void *context)
{
    const activated *a = context;
    a->device.layers->activate(a->device.state, EW_RELU, 1, 16, a->block + 16, a->block, 16);
}

static void repeat(activated *a, uint32_t key)
{
    a->device.ops->repeat(a->device.state, &key, sizeof key, activate_once, a);
    assert_int_equal(a->device.ops->finish(a->device.state, NULL), RT_OK);
}

static void graphs_are_bounded(void **state)
{
    activated a;
    rt_error error = {0};
    uint64_t alive;
    (void)state;
    if (ew_cuda_open(test_plugin_path(), &(ew_device_wish){.name = "cuda:0"}, &a.device, &error))
        fail_msg("%s", error.text);
    a.block = a.device.ops->alloc(a.device.state, 32);
    for (uint32_t key = 0; key < GRAPHS_MAX + 4; key++) {
        repeat(&a, key);
        repeat(&a, key);
        repeat(&a, 0); // in use all the time
        (void)launched(&alive);
        assert_int_equal(alive, key < GRAPHS_MAX ? key + 1 : GRAPHS_MAX);
    }
    uint64_t before = launched(&alive);
    repeat(&a, 0);
    assert_int_equal(launched(&alive), before + 1);
    repeat(&a, 1); // gone: it begins anew
    assert_int_equal(launched(&alive), before + 1);
    a.device.ops->free(a.device.state, a.block);
    ew_device_close(&a.device);
}

// What a capture cannot hold is run as it is; and that says nothing about the device.
typedef struct {
    ew_device *device;
    void *buffer;
    uint32_t calls;
} uncapturable;

static void work_with_a_wait(void *context)
{
    uncapturable *u = context;
    const float one = 1;
    u->calls++;
    u->device->ops->copy(u->device->state, EW_COPY_IN, u->buffer, &one, sizeof one);
}

static void what_cannot_be_captured_runs_as_it_is(void **state)
{
    ew_device device;
    rt_error error = {0};
    uint64_t alive, before = launched(&alive);
    (void)state;
    if (ew_cuda_open(test_plugin_path(), &(ew_device_wish){.name = "cuda:0"}, &device, &error))
        fail_msg("%s", error.text);
    uncapturable u = {.device = &device, .buffer = device.ops->alloc(device.state, 1)};
    for (uint32_t i = 0; i < 5; i++) {
        device.ops->repeat(device.state, "key", 3, work_with_a_wait, &u);
        assert_int_equal(device.ops->finish(device.state, &error), RT_OK);
    }
    assert_int_equal(u.calls, 6); // one in vain
    assert_int_equal(launched(&alive), before);
    assert_int_equal(alive, 0);
    device.ops->free(device.state, u.buffer);
    ew_device_close(&device);
}

// Whichever call of a capture fails: the step is what it would have been, and so are those after
// it.
static void a_capture_that_fails_changes_nothing(void **state)
{
    void (*fail_captures)(uint64_t);
    uint64_t alive, before = launched(&alive);
    uint32_t failed = 0;
    (void)state;
    test_plugin_function("cuda_cpu_fail_captures", &fail_captures);
    for (uint64_t call = 1; launched(&alive) == before; call++) {
        fixture graph, direct;
        assert_true(call < 1000);
        setup(&graph, RT_MODEL_WDL);
        setup(&direct, RT_MODEL_WDL);
        fail_captures(call);
        for (uint64_t seed = 1; seed <= 3; seed++)
            compare(&graph, &direct, SAMPLES, FIELDS, seed);
        fail_captures(0);
        teardown(&graph);
        teardown(&direct);
        failed++;
    }
    assert_true(failed > 10); // begin, the operations, end, the making of a graph
    assert_int_equal(alive, 0);
}

// Memory that is given back is given out again at once: the same key names other work.
typedef struct {
    ew_device *device;
    float *block;
    uint32_t columns, calls;
} negated;

static void activate_block(void *context)
{
    negated *n = context;
    n->calls++;
    n->device->layers->activate(n->device->state, EW_RELU, 1, n->columns, n->block + 32, n->block,
                                n->columns);
}

static void a_graph_ends_with_its_memory(void **state)
{
    void (*first_fit)(void);
    ew_device device;
    rt_error error = {0};
    float values[64], *before = NULL;
    (void)state;
    test_plugin_function("cuda_cpu_first_fit", &first_fit);
    first_fit();
    if (ew_cuda_open(test_plugin_path(), &(ew_device_wish){.name = "cuda:0"}, &device, &error))
        fail_msg("%s", error.text);
    for (uint32_t turn = 1; turn <= 2; turn++) {
        negated n = {&device, device.ops->alloc(device.state, 64), turn * 16, 0};
        assert_true(!before || n.block == before);
        before = n.block;
        for (uint32_t i = 0; i < 3; i++) {
            for (uint32_t k = 0; k < 64; k++)
                values[k] = k < 32 ? -1 : 0;
            device.ops->copy(device.state, EW_COPY_IN, n.block, values, sizeof values);
            device.ops->repeat(device.state, &n.block, sizeof n.block, activate_block, &n);
            device.ops->copy(device.state, EW_COPY_OUT, values, n.block, sizeof values);
            assert_int_equal(device.ops->finish(device.state, &error), RT_OK);
            for (uint32_t k = 0; k < 32; k++)
                assert_true(values[k] == (k < turn * 16 ? 0 : -1));
        }
        assert_int_equal(n.calls, 2); // then as a graph
        device.ops->free(device.state, n.block);
    }
    ew_device_close(&device);
}

// After a checkpoint the communication thread is who queued last; its rows come while the training
// thread captures.
typedef struct {
    ew_device *device;
    float *block;
    pthread_barrier_t begin, end;
} contended;

enum { ROUNDS = 200 };

static void activate_contended(void *context)
{
    const contended *c = context;
    c->device->layers->activate(c->device->state, EW_RELU, 1, 32, c->block + 32, c->block, 32);
    (void)usleep(200); // so that what comes meanwhile comes in the middle
}

static void *capture_many(void *context)
{
    contended *c = context;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        c->device->ops->repeat(c->device->state, &round, sizeof round, activate_contended, c);
        (void)c->device->ops->finish(c->device->state, NULL);
        (void)pthread_barrier_wait(&c->end);
        (void)pthread_barrier_wait(&c->begin);
        c->device->ops->repeat(c->device->state, &round, sizeof round, activate_contended, c);
        (void)c->device->ops->finish(c->device->state, NULL);
        (void)pthread_barrier_wait(&c->end);
    }
    return NULL;
}

static void rows_move_while_a_step_is_captured(void **state)
{
    ew_device device;
    pthread_t thread;
    rt_error error = {0};
    uint64_t alive, before = launched(&alive);
    float one = 1;
    (void)state;
    if (ew_cuda_open(test_plugin_path(), &(ew_device_wish){.name = "cuda:0"}, &device, &error))
        fail_msg("%s", error.text);
    contended c = {.device = &device, .block = device.ops->alloc(device.state, 128)};
    float *packed = device.ops->alloc_shared(device.state, 4);
    uint32_t *slots = device.ops->alloc_shared(device.state, 1);
    assert_int_equal(pthread_barrier_init(&c.begin, NULL, 2), 0);
    assert_int_equal(pthread_barrier_init(&c.end, NULL, 2), 0);
    assert_int_equal(pthread_create(&thread, NULL, capture_many, &c), 0);
    for (uint32_t round = 0; round < ROUNDS; round++) {
        (void)pthread_barrier_wait(&c.end);
        device.ops->copy(device.state, EW_COPY_IN, c.block + 127, &one, sizeof one);
        assert_int_equal(device.ops->finish(device.state, &error), RT_OK);
        (void)pthread_barrier_wait(&c.begin);
        packed[0] = (float)round;
        for (uint32_t i = 0; i < 4; i++)
            device.ops->rows_put(device.state, c.block + 64, 4, 4, slots, 1, packed);
        device.ops->rows_get(device.state, c.block + 64, 4, 4, slots, 1, packed);
        assert_true(packed[0] == (float)round);
        (void)pthread_barrier_wait(&c.end);
    }
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(device.ops->finish(device.state, &error), RT_OK);
    assert_int_equal(launched(&alive) - before, ROUNDS);
    device.ops->free(device.state, c.block);
    device.ops->free_shared(device.state, packed);
    device.ops->free_shared(device.state, slots);
    ew_device_close(&device);
}

// ---- numbers of rows ---------------------------------------------------------------------------

#define MANY_ROWS 640u // a step's number of rows is rounded up to a multiple of 21

typedef struct {
    ew_device device;
    ew_model *model;
    float *slab;
} rows_case;

static void open_rows_case(rows_case *c, bool cuda)
{
    const ew_model_config config = {.model = {.kind = RT_MODEL_WDL,
                                              .embedding_dim = DIM,
                                              .deep_input = RT_DEEP_ALL,
                                              .mlp_layer_count = 1,
                                              .mlp = {6}},
                                    .optimizer = {.kind = RT_OPTIMIZER_SGD},
                                    .seed = 4,
                                    .dense_count = DENSE,
                                    .field_count = FIELDS,
                                    .sample_count_max = MANY_ROWS,
                                    .lookup_count_max = MANY_ROWS * FIELDS,
                                    .row_count_max = MANY_ROWS};
    static float values[MANY_ROWS * DIM];
    const ew_device_wish wish = {.name = "cuda:0"};
    rt_error error = {0};
    rt_status status = cuda ? ew_cuda_open(test_plugin_path(), &wish, &c->device, &error)
                            : ew_device_open("cpu", &c->device, &error);
    if (status || ew_model_create(&config, &c->device, &c->model, &error))
        fail_msg("%s", error.text);
    rt_row_init(1, 2, 1, RT_COUNT_OF(values), values);
    c->slab = c->device.ops->alloc(c->device.state, RT_COUNT_OF(values));
    c->device.ops->copy(c->device.state, EW_COPY_IN, c->slab, values, sizeof values);
    assert_int_equal(c->device.ops->finish(c->device.state, &error), RT_OK);
}

// The dense gradients, then those of the rows, in out; returns how many.
static uint32_t step_rows_case(rows_case *c, uint32_t row_count, float *out)
{
    static float labels[MANY_ROWS], dense[MANY_ROWS * DENSE];
    static uint32_t lookups[MANY_ROWS * FIELDS], slots[MANY_ROWS];
    rt_error error = {0};
    ew_step_result result;
    uint32_t dense_count;
    for (uint32_t i = 0; i < MANY_ROWS; i++) {
        labels[i] = (float)(i % 3 == 0);
        slots[i] = MANY_ROWS - 1 - i;
        for (uint32_t f = 0; f < FIELDS; f++)
            lookups[i * FIELDS + f] = (i * 7 + f) % (row_count / FIELDS) * FIELDS + f;
    }
    const ew_micro_batch micro = {.sample_count = MANY_ROWS,
                                  .lookup_count = MANY_ROWS * FIELDS,
                                  .row_count = row_count,
                                  .labels = labels,
                                  .dense = dense,
                                  .lookup_rows = lookups,
                                  .row_slots = slots,
                                  .slab = c->slab,
                                  .row_stride = DIM,
                                  .scale = 1.0f / MANY_ROWS};
    if (ew_model_check(c->model, &micro, MANY_ROWS, &error) ||
        ew_model_step(c->model, &micro, NULL, NULL, &result, &error))
        fail_msg("%s", error.text);
    (void)ew_model_dense(c->model, EW_GRADIENTS, &dense_count);
    assert_int_equal(ew_model_dense_read(c->model, EW_GRADIENTS, out, &error), RT_OK);
    c->device.ops->copy(c->device.state, EW_COPY_OUT, out + dense_count, result.row_gradients,
                        (size_t)row_count * DIM * sizeof *out);
    assert_int_equal(c->device.ops->finish(c->device.state, &error), RT_OK);
    return dense_count + row_count * DIM;
}

static void close_rows_case(rows_case *c)
{
    c->device.ops->free(c->device.state, c->slab);
    ew_model_destroy(c->model);
    ew_device_close(&c->device);
}

static void numbers_of_rows_near_each_other_share_a_graph(void **state)
{
    static const uint32_t counts[] = {380, 399, 390, 381, 398, 400, 640, 639};
    static const uint32_t launches[] = {0, 1, 2, 3, 4, 4, 4, 5};
    static float got[8192], want[8192];
    rows_case cuda, cpu;
    uint64_t alive, before = launched(&alive);
    (void)state;
    open_rows_case(&cuda, true);
    open_rows_case(&cpu, false);
    for (size_t i = 0; i < RT_COUNT_OF(counts); i++) {
        const uint32_t count = step_rows_case(&cuda, counts[i], got);
        assert_true(count <= RT_COUNT_OF(got));
        assert_int_equal(launched(&alive) - before, launches[i]);
        assert_int_equal(step_rows_case(&cpu, counts[i], want), count);
        for (uint32_t k = 0; k < count; k++)
            if (fabsf(got[k] - want[k]) > 1e-5f * (1 + fabsf(want[k])))
                fail_msg("%u rows: gradient %u is %g, expected %g", counts[i], k, (double)got[k],
                         (double)want[k]);
    }
    close_rows_case(&cuda);
    close_rows_case(&cpu);
}

// TF32 is asked for, and changes products by about what 10 bits of mantissa lose.
static void tf32_rounds_factors(void **state)
{
    const ew_device_wish wishes[] = {{.name = "cuda:0"}, {.name = "cuda:0", .tf32 = true}};
    const float a[] = {1 + 0x1p-12f, 1 + 0x1p-9f}, b[] = {1, 1};
    float results[2];
    (void)state;
    for (size_t i = 0; i < RT_COUNT_OF(wishes); i++) {
        ew_device device;
        rt_error error = {0};
        if (ew_cuda_open(test_plugin_path(), &wishes[i], &device, &error))
            fail_msg("%s", error.text);
        float *values = device.ops->alloc(device.state, 64);
        device.ops->copy(device.state, EW_COPY_IN, values, a, sizeof a);
        device.ops->copy(device.state, EW_COPY_IN, values + 16, b, sizeof b);
        device.layers->gemm(device.state, false, false, 1, 1, 2, values, 2, values + 16, 1, 0,
                            values + 32, 1);
        device.ops->copy(device.state, EW_COPY_OUT, &results[i], values + 32, sizeof results[i]);
        assert_int_equal(device.ops->finish(device.state, &error), RT_OK);
        device.ops->free(device.state, values);
        ew_device_close(&device);
    }
    assert_true(results[0] == 2 + 0x1p-12f + 0x1p-9f);
    assert_true(results[1] == 2 + 0x1p-9f);
}

TEST_MAIN(TEST(a_graph_is_its_operations), TEST(tf32_rounds_factors),
          TEST(numbers_of_rows_near_each_other_share_a_graph), TEST(graphs_are_bounded),
          TEST(what_cannot_be_captured_runs_as_it_is),
          TEST_SLOW(a_capture_that_fails_changes_nothing, 120), TEST(a_graph_ends_with_its_memory),
          TEST(rows_move_while_a_step_is_captured))
