#include "edge_worker/predict/ew_recall.h"

#include <string.h>

#include "edge_worker/predict/ew_scorer.h"
#include "runtime/stream/rt_keyset.h"
#include "runtime/stream/rt_parser.h"

#define SAMPLES_AT_ONCE 256u

typedef struct {
    rt_config config;
    ew_source source;
    rt_keyset keys; // of the samples' rows
    ew_finished weights;
    ew_device device;
    ew_scorer *scorer;
    rt_batch batch; // of the samples that are predicted at once
    bool has_config, has_device;
} recalling;

static void fini(recalling *r)
{
    ew_scorer_destroy(r->scorer);
    if (r->has_device)
        ew_device_close(&r->device);
    ew_finished_close(&r->weights);
    rt_keyset_fini(&r->keys);
    rt_batch_fini(&r->batch);
    if (r->has_config)
        rt_config_fini(&r->config);
}

static rt_status collect_keys(recalling *r, const rt_tables *tables, const rt_batch *batch,
                              uint32_t first)
{
    if (rt_keyset_init(&r->keys))
        return RT_NO_MEMORY;
    const uint32_t from = first < batch->sample_count ? batch->key_offsets[first] : 0;
    for (uint32_t k = from; first < batch->sample_count && k < batch->key_count; k++) {
        const uint64_t key = rt_tables_row_key(tables, batch->keys[k]);
        if (rt_keyset_add(&r->keys, &key, 1))
            return RT_NO_MEMORY;
    }
    return RT_OK;
}

static rt_status open(recalling *r, const char *folder, const rt_batch *batch, uint32_t first,
                      rt_error *error)
{
    rt_schema schema;
    rt_status status = ew_source_open(folder, NULL, 0, false, &r->config, &r->source, error);
    r->has_config = !status;
    if (!status)
        status = rt_parser_read_schema(&r->config.stream, r->config.seed, &schema, error);
    if (status)
        return status;
    if (collect_keys(r, &schema.tables, batch, first))
        return rt_fail(error, RT_NO_MEMORY, "out of memory for the rows of samples");
    r->config.ps_storage = RT_STORAGE_MEMORY;
    r->source.only = &r->keys;
    status = ew_finished_open(&r->source, &r->weights, error);
    if (!status)
        status = ew_device_open("cpu", &r->device, error);
    r->has_device = !status;
    if (!status)
        status = ew_scorer_create(&r->weights, &r->device, SAMPLES_AT_ONCE, &r->scorer, error);
    return status;
}

static rt_status predict_some(recalling *r, const rt_batch *batch, uint32_t first, uint32_t end,
                              size_t bytes, float *predictions, rt_error *error)
{
    const float *found;
    rt_batch_clear(&r->batch);
    for (uint32_t i = first; i < end; i++) {
        const uint32_t at = batch->key_offsets[i];
        if (rt_batch_append_read(&r->batch, 0, batch->read + (size_t)i * batch->dense_count,
                                 batch->keys + at, batch->key_offsets[i + 1] - at))
            return rt_fail(error, RT_NO_MEMORY, "out of memory for samples");
    }
    const rt_status status = ew_scorer_run(r->scorer, &r->weights, &r->batch, &found, error);
    if (!status)
        memcpy(predictions, found, (end - first) * bytes);
    return status;
}

static rt_status predict(recalling *r, const rt_batch *batch, uint32_t first, uint32_t output_count,
                         float *predictions, rt_error *error)
{
    const uint32_t outputs = rt_config_output_count(&r->config.stream);
    if (outputs != output_count || r->weights.schema.dense_count != batch->dense_count)
        return rt_fail(error, RT_CONFIG, "%s: of other labels or dense features", r->source.folder);
    rt_status status = RT_OK;
    for (uint32_t at = first; at < batch->sample_count && !status; at += SAMPLES_AT_ONCE) {
        const uint32_t end =
            (uint32_t)rt_min_u64((uint64_t)at + SAMPLES_AT_ONCE, batch->sample_count);
        status = predict_some(r, batch, at, end, outputs * sizeof(float),
                              predictions + (size_t)(at - first) * outputs, error);
    }
    return status;
}

rt_status ew_recall(const char *folder, const rt_batch *batch, uint32_t first,
                    uint32_t output_count, float *predictions, rt_error *error)
{
    recalling r = {.has_config = false};
    rt_batch_init(&r.batch, batch->dense_count);
    rt_status status = open(&r, folder, batch, first, error);
    if (!status)
        status = predict(&r, batch, first, output_count, predictions, error);
    fini(&r);
    return status;
}
