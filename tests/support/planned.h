// planned - a planner made from settings as a user writes them, and driven over the stream that
// they name as a run drives it, a step after the other.
//
// Failures end the test with a sentence. What comes of every iteration goes into sums.
#ifndef PLANNED_H
#define PLANNED_H

#include "dispatch/plan/dp_slice_wire.h"
#include "dispatch/planner/dp_participants.h"
#include "dispatch/planner/dp_planner.h"
#include "dispatch/planner/dp_snapshot.h"
#include "runtime/stream/rt_stream.h"

#define PLANNED_AS_MAX 24u

typedef struct {
    uint64_t plans, times, views, slices, decisions;
} planned_sums; // times: that are predicted

typedef struct {
    rt_config config;
    dp_planner_config planner_config;
    rt_schema schema;
    dp_slice_limits limits;
    rt_stream *stream;
    rt_batch batches[33]; // a ring: the next one first
    uint32_t first, ahead;
    dp_planner *planner;
    dp_participants *chooser; // NULL: nobody chooses
    rt_pool *pool;            // planner.threads above 1; or NULL
    uint32_t iteration;
    planned_sums sums;
    rt_bytes first_slice, last_slice; // messages to planned_rank, of trained iterations
    char sets[700];                   // of the line, those that a configuration takes
    // what else a line says
    uint32_t iterations, cut, tries; // tries: of so many other words one; 0: none
    bool is_told, tries_slices;
    char as[PLANNED_AS_MAX][340];
    uint32_t as_count;
} planned;

// The line's settings: "KEY=VALUE" parts, with spaces between; told=true (input records)
// and iterations=, cut=, tries=, slices=true, as=KEY=VALUE (several with ; between) are no
// settings.
void planned_open(planned *p, const char *line);
void planned_close(planned *p);

// Whose slices are kept.
static inline uint32_t planned_rank(const planned *p)
{
    return p->config.worker_count > 1;
}

// What a planner of these settings, and one more (as; NULL: none), would be given. Its text,
// static: why that cannot be; or NULL.
const char *planned_config(const planned *p, const char *as, dp_planner_config *config);

// One iteration. False: the stream has ended.
bool planned_step(planned *p);

// Finish and flush, as before a checkpoint; and the state there.
void planned_cut(planned *p, rt_bytes *state);

// Another planner in place of the one that there is, from the next batch on.
void planned_replace(planned *p, dp_planner *planner, dp_participants *chooser);

// What the shards would tell a planner that goes on.
void planned_tell(const planned *p, dp_planner *to);

#endif
