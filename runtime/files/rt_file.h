// rt_file - writing whole files so that a name is either absent, old, or complete.
//
// Bytes go to "path.tmp"; commit syncs it and renames it over path, and syncs the folder. A failed
// or aborted file leaves path as it was. Several may write the same path at a time, as two shards
// of a box that lack the same file of a checkpoint: each has a file of its own ("path.1.tmp", ...,
// "path.63.tmp"), and the last commit stays. Large files do not fill the page cache, where the file
// system allows that. A symbolic link that has the name goes: what a run writes is not led
// elsewhere.
#ifndef RT_FILE_H
#define RT_FILE_H

#include <sys/stat.h>

#include "runtime/files/rt_sink.h"

typedef struct rt_file rt_file;

// RT_IO (error names the file and the system's reason), RT_NO_MEMORY. What is written waits in
// memory until a piece is full: the error of a write can be that of a later one, or of commit.
rt_status rt_file_create(const char *path, rt_file **file_p, rt_error *error);

// One that somebody has named: a symbolic link to a file stays one; what is no file (a device, a
// pipe) is written at once, and has what came before a failure.
rt_status rt_file_create_named(const char *path, rt_file **file_p, rt_error *error);

// Others are not to read it, as it holds something of events.
void rt_file_hide(rt_file *file);

rt_status rt_file_write(rt_file *file, const void *bytes, size_t size, rt_error *error);

// Both free the file, also on failure; abort takes NULL too.
rt_status rt_file_commit(rt_file *file, rt_error *error);
void rt_file_abort(rt_file *file);

// A file of these bytes; errors as all of the above.
rt_status rt_file_save(const char *path, const void *bytes, size_t size, rt_error *error);
rt_status rt_file_save_named(const char *path, const void *bytes, size_t size, rt_error *error);

// Whether a path still had the same file, as it was, at two looks (stat).
bool rt_file_is_same(const struct stat *before, const struct stat *now);

// A sink that makes such a file. Lives as long as its place does.
typedef struct {
    const char *path;
    bool is_named; // by somebody, as of rt_file_create_named
    rt_file *file; // NULL: not open
} rt_file_place;
rt_sink rt_file_sink(rt_file_place *place);

#endif
