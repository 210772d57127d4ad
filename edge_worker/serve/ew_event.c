#include "edge_worker/serve/ew_event.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/config/rt_formats.h"
#include "runtime/rt_date.h"

#define TIME_BYTES 80u

typedef struct {
    const rt_column *column;
    const rt_column *time; // the same, or a time that is made of it; NULL: it is none
    uint32_t cell;         // EW_CELL_NONE: it has none that anybody gives
} part;

typedef struct {
    const char *text;
    size_t length;
} value;

struct ew_event {
    const ew_cells *cells;
    bool is_json, has_quotes;
    char delimiter;
    uint32_t count;
    part *parts; // of the cells of a line; columns are those of cells
    char now[TIME_BYTES];
};

// ---- what can be told ------------------------------------------------------------------------

// Whether a step of a path is the place of an element ("items.0.id").
static bool has_number(const char *path)
{
    bool begins = true;
    for (const char *at = path; *at; at++) {
        if (begins && *at >= '0' && *at <= '9')
            return true;
        begins = *at == '.';
    }
    return false;
}

static rt_status check(const rt_stream_config *stream, rt_error *error)
{
    const rt_table_config *table = &stream->table;
    uint32_t ids = 0, labels = 0;
    if (!rt_format_has(stream->format, RT_HAS_COLUMNS))
        return rt_fail(error, RT_CONFIG,
                       "serve.log: needs events with an id, which stream.format \"%s\" has not; "
                       "expected \"table\" or \"json\"",
                       rt_config_choice_name("stream.format", (int)stream->format));
    for (uint32_t i = 0; i < table->column_count; i++) {
        const rt_column *one = &table->columns[i];
        ids += one->kind == RT_COLUMN_ID;
        labels += one->kind == RT_COLUMN_LABEL;
        if (stream->format == RT_FORMAT_JSON && has_number(one->path))
            return rt_fail(error, RT_CONFIG,
                           "serve.log: column \"%s\" is at \"%s\", by a number: such objects are "
                           "read, not written",
                           one->name, one->path);
    }
    if (ids != 1 || labels > 0)
        return rt_fail(error, RT_CONFIG,
                       "serve.log: logged questions wait for their outcomes (stream.join): "
                       "stream.table.columns has %u columns of kind \"id\" and %u of kind "
                       "\"label\", expected one and none",
                       ids, labels);
    if (rt_format_has(stream->format, RT_HAS_DELIMITER) && table->has_header)
        return rt_fail(error, RT_CONFIG,
                       "serve.log: stream.table.header: events that are sent have none; expected "
                       "false, and the columns in their order");
    return RT_OK;
}

// A column that is made of others has no cell: it is made when the line is read.
static void find_parts(ew_event *event, const rt_columns *columns)
{
    char name[RT_NAME_MAX];
    for (uint32_t i = 0; i < columns->count; i++) {
        const rt_column *column = &columns->items[i].column, *time = NULL;
        if (rt_columns_use(columns, i) == RT_CELL_NONE)
            continue;
        for (uint32_t t = i; t < columns->count && !time; t++) {
            const rt_columns_one *one = &columns->items[t];
            const bool is_made = one->column.from_count == 1 && one->from[0] == i;
            if (one->column.kind == RT_COLUMN_TIME && (t == i || is_made))
                time = &one->column;
        }
        rt_columns_name(columns, i, name);
        event->parts[event->count++] =
            (part){column, time, ew_cells_find(event->cells, name, strlen(name))};
    }
}

rt_status ew_event_create(const rt_config *config, const ew_cells *cells, ew_event **event_p,
                          rt_error *error)
{
    const rt_table_config *table = &config->stream.table;
    rt_status status = check(&config->stream, error);
    if (status)
        return status;
    ew_event *event = rt_alloc(1, sizeof *event);
    if (!event)
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    event->cells = cells;
    event->is_json = config->stream.format == RT_FORMAT_JSON;
    event->delimiter = table->delimiter;
    // As whoever reads the lines takes quotes: what they mean is the parser's to say.
    event->has_quotes = table->quotes == RT_QUOTES_RFC4180 ||
                        (table->quotes == RT_QUOTES_AUTO && table->delimiter != '\t');
    event->parts = rt_alloc(table->column_count, sizeof *event->parts);
    if (!event->parts) {
        ew_event_destroy(event);
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    }
    find_parts(event, ew_cells_columns(cells));
    *event_p = event;
    return RT_OK;
}

void ew_event_destroy(ew_event *event)
{
    if (!event)
        return;
    rt_free(event->parts);
    rt_free(event);
}

// ---- values ----------------------------------------------------------------------------------

static size_t format_time(const rt_column *column, double now_s, char text[TIME_BYTES])
{
    const int64_t ms = (int64_t)floor(now_s * 1000);
    const double unit = rt_date_unit_ms(column->time_format);
    if (unit == 0)
        return rt_date_format(column->time_format, ms, text, TIME_BYTES);
    if (unit == 1000)
        return (size_t)snprintf(text, TIME_BYTES, "%" PRId64 ".%03d", ms / 1000, (int)(ms % 1000));
    return (size_t)snprintf(text, TIME_BYTES, "%.0f", (double)ms / unit);
}

void ew_event_date(ew_event *event, double now_s, ew_cells *cells)
{
    const char *text;
    size_t length;
    for (uint32_t i = 0; i < event->count; i++) {
        const part *p = &event->parts[i];
        if (p->time && p->cell != EW_CELL_NONE && !ew_cells_get(cells, p->cell, &text, &length))
            ew_cells_put(cells, p->cell, event->now, format_time(p->time, now_s, event->now));
    }
}

// What the question says goes before what is known here: a replayed question keeps its time.
static value value_of(const ew_event *event, const part *p, const char *id, double now_s,
                      char time_text[TIME_BYTES])
{
    value v = {"", 0};
    if (p->column->kind == RT_COLUMN_ID)
        return (value){id, strlen(id)};
    if (p->cell != EW_CELL_NONE && ew_cells_get(event->cells, p->cell, &v.text, &v.length))
        return v;
    if (p->time)
        return (value){time_text, format_time(p->time, now_s, time_text)};
    return (value){"", 0};
}

// Whether a value has a byte that no line can hold. Tabs, and what divides lists, are looked at
// where lines are written.
static bool has_control(const value *v)
{
    for (size_t i = 0; i < v->length; i++)
        if ((uint8_t)v->text[i] < ' ' && v->text[i] != EW_CELLS_SEPARATOR && v->text[i] != '\t')
            return true;
    return false;
}

static rt_status refuse(const part *p, const value *v, rt_error *error)
{
    return rt_fail(error, RT_DATA,
                   "%s: \"%.*s\" cannot be written in a line of the log "
                   "(serve.log)",
                   p->column->name, (int)rt_min_u64(v->length, 64), v->text);
}

// ---- lines of a table ------------------------------------------------------------------------

static bool needs_quotes(const ew_event *event, const value *v)
{
    return v->length > 0 && (memchr(v->text, event->delimiter, v->length) ||
                             (event->has_quotes && memchr(v->text, '"', v->length)));
}

static rt_status put_table(const ew_event *event, const char *id, double now_s, rt_bytes *lines,
                           rt_error *error)
{
    char time_text[TIME_BYTES];
    for (uint32_t i = 0; i < event->count; i++) {
        const part *p = &event->parts[i];
        const value v = value_of(event, p, id, now_s, time_text);
        const bool quotes = needs_quotes(event, &v);
        if (has_control(&v) || (quotes && !event->has_quotes))
            return refuse(p, &v, error);
        if (i > 0)
            rt_bytes_put(lines, &event->delimiter, 1);
        if (quotes)
            ew_cells_quote(v.text, v.length, lines);
        else
            rt_bytes_put(lines, v.text, v.length);
    }
    return RT_OK;
}

// ---- lines of JSON ---------------------------------------------------------------------------

// The object that a path ends in, and the member's name there.
static cJSON *object_at(cJSON *root, const char *path, char name[RT_NAME_MAX])
{
    cJSON *object = root;
    for (const char *dot; object && (dot = strchr(path, '.')); path = dot + 1) {
        snprintf(name, RT_NAME_MAX, "%.*s", (int)(dot - path), path);
        cJSON *next = cJSON_GetObjectItemCaseSensitive(object, name);
        if (!next)
            next = cJSON_AddObjectToObject(object, name);
        object = next;
    }
    snprintf(name, RT_NAME_MAX, "%s", path);
    return object;
}

static cJSON *string_of(const char *text, size_t length)
{
    char *copy = rt_alloc(length + 1, 1);
    if (!copy)
        return NULL;
    memcpy(copy, text, length);
    cJSON *item = cJSON_CreateString(copy);
    rt_free(copy);
    return item;
}

static cJSON *array_of(const value *v)
{
    cJSON *array = cJSON_CreateArray();
    const char *at = v->text, *end = v->text + v->length;
    while (array && at < end) {
        const char *stop = memchr(at, EW_CELLS_SEPARATOR, (size_t)(end - at));
        if (!stop)
            stop = end;
        if (!cJSON_AddItemToArray(array, string_of(at, (size_t)(stop - at)))) {
            cJSON_Delete(array);
            return NULL;
        }
        at = stop + 1;
    }
    return array;
}

static rt_status put_member(cJSON *root, const part *p, const value *v, rt_error *error)
{
    char name[RT_NAME_MAX];
    const rt_column *column = p->column;
    const char *path = *column->path ? column->path : column->name;
    cJSON *object = object_at(root, path, name), *item;
    if (column->kind == RT_COLUMN_MULTI)
        item = array_of(v);
    else
        item = string_of(v->text, v->length);
    if (!object || !item || !cJSON_AddItemToObject(object, name, item)) {
        cJSON_Delete(item);
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    }
    return RT_OK;
}

static rt_status put_members(const ew_event *event, const char *id, double now_s, cJSON *root,
                             rt_error *error)
{
    char time_text[TIME_BYTES];
    for (uint32_t i = 0; i < event->count; i++) {
        const part *p = &event->parts[i];
        const value v = value_of(event, p, id, now_s, time_text);
        if (v.length == 0)
            continue;
        if (has_control(&v))
            return refuse(p, &v, error);
        const rt_status status = put_member(root, p, &v, error);
        if (status)
            return status;
    }
    return RT_OK;
}

static rt_status print(const cJSON *root, rt_bytes *lines, rt_error *error)
{
    char *text = cJSON_PrintUnformatted(root);
    if (!text)
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    rt_bytes_put(lines, text, strlen(text));
    cJSON_free(text);
    return RT_OK;
}

static rt_status put_json(const ew_event *event, const char *id, double now_s, rt_bytes *lines,
                          rt_error *error)
{
    cJSON *root = cJSON_CreateObject();
    if (!root)
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    rt_status status = put_members(event, id, now_s, root, error);
    if (!status)
        status = print(root, lines, error);
    cJSON_Delete(root);
    return status;
}

rt_status ew_event_put(ew_event *event, const char *id, double now_s, rt_bytes *lines,
                       rt_error *error)
{
    const size_t size = lines->size;
    rt_status status;
    if (event->is_json)
        status = put_json(event, id, now_s, lines, error);
    else
        status = put_table(event, id, now_s, lines, error);
    rt_bytes_put(lines, "\n", 1);
    if (!status && lines->failed)
        status = rt_fail(error, RT_NO_MEMORY, "out of memory");
    if (!status && lines->size - size > RT_LINE_MAX)
        status = rt_fail(error, RT_DATA, "an event has at most %u bytes", RT_LINE_MAX);
    if (status)
        lines->size = size;
    return status;
}
