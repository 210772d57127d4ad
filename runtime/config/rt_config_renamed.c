// What earlier versions had: keys that had another name, keys that are gone, and values that are
// gone. Configurations, models and checkpoints of then go on, with a line that says what happens
// now. docs/STABILITY.md says for how long a line stays here.
#include "runtime/config/rt_config_keys.h"

// {"section.before", "section.now"}; gone: {"section.before", NULL, what happens now (JSON), the
// same in words}. Models and checkpoints have all keys of their time, so that nothing is said of a
// key that is gone where it says what happens now.
const rt_config_renamed rt_config_renames[] = {
    {"sim.hand_over", "dispatch.hand_over", NULL, NULL},
    {"sim.reduce", "dispatch.reduce", NULL, NULL},
    {"dispatch.accounting", NULL, "\"bsp\"", "every transfer of an iteration counts"},
    {"dispatch.evict_cost", NULL, "false", "a transfer costs its bytes (esd)"},
    {"planner.placement", NULL, "\"coordinator\"", "the coordinator plans, for all workers"},
    {0},
};

// {key, value before, value now}.
const rt_config_replaced rt_config_replacements[] = {
    {"dispatch.policy", "herald", "laia"},
    {"dispatch.solver", "auction", "transport"},
    {"dispatch.solver", "auction_cuda", "transport"},
    {0},
};
