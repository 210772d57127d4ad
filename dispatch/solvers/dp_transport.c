// Successive shortest paths on the graph of the sinks (Ahuja, Magnanti, Orlin: Network Flows,
// section 9.7), with prices warmed up on samples of the rows.
//
// Unused places are taken by blank rows that cost nothing anywhere, so that every place is filled
// and prices may start anywhere: a placement that gives every row (blanks too) a sink of least cost
// plus price is optimal for the loads that it has, and augmenting along shortest paths keeps that
// true until the loads are the capacities. Blanks are all alike and only counted.
#include "dispatch/solvers/dp_moves.h"
#include "dispatch/solvers/dp_solver.h"

#include <string.h>

#define LEVEL_STEP 4u               // a level solves every fourth row of the next one
#define LEVEL_ROWS_PER_SINK 4u      // the first level has at least so many rows per sink
#define BATCH_ROWS 64u              // rows whose cheapest sinks are found at once
#define PRICE_MAX (DP_COST_MAX + 1) // a sink this much dearer than another is nobody's choice
#define NO_SLOT UINT32_MAX

typedef struct {
    dp_moves moves;
    dp_lanes_search search;
    int32_t padded[BATCH_ROWS * DP_LANES_MAX];
    int32_t start_price[DP_LANES_MAX]; // 0 .. PRICE_MAX
    int64_t price[RT_WORKERS_MAX];
    int64_t room[RT_WORKERS_MAX];  // places left; negative: over capacity
    int64_t blank[RT_WORKERS_MAX]; // blank rows here
    int64_t excess;                // rows above the capacities, all sinks together
    uint32_t sink_count;
} transport;

static void transport_destroy(void *state)
{
    transport *solver = state;
    if (!solver)
        return;
    dp_moves_fini(&solver->moves);
    rt_free(solver);
}

static rt_status transport_create(uint32_t row_count_max, uint32_t sink_count_max, void **state_p)
{
    rt_assert(sink_count_max >= 1 && sink_count_max <= RT_WORKERS_MAX);
    transport *solver = rt_alloc(1, sizeof *solver);
    if (!solver)
        return RT_NO_MEMORY;
    rt_status status = dp_moves_init(&solver->moves, row_count_max, sink_count_max);
    if (status) {
        rt_free(solver);
        return status;
    }
    *state_p = solver;
    return RT_OK;
}

// Capacities of a level with row_count of the problem's rows: in proportion, rounded such that the
// sums are too (never below row_count). Returns the number of unused places.
static int64_t share_capacity(transport *solver, const dp_problem *problem, uint32_t row_count)
{
    uint64_t sum = 0, shared = 0;
    for (uint32_t j = 0; j < problem->sink_count; j++) {
        sum += rt_min_u64(problem->capacity[j], problem->row_count);
        // sum is at most 64 N, so its product with row_count stays below 2^70: split off the N.
        uint64_t whole = sum / problem->row_count, rest = sum % problem->row_count;
        uint64_t share = whole * row_count + rest * row_count / problem->row_count;
        solver->room[j] = (int64_t)(share - shared);
        shared = share;
    }
    rt_assert(shared >= row_count);
    return (int64_t)(shared - row_count);
}

static uint32_t roomiest(const transport *solver, uint64_t tied)
{
    uint32_t best = dp_lanes_of_bit(rt_lowest_bit(tied));
    for (tied &= tied - 1; tied; tied &= tied - 1) {
        uint32_t sink = dp_lanes_of_bit(rt_lowest_bit(tied));
        if (solver->room[sink] > solver->room[best])
            best = sink;
    }
    return best;
}

// A batch of rows, every step-th from first, as vectors of lanes: where they are if sinks fill the
// lanes, else copied. *stride_p: from one to the next.
static const int32_t *gather(transport *solver, const dp_problem *problem, uint32_t first,
                             uint32_t step, uint32_t count, size_t *stride_p)
{
    const int32_t *cost = problem->cost + (size_t)first * problem->stride;
    size_t stride = (size_t)step * problem->stride;
    uint32_t lanes = solver->moves.lane_count;
    if (problem->sink_count == lanes) {
        *stride_p = stride;
        return cost;
    }
    for (uint32_t r = 0; r < count; r++)
        memcpy(solver->padded + (size_t)r * lanes, cost + r * stride,
               problem->sink_count * sizeof(int32_t));
    *stride_p = lanes;
    return solver->padded;
}

// Puts every step-th row on its cheapest sink under the start prices.
static void place_rows(transport *solver, const dp_problem *problem, uint32_t step,
                       uint32_t row_count)
{
    dp_moves *moves = &solver->moves;
    uint64_t tied[BATCH_ROWS];
    for (uint32_t first = 0; first < row_count; first += BATCH_ROWS) {
        uint32_t count = (uint32_t)rt_min_u64(BATCH_ROWS, row_count - first);
        size_t stride;
        const int32_t *costs = gather(solver, problem, first * step, step, count, &stride);
        moves->lanes->lowest(costs, count, stride, solver->start_price, moves->lane_count, tied);
        for (uint32_t r = 0; r < count; r++) {
            uint32_t sink = roomiest(solver, tied[r]);
            solver->room[sink]--;
            dp_moves_add(moves, sink, (first + r) * step, costs + r * stride);
        }
    }
}

// Blanks belong on sinks of the lowest price: into their room first, the rest anywhere there.
static void place_blanks(transport *solver, int64_t count)
{
    uint32_t cheapest = 0;
    memset(solver->blank, 0, sizeof solver->blank);
    for (uint32_t j = 0; j < solver->sink_count; j++) {
        if (solver->start_price[j] < solver->start_price[cheapest])
            cheapest = j;
    }
    for (uint32_t j = 0; j < solver->sink_count; j++) {
        if (solver->start_price[j] != solver->start_price[cheapest] || solver->room[j] <= 0)
            continue;
        int64_t here = solver->room[j] < count ? solver->room[j] : count;
        solver->blank[j] = here;
        solver->room[j] -= here;
        count -= here;
    }
    solver->blank[cheapest] += count;
    solver->room[cheapest] -= count;
}

// Keys of all sinks before a search; returns the lowest.
static int64_t search_begin(transport *solver)
{
    dp_lanes_search *search = &solver->search;
    int64_t low = DP_LANES_UNREACHED;
    for (uint32_t j = 0; j < solver->sink_count; j++) {
        int64_t tag = (solver->room[j] > 0 ? 0 : DP_LANES_KEY_FULL) | j;
        bool useless = solver->room[j] == 0 && solver->moves.row_count[j] == 0 &&
                       solver->blank[j] == 0; // capacity 0: nothing may come, nothing can go
        search->price[j] = solver->price[j] * (1 << DP_LANES_KEY_BITS) + tag;
        search->closed[j] = useless ? INT64_MAX : 0;
        search->parent[j] = j;
        search->key[j] = solver->room[j] < 0 ? tag : DP_LANES_UNREACHED;
        low = search->key[j] < low ? search->key[j] : low;
    }
    return low;
}

// Dijkstra from all sinks over capacity to the nearest one with room, which is returned; prices
// rise so that no arc's reduced cost becomes negative and the path's are 0.
static uint32_t search_path(transport *solver)
{
    static const int32_t free_weights[DP_LANES_MAX];
    dp_lanes_search *search = &solver->search;
    int64_t low = search_begin(solver);
    for (uint32_t settled = 0; low & DP_LANES_KEY_FULL; settled++) {
        rt_assert(settled < solver->sink_count);
        uint32_t sink = low & DP_LANES_KEY_SINK;
        const int32_t *weights = dp_moves_least(&solver->moves, sink);
        if (solver->moves.row_count[sink] == 0)
            weights = free_weights;
        low = solver->moves.lanes->settle(search, sink, weights,
                                          solver->blank[sink] > 0 ? 0 : INT32_MAX,
                                          solver->moves.lane_count);
        rt_assert(low < DP_LANES_UNREACHED); // there are as many places as rows
    }
    int64_t distance = low >> DP_LANES_KEY_BITS;
    for (uint32_t j = 0; j < solver->sink_count && distance > 0; j++) {
        int64_t nearer = distance - (search->key[j] >> DP_LANES_KEY_BITS);
        solver->price[j] += nearer > 0 ? nearer : 0;
    }
    return low & DP_LANES_KEY_SINK;
}

static bool moves_blank(const transport *solver, uint32_t from, uint32_t to)
{
    return solver->blank[from] > 0 &&
           (solver->moves.row_count[from] == 0 || dp_moves_least(&solver->moves, from)[to] >= 0);
}

// How many rows can follow the path to target: several only when all of them are blanks.
static int64_t path_amount(const transport *solver, uint32_t target)
{
    int64_t amount = solver->room[target];
    uint32_t to = target;
    for (uint32_t from; (from = (uint32_t)solver->search.parent[to]) != to; to = from) {
        if (!moves_blank(solver, from, to))
            return 1;
        amount = solver->blank[from] < amount ? solver->blank[from] : amount;
    }
    return -solver->room[to] < amount ? -solver->room[to] : amount;
}

// Moves rows along the path that ends at target, from there back to its source.
static void augment(transport *solver, uint32_t target)
{
    dp_moves *moves = &solver->moves;
    int64_t amount = path_amount(solver, target);
    uint32_t to = target, gap = NO_SLOT; // gap: slot of the row that has just left `to`
    for (uint32_t from; (from = (uint32_t)solver->search.parent[to]) != to; to = from) {
        if (moves_blank(solver, from, to)) {
            if (gap != NO_SLOT)
                dp_moves_remove(moves, to, gap);
            solver->blank[to] += amount;
            solver->blank[from] -= amount;
            gap = NO_SLOT;
        } else {
            uint32_t slot = dp_moves_find(moves, from, to);
            uint32_t row = dp_moves_row(moves, from, slot);
            if (gap != NO_SLOT)
                dp_moves_replace(moves, to, gap, row);
            else
                dp_moves_append(moves, to, row);
            gap = slot;
        }
    }
    if (gap != NO_SLOT)
        dp_moves_remove(moves, to, gap);
    solver->room[target] -= amount;
    solver->room[to] += amount;
    solver->excess -= amount;
}

// Prices as start prices: only differences matter, and none beyond PRICE_MAX.
static void lower_prices(transport *solver, const dp_problem *problem)
{
    int64_t low = INT64_MAX;
    for (uint32_t j = 0; j < problem->sink_count; j++) {
        if (problem->capacity[j] > 0 && solver->price[j] < low)
            low = solver->price[j];
    }
    for (uint32_t j = 0; j < problem->sink_count; j++) {
        int64_t price = solver->price[j] - low;
        if (problem->capacity[j] == 0 || price > PRICE_MAX)
            price = PRICE_MAX;
        solver->start_price[j] = (int32_t)price;
        solver->price[j] = price;
    }
}

// Solves for every step-th row, from the prices of the level before.
static void solve_level(transport *solver, const dp_problem *problem, uint32_t step)
{
    uint32_t row_count = (problem->row_count - 1) / step + 1;
    dp_moves_reset(&solver->moves, problem);
    lower_prices(solver, problem);
    int64_t blank_count = share_capacity(solver, problem, row_count);
    place_rows(solver, problem, step, row_count);
    place_blanks(solver, blank_count);
    solver->excess = 0;
    for (uint32_t j = 0; j < solver->sink_count; j++)
        solver->excess += solver->room[j] < 0 ? -solver->room[j] : 0;
    if (solver->excess > 0)
        dp_moves_build(&solver->moves);
    while (solver->excess > 0)
        augment(solver, search_path(solver));
}

static void transport_solve(void *state, const dp_problem *problem, uint32_t *sink_of_row)
{
    transport *solver = state;
    if (problem->row_count == 0)
        return;
    solver->sink_count = problem->sink_count;
    memset(solver->price, 0, sizeof solver->price);
    for (uint32_t i = 0; i < RT_COUNT_OF(solver->padded); i++)
        solver->padded[i] = DP_LANES_PAD;
    for (uint32_t lane = problem->sink_count; lane < DP_LANES_MAX; lane++) {
        solver->search.price[lane] = DP_LANES_UNREACHED;
        solver->search.key[lane] = DP_LANES_UNREACHED;
        solver->search.closed[lane] = INT64_MAX;
    }
    uint32_t step = 1;
    while (problem->row_count / (step * LEVEL_STEP) >= LEVEL_ROWS_PER_SINK * problem->sink_count)
        step *= LEVEL_STEP;
    for (; step >= 1; step /= LEVEL_STEP)
        solve_level(solver, problem, step);
    for (uint32_t j = 0; j < problem->sink_count; j++) {
        for (uint32_t slot = 0; slot < solver->moves.row_count[j]; slot++)
            sink_of_row[dp_moves_row(&solver->moves, j, slot)] = j;
    }
}

const dp_solver_ops dp_solver_transport = {
    .name = "transport",
    .exact = true,
    .create = transport_create,
    .destroy = transport_destroy,
    .solve = transport_solve,
};
