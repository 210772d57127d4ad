#define _GNU_SOURCE // strtod_l
#include "runtime/stream/rt_table.h"

#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/rt_hash.h"
#include "runtime/stream/rt_parser.h"

#define KEYS_PER_SAMPLE_MAX (1u << 16)
#define EXACT_DIGITS_MAX 15 // any integer of so many digits is a double
#define HEADER_CELLS_MAX 4096u
#define NO_COLUMN UINT16_MAX

typedef struct {
    rt_column column;
    double label_number;
    bool is_label_number; // label_value is a number
    bool is_label_one;    // it is 1, so that 0 is what other labels should be
    uint32_t field;       // categorical, multi
} table_column;

// Followed by a byte that belongs to no number.
typedef struct {
    const char *text;
    size_t length;
} cell;

struct rt_table {
    char delimiter;
    uint32_t column_count;
    table_column *columns;
    bool has_header;
    bool labels_optional; // every label is 0; its cell may hold anything, or be left out
    uint64_t header_hash, header_length; // of the line read last
    uint16_t *order;      // of a file's cells: which column each is, or NO_COLUMN; with a header
    uint32_t order_count; // 0: cells are the columns as configured
    cell *cells;          // by column, of the line that is parsed
    locale_t locale;      // "C", whatever the process runs under
    char *unquoted;       // RT_LINE_MAX and padding: quoted cells without their quotes
    size_t unquoted_used; // of this line
    rt_schema schema;
};

typedef enum { CELL_OK, CELL_UNCLOSED, CELL_AFTER_QUOTE } cell_state;

// [sign] digits [. digits] [e [sign] digits]: what strtod takes, less spaces, infinities, NaNs and
// hexadecimal digits.
static bool is_plain_number(cell number)
{
    for (size_t i = 0; i < number.length; i++) {
        char c = number.text[i];
        if (!(c >= '0' && c <= '9') && c != '.' && c != '-' && c != '+' && c != 'e' && c != 'E')
            return false;
    }
    return number.length > 0;
}

// Digits and at most one point. The digits as an integer and the power of ten are both exact
// doubles, so their quotient is correctly rounded (Clinger, PLDI 1990, section 4).
static bool parse_short_number(cell number, double *value_p)
{
    static const double powers[] = {1e0, 1e1, 1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                    1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15};
    const char *at = number.text, *end = at + number.length;
    bool is_negative = at < end && *at == '-';
    at += is_negative;
    if (end - at > EXACT_DIGITS_MAX + 1)
        return false;
    int64_t digits = 0;
    uint32_t digit_count = 0, fraction = 0;
    bool has_point = false;
    for (; at < end; at++) {
        uint32_t digit = (uint32_t)*at - '0';
        if (*at == '.' && !has_point) {
            has_point = true;
        } else if (digit <= 9) {
            digits = digits * 10 + (int64_t)digit;
            digit_count++;
            fraction += has_point;
        } else {
            return false;
        }
    }
    if (digit_count == 0 || digit_count > EXACT_DIGITS_MAX)
        return false;
    double value = (double)digits / powers[fraction];
    *value_p = is_negative ? -value : value;
    return true;
}

static bool parse_number(const rt_table *table, cell number, double *value_p)
{
    if (parse_short_number(number, value_p))
        return true;
    if (!is_plain_number(number))
        return false;
    char *end;
    *value_p = strtod_l(number.text, &end, table->locale);
    return end == number.text + number.length && isfinite(*value_p);
}

// Decimal, or hexadecimal after 0x.
static bool parse_id_number(cell number, uint64_t *id_p)
{
    const char *at = number.text, *end = at + number.length;
    uint32_t base = 10;
    if (number.length > 2 && at[0] == '0' && (at[1] | 0x20) == 'x') {
        base = 16;
        at += 2;
    }
    uint64_t id = 0;
    for (; at < end; at++) {
        uint32_t digit = (uint32_t)*at - '0';
        if (digit > 9)
            digit = ((uint32_t)*at | 0x20) - 'a' <= 5 ? ((uint32_t)*at | 0x20) - 'a' + 10 : base;
        if (digit >= base)
            return false;
        id = id * base + digit; // below 2^56 before, so it cannot wrap
        if (id >= RT_ID_MISSING)
            return false;
    }
    *id_p = id;
    return true;
}

static bool parse_id(const table_column *column, cell value, uint64_t *id_p)
{
    if (column->column.id == RT_ID_NUMBER)
        return parse_id_number(value, id_p);
    uint64_t id = rt_hash_bytes(value.text, value.length) & RT_ID_MASK;
    *id_p = id - (id == RT_ID_MISSING); // a value that is there is never the missing one
    return true;
}

static bool parse_label(const rt_table *table, const table_column *column, cell value,
                        rt_line_sample *sample)
{
    float *label_p = &sample->label;
    const char *wanted = column->column.label_value;
    double number;
    if (table->labels_optional) {
        *label_p = 0;
        return true;
    }
    if (value.length == 0)
        return false;
    if (!column->is_label_number) {
        *label_p = value.length == strlen(wanted) && memcmp(value.text, wanted, value.length) == 0;
        return true;
    }
    if (!parse_number(table, value, &number))
        return false;
    *label_p = column->column.label_rule == RT_LABEL_AT_LEAST ? number >= column->label_number
                                                              : number == column->label_number;
    sample->is_label_odd = column->is_label_one && number != 0 && number != 1;
    return true;
}

static bool parse_dense(const rt_table *table, const table_column *column, cell value,
                        float *dense_p)
{
    double number = 0;
    if (value.length > 0 && !parse_number(table, value, &number))
        return false;
    if (column->column.transform == RT_TRANSFORM_LOG1P)
        number = log1p(number > 0 ? number : 0);
    *dense_p = (float)number;
    return isfinite(*dense_p);
}

// Appends the keys of one cell: one for a missing value, else all that are distinct.
static bool parse_multi(const table_column *column, cell value, rt_line_sample *sample)
{
    const char *at = value.text, *end = at + value.length;
    uint64_t *keys = sample->keys + sample->key_count;
    uint32_t count = 0;
    while (at < end && count < column->column.values_max) {
        const char *stop = memchr(at, column->column.separator, (size_t)(end - at));
        stop = stop ? stop : end;
        uint64_t id, key;
        if (stop > at) {
            if (!parse_id(column, (cell){at, (size_t)(stop - at)}, &id))
                return false;
            key = rt_key(column->field, id);
            uint32_t i = 0;
            while (i < count && keys[i] != key)
                i++;
            keys[count] = key;
            count += i == count;
        }
        at = stop + 1;
    }
    if (count == 0)
        keys[count++] = rt_key(column->field, RT_ID_MISSING);
    sample->key_count += count;
    return true;
}

static bool parse_categorical(const table_column *column, cell value, rt_line_sample *sample)
{
    uint64_t id = RT_ID_MISSING;
    if (value.length > 0 && !parse_id(column, value, &id))
        return false;
    sample->keys[sample->key_count++] = rt_key(column->field, id);
    return true;
}

// *at_p stands on the opening quote and is moved behind the closing one.
static cell_state take_quoted(rt_table *table, const char **at_p, const char *end, cell *out)
{
    const char *at = *at_p + 1;
    char *unquoted = table->unquoted + table->unquoted_used;
    size_t length = 0;
    *out = (cell){at, 0};
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
            *out = (cell){unquoted, length};
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
static cell_state take_cell(rt_table *table, const char **at_p, const char *end, cell *out)
{
    const char *at = *at_p;
    if (table->delimiter == ',' && at < end && *at == '"')
        return take_quoted(table, at_p, end, out);
    const char *stop = memchr(at, table->delimiter, (size_t)(end - at));
    stop = stop ? stop : end;
    *out = (cell){at, (size_t)(stop - at)};
    *at_p = stop;
    return CELL_OK;
}

static uint32_t count_cells(rt_table *table, const rt_line *line)
{
    const char *at = line->text, *end = at + line->length;
    uint32_t count = 0;
    cell ignored;
    table->unquoted_used = 0;
    do {
        count++;
    } while (take_cell(table, &at, end, &ignored) == CELL_OK && at++ < end);
    return count;
}

static const char *expected_text(const table_column *column)
{
    switch (column->column.kind) {
    case RT_COLUMN_LABEL:
        return column->is_label_number ? "a number" : "a value";
    case RT_COLUMN_DENSE:
        return "a finite number or nothing";
    default:
        return "an id below 72057594037927935, decimal or 0x...";
    }
}

static uint32_t cells_expected(const rt_table *table)
{
    return table->order_count ? table->order_count : table->column_count;
}

// A line without the cell of the label, where that may be.
static bool lacks_label(rt_table *table, const rt_line *line)
{
    return table->labels_optional && table->order_count == 0 &&
           count_cells(table, line) == table->column_count - 1;
}

// number: of the cell in the line, from 0.
static __attribute__((noinline)) bool reject(rt_table *table, const rt_line *line, uint32_t number,
                                             const table_column *column, cell value,
                                             rt_line_problem *problem)
{
    char shown_cell[64];
    size_t shown = value.length < sizeof shown_cell ? value.length : sizeof shown_cell;
    memcpy(shown_cell, value.text, shown); // counting reuses the storage of unquoted cells
    uint32_t count = count_cells(table, line);
    const bool has_all = count == cells_expected(table) || lacks_label(table, line);
    if (!has_all)
        return rt_line_reject(problem, "expected %u cells, found %u", cells_expected(table), count);
    return rt_line_reject_cell(problem, number, column->column.name, expected_text(column),
                               shown_cell, shown);
}

static bool reject_quote(cell_state state, uint32_t number, const char *name,
                         rt_line_problem *problem)
{
    problem->goes_on = state == CELL_UNCLOSED;
    return rt_line_reject(problem, "column %u (%s): expected %s", number + 1, name,
                          state == CELL_UNCLOSED
                              ? "a closing quote (a quoted cell may hold a few line feeds)"
                              : "the closing quote at the end of the cell");
}

static bool parse_cell(rt_table *table, const table_column *column, cell value,
                       rt_line_sample *sample, uint32_t *dense_count)
{
    switch (column->column.kind) {
    case RT_COLUMN_LABEL:
        return parse_label(table, column, value, sample);
    case RT_COLUMN_DENSE:
        return parse_dense(table, column, value, &sample->dense[(*dense_count)++]);
    case RT_COLUMN_CATEGORICAL:
        return parse_categorical(column, value, sample);
    case RT_COLUMN_MULTI:
        return parse_multi(column, value, sample);
    case RT_COLUMN_IGNORE:
        break;
    }
    return true;
}

// A line whose cells stand as the columns are configured.
static bool parse_in_order(rt_table *table, const rt_line *line, rt_line_sample *sample,
                           rt_line_problem *problem)
{
    const char *at = line->text, *end = at + line->length;
    const bool passes_label = lacks_label(table, line);
    const uint32_t last =
        table->columns[table->column_count - 1].column.kind == RT_COLUMN_LABEL && passes_label
            ? table->column_count - 2
            : table->column_count - 1;
    uint32_t dense_count = 0;
    sample->label = 0;
    for (uint32_t i = 0; i <= last; i++) {
        const table_column *column = &table->columns[i];
        cell value;
        if (RT_UNLIKELY(passes_label && column->column.kind == RT_COLUMN_LABEL))
            continue;
        table->unquoted_used = 0;
        cell_state state = take_cell(table, &at, end, &value);
        if (RT_UNLIKELY(state != CELL_OK))
            return reject_quote(state, i, column->column.name, problem);
        if (RT_UNLIKELY(!parse_cell(table, column, value, sample, &dense_count)))
            return reject(table, line, i, column, value, problem);
        if (RT_UNLIKELY((at == end) != (i == last)))
            return reject(table, line, i, column, value, problem);
        at++;
    }
    return true;
}

// The number of a column's cell in the lines of this file.
static uint32_t number_of(const rt_table *table, uint32_t column)
{
    uint32_t i = 0;
    while (i < table->order_count && table->order[i] != column)
        i++;
    return i;
}

// A line whose cells stand as a header says: they are found first, then parsed in the order of the
// columns, which is that of the fields.
static bool parse_by_header(rt_table *table, const rt_line *line, rt_line_sample *sample,
                            rt_line_problem *problem)
{
    const char *at = line->text, *end = at + line->length;
    uint32_t dense_count = 0;
    table->unquoted_used = 0;
    for (uint32_t i = 0; i < table->order_count; i++, at++) {
        const uint16_t number = table->order[i];
        const table_column *column = &table->columns[number == NO_COLUMN ? 0 : number];
        cell value;
        cell_state state = take_cell(table, &at, end, &value);
        if (RT_UNLIKELY(state != CELL_OK))
            return reject_quote(state, i, number == NO_COLUMN ? "not used" : column->column.name,
                                problem);
        if (RT_UNLIKELY((at == end) != (i + 1 == table->order_count)))
            return reject(table, line, i, column, value, problem);
        if (number != NO_COLUMN)
            table->cells[number] = value;
    }
    for (uint32_t i = 0; i < table->column_count; i++) {
        const table_column *column = &table->columns[i];
        if (column->column.kind != RT_COLUMN_IGNORE &&
            RT_UNLIKELY(!parse_cell(table, column, table->cells[i], sample, &dense_count)))
            return reject(table, line, number_of(table, i), column, table->cells[i], problem);
    }
    return true;
}

bool rt_table_parse(rt_table *table, const rt_line *line, rt_line_sample *sample,
                    rt_line_problem *problem)
{
    sample->key_count = 0;
    sample->is_label_odd = false;
    problem->goes_on = false;
    if (memchr(line->text, '\0', line->length))
        return rt_line_reject(problem, "expected text, found a zero byte");
    return table->order_count ? parse_by_header(table, line, sample, problem)
                              : parse_in_order(table, line, sample, problem);
}

// ---- headers ---------------------------------------------------------------------------------

// The column of this name that is used; column_count: there is none.
static uint32_t find_column(const rt_table *table, cell name)
{
    uint32_t i = 0;
    for (; i < table->column_count; i++) {
        const rt_column *column = &table->columns[i].column;
        if (column->kind != RT_COLUMN_IGNORE && strlen(column->name) == name.length &&
            memcmp(column->name, name.text, name.length) == 0)
            break;
    }
    return i;
}

static rt_status fail_header(const char *name, const rt_line *line, const char *what,
                             const char *column, rt_error *error)
{
    return rt_fail(error, RT_DATA, "%s:%llu: the header %s%s", name,
                   (unsigned long long)line->number, what, column);
}

static rt_status read_order(rt_table *table, const char *name, const rt_line *line, rt_error *error)
{
    static const char mark[] = "\xef\xbb\xbf"; // that some programs begin a file with
    const char *at = line->text, *end = at + line->length;
    at += line->length >= 3 && memcmp(at, mark, 3) == 0 ? 3 : 0;
    table->unquoted_used = 0;
    for (;; at++) {
        cell value;
        if (table->order_count == HEADER_CELLS_MAX)
            return fail_header(name, line, "has too many columns", "", error);
        if (take_cell(table, &at, end, &value) != CELL_OK)
            return fail_header(name, line, "has a quote that is not closed", "", error);
        const uint32_t column = find_column(table, value);
        for (uint32_t i = 0; i < table->order_count && column < table->column_count; i++) {
            if (table->order[i] == column)
                return fail_header(name, line,
                                   "has this column twice: ", table->columns[column].column.name,
                                   error);
        }
        table->order[table->order_count++] =
            column < table->column_count ? (uint16_t)column : NO_COLUMN;
        if (at == end)
            return RT_OK;
    }
}

static rt_status read_header(rt_table *table, const char *name, const rt_line *line,
                             rt_error *error)
{
    table->order_count = 0;
    table->header_hash = rt_hash_bytes(line->text, line->length);
    table->header_length = line->length;
    rt_status status = line->is_too_long ? fail_header(name, line, "is too long", "", error)
                                         : read_order(table, name, line, error);
    for (uint32_t i = 0; i < table->column_count && !status; i++) {
        const rt_column *column = &table->columns[i].column;
        const bool is_needed = column->kind == RT_COLUMN_LABEL ? !table->labels_optional
                                                               : column->kind != RT_COLUMN_IGNORE;
        if (is_needed && number_of(table, i) == table->order_count)
            status = fail_header(
                name, line, "lacks this column of stream.table.columns: ", column->name, error);
    }
    return status;
}

static rt_status check_column(const rt_table *table, uint32_t index, rt_error *error)
{
    const rt_column *column = &table->columns[index].column;
    bool is_multi = column->kind == RT_COLUMN_MULTI;
    if (column->kind == RT_COLUMN_LABEL && column->label_rule == RT_LABEL_AT_LEAST &&
        !table->columns[index].is_label_number)
        return rt_fail(error, RT_CONFIG,
                       "stream.table.columns[%u] (%s): rule \"at_least\" expects a number as value,"
                       " found \"%s\"",
                       index, column->name, column->label_value);
    if (is_multi && (column->separator == '\0' || column->separator == table->delimiter ||
                     column->separator == '"' || column->separator == '\n'))
        return rt_fail(error, RT_CONFIG,
                       "stream.table.columns[%u] (%s): separator expects one character other than"
                       " the delimiter, the quote and the line end",
                       index, column->name);
    if (is_multi && (column->values_max == 0 || column->values_max > KEYS_PER_SAMPLE_MAX))
        return rt_fail(error, RT_CONFIG,
                       "stream.table.columns[%u] (%s): values_max expects 1 to %u, found %u", index,
                       column->name, KEYS_PER_SAMPLE_MAX, column->values_max);
    return RT_OK;
}

// Gives the columns their places in a sample.
static rt_status place_columns(rt_table *table, rt_error *error)
{
    rt_schema *schema = &table->schema;
    uint32_t label_count = 0;
    for (uint32_t i = 0; i < table->column_count; i++) {
        table_column *column = &table->columns[i];
        const rt_column *asked = &column->column;
        cell wanted = {asked->label_value, strlen(asked->label_value)};
        column->is_label_number = parse_number(table, wanted, &column->label_number);
        column->is_label_one = column->is_label_number && column->label_number == 1 &&
                               asked->label_rule == RT_LABEL_EQUALS;
        rt_status status = check_column(table, i, error);
        if (status)
            return status;
        label_count += asked->kind == RT_COLUMN_LABEL;
        schema->dense_count += asked->kind == RT_COLUMN_DENSE;
        if (asked->kind != RT_COLUMN_CATEGORICAL && asked->kind != RT_COLUMN_MULTI)
            continue;
        if (schema->field_count == RT_FIELDS_MAX)
            return rt_fail(error, RT_CONFIG,
                           "stream.table.columns: at most %u may be categorical or multi",
                           RT_FIELDS_MAX);
        column->field = schema->field_count++;
        schema->keys_per_sample_max += asked->kind == RT_COLUMN_MULTI ? asked->values_max : 1;
        snprintf(schema->field_names[column->field], RT_NAME_MAX, "%s", asked->name);
    }
    if (label_count != 1)
        return rt_fail(error, RT_CONFIG, "stream.table.columns: expected one label, found %u",
                       label_count);
    if (schema->field_count == 0)
        return rt_fail(error, RT_CONFIG,
                       "stream.table.columns: expected a categorical or multi column, found none");
    if (schema->keys_per_sample_max > KEYS_PER_SAMPLE_MAX)
        return rt_fail(error, RT_CONFIG,
                       "stream.table.columns: a sample may have %u keys, values_max add up to %u",
                       KEYS_PER_SAMPLE_MAX, schema->keys_per_sample_max);
    return RT_OK;
}

rt_status rt_table_create(const rt_table_config *config, rt_table **table_p, rt_error *error)
{
    rt_table *table = rt_alloc(1, sizeof *table);
    if (!table)
        return rt_fail(error, RT_NO_MEMORY, "out of memory for a table");
    table->delimiter = config->delimiter;
    table->column_count = config->column_count;
    table->columns = rt_alloc(config->column_count, sizeof *table->columns);
    table->has_header = config->has_header;
    table->order = rt_alloc(HEADER_CELLS_MAX, sizeof *table->order);
    table->cells = rt_alloc(config->column_count, sizeof *table->cells);
    table->unquoted = rt_alloc(RT_LINE_MAX + RT_LINE_PAD, 1);
    table->locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    rt_status status = RT_OK;
    if (!table->columns || !table->order || !table->cells || !table->unquoted || !table->locale) {
        status = rt_fail(error, RT_NO_MEMORY, "out of memory for a table");
    } else {
        for (uint32_t i = 0; i < config->column_count; i++)
            table->columns[i].column = config->columns[i];
        status = place_columns(table, error);
    }
    if (status) {
        rt_table_destroy(table);
        return status;
    }
    *table_p = table;
    return RT_OK;
}

void rt_table_destroy(rt_table *table)
{
    if (!table)
        return;
    if (table->locale)
        freelocale(table->locale);
    rt_free(table->unquoted);
    rt_free(table->cells);
    rt_free(table->order);
    rt_free(table->columns);
    rt_free(table);
}

void rt_table_schema(const rt_table *table, rt_schema *schema)
{
    *schema = table->schema;
}

// ---- the table of operations -------------------------------------------------------------------

static rt_status create(const rt_stream_config *config, void **parser_p, rt_error *error)
{
    rt_table *table;
    rt_status status = rt_table_create(&config->table, &table, error);
    if (status)
        return status;
    table->labels_optional = config->labels_optional;
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
    return table->has_header ? read_header(table, name, line, error) : RT_OK;
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
    rt_bytes_put_u64(bytes, table->order_count);
    rt_bytes_put(bytes, table->order, table->order_count * sizeof *table->order);
}

// Every used column stands in an order once.
static bool is_order(const rt_table *table)
{
    for (uint32_t i = 0; i < table->order_count; i++) {
        if (table->order[i] != NO_COLUMN && table->order[i] >= table->column_count)
            return false;
    }
    for (uint32_t i = 0; i < table->column_count; i++) {
        if (table->columns[i].column.kind != RT_COLUMN_IGNORE &&
            number_of(table, i) == table->order_count)
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
    table->order_count = 0;
    if (bytes->failed || count > HEADER_CELLS_MAX || bytes->left != count * sizeof *table->order)
        return false;
    rt_reader_get(bytes, table->order, count, sizeof *table->order);
    table->order_count = (uint32_t)count;
    if (count > 0 && !(table->has_header && is_order(table))) {
        table->order_count = 0;
        return false;
    }
    return true;
}

const rt_parser_ops rt_parser_table = {.format = RT_FORMAT_TABLE,
                                       .create = create,
                                       .destroy = destroy,
                                       .schema = schema,
                                       .parse = parse,
                                       .header = header,
                                       .is_header = is_header,
                                       .tell = tell,
                                       .seek = seek};
