// rt_manifest - manifest.json: which files make up a model or a checkpoint, and their sums.
//
// JSON whose last member is the checksum of all bytes before it. docs/MODEL_FORMAT.md.
#ifndef RT_MANIFEST_H
#define RT_MANIFEST_H

#include <cjson/cJSON.h>

#include "runtime/config/rt_config.h"
#include "runtime/files/rt_pack.h"
#include "runtime/rt_json.h"

#define RT_MANIFEST_NAME "manifest.json"
// Rises with every change to the files of a model or checkpoint that a program of the version
// before could not read; files of the version before are read all the same.
#define RT_MANIFEST_FORMAT 2u // 1: no scale.bin, dense.bin in a layout of its own
// The same of a checkpoint that a run can go on from: it rises with what planner.bin is made of,
// too (tests/golden/saved). 2: members of structs had no names.
#define RT_MANIFEST_FORMAT_STATE 3u

typedef struct {
    rt_file_sum sum;         // hash: of checkpoints
    uint64_t xxh3;           // of all its bytes: of models
    bool has_hash, has_xxh3; // which of the two the manifest has
} rt_manifest_part;

// ---- writing: an object that the caller fills between the two --------------------------------

// kind: "model", "checkpoint". format: RT_MANIFEST_FORMAT, or with planner.bin
// RT_MANIFEST_FORMAT_STATE.
void rt_manifest_begin(rt_json *json, const char *kind, unsigned format);
void rt_manifest_put_hash(rt_json *json, const char *name, uint64_t hash);
// "labels": what several are called, in the order of the outputs; nothing of one.
void rt_manifest_put_labels(rt_json *json, const rt_stream_config *stream);
void rt_manifest_put_part(rt_json *json, const char *name, const rt_manifest_part *part);

// Ends the object, writes it to a folder, frees json. RT_IO, RT_NO_MEMORY.
rt_status rt_manifest_write(rt_json *json, const char *folder, rt_error *error);

// ---- changing one that was read ---------------------------------------------------------------

// Of a member, and of a part. false: there is no such part, or out of memory.
bool rt_manifest_set_hash(cJSON *object, const char *name, uint64_t hash);
bool rt_manifest_set_sum(cJSON *root, const char *name, const rt_file_sum *sum);

// Writes it to a folder, with a checksum of its own. RT_IO, RT_NO_MEMORY.
rt_status rt_manifest_save(cJSON *root, const char *folder, rt_error *error);

// Text of an object with one more member, the checksum of all bytes before it. bytes->failed.
void rt_manifest_sign(const char *text, rt_bytes *bytes);

// ---- reading ---------------------------------------------------------------------------------

// Of a folder; *root_p is the caller's (cJSON_Delete). RT_NOT_FOUND: there is none. RT_DATA:
// damaged; RT_UNSUPPORTED: of a later format; RT_IO, RT_NO_MEMORY.
rt_status rt_manifest_read(const char *folder, cJSON **root_p, rt_error *error);

// false: there is no such member, or it is not one.
bool rt_manifest_u64(const cJSON *object, const char *name, uint64_t most, uint64_t *value_p);
bool rt_manifest_u32(const cJSON *object, const char *name, uint64_t most, uint32_t *value_p);
bool rt_manifest_hash(const cJSON *object, const char *name, uint64_t *hash_p);
bool rt_manifest_part_of(const cJSON *root, const char *name, rt_manifest_part *part);

// By which two boxes know that they have the same published version: a number that stays when its
// rows are merged with those that they build on, or lose their state. 0: of no published version.
uint64_t rt_manifest_identity(const cJSON *root);

// Whether all that a manifest names is in the folder, with its size and, of models, its sum (the
// hashes of a checkpoint's rows are their readers' business). RT_DATA: error names the file that is
// missing, or is another one, and what was expected; RT_IO, RT_NO_MEMORY.
rt_status rt_manifest_check(const char *folder, const cJSON *root, rt_error *error);

// The same but for the files of rows, which are elsewhere.
rt_status rt_manifest_check_without_rows(const char *folder, const cJSON *root, rt_error *error);

#endif
