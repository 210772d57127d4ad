// dp_reading - what a run read of its input, for its summary and for people.
//
// A plain value of the coordinator's thread, made once reading has ended.
#ifndef DP_READING_H
#define DP_READING_H

#include "dispatch/coordinator/dp_feed.h"
#include "runtime/rt_json.h"

typedef struct {
    rt_stream_stats stats;
    const dp_feed *feed; // knows the single inputs; NULL: nobody does
    rt_error failure;    // why reading ended where it did; RT_OK: at the end, or told to
} dp_reading;

// RT_OK in failure, and the counts, of a feed whose final flush was taken.
void dp_reading_take(dp_feed *feed, dp_reading *reading);

// Members of the summary: malformed_lines, odd_labels, input_bytes_lost, input_events_lost,
// input_breaks, negatives_left_out, join, input_error, inputs.
void dp_reading_write(const dp_reading *reading, rt_json *json);

// A line for each input that has something to tell, and for what was left out. The failure is the
// run's, which ends with it.
void dp_reading_print(const dp_reading *reading);

#endif
