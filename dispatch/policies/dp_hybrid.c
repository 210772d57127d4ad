#include "dispatch/policies/dp_hybrid.h"

#include <math.h>
#include <string.h>

#include "dispatch/cache/dp_sort.h"

struct dp_hybrid {
    rt_hybrid_kind kind;
    const dp_solver_ops *solver;
    void *solver_state;
    uint32_t stride;
    int32_t *opt_cost; // the rows that Opt gets, in its order
    uint32_t *opt_row, *opt_sink;
    uint64_t *order, *leaving, *scratch; // rows by a weight in the upper half
    uint32_t *by_sink;                   // rows of each sink, who loses least by leaving first
    bool *is_taken;                      // by row: Opt has it
};

rt_status dp_hybrid_create(rt_hybrid_kind kind, const dp_solver_ops *solver, uint32_t row_count_max,
                           uint32_t sink_count_max, dp_hybrid **hybrid_p)
{
    const uint32_t rows = row_count_max;
    dp_hybrid *h = rt_alloc(1, sizeof *h);
    if (!h)
        return RT_NO_MEMORY;
    h->kind = kind;
    h->solver = solver;
    h->stride = (sink_count_max + 7) / 8 * 8;
    h->opt_cost = rt_alloc((size_t)rows * h->stride, sizeof *h->opt_cost);
    h->opt_row = rt_alloc_unset(rows, sizeof *h->opt_row);
    h->opt_sink = rt_alloc_unset(rows, sizeof *h->opt_sink);
    h->order = rt_alloc_unset(rows, sizeof *h->order);
    h->leaving = rt_alloc_unset(rows, sizeof *h->leaving);
    h->scratch = rt_alloc_unset(rows, sizeof *h->scratch);
    h->by_sink = rt_alloc_unset(rows, sizeof *h->by_sink);
    h->is_taken = rt_alloc_unset(rows, sizeof *h->is_taken);
    if (!h->opt_cost || !h->opt_row || !h->opt_sink || !h->order || !h->leaving || !h->scratch ||
        !h->by_sink || !h->is_taken || solver->create(rows, sink_count_max, &h->solver_state)) {
        dp_hybrid_destroy(h);
        return RT_NO_MEMORY;
    }
    *hybrid_p = h;
    return RT_OK;
}

void dp_hybrid_destroy(dp_hybrid *h)
{
    if (!h)
        return;
    if (h->solver_state)
        h->solver->destroy(h->solver_state);
    void *const all[] = {h->opt_cost, h->opt_row, h->opt_sink, h->order, h->leaving,
                         h->scratch,  h->by_sink, h->is_taken, h};
    for (size_t i = 0; i < RT_COUNT_OF(all); i++)
        rt_free(all[i]);
}

double dp_hybrid_device_s(const dp_hybrid *h)
{
    return h->solver->device_s ? h->solver->device_s(h->solver_state) : 0;
}

// ---- rows and their costs --------------------------------------------------------------------

static const int32_t *costs_of(const dp_problem *p, uint32_t row)
{
    return p->cost + (size_t)row * p->stride;
}

static uint32_t cheapest(const int32_t *costs, uint32_t n)
{
    uint32_t best = 0;
    for (uint32_t j = 1; j < n; j++)
        best = costs[j] < costs[best] ? j : best;
    return best;
}

// Least change of cost if the row goes to another sink than this one; 0 where there is no other.
static int32_t least_change(const int32_t *costs, uint32_t n, uint32_t sink)
{
    int32_t least = INT32_MAX;
    for (uint32_t j = 0; j < n; j++) {
        if (j != sink && costs[j] - costs[sink] < least)
            least = costs[j] - costs[sink];
    }
    return least == INT32_MAX ? 0 : least;
}

static uint32_t row_at(const uint64_t *order, uint32_t k)
{
    return (uint32_t)order[k];
}

// Falling order of weight; equal weights keep the order of rows.
static uint64_t falling(uint32_t weight, uint32_t row)
{
    return (uint64_t)~weight << 32 | row;
}

// Rows in falling order of min2 - min: the more a wrong sink may cost, the earlier (lines 1 and 2).
static void sort_by_regret(dp_hybrid *h, const dp_problem *p)
{
    for (uint32_t i = 0; i < p->row_count; i++) {
        const int32_t *costs = costs_of(p, i);
        const int32_t more = least_change(costs, p->sink_count, cheapest(costs, p->sink_count));
        h->order[i] = falling((uint32_t)more, i);
    }
    dp_sort_upper(h->order, h->scratch, p->row_count);
}

// Line 3: floor(alpha m_j) seats of each sink. Returns their sum, at most the number of rows.
static uint32_t opt_seats(const dp_problem *p, double alpha, uint32_t *seats)
{
    uint64_t sum = 0;
    for (uint32_t j = 0; j < p->sink_count; j++) {
        // The nearest double of a decimal alpha may lie just below it: 0.3 x 10 must give 3.
        seats[j] = (uint32_t)floor(alpha * p->capacity[j] + 1e-9);
        sum += seats[j];
    }
    return (uint32_t)rt_min_u64(sum, p->row_count);
}

// Heu: the rows of order from `from` on, each to its cheapest sink with room.
static void place_greedily(const dp_hybrid *h, const dp_problem *p, uint32_t from, uint32_t *room,
                           uint32_t *sink_of_row)
{
    for (uint32_t k = from; k < p->row_count; k++) {
        const int32_t *costs = costs_of(p, row_at(h->order, k));
        uint32_t best = RT_WORKERS_MAX;
        for (uint32_t j = 0; j < p->sink_count; j++) {
            if (room[j] && (best == RT_WORKERS_MAX || costs[j] < costs[best]))
                best = j;
        }
        room[best]--;
        sink_of_row[row_at(h->order, k)] = best;
    }
}

// Opt: the rows of opt_row, on so many seats of each sink.
static void place_exactly(dp_hybrid *h, const dp_problem *p, uint32_t count, const uint32_t *seats)
{
    const dp_problem part = {count, p->sink_count, h->stride, h->opt_cost, seats};
    for (uint32_t k = 0; k < count; k++)
        memcpy(h->opt_cost + (size_t)k * h->stride, costs_of(p, h->opt_row[k]),
               p->sink_count * sizeof *h->opt_cost);
    h->solver->solve(h->solver_state, &part, h->opt_sink);
}

// ---- as printed ------------------------------------------------------------------------------

static void solve_paper(dp_hybrid *h, const dp_problem *p, uint32_t count, const uint32_t *seats,
                        uint32_t *sink_of_row)
{
    uint32_t room[RT_WORKERS_MAX];
    memcpy(room, p->capacity, p->sink_count * sizeof *room);
    for (uint32_t k = 0; k < count; k++)
        h->opt_row[k] = row_at(h->order, k);
    place_exactly(h, p, count, seats);
    for (uint32_t k = 0; k < count; k++) {
        sink_of_row[h->opt_row[k]] = h->opt_sink[k];
        room[h->opt_sink[k]]--;
    }
    place_greedily(h, p, count, room, sink_of_row);
}

// ---- turned round ----------------------------------------------------------------------------

static bool take(dp_hybrid *h, uint32_t row, uint32_t *count)
{
    if (h->is_taken[row])
        return false;
    h->is_taken[row] = true;
    h->opt_row[(*count)++] = row;
    return true;
}

// leaving: rows by what they lose at least elsewhere; by_sink: the same, the rows of sink j from
// first[j] to first[j + 1].
static void sort_by_leaving(dp_hybrid *h, const dp_problem *p, const uint32_t *sink_of_row,
                            uint32_t *first)
{
    uint32_t next[RT_WORKERS_MAX];
    memset(first, 0, (p->sink_count + 1) * sizeof *first);
    for (uint32_t i = 0; i < p->row_count; i++) {
        const uint32_t sink = sink_of_row[i];
        const int32_t change = least_change(costs_of(p, i), p->sink_count, sink);
        h->leaving[i] = (uint64_t)(uint32_t)(change + DP_COST_MAX) << 32 | i;
        first[sink + 1]++;
    }
    dp_sort_upper(h->leaving, h->scratch, p->row_count);
    for (uint32_t j = 0; j < p->sink_count; j++) {
        first[j + 1] += first[j];
        next[j] = first[j];
    }
    for (uint32_t k = 0; k < p->row_count; k++) {
        const uint32_t row = row_at(h->leaving, k);
        h->by_sink[next[sink_of_row[row]]++] = row;
    }
}

// opt_row: the rows that are taken up again, the first `count` of an order that alpha does not change.
static void choose(dp_hybrid *h, const dp_problem *p, uint32_t count, const uint32_t *sink_of_row)
{
    uint32_t first[RT_WORKERS_MAX + 1], next[RT_WORKERS_MAX], taken = 0;
    sort_by_leaving(h, p, sink_of_row, first);
    memcpy(next, first, p->sink_count * sizeof *next);
    memset(h->is_taken, 0, p->row_count * sizeof *h->is_taken);
    for (uint32_t i = 0; i < p->row_count; i++) {
        const int32_t *costs = costs_of(p, i);
        const int32_t excess = costs[sink_of_row[i]] - costs[cheapest(costs, p->sink_count)];
        h->order[i] = falling((uint32_t)excess, i);
    }
    dp_sort_upper(h->order, h->scratch, p->row_count);
    for (uint32_t k = 0; k < p->row_count && taken < count; k++) {
        const uint32_t row = row_at(h->order, k);
        const uint32_t wanted = cheapest(costs_of(p, row), p->sink_count);
        if (wanted == sink_of_row[row])
            break; // and so are all that follow
        take(h, row, &taken);
        while (taken < count && next[wanted] < first[wanted + 1] &&
               !take(h, h->by_sink[next[wanted]++], &taken))
            ;
    }
    for (uint32_t k = 0; k < p->row_count && taken < count; k++)
        take(h, row_at(h->leaving, k), &taken);
}

static void solve_refine(dp_hybrid *h, const dp_problem *p, uint32_t count, uint32_t *sink_of_row)
{
    uint32_t room[RT_WORKERS_MAX], seats[RT_WORKERS_MAX] = {0};
    int64_t before = 0, after = 0;
    memcpy(room, p->capacity, p->sink_count * sizeof *room);
    place_greedily(h, p, 0, room, sink_of_row);
    choose(h, p, count, sink_of_row);
    for (uint32_t k = 0; k < count; k++)
        seats[sink_of_row[h->opt_row[k]]]++;
    place_exactly(h, p, count, seats);
    for (uint32_t k = 0; k < count; k++) {
        const int32_t *costs = costs_of(p, h->opt_row[k]);
        before += costs[sink_of_row[h->opt_row[k]]];
        after += costs[h->opt_sink[k]];
    }
    rt_assert(!h->solver->exact || after <= before);
    for (uint32_t k = 0; k < count && after <= before; k++)
        sink_of_row[h->opt_row[k]] = h->opt_sink[k];
}

// ---- dispatch error --------------------------------------------------------------------------

// What HybridDis loses at most against the optimum of the same matrix. The bound and its proof are
// our own: ESD's Theorem 1 is about each row of Heu alone, against the row's smallest cost. (Row i
// in Heu's order, with room for m on every worker, pays at most its (floor(i / m) + 1)-th smallest
// cost, since at most floor(i / m) workers are full. Where rows are taken up again, the sum of these
// bounds still holds, as no total rises.) S: rows of Opt, on a_j seats of sink j; H: rows of Heu;
// regret: a row's cost less its smallest; spread: its largest cost less its smallest.
//     bound = sum over H of regret + min(sum over S of regret, the sum of m_j - a_j largest spreads
//             in S)
// Proof. The optimum pays at least the smallest cost of every row, which gives the regrets. The
// optimum restricted to S may exceed a_j rows on sink j, by at most m_j - a_j, in all by at most the
// sum of these. Moving the excess to free seats of Opt makes it feasible for Opt and raises its cost
// by at most one spread per row moved; an exact Opt pays no more than that. alpha = 1: 0.
static int64_t error_bound(dp_hybrid *h, const dp_problem *p, uint32_t count,
                           const uint32_t *sink_of_row)
{
    int64_t opt_regret = 0, regret = 0, opt_spread = 0, free_seats = -(int64_t)count;
    uint32_t opt = 0;
    for (uint32_t j = 0; j < p->sink_count; j++)
        free_seats += p->capacity[j];
    memset(h->is_taken, 0, p->row_count * sizeof *h->is_taken);
    for (uint32_t k = 0; k < count; k++)
        h->is_taken[h->opt_row[k]] = true;
    for (uint32_t i = 0; i < p->row_count; i++) {
        const int32_t *costs = costs_of(p, i);
        int32_t min = costs[0], max = costs[0];
        for (uint32_t j = 1; j < p->sink_count; j++) {
            min = costs[j] < min ? costs[j] : min;
            max = costs[j] > max ? costs[j] : max;
        }
        regret += costs[sink_of_row[i]] - min;
        if (!h->is_taken[i])
            continue;
        opt_regret += costs[sink_of_row[i]] - min;
        h->order[opt++] = falling((uint32_t)(max - min), i);
    }
    if (!h->solver->exact)
        return regret;
    dp_sort_upper(h->order, h->scratch, opt);
    for (uint32_t k = 0; k < opt && k < free_seats; k++)
        opt_spread += ~(uint32_t)(h->order[k] >> 32);
    return regret - opt_regret + (opt_regret < opt_spread ? opt_regret : opt_spread);
}

// ---- all -------------------------------------------------------------------------------------

dp_hybrid_result dp_hybrid_solve(dp_hybrid *h, const dp_problem *p, double alpha,
                                 uint32_t *sink_of_row)
{
    uint32_t seats[RT_WORKERS_MAX];
    const uint32_t count = opt_seats(p, alpha, seats);
    dp_hybrid_result result = {.opt_rows = count, .heu_rows = p->row_count - count};
    if (count == p->row_count) {
        for (uint32_t i = 0; i < count; i++)
            h->opt_row[i] = i;
        h->solver->solve(h->solver_state, p, sink_of_row);
        if (h->solver->exact)
            return result;
    } else {
        sort_by_regret(h, p);
        if (h->kind == RT_HYBRID_PAPER)
            solve_paper(h, p, count, seats, sink_of_row);
        else
            solve_refine(h, p, count, sink_of_row);
    }
    result.error_bound = error_bound(h, p, count, sink_of_row);
    return result;
}
