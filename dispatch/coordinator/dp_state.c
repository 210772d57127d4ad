#include "dispatch/coordinator/dp_state.h"

#include <inttypes.h>

#include "dispatch/planner/dp_setup.h"
#include "runtime/stream/rt_ids.h"
#include "runtime/stream/rt_position.h"
#include "runtime/stream/rt_stream.h"

#define KEYS_MIN 1024u // that a cache is a share of, where nobody counts the input

rt_status dp_state_open(const rt_bytes *state, rt_bytes *position, rt_reader *planner,
                        rt_reader *rest, rt_error *error)
{
    *rest = rt_bytes_reader(state);
    const uint64_t size = rt_reader_u64(rest);
    const void *bytes = rt_reader_take(rest, size, 1);
    *planner = (rt_reader){.failed = true};
    if (bytes)
        *planner = (rt_reader){bytes, size, false};
    if (rt_position_take(planner, position))
        return rt_position_check(position, error);
    if (position->failed)
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    return rt_fail(error, RT_DATA, "the position in the stream is missing");
}

static rt_status take_scale(rt_reader *rest, uint32_t dense_count, rt_scale **scale_p,
                            rt_error *error)
{
    if (rest->left == 0 || rt_ids_are_next(rest) || rt_stream_waiting_is_next(rest) ||
        rt_base_rate_is_next(rest))
        return RT_OK;
    if (rt_scale_create(dense_count, 0, scale_p))
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    const rt_status status = rt_scale_load(*scale_p, rest, error);
    if (status) {
        rt_scale_destroy(*scale_p);
        *scale_p = NULL;
    }
    return status;
}

rt_status dp_state_take_rest(rt_reader *rest, dp_tally *tally, const rt_config *config,
                             uint32_t dense_count, dp_state_rest *out, rt_error *error)
{
    rt_bytes_clear(&out->waiting);
    rt_bytes_clear(&out->ids);
    rt_status status = dp_tally_load(tally, rest, error);
    if (status)
        return status;
    status = take_scale(rest, dense_count, &out->scale, error);
    if (status)
        return status;
    if (!rt_stream_take_waiting(rest, &out->waiting))
        return rt_fail(error, RT_DATA, "the events that wait (stream.join) are cut off");
    rt_base_rate_init(&out->rate, config, false);
    status = rt_base_rate_load(&out->rate, rest, error);
    if (status)
        return status;
    rt_bytes_put(&out->ids, rest->next, rest->left);
    return RT_OK;
}

void dp_state_rest_fini(dp_state_rest *rest)
{
    rt_scale_destroy(rest->scale);
    rt_bytes_fini(&rest->waiting);
    rt_bytes_fini(&rest->ids);
    *rest = (dp_state_rest){0};
}

// ---- whether a run could go on ---------------------------------------------------------------

rt_status dp_state_check_begin(const rt_config *config, const rt_schema *schema,
                               dp_state_check *check, rt_error *error)
{
    const uint64_t keys = rt_max_u64(config->cache.distinct_keys, KEYS_MIN);
    *check = (dp_state_check){.config = config, .schema = *schema};
    const rt_status status = dp_setup(config, schema, keys, &check->planner_config, error);
    if (status)
        return status;
    return dp_planner_create(&check->planner_config, &check->planner, error);
}

rt_status dp_state_check_row(dp_state_check *check, uint64_t key, uint32_t version, uint32_t shard,
                             rt_error *error)
{
    const rt_status status = dp_planner_know(check->planner, key, version, shard);
    if (status)
        return rt_fail(error, status, "key %016" PRIx64 ": %s", key, rt_status_text(status));
    return RT_OK;
}

static rt_status check_rest(const dp_state_check *check, rt_reader *rest, rt_error *error)
{
    dp_tally_config config = {.config = check->config, .dense_count = check->schema.dense_count};
    dp_state_rest beside = {0};
    dp_tally *tally;
    dp_account_init(&check->planner_config, &config.costs);
    rt_status status = dp_tally_create(&config, &tally, error);
    if (status)
        return status;
    status =
        dp_state_take_rest(rest, tally, check->config, check->schema.dense_count, &beside, error);
    dp_state_rest_fini(&beside);
    dp_tally_destroy(tally);
    return status;
}

rt_status dp_state_check_end(dp_state_check *check, const rt_bytes *state, uint32_t iteration,
                             rt_error *error)
{
    rt_bytes position = {0};
    rt_reader planner, rest;
    dp_restored restored = {0};
    rt_status status = dp_state_open(state, &position, &planner, &rest, error);
    rt_bytes_fini(&position);
    if (!status)
        status = dp_planner_load(check->planner, &planner, true, &restored, error);
    rt_bytes_fini(&restored.lineup);
    if (!status && restored.iteration != iteration)
        status = rt_fail(error, RT_DATA, "state of the planner: of another iteration");
    if (!status)
        status = check_rest(check, &rest, error);
    return status;
}

void dp_state_check_fini(dp_state_check *check)
{
    if (check->planner)
        dp_planner_destroy(check->planner);
    *check = (dp_state_check){0};
}
