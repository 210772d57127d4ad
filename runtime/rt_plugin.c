#include "runtime/rt_plugin.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PATH_BYTES 4096

// The path of a file in a folder, named from the program's; false if there is no such file.
static bool find(const char *folder, const char *file, char path[PATH_BYTES])
{
    char program[PATH_BYTES];
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    if (length <= 0)
        return false;
    program[length] = 0;
    const int own = (int)(strrchr(program, '/') - program);
    const int size = snprintf(path, PATH_BYTES, "%.*s/%s%s", own, program, folder, file);
    return size < PATH_BYTES && access(path, R_OK) == 0;
}

static bool find_ours(const char *file, char path[PATH_BYTES])
{
    return find("", file, path) || find("../lib/lanyard/", file, path);
}

bool rt_plugin_is_there(const char *file)
{
    char path[PATH_BYTES];
    return find_ours(file, path);
}

rt_status rt_plugin_load(const char *file, bool is_global, void **library_p, rt_error *error)
{
    char path[PATH_BYTES];
    const int scope = is_global ? RTLD_GLOBAL : RTLD_LOCAL;
    const bool is_path = strchr(file, '/'), found = !is_path && find_ours(file, path);
    const char *which = found ? path : file;
    *library_p = dlopen(which, RTLD_NOW | RTLD_NODELETE | scope);
    if (*library_p)
        return RT_OK;
    const char *why = dlerror(), *folders = getenv("LD_LIBRARY_PATH");
    if (!found && !is_path && strncmp(why, file, strlen(file)) == 0)
        return rt_fail(
            error, RT_UNSUPPORTED,
            "%s is neither beside the program, nor in ../lib/lanyard, nor on the library path "
            "(make builds it if the libraries that it needs are installed)",
            file);
    // Mostly a library that the plug-in needs, which the loader names.
    return rt_fail(
        error, RT_UNSUPPORTED,
        "%.200s (LD_LIBRARY_PATH, the folders to look in besides the system's, is \"%.80s\")", why,
        folders ? folders : "");
}
