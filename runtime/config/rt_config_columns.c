// The lists that say what stands in a line: stream.table.columns, stream.join.columns,
// stream.libsvm.fields, stream.tables.
#include <stdio.h>
#include <string.h>

#include "runtime/config/rt_config_rows.h"

#define OBJECT rt_column

static const rt_config_choice column_kinds[] = {
    {"label", RT_COLUMN_LABEL, "1 or 0, by `rule` and `value`; or one of `classes`"},
    {"dense", RT_COLUMN_DENSE, "a number; an empty cell is 0"},
    {"categorical", RT_COLUMN_CATEGORICAL, "one id"},
    {"multi", RT_COLUMN_MULTI, "several ids in one cell"},
    {"weight", RT_COLUMN_WEIGHT, "how many times the sample counts, 0 to 1e6; an empty cell is 1"},
    {"id", RT_COLUMN_ID, "the name of the sample"},
    {"time", RT_COLUMN_TIME, "the time of the sample, in `time_format`"},
    {"ignore", RT_COLUMN_IGNORE, "not part of a sample; other columns may be made `from` it"},
    {0},
};
static const rt_config_choice label_rules[] = {
    {"equals", RT_LABEL_EQUALS, "1 if the cell is exactly `value`"},
    {"at_least", RT_LABEL_AT_LEAST, "1 if the cell's number is `value` or more"},
    {0},
};
static const rt_config_choice transforms[] = {
    {"none", RT_TRANSFORM_NONE, "none"},
    {"log1p", RT_TRANSFORM_LOG1P, "log(1 + max(x, 0))"},
    {"hour", RT_TRANSFORM_HOUR, "of the day (0 to 23, UTC) of a time"},
    {"weekday", RT_TRANSFORM_WEEKDAY, "0 (Monday) to 6 (UTC) of a time"},
    {"bucket", RT_TRANSFORM_BUCKET, "the number of `edges` that are at most the value"},
    {0},
};
static const rt_config_choice id_kinds[] = {
    {"hash", RT_ID_HASH, "a hash of the cell's bytes"},
    {"number", RT_ID_NUMBER, "the cell is a number"},
    {0},
};

static const rt_config_choice number_formats[] = {
    {"1234.5", RT_NUMBER_PLAIN, "a decimal point"},
    {"1234,5", RT_NUMBER_COMMA, "a decimal comma"},
    {"1,234.5", RT_NUMBER_COMMA_GROUPS, "a decimal point, and commas between thousands"},
    {"1.234,5", RT_NUMBER_POINT_GROUPS, "a decimal comma, and points between thousands"},
    {"1'234.5", RT_NUMBER_QUOTE_GROUPS, "a decimal point, and apostrophes between thousands"},
    {"1 234,5", RT_NUMBER_SPACE_GROUPS, "a decimal comma, and spaces between thousands"},
    {0},
};

_Static_assert(RT_COLUMN_FROM_MAX == 4, "the text below says so");
static const rt_config_key a_name = {.type = RT_KEY_TEXT, .min = 1, .size = RT_NAME_MAX};
static const rt_config_list column_from = {
    .expected = "a name, or a list of at most 4",
    .count_max = RT_COLUMN_FROM_MAX,
    .element = &a_name,
    .takes_one = true,
};

_Static_assert(RT_COLUMN_EDGES_MAX == 32, "the text below says so");
static const rt_config_key an_edge = {.type = RT_KEY_DOUBLE, IN(-1e300, 1e300)};
static const rt_config_list column_edges = {
    .expected = "a list of at most 32 rising numbers",
    .count_max = RT_COLUMN_EDGES_MAX,
    .element = &an_edge,
    .rises = "edge",
};

_Static_assert(RT_COLUMN_NULLS_MAX == 4, "the text below says so");
static const rt_config_key a_null = {.type = RT_KEY_TEXT, .min = 1, .size = RT_COLUMN_NULL_SIZE};
static const rt_config_list column_nulls = {
    .expected = "a text, or a list of at most 4",
    .count_max = RT_COLUMN_NULLS_MAX,
    .element = &a_null,
    .takes_one = true,
};

static const rt_config_key column_members[] = {
    TEXT("name", name, "A unique name, for messages and metrics."),
    {CHOICE_ROW("kind", kind, rt_column_kind, NULL, column_kinds, "Kind of the column. Required."),
     .is_required = true},
    CHOICE("rule", label_rule, rt_label_rule, "\"equals\"", label_rules,
           "When the label is 1 (label)."),
    TEXT_OR("value", label_value, "1", "Value that the label is compared with (label)."),
    DOUBLE("loss_weight", loss_weight, "1", BRIEF(IN(1e-6, 1e6)), "",
           "Factor for the loss of this label, if there are several (label)."),
    U32("classes", classes, "0", BRIEF(IN(0, RT_CLASSES_MAX)), "",
        "Number of classes. The label is a whole number from 0, and the model predicts a "
        "probability for each class. 0: the label is 1 or 0 (label)."),
    CHOICE("transform", transform, rt_transform, "\"none\"", transforms,
           "Transform of the cell (dense). All but log1p also work for categorical columns; the "
           "result is then the id."),
    CHOICE("id", id, rt_id_kind, "\"hash\"", id_kinds, "Id of a cell (categorical, multi)."),
    CHARACTER("separator", separator, "|", "|;, :/^\t",
              "Character between the values of a cell (multi)."),
    U32("values_max", values_max, "8", IN(1, 1024), "",
        "Most values of a cell; further values are dropped, and equal ones count once (multi)."),
    {TEXT_ROW("path", path, "",
              "Path of the value in an object, from the root: names, and numbers in arrays, with "
              "dots between them (json). Empty: `name`."),
     .is_brief = true},
    {LIST_ROW(
         "from", column_from, from, from_count, "[]", "",
         "Earlier columns that this one is made from, by name. It then has no cell of its own. One "
         "name copies that column; two to four names form a cross, an id of all their ids together "
         "(categorical); `lanyard crosses` finds some."),
     .is_brief = true},
    {LIST_ROW("edges", column_edges, edges, edge_count, "[]", "", "For `transform` bucket."),
     .is_brief = true},
    {TEXT_ROW("time_format", time_format, RT_COLUMN_TIME_FORMAT,
              "`unix` (seconds since 1970), `unix_ms`, `unix_us`, `unix_ns`; `iso` "
              "(`2026-10-01T18:00:00.5+02:00`, or less of it); or a pattern of `%Y %y %m %b %d %H "
              "%I %p %M %S %f %z %a` and literal characters (time, hour, weekday)."),
     .is_brief = true},
    {CHOICE_ROW("number_format", number_format, rt_number_format, "\"1234.5\"", number_formats,
                "Format of numbers."),
     .is_brief = true},
    {LIST_ROW("nulls", column_nulls, nulls, null_count, "[]", "",
              "Texts that mean an empty cell, such as `NULL`, `NA`, `\\N`, `-`: a text, or a list "
              "of at most 4."),
     .is_brief = true},
    {TEXT_ROW("missing", missing, "",
              "Value of an empty or missing cell. Empty: 0 if dense, otherwise a separate id."),
     .is_brief = true},
    {0},
};

_Static_assert(sizeof(rt_column) <= RT_CONFIG_ENTRY_MAX, "it is written by way of a plain one");
_Static_assert(RT_COLUMNS_MAX == 512, "the text below says so");
const rt_config_list rt_config_columns = {
    .expected = "a list of at most 512 objects",
    .count_max = RT_COLUMNS_MAX,
    .members = column_members,
    .kind = "column",
    .form = "an object",
    .is_owned = true,
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

// ---- other lists --------------------------------------------------------------------------------

_Static_assert(RT_FIELDS_MAX == 256, "the text below says so");
static const rt_config_key an_index = {.type = RT_KEY_U64, IN(0, RT_CONFIG_INTEGER_MAX)};
const rt_config_list rt_config_libsvm_fields = {
    .expected = "a list of at most 256 rising indices",
    .count_max = RT_FIELDS_MAX,
    .element = &an_index,
    .rises = "index",
};

_Static_assert(RT_SHARED_MAX == 64, "the text below says so");
static const rt_config_key a_pair = {.type = RT_KEY_TEXT, .min = 3, .size = RT_SHARED_SIZE};
const rt_config_list rt_config_shared = {
    .expected = "`FIELD=OTHER`, or a list of at most 64 of them",
    .count_max = RT_SHARED_MAX,
    .element = &a_pair,
    .takes_one = true,
};

const char *rt_config_column_kind(rt_column_kind kind)
{
    const rt_config_choice *one = column_kinds;
    while (one->name && one->value != (int)kind)
        one++;
    return one->name;
}
