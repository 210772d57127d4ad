#include "dispatch/planner/dp_recent.h"

#include <string.h>

#include "runtime/rt_hash.h"

void dp_recent_init(dp_recent *recent)
{
    for (uint32_t i = 0; i < DP_RECENT_MAX; i++)
        rt_batch_init(&recent->batches[i], 0);
    recent->count = recent->next = 0;
}

void dp_recent_fini(dp_recent *recent)
{
    for (uint32_t i = 0; i < DP_RECENT_MAX; i++)
        rt_batch_fini(&recent->batches[i]);
}

static void advance(dp_recent *recent)
{
    recent->next = (recent->next + 1) % DP_RECENT_MAX;
    recent->count += recent->count < DP_RECENT_MAX;
}

rt_status dp_recent_add(dp_recent *recent, const rt_batch *batch)
{
    rt_batch *copy = &recent->batches[recent->next];
    rt_batch_clear(copy);
    if (rt_batch_reserve(copy, batch->sample_count, batch->key_count))
        return RT_NO_MEMORY;
    copy->sample_count = batch->sample_count;
    copy->key_count = batch->key_count;
    copy->has_gaps = batch->has_gaps;
    memcpy(copy->key_offsets, batch->key_offsets,
           (batch->sample_count + 1u) * sizeof *batch->key_offsets);
    memcpy(copy->keys, batch->keys, batch->key_count * sizeof *batch->keys);
    advance(recent);
    return RT_OK;
}

const rt_batch *dp_recent_at(const dp_recent *recent, uint32_t index)
{
    const uint32_t oldest = recent->next + DP_RECENT_MAX - recent->count;
    return &recent->batches[(oldest + index) % DP_RECENT_MAX];
}

// ---- state -----------------------------------------------------------------------------------

void dp_recent_save(const dp_recent *recent, rt_bytes *bytes)
{
    rt_bytes_put_u64(bytes, recent->count);
    for (uint32_t i = 0; i < recent->count; i++) {
        const rt_batch *batch = dp_recent_at(recent, i);
        rt_bytes_put_u64(bytes, batch->sample_count);
        rt_bytes_put_u64(bytes, batch->key_count);
        rt_bytes_put(bytes, batch->key_offsets,
                     (batch->sample_count + 1u) * sizeof *batch->key_offsets);
        rt_bytes_put(bytes, batch->keys, batch->key_count * sizeof *batch->keys);
    }
}

static bool are_offsets(const rt_batch *batch, uint32_t keys_per_sample_max)
{
    if (batch->key_offsets[0] != 0 || batch->key_offsets[batch->sample_count] != batch->key_count)
        return false;
    for (uint32_t i = 0; i < batch->sample_count; i++) {
        const uint32_t from = batch->key_offsets[i], end = batch->key_offsets[i + 1];
        if (end < from || end - from > keys_per_sample_max)
            return false;
    }
    return true;
}

static rt_status load_batch(dp_recent *recent, const dp_recent_limits *limits, rt_reader *reader)
{
    rt_batch *batch = &recent->batches[recent->next];
    const uint64_t samples = rt_reader_u64(reader), keys = rt_reader_u64(reader);
    const uint32_t most = limits->keys_per_sample_max;
    rt_batch_clear(batch);
    if (reader->failed || samples < 1 || samples > limits->sample_count_max ||
        keys > samples * most)
        return RT_DATA;
    if (rt_batch_reserve(batch, (uint32_t)samples, (uint32_t)keys))
        return RT_NO_MEMORY;
    batch->sample_count = (uint32_t)samples;
    batch->key_count = (uint32_t)keys;
    batch->has_gaps = true; // for all that is known
    if (!rt_reader_get(reader, batch->key_offsets, samples + 1, sizeof *batch->key_offsets) ||
        !rt_reader_get(reader, batch->keys, keys, sizeof *batch->keys) || !are_offsets(batch, most))
        return RT_DATA;
    for (uint32_t i = 0; i < batch->key_count; i++) {
        if (rt_key_field(batch->keys[i]) >= limits->field_count)
            return RT_DATA;
    }
    advance(recent);
    return RT_OK;
}

static rt_status load_batches(dp_recent *recent, const dp_recent_limits *limits, rt_reader *reader)
{
    const uint64_t count = rt_reader_u64(reader);
    if (reader->failed || count > DP_RECENT_MAX)
        return RT_DATA;
    for (uint64_t i = 0; i < count; i++) {
        const rt_status status = load_batch(recent, limits, reader);
        if (status)
            return status;
    }
    return RT_OK;
}

rt_status dp_recent_load(dp_recent *recent, const dp_recent_limits *limits, rt_reader *reader)
{
    const rt_status status = load_batches(recent, limits, reader);
    if (status)
        recent->count = recent->next = 0;
    return status;
}
