// dp_ranges - what (first) labels and dense features look like: smallest, largest, mean.
//
// A feature that left its usual range, or a label that is always 0, shows here before it shows in
// the loss. One thread; memory for dense_count features is taken by init.
#ifndef DP_RANGES_H
#define DP_RANGES_H

#include "runtime/stream/rt_batch.h"
#include "runtime/wire/rt_bytes.h"
#include "runtime/rt_json.h"

typedef struct {
    uint64_t sample_count;
    uint64_t not_finite; // dense values that are NaN or infinite; they count nowhere else
    double label_sum;
    float label_min, label_max;
    bool has_classes; // a label is its class, and has no mean; else it is 0 or 1
    uint32_t dense_count;
    float *dense_min, *dense_max; // dense_count each; without a value: min above max
} dp_ranges;

// RT_NO_MEMORY: ranges holds nothing.
rt_status dp_ranges_init(dp_ranges *ranges, uint32_t dense_count, bool has_classes);
void dp_ranges_fini(dp_ranges *ranges); // also of a zeroed one

void dp_ranges_clear(dp_ranges *ranges);
void dp_ranges_add(dp_ranges *ranges, const rt_batch *batch); // of the same dense_count
void dp_ranges_merge(dp_ranges *ranges, const dp_ranges *more);

// load: into initialised ones. False: no such state, or of another dense_count; they are cleared.
void dp_ranges_save(const dp_ranges *ranges, rt_bytes *bytes);
bool dp_ranges_load(dp_ranges *ranges, rt_reader *reader);

// As member name; null where there is no value.
void dp_ranges_write(const dp_ranges *ranges, rt_json *json, const char *name);

#endif
