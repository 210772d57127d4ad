// dp_herald - which tables Herald's scheduler looks at: those with the highest degree of
// infrequency (Herald, NSDI'24), profiled while running.
//
// A look-up is infrequent when fewer samples of its batch want the row than there are workers: such
// a row need not be everywhere, so it matters where its samples go. A row that more samples want
// than there are workers is wanted nearly everywhere, whatever the placement. The degree of a table
// (field) is the share of infrequent ones among its look-ups, both counted over the batches so far
// with weights that fall by 1/32 per batch. Integers only: equal batches give equal profiles.
#ifndef DP_HERALD_H
#define DP_HERALD_H

#include "dispatch/cost/dp_view.h"

#define DP_HERALD_UNIT 65536u // of a look-up of the present batch
#define DP_HERALD_DECAY 5u    // an older count loses count >> 5 per batch

typedef struct {
    uint64_t lookups[RT_FIELDS_MAX];    // in units, decayed
    uint64_t infrequent[RT_FIELDS_MAX]; // of these
} dp_herald_profile;

// Adds the look-ups of one batch. At most 2^32 look-ups.
void dp_herald_count(dp_herald_profile *profile, const dp_view *view);

// The `count` fields of the highest degree, ties to the lower number; all for 0. fields_p: in
// ascending order, room for RT_FIELDS_MAX. Returns how many.
uint32_t dp_herald_choose(const dp_herald_profile *profile, uint32_t field_count, uint32_t count,
                          uint8_t *fields);

#endif
