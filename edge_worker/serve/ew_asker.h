// ew_asker - brings questions for rows to the server that hands them out, and answers back.
//
// A thread with an endpoint of its own; any number of threads ask at the same time, each for one
// answer, and wait at most until their deadline. Who does not answer in time, or is gone, is asked
// no more until it answers again (that is tried every second), so that questions fail at once.
#ifndef EW_ASKER_H
#define EW_ASKER_H

#include "runtime/transport/rt_transport.h"

typedef struct ew_asker ew_asker;

typedef struct {
    const char *address; // "tcp://HOST:PORT"
    const rt_keys *keys; // NULL: loopback only; outlives the asker
} ew_asker_config;

// That nobody answers is no error. RT_CONFIG, RT_IO, RT_NO_MEMORY, RT_LIMIT.
rt_status ew_asker_open(const ew_asker_config *config, ew_asker **asker_p, rt_error *error);
void ew_asker_close(ew_asker *asker); // also NULL; nobody asks

// question: a LOOK_UP, the asker's from here on; its sender and number are filled in. On RT_OK
// *answer is a LOOKED_UP, the caller's. RT_PEER, RT_TIMEOUT: there is none.
rt_status ew_asker_ask(ew_asker *asker, rt_message *question, uint64_t deadline_ns,
                       rt_message *answer, rt_error *error);

#endif
