// dp_recent - the last batches of a run, their keys only: a planner looks at nothing else.
//
// One thread. Memory: DP_RECENT_MAX batches.
#ifndef DP_RECENT_H
#define DP_RECENT_H

#include "runtime/stream/rt_batch.h"
#include "runtime/wire/rt_bytes.h"

#define DP_RECENT_MAX 32u

typedef struct {
    rt_batch batches[DP_RECENT_MAX]; // a ring
    uint32_t count, next;
} dp_recent;

// What a batch may have.
typedef struct {
    uint32_t sample_count_max, keys_per_sample_max, field_count;
} dp_recent_limits;

void dp_recent_init(dp_recent *recent);
void dp_recent_fini(dp_recent *recent);

// Copied; where there are DP_RECENT_MAX, it takes the place of the oldest. RT_NO_MEMORY.
rt_status dp_recent_add(dp_recent *recent, const rt_batch *batch);

// The oldest is 0.
const rt_batch *dp_recent_at(const dp_recent *recent, uint32_t index);

// bytes->failed: out of memory.
void dp_recent_save(const dp_recent *recent, rt_bytes *bytes);

// Into an empty one. RT_DATA: not such batches, RT_NO_MEMORY; it is empty then.
rt_status dp_recent_load(dp_recent *recent, const dp_recent_limits *limits, rt_reader *reader);

#endif
