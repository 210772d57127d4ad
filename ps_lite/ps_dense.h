// ps_dense - sums of the dense gradients of all workers: the embedded all-reduce.
//
// Chunks are independent: a sum is open per (iteration, chunk), of as many floats as its first
// message had. Gradients are added in worker order; one that comes early waits, as it arrived, and
// is added as soon as its turn comes. Bounded by bytes held. One thread.
#ifndef PS_DENSE_H
#define PS_DENSE_H

#include "runtime/rt_wire.h"

#define PS_DENSE_OPEN_MAX 4096u // sums

typedef struct ps_dense ps_dense;

rt_status ps_dense_create(uint32_t worker_count, uint64_t bytes_max, ps_dense **dense_p);
void ps_dense_destroy(ps_dense *dense);

// Takes a worker's DENSE_GRAD message (on RT_OK; otherwise it stays and nothing changed). When it
// completes a sum, *sum receives it as a DENSE_SUM message; else *sum becomes empty.
// RT_WIRE: not a chunk, sent twice, other length than the others', or older than what the worker
// sent before; RT_LIMIT: too many open sums or bytes. error names the worker.
rt_status ps_dense_add(ps_dense *dense, uint32_t worker, rt_message *message, rt_message *sum,
                       rt_error *error);

uint32_t ps_dense_open(const ps_dense *dense); // sums begun and not complete

#endif
