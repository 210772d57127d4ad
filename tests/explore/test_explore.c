// Explores the coherence protocol as it is implemented: docs/PROTOCOL.md, "Explored".
//
// The planner is the real one. Workers and PS are a model, because the search copies their states;
// where scenarios are replayed, the real executor and shard do the same in every transition.
// Programs that are equal up to names are explored once, and of the orders of events only those
// that differ in more than independent events (explore_reduce.c); test_reduction and
// test_broken_rules hold that against all orders.
// EXPLORE=full explores all scenarios, or more; otherwise every so many of them.
#include "tests/support/test.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "runtime/rt_hash.h"
#include "tests/explore/explore_case.h"

#define LIMIT_S 7200 // EXPLORE=full; tests/run has its own limit

// What is explored, also of cases that pass: the runner shows the output of those that fail.
static FILE *report;

typedef struct {
    uint64_t scenarios, programs, states, transitions, states_most;
    uint64_t operations[DP_OP_KINDS];
    uint32_t depth;
    ex_replayed replayed;
} totals;

// Who may train what, and how scenarios of it vary.
typedef struct {
    const char *name;
    uint32_t worker_count, key_count, slot_count, iterations, shard_count;
    uint32_t run_ahead_max;
    bool full_sync, guard, lookahead, first_touch_pull, cut, few_credits; // also with
    bool one_shard;                                                       // also with
    bool sits_out;                                                        // always
    bool all_names;             // plans every placement, not only the least of equal ones
    uint32_t every, every_full; // one of so many scenarios, 0: none; with EXPLORE=full
} family;

// ---- placements ------------------------------------------------------------------------------

// All choices of one iteration for one worker: keys that fit into its slots.
typedef struct {
    uint8_t keys[1 << EX_KEYS];
    uint32_t count;
} choice_list;

static choice_list list_choices(const family *f)
{
    choice_list choices = {.count = 0};
    for (uint32_t keys = 0; keys < 1u << f->key_count; keys++)
        if (rt_bit_count(keys) <= f->slot_count)
            choices.keys[choices.count++] = (uint8_t)keys;
    return choices;
}

// Placement number `number` of all; false where an iteration has no sample.
static bool place(const choice_list *choices, uint64_t number, ex_scenario *s)
{
    for (uint32_t t = 0; t < s->iterations; t++) {
        uint32_t any = 0;
        for (uint32_t w = 0; w < s->worker_count; w++, number /= choices->count)
            any |= s->trains[t][w] = choices->keys[number % choices->count];
        if (!any)
            return false;
    }
    return true;
}

static uint64_t placement_count(const family *f)
{
    uint64_t count = 1;
    for (uint32_t i = 0; i < f->iterations * f->worker_count; i++)
        count *= list_choices(f).count;
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

// New names by old ones. Of one thing the first, of two the first two.
static const uint8_t orders[][3] = {{0, 1, 2}, {1, 0, 2}, {0, 2, 1},
                                    {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};

static uint32_t order_count(uint32_t count)
{
    return count == 3 ? 6 : count;
}

static bool keeps_shards(const ex_scenario *s, const uint8_t *keys)
{
    for (uint32_t k = 0; k < s->key_count; k++)
        if (ex_shard_of(s, keys[k]) != ex_shard_of(s, k))
            return false;
    return true;
}

// Renaming workers, and keys of one shard, changes nothing but names: caches and links are equal,
// policies are out of play, at most one worker holds a dirty row. With several slots it also
// changes the order of operations in a slice. Of all renamed placements the least is planned,
// unless a family wants all_names.
static bool is_least(const ex_scenario *s)
{
    for (uint32_t w = 0; w < order_count(s->worker_count); w++)
        for (uint32_t k = 0; k < order_count(s->key_count); k++)
            if (keeps_shards(s, orders[k]) && is_less(s, orders[w], orders[k]))
                return false;
    return true;
}

// Programs that are equal up to names have this in common.
static uint64_t least_hash(const ex_program *program)
{
    const ex_scenario *s = &program->scenario;
    uint64_t least = UINT64_MAX;
    for (uint32_t w = 0; w < order_count(s->worker_count); w++)
        for (uint32_t k = 0; k < order_count(s->key_count); k++)
            if (keeps_shards(s, orders[k]))
                least = rt_min_u64(least, ex_program_hash(program, orders[w], orders[k]));
    return least;
}

// ---- variants --------------------------------------------------------------------------------

enum { VARIANTS = 3 << 7 };

// The switches of variant number `number`; false where this family has no such variant.
static bool vary(const family *f, uint32_t number, ex_scenario *s)
{
    s->run_ahead = (uint8_t)(number % (f->run_ahead_max + 1));
    number /= f->run_ahead_max + 1;
    s->push_credits = number & 1 ? 1 : EX_QUEUE;
    s->shard_count = number >> 1 & 1 ? 1 : (uint8_t)f->shard_count;
    s->full_sync = number >> 2 & 1;
    s->guard = number >> 3 & 1;
    s->lookahead = number >> 4 & 1;
    s->first_touch_pull = number >> 5 & 1;
    s->cut = number >> 6 & 1 ? (uint8_t)(f->iterations - 1) : 0;
    s->bad = s->guard ? 2 : 0; // the second batch
    s->sits_out = f->sits_out;
    s->eviction = s->cut ? RT_EVICT_LRU : RT_EVICT_EMARK;
    return s->full_sync <= f->full_sync && s->guard <= f->guard && s->lookahead <= f->lookahead &&
           s->first_touch_pull <= f->first_touch_pull && (s->cut > 0) <= f->cut &&
           (s->push_credits == 1) <= f->few_credits && (number >> 1 & 1) <= f->one_shard;
}

// Scenarios that only lack their placement. Neighbours differ in what is no matter of the planner.
static uint32_t list_variants(const family *f, ex_scenario variants[VARIANTS + 1])
{
    uint32_t count = 0;
    for (uint32_t v = 0; v < (f->run_ahead_max + 1) << 7; v++) {
        ex_scenario *s = &variants[count];
        *s = (ex_scenario){.worker_count = (uint8_t)f->worker_count,
                           .key_count = (uint8_t)f->key_count,
                           .slot_count = (uint8_t)f->slot_count,
                           .iterations = (uint8_t)f->iterations};
        count += vary(f, v, s);
    }
    return count;
}

typedef bool (*visitor)(void *context, const ex_scenario *scenario);

// Every scenario of the family that is due, until visit says false.
static bool visit_family(const family *f, uint32_t every, visitor visit, void *context)
{
    ex_scenario variants[VARIANTS + 1];
    const choice_list choices = list_choices(f);
    const uint32_t variant_count = list_variants(f, variants);
    uint64_t placements = placement_count(f), number = 0;
    ex_scenario s = variants[0];
    for (uint64_t p = 0; p < placements && every; p++) {
        if (!place(&choices, p, &s) || !(f->all_names || is_least(&s)))
            continue;
        for (uint32_t v = 0; v < variant_count; v++) {
            if (rt_mix(number++) % every != 0)
                continue;
            memcpy(variants[v].trains, s.trains, sizeof s.trains);
            if (!visit(context, &variants[v]))
                return false;
        }
    }
    return true;
}

// ---- exploring -------------------------------------------------------------------------------

typedef struct {
    totals all;
    bool replays;
    ex_set seen; // programs with the switches of the model
    ex_program program;
    uint64_t plan[EX_SHARDS]; // by shard_count - 1: see least_hash
} exploration;

// What is no matter of the planner.
static bool have_one_plan(const ex_scenario *a, const ex_scenario *b)
{
    ex_scenario same = *a;
    same.run_ahead = b->run_ahead;
    same.push_credits = b->push_credits;
    same.shard_count = b->shard_count;
    return memcmp(&same, b, sizeof same) == 0;
}

static void plan_scenario(exploration *e, const ex_scenario *scenario)
{
    if (!have_one_plan(&e->program.scenario, scenario)) {
        ex_program_fini(&e->program);
        ex_program_init(&e->program, scenario);
        memset(e->plan, 0, sizeof e->plan);
    }
    e->program.scenario = *scenario;
    uint64_t *plan = &e->plan[scenario->shard_count - 1];
    if (!*plan)
        *plan = least_hash(&e->program);
}

// Whether no equal program was explored. Of the switches these are the model's.
static bool is_new_program(exploration *e, const ex_scenario *s)
{
    const uint8_t switches[] = {s->shard_count, s->run_ahead, s->push_credits,
                                s->guard,       s->bad,       s->cut};
    const uint64_t plan = e->plan[s->shard_count - 1];
    return ex_set_add(&e->seen, rt_mix(plan ^ rt_hash_bytes(switches, sizeof switches)));
}

static bool explore(void *context, const ex_scenario *scenario)
{
    exploration *e = context;
    ex_counts counts;
    char violation[2048], text[512];
    ex_options options = {.reduction = e->replays ? EX_ANSWERS_FIRST : EX_PERSISTENT,
                          .leaf = e->replays ? ex_replay : NULL,
                          .context = &e->all.replayed,
                          .states_max = 50000000};
    plan_scenario(e, scenario);
    e->all.scenarios++;
    for (uint32_t i = 0; i < DP_OP_KINDS; i++)
        e->all.operations[i] += e->program.operations[i];
    if (!e->replays && !is_new_program(e, scenario))
        return true;
    if (!ex_explore(&e->program, &options, &counts, violation, sizeof violation)) {
        ex_scenario_print(scenario, text, sizeof text);
        fail_msg("%s:\n%s", text, violation);
    }
    e->all.programs++;
    e->all.states += counts.states;
    e->all.transitions += counts.transitions;
    e->all.states_most = rt_max_u64(e->all.states_most, counts.states);
    e->all.depth = (uint32_t)rt_max_u64(e->all.depth, counts.depth);
    return true;
}

#define ALL_VARIANTS                                                         \
    .run_ahead_max = 2, .full_sync = true, .guard = true, .lookahead = true, \
    .first_touch_pull = true, .cut = true, .few_credits = true

#define THREE_BY_THREE .run_ahead_max = 2, .cut = true, .one_shard = true

// Who takes no part does not wait for a verdict: without a guard.
#define SITTING_OUT                                                                     \
    .run_ahead_max = 2, .full_sync = true, .lookahead = true, .first_touch_pull = true, \
    .cut = true, .few_credits = true, .sits_out = true

static const family families[] = {
    {"3 workers, 3 keys, 1 slot, 2 iterations", 3, 3, 1, 2, 2, THREE_BY_THREE, .every = 100,
     .every_full = 1},
    {"3 workers, 3 keys, 1 slot, 3 iterations", 3, 3, 1, 3, 2, THREE_BY_THREE, .every = 2500,
     .every_full = 1},
    {"3 workers, 3 keys, 2 slots, 2 iterations", 3, 3, 2, 2, 2, THREE_BY_THREE, .all_names = true,
     .every = 20000, .every_full = 1},
    {"3 workers, 3 keys, 3 slots, 2 iterations", 3, 3, 3, 2, 2, THREE_BY_THREE, .all_names = true,
     .every = 40000, .every_full = 1},
    {"3 workers, 3 keys, 1 slot, 4 iterations", 3, 3, 1, 4, 1, .run_ahead_max = 1, .every_full = 1},
    {"2 workers, 2 keys, 1 slot", 2, 2, 1, 3, 1, ALL_VARIANTS, .every = 300, .every_full = 1},
    {"2 workers, 2 keys, 2 slots", 2, 2, 2, 3, 1, ALL_VARIANTS, .every = 4000, .every_full = 100},
    {"2 workers, 2 keys, 2 slots, 2 shards", 2, 2, 2, 2, 2, ALL_VARIANTS, .every = 1000,
     .every_full = 10},
    {"2 workers, 2 keys, 1 slot, 5 iterations", 2, 2, 1, 5, 1, ALL_VARIANTS, .every = 60000,
     .every_full = 3000},
    {"2 workers, 3 keys, 1 slot", 2, 3, 1, 4, 1, ALL_VARIANTS, .every = 8000, .every_full = 400},
    {"2 workers, 3 keys, 2 slots", 2, 3, 2, 3, 1, ALL_VARIANTS, .every = 40000, .every_full = 2000},
    {"3 workers, 2 keys, 1 slot", 3, 2, 1, 3, 1, ALL_VARIANTS, .every = 16000, .every_full = 800},
    {"2 workers, 2 keys, 1 slot, some sit out", 2, 2, 1, 4, 1, SITTING_OUT, .every = 300,
     .every_full = 4},
    {"3 workers, 2 keys, 1 slot, some sit out", 3, 2, 1, 3, 2, SITTING_OUT, .every = 8000,
     .every_full = 10},
    {"2 workers, 2 keys, 2 slots, some sit out", 2, 2, 2, 3, 1, SITTING_OUT, .every = 1500,
     .every_full = 40},
};

// The same by the real executor and shard, in every transition.
static const family replayed[] = {
    {"2 workers, 2 keys, 1 slot", 2, 2, 1, 3, 1, ALL_VARIANTS, .every = 3000, .every_full = 150},
    {"2 workers, 3 keys, 2 slots, 2 shards", 2, 3, 2, 2, 2, ALL_VARIANTS, .every = 60000,
     .every_full = 6000},
    {"3 workers, 2 keys, 1 slot", 3, 2, 1, 2, 1, ALL_VARIANTS, .every = 9000, .every_full = 600},
    {"3 workers, 2 keys, 1 slot, some sit out", 3, 2, 1, 2, 1, SITTING_OUT, .every = 2000,
     .every_full = 300},
};

static const family hunting_grounds[] = {
    {"2 workers", 2, 2, 1, 3, 1, .run_ahead_max = 1, .guard = true, .first_touch_pull = true,
     .cut = true, .few_credits = true, .every = 30, .every_full = 4},
    {"3 workers", 3, 2, 1, 2, 2, .run_ahead_max = 1, .cut = true, .few_credits = true, .every = 20,
     .every_full = 5},
};

static uint32_t every_of(const family *f)
{
    return ex_is_full() ? f->every_full : f->every;
}

static void explore_family(const family *f, bool replays, uint64_t operations[DP_OP_KINDS])
{
    exploration e = {.replays = replays};
    const clock_t begin = clock();
    if (!every_of(f))
        return;
    visit_family(f, every_of(f), explore, &e);
    double seconds = (double)(clock() - begin) / CLOCKS_PER_SEC;
    ex_set_fini(&e.seen);
    ex_program_fini(&e.program);
    assert_true(e.all.scenarios > 0);
    for (uint32_t i = 0; i < DP_OP_KINDS; i++)
        operations[i] += e.all.operations[i];
    fprintf(report,
            "%s: 1 of %u: %" PRIu64 " scenarios, %" PRIu64 " programs, %" PRIu64
            " states (at most %" PRIu64 " of one), %" PRIu64 " transitions, runs of up to %u",
            f->name, every_of(f), e.all.scenarios, e.all.programs, e.all.states, e.all.states_most,
            e.all.transitions, e.all.depth);
    if (replays)
        fprintf(report, "; replayed in %" PRIu64 " runs of %" PRIu64 " actions",
                e.all.replayed.runs, e.all.replayed.actions);
    fprintf(report, "; %.1f s\n", seconds);
}

// Every operation that a planner of this version knows was in a plan.
static void check_vocabulary(const uint64_t operations[DP_OP_KINDS])
{
    static const dp_op_kind known[] = {DP_OP_PUSH_ROW, DP_OP_DROP, DP_OP_PULL, DP_OP_INIT,
                                       DP_OP_PUSH_GRAD};
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

// ---- names -----------------------------------------------------------------------------------

typedef struct {
    uint64_t plans, programs;
} comparison;

static const family renamed[] = {
    {"2 workers, 2 keys", 2, 2, 1, 3, 1, ALL_VARIANTS, .every = 15000, .every_full = 500},
    {"2 workers, 2 keys, 2 slots", 2, 2, 2, 2, 1, ALL_VARIANTS, .every = 3000, .every_full = 100},
    {"3 workers, 2 keys", 3, 2, 1, 2, 2, ALL_VARIANTS, .every = 30000, .every_full = 500},
    {"3 workers, 3 keys", 3, 3, 1, 2, 2, THREE_BY_THREE, .every = 2500, .every_full = 50},
    {"3 workers, 3 keys, 4 iterations", 3, 3, 1, 4, 1, .run_ahead_max = 1, .all_names = true,
     .every = 8000000, .every_full = 300000},
};

static void compare_programs(ex_program *a, ex_program *b)
{
    const ex_options all = {.reduction = EX_ALL};
    ex_counts of_a, of_b;
    char violation[2048];
    assert_true(ex_explore(a, &all, &of_a, violation, sizeof violation));
    assert_true(ex_explore(b, &all, &of_b, violation, sizeof violation));
    assert_int_equal(of_a.states, of_b.states);
    assert_int_equal(of_a.transitions, of_b.transitions);
    assert_int_equal(of_a.ends, of_b.ends);
    assert_int_equal(of_a.depth, of_b.depth);
}

static void rename_scenario(ex_scenario *s, const uint8_t *workers, const uint8_t *keys)
{
    const ex_scenario from = *s;
    for (uint32_t t = 0; t < s->iterations; t++)
        for (uint32_t w = 0; w < s->worker_count; w++)
            s->trains[t][workers[w]] = rename_keys(from.trains[t][w], keys);
}

// With one slot, other names give the same plans but for names. What has the same hash has as many
// states.
static bool compare_names(void *context, const ex_scenario *scenario)
{
    comparison *c = context;
    const uint32_t worker_orders = order_count(scenario->worker_count);
    ex_program program, other;
    ex_program_init(&program, scenario);
    for (uint32_t w = 0; w < worker_orders; w++)
        for (uint32_t k = 0; k < order_count(scenario->key_count); k++) {
            ex_scenario s = *scenario;
            if (!keeps_shards(scenario, orders[k]))
                continue;
            rename_scenario(&s, orders[w], orders[k]);
            ex_program_init(&other, &s);
            const bool equal = ex_program_hash(&program, orders[w], orders[k]) ==
                               ex_program_hash(&other, orders[0], orders[0]);
            assert_true(equal || s.slot_count > 1);
            c->plans += equal;
            if (equal && w + 1 == worker_orders && s.iterations < 4) {
                compare_programs(&program, &other);
                c->programs++;
            }
            ex_program_fini(&other);
        }
    ex_program_fini(&program);
    return true;
}

static void test_names(void **state)
{
    (void)state;
    comparison c = {0};
    for (uint32_t i = 0; i < RT_COUNT_OF(renamed); i++)
        visit_family(&renamed[i], every_of(&renamed[i]), compare_names, &c);
    assert_true(c.programs > 0);
    fprintf(report,
            "names: %" PRIu64 " renamed scenarios have the same plans, %" PRIu64
            " of them compared in all states\n",
            c.plans, c.programs);
}

// ---- reduction -------------------------------------------------------------------------------

typedef struct {
    uint64_t scenarios, states[EX_REDUCTIONS], compared;
} reduction;

static const family reduced[] = {
    {"2 workers, 2 keys, 1 slot", 2, 2, 1, 3, 1, ALL_VARIANTS, .every = 3000, .every_full = 20},
    {"2 workers, 2 keys, 2 slots", 2, 2, 2, 3, 1, ALL_VARIANTS, .every = 50000, .every_full = 1000},
    {"2 workers, 2 keys, 2 shards", 2, 2, 2, 2, 2, ALL_VARIANTS, .every = 3000, .every_full = 300},
    {"3 workers, 2 keys, 1 slot", 3, 2, 1, 2, 1, ALL_VARIANTS, .every = 20000, .every_full = 400},
    {"3 workers, 3 keys, 1 slot", 3, 3, 1, 2, 2, THREE_BY_THREE, .every = 600, .every_full = 90},
    {"3 workers, 3 keys, 2 slots", 3, 3, 2, 2, 2, THREE_BY_THREE, .every_full = 10000},
    {"3 workers, 3 keys, 3 slots", 3, 3, 3, 2, 2, THREE_BY_THREE, .every_full = 100000},
};

// With and without, the same states are the last ones.
static bool compare_reduced(void *context, const ex_scenario *scenario)
{
    reduction *r = context;
    ex_program program;
    ex_counts whole, counts;
    char violation[2048];
    ex_program_init(&program, scenario);
    for (uint32_t i = 0; i < EX_REDUCTIONS; i++) {
        ex_options options = {.reduction = i, .checked = i == EX_ALL};
        if (!ex_explore(&program, &options, &counts, violation, sizeof violation))
            fail_msg("%s", violation);
        if (i == EX_ALL)
            whole = counts;
        assert_int_equal(whole.ends, counts.ends);
        assert_int_equal(whole.end_hash, counts.end_hash);
        r->states[i] += counts.states;
        r->compared += counts.compared;
    }
    r->scenarios++;
    ex_program_fini(&program);
    return true;
}

static void test_reduction(void **state)
{
    (void)state;
    reduction r = {0};
    for (uint32_t i = 0; i < RT_COUNT_OF(reduced); i++) {
        uint64_t before = r.scenarios, whole = r.states[EX_ALL], some = r.states[EX_PERSISTENT];
        visit_family(&reduced[i], every_of(&reduced[i]), compare_reduced, &r);
        fprintf(report, "%s: %" PRIu64 " scenarios, %" PRIu64 " states instead of %" PRIu64 "\n",
                reduced[i].name, r.scenarios - before, r.states[EX_PERSISTENT] - some,
                r.states[EX_ALL] - whole);
    }
    assert_true(r.states[EX_PERSISTENT] < r.states[EX_ANSWERS_FIRST]);
    assert_true(r.states[EX_ANSWERS_FIRST] < r.states[EX_ALL]);
    fprintf(report,
            "reduction: %" PRIu64 " states, %" PRIu64 " with answers first, %" PRIu64
            " of persistent sets; %" PRIu64 " pairs of actions compared\n",
            r.states[EX_ALL], r.states[EX_ANSWERS_FIRST], r.states[EX_PERSISTENT], r.compared);
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
    {EX_BREAK_LAND_EARLY, NULL},
    {EX_BREAK_PUSH_EARLY, NULL},
    {EX_BREAK_TRAIN_EARLY, NULL},
    {EX_BREAK_ANY_VERSION,
     "the PS never answers with a later version: the check guards the others"},
    {EX_BREAK_NO_STAGING, NULL},
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
    {EX_BREAK_CUT_UNCONFIRMED, NULL},
    {EX_BREAK_CUT_ONE_MARK, NULL},
    {EX_BREAK_CUT_OPEN, NULL},
    {EX_BREAK_RUN_AHEAD, NULL},
};
_Static_assert(RT_COUNT_OF(broken_rules) == EX_BREAKS - 1, "every rule is broken once");

typedef struct {
    ex_break which;
    uint64_t runs, runs_reduced;
    uint64_t differing; // in which only one of the two explorations finds it
    bool found, found_reduced;
    char scenario[512], violation[2048];
} hunt;

static bool is_plan_rule(ex_break which)
{
    return which <= EX_BREAK_PLAN_NO_DROP || which == EX_BREAK_STORE_ANY;
}

// Answers go first because a row lands at rel(slot) and an answer never stays in the connection.
// Without that the reduction may find nothing in a scenario where there is something.
static bool is_reason(ex_break which)
{
    return which == EX_BREAK_LAND_EARLY || which == EX_BREAK_NO_STAGING;
}

static void hunt_one(hunt *h, ex_program *program)
{
    ex_options whole = {.broken = h->which}, some = whole;
    ex_counts counts;
    char violation[2048];
    bool found = false, found_reduced = false;
    some.reduction = EX_PERSISTENT;
    if (!h->found) {
        h->runs++;
        found = !ex_explore(program, &whole, &counts, h->violation, sizeof h->violation);
    }
    if (!h->found_reduced) {
        h->runs_reduced++;
        found_reduced = !ex_explore(program, &some, &counts, violation, sizeof violation);
    }
    if (!h->found && !h->found_reduced)
        h->differing += found != found_reduced;
    h->found |= found;
    h->found_reduced |= found_reduced;
}

// Both without and with reduction, until both have found it. False: they have.
static bool hunt_in(void *context, const ex_scenario *scenario)
{
    hunt *h = context;
    ex_program whole;
    const bool before = h->found;
    ex_program_init(&whole, scenario);
    for (uint32_t place = 0; !h->found || !h->found_reduced; place++) {
        ex_program program = whole;
        if (is_plan_rule(h->which) ? !ex_program_break(&program, h->which, place) : place > 0)
            break;
        hunt_one(h, &program);
    }
    if (h->found && !before)
        ex_scenario_print(scenario, h->scenario, sizeof h->scenario);
    ex_program_fini(&whole);
    return !h->found || !h->found_reduced;
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

                                      .first_touch_pull = true};

static bool break_rule(const broken_rule *rule)
{
    hunt h = {.which = rule->which};
    hunt_in(&h, &late_base);
    for (uint32_t f = 0; f < RT_COUNT_OF(hunting_grounds) && (!h.found || !h.found_reduced); f++)
        visit_family(&hunting_grounds[f], every_of(&hunting_grounds[f]), hunt_in, &h);
    const bool right = h.runs > 0 && h.found == (rule->missed == NULL) &&
                       h.found_reduced == h.found && (h.differing == 0 || is_reason(rule->which));
    fprintf(report, "%s%s\n", right ? "" : "WRONG: ", ex_break_text(rule->which));
    if (h.found)
        fprintf(report,
                "    %s\n    in: %s\n    found in run %" PRIu64 ", with reduction in run %" PRIu64
                "%s\n",
                h.violation, h.scenario, h.runs, h.runs_reduced,
                h.found_reduced ? "" : ": not found");
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
        TEST_SLOW(test_names, LIMIT_S), TEST_SLOW(test_reduction, LIMIT_S),
        TEST_SLOW(test_broken_rules, LIMIT_S)};
    report = fdopen(dup(STDOUT_FILENO), "w");
    assert_non_null(report);
    setvbuf(report, NULL, _IOLBF, 0);
    return test_run(cases, sizeof cases / sizeof cases[0], argc, argv);
}
