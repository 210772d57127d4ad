// rt_keyset - the distinct keys among those added.
//
// Open addressing, grows by doubling; one thread. 16 to 32 bytes per distinct key. Keys only come,
// so that no removal leaves gaps; where items go again, a table is chained (rt_chains).
#ifndef RT_KEYSET_H
#define RT_KEYSET_H

#include "runtime/rt_base.h"

typedef struct {
    uint64_t *slots; // 0: free
    uint64_t slot_count;
    uint64_t used;
    bool has_zero; // the key 0 was added
} rt_keyset;

rt_status rt_keyset_init(rt_keyset *set); // RT_NO_MEMORY
void rt_keyset_fini(rt_keyset *set);

// RT_NO_MEMORY: some of the keys are not in.
rt_status rt_keyset_add(rt_keyset *set, const uint64_t *keys, uint32_t key_count);

bool rt_keyset_has(const rt_keyset *set, uint64_t key);

uint64_t rt_keyset_count(const rt_keyset *set);

#endif
