// ew_event - a sample that was served, as a line of the model's own format: an event that waits for
// its outcome (stream.join).
//
// Tables and JSON lines, whose columns have one of kind id. A column of kind time has what the
// question says, else the time of the answer. Plain values, one thread.
#ifndef EW_EVENT_H
#define EW_EVENT_H

#include "edge_worker/predict/ew_cells.h"

typedef struct ew_event ew_event;

// cells outlive it. RT_CONFIG: events of this format have no id, or there is no outcome
// that it could wait for; error names the key. RT_NO_MEMORY.
rt_status ew_event_create(const rt_config *config, const ew_cells *cells, ew_event **event_p,
                          rt_error *error);
void ew_event_destroy(ew_event *event); // NULL is fine

// Puts the time of the answer into the cells of times that features are made of, where the question
// says none. The bytes stay as they are until the next such call.
void ew_event_date(ew_event *event, double now_s, ew_cells *cells);

// Appends the line of the cells, with its line end. RT_DATA: a cell cannot stand in a line of this
// format, or id cannot; RT_NO_MEMORY. lines is unchanged then.
rt_status ew_event_put(ew_event *event, const char *id, double now_s, rt_bytes *lines,
                       rt_error *error);

#endif
