// dp_advise - which configuration would be fastest on this stream and these links: every policy x
// participants x staleness x size of the caches x window, and, where the link of the PS is narrower
// than those of the workers together, rows and sums from worker to worker, each in simulation.
#ifndef DP_ADVISE_H
#define DP_ADVISE_H

#include "dispatch/sim/dp_sim.h"

#define DP_ADVICE_LINES 7u // a setting per thing that is varied
#define DP_ADVICE_ITERATIONS_MIN 4u

typedef struct {
    char lines[DP_ADVICE_LINES][64]; // "key=value" over the configuration that was asked about;
                                     // empty: not varied, as it was
    double predicted_s;              // per iteration
    double bytes;                    // of rows and requests per iteration, all workers, both ways
    uint64_t cache_bytes;            // of one worker's slab
    uint64_t participants;           // in the last iteration
    rt_consistency_config consistency;
} dp_advice;

typedef struct {
    dp_advice *items; // count: the fastest first; then fewer bytes, then smaller caches
    uint32_t count;
    uint32_t too_small;  // combinations that were left out: a cache would not hold a micro-batch
    uint32_t refused;    // others: values that do not go together (rt_config_check)
    uint32_t too_short;  // others: for which the input ends too early
    uint64_t iterations; // simulated in all
    uint64_t keys;       // distinct ones that the stream had in the time of a simulation
} dp_advices;

#define DP_ADVICE_BATCH 4u // times as many samples

typedef struct {
    char lines[2][64]; // settings over those of the advice; empty: none
    double rate;       // samples per second over those of the advice
} dp_advice_batch;

// Simulates every combination for `iterations` batches (at least DP_ADVICE_ITERATIONS_MIN), of
// which the second half counts: so the work is bounded by their number, whatever the stream. Where
// copies may lack s updates, they move once in s + 1 iterations: there it is 2 (s + 1), if that is
// more. sim:
// as for dp_sim_run; trace, placements, journal and inputs are not looked at; progress: a line for
// each simulation. The stream is read anew for each. RT_CONFIG, RT_DATA, RT_IO, RT_NO_MEMORY.
//
// advices is to be given to dp_advices_fini, whatever the status.
rt_status dp_advise(const dp_sim_config *sim, uint32_t iterations, dp_advices *advices,
                    rt_error *error);
void dp_advices_fini(dp_advices *advices);

// What DP_ADVICE_BATCH times as many samples in a batch would do for an advice of the same sim and
// iterations, whose predicted_s is known; with caches that hold its micro-batches. Errors as above.
rt_status dp_advise_batch(const dp_sim_config *sim, uint32_t iterations, const dp_advice *advice,
                          dp_advice_batch *batch, rt_error *error);

#endif
