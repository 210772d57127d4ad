// dp_members - what a run is from one start to the next, beside its configuration: which boxes take
// part, and with what learning rates.
//
// A file beside the checkpoints, "boxes", has it once somebody has changed it (`lanyard add`,
// `drain`, `set`); without it all boxes take part that are not spare, and rates are as configured.
// `lanyard up` and the coordinator read it before every start.
#ifndef DP_MEMBERS_H
#define DP_MEMBERS_H

#include "runtime/config/rt_config.h"

#include <cjson/cJSON.h>

#include "runtime/transport/rt_keys.h"
#include "runtime/wire/rt_control.h"

#define DP_MEMBERS_NAME "boxes" // of the file

typedef struct {
    uint64_t boxes;             // mask, by the configuration; 0: it tells of no boxes
    uint64_t workers, shards;   // masks of their ranks
    float row_rate, dense_rate; // learning rates that were set; 0: as configured
    double still_s; // training stands still for a change since then, seconds since 1970; 0: it does
                    // not
} dp_members;

// Boxes that were added, see below.
typedef struct {
    uint32_t first, count; // of boxes
    struct {
        rt_public_key key;
        bool has_key, awaited;
    } of[RT_SITE_BOXES_MAX];
    uint64_t ask_ns; // when the next try to take one in is due
} dp_added;

// Of these boxes of a configuration.
dp_members dp_members_of(const rt_config *config, uint64_t boxes);

// Puts the rates that were set into a configuration.
void dp_members_set_rates(const dp_members *members, rt_config *config);

// Leaves of a configuration only these boxes, with the rates that were set. whole: of all boxes.
// Caches, links and plans in a checkpoint are those of its members, so they have a hash of their
// own: *hash_p is that of the whole configuration before, theirs afterwards.
void dp_members_keep_boxes(const dp_members *members, const rt_config *whole, rt_config *part,
                           uint64_t *hash_p);

// And of them only these workers, by their ranks among all.
void dp_members_keep_workers(const dp_members *members, uint64_t workers, rt_config *part,
                             uint64_t *hash_p);

// folder: of the checkpoints, "": there is none. Boxes that the configuration does not have any
// more are left out, and so is a rate that is configured otherwise since it was set: the log says
// so. RT_CONFIG: none is left that has a worker, or none with a shard; RT_DATA, RT_IO: of the file,
// which error names; RT_NO_MEMORY.
rt_status dp_members_read(const rt_config *config, const char *folder, dp_members *members,
                          rt_error *error);

// What the file says of boxes that were added, first of all: config gets those that it lacks.
// Errors as dp_added_take; RT_IO: *added has none.
rt_status dp_members_read_added(const char *folder, rt_config *config, dp_added *added,
                                rt_error *error);

// RT_IO, RT_NO_MEMORY.
rt_status dp_members_write(const rt_config *config, const char *folder, const dp_members *members,
                           const dp_added *added, rt_error *error);

// ---- boxes that were added -------------------------------------------------------------------
//
// Boxes that were added to a run which no configuration had (`lanyard add RUN BOX --gbps
// ...`).
//
// They stand behind the boxes of the configuration, as spare ones, with a key where the run uses
// keys. The file of dp_members has them, so that whoever starts the coordinator again, or leads in
// its place, knows them, too; members of the other boxes need not: what HELLO compares leaves such
// boxes out (rt_config_site_boxes), and ALLOW tells members the keys. A box that was added is
// awaited until its members are there: then it joins (dp_move.h). A plain value.

// In the folder of the run: the key of a box that is being added.
#define DP_ADDED_KEY "added.public"

// "added" of the file of dp_members; json NULL: there is none. Boxes that config lacks are added to
// it. RT_DATA, RT_CONFIG: error names path, the file; the boxes of config are others.
rt_status dp_added_take(const cJSON *json, const char *path, rt_config *config, dp_added *added,
                        rt_error *error);
void dp_added_write(const dp_added *added, const rt_config *config, rt_json *json);

// The payload of ALLOW; returns their number.
uint32_t dp_added_list(const dp_added *added, rt_wire_allowed all[RT_SITE_BOXES_MAX]);

// NULL: it is no key of theirs.
const char *dp_added_find_key(const dp_added *added, const uint8_t key[RT_KEY_BYTES]);

// Gives a configuration the boxes that the site has behind its own.
rt_status dp_added_adopt(const rt_config *whole, rt_config *config, rt_error *error);

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
