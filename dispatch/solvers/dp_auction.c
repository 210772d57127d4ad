// The auction method with epsilon scaling (Bertsekas, Castanon: The auction algorithm for the
// transportation problem, Annals of Operations Research 20, 1989), in rounds: all rows without a
// place bid at the same prices, then every sink keeps the highest bids. Both halves are loops over
// independent elements.
//
// A sink has one price, the lowest bid that it keeps, once it is full. A bid is the price up to
// which the row stays: so at the end every row is within epsilon of its best sink. A cycle over the
// sinks, at most n of them, then costs at least -n epsilon: with costs times n + 1 and epsilon 1
// it cannot be negative, and the placement is optimal. This needs every sink full: blank rows that
// cost nothing anywhere take the unused places.
#include "dispatch/solvers/dp_solver.h"

#define NO_ROW UINT32_MAX
#define EPSILON_STEP 5 // epsilon falls by this factor from phase to phase

typedef struct {
    int64_t price;
    uint32_t row;
} bid;

typedef struct {
    bid *bids;         // places of all sinks; those of one sink are a heap, the lowest bid on top
    bid *fresh;        // of this round, in the order of waiting
    uint8_t *target;   // the sink that each is for
    uint32_t *waiting; // rows without a place
    uint32_t waiting_count;
    uint32_t row_count;  // with blanks
    uint32_t sink_count; // those with places
    uint32_t sinks[RT_WORKERS_MAX];
    uint32_t place_count[RT_WORKERS_MAX];
    uint32_t kept_count[RT_WORKERS_MAX];
    uint32_t first_place[RT_WORKERS_MAX];
    int64_t price[RT_WORKERS_MAX];
} auction;

static void auction_destroy(void *state)
{
    auction *solver = state;
    if (!solver)
        return;
    rt_free(solver->bids);
    rt_free(solver->fresh);
    rt_free(solver->target);
    rt_free(solver->waiting);
    rt_free(solver);
}

static rt_status auction_create(uint32_t row_count_max, uint32_t sink_count_max, void **state_p)
{
    rt_assert(sink_count_max >= 1 && sink_count_max <= RT_WORKERS_MAX);
    uint64_t places = (uint64_t)row_count_max * sink_count_max;
    if (places > UINT32_MAX)
        return RT_NO_MEMORY;
    auction *solver = rt_alloc(1, sizeof *solver);
    if (!solver)
        return RT_NO_MEMORY;
    solver->bids = rt_alloc(places, sizeof(bid));
    solver->fresh = rt_alloc(places, sizeof(bid));
    solver->target = rt_alloc(places, sizeof(uint8_t));
    solver->waiting = rt_alloc(places, sizeof(uint32_t));
    if (!solver->bids || !solver->fresh || !solver->target || !solver->waiting) {
        auction_destroy(solver);
        return RT_NO_MEMORY;
    }
    *state_p = solver;
    return RT_OK;
}

// Keeps only sinks with places; none needs more of them than there are rows.
static void list_sinks(auction *solver, const dp_problem *problem)
{
    solver->sink_count = 0;
    solver->row_count = 0;
    for (uint32_t j = 0; j < problem->sink_count; j++) {
        uint32_t places = (uint32_t)rt_min_u64(problem->capacity[j], problem->row_count);
        if (places == 0)
            continue;
        uint32_t k = solver->sink_count++;
        solver->sinks[k] = j;
        solver->place_count[k] = places;
        solver->first_place[k] = solver->row_count;
        solver->price[k] = 0;
        solver->row_count += places;
    }
}

// The bid of one row: how far its best sink may rise above the second best, and epsilon more.
static void make_bid(auction *solver, const dp_problem *problem, uint32_t index, int64_t epsilon)
{
    static const int32_t blank[RT_WORKERS_MAX];
    uint32_t row = solver->waiting[index];
    const int32_t *cost =
        row < problem->row_count ? problem->cost + (size_t)row * problem->stride : blank;
    int64_t scale = problem->sink_count + 1;
    int64_t best = INT64_MAX, second = INT64_MAX;
    uint32_t target = 0;
    for (uint32_t k = 0; k < solver->sink_count; k++) {
        int64_t value = cost[solver->sinks[k]] * scale + solver->price[k];
        if (value < best) {
            second = best;
            best = value;
            target = k;
        } else if (value < second) {
            second = value;
        }
    }
    if (solver->sink_count == 1)
        second = best;
    solver->target[index] = (uint8_t)target;
    solver->fresh[index] =
        (bid){.price = solver->price[target] + (second - best) + epsilon, .row = row};
}

// A total order, so that the outcome of a round does not depend on the order of its bids.
static bool bid_below(bid a, bid b)
{
    return a.price < b.price || (a.price == b.price && a.row > b.row);
}

static void sift_up(bid *heap, uint32_t at)
{
    bid moved = heap[at];
    for (; at > 0 && bid_below(moved, heap[(at - 1) / 2]); at = (at - 1) / 2)
        heap[at] = heap[(at - 1) / 2];
    heap[at] = moved;
}

static void sift_down(bid *heap, uint32_t count)
{
    bid moved = heap[0];
    uint32_t at = 0;
    for (uint32_t child; (child = 2 * at + 1) < count; at = child) {
        if (child + 1 < count && bid_below(heap[child + 1], heap[child]))
            child++;
        if (!bid_below(heap[child], moved))
            break;
        heap[at] = heap[child];
    }
    heap[at] = moved;
}

// Gives the bid a place if it is high enough; returns the row that is left without, or NO_ROW.
static uint32_t take_bid(auction *solver, uint32_t sink, bid offered)
{
    bid *heap = solver->bids + solver->first_place[sink];
    uint32_t places = solver->place_count[sink];
    uint32_t left = NO_ROW;
    if (solver->kept_count[sink] < places) {
        uint32_t at = solver->kept_count[sink]++;
        heap[at] = offered;
        sift_up(heap, at);
    } else if (bid_below(offered, heap[0])) {
        return offered.row;
    } else {
        left = heap[0].row;
        heap[0] = offered;
        sift_down(heap, places);
    }
    if (solver->kept_count[sink] == places)
        solver->price[sink] = heap[0].price;
    return left;
}

// One phase: everything is up for auction again, at the prices that the last phase left.
static void run_phase(auction *solver, const dp_problem *problem, int64_t epsilon)
{
    solver->waiting_count = solver->row_count;
    for (uint32_t i = 0; i < solver->row_count; i++)
        solver->waiting[i] = i;
    for (uint32_t k = 0; k < solver->sink_count; k++)
        solver->kept_count[k] = 0;
    // Ends: in every round a sink with bids gets fuller, or the lowest bid that it keeps rises.
    while (solver->waiting_count > 0) {
        for (uint32_t i = 0; i < solver->waiting_count; i++)
            make_bid(solver, problem, i, epsilon);
        uint32_t left_count = 0;
        for (uint32_t i = 0; i < solver->waiting_count; i++) {
            uint32_t left = take_bid(solver, solver->target[i], solver->fresh[i]);
            if (left != NO_ROW)
                solver->waiting[left_count++] = left;
        }
        solver->waiting_count = left_count;
    }
}

static int64_t cost_highest(const dp_problem *problem)
{
    int64_t highest = 0;
    for (uint32_t i = 0; i < problem->row_count; i++) {
        const int32_t *cost = problem->cost + (size_t)i * problem->stride;
        for (uint32_t j = 0; j < problem->sink_count; j++)
            highest = cost[j] > highest ? cost[j] : highest;
    }
    return highest;
}

static void auction_solve(void *state, const dp_problem *problem, uint32_t *sink_of_row)
{
    auction *solver = state;
    list_sinks(solver, problem);
    int64_t epsilon = cost_highest(problem) * (problem->sink_count + 1) / EPSILON_STEP;
    for (; epsilon > 1; epsilon /= EPSILON_STEP)
        run_phase(solver, problem, epsilon);
    run_phase(solver, problem, 1);
    for (uint32_t k = 0; k < solver->sink_count; k++) {
        const bid *kept = solver->bids + solver->first_place[k];
        for (uint32_t i = 0; i < solver->kept_count[k]; i++) {
            if (kept[i].row < problem->row_count)
                sink_of_row[kept[i].row] = solver->sinks[k];
        }
    }
}

const dp_solver_ops dp_solver_auction = {
    .name = "auction",
    .exact = true,
    .create = auction_create,
    .destroy = auction_destroy,
    .solve = auction_solve,
};
