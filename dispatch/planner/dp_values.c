// Input records, and the values that they set. See dp_planner.h.
#include <string.h>

#include "dispatch/planner/dp_planner_parts.h"
#include "runtime/config/rt_policies.h"

// Caches count what they hold of each table from the beginning of a run, or never.
void dp_planner_set_tables(rt_dispatch_config *dispatch, uint32_t tables)
{
    if (dispatch->tables > 0)
        dispatch->tables = tables ? tables : RT_FIELDS_MAX;
}

static void set_value(dp_planner_config *config, const dp_input *input)
{
    const dp_input_kind kind = (dp_input_kind)input->kind;
    double *rate = dp_rates_at(&config->rates, kind, input->worker);
    if (rate)
        *rate = input->value;
    else if (kind == DP_INPUT_ALPHA)
        config->dispatch.alpha = input->value;
    else if (kind == DP_INPUT_SEARCH_EVALUATIONS)
        config->dispatch.search_evaluations = (uint32_t)input->value;
    else if (kind == DP_INPUT_TABLES)
        dp_planner_set_tables(&config->dispatch, (uint32_t)input->value);
    else if (kind == DP_INPUT_POLICY)
        config->dispatch.policy = (rt_policy_kind)rt_policy_of_number((uint32_t)input->value);
    else if (kind == DP_INPUT_PARTICIPATES && input->value > 0)
        config->participants |= rt_bit(input->worker);
    else if (kind == DP_INPUT_PARTICIPATES)
        config->participants &= ~rt_bit(input->worker);
    else if (kind == DP_INPUT_LOST && input->value > 0)
        config->lost |= rt_bit(input->worker);
}

// What only a worker that is lost has in its latest version is lost with it. Its other copies stay
// in the books until their slots' keys end: nobody reads them, for it trains no more.
static bool has_lost_rows(const dp_planner *planner, uint64_t lost)
{
    for (uint64_t rest = lost; rest; rest &= rest - 1) {
        const uint32_t worker = rt_lowest_bit(rest);
        for (uint32_t slot = 0; slot < planner->own.caches[worker].slot_count; slot++)
            if (dp_planner_dirty_in(planner, worker, slot))
                return true;
    }
    return false;
}

rt_status dp_planner_enter_inputs(dp_planner *planner)
{
    uint32_t count = 0;
    const uint64_t lost_before = planner->config.lost;
    while (count < planner->inputs.waiting_count &&
           planner->inputs.waiting[count].iteration <= planner->iteration)
        set_value(&planner->config, &planner->inputs.waiting[count++]);
    if (count == 0)
        return RT_OK;
    if (has_lost_rows(planner, planner->config.lost & ~lost_before))
        return RT_PEER;
    planner->inputs.waiting_count -= count;
    memmove(planner->inputs.waiting, planner->inputs.waiting + count,
            planner->inputs.waiting_count * sizeof *planner->inputs.waiting);
    rt_status status = dp_planner_switch(planner, NULL);
    if (!status)
        dp_planner_recompute(planner);
    return status;
}

rt_status dp_planner_apply(dp_planner *planner, dp_input *input, rt_error *error)
{
    rt_status status = dp_input_check(input, planner->config.worker_count, error);
    if (!status && input->kind == DP_INPUT_POLICY)
        status = dp_planner_can_switch(
            planner, (rt_policy_kind)rt_policy_of_number((uint32_t)input->value), error);
    if (status)
        return status;
    if (planner->inputs.waiting_count == DP_INPUTS_WAITING_MAX)
        return rt_fail(error, RT_AGAIN, "%u input records wait for their iteration",
                       DP_INPUTS_WAITING_MAX);
    if (input->iteration <= planner->iteration)
        input->iteration = planner->iteration + 1;
    input->number = ++planner->inputs.taken;
    uint32_t at = planner->inputs.waiting_count++;
    for (; at > 0 && planner->inputs.waiting[at - 1].iteration > input->iteration; at--)
        planner->inputs.waiting[at] = planner->inputs.waiting[at - 1];
    planner->inputs.waiting[at] = *input;
    return RT_OK;
}

double dp_planner_value(const dp_planner *planner, dp_input_kind kind, uint32_t worker)
{
    const dp_planner_config *config = &planner->config;
    const uint32_t count = kind == DP_INPUT_SHARD_LINK ? RT_SHARDS_MAX : config->worker_count;
    rt_assert(worker < count);
    const double *rate = dp_rates_at((dp_rates *)&config->rates, kind, worker); // only read
    if (rate)
        return *rate;
    if (kind == DP_INPUT_ALPHA)
        return config->dispatch.alpha;
    if (kind == DP_INPUT_SEARCH_EVALUATIONS)
        return config->dispatch.search_evaluations;
    if (kind == DP_INPUT_POLICY)
        return rt_policy_number(config->dispatch.policy);
    if (kind == DP_INPUT_PARTICIPATES)
        return (double)(planner->participants >> worker & 1);
    if (kind == DP_INPUT_LOST)
        return (double)(config->lost >> worker & 1);
    return kind == DP_INPUT_TABLES ? config->dispatch.tables : 0;
}

const dp_planner_config *dp_planner_configuration(const dp_planner *planner)
{
    return &planner->config;
}

const dp_rates *dp_planner_rates(const dp_planner *planner)
{
    return &planner->config.rates;
}

dp_rates dp_planner_rates_told(const dp_planner *planner)
{
    dp_rates rates = planner->config.rates;
    for (uint32_t i = 0; i < planner->inputs.waiting_count; i++) {
        const dp_input *one = &planner->inputs.waiting[i];
        double *rate = dp_rates_at(&rates, (dp_input_kind)one->kind, one->worker);
        if (rate)
            *rate = one->value;
    }
    return rates;
}

static void apply_next(dp_planner *planner, dp_input_kind kind, uint32_t worker, double value)
{
    dp_input input = {.kind = kind, .worker = worker, .value = value};
    rt_status status = dp_planner_apply(planner, &input, NULL);
    rt_assert(status == RT_OK);
}

void dp_planner_set_alpha(dp_planner *planner, double alpha)
{
    apply_next(planner, DP_INPUT_ALPHA, 0, alpha);
}

void dp_planner_set_link(dp_planner *planner, uint32_t worker, dp_link link)
{
    apply_next(planner, DP_INPUT_LINK_UP, worker, link.up_bytes_per_s);
    apply_next(planner, DP_INPUT_LINK_DOWN, worker, link.down_bytes_per_s);
}
