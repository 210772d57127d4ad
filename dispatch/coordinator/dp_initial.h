// dp_initial - the finished model that a run begins with (--init): read and judged here, by the
// coordinator, before anybody joins.
//
// Rows, dense part and the scale of the dense features are the model's. All else is the run's own:
// workers, shards, caches, and fields behind those of the model. The shards hold its rows in
// version 0, which nobody has trained: whoever touches one first pulls it. One thread.
#ifndef DP_INITIAL_H
#define DP_INITIAL_H

#include "dispatch/coordinator/dp_saved.h"
#include "runtime/stream/rt_scale.h"
#include "runtime/stream/rt_stream.h"

typedef struct {
    dp_saved saved;  // iteration 0, one folder
    rt_scale *scale; // NULL: dense features stay as they are
} dp_initial;

// folder: of a model; config and schema: of the run. All files are there, with their sums.
// RT_CONFIG: it is another model, or one of other columns, error names what differs; RT_NOT_FOUND,
// RT_DATA, RT_IO, RT_NO_MEMORY. *initial is zeros then.
rt_status dp_initial_read(const char *folder, const rt_config *config, const rt_schema *schema,
                          dp_initial *initial, rt_error *error);
void dp_initial_fini(dp_initial *initial);

#endif
