// explore_case - what the cases share that explore families of small scenarios.
#ifndef EXPLORE_CASE_H
#define EXPLORE_CASE_H

#include "tests/explore/explore.h"

// EXPLORE=full: all there is, for hours.
bool ex_is_full(void);

// What a family's scenarios came to.
typedef struct {
    uint64_t scenarios, states, transitions;
    uint64_t deltas;  // PUSH_DELTA planned
    uint64_t dropped; // copies that sweeps give up
    uint64_t moved;   // FORGET planned
    uint64_t handed;  // SEND planned
    uint64_t reduced; // REDUCE planned
    ex_replayed replayed;
} ex_totals;

// Plans a scenario and follows its orders, with a rule broken, or none; replayed: ex_replay, too.
// False: violation (of at least 512 bytes) says what is wrong.
bool ex_explore_scenario(const ex_scenario *scenario, ex_break broken, bool replayed,
                         ex_totals *sum, char *violation, size_t size);

// A scenario's orders, with a rule of the planner broken in one place after the other. False: one
// was found.
bool ex_explore_broken(const ex_scenario *scenario, ex_break broken, char *violation, size_t size);

// ex_explore_scenario with no rule broken: what is wrong ends the test.
void ex_must_hold(const ex_scenario *scenario, bool replayed, ex_totals *sum);

// Every placement of keys on workers, at most slot_count on one.
typedef struct {
    uint32_t worker_count, key_count, slot_count, iterations, shard_count;
    uint32_t every; // one of so many placements
} ex_family;

// Scenario number `number` by run-ahead, credits, first touch, guard, bad batch and eviction, in
// the family's sizes; nothing is placed yet.
ex_scenario ex_varied(const ex_family *family, uint64_t number);

uint64_t ex_placement_count(const ex_family *family);

// Placement number `number`. False: an iteration has no sample.
bool ex_place(const ex_family *family, uint64_t number, ex_scenario *s);

// The same, with a cut in every other scenario, or a sweep in each; and of three workers as many
// orders as can be followed.
bool ex_place_with_cut(const ex_family *family, uint64_t number, bool sweeps, ex_scenario *s);

// A family's scenario by the number of its placement. False: there is none of this number.
typedef bool (*ex_numbered)(const void *family, uint64_t number, ex_scenario *s);

// One of family->every placements, ten times as many in full, with no rule broken; one of
// every_replay scenarios is replayed, too (0: none).
ex_totals ex_explore_family(const ex_family *family, ex_numbered numbered, const void *context,
                            uint32_t every_replay);

// The number of the first placement, from `from` on in steps of family->every, that shows the
// broken rule, or 0. violation, of at least 512 bytes, says how.
uint64_t ex_find_broken(const ex_family *family, ex_numbered numbered, const void *context,
                        ex_break broken, uint64_t from, char *violation, size_t size);

#endif
