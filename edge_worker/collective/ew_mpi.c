#include <dlfcn.h>

#include "edge_worker/collective/ew_collective.h"
#include "runtime/rt_plugin.h"

rt_status ew_mpi_find(const ew_collective_ops **ops_p, rt_error *error)
{
    void *library;
    // Open MPI's components look for its symbols among all: hence global.
    rt_status status = rt_plugin_load(EW_MPI_FILE, true, &library, error);
    if (status)
        return status;
    const ew_mpi_plugin *plugin = dlsym(library, EW_MPI_SYMBOL);
    if (!plugin || plugin->abi != EW_MPI_ABI)
        return rt_fail(error, RT_UNSUPPORTED,
                       EW_MPI_FILE " is of another version: build both from one tree");
    *ops_p = plugin->ops;
    return RT_OK;
}
