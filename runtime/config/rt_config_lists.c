#include <stdio.h>
#include <string.h>

#include "runtime/config/rt_config_keys.h"

// Checks that value is a list of at most count_max elements.
static rt_status check_list(const cJSON *value, uint32_t count_max, const rt_config_list *list,
                            const char *path, rt_error *error)
{
    char shown[RT_CONFIG_SHOWN_MAX];
    if (!cJSON_IsArray(value))
        return rt_fail(error, RT_CONFIG, "%s: %s is not a list, expected %s", path,
                       rt_config_show(value, shown), list->expected);
    uint32_t count = (uint32_t)cJSON_GetArraySize(value);
    if (count > count_max)
        return rt_fail(error, RT_CONFIG, "%s: has %u elements, expected %s", path, count,
                       list->expected);
    return RT_OK;
}

static void element_path(char text[RT_CONFIG_KEY_PATH_MAX], const char *path, uint32_t index)
{
    snprintf(text, RT_CONFIG_KEY_PATH_MAX, "%.100s[%u]", path, index);
}

// stream.files ------------------------------------------------------------------------------------

// One block holds the pointers and, behind them, the text.
static rt_status read_files(rt_config *config, const cJSON *value, const char *path,
                            rt_error *error)
{
    char at[RT_CONFIG_KEY_PATH_MAX], shown[RT_CONFIG_SHOWN_MAX];
    cJSON single = {.child = (cJSON *)(uintptr_t)value};
    const cJSON *list = cJSON_IsString(value) ? &single : value, *one;
    uint32_t count = 0;
    size_t text_size = 0;
    if (list == value) {
        rt_status status = check_list(value, RT_FILES_MAX, &rt_config_files, path, error);
        if (status != RT_OK)
            return status;
    }
    for (one = list->child; one; one = one->next, count++) {
        element_path(at, path, count);
        if (!cJSON_IsString(one) || !one->valuestring[0])
            return rt_fail(error, RT_CONFIG, "%s: %s is no path, expected a string", at,
                           rt_config_show(one, shown));
        if (strlen(one->valuestring) >= RT_PATH_MAX)
            return rt_fail(error, RT_CONFIG, "%s: %s is longer than %d bytes", at,
                           rt_config_show(one, shown), RT_PATH_MAX - 1);
        text_size += strlen(one->valuestring) + 1;
    }
    char **files = NULL;
    if (count > 0 && !(files = rt_alloc(1, count * sizeof *files + text_size)))
        return RT_NO_MEMORY;
    char *text = count > 0 ? (char *)(files + count) : NULL;
    for (one = list->child, count = 0; one; one = one->next, count++) {
        size_t size = strlen(one->valuestring) + 1;
        files[count] = memcpy(text, one->valuestring, size);
        text += size;
    }
    rt_free(config->stream.files);
    config->stream.files = files;
    config->stream.file_count = count;
    return RT_OK;
}

static void write_files(const rt_config *config, rt_json *json, const char *name)
{
    rt_json_begin_array(json, name);
    for (uint32_t i = 0; i < config->stream.file_count; i++)
        rt_json_string(json, NULL, config->stream.files[i]);
    rt_json_end_array(json);
}

_Static_assert(RT_FILES_MAX == 256, "the text below says so");
const rt_config_list rt_config_files = {
    .expected = "a path, or a list of at most 256 paths",
    .read = read_files,
    .write = write_files,
    .takes_text = true,
};

// model.embedding_dim -----------------------------------------------------------------------------

static rt_status read_dims(rt_config *config, const cJSON *value, const char *path, rt_error *error)
{
    static const rt_config_key dim = {.type = RT_KEY_U32, .min = 1, .max = 4096};
    char at[RT_CONFIG_KEY_PATH_MAX], shown[RT_CONFIG_SHOWN_MAX];
    uint32_t dims[RT_FIELDS_MAX] = {0}, count = 0, largest = 0;
    rt_status status = RT_OK;
    if (cJSON_IsNumber(value)) {
        status = rt_config_value_read(&dim, &largest, value, path, error);
    } else if (!cJSON_IsArray(value)) {
        status = rt_fail(error, RT_CONFIG, "%s: %s is not a number, expected %s", path,
                         rt_config_show(value, shown), rt_config_dims.expected);
    } else {
        status = check_list(value, RT_FIELDS_MAX, &rt_config_dims, path, error);
        if (!status && !value->child)
            status = rt_fail(error, RT_CONFIG, "%s: is empty, expected %s", path,
                             rt_config_dims.expected);
    }
    for (const cJSON *one = value->child; one && !status; one = one->next, count++) {
        element_path(at, path, count);
        status = rt_config_value_read(&dim, &dims[count], one, at, error);
        largest = dims[count] > largest ? dims[count] : largest;
    }
    if (status != RT_OK)
        return status;
    memcpy(config->model.embedding_dims, dims, sizeof dims);
    config->model.embedding_dim_count = count;
    config->model.embedding_dim = largest;
    return RT_OK;
}

static void write_dims(const rt_config *config, rt_json *json, const char *name)
{
    if (config->model.embedding_dim_count == 0) {
        rt_json_u64(json, name, config->model.embedding_dim);
        return;
    }
    rt_json_begin_array(json, name);
    for (uint32_t f = 0; f < config->model.embedding_dim_count; f++)
        rt_json_u64(json, NULL, config->model.embedding_dims[f]);
    rt_json_end_array(json);
}

_Static_assert(RT_FIELDS_MAX == 256, "the text below says so");
const rt_config_list rt_config_dims = {
    .expected = "an integer in [1, 4096], or a list of at most 256 of them",
    .read = read_dims,
    .write = write_dims,
};

// model.mlp ---------------------------------------------------------------------------------------

// Widths into widths (RT_MLP_LAYERS_MAX, the rest 0); both are written on success only.
static rt_status read_widths(uint32_t widths[RT_MLP_LAYERS_MAX], uint32_t *count_p,
                             uint32_t count_max, const rt_config_list *list, const cJSON *value,
                             const char *path, rt_error *error)
{
    static const rt_config_key width = {.type = RT_KEY_U32, .min = 1, .max = 65536};
    char at[RT_CONFIG_KEY_PATH_MAX];
    uint32_t read[RT_MLP_LAYERS_MAX] = {0}, count = 0;
    rt_status status = check_list(value, count_max, list, path, error);
    if (status != RT_OK)
        return status;
    for (const cJSON *one = value->child; one; one = one->next, count++) {
        element_path(at, path, count);
        status = rt_config_value_read(&width, &read[count], one, at, error);
        if (status != RT_OK)
            return status;
    }
    memcpy(widths, read, sizeof read);
    *count_p = count;
    return RT_OK;
}

static void write_widths(const uint32_t *widths, uint32_t count, rt_json *json, const char *name)
{
    rt_json_begin_array(json, name);
    for (uint32_t i = 0; i < count; i++)
        rt_json_u64(json, NULL, widths[i]);
    rt_json_end_array(json);
}

static rt_status read_mlp(rt_config *config, const cJSON *value, const char *path, rt_error *error)
{
    if (cJSON_IsArray(value) && !value->child)
        return rt_fail(error, RT_CONFIG, "%s: is empty, expected %s", path, rt_config_mlp.expected);
    return read_widths(config->model.mlp, &config->model.mlp_layer_count, RT_MLP_LAYERS_MAX,
                       &rt_config_mlp, value, path, error);
}

static void write_mlp(const rt_config *config, rt_json *json, const char *name)
{
    write_widths(config->model.mlp, config->model.mlp_layer_count, json, name);
}

static rt_status read_mlp_bottom(rt_config *config, const cJSON *value, const char *path,
                                 rt_error *error)
{
    return read_widths(config->model.mlp_bottom, &config->model.mlp_bottom_layer_count,
                       RT_MLP_LAYERS_MAX - 1, &rt_config_mlp_bottom, value, path, error);
}

static void write_mlp_bottom(const rt_config *config, rt_json *json, const char *name)
{
    write_widths(config->model.mlp_bottom, config->model.mlp_bottom_layer_count, json, name);
}

_Static_assert(RT_MLP_LAYERS_MAX == 8, "the texts below say so");
const rt_config_list rt_config_mlp = {
    .expected = "a list of 1 to 8 integers in [1, 65536]",
    .read = read_mlp,
    .write = write_mlp,
};
const rt_config_list rt_config_mlp_bottom = {
    .expected = "a list of at most 7 integers in [1, 65536]",
    .read = read_mlp_bottom,
    .write = write_mlp_bottom,
};

// stream.table.columns ----------------------------------------------------------------------------

static const rt_config_choice column_kinds[] = {
    {"label", RT_COLUMN_LABEL, "1 or 0, by `rule` and `value`"},
    {"dense", RT_COLUMN_DENSE, "a number; an empty cell is 0"},
    {"categorical", RT_COLUMN_CATEGORICAL, "one id"},
    {"multi", RT_COLUMN_MULTI, "several ids in one cell"},
    {"ignore", RT_COLUMN_IGNORE, "not read"},
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
    {0},
};
static const rt_config_choice id_kinds[] = {
    {"hash", RT_ID_HASH, "a hash of the cell's bytes"},
    {"number", RT_ID_NUMBER, "the cell is a number"},
    {0},
};

#define MEMBER(path_, type_, default_, help_, member)                              \
    .path = path_, .type = type_, .fallback = default_, .unit = "", .help = help_, \
    .offset = offsetof(rt_column, member)

static const rt_config_key column_members[] = {
    {MEMBER("name", RT_KEY_TEXT, "\"\"", "For messages and metrics; no two the same.", name),
     .size = RT_NAME_MAX},
    {MEMBER("kind", RT_KEY_CHOICE, NULL, "What the column is; must be given.", kind),
     .choices = column_kinds, .is_required = true},
    {MEMBER("rule", RT_KEY_CHOICE, "\"equals\"", "When the label is 1 (label).", label_rule),
     .choices = label_rules},
    {MEMBER("value", RT_KEY_TEXT, "\"1\"", "What the label is compared with (label).", label_value),
     .size = RT_NAME_MAX},
    {MEMBER("transform", RT_KEY_CHOICE, "\"none\"", "Applied to the number (dense).", transform),
     .choices = transforms},
    {MEMBER("id", RT_KEY_CHOICE, "\"hash\"", "How a cell becomes an id (categorical, multi).", id),
     .choices = id_kinds},
    {MEMBER("separator", RT_KEY_CHARACTER, "\"|\"", "Between the values of a cell (multi).",
            separator),
     .characters = "|;, :/^\t"},
    {MEMBER("values_max", RT_KEY_U32, "8", "Further values of a cell are dropped (multi).",
            values_max),
     .min = 1, .max = 1024},
    {0},
};

static rt_status read_columns(rt_config *config, const cJSON *value, const char *path,
                              rt_error *error)
{
    char at[RT_CONFIG_KEY_PATH_MAX], shown[RT_CONFIG_SHOWN_MAX];
    rt_status status = check_list(value, RT_COLUMNS_MAX, &rt_config_columns, path, error);
    if (status != RT_OK)
        return status;
    uint32_t count = (uint32_t)cJSON_GetArraySize(value), index = 0;
    rt_column *columns = NULL;
    if (count > 0 && !(columns = rt_alloc(count, sizeof *columns)))
        return RT_NO_MEMORY;
    for (const cJSON *one = value->child; one && status == RT_OK; one = one->next, index++) {
        element_path(at, path, index);
        if (cJSON_IsObject(one))
            status = rt_config_members_read(column_members, &columns[index], one, at, error);
        else
            status = rt_fail(error, RT_CONFIG, "%s: %s is no column, expected an object", at,
                             rt_config_show(one, shown));
    }
    if (status != RT_OK) {
        rt_free(columns);
        return status;
    }
    rt_free(config->stream.table.columns);
    config->stream.table.columns = columns;
    config->stream.table.column_count = count;
    return RT_OK;
}

static void write_columns(const rt_config *config, rt_json *json, const char *name)
{
    const rt_table_config *table = &config->stream.table;
    rt_json_begin_array(json, name);
    for (uint32_t i = 0; i < table->column_count; i++) {
        rt_json_begin_object(json, NULL);
        for (const rt_config_key *key = column_members; key->path; key++)
            rt_config_value_write(key, &table->columns[i], json, key->path);
        rt_json_end_object(json);
    }
    rt_json_end_array(json);
}

_Static_assert(RT_COLUMNS_MAX == 512, "the text below says so");
const rt_config_list rt_config_columns = {
    .expected = "a list of at most 512 objects",
    .read = read_columns,
    .write = write_columns,
    .members = column_members,
};

// links.workers -----------------------------------------------------------------------------------

// As written: 0 where not given.
typedef struct {
    double gbps, gbps_up, gbps_down;
    rt_network_transport transport;
    uint32_t count;
} link_entry;

#define RATE(path_, help_, member)                                               \
    {                                                                            \
        .path = path_, .type = RT_KEY_DOUBLE, .unit = "Gbit/s", .help = help_,   \
        .offset = offsetof(link_entry, member), .max = 1e4, .min_excluded = true \
    }

static const rt_config_choice link_transports[] = {
    {"ucx", RT_NETWORK_UCX, "UCX"}, {"zmq", RT_NETWORK_ZMQ, "ZeroMQ"}, {0}};

static const rt_config_key link_members[] = {
    RATE("gbps", "Both ways; or", gbps),
    RATE("gbps_up", "worker to parameter servers, and", gbps_up),
    RATE("gbps_down", "parameter servers to worker.", gbps_down),
    {.path = "transport",
     .type = RT_KEY_CHOICE,
     .fallback = "\"ucx\"",
     .help = "How the worker connects, where `network.transport` is `mixed`.",
     .unit = "",
     .offset = offsetof(link_entry, transport),
     .choices = link_transports},
    {.path = "count",
     .type = RT_KEY_U32,
     .fallback = "1",
     .unit = "workers",
     .help = "So many workers have such a link.",
     .offset = offsetof(link_entry, count),
     .min = 1,
     .max = RT_WORKERS_MAX},
    {0},
};

static rt_status read_link(const cJSON *value, link_entry *entry, const char *path, rt_error *error)
{
    char shown[RT_CONFIG_SHOWN_MAX];
    *entry = (link_entry){.count = 1, .transport = RT_NETWORK_UCX};
    if (!cJSON_IsObject(value)) {
        if (!cJSON_IsNumber(value))
            return rt_fail(error, RT_CONFIG, "%s: %s is no link, expected a number or an object",
                           path, rt_config_show(value, shown));
        return rt_config_value_read(&link_members[0], entry, value, path, error);
    }
    rt_status status = rt_config_members_read(link_members, entry, value, path, error);
    if (status != RT_OK)
        return status;
    bool both = entry->gbps > 0, up = entry->gbps_up > 0, down = entry->gbps_down > 0;
    if (both ? up || down : !(up && down))
        return rt_fail(error, RT_CONFIG,
                       "%s: expected either \"gbps\", or \"gbps_up\" and \"gbps_down\"", path);
    return RT_OK;
}

static rt_status read_links(rt_config *config, const cJSON *value, const char *path,
                            rt_error *error)
{
    char at[RT_CONFIG_KEY_PATH_MAX];
    rt_link_config links[RT_WORKERS_MAX] = {0};
    uint32_t count = 0, index = 0;
    rt_status status = check_list(value, RT_WORKERS_MAX, &rt_config_links, path, error);
    if (status != RT_OK)
        return status;
    for (const cJSON *one = value->child; one; one = one->next, index++) {
        link_entry entry;
        element_path(at, path, index);
        status = read_link(one, &entry, at, error);
        if (status != RT_OK)
            return status;
        if (entry.count > RT_WORKERS_MAX - count)
            return rt_fail(error, RT_CONFIG, "%s: more than %u links", at, RT_WORKERS_MAX);
        for (uint32_t i = 0; i < entry.count; i++, count++) {
            config->links.transports[count] = entry.transport;
            links[count].gbps_up = entry.gbps > 0 ? entry.gbps : entry.gbps_up;
            links[count].gbps_down = entry.gbps > 0 ? entry.gbps : entry.gbps_down;
        }
    }
    config->links.given_count = count;
    for (uint32_t i = count; i < RT_WORKERS_MAX; i++)
        config->links.transports[i] = RT_NETWORK_UCX;
    for (uint32_t i = 0; i < RT_WORKERS_MAX; i++)
        config->links.workers[i] = count > 0 ? links[i] : (rt_link_config){1, 1};
    return RT_OK;
}

static void write_links(const rt_config *config, rt_json *json, const char *name)
{
    rt_json_begin_array(json, name);
    for (uint32_t i = 0; i < config->links.given_count; i++) {
        const rt_link_config *link = &config->links.workers[i];
        rt_json_begin_object(json, NULL);
        rt_json_double(json, "gbps_up", link->gbps_up);
        rt_json_double(json, "gbps_down", link->gbps_down);
        rt_json_string(json, "transport",
                       config->links.transports[i] == RT_NETWORK_ZMQ ? "zmq" : "ucx");
        rt_json_end_object(json);
    }
    rt_json_end_array(json);
}

_Static_assert(RT_WORKERS_MAX == 64, "the text below says so");
const rt_config_list rt_config_links = {
    .expected = "a list of numbers or objects for at most 64 links",
    .read = read_links,
    .write = write_links,
    .members = link_members,
};

// network.ps --------------------------------------------------------------------------------------

static rt_status read_shards(rt_config *config, const cJSON *value, const char *path,
                             rt_error *error)
{
    char at[RT_CONFIG_KEY_PATH_MAX], shown[RT_CONFIG_SHOWN_MAX];
    char shards[RT_SHARDS_MAX][RT_NAME_MAX] = {{0}};
    uint32_t count = 0;
    cJSON single = {.child = (cJSON *)(uintptr_t)value};
    const cJSON *list = cJSON_IsString(value) ? &single : value;
    rt_status status =
        list == value ? check_list(value, RT_SHARDS_MAX, &rt_config_shards, path, error) : RT_OK;
    if (status != RT_OK)
        return status;
    for (const cJSON *one = list->child; one; one = list == value ? one->next : NULL, count++) {
        element_path(at, path, count);
        if (!cJSON_IsString(one) || strlen(one->valuestring) >= RT_NAME_MAX)
            return rt_fail(error, RT_CONFIG, "%s: %s is no address, expected \"HOST:PORT\"", at,
                           rt_config_show(one, shown));
        snprintf(shards[count], RT_NAME_MAX, "%s", one->valuestring);
    }
    config->network_ps_count = count;
    memcpy(config->network_ps, shards, sizeof shards);
    return RT_OK;
}

static void write_shards(const rt_config *config, rt_json *json, const char *name)
{
    rt_json_begin_array(json, name);
    for (uint32_t i = 0; i < config->network_ps_count; i++)
        rt_json_string(json, NULL, config->network_ps[i]);
    rt_json_end_array(json);
}

_Static_assert(RT_SHARDS_MAX == 16, "the text below says so");
const rt_config_list rt_config_shards = {
    .expected = "an address, or a list of at most 16 addresses",
    .read = read_shards,
    .write = write_shards,
    .takes_text = true,
};
