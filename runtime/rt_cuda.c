#include "runtime/rt_cuda.h"

#include <dlfcn.h>

#include "runtime/rt_plugin.h"

static rt_status load_default(void **library_p, rt_error *error)
{
    // The driver comes first: without one, loading CUDA's libraries would take a second for
    // nothing.
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
    if (!driver)
        return rt_fail(error, RT_UNSUPPORTED, "no NVIDIA driver (libcuda.so.1) on this machine");
    dlclose(driver);
    return rt_plugin_load(RT_CUDA_FILE, false, library_p, error);
}

rt_status rt_cuda_open(const char *path, const rt_cuda_plugin **plugin_p, rt_error *error)
{
    void *library = NULL;
    rt_status status;
    if (path)
        status = rt_plugin_load(path, false, &library, error);
    else
        status = load_default(&library, error);
    if (status)
        return status;
    if (!path)
        path = RT_CUDA_FILE;
    const rt_cuda_plugin *plugin = dlsym(library, RT_CUDA_SYMBOL);
    if (!plugin)
        return rt_fail(error, RT_UNSUPPORTED, "%s is not a plug-in of Lanyard", path);
    if (plugin->abi != RT_CUDA_ABI)
        return rt_fail(error, RT_UNSUPPORTED,
                       "%s is of another version (%u, expected %u): build both from one tree", path,
                       plugin->abi, RT_CUDA_ABI);
    *plugin_p = plugin;
    return RT_OK;
}
