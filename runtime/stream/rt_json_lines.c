// rt_json_lines - JSON lines: an object per line, whose members become the cells of rt_columns.
//
// A string is its bytes, a number its shortest digits where it is an integer below 2^53, else
// "%.17g"; true and false are those words, null and what is not there are empty cells. An array is
// the cell of a multi column only, one value after the other; it may hold no array or object.
#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/rt_hash.h"
#include "runtime/rt_json_read.h"
#include "runtime/stream/rt_columns.h"
#include "runtime/stream/rt_json_cell.h"
#include "runtime/stream/rt_parser.h"

#define SEPARATOR '\x1f' // between the values of an array; no text of a value may hold it
#define BEYOND "%s: an integer beyond 2^53 is not exact in JSON, write it as text"
#define SCRATCH_BYTES (8u * RT_LINE_MAX)

typedef struct {
    rt_columns *columns;
    rt_cell *cells; // by column
    char *scratch;  // SCRATCH_BYTES: texts of numbers and arrays of this line
    size_t scratch_used;
    char id[RT_NAME_MAX]; // path of what names an event
    cJSON *named;         // the line that was named last, until it is parsed; NULL: none
} parser;

static void destroy(void *self)
{
    parser *p = self;
    if (!p)
        return;
    cJSON_Delete(p->named);
    rt_columns_destroy(p->columns);
    rt_free(p->cells);
    rt_free(p->scratch);
    rt_free(p);
}

// Arrays and the cells of other formats are told apart by the separator.
static rt_status create_columns(parser *p, const rt_stream_config *config, rt_error *error)
{
    rt_table_config table = config->table;
    const rt_columns_purpose purpose = rt_columns_purpose_of(config);
    if (rt_config_copy_columns(config->table.columns, table.column_count, &table.columns))
        return rt_fail(error, RT_NO_MEMORY, "out of memory for columns");
    for (uint32_t i = 0; i < table.column_count; i++)
        table.columns[i].separator = SEPARATOR;
    const bool are_outcomes = purpose == RT_COLUMNS_OUTCOMES;
    const char *list = are_outcomes ? "stream.join.columns" : "stream.table.columns";
    rt_status status = rt_columns_create(&table, purpose, list, &p->columns, error);
    if (!status)
        rt_columns_note(p->columns, config->names);
    rt_free(table.columns);
    return status;
}

static rt_status create(const rt_stream_config *config, void **parser_p, rt_error *error)
{
    parser *p = rt_alloc(1, sizeof *p);
    if (!p)
        return rt_fail(error, RT_NO_MEMORY, "out of memory for a stream");
    rt_status status = create_columns(p, config, error);
    p->cells = rt_alloc(config->table.column_count, sizeof *p->cells);
    p->scratch = rt_alloc(SCRATCH_BYTES, 1);
    if (!status && (!p->cells || !p->scratch))
        status = rt_fail(error, RT_NO_MEMORY, "out of memory for a stream");
    if (status) {
        destroy(p);
        return status;
    }
    *parser_p = p;
    return RT_OK;
}

static void schema(const void *self, rt_schema *schema)
{
    *schema = ((const parser *)self)->columns->schema;
}

// The value at a path; NULL: it is not there.
static const cJSON *find(const cJSON *object, const char *path)
{
    char name[RT_NAME_MAX];
    while (object && *path) {
        const size_t length = strcspn(path, ".");
        memcpy(name, path, length);
        name[length] = '\0';
        path += length + (path[length] == '.');
        if (!cJSON_IsArray(object))
            object = cJSON_GetObjectItemCaseSensitive(object, name);
        else if (*name && strspn(name, "0123456789") == length && length < 9)
            object = cJSON_GetArrayItem(object, atoi(name));
        else
            object = NULL;
    }
    return object;
}

static const char *const_of(const cJSON *value)
{
    if (cJSON_IsBool(value))
        return rt_json_cell_word(cJSON_IsTrue(value));
    return "";
}

static bool is_scalar(const cJSON *value)
{
    return !cJSON_IsArray(value) && !cJSON_IsObject(value);
}

// False: there is no room, which takes one array as the cell of many columns.
static bool has_room(const parser *p, size_t bytes)
{
    return SCRATCH_BYTES - p->scratch_used > bytes + RT_JSON_CELL_BYTES;
}

// The cell of a value that is no array. Numbers are written behind one another into the scratch.
static bool scalar_cell(parser *p, const cJSON *value, rt_cell *cell)
{
    const char *text = cJSON_IsString(value) ? value->valuestring : const_of(value);
    if (cJSON_IsNumber(value)) {
        char *number = p->scratch + p->scratch_used;
        if (!has_room(p, 0) || !rt_json_cell_number(value->valuedouble, number))
            return false;
        text = number;
        p->scratch_used += strlen(number) + 1;
    }
    *cell = (rt_cell){text, strlen(text)};
    return true;
}

static bool array_cell(parser *p, const cJSON *array, const char *path, rt_cell *cell,
                       rt_line_problem *problem)
{
    char *text = p->scratch + p->scratch_used;
    size_t length = 0;
    for (const cJSON *one = array->child; one; one = one->next) {
        rt_cell value;
        p->scratch_used = (size_t)(text - p->scratch) + length;
        const char *found = cJSON_IsArray(one) ? "an array" : "an object";
        if (!is_scalar(one))
            return rt_line_reject(problem,
                                  "%s: expected an array of strings and numbers, found %s in it",
                                  path, found);
        if (!scalar_cell(p, one, &value) || !has_room(p, value.length))
            return rt_line_reject(problem, BEYOND, path);
        if (memchr(value.text, SEPARATOR, value.length))
            return rt_line_reject(problem, "%s: a value in the array has the character \\x1f",
                                  path);
        memmove(text + length, value.text, value.length);
        length += value.length;
        text[length++] = SEPARATOR;
    }
    text[length] = '\0';
    p->scratch_used = (size_t)(text - p->scratch) + length + 1;
    *cell = (rt_cell){text, length};
    return true;
}

static const char *path_of(const rt_columns_one *one)
{
    if (one->column.path[0])
        return one->column.path;
    return one->column.name;
}

static bool find_cell(parser *p, const cJSON *root, uint32_t index, rt_line_problem *problem)
{
    const rt_columns_one *one = &p->columns->items[index];
    const char *path = path_of(one);
    const cJSON *value = find(root, path);
    rt_cell *cell = &p->cells[index];
    *cell = (rt_cell){"", 0};
    if (!value)
        return true;
    if (cJSON_IsArray(value) && one->column.kind == RT_COLUMN_MULTI)
        return array_cell(p, value, path, cell, problem);
    if (cJSON_IsArray(value))
        return rt_line_reject(problem,
                              "%s: expected one value, found an array (only kind multi takes "
                              "several)",
                              path);
    if (!is_scalar(value))
        return rt_line_reject(problem, "%s: expected one value, found an object", path);
    return scalar_cell(p, value, cell) || rt_line_reject(problem, BEYOND, path);
}

static bool take_object(parser *p, const cJSON *root, rt_line_sample *sample,
                        rt_line_problem *problem)
{
    uint32_t bad;
    p->scratch_used = 0;
    for (uint32_t i = 0; i < p->columns->count; i++) {
        if (rt_columns_reads(p->columns, i) && !find_cell(p, root, i, problem))
            return false;
    }
    rt_columns_begin(p->columns, sample);
    if (rt_columns_take_all(p->columns, p->cells, sample, &bad))
        return true;
    const rt_columns_one *one = &p->columns->items[bad];
    const rt_cell *cell = &p->cells[bad];
    if (one->column.from_count)
        cell = &p->cells[one->from[0]];
    return rt_line_reject_cell(problem, bad, path_of(one),
                               rt_columns_expected(p->columns, bad, *cell), cell->text,
                               cell->length);
}

// The object of a line; NULL: it is none, problem says why.
static cJSON *read_object(const rt_line *line, rt_line_problem *problem)
{
    size_t byte;
    cJSON *root = rt_json_parse(line->text, line->length, &byte);
    if (cJSON_IsObject(root))
        return root;
    if (root)
        rt_line_reject(problem, "expected a JSON object");
    else
        rt_line_reject(problem, "expected a JSON object, found an error at byte %zu", byte + 1);
    cJSON_Delete(root);
    return NULL;
}

static bool parse(void *self, const rt_line *line, rt_line_sample *sample, rt_line_problem *problem)
{
    parser *p = self;
    cJSON *root = p->named ? p->named : read_object(line, problem);
    p->named = NULL;
    const bool is_good = root && take_object(p, root, sample, problem);
    cJSON_Delete(root);
    return is_good;
}

static rt_status name_by(void *self, const char *id, rt_error *error)
{
    (void)error;
    snprintf(((parser *)self)->id, RT_NAME_MAX, "%s", id);
    return RT_OK;
}

static uint64_t name(void *self, const rt_line *line)
{
    parser *p = self;
    rt_line_problem problem;
    rt_cell cell = {"", 0};
    cJSON_Delete(p->named);
    p->named = read_object(line, &problem);
    const cJSON *value = find(p->named, p->id);
    p->scratch_used = 0;
    if (!value || !is_scalar(value) || !scalar_cell(p, value, &cell) || cell.length == 0)
        return 0;
    return rt_hash_bytes(cell.text, cell.length);
}

const rt_parser_ops rt_parser_json = {
    .create = create,
    .destroy = destroy,
    .schema = schema,
    .parse = parse,
    .name_by = name_by,
    .name = name,
};
