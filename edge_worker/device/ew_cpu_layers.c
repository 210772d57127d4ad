// The layers of models on the CPU (ew_device.h), split over threads.
#include <math.h>
#include <string.h>

#include "edge_worker/device/ew_cpu_parts.h"

// Of a matrix product, so many rows or columns go to the library at a time. One thread is 5% slower
// by that, as the other factor is packed again for every part; many threads have enough parts.
#define GEMM_ROWS 128u
#define GEMM_COLUMNS 256u
#define GEMM_PART_FLOPS_MIN UINT64_C(2000000)

// The arguments of any of these operations.
typedef struct {
    const ew_cpu *cpu;
    const ew_lookups *lookups;
    const float *values, *weights;
    uint32_t count, stride;
    float *out, *gradients;
    ew_activation activation;
    const rt_optimizer_config *optimizer;
} layer;

static uint32_t floats_of_sample(const ew_lookups *lookups)
{
    return 2 * lookups->field_count * lookups->dim;
}

// Rows of the batch take part in about as many samples each.
static uint64_t floats_of_row(const ew_lookups *lookups)
{
    const uint64_t uses = lookups->lookup_count / (lookups->row_count + UINT64_C(1)) + 2;
    return uses * lookups->dim;
}

// A stable counting sort. row_starts[r + 1] first counts row r, then is where its next look-up
// goes, and so ends as the end of row r.
static void cpu_index(void *state, const ew_lookups *lookups)
{
    (void)state;
    uint32_t *starts = lookups->row_starts, row_count = lookups->row_count;
    memset(starts, 0, (row_count + (size_t)1) * sizeof *starts);
    memset(lookups->row_fields, 0, row_count * sizeof *lookups->row_fields);
    for (uint32_t l = 0; l < lookups->lookup_count; l++)
        if (lookups->lookup_rows[l] + 1 < row_count)
            starts[lookups->lookup_rows[l] + 2]++;
    for (uint32_t r = 2; r <= row_count; r++)
        starts[r] += starts[r - 1];
    for (uint32_t i = 0, bag = 0; i < lookups->sample_count; i++) {
        for (uint32_t f = 0; f < lookups->field_count; f++, bag++) {
            const uint32_t end = ew_bag_begin(lookups->bag_offsets, bag + 1);
            for (uint32_t l = ew_bag_begin(lookups->bag_offsets, bag); l < end; l++) {
                uint32_t row = lookups->lookup_rows[l];
                lookups->row_fields[row] = f;
                lookups->row_samples[starts[row + 1]++] = i;
            }
        }
    }
}

static void pool_samples(const void *call, uint32_t from, uint32_t to)
{
    const layer *c = call;
    const ew_lookups part = ew_cpu_samples(c->lookups, from, to);
    const float *dense = c->count ? c->values + (size_t)from * c->count : NULL;
    c->cpu->kernels->pool(&part, dense, c->count, c->out + (size_t)from * c->stride, c->stride);
}

static void cpu_pool(void *state, const ew_lookups *lookups, const float *dense,
                     uint32_t dense_count, float *out, uint32_t stride)
{
    const layer call = {.cpu = state,
                        .lookups = lookups,
                        .values = dense,
                        .count = dense_count,
                        .out = out,
                        .stride = stride};
    ew_cpu_split(state, lookups->sample_count, floats_of_sample(lookups), pool_samples, &call);
}

static void wide_rows(const void *call, uint32_t from, uint32_t to)
{
    const layer *c = call;
    const ew_lookups part = ew_cpu_rows(c->lookups, from, to);
    c->cpu->kernels->wide_rows(&part, c->weights);
}

// row_scalars are all rows', whichever samples these are.
static void wide_samples(const void *call, uint32_t from, uint32_t to)
{
    const layer *c = call;
    const ew_lookups part = ew_cpu_samples(c->lookups, from, to);
    c->cpu->kernels->wide_samples(&part, c->out + from);
}

static void cpu_wide(void *state, const ew_lookups *lookups, const float *weights, float *logits)
{
    const layer call = {.cpu = state, .lookups = lookups, .weights = weights, .out = logits};
    ew_cpu_split(state, lookups->row_count, lookups->dim, wide_rows, &call);
    ew_cpu_split(state, lookups->sample_count, 2 * lookups->field_count, wide_samples, &call);
}

static void wide_back_rows(const void *call, uint32_t from, uint32_t to)
{
    const layer *c = call;
    const ew_lookups part = ew_cpu_rows(c->lookups, from, to);
    c->cpu->kernels->wide_back_rows(&part, c->values);
}

static void wide_back_fields(const void *call, uint32_t from, uint32_t to)
{
    const layer *c = call;
    c->cpu->kernels->wide_back_fields(c->lookups, from, to, c->gradients);
}

static void cpu_wide_back(void *state, const ew_lookups *lookups, const float *logit_gradients,
                          float *weight_gradients)
{
    const layer call = {
        .cpu = state, .lookups = lookups, .values = logit_gradients, .gradients = weight_gradients};
    const uint32_t fields = lookups->field_count;
    const uint64_t floats = (uint64_t)lookups->row_count * lookups->dim;
    ew_cpu_split(state, lookups->row_count, floats_of_row(lookups) / lookups->dim, wide_back_rows,
                 &call);
    ew_cpu_split(state, fields, floats / fields, wide_back_fields, &call);
}

static void rows_back(const void *call, uint32_t from, uint32_t to)
{
    const layer *c = call;
    const ew_lookups part = ew_cpu_rows(c->lookups, from, to);
    c->cpu->kernels->rows_back(&part, c->values, c->stride, c->weights,
                               c->gradients + (size_t)from * c->lookups->dim);
}

static void cpu_rows_back(void *state, const ew_lookups *lookups, const float *pooled_gradients,
                          uint32_t stride, const float *weights, float *gradients)
{
    const layer call = {.cpu = state,
                        .lookups = lookups,
                        .values = pooled_gradients,
                        .stride = stride,
                        .weights = weights,
                        .gradients = gradients};
    ew_cpu_split(state, lookups->row_count, floats_of_row(lookups), rows_back, &call);
}

// ---- matrices --------------------------------------------------------------------------------

// k == 0: nothing is summed, but c is still scaled; some libraries return early.
static void scale_matrix(uint32_t m, uint32_t n, float beta, float *c, uint32_t c_stride)
{
    for (uint32_t i = 0; i < m; i++)
        for (uint32_t j = 0; j < n; j++) {
            float *one = c + (size_t)i * c_stride + j;
            *one = beta == 0 ? 0 : beta * *one;
        }
}

typedef struct {
    const ew_cpu *cpu;
    bool a_transposed, b_transposed;
    bool by_columns; // what is cut
    uint32_t m, n, k, step;
    const float *a, *b;
    uint32_t a_stride, b_stride, c_stride;
    float beta, *c;
} product;

static int blas_trans(bool is_transposed)
{
    return is_transposed ? EW_BLAS_TRANS : EW_BLAS_NO_TRANS;
}

static void multiply_part(void *context, uint32_t part)
{
    const product *p = context;
    const uint32_t from = part * p->step;
    uint32_t m = p->m, n = p->n;
    const float *a = p->a, *b = p->b;
    float *c = p->c;
    if (p->by_columns) {
        const size_t column = p->b_transposed ? p->b_stride : 1; // from one to the next
        n = (uint32_t)rt_min_u64(p->step, n - from);
        b += from * column;
        c += from;
    } else {
        const size_t row = p->a_transposed ? 1 : p->a_stride;
        m = (uint32_t)rt_min_u64(p->step, m - from);
        a += from * row;
        c += (size_t)from * p->c_stride;
    }
    p->cpu->blas.sgemm(EW_BLAS_ROW_MAJOR, blas_trans(p->a_transposed), blas_trans(p->b_transposed),
                       (int)m, (int)n, (int)p->k, 1, a, (int)p->a_stride, b, (int)p->b_stride,
                       p->beta, c, (int)p->c_stride);
}

// A library's sums may depend on where a matrix is cut. So the cuts follow from the shape alone, on
// one thread too.
static void multiply(product *p)
{
    uint32_t all = p->m;
    uint64_t flops_each = UINT64_C(2) * p->n * p->k; // of a row of c
    p->by_columns = p->n / GEMM_COLUMNS > p->m / GEMM_ROWS;
    p->step = GEMM_ROWS;
    if (p->by_columns) {
        all = p->n;
        flops_each = UINT64_C(2) * p->m * p->k;
        p->step = GEMM_COLUMNS;
    }
    while (p->step < all && p->step * flops_each < GEMM_PART_FLOPS_MIN)
        p->step *= 2;
    rt_pool_run(p->cpu->pool, (all + p->step - 1) / p->step, multiply_part, p);
}

static void multiply_rows(const void *call, uint32_t from, uint32_t to)
{
    const product *p = call;
    p->cpu->kernels->product(p->b_transposed, to - from, p->n, p->k,
                             p->a + (size_t)from * p->a_stride, p->a_stride, p->b, p->b_stride,
                             p->beta, p->c + (size_t)from * p->c_stride, p->c_stride);
}

static void cpu_gemm(void *state, bool a_transposed, bool b_transposed, uint32_t m, uint32_t n,
                     uint32_t k, const float *a, uint32_t a_stride, const float *b,
                     uint32_t b_stride, float beta, float *c, uint32_t c_stride)
{
    const ew_cpu *cpu = state;
    if (m == 0 || n == 0)
        return;
    if (k == 0) {
        scale_matrix(m, n, beta, c, c_stride);
    } else if (k == 1 && !b_transposed) {
        const uint32_t step = a_transposed ? 1 : a_stride;
        cpu->kernels->outer(m, n, a, step, b, beta, c, c_stride);
    } else if (cpu->is_steady && !a_transposed) {
        const product p = {.cpu = cpu,
                           .b_transposed = b_transposed,
                           .n = n,
                           .k = k,
                           .a = a,
                           .b = b,
                           .a_stride = a_stride,
                           .b_stride = b_stride,
                           .c_stride = c_stride,
                           .beta = beta,
                           .c = c};
        ew_cpu_split(cpu, m, (uint64_t)n * k / 8 + 1, multiply_rows, &p);
    } else if (n == 1) {
        const uint32_t step = b_transposed ? 1 : b_stride;
        const uint32_t rows = a_transposed ? k : m, columns = a_transposed ? m : k; // as a stands
        cpu->blas.sgemv(EW_BLAS_ROW_MAJOR, blas_trans(a_transposed), (int)rows, (int)columns, 1, a,
                        (int)a_stride, b, (int)step, beta, c, (int)c_stride);
    } else {
        product p = {.cpu = cpu,
                     .a_transposed = a_transposed,
                     .b_transposed = b_transposed,
                     .m = m,
                     .n = n,
                     .k = k,
                     .a = a,
                     .a_stride = a_stride,
                     .b = b,
                     .b_stride = b_stride,
                     .beta = beta,
                     .c = c,
                     .c_stride = c_stride};
        multiply(&p);
    }
}

static void activate_rows(const void *call, uint32_t from, uint32_t to)
{
    const layer *c = call;
    c->cpu->kernels->activate(c->activation, to - from, c->count, c->weights,
                              c->out + (size_t)from * c->stride, c->stride);
}

static void cpu_activate(void *state, ew_activation activation, uint32_t row_count,
                         uint32_t column_count, const float *bias, float *values, uint32_t stride)
{
    const layer call = {.cpu = state,
                        .activation = activation,
                        .count = column_count,
                        .weights = bias,
                        .out = values,
                        .stride = stride};
    ew_cpu_split(state, row_count, column_count, activate_rows, &call);
}

static void activate_back_columns(const void *call, uint32_t from, uint32_t to)
{
    const layer *c = call;
    c->cpu->kernels->activate_back(c->activation, c->count, to - from, c->values + from,
                                   c->gradients + from, c->stride, c->out + from);
}

static void cpu_activate_back(void *state, ew_activation activation, uint32_t row_count,
                              uint32_t column_count, const float *values, float *gradients,
                              uint32_t stride, float *bias_gradients)
{
    const layer call = {.cpu = state,
                        .activation = activation,
                        .count = row_count,
                        .values = values,
                        .gradients = gradients,
                        .stride = stride,
                        .out = bias_gradients};
    ew_cpu_split(state, column_count, UINT64_C(2) * row_count, activate_back_columns, &call);
}

// w (log(1 + e^-|z|) + max(z, 0)) - y z: neither overflows nor cancels.
static double weighted_loss(uint32_t count, const float *logits, const float *labels,
                            const float *weights, float scale, float *gradients)
{
    double sum = 0;
    for (uint32_t i = 0; i < count; i++) {
        const double z = logits[i], w = weights[i], y = labels[i], small = exp(-fabs(z));
        const double prediction = (z >= 0 ? 1 : small) / (1 + small);
        gradients[i] = (float)((w * prediction - y) * scale);
        sum += w * log1p(small) + ((z > 0 ? w * z : 0) - y * z);
    }
    return sum;
}

static void cpu_loss(void *state, uint32_t count, const float *logits, const float *labels,
                     const float *weights, float scale, float *predictions, float *gradients,
                     double *loss)
{
    (void)state;
    double sum = 0;
    for (uint32_t i = 0; i < count; i++) {
        double z = logits[i], small = exp(-fabs(z));
        double prediction = (z >= 0 ? 1 : small) / (1 + small);
        predictions[i] = (float)prediction;
        if (!labels)
            continue;
        gradients[i] = (float)((prediction - labels[i]) * scale);
        sum += log1p(small) + ((z > 0 ? z : 0) - labels[i] * z); // the small term last
    }
    if (labels && weights)
        sum = weighted_loss(count, logits, labels, weights, scale, gradients);
    if (labels)
        *loss = sum;
}

// log of the sum of e^z. The largest logit is taken out, so that nothing overflows.
static double log_sum(uint32_t class_count, const float *logits)
{
    double largest = logits[0], sum = 0;
    for (uint32_t c = 1; c < class_count; c++)
        largest = logits[c] > largest ? logits[c] : largest;
    for (uint32_t c = 0; c < class_count; c++)
        sum += exp(logits[c] - largest);
    return largest + log(sum);
}

static void cpu_classes(void *state, uint32_t sample_count, uint32_t class_count,
                        const float *logits, const float *labels, float scale, float *predictions,
                        float *gradients, double *loss)
{
    (void)state;
    double sum = 0;
    for (uint32_t i = 0; i < sample_count; i++) {
        const size_t first = (size_t)i * class_count;
        const double all = log_sum(class_count, logits + first);
        const uint32_t own = labels ? (uint32_t)labels[i] : class_count;
        for (uint32_t c = 0; c < class_count; c++) {
            const double prediction = exp(logits[first + c] - all);
            predictions[first + c] = (float)prediction;
            if (labels)
                gradients[first + c] = (float)((prediction - (c == own)) * scale);
        }
        sum += labels ? all - logits[first + own] : 0;
    }
    if (labels)
        *loss = sum;
}

#define SQUARES_CHUNKS 1024u // whose sums wait on the stack

typedef struct {
    const rt_optimizer_config *optimizer;
    rt_optimizer_terms terms;
    uint32_t count;
    float *values, *state;
    const float *gradients;
    uint32_t first_chunk;
    double *squares; // of the chunks from there on
} optimizer_step;

static void square_chunks(const void *call, uint32_t from, uint32_t to)
{
    const optimizer_step *c = call;
    for (uint32_t k = from; k < to; k++)
        c->squares[k] = rt_optimizer_chunk_squares(c->terms, c->count, c->first_chunk + k,
                                                   c->values, c->gradients);
}

// A float of the state is the whole block's: what every value's step needs of it comes first.
static void settle(const ew_cpu *cpu, optimizer_step *call)
{
    const uint32_t chunk_count = rt_optimizer_chunk_count(call->count);
    double squares[SQUARES_CHUNKS], sum = 0;
    call->squares = squares;
    for (uint32_t first = 0; first < chunk_count; first += SQUARES_CHUNKS) {
        const uint32_t some = (uint32_t)rt_min_u64(chunk_count - first, SQUARES_CHUNKS);
        call->first_chunk = first;
        ew_cpu_split(cpu, some, 2 * RT_OPTIMIZER_SQUARES_CHUNK, square_chunks, call);
        for (uint32_t k = 0; k < some; k++)
            sum += squares[k];
    }
    call->terms = rt_optimizer_settle(call->optimizer, call->terms, call->count, sum, call->state);
}

static void step_range(const void *call, uint32_t from, uint32_t to)
{
    const optimizer_step *c = call;
    rt_optimizer_step_range(c->optimizer, c->terms, c->count, from, to, c->values, c->state,
                            c->gradients);
}

static void cpu_step(void *state, const rt_optimizer_config *optimizer, uint32_t count,
                     uint64_t step, float *values, float *optimizer_state, const float *gradients)
{
    optimizer_step call = {.optimizer = optimizer,
                           .terms = rt_optimizer_clipped_terms(optimizer, count, step, gradients),
                           .count = count,
                           .values = values,
                           .state = optimizer_state,
                           .gradients = gradients};
    if (!rt_optimizer_is_elementwise(optimizer))
        settle(state, &call);
    ew_cpu_split(state, count, 4, step_range, &call);
}

const ew_layer_ops ew_cpu_layers = {
    .index = cpu_index,
    .pool = cpu_pool,
    .wide = cpu_wide,
    .wide_back = cpu_wide_back,
    .rows_back = cpu_rows_back,
    .gemm = cpu_gemm,
    .activate = cpu_activate,
    .activate_back = cpu_activate_back,
    .loss = cpu_loss,
    .classes = cpu_classes,
    .step = cpu_step,
};
