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
    ex_replayed replayed;
} ex_totals;

// Plans a scenario and follows its orders, with a rule broken, or none; replayed: ex_replay, too.
// False: violation (of at least 512 bytes) says what is wrong.
bool ex_explore_scenario(const ex_scenario *scenario, ex_break broken, bool replayed,
                         ex_totals *sum, char *violation, size_t size);

// The same, with no rule broken: what is wrong ends the test.
void ex_must_hold(const ex_scenario *scenario, bool replayed, ex_totals *sum);

// Scenario number `number` by run-ahead, credits, first touch, guard, bad batch and eviction, in
// the sizes given; nothing is placed yet.
ex_scenario ex_varied(uint32_t workers, uint32_t keys, uint32_t slots, uint32_t shards,
                      uint32_t iterations, uint64_t number);

#endif
