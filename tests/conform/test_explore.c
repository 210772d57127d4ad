// Explores the coherence protocol as it is implemented: docs/PROTOCOL.md, "Explored".
//
// The planner is the real one. Workers and PS are a model, because the search copies their states;
// where scenarios are replayed, the real executor and shard do the same in every transition.
// EXPLORE=full explores all scenarios of every family; otherwise every so many of them.
#include "tests/support/test.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "runtime/rt_hash.h"
#include "tests/support/explore.h"

#define LIMIT_S 7200 // EXPLORE=full; tests/run has its own limit

// What is explored, also of cases that pass: the runner shows the output of those that fail.
static FILE *report;

typedef struct {
    uint64_t scenarios, states, transitions, ends, states_most;
    uint64_t operations[DP_OP_KINDS];
    uint32_t depth;
    ex_replayed replayed;
} totals;

// Who may train what, and how scenarios of it vary.
typedef struct {
    const char *name;
    uint32_t worker_count, key_count, slot_count, iterations, shard_count;
    uint32_t run_ahead_max;
    bool keeper, full_sync, guard, lookahead, first_touch_pull, cut, few_credits; // also with
    uint32_t every, every_full; // one of so many scenarios; with EXPLORE=full
} family;

static bool is_full(void)
{
    const char *wanted = getenv("EXPLORE");
    return wanted && strcmp(wanted, "full") == 0;
}

// ---- placements ------------------------------------------------------------------------------

// All choices of one iteration for one worker: keys that fit into its slots.
static uint32_t list_choices(const family *f, uint8_t choices[1 << EX_KEYS])
{
    uint32_t count = 0;
    for (uint32_t keys = 0; keys < 1u << f->key_count; keys++)
        if (rt_bit_count(keys) <= f->slot_count)
            choices[count++] = (uint8_t)keys;
    return count;
}

// Placement number `number` of all; false where an iteration has no sample.
static bool place(const family *f, uint64_t number, ex_scenario *s)
{
    uint8_t choices[1 << EX_KEYS];
    uint32_t count = list_choices(f, choices);
    for (uint32_t t = 0; t < f->iterations; t++) {
        uint32_t any = 0;
        for (uint32_t w = 0; w < f->worker_count; w++, number /= count)
            any |= s->trains[t][w] = choices[number % count];
        if (!any)
            return false;
    }
    return true;
}

static uint64_t placement_count(const family *f)
{
    uint8_t choices[1 << EX_KEYS];
    uint64_t count = 1;
    for (uint32_t i = 0; i < f->iterations * f->worker_count; i++)
        count *= list_choices(f, choices);
    return count;
}

static uint8_t rename_keys(uint32_t keys, const uint8_t *names)
{
    uint32_t renamed = 0;
    for (uint32_t k = 0; k < EX_KEYS; k++)
        renamed |= (keys >> k & 1u) << names[k];
    return (uint8_t)renamed;
}

static bool is_less(const ex_scenario *s, const uint8_t *workers, const uint8_t *keys)
{
    for (uint32_t t = 0; t < s->iterations; t++)
        for (uint32_t w = 0; w < s->worker_count; w++) {
            uint8_t here = s->trains[t][w];
            uint8_t there = rename_keys(s->trains[t][workers[w]], keys);
            if (there != here)
                return there < here;
        }
    return false;
}

// Renaming workers, and keys of one shard, changes nothing but names: caches and links are equal,
// policies are out of play, at most one worker holds a dirty row. Of all renamed placements the
// least is explored.
static bool is_least(const ex_scenario *s)
{
    static const uint8_t orders[][3] = {{0, 1, 2}, {1, 0, 2}, {0, 2, 1},
                                        {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    uint32_t worker_orders = s->worker_count == 3 ? 6 : s->worker_count;
    uint32_t key_orders = s->shard_count > 1 ? 1 : s->key_count == 3 ? 6 : s->key_count;
    for (uint32_t w = 0; w < worker_orders; w++)
        for (uint32_t k = 0; k < key_orders; k++)
            if (is_less(s, orders[w], orders[k]))
                return false;
    return true;
}

// ---- variants --------------------------------------------------------------------------------

// The switches of variant number `number`; false where this family has no such variant.
static bool vary(const family *f, uint32_t number, ex_scenario *s)
{
    s->run_ahead = (uint8_t)(number % (f->run_ahead_max + 1));
    number /= f->run_ahead_max + 1;
    s->keeper = number & 1;
    s->full_sync = number >> 1 & 1;
    s->guard = number >> 2 & 1;
    s->lookahead = number >> 3 & 1;
    s->first_touch_pull = number >> 4 & 1;
    s->cut = number >> 5 & 1 ? (uint8_t)(f->iterations - 1) : 0;
    s->push_credits = number >> 6 & 1 ? 1 : EX_QUEUE;
    s->bad = s->guard ? 2 : 0; // the second batch
    s->eviction = s->cut ? RT_EVICT_LRU : RT_EVICT_EMARK;
    return s->keeper <= f->keeper && s->full_sync <= f->full_sync && s->guard <= f->guard &&
           s->lookahead <= f->lookahead && s->first_touch_pull <= f->first_touch_pull &&
           (s->cut > 0) <= f->cut && (s->push_credits == 1) <= f->few_credits &&
           !(s->keeper && s->full_sync);
}

static uint32_t variant_count(const family *f)
{
    return (f->run_ahead_max + 1) << 7;
}

typedef bool (*visitor)(void *context, const ex_scenario *scenario);

// Every scenario of the family that is due, until visit says false.
static bool visit_family(const family *f, uint32_t every, visitor visit, void *context)
{
    uint64_t placements = placement_count(f), number = 0;
    ex_scenario s = {.worker_count = (uint8_t)f->worker_count,
                     .key_count = (uint8_t)f->key_count,
                     .slot_count = (uint8_t)f->slot_count,
                     .shard_count = (uint8_t)f->shard_count,
                     .iterations = (uint8_t)f->iterations};
    for (uint64_t p = 0; p < placements; p++) {
        if (!place(f, p, &s) || !is_least(&s))
            continue;
        for (uint32_t v = 0; v < variant_count(f); v++)
            if (vary(f, v, &s) && rt_mix(number++) % every == 0 && !visit(context, &s))
                return false;
    }
    return true;
}

// ---- exploring -------------------------------------------------------------------------------

typedef struct {
    totals all;
    bool replays;
} exploration;

static bool explore(void *context, const ex_scenario *scenario)
{
    exploration *e = context;
    ex_program program;
    ex_counts counts;
    char violation[2048], text[512];
    ex_options options = {.reduced = true,
                          .leaf = e->replays ? ex_replay : NULL,
                          .context = &e->all.replayed,
                          .states_max = 50000000};
    ex_program_init(&program, scenario);
    if (!ex_explore(&program, &options, &counts, violation, sizeof violation)) {
        ex_scenario_print(scenario, text, sizeof text);
        fail_msg("%s:\n%s", text, violation);
    }
    e->all.scenarios++;
    e->all.states += counts.states;
    e->all.transitions += counts.transitions;
    e->all.ends += counts.ends;
    e->all.states_most = rt_max_u64(e->all.states_most, counts.states);
    e->all.depth = (uint32_t)rt_max_u64(e->all.depth, counts.depth);
    for (uint32_t i = 0; i < DP_OP_KINDS; i++)
        e->all.operations[i] += program.operations[i];
    ex_program_fini(&program);
    return true;
}

#define ALL_VARIANTS                                                                         \
    .run_ahead_max = 2, .keeper = true, .full_sync = true, .guard = true, .lookahead = true, \
    .first_touch_pull = true, .cut = true, .few_credits = true

static const family families[] = {
    {"3 workers, 3 keys, 1 slot", 3, 3, 1, 3, 1, .run_ahead_max = 1, .keeper = true, .every = 2000,
     .every_full = 1},
    {"2 workers, 2 keys, 1 slot", 2, 2, 1, 3, 1, ALL_VARIANTS, .every = 300, .every_full = 1},
    {"2 workers, 2 keys, 2 slots", 2, 2, 2, 3, 1, ALL_VARIANTS, .every = 4000, .every_full = 100},
    {"2 workers, 2 keys, 2 slots, 2 shards", 2, 2, 2, 2, 2, ALL_VARIANTS, .every = 1000,
     .every_full = 10},
    {"2 workers, 2 keys, 1 slot, 5 iterations", 2, 2, 1, 5, 1, ALL_VARIANTS, .every = 60000,
     .every_full = 3000},
    {"2 workers, 3 keys, 1 slot", 2, 3, 1, 4, 1, ALL_VARIANTS, .every = 8000, .every_full = 400},
    {"2 workers, 3 keys, 2 slots", 2, 3, 2, 3, 1, ALL_VARIANTS, .every = 40000, .every_full = 2000},
    {"3 workers, 2 keys, 1 slot", 3, 2, 1, 3, 1, ALL_VARIANTS, .every = 16000, .every_full = 800},
    {"3 workers, 3 keys, 1 slot, 2 iterations", 3, 3, 1, 2, 1, .run_ahead_max = 2, .keeper = true,
     .cut = true, .every = 100, .every_full = 1},
    {"3 workers, 3 keys, 2 slots", 3, 3, 2, 2, 1, .run_ahead_max = 1, .keeper = true, .every = 3000,
     .every_full = 100},
    {"3 workers, 3 keys, 3 slots, 2 shards", 3, 3, 3, 2, 2, .run_ahead_max = 1, .keeper = true,
     .cut = true, .every = 200000, .every_full = 10000},
};

// The same by the real executor and shard, in every transition.
static const family replayed[] = {
    {"2 workers, 2 keys, 1 slot", 2, 2, 1, 3, 1, ALL_VARIANTS, .every = 3000, .every_full = 150},
    {"2 workers, 3 keys, 2 slots, 2 shards", 2, 3, 2, 2, 2, ALL_VARIANTS, .every = 60000,
     .every_full = 6000},
    {"3 workers, 2 keys, 1 slot", 3, 2, 1, 2, 1, ALL_VARIANTS, .every = 9000, .every_full = 600},
};

static const family hunting_grounds[] = {
    {"2 workers", 2, 2, 1, 3, 1, .run_ahead_max = 1, .keeper = true, .guard = true,
     .first_touch_pull = true, .cut = true, .few_credits = true, .every = 150, .every_full = 7},
    {"3 workers", 3, 2, 1, 2, 2, .run_ahead_max = 1, .keeper = true, .cut = true,
     .few_credits = true, .every = 20, .every_full = 5},
};

static uint32_t every_of(const family *f)
{
    return is_full() ? f->every_full : f->every;
}

static void explore_family(const family *f, bool replays, uint64_t operations[DP_OP_KINDS])
{
    exploration e = {.replays = replays};
    const clock_t begin = clock();
    visit_family(f, every_of(f), explore, &e);
    double seconds = (double)(clock() - begin) / CLOCKS_PER_SEC;
    assert_true(e.all.scenarios > 0);
    for (uint32_t i = 0; i < DP_OP_KINDS; i++)
        operations[i] += e.all.operations[i];
    fprintf(report,
            "%s: 1 of %u: %" PRIu64 " scenarios, %" PRIu64 " states (at most %" PRIu64
            " of one), %" PRIu64 " transitions, runs of up to %u",
            f->name, every_of(f), e.all.scenarios, e.all.states, e.all.states_most,
            e.all.transitions, e.all.depth);
    if (replays)
        fprintf(report, "; replayed in %" PRIu64 " runs of %" PRIu64 " actions",
                e.all.replayed.runs, e.all.replayed.actions);
    fprintf(report, "; %.1f s\n", seconds);
}

// Every operation that a planner of this version knows was in a plan.
static void check_vocabulary(const uint64_t operations[DP_OP_KINDS])
{
    static const dp_op_kind known[] = {DP_OP_PUSH_ROW, DP_OP_DROP,      DP_OP_PULL, DP_OP_INIT,
                                       DP_OP_PULL_SUM, DP_OP_PUSH_GRAD, DP_OP_KEEP};
    for (uint32_t i = 0; i < RT_COUNT_OF(known); i++)
        assert_true(operations[known[i]] > 0);
}

static void test_explored(void **state)
{
    (void)state;
    uint64_t operations[DP_OP_KINDS] = {0};
    for (uint32_t i = 0; i < RT_COUNT_OF(families); i++)
        explore_family(&families[i], false, operations);
    check_vocabulary(operations);
}

static void test_replayed(void **state)
{
    (void)state;
    uint64_t operations[DP_OP_KINDS] = {0};
    for (uint32_t i = 0; i < RT_COUNT_OF(replayed); i++)
        explore_family(&replayed[i], true, operations);
    check_vocabulary(operations);
}

// ---- reduction -------------------------------------------------------------------------------

typedef struct {
    uint64_t states, states_reduced;
} reduction;

static const family reduced[] = {
    {"2 workers, 2 keys, 1 slot", 2, 2, 1, 3, 1, ALL_VARIANTS, .every = 3000, .every_full = 10},
    {"3 workers, 3 keys, 1 slot", 3, 3, 1, 2, 2, .run_ahead_max = 2, .keeper = true, .cut = true,
     .every = 900, .every_full = 90},
};

// With and without, the same states are the last ones.
static bool compare_reduced(void *context, const ex_scenario *scenario)
{
    reduction *r = context;
    ex_program program;
    ex_counts whole, some;
    char violation[2048];
    ex_program_init(&program, scenario);
    for (uint32_t i = 0; i < 2; i++) {
        ex_options options = {.reduced = i};
        if (!ex_explore(&program, &options, i ? &some : &whole, violation, sizeof violation))
            fail_msg("%s", violation);
    }
    assert_int_equal(whole.ends, some.ends);
    assert_int_equal(whole.end_hash, some.end_hash);
    r->states += whole.states;
    r->states_reduced += some.states;
    ex_program_fini(&program);
    return true;
}

static void test_reduction(void **state)
{
    (void)state;
    reduction r = {0};
    for (uint32_t i = 0; i < RT_COUNT_OF(reduced); i++)
        visit_family(&reduced[i], every_of(&reduced[i]), compare_reduced, &r);
    assert_true(r.states_reduced < r.states);
    fprintf(report, "reduction: %" PRIu64 " states instead of %" PRIu64 "\n", r.states_reduced,
            r.states);
}

// ---- broken rules ----------------------------------------------------------------------------

// A rule that is broken must be found out. Where nothing can be, the table says why; if that
// changes, the test says so.
typedef struct {
    ex_break which;
    const char *missed; // why nothing can be found, or NULL
} broken_rule;

static const broken_rule broken_rules[] = {
    {EX_BREAK_PLAN_NO_UPDATE_PUSH, NULL},
    {EX_BREAK_PLAN_NO_EVICT_PUSH, NULL},
    {EX_BREAK_PLAN_NO_FLUSH_PUSH, NULL},
    {EX_BREAK_PLAN_SECOND_PUSH, NULL},
    {EX_BREAK_PLAN_OLD_PULL, NULL},
    {EX_BREAK_PLAN_NO_PULL, NULL},
    {EX_BREAK_PLAN_PULL_STATELESS, NULL},
    {EX_BREAK_PLAN_PULL_STATEFUL, "costs bytes, breaks nothing"},
    {EX_BREAK_PLAN_INIT_AGAIN, NULL},
    {EX_BREAK_PLAN_OWN_FOR_GRAD, NULL},
    {EX_BREAK_PLAN_SMALL_MASK, NULL},
    {EX_BREAK_PLAN_WRONG_BASE, NULL},
    {EX_BREAK_PLAN_GRAD_TWICE, NULL},
    {EX_BREAK_PLAN_FILL_FIRST, NULL},
    {EX_BREAK_PLAN_NO_DROP, "to a worker a DROP is only a note: the next fill overwrites the slot"},
    {EX_BREAK_PLAN_NO_PULL_SUM, NULL},
    {EX_BREAK_PLAN_LATE_PULL_SUM, NULL},
    {EX_BREAK_PLAN_KEEPER_SENDS, NULL},
    {EX_BREAK_PLAN_KEEPER_UNNAMED, NULL},
    {EX_BREAK_LAND_EARLY, NULL},
    {EX_BREAK_PUSH_EARLY, NULL},
    {EX_BREAK_TRAIN_EARLY, NULL},
    {EX_BREAK_ANY_VERSION,
     "the PS never answers with a later version: the check guards the others"},
    {EX_BREAK_NO_STAGING, NULL},
    {EX_BREAK_KEEPER_FORGETS, NULL},
    {EX_BREAK_PULLS_TAKE_CREDITS, NULL},
    {EX_BREAK_IGNORE_VERDICT, NULL},
    {EX_BREAK_NO_VERDICT, NULL},
    {EX_BREAK_ANSWER_OLD, NULL},
    {EX_BREAK_CREATE_UNKNOWN, NULL},
    {EX_BREAK_PARKED_BLOCKS, NULL},
    {EX_BREAK_NO_WAKE, NULL},
    {EX_BREAK_STORE_ANY, NULL},
    {EX_BREAK_APPLY_AT_ONCE, NULL},
    {EX_BREAK_SUM_INCOMPLETE, NULL},
    {EX_BREAK_NO_BASE_CHECK, "without replicated rows some trainer pulled the base before it sent"},
    {EX_BREAK_NO_WAITING_SUM, "for the same reason no complete sum waits for its base"},
    {EX_BREAK_SUM_BEFORE_WAKE, "for the same reason"},
    {EX_BREAK_SUM_UNPARKED, NULL},
    {EX_BREAK_SUM_KEPT, NULL},
    {EX_BREAK_SUM_APPLIED, NULL},
    {EX_BREAK_CUT_UNCONFIRMED, NULL},
    {EX_BREAK_CUT_ONE_MARK, NULL},
    {EX_BREAK_CUT_OPEN, NULL},
    {EX_BREAK_RUN_AHEAD, NULL},
};
_Static_assert(RT_COUNT_OF(broken_rules) == EX_BREAKS - 1, "every rule is broken once");

typedef struct {
    ex_break which;
    uint64_t runs;
    bool found;
    char scenario[512], violation[2048];
} hunt;

static bool is_plan_rule(ex_break which)
{
    return which <= EX_BREAK_PLAN_KEEPER_UNNAMED || which == EX_BREAK_STORE_ANY;
}

// Without reduction: its reasons need the rules. False: found.
static bool hunt_in(void *context, const ex_scenario *scenario)
{
    hunt *h = context;
    ex_program whole;
    ex_options options = {.broken = h->which};
    ex_counts counts;
    ex_program_init(&whole, scenario);
    for (uint32_t place = 0; !h->found; place++) {
        ex_program program = whole;
        if (is_plan_rule(h->which) ? !ex_program_break(&program, h->which, place) : place > 0)
            break;
        h->runs++;
        h->found = !ex_explore(&program, &options, &counts, h->violation, sizeof h->violation);
    }
    if (h->found)
        ex_scenario_print(scenario, h->scenario, sizeof h->scenario);
    ex_program_fini(&whole);
    return !h->found;
}

// The base that worker 1 pulls may come after the gradient of worker 0: samples of the grounds miss
// it.
static const ex_scenario late_base = {.worker_count = 2,
                                      .key_count = 2,
                                      .slot_count = 1,
                                      .shard_count = 1,
                                      .iterations = 3,
                                      .trains = {{1, 1}, {0, 1}, {1, 0}},
                                      .push_credits = EX_QUEUE,
                                      .keeper = true,
                                      .first_touch_pull = true};

static bool break_rule(const broken_rule *rule)
{
    hunt h = {.which = rule->which};
    hunt_in(&h, &late_base);
    for (uint32_t f = 0; f < RT_COUNT_OF(hunting_grounds) && !h.found; f++)
        visit_family(&hunting_grounds[f], every_of(&hunting_grounds[f]), hunt_in, &h);
    const bool right = h.runs > 0 && h.found == (rule->missed == NULL);
    fprintf(report, "%s%s\n", right ? "" : "WRONG: ", ex_break_text(rule->which));
    if (h.found)
        fprintf(report, "    %s\n    in: %s\n", h.violation, h.scenario);
    else
        fprintf(report, "    not found in %" PRIu64 " scenarios%s%s\n", h.runs,
                rule->missed ? ": " : "", rule->missed ? rule->missed : "");
    return right;
}

static void test_broken_rules(void **state)
{
    (void)state;
    uint32_t wrong = 0;
    for (uint32_t i = 0; i < RT_COUNT_OF(broken_rules); i++)
        wrong += !break_rule(&broken_rules[i]);
    assert_int_equal(wrong, 0);
}

int main(int argc, char **argv)
{
    static const test_case cases[] = {
        TEST_SLOW(test_explored, LIMIT_S), TEST_SLOW(test_replayed, LIMIT_S),
        TEST_SLOW(test_reduction, LIMIT_S), TEST_SLOW(test_broken_rules, LIMIT_S)};
    report = fdopen(dup(STDOUT_FILENO), "w");
    assert_non_null(report);
    setvbuf(report, NULL, _IOLBF, 0);
    return test_run(cases, sizeof cases / sizeof cases[0], argc, argv);
}
