// fabric_case - shapes, schedules and comparisons of those oracles that carry plans out by a rule
// of their own (staleness, rows that travel rounded).
#ifndef FABRIC_CASE_H
#define FABRIC_CASE_H

#include "runtime/rt_hash.h"
#include "tests/support/fabric.h"

// Four workers, two shards, 40 iterations of a small model, LRU, LAIA, Adagrad.
fabric_shape fabric_case_shape(uint64_t seed);

// One of every run-ahead, credits, queues; messages are short for every other i.
fabric_schedule fabric_case_schedule(rt_random *random, uint32_t i);

// Runs a plan by so many schedules: rows (key_count x floats) and the dense part are those of the
// rule, bit for bit, or the test ends.
void fabric_case_must_give(const fabric_plan *plan, uint32_t schedules, rt_random *random,
                           const float *rows, uint32_t floats, ew_model *model);

// The values of one row as they travel, by loops.
void fabric_case_round(rt_coding coding, float *values, uint32_t count);

#endif
