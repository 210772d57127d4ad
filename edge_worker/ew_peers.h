// ew_peers - a worker's connections to the other workers of its run (dispatch.hand_over,
// dispatch.reduce).
//
// Every worker listens, and connects to all others: rows and gradients go out by its own
// connections, what comes in comes by its listener, from those that have said HELLO. An address is
// told to the coordinator in HELLO, all of them come back in PEERS. A worker that is gone is the
// coordinator's to find; what goes to it is dropped. Only where the coordinator says nothing for
// `patience_s` does the end of such a connection end this worker. One thread. A plain value.
#ifndef EW_PEERS_H
#define EW_PEERS_H

#include "runtime/config/rt_config.h"
#include "runtime/transport/rt_guests.h"

typedef struct {
    const rt_transport_ops *ops; // NULL: nothing is handed over
    rt_transport *transport;
    double patience_s;
    char address[RT_NAME_MAX]; // under which others reach the listener
    rt_guests guests;
    uint32_t rank, worker_count;         // places
    uint64_t workers;                    // mask of ranks of the configuration, by place
    bool connected;                      // PEERS has come
    rt_endpoint *others[RT_WORKERS_MAX]; // by place; NULL: the worker itself, or not yet
    uint64_t gone_ns;                    // since when one is gone; 0: all are there
    uint32_t gone;                       // its place
} ew_peers;

typedef struct {
    const rt_config *config;
    rt_identity identity;
    uint32_t rank;           // of the configuration
    const char *coordinator; // address
    rt_notify *notify;       // or NULL
} ew_peers_config;

// Listens, where the configuration asks for it (rt_dispatch_is_mutual); otherwise does nothing.
// Errors are rt_guests_listen's.
rt_status ew_peers_listen(ew_peers *peers, const rt_transport_ops *ops, rt_transport *transport,
                          const ew_peers_config *config, rt_error *error);

// Who the others are, by WELCOME; place: of this worker.
void ew_peers_welcome(ew_peers *peers, const rt_wire_welcome *welcome, uint32_t place);

// PEERS: connects to all others and greets them. RT_WIRE: it does not fit the run; RT_CONFIG: a
// worker's key is not on the list of those that may join; RT_IO.
rt_status ew_peers_connect(ew_peers *peers, const rt_message *message, rt_error *error);

// To the worker of a place, as rt_transport_ops.send; but one that is gone is no error: the message
// is dropped.
rt_status ew_peers_send(ew_peers *peers, uint32_t place, rt_message *message);

// Appends the endpoints to be waited for; at most RT_WORKERS_MAX. Returns how many.
uint32_t ew_peers_endpoints(const ew_peers *peers, rt_endpoint **endpoints);

// The next message of a worker to this one, as rt_peer of its place. RT_AGAIN: none. RT_WIRE: one
// broke the protocol; error names it.
rt_status ew_peers_receive(ew_peers *peers, uint32_t *peer_p, rt_message *message, rt_error *error);

// Looks whether connections to others have ended. RT_PEER: one did patience_s ago, and the run goes
// on; RT_CONFIG: one refused this worker.
rt_status ew_peers_look(ew_peers *peers, rt_error *error);

void ew_peers_end(ew_peers *peers, uint32_t linger_ms);

#endif
