// rt_leader - the highest epoch in which a member has served a run, on its own disk.
//
// A run with a standby can be led by two boxes, one after the other (rt_standby.h). Members tell in
// their HELLO whom they have served, so that one that was replaced hears it from them, too, where
// it cannot hear it from its standby; and they follow nobody into an epoch before. One line of text
// in a file of the member's: run, epoch, and a hash of both. It is of the run that it served last.
#ifndef RT_LEADER_H
#define RT_LEADER_H

#include "runtime/rt_base.h"

typedef struct {
    uint64_t run;   // id of the run's folder (standby.id); 0: none
    uint32_t epoch; // the highest
} rt_leader;

// A file that is not there: zeros. RT_DATA: damaged; RT_IO.
rt_status rt_leader_read(const char *path, rt_leader *leader, rt_error *error);

// From now on it serves this run (not 0) in this epoch; on disk before it returns. RT_PEER: it has
// served a later one, leader is as before; RT_IO, RT_NO_MEMORY.
rt_status rt_leader_follow(const char *path, uint64_t run, uint32_t epoch, rt_leader *leader,
                           rt_error *error);

#endif
