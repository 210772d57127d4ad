// dp_lookahead - when the keys of batches that are known, but not planned yet, will be used.
//
// A table of 16 bytes per key, at most half full, and 8 bytes for every batch that a key is in; both
// grow with what is in sight, so a deep window of few keys takes little. One thread. Iterations are
// added in order and removed in order.
#ifndef DP_LOOKAHEAD_H
#define DP_LOOKAHEAD_H

#include "runtime/rt_base.h"

#define DP_LOOKAHEAD_MAX 1023u // batches; also the bound of cache.lookahead

typedef struct {
    uint64_t key;
    uint32_t first, last; // of its uses; first DP_NO_USE: the entry is free
} dp_use;

// The uses of a key are a list, the next one first.
typedef struct {
    uint32_t iteration;
    uint32_t next; // or DP_NO_USE
} dp_use_at;
#define DP_NO_USE UINT32_MAX

typedef struct {
    dp_use *entries;
    uint64_t mask; // entries - 1
    uint64_t key_count;
    dp_use_at *uses;
    uint32_t use_capacity, use_top; // uses below use_top were in a list at some time
    uint32_t free_use;              // a list of those that are not
} dp_lookahead;

rt_status dp_lookahead_init(dp_lookahead *lookahead);
void dp_lookahead_fini(dp_lookahead *lookahead);

// Room for so many more uses of so many keys. RT_NO_MEMORY; the uses stay as they are.
rt_status dp_lookahead_reserve(dp_lookahead *lookahead, uint32_t key_count);

// Fetches the entry of a key that is asked for soon.
void dp_lookahead_prefetch(const dp_lookahead *lookahead, uint64_t key);

// Key is used in iteration; there is room. True: it had no known use before.
bool dp_lookahead_add(dp_lookahead *lookahead, uint64_t key, uint32_t iteration);

// Takes the use in iteration away, if it is known; returns the first known one after it, or 0.
uint32_t dp_lookahead_pass(dp_lookahead *lookahead, uint64_t key, uint32_t iteration);

// Bytes allocated.
uint64_t dp_lookahead_bytes(const dp_lookahead *lookahead);

#endif
