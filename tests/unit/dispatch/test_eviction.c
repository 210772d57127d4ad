// The three evictions against models that say the rule of dp_eviction.h word for word and search
// all slots; the radix sort against a stable sort.
#include "tests/support/test.h"

#include <stdlib.h>
#include <string.h>

#include "dispatch/cache/dp_eviction.h"
#include "dispatch/cache/dp_sort.h"
#include "dispatch/plan/dp_plan.h"
#include "runtime/rt_hash.h"
#include "tests/support/eviction_model.h"

// ---- both side by side -------------------------------------------------------------------------

typedef struct {
    eviction_model model;
    dp_eviction *eviction;
    rt_random random;
    uint32_t iteration, victims, needed_victims;
    uint32_t outdated, outdated_victims;
    bool expects;
} pair;

static void pair_init_with(pair *p, const dp_eviction_config *config, uint64_t seed)
{
    *p = (pair){.random = {seed}, .expects = config->expects};
    eviction_model_init(&p->model, config->kind, config->slot_count);
    p->model.by_bytes = config->by_bytes && config->kind == RT_EVICT_EMARK;
    assert_int_equal(dp_eviction_create(config, &p->eviction), RT_OK);
}

static void pair_init(pair *p, rt_eviction_kind kind, uint32_t slot_count, uint64_t seed)
{
    pair_init_with(p, &(dp_eviction_config){kind, slot_count, false, false}, seed);
}

static void pair_fini(pair *p)
{
    dp_eviction_destroy(p->eviction);
    eviction_model_fini(&p->model);
}

static void expect(pair *p, uint32_t slot, uint32_t next)
{
    eviction_model_expect(&p->model, slot, next);
    dp_eviction_expect(p->eviction, slot, next);
}

static void use(pair *p, uint32_t slot)
{
    bool is_fill = !p->model.slots[slot].occupied;
    eviction_model_use(&p->model, slot, p->iteration);
    dp_eviction_use(p->eviction, slot, p->iteration);
    if (is_fill) { // sizes with many equal quotients
        p->model.slots[slot].bytes = 16 * (1 + rt_random_below(&p->random, 6));
        dp_eviction_weigh(p->eviction, slot, p->model.slots[slot].bytes);
    }
    if (p->expects && rt_random_below(&p->random, 5)) // or it stays as it was: a free slot has none
        expect(p, slot,
               rt_random_below(&p->random, 3) ? p->iteration + rt_random_below(&p->random, 6) : 0);
}

static void give_up(pair *p, uint32_t slot)
{
    eviction_model_free(&p->model, slot);
    dp_eviction_free(p->eviction, slot);
}

// With emark most outdated copies stay for a while; some come anew before they have to go.
static void outdate(pair *p, uint32_t slot)
{
    if (!dp_eviction_keeps(p->eviction) || rt_random_below(&p->random, 4) == 0) {
        give_up(p, slot);
        return;
    }
    if (p->model.slots[slot].outdated)
        return;
    eviction_model_outdate(&p->model, slot);
    dp_eviction_outdate(p->eviction, slot);
    p->outdated++;
}

static uint32_t victim(pair *p)
{
    uint32_t want = eviction_model_victim(&p->model, p->iteration);
    assert_int_equal(dp_eviction_victim(p->eviction, p->iteration), want);
    p->victims++;
    p->outdated_victims += want != DP_NO_SLOT && p->model.slots[want].outdated;
    if (want != DP_NO_SLOT)
        assert_int_equal(dp_eviction_is_outdated(p->eviction, want), p->model.slots[want].outdated);
    p->needed_victims += want != DP_NO_SLOT && p->model.slots[want].next > p->iteration;
    return want;
}

static uint32_t any_free(const pair *p)
{
    uint32_t slot = 0;
    while (p->model.slots[slot].occupied)
        slot++;
    return slot;
}

// An iteration as the planner makes it: frees, then hits, then fills.
static void run_iteration(pair *p, uint32_t fill_count, uint32_t hit_percent, uint32_t free_percent)
{
    uint32_t slot_count = p->model.slot_count, hits = 0;
    p->iteration += 1 + rt_random_below(&p->random, 8) / 7; // at times, one without uses
    for (uint32_t slot = 0; slot < slot_count; slot++) {
        if (p->model.slots[slot].occupied && rt_random_below(&p->random, 100) < free_percent)
            outdate(p, slot);
    }
    for (uint32_t i = 0; i < slot_count; i++) {
        uint32_t slot = rt_random_below(&p->random, slot_count);
        slot = rt_random_below(&p->random, slot + 1); // popular slots
        if (!eviction_model_is_candidate(&p->model, slot, p->iteration) ||
            rt_random_below(&p->random, 100) >= hit_percent)
            continue;
        use(p, slot);
        hits++;
    }
    for (uint32_t i = 0; i < fill_count && hits < slot_count; i++, hits++) {
        if (p->model.occupied == slot_count) {
            uint32_t slot = victim(p);
            assert_true(slot != DP_NO_SLOT);
            give_up(p, slot);
        }
        use(p, any_free(p));
    }
}

static void run_random(rt_eviction_kind kind)
{
    static const uint32_t sizes[] = {1, 2, 3, 5, 8, 17, 64, 150};
    uint32_t victims = 0, outdated = 0, outdated_victims = 0;
    for (uint32_t s = 0; s < RT_COUNT_OF(sizes); s++) {
        for (uint32_t seed = 0; seed < 12; seed++) {
            pair p;
            pair_init(&p, kind, sizes[s], seed);
            uint32_t hit = (uint32_t[]){0, 10, 50, 95}[seed % 4];
            uint32_t freed = (uint32_t[]){0, 2, 30}[seed % 3];
            for (uint32_t i = 0; i < 40000 / (sizes[s] + 10); i++) {
                bool nearly_all = rt_random_below(&p.random, 4) == 0;
                run_iteration(&p,
                              nearly_all ? sizes[s] : rt_random_below(&p.random, sizes[s] / 4 + 2),
                              hit, freed);
            }
            victims += p.victims;
            outdated += p.outdated;
            outdated_victims += p.outdated_victims;
            pair_fini(&p);
        }
    }
    assert_true(victims > 10000);
    if (kind == RT_EVICT_EMARK) // the others came anew, or were freed
        assert_true(outdated_victims > 1000 && outdated > outdated_victims + 1000);
}

static void run_config(rt_eviction_kind kind, bool by_bytes, bool expects)
{
    static const uint32_t sizes[] = {1, 2, 3, 5, 8, 17, 64, 150};
    uint32_t victims = 0, needed = 0;
    for (uint32_t s = 0; s < RT_COUNT_OF(sizes); s++) {
        for (uint32_t seed = 0; seed < 12; seed++) {
            dp_eviction_config config = {kind, sizes[s], by_bytes, expects};
            pair p;
            pair_init_with(&p, &config, seed);
            uint32_t hit = (uint32_t[]){0, 10, 50, 95}[seed % 4];
            uint32_t freed = (uint32_t[]){0, 2, 30}[seed % 3];
            for (uint32_t i = 0; i < 40000 / (sizes[s] + 10); i++) {
                bool nearly_all = rt_random_below(&p.random, 4) == 0;
                run_iteration(&p,
                              nearly_all ? sizes[s] : rt_random_below(&p.random, sizes[s] / 4 + 2),
                              hit, freed);
                // Between iterations more becomes known.
                for (uint32_t k = 0; expects && k < sizes[s] / 3; k++) {
                    uint32_t slot = rt_random_below(&p.random, sizes[s]);
                    if (p.model.slots[slot].occupied)
                        expect(&p, slot, p.iteration + rt_random_below(&p.random, 9));
                }
            }
            victims += p.victims;
            needed += p.needed_victims;
            pair_fini(&p);
        }
    }
    assert_true(victims > 10000);
    assert_true(expects ? needed > 500 && needed < victims / 2 : needed == 0);
}

static void by_bytes(void **state)
{
    (void)state;
    run_config(RT_EVICT_EMARK, true, false);
}

static void rows_that_are_needed(void **state)
{
    (void)state;
    for (rt_eviction_kind kind = 0; kind < RT_EVICT_COUNT; kind++)
        run_config(kind, false, true);
    run_config(RT_EVICT_EMARK, true, true);
}

// Frequencies per byte by hand: 3 / 32 and 6 / 64 are equal, 5 / 64 is less, 4 / 32 more.
static void frequency_per_byte(void **state)
{
    (void)state;
    static const uint32_t frequencies[] = {4, 6, 3, 5}, bytes[] = {32, 64, 32, 64};
    static const uint32_t order[] = {3, 1, 2, 0};
    dp_eviction *eviction;
    dp_eviction_config config = {RT_EVICT_EMARK, 4, true, false};
    assert_int_equal(dp_eviction_create(&config, &eviction), RT_OK);
    for (uint32_t slot = 0; slot < 4; slot++) {
        for (uint32_t i = 1; i <= frequencies[slot]; i++)
            dp_eviction_use(eviction, slot, i);
        dp_eviction_weigh(eviction, slot, bytes[slot]);
    }
    for (uint32_t k = 0; k < 4; k++) {
        assert_int_equal(dp_eviction_victim(eviction, 9), order[k]);
        dp_eviction_free(eviction, order[k]);
    }
    dp_eviction_destroy(eviction);
}

static void emark_is_its_rule(void **state)
{
    (void)state;
    run_random(RT_EVICT_EMARK);
}

static void lru_is_its_rule(void **state)
{
    (void)state;
    run_random(RT_EVICT_LRU);
}

static void lfu_is_its_rule(void **state)
{
    (void)state;
    run_random(RT_EVICT_LFU);
}

static void light_lfu_is_its_rule(void **state)
{
    (void)state;
    run_random(RT_EVICT_LIGHT_LFU);
}

// Iterations until no row is left of those that were popular before the stream drifted.
static uint32_t forget(rt_eviction_kind kind, uint32_t iterations_max)
{
    enum { SLOTS = 64 };
    pair p;
    uint32_t old = SLOTS, passed = 0;
    bool is_old[SLOTS];
    pair_init(&p, kind, SLOTS, 0);
    for (p.iteration = 1; p.iteration <= 500; p.iteration++) {
        for (uint32_t slot = 0; slot < SLOTS; slot++)
            use(&p, slot);
    }
    memset(is_old, true, sizeof is_old);
    for (; old && passed < iterations_max; passed++, p.iteration++) {
        uint32_t slot = victim(&p);
        old -= is_old[slot];
        is_old[slot] = false;
        give_up(&p, slot);
        use(&p, slot);
    }
    pair_fini(&p);
    return old ? UINT32_MAX : passed;
}

static void light_lfu_follows_a_drift(void **state)
{
    (void)state;
    assert_int_equal(forget(RT_EVICT_LFU, 10000), UINT32_MAX); // where lfu freezes
    assert_true(forget(RT_EVICT_LIGHT_LFU, 10000) < 64 * 12);
}

// Marks outlive frequencies: a row used often, but not since target grew, goes before a new one.
static void emark_prefers_old_marks(void **state)
{
    (void)state;
    pair p;
    pair_init(&p, RT_EVICT_EMARK, 3, 0);
    for (p.iteration = 1; p.iteration <= 5; p.iteration++)
        use(&p, 0); // frequency 5, mark 1
    use(&p, 1);
    use(&p, 2);
    p.iteration = 7;
    assert_int_equal(victim(&p), 1); // target becomes 2
    give_up(&p, 1);
    use(&p, 1);
    assert_int_equal(victim(&p), 2);
    give_up(&p, 2);
    use(&p, 2);
    p.iteration = 8;
    assert_int_equal(victim(&p), 0); // mark 1 and frequency 5, before mark 2 and frequency 1
    pair_fini(&p);
}

// Every row in use: nothing to give up, and asking changes nothing.
static void nothing_to_evict(void **state)
{
    (void)state;
    for (rt_eviction_kind kind = 0; kind < RT_EVICT_COUNT; kind++) {
        pair p;
        pair_init(&p, kind, 6, 0);
        for (uint32_t round = 0; round < 40; round++) {
            run_iteration(&p, rt_random_below(&p.random, 6), 40, 0);
            for (uint32_t slot = 0; slot < 6; slot++) {
                if (round % 3 == 0 && p.model.slots[slot].used != p.iteration)
                    use(&p, slot);
            }
            if (p.model.occupied == 6 && round % 3 == 0)
                assert_int_equal(victim(&p), DP_NO_SLOT);
        }
        pair_fini(&p);
    }
}

// Rows that are all needed go one after the other; then there is none, and no slot beyond the last
// one is looked at (which only the address sanitizer can tell).
static void needed_rows_run_out(void **state)
{
    (void)state;
    enum { SLOTS = 64 };
    for (rt_eviction_kind kind = 0; kind < RT_EVICT_COUNT; kind++) {
        const dp_eviction_config config = {kind, SLOTS, false, true};
        pair p;
        pair_init_with(&p, &config, 0);
        p.iteration = 1;
        for (uint32_t slot = 0; slot < SLOTS; slot++) {
            use(&p, slot);
            expect(&p, slot, 9);
        }
        p.iteration = 2;
        for (uint32_t i = 0; i < SLOTS; i++) {
            assert_int_equal(victim(&p), i);
            give_up(&p, i);
            use(&p, i);
        }
        assert_int_equal(victim(&p), DP_NO_SLOT);
        pair_fini(&p);
    }
}

// ---- as bytes ----------------------------------------------------------------------------------

static bool *slots_in_use(const pair *p)
{
    bool *is_used = rt_alloc(p->model.slot_count, sizeof *is_used);
    assert_non_null(is_used);
    for (uint32_t slot = 0; slot < p->model.slot_count; slot++)
        is_used[slot] = p->model.slots[slot].occupied;
    return is_used;
}

static rt_status load_part(const dp_eviction_config *config, const bool *is_used,
                           const rt_bytes *bytes, size_t size, dp_eviction **eviction)
{
    rt_reader reader = rt_bytes_reader(bytes);
    reader.left = size;
    assert_int_equal(dp_eviction_create(config, eviction), RT_OK);
    const rt_status status = dp_eviction_load(*eviction, is_used, &reader);
    return !status && reader.left ? RT_DATA : status; // as who reads a cache sees it
}

static void must_refuse(const dp_eviction_config *config, const bool *is_used,
                        const rt_bytes *bytes, size_t size)
{
    dp_eviction *eviction;
    const rt_status status = load_part(config, is_used, bytes, size, &eviction);
    dp_eviction_destroy(eviction);
    if (status != RT_DATA)
        fail_msg("kind %d: %zu of %zu bytes are taken", (int)config->kind, size, bytes->size);
}

// The one that is loaded takes the place of the one that was saved: the model goes on beside it. No
// part of its bytes is a state, nor are all of them one of other slots.
static void change_over(pair *p, const dp_eviction_config *config)
{
    rt_bytes bytes = {0}, again = {0};
    dp_eviction *loaded;
    bool *is_used = slots_in_use(p);
    dp_eviction_save(p->eviction, &bytes);
    for (size_t size = 0; size < bytes.size; size += 1 + size / 9)
        must_refuse(config, is_used, &bytes, size);
    must_refuse(config, is_used, &bytes, bytes.size - 1);
    is_used[0] = !is_used[0];
    must_refuse(config, is_used, &bytes, bytes.size);
    is_used[0] = !is_used[0];
    assert_int_equal(load_part(config, is_used, &bytes, bytes.size, &loaded), RT_OK);
    dp_eviction_save(loaded, &again);
    assert_int_equal(again.size, bytes.size);
    assert_memory_equal(again.data, bytes.data, bytes.size);
    dp_eviction_destroy(p->eviction);
    p->eviction = loaded;
    for (uint32_t slot = 0; slot < p->model.slot_count; slot++)
        p->model.slots[slot].next = 0; // expectations are not part of it
    rt_free(is_used);
    rt_bytes_fini(&bytes);
    rt_bytes_fini(&again);
}

static void states_go_on(void **state)
{
    (void)state;
    for (rt_eviction_kind kind = 0; kind < RT_EVICT_COUNT; kind++) {
        for (uint32_t seed = 0; seed < 12; seed++) {
            const dp_eviction_config config = {kind, 3 + 5 * seed, seed % 2, seed % 3 == 0};
            pair p;
            pair_init_with(&p, &config, seed);
            for (uint32_t round = 0; round < 60; round++) {
                run_iteration(&p, 1 + rt_random_below(&p.random, 4), 30, round % 7 ? 3 : 15);
                if (round % 11 == 10)
                    change_over(&p, &config);
            }
            pair_fini(&p);
        }
    }
}

// ---- sorting -----------------------------------------------------------------------------------

typedef struct {
    uint64_t item;
    uint32_t index;
} numbered;

static int by_upper_half(const void *a, const void *b)
{
    const numbered *x = a, *y = b;
    uint64_t u = x->item >> 32, v = y->item >> 32;
    if (u != v)
        return u < v ? -1 : 1;
    return x->index < y->index ? -1 : x->index > y->index;
}

static void check_sort(uint32_t count, uint64_t upper_mask, uint64_t seed)
{
    rt_random random = {seed};
    uint64_t *items = rt_alloc(count, sizeof *items), *scratch = rt_alloc(count, sizeof *scratch);
    numbered *want = rt_alloc(count, sizeof *want);
    assert_true(items && scratch && want);
    for (uint32_t i = 0; i < count; i++) {
        items[i] = rt_random_u64(&random) & (upper_mask << 32 | UINT32_MAX);
        want[i] = (numbered){items[i], i};
    }
    qsort(want, count, sizeof *want, by_upper_half);
    dp_sort_upper(items, scratch, count);
    for (uint32_t i = 0; i < count; i++)
        assert_int_equal(items[i], want[i].item);
    rt_free(items);
    rt_free(scratch);
    rt_free(want);
}

static void sort_is_stable(void **state)
{
    (void)state;
    static const uint64_t masks[] = {0,          1,          7,          0x7ff,
                                     0x800,      0xfffff,    0x3fffff,   0x400000,
                                     0x1fffffff, UINT32_MAX, 0xf0000000, 0x80000001};
    static const uint32_t counts[] = {0, 1, 2, 3, 100, 5000};
    for (uint32_t m = 0; m < RT_COUNT_OF(masks); m++) {
        for (uint32_t c = 0; c < RT_COUNT_OF(counts); c++)
            check_sort(counts[c], masks[m], m * 100 + c);
    }
}

TEST_MAIN(TEST(emark_is_its_rule), TEST(lru_is_its_rule), TEST(lfu_is_its_rule),
          TEST(light_lfu_is_its_rule), TEST(light_lfu_follows_a_drift), TEST(by_bytes),
          TEST(rows_that_are_needed), TEST(frequency_per_byte), TEST(emark_prefers_old_marks),
          TEST(nothing_to_evict), TEST(needed_rows_run_out), TEST(states_go_on),
          TEST(sort_is_stable))
