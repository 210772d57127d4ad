#include "dispatch/solvers/dp_solvers.h"

#include "runtime/rt_log.h"

#define UNREACHABLE (INT64_MAX / 4)

static const dp_solver_ops *find(rt_solver_kind kind)
{
#define XX(enumerator, name, help) [RT_SOLVER_##enumerator] = &dp_solver_##name,
    static const dp_solver_ops *const solvers[RT_SOLVER_COUNT] = { RT_SOLVER_MAP(XX) };
#undef XX
    rt_assert((uint32_t)kind < RT_SOLVER_COUNT);
    return solvers[kind];
}

const dp_solver_ops *dp_solver_find(rt_solver_kind kind)
{
    const dp_solver_ops *ops = find(kind);
    if (ops->available && ops->available(NULL) != RT_OK)
        return NULL;
    return ops;
}

const dp_solver_ops *dp_solver_choose(rt_solver_kind kind)
{
    const dp_solver_ops *ops = find(kind);
    rt_error error = {0};
    if (!ops->available || ops->available(&error) == RT_OK)
        return ops;
    rt_warn("dispatch.solver: %s is not to be had here, transport takes its place: %s", ops->name,
            error.text);
    return &dp_solver_transport;
}

int64_t dp_placement_cost(const dp_problem *problem, const uint32_t *sink_of_row)
{
    int64_t cost = 0;
    for (uint32_t i = 0; i < problem->row_count; i++)
        cost += problem->cost[(size_t)i * problem->stride + sink_of_row[i]];
    return cost;
}

// arc[u][v]: least change of cost when one row leaves u for v.
static void find_arcs(const dp_problem *problem, const uint32_t *sink_of_row,
                      int64_t arc[RT_WORKERS_MAX + 1][RT_WORKERS_MAX + 1])
{
    for (uint32_t i = 0; i < problem->row_count; i++) {
        const int32_t *cost = problem->cost + (size_t)i * problem->stride;
        uint32_t here = sink_of_row[i];
        for (uint32_t v = 0; v < problem->sink_count; v++) {
            int64_t change = (int64_t)cost[v] - cost[here];
            if (change < arc[here][v])
                arc[here][v] = change;
        }
    }
}

// Bellman-Ford from all nodes at once: distances that still fall after node_count rounds follow a
// negative cycle.
static bool has_negative_cycle(int64_t arc[RT_WORKERS_MAX + 1][RT_WORKERS_MAX + 1],
                               uint32_t node_count)
{
    int64_t distance[RT_WORKERS_MAX + 1] = {0};
    for (uint32_t round = 0; round <= node_count; round++) {
        bool fell = false;
        for (uint32_t u = 0; u < node_count; u++) {
            for (uint32_t v = 0; v < node_count; v++) {
                if (arc[u][v] == UNREACHABLE || distance[u] + arc[u][v] >= distance[v])
                    continue;
                distance[v] = distance[u] + arc[u][v];
                fell = true;
            }
        }
        if (!fell)
            return false;
    }
    return true;
}

bool dp_placement_optimal(const dp_problem *problem, const uint32_t *sink_of_row)
{
    int64_t arc[RT_WORKERS_MAX + 1][RT_WORKERS_MAX + 1];
    uint32_t load[RT_WORKERS_MAX] = {0};
    uint32_t sink_count = problem->sink_count;
    for (uint32_t i = 0; i < problem->row_count; i++) {
        if (sink_of_row[i] >= sink_count)
            return false;
        load[sink_of_row[i]]++;
    }
    for (uint32_t u = 0; u <= sink_count; u++) {
        for (uint32_t v = 0; v <= sink_count; v++)
            arc[u][v] = UNREACHABLE;
    }
    find_arcs(problem, sink_of_row, arc);
    // One more node stands for the unused places: a row that comes takes one, a row that goes
    // leaves one.
    for (uint32_t j = 0; j < sink_count; j++) {
        if (load[j] > problem->capacity[j])
            return false;
        if (load[j] < problem->capacity[j])
            arc[j][sink_count] = 0;
        if (load[j] > 0)
            arc[sink_count][j] = 0;
    }
    return !has_negative_cycle(arc, sink_count + 1);
}
