// rt_optimizers - "optimizer.rows.name" and "optimizer.dense.name": (ENUMERATOR, name, traits,
// help) for each; rt_NAME_value does the work (rt_optimizer_parts.h). DENSE(...) is for the dense
// weights only. New lines go to the end: numbers stand in files.
#ifndef RT_OPTIMIZERS_H
#define RT_OPTIMIZERS_H

#include "runtime/config/rt_choice.h"

// clang-format off
#define RT_OPTIMIZER_MAP(XX, DENSE)                                                      \
    XX(SGD, sgd, RT_ADDS_UP, "no state: rows are smallest on the wire")                  \
    DENSE(MOMENTUM, momentum, 0, "SGD with momentum")                                    \
    XX(ADAGRAD, adagrad, RT_ADDS_UP, "one accumulator per value")                        \
    XX(ROWWISE_ADAGRAD, rowwise_adagrad, RT_ADDS_UP, "one accumulator per row")          \
    XX(ADAM, adam, 0, "two moments per value")                                           \
    XX(FTRL, ftrl, RT_OWN_RATES, "FTRL-Proximal")
// clang-format on

#define XX(kind, name, traits, help) RT_OPTIMIZER_##kind,
enum { RT_OPTIMIZER_MAP(XX, XX) };
#undef XX
#define RT_OPTIMIZER_COUNT (0 RT_OPTIMIZER_MAP(RT_CHOICE_ONE, RT_CHOICE_ONE))

#endif

#ifdef RT_OPTIMIZER_STEPS // for rt_optimizer_parts.h: a file for each
#include "runtime/optimizers/rt_adagrad.h"
#include "runtime/optimizers/rt_adam.h"
#include "runtime/optimizers/rt_ftrl.h"
#include "runtime/optimizers/rt_momentum.h"
#include "runtime/optimizers/rt_rowwise_adagrad.h"
#include "runtime/optimizers/rt_sgd.h"
#endif
