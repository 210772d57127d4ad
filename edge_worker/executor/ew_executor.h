// ew_executor - carries out a worker's slices: the worker column of docs/PROTOCOL.md.
//
// A state machine without sockets or threads: messages come in through ew_executor_receive, go out
// through the send callback. An operation waits for the earlier operations on its own slot and for
// nothing else; what belongs to slice t+1 and does not depend on training t is under way while t
// trains. All calls come from one thread (the communication
// thread); training itself runs elsewhere, between ew_executor_next_job and ew_executor_trained.
//
// Bounds: at most slice_count_max slices are not trained (the coordinator keeps to run_ahead), and
// as many wait for gradients that they sum, so all memory is bounded by them. Push messages beyond
// push_credits per shard wait here.
#ifndef EW_EXECUTOR_H
#define EW_EXECUTOR_H

#include "dispatch/plan/dp_slice_wire.h"
#include "edge_worker/executor/ew_bases.h"
#include "edge_worker/executor/ew_rows.h"
#include "runtime/numbers/rt_coding.h"

// ---- ew_codes.c -------------------------------------------------------------------------------

// Rows as they came, by slot, where they travel rounded (network.row_wire).
//
// What is pushed of a row is what has changed since (docs/PROTOCOL.md), so a slot keeps the words
// in which its row came; of an initial row there is nothing to keep. A row of version 0 comes in
// floats. It is the initial one, or of the model that the run began with: then it is rounded here.
// In host memory, beside the slab of whatever device. With bounded staleness ew_bases keeps rows as
// they came, and this says only in which words they travel. One thread.

typedef struct {
    rt_coding coding;
    uint32_t values, words; // of a row: floats, and what they travel in
    uint64_t seed;          // of initial rows
    float init_scale;
    uint32_t *rows;     // slot_count x words
    uint32_t *versions; // slot_count: of the row that came, or 0
    bool *is_initial;   // slot_count
    float *scratch;     // values
} ew_codes;

// RT_NO_MEMORY. slot_count 0: nothing is kept, and only ew_codes_init, fini and the fields coding,
// values, words are of use. The settings of initial rows are those of ew_rows.
rt_status ew_codes_init(ew_codes *codes, rt_coding coding, uint32_t slot_count, uint32_t values,
                        uint64_t seed, float init_scale);
void ew_codes_fini(ew_codes *codes);

// A row of a version came into a slot, in words (of version 0: in floats); values receives what
// that is.
void ew_codes_take(ew_codes *codes, uint32_t slot, uint64_t key, uint32_t version,
                   const void *words, float *values);

// The slot has the initial row.
void ew_codes_first(ew_codes *codes, uint32_t slot);

// A row that went whole, and stays, in a version: values becomes what others get of it.
void ew_codes_round(ew_codes *codes, uint32_t slot, uint32_t version, float *values);

// What has changed of the row of a key since it came, rounded, in words; values is overwritten.
void ew_codes_change(ew_codes *codes, uint32_t slot, uint64_t key, float *values, void *words);

// -----------------------------------------------------------------------------------------------

typedef struct ew_executor ew_executor;

typedef struct {
    uint32_t rank;
    uint32_t shard_count;
    uint32_t epoch;
    uint32_t slice_count_max;
    uint32_t push_credits;  // messages per shard that the PS has not processed yet
    uint32_t message_bytes; // payload of a full message, about
    dp_slice_limits limits;
    uint32_t values, state; // floats of a row
    const ew_rows_ops *rows;
    void *rows_context;
    ew_bases *bases; // bounded staleness; or NULL: no PUSH_DELTA
    ew_codes *codes; // rows travel rounded; or NULL: as they are
    // To a shard or, with limits.hands or limits.sums, to worker w as shard_count + w. Takes the
    // message on RT_OK; RT_AGAIN: it is offered again at the next call of the executor.
    rt_status (*send)(void *context, uint32_t shard, rt_message *message);
    void *send_context;
} ew_executor_config;

// What the training thread needs for one iteration; valid until ew_executor_trained.
typedef struct {
    uint64_t sequence;
    const dp_slice_view *slice;
} ew_job;

// Since creation.
typedef struct {
    rt_counts done;       // executed operations
    uint64_t stale_reads; // rows that were not at the version that the plan names
    uint64_t rows_early;  // pulled rows that came before their slot was free
    uint64_t handed;      // rows of trained slices that came from other workers
    uint64_t gradients;   // of trained slices, that went to other workers
} ew_executor_statistics;

rt_status ew_executor_create(const ew_executor_config *config, ew_executor **executor_p);
void ew_executor_destroy(ew_executor *executor);

// Takes a message of type SLICE, ROWS (coded, too), PUSHED, HANDED or GRADS, in every case (it is empty afterwards). HANDED and GRADS may come before the slice that
// takes them in. RT_WIRE: it breaks the protocol (error says how; the run must end). RT_NO_MEMORY.
rt_status ew_executor_receive(ew_executor *executor, uint32_t peer, rt_message *message,
                              rt_error *error);

// The next iteration whose rows are all in place, in order. RT_AGAIN: none yet. One job at a time.
rt_status ew_executor_next_job(ew_executor *executor, ew_job *job);

// Of the slice that is trained next, as soon as it is known; NULL: it is not, or trains nothing.
const rt_wire_slice *ew_executor_next_counts(const ew_executor *executor);

// The job is done: rows of mode OWN are updated, gradients holds row_count x values floats for the
// others; it is read during this call only. With apply false, as all workers have it in this
// iteration, no row was or will be: all get their versions, and no step, here or at the PS.
// *done (may be NULL) receives what the slice executed.
rt_status ew_executor_trained(ew_executor *executor, const float *gradients, bool apply,
                              rt_counts *done, rt_error *error);

// What the next job waits for.
typedef enum {
    EW_WAIT_PLAN, // its slice
    EW_WAIT_PUSH, // with own pushes waiting to be sent or confirmed
    EW_WAIT_PULL, // rows, with no own push under way
    EW_WAIT_COUNT
} ew_wait;
ew_wait ew_executor_waits_for(const ew_executor *executor);

// Offers messages again that the transport or the credits held up.
rt_status ew_executor_flush(ew_executor *executor, rt_error *error);

// A message to another worker waits for the transport, which does not tell when it has room again.
bool ew_executor_is_held_up(const ew_executor *executor);

// Trained so far as this worker knows, by itself or, before a flush, by others; 0: none yet.
uint32_t ew_executor_iteration(const ew_executor *executor);

// Every slice that came in is carried out and every push confirmed.
bool ew_executor_idle(const ew_executor *executor);

ew_executor_statistics ew_executor_get_statistics(const ew_executor *executor);

#endif
