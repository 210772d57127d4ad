#include "runtime/config/rt_config_keys.h"

// Keys that had another name: {"section.before", "section.now"}. docs/STABILITY.md says for how
// long a line stays.
const rt_config_renamed rt_config_renames[] = {
    {0},
};
