// rt_event_id - the name of an event (stream.id) in a line of cells, for parsers.
#ifndef RT_EVENT_ID_H
#define RT_EVENT_ID_H

#include "runtime/stream/rt_line.h"

// "17": *number_p is 16. False: the text is no number from 1 to 65536.
bool rt_event_id_number(const char *text, uint32_t *number_p);

// Hash of a cell, of its bytes as they stand there; 0: the line has no such cell, or it is empty.
// number: from 0.
uint64_t rt_event_id_of_cell(const rt_line *line, uint32_t number, char delimiter, bool has_quotes);

#endif
