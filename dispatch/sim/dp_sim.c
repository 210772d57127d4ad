#include "dispatch/sim/dp_sim.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "dispatch/planner/dp_controller.h"
#include "dispatch/cache/dp_lookahead.h"
#include "dispatch/planner/dp_participants.h"
#include "dispatch/planner/dp_setup.h"
#include "dispatch/planner/dp_sweep.h"
#include "dispatch/plan/dp_trace.h"
#include "runtime/metrics/rt_latency.h"

#define PROGRESS_NS UINT64_C(500000000)

typedef struct {
    const dp_sim_config *sim;
    rt_stream *stream;
    rt_repeats *repeats;                    // NULL: batches do not grow, or their records are there
    rt_batch batches[DP_LOOKAHEAD_MAX + 1]; // a ring: the one to plan, and those ahead of it
    uint32_t ring;                          // of them
    uint32_t first, ahead;
    uint64_t read_count; // batches
    bool ended;
    rt_batch *batch; // the first
    dp_planner_config planning;
    dp_planner *planner;
    rt_pool *pool;
    uint64_t preview_ns;         // since the last plan
    uint64_t choice_ns;          // of participants, for the next plan
    uint64_t longest_ns;         // choice and decision
    rt_latency decision, commit; // times of them
    uint64_t planning_ns, planned_samples;
    uint64_t begin_ns, shown_ns;
    dp_account_config costs; // in force, where result->costs is what the run began with
    dp_decisions decisions;
    dp_controller controller;
    dp_participants *chooser; // NULL: nobody chooses
    rt_metrics *journal;
    uint32_t inputs_done; // of sim->inputs
} simulation;

rt_status dp_sim_apply_spec(rt_config *config, const char *spec, rt_error *error)
{
    char part[RT_PATH_MAX]; // profile=FILE
    for (const char *at = spec; at; at = *at ? at + 1 : NULL) {
        size_t length = strcspn(at, ":");
        char key[sizeof part + 32];
        if (length == 0 || length >= sizeof part)
            return rt_fail(error, RT_CONFIG, "policy \"%s\": expected name[:key=value]...", spec);
        memcpy(part, at, length);
        part[length] = '\0';
        if (at == spec)
            snprintf(key, sizeof key, "dispatch.policy=%s", part);
        else
            snprintf(key, sizeof key, "dispatch.%s", part);
        if (rt_config_set(config, key, error))
            return rt_fail_in(error, "policy \"%s\"", spec);
        at += length;
        if (*at == '\0')
            break;
    }
    return RT_OK;
}

static double quantile_ms(const rt_latency *times, double share)
{
    return (double)rt_latency_quantile_ns(times, share) * 1e-6;
}

static rt_status apply_input(simulation *s, dp_input *input, rt_error *error)
{
    rt_status status = dp_planner_apply(s->planner, input, error);
    dp_account_apply(input, &s->costs);
    if (s->chooser)
        dp_participants_apply(s->chooser, input);
    return status;
}

// Records that say who trains are those of a run in which somebody chose.
static bool inputs_name_participants(const dp_inputs *inputs)
{
    for (uint32_t i = 0; inputs && i < inputs->count; i++) {
        if (inputs->items[i].kind == DP_INPUT_PARTICIPATES)
            return true;
    }
    return false;
}

// The set that trains the next batch.
static rt_status choose(simulation *s, rt_error *error)
{
    dp_input records[RT_WORKERS_MAX];
    uint32_t count;
    if (!s->chooser)
        return RT_OK;
    const uint64_t begin = rt_now_ns();
    rt_status status =
        dp_participants_next(s->chooser, s->batch, dp_planner_participants(s->planner),
                             dp_planner_row_count(s->planner), records, &count);
    s->choice_ns = rt_now_ns() - begin;
    if (status)
        return rt_fail(error, status, "out of memory while the participants are chosen");
    for (uint32_t i = 0; i < count; i++) {
        status = apply_input(s, &records[i], error);
        if (status)
            return status;
        dp_journal_write(s->journal, &records[i]);
    }
    return RT_OK;
}

static rt_status apply_journal(simulation *s, uint64_t iteration, rt_error *error)
{
    const dp_inputs *inputs = s->sim->inputs;
    for (; s->inputs_done < inputs->count; s->inputs_done++) {
        dp_input input = inputs->items[s->inputs_done];
        if (input.iteration > iteration)
            return RT_OK;
        const rt_status status = apply_input(s, &input, error);
        if (status)
            return status;
    }
    return RT_OK;
}

// Records come into force with the look-up that follows: those of the journal that is replayed, or
// those of the controllers.
static rt_status apply_inputs(simulation *s, uint64_t iteration, rt_error *error)
{
    dp_input input;
    if (s->sim->inputs)
        return apply_journal(s, iteration, error);
    while (dp_controller_next(&s->controller, &input)) {
        const rt_status status = apply_input(s, &input, error);
        if (status)
            return status;
        dp_journal_write(s->journal, &input);
    }
    return RT_OK;
}

// Of a run that is planned again its records name all batches that were not full.
static uint32_t samples_of_next(const simulation *s)
{
    const rt_config *config = s->sim->config;
    if (!s->sim->inputs)
        return rt_config_batch_after(config, config->worker_count,
                                     rt_stream_statistics(s->stream).samples);
    return dp_inputs_samples(s->sim->inputs, s->read_count + 1,
                             rt_config_batch(config, config->worker_count));
}

// Reads until cache.lookahead batches are known behind the one that is planned next. RT_END: there
// is none to plan.
static rt_status read_ahead(simulation *s, rt_error *error)
{
    const rt_config *config = s->sim->config;
    uint64_t limit = DP_ITERATIONS_MAX;
    if (config->sim_iterations)
        limit = rt_min_u64(config->sim_iterations, limit);
    while (s->ahead <= rt_config_batches_ahead(config) && !s->ended && s->read_count < limit) {
        rt_batch *batch = &s->batches[(s->first + s->ahead) % s->ring];
        const uint32_t samples = samples_of_next(s);
        const rt_status status = rt_stream_read(s->stream, batch, samples, error);
        s->ended = status == RT_END;
        if (s->ended)
            break;
        if (status)
            return status;
        if (rt_tables_fold(&rt_stream_schema(s->stream)->tables, batch))
            return rt_fail(error, RT_NO_MEMORY, "out of memory for a batch");
        s->read_count++;
        s->ahead++;
        uint64_t begin = rt_now_ns();
        if (dp_planner_preview(s->planner, batch))
            return rt_fail(error, RT_NO_MEMORY, "out of memory for a batch that is ahead");
        s->preview_ns += rt_now_ns() - begin;
    }
    s->batch = &s->batches[s->first];
    if (!s->ahead)
        return RT_END;
    return RT_OK;
}

static rt_status plan_batch(simulation *s, bool counted, const dp_plan **plan_p)
{
    uint64_t begin = rt_now_ns();
    rt_status status = dp_planner_look_up(s->planner, s->batch);
    if (status)
        return status;
    uint64_t looked_up = rt_now_ns();
    dp_planner_place(s->planner);
    uint64_t decided = rt_now_ns();
    status = dp_planner_commit(s->planner, plan_p);
    uint64_t end = rt_now_ns() + s->preview_ns;
    s->preview_ns = 0;
    const dp_decision *decision = dp_planner_decision(s->planner);
    dp_controller_decided(&s->controller, decision, (double)(decided - begin) * 1e-9,
                          (double)(decided - looked_up) * 1e-9);
    if (status || !counted)
        return status;
    dp_decisions_add(&s->decisions, decision, s->batch->sample_count);
    s->planning_ns += s->choice_ns + end - begin;
    s->longest_ns = rt_max_u64(s->longest_ns, s->choice_ns + decided - begin);
    s->planned_samples += s->batch->sample_count;
    rt_latency_add(&s->decision, decided - begin);
    rt_latency_add(&s->commit, end - decided);
    return RT_OK;
}

static void show_progress(simulation *s, uint64_t iteration, uint64_t samples, bool last)
{
    uint64_t now = rt_now_ns();
    if (!s->sim->progress || (!last && now - s->shown_ns < PROGRESS_NS))
        return;
    s->shown_ns = now;
    fprintf(stderr, "\r%" PRIu64 " iterations, %" PRIu64 " samples, %.0f samples/s%s", iteration,
            samples, (double)samples * 1e9 / (double)(now - s->begin_ns + 1), last ? "\n" : "   ");
}

static void take_plan(simulation *s, const dp_plan *plan, dp_sim_result *result)
{
    dp_account one = {0};
    if (s->sim->trace)
        dp_trace_plan(s->sim->trace, plan);
    dp_account_add(&s->costs, plan, &one);
    dp_controller_iterated(&s->controller, one.predicted_s);
    result->fingerprint = dp_fingerprint_add(result->fingerprint, dp_plan_fingerprint(plan));
    if (plan->iteration > s->sim->config->sim_warmup)
        dp_account_add(&s->costs, plan, &result->account);
}

// As a run does it, between two batches.
static rt_status sweep(simulation *s, dp_sim_result *result)
{
    uint32_t floor;
    uint64_t ended = 0;
    const dp_plan *plan;
    if (!dp_sweep_due(s->planner, &floor))
        return RT_OK;
    const rt_status status = dp_sweep(s->planner, floor, &plan, &ended);
    result->sweeps++;
    result->rows_ended += ended;
    return status;
}

// The batch that is due, up to its plan. RT_NO_MEMORY.
static rt_status plan_one(simulation *s, bool counted, dp_sim_result *result,
                          const dp_plan **plan_p, rt_error *error)
{
    uint32_t refused;
    rt_status status = sweep(s, result);
    if (status)
        return status;
    status = dp_planner_admit(s->planner, s->batch, &refused);
    if (status)
        return status;
    status = choose(s, error);
    if (status)
        return status;
    return plan_batch(s, counted, plan_p);
}

static rt_status simulate(simulation *s, dp_sim_result *result, rt_error *error)
{
    const rt_config *config = s->sim->config;
    uint64_t iteration = 0, samples = 0;
    s->begin_ns = s->shown_ns = rt_now_ns();
    for (;;) {
        const dp_plan *plan;
        rt_status status = read_ahead(s, error);
        if (status == RT_END)
            break;
        if (status)
            return status;
        status = apply_inputs(s, iteration + 1, error);
        if (status)
            return status;
        status = plan_one(s, iteration >= config->sim_warmup, result, &plan, error);
        if (status)
            return rt_fail(error, status, "out of memory while planning iteration %" PRIu64,
                           iteration + 1);
        iteration++;
        if (s->sim->placements)
            dp_trace_placement(s->sim->placements, (uint32_t)iteration, s->batch,
                               dp_planner_placement(s->planner));
        samples += s->batch->sample_count;
        s->first = (s->first + 1) % s->ring;
        s->ahead--;
        take_plan(s, plan, result);
        show_progress(s, iteration, samples, false);
    }
    show_progress(s, iteration, samples, true);
    result->warmup_iterations = iteration - result->account.iterations;
    if (result->account.iterations == 0)
        return rt_fail(error, RT_DATA,
                       "the input has %" PRIu64 " batches, not more than the warm-up of %" PRIu32
                       " (sim.warmup)",
                       iteration, config->sim_warmup);
    return RT_OK;
}

static void finish(simulation *s, dp_sim_result *result)
{
    result->decision_ms_p50 = quantile_ms(&s->decision, 0.5);
    result->decision_ms_p99 = quantile_ms(&s->decision, 0.99);
    result->decision_ms_max = (double)s->longest_ns * 1e-6;
    result->commit_ms_p50 = quantile_ms(&s->commit, 0.5);
    result->planned_samples_per_s =
        s->planning_ns ? (double)s->planned_samples * 1e9 / (double)s->planning_ns : 0;
    result->directory_keys = dp_planner_directory(s->planner)->key_count;
    result->decisions = s->decisions;
    result->participants = dp_planner_participants(s->planner);
    result->directory_bytes = dp_directory_bytes(dp_planner_directory(s->planner));
}

static rt_status open_planner(simulation *s, const dp_planner_config *planner, rt_error *error)
{
    const dp_sim_config *sim = s->sim;
    rt_status status = rt_metrics_open(sim->journal, &s->journal, error);
    if (status)
        return status;
    status = dp_planner_create(planner, &s->planner, error);
    if (status)
        return status;
    status = dp_setup_threads(sim->config, &s->pool, error);
    if (status)
        return status;
    if (dp_planner_set_pool(s->planner, s->pool))
        return rt_fail(error, RT_NO_MEMORY, "out of memory for the planner's threads");
    if (inputs_name_participants(sim->inputs))
        return RT_OK;
    return dp_participants_open(planner, NULL, NULL, &s->chooser, error);
}

static rt_status open_repeats(simulation *s, rt_error *error)
{
    const rt_config *config = s->sim->config;
    const uint32_t samples = rt_config_batch(config, config->worker_count);
    if (s->sim->inputs || !rt_config_batch_grows(config))
        return RT_OK;
    if (rt_repeats_create(samples, s->sim->schema->keys_per_sample_max, &s->repeats))
        return rt_fail(error, RT_NO_MEMORY, "out of memory for a simulation");
    rt_stream_end_batches(s->stream, s->repeats);
    return RT_OK;
}

static rt_status run(simulation *s, dp_sim_result *result, rt_error *error)
{
    const dp_sim_config *sim = s->sim;
    const uint64_t dense_bytes = sim->config->sim_dense ? sim->dense_bytes : 0;
    dp_planner_config *planner = &s->planning;
    rt_status status = dp_setup(sim->config, sim->schema, sim->distinct_keys, planner, error);
    if (!status)
        status = dp_setup_hot(sim->config, sim->schema, planner, error);
    if (status)
        return status;
    dp_setup_dense(sim->config, dense_bytes, planner);
    planner->measure_error = sim->config->sim_dispatch_error;
    status = open_planner(s, planner, error);
    if (status)
        return status;
    status = rt_stream_open(&sim->config->stream, sim->config->seed, &s->stream, error);
    if (status)
        return status;
    status = open_repeats(s, error);
    if (status)
        return status;
    dp_account_init(planner, &result->costs);
    dp_controller_init(sim->config, &s->controller);
    s->costs = result->costs;
    result->slot_count = planner->slot_count[0] - planner->overshoot;
    status = simulate(s, result, error);
    if (status)
        return status;
    finish(s, result);
    return RT_OK;
}

rt_status dp_sim_run(const dp_sim_config *sim, dp_sim_result *result, rt_error *error)
{
    simulation s = {.sim = sim, .ring = rt_config_batches_ahead(sim->config) + 1};
    memset(result, 0, sizeof *result);
    for (uint32_t i = 0; i < s.ring; i++)
        rt_batch_init(&s.batches[i], sim->schema->dense_count);
    const rt_status status = run(&s, result, error);
    rt_stream_close(s.stream);
    rt_repeats_destroy(s.repeats);
    for (uint32_t i = 0; i < s.ring; i++)
        rt_batch_fini(&s.batches[i]);
    dp_planner_destroy(s.planner);
    rt_pool_destroy(s.pool);
    dp_participants_destroy(s.chooser);
    dp_setup_fini(&s.planning);
    rt_metrics_close(s.journal);
    return status;
}
