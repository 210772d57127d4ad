// rt_event_id - finds the name of an event (stream.id) in its line, before it is parsed.
#ifndef RT_EVENT_ID_H
#define RT_EVENT_ID_H

#include "runtime/config/rt_config.h"
#include "runtime/stream/rt_line.h"

typedef struct {
    uint32_t column; // of a table
    char delimiter;
} rt_event_id;

// RT_CONFIG: there is no such column, or the format has none; error names the key.
rt_status rt_event_id_init(const rt_stream_config *config, rt_event_id *id, rt_error *error);

// Hash of the name; 0: the line has none.
uint64_t rt_event_id_find(const rt_event_id *id, const rt_line *line);

#endif
