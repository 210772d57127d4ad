// How fast the planner can be asked to plan: what makespan's search saves by the evaluations that
// it may spend, and what a budget in time leaves of that at a demand in samples per second.
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/bench/dispatch/dp_bench.h"
#include "dispatch/planner/dp_account.h"
#include "dispatch/planner/dp_controller.h"

#define WORKERS 8u
#define SCALE 0.02
#define EVALUATIONS 8u // per sample: more hardly change a placement

typedef struct {
    const char *file;
    uint32_t samples_per_worker;
    uint32_t warm_up, iterations; // batches before those that count, in which a budget settles
    char policy[64];
    double budget_ms; // of a placement; 0: none
} demand_case;

typedef struct {
    double predicted_s;               // per iteration
    double plan_ms, noise, beside_ms; // of a batch; beside: look-up and commit
    double evaluations;               // per batch, spent
    uint32_t batch_size;
} demand_result;

static rt_status apply_records(dp_bench_case *one, dp_controller *controller, rt_error *error)
{
    dp_input input;
    while (dp_controller_next(controller, &input)) {
        const rt_status status = dp_planner_apply(one->planner, &input, error);
        if (status)
            return status;
    }
    return RT_OK;
}

typedef struct {
    dp_bench_times all, beside;
    dp_account account;
    uint64_t evaluations;
} demand_sums;

static rt_status plan_one(dp_bench_case *one, dp_controller *controller, demand_sums *sums,
                          const dp_account_config *costs, rt_error *error)
{
    const dp_plan *plan;
    rt_status status = apply_records(one, controller, error);
    if (!status)
        status = dp_bench_read(one, error);
    if (status)
        return status;
    const uint64_t begin = dp_bench_now_ns();
    if (dp_planner_look_up(one->planner, &one->batch))
        return rt_fail(error, RT_NO_MEMORY, "out of memory for the directory");
    const uint64_t looked_up = dp_bench_now_ns();
    dp_planner_place(one->planner);
    const uint64_t placed = dp_bench_now_ns();
    if (dp_planner_commit(one->planner, &plan))
        return rt_fail(error, RT_NO_MEMORY, "out of memory for a plan");
    const uint64_t end = dp_bench_now_ns();
    const dp_decision *decision = dp_planner_decision(one->planner);
    dp_controller_decided(controller, decision, (double)(placed - begin) * 1e-9,
                          (double)(placed - looked_up) * 1e-9);
    if (!sums)
        return RT_OK;
    dp_bench_add(&sums->all, end - begin);
    dp_bench_add(&sums->beside, end - begin - (placed - looked_up));
    sums->evaluations += decision->evaluations;
    if (plan)
        dp_account_add(costs, plan, &sums->account);
    return RT_OK;
}

static rt_status measure_plans(const demand_case *asked, dp_bench_case *one, demand_sums *sums,
                               rt_error *error)
{
    dp_controller controller;
    dp_account_config costs;
    one->config.dispatch.budget_ms = asked->budget_ms;
    dp_controller_init(&one->config, &controller);
    dp_account_init(&one->planner_config, &costs);
    for (uint32_t i = 0; i < asked->warm_up + asked->iterations; i++) {
        const rt_status status =
            plan_one(one, &controller, i < asked->warm_up ? NULL : sums, &costs, error);
        if (status)
            return status;
    }
    return RT_OK;
}

static rt_status measure_demand(const demand_case *asked, demand_result *result, rt_error *error)
{
    static demand_sums sums; // times of a thousand batches: too large for a stack
    dp_bench_case one;
    const dp_bench_shape shape = {.worker_count = WORKERS,
                                  .samples_per_worker = asked->samples_per_worker,
                                  .scale = SCALE,
                                  .policy = asked->policy,
                                  .file = asked->file};
    sums = (demand_sums){0};
    rt_status status = dp_bench_open(&shape, &one, error);
    if (status)
        return status;
    status = measure_plans(asked, &one, &sums, error);
    if (!status)
        *result = (demand_result){.predicted_s = sums.account.predicted_s /
                                                 (double)rt_max_u64(sums.account.iterations, 1),
                                  .plan_ms = dp_bench_ms(&sums.all, 0.5),
                                  .noise = dp_bench_noise(&sums.all),
                                  .beside_ms = dp_bench_ms(&sums.beside, 0.5),
                                  .evaluations = (double)sums.evaluations / asked->iterations,
                                  .batch_size = one.batch_size};
    dp_bench_close(&one);
    return status;
}

typedef struct {
    demand_result esd, all;
} references;

static void report_demand(const dp_bench *bench, const demand_case *asked, double demand,
                          const references *known, const demand_result *result)
{
    const double gain = known->esd.predicted_s - known->all.predicted_s;
    char policy[sizeof asked->policy];
    snprintf(policy, sizeof policy, "%.*s", (int)strcspn(asked->policy, ":"), asked->policy);
    rt_report_number(bench->report, "N", result->batch_size, 0);
    rt_report_text(bench->report, "policy", policy);
    rt_report_number(bench->report, "asked/s", demand > 0 ? demand : NAN, 0);
    rt_report_number(bench->report, "budget_ms", demand > 0 ? asked->budget_ms : NAN, 2);
    rt_report_number(bench->report, "evaluations", result->evaluations, 0);
    rt_report_number(bench->report, "plan_ms", result->plan_ms, 2);
    rt_report_number(bench->report, "noise%", result->noise, 0);
    rt_report_number(bench->report, "samples/s", result->batch_size * 1e3 / result->plan_ms, 0);
    rt_report_number(bench->report, "predicted_ms", result->predicted_s * 1e3, 2);
    rt_report_number(bench->report, "gain_%",
                     100 * (known->esd.predicted_s - result->predicted_s) / gain, 1);
    rt_report_end_row(bench->report);
}

static rt_status demand_row(const dp_bench *bench, demand_case *asked, uint32_t evaluations,
                            double demand, const references *known, rt_error *error)
{
    demand_result result;
    snprintf(asked->policy, sizeof asked->policy, "makespan:search_evaluations=%" PRIu32,
             evaluations);
    rt_status status = measure_demand(asked, &result, error);
    if (!status)
        report_demand(bench, asked, demand, known, &result);
    return status;
}

// What is not the placement takes its time first. Where nothing is left the budget is as short as
// it can be: the search then has the fewest evaluations that a budget leaves.
static rt_status rows_of_demands(const dp_bench *bench, demand_case *asked, const references *known,
                                 rt_error *error)
{
    static const double demands[] = {0.25e6, 0.5e6, 1e6, 2e6, 4e6};
    for (size_t k = 0; k < RT_COUNT_OF(demands); k++) {
        const double left_ms = known->all.batch_size * 1e3 / demands[k] - known->all.beside_ms;
        asked->budget_ms = fmax(left_ms, 0.01);
        const rt_status status =
            demand_row(bench, asked, EVALUATIONS * known->all.batch_size, demands[k], known, error);
        if (status)
            return status;
    }
    asked->budget_ms = 0;
    return RT_OK;
}

// esd alone, and makespan with all evaluations that it makes use of.
static rt_status measure_references(const dp_bench *bench, demand_case *asked, references *known,
                                    rt_error *error)
{
    snprintf(asked->policy, sizeof asked->policy, "esd");
    rt_status status = measure_demand(asked, &known->esd, error);
    const demand_case esd = *asked;
    snprintf(asked->policy, sizeof asked->policy, "makespan:search_evaluations=%" PRIu32,
             EVALUATIONS * WORKERS * asked->samples_per_worker);
    if (!status)
        status = measure_demand(asked, &known->all, error);
    if (status)
        return status;
    report_demand(bench, &esd, 0, known, &known->esd);
    report_demand(bench, asked, 0, known, &known->all);
    return RT_OK;
}

static rt_status rows_of(const dp_bench *bench, uint32_t samples_per_worker, rt_error *error)
{
    static const double per_sample[] = {4, 2, 1, 0.5, 0.25, 0};
    const double size = WORKERS * samples_per_worker;
    references known;
    demand_case asked = {.file = bench->file,
                         .samples_per_worker = samples_per_worker,
                         .warm_up = dp_bench_count(bench, 8, 6 * DP_CONTROLLER_SEARCH),
                         .iterations = dp_bench_count(bench, 4, 2 * DP_CONTROLLER_SEARCH)};
    rt_status status = measure_references(bench, &asked, &known, error);
    if (status)
        return status;
    for (size_t k = 0; k < RT_COUNT_OF(per_sample); k++) {
        status = demand_row(bench, &asked, (uint32_t)(per_sample[k] * size), 0, &known, error);
        if (status)
            return status;
    }
    return rows_of_demands(bench, &asked, &known, error);
}

rt_status dp_bench_demand(const dp_bench *bench, rt_error *error)
{
    rt_report_begin(bench->report, "demand",
                    "Samples per second that are asked of the planner, and what makespan saves");
    rt_status status = rows_of(bench, dp_bench_count(bench, 16, 128), error);
    if (!status && !bench->quick)
        status = rows_of(bench, 1024, error);
    rt_report_note(bench->report,
                   "n = %u, synthetic Criteo rows unless there is a file, medians of processor "
                   "time: planning is the work of one thread. evaluations: of the search, per "
                   "batch. asked: dispatch.budget_ms is what look-up and commit leave of a batch's "
                   "time. predicted: an iteration, on average. gain: how much of what a search of "
                   "up to %u evaluations per sample saves over esd.",
                   WORKERS, EVALUATIONS);
    rt_report_end(bench->report);
    return status;
}
