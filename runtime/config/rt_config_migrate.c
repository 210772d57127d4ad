// Files of earlier versions: keys that were renamed are put where they are now, and what is gone is
// said.
#include <stdio.h>
#include <string.h>

#include "runtime/config/rt_config_keys.h"
#include "runtime/rt_log.h"

const char *rt_config_current(const char *path)
{
    for (const rt_config_renamed *one = rt_config_renames; one->before; one++)
        if (one->now && strcmp(one->before, path) == 0)
            return one->now;
    return path;
}

// The object that holds the last name of path (*name_p); NULL: there is none. make: it is made.
static cJSON *holder_of(cJSON *tree, const char *path, bool make, const char **name_p)
{
    char name[RT_CONFIG_KEY_PATH_MAX];
    const char *dot;
    for (; tree && (dot = strchr(path, '.')); path = dot + 1) {
        snprintf(name, sizeof name, "%.*s", (int)(dot - path), path);
        cJSON *inner = cJSON_GetObjectItemCaseSensitive(tree, name);
        if (!inner && make)
            inner = cJSON_AddObjectToObject(tree, name);
        if (!cJSON_IsObject(inner))
            inner = NULL;
        tree = inner;
    }
    *name_p = path;
    return tree;
}

static cJSON *find(cJSON *tree, const char *path)
{
    const char *name;
    cJSON *holder = holder_of(tree, path, false, &name);
    if (holder)
        return cJSON_GetObjectItemCaseSensitive(holder, name);
    return NULL;
}

// A section that held nothing else goes with its last key.
static void drop_empty_sections(cJSON *tree, const char *path)
{
    char section[RT_CONFIG_KEY_PATH_MAX];
    const char *name;
    snprintf(section, sizeof section, "%s", path);
    for (char *dot; (dot = strrchr(section, '.'));) {
        *dot = '\0';
        cJSON *holder = holder_of(tree, section, false, &name);
        if (!holder)
            return;
        const cJSON *empty = cJSON_GetObjectItemCaseSensitive(holder, name);
        if (!empty || empty->child)
            return;
        cJSON_DeleteItemFromObjectCaseSensitive(holder, name);
    }
}

static rt_status move(cJSON *tree, const rt_config_renamed *one, rt_error *error)
{
    const char *before, *now;
    if (find(tree, one->now))
        return rt_fail(error, RT_CONFIG, "%s: is the old name of %s, which is given as well",
                       one->before, one->now);
    cJSON *from = holder_of(tree, one->before, false, &before);
    cJSON *value = cJSON_DetachItemFromObjectCaseSensitive(from, before);
    if (cJSON_GetObjectItemCaseSensitive(from, before)) {
        cJSON_Delete(value);
        return rt_fail(error, RT_CONFIG, "%s: stands twice in its object", one->before);
    }
    drop_empty_sections(tree, one->before);
    cJSON *to = holder_of(tree, one->now, true, &now);
    if (to && cJSON_AddItemToObject(to, now, value))
        return RT_OK;
    cJSON_Delete(value);
    if (to)
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    return rt_fail(error, RT_CONFIG,
                   "%s: is now called %s, whose section is not an object "
                   "here",
                   one->before, one->now);
}

static const rt_config_renamed *find_gone(const char *path)
{
    for (const rt_config_renamed *one = rt_config_renames; one->before; one++)
        if (!one->now && strcmp(one->before, path) == 0)
            return one;
    return NULL;
}

bool rt_config_is_gone(const char *path, const cJSON *value, const char *where)
{
    const rt_config_renamed *one = find_gone(path);
    if (!one || !where)
        return one != NULL;
    cJSON *was = cJSON_Parse(one->was);
    if (!value || !cJSON_Compare(value, was, true))
        rt_warn("%s: %s is gone, and has no effect: %s", where, path, one->instead);
    cJSON_Delete(was);
    return true;
}

const char *rt_config_replace(const char *path, const char *value, const char *where)
{
    for (const rt_config_replaced *one = rt_config_replacements; one->path; one++) {
        if (strcmp(one->path, path) != 0 || strcmp(one->before, value) != 0)
            continue;
        if (where)
            rt_warn("%s: %s: \"%s\" is gone, \"%s\" takes its place", where, path, value, one->now);
        return one->now;
    }
    return value;
}

static void drop(cJSON *tree, const rt_config_renamed *one, const char *file)
{
    const char *name;
    cJSON *holder = holder_of(tree, one->before, false, &name);
    rt_config_is_gone(one->before, cJSON_GetObjectItemCaseSensitive(holder, name), file);
    cJSON_DeleteItemFromObjectCaseSensitive(holder, name);
    drop_empty_sections(tree, one->before);
}

static rt_status replace_values(cJSON *tree, const char *file, rt_error *error)
{
    for (const rt_config_replaced *one = rt_config_replacements; one->path; one++) {
        cJSON *value = find(tree, one->path);
        if (!cJSON_IsString(value) || strcmp(value->valuestring, one->before) != 0)
            continue;
        rt_config_replace(one->path, one->before, file);
        if (!cJSON_SetValuestring(value, one->now))
            return rt_fail(error, RT_NO_MEMORY, "out of memory");
    }
    return RT_OK;
}

rt_status rt_config_modernise(cJSON *tree, const char *file, rt_error *error)
{
    for (const rt_config_renamed *one = rt_config_renames; one->before; one++) {
        if (!find(tree, one->before))
            continue;
        if (!one->now) {
            while (find(tree, one->before))
                drop(tree, one, file);
            continue;
        }
        rt_status status = move(tree, one, error);
        if (status)
            return status;
        if (file)
            rt_warn("%s: %s is now called %s; `lanyard check --migrate` prints the file with "
                    "today's names",
                    file, one->before, one->now);
    }
    return replace_values(tree, file, error);
}

rt_status rt_config_modernise_value(const char *path, cJSON **tree_p, rt_error *error)
{
    const char *name;
    cJSON *tree = cJSON_CreateObject();
    cJSON *holder = holder_of(tree, path, true, &name);
    if (!holder || !cJSON_AddItemToObject(holder, name, *tree_p)) {
        cJSON_Delete(tree);
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    }
    *tree_p = tree;
    return rt_config_modernise(tree, "--set", error);
}

rt_status rt_config_check_version(cJSON *tree, rt_error *error)
{
    char shown[RT_CONFIG_SHOWN_MAX];
    const cJSON *version = cJSON_GetObjectItemCaseSensitive(tree, "version");
    if (!version)
        return RT_OK;
    const double number = cJSON_IsNumber(version) ? version->valuedouble : 0;
    if (number > RT_CONFIG_VERSION)
        return rt_fail(error, RT_CONFIG, "version: %s is newer than this program, which knows %d",
                       rt_config_show(version, shown), RT_CONFIG_VERSION);
    if (number != RT_CONFIG_VERSION)
        return rt_fail(error, RT_CONFIG, "version: %s, expected %d", rt_config_show(version, shown),
                       RT_CONFIG_VERSION);
    cJSON_DeleteItemFromObjectCaseSensitive(tree, "version");
    if (cJSON_GetObjectItemCaseSensitive(tree, "version"))
        return rt_fail(error, RT_CONFIG, "version: stands twice in its object");
    return RT_OK;
}

// Not cJSON_Print, which changes numbers. The file was read before, so it nests no deeper than
// keys.
static void write_value(rt_json *json, const cJSON *value)
{
    const char *name = value->string;
    if (cJSON_IsObject(value) || cJSON_IsArray(value)) {
        if (cJSON_IsObject(value))
            rt_json_begin_object(json, name);
        else
            rt_json_begin_array(json, name);
        for (const cJSON *one = value->child; one; one = one->next)
            write_value(json, one);
        if (cJSON_IsObject(value))
            rt_json_end_object(json);
        else
            rt_json_end_array(json);
    } else if (cJSON_IsString(value)) {
        rt_json_string(json, name, value->valuestring);
    } else if (cJSON_IsBool(value)) {
        rt_json_bool(json, name, cJSON_IsTrue(value));
    } else {
        rt_json_double(json, name, value->valuedouble);
    }
}

rt_status rt_config_print_modern(cJSON *tree, char **json_p)
{
    rt_json json;
    size_t size;
    rt_json_init(&json, 2);
    rt_json_begin_object(&json, NULL);
    rt_json_u64(&json, "version", RT_CONFIG_VERSION);
    for (const cJSON *one = tree->child; one; one = one->next)
        write_value(&json, one);
    rt_json_end_object(&json);
    const char *text = rt_json_text(&json, &size);
    *json_p = NULL;
    if (text)
        *json_p = rt_alloc(1, size + 1);
    if (*json_p)
        memcpy(*json_p, text, size);
    rt_json_fini(&json);
    if (!*json_p)
        return RT_NO_MEMORY;
    return RT_OK;
}
