// Explores bounded staleness: PUSH_DELTA and the pulls between, in every order of events of small
// runs (docs/PROTOCOL.md, "Explored"). A cache keeps one row; iterations train up to one per
// worker. What is right are the plans carried out in the planned order (explore_stale.c): every
// training must read exactly those values, and the PS must end with them.
#include "tests/support/test.h"

#include <inttypes.h>
#include <stdio.h>

#include "tests/explore/explore_case.h"

typedef struct {
    ex_family shape; // of one slot
    bool rounded;    // rows and changes travel in 16 bits
} family;

static bool scenario_of_number(const family *f, uint64_t number, ex_scenario *s_p)
{
    ex_scenario s = ex_varied(&f->shape, number);
    s.staleness = (uint8_t)(1 + number / 13 % 2);
    s.rounded = f->rounded;
    *s_p = s;
    return ex_place(&f->shape, number, s_p);
}

static void explore_family(family f, uint32_t every_replay)
{
    ex_totals sum = {0};
    const uint64_t count = ex_placement_count(&f.shape);
    const uint32_t every = ex_is_full() ? 1 : f.shape.every;
    for (uint64_t number = 1; number < count; number += every) {
        ex_scenario s;
        if (scenario_of_number(&f, number, &s))
            ex_must_hold(&s, sum.scenarios % every_replay == 0, &sum);
    }
    assert_true(sum.deltas > 0 && sum.replayed.actions > 0);
    printf("%u workers, %u keys, %u shards, %u iterations%s: %" PRIu64 " scenarios, %" PRIu64
           " states, %" PRIu64 " transitions, %" PRIu64 " deltas planned, %" PRIu64
           " actions replayed\n",
           f.shape.worker_count, f.shape.key_count, f.shape.shard_count, f.shape.iterations,
           f.rounded ? ", rounded" : "", sum.scenarios, sum.states, sum.transitions, sum.deltas,
           sum.replayed.actions);
}

static void two_workers(void **state)
{
    (void)state;
    explore_family((family){{2, 2, 1, 4, 1, 7}, false}, 13);
    explore_family((family){{2, 2, 1, 4, 2, 31}, false}, 31);
    explore_family((family){{2, 3, 1, 3, 1, 5}, false}, 17);
}

static void changes_that_travel_rounded(void **state)
{
    (void)state;
    explore_family((family){{2, 2, 1, 4, 1, 31}, true}, 17);
    explore_family((family){{3, 1, 1, 4, 1, 83}, true}, 17);
}

static void three_workers(void **state)
{
    (void)state;
    explore_family((family){{3, 2, 1, 3, 1, 97}, false}, 97);
    explore_family((family){{3, 1, 1, 4, 1, 41}, false}, 41);
}

// Every rule is broken once, and some order shows it.
static void broken_rules_are_found(void **state)
{
    (void)state;
    const family f = {{3, 1, 1, 4, 1, 1}, false};
    for (ex_break broken = EX_BREAK_DELTA_ANY_BASE; broken < EX_BREAK_STALE_END; broken++) {
        ex_totals sum = {0};
        char violation[1024] = "";
        bool found = false;
        for (uint64_t number = 1; number < ex_placement_count(&f.shape) && !found; number += 5) {
            ex_scenario s;
            if (!scenario_of_number(&f, number, &s))
                continue;
            s.run_ahead = 2;
            s.guard = false;
            found = !ex_explore_scenario(&s, broken, false, &sum, violation, sizeof violation);
        }
        printf("%s: %.120s\n", ex_break_text(broken), violation);
        assert_true(found);
    }
}

TEST_MAIN(TEST_SLOW(two_workers, 7200), TEST_SLOW(three_workers, 7200),
          TEST_SLOW(changes_that_travel_rounded, 7200), TEST_SLOW(broken_rules_are_found, 120))
