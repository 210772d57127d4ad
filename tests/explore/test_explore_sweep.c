// Explores sweeps (docs/PROTOCOL.md, "Sweeps"): rows that end between two iterations of small runs,
// in every order of events. Keys that end are born again; every training must read what a run reads
// that forgets them in the same place, and the PS must end with that.
#include "tests/support/test.h"

#include <inttypes.h>
#include <stdio.h>

#include "tests/explore/explore_case.h"

typedef struct {
    uint32_t worker_count, key_count, slot_count, iterations, shard_count;
    bool stale;
    uint32_t every; // one of so many placements
} family;

// Sets of at most slot_count keys, by number.
static uint32_t sets_of(const family *f, uint8_t sets[1 << EX_KEYS])
{
    uint32_t count = 0;
    for (uint32_t bits = 0; bits < 1u << f->key_count; bits++) {
        if (rt_bit_count(bits) <= f->slot_count)
            sets[count++] = (uint8_t)bits;
    }
    return count;
}

static uint64_t placement_count(const family *f)
{
    uint8_t sets[1 << EX_KEYS];
    uint64_t count = 1;
    for (uint32_t i = 0; i < f->iterations * f->worker_count; i++)
        count *= sets_of(f, sets);
    return count;
}

// False: an iteration has no sample.
static bool place(const family *f, uint64_t number, ex_scenario *s)
{
    uint8_t sets[1 << EX_KEYS];
    const uint32_t count = sets_of(f, sets);
    for (uint32_t t = 0; t < f->iterations; t++) {
        uint32_t any = 0;
        for (uint32_t w = 0; w < f->worker_count; w++, number /= count)
            any |= s->trains[t][w] = sets[number % count];
        if (!any)
            return false;
    }
    return true;
}

// A sweep needs a key that was trained before the floor, and not since.
static uint32_t keys_that_end(const ex_scenario *s)
{
    uint32_t before = 0, since = 0;
    for (uint32_t t = 1; t <= s->cut; t++)
        for (uint32_t w = 0; w < s->worker_count; w++)
            *(t < s->floor ? &before : &since) |= s->trains[t - 1][w];
    return before & ~since;
}

static ex_scenario scenario_of_number(const family *f, uint64_t number)
{
    ex_scenario s = ex_varied(f->worker_count, f->key_count, f->slot_count, f->shard_count,
                              f->iterations, number);
    s.cut = (uint8_t)(2 + number / 3 % (f->iterations - 2));
    s.floor = (uint8_t)(2 + number / 7 % (s.cut - 1u));
    s.keeper = !f->stale && number / 13 % 3 == 0;
    s.full_sync = !f->stale && number / 17 % 5 == 0;
    s.staleness = f->stale ? (uint8_t)(1 + number / 13 % 2) : 0;
    return s;
}

static void explore_family(family f, uint32_t every_replay)
{
    ex_totals sum = {0};
    uint64_t ended = 0;
    const uint64_t count = placement_count(&f);
    const uint32_t every = ex_is_full() ? (f.every + 9) / 10 : f.every;
    for (uint64_t number = 1; number < count; number += every) {
        ex_scenario s = scenario_of_number(&f, number);
        if (!place(&f, number, &s) || !keys_that_end(&s))
            continue;
        ex_must_hold(&s, sum.scenarios % every_replay == 0, &sum);
        ended += rt_bit_count(keys_that_end(&s));
    }
    printf("%u workers, %u keys, %u slots, %u shards, %u iterations%s: %" PRIu64
           " scenarios, %" PRIu64 " states, %" PRIu64 " transitions, %" PRIu64
           " keys ended, %" PRIu64 " copies given up, %" PRIu64 " actions replayed\n",
           f.worker_count, f.key_count, f.slot_count, f.shard_count, f.iterations,
           f.stale ? ", stale" : "", sum.scenarios, sum.states, sum.transitions, ended, sum.dropped,
           sum.replayed.actions);
    assert_true(ended > 0 && sum.dropped > 0 && sum.replayed.actions > 0);
}

static void two_workers(void **state)
{
    (void)state;
    explore_family((family){2, 2, 1, 4, 1, false, 13}, 13);
    explore_family((family){2, 2, 2, 4, 2, false, 691}, 13);
    explore_family((family){2, 3, 1, 4, 2, false, 307}, 17);
}

static void three_workers(void **state)
{
    (void)state;
    explore_family((family){3, 2, 1, 4, 1, false, 9601}, 29);
    explore_family((family){3, 2, 1, 4, 2, false, 12001}, 29);
}

static void with_stale_copies(void **state)
{
    (void)state;
    explore_family((family){2, 2, 1, 4, 1, true, 31}, 13);
    explore_family((family){2, 2, 1, 4, 2, true, 31}, 31);
}

// Every rule is broken once, and some order shows it.
static void broken_rules_are_found(void **state)
{
    (void)state;
    static const char *const names[] = {"MARK before pushes are confirmed",
                                        "EXPIRE after the first MARK",
                                        "slices before all shards have answered",
                                        "a shard is not told",
                                        "rows of version F end",
                                        "rows of version F - 1 stay"};
    const family f = {2, 2, 1, 4, 2, false, 1};
    _Static_assert(RT_COUNT_OF(names) == EX_BREAK_SWEEP_END - EX_BREAK_SWEEP_UNCONFIRMED,
                   "a name for each");
    for (ex_break broken = EX_BREAK_SWEEP_UNCONFIRMED; broken < EX_BREAK_SWEEP_END; broken++) {
        ex_totals sum = {0};
        char violation[1024] = "";
        bool found = false;
        for (uint64_t number = 1; number < placement_count(&f) && !found; number += 5) {
            ex_scenario s = scenario_of_number(&f, number);
            s.run_ahead = 2;
            s.guard = false;
            found = place(&f, number, &s) && keys_that_end(&s) &&
                    !ex_explore_scenario(&s, broken, false, &sum, violation, sizeof violation);
        }
        printf("%s: %.160s\n", names[broken - EX_BREAK_SWEEP_UNCONFIRMED], violation);
        assert_true(found);
    }
}

TEST_MAIN(TEST_SLOW(two_workers, 7200), TEST_SLOW(three_workers, 7200),
          TEST_SLOW(with_stale_copies, 7200), TEST_SLOW(broken_rules_are_found, 300))
