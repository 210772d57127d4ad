// rt_control - payloads of the messages that form, drive and end a run.
//
// All of them are fixed-size structs, some followed by arrays; sizes are asserted, strings end in
// a zero byte within their field. Row traffic is in rt_wire.h, slices in
// dispatch/plan/dp_slice_wire.h.
#ifndef RT_CONTROL_H
#define RT_CONTROL_H

#include "runtime/rt_build.h"
#include "runtime/wire/rt_counts.h"
#include "runtime/wire/rt_traffic.h"
#include "runtime/wire/rt_wire.h"

#define RT_ADDRESS_MAX 64u
#define RT_WIRE_KEY_BYTES 32u
#define RT_FOLDER_MAX 1024u // bytes of a path, with the zero

// HELLO: the first message of a worker or shard to the coordinator, and of a worker to a shard.
// header.iteration: of a shard, the iteration of the newest checkpoint whose rows it has in memory;
// 0: none. Fields up to program have the same place in every version.
typedef struct {
    uint32_t role; // rt_role
    uint32_t rank;
    uint64_t pid;
    uint64_t config_hash;           // of all keys: both sides must run the same
    char program[RT_BUILD_MAX];     // rt_build()
    char address[RT_ADDRESS_MAX];   // of the own listener; empty: it has none
    uint8_t key[RT_WIRE_KEY_BYTES]; // public key of that listener; zeros: none
    uint64_t given_hash;            // of the keys that differ from this build's defaults
    uint32_t format;                // of the files of models and checkpoints (RT_MANIFEST_FORMAT)
    uint32_t epoch;   // the highest in which it has served the run below (rt_leader.c)
    uint64_t run;     // id of that run's folder; 0: none
    uint64_t box;     // of a member: rt_config_hash_box of its box; 0: boxes are not told
    uint64_t allowed; // of a member: hash of the payload of the last ALLOW that it took; 0: none
} rt_wire_hello;
_Static_assert(sizeof(rt_wire_hello) == 184, "wire layout");
_Static_assert(offsetof(rt_wire_hello, address) == 48, "the same in every version");

// WELCOME: sent to everyone once all have joined.
typedef struct {
    uint32_t worker_count;
    uint32_t shard_count;
    uint32_t dense_count; // of the stream's schema
    uint32_t field_count;
    uint32_t keys_per_sample_max;
    uint32_t slot_count;       // cache rows of the receiving worker
    uint32_t sample_count_max; // of one micro-batch
    uint32_t run_ahead;        // slices that may be outstanding
    uint64_t dense_bytes;      // of one worker's dense exchange, each way and iteration
    uint32_t epoch;            // of all messages with rows and gradients
    uint32_t shards_in; // mask of the shards' ranks that take part; rows are where their place says
    uint64_t workers; // mask of the workers' ranks that take part; shards know them by their place
    float row_rate, dense_rate; // learning rates that were set (`lanyard set`); 0: as configured
    uint64_t run;               // id of the run's folder, where it has or had a standby; else 0
    char shards[RT_SHARDS_MAX][RT_ADDRESS_MAX];
    uint8_t shard_keys[RT_SHARDS_MAX][RT_WIRE_KEY_BYTES]; // zeros: none
} rt_wire_welcome;
_Static_assert(sizeof(rt_wire_welcome) == 72 + 16 * (64 + 32), "wire layout");

// ALLOW: keys of boxes that were added to the run, which its members allow from now on beside those
// that they have; count of these. A member answers with its HELLO again, and has joined with that.
typedef struct {
    char name[64];
    uint8_t key[RT_WIRE_KEY_BYTES];
} rt_wire_allowed;
_Static_assert(sizeof(rt_wire_allowed) == 64 + 32, "wire layout");

// PEERS: where every worker that takes part listens for the others, by their places; only where
// workers send to each other (rt_dispatch_is_mutual). The others are zeros.
typedef struct {
    struct {
        char address[RT_ADDRESS_MAX];
        uint8_t key[RT_WIRE_KEY_BYTES]; // zeros: none
    } workers[RT_WORKERS_MAX];
} rt_wire_workers;
_Static_assert(sizeof(rt_wire_workers) == 64 * (64 + 32), "wire layout");

// REPORT: an iteration is trained; followed by sample_count predictions (float) in slice order.
// Also a worker's FINISHED after FINISH, for what it did since (the flush), without samples.
typedef struct {
    uint32_t sample_count;
    uint32_t stale_reads; // rows that were not at the version that the plan names
    double loss_sum;      // log loss over the micro-batch
    rt_counts done;
    rt_times times;
    uint64_t fingerprint;                    // of the plan that the slice is from
    double up_bytes_per_s, down_bytes_per_s; // what its transfers say of the link; 0: nothing new
    double up_at_least, down_at_least;       // bytes/s, of messages that did not fill the link
    uint32_t skipped; // 1: a worker's loss is not finite, nothing of the iteration is applied
    uint32_t handed;  // rows that came from other workers since the report before
    uint64_t dense_early_bytes; // of dense gradients that were sent before all was computed
    uint32_t gradients;         // of rows, that went to other workers since the report before
    // 1: of a worker that sat out: all that came is carried out, all it sent confirmed.
    uint32_t idle;
} rt_wire_report;
_Static_assert(sizeof(rt_wire_report) == 168, "wire layout");

// What a process is, as far as others must agree with it.
typedef struct {
    uint64_t config_hash; // of all keys of the configuration that boxes share
    uint64_t given_hash;  // of those of them that differ from the defaults
    uint32_t format;      // of the files of models and checkpoints
} rt_identity;

// The HELLO of a process; address and key are the caller's to add.
rt_wire_hello rt_control_greet(uint32_t self, const rt_identity *identity);

// A HELLO, as far as it can be read: RT_CONFIG: another version of the protocol (error names both
// sides' builds); RT_WIRE: the wrong size, or text that does not end. self is only named.
rt_status rt_control_hello(const rt_message *message, uint32_t peer, uint32_t self,
                           rt_wire_hello *hello, rt_error *error);

// Whether two processes fit into one run; name is who said HELLO. Another build of the same
// protocol does: that is told in the log. RT_CONFIG: it is the configuration that differs, or,
// where the same was given to both, the build, whose defaults do; or the formats of files. error
// says which.
rt_status rt_control_agree(const rt_wire_hello *hello, const rt_identity *own, const char *name,
                           rt_error *error);

// PART: followed by bytes [offset, ...) of total. header.iteration: of the cut.
typedef struct {
    uint64_t offset, total;
} rt_wire_part;
_Static_assert(sizeof(rt_wire_part) == 16, "wire layout");

#define RT_WIRE_PART_BYTES_MAX (UINT32_C(1) << 20)

// CUT: remove checkpoints of iterations before keep_from from the parent of a folder, then write
// rows whose version is above base (0: all) to it. What is removed is needed by nobody, whether
// this one will be complete or not. header.iteration: of the cut; header.count: iteration of the
// newest complete checkpoint. The answer has no payload.
typedef struct {
    uint32_t base;
    uint32_t keep_from;
    char folder[RT_FOLDER_MAX];
} rt_wire_cut;
_Static_assert(sizeof(rt_wire_cut) == 8 + 1024, "wire layout");

// WRITTEN, LOADED: followed by text, which says what went wrong. header.iteration: of the cut.
typedef struct {
    uint32_t status;      // rt_status
    uint32_t file;        // LOADED: with a status, the one that is to blame
    uint64_t bytes, hash; // rt_file_sum
    uint64_t ns;          // WRITTEN: that it took
} rt_wire_written;
_Static_assert(sizeof(rt_wire_written) == 32, "wire layout");

// VITALS: what a process has in memory and may have; of a shard, its rows. 0: not known, or none.
// traffic: a worker's share (rt_traffic_share) since it joined.
// header.iteration: of a shard, bytes of rows as they were at checkpoints (ps_images.c).
typedef struct {
    uint64_t resident_bytes, memory_max_bytes;
    uint64_t rows, row_bytes, row_bytes_max;
    rt_traffic traffic;
} rt_wire_vitals;
_Static_assert(sizeof(rt_wire_vitals) == 40 + 8 * RT_CAUSES && RT_CAUSES == 15, "wire layout");

// The number by which a checkpoint's rows of one shard are known. It is made of the sums of the
// shard's files in that checkpoint, file by file. base: the number so far, without this file; 0:
// not known, and then neither is the result.
#define RT_LINEAGE_ALL_ROWS UINT64_C(1) // base of a file that has all rows
uint64_t rt_control_lineage(uint64_t base, uint64_t bytes, uint64_t hash);

#define RT_WIRE_LOAD_FIRST 1u // all rows held so far are dropped before
// Homes of rows were planned: a file has what its shard had, whatever a hash says.
#define RT_WIRE_LOAD_HOMES 2u
// Not of a checkpoint, but of a model that the run begins with: it has not trained these rows
// (version 0).
#define RT_WIRE_LOAD_MODEL 4u
// Nothing is read: the shard makes the rows of the checkpoint out of the rows that it has kept in
// memory (HELLO). The hash of a shard's file is the checkpoint's lineage. If that cannot be done
// the answer has RT_NOT_FOUND, and the files follow.
#define RT_WIRE_LOAD_KEPT 8u

#define RT_WIRE_LOAD_FOLDER_MAX (RT_FOLDER_MAX - sizeof(uint64_t))

// LOAD: rows of the files of shard_count shards in a folder. header.iteration: of the cut.
typedef struct {
    uint32_t shard_count; // 0: no rows
    uint32_t flags;       // RT_WIRE_LOAD_...
    struct {
        uint64_t bytes, hash; // rt_file_sum that a shard's file must have; of a model XXH3 of it
    } files[RT_SHARDS_MAX];
    char folder[RT_WIRE_LOAD_FOLDER_MAX];
    // With FIRST: of the file's rows, where it was merged; 0: it follows from the file.
    uint64_t lineage;
} rt_wire_load;
_Static_assert(sizeof(rt_wire_load) == 8 + 16 * 16 + 1024, "wire layout");

// PIECE: followed by bytes [offset, ...) of a file, at most RT_WIRE_PIECE_BYTES_MAX; in order. With
// a status the sender gives up, and text follows. header.iteration: of the checkpoint, 0: a model.
typedef struct {
    uint32_t file;   // which one, among those of this sender and iteration
    uint32_t status; // rt_status
    uint64_t offset, total;
    uint64_t checksum; // XXH3 of the bytes
    uint64_t sum;      // of the last piece: XXH3 of the whole file
} rt_wire_piece;
_Static_assert(sizeof(rt_wire_piece) == 40, "wire layout");

#define RT_WIRE_PIECE_BYTES_MAX (UINT32_C(64) << 10)

// Under way: neither side holds more of a file in memory. And what is under way stands in the queue of
// the slowest link, where answers of a server wait behind it: 256 KB are 2 ms of a gigabit.
#define RT_WIRE_PIECES_MAX 4u

// TAKEN: all bytes before offset are written. With a status the receiver gives up, and text
// follows.
typedef struct {
    uint32_t file;
    uint32_t status; // rt_status
    uint64_t offset;
    uint32_t is_complete; // 1: the file is on disk under its name
    uint32_t reserved;
} rt_wire_taken;
_Static_assert(sizeof(rt_wire_taken) == 24, "wire layout");

// FETCH: bytes of a published file from offset on (docs/PROTOCOL.md, "Published files"). name:
// "current.json", or a version and a file of it.
typedef struct {
    uint64_t offset;
    uint64_t skip;   // bytes of the part at offset that are there already
    uint32_t values; // 1: of the file without optimizer state
    uint32_t reserved;
    char name[104];
} rt_wire_fetch;
_Static_assert(sizeof(rt_wire_fetch) == 128, "wire layout");

// FETCHED: followed by those bytes, as many as there are, at most RT_WIRE_FETCH_BYTES_MAX; with a
// status text follows. header.iteration: as the FETCH had it. A part is what the bytes of the file
// from offset to next have become: with `values` what is left without state, else these bytes.
typedef struct {
    uint32_t status; // rt_status
    uint32_t reserved;
    uint64_t offset, skip;
    uint64_t total;    // bytes of the file
    uint64_t part;     // bytes of the part
    uint64_t next;     // offset of the next part
    uint64_t checksum; // with `values`: the file's own of the bytes from offset to next
} rt_wire_fetched;
_Static_assert(sizeof(rt_wire_fetched) == 56, "wire layout");

#define RT_WIRE_FETCH_BYTES_MAX (UINT32_C(1) << 20)

// LOOK_UP: rows of a published version (docs/SERVING.md, "Rows of another box"). Followed by up to
// RT_WIRE_LOOK_UPS_MAX rt_wire_wanted. Without any it asks whether the other side is there.
typedef struct {
    uint64_t version; // XXH3 of its manifest.json
} rt_wire_look_up;
_Static_assert(sizeof(rt_wire_look_up) == 8, "wire layout");

typedef struct {
    uint64_t key;
    uint64_t have; // XXH3 of the row that the asker has; 0: none
} rt_wire_wanted;
_Static_assert(sizeof(rt_wire_wanted) == 16, "wire layout");

#define RT_WIRE_LOOK_UPS_MAX (UINT32_C(1) << 14)

// LOOKED_UP: followed by one rt_look_up_found for each that was wanted, zeros up to a multiple of
// 8, and dim floats for each ROW; with a status text follows. header.iteration: as the LOOK_UP had
// it. All rows are of one version; it is another one where the wanted version is gone.
typedef struct {
    uint32_t status; // rt_status
    uint32_t dim;
    uint64_t version, iteration;
    double trained_s;
    uint32_t count, reserved;
} rt_wire_looked_up;
_Static_assert(sizeof(rt_wire_looked_up) == 40, "wire layout");

typedef enum {
    RT_LOOK_UP_NONE = 0, // the key has no row
    RT_LOOK_UP_SAME = 1, // it is the one that who asks has
    RT_LOOK_UP_ROW = 2
} rt_look_up_found;

// MIRROR: what a coordinator asks of its standby (rt_mirror.h).
typedef enum {
    // id, epoch: the run. The answer's text: what the standby has, a line each:
    //   journal FLOW SEGMENT BYTES
    //   checkpoint ITERATION XXH3 (of its manifest)
    RT_MIRROR_BEGIN = 1,
    RT_MIRROR_BLOCK, // bytes [offset, ...) of a segment (number) of a journal (flow)
    RT_MIRROR_CUT,   // a segment ends at offset; 0: it goes
    RT_MIRROR_FILE,  // bytes [offset, ...) of total of the file `name` below the checkpoints'
                     // folder; total 0, of one that is in none of them: it goes
    RT_MIRROR_DROP,  // the checkpoint of iteration `number` goes
    RT_MIRROR_BEAT,  // are you there?
    RT_MIRROR_READ   // the answer has bytes [offset, offset + total) of a segment (number) of a
                     // journal (flow), fewer at its end
} rt_mirror_kind;

#define RT_WIRE_MIRROR_SYNC 1u // the answer comes when these bytes are on disk
#define RT_WIRE_MIRROR_BYTES_MAX (UINT32_C(1) << 20)

typedef struct {
    uint32_t kind; // rt_mirror_kind
    uint32_t flow; // rt_flow
    uint64_t id;
    uint32_t epoch;
    uint32_t flags; // RT_WIRE_MIRROR_...
    uint64_t number, offset, total;
    char name[128];
} rt_wire_mirror;
_Static_assert(sizeof(rt_wire_mirror) == 176, "wire layout");

// MIRRORED: with a status text says why not. RT_REFUSED: the standby was promoted, or follows
// another run; whoever asked leads no run any more.
typedef struct {
    uint32_t status; // rt_status
    uint32_t epoch;  // that the standby knows of
} rt_wire_mirrored;
_Static_assert(sizeof(rt_wire_mirrored) == 8, "wire layout");

// KEYS: a row that a shard holds.
typedef struct {
    uint64_t key;
    uint32_t version;
    uint32_t reserved;
} rt_wire_key;
_Static_assert(sizeof(rt_wire_key) == 16, "wire layout");

#define RT_WIRE_KEYS_MAX (UINT32_C(1) << 16) // of one answer

// What a STOP or a FAILED says beside its text, in header.iteration.
typedef enum {
    RT_REASON_FAILED = 0, // to start again may help
    RT_REASON_COMPLETE,   // STOP: nothing is wrong
    RT_REASON_LASTS,      // it does not: somebody has to mend something
    RT_REASON_DRAINED,    // STOP: the run goes on without the member's box
    RT_REASON_ANEW,       // STOP: as was planned, all start anew, at once
    RT_REASON_TAKEN       // STOP: another process has this member's place, or had it until just now
} rt_reason;
#define RT_REASONS (RT_REASON_TAKEN + 1)

// Reads a text payload (STOP, FAILED) into text, always terminated. RT_WIRE: too long or with
// a zero byte inside.
rt_status rt_control_text(const rt_message *message, char *text, size_t size);

// A message whose payload is text. RT_NO_MEMORY.
rt_status rt_control_create_text(rt_message *message, rt_message_type type, uint32_t sender,
                                 const char *text);

// The STOP that a listener sends to whom it does not let in: its place is another connection's.
// Such one's text ends the same way, whoever sent it.
rt_status rt_control_create_taken(rt_message *message, uint32_t sender, uint32_t peer);
bool rt_control_is_taken(const rt_message *message);
bool rt_control_says_taken(const char *text);

// A STOP or FAILED, of somebody who ends with this status. RT_NO_MEMORY.
rt_status rt_control_create_end(rt_message *message, rt_message_type type, uint32_t sender,
                                rt_status status, const char *text);

// A message whose payload is one struct, followed by text (NULL: none). RT_NO_MEMORY.
rt_status rt_control_create_struct(rt_message *message, rt_message_type type, uint32_t sender,
                                   uint64_t iteration, const void *bytes, size_t size,
                                   const char *text);

// A message that is only a header.
rt_status rt_control_create(rt_message *message, rt_message_type type, uint32_t sender);

// True when the payload is exactly one struct of this size (plus extra bytes, where given).
bool rt_control_has(const rt_message *message, size_t size);

// Copies text into a zero-filled field; false when it is too long.
bool rt_control_put_text(char *field, size_t size, const char *text);

#endif
