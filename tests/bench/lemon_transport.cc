// lemon_transport - solves a problem file of solver_bench with LEMON's network simplex.
//
//   lemon_transport MATRIX [REPEATS]   one JSON line: cost, and times with and without the graph
#include <lemon/network_simplex.h>
#include <lemon/smart_graph.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace
{

struct Problem {
    uint32_t rows, sinks;
    std::vector<uint32_t> capacity;
    std::vector<int32_t> cost;
};

[[noreturn]] void die(const char *what)
{
    std::fprintf(stderr, "lemon_transport: %s\n", what);
    std::exit(EXIT_FAILURE);
}

Problem read(const char *path)
{
    Problem problem;
    uint32_t head[2];
    FILE *file = std::fopen(path, "rb");
    if (!file || std::fread(head, sizeof *head, 2, file) != 2)
        die("cannot read the matrix file");
    problem.rows = head[0];
    problem.sinks = head[1];
    problem.capacity.resize(problem.sinks);
    problem.cost.resize(size_t(problem.rows) * problem.sinks);
    if (std::fread(problem.capacity.data(), 4, problem.sinks, file) != problem.sinks ||
        std::fread(problem.cost.data(), 4, problem.cost.size(), file) != problem.cost.size())
        die("the matrix file is too short");
    std::fclose(file);
    return problem;
}

struct Outcome {
    long long cost;
    double run_ms, all_ms;
};

double ms_since(std::chrono::steady_clock::time_point start)
{
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
        .count();
}

Outcome solve(const Problem &problem)
{
    using lemon::SmartDigraph;
    using Simplex = lemon::NetworkSimplex<SmartDigraph, int64_t, int64_t>;
    auto begin = std::chrono::steady_clock::now();
    SmartDigraph graph;
    graph.reserveNode(int(problem.rows + problem.sinks));
    graph.reserveArc(int(problem.cost.size()));
    std::vector<SmartDigraph::Node> row(problem.rows), sink(problem.sinks);
    for (auto &node : row)
        node = graph.addNode();
    for (auto &node : sink)
        node = graph.addNode();
    SmartDigraph::ArcMap<int64_t> cost(graph);
    SmartDigraph::NodeMap<int64_t> supply(graph);
    for (uint32_t i = 0; i < problem.rows; i++) {
        supply[row[i]] = 1;
        for (uint32_t j = 0; j < problem.sinks; j++)
            cost[graph.addArc(row[i], sink[j])] = problem.cost[size_t(i) * problem.sinks + j];
    }
    for (uint32_t j = 0; j < problem.sinks; j++)
        supply[sink[j]] = -int64_t(problem.capacity[j]);
    Simplex simplex(graph);
    simplex.costMap(cost).supplyMap(supply).supplyType(Simplex::GEQ);
    auto start = std::chrono::steady_clock::now();
    if (simplex.run() != Simplex::OPTIMAL)
        die("no optimum found");
    return {simplex.totalCost<long long>(), ms_since(start), ms_since(begin)};
}

} // namespace

int main(int argc, char **argv)
{
    if (argc < 2 || argc > 3)
        die("usage: lemon_transport MATRIX [REPEATS]");
    Problem problem = read(argv[1]);
    int repeats = argc > 2 ? std::max(1, std::atoi(argv[2])) : 1;
    std::vector<double> run_ms, all_ms;
    Outcome outcome{};
    for (int r = 0; r < repeats; r++) {
        outcome = solve(problem);
        run_ms.push_back(outcome.run_ms);
        all_ms.push_back(outcome.all_ms);
    }
    std::sort(run_ms.begin(), run_ms.end());
    std::sort(all_ms.begin(), all_ms.end());
    std::printf("{\"solver\": \"lemon\", \"rows\": %u, \"sinks\": %u, \"cost\": %lld, "
                "\"ms_median\": %.4f, \"ms_least\": %.4f, \"ms_median_with_graph\": %.4f}\n",
                problem.rows, problem.sinks, outcome.cost, run_ms[run_ms.size() / 2], run_ms[0],
                all_ms[all_ms.size() / 2]);
    return 0;
}
