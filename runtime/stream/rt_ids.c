#include "runtime/stream/rt_ids.h"

#include <pthread.h>
#include <string.h>

#define MAGIC UINT64_C(0x5344494e41594c52) // "RLYANIDS"

struct rt_ids {
    uint64_t *ring; // by number modulo ring_size; 0: no name
    uint64_t ring_size, window;
    uint64_t *slots; // a hash table without deleted marks; 0: free
    uint64_t mask;
    uint64_t first, next; // of the window, numbers
    uint64_t repeated;
    pthread_mutex_t lock; // of ring, first, next
};

rt_status rt_ids_create(uint32_t window, uint32_t ahead, rt_ids **ids_p)
{
    uint64_t slot_count = 16;
    rt_ids *ids = rt_alloc(1, sizeof *ids);
    if (!ids)
        return RT_NO_MEMORY;
    while (slot_count < 2 * (uint64_t)window)
        slot_count *= 2;
    pthread_mutex_init(&ids->lock, NULL);
    ids->window = window;
    ids->ring_size = (uint64_t)window + ahead;
    ids->ring = rt_alloc_lazy(ids->ring_size, sizeof *ids->ring);
    ids->slots = rt_alloc_lazy(slot_count, sizeof *ids->slots);
    ids->mask = slot_count - 1;
    if (!ids->ring || !ids->slots) {
        rt_ids_destroy(ids);
        return RT_NO_MEMORY;
    }
    *ids_p = ids;
    return RT_OK;
}

void rt_ids_destroy(rt_ids *ids)
{
    if (!ids)
        return;
    rt_free(ids->ring);
    rt_free(ids->slots);
    pthread_mutex_destroy(&ids->lock);
    rt_free(ids);
}

// Where the hash is, or would be.
static uint64_t find(const rt_ids *ids, uint64_t hash)
{
    uint64_t at = hash & ids->mask;
    while (ids->slots[at] && ids->slots[at] != hash)
        at = (at + 1) & ids->mask;
    return at;
}

bool rt_ids_has(const rt_ids *ids, uint64_t hash)
{
    return hash && ids->slots[find(ids, hash)] == hash;
}

// Those that follow and would not be found any more move up.
static void remove_hash(rt_ids *ids, uint64_t hash)
{
    uint64_t hole = find(ids, hash);
    if (!ids->slots[hole])
        return;
    for (uint64_t at = (hole + 1) & ids->mask; ids->slots[at]; at = (at + 1) & ids->mask) {
        const uint64_t home = ids->slots[at] & ids->mask;
        if (((at - home) & ids->mask) >= ((at - hole) & ids->mask)) {
            ids->slots[hole] = ids->slots[at];
            hole = at;
        }
    }
    ids->slots[hole] = 0;
}

void rt_ids_add(rt_ids *ids, uint64_t hash)
{
    if (ids->next - ids->first == ids->window) {
        const uint64_t oldest = ids->ring[ids->first % ids->ring_size];
        if (oldest)
            remove_hash(ids, oldest);
    }
    pthread_mutex_lock(&ids->lock);
    ids->first += ids->next - ids->first == ids->window;
    ids->ring[ids->next++ % ids->ring_size] = hash;
    pthread_mutex_unlock(&ids->lock);
    if (hash)
        ids->slots[find(ids, hash)] = hash;
}

uint64_t rt_ids_repeated(const rt_ids *ids)
{
    return ids->repeated;
}

void rt_ids_note(rt_ids *ids)
{
    pthread_mutex_lock(&ids->lock);
    ids->repeated++;
    pthread_mutex_unlock(&ids->lock);
}

void rt_ids_save(rt_ids *ids, uint64_t number, rt_bytes *bytes)
{
    pthread_mutex_lock(&ids->lock);
    const uint64_t end = rt_min_u64(number, ids->next);
    const uint64_t oldest = ids->next - rt_min_u64(ids->next, ids->ring_size);
    uint64_t begin = end - rt_min_u64(end, ids->window);
    begin = rt_min_u64(rt_max_u64(begin, oldest), end);
    rt_bytes_put_u64(bytes, MAGIC);
    rt_bytes_put_u64(bytes, ids->repeated);
    rt_bytes_put_u64(bytes, end);
    rt_bytes_put_u64(bytes, end - begin);
    for (uint64_t i = begin; i < end;) {
        const uint64_t at = i % ids->ring_size;
        const uint64_t count = rt_min_u64(end - i, ids->ring_size - at);
        rt_bytes_put(bytes, ids->ring + at, count * sizeof *ids->ring);
        i += count;
    }
    pthread_mutex_unlock(&ids->lock);
}

rt_status rt_ids_load(rt_ids *ids, rt_reader *reader, rt_error *error)
{
    rt_assert(ids->next == 0);
    const uint64_t magic = rt_reader_u64(reader);
    ids->repeated = rt_reader_u64(reader);
    const uint64_t next = rt_reader_u64(reader), count = rt_reader_u64(reader);
    const uint64_t *hashes = rt_reader_take(reader, count, sizeof *hashes);
    if (reader->failed || magic != MAGIC || count > next || (count && !hashes))
        return rt_fail(error, RT_DATA, "the names of the last events are damaged");
    ids->first = ids->next = next - count;
    for (uint64_t i = 0; i < count; i++) {
        uint64_t hash;
        memcpy(&hash, (const uint8_t *)hashes + i * sizeof hash, sizeof hash);
        rt_ids_add(ids, hash);
    }
    return RT_OK;
}

bool rt_ids_are_next(const rt_reader *reader)
{
    rt_reader head = *reader;
    return rt_reader_u64(&head) == MAGIC && !head.failed;
}
