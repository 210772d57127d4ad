// makespan: places samples so that the iteration is predicted to end first.
//
// Starts from the exact solution of ESD's matrix and improves it by local search under the true
// cost, in which every row counts once per worker (dp_search).
#include "dispatch/dp_policy.h"

#include <string.h>

#include "dispatch/policies/dp_search.h"
#include "dispatch/solvers/dp_solver.h"

typedef struct {
    rt_dispatch_config dispatch;
    uint32_t worker_count, stride;
    int32_t *cost;
    void *solver;
    dp_search *search;
    rt_random random;
    dp_prices prices;
    uint32_t evaluations; // of the last batch
} makespan;

static void destroy(void *state)
{
    makespan *self = state;
    if (self->solver)
        dp_solver_transport.destroy(self->solver);
    dp_search_destroy(self->search);
    rt_free(self->cost);
    rt_free(self);
}

static rt_status create(const dp_policy_config *config, void **state_p, rt_error *error)
{
    makespan *self = rt_alloc(1, sizeof *self);
    if (!self)
        return rt_fail(error, RT_NO_MEMORY, "out of memory for policy makespan");
    uint32_t n = config->worker_count;
    self->dispatch = config->dispatch;
    self->worker_count = n;
    self->stride = (n + 7) / 8 * 8;
    self->random.state = rt_mix(config->seed ^ UINT64_C(0x6d616b657370616e));
    self->cost = rt_alloc((size_t)config->sample_count_max * self->stride, sizeof *self->cost);
    for (uint32_t j = 0; j < n; j++)
        self->prices.up[j] = self->prices.down[j] = 1;
    if (!self->cost ||
        dp_solver_transport.create(config->sample_count_max, n, &self->solver) != RT_OK ||
        dp_search_create(n, config->sample_count_max, config->distinct_count_max, &self->search) !=
            RT_OK) {
        destroy(self);
        return rt_fail(error, RT_NO_MEMORY, "out of memory for a batch of %u samples",
                       config->sample_count_max);
    }
    *state_p = self;
    return RT_OK;
}

static void set_limits(const makespan *self, const dp_view *view, dp_search_limits *limits)
{
    bool free = view->micro_batch_max != 0;
    limits->evaluations_max = self->dispatch.search_evaluations;
    for (uint32_t j = 0; j < view->worker_count; j++) {
        limits->min[j] = free ? (uint32_t)rt_min_u64(view->micro_batch_min, view->capacity[j])
                              : view->capacity[j];
        limits->max[j] = free ? view->micro_batch_max : view->capacity[j];
    }
}

#include <stdlib.h>
#include <math.h>
#include <stdio.h>
static void adapt(makespan *self)
{
    dp_loads loads;
    dp_search_loads(self->search, &loads);
    double eta = getenv("ETA") ? atof(getenv("ETA")) : 0, lo = getenv("LO") ? atof(getenv("LO")) : 0.1;
    double max = 0, sum = 0;
    for (uint32_t j = 0; j < self->worker_count; j++) {
        max = fmax(max, fmax((double)loads.up[j], (double)loads.down[j]));
    }
    for (uint32_t j = 0; j < self->worker_count; j++) {
        self->prices.up[j] *= exp(eta * ((double)loads.up[j] / max - 0.5));
        self->prices.down[j] *= exp(eta * ((double)loads.down[j] / max - 0.5));
        sum = fmax(sum, fmax(self->prices.up[j], self->prices.down[j]));
    }
    for (uint32_t j = 0; j < self->worker_count; j++) {
        self->prices.up[j] = fmax(lo, self->prices.up[j] / sum);
        self->prices.down[j] = fmax(lo, self->prices.down[j] / sum);
    }
    if (getenv("SHOW")) {
        for (uint32_t j = 0; j < self->worker_count; j++)
            fprintf(stderr, "[%u %.2f/%.2f %.2f/%.2f] ", loads.samples[j], (double)loads.up[j] / max, (double)loads.down[j] / max, self->prices.up[j], self->prices.down[j]);
        fprintf(stderr, "\n");
    }
}

static void place(void *state, const dp_view *view, uint32_t *worker_of_sample)
{
    makespan *self = state;
    dp_search_limits limits;
    dp_problem problem = {view->sample_count, view->worker_count, self->stride, self->cost,
                          view->capacity};
    set_limits(self, view, &limits);
    dp_cost_matrix(view, self->cost, self->stride);
    dp_solver_transport.solve(self->solver, &problem, worker_of_sample);
    self->evaluations = dp_search_run(self->search, view, &self->prices, &limits, &self->random, worker_of_sample);
    adapt(self);
}

static void configure(void *state, const rt_dispatch_config *dispatch)
{
    ((makespan *)state)->dispatch.search_evaluations = dispatch->search_evaluations;
}

static void report(const void *state, dp_policy_report *out)
{
    out->evaluations = ((const makespan *)state)->evaluations;
}

const dp_policy_ops dp_policy_makespan = {"makespan", create, destroy, place, configure, report};
