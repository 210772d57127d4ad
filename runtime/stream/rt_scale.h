// rt_scale - dense features brought to mean 0 and deviation 1 by what the stream has shown so far.
//
// Mean and deviation run over all samples learnt, batch by batch: a batch is learnt, then scaled by
// what is known with it (features only, no labels). They follow from the batches alone, so the same
// stream gives the same bits on any machine. A model is of use only with the numbers that its last
// batch was scaled by: they are saved with it. One owner, no locking; memory is taken by create.
//
// A feature that is far from zero (a time, the count of a meter: farther than some thousand times
// what its values differ by) has an offset, which is taken off in 64 bits, before it is rounded to
// 32. It is chosen by the first batch that has more than one value, and stays.
#ifndef RT_SCALE_H
#define RT_SCALE_H

#include "runtime/files/rt_tensors.h"
#include "runtime/stream/rt_batch.h"

#define RT_SCALE_LIMIT 10.0f // deviations from the mean; what is further away counts as that far
#define RT_SCALE_TENSORS 3u  // rt_scale_tensors, at most

typedef struct rt_scale rt_scale;

// sample_count_max: of a batch to learn. RT_NO_MEMORY. Without a sample every value becomes 0.
rt_status rt_scale_create(uint32_t dense_count, uint32_t sample_count_max, rt_scale **scale_p);
void rt_scale_destroy(rt_scale *scale); // also NULL

// Learns the features of a batch of the same dense_count, whose dense become what was read less the
// offsets. A value beyond RT_SCALE_LIMIT deviations
// of the samples before, or far beyond the batch's own spread where they have none, enters as that
// far: one wild value does not drown the others.
void rt_scale_learn(rt_scale *scale, rt_batch *batch);

// What was read becomes x, less the offset in 64 bits, and that (x - mean) * factor, in 32, within
// RT_SCALE_LIMIT; 0 where factor is 0 (all values were the same). Returns how many were beyond the limit.
uint64_t rt_scale_apply(rt_scale *scale, rt_batch *batch);
uint64_t rt_scale_clipped(const rt_scale *scale); // of all batches
uint64_t rt_scale_samples(const rt_scale *scale); // learnt

// Copies the state of a scale of the same dense_count.
void rt_scale_copy(const rt_scale *scale, rt_scale *copy);

// All of the state, for a checkpoint. load, of one that was just created: RT_DATA: not such a
// state, or of another dense_count.
void rt_scale_save(const rt_scale *scale, rt_bytes *bytes);
rt_status rt_scale_load(rt_scale *scale, rt_reader *reader, rt_error *error);

// What a saved model needs: arrays of dense_count values, "scale.mean" and "scale.factor"; where
// features have offsets, "scale.mean_less_offset", "scale.factor" and "scale.offset", of two rows
// that add up to it. Returns how many arrays; they point into scale.
uint32_t rt_scale_tensors(const rt_scale *scale, rt_tensor tensors[RT_SCALE_TENSORS]);

// Whether all samples so far had the one value of a feature, and which; false before the first.
bool rt_scale_is_one(const rt_scale *scale, uint32_t feature, double *value_p);

// A scale that only applies what tensors hold. RT_DATA: they lack it, or have it of another
// dense_count, or not finite. RT_NO_MEMORY.
rt_status rt_scale_open(const rt_tensors *tensors, uint32_t dense_count, rt_scale **scale_p,
                        rt_error *error);

// What rt_scale_open gave learns on, as one that has seen so many samples of this mean and
// deviation; 0 is taken for 1. To be copied: it has no room for a batch.
void rt_scale_go_on(rt_scale *scale, uint64_t sample_count);

#endif
