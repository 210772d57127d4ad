// Every list is read by rt_config_list_read, the only place that walks values: a list says how one
// element is read and what becomes of all of them.
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "runtime/config/rt_config_keys.h"

static bool may_stand_alone(const rt_config_list *list, const cJSON *value)
{
    return (list->takes_text && cJSON_IsString(value)) ||
           (list->takes_number && cJSON_IsNumber(value));
}

static rt_status check_length(const rt_config_list *list, uint64_t count, const char *path,
                              rt_error *error)
{
    if (count > list->count_max)
        return rt_fail(error, RT_CONFIG, "%s: has %" PRIu64 " elements, expected %s", path, count,
                       list->expected);
    if (count < list->count_min)
        return rt_fail(error, RT_CONFIG, "%s: is empty, expected %s", path, list->expected);
    return RT_OK;
}

static rt_status read_elements(const rt_config_list *list, uint8_t *elements, const cJSON *array,
                               const char *path, rt_error *error)
{
    char at[RT_CONFIG_KEY_PATH_MAX];
    uint32_t i = 0;
    for (const cJSON *one = array->child; one; one = one->next, i++) {
        snprintf(at, sizeof at, "%.100s[%u]", path, i);
        rt_status status = list->element(elements + (size_t)i * list->element_size, one, at, error);
        if (status)
            return status;
    }
    return RT_OK;
}

rt_status rt_config_list_read(const rt_config_list *list, void *base, const cJSON *value,
                              const char *path, rt_error *error)
{
    char at[RT_CONFIG_KEY_PATH_MAX], shown[RT_CONFIG_SHOWN_MAX];
    const bool is_alone = may_stand_alone(list, value);
    const char *kind = list->takes_number ? "number" : "list";
    if (!is_alone && !cJSON_IsArray(value))
        return rt_fail(error, RT_CONFIG, "%s: %s is not a %s, expected %s", path,
                       rt_config_show(value, shown), kind, list->expected);
    const uint32_t count = is_alone ? 1 : (uint32_t)cJSON_GetArraySize(value);
    rt_status status = check_length(list, count, path, error);
    if (status)
        return status;
    uint8_t *elements = rt_alloc(count + 1u, list->element_size);
    if (!elements)
        return RT_NO_MEMORY;
    if (is_alone) {
        snprintf(at, sizeof at, "%.120s", path);
        status = list->element(elements, value, at, error);
    } else {
        status = read_elements(list, elements, value, path, error);
    }
    if (!status && list->take_member)
        status = list->take_member(base, elements, count, path, error);
    else if (!status)
        status = list->take(base, elements, count, is_alone, path, error);
    rt_free(elements);
    return status;
}

// ---- stream.files ----------------------------------------------------------------------------

static rt_status read_file(void *element, const cJSON *value, const char *path, rt_error *error)
{
    char shown[RT_CONFIG_SHOWN_MAX];
    if (!cJSON_IsString(value) || !value->valuestring[0])
        return rt_fail(error, RT_CONFIG, "%s: %s is no path, expected a string", path,
                       rt_config_show(value, shown));
    if (strlen(value->valuestring) >= RT_PATH_MAX)
        return rt_fail(error, RT_CONFIG, "%s: %s is longer than %d bytes", path,
                       rt_config_show(value, shown), RT_PATH_MAX - 1);
    *(const char **)element = value->valuestring;
    return RT_OK;
}

static rt_status replace_files(char ***files_p, uint32_t *count_p, const void *elements,
                               uint32_t count)
{
    char **files;
    if (rt_config_copy_files(elements, count, &files))
        return RT_NO_MEMORY;
    rt_free(*files_p);
    *files_p = files;
    *count_p = count;
    return RT_OK;
}

static void write_paths(char **files, uint32_t count, rt_json *json, const char *name)
{
    rt_json_begin_array(json, name);
    for (uint32_t i = 0; i < count; i++)
        rt_json_string(json, NULL, files[i]);
    rt_json_end_array(json);
}

static rt_status take_files(rt_config *config, const void *elements, uint32_t count, bool is_alone,
                            const char *path, rt_error *error)
{
    (void)is_alone, (void)path, (void)error;
    return replace_files(&config->stream.files, &config->stream.file_count, elements, count);
}

static void write_files(const rt_config *config, rt_json *json, const char *name)
{
    write_paths(config->stream.files, config->stream.file_count, json, name);
}

static rt_status take_outcomes(rt_config *config, const void *elements, uint32_t count,
                               bool is_alone, const char *path, rt_error *error)
{
    rt_join_config *join = &config->stream.join;
    (void)is_alone, (void)path, (void)error;
    return replace_files(&join->files, &join->file_count, elements, count);
}

static void write_outcomes(const rt_config *config, rt_json *json, const char *name)
{
    write_paths(config->stream.join.files, config->stream.join.file_count, json, name);
}

_Static_assert(RT_FILES_MAX == 256, "the text below says so");
const rt_config_list rt_config_files = {
    .expected = "a path, or a list of at most 256 paths",
    .count_max = RT_FILES_MAX,
    .element_size = sizeof(char *),
    .element = read_file,
    .take = take_files,
    .write = write_files,
    .takes_text = true,
};
const rt_config_list rt_config_outcomes = {
    .expected = "a path, or a list of at most 256 paths",
    .count_max = RT_FILES_MAX,
    .element_size = sizeof(char *),
    .element = read_file,
    .take = take_outcomes,
    .write = write_outcomes,
    .takes_text = true,
};

// ---- model.embedding_dim ---------------------------------------------------------------------

static rt_status read_dim(void *element, const cJSON *value, const char *path, rt_error *error)
{
    static const rt_config_key dim = {.type = RT_KEY_U32, .min = 1, .max = 4096};
    return rt_config_value_read(&dim, element, value, path, error);
}

static rt_status take_dims(rt_config *config, const void *elements, uint32_t count, bool is_alone,
                           const char *path, rt_error *error)
{
    const uint32_t *dims = elements;
    rt_model_config *model = &config->model;
    (void)path, (void)error;
    memset(model->embedding_dims, 0, sizeof model->embedding_dims);
    model->embedding_dim = 0;
    model->embedding_dim_count = is_alone ? 0 : count;
    for (uint32_t i = 0; i < count; i++) {
        if (!is_alone)
            model->embedding_dims[i] = dims[i];
        model->embedding_dim = (uint32_t)rt_max_u64(model->embedding_dim, dims[i]);
    }
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
    .count_min = 1,
    .count_max = RT_FIELDS_MAX,
    .element_size = sizeof(uint32_t),
    .element = read_dim,
    .take = take_dims,
    .write = write_dims,
    .takes_number = true,
};

// ---- model.mlp -------------------------------------------------------------------------------

static rt_status read_width(void *element, const cJSON *value, const char *path, rt_error *error)
{
    static const rt_config_key width = {.type = RT_KEY_U32, .min = 1, .max = 65536};
    return rt_config_value_read(&width, element, value, path, error);
}

// Into widths (RT_MLP_LAYERS_MAX, the rest 0).
static void take_widths(uint32_t widths[RT_MLP_LAYERS_MAX], const void *elements, uint32_t count)
{
    memset(widths, 0, RT_MLP_LAYERS_MAX * sizeof *widths);
    memcpy(widths, elements, count * sizeof *widths);
}

static void write_widths(const uint32_t *widths, uint32_t count, rt_json *json, const char *name)
{
    rt_json_begin_array(json, name);
    for (uint32_t i = 0; i < count; i++)
        rt_json_u64(json, NULL, widths[i]);
    rt_json_end_array(json);
}

static rt_status take_mlp(rt_config *config, const void *elements, uint32_t count, bool is_alone,
                          const char *path, rt_error *error)
{
    (void)is_alone, (void)path, (void)error;
    take_widths(config->model.mlp, elements, count);
    config->model.mlp_layer_count = count;
    return RT_OK;
}

static void write_mlp(const rt_config *config, rt_json *json, const char *name)
{
    write_widths(config->model.mlp, config->model.mlp_layer_count, json, name);
}

static rt_status take_mlp_bottom(rt_config *config, const void *elements, uint32_t count,
                                 bool is_alone, const char *path, rt_error *error)
{
    (void)is_alone, (void)path, (void)error;
    take_widths(config->model.mlp_bottom, elements, count);
    config->model.mlp_bottom_layer_count = count;
    return RT_OK;
}

static void write_mlp_bottom(const rt_config *config, rt_json *json, const char *name)
{
    write_widths(config->model.mlp_bottom, config->model.mlp_bottom_layer_count, json, name);
}

_Static_assert(RT_MLP_LAYERS_MAX == 8, "the texts below say so");
const rt_config_list rt_config_mlp = {
    .expected = "a list of 1 to 8 integers in [1, 65536]",
    .count_min = 1,
    .count_max = RT_MLP_LAYERS_MAX,
    .element_size = sizeof(uint32_t),
    .element = read_width,
    .take = take_mlp,
    .write = write_mlp,
};
const rt_config_list rt_config_mlp_bottom = {
    .expected = "a list of at most 7 integers in [1, 65536]",
    .count_max = RT_MLP_LAYERS_MAX - 1,
    .element_size = sizeof(uint32_t),
    .element = read_width,
    .take = take_mlp_bottom,
    .write = write_mlp_bottom,
};

static rt_status take_attention(rt_config *config, const void *elements, uint32_t count,
                                bool is_alone, const char *path, rt_error *error)
{
    (void)is_alone, (void)path, (void)error;
    take_widths(config->model.attention, elements, count);
    config->model.attention_layer_count = count;
    return RT_OK;
}

static void write_attention(const rt_config *config, rt_json *json, const char *name)
{
    write_widths(config->model.attention, config->model.attention_layer_count, json, name);
}

const rt_config_list rt_config_attention = {
    .expected = "a list of 1 to 8 integers in [1, 65536]",
    .count_min = 1,
    .count_max = RT_MLP_LAYERS_MAX,
    .element_size = sizeof(uint32_t),
    .element = read_width,
    .take = take_attention,
    .write = write_attention,
};

// ---- links.workers ---------------------------------------------------------------------------

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

const rt_config_choice rt_config_link_transports[] = {
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
     .choices = rt_config_link_transports},
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

static rt_status read_link(void *element, const cJSON *value, const char *path, rt_error *error)
{
    char shown[RT_CONFIG_SHOWN_MAX];
    link_entry *entry = element;
    *entry = (link_entry){.count = 1, .transport = RT_NETWORK_UCX};
    if (!cJSON_IsObject(value)) {
        if (!cJSON_IsNumber(value))
            return rt_fail(error, RT_CONFIG, "%s: %s is no link, expected a number or an object",
                           path, rt_config_show(value, shown));
        return rt_config_value_read(&link_members[0], entry, value, path, error);
    }
    rt_status status = rt_config_members_read(link_members, entry, value, path, error);
    if (status)
        return status;
    bool both = entry->gbps > 0, up = entry->gbps_up > 0, down = entry->gbps_down > 0;
    if (both == up || both == down)
        return rt_fail(error, RT_CONFIG,
                       "%s: expected either \"gbps\", or \"gbps_up\" and \"gbps_down\"", path);
    return RT_OK;
}

static rt_status take_links(rt_config *config, const void *elements, uint32_t entry_count,
                            bool is_alone, const char *path, rt_error *error)
{
    const link_entry *entries = elements;
    rt_link_config links[RT_WORKERS_MAX] = {0};
    rt_network_transport transports[RT_WORKERS_MAX];
    uint32_t count = 0;
    (void)is_alone;
    for (uint32_t e = 0; e < entry_count; e++) {
        const link_entry *entry = &entries[e];
        if (entry->count > RT_WORKERS_MAX - count)
            return rt_fail(error, RT_CONFIG, "%s[%u]: more than %u links", path, e, RT_WORKERS_MAX);
        for (uint32_t i = 0; i < entry->count; i++, count++) {
            transports[count] = entry->transport;
            links[count] = (rt_link_config){entry->gbps_up, entry->gbps_down};
            if (entry->gbps > 0)
                links[count] = (rt_link_config){entry->gbps, entry->gbps};
        }
    }
    config->links.given_count = count;
    for (uint32_t i = 0; i < RT_WORKERS_MAX; i++) {
        config->links.transports[i] = i < count ? transports[i] : RT_NETWORK_UCX;
        config->links.workers[i] = count > 0 ? links[i] : (rt_link_config){1, 1};
    }
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
    .count_max = RT_WORKERS_MAX,
    .element_size = sizeof(link_entry),
    .element = read_link,
    .take = take_links,
    .write = write_links,
    .members = link_members,
};

// ---- network.ps ------------------------------------------------------------------------------

static rt_status read_shard(void *element, const cJSON *value, const char *path, rt_error *error)
{
    char shown[RT_CONFIG_SHOWN_MAX];
    if (!cJSON_IsString(value) || strlen(value->valuestring) >= RT_NAME_MAX)
        return rt_fail(error, RT_CONFIG, "%s: %s is no address, expected \"HOST:PORT\"", path,
                       rt_config_show(value, shown));
    snprintf(element, RT_NAME_MAX, "%s", value->valuestring);
    return RT_OK;
}

static rt_status take_shards(rt_config *config, const void *elements, uint32_t count, bool is_alone,
                             const char *path, rt_error *error)
{
    (void)is_alone, (void)path, (void)error;
    config->network_ps_count = count;
    memset(config->network_ps, 0, sizeof config->network_ps);
    memcpy(config->network_ps, elements, count * sizeof *config->network_ps);
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
    .count_max = RT_SHARDS_MAX,
    .element_size = RT_NAME_MAX,
    .element = read_shard,
    .take = take_shards,
    .write = write_shards,
    .takes_text = true,
};

// ---- consistency.staleness -------------------------------------------------------------------

static rt_status read_staleness(void *element, const cJSON *value, const char *path,
                                rt_error *error)
{
    static const rt_config_key bound = {
        .type = RT_KEY_U32, .min = 0, .max = RT_STALENESS_INF - 1.0};
    rt_consistency_config *one = element;
    char shown[RT_CONFIG_SHOWN_MAX];
    *one = (rt_consistency_config){.bounded = true, .staleness = RT_STALENESS_INF};
    if (!cJSON_IsString(value))
        return rt_config_value_read(&bound, &one->staleness, value, path, error);
    if (strcmp(value->valuestring, "off") == 0)
        *one = (rt_consistency_config){0};
    else if (strcmp(value->valuestring, "inf") != 0)
        return rt_fail(error, RT_CONFIG, "%s: %s, expected %s", path, rt_config_show(value, shown),
                       rt_config_staleness.expected);
    return RT_OK;
}

static rt_status take_staleness(rt_config *config, const void *elements, uint32_t count,
                                bool is_alone, const char *path, rt_error *error)
{
    (void)count; // 1
    if (!is_alone)
        return rt_fail(error, RT_CONFIG, "%s: a list, expected %s", path,
                       rt_config_staleness.expected);
    config->consistency = *(const rt_consistency_config *)elements;
    return RT_OK;
}

static void write_staleness(const rt_config *config, rt_json *json, const char *name)
{
    const rt_consistency_config *consistency = &config->consistency;
    if (consistency->bounded && consistency->staleness != RT_STALENESS_INF)
        rt_json_u64(json, name, consistency->staleness);
    else
        rt_json_string(json, name, consistency->bounded ? "inf" : "off");
}

const rt_config_list rt_config_staleness = {
    .expected = "\"off\", \"inf\", or a number of iterations below 2^32 - 1",
    .count_min = 1,
    .count_max = 1,
    .element_size = sizeof(rt_consistency_config),
    .element = read_staleness,
    .take = take_staleness,
    .write = write_staleness,
    .takes_text = true,
    .takes_number = true,
};

// ---- dispatch.participants -------------------------------------------------------------------

// By rt_participants.
static const char *const participants_words[] = {"all", "auto", "rotate"};

typedef struct {
    rt_participants word; // RT_PARTICIPANTS_LIST: a rank
    uint32_t rank;
} participant;

static rt_status read_participant(void *element, const cJSON *value, const char *path,
                                  rt_error *error)
{
    static const rt_config_key rank = {.type = RT_KEY_U32, .min = 0, .max = RT_WORKERS_MAX - 1};
    participant *one = element;
    char shown[RT_CONFIG_SHOWN_MAX];
    one->word = RT_PARTICIPANTS_LIST;
    if (!cJSON_IsString(value))
        return rt_config_value_read(&rank, &one->rank, value, path, error);
    for (uint32_t i = 0; i < RT_COUNT_OF(participants_words); i++) {
        if (strcmp(value->valuestring, participants_words[i]) == 0)
            one->word = (rt_participants)i;
    }
    if (one->word != RT_PARTICIPANTS_LIST)
        return RT_OK;
    return rt_fail(error, RT_CONFIG, "%s: %s, expected %s", path, rt_config_show(value, shown),
                   rt_config_participants.expected);
}

static rt_status take_participants(rt_config *config, const void *elements, uint32_t count,
                                   bool is_alone, const char *path, rt_error *error)
{
    const participant *items = elements;
    uint64_t ranks = 0;
    for (uint32_t i = 0; i < count; i++) {
        const bool is_rank = items[i].word == RT_PARTICIPANTS_LIST;
        const char *why = NULL;
        if (!is_rank && !is_alone)
            why = "is a word";
        if (is_rank && ranks >> items[i].rank & 1)
            why = "stands there already";
        if (why)
            return rt_fail(error, RT_CONFIG, "%s[%" PRIu32 "]: %s, expected %s", path, i, why,
                           rt_config_participants.expected);
        if (is_rank)
            ranks |= rt_bit(items[i].rank);
    }
    config->dispatch.participants = items[0].word;
    config->dispatch.participant_mask = ranks;
    return RT_OK;
}

static void write_participants(const rt_config *config, rt_json *json, const char *name)
{
    if (config->dispatch.participants != RT_PARTICIPANTS_LIST) {
        rt_json_string(json, name, participants_words[config->dispatch.participants]);
        return;
    }
    rt_json_begin_array(json, name);
    for (uint64_t rest = config->dispatch.participant_mask; rest; rest &= rest - 1)
        rt_json_u64(json, NULL, rt_lowest_bit(rest));
    rt_json_end_array(json);
}

_Static_assert(RT_WORKERS_MAX == 64, "the text below says so");
const rt_config_list rt_config_participants = {
    .expected = "\"all\", \"auto\", \"rotate\", or a list of at most 64 different ranks",
    .count_min = 1,
    .count_max = RT_WORKERS_MAX,
    .element_size = sizeof(participant),
    .element = read_participant,
    .take = take_participants,
    .write = write_participants,
    .takes_text = true,
};
