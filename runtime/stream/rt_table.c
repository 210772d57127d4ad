#define _GNU_SOURCE // strtod_l
#include "runtime/stream/rt_table.h"

#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/rt_hash.h"

#define KEYS_PER_SAMPLE_MAX (1u << 16)
#define EXACT_DIGITS_MAX 15 // any integer of so many digits is a double

typedef struct {
    rt_column column;
    double label_number;
    bool is_label_number; // label_value is a number
    uint32_t field;       // categorical, multi
} table_column;

struct rt_table {
    char delimiter;
    uint32_t column_count;
    table_column *columns;
    locale_t locale; // "C", whatever the process runs under
    char *unquoted;  // RT_LINE_MAX and padding: a quoted cell without its quotes
    rt_schema schema;
};

// Followed by a byte that belongs to no number.
typedef struct {
    const char *text;
    size_t length;
} cell;

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
                        float *label_p)
{
    const char *wanted = column->column.label_value;
    double number;
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
    size_t length = 0;
    *out = (cell){at, 0};
    for (;;) {
        const char *quote = memchr(at, '"', (size_t)(end - at));
        if (!quote)
            return CELL_UNCLOSED;
        bool is_doubled = quote + 1 < end && quote[1] == '"';
        size_t count = (size_t)(quote - at);
        if (out->text != table->unquoted && !is_doubled) {
            out->length = count; // no "" inside: the cell is good where it stands
        } else {
            memcpy(table->unquoted + length, at, count + is_doubled);
            length += count + is_doubled;
            *out = (cell){table->unquoted, length};
        }
        at = quote + 1 + is_doubled;
        if (!is_doubled)
            break;
    }
    if (out->text == table->unquoted)
        table->unquoted[length] = '\n';
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

static __attribute__((noinline)) bool reject(rt_table *table, const rt_line *line, uint32_t index,
                                             cell value, rt_line_problem *problem)
{
    char shown_cell[64];
    size_t shown = value.length < sizeof shown_cell ? value.length : sizeof shown_cell;
    memcpy(shown_cell, value.text, shown); // counting reuses the storage of unquoted cells
    uint32_t count = count_cells(table, line);
    if (count != table->column_count)
        return rt_line_reject(problem, "expected %u cells, found %u", table->column_count, count);
    const table_column *column = &table->columns[index];
    return rt_line_reject_cell(problem, index, column->column.name, expected_text(column),
                               shown_cell, shown);
}

static bool parse_cell(rt_table *table, const table_column *column, cell value,
                       rt_line_sample *sample, uint32_t *dense_count)
{
    switch (column->column.kind) {
    case RT_COLUMN_LABEL:
        return parse_label(table, column, value, &sample->label);
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

bool rt_table_parse(rt_table *table, const rt_line *line, rt_line_sample *sample,
                    rt_line_problem *problem)
{
    const char *at = line->text, *end = at + line->length;
    uint32_t dense_count = 0;
    sample->key_count = 0;
    if (memchr(at, '\0', line->length))
        return rt_line_reject(problem, "expected text, found a zero byte");
    for (uint32_t i = 0; i < table->column_count; i++) {
        const table_column *column = &table->columns[i];
        cell value;
        cell_state state = take_cell(table, &at, end, &value);
        if (RT_UNLIKELY(state != CELL_OK))
            return rt_line_reject(
                problem, "column %u (%s): expected %s", i + 1, column->column.name,
                state == CELL_UNCLOSED ? "a closing quote before the end of the line"
                                       : "the closing quote at the end of the cell");
        if (RT_UNLIKELY(!parse_cell(table, column, value, sample, &dense_count)))
            return reject(table, line, i, value, problem);
        bool is_last = i + 1 == table->column_count;
        if (RT_UNLIKELY((at == end) != is_last))
            return reject(table, line, i, value, problem);
        at++;
    }
    return true;
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
    table->unquoted = rt_alloc(RT_LINE_MAX + RT_LINE_PAD, 1);
    table->locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    rt_status status = RT_OK;
    if (!table->columns || !table->unquoted || !table->locale) {
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
    rt_free(table->columns);
    rt_free(table);
}

void rt_table_schema(const rt_table *table, rt_schema *schema)
{
    *schema = table->schema;
}
