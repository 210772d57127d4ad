// dp_columns - how full and how new the columns of a stream are: what is missing, what was never
// seen, before the loss shows it.
//
// A plain value, zero-initialised.
#ifndef DP_COLUMNS_H
#define DP_COLUMNS_H

#include "dispatch/plan/dp_plan.h"
#include "runtime/metrics/rt_metrics.h"
#include "runtime/stream/rt_stream.h"

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

#endif
