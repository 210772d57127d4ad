#include "ps_lite/ps_table.h"

#include <inttypes.h>
#include <string.h>

#include "runtime/rt_hash.h"

// Linear probing. An entry's home is the top bits of its hash, so entries stand nearly in hash
// order, and growing reads and writes memory in sequence.
//
// An index grows bit by bit, as a large one takes seconds: beside the new one the old one stays
// until every reserve has moved a few of its entries. `moved` is an empty place of the old one, so
// that no entry behind it has its home before it: keys with a home before it are in the new index,
// all others in the old one, where copies of moved entries only fill their places.
//
//     place     0    1    2    3    4    5    6    7      an old index of 8 places,
//     key       c    d    .    .    e    .    a    b      homes: a 6, b 7, c 7, d 1, e 4
//
// c found 6 and 7 taken and went on at the beginning: its home is behind its place. The first move
// passes c by, takes d, and stops at the empty place 2 (moved = 2): now d is in the new index, and
// c, whose home is 7, is still looked for in the old one. When the move has come to the end, a
// second pass takes those at the beginning whose home is behind their place: c.
#define INDEX_BITS_MIN 10
#define MOVES_MIN 4096u       // places that a reserve looks at
#define MOVES_PER_INSERT 16u  // then the old index fills by an eighth at most meanwhile
#define ERASES_AT_ONCE 65536u // places that a part of an erasure looks at
#define CHUNK_BYTES_MAX ((uint64_t)16 << 20)
#define CHUNK_BYTES_MIN ((uint64_t)16 << 10)
#define FLOATS_AHEAD 64 // of a row, that find_all starts to load

// A block of rows. Keys stand apart: floats of a power of two bytes fill huge pages.
typedef struct {
    uint64_t *keys;
    float *floats;
} chunk;

typedef struct {
    ps_entry *entries; // NULL: there is none
    uint32_t bits;
} entry_index;

struct ps_table {
    entry_index index;
    entry_index old; // while the index grows
    uint64_t moved;  // places of the old one
    uint32_t stride; // floats from row to row
    uint32_t chunk_bits;
    uint32_t chunk_count;
    uint32_t chunk_capacity;
    chunk *chunks;
    uint64_t count;
    uint64_t count_max; // until the index must double
    uint64_t bytes;
    uint64_t memory_bytes_max;
    bool is_on_disk;
    ps_store *store; // of the chunks' floats, where they are on disk
};

// 5/8 full: 1.8 probes for a hit, 4.1 for a miss (Knuth, TAOCP 3, 6.4).
static uint64_t index_count_max(uint32_t bits)
{
    return (UINT64_C(1) << bits) / 8 * 5;
}

static uint64_t index_bytes(uint32_t bits)
{
    return (UINT64_C(1) << bits) * sizeof(ps_entry);
}

// On disk, or in memory.
static uint64_t chunk_floats_bytes(const ps_table *table)
{
    return (table->stride * sizeof(float)) << table->chunk_bits;
}

// In memory.
static uint64_t chunk_bytes(const ps_table *table)
{
    const uint64_t keys = sizeof(uint64_t) << table->chunk_bits;
    if (table->is_on_disk)
        return keys;
    return keys + chunk_floats_bytes(table);
}

// Whole cache lines where that wastes at most an eighth, else whole vectors of four floats.
static uint32_t stride_of(uint32_t row_floats)
{
    const uint32_t lines = (row_floats + 15) / 16 * 16;
    if (lines - row_floats <= row_floats / 8)
        return lines;
    return (row_floats + 3) / 4 * 4;
}

// Chunks grow with the bound, so that a small table wastes little and a large one has few.
static uint32_t chunk_bits_of(const ps_table *table)
{
    uint64_t bytes_max = rt_min_u64(CHUNK_BYTES_MAX, table->memory_bytes_max / 64);
    bytes_max = rt_max_u64(CHUNK_BYTES_MIN, bytes_max);
    uint32_t bits = 0;
    if (table->is_on_disk)
        bytes_max = CHUNK_BYTES_MAX;
    while ((sizeof(uint64_t) + table->stride * sizeof(float)) << (bits + 1) <= bytes_max)
        bits++;
    return bits;
}

uint64_t ps_table_bytes_for(const ps_table_config *config, uint64_t row_count)
{
    ps_table table = {.memory_bytes_max = config->memory_bytes_max,
                      .is_on_disk = config->is_on_disk,
                      .stride = stride_of(config->row_floats)};
    uint32_t bits = INDEX_BITS_MIN;
    table.chunk_bits = chunk_bits_of(&table);
    while (bits < 40 && row_count > index_count_max(bits))
        bits++;
    const uint64_t chunks = (row_count + (UINT64_C(1) << table.chunk_bits) - 1) >> table.chunk_bits;
    return index_bytes(bits) + chunks * chunk_bytes(&table);
}

rt_status ps_table_create(const ps_table_config *config, ps_table **table_p)
{
    rt_assert(!config->is_on_disk == !config->store);
    rt_assert(config->row_floats > 0 && config->row_floats <= UINT32_MAX / 8);
    ps_table *table = rt_alloc(1, sizeof *table);
    if (!table)
        return RT_NO_MEMORY;
    table->memory_bytes_max = config->memory_bytes_max;
    table->is_on_disk = config->is_on_disk;
    table->store = config->store;
    table->stride = stride_of(config->row_floats);
    table->chunk_bits = chunk_bits_of(table);
    table->index.bits = INDEX_BITS_MIN;
    table->count_max = index_count_max(INDEX_BITS_MIN);
    table->index.entries = rt_alloc((size_t)1 << INDEX_BITS_MIN, sizeof(ps_entry));
    if (!table->index.entries) {
        rt_free(table);
        return RT_NO_MEMORY;
    }
    table->bytes = index_bytes(INDEX_BITS_MIN);
    *table_p = table;
    return RT_OK;
}

void ps_table_destroy(ps_table *table)
{
    if (!table)
        return;
    if (table->is_on_disk && table->chunk_count)
        ps_store_cut(table->store, table->chunks[0].floats);
    for (uint32_t i = 0; i < table->chunk_count; i++) {
        rt_free(table->chunks[i].keys);
        if (!table->is_on_disk)
            rt_free(table->chunks[i].floats);
    }
    rt_free(table->chunks);
    rt_free(table->index.entries);
    rt_free(table->old.entries);
    rt_free(table);
}

static inline uint64_t home(const entry_index *index, uint64_t hash)
{
    return hash >> (64 - index->bits);
}

// Where a key of this hash is, if it is anywhere.
static inline const entry_index *index_of(const ps_table *table, uint64_t hash)
{
    if (RT_UNLIKELY(table->old.entries != NULL) && home(&table->old, hash) >= table->moved)
        return &table->old;
    return &table->index;
}

// The key's entry, or the empty one where it belongs.
static inline ps_entry *probe(const entry_index *index, uint64_t key, uint64_t hash)
{
    const uint64_t mask = (UINT64_C(1) << index->bits) - 1;
    uint64_t at = home(index, hash);
    while (index->entries[at].row && index->entries[at].key != key)
        at = (at + 1) & mask;
    return &index->entries[at];
}

static inline ps_entry *find(const ps_table *table, uint64_t key)
{
    const uint64_t hash = rt_mix(key);
    return probe(index_of(table, hash), key, hash);
}

ps_entry *ps_table_find(const ps_table *table, uint64_t key)
{
    ps_entry *entry = find(table, key);
    return entry->row ? entry : NULL;
}

static inline float *row_of(const ps_table *table, const ps_entry *entry)
{
    const uint64_t row = entry->row - 1;
    const uint64_t within = row & ((UINT64_C(1) << table->chunk_bits) - 1);
    return table->chunks[row >> table->chunk_bits].floats + within * table->stride;
}

float *ps_table_row(const ps_table *table, const ps_entry *entry)
{
    return row_of(table, entry);
}

void ps_table_prefetch(const ps_table *table, const uint64_t *keys, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        const uint64_t hash = rt_mix(keys[i]);
        const entry_index *index = index_of(table, hash);
        __builtin_prefetch(&index->entries[home(index, hash)]);
    }
}

bool ps_table_is_on_disk(const ps_table *table)
{
    return table->is_on_disk;
}

void ps_table_will_need(const ps_table *table, const ps_entry *entry)
{
    if (table->is_on_disk)
        ps_store_will_need(table->store, row_of(table, entry), table->stride * sizeof(float));
}

void ps_table_find_all(const ps_table *table, const uint64_t *keys, uint32_t count, ps_found *found)
{
    const uint32_t floats_ahead = (uint32_t)rt_min_u64(table->stride, FLOATS_AHEAD);
    for (uint32_t i = 0; i < count; i++) {
        ps_entry *entry = find(table, keys[i]);
        found[i] = (ps_found){NULL, NULL};
        if (!entry->row)
            continue;
        float *row = row_of(table, entry);
        found[i] = (ps_found){entry, row};
        for (uint32_t at = 0; at < floats_ahead; at += 16)
            __builtin_prefetch(row + at);
    }
}

static rt_status limit_reached(const ps_table *table, uint64_t count, rt_error *error)
{
    return rt_fail(error, RT_CONFIG,
                   "no room for %" PRIu64 " more rows: %" PRIu64 " rows take %" PRIu64
                   " of the %" PRIu64 " bytes that "
                   "ps.memory_bytes_max allows",
                   count, table->count, table->bytes, table->memory_bytes_max);
}

static void move(ps_table *table, const ps_entry *entry)
{
    *probe(&table->index, entry->key, rt_mix(entry->key)) = *entry;
}

// Moves the entries of `count` places, and of those up to the next empty one.
static void move_some(ps_table *table, uint64_t count)
{
    const uint64_t size = UINT64_C(1) << table->old.bits;
    const ps_entry *old = table->old.entries;
    uint64_t at = table->moved;
    if (!old)
        return;
    for (const uint64_t end = at + rt_min_u64(count, size - at); at < size; at++) {
        if (old[at].row && home(&table->old, rt_mix(old[at].key)) <= at)
            move(table, &old[at]);
        else if (!old[at].row && at >= end)
            break;
    }
    table->moved = at;
    if (at < size)
        return;
    // Those that did not fit before the end stand at the beginning.
    for (at = 0; old[at].row; at++)
        if (home(&table->old, rt_mix(old[at].key)) > at)
            move(table, &old[at]);
    rt_free(table->old.entries);
    table->old = (entry_index){0};
}

// The bound holds for what stays. count: inserts that will come before more is moved.
static rt_status grow_index(ps_table *table, uint32_t bits, uint64_t count, rt_error *error)
{
    ps_entry *entries = rt_alloc_lazy((size_t)1 << bits, sizeof *entries);
    if (!entries)
        return rt_fail(error, RT_NO_MEMORY,
                       "out of memory: an index of %" PRIu64 " bytes for the rows",
                       index_bytes(bits));
    move_some(table, UINT64_MAX); // of an index that still grows
    table->bytes += index_bytes(bits) - index_bytes(table->index.bits);
    table->old = table->index;
    table->moved = 0;
    table->index = (entry_index){entries, bits};
    table->count_max = index_count_max(bits);
    move_some(table, MOVES_MIN + count * MOVES_PER_INSERT);
    return RT_OK;
}

static rt_status no_memory_for(uint64_t rows, rt_error *error)
{
    return rt_fail(error, RT_NO_MEMORY, "out of memory: a block of %" PRIu64 " rows", rows);
}

static rt_status add_floats(ps_table *table, chunk *one, rt_error *error)
{
    const uint64_t rows = UINT64_C(1) << table->chunk_bits;
    void *bytes;
    if (table->is_on_disk) {
        const rt_status status =
            ps_store_add(table->store, chunk_floats_bytes(table), &bytes, error);
        if (status)
            return status;
    } else {
        bytes = rt_alloc(rows, table->stride * sizeof(float));
        if (!bytes)
            return no_memory_for(rows, error);
    }
    one->floats = bytes;
    return RT_OK;
}

static rt_status add_chunk(ps_table *table, rt_error *error)
{
    const uint64_t rows = UINT64_C(1) << table->chunk_bits;
    chunk one = {0};
    if (rt_grow(&table->chunks, &table->chunk_capacity, (uint64_t)table->chunk_count + 1,
                sizeof *table->chunks))
        return no_memory_for(rows, error);
    one.keys = rt_alloc(rows, sizeof *one.keys);
    if (!one.keys)
        return no_memory_for(rows, error);
    const rt_status status = add_floats(table, &one, error);
    if (status) {
        rt_free(one.keys);
        return status;
    }
    table->chunks[table->chunk_count++] = one;
    table->bytes += chunk_bytes(table);
    return RT_OK;
}

rt_status ps_table_reserve(ps_table *table, uint64_t count, rt_error *error)
{
    const uint64_t wanted = table->count + count;
    uint64_t chunks = table->chunk_count;
    uint32_t bits = table->index.bits;
    move_some(table, MOVES_MIN + count * MOVES_PER_INSERT);
    if (wanted <= table->count_max && wanted <= chunks << table->chunk_bits)
        return RT_OK;
    while (bits < 40 && wanted > index_count_max(bits))
        bits++;
    chunks = rt_max_u64(chunks, ((wanted - 1) >> table->chunk_bits) + 1);
    const uint64_t more = index_bytes(bits) - index_bytes(table->index.bits) +
                          (chunks - table->chunk_count) * chunk_bytes(table);
    if (wanted >= UINT32_MAX || table->bytes + more > table->memory_bytes_max)
        return limit_reached(table, count, error);
    if (bits != table->index.bits) {
        const rt_status status = grow_index(table, bits, count, error);
        if (status)
            return status;
    }
    while (table->chunk_count < chunks) {
        const rt_status status = add_chunk(table, error);
        if (status)
            return status;
    }
    return RT_OK;
}

ps_entry *ps_table_insert(ps_table *table, uint64_t key)
{
    ps_entry *entry = find(table, key);
    rt_assert(!entry->row && table->count < table->count_max);
    const uint64_t row = table->count++;
    rt_assert(row >> table->chunk_bits < table->chunk_count);
    table->chunks[row >> table->chunk_bits].keys[row & ((UINT64_C(1) << table->chunk_bits) - 1)] =
        key;
    *entry = (ps_entry){key, 0, (uint32_t)row + 1};
    return entry;
}

// ---- erasing ---------------------------------------------------------------------------------

static uint64_t *key_of(const ps_table *table, uint64_t row)
{
    const uint64_t within = row & ((UINT64_C(1) << table->chunk_bits) - 1);
    return &table->chunks[row >> table->chunk_bits].keys[within];
}

// The last row takes the place of one that ends, so that rows stay numbered without gaps.
static void close_row_gap(ps_table *table, uint32_t gap)
{
    const uint64_t last = --table->count;
    if (gap - 1 == last)
        return;
    ps_entry *mover = probe(&table->index, *key_of(table, last), rt_mix(*key_of(table, last)));
    const float *from = row_of(table, mover);
    mover->row = gap;
    memcpy(row_of(table, mover), from, table->stride * sizeof *from);
    *key_of(table, gap - 1) = mover->key;
}

// Entries behind the gap move up, but for those whose home lies behind it (Knuth, TAOCP 3, 6.4,
// algorithm R).
static void close_entry_gap(ps_table *table, uint64_t gap)
{
    const entry_index *index = &table->index;
    const uint64_t mask = (UINT64_C(1) << index->bits) - 1;
    for (uint64_t at = (gap + 1) & mask; index->entries[at].row; at = (at + 1) & mask) {
        const uint64_t distance = (at - home(index, rt_mix(index->entries[at].key))) & mask;
        if (distance < ((at - gap) & mask))
            continue;
        index->entries[gap] = index->entries[at];
        gap = at;
    }
    index->entries[gap] = (ps_entry){0};
}

static void free_chunks(ps_table *table)
{
    const uint64_t used =
        (table->count + (UINT64_C(1) << table->chunk_bits) - 1) >> table->chunk_bits;
    if (table->is_on_disk && ps_store_is_held(table->store))
        return; // somebody reads them: when more is erased
    while (table->chunk_count > used + 1) {
        chunk *last = &table->chunks[--table->chunk_count];
        rt_free(last->keys);
        if (table->is_on_disk)
            ps_store_cut(table->store, last->floats);
        else
            rt_free(last->floats);
        table->bytes -= chunk_bytes(table);
    }
}

// What moves up comes from places that are still ahead, or, around the end, from the beginning,
// where all that is left stays.
bool ps_table_erase_below(ps_table *table, uint32_t floor, uint64_t *at)
{
    const uint64_t size = UINT64_C(1) << table->index.bits;
    move_some(table, UINT64_MAX);
    for (const uint64_t end = rt_min_u64(size, *at + ERASES_AT_ONCE); *at < end; ++*at) {
        const ps_entry *entry = &table->index.entries[*at];
        while (entry->row && entry->version < floor) {
            close_row_gap(table, entry->row);
            close_entry_gap(table, *at);
        }
    }
    if (*at < size)
        return true;
    free_chunks(table);
    return false;
}

bool ps_table_erase(ps_table *table, uint64_t key)
{
    move_some(table, UINT64_MAX);
    const ps_entry *entry = find(table, key);
    if (!entry->row)
        return false;
    const ps_entry last = {.row = (uint32_t)table->count};
    close_row_gap(table, entry->row);
    close_entry_gap(table, (uint64_t)(find(table, key) - table->index.entries));
    memset(row_of(table, &last), 0, table->stride * sizeof(float));
    free_chunks(table);
    return true;
}

uint64_t ps_table_count(const ps_table *table)
{
    return table->count;
}

uint64_t ps_table_bytes(const ps_table *table)
{
    return table->bytes;
}

uint64_t ps_table_key(const ps_table *table, uint64_t row)
{
    rt_assert(row < table->count);
    return table->chunks[row >> table->chunk_bits]
        .keys[row & ((UINT64_C(1) << table->chunk_bits) - 1)];
}

const ps_entry *ps_table_next(const ps_table *table, uint64_t *at)
{
    const uint64_t size = UINT64_C(1) << table->index.bits;
    while (*at < size) {
        const ps_entry *entry = &table->index.entries[(*at)++];
        if (entry->row)
            return entry;
    }
    if (!table->old.entries)
        return NULL;
    const uint64_t end = size + (UINT64_C(1) << table->old.bits);
    while (*at < end) { // what the new one does not have yet
        const ps_entry *entry = &table->old.entries[(*at)++ - size];
        if (entry->row && home(&table->old, rt_mix(entry->key)) >= table->moved)
            return entry;
    }
    return NULL;
}
