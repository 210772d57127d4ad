// bw_passive - the rates of a worker's link, both ways, from the messages that pass anyway.
//
// A link shows its rate only while it is full. It is full while messages queue up for it: message
// 2 was handed to the transport before message 1 arrived, so it waited for the link, and the time
// from one arrival to the next is what the link took for it. Such a run of messages is a stretch.
//
//     handed over    1 2 3
//     on the link    [----- 1 -----][--- 2 ---][------ 3 ------]
//     arrived                       a1         a2              a3
//     rate = (bytes of 2 + bytes of 3) / (a3 - a1)
//
// An application that hands over little, or late, makes no stretch, and is never read as a slow
// link. Five things would spoil an estimate:
//
// - Two clocks. Each end stamps messages with its own. What a message took beyond the quickest one
//   so far is the time that it waited; latency and the difference of the clocks fall out.
// - An idle link lets some bytes pass at full speed. So a message counts only if the one before it
//   was still under way BW_PASSIVE_DEPTH_US after the hand-over: by then those bytes have passed.
// - A receiver that is busy takes messages late. Such moments do not count where they are known.
// - It takes them late, never early. So of the arrivals of a stretch, as points (bytes, time), only
//   those on the lower convex hull count, and of that the edge at the middle of the bytes.
// - The two ways hold each other up: what confirms the messages of one waits in the queue of the
//   other. So a stretch during which the other way was full does not count if this way was seen to
//   be faster. If the other way, too, is slower than it was seen to be, the link itself has
//   changed, and the stretch counts.
//
// All times are microseconds of the worker's clock, except in stamps. A plain value, one thread,
// reads no clock. Shards share one link and add up.
#ifndef BW_PASSIVE_H
#define BW_PASSIVE_H

#include "bandwidth_probe/bw_table.h"
#include "runtime/wire/rt_control.h"

#define BW_PASSIVE_PUSHES_MAX 64u    // to one shard that are not confirmed; more are not followed
#define BW_PASSIVE_BURST_BYTES 65536 // an idle link may pass so much at once,
#define BW_PASSIVE_BURST_US 4000     // ... and what it carries in so long
#define BW_PASSIVE_DEPTH_US 10000    // handed over so long before; hides the pace of processes
#define BW_PASSIVE_LONG_US 40000     // two arrivals so far apart say something, else it takes three
#define BW_PASSIVE_LEAST_US 20000    // counted time of an estimate
#define BW_PASSIVE_LEAST_BYTES 131072u // ... and bytes
#define BW_PASSIVE_DRIFT 2e-4          // of two clocks against each other, at most
#define BW_PASSIVE_DOUBT_US 8000       // by which the first message may have been late
#define BW_PASSIVE_DOUBT_MESSAGES 32   // the quickest of so many: by half of it, and so on
#define BW_PASSIVE_DOUBT_US_MIN 2000   // but never less
#define BW_PASSIVE_HELD_UP 1.2         // times as fast as it seems a way was
#define BW_PASSIVE_HELD_UP_MAX 16      // stretches in a row that do not count for that
#define BW_PASSIVE_SPANS 8             // of time in which a way was full, that are remembered
#define BW_PASSIVE_POINTS 64           // of a stretch that are kept before it is summed up

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
    uint32_t first; // delay of the first message (or of a later one), modulo 2^31
    double least;   // beyond it: the quickest message, later by what clocks may drift
    double drift;   // of that, what need not be so: it may have been quicker by that much
    uint32_t count;
    uint64_t at_us;
} bw_delay;

typedef struct {
    bool open;
    int64_t begin_us, last_us; // last: newest arrival whose time is certain
    uint64_t all_bytes;        // of the stretch
    uint32_t point_count;
    struct {
        int64_t us;
        uint64_t bytes;          // of the stretch up to then
    } points[BW_PASSIVE_POINTS]; // certain arrivals that are not counted yet, from the last counted
    double bytes, us;            // counted since the last estimate
    double shown;     // bytes/us: probed, counted last beside an empty way, or had at least
    double latest;    // bytes/us: of the last stretch, whether it counted or not
    uint32_t held_up; // stretches that did not count since then
    uint32_t span_next;
    struct {
        int64_t from_us, to_us;
    } spans[BW_PASSIVE_SPANS];
    double least; // bytes/us that the link has at least, since it was asked for
} bw_stretch;

typedef struct {
    bw_delay up, down;
    uint64_t bytes;   // handed over since the last push
    int64_t begun_us; // when the first of them was
    uint32_t first, count;
    struct {
        int64_t begun_us, handed_us; // the first of its bytes, the push itself
        uint64_t bytes;              // of the push and of what went before it
    } pushes[BW_PASSIVE_PUSHES_MAX];
    uint32_t unfollowed; // pushes behind those, to be confirmed
} bw_stream;

typedef struct {
    bw_stretch ways[BW_WAYS];
    bw_stream streams[RT_SHARDS_MAX];
    uint32_t local; // mask of shards on the worker's own box: what they exchange passes no link
} bw_passive;

void bw_passive_init(bw_passive *passive);

// A probe read this rate, in bytes/s: what is slower while the other way is full was held up.
void bw_passive_probed(bw_passive *passive, bw_way way, double bytes_per_s);

// ... and a small message took so long on the idle link to a shard or from it, arrival by the clock
// of the one less departure by that of the other: no message of ours was quicker.
void bw_passive_timed(bw_passive *passive, uint32_t shard, bw_way way, int64_t took_us,
                      uint64_t now_us);

// A message was handed to the transport. push: the shard will confirm it.
void bw_passive_sent(bw_passive *passive, uint32_t shard, uint64_t bytes, bool push,
                     uint64_t now_us);

// The oldest push came in, at stamp by the shard's clock; 0: it does not say.
void bw_passive_confirmed(bw_passive *passive, uint32_t shard, uint32_t stamp, uint64_t now_us);

// A message came in that the shard handed over at stamp; 0: unknown, it counts if the link is busy
// (messages of others, which share the link, are told in this way too). prompt: it was waited for,
// so now_us is when it came.
void bw_passive_received(bw_passive *passive, uint32_t shard, uint64_t bytes, uint32_t stamp,
                         uint64_t now_us, bool prompt);

// Bytes/s since the last estimate; 0 (and nothing is lost): too little to say.
double bw_passive_estimate(bw_passive *passive, bw_way way);

// What the link has at least, in bytes/s, by messages since the last call that were quicker than a
// slower link allows (by less if the quickest message was late); where an application does not keep
// a link busy this may be all there is to know. 0: nothing. An idle link passes 64 KB or 4 ms worth
// of bytes at once, so they are left out.
double bw_passive_at_least(bw_passive *passive, bw_way way);

#endif
