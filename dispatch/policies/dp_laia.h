// dp_laia - what laia and herald share: LAIA's score and choice (Herald, NSDI'24, Algorithm 1).
#ifndef DP_LAIA_H
#define DP_LAIA_H

#include "dispatch/cost/dp_view.h"
#include "runtime/rt_hash.h"

// Where boxes are told: a point for every worker that has the row without a link.
static inline void dp_laia_score_boxes(const dp_view *view, uint32_t lookup, uint32_t *score)
{
    const dp_distinct *key = &view->distinct[lookup];
    for (uint32_t j = 0; j < view->worker_count; j++)
        score[j] += key->holders >> j & 1 || key->box == view->ticks->box_of[j];
}

// A point for every worker that holds the latest version of the row of one look-up.
static inline void dp_laia_score(const dp_view *view, uint32_t lookup, uint32_t *score)
{
    uint32_t held = view->held[lookup];
    if (view->ticks->box_count) {
        dp_laia_score_boxes(view, lookup, score);
        return;
    }
    if (held == DP_HELD_BY_NONE)
        return;
    if (held != DP_HELD_BY_MANY) {
        score[held & DP_HELD_WORKER]++;
        return;
    }
    for (uint64_t rest = view->distinct[lookup].holders; rest; rest &= rest - 1)
        score[rt_lowest_bit(rest)]++;
}

// The generator of a planner's seed; both policies break ties with the same one.
rt_random dp_laia_random(uint64_t seed);

// The worker with the highest score that has room, ties at random; takes one place of its room.
uint32_t dp_laia_choose(rt_random *random, const uint32_t *score, uint32_t *room,
                        uint32_t worker_count);

#endif
