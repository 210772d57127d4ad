// ps_files - a shard's files on their way to the coordinator's box and back.
//
// The model, straight from the table; copies of checkpoint files, from this box's disk, while the
// shard serves; and a file of a checkpoint that this box has lost. All in PIECEs, with bounded
// memory (rt_parcel). One thread, one of each at a time.
#ifndef PS_FILES_H
#define PS_FILES_H

#include "ps_lite/ps_model_file.h"
#include "runtime/files/rt_parcel.h"
#include "runtime/transport/rt_member.h"

typedef struct {
    rt_member *member;
    uint32_t self; // rt_peer
    int wake_fd;   // an eventfd: written when ps_files_step has something to do
    rt_parcel_out model;
    rt_parcel_file copy;
    rt_parcel_in back;
    rt_wire_load load; // the last one
    uint64_t load_iteration;
    ps_progress progress; // while the model is sent
    void *context;
} ps_files;

// member stays the caller's. RT_LIMIT: out of descriptors.
rt_status ps_files_init(ps_files *files, rt_member *member, uint32_t self, rt_error *error);
void ps_files_fini(ps_files *files); // also of a zeroed one

// Where the model is written to. While nothing more may be under way progress is called, which is
// to take the coordinator's messages. Errors: what progress returned, or why the coordinator cannot
// go on (RT_IO...).
rt_sink ps_files_model(ps_files *files, ps_progress progress, void *context);

// Begins to send a file of a checkpoint; one that is under way is given up. That it cannot be read
// is told to the coordinator. RT_NO_MEMORY, RT_PEER.
rt_status ps_files_copy(ps_files *files, const char *path, uint64_t iteration, uint32_t file,
                        rt_error *error);

// What pieces may come of: the files of a LOAD.
void ps_files_note_load(ps_files *files, uint64_t iteration, const rt_wire_load *load);

// Takes a PIECE or TAKEN. RT_WIRE: it fits nothing; RT_NO_MEMORY, RT_LIMIT.
rt_status ps_files_take(ps_files *files, const rt_message *message, rt_error *error);

// Sends what may be sent, tells what is written. RT_NO_MEMORY, RT_PEER.
rt_status ps_files_step(ps_files *files, rt_error *error);

#endif
