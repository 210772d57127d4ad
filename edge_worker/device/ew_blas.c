#include "edge_worker/device/ew_blas.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define THREADS_VARIABLE "OPENBLAS_NUM_THREADS"
#define CORE_VARIABLE "OPENBLAS_CORETYPE"

// The kernels of OpenBLAS that fit what the CPU can do; NULL: let it choose. valgrind hides
// AVX-512 from CPUID, so its runs get what it can emulate.
static const char *core_type(void)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
        return "SkylakeX";
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return "Haswell";
#endif
    return NULL;
}

// Sets name unless the user did; true if it has to be taken back.
static bool set_default(const char *name, const char *value)
{
    return value && !getenv(name) && setenv(name, value, 0) == 0;
}

static void *load_openblas(void)
{
    bool core_set = set_default(CORE_VARIABLE, core_type());
    bool threads_set = set_default(THREADS_VARIABLE, "1");
    void *library = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);
    if (core_set)
        unsetenv(CORE_VARIABLE);
    if (threads_set)
        unsetenv(THREADS_VARIABLE);
    return library;
}

// POSIX lets dlsym's result be a function; C does not, hence the detour through memory.
static bool find(void *library, const char *name, void *function_p)
{
    void *symbol = dlsym(library, name);
    memcpy(function_p, &symbol, sizeof symbol);
    return symbol != NULL;
}

static void describe(ew_blas *blas, const char *name)
{
    char *(*config)(void), *(*core)(void);
    snprintf(blas->description, sizeof blas->description, "%s", name);
    if (find(blas->library, "openblas_get_config", &config) &&
        find(blas->library, "openblas_get_corename", &core)) {
        const char *text = config(); // "OpenBLAS 0.3.21 NO_LAPACKE ..."
        size_t size = strlen(text);
        if (strncmp(text, "OpenBLAS ", 9) == 0)
            size = 9 + strcspn(text + 9, " ");
        snprintf(blas->description, sizeof blas->description, "%.*s %s", (int)size, text, core());
    }
}

rt_status ew_blas_open(ew_blas *blas, rt_error *error)
{
    ew_blas found = {0};
    const char *name = "libopenblas.so.0";
    found.library = load_openblas();
    if (!found.library) {
        name = "libblas.so.3";
        found.library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    }
    if (!found.library)
        return rt_fail(error, RT_UNSUPPORTED,
                       "found neither libopenblas.so.0 nor libblas.so.3: install the Debian "
                       "package libopenblas0-pthread");
    if (!find(found.library, "cblas_sgemm", &found.sgemm) ||
        !find(found.library, "cblas_sgemv", &found.sgemv)) {
        dlclose(found.library);
        return rt_fail(error, RT_UNSUPPORTED,
                       "%s lacks the CBLAS functions: install the Debian package "
                       "libopenblas0-pthread",
                       name);
    }
    describe(&found, name);
    *blas = found;
    return RT_OK;
}

void ew_blas_close(ew_blas *blas)
{
    if (blas->library)
        dlclose(blas->library);
    *blas = (ew_blas){0};
}
