// dp_running - running.json in the folder of a run while it is there: its configuration and where
// it listens, with what keys, for `lanyard set`.
#ifndef DP_RUNNING_H
#define DP_RUNNING_H

#include "runtime/config/rt_config.h"

#define DP_RUNNING "running.json"

// address: as members connect to it. What goes wrong is logged: the run does without.
void dp_running_tell(const rt_config *config, const char *directory, const char *address);
void dp_running_end(const char *directory);

#endif
