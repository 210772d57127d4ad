// herald: LAIA's choice, scored over the tables where the place of a sample matters most. With all
// tables it is laia. The minimal communication plan (Herald, Algorithm 2: a row is synchronised
// when another worker needs it) is what dp_commit always does unless dispatch.full_sync.
#include "dispatch/policies/dp_herald.h"

#include <string.h>

#include "dispatch/policies/dp_policy.h"
#include "dispatch/policies/dp_laia.h"

typedef struct {
    rt_random random;
    uint32_t table_count; // to score; 0: all
    dp_herald_profile profile;
} herald;

// ---- profile ---------------------------------------------------------------------------------

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

// ---- policy ----------------------------------------------------------------------------------

static rt_status create(const dp_policy_config *config, void **state_p, rt_error *error)
{
    herald *self = rt_alloc(1, sizeof *self);
    if (!self)
        return rt_fail(error, RT_NO_MEMORY, "out of memory for policy herald");
    self->random = dp_laia_random(config->seed);
    self->table_count = config->dispatch.tables;
    *state_p = self;
    return RT_OK;
}

typedef struct {
    uint32_t count;
    uint8_t fields[RT_FIELDS_MAX]; // ascending
    bool scored[RT_FIELDS_MAX];
} tables;

static void score_sample(const dp_view *view, const tables *t, uint32_t sample, uint32_t *score)
{
    const uint32_t *lookups = view->lookups + view->offsets[sample];
    uint32_t count = view->offsets[sample + 1] - view->offsets[sample];
    if (view->uniform) {
        for (uint32_t k = 0; k < t->count; k++)
            dp_laia_score(view, lookups[t->fields[k]], score);
        return;
    }
    for (uint32_t k = 0; k < count; k++) {
        if (t->scored[view->distinct[lookups[k]].field])
            dp_laia_score(view, lookups[k], score);
    }
}

static void place(void *state, const dp_view *view, uint32_t *worker_of_sample)
{
    herald *self = state;
    uint32_t room[RT_WORKERS_MAX];
    tables t = {0};
    dp_herald_count(&self->profile, view);
    t.count =
        dp_herald_choose(&self->profile, view->ticks->field_count, self->table_count, t.fields);
    for (uint32_t k = 0; k < t.count; k++)
        t.scored[t.fields[k]] = true;
    memcpy(room, view->capacity, view->worker_count * sizeof *room);
    for (uint32_t i = 0; i < view->sample_count; i++) {
        uint32_t score[RT_WORKERS_MAX] = {0};
        score_sample(view, &t, i, score);
        worker_of_sample[i] = dp_laia_choose(&self->random, score, room, view->worker_count);
    }
}

static void configure(void *state, const rt_dispatch_config *dispatch)
{
    ((herald *)state)->table_count = dispatch->tables;
}

#define PROFILE(XX, PART, NONE, T) \
    XX(T, cached)                  \
    XX(T, infrequent)
RT_FIELDS(profile_fields, dp_herald_profile, PROFILE, "cached:2048 infrequent:2048");

static void save(const void *state, rt_bytes *bytes)
{
    const herald *self = state;
    rt_fields_put(bytes, &dp_policy_random_fields, &self->random, 1);
    rt_fields_put(bytes, &profile_fields, &self->profile, 1);
}

static bool load(void *state, rt_reader *reader)
{
    herald *self = state;
    return rt_fields_get(reader, &dp_policy_random_fields, &self->random, 1) &&
           rt_fields_get(reader, &profile_fields, &self->profile, 1);
}

const dp_policy_ops dp_policy_herald = {.name = "herald",
                                        .traits = DP_POLICY_TABLES | DP_POLICY_SNAPSHOTS,
                                        .create = create,
                                        .destroy = rt_free,
                                        .place = place,
                                        .configure = configure,
                                        .save = save,
                                        .load = load};
