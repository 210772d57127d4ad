// makespan: places samples so that the iteration is predicted to end first.
//
// Starts from the exact solution of ESD's matrix and improves it by local search under the true
// cost, in which every row counts once per worker (dp_search).
//
// The iteration ends with the slowest of 2n + 2 links: every worker's up and down (each with the
// worker's compute time) and the parameter servers' up and down. The search minimises a weighted
// sum of their times; by duality the right weights make that the smallest maximum. They follow
// the links from iteration to iteration by multiplicative weights (Arora, Hazan, Kale, "The
// Multiplicative Weights Update Method", 2012, section 3): a link with slack loses weight, down to
// a floor, because its rows still cost something later on.
#include "dispatch/policies/dp_policy.h"

#include <math.h>
#include <string.h>

#include "dispatch/cost/dp_ticks.h"
#include "dispatch/policies/dp_search.h"
#include "dispatch/solvers/dp_solver.h"

#define STEP 0.05
#define WEIGHT_MIN 0.2

typedef struct {
    double up[RT_WORKERS_MAX], down[RT_WORKERS_MAX]; // by rank: they outlive a change of the set
    double ps_up, ps_down;
} weights;

typedef struct {
    rt_dispatch_config dispatch;
    uint32_t worker_count, stride;
    int32_t *cost;
    void *solver;
    dp_search *search;
    rt_random random;
    weights weights;
    uint32_t last[RT_WORKERS_MAX]; // micro-batches of the batch before, by number in its view
    uint32_t last_count;           // its samples
    uint32_t evaluations;
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
    self->weights = (weights){.ps_up = 1, .ps_down = 1};
    for (uint32_t j = 0; j < n; j++)
        self->weights.up[j] = self->weights.down[j] = 1;
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
    bool equal = view->micro_batch_max == 0;
    limits->evaluations_max = self->dispatch.search_evaluations;
    for (uint32_t j = 0; j < view->worker_count; j++) {
        uint32_t share = view->capacity[j];
        limits->min[j] = equal ? share : (uint32_t)rt_min_u64(view->micro_batch_min, share);
        limits->max[j] = equal ? share : (uint32_t)rt_max_u64(view->micro_batch_max, share);
    }
}

static uint32_t rank_of(const dp_view *view, uint32_t number)
{
    return view->ranks ? view->ranks[number] : number;
}

// A row counts on the worker's link and, at that link's rate, on the parameter servers'.
static void set_prices(const makespan *self, const dp_view *view, dp_prices *prices)
{
    const dp_ticks *ticks = view->ticks;
    const weights *w = &self->weights;
    for (uint32_t j = 0; j < view->worker_count; j++) {
        const uint32_t rank = rank_of(view, j);
        double ps = ticks->ps_row[0];
        prices->up[j] = w->up[rank] + w->ps_up * ps / ticks->push[0][j];
        prices->down[j] = w->down[rank] + w->ps_down * ps / ticks->pull[0][j];
        prices->sample[j] = (int32_t)(ticks->compute[j] * fmax(w->up[rank], w->down[rank]));
    }
}

// Times of all links in the placement that the search left, in ticks; the largest is returned.
static double link_times(const makespan *self, const dp_ticks *ticks, weights *times)
{
    dp_loads loads;
    dp_search_loads(self->search, &loads);
    times->ps_up = dp_ticks_shards(ticks, (double)loads.ps_up);
    times->ps_down = dp_ticks_shards(ticks, (double)loads.ps_down);
    double longest = fmax(fmax(times->ps_up, times->ps_down), 1);
    for (uint32_t j = 0; j < ticks->worker_count; j++) {
        double compute = (double)ticks->compute[j] * loads.samples[j];
        times->up[j] = (double)(loads.up[j] + ticks->dense_up[j]) + compute;
        times->down[j] = (double)(loads.down[j] + ticks->dense_down[j]) + compute;
        longest = fmax(longest, fmax(times->up[j], times->down[j]));
    }
    return longest;
}

// e^x for |x| <= STEP, to the last bit or so. The bits of the library's depend on library and
// processor, and with them plans would.
static double exp_of_step(double x)
{
    double sum = 1;
    for (uint32_t k = 10; k > 0; k--)
        sum = 1 + x * sum / k;
    return sum;
}

static double follow(double *weight, double share)
{
    *weight *= exp_of_step(STEP * (share - 1));
    return *weight;
}

static void adapt(makespan *self, const dp_view *view)
{
    const dp_ticks *ticks = view->ticks;
    weights times, *w = &self->weights;
    double longest = link_times(self, ticks, &times), largest = 0;
    if (ticks->ps_row[0]) {
        largest = follow(&w->ps_up, times.ps_up / longest);
        largest = fmax(largest, follow(&w->ps_down, times.ps_down / longest));
    }
    for (uint32_t j = 0; j < view->worker_count; j++) {
        largest = fmax(largest, follow(&w->up[rank_of(view, j)], times.up[j] / longest));
        largest = fmax(largest, follow(&w->down[rank_of(view, j)], times.down[j] / longest));
    }
    if (ticks->ps_row[0]) { // otherwise they count for nothing, and would grow without end
        w->ps_up = fmax(w->ps_up / largest, WEIGHT_MIN);
        w->ps_down = fmax(w->ps_down / largest, WEIGHT_MIN);
    }
    for (uint32_t j = 0; j < view->worker_count; j++) {
        const uint32_t rank = rank_of(view, j);
        w->up[rank] = fmax(w->up[rank] / largest, WEIGHT_MIN);
        w->down[rank] = fmax(w->down[rank] / largest, WEIGHT_MIN);
    }
}

// The search starts from the micro-batches that it ended with last time.
static const uint32_t *start_sizes(const makespan *self, const dp_view *view,
                                   const dp_search_limits *limits)
{
    if (view->micro_batch_max == 0 || self->last_count != view->sample_count)
        return view->capacity;
    uint64_t sum = 0;
    for (uint32_t j = 0; j < view->worker_count; j++) {
        if (self->last[j] < limits->min[j] || self->last[j] > limits->max[j])
            return view->capacity;
        sum += self->last[j];
    }
    return sum == view->sample_count ? self->last : view->capacity; // another set had them
}

static void place(void *state, const dp_view *view, uint32_t *worker_of_sample)
{
    makespan *self = state;
    dp_search_limits limits;
    dp_prices prices;
    set_limits(self, view, &limits);
    set_prices(self, view, &prices);
    dp_cost_matrix(view, self->cost, self->stride);
    dp_problem problem = {view->sample_count, view->worker_count, self->stride, self->cost,
                          start_sizes(self, view, &limits)};
    dp_solver_transport.solve(self->solver, &problem, worker_of_sample);
    self->evaluations =
        dp_search_run(self->search, view, &prices, &limits, &self->random, worker_of_sample);
    adapt(self, view);
    memset(self->last, 0, sizeof self->last);
    for (uint32_t i = 0; i < view->sample_count; i++)
        self->last[worker_of_sample[i]]++;
    self->last_count = view->sample_count;
}

static void configure(void *state, const rt_dispatch_config *dispatch)
{
    ((makespan *)state)->dispatch.search_evaluations = dispatch->search_evaluations;
}

static void report(const void *state, dp_policy_report *out)
{
    out->evaluations = ((const makespan *)state)->evaluations;
}

static void save(const void *state, rt_bytes *bytes)
{
    const makespan *self = state;
    rt_bytes_put(bytes, &self->random, sizeof self->random);
    rt_bytes_put(bytes, &self->weights, sizeof self->weights);
    rt_bytes_put(bytes, self->last, sizeof self->last);
    rt_bytes_put_u32(bytes, self->last_count);
}

static bool load(void *state, rt_reader *reader)
{
    makespan *self = state;
    const weights *w = &self->weights;
    rt_reader_get(reader, &self->random, 1, sizeof self->random);
    rt_reader_get(reader, &self->weights, 1, sizeof self->weights);
    rt_reader_get(reader, self->last, 1, sizeof self->last);
    self->last_count = rt_reader_u32(reader);
    bool sane = w->ps_up >= 0 && w->ps_up <= 1 && w->ps_down >= 0 && w->ps_down <= 1;
    uint64_t samples = 0;
    for (uint32_t j = 0; j < self->worker_count; j++) {
        sane &= w->up[j] >= 0 && w->up[j] <= 1 && w->down[j] >= 0 && w->down[j] <= 1;
        samples += self->last[j];
    }
    return sane && samples == self->last_count && !reader->failed;
}

const dp_policy_ops dp_policy_makespan = {.name = "makespan",
                                          .traits = DP_POLICY_UNEQUAL | DP_POLICY_TIME,
                                          .create = create,
                                          .destroy = destroy,
                                          .place = place,
                                          .configure = configure,
                                          .report = report,
                                          .save = save,
                                          .load = load};
