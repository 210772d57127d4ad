// rt_leader - the highest epoch in which a member has served each run, on its own disk.
//
// A run with a standby can be led by two boxes, one after the other (rt_standby.h). Members tell in
// their HELLO whom they have served, so that one that was replaced hears it from them, too, where
// it cannot hear it from its standby; and they follow nobody into an epoch before. A file of the
// member's has a line of text for each run: run, epoch, and a hash of both; the run that was heard
// of last comes first. Members of several runs may share a folder: RT_LEADER_RUNS_MAX runs are
// kept, then the one that was heard of longest ago goes.
#ifndef RT_LEADER_H
#define RT_LEADER_H

#include "runtime/rt_base.h"

#define RT_LEADER_RUNS_MAX 16u

typedef struct {
    uint64_t run;   // id of the run's folder (standby.id); 0: none
    uint32_t epoch; // the highest
} rt_leader;

typedef struct {
    rt_leader of[RT_LEADER_RUNS_MAX]; // those without a run behind all others
} rt_leaders;

// A file that is not there: zeros. RT_DATA: damaged; RT_IO.
rt_status rt_leaders_read(const char *path, rt_leaders *leaders, rt_error *error);

// From now on it serves this run (not 0) in this epoch; on disk before it returns. RT_PEER: it has
// served a later one, which is the first from now on, so that the next HELLO says so; RT_IO,
// RT_NO_MEMORY: leaders is as before.
rt_status rt_leaders_follow(const char *path, uint64_t run, uint32_t epoch, rt_leaders *leaders,
                            rt_error *error);

#endif
