// rt_joined - a stream's events, its outcomes and the join of both: who reads what next.
//
// Outcomes are a stream of their own (stream.join.outcomes), read as far as the events' times have
// come (rt_join_time.h says how far that is): some are looked at, so that one with a wrong time does
// not hold up the others. What has no time is of the time when it arrived, or when it was read; next
// to records that say theirs it is of now. Of two inputs with
// something on its way (rt_source_ops.is_behind) neither is read ahead of the other: an event waits
// for the next outcome, an outcome for the next event, at most HOLD_S; the clock of a join is the
// lesser time of both then, and goes on by itself only where both are at their ends.
//
// A run that was down comes back with senders that have something to send: events that wait are
// answered first, and no window ends for stream.join.resend_s. One thread, but rt_joined_save and
// rt_joined_settle.
#ifndef RT_JOINED_H
#define RT_JOINED_H

#include "runtime/stream/rt_join.h"
#include "runtime/stream/rt_source.h"

typedef struct rt_joined rt_joined;

typedef struct {
    bool ended;           // no event follows
    bool idle;            // there is none now: outcomes need not wait for one
    bool behind;          // likewise, but some are on their way
    bool dated;           // events have times in their lines
    uint64_t deadline_ns; // as of rt_source_ops.line, for when only outcomes can come
} rt_joined_events;

// Of the stream of outcomes, by that of the events, from which it borrows.
rt_stream_config rt_joined_config(const rt_stream_config *events);

// schema: of the events. RT_CONFIG: an input is a file, whose lines say nothing of their time.
rt_status rt_joined_create(const rt_stream_config *config, uint64_t seed, const rt_schema *schema,
                           rt_joined **joined_p, rt_error *error);
void rt_joined_destroy(rt_joined *joined); // NULL is fine
void rt_joined_watch(rt_joined *joined, int stop);

// An event; the one before was asked for by rt_joined_fill. RT_NO_MEMORY.
rt_status rt_joined_offer(rt_joined *joined, const rt_line_sample *sample, rt_error *error);

// Fills batch up to sample_count samples. RT_OK: it is full. RT_AGAIN: an event is wanted, or,
// where they have ended, nothing came until the deadline. RT_END. RT_STOPPED. RT_DATA, RT_IO: of
// outcomes.
rt_status rt_joined_fill(rt_joined *joined, const rt_joined_events *events, rt_batch *batch,
                         uint32_t sample_count, rt_error *error);

// Whether RT_AGAIN was said because an event waits for outcomes that are on their way: call again.
bool rt_joined_is_held(const rt_joined *joined);

// Milliseconds since 1970, of a record that came at this time; 0: now.
int64_t rt_joined_arrival_ms(uint64_t arrival_ns);

double rt_joined_pending(const rt_joined *joined); // rt_join_pending
rt_join_counts rt_joined_counts(const rt_joined *joined);
rt_stream_stats rt_joined_outcomes(const rt_joined *joined);

// As of rt_join.
void rt_joined_remember(rt_joined *joined);
void rt_joined_step(rt_joined *joined);
void rt_joined_tell(const rt_joined *joined, rt_bytes *bytes);
rt_status rt_joined_seek(rt_joined *joined, rt_reader *bytes, rt_error *error);
void rt_joined_save(rt_joined *joined, uint64_t step, rt_bytes *bytes);
void rt_joined_settle(rt_joined *joined, uint64_t step);
rt_status rt_joined_load(rt_joined *joined, rt_reader *bytes, rt_error *error);

#endif
