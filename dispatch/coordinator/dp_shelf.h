// dp_shelf - hands published models out to servers of other boxes (publish.address).
//
// A thread with an endpoint of its own (ZeroMQ, CURVE where keys are in use) answers FETCHes from
// the folder. It keeps nothing: who asks says which bytes of which file. So a server that is slow,
// or gone, costs nothing, and the run knows of none.
#ifndef DP_SHELF_H
#define DP_SHELF_H

#include "runtime/files/rt_published.h"
#include "runtime/transport/rt_transport.h"

typedef struct dp_shelf dp_shelf;

typedef struct {
    const char *address; // "HOST:PORT"
    const char *folder;  // rt_published
    const rt_keys *keys; // NULL: loopback only; outlives the shelf
    const char *key;     // of the configuration that has the address, for errors
    // Of a server that hands out what it answers with; NULL: the folder says what is in force, and
    // LOOK_UPs are refused. In the shelf's thread; RT_OK: *answer is sent.
    rt_status (*in_force)(void *context, rt_published *published);
    rt_status (*look_up)(void *context, const rt_message *question, rt_message *answer);
    void *context;
} dp_shelf_config;

// RT_CONFIG, RT_IO: error names the address and the reason. RT_NO_MEMORY, RT_LIMIT.
rt_status dp_shelf_open(const dp_shelf_config *config, dp_shelf **shelf_p, rt_error *error);
void dp_shelf_close(dp_shelf *shelf); // also NULL

#endif
