// rt_status - the one list of outcomes, and the error that carries a sentence for people.
//
// Functions return rt_status. Where the cause lies outside the program (a config key, a line of
// data, bytes of a peer, a file), they also fill an rt_error: the function that first decides that
// something is wrong writes the sentence, its callers only pass it up.
#ifndef RT_STATUS_H
#define RT_STATUS_H

#include <stdarg.h>
#include <stdbool.h>

#define RT_STATUS_MAP(XX)                                     \
    XX(OK, "success")                                         \
    XX(END, "end of stream")                                  \
    XX(AGAIN, "full or not ready, try again later")           \
    XX(NO_MEMORY, "out of memory")                            \
    XX(CONFIG, "invalid configuration")                       \
    XX(DATA, "malformed input data")                          \
    XX(WIRE, "malformed or unexpected message")               \
    XX(IO, "input or output failed")                          \
    XX(NOT_FOUND, "not found")                                \
    XX(TIMEOUT, "deadline passed")                            \
    XX(PEER, "a peer failed")                                 \
    XX(LIMIT, "a configured limit was reached")               \
    XX(UNSUPPORTED, "not supported by this build or machine") \
    XX(STOPPED, "stopped on request")                         \
    XX(REFUSED, "refused until somebody mends it")            \
    XX(VERSION, "written by another version of the program")

typedef enum {
#define XX(name, text) RT_##name,
    RT_STATUS_MAP(XX)
#undef XX
} rt_status;

typedef struct {
    rt_status status;
    char text[512];
} rt_error;

// A constant string; never NULL, also for values that are not in the list.
const char *rt_status_text(rt_status status);

// Whether to start again would end the same way: a person has to change something first.
bool rt_status_lasts(rt_status status);

// Of a system call on a file: RT_CONFIG where it is the rights that are wrong, else RT_IO.
rt_status rt_status_of_errno(int reason);

// Writes status and sentence into error (which may be NULL) and returns status. Longer text is cut.
rt_status rt_fail(rt_error *error, rt_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

// Prefixes the text of a filled error with context, for example a file name. Returns its status.
rt_status rt_fail_in(rt_error *error, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
