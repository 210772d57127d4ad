// rt_ucx - the plug-in with all that needs UCX: liblanyard_ucx.so, opened when a configuration asks
// for "network.transport" ucx or mixed. The program itself links nothing of UCX. One thread at
// a time.
#ifndef RT_UCX_H
#define RT_UCX_H

#include "runtime/rt_log.h"
#include "runtime/transport/rt_watch.h"

// What program and plug-in must agree on: a checksum of the headers that both use, from the
// Makefile.
#ifndef RT_UCX_ABI
#define RT_UCX_ABI 0u
#endif
#define RT_UCX_SYMBOL "lanyard_ucx_plugin"
#define RT_UCX_FILE "liblanyard_ucx.so"

// What the plug-in gets of the program, because there is one of each in a process.
typedef struct {
    void (*log)(rt_log_level level, const char *format, ...);
    const rt_transport_ops *zmq;
    const rt_watch_ops *zmq_watch;
    bool has_rdma; // this machine
} rt_ucx_host;

// What the symbol is. The first member stays first in every version.
typedef struct {
    uint32_t abi;
    const rt_transport_ops *ucx;
    // A server listens for ZeroMQ and UCX, the latter at the next port; connecting is by UCX.
    const rt_transport_ops *mixed;
    void (*begin)(const rt_ucx_host *host); // before all else; again: nothing more
} rt_ucx_plugin;

// Opens the file path, or, with NULL, the one beside the program or on the loader's path, and
// begins. It is never unloaded. RT_UNSUPPORTED: error says what is missing.
rt_status rt_ucx_open(const char *path, const rt_ucx_plugin **plugin_p, rt_error *error);

#endif
