// rt_sink - where the bytes of a file go: to a disk (rt_file_sink), to another box (rt_parcel).
//
// open once, with the bytes to come where they are known (0: not); then write; then commit or
// abort, after which the sink is as before open. abort without open does nothing. Errors name the
// file.
#ifndef RT_SINK_H
#define RT_SINK_H

#include "runtime/rt_base.h"

typedef struct {
    rt_status (*open)(void *context, uint64_t total, rt_error *error);
    rt_status (*write)(void *context, const void *bytes, size_t size, rt_error *error);
    rt_status (*commit)(void *context, rt_error *error);
    void (*abort)(void *context);
    void *context;
    const char *name; // for errors
} rt_sink;

#endif
