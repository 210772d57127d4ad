#include "dispatch/cache/dp_eviction_parts.h"

#include <string.h>

#include "dispatch/cache/dp_sort.h"

rt_status dp_outdated_init(dp_outdated *o, dp_emark_slot *slots, const uint32_t *bytes,
                           uint64_t *scratch, uint32_t slot_count)
{
    memset(o, 0, sizeof *o);
    o->slots = slots;
    o->bytes = bytes;
    o->scratch = scratch;
    o->capacity = slot_count + slot_count / 4 + 1; // a quarter more pays for making it one tail
    o->items = rt_alloc_unset(o->capacity, sizeof *o->items);
    if (!o->items)
        return RT_NO_MEMORY;
    return RT_OK;
}

void dp_outdated_fini(dp_outdated *o)
{
    rt_free(o->items);
    memset(o, 0, sizeof *o);
}

static uint32_t slot_at(const dp_outdated *o, uint32_t at)
{
    return (uint32_t)o->items[at];
}

static bool is_valid(const dp_outdated *o, uint32_t at)
{
    return o->slots[slot_at(o, at)].where == at + 1;
}

static bool goes_first(const dp_outdated *o, uint32_t a, uint32_t b)
{
    const dp_emark_slot *x = &o->slots[a], *y = &o->slots[b];
    if (x->mark != y->mark)
        return x->mark < y->mark;
    const uint64_t left = (uint64_t)x->frequency * (o->bytes ? o->bytes[b] : 1);
    const uint64_t right = (uint64_t)y->frequency * (o->bytes ? o->bytes[a] : 1);
    return left != right ? left < right : a < b;
}

// Everything from index `from` on is tail: entries that are not valid leave it.
static void tidy(dp_outdated *o, uint32_t from)
{
    uint32_t kept = from;
    for (uint32_t i = from; i < o->count; i++) {
        if (!is_valid(o, i))
            continue;
        o->items[kept] = o->items[i];
        o->slots[slot_at(o, kept)].where = kept + 1;
        kept++;
    }
    o->tail = from;
    o->count = kept;
    if (from == 0)
        o->run_count = 0;
}

void dp_outdated_add(dp_outdated *o, uint32_t slot)
{
    rt_assert(o->slots[slot].where == 0);
    if (o->valid_count == 0 || o->count == o->capacity)
        tidy(o, 0);
    o->valid_count++;
    o->items[o->count++] = slot;
    o->slots[slot].where = o->count;
}

// By frequency, or frequency per byte, and slot; then by mark.
static void sort(const dp_outdated *o, uint64_t *items, uint32_t count)
{
    bool marks_differ = false;
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t slot = (uint32_t)items[i];
        items[i] = (uint64_t)o->slots[slot].frequency << 32 | slot;
        marks_differ |= o->slots[slot].mark != o->slots[(uint32_t)items[0]].mark;
    }
    dp_sort_bits(items, o->scratch, count, 0, o->bytes ? 32 : 64);
    if (o->bytes)
        dp_sort_by_worth(items, o->scratch, count, o->bytes);
    if (!marks_differ)
        return;
    for (uint32_t i = 0; i < count; i++)
        items[i] = (uint64_t)o->slots[(uint32_t)items[i]].mark << 32 | (uint32_t)items[i];
    dp_sort_upper(items, o->scratch, count);
}

static void order_tail(dp_outdated *o)
{
    const uint32_t from = o->run_count < DP_OUTDATED_RUNS_MAX ? o->tail : 0;
    tidy(o, from);
    sort(o, o->items + o->tail, o->count - o->tail);
    for (uint32_t i = o->tail; i < o->count; i++)
        o->slots[slot_at(o, i)].where = i + 1;
    o->runs[o->run_count++] = (dp_outdated_run){o->tail, o->count};
    o->tail = o->count;
}

uint32_t dp_outdated_first(dp_outdated *o)
{
    uint32_t first = UINT32_MAX;
    rt_assert(o->valid_count > 0);
    if (o->tail < o->count)
        order_tail(o);
    for (uint32_t r = 0; r < o->run_count;) {
        dp_outdated_run *run = &o->runs[r];
        while (run->head < run->end && !is_valid(o, run->head))
            run->head++;
        if (run->head == run->end) {
            *run = o->runs[--o->run_count];
            continue;
        }
        const uint32_t slot = slot_at(o, run->head);
        if (first == UINT32_MAX || goes_first(o, slot, first))
            first = slot;
        r++;
    }
    rt_assert(first != UINT32_MAX); // every valid entry is in a run
    return first;
}
