#include "dispatch/cache/dp_eviction_parts.h"
#include "dispatch/cache/dp_sort.h"

#define NONE DP_EVICTION_NONE

static const dp_eviction_rules *const kinds[] = {[RT_EVICT_EMARK] = &dp_eviction_emark,
                                                 [RT_EVICT_LRU] = &dp_eviction_lru,
                                                 [RT_EVICT_LFU] = &dp_eviction_lfu,
                                                 [RT_EVICT_LIGHT_LFU] = &dp_eviction_light_lfu,
                                                 [RT_EVICT_TTL] = &dp_eviction_lru};

// ---- rows that will be needed ----------------------------------------------------------------

static rt_status expected_init(dp_eviction_expected *x, uint32_t slot_count)
{
    x->iteration = NONE;
    x->next = rt_alloc(slot_count, sizeof *x->next);
    x->order = rt_alloc(slot_count, sizeof *x->order);
    x->scratch = rt_alloc(slot_count, sizeof *x->scratch);
    if (!x->next || !x->order || !x->scratch)
        return RT_NO_MEMORY;
    return RT_OK;
}

static uint32_t expected_victim(dp_eviction *v, uint32_t iteration)
{
    dp_eviction_expected *x = &v->expected;
    if (x->iteration != iteration) {
        x->iteration = iteration;
        x->order_count = x->cursor = 0;
        for (uint32_t slot = 0; slot < v->config.slot_count; slot++) {
            if (v->rules->is_candidate(v, slot, iteration))
                x->order[x->order_count++] = (uint64_t)~x->next[slot] << 32 | slot;
        }
        dp_sort_upper(x->order, x->scratch, x->order_count);
    }
    for (; x->cursor < x->order_count; x->cursor++) {
        if (v->rules->is_candidate(v, (uint32_t)x->order[x->cursor], iteration))
            return (uint32_t)x->order[x->cursor];
    }
    return DP_NO_SLOT;
}

// ---- the calls -------------------------------------------------------------------------------

// What the kind needs may point to bytes.
static rt_status allocate(dp_eviction *v)
{
    if (v->config.by_bytes) {
        v->bytes = rt_alloc(v->config.slot_count, sizeof *v->bytes);
        if (!v->bytes)
            return RT_NO_MEMORY;
    }
    const rt_status status = v->rules->init(v);
    if (status || !v->config.expects)
        return status;
    return expected_init(&v->expected, v->config.slot_count);
}

rt_status dp_eviction_create(const dp_eviction_config *config, dp_eviction **eviction_p)
{
    dp_eviction *eviction = rt_alloc(1, sizeof *eviction);
    if (!eviction)
        return RT_NO_MEMORY;
    eviction->config = *config;
    eviction->rules = kinds[config->kind];
    eviction->config.by_bytes &= eviction->rules->weighs;
    const rt_status status = allocate(eviction);
    if (status) {
        dp_eviction_destroy(eviction);
        return status;
    }
    *eviction_p = eviction;
    return RT_OK;
}

void dp_eviction_destroy(dp_eviction *eviction)
{
    if (!eviction)
        return;
    rt_free(eviction->emark.slots);
    rt_free(eviction->emark.order);
    rt_free(eviction->emark.scratch);
    dp_outdated_fini(&eviction->emark.outdated);
    rt_free(eviction->listed.slots);
    rt_free(eviction->listed.buckets);
    rt_free(eviction->listed.free_buckets);
    rt_free(eviction->expected.next);
    rt_free(eviction->expected.order);
    rt_free(eviction->expected.scratch);
    rt_free(eviction->bytes);
    rt_free(eviction);
}

void dp_eviction_use(dp_eviction *eviction, uint32_t slot, uint32_t iteration)
{
    eviction->rules->use(eviction, slot, iteration);
}

void dp_eviction_weigh(dp_eviction *eviction, uint32_t slot, uint32_t bytes)
{
    if (eviction->config.by_bytes)
        eviction->bytes[slot] = bytes;
}

void dp_eviction_expect(dp_eviction *eviction, uint32_t slot, uint32_t next)
{
    eviction->expected.next[slot] = next;
}

bool dp_eviction_keeps(const dp_eviction *eviction)
{
    return eviction->rules->keeps;
}

void dp_eviction_outdate(dp_eviction *eviction, uint32_t slot)
{
    rt_assert(dp_eviction_keeps(eviction));
    dp_outdated_add(&eviction->emark.outdated, slot);
}

bool dp_eviction_is_outdated(const dp_eviction *eviction, uint32_t slot)
{
    return dp_eviction_keeps(eviction) && dp_outdated_has(&eviction->emark.outdated, slot);
}

void dp_eviction_free(dp_eviction *eviction, uint32_t slot)
{
    if (eviction->config.expects)
        eviction->expected.next[slot] = 0;
    eviction->rules->free(eviction, slot);
}

uint32_t dp_eviction_victim(dp_eviction *eviction, uint32_t iteration)
{
    if (eviction->emark.outdated.valid_count) // none where rules do not keep them
        return dp_outdated_first(&eviction->emark.outdated);
    bool none_left = eviction->config.expects && eviction->expected.iteration == iteration;
    uint32_t slot = DP_NO_SLOT;
    if (!none_left)
        slot = eviction->rules->victim(eviction, iteration);
    if (slot == DP_NO_SLOT && eviction->config.expects)
        slot = expected_victim(eviction, iteration);
    return slot;
}

void dp_eviction_prefetch(const dp_eviction *eviction, uint32_t slot)
{
    const dp_emark_slot *slots = eviction->slots; // of either kind, which have one size
    __builtin_prefetch(&slots[slot], 1);
}

uint32_t dp_eviction_peek(const dp_eviction *eviction, uint32_t ahead)
{
    const dp_eviction_marks *e = &eviction->emark;
    uint64_t at = (uint64_t)e->cursor + ahead;
    if (e->outdated.valid_count)
        return dp_outdated_peek(&e->outdated, ahead);
    if (at >= e->order_count)
        return DP_NO_SLOT;
    return (uint32_t)e->order[at];
}

// ---- saving ----------------------------------------------------------------------------------

static void outdated_save(const dp_eviction *v, rt_bytes *bytes)
{
    rt_bytes_put_u32(bytes, v->emark.outdated.valid_count);
    for (uint32_t slot = 0; slot < v->config.slot_count; slot++) {
        if (dp_outdated_has(&v->emark.outdated, slot))
            rt_bytes_put_u32(bytes, slot);
    }
}

// In ascending order. The heap needs marks, frequencies and bytes, so it comes last.
static rt_status outdated_load(dp_eviction *v, const bool *is_used, rt_reader *reader)
{
    uint32_t count = rt_reader_u32(reader);
    if (count > v->config.slot_count)
        return RT_DATA;
    for (uint32_t i = 0, after = 0; i < count; i++) {
        uint32_t slot = rt_reader_u32(reader);
        if (reader->failed || slot < after || slot >= v->config.slot_count || !is_used[slot])
            return RT_DATA;
        dp_eviction_outdate(v, slot);
        after = slot + 1;
    }
    if (reader->failed)
        return RT_DATA;
    return RT_OK;
}

void dp_eviction_save(const dp_eviction *v, rt_bytes *bytes)
{
    v->rules->save(v, bytes);
    if (v->config.by_bytes)
        rt_bytes_put(bytes, v->bytes, v->config.slot_count * sizeof *v->bytes);
    if (v->rules->keeps)
        outdated_save(v, bytes);
}

rt_status dp_eviction_load(dp_eviction *v, const bool *is_used, rt_reader *reader)
{
    rt_status status = v->rules->load(v, is_used, reader);
    if (!status && v->config.by_bytes &&
        !rt_reader_get(reader, v->bytes, v->config.slot_count, sizeof *v->bytes))
        status = RT_DATA;
    if (status || !v->rules->keeps)
        return status;
    return outdated_load(v, is_used, reader);
}
