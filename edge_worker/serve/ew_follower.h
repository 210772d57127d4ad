// ew_follower - the full local copy of a model that a server answers with, which follows what is
// published.
//
// Two ew_finished by turns: answers are made with one while changes are put over the other, then
// they change places at once. So every answer is of one version, and nobody waits. The other one
// is made with the first change, a copy of the one that answers, and catches up with each that
// follows: it takes twice the memory of a model once it has followed one. A thread of its own
// follows the folder: the current.json of a published one (rt_published), or the manifest of a
// model's. What cannot be read, or is not there any more, changes nothing: the copy stays as it is,
// and grows older; it is tried again after a while.
#ifndef EW_FOLLOWER_H
#define EW_FOLLOWER_H

#include "edge_worker/predict/ew_finished.h"

typedef struct ew_follower ew_follower;

typedef struct {
    const char *folder;      // of a model, or of published ones
    const char *const *sets; // over every config.json; they stay the caller's
    uint32_t set_count;
    bool without_rows; // of the model; they are elsewhere (ew_remote)
} ew_follower_config;

// What an answer says of the version that it was made with.
typedef struct {
    uint64_t iteration, samples;
    double trained_s; // when the last of its samples were trained, seconds since 1970; of a model
                      // that does not say, when its manifest was written
    uint64_t id;      // rt_manifest_identity, or XXH3 of its manifest: the same on every box
    // Where rows of other versions were used (ew_remote): of which, and trained_s is that of the
    // oldest. Both 0: all is of this one.
    uint64_t rows_oldest, rows_newest;
} ew_version;

typedef struct {
    ew_version version;
    uint64_t rows;
    uint64_t updates, failures; // versions taken over, and that could not be at first
    // From the training of a sample to its first answers: of the versions taken over while the
    // server ran, every sample of one counted. NAN: none yet.
    double fresh_p50_s, fresh_p99_s, fresh_max_s;
    uint64_t held;     // iteration of a newer version that the run's guard holds back; 0: none
    char failure[256]; // the last one, "" once a version was taken over after it
} ew_follower_state;

// Reads the model and begins to follow the folder. RT_NOT_FOUND, and as ew_finished_open.
rt_status ew_follower_open(const ew_follower_config *config, ew_follower **copy_p, rt_error *error);
void ew_follower_close(ew_follower *copy); // nobody is inside

// That of the version that answers; the caller's (rt_config_fini). RT_NO_MEMORY.
rt_status ew_follower_copy_config(ew_follower *copy, rt_config *config);

// What to answer with until leave. side_p: for leave. Any thread; never waits.
const ew_finished *ew_follower_enter(ew_follower *copy, uint32_t *side_p, ew_version *version);
void ew_follower_leave(ew_follower *copy, uint32_t side);

// The same of the version with this id, if it is still there; else of the one that answers.
const ew_finished *ew_follower_enter_version(ew_follower *copy, uint64_t id, uint32_t *side_p,
                                             ew_version *version);

void ew_follower_get_state(ew_follower *copy, ew_follower_state *state);

#endif
