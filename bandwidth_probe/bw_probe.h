// bw_probe - how fast the link to a listening process is, up and down: an active measurement.
//
// Up: a train of PROBE messages, whose arrival times the other side tells. Down: a train of answers
// that PROBEs ask for. An idle link lets a burst pass at full speed and TCP takes a while to find
// its pace, so the first third of a train does not count; the rest is cut into pieces of equal
// bytes, and the result is the median of their rates, in bytes of payload. A train is bounded in
// bytes and in time, and so is what is under way at once (about 30 ms worth, and two round trips').
// Pieces whose rates differ show that something disturbed the train, a busy machine for one: then
// another is sent, and the steadiest counts.
// It goes over all streams that are given, as traffic will: one TCP stream may not fill a long
// link.
//
// Who answers takes one probe at a time, so that several do not measure each other: BEGIN is
// answered when it is one's turn. Blocking, one thread.
#ifndef BW_PROBE_H
#define BW_PROBE_H

#include "runtime/transport/rt_transport.h"

#define BW_TRAIN_BYTES_MAX (UINT64_C(96) << 20) // each way
#define BW_TRAIN_S 0.4                          // each way; then what is under way comes in
#define BW_TRAIN_RTTS 16                        // ... or so long, if that is longer
#define BW_TRAIN_S_MAX 3.0                      // ... but never longer than this, all together
#define BW_TRAINS_MAX 3u                        // each way
#define BW_STEADY 0.12                          // the spread of a train that need not be repeated
#define BW_STREAMS_MAX RT_SHARDS_MAX
#define BW_STREAM_BYTES 32768 // under way: any stream carries so much
#define BW_DEADLINE_S 5.0     // silence for so long fails a probe

typedef struct {
    double bytes_per_s;
    double spread;  // interquartile range / median, of the pieces
    uint64_t bytes; // sent in all
    uint32_t trains;
} bw_rate;

typedef struct {
    bw_rate up, down;
    double rtt_s;           // median of a few messages on the idle link
    int64_t up_us, down_us; // the quickest of them each way: arrival by one clock, departure by the
                            // other's
} bw_result;

typedef struct {
    rt_endpoint *endpoint; // connected to server; nothing else arrives on it meanwhile
    uint32_t self, server;
} bw_stream_end;

typedef struct {
    const rt_transport_ops *ops;
    const bw_stream_end *streams; // to one box; turns are taken, and echoes timed, on the first
    uint32_t stream_count;        // at most BW_STREAMS_MAX
    double turn_s;                // to wait at most for one's turn
    double silence_s;             // that fails a probe; 0: BW_DEADLINE_S
    // Called every 100 ms or so while waiting; not RT_OK ends the probe. May be NULL.
    rt_status (*progress)(void *context, rt_error *error);
    void *context;
} bw_probe_config;

// RT_TIMEOUT: the other side is silent or busy with other probes; RT_NOT_FOUND: its connection
// ended; RT_WIRE: it does not answer as it should; or what progress returned.
rt_status bw_probe_run(const bw_probe_config *config, bw_result *result, rt_error *error);

// Whether the link may have more than one stream carried: it is long, so that the stream's window
// or a lost packet may have been what held it up.
bool bw_probe_is_long(const bw_result *result);

// ---- the side that answers -------------------------------------------------------------------

#define BW_WAITING_MAX 64u
#define BW_TURN_NS UINT64_C(2000000000) // without a message the turn is over

typedef struct {
    uint32_t peer; // whose turn it is; 0: nobody's
    uint64_t heard_ns;
    uint32_t waiting_count;
    struct {
        uint32_t peer;
        uint64_t number;
    } waiting[BW_WAITING_MAX];
} bw_responder;

typedef struct {
    const rt_transport_ops *ops;
    rt_endpoint *endpoint; // listening
    uint32_t self;
} bw_listener;

// Answers one PROBE (which stays the caller's). RT_WIRE: it is malformed; error names the peer.
rt_status bw_responder_take(bw_responder *responder, const bw_listener *listener, uint32_t peer,
                            const rt_message *message, rt_error *error);

// Passes on a turn whose owner is silent. Call now and then.
void bw_responder_tick(bw_responder *responder, const bw_listener *listener);

#endif
