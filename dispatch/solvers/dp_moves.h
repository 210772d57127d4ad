// dp_moves - the rows that each sink holds, and for every ordered pair of sinks the row that moves
// from one to the other at the least change of cost.
//
// Per sink a tree of minima with one lane per other sink: 16 rows make a block, 16 blocks a chunk.
// A change costs O(16 + 16 + rows/256) vectors of lanes, building costs one pass over the matrix
// (heaps per pair would cost n of them). Chunks come from one pool. One thread; only create
// allocates.
#ifndef DP_MOVES_H
#define DP_MOVES_H

#include "dispatch/solvers/dp_lanes.h"
#include "dispatch/solvers/dp_solver.h"

typedef struct {
    const dp_lanes_ops *lanes;
    const dp_problem *problem; // of the present reset
    uint32_t lane_count;
    uint32_t chunk_count_max; // of one sink
    uint32_t pool_count, free_count;
    int32_t *change;      // pool x rows of a chunk x lanes: cost there minus cost here
    int32_t *block_least; // pool x blocks of a chunk x lanes
    int32_t *chunk_least; // sinks x chunk_count_max x lanes
    int32_t *least;       // sinks x lanes
    uint32_t *row;        // pool x rows of a chunk
    uint32_t *chunk;      // sinks x chunk_count_max: places in the pool
    uint32_t *free;       // free_count places in the pool
    uint32_t row_count[RT_WORKERS_MAX];
} dp_moves;

// RT_NO_MEMORY; fini is then allowed too.
rt_status dp_moves_init(dp_moves *moves, uint32_t row_count_max, uint32_t sink_count_max);
void dp_moves_fini(dp_moves *moves);

// Empties all sinks. problem stays the caller's and is read until the next reset.
void dp_moves_reset(dp_moves *moves, const dp_problem *problem);

// First add all rows, costs being those of row padded to lane_count; then build once. Afterwards
// the other functions keep all minima up to date.
void dp_moves_add(dp_moves *moves, uint32_t sink, uint32_t row, const int32_t *costs);
void dp_moves_build(dp_moves *moves);

// Least change of cost of moving one row from sink to each other sink, lane_count values;
// meaningless when sink holds no row.
static inline const int32_t *dp_moves_least(const dp_moves *moves, uint32_t sink)
{
    return moves->least + (size_t)sink * moves->lane_count;
}

// The slot, in sink, of the first row that moves to other at the least change. sink holds a row.
uint32_t dp_moves_find(const dp_moves *moves, uint32_t sink, uint32_t other);
uint32_t dp_moves_row(const dp_moves *moves, uint32_t sink, uint32_t slot);

void dp_moves_append(dp_moves *moves, uint32_t sink, uint32_t row);
void dp_moves_replace(dp_moves *moves, uint32_t sink, uint32_t slot, uint32_t row);
void dp_moves_remove(dp_moves *moves, uint32_t sink, uint32_t slot);

#endif
