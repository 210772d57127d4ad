// dp_ages - which iteration was the newest so many seconds ago, for rows.expire_s.
//
// A planner reads no clock. The coordinator notes the newest iteration every sixteenth of the time,
// and once a note is old enough it becomes an input record (DP_INPUT_ROWS_FLOOR). Checkpoints have
// the notes, or a run that is started again more often than rows end would keep all of them. A
// plain value; any clock that does not go back.
#ifndef DP_AGES_H
#define DP_AGES_H

#include "dispatch/plan/dp_input.h"

#define DP_AGES_NOTES 18u // 16 steps and both ends

typedef struct {
    uint64_t limit_ns, step_ns; // 0: off
    struct {
        uint64_t ns;
        uint32_t iteration;
    } notes[DP_AGES_NOTES]; // a ring
    uint32_t first, count;
} dp_ages;

// How old the notes were at a moment.
typedef struct {
    uint32_t count;
    struct {
        uint32_t iteration;
        uint64_t age_ms;
    } notes[DP_AGES_NOTES]; // the oldest first
} dp_ages_kept;

// expire_s 0: off.
void dp_ages_init(dp_ages *ages, double expire_s);

// An iteration is done. True: *input is a record to tell.
bool dp_ages_iterated(dp_ages *ages, uint32_t iteration, uint64_t now_ns, dp_input *input);

// For a checkpoint; and for a run that goes on from it, before its first iteration: the time
// between does not count. Another expire_s may be in force then.
void dp_ages_keep(const dp_ages *ages, uint64_t now_ns, dp_ages_kept *kept);
void dp_ages_go_on(dp_ages *ages, const dp_ages_kept *kept, uint64_t now_ns);

#endif
