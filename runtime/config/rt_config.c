#include "runtime/config/rt_config.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/config/rt_config_keys.h"
#include "runtime/config/rt_formats.h"
#include "runtime/config/rt_policies.h"
#include "runtime/rt_hash.h"

#define FILE_BYTES_MAX (1u << 20)
#define INCLUDE_DEPTH_MAX 8

// A file being read, and those that include it.
typedef struct include_chain {
    const struct include_chain *parent;
    uint32_t depth;
    dev_t device;
    ino_t inode;
} include_chain;

// What no key sets. Objects take these values with the others, and tests give them other ones.
static void set_constants(rt_config *config)
{
    rt_optimizer_config *const optimizers[] = {&config->optimizer_rows, &config->optimizer_dense};
    for (size_t i = 0; i < RT_COUNT_OF(optimizers); i++) {
        optimizers[i]->epsilon = 1e-10f; // only keeps a division by 0 away
        optimizers[i]->beta1 = 0.9f;     // Kingma and Ba, ICLR 2015
        optimizers[i]->beta2 = 0.999f;
        optimizers[i]->beta = 1;            // good enough, McMahan et al., KDD 2013
        optimizers[i]->decay_floor = 0.01f; // so that a run that goes on still learns
        optimizers[i]->momentum = 0.9f;     // what everybody takes, and the rate makes up for
    }
    config->dispatch.alpha_share = 0.5;         // decisions run beside iterations, which vary
    config->network_message_bytes = 256 * 1024; // beyond it nothing is gained
    config->run_ahead = 2;                 // one trains, one receives its rows, one is on its way
    config->guard_bad_batches_max = 100;   // more are no accident any more
    config->publish.guard_samples = 20000; // log loss is known to about a hundredth then
    // Whoever is told of an alert (alerts.command) knows which one it is, and may pass over it.
    config->alerts.every_s = 600;
    config->alerts.malformed_share = 0.05; // complete() has more
    config->alerts.loss_drift = 1.2;       // less is what other hours of a day do
    config->alerts.link_share = 0.5;
    config->alerts.checkpoint_age = 3;
    config->alerts.memory_share = 0.9;
}

rt_status rt_config_init(rt_config *config)
{
    rt_config fresh = {0};
    set_constants(&fresh);
    rt_status status = rt_config_value_defaults(rt_config_keys, &fresh);
    rt_assert(!status || status == RT_NO_MEMORY);
    if (status) {
        rt_config_fini(&fresh);
        return status;
    }
    *config = fresh;
    return RT_OK;
}

void rt_config_fini(rt_config *config)
{
    rt_config_lists_free(config);
    *config = (rt_config){0};
}

rt_status rt_config_copy(const rt_config *config, rt_config *copy)
{
    rt_config fresh = *config;
    const rt_status status = rt_config_lists_copy(config, &fresh);
    if (!status)
        *copy = fresh;
    return status;
}

static rt_status read_section(rt_config *config, const cJSON *object, const char *section,
                              rt_error *error);

static rt_status read_any(rt_config *config, const cJSON *value, const char *path, rt_error *error)
{
    char shown[RT_CONFIG_SHOWN_MAX];
    const rt_config_key *key = rt_config_find(path);
    config->has_workers |= strcmp(path, "workers") == 0;
    if (key)
        return rt_config_value_read(key, config, value, path, error);
    if (!rt_config_is_section(path))
        return rt_config_unknown(rt_config_keys, path, error);
    if (!cJSON_IsObject(value))
        return rt_config_not_section(path, rt_config_show(value, shown),
                                     cJSON_GetStringValue(value), error);
    return read_section(config, value, path, error);
}

// Sections nest as deeply as paths in the table do, and no deeper.
static rt_status read_section(rt_config *config, const cJSON *object, const char *section,
                              rt_error *error)
{
    char path[RT_CONFIG_KEY_PATH_MAX];
    for (const cJSON *value = object->child; value; value = value->next) {
        rt_config_join(path, section, value->string);
        if (strchr(value->string, '.'))
            return rt_fail(error, RT_CONFIG, "%s: a key in a file has no dots: nest objects", path);
        rt_status status = rt_config_reject_duplicate(object, value, path, error);
        if (!status)
            status = read_any(config, value, path, error);
        if (status)
            return status;
    }
    return RT_OK;
}

// All bytes of a regular file and a zero behind them.
static rt_status read_bytes(int file, char **text_p, size_t *size_p, rt_error *error)
{
    size_t size = 0;
    char *text = rt_alloc(1, FILE_BYTES_MAX + 2);
    if (!text)
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    while (size <= FILE_BYTES_MAX) {
        ssize_t got = read(file, text + size, FILE_BYTES_MAX + 1 - size);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0) {
            int cause = errno;
            rt_free(text);
            return rt_fail(error, RT_IO, "cannot be read: %s", strerror(cause));
        }
        if (got == 0)
            break;
        size += (size_t)got;
    }
    if (size > FILE_BYTES_MAX) {
        rt_free(text);
        return rt_fail(error, RT_CONFIG, "larger than %u bytes: not a configuration",
                       FILE_BYTES_MAX);
    }
    text[size] = '\0';
    *text_p = text;
    *size_p = size;
    return RT_OK;
}

static rt_status open_file(const char *path, include_chain *link, int *file_p, rt_error *error)
{
    struct stat info;
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); // opening a pipe must not wait
    if (file < 0)
        return rt_fail(error, RT_IO, "cannot be opened: %s", strerror(errno));
    if (fstat(file, &info) != 0 || !S_ISREG(info.st_mode)) {
        close(file);
        return rt_fail(error, RT_IO, "not a regular file");
    }
    link->device = info.st_dev;
    link->inode = info.st_ino;
    for (const include_chain *above = link->parent; above; above = above->parent) {
        if (above->device == link->device && above->inode == link->inode) {
            close(file);
            return rt_fail(error, RT_CONFIG, "includes itself");
        }
    }
    *file_p = file;
    return RT_OK;
}

static rt_status load_file(rt_config *config, const char *path, const include_chain *parent,
                           rt_error *error);

// "include" of the file at path, if there is one: its path, to be loaded first.
static rt_status load_include(rt_config *config, const cJSON *tree, const char *path,
                              const include_chain *link, rt_error *error)
{
    char target[RT_PATH_MAX], shown[RT_CONFIG_SHOWN_MAX];
    const cJSON *include = cJSON_GetObjectItemCaseSensitive(tree, "include");
    if (!include)
        return RT_OK;
    if (!cJSON_IsString(include) || !include->valuestring[0])
        return rt_fail(error, RT_CONFIG, "include: %s is no path, expected a string",
                       rt_config_show(include, shown));
    if (link->depth >= INCLUDE_DEPTH_MAX)
        return rt_fail(error, RT_CONFIG, "include: files include each other more than %d deep",
                       INCLUDE_DEPTH_MAX);
    const char *slash = strrchr(path, '/');
    int folder = 0;
    if (slash && include->valuestring[0] != '/')
        folder = (int)(slash + 1 - path);
    int length = snprintf(target, sizeof target, "%.*s%s", folder, path, include->valuestring);
    if (length < 0 || (size_t)length >= sizeof target)
        return rt_fail(error, RT_CONFIG, "include: %s is longer than %d bytes",
                       rt_config_show(include, shown), RT_PATH_MAX - 1);
    rt_status status = load_file(config, target, link, error);
    if (status)
        return rt_fail_in(error, "include");
    return RT_OK;
}

// Other keys follow from the boxes, so they are read first: a key of the same file that says
// something else shows (rt_config_check_boxes), wherever it stands.
static rt_status read_boxes(rt_config *config, cJSON *tree, rt_error *error)
{
    cJSON *boxes = cJSON_GetObjectItemCaseSensitive(tree, "boxes");
    if (!boxes)
        return RT_OK;
    rt_status status = read_any(config, boxes, "boxes", error);
    cJSON_DeleteItemFromObjectCaseSensitive(tree, "boxes");
    if (!status && cJSON_GetObjectItemCaseSensitive(tree, "boxes"))
        return rt_fail(error, RT_CONFIG, "boxes: stands twice in its object");
    return status;
}

static rt_status load_tree(rt_config *config, cJSON *tree, const char *path,
                           const include_chain *link, rt_error *error)
{
    char shown[RT_CONFIG_SHOWN_MAX];
    if (!cJSON_IsObject(tree))
        return rt_fail(error, RT_CONFIG, "line 1, column 1: %s, expected an object",
                       rt_config_show(tree, shown));
    rt_status status = load_include(config, tree, path, link, error);
    if (status)
        return status;
    cJSON_DeleteItemFromObjectCaseSensitive(tree, "include");
    if (cJSON_GetObjectItemCaseSensitive(tree, "include"))
        return rt_fail(error, RT_CONFIG, "include: stands twice in its object");
    status = rt_config_check_version(tree, error);
    if (status)
        return status;
    status = rt_config_modernise(tree, path, error);
    if (status)
        return status;
    status = read_boxes(config, tree, error);
    if (status)
        return status;
    return read_section(config, tree, "", error);
}

// The tree is the caller's; the error does not name the file.
static rt_status parse_file(const char *path, include_chain *link, cJSON **tree_p, rt_error *error)
{
    int file = -1;
    char *text = NULL;
    size_t size = 0;
    rt_status status = open_file(path, link, &file, error);
    if (status)
        return status;
    status = read_bytes(file, &text, &size, error);
    close(file);
    if (status)
        return status;
    status = rt_config_parse(text, size, tree_p, error);
    rt_free(text);
    return status;
}

static rt_status load_file(rt_config *config, const char *path, const include_chain *parent,
                           rt_error *error)
{
    cJSON *tree = NULL;
    include_chain link = {.parent = parent};
    if (parent)
        link.depth = parent->depth + 1;
    rt_status status = parse_file(path, &link, &tree, error);
    if (!status)
        status = load_tree(config, tree, path, &link, error);
    cJSON_Delete(tree);
    if (status)
        return rt_fail_in(error, "%s", path);
    return RT_OK;
}

rt_status rt_config_migrate(const char *path, char **json_p, rt_error *error)
{
    rt_config unused;
    cJSON *tree = NULL;
    include_chain link = {0};
    rt_status status = rt_config_init(&unused);
    if (status)
        return rt_fail(error, status, "%s: out of memory", path);
    status = rt_config_load(&unused, path, error); // says what is wrong with it
    rt_config_fini(&unused);
    if (status)
        return status;
    status = parse_file(path, &link, &tree, error);
    if (!status)
        status = rt_config_check_version(tree, error);
    if (!status)
        status = rt_config_modernise(tree, NULL, error);
    if (!status && rt_config_print_modern(tree, json_p))
        status = rt_fail(error, RT_NO_MEMORY, "out of memory");
    cJSON_Delete(tree);
    if (status)
        return rt_fail_in(error, "%s", path);
    return RT_OK;
}

// A system of a paper is a placement with an eviction and a consistency: those that nobody gave
// follow from it.
static void follow_policy(rt_config *config)
{
    const rt_policy_kind policy = config->dispatch.policy;
    const bool is_het = policy == RT_POLICY_HET;
    if (config->cache.eviction_given != RT_EVICT_AUTO)
        config->cache.eviction = (rt_eviction_kind)config->cache.eviction_given;
    else
        config->cache.eviction = is_het                        ? RT_EVICT_LIGHT_LFU
                                 : policy == RT_POLICY_BAGPIPE ? RT_EVICT_TTL
                                 : policy == RT_POLICY_FAE     ? RT_EVICT_LRU
                                                               : RT_EVICT_EMARK;
    if (config->consistency_auto)
        config->consistency = (rt_consistency_config){is_het, is_het ? RT_STALENESS_HET : 0};
}

// Takes next over if the status is RT_OK, else gives it back.
static rt_status settle(rt_config *config, rt_config *next, rt_status status)
{
    if (status) {
        rt_config_fini(next);
        return status;
    }
    follow_policy(next);
    rt_config_fini(config);
    *config = *next;
    return RT_OK;
}

rt_status rt_config_load(rt_config *config, const char *path, rt_error *error)
{
    rt_config next;
    rt_error own = {0};
    rt_status status = rt_config_copy(config, &next);
    if (status)
        return rt_fail(error, status, "%s: out of memory", path);
    status = load_file(&next, path, NULL, &own);
    if (status && error)
        *error = own;
    return settle(config, &next, status);
}

// --set values: a key that holds text takes the bare word, unless it is quoted or a list.
static bool is_bare_text(const rt_config_key *key, const char *value)
{
    if (!key || *value == '"')
        return false;
    if (key->type == RT_KEY_LIST && *value == '[')
        return false;
    if (key->type == RT_KEY_LIST && key->list->takes_one && key->list->element->type != RT_KEY_TEXT)
        return key->list->words && !(*value >= '0' && *value <= '9');
    if (key->type == RT_KEY_LIST)
        return key->list->takes_one || key->list->words;
    return key->type == RT_KEY_TEXT || key->type == RT_KEY_CHOICE || key->type == RT_KEY_CHARACTER;
}

static rt_status parse_value(const char *path, const char *value, cJSON **tree_p, rt_error *error)
{
    const rt_config_key *key = rt_config_find(path);
    char shown[RT_CONFIG_SHOWN_MAX];
    rt_error why = {0};
    if (!is_bare_text(key, value)) {
        rt_status status = rt_config_parse(value, strlen(value), tree_p, &why);
        if (!status)
            return RT_OK;
        if (!key && *value != '{')
            return rt_config_not_section(path, rt_config_show_text(value, shown), value, error);
        if (!key || key->type == RT_KEY_LIST || *value == '"')
            return rt_fail(error, status, "%s: value: %s", path, why.text);
        // A word where a number belongs: reading it says what is expected.
    }
    if (!rt_json_is_utf8(value, strlen(value)))
        return rt_fail(error, RT_CONFIG, "%s: value: not UTF-8 text", path);
    *tree_p = cJSON_CreateString(value);
    if (!*tree_p)
        return rt_fail(error, RT_NO_MEMORY, "%s: out of memory", path);
    return RT_OK;
}

rt_status rt_config_set(rt_config *config, const char *assignment, rt_error *error)
{
    char path[RT_CONFIG_KEY_PATH_MAX], name[RT_CONFIG_KEY_PATH_MAX];
    char shown[RT_CONFIG_SHOWN_MAX];
    rt_config next;
    cJSON *tree = NULL;
    const char *equals = strchr(assignment, '=');
    if (!equals || equals == assignment)
        return rt_fail(error, RT_CONFIG, "%s is not an assignment, expected key=value",
                       rt_config_show_text(assignment, shown));
    snprintf(name, sizeof name, "%.*s", (int)rt_min_u64((uint64_t)(equals - assignment), INT32_MAX),
             assignment);
    rt_config_join(path, "", name);
    if (strcmp(path, "include") == 0)
        return rt_fail(error, RT_CONFIG, "include: only a file can include another");
    if (strcmp(path, "version") == 0)
        return rt_fail(error, RT_CONFIG, "version: only a file has one");
    const char *const today = rt_config_current(path);
    if (today != path) {
        rt_warn("--set %s: is now called %s", path, today);
        snprintf(path, sizeof path, "%s", today);
    }
    if (rt_config_is_gone(path, NULL, "--set"))
        return RT_OK;
    if (!rt_config_find(path) && !rt_config_is_section(path))
        return rt_config_unknown(rt_config_keys, path, error);
    rt_status status = parse_value(path, equals + 1, &tree, error);
    if (!status)
        status = rt_config_modernise_value(path, &tree, error);
    if (status) {
        cJSON_Delete(tree);
        return status;
    }
    status = rt_config_copy(config, &next);
    if (!status)
        status = settle(config, &next, read_section(&next, tree, "", error));
    else
        rt_fail(error, status, "%s: out of memory", path);
    cJSON_Delete(tree);
    return status;
}

// What follows from keys. Nobody has to look at malformed lines that a run is told to bear.
static rt_status complete(rt_config *config, rt_error *error)
{
    config->alerts.malformed_share = fmax(0.05, config->stream.malformed_share_max);
    rt_table_config *const tables[] = {&config->stream.table, &config->stream.join.table};
    const rt_format formats[] = {config->stream.format, config->stream.join.format};
    for (size_t i = 0; i < RT_COUNT_OF(tables); i++) {
        const bool finds_by_name = formats[i] == RT_FORMAT_JSON || tables[i]->has_header;
        if (rt_config_complete_columns(tables[i], finds_by_name))
            return rt_fail(error, RT_NO_MEMORY, "out of memory");
    }
    return RT_OK;
}

static rt_status load_and_set(rt_config *config, const char *path, const char *const *sets,
                              uint32_t set_count, rt_error *error)
{
    rt_status status = rt_config_load(config, path, error);
    if (status)
        return status;
    for (uint32_t i = 0; i < set_count; i++) {
        status = rt_config_set(config, sets[i], error);
        if (status)
            return status;
    }
    return complete(config, error);
}

rt_status rt_config_open(const char *path, const char *const *sets, uint32_t set_count,
                         rt_config *config, rt_error *error)
{
    rt_status status = rt_config_init(config);
    if (status)
        return rt_fail(error, status, "out of memory");
    status = load_and_set(config, path, sets, set_count, error);
    if (status)
        rt_config_fini(config);
    return status;
}

// What models of before did not have is part of it only where it is used: theirs stays as it was.
uint64_t rt_config_schema(const rt_config *config)
{
    char text[256];
    const rt_model_config *model = &config->model;
    int length = snprintf(text, sizeof text, "%d %" PRIu32 " %d %d", config->stream.format,
                          model->embedding_dim, model->kind, config->optimizer_rows.kind);
    uint64_t schema = rt_hash_bytes(text, (size_t)length);
    for (uint32_t i = 0; i < config->stream.shared_count; i++)
        schema = rt_mix(schema ^
                        rt_hash_bytes(config->stream.shared[i], strlen(config->stream.shared[i])));
    if (rt_model_takes(model->kind, RT_TAKES_NODES))
        return rt_mix(schema ^ model->fan_out);
    if (!rt_model_takes(model->kind, RT_TAKES_SEQUENCE))
        return schema;
    length = snprintf(text, sizeof text, "%s\n%s", model->sequence, model->target);
    return rt_mix(schema ^ rt_hash_bytes(text, (size_t)length));
}
