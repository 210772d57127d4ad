// rt_coding - how floats travel (rt_coding of rt_config.h): as they are, in 16 bits, in 8.
//
// Of the dense exchange (network.dense_wire) and of rows (network.row_wire). Any thread.
#ifndef RT_CODING_H
#define RT_CODING_H

#include "runtime/config/rt_config.h"

// int8: so many iterations of a run's dense exchange travel in 32 bits, counted by their numbers,
// on which all members and the planner agree: whether one was trained some know later, and some
// never. The first steps of Adagrad from empty accumulators are as long for a small gradient as for
// a large one, and rounding in a block makes zeros of the small ones: their weights would not step
// at all (docs/results/models.md).
#define RT_CODING_WHOLE_ITERATIONS 20u

// Bytes that so many floats of the dense vector take, and how many floats take so many bytes.
uint64_t rt_coding_dense_bytes(rt_coding coding, uint64_t floats);
uint64_t rt_coding_dense_floats(rt_coding coding, uint64_t bytes);

// The values of one row: words of 4 bytes. int8 has one scale for all of them, in the first word;
// bytes behind the last value are 0.
uint32_t rt_coding_words(rt_coding coding, uint32_t count);
void rt_coding_pack(rt_coding coding, const float *values, uint32_t count, void *words);
void rt_coding_unpack(rt_coding coding, const void *words, uint32_t count, float *values);

#endif
