// ew_cells - samples made of cells that are known by the names of their columns.
//
// What makes samples of lines makes those of cells: ids, transforms and what is missing are those
// of training. Names: of format criteo I1 to I13, C1 to C26; of tables and JSON those of the
// columns that have a cell and are no label (rt_columns_use, rt_columns_name); of the generator D1,
// D2... and its fields, whose cells are numbers. libsvm has lines alone. One thread.
#ifndef EW_CELLS_H
#define EW_CELLS_H

#include "runtime/stream/rt_columns.h"
#include "runtime/stream/rt_stream.h"
#include "runtime/wire/rt_bytes.h"

#define EW_CELL_NONE UINT32_MAX

typedef struct ew_cells ew_cells;

// config outlives it. RT_CONFIG, RT_NO_MEMORY.
rt_status ew_cells_create(const rt_config *config, ew_cells **cells_p, rt_error *error);
void ew_cells_destroy(ew_cells *cells); // also NULL

// Those of tables and JSON; NULL: of other formats. Valid as long as cells.
const rt_columns *ew_cells_columns(const ew_cells *cells);

uint32_t ew_cells_count(const ew_cells *cells);
const char *ew_cells_name(const ew_cells *cells, uint32_t column);
uint32_t ew_cells_find(const ew_cells *cells, const char *name, size_t length); // or EW_CELL_NONE
// The same where it is likely the column behind `before`, which may be EW_CELL_NONE.
uint32_t ew_cells_find_behind(const ew_cells *cells, uint32_t before, const char *name,
                              size_t length);

// Of JSON: samples are objects, in which a column has a path; by that, or by its name.
bool ew_cells_has_paths(const ew_cells *cells);
uint32_t ew_cells_find_path(const ew_cells *cells, const char *path);

// What a column is: dense or an id, as configured; of one that others are made of alone as well.
rt_column_kind ew_cells_kind(const ew_cells *cells, uint32_t column);
// What stands between the values of a column's cell; 0: it has one value.
char ew_cells_separator(const ew_cells *cells, uint32_t column);

// All cells are empty, which means missing.
void ew_cells_clear(ew_cells *cells);

// The bytes stay the caller's, and as they are until the cell is put again or cleared.
void ew_cells_put(ew_cells *cells, uint32_t column, const char *text, size_t length);

// What was put, valid as long as that; false: nothing, the value is missing.
bool ew_cells_get(const ew_cells *cells, uint32_t column, const char **text_p, size_t *length_p);

// A cell between commas, as RFC 4180 has it.
void ew_cells_quote(const char *text, size_t length, rt_bytes *line);

// Between the values of a cell of kind multi, where a value may hold any character (JSON's arrays).
#define EW_CELLS_SEPARATOR '\x1f'

// A number, and a word, as the format writes them: of JSON as in its lines, else the shortest
// digits that are the number, and 1 and 0. Somewhere in text; NULL: an integer that readers of JSON
// may have rounded, or not finite.
#define EW_CELLS_NUMBER_BYTES 32u
const char *ew_cells_number(const ew_cells *cells, double number, char text[EW_CELLS_NUMBER_BYTES]);
const char *ew_cells_word(const ew_cells *cells, bool is_true);

// Adds the sample of the cells to a batch, with label 0. RT_DATA: a cell is none of its column;
// RT_NO_MEMORY. The batch is unchanged then.
rt_status ew_cells_append(ew_cells *cells, rt_batch *batch, rt_error *error);

// Of a name that no cell has: why.
rt_status ew_cells_refuse_name(const ew_cells *cells, const char *name, size_t length,
                               rt_error *error);

// ---- lines
// ---------------------------------------------------------------------------------------

// How lines stand from now on: names of columns in the order of their cells; count 0: as
// configured. RT_DATA: a column is missing, or stands twice; or lines of this format have no order.
rt_status ew_cells_order(ew_cells *cells, const char *const *names, size_t count, rt_error *error);

// Whether a line without its line end is a header; if so, lines stand as it says from now on.
// RT_DATA: it lacks a column, or has one twice.
rt_status ew_cells_take_header(ew_cells *cells, const char *text, size_t length, bool *is_one_p,
                               rt_error *error);

// As ew_cells_append, of a whole line of the format, without its line end. *goes_on_p: it may be
// whole with the line that follows.
rt_status ew_cells_append_line(ew_cells *cells, const char *text, size_t length, rt_batch *batch,
                               bool *goes_on_p, rt_error *error);

#endif
