// explore - every order of events of small runs: plans of the real planner, carried out by a model
// of the workers and the PS.
//
// A scenario says who trains which key when. explore_plan lets the planner plan it and keeps the
// plans as a program; a state is what workers, PS and connections hold while the program is carried
// out; an action is one event (a slice comes in, a message is delivered, a training ends) after
// which the part concerned does all that it can, as ew_executor and ps_shard do. explore_run visits
// every state that any order of actions reaches.
//
// Values of rows are numbers of a table: the initial value of a key, or a step made of iteration,
// trainers and the value before. Two rows are equal if they got the same updates in the same order.
// A number also has the floats that ew_executor and ps_shard must have in its place, for replays.
#ifndef EXPLORE_H
#define EXPLORE_H

#include "dispatch/plan/dp_plan.h"
#include "runtime/stream/rt_batch.h"
#include "runtime/config/rt_config.h"
#include "runtime/wire/rt_wire.h"

enum {
    EX_WORKERS = 3,
    EX_KEYS = 3,
    EX_SLOTS = 3, // of a cache
    EX_SHARDS = 2,
    EX_ITERATIONS = 5,
    EX_SLICES = EX_ITERATIONS + 3, // and the flush of a cut, and that of the end
    EX_NODES = 6 * EX_SLOTS,       // operations and trained rows of a slice
    EX_QUEUE = 32,                 // messages of a connection
    EX_VALUES = 256,
    EX_DIM = EX_WORKERS, // floats of a row; trainer w moves number w
    EX_ROW_FLOATS = EX_DIM + 1,
    EX_SUMS_ELSEWHERE = 4,
    EX_DEPTH = 400,          // actions of a run
    EX_IN_DISORDER = 1 << 3, // of the mask of a value: gradients were added in another order
    EX_TWICE = 1 << 4,       // one was added twice
    EX_OF_NOBODY = 1 << 5,   // or one that is of another epoch
    EX_SAYS_STEP = 1 << 6,   // of ex_worker.sums: who sent one says that the batch counts
    EX_SAYS_NO_STEP = 1 << 7,
    EX_CHANGED = 253, // of a value, instead of an iteration: see ex_value
    EX_ROUNDED = 254,
    EX_ADDED = 255,
    EX_WAITING = 8 // changes of a key at the PS
};

// The rules of docs/PROTOCOL.md, each broken by one name. _PLAN_: the plan is changed behind the
// planner's back, at one place; the others change the model of workers, PS or coordinator.
#define EX_BREAK_MAP(XX)                                                                \
    XX(NONE, "nothing")                                                                 \
    XX(PLAN_NO_UPDATE_PUSH, "planner: no PUSH_ROW (update) before others need the row") \
    XX(PLAN_NO_EVICT_PUSH, "planner: DROP of the only dirty copy")                      \
    XX(PLAN_NO_FLUSH_PUSH, "planner: a dirty row is left out of a flush")               \
    XX(PLAN_SECOND_PUSH, "planner: a version is pushed twice")                          \
    XX(PLAN_OLD_PULL, "planner: PULL of the version before L")                          \
    XX(PLAN_NO_PULL, "planner: PULL is missing")                                        \
    XX(PLAN_PULL_STATELESS, "planner: PULL for OWN without optimizer state")            \
    XX(PLAN_PULL_STATEFUL, "planner: PULL for GRAD with optimizer state")               \
    XX(PLAN_INIT_AGAIN, "planner: a born key is forgotten, INIT instead of PULL")       \
    XX(PLAN_OWN_FOR_GRAD, "planner: several trainers in mode OWN")                      \
    XX(PLAN_SMALL_MASK, "planner: a trainer is missing in the mask, and sends nothing") \
    XX(PLAN_WRONG_BASE, "planner: PUSH_GRAD with the base before")                      \
    XX(PLAN_GRAD_TWICE, "planner: a gradient is pushed twice")                          \
    XX(PLAN_FILL_FIRST, "planner: a fill stands before the push out of its slot")       \
    XX(PLAN_NO_DROP, "planner: DROP is missing")                                        \
    XX(LAND_EARLY, "worker: a row lands before rel(slot)")                              \
    XX(PUSH_EARLY, "worker: a row is captured before rel(slot)")                        \
    XX(TRAIN_EARLY, "worker: trains before all its rows are in place")                  \
    XX(ANY_VERSION, "worker: takes any version that is not older")                      \
    XX(NO_STAGING, "worker: an answer that comes early stays in the connection")        \
    XX(PULLS_TAKE_CREDITS, "worker: pulls and pushes share credits")                    \
    XX(IGNORE_VERDICT, "worker: worker 0 applies a bad batch")                          \
    XX(NO_VERDICT, "worker: gradients leave before the verdict")                        \
    XX(ANSWER_OLD, "PS: a pull is answered with what there is")                         \
    XX(CREATE_UNKNOWN, "PS: a pull of an unknown key with version > 0 creates it")      \
    XX(PARKED_BLOCKS, "PS: a parked pull blocks its connection")                        \
    XX(NO_WAKE, "PS: parked pulls are not looked at again")                             \
    XX(STORE_ANY, "PS: stores rows of any version, and versions are pushed twice")      \
    XX(APPLY_AT_ONCE, "PS: gradients are applied as they come")                         \
    XX(SUM_INCOMPLETE, "PS: a sum is made when the first two gradients are in")         \
    XX(NO_BASE_CHECK, "PS: a complete sum is applied whatever the row's version")       \
    XX(NO_WAITING_SUM, "PS: a row that comes does not apply the sum that waits for it") \
    XX(SUM_BEFORE_WAKE, "PS: a waiting sum is applied before pulls are woken")          \
    XX(CUT_UNCONFIRMED, "worker: MARK is answered while pushes are unconfirmed")        \
    XX(CUT_ONE_MARK, "coordinator: CUT follows the first MARK")                         \
    XX(CUT_OPEN, "coordinator: slices go out while a cut is open")                      \
    XX(RUN_AHEAD, "coordinator: run-ahead is not kept")

// Of bounded staleness, for test_explore_stale.c.
#define EX_STALE_MAP(XX)                                                       \
    XX(DELTA_ANY_BASE, "PS: a change is added whatever the row's version")     \
    XX(DELTA_NO_PULLS, "PS: a change does not wait for the pulls of its base") \
    XX(DELTA_NO_WAKE, "PS: changes that wait are not looked at again")         \
    XX(DELTA_UNCOUNTED, "PS: pulls are not counted")

// Of sweeps, for test_explore_sweep.c.
#define EX_SWEEP_MAP(XX)                                                          \
    XX(SWEEP_UNCONFIRMED, "worker: MARK is answered before pushes are confirmed") \
    XX(SWEEP_ONE_MARK, "coordinator: EXPIRE follows the first MARK")              \
    XX(SWEEP_OPEN, "coordinator: slices go out before all shards have answered")  \
    XX(SWEEP_NOT_ALL, "coordinator: shard 0 is not told")                         \
    XX(SWEEP_MORE, "PS: rows of version F end")                                   \
    XX(SWEEP_LESS, "PS: rows of version F - 1 stay")

// Of homes that move and of rows that travel rounded, for test_explore_homes.c.
#define EX_HOMES_MAP(XX)                                                              \
    XX(FORGET_ANY, "PS: FORGET takes a row of any version")                           \
    XX(FORGET_PARKED, "PS: FORGET takes the pulls that wait")                         \
    XX(FORGET_SUMS, "PS: FORGET takes the gradients that wait")                       \
    XX(FORGET_AT_ONCE, "worker: FORGET leaves with the requests")                     \
    XX(FORGET_UNSETTLED, "worker: FORGET leaves before the verdict")                  \
    XX(FORGET_UNCONFIRMED, "worker: MARK is answered while FORGET is under way")      \
    XX(PLAN_NO_FORGET, "planner: FORGET is missing")                                  \
    XX(PLAN_FORGET_PUSHED, "planner: FORGET of the version that is pushed elsewhere") \
    XX(PLAN_PUSH_STAYS, "planner: PUSH_ROW goes to another shard than pulls of it")   \
    XX(PLAN_NOT_TAKEN_IN, "planner: the row is not pushed to where gradients go")     \
    XX(PLAN_TAKEN_IN_STATELESS, "planner: a row is taken in without its state")       \
    XX(PLAN_GRAD_STAYS, "planner: a gradient goes to another shard than the others")  \
    XX(WIRE_STAYS_CHANGED, "planner: of a copy that stays, its change")               \
    XX(WIRE_MOVED_CHANGED, "planner: of a row that moves, its change")                \
    XX(WIRE_ENDED_CHANGED, "planner: of a copy whose row has ended, its change")      \
    XX(WIRE_TAKEN_IN, "planner: a row that is taken in is pulled rounded")            \
    XX(WIRE_NOT_ROUNDED, "worker: a copy that went whole stays as it was")            \
    XX(WIRE_BASE_KEPT, "worker: a copy that went whole keeps the version that came")  \
    XX(WIRE_FIRST_ROUNDED, "PS: initial rows are answered rounded")

// Of rows that go from worker to worker, for test_explore_hands.c.
#define EX_HANDS_MAP(XX)                                                            \
    XX(PLAN_NO_SEND, "planner: SEND is missing")                                    \
    XX(PLAN_NO_RECV, "planner: RECV is missing")                                    \
    XX(PLAN_OLD_RECV, "planner: RECV of the version before L")                      \
    XX(PLAN_RECV_ANOTHER, "planner: RECV from another worker")                      \
    XX(PLAN_PULL_FOR_RECV, "planner: SEND, but the row is pulled")                  \
    XX(PLAN_SEND_STATELESS, "planner: SEND without optimizer state")                \
    XX(PLAN_SEND_LATE, "planner: a fill stands before the SEND out of its slot")    \
    XX(HAND_EARLY, "worker: a row is captured for SEND before rel(slot)")           \
    XX(HAND_LANDS, "worker: a row of another worker lands before rel(slot)")        \
    XX(HAND_LOST, "worker: a row that comes before its slice is not kept")          \
    XX(HAND_TRAINS, "worker: trains before all rows of other workers are in place") \
    XX(HAND_OLD_EPOCH, "worker: takes a row of an older epoch")                     \
    XX(HAND_STORE_OLD, "PS: an older row that comes late is stored")

// Of gradients that a trainer sums, for test_explore_sums.c.
#define EX_SUMS_MAP(XX)                                                                    \
    XX(PLAN_NO_REDUCE, "planner: REDUCE is missing")                                       \
    XX(PLAN_NO_SUM, "planner: SUM is missing")                                             \
    XX(PLAN_REDUCE_ANOTHER, "planner: REDUCE to another worker than the one that sums")    \
    XX(PLAN_SUM_ANOTHER, "planner: SUM of another worker's gradient")                      \
    XX(PLAN_GRAD_FOR_REDUCE, "planner: PUSH_GRAD in the place of REDUCE")                  \
    XX(PLAN_SUM_STATELESS, "planner: the row is summed where its state is not")            \
    XX(PLAN_SUM_STORED, "planner: the PS is taken to have the row that a worker sums")     \
    XX(PLAN_SENDER_VALID, "planner: the copy of who sent its gradient is taken for valid") \
    XX(SUM_EARLY, "worker: the step comes with the first gradient")                        \
    XX(SUM_EACH, "worker: every gradient is a step of its own")                            \
    XX(SUM_AS_COMES, "worker: gradients are added in the order in which they come")        \
    XX(SUM_TWICE, "worker: a gradient that was kept counts twice")                         \
    XX(SUM_FORGETS, "worker: who sums leaves its own gradient out")                        \
    XX(SUM_LOST, "worker: a gradient that comes before its slice is not kept")             \
    XX(SUM_LOST_UNTRAINED, "worker: nor is one that comes before the training")            \
    XX(SUM_NOT_AWAITED, "worker: what follows on the slot does not wait for the sum")      \
    XX(SUM_AHEAD, "worker: trains on while a slice that is too old waits for a sum")       \
    XX(SUM_UNMARKED, "worker: MARK is answered before sums are in")                        \
    XX(SUM_OLD_EPOCH, "worker: takes a gradient of an older epoch")

#define EX_RULE(name, text) EX_BREAK_##name,

typedef enum {
    EX_BREAK_MAP(EX_RULE) EX_BREAKS,
    EX_STALE_MAP(EX_RULE) EX_BREAK_STALE_END,
    EX_SWEEP_MAP(EX_RULE) EX_BREAK_SWEEP_END,
    EX_HOMES_MAP(EX_RULE) EX_BREAK_HOMES_END,
    EX_HANDS_MAP(EX_RULE) EX_BREAK_HANDS_END,
    EX_SUMS_MAP(EX_RULE) EX_BREAK_SUMS_END
} ex_break;

// A rule of the planner: its plans are changed.
bool ex_break_is_of_plan(ex_break which);

const char *ex_break_text(ex_break which);

typedef struct {
    uint8_t worker_count, key_count, slot_count, shard_count, iterations;
    uint8_t trains[EX_ITERATIONS][EX_WORKERS]; // bits of keys, at most slot_count
    uint8_t run_ahead;
    uint8_t push_credits;
    uint8_t cut;   // a checkpoint follows this iteration; 0: none
    uint8_t floor; // in its place a sweep, which ends what was trained last before this iteration;
                   // 0: the cut is a checkpoint. Keys that end are born again
    uint8_t bad;   // guard: bits of iterations (bit 0: the first) with a bad batch
    bool guard;    // a verdict comes back before a training is complete
    bool full_sync, lookahead;
    bool first_touch_pull;
    bool homes; // planned: worker and shard of one number are on one box; with guard, whose verdict
                // tells that all have pulled
    bool rounded; // rows travel in 16 bits, in which gradients here are exact
    bool hands;   // rows go from worker to worker
    // And gradients to a trainer that sums them: see ex_ps_bytes_per_s; 0: they do not.
    uint8_t sums;
    bool strays;   // a row or gradient of an older epoch is under way between two workers
    bool sits_out; // who trains nothing in an iteration takes no part in it, and is flushed
                   // meanwhile
    rt_eviction_kind eviction;
    uint8_t staleness; // 0: synchronous training; else slot_count is what a cache keeps, and there
                       // are as many slots again within an iteration
} ex_scenario;

static inline uint32_t ex_slots_of(const ex_scenario *s)
{
    return s->staleness ? 2u * s->slot_count : s->slot_count;
}

// As ew_node_kind.
typedef enum {
    EX_PUSH_ROW,
    EX_DROP,
    EX_PULL,
    EX_INIT,
    EX_TRAIN,
    EX_PUSH_GRAD,
    EX_PUSH_DELTA, // mask: version that the slot has; peer: pulls of the base
    EX_FORGET,     // on no slot; when all else of the slice is carried out
    EX_SEND,       // peer: the worker at the other end; here and below
    EX_RECV,
    EX_REDUCE,
    EX_SUM
} ex_kind;

// A node of a slice; previous and next: on the same slot of the same worker, 1 + slice x EX_NODES +
// node, 0: none.
typedef struct {
    uint8_t kind, slot, key, version;
    uint8_t base, mask, peer;
    uint8_t mode;  // TRAIN
    bool state;    // PULL, SEND: with optimizer state
    bool whole;    // PULL, PUSH_ROW: in 32 bits, where rows travel rounded
    uint8_t shard; // where homes are planned
    uint8_t reason;
    uint16_t previous, next;
} ex_node;

typedef struct {
    uint8_t iteration; // 0: a flush
    uint8_t node_count;
    ex_node nodes[EX_NODES];
} ex_slice;

// iteration 0: an initial value; EX_ADDED: the change of value `mask` was added; EX_ROUNDED: as it
// travels; EX_CHANGED: the change of value `mask` was added as it travels, and its state stored.
typedef struct {
    uint8_t parent, iteration, mask;
    float floats[EX_ROW_FLOATS];
} ex_value;

// A scenario with its plans. About 60 KB; ex_program_fini gives messages back.
typedef struct {
    ex_scenario scenario;
    uint64_t keys[EX_KEYS];
    uint8_t slice_count, cut_slice; // slices up to and with the cut's flush; 0: no cut
    ex_slice slices[EX_SLICES][EX_WORKERS];
    uint8_t latest[EX_ITERATIONS + 1][EX_KEYS];            // version after an iteration
    uint8_t expected[EX_ITERATIONS + 1][EX_KEYS];          // value that goes with it
    uint8_t reads[EX_ITERATIONS + 1][EX_WORKERS][EX_KEYS]; // ex_is_ordered: values that are read
    uint8_t final_version[EX_KEYS], final_value[EX_KEYS];  // and that the PS has at the end
    ex_value values[EX_VALUES];
    uint32_t value_count;
    uint8_t short_samples[EX_ITERATIONS + 1];   // of batches that are not full; else 0
    rt_message messages[EX_SLICES][EX_WORKERS]; // the slices as the planner made them
    rt_counts planned[EX_WORKERS];
    uint32_t operations[DP_OP_KINDS];
} ex_program;

// ---- explore_plan.c

// Plans a scenario with the real planner, which tests/support/plan_checker follows; the directory
// must be legal after every iteration. Ends the test where it is not.
void ex_program_init(ex_program *program, const ex_scenario *scenario);
void ex_program_fini(ex_program *program);

// Hash of the plans, with other names for workers and keys: new name by old one. Slots are named in
// the order of their first use.
uint64_t ex_program_hash(const ex_program *program, const uint8_t *workers, const uint8_t *keys);

// What comes before and after every node of a worker, on its slot.
void ex_link_nodes(ex_program *program, uint32_t worker);

// ---- explore_break.c

// Breaks a rule of the planner in the place number `place` where that is possible. False: there are
// fewer, and nothing changed.
bool ex_program_break(ex_program *program, ex_break which, uint32_t place);

// The number of a value that is made by a step; of all workers in mask.
uint8_t ex_value_step(ex_program *program, uint8_t parent, uint32_t iteration, uint32_t mask);

// The value plus what a worker changed of the one that it had pulled to make `changed`; rounded,
// where rows travel so.
uint8_t ex_value_add(ex_program *program, uint8_t parent, uint8_t changed);
void ex_value_change(const ex_program *program, uint8_t changed, float change[EX_ROW_FLOATS]);

// The value as it travels where rows travel rounded; and the value once what `changed` differs in
// from what came to its worker was added to it, rounded.
uint8_t ex_value_round(ex_program *program, uint8_t value);
uint8_t ex_value_with_change(ex_program *program, uint8_t value, uint8_t changed);

// What is right depends on more than who trains what when.
static inline bool ex_is_ordered(const ex_scenario *s)
{
    return s->staleness > 0 || s->rounded;
}

// Carries the plans out in order, and notes what is read, and what the PS has. explore_ordered.c
void ex_expect_ordered(ex_program *program);

bool ex_is_bad(const ex_scenario *scenario, uint32_t iteration);
uint32_t ex_shard_of(const ex_scenario *scenario, uint32_t key);

// The link of the PS, which decides who sums: so slow that workers do (1; EX_SUMS_ELSEWHERE: all
// but worker 0, whose link is slow, too), as fast as that of a worker (2), not worth counting (3).
double ex_ps_bytes_per_s(const ex_scenario *scenario);
void ex_gradient(uint32_t iteration, uint32_t mask, float gradient[EX_DIM]);
rt_optimizer_config ex_optimizer(void);

// One line.
void ex_scenario_print(const ex_scenario *scenario, char *text, size_t size);

// ---- explore_model.c

typedef enum {
    EX_MESSAGE_PULL,
    EX_MESSAGE_PUSH_ROW,
    EX_MESSAGE_PUSH_GRAD,
    EX_MESSAGE_PUSH_DELTA,
    EX_MESSAGE_PUSH_CHANGE,
    EX_MESSAGE_FORGET,
    EX_MESSAGE_ROWS,
    EX_MESSAGE_PUSHED,
    EX_MESSAGE_HANDED,
    EX_MESSAGE_SUMMAND // of a sum at another worker
} ex_message_kind;

// slice, node: that it is of. One record each.
typedef struct {
    uint8_t kind, slice, node, key;
    uint8_t version, value;
    bool state;   // the row has its optimizer state
    bool step;    // PUSH_GRAD, SUMMAND: the batch counts
    bool old;     // of an older epoch
    uint8_t base; // PUSH_CHANGE: version that came
} ex_message;

typedef struct {
    uint8_t first, count; // messages stand at first, first + 1, ... modulo EX_QUEUE
    ex_message messages[EX_QUEUE];
} ex_queue;

typedef struct {
    bool full, state;
    uint8_t key, version, value;
    uint8_t base; // version that came, or went whole
} ex_slot;

typedef struct {
    uint8_t received, trained; // slices
    bool computed;             // the next one, and the verdict is not back
    uint8_t credits[EX_SHARDS];
    uint32_t done[EX_SLICES], arrived[EX_SLICES]; // bits of nodes
    ex_message staged[EX_SLICES][EX_SLOTS];       // by slot
    uint8_t sums[EX_SLICES][EX_SLOTS]; // by slot: workers whose gradients came, as ex_value's mask
    ex_slot slots[EX_SLOTS];
} ex_worker;

typedef struct {
    bool open, step;
    uint8_t mask, arrived, base;
} ex_sum;

typedef struct {
    bool open;
    uint8_t version, base, pulls, value;
} ex_waiting;

typedef struct {
    bool exists;
    uint8_t version, value;
    uint8_t pulls; // of version, answered (staleness)
    ex_waiting waiting[EX_WAITING];
    ex_sum sums[EX_ITERATIONS + 1]; // by iteration
} ex_row;

typedef struct {
    ex_worker workers[EX_WORKERS];
    ex_row rows[EX_SHARDS][EX_KEYS];        // at the PS
    uint32_t parked[EX_WORKERS][EX_SLICES]; // bits of nodes
    uint8_t captured;                       // shards that have their part of the cut
    ex_queue up[EX_WORKERS][EX_SHARDS];
    ex_queue held[EX_WORKERS][EX_SHARDS];    // pushes that wait for credits
    ex_queue back[EX_WORKERS][EX_SHARDS];    // shard to worker
    ex_queue across[EX_WORKERS][EX_WORKERS]; // worker to worker
} ex_state;

typedef enum {
    EX_ACT_SLICE,  // a worker gets its next slice
    EX_ACT_TRAIN,  // a training ends
    EX_ACT_SETTLE, // guard: its verdict comes back
    EX_ACT_UP,     // a shard gets a message
    EX_ACT_BACK,   // a worker gets a message
    EX_ACT_CUT,    // a shard captures its rows
    EX_ACT_HAND    // a worker gets a message of another one, number `shard`
} ex_act;

typedef struct {
    uint8_t act, worker, shard;
} ex_action;

enum { EX_ACTIONS = EX_WORKERS * (3 + 2 * EX_SHARDS + EX_WORKERS) + EX_SHARDS };

typedef struct {
    ex_program *program;
    ex_break broken;
    bool failed;
    char violation[200]; // the first
} ex_model;

void ex_start(const ex_model *model, ex_state *state);

// Every action that is possible now. Returns how many.
uint32_t ex_actions(const ex_model *model, const ex_state *state, ex_action *actions);

// model->failed: a rule or invariant does not hold.
void ex_act_on(ex_model *model, ex_state *state, ex_action action);

// Nothing is possible any more: is everything done, as sequential training has it?
void ex_check_end(ex_model *model, const ex_state *state);

// An answer of a shard to a worker that commutes with everything else that can happen.
bool ex_is_free(const ex_model *model, const ex_state *state, ex_action action);

// What distinguishes two states, without what is in no use. Returns the size.
#define EX_STATE_BYTES 7000u
size_t ex_pack(const ex_model *model, const ex_state *state, uint8_t *bytes);

// Whether all that a worker got is carried out and confirmed.
bool ex_idle(const ex_model *model, const ex_state *state, uint32_t worker);

// ---- explore_reduce.c

typedef struct ex_reducer ex_reducer;

ex_reducer *ex_reducer_create(const ex_model *model);
void ex_reducer_destroy(ex_reducer *reducer);

// Whether all that can happen before this action, which is possible, is independent of it. While
// answers are under way: only for those.
bool ex_is_alone(ex_reducer *reducer, const ex_state *state, ex_action action);

// Whether the two of one worker, both possible, may depend on each other but on nothing else.
bool ex_is_pair(const ex_reducer *reducer, ex_action first, ex_action second);

// Moves a persistent set of the possible actions to the front. Returns its size.
uint32_t ex_persistent(ex_reducer *reducer, const ex_state *state, ex_action *actions,
                       uint32_t count);

// ---- explore_check.c

// Tries what ex_is_alone and ex_is_pair say of a state, with every other action that is possible:
// both orders lead to the same, and it still holds after that action. If so in every state, the
// sets are persistent. Returns how many pairs of actions it compared; ends the test at a
// difference.
uint64_t ex_check_persistent(const ex_model *model, ex_reducer *reducer, const ex_state *state,
                             const ex_action *actions, uint32_t count);

// ---- explore_search.c

// A set of hashes of at least 64 good bits. Starts as {0}.
typedef struct {
    uint64_t *hashes; // 0: a free place
    uint64_t size, count;
} ex_set;

bool ex_set_has(const ex_set *set, uint64_t hash);

// False: it was there.
bool ex_set_add(ex_set *set, uint64_t hash);
void ex_set_fini(ex_set *set);

typedef enum {
    EX_ALL,           // every order
    EX_ANSWERS_FIRST, // answers to workers come at once
    EX_PERSISTENT,    // and only a persistent set of actions is followed
    EX_REDUCTIONS
} ex_reduction;

typedef struct {
    uint64_t states, transitions, ends, leaves, compared;
    uint32_t depth; // actions of the longest run
    uint64_t end_hash;
} ex_counts;

// A run of actions from the start to a state that was known before, or where nothing is possible;
// states has one more than actions.
typedef void (*ex_leaf)(void *context, const ex_program *program, const ex_action *actions,
                        uint32_t count, const ex_state *const *states);

typedef struct {
    ex_break broken;
    ex_reduction reduction;
    bool checked; // with EX_ALL: ex_check_persistent in every state
    ex_leaf leaf; // or NULL: all of them together take every transition; not with EX_PERSISTENT
    void *context;
    uint64_t states_max; // then the test fails; 0: no limit
} ex_options;

// False: violation (of at least 512 bytes) says what is wrong, and the actions that lead there.
bool ex_explore(ex_program *program, const ex_options *options, ex_counts *counts, char *violation,
                size_t size);

// ---- explore_replay.c

typedef struct {
    uint64_t runs, actions;
} ex_replayed;

// A leaf: carries the same actions out with ew_executor and ps_shard, and compares every message,
// and rows and versions at the end. Ends the test at a difference. context: ex_replayed.
void ex_replay(void *context, const ex_program *program, const ex_action *actions, uint32_t count,
               const ex_state *const *states);

#endif
