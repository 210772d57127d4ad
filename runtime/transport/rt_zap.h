// rt_zap - who may talk to a process over ZeroMQ: loopback addresses only, or CURVE keys and a
// list.
//
// With keys every TCP socket is a CURVE socket (ZeroMQ RFCs 26 and 27), and a thread answers the
// ZAP requests of its context: a key on the list gets in, everybody else is refused and logged, one
// line for many. The same thread watches listeners for connections that do not get as far as a
// key. ipc addresses stay as they are: the file system guards them.
#ifndef RT_ZAP_H
#define RT_ZAP_H

#include "runtime/transport/rt_keys.h"
#include "runtime/wire/rt_wire.h"

typedef struct rt_zap rt_zap;

// Starts the thread if there are keys (which are copied). RT_NO_MEMORY, RT_IO, RT_UNSUPPORTED.
rt_status rt_zap_create(void *context, const rt_keys *keys, rt_zap **zap_p, rt_error *error);

// After zmq_ctx_term, which ends the thread. NULL is allowed.
void rt_zap_destroy(rt_zap *zap);

// A box more whose key gets in, beside those of the list, from now on; called by one thread. Where
// it is on the list already nothing changes. RT_CONFIG: the list has another key of that name;
// RT_LIMIT.
rt_status rt_zap_allow(rt_zap *zap, const rt_public_key *key, rt_error *error);

// The key that a server must prove to have. RT_CONFIG: it is not on the list.
rt_status rt_zap_trust(rt_zap *zap, uint32_t server, const uint8_t key[RT_KEY_BYTES],
                       rt_error *error);

// RT_CONFIG: the address needs keys, or that they be given up; zap NULL: loopback only.
rt_status rt_zap_check_address(const rt_zap *zap, const char *address, rt_error *error);

// Before bind and connect. Both do nothing where there are no keys, or for ipc addresses.
// false, errno set: ZeroMQ refused; EACCES: the server's key is not known.
bool rt_zap_guard_listener(rt_zap *zap, void *socket, const char *address);
bool rt_zap_guard_client(rt_zap *zap, void *socket, const char *address, uint32_t server);

// Logs connections to a listener that do not get as far as a key; after bind.
void rt_zap_watch(rt_zap *zap, void *socket, const char *address);

// Whether connections of this transport to such an address prove keys.
bool rt_zap_has_keys(const rt_zap *zap, const char *address);

#endif
