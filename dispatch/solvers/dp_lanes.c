#include "dispatch/solvers/dp_moves.h"

// Every loop is written once over vectors of 8 x 32 or 4 x 64 bits, which the compiler maps to what
// the target of the calling function has.
typedef int32_t wide32 __attribute__((vector_size(32)));
typedef int64_t wide64 __attribute__((vector_size(32)));
typedef int32_t half32 __attribute__((vector_size(16)));
typedef uint8_t bytes8 __attribute__((vector_size(8)));

#define INLINE static inline __attribute__((always_inline))
#define LOWER(a, b, less) (((a) & (less)) | ((b) & ~(less))) // less: all ones where a < b

INLINE void lowest_body(const int32_t *costs, uint32_t row_count, size_t stride,
                        const int32_t *prices, uint32_t lane_count, uint64_t *tied)
{
    wide32 sums[DP_LANES_MAX / DP_LANES];
    uint32_t step_count = lane_count / DP_LANES;
    for (uint32_t r = 0; r < row_count; r++, costs += stride) {
        wide32 low = {DP_LANES_PAD, DP_LANES_PAD, DP_LANES_PAD, DP_LANES_PAD,
                      DP_LANES_PAD, DP_LANES_PAD, DP_LANES_PAD, DP_LANES_PAD};
        for (uint32_t k = 0; k < step_count; k++) {
            wide32 cost, price;
            memcpy(&cost, costs + k * DP_LANES, sizeof cost);
            memcpy(&price, prices + k * DP_LANES, sizeof price);
            sums[k] = cost + price;
            wide32 less = sums[k] < low;
            low = LOWER(sums[k], low, less);
        }
        wide32 other = __builtin_shufflevector(low, low, 4, 5, 6, 7, 0, 1, 2, 3);
        wide32 less = other < low;
        low = LOWER(other, low, less);
        other = __builtin_shufflevector(low, low, 2, 3, 0, 1, 6, 7, 4, 5);
        less = other < low;
        low = LOWER(other, low, less);
        other = __builtin_shufflevector(low, low, 1, 0, 3, 2, 5, 4, 7, 6);
        less = other < low;
        low = LOWER(other, low, less);
        wide32 equal = {0};
        for (uint32_t k = 0; k < step_count; k++)
            equal |= (sums[k] == low) & (1 << k);
        bytes8 bytes = __builtin_convertvector(equal, bytes8);
        memcpy(&tied[r], &bytes, sizeof bytes);
    }
}

INLINE void minima_body(const int32_t *rows, uint32_t row_count, uint32_t lane_count,
                        int32_t *least)
{
    for (uint32_t l = 0; l < lane_count; l += DP_LANES) {
        wide32 low, value;
        memcpy(&low, rows + l, sizeof low);
        for (uint32_t r = 1; r < row_count; r++) {
            memcpy(&value, rows + (size_t)r * lane_count + l, sizeof value);
            wide32 less = value < low;
            low = LOWER(value, low, less);
        }
        memcpy(least + l, &low, sizeof low);
    }
}

INLINE int64_t settle_body(dp_lanes_search *search, uint32_t sink, const int32_t *weights,
                           int32_t weight_max, uint32_t lane_count)
{
    const int64_t distance_mask = -(INT64_C(1) << DP_LANES_KEY_BITS);
    int64_t base = (search->key[sink] & distance_mask) - (search->price[sink] & distance_mask);
    search->closed[sink] = INT64_MAX;
    wide64 best = {INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX};
    for (uint32_t l = 0; l < lane_count; l += 4) {
        half32 weight;
        wide64 price, key, parent, closed;
        memcpy(&weight, weights + l, sizeof weight);
        memcpy(&price, search->price + l, sizeof price);
        memcpy(&key, search->key + l, sizeof key);
        memcpy(&parent, search->parent + l, sizeof parent);
        memcpy(&closed, search->closed + l, sizeof closed);
        half32 cut = weight > weight_max;
        weight = (weight & ~cut) | (weight_max & cut);
        wide64 wide = __builtin_convertvector(weight, wide64);
        wide64 reached = wide * (1 << DP_LANES_KEY_BITS) + price + base;
        wide64 less = reached < key;
        key = LOWER(reached, key, less);
        parent = ((int64_t)sink & less) | (parent & ~less);
        memcpy(search->key + l, &key, sizeof key);
        memcpy(search->parent + l, &parent, sizeof parent);
        key |= closed;
        less = key < best;
        best = LOWER(key, best, less);
    }
    int64_t low = best[0];
    for (uint32_t i = 1; i < 4; i++)
        low = best[i] < low ? best[i] : low;
    return low;
}

#define VARIANT(suffix, attribute)                                                                 \
    attribute static void lowest_##suffix(const int32_t *costs, uint32_t row_count, size_t stride, \
                                          const int32_t *prices, uint32_t lane_count,              \
                                          uint64_t *tied)                                          \
    {                                                                                              \
        lowest_body(costs, row_count, stride, prices, lane_count, tied);                           \
    }                                                                                              \
    attribute static void minima_##suffix(const int32_t *rows, uint32_t row_count,                 \
                                          uint32_t lane_count, int32_t *least)                     \
    {                                                                                              \
        minima_body(rows, row_count, lane_count, least);                                           \
    }                                                                                              \
    attribute static int64_t settle_##suffix(dp_lanes_search *search, uint32_t sink,               \
                                             const int32_t *weights, int32_t weight_max,           \
                                             uint32_t lane_count)                                  \
    {                                                                                              \
        return settle_body(search, sink, weights, weight_max, lane_count);                         \
    }

VARIANT(plain, )
const dp_lanes_ops dp_lanes_plain = {lowest_plain, minima_plain, settle_plain};

#if defined(__x86_64__)
VARIANT(avx2, __attribute__((target("avx2"))))
static const dp_lanes_ops lanes_avx2 = {lowest_avx2, minima_avx2, settle_avx2};

const dp_lanes_ops *dp_lanes_best(void)
{
    return __builtin_cpu_supports("avx2") ? &lanes_avx2 : &dp_lanes_plain;
}
#else
const dp_lanes_ops *dp_lanes_best(void)
{
    return &dp_lanes_plain;
}
#endif
