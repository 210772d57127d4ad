// rt_ask - one request to the coordinator of a run, from a process that is no member of it.
//
// What is asked is text: a verb and its arguments, a line each (RT_MESSAGE_CONTROL). The answer
// says whether it was done, and what was. Whoever has a key that the run allows may ask; without
// keys only who is on the same box.
#ifndef RT_ASK_H
#define RT_ASK_H

#include "runtime/transport/rt_transport.h"

#define RT_ASK_BYTES_MAX 4096u // of a request, and of an answer

// To who may not.
#define RT_ASK_ELSEWHERE                                                                     \
    "without keys (security.key) only this box may ask for that, and the request came from " \
    "another"

typedef struct {
    const rt_transport_ops *ops;
    const rt_keys *keys;     // NULL: none
    const char *coordinator; // "tcp://127.0.0.1:41234"
    double timeout_s;
} rt_ask_config;

// text: of the answer, terminated. RT_TIMEOUT: nobody answered; RT_REFUSED: it was not done, error
// has the reason; RT_CONFIG, RT_IO: of the connection; RT_WIRE.
rt_status rt_ask(const rt_ask_config *config, const char *request, char text[RT_ASK_BYTES_MAX],
                 rt_error *error);

#endif
