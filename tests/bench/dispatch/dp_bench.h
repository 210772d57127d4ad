// dp_bench - measurements of the planner and its solvers: `lanyard_bench dispatch`.
//
// Everything that is reported was measured in the run that reports it; a paper's figures stand in
// columns that name the paper. Times are processor times, medians over repeats. One thread.
#ifndef DP_BENCH_H
#define DP_BENCH_H

#include "dispatch/planner/dp_planner.h"
#include "runtime/config/rt_config.h"
#include "runtime/metrics/rt_report.h"
#include "runtime/stream/rt_stream.h"

typedef struct {
    rt_report *report;
    const char *file;     // rows in Criteo's format, or NULL
    const char *dump_dir; // where matrices of ESD are written, or NULL
    bool quick;           // smaller sizes, fewer repeats
} dp_bench;

// How many: fewer where the bench is to be quick.
static inline uint32_t dp_bench_count(const dp_bench *bench, uint32_t quick, uint32_t thorough)
{
    return bench->quick ? quick : thorough;
}

// The sections, in the order in which they are reported. RT_NO_MEMORY, RT_IO, RT_DATA.
rt_status dp_bench_opt(const dp_bench *bench, rt_error *error);       // ESD, Table 2
rt_status dp_bench_alpha(const dp_bench *bench, rt_error *error);     // ESD's alpha
rt_status dp_bench_scaling(const dp_bench *bench, rt_error *error);   // transport, N and n
rt_status dp_bench_memory(const dp_bench *bench, rt_error *error);    // transport, largest problem
rt_status dp_bench_stages(const dp_bench *bench, rt_error *error);    // planner, by workers
rt_status dp_bench_directory(const dp_bench *bench, rt_error *error); // planner, by keys known
rt_status dp_bench_gap(const dp_bench *bench, rt_error *error);       // to the optimum
rt_status dp_bench_demand(const dp_bench *bench, rt_error *error);    // planner, by samples asked
rt_status dp_bench_threads(const dp_bench *bench, rt_error *error);   // planner, by threads

// Writes problems of 1024 and 8192 rows and 8 sinks, made from views of the planner, into
// bench->dump_dir (format: tests/bench/solver_bench.c).
rt_status dp_bench_dump(const dp_bench *bench, rt_error *error);

// ---- what the sections share -----------------------------------------------------------------

typedef struct {
    uint32_t worker_count;
    uint32_t samples_per_worker;
    double scale;           // of the synthetic ids; ignored with a file
    const char *policy;     // SPEC of `lanyard sim`
    const char *file;       // NULL: synthetic rows
    uint32_t cache_rows;    // 0: 8% of the distinct keys
    uint64_t distinct_keys; // 0: counted
} dp_bench_shape;

// A planner and the rows that it plans; the settings are those of configs/paper/s1.json.
typedef struct {
    rt_config config;
    rt_schema schema;
    dp_planner_config planner_config;
    dp_planner *planner;
    rt_stream *stream;
    rt_batch batch;
    uint32_t batch_size;
    uint64_t distinct_keys;
} dp_bench_case;

rt_status dp_bench_open(const dp_bench_shape *shape, dp_bench_case *one, rt_error *error);
void dp_bench_close(dp_bench_case *one);

// Reads the next full batch; from the start of the input again after its end.
rt_status dp_bench_read(dp_bench_case *one, rt_error *error);
// Reads and plans so many batches.
rt_status dp_bench_advance(dp_bench_case *one, uint32_t iterations, rt_error *error);
// Reads one and looks it up: dp_planner_view is there.
rt_status dp_bench_look_up(dp_bench_case *one, rt_error *error);

// Nanoseconds of processor time of this thread: what other programs take does not count.
uint64_t dp_bench_now_ns(void);

// Times of one thing, measured again and again.
#define DP_BENCH_TIMES_MAX 1024u
typedef struct {
    uint64_t ns[DP_BENCH_TIMES_MAX];
    uint32_t count;
} dp_bench_times;

void dp_bench_add(dp_bench_times *times, uint64_t ns);
double dp_bench_ms(dp_bench_times *times, double share); // a percentile, NAN without times
double dp_bench_noise(dp_bench_times *times); // half the interquartile range over the median, %

// Runs work in a process of its own, which fills result (size bytes, zeroed). *peak_bytes_p: the
// most memory that it had resident. RT_NO_MEMORY also when the process died.
typedef rt_status (*dp_bench_work)(const void *argument, void *result);
rt_status dp_bench_apart(dp_bench_work work, const void *argument, void *result, size_t size,
                         uint64_t *peak_bytes_p, rt_error *error);

// Resident now, of this process.
uint64_t dp_bench_resident_bytes(void);

#endif
