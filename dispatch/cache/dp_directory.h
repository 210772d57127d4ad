// dp_directory - what the planner knows of every key: versions, and who holds the latest copy.
//
// Two levels. An open-addressing table has 16 bytes for every key that was trained and has not
// ended since (dp_sweep.h); a key that is forgotten starts anew. Keys with a copy in some cache, or
// in the present batch, also have a record from a pool. One probe finds both. The table doubles at
// 70% load; records keep their index. One thread makes and erases; several may peek, seek, change
// different records, attach and detach them.
//
// States of a key (docs/PROTOCOL.md): L = version, P = version_ps, H = holders.
//   unborn L = 0; PS only P = L, H empty; clean P = L; owned P < L, |H| = 1; replicated P < L,
//   |H| >= 2.
#ifndef DP_DIRECTORY_H
#define DP_DIRECTORY_H

#include "runtime/rt_base.h"
#include "runtime/rt_hash.h"

#define DP_NO_COPY UINT32_MAX
#define DP_NO_RECORD UINT32_MAX
#define DP_NO_HOME 0xffu // the key was never trained

typedef struct {
    uint64_t key;
    uint32_t version; // L while there is no record
    uint32_t record;  // index + 1, or 0; version = record = 0: the entry is free
} dp_entry;
_Static_assert(sizeof(dp_entry) == 16, "four entries per cache line");

// The copies of a key in one set of caches.
typedef struct {
    uint64_t holders; // workers whose copy is the latest
    uint32_t first;   // chain of all copies, outdated ones too (dp_cache.h); or DP_NO_COPY
    uint32_t clock;   // c_g of bounded staleness (dp_stale.h), while there are copies; else 0
} dp_copies;

typedef struct {
    uint64_t key;
    dp_copies copies;    // holders: H, workers whose copy has version L
    dp_copies viewed;    // in the caches as decisions see them, see dp_viewed
    uint32_t version;    // L, last planned training iteration; 0: never trained
    uint32_t version_ps; // P, what the PS will have once all planned operations have executed
    uint32_t entry;      // in the table
    uint32_t seen;       // iteration whose batch had the key last
    uint8_t pulls;       // of version L that were planned (bounded staleness)
    uint8_t home;        // shard, or DP_NO_HOME; where homes are planned
} dp_record;
_Static_assert(sizeof(dp_record) == 64, "one cache line: a batch touches records at random");

typedef struct {
    dp_entry *entries;
    uint8_t *homes; // by entry, while it has no record: its shard; NULL: homes are not planned
    uint64_t home_counts[RT_SHARDS_MAX]; // keys on every shard, those with a record too
    uint64_t mask;                       // entries - 1
    dp_entry *next; // a larger table on its way, or NULL: of next_count, next_cleared are clear
    uint64_t next_count, next_cleared;
    uint64_t key_count;
    dp_record *records;
    uint32_t record_capacity;
    uint32_t record_count; // in use
    uint32_t *free_records;
    uint32_t free_count, free_capacity;
    uint32_t record_top; // records below were in use at some time
    bool has_stale;      // copies are trained that the versions do not know of (dp_stale.h)
} dp_directory;

// Room for keys_expected without growing (it grows beyond, too).
rt_status dp_directory_init(dp_directory *directory, uint64_t keys_expected);
void dp_directory_fini(dp_directory *directory);

// Before its first key: every key has a home, a shard, from then on. RT_NO_MEMORY.
rt_status dp_directory_keep_homes(dp_directory *directory);

// The home of a record's key changes, or it has its first.
void dp_directory_set_home(dp_directory *directory, dp_record *record, uint32_t shard);

// Makes sure that key_count more keys can be found without growing. RT_NO_MEMORY.
rt_status dp_directory_reserve(dp_directory *directory, uint32_t key_count);

// The same in steps of bounded work, for who has other things to do in between; *done_p: it was the
// last. step_work: about how many instructions the next one takes.
rt_status dp_directory_reserve_step(dp_directory *directory, uint32_t key_count, bool *done_p);
uint64_t dp_directory_step_work(const dp_directory *directory, uint32_t key_count);

// Room for so many records at once, which takes no work while the directory is empty; otherwise
// they grow with the keys. RT_NO_MEMORY.
rt_status dp_directory_expect(dp_directory *directory, uint64_t record_count);

static inline uint64_t dp_directory_home(const dp_directory *directory, uint64_t key)
{
    return rt_mix(key) & directory->mask;
}

// The record of key, made if there is none; needs room from dp_directory_reserve.
uint32_t dp_directory_find(dp_directory *directory, uint64_t key);

static inline void dp_directory_prefetch(const dp_directory *directory, uint32_t record)
{
    __builtin_prefetch(&directory->records[record], 1);
}

// The record of key, or DP_NO_RECORD; makes none. Several threads may peek at once.
uint32_t dp_directory_peek(const dp_directory *directory, uint64_t key);

// find in three steps, for many keys on several threads. Several may seek: home is
// dp_directory_home(directory, key), which a caller that fetched the entry ahead has at hand. One
// thread then reserves records for those that have none. What is left of making a record concerns
// nothing else: several threads may attach.
typedef struct {
    uint32_t record; // or DP_NO_RECORD
    uint32_t entry;  // the key's, or where it may come
    bool has_entry;
} dp_sought;
dp_sought dp_directory_seek(const dp_directory *directory, uint64_t key, uint64_t home);
void dp_directory_reserve_record(dp_directory *directory, uint64_t key, dp_sought *sought);
void dp_directory_attach(dp_directory *directory, uint64_t key, const dp_sought *sought);

// Whether it has an entry: it was trained, or is in the present batch. Makes none.
bool dp_directory_knows(const dp_directory *directory, uint64_t key);

// A key that is not there yet, at the PS in this version (> 0); home: its shard, where homes are
// planned. RT_NO_MEMORY.
rt_status dp_directory_add(dp_directory *directory, uint64_t key, uint32_t version, uint32_t home);

// Gives a record without copies back; its version stays in the table.
void dp_directory_release(dp_directory *directory, uint32_t record);

// The same in two parts, for who gives many back on several threads: what concerns the record's key
// alone, false where it was given back already; and the rest.
bool dp_directory_detach(dp_directory *directory, uint32_t record);
void dp_directory_reclaim(dp_directory *directory, uint32_t record);

// The iteration that trained a key last, or its version, if that is later.
static inline uint32_t dp_directory_age(const dp_directory *directory, const dp_record *record)
{
    if (directory->has_stale)
        return (uint32_t)rt_max_u64(record->version, record->seen);
    return record->version;
}

// Calls take with the age of every key, in no order that means anything.
void dp_directory_walk(const dp_directory *directory, void (*take)(void *context, uint32_t age),
                       void *context);

// Age of the rank-th newest key, from 1; 0 where there are fewer, or memory is short.
uint32_t dp_directory_newest(const dp_directory *directory, uint64_t rank);

// Forgets every key with a version below floor; none of them may have a record. Returns how many.
uint64_t dp_directory_erase_below(dp_directory *directory, uint32_t floor);

// L of a key, 0 if it was never trained. For tests and tools; no side effect.
uint32_t dp_directory_version(const dp_directory *directory, uint64_t key);

// Forgets a key that it knows and that has no record.
void dp_directory_erase(dp_directory *directory, uint64_t key);

// Bytes allocated.
uint64_t dp_directory_bytes(const dp_directory *directory);

// Every record is in a legal state of the protocol at iteration; false names the first that is not.
bool dp_directory_legal(const dp_directory *directory, rt_error *error);

#endif
