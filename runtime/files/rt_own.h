// rt_own - files and folders that a run makes under names of its own, in a folder that others may
// be able to write to.
//
// What such a name stands for already is never followed elsewhere: a symbolic link is refused, or
// goes. Files that people name are not opened by these.
#ifndef RT_OWN_H
#define RT_OWN_H

#include <sys/types.h>

#include "runtime/rt_base.h"

// Of files that hold events as they were sent: nothing for others, whoever starts the program.
#define RT_OWN_EVENTS_MODE 0640

// A new file, for reading and writing; the file or link that has the name goes. RT_IO: it cannot be
// made, or the name is that of something else; error names it.
rt_status rt_own_create(const char *path, mode_t mode, int *file_p, rt_error *error);

// The file of that name, made where it is not there, for reading and writing. RT_IO, too: it is a
// link, or no file.
rt_status rt_own_open(const char *path, mode_t mode, int *file_p, rt_error *error);

// The same for one that has to be there.
rt_status rt_own_reopen(const char *path, int *file_p, rt_error *error);

// RT_CONFIG: the name is that of a symbolic link; error says so. That it is not there is fine.
rt_status rt_own_check_folder(const char *path, rt_error *error);

// Others can no longer read what an earlier version wrote. Where that fails, it stays as it was.
void rt_own_hide(int file);

#endif
