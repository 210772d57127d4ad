// ps_dense - sums of the dense gradients of the workers that take part: the embedded all-reduce.
//
// Of this shard's part of the vector (rt_stripes). Chunks are independent: a sum is open per
// (iteration, place of its first float in the part), of as many floats as its first message had.
// Each message names the workers of its iteration. Their gradients are added in worker order; one
// that comes early waits, as it arrived, and is added as soon as its turn comes. Of bf16 messages
// the sum is made in 32 bits and then rounded, once, to nearest even: every worker gets the same
// bits, and what this rounding loses (at most 1/512 of a component) is lost. Bounded by bytes held.
// One thread.
//
// Where workers sit out it keeps the weights, too (ps_weights), and steps them with these sums.
#ifndef PS_DENSE_H
#define PS_DENSE_H

#include "ps_lite/ps_weights.h"

#define PS_DENSE_OPEN_MAX 4096u // sums

typedef struct ps_dense ps_dense;

typedef struct {
    uint32_t worker_count;
    uint64_t bytes_max;            // of gradients that wait, and of weights
    bool keeps;                    // the weights: rt_stripes_keep
    rt_optimizer_config optimizer; // theirs
} ps_dense_config;

rt_status ps_dense_create(const ps_dense_config *config, ps_dense **dense_p);
void ps_dense_destroy(ps_dense *dense);

// The message types of the dense exchange that come from workers.
bool ps_dense_takes(uint32_t type);

// A message that answers, and who gets it.
typedef struct {
    rt_message message; // empty: nobody
    uint64_t workers;
} ps_dense_answer;

// Takes a worker's DENSE_GRAD or DENSE_GRAD_BF16 message (on RT_OK; otherwise it stays and nothing
// changed). When it completes a sum, *answer receives it, of the same kind; else that is empty. A
// message of another kind stays the caller's; the last worker's DENSE_JOIN completes DENSE_JOINED,
// and a second round may follow. RT_WIRE: not a chunk, sent twice, not as long as the others' or of
// other workers, older than what the worker sent before, or what ps_weights says; RT_LIMIT: too
// many open sums or bytes. error names the worker.
rt_status ps_dense_receive(ps_dense *dense, uint32_t worker, rt_message *message,
                           ps_dense_answer *answer, rt_error *error);

// The next message to workers that fetch weights: ask after every message that was received, until
// RT_AGAIN. RT_NO_MEMORY.
rt_status ps_dense_next(ps_dense *dense, ps_dense_answer *answer);

uint32_t ps_dense_open(const ps_dense *dense); // sums begun and not complete
const ps_weights *ps_dense_weights(const ps_dense *dense); // NULL: not kept

#endif
