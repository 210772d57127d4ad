// ps_shard_parts - the inside of a shard. ps_shard.c makes it and hands each message to two
// functions: one that checks all of it and makes room, one that applies it. Those of rows are in
// ps_shard_rows.c, of sums of gradients in ps_shard_sums.c, of changes in ps_shard_delta.c, of
// what travels rounded in ps_shard_change.c; what they share in ps_shard_records.c; what concerns
// all rows at once in ps_shard_files.c; what outlives a shard in ps_shard_kept.c. Whatever changes,
// makes or ends a row says so to the images first (ps_images_keep, ps_images_born).
#ifndef PS_SHARD_PARTS_H
#define PS_SHARD_PARTS_H

#include <string.h>

#include "ps_lite/ps_dense.h"
#include "ps_lite/ps_shard.h"
#include "ps_lite/ps_table.h"
#include "runtime/numbers/rt_coding.h"
#include "runtime/rt_base.h"
#include "runtime/wire/rt_wire.h"

// ---- ps_left.c --------------------------------------------------------------------------------

// Keys whose rows have left this shard for another one (ps.homes "planned"), each with the cut that
// was the last before it left.
//
// A file of changes names these keys, because the files that it builds on still have their rows.
// The list goes back to the checkpoint before the newest complete one. One thread.

typedef struct {
    uint64_t key;
    uint32_t cut; // the last one before it left
    uint32_t unused;
} ps_left_key;

typedef struct {
    ps_left_key *keys;
    uint32_t count, capacity;
    uint32_t cut; // iteration of the last one, or of the checkpoint that was loaded
} ps_left;

void ps_left_fini(ps_left *left);

// RT_NO_MEMORY.
rt_status ps_left_add(ps_left *left, uint64_t key);

// A cut of an iteration, whose file has the changes since base: keys that left before base are
// forgotten, as nobody asks for them.
void ps_left_cut(ps_left *left, uint32_t iteration, uint32_t base);

// Keys that left after the cut of iteration base and have no row in the table now, ascending.
// *keys_p is the caller's. RT_NO_MEMORY.
rt_status ps_left_since(const ps_left *left, const ps_table *table, uint32_t base,
                        uint64_t **keys_p, uint32_t *count_p);

// ---- ps_aggregate.c ---------------------------------------------------------------------------

// Gradients of (key, iteration) that wait until all workers of their mask are in.
//
// For one thread. Gradients are kept apart until the sum is taken, because the sum is made in
// worker order whatever the order of arrival. Storage grows up to a bound, then stays.

typedef struct ps_aggregates ps_aggregates;

typedef struct {
    uint64_t key;
    uint64_t mask;      // workers of the sum
    uint64_t arrived;   // of them
    uint32_t iteration; // the version that the sum makes
    uint32_t base;      // the version that it applies to
    uint32_t step;      // of a gradient: as in rt_wire_grad
    uint32_t pulls;     // of a change (ps_shard_delta.c): as in rt_wire_delta
    uint64_t place;     // likewise: where the step stands (rt_optimizer_place)
    uint32_t gradients; // list in worker order; internal
} ps_aggregate;

// RT_NO_MEMORY leaves *aggregates_p untouched.
rt_status ps_aggregates_create(uint32_t dim, ps_aggregates **aggregates_p);
void ps_aggregates_destroy(ps_aggregates *aggregates);

// Room for count more sums and count more gradients; pointers from find may move. RT_NO_MEMORY.
rt_status ps_aggregates_reserve(ps_aggregates *aggregates, uint32_t count);

// NULL when there is none. Pointers are valid until the next reserve or close.
ps_aggregate *ps_aggregates_find(ps_aggregates *aggregates, uint64_t key, uint32_t iteration);

// Walks over the sums of a key, in no order: NULL starts, NULL ends.
ps_aggregate *ps_aggregates_next(ps_aggregates *aggregates, uint64_t key,
                                 const ps_aggregate *after);

// A new, empty sum, after a reserve. The caller fills the rest in.
ps_aggregate *ps_aggregates_open(ps_aggregates *aggregates, uint64_t key, uint32_t iteration);

// Copies a worker's gradient (dim floats, any alignment), after a reserve.
void ps_aggregates_add(ps_aggregates *aggregates, ps_aggregate *aggregate, uint32_t worker,
                       const void *gradient);

// ((g_a + g_b) + g_c) + ... in ascending worker order, over all that are in.
void ps_aggregates_sum(const ps_aggregates *aggregates, const ps_aggregate *aggregate, float *sum);

// Forgets the sum and its gradients.
void ps_aggregates_close(ps_aggregates *aggregates, ps_aggregate *aggregate);

uint32_t ps_aggregates_count(const ps_aggregates *aggregates);
uint32_t ps_aggregates_gradients(const ps_aggregates *aggregates); // buffered now

// ---- ps_parked.c ------------------------------------------------------------------------------

// Pulls that wait for a version their row does not have yet.
//
// A multimap key -> pulls, for one thread. Storage grows up to a bound given at creation, then
// stays. Pulls of one key come out by version, those of one version in the order they were parked.

typedef struct ps_parked ps_parked;

typedef struct {
    uint64_t key;
    uint64_t iteration; // of the pull's message
    uint32_t version;   // that is awaited
    uint32_t tag;
    uint32_t worker;
} ps_parked_pull;

rt_status ps_parked_create(ps_parked **parked_p);
void ps_parked_destroy(ps_parked *parked);

// Room for count more. RT_NO_MEMORY: unchanged.
rt_status ps_parked_reserve(ps_parked *parked, uint32_t count);

// After a reserve.
void ps_parked_add(ps_parked *parked, const ps_parked_pull *pull);

// Takes out the next pull of the key that awaits at most version; false when there is none.
bool ps_parked_take(ps_parked *parked, uint64_t key, uint32_t version, ps_parked_pull *pull);

uint32_t ps_parked_count(const ps_parked *parked);

// ---- ps_outbox.c ------------------------------------------------------------------------------

// Messages on their way from a shard to its workers.
//
// Records gather in open messages, one per (worker, type, iteration), each sent when it is full or
// at flush. What the transport does not take (RT_AGAIN) waits in a bounded queue per worker, in
// order. One thread.

typedef struct ps_outbox ps_outbox;

typedef struct {
    uint32_t self; // rt_peer of the sender
    uint32_t epoch;
    uint32_t worker_count;
    uint32_t message_bytes;      // payload of a full message, about
    uint32_t queue_messages_max; // per worker
    // Takes the message on RT_OK; RT_AGAIN: offered again later. Anything else ends the run.
    rt_status (*send)(void *context, uint32_t peer, rt_message *message);
    void *context;
} ps_outbox_config;

rt_status ps_outbox_create(const ps_outbox_config *config, ps_outbox **outbox_p);
void ps_outbox_destroy(ps_outbox *outbox); // drops what was not sent

// The epoch of the messages from now on; before the first one.
void ps_outbox_begin_epoch(ps_outbox *outbox, uint32_t epoch);

// Room for one record of size bytes in the open message; the caller fills it at once. Errors as
// ps_outbox_send.
rt_status ps_outbox_record(ps_outbox *outbox, uint32_t worker, rt_message_type type,
                           uint64_t iteration, size_t size, uint8_t **record_p, rt_error *error);

// Sends or queues a whole message, which is taken in every case. RT_LIMIT: the worker's queue is
// full (error names it); RT_NO_MEMORY; or what send returned.
rt_status ps_outbox_send(ps_outbox *outbox, uint32_t worker, rt_message *message, rt_error *error);

// A message without payload.
rt_status ps_outbox_notify(ps_outbox *outbox, uint32_t worker, rt_message_type type,
                           uint64_t iteration, rt_error *error);

// Sends the same bytes to every one of these workers (a mask, not empty), without a copy each; the
// message is taken.
rt_status ps_outbox_send_to(ps_outbox *outbox, uint64_t workers, rt_message *message,
                            rt_error *error);

// Sends all queues and open messages. RT_AGAIN: some are left; call again. Errors as send.
rt_status ps_outbox_flush(ps_outbox *outbox, rt_error *error);

// -----------------------------------------------------------------------------------------------

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
