// ew_cpu_cross - Deep & Cross with vectors on the CPU: see cross and cross_back in ew_device.h.
//
// A few numbers per sample, and passes over weights and biases: nothing worth a vector.
#ifndef EW_CPU_CROSS_H
#define EW_CPU_CROSS_H

#include "edge_worker/device/ew_device.h"

void ew_cpu_cross(uint32_t sample_count, uint32_t layer_count, uint32_t dim, const float *weights,
                  const float *biases, const float *products, uint32_t stride, float *logits);
void ew_cpu_cross_back(uint32_t sample_count, uint32_t layer_count, uint32_t dim,
                       const float *weights, const float *biases, const float *products,
                       uint32_t stride, const float *logit_gradients, float *product_gradients,
                       float *weight_gradients, float *bias_gradients);

#endif
