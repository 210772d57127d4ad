// How far placements are from the best possible: against exhaustive search on tiny batches, against
// a lower bound on large ones.
#include <math.h>
#include <stdio.h>

#include "runtime/config/rt_policies.h"
#include "tests/bench/dispatch/dp_bench.h"
#include "tests/bench/dispatch/dp_bound.h"
#include "dispatch/policies/dp_policy.h"

#define SCALE 0.02
#define WORKERS_TINY 4u
#define SAMPLES_TINY 3u

#define XX(kind, name, help) #name,
static const char *const specs[] = {RT_POLICY_MAP(XX)};
#undef XX
#define SPECS RT_COUNT_OF(specs)

typedef struct {
    double reference; // optimum or bound
    double cost[SPECS];
    double worst[SPECS]; // largest ratio to the reference
    uint32_t batches;
} totals;

typedef struct {
    const dp_policy_ops *ops[SPECS];
    void *states[SPECS];
    uint32_t *place;
} rivals;

static void rivals_fini(rivals *all)
{
    for (size_t k = 0; k < SPECS; k++) {
        if (all->states[k])
            all->ops[k]->destroy(all->states[k]);
    }
    rt_free(all->place);
}

static rt_status rivals_init(const dp_bench_case *one, rivals *all, rt_error *error)
{
    uint32_t n = one->config.worker_count;
    dp_policy_config config = {.worker_count = n,
                               .sample_count_max = one->batch_size,
                               .distinct_count_max =
                                   one->batch_size * one->schema.keys_per_sample_max,
                               .seed = 1,
                               .dispatch = one->config.dispatch};
    all->place = rt_alloc(one->batch_size, sizeof *all->place);
    if (!all->place)
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    for (size_t k = 0; k < SPECS; k++) {
        config.dispatch.policy = (rt_policy_kind)k;
        all->ops[k] = dp_policy_find((rt_policy_kind)k);
        rt_status status = all->ops[k]->create(&config, &all->states[k], error);
        if (status)
            return status;
    }
    return RT_OK;
}

static rt_status compare(const dp_view *view, rivals *all, bool tiny, totals *sum)
{
    int64_t reference;
    rt_status status;
    if (tiny)
        status = dp_bound_optimum(view, &reference);
    else
        status = dp_bound_lower(view, &reference);
    if (status)
        return status;
    for (size_t k = 0; k < SPECS; k++) {
        int64_t cost;
        all->ops[k]->place(all->states[k], view, all->place);
        status = dp_bound_cost(view, all->place, &cost);
        if (status)
            return status;
        rt_assert(cost >= reference);
        sum->cost[k] += (double)cost;
        if (reference > 0)
            sum->worst[k] = fmax(sum->worst[k], (double)cost / (double)reference);
    }
    sum->reference += (double)reference;
    sum->batches++;
    return RT_OK;
}

static rt_status measure_batches(dp_bench_case *one, rivals *all, bool tiny, uint32_t batches,
                                 totals *sum, rt_error *error)
{
    const uint32_t apart = tiny ? 40 : 8; // batches from one that is measured to the next
    for (uint32_t i = 0; i < batches; i++) {
        const dp_plan *plan;
        rt_status status = dp_bench_advance(one, apart, error);
        if (status)
            return status;
        status = dp_bench_look_up(one, error);
        if (status)
            return status;
        status = compare(dp_planner_view(one->planner), all, tiny, sum);
        if (status)
            return status;
        dp_planner_place(one->planner);
        if (dp_planner_commit(one->planner, &plan))
            return rt_fail(error, RT_NO_MEMORY, "out of memory for a plan");
    }
    return RT_OK;
}

static rt_status measure(const dp_bench *bench, const char *file, bool tiny, uint32_t batches,
                         totals *sum, rt_error *error)
{
    dp_bench_case one;
    rivals all = {0};
    dp_bench_shape shape = {.worker_count = 8,
                            .samples_per_worker = 128,
                            .scale = SCALE,
                            .policy = "esd",
                            .file = file};
    (void)bench;
    if (tiny) {
        shape.worker_count = WORKERS_TINY;
        shape.samples_per_worker = SAMPLES_TINY;
        shape.cache_rows = 2000;
    }
    rt_status status = dp_bench_open(&shape, &one, error);
    if (status)
        return status;
    status = rivals_init(&one, &all, error);
    if (!status)
        status = measure_batches(&one, &all, tiny, batches, sum, error);
    rivals_fini(&all);
    dp_bench_close(&one);
    return status;
}

static void report(const dp_bench *bench, const char *rows, bool tiny, const totals *sum)
{
    const char *batch = tiny ? "4 x 3" : "8 x 128", *against = tiny ? "optimum" : "lower bound";
    for (size_t k = 0; k < SPECS; k++) {
        rt_report_text(bench->report, "batch", batch);
        rt_report_text(bench->report, "rows", rows);
        rt_report_text(bench->report, "policy", specs[k]);
        rt_report_text(bench->report, "against", against);
        rt_report_number(bench->report, "cost_Mticks", sum->cost[k] * 1e-6 / sum->batches, 3);
        rt_report_number(bench->report, "reference_Mticks", sum->reference * 1e-6 / sum->batches,
                         3);
        rt_report_number(bench->report, "above_%", 100 * (sum->cost[k] / sum->reference - 1), 2);
        rt_report_number(bench->report, "worst_%", 100 * (sum->worst[k] - 1), 2);
        rt_report_end_row(bench->report);
    }
}

static rt_status rows_of(const dp_bench *bench, const char *file, const char *rows,
                         uint32_t tiny_batches, rt_error *error)
{
    const uint32_t batches[] = {dp_bench_count(bench, 3, 20), tiny_batches};
    for (int tiny = 1; tiny >= 0; tiny--) {
        totals sum = {0};
        const rt_status status = measure(bench, file, tiny, batches[tiny], &sum, error);
        if (status)
            return status;
        report(bench, rows, tiny, &sum);
    }
    return RT_OK;
}

rt_status dp_bench_gap(const dp_bench *bench, rt_error *error)
{
    const uint32_t tiny_batches = dp_bench_count(bench, 5, 40);
    rt_report_begin(bench->report, "gap",
                    "True cost of an iteration against the optimum and a lower bound");
    rt_status status = rows_of(bench, NULL, "synthetic", tiny_batches, error);
    if (!status && bench->file)
        status = rows_of(bench, bench->file, "file", tiny_batches, error);
    rt_report_note(bench->report, "Every policy places the same batches, which the planner meets "
                                  "while it runs esd; equal micro-batches, means per batch. worst: "
                                  "of one batch.");
    rt_report_note(bench->report,
                   "The optimum is that of exhaustive search (%u and %u batches of 12 samples). "
                   "The lower bound (dispatch/bench/dp_bound.c has the proof) is not reached by "
                   "any placement: part of the distance is the bound's.",
                   tiny_batches, tiny_batches);
    rt_report_end(bench->report);
    return status;
}
