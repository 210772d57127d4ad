#include "runtime/rt_cuda.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PATH_BYTES 4096

static void *load(const char *path)
{
    return dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
}

// The path of a file in the program's folder; false if there is no such file.
static bool beside_program(const char *file, char path[PATH_BYTES])
{
    ssize_t length = readlink("/proc/self/exe", path, PATH_BYTES - 1);
    if (length <= 0)
        return false;
    path[length] = 0;
    char *folder_end = strrchr(path, '/');
    size_t room = PATH_BYTES - (size_t)(folder_end + 1 - path);
    if (!folder_end || strlen(file) >= room)
        return false;
    memcpy(folder_end + 1, file, strlen(file) + 1);
    return access(path, R_OK) == 0;
}

static rt_status load_default(void **library_p, rt_error *error)
{
    char path[PATH_BYTES];
    // The driver comes first: without one, loading CUDA's libraries would take a second for
    // nothing.
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
    if (!driver)
        return rt_fail(error, RT_UNSUPPORTED, "no NVIDIA driver (libcuda.so.1) on this machine");
    dlclose(driver);
    bool found = beside_program(RT_CUDA_FILE, path);
    *library_p = load(found ? path : RT_CUDA_FILE);
    if (*library_p)
        return RT_OK;
    if (!found)
        return rt_fail(error, RT_UNSUPPORTED,
                       RT_CUDA_FILE " is neither beside the program nor on the library path (make "
                                    "builds it where nvcc is)");
    return rt_fail(error, RT_UNSUPPORTED, "%s", dlerror());
}

rt_status rt_cuda_open(const char *path, const rt_cuda_plugin **plugin_p, rt_error *error)
{
    void *library = NULL;
    rt_status status = RT_OK;
    if (!path)
        status = load_default(&library, error);
    else if (!(library = load(path)))
        status = rt_fail(error, RT_UNSUPPORTED, "%s", dlerror());
    if (status)
        return status;
    const rt_cuda_plugin *plugin = dlsym(library, RT_CUDA_SYMBOL);
    if (!plugin)
        return rt_fail(error, RT_UNSUPPORTED, "%s is no plug-in of Lanyard",
                       path ? path : RT_CUDA_FILE);
    if (plugin->abi != RT_CUDA_ABI)
        return rt_fail(error, RT_UNSUPPORTED,
                       "%s is of another version (%u, expected %u): build both from one tree",
                       path ? path : RT_CUDA_FILE, plugin->abi, RT_CUDA_ABI);
    *plugin_p = plugin;
    return RT_OK;
}
