#include "dispatch/cache/dp_eviction.h"

#include <stddef.h>
#include <string.h>

#include "dispatch/cache/dp_outdated.h"
#include "dispatch/cache/dp_sort.h"
#include "dispatch/plan/dp_plan.h"

#define NONE UINT32_MAX
#define DIRECT (UINT32_MAX - 1u) // bucket of a row in no list: light_lfu
#define LIGHT_USES 10u

// Emark needs no queue: marks are `target` or older, and only the rows that were occupied when
// target last grew can have an older one. They are sorted once at that moment into `order`; a row
// used since then has the mark target and is passed over when its turn comes.
//
//     order     4   9   2   7   1   8     slots, those with the lowest frequency first
//     each is   f   p   t   o   p   o     f: free by now   t: used since, has the mark target
//                   ^       ^             p: used by this very iteration   o: old, may go
//                   |       cursor: slot 7 is the next victim
//                   pinned_cursor: slot 9 could not go now, but may in the next iteration
//
// Within an iteration cursor only moves on. When the iteration changes it goes back to
// pinned_cursor, the first that was passed over for being in use; f and t before it are never
// looked at again.
typedef struct {
    dp_emark_slot *slots;
    uint64_t *order, *scratch; // slots older than target, sorted; a sort key in the upper half
    uint32_t target;
    uint32_t order_count;
    uint32_t cursor;        // everything before it is used since, free, or pinned
    uint32_t pinned_cursor; // first entry passed over only because its iteration was running
    uint32_t iteration;
    dp_outdated outdated;
} emark;

// lru and lfu: rows in lists of equal frequency, lists in ascending order (lru: one list).
typedef struct {
    uint32_t previous, next; // in the list; of a row that is DIRECT, next is its frequency
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
    bool by_frequency, light;
    uint32_t hand, direct_count; // light: the slot that is passed over next; rows in no list
    uint32_t iteration;
    uint32_t cursor; // slot: no victim of iteration stands before it; or NONE
} listed;

// With expects: what to do when only rows that will be needed are left.
typedef struct {
    uint32_t *next;            // by slot: iteration of the next use
    uint64_t *order, *scratch; // ~next << 32 | slot, made once in an iteration
    uint32_t order_count, cursor;
    uint32_t iteration; // of order
} expected;

struct dp_eviction {
    dp_eviction_config config;
    uint32_t *bytes; // by slot, with by_bytes
    emark emark;
    listed listed;
    expected expected;
};

// Rows that this iteration uses, or that are known to be used later.
static bool is_pinned(const dp_eviction *v, uint32_t slot, uint32_t used, uint32_t iteration)
{
    return used == iteration || (v->config.expects && v->expected.next[slot] > iteration);
}

// ---- emark -----------------------------------------------------------------------------------

static rt_status emark_init(emark *e, const uint32_t *bytes, uint32_t slot_count)
{
    e->slots = rt_alloc(slot_count, sizeof *e->slots);
    e->order = rt_alloc_unset(slot_count, sizeof *e->order);
    e->scratch = rt_alloc_unset(slot_count, sizeof *e->scratch);
    e->target = 1;
    if (!e->slots || !e->order || !e->scratch)
        return RT_NO_MEMORY;
    return dp_outdated_init(&e->outdated, e->slots, bytes, e->scratch, slot_count);
}

static inline void emark_use(emark *e, uint32_t slot, uint32_t iteration)
{
    dp_emark_slot *s = &e->slots[slot];
    dp_outdated_remove(&e->outdated, slot);
    s->mark = e->target;
    s->frequency++;
    s->used = iteration;
}

static void emark_grow_target(dp_eviction *v)
{
    emark *e = &v->emark;
    uint32_t count = 0;
    for (uint32_t slot = 0; slot < v->config.slot_count; slot++) {
        if (e->slots[slot].mark)
            e->order[count++] = (uint64_t)e->slots[slot].frequency << 32 | slot;
    }
    if (v->config.by_bytes)
        dp_sort_by_worth(e->order, e->scratch, count, v->bytes);
    else
        dp_sort_upper(e->order, e->scratch, count);
    if (v->config.expects) { // rows that were passed over may have older marks than the others
        for (uint32_t i = 0; i < count; i++)
            e->order[i] =
                (uint64_t)e->slots[(uint32_t)e->order[i]].mark << 32 | (uint32_t)e->order[i];
        dp_sort_upper(e->order, e->scratch, count);
    }
    e->order_count = count;
    e->cursor = 0;
    e->pinned_cursor = NONE;
    e->target++;
}

static uint32_t emark_next(dp_eviction *v, uint32_t iteration)
{
    emark *e = &v->emark;
    for (; e->cursor < e->order_count; e->cursor++) {
        uint32_t slot = (uint32_t)e->order[e->cursor];
        const dp_emark_slot *s = &e->slots[slot];
        if (s->mark == 0 || s->mark == e->target)
            continue;
        if (!is_pinned(v, slot, s->used, iteration))
            return slot;
        if (e->pinned_cursor == NONE)
            e->pinned_cursor = e->cursor;
    }
    return NONE;
}

static bool emark_all_pinned(const dp_eviction *v, uint32_t iteration)
{
    for (uint32_t slot = 0; slot < v->config.slot_count; slot++) {
        const dp_emark_slot *s = &v->emark.slots[slot];
        if (s->mark && !is_pinned(v, slot, s->used, iteration))
            return false;
    }
    return true;
}

static uint32_t emark_victim(dp_eviction *v, uint32_t iteration)
{
    emark *e = &v->emark;
    if (iteration != e->iteration && e->pinned_cursor != NONE) {
        e->cursor = e->pinned_cursor;
        e->pinned_cursor = NONE;
    }
    e->iteration = iteration;
    uint32_t slot = emark_next(v, iteration);
    // What is left of the older marks is in use right now: ESD's condition "all marks equal target"
    // as far as anything can be evicted. The rows in use keep their older mark until used again.
    if (slot == NONE && !emark_all_pinned(v, iteration)) {
        emark_grow_target(v);
        slot = emark_next(v, iteration);
    }
    return slot == NONE ? DP_NO_SLOT : slot;
}

// ---- lru, lfu --------------------------------------------------------------------------------

static rt_status listed_init(listed *l, uint32_t slot_count, rt_eviction_kind kind)
{
    l->slots = rt_alloc(slot_count, sizeof *l->slots);
    l->buckets = rt_alloc((size_t)slot_count + 1, sizeof *l->buckets);
    l->free_buckets = rt_alloc((size_t)slot_count + 1, sizeof *l->free_buckets);
    if (!l->slots || !l->buckets || !l->free_buckets)
        return RT_NO_MEMORY;
    l->light = kind == RT_EVICT_LIGHT_LFU;
    l->by_frequency = kind == RT_EVICT_LFU || l->light;
    l->lowest = l->cursor = l->iteration = NONE;
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

// The first slot of the bucket behind `at`, or NONE.
static uint32_t first_behind(const listed *l, uint32_t at)
{
    uint32_t next = l->buckets[at].next;
    return next == NONE ? NONE : l->buckets[next].first;
}

static void unlink_slot(listed *l, uint32_t slot)
{
    const listed_slot *s = &l->slots[slot];
    bucket *b = &l->buckets[s->bucket];
    if (l->cursor == slot)
        l->cursor = s->next != NONE ? s->next : first_behind(l, s->bucket);
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

static void make_direct(listed *l, uint32_t slot, uint32_t frequency, uint32_t iteration)
{
    l->slots[slot] = (listed_slot){NONE, frequency, DIRECT, iteration};
    l->direct_count++;
}

static __attribute__((noinline)) void listed_use(listed *l, uint32_t slot, uint32_t iteration)
{
    if (l->slots[slot].bucket == DIRECT) {
        l->slots[slot].next += l->slots[slot].next < UINT32_MAX;
        l->slots[slot].used = iteration;
        return;
    }
    uint32_t from = l->slots[slot].bucket;
    uint32_t frequency = 1;
    uint32_t after = NONE; // the bucket that a new one would stand behind
    if (from != NONE) {
        frequency = l->by_frequency ? l->buckets[from].frequency + 1 : 1;
        after = l->by_frequency ? from : NONE;
        unlink_slot(l, slot);
    }
    if (l->light && frequency == LIGHT_USES) {
        make_direct(l, slot, frequency, iteration);
        remove_bucket_if_empty(l, from);
        return;
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
    if (from == DIRECT) {
        l->direct_count--;
        l->slots[slot].bucket = NONE;
        return;
    }
    unlink_slot(l, slot);
    l->slots[slot].bucket = NONE;
    remove_bucket_if_empty(l, from);
}

// A row comes into the list of a frequency as the first.
static void list_first(listed *l, uint32_t slot, uint32_t frequency)
{
    const uint32_t used = l->slots[slot].used;
    uint32_t after = NONE, to = l->lowest;
    while (to != NONE && l->buckets[to].frequency < frequency) {
        after = to;
        to = l->buckets[to].next;
    }
    if (to == NONE || l->buckets[to].frequency != frequency)
        to = insert_bucket(l, after, frequency);
    bucket *b = &l->buckets[to];
    l->slots[slot] = (listed_slot){NONE, b->first, to, used};
    if (b->first == NONE)
        b->last = slot;
    else
        l->slots[b->first].previous = slot;
    b->first = slot;
    if (l->cursor == NONE || l->buckets[l->slots[l->cursor].bucket].frequency >= frequency)
        l->cursor = slot;
}

// The hand passes over one slot. False: no frequency decays there.
static bool pass_hand(dp_eviction *v, uint32_t iteration)
{
    listed *l = &v->listed;
    const uint32_t slot = l->hand, from = l->slots[slot].bucket;
    listed_slot *s = &l->slots[slot];
    l->hand = (slot + 1) % v->config.slot_count;
    if (from == NONE || is_pinned(v, slot, s->used, iteration))
        return false;
    const uint32_t frequency = (from == DIRECT ? s->next : l->buckets[from].frequency) / 2;
    if (frequency == 0)
        return false;
    if (frequency >= LIGHT_USES) {
        s->next = frequency;
        return true;
    }
    if (from == DIRECT)
        l->direct_count--;
    else
        unlink_slot(l, slot);
    list_first(l, slot, frequency);
    if (from != DIRECT)
        remove_bucket_if_empty(l, from);
    return true;
}

// Pinned rows are passed over once in an iteration: the cursor stays behind them. Rows used in this
// iteration stand at the end of their list, so the first of them ends it.
static uint32_t listed_victim(dp_eviction *v, uint32_t iteration)
{
    listed *l = &v->listed;
    if (iteration != l->iteration) {
        l->iteration = iteration;
        l->cursor = l->lowest == NONE ? NONE : l->buckets[l->lowest].first;
    }
    while (l->cursor != NONE) {
        const listed_slot *s = &l->slots[l->cursor];
        if (!is_pinned(v, l->cursor, s->used, iteration))
            return l->cursor;
        bool in_list = s->used != iteration && s->next != NONE;
        l->cursor = in_list ? s->next : first_behind(l, s->bucket);
    }
    return DP_NO_SLOT;
}

// After a round in which no count decays, none will.
static uint32_t light_victim(dp_eviction *v, uint32_t iteration)
{
    pass_hand(v, iteration);
    uint32_t slot = listed_victim(v, iteration);
    for (uint32_t idle = 0; slot == DP_NO_SLOT && idle < v->config.slot_count;) {
        idle = pass_hand(v, iteration) ? 0 : idle + 1;
        if (idle == 0)
            slot = listed_victim(v, iteration);
    }
    return slot;
}

static uint32_t rule_victim(dp_eviction *v, uint32_t iteration)
{
    switch (v->config.kind) {
    case RT_EVICT_EMARK:
        return emark_victim(v, iteration);
    case RT_EVICT_LIGHT_LFU:
        return light_victim(v, iteration);
    case RT_EVICT_LRU:
    case RT_EVICT_LFU:
        break;
    }
    return listed_victim(v, iteration);
}

// ---- rows that will be needed ----------------------------------------------------------------

static bool is_candidate(const dp_eviction *v, uint32_t slot, uint32_t iteration)
{
    if (v->config.kind == RT_EVICT_EMARK)
        return v->emark.slots[slot].mark && v->emark.slots[slot].used != iteration;
    return v->listed.slots[slot].bucket != NONE && v->listed.slots[slot].used != iteration;
}

static rt_status expected_init(expected *x, uint32_t slot_count)
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
    expected *x = &v->expected;
    if (x->iteration != iteration) {
        x->iteration = iteration;
        x->order_count = x->cursor = 0;
        for (uint32_t slot = 0; slot < v->config.slot_count; slot++) {
            if (is_candidate(v, slot, iteration))
                x->order[x->order_count++] = (uint64_t)~x->next[slot] << 32 | slot;
        }
        dp_sort_upper(x->order, x->scratch, x->order_count);
    }
    for (; x->cursor < x->order_count; x->cursor++) {
        if (is_candidate(v, (uint32_t)x->order[x->cursor], iteration))
            return (uint32_t)x->order[x->cursor];
    }
    return DP_NO_SLOT;
}

// ----------------------------------------------------------------------------------------------

rt_status dp_eviction_create(const dp_eviction_config *config, dp_eviction **eviction_p)
{
    dp_eviction *eviction = rt_alloc(1, sizeof *eviction);
    if (!eviction)
        return RT_NO_MEMORY;
    eviction->config = *config;
    eviction->config.by_bytes = config->by_bytes && config->kind == RT_EVICT_EMARK;
    eviction->emark.pinned_cursor = NONE;
    rt_status status = RT_OK;
    if (eviction->config.by_bytes) {
        eviction->bytes = rt_alloc(config->slot_count, sizeof *eviction->bytes);
        status = eviction->bytes ? RT_OK : RT_NO_MEMORY;
    }
    if (!status)
        status = config->kind == RT_EVICT_EMARK
                     ? emark_init(&eviction->emark, eviction->bytes, config->slot_count)
                     : listed_init(&eviction->listed, config->slot_count, config->kind);
    if (!status && config->expects)
        status = expected_init(&eviction->expected, config->slot_count);
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
    if (eviction->config.kind == RT_EVICT_EMARK)
        emark_use(&eviction->emark, slot, iteration);
    else
        listed_use(&eviction->listed, slot, iteration);
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
    return eviction->config.kind == RT_EVICT_EMARK;
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
    if (eviction->config.kind == RT_EVICT_EMARK) {
        dp_outdated_remove(&eviction->emark.outdated, slot);
        eviction->emark.slots[slot] = (dp_emark_slot){0};
    } else {
        listed_free(&eviction->listed, slot);
    }
}

uint32_t dp_eviction_victim(dp_eviction *eviction, uint32_t iteration)
{
    if (eviction->emark.outdated.valid_count) // of lru and lfu: none
        return dp_outdated_first(&eviction->emark.outdated);
    bool none_left = eviction->config.expects && eviction->expected.iteration == iteration;
    uint32_t slot = DP_NO_SLOT;
    if (!none_left)
        slot = rule_victim(eviction, iteration);
    if (slot == DP_NO_SLOT && eviction->config.expects)
        slot = expected_victim(eviction, iteration);
    return slot;
}

void dp_eviction_prefetch(const dp_eviction *eviction, uint32_t slot)
{
    if (eviction->config.kind == RT_EVICT_EMARK)
        __builtin_prefetch(&eviction->emark.slots[slot], 1);
    else
        __builtin_prefetch(&eviction->listed.slots[slot], 1);
}

uint32_t dp_eviction_peek(const dp_eviction *eviction, uint32_t ahead)
{
    const emark *e = &eviction->emark;
    uint64_t at = (uint64_t)e->cursor + ahead;
    if (e->outdated.valid_count)
        return dp_outdated_peek(&e->outdated, ahead);
    return at < e->order_count ? (uint32_t)e->order[at] : DP_NO_SLOT;
}

// ---- saving ----------------------------------------------------------------------------------

// Of a dp_emark_slot: which copies are outdated is a list of its own.
#define SAVED_BYTES offsetof(dp_emark_slot, where)

static void emark_save(const dp_eviction *v, rt_bytes *bytes)
{
    const emark *e = &v->emark;
    const uint32_t head[] = {e->target, e->order_count, e->cursor, e->pinned_cursor, e->iteration};
    rt_bytes_put(bytes, head, sizeof head);
    for (uint32_t slot = 0; slot < v->config.slot_count; slot++)
        rt_bytes_put(bytes, &e->slots[slot], SAVED_BYTES);
    rt_bytes_put(bytes, e->order, e->order_count * sizeof *e->order);
}

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

static rt_status emark_load(dp_eviction *v, const bool *is_used, rt_reader *reader)
{
    emark *e = &v->emark;
    uint32_t head[5] = {0};
    rt_reader_get(reader, head, 1, sizeof head);
    if (head[0] == 0 || head[1] > v->config.slot_count || head[2] > head[1] ||
        (head[3] != NONE && head[3] > head[1]))
        return RT_DATA;
    e->target = head[0];
    e->order_count = head[1];
    e->cursor = head[2];
    e->pinned_cursor = head[3];
    e->iteration = head[4];
    for (uint32_t slot = 0; slot < v->config.slot_count; slot++) {
        if (!rt_reader_get(reader, &e->slots[slot], 1, SAVED_BYTES))
            return RT_DATA;
    }
    if (!rt_reader_get(reader, e->order, e->order_count, sizeof *e->order))
        return RT_DATA;
    for (uint32_t slot = 0; slot < v->config.slot_count; slot++) {
        if ((e->slots[slot].mark != 0) != is_used[slot] || e->slots[slot].mark > e->target)
            return RT_DATA;
    }
    for (uint32_t i = 0; i < e->order_count; i++) {
        if ((uint32_t)e->order[i] >= v->config.slot_count)
            return RT_DATA;
    }
    return RT_OK;
}

// The lists in order: which bucket has which number means nothing. Then the rows in none.
static void listed_save(const listed *l, uint32_t slot_count, rt_bytes *bytes)
{
    for (uint32_t b = l->lowest; b != NONE; b = l->buckets[b].next) {
        for (uint32_t slot = l->buckets[b].first; slot != NONE; slot = l->slots[slot].next) {
            const uint32_t one[] = {slot, l->buckets[b].frequency, l->slots[slot].used};
            rt_bytes_put(bytes, one, sizeof one);
        }
    }
    for (uint32_t slot = 0; slot < slot_count && l->light; slot++) {
        const uint32_t one[] = {slot, l->slots[slot].next, l->slots[slot].used};
        if (l->slots[slot].bucket == DIRECT)
            rt_bytes_put(bytes, one, sizeof one);
    }
    if (l->light)
        rt_bytes_put_u32(bytes, l->hand);
}

static rt_status listed_load(dp_eviction *v, const bool *is_used, rt_reader *reader)
{
    listed *l = &v->listed;
    uint32_t used_count = 0, last = NONE;
    for (uint32_t slot = 0; slot < v->config.slot_count; slot++)
        used_count += is_used[slot];
    for (uint32_t i = 0; i < used_count; i++) {
        uint32_t one[3];
        if (!rt_reader_get(reader, one, 1, sizeof one) || one[0] >= v->config.slot_count ||
            !is_used[one[0]] || l->slots[one[0]].bucket != NONE || one[1] == 0 ||
            (last != NONE && one[1] < l->buckets[last].frequency))
            return RT_DATA;
        if (l->light && one[1] >= LIGHT_USES) {
            make_direct(l, one[0], one[1], one[2]);
            continue;
        }
        if (l->direct_count)
            return RT_DATA;
        if (last == NONE || l->buckets[last].frequency != one[1])
            last = insert_bucket(l, last, one[1]);
        append_slot(l, one[0], last, one[2]);
    }
    l->hand = l->light ? rt_reader_u32(reader) : 0;
    if (reader->failed || l->hand >= v->config.slot_count)
        return RT_DATA;
    return RT_OK;
}

void dp_eviction_save(const dp_eviction *v, rt_bytes *bytes)
{
    if (v->config.kind == RT_EVICT_EMARK)
        emark_save(v, bytes);
    else
        listed_save(&v->listed, v->config.slot_count, bytes);
    if (v->config.by_bytes)
        rt_bytes_put(bytes, v->bytes, v->config.slot_count * sizeof *v->bytes);
    if (dp_eviction_keeps(v))
        outdated_save(v, bytes);
}

rt_status dp_eviction_load(dp_eviction *v, const bool *is_used, rt_reader *reader)
{
    rt_status status = v->config.kind == RT_EVICT_EMARK ? emark_load(v, is_used, reader)
                                                        : listed_load(v, is_used, reader);
    if (!status && v->config.by_bytes &&
        !rt_reader_get(reader, v->bytes, v->config.slot_count, sizeof *v->bytes))
        status = RT_DATA;
    if (!status && dp_eviction_keeps(v))
        status = outdated_load(v, is_used, reader);
    return status;
}
