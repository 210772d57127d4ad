// dp_roster - the members' connections: joining, sending, being heard, ending.
//
// The coordinator's side of rt_member. Owns the listening endpoint, and the table of members
// (dp_membership.h), which says what each is to the run. One thread. A member that is
// silent for timeouts.peer_s, says that it failed, or breaks the protocol, ends the run, whose
// samples it holds, unless it is a worker that can be spared; the error names it. Who never joined
// can do none of that: it is refused, told why, and logged, one line for many.
//
// With may_shrink a run begins without workers that do not come; members of boxes that are out are
// no part of it either. The others are numbered anew, in their order: that is the place by which
// all calls here name them where nothing else is said, and WELCOME tells them. Who comes later, or
// is out, waits, hears heartbeats, and can end nothing.
#ifndef DP_ROSTER_H
#define DP_ROSTER_H

#include "dispatch/coordinator/dp_members.h"
#include "dispatch/coordinator/dp_membership.h"
#include "runtime/config/rt_config.h"
#include "runtime/rt_notify.h"
#include "runtime/wire/rt_control.h"
#include "runtime/transport/rt_transport.h"

typedef struct dp_roster dp_roster;

typedef struct {
    const rt_transport_ops *ops;
    rt_transport *transport;
    const rt_config *config;
    rt_identity identity;
    const rt_keys *keys;   // NULL: loopback only
    const dp_added *added; // boxes with keys that members are told (ALLOW); NULL: none
    bool may_shrink;       // after timeouts.rejoin_s workers are no longer waited for
    uint64_t run;          // id of the run's folder; 0: it has none
    uint32_t epoch; // of this start: a member that has served a later one of this run ends it
    // A worker, by its place, has gone from a run that has begun. True: the run goes on, and
    // dp_membership_lose was called; NULL: never. why: what has become of it.
    bool (*spares)(void *context, uint32_t worker, const char *why);
    void *context;
    rt_notify *notify; // told that this process is alive, in every wait; or NULL
} dp_roster_config;

// Listens where "network" says (rt_address_listen). RT_CONFIG, RT_IO: error names the address and
// the reason.
rt_status dp_roster_create(const dp_roster_config *config, dp_roster **roster_p, rt_error *error);
void dp_roster_destroy(dp_roster *roster);

const char *dp_roster_address(const dp_roster *roster); // "tcp://127.0.0.1:41234"

// Waits until all workers and shards have joined. stop_fd: readable when the run should end, or
// -1. One that does not fit is refused, which both sides log, and still waited for: somebody will
// mend it and start it again. RT_TIMEOUT: error lists who is missing; RT_STOPPED.
rt_status dp_roster_assemble(dp_roster *roster, int stop_fd, rt_error *error);

// The table, which is the roster's as long as that lives. All members are awaited unless others are
// invited otherwise before the roster assembles.
dp_membership *dp_roster_members(dp_roster *roster);

// Of the worker, by the configuration, whose connection ended or that was silent, and so ended the
// run; UINT32_MAX: it was nobody's, or somebody else's.
uint32_t dp_roster_lost(const dp_roster *roster);

// A member has served a later coordinator of this run: this one was replaced, and has to end. What
// is called then returns RT_REFUSED, and error says so.
bool dp_roster_is_replaced(const dp_roster *roster);

// To all who take part, after assembling; who that is, and where shards listen, is filled in. With
// dispatch.hand_over or dispatch.reduce workers are also told where the others listen (PEERS).
rt_status dp_roster_welcome(dp_roster *roster, rt_wire_welcome *welcome, rt_error *error);

// Takes the message in every case. Waits while the member's queue is full, and goes on telling the
// others that the run is alive. RT_PEER: the member is gone, or has not read for timeouts.peer_s.
rt_status dp_roster_send(dp_roster *roster, uint32_t peer, rt_message *message, rt_error *error);

// Whether a visitor may ask for something: it has shown a key, or is on this box.
bool dp_roster_may_ask(dp_roster *roster, uint32_t visitor);

// What became of a visitor's CONTROL. One that is gone hears nothing.
void dp_roster_answer(dp_roster *roster, uint32_t visitor, rt_status status, const char *text);

// The next message that is not about membership; once the run has begun also the CONTROL of a
// visitor, as its peer. RT_AGAIN: none. RT_PEER: a member failed or is
// silent; RT_REFUSED: it failed, and would do so again; RT_WIRE.
rt_status dp_roster_receive(dp_roster *roster, uint32_t *peer_p, rt_message *message,
                            rt_error *error);

// Waits for messages, for wake_fd, or until heartbeats are due, and sends those.
rt_status dp_roster_wait(dp_roster *roster, int wake_fd, rt_error *error);

// Tells everybody to end, with the run's status, and who is DRAINING, for good; text is shown there.
// RT_OK: it is complete; RT_AGAIN: all start anew, at once. After others members end as having been
// stopped by a failure, so that whoever watches over them starts them again, but not if the status
// lasts.
void dp_roster_stop(dp_roster *roster, rt_status status, const char *text);

#endif
