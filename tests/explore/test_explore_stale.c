// Explores bounded staleness: PUSH_DELTA and the pulls between, in every order of events of small
// runs (docs/PROTOCOL.md, "Explored"). A cache keeps one row; iterations train up to one per
// worker. What is right are the plans carried out in the planned order (explore_stale.c): every
// training must read exactly those values, and the PS must end with them.
#include "tests/support/test.h"

#include <inttypes.h>
#include <stdio.h>

#include "tests/explore/explore_case.h"

typedef struct {
    uint32_t worker_count, key_count, iterations, shard_count;
    uint32_t every; // one of so many placements
    bool rounded;   // rows and changes travel in 16 bits
} family;

// Placement number `number`: a key or none for every worker and iteration. False: an iteration has
// no sample.
static bool place(const family *f, uint64_t number, ex_scenario *s)
{
    for (uint32_t t = 0; t < f->iterations; t++) {
        uint32_t any = 0;
        for (uint32_t w = 0; w < f->worker_count; w++, number /= f->key_count + 1)
            any |= s->trains[t][w] = (uint8_t)(1u << number % (f->key_count + 1) >> 1);
        if (!any)
            return false;
    }
    return true;
}

static uint64_t placement_count(const family *f)
{
    uint64_t count = 1;
    for (uint32_t i = 0; i < f->iterations * f->worker_count; i++)
        count *= f->key_count + 1;
    return count;
}

static ex_scenario scenario_of_number(const family *f, uint64_t number)
{
    ex_scenario s =
        ex_varied(f->worker_count, f->key_count, 1, f->shard_count, f->iterations, number);
    s.staleness = (uint8_t)(1 + number / 13 % 2);
    s.rounded = f->rounded;
    return s;
}

static void explore_family(family f, uint32_t every_replay)
{
    ex_totals sum = {0};
    const uint64_t count = placement_count(&f);
    const uint32_t every = ex_is_full() ? 1 : f.every;
    for (uint64_t number = 1; number < count; number += every) {
        ex_scenario s = scenario_of_number(&f, number);
        if (place(&f, number, &s))
            ex_must_hold(&s, sum.scenarios % every_replay == 0, &sum);
    }
    assert_true(sum.deltas > 0 && sum.replayed.actions > 0);
    printf("%u workers, %u keys, %u shards, %u iterations%s: %" PRIu64 " scenarios, %" PRIu64
           " states, %" PRIu64 " transitions, %" PRIu64 " deltas planned, %" PRIu64
           " actions replayed\n",
           f.worker_count, f.key_count, f.shard_count, f.iterations, f.rounded ? ", rounded" : "",
           sum.scenarios, sum.states,
           sum.transitions, sum.deltas, sum.replayed.actions);
}

static void two_workers(void **state)
{
    (void)state;
    explore_family((family){2, 2, 4, 1, 7, false}, 13);
    explore_family((family){2, 2, 4, 2, 31, false}, 31);
    explore_family((family){2, 3, 3, 1, 5, false}, 17);
}

static void changes_that_travel_rounded(void **state)
{
    (void)state;
    explore_family((family){2, 2, 4, 1, 31, true}, 17);
    explore_family((family){3, 1, 4, 1, 83, true}, 17);
}

static void three_workers(void **state)
{
    (void)state;
    explore_family((family){3, 2, 3, 1, 97, false}, 97);
    explore_family((family){3, 1, 4, 1, 41, false}, 41);
}

// Every rule is broken once, and some order shows it.
static void broken_rules_are_found(void **state)
{
    (void)state;
    const family f = {3, 1, 4, 1, 1, false};
    for (ex_break broken = EX_BREAK_DELTA_ANY_BASE; broken < EX_BREAK_STALE_END; broken++) {
        ex_totals sum = {0};
        char violation[1024] = "";
        bool found = false;
        for (uint64_t number = 1; number < placement_count(&f) && !found; number += 5) {
            ex_scenario s = scenario_of_number(&f, number);
            s.run_ahead = 2;
            s.guard = false;
            found = place(&f, number, &s) &&
                    !ex_explore_scenario(&s, broken, false, &sum, violation, sizeof violation);
        }
        printf("%s: %.120s\n", ex_break_text(broken), violation);
        assert_true(found);
    }
}

TEST_MAIN(TEST_SLOW(two_workers, 7200), TEST_SLOW(three_workers, 7200),
          TEST_SLOW(changes_that_travel_rounded, 7200),
          TEST_SLOW(broken_rules_are_found, 120))
