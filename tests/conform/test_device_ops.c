// Memory, rows and layers of every device against naive ones in double precision, on odd sizes,
// with guard zones around what is written (bounds: device_cases.h).
#include "runtime/config/rt_optimizers.h"
#include "tests/conform/device_cases.h"

#define FLAT_MAX 18001u

// A random micro-batch of look-ups with all buffers of ew_lookups on the device.
typedef struct {
    ew_lookups host, on_device; // host: the same with host pointers
    uint32_t slot_count;
    buffer rows, bags, slots, slab, starts, samples, fields, scalars;
} look_ups;

typedef enum { ONE, BAGS_SUM, BAGS_MEAN } bag_style;

static void fill_lookups(look_ups *l, uint32_t rows_per_field, uint32_t *rows, uint32_t *bags,
                         bag_style style, rt_random *random)
{
    ew_lookups *host = &l->host;
    uint32_t numbers[FLAT_MAX], count = 0; // of the rows, given in the order of first use
    memset(numbers, 0xff, sizeof numbers);
    for (uint32_t bag = 0; bag < host->sample_count * host->field_count; bag++) {
        uint32_t size = style == ONE ? 1 : rt_random_below(random, 4);
        bags[bag] = count;
        for (uint32_t k = 0; k < size; k++) {
            uint32_t id =
                bag % host->field_count * rows_per_field + rt_random_below(random, rows_per_field);
            if (numbers[id] == UINT32_MAX)
                numbers[id] = host->row_count++;
            rows[count++] = numbers[id];
        }
        bags[bag + 1] = count;
    }
    host->lookup_count = count;
}

static look_ups look_ups_create(const ew_device *device, uint32_t samples, uint32_t fields,
                                uint32_t dim, uint32_t rows_per_field, bag_style style,
                                rt_random *random)
{
    look_ups l = {.host = {.sample_count = samples,
                           .field_count = fields,
                           .dim = dim,
                           .row_stride = dim % 16 == 0 ? dim + 16 : dim + 3,
                           .pooling = style == BAGS_MEAN ? RT_POOL_MEAN : RT_POOL_SUM}};
    uint32_t rows[4 * FLAT_MAX], bags[FLAT_MAX] = {0}, slots[FLAT_MAX];
    fill_lookups(&l, rows_per_field, rows, bags, style, random);
    l.slot_count = 2 * l.host.row_count + 1;
    for (uint32_t r = 0; r < l.host.row_count; r++)
        slots[r] = 2 * (l.host.row_count - r) - 1;
    l.rows = buffer_of(device, rows, l.host.lookup_count);
    l.bags = buffer_of(device, bags, samples * fields + 1);
    l.slots = buffer_of(device, slots, l.host.row_count);
    l.slab = buffer_create(device, l.slot_count * l.host.row_stride, random);
    l.starts = buffer_create(device, l.host.row_count + 1, random);
    l.samples = buffer_create(device, l.host.lookup_count, random);
    l.fields = buffer_create(device, l.host.row_count, random);
    l.scalars = buffer_create(device, l.host.row_count, random);
    l.on_device = l.host;
    l.host.lookup_rows = (const uint32_t *)l.rows.values;
    l.host.bag_offsets = (const uint32_t *)l.bags.values;
    l.host.row_slots = (const uint32_t *)l.slots.values;
    l.host.slab = l.slab.values;
    l.on_device.lookup_rows = (const uint32_t *)l.rows.device_values;
    l.on_device.bag_offsets = style == ONE ? NULL : (const uint32_t *)l.bags.device_values;
    l.on_device.row_slots = (const uint32_t *)l.slots.device_values;
    l.on_device.slab = l.slab.device_values;
    l.on_device.row_starts = (uint32_t *)l.starts.device_values;
    l.on_device.row_samples = (uint32_t *)l.samples.device_values;
    l.on_device.row_fields = (uint32_t *)l.fields.device_values;
    l.on_device.row_scalars = l.scalars.device_values;
    device->layers->index(device->state, &l.on_device);
    return l;
}

static void look_ups_destroy(look_ups *l)
{
    buffer *all[] = {&l->rows,   &l->bags,    &l->slots,  &l->slab,
                     &l->starts, &l->samples, &l->fields, &l->scalars};
    for (size_t i = 0; i < RT_COUNT_OF(all); i++)
        buffer_destroy(all[i]);
}

static const float *row_of(const look_ups *l, uint32_t row)
{
    return l->host.slab + (size_t)l->host.row_slots[row] * l->host.row_stride;
}

static double bag_weight(const look_ups *l, uint32_t bag)
{
    uint32_t size = l->host.bag_offsets[bag + 1] - l->host.bag_offsets[bag];
    return l->host.pooling == RT_POOL_MEAN && size > 0 ? 1.0 / size : 1;
}

static void for_every_look_ups(const ew_device *device,
                               void (*check)(const ew_device *device, look_ups *l))
{
    static const struct {
        uint32_t samples, fields, dim, rows_per_field;
        bag_style style;
    } cases[] = {
        {1, 1, 1, 1, ONE},         {7, 3, 5, 4, ONE},      {33, 4, 16, 9, ONE},
        {20, 5, 17, 40, ONE},      {13, 2, 100, 3, ONE},   {64, 2, 48, 1, ONE},
        {300, 2, 16, 3, ONE},      {9, 3, 7, 5, BAGS_SUM}, {31, 4, 16, 12, BAGS_SUM},
        {17, 3, 33, 6, BAGS_MEAN}, {0, 3, 8, 5, ONE},      {0, 3, 8, 5, BAGS_MEAN},
    };
    rt_random random = {20};
    for (size_t i = 0; i < RT_COUNT_OF(cases); i++) {
        look_ups l = look_ups_create(device, cases[i].samples, cases[i].fields, cases[i].dim,
                                     cases[i].rows_per_field, cases[i].style, &random);
        check(device, &l);
        look_ups_destroy(&l);
    }
}

static void check_index(const ew_device *device, look_ups *l)
{
    (void)device;
    download(&l->starts);
    download(&l->samples);
    download(&l->fields);
    const uint32_t *starts = (const uint32_t *)l->starts.values;
    const uint32_t *samples = (const uint32_t *)l->samples.values;
    const uint32_t *fields = (const uint32_t *)l->fields.values;
    uint32_t at = 0;
    for (uint32_t r = 0; r < l->host.row_count; r++) {
        assert_int_equal(starts[r], at);
        for (uint32_t bag = 0; bag < l->host.sample_count * l->host.field_count; bag++)
            for (uint32_t k = l->host.bag_offsets[bag]; k < l->host.bag_offsets[bag + 1]; k++)
                if (l->host.lookup_rows[k] == r) {
                    assert_int_equal(samples[at++], bag / l->host.field_count);
                    assert_int_equal(fields[r], bag % l->host.field_count);
                }
    }
    assert_int_equal(starts[l->host.row_count], at);
    assert_int_equal(at, l->host.lookup_count);
}

static void index_sorts_look_ups_by_row_on(const ew_device *device)
{
    for_every_look_ups(device, check_index);
}

// More samples than are counted at a time, rows that thousands of them have, and some that have a
// row several times.
static void index_sorts_popular_rows_on(const ew_device *device)
{
    rt_random random = {21};
    const uint32_t slowness = test_device_slowness();
    look_ups one = look_ups_create(device, 9000 / slowness, 2, 4, 2, ONE, &random);
    check_index(device, &one);
    look_ups_destroy(&one);
    look_ups bags = look_ups_create(device, 4500 / slowness, 1, 4, 3, BAGS_SUM, &random);
    check_index(device, &bags);
    look_ups_destroy(&bags);
}

static void check_pool(const ew_device *device, look_ups *l)
{
    const uint32_t dense_count = 3, dim = l->host.dim, fields = l->host.field_count;
    const uint32_t stride = fields * dim + dense_count + (dim % 16 == 0 ? 1 : 2);
    rt_random random = {5};
    buffer dense = buffer_create(device, l->host.sample_count * dense_count, &random);
    buffer out = buffer_create(device, l->host.sample_count * stride, &random);
    float *before = calloc(out.count + 1, sizeof *before);
    memcpy(before, out.values, out.count * sizeof *before);
    device->layers->pool(device->state, &l->on_device, dense.device_values, dense_count,
                         out.device_values, stride);
    download(&out);
    for (uint32_t i = 0; i < out.count; i++) {
        uint32_t sample = i / stride, column = i % stride, bag = sample * fields + column / dim;
        if (column >= fields * dim + dense_count) {
            assert_true(out.values[i] == before[i]); // between the rows: untouched
        } else if (column >= fields * dim) {
            assert_true(out.values[i] ==
                        dense.values[sample * dense_count + column - fields * dim]);
        } else {
            double sum = 0, magnitude = 0, weight = bag_weight(l, bag);
            for (uint32_t k = l->host.bag_offsets[bag]; k < l->host.bag_offsets[bag + 1]; k++) {
                double value = row_of(l, l->host.lookup_rows[k])[column % dim];
                sum += weight * value;
                magnitude += fabs(weight * value);
            }
            bool copy = !l->on_device.bag_offsets;
            expect(out.values[i], sum, copy ? 0 : magnitude, 4, "pooled", i);
        }
    }
    free(before);
    buffer_destroy(&dense);
    buffer_destroy(&out);
}

static void pool_gathers_and_pools_on(const ew_device *device)
{
    for_every_look_ups(device, check_pool);
}

static void check_wide(const ew_device *device, look_ups *l)
{
    const uint32_t dim = l->host.dim, fields = l->host.field_count, samples = l->host.sample_count;
    rt_random random = {6};
    buffer weights = buffer_create(device, fields * dim, &random);
    buffer logits = buffer_create(device, samples, &random);
    float *before = calloc(samples + 1, sizeof *before);
    memcpy(before, logits.values, samples * sizeof *before);
    device->layers->wide(device->state, &l->on_device, weights.device_values, logits.device_values);
    download(&logits);
    for (uint32_t i = 0; i < samples; i++) {
        double sum = before[i], magnitude = fabs(sum);
        uint32_t n = 1;
        for (uint32_t bag = i * fields; bag < (i + 1) * fields; bag++)
            for (uint32_t k = l->host.bag_offsets[bag]; k < l->host.bag_offsets[bag + 1]; k++)
                for (uint32_t d = 0; d < dim; d++, n++) {
                    double product = bag_weight(l, bag) * weights.values[bag % fields * dim + d] *
                                     row_of(l, l->host.lookup_rows[k])[d];
                    sum += product;
                    magnitude += fabs(product);
                }
        expect(logits.values[i], sum, magnitude, n, "logit", i);
    }
    free(before);
    buffer_destroy(&weights);
    buffer_destroy(&logits);
}

static void wide_adds_weighted_embeddings_on(const ew_device *device)
{
    for_every_look_ups(device, check_wide);
}

// What wide_back must give: per row the summed logit gradients, and their magnitudes.
static void naive_scalars(const look_ups *l, const float *logit_gradients, double *sums,
                          double *magnitudes)
{
    memset(sums, 0, l->host.row_count * sizeof *sums);
    memset(magnitudes, 0, l->host.row_count * sizeof *magnitudes);
    for (uint32_t bag = 0; bag < l->host.sample_count * l->host.field_count; bag++)
        for (uint32_t k = l->host.bag_offsets[bag]; k < l->host.bag_offsets[bag + 1]; k++) {
            double one = bag_weight(l, bag) * logit_gradients[bag / l->host.field_count];
            sums[l->host.lookup_rows[k]] += one;
            magnitudes[l->host.lookup_rows[k]] += fabs(one);
        }
}

static void check_wide_back(const ew_device *device, look_ups *l)
{
    const uint32_t dim = l->host.dim, fields = l->host.field_count;
    double sums[FLAT_MAX], magnitudes[FLAT_MAX], weights[FLAT_MAX] = {0}, sizes[FLAT_MAX] = {0};
    rt_random random = {7};
    buffer logit_gradients = buffer_create(device, l->host.sample_count, &random);
    buffer weight_gradients = buffer_create(device, fields * dim, &random);
    device->layers->wide_back(device->state, &l->on_device, logit_gradients.device_values,
                              weight_gradients.device_values);
    download(&weight_gradients);
    download(&l->scalars);
    naive_scalars(l, logit_gradients.values, sums, magnitudes);
    const uint32_t *row_fields = (const uint32_t *)l->fields.values;
    download(&l->fields);
    for (uint32_t r = 0; r < l->host.row_count; r++) {
        expect(l->scalars.values[r], sums[r], magnitudes[r], l->host.sample_count + 1, "scalar", r);
        for (uint32_t d = 0; d < dim; d++) {
            weights[row_fields[r] * dim + d] += sums[r] * row_of(l, r)[d];
            sizes[row_fields[r] * dim + d] += magnitudes[r] * fabsf(row_of(l, r)[d]);
        }
    }
    for (uint32_t k = 0; k < fields * dim; k++)
        expect(weight_gradients.values[k], weights[k], sizes[k],
               l->host.sample_count + l->host.row_count + 2, "weight gradient", k);
    buffer_destroy(&logit_gradients);
    buffer_destroy(&weight_gradients);
}

static void wide_back_sums_by_row_on(const ew_device *device)
{
    for_every_look_ups(device, check_wide_back);
}

static void check_rows_back_with(const ew_device *device, look_ups *l, bool with_pooled,
                                 bool with_weights)
{
    const uint32_t dim = l->host.dim, fields = l->host.field_count, rows = l->host.row_count;
    const uint32_t stride = fields * dim + (dim % 16 == 0 ? 4 : 5);
    rt_random random = {8};
    buffer pooled = buffer_create(device, l->host.sample_count * stride, &random);
    buffer weights = buffer_create(device, fields * dim, &random);
    buffer gradients = buffer_create(device, rows * dim, &random);
    for (uint32_t r = 0; r < rows; r++)
        l->scalars.values[r] = random_float(&random);
    upload(&l->scalars);
    device->layers->rows_back(device->state, &l->on_device,
                              with_pooled ? pooled.device_values : NULL, stride,
                              with_weights ? weights.device_values : NULL, gradients.device_values);
    download(&gradients);
    double *sums = calloc(2 * (rows * dim + 1), sizeof *sums), *sizes = sums + rows * dim;
    const uint32_t *row_fields = (const uint32_t *)l->fields.values;
    download(&l->fields);
    for (uint32_t k = 0; k < rows * dim && with_weights; k++) {
        sums[k] = (double)l->scalars.values[k / dim] *
                  weights.values[row_fields[k / dim] * dim + k % dim];
        sizes[k] = fabs(sums[k]);
    }
    for (uint32_t bag = 0; bag < l->host.sample_count * fields && with_pooled; bag++)
        for (uint32_t at = l->host.bag_offsets[bag]; at < l->host.bag_offsets[bag + 1]; at++)
            for (uint32_t d = 0; d < dim; d++) {
                double one = bag_weight(l, bag) *
                             pooled.values[bag / fields * stride + bag % fields * dim + d];
                sums[l->host.lookup_rows[at] * dim + d] += one;
                sizes[l->host.lookup_rows[at] * dim + d] += fabs(one);
            }
    for (uint32_t k = 0; k < rows * dim; k++)
        expect(gradients.values[k], sums[k], sizes[k], l->host.sample_count + 2, "row gradient", k);
    free(sums);
    buffer_destroy(&pooled);
    buffer_destroy(&weights);
    buffer_destroy(&gradients);
}

static void check_rows_back(const ew_device *device, look_ups *l)
{
    for (uint32_t with = 0; with < 4; with++)
        check_rows_back_with(device, l, with & 1, with & 2);
}

static void rows_back_sums_by_row_on(const ew_device *device)
{
    for_every_look_ups(device, check_rows_back);
}

static void check_gemm(const ew_device *device, uint32_t m, uint32_t n, uint32_t k, float beta,
                       bool a_transposed, bool b_transposed)
{
    rt_random random = {m * 1000003 + n * 1009 + k};
    uint32_t a_stride = (a_transposed ? m : k) + 3, b_stride = (b_transposed ? k : n) + 2;
    uint32_t c_stride = n + 1;
    buffer a = buffer_create(device, (a_transposed ? k : m) * a_stride, &random);
    buffer b = buffer_create(device, (b_transposed ? n : k) * b_stride, &random);
    buffer c = buffer_create(device, m * c_stride, &random);
    if (beta == 0) // what c holds before does not matter
        for (uint32_t i = 0; i < c.count; i++)
            c.values[i] = i % c_stride < n ? NAN : c.values[i];
    upload(&c);
    float *before = calloc(c.count + 1, sizeof *before);
    memcpy(before, c.values, c.count * sizeof *before);
    device->layers->gemm(device->state, a_transposed, b_transposed, m, n, k, a.device_values,
                         a_stride, b.device_values, b_stride, beta, c.device_values, c_stride);
    download(&c);
    for (uint32_t at = 0; at < c.count; at++) {
        uint32_t i = at / c_stride, j = at % c_stride;
        if (j == n) {
            assert_true(c.values[at] == before[at]);
            continue;
        }
        double sum = beta == 0 ? 0 : (double)beta * before[at], magnitude = fabs(sum);
        for (uint32_t l = 0; l < k; l++) {
            double product = (double)a.values[a_transposed ? l * a_stride + i : i * a_stride + l] *
                             b.values[b_transposed ? j * b_stride + l : l * b_stride + j];
            sum += product;
            magnitude += fabs(product);
        }
        expect(c.values[at], sum, magnitude, k + 1, "product", at);
    }
    free(before);
    buffer_destroy(&a);
    buffer_destroy(&b);
    buffer_destroy(&c);
}

static void gemm_multiplies_on(const ew_device *device)
{
    static const uint32_t sizes[][3] = {{1, 1, 1},   {5, 7, 3},     {16, 16, 16}, {33, 17, 70},
                                        {64, 1, 29}, {1, 31, 9},    {12, 37, 1},  {37, 12, 1},
                                        {9, 1, 1},   {3, 5, 0},     {4, 1, 0},    {0, 4, 3},
                                        {4, 0, 3},   {129, 65, 130}};
    static const float betas[] = {0, 1, -0.5f};
    for (size_t i = 0; i < RT_COUNT_OF(sizes); i++)
        for (size_t b = 0; b < RT_COUNT_OF(betas); b++)
            for (uint32_t t = 0; t < 4; t++)
                check_gemm(device, sizes[i][0], sizes[i][1], sizes[i][2], betas[b], t & 1, t & 2);
}

static void check_activate(const ew_device *device, ew_activation activation, uint32_t rows,
                           uint32_t columns, uint32_t stride)
{
    rt_random random = {rows + columns};
    buffer bias = buffer_create(device, columns, &random);
    buffer values = buffer_create(device, rows * stride, &random);
    buffer gradients = buffer_create(device, rows * stride, &random);
    buffer bias_gradients = buffer_create(device, columns, &random);
    float *before = calloc(2 * values.count + 2, sizeof *before);
    float *gradients_before = before + values.count;
    if (values.count > 1) {
        values.values[0] = NAN;
        gradients.values[0] = 0; // keeps the sums finite
        values.values[stride] = -bias.values[0];
    }
    upload(&values);
    upload(&gradients);
    memcpy(before, values.values, values.count * sizeof *before);
    memcpy(gradients_before, gradients.values, values.count * sizeof *before);
    device->layers->activate(device->state, activation, rows, columns, bias.device_values,
                             values.device_values, stride);
    device->layers->activate_back(device->state, activation, rows, columns, values.device_values,
                                  gradients.device_values, stride, bias_gradients.device_values);
    download(&values);
    download(&gradients);
    download(&bias_gradients);
    for (uint32_t j = 0; j < stride; j++) {
        double sum = 0, magnitude = 0;
        for (uint32_t at = j; at < values.count; at += stride) {
            float value = before[at] + (j < columns ? bias.values[j] : 0);
            bool off = j < columns && activation == EW_RELU && value <= 0;
            float gradient = off ? 0 : gradients_before[at];
            if (isnan(value))
                assert_true(isnan(values.values[at]));
            else
                assert_true(values.values[at] == (off ? 0 : value));
            assert_true(gradients.values[at] == gradient);
            sum += gradient;
            magnitude += fabsf(gradient);
        }
        if (j < columns)
            expect(bias_gradients.values[j], sum, magnitude, rows, "bias gradient", j);
    }
    free(before);
    buffer_destroy(&bias);
    buffer_destroy(&values);
    buffer_destroy(&gradients);
    buffer_destroy(&bias_gradients);
}

static void activate_and_back_on(const ew_device *device)
{
    for (uint32_t rows = 2; rows < 100; rows += 31)
        for (uint32_t columns = 1; columns < 90; columns += 17) {
            check_activate(device, EW_RELU, rows, columns, columns);
            check_activate(device, EW_RELU, rows, columns, columns + 5);
            check_activate(device, EW_IDENTITY, rows, columns, columns + 1);
        }
    check_activate(device, EW_RELU, 0, 9, 16);
}

// What a loss reads and writes.
typedef struct {
    buffer logits, labels, predictions, gradients, loss;
} loss_buffers;

// output_count logits, and as many predictions and gradients, of sample_count samples.
static loss_buffers loss_buffers_create(const ew_device *device, uint32_t sample_count,
                                        uint32_t output_count, uint64_t seed)
{
    rt_random random = {seed};
    return (loss_buffers){.logits = buffer_create(device, output_count, &random),
                          .labels = buffer_create(device, sample_count, &random),
                          .predictions = buffer_create(device, output_count, &random),
                          .gradients = buffer_create(device, output_count, &random),
                          .loss = buffer_create(device, 2, &random)};
}

static loss_buffers loss_buffers_of(const ew_device *device, const float *logits,
                                    uint32_t output_count, const float *labels,
                                    uint32_t sample_count)
{
    loss_buffers b = loss_buffers_create(device, sample_count, output_count, 3);
    memcpy(b.logits.values, logits, output_count * sizeof *logits);
    memcpy(b.labels.values, labels, sample_count * sizeof *labels);
    upload(&b.logits);
    upload(&b.labels);
    return b;
}

static void loss_buffers_destroy(loss_buffers *b)
{
    buffer *all[] = {&b->logits, &b->labels, &b->predictions, &b->gradients, &b->loss};
    for (size_t i = 0; i < RT_COUNT_OF(all); i++)
        buffer_destroy(all[i]);
}

// The loss; predictions and gradients are fetched, too.
static double fetch_loss(loss_buffers *b)
{
    double loss;
    download(&b->predictions);
    download(&b->gradients);
    download(&b->loss);
    memcpy(&loss, b->loss.values, sizeof loss);
    return loss;
}

// The log loss of the first ones, with a scale of 1/8. weights: of the device, NULL: none.
static double log_loss(loss_buffers *b, uint32_t count, const float *weights)
{
    const ew_device *device = b->logits.device;
    device->layers->loss(device->state, count, b->logits.device_values, b->labels.device_values,
                         weights, 0.125f, b->predictions.device_values, b->gradients.device_values,
                         (double *)(void *)b->loss.device_values);
    return fetch_loss(b);
}

static double class_loss(loss_buffers *b, uint32_t count, uint32_t class_count)
{
    const ew_device *device = b->logits.device;
    device->layers->classes(device->state, count, class_count, b->logits.device_values,
                            b->labels.device_values, 0.125f, b->predictions.device_values,
                            b->gradients.device_values, (double *)(void *)b->loss.device_values);
    return fetch_loss(b);
}

// Weights as rt_batch.h has them: a sample, a positive, none at all, a correction of weight 0, and
// 1 as if there were none.
static void weighted_loss_is_exact_on(const ew_device *device)
{
    const float logits[] = {0.5f, -2, 3, -0.25f, 20, 1, -90};
    const float weights[] = {2.5f, 3, 0, 0, 0.5f, 1, 1};
    const float labels[] = {0, 3, 0, 1, 0, 1, 0};
    const uint32_t count = RT_COUNT_OF(logits);
    loss_buffers b = loss_buffers_of(device, logits, count, labels, count);
    buffer w = buffer_of(device, weights, count);
    const double got = log_loss(&b, count, w.device_values);
    double sum = 0;
    for (uint32_t i = 0; i < count; i++) {
        const long double e = expl(-(long double)logits[i]), p = 1 / (1 + e);
        // What is of label 1 and what of label 0, each with its own loss.
        sum += (double)(labels[i] * log1pl(e) + (weights[i] - labels[i]) * (log1pl(e) + logits[i]));
        const double gradient =
            0.125 * (double)(labels[i] * (p - 1) + (weights[i] - labels[i]) * p);
        expect(b.predictions.values[i], (double)p, (double)p, 0, "prediction", i);
        expect(b.gradients.values[i], gradient, fmax(fabs(gradient), 1e-20), 0, "gradient", i);
    }
    test_close(got, sum, 1e-14 * 30, 0, "loss");
    buffer_destroy(&w);
    loss_buffers_destroy(&b);
}

static void loss_is_exact_on(const ew_device *device)
{
    const float logits[] = {0, 1, -1, 20, -20, 90, -90, 1e30f, -1e30f, 1e-6f, 0.5f};
    const float labels[] = {1, 0, 1, 1, 1, 0, 1, 1, 0, 1, 0};
    const uint32_t count = RT_COUNT_OF(logits);
    loss_buffers b = loss_buffers_of(device, logits, count, labels, count);
    const double got = log_loss(&b, count, NULL);
    double sum = 0;
    for (uint32_t i = 0; i < count; i++) {
        long double e = expl(-(long double)logits[i]); // wide enough for the small ones
        long double p = 1 / (1 + e), loss_i = labels[i] > 0 ? log1pl(e) : log1pl(e) + logits[i];
        if (fabsf(logits[i]) > 1000)
            p = logits[i] > 0, loss_i = 0;
        sum += (double)loss_i;
        expect(b.predictions.values[i], (double)p, (double)p, 0, "prediction", i);
        double gradient = 0.125 * (double)(p - labels[i]);
        expect(b.gradients.values[i], gradient, fmax(fabs(gradient), 1e-20), 0, "gradient", i);
    }
    test_close(got, sum, 1e-14 * count, 0, "loss");
    // Alone, so that no large term hides it: log(1 + e^-40).
    b.logits.values[0] = 40;
    upload(&b.logits);
    test_close(log_loss(&b, 1, NULL), 4.248354255291589e-18, 1e-14, 0,
               "loss of a confident prediction");
    device->layers->loss(device->state, count, b.logits.device_values, NULL, NULL, 0.125f,
                         b.predictions.device_values, NULL, NULL);
    assert_true(log_loss(&b, 0, NULL) == 0);
    loss_buffers_destroy(&b);
}

static void check_classes(loss_buffers *b, uint32_t sample_count, uint32_t class_count)
{
    const double got = class_loss(b, sample_count, class_count);
    double sum = 0;
    for (uint32_t i = 0; i < sample_count; i++) {
        const uint32_t first = i * class_count, label = (uint32_t)b->labels.values[i];
        const float *own = b->logits.values + first;
        long double largest = own[0], all = 0; // taken out, so that nothing overflows
        for (uint32_t c = 1; c < class_count; c++)
            largest = fmaxl(largest, own[c]);
        for (uint32_t c = 0; c < class_count; c++)
            all += expl(own[c] - largest);
        sum += (double)(logl(all) + largest - own[label]);
        for (uint32_t c = 0; c < class_count; c++) {
            const double p = (double)(expl(own[c] - largest) / all);
            expect(b->predictions.values[first + c], p, fmax(p, 1e-20), 0, "prediction", first + c);
            expect(b->gradients.values[first + c], 0.125 * (p - (c == label)), 0.125, 0, "gradient",
                   first + c);
        }
    }
    test_close(got, sum, 1e-12, 0, "loss");
}

// Logits that overflow where the largest is not taken out, equal ones, and one far above the
// others.
static void classes_are_exact_on(const ew_device *device)
{
    enum { CLASSES = 3, COUNT = 5 };
    const float logits[COUNT * CLASSES] = {0, 1,  -1,   800,   801,   799,    2, 2,
                                           2, 90, -0.5, -1000, 1e30f, -1e30f, 0};
    const float labels[COUNT] = {1, 0, 2, 0, 0};
    loss_buffers b = loss_buffers_of(device, logits, COUNT * CLASSES, labels, COUNT);
    check_classes(&b, COUNT, CLASSES);
    device->layers->classes(device->state, COUNT, CLASSES, b.logits.device_values, NULL, 0.125f,
                            b.predictions.device_values, NULL, NULL);
    assert_true(class_loss(&b, 0, CLASSES) == 0);
    loss_buffers_destroy(&b);
}

// As many classes as a model may have, and more samples than a block has threads.
static void many_classes_are_exact_on(const ew_device *device)
{
    enum { CLASSES = RT_CLASSES_MAX, COUNT = 521 };
    loss_buffers b = loss_buffers_create(device, COUNT, COUNT * CLASSES, 6);
    for (uint32_t i = 0; i < COUNT; i++)
        b.labels.values[i] = (float)((i * 511) % CLASSES); // both ends are among them
    b.labels.values[1] = CLASSES - 1;
    upload(&b.labels);
    check_classes(&b, COUNT, CLASSES);
    loss_buffers_destroy(&b);
}

// Row operations and the dense step against rt_optimizer on the host, bit for bit.
static rt_optimizer_config optimizer_of(rt_optimizer_kind kind, float clip_norm)
{
    return (rt_optimizer_config){.kind = kind,
                                 .learning_rate = 0.1f,
                                 .epsilon = 1e-8f,
                                 .initial_accumulator = 0.1f,
                                 .momentum = 0.9f,
                                 .beta1 = 0.9f,
                                 .beta2 = 0.99f,
                                 .l1 = 0.01f,
                                 .l2 = 0.1f,
                                 .beta = 1,
                                 .clip_norm = clip_norm,
                                 .warmup_iterations = 4,
                                 .decay = RT_DECAY_COSINE,
                                 .decay_iterations = 9,
                                 .decay_floor = 0.1f};
}

static void check_rows(const ew_device *device, rt_optimizer_kind kind, uint32_t dim,
                       float clip_norm)
{
    const rt_optimizer_config optimizer = optimizer_of(kind, clip_norm);
    const uint32_t count = 9, state_floats = rt_optimizer_state_floats(&optimizer, dim);
    const uint32_t floats = dim + state_floats, stride = floats + (dim == 16 ? 4 : 2);
    uint32_t slots[9], rows[5] = {8, 0, 3, 4, 7}, some_slots[5];
    uint64_t keys[9];
    rt_random random = {kind + dim};
    for (uint32_t i = 0; i < count; i++) {
        slots[i] = 17 - 2 * i;
        keys[i] = rt_random_u64(&random);
    }
    for (uint32_t i = 0; i < 5; i++)
        some_slots[i] = slots[rows[i]];
    buffer slab = buffer_create(device, 18 * stride, &random);
    buffer gradients = buffer_create(device, count * dim, &random);
    buffer packed = buffer_create(device, count * floats, &random);
    buffer d_slots = buffer_of(device, slots, count), d_keys = buffer_of(device, keys, 2 * count);
    buffer d_rows = buffer_of(device, rows, 5), d_some = buffer_of(device, some_slots, 5);
    float *want = calloc(slab.count, sizeof *want);
    memcpy(want, slab.values, slab.count * sizeof *want);
    device->ops->rows_init(device->state, &optimizer, dim, 77, 0.01f,
                           (const uint64_t *)(const void *)d_keys.device_values,
                           (const uint32_t *)d_slots.device_values, count, slab.device_values,
                           stride);
    device->ops->rows_step(device->state, &optimizer, dim, 3, slab.device_values, stride,
                           (const uint32_t *)d_some.device_values,
                           (const uint32_t *)d_rows.device_values, 5, gradients.device_values);
    device->ops->rows_get(device->state, slab.device_values, stride, floats,
                          (const uint32_t *)d_slots.device_values, count, packed.device_values);
    download(&slab);
    download(&packed);
    for (uint32_t i = 0; i < count; i++) {
        float *row = want + slots[i] * stride;
        rt_row_init(keys[i], 77, 0.01f, dim, row);
        rt_optimizer_init_state(&optimizer, dim, row + dim);
        for (uint32_t k = 0; k < 5; k++)
            if (rows[k] == i)
                rt_optimizer_step(&optimizer, dim, 3, row, row + dim, gradients.values + i * dim);
        assert_memory_equal(packed.values + i * floats, row, floats * sizeof *row);
    }
    assert_memory_equal(slab.values, want, slab.count * sizeof *want);
    for (uint32_t i = 0; i < count * floats; i++)
        packed.values[i] = random_float(&random);
    upload(&packed);
    device->ops->rows_put(device->state, slab.device_values, stride, floats,
                          (const uint32_t *)d_slots.device_values, count, packed.device_values);
    download(&slab);
    for (uint32_t i = 0; i < count; i++)
        memcpy(want + slots[i] * stride, packed.values + i * floats, floats * sizeof *want);
    assert_memory_equal(slab.values, want, slab.count * sizeof *want);
    free(want);
    buffer *all[] = {&slab, &gradients, &packed, &d_slots, &d_keys, &d_rows, &d_some};
    for (size_t i = 0; i < RT_COUNT_OF(all); i++)
        buffer_destroy(all[i]);
}

static void check_step(const ew_device *device, rt_optimizer_kind kind, uint32_t count,
                       float clip_norm)
{
    const rt_optimizer_config optimizer = optimizer_of(kind, clip_norm);
    rt_random random = {kind + count};
    buffer values = buffer_create(device, count, &random);
    buffer gradients = buffer_create(device, count, &random);
    buffer state = buffer_create(device, rt_optimizer_state_floats(&optimizer, count), &random);
    for (uint32_t i = 0; i < state.count; i++)
        state.values[i] = fabsf(state.values[i]);
    upload(&state);
    device->layers->step(device->state, &optimizer, count, 5, values.device_values,
                         state.device_values, gradients.device_values);
    rt_optimizer_step(&optimizer, count, 5, values.values, state.values, gradients.values);
    float *want = calloc(count + state.count, sizeof *want);
    memcpy(want, values.values, count * sizeof *want);
    memcpy(want + count, state.values, state.count * sizeof *want);
    download(&values);
    download(&state);
    assert_memory_equal(values.values, want, count * sizeof *want);
    assert_memory_equal(state.values, want + count, state.count * sizeof *want);
    free(want);
    buffer_destroy(&values);
    buffer_destroy(&gradients);
    buffer_destroy(&state);
}

static void optimizer_steps_on(const ew_device *device)
{
    for (rt_optimizer_kind kind = 0; kind < RT_OPTIMIZER_COUNT; kind++) {
        for (float clip_norm = 0; clip_norm < 1; clip_norm += 0.5f) {
            check_rows(device, kind, 1, clip_norm);
            check_rows(device, kind, 16, clip_norm);
            check_rows(device, kind, 37, clip_norm);
            check_step(device, kind, 1003, clip_norm);
        }
        check_rows(device, kind, RT_OPTIMIZER_SQUARES_CHUNK + 5, 0.5f);
        check_step(device, kind, 3 * RT_OPTIMIZER_SQUARES_CHUNK + 5, 0.5f);
    }
    if (device->unified) // more chunks than it sums at a time
        check_step(device, RT_OPTIMIZER_ROWWISE_ADAGRAD, 2100 * RT_OPTIMIZER_SQUARES_CHUNK + 5, 0);
}

static void memory_is_zeroed_and_copied_on(const ew_device *device)
{
    float host[100];
    float *a = device->ops->alloc(device->state, 100), *b = device->ops->alloc(device->state, 0);
    assert_true(a && b && (uintptr_t)a % 64 == 0);
    device->ops->copy(device->state, EW_COPY_OUT, host, a, sizeof host);
    assert_int_equal(device->ops->finish(device->state, NULL), RT_OK);
    for (uint32_t i = 0; i < 100; i++) {
        assert_true(host[i] == 0);
        host[i] = (float)i;
    }
    device->ops->copy(device->state, EW_COPY_IN, a, host, sizeof host);
    device->ops->copy(device->state, EW_COPY_WITHIN, a, a + 50, 50 * sizeof *host);
    device->ops->copy(device->state, EW_COPY_OUT, host, a, sizeof host);
    assert_int_equal(device->ops->finish(device->state, NULL), RT_OK);
    for (uint32_t i = 0; i < 50; i++)
        assert_true(host[i] == (float)(i + 50));
    assert_null(device->ops->alloc(device->state, SIZE_MAX / 2));
    const float *staged = ew_device_stage(device, a, host, sizeof host);
    assert_true(device->unified ? staged == host : staged == a);
    device->ops->free(device->state, a);
    device->ops->free(device->state, b);
}

ON_EVERY_DEVICE(memory_is_zeroed_and_copied)
ON_EVERY_DEVICE(index_sorts_look_ups_by_row)
ON_EVERY_DEVICE(index_sorts_popular_rows)
ON_EVERY_DEVICE(pool_gathers_and_pools)
ON_EVERY_DEVICE(wide_adds_weighted_embeddings)
ON_EVERY_DEVICE(wide_back_sums_by_row)
ON_EVERY_DEVICE(rows_back_sums_by_row)
ON_EVERY_DEVICE(gemm_multiplies)
ON_EVERY_DEVICE(activate_and_back)
ON_EVERY_DEVICE(loss_is_exact)
ON_EVERY_DEVICE(weighted_loss_is_exact)
ON_EVERY_DEVICE(classes_are_exact)
ON_EVERY_DEVICE(many_classes_are_exact)
ON_EVERY_DEVICE(optimizer_steps)

TEST_MAIN(TEST(memory_is_zeroed_and_copied), TEST(index_sorts_look_ups_by_row),
          TEST(index_sorts_popular_rows), TEST(pool_gathers_and_pools),
          TEST(wide_adds_weighted_embeddings), TEST(wide_back_sums_by_row),
          TEST(rows_back_sums_by_row), TEST(gemm_multiplies), TEST(activate_and_back),
          TEST(loss_is_exact), TEST(weighted_loss_is_exact), TEST(classes_are_exact),
          TEST(many_classes_are_exact), TEST(optimizer_steps))
