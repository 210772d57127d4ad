#include "runtime/stream/rt_batch.h"

#include <math.h>
#include <string.h>

void rt_batch_init(rt_batch *batch, uint32_t dense_count)
{
    memset(batch, 0, sizeof *batch);
    batch->dense_count = dense_count;
    batch->label_count = 1;
}

void rt_batch_fini(rt_batch *batch)
{
    rt_free(batch->labels);
    rt_free(batch->weights);
    rt_free(batch->dense);
    rt_free(batch->read);
    rt_free(batch->key_offsets);
    rt_free(batch->keys);
    rt_free(batch->bag_offsets);
    rt_free(batch->lookups);
    rt_free(batch->fold_slots);
    rt_batch_init(batch, batch->dense_count);
}

void rt_batch_clear(rt_batch *batch)
{
    batch->sample_count = 0;
    batch->key_count = 0;
    batch->has_gaps = false;
    batch->learning = (rt_batch_learning){0};
    batch->tables = NULL;
    batch->lookup_count = 0;
}

void rt_batch_begin(rt_batch *batch, uint32_t label_count, bool is_weighted)
{
    rt_batch_clear(batch);
    if (label_count != batch->label_count)
        batch->sample_capacity = 0; // labels take another size
    batch->label_count = label_count;
    batch->is_weighted = is_weighted;
}

rt_status rt_batch_reserve(rt_batch *batch, uint32_t sample_count, uint64_t key_count)
{
    const size_t label_row = batch->label_count * sizeof(float);
    const uint64_t dense_row = rt_max_u64(batch->dense_count, 1);
    if (sample_count > batch->sample_capacity || !batch->key_offsets) {
        uint32_t labels_capacity = batch->sample_capacity;
        uint32_t dense_capacity = batch->sample_capacity;
        uint32_t read_capacity = batch->sample_capacity;
        uint32_t weights_capacity = batch->sample_capacity;
        uint32_t offsets_capacity = batch->sample_capacity ? batch->sample_capacity + 1 : 0;
        uint64_t want = rt_max_u64(sample_count, 16);
        if (rt_grow(&batch->labels, &labels_capacity, want, label_row) ||
            rt_grow(&batch->weights, &weights_capacity, want, label_row) ||
            rt_grow(&batch->dense, &dense_capacity, want, dense_row * sizeof(float)) ||
            rt_grow(&batch->read, &read_capacity, want, dense_row * sizeof(double)) ||
            rt_grow(&batch->key_offsets, &offsets_capacity, want + 1, sizeof(uint32_t)))
            return RT_NO_MEMORY;
        uint64_t least = rt_min_u64(labels_capacity, dense_capacity);
        least = rt_min_u64(least, weights_capacity);
        least = rt_min_u64(least, read_capacity);
        batch->sample_capacity = (uint32_t)rt_min_u64(least, offsets_capacity - 1);
    }
    return rt_grow(&batch->keys, &batch->key_capacity, key_count, sizeof(uint64_t));
}

// One sample more, but for its dense features.
static rt_status append(rt_batch *batch, float label, const uint64_t *keys, uint32_t key_count)
{
    if (batch->sample_count == batch->sample_capacity ||
        (uint64_t)batch->key_count + key_count > batch->key_capacity) {
        rt_status status = rt_batch_reserve(batch, batch->sample_count + 1,
                                            (uint64_t)batch->key_count + key_count);
        if (status)
            return status;
    }
    uint32_t i = batch->sample_count++;
    for (size_t at = (size_t)i * batch->label_count; at < (i + (size_t)1) * batch->label_count;
         at++) {
        batch->labels[at] = label;
        batch->weights[at] = 1;
    }
    if (key_count)
        memcpy(batch->keys + batch->key_count, keys, key_count * sizeof(uint64_t));
    batch->key_offsets[i] = batch->key_count;
    batch->key_count += key_count;
    batch->key_offsets[i + 1] = batch->key_count;
    return RT_OK;
}

rt_status rt_batch_append(rt_batch *batch, float label, const float *dense, const uint64_t *keys,
                          uint32_t key_count)
{
    const size_t first = (size_t)batch->sample_count * batch->dense_count;
    const rt_status status = append(batch, label, keys, key_count);
    for (uint32_t k = 0; !status && k < batch->dense_count; k++) {
        batch->dense[first + k] = dense[k];
        batch->read[first + k] = (double)dense[k];
    }
    return status;
}

rt_status rt_batch_append_read(rt_batch *batch, float label, const double *read,
                               const uint64_t *keys, uint32_t key_count)
{
    const uint32_t i = batch->sample_count;
    const rt_status status = append(batch, label, keys, key_count);
    if (status || batch->dense_count == 0)
        return status;
    memcpy(batch->read + (size_t)i * batch->dense_count, read, batch->dense_count * sizeof *read);
    rt_batch_round(batch, i);
    return RT_OK;
}

void rt_batch_set_labels(rt_batch *batch, uint32_t i, const float *labels, float weight)
{
    const size_t first = (size_t)i * batch->label_count;
    for (uint32_t l = 0; l < batch->label_count; l++) {
        const bool is_there = !isnan(labels[l]);
        batch->weights[first + l] = is_there ? weight : 0;
        batch->labels[first + l] = is_there ? labels[l] * weight : 0;
    }
}

void rt_batch_move_lookups(rt_batch *batch, uint32_t field_count, const uint32_t *places)
{
    const size_t bag_count = (size_t)batch->sample_count * field_count;
    uint32_t kept = 0, at = 0;
    for (size_t bag = 0; bag < bag_count; bag++) {
        const uint32_t end = batch->bag_offsets[bag + 1];
        batch->bag_offsets[bag] = kept;
        for (; at < end; at++)
            if (places[batch->lookups[at]] != RT_BATCH_GONE)
                batch->lookups[kept++] = places[batch->lookups[at]];
    }
    batch->bag_offsets[bag_count] = kept;
    batch->lookup_count = kept;
}
