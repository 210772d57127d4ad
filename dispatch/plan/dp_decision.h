// dp_decision - how a batch was placed, as numbers for people; no plan depends on it.
#ifndef DP_DECISION_H
#define DP_DECISION_H

#include "runtime/rt_base.h"
#include "runtime/rt_json.h"
#include "runtime/wire/rt_fields.h"

typedef struct {
    double alpha;                    // in force for this batch
    uint32_t search_evaluations_max; // in force for this batch
    uint32_t evaluations;            // spent by the search (makespan)
    uint32_t tables,
        table_count;      // scored, and all there are (laia with dispatch.tables; 0 of others)
    uint32_t opt_samples; // placed by Opt (esd)
    uint32_t heu_samples; // placed by Heu (esd)
    bool error_measured;  // error_s is known
    double error_bound_s; // transmission cost that HybridDis loses at most (esd)
    double error_s;       // what it lost against the exact solution of the same matrix
    double device_s;      // for which Opt held a GPU, which trained nothing meanwhile
} dp_decision;

// A sum over iterations.
typedef struct {
    uint64_t iterations, measured_iterations;
    uint64_t samples, opt_samples, heu_samples;
    double alpha; // sum
    double error_bound_s, error_s, device_s;
} dp_decisions;

extern const rt_fields dp_decisions_fields; // as checkpoints keep them

void dp_decisions_add(dp_decisions *sum, const dp_decision *decision, uint32_t sample_count);

// Members "alpha", "opt_share", "heu_share", "dispatch_error_bound", "dispatch_error",
// "dispatch_device_ms" of the open object (docs/METRICS.md): means per iteration. unit_s:
// dp_account_unit_s.
void dp_decisions_write(const dp_decisions *sum, double unit_s, rt_json *json);

#endif
