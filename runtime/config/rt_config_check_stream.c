// Where samples come from, and what their columns are.
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/config/rt_config_keys.h"
#include "runtime/config/rt_sources.h"
#include "runtime/rt_date.h"
#include "runtime/rt_locale.h"

// A flow of lines (events, outcomes) that does not come from files, and the names of its keys.
typedef struct {
    const char *source, *files, *header;
    rt_source_kind kind;
    uint32_t file_count;
    char **paths;
    bool has_header;
} line_flow;

static rt_status check_flow(const line_flow *flow, rt_error *error)
{
    const char *name = rt_config_choice_name(flow->source, (int)flow->kind);
    const bool follows = flow->kind == RT_SOURCE_FOLLOW;
    if (!rt_source_is_built(flow->kind))
        return rt_fail(error, RT_UNSUPPORTED,
                       "%s: this build has no \"%s\": its library was missing "
                       "(docs/DEPENDENCIES.md)",
                       flow->source, name);
    if (follows && (flow->file_count != 1 || strcmp(flow->paths[0], "-") == 0))
        return rt_fail(error, RT_CONFIG, "%s: %s \"follow\" reads one file, by its path",
                       flow->files, flow->source);
    if (!follows && flow->file_count > 0)
        return rt_fail(error, RT_CONFIG, "%s: %s \"%s\" reads no files", flow->files, flow->source,
                       name);
    if (!follows && flow->has_header)
        return rt_fail(error, RT_CONFIG,
                       "%s: what %s \"%s\" is sent has none; expected false, and the columns in "
                       "their order",
                       flow->header, flow->source, name);
    return RT_OK;
}

static rt_status check_source(const rt_stream_config *stream, rt_error *error)
{
    const line_flow events = {.source = "stream.source",
                              .files = "stream.files",
                              .header = "stream.table.header",
                              .kind = stream->source,
                              .file_count = stream->file_count,
                              .paths = stream->files,
                              .has_header = rt_format_has(stream->format, RT_HAS_DELIMITER) &&
                                            stream->table.has_header};
    return check_flow(&events, error);
}

static rt_status check_files(const rt_stream_config *stream, rt_error *error)
{
    uint32_t standard_input_count = 0;
    if (rt_format_is_generated(stream->format))
        return RT_OK;
    if (stream->source != RT_SOURCE_FILE)
        return check_source(stream, error);
    if (stream->file_count == 0)
        return rt_fail(error, RT_CONFIG,
                       "stream.files: no input given, expected a file or \"-\" (standard input)");
    for (uint32_t i = 0; i < stream->file_count; i++)
        standard_input_count += strcmp(stream->files[i], "-") == 0;
    if (standard_input_count > 1)
        return rt_fail(error, RT_CONFIG, "stream.files: standard input can be read only once");
    return RT_OK;
}

// A word for what can be no input; NULL: it may be one.
static const char *unreadable(const char *path)
{
    struct stat info;
    if (stat(path, &info) != 0 || (!S_ISSOCK(info.st_mode) && access(path, R_OK) != 0))
        return strerror(errno);
    if (S_ISDIR(info.st_mode))
        return "it is a folder";
    if (S_ISSOCK(info.st_mode))
        return "it is a socket: expected a file or a pipe (mkfifo); `nc -U SOCKET | lanyard ...` "
               "with stream.files=- reads one";
    return NULL;
}

static rt_status check_paths(const char *key, char **files, uint32_t count, rt_error *error)
{
    for (uint32_t i = 0; i < count; i++) {
        if (strcmp(files[i], "-") == 0)
            continue;
        const char *why = unreadable(files[i]);
        if (why)
            return rt_fail(error, RT_IO, "%s: cannot open %s: %s", key, files[i], why);
    }
    return RT_OK;
}

rt_status rt_config_check_input(const rt_config *config, rt_error *error)
{
    const rt_stream_config *stream = &config->stream;
    if (rt_format_is_generated(stream->format))
        return RT_OK;
    rt_status status = RT_OK;
    if (stream->source != RT_SOURCE_FOLLOW) // what is followed may come later
        status = check_paths("stream.files", stream->files, stream->file_count, error);
    if (status || stream->join.source == RT_SOURCE_FOLLOW)
        return status;
    return check_paths("stream.join.outcomes", stream->join.files, stream->join.file_count, error);
}

static bool is_number(const char *text)
{
    const char *end;
    const double number = rt_locale_number(text, &end);
    return end != text && *end == '\0' && isfinite(number);
}

static bool is_dated(rt_transform transform)
{
    return transform == RT_TRANSFORM_HOUR || transform == RT_TRANSFORM_WEEKDAY;
}

// A name for the place of a column in messages: "stream.table.columns[3]".
#define AT "%s[%u]"

static rt_status check_transform(const rt_column *column, const char *list, uint32_t index,
                                 rt_error *error)
{
    const rt_transform transform = column->transform;
    const bool is_categorical =
        column->kind == RT_COLUMN_CATEGORICAL || column->kind == RT_COLUMN_IGNORE;
    if (transform == RT_TRANSFORM_NONE)
        return RT_OK;
    if (column->kind != RT_COLUMN_DENSE && !(is_categorical && transform != RT_TRANSFORM_LOG1P))
        return rt_fail(error, RT_CONFIG,
                       AT ".transform: log1p is for dense columns, the others also for "
                          "categorical ones",
                       list, index);
    if (column->from_count > 1)
        return rt_fail(error, RT_CONFIG, AT ".transform: a cross has none", list, index);
    if (transform == RT_TRANSFORM_BUCKET && column->edge_count == 0)
        return rt_fail(error, RT_CONFIG, AT ".edges: is needed with transform \"bucket\"", list,
                       index);
    return RT_OK;
}

// What a column is made from stands before it, so that nothing goes round.
static rt_status check_from(const rt_table_config *table, const char *list, uint32_t index,
                            rt_error *error)
{
    const rt_column *column = &table->columns[index];
    for (uint32_t k = 0; k < column->from_count; k++) {
        uint32_t source = 0;
        while (source < index && strcmp(table->columns[source].name, column->from[k]) != 0)
            source++;
        if (source == index)
            return rt_fail(error, RT_CONFIG, AT ".from[%u]: no column before it is named \"%s\"",
                           list, index, k, column->from[k]);
        const rt_column *from = &table->columns[source];
        const bool has_id = from->kind == RT_COLUMN_CATEGORICAL || from->kind == RT_COLUMN_IGNORE;
        if (column->from_count > 1 && !has_id)
            return rt_fail(error, RT_CONFIG,
                           AT ".from[%u]: \"%s\" has no id, a cross is made from categorical and "
                              "ignored columns",
                           list, index, k, column->from[k]);
        if (column->from_count == 1 && from->from_count > 0)
            return rt_fail(error, RT_CONFIG, AT ".from[%u]: \"%s\" has no cell of its own", list,
                           index, k, column->from[k]);
    }
    if (column->from_count > 1 && column->kind != RT_COLUMN_CATEGORICAL)
        return rt_fail(error, RT_CONFIG, AT ".kind: a cross is \"categorical\"", list, index);
    return RT_OK;
}

static bool has_several_labels(const rt_table_config *table)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < table->column_count; i++)
        count += table->columns[i].kind == RT_COLUMN_LABEL;
    return count > 1;
}

static rt_status check_label(const rt_table_config *table, const char *list, uint32_t index,
                             rt_error *error)
{
    char shown[RT_CONFIG_SHOWN_MAX];
    const rt_column *column = &table->columns[index];
    const bool is_label = column->kind == RT_COLUMN_LABEL;
    const bool is_one_of_several = is_label && has_several_labels(table);
    if (is_label && column->label_rule == RT_LABEL_AT_LEAST && !is_number(column->label_value))
        return rt_fail(error, RT_CONFIG, AT ".value: %s is not a number, as \"at_least\" needs",
                       list, index, rt_config_show_text(column->label_value, shown));
    if (is_one_of_several && !column->name[0])
        return rt_fail(error, RT_CONFIG, AT ".name: is needed where there are several labels", list,
                       index);
    if (column->loss_weight > 0 && column->loss_weight != 1 && !is_one_of_several)
        return rt_fail(error, RT_CONFIG, AT ".loss_weight: is for one of several labels", list,
                       index);
    return RT_OK;
}

// Classes exclude what is about labels of 0 and 1.
static rt_status check_classes(const rt_table_config *table, const char *list, uint32_t index,
                               rt_error *error)
{
    const rt_column *column = &table->columns[index];
    if (column->classes == 0)
        return RT_OK;
    if (column->kind != RT_COLUMN_LABEL)
        return rt_fail(error, RT_CONFIG, AT ".classes: is for a label", list, index);
    if (column->classes == 1)
        return rt_fail(error, RT_CONFIG,
                       AT ".classes: 1, expected 2 or more, or 0 for a label of "
                          "0 and 1",
                       list, index);
    if (has_several_labels(table))
        return rt_fail(error, RT_CONFIG,
                       AT ".classes: is for the only label, not for one of "
                          "several",
                       list, index);
    if (column->label_rule != RT_LABEL_EQUALS || strcmp(column->label_value, "1") != 0)
        return rt_fail(error, RT_CONFIG,
                       AT ".classes: a class is the number in the cell, so rule and value do not "
                          "apply",
                       list, index);
    for (uint32_t i = 0; i < table->column_count; i++)
        if (table->columns[i].kind == RT_COLUMN_WEIGHT)
            return rt_fail(error, RT_CONFIG,
                           AT ".kind: samples of several classes "
                              "have no weights",
                           list, i);
    return RT_OK;
}

// What stands where: names, paths, times.
static rt_status check_place(const rt_table_config *table, const char *list, bool is_text,
                             uint32_t index, rt_error *error)
{
    char shown[RT_CONFIG_SHOWN_MAX];
    const rt_column *column = &table->columns[index];
    if (is_text && column->kind == RT_COLUMN_MULTI && column->separator == table->delimiter)
        return rt_fail(error, RT_CONFIG, AT ".separator: is also %.*sdelimiter", list, index,
                       (int)(strlen(list) - strlen("columns")), list);
    if (is_text && table->has_header && column->kind != RT_COLUMN_IGNORE && !column->name[0])
        return rt_fail(error, RT_CONFIG,
                       AT ".name: is needed with %.*sheader, which tells columns by their names",
                       list, index, (int)(strlen(list) - strlen("columns")), list);
    if (!is_text && !column->name[0] && !column->path[0] && column->from_count == 0)
        return rt_fail(error, RT_CONFIG,
                       AT ".path: is needed, or a name: members of objects have one", list, index);
    if ((column->kind == RT_COLUMN_TIME || is_dated(column->transform)) &&
        !rt_date_format_is_good(column->time_format))
        return rt_fail(error, RT_CONFIG,
                       AT ".time_format: %s is not a time format, expected \"unix\", \"unix_ms\", "
                          "\"iso\" or a pattern with %%Y or %%y, %%m or %%b, %%d, and %%H %%M %%S "
                          "%%f, %%z",
                       list, index, rt_config_show_text(column->time_format, shown));
    for (uint32_t i = 0; i < index; i++) {
        if (column->name[0] && strcmp(column->name, table->columns[i].name) == 0)
            return rt_fail(error, RT_CONFIG, AT ".name: column %u has the same name", list, index,
                           i);
    }
    return RT_OK;
}

static rt_status check_column(const rt_table_config *table, const char *list, bool is_text,
                              uint32_t index, rt_error *error)
{
    rt_status status = check_label(table, list, index, error);
    if (status)
        return status;
    status = check_classes(table, list, index, error);
    if (status)
        return status;
    status = check_place(table, list, is_text, index, error);
    if (status)
        return status;
    status = check_transform(&table->columns[index], list, index, error);
    if (status)
        return status;
    return check_from(table, list, index, error);
}

// Counts of columns by kind.
static rt_status check_columns(const rt_table_config *table, const char *list, bool is_text,
                               uint32_t counts[RT_COLUMN_TIME + 1], rt_error *error)
{
    memset(counts, 0, (RT_COLUMN_TIME + 1) * sizeof *counts);
    for (uint32_t i = 0; i < table->column_count; i++) {
        rt_status status = check_column(table, list, is_text, i, error);
        if (status)
            return status;
        counts[table->columns[i].kind]++;
    }
    static const struct {
        rt_column_kind kind;
        const char *name;
    } single[] = {{RT_COLUMN_WEIGHT, "weight"}, {RT_COLUMN_ID, "id"}, {RT_COLUMN_TIME, "time"}};
    for (size_t i = 0; i < RT_COUNT_OF(single); i++) {
        if (counts[single[i].kind] > 1)
            return rt_fail(error, RT_CONFIG, "%s: %u columns of kind \"%s\", expected at most one",
                           list, counts[single[i].kind], single[i].name);
    }
    return RT_OK;
}

// How many columns of kind "label" there should be; NULL: as many as there are.
static const char *expected_labels(const rt_stream_config *stream, uint32_t label_count)
{
    if (rt_config_has_join(stream) && label_count > 0)
        return "none: labels come by stream.join";
    if (rt_config_has_join(stream))
        return NULL;
    if (label_count == 0 && stream->join.table.column_count > 0)
        return "one; or, for labels that come later, stream.join.source or stream.join.outcomes";
    if (label_count == 0)
        return "one";
    if (label_count > RT_LABELS_MAX)
        return "at most 8";
    return NULL;
}

static rt_status check_table(const rt_stream_config *stream, rt_error *error)
{
    static const char list[] = "stream.table.columns";
    uint32_t counts[RT_COLUMN_TIME + 1];
    const bool is_joined = rt_config_has_join(stream);
    const bool is_text = rt_format_has(stream->format, RT_HAS_DELIMITER);
    rt_status status = check_columns(&stream->table, list, is_text, counts, error);
    if (status)
        return status;
    const uint32_t field_count = counts[RT_COLUMN_CATEGORICAL] + counts[RT_COLUMN_MULTI];
    const char *expected = expected_labels(stream, counts[RT_COLUMN_LABEL]);
    if (expected)
        return rt_fail(error, RT_CONFIG, "%s: %u columns of kind \"label\", expected %s", list,
                       counts[RT_COLUMN_LABEL], expected);
    if (field_count == 0 || field_count > RT_FIELDS_MAX)
        return rt_fail(error, RT_CONFIG,
                       "%s: %u columns of kind \"categorical\" or \"multi\", expected 1 to %u",
                       list, field_count, RT_FIELDS_MAX);
    if (is_joined && counts[RT_COLUMN_ID] == 0)
        return rt_fail(error, RT_CONFIG, "%s: no column of kind \"id\", which stream.join needs",
                       list);
    return RT_OK;
}

static bool is_outcome_kind(rt_column_kind kind)
{
    return kind == RT_COLUMN_ID || kind == RT_COLUMN_TIME || kind == RT_COLUMN_LABEL ||
           kind == RT_COLUMN_IGNORE;
}

static rt_status check_outcomes(const rt_join_config *join, rt_error *error)
{
    const line_flow outcomes = {.source = "stream.join.source",
                                .files = "stream.join.outcomes",
                                .header = "stream.join.header",
                                .kind = join->source,
                                .file_count = join->file_count,
                                .paths = join->files,
                                .has_header = rt_format_has(join->format, RT_HAS_DELIMITER) &&
                                              join->table.has_header};
    if (join->source == RT_SOURCE_FILE)
        return RT_OK;
    return check_flow(&outcomes, error);
}

// counts: of columns by kind.
static rt_status check_outcome_columns(const rt_join_config *join, const char *list,
                                       const uint32_t *counts, rt_error *error)
{
    const rt_table_config *table = &join->table;
    for (uint32_t i = 0; i < table->column_count; i++) {
        if (!is_outcome_kind(table->columns[i].kind))
            return rt_fail(error, RT_CONFIG,
                           "%s[%u].kind: an outcome has an id, a time and a label, nothing else",
                           list, i);
    }
    for (uint32_t i = 0; i < table->column_count; i++) {
        if (table->columns[i].classes)
            return rt_fail(error, RT_CONFIG, "%s[%u].classes: labels that come later are 0 or 1",
                           list, i);
    }
    if (counts[RT_COLUMN_ID] != 1)
        return rt_fail(error, RT_CONFIG, "%s: %u columns of kind \"id\", expected one", list,
                       counts[RT_COLUMN_ID]);
    if (counts[RT_COLUMN_LABEL] > RT_LABELS_MAX)
        return rt_fail(error, RT_CONFIG, "%s: %u columns of kind \"label\", expected at most %d",
                       list, counts[RT_COLUMN_LABEL], RT_LABELS_MAX);
    return RT_OK;
}

static rt_status check_join(const rt_stream_config *stream, rt_error *error)
{
    static const char list[] = "stream.join.columns";
    uint32_t counts[RT_COLUMN_TIME + 1];
    const rt_join_config *join = &stream->join;
    if (!rt_config_has_join(stream))
        return RT_OK;
    if (!rt_format_has(stream->format, RT_HAS_COLUMNS))
        return rt_fail(error, RT_CONFIG,
                       "stream.join: needs events with an id, which stream.format \"%s\" has not; "
                       "\"table\" and \"json\" may",
                       rt_config_choice_name("stream.format", (int)stream->format));
    const bool is_text = rt_format_has(join->format, RT_HAS_DELIMITER);
    rt_status status = check_columns(&join->table, list, is_text, counts, error);
    if (status)
        return status;
    status = check_outcome_columns(join, list, counts, error);
    if (status)
        return status;
    status = check_outcomes(join, error);
    if (status)
        return status;
    if (join->late == RT_LATE_TRAIN && join->unanswered == RT_JOIN_DROP)
        return rt_fail(error, RT_CONFIG,
                       "stream.join.late: \"train\" corrects what was trained as 0, but "
                       "stream.join.unanswered \"drop\" trains nothing");
    return RT_OK;
}

static rt_status check_libsvm(const rt_libsvm_config *libsvm, rt_error *error)
{
    const uint64_t least = libsvm->index_first + libsvm->dense_count;
    if (libsvm->field_count > 0 && libsvm->fields[0] < least)
        return rt_fail(
            error, RT_CONFIG,
            "stream.libsvm.fields[0]: indices below %" PRIu64 " are dense, or no indices", least);
    return RT_OK;
}

// A node and each of its neighbours is one value; of theirs there may be many.
static rt_status check_nodes(const rt_config *config, rt_error *error)
{
    const rt_stream_config *stream = &config->stream;
    uint32_t field = 0;
    if (!rt_model_takes(config->model.kind, RT_TAKES_NODES) ||
        !rt_format_has(stream->format, RT_HAS_COLUMNS))
        return RT_OK;
    for (uint32_t i = 0; i < stream->table.column_count; i++) {
        const rt_column_kind kind = stream->table.columns[i].kind;
        if (kind == RT_COLUMN_MULTI && field <= config->model.fan_out)
            return rt_fail(error, RT_CONFIG,
                           "stream.table.columns[%u].kind: \"multi\" for %s, which is one node to "
                           "model.name \"graphsage\": expected \"categorical\"",
                           i, field == 0 ? "a sample's node" : "one of its neighbours");
        field += kind == RT_COLUMN_MULTI || kind == RT_COLUMN_CATEGORICAL;
    }
    return RT_OK;
}

static rt_status check_negatives(const rt_stream_config *stream, rt_error *error)
{
    if (stream->negatives_keep >= 1)
        return RT_OK;
    if (rt_config_label_count(stream) > 1)
        return rt_fail(error, RT_CONFIG,
                       "stream.negatives_keep: a sample with several labels need not be negative "
                       "for all of them, expected 1");
    if (rt_config_class_count(stream))
        return rt_fail(error, RT_CONFIG,
                       "stream.negatives_keep: no class is the negative one, expected 1");
    if (rt_format_is_generated(stream->format))
        return rt_fail(error, RT_CONFIG,
                       "stream.negatives_keep: is for samples that are read, not for generated "
                       "ones");
    return RT_OK;
}

// What is read more than once, or by who judges.
static rt_status check_again(const rt_stream_config *stream, const char *key, rt_error *error)
{
    const bool is_read =
        !rt_format_is_generated(stream->format) && stream->source == RT_SOURCE_FILE;
    if (!is_read || rt_config_has_join(stream))
        return rt_fail(error, RT_CONFIG, "%s: works only with files and without stream.join", key);
    for (uint32_t i = 0; i < stream->file_count; i++) {
        struct stat info;
        if (strcmp(stream->files[i], "-") == 0)
            return rt_fail(error, RT_CONFIG, "%s: standard input can be read only once", key);
        if (stat(stream->files[i], &info) == 0 && S_ISFIFO(info.st_mode))
            return rt_fail(error, RT_CONFIG, "%s: %s is a pipe, which can be read only once", key,
                           stream->files[i]);
    }
    return RT_OK;
}

static rt_status check_patience(const rt_stream_config *stream, rt_error *error)
{
    if (stream->patience == 0)
        return RT_OK;
    if (stream->holdout == 0)
        return rt_fail(error, RT_CONFIG,
                       "stream.patience: held-out samples judge an epoch, expected stream.holdout "
                       "above 0 (0.1 is usual)");
    if (stream->epochs <= 1)
        return rt_fail(error, RT_CONFIG,
                       "stream.patience: training can end early after an epoch, expected "
                       "stream.epochs above 1");
    return RT_OK;
}

static rt_status check_epochs(const rt_stream_config *stream, rt_error *error)
{
    rt_status status = RT_OK;
    if (stream->holdout > 0)
        status = check_again(stream, "stream.holdout", error);
    if (!status)
        status = check_patience(stream, error);
    if (status || stream->epochs <= 1)
        return status;
    if (stream->id[0])
        return rt_fail(error, RT_CONFIG,
                       "stream.epochs: with stream.id no event is trained twice, expected 1");
    if (stream->epochs * stream->file_count > RT_FILES_MAX)
        return rt_fail(error, RT_CONFIG,
                       "stream.epochs: %u passes over %u files are more than %u "
                       "files in total",
                       stream->epochs, stream->file_count, RT_FILES_MAX);
    return check_again(stream, "stream.epochs", error);
}

static rt_status check_format(const rt_stream_config *stream, rt_error *error)
{
    rt_status status = check_join(stream, error);
    if (!status)
        status = check_epochs(stream, error);
    if (!status && rt_format_has(stream->format, RT_HAS_COLUMNS))
        status = check_table(stream, error);
    if (!status && rt_format_has(stream->format, RT_HAS_INDICES))
        status = check_libsvm(&stream->libsvm, error);
    if (status)
        return status;
    return check_negatives(stream, error);
}

rt_status rt_config_check_source(const rt_config *config, rt_error *error)
{
    return check_files(&config->stream, error);
}

rt_status rt_config_check_stream(const rt_config *config, rt_error *error)
{
    const rt_status status = check_format(&config->stream, error);
    if (status)
        return status;
    return check_nodes(config, error);
}
