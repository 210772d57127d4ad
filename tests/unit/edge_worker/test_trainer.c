// A trainer and the dense exchange: the end of one whose gradients a thread still adds up, and the
// way of gradients between a device and the host.
#include "edge_worker/ew_trainer.h"

#include <stdatomic.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "edge_worker/device/ew_cuda.h"
#include "runtime/config/rt_models.h"
#include "runtime/config/rt_optimizers.h"
#include "tests/support/devices.h"
#include "tests/support/test.h"

// A collective that is in the middle of a sum until it is stopped.
static atomic_uint additions;

static rt_status create(const ew_collective_config *config, void **state_p, rt_error *error)
{
    static ew_collective_config kept;
    (void)error;
    kept = *config;
    *state_p = &kept;
    return RT_OK;
}

static void destroy(void *state, bool is_complete)
{
    (void)state, (void)is_complete;
}

static rt_status reduce(void *state, float *values, uint32_t count, rt_error *error)
{
    const ew_collective_config *config = state;
    while (!__atomic_load_n(config->stop, __ATOMIC_ACQUIRE)) {
        for (uint32_t i = 0; i < count; i++)
            values[i] += 1;
        atomic_fetch_add(&additions, 1);
        usleep(100);
    }
    return rt_fail(error, RT_STOPPED, "stopped");
}

static rt_status reduce_host(void *state, float *value, rt_error *error)
{
    return reduce(state, value, 1, error);
}

static const ew_collective_ops slow = {.name = "mpi",
                                       .create = create,
                                       .destroy = destroy,
                                       .reduce = reduce,
                                       .reduce_host = reduce_host};

// Says what shard 0 would: that the only worker has joined.
static rt_status answer(void *context, uint32_t shard, rt_message *message)
{
    ew_exchange *exchange = *(ew_exchange **)context;
    rt_error error;
    (void)shard;
    rt_message_header(message)->type = RT_MESSAGE_DENSE_JOINED;
    rt_status status = ew_exchange_receive(exchange, message, &error);
    rt_message_release(message);
    return status;
}

static void await_additions(uint32_t more)
{
    const uint32_t wanted = atomic_load(&additions) + more;
    while (atomic_load(&additions) < wanted) // a case has a time limit
        usleep(100);
}

static ew_model *make_model(const ew_device *device)
{
    const ew_model_config config = {
        .model = {.kind = RT_MODEL_WDL, .embedding_dim = 4, .mlp_layer_count = 1, .mlp = {8}},
        .optimizer = {.kind = RT_OPTIMIZER_SGD, .learning_rate = 0.1f},
        .dense_count = 1,
        .field_count = 1,
        .sample_count_max = 4,
        .lookup_count_max = 4,
        .row_count_max = 4};
    ew_model *model;
    assert_int_equal(ew_model_create(&config, device, &model, NULL), RT_OK);
    return model;
}

static void gradients_stay_for_a_sum_under_way(void **state)
{
    (void)state;
    rt_error error = {0};
    ew_device device;
    ew_trainer *trainer;
    ew_exchange *exchange;
    assert_int_equal(
        ew_cuda_open(test_plugin_path(), &(ew_device_wish){.name = "cuda:0"}, &device, &error),
        RT_OK);
    ew_model *model = make_model(&device);
    const int wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    const ew_trainer_config config = {.device = &device,
                                      .model = model,
                                      .slot_count = 4,
                                      .row_stride = 16,
                                      .dim = 4,
                                      .row_count_max = 4,
                                      .wake_fd = wake_fd};
    assert_int_equal(ew_trainer_create(&config, &trainer, &error), RT_OK);
    ew_exchange_config sums = {.collective = RT_COLLECTIVE_MPI,
                               .worker_count = 1,
                               .shard_count = 1,
                               .timeout_s = 50,
                               .wake_fd = wake_fd,
                               .send = answer,
                               .send_context = &exchange,
                               .mpi = &slow};
    sums.gradients = ew_trainer_dense_gradients(trainer, &sums.count);
    assert_int_equal(ew_exchange_create(&sums, &exchange, &error), RT_OK);
    ew_trainer_attach(trainer, exchange);
    assert_int_equal(ew_exchange_join(exchange, &error), RT_OK);
    while (ew_exchange_ready(exchange, &error) == RT_AGAIN)
        usleep(100);
    ew_exchange_begin(exchange, 1, 4096, 1);
    ew_exchange_trained(exchange);
    await_additions(1);
    ew_trainer_stop(trainer);
    await_additions(10); // into memory that is there
    ew_exchange_destroy(exchange, false);
    assert_true(sums.gradients[0] == (float)atomic_load(&additions));
    ew_trainer_destroy(trainer);
    ew_model_destroy(model);
    ew_device_close(&device);
    close(wake_fd);
}

// What a worker's slice of two samples becomes of the dense part; *straight: bytes of gradients
// that went between host and device without a detour, on a device with memory of its own.
static void train_once(ew_device *device, float *values, uint64_t *straight)
{
    static const float labels[] = {1, 0}, dense[] = {0.5f, -2};
    static const uint32_t rows[] = {0, 1}, slots[] = {3, 1};
    static const uint8_t modes[] = {DP_MODE_OWN, DP_MODE_OWN};
    const dp_slice_view slice = {.counts = {.iteration = 1,
                                            .batch_samples = 2,
                                            .step = 1,
                                            .trained = 2,
                                            .sample_count = 2,
                                            .lookup_count = 2,
                                            .row_count = 2},
                                 .labels = labels,
                                 .dense = dense,
                                 .lookup_rows = rows,
                                 .row_slots = slots,
                                 .row_modes = modes};
    void (*watch)(const void *, size_t);
    void (*watched)(uint64_t *, uint64_t *);
    uint64_t others;
    uint32_t count;
    const ew_trained *trained;
    ew_trainer *trainer;
    rt_error error = {0};
    ew_model *model = make_model(device);
    const ew_trainer_config config = {.device = device,
                                      .model = model,
                                      .row_optimizer = {.kind = RT_OPTIMIZER_SGD},
                                      .slab = device->ops->alloc(device->state, 4 * 16),
                                      .slot_count = 4,
                                      .row_stride = 16,
                                      .dim = 4,
                                      .row_count_max = 4,
                                      .wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)};
    test_plugin_function("cuda_cpu_watch_copies", &watch);
    test_plugin_function("cuda_cpu_watched_copies", &watched);
    assert_non_null(config.slab);
    assert_int_equal(ew_trainer_create(&config, &trainer, &error), RT_OK);
    const float *gradients = ew_trainer_dense_gradients(trainer, &count);
    watch(gradients, count * sizeof *gradients);
    ew_trainer_train(trainer, &slice);
    while (ew_trainer_result(trainer, &trained) == RT_AGAIN)
        usleep(100);
    if (trained->status)
        fail_msg("%s", trained->error.text);
    assert_true(gradients[count - 1] == 0); // the verdict
    ew_trainer_rows(trainer, &slice, true);
    while (ew_trainer_result(trainer, &trained) == RT_AGAIN)
        usleep(100);
    ew_trainer_dense(trainer, 1, true);
    assert_int_equal(ew_trainer_weights.read(trainer, values, NULL, &error), RT_OK);
    watched(straight, &others);
    ew_trainer_destroy(trainer);
    ew_model_destroy(model);
    device->ops->free(device->state, config.slab);
    close(config.wake_fd);
}

static void dense_gradients_make_no_detour(void **state)
{
    float values[2][64] = {{0}};
    uint64_t straight[2];
    uint32_t count;
    (void)state;
    for (uint32_t i = 0; i < 2; i++) { // the CPU, which copies nothing, and a device
        ew_device device;
        rt_error error = {0};
        if (test_device_open(i, &device, &error))
            fail_msg("%s", error.text);
        ew_model *model = make_model(&device);
        (void)ew_model_dense(model, EW_VALUES, &count);
        ew_model_destroy(model);
        assert_true(count > 0 && count <= RT_COUNT_OF(values[i]));
        train_once(&device, values[i], &straight[i]);
        ew_device_close(&device);
    }
    assert_int_equal(straight[0], 0);
    assert_int_equal(straight[1], 2 * count * sizeof(float)); // to the host, and the sum back
    for (uint32_t k = 0; k < count; k++)                      // sums in another order
        test_close(values[1][k], values[0][k], 1e-6, 1, "dense parameter");
}

TEST_MAIN(TEST(dense_gradients_make_no_detour), TEST(gradients_stay_for_a_sum_under_way))
