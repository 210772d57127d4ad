// Herald's location-aware inputs allocation (NSDI'24, Algorithm 1): in the order of the batch, each
// sample goes to the worker that holds the most of its rows in their latest version and has room;
// ties are broken at random. Link rates play no part.
#include "dispatch/policies/dp_laia.h"

#include <string.h>

#include "dispatch/policies/dp_policy.h"

rt_random dp_laia_random(uint64_t seed)
{
    return (rt_random){rt_mix(seed ^ UINT64_C(0x6c616961))};
}

uint32_t dp_laia_choose(rt_random *random, const uint32_t *score, uint32_t *room,
                        uint32_t worker_count)
{
    uint32_t best = RT_WORKERS_MAX, ties = 0;
    for (uint32_t j = 0; j < worker_count; j++) {
        if (!room[j] || (best != RT_WORKERS_MAX && score[j] < score[best]))
            continue;
        if (best == RT_WORKERS_MAX || score[j] > score[best]) {
            best = j;
            ties = 1;
        } else if (rt_random_below(random, ++ties) == 0) {
            best = j;
        }
    }
    room[best]--;
    return best;
}

static rt_status create(const dp_policy_config *config, void **state_p, rt_error *error)
{
    rt_random *random = rt_alloc(1, sizeof *random);
    if (!random)
        return rt_fail(error, RT_NO_MEMORY, "out of memory for policy laia");
    *random = dp_laia_random(config->seed);
    *state_p = random;
    return RT_OK;
}

static void place(void *state, const dp_view *view, uint32_t *worker_of_sample)
{
    uint32_t room[RT_WORKERS_MAX];
    memcpy(room, view->capacity, view->worker_count * sizeof *room);
    for (uint32_t i = 0; i < view->sample_count; i++) {
        uint32_t score[RT_WORKERS_MAX] = {0};
        for (uint32_t k = view->offsets[i]; k < view->offsets[i + 1]; k++)
            dp_laia_score(view, view->lookups[k], score);
        worker_of_sample[i] = dp_laia_choose(state, score, room, view->worker_count);
    }
}

static void save(const void *state, rt_bytes *bytes)
{
    rt_bytes_put(bytes, state, sizeof(rt_random));
}

static bool load(void *state, rt_reader *reader)
{
    return rt_reader_get(reader, state, 1, sizeof(rt_random));
}

const dp_policy_ops dp_policy_laia = {.name = "laia",
                                      .traits = DP_POLICY_REFERENCE | DP_POLICY_SNAPSHOTS,
                                      .create = create,
                                      .destroy = rt_free,
                                      .place = place,
                                      .save = save,
                                      .load = load};
