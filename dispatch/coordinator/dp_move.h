// dp_move - what a run that trains can only become by starting anew: a box more, a box less
// (`lanyard add BOX`, `lanyard drain BOX`), other learning rates (`lanyard set`).
//
// Each is a checkpoint that ends the run for all, after which everything starts anew from it as
// what was asked for: there is no other way of going on (docs/RELIABILITY.md). What was asked for
// is checked first; then a cut is made, and when its checkpoint is written the file of dp_members
// says who takes part, members of a box that leaves are told so, and whoever asked is. One thread.
#ifndef DP_MOVE_H
#define DP_MOVE_H

#include "dispatch/coordinator/dp_members.h"
#include "runtime/config/rt_config.h"

typedef struct dp_run dp_run;

typedef struct {
    bool is_asked;
    dp_members next;            // from the next start on
    uint64_t leaves;            // the box that leaves, as a mask; 0: none does
    bool is_for_good;           // and its key is taken off
    uint32_t visitor;           // who asked; 0: nobody
    char what[2 * RT_NAME_MAX]; // "till-2 leaves"
} dp_move;
#include "runtime/rt_base.h"

// Whether boxes of this run can come and go now. RT_CONFIG, RT_AGAIN.
rt_status dp_move_check_boxes(const dp_run *run, const char *box, rt_error *error);

// What is against it that a box of the configuration, which takes no part, joins: as dp_move_ask,
// but for members that are not there.
rt_status dp_move_check_join(const dp_run *run, const char *box, rt_error *error);

// All members of a box, by its index, are there.
bool dp_move_is_there(const dp_run *run, uint32_t box);

// Requests of dp_control.h. RT_OK: the answer comes later, with dp_move_end; otherwise error says
// what is against it: no such box, one that is in already, or not; no checkpoints; members of it
// that are not there (where nobody starts them); the last worker or shard; rows that the other
// shards do not hold.
rt_status dp_move_ask(dp_run *run, bool joins, const char *box, rt_error *error);

// A box that was added, in or not, leaves for good: with the start anew its key is no more known to
// the coordinator, nor to anybody else by ALLOW, and all connections that it opened have ended.
// Errors as dp_move_ask, and dp_added_check_end.
rt_status dp_move_ask_end(dp_run *run, const char *box, rt_error *error);

// Other learning rates, those of a configuration. RT_CONFIG: no checkpoints; RT_AGAIN.
rt_status dp_move_ask_rates(dp_run *run, const char *key, const rt_config *fresh, rt_error *error);

// Whether the run stands so that it can end without another checkpoint: nothing was trained since
// the newest one, and nothing is under way.
bool dp_move_is_at_rest(const dp_run *run);

// The checkpoint is there, or could not be written: then training goes on (RT_OK). RT_AGAIN: all is
// to start anew.
rt_status dp_move_end(dp_run *run, bool is_written, rt_error *error);

// The run ends in another way.
void dp_move_drop(dp_run *run);

// An iteration is trained: the first one after a change tells how long training stood still.
void dp_move_iterated(dp_run *run);

// ---- boxes that no configuration had ---------------------------------------------------------
//
// Takes boxes that no configuration had (dp_members.h) into a run: when it begins those
// that its file has, later those that people add. One thread.

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

// It is not waited for any more. False: it was not, or it joins already.
bool dp_adding_let_go(dp_run *run, const char *box, char *answer, size_t size);

// Takes in a box that is awaited once its members are there.
void dp_adding_step(dp_run *run);

#endif
