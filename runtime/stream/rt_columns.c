#include "runtime/stream/rt_columns.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/rt_date.h"
#include "runtime/numbers/rt_decimal.h"
#include "runtime/rt_hash.h"
#include "runtime/rt_locale.h"

#define WEIGHT_MAX 1e6
#define TIME_MS_MAX 4e14 // 14,000 years

// ---- numbers ---------------------------------------------------------------------------------

// [sign] digits [. digits] [e [sign] digits]: what strtod takes, less spaces, infinities, NaNs and
// hexadecimal digits.
static bool is_plain_number(rt_cell number)
{
    for (size_t i = 0; i < number.length; i++) {
        char c = number.text[i];
        if (!(c >= '0' && c <= '9') && c != '.' && c != '-' && c != '+' && c != 'e' && c != 'E')
            return false;
    }
    return number.length > 0;
}

// Without blanks around it, and the sign of a currency or of percent that people write with it.
static rt_cell bare_number(rt_cell cell)
{
    static const char *const signs[] = {" ", "$", "%", "€", "£", "¥", "\xc2\xa0"};
    for (size_t i = 0; i < RT_COUNT_OF(signs); i++) {
        const size_t size = strlen(signs[i]);
        const bool is_before = cell.length > size && memcmp(cell.text, signs[i], size) == 0;
        const bool is_behind =
            cell.length > size && memcmp(cell.text + cell.length - size, signs[i], size) == 0;
        if (!is_before && !is_behind)
            continue;
        cell.text += is_before ? size : 0;
        cell.length -= size;
        i = SIZE_MAX; // from the first one again
    }
    return cell;
}

bool rt_columns_number(rt_cell number, double *value_p)
{
    if (rt_decimal_short(number.text, number.length, value_p))
        return true;
    number = bare_number(number);
    if (rt_decimal_short(number.text, number.length, value_p))
        return true;
    if (!is_plain_number(number))
        return false;
    const char *end;
    *value_p = rt_locale_number(number.text, &end);
    return end == number.text + number.length && isfinite(*value_p);
}

#define NUMBER_BYTES_MAX 64u

// By number_format: what is before the decimals, and between thousands.
static const struct {
    char decimal, group;
} number_marks[] = {
    [RT_NUMBER_PLAIN] = {'.', 0},           [RT_NUMBER_COMMA] = {',', 0},
    [RT_NUMBER_COMMA_GROUPS] = {'.', ','},  [RT_NUMBER_POINT_GROUPS] = {',', '.'},
    [RT_NUMBER_QUOTE_GROUPS] = {'.', '\''}, [RT_NUMBER_SPACE_GROUPS] = {',', ' '},
};

// A group has three digits, and nothing groups behind the decimals.
static bool is_group(rt_cell number, size_t at)
{
    size_t digits = 0;
    while (at + 1 + digits < number.length && number.text[at + 1 + digits] >= '0' &&
           number.text[at + 1 + digits] <= '9')
        digits++;
    return digits == 3 && at > 0 && number.text[at - 1] >= '0' && number.text[at - 1] <= '9';
}

// The number as programs write it. False: it is written otherwise.
static bool make_plain(rt_number_format format, rt_cell number, char plain[NUMBER_BYTES_MAX + 1],
                       size_t *count_p)
{
    const char decimal = number_marks[format].decimal, group = number_marks[format].group;
    bool is_behind = false;
    size_t count = 0;
    for (size_t i = 0; i < number.length; i++) {
        const char c = number.text[i];
        if (c == group && (is_behind || !is_group(number, i)))
            return false;
        if (c == group)
            continue;
        if (count == NUMBER_BYTES_MAX || (c == '.' && decimal != '.'))
            return false;
        is_behind = is_behind || c == decimal;
        plain[count++] = c == decimal ? '.' : c;
    }
    plain[count] = '\0';
    *count_p = count;
    return true;
}

// Numbers of JSON have a point, whatever a file of the same columns writes.
bool rt_columns_number_as(rt_number_format format, rt_cell number, double *value_p)
{
    char plain[NUMBER_BYTES_MAX + 1];
    size_t count;
    if (format == RT_NUMBER_PLAIN || !make_plain(format, bare_number(number), plain, &count))
        return rt_columns_number(number, value_p);
    return rt_columns_number((rt_cell){plain, count}, value_p);
}

static bool parse_number(const rt_columns_one *one, rt_cell number, double *value_p)
{
    return rt_columns_number_as(one->column.number_format, number, value_p);
}

// Decimal, or hexadecimal after 0x.
static bool parse_id_number(rt_cell number, uint64_t *id_p)
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

// ---- transforms ------------------------------------------------------------------------------

static bool parse_time(const rt_columns_one *one, rt_cell value, int64_t *ms_p)
{
    const char *format = one->column.time_format;
    const double unit = rt_date_unit_ms(format);
    double number;
    if (unit == 0)
        return rt_date_parse(format, value.text, value.length, ms_p);
    if (!parse_number(one, value, &number))
        return false;
    *ms_p = 0;
    number = floor(number * unit);
    if (!(fabs(number) <= TIME_MS_MAX))
        return false;
    *ms_p = (int64_t)number;
    return true;
}

// Hour, weekday or bucket.
static bool transform(const rt_columns_one *one, rt_cell value, uint32_t *result_p)
{
    int64_t ms;
    double number;
    if (one->is_dated) {
        if (!parse_time(one, value, &ms))
            return false;
        *result_p =
            one->column.transform == RT_TRANSFORM_HOUR ? rt_date_hour(ms) : rt_date_weekday(ms);
        return true;
    }
    if (!parse_number(one, value, &number))
        return false;
    uint32_t bucket = 0;
    while (bucket < one->column.edge_count && one->column.edges[bucket] <= number)
        bucket++;
    *result_p = bucket;
    return true;
}

static bool is_null(const rt_columns_one *one, rt_cell value)
{
    for (uint32_t i = 0; i < one->column.null_count; i++)
        if (strlen(one->column.nulls[i]) == value.length &&
            memcmp(one->column.nulls[i], value.text, value.length) == 0)
            return true;
    return value.length == 0;
}

static rt_cell filled(const rt_columns_one *one, rt_cell value)
{
    return is_null(one, value) ? one->missing : value;
}

// ---- columns ---------------------------------------------------------------------------------

static uint64_t id_of_hash(uint64_t hash)
{
    const uint64_t id = hash & RT_ID_MASK;
    return id - (id == RT_ID_MISSING); // a value that is there is never the missing one
}

static bool parse_plain_id(const rt_columns_one *one, rt_cell value, uint64_t *id_p)
{
    if (one->id_is_number)
        return parse_id_number(value, id_p);
    *id_p = id_of_hash(rt_hash_bytes(value.text, value.length));
    return true;
}

static uint64_t cross(const rt_columns *columns, const rt_columns_one *one)
{
    uint64_t ids[RT_COLUMN_FROM_MAX];
    for (uint32_t k = 0; k < one->column.from_count; k++)
        ids[k] = columns->ids[one->from[k]];
    return id_of_hash(rt_hash_bytes(ids, one->column.from_count * sizeof *ids));
}

// Of a categorical column, or of one that is ignored but made part of a cross.
static bool parse_id(const rt_columns *columns, const rt_columns_one *one, rt_cell value,
                     uint64_t *id_p)
{
    uint32_t result;
    *id_p = RT_ID_MISSING;
    if (one->is_plain)
        return value.length == 0 || parse_plain_id(one, value, id_p);
    if (one->column.from_count > 1) {
        *id_p = cross(columns, one);
        return true;
    }
    value = filled(one, value);
    if (value.length == 0)
        return true;
    if (one->column.transform == RT_TRANSFORM_NONE)
        return parse_plain_id(one, value, id_p);
    const bool is_good = transform(one, value, &result);
    *id_p = RT_ID_MISSING;
    if (is_good)
        *id_p = result;
    return is_good;
}

static bool parse_categorical(rt_columns *columns, uint32_t index, rt_cell value,
                              rt_line_sample *sample)
{
    const rt_columns_one *one = &columns->items[index];
    uint64_t id;
    if (!parse_id(columns, one, value, &id))
        return false;
    if (one->is_wanted)
        columns->ids[index] = id;
    if (one->is_noted)
        rt_value_names_note(columns->names, rt_key(one->field, id), value.text, value.length);
    sample->keys[sample->key_count++] = rt_key(one->field, id);
    return true;
}

static bool parse_ignored(rt_columns *columns, uint32_t index, rt_cell value)
{
    const rt_columns_one *one = &columns->items[index];
    return !one->is_wanted || parse_id(columns, one, value, &columns->ids[index]);
}

// Below RT_CLASSES_MAX, which floats hold.
static bool parse_class(const rt_columns_one *one, rt_cell value, float *label_p)
{
    double number;
    if (!parse_number(one, value, &number))
        return false;
    *label_p = (float)number;
    return number >= 0 && number < one->column.classes && number == floor(number);
}

static bool parse_label(const rt_columns *columns, const rt_columns_one *one, rt_cell value,
                        rt_line_sample *sample)
{
    float *label_p = &sample->labels[one->field];
    const char *wanted = one->column.label_value;
    double number;
    value = filled(one, value);
    if (value.length == 0) {
        *label_p = NAN;
        return columns->schema.label_count > 1;
    }
    if (one->column.classes)
        return parse_class(one, value, label_p);
    if (!one->is_label_number) {
        *label_p = value.length == strlen(wanted) && memcmp(value.text, wanted, value.length) == 0;
        return true;
    }
    if (!parse_number(one, value, &number))
        return false;
    *label_p = one->column.label_rule == RT_LABEL_AT_LEAST ? number >= one->label_number
                                                           : number == one->label_number;
    if (RT_UNLIKELY(one->is_label_one && number != 0 && number != 1)) {
        sample->odd_labels |= rt_bit(one->field);
        sample->odd_value = number;
    }
    return true;
}

static bool parse_dense(const rt_columns_one *one, rt_cell value, double *dense_p)
{
    double number = 0;
    uint32_t result = 0;
    value = filled(one, value);
    if (one->column.transform >= RT_TRANSFORM_HOUR) {
        if (value.length > 0 && !transform(one, value, &result))
            return false;
        number = result;
    } else if (value.length > 0 && !parse_number(one, value, &number)) {
        return false;
    }
    if (one->column.transform == RT_TRANSFORM_LOG1P)
        number = log1p(number > 0 ? number : 0);
    *dense_p = number;
    return isfinite((float)number);
}

// Appends the keys of one cell: one for a missing value, else all that are distinct.
static bool parse_multi(const rt_columns_one *one, rt_cell value, rt_line_sample *sample)
{
    value = filled(one, value);
    const char *at = value.text, *end = at + value.length;
    uint64_t *keys = sample->keys + sample->key_count;
    uint32_t count = 0;
    while (at < end && count < one->column.values_max) {
        const char *stop = memchr(at, one->column.separator, (size_t)(end - at));
        stop = stop ? stop : end;
        uint64_t id, key;
        if (stop > at) {
            if (!parse_plain_id(one, (rt_cell){at, (size_t)(stop - at)}, &id))
                return false;
            key = rt_key(one->field, id);
            uint32_t i = 0;
            while (i < count && keys[i] != key)
                i++;
            keys[count] = key;
            count += i == count;
        }
        at = stop + 1;
    }
    if (count == 0)
        keys[count++] = rt_key(one->field, RT_ID_MISSING);
    sample->key_count += count;
    return true;
}

static bool parse_weight(const rt_columns_one *one, rt_cell value, rt_line_sample *sample)
{
    double number = 1;
    value = filled(one, value);
    if (value.length > 0 && !parse_number(one, value, &number))
        return false;
    sample->weight = (float)number;
    return number >= 0 && number <= WEIGHT_MAX;
}

// What most columns of most files are: an id, as it stands.
static inline bool parse_plain(const rt_columns_one *one, rt_cell value, rt_line_sample *sample)
{
    uint64_t id = RT_ID_MISSING;
    if (RT_LIKELY(value.length > 0) && RT_UNLIKELY(!parse_plain_id(one, value, &id)))
        return false;
    sample->keys[sample->key_count++] = rt_key(one->field, id);
    return true;
}

bool rt_columns_take(rt_columns *columns, uint32_t index, rt_cell value, rt_line_sample *sample,
                     uint32_t *dense_count)
{
    const rt_columns_one *one = &columns->items[index];
    switch (one->kind) {
    case RT_COLUMN_PLAIN:
        return parse_plain(one, value, sample);
    case RT_COLUMN_LABEL:
        return parse_label(columns, one, value, sample);
    case RT_COLUMN_DENSE:
        return parse_dense(one, value, &sample->dense[(*dense_count)++]);
    case RT_COLUMN_CATEGORICAL:
        return parse_categorical(columns, index, value, sample);
    case RT_COLUMN_MULTI:
        return parse_multi(one, value, sample);
    case RT_COLUMN_WEIGHT:
        return parse_weight(one, value, sample);
    case RT_COLUMN_ID:
        sample->id = rt_hash_bytes(value.text, value.length);
        return value.length > 0;
    case RT_COLUMN_TIME:
        return parse_time(one, filled(one, value), &sample->time_ms);
    case RT_COLUMN_IGNORE:
        return parse_ignored(columns, index, value);
    }
    return true;
}

bool rt_columns_take_all(rt_columns *columns, const rt_cell *cells, rt_line_sample *sample,
                         uint32_t *bad_p)
{
    uint32_t dense_count = 0;
    for (uint32_t i = 0; i < columns->count; i++) {
        const rt_columns_one *one = &columns->items[i];
        if (one->kind == RT_COLUMN_PLAIN && RT_LIKELY(parse_plain(one, cells[i], sample)))
            continue;
        const uint32_t from = one->column.from_count == 0 ? i : one->from[0];
        if (one->kind == RT_COLUMN_IGNORE && !one->is_wanted)
            continue;
        if (RT_UNLIKELY(!rt_columns_take(columns, i, cells[from], sample, &dense_count))) {
            *bad_p = i;
            return false;
        }
    }
    return true;
}

// Whether another number_format would take it; or it says that nothing is there.
static const char *expected_number(const rt_columns_one *one, rt_cell cell)
{
    static const char *const nulls[] = {"NULL", "null", "None", "NA", "N/A", "\\N", "-", "?"};
    double number;
    for (size_t i = 0; i < RT_COUNT_OF(nulls); i++)
        if (strlen(nulls[i]) == cell.length && memcmp(nulls[i], cell.text, cell.length) == 0)
            return "a finite number or nothing (`nulls` names texts that mean nothing)";
    const bool is_read = rt_columns_number_as(one->column.number_format, cell, &number);
    for (int format = RT_NUMBER_PLAIN; !is_read && format <= RT_NUMBER_SPACE_GROUPS; format++)
        if (rt_columns_number_as((rt_number_format)format, cell, &number))
            return "a finite number or nothing (number_format says how numbers are written)";
    return "a finite number or nothing";
}

const char *rt_columns_expected(const rt_columns *columns, uint32_t index, rt_cell cell)
{
    const rt_columns_one *one = &columns->items[index];
    if (one->is_dated || one->column.kind == RT_COLUMN_TIME)
        return "a time as time_format says";
    switch (one->column.kind) {
    case RT_COLUMN_LABEL:
        if (one->column.classes)
            return "a class: a whole number from 0 below `classes`";
        if (columns->schema.label_count > 1)
            return "a number or nothing"; // others take any text
        if (one->is_label_one && cell.length > 0)
            return "a number, or with `value` the text that is label 1";
        return one->is_label_number ? "a number" : "a value";
    case RT_COLUMN_DENSE:
        return expected_number(one, cell);
    case RT_COLUMN_WEIGHT:
        return "a number from 0 to 1e6, or nothing";
    case RT_COLUMN_ID:
        return "an id";
    default:
        if (one->column.transform == RT_TRANSFORM_BUCKET)
            return "a number or nothing";
        return "an id below 72057594037927935, decimal or 0x...";
    }
}

rt_cell_use rt_columns_use(const rt_columns *columns, uint32_t index)
{
    const rt_columns_one *one = &columns->items[index];
    if (one->column.from_count > 0)
        return RT_CELL_NONE;
    if (one->is_feature)
        return RT_CELL_NEEDED;
    return one->is_of_labels ? RT_CELL_LABEL : RT_CELL_BESIDE;
}

void rt_columns_name(const rt_columns *columns, uint32_t index, char name[RT_NAME_MAX])
{
    const rt_column *column = &columns->items[index].column;
    uint32_t number = 1;
    for (uint32_t i = 0; i < index; i++)
        number += rt_columns_use(columns, i) != RT_CELL_NONE;
    if (column->name[0] || column->path[0])
        snprintf(name, RT_NAME_MAX, "%s", column->name[0] ? column->name : column->path);
    else
        snprintf(name, RT_NAME_MAX, "%u", number);
}

bool rt_columns_reads(const rt_columns *columns, uint32_t index)
{
    const rt_columns_one *one = &columns->items[index];
    const rt_cell_use use = rt_columns_use(columns, index);
    if (columns->are_questions)
        return use == RT_CELL_NEEDED;
    return use != RT_CELL_NONE && (one->column.kind != RT_COLUMN_IGNORE || one->is_source);
}

// ---- creation --------------------------------------------------------------------------------

static rt_status check_column(const rt_columns *columns, const char *list, uint32_t index,
                              rt_error *error)
{
    const rt_column *column = &columns->items[index].column;
    if (column->kind == RT_COLUMN_LABEL && column->label_rule == RT_LABEL_AT_LEAST &&
        !columns->items[index].is_label_number)
        return rt_fail(error, RT_CONFIG,
                       "%s[%u] (%s): rule \"at_least\" expects a number as value, found \"%s\"",
                       list, index, column->name, column->label_value);
    if (column->kind == RT_COLUMN_MULTI &&
        (column->values_max == 0 || column->values_max > RT_KEYS_PER_SAMPLE_MAX))
        return rt_fail(error, RT_CONFIG, "%s[%u] (%s): values_max expects 1 to %u, found %u", list,
                       index, column->name, RT_KEYS_PER_SAMPLE_MAX, column->values_max);
    return RT_OK;
}

static rt_status find_sources(rt_columns *columns, const char *list, uint32_t index,
                              rt_error *error)
{
    rt_columns_one *one = &columns->items[index];
    for (uint32_t k = 0; k < one->column.from_count; k++) {
        uint32_t i = 0;
        while (i < index && strcmp(columns->items[i].column.name, one->column.from[k]) != 0)
            i++;
        if (i == index)
            return rt_fail(error, RT_CONFIG, "%s[%u] (%s): no column before it is named \"%s\"",
                           list, index, one->column.name, one->column.from[k]);
        one->from[k] = i;
        columns->items[i].is_source = true;
        columns->items[i].is_wanted |= one->column.from_count > 1;
    }
    columns->derived_count += one->column.from_count > 0;
    return RT_OK;
}

static rt_status prepare(rt_columns *columns, const char *list, uint32_t index, rt_error *error)
{
    rt_columns_one *one = &columns->items[index];
    const rt_column *asked = &one->column;
    const rt_cell wanted = {asked->label_value, strlen(asked->label_value)};
    one->is_label_number = rt_columns_number(wanted, &one->label_number);
    // As where nothing is said; "1.0" is 1 and said on purpose.
    one->is_label_one =
        strcmp(asked->label_value, "1") == 0 && asked->label_rule == RT_LABEL_EQUALS;
    one->is_dated =
        asked->transform == RT_TRANSFORM_HOUR || asked->transform == RT_TRANSFORM_WEEKDAY;
    one->missing = (rt_cell){one->column.missing, strlen(one->column.missing)};
    one->is_plain = asked->transform == RT_TRANSFORM_NONE && asked->from_count == 0 &&
                    one->missing.length == 0 && asked->null_count == 0;
    one->kind = asked->kind;
    one->id_is_number = asked->id == RT_ID_NUMBER;
    rt_status status = check_column(columns, list, index, error);
    if (status)
        return status;
    return find_sources(columns, list, index, error);
}

static rt_status place_field(rt_columns *columns, const char *list, uint32_t index, rt_error *error)
{
    rt_columns_one *one = &columns->items[index];
    rt_schema *schema = &columns->schema;
    const bool is_multi = one->column.kind == RT_COLUMN_MULTI;
    if (schema->field_count == RT_FIELDS_MAX)
        return rt_fail(error, RT_CONFIG, "%s: at most %u may be categorical or multi", list,
                       RT_FIELDS_MAX);
    one->field = schema->field_count++;
    if (is_multi)
        schema->keys_per_sample_max += one->column.values_max;
    else
        schema->keys_per_sample_max++;
    snprintf(schema->field_names[one->field], RT_NAME_MAX, "%s", one->column.name);
    return RT_OK;
}

static rt_status place_label(rt_columns *columns, const char *list, uint32_t index, rt_error *error)
{
    rt_columns_one *one = &columns->items[index];
    rt_schema *schema = &columns->schema;
    if (schema->label_count == RT_LABELS_MAX)
        return rt_fail(error, RT_CONFIG, "%s: at most %d may be labels", list, RT_LABELS_MAX);
    one->field = schema->label_count++;
    snprintf(schema->label_names[one->field], RT_NAME_MAX, "%s", one->column.name);
    return RT_OK;
}

// What a column is made of stands before it.
static void find_uses(rt_columns *columns)
{
    for (uint32_t i = columns->count; i-- > 0;) {
        rt_columns_one *one = &columns->items[i];
        const rt_column_kind kind = one->column.kind;
        const bool is_value =
            kind == RT_COLUMN_DENSE || kind == RT_COLUMN_CATEGORICAL || kind == RT_COLUMN_MULTI;
        one->is_feature |= is_value;
        one->is_of_labels |= kind == RT_COLUMN_LABEL;
        for (uint32_t k = 0; k < one->column.from_count; k++) {
            columns->items[one->from[k]].is_feature |= one->is_feature;
            columns->items[one->from[k]].is_of_labels |= one->is_of_labels;
        }
        if (columns->are_questions && !is_value)
            one->kind = RT_COLUMN_IGNORE; // a cell at most, of which others are made
    }
}

// Gives the columns their places in a sample.
static rt_status place_columns(rt_columns *columns, rt_columns_purpose purpose, const char *list,
                               rt_error *error)
{
    rt_schema *schema = &columns->schema;
    for (uint32_t i = 0; i < columns->count; i++) {
        const rt_column_kind kind = columns->items[i].column.kind;
        rt_status status = prepare(columns, list, i, error);
        if (!status && (kind == RT_COLUMN_CATEGORICAL || kind == RT_COLUMN_MULTI))
            status = place_field(columns, list, i, error);
        if (!status && kind == RT_COLUMN_LABEL)
            status = place_label(columns, list, i, error);
        if (status)
            return status;
        schema->dense_count += kind == RT_COLUMN_DENSE;
        schema->has_weights |= kind == RT_COLUMN_WEIGHT;
        schema->has_ids |= kind == RT_COLUMN_ID;
        schema->has_times |= kind == RT_COLUMN_TIME;
    }
    find_uses(columns);
    for (uint32_t i = 0; i < columns->count; i++) {
        rt_columns_one *one = &columns->items[i];
        if (one->kind == RT_COLUMN_CATEGORICAL && one->is_plain && !one->is_wanted)
            one->kind = RT_COLUMN_PLAIN;
    }
    if (purpose == RT_COLUMNS_OUTCOMES)
        return RT_OK;
    if (purpose != RT_COLUMNS_QUESTIONS &&
        (schema->label_count > 0) != (purpose == RT_COLUMNS_SAMPLES))
        return rt_fail(error, RT_CONFIG, "%s: expected %s label, found %u", list,
                       purpose == RT_COLUMNS_SAMPLES ? "a" : "no", schema->label_count);
    if (schema->field_count == 0)
        return rt_fail(error, RT_CONFIG, "%s: expected a categorical or multi column, found none",
                       list);
    if (schema->keys_per_sample_max > RT_KEYS_PER_SAMPLE_MAX)
        return rt_fail(error, RT_CONFIG, "%s: a sample may have %u keys, values_max add up to %u",
                       list, RT_KEYS_PER_SAMPLE_MAX, schema->keys_per_sample_max);
    return RT_OK;
}

rt_status rt_columns_create(const rt_table_config *config, rt_columns_purpose purpose,
                            const char *list, rt_columns **columns_p, rt_error *error)
{
    rt_columns *columns = rt_alloc(1, sizeof *columns);
    if (!columns)
        return rt_fail(error, RT_NO_MEMORY, "out of memory for columns");
    columns->count = config->column_count;
    columns->items = rt_alloc(config->column_count, sizeof *columns->items);
    columns->ids = rt_alloc(config->column_count, sizeof *columns->ids);
    columns->are_questions = purpose == RT_COLUMNS_QUESTIONS;
    rt_status status = RT_OK;
    if (!columns->items || !columns->ids) {
        status = rt_fail(error, RT_NO_MEMORY, "out of memory for columns");
    } else {
        for (uint32_t i = 0; i < config->column_count; i++)
            columns->items[i].column = config->columns[i];
        status = place_columns(columns, purpose, list, error);
    }
    if (status) {
        rt_columns_destroy(columns);
        return status;
    }
    *columns_p = columns;
    return RT_OK;
}

void rt_columns_note(rt_columns *columns, rt_value_names *names)
{
    columns->names = names;
    for (uint32_t i = 0; i < columns->count && names; i++) {
        rt_columns_one *one = &columns->items[i];
        if (one->column.kind != RT_COLUMN_CATEGORICAL || one->column.from_count > 1 ||
            !rt_value_names_are_of(names, one->column.name))
            continue;
        one->kind = RT_COLUMN_CATEGORICAL; // not the short way of plain ones
        one->is_noted = true;
    }
}

rt_columns_purpose rt_columns_purpose_of(const rt_stream_config *config)
{
    if (config->holds_outcomes)
        return RT_COLUMNS_OUTCOMES;
    if (config->labels_optional)
        return RT_COLUMNS_QUESTIONS;
    if (rt_config_has_join(config))
        return RT_COLUMNS_EVENTS;
    return RT_COLUMNS_SAMPLES;
}

void rt_columns_destroy(rt_columns *columns)
{
    if (!columns)
        return;
    rt_free(columns->ids);
    rt_free(columns->items);
    rt_free(columns);
}
