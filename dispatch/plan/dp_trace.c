#include "dispatch/plan/dp_trace.h"

#include <inttypes.h>

void dp_trace_counts(FILE *file, uint64_t iteration, uint32_t worker, uint32_t samples,
                     const rt_counts *counts)
{
    fprintf(file, "{\"iteration\":%" PRIu64 ",\"worker\":%" PRIu32 ",\"samples\":%" PRIu32,
            iteration, worker, samples);
#define XX(name, title) fprintf(file, ",\"" #name "\":%" PRIu64, counts->name);
    RT_COUNTS_MAP(XX, XX)
#undef XX
    fputs("}\n", file);
}

void dp_trace_plan(FILE *file, const dp_plan *plan)
{
    for (uint32_t w = 0; w < plan->worker_count; w++) {
        rt_counts counts = {0};
        dp_counts_add_slice(&counts, &plan->slices[w]);
        dp_trace_counts(file, plan->iteration, w, plan->slices[w].sample_count, &counts);
    }
}

void dp_trace_placement(FILE *file, uint32_t iteration, const rt_batch *batch,
                        const uint32_t *worker_of_sample)
{
    for (uint32_t i = 0; i < batch->sample_count; i++) {
        fprintf(file, "%" PRIu32 " %" PRIu32, iteration, worker_of_sample[i]);
        for (uint32_t k = batch->key_offsets[i]; k < batch->key_offsets[i + 1]; k++)
            fprintf(file, " %" PRIx64, batch->keys[k]);
        fputc('\n', file);
    }
}
