// rt_address - addresses of listeners, and under which of them others reach one.
//
// Who listens on every interface ("tcp://0.0.0.0:7000", "tcp://[::]:7000") has no address that it
// could tell others. Towards a given peer it has one: that of the interface which leads there.
#ifndef RT_ADDRESS_H
#define RT_ADDRESS_H

#include "runtime/rt_base.h"

// Whether it has the form "tcp://HOST:PORT" or "ipc://PATH".
bool rt_address_is_valid(const char *address);

// False: the host of "tcp://HOST:PORT" has no address. True also where that is not for us to judge.
bool rt_address_host_is_known(const char *address);

// Copies bound into address (size bytes), its host replaced where it stands for every interface.
// Nothing is sent. RT_CONFIG, RT_IO: toward ("tcp://HOST:PORT") cannot be reached from here, error
// says why; RT_LIMIT: too long.
rt_status rt_address_reachable(const char *bound, const char *toward, char *address, size_t size,
                               rt_error *error);

#endif
