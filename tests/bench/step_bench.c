// step_bench - the time of one training step against what its arithmetic and its bytes need.
//
//   step_bench [batch [dim [threads]]]
//
// A step is ew_model_step, the dense optimizer and the row optimizer (Adagrad) on every row. Its
// floor is the time of its matrix products alone (same library, same shapes) plus the bytes that
// every other operation must read and write at the bandwidth of a large copy. One thread; the
// median of its CPU time, so that other programs on the machine disturb less. Look-ups are like
// Criteo's: half of the 26 fields with few ids, half with many.
// With threads: also one step on so many threads against so many steps at once on one thread each,
// in turn, so that other programs disturb both; in wall-clock time.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "edge_worker/model/ew_model.h"
#include "runtime/config/rt_models.h"
#include "runtime/config/rt_optimizers.h"
#include "runtime/rt_hash.h"

#define FIELDS 26u
#define DENSE 13u
#define WIDTH 256u
#define LAYERS 3u
#define SLOTS 60000u
#define SECONDS 0.6 // per measurement
#define REPEATS_MAX 2000u
#define STEPS_PER_TURN 10u
#define TURNS 15u

typedef struct {
    ew_device device;
    ew_model *model;
    ew_model_config config;
    ew_micro_batch batch;
    float *labels, *dense, *slab;
    uint32_t *rows, *slots;
} bench;

static void *allocate(size_t count, size_t size)
{
    void *block = rt_alloc(count, size);
    if (!block) {
        fprintf(stderr, "out of memory\n");
        exit(EXIT_FAILURE);
    }
    return block;
}

static int compare_times(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static uint64_t cpu_time_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

// Median CPU seconds of a call.
static double measure(void (*run)(void *context), void *context)
{
    static uint64_t times[REPEATS_MAX];
    uint32_t count = 0;
    run(context);
    for (uint64_t start = cpu_time_ns(), now = start;
         count < 5 || ((double)(now - start) < SECONDS * 1e9 && count < REPEATS_MAX); count++) {
        uint64_t from = cpu_time_ns();
        run(context);
        now = cpu_time_ns();
        times[count] = now - from;
    }
    qsort(times, count, sizeof *times, compare_times);
    return (double)times[count / 2] * 1e-9;
}

static void fill_batch(bench *b, uint32_t samples)
{
    rt_random random = {1};
    uint32_t *row_of_id = allocate(FIELDS * 100000, sizeof *row_of_id);
    uint32_t row_count = 0;
    for (uint32_t i = 0; i < samples; i++) {
        b->labels[i] = (float)(rt_random_below(&random, 4) == 0);
        for (uint32_t k = 0; k < DENSE; k++)
            b->dense[i * DENSE + k] = (float)rt_random_unit(&random);
        for (uint32_t f = 0; f < FIELDS; f++) {
            uint32_t id = f * 100000 + rt_random_below(&random, f % 2 ? 100 : 100000);
            if (!row_of_id[id]) {
                b->slots[row_count] = (uint32_t)((uint64_t)row_count * 7919 % SLOTS);
                row_of_id[id] = ++row_count;
            }
            b->rows[i * FIELDS + f] = row_of_id[id] - 1;
        }
    }
    rt_free(row_of_id);
    uint32_t dim = b->config.model.embedding_dim;
    b->batch = (ew_micro_batch){.sample_count = samples,
                                .lookup_count = samples * FIELDS,
                                .row_count = row_count,
                                .labels = b->labels,
                                .dense = b->dense,
                                .lookup_rows = b->rows,
                                .row_slots = b->slots,
                                .slab = b->slab,
                                .row_stride = 2 * dim,
                                .scale = 1 / (float)samples};
}

static void setup(bench *b, uint32_t samples, uint32_t dim, rt_deep_input deep_input,
                  uint32_t threads)
{
    const ew_device_wish wish = {.name = "cpu", .threads = threads};
    const rt_optimizer_config adagrad = {.kind = RT_OPTIMIZER_ADAGRAD,
                                         .learning_rate = 0.02f,
                                         .epsilon = 1e-8f,
                                         .initial_accumulator = 0.1f};
    rt_error error = {0};
    *b = (bench){.config = {.model = {.kind = RT_MODEL_WDL,
                                      .embedding_dim = dim,
                                      .deep_input = deep_input,
                                      .mlp_layer_count = LAYERS,
                                      .mlp = {WIDTH, WIDTH, WIDTH}},
                            .optimizer = adagrad,
                            .seed = 1,
                            .dense_count = DENSE,
                            .field_count = FIELDS,
                            .sample_count_max = samples,
                            .lookup_count_max = samples * FIELDS,
                            .row_count_max = samples * FIELDS}};
    b->labels = allocate(samples, sizeof(float));
    b->dense = allocate(samples * DENSE, sizeof(float));
    b->rows = allocate(samples * FIELDS, sizeof(uint32_t));
    b->slots = allocate(samples * FIELDS, sizeof(uint32_t));
    b->slab = allocate((size_t)SLOTS * 2 * dim, sizeof(float));
    rt_random random = {2};
    for (size_t i = 0; i < (size_t)SLOTS * 2 * dim; i++)
        b->slab[i] = i / dim % 2 ? 0.1f : (float)(rt_random_unit(&random) - 0.5) * 0.02f;
    fill_batch(b, samples);
    if (ew_device_open_as(&wish, &b->device, &error) != RT_OK ||
        ew_model_create(&b->config, &b->device, &b->model, &error) != RT_OK ||
        ew_model_check(b->model, &b->batch, SLOTS, &error) != RT_OK) {
        fprintf(stderr, "%s\n", error.text);
        exit(EXIT_FAILURE);
    }
}

static void teardown(bench *b)
{
    ew_model_destroy(b->model);
    ew_device_close(&b->device);
    void *blocks[] = {b->labels, b->dense, b->rows, b->slots, b->slab};
    for (size_t i = 0; i < RT_COUNT_OF(blocks); i++)
        rt_free(blocks[i]);
}

static void run_step(void *context)
{
    bench *b = context;
    ew_step_result result;
    rt_error error;
    ew_model_step(b->model, &b->batch, NULL, NULL, &result, &error);
    ew_model_dense_step(b->model, 1);
    b->device.ops->rows_step(b->device.state, &b->config.optimizer, b->config.model.embedding_dim,
                             1, b->slab, b->batch.row_stride, b->slots, NULL, b->batch.row_count,
                             result.row_gradients);
}

// The step's matrix products, on matrices of their own.
typedef struct {
    const bench *b;
    float *input, *input_gradients, *weights, *values[2];
} products;

static void run_products(void *context)
{
    const products *p = context;
    const bench *b = p->b;
    const ew_layer_ops *layers = b->device.layers;
    void *state = b->device.state;
    bool all = b->config.model.deep_input == RT_DEEP_ALL;
    uint32_t n = b->batch.sample_count, pooled = FIELDS * b->config.model.embedding_dim;
    uint32_t inputs = DENSE + (all ? pooled : 0), stride = all ? (inputs + 15) / 16 * 16 : DENSE;
    for (uint32_t l = 0; l < LAYERS; l++) {
        uint32_t in = l ? WIDTH : inputs, step = l ? WIDTH : stride;
        const float *x = l ? p->values[0] : p->input;
        layers->gemm(state, false, true, n, WIDTH, in, x, step, p->weights, in, 0, p->values[1],
                     WIDTH);
        layers->gemm(state, true, false, WIDTH, in, n, p->values[1], WIDTH, x, step, 0, p->weights,
                     in);
        if (l || all)
            layers->gemm(state, false, false, n, l ? WIDTH : pooled, WIDTH, p->values[1], WIDTH,
                         p->weights, in, 0, l ? p->values[0] : p->input_gradients, step);
    }
}

static double measure_products(const bench *b)
{
    size_t n = b->batch.sample_count, inputs = DENSE + FIELDS * b->config.model.embedding_dim + 16;
    products p = {b,
                  allocate(n * inputs, sizeof(float)),
                  allocate(n * inputs, sizeof(float)),
                  allocate(WIDTH * inputs, sizeof(float)),
                  {allocate(n * WIDTH, sizeof(float)), allocate(n * WIDTH, sizeof(float))}};
    double seconds = measure(run_products, &p);
    void *blocks[] = {p.input, p.input_gradients, p.weights, p.values[0], p.values[1]};
    for (size_t i = 0; i < RT_COUNT_OF(blocks); i++)
        rt_free(blocks[i]);
    return seconds;
}

// Bytes that the other operations read and write, each operand once per operation.
static double bytes_moved(const bench *b)
{
    double n = b->batch.sample_count, rows = b->batch.row_count, lookups = n * FIELDS;
    double dim = b->config.model.embedding_dim;
    uint32_t parameters;
    ew_model_dense(b->model, EW_VALUES, &parameters);
    double floats = 2 * rows * dim;                   // wide and back: rows
    floats += 7 * n * WIDTH * LAYERS - 2 * n * WIDTH; // bias, ReLU: 2, back: 3, output: 2
    floats += 5.0 * parameters;                       // Adagrad: values, state r/w, gradient
    floats += rows * dim * (1 + 5);                   // row gradients w, Adagrad
    floats += 6 * lookups;                            // index, gathers of scalars
    if (b->config.model.deep_input == RT_DEEP_ALL)
        floats += rows * dim + 2 * lookups * dim; // pool: rows, out; back: in
    return 4 * floats;
}

typedef struct {
    float *from, *to;
    size_t bytes;
} copy_run;

static void run_copy(void *context)
{
    const copy_run *copy = context;
    memcpy(copy->to, copy->from, copy->bytes);
    __asm__ volatile("" ::: "memory");
}

static double copy_bytes_per_s(void)
{
    copy_run copy = {.bytes = (size_t)64 << 20};
    copy.from = allocate(copy.bytes, 1);
    copy.to = allocate(copy.bytes, 1);
    memset(copy.from, 1, copy.bytes);
    double seconds = measure(run_copy, &copy);
    rt_free(copy.from);
    rt_free(copy.to);
    return 2 * (double)copy.bytes / seconds;
}

typedef struct {
    bench b;
    pthread_barrier_t *start;
} one_of_many;

static void *run_steps(void *context)
{
    one_of_many *one = context;
    if (one->start)
        (void)pthread_barrier_wait(one->start);
    for (uint32_t i = 0; i < STEPS_PER_TURN; i++)
        run_step(&one->b);
    return NULL;
}

// Samples/s of count runs at once.
static double run_at_once(one_of_many *runs, uint32_t count)
{
    pthread_t threads[RT_THREADS_MAX];
    pthread_barrier_t start;
    pthread_barrier_init(&start, NULL, count + 1);
    for (uint32_t i = 0; i < count; i++) {
        runs[i].start = &start;
        if (pthread_create(&threads[i], NULL, run_steps, &runs[i]) != 0)
            abort();
    }
    (void)pthread_barrier_wait(&start);
    const uint64_t from = rt_now_ns();
    for (uint32_t i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    const double seconds = (double)(rt_now_ns() - from) * 1e-9;
    pthread_barrier_destroy(&start);
    return count * STEPS_PER_TURN * (double)runs[0].b.batch.sample_count / seconds;
}

static double median(double *values, uint32_t count)
{
    for (uint32_t i = 1; i < count; i++) // few
        for (uint32_t k = i; k > 0 && values[k] < values[k - 1]; k--) {
            const double larger = values[k - 1];
            values[k - 1] = values[k];
            values[k] = larger;
        }
    return values[count / 2];
}

static void compare_threads(uint32_t samples, uint32_t dim, rt_deep_input deep_input,
                            uint32_t threads)
{
    double alone[TURNS], shared[TURNS], apart[TURNS], shares[TURNS];
    one_of_many *runs = allocate(threads + 2, sizeof *runs);
    for (uint32_t i = 0; i < threads; i++)
        setup(&runs[i].b, samples, dim, deep_input, 1);
    setup(&runs[threads].b, samples, dim, deep_input, threads);
    for (uint32_t turn = 0; turn < TURNS; turn++) {
        alone[turn] = run_at_once(runs, 1);
        shared[turn] = run_at_once(&runs[threads], 1);
        apart[turn] = run_at_once(runs, threads);
        shares[turn] = shared[turn] / apart[turn];
    }
    printf("  one thread %.0f samples/s, %u threads %.0f, %u steps at once %.0f: share %.2f "
           "(medians of %u turns)\n",
           median(alone, TURNS), threads, median(shared, TURNS), threads, median(apart, TURNS),
           median(shares, TURNS), TURNS);
    for (uint32_t i = 0; i <= threads; i++)
        teardown(&runs[i].b);
    rt_free(runs);
}

int main(int argc, char **argv)
{
    const unsigned long threads = argc > 3 ? strtoul(argv[3], NULL, 10) : 1;
    static const uint32_t batches[] = {128, 256, 1024}, dims[] = {16, 64, 512};
    double bandwidth = copy_bytes_per_s();
    printf("copy %.1f GB/s (read + write)\n", bandwidth * 1e-9);
    printf("%5s %5s %6s %7s %10s %10s %10s %7s %11s\n", "deep", "batch", "dim", "rows", "step ms",
           "gemm ms", "bytes ms", "ratio", "samples/s");
    for (int all = 0; all < 2; all++)
        for (size_t s = 0; s < RT_COUNT_OF(batches); s++)
            for (size_t d = 0; d < RT_COUNT_OF(dims); d++) {
                if ((argc > 1 && strtoul(argv[1], NULL, 10) != batches[s]) ||
                    (argc > 2 && strtoul(argv[2], NULL, 10) != dims[d]))
                    continue;
                bench b;
                setup(&b, batches[s], dims[d], all ? RT_DEEP_ALL : RT_DEEP_DENSE, 1);
                double step = measure(run_step, &b), gemm = measure_products(&b);
                double bytes = bytes_moved(&b) / bandwidth;
                printf("%5s %5u %6u %7u %10.3f %10.3f %10.3f %7.2f %11.0f\n", all ? "all" : "dense",
                       batches[s], dims[d], b.batch.row_count, step * 1e3, gemm * 1e3, bytes * 1e3,
                       step / (gemm + bytes), batches[s] / step);
                fflush(stdout);
                teardown(&b);
                if (threads > 1 && threads <= RT_THREADS_MAX)
                    compare_threads(batches[s], dims[d], all ? RT_DEEP_ALL : RT_DEEP_DENSE,
                                    (uint32_t)threads);
            }
    return EXIT_SUCCESS;
}
