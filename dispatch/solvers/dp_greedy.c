// Each row in the order given to its cheapest sink with room; ties go to the sink with most room,
// then to the lowest index (ESD, Algorithm 2: Heu).
#include "dispatch/solvers/dp_solver.h"

#include <string.h>

typedef struct {
    uint32_t room[RT_WORKERS_MAX];
} greedy;

static rt_status greedy_create(uint32_t row_count_max, uint32_t sink_count_max, void **state_p)
{
    (void)row_count_max;
    rt_assert(sink_count_max >= 1 && sink_count_max <= RT_WORKERS_MAX);
    greedy *solver = rt_alloc(1, sizeof *solver);
    if (!solver)
        return RT_NO_MEMORY;
    *state_p = solver;
    return RT_OK;
}

static void greedy_destroy(void *state)
{
    rt_free(state);
}

static void greedy_solve(void *state, const dp_problem *problem, uint32_t *sink_of_row)
{
    uint32_t *room = ((greedy *)state)->room;
    memcpy(room, problem->capacity, problem->sink_count * sizeof *room);
    for (uint32_t i = 0; i < problem->row_count; i++) {
        const int32_t *cost = problem->cost + (size_t)i * problem->stride;
        uint32_t best = problem->sink_count;
        for (uint32_t j = 0; j < problem->sink_count; j++) {
            if (room[j] == 0)
                continue;
            if (best == problem->sink_count || cost[j] < cost[best] ||
                (cost[j] == cost[best] && room[j] > room[best]))
                best = j;
        }
        rt_assert(best < problem->sink_count);
        room[best]--;
        sink_of_row[i] = best;
    }
}

const dp_solver_ops dp_solver_greedy = {
    .name = "greedy",
    .exact = false,
    .create = greedy_create,
    .destroy = greedy_destroy,
    .solve = greedy_solve,
};
