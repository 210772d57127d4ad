#include "runtime/stream/rt_repeats.h"

#include <string.h>

#define MAGIC UINT64_C(0x5354414550455200) // "\0REPEATS"
#define SLOTS_MIN 8192u
#define SLOTS_MAX (1u << 24)

struct rt_repeats {
    uint32_t slot_count; // a power of two
    uint64_t sum;        // of before, but for what halving cut off
    uint32_t *before;    // times in batches that are over
    uint32_t *now;       // in the one that is read
};

// Twice as many slots as a full batch has keys: rare keys that share a slot end a batch in a
// thousand, and times are those of at least 64 full batches, so that a key that is spread evenly
// over them stays far from the end of a batch.
rt_status rt_repeats_create(uint32_t batch_samples, uint32_t keys_per_sample,
                            rt_repeats **repeats_p)
{
    const uint64_t wanted = rt_min_u64((uint64_t)batch_samples * keys_per_sample * 2, SLOTS_MAX);
    rt_repeats *repeats = rt_alloc(1, sizeof *repeats);
    if (!repeats)
        return RT_NO_MEMORY;
    repeats->slot_count = SLOTS_MIN;
    while (repeats->slot_count < wanted)
        repeats->slot_count *= 2;
    repeats->before = rt_alloc(repeats->slot_count, sizeof *repeats->before);
    repeats->now = rt_alloc(repeats->slot_count, sizeof *repeats->now);
    if (!repeats->before || !repeats->now) {
        rt_repeats_destroy(repeats);
        return RT_NO_MEMORY;
    }
    *repeats_p = repeats;
    return RT_OK;
}

void rt_repeats_destroy(rt_repeats *repeats)
{
    if (!repeats)
        return;
    rt_free(repeats->before);
    rt_free(repeats->now);
    rt_free(repeats);
}

static uint32_t slot_of(const rt_repeats *repeats, uint64_t row_key)
{
    return (uint32_t)rt_mix(row_key ^ MAGIC) & (repeats->slot_count - 1);
}

bool rt_repeats_end_with(rt_repeats *repeats, const rt_tables *tables, const rt_batch *batch)
{
    const uint32_t last = batch->sample_count - 1;
    bool is_often = false;
    for (uint32_t k = batch->key_offsets[last]; k < batch->key_offsets[last + 1]; k++) {
        if (rt_tables_is_none(tables, batch->keys[k]))
            continue;
        const uint32_t slot = slot_of(repeats, rt_tables_row_key(tables, batch->keys[k]));
        const uint32_t times = ++repeats->now[slot];
        is_often |=
            times >= RT_REPEATS_LEAST && (uint64_t)times * RT_REPEATS_PART >= repeats->before[slot];
    }
    return is_often;
}

static void add(rt_repeats *repeats, uint64_t row_key)
{
    const uint32_t slot = slot_of(repeats, row_key);
    repeats->before[slot] += repeats->before[slot] < UINT32_MAX;
    repeats->sum++;
    repeats->now[slot] = 0;
}

static void fade(rt_repeats *repeats)
{
    while (repeats->sum >= (uint64_t)RT_REPEATS_PER_SLOT * repeats->slot_count) {
        repeats->sum /= 2;
        for (uint32_t i = 0; i < repeats->slot_count; i++)
            repeats->before[i] /= 2;
    }
}

void rt_repeats_add(rt_repeats *repeats, const rt_tables *tables, const rt_batch *batch)
{
    for (uint32_t i = 0; batch->tables && i < batch->lookup_count; i++)
        add(repeats, batch->keys[batch->lookups[i]]);
    for (uint32_t k = 0; !batch->tables && k < batch->key_count; k++)
        if (!rt_tables_is_none(tables, batch->keys[k]))
            add(repeats, rt_tables_row_key(tables, batch->keys[k]));
    fade(repeats);
}

// ---- state -----------------------------------------------------------------------------------

void rt_repeats_save(const rt_repeats *repeats, rt_bytes *bytes)
{
    rt_bytes_put_u64(bytes, MAGIC);
    rt_bytes_put_u64(bytes, repeats->sum);
    rt_bytes_put_u64(bytes, repeats->slot_count);
    rt_bytes_put(bytes, repeats->before, (uint64_t)repeats->slot_count * sizeof *repeats->before);
}

bool rt_repeats_are_next(const rt_reader *reader)
{
    rt_reader head = *reader;
    return rt_reader_u64(&head) == MAGIC && !head.failed;
}

bool rt_repeats_take(rt_reader *reader, rt_bytes *bytes)
{
    if (!rt_repeats_are_next(reader))
        return true;
    rt_reader head = *reader;
    (void)rt_reader_u64(&head);
    (void)rt_reader_u64(&head);
    const uint64_t count = rt_reader_u64(&head);
    const uint8_t *begin = reader->next;
    if (!rt_reader_take(&head, count, sizeof(uint32_t)))
        return false;
    rt_bytes_put(bytes, begin, reader->left - head.left);
    *reader = head;
    return !bytes->failed;
}

// Slots that are one now are added up; slots that were one all have its times.
rt_status rt_repeats_load(rt_repeats *repeats, rt_reader *reader, rt_error *error)
{
    if (!rt_repeats_are_next(reader))
        return RT_OK;
    (void)rt_reader_u64(reader);
    repeats->sum = rt_reader_u64(reader);
    const uint64_t count = rt_reader_u64(reader);
    const uint8_t *bytes = rt_reader_take(reader, count, sizeof *repeats->before);
    if (!bytes || count < SLOTS_MIN || count > SLOTS_MAX || (count & (count - 1)))
        return rt_fail(error, RT_DATA, "the times that keys came before are cut off");
    for (uint64_t i = 0; i < rt_max_u64(count, repeats->slot_count); i++) {
        uint32_t times;
        uint32_t *before = &repeats->before[i & (repeats->slot_count - 1)];
        memcpy(&times, bytes + (i & (count - 1)) * sizeof times, sizeof times);
        *before = (uint32_t)rt_min_u64((uint64_t)*before + times, UINT32_MAX);
    }
    fade(repeats);
    return RT_OK;
}
