// rt_published - a folder of published models: versions, and which of them is in force.
//
//   FOLDER/ckpt-000000001200/   a version: a checkpoint's files but for planner.bin; with `base` in
//                               its manifest only what changed since that version
//   FOLDER/current.json         {"iteration": 1200, "pinned": false}: what servers answer with
//
// current.json is replaced as a whole. Who changes it, or removes versions, holds the folder's lock
// (a file FOLDER/lock): a run that publishes, `lanyard pin`, `lanyard rollback`.
#ifndef RT_PUBLISHED_H
#define RT_PUBLISHED_H

#include "runtime/rt_base.h"

#define RT_PUBLISHED_CURRENT "current.json"
#define RT_PUBLISHED_LOCK "lock"

typedef struct {
    uint32_t iteration; // of the version in force
    bool pinned;        // it stays until somebody says otherwise
    uint32_t held;      // iteration of the newest version, where the guard holds it back; 0: none
} rt_published;

// What a version's manifest says of it.
typedef struct {
    uint32_t iteration, base;
    bool is_held;                 // its quality was worse than publish.guard allows
    uint64_t run;                 // versions of one run, and of those that resumed it, share it
    uint64_t samples;             // that the run had trained
    double trained_s, since_s;    // of its last samples, and of the first that the version before
                                  // lacks: seconds since 1970
    double log_loss, calibration; // of the samples before it, each before it was trained; NAN
} rt_published_version;

// RT_NOT_FOUND: the folder has no current.json. RT_DATA, RT_IO, RT_NO_MEMORY.
rt_status rt_published_read(const char *folder, rt_published *published, rt_error *error);

// RT_NOT_FOUND: it is not there, or not complete. RT_DATA, RT_IO, RT_NO_MEMORY.
rt_status rt_published_version_of(const char *folder, uint32_t iteration,
                                  rt_published_version *version, rt_error *error);

// A descriptor to be closed. Waits for others, which take milliseconds. RT_IO.
rt_status rt_published_lock(const char *folder, int *lock_p, rt_error *error);

// With the lock held. RT_IO, RT_NO_MEMORY.
rt_status rt_published_write(const char *folder, const rt_published *published, rt_error *error);

// With the lock held: puts the files of a checkpoint's folder into FOLDER/ckpt-... , by links where
// that can be, and calls put_manifest to write the manifest. RT_IO, RT_CONFIG, and what it returns.
rt_status rt_published_add(const char *folder, uint32_t iteration, const char *checkpoint,
                           rt_status (*put_manifest)(void *context, const char *version,
                                                     rt_error *error),
                           void *context, rt_error *error);

// Whether a name is one of a file that others may have: "current.json", or a version's name, a
// slash and one of its files.
bool rt_published_may_be(const char *name);

// With the lock held: removes those versions that another run has left above an iteration.
void rt_published_remove_above(const char *folder, uint32_t iteration);

// With the lock held: of the versions that are not held the newest `keep` stay, and the one in
// force, and those that these build on, and all that are newer.
// alone: a version is of use without those that it builds on (of a folder without rows).
void rt_published_prune(const char *folder, uint32_t keep, bool alone);

// The newest version that is not held and is older than the given one. RT_NOT_FOUND: none is.
rt_status rt_published_before(const char *folder, uint32_t iteration, uint32_t *before_p,
                              rt_error *error);

#endif
