// The planner as a whole: where its time goes by number of workers, and what knowing many keys
// costs.
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/bench/dispatch/dp_bench.h"
#include "dispatch/planner/dp_planner_parts.h"
#include "dispatch/plan/dp_slice_wire.h"
#include "dispatch/solvers/dp_solver.h"
#include "runtime/stream/rt_synthetic.h"

#define SAMPLES_PER_WORKER 128u
#define SCALE 0.02
#define ALL_KEYS 33762577u // of Criteo Kaggle (45.8 million rows)

// ---- where the time goes ---------------------------------------------------------------------

typedef enum {
    PART_LOOK_UP,
    PART_MATRIX,
    PART_SOLVE,
    PART_PLACE, // matrix and solve and what the policy does besides
    PART_CACHE, // release, place and train of dp_commit.c
    PART_PLAN,  // collect and settle
    PART_ENCODE,
    PART_TOTAL, // look-up, place, cache, plan
    PART_COUNT
} part;

typedef struct {
    dp_bench_case one;
    dp_profile profile;
    dp_bench_times times[PART_COUNT];
    int32_t *cost; // the matrix by itself
    uint32_t *place;
    void *solver;
} stages;

static void stages_fini(stages *s)
{
    if (s->solver)
        dp_solver_transport.destroy(s->solver);
    rt_free(s->cost);
    rt_free(s->place);
    dp_bench_close(&s->one);
}

static rt_status stages_init(stages *s, const dp_bench_shape *shape, rt_error *error)
{
    memset(s, 0, sizeof *s);
    rt_status status = dp_bench_open(shape, &s->one, error);
    if (status)
        return status;
    uint32_t rows = s->one.batch_size, n = shape->worker_count;
    s->cost = rt_alloc((size_t)rows * ((n + 7) / 8 * 8), sizeof *s->cost);
    s->place = rt_alloc(rows, sizeof *s->place);
    if (!s->cost || !s->place || dp_solver_transport.create(rows, n, &s->solver)) {
        stages_fini(s);
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    }
    s->profile.clock_ns = dp_bench_now_ns;
    dp_planner_set_profile(s->one.planner, &s->profile);
    return RT_OK;
}

// Matrix and solver are parts of the policy: they are timed once more by themselves.
static void measure_parts(stages *s)
{
    const dp_view *view = dp_planner_view(s->one.planner);
    uint32_t stride = (view->worker_count + 7) / 8 * 8;
    dp_problem problem = {view->sample_count, view->worker_count, stride, s->cost, view->capacity};
    uint64_t begin = dp_bench_now_ns();
    dp_cost_matrix(view, s->cost, stride);
    uint64_t made = dp_bench_now_ns();
    dp_solver_transport.solve(s->solver, &problem, s->place);
    dp_bench_add(&s->times[PART_SOLVE], dp_bench_now_ns() - made);
    dp_bench_add(&s->times[PART_MATRIX], made - begin);
}

static rt_status measure_encode(stages *s, const dp_plan *plan)
{
    const dp_planner_config *config = &s->one.planner_config;
    uint64_t begin = dp_bench_now_ns();
    for (uint32_t w = 0; w < plan->worker_count; w++) {
        rt_message message = {0};
        dp_slice_limits limits = {.dense_count = s->one.schema.dense_count,
                                  .more_labels = s->one.batch.label_count - 1,
                                  .field_count = s->one.schema.field_count,
                                  .worker_count = plan->worker_count,
                                  .sample_count_max = config->sample_count_max,
                                  .lookup_count_max =
                                      config->sample_count_max * config->keys_per_sample_max,
                                  .slot_count = config->slot_count[w]};
        if (config->homes == RT_HOMES_PLANNED)
            limits.shard_count = config->rates.shards.count;
        if (dp_slice_encode(plan, w, &s->one.batch, &limits, 0, plan->iteration, &message))
            return RT_NO_MEMORY;
        rt_message_release(&message);
    }
    dp_bench_add(&s->times[PART_ENCODE], dp_bench_now_ns() - begin);
    return RT_OK;
}

static rt_status measure_iteration(stages *s, rt_error *error)
{
    const dp_plan *plan;
    rt_status status = dp_bench_read(&s->one, error);
    if (status)
        return status;
    uint64_t begin = dp_bench_now_ns();
    if (dp_planner_look_up(s->one.planner, &s->one.batch))
        return rt_fail(error, RT_NO_MEMORY, "out of memory for the directory");
    uint64_t looked_up = dp_bench_now_ns();
    dp_planner_place(s->one.planner);
    uint64_t placed = dp_bench_now_ns();
    if (dp_planner_commit(s->one.planner, &plan))
        return rt_fail(error, RT_NO_MEMORY, "out of memory for a plan");
    uint64_t end = dp_bench_now_ns();
    const uint64_t *ns = s->profile.ns;
    dp_bench_add(&s->times[PART_LOOK_UP], looked_up - begin);
    dp_bench_add(&s->times[PART_PLACE], placed - looked_up);
    dp_bench_add(&s->times[PART_CACHE], ns[DP_STAGE_RELEASE] + ns[DP_STAGE_PLACE] +
                                            ns[DP_STAGE_TRAIN] + ns[DP_STAGE_SHOWN]);
    dp_bench_add(&s->times[PART_PLAN], ns[DP_STAGE_COLLECT] + ns[DP_STAGE_SETTLE]);
    dp_bench_add(&s->times[PART_TOTAL], end - begin);
    measure_parts(s);
    if (!plan)
        return RT_OK;
    return measure_encode(s, plan);
}

static void report_stages(const dp_bench *bench, const char *policy, uint32_t n, stages *s)
{
    double ms[PART_COUNT];
    for (uint32_t k = 0; k < PART_COUNT; k++)
        ms[k] = dp_bench_ms(&s->times[k], 0.5);
    rt_report_number(bench->report, "n", n, 0);
    rt_report_number(bench->report, "N", s->one.batch_size, 0);
    rt_report_text(bench->report, "policy", policy);
    rt_report_number(bench->report, "samples/s", s->one.batch_size * 1e3 / ms[PART_TOTAL], 0);
    rt_report_number(bench->report, "total_ms", ms[PART_TOTAL], 3);
    rt_report_number(bench->report, "noise%", dp_bench_noise(&s->times[PART_TOTAL]), 0);
    rt_report_number(bench->report, "look_up_ms", ms[PART_LOOK_UP], 3);
    rt_report_number(bench->report, "matrix_ms", ms[PART_MATRIX], 3);
    rt_report_number(bench->report, "solve_ms", ms[PART_SOLVE], 3);
    rt_report_number(bench->report, "search_ms",
                     fmax(0, ms[PART_PLACE] - ms[PART_MATRIX] - ms[PART_SOLVE]), 3);
    rt_report_number(bench->report, "cache_ms", ms[PART_CACHE], 3);
    rt_report_number(bench->report, "plan_ms", ms[PART_PLAN], 3);
    rt_report_number(bench->report, "encode_ms", ms[PART_ENCODE], 3);
    rt_report_end_row(bench->report);
}

static rt_status measure_all(stages *s, uint32_t iterations, rt_error *error)
{
    rt_status status = dp_bench_advance(&s->one, iterations, error); // caches fill, tables grow
    if (status)
        return status;
    for (uint32_t i = 0; i < iterations; i++) {
        status = measure_iteration(s, error);
        if (status)
            return status;
    }
    return RT_OK;
}

static rt_status stages_row(const dp_bench *bench, const char *policy, uint32_t n, rt_error *error)
{
    static stages s; // times of a thousand iterations: too large for a stack
    dp_bench_shape shape = {.worker_count = n,
                            .samples_per_worker = SAMPLES_PER_WORKER,
                            .scale = SCALE,
                            .policy = policy};
    rt_status status = stages_init(&s, &shape, error);
    if (status)
        return status;
    const uint32_t samples = dp_bench_count(bench, 10240, 65536);
    status = measure_all(&s, (uint32_t)rt_max_u64(samples / s.one.batch_size, 8), error);
    if (!status)
        report_stages(bench, policy, n, &s);
    stages_fini(&s);
    return status;
}

static rt_status stages_rows(const dp_bench *bench, rt_error *error)
{
    static const char *const policies[] = {"esd", "makespan"};
    for (size_t p = 0; p < RT_COUNT_OF(policies); p++) {
        for (uint32_t n = 2; n <= RT_WORKERS_MAX; n *= 2) {
            const rt_status status = stages_row(bench, policies[p], n, error);
            if (status)
                return status;
        }
    }
    return RT_OK;
}

rt_status dp_bench_stages(const dp_bench *bench, rt_error *error)
{
    rt_report_begin(bench->report, "planner",
                    "Planner by workers: samples per second, and where the time goes");
    const rt_status status = stages_rows(bench, error);
    rt_report_note(
        bench->report,
        "m = %u, synthetic Criteo rows, %.0f thousand ids, caches of 8%%, medians of processor "
        "time per iteration. search: what the policy does besides matrix and solver. cache: "
        "release, place, train. plan: collect, settle. encode (not part of the total): "
        "messages for all workers.",
        SAMPLES_PER_WORKER, SCALE * ALL_KEYS * 1e-3);
    rt_report_end(bench->report);
    return status;
}

// ---- many keys -------------------------------------------------------------------------------

typedef struct {
    double scale;
    uint32_t cache_rows;
    const char *policy;
    uint32_t iterations;
} keys_case;

typedef struct {
    uint64_t keys, directory_bytes, planner_bytes;
    double fill_s;
    double decision_p50_ms, decision_p99_ms, look_up_p50_ms, commit_p50_ms;
    rt_error error;
} keys_result;

static rt_status know_ids(const rt_synthetic *synthetic, uint32_t field_count,
                          dp_directory *directory)
{
    for (uint32_t f = 0; f < field_count; f++) {
        for (uint32_t rank = 0; rank < rt_synthetic_id_count(synthetic, f); rank++) {
            if (dp_directory_reserve(directory, 1))
                return RT_NO_MEMORY;
            uint32_t index = dp_directory_find(directory, rt_synthetic_key(synthetic, f, rank));
            directory->records[index].version = directory->records[index].version_ps = 1;
            dp_directory_release(directory, index);
        }
    }
    return RT_OK;
}

// Every key of the generator becomes one that was trained once and is held by nobody.
static rt_status know_all_keys(dp_bench_case *one, rt_error *error)
{
    rt_synthetic *synthetic;
    rt_status status = rt_synthetic_create(&one->config.stream, 1, &synthetic, error);
    if (status)
        return status;
    status = know_ids(synthetic, one->schema.field_count, &one->planner->directory);
    rt_synthetic_destroy(synthetic);
    if (status)
        return rt_fail(error, status, "out of memory for the directory");
    return RT_OK;
}

static rt_status measure_decisions(dp_bench_case *one, uint32_t iterations, keys_result *result,
                                   rt_error *error)
{
    static dp_bench_times decision, look_up, commit;
    for (uint32_t i = 0; i < iterations; i++) {
        const dp_plan *plan;
        rt_status status = dp_bench_read(one, error);
        if (status)
            return status;
        uint64_t begin = dp_bench_now_ns();
        if (dp_planner_look_up(one->planner, &one->batch))
            return rt_fail(error, RT_NO_MEMORY, "out of memory for the directory");
        uint64_t looked_up = dp_bench_now_ns();
        dp_planner_place(one->planner);
        uint64_t decided = dp_bench_now_ns();
        if (dp_planner_commit(one->planner, &plan))
            return rt_fail(error, RT_NO_MEMORY, "out of memory for a plan");
        dp_bench_add(&commit, dp_bench_now_ns() - decided);
        dp_bench_add(&decision, decided - begin);
        dp_bench_add(&look_up, looked_up - begin);
    }
    result->decision_p50_ms = dp_bench_ms(&decision, 0.5);
    result->decision_p99_ms = dp_bench_ms(&decision, 0.99);
    result->look_up_p50_ms = dp_bench_ms(&look_up, 0.5);
    result->commit_p50_ms = dp_bench_ms(&commit, 0.5);
    return RT_OK;
}

static rt_status measure_keys(dp_bench_case *one, uint32_t iterations, keys_result *result,
                              rt_error *error)
{
    const uint64_t begin = dp_bench_now_ns();
    rt_status status = know_all_keys(one, error);
    if (status)
        return status;
    result->fill_s = (double)(dp_bench_now_ns() - begin) * 1e-9;
    status = dp_bench_advance(one, iterations / 2, error);
    if (status)
        return status;
    return measure_decisions(one, iterations, result, error);
}

static rt_status work_with_keys(const void *argument, void *result_p)
{
    const keys_case *keys = argument;
    keys_result *result = result_p;
    rt_error error = {0};
    dp_bench_case one;
    dp_bench_shape shape = {.worker_count = 8,
                            .samples_per_worker = SAMPLES_PER_WORKER,
                            .scale = keys->scale,
                            .policy = keys->policy,
                            .cache_rows = keys->cache_rows};
    const uint64_t before = dp_bench_resident_bytes();
    rt_status status = dp_bench_open(&shape, &one, &error);
    if (!status) {
        status = measure_keys(&one, keys->iterations, result, &error);
        result->keys = one.planner->directory.key_count;
        result->directory_bytes = dp_directory_bytes(&one.planner->directory);
        result->planner_bytes = dp_bench_resident_bytes() - before;
        dp_bench_close(&one);
    }
    result->error = error;
    return status;
}

static rt_status keys_row(const dp_bench *bench, const keys_case *keys, rt_error *error)
{
    keys_result result = {0};
    uint64_t peak = 0;
    rt_status status = dp_bench_apart(work_with_keys, keys, &result, sizeof result, &peak, error);
    if (status && result.error.text[0])
        return rt_fail(error, status, "%s", result.error.text);
    if (status)
        return status;
    rt_report_number(bench->report, "keys", (double)result.keys, 0);
    rt_report_text(bench->report, "policy", keys->policy);
    rt_report_number(bench->report, "decision_p50_ms", result.decision_p50_ms, 3);
    rt_report_number(bench->report, "p99_ms", result.decision_p99_ms, 3);
    rt_report_number(bench->report, "look_up_ms", result.look_up_p50_ms, 3);
    rt_report_number(bench->report, "commit_ms", result.commit_p50_ms, 3);
    rt_report_number(bench->report, "directory_MiB", (double)result.directory_bytes / 0x1p20, 1);
    rt_report_number(bench->report, "resident_MiB", (double)result.planner_bytes / 0x1p20, 1);
    rt_report_number(bench->report, "peak_MiB", (double)peak / 0x1p20, 1);
    rt_report_number(bench->report, "fill_s", result.fill_s, 1);
    rt_report_end_row(bench->report);
    return RT_OK;
}

static rt_status keys_rows(const dp_bench *bench, uint32_t cache_rows, rt_error *error)
{
    const uint32_t iterations = dp_bench_count(bench, 40, 400);
    const keys_case cases[] = {
        {250000.0 / ALL_KEYS, cache_rows, "esd", iterations},
        {250000.0 / ALL_KEYS, cache_rows, "makespan", iterations},
        {1, cache_rows, "esd", iterations},
        {1, cache_rows, "makespan", iterations},
    };
    for (size_t k = 0; k < RT_COUNT_OF(cases); k++) {
        if (bench->quick && cases[k].scale >= 1)
            continue;
        const rt_status status = keys_row(bench, &cases[k], error);
        if (status)
            return status;
    }
    return RT_OK;
}

rt_status dp_bench_directory(const dp_bench *bench, rt_error *error)
{
    static const uint32_t cache_rows = 20000; // 8% of 250,000
    rt_report_begin(bench->report, "directory",
                    "Decisions by keys known, N = 1024, n = 8, 26 keys");
    const rt_status status = keys_rows(bench, cache_rows, error);
    rt_report_note(bench->report,
                   "Every id of the synthetic Criteo rows is known before the first batch. "
                   "decision: look-up and placement (esd: alpha = 1). commit: cache update and "
                   "plan. Caches of %" PRIu32 " rows. resident: what the planner added, its stream "
                   "included; peak: of the whole process. A process per row.",
                   cache_rows);
    rt_report_end(bench->report);
    return status;
}
