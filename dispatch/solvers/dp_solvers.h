// dp_solvers - the tables of all solvers by name, for who names one; others ask dp_solver_find.
#ifndef DP_SOLVERS_H
#define DP_SOLVERS_H

#include "dispatch/solvers/dp_solver.h"
#include "runtime/config/rt_solvers.h"

#define XX(kind, name, help) extern const dp_solver_ops dp_solver_##name;
RT_SOLVER_MAP(XX)
#undef XX

#endif
