#include "dispatch/planner/dp_turnover.h"

#include <inttypes.h>
#include <string.h>

rt_status dp_turnover_init(dp_turnover *turnover, uint32_t worker_count)
{
    *turnover = (dp_turnover){.owned = rt_alloc(worker_count, sizeof *turnover->owned)};
    if (!turnover->owned)
        return RT_NO_MEMORY;
    return RT_OK;
}

void dp_turnover_fini(dp_turnover *turnover)
{
    rt_free(turnover->owned);
    turnover->owned = NULL;
}

void dp_turnover_begin(dp_turnover *turnover)
{
    memset(turnover->workers, 0, sizeof turnover->workers);
}

void dp_turnover_expect(const dp_turnover *turnover, const dp_cache *caches, const dp_ticks *ticks,
                        int32_t *evict)
{
    for (uint32_t j = 0; j < ticks->worker_count; j++) {
        uint64_t push = 0, shares = (uint64_t)caches[j].occupied * turnover->workers[j].fills;
        for (uint32_t f = 0; f < ticks->field_count; f++)
            push += (uint64_t)turnover->owned[j][f] * (uint64_t)ticks->push[f][j];
        evict[j] = 0;
        if (shares)
            evict[j] = (int32_t)((unsigned __int128)push * turnover->workers[j].evictions / shares);
    }
}

static bool is_right(const dp_turnover *turnover, const dp_directory *directory, uint32_t worker,
                     rt_error *error)
{
    uint32_t owned[RT_FIELDS_MAX] = {0};
    for (uint64_t i = 0; i <= directory->mask; i++) {
        const dp_entry *entry = &directory->entries[i];
        if (!entry->record)
            continue;
        const dp_record *record = &directory->records[entry->record - 1];
        if (record->version_ps < record->version && record->copies.holders == rt_bit(worker))
            owned[rt_key_field(record->key)]++;
    }
    for (uint32_t f = 0; f < RT_FIELDS_MAX; f++) {
        if (owned[f] != turnover->owned[worker][f]) {
            rt_fail(error, RT_CONFIG,
                    "worker %" PRIu32 " owns %" PRIu32 " rows of field %" PRIu32 ", not %" PRIu32,
                    worker, owned[f], f, turnover->owned[worker][f]);
            return false;
        }
    }
    return true;
}

bool dp_turnover_legal(const dp_turnover *turnover, const dp_directory *directory,
                       uint32_t worker_count, rt_error *error)
{
    for (uint32_t j = 0; j < worker_count; j++) {
        if (!is_right(turnover, directory, j, error))
            return false;
    }
    return true;
}
