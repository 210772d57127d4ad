// dp_herald - which tables Herald's scheduler looks at: those with the highest degree of
// infrequency (Herald, NSDI'24, sections 3.2 and 4.3), profiled while running.
//
// An embedding in a cache is infrequent when it is in fewer samples than one worker trains: its
// share of the samples is below 1 / n. The degree of a table (field) is the share of infrequent
// ones among its embeddings in caches (copies are counted, not look-ups). A frequent embedding is
// in about every batch, so the frequent ones among a batch's keys are all there are, and the others
// are what is cached beside them: nothing has to be remembered of a key. Both numbers are averaged
// over the batches so far with weights that fall by 1/32 per batch. Integers only: equal batches
// give equal profiles.
#ifndef DP_HERALD_H
#define DP_HERALD_H

#include "dispatch/cost/dp_view.h"

#define DP_HERALD_UNIT 65536u // of a copy at the present batch
#define DP_HERALD_DECAY 5u    // an older count loses count >> 5 per batch

typedef struct {
    uint64_t cached[RT_FIELDS_MAX];     // copies of latest rows, in units, decayed
    uint64_t infrequent[RT_FIELDS_MAX]; // of these
} dp_herald_profile;

// Adds the caches before one batch, and how frequent the batch says that rows are.
void dp_herald_count(dp_herald_profile *profile, const dp_view *view);

// The `count` fields of the highest degree, ties to the lower number; all for 0. fields_p: in
// ascending order, room for RT_FIELDS_MAX. Returns how many.
uint32_t dp_herald_choose(const dp_herald_profile *profile, uint32_t field_count, uint32_t count,
                          uint8_t *fields);

#endif
