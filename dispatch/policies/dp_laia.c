// Herald's location-aware inputs allocation (NSDI'24, Algorithm 1): in the order of the batch, each
// sample goes to the worker that holds the most of its rows in their latest version and has room;
// ties are broken at random. Link rates play no part.
#include "dispatch/dp_policy.h"
#include "runtime/rt_hash.h"

static rt_status create(const dp_policy_config *config, void **state_p, rt_error *error)
{
    rt_random *random = rt_alloc(1, sizeof *random);
    if (!random)
        return rt_fail(error, RT_NO_MEMORY, "out of memory for policy laia");
    random->state = rt_mix(config->seed ^ UINT64_C(0x6c616961));
    *state_p = random;
    return RT_OK;
}

static void score_sample(const dp_view *view, uint32_t sample, uint32_t *score)
{
    for (uint32_t k = view->offsets[sample]; k < view->offsets[sample + 1]; k++) {
        uint32_t held = view->held[view->lookups[k]];
        if (held == DP_HELD_BY_NONE)
            continue;
        if (held != DP_HELD_BY_MANY) {
            score[held & DP_HELD_WORKER]++;
            continue;
        }
        for (uint64_t rest = view->distinct[view->lookups[k]].holders; rest; rest &= rest - 1)
            score[rt_lowest_bit(rest)]++;
    }
}

static void place(void *state, const dp_view *view, uint32_t *worker_of_sample)
{
    uint32_t room[RT_WORKERS_MAX];
    for (uint32_t j = 0; j < view->worker_count; j++)
        room[j] = view->capacity[j];
    for (uint32_t i = 0; i < view->sample_count; i++) {
        uint32_t score[RT_WORKERS_MAX] = {0};
        uint32_t best = RT_WORKERS_MAX, ties = 0;
        score_sample(view, i, score);
        for (uint32_t j = 0; j < view->worker_count; j++) {
            if (!room[j] || (best != RT_WORKERS_MAX && score[j] < score[best]))
                continue;
            if (best == RT_WORKERS_MAX || score[j] > score[best]) {
                best = j;
                ties = 1;
            } else if (rt_random_below(state, ++ties) == 0) {
                best = j;
            }
        }
        room[best]--;
        worker_of_sample[i] = best;
    }
}

const dp_policy_ops dp_policy_laia = {"laia", create, rt_free, place, NULL, NULL};
