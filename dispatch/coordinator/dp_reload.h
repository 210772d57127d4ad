// dp_reload - watches the configuration file of a run and says what changed in it.
//
// The file is looked at once a second (time of change, size, inode), or on request. One thread.
#ifndef DP_RELOAD_H
#define DP_RELOAD_H

#include "runtime/config/rt_config.h"

typedef struct {
    const char *path; // NULL: nothing is watched
    const char *const *sets;
    uint32_t set_count;               // assignments that follow the file
    void (*adapt)(rt_config *config); // to what this process makes of it; NULL: nothing
} dp_reload_source;

typedef struct {
    const dp_reload_source *source;
    const rt_config *running; // what the run began with
    uint32_t added_from;      // its boxes from this one on are of no file (dp_members.h); 0: none
    uint64_t looked_ns;
    int64_t changed_s, changed_ns, size; // of the file as it was read last
    uint64_t inode, device;
    bool was_read;
} dp_reload;

// The keys that a run takes over.
typedef struct {
    double alpha;
    bool alpha_auto;
    uint32_t search_evaluations;
    double budget_ms; // RT_BUDGET_AUTO: measured
} dp_reloaded;

void dp_reload_init(const dp_reload_source *source, const rt_config *running, dp_reload *reload);

// True: the file was read, as it changed or that was asked for, and *values is what it says of the
// keys that a run takes over. The first look always reads it: it may have changed since the run
// began. What is wrong with it, which of those keys differ from in_force, and which others need a
// restart, goes to the log.
bool dp_reload_look(dp_reload *reload, bool asked, uint64_t now_ns, const dp_reloaded *in_force,
                    dp_reloaded *values);

#endif
