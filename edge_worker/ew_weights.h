// ew_weights - the dense weights of a worker that does not take part in every iteration.
//
// The worker's half of ps_lite/ps_weights.h. Whoever takes part steps its own weights, so they are
// those after the iteration before; after a pause they are fetched from the shards, each part in
// the version that is asked for. Who trains alone tells the shards nothing of its steps, and gives
// them the weights as they are by then before others need them. Where all workers always take part
// nothing is sent. Plain state of the communication thread; errors name the shard.
#ifndef EW_WEIGHTS_H
#define EW_WEIGHTS_H

#include "edge_worker/ew_exchange.h"
#include "runtime/numbers/rt_optimizer.h"
#include "runtime/numbers/rt_stripes.h"

// Where the model is: values, and the optimizer's state of all of them, out of it and into it.
typedef struct {
    rt_status (*read)(void *context, float *values, float *state, rt_error *error);
    rt_status (*write)(void *context, const float *values, const float *state, rt_error *error);
    // What training with these log odds adds to the values before its step: by[i] to the one at i
    // behind what is returned.
    uint32_t (*shifts)(const void *context, float log_odds, const float *more_odds,
                       float by[RT_LABELS_MAX]);
} ew_weights_ops;

typedef struct {
    bool shared;        // the shards keep them: rt_stripes_keep
    rt_stripes stripes; // of the weights
    rt_optimizer_config optimizer;
    uint32_t sender; // of the messages
    ew_exchange *exchange;
    const ew_weights_ops *ops;
    void *context;
    uint64_t begun;   // iteration that the run goes on after
    uint64_t version; // iteration of the last step that the model has
    bool ahead;       // the shards have not heard of it: it was trained alone
    uint32_t shifted; // of the iteration in progress: where values are shifted
    float by[RT_LABELS_MAX];

    // a fetch
    uint64_t wanted;                 // version; while left > 0
    uint32_t left;                   // floats to come
    uint32_t arrived[RT_SHARDS_MAX]; // of each part
    float *values, *state;           // as far as they have come
} ew_weights;

// The members up to context are filled in. RT_NO_MEMORY.
rt_status ew_weights_init(ew_weights *weights, rt_error *error);
void ew_weights_fini(ew_weights *weights);

// The run goes on after this iteration, whose weights the model has.
void ew_weights_resume(ew_weights *weights, uint64_t iteration);

// Before the first gradient of the run, of the worker that names them: the shards get the weights.
rt_status ew_weights_begin(ew_weights *weights, rt_error *error);

// By what the training that begins will shift the weights, which its step then tells the shards.
void ew_weights_shift(ew_weights *weights, float log_odds, const float *more_odds);

// The sum of an iteration is complete, gradients holds it. The step is told to the shards, unless
// this worker trained alone. place: rt_optimizer_place.
rt_status ew_weights_step(ew_weights *weights, uint64_t iteration, uint64_t place, bool applies,
                          bool alone, const float *gradients, rt_error *error);

// Others will need the weights that the model has: the shards get them if they have older ones.
rt_status ew_weights_share(ew_weights *weights, rt_error *error);

// RT_OK: the model has the weights after this iteration. RT_AGAIN: they are on their way; asks for
// them where that has not happened.
rt_status ew_weights_get(ew_weights *weights, uint64_t iteration, rt_error *error);

static inline bool ew_weights_busy(const ew_weights *weights)
{
    return weights->left > 0;
}

// A DENSE_STATE. RT_WIRE: nobody waits for it.
rt_status ew_weights_receive(ew_weights *weights, const rt_message *message, rt_error *error);

#endif
