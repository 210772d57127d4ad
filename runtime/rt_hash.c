#include "runtime/rt_hash.h"

#include <xxhash.h>

uint64_t rt_hash_bytes(const void *bytes, size_t size)
{
    return XXH3_64bits(bytes, size);
}
