#include "runtime/stream/rt_table.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "runtime/rt_hash.h"
#include "runtime/stream/rt_event_id.h"
#include "runtime/stream/rt_parser.h"

#define HEADER_CELLS_MAX 4096u
#define NO_COLUMN UINT16_MAX
#define NO_CELL UINT32_MAX

struct rt_table {
    char delimiter;
    bool has_quotes;
    rt_columns *columns;
    bool has_header;
    uint64_t header_hash, header_length; // of the line read last
    uint16_t *order;      // of a file's cells: which column each is, or NO_COLUMN; with a header
    uint32_t order_count; // 0: cells are the columns as configured
    rt_cell *cells;       // by column, of the line that is parsed
    char *unquoted;       // RT_LINE_MAX and padding: quoted cells without their quotes
    size_t unquoted_used; // of this line
    const char *list;     // key of the columns, for messages
    char id[RT_NAME_MAX]; // stream.id; "": events have no names
    uint32_t id_cell;     // where these stand; with a header: in this file
};

typedef enum { CELL_OK, CELL_UNCLOSED, CELL_AFTER_QUOTE } cell_state;

// *at_p stands on the opening quote and is moved behind the closing one.
static cell_state take_quoted(rt_table *table, const char **at_p, const char *end, rt_cell *out)
{
    const char *at = *at_p + 1;
    char *unquoted = table->unquoted + table->unquoted_used;
    size_t length = 0;
    *out = (rt_cell){at, 0};
    for (;;) {
        const char *quote = memchr(at, '"', (size_t)(end - at));
        if (!quote)
            return CELL_UNCLOSED;
        bool is_doubled = quote + 1 < end && quote[1] == '"';
        size_t count = (size_t)(quote - at);
        if (out->text != unquoted && !is_doubled) {
            out->length = count; // no "" inside: the cell is good where it stands
        } else {
            memcpy(unquoted + length, at, count + is_doubled);
            length += count + is_doubled;
            *out = (rt_cell){unquoted, length};
        }
        at = quote + 1 + is_doubled;
        if (!is_doubled)
            break;
    }
    if (out->text == unquoted) { // the quotes around it make room for the line end
        unquoted[length] = '\n';
        table->unquoted_used += length + 1;
    }
    *at_p = at;
    return at == end || *at == table->delimiter ? CELL_OK : CELL_AFTER_QUOTE;
}

// The cell at *at_p, which is moved to the delimiter behind it or to end.
static cell_state take_cell(rt_table *table, const char **at_p, const char *end, rt_cell *out)
{
    const char *at = *at_p;
    if (table->has_quotes && at < end && *at == '"')
        return take_quoted(table, at_p, end, out);
    const char *stop = memchr(at, table->delimiter, (size_t)(end - at));
    stop = stop ? stop : end;
    *out = (rt_cell){at, (size_t)(stop - at)};
    *at_p = stop;
    return CELL_OK;
}

static uint32_t count_cells(rt_table *table, const rt_line *line)
{
    const char *at = line->text, *end = at + line->length;
    uint32_t count = 0;
    rt_cell ignored;
    table->unquoted_used = 0;
    do {
        count++;
    } while (take_cell(table, &at, end, &ignored) == CELL_OK && at++ < end);
    return count;
}

static const char *name_of(const rt_table *table, uint32_t column)
{
    return table->columns->items[column].column.name;
}

static uint32_t cells_expected(const rt_table *table)
{
    if (table->order_count)
        return table->order_count;
    return table->columns->count - table->columns->derived_count;
}

// A line without the cells of labels, where that may be.
static bool lacks_label(rt_table *table, const rt_line *line)
{
    const uint32_t label_count = table->columns->schema.label_count;
    return table->columns->labels_optional && table->order_count == 0 && label_count > 0 &&
           count_cells(table, line) == cells_expected(table) - label_count;
}

// number: of the cell in the line, from 0.
static __attribute__((noinline)) bool reject(rt_table *table, const rt_line *line, uint32_t number,
                                             uint32_t column, rt_cell value,
                                             rt_line_problem *problem)
{
    char shown_cell[64];
    size_t shown = value.length < sizeof shown_cell ? value.length : sizeof shown_cell;
    memcpy(shown_cell, value.text, shown); // counting reuses the storage of unquoted cells
    uint32_t count = count_cells(table, line);
    const bool has_all = count == cells_expected(table) || lacks_label(table, line);
    if (!has_all)
        return rt_line_reject(problem, "expected %u cells, found %u", cells_expected(table), count);
    return rt_line_reject_cell(problem, number, name_of(table, column),
                               rt_columns_expected(table->columns, column), shown_cell, shown);
}

static bool reject_quote(cell_state state, uint32_t number, const char *name,
                         rt_line_problem *problem)
{
    problem->goes_on = state == CELL_UNCLOSED;
    const char *expected = "the closing quote at the end of the cell";
    if (state == CELL_UNCLOSED)
        expected = "a closing quote (a quoted cell may hold a few line feeds)";
    return rt_line_reject(problem, "column %u (%s): expected %s", number + 1, name, expected);
}

// A line whose cells stand as the columns are configured, none of which is made of others.
static bool parse_in_order(rt_table *table, const rt_line *line, rt_line_sample *sample,
                           rt_line_problem *problem)
{
    const char *at = line->text, *end = at + line->length;
    rt_columns *columns = table->columns;
    const bool passes_label = lacks_label(table, line);
    uint32_t last = columns->count - 1, dense_count = 0;
    while (passes_label && last > 0 && columns->items[last].kind == RT_COLUMN_LABEL)
        last--;
    for (uint32_t i = 0; i <= last; i++) {
        rt_cell value;
        if (RT_UNLIKELY(passes_label && columns->items[i].kind == RT_COLUMN_LABEL))
            continue;
        table->unquoted_used = 0;
        cell_state state = take_cell(table, &at, end, &value);
        if (RT_UNLIKELY(state != CELL_OK))
            return reject_quote(state, i, name_of(table, i), problem);
        if (columns->items[i].kind != RT_COLUMN_IGNORE &&
            RT_UNLIKELY(!rt_columns_take(columns, i, value, sample, &dense_count)))
            return reject(table, line, i, i, value, problem);
        if (RT_UNLIKELY((at == end) != (i == last)))
            return reject(table, line, i, i, value, problem);
        at++;
    }
    return true;
}

// The number of a column's cell in the lines of this file; of a column that is made of others, that
// of the first of them.
static uint32_t number_of(const rt_table *table, uint32_t column)
{
    const rt_columns_one *one = &table->columns->items[column];
    uint32_t i = 0;
    if (one->column.from_count > 0)
        return number_of(table, one->from[0]);
    while (i < table->order_count && table->order[i] != column)
        i++;
    return i;
}

// A line whose cells stand as an order says: they are found first, then parsed in the order of the
// columns, which is that of the fields.
static bool parse_by_order(rt_table *table, const rt_line *line, rt_line_sample *sample,
                           rt_line_problem *problem)
{
    const char *at = line->text, *end = at + line->length;
    uint32_t bad;
    table->unquoted_used = 0;
    for (uint32_t i = 0; i < table->order_count; i++, at++) {
        const uint16_t number = table->order[i];
        rt_cell value;
        cell_state state = take_cell(table, &at, end, &value);
        if (RT_UNLIKELY(state != CELL_OK))
            return reject_quote(state, i, number == NO_COLUMN ? "not used" : name_of(table, number),
                                problem);
        if (RT_UNLIKELY((at == end) != (i + 1 == table->order_count)))
            return reject(table, line, i, number == NO_COLUMN ? 0 : number, value, problem);
        if (number != NO_COLUMN)
            table->cells[number] = value;
    }
    if (RT_LIKELY(rt_columns_take_all(table->columns, table->cells, sample, &bad)))
        return true;
    const rt_columns_one *one = &table->columns->items[bad];
    const uint32_t from = one->column.from_count > 0 ? one->from[0] : bad;
    return reject(table, line, number_of(table, bad), bad, table->cells[from], problem);
}

bool rt_table_parse(rt_table *table, const rt_line *line, rt_line_sample *sample,
                    rt_line_problem *problem)
{
    rt_columns_begin(table->columns, sample);
    problem->goes_on = false;
    if (memchr(line->text, '\0', line->length))
        return rt_line_reject(problem, "expected text, found a zero byte");
    if (table->order_count)
        return parse_by_order(table, line, sample, problem);
    return parse_in_order(table, line, sample, problem);
}

// ---- headers ---------------------------------------------------------------------------------

static bool is_word(rt_cell cell, const char *word)
{
    return strlen(word) == cell.length && memcmp(word, cell.text, cell.length) == 0;
}

// The column of this name that is used; columns->count: there is none.
static uint32_t find_column(const rt_table *table, rt_cell name)
{
    uint32_t i = 0;
    for (; i < table->columns->count; i++) {
        const rt_column *column = &table->columns->items[i].column;
        if (rt_columns_reads(table->columns, i) && is_word(name, column->name))
            break;
    }
    return i;
}

static rt_status fail_header(const char *name, const rt_line *line, const char *what,
                             const char *column, rt_error *error)
{
    return rt_fail(error, RT_DATA, "%s:%" PRIu64 ": the header %s%s", name, line->number, what,
                   column);
}

static rt_status read_order(rt_table *table, const char *name, const rt_line *line, rt_error *error)
{
    static const char mark[] = "\xef\xbb\xbf"; // that some programs begin a file with
    const char *at = line->text, *end = at + line->length;
    if (line->length >= 3 && memcmp(at, mark, 3) == 0)
        at += 3;
    table->unquoted_used = 0;
    for (;; at++) {
        rt_cell value;
        if (table->order_count == HEADER_CELLS_MAX)
            return fail_header(name, line, "has too many columns", "", error);
        if (take_cell(table, &at, end, &value) != CELL_OK)
            return fail_header(name, line, "has a quote that is not closed", "", error);
        const uint32_t column = find_column(table, value);
        if (*table->id && is_word(value, table->id))
            table->id_cell = table->order_count;
        for (uint32_t i = 0; i < table->order_count && column < table->columns->count; i++) {
            if (table->order[i] == column)
                return fail_header(name, line, "has this column twice: ", name_of(table, column),
                                   error);
        }
        table->order[table->order_count++] =
            column < table->columns->count ? (uint16_t)column : NO_COLUMN;
        if (at == end)
            return RT_OK;
    }
}

static rt_status read_header(rt_table *table, const char *name, const rt_line *line,
                             rt_error *error)
{
    char lacks[64];
    table->order_count = 0;
    table->header_hash = rt_hash_bytes(line->text, line->length);
    table->header_length = line->length;
    table->id_cell = NO_CELL;
    if (line->is_too_long)
        return fail_header(name, line, "is too long", "", error);
    rt_status status = read_order(table, name, line, error);
    if (status)
        return status;
    if (*table->id && table->id_cell == NO_CELL &&
        (!rt_event_id_number(table->id, &table->id_cell) || table->id_cell >= table->order_count))
        return fail_header(name, line, "lacks the column of stream.id: ", table->id, error);
    snprintf(lacks, sizeof lacks, "lacks this column of %s: ", table->list);
    for (uint32_t i = 0; i < table->columns->count; i++) {
        const bool may_lack =
            table->columns->labels_optional && table->columns->items[i].kind == RT_COLUMN_LABEL;
        if (rt_columns_reads(table->columns, i) && !may_lack &&
            number_of(table, i) == table->order_count)
            return fail_header(name, line, lacks, name_of(table, i), error);
    }
    return RT_OK;
}

static rt_status check_separators(const rt_table *table, rt_error *error)
{
    for (uint32_t i = 0; i < table->columns->count; i++) {
        const rt_column *column = &table->columns->items[i].column;
        const char separator = column->separator;
        if (column->kind == RT_COLUMN_MULTI &&
            (separator == '\0' || separator == table->delimiter || separator == '"' ||
             separator == '\n'))
            return rt_fail(error, RT_CONFIG,
                           "%s[%u] (%s): separator expects one character other than the delimiter,"
                           " the quote and the line end",
                           table->list, i, column->name);
    }
    return RT_OK;
}

// Columns that are made of others have no cell: the others are found by an order from the start.
static void order_cells(rt_table *table)
{
    const rt_columns *columns = table->columns;
    table->order_count = 0;
    for (uint32_t i = 0; i < columns->count && columns->derived_count > 0; i++) {
        if (columns->items[i].column.from_count == 0)
            table->order[table->order_count++] =
                rt_columns_reads(columns, i) ? (uint16_t)i : NO_COLUMN;
    }
}

rt_status rt_table_create(const rt_table_config *config, rt_columns_purpose purpose,
                          rt_table **table_p, rt_error *error)
{
    rt_table *table = rt_alloc(1, sizeof *table);
    if (!table)
        return rt_fail(error, RT_NO_MEMORY, "out of memory for a table");
    table->list = purpose == RT_COLUMNS_OUTCOMES ? "stream.join.columns" : "stream.table.columns";
    table->delimiter = config->delimiter;
    table->has_quotes = config->quotes == RT_QUOTES_RFC4180 ||
                        (config->quotes == RT_QUOTES_AUTO && config->delimiter != '\t');
    table->has_header = config->has_header;
    table->order = rt_alloc(HEADER_CELLS_MAX, sizeof *table->order);
    table->cells = rt_alloc(config->column_count, sizeof *table->cells);
    table->unquoted = rt_alloc(RT_LINE_MAX + RT_LINE_PAD, 1);
    rt_status status = rt_columns_create(config, purpose, table->list, &table->columns, error);
    if (!status && (!table->order || !table->cells || !table->unquoted))
        status = rt_fail(error, RT_NO_MEMORY, "out of memory for a table");
    if (!status)
        status = check_separators(table, error);
    if (status) {
        rt_table_destroy(table);
        return status;
    }
    order_cells(table);
    *table_p = table;
    return RT_OK;
}

void rt_table_destroy(rt_table *table)
{
    if (!table)
        return;
    rt_free(table->unquoted);
    rt_free(table->cells);
    rt_free(table->order);
    rt_columns_destroy(table->columns);
    rt_free(table);
}

void rt_table_schema(const rt_table *table, rt_schema *schema)
{
    *schema = table->columns->schema;
}

// ---- the table of operations -----------------------------------------------------------------

static rt_status create(const rt_stream_config *config, void **parser_p, rt_error *error)
{
    rt_table *table;
    rt_status status =
        rt_table_create(&config->table, rt_columns_purpose_of(config), &table, error);
    if (status)
        return status;
    table->columns->labels_optional = config->labels_optional;
    rt_columns_note(table->columns, config->names);
    *parser_p = table;
    return RT_OK;
}

static void destroy(void *parser)
{
    rt_table_destroy(parser);
}

static void schema(const void *parser, rt_schema *schema)
{
    rt_table_schema(parser, schema);
}

static bool parse(void *parser, const rt_line *line, rt_line_sample *sample,
                  rt_line_problem *problem)
{
    return rt_table_parse(parser, line, sample, problem);
}

static rt_status header(void *parser, const char *name, const rt_line *line, bool *is_one_p,
                        rt_error *error)
{
    rt_table *table = parser;
    *is_one_p = table->has_header;
    if (table->has_header)
        return read_header(table, name, line, error);
    return RT_OK;
}

static bool is_header(const void *parser, const rt_line *line)
{
    const rt_table *table = parser;
    return table->has_header && line->length == table->header_length && line->length > 0 &&
           rt_hash_bytes(line->text, line->length) == table->header_hash;
}

static void tell(const void *parser, rt_bytes *bytes)
{
    const rt_table *table = parser;
    rt_bytes_put_u64(bytes, table->header_hash);
    rt_bytes_put_u64(bytes, table->header_length);
    const uint32_t count = table->has_header ? table->order_count : 0;
    rt_bytes_put_u64(bytes, count);
    rt_bytes_put(bytes, table->order, count * sizeof *table->order);
    if (table->has_header && *table->id)
        rt_bytes_put_u32(bytes, table->id_cell);
}

// Every used column stands in an order once.
static bool is_order(const rt_table *table)
{
    for (uint32_t i = 0; i < table->order_count; i++) {
        if (table->order[i] != NO_COLUMN && table->order[i] >= table->columns->count)
            return false;
    }
    for (uint32_t i = 0; i < table->columns->count; i++) {
        if (rt_columns_reads(table->columns, i) && number_of(table, i) == table->order_count)
            return false;
    }
    return true;
}

static bool seek(void *parser, rt_reader *bytes)
{
    rt_table *table = parser;
    table->header_hash = rt_reader_u64(bytes);
    table->header_length = rt_reader_u64(bytes);
    const uint64_t count = rt_reader_u64(bytes);
    const size_t id_size = table->has_header && *table->id ? sizeof table->id_cell : 0;
    table->order_count = 0;
    if (bytes->failed || count > HEADER_CELLS_MAX ||
        bytes->left != count * sizeof *table->order + id_size)
        return false;
    if (count == 0) {
        order_cells(table);
        return true;
    }
    rt_reader_get(bytes, table->order, count, sizeof *table->order);
    if (id_size)
        table->id_cell = rt_reader_u32(bytes);
    table->order_count = (uint32_t)count;
    const bool is_good = table->has_header && is_order(table);
    if (!is_good)
        table->order_count = 0;
    return is_good;
}

// The column of that name, or the cell of that number. Of a file with a header it is the header
// that says where the name stands.
static rt_status name_by(void *parser, const char *id, rt_error *error)
{
    rt_table *table = parser;
    const rt_columns *columns = table->columns;
    uint32_t cells = 0;
    snprintf(table->id, sizeof table->id, "%s", id);
    table->id_cell = NO_CELL;
    for (uint32_t i = 0; i < columns->count; i++) {
        const rt_column *column = &columns->items[i].column;
        if (column->from_count > 0)
            continue;
        if (table->id_cell == NO_CELL && strcmp(column->name, id) == 0)
            table->id_cell = cells;
        cells++;
    }
    if (table->has_header || table->id_cell != NO_CELL)
        return RT_OK;
    if (rt_event_id_number(id, &table->id_cell) && table->id_cell < cells)
        return RT_OK;
    return rt_fail(error, RT_CONFIG,
                   "stream.id: no column of stream.table.columns has the name %s, nor is it the "
                   "number of one, 1 to %u",
                   id, cells);
}

static uint64_t name(void *parser, const rt_line *line)
{
    const rt_table *table = parser;
    return rt_event_id_of_cell(line, table->id_cell, table->delimiter, table->has_quotes);
}

const rt_parser_ops rt_parser_table = {
    .create = create,
    .destroy = destroy,
    .schema = schema,
    .parse = parse,
    .name_by = name_by,
    .name = name,
    .header = header,
    .is_header = is_header,
    .tell = tell,
    .seek = seek,
};
