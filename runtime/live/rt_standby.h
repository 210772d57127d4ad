// rt_standby - follows a coordinator (rt_mirror.h) on a disk of its own, until it is promoted.
//
// What it is sent is on disk before it says so. It keeps the journals as they are there, the
// checkpoints, and the epoch of the run. Once it was promoted it takes nothing more, from anybody:
// so a coordinator that waits for its standby acknowledges nothing from then on, and hears that it
// leads no run any more. One thread; the caller holds the folder.
#ifndef RT_STANDBY_H
#define RT_STANDBY_H

#include "runtime/config/rt_config.h"
#include "runtime/rt_notify.h"
#include "runtime/transport/rt_transport.h"

// Epochs of a coordinator count up by one with every start. A promotion begins the next block of so
// many, above all that the one before can ever have reached meanwhile.
#define RT_STANDBY_EPOCHS (UINT32_C(1) << 20)

typedef struct {
    const rt_config *config;
    const rt_transport_ops *ops;
    const rt_keys *keys;
    const char *directory;   // of the run
    const char *checkpoints; // their folder
    int stop_fd;             // readable: to end; or -1
    rt_notify *notify;
    // Boxes that were added to the run are let in as by the coordinator: the keys that a file
    // beside the checkpoints has by now, at most RT_SITE_BOXES_MAX. NULL: there are none.
    const char *added_name;
    rt_status (*read_added)(void *context, rt_public_key *keys, uint32_t *count_p, rt_error *error);
    void *context;
} rt_standby_config;

typedef struct {
    bool is_promoted;
    uint32_t epoch; // the highest that is known; of a promoted one the first of its own
} rt_standby_state;

// The id of a run's folder, which a standby's has, too; 0: it has none. RT_DATA, RT_IO.
rt_status rt_standby_read_id(const char *directory, uint64_t *id_p, rt_error *error);

// Of a folder; one that never followed has zeros. RT_DATA, RT_IO.
rt_status rt_standby_read(const char *directory, rt_standby_state *state, rt_error *error);

// Follows until it is promoted (RT_OK; a request "promote", rt_ask.h) or stop_fd is readable
// (RT_STOPPED). RT_CONFIG (also: the folder is that of a coordinator), RT_IO, RT_DATA,
// RT_NO_MEMORY.
rt_status rt_standby_run(const rt_standby_config *config, rt_error *error);

// The answer of a coordinator to a MIRROR: it comes from one that was replaced. RT_NO_MEMORY.
rt_status rt_standby_refuse(const rt_message *question, uint32_t self, rt_message *answer);

#endif
