// rt_hash - keys, their hashes, and seeded random numbers; all the same on every machine.
#ifndef RT_HASH_H
#define RT_HASH_H

#include <stddef.h>
#include <stdint.h>

#define RT_ID_BITS 56
#define RT_ID_MASK ((UINT64_C(1) << RT_ID_BITS) - 1)
#define RT_ID_MISSING RT_ID_MASK // the id of "no value" in every field

// A key: the field in the top byte, the id (a number or a hash) in the 56 bits below.
static inline uint64_t rt_key(uint32_t field, uint64_t id)
{
    return (uint64_t)field << RT_ID_BITS | (id & RT_ID_MASK);
}

static inline uint32_t rt_key_field(uint64_t key)
{
    return (uint32_t)(key >> RT_ID_BITS);
}

// XXH3, 64 bits, of bytes.
uint64_t rt_hash_bytes(const void *bytes, size_t size);

// The same of bytes that come one after the other. NULL: out of memory.
typedef struct rt_hasher rt_hasher;
rt_hasher *rt_hasher_create(void);
void rt_hasher_destroy(rt_hasher *hasher); // also NULL
void rt_hasher_add(rt_hasher *hasher, const void *bytes, size_t size);
uint64_t rt_hasher_sum(const rt_hasher *hasher); // of all so far

// A bijective mixer (splitmix64's finaliser, Steele et al., OOPSLA 2014): all bits of the result
// depend on all bits of the argument.
static inline uint64_t rt_mix(uint64_t x)
{
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

// The PS shard that owns a key. Uses other bits than hash tables do, so that shards stay balanced.
static inline uint32_t rt_key_shard(uint64_t key, uint32_t shard_count)
{
    return (uint32_t)((rt_mix(key + UINT64_C(0x9e3779b97f4a7c15)) >> 32) * shard_count >> 32);
}

// splitmix64: the whole state is one word, so it goes into a checkpoint as it is.
typedef struct {
    uint64_t state;
} rt_random;

static inline uint64_t rt_random_u64(rt_random *random)
{
    random->state += UINT64_C(0x9e3779b97f4a7c15);
    return rt_mix(random->state);
}

// Uniform in [0, bound), bound >= 1.
static inline uint32_t rt_random_below(rt_random *random, uint32_t bound)
{
    return (uint32_t)((rt_random_u64(random) >> 32) * bound >> 32);
}

// Uniform in [0, 1), 53 bits.
static inline double rt_random_unit(rt_random *random)
{
    return (double)(rt_random_u64(random) >> 11) * 0x1p-53;
}

#endif
