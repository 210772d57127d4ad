// Explores sweeps (docs/PROTOCOL.md, "Sweeps"): rows that end between two iterations of small runs,
// in every order of events. Keys that end are born again; every training must read what a run reads
// that forgets them in the same place, and the PS must end with that.
#include "tests/support/test.h"

#include <inttypes.h>
#include <stdio.h>

#include "tests/explore/explore_case.h"

typedef struct {
    ex_family shape;
    bool stale;
} family;

// A sweep needs a key that was trained before the floor, and not since.
static uint32_t keys_that_end(const ex_scenario *s)
{
    uint32_t before = 0, since = 0;
    for (uint32_t t = 1; t <= s->cut; t++)
        for (uint32_t w = 0; w < s->worker_count; w++)
            *(t < s->floor ? &before : &since) |= s->trains[t - 1][w];
    return before & ~since;
}

// False: no key would end, or an iteration has no sample.
static bool scenario_of_number(const family *f, uint64_t number, ex_scenario *s_p)
{
    const ex_family *shape = &f->shape;
    ex_scenario s = ex_varied(shape, number);
    s.cut = (uint8_t)(2 + number / 3 % (shape->iterations - 2));
    s.floor = (uint8_t)(2 + number / 7 % (s.cut - 1u));
    s.full_sync = !f->stale && number / 17 % 5 == 0;
    s.staleness = f->stale ? (uint8_t)(1 + number / 13 % 2) : 0;
    *s_p = s;
    return ex_place(shape, number, s_p) && keys_that_end(s_p);
}

static void explore_family(family f, uint32_t every_replay)
{
    ex_totals sum = {0};
    uint64_t ended = 0;
    const uint64_t count = ex_placement_count(&f.shape);
    const uint32_t every = ex_is_full() ? (f.shape.every + 9) / 10 : f.shape.every;
    for (uint64_t number = 1; number < count; number += every) {
        ex_scenario s;
        if (!scenario_of_number(&f, number, &s))
            continue;
        ex_must_hold(&s, sum.scenarios % every_replay == 0, &sum);
        ended += rt_bit_count(keys_that_end(&s));
    }
    printf("%u workers, %u keys, %u slots, %u shards, %u iterations%s: %" PRIu64
           " scenarios, %" PRIu64 " states, %" PRIu64 " transitions, %" PRIu64
           " keys ended, %" PRIu64 " copies given up, %" PRIu64 " actions replayed\n",
           f.shape.worker_count, f.shape.key_count, f.shape.slot_count, f.shape.shard_count,
           f.shape.iterations, f.stale ? ", stale" : "", sum.scenarios, sum.states, sum.transitions,
           ended, sum.dropped, sum.replayed.actions);
    assert_true(ended > 0 && sum.dropped > 0 && sum.replayed.actions > 0);
}

static void two_workers(void **state)
{
    (void)state;
    explore_family((family){{2, 2, 1, 4, 1, 13}, false}, 13);
    explore_family((family){{2, 2, 2, 4, 2, 691}, false}, 13);
    explore_family((family){{2, 3, 1, 4, 2, 307}, false}, 17);
}

static void three_workers(void **state)
{
    (void)state;
    explore_family((family){{3, 2, 1, 4, 1, 9601}, false}, 29);
    explore_family((family){{3, 2, 1, 4, 2, 12001}, false}, 29);
}

static void with_stale_copies(void **state)
{
    (void)state;
    explore_family((family){{2, 2, 1, 4, 1, 31}, true}, 13);
    explore_family((family){{2, 2, 1, 4, 2, 31}, true}, 31);
}

// Every rule is broken once, and some order shows it.
static void broken_rules_are_found(void **state)
{
    (void)state;
    const family f = {{2, 2, 1, 4, 2, 1}, false};
    for (ex_break broken = EX_BREAK_SWEEP_UNCONFIRMED; broken < EX_BREAK_SWEEP_END; broken++) {
        ex_totals sum = {0};
        char violation[1024] = "";
        bool found = false;
        for (uint64_t number = 1; number < ex_placement_count(&f.shape) && !found; number += 5) {
            ex_scenario s;
            const bool ends = scenario_of_number(&f, number, &s);
            s.run_ahead = 2;
            s.guard = false;
            found =
                ends && !ex_explore_scenario(&s, broken, false, &sum, violation, sizeof violation);
        }
        printf("%s: %.160s\n", ex_break_text(broken), violation);
        assert_true(found);
    }
}

TEST_MAIN(TEST_SLOW(two_workers, 7200), TEST_SLOW(three_workers, 7200),
          TEST_SLOW(with_stale_copies, 7200), TEST_SLOW(broken_rules_are_found, 300))
