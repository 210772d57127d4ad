// ps_weights - a shard's part of the dense weights, with their optimizer state.
//
// For runs in which workers sit out: who comes back fetches here what the others have trained
// (dispatch.participants). A worker that takes part in a run's first iteration sends the weights
// that it begins with (DENSE_STATE), before its first gradient. Who trained alone since, and told
// nothing, sends those that it has, which take their place. The sums that the shard sends are
// kept until it is known what becomes of the iteration (DENSE_STEP: whether it counts, and by what
// clip_norm scales it); then they are the gradient of a step. All who took part say so, because
// only one of those who go on can be relied upon to be heard before the next sum is complete: the
// weights after t are there before anything of t + 1 is complete. Steps are rt_optimizer's with the
// workers' own inputs, so the part stays theirs, bit for bit.
//
// A fetch (DENSE_PULL) waits until the step that it names is done. One thread.
#ifndef PS_WEIGHTS_H
#define PS_WEIGHTS_H

#include "runtime/numbers/rt_optimizer.h"
#include "runtime/wire/rt_wire.h"

typedef struct ps_weights ps_weights;

// bytes_max: of all that is kept. RT_NO_MEMORY.
rt_status ps_weights_create(uint32_t worker_count, const rt_optimizer_config *optimizer,
                            uint64_t bytes_max, ps_weights **weights_p);
void ps_weights_destroy(ps_weights *weights);

// A worker's DENSE_STATE, DENSE_STEP or DENSE_PULL, which stays the caller's. RT_WIRE: it does not
// follow from what came before, or says something else than another worker; RT_LIMIT, RT_NO_MEMORY:
// the part is too large. error names the worker.
rt_status ps_weights_receive(ps_weights *weights, uint32_t worker, const rt_message *message,
                             rt_error *error);

// Where floats [first, first + count) of an iteration's sum go, as they are sent. RT_WIRE: the step
// before is not done, or they are beyond the part. The verdict may be one float behind the values.
rt_status ps_weights_sum(ps_weights *weights, uint64_t iteration, uint32_t first, uint32_t count,
                         float **sum_p, rt_error *error);

// The next piece of what a worker has asked for and can have. RT_AGAIN: there is none.
// RT_NO_MEMORY.
rt_status ps_weights_next(ps_weights *weights, uint32_t *worker_p, rt_message *message);

uint64_t ps_weights_version(const ps_weights *weights); // iteration of the last step

// Values and state, *count_p floats; NULL until they are there.
const float *ps_weights_block(const ps_weights *weights, uint32_t *count_p);

#endif
