// rt_address - the address under which others reach a listener.
//
// Who listens on every interface ("tcp://0.0.0.0:7000", "tcp://[::]:7000") has no address that it
// could tell others. Towards a given peer it has one: that of the interface which leads there.
#ifndef RT_ADDRESS_H
#define RT_ADDRESS_H

#include "runtime/rt_base.h"

// Copies bound into address (size bytes), its host replaced where it stands for every interface.
// Nothing is sent. RT_CONFIG, RT_IO: toward ("tcp://HOST:PORT") cannot be reached from here, error
// says why; RT_LIMIT: too long.
rt_status rt_address_reachable(const char *bound, const char *toward, char *address, size_t size,
                               rt_error *error);

#endif
