// ps_shard_parts - the inside of a shard, for ps_shard.c and ps_shard_delta.c.
#ifndef PS_SHARD_PARTS_H
#define PS_SHARD_PARTS_H

#include <string.h>

#include "ps_lite/ps_aggregate.h"
#include "ps_lite/ps_dense.h"
#include "ps_lite/ps_outbox.h"
#include "ps_lite/ps_parked.h"
#include "ps_lite/ps_shard.h"

struct ps_shard {
    ps_shard_config config;
    uint32_t row_floats;    // values and state
    uint32_t gradients_max; // waiting
    uint64_t workers;       // mask of all
    ps_table *table;
    ps_parked *parked;
    ps_aggregates *aggregates;
    ps_dense *dense;
    ps_outbox *outbox;
    float *sum;              // row_floats
    ps_aggregates *deltas;   // that wait, of row_floats, pull_tag: pulls of the base; or NULL
    uint32_t *parked_counts; // per worker, pulls of rows and of sums
    uint32_t floor;          // rows of versions below have ended; 0: none have
    ps_shard_statistics statistics;
};

// A message of a worker, taken apart. Every record starts with its key.
typedef struct {
    rt_message_type type;
    uint32_t worker;
    uint64_t iteration;
    uint32_t count;
    size_t record_size; // with its floats
    const uint8_t *records;
} ps_request;

static inline const uint8_t *ps_record_at(const ps_request *in, uint32_t i)
{
    return in->records + i * in->record_size;
}

// RT_WIRE: the key is another shard's.
rt_status ps_shard_check_key(const ps_shard *shard, const ps_request *in, uint64_t key,
                             rt_error *error);

// Room for the rows that a message may create; entries do not move afterwards.
rt_status ps_shard_reserve_rows(ps_shard *shard, const ps_request *in, rt_error *error);

// With its initial values and state. After a reserve; the key has no row.
ps_entry *ps_shard_create_row(ps_shard *shard, uint64_t key);

// Answers the pulls that wait for the row's version.
rt_status ps_shard_wake_pulls(ps_shard *shard, ps_entry *entry, rt_error *error);

// ---- ps_shard_homes.c: rows that have another home ----

rt_status ps_shard_check_forgets(ps_shard *shard, const ps_request *in, rt_error *error);
rt_status ps_shard_apply_forgets(ps_shard *shard, const ps_request *in, rt_error *error);

// ---- ps_shard_delta.c: bounded staleness ----

// Pulls of the row's version that were answered: behind values and state.
static inline uint32_t ps_row_pulls(const ps_shard *shard, const float *row)
{
    uint32_t pulls;
    memcpy(&pulls, row + shard->row_floats, sizeof pulls);
    return pulls;
}
static inline void ps_row_set_pulls(const ps_shard *shard, float *row, uint32_t pulls)
{
    memcpy(row + shard->row_floats, &pulls, sizeof pulls);
}

// Adds the changes whose turn has come, after the row's version or pulls have changed.
rt_status ps_shard_add_waiting(ps_shard *shard, ps_entry *entry, rt_error *error);

rt_status ps_shard_check_deltas(ps_shard *shard, const ps_request *in, rt_error *error);
rt_status ps_shard_apply_deltas(ps_shard *shard, const ps_request *in, rt_error *error);

#endif
