// The same stream in batches of one size, and cut at random as a stream that is slow cuts it: with
// every optimizer as much is learnt.
#include <stdlib.h>
#include <string.h>

#include "edge_worker/model/ew_model.h"
#include "runtime/metrics/rt_meter.h"
#include "runtime/rt_hash.h"
#include "runtime/stream/rt_base_rate.h"
#include "runtime/stream/rt_stream.h"
#include "tests/support/test.h"

#define FULL 64u
#define SAMPLES "stream.samples_max=25600"
#define SLOTS 65536u
#define KEYS 64u // of a sample, at most

typedef struct {
    rt_config config;
    rt_stream *stream;
    ew_device device;
    ew_model *model;
    rt_meter *meter;
    rt_base_rate rate;
    rt_batch batch;
    uint64_t samples;
    uint64_t keys[SLOTS]; // of each slot; 0: free
    uint32_t row_of[SLOTS], rows[FULL * KEYS], slots[FULL * KEYS];
    uint32_t stride;
    float *slab;
} learner;

static void must(rt_status status, const rt_error *error)
{
    if (status)
        fail_msg("%s", error->text);
}

static void begin(learner *l, const char *const *sets)
{
    static const char *const all[] = {"model.base_rate=0.3", // known: it is not what is compared
                                      "stream.format=synthetic",
                                      SAMPLES,
                                      "stream.synthetic.scale=0.0005",
                                      "model.embedding_dim=4",
                                      "stream.synthetic.clusters=4",
                                      "model.mlp=[16]",
                                      NULL};
    rt_error error = {0};
    assert_int_equal(rt_config_init(&l->config), RT_OK);
    for (size_t i = 0; all[i]; i++)
        must(rt_config_set(&l->config, all[i], &error), &error);
    for (size_t i = 0; sets[i]; i++)
        must(rt_config_set(&l->config, sets[i], &error), &error);
    rt_config *config = &l->config;
    const uint32_t dim = config->model.embedding_dim;
    config->optimizer_rows.batch_samples = config->optimizer_dense.batch_samples = FULL;
    must(rt_stream_open(&config->stream, 7, &l->stream, &error), &error);
    const rt_schema *schema = rt_stream_schema(l->stream);
    assert_true(schema->keys_per_sample_max <= KEYS);
    assert_int_equal(schema->keys_per_sample_max, schema->field_count);
    l->stride = dim + rt_optimizer_state_floats(&config->optimizer_rows, dim);
    l->slab = calloc((size_t)SLOTS * l->stride, sizeof(float));
    rt_batch_init(&l->batch, schema->dense_count);
    rt_base_rate_init(&l->rate, config, false);
    const ew_model_config model = {.model = config->model,
                                   .optimizer = config->optimizer_dense,
                                   .seed = 7,
                                   .dense_count = schema->dense_count,
                                   .field_count = schema->field_count,
                                   .sample_count_max = FULL,
                                   .lookup_count_max = FULL * KEYS,
                                   .row_count_max = FULL * KEYS};
    must(ew_device_open("cpu", &l->device, &error), &error);
    must(ew_model_create(&model, &l->device, &l->model, &error), &error);
    assert_int_equal(rt_meter_create(&l->meter), RT_OK);
}

static void end(learner *l)
{
    rt_meter_destroy(l->meter);
    ew_model_destroy(l->model);
    ew_device_close(&l->device);
    rt_batch_fini(&l->batch);
    rt_stream_close(l->stream);
    rt_config_fini(&l->config);
    free(l->slab);
    free(l);
}

static uint32_t slot_of(learner *l, uint64_t key)
{
    const rt_config *config = &l->config;
    uint32_t at = (uint32_t)(rt_mix(key) % SLOTS);
    while (l->keys[at] && l->keys[at] != key + 1)
        at = (at + 1) % SLOTS;
    if (!l->keys[at])
        l->device.ops->rows_init(l->device.state, &config->optimizer_rows,
                                 config->model.embedding_dim, 7, 0.01f, &key, &at, 1, l->slab,
                                 l->stride);
    l->keys[at] = key + 1;
    return at;
}

static void learn(learner *l)
{
    rt_error error = {0};
    ew_step_result result;
    uint32_t count = 0;
    for (uint32_t k = 0; k < l->batch.key_count; k++) {
        const uint32_t slot = slot_of(l, l->batch.keys[k]);
        if (!l->row_of[slot]) {
            l->slots[count] = slot;
            l->row_of[slot] = ++count;
        }
        l->rows[k] = l->row_of[slot] - 1;
    }
    for (uint32_t r = 0; r < count; r++)
        l->row_of[l->slots[r]] = 0;
    rt_base_rate_note(&l->rate, &l->batch, 0);
    const ew_micro_batch batch = {.sample_count = l->batch.sample_count,
                                  .lookup_count = l->batch.key_count,
                                  .row_count = count,
                                  .labels = l->batch.labels,
                                  .dense = l->batch.dense,
                                  .lookup_rows = l->rows,
                                  .row_slots = l->slots,
                                  .slab = l->slab,
                                  .row_stride = l->stride,
                                  .scale = 1.0f / FULL,
                                  .log_odds = l->batch.learning.log_odds[0]};
    must(ew_model_step(l->model, &batch, NULL, NULL, &result, &error), &error);
    rt_meter_add(l->meter, result.predictions, batch.labels, batch.sample_count);
    l->samples += batch.sample_count;
    if (l->batch.learning.is_untrained)
        return;
    const uint64_t place =
        rt_optimizer_place((uint32_t)((l->samples + FULL - 1) / FULL), batch.sample_count, FULL);
    ew_model_dense_step(l->model, place);
    l->device.ops->rows_step(l->device.state, &l->config.optimizer_rows,
                             l->config.model.embedding_dim, place, l->slab, l->stride, l->slots,
                             NULL, count, result.row_gradients);
}

// Log loss over the last fifth. cuts: 0: full batches; else what sizes are drawn from.
static double loss_of(const char *const *sets, uint64_t cuts)
{
    learner *l = calloc(1, sizeof *l);
    rt_random random = {cuts};
    rt_error error = {0};
    rt_status status;
    begin(l, sets);
    do {
        const uint32_t samples = cuts ? 1 + rt_random_below(&random, FULL) : FULL;
        status = rt_stream_read(l->stream, &l->batch, samples, &error);
        if (!status)
            learn(l);
    } while (!status);
    assert_int_equal(status, RT_END);
    const double loss = rt_meter_last_fifth(l->meter).log_loss;
    end(l);
    return loss;
}

static void as_much_is_learnt(void **state)
{
    (void)state;
    static const char *const optimizers[][5] = {
        {"optimizer.rows.name=adagrad", "optimizer.dense.name=adagrad"},
        {"optimizer.rows.name=adagrad", "optimizer.rows.l2=0.01", "optimizer.dense.l2=0.01"},
        {"optimizer.rows.name=sgd", "optimizer.dense.name=sgd", "optimizer.rows.learning_rate=0.3",
         "optimizer.dense.learning_rate=0.05"},
        {"optimizer.rows.name=rowwise_adagrad", "optimizer.dense.name=momentum",
         "optimizer.dense.learning_rate=0.01"},
        {"optimizer.rows.name=adam", "optimizer.dense.name=adam",
         "optimizer.rows.learning_rate=0.001", "optimizer.dense.learning_rate=0.001"},
        {"optimizer.rows.name=ftrl", "optimizer.dense.name=adagrad"},
        {"optimizer.rows.clip_norm=0.001", "optimizer.dense.clip_norm=0.1"},
        {"optimizer.dense.warmup_iterations=50"},
    };
    for (size_t i = 0; i < RT_COUNT_OF(optimizers); i++) {
        const double whole = loss_of(optimizers[i], 0), cut = loss_of(optimizers[i], 5);
        if (!(cut < whole + 0.001))
            fail_msg("%s, %s: log loss %.5f in full batches, %.5f in batches cut at random",
                     optimizers[i][0], optimizers[i][1], whole, cut);
    }
}

TEST_MAIN(TEST_SLOW(as_much_is_learnt, 120))
