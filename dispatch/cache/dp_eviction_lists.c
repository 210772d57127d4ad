// The rules that keep rows in lists of equal frequency: lru, lfu, and HET's light_lfu. See
// dp_eviction.h.
#include "dispatch/cache/dp_eviction_parts.h"

#define NONE DP_EVICTION_NONE
#define DIRECT (UINT32_MAX - 1u) // bucket of a row in no list: light_lfu
#define LIGHT_USES 10u

typedef dp_eviction_lists listed;
typedef dp_eviction_bucket bucket;

static rt_status init_lru(dp_eviction *v)
{
    listed *l = &v->listed;
    const uint32_t slot_count = v->config.slot_count;
    l->slots = rt_alloc(slot_count, sizeof *l->slots);
    l->buckets = rt_alloc((size_t)slot_count + 1, sizeof *l->buckets);
    l->free_buckets = rt_alloc((size_t)slot_count + 1, sizeof *l->free_buckets);
    if (!l->slots || !l->buckets || !l->free_buckets)
        return RT_NO_MEMORY;
    v->slots = l->slots;
    l->lowest = l->cursor = l->iteration = NONE;
    for (uint32_t i = 0; i < slot_count; i++)
        l->slots[i].bucket = NONE;
    for (uint32_t i = 0; i <= slot_count; i++)
        l->free_buckets[l->free_count++] = slot_count - i;
    return RT_OK;
}

static rt_status init_lfu(dp_eviction *v)
{
    v->listed.by_frequency = true;
    return init_lru(v);
}

static rt_status init_light(dp_eviction *v)
{
    v->listed.light = true;
    return init_lfu(v);
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
    const uint32_t next = l->buckets[at].next;
    if (next == NONE)
        return NONE;
    return l->buckets[next].first;
}

static void unlink_slot(listed *l, uint32_t slot)
{
    const dp_listed_slot *s = &l->slots[slot];
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
    l->slots[slot] = (dp_listed_slot){b->last, NONE, at, iteration};
    if (b->last == NONE)
        b->first = slot;
    else
        l->slots[b->last].next = slot;
    b->last = slot;
}

static void make_direct(listed *l, uint32_t slot, uint32_t frequency, uint32_t iteration)
{
    l->slots[slot] = (dp_listed_slot){NONE, frequency, DIRECT, iteration};
    l->direct_count++;
}

static void use(dp_eviction *v, uint32_t slot, uint32_t iteration)
{
    listed *l = &v->listed;
    if (l->slots[slot].bucket == DIRECT) {
        l->slots[slot].next += l->slots[slot].next < UINT32_MAX;
        l->slots[slot].used = iteration;
        return;
    }
    uint32_t from = l->slots[slot].bucket;
    uint32_t frequency = 1;
    uint32_t after = NONE; // the bucket that a new one would stand behind
    if (from != NONE) {
        if (l->by_frequency) {
            frequency = l->buckets[from].frequency + 1;
            after = from;
        }
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

static void free_slot(dp_eviction *v, uint32_t slot)
{
    listed *l = &v->listed;
    const uint32_t from = l->slots[slot].bucket;
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
    l->slots[slot] = (dp_listed_slot){NONE, b->first, to, used};
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
    dp_listed_slot *s = &l->slots[slot];
    l->hand = (slot + 1) % v->config.slot_count;
    if (from == NONE || dp_eviction_pins(v, slot, s->used, iteration))
        return false;
    const uint32_t uses = from == DIRECT ? s->next : l->buckets[from].frequency;
    const uint32_t frequency = uses / 2;
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
static uint32_t victim(dp_eviction *v, uint32_t iteration)
{
    listed *l = &v->listed;
    if (iteration != l->iteration) {
        l->iteration = iteration;
        l->cursor = NONE;
        if (l->lowest != NONE)
            l->cursor = l->buckets[l->lowest].first;
    }
    while (l->cursor != NONE) {
        const dp_listed_slot *s = &l->slots[l->cursor];
        if (!dp_eviction_pins(v, l->cursor, s->used, iteration))
            return l->cursor;
        bool in_list = s->used != iteration && s->next != NONE;
        l->cursor = in_list ? s->next : first_behind(l, s->bucket);
    }
    return DP_NO_SLOT;
}

static bool is_candidate(const dp_eviction *v, uint32_t slot, uint32_t iteration)
{
    return v->listed.slots[slot].bucket != NONE && v->listed.slots[slot].used != iteration;
}

// After a round in which no count decays, none will.
static uint32_t light_victim(dp_eviction *v, uint32_t iteration)
{
    pass_hand(v, iteration);
    uint32_t slot = victim(v, iteration);
    for (uint32_t idle = 0; slot == DP_NO_SLOT && idle < v->config.slot_count;) {
        idle++;
        if (pass_hand(v, iteration)) {
            idle = 0;
            slot = victim(v, iteration);
        }
    }
    return slot;
}

// ---- saving ----------------------------------------------------------------------------------

// The lists in order: which bucket has which number means nothing. Then the rows in none.
static void save(const dp_eviction *v, rt_bytes *bytes)
{
    const listed *l = &v->listed;
    for (uint32_t b = l->lowest; b != NONE; b = l->buckets[b].next) {
        for (uint32_t slot = l->buckets[b].first; slot != NONE; slot = l->slots[slot].next) {
            const uint32_t one[] = {slot, l->buckets[b].frequency, l->slots[slot].used};
            rt_bytes_put(bytes, one, sizeof one);
        }
    }
    for (uint32_t slot = 0; slot < v->config.slot_count && l->light; slot++) {
        const uint32_t one[] = {slot, l->slots[slot].next, l->slots[slot].used};
        if (l->slots[slot].bucket == DIRECT)
            rt_bytes_put(bytes, one, sizeof one);
    }
    if (l->light)
        rt_bytes_put_u32(bytes, l->hand);
}

static rt_status load(dp_eviction *v, const bool *is_used, rt_reader *reader)
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
    l->hand = 0;
    if (l->light)
        l->hand = rt_reader_u32(reader);
    if (reader->failed || l->hand >= v->config.slot_count)
        return RT_DATA;
    return RT_OK;
}

const dp_eviction_rules dp_eviction_lru = {.init = init_lru,
                                           .use = use,
                                           .free = free_slot,
                                           .victim = victim,
                                           .is_candidate = is_candidate,
                                           .save = save,
                                           .load = load};

const dp_eviction_rules dp_eviction_lfu = {.init = init_lfu,
                                           .use = use,
                                           .free = free_slot,
                                           .victim = victim,
                                           .is_candidate = is_candidate,
                                           .save = save,
                                           .load = load};

const dp_eviction_rules dp_eviction_light_lfu = {.init = init_light,
                                                 .use = use,
                                                 .free = free_slot,
                                                 .victim = light_victim,
                                                 .is_candidate = is_candidate,
                                                 .save = save,
                                                 .load = load};
