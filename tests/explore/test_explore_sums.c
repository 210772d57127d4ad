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
    bool sweeps;
} family;

static bool scenario_of_number(const void *context, uint64_t number, ex_scenario *s_p)
{
    const family *one = context;
    const ex_family *f = &one->shape;
    ex_scenario s = ex_varied(f->worker_count, f->key_count, f->slot_count, f->shard_count,
                              f->iterations, number);
    s.hands = true;
    s.sums = (uint8_t)(1 + number / 13 % 3);
    s.strays = number / 29 % 2;
    s.sits_out = number / 19 % 4 == 0;
    if (number / 23 % 2 || one->sweeps)
        s.cut = (uint8_t)(2 + number / 3 % (f->iterations - 2));
    if (one->sweeps)
        s.floor = (uint8_t)(2 + number / 7 % (s.cut - 1u));
    if (f->worker_count > 2 && !ex_is_full()) { // too many orders otherwise
        s.run_ahead %= 2;
        s.push_credits = EX_QUEUE;
    }
    *s_p = s;
    return ex_place(f, number, s_p);
}

// How many gradients went to a worker.
static uint64_t explore_family(family f)
{
    const ex_totals sum = ex_explore_family(&f.shape, scenario_of_number, &f, 0);
    printf("    %s%" PRIu64 " gradients to workers, %" PRIu64 " rows handed over\n",
           f.sweeps ? "sweeps; " : "", sum.reduced, sum.handed);
    return sum.reduced;
}

static void two_workers(void **state)
{
    (void)state;
    uint64_t reduced = explore_family((family){{2, 2, 1, 4, 1, 7}, false});
    reduced += explore_family((family){{2, 2, 2, 3, 2, 13}, false});
    reduced += explore_family((family){{2, 2, 1, 4, 2, 13}, true});
    assert_true(reduced > 50);
}

static void three_workers(void **state)
{
    (void)state;
    uint64_t reduced = explore_family((family){{3, 1, 1, 4, 1, 5}, false});
    reduced += explore_family((family){{3, 2, 1, 3, 1, 101}, false});
    reduced += explore_family((family){{3, 2, 1, 3, 2, 203}, true});
    assert_true(reduced > 20);
}

// ---- rules -------------------------------------------------------------------------------------

typedef struct {
    ex_break broken;
    uint32_t key_count; // that some order needs to show it
    const char *missed; // why no order does, or NULL
} rule;

static const rule rules[] = {
    {EX_BREAK_PLAN_NO_REDUCE, 1, NULL},
    {EX_BREAK_PLAN_NO_SUM, 1, NULL},
    {EX_BREAK_PLAN_REDUCE_ANOTHER, 1, NULL},
    {EX_BREAK_PLAN_SUM_ANOTHER, 1, NULL},
    {EX_BREAK_PLAN_GRAD_FOR_REDUCE, 1, NULL},
    {EX_BREAK_PLAN_SUM_STATELESS, 1, NULL},
    {EX_BREAK_PLAN_SUM_STORED, 1, NULL},
    {EX_BREAK_PLAN_SENDER_VALID, 1, NULL},
    {EX_BREAK_SUM_EARLY, 1, NULL},
    {EX_BREAK_SUM_EACH, 1, NULL},
    {EX_BREAK_SUM_AS_COMES, 1, NULL},
    {EX_BREAK_SUM_TWICE, 1, NULL},
    {EX_BREAK_SUM_FORGETS, 1, NULL},
    {EX_BREAK_SUM_LOST, 1, NULL},
    {EX_BREAK_SUM_LOST_UNTRAINED, 1, NULL},
    {EX_BREAK_SUM_NOT_AWAITED, 1, NULL},
    {EX_BREAK_SUM_UNREPORTED, 2, NULL},
    {EX_BREAK_SUM_UNMARKED, 1, "the push of a flush stands behind the sum, and is waited for"},
    {EX_BREAK_SUM_OLD_EPOCH, 1, NULL},
    {EX_BREAK_IGNORE_VERDICT, 1, NULL},
};
_Static_assert(RT_COUNT_OF(rules) == EX_BREAK_SUMS_END - EX_BREAK_HANDS_END, "one for each");

// Every rule is broken once, and some order shows it.
static void broken_rules_are_found(void **state)
{
    bool all = true;
    (void)state;
    for (size_t i = 0; i < RT_COUNT_OF(rules); i++) {
        const rule *r = &rules[i];
        const family f = {{3, r->key_count, 1, 3, 1, 1}, false};
        char violation[1024] = "found by no order";
        const uint64_t number = ex_find_broken(&f.shape, scenario_of_number, &f, r->broken, 1,
                                               violation, sizeof violation);
        printf("%s: placement %" PRIu64 ": %.160s%s%s\n", ex_break_text(r->broken), number,
               violation, r->missed ? ": " : "", r->missed ? r->missed : "");
        all &= (number > 0) == (r->missed == NULL);
    }
    assert_true(all);
}

TEST_MAIN(TEST_SLOW(two_workers, 7200), TEST_SLOW(three_workers, 7200),
          TEST_SLOW(broken_rules_are_found, 300))
