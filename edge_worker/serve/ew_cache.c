#include "edge_worker/serve/ew_cache.h"

#include <pthread.h>
#include <string.h>

#include "runtime/rt_hash.h"

#define WAYS 8u
#define VERSIONS 256u // that are remembered

typedef struct {
    uint64_t key;
    uint32_t serial; // 0: the place is free
    uint32_t is_row; // else the key has none
    uint64_t used;   // number of the last use
} place;

struct ew_cache {
    uint64_t set_count, place_count, uses, count;
    uint32_t dim, serial;
    pthread_mutex_t lock;
    place *places;
    float *rows;
    ew_version versions[VERSIONS]; // by serial
};

rt_status ew_cache_create(uint64_t bytes_max, uint32_t dim, ew_cache **cache_p)
{
    const uint64_t set_bytes = WAYS * (sizeof(place) + (uint64_t)dim * sizeof(float));
    ew_cache *cache = rt_alloc(1, sizeof *cache);
    if (!cache)
        return RT_NO_MEMORY;
    const uint64_t left = bytes_max > sizeof *cache ? bytes_max - sizeof *cache : 0;
    cache->set_count = rt_max_u64(1, left / set_bytes);
    cache->place_count = cache->set_count * WAYS;
    cache->dim = dim;
    pthread_mutex_init(&cache->lock, NULL);
    cache->places = rt_alloc_lazy(cache->place_count, sizeof *cache->places);
    cache->rows = rt_alloc_lazy(cache->place_count * dim, sizeof *cache->rows);
    if (!cache->places || !cache->rows) {
        ew_cache_destroy(cache);
        return RT_NO_MEMORY;
    }
    *cache_p = cache;
    return RT_OK;
}

void ew_cache_destroy(ew_cache *cache)
{
    if (!cache)
        return;
    rt_free(cache->places);
    rt_free(cache->rows);
    pthread_mutex_destroy(&cache->lock);
    rt_free(cache);
}

// ---- versions --------------------------------------------------------------------------------

static bool is_known(const ew_cache *cache, uint32_t serial)
{
    return serial > 0 && serial <= cache->serial && cache->serial - serial < VERSIONS;
}

uint32_t ew_cache_serial(ew_cache *cache, const ew_version *version)
{
    uint32_t found = 0;
    pthread_mutex_lock(&cache->lock);
    for (uint32_t s = cache->serial; is_known(cache, s) && !found; s--)
        if (cache->versions[s % VERSIONS].id == version->id)
            found = s;
    if (!found) {
        found = ++cache->serial;
        cache->versions[found % VERSIONS] = *version;
    }
    pthread_mutex_unlock(&cache->lock);
    return found;
}

bool ew_cache_version(ew_cache *cache, uint32_t serial, ew_version *version)
{
    pthread_mutex_lock(&cache->lock);
    const bool known = is_known(cache, serial);
    if (known)
        *version = cache->versions[serial % VERSIONS];
    pthread_mutex_unlock(&cache->lock);
    return known;
}

// ---- rows ------------------------------------------------------------------------------------

static place *set_of(const ew_cache *cache, uint64_t key)
{
    const uint64_t hash = rt_mix(key + UINT64_C(0x9e3779b97f4a7c15));
    return cache->places + WAYS * (uint64_t)((unsigned __int128)hash * cache->set_count >> 64);
}

static place *find(const ew_cache *cache, uint64_t key)
{
    place *set = set_of(cache, key);
    for (uint32_t i = 0; i < WAYS; i++)
        if (set[i].serial && set[i].key == key)
            return &set[i];
    return NULL;
}

static float *row_of(const ew_cache *cache, const place *p)
{
    return cache->rows + (uint64_t)(p - cache->places) * cache->dim;
}

void ew_cache_get(ew_cache *cache, const uint64_t *keys, uint32_t count, float *rows,
                  ew_cached *cached)
{
    const size_t row_bytes = cache->dim * sizeof *rows;
    pthread_mutex_lock(&cache->lock);
    for (uint32_t i = 0; i < count; i++) {
        place *p = find(cache, keys[i]);
        cached[i] = (ew_cached){EW_CACHED_NOTHING, 0};
        if (!p || !is_known(cache, p->serial))
            continue;
        p->used = ++cache->uses;
        cached[i] = (ew_cached){EW_CACHED_NONE, p->serial};
        if (!p->is_row)
            continue;
        cached[i].kind = EW_CACHED_ROW;
        memcpy(rows + (size_t)i * cache->dim, row_of(cache, p), row_bytes);
    }
    pthread_mutex_unlock(&cache->lock);
}

// A free place, or the one that was not used for the longest time (a free one never was).
static place *make_room(ew_cache *cache, uint64_t key)
{
    place *set = set_of(cache, key), *oldest = set;
    for (uint32_t i = 1; i < WAYS; i++)
        if (set[i].used < oldest->used)
            oldest = &set[i];
    cache->count += oldest->serial == 0;
    return oldest;
}

void ew_cache_put(ew_cache *cache, const uint64_t *keys, uint32_t count, const float *rows,
                  const ew_cached *cached)
{
    const size_t row_bytes = cache->dim * sizeof *rows;
    pthread_mutex_lock(&cache->lock);
    for (uint32_t i = 0; i < count; i++) {
        if (cached[i].kind == EW_CACHED_NOTHING)
            continue;
        place *p = find(cache, keys[i]);
        if (!p)
            p = make_room(cache, keys[i]);
        *p = (place){.key = keys[i],
                     .serial = cached[i].serial,
                     .is_row = cached[i].kind == EW_CACHED_ROW,
                     .used = ++cache->uses};
        if (p->is_row)
            memcpy(row_of(cache, p), rows + (size_t)i * cache->dim, row_bytes);
    }
    pthread_mutex_unlock(&cache->lock);
}

uint64_t ew_cache_count(ew_cache *cache)
{
    pthread_mutex_lock(&cache->lock);
    const uint64_t count = cache->count;
    pthread_mutex_unlock(&cache->lock);
    return count;
}

uint64_t ew_cache_bytes(const ew_cache *cache)
{
    return sizeof *cache + cache->place_count * (sizeof(place) + cache->dim * sizeof(float));
}
