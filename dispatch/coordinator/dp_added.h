// dp_added - boxes that were added to a run which no configuration had (`lanyard add RUN BOX --gbps
// ...`).
//
// They stand behind the boxes of the configuration, as spare ones, with a key where the run uses
// keys. The file of dp_members has them, so that whoever starts the coordinator again, or leads in
// its place, knows them, too; members of the other boxes need not: what HELLO compares leaves such
// boxes out (rt_config_site_boxes), and ALLOW tells members the keys. A box that was added is
// awaited until its members are there: then it joins (dp_adding.h). A plain value.
#ifndef DP_ADDED_H
#define DP_ADDED_H

#include <cjson/cJSON.h>

#include "runtime/config/rt_config.h"
#include "runtime/transport/rt_keys.h"
#include "runtime/wire/rt_control.h"

// In the folder of the run: the key of a box that is being added.
#define DP_ADDED_KEY "added.public"

typedef struct {
    uint32_t first, count; // of boxes
    struct {
        rt_public_key key;
        bool has_key, awaited;
    } of[RT_SITE_BOXES_MAX];
    uint64_t ask_ns; // when the next try to take one in is due
} dp_added;

// "added" of the file of dp_members; json NULL: there is none. Boxes that config lacks are added to
// it. RT_DATA, RT_CONFIG: error names path, the file; the boxes of config are others.
rt_status dp_added_take(const cJSON *json, const char *path, rt_config *config, dp_added *added,
                        rt_error *error);
void dp_added_write(const dp_added *added, const rt_config *config, rt_json *json);

// The payload of ALLOW; returns their number.
uint32_t dp_added_list(const dp_added *added, rt_wire_allowed all[RT_SITE_BOXES_MAX]);

// NULL: it is no key of theirs.
const char *dp_added_find_key(const dp_added *added, const uint8_t key[RT_KEY_BYTES]);

// Whether a box of a configuration can leave for good. RT_NOT_FOUND: there is none of that name;
// RT_CONFIG: none of them let its key in, so they cannot take it off.
rt_status dp_added_check_end(const dp_added *added, const rt_config *config, const char *box,
                             rt_error *error);

// A box, by its number in the configuration, has left for good: its place stays, as ranks follow
// from places; its key does not.
void dp_added_end(dp_added *added, uint32_t box);

// These boxes take part: they are not awaited.
void dp_added_joined(dp_added *added, uint64_t boxes);

#endif
