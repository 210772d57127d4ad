// Calls of the CUDA runtime that fail, one after another, anywhere in a whole training step with
// the rows' traffic on its second thread: finish tells of each failure once, and afterwards the
// device computes what it computed before, to the bit.
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "edge_worker/device/ew_cuda.h"
#include "edge_worker/executor/ew_device_rows.h"
#include "edge_worker/model/ew_model.h"
#include "runtime/config/rt_models.h"
#include "runtime/config/rt_optimizers.h"
#include "runtime/rt_hash.h"
#include "tests/support/devices.h"
#include "tests/support/test.h"

#define SAMPLES 20u
#define FIELDS 4u
#define DENSE 3u
#define DIM 8u
#define ROWS 40u
#define CALLS_MAX 2000u

static const rt_optimizer_config adagrad = {.kind = RT_OPTIMIZER_ADAGRAD,
                                            .learning_rate = 0.05f,
                                            .epsilon = 1e-10f,
                                            .initial_accumulator = 0.1f,
                                            .clip_norm = 0.01f};

typedef struct {
    ew_device device;
    ew_model *model;
    ew_device_rows rows;
    uint32_t *own_slots, *own_rows; // pinned
    float *initial;                 // dense values
    uint32_t dense_count;
    // The thread of the rows.
    pthread_t thread;
    pthread_barrier_t begin, end;
    void (*traffic)(void *fixture); // NULL: it ends
} fixture;

typedef struct {
    float rows[ROWS][2 * DIM], dense[2048];
} outcome;

static void *move_rows(void *context)
{
    fixture *f = context;
    for (;;) {
        (void)pthread_barrier_wait(&f->begin);
        if (!f->traffic)
            return NULL;
        f->traffic(f);
        (void)pthread_barrier_wait(&f->end);
    }
}

static void on_rows_thread(fixture *f, void (*traffic)(void *fixture))
{
    f->traffic = traffic;
    (void)pthread_barrier_wait(&f->begin);
    if (traffic)
        (void)pthread_barrier_wait(&f->end);
}

static ew_model *make_model(const ew_device *device)
{
    const ew_model_config config = {.model = {.kind = RT_MODEL_WDL,
                                              .embedding_dim = DIM,
                                              .deep_input = RT_DEEP_ALL,
                                              .mlp_layer_count = 2,
                                              .mlp = {10, 6}},
                                    .optimizer = adagrad,
                                    .seed = 4,
                                    .dense_count = DENSE,
                                    .field_count = FIELDS,
                                    .sample_count_max = SAMPLES,
                                    .lookup_count_max = SAMPLES * FIELDS,
                                    .row_count_max = ROWS};
    ew_model *model = NULL;
    rt_error error = {0};
    if (ew_model_create(&config, device, &model, &error))
        fail_msg("%s", error.text);
    return model;
}

static void setup(fixture *f)
{
    rt_error error = {0};
    memset(f, 0, sizeof *f);
    if (ew_cuda_open(test_plugin_path(), &(ew_device_wish){.name = "cuda:0"}, &f->device, &error))
        fail_msg("%s", error.text);
    f->model = make_model(&f->device);
    assert_int_equal(ew_device_rows_init(&f->rows, &f->device, ROWS, DIM, &adagrad, 3, 0.1f),
                     RT_OK);
    f->own_slots = f->device.ops->alloc_shared(f->device.state, ROWS);
    f->own_rows = f->device.ops->alloc_shared(f->device.state, ROWS);
    assert_true(f->own_slots && f->own_rows);
    (void)ew_model_dense(f->model, EW_VALUES, &f->dense_count);
    assert_true(f->dense_count <= 2048);
    f->initial = rt_alloc(2 * f->dense_count, sizeof *f->initial);
    assert_int_equal(ew_model_dense_read(f->model, EW_VALUES, f->initial, &error), RT_OK);
    assert_int_equal(
        ew_model_dense_read(f->model, EW_OPTIMIZER_STATE, f->initial + f->dense_count, &error),
        RT_OK);
    assert_int_equal(pthread_barrier_init(&f->begin, NULL, 2), 0);
    assert_int_equal(pthread_barrier_init(&f->end, NULL, 2), 0);
    assert_int_equal(pthread_create(&f->thread, NULL, move_rows, f), 0);
}

static void teardown(fixture *f)
{
    on_rows_thread(f, NULL);
    assert_int_equal(pthread_join(f->thread, NULL), 0);
    f->device.ops->free_shared(f->device.state, f->own_slots);
    f->device.ops->free_shared(f->device.state, f->own_rows);
    ew_device_rows_fini(&f->rows);
    ew_model_destroy(f->model);
    ew_device_close(&f->device);
    rt_free(f->initial);
}

// All rows are made, some written whole, some without their state, some stepped, some read.
static void fill_rows(void *context)
{
    fixture *f = context;
    float whole[2 * DIM], read[2][2 * DIM];
    const float *in[] = {whole, whole};
    float *const out[] = {read[0], read[1]};
    uint32_t slots[ROWS];
    uint64_t keys[ROWS];
    for (uint32_t i = 0; i < ROWS; i++) {
        slots[i] = i;
        keys[i] = i * 7;
    }
    for (uint32_t d = 0; d < 2 * DIM; d++)
        whole[d] = 0.01f * (float)(d + 1);
    ew_device_rows_ops.init(&f->rows, slots, keys, ROWS);
    ew_device_rows_ops.write(&f->rows, slots + 3, 2, 2 * DIM, in);
    ew_device_rows_ops.write(&f->rows, slots + 7, 2, DIM, in);
    ew_device_rows_ops.step(&f->rows, slots + 9, in, 2, 1);
    ew_device_rows_ops.read(&f->rows, slots + 7, 2, 2 * DIM, out);
    ew_device_rows_flush(&f->rows);
}

static void read_rows(void *context)
{
    fixture *f = context;
    float row[2 * DIM], *const out[] = {row};
    for (uint32_t slot = 0; slot < 3; slot++)
        ew_device_rows_ops.read(&f->rows, &slot, 1, 2 * DIM, out);
}

// A step as a worker makes it. The first failure that is told ends it, as it ends a run.
static rt_status train(fixture *f, uint64_t step, rt_error *error)
{
    float labels[SAMPLES], dense[SAMPLES * DENSE];
    uint32_t lookups[SAMPLES * FIELDS], slots[ROWS];
    rt_random random = {step};
    ew_step_result result;
    for (uint32_t i = 0; i < ROWS; i++)
        slots[i] = f->own_slots[i] = f->own_rows[i] = i;
    for (uint32_t i = 0; i < SAMPLES * FIELDS; i++)
        lookups[i] = rt_random_below(&random, ROWS / FIELDS) * FIELDS + i % FIELDS;
    for (uint32_t i = 0; i < SAMPLES * DENSE; i++)
        dense[i] = (float)rt_random_unit(&random);
    for (uint32_t i = 0; i < SAMPLES; i++)
        labels[i] = (float)rt_random_below(&random, 2);
    const ew_micro_batch micro = {.sample_count = SAMPLES,
                                  .lookup_count = SAMPLES * FIELDS,
                                  .row_count = ROWS,
                                  .labels = labels,
                                  .dense = dense,
                                  .lookup_rows = lookups,
                                  .row_slots = slots,
                                  .slab = f->rows.slab,
                                  .row_stride = f->rows.stride,
                                  .scale = 1.0f / SAMPLES};
    rt_status status = ew_model_step(f->model, &micro, NULL, NULL, &result, error);
    if (status)
        return status;
    f->device.ops->rows_step(f->device.state, &adagrad, DIM, step, f->rows.slab, f->rows.stride,
                             f->own_slots, f->own_rows, ROWS, result.row_gradients);
    status = f->device.ops->finish(f->device.state, error);
    if (!status)
        ew_model_dense_step(f->model, step);
    return status;
}

// From the same beginning: the same end. Of the three steps, where graphs were forgotten, the first
// is queued operation by operation, the second captured, the third a graph.
static rt_status run(fixture *f, outcome *out, rt_error *error)
{
    uint32_t slot = 0;
    rt_status status = ew_model_dense_write(f->model, EW_VALUES, f->initial, error);
    if (!status)
        status =
            ew_model_dense_write(f->model, EW_OPTIMIZER_STATE, f->initial + f->dense_count, error);
    if (status)
        return status;
    on_rows_thread(f, fill_rows);
    for (uint64_t step = 1; step <= 3; step++) {
        status = train(f, step, error);
        if (status)
            return status;
        on_rows_thread(f, read_rows);
    }
    for (; slot < ROWS; slot++) {
        float *const row[] = {out->rows[slot]};
        ew_device_rows_ops.read(&f->rows, &slot, 1, 2 * DIM, row);
    }
    return ew_model_dense_read(f->model, EW_VALUES, out->dense, error);
}

static void forget_graphs(fixture *f)
{
    f->device.ops->free(f->device.state, f->device.ops->alloc(f->device.state, 1));
}

// Returns how many were told.
static uint32_t fail_each_call(const char *control)
{
#ifdef __SANITIZE_THREAD__
    test_skip("hundreds of emulated steps take an hour under the thread sanitizer");
#endif
    void (*fail_call)(uint64_t);
    uint64_t (*alive)(void), (*failures)(void);
    static outcome want, got;
    rt_error error = {0};
    fixture f;
    test_plugin_function(control, &fail_call);
    test_plugin_function("cuda_cpu_alive", &alive);
    test_plugin_function("cuda_cpu_failures", &failures);
    assert_true(fail_call && alive && failures);
    const uint64_t before = alive();
    setup(&f);
    if (run(&f, &want, &error))
        fail_msg("%s", error.text);
    forget_graphs(&f);
    const uint64_t during = alive();
    uint32_t told = 0;
    uint64_t failed_before = failures() - 1;
    const uint64_t stride = test_device_slowness() > 1 ? 3 : 1;
    for (uint64_t call = 1; failures() != failed_before; call += stride) {
        if (call > CALLS_MAX)
            fail_msg("%s: after %u calls one fails still", control, CALLS_MAX);
        memset(&error, 0, sizeof error);
        forget_graphs(&f);
        failed_before = failures();
        fail_call(call);
        const rt_status status = run(&f, &got, &error);
        fail_call(0);
        told += status != RT_OK;
        if (status && strncmp(error.text, "cuda:0: ", 8) != 0)
            fail_msg("%s %u: \"%s\"", control, (unsigned)call, error.text);
        if (!status) // a capture that failed is none of the device's business
            assert_memory_equal(&got, &want, sizeof want);
        // Told, and over: nothing of it is left in either thread.
        on_rows_thread(&f, read_rows);
        rt_error second = {0};
        if (f.device.ops->finish(f.device.state, &second))
            fail_msg("%s %u: told as \"%s\", and again as \"%s\"", control, (unsigned)call,
                     error.text, second.text);
        assert_int_equal(alive(), during);
        if (run(&f, &got, &error))
            fail_msg("%s %u: afterwards: %s", control, (unsigned)call, error.text);
        assert_memory_equal(&got, &want, sizeof want);
    }
    teardown(&f);
    assert_int_equal(alive(), before);
    return told;
}

static void every_failure_is_told_once(void **state)
{
    (void)state;
    assert_true(fail_each_call("cuda_cpu_fail_after") > 30);
}

static void so_is_one_that_passes(void **state)
{
    (void)state;
    assert_true(fail_each_call("cuda_cpu_fail_once") > 30);
}

TEST_MAIN(TEST_SLOW(every_failure_is_told_once, 120), TEST_SLOW(so_is_one_that_passes, 120))
