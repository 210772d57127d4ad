#include "tests/bench/device/ew_bench.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "runtime/config/rt_models.h"
#include "runtime/config/rt_optimizers.h"
#include "runtime/rt_hash.h"

#define SECONDS 0.1 // per measurement, about
#define REPEATS_MIN 3u
#define REPEATS_MAX 500u
// Ids of a field, by turns: the rows of one stay in the CPU's caches, those of the other do not.
#define FEW_IDS 100u
#define MANY_IDS 100000u
#define COPY_FLOATS ((size_t)16 << 20)
#define GEMM_SIZE 1024u
#define PARAMETERS_MAX (64u << 20) // larger models are left out

// ---- time ------------------------------------------------------------------------------------

// A device of its own computes beside this thread, whose processor time says nothing of it then.
static uint64_t now_ns(const ew_bench_case *one)
{
    struct timespec now;
    if (!one->is_unified)
        return rt_now_ns();
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

static int compare_times(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

// The median: a run that something else disturbed does not count. The first run, which fills caches
// and may compile kernels, is not measured.
double ew_bench_measure(const ew_bench_case *one, void (*run)(void *context), void *context)
{
    uint64_t times[REPEATS_MAX], passed = 0;
    uint32_t count = 0;
    double most_ns = SECONDS * 1e9;
    if (one->bench->quick)
        most_ns *= 0.01;
    rt_error error;
    run(context);
    (void)one->device.ops->finish(one->device.state, &error);
    while (count < REPEATS_MIN || ((double)passed < most_ns && count < REPEATS_MAX)) {
        uint64_t begin = now_ns(one);
        run(context);
        (void)one->device.ops->finish(one->device.state, &error);
        times[count] = now_ns(one) - begin;
        passed += times[count++];
    }
    qsort(times, count, sizeof *times, compare_times);
    return (double)times[count / 2] * 1e-9;
}

void ew_bench_row(const ew_bench_case *one, const char *what, double seconds,
                  const ew_counts *counts)
{
    rt_report *report = one->bench->report;
    const double bytes = (double)(counts->bytes + counts->gemm_bytes);
    const double flops = (double)(counts->flops + counts->gemm_flops);
    // Matrix products are bound by their operations, all else by its bytes.
    const double least = (double)counts->bytes / one->copy_bytes_per_s +
                         (double)counts->gemm_flops / one->gemm_flops_per_s;
    rt_report_number(report, "batch", one->sample_count, 0);
    rt_report_number(report, "dim", one->dim, 0);
    rt_report_text(report, "operation", what);
    rt_report_number(report, "us", seconds * 1e6, 1);
    rt_report_number(report, "MB", bytes * 1e-6, 3);
    rt_report_number(report, "Mflop", flops * 1e-6, 3);
    rt_report_number(report, "GB/s", bytes / seconds * 1e-9, 1);
    rt_report_number(report, "Gflop/s", flops / seconds * 1e-9, 1);
    rt_report_number(report, "of peak %", 100 * least / seconds, 0);
}

// ---- what the device can do ------------------------------------------------------------------

typedef struct {
    const ew_bench_case *one;
    float *a, *b, *c;
} large;

static void run_copy(void *context)
{
    const large *l = context;
    const ew_device *device = &l->one->device;
    device->ops->copy(device->state, EW_COPY_WITHIN, l->b, l->a, COPY_FLOATS * sizeof(float));
}

static void run_product(void *context)
{
    const large *l = context;
    const ew_device *device = &l->one->device;
    device->layers->gemm(device->state, false, true, GEMM_SIZE, GEMM_SIZE, GEMM_SIZE, l->a,
                         GEMM_SIZE, l->b, GEMM_SIZE, 0, l->c, GEMM_SIZE);
}

static rt_status measure_peaks(ew_bench_case *one, rt_error *error)
{
    const ew_device *device = &one->device;
    large l = {.one = one};
    float **blocks[] = {&l.a, &l.b, &l.c};
    const double n = GEMM_SIZE;
    rt_status status = RT_OK;
    for (size_t i = 0; i < RT_COUNT_OF(blocks); i++)
        *blocks[i] = device->ops->alloc(device->state, COPY_FLOATS);
    if (l.a && l.b && l.c) {
        one->copy_bytes_per_s =
            2.0 * COPY_FLOATS * sizeof(float) / ew_bench_measure(one, run_copy, &l);
        one->gemm_flops_per_s = 2 * n * n * n / ew_bench_measure(one, run_product, &l);
    } else {
        status = rt_fail(error, RT_NO_MEMORY, "out of memory");
    }
    for (size_t i = 0; i < RT_COUNT_OF(blocks); i++)
        device->ops->free(device->state, *blocks[i]); // also NULL
    return status;
}

// ---- samples ---------------------------------------------------------------------------------

static rt_status fill_host(ew_bench_case *one, uint32_t *row_count_p)
{
    const uint32_t samples = one->sample_count, fields = EW_BENCH_FIELDS;
    uint32_t *row_of_id = rt_alloc(fields * MANY_IDS, sizeof *row_of_id), row_count = 0;
    rt_random random = {1};
    one->host_rows = rt_alloc(samples * fields, sizeof(uint32_t));
    one->host_slots = rt_alloc(samples * fields, sizeof(uint32_t));
    one->host_labels = rt_alloc(samples, sizeof(float));
    one->host_dense = rt_alloc(samples * EW_BENCH_DENSE, sizeof(float));
    if (!row_of_id || !one->host_rows || !one->host_slots || !one->host_labels ||
        !one->host_dense) {
        rt_free(row_of_id);
        return RT_NO_MEMORY;
    }
    for (uint32_t i = 0; i < samples; i++) {
        one->host_labels[i] = (float)(rt_random_below(&random, 4) == 0);
        for (uint32_t k = 0; k < EW_BENCH_DENSE; k++)
            one->host_dense[i * EW_BENCH_DENSE + k] = (float)rt_random_unit(&random);
        for (uint32_t f = 0; f < fields; f++) {
            uint32_t id = f * MANY_IDS + rt_random_below(&random, f % 2 ? FEW_IDS : MANY_IDS);
            if (!row_of_id[id]) {
                one->host_slots[row_count] =
                    (uint32_t)((uint64_t)row_count * 7919 % one->slot_count);
                row_of_id[id] = ++row_count;
            }
            one->host_rows[i * fields + f] = row_of_id[id] - 1;
        }
    }
    rt_free(row_of_id);
    *row_count_p = row_count;
    return RT_OK;
}

// host: count floats or numbers of four bytes; NULL: room for as many, whatever is in it.
static void *upload(const ew_device *device, const void *host, size_t count)
{
    void *block = device->ops->alloc(device->state, count);
    if (block && host)
        device->ops->copy(device->state, EW_COPY_IN, block, host, count * sizeof(float));
    return block;
}

static rt_status open_case(ew_bench_case *one, uint32_t samples, uint32_t dim, rt_error *error)
{
    const ew_device *device = &one->device;
    const size_t lookups = (size_t)samples * EW_BENCH_FIELDS;
    ew_lookups *l = &one->lookups;
    one->sample_count = samples;
    one->dim = dim;
    one->slot_count = 30011; // a prime, so that slots of different rows differ
    *l = (ew_lookups){.sample_count = samples,
                      .field_count = EW_BENCH_FIELDS,
                      .lookup_count = (uint32_t)lookups,
                      .dim = dim,
                      .row_stride = 2 * dim};
    if (fill_host(one, &l->row_count))
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    l->lookup_rows = upload(device, one->host_rows, lookups);
    l->row_slots = upload(device, one->host_slots, lookups);
    l->row_starts = upload(device, NULL, lookups + 1);
    l->row_samples = upload(device, NULL, lookups);
    l->row_fields = upload(device, NULL, lookups);
    l->row_scalars = upload(device, NULL, lookups);
    l->slab = one->slab = upload(device, NULL, (size_t)one->slot_count * 2 * dim);
    one->labels = upload(device, one->host_labels, samples);
    one->dense = upload(device, one->host_dense, (size_t)samples * EW_BENCH_DENSE);
    if (!l->lookup_rows || !l->row_slots || !l->row_starts || !l->row_samples || !l->row_fields ||
        !l->row_scalars || !l->slab || !one->labels || !one->dense)
        return rt_fail(error, RT_NO_MEMORY, "out of memory on the device");
    return RT_OK;
}

static void close_case(ew_bench_case *one)
{
    const ew_device *device = &one->device;
    const ew_lookups *l = &one->lookups;
    void *host[] = {one->host_rows, one->host_slots, one->host_labels, one->host_dense};
    void *const blocks[] = {(void *)(uintptr_t)l->lookup_rows,
                            (void *)(uintptr_t)l->row_slots,
                            l->row_starts,
                            l->row_samples,
                            l->row_fields,
                            l->row_scalars,
                            one->slab,
                            one->labels,
                            one->dense};
    for (size_t i = 0; i < RT_COUNT_OF(host); i++)
        rt_free(host[i]);
    for (size_t i = 0; i < RT_COUNT_OF(blocks); i++)
        device->ops->free(device->state, blocks[i]);
    one->lookups = (ew_lookups){0};
    one->slab = one->labels = one->dense = NULL;
    one->host_rows = one->host_slots = NULL;
    one->host_labels = one->host_dense = NULL;
}

// ---- models ----------------------------------------------------------------------------------

static const struct {
    const char *name;
    rt_model_kind kind;
    rt_deep_input deep_input;
    rt_cross cross;
} models[] = {
    {"wdl step, deep_input dense", RT_MODEL_WDL, RT_DEEP_DENSE, RT_CROSS_VECTOR},
    {"wdl step, deep_input all", RT_MODEL_WDL, RT_DEEP_ALL, RT_CROSS_VECTOR},
    {"dfm step", RT_MODEL_DFM, RT_DEEP_ALL, RT_CROSS_VECTOR},
    {"dcn step, cross vector", RT_MODEL_DCN, RT_DEEP_ALL, RT_CROSS_VECTOR},
    {"dcn step, cross matrix", RT_MODEL_DCN, RT_DEEP_ALL, RT_CROSS_MATRIX},
    {"dlrm step", RT_MODEL_DLRM, RT_DEEP_ALL, RT_CROSS_VECTOR},
    {"ncf step", RT_MODEL_NCF, RT_DEEP_ALL, RT_CROSS_VECTOR},
};

static const rt_optimizer_config adagrad = {.kind = RT_OPTIMIZER_ADAGRAD,
                                            .learning_rate = 0.02f,
                                            .epsilon = 1e-8f,
                                            .initial_accumulator = 0.1f};

typedef struct {
    const ew_bench_case *one;
    ew_model *model;
    ew_micro_batch batch;
    const uint32_t *slots; // of its rows, on the device
} step_run;

static void run_step(void *context)
{
    step_run *s = context;
    const ew_device *device = &s->one->device;
    ew_step_result result;
    rt_error error;
    if (ew_model_step(s->model, &s->batch, NULL, NULL, &result, &error))
        return;
    ew_model_dense_step(s->model, 1);
    device->ops->rows_step(device->state, &adagrad, s->one->dim, 1, s->one->slab,
                           s->batch.row_stride, s->slots, NULL, s->batch.row_count,
                           result.row_gradients);
}

// Rows of two fields by turns, each once: users in order, items spread among them.
static void number_pairs(uint32_t samples, uint32_t *rows)
{
    for (uint32_t i = 0; i < samples; i++) {
        rows[2 * i] = 2 * i;
        rows[2 * i + 1] = 7 * i % samples * 2 + 1;
    }
}

// The same samples for all; ncf sees the first two fields.
static rt_status create_step(const ew_bench_case *one, size_t index, uint32_t *rows, step_run *s,
                             ew_model_config *config, rt_error *error)
{
    const uint32_t fields = models[index].kind == RT_MODEL_NCF ? 2 : EW_BENCH_FIELDS;
    const uint32_t samples = one->sample_count;
    *config = (ew_model_config){.model = {.kind = models[index].kind,
                                          .embedding_dim = one->dim,
                                          .deep_input = models[index].deep_input,
                                          .cross = models[index].cross,
                                          .cross_layer_count = 3,
                                          .mlp_layer_count = 3,
                                          .mlp = {EW_BENCH_WIDTH, EW_BENCH_WIDTH, EW_BENCH_WIDTH},
                                          .mlp_bottom_layer_count = 2,
                                          .mlp_bottom = {EW_BENCH_WIDTH, 64}},
                                .optimizer = adagrad,
                                .seed = 1,
                                .dense_count = fields == 2 ? 0 : EW_BENCH_DENSE,
                                .field_count = fields,
                                .sample_count_max = samples,
                                .lookup_count_max = samples * fields,
                                .row_count_max = samples * fields};
    for (uint32_t i = 0; i < samples; i++)
        for (uint32_t f = 0; f < fields; f++)
            rows[i * fields + f] = one->host_rows[i * EW_BENCH_FIELDS + f];
    if (fields == 2)
        number_pairs(samples, rows);
    s->one = one;
    s->slots = one->lookups.row_slots;
    s->batch = (ew_micro_batch){.sample_count = samples,
                                .lookup_count = samples * fields,
                                .row_count = fields == 2 ? 2 * samples : one->lookups.row_count,
                                .labels = one->host_labels,
                                .dense = one->host_dense,
                                .lookup_rows = rows,
                                .row_slots = one->host_slots,
                                .slab = one->slab,
                                .row_stride = one->lookups.row_stride,
                                .scale = 1 / (float)samples};
    return ew_model_create(config, &one->device, &s->model, error);
}

// The same step on a device that counts, and carries out nothing but the matrix products: same
// library, same shapes, same order.
static rt_status measure_products(const step_run *s, const ew_model_config *config,
                                  ew_counts *counts, double *seconds_p, rt_error *error)
{
    ew_count count;
    ew_bench_case counting = *s->one;
    step_run same = *s;
    ew_count_open(&count, &s->one->device, &counting.device);
    same.one = &counting;
    rt_status status = ew_model_create(config, &counting.device, &same.model, error);
    if (status)
        return status;
    count.counts = (ew_counts){0};
    run_step(&same);
    *counts = count.counts;
    *seconds_p = ew_bench_measure(&counting, run_step, &same);
    ew_model_destroy(same.model);
    return RT_OK;
}

// The ratio: of what a step takes to what its products and its bytes would take, one after the
// other. What is above 1 is launches, waits, and arithmetic that no product does.
static void report_step(const ew_bench_case *one, const char *name, double seconds,
                        double products_s, const ew_counts *counts)
{
    rt_report *report = one->bench->report;
    const double bytes_s = (double)counts->bytes / one->copy_bytes_per_s;
    ew_bench_row(one, name, seconds, counts);
    rt_report_number(report, "samples/s", one->sample_count / seconds, 0);
    rt_report_number(report, "gemm us", products_s * 1e6, 1);
    rt_report_number(report, "bytes us", bytes_s * 1e6, 1);
    rt_report_number(report, "ratio", seconds / (products_s + bytes_s), 2);
    rt_report_end_row(report);
}

static bool is_too_large(size_t index, uint32_t dim)
{
    const uint64_t inputs = (uint64_t)EW_BENCH_FIELDS * dim + EW_BENCH_DENSE;
    return models[index].cross == RT_CROSS_MATRIX && 3 * inputs * inputs > PARAMETERS_MAX;
}

// Of a model that is there.
static rt_status measure_step(const ew_bench_case *one, size_t index, step_run *s,
                              const ew_model_config *config, rt_error *error)
{
    ew_counts counts = {0};
    double products_s = 0;
    rt_status status = ew_model_check(s->model, &s->batch, one->slot_count, error);
    if (status)
        return status;
    status = measure_products(s, config, &counts, &products_s, error);
    if (status)
        return status;
    const double seconds = ew_bench_measure(one, run_step, s);
    report_step(one, models[index].name, seconds, products_s, &counts);
    return RT_OK;
}

// rows: room for the look-ups of a batch.
static rt_status bench_model(const ew_bench_case *one, size_t index, uint32_t *rows,
                             rt_error *error)
{
    step_run s = {0};
    ew_model_config config;
    rt_status status = create_step(one, index, rows, &s, &config, error);
    if (status)
        return status;
    status = measure_step(one, index, &s, &config, error);
    ew_model_destroy(s.model);
    return status;
}

static rt_status bench_each(const ew_bench_case *one, uint32_t *rows, rt_error *error)
{
    for (size_t i = 0; i < RT_COUNT_OF(models); i++) {
        if (is_too_large(i, one->dim))
            continue;
        const rt_status status = bench_model(one, i, rows, error);
        if (status)
            return status;
    }
    return RT_OK;
}

static rt_status bench_models(const ew_bench_case *one, rt_error *error)
{
    uint32_t *rows = rt_alloc((size_t)one->sample_count * EW_BENCH_FIELDS, sizeof *rows);
    if (!rows)
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    const rt_status status = bench_each(one, rows, error);
    rt_free(rows);
    return status;
}

// ---- the sections ----------------------------------------------------------------------------

static void report_device(const ew_bench_case *one)
{
    rt_report *report = one->bench->report;
    rt_report_begin(report, "device", "What the device can do");
    rt_report_number(report, "copy GB/s", one->copy_bytes_per_s * 1e-9, 1);
    rt_report_number(report, "gemm Gflop/s", one->gemm_flops_per_s * 1e-9, 1);
    rt_report_end_row(report);
    rt_report_note(report, "%s", one->device.description);
    rt_report_note(report, "copy: %zu MB, read + write; gemm: %u x %u x %u, float32",
                   COPY_FLOATS * sizeof(float) >> 20, GEMM_SIZE, GEMM_SIZE, GEMM_SIZE);
    rt_report_end(report);
}

typedef rt_status bench_case(const ew_bench_case *one, rt_error *error);

static rt_status run_case(ew_bench_case *one, uint32_t samples, uint32_t dim, bench_case *run,
                          rt_error *error)
{
    rt_status status = open_case(one, samples, dim, error);
    if (!status)
        status = run(one, error);
    close_case(one);
    return status;
}

static rt_status run_cases(ew_bench_case *one, bench_case *run, rt_error *error)
{
    static const struct {
        uint32_t samples, dim;
    } shapes[] = {{128, 16}, {128, 64}, {128, 512}, {1024, 16}, {1024, 64}, {1024, 512}};
    const size_t count = one->bench->quick ? 1 : RT_COUNT_OF(shapes);
    for (size_t i = 0; i < count; i++) {
        const rt_status status = run_case(one, shapes[i].samples, shapes[i].dim, run, error);
        if (status)
            return status;
    }
    return RT_OK;
}

static rt_status bench_shapes(ew_bench_case *one, const char *name, const char *title,
                              bench_case *run, rt_error *error)
{
    rt_report *report = one->bench->report;
    rt_report_begin(report, name, title);
    const rt_status status = run_cases(one, run, error);
    rt_report_note(report, "of peak: operand bytes / copy bandwidth, plus operations of matrix "
                           "products / the rate of a large one, over the time taken");
    if (run == bench_models)
        rt_report_note(report,
                       "ratio: the time of a step over that of its matrix products alone plus "
                       "that of all other bytes at copy bandwidth");
    rt_report_note(report, "26 fields, 13 dense features, one key each; MLP 256-256-256; Adagrad");
    rt_report_end(report);
    return status;
}

static rt_status bench_opened(ew_bench_case *one, rt_error *error)
{
    rt_status status = measure_peaks(one, error);
    if (status)
        return status;
    report_device(one);
    status =
        bench_shapes(one, "operations", "Operations of the device", ew_bench_operations, error);
    if (status)
        return status;
    return bench_shapes(one, "models", "Training steps: pass, dense and row optimizers",
                        bench_models, error);
}

rt_status ew_bench_device(const ew_bench *bench, rt_error *error)
{
    ew_bench_case one = {.bench = bench};
    rt_status status = ew_device_open(bench->device, &one.device, error);
    if (status)
        return status;
    one.is_unified = one.device.unified;
    status = bench_opened(&one, error);
    ew_device_close(&one.device);
    return status;
}
