// How features meet, on every device, against sums in double precision (bounds: device_cases.h).
#include "tests/conform/device_cases.h"

// x and the gradients come as random matrices; `count` vectors of `dim`.
typedef struct {
    uint32_t samples, count, dim, stride;
    buffer x, x_gradients, logits, logit_gradients, out, out_gradients, weights, weight_gradients;
    float *before; // of x_gradients
} meeting;

static meeting meeting_create(const ew_device *device, uint32_t samples, uint32_t count,
                              uint32_t dim)
{
    rt_random random = {samples + 31 * count + 1009 * dim};
    meeting m = {.samples = samples, .count = count, .dim = dim, .stride = count * dim + 3};
    m.x = buffer_create(device, samples * m.stride, &random);
    m.x_gradients = buffer_create(device, samples * m.stride, &random);
    m.logits = buffer_create(device, samples, &random);
    m.logit_gradients = buffer_create(device, samples, &random);
    uint32_t out_count = dim + count * count;
    m.out = buffer_create(device, samples * out_count, &random);
    m.out_gradients = buffer_create(device, samples * out_count, &random);
    m.weights = buffer_create(device, dim, &random);
    m.weight_gradients = buffer_create(device, dim, &random);
    m.before = calloc(m.x.count + 1, sizeof *m.before);
    memcpy(m.before, m.x_gradients.values, m.x.count * sizeof *m.before);
    return m;
}

static void meeting_destroy(meeting *m)
{
    buffer *all[] = {&m->x,   &m->x_gradients,   &m->logits,  &m->logit_gradients,
                     &m->out, &m->out_gradients, &m->weights, &m->weight_gradients};
    for (size_t i = 0; i < RT_COUNT_OF(all); i++)
        buffer_destroy(all[i]);
    free(m->before);
}

static void check_fm(const ew_device *device, meeting *m)
{
    float *before = calloc(m->samples + 1, sizeof *before);
    memcpy(before, m->logits.values, m->samples * sizeof *before);
    device->interactions->fm(device->state, m->samples, m->count, m->dim, m->x.device_values,
                             m->stride, m->out.device_values, m->logits.device_values);
    device->interactions->fm_back(device->state, m->samples, m->count, m->dim, m->x.device_values,
                                  m->stride, m->out.device_values, m->logit_gradients.device_values,
                                  m->x_gradients.device_values);
    download(&m->logits);
    download(&m->x_gradients);
    for (uint32_t i = 0; i < m->samples; i++) {
        const float *row = m->x.values + i * m->stride;
        double logit = before[i], magnitude = fabs(logit);
        for (uint32_t d = 0; d < m->dim; d++) {
            double sum = 0, size = 0;
            for (uint32_t v = 0; v < m->count; v++) {
                sum += row[v * m->dim + d];
                size += fabsf(row[v * m->dim + d]);
                for (uint32_t w = 0; w < v; w++)
                    logit += (double)row[v * m->dim + d] * row[w * m->dim + d];
            }
            magnitude += size * size; // of the form that subtracts squares
            for (uint32_t v = 0; v < m->count; v++) {
                uint32_t at = i * m->stride + v * m->dim + d;
                double gradient = m->logit_gradients.values[i] * (sum - m->x.values[at]);
                expect(m->x_gradients.values[at], m->before[at] + gradient,
                       fabsf(m->before[at]) + fabsf(m->logit_gradients.values[i]) * size,
                       m->count + 2, "fm gradient", at);
            }
        }
        expect(m->logits.values[i], logit, magnitude, m->dim * m->count + m->count, "fm logit", i);
    }
    free(before);
}

static void check_dots(const ew_device *device, meeting *m)
{
    uint32_t pairs = m->count * (m->count - 1) / 2, out_stride = m->dim + m->count * m->count;
    float *out_before = calloc(m->out.count + 1, sizeof *out_before);
    memcpy(out_before, m->out.values, m->out.count * sizeof *out_before);
    device->interactions->dots(device->state, m->samples, m->count, m->dim, m->x.device_values,
                               m->stride, m->out.device_values, out_stride);
    device->interactions->dots_back(device->state, m->samples, m->count, m->dim, m->x.device_values,
                                    m->stride, m->out_gradients.device_values, out_stride,
                                    m->x_gradients.device_values);
    download(&m->out);
    download(&m->x_gradients);
    double *want = calloc(2 * m->stride, sizeof *want), *size = want + m->stride;
    for (uint32_t i = 0; i < m->samples; i++) {
        const float *row = m->x.values + i * m->stride, *out = m->out.values + i * out_stride;
        const float *gradient = m->out_gradients.values + i * out_stride;
        const uint32_t last = (m->count - 1) * m->dim;
        memset(want, 0, 2 * m->stride * sizeof *want);
        assert_memory_equal(out, row + last, m->dim * sizeof *out);
        for (uint32_t d = 0; d < m->dim; d++)
            size[last + d] = fabs(want[last + d] = gradient[d]);
        for (uint32_t a = 0, p = m->dim; a < m->count; a++)
            for (uint32_t b = 0; b < a; b++, p++) {
                double sum = 0, magnitude = 0;
                for (uint32_t d = 0; d < m->dim; d++) {
                    double x = row[a * m->dim + d], y = row[b * m->dim + d];
                    sum += x * y;
                    magnitude += fabs(x * y);
                    want[a * m->dim + d] += gradient[p] * y;
                    want[b * m->dim + d] += gradient[p] * x;
                    size[a * m->dim + d] += fabs(gradient[p] * y);
                    size[b * m->dim + d] += fabs(gradient[p] * x);
                }
                expect(out[p], sum, magnitude, m->dim, "dot", p);
            }
        for (uint32_t k = m->dim + pairs; k < out_stride; k++) // between the rows
            assert_true(out[k] == out_before[i * out_stride + k]);
        for (uint32_t k = 0; k < m->count * m->dim; k++)
            expect(m->x_gradients.values[i * m->stride + k], want[k], size[k], m->count + 1,
                   "dots gradient", k);
        for (uint32_t k = m->count * m->dim; k < m->stride; k++) // between the rows
            assert_true(m->x_gradients.values[i * m->stride + k] == m->before[i * m->stride + k]);
    }
    free(want);
    free(out_before);
}

// Columns 0 and 1 of the vectors are u and v.
static void check_gmf(const ew_device *device, meeting *m)
{
    const float *u = m->x.values, *v = m->x.values + m->dim;
    float *before = calloc(m->samples + 1, sizeof *before);
    memcpy(before, m->logits.values, m->samples * sizeof *before);
    device->interactions->gmf(device->state, m->samples, m->dim, m->x.device_values,
                              m->x.device_values + m->dim, m->stride, m->weights.device_values,
                              m->logits.device_values);
    device->interactions->gmf_back(device->state, m->samples, m->dim, m->x.device_values,
                                   m->x.device_values + m->dim, m->stride, m->weights.device_values,
                                   m->logit_gradients.device_values, m->x_gradients.device_values,
                                   m->x_gradients.device_values + m->dim,
                                   m->weight_gradients.device_values);
    download(&m->logits);
    download(&m->x_gradients);
    download(&m->weight_gradients);
    for (uint32_t i = 0; i < m->samples; i++) {
        double sum = before[i], magnitude = fabs(sum), g = m->logit_gradients.values[i];
        for (uint32_t d = 0; d < m->dim; d++) {
            uint32_t at = i * m->stride + d;
            double one = (double)m->weights.values[d] * u[at] * v[at];
            double u_gradient = g * m->weights.values[d] * v[at];
            double v_gradient = g * m->weights.values[d] * u[at];
            sum += one;
            magnitude += fabs(one);
            expect(m->x_gradients.values[at], u_gradient, fabs(u_gradient), 2, "u", at);
            expect(m->x_gradients.values[at + m->dim], v_gradient, fabs(v_gradient), 2, "v", at);
        }
        expect(m->logits.values[i], sum, magnitude, m->dim + 2, "gmf logit", i);
    }
    for (uint32_t d = 0; d < m->dim; d++) {
        double sum = 0, magnitude = 0;
        for (uint32_t i = 0; i < m->samples; i++) {
            double one =
                (double)m->logit_gradients.values[i] * u[i * m->stride + d] * v[i * m->stride + d];
            sum += one;
            magnitude += fabs(one);
        }
        expect(m->weight_gradients.values[d], sum, magnitude, m->samples + 2, "weight", d);
    }
    free(before);
}

static void for_every_meeting(const ew_device *device,
                              void (*check)(const ew_device *device, meeting *m))
{
    static const uint32_t cases[][3] = {
        {1, 2, 1},   {5, 2, 16}, {7, 3, 5},  {9, 27, 16}, {4, 17, 8},   {3, 33, 7},   {3, 20, 64},
        {2, 5, 100}, {0, 3, 8},  {2, 9, 49}, {1, 257, 3}, {3, 27, 200}, {2, 65, 193}, {1, 2, 512}};
    for (size_t i = 0; i < RT_COUNT_OF(cases); i++) {
        meeting m = meeting_create(device, cases[i][0], cases[i][1], cases[i][2]);
        check(device, &m);
        meeting_destroy(&m);
    }
}

static void factorisation_machine_on(const ew_device *device)
{
    for_every_meeting(device, check_fm);
}

static void dots_of_all_pairs_on(const ew_device *device)
{
    for_every_meeting(device, check_dots);
}

static void gmf_products_on(const ew_device *device)
{
    for_every_meeting(device, check_gmf);
}

// One layer of each kind in full vectors, chained by the test as the models do. Bounds: a chain of
// L layers multiplies L + 1 factors; magnitudes are those of the same chain over absolute values.
static void check_cross_vector(const ew_device *device, uint32_t samples, uint32_t layers,
                               uint32_t dim)
{
    rt_random random = {samples + layers + dim};
    uint32_t stride = layers + 4;
    buffer x0 = buffer_create(device, samples * dim, &random);
    buffer weights = buffer_create(device, (layers + 1) * dim, &random);
    buffer biases = buffer_create(device, layers * dim, &random);
    buffer products = buffer_create(device, samples * stride, &random);
    buffer logits = buffer_create(device, samples, &random);
    float *before = calloc(samples + 1, sizeof *before);
    memcpy(before, logits.values, samples * sizeof *before);
    device->layers->gemm(device->state, false, true, samples, layers + 1, dim, x0.device_values,
                         dim, weights.device_values, dim, 0, products.device_values, stride);
    device->interactions->cross(device->state, samples, layers, dim, weights.device_values,
                                biases.device_values, products.device_values, stride,
                                logits.device_values);
    download(&logits);
    for (uint32_t i = 0; i < samples; i++) {
        double x[64], size[64], logit = before[i], magnitude = fabs(logit);
        for (uint32_t d = 0; d < dim; d++)
            size[d] = fabs(x[d] = x0.values[i * dim + d]);
        for (uint32_t l = 0; l <= layers; l++) {
            double sum = 0, sum_size = 0;
            for (uint32_t d = 0; d < dim; d++) {
                sum += x[d] * weights.values[l * dim + d];
                sum_size += size[d] * fabsf(weights.values[l * dim + d]);
            }
            if (l == layers) {
                logit += sum;
                magnitude += sum_size;
                break;
            }
            for (uint32_t d = 0; d < dim; d++) {
                x[d] += x0.values[i * dim + d] * sum + biases.values[l * dim + d];
                size[d] +=
                    fabsf(x0.values[i * dim + d]) * sum_size + fabsf(biases.values[l * dim + d]);
            }
        }
        expect(logits.values[i], logit, magnitude, (layers + 1) * (dim + 2), "cross logit", i);
    }
    free(before);
    buffer *all[] = {&x0, &weights, &biases, &products, &logits};
    for (size_t i = 0; i < RT_COUNT_OF(all); i++)
        buffer_destroy(all[i]);
}

// Its gradients are checked through the model (test_model_gradients, test_model_golden).
// What cross_back writes, in a buffer: product, weight and bias gradients one after another.
static buffer cross_gradients(const ew_device *device, uint32_t samples, uint32_t layers,
                              uint32_t dim)
{
    rt_random random = {samples + 7 * layers + dim};
    const uint32_t stride = layers + 1;
    const uint32_t weights_at = samples * stride, biases_at = weights_at + stride * dim;
    buffer weights = buffer_create(device, stride * dim, &random);
    buffer biases = buffer_create(device, layers * dim, &random);
    buffer products = buffer_create(device, samples * stride, &random);
    buffer logits = buffer_create(device, samples, &random);
    buffer out = buffer_create(device, biases_at + layers * dim, &random);
    device->interactions->cross_back(device->state, samples, layers, dim, weights.device_values,
                                     biases.device_values, products.device_values, stride,
                                     logits.device_values, out.device_values,
                                     out.device_values + weights_at, out.device_values + biases_at);
    download(&out);
    buffer *all[] = {&weights, &biases, &products, &logits};
    for (size_t i = 0; i < RT_COUNT_OF(all); i++)
        buffer_destroy(all[i]);
    return out;
}

// The CPU's gradients are held against differences in test_model_gradients. Sums are in double
// precision everywhere, so results differ by their last rounding.
static void cross_back_is_the_cpus_on(const ew_device *device)
{
    static const uint32_t sizes[][3] = {{9, 1, 7}, {70, 3, 40}, {3, 8, 64}, {0, 2, 5}};
    ew_device cpu;
    assert_int_equal(ew_device_open("cpu", &cpu, NULL), RT_OK);
    for (size_t i = 0; i < RT_COUNT_OF(sizes); i++) {
        buffer got = cross_gradients(device, sizes[i][0], sizes[i][1], sizes[i][2]);
        buffer want = cross_gradients(&cpu, sizes[i][0], sizes[i][1], sizes[i][2]);
        for (uint32_t k = 0; k < got.count; k++)
            test_close(got.values[k], want.values[k], 2 * UNIT, 1e-6, "cross gradient");
        buffer_destroy(&got);
        buffer_destroy(&want);
    }
    ew_device_close(&cpu);
}

static void cross_in_scalars_on(const ew_device *device)
{
    for (uint32_t layers = 1; layers <= RT_CROSS_LAYERS_MAX; layers += 3) {
        check_cross_vector(device, 9, layers, 7);
        check_cross_vector(device, 3, layers, 64);
        check_cross_vector(device, 0, layers, 5);
    }
}

static void check_cross_matrix(const ew_device *device, uint32_t samples, uint32_t dim,
                               bool is_first, bool is_last)
{
    rt_random random = {samples + dim};
    uint32_t stride = dim + 2;
    buffer all[8];
    float *before[8];
    for (uint32_t i = 0; i < 8; i++) {
        all[i] = buffer_create(device, i == 7 ? dim : samples * stride, &random);
        before[i] = calloc(all[i].count + 1, sizeof(float));
        memcpy(before[i], all[i].values, all[i].count * sizeof(float));
    }
    enum { X0, X, Z, NEXT, G, Z_GRADIENTS, X0_GRADIENTS, BIAS };
    device->interactions->cross_matrix(device->state, samples, dim, all[X0].device_values,
                                       all[X].device_values, all[BIAS].device_values,
                                       all[Z].device_values, all[NEXT].device_values, stride);
    download(&all[Z]);
    download(&all[NEXT]);
    device->interactions->cross_matrix_back(
        device->state, samples, dim, is_first, is_last, all[X0].device_values, all[Z].device_values,
        all[G].device_values, all[Z_GRADIENTS].device_values, all[X0_GRADIENTS].device_values,
        all[BIAS].device_values, stride);
    for (uint32_t i = Z_GRADIENTS; i <= BIAS; i++)
        download(&all[i]);
    for (uint32_t at = 0; at < samples * stride; at++) {
        uint32_t d = at % stride;
        if (d >= dim) {
            for (uint32_t i = Z; i <= X0_GRADIENTS; i++)
                assert_true(all[i].values[at] == before[i][at]);
            continue;
        }
        double z = (double)before[Z][at] + before[BIAS][d], g = before[G][at];
        double product = z * before[X0][at];
        expect(all[Z].values[at], z, fabs(z), 0, "z", at);
        expect(all[NEXT].values[at], product + before[X][at], fabs(product) + 1, 2, "next", at);
        expect(all[Z_GRADIENTS].values[at], g * before[X0][at], fabs(g), 0, "z gradient", at);
        double sum = (is_last ? 0 : before[X0_GRADIENTS][at]) + g * z + (is_first ? g : 0);
        expect(all[X0_GRADIENTS].values[at], sum, 1 + 3 * fabs(g), 3, "x0 gradient", at);
    }
    for (uint32_t d = 0; d < dim; d++) {
        double sum = 0, size = 0;
        for (uint32_t i = 0; i < samples; i++) {
            sum += (double)before[G][i * stride + d] * before[X0][i * stride + d];
            size += fabsf(before[G][i * stride + d]);
        }
        expect(all[BIAS].values[d], sum, size, samples + 1, "bias gradient", d);
    }
    for (uint32_t i = 0; i < 8; i++) {
        buffer_destroy(&all[i]);
        free(before[i]);
    }
}

static void cross_in_matrices_on(const ew_device *device)
{
    for (uint32_t flags = 0; flags < 4; flags++) {
        check_cross_matrix(device, 5, 1, flags & 1, flags & 2);
        check_cross_matrix(device, 8, 37, flags & 1, flags & 2);
        check_cross_matrix(device, 0, 9, flags & 1, flags & 2);
    }
}

ON_EVERY_DEVICE(factorisation_machine)
ON_EVERY_DEVICE(dots_of_all_pairs)
ON_EVERY_DEVICE(gmf_products)
ON_EVERY_DEVICE(cross_back_is_the_cpus)
ON_EVERY_DEVICE(cross_in_scalars)
ON_EVERY_DEVICE(cross_in_matrices)

TEST_MAIN(TEST(factorisation_machine), TEST(dots_of_all_pairs), TEST(gmf_products),
          TEST(cross_back_is_the_cpus), TEST(cross_in_scalars), TEST(cross_in_matrices))
