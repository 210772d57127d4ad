// dp_publisher - hands published models out to servers of other boxes (publish.address).
//
// A thread with an endpoint of its own (ZeroMQ, CURVE where keys are in use) answers FETCHes from
// the folder. Who asks says which bytes of which file. So a server that is slow, or gone, costs
// nothing, and the run knows of none. Servers ask for files without the optimizer's state, which it
// takes out of a part of a file after the other (docs/PROTOCOL.md, "Published files"). It keeps the
// part that it made last, and nothing else.
#ifndef DP_PUBLISHER_H
#define DP_PUBLISHER_H

#include "runtime/files/rt_published.h"
#include "runtime/transport/rt_transport.h"
#include "runtime/wire/rt_bytes.h"

typedef struct dp_publisher dp_publisher;

// A part of a file of rows without state (ps_model_values).
typedef rt_status (*dp_values)(int file, const char *name, uint64_t offset, rt_bytes *part,
                               uint64_t *next_p, uint64_t *checksum_p, rt_error *error);

typedef struct {
    const char *address; // "HOST:PORT"
    const char *folder;  // rt_published
    const rt_keys *keys; // NULL: loopback only; outlives the publisher
    const char *key;     // of the configuration that has the address, for errors
    dp_values values;
    // Of a server that hands out what it answers with; NULL: the folder says what is in force, and
    // LOOK_UPs are refused. In the publisher's thread; RT_OK: *answer is sent.
    rt_status (*in_force)(void *context, rt_published *published);
    rt_status (*look_up)(void *context, const rt_message *question, rt_message *answer);
    void *context;
} dp_publisher_config;

// RT_CONFIG, RT_IO: error names the address and the reason. RT_NO_MEMORY, RT_LIMIT.
rt_status dp_publisher_open(const dp_publisher_config *config, dp_publisher **publisher_p,
                            rt_error *error);
void dp_publisher_close(dp_publisher *publisher); // also NULL

#endif
