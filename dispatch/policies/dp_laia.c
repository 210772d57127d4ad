// Herald's location-aware inputs allocation (NSDI'24, Algorithm 1): in the order of the batch, each
// sample goes to the worker that holds the most of its rows in their latest version and has room;
// ties are broken at random. Link rates play no part.
//
// With dispatch.tables its adaptive scheduler chooses the tables whose rows count (section 4.3).
// The minimal communication plan (Algorithm 2: a row is synchronised when another worker needs it)
// is what dp_commit always does unless dispatch.full_sync.
#include <string.h>

#include "dispatch/policies/dp_herald.h"
#include "dispatch/policies/dp_policy.h"
#include "runtime/rt_hash.h"

#define LOOK_UPS_AT_ONCE 255u
#define GROUPS_MAX (RT_WORKERS_MAX / 8)

// Where boxes are told: a point for every worker that has the row without a link.
static inline void score_boxes(const dp_view *view, uint32_t lookup, uint32_t *score)
{
    const dp_distinct *key = &view->distinct[lookup];
    for (uint32_t j = 0; j < view->worker_count; j++)
        score[j] += key->holders >> j & 1 || key->box == view->ticks->box_of[j];
}

// A point for every worker that holds the latest version of the row of one look-up.
static inline void score_look_up(const dp_view *view, uint32_t lookup, uint32_t *score)
{
    uint32_t held = view->held[lookup];
    if (view->ticks->box_count) {
        score_boxes(view, lookup, score);
        return;
    }
    if (held == DP_HELD_BY_NONE)
        return;
    if (held != DP_HELD_BY_MANY) {
        score[held & DP_HELD_WORKER]++;
        return;
    }
    for (uint64_t rest = view->distinct[lookup].holders; rest; rest &= rest - 1)
        score[rt_lowest_bit(rest)]++;
}

// The worker with the highest score that has room, ties at random; takes one place of its room.
static uint32_t choose_worker(rt_random *random, const uint32_t *score, uint32_t *room,
                              uint32_t worker_count)
{
    uint32_t best = RT_WORKERS_MAX, ties = 0;
    for (uint32_t j = 0; j < worker_count; j++) {
        if (!room[j] || (best != RT_WORKERS_MAX && score[j] < score[best]))
            continue;
        if (best == RT_WORKERS_MAX || score[j] > score[best]) {
            best = j;
            ties = 1;
        } else if (rt_random_below(random, ++ties) == 0) {
            best = j;
        }
    }
    room[best]--;
    return best;
}

typedef struct {
    rt_random random;
    uint32_t *scores;     // sample_count_max x worker_count
    uint32_t table_count; // to score; 0: all, and there is no profile
    dp_herald_profile profile;
} laia;

static void destroy(void *state)
{
    laia *self = state;
    rt_free(self->scores);
    rt_free(self);
}

static rt_status create(const dp_policy_config *config, void **state_p, rt_error *error)
{
    laia *self = rt_alloc(1, sizeof *self);
    if (self)
        self->scores = rt_alloc_unset((size_t)config->sample_count_max * config->worker_count,
                                      sizeof *self->scores);
    if (!self || !self->scores) {
        rt_free(self);
        return rt_fail(error, RT_NO_MEMORY, "out of memory for policy laia");
    }
    self->random = (rt_random){rt_mix(config->seed ^ UINT64_C(0x6c616961))};
    self->table_count = config->dispatch.tables;
    *state_p = self;
    return RT_OK;
}

typedef struct {
    const dp_view *view;
    uint32_t *scores;
    uint32_t part_count;
} scoring;

// Eight workers, one bit each, to a byte each: seven copies of the lower bits, of which each gives
// one.
static inline uint64_t bytes_of(uint64_t holders)
{
    return ((holders & 0x7f) * UINT64_C(0x0002040810204081) & UINT64_C(0x0101010101010101)) |
           (holders & 0x80) << 49;
}

// Scores of so few look-ups that they fit into a byte for each worker, groups of eight at once.
static inline __attribute__((always_inline)) void
add_look_ups(const dp_view *view, uint32_t from, uint32_t until, uint32_t groups, uint32_t *score)
{
    uint64_t sums[GROUPS_MAX];
    for (uint32_t g = 0; g < groups; g++)
        sums[g] = 0;
    for (uint32_t k = from; k < until; k++) {
        const uint64_t holders = view->distinct[view->lookups[k]].holders;
        for (uint32_t g = 0; g < groups; g++)
            sums[g] += bytes_of(holders >> 8 * g & 0xff);
    }
    for (uint32_t j = 0; j < view->worker_count; j++)
        score[j] += (uint32_t)(sums[j / 8] >> 8 * (j % 8) & 0xff);
}

static void score_sample(const dp_view *view, uint32_t sample, uint32_t *score)
{
    const uint32_t end = view->offsets[sample + 1], groups = (view->worker_count + 7) / 8;
    for (uint32_t from = view->offsets[sample]; from < end; from += LOOK_UPS_AT_ONCE) {
        const uint32_t until = (uint32_t)rt_min_u64((uint64_t)from + LOOK_UPS_AT_ONCE, end);
        if (view->ticks->box_count)
            for (uint32_t k = from; k < until; k++)
                score_look_up(view, view->lookups[k], score);
        else if (groups == 1) // the compiler keeps the sum in a register
            add_look_ups(view, from, until, 1, score);
        else
            add_look_ups(view, from, until, groups, score);
    }
}

static void score_some(void *context, uint32_t part)
{
    const scoring *all = context;
    const dp_view *view = all->view;
    const uint64_t count = view->sample_count;
    const uint32_t end = (uint32_t)(count * (part + 1) / all->part_count);
    for (uint32_t i = (uint32_t)(count * part / all->part_count); i < end; i++) {
        uint32_t score[RT_WORKERS_MAX] = {0};
        score_sample(view, i, score);
        memcpy(all->scores + (size_t)i * view->worker_count, score,
               view->worker_count * sizeof *score);
    }
}

typedef struct {
    uint32_t count;
    uint8_t fields[RT_FIELDS_MAX]; // ascending
    bool scored[RT_FIELDS_MAX];
} tables;

static void score_tables(const dp_view *view, const tables *t, uint32_t sample, uint32_t *score)
{
    const uint32_t *lookups = view->lookups + view->offsets[sample];
    uint32_t count = view->offsets[sample + 1] - view->offsets[sample];
    if (view->uniform) {
        for (uint32_t k = 0; k < t->count; k++)
            score_look_up(view, lookups[t->fields[k]], score);
        return;
    }
    for (uint32_t k = 0; k < count; k++) {
        if (t->scored[view->distinct[lookups[k]].field])
            score_look_up(view, lookups[k], score);
    }
}

static void score_by_tables(laia *self, const dp_view *view)
{
    tables t = {0};
    dp_herald_count(&self->profile, view);
    t.count =
        dp_herald_choose(&self->profile, view->ticks->field_count, self->table_count, t.fields);
    for (uint32_t k = 0; k < t.count; k++)
        t.scored[t.fields[k]] = true;
    memset(self->scores, 0, (size_t)view->sample_count * view->worker_count * sizeof *self->scores);
    for (uint32_t i = 0; i < view->sample_count; i++)
        score_tables(view, &t, i, self->scores + (size_t)i * view->worker_count);
}

static void place(void *state, const dp_view *view, uint32_t *worker_of_sample)
{
    laia *self = state;
    scoring all = {view, self->scores, rt_pool_threads(view->pool)};
    uint32_t room[RT_WORKERS_MAX];
    if (self->table_count > 0)
        score_by_tables(self, view);
    else
        rt_pool_run(view->pool, all.part_count, score_some, &all);
    memcpy(room, view->capacity, view->worker_count * sizeof *room);
    for (uint32_t i = 0; i < view->sample_count; i++)
        worker_of_sample[i] = choose_worker(
            &self->random, self->scores + (size_t)i * view->worker_count, room, view->worker_count);
}

static void configure(void *state, const rt_dispatch_config *dispatch)
{
    ((laia *)state)->table_count = dispatch->tables;
}

#define PROFILE(XX, PART, NONE, T) \
    XX(T, cached)                  \
    XX(T, infrequent)
RT_FIELDS(profile_fields, dp_herald_profile, PROFILE, "cached:2048 infrequent:2048");

static void save(const void *state, rt_bytes *bytes)
{
    const laia *self = state;
    rt_fields_put(bytes, &dp_policy_random_fields, &self->random, 1);
    if (self->table_count > 0)
        rt_fields_put(bytes, &profile_fields, &self->profile, 1);
}

// What herald wrote, a policy of its own before, has a profile with all tables, too.
static bool load(void *state, rt_reader *reader)
{
    laia *self = state;
    if (!rt_fields_get(reader, &dp_policy_random_fields, &self->random, 1))
        return false;
    return reader->left == 0 || rt_fields_get(reader, &profile_fields, &self->profile, 1);
}

const dp_policy_ops dp_policy_laia = {.name = "laia",
                                      .traits = DP_POLICY_REFERENCE | DP_POLICY_SNAPSHOTS |
                                                DP_POLICY_TABLES,
                                      .create = create,
                                      .destroy = destroy,
                                      .place = place,
                                      .configure = configure,
                                      .save = save,
                                      .load = load};
