// rt_solvers - "dispatch.solver": a line for each; dp_solver_NAME does the work (dp_solver.h).
#ifndef RT_SOLVERS_H
#define RT_SOLVERS_H

#include "runtime/config/rt_choice.h"

// clang-format off
#define RT_SOLVER_MAP(XX)                                                                \
    XX(TRANSPORT, transport, "augmenting paths over the workers")                        \
    XX(HUNGARIAN, hungarian, "on the expanded square matrix: small sizes")               \
    XX(GREEDY, greedy, "cheapest worker with room: not exact")                           \
    XX(HUNGARIAN_CUDA, hungarian_cuda, "on the GPU")
// clang-format on

#define XX(kind, name, help) RT_SOLVER_##kind,
enum { RT_SOLVER_MAP(XX) };
#undef XX
#define RT_SOLVER_COUNT (0 RT_SOLVER_MAP(RT_CHOICE_ONE))

#endif
