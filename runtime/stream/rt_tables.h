// rt_tables - which table of rows a field uses: fields of one table share its rows (stream.tables).
//
// Streams, and who asks a model, say a key with its field in the top byte. A row's key has its
// table there: the number of the first field that uses it. So where no table is shared both are the
// same, and no key changes when a field comes behind the others.
//
// Planners want every row of a sample once. rt_tables_fold makes that of a batch: its keys become
// those of rows, each once in a sample, and look-ups say which field uses which (rt_batch.h).
#ifndef RT_TABLES_H
#define RT_TABLES_H

#include "runtime/config/rt_config.h"
#include "runtime/rt_hash.h"
#include "runtime/stream/rt_batch.h"

typedef struct rt_tables {
    bool are_shared; // otherwise every field is its own table, and nothing below is filled in
    uint32_t field_count;
    uint8_t of[RT_FIELDS_MAX];   // by field
    bool borrows[RT_FIELDS_MAX]; // the rows are another's: a missing value has none
    // By field, what its ids are above those of its table: libsvm's indices count on from field to
    // field. Taken off modulo 2^64.
    uint64_t shifts[RT_FIELDS_MAX];
} rt_tables;

// The table of a field.
static inline uint32_t rt_tables_of(const rt_tables *tables, uint32_t field)
{
    return tables->are_shared ? tables->of[field] : field;
}

// A field's key that names no row: an empty list has nothing of the table's.
static inline bool rt_tables_is_none(const rt_tables *tables, uint64_t key)
{
    return tables->are_shared && tables->borrows[rt_key_field(key)] &&
           (key & RT_ID_MASK) == RT_ID_MISSING;
}

// The key of the row that a field's key names, and back.
static inline uint64_t rt_tables_row_key(const rt_tables *tables, uint64_t key)
{
    const uint32_t field = rt_key_field(key);
    const uint64_t id = key & RT_ID_MASK;
    if (!tables->are_shared)
        return key;
    return rt_key(tables->of[field], id == RT_ID_MISSING ? id : id - tables->shifts[field]);
}

static inline uint64_t rt_tables_field_key(const rt_tables *tables, uint32_t field,
                                           uint64_t row_key)
{
    const uint64_t id = row_key & RT_ID_MASK;
    return rt_key(field, id == RT_ID_MISSING ? id : id + tables->shifts[field]);
}

// names: of the fields. RT_CONFIG: stream.tables names a field that is none, or fields whose ids
// mean different things.
rt_status rt_tables_find(const rt_stream_config *config, const char (*names)[RT_NAME_MAX],
                         uint32_t field_count, rt_tables *tables, rt_error *error);

// Keys of fields become keys of rows, with look-ups; nothing where no table is shared. tables stays
// as long as the batch is folded. RT_NO_MEMORY: unchanged.
rt_status rt_tables_fold(const rt_tables *tables, rt_batch *batch);

#endif
