// rt_traffic - the bytes that this process sends and receives, by what they are for.
//
// A message is counted where it is sent and where it is received (rt_transport.h), with its header;
// headers of TCP and of the transport are not. Counters of the process, for any thread.
#ifndef RT_TRAFFIC_H
#define RT_TRAFFIC_H

#include "runtime/rt_json.h"
#include "runtime/wire/rt_wire.h"

// XX(name, what it is). A message has its cause in RT_MESSAGE_MAP; first_rows and row_state are
// parts of messages of rows, which say how much of them it is.
#define RT_CAUSES_MAP(XX)                                                     \
    XX(requests, "pulls, rows that are given up, confirmations of pushes")    \
    XX(rows, "values of rows, with their keys and versions")                  \
    XX(first_rows, "values of rows that nobody has trained before")           \
    XX(row_state, "the optimizer's state that rows bring along")              \
    XX(gradients, "gradients of rows")                                        \
    XX(dense, "gradients of the dense part, and their sums")                  \
    XX(dense_weights, "the dense part for a worker that comes or comes back") \
    XX(slices, "plans and samples for the workers")                           \
    XX(reports, "what workers say of an iteration: predictions, counts")      \
    XX(checkpoints, "checkpoints, the finished model, the standby's copies")  \
    XX(versions, "published versions, for servers")                           \
    XX(feed, "events and outcomes that are sent to the run")                  \
    XX(questions, "rows that servers ask servers for")                        \
    XX(probes, "measurements of links")                                       \
    XX(control, "joining, heartbeats, requests, the end")

#define XX(name, text) RT_CAUSE_##name,
typedef enum { RT_CAUSES_MAP(XX) RT_CAUSES } rt_cause;
#undef XX

typedef struct {
    uint64_t bytes[RT_CAUSES];
} rt_traffic;

typedef enum { RT_WAY_SENT, RT_WAY_RECEIVED, RT_WAYS } rt_way;

// All counters are 0 again: a start of a run begins.
void rt_traffic_begin(void);

// A message of `size` bytes went to a peer, or came from it.
void rt_traffic_count(rt_way way, uint32_t type, uint32_t peer, size_t size);

// So many of the bytes of messages of rows are for another cause than `rows`.
void rt_traffic_split(rt_cause cause, uint64_t bytes);

// What crossed every link of a run is the sum of the shares of its coordinator and its workers: the
// coordinator's is all that it sent and received, a worker's what it exchanged with shards and what
// it sent to workers.
void rt_traffic_share(rt_role role, rt_traffic *share);

void rt_traffic_add(rt_traffic *sum, const rt_traffic *one);
uint64_t rt_traffic_bytes(const rt_traffic *traffic); // of all causes

// An object: each cause, "all", "samples", and "a_sample", which is null where there are none.
void rt_traffic_write(rt_json *json, const char *key, const rt_traffic *traffic, uint64_t samples);

#endif
