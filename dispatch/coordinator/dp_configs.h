// dp_configs - the configurations of one run, and whose is which. A plain value of the
// coordinator's thread. Ranks, masks and boxes mean something only together with one of them:
//
//     own.config  of this box, as it was read: the caller's, and nobody changes it. own.site is
//                 what the other boxes have in their files, where that is not the same
//     whole       of all boxes: own.config, and behind its boxes those that were added to the run
//                 (dp_added.h). Its ranks are those of the roster, of masks of boxes, of people
//                 and of files beside checkpoints; members prove in HELLO that they have it
//     part        of the boxes and workers that take part, with the learning rates that were set
//                 (dp_members.h): what is planned, trained and saved. Its ranks are places, from
//                 0 on, without those that are out
//     current     whole, with what `lanyard set` has changed since: with it the next change is
//                 checked
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
