// rt_folder - a folder of files that takes the place of the one before as a whole.
//
// Files are made in PATH.tmp. Commit syncs it, then exchanges the two names in one step (renameat2;
// where the file system cannot do that, PATH becomes PATH.old first), then removes the old folder.
// So whatever ends the process, PATH is the old folder or the new one, complete; only without
// renameat2 there is a moment in which the old one is found as PATH.old. begin tidies up what such
// an end left. Two processes cannot write the same folder: PATH.tmp is locked.
#ifndef RT_FOLDER_H
#define RT_FOLDER_H

#include "runtime/rt_base.h"

typedef struct {
    char path[4096], draft[4096 + 8], old[4096 + 8];
    int lock_fd; // of the draft; -1: not begun
} rt_folder;

// RT_CONFIG: PATH holds something else than files of models, which are all that is ever removed
// (error names it), or it is no folder. RT_IO. A PATH that is not there is fine.
rt_status rt_folder_check(const char *path, rt_error *error);

// folder->draft is there, empty. As check; RT_IO, too: another process is at it.
rt_status rt_folder_begin(rt_folder *folder, const char *path, rt_error *error);

// RT_IO: PATH is as it was. folder is as before begin.
rt_status rt_folder_commit(rt_folder *folder, rt_error *error);
void rt_folder_abort(rt_folder *folder); // also of one that was never begun: lock_fd -1

#endif
