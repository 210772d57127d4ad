// rt_batch - samples in columns: labels, dense features, and the keys of every sample.
//
// A container that grows and is reused; one owner at a time, no locking. Every sample has at least
// one key in every field (a missing value is the id RT_ID_MISSING), its keys stand in ascending
// field order, and no key stands twice in a sample. With has_gaps some keys were taken out
// (rows.admit): fields may have none.
//
// Where fields share tables a planner's batch is folded (rt_tables.h): its keys are those of rows,
// in no order, and no key stands twice in a sample. Which field uses which key say the look-ups:
// bag i x fields + f, field f of sample i, has those from bag_offsets[bag] to bag_offsets[bag + 1],
// each the place of a key in `keys`.
//
// Dense features are there twice: as they were read, and in the 32 bits that a model takes, which
// rt_scale makes of them where they are far from zero: rounded alone, a time of today is a multiple
// of 128 seconds.
//
// Of a weighted batch a sample counts `weight` times, and `label` is what of that has label 1: 0 or
// the weight itself. A correction of what was trained before may have a weight of 0 and a label of
// 1: one time label 1 in place of one time label 0 (rt_join.h).
//
// Samples of several labels have both of every label, label by label; such a batch is weighted, and
// a label that is absent has weight 0 and label 0.
#ifndef RT_BATCH_H
#define RT_BATCH_H

#include "runtime/rt_base.h"

// Scratch of a fold: where a key of this sample is.
typedef struct {
    uint32_t stamp, place;
} rt_batch_slot;

// What may be learnt from a batch (rt_base_rate.h).
typedef struct {
    float log_odds[RT_LABELS_MAX]; // added to the bias of each label's output, once the batch is
                                   // predicted
    uint8_t unknown;               // labels, label l in bit l, that train nothing
    float less[2];                 // by so much less than 1 samples of label 0, of label 1, count
    bool is_untrained;             // none trains: the batch is predicted only
} rt_batch_learning;

typedef struct {
    uint32_t sample_count;
    uint32_t dense_count; // dense features per sample
    uint32_t label_count; // per sample; 1 after init
    uint32_t key_count;   // of all samples
    bool is_weighted;     // set by its owner while it is empty
    bool has_gaps;        // some samples lack a key in some field
    rt_batch_learning learning;
    float *labels;         // sample_count x label_count, 0 or 1
    float *weights;        // likewise, where it is weighted
    float *dense;          // sample_count x dense_count, row major
    double *read;          // likewise, as they were read
    uint32_t *key_offsets; // sample_count + 1; keys of sample i: [key_offsets[i], key_offsets[i+1])
    uint64_t *keys;        // key_count
    uint32_t sample_capacity;
    uint32_t key_capacity;
    // It is folded, by these; otherwise NULL, and what follows is void.
    const struct rt_tables *tables;
    uint32_t lookup_count;
    uint32_t *bag_offsets; // sample_count x fields + 1
    uint32_t *lookups;     // lookup_count places of keys
    rt_batch_slot *fold_slots;
    uint32_t bag_capacity, lookup_capacity, fold_capacity;
} rt_batch;

// An empty batch; storage comes with the first reserve.
void rt_batch_init(rt_batch *batch, uint32_t dense_count);
void rt_batch_fini(rt_batch *batch);
void rt_batch_clear(rt_batch *batch);

// The same, and what its samples will be like.
void rt_batch_begin(rt_batch *batch, uint32_t label_count, bool is_weighted);

// Room for sample_count samples and key_count keys in all, contents kept. RT_NO_MEMORY: unchanged.
rt_status rt_batch_reserve(rt_batch *batch, uint32_t sample_count, uint64_t key_count);

// Appends one sample of weight 1, with every label as given; dense has dense_count floats.
// RT_NO_MEMORY: unchanged. append_read: of as many doubles.
rt_status rt_batch_append(rt_batch *batch, float label, const float *dense, const uint64_t *keys,
                          uint32_t key_count);
rt_status rt_batch_append_read(rt_batch *batch, float label, const double *read,
                               const uint64_t *keys, uint32_t key_count);

// The dense features of sample i, once `read` has them, in 32 bits.
static inline void rt_batch_round(rt_batch *batch, uint32_t i)
{
    const size_t first = (size_t)i * batch->dense_count;
    for (size_t at = first; at < first + batch->dense_count; at++)
        batch->dense[at] = (float)batch->read[at];
}

// Labels and weights of sample i of a weighted batch; labels: label_count, NAN where absent.
void rt_batch_set_labels(rt_batch *batch, uint32_t i, const float *labels, float weight);

// Look-ups of a folded batch some of whose keys were taken out: places[k] is where key k is now, or
// RT_BATCH_GONE.
#define RT_BATCH_GONE UINT32_MAX
void rt_batch_move_lookups(rt_batch *batch, uint32_t field_count, const uint32_t *places);

static inline bool rt_batch_is_balanced(const rt_batch *batch)
{
    return batch->learning.less[0] != 0 || batch->learning.less[1] != 0;
}

static inline bool rt_batch_shifts(const rt_batch *batch)
{
    bool shifts = false;
    for (uint32_t l = 0; l < RT_LABELS_MAX; l++)
        shifts |= batch->learning.log_odds[l] != 0;
    return shifts;
}

#endif
