// The Hungarian method in its O(k^3) form with shortest augmenting paths (Kuhn 1955; Burkard,
// Dell'Amico, Martello: Assignment Problems, section 4.4) on the expanded matrix, in which a sink
// has one column per place. The columns of a sink are equal and are not stored; with more places
// than rows the matrix is rectangular and columns stay free.
//
// For comparison and small sizes: time grows with rows^2 x places.
#include "dispatch/solvers/dp_solver.h"

#define NO_ROW UINT32_MAX
#define UNREACHED INT64_MAX

typedef struct {
    int64_t price; // dual value, <= 0
    int64_t slack; // in this search: least reduced cost by which the column is reached
    uint32_t row;  // that has this column, or NO_ROW
    uint32_t from; // in this search: the column before, on the way that gives slack
    uint32_t sink;
    bool settled; // in this search
} column;

typedef struct {
    column *columns; // the first one stands for the row that is being placed
    int64_t *row_price;
    size_t column_count;
} hungarian;

static void hungarian_destroy(void *state)
{
    hungarian *solver = state;
    if (!solver)
        return;
    rt_free(solver->columns);
    rt_free(solver->row_price);
    rt_free(solver);
}

static rt_status hungarian_create(uint32_t row_count_max, uint32_t sink_count_max, void **state_p)
{
    rt_assert(sink_count_max >= 1 && sink_count_max <= RT_WORKERS_MAX);
    hungarian *solver = rt_alloc(1, sizeof *solver);
    if (!solver)
        return RT_NO_MEMORY;
    solver->columns = rt_alloc((size_t)row_count_max * sink_count_max + 1, sizeof(column));
    solver->row_price = rt_alloc(row_count_max, sizeof(int64_t));
    if (!solver->columns || !solver->row_price) {
        hungarian_destroy(solver);
        return RT_NO_MEMORY;
    }
    *state_p = solver;
    return RT_OK;
}

// One column per place; no sink needs more places than there are rows.
static void expand(hungarian *solver, const dp_problem *problem)
{
    size_t count = 1;
    for (uint32_t j = 0; j < problem->sink_count; j++) {
        uint64_t places = rt_min_u64(problem->capacity[j], problem->row_count);
        for (uint64_t k = 0; k < places; k++)
            solver->columns[count++] = (column){.row = NO_ROW, .sink = j};
    }
    solver->columns[0] = (column){.row = NO_ROW};
    solver->column_count = count;
    for (uint32_t i = 0; i < problem->row_count; i++)
        solver->row_price[i] = 0;
}

// Settles one column: relaxes all others over its row, moves the prices by the smallest slack, and
// returns the column that has it.
static size_t settle(hungarian *solver, const dp_problem *problem, size_t at)
{
    column *columns = solver->columns;
    const int32_t *cost = problem->cost + (size_t)columns[at].row * problem->stride;
    int64_t row_price = solver->row_price[columns[at].row];
    size_t next = 0;
    int64_t least = UNREACHED;
    columns[at].settled = true;
    for (size_t c = 1; c < solver->column_count; c++) {
        if (columns[c].settled)
            continue;
        int64_t reduced = cost[columns[c].sink] - row_price - columns[c].price;
        if (reduced < columns[c].slack) {
            columns[c].slack = reduced;
            columns[c].from = (uint32_t)at;
        }
        if (columns[c].slack < least) {
            least = columns[c].slack;
            next = c;
        }
    }
    rt_assert(least != UNREACHED); // there are as many places as rows
    for (size_t c = 0; c < solver->column_count; c++) {
        if (columns[c].settled) {
            solver->row_price[columns[c].row] += least;
            columns[c].price -= least;
        } else {
            columns[c].slack -= least;
        }
    }
    return next;
}

static void place(hungarian *solver, const dp_problem *problem, uint32_t row)
{
    column *columns = solver->columns;
    for (size_t c = 0; c < solver->column_count; c++) {
        columns[c].slack = UNREACHED;
        columns[c].settled = false;
    }
    columns[0].row = row;
    size_t at = 0;
    while (columns[at].row != NO_ROW)
        at = settle(solver, problem, at);
    for (; at != 0; at = columns[at].from)
        columns[at].row = columns[columns[at].from].row;
}

static void hungarian_solve(void *state, const dp_problem *problem, uint32_t *sink_of_row)
{
    hungarian *solver = state;
    expand(solver, problem);
    for (uint32_t i = 0; i < problem->row_count; i++)
        place(solver, problem, i);
    for (size_t c = 1; c < solver->column_count; c++) {
        if (solver->columns[c].row != NO_ROW)
            sink_of_row[solver->columns[c].row] = solver->columns[c].sink;
    }
}

const dp_solver_ops dp_solver_hungarian = {
    .name = "hungarian",
    .exact = true,
    .create = hungarian_create,
    .destroy = hungarian_destroy,
    .solve = hungarian_solve,
};
