// The baseline of every paper: a random placement with equal micro-batches. Also HET's.
#include "dispatch/policies/dp_policy.h"
#include "runtime/rt_hash.h"

static rt_status create(const dp_policy_config *config, void **state_p, rt_error *error)
{
    rt_random *random = rt_alloc(1, sizeof *random);
    if (!random)
        return rt_fail(error, RT_NO_MEMORY, "out of memory for policy random");
    random->state = rt_mix(config->seed ^ UINT64_C(0x72616e646f6d));
    *state_p = random;
    return RT_OK;
}

static void place(void *state, const dp_view *view, uint32_t *worker_of_sample)
{
    uint32_t filled = 0;
    for (uint32_t j = 0; j < view->worker_count; j++) {
        for (uint32_t k = 0; k < view->capacity[j] && filled < view->sample_count; k++)
            worker_of_sample[filled++] = j;
    }
    for (uint32_t i = view->sample_count; i > 1; i--) { // Fisher-Yates
        uint32_t other = rt_random_below(state, i);
        uint32_t worker = worker_of_sample[i - 1];
        worker_of_sample[i - 1] = worker_of_sample[other];
        worker_of_sample[other] = worker;
    }
}

static void save(const void *state, rt_bytes *bytes)
{
    rt_fields_put(bytes, &dp_policy_random_fields, state, 1);
}

static bool load(void *state, rt_reader *reader)
{
    return rt_fields_get(reader, &dp_policy_random_fields, state, 1);
}

const dp_policy_ops dp_policy_random = {.name = "random",
                                        .create = create,
                                        .destroy = rt_free,
                                        .place = place,
                                        .save = save,
                                        .load = load};

// HET (VLDB'22) places no samples; what it is beside this follows from its name (rt_config.c).
const dp_policy_ops dp_policy_het = {.name = "het",
                                     .create = create,
                                     .destroy = rt_free,
                                     .place = place,
                                     .save = save,
                                     .load = load};
