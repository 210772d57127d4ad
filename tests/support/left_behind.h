// left_behind - what a run of a coordinator leaves in its folder "out", held against itself and
// against what its members were told: whatever the run was, files agree.
//
//   metrics.jsonl has a record for each iteration in order; summary.json adds them up, and what
//   members reported
//   a checkpoint is one by its manifest: all parts are there, and what it builds on
//   a model is of the last iteration
//   a simulation with the run's own records makes the same plans
#ifndef LEFT_BEHIND_H
#define LEFT_BEHIND_H

#include "dispatch/coordinator/dp_coordinator.h"
#include "tests/support/played.h"

typedef struct {
    const rt_config *config;
    const dp_coordinator_config *own;
    rt_status status;
    bool may_simulate; // its plans can be made again: it began anew, and had no checkpoints
} left_run;

// Breaches go to members->broken. A line that names what there is goes to text.
void left_check(const left_run *run, played *members, char *text, size_t size);

#endif
