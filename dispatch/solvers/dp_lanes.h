// dp_lanes - the inner loops of the transport solver, over all sinks at once.
//
// A row of costs is padded to lane_count, a multiple of DP_LANES; sinks are its lanes. All variants
// give the same integers; the fastest one that the machine has is chosen at run time. No state.
#ifndef DP_LANES_H
#define DP_LANES_H

#include <string.h>

#include "runtime/rt_base.h"

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

#endif
