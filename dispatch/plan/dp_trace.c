#include "dispatch/plan/dp_trace.h"

#include <inttypes.h>

void dp_trace_counts(FILE *file, uint64_t iteration, uint32_t worker, uint32_t samples,
                     const dp_counts *counts)
{
    fprintf(file,
            "{\"iteration\":%" PRIu64 ",\"worker\":%" PRIu32 ",\"samples\":%" PRIu32
            ",\"miss_pull\":%" PRIu64 ",\"update_push\":%" PRIu64 ",\"evict_push\":%" PRIu64
            ",\"flush_push\":%" PRIu64 ",\"grad_push\":%" PRIu64 ",\"first_touch\":%" PRIu64
            ",\"pull_sum\":%" PRIu64 "}\n",
            iteration, worker, samples, counts->miss_pull, counts->update_push, counts->evict_push,
            counts->flush_push, counts->grad_push, counts->first_touch, counts->pull_sum);
}

void dp_trace_plan(FILE *file, const dp_plan *plan)
{
    for (uint32_t w = 0; w < plan->worker_count; w++) {
        dp_counts counts = {0};
        dp_counts_add_slice(&counts, &plan->slices[w]);
        dp_trace_counts(file, plan->iteration, w, plan->slices[w].sample_count, &counts);
    }
}
