// rt_behind - a file that a thread of its own writes: whoever has its bytes can do other work while
// they go to the disk, however slow it is.
//
// At most RT_BEHIND_BYTES wait to be written. Written as rt_file does: the name is absent, old, or
// complete. One user; the thread may stand still with the disk, and closing does not wait for it.
#ifndef RT_BEHIND_H
#define RT_BEHIND_H

#include "runtime/rt_base.h"

#define RT_BEHIND_BYTES (UINT32_C(1) << 20)

typedef struct rt_behind rt_behind;

// wake_fd: an eventfd of the user that is written whenever rt_behind_look has something new to say.
// RT_NO_MEMORY, RT_LIMIT. That the file cannot be created is told by look.
rt_status rt_behind_open(const char *path, int wake_fd, rt_behind **behind_p, rt_error *error);

// RT_LIMIT: there is no room for so many, nothing was taken.
rt_status rt_behind_put(rt_behind *behind, const void *bytes, size_t size);

// No more bytes come: the file is to be synced and get its name.
void rt_behind_commit(rt_behind *behind);

// RT_AGAIN: at work, *written_p bytes have been handed to the disk. RT_OK: the file is complete
// under its name. RT_IO, RT_NO_MEMORY: error names it.
rt_status rt_behind_look(rt_behind *behind, uint64_t *written_p, rt_error *error);

// Also NULL. A file that is not complete is removed, as soon as the disk lets the thread do so.
void rt_behind_close(rt_behind *behind);

#endif
