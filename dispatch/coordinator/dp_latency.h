// dp_latency - how long samples take from their arrival until their rows are updated.
//
// A histogram of logarithms, eight bins for every doubling: numbers are right within 5%. A plain
// value, zero-initialised.
#ifndef DP_LATENCY_H
#define DP_LATENCY_H

#include "runtime/rt_json.h"

#define DP_LATENCY_BINS 512u

typedef struct {
    uint64_t bins[DP_LATENCY_BINS];
    uint64_t count, max_ns;
} dp_latency;

void dp_latency_add(dp_latency *latency, uint64_t ns);
void dp_latency_merge(dp_latency *to, const dp_latency *from);

// The time that this share of the samples takes at most; 0 without samples.
uint64_t dp_latency_quantile_ns(const dp_latency *latency, double share);

// Of samples whose arrivals (nanoseconds of the clock of the day; 0: unknown) are known.
void dp_latency_add_arrivals(dp_latency *latency, const uint64_t *arrivals, uint32_t count);

// An object of p50, p99, max in milliseconds; nothing without samples.
void dp_latency_write(const dp_latency *latency, rt_json *json, const char *key);

#endif
