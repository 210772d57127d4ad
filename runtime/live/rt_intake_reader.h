// rt_intake_reader - whether a line that is sent is one that the run can read.
//
// It parses the line as the stream will, and keeps nothing of it: what goes into the journal is
// text, which is parsed again when its turn comes, maybe by another process. One thread.
#ifndef RT_INTAKE_READER_H
#define RT_INTAKE_READER_H

#include "runtime/config/rt_config.h"
#include "runtime/stream/rt_line.h"
#include "runtime/stream/rt_position.h"

typedef struct rt_intake_reader rt_intake_reader;

// Of lines of a flow. RT_CONFIG, RT_NO_MEMORY; error names the key.
rt_status rt_intake_reader_create(const rt_config *config, rt_flow flow,
                                  rt_intake_reader **reader_p, rt_error *error);
void rt_intake_reader_destroy(rt_intake_reader *reader); // NULL is fine

// A line without its end. False: problem says what was expected. With stream.take_anything every
// line is good that is not too long.
bool rt_intake_reader_takes(rt_intake_reader *reader, const char *text, size_t length,
                            rt_line_problem *problem);

// All lines of a text, none of which is too long. False: the line of that number, from 1, is not
// taken.
bool rt_intake_reader_takes_all(rt_intake_reader *reader, const char *text, size_t size,
                                uint32_t *line_p, rt_line_problem *problem);

// A text without the mark of UTF-8 before it and without the empty lines behind it; *size_p
// follows.
const char *rt_intake_trim(const char *text, size_t *size_p);

// Whether a text is a packed file (gzip, zstd), not lines.
bool rt_intake_is_packed(const char *text, size_t size);

#endif
