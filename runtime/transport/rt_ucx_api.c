#if __has_include(<ucp/api/ucp.h>)

#include "runtime/transport/rt_ucx_api.h"

#include <dirent.h>
#include <dlfcn.h>
#include <stdlib.h>

bool rt_ucx_has_rdma(void)
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
static void set_defaults(void)
{
    static const char *const defaults[][2] = {{"UCX_HANDLE_ERRORS", "none"},
                                              {"UCX_WARN_UNUSED_ENV_VARS", "n"},
                                              {"UCX_LOG_LEVEL", "fatal"}};
    for (size_t i = 0; i < RT_COUNT_OF(defaults); i++)
        setenv(defaults[i][0], defaults[i][1], 0);
    // It patches the functions that map memory, in order to keep memory registered with adapters.
    if (!rt_ucx_has_rdma())
        setenv("UCX_MEM_EVENTS", "n", 0);
}

rt_status rt_ucx_api_open(rt_ucx_api *api, rt_error *error)
{
    const int flags = RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE;
    set_defaults();
    void *ucp = dlopen("libucp.so.0", flags), *ucs = ucp ? dlopen("libucs.so.0", flags) : NULL;
    const char *missing = NULL;
    if (!ucs)
        return rt_fail(error, RT_UNSUPPORTED, "no UCX on this machine (Debian's libucx0): %s",
                       dlerror());
#define XX(name)                              \
    *(void **)&api->name = dlsym(ucp, #name); \
    missing = api->name ? missing : #name;
    RT_UCX_FUNCTIONS(XX)
#undef XX
    *(void **)&api->ucs_status_string = dlsym(ucs, "ucs_status_string");
    if (missing || !api->ucs_status_string)
        return rt_fail(error, RT_UNSUPPORTED,
                       "this machine's UCX has no %s: expected 1.13 or newer",
                       missing ? missing : "ucs_status_string");
    return RT_OK;
}

#endif
