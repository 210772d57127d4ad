#include "dispatch/plan/dp_decision.h"

#include <math.h>

#define DECISIONS(XX, PART, NONE, T) \
    XX(T, iterations)                \
    XX(T, measured_iterations)       \
    XX(T, samples)                   \
    XX(T, opt_samples)               \
    XX(T, heu_samples)               \
    XX(T, alpha)                     \
    XX(T, error_bound_s)             \
    XX(T, error_s)                   \
    XX(T, device_s)
RT_FIELDS_SHARED(dp_decisions_fields, dp_decisions, DECISIONS,
                 "iterations:8 measured_iterations:8 samples:8 opt_samples:8 heu_samples:8 alpha:8 "
                 "error_bound_s:8 error_s:8 device_s:8");

void dp_decisions_add(dp_decisions *sum, const dp_decision *decision, uint32_t sample_count)
{
    sum->iterations++;
    sum->samples += sample_count;
    sum->opt_samples += decision->opt_samples;
    sum->heu_samples += decision->heu_samples;
    sum->alpha += decision->alpha;
    sum->error_bound_s += decision->error_bound_s;
    sum->device_s += decision->device_s;
    if (decision->error_measured) {
        sum->measured_iterations++;
        sum->error_s += decision->error_s;
    }
}

void dp_decisions_write(const dp_decisions *sum, double unit_s, rt_json *json)
{
    double iterations = (double)sum->iterations, samples = (double)sum->samples;
    double measured = (double)sum->measured_iterations;
    bool hybrid = sum->opt_samples + sum->heu_samples > 0;
    rt_json_double(json, "alpha", sum->alpha / iterations);
    rt_json_double(json, "opt_share", (double)sum->opt_samples / samples);
    rt_json_double(json, "heu_share", (double)sum->heu_samples / samples);
    const double bound = hybrid ? sum->error_bound_s / unit_s / iterations : NAN;
    const double error = sum->measured_iterations ? sum->error_s / unit_s / measured : NAN;
    rt_json_double(json, "dispatch_error_bound", bound);
    rt_json_double(json, "dispatch_error", error);
    rt_json_double(json, "dispatch_device_ms", sum->device_s * 1e3 / iterations);
}
