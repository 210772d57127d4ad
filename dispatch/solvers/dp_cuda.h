// dp_cuda - the solver that runs on a GPU, through the plug-in (rt_cuda).
//
// It gives what the CPU's exact solvers give: an optimal placement in integers. Should a device
// fail in the middle, `transport` finishes the problem.
#ifndef DP_CUDA_H
#define DP_CUDA_H

#include "dispatch/solvers/dp_solver.h"

// "dp_hungarian" in the plug-in.
typedef struct {
    const char *name;
    // On device number index. RT_NO_MEMORY, RT_UNSUPPORTED.
    rt_status (*create)(uint32_t index, uint32_t row_count_max, uint32_t sink_count_max,
                        void **state_p, rt_error *error);
    void (*destroy)(void *state);
    // As in dp_solver_ops. RT_IO: the device failed, sink_of_row holds nothing.
    rt_status (*solve)(void *state, const dp_problem *problem, uint32_t *sink_of_row,
                       rt_error *error);
    // Of the last one that ended well: seconds from its first copy to its last, by the device.
    double (*device_s)(const void *state);
} dp_cuda_table;

#endif
