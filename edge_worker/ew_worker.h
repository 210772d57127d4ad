// ew_worker - the worker process: joins a run, carries out its slices, trains.
//
// Two threads: the caller's communicates (coordinator, PS shards, executor), ew_trainer's trains.
#ifndef EW_WORKER_H
#define EW_WORKER_H

#include "runtime/config/rt_config.h"
#include "runtime/rt_notify.h"
#include "runtime/transport/rt_transport.h"
#include "runtime/wire/rt_control.h"

typedef struct {
    const rt_config *config;
    rt_identity identity;
    const rt_transport_ops *ops;
    const rt_keys *keys; // NULL: loopback only
    uint32_t rank;
    uint32_t box_workers; // that share the cores of this box, this one among them; 0: not known, 1
    const char *coordinator; // address
    const char *standby;     // as in rt_member_config
    const char *leader;      // likewise
    rt_notify *notify;       // or NULL
    bool *is_anew;           // set once it was told that all start anew, at once; or NULL
} ew_worker_config;

// RT_STOPPED: the coordinator ended the run (error has its reason). Anything else: this worker or
// a peer failed; the coordinator has been told.
rt_status ew_worker_run(const ew_worker_config *config, rt_error *error);

#endif
