#include "dispatch/sim/dp_advise.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dispatch/planner/dp_setup.h"
#include "runtime/config/rt_policies.h"
#include "runtime/numbers/rt_optimizer.h"

// Of what is varied, a policy has the most values, or the size of caches has.
#define SIZES 3u
#define VALUES_MAX (RT_POLICY_COUNT > SIZES ? RT_POLICY_COUNT : SIZES)
#define WINDOW "4" // of those that look at one

// What is varied: a key, and the values that are tried.
typedef struct {
    const char *key;
    char values[VALUES_MAX][32];
    uint32_t count;
} axis;

static void add_value(axis *a, const char *value)
{
    rt_assert(a->count < VALUES_MAX);
    snprintf(a->values[a->count++], sizeof *a->values, "%s", value);
}

// Elsewhere rows that do not pass the PS save nothing (docs/REPRODUCTION.md).
static bool is_ps_narrow(const rt_config *config)
{
    const rt_links_config *links = &config->links;
    double sum = 0;
    for (uint32_t j = 0; j < config->worker_count; j++)
        sum +=
            links->given_count ? fmin(links->workers[j].gbps_up, links->workers[j].gbps_down) : 1;
    return links->ps_gbps > 0 && links->ps_gbps < sum;
}

static void make_axes(const rt_config *config, uint32_t cache_rows, axis axes[DP_ADVICE_LINES])
{
    const double sizes[SIZES] = {0.5, 1, 2};
    memset(axes, 0, DP_ADVICE_LINES * sizeof *axes);
    axes[0].key = "dispatch.policy";
#define XX(kind, name, help) add_value(&axes[0], #name);
    RT_POLICY_MAP(XX)
#undef XX
    axes[1].key = "dispatch.participants";
    add_value(&axes[1], "all");
    if (config->worker_count > 1)
        add_value(&axes[1], "auto");
    axes[2].key = "consistency.staleness";
    add_value(&axes[2], "off");
    add_value(&axes[2], "10");
    add_value(&axes[2], "100");
    axes[3].key = "cache.rows";
    for (uint32_t i = 0; i < SIZES; i++) {
        char rows[32];
        snprintf(rows, sizeof rows, "%.0f", sizes[i] * cache_rows);
        add_value(&axes[3], rows);
    }
    axes[4].key = "dispatch.window";
    add_value(&axes[4], "1");
    add_value(&axes[4], WINDOW);
    axes[5].key = "dispatch.hand_over";
    axes[6].key = "dispatch.reduce";
    for (uint32_t a = 5; a < DP_ADVICE_LINES; a++) {
        add_value(&axes[a], "false");
        if (is_ps_narrow(config) || config->dispatch.hand_over || config->dispatch.reduce)
            add_value(&axes[a], "true");
    }
}

static uint32_t combinations(const axis *axes)
{
    uint32_t count = 1;
    for (uint32_t a = 0; a < DP_ADVICE_LINES; a++)
        count *= axes[a].count;
    return count;
}

// The settings of combination `number`, applied to config.
static rt_status choose(const axis *axes, uint32_t number, dp_advice *advice, rt_config *config,
                        rt_error *error)
{
    for (uint32_t a = 0; a < DP_ADVICE_LINES; a++) {
        advice->lines[a][0] = 0;
        if (axes[a].count == 1 && strcmp(axes[a].values[0], "false") == 0)
            continue;
        snprintf(advice->lines[a], sizeof *advice->lines, "%s=%s", axes[a].key,
                 axes[a].values[number % axes[a].count]);
        number /= axes[a].count;
        rt_status status = rt_config_set(config, advice->lines[a], error);
        if (status)
            return status;
    }
    return RT_OK;
}

static void judge(const rt_config *config, const dp_sim_result *result, dp_advice *advice)
{
    const dp_account *account = &result->account;
    const uint32_t dim = config->model.embedding_dim; // the largest
    const uint64_t floats = dim + rt_optimizer_state_floats(&config->optimizer_rows, dim);
    uint64_t bytes = 0;
    for (uint32_t j = 0; j < result->costs.worker_count; j++)
        bytes += account->traffic[j].up + account->traffic[j].down;
    advice->predicted_s = account->predicted_s / (double)account->iterations;
    advice->bytes = (double)bytes / (double)account->iterations;
    advice->cache_bytes = (uint64_t)result->slot_count * floats * sizeof(float);
    advice->participants = result->participants;
    advice->consistency = config->consistency;
}

// A window that changes nothing, what stale copies do not allow or het without them, one of two
// things that go together, and fae where nobody has said which rows are hot, or with what it refuses.
static bool is_vain(const rt_config *config)
{
    const rt_dispatch_config *dispatch = &config->dispatch;
    if (dispatch->hand_over != dispatch->reduce)
        return true;
    if (dp_policy_can(dispatch->policy, DP_POLICY_HOT) &&
        (!config->dispatch_profile[0] || dispatch->hand_over))
        return true;
    if (config->consistency.bounded)
        return dispatch->window > 1 || dispatch->hand_over ||
               dp_policy_can(dispatch->policy, DP_POLICY_FRESH);
    if (dispatch->policy == RT_POLICY_HET)
        return true;
    return dispatch->window > 1 && !dp_policy_can(dispatch->policy, DP_POLICY_WINDOWS);
}

// Whether the combination is one that can run; otherwise it is counted.
static bool is_possible(const dp_sim_config *sim, dp_advices *advices)
{
    dp_planner_config planner = {0};
    if (rt_config_check(sim->config, NULL)) {
        advices->refused++;
        return false;
    }
    const bool fits = !dp_setup(sim->config, sim->schema, sim->distinct_keys, &planner, NULL) &&
                      !dp_setup_hot(sim->config, sim->schema, &planner, NULL) &&
                      !dp_planner_check(&planner, NULL);
    dp_setup_fini(&planner);
    advices->too_small += !fits;
    return fits;
}

// A copy that may lack updates moves once in so many iterations.
static void lengthen(rt_config *config)
{
    const uint32_t iterations = 2 * (config->consistency.staleness + 1);
    if (config->sim_iterations >= iterations)
        return;
    config->sim_iterations = iterations;
    config->sim_warmup = iterations / 2;
}

static void say(const dp_advice *advice, uint32_t number, uint32_t of)
{
    fprintf(stderr, "%" PRIu32 " of %" PRIu32 ":", number, of);
    for (uint32_t l = 0; l < DP_ADVICE_LINES; l++)
        fprintf(stderr, "%s%s", *advice->lines[l] ? " " : "", advice->lines[l]);
    fprintf(stderr, "\n");
}

static rt_status simulate(const dp_sim_config *like, const axis *axes, uint32_t number,
                          dp_advices *advices, rt_error *error)
{
    dp_sim_config sim = *like;
    dp_sim_result result;
    dp_advice *advice = &advices->items[advices->count];
    rt_config config;
    if (rt_config_copy(like->config, &config))
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    sim.config = &config;
    rt_status status = choose(axes, number, advice, &config, error);
    if (!status && (is_vain(&config) || !is_possible(&sim, advices))) {
        rt_config_fini(&config);
        return RT_OK;
    }
    if (!status && sim.progress)
        say(advice, number + 1, combinations(axes));
    lengthen(&config);
    if (!status)
        status = dp_sim_run(&sim, &result, error);
    if (status == RT_DATA && config.sim_iterations > like->config->sim_iterations &&
        result.warmup_iterations > 0) { // nothing but warm-up
        advices->too_short++;
        status = RT_OK;
    } else if (!status) {
        judge(&config, &result, advice);
        advices->count++;
        advices->iterations += result.warmup_iterations + result.account.iterations;
        advices->keys = rt_max_u64(advices->keys, result.directory_keys);
    }
    rt_config_fini(&config);
    return status;
}

static int compare(const void *a, const void *b)
{
    const dp_advice *x = a, *y = b;
    if (x->predicted_s != y->predicted_s)
        return x->predicted_s < y->predicted_s ? -1 : 1;
    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? -1 : 1;
    if (x->cache_bytes != y->cache_bytes)
        return x->cache_bytes < y->cache_bytes ? -1 : 1;
    return memcmp(x->lines, y->lines, sizeof x->lines);
}

// The configuration that all of them start from, for so many iterations.
static rt_status copy_for(const rt_config *from, uint32_t iterations, rt_config *config)
{
    if (rt_config_copy(from, config))
        return RT_NO_MEMORY;
    config->samples_per_worker = rt_config_share(from); // batches as they are once they have grown
    config->sim_iterations = iterations;
    config->sim_warmup = iterations / 2;
    return RT_OK;
}

static rt_status try_all(dp_sim_config *sim, dp_advices *advices, rt_error *error)
{
    dp_planner_config planner;
    axis axes[DP_ADVICE_LINES];
    rt_status status = dp_setup(sim->config, sim->schema, sim->distinct_keys, &planner, error);
    if (status)
        return status;
    make_axes(sim->config, planner.slot_count[0] - planner.overshoot, axes);
    advices->items = rt_alloc(combinations(axes), sizeof *advices->items);
    if (!advices->items)
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    for (uint32_t i = 0; i < combinations(axes); i++) {
        status = simulate(sim, axes, i, advices, error);
        if (status)
            return status;
    }
    if (advices->count > 0)
        return RT_OK;
    status = dp_planner_check(&planner, error); // given caches, and twice as much, are too small
    if (status)
        return status;
    status = rt_config_check(sim->config, error);
    if (status)
        return status;
    return rt_fail(error, RT_DATA,
                   "the input is too short for the simulations whose caches hold a micro-batch");
}

rt_status dp_advise(const dp_sim_config *like, uint32_t iterations, dp_advices *advices,
                    rt_error *error)
{
    dp_sim_config sim = *like;
    rt_config config;
    rt_assert(iterations >= DP_ADVICE_ITERATIONS_MIN);
    memset(advices, 0, sizeof *advices);
    if (copy_for(like->config, iterations, &config))
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    sim.config = &config;
    sim.trace = sim.placements = NULL;
    sim.journal = NULL;
    sim.inputs = NULL;
    const rt_status status = try_all(&sim, advices, error);
    if (advices->count > 0)
        qsort(advices->items, advices->count, sizeof *advices->items, compare);
    rt_config_fini(&config);
    return status;
}

void dp_advices_fini(dp_advices *advices)
{
    rt_free(advices->items);
    *advices = (dp_advices){0};
}

// The larger batch over what the advice sets, and what it is called where batches are counted so.
static rt_status enlarge(const dp_sim_config *sim, const dp_advice *advice, rt_config *config,
                         dp_advice_batch *batch, rt_error *error)
{
    const uint64_t share = (uint64_t)config->samples_per_worker * DP_ADVICE_BATCH;
    const uint64_t rows = share * sim->schema->keys_per_sample_max;
    char line[64];
    rt_status status = RT_OK;
    for (uint32_t l = 0; l < DP_ADVICE_LINES && !status; l++)
        if (*advice->lines[l])
            status = rt_config_set(config, advice->lines[l], error);
    if (sim->config->samples_per_worker > 0)
        snprintf(batch->lines[0], sizeof batch->lines[0], "batch.samples_per_worker=%" PRIu64,
                 share);
    else
        snprintf(batch->lines[0], sizeof batch->lines[0], "batch.samples=%" PRIu64,
                 (uint64_t)rt_config_batch(sim->config, sim->config->worker_count) *
                     DP_ADVICE_BATCH);
    if (config->cache.rows < rows)
        snprintf(batch->lines[1], sizeof batch->lines[1], "cache.rows=%" PRIu64, rows);
    snprintf(line, sizeof line, "batch.samples_per_worker=%" PRIu64, share);
    if (!status)
        status = rt_config_set(config, line, error);
    if (!status && *batch->lines[1])
        status = rt_config_set(config, batch->lines[1], error);
    if (!status)
        status = rt_config_check(config, error);
    return status;
}

rt_status dp_advise_batch(const dp_sim_config *like, uint32_t iterations, const dp_advice *advice,
                          dp_advice_batch *batch, rt_error *error)
{
    dp_sim_config sim = *like;
    dp_sim_result result;
    rt_config config;
    dp_advice larger;
    rt_assert(advice->predicted_s > 0);
    *batch = (dp_advice_batch){0};
    if (copy_for(like->config, iterations, &config))
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    sim.config = &config;
    sim.progress = false;
    rt_status status = enlarge(like, advice, &config, batch, error);
    lengthen(&config);
    if (!status)
        status = dp_sim_run(&sim, &result, error);
    if (!status) {
        judge(&config, &result, &larger);
        batch->rate = DP_ADVICE_BATCH * advice->predicted_s / larger.predicted_s;
    }
    rt_config_fini(&config);
    return status;
}
