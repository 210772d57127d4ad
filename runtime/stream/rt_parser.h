// rt_parser - the table of operations of those that make a sample of a line.
//
// To add a format of lines: one file with its operations, and one line of RT_FORMAT_MAP
// (rt_formats.h).
#ifndef RT_PARSER_H
#define RT_PARSER_H

#include "runtime/config/rt_config.h"
#include "runtime/stream/rt_line.h"
#include "runtime/stream/rt_stream.h"
#include "runtime/wire/rt_bytes.h"

typedef struct {
    rt_status (*create)(const rt_stream_config *config, void **parser_p, rt_error *error);
    void (*destroy)(void *parser); // NULL is fine
    void (*schema)(const void *parser, rt_schema *schema);

    // False: the line is malformed, problem says why; problem->goes_on: it may be whole with the
    // line that follows.
    bool (*parse)(void *parser, const rt_line *line, rt_line_sample *sample,
                  rt_line_problem *problem);

    // The names of events (stream.id): `name_by` says before the first line where they stand;
    // RT_CONFIG: there is no such place. Then `name` is asked for every line before it is parsed: a
    // hash; 0: it has none.
    rt_status (*name_by)(void *parser, const char *id, rt_error *error);
    uint64_t (*name)(void *parser, const rt_line *line);

    // The first line of an input is none of samples. NULL, or *is_one_p false: it is one. name: of
    // the input. RT_DATA: columns are missing; error names them.
    rt_status (*header)(void *parser, const char *name, const rt_line *line, bool *is_one_p,
                        rt_error *error);
    bool (*is_header)(const void *parser, const rt_line *line); // it is the one that was read last

    // What the parser keeps from line to line, for positions; NULL: nothing. seek: false: no such.
    void (*tell)(const void *parser, rt_bytes *bytes);
    bool (*seek)(void *parser, rt_reader *bytes);
} rt_parser_ops;

const rt_parser_ops *rt_parser_find(rt_format format); // NULL: it is none of lines

// The parser of a configuration's lines, which knows where the names of events (stream.id) stand,
// unless these are questions of columns.
// *parser_p is the caller's (ops->destroy). RT_CONFIG, RT_NO_MEMORY.
rt_status rt_parser_open(const rt_stream_config *config, const rt_parser_ops **ops_p,
                         void **parser_p, rt_error *error);

// What the configuration alone says of samples: how many labels they have, and their names; which
// fields share tables. RT_CONFIG: as rt_tables_find.
rt_status rt_parser_complete(const rt_stream_config *config, rt_schema *schema, rt_error *error);

// What people call a dense feature: the name of its column, I1 of Criteo's format, an index.
void rt_parser_dense_name(const rt_stream_config *config, uint32_t feature, char name[RT_NAME_MAX]);

// What the samples of a configuration hold, without a source: rt_stream_read_schema for who reads
// no stream.
rt_status rt_parser_read_schema(const rt_stream_config *config, uint64_t seed, rt_schema *schema,
                                rt_error *error);

#endif
