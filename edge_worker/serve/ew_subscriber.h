// ew_subscriber - keeps a folder on this box the same as the one that a run publishes to.
//
// A thread asks the run (publish.address) for what is in force, fetches the versions that are
// missing here, oldest first, each complete before it is there, and then makes the same one in
// force (rt_published). Whoever follows the folder (ew_follower) needs no network: while the run is
// away, or the link, the folder stays as it is.
#ifndef EW_SUBSCRIBER_H
#define EW_SUBSCRIBER_H

#include "runtime/transport/rt_transport.h"

typedef struct ew_subscriber ew_subscriber;

typedef struct {
    const char *address; // "tcp://HOST:PORT"
    const char *standby; // likewise, where the run is led from when it is not there; "": nowhere
    const char *folder;  // made if it is not there
    uint32_t keep;       // versions
    const rt_keys *keys; // NULL: loopback only; outlives the subscriber
    bool without_rows;   // all but their files, of the version in force alone
} ew_subscriber_config;

// RT_CONFIG, RT_IO, RT_NO_MEMORY, RT_LIMIT. That nobody answers is no error: it goes on asking.
rt_status ew_subscriber_open(const ew_subscriber_config *config, ew_subscriber **subscriber_p,
                             rt_error *error);
void ew_subscriber_close(ew_subscriber *subscriber); // also NULL

// Whether there is a model in the folder. RT_AGAIN: not yet, and error says what is in the way.
rt_status ew_subscriber_find(ew_subscriber *subscriber, rt_error *error);

#endif
