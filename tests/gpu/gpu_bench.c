// gpu_bench - times the CUDA device and solvers where there is a GPU.
//
//   gpu_bench            everything
//   gpu_bench --quick    the least that shows that it works: its times mean nothing
//   gpu_bench --device   only says which device there is; exit status 1 if there is none
//
// A kernel's time is that of one call among many in a row; its share is of the bandwidth that a
// copy within the device's memory reaches, for the bytes that the operation has to move, each once.
// What moves rows to and from the host's pinned memory is held against a copy from there (the bus).
// A training step says what the host asks of the device in it: copies, waits, and how many steps
// were queued operation by operation and not as one graph. Only the stand-in for CUDA counts
// launches (tests/support/cuda_cpu).
#include <dlfcn.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dispatch/solvers/dp_solver.h"
#include "edge_worker/device/ew_device.h"
#include "edge_worker/model/ew_model.h"
#include "runtime/config/rt_models.h"
#include "runtime/config/rt_optimizers.h"
#include "runtime/config/rt_solvers.h"
#include "runtime/rt_cuda.h"
#include "runtime/rt_hash.h"

#define REPEATS 50u
#define WARM_UPS 2u // the second of a shape is captured
#define FIELDS 26u
#define DENSE 13u
#define WIDTH 256u
#define PINNED_ROWS_MAX 4096u // what one answer of a shard may bring

static const rt_optimizer_config adagrad = {.kind = RT_OPTIMIZER_ADAGRAD,
                                            .learning_rate = 0.02f,
                                            .epsilon = 1e-10f,
                                            .initial_accumulator = 0.1f};

static _Noreturn void die(const char *what)
{
    fprintf(stderr, "gpu_bench: %s\n", what);
    exit(EXIT_FAILURE);
}

// Everything the operations need, on the device.
typedef struct {
    ew_device device;
    uint32_t repeats;
    ew_lookups lookups;
    uint32_t samples, dim, rows, stride; // stride: of the pooled matrix
    float *slab, *pooled, *weights, *logits, *row_gradients, *dense;
    uint32_t *host_rows, *host_slots;
    double copy_bytes_per_s, bus_bytes_per_s;
    // Pinned memory of the host: what the executor and the trainer share with the device.
    float *pinned_rows;                      // PINNED_ROWS_MAX of them
    uint32_t *pinned_slots, *pinned_numbers; // of all rows
} bench;

static void *device_floats(const bench *b, size_t count)
{
    void *block = b->device.ops->alloc(b->device.state, count);
    if (!block)
        die("out of device memory");
    return block;
}

static void *upload(const bench *b, const void *words, size_t count)
{
    void *block = device_floats(b, count);
    b->device.ops->copy(b->device.state, EW_COPY_IN, block, words, count * sizeof(float));
    return block;
}

static void finish(const bench *b)
{
    rt_error error;
    if (b->device.ops->finish(b->device.state, &error) != RT_OK)
        die(error.text);
}

// Popular rows as in click data: half of the look-ups of a field go to one row in twenty. ids: of a
// field; the more, the nearer the number of rows is to that of look-ups.
static void setup(bench *b, uint32_t samples, uint32_t dim, uint32_t ids)
{
    rt_random random = {1};
    uint32_t lookups = samples * FIELDS, *numbers;
    b->samples = samples;
    b->dim = dim;
    b->rows = 0;
    b->stride = (FIELDS * dim + DENSE + 15) / 16 * 16;
    b->host_rows = rt_alloc(lookups, sizeof(uint32_t));
    b->host_slots = rt_alloc(lookups, sizeof(uint32_t));
    numbers = rt_alloc((size_t)FIELDS * ids, sizeof *numbers);
    if (!b->host_rows || !b->host_slots || !numbers)
        die("out of memory");
    for (uint32_t l = 0; l < lookups; l++) {
        uint32_t bound = rt_random_below(&random, 2) ? ids : ids / 20 + 1;
        uint32_t *number = &numbers[l % FIELDS * ids + rt_random_below(&random, bound)];
        if (!*number)
            *number = ++b->rows;
        b->host_rows[l] = *number - 1;
    }
    for (uint32_t r = 0; r < b->rows; r++)
        b->host_slots[r] = 2 * (b->rows - 1 - r); // distinct, apart
    b->lookups = (ew_lookups){.sample_count = samples,
                              .field_count = FIELDS,
                              .lookup_count = lookups,
                              .row_count = b->rows,
                              .dim = dim,
                              .row_stride = (2 * dim + 15) / 16 * 16};
    b->slab = device_floats(b, (size_t)2 * b->rows * b->lookups.row_stride);
    b->lookups.slab = b->slab;
    b->lookups.lookup_rows = upload(b, b->host_rows, lookups);
    b->lookups.row_slots = upload(b, b->host_slots, b->rows);
    b->lookups.row_starts = device_floats(b, b->rows + 1);
    b->lookups.row_samples = device_floats(b, lookups);
    b->lookups.row_fields = device_floats(b, b->rows);
    b->lookups.row_scalars = device_floats(b, b->rows);
    b->pooled = device_floats(b, (size_t)samples * b->stride);
    b->weights = device_floats(b, (size_t)FIELDS * dim);
    b->logits = device_floats(b, samples);
    b->dense = device_floats(b, (size_t)samples * DENSE);
    b->row_gradients = device_floats(b, (size_t)b->rows * dim);
    b->pinned_rows = b->device.ops->alloc_shared(b->device.state, (size_t)PINNED_ROWS_MAX * dim);
    b->pinned_slots = b->device.ops->alloc_shared(b->device.state, b->rows);
    b->pinned_numbers = b->device.ops->alloc_shared(b->device.state, b->rows);
    if (!b->pinned_rows || !b->pinned_slots || !b->pinned_numbers)
        die("out of pinned memory");
    memcpy(b->pinned_slots, b->host_slots, b->rows * sizeof *b->pinned_slots);
    for (uint32_t r = 0; r < b->rows; r++)
        b->pinned_numbers[r] = r;
    b->device.layers->index(b->device.state, &b->lookups);
    finish(b);
    rt_free(numbers);
}

static void teardown(bench *b)
{
    const void *blocks[] = {b->slab,
                            b->lookups.lookup_rows,
                            b->lookups.row_slots,
                            b->lookups.row_starts,
                            b->lookups.row_samples,
                            b->lookups.row_fields,
                            b->lookups.row_scalars,
                            b->pooled,
                            b->weights,
                            b->logits,
                            b->dense,
                            b->row_gradients};
    for (size_t i = 0; i < RT_COUNT_OF(blocks); i++)
        b->device.ops->free(b->device.state, (void *)(uintptr_t)blocks[i]);
    b->device.ops->free_shared(b->device.state, b->pinned_rows);
    b->device.ops->free_shared(b->device.state, b->pinned_slots);
    b->device.ops->free_shared(b->device.state, b->pinned_numbers);
    rt_free(b->host_rows);
    rt_free(b->host_slots);
}

static double seconds_of(const bench *b, void (*run)(const bench *b))
{
    run(b);
    finish(b);
    uint64_t begin = rt_now_ns();
    for (uint32_t i = 0; i < b->repeats; i++)
        run(b);
    finish(b);
    return (double)(rt_now_ns() - begin) * 1e-9 / b->repeats;
}

static void run_copy(const bench *b)
{
    size_t half = (size_t)b->rows * b->lookups.row_stride;
    b->device.ops->copy(b->device.state, EW_COPY_WITHIN, b->slab, b->slab + half,
                        half * sizeof(float));
}
static void run_index(const bench *b)
{
    b->device.layers->index(b->device.state, &b->lookups);
}
static void run_pool(const bench *b)
{
    b->device.layers->pool(b->device.state, &b->lookups, b->dense, DENSE, b->pooled, b->stride);
}
static void run_wide(const bench *b)
{
    b->device.layers->wide(b->device.state, &b->lookups, b->weights, b->logits);
}
static void run_wide_back(const bench *b)
{
    b->device.layers->wide_back(b->device.state, &b->lookups, b->logits, b->weights);
}
static void run_rows_back(const bench *b)
{
    b->device.layers->rows_back(b->device.state, &b->lookups, b->pooled, b->stride, b->weights,
                                b->row_gradients);
}
static void run_rows_step(const bench *b)
{
    b->device.ops->rows_step(b->device.state, &adagrad, b->dim, 1, b->slab, b->lookups.row_stride,
                             b->lookups.row_slots, NULL, b->rows, b->row_gradients);
}
static void run_rows_get(const bench *b)
{
    b->device.ops->rows_get(b->device.state, b->slab, b->lookups.row_stride, b->dim,
                            b->lookups.row_slots, b->rows, b->row_gradients);
}
static void run_rows_step_pinned(const bench *b)
{
    b->device.ops->rows_step(b->device.state, &adagrad, b->dim, 1, b->slab, b->lookups.row_stride,
                             b->pinned_slots, NULL, b->rows, b->row_gradients);
}
static uint32_t pinned_rows(const bench *b)
{
    return b->rows < PINNED_ROWS_MAX ? b->rows : PINNED_ROWS_MAX;
}
static void run_rows_get_pinned(const bench *b)
{
    b->device.ops->rows_get(b->device.state, b->slab, b->lookups.row_stride, b->dim,
                            b->pinned_slots, pinned_rows(b), b->pinned_rows);
}
static void run_rows_put_pinned(const bench *b)
{
    b->device.ops->rows_put(b->device.state, b->slab, b->lookups.row_stride, b->dim,
                            b->pinned_slots, pinned_rows(b), b->pinned_rows);
}
static void run_bus(const bench *b)
{
    b->device.ops->copy(b->device.state, EW_COPY_IN, b->row_gradients, b->pinned_rows,
                        (size_t)pinned_rows(b) * b->dim * sizeof(float));
}
static void run_activate(const bench *b)
{
    b->device.layers->activate(b->device.state, EW_RELU, b->samples, FIELDS * b->dim, b->weights,
                               b->pooled, b->stride);
}

static void measure_kernels(bench *b)
{
    double lookups = b->lookups.lookup_count, rows = b->rows, dim = b->dim;
    const double pinned = pinned_rows(b);
    const struct {
        const char *name;
        void (*run)(const bench *b);
        double floats; // read and written; by the bus: what goes over it
        bool by_bus;
    } kernels[] = {
        {"index", run_index, 4 * lookups + 4 * rows, false},
        {"pool", run_pool, lookups + rows * dim + lookups * dim, false},
        {"wide", run_wide, rows * dim + 2 * lookups, false},
        {"wide_back", run_wide_back, rows * dim + 2 * lookups, false},
        {"rows_back", run_rows_back, lookups * dim + rows * dim + 2 * lookups, false},
        {"rows_step adagrad", run_rows_step, 5 * rows * dim, false},
        {"rows_step, pinned slots", run_rows_step_pinned, 5 * rows * dim, false},
        {"rows_get", run_rows_get, 2 * rows * dim, false},
        {"rows_get, pinned", run_rows_get_pinned, pinned * dim, true},
        {"rows_put, pinned", run_rows_put_pinned, pinned * dim, true},
        {"activate", run_activate, 2 * b->samples * FIELDS * dim, false},
    };
    double copied = 2 * rows * b->lookups.row_stride * sizeof(float);
    b->copy_bytes_per_s = copied / seconds_of(b, run_copy);
    b->bus_bytes_per_s = pinned * dim * sizeof(float) / seconds_of(b, run_bus);
    printf("\nbatch %u, dim %u, %u rows; copy %.0f GB/s, from pinned memory %.1f\n", b->samples,
           b->dim, b->rows, b->copy_bytes_per_s * 1e-9, b->bus_bytes_per_s * 1e-9);
    printf("%-24s %10s %10s %8s\n", "kernel", "us", "MB", "share");
    for (size_t i = 0; i < RT_COUNT_OF(kernels); i++) {
        double seconds = seconds_of(b, kernels[i].run), bytes = kernels[i].floats * sizeof(float);
        printf("%-24s %10.1f %10.2f %7.0f%%\n", kernels[i].name, seconds * 1e6, bytes * 1e-6,
               100 * bytes / seconds /
                   (kernels[i].by_bus ? b->bus_bytes_per_s : b->copy_bytes_per_s));
    }
}

// ---- what a step asks of the device ------------------------------------------------------------

// Of the one device: its operations get no other state than its own.
static struct {
    const ew_device_ops *real;
    uint64_t copies, waits, queued; // queued: steps operation by operation
} asked;

static void counted_copy(void *state, ew_copy kind, void *to, const void *from, size_t bytes)
{
    asked.copies++;
    asked.real->copy(state, kind, to, from, bytes);
}

static rt_status counted_finish(void *state, rt_error *error)
{
    asked.waits++;
    return asked.real->finish(state, error);
}

typedef struct {
    void (*work)(void *context);
    void *context;
} given_work;

static void counted_work(void *context)
{
    const given_work *given = context;
    asked.queued++;
    given->work(given->context);
}

static void counted_repeat(void *state, const void *key, size_t bytes, void (*work)(void *context),
                           void *context)
{
    given_work given = {work, context};
    asked.real->repeat(state, key, bytes, counted_work, &given);
}

// The same device with an eye on it; ops is what its operations become.
static ew_device count_calls(const ew_device *device, ew_device_ops *ops)
{
    ew_device counted = *device;
    asked.real = device->ops;
    *ops = *device->ops;
    ops->copy = counted_copy;
    ops->finish = counted_finish;
    ops->repeat = counted_repeat;
    counted.ops = ops;
    return counted;
}

// Kernels and graphs launched, and waits, since the start; false: nobody counts them.
static bool runtime_counts(uint64_t *launches, uint64_t *waits)
{
    void (*counts)(uint64_t *, uint64_t *) = NULL;
    void *plugin = dlopen(RT_CUDA_FILE, RTLD_NOW | RTLD_NOLOAD);
    void *symbol = plugin ? dlsym(plugin, "cuda_cpu_counts") : NULL;
    memcpy(&counts, &symbol, sizeof symbol);
    if (counts)
        counts(launches, waits);
    return counts != NULL;
}

// ---- a step ------------------------------------------------------------------------------------

// As a worker makes it: the slots and numbers of the rows that it steps are in pinned memory.
static void step(const bench *b, const ew_device *device, ew_model *model,
                 const ew_micro_batch *batch, uint64_t number)
{
    ew_step_result result;
    rt_error error;
    if (ew_model_step(model, batch, NULL, NULL, &result, &error) != RT_OK)
        die(error.text);
    ew_model_dense_step(model, number);
    device->ops->rows_step(device->state, &adagrad, b->dim, number, b->slab, b->lookups.row_stride,
                           b->pinned_slots, b->pinned_numbers, b->rows, result.row_gradients);
    if (device->ops->finish(device->state, &error) != RT_OK)
        die(error.text);
}

static void time_steps(const bench *b, const ew_device *device, ew_model *model,
                       const ew_micro_batch *batch, const char *name)
{
    uint64_t begin = 0, launches[2] = {0}, waits[2] = {0};
    bool is_counted = false;
    for (uint32_t i = 0; i < WARM_UPS + b->repeats; i++) {
        if (i == WARM_UPS) {
            asked.copies = asked.waits = asked.queued = 0;
            is_counted = runtime_counts(&launches[0], &waits[0]);
            begin = rt_now_ns();
        }
        step(b, device, model, batch, i + 1);
    }
    const double seconds = (double)(rt_now_ns() - begin) * 1e-9 / b->repeats;
    printf("wdl step, deep_input %-5s %10.1f us, %.0f samples/s\n", name, seconds * 1e6,
           b->samples / seconds);
    printf("  per step: %.1f copies, %.1f waits; %" PRIu64 " of %u not as a graph\n",
           (double)asked.copies / b->repeats, (double)asked.waits / b->repeats, asked.queued,
           b->repeats);
    if (is_counted && runtime_counts(&launches[1], &waits[1]))
        printf("  counted by the stand-in: %.1f launches, %.1f waits\n",
               (double)(launches[1] - launches[0]) / b->repeats,
               (double)(waits[1] - waits[0]) / b->repeats);
}

// A training step of WDL, from the micro-batch in host memory to its predictions.
static void measure_step(const bench *b, rt_deep_input deep)
{
    ew_model_config config = {.model = {.kind = RT_MODEL_WDL,
                                        .embedding_dim = b->dim,
                                        .deep_input = deep,
                                        .mlp_layer_count = 3,
                                        .mlp = {WIDTH, WIDTH, WIDTH}},
                              .optimizer = adagrad,
                              .seed = 1,
                              .dense_count = DENSE,
                              .field_count = FIELDS,
                              .sample_count_max = b->samples,
                              .lookup_count_max = b->lookups.lookup_count,
                              .row_count_max = b->rows};
    ew_device_ops ops;
    const ew_device device = count_calls(&b->device, &ops);
    ew_model *model;
    rt_error error;
    float *labels = rt_alloc(b->samples, sizeof(float));
    float *dense = rt_alloc((size_t)b->samples * DENSE, sizeof(float));
    if (!labels || !dense || ew_model_create(&config, &device, &model, &error) != RT_OK)
        die("out of memory");
    const ew_micro_batch batch = {.sample_count = b->samples,
                                  .lookup_count = b->lookups.lookup_count,
                                  .row_count = b->rows,
                                  .labels = labels,
                                  .dense = dense,
                                  .lookup_rows = b->host_rows,
                                  .row_slots = b->host_slots,
                                  .slab = b->slab,
                                  .row_stride = b->lookups.row_stride,
                                  .scale = 1.0f / (float)b->samples};
    time_steps(b, &device, model, &batch, deep == RT_DEEP_ALL ? "all" : "dense");
    ew_model_destroy(model);
    rt_free(labels);
    rt_free(dense);
}

// ESD, Table 2: the time of a decision over m samples per worker, 8 workers.
static void measure_solvers(const uint32_t *sizes, size_t size_count)
{
    static const rt_solver_kind kinds[] = {RT_SOLVER_TRANSPORT, RT_SOLVER_HUNGARIAN_CUDA};
    printf("\n%-16s %6s %6s %12s\n", "solver", "m", "rows", "ms");
    for (size_t s = 0; s < size_count; s++) {
        uint32_t rows = 8 * sizes[s], capacity[8];
        int32_t *cost = rt_alloc((size_t)rows * 8, sizeof *cost);
        uint32_t *place = rt_alloc(rows, sizeof *place);
        rt_random random = {s + 1};
        if (!cost || !place)
            die("out of memory");
        for (uint32_t i = 0; i < rows; i++) {
            uint32_t home = rt_random_below(&random, 8);
            for (uint32_t j = 0; j < 8; j++) {
                capacity[j] = sizes[s];
                cost[i * 8 + j] = (int32_t)(26 - rt_random_below(&random, 6) -
                                            (j == home ? rt_random_below(&random, 10) : 0)) *
                                  (j < 4 ? 100 : 1000);
            }
        }
        const dp_problem problem = {rows, 8, 8, cost, capacity};
        int64_t least = -1;
        for (size_t k = 0; k < RT_COUNT_OF(kinds); k++) {
            const dp_solver_ops *ops = dp_solver_find(kinds[k]);
            void *state;
            if (!ops || ops->create(rows, 8, &state) != RT_OK)
                die("a solver is missing");
            ops->solve(state, &problem, place);
            uint64_t begin = rt_now_ns();
            ops->solve(state, &problem, place);
            double ms = (double)(rt_now_ns() - begin) * 1e-6;
            int64_t total = dp_placement_cost(&problem, place);
            least = least < 0 ? total : least;
            printf("%-16s %6u %6u %12.3f%s\n", ops->name, sizes[s], rows, ms,
                   total == least ? "" : "  NOT OPTIMAL");
            ops->destroy(state);
        }
        rt_free(cost);
        rt_free(place);
    }
}

static void measure_shape(bench *b, const uint32_t shape[3])
{
    setup(b, shape[0], shape[1], shape[2]);
    measure_kernels(b);
    measure_step(b, RT_DEEP_DENSE);
    measure_step(b, RT_DEEP_ALL);
    teardown(b);
}

// Samples, length of a row, ids of a field.
static const uint32_t quick_shape[] = {64, 16, 64}, quick_size[] = {16};
// The third has 26,000 rows, as a first batch has.
static const uint32_t shapes[][3] = {
    {1024, 16, 1024}, {1024, 512, 1024}, {1024, 512, 1000000}, {8192, 16, 8192}, {8192, 128, 8192}};
static const uint32_t sizes[] = {128, 256, 512, 1024}; // of the solvers

int main(int argc, char **argv)
{
    const bool is_quick = argc > 1 && strcmp(argv[1], "--quick") == 0;
    const bool is_look = argc > 1 && strcmp(argv[1], "--device") == 0;
    bench b = {.repeats = is_quick ? 1 : REPEATS};
    rt_error error = {0};
    if (argc > 2 || (argc > 1 && !is_quick && !is_look)) {
        fprintf(stderr, "usage: gpu_bench [--quick | --device]\n");
        return EXIT_FAILURE;
    }
    if (ew_device_open("cuda:0", &b.device, &error) != RT_OK) {
        fprintf(stderr, "no device: %s\n", error.text);
        return EXIT_FAILURE;
    }
    printf("%s\n", b.device.description);
    if (is_quick) {
        printf("quick: one small shape, one repeat; the times mean nothing\n");
        measure_shape(&b, quick_shape);
    }
    for (size_t i = 0; i < RT_COUNT_OF(shapes) && !is_quick && !is_look; i++)
        measure_shape(&b, shapes[i]);
    ew_device_close(&b.device);
    if (is_quick)
        measure_solvers(quick_size, RT_COUNT_OF(quick_size));
    else if (!is_look)
        measure_solvers(sizes, RT_COUNT_OF(sizes));
    return EXIT_SUCCESS;
}
