// dp_moves - the rows that each sink holds, and for every ordered pair of sinks the row that moves
// from one to the other at the least change of cost.
//
// Per sink a tree of minima with one lane per other sink: 16 rows make a block, 16 blocks a chunk.
// A change costs O(16 + 16 + rows/256) vectors of lanes, building costs one pass over the matrix
// (heaps per pair would cost n of them). Chunks come from one pool. One thread; only create
// allocates.
#ifndef DP_MOVES_H
#define DP_MOVES_H

#include <string.h>

#include "dispatch/solvers/dp_solver.h"
#include "runtime/rt_base.h"

// ---- dp_lanes.c -------------------------------------------------------------------------------

// The inner loops of the transport solver, over all sinks at once.
//
// A row of costs is padded to lane_count, a multiple of DP_LANES; sinks are its lanes. All variants
// give the same integers; the fastest one that the machine has is chosen at run time. No state.

#define DP_LANES 8u
#define DP_LANES_MAX RT_WORKERS_MAX
#define DP_LANES_PAD (INT32_C(1) << 30) // cost of a lane without a sink: never the lowest

// Tentative distances of one search among the sinks. A key orders sinks by distance, then those
// with room first, then by index, in one comparison:
//
//     key = distance << 7 | full << 6 | sink
//     distance 5, full, sink 3:       640 + 64 + 3 = 707
//     distance 5, with room, sink 9:  640      + 9 = 649, which is lower: settled first
//
// Settling a sink gives another one the distance base + weight + its price, where base is distance
// less price of the sink. Prices carry the low bits of their own sink, and base has none, so that
// one sum makes the whole key: from sink 3 above (price 2) by a weight of 4 to sink 9 (price 1):
//
//     (5 - 2) << 7  +  4 << 7  +  (1 << 7 | 9)  =  8 << 7 | 9
typedef struct {
    int64_t key[DP_LANES_MAX];
    int64_t parent[DP_LANES_MAX];
    int64_t closed[DP_LANES_MAX]; // INT64_MAX: settled, or no sink; else 0
    int64_t price[DP_LANES_MAX];  // price << 7 | full << 6 | sink; no sink: DP_LANES_UNREACHED
} dp_lanes_search;

#define DP_LANES_KEY_BITS 7
#define DP_LANES_KEY_FULL 64
#define DP_LANES_KEY_SINK 63
#define DP_LANES_UNREACHED (INT64_MAX / 4)

typedef struct {
    // tied[r]: the lanes where costs[r * stride + lane] + prices[lane] is lowest, as bits in the
    // order of dp_lanes_of_bit.
    void (*lowest)(const int32_t *costs, uint32_t row_count, size_t stride, const int32_t *prices,
                   uint32_t lane_count, uint64_t *tied);
    // least[lane] = min over row_count >= 1 rows.
    void (*minima)(const int32_t *rows, uint32_t row_count, uint32_t lane_count, int32_t *least);
    // Closes sink, relaxes its arcs to all others (weights[lane], at most weight_max, plus the
    // difference of prices), and returns the lowest key that is not closed.
    int64_t (*settle)(dp_lanes_search *search, uint32_t sink, const int32_t *weights,
                      int32_t weight_max, uint32_t lane_count);
} dp_lanes_ops;

const dp_lanes_ops *dp_lanes_best(void);

// The plain variant, which every machine has; tests hold the others against it.
extern const dp_lanes_ops dp_lanes_plain;

static inline uint32_t dp_lanes_count(uint32_t sink_count)
{
    return (sink_count + DP_LANES - 1) / DP_LANES * DP_LANES;
}

static inline uint32_t dp_lanes_of_bit(uint32_t bit)
{
    return bit % 8 * 8 + bit / 8;
}

// difference[lane] = costs[lane] - cost. In the header, and over vectors that every machine has,
// because it is too short for a call.
static inline void dp_lanes_subtract(const int32_t *costs, int32_t cost, uint32_t lane_count,
                                     int32_t *difference)
{
    typedef int32_t quad __attribute__((vector_size(16)));
    for (uint32_t l = 0; l < lane_count; l += 4) {
        quad value;
        memcpy(&value, costs + l, sizeof value);
        value -= cost;
        memcpy(difference + l, &value, sizeof value);
    }
}

// -----------------------------------------------------------------------------------------------

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
