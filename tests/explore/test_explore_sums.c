// Explores gradients that one of several trainers sums (docs/PROTOCOL.md, "Sums by trainers"):
// small runs in every order of events, with rows that go from worker to worker, gradients that the
// PS sums, cuts and sweeps, bad batches, workers that sit out, and what a process of an older epoch
// sent. Every training must read what sequential training reads.
#include "tests/support/test.h"

#include <inttypes.h>
#include <stdio.h>

#include "tests/explore/explore_case.h"

typedef struct {
    ex_family shape;
    bool sweeps, stays_close; // stays_close: no run-ahead, no cut
} family;

static bool scenario_of_number(const void *context, uint64_t number, ex_scenario *s_p)
{
    const family *one = context;
    const ex_family *f = &one->shape;
    ex_scenario s = ex_varied(f, number);
    s.hands = number / 31 % 3 > 0;
    s.sums = (uint8_t)(1 + number / 13 % 4);
    s.strays = number / 29 % 2;
    s.sits_out = number / 19 % 4 == 0;
    *s_p = s;
    const bool is_one = ex_place_with_cut(f, number, one->sweeps, s_p);
    if (one->stays_close)
        s_p->run_ahead = s_p->cut = 0;
    return is_one;
}

// How many gradients went to a worker.
static uint64_t explore_family(family f, uint32_t every_replay)
{
    const ex_totals sum = ex_explore_family(&f.shape, scenario_of_number, &f, every_replay);
    assert_true(sum.replayed.actions > 0);
    printf("    %s%" PRIu64 " gradients to workers, %" PRIu64 " rows handed over\n",
           f.sweeps ? "sweeps; " : "", sum.reduced, sum.handed);
    return sum.reduced;
}

static void two_workers(void **state)
{
    (void)state;
    uint64_t reduced = explore_family((family){{2, 2, 1, 4, 1, 19}, .sweeps = false}, 23);
    reduced += explore_family((family){{2, 2, 2, 3, 2, 41}, .sweeps = false}, 23);
    reduced += explore_family((family){{2, 2, 1, 4, 2, 41}, .sweeps = true}, 23);
    assert_true(reduced > 50);
}

static void three_workers(void **state)
{
    (void)state;
    uint64_t reduced = explore_family((family){{3, 1, 1, 4, 1, 13}, .sweeps = false}, 23);
    reduced += explore_family((family){{3, 2, 1, 3, 1, 307}, .sweeps = false}, 23);
    reduced += explore_family((family){{3, 2, 1, 3, 2, 607}, .sweeps = true}, 23);
    assert_true(reduced > 20);
}

// ---- rules -------------------------------------------------------------------------------------

typedef struct {
    ex_break broken;
    bool is_long;       // two keys and four iterations are needed, two workers are enough
    const char *missed; // why no order does, or NULL
} rule;

static const rule rules[] = {
    {EX_BREAK_PLAN_NO_REDUCE, false, NULL},
    {EX_BREAK_PLAN_NO_SUM, false, NULL},
    {EX_BREAK_PLAN_REDUCE_ANOTHER, false, NULL},
    {EX_BREAK_PLAN_SUM_ANOTHER, false, NULL},
    {EX_BREAK_PLAN_GRAD_FOR_REDUCE, false, NULL},
    {EX_BREAK_PLAN_SUM_STATELESS, false, NULL},
    {EX_BREAK_PLAN_SUM_STORED, false, NULL},
    {EX_BREAK_PLAN_SENDER_VALID, false, NULL},
    {EX_BREAK_SUM_EARLY, false, NULL},
    {EX_BREAK_SUM_EACH, false, NULL},
    {EX_BREAK_SUM_AS_COMES, false, NULL},
    {EX_BREAK_SUM_TWICE, false, NULL},
    {EX_BREAK_SUM_FORGETS, false, NULL},
    {EX_BREAK_SUM_LOST, false, NULL},
    {EX_BREAK_SUM_LOST_UNTRAINED, false, NULL},
    {EX_BREAK_SUM_NOT_AWAITED, false, NULL},
    {EX_BREAK_SUM_AHEAD, true, NULL},
    {EX_BREAK_SUM_UNMARKED, false, "the push of a flush stands behind the sum, and is waited for"},
    {EX_BREAK_SUM_OLD_EPOCH, false, NULL},
    {EX_BREAK_IGNORE_VERDICT, false, NULL},
};
_Static_assert(RT_COUNT_OF(rules) == EX_BREAK_SUMS_END - EX_BREAK_HANDS_END, "one for each");

// Every rule is broken once, and some order shows it.
static void broken_rules_are_found(void **state)
{
    bool all = true;
    (void)state;
    for (size_t i = 0; i < RT_COUNT_OF(rules); i++) {
        const rule *r = &rules[i];
        const family wide = {{3, 1, 1, 3, 1, 1}, .sweeps = false};
        const family longer = {{2, 2, 1, 4, 1, 1}, .stays_close = true};
        const family *f = r->is_long ? &longer : &wide;
        char violation[1024] = "found by no order";
        const uint64_t number = ex_find_broken(&f->shape, scenario_of_number, f, r->broken, 1,
                                               violation, sizeof violation);
        printf("%s: placement %" PRIu64 ": %.160s%s%s\n", ex_break_text(r->broken), number,
               violation, r->missed ? ": " : "", r->missed ? r->missed : "");
        all &= (number > 0) == (r->missed == NULL);
    }
    assert_true(all);
}

TEST_MAIN(TEST_SLOW(two_workers, 7200), TEST_SLOW(three_workers, 7200),
          TEST_SLOW(broken_rules_are_found, 300))
