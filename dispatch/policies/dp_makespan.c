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
#include "dispatch/policies/dp_shares.h"
#include "dispatch/solvers/dp_solver.h"

#define STEP 0.05
#define WEIGHT_MIN 0.2

// Where micro-batches may differ, their sizes follow the times of the workers (dp_shares), and the
// search moves few samples more: the least weighted sum can be all samples on one worker, whatever
// the weights, since rows that are shared cost once.
#define APPROACH 0.3    // of the way to equal times, per iteration
#define SLACK 16u       // part of an equal share that the search may move beyond the sizes
#define FEW 8u          // part of an equal share: with fewer samples a worker's time says little
#define ROWS_SHARE 0.95 // of a cache's rows that sizes may aim at

typedef struct {
    double up[RT_WORKERS_MAX], down[RT_WORKERS_MAX]; // by rank: they outlive a change of the set
    double ps_up, ps_down;
} weights;

typedef struct {
    double up[RT_SITE_BOXES_MAX], down[RT_SITE_BOXES_MAX];
} box_weights;

typedef struct {
    rt_dispatch_config dispatch;
    uint32_t worker_count, stride;
    int32_t *cost;
    void *solver;
    dp_search *search;
    rt_random random;
    weights weights;
    box_weights boxes; // in their place, where boxes are told
    uint32_t box_count;
    uint32_t last[RT_WORKERS_MAX]; // micro-batches to start from, by rank
    uint32_t last_count;           // their sum
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
    self->box_count = config->box_count;
    for (uint32_t b = 0; b < config->box_count; b++)
        self->boxes.up[b] = self->boxes.down[b] = 1;
    if (!self->cost || dp_solver_transport.create(config->sample_count_max, n, &self->solver) ||
        dp_search_create(n, config->box_count, config->sample_count_max, config->distinct_count_max,
                         &self->search)) {
        destroy(self);
        return rt_fail(error, RT_NO_MEMORY, "out of memory for a batch of %u samples",
                       config->sample_count_max);
    }
    *state_p = self;
    return RT_OK;
}

static uint32_t rank_of(const dp_view *view, uint32_t number)
{
    return view->ranks ? view->ranks[number] : number;
}

static void set_box_prices(const makespan *self, const dp_view *view, dp_prices *prices)
{
    const dp_ticks *ticks = view->ticks;
    memcpy(prices->box_up, self->boxes.up, sizeof prices->box_up);
    memcpy(prices->box_down, self->boxes.down, sizeof prices->box_down);
    for (uint32_t j = 0; j < view->worker_count; j++) {
        prices->up[j] = self->boxes.up[ticks->box_of[j]];
        prices->down[j] = self->boxes.down[ticks->box_of[j]];
        prices->sample[j] = (int32_t)(ticks->compute[j] * fmax(prices->up[j], prices->down[j]));
    }
}

// A row counts on the worker's link and, at that link's rate, on the parameter servers'.
static void set_prices(const makespan *self, const dp_view *view, dp_prices *prices)
{
    const dp_ticks *ticks = view->ticks;
    const weights *w = &self->weights;
    if (ticks->box_count) {
        set_box_prices(self, view, prices);
        return;
    }
    for (uint32_t j = 0; j < view->worker_count; j++) {
        const uint32_t rank = rank_of(view, j);
        double ps = ticks->ps_row[0];
        prices->up[j] = w->up[rank] + w->ps_up * ps / ticks->push[0][j];
        prices->down[j] = w->down[rank] + w->ps_down * ps / ticks->pull[0][j];
        prices->sample[j] = (int32_t)(ticks->compute[j] * fmax(w->up[rank], w->down[rank]));
    }
}

// Times of all links in the placement that the search left, in ticks; the largest is returned.
static double link_times(const dp_loads *loads, const dp_ticks *ticks, weights *times)
{
    times->ps_up = dp_ticks_shards(ticks, (double)loads->ps_up);
    times->ps_down = dp_ticks_shards(ticks, (double)loads->ps_down);
    double longest = fmax(fmax(times->ps_up, times->ps_down), 1);
    for (uint32_t j = 0; j < ticks->worker_count; j++) {
        double compute = (double)ticks->compute[j] * loads->samples[j];
        int64_t up = loads->up[j], down = loads->down[j];
        if (ticks->box_count) {
            up = loads->box_up[ticks->box_of[j]];
            down = loads->box_down[ticks->box_of[j]];
        }
        times->up[j] = (double)(up + ticks->dense_up[j]) + compute;
        times->down[j] = (double)(down + ticks->dense_down[j]) + compute;
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

// The same of boxes: a link's time with the longest computing of a worker that waits for it.
static void adapt_boxes(makespan *self, const dp_view *view, const dp_loads *loads)
{
    const dp_ticks *ticks = view->ticks;
    box_weights times, *w = &self->boxes;
    double compute[RT_SITE_BOXES_MAX] = {0}, longest = 1, largest = 0;
    for (uint32_t j = 0; j < view->worker_count; j++) {
        double *of = &compute[ticks->box_of[j]];
        *of = fmax(*of, (double)ticks->compute[j] * loads->samples[j]);
    }
    for (uint32_t b = 0; b < ticks->box_count; b++) {
        times.up[b] = (double)(loads->box_up[b] + ticks->box_dense_up[b]) + compute[b];
        times.down[b] = (double)(loads->box_down[b] + ticks->box_dense_down[b]) + compute[b];
        longest = fmax(longest, fmax(times.up[b], times.down[b]));
    }
    for (uint32_t b = 0; b < ticks->box_count; b++) {
        largest = fmax(largest, follow(&w->up[b], times.up[b] / longest));
        largest = fmax(largest, follow(&w->down[b], times.down[b] / longest));
    }
    for (uint32_t b = 0; b < ticks->box_count; b++) {
        w->up[b] = fmax(w->up[b] / largest, WEIGHT_MIN);
        w->down[b] = fmax(w->down[b] / largest, WEIGHT_MIN);
    }
}

static void adapt(makespan *self, const dp_view *view, const dp_loads *loads)
{
    const dp_ticks *ticks = view->ticks;
    if (ticks->box_count) {
        adapt_boxes(self, view, loads);
        return;
    }
    weights times, *w = &self->weights;
    double longest = link_times(loads, ticks, &times), largest = 0;
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

// ---- micro-batches ---------------------------------------------------------------------------

static void set_bounds(const dp_view *view, dp_share *shares)
{
    for (uint32_t j = 0; j < view->worker_count; j++) {
        const uint32_t share = view->capacity[j];
        shares[j].min = (uint32_t)rt_min_u64(view->micro_batch_min, share);
        shares[j].max = (uint32_t)rt_max_u64(view->micro_batch_max, share);
    }
}

// A worker's time without rows, and the ticks of rows (of one size) on its slower side.
static double fixed_time(const dp_ticks *ticks, uint32_t j)
{
    return fmax((double)ticks->dense_up[j], (double)ticks->dense_down[j]);
}

static double row_ticks(const dp_ticks *ticks, uint32_t j)
{
    return fmax(ticks->pull[0][j], ticks->push[0][j]);
}

// What is known before the first placement: half of the keys move.
static void guess_shares(const dp_view *view, dp_share *shares)
{
    const double rows = 0.5 * view->lookup_count / view->sample_count;
    for (uint32_t j = 0; j < view->worker_count; j++) {
        shares[j].fixed = fixed_time(view->ticks, j);
        shares[j].per_sample = rows * row_ticks(view->ticks, j) + view->ticks->compute[j];
    }
}

// What a placement says. A worker with few samples has the mean of the others' rows per sample.
static void measure_shares(const dp_view *view, const dp_loads *loads, dp_share *shares)
{
    const dp_ticks *ticks = view->ticks;
    weights times;
    double rows = 0, samples = 0;
    link_times(loads, ticks, &times);
    for (uint32_t j = 0; j < view->worker_count; j++) {
        const double all = fmax(times.up[j], times.down[j]);
        const double compute = (double)ticks->compute[j] * loads->samples[j];
        double moving = fmax(all - fixed_time(ticks, j) - compute, 0);
        shares[j].fixed = fixed_time(ticks, j);
        if (ticks->box_count) { // what a box serves does not grow with the samples of its worker
            moving = (double)(times.up[j] > times.down[j] ? loads->up[j] : loads->down[j]);
            shares[j].fixed = all - moving - compute;
        }
        shares[j].per_sample = loads->samples[j] ? moving / loads->samples[j] : 0;
        if (loads->samples[j])
            rows += moving / row_ticks(ticks, j);
        samples += loads->samples[j];
    }
    for (uint32_t j = 0; j < view->worker_count; j++) {
        if (loads->samples[j] * FEW < view->capacity[j])
            shares[j].per_sample = rows / samples * row_ticks(ticks, j);
        shares[j].per_sample = fmax(shares[j].per_sample + ticks->compute[j], 1);
        const double held = view->rows_max ? view->rows_max[j] : UINT32_MAX;
        double fits = view->capacity[j];
        if (loads->rows[j])
            fits = ROWS_SHARE * held * fmax(loads->samples[j], 1) / loads->rows[j];
        shares[j].max = (uint32_t)fmin(shares[j].max, fmax(fits, view->capacity[j]));
    }
}

// The micro-batches to aim at, by number: those of the iteration before, if they were for these
// workers.
static void start_sizes(const makespan *self, const dp_view *view, uint32_t *sizes)
{
    dp_share shares[RT_WORKERS_MAX];
    uint64_t sum = 0;
    for (uint32_t j = 0; j < view->worker_count; j++) {
        sizes[j] = self->last[rank_of(view, j)];
        sum += sizes[j];
    }
    set_bounds(view, shares);
    guess_shares(view, shares);
    if (sum == 0 || sum != self->last_count)
        dp_shares_level(shares, view->worker_count, view->sample_count, sizes);
    else
        dp_shares_approach(shares, view->worker_count, view->sample_count, 0, sizes);
}

static void next_sizes(makespan *self, const dp_view *view, const dp_loads *loads, uint32_t *sizes)
{
    dp_share shares[RT_WORKERS_MAX];
    set_bounds(view, shares);
    measure_shares(view, loads, shares);
    dp_shares_approach(shares, view->worker_count, view->sample_count, APPROACH, sizes);
    memset(self->last, 0, sizeof self->last);
    for (uint32_t j = 0; j < view->worker_count; j++)
        self->last[rank_of(view, j)] = sizes[j];
    self->last_count = view->sample_count;
}

static void set_limits(const makespan *self, const dp_view *view, const uint32_t *sizes,
                       dp_search_limits *limits)
{
    limits->evaluations_max = self->dispatch.search_evaluations;
    for (uint32_t j = 0; j < view->worker_count; j++) {
        const uint32_t share = view->capacity[j];
        limits->rows_max[j] = view->rows_max ? view->rows_max[j] : UINT32_MAX;
        limits->min[j] = limits->max[j] = sizes[j];
        if (view->micro_batch_max == 0)
            continue;
        const uint32_t slack = share / SLACK + 1;
        const uint32_t least = (uint32_t)rt_min_u64(view->micro_batch_min, share);
        const uint32_t most = (uint32_t)rt_max_u64(view->micro_batch_max, share);
        limits->min[j] = least;
        if (sizes[j] > least + slack)
            limits->min[j] = sizes[j] - slack;
        limits->max[j] = (uint32_t)rt_min_u64(sizes[j] + slack, most);
    }
}

static void place(void *state, const dp_view *view, uint32_t *worker_of_sample)
{
    makespan *self = state;
    const bool equal = view->micro_batch_max == 0;
    uint32_t sizes[RT_WORKERS_MAX];
    dp_search_limits limits;
    dp_prices prices;
    dp_loads loads;
    if (equal)
        memcpy(sizes, view->capacity, view->worker_count * sizeof *sizes);
    else
        start_sizes(self, view, sizes);
    set_limits(self, view, sizes, &limits);
    set_prices(self, view, &prices);
    dp_cost_matrix(view, self->cost, self->stride);
    dp_problem problem = {view->sample_count, view->worker_count, self->stride, self->cost, sizes};
    dp_solver_transport.solve(self->solver, &problem, worker_of_sample);
    self->evaluations =
        dp_search_run(self->search, view, &prices, &limits, &self->random, worker_of_sample);
    dp_search_loads(self->search, &loads);
    adapt(self, view, &loads);
    if (!equal)
        next_sizes(self, view, &loads, sizes);
}

static void configure(void *state, const rt_dispatch_config *dispatch)
{
    ((makespan *)state)->dispatch.search_evaluations = dispatch->search_evaluations;
}

static void report(const void *state, dp_policy_report *out)
{
    out->evaluations = ((const makespan *)state)->evaluations;
}

#define WEIGHTS(XX, PART, NONE, T) \
    XX(T, up)                      \
    XX(T, down)                    \
    XX(T, ps_up)                   \
    XX(T, ps_down)
RT_FIELDS(weights_fields, weights, WEIGHTS, "up:512 down:512 ps_up:8 ps_down:8");
#define BOXES(XX, PART, NONE, T) \
    XX(T, up)                    \
    XX(T, down)
RT_FIELDS(boxes_fields, box_weights, BOXES, "up:512 down:512");

// The micro-batches of before.
typedef struct {
    uint32_t last[RT_WORKERS_MAX], last_count;
} saved_sizes;

#define SIZES(XX, PART, NONE, T) \
    XX(T, last)                  \
    XX(T, last_count)
RT_FIELDS(sizes_fields, saved_sizes, SIZES, "last:256 last_count:4");

static void save(const void *state, rt_bytes *bytes)
{
    const makespan *self = state;
    saved_sizes sizes = {.last_count = self->last_count};
    memcpy(sizes.last, self->last, sizeof sizes.last);
    rt_fields_put(bytes, &dp_policy_random_fields, &self->random, 1);
    rt_fields_put(bytes, &weights_fields, &self->weights, 1);
    rt_fields_put(bytes, &sizes_fields, &sizes, 1);
    if (self->box_count)
        rt_fields_put(bytes, &boxes_fields, &self->boxes, 1);
}

static bool load(void *state, rt_reader *reader)
{
    makespan *self = state;
    const weights *w = &self->weights;
    saved_sizes sizes;
    if (!rt_fields_get(reader, &dp_policy_random_fields, &self->random, 1) ||
        !rt_fields_get(reader, &weights_fields, &self->weights, 1) ||
        !rt_fields_get(reader, &sizes_fields, &sizes, 1) ||
        (self->box_count && !rt_fields_get(reader, &boxes_fields, &self->boxes, 1)))
        return false;
    memcpy(self->last, sizes.last, sizeof self->last);
    self->last_count = sizes.last_count;
    bool sane = w->ps_up >= 0 && w->ps_up <= 1 && w->ps_down >= 0 && w->ps_down <= 1;
    uint64_t samples = 0;
    for (uint32_t j = 0; j < self->worker_count; j++) {
        sane &= w->up[j] >= 0 && w->up[j] <= 1 && w->down[j] >= 0 && w->down[j] <= 1;
        samples += self->last[j];
    }
    for (uint32_t b = 0; b < self->box_count; b++)
        sane &= self->boxes.up[b] >= 0 && self->boxes.up[b] <= 1 && self->boxes.down[b] >= 0 &&
                self->boxes.down[b] <= 1;
    return sane && samples == self->last_count && !reader->failed;
}

const dp_policy_ops dp_policy_makespan = {.name = "makespan",
                                          .traits = DP_POLICY_UNEQUAL | DP_POLICY_TIME |
                                                    DP_POLICY_WINDOWS,
                                          .create = create,
                                          .destroy = destroy,
                                          .place = place,
                                          .configure = configure,
                                          .report = report,
                                          .save = save,
                                          .load = load};
