#include "edge_worker/predict/ew_scorer.h"

#include <string.h>

#include "runtime/config/rt_optimizers.h"
#include "runtime/numbers/rt_negatives.h"
#include "runtime/rt_hash.h"

#define BLOCK_KEYS 64u // looked up at a time: index lines, then rows are on their way meanwhile

struct ew_scorer {
    uint32_t dim, sample_count_max, lookup_count_max;
    uint64_t generation; // whose dense part and scale are here; 0: none yet
    ew_model *model;
    rt_scale *scale;    // a copy, which counts; NULL: dense features stay as they are
    float *slab;        // one row per look-up of a batch
    bool leaves_out;    // keys without a row, as training did (rows.admit)
    uint8_t *has_row;   // by look-up of a batch
    uint64_t *row_keys; // likewise, where fields share tables; else NULL
    uint32_t *numbers;  // 0, 1, 2...: every look-up is a row of its own
    uint32_t *bag_offsets;
    double negatives_keep; // of training; 1: all
    float *corrected;      // sample_count_max; NULL: nothing is
    ew_scorer_counts counts;
};

rt_status ew_scorer_open_device(uint32_t threads, ew_device *device, rt_error *error)
{
    const ew_device_wish wish = {.name = "cpu", .threads = threads, .is_steady = true};
    return ew_device_open_as(&wish, device, error);
}

static rt_status create_model(ew_scorer *scorer, const ew_finished *weights,
                              const ew_device *device, rt_error *error)
{
    const rt_config *config = weights->config;
    ew_model_config model = {.model = config->model,
                             .optimizer = {.kind = RT_OPTIMIZER_SGD},
                             .seed = config->seed,
                             .dense_count = weights->schema.dense_count,
                             .more_labels = weights->schema.label_count - 1,
                             .class_count = weights->schema.class_count,
                             .sample_count_max = scorer->sample_count_max,
                             .lookup_count_max = scorer->lookup_count_max,
                             .row_count_max = scorer->lookup_count_max};
    ew_model_fields(&model, &weights->schema);
    return ew_model_create(&model, device, &scorer->model, error);
}

// False: out of memory.
static bool allocate(ew_scorer *scorer, const rt_schema *schema)
{
    const uint32_t lookups = scorer->lookup_count_max, samples = scorer->sample_count_max;
    const size_t bags = (size_t)samples * schema->field_count;
    const bool corrects = scorer->negatives_keep > 0 && scorer->negatives_keep < 1;
    scorer->slab = rt_alloc((size_t)lookups * scorer->dim, sizeof *scorer->slab);
    scorer->numbers = rt_alloc(lookups, sizeof *scorer->numbers);
    scorer->has_row = rt_alloc(lookups, sizeof *scorer->has_row);
    scorer->bag_offsets = rt_alloc(bags + 1, sizeof *scorer->bag_offsets);
    if (schema->tables.are_shared)
        scorer->row_keys = rt_alloc(lookups, sizeof *scorer->row_keys);
    if (corrects)
        scorer->corrected = rt_alloc(samples, sizeof *scorer->corrected);
    return scorer->slab && scorer->numbers && scorer->has_row && scorer->bag_offsets &&
           (scorer->row_keys || !schema->tables.are_shared) && (scorer->corrected || !corrects);
}

rt_status ew_scorer_create(const ew_finished *weights, const ew_device *device,
                           uint32_t sample_count_max, ew_scorer **scorer_p, rt_error *error)
{
    ew_scorer *scorer = rt_alloc(1, sizeof *scorer);
    if (!scorer)
        return rt_fail(error, RT_NO_MEMORY, "out of memory for predictions");
    scorer->dim = weights->config->model.embedding_dim;
    scorer->sample_count_max = sample_count_max;
    scorer->lookup_count_max = sample_count_max * weights->schema.keys_per_sample_max;
    scorer->leaves_out = rt_rows_are_admitted(&weights->config->rows);
    scorer->negatives_keep = weights->config->stream.negatives_keep;
    if (!allocate(scorer, &weights->schema)) {
        ew_scorer_destroy(scorer);
        return rt_fail(error, RT_NO_MEMORY, "out of memory for predictions");
    }
    for (uint32_t i = 0; i < scorer->lookup_count_max; i++)
        scorer->numbers[i] = i;
    const rt_status status = create_model(scorer, weights, device, error);
    if (status) {
        ew_scorer_destroy(scorer);
        return status;
    }
    *scorer_p = scorer;
    return RT_OK;
}

void ew_scorer_destroy(ew_scorer *scorer)
{
    if (!scorer)
        return;
    ew_model_destroy(scorer->model);
    rt_scale_destroy(scorer->scale);
    rt_free(scorer->has_row);
    rt_free(scorer->row_keys);
    rt_free(scorer->bag_offsets);
    rt_free(scorer->numbers);
    rt_free(scorer->slab);
    rt_free(scorer->corrected);
    rt_free(scorer);
}

// Dense part and scale of weights that are new here.
static rt_status take_dense(ew_scorer *scorer, const ew_finished *weights, rt_error *error)
{
    rt_status status = ew_model_load(scorer->model, weights->dense, error);
    if (status)
        return rt_fail_in(error, "%s", weights->dense_path);
    rt_scale_destroy(scorer->scale);
    scorer->scale = NULL;
    if (weights->scale && rt_scale_create(weights->schema.dense_count, 0, &scorer->scale))
        return rt_fail(error, RT_NO_MEMORY, "out of memory for the scale of the dense features");
    if (scorer->scale)
        rt_scale_copy(weights->scale, scorer->scale);
    scorer->generation = weights->generation;
    return RT_OK;
}

// ---- rows ------------------------------------------------------------------------------------

static uint32_t block_size(uint32_t count, uint32_t from)
{
    return (uint32_t)rt_min_u64(BLOCK_KEYS, count - from);
}

// A key that the model does not know has the value that training would start from; or, with
// rows.admit, it is left out, as is one that names no row (has_row is 0 before). Returns where the
// next row goes.
static float *copy_rows(ew_scorer *scorer, const ew_finished *weights, const uint64_t *keys,
                        const ps_found *found, uint32_t count, uint8_t *has_row, float *to)
{
    const uint32_t dim = scorer->dim;
    const rt_config *config = weights->config;
    for (uint32_t i = 0; i < count; i++) {
        const bool is_known = found[i].entry != NULL, is_none = has_row[i] == 0;
        has_row[i] = (is_known || !scorer->leaves_out) && !is_none;
        scorer->counts.unknown += !is_known && !is_none;
        if (!has_row[i])
            continue;
        if (RT_LIKELY(is_known))
            memcpy(to, found[i].row, dim * sizeof *to);
        else
            rt_row_init(keys[i], config->seed, (float)config->model.init_scale, dim, to);
        to += dim;
    }
    return to;
}

// Reads of pages go side by side, and not one after the other as rows are copied.
static void announce_rows(const ew_finished *weights, const uint64_t *keys, uint32_t count)
{
    if (weights->elsewhere || !ps_table_is_on_disk(weights->rows))
        return;
    for (uint32_t i = 0; i < count; i++) {
        const ps_entry *entry = ps_table_find(weights->rows, keys[i]);
        if (entry)
            ps_table_will_need(weights->rows, entry);
    }
}

// The keys of the rows that a batch's keys name, and whether they name one.
static const uint64_t *row_keys(ew_scorer *scorer, const ew_finished *weights,
                                const rt_batch *batch)
{
    memset(scorer->has_row, 1, batch->key_count);
    if (!scorer->row_keys)
        return batch->keys;
    for (uint32_t i = 0; i < batch->key_count; i++) {
        scorer->row_keys[i] = rt_tables_row_key(&weights->schema.tables, batch->keys[i]);
        scorer->has_row[i] = !rt_tables_is_none(&weights->schema.tables, batch->keys[i]);
    }
    return scorer->row_keys;
}

static void find_rows(const ew_finished *weights, const uint64_t *keys, uint32_t count,
                      ps_found *found)
{
    if (weights->elsewhere)
        weights->elsewhere->find(weights->elsewhere->context, keys, count, found);
    else
        ps_table_find_all(weights->rows, keys, count, found);
}

// Look-ups miss the caches: while one block is copied, rows of the next are loaded, and index lines
// of the one after that. *rows_p: how many there are.
static rt_status fetch_rows(ew_scorer *scorer, const ew_finished *weights, const rt_batch *batch,
                            uint32_t *rows_p, rt_error *error)
{
    ps_found found[2][BLOCK_KEYS];
    const uint32_t count = batch->key_count;
    const ew_rows_elsewhere *elsewhere = weights->elsewhere;
    const uint64_t *keys = row_keys(scorer, weights, batch);
    float *to = scorer->slab;
    rt_status status = RT_OK;
    if (elsewhere)
        status = elsewhere->gather(elsewhere->context, keys, scorer->has_row, count, error);
    if (status)
        return status;
    announce_rows(weights, keys, count);
    if (count > 0)
        find_rows(weights, keys, block_size(count, 0), found[0]);
    for (uint32_t at = 0, turn = 0; at < count; at += BLOCK_KEYS, turn ^= 1) {
        const uint32_t next = at + BLOCK_KEYS, second = next + BLOCK_KEYS;
        if (second < count && !elsewhere)
            ps_table_prefetch(weights->rows, keys + second, block_size(count, second));
        if (next < count)
            find_rows(weights, keys + next, block_size(count, next), found[turn ^ 1]);
        to = copy_rows(scorer, weights, keys + at, found[turn], block_size(count, at),
                       scorer->has_row + at, to);
    }
    scorer->counts.lookups += count;
    *rows_p = (uint32_t)((size_t)(to - scorer->slab) / scorer->dim);
    return RT_OK;
}

// rows: that fetch_rows made. False: one look-up per field, so that bags need not be told.
static bool set_bags(ew_scorer *scorer, const rt_batch *batch, uint32_t fields, uint32_t rows)
{
    uint32_t bag = 0, row = 0;
    if (rows == batch->key_count && batch->key_count == batch->sample_count * fields)
        return false;
    for (uint32_t i = 0; i < batch->sample_count; i++) {
        uint32_t at = batch->key_offsets[i], end = batch->key_offsets[i + 1];
        for (uint32_t f = 0; f < fields; f++) {
            scorer->bag_offsets[bag++] = row;
            for (; at < end && rt_key_field(batch->keys[at]) == f; at++)
                row += scorer->has_row[at];
        }
    }
    scorer->bag_offsets[bag] = rows;
    return true;
}

rt_status ew_scorer_run(ew_scorer *scorer, const ew_finished *weights, rt_batch *batch,
                        const float **probabilities_p, rt_error *error)
{
    ew_step_result result;
    rt_assert(batch->sample_count <= scorer->sample_count_max);
    rt_assert(batch->key_count <= scorer->lookup_count_max);
    rt_status status = RT_OK;
    if (scorer->generation != weights->generation)
        status = take_dense(scorer, weights, error);
    if (status)
        return status;
    if (scorer->scale)
        scorer->counts.dense_clipped += rt_scale_apply(scorer->scale, batch);
    uint32_t rows = 0;
    status = fetch_rows(scorer, weights, batch, &rows, error);
    if (status)
        return status;
    const bool has_bags = set_bags(scorer, batch, weights->schema.field_count, rows);
    const ew_micro_batch micro = {.sample_count = batch->sample_count,
                                  .lookup_count = rows,
                                  .row_count = rows,
                                  .dense = batch->dense,
                                  .lookup_rows = scorer->numbers,
                                  .bag_offsets = has_bags ? scorer->bag_offsets : NULL,
                                  .row_slots = scorer->numbers,
                                  .slab = scorer->slab,
                                  .row_stride = scorer->dim};
    status = ew_model_predict(scorer->model, &micro, &result, error);
    scorer->counts.samples += batch->sample_count;
    if (status)
        return status;
    *probabilities_p = result.predictions;
    if (!scorer->corrected)
        return RT_OK;
    rt_negatives_correct(result.predictions, batch->sample_count, scorer->negatives_keep,
                         scorer->corrected);
    *probabilities_p = scorer->corrected;
    return RT_OK;
}

ew_scorer_counts ew_scorer_counted(const ew_scorer *scorer)
{
    return scorer->counts;
}
