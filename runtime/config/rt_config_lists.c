// Lists: read, written, copied and given back by what a list says of its elements, wherever they
// are; and the lists that have no file of their own.
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "runtime/config/rt_config_rows.h"

#define OBJECT link_entry

// ---- any list ----------------------------------------------------------------------------------

// Of texts that a list owns pointers are stored.
static bool has_texts(const rt_config_list *list)
{
    return list->is_owned && list->element && list->element->type == RT_KEY_TEXT;
}

static bool may_stand_alone(const rt_config_list *list, const cJSON *value)
{
    if (!list->takes_one || !list->element)
        return false;
    if (list->element->type == RT_KEY_TEXT)
        return cJSON_IsString(value);
    return cJSON_IsNumber(value);
}

static const char *word_of(const rt_config_list *list, const cJSON *value)
{
    for (const char *const *word = list->words; word && *word && cJSON_IsString(value); word++)
        if (strcmp(*word, value->valuestring) == 0)
            return *word;
    return NULL;
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

rt_status rt_config_entry_read(const rt_config_list *list, void *element, const cJSON *value,
                               const char *path, rt_error *error)
{
    char shown[RT_CONFIG_SHOWN_MAX];
    if (!cJSON_IsObject(value))
        return rt_fail(error, RT_CONFIG, "%s: %s is no %s, expected %s", path,
                       rt_config_show(value, shown), list->kind, list->form);
    const rt_status status = rt_config_members_read(list->members, element, value, path, error);
    if (status || !list->check)
        return status;
    return list->check(element, value, path, error);
}

static rt_status read_text(const rt_config_list *list, void *element, const cJSON *value,
                           const char *path, rt_error *error)
{
    char shown[RT_CONFIG_SHOWN_MAX];
    const rt_config_key *key = list->element;
    if (!cJSON_IsString(value) || strlen(value->valuestring) < (size_t)key->min)
        return rt_fail(error, RT_CONFIG, "%s: %s is no %s, expected %s", path,
                       rt_config_show(value, shown), list->kind, list->form);
    if (strlen(value->valuestring) >= key->size)
        return rt_fail(error, RT_CONFIG, "%s: %s is longer than %" PRIu32 " bytes", path,
                       rt_config_show(value, shown), key->size - 1);
    if (list->is_owned)
        *(const char **)element = value->valuestring;
    else
        snprintf(element, key->size, "%s", value->valuestring);
    return RT_OK;
}

static rt_status read_element(const rt_config_list *list, void *element, const cJSON *value,
                              const char *path, rt_error *error)
{
    if (word_of(list, value))
        return rt_fail(error, RT_CONFIG, "%s: is a word, expected %s", path, list->expected);
    if (list->kind && list->element && list->element->type == RT_KEY_TEXT)
        return read_text(list, element, value, path, error);
    const bool fits = list->element && (!list->members || cJSON_IsNumber(value));
    if (!fits)
        return rt_config_entry_read(list, element, value, path, error);
    if (list->members && rt_config_value_defaults(list->members, element))
        return RT_NO_MEMORY;
    return rt_config_value_read(list->element, element, value, path, error);
}

static double number_of(const rt_config_key *element, const uint8_t *at)
{
    if (element->type == RT_KEY_U64)
        return (double)*(const uint64_t *)(const void *)at;
    return *(const double *)(const void *)at;
}

static rt_status check_rise(const rt_config_key *key, const uint8_t *elements, uint32_t count,
                            const char *path, rt_error *error)
{
    const rt_config_list *list = key->list;
    for (uint32_t i = 1; list->rises && i < count; i++) {
        const uint8_t *at = elements + (size_t)i * key->size;
        if (!(number_of(list->element, at - key->size) < number_of(list->element, at)))
            return rt_fail(error, RT_CONFIG, "%s[%u]: is not above the %s before it", path, i,
                           list->rises);
    }
    return RT_OK;
}

// Copies texts and pointers to them into one block.
static void *pack(const char *const *texts, uint32_t count)
{
    size_t size = 0;
    for (uint32_t i = 0; i < count; i++)
        size += strlen(texts[i]) + 1;
    char **block = rt_alloc(1, count * sizeof *block + size);
    char *text = (char *)(block + count);
    for (uint32_t i = 0; block && i < count; i++) {
        size = strlen(texts[i]) + 1;
        block[i] = memcpy(text, texts[i], size);
        text += size;
    }
    return block;
}

// A block for count elements; NULL of none.
static rt_status copy_block(const rt_config_key *key, const void *elements, uint32_t count,
                            void **block_p)
{
    void *block = NULL;
    if (count > 0 && has_texts(key->list))
        block = pack(elements, count);
    else if (count > 0)
        block = rt_alloc(count, key->size);
    if (count > 0 && !block)
        return RT_NO_MEMORY;
    if (block && !has_texts(key->list))
        memcpy(block, elements, (size_t)count * key->size);
    *block_p = block;
    return RT_OK;
}

static uint32_t *count_at(const rt_config_key *key, const void *base)
{
    return (uint32_t *)(uintptr_t)((const uint8_t *)base + key->count_offset);
}

static void **block_at(const rt_config_key *key, const void *base)
{
    return (void **)(uintptr_t)((const uint8_t *)base + key->offset);
}

static rt_status store(const rt_config_key *key, void *base, const void *elements, uint32_t count)
{
    void *block = NULL;
    uint8_t *at = (uint8_t *)base + key->offset;
    if (key->list->is_owned) {
        const rt_status status = copy_block(key, elements, count, &block);
        if (status)
            return status;
        rt_free(*block_at(key, base));
        *block_at(key, base) = block;
    } else {
        memset(at, 0, (size_t)key->list->count_max * key->size);
        memcpy(at, elements, (size_t)count * key->size);
    }
    *count_at(key, base) = count;
    return RT_OK;
}

static rt_status read_elements(const rt_config_list *list, uint8_t *elements, size_t size,
                               const cJSON *array, const char *path, rt_error *error)
{
    char at[RT_CONFIG_KEY_PATH_MAX];
    uint32_t i = 0;
    for (const cJSON *one = array->child; one; one = one->next, i++) {
        snprintf(at, sizeof at, "%.100s[%u]", path, i);
        const rt_status status = read_element(list, elements + i * size, one, at, error);
        if (status)
            return status;
    }
    return RT_OK;
}

static rt_status take(const rt_config_key *key, void *base, const rt_config_elements *read,
                      const char *path, rt_error *error)
{
    const rt_status status = check_rise(key, read->elements, read->count, path, error);
    if (status)
        return status;
    if (key->list->take)
        return key->list->take(base, read, path, error);
    return store(key, base, read->elements, read->count);
}

rt_status rt_config_list_read(const rt_config_key *key, void *base, const cJSON *value,
                              const char *path, rt_error *error)
{
    const rt_config_list *list = key->list;
    char at[RT_CONFIG_KEY_PATH_MAX], shown[RT_CONFIG_SHOWN_MAX];
    rt_config_elements read = {.is_alone = may_stand_alone(list, value),
                               .word = word_of(list, value)};
    if (read.word)
        return take(key, base, &read, path, error);
    const bool takes_number = list->takes_one && list->element->type != RT_KEY_TEXT;
    if (!read.is_alone && !cJSON_IsArray(value))
        return rt_fail(error, RT_CONFIG, "%s: %s is not a %s, expected %s", path,
                       rt_config_show(value, shown), takes_number ? "number" : "list",
                       list->expected);
    read.count = read.is_alone ? 1 : (uint32_t)cJSON_GetArraySize(value);
    rt_status status = check_length(list, read.count, path, error);
    if (status)
        return status;
    const size_t size = list->entry_size ? list->entry_size : key->size;
    uint8_t *elements = rt_alloc(read.count + 1u, size);
    if (!elements)
        return RT_NO_MEMORY;
    read.elements = elements;
    snprintf(at, sizeof at, "%.120s", path);
    if (read.is_alone)
        status = read_element(list, elements, value, at, error);
    else
        status = read_elements(list, elements, size, value, path, error);
    if (!status)
        status = take(key, base, &read, path, error);
    rt_free(elements);
    return status;
}

// ---- written -----------------------------------------------------------------------------------

static const uint8_t *elements_of(const rt_config_key *key, const void *base)
{
    if (key->list->is_owned)
        return *block_at(key, base);
    return (const uint8_t *)base + key->offset;
}

static bool is_same(const rt_config_key *key, const void *one, const void *other)
{
    static const uint8_t sizes[] = {
        [RT_KEY_BOOL] = sizeof(bool),     [RT_KEY_U32] = sizeof(uint32_t),
        [RT_KEY_U64] = sizeof(uint64_t),  [RT_KEY_FLOAT] = sizeof(float),
        [RT_KEY_DOUBLE] = sizeof(double), [RT_KEY_CHARACTER] = 1,
        [RT_KEY_CHOICE] = sizeof(int)};
    const char *at = (const char *)one + key->offset, *at2 = (const char *)other + key->offset;
    if (key->type == RT_KEY_TEXT)
        return strcmp(at, at2) == 0;
    if (key->type != RT_KEY_LIST)
        return memcmp(at, at2, sizes[key->type]) == 0;
    const uint32_t count = *count_at(key, one);
    return count == *count_at(key, other) &&
           memcmp(elements_of(key, one), elements_of(key, other), (size_t)count * key->size) == 0;
}

void rt_config_members_write(const rt_config_key *members, const void *element, const char *but,
                             rt_json *json)
{
    uint64_t plain[RT_CONFIG_ENTRY_MAX / sizeof(uint64_t)] = {0};
    const rt_status status = rt_config_value_defaults(members, plain);
    for (const rt_config_key *key = members; key->path; key++) {
        if (key->is_short || (but && strcmp(but, key->path) == 0))
            continue;
        if (status || !key->is_brief || !is_same(key, element, plain))
            rt_config_value_write(key, element, json, key->path);
    }
}

void rt_config_list_write(const rt_config_key *key, const void *base, rt_json *json,
                          const char *name)
{
    const rt_config_list *list = key->list;
    if (list->write) {
        list->write(base, json, name);
        return;
    }
    const uint8_t *at = elements_of(key, base);
    rt_json_begin_array(json, name);
    for (uint32_t i = 0; i < *count_at(key, base); i++, at += key->size) {
        if (has_texts(list)) {
            rt_json_string(json, NULL, *(char *const *)(const void *)at);
        } else if (!list->members) {
            rt_config_value_write(list->element, at, json, NULL);
        } else {
            rt_json_begin_object(json, NULL);
            rt_config_members_write(list->members, at, NULL, json);
            rt_json_end_object(json);
        }
    }
    rt_json_end_array(json);
}

// ---- copied and given back ---------------------------------------------------------------------

// The next key from at on that owns a block; NULL: none does.
static const rt_config_key *next_owner(const rt_config_key *at)
{
    while (at->path && !(at->list && at->list->is_owned))
        at++;
    return at->path ? at : NULL;
}

void rt_config_lists_free(rt_config *config)
{
    for (const rt_config_key *key = rt_config_keys; (key = next_owner(key)); key++) {
        rt_free(*block_at(key, config));
        *block_at(key, config) = NULL;
    }
}

rt_status rt_config_lists_copy(const rt_config *from, rt_config *to)
{
    rt_status status = RT_OK;
    for (const rt_config_key *key = rt_config_keys; (key = next_owner(key)); key++)
        *block_at(key, to) = NULL;
    for (const rt_config_key *key = rt_config_keys; !status && (key = next_owner(key)); key++)
        status = copy_block(key, *block_at(key, from), *count_at(key, from), block_at(key, to));
    if (status)
        rt_config_lists_free(to);
    return status;
}

rt_status rt_config_copy_columns(const rt_column *columns, uint32_t count, rt_column **copy_p)
{
    *copy_p = NULL;
    if (count == 0)
        return RT_OK;
    *copy_p = rt_alloc(count, sizeof **copy_p);
    if (!*copy_p)
        return RT_NO_MEMORY;
    memcpy(*copy_p, columns, count * sizeof **copy_p);
    return RT_OK;
}

// ---- numbers, paths, addresses -----------------------------------------------------------------

_Static_assert(RT_FILES_MAX == 256, "the text says so");
static const rt_config_key a_path = {.type = RT_KEY_TEXT, .size = RT_PATH_MAX, .min = 1};
const rt_config_list rt_config_files = {
    .expected = "a path, or a list of at most 256 paths",
    .count_max = RT_FILES_MAX,
    .element = &a_path,
    .kind = "path",
    .form = "a string",
    .is_owned = true,
    .takes_one = true,
};

_Static_assert(RT_SHARDS_MAX == 16, "the text says so");
static const rt_config_key an_address = {.type = RT_KEY_TEXT, .size = RT_NAME_MAX};
const rt_config_list rt_config_shards = {
    .expected = "an address, or a list of at most 16 addresses",
    .count_max = RT_SHARDS_MAX,
    .element = &an_address,
    .kind = "address",
    .form = "\"HOST:PORT\"",
    .takes_one = true,
};

_Static_assert(RT_MLP_LAYERS_MAX == 8, "the texts say so");
static const rt_config_key a_width = {.type = RT_KEY_U32, IN(1, 65536)};
const rt_config_list rt_config_mlp = {
    .expected = "a list of 1 to 8 integers in [1, 65536]",
    .count_min = 1,
    .count_max = RT_MLP_LAYERS_MAX,
    .element = &a_width,
};
const rt_config_list rt_config_mlp_bottom = {
    .expected = "a list of at most 7 integers in [1, 65536]",
    .count_max = RT_MLP_LAYERS_MAX - 1,
    .element = &a_width,
};

// ---- model.embedding_dim: one number, or a list ------------------------------------------------

static rt_status take_dims(rt_config *config, const rt_config_elements *read, const char *at,
                           rt_error *error)
{
    const uint32_t *dims = read->elements;
    rt_model_config *model = &config->model;
    (void)at, (void)error;
    memset(model->embedding_dims, 0, sizeof model->embedding_dims);
    model->embedding_dim = 0;
    model->embedding_dim_count = read->is_alone ? 0 : read->count;
    for (uint32_t i = 0; i < read->count; i++) {
        if (!read->is_alone)
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

_Static_assert(RT_FIELDS_MAX == 256, "the text says so");
static const rt_config_key a_dim = {.type = RT_KEY_U32, IN(1, 4096)};
const rt_config_list rt_config_dims = {
    .expected = "an integer in [1, 4096], or a list of at most 256 of them",
    .count_min = 1,
    .count_max = RT_FIELDS_MAX,
    .element = &a_dim,
    .takes_one = true,
    .take = take_dims,
    .write = write_dims,
};

// ---- links.workers: each as often as it says ---------------------------------------------------

typedef struct {
    rt_link_config link;
    uint32_t count;
} link_entry;

const rt_config_choice rt_config_link_transports[] = {
    {"ucx", RT_NETWORK_UCX, "UCX"}, {"zmq", RT_NETWORK_ZMQ, "ZeroMQ"}, {0}};

static const rt_config_key link_members[] = {
    {ROW("gbps", RT_KEY_DOUBLE, NULL, "Gbit/s", "Rate both ways; or"), ABOVE(0, 1e4),
     .offset = OFFSET(link.gbps_up, double), .also_offset = OFFSET(link.gbps_down, double),
     .is_short = true},
    DOUBLE("gbps_up", link.gbps_up, NULL, ABOVE(0, 1e4), "Gbit/s", "rate from the worker, and"),
    DOUBLE("gbps_down", link.gbps_down, NULL, ABOVE(0, 1e4), "Gbit/s", "rate to the worker."),
    CHOICE("transport", link.transport, rt_network_transport, "\"ucx\"", rt_config_link_transports,
           "Transport of the worker, if `network.transport` is `mixed`."),
    {ROW("count", RT_KEY_U32, "1", "workers", "Number of workers with such a link."),
     IN(1, RT_WORKERS_MAX), .offset = OFFSET(count, uint32_t), .is_short = true},
    {0},
};

rt_status rt_config_check_rates(const void *element, const cJSON *value, const char *at,
                                rt_error *error)
{
    (void)element;
    const bool both = cJSON_GetObjectItemCaseSensitive(value, "gbps");
    const bool up = cJSON_GetObjectItemCaseSensitive(value, "gbps_up");
    const bool down = cJSON_GetObjectItemCaseSensitive(value, "gbps_down");
    if (both == up || both == down)
        return rt_fail(error, RT_CONFIG,
                       "%s: expected either \"gbps\", or \"gbps_up\" and \"gbps_down\"", at);
    return RT_OK;
}

static rt_status take_links(rt_config *config, const rt_config_elements *read, const char *at,
                            rt_error *error)
{
    const link_entry *entries = read->elements;
    rt_link_config links[RT_WORKERS_MAX];
    uint32_t count = 0;
    for (uint32_t e = 0; e < read->count; e++) {
        if (entries[e].count > RT_WORKERS_MAX - count)
            return rt_fail(error, RT_CONFIG, "%s[%u]: more than %u links", at, e, RT_WORKERS_MAX);
        for (uint32_t i = 0; i < entries[e].count; i++)
            links[count++] = entries[e].link;
    }
    config->links.given_count = count;
    if (!config->has_workers && config->box_count == 0)
        config->worker_count = count > 0 ? count : 1;
    for (uint32_t i = 0; i < RT_WORKERS_MAX; i++) {
        const rt_link_config other = {.transport = RT_NETWORK_UCX};
        config->links.workers[i] = i < count ? links[i] : other;
        if (count == 0)
            config->links.workers[i].gbps_up = config->links.workers[i].gbps_down = 1;
    }
    return RT_OK;
}

_Static_assert(RT_WORKERS_MAX == 64, "the text says so");
const rt_config_list rt_config_links = {
    .expected = "a list of numbers or objects for at most 64 links",
    .count_max = RT_WORKERS_MAX,
    .element = &link_members[0],
    .members = link_members,
    .kind = "link",
    .form = "a number or an object",
    .entry_size = sizeof(link_entry),
    .check = rt_config_check_rates,
    .take = take_links,
};

// ---- consistency.staleness: a number or a word -------------------------------------------------

static const char *const staleness_words[] = {"off", "inf", "auto", NULL};

static rt_status take_staleness(rt_config *config, const rt_config_elements *read, const char *at,
                                rt_error *error)
{
    rt_consistency_config one = {.bounded = true, .staleness = RT_STALENESS_INF};
    if (read->word && read->word != staleness_words[1])
        one = (rt_consistency_config){0};
    else if (!read->word && !read->is_alone)
        return rt_fail(error, RT_CONFIG, "%s: a list, expected %s", at,
                       rt_config_staleness.expected);
    else if (!read->word)
        one.staleness = *(const uint32_t *)read->elements;
    config->consistency = one;
    config->consistency_auto = read->word && read->word == staleness_words[2];
    return RT_OK;
}

static void write_staleness(const rt_config *config, rt_json *json, const char *name)
{
    const rt_consistency_config *consistency = &config->consistency;
    if (config->consistency_auto)
        rt_json_string(json, name, staleness_words[2]);
    else if (consistency->bounded && consistency->staleness != RT_STALENESS_INF)
        rt_json_u64(json, name, consistency->staleness);
    else
        rt_json_string(json, name, staleness_words[consistency->bounded]);
}

static const rt_config_key a_bound = {.type = RT_KEY_U32, IN(0, RT_STALENESS_INF - 1.0)};
const rt_config_list rt_config_staleness = {
    .expected = "\"auto\", \"off\", \"inf\", or a number of iterations below 2^32 - 1",
    .count_min = 1,
    .count_max = 1,
    .element = &a_bound,
    .takes_one = true,
    .words = staleness_words,
    .take = take_staleness,
    .write = write_staleness,
};

// ---- dispatch.participants: ranks or a word ----------------------------------------------------

// By rt_participants.
static const char *const participants_words[] = {"all", "auto", "rotate", NULL};

static rt_status take_participants(rt_config *config, const rt_config_elements *read,
                                   const char *at, rt_error *error)
{
    const uint32_t *items = read->elements;
    uint64_t ranks = 0;
    rt_participants word = RT_PARTICIPANTS_LIST;
    for (uint32_t i = 0; i < read->count; i++) {
        if (ranks >> items[i] & 1)
            return rt_fail(error, RT_CONFIG, "%s[%" PRIu32 "]: is listed twice, expected %s", at, i,
                           rt_config_participants.expected);
        ranks |= rt_bit(items[i]);
    }
    for (uint32_t i = 0; read->word && i < RT_PARTICIPANTS_LIST; i++)
        if (read->word == participants_words[i])
            word = (rt_participants)i;
    config->dispatch.participants = word;
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

static const rt_config_key a_rank = {.type = RT_KEY_U32, IN(0, RT_WORKERS_MAX - 1)};
const rt_config_list rt_config_participants = {
    .expected = "\"all\", \"auto\", \"rotate\", or a list of at most 64 different ranks",
    .count_min = 1,
    .count_max = RT_WORKERS_MAX,
    .element = &a_rank,
    .words = participants_words,
    .take = take_participants,
    .write = write_participants,
};
