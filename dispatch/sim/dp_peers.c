#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "dispatch/planner/dp_setup.h"
#include "dispatch/sim/dp_peer_parts.h"

// ---- options ---------------------------------------------------------------------------------

static rt_status bad_option(const char *spec, const char *option, size_t length, rt_error *error)
{
    return rt_fail(error, RT_CONFIG,
                   "policy \"%s\": %.*s: expected "
                   "bagpipe[:window=N][:replicate=true|:partition=true]",
                   spec, (int)length, option);
}

static bool take_number(const char *option, size_t length, const char *name, uint64_t max,
                        uint64_t *value)
{
    const size_t prefix = strlen(name);
    char *end;
    if (length <= prefix || strncmp(option, name, prefix) != 0 || option[prefix] < '0' ||
        option[prefix] > '9')
        return false;
    *value = strtoull(option + prefix, &end, 10);
    return end == option + length && *value >= 1 && *value <= max;
}

static bool take_flag(const char *option, size_t length, const char *name, bool *value)
{
    const size_t prefix = strlen(name);
    if (length < prefix || strncmp(option, name, prefix) != 0)
        return false;
    *value = strncmp(option + prefix, "true", 4) == 0;
    return length - prefix == (*value ? 4 : 5) &&
           (*value || strncmp(option + prefix, "false", 5) == 0);
}

static bool take_option(dp_peer *peer, const char *option, size_t length)
{
    uint64_t window;
    if (take_number(option, length, "window=", DP_PEER_WINDOW_MAX, &window)) {
        peer->window = (uint32_t)window;
        return true;
    }
    return (take_flag(option, length, "replicate=", &peer->replicate) ||
            take_flag(option, length, "partition=", &peer->partition)) &&
           !(peer->replicate && peer->partition);
}

rt_status dp_peer_parse(const char *spec, dp_peer *peer, rt_error *error)
{
    static const char name[] = "bagpipe";
    const size_t length = strcspn(spec, ":");
    if (length != strlen(name) || strncmp(spec, name, length) != 0)
        return RT_NOT_FOUND;
    *peer = (dp_peer){0};
    for (const char *at = spec + length; *at;) {
        const size_t size = strcspn(++at, ":");
        if (!take_option(peer, at, size))
            return bad_option(spec, at, size, error);
        at += size;
    }
    return RT_OK;
}

// ---- the run ---------------------------------------------------------------------------------

rt_status dp_peer_run(const dp_sim_config *sim, const dp_peer *peer, dp_sim_result *result,
                      rt_error *error)
{
    dp_planner_config planner;
    dp_peer_run_state run = {.sim = sim, .peer = peer, .result = result};
    memset(result, 0, sizeof *result);
    if (rt_rows_are_admitted(&sim->config->rows))
        return rt_fail(error, RT_CONFIG,
                       "rows.admit, rows.admit_share: bagpipe has a row for every key; expected 1");
    rt_status status = dp_setup(sim->config, sim->schema, sim->distinct_keys, &planner, error);
    if (status)
        return status;
    planner.dense_bytes = sim->config->sim_dense ? sim->dense_bytes : 0;
    dp_account_init(&planner, &run.costs);
    result->costs = run.costs;
    result->slot_count = run.slot_count = planner.slot_count[0] - planner.overshoot;
    result->participants = rt_bits_below(planner.worker_count);
    run.batch_size = planner.sample_count_max;
    run.first_touch_moves = planner.dispatch.first_touch == RT_FIRST_TOUCH_PULL;
    rt_batch_init(&run.raw, sim->schema->dense_count);
    if (dp_directory_init(&run.directory, sim->config->cache.distinct_keys))
        status = rt_fail(error, RT_NO_MEMORY, "out of memory: the keys");
    if (!status)
        status = rt_stream_open(&sim->config->stream, sim->config->seed, &run.stream, error);
    if (!status)
        status = dp_bagpipe_run(&run, error);
    result->warmup_iterations = run.iterations - result->account.iterations;
    if (!status && result->account.iterations == 0)
        status = rt_fail(error, RT_DATA,
                         "the input has %" PRIu64 " batches, not more than the warm-up of %" PRIu32
                         " (sim.warmup)",
                         run.iterations, sim->config->sim_warmup);
    rt_stream_close(run.stream);
    rt_batch_fini(&run.raw);
    dp_directory_fini(&run.directory);
    rt_free(run.stamps);
    return status;
}
