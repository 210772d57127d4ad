#include "edge_worker/predict/ew_cells.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/numbers/rt_decimal.h"
#include "runtime/rt_hash.h"
#include "runtime/rt_json.h"
#include "runtime/stream/rt_criteo.h"
#include "runtime/stream/rt_json_cell.h"
#include "runtime/stream/rt_parser.h"

#define COLUMNS_MAX (RT_COLUMNS_MAX + 1u)

typedef struct {
    const char *text;
    size_t length;
} cell;

struct ew_cells {
    rt_stream_config config;  // of the parser of put cells
    rt_table_config table;    // of it: columns by their own names, no header
    const rt_parser_ops *ops; // NULL: the generator's samples
    const rt_parser_ops *line_ops;
    void *parser, *line_parser; // line_parser: of whole lines, as the configuration has them
    bool is_json;               // lines are
    rt_schema schema;
    uint32_t count;
    char (*names)[RT_NAME_MAX];
    char *separators; // 0: the column has one value
    cell *cells;      // count
    rt_bytes line;
    float *dense;
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

static bool is_made_into(const rt_table_config *table, const char *name)
{
    for (uint32_t i = 0; i < table->column_count; i++)
        for (uint32_t k = 0; k < table->columns[i].from_count; k++)
            if (strcmp(table->columns[i].from[k], name) == 0)
                return true;
    return false;
}

// Cells are divided by commas and quoted where they need it, unless a column divides its own values
// by commas.
//
// What a prediction does not need is not asked for: weights, ids, times, unless something is made
// of them; nor are columns that are made of others.
static rt_status name_table(ew_cells *cells, const rt_stream_config *stream, rt_error *error)
{
    const rt_table_config *table = &stream->table;
    rt_column *columns;
    if (rt_config_copy_columns(table->columns, table->column_count, &columns))
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    cells->table = *table;
    cells->table.columns = columns;
    cells->table.column_count = 0;
    cells->table.has_header = false;
    cells->table.delimiter = ',';
    cells->table.quotes = RT_QUOTES_AUTO; // whatever a file may have between its delimiters
    for (uint32_t i = 0; i < table->column_count; i++) {
        rt_column *one = &columns[cells->table.column_count];
        *one = table->columns[i];
        const bool is_aside = one->kind == RT_COLUMN_WEIGHT || one->kind == RT_COLUMN_ID ||
                              one->kind == RT_COLUMN_TIME;
        if (is_aside && !is_made_into(table, one->name))
            continue;
        if (is_aside)
            one->kind = RT_COLUMN_IGNORE;
        cells->table.column_count++;
        if (stream->format == RT_FORMAT_JSON)
            one->separator = EW_CELLS_SEPARATOR;
        if (one->kind == RT_COLUMN_MULTI && one->separator == ',')
            cells->table.delimiter = '\t';
        if (one->kind != RT_COLUMN_LABEL && one->from_count == 0) {
            if (one->kind == RT_COLUMN_MULTI)
                cells->separators[cells->count] = one->separator;
            snprintf(cells->names[cells->count++], RT_NAME_MAX, "%s", one->name);
        }
    }
    return RT_OK;
}

static rt_status create_parsers(ew_cells *cells, const rt_config *config, rt_error *error)
{
    rt_stream_config lines = config->stream;
    cells->config = config->stream;
    cells->is_json = config->stream.format == RT_FORMAT_JSON;
    cells->config.labels_optional = lines.labels_optional = true;
    const bool has_columns = rt_format_has(config->stream.format, RT_HAS_COLUMNS);
    if (has_columns) // a column means the same in both
        cells->config.format = RT_FORMAT_TABLE;
    cells->ops = rt_parser_find(cells->config.format);
    cells->line_ops = rt_parser_find(lines.format);
    if (rt_format_is_generated(config->stream.format)) {
        name_generated(cells);
        return RT_OK;
    }
    if (config->stream.format != RT_FORMAT_CRITEO && !has_columns)
        return rt_fail(error, RT_UNSUPPORTED,
                       "stream.format \"%s\": it has no cells; `lanyard predict` reads its lines",
                       rt_config_choice_name("stream.format", (int)config->stream.format));
    rt_status status = RT_OK;
    if (config->stream.format == RT_FORMAT_CRITEO)
        name_criteo(cells);
    else
        status = name_table(cells, &config->stream, error);
    if (status)
        return status;
    if (has_columns)
        cells->config.table = cells->table;
    status = cells->ops->create(&cells->config, &cells->parser, error);
    if (status)
        return status;
    return cells->line_ops->create(&lines, &cells->line_parser, error);
}

static rt_status create_all(ew_cells *cells, const rt_config *config, rt_error *error)
{
    const rt_status status =
        rt_parser_read_schema(&config->stream, config->seed, &cells->schema, error);
    if (status)
        return status;
    cells->names = rt_alloc(COLUMNS_MAX, sizeof *cells->names);
    cells->separators = rt_alloc(COLUMNS_MAX, sizeof *cells->separators);
    cells->cells = rt_alloc(COLUMNS_MAX, sizeof *cells->cells);
    cells->dense = rt_alloc(cells->schema.dense_count + 1u, sizeof *cells->dense);
    cells->keys = rt_alloc(cells->schema.keys_per_sample_max, sizeof *cells->keys);
    if (!cells->names || !cells->separators || !cells->cells || !cells->dense || !cells->keys)
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
    if (cells->line_parser)
        cells->line_ops->destroy(cells->line_parser);
    rt_bytes_fini(&cells->line);
    rt_free(cells->table.columns);
    rt_free(cells->keys);
    rt_free(cells->dense);
    rt_free(cells->cells);
    rt_free(cells->separators);
    rt_free(cells->names);
    rt_free(cells);
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

static rt_status put_cell(ew_cells *cells, uint32_t column, char delimiter, rt_error *error)
{
    const cell *c = &cells->cells[column];
    if (delimiter == ',' && has_any(c, ",\"\r\n"))
        ew_cells_quote(c->text, c->length, &cells->line);
    else if (delimiter == '\t' && has_any(c, "\t\r\n"))
        return refuse(cells, column, "a cell without tabs and line ends", error);
    else
        rt_bytes_put(&cells->line, c->text, c->length);
    return RT_OK;
}

static rt_status parse(ew_cells *cells, const rt_parser_ops *ops, void *parser, const char *text,
                       size_t length, rt_batch *batch, rt_error *error)
{
    rt_line line = {.text = text, .length = (uint32_t)length, .number = 2};
    rt_line_sample sample = {.dense = cells->dense, .keys = cells->keys};
    rt_line_problem problem = {.goes_on = false};
    if (!ops->parse(parser, &line, &sample, &problem))
        return rt_fail(error, RT_DATA, "%s", problem.text);
    if (rt_batch_append(batch, 0, cells->dense, cells->keys, sample.key_count))
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

static bool is_number(const cell *c, double *value_p)
{
    char text[64], *end;
    if (rt_decimal_short(c->text, c->length, value_p))
        return true;
    if (c->length >= sizeof text)
        return false;
    memcpy(text, c->text, c->length);
    text[c->length] = '\0';
    *value_p = strtod(text, &end);
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
        cells->dense[i] = (float)value;
    }
    for (uint32_t f = 0; f < cells->count - dense_count; f++) {
        const cell *c = &cells->cells[dense_count + f];
        uint64_t id = RT_ID_MISSING;
        if (c->length > 0 && !is_id(c, &id))
            return refuse(cells, dense_count + f, "a number", error);
        cells->keys[f] = rt_key(f, id);
    }
    if (rt_batch_append(batch, 0, cells->dense, cells->keys, cells->schema.field_count))
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    return RT_OK;
}

static rt_status put_cells(ew_cells *cells, rt_error *error)
{
    char delimiter = '\t';
    if (rt_format_has(cells->config.format, RT_HAS_DELIMITER))
        delimiter = cells->table.delimiter;
    rt_bytes_clear(&cells->line);
    for (uint32_t i = 0; i < cells->count; i++) {
        if (i > 0)
            rt_bytes_put(&cells->line, &delimiter, 1);
        const rt_status status = put_cell(cells, i, delimiter, error);
        if (status)
            return status;
    }
    return RT_OK;
}

rt_status ew_cells_append(ew_cells *cells, rt_batch *batch, rt_error *error)
{
    if (!cells->ops)
        return append_generated(cells, batch, error);
    rt_status status = put_cells(cells, error);
    if (status)
        return status;
    const size_t length = cells->line.size;
    status = finish_line(&cells->line, error);
    if (status)
        return status;
    return parse(cells, cells->ops, cells->parser, (const char *)cells->line.data, length, batch,
                 error);
}

rt_status ew_cells_append_line(ew_cells *cells, const char *text, size_t length, rt_batch *batch,
                               rt_error *error)
{
    if (!cells->ops)
        return rt_fail(error, RT_UNSUPPORTED, "generated samples have no lines");
    rt_bytes_clear(&cells->line);
    rt_bytes_put(&cells->line, text, length);
    const rt_status status = finish_line(&cells->line, error);
    if (status)
        return status;
    return parse(cells, cells->line_ops, cells->line_parser, (const char *)cells->line.data, length,
                 batch, error);
}
