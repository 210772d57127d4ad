#include "dispatch/coordinator/dp_members.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <inttypes.h>

#include "runtime/files/rt_file.h"
#include "runtime/numbers/rt_optimizer.h"
#include "runtime/rt_hash.h"
#include "runtime/rt_json.h"
#include "runtime/rt_json_read.h"
#include "runtime/rt_log.h"

#define NAME DP_MEMBERS_NAME
// Names may be escaped: one in the list, and of what was added a name, a host and a key with its
// name.
#define BYTES_MAX (RT_SITE_BOXES_MAX * (4 * 6 * RT_NAME_MAX + 512) + 256)

dp_members dp_members_of(const rt_config *config, uint64_t boxes)
{
    dp_members members = {.boxes = boxes,
                          .workers = rt_bits_below(config->worker_count),
                          .shards = rt_bits_below(config->ps_shard_count)};
    if (config->box_count)
        rt_config_members_of_boxes(config, boxes, &members.workers, &members.shards);
    return members;
}

// ---- learning rates --------------------------------------------------------------------------

static const char *const rate_keys[] = {"optimizer.rows.learning_rate",
                                        "optimizer.dense.learning_rate"};

void dp_members_set_rates(const dp_members *members, rt_config *config)
{
    config->optimizer_rows = rt_optimizer_with_rate(&config->optimizer_rows, members->row_rate);
    config->optimizer_dense = rt_optimizer_with_rate(&config->optimizer_dense, members->dense_rate);
}

// Where the configuration says something else than when it was set, that is newer.
static float take_rate(const cJSON *json, const char *key, float configured, const char *path)
{
    const cJSON *one = rt_json_member(json, key);
    const float rate = (float)rt_json_number_or_0(one, "value");
    if (rate > 0 && (float)rt_json_number_or_0(one, "configured") == configured)
        return rate;
    if (rate > 0)
        rt_info("%s: %s was set to %g; it is configured otherwise since then, which counts", path,
                key, (double)rate);
    return 0;
}

static void put_rate(rt_json *json, const char *key, float rate, float configured)
{
    if (rate <= 0)
        return;
    rt_json_begin_object(json, key);
    rt_json_float(json, "value", rate);
    rt_json_float(json, "configured", configured);
    rt_json_end_object(json);
}

// ---- the part of a configuration -------------------------------------------------------------

// The hash on which members agree tells nothing of the last spare boxes.
static uint64_t hash_of_boxes(const dp_members *members, const rt_config *whole, uint64_t hash)
{
    const uint32_t count = rt_config_site_boxes(whole);
    const dp_members site = dp_members_of(whole, rt_bits_below(count));
    uint64_t all[3 + RT_SITE_BOXES_MAX] = {hash, members->workers, members->shards};
    uint32_t used = 3;
    if (members->workers == site.workers && members->shards == site.shards)
        return hash;
    for (uint32_t b = count; b < whole->box_count; b++) {
        if (members->boxes >> b & 1)
            all[used++] = rt_config_hash_box(whole, b);
    }
    return rt_hash_bytes(all, used * sizeof *all);
}

void dp_members_keep_boxes(const dp_members *members, const rt_config *whole, rt_config *part,
                           uint64_t *hash_p)
{
    dp_members_set_rates(members, part);
    if (rt_bit_count(members->workers) != whole->worker_count ||
        rt_bit_count(members->shards) != whole->ps_shard_count)
        rt_config_keep_members(part, members->workers, members->shards);
    *hash_p = hash_of_boxes(members, whole, *hash_p);
}

// Those of a mask by their places among all.
static uint64_t places_of(uint64_t some, uint64_t all)
{
    uint64_t places = 0;
    for (uint64_t rest = some & all; rest; rest &= rest - 1)
        places |= rt_bit(rt_bits_under(all, rt_lowest_bit(rest)));
    return places;
}

void dp_members_keep_workers(const dp_members *members, uint64_t workers, rt_config *part,
                             uint64_t *hash_p)
{
    const uint64_t both[2] = {*hash_p, workers};
    if (workers == members->workers)
        return;
    rt_config_keep_members(part, places_of(workers, members->workers), UINT64_MAX);
    *hash_p = rt_hash_bytes(both, sizeof both);
}

// ---- the file --------------------------------------------------------------------------------

static rt_status take_boxes(const rt_config *config, const char *path, const cJSON *json,
                            dp_members *members, rt_error *error)
{
    const cJSON *names = rt_json_member(json, NAME), *one;
    uint64_t boxes = 0;
    if (!cJSON_IsObject(json) || (names && !cJSON_IsArray(names)))
        return rt_fail(error, RT_DATA, "%s: expected an object with a list \"" NAME "\"", path);
    if (!names || config->box_count == 0)
        return RT_OK;
    cJSON_ArrayForEach(one, names)
    {
        const char *name = cJSON_GetStringValue(one);
        if (!name)
            return rt_fail(error, RT_DATA, "%s: expected names of boxes", path);
        const uint32_t box = rt_config_find_box(config, name);
        if (box == config->box_count)
            rt_info("%s: the configuration has no box \"%s\": it is left out", path, name);
        else
            boxes |= rt_bit(box);
    }
    *members = dp_members_of(config, boxes);
    if (!members->workers || !members->shards)
        return rt_fail(
            error, RT_CONFIG,
            "%s: no %s is left of the boxes that take part: the configuration lacks them; "
            "without the file all take part that are not spare",
            path, members->workers ? "shard" : "worker");
    return RT_OK;
}

static rt_status take(const rt_config *config, const char *path, const cJSON *json,
                      dp_members *members, rt_error *error)
{
    rt_status status = take_boxes(config, path, json, members, error);
    members->still_s = rt_json_number_or_0(json, "still_s");
    members->row_rate = take_rate(json, rate_keys[0], config->optimizer_rows.learning_rate, path);
    members->dense_rate =
        take_rate(json, rate_keys[1], config->optimizer_dense.learning_rate, path);
    return status;
}

// *json_p: NULL where the file is not there, or is no JSON (*found).
static rt_status read_file(const char *folder, char path[RT_PATH_MAX + 16], cJSON **json_p,
                           bool *found, rt_error *error)
{
    *json_p = NULL;
    snprintf(path, RT_PATH_MAX + 16, "%s/" NAME, folder);
    FILE *file = *folder ? fopen(path, "re") : NULL;
    *found = file != NULL;
    if (!file && *folder && errno != ENOENT && errno != ENOTDIR)
        return rt_fail(error, rt_status_of_errno(errno), "%s: %s", path, strerror(errno));
    if (!file)
        return RT_OK;
    char *text = rt_alloc(BYTES_MAX, 1);
    if (text)
        text[fread(text, 1, BYTES_MAX - 1, file)] = '\0';
    fclose(file);
    *json_p = text ? cJSON_Parse(text) : NULL;
    rt_free(text);
    if (!text)
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    return RT_OK;
}

rt_status dp_members_read(const rt_config *config, const char *folder, dp_members *members,
                          rt_error *error)
{
    char path[RT_PATH_MAX + 16];
    cJSON *json;
    bool found;
    *members = dp_members_of(config, rt_config_first_boxes(config));
    rt_status status = read_file(folder, path, &json, &found, error);
    if (!status && found)
        status = take(config, path, json, members, error);
    cJSON_Delete(json);
    return status;
}

rt_status dp_members_read_added(const char *folder, rt_config *config, dp_added *added,
                                rt_error *error)
{
    char path[RT_PATH_MAX + 16];
    cJSON *json;
    bool found;
    *added = (dp_added){0};
    rt_status status = read_file(folder, path, &json, &found, error);
    if (!status)
        status = dp_added_take(rt_json_member(json, "added"), path, config, added, error);
    cJSON_Delete(json);
    return status;
}

// On disk before anybody acts by it.
static rt_status save(const rt_json *json, const char *path, rt_error *error)
{
    size_t size;
    const char *text = rt_json_text(json, &size);
    if (!text)
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    return rt_file_save(path, text, size, error);
}

rt_status dp_members_write(const rt_config *config, const char *folder, const dp_members *members,
                           const dp_added *added, rt_error *error)
{
    char path[RT_PATH_MAX + 16];
    rt_json json;
    if (mkdir(folder, 0777) != 0 && errno != EEXIST)
        return rt_fail(error, RT_IO, "cannot make %s: %s", folder, strerror(errno));
    snprintf(path, sizeof path, "%s/" NAME, folder);
    rt_json_init(&json, 2);
    rt_json_begin_object(&json, NULL);
    if (config->box_count)
        rt_json_begin_array(&json, NAME);
    for (uint32_t b = 0; b < config->box_count; b++) {
        if (members->boxes >> b & 1)
            rt_json_string(&json, NULL, config->boxes[b].name);
    }
    if (config->box_count)
        rt_json_end_array(&json);
    dp_added_write(added, config, &json);
    put_rate(&json, rate_keys[0], members->row_rate, config->optimizer_rows.learning_rate);
    put_rate(&json, rate_keys[1], members->dense_rate, config->optimizer_dense.learning_rate);
    rt_json_double(&json, "still_s", members->still_s);
    rt_json_end_object(&json);
    rt_status status = save(&json, path, error);
    rt_json_fini(&json);
    return status;
}

// ---- boxes that were added -------------------------------------------------------------------

#define ADDED "added"
#define NOWHERE UINT32_MAX // a place in the list of boxes

// ---- the file --------------------------------------------------------------------------------

static rt_status take_key(const cJSON *json, const char *path, dp_added *added, rt_error *error)
{
    const char *name = cJSON_GetStringValue(rt_json_member(json, "name"));
    const char *text = cJSON_GetStringValue(rt_json_member(json, "public"));
    if (!json)
        return RT_OK;
    if (!name || !text || rt_key_parse(name, text, &added->of[added->count].key, NULL))
        return rt_fail(error, RT_DATA, "%s: " ADDED ": expected a key's name and its public part",
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
        return rt_fail(error, RT_DATA, "%s: " ADDED ": expected boxes", path);
    if (at > config->box_count)
        return rt_fail(error, RT_CONFIG,
                       "%s: box \"%s\" was added as number %" PRIu32 " of boxes, of which the "
                       "configuration has only %" PRIu32 ": none may be taken out",
                       path, name, at + 1, config->box_count);
    if (at < config->box_count && strcmp(config->boxes[at].name, name) == 0)
        return RT_OK;
    if (at < config->box_count)
        return rt_fail(error, RT_CONFIG,
                       "%s: box \"%s\" was added as number %" PRIu32
                       " of boxes, which is \"%s\" in the "
                       "configuration: list the added boxes "
                       "after the others, in order, or leave "
                       "all of them out",
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
            return rt_fail(error, RT_DATA, "%s: " ADDED ": expected boxes, one behind the other",
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
    rt_json_begin_array(json, ADDED);
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

static rt_status adopt_from(const rt_config *whole, uint32_t first, rt_config *config,
                            rt_json *json, rt_error *error)
{
    for (uint32_t b = first; b < whole->box_count; b++) {
        rt_json_clear(json);
        rt_config_write_box(whole, b, json, NULL);
        const char *text = rt_json_text(json, NULL);
        if (!text)
            return rt_fail(error, RT_NO_MEMORY, "out of memory");
        const rt_status status = rt_config_add_box(config, text, error);
        if (status)
            return status;
    }
    return RT_OK;
}

rt_status dp_added_adopt(const rt_config *whole, rt_config *config, rt_error *error)
{
    rt_json json;
    rt_json_init(&json, 0);
    const rt_status status = adopt_from(whole, config->box_count, config, &json, error);
    rt_json_fini(&json);
    return status;
}

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
        "%s: its key was not added by `lanyard add`: drain it, and remove its file from every "
        "folder of security.allow",
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
