// dp_checkpoint_parts - what the files of dp_checkpoint share: making one (dp_checkpoint.c),
// publishing it (dp_checkpoint_publish.c), and merging those that build on each other
// (dp_checkpoint_merge.c). dp_checkpoint_epoch.c stands by itself.
#ifndef DP_CHECKPOINT_PARTS_H
#define DP_CHECKPOINT_PARTS_H

#include "dispatch/coordinator/dp_checkpoint.h"
#include "runtime/config/rt_config.h"
#include "runtime/metrics/rt_metrics.h"
#include "runtime/rt_base.h"
#include "runtime/rt_child.h"

// ---- dp_hook.c --------------------------------------------------------------------------------

// Checkpoint.after: a command of the user for each checkpoint that is complete.
//
// One at a time, beside training, whatever it does: while one runs the newest checkpoint that is
// completed waits for its turn, those between are passed over. What fails goes to the log and the
// metrics. At the end of a run one that runs goes on. A plain value; one thread.

typedef struct {
    const char *command; // "": none
    rt_metrics *metrics;
    int child; // its process; 0: none runs
    uint64_t begin_ns;
    uint32_t iteration, waiting; // of the checkpoint that it is run for, and of the next; 0: none
    char folder[RT_PATH_MAX + 64], next[RT_PATH_MAX + 64];
    uint64_t failures, passed_over;
} dp_hook;

// A checkpoint is complete in a folder.
void dp_hook_put(dp_hook *hook, uint32_t iteration, const char *folder);

// Looks whether the command has ended, and runs the one that waits.
void dp_hook_step(dp_hook *hook);

// The run ends: the one that waits is run now, beside the one that runs; both go on by themselves.
void dp_hook_end(dp_hook *hook);

// -----------------------------------------------------------------------------------------------

typedef enum { STEP_IDLE, STEP_PARTS, STEP_CLOSING, STEP_JUDGING } dp_checkpoint_stage;

// What closing says: the checkpoint is complete, though it was not published; that no version was in
// force; that it is not among the versions; how it compares; and which iteration is pinned (0: none).
enum { ONLY_PUBLISHING, IS_FIRST, LEFT_OUT, IN_FORCE, COMPARED, PINNED, OF_COMPARISON };
_Static_assert(OF_COMPARISON * sizeof(uint64_t) + sizeof(dp_comparison) <=
                   sizeof((rt_child_result *)0)->values,
               "it has room");

struct dp_checkpoint {
    dp_checkpoint_config config;
    char directory[RT_PATH_MAX];
    dp_checkpoint_past *past; // complete ones that stay, ascending
    uint32_t past_count, past_capacity;
    dp_checkpoint_stage step;
    dp_checkpoint_content content;
    uint32_t base, keep_from;
    dp_hook after;
    dp_holdout holdout;
    uint32_t all_after; // dp_checkpoint_want_all; 0: nobody does
    char folder[RT_FOLDER_MAX];
    rt_child child;
    rt_child merger;    // beside the child; nothing waits for it
    uint32_t merges_to; // iteration of the checkpoint that has all rows when it is done
    bool is_apart;      // a shard's file of the newest checkpoint is not in its folder here
    bool cannot_merge;  // the last merge failed: the next one of all rows is the shards' work
    bool own_done;
    uint64_t shards_done;             // that have written
    uint64_t copying;                 // whose files are on their way here
    uint64_t copied_bytes, copied_ns; // so far; when that changed last
    rt_file_sum planner, dense, shards[RT_SHARDS_MAX];
    rt_file_sum scale; // 0 bytes: there is none
    rt_error failure;  // the first
    uint64_t begin_ns;
    char published[RT_PATH_MAX]; // "": nothing is published
    uint64_t run;                // of the versions
    double published_s;          // when the samples of the last one were trained; 0: there is none
    bool is_chained;             // the newest checkpoint is among them: changes can build on it
    rt_publish_config margins;   // as this version is judged
    uint64_t held_ns;            // since when none has passed; 0: the last one did
    uint32_t held_count;         // so many did not
    double held_s;               // of this version, when it is judged
    uint64_t told_ns;
};

// A manifest of that format with what all have; and the files of the checkpoint.
void dp_checkpoint_begin_manifest(const dp_checkpoint *c, unsigned format, rt_json *json);
void dp_checkpoint_put_parts(const dp_checkpoint *c, rt_json *json, bool with_planner);

// Changes since the newest one with all rows are as many bytes as that has (where shards' files come
// to be here by themselves), or full_every checkpoints would build on each other.
bool dp_checkpoint_is_long(const dp_checkpoint *c);

// Whether a merge makes that short again: then shards need not write all rows.
bool dp_checkpoint_can_merge(const dp_checkpoint *c);

// The newest checkpoint is judged by held-out samples, if it is one of the end of an epoch. begin: a
// run goes on from it. RT_DATA, and what reading its manifest returns.
rt_status dp_checkpoint_begin_judging(dp_checkpoint *c, rt_error *error);
void dp_checkpoint_judge(dp_checkpoint *c);
void dp_checkpoint_judged(dp_checkpoint *c, const rt_child_result *result);

// The iteration of the oldest one that the best one needs, itself included; UINT32_MAX: there is
// none.
uint32_t dp_checkpoint_best_needs(const dp_checkpoint *c);

// Begins one where that is so and it is due; takes what has become of one; ends it.
void dp_checkpoint_merge(dp_checkpoint *c);
void dp_checkpoint_merge_step(dp_checkpoint *c);
void dp_checkpoint_merge_end(dp_checkpoint *c);

// In the forked copy: the checkpoint, complete, becomes a version. One that is held is there as
// well, for those that build on it.
rt_status dp_checkpoint_publish(dp_checkpoint *c, rt_child_result *result);

// What came of it, in the process itself.
void dp_checkpoint_report_version(dp_checkpoint *c, const rt_child_result *result);

#endif
