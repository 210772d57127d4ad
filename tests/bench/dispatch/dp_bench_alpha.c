// What a decision of ESD takes by its share alpha, and what the placement costs: HybridDis as
// printed and refined, with the solvers that solve its share.
#include <inttypes.h>
#include <stdio.h>

#include "dispatch/solvers/dp_solver.h"
#include "tests/bench/dispatch/dp_bench.h"

#define WORKERS 8u
#define SCALE 0.02
#define WARMUP_SAMPLES 65536u // before a decision is measured
#define SAMPLES 131072u       // of the batches that are measured

static const char *const hybrids[] = {"paper", "refine"};
static const double alphas[] = {0, 0.125, 0.25, 0.5, 0.75, 1};

typedef struct {
    dp_bench_case one;
    int32_t *cost;
    int64_t total; // of the placements' matrices, in ticks
    dp_bench_times times;
} decisions;

static void add_cost(decisions *all)
{
    const dp_view *view = dp_planner_view(all->one.planner);
    const dp_problem problem = {view->sample_count, view->worker_count, WORKERS, all->cost,
                                view->capacity};
    dp_cost_matrix(view, all->cost, WORKERS);
    all->total += dp_placement_cost(&problem, dp_planner_placement(all->one.planner));
}

static rt_status decide(decisions *all, rt_error *error)
{
    const dp_plan *plan;
    const rt_status status = dp_bench_look_up(&all->one, error);
    if (status)
        return status;
    const uint64_t begin = dp_bench_now_ns();
    dp_planner_place(all->one.planner);
    dp_bench_add(&all->times, dp_bench_now_ns() - begin);
    add_cost(all);
    if (dp_planner_commit(all->one.planner, &plan))
        return rt_fail(error, RT_NO_MEMORY, "out of memory for a plan");
    return RT_OK;
}

static rt_status decide_all(const dp_bench *bench, uint32_t samples_per_worker, const char *policy,
                            decisions *all, rt_error *error)
{
    const dp_bench_shape shape = {.worker_count = WORKERS,
                                  .samples_per_worker = samples_per_worker,
                                  .scale = SCALE,
                                  .policy = policy,
                                  .file = bench->file};
    const uint32_t batch = WORKERS * samples_per_worker;
    rt_status status = dp_bench_open(&shape, &all->one, error);
    if (status)
        return status;
    all->cost = rt_alloc((size_t)batch * WORKERS, sizeof *all->cost);
    const uint32_t warmup = dp_bench_count(bench, 2, WARMUP_SAMPLES / batch);
    status = all->cost ? dp_bench_advance(&all->one, warmup, error)
                       : rt_fail(error, RT_NO_MEMORY, "out of memory for a matrix");
    const uint32_t count = dp_bench_count(bench, 3, SAMPLES / batch);
    for (uint32_t i = 0; !status && i < count; i++)
        status = decide(all, error);
    rt_free(all->cost);
    dp_bench_close(&all->one);
    return status;
}

static rt_status row(const dp_bench *bench, uint32_t samples_per_worker, const char *hybrid,
                     const char *solver, rt_error *error)
{
    static decisions all[RT_COUNT_OF(alphas)];
    rt_report_number(bench->report, "N", samples_per_worker * WORKERS, 0);
    rt_report_text(bench->report, "hybrid", hybrid);
    rt_report_text(bench->report, "solver", solver);
    for (size_t a = 0; a < RT_COUNT_OF(alphas); a++) {
        char policy[128], column[32];
        all[a] = (decisions){0};
        snprintf(policy, sizeof policy, "esd:alpha=%g:hybrid=%s:solver=%s", alphas[a], hybrid,
                 solver);
        const rt_status status = decide_all(bench, samples_per_worker, policy, &all[a], error);
        if (status)
            return status;
        snprintf(column, sizeof column, "%g ms", alphas[a]);
        rt_report_number(bench->report, column, dp_bench_ms(&all[a].times, 0.5), 3);
    }
    for (size_t a = 1; a < RT_COUNT_OF(alphas); a++) {
        char column[32];
        snprintf(column, sizeof column, "%g cost%%", alphas[a]);
        rt_report_number(bench->report, column,
                         100 * ((double)all[a].total / (double)all[0].total - 1), 1);
    }
    rt_report_end_row(bench->report);
    return RT_OK;
}

static rt_status rows(const dp_bench *bench, rt_error *error)
{
    static const uint32_t sizes[] = {128, 1024};
    static const char *const solvers[] = {"transport", "hungarian"};
    for (size_t s = 0; s < RT_COUNT_OF(sizes); s++) {
        for (size_t k = 0; k < RT_COUNT_OF(solvers); k++) {
            if (k > 0 && sizes[s] > 128) // takes seconds a batch
                continue;
            for (size_t h = 0; h < RT_COUNT_OF(hybrids); h++) {
                const rt_status status = row(bench, sizes[s], hybrids[h], solvers[k], error);
                if (status)
                    return status;
            }
        }
    }
    return RT_OK;
}

rt_status dp_bench_alpha(const dp_bench *bench, rt_error *error)
{
    rt_report_begin(bench->report, "alpha", "Time and cost of ESD's decision by alpha, 8 workers");
    const rt_status status = rows(bench, error);
    rt_report_note(bench->report,
                   "A batch of N samples of %s. ms: matrix and placement, processor time, median. "
                   "cost%%: of the placements' matrices against alpha 0, over all batches; each "
                   "run meets the caches that its own placements left.",
                   bench->file ? bench->file : "synthetic Criteo rows");
    rt_report_end(bench->report);
    return status;
}
