// What threads are worth to a planner: times of a batch by the clock on the wall.
#include <inttypes.h>
#include <stdio.h>

#include "tests/bench/dispatch/dp_bench.h"
#include "runtime/rt_thread.h"

#define WORKERS 8u
#define SCALE 0.02

typedef struct {
    const char *policy;
    uint32_t samples_per_worker, threads, iterations;
} threads_case;

typedef struct {
    dp_bench_times all, look_up, place, commit;
    uint64_t fingerprint; // of all plans
} threads_result;

static rt_status plan_one(dp_bench_case *one, threads_result *result, rt_error *error)
{
    const dp_plan *plan;
    rt_status status = dp_bench_read(one, error);
    if (status)
        return status;
    const uint64_t begin = rt_now_ns();
    if (dp_planner_look_up(one->planner, &one->batch))
        return rt_fail(error, RT_NO_MEMORY, "out of memory for the directory");
    const uint64_t looked_up = rt_now_ns();
    dp_planner_place(one->planner);
    const uint64_t placed = rt_now_ns();
    if (dp_planner_commit(one->planner, &plan))
        return rt_fail(error, RT_NO_MEMORY, "out of memory for a plan");
    const uint64_t end = rt_now_ns();
    dp_bench_add(&result->all, end - begin);
    dp_bench_add(&result->look_up, looked_up - begin);
    dp_bench_add(&result->place, placed - looked_up);
    dp_bench_add(&result->commit, end - placed);
    if (plan)
        result->fingerprint = dp_fingerprint_add(result->fingerprint, dp_plan_fingerprint(plan));
    return RT_OK;
}

static rt_status plan_all(dp_bench_case *one, rt_pool *pool, uint32_t iterations,
                          threads_result *result, rt_error *error)
{
    if (dp_planner_set_pool(one->planner, pool))
        return rt_fail(error, RT_NO_MEMORY, "out of memory for threads");
    rt_status status = dp_bench_advance(one, iterations, error); // caches fill, tables grow
    if (status)
        return status;
    for (uint32_t i = 0; i < iterations; i++) {
        status = plan_one(one, result, error);
        if (status)
            return status;
    }
    return RT_OK;
}

static rt_status measure(const dp_bench *bench, const threads_case *asked, threads_result *result,
                         rt_error *error)
{
    dp_bench_case one;
    rt_pool *pool = NULL;
    const dp_bench_shape shape = {.worker_count = WORKERS,
                                  .samples_per_worker = asked->samples_per_worker,
                                  .scale = SCALE,
                                  .policy = asked->policy,
                                  .file = bench->file};
    *result = (threads_result){0};
    rt_status status = dp_bench_open(&shape, &one, error);
    if (status)
        return status;
    status = rt_pool_create(asked->threads, &pool, error);
    if (!status)
        status = plan_all(&one, pool, asked->iterations, result, error);
    dp_bench_close(&one);
    rt_pool_destroy(pool);
    return status;
}

static void report(const dp_bench *bench, const threads_case *asked, threads_result *result)
{
    const double batch = WORKERS * asked->samples_per_worker;
    char fingerprint[17];
    snprintf(fingerprint, sizeof fingerprint, "%016" PRIx64, result->fingerprint);
    rt_report_number(bench->report, "N", batch, 0);
    rt_report_text(bench->report, "policy", asked->policy);
    rt_report_number(bench->report, "threads", asked->threads, 0);
    rt_report_number(bench->report, "samples/s", batch * 1e3 / dp_bench_ms(&result->all, 0.5), 0);
    rt_report_number(bench->report, "total_ms", dp_bench_ms(&result->all, 0.5), 3);
    rt_report_number(bench->report, "noise%", dp_bench_noise(&result->all), 0);
    rt_report_number(bench->report, "look_up_ms", dp_bench_ms(&result->look_up, 0.5), 3);
    rt_report_number(bench->report, "place_ms", dp_bench_ms(&result->place, 0.5), 3);
    rt_report_number(bench->report, "commit_ms", dp_bench_ms(&result->commit, 0.5), 3);
    rt_report_text(bench->report, "plans", fingerprint);
    rt_report_end_row(bench->report);
}

static rt_status rows_of(const dp_bench *bench, const char *policy, uint32_t samples_per_worker,
                         rt_error *error)
{
    static threads_result result; // times of a thousand batches: too large for a stack
    static const uint32_t threads[] = {1, 2, 4, 8};
    uint64_t fingerprint = 0;
    const uint32_t samples = dp_bench_count(bench, 4096, 65536);
    threads_case asked = {policy, samples_per_worker, 1, samples / (WORKERS * samples_per_worker)};
    for (size_t i = 0; i < RT_COUNT_OF(threads); i++) {
        if (threads[i] > rt_thread_cores() && threads[i] > 2)
            break;
        asked.threads = threads[i];
        const rt_status status = measure(bench, &asked, &result, error);
        if (status)
            return status;
        if (i > 0 && result.fingerprint != fingerprint)
            return rt_fail(error, RT_DATA, "plans of %" PRIu32 " threads are others",
                           asked.threads);
        fingerprint = result.fingerprint;
        report(bench, &asked, &result);
    }
    return RT_OK;
}

static rt_status rows_of_all(const dp_bench *bench, rt_error *error)
{
    static const char *const policies[] = {"laia", "esd", "makespan:search_evaluations=64"};
    for (size_t p = 0; p < RT_COUNT_OF(policies); p++) {
        rt_status status = rows_of(bench, policies[p], dp_bench_count(bench, 16, 128), error);
        if (!status && !bench->quick)
            status = rows_of(bench, policies[p], 1024, error);
        if (status)
            return status;
    }
    return RT_OK;
}

rt_status dp_bench_threads(const dp_bench *bench, rt_error *error)
{
    rt_report_begin(bench->report, "threads", "Planner by threads: samples per second");
    const rt_status status = rows_of_all(bench, error);
    rt_report_note(bench->report,
                   "n = %u, synthetic Criteo rows unless there is a file, medians of time on the "
                   "wall: other programs slow this down. %" PRIu32 " cores. plans: a fingerprint "
                   "of all plans, which threads must not change.",
                   WORKERS, rt_thread_cores());
    rt_report_end(bench->report);
    return status;
}
