// dp_begin - opens what a run needs before anybody joins: its folder, the mirror at a standby,
// boxes and workers that take part, journal and stream, the model that it begins with, and the
// roster, which listens from then on. One thread.
#ifndef DP_BEGIN_H
#define DP_BEGIN_H

#include "dispatch/coordinator/dp_run_type.h"
#include "runtime/rt_status.h"

// Whatever it returns, what was opened is the run's, which closes it. Errors are those of the
// parts.
rt_status dp_begin(dp_run *run, rt_error *error);

#endif
