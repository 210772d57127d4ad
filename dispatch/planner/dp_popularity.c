#include "dispatch/planner/dp_popularity.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define SLOTS_MIN (UINT64_C(1) << 12)
#define BATCH 4096u  // samples
#define PREFETCH 16u // keys ahead: enough to hide a miss to memory
#define PROGRESS_NS UINT64_C(500000000)

_Static_assert(2 * SLOTS_MIN * sizeof(dp_popular) == DP_POPULARITY_MEMORY_MIN, "the smallest");

// Open addressing, doubled when three quarters are used.
typedef struct {
    dp_popular *slots; // uses 0: free
    uint64_t slot_count, used, slot_count_max;
} table;

typedef struct {
    table table;
    const dp_popularity_config *settings;
    dp_popularity *profile;
    uint64_t begin_ns, shown_ns;
} counting;

// ---- the table -------------------------------------------------------------------------------

static dp_popular *find(dp_popular *slots, uint64_t slot_count, uint64_t key)
{
    uint64_t slot = rt_mix(key) & (slot_count - 1);
    while (slots[slot].uses != 0 && slots[slot].key != key)
        slot = (slot + 1) & (slot_count - 1);
    return &slots[slot];
}

static void prefetch(const table *t, uint64_t key)
{
    __builtin_prefetch(&t->slots[rt_mix(key) & (t->slot_count - 1)], 1);
}

// Room for so many keys more. RT_AGAIN: not within the bound.
static rt_status reserve(table *t, uint64_t key_count)
{
    uint64_t slot_count = t->slot_count;
    while (t->used + key_count > slot_count / 4 * 3)
        slot_count *= 2;
    if (slot_count == t->slot_count)
        return RT_OK;
    if (slot_count > t->slot_count_max)
        return RT_AGAIN;
    dp_popular *slots = rt_alloc(slot_count, sizeof *slots);
    if (!slots)
        return RT_NO_MEMORY;
    for (uint64_t i = 0; i < t->slot_count; i++) {
        if (t->slots[i].uses)
            *find(slots, slot_count, t->slots[i].key) = t->slots[i];
    }
    rt_free(t->slots);
    t->slots = slots;
    t->slot_count = slot_count;
    return RT_OK;
}

// Beside the table there is one of half its size while it grows, and a copy of its keys, three
// quarters of it, while qsort sorts.
static rt_status table_init(table *t, uint64_t memory_max, rt_error *error)
{
    rt_assert(memory_max >= DP_POPULARITY_MEMORY_MIN);
    *t = (table){.slot_count = SLOTS_MIN, .slot_count_max = SLOTS_MIN};
    while (t->slot_count_max <= memory_max / (4 * sizeof *t->slots))
        t->slot_count_max *= 2;
    t->slots = rt_alloc(t->slot_count, sizeof *t->slots);
    if (!t->slots)
        return rt_fail(error, RT_NO_MEMORY, "out of memory: counts of rows");
    return RT_OK;
}

// ---- counting --------------------------------------------------------------------------------

static void show_progress(counting *c, bool is_last)
{
    const uint64_t now = rt_now_ns();
    if (!c->settings->progress || (!is_last && now - c->shown_ns < PROGRESS_NS))
        return;
    c->shown_ns = now;
    fprintf(stderr, "\r%" PRIu64 " samples, %" PRIu64 " rows, %.0f samples/s%s",
            c->profile->samples, c->table.used,
            (double)c->profile->samples * 1e9 / (double)(now - c->begin_ns + 1),
            is_last ? "\n" : "   ");
}

static rt_status count_batch(counting *c, const rt_batch *batch)
{
    table *t = &c->table;
    for (uint32_t i = 0; i < batch->sample_count; i++) {
        const uint32_t first = batch->key_offsets[i], end = batch->key_offsets[i + 1];
        const rt_status status = reserve(t, end - first);
        if (status)
            return status;
        for (uint32_t at = first; at < end; at++) {
            if (at + PREFETCH < batch->key_count)
                prefetch(t, batch->keys[at + PREFETCH]);
            dp_popular *use = find(t->slots, t->slot_count, batch->keys[at]);
            t->used += use->uses == 0;
            use->key = batch->keys[at];
            use->uses++;
        }
        c->profile->samples++;
        c->profile->lookups += end - first;
    }
    return RT_OK;
}

static rt_status fold_and_count(counting *c, const rt_stream *stream, rt_batch *batch)
{
    const rt_status status = rt_tables_fold(&rt_stream_schema(stream)->tables, batch);
    if (status)
        return status;
    return count_batch(c, batch);
}

// RT_END: the input has ended; RT_AGAIN: there is no more memory for rows.
static rt_status count_batches(counting *c, rt_stream *stream, rt_batch *batch, rt_error *error)
{
    uint64_t samples_max = UINT64_MAX;
    if (c->settings->samples_max)
        samples_max = c->settings->samples_max;
    while (c->profile->samples < samples_max) {
        const uint64_t left = samples_max - c->profile->samples;
        rt_status status = rt_stream_read(stream, batch, (uint32_t)rt_min_u64(left, BATCH), error);
        if (status)
            return status;
        status = fold_and_count(c, stream, batch);
        if (status == RT_NO_MEMORY)
            rt_fail(error, status, "out of memory after %" PRIu64 " rows", c->table.used);
        if (status)
            return status;
        show_progress(c, false);
    }
    return RT_OK;
}

static rt_status count_stream(counting *c, rt_stream *stream, rt_error *error)
{
    rt_batch batch;
    rt_batch_init(&batch, rt_stream_schema(stream)->dense_count);
    c->begin_ns = rt_now_ns();
    c->profile->end = DP_POPULARITY_SAMPLES;
    const rt_status status = count_batches(c, stream, &batch, error);
    show_progress(c, true);
    rt_batch_fini(&batch);
    if (status == RT_END)
        c->profile->end = DP_POPULARITY_INPUT;
    else if (status == RT_AGAIN)
        c->profile->end = DP_POPULARITY_MEMORY;
    else if (status)
        return status;
    if (c->profile->samples > 0)
        return RT_OK;
    if (c->profile->end == DP_POPULARITY_MEMORY)
        return rt_fail(error, RT_DATA,
                       "stream: the first sample has more rows than can be counted");
    return rt_fail(error, RT_DATA, "stream: the input has no sample");
}

static int compare_uses(const void *a, const void *b)
{
    const dp_popular *x = a, *y = b;
    if (x->uses != y->uses)
        return x->uses < y->uses ? 1 : -1;
    return (x->key > y->key) - (x->key < y->key);
}

// The table's memory becomes the profile's.
static void rank_rows(table *t, dp_popularity *profile)
{
    uint64_t count = 0;
    for (uint64_t i = 0; i < t->slot_count; i++) {
        if (t->slots[i].uses)
            t->slots[count++] = t->slots[i];
    }
    rt_assert(count == t->used);
    qsort(t->slots, count, sizeof *t->slots, compare_uses);
    profile->uses = t->slots;
    profile->row_count = count;
    t->slots = NULL;
}

rt_status dp_popularity_take(const rt_config *config, const dp_popularity_config *settings,
                             dp_popularity *profile, rt_error *error)
{
    rt_stream *stream = NULL;
    *profile = (dp_popularity){0};
    counting c = {.settings = settings, .profile = profile};
    rt_status status = table_init(&c.table, settings->memory_max, error);
    if (!status)
        status = rt_stream_open(&config->stream, config->seed, &stream, error);
    if (!status)
        status = count_stream(&c, stream, error);
    rt_stream_close(stream);
    if (!status)
        rank_rows(&c.table, profile);
    else
        *profile = (dp_popularity){0};
    rt_free(c.table.slots);
    return status;
}

void dp_popularity_fini(dp_popularity *profile)
{
    rt_free(profile->uses);
    *profile = (dp_popularity){0};
}

const char *dp_popularity_end_name(dp_popularity_end end)
{
    static const char *const names[] = {[DP_POPULARITY_INPUT] = "input",
                                        [DP_POPULARITY_SAMPLES] = "samples",
                                        [DP_POPULARITY_MEMORY] = "memory"};
    return names[end];
}
