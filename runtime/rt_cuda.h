// rt_cuda - the plug-in with everything that needs CUDA: liblanyard_cuda.so, opened at run time.
//
// The program itself links nothing of CUDA, so it starts where there is no driver. The plug-in is
// never unloaded (CUDA's libraries do not take that well), so opening it again costs nothing.
// Any thread.
#ifndef RT_CUDA_H
#define RT_CUDA_H

#include "runtime/rt_base.h"

// What program and plug-in must agree on: a checksum of the headers that both use, from the
// Makefile.
#ifndef RT_CUDA_ABI
#define RT_CUDA_ABI 0u
#endif
#define RT_CUDA_SYMBOL "lanyard_cuda_plugin"
#define RT_CUDA_FILE "liblanyard_cuda.so"

// What the symbol is. The first member stays first in every version.
typedef struct {
    uint32_t abi;
    const char *build;       // "CUDA 13.0"
    uint32_t (*count)(void); // devices; 0: probe says why
    // Whether device number index works here; name (size bytes): what it is. RT_UNSUPPORTED: error
    // says what is missing.
    rt_status (*probe)(uint32_t index, char *name, size_t size, rt_error *error);
    // "ew_device": an ew_cuda_table; "ew_nccl": an ew_collective_ops; "dp_hungarian":
    // a dp_cuda_table. NULL: unknown, or not in this build.
    const void *(*table)(const char *name);
} rt_cuda_plugin;

// Opens the plug-in: the file path, or, with NULL, the one beside the program or on the loader's
// path, if there is an NVIDIA driver at all. RT_UNSUPPORTED: error says in a few words why there is
// none: no driver, no plug-in, not one of ours, another version.
rt_status rt_cuda_open(const char *path, const rt_cuda_plugin **plugin_p, rt_error *error);

#endif
