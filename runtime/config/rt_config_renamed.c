// Keys that had another name: {"section.before", "section.now"}; and those that are gone, with the
// one value (JSON) that means what happens today: {"section.gone", NULL, "\"value\""}. Models and
// checkpoints have all keys of their time. docs/STABILITY.md says for how long a line stays.
#include "runtime/config/rt_config_keys.h"

const rt_config_renamed rt_config_renames[] = {
    {"sim.hand_over", "dispatch.hand_over", NULL},
    {"sim.reduce", "dispatch.reduce", NULL},
    {"dispatch.accounting", NULL, "\"bsp\""},
    {0},
};
