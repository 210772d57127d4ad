// rt_ahead - a file that a thread of its own reads ahead: whoever needs its bytes can do other
// work until they are there, however slow the disk is.
//
// At most RT_AHEAD_BYTES wait to be taken. One user; that thread may stand still with the disk, and
// closing does not wait for it.
#ifndef RT_AHEAD_H
#define RT_AHEAD_H

#include "runtime/rt_base.h"

#define RT_AHEAD_BYTES (UINT32_C(4) << 20)

typedef struct rt_ahead rt_ahead;

// RT_NO_MEMORY, RT_LIMIT. That the file cannot be opened is told by take.
rt_status rt_ahead_open(const char *path, rt_ahead **ahead_p, rt_error *error);
void rt_ahead_close(rt_ahead *ahead); // also NULL

// Up to size bytes, *got_p of them, at least one. RT_AGAIN: none yet. RT_END: that was all. RT_IO:
// error names the file.
rt_status rt_ahead_take(rt_ahead *ahead, void *bytes, size_t size, size_t *got_p, rt_error *error);

// An eventfd of the user that is written, too, whenever take has something new to say. Until close.
void rt_ahead_notify(rt_ahead *ahead, int wake_fd);

// After RT_AGAIN: readable when take has something to say.
int rt_ahead_fd(const rt_ahead *ahead);

#endif
