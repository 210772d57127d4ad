// rt_ucx_door - how two UCX endpoints find each other: a TCP socket per connection.
//
// Both say who they are and under which address UCX reaches them, once; then the socket is only
// watched: when it closes, the other side has ended. (UCX could do this by itself, but aborts the
// process on bytes that are not its own.) Sockets never block. No state, any thread.
#ifndef RT_UCX_DOOR_H
#define RT_UCX_DOOR_H

#include <sys/socket.h>

#include "runtime/rt_base.h"

#define RT_UCX_ADDRESS_MAX 8192u      // of a worker with many network interfaces: 1 or 2 KB
#define RT_UCX_DOOR_MAGIC 0x3144524cu // "LRD1"

typedef struct {
    uint32_t magic;
    uint32_t peer;         // who speaks
    uint64_t connection;   // its number, and
    uint16_t slot;         // its slot, by the listener; 0 from the other side
    uint16_t reserved;     // zero
    uint32_t address_size; // of UCX's address, which follows
} rt_ucx_intro;
_Static_assert(sizeof(rt_ucx_intro) == 24, "wire layout");

// What was heard so far.
typedef struct {
    int fd; // -1: none
    uint64_t end_ns;
    size_t used;
    uint8_t bytes[sizeof(rt_ucx_intro) + RT_UCX_ADDRESS_MAX];
} rt_ucx_greeting;

// A socket, or -1 with errno. bound: what it is bound to.
int rt_ucx_door_listen(const struct sockaddr_storage *at, socklen_t length,
                       struct sockaddr_storage *bound);
int rt_ucx_door_connect(const struct sockaddr_storage *to, socklen_t length); // writable once done
int rt_ucx_door_accept(int listener);

// Whether all of it went out: it is the first thing that does, so the socket has room.
bool rt_ucx_door_say(int fd, const rt_ucx_intro *intro, const void *address);

// RT_OK: the greeting is complete. RT_AGAIN: not yet. RT_WIRE: it is none, or the socket closed.
rt_status rt_ucx_door_hear(rt_ucx_greeting *greeting);

static inline rt_ucx_intro rt_ucx_door_intro(const rt_ucx_greeting *greeting)
{
    rt_ucx_intro intro;
    __builtin_memcpy(&intro, greeting->bytes, sizeof intro);
    return intro;
}

// After the greetings: nothing may come but the end.
bool rt_ucx_door_is_shut(int fd);

#endif
