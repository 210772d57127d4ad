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
    {"optimizer.rows.epsilon", NULL, "1e-10", "it is 1e-10"},
    {"optimizer.rows.beta1", NULL, "0.9", "it is 0.9"},
    {"optimizer.rows.beta2", NULL, "0.999", "it is 0.999"},
    {"optimizer.rows.beta", NULL, "1", "it is 1"},
    {"optimizer.dense.epsilon", NULL, "1e-10", "it is 1e-10"},
    {"optimizer.dense.beta1", NULL, "0.9", "it is 0.9"},
    {"optimizer.dense.beta2", NULL, "0.999", "it is 0.999"},
    {"optimizer.dense.beta", NULL, "1", "it is 1"},
    {"network.message_bytes", NULL, "262144", "messages of rows have about 256 KB"},
    {"dispatch.alpha_share", NULL, "0.5", "a decision may take half of an iteration"},
    {"dispatch.criterion", NULL, "\"min2_min\"",
     "samples are placed exactly by the second smallest cost less the smallest"},
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
