// ps_left - keys whose rows have left a shard for another one (ps.homes "planned"), since which
// cut.
//
// A file of changes names them, for the files that it builds on have their rows. As many as left
// since the newest complete checkpoint, and in the time of the one before it. One thread.
#ifndef PS_LEFT_H
#define PS_LEFT_H

#include "ps_lite/ps_table.h"

typedef struct {
    uint64_t key;
    uint32_t cut; // the last one before it left
    uint32_t unused;
} ps_left_key;

typedef struct {
    ps_left_key *keys;
    uint32_t count, capacity;
    uint32_t cut; // iteration of the last one, or of the checkpoint that was loaded
} ps_left;

void ps_left_fini(ps_left *left);

// RT_NO_MEMORY.
rt_status ps_left_add(ps_left *left, uint64_t key);

// A cut of an iteration whose changes are those since base: nobody asks for what left before that.
void ps_left_cut(ps_left *left, uint32_t iteration, uint32_t base);

// Those that left after the cut of iteration base and have no row in the table now: *keys_p, which
// is the caller's, ascending. RT_NO_MEMORY.
rt_status ps_left_since(const ps_left *left, const ps_table *table, uint32_t base,
                        uint64_t **keys_p, uint32_t *count_p);

#endif
