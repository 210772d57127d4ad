// rt_ucx_api - UCX's functions, from libucp.so.0, opened at run time.
//
// The program links nothing of UCX and starts where it is not installed. Only built where its
// headers are. The library is never unloaded. Any thread.
#ifndef RT_UCX_API_H
#define RT_UCX_API_H

#include <ucp/api/ucp.h>

#include "runtime/rt_base.h"

#define RT_UCX_FUNCTIONS(XX)           \
    XX(ucp_init_version)               \
    XX(ucp_cleanup)                    \
    XX(ucp_config_read)                \
    XX(ucp_config_modify)              \
    XX(ucp_config_release)             \
    XX(ucp_worker_create)              \
    XX(ucp_worker_destroy)             \
    XX(ucp_worker_progress)            \
    XX(ucp_worker_get_efd)             \
    XX(ucp_worker_arm)                 \
    XX(ucp_worker_set_am_recv_handler) \
    XX(ucp_worker_get_address)         \
    XX(ucp_worker_release_address)     \
    XX(ucp_ep_create)                  \
    XX(ucp_ep_close_nbx)               \
    XX(ucp_am_send_nbx)                \
    XX(ucp_am_recv_data_nbx)           \
    XX(ucp_request_free)

typedef struct {
#define XX(name) __typeof__(&name) name;
    RT_UCX_FUNCTIONS(XX)
#undef XX
    __typeof__(&ucs_status_string) ucs_status_string;
} rt_ucx_api;

bool rt_ucx_has_rdma(void); // on this machine

// RT_UNSUPPORTED: error says what is missing.
rt_status rt_ucx_api_open(rt_ucx_api *api, rt_error *error);

#endif
