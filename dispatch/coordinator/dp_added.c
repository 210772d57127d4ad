#include "dispatch/coordinator/dp_added.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "runtime/rt_json_read.h"

#define NAME "added"
#define NOWHERE UINT32_MAX // a place in the list of boxes

// ---- the file --------------------------------------------------------------------------------

static rt_status take_key(const cJSON *json, const char *path, dp_added *added, rt_error *error)
{
    const char *name = cJSON_GetStringValue(rt_json_member(json, "name"));
    const char *text = cJSON_GetStringValue(rt_json_member(json, "public"));
    if (!json)
        return RT_OK;
    if (!name || !text || rt_key_parse(name, text, &added->of[added->count].key, NULL))
        return rt_fail(error, RT_DATA, "%s: " NAME ": expected a key's name and its public part",
                       path);
    added->of[added->count].has_key = true;
    return RT_OK;
}

// Where the configuration has a box at that place it must be the same one: ranks follow from
// places.
static rt_status take_box(const cJSON *json, const char *path, uint32_t at, rt_config *config,
                          rt_error *error)
{
    const cJSON *box = rt_json_member(json, "box");
    const char *name = cJSON_GetStringValue(rt_json_member(box, "name"));
    if (!name)
        return rt_fail(error, RT_DATA, "%s: " NAME ": expected boxes", path);
    if (at > config->box_count)
        return rt_fail(error, RT_CONFIG,
                       "%s: box \"%s\" was added as number %" PRIu32 " of boxes, of which the "
                       "configuration has only %" PRIu32 ": none may be taken out",
                       path, name, at + 1, config->box_count);
    if (at < config->box_count && strcmp(config->boxes[at].name, name) == 0)
        return RT_OK;
    if (at < config->box_count)
        return rt_fail(
            error, RT_CONFIG,
            "%s: box \"%s\" was added as number %" PRIu32 " of boxes, which is \"%s\" in "
            "the configuration: write those that were added behind the others, in order, "
            "or leave them all away",
            path, name, at + 1, config->boxes[at].name);
    char *text = cJSON_PrintUnformatted(box);
    if (!text)
        return rt_fail(error, RT_NO_MEMORY, "%s: out of memory", path);
    const rt_status status = rt_config_add_box(config, text, error);
    cJSON_free(text);
    if (status)
        return rt_fail_in(error, "%s", path);
    return RT_OK;
}

rt_status dp_added_take(const cJSON *json, const char *path, rt_config *config, dp_added *added,
                        rt_error *error)
{
    const cJSON *one;
    *added = (dp_added){0};
    cJSON_ArrayForEach(one, json)
    {
        const double place = rt_json_number(one, "at");
        uint32_t at = NOWHERE;
        if (place >= 0 && place < RT_SITE_BOXES_MAX)
            at = (uint32_t)place;
        if (added->count == 0)
            added->first = at;
        if (at == NOWHERE || at != added->first + added->count)
            return rt_fail(error, RT_DATA, "%s: " NAME ": expected boxes, one behind the other",
                           path);
        rt_status status = take_box(one, path, at, config, error);
        if (status)
            return status;
        status = take_key(rt_json_member(one, "key"), path, added, error);
        if (status)
            return status;
        added->of[added->count++].awaited = cJSON_IsTrue(rt_json_member(one, "awaited"));
    }
    return RT_OK;
}

void dp_added_write(const dp_added *added, const rt_config *config, rt_json *json)
{
    char text[RT_KEY_TEXT_SIZE];
    if (added->count == 0)
        return;
    rt_json_begin_array(json, NAME);
    for (uint32_t i = 0; i < added->count; i++) {
        rt_json_begin_object(json, NULL);
        rt_json_u64(json, "at", added->first + i);
        rt_config_write_box(config, added->first + i, json, "box");
        if (added->of[i].has_key) {
            rt_json_begin_object(json, "key");
            rt_json_string(json, "name", added->of[i].key.name);
            rt_json_string(json, "public", rt_key_text(added->of[i].key.bytes, text));
            rt_json_end_object(json);
        }
        rt_json_bool(json, "awaited", added->of[i].awaited);
        rt_json_end_object(json);
    }
    rt_json_end_array(json);
}

// ---- their keys ------------------------------------------------------------------------------

uint32_t dp_added_list(const dp_added *added, rt_wire_allowed all[RT_SITE_BOXES_MAX])
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < added->count; i++) {
        if (!added->of[i].has_key)
            continue;
        all[count] = (rt_wire_allowed){0};
        memcpy(all[count].name, added->of[i].key.name, sizeof all[count].name);
        memcpy(all[count++].key, added->of[i].key.bytes, sizeof all->key);
    }
    return count;
}

const char *dp_added_find_key(const dp_added *added, const uint8_t key[RT_KEY_BYTES])
{
    for (uint32_t i = 0; i < added->count; i++) {
        if (added->of[i].has_key && memcmp(added->of[i].key.bytes, key, RT_KEY_BYTES) == 0)
            return added->of[i].key.name;
    }
    return NULL;
}

// ---- what becomes of them --------------------------------------------------------------------

rt_status dp_added_check_end(const dp_added *added, const rt_config *config, const char *box,
                             rt_error *error)
{
    const uint32_t b = rt_config_find_box(config, box), i = b - added->first;
    if (b == config->box_count)
        return rt_fail(error, RT_NOT_FOUND, "%s: the configuration has no box of that name", box);
    if (b >= added->first && i < added->count && added->of[i].has_key)
        return RT_OK;
    return rt_fail(
        error, RT_CONFIG,
        "%s: its key was not let in by `lanyard add`: drain it, and take its file out of "
        "the folders of security.allow where one has it",
        box);
}

void dp_added_end(dp_added *added, uint32_t box)
{
    const uint32_t i = box - added->first;
    added->of[i].has_key = added->of[i].awaited = false;
    added->of[i].key = (rt_public_key){0};
}

void dp_added_joined(dp_added *added, uint64_t boxes)
{
    for (uint32_t i = 0; i < added->count; i++)
        added->of[i].awaited &= !(boxes >> (added->first + i) & 1);
}
