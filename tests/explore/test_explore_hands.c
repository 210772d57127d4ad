// Explores rows that go from worker to worker (docs/PROTOCOL.md, "Rows from worker to worker"):
// small runs in every order of events, with cuts and sweeps, bad batches, workers
// that sit out. Every training must read what sequential training reads; a part is replayed by
// executors and shards, message by message.
#include "tests/support/test.h"

#include <inttypes.h>
#include <stdio.h>

#include "tests/explore/explore_case.h"

typedef struct {
    ex_family shape;
    bool sweeps;
} family;

static bool scenario_of_number(const void *context, uint64_t number, ex_scenario *s_p)
{
    const family *one = context;
    const ex_family *f = &one->shape;
    ex_scenario s = ex_varied(f, number);
    s.hands = true;
    s.full_sync = number / 17 % 9 == 0;
    s.sits_out = number / 19 % 4 == 0;
    s.strays = number / 29 % 2;
    *s_p = s;
    return ex_place_with_cut(f, number, one->sweeps, s_p);
}

// How many rows were handed over.
static uint64_t explore_family(family f, uint32_t every_replay)
{
    const ex_totals sum = ex_explore_family(&f.shape, scenario_of_number, &f, every_replay);
    printf("    %s%" PRIu64 " rows handed over\n", f.sweeps ? "sweeps; " : "", sum.handed);
    assert_true(sum.replayed.actions > 0);
    return sum.handed;
}

static void two_workers(void **state)
{
    (void)state;
    uint64_t handed = explore_family((family){{2, 2, 1, 4, 1, 23}, false}, 13);
    handed += explore_family((family){{2, 2, 2, 3, 2, 97}, false}, 13);
    handed += explore_family((family){{2, 2, 1, 4, 2, 53}, true}, 13);
    assert_true(handed > 50);
}

static void three_workers(void **state)
{
    (void)state;
    uint64_t handed = explore_family((family){{3, 1, 1, 4, 1, 23}, false}, 17);
    handed += explore_family((family){{3, 2, 1, 3, 1, 401}, false}, 7);
    handed += explore_family((family){{3, 2, 1, 3, 2, 907}, true}, 7);
    assert_true(handed > 20);
}

// Every rule is broken once, and some order shows it.
static void broken_rules_are_found(void **state)
{
    // A row that is handed on after its worker sat out: two workers, and an iteration more.
    const family short_runs = {{3, 2, 1, 3, 1, 101}, false};
    const family long_runs = {{2, 2, 1, 4, 1, 1}, false};
    bool all = true;
    (void)state;
    for (ex_break broken = EX_BREAK_HOMES_END + 1; broken < EX_BREAK_HANDS_END; broken++) {
        char violation[1024] = "found by no order";
        const family *f = broken == EX_BREAK_HAND_STORE_OLD ? &long_runs : &short_runs;
        const uint64_t number = ex_find_broken(&f->shape, scenario_of_number, f, broken, 1,
                                               violation, sizeof violation);
        printf("%s: placement %" PRIu64 ": %.160s\n", ex_break_text(broken), number, violation);
        all &= number > 0;
    }
    assert_true(all);
}

TEST_MAIN(TEST_SLOW(two_workers, 7200), TEST_SLOW(three_workers, 7200),
          TEST_SLOW(broken_rules_are_found, 300))
