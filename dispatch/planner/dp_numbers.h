// dp_numbers - the distinct keys of a batch, numbered from 0 in the order in which they appear.
//
// A batch names most of its keys many times: a table of its keys alone is so small that it stays in
// a processor's cache, which the directory does not; that is asked once for each distinct key.
//
// Several threads: each numbers the keys of a part of the batch, for itself. A key of a later part
// is new unless an earlier part has it; counting those that are new before it gives every key its
// number in the batch. So numbers and counts are those of one thread, whatever the number of parts.
#ifndef DP_NUMBERS_H
#define DP_NUMBERS_H

#include "runtime/rt_base.h"
#include "runtime/rt_pool.h"

#define DP_NUMBERS_PARTS_MAX 16u // a key is looked for in the tables of all parts before its own

// Look-ups of a batch from begin on, and their distinct keys.
typedef struct {
    uint32_t *entries;   // open addressing: a key's number + 1; 0: free
    uint32_t bits;       // there are 1 << bits
    uint64_t *keys;      // by number within the part
    uint32_t *uses;      // likewise: look-ups of the key
    uint32_t count;      // distinct keys
    uint32_t begin, end; // look-ups
    uint32_t new_count;  // what a thread found that no part before has
    rt_status status;
} __attribute__((aligned(64))) dp_numbers_part; // several threads number, each its own

typedef struct {
    uint64_t *keys; // distinct ones, by number
    uint32_t *uses; // likewise: look-ups of the key
    uint32_t count;
    dp_numbers_part *parts;
    uint32_t part_count; // that there is room for
    // Several parts. A place is a key of a part: the part's first look-up, and the key's number
    // there on top of it.
    uint64_t *part_keys;      // by place, of all parts but the first, which has keys and uses
    uint32_t *part_uses;      // likewise
    uint32_t *first, *number; // by place: where the key appears first; the number of one that does
} dp_numbers;

// For batches of that many look-ups. RT_NO_MEMORY.
rt_status dp_numbers_init(dp_numbers *numbers, uint64_t look_ups_max);
void dp_numbers_fini(dp_numbers *numbers);

// Room for so many threads, DP_NUMBERS_PARTS_MAX of them at most. RT_NO_MEMORY: nothing changes.
rt_status dp_numbers_share(dp_numbers *numbers, uint64_t look_ups_max, uint32_t thread_count);

// Another batch: there are no keys yet.
void dp_numbers_begin(dp_numbers *numbers);

// The next look-ups of the batch, one thread: their keys' numbers. RT_NO_MEMORY.
rt_status dp_numbers_add(dp_numbers *numbers, const uint64_t *keys, uint32_t count,
                         uint32_t *look_ups);

// All look-ups of a batch, right after begin, on the threads of pool (NULL: one). RT_NO_MEMORY.
rt_status dp_numbers_add_all(dp_numbers *numbers, rt_pool *pool, const uint64_t *keys,
                             uint32_t count, uint32_t *look_ups);

#endif
