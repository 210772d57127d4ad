#include "edge_worker/device/ew_cpu_cross.h"

// With x_l = a_l x0 + s_l, s_l = b_0 + ... + b_(l-1), and p_l = x0 . w_l:
//   x_l . w_l = a_l p_l + c_l,  c_l = s_l . w_l (no sample in it),
//   x_(l+1) = x0 (x_l . w_l) + b_l + x_l, hence a_(l+1) = a_l + a_l p_l + c_l, a_0 = 1,
// and the output is x_L . w_L = a_L p_L + c_L.

#define PRODUCTS_MAX (RT_CROSS_LAYERS_MAX + 1)

// c_0 .. c_L.
static void fill_constants(uint32_t layer_count, uint32_t dim, const float *weights,
                           const float *biases, double *constants)
{
    for (uint32_t l = 0; l <= layer_count; l++)
        constants[l] = 0;
    for (uint32_t d = 0; d < dim; d++) {
        double sum = 0;
        for (uint32_t l = 0; l <= layer_count; l++) {
            constants[l] += sum * weights[(size_t)l * dim + d];
            if (l < layer_count)
                sum += biases[(size_t)l * dim + d];
        }
    }
}

// a_0 .. a_L of one sample.
static void fill_factors(uint32_t layer_count, const double *constants, const float *products,
                         double *factors)
{
    factors[0] = 1;
    for (uint32_t l = 0; l < layer_count; l++)
        factors[l + 1] = factors[l] + factors[l] * products[l] + constants[l];
}

void ew_cpu_cross(uint32_t sample_count, uint32_t layer_count, uint32_t dim, const float *weights,
                  const float *biases, const float *products, uint32_t stride, float *logits)
{
    double constants[PRODUCTS_MAX], factors[PRODUCTS_MAX];
    rt_assert(layer_count <= RT_CROSS_LAYERS_MAX);
    fill_constants(layer_count, dim, weights, biases, constants);
    for (uint32_t i = 0; i < sample_count; i++) {
        const float *p = products + (size_t)i * stride;
        fill_factors(layer_count, constants, p, factors);
        logits[i] += (float)(factors[layer_count] * p[layer_count] + constants[layer_count]);
    }
}

// What reaches w_l and b_l through c_0 .. c_L.
static void spread_constants(uint32_t layer_count, uint32_t dim, const float *weights,
                             const float *biases, const double *constant_gradients,
                             float *weight_gradients, float *bias_gradients)
{
    for (uint32_t d = 0; d < dim; d++) {
        double sum = 0;
        for (uint32_t l = 0; l <= layer_count; l++) {
            weight_gradients[(size_t)l * dim + d] = (float)(constant_gradients[l] * sum);
            if (l < layer_count)
                sum += biases[(size_t)l * dim + d];
        }
        sum = 0;
        for (uint32_t l = layer_count; l-- > 0;) {
            sum += constant_gradients[l + 1] * weights[(size_t)(l + 1) * dim + d];
            bias_gradients[(size_t)l * dim + d] = (float)sum;
        }
    }
}

void ew_cpu_cross_back(uint32_t sample_count, uint32_t layer_count, uint32_t dim,
                       const float *weights, const float *biases, const float *products,
                       uint32_t stride, const float *logit_gradients, float *product_gradients,
                       float *weight_gradients, float *bias_gradients)
{
    double constants[PRODUCTS_MAX], factors[PRODUCTS_MAX], constant_gradients[PRODUCTS_MAX] = {0};
    rt_assert(layer_count <= RT_CROSS_LAYERS_MAX);
    fill_constants(layer_count, dim, weights, biases, constants);
    for (uint32_t i = 0; i < sample_count; i++) {
        const float *p = products + (size_t)i * stride;
        float *to = product_gradients + (size_t)i * stride;
        double gradient = logit_gradients[i], factor_gradient = gradient * p[layer_count];
        fill_factors(layer_count, constants, p, factors);
        to[layer_count] = (float)(gradient * factors[layer_count]);
        constant_gradients[layer_count] += gradient;
        for (uint32_t l = layer_count; l-- > 0;) {
            to[l] = (float)(factor_gradient * factors[l]);
            constant_gradients[l] += factor_gradient;
            factor_gradient += factor_gradient * p[l];
        }
    }
    spread_constants(layer_count, dim, weights, biases, constant_gradients, weight_gradients,
                     bias_gradients);
}
