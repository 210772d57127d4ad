// dp_sweep - rows that nobody has trained for long end, so that a run of months fits its memory.
//
// A sweep happens between two iterations. It has one number, the floor: every row that was trained
// last before iteration `floor` ends. The planner forgets its key and gives up the copies in caches
// (DROP, also of a dirty one: nobody will read it); once everything planned so far is carried out,
// every shard is told the floor (EXPIRE) and forgets the same rows, by the versions that it has. A
// key that comes back starts anew, as one that was never there.
//
// With bounded staleness (dp_stale.h) every copy is pushed first, as for a checkpoint.
//
// No later iteration goes out before all shards have answered, so neither a pull of such a row nor
// a gradient for it can be under way, and versions alone say what ends (docs/PROTOCOL.md, Sweeps).
//
// The floor is the largest of
//     t - rows.expire_iterations + 1, after every eighth part of that time
//     the input records DP_INPUT_ROWS_FLOOR of the next look-up (rows.expire_s)
// Where the planner knows more than rows.max keys, it is also at least what leaves seven eighths of
// them. What the last iteration trained never ends.
#ifndef DP_SWEEP_H
#define DP_SWEEP_H

#include "dispatch/planner/dp_planner.h"

// Rows that people ask to end (DP_INPUT_FORGET) end in a sweep, too, by their keys and whatever
// their age: the shards are told the keys beside the floor.
//
// Between two iterations, records of the next applied. True: a sweep is due, with this floor (0: no
// row is too old), and at least one row ends.
bool dp_sweep_due(const dp_planner *planner, uint32_t *floor_p);

// plan: the copies that are given up, iteration 0; *ended_p: keys that are
// forgotten. RT_NO_MEMORY: the planner must not be used further.
rt_status dp_sweep(dp_planner *planner, uint32_t floor, const dp_plan **plan_p, uint64_t *ended_p);

// The keys that the last sweep ended by name; until the next one.
const uint64_t *dp_sweep_forgotten(const dp_planner *planner, uint32_t *count_p);

#endif
