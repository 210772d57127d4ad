// rt_optimizer - one step of one parameter block, the same code for PS rows, cached rows and the
// dense part.
//
// A row on the wire and in a table is `dim` values followed by `rt_optimizer_state_floats(...)`
// floats of state. The gradient is the sum over all samples of the iteration, divided by N, the
// samples of a full batch: a sample counts the same in a batch that ended early. Results depend on
// the inputs only, never on the thread or machine width: every build uses the same element-wise
// operations in the same order.
#ifndef RT_OPTIMIZER_H
#define RT_OPTIMIZER_H

#include "runtime/config/rt_config.h"

// One step, worked out once for a block: gradient[i] counts as scale x gradient[i] + l2 x
// values[i].
typedef struct {
    float rate, root; // root: adam, the bias correction of the second moment
    float scale;      // of clipping
    float l2;
} rt_optimizer_terms;

// A number of floats that goes with dim values: per_value x dim + per_block.
typedef struct {
    uint32_t per_value, per_block;
} rt_optimizer_size;

typedef struct {
    rt_optimizer_size state;        // of each value, or one float of the block
    rt_optimizer_size accumulators; // of the state: these come first, from initial_accumulator
    uint32_t flops_per_value;       // of a step, for the measurements
} rt_optimizer_about;

// Everything particular to a kind: made of its file (rt_optimizer_parts.h).
typedef struct {
    const char *name;
    const rt_optimizer_about *about;
    // Changes the terms of iteration step that all kinds begin with.
    void (*adapt)(const rt_optimizer_config *config, uint64_t step, rt_optimizer_terms *terms);
    // Of a float of state for the whole block, if there is one: squares, the sum over all dim
    // values of what their gradients count as, goes into it; returns the rate that it leaves.
    float (*settle)(const rt_optimizer_config *config, float rate, uint32_t dim, double squares,
                    float *state);
    // Any dim values of a block, with its terms; floats of state that belong to one value are plane
    // (the values of the block) apart.
    void (*step)(const rt_optimizer_config *config, rt_optimizer_terms terms, uint32_t dim,
                 uint32_t plane, float *values, float *state, const float *gradient);
} rt_optimizer_ops;

const rt_optimizer_ops *rt_optimizer_find(rt_optimizer_kind kind);

// Where a step stands in a run, as functions below take it: how many full batches the samples so
// far make, rounded up, and behind that the samples of a batch that is not full (0: it is; others
// need config->batch_samples). What goes by the length of a run (warm-up, decay, Adam's bias
// correction) and what a step does whatever its gradients say (l2) goes by samples in this way,
// however the stream was cut into batches. Where all batches are full it is the number of the
// iteration.
#define RT_OPTIMIZER_PART 32u // the bit where samples begin
static inline uint64_t rt_optimizer_place(uint32_t step, uint32_t samples, uint32_t full)
{
    return step | (samples < full ? (uint64_t)samples << RT_OPTIMIZER_PART : 0);
}
static inline bool rt_optimizer_place_fits(uint64_t place, uint32_t full)
{
    return (uint32_t)place > 0 &&
           (place >> RT_OPTIMIZER_PART == 0 || place >> RT_OPTIMIZER_PART < full);
}

// The terms of a step at that place, without clipping.
rt_optimizer_terms rt_optimizer_terms_of(const rt_optimizer_config *config, uint64_t step);

uint32_t rt_optimizer_floats(rt_optimizer_size size, uint32_t dim);

// Floats of state that go with `dim` values (sgd 0, adagrad dim, row-wise adagrad 1, ...).
uint32_t rt_optimizer_state_floats(const rt_optimizer_config *config, uint32_t dim);

// State of a block that was never trained.
void rt_optimizer_init_state(const rt_optimizer_config *config, uint32_t dim, float *state);

// values, state and gradient do not overlap. step: rt_optimizer_place. The block is a row, or the
// whole dense part: its gradient is scaled down to clip_norm where its norm is above, then l2 x
// values is added (ftrl has its own l2).
void rt_optimizer_step(const rt_optimizer_config *config, uint32_t dim, uint64_t step,
                       float *values, float *state, const float *gradient);

// The two halves of it, for parts that are kept apart, each with its state: what the gradient of
// the whole block is scaled by (1 without clipping), and the step of a part with that. Where no
// float of the state belongs to the whole block, the steps of its parts are the step of the block,
// bit for bit.
float rt_optimizer_scale(const rt_optimizer_config *config, uint32_t dim, const float *gradient);
void rt_optimizer_step_scaled(const rt_optimizer_config *config, uint32_t dim, uint64_t step,
                              float scale, float *values, float *state, const float *gradient);

// And for several threads: first the terms, with clipping, which looks at all gradients; then,
// where a float of the state belongs to the whole block (is_elementwise: none does), the squares of
// every chunk, and their sum, in the order of the chunks, to settle, which gives other terms; last,
// values [from, to) of a block of dim, with any cuts.
rt_optimizer_terms rt_optimizer_clipped_terms(const rt_optimizer_config *config, uint32_t dim,
                                              uint64_t step, const float *gradient);
bool rt_optimizer_is_elementwise(const rt_optimizer_config *config);
double rt_optimizer_chunk_squares(rt_optimizer_terms terms, uint32_t dim, uint32_t chunk,
                                  const float *values, const float *gradient);
rt_optimizer_terms rt_optimizer_settle(const rt_optimizer_config *config, rt_optimizer_terms terms,
                                       uint32_t dim, double squares, float *state);
void rt_optimizer_step_range(const rt_optimizer_config *config, rt_optimizer_terms terms,
                             uint32_t dim, uint32_t from, uint32_t to, float *values, float *state,
                             const float *gradient);

// The same with another learning rate; 0: with its own.
static inline rt_optimizer_config rt_optimizer_with_rate(const rt_optimizer_config *config,
                                                         float rate)
{
    rt_optimizer_config other = *config;
    other.learning_rate = rate > 0 ? rate : config->learning_rate;
    return other;
}

// And for gradients that were divided by batch_samples.
static inline rt_optimizer_config rt_optimizer_in_run(const rt_optimizer_config *config, float rate,
                                                      uint32_t batch_samples)
{
    rt_optimizer_config other = rt_optimizer_with_rate(config, rate);
    other.batch_samples = batch_samples;
    return other;
}

// The learning rate of step: learning_rate, times step / warmup_iterations before the end of the
// warm-up, times what `decay` leaves after it. The same bits on every machine.
float rt_optimizer_rate(const rt_optimizer_config *config, uint64_t step);

// Sums of squares have one order on every device and any number of threads: eight lanes over each
// chunk of a block, then the chunks in order, in doubles. Row-wise Adagrad's lanes are floats,
// those of clipping doubles.
#define RT_OPTIMIZER_SQUARES_CHUNK 1024u
static inline uint32_t rt_optimizer_chunk_count(uint32_t dim)
{
    return dim / RT_OPTIMIZER_SQUARES_CHUNK + (dim % RT_OPTIMIZER_SQUARES_CHUNK > 0);
}

// The squared norm that clipping goes by.
double rt_optimizer_squares(uint32_t count, const float *gradient);

// Initial values of a row: a function of key and seed alone, by integer arithmetic and one rounding
// per value, so that every device computes the same bits. Approximately normal with standard
// deviation scale (sum of four 16-bit uniform integers).
void rt_row_init(uint64_t key, uint64_t seed, float scale, uint32_t dim, float *values);

#endif
