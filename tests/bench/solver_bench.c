// solver_bench - times the solvers on generated matrices like ESD's, one JSON line per measurement.
//
//   solver_bench [SOLVER|all] [ROWS SINKS [REPEATS]]    a grid of sizes, or one size
//   solver_bench --file MATRIX OUT SOLVER [REPEATS]     a problem from a file
//   solver_bench --make MATRIX ROWS SINKS SEED KIND     writes a problem, KIND as in kinds[] below
//
// A MATRIX file: uint32 rows, sinks; uint32 capacity[sinks]; int32 cost[rows][sinks], all in the
// byte order of the machine. OUT receives the sink of every row, one number per line.
#include "dispatch/solvers/dp_solver.h"
#include "runtime/config/rt_solvers.h"
#include "runtime/rt_hash.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIELDS 26u
#define SLOW_TICKS 1000
#define FAST_TICKS 100
#define ROWS_MAX (1u << 22)

typedef struct {
    dp_problem problem;
    int32_t *cost;
    uint32_t *capacity;
} instance;

typedef enum { KIND_ESD, KIND_TIES, KIND_RANDOM, KIND_SLACK, KIND_COUNT } instance_kind;
static const char *const kinds[KIND_COUNT] = {"esd", "ties", "random", "slack"};

static _Noreturn void die(const char *what)
{
    fprintf(stderr, "solver_bench: %s\n", what);
    exit(EXIT_FAILURE);
}

static instance instance_create(uint32_t rows, uint32_t sinks)
{
    instance made = {.cost = rt_alloc((size_t)rows * sinks, sizeof(int32_t)),
                     .capacity = rt_alloc(sinks, sizeof(uint32_t))};
    if (!made.cost || !made.capacity)
        die("out of memory");
    made.problem = (dp_problem){rows, sinks, sinks, made.cost, made.capacity};
    return made;
}

static void instance_destroy(instance *one)
{
    rt_free(one->cost);
    rt_free(one->capacity);
}

// One row of F T_j + sum_o h_o T_o - 2 h_j T_j: h_j keys of the sample have sink j as their dirty
// owner, and most keys of a sample lie with few sinks. Half the links are ten times slower.
static void esd_row(rt_random *random, uint32_t sinks, int32_t *cost)
{
    uint32_t owned[RT_WORKERS_MAX] = {0};
    uint32_t home = rt_random_below(random, sinks);
    for (uint32_t f = 0; f < FIELDS; f++) {
        uint32_t draw = rt_random_below(random, 10);
        if (draw < 2)
            owned[home]++;
        else if (draw < 7)
            owned[rt_random_below(random, sinks)]++;
    }
    int32_t sum = 0;
    for (uint32_t j = 0; j < sinks; j++)
        sum += (int32_t)owned[j] * (j < sinks / 2 ? FAST_TICKS : SLOW_TICKS);
    for (uint32_t j = 0; j < sinks; j++) {
        int32_t ticks = j < sinks / 2 ? FAST_TICKS : SLOW_TICKS;
        cost[j] = (int32_t)FIELDS * ticks + sum - 2 * (int32_t)owned[j] * ticks;
        if (cost[j] < 0)
            cost[j] = 0;
    }
}

static instance instance_make(uint32_t rows, uint32_t sinks, uint64_t seed, instance_kind kind)
{
    instance made = instance_create(rows, sinks);
    rt_random random = {seed};
    for (uint32_t i = 0; i < rows; i++) {
        int32_t *cost = made.cost + (size_t)i * sinks;
        if (kind == KIND_ESD || kind == KIND_SLACK)
            esd_row(&random, sinks, cost);
        for (uint32_t j = 0; j < sinks && kind != KIND_ESD && kind != KIND_SLACK; j++)
            cost[j] = (int32_t)rt_random_below(&random, kind == KIND_TIES ? 3 : 1000000);
    }
    for (uint32_t j = 0; j < sinks; j++)
        made.capacity[j] = rows / sinks + (j < rows % sinks);
    if (kind == KIND_SLACK) {
        for (uint32_t j = 0; j < sinks; j++)
            made.capacity[j] += made.capacity[j] / 5 + 1;
    }
    return made;
}

static void read_exactly(FILE *file, void *into, size_t count, size_t size)
{
    if (fread(into, size, count, file) != count)
        die("the matrix file is too short");
}

static instance instance_read(const char *path)
{
    FILE *file = fopen(path, "rb");
    uint32_t head[2];
    if (!file)
        die("cannot open the matrix file");
    read_exactly(file, head, 2, sizeof *head);
    if (head[0] > ROWS_MAX || head[1] < 1 || head[1] > RT_WORKERS_MAX)
        die("the matrix file has too many rows or sinks");
    instance made = instance_create(head[0], head[1]);
    read_exactly(file, made.capacity, head[1], sizeof(uint32_t));
    read_exactly(file, made.cost, (size_t)head[0] * head[1], sizeof(int32_t));
    fclose(file);
    uint64_t places = 0;
    for (uint32_t j = 0; j < head[1]; j++)
        places += made.capacity[j];
    for (size_t i = 0; i < (size_t)head[0] * head[1]; i++) {
        if (made.cost[i] < 0 || made.cost[i] > DP_COST_MAX)
            die("a cost in the matrix file is out of range");
    }
    if (places < head[0])
        die("the capacities in the matrix file are too small");
    return made;
}

static void instance_write(const instance *one, const char *path)
{
    FILE *file = fopen(path, "wb");
    uint32_t rows = one->problem.row_count, sinks = one->problem.sink_count;
    size_t values = (size_t)rows * sinks;
    if (!file || fwrite(&rows, sizeof rows, 1, file) != 1 ||
        fwrite(&sinks, sizeof sinks, 1, file) != 1 ||
        fwrite(one->capacity, sizeof(uint32_t), sinks, file) != sinks ||
        fwrite(one->cost, sizeof(int32_t), values, file) != values || fclose(file) != 0)
        die("cannot write the matrix file");
}

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

// Solves repeat_count times and prints the median and the least time.
static void measure(const dp_solver_ops *ops, const instance *one, uint32_t repeat_count,
                    uint32_t *sink_of_row)
{
    uint64_t *elapsed_ns = rt_alloc(repeat_count, sizeof *elapsed_ns);
    void *state;
    if (!elapsed_ns ||
        ops->create(one->problem.row_count, one->problem.sink_count, &state) != RT_OK)
        die("out of memory");
    for (uint32_t r = 0; r < repeat_count; r++) {
        uint64_t start_ns = rt_now_ns();
        ops->solve(state, &one->problem, sink_of_row);
        elapsed_ns[r] = rt_now_ns() - start_ns;
    }
    qsort(elapsed_ns, repeat_count, sizeof *elapsed_ns, by_value);
    printf("{\"solver\": \"%s\", \"rows\": %u, \"sinks\": %u, \"cost\": %lld, \"optimal\": %s, "
           "\"ms_median\": %.4f, \"ms_least\": %.4f}\n",
           ops->name, one->problem.row_count, one->problem.sink_count,
           (long long)dp_placement_cost(&one->problem, sink_of_row),
           dp_placement_optimal(&one->problem, sink_of_row) ? "true" : "false",
           (double)elapsed_ns[repeat_count / 2] / 1e6, (double)elapsed_ns[0] / 1e6);
    fflush(stdout);
    ops->destroy(state);
    rt_free(elapsed_ns);
}

static const dp_solver_ops *find_named(const char *name)
{
    for (rt_solver_kind kind = 0; kind < RT_SOLVER_COUNT; kind++) {
        const dp_solver_ops *ops = dp_solver_find(kind);
        if (ops && strcmp(ops->name, name) == 0)
            return ops;
    }
    die("no such solver");
}

static uint32_t number(const char *text, uint32_t low, uint32_t high)
{
    char *end;
    unsigned long value = strtoul(text, &end, 10);
    if (*end || value < low || value > high)
        die("a number is out of range");
    return (uint32_t)value;
}

static void run_size(const char *name, uint32_t rows, uint32_t sinks, uint32_t repeats)
{
    instance one = instance_make(rows, sinks, 1, KIND_ESD);
    uint32_t *sink_of_row = rt_alloc(rows, sizeof *sink_of_row);
    if (!sink_of_row)
        die("out of memory");
    for (rt_solver_kind kind = 0; kind < RT_SOLVER_COUNT; kind++) {
        const dp_solver_ops *ops = dp_solver_find(kind);
        if (!ops || (strcmp(name, "all") != 0 && strcmp(name, ops->name) != 0))
            continue;
        // Cubic time: only where it ends within seconds, unless asked for.
        if (kind == RT_SOLVER_HUNGARIAN && rows > 1024 && strcmp(name, "all") == 0)
            continue;
        measure(ops, &one, kind == RT_SOLVER_HUNGARIAN ? 1 : repeats, sink_of_row);
    }
    rt_free(sink_of_row);
    instance_destroy(&one);
}

static void run_grid(const char *name)
{
    static const uint32_t sizes[][2] = {{1024, 8},  {8192, 8},   {65536, 8}, {1024, 64},
                                        {8192, 64}, {32768, 64}, {65536, 64}};
    for (size_t i = 0; i < RT_COUNT_OF(sizes); i++)
        run_size(name, sizes[i][0], sizes[i][1], 11);
}

static void run_file(const char *matrix, const char *out, const char *name, uint32_t repeats)
{
    instance one = instance_read(matrix);
    uint32_t *sink_of_row = rt_alloc(one.problem.row_count, sizeof *sink_of_row);
    FILE *file = fopen(out, "w");
    if (!sink_of_row || !file)
        die("cannot open the output file");
    measure(find_named(name), &one, repeats, sink_of_row);
    for (uint32_t i = 0; i < one.problem.row_count; i++)
        fprintf(file, "%u\n", sink_of_row[i]);
    if (fclose(file) != 0)
        die("cannot write the output file");
    rt_free(sink_of_row);
    instance_destroy(&one);
}

static void run_make(char **arguments)
{
    for (uint32_t kind = 0; kind < KIND_COUNT; kind++) {
        if (strcmp(arguments[4], kinds[kind]) != 0)
            continue;
        uint32_t sinks = number(arguments[2], 1, RT_WORKERS_MAX);
        instance one = instance_make(number(arguments[1], 0, ROWS_MAX), sinks,
                                     number(arguments[3], 0, UINT32_MAX), (instance_kind)kind);
        instance_write(&one, arguments[0]);
        instance_destroy(&one);
        return;
    }
    die("no such kind");
}

int main(int argc, char **argv)
{
    if (argc == 7 && strcmp(argv[1], "--make") == 0)
        run_make(argv + 2);
    else if (argc >= 5 && argc <= 6 && strcmp(argv[1], "--file") == 0)
        run_file(argv[2], argv[3], argv[4], argc > 5 ? number(argv[5], 1, 100000) : 11);
    else if (argc >= 4 && argc <= 5)
        run_size(argv[1], number(argv[2], 0, ROWS_MAX), number(argv[3], 1, RT_WORKERS_MAX),
                 argc > 4 ? number(argv[4], 1, 100000) : 11);
    else if (argc <= 2)
        run_grid(argc == 2 ? argv[1] : "all");
    else
        die("see the first lines of solver_bench.c for how to call it");
    return 0;
}
