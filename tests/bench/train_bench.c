// train_bench - one model trained in this process on a stream, without cache, planner or network.
//
//   train_bench [CONFIG [KEY=VALUE ...]]
//
// Without arguments: the first 100,000 samples of configs/demo.json.
// Every distinct key has a slot of its own. Batches are those of a run.
// Prints one JSON line: metrics of each batch before training on it, and samples per second of
// CPU time for the step alone (ew_model_step, dense and row optimizers). The counterpart of
// train_reference.py.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "edge_worker/model/ew_model.h"
#include "runtime/rt_hash.h"
#include "runtime/metrics/rt_meter.h"
#include "runtime/stream/rt_base_rate.h"
#include "runtime/stream/rt_scale.h"
#include "runtime/stream/rt_stream.h"

typedef struct {
    rt_config config;
    rt_stream *stream;
    rt_scale *scale;
    rt_batch batch;
    ew_device device;
    ew_model *model;
    rt_base_rate rate;
    rt_repeats *repeats;
    rt_meter *meter;
    // key -> slot, open addressing; slots are given in the order of first use
    uint64_t *keys;
    uint32_t *slot_of, *row_of_slot; // row_of_slot: 1 + row in this batch
    uint64_t table_mask;
    uint32_t slot_count, slot_count_max;
    float *slab;
    uint32_t row_stride;
    uint32_t *lookup_rows, *bag_offsets, *row_slots;
    bool bags;
    uint64_t step_ns, samples, batches;
} trainer;

static void check(rt_status status, const rt_error *error)
{
    if (status == RT_OK)
        return;
    fprintf(stderr, "train_bench: %s: %s\n", rt_status_text(status), error->text);
    exit(EXIT_FAILURE);
}

static void *allocate(size_t count, size_t size)
{
    rt_error error = {.text = "out of memory"};
    void *block = rt_alloc(count, size);
    check(block ? RT_OK : RT_NO_MEMORY, &error);
    return block;
}

static uint64_t cpu_time_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

static uint32_t find_slot(trainer *t, uint64_t key)
{
    const rt_config *config = &t->config;
    uint64_t at = rt_mix(key) & t->table_mask;
    while (t->slot_of[at] && t->keys[at] != key)
        at = (at + 1) & t->table_mask;
    if (!t->slot_of[at]) {
        rt_assert(t->slot_count < t->slot_count_max);
        t->keys[at] = key;
        t->device.ops->rows_init(
            t->device.state, &config->optimizer_rows, config->model.embedding_dim, config->seed,
            (float)config->model.init_scale, &key, &t->slot_count, 1, t->slab, t->row_stride);
        t->slot_of[at] = ++t->slot_count;
    }
    return t->slot_of[at] - 1;
}

static ew_micro_batch prepare(trainer *t)
{
    const rt_batch *batch = &t->batch;
    uint32_t field_count = rt_stream_schema(t->stream)->field_count, row_count = 0;
    memset(t->bag_offsets, 0, (batch->sample_count * field_count + 1) * sizeof(uint32_t));
    for (uint32_t i = 0; i < batch->sample_count; i++)
        for (uint32_t k = batch->key_offsets[i]; k < batch->key_offsets[i + 1]; k++) {
            uint32_t slot = find_slot(t, batch->keys[k]);
            if (!t->row_of_slot[slot]) {
                t->row_slots[row_count] = slot;
                t->row_of_slot[slot] = ++row_count;
            }
            t->lookup_rows[k] = t->row_of_slot[slot] - 1;
            t->bag_offsets[i * field_count + rt_key_field(batch->keys[k]) + 1] = k + 1;
        }
    for (uint32_t r = 0; r < row_count; r++)
        t->row_of_slot[t->row_slots[r]] = 0;
    return (ew_micro_batch){.sample_count = batch->sample_count,
                            .lookup_count = batch->key_count,
                            .row_count = row_count,
                            .labels = batch->labels,
                            .dense = batch->dense,
                            .lookup_rows = t->lookup_rows,
                            .bag_offsets = t->bags ? t->bag_offsets : NULL,
                            .row_slots = t->row_slots,
                            .slab = t->slab,
                            .row_stride = t->row_stride,
                            .scale =
                                1 / (float)rt_config_batch(&t->config, t->config.worker_count)};
}

// Where the optimizers' steps of the next batch stand.
static uint64_t place_of(const trainer *t)
{
    const uint32_t full = rt_config_batch(&t->config, t->config.worker_count);
    const uint64_t samples = t->samples + t->batch.sample_count;
    return rt_optimizer_place((uint32_t)((samples + full - 1) / full), t->batch.sample_count, full);
}

static void train_batch(trainer *t)
{
    ew_step_result result;
    rt_error error;
    const uint64_t place = place_of(t);
    ew_micro_batch batch = prepare(t);
    rt_base_rate_note(&t->rate, &t->batch, 0);
    batch.log_odds = t->batch.learning.log_odds[0];
    if (t->config.stream.dense_scaling == RT_SCALING_STANDARD) {
        rt_scale_learn(t->scale, &t->batch);
        rt_scale_apply(t->scale, &t->batch);
    }
    check(ew_model_check(t->model, &batch, t->slot_count, &error), &error);
    uint64_t start = cpu_time_ns();
    check(ew_model_step(t->model, &batch, NULL, NULL, &result, &error), &error);
    if (!t->batch.learning.is_untrained) {
        ew_model_dense_step(t->model, place);
        t->device.ops->rows_step(t->device.state, &t->config.optimizer_rows,
                                 t->config.model.embedding_dim, place, t->slab, t->row_stride,
                                 batch.row_slots, NULL, batch.row_count, result.row_gradients);
    }
    t->step_ns += cpu_time_ns() - start;
    t->samples += batch.sample_count;
    t->batches++;
    rt_meter_add(t->meter, result.predictions, batch.labels, batch.sample_count);
}

static void setup(trainer *t, int argc, char **argv)
{
    rt_error error = {0};
    rt_config *config = &t->config;
    check(rt_config_init(config), &error);
    check(rt_config_load(config, argv[1], &error), &error);
    for (int i = 2; i < argc; i++)
        check(rt_config_set(config, argv[i], &error), &error);
    check(rt_stream_open(&config->stream, config->seed, &t->stream, &error), &error);
    const rt_schema *schema = rt_stream_schema(t->stream);
    const uint32_t samples = rt_config_batch(config, config->worker_count);
    config->optimizer_rows.batch_samples = config->optimizer_dense.batch_samples = samples;
    uint32_t lookups = samples * schema->keys_per_sample_max;
    uint32_t dim = config->model.embedding_dim;
    uint64_t key_count, table_size = 1024;
    check(rt_stream_count_keys(&config->stream, config->seed, &key_count, &error), &error);
    while (table_size < 2 * key_count)
        table_size *= 2;
    t->table_mask = table_size - 1;
    t->keys = allocate(table_size, sizeof *t->keys);
    t->slot_of = allocate(table_size, sizeof *t->slot_of);
    t->slot_count_max = (uint32_t)key_count;
    t->row_of_slot = allocate(key_count, sizeof *t->row_of_slot);
    t->row_stride = dim + rt_optimizer_state_floats(&config->optimizer_rows, dim);
    t->row_stride = (t->row_stride + 15) / 16 * 16;
    t->slab = allocate(key_count * t->row_stride, sizeof *t->slab);
    t->lookup_rows = allocate(lookups, sizeof *t->lookup_rows);
    t->row_slots = allocate(lookups, sizeof *t->row_slots);
    t->bag_offsets = allocate(samples * schema->field_count + 1, sizeof *t->bag_offsets);
    t->bags = schema->keys_per_sample_max != schema->field_count;
    rt_batch_init(&t->batch, schema->dense_count);
    rt_base_rate_init(&t->rate, config, false);
    if (rt_config_batch_grows(config)) {
        check(rt_repeats_create(samples, schema->keys_per_sample_max, &t->repeats), &error);
        rt_stream_end_batches(t->stream, t->repeats);
    }
    ew_model_config model = {.model = config->model,
                             .optimizer = config->optimizer_dense,
                             .seed = config->seed,
                             .dense_count = schema->dense_count,
                             .field_count = schema->field_count,
                             .sample_count_max = samples,
                             .lookup_count_max = lookups,
                             .row_count_max = lookups};
    check(ew_device_open("cpu", &t->device, &error), &error);
    check(ew_model_create(&model, &t->device, &t->model, &error), &error);
    check(rt_meter_create(&t->meter), &error);
    check(rt_scale_create(schema->dense_count, samples, &t->scale), &error);
}

static void teardown(trainer *t)
{
    rt_meter_destroy(t->meter);
    ew_model_destroy(t->model);
    ew_device_close(&t->device);
    rt_scale_destroy(t->scale);
    rt_batch_fini(&t->batch);
    rt_stream_close(t->stream);
    rt_repeats_destroy(t->repeats);
    rt_config_fini(&t->config);
    void *blocks[] = {t->keys,        t->slot_of,   t->row_of_slot, t->slab,
                      t->lookup_rows, t->row_slots, t->bag_offsets};
    for (size_t i = 0; i < RT_COUNT_OF(blocks); i++)
        rt_free(blocks[i]);
}

int main(int argc, char **argv)
{
    static trainer t;
    rt_error error;
    rt_status status;
    char *demo[] = {argv[0], "configs/demo.json", "stream.samples_max=100000"};
    setup(&t, argc > 1 ? argc : 3, argc > 1 ? argv : demo);
    do {
        const uint32_t samples = rt_config_batch_after(&t.config, t.config.worker_count, t.samples);
        status = rt_stream_read(t.stream, &t.batch, samples, &error);
        if (!status)
            train_batch(&t);
    } while (!status);
    if (status != RT_END)
        check(status, &error);
    rt_quality total = rt_meter_total(t.meter), last = rt_meter_last_fifth(t.meter);
    printf(
        "{\"device\": \"%s\", \"samples\": %llu, \"batches\": %llu, \"samples_per_cpu_s\": %.0f, \"auc\": %.5f, "
        "\"logloss\": %.5f, \"auc_last_fifth\": %.5f, \"logloss_last_fifth\": %.5f}\n",
        t.device.description, (unsigned long long)t.samples, (unsigned long long)t.batches,
        (double)t.samples / ((double)t.step_ns * 1e-9), total.auc, total.log_loss, last.auc,
        last.log_loss);
    teardown(&t);
    return EXIT_SUCCESS;
}
