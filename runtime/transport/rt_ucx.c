#include "runtime/transport/rt_ucx.h"

#include <dirent.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/rt_plugin.h"

static bool has_rdma(void)
{
    DIR *folder = opendir("/sys/class/infiniband");
    uint32_t count = 0;
    for (struct dirent *entry; folder && (entry = readdir(folder));)
        count += entry->d_name[0] != '.';
    if (folder)
        closedir(folder);
    return count > 0;
}

// What UCX reads while it is loaded; the user's own settings win. It would take over the signals
// of crashes, warn about variables of other versions, and log what this program reports itself.
static void set_defaults(bool rdma)
{
    static const char *const defaults[][2] = {{"UCX_HANDLE_ERRORS", "none"},
                                              {"UCX_WARN_UNUSED_ENV_VARS", "n"},
                                              {"UCX_LOG_LEVEL", "fatal"}};
    for (size_t i = 0; i < RT_COUNT_OF(defaults); i++)
        setenv(defaults[i][0], defaults[i][1], 0);
    // It patches the functions that map memory, in order to keep memory registered with adapters.
    if (!rdma)
        setenv("UCX_MEM_EVENTS", "n", 0);
}

rt_status rt_ucx_open(const char *path, const rt_ucx_plugin **plugin_p, rt_error *error)
{
    static rt_ucx_host host;
    void *library;
    rt_error why = {0};
    const bool rdma = has_rdma();
    const char *file = path ? path : RT_UCX_FILE;
    set_defaults(rdma);
    if (rt_plugin_load(file, false, &library, &why))
        return rt_fail(error, RT_UNSUPPORTED, "network.transport needs UCX: %s%s", why.text,
                       strstr(why.text, "libuc") ? "; Debian's package is libucx0" : "");
    const rt_ucx_plugin *plugin = dlsym(library, RT_UCX_SYMBOL);
    if (!plugin)
        return rt_fail(error, RT_UNSUPPORTED, "%s is not a plug-in of Lanyard", file);
    if (plugin->abi != RT_UCX_ABI)
        return rt_fail(error, RT_UNSUPPORTED,
                       "%s is of another version (%u, expected %u): build both from one tree", file,
                       plugin->abi, RT_UCX_ABI);
    host = (rt_ucx_host){rt_log, &rt_transport_zmq, &rt_watch_zmq, rdma};
    plugin->begin(&host);
    *plugin_p = plugin;
    return RT_OK;
}

rt_status rt_transport_find(rt_network_transport kind, const rt_transport_ops **ops_p,
                            rt_error *error)
{
    const rt_ucx_plugin *plugin;
    if (kind == RT_NETWORK_ZMQ) {
        *ops_p = &rt_transport_zmq;
        return RT_OK;
    }
    rt_status status = rt_ucx_open(NULL, &plugin, error);
    if (!status)
        *ops_p = kind == RT_NETWORK_UCX ? plugin->ucx : plugin->mixed;
    return status;
}
