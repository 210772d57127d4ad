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
    uint16_t *order;                     // of a line's cells: which column each is, or NO_COLUMN
    uint32_t order_count;                // 0: cells are the columns as configured
    uint16_t *bare;       // of a line without the cells of labels, which a question may be
    uint32_t bare_count;  // 0: there is no such line
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

// Of a line as configured, with labels.
static uint32_t cells_expected(const rt_table *table)
{
    if (table->order_count)
        return table->order_count;
    return table->columns->count - table->columns->derived_count;
}

// What seems to divide a line that is one cell; NULL: nothing does.
static const char *other_delimiter(const rt_table *table, const rt_line *line)
{
    static const char *const delimiters[] = {"\t", ";", "|", ","};
    for (size_t i = 0; i < RT_COUNT_OF(delimiters); i++)
        if (*delimiters[i] != table->delimiter && memchr(line->text, *delimiters[i], line->length))
            return i == 0 ? "\\t" : delimiters[i];
    return NULL;
}

static bool reject_count(const rt_table *table, const rt_line *line, uint32_t count,
                         rt_line_problem *problem)
{
    const char *other = count == 1 ? other_delimiter(table, line) : NULL;
    if (table->bare_count)
        return rt_line_reject(problem, "expected %u cells, or %u without labels, found %u",
                              cells_expected(table), table->bare_count, count);
    if (other)
        return rt_line_reject(problem,
                              "expected %u cells, found 1: they seem to be divided by \"%s\" "
                              "(stream.table.delimiter)",
                              cells_expected(table), other);
    return rt_line_reject(problem, "expected %u cells, found %u", cells_expected(table), count);
}

// number: of the cell in the line, from 0.
static __attribute__((noinline)) bool reject(rt_table *table, const rt_line *line, uint32_t number,
                                             uint32_t column, rt_cell value,
                                             rt_line_problem *problem)
{
    char shown_cell[64 + 1] = {0};
    size_t shown = rt_min_u64(value.length, sizeof shown_cell - 1);
    memcpy(shown_cell, value.text, shown); // counting reuses the storage of unquoted cells
    const uint32_t count = count_cells(table, line);
    const bool is_bare = table->bare_count > 0 && count == table->bare_count;
    if (count != cells_expected(table) && !is_bare)
        return reject_count(table, line, count, problem);
    return rt_line_reject_cell(
        problem, number, name_of(table, column),
        rt_columns_expected(table->columns, column, (rt_cell){shown_cell, shown}), shown_cell,
        shown);
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
    const uint32_t last = columns->count - 1;
    uint32_t dense_count = 0;
    for (uint32_t i = 0; i <= last; i++) {
        rt_cell value;
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

// Where the cells of a line stand.
typedef struct {
    const uint16_t *columns; // which column each is, or NO_COLUMN
    uint32_t count;
} cell_order;

static cell_order order_of(rt_table *table, const rt_line *line)
{
    if (RT_UNLIKELY(table->bare_count) && count_cells(table, line) == table->bare_count)
        return (cell_order){table->bare, table->bare_count};
    return (cell_order){table->order, table->order_count};
}

// The number of a column's cell in a line, count: it has none; of a column that is made of others,
// that of the first of them.
static uint32_t number_in(const rt_table *table, cell_order order, uint32_t column)
{
    const rt_columns_one *one = &table->columns->items[column];
    uint32_t i = 0;
    if (one->column.from_count > 0)
        return number_in(table, order, one->from[0]);
    while (i < order.count && order.columns[i] != column)
        i++;
    return i;
}

static bool has_cell(const rt_table *table, uint32_t column)
{
    const cell_order order = {table->order, table->order_count};
    return number_in(table, order, column) < order.count;
}

// A line whose cells stand as an order says: they are found first, then parsed in the order of the
// columns, which is that of the fields.
static bool parse_by_order(rt_table *table, const rt_line *line, rt_line_sample *sample,
                           rt_line_problem *problem)
{
    const char *at = line->text, *end = at + line->length;
    const cell_order order = order_of(table, line);
    uint32_t bad;
    table->unquoted_used = 0;
    for (uint32_t i = 0; i < order.count; i++, at++) {
        const uint16_t number = order.columns[i];
        rt_cell value;
        cell_state state = take_cell(table, &at, end, &value);
        if (RT_UNLIKELY(state != CELL_OK))
            return reject_quote(state, i, number == NO_COLUMN ? "not used" : name_of(table, number),
                                problem);
        if (RT_UNLIKELY((at == end) != (i + 1 == order.count)))
            return reject(table, line, i, number == NO_COLUMN ? 0 : number, value, problem);
        if (number != NO_COLUMN)
            table->cells[number] = value;
    }
    if (RT_LIKELY(rt_columns_take_all(table->columns, table->cells, sample, &bad)))
        return true;
    const rt_columns_one *one = &table->columns->items[bad];
    const uint32_t from = one->column.from_count > 0 ? one->from[0] : bad;
    return reject(table, line, number_in(table, order, bad), bad, table->cells[from], problem);
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
        if (name.length > 0 && rt_columns_reads(table->columns, i) && is_word(name, column->name))
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

// Where the cells of a header begin: some programs begin a file with a mark.
static const char *begin_of_header(const rt_line *line)
{
    static const char mark[] = "\xef\xbb\xbf";
    const bool is_marked = line->length >= 3 && memcmp(line->text, mark, 3) == 0;
    return line->text + (is_marked ? 3 : 0);
}

// The next cell of a header's is of the column of this name. NULL, or what is wrong with that.
static const char *add_to_order(rt_table *table, rt_cell name)
{
    const uint32_t column = find_column(table, name);
    if (table->order_count == HEADER_CELLS_MAX)
        return "has too many columns";
    if (*table->id && is_word(name, table->id))
        table->id_cell = table->order_count;
    for (uint32_t i = 0; i < table->order_count && column < table->columns->count; i++)
        if (table->order[i] == column)
            return "has this column twice: ";
    table->order[table->order_count++] =
        column < table->columns->count ? (uint16_t)column : NO_COLUMN;
    return NULL;
}

static rt_status read_order(rt_table *table, const char *name, const rt_line *line, rt_error *error)
{
    const char *at = begin_of_header(line), *end = line->text + line->length;
    table->unquoted_used = 0;
    for (;; at++) {
        rt_cell value;
        if (take_cell(table, &at, end, &value) != CELL_OK)
            return fail_header(name, line, "has a quote that is not closed", "", error);
        const char *wrong = add_to_order(table, value);
        if (wrong && table->order_count == HEADER_CELLS_MAX)
            return fail_header(name, line, wrong, "", error);
        if (wrong)
            return fail_header(name, line, wrong, name_of(table, find_column(table, value)), error);
        if (at == end)
            return RT_OK;
    }
}

// The first column that is read and has no cell; NULL: all have one.
static const char *lacked(const rt_table *table)
{
    for (uint32_t i = 0; i < table->columns->count; i++)
        if (rt_columns_reads(table->columns, i) && !has_cell(table, i))
            return name_of(table, i);
    return NULL;
}

static rt_status suggest_delimiter(const rt_table *table, const rt_line *line, rt_error *error)
{
    const char *other = other_delimiter(table, line);
    const rt_error before = *error;
    if (other)
        return rt_fail(error, RT_DATA,
                       "%.300s; its cells seem to be divided by \"%s\" (stream.table.delimiter)",
                       before.text, other);
    return RT_DATA;
}

static rt_status read_header(rt_table *table, const char *name, const rt_line *line,
                             rt_error *error)
{
    char lacks[64];
    table->order_count = table->bare_count = 0;
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
    if (!lacked(table))
        return RT_OK;
    status = fail_header(name, line, lacks, lacked(table), error);
    return table->order_count == 1 ? suggest_delimiter(table, line, error) : status;
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

// Columns that are made of others have no cell, and a question may lack cells: they are found by an
// order from the start.
static void order_cells(rt_table *table)
{
    const rt_columns *columns = table->columns;
    table->order_count = table->bare_count = 0;
    for (uint32_t i = 0; i < columns->count; i++) {
        const rt_cell_use use = rt_columns_use(columns, i);
        const uint16_t column = rt_columns_reads(columns, i) ? (uint16_t)i : NO_COLUMN;
        if (use != RT_CELL_NONE)
            table->order[table->order_count++] = column;
        if (use != RT_CELL_NONE && use != RT_CELL_LABEL)
            table->bare[table->bare_count++] = column;
    }
    if (table->bare_count == table->order_count || !columns->are_questions)
        table->bare_count = 0;
    if (columns->derived_count == 0 && !columns->are_questions)
        table->order_count = 0;
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
    table->bare = rt_alloc(config->column_count, sizeof *table->bare);
    table->cells = rt_alloc(config->column_count, sizeof *table->cells);
    table->unquoted = rt_alloc(RT_LINE_MAX + RT_LINE_PAD, 1);
    rt_status status = rt_columns_create(config, purpose, table->list, &table->columns, error);
    if (!status && (!table->order || !table->bare || !table->cells || !table->unquoted))
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
    rt_free(table->bare);
    rt_free(table->order);
    rt_columns_destroy(table->columns);
    rt_free(table);
}

bool rt_table_is_header(rt_table *table, const rt_line *line)
{
    const char *at = begin_of_header(line), *end = line->text + line->length;
    uint32_t needed = 0, named = 0;
    table->unquoted_used = 0;
    for (;; at++) {
        rt_cell value;
        if (take_cell(table, &at, end, &value) != CELL_OK)
            return false;
        named += find_column(table, value) < table->columns->count;
        if (at == end)
            break;
    }
    for (uint32_t i = 0; i < table->columns->count; i++)
        needed += rt_columns_reads(table->columns, i);
    return named > 0 && 2 * named >= needed;
}

rt_status rt_table_order(rt_table *table, const char *name, const rt_line *header, rt_error *error)
{
    if (header)
        return read_header(table, name, header, error);
    order_cells(table);
    return RT_OK;
}

rt_status rt_table_order_by(rt_table *table, const char *const *names, size_t count,
                            rt_error *error)
{
    table->order_count = table->bare_count = 0;
    for (size_t i = 0; i < count; i++) {
        const char *wrong = add_to_order(table, (rt_cell){names[i], strlen(names[i])});
        if (wrong)
            return rt_fail(error, RT_DATA, "the order of cells %s%s", wrong, names[i]);
    }
    if (lacked(table))
        return rt_fail(error, RT_DATA, "the order of cells lacks this column of %s: %s",
                       table->list, lacked(table));
    return RT_OK;
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
    return !lacked(table);
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
        if (rt_columns_use(columns, i) == RT_CELL_NONE)
            continue;
        if (table->id_cell == NO_CELL && strcmp(name_of(table, i), id) == 0)
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
