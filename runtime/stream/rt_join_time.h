// rt_join_time - which time it is for a join, by what most records say of themselves.
//
// A record whose line says its time gives a word. Who sends (rt_line.origin) has a voice of its own
// for events and one for outcomes; all whose sender is not known share one. A voice keeps its last
// RT_JOIN_TIME_WORDS words. Its level is the time that all of them but a sixth have reached: so
// less than five sixths of wrong words, whatever they say, are not enough to move it.
//
//   own limit   the level; where arrivals are kept, also the arrival of the newest word and what
//               all words but a fifth are ahead of their arrivals, so that who says little is
//               not behind
//   of a flow   the lower median of the limits of those who spoke in the last minute of arrivals
//   the limit   the latest that a level of either flow was, or its limit is now, and a sixteenth of
//               the window
//
// No record moves a join's clock beyond the limit, and nothing is read ahead of it; before a voice
// has RT_JOIN_TIME_FIRST words nothing moves. A word from the future, ahead of its arrival, counts
// as one of that arrival. Everything follows from the words, in their order: no clock is read. So
// the same input gives the same times. A plain value; one thread.
#ifndef RT_JOIN_TIME_H
#define RT_JOIN_TIME_H

#include "runtime/stream/rt_position.h"

#define RT_JOIN_TIME_WORDS 64u
#define RT_JOIN_TIME_FIRST 8u
#define RT_JOIN_TIME_VOICES 8u                // of a flow; who comes later shares one
#define RT_JOIN_TIME_UNKNOWN INT64_MIN        // a limit before anything moves
#define RT_JOIN_TIME_FAR_MS INT64_C(86400000) // and a window: such a difference is no delay

typedef struct {
    int64_t time_ms; // as the line says
    int64_t
        arrival_ms;  // kept with it, so that it is the same whenever it is read; 0: there is none
    uint64_t origin; // who sent it; 0: not known
    uint64_t id;
} rt_join_word;

typedef struct {
    uint64_t origin;
    int64_t heard_ms;                       // arrival of the newest
    uint64_t count;                         // of words, ever
    rt_join_word words[RT_JOIN_TIME_WORDS]; // number n at n modulo their number
    // Of these words, ascending: times, and what they are ahead of their arrivals.
    int64_t times[RT_JOIN_TIME_WORDS], aheads[RT_JOIN_TIME_WORDS];
} rt_join_voice;

typedef struct {
    int64_t window_ms;
    rt_join_voice voices[RT_FLOWS][RT_JOIN_TIME_VOICES];
    uint32_t voice_count[RT_FLOWS];
    int64_t reached_ms; // the latest level of a flow; RT_JOIN_TIME_UNKNOWN: there was none
    uint32_t earlier;   // what speaks for a clock that is wrong
    uint64_t doubted;   // words too far ahead of the others, or of their arrivals, or of long ago
} rt_join_time;

void rt_join_time_init(rt_join_time *time, int64_t window_ms);

// The time that a record has for the join: its own, or (from the future) that of its arrival.
int64_t rt_join_time_of(const rt_join_time *time, const rt_join_word *word);

// Takes a word. True: *doubted is the id of one that was given RT_JOIN_TIME_WORDS words ago, and
// that the others have not come near.
bool rt_join_time_take(rt_join_time *time, rt_flow flow, const rt_join_word *word,
                       uint64_t *doubted);

// RT_JOIN_TIME_UNKNOWN: too little was said.
int64_t rt_join_time_limit(const rt_join_time *time);

// What a record moves a clock to, at most: to its time where others bear it out, else to what they
// have reached. RT_JOIN_TIME_UNKNOWN.
int64_t rt_join_time_move(const rt_join_time *time, const rt_join_word *word);

// The time that half of the last words have reached, of the sender who is ahead: what it is about
// now. RT_JOIN_TIME_UNKNOWN: nobody spoke.
int64_t rt_join_time_now(const rt_join_time *time);

// Whether a word is ahead of the limit by more than twice a window and what the last words of its
// sender are apart: such a time is none of who only says little.
bool rt_join_time_is_far(const rt_join_time *time, rt_flow flow, const rt_join_word *word);

// An event's word was taken. Whether events have been far earlier than clock_ms for so long that it
// must be wrong; not where arrivals are kept, ahead of which no clock is. *time_ms_p: what they
// say.
bool rt_join_time_is_earlier(rt_join_time *time, int64_t clock_ms, int64_t *time_ms_p);
// It is that, and what outcomes said before is no word any more.
void rt_join_time_set_back(rt_join_time *time, int64_t time_ms);

// What all but a fifth have reached; of few words, the earliest of them.
// RT_JOIN_TIME_UNKNOWN: nobody spoke.
int64_t rt_join_time_level(const rt_join_time *time);

// For a checkpoint. False: bytes are none of this.
void rt_join_time_tell(const rt_join_time *time, rt_bytes *bytes);
bool rt_join_time_seek(rt_join_time *time, rt_reader *bytes);

#endif
