#include "runtime/metrics/rt_latency.h"

#include <math.h>

#include "runtime/rt_clock.h"

#define BINS_PER_DOUBLING 16

static uint32_t bin_of(uint64_t ns)
{
    const double bin = ns ? log2((double)ns) * BINS_PER_DOUBLING : 0;
    return (uint32_t)rt_min_u64((uint64_t)bin, RT_LATENCY_BINS - 1);
}

void rt_latency_add(rt_latency *latency, uint64_t ns)
{
    latency->bins[bin_of(ns)]++;
    latency->count++;
    latency->max_ns = rt_max_u64(latency->max_ns, ns);
}

void rt_latency_merge(rt_latency *to, const rt_latency *from)
{
    for (uint32_t i = 0; i < RT_LATENCY_BINS; i++)
        to->bins[i] += from->bins[i];
    to->count += from->count;
    to->max_ns = rt_max_u64(to->max_ns, from->max_ns);
}

uint64_t rt_latency_quantile_ns(const rt_latency *latency, double share)
{
    const uint64_t wanted = (uint64_t)ceil(share * (double)latency->count);
    uint64_t sum = 0;
    for (uint32_t i = 0; i < RT_LATENCY_BINS && latency->count; i++) {
        sum += latency->bins[i];
        if (sum >= wanted && sum > 0) // the middle of the bin
            return rt_min_u64((uint64_t)exp2((i + 0.5) / BINS_PER_DOUBLING), latency->max_ns);
    }
    return latency->max_ns;
}

void rt_latency_add_arrivals(rt_latency *latency, const uint64_t *arrivals, uint32_t count)
{
    const uint64_t now = rt_arrival_ns();
    for (uint32_t i = 0; i < count; i++)
        if (arrivals[i])
            rt_latency_add(latency, now - rt_min_u64(now, arrivals[i]));
}

void rt_latency_write(const rt_latency *latency, rt_json *json, const char *key)
{
    if (latency->count == 0)
        return;
    rt_json_begin_object(json, key);
    rt_json_double(json, "p50", (double)rt_latency_quantile_ns(latency, 0.5) * 1e-6);
    rt_json_double(json, "p99", (double)rt_latency_quantile_ns(latency, 0.99) * 1e-6);
    rt_json_double(json, "max", (double)latency->max_ns * 1e-6);
    rt_json_end_object(json);
}
