#include "dispatch/dp_eviction.h"

#include <string.h>

#include "dispatch/dp_plan.h"

#define NONE UINT32_MAX

// Emark needs no queue: marks are `target` or older, and only the rows that were occupied when
// target last grew can have an older one. They are sorted once at that moment into `order`; a row
// used since then has the mark target and is passed over when its turn comes.
typedef struct {
    uint32_t mark; // 0: free
    uint32_t frequency;
    uint32_t used; // last iteration
} emark_slot;

typedef struct {
    emark_slot *slots;
    uint64_t *order, *scratch; // frequency << 32 | slot, of the rows older than target
    uint32_t target;
    uint32_t order_count;
    uint32_t cursor;        // everything before it is used since, free, or pinned
    uint32_t pinned_cursor; // first entry passed over only because its iteration was running
    uint32_t iteration;
} emark;

// lru and lfu: rows in lists of equal frequency, lists in ascending order (lru: one list).
typedef struct {
    uint32_t previous, next; // in the list
    uint32_t bucket;         // NONE: free
    uint32_t used;
} listed_slot;

typedef struct {
    uint32_t frequency;
    uint32_t first, last;    // slots, oldest first
    uint32_t previous, next; // buckets
} bucket;

typedef struct {
    listed_slot *slots;
    bucket *buckets; // slot_count + 1
    uint32_t *free_buckets;
    uint32_t free_count;
    uint32_t lowest; // bucket, or NONE
    bool by_frequency;
} listed;

struct dp_eviction {
    rt_eviction_kind kind;
    uint32_t slot_count;
    emark emark;
    listed listed;
};

void dp_sort_upper(uint64_t *items, uint64_t *scratch, uint32_t count)
{
    uint64_t all = 0;
    for (uint32_t i = 0; i < count; i++)
        all |= items[i] >> 32;
    for (uint32_t shift = 32; shift < 64 && all >> (shift - 32); shift += 11) {
        uint32_t digits = shift + 11 > 64 ? 1u << (64 - shift) : 1u << 11;
        uint32_t starts[1u << 11] = {0};
        for (uint32_t i = 0; i < count; i++)
            starts[items[i] >> shift & (digits - 1)]++;
        uint32_t sum = 0;
        for (uint32_t d = 0; d < digits; d++) {
            uint32_t here = starts[d];
            starts[d] = sum;
            sum += here;
        }
        for (uint32_t i = 0; i < count; i++)
            scratch[starts[items[i] >> shift & (digits - 1)]++] = items[i];
        memcpy(items, scratch, count * sizeof *items);
    }
}

static rt_status emark_init(emark *e, uint32_t slot_count)
{
    e->slots = rt_alloc(slot_count, sizeof *e->slots);
    e->order = rt_alloc(slot_count, sizeof *e->order);
    e->scratch = rt_alloc(slot_count, sizeof *e->scratch);
    e->target = 1;
    return e->slots && e->order && e->scratch ? RT_OK : RT_NO_MEMORY;
}

static void emark_use(emark *e, uint32_t slot, uint32_t iteration)
{
    emark_slot *s = &e->slots[slot];
    s->mark = e->target;
    s->frequency++;
    s->used = iteration;
}

static void emark_grow_target(emark *e, uint32_t slot_count)
{
    uint32_t count = 0;
    for (uint32_t slot = 0; slot < slot_count; slot++) {
        if (e->slots[slot].mark)
            e->order[count++] = (uint64_t)e->slots[slot].frequency << 32 | slot;
    }
    dp_sort_upper(e->order, e->scratch, count);
    e->order_count = count;
    e->cursor = 0;
    e->pinned_cursor = NONE;
    e->target++;
}

static uint32_t emark_next(emark *e, uint32_t iteration)
{
    for (; e->cursor < e->order_count; e->cursor++) {
        uint32_t slot = (uint32_t)e->order[e->cursor];
        const emark_slot *s = &e->slots[slot];
        if (s->mark == 0 || s->mark == e->target)
            continue;
        if (s->used != iteration)
            return slot;
        if (e->pinned_cursor == NONE)
            e->pinned_cursor = e->cursor;
    }
    return NONE;
}

static bool emark_all_in_use(const emark *e, uint32_t slot_count, uint32_t iteration)
{
    for (uint32_t slot = 0; slot < slot_count; slot++) {
        if (e->slots[slot].mark && e->slots[slot].used != iteration)
            return false;
    }
    return true;
}

static uint32_t emark_victim(emark *e, uint32_t slot_count, uint32_t iteration)
{
    if (iteration != e->iteration && e->pinned_cursor != NONE) {
        e->cursor = e->pinned_cursor;
        e->pinned_cursor = NONE;
    }
    e->iteration = iteration;
    uint32_t slot = emark_next(e, iteration);
    // What is left of the older marks is in use right now: ESD's condition "all marks equal target"
    // as far as anything can be evicted. The rows in use keep their older mark until used again.
    if (slot == NONE && !emark_all_in_use(e, slot_count, iteration)) {
        emark_grow_target(e, slot_count);
        slot = emark_next(e, iteration);
    }
    return slot == NONE ? DP_NO_SLOT : slot;
}

static rt_status listed_init(listed *l, uint32_t slot_count, bool by_frequency)
{
    l->slots = rt_alloc(slot_count, sizeof *l->slots);
    l->buckets = rt_alloc((size_t)slot_count + 1, sizeof *l->buckets);
    l->free_buckets = rt_alloc((size_t)slot_count + 1, sizeof *l->free_buckets);
    if (!l->slots || !l->buckets || !l->free_buckets)
        return RT_NO_MEMORY;
    l->by_frequency = by_frequency;
    l->lowest = NONE;
    for (uint32_t i = 0; i < slot_count; i++)
        l->slots[i].bucket = NONE;
    for (uint32_t i = 0; i <= slot_count; i++)
        l->free_buckets[l->free_count++] = slot_count - i;
    return RT_OK;
}

// A new empty bucket after `previous` (NONE: in front of all).
static uint32_t insert_bucket(listed *l, uint32_t previous, uint32_t frequency)
{
    uint32_t at = l->free_buckets[--l->free_count];
    uint32_t next = previous == NONE ? l->lowest : l->buckets[previous].next;
    l->buckets[at] = (bucket){frequency, NONE, NONE, previous, next};
    if (next != NONE)
        l->buckets[next].previous = at;
    if (previous == NONE)
        l->lowest = at;
    else
        l->buckets[previous].next = at;
    return at;
}

static void remove_bucket_if_empty(listed *l, uint32_t at)
{
    const bucket *b = &l->buckets[at];
    if (b->first != NONE)
        return;
    if (b->next != NONE)
        l->buckets[b->next].previous = b->previous;
    if (b->previous == NONE)
        l->lowest = b->next;
    else
        l->buckets[b->previous].next = b->next;
    l->free_buckets[l->free_count++] = at;
}

static void unlink_slot(listed *l, uint32_t slot)
{
    const listed_slot *s = &l->slots[slot];
    bucket *b = &l->buckets[s->bucket];
    if (s->previous == NONE)
        b->first = s->next;
    else
        l->slots[s->previous].next = s->next;
    if (s->next == NONE)
        b->last = s->previous;
    else
        l->slots[s->next].previous = s->previous;
}

static void append_slot(listed *l, uint32_t slot, uint32_t at, uint32_t iteration)
{
    bucket *b = &l->buckets[at];
    l->slots[slot] = (listed_slot){b->last, NONE, at, iteration};
    if (b->last == NONE)
        b->first = slot;
    else
        l->slots[b->last].next = slot;
    b->last = slot;
}

static void listed_use(listed *l, uint32_t slot, uint32_t iteration)
{
    uint32_t from = l->slots[slot].bucket;
    uint32_t frequency = 1;
    uint32_t after = NONE; // the bucket that a new one would stand behind
    if (from != NONE) {
        frequency = l->by_frequency ? l->buckets[from].frequency + 1 : 1;
        after = l->by_frequency ? from : NONE;
        unlink_slot(l, slot);
    }
    uint32_t to = after == NONE ? l->lowest : l->buckets[after].next;
    if (to == NONE || l->buckets[to].frequency != frequency)
        to = insert_bucket(l, after, frequency);
    append_slot(l, slot, to, iteration);
    if (from != NONE && from != to)
        remove_bucket_if_empty(l, from);
}

static void listed_free(listed *l, uint32_t slot)
{
    uint32_t from = l->slots[slot].bucket;
    unlink_slot(l, slot);
    l->slots[slot].bucket = NONE;
    remove_bucket_if_empty(l, from);
}

// Rows used in this iteration stand at the end of their list, so one look per list is enough.
static uint32_t listed_victim(const listed *l, uint32_t iteration)
{
    for (uint32_t at = l->lowest; at != NONE; at = l->buckets[at].next) {
        if (l->slots[l->buckets[at].first].used != iteration)
            return l->buckets[at].first;
    }
    return DP_NO_SLOT;
}

rt_status dp_eviction_create(rt_eviction_kind kind, uint32_t slot_count, dp_eviction **eviction_p)
{
    dp_eviction *eviction = rt_alloc(1, sizeof *eviction);
    if (!eviction)
        return RT_NO_MEMORY;
    eviction->kind = kind;
    eviction->slot_count = slot_count;
    eviction->emark.pinned_cursor = NONE;
    rt_status status = kind == RT_EVICT_EMARK
                           ? emark_init(&eviction->emark, slot_count)
                           : listed_init(&eviction->listed, slot_count, kind == RT_EVICT_LFU);
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
    rt_free(eviction->listed.slots);
    rt_free(eviction->listed.buckets);
    rt_free(eviction->listed.free_buckets);
    rt_free(eviction);
}

void dp_eviction_use(dp_eviction *eviction, uint32_t slot, uint32_t iteration)
{
    if (eviction->kind == RT_EVICT_EMARK)
        emark_use(&eviction->emark, slot, iteration);
    else
        listed_use(&eviction->listed, slot, iteration);
}

void dp_eviction_free(dp_eviction *eviction, uint32_t slot)
{
    if (eviction->kind == RT_EVICT_EMARK)
        eviction->emark.slots[slot] = (emark_slot){0};
    else
        listed_free(&eviction->listed, slot);
}

uint32_t dp_eviction_victim(dp_eviction *eviction, uint32_t iteration)
{
    if (eviction->kind == RT_EVICT_EMARK)
        return emark_victim(&eviction->emark, eviction->slot_count, iteration);
    return listed_victim(&eviction->listed, iteration);
}
