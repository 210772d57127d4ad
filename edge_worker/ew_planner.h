// ew_planner - a worker's own planner in a thread of its own (planner.placement "worker").
//
//   BATCH ──► queue ──► planner thread (dp_replica) ──► queue ──► SLICE
//
// Give, take and idle are for the communication thread; the wake_fd tells it that a slice is ready.
// As many messages are outstanding as the coordinator may have slices out.
#ifndef EW_PLANNER_H
#define EW_PLANNER_H

#include "dispatch/plan/dp_slice_wire.h"
#include "runtime/config/rt_config.h"
#include "runtime/stream/rt_tables.h"
#include "runtime/wire/rt_control.h"

typedef struct {
    const rt_config *config;        // the run's
    const rt_wire_welcome *welcome; // needed while creating
    dp_slice_limits limits;
    const rt_tables *tables; // that fields share; needed while creating
    uint32_t rank;
    int wake_fd;
} ew_planner_config;

typedef struct ew_planner ew_planner;

rt_status ew_planner_create(const ew_planner_config *config, ew_planner **planner_p,
                            rt_error *error);
void ew_planner_destroy(ew_planner *planner);

// Takes a BATCH message over. RT_WIRE: more of them than slices may be outstanding.
rt_status ew_planner_give(ew_planner *planner, rt_message *batches, rt_error *error);

// The next SLICE message. RT_AGAIN: none is ready. Anything else: planning failed, error says why.
rt_status ew_planner_take(ew_planner *planner, rt_message *slice, rt_error *error);

// Every message that was given has come back as a slice.
bool ew_planner_idle(const ew_planner *planner);

#endif
