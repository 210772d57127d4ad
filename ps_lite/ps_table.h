// ps_table - embedding rows of one shard: key -> version and a row of floats.
//
// One thread owns a table; rows live until they are erased and move only then. Memory is bounded:
// at the bound no row is added (RT_CONFIG), present rows keep working. When the index (16 bytes an
// entry) is full, it doubles, a few entries with every reserve, so that no call takes long; rows
// stay where they are. While it does, the old index exists beside the new one, on top of the bound.
// The floats of rows may stand in a ps_store, on disk; index and keys are always in memory.
#ifndef PS_TABLE_H
#define PS_TABLE_H

#include "ps_lite/ps_store.h"

typedef struct ps_table ps_table;

typedef struct {
    uint32_t row_floats;       // values and optimizer state, >= 1
    uint64_t memory_bytes_max; // index and rows
    bool is_on_disk;           // the floats, in
    ps_store *store;           // ... this, of this table alone; the caller's
} ps_table_config;

// An index entry. Pointers to entries are valid until the next reserve.
typedef struct {
    uint64_t key;
    uint32_t version; // the caller's; 0 after insert
    uint32_t row;     // row number + 1; 0: empty entry
} ps_entry;
_Static_assert(sizeof(ps_entry) == 16, "four to a cache line");

// RT_NO_MEMORY leaves *table_p untouched.
rt_status ps_table_create(const ps_table_config *config, ps_table **table_p);
void ps_table_destroy(ps_table *table);

// NULL when the key has no row.
ps_entry *ps_table_find(const ps_table *table, uint64_t key);

typedef struct {
    ps_entry *entry; // NULL: the key has no row
    float *row;
} ps_found;

// Starts loading the index lines of keys; call it some keys ahead of find_all.
void ps_table_prefetch(const ps_table *table, const uint64_t *keys, uint32_t count);

// Finds keys and starts loading the first lines of their rows.
void ps_table_find_all(const ps_table *table, const uint64_t *keys, uint32_t count,
                       ps_found *found);

// Whether rows are on disk: then it pays to announce those of many keys before they are used.
bool ps_table_is_on_disk(const ps_table *table);

// Starts reading the entry's row, where it is on disk.
void ps_table_will_need(const ps_table *table, const ps_entry *entry);

// row_floats floats, 64-byte aligned where that costs at most an eighth, else 16-byte aligned.
float *ps_table_row(const ps_table *table, const ps_entry *entry);

// Makes sure that the next count inserts succeed and move no entry. RT_CONFIG: the bound would be
// passed (error names it, the rows held, and the config key), or the store's; RT_NO_MEMORY; the
// store's errors. Then nothing changed.
rt_status ps_table_reserve(ps_table *table, uint64_t count, rt_error *error);

// Adds a row for a key that has none, after a reserve. The row's floats are not initialised.
ps_entry *ps_table_insert(ps_table *table, uint64_t key);

// Erases every row whose version is below floor; the last rows move into the gaps, and blocks of
// rows that are empty then are freed but for one. It is done a part at a time: *at is 0 before the
// first, and true means that it is to be called again. Nothing else may be done meanwhile but to
// read.
bool ps_table_erase_below(ps_table *table, uint32_t floor, uint64_t *at);

// Erases the row of one key, and its floats from memory. False: there is none.
bool ps_table_erase(ps_table *table, uint64_t key);

// What a table with so many rows takes in memory: memory_bytes_max must be at least that. No store
// is needed.
uint64_t ps_table_bytes_for(const ps_table_config *config, uint64_t row_count);

uint64_t ps_table_count(const ps_table *table);
uint64_t ps_table_bytes(const ps_table *table); // in memory

// Key of a row number, 0 to count - 1; in order of insertion, until rows are erased.
uint64_t ps_table_key(const ps_table *table, uint64_t row);

// Every entry once, in the order of the index, which is read from front to back (the old one after
// the new one): *at is 0 before the first. NULL: there are no more. Nothing may be inserted
// meanwhile.
const ps_entry *ps_table_next(const ps_table *table, uint64_t *at);

#endif
