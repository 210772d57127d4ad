// `lanyard eval`: a saved model, or a checkpoint, on other rows; log loss and AUC without training.
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/cli_source.h"
#include "edge_worker/model/ew_model.h"
#include "runtime/numbers/rt_negatives.h"
#include "runtime/rt_hash.h"
#include "runtime/stream/rt_scale.h"
#include "runtime/rt_json.h"
#include "runtime/metrics/rt_meter.h"

#define BATCH_SAMPLES 1024u

typedef struct {
    const rt_config *config;
    cli_source source;
    rt_stream_config input; // the model's, but for negatives_keep: all samples are judged
    rt_stream *stream;
    const rt_schema *schema;
    rt_batch batch;
    rt_scale *scale; // NULL: the model was trained on dense features as they are
    ps_table *table;
    ew_device device;
    bool device_open;
    ew_model *model;
    float *slab;       // one row per look-up of a batch
    uint32_t *numbers; // 0, 1, 2...: every look-up is a row of its own
    uint32_t *bag_offsets;
    rt_meter *meter;
    float predicted[BATCH_SAMPLES];
    FILE *predictions; // one a line; NULL: not wanted
    uint64_t unknown_keys, lookups;
} evaluation;

static rt_status load_scale(evaluation *e, rt_error *error)
{
    rt_tensors *tensors;
    rt_status status = cli_source_scale(&e->source, e->schema->dense_count, &tensors, error);
    if (status || !tensors)
        return status;
    status = rt_scale_open(tensors, e->schema->dense_count, &e->scale, error);
    if (status)
        rt_fail_in(error, "%s/scale.bin", e->source.folder);
    rt_tensors_close(tensors);
    return status;
}

static rt_status load_model(evaluation *e, rt_error *error)
{
    char path[RT_PATH_MAX + 64];
    const rt_config *config = e->config;
    rt_tensors *dense;
    uint32_t lookups = BATCH_SAMPLES * e->schema->keys_per_sample_max;
    ew_model_config model = {.model = config->model,
                             .optimizer = config->optimizer_dense,
                             .seed = config->seed,
                             .dense_count = e->schema->dense_count,
                             .field_count = e->schema->field_count,
                             .sample_count_max = BATCH_SAMPLES,
                             .lookup_count_max = lookups,
                             .row_count_max = lookups};
    rt_status status = ew_model_create(&model, &e->device, &e->model, error);
    snprintf(path, sizeof path, "%s/dense.bin", e->source.folder);
    if (!status)
        status = rt_tensors_open(path, &dense, error);
    if (status)
        return status;
    status = ew_model_load(e->model, dense, error);
    if (status)
        rt_fail_in(error, "%s", path);
    rt_tensors_close(dense);
    return status ? status
                  : cli_source_rows(&e->source, CLI_ALL_SHARDS, config->model.embedding_dim,
                                    e->table, NULL, error);
}

static rt_status allocate(evaluation *e, rt_error *error)
{
    uint32_t lookups = BATCH_SAMPLES * e->schema->keys_per_sample_max;
    ps_table_config table = {e->config->model.embedding_dim, e->config->ps_memory_bytes_max};
    e->slab = rt_alloc((size_t)lookups * e->config->model.embedding_dim, sizeof *e->slab);
    e->numbers = rt_alloc(lookups, sizeof *e->numbers);
    e->bag_offsets = rt_alloc((size_t)BATCH_SAMPLES * e->schema->field_count + 1, sizeof(uint32_t));
    if (!e->slab || !e->numbers || !e->bag_offsets || rt_meter_create(&e->meter) ||
        ps_table_create(&table, &e->table))
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    for (uint32_t i = 0; i < lookups; i++)
        e->numbers[i] = i;
    return RT_OK;
}

// A key that the model does not know has the value that training would start from.
static void fetch_rows(evaluation *e)
{
    uint32_t dim = e->config->model.embedding_dim;
    for (uint32_t i = 0; i < e->batch.key_count; i++) {
        uint64_t key = e->batch.keys[i];
        float *row = e->slab + (size_t)i * dim;
        const ps_entry *entry = ps_table_find(e->table, key);
        if (entry)
            memcpy(row, ps_table_row(e->table, entry), dim * sizeof *row);
        else
            rt_row_init(key, e->config->seed, (float)e->config->model.init_scale, dim, row);
        e->unknown_keys += !entry;
    }
    e->lookups += e->batch.key_count;
}

static void set_bags(evaluation *e)
{
    uint32_t fields = e->schema->field_count, bag = 0;
    for (uint32_t i = 0; i < e->batch.sample_count; i++) {
        uint32_t at = e->batch.key_offsets[i], end = e->batch.key_offsets[i + 1];
        for (uint32_t f = 0; f < fields; f++) {
            e->bag_offsets[bag++] = at;
            while (at < end && rt_key_field(e->batch.keys[at]) == f)
                at++;
        }
    }
    e->bag_offsets[bag] = e->batch.key_count;
}

static rt_status evaluate_batch(evaluation *e, rt_error *error)
{
    ew_step_result result;
    if (e->scale)
        rt_scale_apply(e->scale, &e->batch);
    fetch_rows(e);
    set_bags(e);
    ew_micro_batch batch = {.sample_count = e->batch.sample_count,
                            .lookup_count = e->batch.key_count,
                            .row_count = e->batch.key_count,
                            .labels = e->batch.labels,
                            .dense = e->batch.dense,
                            .lookup_rows = e->numbers,
                            .bag_offsets = e->bag_offsets,
                            .row_slots = e->numbers,
                            .slab = e->slab,
                            .row_stride = e->config->model.embedding_dim};
    rt_status status = ew_model_predict(e->model, &batch, &result, error);
    if (status)
        return status;
    rt_negatives_correct(result.predictions, e->batch.sample_count,
                         e->config->stream.negatives_keep, e->predicted);
    if (e->batch.is_weighted)
        rt_meter_add_weighted(e->meter, e->predicted, e->batch.labels, e->batch.weights, 1,
                              e->batch.sample_count);
    else
        rt_meter_add(e->meter, e->predicted, e->batch.labels, e->batch.sample_count);
    for (uint32_t i = 0; e->predictions && i < e->batch.sample_count; i++)
        fprintf(e->predictions, "%.9g\n", (double)e->predicted[i]);
    return RT_OK;
}

static void print_result(const evaluation *e, bool json)
{
    rt_quality quality = rt_meter_total(e->meter);
    double unknown = e->lookups ? (double)e->unknown_keys / (double)e->lookups : 0;
    if (!json) {
        printf("%" PRIu64 " samples: log loss %.4f, AUC %.4f, calibration %.3f, "
               "%.1f%% of look-ups are unknown keys\n",
               quality.sample_count, quality.log_loss, quality.auc, quality.calibration,
               100 * unknown);
        if (e->scale && rt_scale_clipped(e->scale))
            printf("%" PRIu64 " dense values lay beyond %g deviations and were clipped to that\n",
                   rt_scale_clipped(e->scale), (double)RT_SCALE_LIMIT);
        return;
    }
    rt_json out;
    rt_json_init(&out, 2);
    rt_json_begin_object(&out, NULL);
    rt_json_u64(&out, "samples", quality.sample_count);
    rt_json_double(&out, "logloss", quality.log_loss);
    rt_json_double(&out, "auc", quality.auc);
    rt_json_double(&out, "calibration", quality.calibration);
    rt_json_double(&out, "unknown_lookups", unknown);
    rt_json_u64(&out, "dense_clipped", e->scale ? rt_scale_clipped(e->scale) : 0);
    rt_json_end_object(&out);
    const char *text = rt_json_text(&out, NULL);
    puts(text ? text : "{}");
    rt_json_fini(&out);
}

static rt_status open_input(evaluation *e, rt_error *error)
{
    e->input = e->config->stream;
    e->input.negatives_keep = 1;
    return rt_stream_open(&e->input, e->config->seed, &e->stream, error);
}

static rt_status evaluate(evaluation *e, rt_error *error)
{
    if (e->config->stream.format == RT_FORMAT_SYNTHETIC && e->config->stream.samples_max == 0)
        return rt_fail(error, RT_CONFIG,
                       "the generated stream has no end: set stream.samples_max to the number of "
                       "samples to evaluate");
    const ew_device_wish wish = {.name = "cpu", .threads = e->config->compute.threads};
    rt_status status = ew_device_open_as(&wish, &e->device, error);
    e->device_open = status == RT_OK;
    if (!status)
        status = open_input(e, error);
    if (status)
        return status;
    e->schema = rt_stream_schema(e->stream);
    rt_batch_init(&e->batch, e->schema->dense_count);
    status = allocate(e, error);
    if (!status && rt_stream_is_weighted(&e->input))
        rt_meter_weigh(e->meter);
    if (!status)
        status = cli_source_check(&e->source, error);
    if (!status)
        status = load_scale(e, error);
    if (!status)
        status = load_model(e, error);
    while (!status) {
        status = rt_stream_read(e->stream, &e->batch, BATCH_SAMPLES, error);
        if (!status)
            status = evaluate_batch(e, error);
    }
    return status == RT_END ? RT_OK : status;
}

static rt_status open_predictions(evaluation *e, const char *path, rt_error *error)
{
    if (!path)
        return RT_OK;
    e->predictions = fopen(path, "we");
    return e->predictions ? RT_OK
                          : rt_fail(error, RT_IO, "cannot write %s: %s", path, strerror(errno));
}

static rt_status close_predictions(evaluation *e, const char *path, rt_error *error)
{
    if (!e->predictions)
        return RT_OK;
    const bool failed = ferror(e->predictions);
    if (fclose(e->predictions) != 0 || failed)
        return rt_fail(error, RT_IO, "cannot write %s: %s", path, strerror(errno));
    return RT_OK;
}

int cli_eval(int argc, char **argv)
{
    const char *directory = NULL, *predictions = NULL, *sets[CLI_SETS_MAX];
    uint32_t set_count;
    bool json = false;
    rt_config config;
    rt_error error = {0};
    evaluation e = {.config = &config};
    const cli_option options[] = {{"json", NULL, &json}, {"predictions", &predictions, NULL}};
    if (!cli_parse(argc, argv, options, RT_COUNT_OF(options), &directory, sets, &set_count))
        return CLI_USAGE;
    if (!directory) {
        fprintf(stderr, "lanyard eval: which DIR? The folder model/ of a run, or a checkpoint\n");
        return CLI_USAGE;
    }
    int code = cli_source_open(directory, sets, set_count, &config, &e.source);
    if (code != CLI_OK)
        return code;
    rt_status status = open_predictions(&e, predictions, &error);
    if (!status)
        status = evaluate(&e, &error);
    const rt_status closed = close_predictions(&e, predictions, status ? NULL : &error);
    status = status ? status : closed;
    if (!status)
        print_result(&e, json);
    rt_stream_close(e.stream);
    rt_batch_fini(&e.batch);
    rt_scale_destroy(e.scale);
    ew_model_destroy(e.model);
    if (e.device_open)
        ew_device_close(&e.device);
    ps_table_destroy(e.table);
    rt_meter_destroy(e.meter);
    rt_free(e.slab);
    rt_free(e.numbers);
    rt_free(e.bag_offsets);
    rt_config_fini(&config);
    return status ? cli_fail(&error) : CLI_OK;
}
