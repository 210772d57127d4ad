#include "tests/bench/dispatch/dp_bench.h"

#include <errno.h>
#include <inttypes.h>
#include <malloc.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "dispatch/planner/dp_setup.h"
#include "dispatch/sim/dp_sim.h"
#include "runtime/rt_child.h"

#define CACHE_SHARE 0.08

// configs/paper/s1.json, without its files.
static const char *const settings[] = {"model.name=wdl",          "model.embedding_dim=512",
                                       "optimizer.rows.name=sgd", "cache.ratio=0.08",
                                       "cache.eviction=emark",    "dispatch.first_touch=pull",
                                       "stream.format=synthetic", "stream.synthetic.shape=criteo"};

__attribute__((format(printf, 3, 4))) static rt_status set(rt_config *config, rt_error *error,
                                                           const char *format, ...)
{
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return rt_config_set(config, text, error);
}

static rt_status configure_stream(const dp_bench_shape *shape, rt_config *config, rt_error *error)
{
    if (!shape->file)
        return set(config, error, "stream.synthetic.scale=%.9f", shape->scale);
    const rt_status status = set(config, error, "stream.format=criteo");
    if (status)
        return status;
    return set(config, error, "stream.files=%s", shape->file);
}

static rt_status configure(const dp_bench_shape *shape, rt_config *config, rt_error *error)
{
    uint32_t n = shape->worker_count;
    for (size_t i = 0; i < RT_COUNT_OF(settings); i++) {
        rt_status status = rt_config_set(config, settings[i], error);
        if (status)
            return status;
    }
    rt_status status = set(config, error, "workers=%" PRIu32, n);
    if (status)
        return status;
    if (n == 1)
        status = set(config, error, "links.workers=[{\"count\":1,\"gbps\":5}]");
    else
        status = set(config, error,
                     "links.workers=[{\"count\":%" PRIu32 ",\"gbps\":5},{\"count\":%" PRIu32
                     ",\"gbps\":0.5}]",
                     n - n / 2, n / 2);
    if (status)
        return status;
    status = set(config, error, "batch.samples_per_worker=%" PRIu32, shape->samples_per_worker);
    if (status)
        return status;
    status = configure_stream(shape, config, error);
    if (status)
        return status;
    return dp_sim_apply_spec(config, shape->policy, error);
}

// The keys of the stream: what a file has, or what the generator can make.
static rt_status count_keys(const dp_bench_shape *shape, dp_bench_case *one, rt_error *error)
{
    one->distinct_keys = shape->distinct_keys;
    if (one->distinct_keys)
        return RT_OK;
    if (shape->file)
        return rt_stream_count_keys(&one->config.stream, 1, &one->distinct_keys, error);
    one->distinct_keys = (uint64_t)(shape->scale * 33762577);
    return RT_OK;
}

static rt_status make_planner(const dp_bench_shape *shape, dp_bench_case *one, rt_error *error)
{
    one->config.cache.distinct_keys = one->distinct_keys;
    uint64_t rows = shape->cache_rows;
    if (!rows)
        rows = (uint64_t)ceil(CACHE_SHARE * (double)one->distinct_keys);
    uint64_t micro_batch = shape->samples_per_worker;
    if (one->config.dispatch.micro_batch_max > micro_batch)
        micro_batch = one->config.dispatch.micro_batch_max;
    one->config.cache.rows = rt_max_u64(rows, micro_batch * one->schema.keys_per_sample_max);
    rt_status status =
        dp_setup(&one->config, &one->schema, one->distinct_keys, &one->planner_config, error);
    if (status)
        return status;
    return dp_planner_create(&one->planner_config, &one->planner, error);
}

static rt_status open_all(const dp_bench_shape *shape, dp_bench_case *one, rt_error *error)
{
    rt_status status = configure(shape, &one->config, error);
    if (status)
        return status;
    status = rt_stream_open(&one->config.stream, 1, &one->stream, error);
    if (status)
        return status;
    one->schema = *rt_stream_schema(one->stream);
    rt_batch_init(&one->batch, one->schema.dense_count);
    status = count_keys(shape, one, error);
    if (status)
        return status;
    return make_planner(shape, one, error);
}

rt_status dp_bench_open(const dp_bench_shape *shape, dp_bench_case *one, rt_error *error)
{
    memset(one, 0, sizeof *one);
    one->batch_size = shape->worker_count * shape->samples_per_worker;
    if (rt_config_init(&one->config))
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    const rt_status status = open_all(shape, one, error);
    if (status)
        dp_bench_close(one);
    return status;
}

void dp_bench_close(dp_bench_case *one)
{
    dp_planner_destroy(one->planner);
    if (one->stream)
        rt_stream_close(one->stream);
    rt_batch_fini(&one->batch);
    rt_config_fini(&one->config);
    memset(one, 0, sizeof *one);
}

rt_status dp_bench_read(dp_bench_case *one, rt_error *error)
{
    for (uint32_t attempt = 0; attempt < 2; attempt++) {
        rt_status status = rt_stream_read(one->stream, &one->batch, one->batch_size, error);
        if (status && status != RT_END)
            return status;
        if (!status && one->batch.sample_count == one->batch_size)
            return RT_OK;
        rt_stream_close(one->stream);
        one->stream = NULL;
        status = rt_stream_open(&one->config.stream, 1, &one->stream, error);
        if (status)
            return status;
    }
    return rt_fail(error, RT_DATA, "the input has fewer than %" PRIu32 " rows", one->batch_size);
}

rt_status dp_bench_look_up(dp_bench_case *one, rt_error *error)
{
    rt_status status = dp_bench_read(one, error);
    if (status)
        return status;
    status = dp_planner_look_up(one->planner, &one->batch);
    if (status)
        return rt_fail(error, status, "out of memory for the directory");
    return RT_OK;
}

rt_status dp_bench_advance(dp_bench_case *one, uint32_t iterations, rt_error *error)
{
    for (uint32_t i = 0; i < iterations; i++) {
        const dp_plan *plan;
        rt_status status = dp_bench_look_up(one, error);
        if (status)
            return status;
        dp_planner_place(one->planner);
        if (dp_planner_commit(one->planner, &plan))
            return rt_fail(error, RT_NO_MEMORY, "out of memory for a plan");
    }
    return RT_OK;
}

// ---- times -----------------------------------------------------------------------------------

uint64_t dp_bench_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void dp_bench_add(dp_bench_times *times, uint64_t ns)
{
    if (times->count < DP_BENCH_TIMES_MAX)
        times->ns[times->count++] = ns;
}

static int by_size(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

double dp_bench_ms(dp_bench_times *times, double share)
{
    if (times->count == 0)
        return NAN;
    qsort(times->ns, times->count, sizeof *times->ns, by_size);
    return (double)times->ns[(uint32_t)(share * (times->count - 1) + 0.5)] * 1e-6;
}

double dp_bench_noise(dp_bench_times *times)
{
    if (times->count < 4)
        return NAN;
    double range = dp_bench_ms(times, 0.75) - dp_bench_ms(times, 0.25);
    return 50 * range / dp_bench_ms(times, 0.5);
}

// ---- memory ----------------------------------------------------------------------------------

uint64_t dp_bench_resident_bytes(void)
{
    uint64_t all = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file)
        return 0;
    if (fscanf(file, "%" PRIu64 " %" PRIu64, &all, &resident) != 2)
        resident = 0;
    fclose(file);
    return resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

rt_status dp_bench_apart(dp_bench_work work, const void *argument, void *result, size_t size,
                         uint64_t *peak_bytes_p, rt_error *error)
{
    struct rusage usage;
    int state;
    void *shared = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    fflush(NULL);
    malloc_trim(0); // or the child would find the parent's freed memory resident, and reuse it
    pid_t child = rt_child_fork();
    if (child == 0)
        _exit(work(argument, shared) == RT_OK ? 0 : 1);
    bool ended = child > 0 && wait4(child, &state, 0, &usage) == child;
    memcpy(result, shared, size);
    munmap(shared, size);
    if (!ended)
        return rt_fail(error, RT_IO, "cannot start a process: %s", strerror(errno));
    *peak_bytes_p = (uint64_t)usage.ru_maxrss * 1024;
    if (!WIFEXITED(state) || WEXITSTATUS(state) != 0)
        return rt_fail(error, RT_NO_MEMORY, "a measurement in a process of its own failed");
    return RT_OK;
}
