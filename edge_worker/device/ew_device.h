// ew_device - the arithmetic of a worker: memory, the rows of the slab, the layers of the models.
//
// Contract of the three tables, for every device; the CPU device defines the results.
// - Operations are queued and run in the order of the calls; on the CPU each has run when it
//   returns. After the first failure the rest do nothing, and finish reports it.
// - Pointers are device memory (from alloc) unless marked host. `unified` devices compute on host
//   memory as well: there ew_device_stage copies nothing. No alignment is required; row strides
//   that are multiples of 16 floats are faster.
// - Matrices are row major; a stride counts floats from one row to the next. Counts may be 0: a
//   worker can sit an iteration out. Outputs do not overlap inputs unless stated.
// - Element-wise results depend on the inputs only. Sums have a fixed order on a given device, so
//   a run repeats bit for bit; devices differ by the order, within the error of a sum.
// - Nothing allocates except alloc and alloc_shared.
// - One thread uses a device (on the CPU it has helpers, which change no bit); only rows_init,
// rows_get and rows_put may come from a second one, at
//   the same time, for slots that the first does not use. These three have run when they return.
//   From the first thread they run after what it queued, from the second they wait for nothing.
#ifndef EW_DEVICE_H
#define EW_DEVICE_H

#include "runtime/rt_base.h"
#include "runtime/config/rt_config.h"
#include "runtime/numbers/rt_optimizer.h"

typedef enum { EW_COPY_IN, EW_COPY_OUT, EW_COPY_WITHIN } ew_copy; // host to device, back, device
typedef enum { EW_IDENTITY, EW_RELU } ew_activation;

#define EW_REPEAT_KEY_BYTES_MAX 192u

// The embedding look-ups of one micro-batch. A bag is one field of one sample. Bag b holds the
// look-ups [bag_offsets[b], bag_offsets[b + 1]), or exactly look-up b if bag_offsets is NULL; bags
// go by sample, then field. All look-ups of one row are in the same field (the field is part of
// the row's key).
typedef struct {
    uint32_t sample_count, field_count, lookup_count, row_count;
    uint32_t dim;                // values per row
    uint32_t row_stride;         // floats from one slot of the slab to the next
    rt_pooling pooling;          // of a bag's rows; an empty bag gives 0
    const uint32_t *lookup_rows; // lookup_count numbers below row_count
    const uint32_t *bag_offsets; // sample_count x field_count + 1, or NULL
    const uint32_t *row_slots;   // row_count, distinct
    const float *slab;
    // The same look-ups by row, filled by index: those of row r are the samples
    // row_samples[row_starts[r] .. row_starts[r + 1]), ascending, in field row_fields[r]; a row
    // without look-ups is in field 0 and gets a zero gradient.
    uint32_t *row_starts;  // row_count + 1
    uint32_t *row_samples; // lookup_count
    uint32_t *row_fields;  // row_count
    float *row_scalars;    // row_count, what wide_back leaves for rows_back
} ew_lookups;

// Memory, and rows as the executor moves them.
typedef struct {
    void (*close)(void *state);
    // count floats (or other 4-byte words), zeroed, 64-byte aligned; NULL: out of memory.
    void *(*alloc)(void *state, size_t count);
    void (*free)(void *state, void *block);
    // The same of memory that the host reads and writes too, and that counts as device memory for
    // all operations: slow for anything that is used more than once.
    void *(*alloc_shared)(void *state, size_t count);
    void (*free_shared)(void *state, void *block);
    // Memory of the host may be any. What is copied in may change or go as soon as copy returns,
    // but for memory from alloc_shared, which the device may read later: that stays unchanged until
    // finish. What is copied out is there after finish.
    void (*copy)(void *state, ew_copy kind, void *to, const void *from, size_t bytes);
    // Waits for all that is queued. RT_OK, or the first failure since the last finish.
    rt_status (*finish)(void *state, rt_error *error);

    // Rows that were never trained: rt_row_init(keys[k], seed, scale) in slot slots[k], and fresh
    // optimizer state behind the values.
    void (*rows_init)(void *state, const rt_optimizer_config *optimizer, uint32_t dim,
                      uint64_t seed, float scale, const uint64_t *keys, const uint32_t *slots,
                      uint32_t count, float *slab, uint32_t row_stride);
    // The first float_count floats of rows: packed[k] = slab[slots[k]], and back.
    void (*rows_get)(void *state, const float *slab, uint32_t row_stride, uint32_t float_count,
                     const uint32_t *slots, uint32_t count, float *packed);
    void (*rows_put)(void *state, float *slab, uint32_t row_stride, uint32_t float_count,
                     const uint32_t *slots, uint32_t count, const float *packed);
    // rt_optimizer_step on row slots[k] with gradient gradients[rows ? rows[k] : k] (dim floats
    // each). step as there; slots are distinct.
    void (*rows_step)(void *state, const rt_optimizer_config *optimizer, uint32_t dim,
                      uint64_t step, float *slab, uint32_t row_stride, const uint32_t *slots,
                      const uint32_t *rows, uint32_t count, const float *gradients);
    // work(context) queues operations of the two tables below, whose arguments follow from key (at
    // most EW_REPEAT_KEY_BYTES_MAX, padding included): they are queued by calling it, or as they
    // were for an equal key before, in one go. Optional.
    void (*repeat)(void *state, const void *key, size_t bytes, void (*work)(void *context),
                   void *context);
} ew_device_ops;

// What models are made of.
typedef struct {
    // Fills the by-row half of lookups; may use row_scalars meanwhile.
    void (*index)(void *state, const ew_lookups *lookups);
    // out: sample_count x (field_count x dim pooled embeddings, then dense_count dense features).
    void (*pool)(void *state, const ew_lookups *lookups, const float *dense, uint32_t dense_count,
                 float *out, uint32_t stride);
    // logits[i] += sum over fields of weights[f] . pooled[i][f], without the pooled matrix: one
    // product per row, one number per look-up. weights: field_count x dim.
    void (*wide)(void *state, const ew_lookups *lookups, const float *weights, float *logits);
    // Its weight gradients, written; and row_scalars: per row the summed logit gradients of its
    // look-ups (mean pooling: each divided by its bag's size).
    void (*wide_back)(void *state, const ew_lookups *lookups, const float *logit_gradients,
                      float *weight_gradients);
    // gradients (row_count x dim), written: per row the sum over its look-ups of what reached its
    // pooled embedding. pooled_gradients: sample_count x stride, as pool's out, or NULL.
    // weights: adds row_scalars[r] x weights[field], the part of wide; or NULL.
    void (*rows_back)(void *state, const ew_lookups *lookups, const float *pooled_gradients,
                      uint32_t stride, const float *weights, float *gradients);
    // c (m x n) = op(a) op(b) + beta c; op(a) is m x k: a itself, or the transpose of a (k x m).
    // With beta 0, c need not hold numbers before.
    void (*gemm)(void *state, bool a_transposed, bool b_transposed, uint32_t m, uint32_t n,
                 uint32_t k, const float *a, uint32_t a_stride, const float *b, uint32_t b_stride,
                 float beta, float *c, uint32_t c_stride);
    // values = activation(values + bias), in place; bias: column_count. A NaN stays one.
    void (*activate)(void *state, ew_activation activation, uint32_t row_count,
                     uint32_t column_count, const float *bias, float *values, uint32_t stride);
    // gradients (of activate's result) become those of its argument, in place; bias_gradients
    // (column_count), written: their column sums. values: what activate left, same stride.
    void (*activate_back)(void *state, ew_activation activation, uint32_t row_count,
                          uint32_t column_count, const float *values, float *gradients,
                          uint32_t stride, float *bias_gradients);
    // predictions = sigmoid(logits); gradients = (weights x predictions - labels) x scale; *loss =
    // summed log loss (a double in device memory), computed from the logits, so never infinite for
    // finite ones. gradients, loss and labels may all be NULL. weights: NULL where all are 1; else
    // labels are what of the weights has label 1 (rt_batch.h).
    void (*loss)(void *state, uint32_t count, const float *logits, const float *labels,
                 const float *weights, float scale, float *predictions, float *gradients,
                 double *loss);
    // One of class_count classes: predictions = softmax of a sample's logits; gradients =
    // (predictions - 1 where the class is labels[i]) x scale; *loss = summed -log of the class's
    // prediction, from the logits. labels: sample_count whole numbers below class_count; NULL as
    // above.
    void (*classes)(void *state, uint32_t sample_count, uint32_t class_count, const float *logits,
                    const float *labels, float scale, float *predictions, float *gradients,
                    double *loss);
    // rt_optimizer_step on count parameters.
    void (*step)(void *state, const rt_optimizer_config *optimizer, uint32_t count, uint64_t step,
                 float *values, float *optimizer_state, const float *gradients);
} ew_layer_ops;

// How features meet. x is a matrix of sample_count rows; a row holds vectors of dim values one
// after another. Gradients have the stride of what they belong to.
typedef struct {
    // DeepFM (Guo et al., IJCAI 2017, eq. 2): logits[i] += the sum over all pairs of the row's
    // count vectors of their products. sums: sample_count x dim, written for fm_back.
    void (*fm)(void *state, uint32_t sample_count, uint32_t count, uint32_t dim, const float *x,
               uint32_t stride, float *sums, float *logits);
    // Adds to x_gradients.
    void (*fm_back)(void *state, uint32_t sample_count, uint32_t count, uint32_t dim,
                    const float *x, uint32_t stride, const float *sums,
                    const float *logit_gradients, float *x_gradients);

    // Deep & Cross with vectors (Wang et al., ADKDD 2017, eq. 3), x' = x0 (x . w) + b + x, in
    // scalars: x_l = a_l x0 + b_0 + ... + b_(l-1) with one number a_l per sample, so that all of
    // x0 that the layers and the output need is products = x0 weights^T (a gemm). weights:
    // (layer_count + 1) x dim, the last row is the output's; biases: layer_count x dim; products:
    // sample_count x stride. logits[i] += x_L . output.
    void (*cross)(void *state, uint32_t sample_count, uint32_t layer_count, uint32_t dim,
                  const float *weights, const float *biases, const float *products, uint32_t stride,
                  float *logits);
    // Writes product_gradients, bias_gradients, and weight_gradients except for what comes through
    // the products: the caller adds product_gradients^T x0.
    void (*cross_back)(void *state, uint32_t sample_count, uint32_t layer_count, uint32_t dim,
                       const float *weights, const float *biases, const float *products,
                       uint32_t stride, const float *logit_gradients, float *product_gradients,
                       float *weight_gradients, float *bias_gradients);

    // One layer of Deep & Cross v2 (Wang et al., WWW 2021, eq. 1): z += bias, next = x0 z + x,
    // element by element; z comes in as x W^T.
    void (*cross_matrix)(void *state, uint32_t sample_count, uint32_t dim, const float *x0,
                         const float *x, const float *bias, float *z, float *next, uint32_t stride);
    // Writes z_gradients and bias_gradients; adds to x0_gradients, or writes them for the last
    // layer (is_last), and there too what reaches x directly for the first (is_first: x is x0).
    // z as cross_matrix left it.
    void (*cross_matrix_back)(void *state, uint32_t sample_count, uint32_t dim, bool is_first,
                              bool is_last, const float *x0, const float *z,
                              const float *next_gradients, float *z_gradients, float *x0_gradients,
                              float *bias_gradients, uint32_t stride);

    // DLRM (Naumov et al., 2019): out = the row's last vector, then the products of vectors a and
    // b, b < a, in the order (1,0), (2,0), (2,1), ...
    void (*dots)(void *state, uint32_t sample_count, uint32_t count, uint32_t dim, const float *x,
                 uint32_t stride, float *out, uint32_t out_stride);
    // Writes x_gradients.
    void (*dots_back)(void *state, uint32_t sample_count, uint32_t count, uint32_t dim,
                      const float *x, uint32_t stride, const float *out_gradients,
                      uint32_t out_stride, float *x_gradients);

    // GMF (He et al., WWW 2017, eq. 9): logits[i] += weights . (u v), u v element by element. u and
    // v are columns of one matrix.
    void (*gmf)(void *state, uint32_t sample_count, uint32_t dim, const float *u, const float *v,
                uint32_t stride, const float *weights, float *logits);
    // Writes all three gradients.
    void (*gmf_back)(void *state, uint32_t sample_count, uint32_t dim, const float *u,
                     const float *v, uint32_t stride, const float *weights,
                     const float *logit_gradients, float *u_gradients, float *v_gradients,
                     float *weight_gradients);
} ew_interaction_ops;

typedef struct {
    const ew_device_ops *ops;
    const ew_layer_ops *layers;
    const ew_interaction_ops *interactions;
    void *state;
    bool unified; // host memory is device memory
    // For the log: "cpu: AVX-512 kernels, OpenBLAS 0.3.21 SkylakeX, 2 threads", and the whole of a
    // rt_error where "auto" takes the CPU.
    char description[640];
} ew_device;

typedef struct {
    const char *name; // "cpu", "cuda:N", "cuda", or the best that there is for "auto": a GPU, else
                      // the CPU, and then the description says why
    uint32_t rank;    // of the worker; workers on one machine share its GPUs: where the name leaves
                      // the number open it is rank modulo their number, and the description says so
    uint32_t threads; // of the CPU; 0: the cores that the process may use
    bool is_steady;   // of the CPU: a row of a product has the same bits whatever other rows there
        // are, and for every instruction set; takes up to three times as long as a BLAS
    bool tf32; // of a GPU: matrix products may round their factors to TF32
} ew_device_wish;

// Call before other threads start: it sets environment variables while it loads a BLAS.
// RT_UNSUPPORTED (no such device or no BLAS; error says what to install), RT_NO_MEMORY, RT_LIMIT.
// Close with the function below. ew_device_open: one thread, no TF32.
rt_status ew_device_open_as(const ew_device_wish *wish, ew_device *device, rt_error *error);
rt_status ew_device_open(const char *name, ew_device *device, rt_error *error);
void ew_device_close(ew_device *device);

// Host data where device operations can read it: the pointer itself on unified devices, else
// buffer (device memory), into which it is copied.
const void *ew_device_stage(const ew_device *device, void *buffer, const void *host, size_t bytes);

// Where a bag begins among the look-ups. bag_offsets: NULL, each bag has one.
static inline uint32_t ew_bag_begin(const uint32_t *bag_offsets, uint32_t bag)
{
    return bag_offsets ? bag_offsets[bag] : bag;
}

#endif
