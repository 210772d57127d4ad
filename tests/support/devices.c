#define _GNU_SOURCE // RTLD_DEFAULT
#include "tests/support/devices.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "dispatch/solvers/dp_cuda.h"
#include "edge_worker/device/ew_cuda.h"
#include "runtime/config/rt_solvers.h"
#include "runtime/rt_cuda.h"
#include "tests/support/test.h"

#define PLUGIN "liblanyard_cuda_cpu.so"
#define SOLVER_SIZE_MAX 600u // rows x sinks that kernels on the CPU solve
#define SOLVER_EVERY 5u
#define TSAN_SIZE_MAX 100u
#define TSAN_EVERY 100u

// TEST_CUDA_PLUGIN names another one (tests/gpu/test_ptx). Else: test programs lie in folders of
// <build>/tests, the plug-in in <build>/tests.
const char *test_plugin_path(void)
{
    static char path[4096];
    const char *given = getenv("TEST_CUDA_PLUGIN");
    if (given && given[0])
        return given;
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - sizeof PLUGIN - 1);
    char *folder = NULL;
    path[length > 0 ? length : 0] = '\0';
    for (char *at = path; (at = strstr(at, "/tests/")); at++)
        folder = at;
    assert_non_null(folder);
    length = folder + strlen("/tests/") - path;
    snprintf(path + length, sizeof path - (size_t)length, "%s", PLUGIN);
    return path;
}

void test_plugin_function(const char *name, void *function_p)
{
    void *library = dlopen(test_plugin_path(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    void *symbol = library ? dlsym(library, name) : NULL;
    memcpy(function_p, &symbol, sizeof symbol);
}

// The thread sanitizer is slow, and looks at every order of threads at once.
static bool under_tsan(void)
{
    return dlsym(RTLD_DEFAULT, "__tsan_create_fiber") != NULL;
}

uint32_t test_device_slowness(void)
{
    return under_tsan() ? 100 : dlsym(RTLD_DEFAULT, "__asan_poison_memory_region") ? 10 : 1;
}

uint32_t test_device_count(void)
{
    return under_tsan() ? 2 : 3;
}

rt_status test_device_open(uint32_t index, ew_device *device, rt_error *error)
{
    void (*seed)(uint64_t);
    if (index == 0)
        return ew_device_open("cpu", device, error);
    test_plugin_function("cuda_cpu_seed", &seed);
    if (seed)
        seed(index);
    return ew_cuda_open(test_plugin_path(), &(ew_device_wish){.name = "cuda:0"}, device, error);
}

// ---- solvers -----------------------------------------------------------------------------------

static const dp_cuda_table *solver_table(void)
{
    const rt_cuda_plugin *plugin;
    rt_error error;
    if (rt_cuda_open(test_plugin_path(), &plugin, &error) != RT_OK)
        fail_msg("%s", error.text);
    return plugin->table("dp_hungarian");
}

static rt_status create(uint32_t rows, uint32_t sinks, void **state_p)
{
    return solver_table()->create(0, rows, sinks, state_p, NULL);
}

static void destroy(void *state)
{
    solver_table()->destroy(state);
}

static void solve(void *state, const dp_problem *problem, uint32_t *sink_of_row)
{
    rt_error error;
    if (solver_table()->solve(state, problem, sink_of_row, &error) != RT_OK)
        fail_msg("%s", error.text);
}

static const dp_solver_ops hungarian = {
    .name = "hungarian_cuda", .exact = true, .create = create, .destroy = destroy, .solve = solve};

const dp_solver_ops *test_solver(rt_solver_kind kind)
{
    return kind == RT_SOLVER_HUNGARIAN_CUDA ? &hungarian : dp_solver_find(kind);
}

bool test_solver_takes(rt_solver_kind kind, uint64_t size)
{
    static uint64_t offered;
    if (kind != RT_SOLVER_HUNGARIAN_CUDA)
        return true;
    uint64_t size_max = under_tsan() ? TSAN_SIZE_MAX : SOLVER_SIZE_MAX;
    if (size > size_max || ++offered < (under_tsan() ? TSAN_EVERY : SOLVER_EVERY) + size / 8)
        return false;
    offered = 0;
    return true;
}
