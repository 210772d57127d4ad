// dp_journal - input records as JSON lines, so that a run can be planned again, bit for bit.
//
// {"record":"input","time_s":1.5,"number":1,"iteration":34,"kind":"compute","worker":2,
//  "value":0.0003}   (docs/METRICS.md)
#ifndef DP_JOURNAL_H
#define DP_JOURNAL_H

#include "dispatch/dp_input.h"
#include "runtime/rt_metrics.h"

// A journal is a stream of measurements like any other: open and close it as rt_metrics.
void dp_journal_write(rt_metrics *journal, const dp_input *input);

// Records by iteration; those of one iteration in the order of the file.
typedef struct {
    dp_input *items;
    uint32_t count, capacity;
} dp_inputs;

// Reads a journal. Records of other kinds of lines are skipped. RT_IO, RT_NO_MEMORY; RT_CONFIG:
// error names file, line, and what was expected; inputs is empty then. dp_inputs_fini.
rt_status dp_inputs_load(const char *path, uint32_t worker_count, dp_inputs *inputs,
                         rt_error *error);
void dp_inputs_fini(dp_inputs *inputs);

#endif
