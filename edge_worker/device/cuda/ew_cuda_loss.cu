// loss: predictions, gradients and the summed log loss, in double precision as on the CPU.
//
// One block: a micro-batch has a few thousand samples. No races: every thread writes what belongs
// to its samples; the sum meets in shared memory, between barriers.
#include "edge_worker/device/cuda/ew_cuda_parts.h"

#define LOSS_THREADS_MAX 1024u

// w (log(1 + e^-|z|) + max(z, 0)) - y z: neither overflows nor cancels.
static __global__ void __launch_bounds__(LOSS_THREADS_MAX)
    log_loss(uint32_t count, const float *logits, const float *labels, const float *weights,
             float scale, float *predictions, float *gradients, double *loss)
{
    SHARED(double, sums, EW_CUDA_WARP);
    double sum = 0;
    for (uint32_t i = threadIdx.x; i < count; i += blockDim.x) {
        double z = logits[i], small = exp(-fabs(z));
        double prediction = (z >= 0 ? 1 : small) / (1 + small);
        predictions[i] = (float)prediction;
        if (!labels)
            continue;
        const double w = weights ? weights[i] : 1;
        gradients[i] = (float)((w * prediction - labels[i]) * scale);
        sum += w * log1p(small) + ((z > 0 ? w * z : 0) - labels[i] * z); // the small term last
    }
    sum = ew_cuda_block_sum(sum, sums);
    if (labels && threadIdx.x == 0)
        *loss = sum;
}

extern "C" void ew_cuda_loss(void *state, uint32_t count, const float *logits, const float *labels,
                             const float *weights, float scale, float *predictions,
                             float *gradients, double *loss)
{
    ew_cuda *cuda = (ew_cuda *)state;
    if (!ew_cuda_enter(cuda))
        return;
    uint32_t threads = ew_cuda_power(count, LOSS_THREADS_MAX);
    threads = threads < EW_CUDA_WARP ? EW_CUDA_WARP : threads;
    LAUNCH(log_loss, dim3(1), dim3(threads), 0, cuda->compute, count, logits, labels, weights,
           scale, predictions, gradients, loss);
    ew_cuda_leave(cuda, "loss");
}
