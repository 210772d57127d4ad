// rt_ucx_plugin - what the files of liblanyard_ucx.so share.
#ifndef RT_UCX_PLUGIN_H
#define RT_UCX_PLUGIN_H

#include "runtime/transport/rt_ucx.h"

extern const rt_ucx_host *rt_ucx_program; // that opened it

extern const rt_transport_ops rt_transport_ucx, rt_transport_mixed;
extern const rt_watch_ops rt_watch_ucx;

#endif
