// Rows that end: which floor a planner chooses, against a plain list of keys and iterations; what a
// directory forgets; when time makes a record. That the model is right is test_oracle's (rows_end).
#include "tests/support/test.h"

#include <stdlib.h>

#include "dispatch/coordinator/dp_ages.h"
#include "dispatch/planner/dp_planner_parts.h"
#include "dispatch/planner/dp_sweep.h"
#include "runtime/config/rt_policies.h"
#include "tests/support/planner_case.h"

#define KEYS_MAX 4000u

// ---- the directory -----------------------------------------------------------------------------

typedef struct {
    uint64_t key;
    uint32_t version;
} known;

static uint64_t count_below(const known *all, uint32_t count, uint32_t floor)
{
    uint64_t below = 0;
    for (uint32_t i = 0; i < count; i++)
        below += all[i].version < floor;
    return below;
}

// clash: hashes share their low bits, so that entries stand in long runs, also around the end.
static void erase_from(bool clash, uint64_t seed)
{
    dp_directory directory;
    rt_random random = {seed};
    known *all = calloc(KEYS_MAX, sizeof *all);
    uint64_t next = 0;
    assert_int_equal(dp_directory_init(&directory, KEYS_MAX), RT_OK);
    for (uint32_t i = 0; i < KEYS_MAX; i++) {
        do {
            next++;
        } while (clash && (rt_mix(next) & 0x1f80) != 0x1f80);
        all[i] = (known){next, 1 + rt_random_below(&random, 100)};
        assert_int_equal(dp_directory_add(&directory, next, all[i].version, 0), RT_OK);
    }
    assert_int_equal(dp_directory_reserve(&directory, KEYS_MAX), RT_OK);
    for (uint32_t i = 0; i < KEYS_MAX; i += 7) { // some are in use, and stay
        all[i].version = 200;
        const uint32_t record = dp_directory_find(&directory, all[i].key);
        directory.records[record].version = directory.records[record].version_ps = 200;
    }
    for (uint32_t floor = 20; floor <= 120; floor += 25) {
        const uint64_t before = directory.key_count, below = count_below(all, KEYS_MAX, floor);
        const uint64_t ended = dp_directory_erase_below(&directory, floor);
        assert_int_equal(before - ended, KEYS_MAX - below);
        assert_int_equal(directory.key_count, KEYS_MAX - below);
        for (uint32_t i = 0; i < KEYS_MAX; i++)
            assert_int_equal(dp_directory_version(&directory, all[i].key),
                             all[i].version < floor ? 0 : all[i].version);
    }
    dp_directory_fini(&directory);
    free(all);
}

static void the_directory_forgets_what_is_older(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 4; seed++) {
        erase_from(false, seed);
        erase_from(true, seed);
    }
}

// ---- the floor ---------------------------------------------------------------------------------

// Iteration that trained each key last, by reading every batch.
typedef struct {
    known items[KEYS_MAX];
    uint32_t count;
} history;

static void remember(history *h, const rt_batch *batch, uint32_t t)
{
    for (uint64_t at = 0; at < batch->key_count; at++) {
        uint32_t i = 0;
        while (i < h->count && h->items[i].key != batch->keys[at])
            i++;
        assert_true(i < KEYS_MAX);
        h->items[i] = (known){batch->keys[at], t};
        h->count += i == h->count;
    }
}

static void forget(history *h, uint32_t floor)
{
    uint32_t left = 0;
    for (uint32_t i = 0; i < h->count; i++) {
        if (h->items[i].version >= floor)
            h->items[left++] = h->items[i];
    }
    h->count = left;
}

// What the header says, without a directory: the least floor above f that leaves at most `keep`.
static uint32_t expected_floor(const history *h, const dp_rows *rows, uint32_t t, uint32_t told)
{
    const uint32_t every = rows->expire_iterations < 8 ? 1 : rows->expire_iterations / 8;
    uint32_t floor = told;
    if (rows->expire_iterations && t > rows->expire_iterations && t % every == 0)
        floor = t - rows->expire_iterations + 1 > floor ? t - rows->expire_iterations + 1 : floor;
    if (rows->max && h->count > rows->max)
        while (h->count - count_below(h->items, h->count, floor) > rows->max / 8 * 7)
            floor++;
    floor = floor > t ? t : floor;
    return count_below(h->items, h->count, floor) ? floor : 0;
}

static uint32_t compare_floors(const dp_rows *rows, uint64_t seed)
{
    const planner_shape shape = {.seed = seed,
                                 .worker_count = 3,
                                 .sample_count_max = 12,
                                 .field_count = 3,
                                 .ids_per_field = 300,
                                 .bag_max = 1,
                                 .zipf = 0.6,
                                 .cache = CACHE_MIDDLE,
                                 .dispatch = {.policy = RT_POLICY_LAIA}};
    planner_case pc;
    history *h = calloc(1, sizeof *h);
    uint32_t sweeps = 0;
    planner_case_init(&pc, &shape);
    pc.config.rows = *rows;
    dp_planner_destroy(pc.planner);
    assert_int_equal(dp_planner_create(&pc.config, &pc.planner, NULL), RT_OK);
    for (uint32_t t = 1; t <= 60; t++) {
        const dp_plan *plan = NULL;
        uint32_t floor = 0, told = 0;
        uint64_t ended;
        random_batches_fill(&pc.batches, &pc.batch, 12);
        remember(h, &pc.batch, t);
        assert_int_equal(dp_planner_look_up(pc.planner, &pc.batch), RT_OK);
        dp_planner_place(pc.planner);
        assert_int_equal(dp_planner_commit(pc.planner, &plan), RT_OK);
        if (t % 17 == 0) {
            dp_input input = {.kind = DP_INPUT_ROWS_FLOOR, .value = told = t / 2};
            assert_int_equal(dp_planner_apply(pc.planner, &input, NULL), RT_OK);
        }
        const uint32_t expected = expected_floor(h, rows, t, told);
        const bool is_due = dp_sweep_due(pc.planner, &floor);
        assert_int_equal(is_due, expected > 0);
        if (!is_due)
            continue;
        // Floors that end the same rows are one.
        assert_int_equal(count_below(h->items, h->count, floor),
                         count_below(h->items, h->count, expected));
        const uint64_t below = count_below(h->items, h->count, floor);
        assert_int_equal(dp_sweep(pc.planner, floor, &plan, &ended), RT_OK);
        assert_int_equal(ended, below);
        assert_true(dp_planner_legal(pc.planner, NULL));
        forget(h, floor);
        sweeps++;
    }
    planner_case_fini(&pc);
    free(h);
    return sweeps;
}

static void the_floor_is_what_the_header_says(void **state)
{
    (void)state;
    static const dp_rows rows[] = {
        {.expire_iterations = 1},
        {.expire_iterations = 5},
        {.expire_iterations = 20},
        {.max = 100},
        {.max = 250},
        {.max = 250, .expire_iterations = 9},
        {.max = 10}, // less than a batch: what it trained stays
        {0},         // only by records
    };
    for (size_t i = 0; i < RT_COUNT_OF(rows); i++) {
        const uint32_t sweeps = compare_floors(&rows[i], i + 1);
        assert_true(sweeps >= 2);
    }
}

// Takes out what the planner does not know any more, which must be older than the floor.
static void must_have_ended(history *h, const dp_planner *planner, uint32_t floor, uint64_t ended)
{
    uint32_t left = 0;
    for (uint32_t i = 0; i < h->count; i++) {
        if (dp_directory_knows(&planner->directory, h->items[i].key))
            h->items[left++] = h->items[i];
        else
            assert_true(h->items[i].version < floor);
    }
    assert_int_equal(h->count - left, ended);
    h->count = left;
}

// Copies that several workers train by themselves: shards hear of that later, when some are pushed.
// Rows are as old as their last training all the same: none of the newest ends, and no sweep is for
// nothing.
static uint32_t end_stale_rows(const dp_rows *rows, uint32_t staleness, uint64_t seed)
{
    const planner_shape shape = {.seed = seed,
                                 .worker_count = 3,
                                 .sample_count_max = 12,
                                 .field_count = 3,
                                 .ids_per_field = 300,
                                 .bag_max = 1,
                                 .zipf = 0.6,
                                 .cache = CACHE_EVERYTHING,
                                 .dispatch = {.policy = RT_POLICY_RANDOM}};
    planner_case pc;
    history *h = calloc(1, sizeof *h);
    uint32_t sweeps = 0;
    planner_case_init(&pc, &shape);
    pc.config.rows = *rows;
    pc.config.consistency = (rt_consistency_config){true, staleness};
    pc.config.overshoot = dp_planner_micro_batch_max(&pc.config) * pc.config.keys_per_sample_max;
    for (uint32_t w = 0; w < shape.worker_count; w++)
        pc.config.slot_count[w] += pc.config.overshoot;
    dp_planner_destroy(pc.planner);
    assert_int_equal(dp_planner_create(&pc.config, &pc.planner, NULL), RT_OK);
    for (uint32_t t = 1; t <= 60; t++) {
        const dp_plan *plan = NULL;
        uint32_t floor;
        uint64_t ended;
        random_batches_fill(&pc.batches, &pc.batch, 12);
        remember(h, &pc.batch, t);
        assert_int_equal(dp_planner_look_up(pc.planner, &pc.batch), RT_OK);
        dp_planner_place(pc.planner);
        assert_int_equal(dp_planner_commit(pc.planner, &plan), RT_OK);
        if (!dp_sweep_due(pc.planner, &floor))
            continue;
        assert_int_equal(dp_sweep(pc.planner, floor, &plan, &ended), RT_OK);
        assert_true(ended > 0);
        must_have_ended(h, pc.planner, floor, ended);
        if (rows->max) // less those of one iteration
            assert_true(h->count + 36 >= rows->max / 8 * 7);
        assert_true(dp_planner_legal(pc.planner, NULL));
        sweeps++;
    }
    planner_case_fini(&pc);
    free(h);
    return sweeps;
}

static void stale_copies_make_rows_no_younger(void **state)
{
    (void)state;
    static const dp_rows rows[] = {{.max = 250}, {.expire_iterations = 9}, {.max = 400}};
    for (uint32_t s = 1; s < 30; s += 7)
        for (size_t i = 0; i < RT_COUNT_OF(rows); i++)
            assert_true(end_stale_rows(&rows[i], s, i + 1) >= 2);
}

// With dispatch.full_sync the directory counts a row as pushed that its worker still has to push. A
// sweep comes before that push: a row that ends, or that no batch in sight needs, is pushed first.
static void sweep_after(rt_eviction_kind eviction, uint64_t seed)
{
    const planner_shape shape = {.seed = seed,
                                 .worker_count = 3,
                                 .sample_count_max = 12,
                                 .field_count = 3,
                                 .ids_per_field = 60,
                                 .bag_max = 1,
                                 .zipf = 0.6,
                                 .cache = CACHE_MIDDLE,
                                 .eviction = eviction,
                                 .lookahead = eviction == RT_EVICT_TTL ? 3 : 0,
                                 .dispatch = {.policy = RT_POLICY_LAIA, .full_sync = true}};
    planner_case pc;
    planner_case_init(&pc, &shape);
    for (uint32_t t = 1; t <= 20; t++) {
        const dp_plan *plan;
        uint64_t ended;
        planner_case_look_up(&pc, 12);
        dp_planner_place(pc.planner);
        assert_int_equal(dp_planner_commit(pc.planner, &plan), RT_OK);
        dp_input forget = dp_input_forget(pc.batch.keys[t % pc.batch.key_count]);
        assert_int_equal(dp_planner_apply(pc.planner, &forget, NULL), RT_OK);
        assert_int_equal(dp_sweep(pc.planner, 0, &plan, &ended), RT_OK);
        assert_true(dp_planner_legal(pc.planner, NULL));
        assert_int_equal(ended, 1);
        assert_int_equal(pc.planner->unsynced.count + pc.planner->expired.count, 0);
    }
    planner_case_fini(&pc);
}

static void what_waits_is_pushed_before(void **state)
{
    (void)state;
    static const rt_eviction_kind evictions[] = {RT_EVICT_EMARK, RT_EVICT_LRU, RT_EVICT_LFU,
                                                 RT_EVICT_LIGHT_LFU, RT_EVICT_TTL};
    for (size_t i = 0; i < RT_COUNT_OF(evictions); i++)
        sweep_after(evictions[i], i + 1);
}

static int compare_falling(const void *a, const void *b)
{
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x < y) - (x > y);
}

// Versions that differ in their upper halves, in their lower halves, and in both.
static void the_newest_are_found(void **state)
{
    (void)state;
    rt_random random = {3};
    static const uint32_t masks[] = {0xff, 0xff0000, 0xffffffff, 0x10001, 0x1fff0};
    for (size_t m = 0; m < RT_COUNT_OF(masks); m++) {
        dp_directory directory;
        uint32_t versions[500];
        assert_int_equal(dp_directory_init(&directory, 500), RT_OK);
        for (uint32_t i = 0; i < 500; i++) {
            versions[i] = ((uint32_t)rt_random_u64(&random) & masks[m]) + (m < 4);
            versions[i] += versions[i] == 0;
            assert_int_equal(dp_directory_add(&directory, 1000 + i, versions[i], 0), RT_OK);
        }
        qsort(versions, 500, sizeof *versions, compare_falling);
        for (uint32_t rank = 1; rank <= 500; rank++)
            assert_int_equal(dp_directory_newest(&directory, rank), versions[rank - 1]);
        assert_int_equal(dp_directory_newest(&directory, 501), 0);
        dp_directory_fini(&directory);
    }
}

// ---- time --------------------------------------------------------------------------------------

static void time_makes_records(void **state)
{
    (void)state;
    dp_ages ages;
    dp_input input;
    const uint64_t second = UINT64_C(1000000000);
    dp_ages_init(&ages, 0);
    assert_false(dp_ages_iterated(&ages, 1, 100 * second, &input));
    dp_ages_init(&ages, 16);
    for (uint32_t t = 1; t <= 200; t++) { // ten iterations a second
        const uint64_t now = t * second / 10;
        const bool is_old = dp_ages_iterated(&ages, t, now, &input);
        if (t <= 160) {
            assert_false(is_old);
            continue;
        }
        if (!is_old)
            continue;
        assert_int_equal(input.kind, DP_INPUT_ROWS_FLOOR);
        // The newest note that is 16 s old: at most one step of a second older than need be.
        assert_true(input.value <= t - 160 + 1 && input.value + 171 >= t);
    }
    // After a long silence the newest of what is old counts, in one record.
    assert_true(dp_ages_iterated(&ages, 201, 1000 * second, &input));
    assert_true(input.value > 185 && input.value <= 201);
    assert_false(dp_ages_iterated(&ages, 202, 1001 * second, &input));
}

TEST_MAIN(TEST(the_directory_forgets_what_is_older), TEST(the_floor_is_what_the_header_says),
          TEST(stale_copies_make_rows_no_younger), TEST(what_waits_is_pushed_before),
          TEST(the_newest_are_found), TEST(time_makes_records))
