// dp_lookahead - when the keys of batches that are known, but not planned yet, will be used.
//
// A table of 16 bytes per key, allocated at creation for all keys that the window can hold. One
// thread. Iterations are added in order and removed in order.
#ifndef DP_LOOKAHEAD_H
#define DP_LOOKAHEAD_H

#include "runtime/rt_base.h"

#define DP_LOOKAHEAD_MAX 32u // batches; also the bound of cache.lookahead

typedef struct {
    uint64_t key;
    uint64_t uses; // bit i % 64 for iteration i; 0: the entry is free
} dp_use;

typedef struct {
    dp_use *entries;
    uint64_t mask; // entries - 1
    uint64_t key_count;
} dp_lookahead;

// window: iterations that are known at once; key_count_max: keys of one.
rt_status dp_lookahead_init(dp_lookahead *lookahead, uint32_t window, uint64_t key_count_max);
void dp_lookahead_fini(dp_lookahead *lookahead);

// Fetches the entry of a key that is asked for soon.
void dp_lookahead_prefetch(const dp_lookahead *lookahead, uint64_t key);

// Key is used in iteration. True: it had no known use before.
bool dp_lookahead_add(dp_lookahead *lookahead, uint64_t key, uint32_t iteration);

// Takes the use in iteration away, if it is known; returns the first known one after it, or 0.
uint32_t dp_lookahead_pass(dp_lookahead *lookahead, uint64_t key, uint32_t iteration);

#endif
