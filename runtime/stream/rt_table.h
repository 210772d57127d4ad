// rt_table - lines of delimited text whose columns a configuration describes.
//
// One record per line, exactly as many cells as configured columns that have one, or as the header
// has, which says then which cell is which column. Where config has quotes (RFC 4180, sections 2.5
// to 2.7) a cell may be quoted: "" stands for a quote, a line feed for itself. One thread: parsing
// uses storage of the table.
#ifndef RT_TABLE_H
#define RT_TABLE_H

#include "runtime/stream/rt_columns.h"

typedef struct rt_table rt_table;

// Copies config. RT_CONFIG names the column, RT_NO_MEMORY.
rt_status rt_table_create(const rt_table_config *config, rt_columns_purpose purpose,
                          rt_table **table_p, rt_error *error);
void rt_table_destroy(rt_table *table); // NULL is fine

void rt_table_schema(const rt_table *table, rt_schema *schema);

// Whether a line's cells are names of columns, at least half of those that are read.
bool rt_table_is_header(rt_table *table, const rt_line *line);

// How the cells of lines stand from now on: as a header says, name being the input's, or as a list
// of names; NULL: as configured. RT_DATA: a column that is read is missing, or stands twice; there
// is no order then.
rt_status rt_table_order(rt_table *table, const char *name, const rt_line *header, rt_error *error);
rt_status rt_table_order_by(rt_table *table, const char *const *names, size_t count,
                            rt_error *error);

// An empty cell is dense 0 or the id RT_ID_MISSING. Labels "equal" as numbers where label_value is
// one, else byte by byte. Of a multi-valued cell the first values_max distinct ids are kept; its
// empty values are skipped. False: the line is malformed, problem says why.
bool rt_table_parse(rt_table *table, const rt_line *line, rt_line_sample *sample,
                    rt_line_problem *problem);

#endif
