// The CPU device: its kernels give the same bits on every instruction set; opening, and errors.
#include <dlfcn.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/test.h"

#include "edge_worker/device/ew_blas.h"
#include "edge_worker/device/ew_cpu_kernels.h"
#include "runtime/rt_hash.h"
#include "runtime/rt_thread.h"

#define SAMPLES 37u
#define FIELDS 3u
#define ROWS 30u
#define FLOATS_MAX 20000u

typedef struct {
    float out[22][FLOATS_MAX];
} results;

static void fill(float *values, uint32_t count, uint64_t seed)
{
    rt_random random = {seed};
    for (uint32_t i = 0; i < count; i++)
        values[i] = (float)(2 * rt_random_unit(&random) - 1);
}

static void run_layers(const ew_cpu_kernels *kernels, uint32_t columns, results *r)
{
    static float bias[FLOATS_MAX];
    fill(bias, columns, 5);
    for (uint32_t i = 0; i < 10; i++)
        fill(r->out[i], FLOATS_MAX, i);
    kernels->outer(SAMPLES, columns, r->out[0], 2, bias, 0.5f, r->out[1], columns + 3);
    kernels->activate(EW_RELU, SAMPLES, columns, bias, r->out[2], columns + 1);
    kernels->activate(EW_IDENTITY, SAMPLES, columns, bias, r->out[3], columns);
    kernels->activate_back(EW_RELU, SAMPLES, columns, r->out[2], r->out[4], columns + 1, r->out[5]);
}

static void run_lookups(const ew_cpu_kernels *kernels, uint32_t dim, bool bags, results *r)
{
    static float slab[FLOATS_MAX], weights[FLOATS_MAX];
    static uint32_t rows[4 * SAMPLES * FIELDS], offsets[SAMPLES * FIELDS + 1], slots[ROWS];
    static uint32_t starts[ROWS + 1], samples[4 * SAMPLES * FIELDS], fields[ROWS];
    static float scalars[ROWS];
    rt_random random = {dim};
    uint32_t count = 0, stride = FIELDS * dim + 4;
    fill(slab, FLOATS_MAX, 1);
    fill(weights, FLOATS_MAX, 2);
    for (uint32_t bag = 0; bag < SAMPLES * FIELDS; bag++) {
        for (uint32_t size = bags ? rt_random_below(&random, 4) : 1; size > 0; size--)
            rows[count++] = rt_random_below(&random, ROWS / FIELDS) * FIELDS + bag % FIELDS;
        offsets[bag + 1] = count;
    }
    for (uint32_t i = 0; i < ROWS; i++) {
        slots[i] = (i * 7 + 3) % ROWS;
        fields[i] = i % FIELDS;
        starts[i + 1] = starts[i];
        for (uint32_t bag = 0; bag < SAMPLES * FIELDS; bag++)
            for (uint32_t l = offsets[bag]; l < offsets[bag + 1]; l++)
                if (rows[l] == i)
                    samples[starts[i + 1]++] = bag / FIELDS;
    }
    ew_lookups lookups = {SAMPLES,      FIELDS, count,
                          ROWS,         dim,    dim + 5,
                          RT_POOL_MEAN, rows,   bags ? offsets : NULL,
                          slots,        slab,   starts,
                          samples,      fields, scalars};
    kernels->pool(&lookups, weights, 2, r->out[6], stride);
    kernels->wide_rows(&lookups, weights);
    kernels->wide_samples(&lookups, r->out[7]);
    kernels->wide_back_rows(&lookups, weights);
    kernels->wide_back_fields(&lookups, 0, lookups.field_count, r->out[8]);
    kernels->rows_back(&lookups, slab, stride, weights, r->out[9]);
}

static void run_products(const ew_cpu_kernels *kernels, uint32_t dim, results *r)
{
    static float x[FLOATS_MAX];
    const uint32_t rows = dim % 7 + 1, columns = dim % 11 + 1;
    fill(x, FLOATS_MAX, dim);
    for (uint32_t i = 20; i < 22; i++) {
        fill(r->out[i], FLOATS_MAX, i);
        kernels->product(i == 20, rows, columns, dim, x, dim + 1, x + 3, dim + columns, 0.5f,
                         r->out[i], columns + 2);
    }
}

static void run_interactions(const ew_cpu_kernels *kernels, uint32_t dim, results *r)
{
    static float x[FLOATS_MAX];
    const uint32_t vectors = 5, samples = 11, stride = vectors * dim + 1, out = dim + 12;
    fill(x, FLOATS_MAX, dim);
    for (uint32_t i = 10; i < 20; i++)
        fill(r->out[i], FLOATS_MAX, i);
    kernels->fm(samples, vectors, dim, x, stride, r->out[10], r->out[11]);
    kernels->fm_back(samples, vectors, dim, x, stride, r->out[10], x, r->out[12]);
    kernels->cross_matrix(samples, stride, x, r->out[10], x, r->out[13], r->out[14], stride);
    kernels->cross_matrix_back(samples, stride, true, false, x, r->out[13], r->out[14], r->out[15],
                               r->out[16], r->out[17], stride);
    kernels->dots(samples, vectors, dim, x, stride, r->out[18], out);
    kernels->dots_back(samples, vectors, dim, x, stride, r->out[18], out, r->out[19]);
    kernels->gmf(samples, dim, x, x + dim, stride, x, r->out[11]);
    kernels->gmf_back(samples, dim, x, x + dim, stride, x, r->out[11], r->out[12], r->out[12] + dim,
                      r->out[17]);
}

static void kernels_agree_to_the_bit(void **state)
{
    (void)state;
    const ew_cpu_kernels *others[2] = {0};
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2"))
        others[0] = &ew_cpu_kernels_avx2;
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
        others[1] = &ew_cpu_kernels_avx512;
#endif
    results *base = calloc(1, sizeof *base), *other = calloc(1, sizeof *other);
    uint32_t compared = 0;
    for (uint32_t dim = 1; dim < 120; dim += dim < 40 ? 1 : 13)
        for (size_t i = 0; i < RT_COUNT_OF(others); i++) {
            if (!others[i])
                continue;
            run_layers(&ew_cpu_kernels_base, 2 * dim, base);
            run_layers(others[i], 2 * dim, other);
            assert_memory_equal(base, other, sizeof *base);
            run_lookups(&ew_cpu_kernels_base, dim, i % 2 == 0, base);
            run_lookups(others[i], dim, i % 2 == 0, other);
            run_interactions(&ew_cpu_kernels_base, dim, base);
            run_interactions(others[i], dim, other);
            run_products(&ew_cpu_kernels_base, dim, base);
            run_products(others[i], dim, other);
            assert_memory_equal(base, other, sizeof *base);
            compared++;
        }
    free(base);
    free(other);
    if (compared == 0)
        test_skip("this CPU has no other instruction set than the portable kernels use");
}

// Rows of a product by themselves, some of them and all of them, on one thread and on several.
static void rows_of_a_product_stand_alone(void **state)
{
    static const uint32_t shapes[][2] = {{1, 1},   {1, 40},   {5, 3},   {16, 16},
                                         {33, 47}, {64, 128}, {130, 61}};
    enum { COUNT = 70, MOST = 130 * 130 };
    static float a[COUNT * 131], b[MOST], all[COUNT * 133], some[COUNT * 133];
    ew_device devices[2];
    rt_error error;
    (void)state;
    for (uint32_t t = 0; t < 2; t++) {
        const ew_device_wish wish = {.name = "cpu", .threads = 1 + 2 * t, .is_steady = true};
        if (ew_device_open_as(&wish, &devices[t], &error))
            fail_msg("%s", error.text);
    }
    fill(a, RT_COUNT_OF(a), 1);
    fill(b, RT_COUNT_OF(b), 2);
    for (uint32_t i = 0; i < RT_COUNT_OF(shapes) * 4; i++) {
        const uint32_t n = shapes[i / 4][0], k = shapes[i / 4][1];
        const bool transposed = i & 1;
        const float beta = i & 2 ? 0.5f : 0;
        const uint32_t b_stride = transposed ? k : n, a_stride = k + 1, c_stride = n + 3;
        fill(all, RT_COUNT_OF(all), 3);
        fill(some, RT_COUNT_OF(some), 3);
        devices[0].layers->gemm(devices[0].state, false, transposed, COUNT, n, k, a, a_stride, b,
                                b_stride, beta, all, c_stride);
        for (uint32_t from = 0, count = 1; from < COUNT; from += count, count = count % 9 + 1) {
            if (count > COUNT - from)
                count = COUNT - from;
            devices[1].layers->gemm(devices[1].state, false, transposed, count, n, k,
                                    a + from * a_stride, a_stride, b, b_stride, beta,
                                    some + from * c_stride, c_stride);
        }
        assert_memory_equal(all, some, COUNT * c_stride * sizeof *all);
        for (uint32_t r = 0; r < COUNT; r += 13) {
            double sum = 0, size = 1;
            for (uint32_t j = 0; j < k; j++) {
                const float factor = b[transposed ? (n - 1) * b_stride + j : j * b_stride + n - 1];
                sum += (double)a[r * a_stride + j] * (double)factor;
                size += fabs((double)a[r * a_stride + j] * (double)factor);
            }
            fill(some, RT_COUNT_OF(some), 3);
            sum += (double)beta * (double)some[r * c_stride + n - 1];
            test_close((double)all[r * c_stride + n - 1], sum, 1e-6 * size, 1, "a sum");
        }
    }
    ew_device_close(&devices[0]);
    ew_device_close(&devices[1]);
}

static void unknown_device_is_named(void **state)
{
    (void)state;
    ew_device device;
    rt_error error;
    assert_int_equal(ew_device_open("tpu", &device, &error), RT_UNSUPPORTED);
    assert_non_null(strstr(error.text, "tpu"));
}

static void automatic_device_says_what_it_is(void **state)
{
    (void)state;
    ew_device device;
    rt_error error;
    assert_int_equal(ew_device_open("auto", &device, &error), RT_OK);
    assert_true(strlen(device.description) > 10);
    ew_device_close(&device);
    assert_null(device.state);
}

// The settings are for the library, not for the programs that this one starts.
static void loading_leaves_the_environment_alone(void **state)
{
    (void)state;
    ew_blas blas;
    rt_error error;
    unsetenv("OPENBLAS_CORETYPE");
    setenv("OPENBLAS_NUM_THREADS", "3", 1);
    assert_int_equal(ew_blas_open(&blas, &error), RT_OK);
    assert_null(getenv("OPENBLAS_CORETYPE"));
    assert_string_equal(getenv("OPENBLAS_NUM_THREADS"), "3");
    ew_blas_close(&blas);
}

// Threads of the library that is loaded.
static int threads_of_openblas(void)
{
    int (*count)(void);
    ew_blas blas;
    rt_error error;
    assert_int_equal(ew_blas_open(&blas, &error), RT_OK);
    void *library = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_NOLOAD);
    if (!library)
        test_skip("no OpenBLAS here, but %s", blas.description);
    void *symbol = dlsym(library, "openblas_get_num_threads");
    assert_non_null(symbol);
    memcpy(&count, &symbol, sizeof count);
    const int threads = count();
    dlclose(library);
    ew_blas_close(&blas);
    return threads;
}

// Threads are Lanyard's, which cuts products so that these change no bit.
static void openblas_has_one_thread(void **state)
{
    (void)state;
    unsetenv("OPENBLAS_NUM_THREADS");
    assert_int_equal(threads_of_openblas(), 1);
    assert_null(getenv("OPENBLAS_NUM_THREADS"));
    if (rt_thread_cores() == 1)
        test_skip("one core: the library would have one thread anyway");
}

static void openblas_has_the_users_threads(void **state)
{
    (void)state;
    if (rt_thread_cores() == 1)
        test_skip("the library takes no more threads than the one core that there is");
    setenv("OPENBLAS_NUM_THREADS", "2", 1);
    assert_int_equal(threads_of_openblas(), 2);
}

static void openblas_gets_the_kernels_that_fit(void **state)
{
    (void)state;
    ew_blas blas;
    rt_error error;
    unsetenv("OPENBLAS_CORETYPE");
    assert_int_equal(ew_blas_open(&blas, &error), RT_OK);
    if (!strstr(blas.description, "OpenBLAS"))
        test_skip("no OpenBLAS here, but %s", blas.description);
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        assert_true(strstr(blas.description, "Haswell") || strstr(blas.description, "SkylakeX") ||
                    strstr(blas.description, "Zen"));
#endif
    ew_blas_close(&blas);
}

static void users_core_type_wins(void **state)
{
    (void)state;
    ew_blas blas;
    rt_error error;
#if defined(__aarch64__)
    const char *const core = "CORTEXA53", *const said = "cortexa53";
#else
    const char *const core = "Nehalem", *const said = core;
#endif
    setenv("OPENBLAS_CORETYPE", core, 1);
    assert_int_equal(ew_blas_open(&blas, &error), RT_OK);
    assert_string_equal(getenv("OPENBLAS_CORETYPE"), core);
    if (!strstr(blas.description, "OpenBLAS"))
        test_skip("no OpenBLAS here, but %s", blas.description);
    assert_non_null(strstr(blas.description, said));
    ew_blas_close(&blas);
}

TEST_MAIN(TEST(kernels_agree_to_the_bit), TEST(rows_of_a_product_stand_alone),
          TEST(unknown_device_is_named), TEST(automatic_device_says_what_it_is),
          TEST(loading_leaves_the_environment_alone), TEST(openblas_has_one_thread),
          TEST(openblas_has_the_users_threads), TEST(openblas_gets_the_kernels_that_fit),
          TEST(users_core_type_wins))
