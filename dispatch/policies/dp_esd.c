// ESD: expected transmission cost of every sample on every worker (Algorithm 1), then HybridDis
// (Algorithm 2, dp_hybrid.h) on that matrix.
#include "dispatch/policies/dp_hybrid.h"
#include "dispatch/policies/dp_policy.h"

typedef struct {
    double alpha;
    uint32_t stride;
    int32_t *cost; // sample_count_max x stride
    dp_hybrid *hybrid;
    void *exact_state; // NULL, or of the solver that tells the error
    uint32_t *exact_place;
    dp_policy_report report;
} esd;

static void destroy(void *state)
{
    esd *self = state;
    dp_hybrid_destroy(self->hybrid);
    if (self->exact_state)
        dp_solver_transport.destroy(self->exact_state);
    rt_free(self->exact_place);
    rt_free(self->cost);
    rt_free(self);
}

static rt_status create_exact(esd *self, const dp_policy_config *config)
{
    self->exact_place = rt_alloc_unset(config->sample_count_max, sizeof *self->exact_place);
    if (!self->exact_place)
        return RT_NO_MEMORY;
    return dp_solver_transport.create(config->sample_count_max, config->worker_count,
                                      &self->exact_state);
}

static rt_status create(const dp_policy_config *config, void **state_p, rt_error *error)
{
    esd *self = rt_alloc(1, sizeof *self);
    if (!self)
        return rt_fail(error, RT_NO_MEMORY, "out of memory for policy esd");
    const uint32_t rows = config->sample_count_max;
    self->alpha = config->dispatch.alpha;
    self->stride = (config->worker_count + 7) / 8 * 8;
    self->cost = rt_alloc((size_t)rows * self->stride, sizeof *self->cost);
    if (!self->cost ||
        dp_hybrid_create(config->dispatch.hybrid, dp_solver_choose(config->dispatch.solver), rows,
                         config->worker_count, &self->hybrid) ||
        (config->measure_error && create_exact(self, config))) {
        destroy(self);
        return rt_fail(error, RT_NO_MEMORY, "out of memory for a batch of %u samples", rows);
    }
    *state_p = self;
    return RT_OK;
}

static void place(void *state, const dp_view *view, uint32_t *worker_of_sample)
{
    esd *self = state;
    const dp_problem problem = {view->sample_count, view->worker_count, self->stride, self->cost,
                                view->capacity};
    dp_cost_matrix(view, self->cost, self->stride);
    const dp_hybrid_result result =
        dp_hybrid_solve(self->hybrid, &problem, self->alpha, worker_of_sample);
    self->report = (dp_policy_report){.opt_samples = result.opt_rows,
                                      .heu_samples = result.heu_rows,
                                      .error_bound = result.error_bound,
                                      .error = -1,
                                      .device_s = dp_hybrid_device_s(self->hybrid)};
    if (!self->exact_state)
        return;
    dp_solver_transport.solve(self->exact_state, &problem, self->exact_place);
    self->report.error = dp_placement_cost(&problem, worker_of_sample) -
                         dp_placement_cost(&problem, self->exact_place);
}

static void configure(void *state, const rt_dispatch_config *dispatch)
{
    ((esd *)state)->alpha = dispatch->alpha;
}

static void report(const void *state, dp_policy_report *out)
{
    *out = ((const esd *)state)->report;
}

const dp_policy_ops dp_policy_esd = {.name = "esd",
                                     .traits =
                                         DP_POLICY_ALPHA | DP_POLICY_SNAPSHOTS | DP_POLICY_WINDOWS,
                                     .create = create,
                                     .destroy = destroy,
                                     .place = place,
                                     .configure = configure,
                                     .report = report};
