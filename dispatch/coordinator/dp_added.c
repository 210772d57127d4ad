#include "dispatch/coordinator/dp_added.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "dispatch/coordinator/dp_run.h"
#include "runtime/files/rt_file.h"
#include "runtime/rt_json_read.h"
#include "runtime/rt_log.h"

#define ASK_AGAIN_NS UINT64_C(10000000000) // for a checkpoint, where the one before failed
#define NAME "added"

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
    rt_status status = text ? rt_config_add_box(config, text, error)
                            : rt_fail(error, RT_NO_MEMORY, "out of memory");
    cJSON_free(text);
    if (status)
        return rt_fail_in(error, "%s", path);
    return RT_OK;
}

rt_status dp_added_take(const cJSON *json, const char *path, rt_config *config, dp_added *added,
                        rt_error *error)
{
    const cJSON *one;
    rt_status status = RT_OK;
    *added = (dp_added){0};
    cJSON_ArrayForEach(one, json)
    {
        const double place = rt_json_number(one, "at");
        const bool fits = place >= 0 && place < RT_SITE_BOXES_MAX;
        const uint32_t at = fits ? (uint32_t)place : 0;
        if (added->count == 0)
            added->first = at;
        if (!fits || at != added->first + added->count)
            return rt_fail(error, RT_DATA, "%s: " NAME ": expected boxes, one behind the other",
                           path);
        status = take_box(one, path, at, config, error);
        if (!status)
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

// ---- a run begins ----------------------------------------------------------------------------

// Gives a configuration the boxes that `whole` has behind its own.
static rt_status adopt(const rt_config *whole, rt_config *config, rt_error *error)
{
    rt_status status = RT_OK;
    rt_json json;
    rt_json_init(&json, 0);
    for (uint32_t b = config->box_count; b < whole->box_count && !status; b++) {
        rt_json_clear(&json);
        rt_config_write_box(whole, b, &json, NULL);
        const char *text = rt_json_text(&json, NULL);
        status = text ? rt_config_add_box(config, text, error)
                      : rt_fail(error, RT_NO_MEMORY, "out of memory");
    }
    rt_json_fini(&json);
    return status;
}

rt_status dp_added_begin(dp_run *c, rt_error *error)
{
    rt_status status = dp_members_read_added(c->checkpoints, &c->whole, &c->added, error);
    if (!status)
        status = adopt(&c->whole, &c->kept, error);
    if (!status)
        status = adopt(&c->whole, &c->control.in_force, error);
    if (!status && c->added.count)
        status = rt_config_check(&c->whole, error);
    for (uint32_t i = 0; i < c->added.count && !status; i++) {
        rt_info("box %s was added to this run", c->whole.boxes[c->added.first + i].name);
        if (c->added.of[i].has_key)
            status = c->own.ops->allow(c->transport, &c->added.of[i].key, error);
    }
    return status;
}

// ---- a box more ------------------------------------------------------------------------------

static bool has_other_key(const rt_public_key *key, const rt_public_key *other)
{
    return strcmp(key->name, other->name) == 0 &&
           memcmp(key->bytes, other->bytes, RT_KEY_BYTES) != 0;
}

// Only who may write into the folder of the run lets a key in: any box with a key may ask.
static rt_status check_key(const dp_run *c, const char *box, const char *text, rt_public_key *key,
                           rt_error *error)
{
    char path[RT_PATH_MAX + 32], shown[RT_KEY_TEXT_SIZE];
    const rt_keys *keys = c->own.keys;
    if (!keys || !keys->is_set)
        return rt_fail(error, RT_CONFIG, "%s: this run uses no keys (security.key)", box);
    if (!c->own.directory)
        return rt_fail(error, RT_CONFIG,
                       "%s: a key is let in by way of the folder of the run, and this one has none "
                       "(--out)",
                       box);
    snprintf(path, sizeof path, "%s/" DP_ADDED_KEY, c->own.directory);
    rt_status status = rt_keys_read_public(path, key, error);
    if (status)
        return status;
    if (strcmp(rt_key_text(key->bytes, shown), text) != 0)
        return rt_fail(error, RT_CONFIG, "%s: %s has another key", box, path);
    bool differs = has_other_key(key, &keys->own);
    for (uint32_t i = 0; i < keys->allowed_count; i++)
        differs |= has_other_key(key, &keys->allowed[i]);
    for (uint32_t i = 0; i < c->added.count; i++)
        differs |= c->added.of[i].has_key && has_other_key(key, &c->added.of[i].key);
    if (differs)
        return rt_fail(error, RT_CONFIG, "%s: another key of the name %s is allowed already", box,
                       key->name);
    return RT_OK;
}

// As one of the run: what it would be with it is a configuration as any other. The lists that
// others may point to stay where they are.
static rt_status extend(dp_run *c, const char *box, const cJSON *json, rt_error *error)
{
    rt_config *whole = &c->whole;
    char *text = cJSON_PrintUnformatted(json);
    rt_status status = text ? rt_config_add_box(whole, text, error)
                            : rt_fail(error, RT_WIRE, "%s: a request without the box", box);
    cJSON_free(text);
    if (!status && strcmp(whole->boxes[whole->box_count - 1].name, box) != 0)
        status = rt_fail(error, RT_WIRE, "%s: a request with another box", box);
    if (!status)
        status = rt_config_check(whole, error);
    if (!status)
        status = rt_config_check_training(whole, error);
    if (status)
        return status;
    return dp_move_check_join(c, box, error);
}

// For the box, which needs one that has it; as all others have it but for that.
static rt_status write_config(const dp_run *c, const char *path, rt_error *error)
{
    rt_config told;
    char *text = NULL;
    if (rt_config_copy(c->own.site ? c->own.site : &c->whole, &told))
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    rt_status status = adopt(&c->whole, &told, error);
    told.network_bind[0] = '\0'; // of this box
    if (!status && rt_config_to_json(&told, &text))
        status = rt_fail(error, RT_NO_MEMORY, "out of memory");
    rt_config_fini(&told);
    if (!status)
        status = rt_file_save(path, text, strlen(text), error);
    rt_free(text);
    return status;
}

static void name_ranks(const char *what, uint64_t ranks, char *text, size_t size)
{
    for (; ranks; ranks &= ranks - 1) {
        const size_t used = strlen(text);
        snprintf(text + used, size - used, "%s%s %" PRIu32, used ? ", " : "", what,
                 rt_lowest_bit(ranks));
    }
}

// It is on disk; from here on nothing fails that would have to be undone.
static void let_in(dp_run *c, const char *box, char *answer, size_t size)
{
    char path[RT_PATH_MAX + RT_NAME_MAX + 16], ranks[256] = "";
    rt_error why = {0};
    const uint32_t i = c->added.count - 1, b = c->added.first + i;
    const dp_members joins = dp_members_of(&c->whole, rt_bit(b));
    dp_roster_extend(c->roster, joins.workers, joins.shards);
    if (c->added.of[i].has_key && c->own.ops->allow(c->transport, &c->added.of[i].key, &why))
        rt_warn("%s", why.text);
    name_ranks("worker", joins.workers, ranks, sizeof ranks);
    name_ranks("ps", joins.shards, ranks, sizeof ranks);
    snprintf(path, sizeof path, "%s/%s.json", c->checkpoints, box);
    if (write_config(c, path, &why)) {
        rt_warn("%s", why.text);
        snprintf(path, sizeof path, "(it could not be written: %.200s)", why.text);
    }
    snprintf(
        answer, size,
        "%s is known to this run: %s. Start them there with the configuration %s: they are taken "
        "in with a checkpoint as soon as they are all there",
        box, ranks, path);
}

static void note(dp_added *added, uint32_t at, const rt_public_key *key)
{
    if (added->count == 0)
        added->first = at;
    added->of[added->count].has_key = key != NULL;
    if (key)
        added->of[added->count].key = *key;
    added->of[added->count++].awaited = true;
}

static rt_status add(dp_run *c, const char *box, const cJSON *json, rt_error *error)
{
    const char *text = cJSON_GetStringValue(rt_json_member(json, "key"));
    rt_public_key key;
    const rt_config before = c->whole;
    const dp_added added = c->added;
    rt_status status = text ? check_key(c, box, text, &key, error) : RT_OK;
    if (!status)
        status = extend(c, box, rt_json_member(json, "box"), error);
    if (!status) {
        note(&c->added, c->whole.box_count - 1, text ? &key : NULL);
        status = dp_members_write(&c->whole, c->checkpoints, &c->members, &c->added, error);
    }
    if (!status)
        return RT_OK;
    c->whole = before;
    c->added = added;
    return status;
}

rt_status dp_added_ask(dp_run *c, const char *box, const char *text, char *answer, size_t size,
                       rt_error *error)
{
    rt_status status = dp_move_check_boxes(c, box, error);
    if (!status && !rt_key_name_is_valid(box))
        status = rt_fail(error, RT_CONFIG,
                         "%s: a box that is added has a name of letters, digits, dots, dashes, "
                         "underscores",
                         box);
    if (!status && rt_config_find_box(&c->whole, box) < c->whole.box_count)
        status =
            rt_fail(error, RT_CONFIG,
                    "%s: is a box of this run already: `lanyard add RUN %s`, without more, takes "
                    "it in",
                    box, box);
    if (status)
        return status;
    cJSON *json = cJSON_Parse(text);
    status = cJSON_IsObject(json)
                 ? add(c, box, json, error)
                 : rt_fail(error, RT_WIRE, "%s: a request that is no JSON object", box);
    cJSON_Delete(json);
    if (status)
        return status;
    let_in(c, box, answer, size);
    if (!c->own.spawned)
        return RT_OK;
    return dp_move_ask(c, true, box, error);
}

// ---- waiting for it --------------------------------------------------------------------------

bool dp_added_let_go(dp_run *c, const char *box, char *answer, size_t size)
{
    rt_error why = {0};
    const uint32_t b = rt_config_find_box(&c->whole, box), i = b - c->added.first;
    if (b == c->whole.box_count || b < c->added.first || i >= c->added.count ||
        !c->added.of[i].awaited)
        return false;
    c->added.of[i].awaited = false;
    if (dp_members_write(&c->whole, c->checkpoints, &c->members, &c->added, &why))
        rt_warn("%s", why.text);
    snprintf(answer, size, "%s is not waited for any more: `lanyard add` takes it in", box);
    return true;
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

void dp_added_step(dp_run *c)
{
    rt_error why = {0};
    if (c->move.is_asked || c->phase != DP_RUN_TRAINS || c->interrupted)
        return;
    for (uint32_t i = 0; i < c->added.count; i++) {
        const uint32_t b = c->added.first + i;
        if (!c->added.of[i].awaited || !dp_move_is_there(c, b) || rt_now_ns() < c->added.ask_ns)
            continue;
        c->added.ask_ns = rt_now_ns() + ASK_AGAIN_NS;
        if (dp_move_ask(c, true, c->whole.boxes[b].name, &why))
            rt_warn("%s", why.text);
        else
            rt_info("box %s is there: it joins with the next checkpoint", c->whole.boxes[b].name);
        return;
    }
}
