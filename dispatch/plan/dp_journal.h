// dp_journal - input records as JSON lines, so that a run can be planned again, bit for bit.
//
// {"record":"input","time_s":1.5,"number":1,"iteration":34,"kind":"compute","worker":2,
//  "value":0.0003}   (docs/METRICS.md)
// {"record":"batch","time_s":9.1,"iteration":120,"samples":37}: a batch that was not full, because
// the input paused (batch.wait_ms), failed or ended.
#ifndef DP_JOURNAL_H
#define DP_JOURNAL_H

#include "dispatch/plan/dp_input.h"
#include "runtime/metrics/rt_metrics.h"

// A journal is a stream of measurements like any other: open and close it as rt_metrics.
void dp_journal_write(rt_metrics *journal, const dp_input *input);

// A batch of fewer samples than batches have.
void dp_journal_batch(rt_metrics *journal, uint32_t iteration, uint32_t samples);

// The run went on after `iteration`, when so many records had been taken: those with higher numbers
// belong to iterations that were lost.
void dp_journal_resume(rt_metrics *journal, uint32_t iteration, uint64_t input_count);

typedef struct {
    uint32_t iteration, samples;
} dp_short_batch;

// Records by iteration; those of one iteration in the order of the file.
typedef struct {
    dp_input *items;
    uint32_t count, capacity;
    dp_short_batch *batches; // ascending
    uint32_t batch_count, batch_capacity;
} dp_inputs;

// Reads a journal. Records that a "resumed" line takes back are left out, and half a line before it
// or at the end of the file, which a killed process left; records of other kinds are skipped.
// RT_IO, RT_NO_MEMORY; RT_LIMIT; RT_CONFIG: error names file, line, and what was expected; inputs
// is empty then. dp_inputs_fini.
rt_status dp_inputs_load(const char *path, uint32_t worker_count, dp_inputs *inputs,
                         rt_error *error);
void dp_inputs_fini(dp_inputs *inputs);

// Samples that the batch of an iteration has, where they are fewer than full.
uint32_t dp_inputs_samples(const dp_inputs *inputs, uint64_t iteration, uint32_t full);

#endif
