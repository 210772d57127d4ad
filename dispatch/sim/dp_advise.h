// dp_advise - which configuration would be fastest on this stream and these links: every policy x
// participants x size of the caches, each in simulation.
#ifndef DP_ADVISE_H
#define DP_ADVISE_H

#include "dispatch/sim/dp_sim.h"

#define DP_ADVICE_LINES 3u   // a setting per thing that is varied
#define DP_ADVICES_MAX 64u
#define DP_ADVICE_ITERATIONS_MIN 4u

typedef struct {
    char lines[DP_ADVICE_LINES][64]; // "key=value" over the configuration that was asked about
    double predicted_s;              // per iteration
    double bytes;                    // of rows and requests per iteration, all workers, both ways
    uint64_t cache_bytes;            // of one worker's slab
    uint64_t participants;           // in the last iteration
} dp_advice;

typedef struct {
    dp_advice items[DP_ADVICES_MAX]; // the fastest first; then fewer bytes, then smaller caches
    uint32_t count;
    uint32_t too_small;  // combinations that were left out: a cache would not hold a micro-batch
    uint64_t iterations; // simulated in all
    uint64_t keys;       // distinct ones that the stream had in the time of a simulation
} dp_advices;

// Simulates every combination for `iterations` batches (at least DP_ADVICE_ITERATIONS_MIN), of
// which the second half counts: so the work is bounded by their number, whatever the stream. sim:
// as for dp_sim_run; trace, placements, journal and inputs are not looked at; progress: a line for
// each simulation. The stream is read anew for each. RT_CONFIG, RT_DATA, RT_IO, RT_NO_MEMORY.
rt_status dp_advise(const dp_sim_config *sim, uint32_t iterations, dp_advices *advices,
                    rt_error *error);

#endif
