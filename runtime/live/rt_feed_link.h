// rt_feed_link - one flow of a feeder: the connection over which a spool goes to the coordinator.
//
// The spool numbers what is in it under a name of its own (a random number in its folder). What the
// coordinator has on disk is forgotten here. One thread.
#ifndef RT_FEED_LINK_H
#define RT_FEED_LINK_H

#include "runtime/live/rt_journal.h"
#include "runtime/rt_hash.h"
#include "runtime/rt_log.h"
#include "runtime/stream/rt_position.h"
#include "runtime/transport/rt_visitor.h"

#define RT_FEED_UNANSWERED_MAX 16u // messages

// Where the coordinator takes events: on its box, and on the one that may take its place.
typedef struct {
    char addresses[2][RT_NAME_MAX + 16]; // "tcp://HOST:PORT"; the second may be ""
    const rt_keys *keys;                 // of both
} rt_feed_hub;

typedef struct {
    rt_flow flow;
    rt_journal *journal;
    rt_transport *transport;
    const rt_feed_hub *hub;
    const char *address;   // of the connection, or of the next one
    rt_endpoint *endpoint; // NULL: no connection
    uint64_t feeder;
    rt_visitor visitor;
    bool is_answered;                      // the coordinator has said what it has
    uint64_t sent, kept;                   // last numbers
    uint64_t ends[RT_FEED_UNANSWERED_MAX]; // last numbers of messages without an answer, a ring
    uint32_t end_first, end_count;
    rt_journal_frame frame; // what is left of one that was read
    uint64_t heard_ns, pause_until_ns;
    uint64_t connections;
    rt_log_limit limit;
} rt_feed_link;

// directory: of the journal, which has the feeder's name. journal, transport and hub outlive it.
// RT_IO, RT_DATA: error names the file.
rt_status rt_feed_link_init(rt_feed_link *link, rt_flow flow, rt_journal *journal,
                            const char *directory, rt_transport *transport, const rt_feed_hub *hub,
                            rt_error *error);
void rt_feed_link_fini(rt_feed_link *link);

// Connects where there is no connection, takes answers, sends what there is. RT_DATA: the
// coordinator has more than this spool; RT_IO, RT_NO_MEMORY.
rt_status rt_feed_link_turn(rt_feed_link *link, rt_error *error);

#endif
