// ps_checkpoint - a shard's part in checkpoints: writing its rows beside its work, taking them
// back.
//
// At a CUT all updates of iterations up to the cut have been processed and none of a later one is
// under way (docs/PROTOCOL.md, "Cut"). A forked copy of the process, which has the table of this
// moment, writes it out while the shard goes on serving. One thread, one checkpoint at a time.
#ifndef PS_CHECKPOINT_H
#define PS_CHECKPOINT_H

#include "ps_lite/ps_shard.h"
#include "runtime/rt_child.h"

typedef struct {
    ps_shard *shard;
    uint64_t schema;
    uint32_t rank, shard_count;
    ps_cut cut;
    uint32_t keep_from;
    char folder[RT_FOLDER_MAX];
    rt_child child;
    rt_error failure; // it could not be started
} ps_checkpoint;

void ps_checkpoint_init(ps_checkpoint *checkpoint, ps_shard *shard, uint64_t schema, uint32_t rank,
                        uint32_t shard_count);
void ps_checkpoint_fini(ps_checkpoint *checkpoint);

// Readable when ps_checkpoint_poll has something to say; -1: nothing is being written.
int ps_checkpoint_fd(const ps_checkpoint *checkpoint);

// Takes a CUT. On return the rows are captured. RT_WIRE: no such message, or one while another
// checkpoint is being written. That writing fails is told by poll.
rt_status ps_checkpoint_begin(ps_checkpoint *checkpoint, const rt_message *message,
                              rt_error *error);

// RT_OK: *answer is a WRITTEN. RT_AGAIN: nothing to say. RT_NO_MEMORY.
rt_status ps_checkpoint_poll(ps_checkpoint *checkpoint, rt_message *answer);

// Carries out a LOAD; the shard is empty if it is the first. *answer is a LOADED, which tells what
// is wrong with the files. RT_WIRE, RT_NO_MEMORY; or what progress returned.
rt_status ps_checkpoint_load(ps_shard *shard, const rt_message *message, uint64_t schema,
                             uint32_t rank, ps_progress progress, void *context, rt_message *answer,
                             rt_error *error);

// The answer to a KEYS.
rt_status ps_checkpoint_keys(const ps_shard *shard, const rt_message *message, uint32_t rank,
                             rt_message *answer, rt_error *error);

#endif
