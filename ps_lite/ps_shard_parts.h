// ps_shard_parts - the inside of a shard. ps_shard.c makes it and hands each message to two
// functions: one that checks all of it and makes room, one that applies it. Those of rows are in
// ps_shard_rows.c, of sums of gradients in ps_shard_sums.c, of changes in ps_shard_delta.c, of
// what travels rounded in ps_shard_change.c; what they share in ps_shard_records.c; what concerns
// all rows at once in ps_shard_files.c; what outlives a shard in ps_shard_kept.c. Whatever changes,
// makes or ends a row says so to the images first (ps_images_keep, ps_images_born).
#ifndef PS_SHARD_PARTS_H
#define PS_SHARD_PARTS_H

#include <string.h>

#include "ps_lite/ps_aggregate.h"
#include "ps_lite/ps_dense.h"
#include "ps_lite/ps_left.h"
#include "ps_lite/ps_outbox.h"
#include "ps_lite/ps_parked.h"
#include "ps_lite/ps_shard.h"
#include "runtime/numbers/rt_coding.h"

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
    uint32_t *parked_counts; // per worker, pulls
    uint32_t floor;          // rows of versions below have ended; 0: none have
    ps_left left;            // config.names_left
    ps_images images;
    ps_shard_statistics statistics;
};

static inline ps_table_config ps_shard_table_config(const ps_shard *shard)
{
    // Where changes are added, every row has its number of pulls behind it.
    return (ps_table_config){shard->row_floats + shard->config.adds_deltas,
                             shard->config.memory_bytes_max, shard->config.store != NULL,
                             shard->config.store};
}

// A message of a worker, taken apart. Every record starts with its key.
typedef struct {
    rt_message_type type;
    uint32_t worker;
    uint64_t iteration;
    uint64_t place; // PUSH_GRAD: rt_optimizer_place
    uint32_t count;
    size_t record_size; // with its floats
    const uint8_t *records;
} ps_request;

static inline const uint8_t *ps_record_at(const ps_request *in, uint32_t i)
{
    return in->records + i * in->record_size;
}

// ps_key_at, ps_pull_at, ...: the head of record i. Records of odd dimensions stand at any multiple
// of 4.
#define PS_HEAD_MAP(XX)        \
    XX(key, uint64_t)          \
    XX(pull, rt_wire_pull)     \
    XX(row, rt_wire_row)       \
    XX(grad, rt_wire_grad)     \
    XX(change, rt_wire_change) \
    XX(delta, rt_wire_delta)
#define XX(name, type)                                                  \
    static inline type ps_##name##_at(const ps_request *in, uint32_t i) \
    {                                                                   \
        type head;                                                      \
        memcpy(&head, ps_record_at(in, i), sizeof head);                \
        return head;                                                    \
    }
PS_HEAD_MAP(XX)
#undef XX

// ---- ps_shard_records.c ----------------------------------------------------------------------

// RT_WIRE, naming worker, message, iteration and key.
__attribute__((format(printf, 4, 5))) rt_status ps_reject(const ps_request *in, uint64_t key,
                                                          rt_error *error, const char *format, ...);

// RT_WIRE: the key is another shard's.
rt_status ps_shard_check_key(const ps_shard *shard, const ps_request *in, uint64_t key,
                             rt_error *error);

// RT_WIRE: likewise, or no row of this version can be pushed now.
rt_status ps_shard_check_version(ps_shard *shard, const ps_request *in, uint64_t key,
                                 uint32_t version, rt_error *error);

// Room for the rows that a message may create; entries do not move afterwards.
rt_status ps_shard_reserve_rows(ps_shard *shard, const ps_request *in, rt_error *error);

// With its initial values and state. After a reserve; the key has no row.
ps_entry *ps_shard_create_row(ps_shard *shard, uint64_t key);

// Where rows are on disk, starts reading those of all records.
void ps_shard_announce_rows(const ps_shard *shard, const ps_request *in);

// RT_LIMIT: with these more pulls of the worker would wait than may.
rt_status ps_shard_check_parked(const ps_shard *shard, const ps_request *in, rt_error *error);

#define PS_BLOCK 32u // records whose index lines and rows load while others are worked on

// The rows of up to PS_BLOCK records from `from` on, on their way into the processor's cache, as
// are the index lines of the block after that. How many.
uint32_t ps_shard_find_block(const ps_shard *shard, const ps_request *in, uint32_t from,
                             ps_found found[PS_BLOCK]);

// An answer for the worker: head, then count floats.
rt_status ps_shard_write_row(ps_shard *shard, uint32_t worker, rt_message_type type,
                             uint64_t iteration, rt_wire_row head, const float *floats,
                             uint32_t count, rt_error *error);

// ---- ps_shard_rows.c: PULL, PUSH_ROW ---------------------------------------------------------

// Answers the pulls that wait for the row's version.
rt_status ps_shard_wake_pulls(ps_shard *shard, ps_entry *entry, rt_error *error);

rt_status ps_shard_check_pulls(ps_shard *shard, const ps_request *in, rt_error *error);
rt_status ps_shard_apply_pulls(ps_shard *shard, const ps_request *in, rt_error *error);
rt_status ps_shard_check_rows(ps_shard *shard, const ps_request *in, rt_error *error);
rt_status ps_shard_apply_rows(ps_shard *shard, const ps_request *in, rt_error *error);

// ---- ps_shard_sums.c: PUSH_GRAD --------------------------------------------------------------

// After a change of the row's version: answers pulls of it, steps by the sum that waited for it,
// and so on.
rt_status ps_shard_row_changed(ps_shard *shard, ps_entry *entry, rt_error *error);

rt_status ps_shard_check_grads(ps_shard *shard, const ps_request *in, rt_error *error);
rt_status ps_shard_apply_grads(ps_shard *shard, const ps_request *in, rt_error *error);

// ---- ps_shard_homes.c: rows that have another home -------------------------------------------

rt_status ps_shard_check_forgets(ps_shard *shard, const ps_request *in, rt_error *error);
rt_status ps_shard_apply_forgets(ps_shard *shard, const ps_request *in, rt_error *error);

// ---- ps_shard_change.c: rows and gradients that travel rounded -------------------------------

// A row, its values rounded unless the tag asks for them whole, with state where it asks for that;
// an initial row as it is.
rt_status ps_shard_answer_coded(ps_shard *shard, uint32_t worker, uint64_t iteration,
                                rt_wire_row head, const float *row, rt_error *error);

// head, dim values in words of coding, so many floats of state behind them: into a message to a
// worker.
rt_status ps_shard_write_coded(ps_shard *shard, uint32_t worker, rt_message_type type,
                               uint64_t iteration, rt_wire_row head, rt_coding coding,
                               const float *row, uint32_t state, rt_error *error);

// Words behind the head of a PUSH_CHANGE.
uint32_t ps_shard_change_floats(const ps_shard *shard);

rt_status ps_shard_check_changes(ps_shard *shard, const ps_request *in, rt_error *error);
rt_status ps_shard_apply_changes(ps_shard *shard, const ps_request *in, rt_error *error);

// *whole_p: the PUSH_GRAD or PUSH_DELTA that a coded one stands for, the caller's. RT_WIRE,
// RT_NO_MEMORY.
rt_status ps_shard_decode_push(const ps_shard *shard, uint32_t worker, const rt_message *message,
                               rt_message *whole_p, rt_error *error);

// ---- ps_shard_delta.c: bounded staleness -----------------------------------------------------

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
