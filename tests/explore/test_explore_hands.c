// Explores rows that go from worker to worker (docs/PROTOCOL.md, "Rows from worker to worker"):
// small runs in every order of events, with cuts and sweeps, the keeper rule, bad batches, workers
// that sit out. Every training must read what sequential training reads; a part is replayed by
// executors and shards, message by message.
#include "tests/support/test.h"

#include <inttypes.h>
#include <stdio.h>

#include "tests/explore/explore_case.h"

static bool scenario_of_number(const ex_family *f, bool sweeps, uint64_t number, ex_scenario *s_p)
{
    ex_scenario s = ex_varied(f->worker_count, f->key_count, f->slot_count, f->shard_count,
                              f->iterations, number);
    s.hands = true;
    s.keeper = number / 13 % 3 == 0;
    s.full_sync = number / 17 % 9 == 0;
    s.sits_out = number / 19 % 4 == 0 && !s.keeper;
    s.cut = (uint8_t)(number / 23 % 2 || sweeps ? 2 + number / 3 % (f->iterations - 2) : 0);
    s.floor = (uint8_t)(sweeps ? 2 + number / 7 % (s.cut - 1u) : 0);
    s.keeper &= !sweeps;
    if (f->worker_count > 2 && !ex_is_full()) { // too many orders otherwise
        s.run_ahead %= 2;
        s.push_credits = EX_QUEUE;
    }
    *s_p = s;
    return ex_place(f, number, s_p);
}

// How many rows were handed over.
static uint64_t explore_family(ex_family f, bool sweeps, uint32_t every_replay)
{
    ex_totals sum = {0};
    const uint64_t count = ex_placement_count(&f);
    const uint32_t every = ex_is_full() ? (f.every + 9) / 10 : f.every;
    for (uint64_t number = 1; number < count; number += every) {
        ex_scenario s;
        if (scenario_of_number(&f, sweeps, number, &s))
            ex_must_hold(&s, sum.scenarios % every_replay == 0, &sum);
    }
    printf("%u workers, %u keys, %u slots, %u shards, %u iterations%s: %" PRIu64
           " scenarios, %" PRIu64 " states, %" PRIu64 " transitions, %" PRIu64
           " rows handed over, %" PRIu64 " actions replayed\n",
           f.worker_count, f.key_count, f.slot_count, f.shard_count, f.iterations,
           sweeps ? ", sweeps" : "", sum.scenarios, sum.states, sum.transitions, sum.handed,
           sum.replayed.actions);
    assert_true(sum.replayed.actions > 0);
    return sum.handed;
}

static void two_workers(void **state)
{
    (void)state;
    uint64_t handed = explore_family((ex_family){2, 2, 1, 4, 1, 41}, false, 13);
    handed += explore_family((ex_family){2, 2, 2, 3, 2, 173}, false, 13);
    handed += explore_family((ex_family){2, 2, 1, 4, 2, 101}, true, 13);
    assert_true(handed > 50);
}

static void three_workers(void **state)
{
    (void)state;
    uint64_t handed = explore_family((ex_family){3, 1, 1, 4, 1, 37}, false, 17);
    handed += explore_family((ex_family){3, 2, 1, 3, 1, 607}, false, 7);
    handed += explore_family((ex_family){3, 2, 1, 3, 2, 1207}, true, 7);
    assert_true(handed > 20);
}

// ---- rules -------------------------------------------------------------------------------------

typedef struct {
    ex_break broken;
    const char *text;
    bool of_plan;
} rule;

static const rule rules[] = {
    {EX_BREAK_PLAN_NO_SEND, "planner: no SEND", true},
    {EX_BREAK_PLAN_NO_RECV, "planner: no RECV", true},
    {EX_BREAK_PLAN_OLD_RECV, "planner: RECV of an older version", true},
    {EX_BREAK_PLAN_RECV_ANOTHER, "planner: RECV from another worker", true},
    {EX_BREAK_PLAN_PULL_FOR_RECV, "planner: PULL where the row is handed over", true},
    {EX_BREAK_PLAN_SEND_STATELESS, "planner: SEND without optimizer state", true},
    {EX_BREAK_PLAN_SEND_LATE, "planner: a fill before the SEND out of its slot", true},
    {EX_BREAK_HAND_EARLY, "worker: captured for SEND before rel(slot)", false},
    {EX_BREAK_HAND_LANDS, "worker: RECV lands before rel(slot)", false},
    {EX_BREAK_HAND_LOST, "worker: a row before its slice is not kept", false},
    {EX_BREAK_HAND_TRAINS, "worker: trains before RECV has landed", false},
};
_Static_assert(RT_COUNT_OF(rules) == EX_BREAK_HANDS_END - EX_BREAK_WIRE_END, "one for each");

// The number of the placement that shows it; 0: there is none.
static uint64_t find(const rule *r, char *violation, size_t size)
{
    const ex_family f = {3, 2, 1, 3, 1, 1};
    const uint64_t count = ex_placement_count(&f);
    ex_totals sum = {0};
    for (uint64_t number = 1; number < count; number += 101) {
        ex_scenario s;
        if (!scenario_of_number(&f, false, number, &s))
            continue;
        s.run_ahead = 2;
        s.keeper = s.full_sync = false;
        const bool right =
            r->of_plan ? ex_explore_broken(&s, r->broken, violation, size)
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
        printf("%s: placement %" PRIu64 ": %.160s\n", rules[i].text, number, violation);
        all &= number > 0;
    }
    assert_true(all);
}

TEST_MAIN(TEST_SLOW(two_workers, 7200), TEST_SLOW(three_workers, 7200),
          TEST_SLOW(broken_rules_are_found, 300))
