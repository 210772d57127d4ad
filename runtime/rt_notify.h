// rt_notify - tells the service manager that this process is up, and then that it is alive.
//
// The protocol is that of sd_notify(3): datagrams of text to the socket that NOTIFY_SOCKET names.
// A value; one thread at a time. Nothing here fails: a manager that does not listen, or reads
// too slowly, must not hold up a run. NULL in place of one: nobody asked.
#ifndef RT_NOTIFY_H
#define RT_NOTIFY_H

#include "runtime/rt_base.h"

typedef struct {
    int socket;        // -1: nobody asked
    uint64_t every_ns; // between two signs of life, half of what the manager waits; 0: none wanted
    uint64_t sent_ns;  // the last one
} rt_notify;

// From the environment, each NULL where it is not there: NOTIFY_SOCKET, a path, or an abstract name
// with "@" before it; WATCHDOG_USEC; WATCHDOG_PID, of whom that is wanted.
void rt_notify_open(const char *socket_name, const char *watchdog_us, const char *watchdog_pid,
                    rt_notify *notify);
void rt_notify_close(rt_notify *notify);

// All that this process can do alone is done: what was ordered after it may start.
void rt_notify_ready(rt_notify *notify);

// A sign of life, when one is due. To be called from the loop whose end would be a hang.
void rt_notify_alive(rt_notify *notify);

#endif
