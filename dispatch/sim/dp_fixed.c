#include "dispatch/sim/dp_fixed.h"

#include <string.h>

#include "dispatch/planner/dp_choice.h"
#include "dispatch/planner/dp_setup.h"

// One simulation with these workers. RT_CONFIG: a cache does not hold their share.
static rt_status try_set(const dp_sim_config *like, rt_config *config, uint64_t workers,
                         double *seconds_p, rt_error *error)
{
    dp_sim_config sim = *like;
    dp_sim_result result;
    sim.config = config;
    sim.trace = sim.placements = NULL;
    sim.journal = NULL;
    config->dispatch.participants = RT_PARTICIPANTS_LIST;
    config->dispatch.participant_mask = workers;
    if (sim.progress)
        fprintf(stderr, "the first %u workers\n", rt_bit_count(workers));
    rt_status status = dp_sim_run(&sim, &result, error);
    if (status)
        return status;
    if (result.participants != workers) // too few for its caches: all train
        return RT_AGAIN;
    *seconds_p = result.account.predicted_s / (double)result.account.iterations;
    return RT_OK;
}

static rt_status try_all(const dp_sim_config *sim, const dp_planner_config *planner,
                         rt_config *config, dp_fixed_set *best, rt_error *error)
{
    uint32_t ranks[RT_WORKERS_MAX];
    uint64_t workers = 0;
    dp_choice_order(planner, ranks);
    for (uint32_t k = 0; k < planner->worker_count; k++) {
        double seconds;
        workers |= rt_bit(ranks[k]);
        if (best->workers && dp_estimate_dense_s(planner, ranks[k]) > best->predicted_s)
            break;
        rt_status status = try_set(sim, config, workers, &seconds, error);
        if (status == RT_AGAIN)
            continue;
        if (status)
            return status;
        best->tried++;
        if (best->workers == 0 || seconds < best->predicted_s) {
            best->workers = workers;
            best->predicted_s = seconds;
        }
    }
    return RT_OK;
}

rt_status dp_fixed_best(const dp_sim_config *sim, dp_fixed_set *best, rt_error *error)
{
    rt_config config;
    dp_planner_config planner = {0};
    memset(best, 0, sizeof *best);
    if (rt_config_copy(sim->config, &config))
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    rt_status status = dp_setup(&config, sim->schema, sim->distinct_keys, &planner, error);
    planner.dense_bytes = config.sim_dense ? sim->dense_bytes : 0;
    if (!status)
        status = dp_setup_hot(&config, sim->schema, &planner, error);
    if (!status)
        status = try_all(sim, &planner, &config, best, error);
    dp_setup_fini(&planner);
    rt_config_fini(&config);
    return status;
}
