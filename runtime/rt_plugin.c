#include "runtime/rt_plugin.h"

#include <dlfcn.h>
#include <string.h>
#include <unistd.h>

#define PATH_BYTES 4096

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

rt_status rt_plugin_load(const char *file, bool is_global, void **library_p, rt_error *error)
{
    char path[PATH_BYTES];
    const int flags = RTLD_NOW | RTLD_NODELETE | (is_global ? RTLD_GLOBAL : RTLD_LOCAL);
    bool is_path = strchr(file, '/'), found = !is_path && beside_program(file, path);
    *library_p = dlopen(found ? path : file, flags);
    if (*library_p)
        return RT_OK;
    if (!found && !is_path)
        return rt_fail(error, RT_UNSUPPORTED,
                       "%s is neither beside the program nor on the library path (make builds it "
                       "where what it needs is)",
                       file);
    return rt_fail(error, RT_UNSUPPORTED, "%s", dlerror());
}
