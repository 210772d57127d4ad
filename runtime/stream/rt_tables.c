#include "runtime/stream/rt_tables.h"

#include <inttypes.h>
#include <string.h>

#define KEY "stream.tables"

// ---- which fields share ----------------------------------------------------------------------

static uint32_t find_field(const char (*names)[RT_NAME_MAX], uint32_t field_count, const char *name,
                           size_t length)
{
    uint32_t f = 0;
    while (f < field_count && (strlen(names[f]) != length || memcmp(names[f], name, length) != 0))
        f++;
    return f;
}

// Names may hold a "=": the first one with a field on either side counts.
static rt_status find_pair(const char (*names)[RT_NAME_MAX], uint32_t field_count, const char *pair,
                           uint32_t *user_p, uint32_t *owner_p, rt_error *error)
{
    for (const char *at = strchr(pair, '='); at; at = strchr(at + 1, '=')) {
        *user_p = find_field(names, field_count, pair, (size_t)(at - pair));
        *owner_p = find_field(names, field_count, at + 1, strlen(at + 1));
        if (*user_p < field_count && *owner_p < field_count && *user_p != *owner_p)
            return RT_OK;
    }
    return rt_fail(error, RT_CONFIG,
                   KEY ": \"%s\" does not name two fields of the stream, expected "
                       "\"FIELD=OTHER\": the rows of OTHER are FIELD's too",
                   pair);
}

static const rt_column *find_column(const rt_stream_config *config, const char *name)
{
    for (uint32_t i = 0; i < config->table.column_count; i++)
        if (strcmp(config->table.columns[i].name, name) == 0)
            return &config->table.columns[i];
    return NULL;
}

// What an id of a column is: fields that share rows have the same.
typedef struct {
    rt_id_kind id;
    rt_transform transform;
    bool is_cross;
} id_meaning;

static id_meaning meaning_of(const rt_column *column)
{
    const bool is_plain = column->transform == RT_TRANSFORM_NONE && column->from_count < 2;
    return (id_meaning){is_plain ? column->id : RT_ID_HASH, column->transform,
                        column->from_count > 1};
}

static rt_status check_ids(const rt_stream_config *config, const char *user, const char *owner,
                           rt_error *error)
{
    if (!rt_format_has(config->format, RT_HAS_COLUMNS))
        return RT_OK;
    const rt_column *one = find_column(config, user), *other = find_column(config, owner);
    const id_meaning a = meaning_of(one), b = meaning_of(other);
    if (a.id == b.id && a.transform == b.transform && a.is_cross == b.is_cross)
        return RT_OK;
    return rt_fail(error, RT_CONFIG,
                   KEY ": columns %s and %s make ids in different ways (id, transform, from), so "
                       "that no value of one is a row of the other",
                   user, owner);
}

// Both are of one table from now on, that of the lower number.
static void unite(rt_tables *tables, uint32_t a, uint32_t b)
{
    const uint8_t low = (uint8_t)rt_min_u64(tables->of[a], tables->of[b]);
    const uint8_t high = (uint8_t)rt_max_u64(tables->of[a], tables->of[b]);
    for (uint32_t f = 0; f < tables->field_count; f++)
        if (tables->of[f] == high)
            tables->of[f] = low;
}

rt_status rt_tables_find(const rt_stream_config *config, const char (*names)[RT_NAME_MAX],
                         uint32_t field_count, rt_tables *tables, rt_error *error)
{
    memset(tables, 0, sizeof *tables);
    tables->are_shared = config->shared_count > 0;
    tables->field_count = field_count;
    for (uint32_t f = 0; f < field_count && tables->are_shared; f++)
        tables->of[f] = (uint8_t)f;
    for (uint32_t i = 0; i < config->shared_count; i++) {
        uint32_t user = 0, owner = 0;
        rt_status status = find_pair(names, field_count, config->shared[i], &user, &owner, error);
        if (!status)
            status = check_ids(config, names[user], names[owner], error);
        if (status)
            return status;
        unite(tables, user, owner);
        tables->borrows[user] = true;
    }
    if (!tables->are_shared || !rt_format_has(config->format, RT_HAS_INDICES))
        return RT_OK;
    for (uint32_t f = 0; f < config->libsvm.field_count; f++)
        tables->shifts[f] = config->libsvm.fields[f] - config->libsvm.fields[tables->of[f]];
    return RT_OK;
}

// ---- every row once --------------------------------------------------------------------------

static rt_status reserve(const rt_tables *tables, rt_batch *batch, uint32_t *slot_count_p)
{
    uint32_t most = 1, slots = 16;
    for (uint32_t i = 0; i < batch->sample_count; i++) {
        const uint32_t count = batch->key_offsets[i + 1] - batch->key_offsets[i];
        most = (uint32_t)rt_max_u64(most, count);
    }
    while (slots < 2 * most)
        slots *= 2;
    *slot_count_p = slots;
    if (rt_grow(&batch->lookups, &batch->lookup_capacity, batch->key_count, sizeof(uint32_t)) ||
        rt_grow(&batch->bag_offsets, &batch->bag_capacity,
                (uint64_t)batch->sample_count * tables->field_count + 1, sizeof(uint32_t)) ||
        rt_grow(&batch->fold_slots, &batch->fold_capacity, slots, sizeof(rt_batch_slot)))
        return RT_NO_MEMORY;
    memset(batch->fold_slots, 0, slots * sizeof *batch->fold_slots);
    return RT_OK;
}

// Where the key is among those of the sample, whose number (from 1) is stamp; at *count_p, if it is
// not yet.
static uint32_t place_of(rt_batch *batch, uint32_t slot_count, uint32_t stamp, uint64_t key,
                         uint32_t *count_p)
{
    uint32_t at = (uint32_t)rt_mix(key) & (slot_count - 1);
    for (; batch->fold_slots[at].stamp == stamp; at = (at + 1) & (slot_count - 1))
        if (batch->keys[batch->fold_slots[at].place] == key)
            return batch->fold_slots[at].place;
    batch->fold_slots[at] = (rt_batch_slot){stamp, *count_p};
    batch->keys[*count_p] = key;
    return (*count_p)++;
}

rt_status rt_tables_fold(const rt_tables *tables, rt_batch *batch)
{
    uint32_t slots, kept = 0, at = 0, lookup = 0, bag = 0;
    if (!tables->are_shared)
        return RT_OK;
    rt_assert(!batch->tables);
    if (reserve(tables, batch, &slots))
        return RT_NO_MEMORY;
    for (uint32_t i = 0; i < batch->sample_count; i++) {
        const uint32_t end = batch->key_offsets[i + 1];
        batch->key_offsets[i] = kept;
        for (uint32_t f = 0; f < tables->field_count; f++) {
            batch->bag_offsets[bag++] = lookup;
            for (; at < end && rt_key_field(batch->keys[at]) == f; at++) {
                // Keys are written no further than they were read.
                const uint64_t key = rt_tables_row_key(tables, batch->keys[at]);
                if (rt_tables_is_none(tables, batch->keys[at]))
                    batch->has_gaps = true;
                else
                    batch->lookups[lookup++] = place_of(batch, slots, i + 1, key, &kept);
            }
        }
        rt_assert(at == end);
    }
    batch->bag_offsets[bag] = lookup;
    batch->key_offsets[batch->sample_count] = kept;
    batch->lookup_count = lookup;
    batch->key_count = kept;
    batch->tables = tables;
    return RT_OK;
}
