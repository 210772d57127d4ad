// A planner made from a snapshot plans on as the one that the snapshot was taken of: every
// fingerprint is equal, for every policy and eviction, with look-ahead, full_sync.
#define _GNU_SOURCE // memmem
#include "tests/support/test.h"

#include <stdlib.h>
#include <string.h>

#include "dispatch/planner/dp_planner_parts.h"
#include "dispatch/planner/dp_snapshot.h"
#include "runtime/config/rt_policies.h"
#include "runtime/config/rt_solvers.h"
#include "tests/support/fields_case.h"
#include "tests/support/planner_case.h"

#define BATCHES 60u
#define SAMPLES 24u

typedef struct {
    dp_planner *planner;
    uint32_t previewed; // batches shown so far
} driven;

typedef struct {
    rt_batch items[BATCHES];
    uint32_t lookahead;
} batches;

// Plans batch t.
static uint64_t step(driven *d, const batches *all, uint32_t t)
{
    const dp_plan *plan;
    for (; d->previewed < BATCHES && d->previewed <= t + all->lookahead; d->previewed++)
        assert_int_equal(dp_planner_preview(d->planner, &all->items[d->previewed]), RT_OK);
    assert_int_equal(dp_planner_look_up(d->planner, &all->items[t]), RT_OK);
    dp_planner_place(d->planner);
    assert_int_equal(dp_planner_commit(d->planner, &plan), RT_OK);
    return dp_plan_fingerprint(plan);
}

// Other workers take part from the next batch on.
static void take_part(dp_planner *planner, uint32_t worker_count, uint64_t workers)
{
    for (uint32_t w = 0; w < worker_count; w++) {
        dp_input input = {
            .kind = DP_INPUT_PARTICIPATES, .worker = w, .value = (double)(workers >> w & 1)};
        assert_int_equal(dp_planner_apply(planner, &input, NULL), RT_OK);
    }
}

static void cut_with(driven *d, const rt_bytes *chooser_state, rt_bytes *state)
{
    const dp_plan *plan;
    rt_error error = {0};
    assert_int_equal(dp_planner_flush(d->planner, &plan), RT_OK);
    *state = (rt_bytes){0};
    dp_planner_save(d->planner, chooser_state, state);
    assert_false(state->failed);
    if (!dp_planner_legal(d->planner, &error))
        fail_msg("%s", error.text);
}

static void cut(driven *d, rt_bytes *state)
{
    cut_with(d, &(rt_bytes){0}, state);
}

// What shards would tell: every key that was trained, in any order.
static void know_all(const dp_planner *from, dp_planner *to)
{
    const dp_directory *directory = dp_planner_directory(from);
    for (uint64_t i = directory->mask + 1; i-- > 0;) {
        const dp_entry *entry = &directory->entries[i];
        uint32_t version =
            entry->record ? directory->records[entry->record - 1].version : entry->version;
        if (version)
            assert_int_equal(dp_planner_know(to, entry->key, version, 0), RT_OK);
    }
}

static rt_status load(const dp_planner_config *config, const dp_planner *from,
                      const rt_bytes *state, dp_planner **planner_p, dp_restored *restored,
                      rt_error *error)
{
    rt_reader reader = rt_bytes_reader(state);
    assert_int_equal(dp_planner_create(config, planner_p, error), RT_OK);
    know_all(from, *planner_p);
    return dp_planner_load(*planner_p, &reader, true, restored, error);
}

// set: takes effect before the cut; NULL: none.
static void compare_after(const planner_shape *shape, uint32_t cut_at, const dp_input *set)
{
    planner_case pc;
    batches all = {.lookahead = shape->lookahead};
    rt_bytes state;
    rt_error error = {0};
    dp_restored restored;
    planner_case_init(&pc, shape); // for its configuration
    driven one = {0}, other = {.previewed = cut_at};
    for (uint32_t t = 0; t < BATCHES; t++) {
        rt_batch_init(&all.items[t], 0);
        random_batches_fill(&pc.batches, &all.items[t], t % 7 == 3 ? 5 : shape->sample_count_max);
    }
    assert_int_equal(dp_planner_create(&pc.config, &one.planner, NULL), RT_OK);
    for (uint32_t t = 0; t < cut_at; t++) {
        dp_input input = set ? *set : (dp_input){0};
        if (set && t == cut_at / 2)
            assert_int_equal(dp_planner_apply(one.planner, &input, NULL), RT_OK);
        (void)step(&one, &all, t);
    }
    cut(&one, &state);
    if (load(&pc.config, one.planner, &state, &other.planner, &restored, &error))
        fail_msg("%s", error.text);
    assert_true(restored.iteration == cut_at && restored.caches);
    if (!dp_planner_legal(other.planner, &error))
        fail_msg("%s", error.text);
    for (uint32_t t = cut_at; t < BATCHES; t++) {
        uint64_t want = step(&one, &all, t), got = step(&other, &all, t);
        if (got != want)
            fail_msg("policy %d, eviction %d: iteration %u differs after a cut at %u",
                     (int)shape->dispatch.policy, (int)shape->eviction, t + 1, cut_at);
    }
    rt_bytes_fini(&state);
    dp_planner_destroy(one.planner);
    dp_planner_destroy(other.planner);
    for (uint32_t t = 0; t < BATCHES; t++)
        rt_batch_fini(&all.items[t]);
    planner_case_fini(&pc);
}

static void compare(const planner_shape *shape, uint32_t cut_at)
{
    compare_after(shape, cut_at, NULL);
}

static planner_shape shape_of(rt_policy_kind policy, rt_eviction_kind eviction)
{
    return (planner_shape){.seed = 77 + 13 * (uint64_t)policy + (uint64_t)eviction,
                           .worker_count = 4,
                           .sample_count_max = SAMPLES,
                           .field_count = 5,
                           .ids_per_field = 300,
                           .bag_max = 2,
                           .zipf = 1.05,
                           .cache = CACHE_MIDDLE,
                           .eviction = eviction,
                           .dispatch = {.policy = policy,
                                        .alpha = 0.5,
                                        .search_evaluations = 300,
                                        .solver = RT_SOLVER_TRANSPORT}};
}

static void every_policy_and_eviction(void **context)
{
    (void)context;
    for (uint32_t policy = 0; policy < RT_POLICY_COUNT; policy++) {
        for (uint32_t eviction = 0; eviction < RT_EVICT_COUNT; eviction++) {
            planner_shape shape = shape_of((rt_policy_kind)policy, (rt_eviction_kind)eviction);
            const rt_policy_kind kind = shape.dispatch.policy;
            shape.dispatch.tables = dp_policy_can(kind, DP_POLICY_TABLES) ? 2 : 0;
            shape.dispatch.micro_batch_max = dp_policy_can(kind, DP_POLICY_UNEQUAL) ? 9 : 0;
            compare(&shape, 1);
            compare(&shape, 33);
        }
    }
}

// A policy that an input record set goes on, though the configuration names another one.
static void a_policy_that_was_set(void **context)
{
    (void)context;
    for (uint32_t from = 0; from < RT_POLICY_COUNT; from++) {
        for (uint32_t to = 0; to < RT_POLICY_COUNT; to++) {
            if (dp_policy_can((rt_policy_kind)to, DP_POLICY_HOT)) // a run begins with it, or never
                continue;
            const planner_shape shape = shape_of((rt_policy_kind)from, RT_EVICT_EMARK);
            const dp_input set = {.kind = DP_INPUT_POLICY,
                                  .value = rt_policy_number((rt_policy_kind)to)};
            compare_after(&shape, 14, &set);
        }
    }
}

// Rows that every worker keeps are found again where they were; who lacks which follows from that.
static void hot_rows(void **context)
{
    (void)context;
    for (uint32_t i = 0; i < 6; i++) {
        planner_shape shape = shape_of(RT_POLICY_FAE, RT_EVICT_LRU);
        shape.seed += i;
        shape.hot_ids = (uint32_t[]){1, 8, 300}[i % 3];
        shape.dispatch.first_touch = (rt_first_touch)(i % 2);
        for (uint32_t cut_at = 30; cut_at < 34; cut_at++)
            compare(&shape, cut_at);
    }
}

// Caches with other hot rows, or with none, are not those of a planner: they begin empty.
static void other_hot_rows(void **context)
{
    (void)context;
    for (uint32_t i = 0; i < 9; i++) {
        planner_shape shape = shape_of(RT_POLICY_FAE, RT_EVICT_LRU);
        planner_case one, other;
        driven before = {0}, after = {.previewed = BATCHES};
        batches all = {0};
        dp_restored restored;
        rt_bytes state;
        rt_error error = {0};
        shape.cache = CACHE_EVERYTHING;
        shape.hot_ids = i / 3;
        planner_case_init(&one, &shape);
        shape.hot_ids = i % 3;
        planner_case_init(&other, &shape);
        for (uint32_t j = 0; j < shape.worker_count; j++)
            one.config.slot_count[j] = other.config.slot_count[j] = 2000;
        for (uint32_t t = 0; t < BATCHES; t++) {
            rt_batch_init(&all.items[t], 0);
            random_batches_fill(&one.batches, &all.items[t], SAMPLES);
        }
        assert_int_equal(dp_planner_create(&one.config, &before.planner, NULL), RT_OK);
        for (uint32_t t = 0; t < 12; t++)
            step(&before, &all, t);
        cut(&before, &state);
        if (load(&other.config, before.planner, &state, &after.planner, &restored, &error))
            fail_msg("%s", error.text);
        assert_int_equal(restored.caches, i / 3 == i % 3);
        for (uint32_t t = 12; t < BATCHES; t++)
            step(&after, &all, t);
        if (!dp_planner_legal(after.planner, &error))
            fail_msg("%s", error.text);
        for (uint32_t t = 0; t < BATCHES; t++)
            rt_batch_fini(&all.items[t]);
        rt_bytes_fini(&state);
        dp_planner_destroy(before.planner);
        dp_planner_destroy(after.planner);
        planner_case_fini(&one);
        planner_case_fini(&other);
    }
}

// Where the samples of the next batches are expected is part of the state: these decisions rest on
// it, and on batches that are shown anew.
static void windows(void **context)
{
    (void)context;
    const rt_policy_kind policies[] = {RT_POLICY_ESD, RT_POLICY_MAKESPAN};
    for (uint32_t i = 0; i < 6; i++) {
        planner_shape shape = shape_of(policies[i % 2], (rt_eviction_kind)(i % 3));
        shape.dispatch.window = 2 + i;
        shape.lookahead = i < 4 ? 1 + i : 8; // as far as the window, and farther
        shape.dispatch.micro_batch_max = i % 2 ? 9 : 0;
        shape.participants_min = i == 2 ? 2 : 0;
        compare(&shape, 1);
        compare(&shape, 32 + i);
    }
}

// So few evaluations that most samples are never scored: nothing is left of the batch before.
static void few_evaluations(void **context)
{
    (void)context;
    planner_shape shape = shape_of(RT_POLICY_MAKESPAN, RT_EVICT_EMARK);
    shape.dispatch.search_evaluations = SAMPLES;
    compare(&shape, 1);
    compare(&shape, 33);
}

static void look_ahead_and_full_sync(void **context)
{
    (void)context;
    for (uint32_t eviction = 0; eviction < RT_EVICT_COUNT; eviction++) {
        planner_shape shape = shape_of(RT_POLICY_ESD, (rt_eviction_kind)eviction);
        shape.lookahead = 3;
        compare(&shape, 21);
        shape.cache = CACHE_SMALLEST;
        compare(&shape, 22);
        shape.lookahead = 0;
        shape.dispatch.full_sync = true;
        compare(&shape, 23);
    }
}

// Records that wait, and values that records changed, are part of the state.
static void values_in_force(void **context)
{
    (void)context;
    planner_case pc;
    rt_bytes state;
    rt_error error = {0};
    dp_restored restored;
    planner_shape shape = shape_of(RT_POLICY_ESD, RT_EVICT_EMARK);
    planner_case_init(&pc, &shape);
    driven one = {0}, other = {0};
    batches all = {0};
    rt_batch_init(&all.items[0], 0);
    random_batches_fill(&pc.batches, &all.items[0], SAMPLES);
    assert_int_equal(dp_planner_create(&pc.config, &one.planner, NULL), RT_OK);
    dp_planner_set_alpha(one.planner, 0.25);
    dp_planner_set_link(one.planner, 2, (dp_link){4e6, 5e6});
    dp_input computing = {.kind = DP_INPUT_COMPUTE, .worker = 1, .value = 0.25};
    assert_int_equal(dp_planner_apply(one.planner, &computing, NULL), RT_OK);
    one.previewed = 1;
    (void)step(&one, &all, 0);
    dp_input later = {.kind = DP_INPUT_COMPUTE, .worker = 1, .iteration = 9, .value = 0.5};
    assert_int_equal(dp_planner_apply(one.planner, &later, NULL), RT_OK);
    cut(&one, &state);
    assert_int_equal(load(&pc.config, one.planner, &state, &other.planner, &restored, &error),
                     RT_OK);
    assert_true(dp_planner_value(other.planner, DP_INPUT_ALPHA, 0) == 0.25);
    assert_true(dp_planner_value(other.planner, DP_INPUT_LINK_UP, 2) == 4e6);
    assert_true(dp_planner_value(other.planner, DP_INPUT_LINK_DOWN, 2) == 5e6);
    assert_true(dp_planner_value(other.planner, DP_INPUT_COMPUTE, 1) == 0.25);
    dp_input next = {.kind = DP_INPUT_ALPHA, .value = 1};
    assert_int_equal(dp_planner_apply(other.planner, &next, NULL), RT_OK);
    assert_int_equal(next.number, later.number + 1);
    rt_bytes_fini(&state);
    dp_planner_destroy(one.planner);
    dp_planner_destroy(other.planner);
    rt_batch_fini(&all.items[0]);
    planner_case_fini(&pc);
}

// A planner after one batch, and its state.
static void begin_with_one(const planner_shape *shape, planner_case *pc, driven *one, batches *all,
                           rt_bytes *state)
{
    planner_case_init(pc, shape);
    *one = (driven){.previewed = 1};
    *all = (batches){0};
    rt_batch_init(&all->items[0], 0);
    random_batches_fill(&pc->batches, &all->items[0], SAMPLES);
    assert_int_equal(dp_planner_create(&pc->config, &one->planner, NULL), RT_OK);
    (void)step(one, all, 0);
    cut(one, state);
}

static void end_with_one(planner_case *pc, driven *one, batches *all, rt_bytes *state)
{
    rt_bytes_fini(state);
    dp_planner_destroy(one->planner);
    rt_batch_fini(&all->items[0]);
    planner_case_fini(pc);
}

// Cut short, or with any byte changed, a state is refused or taken; nothing else happens.
static void damaged_states(void **context)
{
    (void)context;
    planner_case pc;
    rt_bytes state;
    rt_error error = {0};
    dp_restored restored;
    planner_shape shape = shape_of(RT_POLICY_MAKESPAN, RT_EVICT_EMARK);
    shape.cache = CACHE_SMALLEST;
    planner_case_init(&pc, &shape);
    for (uint32_t eviction = 0; eviction < RT_EVICT_COUNT; eviction++) {
        driven one = {0};
        batches all = {0};
        pc.config.eviction = (rt_eviction_kind)eviction;
        assert_int_equal(dp_planner_create(&pc.config, &one.planner, NULL), RT_OK);
        for (uint32_t t = 0; t < 6; t++) {
            rt_batch_init(&all.items[t], 0);
            random_batches_fill(&pc.batches, &all.items[t], SAMPLES);
            one.previewed = t + 1;
            (void)step(&one, &all, t);
        }
        cut(&one, &state);
        for (uint64_t n = 0; n < 600; n++) {
            dp_planner *planner;
            rt_bytes bent = {.data = malloc(state.size), .size = state.size};
            memcpy(bent.data, state.data, state.size);
            uint64_t at = rt_random_u64(&pc.random) % state.size;
            if (n % 2)
                bent.size = at;
            else
                bent.data[at] ^= (uint8_t)(1u << n % 8);
            rt_status status = load(&pc.config, one.planner, &bent, &planner, &restored, &error);
            const bool is_cut = n % 2; // else a name may be another: its number is 0 then
            const bool is_taken =
                status == RT_OK || status == RT_UNSUPPORTED || status == RT_CONFIG;
            if (status != RT_DATA && (is_cut || !is_taken))
                fail_msg("%s at %zu of %zu: %s", is_cut ? "cut" : "bent", (size_t)at, state.size,
                         rt_status_text(status));
            assert_true(status == RT_OK || status == RT_CONFIG ||
                        strstr(error.text, "state of the planner"));
            dp_planner_destroy(planner);
            free(bent.data);
        }
        rt_bytes_fini(&state);
        dp_planner_destroy(one.planner);
        for (uint32_t t = 0; t < 6; t++)
            rt_batch_fini(&all.items[t]);
    }
    planner_case_fini(&pc);
}

// dispatch.view may differ between two runs: without snapshots in the state they begin as the
// workers' caches, and ones that nobody asks for are passed over.
static void another_view(void **context)
{
    (void)context;
    for (uint32_t view = RT_VIEW_SNAPSHOT; view < RT_VIEW_COUNT; view++) {
        planner_case pc;
        rt_bytes state;
        rt_error error = {0};
        dp_restored restored;
        dp_planner *planner;
        planner_shape shape = shape_of(RT_POLICY_ESD, RT_EVICT_EMARK);
        uint32_t held = 0;
        driven one;
        batches all;
        shape.dispatch.view = (rt_view_kind)view;
        begin_with_one(&shape, &pc, &one, &all, &state);
        pc.config.dispatch.view = view == RT_VIEW_STRICT ? RT_VIEW_SNAPSHOT : RT_VIEW_STRICT;
        if (load(&pc.config, one.planner, &state, &planner, &restored, &error) ||
            !dp_planner_legal(planner, &error))
            fail_msg("%s", error.text);
        const dp_directory *directory = dp_planner_directory(planner);
        for (uint64_t i = 0; i <= directory->mask; i++) {
            if (!directory->entries[i].record)
                continue;
            const dp_record *record = &directory->records[directory->entries[i].record - 1];
            bool viewed = pc.config.dispatch.view == RT_VIEW_SNAPSHOT;
            assert_int_equal(record->viewed.holders, viewed ? record->copies.holders : 0);
            held += record->copies.holders != 0;
        }
        assert_true(restored.caches && held > 0);
        dp_planner_destroy(planner);
        end_with_one(&pc, &one, &all, &state);
    }
}

// What a policy learnt where boxes share no links is nothing to one that goes by boxes: with
// another configuration it begins anew, as a run that begins with it.
static void a_policy_of_other_boxes(void **context)
{
    (void)context;
    for (uint32_t same = 0; same < 2; same++) {
        planner_case pc;
        rt_bytes state;
        rt_error error = {0};
        dp_restored restored;
        dp_planner *planner;
        const planner_shape shape = shape_of(RT_POLICY_MAKESPAN, RT_EVICT_EMARK);
        driven one;
        batches all;
        begin_with_one(&shape, &pc, &one, &all, &state);
        const uint32_t n = pc.config.worker_count;
        pc.config.boxes = (dp_boxes){.count = n, .worker_count = n};
        for (uint32_t j = 0; j < n; j++)
            pc.config.boxes.of_worker[j] = (uint8_t)j;
        rt_reader reader = rt_bytes_reader(&state);
        assert_int_equal(dp_planner_create(&pc.config, &planner, &error), RT_OK);
        know_all(one.planner, planner);
        const rt_status status = dp_planner_load(planner, &reader, same, &restored, &error);
        assert_int_equal(status, same ? RT_DATA : RT_OK);
        assert_false(restored.policy);
        if (!same) {
            rt_bytes begun = {0}, fresh = {0};
            dp_planner *other;
            assert_int_equal(dp_planner_create(&pc.config, &other, &error), RT_OK);
            planner->policy->save(planner->policy_state, &begun);
            other->policy->save(other->policy_state, &fresh);
            assert_int_equal(begun.size, fresh.size);
            assert_memory_equal(begun.data, fresh.data, fresh.size);
            rt_bytes_fini(&begun);
            rt_bytes_fini(&fresh);
            dp_planner_destroy(other);
        }
        dp_planner_destroy(planner);
        end_with_one(&pc, &one, &all, &state);
    }
}

// Rows of another moment than the planner's: one key less, one more, another version.
static void rows_of_another_cut(void **context)
{
    (void)context;
    planner_case pc;
    rt_bytes state;
    rt_error error = {0};
    dp_restored restored;
    planner_shape shape = shape_of(RT_POLICY_ESD, RT_EVICT_LRU);
    driven one;
    batches all;
    begin_with_one(&shape, &pc, &one, &all, &state);
    const uint64_t missing = all.items[0].keys[3];
    for (uint32_t change = 0; change < 3; change++) {
        dp_planner *planner;
        rt_reader reader = rt_bytes_reader(&state);
        assert_int_equal(dp_planner_create(&pc.config, &planner, NULL), RT_OK);
        const dp_directory *directory = dp_planner_directory(one.planner);
        for (uint64_t i = 0; i <= directory->mask; i++) {
            uint64_t key = directory->entries[i].key;
            uint32_t version = dp_directory_version(directory, key);
            if (key == missing && change < 2)
                version += change == 1 ? 1 : (uint32_t)-version;
            if (version && dp_directory_version(dp_planner_directory(planner), key) == 0)
                assert_int_equal(dp_planner_know(planner, key, version, 0), RT_OK);
        }
        if (change == 2)
            assert_int_equal(dp_planner_know(planner, 0x77, 1, 0), RT_OK);
        assert_int_equal(dp_planner_load(planner, &reader, true, &restored, &error), RT_DATA);
        assert_non_null(strstr(error.text, "trained rows"));
        dp_planner_destroy(planner);
    }
    end_with_one(&pc, &one, &all, &state);
}

// Every worker refuses a step whose number is above that of its iteration: no such run begins.
static void more_samples_than_batches(void **context)
{
    (void)context;
    planner_case pc;
    driven one = {0};
    rt_bytes state;
    dp_planner *other;
    dp_restored restored;
    rt_error error = {0};
    const planner_shape shape = shape_of(RT_POLICY_ESD, RT_EVICT_LRU);
    planner_case_init(&pc, &shape);
    assert_int_equal(dp_planner_create(&pc.config, &one.planner, NULL), RT_OK);
    one.planner->passed = 1;
    cut(&one, &state);
    assert_int_equal(load(&pc.config, one.planner, &state, &other, &restored, &error), RT_DATA);
    assert_non_null(strstr(error.text, "its head cannot be"));
    rt_bytes_fini(&state);
    dp_planner_destroy(other);
    dp_planner_destroy(one.planner);
    planner_case_fini(&pc);
}

// Workers of before had two counts more behind their rates. Both kinds of caches follow.
static void give_counts(rt_bytes *state, size_t at, uint32_t worker_count)
{
    rt_bytes with = {0};
    rt_bytes_put(&with, state->data, at);
    for (uint32_t w = 0; w < worker_count; w++) {
        rt_bytes_put(&with, state->data + at, 24);
        rt_bytes_put_u64(&with, UINT64_C(5) << 32 | 9);
        at += 24;
        for (uint32_t kind = 0; kind < 2; kind++) {
            uint64_t size;
            memcpy(&size, state->data + at, sizeof size);
            rt_bytes_put(&with, state->data + at, sizeof size + size);
            at += sizeof size + size;
        }
    }
    assert_int_equal(at, state->size);
    rt_bytes_fini(state);
    *state = with;
}

// Who takes part is in force again, who chooses that gets its bytes back, and others take part
// later as they would have. What was written before there was a choice has all take part.
static void who_takes_part(void **context)
{
    (void)context;
    planner_case pc;
    batches all = {0};
    rt_error error = {0};
    planner_shape shape = shape_of(RT_POLICY_ESD, RT_EVICT_LRU);
    shape.participants_min = 1;
    shape.cache = CACHE_EVERYTHING;
    planner_case_init(&pc, &shape);
    for (uint32_t t = 0; t < BATCHES; t++) {
        rt_batch_init(&all.items[t], 0);
        random_batches_fill(&pc.batches, &all.items[t], SAMPLES);
    }
    for (uint32_t before = 0; before < 2; before++) {
        rt_bytes state, chooser_state = {0};
        dp_restored restored;
        driven one = {0}, other = {.previewed = 20};
        rt_bytes_put(&chooser_state, "chooser", 7);
        assert_int_equal(dp_planner_create(&pc.config, &one.planner, NULL), RT_OK);
        for (uint32_t t = 0; t < 20; t++) {
            if (t == 8)
                take_part(one.planner, shape.worker_count, before ? 15 : 6);
            (void)step(&one, &all, t);
        }
        cut_with(&one, before ? &(rt_bytes){0} : &chooser_state, &state);
        if (before) { // without names, samples, the last two values, and a chooser_state
            rt_bytes plain = {0};
            const uint32_t format = 3;
            fields_plain(&state, &plain);
            rt_bytes_fini(&state);
            state = plain;
            const size_t at = 56 + 152, behind = 16 + shape.worker_count * sizeof(uint32_t) + 8;
            memcpy(state.data, &format, sizeof format);
            memmove(state.data + 56, state.data + 56 + 8, state.size - 56 - 8);
            state.size -= 8;
            memmove(state.data + at, state.data + at + 16, behind - 16);
            memmove(state.data + at + behind - 16, state.data + at + behind + 8,
                    state.size - at - behind - 8);
            state.size -= 24;
            give_counts(&state, at + behind - 16, shape.worker_count);
        }
        if (load(&pc.config, one.planner, &state, &other.planner, &restored, &error))
            fail_msg("%s", error.text);
        assert_true(restored.caches && restored.iteration == 20);
        assert_int_equal(restored.chooser_state.size, before ? 0 : 7);
        assert_int_equal(dp_planner_participants(other.planner), before ? 15 : 6);
        for (uint32_t t = 20; t < BATCHES; t++) {
            if (t % 9 == 0) {
                take_part(one.planner, shape.worker_count, 1 + t % 15);
                take_part(other.planner, shape.worker_count, 1 + t % 15);
            }
            const uint64_t want = step(&one, &all, t);
            if (step(&other, &all, t) != want)
                fail_msg("iteration %u differs, before %u", t + 1, before);
        }
        rt_bytes_fini(&state);
        rt_bytes_fini(&chooser_state);
        rt_bytes_fini(&restored.chooser_state);
        dp_planner_destroy(one.planner);
        dp_planner_destroy(other.planner);
    }
    for (uint32_t t = 0; t < BATCHES; t++)
        rt_batch_fini(&all.items[t]);
    planner_case_fini(&pc);
}

// The counts of keys that have no row yet are as long as they say, and what follows is behind them.
static void counts_of_keys(void **context)
{
    (void)context;
    planner_case pc;
    rt_batch batch;
    rt_bytes state = {0}, again = {0};
    rt_error error = {0};
    dp_restored restored;
    dp_planner *one, *other;
    const planner_shape shape = shape_of(RT_POLICY_ESD, RT_EVICT_LRU);
    planner_case_init(&pc, &shape);
    pc.config.rows.admit = 3;
    pc.config.rows.admit_bytes = 1 << 16;
    rt_batch_init(&batch, 0);
    assert_int_equal(dp_planner_create(&pc.config, &one, NULL), RT_OK);
    for (uint32_t t = 0; t < 3; t++) {
        uint32_t refused;
        random_batches_fill(&pc.batches, &batch, SAMPLES);
        assert_int_equal(dp_planner_admit(one, &batch, &refused), RT_OK);
    }
    dp_planner_save(one, &(rt_bytes){0}, &state);
    rt_reader reader = rt_bytes_reader(&state);
    assert_int_equal(dp_planner_create(&pc.config, &other, NULL), RT_OK);
    if (dp_planner_load(other, &reader, true, &restored, &error))
        fail_msg("%s", error.text);
    assert_int_equal(reader.left, 0);
    dp_planner_save(other, &(rt_bytes){0}, &again);
    assert_int_equal(again.size, state.size);
    assert_memory_equal(again.data, state.data, state.size);
    rt_bytes_fini(&state);
    rt_bytes_fini(&again);
    rt_bytes_fini(&restored.chooser_state);
    rt_batch_fini(&batch);
    dp_planner_destroy(one);
    dp_planner_destroy(other);
    planner_case_fini(&pc);
}

// The section of a state that ends with these bytes, by so many bytes longer (zeros) or shorter.
static rt_bytes resized(const rt_bytes *state, const rt_bytes *part, int by)
{
    rt_bytes other = {0};
    const uint8_t *found = memmem(state->data, state->size, part->data, part->size);
    assert_non_null(found);
    const size_t end = (size_t)(found - state->data) + part->size;
    uint64_t size = 0;
    size_t at = end - sizeof size;
    while (memcpy(&size, state->data + at, sizeof size), size != end - at - sizeof size)
        at--;
    rt_bytes_put(&other, state->data, at);
    rt_bytes_put_u64(&other, size + (uint64_t)by);
    rt_bytes_put(&other, state->data + at + sizeof size, size + (uint64_t)(by < 0 ? by : 0));
    rt_bytes_put(&other, (uint8_t[16]){0}, by > 0 ? (size_t)by : 0);
    rt_bytes_put(&other, state->data + end, state->size - end);
    return other;
}

static void must_be_refused(const planner_case *pc, const dp_planner *from, const rt_bytes *state,
                            const rt_bytes *part, const char *text)
{
    for (int by = -8; by <= 8; by += 8) {
        rt_error error = {0};
        dp_restored restored;
        dp_planner *planner;
        rt_bytes other = resized(state, part, by);
        const rt_status status = load(&pc->config, from, &other, &planner, &restored, &error);
        if (status != (by ? RT_DATA : RT_OK) || (by && !strstr(error.text, text)))
            fail_msg("by %d: %d, \"%s\"", by, status, error.text);
        if (!status)
            rt_bytes_fini(&restored.chooser_state);
        dp_planner_destroy(planner);
        rt_bytes_fini(&other);
    }
}

// Each section is as long as what is in it.
static void sections_of_another_length(void **context)
{
    (void)context;
    planner_case pc;
    rt_batch batch;
    driven one = {0};
    rt_bytes state, counts = {0}, eviction = {0};
    const planner_shape shape = shape_of(RT_POLICY_ESD, RT_EVICT_LFU);
    planner_case_init(&pc, &shape);
    pc.config.rows.admit = 3;
    pc.config.rows.admit_bytes = 1 << 16;
    rt_batch_init(&batch, 0);
    assert_int_equal(dp_planner_create(&pc.config, &one.planner, NULL), RT_OK);
    for (uint32_t t = 0; t < 6; t++) {
        uint32_t refused;
        const dp_plan *plan;
        random_batches_fill(&pc.batches, &batch, SAMPLES);
        assert_int_equal(dp_planner_admit(one.planner, &batch, &refused), RT_OK);
        assert_int_equal(dp_planner_look_up(one.planner, &batch), RT_OK);
        dp_planner_place(one.planner);
        assert_int_equal(dp_planner_commit(one.planner, &plan), RT_OK);
    }
    cut(&one, &state);
    dp_admission_save(one.planner->admission, &counts);
    dp_eviction_save(one.planner->own.caches[1].eviction, &eviction);
    must_be_refused(&pc, one.planner, &state, &counts, "counts of keys that cannot be");
    must_be_refused(&pc, one.planner, &state, &eviction,
                    "the eviction of a cache cannot be that of these slots");
    rt_bytes_fini(&state);
    rt_bytes_fini(&counts);
    rt_bytes_fini(&eviction);
    rt_batch_fini(&batch);
    dp_planner_destroy(one.planner);
    planner_case_fini(&pc);
}

TEST_MAIN(TEST(sections_of_another_length), TEST(more_samples_than_batches),
          TEST(rows_of_another_cut), TEST_SLOW(every_policy_and_eviction, 200),
          TEST(a_policy_that_was_set), TEST(a_policy_of_other_boxes), TEST(few_evaluations),
          TEST(windows), TEST(look_ahead_and_full_sync), TEST(values_in_force),
          TEST(damaged_states), TEST(who_takes_part), TEST(another_view), TEST(counts_of_keys),
          TEST(hot_rows), TEST(other_hot_rows))
