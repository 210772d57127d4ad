// Opening the CUDA plug-in: it loads, or the reason is named. The device behind it: failures, and
// the second thread.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "dispatch/solvers/dp_solvers.h"
#include "runtime/config/rt_optimizers.h"
#include "tests/support/devices.h"
#include "tests/support/test.h"

#include "dispatch/solvers/dp_cuda.h"
#include "edge_worker/device/ew_cuda.h"
#include "runtime/rt_cuda.h"

#define REAL_PLUGIN "build/liblanyard_cuda.so"

static void expect_in(const char *text, const char *part)
{
    if (!strstr(text, part))
        fail_msg("expected \"%s\" in: %s", part, text);
}

static ew_device open_device(void)
{
    ew_device device;
    rt_error error;
    if (ew_cuda_open(test_plugin_path(), &(ew_device_wish){.name = "cuda:0"}, &device, &error) !=
        RT_OK)
        fail_msg("%s", error.text);
    return device;
}

static void expect_no_device(const char *name, const char *part)
{
    ew_device device = {0};
    rt_error error = {0};
    assert_int_equal(
        ew_cuda_open(test_plugin_path(), &(ew_device_wish){.name = name}, &device, &error),
        RT_UNSUPPORTED);
    expect_in(error.text, part);
    assert_null(device.ops);
}

// Workers of one machine spread over its GPUs, and the line in the log says so.
static void workers_share_devices(void **state)
{
    static const struct {
        int devices;
        ew_device_wish wish;
        const char *begin, *end;
    } cases[] = {
        {3, {"cuda", .rank = 0}, "cuda:0: ", "; for worker 0, of 3 GPUs here"},
        {3, {"cuda", .rank = 2}, "cuda:2: ", "; for worker 2, of 3 GPUs here"},
        {3, {"cuda", .rank = 7}, "cuda:1: ", "; for worker 7, of 3 GPUs here"},
        {3, {"cuda:2", .rank = 7}, "cuda:2: ", NULL},
        {1, {"cuda", .rank = 5}, "cuda:0: ", NULL},
    };
    void (*device_count)(int);
    (void)state;
    test_plugin_function("cuda_cpu_device_count", &device_count);
    for (size_t i = 0; i < RT_COUNT_OF(cases); i++) {
        ew_device device;
        rt_error error = {0};
        device_count(cases[i].devices);
        if (ew_cuda_open(test_plugin_path(), &cases[i].wish, &device, &error))
            fail_msg("%s", error.text);
        assert_true(strncmp(device.description, cases[i].begin, strlen(cases[i].begin)) == 0);
        if (cases[i].end)
            expect_in(device.description, cases[i].end);
        else
            assert_null(strstr(device.description, "worker"));
        ew_device_close(&device);
    }
    device_count(0);
    expect_no_device("cuda", "no NVIDIA device");
}

static void missing_things_are_named(void **state)
{
    void (*device_count)(int);
    const rt_cuda_plugin *plugin = NULL;
    rt_error error;
    (void)state;
    test_plugin_function("cuda_cpu_device_count", &device_count);
    device_count(-1);
    expect_no_device("cuda:0", "driver is missing or too old");
    device_count(0);
    expect_no_device("cuda:0", "no NVIDIA device");
    device_count(1);
    expect_no_device("cuda:7", "only 1");
    expect_no_device("cuda:", "expected for example \"cuda:0\"");
    expect_no_device("cuda:x", "expected for example \"cuda:0\"");
    expect_no_device("cuda:0x", "expected for example \"cuda:0\"");
    assert_int_equal(rt_cuda_open("/nowhere/plug.so", &plugin, &error), RT_UNSUPPORTED);
    expect_in(error.text, "/nowhere/plug.so");
    assert_int_equal(rt_cuda_open("libm.so.6", &plugin, &error), RT_UNSUPPORTED);
    expect_in(error.text, "not a plug-in of Lanyard");
    assert_null(plugin);
}

// A GPU for which no kernel was compiled, or none at all: told before anything is trained.
static void a_device_without_code_is_named(void **state)
{
    void (*has_code)(bool);
    (void)state;
    test_plugin_function("cuda_cpu_has_code", &has_code);
    has_code(false);
    expect_no_device("cuda:0", "a CPU has compute capability 7.5, for which this build has no "
                               "code: make program GPUS=75");
    has_code(true);
    ew_device device = open_device();
    ew_device_close(&device);
}

// A copy of the plug-in in which some bytes are others.
static const char *forge_bytes(const void *from, const void *to, size_t size, size_t step);

// Of what the plug-in needs, the loader misses a library: it is named, and where it was looked for.
static void a_missing_library_is_named(void **state)
{
    const rt_cuda_plugin *plugin = NULL;
    rt_error error = {0};
    (void)state;
    const char *forged = forge_bytes("libm.so.6", "libq.so.6", strlen("libm.so.6"), 1);
    assert_int_equal(setenv("LD_LIBRARY_PATH", "/opt/some/lib", 1), 0);
    assert_int_equal(rt_cuda_open(forged, &plugin, &error), RT_UNSUPPORTED);
    expect_in(error.text, "libq.so.6: cannot open shared object file");
    expect_in(error.text, "\"/opt/some/lib\"");
}

static const char *forge_bytes(const void *old, const void *new, size_t part, size_t step)
{
    static char path[4096];
    char *bytes = malloc((size_t)64 << 20);
    FILE *from = fopen(test_plugin_path(), "rb");
    assert_non_null(bytes);
    assert_non_null(from);
    size_t size = fread(bytes, 1, (size_t)64 << 20, from), found = 0;
    fclose(from);
    for (size_t i = 0; i + part <= size; i += step)
        if (memcmp(bytes + i, old, part) == 0) {
            memcpy(bytes + i, new, part);
            found++;
        }
    assert_true(found > 0);
    snprintf(path, sizeof path, "%s/forged.so", test_directory());
    FILE *to = fopen(path, "wb");
    assert_non_null(to);
    assert_int_equal(fwrite(bytes, 1, size, to), size);
    assert_int_equal(fclose(to), 0);
    free(bytes);
    return path;
}

// Another checksum where its own stands.
static void another_version_is_refused(void **state)
{
    const rt_cuda_plugin *plugin = NULL;
    rt_error error;
    (void)state;
    assert_int_equal(rt_cuda_open(test_plugin_path(), &plugin, &error), RT_OK);
    const uint32_t abi = plugin->abi, other = abi ^ 1;
    plugin = NULL;
    const char *forged = forge_bytes(&abi, &other, sizeof abi, sizeof abi);
    assert_int_equal(rt_cuda_open(forged, &plugin, &error), RT_UNSUPPORTED);
    expect_in(error.text, "of another version");
    assert_null(plugin);
}

// The one that nvcc made, on a machine that has no driver.
static void real_plugin_loads_or_says_why(void **state)
{
    const rt_cuda_plugin *plugin;
    rt_error error = {0};
    char name[96];
    (void)state;
    if (access(REAL_PLUGIN, R_OK) != 0)
        test_skip("no " REAL_PLUGIN ": nvcc was not there");
    if (access("Makefile", R_OK) != 0 || rt_cuda_open(REAL_PLUGIN, &plugin, &error) != RT_OK) {
        if (strstr(error.text, "of another version"))
            test_skip("%s", error.text); // of a build before this one
        expect_in(error.text, "libcu");
        return;
    }
    assert_non_null(plugin->table("ew_device"));
    assert_non_null(plugin->table("dp_hungarian"));
    assert_null(plugin->table("nothing"));
    if (plugin->probe(0, name, sizeof name, &error) != RT_OK)
        assert_true(strstr(error.text, "NVIDIA") || strstr(error.text, "CUDA"));
}

static void automatic_choice_gives_its_reason(void **state)
{
    ew_device device;
    rt_error error;
    (void)state;
    assert_int_equal(ew_device_open("auto", &device, &error), RT_OK);
    if (strncmp(device.description, "cpu", 3) == 0)
        expect_in(device.description, "; not cuda: ");
    ew_device_close(&device);
}

static void missing_solver_falls_back(void **state)
{
    (void)state;
    for (int kind = 0; kind < RT_SOLVER_COUNT; kind++) {
        const dp_solver_ops *found = dp_solver_find((rt_solver_kind)kind);
        const dp_solver_ops *chosen = dp_solver_choose((rt_solver_kind)kind);
        assert_ptr_equal(chosen, found ? found : &dp_solver_transport);
    }
    assert_ptr_equal(dp_solver_choose(RT_SOLVER_GREEDY), &dp_solver_greedy);
}

// Also when the machine loses its device between choosing and creating: transport solves.
static void lost_solver_is_replaced(void **state)
{
    void *solver;
    int32_t cost[] = {1, 5, 7, 2, 4, 4};
    uint32_t capacity[] = {2, 1}, sinks[3], want[] = {0, 1, 0};
    const dp_problem problem = {3, 2, 2, cost, capacity};
    (void)state;
    assert_int_equal(dp_solver_hungarian_cuda.create(3, 2, &solver), RT_OK);
    dp_solver_hungarian_cuda.solve(solver, &problem, sinks);
    assert_memory_equal(sinks, want, sizeof want);
    dp_solver_hungarian_cuda.destroy(solver);
}

// Every call of the runtime fails in turn: the first failure is told by finish, once; what comes
// after does nothing.
static void failures_are_told_by_finish(void **state)
{
    void (*fail_after)(uint64_t);
    (void)state;
    test_plugin_function("cuda_cpu_fail_after", &fail_after);
    ew_device device = open_device();
    const ew_device_ops *ops = device.ops;
    float *block = ops->alloc(device.state, 1000), host[1000], back[1000];
    uint32_t failures = 0;
    for (uint32_t i = 0; i < 1000; i++)
        host[i] = (float)i;
    for (uint64_t calls = 1; calls <= 6; calls++) {
        rt_error error = {0};
        memset(back, 0, sizeof back);
        fail_after(calls);
        ops->copy(device.state, EW_COPY_IN, block, host, sizeof host);
        device.layers->activate(device.state, EW_RELU, 10, 10, block, block + 100, 10);
        ops->copy(device.state, EW_COPY_OUT, back, block, sizeof back);
        rt_status status = ops->finish(device.state, &error);
        fail_after(0);
        failures += status != RT_OK;
        if (status) {
            expect_in(error.text, "cuda:0: ");
            assert_true(back[999] == 0);
        } else {
            assert_true(back[999] == 999);
        }
        assert_int_equal(ops->finish(device.state, &error), RT_OK);
    }
    assert_true(failures > 0 && failures < 6);
    ops->free(device.state, block);
    ew_device_close(&device);
}

static void failing_to_open_leaves_nothing(void **state)
{
    void (*fail_after)(uint64_t);
    ew_device device = {0};
    rt_error error;
    rt_status status = RT_UNSUPPORTED;
    (void)state;
    test_plugin_function("cuda_cpu_fail_after", &fail_after);
    for (uint64_t calls = 1; status != RT_OK && calls < 50; calls++) {
        fail_after(calls);
        status =
            ew_cuda_open(test_plugin_path(), &(ew_device_wish){.name = "cuda:0"}, &device, &error);
        fail_after(0);
    }
    assert_int_equal(status, RT_OK);
    ew_device_close(&device);
}

typedef struct {
    ew_device *device;
    float *slab, *packed;
    uint32_t *slots;
} traffic;

// Slots from 8 on.
static void *move_rows(void *context)
{
    traffic *t = context;
    for (uint32_t turn = 1; turn <= 50; turn++) {
        for (uint32_t i = 0; i < 8; i++) {
            t->slots[i] = 8 + (i + turn) % 8;
            t->packed[i * 4] = (float)(turn * 100 + t->slots[i]);
        }
        t->device->ops->rows_put(t->device->state, t->slab, 4, 4, t->slots, 8, t->packed);
        t->packed[0] = -1;
        t->device->ops->rows_get(t->device->state, t->slab, 4, 4, t->slots, 8, t->packed);
        if (t->packed[0] != (float)(turn * 100 + t->slots[0]))
            return t;
    }
    return NULL;
}

static void rows_move_while_the_device_computes(void **state)
{
    pthread_t thread;
    void *wrong;
    (void)state;
    ew_device device = open_device();
    const ew_device_ops *ops = device.ops;
    const rt_optimizer_config sgd = {.kind = RT_OPTIMIZER_SGD, .learning_rate = 1};
    float *slab = ops->alloc(device.state, 16 * 4), *ones = ops->alloc(device.state, 8 * 4);
    uint32_t *slots = ops->alloc_shared(device.state, 8);
    float host[64];
    traffic t = {&device, slab, ops->alloc_shared(device.state, 8 * 4),
                 ops->alloc_shared(device.state, 8)};
    for (uint32_t i = 0; i < 32; i++)
        host[i] = 1;
    ops->copy(device.state, EW_COPY_IN, ones, host, 32 * sizeof *host);
    for (uint32_t i = 0; i < 8; i++)
        slots[i] = i;
    assert_int_equal(ops->finish(device.state, NULL), RT_OK);
    assert_int_equal(pthread_create(&thread, NULL, move_rows, &t), 0);
    for (uint32_t step = 1; step <= 50; step++)
        ops->rows_step(device.state, &sgd, 4, step, slab, 4, slots, NULL, 8, ones);
    assert_int_equal(pthread_join(thread, &wrong), 0);
    assert_null(wrong);
    ops->copy(device.state, EW_COPY_OUT, host, slab, 64 * sizeof *host);
    assert_int_equal(ops->finish(device.state, NULL), RT_OK);
    for (uint32_t i = 0; i < 32; i++)
        assert_true(host[i] == -50);
    for (uint32_t slot = 8; slot < 16; slot++)
        assert_true(host[slot * 4] == (float)(5000 + slot));
    ops->free_shared(device.state, slots);
    ops->free_shared(device.state, t.packed);
    ops->free_shared(device.state, t.slots);
    ops->free(device.state, slab);
    ops->free(device.state, ones);
    ew_device_close(&device);
}

// More than the staging buffers hold, in and out, and more copies than the list of them.
static void large_copies_arrive(void **state)
{
    enum { COUNT = 5 << 20, PIECES = 40 };
    (void)state;
    ew_device device = open_device();
    const ew_device_ops *ops = device.ops;
    float *block = ops->alloc(device.state, COUNT);
    float *host = malloc(COUNT * sizeof *host), *back = malloc(COUNT * sizeof *back);
    assert_true(block && host && back);
    for (uint32_t i = 0; i < COUNT; i++)
        host[i] = (float)(i % 65537);
    ops->copy(device.state, EW_COPY_IN, block, host, 100);
    ops->copy(device.state, EW_COPY_IN, block + 25, host + 25, COUNT * sizeof *host - 100);
    for (uint32_t p = 0; p < PIECES; p++)
        ops->copy(device.state, EW_COPY_OUT, back + p * 100, block + p * 100, 400);
    ops->copy(device.state, EW_COPY_OUT, back + PIECES * 100, block + PIECES * 100,
              (COUNT - PIECES * 100) * sizeof *back);
    assert_int_equal(ops->finish(device.state, NULL), RT_OK);
    assert_memory_equal(host, back, COUNT * sizeof *host);
    free(host);
    free(back);
    ops->free(device.state, block);
    ew_device_close(&device);
}

// Memory that the device shares goes there and back without the staging buffers, from any place in
// it.
static void shared_memory_is_copied_straight(void **state)
{
    enum { COUNT = 3 << 20, FROM = 7 }; // more than a staging buffer holds
    void (*watch)(const void *, size_t);
    void (*watched)(uint64_t *, uint64_t *);
    uint64_t straight, staged;
    (void)state;
    test_plugin_function("cuda_cpu_watch_copies", &watch);
    test_plugin_function("cuda_cpu_watched_copies", &watched);
    ew_device device = open_device();
    const ew_device_ops *ops = device.ops;
    float *block = ops->alloc(device.state, COUNT), *host = ops->alloc_shared(device.state, COUNT);
    const size_t bytes = (COUNT - FROM) * sizeof *host;
    assert_true(block && host);
    for (uint32_t i = 0; i < COUNT; i++)
        host[i] = (float)(i % 65537);
    watch(host, COUNT * sizeof *host);
    ops->copy(device.state, EW_COPY_IN, block, host + FROM, bytes);
    assert_int_equal(ops->finish(device.state, NULL), RT_OK);
    watched(&straight, &staged);
    assert_int_equal(straight, bytes);
    assert_int_equal(staged, 0);
    memset(host, 0, COUNT * sizeof *host);
    ops->copy(device.state, EW_COPY_OUT, host + FROM, block, bytes);
    assert_int_equal(ops->finish(device.state, NULL), RT_OK);
    watched(&straight, &staged);
    assert_int_equal(straight, 2 * bytes);
    assert_int_equal(staged, 0);
    for (uint32_t i = 0; i < COUNT; i++)
        assert_true(host[i] == (i < FROM ? 0 : (float)(i % 65537)));
    ops->free_shared(device.state, host);
    ops->free(device.state, block);
    ew_device_close(&device);
}

TEST_MAIN(TEST(missing_things_are_named), TEST(workers_share_devices),
          TEST(a_device_without_code_is_named), TEST(a_missing_library_is_named),
          TEST(another_version_is_refused), TEST(real_plugin_loads_or_says_why),
          TEST(automatic_choice_gives_its_reason), TEST(missing_solver_falls_back),
          TEST(lost_solver_is_replaced), TEST(failures_are_told_by_finish),
          TEST(failing_to_open_leaves_nothing), TEST(rows_move_while_the_device_computes),
          TEST(large_copies_arrive), TEST(shared_memory_is_copied_straight))
