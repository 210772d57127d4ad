// A guess as a configuration.
#include <stdio.h>
#include <string.h>

#include "runtime/config/rt_formats.h"
#include "runtime/guess/rt_guess_parts.h"

#define UNLABELLED_MAX 0.001 // of all rows: a tenth of what a run bears of malformed ones

static const char *const kind_names[] = {[RT_COLUMN_IGNORE] = "ignore",
                                         [RT_COLUMN_LABEL] = "label",
                                         [RT_COLUMN_DENSE] = "dense",
                                         [RT_COLUMN_CATEGORICAL] = "categorical",
                                         [RT_COLUMN_MULTI] = "multi"};
static const char *const number_formats[] = {"1234.5",  "1234,5",  "1,234.5",
                                             "1.234,5", "1'234.5", "1 234,5"};

// What stands beside name and kind.
static void write_notation(const rt_column *column, rt_json *json)
{
    if (column->number_format != RT_NUMBER_PLAIN)
        rt_json_string(json, "number_format", number_formats[column->number_format]);
    if (column->null_count == 1)
        rt_json_string(json, "nulls", column->nulls[0]);
    if (column->null_count > 1) {
        rt_json_begin_array(json, "nulls");
        for (uint32_t i = 0; i < column->null_count; i++)
            rt_json_string(json, NULL, column->nulls[i]);
        rt_json_end_array(json);
    }
}

static void write_made(const rt_guess_column *from, const char *transform, rt_json *json)
{
    char name[RT_NAME_MAX];
    // A name as long as names may be leaves no room for the second word.
    snprintf(name, sizeof name, "%.*s %s", (int)(sizeof name - 2 - strlen(transform)), from->name,
             transform);
    rt_json_begin_object(json, NULL);
    rt_json_string(json, "name", name);
    rt_json_string(json, "kind", "categorical");
    rt_json_string(json, "from", from->name);
    rt_json_string(json, "transform", transform);
    rt_json_string(json, "time_format", from->column.time_format);
    if (from->column.null_count > 0)
        write_notation(&from->column, json);
    rt_json_end_object(json);
}

static void write_column(const rt_guess_column *one, const char *separator, bool needs_place,
                         rt_json *json)
{
    const rt_column *column = &one->column;
    const bool is_time = one->has_hours || one->has_days;
    if (column->kind != RT_COLUMN_IGNORE || needs_place) {
        rt_json_begin_object(json, NULL);
        if (!one->is_left_out)
            rt_json_string(json, "name", one->name);
        rt_json_string(json, "kind", kind_names[column->kind]);
        if (column->kind == RT_COLUMN_LABEL && column->label_rule == RT_LABEL_AT_LEAST)
            rt_json_string(json, "rule", "at_least");
        if (column->kind == RT_COLUMN_LABEL && strcmp(column->label_value, "1") != 0)
            rt_json_string(json, "value", column->label_value);
        if (column->kind == RT_COLUMN_LABEL && column->classes > 0)
            rt_json_u64(json, "classes", column->classes);
        if (column->kind == RT_COLUMN_LABEL && column->missing[0])
            rt_json_string(json, "missing", column->missing);
        if (column->kind == RT_COLUMN_DENSE && column->transform == RT_TRANSFORM_LOG1P)
            rt_json_string(json, "transform", "log1p");
        if (column->kind == RT_COLUMN_MULTI && separator)
            rt_json_string(json, "separator", separator);
        if (column->kind == RT_COLUMN_MULTI)
            rt_json_u64(json, "values_max", column->values_max);
        if (column->kind != RT_COLUMN_IGNORE)
            write_notation(column, json);
        rt_json_end_object(json);
    }
    if (!is_time || one->is_left_out)
        return;
    if (one->has_hours)
        write_made(one, "hour", json);
    if (one->has_days)
        write_made(one, "weekday", json);
}

static void write_columns(const rt_guess *guess, rt_json *json)
{
    const bool needs_place = guess->format == RT_FORMAT_TABLE && !guess->has_header;
    rt_json_begin_array(json, "columns");
    for (uint32_t i = 0; i < guess->column_count; i++) {
        const rt_guess_column *one = &guess->columns[i];
        const char separator[] = {one->column.separator, '\0'};
        if (!one->is_left_out || needs_place)
            write_column(one, guess->format == RT_FORMAT_TABLE ? separator : NULL, needs_place,
                         json);
    }
    rt_json_end_array(json);
}

static void write_stream(const rt_guess *guess, const char *path, const char *key, rt_json *json)
{
    static const struct {
        rt_format format;
        const char *name;
    } formats[] = {{RT_FORMAT_TABLE, "table"},
                   {RT_FORMAT_JSON, "json"},
                   {RT_FORMAT_CRITEO, "criteo"},
                   {RT_FORMAT_LIBSVM, "libsvm"}};
    const char delimiter[] = {guess->delimiter, '\0'};
    rt_json_begin_object(json, key);
    for (size_t i = 0; i < RT_COUNT_OF(formats); i++)
        if (formats[i].format == guess->format)
            rt_json_string(json, "format", formats[i].name);
    rt_json_string(json, "files", path);
    // A row without its label is a malformed line: so many of them are none to end a run for.
    if (guess->unlabelled > UNLABELLED_MAX)
        rt_json_u64(json, "malformed_share_max", 1);
    if (guess->column_count > 0) {
        rt_json_begin_object(json, "table");
        if (guess->format == RT_FORMAT_TABLE) {
            rt_json_string(json, "delimiter", delimiter);
            rt_json_bool(json, "header", guess->has_header);
            if (guess->quotes != RT_QUOTES_AUTO)
                rt_json_string(json, "quotes",
                               guess->quotes == RT_QUOTES_NONE ? "none" : "rfc4180");
        }
        write_columns(guess, json);
        rt_json_end_object(json);
    }
    rt_json_end_object(json);
}

void rt_guess_write(const rt_guess *guess, const char *path, rt_json *json)
{
    rt_json_begin_object(json, NULL);
    rt_json_u64(json, "version", 1);
    write_stream(guess, path, "stream", json);
    rt_json_end_object(json);
}

rt_status rt_guess_configure(const rt_guess *guess, const char *path, rt_config *config,
                             rt_error *error)
{
    rt_json json;
    size_t length;
    rt_status status = RT_NO_MEMORY;
    rt_json_init(&json, 0);
    write_stream(guess, path, NULL, &json);
    const char *text = rt_json_text(&json, &length);
    char *assignment = text ? rt_alloc(length + sizeof "stream=", 1) : NULL;
    if (assignment) {
        strcat(strcpy(assignment, "stream="), text);
        status = rt_config_set(config, assignment, error);
    } else {
        rt_fail(error, status, "%s: out of memory", path);
    }
    rt_free(assignment);
    rt_json_fini(&json);
    return status;
}
