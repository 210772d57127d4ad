// rt_criteo - lines of the Criteo Display Advertising files.
//
// 40 tab separated columns: label (0 or 1), 13 integers I1..I13, 26 ids C1..C26 of 8 hexadecimal
// digits; all but the label may be empty. Immutable after create, so threads may share one.
#ifndef RT_CRITEO_H
#define RT_CRITEO_H

#include "runtime/stream/rt_line.h"
#include "runtime/stream/rt_stream.h"

#define RT_CRITEO_DENSE 13u
#define RT_CRITEO_FIELDS 26u

typedef struct rt_criteo rt_criteo;

rt_status rt_criteo_create(rt_criteo **criteo_p); // RT_NO_MEMORY
void rt_criteo_destroy(rt_criteo *criteo);

void rt_criteo_schema(rt_schema *schema);

// Dense: log(1 + max(x, 0)), empty is 0. Keys: rt_key(field, the number), empty is RT_ID_MISSING.
// False: the line is malformed, problem says why.
bool rt_criteo_parse(const rt_criteo *criteo, const rt_line *line, rt_line_sample *sample,
                     rt_line_problem *problem);

#endif
