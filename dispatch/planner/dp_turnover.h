// dp_turnover - what a fill costs beyond its transfer: the push of the row that makes room.
//
// ESD names the eviction cost as future work. The expected push of a fill on worker j, in ticks, is
//
//     e_j = floor( sum over fields f of d_jf push_jf / s_j  x  v_j / f_j )
//
// d_jf: rows of field f that only j holds and the PS lacks, so that evicting them needs a push;
// s_j: occupied slots of j; so the first factor is the push of an average row. v_j, f_j: evictions
// and fills of j in the iteration before, so the second is the share of fills for which a row had
// to go: 0 while there is room, 1 when no slot becomes free otherwise. All of them as they are at
// the look-up. No fill, no cost.
#ifndef DP_TURNOVER_H
#define DP_TURNOVER_H

#include "dispatch/cache/dp_cache.h"
#include "dispatch/cost/dp_view.h"

// Of one iteration and worker; several threads count, each a worker's.
typedef struct {
    uint32_t fills, evictions;
} __attribute__((aligned(64))) dp_worker_turnover;

typedef struct {
    uint32_t (*owned)[RT_FIELDS_MAX]; // d, by worker and field
    dp_worker_turnover workers[RT_WORKERS_MAX];
} dp_turnover;

rt_status dp_turnover_init(dp_turnover *turnover, uint32_t worker_count);
void dp_turnover_fini(dp_turnover *turnover);

// Around every change of a record's versions and holders: the first before, the second after it.
static inline void dp_turnover_leave(dp_turnover *turnover, const dp_record *record)
{
    if (record->version_ps < record->version && rt_bits_one(record->copies.holders))
        turnover->owned[rt_lowest_bit(record->copies.holders)][rt_key_field(record->key)]--;
}
static inline void dp_turnover_enter(dp_turnover *turnover, const dp_record *record)
{
    if (record->version_ps < record->version && rt_bits_one(record->copies.holders))
        turnover->owned[rt_lowest_bit(record->copies.holders)][rt_key_field(record->key)]++;
}

// An iteration begins: its fills and evictions are counted from zero.
void dp_turnover_begin(dp_turnover *turnover);

// e_j of every worker; caches and ticks: of worker_count workers.
void dp_turnover_expect(const dp_turnover *turnover, const dp_cache *caches, const dp_ticks *ticks,
                        int32_t *evict);

// The counts are those of the directory; false says which is not. For tests: walks everything.
bool dp_turnover_legal(const dp_turnover *turnover, const dp_directory *directory,
                       uint32_t worker_count, rt_error *error);

#endif
