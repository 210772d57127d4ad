// ps_server - the process around one shard: sockets, joining, saving, ending.
//
// Runs in the calling thread until the run ends. Listens first, then joins the coordinator with its
// address; workers connect to it. Replies are sent once the sockets are drained, so they fill
// messages when much arrives and leave at once when little does. That a worker is gone or silent is
// the coordinator's to judge: it has a connection to each, and stops the run. While rows are read
// from a file, or written to one, everything goes on but rows, however slow the disk is.
//
// Only workers that said a HELLO of this configuration are heard; others may probe the link, and
// nothing that they send ends anything. A worker of the run that breaks the protocol ends it, and
// is named: what it trained is missing.
#ifndef PS_SERVER_H
#define PS_SERVER_H

#include "ps_lite/ps_shard.h"
#include "runtime/transport/rt_member.h"

typedef struct {
    const rt_transport_ops *transport;
    const rt_keys *keys; // NULL: loopback only
    const rt_config *config;
    uint32_t rank;
    const char *coordinator; // address "tcp://host:port"
    const char *standby;     // as in rt_member_config
    const char *leader;      // likewise
    rt_identity identity;    // workers and coordinator must have the same
    uint64_t schema;         // goes into model files
    rt_notify *notify;       // or NULL
    // Rows of the run before, which the coordinator may ask for instead of files; and those that
    // the next one may go on with, if this one ends for no fault of the shard. NULL: neither.
    struct ps_kept **kept;
    bool *was_welcome; // set once the coordinator has taken it in; or NULL
    bool *is_anew;     // set once it was told that all start anew, at once; or NULL
} ps_server_config;

// RT_OK: finished (FINISH). RT_STOPPED, RT_REFUSED: the coordinator said STOP; error holds its
// reason. RT_TIMEOUT: the run did not start in time; RT_PEER: the coordinator is silent. Others: as
// the shard and the transport. The coordinator is told of failures before return.
rt_status ps_server_run(const ps_server_config *config, rt_error *error);

#endif
