// plan_checker - carries out plans on a model of the workers and the PS, and says where one breaks
// a rule of docs/PROTOCOL.md.
//
// Independent of the planner: it reads plans and batches only. It keeps what every slot of every
// worker holds and what the PS has, checks for every operation the precondition and applies the
// effect of the table "Operations", and follows the *content* of every row: a number that folds in
// the samples of each training in order. A run of one worker with an endless cache gives the
// content that a row must have; a copy that missed an update, got one twice or came from a wrong
// row differs.
//
// Covered: PUSH_ROW, DROP, PULL, INIT, SEND, RECV, PUSH_GRAD, REDUCE, SUM; modes OWN, GRAD and
// REDUCE. Any other operation is reported as unknown. To add one: a function
// check_<op> beside the others, a line in run_release, run_fill or run_after, and for a mode its
// effect in train and finish_key. Errors are RT_DATA with the iteration, worker and key.
#ifndef PLAN_CHECKER_H
#define PLAN_CHECKER_H

#include "dispatch/plan/dp_plan.h"
#include "runtime/stream/rt_batch.h"
#include "runtime/config/rt_config.h"

typedef struct {
    uint32_t worker_count;
    uint32_t slot_count[RT_WORKERS_MAX];
    rt_first_touch first_touch;
    bool always_summed; // mode GRAD with one trainer, too (staleness 0, or hot rows)
    bool keeps_hot;     // rows are pulled that nobody trains in the iteration
    bool hand_over;     // rows that one worker alone has go straight to the one that trains them
    bool reduce;        // one of several trainers of a row may sum their gradients
    bool expires;       // rows leave slots that nobody needs (ttl)
    bool full_sync;     // rows are pushed to the PS without anybody's need
    uint32_t micro_batch_min, micro_batch_max; // samples per worker; 0: equal shares
} plan_checker_config;

typedef struct plan_checker plan_checker;

plan_checker *plan_checker_create(const plan_checker_config *config);
void plan_checker_destroy(plan_checker *checker);

// A training plan for batch; iterations are 1, 2, 3... False: the plan is wrong, error says why,
// and the checker must not be used further.
bool plan_checker_step(plan_checker *checker, const rt_batch *batch, const dp_plan *plan,
                       rt_error *error);

// A plan of iteration 0: flush pushes only; afterwards the PS has every row.
bool plan_checker_flush(plan_checker *checker, const dp_plan *plan, rt_error *error);

// What the model knows of a key; all zero for one that was never trained.
typedef struct {
    uint64_t holders;    // H
    uint32_t version;    // L
    uint32_t version_ps; // P
} plan_checker_key;
plan_checker_key plan_checker_find(const plan_checker *checker, uint64_t key);

uint32_t plan_checker_key_count(const plan_checker *checker);

// Every key ever trained, by number below plan_checker_key_count.
uint64_t plan_checker_key_at(const plan_checker *checker, uint32_t index);

#endif
