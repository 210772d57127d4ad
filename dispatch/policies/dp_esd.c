// ESD: expected transmission cost of every sample on every worker (Algorithm 1), then HybridDis
// (Algorithm 2): the samples whose placement matters most go to an exact solver (Opt), all others,
// in the same order, to the cheapest worker with room (Heu).
#include "dispatch/policies/dp_policy.h"

#include <math.h>
#include <string.h>

#include "dispatch/cache/dp_sort.h"
#include "dispatch/solvers/dp_solver.h"

typedef struct {
    double alpha;
    const dp_solver_ops *solver;
    void *solver_state;
    uint32_t stride;
    int32_t *cost;     // sample_count_max x stride
    int32_t *opt_cost; // the rows that Opt gets, in its order
    uint32_t *opt_place;
    uint64_t *order, *scratch; // samples by weight
    void *exact_state;         // NULL, or of the solver that tells the error
    uint32_t *exact_place;
    dp_policy_report report;
} esd;

static void destroy(void *state)
{
    esd *self = state;
    if (self->solver_state)
        self->solver->destroy(self->solver_state);
    if (self->exact_state)
        dp_solver_transport.destroy(self->exact_state);
    rt_free(self->exact_place);
    rt_free(self->cost);
    rt_free(self->opt_cost);
    rt_free(self->opt_place);
    rt_free(self->order);
    rt_free(self->scratch);
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
    uint32_t rows = config->sample_count_max;
    self->alpha = config->dispatch.alpha;
    self->solver = dp_solver_choose(config->dispatch.solver);
    self->stride = (config->worker_count + 7) / 8 * 8;
    self->cost = rt_alloc((size_t)rows * self->stride, sizeof *self->cost);
    self->opt_cost = rt_alloc((size_t)rows * self->stride, sizeof *self->opt_cost);
    self->opt_place = rt_alloc_unset(rows, sizeof *self->opt_place);
    self->order = rt_alloc_unset(rows, sizeof *self->order);
    self->scratch = rt_alloc_unset(rows, sizeof *self->scratch);
    if (!self->cost || !self->opt_cost || !self->opt_place || !self->order || !self->scratch ||
        self->solver->create(rows, config->worker_count, &self->solver_state) ||
        (config->measure_error && create_exact(self, config))) {
        destroy(self);
        return rt_fail(error, RT_NO_MEMORY, "out of memory for a batch of %u samples", rows);
    }
    *state_p = self;
    return RT_OK;
}

// How much a wrong placement of the row may cost, second smallest cost less the smallest (min2 -
// min); the larger, the earlier it is placed.
static uint32_t row_weight(const int32_t *row, uint32_t n)
{
    int32_t min = INT32_MAX, min2 = INT32_MAX;
    for (uint32_t j = 0; j < n; j++) {
        if (row[j] < min) {
            min2 = min;
            min = row[j];
        } else if (row[j] < min2) {
            min2 = row[j];
        }
    }
    return min2 == INT32_MAX ? 0 : (uint32_t)(min2 - min);
}

// Opt's share of every worker: floor(alpha m_j) (Algorithm 2, line 3). Returns the sum.
static uint32_t opt_capacity(double alpha, const dp_view *view, uint32_t *capacity)
{
    uint32_t sum = 0;
    for (uint32_t j = 0; j < view->worker_count; j++) {
        // The nearest double of a decimal alpha may lie just below it: 0.3 x 10 must give 3.
        capacity[j] = (uint32_t)floor(alpha * view->capacity[j] + 1e-9);
        sum += capacity[j];
    }
    return (uint32_t)rt_min_u64(sum, view->sample_count);
}

static void sort_rows(esd *self, const dp_view *view)
{
    for (uint32_t i = 0; i < view->sample_count; i++) {
        uint32_t weight = row_weight(self->cost + (size_t)i * self->stride, view->worker_count);
        self->order[i] = (uint64_t)~weight << 32 | i; // descending, ties in batch order
    }
    dp_sort_upper(self->order, self->scratch, view->sample_count);
}

static void place_opt(esd *self, uint32_t count, const uint32_t *capacity, uint32_t n,
                      uint32_t *worker_of_sample)
{
    for (uint32_t k = 0; k < count; k++)
        memcpy(self->opt_cost + (size_t)k * self->stride,
               self->cost + (size_t)(uint32_t)self->order[k] * self->stride,
               n * sizeof *self->cost);
    dp_problem problem = {count, n, self->stride, self->opt_cost, capacity};
    self->solver->solve(self->solver_state, &problem, self->opt_place);
    for (uint32_t k = 0; k < count; k++)
        worker_of_sample[(uint32_t)self->order[k]] = self->opt_place[k];
}

static void place_heu(const esd *self, const dp_view *view, uint32_t from, uint32_t *room,
                      uint32_t *worker_of_sample)
{
    for (uint32_t k = from; k < view->sample_count; k++) {
        uint32_t i = (uint32_t)self->order[k];
        const int32_t *row = self->cost + (size_t)i * self->stride;
        uint32_t best = RT_WORKERS_MAX;
        for (uint32_t j = 0; j < view->worker_count; j++) {
            if (room[j] && (best == RT_WORKERS_MAX || row[j] < row[best]))
                best = j;
        }
        room[best]--;
        worker_of_sample[i] = best;
    }
}

// ---- dispatch error --------------------------------------------------------------------------

typedef struct {
    int64_t regret; // cost where it was placed less the row's smallest
    int32_t spread; // the row's largest cost less its smallest
} row_loss;

static row_loss loss_of(const int32_t *row, uint32_t n, uint32_t worker)
{
    int32_t min = row[0], max = row[0];
    for (uint32_t j = 1; j < n; j++) {
        min = row[j] < min ? row[j] : min;
        max = row[j] > max ? row[j] : max;
    }
    return (row_loss){row[worker] - min, max - min};
}

// What HybridDis loses at most against the optimum of the same matrix. The bound and its proof are
// our own: ESD's Theorem 1 is about each row of Heu alone, against the row's smallest cost. (Row i
// in Heu's order, with room for m on every worker, pays at most its (floor(i / m) + 1)-th smallest
// cost, since at most floor(i / m) workers are full.) S: rows of Opt, H: rows of Heu.
//     bound = sum over H of regret + min(sum over S of regret, the |H| largest spreads in S)
// Proof. The optimum pays at least the smallest cost of every row, which gives the regrets. The
// optimum restricted to S may exceed Opt's places a_j = floor(alpha m_j) on worker j, by at most
// m_j - a_j rows, in all by at most |H|. Moving the excess to free places of Opt makes it feasible
// for Opt and raises its cost by at most one spread per row moved; an exact Opt pays no more than
// that. So Opt's part of the error is at most the |H| largest spreads in S. alpha = 1: 0.
static int64_t error_bound(esd *self, const dp_view *view, uint32_t opt_count,
                           const uint32_t *worker_of_sample)
{
    uint32_t heu_count = view->sample_count - opt_count;
    int64_t opt_regret = 0, heu_regret = 0, opt_spread = 0;
    if (heu_count == 0 && self->solver->exact)
        return 0;
    for (uint32_t k = 0; k < view->sample_count; k++) {
        uint32_t i = opt_count == view->sample_count ? k : (uint32_t)self->order[k];
        row_loss loss =
            loss_of(self->cost + (size_t)i * self->stride, view->worker_count, worker_of_sample[i]);
        if (k < opt_count)
            opt_regret += loss.regret;
        else
            heu_regret += loss.regret;
        self->order[k] = (uint64_t) ~(uint32_t)loss.spread << 32; // this k is not read again
    }
    if (!self->solver->exact)
        return heu_regret + opt_regret;
    dp_sort_upper(self->order, self->scratch, opt_count);
    for (uint32_t k = 0; k < rt_min_u64(heu_count, opt_count); k++)
        opt_spread += ~(uint32_t)(self->order[k] >> 32);
    if (opt_regret < opt_spread)
        return heu_regret + opt_regret;
    return heu_regret + opt_spread;
}

static void tell_error(esd *self, const dp_view *view, uint32_t opt_count,
                       const uint32_t *worker_of_sample)
{
    dp_problem problem = {view->sample_count, view->worker_count, self->stride, self->cost,
                          view->capacity};
    self->report = (dp_policy_report){
        .opt_samples = opt_count, .heu_samples = view->sample_count - opt_count, .error = -1};
    if (self->solver->device_s)
        self->report.device_s = self->solver->device_s(self->solver_state);
    self->report.error_bound = error_bound(self, view, opt_count, worker_of_sample);
    if (!self->exact_state)
        return;
    dp_solver_transport.solve(self->exact_state, &problem, self->exact_place);
    self->report.error = dp_placement_cost(&problem, worker_of_sample) -
                         dp_placement_cost(&problem, self->exact_place);
}

// ---- policy ----------------------------------------------------------------------------------

static void place(void *state, const dp_view *view, uint32_t *worker_of_sample)
{
    esd *self = state;
    uint32_t n = view->worker_count;
    uint32_t capacity[RT_WORKERS_MAX], room[RT_WORKERS_MAX];
    dp_cost_matrix(view, self->cost, self->stride);
    uint32_t opt_count = opt_capacity(self->alpha, view, capacity);
    if (opt_count == view->sample_count) {
        dp_problem problem = {opt_count, n, self->stride, self->cost, capacity};
        self->solver->solve(self->solver_state, &problem, worker_of_sample);
        tell_error(self, view, opt_count, worker_of_sample);
        return;
    }
    sort_rows(self, view);
    place_opt(self, opt_count, capacity, n, worker_of_sample);
    memcpy(room, view->capacity, n * sizeof *room);
    for (uint32_t k = 0; k < opt_count; k++)
        room[worker_of_sample[(uint32_t)self->order[k]]]--;
    place_heu(self, view, opt_count, room, worker_of_sample);
    tell_error(self, view, opt_count, worker_of_sample);
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
