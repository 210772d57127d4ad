// dp_checkpoint - the coordinator's part in checkpoints: folders, manifest, which ones stay.
//
// One checkpoint is written at a time, by forked copies of the processes (rt_child), while the run
// goes on. Its folder holds the shards' rows, planner.bin, dense.bin, config.json, and, written
// last, manifest.json: a folder without it is no checkpoint. A checkpoint that fails is warned of
// and removed; the one before stays what a run would be resumed from, and what the next one builds
// on. docs/MODEL_FORMAT.md describes the files. One thread.
#ifndef DP_CHECKPOINT_H
#define DP_CHECKPOINT_H

#include "dispatch/coordinator/dp_ages.h"
#include "dispatch/coordinator/dp_collect.h"
#include "dispatch/coordinator/dp_guard.h"
#include "dispatch/coordinator/dp_holdout.h"
#include "runtime/stream/rt_position.h"
#include "runtime/wire/rt_bytes.h"
#include "runtime/config/rt_config.h"
#include "runtime/wire/rt_control.h"
#include "runtime/metrics/rt_metrics.h"
#include "runtime/files/rt_manifest.h"
#include "runtime/files/rt_sink.h"

#define DP_CHECKPOINT_MAGIC UINT64_C(0x4e414c504e594c52) // "RLYNPLAN"

typedef struct dp_checkpoint dp_checkpoint;

// Makes one file of all rows of a shard's file of all rows and the files of changes behind it, at
// most DP_MERGE_FILES_MAX; sums: what each of them has to have (ps_merge). In a forked copy.
#define DP_MERGE_FILES_MAX 32u
#define DP_MERGE_BYTES_MIN (UINT64_C(64) << 20) // below, a checkpoint of all rows takes no time
typedef rt_status (*dp_merge)(const char *const *paths, const rt_file_sum *sums, uint32_t count,
                              const rt_sink *sink, rt_file_sum *sum_p, rt_error *error);

typedef struct {
    const char *directory; // DIRECTORY/ckpt-...
    // Where each is published once it is complete (rt_published); "": nowhere.
    const char *published;
    const rt_config *config;
    uint64_t config_hash, schema;
    uint32_t epoch;
    rt_metrics *metrics;
    dp_collect *collect; // copies of the shards' files come by it
    dp_guard *guard;     // that judged what comes to be published, by this
    const dp_evidence *evidence;
    dp_recall recall;         // or NULL
    dp_merge merge;           // or NULL: shards write all rows now and then
    uint64_t merge_bytes_min; // of all rows on disk: a smaller table is written by the shards
    bool is_of_others; // the newest of the past has other shards, or homes: nothing builds on it
} dp_checkpoint_config;

// A checkpoint that is complete on disk, as far as writing the next one goes.
typedef struct {
    uint32_t iteration;
    uint32_t base;             // the one that it changes; 0: it has all rows
    rt_position_events events; // where it goes on in journals; 0: unknown, or there is none
    uint64_t row_bytes;        // of its files of rows
} dp_checkpoint_past;

// What goes into one.
typedef struct {
    uint32_t iteration;
    uint64_t samples;
    uint32_t epochs;           // it is at the end of an epoch, which is judged; else 0
    rt_position_events events; // where reading goes on in journals; 0: there is none
    rt_bytes state;            // of coordinator and planner; taken over
    rt_bytes dense;            // dense.bin; taken over
    rt_bytes scale;            // scale.bin; taken over; empty: none
    uint64_t scale_samples;    // that it was learnt from
    double drain_ms;           // from the cut in the plan until all workers had carried it out
    double wait_ms;            // from then on until the checkpoint before was written
    double pause_ms;           // from then on until all rows were captured; set later
    double trained_s;          // when the last of its samples were trained: seconds since 1970
    dp_verdict verdict;        // where it is published
    dp_ages_kept ages;         // at the cut
} dp_checkpoint_content;

// That of the start before; 0: there was none. Of a damaged file: the seconds of the clock.
uint32_t dp_checkpoint_epoch(const char *directory);

// Starts from now on have this one or those above it. RT_IO, RT_NO_MEMORY.
rt_status dp_checkpoint_raise_epoch(const char *directory, uint32_t epoch, rt_error *error);

// Every start of a run has an epoch of its own, above those before; kept in the directory, which is
// there. RT_IO, RT_NO_MEMORY.
rt_status dp_checkpoint_begin_epoch(const char *directory, uint32_t *epoch_p, rt_error *error);

// directory/scale.bin; without bytes there is none afterwards, of a run before either. RT_IO,
// RT_NO_MEMORY.
rt_status dp_checkpoint_write_scale(const rt_bytes *bytes, const char *directory, rt_error *error);

// directory/config.json: the configuration with all defaults. part: its size and sum; may be NULL.
// RT_IO, RT_NO_MEMORY.
rt_status dp_checkpoint_write_config(const rt_config *config, const char *directory,
                                     rt_manifest_part *part, rt_error *error);

// past: those that are there, by iteration, copied; a run that starts anew has none. RT_NO_MEMORY.
rt_status dp_checkpoint_create(const dp_checkpoint_config *config, const dp_checkpoint_past *past,
                               uint32_t past_count, dp_checkpoint **checkpoint_p, rt_error *error);
void dp_checkpoint_destroy(dp_checkpoint *checkpoint); // ends what is being written

// True while one is being written, or judged (stream.patience): no other can begin.
bool dp_checkpoint_busy(const dp_checkpoint *checkpoint);

// Readable when dp_checkpoint_step has something to do; -1: nothing is under way here.
int dp_checkpoint_fd(const dp_checkpoint *checkpoint);
int dp_checkpoint_merge_fd(const dp_checkpoint *checkpoint); // likewise, of a merge

// Begins one; *cut is what shards are to be told. RT_CONFIG: the path is too long.
rt_status dp_checkpoint_begin(dp_checkpoint *checkpoint, dp_checkpoint_content *content,
                              rt_wire_cut *cut, rt_error *error);

// Then begins to write the coordinator's own parts.
void dp_checkpoint_write(dp_checkpoint *checkpoint);

// Iteration of the newest one that is complete on disk; 0: there is none.
uint32_t dp_checkpoint_newest(const dp_checkpoint *checkpoint);

// Of the judgements of epochs so far; a run that goes on has those of before.
const dp_holdout *dp_checkpoint_judgements(const dp_checkpoint *checkpoint);

// Rows were forgotten up to that iteration: the next one after it has all rows, not changes.
// has_all: it is complete, or nobody wants it.
void dp_checkpoint_want_all(dp_checkpoint *checkpoint, uint32_t after);
bool dp_checkpoint_has_all(const dp_checkpoint *checkpoint);

// The first events of journals that a complete checkpoint needs: of all that stay, or of the newest
// alone. 0: none, or nobody knows.
rt_position_events dp_checkpoint_events(const dp_checkpoint *checkpoint, bool newest);

// How long the run stood still for the one that began last.
void dp_checkpoint_paused(dp_checkpoint *checkpoint, double pause_ms);

// A shard's rows are on its disk, or not. With checkpoint.copies it is asked for them, unless they
// are here already. RT_WIRE: nobody waits for that; RT_PEER, RT_NO_MEMORY.
rt_status dp_checkpoint_written(dp_checkpoint *checkpoint, uint32_t shard,
                                const rt_message *message, rt_error *error);

// Goes on once its parts are done, copies included. Call it now and then while busy.
void dp_checkpoint_step(dp_checkpoint *checkpoint);

#endif
