// The lists that say what stands in a line: stream.table.columns, stream.join.columns,
// stream.libsvm.fields, stream.tables.
#include <stdio.h>
#include <string.h>

#include "runtime/config/rt_config_keys.h"

static const rt_config_choice column_kinds[] = {
    {"label", RT_COLUMN_LABEL, "1 or 0, by `rule` and `value`; or one of `classes`"},
    {"dense", RT_COLUMN_DENSE, "a number; an empty cell is 0"},
    {"categorical", RT_COLUMN_CATEGORICAL, "one id"},
    {"multi", RT_COLUMN_MULTI, "several ids in one cell"},
    {"weight", RT_COLUMN_WEIGHT, "how many times the sample counts, 0 to 1e6; an empty cell is 1"},
    {"id", RT_COLUMN_ID, "names the sample"},
    {"time", RT_COLUMN_TIME, "when it was, as `time_format` says"},
    {"ignore", RT_COLUMN_IGNORE, "no part of a sample; others may be made `from` it"},
    {0},
};
static const rt_config_choice label_rules[] = {
    {"equals", RT_LABEL_EQUALS, "1 where the cell is exactly `value`"},
    {"at_least", RT_LABEL_AT_LEAST, "1 where the cell's number is `value` or more"},
    {0},
};
static const rt_config_choice transforms[] = {
    {"none", RT_TRANSFORM_NONE, "as it is"},
    {"log1p", RT_TRANSFORM_LOG1P, "log(1 + max(x, 0))"},
    {"hour", RT_TRANSFORM_HOUR, "of the day (0 to 23, UTC) of a time"},
    {"weekday", RT_TRANSFORM_WEEKDAY, "0 (Monday) to 6 (UTC) of a time"},
    {"bucket", RT_TRANSFORM_BUCKET, "how many of `edges` are at most the number"},
    {0},
};
static const rt_config_choice id_kinds[] = {
    {"hash", RT_ID_HASH, "a hash of the cell's bytes"},
    {"number", RT_ID_NUMBER, "the cell is a number"},
    {0},
};

static const rt_config_choice number_formats[] = {
    {"1234.5", RT_NUMBER_PLAIN, "a point before the decimals"},
    {"1234,5", RT_NUMBER_COMMA, "a comma"},
    {"1,234.5", RT_NUMBER_COMMA_GROUPS, "a point, and commas between thousands"},
    {"1.234,5", RT_NUMBER_POINT_GROUPS, "a comma, and points between thousands"},
    {"1'234.5", RT_NUMBER_QUOTE_GROUPS, "a point, and apostrophes between thousands"},
    {"1 234,5", RT_NUMBER_SPACE_GROUPS, "a comma, and spaces between thousands"},
    {0},
};

#define MEMBER(path_, type_, default_, help_, member)                              \
    .path = path_, .type = type_, .fallback = default_, .unit = "", .help = help_, \
    .offset = offsetof(rt_column, member)

static rt_status read_name(void *element, const cJSON *value, const char *path, rt_error *error)
{
    static const rt_config_key name = {.type = RT_KEY_TEXT, .min = 1, .size = RT_NAME_MAX};
    return rt_config_value_read(&name, element, value, path, error);
}

static rt_status take_from(void *element, const void *elements, uint32_t count, const char *path,
                           rt_error *error)
{
    rt_column *column = element;
    (void)path, (void)error;
    memset(column->from, 0, sizeof column->from);
    memcpy(column->from, elements, count * sizeof *column->from);
    column->from_count = count;
    return RT_OK;
}

static void write_from(const void *element, rt_json *json, const char *name)
{
    const rt_column *column = element;
    rt_json_begin_array(json, name);
    for (uint32_t i = 0; i < column->from_count; i++)
        rt_json_string(json, NULL, column->from[i]);
    rt_json_end_array(json);
}

_Static_assert(RT_COLUMN_FROM_MAX == 4, "the text below says so");
static const rt_config_list column_from = {
    .expected = "a name, or a list of at most 4",
    .count_max = RT_COLUMN_FROM_MAX,
    .element_size = RT_NAME_MAX,
    .element = read_name,
    .take_member = take_from,
    .write_member = write_from,
    .takes_text = true,
};

static rt_status read_edge(void *element, const cJSON *value, const char *path, rt_error *error)
{
    static const rt_config_key edge = {.type = RT_KEY_DOUBLE, .min = -1e300, .max = 1e300};
    return rt_config_value_read(&edge, element, value, path, error);
}

static rt_status take_edges(void *element, const void *elements, uint32_t count, const char *path,
                            rt_error *error)
{
    const double *edges = elements;
    rt_column *column = element;
    for (uint32_t i = 1; i < count; i++) {
        if (!(edges[i - 1] < edges[i]))
            return rt_fail(error, RT_CONFIG, "%s[%u]: is not above the edge before it", path, i);
    }
    memset(column->edges, 0, sizeof column->edges);
    memcpy(column->edges, edges, count * sizeof *edges);
    column->edge_count = count;
    return RT_OK;
}

static void write_edges(const void *element, rt_json *json, const char *name)
{
    const rt_column *column = element;
    rt_json_begin_array(json, name);
    for (uint32_t i = 0; i < column->edge_count; i++)
        rt_json_double(json, NULL, column->edges[i]);
    rt_json_end_array(json);
}

_Static_assert(RT_COLUMN_EDGES_MAX == 32, "the text below says so");
static const rt_config_list column_edges = {
    .expected = "a list of at most 32 rising numbers",
    .count_max = RT_COLUMN_EDGES_MAX,
    .element_size = sizeof(double),
    .element = read_edge,
    .take_member = take_edges,
    .write_member = write_edges,
};

static rt_status read_null(void *element, const cJSON *value, const char *path, rt_error *error)
{
    static const rt_config_key null = {.type = RT_KEY_TEXT, .min = 1, .size = RT_COLUMN_NULL_SIZE};
    return rt_config_value_read(&null, element, value, path, error);
}

static rt_status take_nulls(void *element, const void *elements, uint32_t count, const char *path,
                            rt_error *error)
{
    rt_column *column = element;
    (void)path, (void)error;
    memset(column->nulls, 0, sizeof column->nulls);
    memcpy(column->nulls, elements, count * sizeof *column->nulls);
    column->null_count = count;
    return RT_OK;
}

static void write_nulls(const void *element, rt_json *json, const char *name)
{
    const rt_column *column = element;
    rt_json_begin_array(json, name);
    for (uint32_t i = 0; i < column->null_count; i++)
        rt_json_string(json, NULL, column->nulls[i]);
    rt_json_end_array(json);
}

_Static_assert(RT_COLUMN_NULLS_MAX == 4, "the text below says so");
static const rt_config_list column_nulls = {
    .expected = "a text, or a list of at most 4",
    .count_max = RT_COLUMN_NULLS_MAX,
    .element_size = RT_COLUMN_NULL_SIZE,
    .element = read_null,
    .take_member = take_nulls,
    .write_member = write_nulls,
    .takes_text = true,
};

static const rt_config_key column_members[] = {
    {MEMBER("name", RT_KEY_TEXT, "\"\"", "For messages and metrics; no two the same.", name),
     .size = RT_NAME_MAX},
    {MEMBER("kind", RT_KEY_CHOICE, NULL, "What the column is; must be given.", kind),
     .choices = column_kinds, .is_required = true},
    {MEMBER("rule", RT_KEY_CHOICE, "\"equals\"", "When the label is 1 (label).", label_rule),
     .choices = label_rules},
    {MEMBER("value", RT_KEY_TEXT, "\"1\"", "What the label is compared with (label).", label_value),
     .size = RT_NAME_MAX},
    {MEMBER("loss_weight", RT_KEY_DOUBLE, "1",
            "What the loss of this one of several labels is multiplied by (label).", loss_weight),
     .min = 1e-6, .max = 1e6, .is_brief = true},
    {MEMBER("classes", RT_KEY_U32, "0",
            "The label is one of so many classes, a whole number from 0, and the model predicts a "
            "probability of each; 0: it is 1 or 0 (label).",
            classes),
     .min = 0, .max = RT_CLASSES_MAX, .is_brief = true},
    {MEMBER("transform", RT_KEY_CHOICE, "\"none\"",
            "Applied to the cell (dense; all but log1p also categorical: the result is the id).",
            transform),
     .choices = transforms},
    {MEMBER("id", RT_KEY_CHOICE, "\"hash\"", "How a cell becomes an id (categorical, multi).", id),
     .choices = id_kinds},
    {MEMBER("separator", RT_KEY_CHARACTER, "\"|\"", "Between the values of a cell (multi).",
            separator),
     .characters = "|;, :/^\t"},
    {MEMBER("values_max", RT_KEY_U32, "8",
            "Further values of a cell are dropped (multi); equal ones count once.", values_max),
     .min = 1, .max = 1024},
    {MEMBER("path", RT_KEY_TEXT, "\"\"",
            "Where the value stands in an object (json): names, and numbers in arrays, from the "
            "root by dots. Empty: `name`.",
            path),
     .size = RT_NAME_MAX, .is_brief = true},
    {MEMBER(
         "from", RT_KEY_LIST, "[]",
         "Columns before this one that it is made from, by name; it has no cell of its own. One: "
         "their cell once more. Two or more: their cross, an id of all their ids together "
         "(categorical).",
         from),
     .list = &column_from, .is_brief = true},
    {MEMBER("edges", RT_KEY_LIST, "[]", "For `transform` bucket.", edges), .list = &column_edges,
     .is_brief = true},
    {MEMBER("time_format", RT_KEY_TEXT, "\"unix\"",
            "`unix` (seconds since 1970), `unix_ms`, `unix_us`, `unix_ns`; `iso` "
            "(`2026-10-01T18:00:00.5+02:00`, or less of it); or a pattern of `%Y %y %m %b %d %H %I "
            "%p %M %S %f %z %a` and other characters as they are (time, hour, weekday).",
            time_format),
     .size = RT_NAME_MAX, .is_brief = true},
    {MEMBER("number_format", RT_KEY_CHOICE, "\"1234.5\"", "How numbers are written.",
            number_format),
     .choices = number_formats, .is_brief = true},
    {MEMBER("nulls", RT_KEY_LIST, "[]",
            "Texts that mean an empty cell: `NULL`, `NA`, `\\N`, `-`; a text, or a list of at most "
            "4.",
            nulls),
     .list = &column_nulls, .is_brief = true},
    {MEMBER("missing", RT_KEY_TEXT, "\"\"",
            "What an empty or missing cell stands for; empty: dense 0, an id of its own.", missing),
     .size = RT_NAME_MAX, .is_brief = true},
    {0},
};

static rt_status read_column(void *element, const cJSON *value, const char *path, rt_error *error)
{
    char shown[RT_CONFIG_SHOWN_MAX];
    if (!cJSON_IsObject(value))
        return rt_fail(error, RT_CONFIG, "%s: %s is no column, expected an object", path,
                       rt_config_show(value, shown));
    return rt_config_members_read(column_members, element, value, path, error);
}

static bool is_default(const rt_config_key *key, const rt_column *column, const rt_column *plain)
{
    const char *at = (const char *)column + key->offset, *other = (const char *)plain + key->offset;
    if (key->list == &column_from)
        return column->from_count == 0;
    if (key->list == &column_edges)
        return column->edge_count == 0;
    if (key->list == &column_nulls)
        return column->null_count == 0;
    if (key->type == RT_KEY_CHOICE)
        return memcmp(at, other, sizeof(int)) == 0;
    if (key->type == RT_KEY_DOUBLE)
        return memcmp(at, other, sizeof(double)) == 0;
    if (key->type == RT_KEY_U32)
        return memcmp(at, other, sizeof(uint32_t)) == 0;
    return strcmp(at, other) == 0;
}

static rt_status replace_columns(rt_table_config *table, const void *elements, uint32_t count)
{
    rt_column *columns;
    if (rt_config_copy_columns(elements, count, &columns))
        return RT_NO_MEMORY;
    rt_free(table->columns);
    table->columns = columns;
    table->column_count = count;
    return RT_OK;
}

static void write_table(const rt_table_config *table, rt_json *json, const char *name)
{
    rt_column plain = {0};
    const rt_status status = rt_config_value_defaults(column_members, &plain);
    rt_json_begin_array(json, name);
    for (uint32_t i = 0; i < table->column_count; i++) {
        rt_json_begin_object(json, NULL);
        for (const rt_config_key *key = column_members; key->path; key++) {
            if (status || !key->is_brief || !is_default(key, &table->columns[i], &plain))
                rt_config_value_write(key, &table->columns[i], json, key->path);
        }
        rt_json_end_object(json);
    }
    rt_json_end_array(json);
}

static rt_status take_columns(rt_config *config, const void *elements, uint32_t count,
                              bool is_alone, const char *path, rt_error *error)
{
    (void)is_alone, (void)path, (void)error;
    return replace_columns(&config->stream.table, elements, count);
}

static void write_columns(const rt_config *config, rt_json *json, const char *name)
{
    write_table(&config->stream.table, json, name);
}

static rt_status take_join_columns(rt_config *config, const void *elements, uint32_t count,
                                   bool is_alone, const char *path, rt_error *error)
{
    (void)is_alone, (void)path, (void)error;
    return replace_columns(&config->stream.join.table, elements, count);
}

static void write_join_columns(const rt_config *config, rt_json *json, const char *name)
{
    write_table(&config->stream.join.table, json, name);
}

_Static_assert(RT_COLUMNS_MAX == 512, "the texts below say so");
const rt_config_list rt_config_columns = {
    .expected = "a list of at most 512 objects",
    .count_max = RT_COLUMNS_MAX,
    .element_size = sizeof(rt_column),
    .element = read_column,
    .take = take_columns,
    .write = write_columns,
    .members = column_members,
};
const rt_config_list rt_config_join_columns = {
    .expected = "a list of at most 512 objects",
    .count_max = RT_COLUMNS_MAX,
    .element_size = sizeof(rt_column),
    .element = read_column,
    .take = take_join_columns,
    .write = write_join_columns,
};

// ---- what a list leaves out ------------------------------------------------------------------

static rt_column *find_named(rt_table_config *table, uint32_t before, const char *name)
{
    for (uint32_t i = 0; i < before; i++)
        if (strcmp(table->columns[i].name, name) == 0)
            return &table->columns[i];
    return NULL;
}

// A cell that is taken once more is written as it is written there, where nothing else is said.
static void take_notation(const rt_column *from, rt_column *column)
{
    if (strcmp(column->time_format, RT_COLUMN_TIME_FORMAT) == 0)
        memcpy(column->time_format, from->time_format, sizeof column->time_format);
    if (column->number_format == RT_NUMBER_PLAIN)
        column->number_format = from->number_format;
    if (column->null_count > 0)
        return;
    column->null_count = from->null_count;
    memcpy(column->nulls, from->nulls, sizeof column->nulls);
}

// A cell that only others are made from is an ignored column, which need not be listed.
static rt_status insert_ignored(rt_table_config *table, uint32_t at, const char *name)
{
    rt_column ignored = {0}, *columns;
    rt_status status = rt_config_value_defaults(column_members, &ignored);
    if (status)
        return status;
    snprintf(ignored.name, sizeof ignored.name, "%s", name);
    ignored.kind = RT_COLUMN_IGNORE;
    columns = rt_alloc(table->column_count + 1u, sizeof *columns);
    if (!columns)
        return RT_NO_MEMORY;
    memcpy(columns, table->columns, at * sizeof *columns);
    columns[at] = ignored;
    memcpy(columns + at + 1, table->columns + at, (table->column_count - at) * sizeof *columns);
    rt_free(table->columns);
    table->columns = columns;
    table->column_count++;
    return RT_OK;
}

rt_status rt_config_complete_columns(rt_table_config *table, bool finds_by_name)
{
    for (uint32_t i = 0; i < table->column_count; i++) {
        for (uint32_t k = 0; k < table->columns[i].from_count && finds_by_name; k++) {
            char name[RT_NAME_MAX];
            memcpy(name, table->columns[i].from[k], sizeof name);
            if (find_named(table, table->column_count, name) ||
                table->column_count == RT_COLUMNS_MAX)
                continue;
            rt_status status = insert_ignored(table, i, name);
            if (status)
                return status;
            i++;
        }
        rt_column *column = &table->columns[i];
        const rt_column *from =
            column->from_count == 1 ? find_named(table, i, column->from[0]) : NULL;
        if (from)
            take_notation(from, column);
    }
    return RT_OK;
}

// ---- stream.libsvm.fields --------------------------------------------------------------------

static rt_status read_index(void *element, const cJSON *value, const char *path, rt_error *error)
{
    static const rt_config_key index = {.type = RT_KEY_U64, .min = 0, .max = RT_CONFIG_INTEGER_MAX};
    return rt_config_value_read(&index, element, value, path, error);
}

static rt_status take_fields(rt_config *config, const void *elements, uint32_t count, bool is_alone,
                             const char *path, rt_error *error)
{
    const uint64_t *fields = elements;
    rt_libsvm_config *libsvm = &config->stream.libsvm;
    (void)is_alone;
    for (uint32_t i = 1; i < count; i++) {
        if (fields[i - 1] >= fields[i])
            return rt_fail(error, RT_CONFIG, "%s[%u]: is not above the index before it", path, i);
    }
    memset(libsvm->fields, 0, sizeof libsvm->fields);
    memcpy(libsvm->fields, fields, count * sizeof *fields);
    libsvm->field_count = count;
    return RT_OK;
}

static void write_fields(const rt_config *config, rt_json *json, const char *name)
{
    rt_json_begin_array(json, name);
    for (uint32_t i = 0; i < config->stream.libsvm.field_count; i++)
        rt_json_u64(json, NULL, config->stream.libsvm.fields[i]);
    rt_json_end_array(json);
}

_Static_assert(RT_FIELDS_MAX == 256, "the text below says so");
const rt_config_list rt_config_libsvm_fields = {
    .expected = "a list of at most 256 rising indices",
    .count_max = RT_FIELDS_MAX,
    .element_size = sizeof(uint64_t),
    .element = read_index,
    .take = take_fields,
    .write = write_fields,
};

// ---- stream.tables ---------------------------------------------------------------------------

static rt_status read_pair(void *element, const cJSON *value, const char *path, rt_error *error)
{
    static const rt_config_key pair = {.type = RT_KEY_TEXT, .min = 3, .size = RT_SHARED_SIZE};
    return rt_config_value_read(&pair, element, value, path, error);
}

static rt_status take_shared(rt_config *config, const void *elements, uint32_t count, bool is_alone,
                             const char *path, rt_error *error)
{
    (void)is_alone, (void)path, (void)error;
    memset(config->stream.shared, 0, sizeof config->stream.shared);
    memcpy(config->stream.shared, elements, count * sizeof *config->stream.shared);
    config->stream.shared_count = count;
    return RT_OK;
}

static void write_shared(const rt_config *config, rt_json *json, const char *name)
{
    rt_json_begin_array(json, name);
    for (uint32_t i = 0; i < config->stream.shared_count; i++)
        rt_json_string(json, NULL, config->stream.shared[i]);
    rt_json_end_array(json);
}

_Static_assert(RT_SHARED_MAX == 64, "the text below says so");
const rt_config_list rt_config_shared = {
    .expected = "`FIELD=OTHER`, or a list of at most 64 of them",
    .count_max = RT_SHARED_MAX,
    .element_size = RT_SHARED_SIZE,
    .element = read_pair,
    .take = take_shared,
    .write = write_shared,
    .takes_text = true,
};
