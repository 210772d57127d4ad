// rt_child - work done by a forked copy of the process, while the process itself goes on.
//
// The copy has the memory of the moment of the fork, so it can write out a state that changes
// meanwhile (pages are copied when they change: memory may double at worst). It has one thread and
// no descriptors but standard error; it must not touch sockets, or locks that other threads may
// hold: of those of this project the log's alone is whole in a copy, and glibc's (heap, streams)
// are. It runs with low priority, dies with its parent, and ends when its time is over. One owner.
#ifndef RT_CHILD_H
#define RT_CHILD_H

#include "runtime/rt_base.h"

#include <sys/types.h>

typedef struct {
    pid_t pid;
    int fd; // becomes readable when the work is done; -1: no child
    uint64_t begin_ns, deadline_ns;
} rt_child;

// How the work ended; values are the work's own.
typedef struct {
    rt_error error; // status RT_OK: it succeeded
    uint64_t values[13];
    uint64_t ns; // that it took
} rt_child_result;

// fork(), of a process with any number of threads: the copy can log, and allocate.
pid_t rt_child_fork(void);

// work fills in result->error and result->values. RT_LIMIT: no more processes; error says why.
rt_status rt_child_start(rt_child *child, void (*work)(void *context, rt_child_result *result),
                         void *context, double limit_s, rt_error *error);

// RT_AGAIN: it is at work. RT_OK: *result says how it ended; a child that died, or that was ended
// because its time was over, has failed.
rt_status rt_child_poll(rt_child *child, rt_child_result *result);

// Ends a child that is still at work.
void rt_child_end(rt_child *child);

#endif
