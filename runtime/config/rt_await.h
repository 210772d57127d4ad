// rt_await - waits until this machine has the addresses that a process is to listen on, and until
// it knows by name whom the process is to connect to.
//
// A box may start its programs before its network: a name that nobody knows yet, an interface that
// is not there yet, or has no address yet. Nothing is kept: whoever listens binds after this.
#ifndef RT_AWAIT_H
#define RT_AWAIT_H

#include "runtime/rt_notify.h"

typedef struct {
    const char *key;   // of the configuration, for what is said
    const char *place; // "HOST:PORT", with or without "tcp://"; a host; an interface; "": none
} rt_await_place;

// Waits for all of them together, timeout_s at most; a line says what for. RT_OK also when that
// time is over: whoever listens then says what is wrong, as it does about other mistakes.
// RT_STOPPED: stop_fd (or -1) became readable. notify: told that this process waits; or NULL.
rt_status rt_await_places(const rt_await_place *places, uint32_t count, double timeout_s,
                          int stop_fd, rt_notify *notify, rt_error *error);

// Waits, timeout_s at most, until the host of "tcp://HOST:PORT" has an address: a resolver may come
// up last. A line says for whom. Whoever connects then says what is wrong, as with other mistakes.
void rt_await_host(const char *who, const char *address, double timeout_s, rt_notify *notify);

// Waits for ms. False: stop_fd (or -1) is readable, which ends it at once.
bool rt_await_pause(int stop_fd, int ms);

#endif
