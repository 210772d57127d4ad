// dp_homes - which shard every row is on, where homes are planned (ps.homes).
//
// The first home of a row is the box that trains it first; of several, the one of them whose link
// has served others the least in the iteration. Who trains a row alone pushes it to the shard on
// its own box, which takes no link, and it is at home there from then on. If several train a row
// that is at home with none of them, one of them takes it in: it pulls the row with its state and
// pushes it, untrained, to its own box, where the gradients then meet. A shard takes no more rows
// than its memory holds.
// Where homes are hashed, all of it says what rt_key_shard says.
#ifndef DP_HOMES_H
#define DP_HOMES_H

#include "dispatch/planner/dp_planner_parts.h"

// The box that others would have a key's row of, as a view shows it; DP_NO_BOX: it is on none, or
// boxes are not told. dirty: its holder has what the PS lacks.
uint8_t dp_homes_box(const dp_planner *planner, const dp_record *record, bool dirty);

// Whether every worker has the row without a transfer: it is made where it is first trained, and
// boxes are told.
static inline bool dp_homes_at_hand(const dp_planner *planner, const dp_record *record)
{
    return planner->config.boxes.count && record->version == 0 &&
           planner->config.dispatch.first_touch == RT_FIRST_TOUCH_LOCAL;
}

static inline bool dp_homes_are_planned(const dp_planner *planner)
{
    return planner->directory.homes != NULL;
}

// In a trial (shard_share): a key that comes for the first time has a row, on a shard of who takes
// part, each of which has its share of all rows, or on one of the others.
void dp_homes_assume(dp_planner *planner, dp_record *record);

// A PULL or PUSH_GRAD names the shard that it goes to: home, where homes are planned.
static inline void dp_homes_name(const dp_planner *planner, uint8_t home, dp_op *op)
{
    if (planner->directory.homes)
        dp_op_set_shard(op, home);
}

// Flag of operations on rows that move from shard to shard: in 32 bits, also where rows travel
// rounded.
static inline uint8_t dp_homes_whole(const dp_planner *planner)
{
    return planner->config.layout.wire == RT_CODING_FP32 ? 0 : DP_OP_WHOLE;
}

// A PUSH_ROW of a worker, added to `release`: it goes to the shard on the worker's box, where there
// is one with room, and the shard before forgets the row. To the worker's own box it goes whole.
// RT_NO_MEMORY.
rt_status dp_homes_push(dp_planner *planner, dp_plan *plan, uint32_t worker, uint32_t at,
                        dp_record *record);

// Before the rows of an iteration are placed: who takes in a row of distinct key d that several
// train; a rank, or DP_NO_WORKER. Only where homes are planned, as dp_homes_train.
void dp_homes_choose_mover(dp_planner *planner, uint32_t d);

// Training of distinct key d: its home afterwards. Those that take a row in push it first.
// RT_NO_MEMORY.
rt_status dp_homes_train(dp_planner *planner, uint32_t d);

// An iteration begins: no box has served anybody in it.
void dp_homes_begin(dp_planner *planner);

#endif
