// rt_address - where a process listens, and the address under which others reach it.
//
// Who listens on every interface ("tcp://0.0.0.0:7000", "tcp://[::]:7000") has no address that it
// could tell others. Towards a given peer it has one: that of the interface which leads there.
#ifndef RT_ADDRESS_H
#define RT_ADDRESS_H

#include <sys/socket.h>

#include "runtime/rt_base.h"

// Whether it has the form "tcp://HOST:PORT" or "ipc://PATH".
bool rt_address_is_valid(const char *address);

// False: the host of "tcp://HOST:PORT" has no address. True also where that is not for us to judge.
bool rt_address_host_is_known(const char *address);

// An error about one: what ("cannot listen on"), the address, and what the errno reason means; text
// for reasons that have no words here.
rt_status rt_address_fail(rt_error *error, const char *what, const char *address, int reason,
                          const char *text);

// "tcp://HOST:PORT" for the socket calls, and back. Of a name its first IPv4 address, or what it
// has in place of one. False: it has no such form, or is unknown.
bool rt_address_resolve(const char *address, struct sockaddr_storage *socket_p,
                        socklen_t *length_p);
bool rt_address_write(const struct sockaddr_storage *from, char *address, size_t size);

// A socket that is connected to it, the caller's, not blocking; -1: errno has the reason. A name
// without an address is EHOSTUNREACH; nobody has answered within limit_ms: ETIMEDOUT.
int rt_address_connect(const char *address, int limit_ms);

// The name of the interface that has this address (is_local), or that leads to it. False: none.
bool rt_address_interface(const struct sockaddr_storage *address, bool is_local, char *name,
                          size_t size);

// Copies bound into address (size bytes), its host replaced where it stands for every interface.
// Nothing is sent. RT_CONFIG, RT_IO: toward ("tcp://HOST:PORT") cannot be reached from here, error
// says why; RT_LIMIT: too long.
rt_status rt_address_reachable(const char *bound, const char *toward, char *address, size_t size,
                               rt_error *error);

// Host (without brackets) and port of "HOST:PORT" or "tcp://HOST:PORT"; false when it is neither.
// A number of IPv6 stands in brackets: without them the last group may be a port, or not.
bool rt_address_split(const char *address, char *host, size_t size, uint32_t *port_p);

// For messages, what is expected in the place of what is no address.
const char *rt_address_form(const char *address);

// And back: "HOST:PORT", with brackets where the host needs them. False: it is longer.
bool rt_address_join(const char *host, uint32_t port, char *address, size_t size);

// A host that stands alone, without brackets if it has them. False: it is longer.
bool rt_address_host(const char *place, char *host, size_t size);

// Whether it is a number of IPv6, with or without a scope ("fe80::1%eth0").
bool rt_address_is_six(const char *host);

// True when nobody outside of this machine can be meant: ipc, or a host all of whose addresses are
// loopback. Looks names up.
bool rt_address_is_loopback(const char *address);

// RT_CONFIG: an address that needs keys, or that they be given up, and has neither.
rt_status rt_address_check(bool has_keys, bool is_insecure, const char *address, rt_error *error);

// Whether a numeric address is one of this machine's: who comes from it is here.
bool rt_address_is_here(const struct sockaddr_storage *address);

// The numeric address of an interface, IPv4 first, one of the link last. RT_IO: it is not there, or
// not yet; error names those that are.
rt_status rt_address_of_interface(const char *name, char *host, size_t size, rt_error *error);

// Where to listen: on bind if that is given, else on the host of given ("HOST:PORT"), else on the
// interface, else on 127.0.0.1; "" stands for not given. port 0: that of given, else any free one.
// RT_CONFIG, RT_IO, RT_LIMIT.
rt_status rt_address_listen(const char *bind, const char *given, const char *interface,
                            uint32_t port, char *address, size_t size, rt_error *error);

#endif
