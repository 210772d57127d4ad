// The solvers by themselves: ESD's Table 2, scaling, memory; and matrices for other solvers.
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "runtime/config/rt_solvers.h"
#include "tests/bench/dispatch/dp_bench.h"
#include "dispatch/solvers/dp_solver.h"
#include "runtime/rt_hash.h"

#define WORKERS 8u
#define SYNTHETIC_SCALE 0.02
#define WARMUP_SAMPLES 65536u // before a matrix is taken from the planner
#define RANDOM_COST_MAX 1000000u
#define SLOW_NS UINT64_C(5000000000)  // a solver is not run where it would take longer
#define REPEAT_NS UINT64_C(500000000) // repeats of one measurement stop after so long

typedef struct {
    dp_problem problem;
    int32_t *cost;
    uint32_t *capacity;
} instance;

static void instance_fini(instance *one)
{
    rt_free(one->cost);
    rt_free(one->capacity);
    memset(one, 0, sizeof *one);
}

static rt_status instance_init(instance *one, uint32_t rows, uint32_t sinks, rt_error *error)
{
    one->cost = rt_alloc((size_t)rows * sinks, sizeof *one->cost);
    one->capacity = rt_alloc(sinks, sizeof *one->capacity);
    if (!one->cost || !one->capacity) {
        instance_fini(one);
        return rt_fail(error, RT_NO_MEMORY, "out of memory for a matrix of %" PRIu32 " rows", rows);
    }
    for (uint32_t j = 0; j < sinks; j++)
        one->capacity[j] = rows / sinks + (j < rows % sinks);
    one->problem = (dp_problem){rows, sinks, sinks, one->cost, one->capacity};
    return RT_OK;
}

static rt_status random_instance(instance *one, uint32_t rows, uint32_t sinks, rt_error *error)
{
    rt_random random = {rows};
    const rt_status status = instance_init(one, rows, sinks, error);
    if (status)
        return status;
    for (size_t i = 0; i < (size_t)rows * sinks; i++)
        one->cost[i] = (int32_t)rt_random_below(&random, RANDOM_COST_MAX);
    return RT_OK;
}

static rt_status copy_matrix(instance *one, dp_bench_case *source, uint32_t warmup, uint32_t rows,
                             uint32_t sinks, rt_error *error)
{
    rt_status status = dp_bench_advance(source, warmup, error);
    if (status)
        return status;
    status = dp_bench_look_up(source, error);
    if (status)
        return status;
    status = instance_init(one, rows, sinks, error);
    if (status)
        return status;
    dp_cost_matrix(dp_planner_view(source->planner), one->cost, sinks);
    return RT_OK;
}

// ESD's matrix of a batch that the planner meets after others.
static rt_status esd_instance(instance *one, const char *file, uint32_t rows, uint32_t sinks,
                              rt_error *error)
{
    dp_bench_case source;
    dp_bench_shape shape = {.worker_count = sinks,
                            .samples_per_worker = rows / sinks,
                            .scale = SYNTHETIC_SCALE,
                            .policy = "esd",
                            .file = file};
    rt_status status = dp_bench_open(&shape, &source, error);
    if (status)
        return status;
    uint32_t warmup = (uint32_t)rt_max_u64(2, WARMUP_SAMPLES / rows);
    status = copy_matrix(one, &source, warmup, rows, sinks, error);
    dp_bench_close(&source);
    return status;
}

// Solves up to repeats times. *optimal_p by the independent check of dp_placement_optimal.
static rt_status measure(const dp_solver_ops *ops, const instance *one, uint32_t repeats,
                         dp_bench_times *times, bool *optimal_p, rt_error *error)
{
    void *state = NULL;
    uint32_t *place = rt_alloc(one->problem.row_count, sizeof *place);
    times->count = 0;
    if (!place || ops->create(one->problem.row_count, one->problem.sink_count, &state)) {
        rt_free(place);
        return rt_fail(error, RT_NO_MEMORY, "out of memory for solver %s", ops->name);
    }
    for (uint64_t spent = 0, r = 0; r < repeats && (r < 3 || spent < REPEAT_NS); r++) {
        uint64_t begin = dp_bench_now_ns();
        ops->solve(state, &one->problem, place);
        uint64_t ns = dp_bench_now_ns() - begin;
        dp_bench_add(times, ns);
        spent += ns;
        if (spent > SLOW_NS / 10)
            break; // one such time is enough
    }
    *optimal_p = dp_placement_optimal(&one->problem, place);
    ops->destroy(state);
    rt_free(place);
    return RT_OK;
}

// ---- ESD, Table 2 ----------------------------------------------------------------------------

// ESD (arXiv 2512.21615), Table 2: milliseconds of the paper's Opt on its machine.
static const struct {
    uint32_t samples_per_worker;
    double cpu_ms, cuda_ms;
} paper_opt[] = {{32, 9, 21},      {64, 62, 28},      {128, 528, 82},
                 {256, 3360, 186}, {512, 50976, 811}, {1024, 134986, 1385}};

#define XX(kind, name, help) RT_SOLVER_##kind,
static const rt_solver_kind kinds[] = {RT_SOLVER_MAP(XX)};
#undef XX
#define XX(kind, name, help) #name,
static const char *const kind_names[] = {RT_SOLVER_MAP(XX)};
#undef XX

// About cubic: 8 times as long for twice the rows.
static bool too_slow(rt_solver_kind kind, uint64_t last_ns, bool quick)
{
    const uint64_t limit = quick ? SLOW_NS / 10 : SLOW_NS;
    return kind == RT_SOLVER_HUNGARIAN && last_ns > limit / 8;
}

static const char *state_of(const dp_solver_ops *ops, bool run, bool optimal)
{
    if (!ops)
        return "not in this build";
    if (!run)
        return "not run: too slow";
    return optimal ? "optimal" : "not optimal";
}

static rt_status opt_row(const dp_bench *bench, size_t size, rt_solver_kind kind,
                         const instance *random, const instance *esd, uint64_t *last_ns,
                         rt_error *error)
{
    static dp_bench_times times;
    const dp_solver_ops *ops = dp_solver_find(kind);
    const instance *instances[] = {random, esd};
    static const char *const columns[][2] = {{"random_ms", "random_noise%"},
                                             {"esd_ms", "esd_noise%"}};
    uint32_t m = paper_opt[size].samples_per_worker;
    bool run = ops && !too_slow(kind, *last_ns, bench->quick), optimal = run;
    rt_report_number(bench->report, "m", m, 0);
    rt_report_number(bench->report, "N", m * WORKERS, 0);
    rt_report_text(bench->report, "solver", kind_names[kind]);
    for (size_t k = 0; k < RT_COUNT_OF(instances); k++) {
        bool is_optimal = false;
        times.count = 0;
        if (run) {
            const rt_status status = measure(ops, instances[k], dp_bench_count(bench, 5, 51),
                                             &times, &is_optimal, error);
            if (status)
                return status;
        }
        optimal = optimal && is_optimal;
        rt_report_number(bench->report, columns[k][0], dp_bench_ms(&times, 0.5), 4);
        rt_report_number(bench->report, columns[k][1], dp_bench_noise(&times), 0);
        if (run)
            *last_ns = (uint64_t)(dp_bench_ms(&times, 0.5) * 1e6);
    }
    rt_report_text(bench->report, "state", state_of(ops, run, optimal));
    rt_report_number(bench->report, "paper_cpu_ms", paper_opt[size].cpu_ms, 0);
    rt_report_number(bench->report, "paper_cuda_ms", paper_opt[size].cuda_ms, 0);
    rt_report_end_row(bench->report);
    return RT_OK;
}

static rt_status opt_rows_of(const dp_bench *bench, size_t size, instance *random, instance *esd,
                             uint64_t last_ns[RT_COUNT_OF(kinds)], rt_error *error)
{
    const uint32_t rows = WORKERS * paper_opt[size].samples_per_worker;
    rt_status status = random_instance(random, rows, WORKERS, error);
    if (status)
        return status;
    status = esd_instance(esd, bench->file, rows, WORKERS, error);
    if (status)
        return status;
    for (size_t k = 0; k < RT_COUNT_OF(kinds); k++) {
        status = opt_row(bench, size, kinds[k], random, esd, &last_ns[k], error);
        if (status)
            return status;
    }
    return RT_OK;
}

static rt_status opt_rows(const dp_bench *bench, rt_error *error)
{
    uint64_t last_ns[RT_COUNT_OF(kinds)] = {0};
    for (size_t s = 0; s < RT_COUNT_OF(paper_opt); s++) {
        instance random = {0}, esd = {0};
        const rt_status status = opt_rows_of(bench, s, &random, &esd, last_ns, error);
        instance_fini(&random);
        instance_fini(&esd);
        if (status)
            return status;
    }
    return RT_OK;
}

rt_status dp_bench_opt(const dp_bench *bench, rt_error *error)
{
    const char *source = bench->file ? bench->file : "synthetic Criteo rows";
    rt_report_begin(bench->report, "opt", "Time of Opt, 8 workers, m samples each (ESD, Table 2)");
    const rt_status status = opt_rows(bench, error);
    rt_report_note(bench->report,
                   "random: costs uniform below %u; esd: ESD's matrix of a batch of %s, as the "
                   "planner meets it after %u samples.",
                   RANDOM_COST_MAX, source, WARMUP_SAMPLES);
    rt_report_note(
        bench->report,
        "Medians of up to %u solves, processor time; noise: half the interquartile range over the "
        "median. paper_*: ESD's figures, on its machine.",
        dp_bench_count(bench, 5, 51));
    rt_report_end(bench->report);
    return status;
}

// ---- scaling ---------------------------------------------------------------------------------

static rt_status scaling_row(const dp_bench *bench, uint32_t rows, uint32_t sinks,
                             double *first_ratio, rt_error *error)
{
    static dp_bench_times times;
    instance one = {0};
    bool optimal;
    double ms[2] = {0};
    for (int k = 0; k < 2; k++) {
        rt_status status;
        if (k == 0)
            status = esd_instance(&one, NULL, rows, sinks, error);
        else
            status = random_instance(&one, rows, sinks, error);
        if (!status)
            status = measure(&dp_solver_transport, &one, dp_bench_count(bench, 5, 21), &times,
                             &optimal, error);
        instance_fini(&one);
        if (status)
            return status;
        ms[k] = dp_bench_ms(&times, 0.5);
    }
    double ratio = ms[0] * 1e6 / (rows * log2(rows));
    if (*first_ratio == 0)
        *first_ratio = ratio;
    rt_report_number(bench->report, "N", rows, 0);
    rt_report_number(bench->report, "n", sinks, 0);
    rt_report_number(bench->report, "esd_ms", ms[0], 3);
    rt_report_number(bench->report, "random_ms", ms[1], 3);
    rt_report_number(bench->report, "esd_ns/(N*log2(N))", ratio, 3);
    rt_report_number(bench->report, "vs_first", ratio / *first_ratio, 2);
    rt_report_end_row(bench->report);
    return RT_OK;
}

static rt_status scaling_rows(const dp_bench *bench, rt_error *error)
{
    static const uint32_t sizes[][2] = {{1024, 8},  {2048, 8},  {4096, 8},  {8192, 8},  {16384, 8},
                                        {32768, 8}, {65536, 8}, {8192, 16}, {8192, 32}, {8192, 64}};
    double first_ratio = 0;
    for (size_t s = 0; s < RT_COUNT_OF(sizes); s++) {
        if (bench->quick && sizes[s][0] > 8192)
            continue;
        const rt_status status = scaling_row(bench, sizes[s][0], sizes[s][1], &first_ratio, error);
        if (status)
            return status;
    }
    return RT_OK;
}

rt_status dp_bench_scaling(const dp_bench *bench, rt_error *error)
{
    rt_report_begin(bench->report, "scaling", "Time of `transport` by rows N and workers n");
    const rt_status status = scaling_rows(bench, error);
    rt_report_note(bench->report, "esd: ESD's matrix of synthetic Criteo rows. vs_first: the ratio "
                                  "to N log N over that of the first row; 1 throughout would be "
                                  "exactly N log N.");
    rt_report_end(bench->report);
    return status;
}

// ---- memory ----------------------------------------------------------------------------------

typedef struct {
    uint32_t rows, sinks;
} memory_case;

typedef struct {
    uint64_t before_bytes;
    uint64_t ns;
} memory_result;

static rt_status solve_large(const void *argument, void *result_p)
{
    const memory_case *size = argument;
    memory_result *result = result_p;
    rt_error error;
    instance one;
    void *state;
    uint32_t *place = rt_alloc(size->rows, sizeof *place);
    result->before_bytes = dp_bench_resident_bytes();
    if (!place || random_instance(&one, size->rows, size->sinks, &error) ||
        dp_solver_transport.create(size->rows, size->sinks, &state))
        return RT_NO_MEMORY;
    uint64_t begin = dp_bench_now_ns();
    dp_solver_transport.solve(state, &one.problem, place);
    result->ns = dp_bench_now_ns() - begin;
    return RT_OK;
}

static rt_status memory_rows(const dp_bench *bench, rt_error *error)
{
    static const memory_case sizes[] = {{8192, 8}, {65536, 8}, {65536, 64}};
    for (size_t s = 0; s < RT_COUNT_OF(sizes); s++) {
        memory_result result = {0};
        uint64_t peak = 0;
        const rt_status status =
            dp_bench_apart(solve_large, &sizes[s], &result, sizeof result, &peak, error);
        if (status)
            return status;
        rt_report_number(bench->report, "N", sizes[s].rows, 0);
        rt_report_number(bench->report, "n", sizes[s].sinks, 0);
        rt_report_number(bench->report, "peak_MiB", (double)peak / 0x1p20, 1);
        rt_report_number(bench->report, "added_MiB", (double)(peak - result.before_bytes) / 0x1p20,
                         1);
        rt_report_number(bench->report, "first_solve_ms", (double)result.ns * 1e-6, 1);
        rt_report_end_row(bench->report);
    }
    return RT_OK;
}

rt_status dp_bench_memory(const dp_bench *bench, rt_error *error)
{
    rt_report_begin(bench->report, "memory", "Memory of `transport`, matrix included");
    const rt_status status = memory_rows(bench, error);
    rt_report_note(bench->report, "Peak resident memory of a process of its own; added: without "
                                  "what the program had before. The bar is 512 MiB.");
    rt_report_end(bench->report);
    return status;
}

// ---- matrices for others ---------------------------------------------------------------------

static rt_status write_instance(const instance *one, const char *path, rt_error *error)
{
    uint32_t head[2] = {one->problem.row_count, one->problem.sink_count};
    size_t values = (size_t)head[0] * head[1];
    FILE *file = fopen(path, "wb");
    if (!file)
        return rt_fail(error, RT_IO, "%s: %s", path, strerror(errno));
    bool written = fwrite(head, sizeof head, 1, file) == 1 &&
                   fwrite(one->capacity, sizeof *one->capacity, head[1], file) == head[1] &&
                   fwrite(one->cost, sizeof *one->cost, values, file) == values;
    if (fclose(file) != 0 || !written)
        return rt_fail(error, RT_IO, "%s: cannot be written", path);
    return RT_OK;
}

rt_status dp_bench_dump(const dp_bench *bench, rt_error *error)
{
    static const uint32_t rows[] = {1024, 8192};
    char path[4096];
    for (size_t s = 0; s < RT_COUNT_OF(rows); s++) {
        instance one = {0};
        snprintf(path, sizeof path, "%s/esd_%" PRIu32 "x%u.matrix", bench->dump_dir, rows[s],
                 WORKERS);
        rt_status status = esd_instance(&one, bench->file, rows[s], WORKERS, error);
        if (!status)
            status = write_instance(&one, path, error);
        instance_fini(&one);
        if (status)
            return status;
    }
    return RT_OK;
}
