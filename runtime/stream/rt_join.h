// rt_join - labels that come later: events wait here for their outcomes.
//
// A stage between parser and batch: who reads gives it events and outcomes, in the order of their
// times as far as these are known, and takes samples. What comes out follows from what went in and
// from the times that stand there alone, so that the same input gives the same samples.
//
//   event ──► waits window_s ──► an outcome comes: a sample with its label
//                            └─► none comes: a sample with label 0, or nothing (unanswered)
//                                   └─► is kept late_s ──► label 1 comes: a correction (late)
//
// Of several labels an outcome fills those that it names, and each is filled once: a sample is
// ready when all are known. What is not known when the window ends is 0; or absent, where
// unanswered events are dropped and this one has an answer. A correction is of the labels of one
// outcome, and an event has one at most.
//
// The clock is the latest time that was given, but never beyond a limit (rt_join_time.h): what is
// ahead of that waits as its own time says, until it is doubted; then its window is one of now. A
// record that comes more than a window late has its whole window, too.
//
// A correction takes back the label 0 that was trained: weight 0 and label w where the event has
// weight w, so that its gradient is that of label 1 less that of label 0, -w (rt_batch.h). Summed
// with the 0 that was trained before it is one sample of label 1 in expectation, whatever the model
// says: the label correction of Chen et al., "Asymptotically Unbiased Estimation for Delayed
// Feedback Modeling via Label Correction" (WWW 2022), with weights that are known, not estimated;
// the importance weights of Ktena et al. (RecSys 2019, sections 4.2 and 4.3) need the model's own
// prediction to undo what it was taught.
//
// Memory is bounded by events_max. All calls from one thread, but rt_join_save and rt_join_settle.
#ifndef RT_JOIN_H
#define RT_JOIN_H

#include "runtime/config/rt_config.h"
#include "runtime/stream/rt_batch.h"
#include "runtime/stream/rt_line.h"
#include "runtime/wire/rt_bytes.h"

typedef struct rt_join rt_join;

// What an outcome says of an event's labels, label l in bit l.
typedef struct {
    uint8_t known; // labels that it fills
    uint8_t ones;  // of them, those that are 1
} rt_join_labels;

typedef struct {
    uint64_t events, outcomes; // taken
    uint64_t waiting;          // events, now
    uint64_t kept;             // events that were given as 0, and outcomes without an event, now
    uint64_t unanswered;       // events whose window ended
    uint64_t late;             // corrections given
    uint64_t unmatched;        // outcomes that found no event, until their time was over
    uint64_t repeated;         // events and outcomes whose id had its own already: left out
    uint64_t crowded;          // that went before their time, for want of room
    uint64_t doubted;          // whose times others do not bear out (rt_join_time.h)
} rt_join_counts;

typedef struct {
    rt_join_config join; // files and columns are not looked at
    uint32_t dense_count;
    uint32_t label_count; // 0: one
    uint64_t seed;
    double negatives_keep; // rt_negatives.h; the id is the number
} rt_join_settings;

rt_status rt_join_create(const rt_join_settings *settings, rt_join **join_p, rt_error *error);
void rt_join_destroy(rt_join *join); // NULL is fine

// While it is true nothing else may be called that is marked (*).
bool rt_join_has_ready(const rt_join *join);

// Appends one ready sample; the batch has room. False: there is none, or the only ones were
// negatives that are left out.
bool rt_join_give(rt_join *join, rt_batch *batch);

// (*) Puts an event aside until rt_join_admit; there is none yet. RT_NO_MEMORY.
rt_status rt_join_offer(rt_join *join, const rt_line_sample *sample);
bool rt_join_has_offer(const rt_join *join, int64_t *time_ms_p);

// (*) Lets the event in that is aside, or makes others ready first: then it stays aside.
// RT_NO_MEMORY.
rt_status rt_join_admit(rt_join *join);

// (*) *taken_p false: others became ready first, the outcome is to be given again. RT_NO_MEMORY.
rt_status rt_join_outcome(rt_join *join, uint64_t id, int64_t time_ms, rt_join_labels labels,
                          bool *taken_p);

// From now on no record moves the clock beyond limit_ms; at the start none is held back.
// RT_JOIN_TIME_UNKNOWN: none moves it at all. now_ms: what it is now, if that is later than the
// clock, for those whose own time does not count.
void rt_join_limit(rt_join *join, int64_t limit_ms, int64_t now_ms);

// The time of what has this id, and is ahead of the clock, is wrong: it counts as one of now.
void rt_join_doubt(rt_join *join, uint64_t id);

// The clock was wrong: it goes back, and what would wait longer than far_ms and a window does not.
void rt_join_set_back(rt_join *join, int64_t time_ms, int64_t far_ms);

// False: nothing has moved it yet.
bool rt_join_clock(const rt_join *join, int64_t *clock_ms_p);

// (*) Moves the clock: for who knows the time without a record.
void rt_join_advance(rt_join *join, int64_t time_ms);

// (*) From now on no time is over, though the clock goes on; false: what is over by then ends now.
// Events go for want of room all the same, and at rt_join_end.
void rt_join_hold(rt_join *join, bool is_held);

// (*) No more will come: with at_end train all that waits becomes ready.
void rt_join_end(rt_join *join);

rt_join_counts rt_join_statistics(const rt_join *join);

// Samples of label 0 that are still to come of the events that are in, unless outcomes come: as
// many as are kept (negatives_keep); none where unanswered events are dropped.
double rt_join_pending(const rt_join *join);

// ---- what a checkpoint keeps -----------------------------------------------------------------

// From now on what rt_join_save may be asked for is remembered.
void rt_join_remember(rt_join *join);

// A new step; its number. What happened in a step is in what is saved of it. rt_join_tell appends
// the few numbers that belong to the end of this step; seek reads them.
uint64_t rt_join_step(rt_join *join);
void rt_join_tell(const rt_join *join, rt_bytes *bytes);
bool rt_join_seek(rt_join *join, rt_reader *bytes);
bool rt_join_find_step(rt_reader *bytes, uint64_t *step_p); // in what was told

// All events and outcomes as they stood at the end of a step, which rt_join_settle has not passed.
// Any thread.
void rt_join_save(rt_join *join, uint64_t step, rt_bytes *bytes);

// Steps before this one will not be asked for. Any thread.
void rt_join_settle(rt_join *join, uint64_t step);

// Into a new join, after rt_join_seek. RT_DATA: no such state. RT_NO_MEMORY.
rt_status rt_join_load(rt_join *join, rt_reader *bytes, rt_error *error);

#endif
