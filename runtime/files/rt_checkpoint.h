// rt_checkpoint - the folders of the checkpoints of a run: DIRECTORY/ckpt-000000001200.
//
// What is inside is the business of others; here are only names. docs/MODEL_FORMAT.md.
#ifndef RT_CHECKPOINT_H
#define RT_CHECKPOINT_H

#include "runtime/rt_base.h"

// The folder of an iteration. RT_CONFIG: the path is too long.
rt_status rt_checkpoint_path(const char *directory, uint32_t iteration, char *path, size_t size,
                             rt_error *error);

// Creates a folder and those above it that are missing, synced. RT_IO.
rt_status rt_checkpoint_make(const char *path, rt_error *error);
// The same of one whose name is a run's own: RT_CONFIG: that of a symbolic link.
rt_status rt_checkpoint_make_own(const char *path, rt_error *error);

// Iterations that have a folder, ascending; *iterations_p is the caller's (rt_free). A directory
// that is not there has none. RT_IO, RT_NO_MEMORY.
rt_status rt_checkpoint_list(const char *directory, uint32_t **iterations_p, uint32_t *count_p,
                             rt_error *error);

// Removes the files of a checkpoint (one of that name, or all: NULL), and its folder once it is
// empty. What cannot be removed stays: nobody depends on its absence.
void rt_checkpoint_remove(const char *directory, uint32_t iteration, const char *file);

// Renames a checkpoint that is of no use, to DIRECTORY/damaged-ckpt-...; one that was there before
// goes, and so does one that was never complete. Nothing builds on it, or is taken for it, any
// more. Of those set aside the RT_CHECKPOINT_ASIDE_MAX newest stay.
#define RT_CHECKPOINT_ASIDE_MAX 3u
void rt_checkpoint_set_aside(const char *directory, uint32_t iteration);

// A folder of files that takes the place of a complete checkpoint as a whole, by one exchange of
// names: whatever ends the process, the old one is there or the new one. begin_draft: *path is an
// empty folder, which nobody takes for a checkpoint. RT_CONFIG: the path is too long, or a link's.
rt_status rt_checkpoint_begin_draft(const char *directory, char *path, size_t size,
                                    rt_error *error);
// Then the old one goes. RT_IO: it is as it was, as where the file system cannot exchange names.
rt_status rt_checkpoint_put_draft(const char *directory, uint32_t iteration, rt_error *error);
void rt_checkpoint_remove_draft(const char *directory); // what a process that ended has left

#endif
