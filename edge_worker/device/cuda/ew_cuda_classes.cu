// classes: predictions, gradients and the summed loss of a softmax, in double precision as on the
// CPU.
//
// One block, a thread for each sample: a micro-batch has a few thousand samples of a few dozen
// classes. No races: every thread writes what belongs to its samples; the sum meets in shared
// memory, between barriers.
#include "edge_worker/device/cuda/ew_cuda_parts.h"

#define CLASSES_THREADS_MAX 512u

// log of the sum of e^z. The largest logit is taken out, so that nothing overflows.
static __device__ double log_sum(uint32_t class_count, const float *logits)
{
    double largest = logits[0], sum = 0;
    for (uint32_t c = 1; c < class_count; c++)
        largest = logits[c] > largest ? logits[c] : largest;
    for (uint32_t c = 0; c < class_count; c++)
        sum += exp(logits[c] - largest);
    return largest + log(sum);
}

static __global__ void __launch_bounds__(CLASSES_THREADS_MAX)
    class_loss(uint32_t sample_count, uint32_t class_count, const float *logits,
               const float *labels, float scale, float *predictions, float *gradients, double *loss)
{
    SHARED(double, sums, EW_CUDA_WARP);
    double sum = 0;
    for (uint32_t i = threadIdx.x; i < sample_count; i += blockDim.x) {
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
    sum = ew_cuda_block_sum(sum, sums);
    if (labels && threadIdx.x == 0)
        *loss = sum;
}

extern "C" void ew_cuda_classes(void *state, uint32_t sample_count, uint32_t class_count,
                                const float *logits, const float *labels, float scale,
                                float *predictions, float *gradients, double *loss)
{
    ew_cuda *cuda = (ew_cuda *)state;
    if (!ew_cuda_enter(cuda))
        return;
    uint32_t threads = ew_cuda_power(sample_count, CLASSES_THREADS_MAX);
    threads = threads < EW_CUDA_WARP ? EW_CUDA_WARP : threads;
    LAUNCH(class_loss, dim3(1), dim3(threads), 0, cuda->compute, sample_count, class_count, logits,
           labels, scale, predictions, gradients, loss);
    ew_cuda_leave(cuda, "classes");
}
