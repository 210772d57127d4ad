// ew_cache - the rows that a server without a full copy of the model used last.
//
// Fixed memory: sets of eight places, found by the key's hash; of a full set the row that was not
// used for the longest time goes. Every row has the version that it was fetched with, or known to
// be unchanged in; that a key has no row is kept, too. Any number of threads.
#ifndef EW_CACHE_H
#define EW_CACHE_H

#include "edge_worker/serve/ew_follower.h"

typedef struct ew_cache ew_cache;

typedef enum {
    EW_CACHED_NOTHING,
    EW_CACHED_NONE, // the key had no row
    EW_CACHED_ROW
} ew_cached_kind;

// Of one key. serial: of the version; 0 where nothing is cached.
typedef struct {
    ew_cached_kind kind;
    uint32_t serial;
} ew_cached;

// bytes_max: of all that it takes, at least a set. RT_NO_MEMORY.
rt_status ew_cache_create(uint64_t bytes_max, uint32_t dim, ew_cache **cache_p);
void ew_cache_destroy(ew_cache *cache); // also NULL

// A number for a version, above 0, larger than those given before. Of the last 256 versions each
// has the one that it was given first.
uint32_t ew_cache_serial(ew_cache *cache, const ew_version *version);

// The version of a number; false: it is no longer known, and nothing of it is cached.
bool ew_cache_version(ew_cache *cache, uint32_t serial, ew_version *version);

// What there is of count keys; rows: count x dim, written where there is one.
void ew_cache_get(ew_cache *cache, const uint64_t *keys, uint32_t count, float *rows,
                  ew_cached *cached);

// Keeps what is known of count keys, but for those of EW_CACHED_NOTHING.
void ew_cache_put(ew_cache *cache, const uint64_t *keys, uint32_t count, const float *rows,
                  const ew_cached *cached);

uint64_t ew_cache_count(ew_cache *cache); // keys that something is known of
uint64_t ew_cache_bytes(const ew_cache *cache);

#endif
