// rt_member - a worker's or shard's membership in a run: joining, heartbeats, the end.
//
// A member has one connection to the coordinator. It says HELLO, waits for WELCOME, then both send
// heartbeats; a coordinator that is silent for timeout_peer_s has failed. One thread.
#ifndef RT_MEMBER_H
#define RT_MEMBER_H

#include "runtime/rt_base.h"
#include "runtime/rt_notify.h"
#include "runtime/transport/rt_transport.h"
#include "runtime/wire/rt_control.h"

// ---- rt_leader.c ------------------------------------------------------------------------------

// The highest epoch in which a member has served each run, on its own disk.
//
// A run with a standby can be led by two boxes, one after the other (rt_standby.h). Members tell in
// their HELLO whom they have served, so that one that was replaced hears it from them, too, where
// it cannot hear it from its standby; and they follow nobody into an epoch before. A file of the
// member's has a line of text for each run: run, epoch, and a hash of both; the run that was heard
// of last comes first. Members of several runs may share a folder: RT_LEADER_RUNS_MAX runs are
// kept, then the one that was heard of longest ago goes.

#define RT_LEADER_RUNS_MAX 16u

typedef struct {
    uint64_t run;   // id of the run's folder (standby.id); 0: none
    uint32_t epoch; // the highest
} rt_leader;

typedef struct {
    rt_leader of[RT_LEADER_RUNS_MAX]; // those without a run behind all others
} rt_leaders;

// A file that is not there: zeros. RT_DATA: damaged; RT_IO.
rt_status rt_leaders_read(const char *path, rt_leaders *leaders, rt_error *error);

// From now on it serves this run (not 0) in this epoch; on disk before it returns. RT_PEER: it has
// served a later one, which is the first from now on, so that the next HELLO says so; RT_IO,
// RT_NO_MEMORY: leaders is as before.
rt_status rt_leaders_follow(const char *path, uint64_t run, uint32_t epoch, rt_leaders *leaders,
                            rt_error *error);

// -----------------------------------------------------------------------------------------------

#define RT_RUN_COMPLETE "the run is complete" // the reason of a STOP after which nothing is wrong
#define RT_BOX_DRAINED "the run goes on without this box" // likewise, for its members
// The reason of a STOP of a standby that only follows (rt_standby.h): the next address is tried.
#define RT_STANDBY_FOLLOWS "this is the standby, which leads no run yet"
// The reason of a STOP to a visitor who would be let in; the coordinator's build follows.
#define RT_VISITOR_FITS "welcome, says lanyard "

typedef struct {
    const rt_transport_ops *ops;
    rt_transport *transport;
    uint32_t self;           // rt_peer
    const char *coordinator; // address
    const char *standby;     // where it is when it is not there (rt_standby.h); NULL or "": nowhere
    const char *address;     // own listener; "" for workers
    const rt_keys *keys;     // NULL: none
    rt_identity identity;
    uint64_t box;       // rt_config_hash_box of its box; 0: boxes are not told
    uint32_t holds;     // of a shard: iteration of the newest checkpoint that it can go back to; 0
    const char *leader; // path of rt_leader's file; NULL: who has led the run is not kept
    double timeout_start_s, timeout_peer_s;
    rt_notify *notify; // told once this process waits for others, and with every beat; or NULL
} rt_member_config;

typedef struct {
    rt_member_config config;
    rt_endpoint *endpoint;
    rt_wire_welcome welcome;
    rt_leaders leaders;
    uint64_t allowed; // hash of the last ALLOW; 0: none
    uint64_t heard_ns, sent_ns;
    uint64_t vitals_ns; // when VITALS are due
    bool is_anew;       // a STOP said that all start anew, at once
    bool is_taken;      // likewise, that another process has the place of this member
} rt_member;

// Connects and waits for WELCOME, at the two addresses in turn until one answers: for
// timeout_start_s, and as long as the coordinator is heard, which lets a worker wait that a run
// goes on without. While another process has its place, which is free a little after that one was
// lost, it asks again. RT_TIMEOUT: nobody answered (error names the address); RT_REFUSED: the place
// was another's for timeout_start_s; RT_STOPPED, RT_REFUSED: it said no (error has its reason); RT_WIRE; RT_PEER: it is silent now, or was replaced, in an
// epoch that this member has served; RT_DATA, RT_IO: as rt_leader.
rt_status rt_member_join(rt_member *member, const rt_member_config *config, rt_error *error);

// The place of this member among those of its role that take part. Shards and other workers know a
// worker by its place; a shard's says which rows are its own.
uint32_t rt_member_rank(const rt_member *member);

// For a failure that may only be how the end of the run looks from here: reports it, and hears what
// the coordinator has to say, for a second at most. Returns error's status: its own, unless the
// coordinator says RT_REFUSED, or RT_STOPPED because the box is drained or all start anew, which
// takes its place.
rt_status rt_member_give_up(rt_member *member, rt_error *error);

// Reports a failure to the coordinator, as far as that is still possible, and leaves.
void rt_member_leave(rt_member *member, const rt_error *failure);

// For a turn in which the transport has nothing of the coordinator: RT_PEER when it has been
// silent for too long.
rt_status rt_member_check(const rt_member *member, rt_error *error);

// The next message for the caller; heartbeats are taken care of. RT_AGAIN: none. RT_STOPPED: the
// run ends (error has the reason, RT_RUN_COMPLETE if nothing is wrong). RT_REFUSED: likewise, and
// somebody has to mend something before it can begin again. RT_PEER: the coordinator is silent;
// RT_NOT_FOUND: the connection to it has ended; RT_WIRE.
rt_status rt_member_receive(rt_member *member, rt_message *message, rt_error *error);

// Sends a heartbeat when one is due. Call at least every timeout_peer_s / 5. RT_PEER: the
// coordinator is gone; RT_NO_MEMORY.
rt_status rt_member_beat(rt_member *member, rt_error *error);

// Whether VITALS are due, every two seconds; asking takes the turn. Then sends them, with the
// memory of this process filled in; a coordinator that has enough to read goes without. Errors as
// rt_member_beat.
bool rt_member_vitals_due(rt_member *member);
// image_bytes: of a shard, of rows as they were at checkpoints.
rt_status rt_member_tell_vitals(rt_member *member, rt_wire_vitals *vitals, uint64_t image_bytes,
                                rt_error *error);

// The message is taken in every case, as this member's. Waits while the queue is full. RT_PEER: the
// coordinator is gone, or has not read for timeout_peer_s.
rt_status rt_member_send(rt_member *member, rt_message *message, rt_error *error);

// Milliseconds that a wait may last.
uint32_t rt_member_wait_ms(const rt_member *member);

#endif
