// rt_latency - quantiles of times, such as those from the arrival of samples until their rows are
// updated.
//
// A histogram of logarithms, sixteen bins for every doubling: numbers are right within 2.5%, and
// memory is the same however many there are. A plain value, zero-initialised.
#ifndef RT_LATENCY_H
#define RT_LATENCY_H

#include "runtime/rt_json.h"

#define RT_LATENCY_BINS 1024u

typedef struct {
    uint64_t bins[RT_LATENCY_BINS];
    uint64_t count, max_ns;
} rt_latency;

void rt_latency_add(rt_latency *latency, uint64_t ns);
void rt_latency_merge(rt_latency *to, const rt_latency *from);

// The time that this share of the samples takes at most; 0 without samples.
uint64_t rt_latency_quantile_ns(const rt_latency *latency, double share);

// Of samples whose arrivals (nanoseconds of the clock of the day; 0: unknown) are known.
void rt_latency_add_arrivals(rt_latency *latency, const uint64_t *arrivals, uint32_t count);

// An object of p50, p99, max in milliseconds; nothing without samples.
void rt_latency_write(const rt_latency *latency, rt_json *json, const char *key);

#endif
