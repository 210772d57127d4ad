// Explores bounded staleness: PUSH_DELTA and the pulls between, in every order of events of small
// runs (docs/PROTOCOL.md, "Explored"). A cache keeps one row; iterations train up to one per worker.
// What is right are the plans carried out in the planned order (explore_stale.c): every training
// must read exactly those values, and the PS must end with them.
#include "tests/support/test.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/explore/explore.h"

typedef struct {
    uint32_t worker_count, key_count, iterations, shard_count;
    uint32_t every; // one of so many placements
} family;

typedef struct {
    uint64_t scenarios, states, transitions, deltas;
    ex_replayed replayed;
} totals;

static bool is_full(void)
{
    const char *wanted = getenv("EXPLORE");
    return wanted && strcmp(wanted, "full") == 0;
}

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
    return (ex_scenario){.worker_count = (uint8_t)f->worker_count,
                         .key_count = (uint8_t)f->key_count,
                         .slot_count = 1,
                         .shard_count = (uint8_t)f->shard_count,
                         .iterations = (uint8_t)f->iterations,
                         .run_ahead = (uint8_t)(number % 3),
                         .push_credits = number / 3 % 4 ? EX_QUEUE : 1,
                         .first_touch_pull = number / 5 % 2,
                         .guard = number / 7 % 3 == 0,
                         .bad = number / 11 % 2 ? 2 : 0,
                         .eviction = (rt_eviction_kind)(number % 4),
                         .staleness = (uint8_t)(1 + number / 13 % 2)};
}

// False: violation says what is wrong.
static bool explore(const ex_scenario *s, ex_break broken, totals *sum, bool replayed,
                    char *violation, size_t size)
{
    ex_program *program = malloc(sizeof *program);
    ex_counts counts;
    assert_non_null(program);
    ex_program_init(program, s);
    const ex_options options = {.broken = broken,
                                .reduction = EX_ANSWERS_FIRST,
                                .leaf = replayed ? ex_replay : NULL,
                                .context = &sum->replayed};
    const bool right = ex_explore(program, &options, &counts, violation, size);
    sum->scenarios++;
    sum->states += counts.states;
    sum->transitions += counts.transitions;
    sum->deltas += program->operations[DP_OP_PUSH_DELTA];
    ex_program_fini(program);
    free(program);
    return right;
}

static void explore_family(family f, uint32_t every_replay)
{
    totals sum = {0};
    char violation[1024], text[512];
    const uint64_t count = placement_count(&f);
    const uint32_t every = is_full() ? 1 : f.every;
    for (uint64_t number = 1; number < count; number += every) {
        ex_scenario s = scenario_of_number(&f, number);
        if (!place(&f, number, &s))
            continue;
        if (explore(&s, EX_BREAK_NONE, &sum, sum.scenarios % every_replay == 0, violation,
                    sizeof violation))
            continue;
        ex_scenario_print(&s, text, sizeof text);
        fail_msg("%s: %s", text, violation);
    }
    assert_true(sum.deltas > 0 && sum.replayed.actions > 0);
    printf("%u workers, %u keys, %u shards, %u iterations: %" PRIu64 " scenarios, %" PRIu64
           " states, %" PRIu64 " transitions, %" PRIu64 " deltas planned, %" PRIu64
           " actions replayed\n",
           f.worker_count, f.key_count, f.shard_count, f.iterations, sum.scenarios, sum.states,
           sum.transitions, sum.deltas, sum.replayed.actions);
}

static void two_workers(void **state)
{
    (void)state;
    explore_family((family){2, 2, 4, 1, 7}, 13);
    explore_family((family){2, 2, 4, 2, 31}, 31);
    explore_family((family){2, 3, 3, 1, 5}, 17);
}

static void three_workers(void **state)
{
    (void)state;
    explore_family((family){3, 2, 3, 1, 97}, 97);
    explore_family((family){3, 1, 4, 1, 41}, 41);
}

// Every rule is broken once, and some order shows it.
static void broken_rules_are_found(void **state)
{
    (void)state;
    const family f = {3, 1, 4, 1, 1};
    for (ex_break broken = EX_BREAK_DELTA_ANY_BASE; broken < EX_BREAK_STALE_END; broken++) {
        totals sum = {0};
        char violation[1024] = "";
        bool found = false;
        for (uint64_t number = 1; number < placement_count(&f) && !found; number += 5) {
            ex_scenario s = scenario_of_number(&f, number);
            s.run_ahead = 2;
            s.guard = false;
            found = place(&f, number, &s) &&
                    !explore(&s, broken, &sum, false, violation, sizeof violation);
        }
        printf("rule %d: %.120s\n", broken, violation);
        assert_true(found);
    }
}

TEST_MAIN(TEST_SLOW(two_workers, 7200), TEST_SLOW(three_workers, 7200),
          TEST_SLOW(broken_rules_are_found, 120))
