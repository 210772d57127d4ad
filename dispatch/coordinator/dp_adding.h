// dp_adding - takes boxes that no configuration had (dp_added.h) into a run: when it begins those
// that its file has, later those that people add. One thread.
#ifndef DP_ADDING_H
#define DP_ADDING_H

#include "dispatch/coordinator/dp_run_type.h"
#include "runtime/rt_base.h"

// A run begins: its boxes are those of the file, too, and their keys are allowed. After the folder
// of checkpoints is known, before anything is made of the configuration. Errors as dp_added_take.
rt_status dp_adding_begin(dp_run *run, rt_error *error);

// A request (dp_control.h): a box more. text: an object, "box" as in boxes, and "key", where the
// run uses keys and others do not have it, the public key in Z85, which has to stand in
// DP_ADDED_KEY, too: so that only who may write there lets somebody in. The box is known once the
// file of dp_members has it; answer says where its configuration was written. RT_OK and
// run->move.is_asked: answered later.
rt_status dp_adding_ask(dp_run *run, const char *box, const char *text, char *answer, size_t size,
                        rt_error *error);

// It is not waited for any more. False: it was not.
bool dp_adding_let_go(dp_run *run, const char *box, char *answer, size_t size);

// Takes in a box that is awaited once its members are there.
void dp_adding_step(dp_run *run);

#endif
