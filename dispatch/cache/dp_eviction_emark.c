// The rule of ESD: marks, then frequencies. See dp_eviction.h.
#include <stddef.h>

#include "dispatch/cache/dp_eviction_parts.h"
#include "dispatch/cache/dp_sort.h"
#include "runtime/wire/rt_fields.h"

#define NONE DP_EVICTION_NONE

typedef dp_eviction_marks emark;

static rt_status init(dp_eviction *v)
{
    emark *e = &v->emark;
    const uint32_t slot_count = v->config.slot_count;
    e->slots = rt_alloc(slot_count, sizeof *e->slots);
    e->order = rt_alloc_unset(slot_count, sizeof *e->order);
    e->scratch = rt_alloc_unset(slot_count, sizeof *e->scratch);
    e->target = 1;
    e->pinned_cursor = NONE;
    v->slots = e->slots;
    if (!e->slots || !e->order || !e->scratch)
        return RT_NO_MEMORY;
    return dp_outdated_init(&e->outdated, e->slots, v->bytes, e->scratch, slot_count);
}

static void use(dp_eviction *v, uint32_t slot, uint32_t iteration)
{
    emark *e = &v->emark;
    dp_emark_slot *s = &e->slots[slot];
    dp_outdated_remove(&e->outdated, slot);
    s->mark = e->target;
    s->frequency++;
    s->used = iteration;
}

static void free_slot(dp_eviction *v, uint32_t slot)
{
    dp_outdated_remove(&v->emark.outdated, slot);
    v->emark.slots[slot] = (dp_emark_slot){0};
}

static bool is_candidate(const dp_eviction *v, uint32_t slot, uint32_t iteration)
{
    return v->emark.slots[slot].mark && v->emark.slots[slot].used != iteration;
}

static void grow_target(dp_eviction *v)
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

static uint32_t next_old(dp_eviction *v, uint32_t iteration)
{
    emark *e = &v->emark;
    for (; e->cursor < e->order_count; e->cursor++) {
        uint32_t slot = (uint32_t)e->order[e->cursor];
        const dp_emark_slot *s = &e->slots[slot];
        if (s->mark == 0 || s->mark == e->target)
            continue;
        if (!dp_eviction_pins(v, slot, s->used, iteration))
            return slot;
        if (e->pinned_cursor == NONE)
            e->pinned_cursor = e->cursor;
    }
    return NONE;
}

static bool all_pinned(const dp_eviction *v, uint32_t iteration)
{
    for (uint32_t slot = 0; slot < v->config.slot_count; slot++) {
        const dp_emark_slot *s = &v->emark.slots[slot];
        if (s->mark && !dp_eviction_pins(v, slot, s->used, iteration))
            return false;
    }
    return true;
}

static uint32_t victim(dp_eviction *v, uint32_t iteration)
{
    emark *e = &v->emark;
    if (iteration != e->iteration && e->pinned_cursor != NONE) {
        e->cursor = e->pinned_cursor;
        e->pinned_cursor = NONE;
    }
    e->iteration = iteration;
    uint32_t slot = next_old(v, iteration);
    // What is left of the older marks is in use right now: ESD's condition "all marks equal target"
    // as far as anything can be evicted. The rows in use keep their older mark until used again.
    if (slot == NONE && !all_pinned(v, iteration)) {
        grow_target(v);
        slot = next_old(v, iteration);
    }
    if (slot == NONE)
        return DP_NO_SLOT;
    return slot;
}

// ---- saving ----------------------------------------------------------------------------------

// Which copies are outdated is a list of its own.
#define SLOT(XX, PART, NONE, T) \
    XX(T, mark)                 \
    XX(T, frequency)            \
    XX(T, used)                 \
    NONE(T, where)
RT_FIELDS(slot_fields, dp_emark_slot, SLOT, "mark:4 frequency:4 used:4");

typedef struct {
    uint32_t target, order_count, cursor, pinned_cursor, iteration;
} saved_head;

#define HEAD(XX, PART, NONE, T) \
    XX(T, target)               \
    XX(T, order_count)          \
    XX(T, cursor)               \
    XX(T, pinned_cursor)        \
    XX(T, iteration)
RT_FIELDS(head_fields, saved_head, HEAD,
          "target:4 order_count:4 cursor:4 pinned_cursor:4 iteration:4");

static void save(const dp_eviction *v, rt_bytes *bytes)
{
    const emark *e = &v->emark;
    const saved_head head = {e->target, e->order_count, e->cursor, e->pinned_cursor, e->iteration};
    rt_fields_put(bytes, &head_fields, &head, 1);
    rt_fields_put(bytes, &slot_fields, e->slots, v->config.slot_count);
    rt_bytes_put(bytes, e->order, e->order_count * sizeof *e->order);
}

static rt_status load(dp_eviction *v, const bool *is_used, rt_reader *reader)
{
    emark *e = &v->emark;
    const uint32_t count = v->config.slot_count;
    saved_head head;
    if (!rt_fields_get(reader, &head_fields, &head, 1) || head.target == 0 ||
        head.order_count > count || head.cursor > head.order_count ||
        (head.pinned_cursor != NONE && head.pinned_cursor > head.order_count))
        return RT_DATA;
    e->target = head.target;
    e->order_count = head.order_count;
    e->cursor = head.cursor;
    e->pinned_cursor = head.pinned_cursor;
    e->iteration = head.iteration;
    if (!rt_fields_get(reader, &slot_fields, e->slots, count))
        return RT_DATA;
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

const dp_eviction_rules dp_eviction_emark = {.keeps = true,
                                             .weighs = true,
                                             .init = init,
                                             .use = use,
                                             .free = free_slot,
                                             .victim = victim,
                                             .is_candidate = is_candidate,
                                             .save = save,
                                             .load = load};
