#include "tests/explore/explore_case.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/rt_hash.h"
#include "tests/support/test.h"

bool ex_is_full(void)
{
    const char *wanted = getenv("EXPLORE");
    return wanted && strcmp(wanted, "full") == 0;
}

bool ex_explore_scenario(const ex_scenario *scenario, ex_break broken, bool replayed,
                         ex_totals *sum, char *violation, size_t size)
{
    ex_program *program = malloc(sizeof *program);
    ex_counts counts;
    assert_non_null(program);
    ex_program_init(program, scenario);
    const ex_options options = {.broken = broken,
                                .reduction = EX_ANSWERS_FIRST,
                                .leaf = replayed ? ex_replay : NULL,
                                .context = &sum->replayed};
    const bool right = ex_explore(program, &options, &counts, violation, size);
    sum->scenarios++;
    sum->states += counts.states;
    sum->transitions += counts.transitions;
    sum->deltas += program->operations[DP_OP_PUSH_DELTA];
    sum->moved += program->operations[DP_OP_FORGET];
    sum->handed += program->operations[DP_OP_SEND];
    sum->reduced += program->operations[DP_OP_REDUCE];
    for (uint32_t w = 0; scenario->floor && w < scenario->worker_count; w++)
        sum->dropped += program->slices[program->cut_slice - 1][w].node_count;
    ex_program_fini(program);
    free(program);
    return right;
}

bool ex_explore_broken(const ex_scenario *scenario, ex_break broken, char *violation, size_t size)
{
    ex_program *program = malloc(sizeof *program), *changed = malloc(sizeof *changed);
    const ex_options options = {.broken = broken, .reduction = EX_ANSWERS_FIRST};
    ex_counts counts;
    bool right = true;
    assert_true(program && changed);
    ex_program_init(program, scenario);
    for (uint32_t place = 0; right; place++) {
        *changed = *program;
        if (!ex_program_break(changed, broken, place))
            break;
        right = ex_explore(changed, &options, &counts, violation, size);
    }
    ex_program_fini(program);
    free(program);
    free(changed);
    return right;
}

void ex_must_hold(const ex_scenario *scenario, bool replayed, ex_totals *sum)
{
    char violation[1024], text[512];
    if (ex_explore_scenario(scenario, EX_BREAK_NONE, replayed, sum, violation, sizeof violation))
        return;
    ex_scenario_print(scenario, text, sizeof text);
    fail_msg("%s: %s", text, violation);
}

ex_scenario ex_varied(const ex_family *f, uint64_t number)
{
    return (ex_scenario){.worker_count = (uint8_t)f->worker_count,
                         .key_count = (uint8_t)f->key_count,
                         .slot_count = (uint8_t)f->slot_count,
                         .shard_count = (uint8_t)f->shard_count,
                         .iterations = (uint8_t)f->iterations,
                         .run_ahead =
                             (uint8_t)(rt_mix(number) % 3), // else it hangs on who trains first
                         .push_credits = number / 3 % 4 ? EX_QUEUE : 1,
                         .first_touch_pull = number / 5 % 2,
                         .guard = number / 7 % 3 == 0,
                         .bad = number / 11 % 2 ? 2 : 0,
                         .eviction = (rt_eviction_kind)(number % 4)};
}

// ---- placements ------------------------------------------------------------------------------

// Sets of at most slot_count keys, by number.
static uint32_t sets_of(const ex_family *f, uint8_t sets[1 << EX_KEYS])
{
    uint32_t count = 0;
    for (uint32_t bits = 0; bits < 1u << f->key_count; bits++) {
        if (rt_bit_count(bits) <= f->slot_count)
            sets[count++] = (uint8_t)bits;
    }
    return count;
}

uint64_t ex_placement_count(const ex_family *f)
{
    uint8_t sets[1 << EX_KEYS];
    uint64_t count = 1;
    for (uint32_t i = 0; i < f->iterations * f->worker_count; i++)
        count *= sets_of(f, sets);
    return count;
}

bool ex_place(const ex_family *f, uint64_t number, ex_scenario *s)
{
    uint8_t sets[1 << EX_KEYS];
    const uint32_t count = sets_of(f, sets);
    for (uint32_t t = 0; t < f->iterations; t++) {
        uint32_t any = 0;
        for (uint32_t w = 0; w < f->worker_count; w++, number /= count)
            any |= s->trains[t][w] = sets[number % count];
        if (!any)
            return false;
    }
    return true;
}

bool ex_place_with_cut(const ex_family *f, uint64_t number, bool sweeps, ex_scenario *s)
{
    if (number / 23 % 2 || sweeps)
        s->cut = (uint8_t)(2 + number / 3 % (f->iterations - 2));
    if (sweeps)
        s->floor = (uint8_t)(2 + number / 7 % (s->cut - 1u));
    if (f->worker_count > 2 && !ex_is_full()) { // too many orders otherwise
        s->run_ahead %= 2;
        s->push_credits = EX_QUEUE;
    }
    return ex_place(f, number, s);
}

// ---- families --------------------------------------------------------------------------------

ex_totals ex_explore_family(const ex_family *f, ex_numbered numbered, const void *context,
                            uint32_t every_replay)
{
    ex_totals sum = {0};
    const uint64_t count = ex_placement_count(f);
    const uint32_t every = ex_is_full() ? (f->every + 9) / 10 : f->every;
    for (uint64_t number = 1; number < count; number += every) {
        ex_scenario s;
        if (numbered(context, number, &s))
            ex_must_hold(&s, every_replay && sum.scenarios % every_replay == 0, &sum);
    }
    printf("%u workers, %u keys, %u slots, %u shards, %u iterations: %" PRIu64
           " scenarios, %" PRIu64 " states, %" PRIu64 " transitions, %" PRIu64
           " actions replayed\n",
           f->worker_count, f->key_count, f->slot_count, f->shard_count, f->iterations,
           sum.scenarios, sum.states, sum.transitions, sum.replayed.actions);
    return sum;
}

uint64_t ex_find_broken(const ex_family *f, ex_numbered numbered, const void *context,
                        ex_break broken, uint64_t from, char *violation, size_t size)
{
    const uint64_t count = ex_placement_count(f);
    ex_totals sum = {0};
    for (uint64_t number = from; number < count; number += f->every) {
        ex_scenario s;
        if (!numbered(context, number, &s))
            continue;
        const bool right = ex_break_is_of_plan(broken)
                               ? ex_explore_broken(&s, broken, violation, size)
                               : ex_explore_scenario(&s, broken, false, &sum, violation, size);
        if (!right)
            return number;
    }
    return 0;
}
