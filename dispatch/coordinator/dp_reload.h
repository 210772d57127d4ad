// dp_reload - watches the configuration file of a run and says what changed in it.
//
// The file is looked at once a second (time of change, size, inode), or on request. One thread.
#ifndef DP_RELOAD_H
#define DP_RELOAD_H

#include "runtime/rt_config.h"

typedef struct {
    const char *path; // NULL: nothing is watched
    const char *const *sets;
    uint32_t set_count; // assignments that follow the file
} dp_reload_source;

typedef struct {
    const dp_reload_source *source;
    const rt_config *running; // what the run began with
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
    double budget_ms;
} dp_reloaded;

void dp_reload_init(const dp_reload_source *source, const rt_config *running, dp_reload *reload);

// True when the file differs from the one read last. The first look always finds it so: it may have
// changed since the run began.
bool dp_reload_due(dp_reload *reload, uint64_t now_ns);

// Reads the file. RT_OK: *values is what it says, and restart names the other keys that differ from
// the running configuration ("" if none), cut to size. Otherwise error says what is wrong with it.
rt_status dp_reload_read(const dp_reload *reload, dp_reloaded *values, char *restart, size_t size,
                         rt_error *error);

// One line in the log for every key that changed.
void dp_reload_tell(const dp_reloaded *old, const dp_reloaded *values);

#endif
