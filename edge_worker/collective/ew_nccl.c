#include "edge_worker/collective/ew_collective.h"
#include "runtime/rt_cuda.h"

rt_status ew_nccl_find(const ew_collective_ops **ops_p, rt_error *error)
{
    const rt_cuda_plugin *plugin;
    rt_status status = rt_cuda_open(NULL, &plugin, error);
    if (status)
        return status;
    const ew_collective_ops *ops = plugin->table("ew_nccl");
    if (!ops)
        return rt_fail(error, RT_UNSUPPORTED, "the CUDA plug-in was built without NCCL (nccl.h)");
    *ops_p = ops;
    return RT_OK;
}
