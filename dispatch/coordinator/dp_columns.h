// dp_columns - how full and how new the columns of a stream are: what is missing, what was never
// seen, before the loss shows it.
//
// A plain value, zero-initialised.
#ifndef DP_COLUMNS_H
#define DP_COLUMNS_H

#include "dispatch/plan/dp_plan.h"
#include "runtime/metrics/rt_metrics.h"
#include "runtime/stream/rt_stream.h"
#include "runtime/stream/rt_batch.h"
#include "runtime/wire/rt_bytes.h"
#include "runtime/rt_json.h"

typedef struct {
    uint64_t values[RT_FIELDS_MAX]; // look-ups (sample, key)
    uint64_t empty[RT_FIELDS_MAX];  // of them those without a value
    // Keys never trained before, for each worker that begins one; of a table that fields share all
    // are those of its first field.
    uint64_t fresh[RT_FIELDS_MAX];
} dp_columns;

// What a batch holds, and what its plan says of it.
void dp_columns_count(dp_columns *columns, const rt_batch *batch, const dp_plan *plan);
void dp_columns_merge(dp_columns *to, const dp_columns *from, uint32_t field_count);

// Of every sample, worker by worker in the order of slices, the first key in a field of the schema.
void dp_columns_keys(const rt_batch *batch, const dp_plan *plan, uint32_t field, uint64_t *keys);

// A record "columns" (docs/METRICS.md).
void dp_columns_record(const dp_columns *columns, const rt_schema *schema, uint32_t iteration,
                       rt_metrics *metrics);

// ---- labels and dense features ---------------------------------------------------------------
//
// What (first) labels and dense features look like: smallest, largest, mean.
//
// A feature that left its usual range, or a label that is always 0, shows here before it shows in
// the loss. One thread; memory for dense_count features is taken by init.

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
