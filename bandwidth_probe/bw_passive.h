// bw_passive - rates of a worker's link, both ways, from the messages that pass anyway.
//
// A stretch of time counts only while the link was what held the messages up: every message of it
// had been handed to the transport well before the one in front of it arrived. Both ends put the
// times of their own clock on messages; what a message took beyond the quickest one of late
// (clocks, and latency, are in that) says when it was handed over by the clock of the other end. An
// application that hands over little, or late, makes no such stretches, so it is never read as a
// slow link. What passes at the start of a stretch does not count, because an idle link lets a
// burst pass at full speed; nor do moments at which the receiver was busy with something else.
//
// All times are microseconds of the worker's clock, except in stamps. A plain value, one thread,
// reads no clock. Shards share one link and add up.
#ifndef BW_PASSIVE_H
#define BW_PASSIVE_H

#include "bandwidth_probe/bw_table.h"
#include "runtime/rt_control.h"

#define BW_PASSIVE_PUSHES_MAX 64u      // to one shard that are not confirmed; more are not followed
#define BW_PASSIVE_WARM_US 8000        // of a stretch, before it counts
#define BW_PASSIVE_WARM_BYTES 65536u   // ... and so much
#define BW_PASSIVE_DEPTH_US 5000       // handed over so long before; hides the pace of processes
#define BW_PASSIVE_LEAST_US 20000      // counted time of an estimate
#define BW_PASSIVE_LEAST_BYTES 131072u // ... and bytes
#define BW_PASSIVE_MEMORY_US 15000000  // the quickest message is one of the last 15 to 30 s

#define BW_PROMPT_NS 20000u // who waited so long was idle: what woke it has just come

// A time on the wire (rt_wire_header.stamp): microseconds modulo 2^31, whether the receiver had
// been waiting, never 0.
static inline uint32_t bw_stamp(uint64_t ns, bool prompt)
{
    uint32_t stamp = (uint32_t)(ns / 1000) << 1 | prompt;
    return stamp ? stamp : 2;
}

typedef struct {
    bool known;
    uint32_t first;   // delay of the first message, modulo 2^31
    int64_t least[2]; // beyond it, in this period and in the one before
    int64_t period_us;
} bw_delay;

typedef struct {
    bool open, counting;
    int64_t begin_us, last_us; // last: newest arrival whose time is certain
    uint64_t warm_bytes, pending_bytes;
    uint64_t all_bytes; // of the stretch
    uint64_t bytes, us; // counted since the last estimate
    double least;       // bytes/us that the link has at least, since it was asked for
} bw_stretch;

typedef struct {
    bw_delay up, down;
    uint64_t bytes; // handed over since the last push
    uint32_t first, count;
    struct {
        int64_t handed_us;
        uint64_t bytes; // of the push and of what went before it
    } pushes[BW_PASSIVE_PUSHES_MAX];
    uint32_t unfollowed; // pushes behind those, to be confirmed
} bw_stream;

typedef struct {
    bw_stretch ways[BW_WAYS];
    bw_stream streams[RT_SHARDS_MAX];
} bw_passive;

void bw_passive_init(bw_passive *passive);

// A message was handed to the transport. push: the shard will confirm it.
void bw_passive_sent(bw_passive *passive, uint32_t shard, uint64_t bytes, bool push,
                     uint64_t now_us);

// The oldest push came in, at stamp by the shard's clock; 0: it does not say.
void bw_passive_confirmed(bw_passive *passive, uint32_t shard, uint32_t stamp, uint64_t now_us);

// A message came in that the shard handed over at stamp. prompt: it was waited for, so now_us is
// when it came.
void bw_passive_received(bw_passive *passive, uint32_t shard, uint64_t bytes, uint32_t stamp,
                         uint64_t now_us, bool prompt);

// Bytes/s since the last estimate; 0 (and nothing is lost): too little to say.
double bw_passive_estimate(bw_passive *passive, bw_way way);

// What the link has at least, in bytes/s, by messages since the last call that were quicker than a
// slower link allows; where an application does not keep a link busy this may be all there is to
// know. 0: nothing. An idle link passes 64 KB or 4 ms worth of bytes at once, so they are left out.
double bw_passive_at_least(bw_passive *passive, bw_way way);

#endif
