#include "dispatch/policies/dp_herald.h"

static void add_weighted(uint64_t *sum, uint64_t count)
{
    *sum += count * DP_HERALD_UNIT - (*sum >> DP_HERALD_DECAY);
}

void dp_herald_count(dp_herald_profile *profile, const dp_view *view)
{
    uint64_t frequent[RT_FIELDS_MAX] = {0};
    for (uint32_t d = 0; d < view->distinct_count; d++) {
        const dp_distinct *key = &view->distinct[d];
        if ((uint64_t)key->uses * view->worker_count >= view->sample_count)
            frequent[key->field] += rt_bit_count(key->holders);
    }
    for (uint32_t f = 0; f < view->ticks->field_count; f++) {
        add_weighted(&profile->cached[f], view->cached[f]);
        add_weighted(&profile->infrequent[f], view->cached[f] - frequent[f]);
    }
}

// Fractions compared by cross products: a > b. With nothing cached the degree is 0.
static bool has_higher_degree(const dp_herald_profile *profile, uint32_t a, uint32_t b)
{
    unsigned __int128 left = (unsigned __int128)profile->infrequent[a] * profile->cached[b];
    unsigned __int128 right = (unsigned __int128)profile->infrequent[b] * profile->cached[a];
    if (profile->cached[a] == 0 || profile->cached[b] == 0)
        return profile->infrequent[a] > 0 && profile->cached[b] == 0;
    return left > right;
}

uint32_t dp_herald_choose(const dp_herald_profile *profile, uint32_t field_count, uint32_t count,
                          uint8_t *fields)
{
    uint8_t ranked[RT_FIELDS_MAX];
    bool chosen[RT_FIELDS_MAX] = {false};
    uint32_t chosen_count = 0;
    if (count == 0 || count > field_count)
        count = field_count;
    for (uint32_t f = 0; f < field_count; f++) { // insertion keeps equal ones in order
        uint32_t at = f;
        for (; at > 0 && has_higher_degree(profile, f, ranked[at - 1]); at--)
            ranked[at] = ranked[at - 1];
        ranked[at] = (uint8_t)f;
    }
    for (uint32_t i = 0; i < count; i++)
        chosen[ranked[i]] = true;
    for (uint32_t f = 0; f < field_count; f++) {
        if (chosen[f])
            fields[chosen_count++] = (uint8_t)f;
    }
    return chosen_count;
}
