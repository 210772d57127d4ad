#include "tests/bench/dispatch/dp_bound.h"

#include <math.h>
#include <string.h>

#include "dispatch/policies/dp_search.h"
#include "dispatch/solvers/dp_solver.h"

// ---- the true cost ---------------------------------------------------------------------------

static bool has_owner(const dp_distinct *key)
{
    return key->dirty && key->holders;
}

static int64_t owner_push(const dp_view *view, const dp_distinct *key)
{
    int64_t least = INT64_MAX;
    if (!has_owner(key))
        return 0;
    for (uint32_t j = 0; j < view->worker_count; j++) {
        if (key->holders >> j & 1 && view->ticks->push[key->field][j] < least)
            least = view->ticks->push[key->field][j];
    }
    return least;
}

static int64_t pull_cost(const dp_view *view, const dp_distinct *key, uint32_t worker)
{
    return key->holders >> worker & 1 ? 0 : view->ticks->pull[key->field][worker];
}

// What worker j adds to f_x(U) when there are others.
static int64_t share_cost(const dp_view *view, const dp_distinct *key, uint32_t worker)
{
    return pull_cost(view, key, worker) + view->ticks->grad[key->field][worker];
}

static int64_t alone_cost(const dp_view *view, const dp_distinct *key, uint32_t worker)
{
    int64_t later = (int64_t)rint(view->ticks->push[key->field][worker] * DP_SEARCH_LATER);
    int64_t push = key->holders == rt_bit(worker) ? 0 : owner_push(view, key);
    return pull_cost(view, key, worker) + push + later;
}

// f_x(U)
static int64_t key_cost(const dp_view *view, const dp_distinct *key, uint64_t users)
{
    if (users == 0)
        return 0;
    if (rt_bit_count(users) == 1)
        return alone_cost(view, key, rt_lowest_bit(users));
    int64_t cost = owner_push(view, key);
    for (uint64_t rest = users; rest; rest &= rest - 1)
        cost += share_cost(view, key, rt_lowest_bit(rest));
    return cost;
}

rt_status dp_bound_cost(const dp_view *view, const uint32_t *worker_of_sample, int64_t *cost_p)
{
    uint64_t *users = rt_alloc(view->distinct_count, sizeof *users);
    if (!users)
        return RT_NO_MEMORY;
    for (uint32_t i = 0; i < view->sample_count; i++) {
        for (uint32_t k = view->offsets[i]; k < view->offsets[i + 1]; k++)
            users[view->lookups[k]] |= rt_bit(worker_of_sample[i]);
    }
    *cost_p = 0;
    for (uint32_t d = 0; d < view->distinct_count; d++)
        *cost_p += key_cost(view, &view->distinct[d], users[d]);
    rt_free(users);
    return RT_OK;
}

// ---- the lower bound -------------------------------------------------------------------------
//
// Split the cost of every key evenly over its k samples, at the best that can happen to a sample
// on worker j:
//     g_x(j) = (1 / k) min { f_x(U) : j in U, u <= |U| <= min(k, n) }
// where u = ceil(k / largest capacity): the samples of x do not fit onto fewer workers.
// For any placement let U be the workers of x and c_j its samples on j (sum over j in U of c_j =
// k). Every j in U has f_x(U) among its candidates, so g_x(j) <= f_x(U) / k, and
//     sum over the samples of x of g_x(their worker) = sum over j in U of c_j g_x(j) <= f_x(U).
// Summed over the keys: the placement costs at least the sum over its samples i of
//     w(i, j) = sum over the keys x of sample i of g_x(j).
// That is a transportation problem, whose exact optimum bounds every placement from below. w is
// rounded down to ticks, which keeps it a bound and loses less than a tick per sample.

static void sort_costs(int64_t *costs, uint32_t count)
{
    for (uint32_t i = 1; i < count; i++) {
        int64_t moved = costs[i];
        uint32_t at = i;
        for (; at > 0 && costs[at - 1] > moved; at--)
            costs[at] = costs[at - 1];
        costs[at] = moved;
    }
}

// min { f_x(U) : j in U, |U| >= 2, least <= |U| }: j, and the cheapest others.
static int64_t least_shared(const dp_view *view, const dp_distinct *key, uint32_t worker,
                            uint32_t least)
{
    int64_t others[RT_WORKERS_MAX];
    uint32_t count = 0;
    for (uint32_t j = 0; j < view->worker_count; j++) {
        if (j != worker)
            others[count++] = share_cost(view, key, j);
    }
    sort_costs(others, count);
    int64_t cost = owner_push(view, key) + share_cost(view, key, worker);
    for (uint32_t k = 0; k + 1 < least || k < 1; k++)
        cost += others[k];
    return cost;
}

// g_x by worker
static void split_key(const dp_view *view, const dp_distinct *key, uint32_t capacity_max,
                      double *split)
{
    uint32_t least = (key->uses + capacity_max - 1) / capacity_max;
    for (uint32_t j = 0; j < view->worker_count; j++) {
        int64_t cost = INT64_MAX;
        if (least <= 1)
            cost = alone_cost(view, key, j);
        if (key->uses >= 2 && view->worker_count >= 2) {
            int64_t shared = least_shared(view, key, j, least);
            if (shared < cost)
                cost = shared;
        }
        split[j] = (double)cost / key->uses;
    }
}

// The costs of samples that the bound is the least sum of. splits: room for those of all keys.
static void split_costs(const dp_view *view, double *splits, int32_t *cost)
{
    uint32_t n = view->worker_count, capacity_max = 1;
    for (uint32_t j = 0; j < n; j++)
        capacity_max = (uint32_t)rt_max_u64(capacity_max, view->capacity[j]);
    for (uint32_t d = 0; d < view->distinct_count; d++)
        split_key(view, &view->distinct[d], capacity_max, splits + (size_t)d * n);
    for (uint32_t i = 0; i < view->sample_count; i++) {
        double sum[RT_WORKERS_MAX] = {0};
        for (uint32_t k = view->offsets[i]; k < view->offsets[i + 1]; k++) {
            const double *split = splits + (size_t)view->lookups[k] * n;
            for (uint32_t j = 0; j < n; j++)
                sum[j] += split[j];
        }
        // Rounding errors of the sum are far below 1e-3 ticks.
        for (uint32_t j = 0; j < n; j++)
            cost[(size_t)i * n + j] = (int32_t)fmax(0, sum[j] - 1e-3);
    }
}

static rt_status solve(const dp_view *view, const int32_t *cost, uint32_t *place, int64_t *bound_p)
{
    const uint32_t n = view->worker_count;
    const dp_problem problem = {view->sample_count, n, n, cost, view->capacity};
    void *solver;
    const rt_status status = dp_solver_transport.create(view->sample_count, n, &solver);
    if (status)
        return status;
    dp_solver_transport.solve(solver, &problem, place);
    *bound_p = dp_placement_cost(&problem, place);
    dp_solver_transport.destroy(solver);
    return RT_OK;
}

rt_status dp_bound_lower(const dp_view *view, int64_t *bound_p)
{
    const uint32_t n = view->worker_count;
    int32_t *cost = rt_alloc((size_t)view->sample_count * n, sizeof *cost);
    double *splits = rt_alloc((size_t)view->distinct_count * n, sizeof *splits);
    uint32_t *place = rt_alloc(view->sample_count, sizeof *place);
    rt_status status = RT_NO_MEMORY;
    if (cost && splits && place) {
        split_costs(view, splits, cost);
        status = solve(view, cost, place, bound_p);
    }
    rt_free(cost);
    rt_free(splits);
    rt_free(place);
    return status;
}

// ---- exhaustive search -----------------------------------------------------------------------

typedef struct {
    const dp_view *view;
    int64_t *costs; // distinct key x set of workers
    uint32_t sets;
    uint8_t (*uses)[DP_BOUND_WORKERS_MAX]; // of a key on a worker
    uint32_t room[DP_BOUND_WORKERS_MAX];
    uint32_t *users; // of a key, as a set
    int64_t cost, best;
} exhaustive;

static void put(exhaustive *e, uint32_t sample, uint32_t worker)
{
    for (uint32_t k = e->view->offsets[sample]; k < e->view->offsets[sample + 1]; k++) {
        uint32_t d = e->view->lookups[k];
        const int64_t *costs = e->costs + (size_t)d * e->sets;
        if (e->uses[d][worker]++ == 0) {
            e->cost -= costs[e->users[d]];
            e->users[d] |= 1u << worker;
            e->cost += costs[e->users[d]];
        }
    }
    e->room[worker]--;
}

static void take(exhaustive *e, uint32_t sample, uint32_t worker)
{
    for (uint32_t k = e->view->offsets[sample]; k < e->view->offsets[sample + 1]; k++) {
        uint32_t d = e->view->lookups[k];
        const int64_t *costs = e->costs + (size_t)d * e->sets;
        if (--e->uses[d][worker] == 0) {
            e->cost -= costs[e->users[d]];
            e->users[d] &= ~(1u << worker);
            e->cost += costs[e->users[d]];
        }
    }
    e->room[worker]++;
}

// At most DP_BOUND_SAMPLES_MAX deep.
static void place_from(exhaustive *e, uint32_t sample)
{
    if (sample == e->view->sample_count) {
        if (e->cost < e->best)
            e->best = e->cost;
        return;
    }
    for (uint32_t j = 0; j < e->view->worker_count; j++) {
        if (e->room[j] == 0)
            continue;
        put(e, sample, j);
        place_from(e, sample + 1);
        take(e, sample, j);
    }
}

rt_status dp_bound_optimum(const dp_view *view, int64_t *cost_p)
{
    exhaustive e = {.view = view, .sets = 1u << view->worker_count, .best = INT64_MAX};
    rt_assert(view->worker_count <= DP_BOUND_WORKERS_MAX);
    rt_assert(view->sample_count <= DP_BOUND_SAMPLES_MAX);
    e.costs = rt_alloc((size_t)view->distinct_count * e.sets, sizeof *e.costs);
    e.uses = rt_alloc(view->distinct_count, sizeof *e.uses);
    e.users = rt_alloc(view->distinct_count, sizeof *e.users);
    rt_status status = e.costs && e.uses && e.users ? RT_OK : RT_NO_MEMORY;
    if (!status) {
        for (uint32_t d = 0; d < view->distinct_count; d++) {
            for (uint32_t set = 0; set < e.sets; set++)
                e.costs[(size_t)d * e.sets + set] = key_cost(view, &view->distinct[d], set);
        }
        memcpy(e.room, view->capacity, view->worker_count * sizeof *e.room);
        place_from(&e, 0);
        *cost_p = e.best;
    }
    rt_free(e.costs);
    rt_free(e.uses);
    rt_free(e.users);
    return status;
}
