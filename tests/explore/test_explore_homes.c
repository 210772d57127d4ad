// Explores homes that move, and rows that travel rounded (docs/PROTOCOL.md, "Homes", "Rows that
// travel rounded"): each alone and both together, in every order of events of small runs. Where
// homes are planned every worker is on a box, and the first two boxes have a shard. Every training
// must read what it reads if the plans are carried out in order, and in the end every row must be
// at one shard, with the value of its version.
#include "tests/support/test.h"

#include <inttypes.h>
#include <stdio.h>

#include "tests/explore/explore_case.h"

typedef struct {
    ex_family shape;
    bool homes, rounded;
    bool sweeps; // in the place of cuts
} family;

static bool scenario_of_number(const family *f, uint64_t number, ex_scenario *s_p)
{
    const ex_family *shape = &f->shape;
    ex_scenario s = ex_varied(shape, number);
    s.homes = f->homes;
    s.rounded = f->rounded;
    s.guard |= f->homes;
    s.first_touch_pull &= !f->homes;
    s.full_sync = number / 17 % 5 == 0;
    s.sits_out = number / 19 % 4 == 0;
    *s_p = s;
    return ex_place_with_cut(shape, number, f->sweeps, s_p);
}

// How many words to forget were planned.
static uint64_t explore_family(family f, uint32_t every_replay)
{
    ex_totals sum = {0};
    const uint64_t count = ex_placement_count(&f.shape);
    const uint32_t every = ex_is_full() ? (f.shape.every + 9) / 10 : f.shape.every;
    for (uint64_t number = 1; number < count; number += every) {
        ex_scenario s;
        if (scenario_of_number(&f, number, &s))
            ex_must_hold(&s, sum.scenarios % every_replay == 0, &sum);
    }
    printf("%u workers, %u keys, %u slots, %u shards, %u iterations%s%s%s: %" PRIu64
           " scenarios, %" PRIu64 " states, %" PRIu64 " transitions, %" PRIu64
           " words to forget, %" PRIu64 " actions replayed\n",
           f.shape.worker_count, f.shape.key_count, f.shape.slot_count, f.shape.shard_count,
           f.shape.iterations, f.homes ? ", homes" : "", f.rounded ? ", rounded" : "",
           f.sweeps ? ", sweeps" : "", sum.scenarios, sum.states, sum.transitions, sum.moved,
           sum.replayed.actions);
    assert_true(sum.replayed.actions > 0);
    return sum.moved;
}

static void homes_that_move(void **state)
{
    (void)state;
    uint64_t moved = explore_family((family){{2, 2, 1, 4, 2, 613}, .homes = true}, 7);
    moved += explore_family((family){{3, 1, 1, 4, 2, 809}, .homes = true}, 7);
    moved += explore_family((family){{3, 2, 1, 3, 2, 8009}, .homes = true}, 3);
    moved += explore_family((family){{2, 2, 2, 3, 2, 1201}, .homes = true}, 3);
    moved += explore_family((family){{2, 2, 1, 4, 2, 1201}, .homes = true, .sweeps = true}, 3);
    assert_true(moved > 10);
}

static void rows_that_travel_rounded(void **state)
{
    (void)state;
    explore_family((family){{2, 2, 1, 4, 2, 101}, .rounded = true}, 13);
    explore_family((family){{2, 2, 2, 3, 1, 401}, .rounded = true}, 13);
    explore_family((family){{3, 2, 1, 3, 1, 1009}, .rounded = true}, 13);
    explore_family((family){{2, 2, 1, 4, 1, 101}, .rounded = true, .sweeps = true}, 13);
    explore_family((family){{3, 1, 1, 4, 1, 61}, .rounded = true}, 13);
}

static void both(void **state)
{
    const bool yes = true;
    (void)state;
    uint64_t moved =
        explore_family((family){{2, 2, 1, 4, 2, 1201}, .homes = yes, .rounded = yes}, 3);
    moved += explore_family((family){{3, 1, 1, 3, 2, 53}, .homes = yes, .rounded = yes}, 7);
    moved += explore_family((family){{3, 2, 1, 3, 2, 8009}, .homes = yes, .rounded = yes}, 3);
    moved += explore_family(
        (family){{2, 2, 1, 4, 2, 1201}, .homes = yes, .rounded = yes, .sweeps = yes}, 3);
    assert_true(moved > 10);
}

// ---- rules -------------------------------------------------------------------------------------

typedef struct {
    ex_break broken;
    family where;
    uint64_t from; // the first placement that is tried: one that shows it
} rule;

#define HOMES(keys, iterations)                       \
    {                                                 \
        {3, keys, 1, iterations, 2, 1}, .homes = true \
    }
#define ROUNDED                             \
    {                                       \
        {3, 2, 1, 3, 1, 1}, .rounded = true \
    }

static const rule rules[] = {
    {EX_BREAK_FORGET_ANY, HOMES(1, 4), 652},
    {EX_BREAK_FORGET_PARKED, HOMES(1, 4), 883},
    {EX_BREAK_FORGET_SUMS, HOMES(1, 4), 855},
    {EX_BREAK_FORGET_AT_ONCE, HOMES(1, 3), 78},
    {EX_BREAK_FORGET_UNSETTLED, HOMES(1, 3), 106},
    {EX_BREAK_FORGET_UNCONFIRMED, HOMES(1, 3), 78},
    {EX_BREAK_PLAN_NO_FORGET, HOMES(1, 3), 78},
    {EX_BREAK_PLAN_FORGET_PUSHED, HOMES(1, 4), 855},
    {EX_BREAK_PLAN_PUSH_STAYS, HOMES(1, 3), 78},
    {EX_BREAK_PLAN_NOT_TAKEN_IN, HOMES(1, 3), 106},
    {EX_BREAK_PLAN_TAKEN_IN_STATELESS, HOMES(1, 3), 106},
    {EX_BREAK_PLAN_GRAD_STAYS, HOMES(1, 3), 78},
    {EX_BREAK_WIRE_STAYS_CHANGED, ROUNDED, 771},
    {EX_BREAK_WIRE_MOVED_CHANGED, {{3, 2, 1, 3, 2, 1}, .homes = true, .rounded = true}, 799},
    {EX_BREAK_WIRE_ENDED_CHANGED, {{2, 2, 1, 4, 1, 1}, .rounded = true, .sweeps = true}, 834},
    {EX_BREAK_WIRE_TAKEN_IN, {{3, 1, 1, 4, 2, 1}, .homes = true, .rounded = true}, 631},
    {EX_BREAK_WIRE_NOT_ROUNDED, ROUNDED, 764},
    {EX_BREAK_WIRE_BASE_KEPT, {{2, 2, 1, 4, 1, 1}, .rounded = true}, 1549},
    {EX_BREAK_WIRE_FIRST_ROUNDED, ROUNDED, 757},
};
_Static_assert(RT_COUNT_OF(rules) == EX_BREAK_HOMES_END - EX_BREAK_SWEEP_END - 1, "one for each");

// The number of the placement that shows it; 0: there is none.
static uint64_t find(const rule *r, char *violation, size_t size)
{
    const family *f = &r->where;
    const uint64_t count = ex_placement_count(&f->shape);
    ex_totals sum = {0};
    for (uint64_t number = r->from; number < count; number += 7) {
        ex_scenario s;
        if (!scenario_of_number(f, number, &s))
            continue;
        s.run_ahead = 2;
        s.bad = 0;
        const bool right = ex_break_is_of_plan(r->broken)
                               ? ex_explore_broken(&s, r->broken, violation, size)
                               : ex_explore_scenario(&s, r->broken, false, &sum, violation, size);
        if (!right)
            return number;
    }
    return 0;
}

static void broken_rules_are_found(void **state)
{
    (void)state;
    bool all = true;
    for (size_t i = 0; i < RT_COUNT_OF(rules); i++) {
        char violation[1024] = "found by no order";
        const uint64_t number = find(&rules[i], violation, sizeof violation);
        printf("%s: placement %" PRIu64 ": %.160s\n", ex_break_text(rules[i].broken), number,
               violation);
        all &= number > 0;
    }
    assert_true(all);
}

TEST_MAIN(TEST_SLOW(homes_that_move, 7200), TEST_SLOW(rows_that_travel_rounded, 7200),
          TEST_SLOW(both, 7200), TEST_SLOW(broken_rules_are_found, 300))
