#include "edge_worker/predict/ew_cells.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/config/rt_formats.h"
#include "runtime/numbers/rt_decimal.h"
#include "runtime/rt_hash.h"
#include "runtime/rt_json.h"
#include "runtime/rt_locale.h"
#include "runtime/stream/rt_criteo.h"
#include "runtime/stream/rt_json_cell.h"
#include "runtime/stream/rt_parser.h"
#include "runtime/stream/rt_table.h"

#define COLUMNS_MAX (RT_COLUMNS_MAX + 1u)

typedef struct {
    const char *text;
    size_t length;
} cell;

struct ew_cells {
    rt_stream_config config;  // of lines: as configured, but for a header
    const rt_parser_ops *ops; // NULL: the generator's samples
    void *parser;
    void *cell_parser;     // of put cells of Criteo's format, among which is no name of an event
    rt_columns *columns;   // of tables and JSON; else NULL
    rt_cell *column_cells; // by column
    bool is_json, has_delimiter;
    rt_schema schema;
    uint32_t count;
    char (*names)[RT_NAME_MAX];
    uint32_t *places; // of tables and JSON: the column of each
    char *separators; // 0: the column has one value
    cell *cells;      // count
    rt_bytes line;
    double *dense;
    uint64_t *keys;
};

// ---- the columns -----------------------------------------------------------------------------

static void name_criteo(ew_cells *cells)
{
    cells->count = RT_CRITEO_DENSE + RT_CRITEO_FIELDS;
    for (uint32_t i = 0; i < cells->count; i++)
        snprintf(cells->names[i], RT_NAME_MAX, "%c%u", i < RT_CRITEO_DENSE ? 'I' : 'C',
                 i < RT_CRITEO_DENSE ? i + 1 : i + 1 - RT_CRITEO_DENSE);
}

static void name_generated(ew_cells *cells)
{
    const rt_schema *schema = &cells->schema;
    for (uint32_t i = 0; i < schema->dense_count; i++)
        snprintf(cells->names[cells->count++], RT_NAME_MAX, "D%u", i + 1);
    for (uint32_t f = 0; f < schema->field_count; f++)
        snprintf(cells->names[cells->count++], RT_NAME_MAX, "%s", schema->field_names[f]);
}

// What a prediction does not need is not asked for: labels, weights, ids, unless something is made
// of them. What is ignored may be said, and when it was, which the log of what was served wants.
static bool is_asked_for(const rt_columns *columns, uint32_t index)
{
    const rt_cell_use use = rt_columns_use(columns, index);
    const rt_column_kind kind = columns->items[index].column.kind;
    const bool may_be_said = kind == RT_COLUMN_IGNORE || kind == RT_COLUMN_TIME;
    return use == RT_CELL_NEEDED || (use != RT_CELL_NONE && may_be_said);
}

static rt_status create_columns(ew_cells *cells, rt_error *error)
{
    rt_table_config table = cells->config.table;
    if (rt_config_copy_columns(table.columns, table.column_count, &table.columns))
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    for (uint32_t i = 0; i < table.column_count && cells->is_json; i++)
        table.columns[i].separator = EW_CELLS_SEPARATOR;
    const rt_status status = rt_columns_create(&table, RT_COLUMNS_QUESTIONS, "stream.table.columns",
                                               &cells->columns, error);
    rt_free(table.columns);
    if (status)
        return status;
    cells->column_cells = rt_alloc(cells->columns->count, sizeof *cells->column_cells);
    if (!cells->column_cells)
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    for (uint32_t i = 0; i < cells->columns->count; i++) {
        const rt_column *column = &cells->columns->items[i].column;
        cells->column_cells[i] = (rt_cell){"", 0};
        if (!is_asked_for(cells->columns, i))
            continue;
        if (column->kind == RT_COLUMN_MULTI)
            cells->separators[cells->count] = column->separator;
        rt_columns_name(cells->columns, i, cells->names[cells->count]);
        cells->places[cells->count++] = i;
    }
    return RT_OK;
}

static rt_status create_parsers(ew_cells *cells, const rt_config *config, rt_error *error)
{
    cells->config = config->stream;
    cells->config.labels_optional = true;
    cells->config.table.has_header = false; // who has one says so
    cells->is_json = config->stream.format == RT_FORMAT_JSON;
    cells->has_delimiter = rt_format_has(config->stream.format, RT_HAS_DELIMITER);
    if (rt_format_is_generated(config->stream.format)) {
        name_generated(cells);
        return RT_OK;
    }
    rt_status status = rt_parser_open(&cells->config, &cells->ops, &cells->parser, error);
    if (!status && rt_format_has(config->stream.format, RT_HAS_COLUMNS))
        status = create_columns(cells, error);
    if (status || config->stream.format != RT_FORMAT_CRITEO)
        return status;
    name_criteo(cells);
    rt_stream_config nameless = cells->config;
    nameless.id[0] = '\0';
    return rt_parser_open(&nameless, &cells->ops, &cells->cell_parser, error);
}

static rt_status create_all(ew_cells *cells, const rt_config *config, rt_error *error)
{
    const rt_status status =
        rt_parser_read_schema(&config->stream, config->seed, &cells->schema, error);
    if (status)
        return status;
    cells->names = rt_alloc(COLUMNS_MAX, sizeof *cells->names);
    cells->places = rt_alloc(COLUMNS_MAX, sizeof *cells->places);
    cells->separators = rt_alloc(COLUMNS_MAX, sizeof *cells->separators);
    cells->cells = rt_alloc(COLUMNS_MAX, sizeof *cells->cells);
    cells->dense = rt_alloc(cells->schema.dense_count + 1u, sizeof *cells->dense);
    cells->keys = rt_alloc(cells->schema.keys_per_sample_max, sizeof *cells->keys);
    if (!cells->names || !cells->places || !cells->separators || !cells->cells || !cells->dense ||
        !cells->keys)
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    return create_parsers(cells, config, error);
}

rt_status ew_cells_create(const rt_config *config, ew_cells **cells_p, rt_error *error)
{
    ew_cells *cells = rt_alloc(1, sizeof *cells);
    if (!cells)
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    const rt_status status = create_all(cells, config, error);
    if (status) {
        ew_cells_destroy(cells);
        return status;
    }
    *cells_p = cells;
    return RT_OK;
}

void ew_cells_destroy(ew_cells *cells)
{
    if (!cells)
        return;
    if (cells->parser)
        cells->ops->destroy(cells->parser);
    if (cells->cell_parser)
        cells->ops->destroy(cells->cell_parser);
    rt_columns_destroy(cells->columns);
    rt_bytes_fini(&cells->line);
    rt_free(cells->column_cells);
    rt_free(cells->keys);
    rt_free(cells->dense);
    rt_free(cells->cells);
    rt_free(cells->separators);
    rt_free(cells->places);
    rt_free(cells->names);
    rt_free(cells);
}

const rt_columns *ew_cells_columns(const ew_cells *cells)
{
    return cells->columns;
}

uint32_t ew_cells_count(const ew_cells *cells)
{
    return cells->count;
}

const char *ew_cells_name(const ew_cells *cells, uint32_t column)
{
    return cells->names[column];
}

static bool is_named(const ew_cells *cells, uint32_t column, const char *name, size_t length)
{
    return strncmp(cells->names[column], name, length) == 0 && cells->names[column][length] == '\0';
}

uint32_t ew_cells_find_behind(const ew_cells *cells, uint32_t before, const char *name,
                              size_t length)
{
    const uint32_t next = before < cells->count ? before + 1 : 0;
    if (next < cells->count && is_named(cells, next, name, length))
        return next;
    return ew_cells_find(cells, name, length);
}

uint32_t ew_cells_find(const ew_cells *cells, const char *name, size_t length)
{
    for (uint32_t i = 0; i < cells->count; i++)
        if (is_named(cells, i, name, length))
            return i;
    return EW_CELL_NONE;
}

bool ew_cells_has_paths(const ew_cells *cells)
{
    return cells->is_json;
}

uint32_t ew_cells_find_path(const ew_cells *cells, const char *path)
{
    for (uint32_t i = 0; cells->is_json && i < cells->count; i++)
        if (strcmp(cells->columns->items[cells->places[i]].column.path, path) == 0)
            return i;
    return ew_cells_find(cells, path, strlen(path));
}

rt_column_kind ew_cells_kind(const ew_cells *cells, uint32_t column)
{
    if (cells->columns)
        return cells->columns->items[cells->places[column]].column.kind;
    return column < cells->schema.dense_count ? RT_COLUMN_DENSE : RT_COLUMN_CATEGORICAL;
}

char ew_cells_separator(const ew_cells *cells, uint32_t column)
{
    return cells->separators[column];
}

void ew_cells_clear(ew_cells *cells)
{
    memset(cells->cells, 0, cells->count * sizeof *cells->cells);
}

void ew_cells_put(ew_cells *cells, uint32_t column, const char *text, size_t length)
{
    cells->cells[column] = (cell){text, length};
}

const char *ew_cells_number(const ew_cells *cells, double number, char text[EW_CELLS_NUMBER_BYTES])
{
    if (number == rint(number) && fabs(number) <= RT_JSON_INTEGER_MAX)
        return rt_json_format_i64((int64_t)number, text);
    if (cells->is_json)
        return rt_json_cell_number(number, text) ? text : NULL;
    if (fabs(number) > RT_JSON_INTEGER_MAX || isnan(number))
        return NULL;
    return rt_json_format_double(number, text);
}

const char *ew_cells_word(const ew_cells *cells, bool is_true)
{
    if (cells->is_json)
        return rt_json_cell_word(is_true);
    return is_true ? "1" : "0";
}

#define LISTED_BYTES 256u

// The first names, as many as there is room for.
static const char *list_names(const ew_cells *cells, char list[LISTED_BYTES])
{
    size_t used = 0;
    list[0] = '\0';
    for (uint32_t i = 0; i < cells->count; i++) {
        const size_t length = strlen(cells->names[i]);
        if (used + length + sizeof ", and 4294967295 more" > LISTED_BYTES) {
            snprintf(list + used, LISTED_BYTES - used, " and %" PRIu32 " more", cells->count - i);
            break;
        }
        used += (size_t)snprintf(list + used, LISTED_BYTES - used, "%s%s", used ? ", " : "",
                                 cells->names[i]);
    }
    return list;
}

rt_status ew_cells_refuse_name(const ew_cells *cells, const char *name, size_t length,
                               rt_error *error)
{
    const int shown = (int)rt_min_u64(length, RT_NAME_MAX);
    for (uint32_t i = 0; cells->columns && i < cells->columns->count; i++) {
        const rt_column *column = &cells->columns->items[i].column;
        if (strncmp(column->name, name, length) != 0 || column->name[length] != '\0')
            continue;
        if (column->from_count > 0)
            return rt_fail(error, RT_DATA, "\"%s\" is made of \"%s\"%s: say that", column->name,
                           column->from[0], column->from_count > 1 ? " and others" : "");
        return rt_fail(error, RT_DATA,
                       "the model has no column \"%s\" that is asked for: what nothing is made of, "
                       "a label, a weight or an id, is left out",
                       column->name);
    }
    char there[LISTED_BYTES];
    return rt_fail(error, RT_DATA, "the model has no column \"%.*s\"; it has %s", shown, name,
                   list_names(cells, there));
}

// ---- samples ---------------------------------------------------------------------------------

static rt_status refuse(const ew_cells *cells, uint32_t column, const char *expected,
                        rt_error *error)
{
    const cell *c = &cells->cells[column];
    return rt_fail(error, RT_DATA, "%s: expected %s, found \"%.*s\"", cells->names[column],
                   expected, (int)rt_min_u64(c->length, 64), c->text);
}

bool ew_cells_get(const ew_cells *cells, uint32_t column, const char **text_p, size_t *length_p)
{
    const cell *c = &cells->cells[column];
    *text_p = c->text;
    *length_p = c->length;
    return c->length > 0;
}

void ew_cells_quote(const char *text, size_t length, rt_bytes *line)
{
    const char *at = text, *end = at + length;
    rt_bytes_put(line, "\"", 1);
    for (const char *quote; at < end && (quote = memchr(at, '"', (size_t)(end - at)));
         at = quote + 1) {
        rt_bytes_put(line, at, (size_t)(quote - at));
        rt_bytes_put(line, "\"\"", 2);
    }
    rt_bytes_put(line, at, (size_t)(end - at));
    rt_bytes_put(line, "\"", 1);
}

static bool has_any(const cell *c, const char *bytes)
{
    for (size_t i = 0; i < c->length; i++)
        if (strchr(bytes, c->text[i])) // a zero byte too
            return true;
    return false;
}

static rt_status append(ew_cells *cells, const rt_line_sample *sample, rt_batch *batch,
                        rt_error *error)
{
    if (rt_batch_append_read(batch, 0, cells->dense, cells->keys, sample->key_count))
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    return RT_OK;
}

// A line end and bytes that can be read, as a parser expects them.
static rt_status finish_line(rt_bytes *line, rt_error *error)
{
    static const char pad[1 + RT_LINE_PAD] = "\n";
    rt_bytes_put(line, pad, sizeof pad);
    if (line->failed)
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    if (line->size > RT_LINE_MAX)
        return rt_fail(error, RT_DATA, "a sample has at most %u bytes", RT_LINE_MAX);
    return RT_OK;
}

// The line that was put.
static rt_status parse(ew_cells *cells, void *parser, size_t length, rt_batch *batch,
                       bool *goes_on_p, rt_error *error)
{
    const rt_status status = finish_line(&cells->line, error);
    if (status)
        return status;
    const rt_line line = {
        .text = (const char *)cells->line.data, .length = (uint32_t)length, .number = 2};
    rt_line_sample sample = {.dense = cells->dense, .keys = cells->keys};
    rt_line_problem problem = {.goes_on = false};
    if (cells->ops->parse(parser, &line, &sample, &problem))
        return append(cells, &sample, batch, error);
    *goes_on_p = problem.goes_on;
    return rt_fail(error, RT_DATA, "%s", problem.text);
}

static bool is_number(const cell *c, double *value_p)
{
    char text[64];
    const char *end;
    if (rt_decimal_short(c->text, c->length, value_p))
        return true;
    if (c->length >= sizeof text)
        return false;
    memcpy(text, c->text, c->length);
    text[c->length] = '\0';
    *value_p = rt_locale_number(text, &end);
    return *end == '\0' && isfinite(*value_p);
}

static bool is_id(const cell *c, uint64_t *id_p)
{
    uint64_t id = 0;
    for (size_t i = 0; i < c->length; i++) {
        const uint32_t digit = (uint32_t)c->text[i] - '0';
        if (digit > 9 || id > RT_ID_MISSING / 10)
            return false;
        id = id * 10 + digit;
    }
    *id_p = id;
    return id < RT_ID_MISSING;
}

// The generator's samples have their dense features first, then an id for each field.
static rt_status append_generated(ew_cells *cells, rt_batch *batch, rt_error *error)
{
    const uint32_t dense_count = cells->schema.dense_count;
    for (uint32_t i = 0; i < dense_count; i++) {
        const cell *c = &cells->cells[i];
        double value = 0;
        if (c->length > 0 && !is_number(c, &value))
            return refuse(cells, i, "a number", error);
        cells->dense[i] = value;
    }
    for (uint32_t f = 0; f < cells->count - dense_count; f++) {
        const cell *c = &cells->cells[dense_count + f];
        uint64_t id = RT_ID_MISSING;
        if (c->length > 0 && !is_id(c, &id))
            return refuse(cells, dense_count + f, "a number", error);
        cells->keys[f] = rt_key(f, id);
    }
    if (rt_batch_append_read(batch, 0, cells->dense, cells->keys, cells->schema.field_count))
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    return RT_OK;
}

// A line of Criteo's format.
static rt_status put_line(ew_cells *cells, rt_error *error)
{
    rt_bytes_clear(&cells->line);
    for (uint32_t i = 0; i < cells->count; i++) {
        const cell *c = &cells->cells[i];
        if (c->length > 0 && has_any(c, "\t\r\n"))
            return refuse(cells, i, "a cell without tabs and line ends", error);
        if (i > 0)
            rt_bytes_put(&cells->line, "\t", 1);
        rt_bytes_put(&cells->line, c->text, c->length);
    }
    return RT_OK;
}

// Copies of the cells, each with a byte behind it that belongs to no number.
static rt_status copy_cells(ew_cells *cells, rt_error *error)
{
    size_t at = 0;
    rt_bytes_clear(&cells->line);
    for (uint32_t i = 0; i < cells->count; i++) {
        rt_bytes_put(&cells->line, cells->cells[i].text, cells->cells[i].length);
        rt_bytes_put(&cells->line, "\n", 1);
    }
    const rt_status status = finish_line(&cells->line, error);
    for (uint32_t i = 0; i < cells->count && !status; i++) {
        const size_t length = cells->cells[i].length;
        cells->column_cells[cells->places[i]] =
            (rt_cell){(const char *)cells->line.data + at, length};
        at += length + 1;
    }
    return status;
}

static rt_status append_columns(ew_cells *cells, rt_batch *batch, rt_error *error)
{
    rt_line_sample sample = {.dense = cells->dense, .keys = cells->keys};
    uint32_t bad;
    const rt_status status = copy_cells(cells, error);
    if (status)
        return status;
    rt_columns_begin(cells->columns, &sample);
    if (rt_columns_take_all(cells->columns, cells->column_cells, &sample, &bad))
        return append(cells, &sample, batch, error);
    const rt_columns_one *one = &cells->columns->items[bad];
    const uint32_t from = one->column.from_count > 0 ? one->from[0] : bad;
    uint32_t place = 0;
    while (cells->places[place] != from)
        place++;
    return refuse(cells, place, rt_columns_expected(cells->columns, bad, cells->column_cells[from]),
                  error);
}

rt_status ew_cells_append(ew_cells *cells, rt_batch *batch, rt_error *error)
{
    bool goes_on;
    if (!cells->ops)
        return append_generated(cells, batch, error);
    if (cells->columns)
        return append_columns(cells, batch, error);
    if (cells->count == 0)
        return rt_fail(error, RT_DATA, "stream.format \"%s\" has no cells: its lines can be asked",
                       rt_config_choice_name("stream.format", (int)cells->config.format));
    const rt_status status = put_line(cells, error);
    if (status)
        return status;
    const size_t length = cells->line.size;
    return parse(cells, cells->cell_parser, length, batch, &goes_on, error);
}

// ---- lines -----------------------------------------------------------------------------------

rt_status ew_cells_order(ew_cells *cells, const char *const *names, size_t count, rt_error *error)
{
    if (cells->has_delimiter && count > 0)
        return rt_table_order_by(cells->parser, names, count, error);
    if (cells->has_delimiter)
        return rt_table_order(cells->parser, NULL, NULL, error);
    if (count > 0)
        return rt_fail(error, RT_DATA, "lines of stream.format \"%s\" have no order of columns",
                       rt_config_choice_name("stream.format", (int)cells->config.format));
    return RT_OK;
}

rt_status ew_cells_take_header(ew_cells *cells, const char *text, size_t length, bool *is_one_p,
                               rt_error *error)
{
    const rt_line line = {.text = text, .length = (uint32_t)length, .number = 1};
    *is_one_p =
        cells->has_delimiter && length <= RT_LINE_MAX && rt_table_is_header(cells->parser, &line);
    if (*is_one_p)
        return rt_table_order(cells->parser, "line", &line, error);
    return RT_OK;
}

rt_status ew_cells_append_line(ew_cells *cells, const char *text, size_t length, rt_batch *batch,
                               bool *goes_on_p, rt_error *error)
{
    *goes_on_p = false;
    if (!cells->ops)
        return rt_fail(error, RT_UNSUPPORTED, "generated samples have no lines");
    if (length > RT_LINE_MAX)
        return rt_fail(error, RT_DATA, "expected a line of at most %u bytes, found %zu",
                       RT_LINE_MAX, length);
    rt_bytes_clear(&cells->line);
    rt_bytes_put(&cells->line, text, length);
    return parse(cells, cells->parser, length, batch, goes_on_p, error);
}
