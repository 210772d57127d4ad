// ps_dense - sums of the dense gradients of all workers: the embedded all-reduce.
//
// Chunks are independent: a sum is open per (iteration, place of its first float), of as many
// floats as its first message had. Gradients are added in worker order; one that comes early waits,
// as it arrived, and is added as soon as its turn comes. Of bf16 messages the sum is made in 32
// bits and then rounded, once, to nearest even: every worker gets the same bits, and what this
// rounding loses (at most 1/512 of a component) is lost. Bounded by bytes held. One thread.
#ifndef PS_DENSE_H
#define PS_DENSE_H

#include "runtime/wire/rt_wire.h"

#define PS_DENSE_OPEN_MAX 4096u // sums

typedef struct ps_dense ps_dense;

rt_status ps_dense_create(uint32_t worker_count, uint64_t bytes_max, ps_dense **dense_p);
void ps_dense_destroy(ps_dense *dense);

// The message types of the dense exchange that come from workers.
bool ps_dense_takes(uint32_t type);

// Takes a worker's DENSE_GRAD or DENSE_GRAD_BF16 message (on RT_OK; otherwise it stays and nothing
// changed). When it completes a sum, *answer receives it, of the same kind; else *answer becomes
// empty. A DENSE_JOIN stays the caller's; the last worker's completes DENSE_JOINED, and a second
// round may follow. RT_WIRE: not a chunk, sent twice, not as long as the others', or older than
// what the worker sent before; RT_LIMIT: too many open sums or bytes. error names the worker.
rt_status ps_dense_receive(ps_dense *dense, uint32_t worker, rt_message *message,
                           rt_message *answer, rt_error *error);

uint32_t ps_dense_open(const ps_dense *dense); // sums begun and not complete

#endif
