// Herald's adaptive scheduling: the profile against a count over all copies in caches,
// the choice of tables against a sort, placements against Algorithm 1 over the chosen tables.
#include "tests/support/test.h"

#include <stdlib.h>
#include <string.h>

#include "dispatch/policies/dp_herald.h"
#include "runtime/config/rt_policies.h"
#include "tests/support/planner_case.h"

// ---- profile ------------------------------------------------------------------------------------

// Exact sums of the weights that dp_herald.h promises, and how far rounding down may be away.
typedef struct {
    double cached[RT_FIELDS_MAX], infrequent[RT_FIELDS_MAX];
} weights;

static uint32_t samples_with(const rt_batch *batch, uint64_t key)
{
    uint32_t count = 0;
    for (uint32_t k = 0; k < batch->key_count; k++)
        count += batch->keys[k] == key; // no key stands twice in a sample
    return count;
}

// Herald, section 3.2: an embedding in a cache is infrequent if fewer samples have it than one
// worker trains.
static void add_key(weights *w, const rt_batch *batch, uint32_t workers, uint64_t key,
                    uint64_t holders)
{
    const double copies = (double)rt_bit_count(holders) * DP_HERALD_UNIT;
    const uint32_t f = rt_key_field(key);
    w->cached[f] += copies;
    if (samples_with(batch, key) * workers < batch->sample_count)
        w->infrequent[f] += copies;
}

static void add_naively(weights *w, const planner_case *pc)
{
    const dp_directory *directory = dp_planner_directory(pc->planner);
    const uint32_t workers = pc->shape.worker_count;
    for (uint32_t f = 0; f < pc->shape.field_count; f++) {
        w->cached[f] *= 31.0 / 32;
        w->infrequent[f] *= 31.0 / 32;
    }
    if (pc->shape.dispatch.view == RT_VIEW_STRICT) { // what the checker of plans has seen
        for (uint32_t i = 0; i < plan_checker_key_count(pc->checker); i++) {
            uint64_t key = plan_checker_key_at(pc->checker, i);
            add_key(w, &pc->batch, workers, key, plan_checker_find(pc->checker, key).holders);
        }
        return;
    }
    for (uint64_t i = 0; i <= directory->mask; i++) { // test_viewed checks these holders
        const dp_entry *entry = &directory->entries[i];
        if (entry->record)
            add_key(w, &pc->batch, workers, entry->key,
                    directory->records[entry->record - 1].viewed.holders);
    }
}

// A shift rounds what goes down: less than 1 stays too much each time, 32 in the long run.
static void check_weight(uint64_t got, double want)
{
    assert_true((double)got > want - 1e-3 && (double)got < want + 32);
}

static void profile_counts(void **state)
{
    (void)state;
    for (uint32_t round = 0; round < 6; round++) {
        planner_shape shape = {.seed = round,
                               .worker_count = 2 + round,
                               .sample_count_max = 60,
                               .field_count = 7,
                               .ids_per_field = 30 + 20 * round,
                               .bag_max = 1 + round % 3,
                               .zipf = 1.1,
                               .cache = (cache_size)(round % 3),
                               .eviction = (rt_eviction_kind)(round / 2),
                               .dispatch = {.policy = RT_POLICY_LAIA,
                                            .tables = 7,
                                            .view = round % 2 ? RT_VIEW_STRICT : RT_VIEW_AUTO}};
        dp_herald_profile profile = {0};
        weights want = {0};
        planner_case pc;
        bool mixed = false;
        planner_case_init(&pc, &shape);
        for (uint32_t t = 0; t < 70; t++) {
            planner_case_look_up(&pc, t % 5 ? 60 : 11);
            dp_herald_count(&profile, dp_planner_view(pc.planner));
            add_naively(&want, &pc);
            planner_case_commit(&pc);
            for (uint32_t f = 0; f < RT_FIELDS_MAX; f++) {
                check_weight(profile.cached[f], want.cached[f]);
                check_weight(profile.infrequent[f], want.infrequent[f]);
                mixed |= profile.infrequent[f] > 0 && profile.infrequent[f] < profile.cached[f];
            }
        }
        assert_true(mixed);
        planner_case_fini(&pc);
    }
}

// ---- choice -------------------------------------------------------------------------------------

static double degree(const dp_herald_profile *p, uint32_t f)
{
    return p->cached[f] ? (double)p->infrequent[f] / (double)p->cached[f] : 0;
}

static void chooses_the_highest(void **state)
{
    (void)state;
    rt_random random = {5};
    for (uint32_t round = 0; round < 3000; round++) {
        static dp_herald_profile p;
        uint32_t n = 1 + rt_random_below(&random, round % 10 ? 30 : RT_FIELDS_MAX);
        uint32_t k = rt_random_below(&random, n + 3);
        uint8_t fields[RT_FIELDS_MAX];
        bool chosen[RT_FIELDS_MAX] = {false};
        for (uint32_t f = 0; f < n; f++) { // small numbers: many equal quotients
            p.cached[f] = rt_random_below(&random, 8) * 6;
            p.infrequent[f] = p.cached[f] * rt_random_below(&random, 7) / 6;
        }
        uint32_t count = dp_herald_choose(&p, n, k, fields);
        assert_int_equal(count, k == 0 || k > n ? n : k);
        for (uint32_t i = 0; i < count; i++) {
            assert_true(fields[i] < n && (i == 0 || fields[i] > fields[i - 1]));
            chosen[fields[i]] = true;
        }
        for (uint32_t in = 0; in < n; in++) {
            for (uint32_t out = 0; chosen[in] && out < n; out++) {
                if (chosen[out])
                    continue;
                assert_true(degree(&p, in) > degree(&p, out) ||
                            (degree(&p, in) == degree(&p, out) && in < out));
            }
        }
    }
}

// Counts beyond 2^32, whose products do not fit 64 bits.
static void big_counts(void **state)
{
    (void)state;
    static dp_herald_profile p;
    uint8_t fields[RT_FIELDS_MAX];
    for (uint32_t f = 0; f < 3; f++)
        p.cached[f] = UINT64_C(1) << 53;
    p.infrequent[0] = (UINT64_C(1) << 52) + 1;
    p.infrequent[1] = (UINT64_C(1) << 52) + 3;
    p.infrequent[2] = (UINT64_C(1) << 52) + 2;
    assert_int_equal(dp_herald_choose(&p, 3, 2, fields), 2);
    assert_true(fields[0] == 1 && fields[1] == 2);
}

// ---- placements ---------------------------------------------------------------------------------

// Algorithm 1 over the given tables: every sample in its turn goes where most of its rows are, of
// the workers with room.
static void check_placement(const planner_case *pc, const uint8_t *fields, uint32_t field_count)
{
    const dp_view *view = dp_planner_view(pc->planner);
    const uint32_t *placement = dp_planner_placement(pc->planner);
    uint32_t room[RT_WORKERS_MAX];
    memcpy(room, view->capacity, sizeof *room * view->worker_count);
    for (uint32_t i = 0; i < view->sample_count; i++) {
        uint32_t score[RT_WORKERS_MAX] = {0}, best = 0;
        for (uint32_t k = view->offsets[i]; k < view->offsets[i + 1]; k++) {
            const dp_distinct *key = &view->distinct[view->lookups[k]];
            if (!memchr(fields, key->field, field_count))
                continue;
            for (uint32_t j = 0; j < view->worker_count; j++)
                score[j] += (uint32_t)(key->holders >> j & 1);
        }
        for (uint32_t j = 0; j < view->worker_count; j++)
            best = room[j] && score[j] > best ? score[j] : best;
        assert_true(room[placement[i]] > 0);
        assert_int_equal(score[placement[i]], best);
        room[placement[i]]--;
    }
}

static void places_by_the_chosen_tables(void **state)
{
    (void)state;
    for (uint32_t round = 0; round < 12; round++) {
        planner_shape shape = {.seed = round,
                               .worker_count = 2 + round % 5,
                               .sample_count_max = 40,
                               .field_count = 6,
                               .ids_per_field = 40,
                               .bag_max = 1 + round % 2,
                               .zipf = 1,
                               .dispatch = {.policy = RT_POLICY_LAIA, .tables = 1 + round % 6}};
        dp_herald_profile profile = {0};
        uint32_t tables = 1 + round % 6;
        planner_case pc;
        planner_case_init(&pc, &shape);
        for (uint32_t t = 0; t < 40; t++) {
            uint8_t fields[RT_FIELDS_MAX];
            if (t == 20) { // an input record
                dp_input input = {.kind = DP_INPUT_TABLES, .value = tables = 3};
                assert_int_equal(dp_planner_apply(pc.planner, &input, NULL), RT_OK);
            }
            planner_case_look_up(&pc, 40);
            dp_herald_count(&profile, dp_planner_view(pc.planner));
            uint32_t count = dp_herald_choose(&profile, shape.field_count, tables, fields);
            planner_case_commit(&pc);
            check_placement(&pc, fields, count);
        }
        planner_case_fini(&pc);
    }
}

static void all_tables_are_laia(void **state)
{
    (void)state;
    for (uint32_t round = 0; round < 4; round++) {
        planner_shape shape = {
            .seed = round,
            .worker_count = 5,
            .sample_count_max = 40,
            .field_count = 6,
            .ids_per_field = 40,
            .bag_max = 1 + round % 2,
            .zipf = 1,
            .dispatch = {.policy = RT_POLICY_LAIA, .tables = round < 2 ? RT_FIELDS_MAX : 6}};
        planner_case chosen, laia;
        planner_case_init(&chosen, &shape);
        shape.dispatch.tables = 0;
        planner_case_init(&laia, &shape);
        for (uint32_t t = 0; t < 40; t++) {
            planner_case_look_up(&chosen, 40);
            planner_case_look_up(&laia, 40);
            planner_case_commit(&chosen);
            planner_case_commit(&laia);
            assert_true(dp_plan_fingerprint(chosen.plan) == dp_plan_fingerprint(laia.plan));
        }
        planner_case_fini(&chosen);
        planner_case_fini(&laia);
    }
}

TEST_MAIN(TEST(profile_counts), TEST(chooses_the_highest), TEST(big_counts),
          TEST(places_by_the_chosen_tables), TEST(all_tables_are_laia))
