#include "tests/support/eviction_model.h"

#include "dispatch/plan/dp_plan.h"

void eviction_model_init(eviction_model *m, rt_eviction_kind kind, uint32_t slot_count)
{
    *m = (eviction_model){.kind = kind, .slot_count = slot_count, .target = 1};
    m->slots = rt_alloc(slot_count, sizeof *m->slots);
    rt_assert(m->slots != NULL);
}

void eviction_model_fini(eviction_model *m)
{
    rt_free(m->slots);
    m->slots = NULL;
}

void eviction_model_use(eviction_model *m, uint32_t slot, uint32_t iteration)
{
    eviction_model_slot *s = &m->slots[slot];
    m->occupied += !s->occupied;
    s->occupied = true;
    s->outdated = false;
    s->mark = m->target;
    s->frequency++;
    s->used = iteration;
    s->at = ++m->uses;
    s->direct |= m->kind == RT_EVICT_LIGHT_LFU && s->frequency == 10;
}

// To emark such a copy is the first to go; to the others it is a free slot.
void eviction_model_outdate(eviction_model *m, uint32_t slot)
{
    if (m->kind == RT_EVICT_EMARK)
        m->slots[slot].outdated = true;
    else
        eviction_model_free(m, slot);
}

void eviction_model_free(eviction_model *m, uint32_t slot)
{
    m->slots[slot] = (eviction_model_slot){0};
    m->occupied--;
}

bool eviction_model_is_candidate(const eviction_model *m, uint32_t slot, uint32_t iteration)
{
    return m->slots[slot].occupied && m->slots[slot].used != iteration;
}

void eviction_model_expect(eviction_model *m, uint32_t slot, uint32_t next)
{
    m->slots[slot].next = next;
}

bool eviction_model_is_needed(const eviction_model *m, uint32_t slot, uint32_t iteration)
{
    return m->slots[slot].next > iteration;
}

static bool goes_before(const eviction_model *m, uint32_t a, uint32_t b)
{
    const eviction_model_slot *x = &m->slots[a], *y = &m->slots[b];
    switch (m->kind) {
    case RT_EVICT_EMARK:
        if (x->mark != y->mark)
            return x->mark < y->mark;
        if (m->by_bytes && (double)x->frequency / x->bytes != (double)y->frequency / y->bytes)
            return (double)x->frequency / x->bytes < (double)y->frequency / y->bytes;
        if (!m->by_bytes && x->frequency != y->frequency)
            return x->frequency < y->frequency;
        return a < b;
    case RT_EVICT_LRU:
    case RT_EVICT_TTL:
        return x->at < y->at;
    case RT_EVICT_LFU:
    case RT_EVICT_LIGHT_LFU:
        return x->frequency != y->frequency ? x->frequency < y->frequency : x->at < y->at;
    }
    return false;
}

// Of rows that will all be needed: the last one needed.
static uint32_t last_needed(const eviction_model *m, uint32_t iteration)
{
    uint32_t best = DP_NO_SLOT;
    for (uint32_t slot = 0; slot < m->slot_count; slot++) {
        if (eviction_model_is_candidate(m, slot, iteration) &&
            (best == DP_NO_SLOT || m->slots[slot].next > m->slots[best].next))
            best = slot;
    }
    return best;
}

static uint32_t first_outdated(const eviction_model *m)
{
    uint32_t best = DP_NO_SLOT;
    for (uint32_t slot = 0; slot < m->slot_count; slot++) {
        if (m->slots[slot].outdated && (best == DP_NO_SLOT || goes_before(m, slot, best)))
            best = slot;
    }
    return best;
}

static bool may_go(const eviction_model *m, uint32_t slot, uint32_t iteration)
{
    return eviction_model_is_candidate(m, slot, iteration) &&
           !eviction_model_is_needed(m, slot, iteration);
}

// light_lfu: the hand passes over the next slot.
static void pass(eviction_model *m, uint32_t iteration)
{
    eviction_model_slot *s = &m->slots[m->hand];
    if (may_go(m, m->hand, iteration) && s->frequency > 1) {
        s->frequency /= 2;
        s->direct = s->frequency >= 10;
        if (!s->direct)
            s->at = --m->passed;
    }
    m->hand = (m->hand + 1) % m->slot_count;
}

static void decay(eviction_model *m, uint32_t iteration)
{
    bool any = false, direct = false;
    pass(m, iteration);
    for (uint32_t slot = 0; slot < m->slot_count; slot++) {
        any |= may_go(m, slot, iteration) && !m->slots[slot].direct;
        direct |= may_go(m, slot, iteration) && m->slots[slot].direct;
    }
    while (!any && direct) {
        const uint32_t slot = m->hand;
        pass(m, iteration);
        any = may_go(m, slot, iteration) && !m->slots[slot].direct;
    }
}

uint32_t eviction_model_victim(eviction_model *m, uint32_t iteration)
{
    uint32_t best = first_outdated(m);
    bool all_at_target = true;
    if (best != DP_NO_SLOT)
        return best;
    if (m->kind == RT_EVICT_LIGHT_LFU && m->only_needed != iteration)
        decay(m, iteration);
    for (uint32_t slot = 0; slot < m->slot_count; slot++) {
        if (!may_go(m, slot, iteration) || m->slots[slot].direct)
            continue;
        all_at_target &= m->slots[slot].mark == m->target;
        if (best == DP_NO_SLOT || goes_before(m, slot, best))
            best = slot;
    }
    if (best != DP_NO_SLOT && all_at_target)
        m->target++;
    if (best != DP_NO_SLOT)
        return best;
    m->only_needed = iteration; // what the others are asked for by now
    return last_needed(m, iteration);
}
