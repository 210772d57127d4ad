// dp_added - boxes that were added to a run which no configuration had (`lanyard add RUN BOX --gbps
// ...`).
//
// They stand behind the boxes of the configuration, as spare ones, with a key where the run uses
// keys. The file of dp_members has them, so that whoever starts the coordinator again, or leads in
// its place, knows them, too; members of the other boxes need not: what HELLO compares leaves such
// boxes out (rt_config_site_boxes), and ALLOW tells members the keys. A box that was added is
// awaited until its members are there: then it joins, by dp_move. A plain value.
#ifndef DP_ADDED_H
#define DP_ADDED_H

#include <cjson/cJSON.h>

#include "runtime/config/rt_config.h"
#include "runtime/transport/rt_keys.h"
#include "runtime/wire/rt_control.h"

struct dp_run;

#define DP_ADDED_KEY \
    "added.public" // in the folder of the run: the key of a box that is being added

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

// A run begins: its boxes are those of the file, too, and their keys are allowed. After the folder
// of checkpoints is known, before anything is made of the configuration. Errors as dp_added_take.
rt_status dp_added_begin(struct dp_run *run, rt_error *error);

// A request (dp_control.h): a box more. text: an object, "box" as in boxes, and "key", where the
// run uses keys and others do not have it, the public key in Z85, which has to stand in
// DP_ADDED_KEY, too: so that only who may write there lets somebody in. The box is known once the
// file of dp_members has it; answer says where its configuration was written. RT_OK and
// run->move.is_asked: answered later.
rt_status dp_added_ask(struct dp_run *run, const char *box, const char *text, char *answer,
                       size_t size, rt_error *error);

// It is not waited for any more. False: it was not.
bool dp_added_let_go(struct dp_run *run, const char *box, char *answer, size_t size);

// Whether a box of a configuration can leave for good. RT_NOT_FOUND: there is none of that name;
// RT_CONFIG: none of them let its key in, so they cannot take it off.
rt_status dp_added_check_end(const dp_added *added, const rt_config *config, const char *box,
                             rt_error *error);

// A box, by its number in the configuration, has left for good: its place stays, as ranks follow
// from places; its key does not.
void dp_added_end(dp_added *added, uint32_t box);

// These boxes take part: they are not awaited.
void dp_added_joined(dp_added *added, uint64_t boxes);

// Takes in a box that is awaited once its members are there.
void dp_added_step(struct dp_run *run);

#endif
