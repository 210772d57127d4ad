// dp_configs - the configurations of one run. A plain value of the coordinator's thread.
//
// Four differ, and ranks, masks and boxes mean something only together with one of them:
//
//     own.config     of this box, as it was read: the caller's, nobody changes it. own.site is what
//     the
//                    other boxes have in their files, where that is not the same
//     whole          of all boxes: own.config, and behind its boxes those that were added to the
//     run
//                    (dp_added.h). The roster, people, masks of boxes and files beside checkpoints
//                    mean its ranks. Members prove in HELLO that they have it
//     part           of the boxes and workers that take part, at the learning rates that were set
//                    (dp_members.h): what is planned, trained, saved. Its ranks are places: without
//                    those that are out, from 0 on
//     current        whole with what `lanyard set` has changed since: what the next change is
//     checked with
#ifndef DP_CONFIGS_H
#define DP_CONFIGS_H

#include "runtime/config/rt_config.h"

typedef struct {
    rt_config whole, part, current;
} dp_configs;

// All three as config is. RT_NO_MEMORY: nothing was made.
rt_status dp_configs_init(const rt_config *config, dp_configs *configs);
void dp_configs_fini(dp_configs *configs);

// Gives a configuration the boxes that `whole` has behind its own. Errors as rt_config_add_box.
rt_status dp_configs_adopt(const rt_config *whole, rt_config *config, rt_error *error);

#endif
