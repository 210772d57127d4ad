// ps_shard - one shard of the parameter server: a state machine over messages, without sockets.
//
// Holds the rows of its keys and answers workers: pulls wait until their row has the version that
// they name, gradients wait until all workers of their mask are in, nothing else waits. The rules
// are the PS column of docs/PROTOCOL.md. One thread; every queue has a bound in the config.
//
// Bit-exactness: the gradients of (key, iteration) and the dense gradients are summed in ascending
// worker order whatever the order of arrival.
//
// Changes of a row (PUSH_DELTA) are added in the order of their versions: each when the row has the
// version that it names and all pulls of that one were answered.
//
// Dense gradients (ps_dense): every shard has its part of the vector.
#ifndef PS_SHARD_H
#define PS_SHARD_H

#include "ps_lite/ps_model_file.h"
#include "ps_lite/ps_snapshot.h"
#include "ps_lite/ps_table.h"
#include "ps_lite/ps_weights.h"
#include "runtime/numbers/rt_optimizer.h"
#include "runtime/wire/rt_control.h"

// ---- ps_images.c ------------------------------------------------------------------------------

// How rows were at the newest checkpoints: a log of first changes, which is undone from its end.
//
// A cut begins a generation. A row's version tells whether the row has changed since the cut. Its
// first change logs the row as it was before, or that there was none; what is logged of the row
// later makes no difference, as a generation is undone from its end. Undoing it gives the rows of
// its cut, and may be interrupted and begun again. There are at most two generations: one for the
// newest complete checkpoint, and one for the cut behind it. At bytes_max, or out of memory, all
// images are given up until the next cut; that is never an error, since files have the same rows.
// One thread.
//
// A checkpoint is known by its iteration and its lineage (rt_control_lineage). The lineage is made
// of the sums of the shard's files in that checkpoint.

#define PS_GENERATIONS 2u

typedef struct ps_image_block ps_image_block;

typedef struct {
    uint32_t iteration;     // of the cut; 0: there is none
    uint64_t base, lineage; // of what its file builds on, and its own; 0: not known
    ps_image_block *newest;
} ps_generation;

typedef struct {
    uint32_t row_floats;
    uint64_t bytes, bytes_max; // 0: none are kept
    uint32_t until;            // rows of versions up to this have not changed; see ps_images_keep
    uint32_t count;
    ps_generation of[PS_GENERATIONS]; // from old to new
} ps_images;

void ps_images_init(ps_images *images, uint32_t row_floats, uint64_t bytes_max);

// Drops all images, and their bytes from memory, until the next cut.
void ps_images_give_up(ps_images *images);

// The rows are those of a checkpoint, which was loaded.
void ps_images_begin(ps_images *images, uint32_t iteration, uint64_t lineage);

// A cut is captured. Its file has the changes since the cut of base (0: it has all rows). complete:
// iteration of the newest complete checkpoint; a cut that never became one is forgotten.
void ps_images_cut(ps_images *images, const ps_table *table, uint32_t iteration, uint32_t base,
                   uint32_t complete);

// The file of the newest cut is written.
void ps_images_written(ps_images *images, uint32_t iteration, uint64_t bytes, uint64_t hash);

// ---- before a row changes --------------------------------------------------------------------

void ps_images_add(ps_images *images, const ps_table *table, const ps_entry *entry);
void ps_images_add_unborn(ps_images *images, uint64_t key);

// The row is about to change, or to go.
static inline void ps_images_keep(ps_images *images, const ps_table *table, const ps_entry *entry)
{
    if (images->count && entry->version <= images->until)
        ps_images_add(images, table, entry);
}

// The key gets a row.
static inline void ps_images_born(ps_images *images, uint64_t key)
{
    if (images->count)
        ps_images_add_unborn(images, key);
}

// ---- back ------------------------------------------------------------------------------------

// Whether rows can become those of this checkpoint.
bool ps_images_have(const ps_images *images, uint32_t iteration, uint64_t lineage);

// They do. RT_NOT_FOUND: they cannot; RT_CONFIG, RT_NO_MEMORY: no room for a row that had gone; or
// what progress (may be NULL) returned. It can be tried again after any of these.
rt_status ps_images_roll_back(ps_images *images, ps_table *table, uint32_t iteration,
                              uint64_t lineage, ps_progress progress, void *context,
                              rt_error *error);

// -----------------------------------------------------------------------------------------------

typedef struct ps_shard ps_shard;

// Whether a file of a checkpoint of file_count shards may have rows of this one. was_planned: the
// homes of the checkpoint's rows were (RT_WIRE_LOAD_HOMES).
bool ps_shard_wants_file(const ps_shard *shard, uint32_t file, uint32_t file_count,
                         bool was_planned);

typedef struct {
    uint32_t rank; // of this shard, below shard_count
    uint32_t shard_count;
    uint32_t worker_count;
    uint32_t epoch;
    uint32_t dim;
    rt_optimizer_config optimizer;
    uint64_t seed;
    float init_scale;
    rt_homes homes;              // planned: any key may be on this shard
    bool names_left;             // and files of changes name keys that have left it
    bool adds_deltas;            // bounded staleness: PUSH_DELTA is taken
    rt_coding row_wire;          // of values and gradients: other than fp32, coded pushes are taken
    uint64_t memory_bytes_max;   // rows
    ps_store *store;             // for the rows' floats, or NULL: in memory; the caller's
    uint64_t image_bytes_max;    // rows as they were at checkpoints (ps_images.c); 0: none
    uint64_t gradient_bytes_max; // gradients that wait for others
    uint64_t dense_bytes_max;    // dense gradients that wait for others; dense weights
    bool keeps_dense;            // the dense weights: rt_stripes_keep
    rt_optimizer_config dense_optimizer;
    uint32_t pulls_parked_max;   // per worker; at least what its pull credits allow
    uint32_t message_bytes;      // payload of a full ROWS message, about
    uint32_t queue_messages_max; // per worker, not taken by the transport
    // Takes the message on RT_OK; RT_AGAIN: the shard keeps it and offers it again at flush.
    // Anything else ends the run. The bytes may be shared by several messages: do not write them.
    rt_status (*send)(void *context, uint32_t peer, rt_message *message);
    void *context;
} ps_shard_config;

typedef struct {
    uint64_t rows;
    uint64_t row_bytes; // index and rows
    uint64_t image_bytes;
    uint64_t pulls; // records
    uint64_t pulls_parked;
    uint64_t pulls_parked_max;
    uint64_t rows_created; // by init
    uint64_t row_pushes;
    uint64_t row_pushes_ignored; // version not newer
    uint64_t gradients;
    uint64_t gradients_waiting;
    uint64_t deltas;
    uint64_t deltas_waiting;
    uint64_t steps;         // optimizer steps over summed gradients
    uint64_t steps_skipped; // versions made without one (RT_WIRE_NO_STEP)
    uint64_t rows_ended;
    uint64_t rows_forgotten; // their home is elsewhere
    uint64_t dense_sums;
    uint64_t dense_pieces;       // of weights that were fetched
    uint64_t messages_discarded; // of other epochs
} ps_shard_statistics;

// RT_NO_MEMORY leaves *shard_p untouched.
rt_status ps_shard_create(const ps_shard_config *config, ps_shard **shard_p);
void ps_shard_destroy(ps_shard *shard);

// Consumes a validated message of a peer, in every case (it is empty afterwards). Messages of other
// epochs are discarded. RT_WIRE: the message breaks the protocol; RT_LIMIT: it does not fit into a
// bound; RT_CONFIG: nor into ps.memory_bytes_max; error names peer, key and what was expected, and
// no row has changed, unless the message has a key twice. What send returned, RT_NO_MEMORY: part of
// the message may have been applied.
rt_status ps_shard_receive(ps_shard *shard, uint32_t peer, rt_message *message, rt_error *error);

// Sends all replies gathered so far; call it when the sockets are drained. RT_AGAIN: the transport
// did not take all, call it again. Errors as send's.
rt_status ps_shard_flush(ps_shard *shard, rt_error *error);

void ps_shard_get_statistics(const ps_shard *shard, ps_shard_statistics *statistics);

// The values and state of a key, NULL when it has no row. For tests and tools.
const float *ps_shard_find(const ps_shard *shard, uint64_t key, uint32_t *version_p);

// The dense weights of this shard, NULL where they are not kept. For tests.
const ps_weights *ps_shard_weights(const ps_shard *shard);

// What of a checkpoint goes into a file.
typedef struct {
    uint32_t iteration; // of the cut
    uint32_t base;      // only rows that changed after this iteration; 0: all
} ps_cut;

// Writes rows to a sink: all, or those of a cut, packed then. progress and sum_p may be NULL. The
// sink's errors, RT_NO_MEMORY, or what progress returned.
rt_status ps_shard_save(const ps_shard *shard, const rt_sink *sink, uint64_t schema,
                        const ps_cut *cut, ps_progress progress, void *context, rt_file_sum *sum_p,
                        rt_error *error);

// A cut was captured. Its file has the changes since the cut of base (0: it has all rows). From now
// on the shard notes keys that leave it, which the next file of changes names, and keeps a row as
// it is before it changes the row. complete: iteration of the newest complete checkpoint.
void ps_shard_cut(ps_shard *shard, uint32_t iteration, uint32_t base, uint32_t complete);

// The file of the newest cut is on disk, with this sum.
void ps_shard_written(ps_shard *shard, uint32_t iteration, uint64_t bytes, uint64_t hash);

// Around the reading of a LOAD's files into the table. begin_load: the rows belong to no checkpoint
// from now on; it gives the lineage of the files that load names (0: not known). loaded: the rows
// are now those of the checkpoint, or of the files that were named; lineage 0: reading failed.
uint64_t ps_shard_begin_load(ps_shard *shard, const rt_wire_load *load);
void ps_shard_loaded(ps_shard *shard, uint32_t iteration, uint64_t lineage);

// The store of its rows, or NULL: whoever made the shard destroys it after the shard.
ps_store *ps_shard_store(const ps_shard *shard);

// Rows that outlive a shard, and how they were at the newest checkpoints, for the shard of the next
// start. NULL: there are no such images, and the rows are of no use. Their store goes with them.
typedef struct ps_kept ps_kept;
ps_kept *ps_shard_give(ps_shard *shard);         // which can only be destroyed then
void ps_kept_destroy(ps_kept *kept);             // also of NULL
uint32_t ps_kept_iteration(const ps_kept *kept); // of the newest cut

// Rolls the rows back to a checkpoint, and takes them over with their store, in place of the
// shard's own, which is destroyed; *kept_p is NULL then. RT_NOT_FOUND:
// they cannot become those of that checkpoint; RT_CONFIG, RT_NO_MEMORY: there is no room for a row
// that had gone; or what progress returned. Then the shard is as it was, and with these rows it can
// be tried again. Before the first message about rows.
rt_status ps_shard_adopt(ps_shard *shard, ps_kept **kept_p, uint32_t iteration, uint64_t lineage,
                         ps_progress progress, void *context, rt_error *error);

// Adds the rows of one model file that belong to this shard; the file may be of another number of
// shards. Files of changes come after the one that they change. Only before the first message.
// RT_CONFIG: other dimension, optimizer or schema than this shard's, or ps.memory_bytes_max is too
// small; RT_IO, RT_DATA, RT_LIMIT, RT_NO_MEMORY.
rt_status ps_shard_load(ps_shard *shard, const char *path, uint64_t schema, ps_progress progress,
                        void *context, rt_file_sum *sum_p, rt_error *error);

// The run begins with a model, whose rows the shard holds: all get version 0, as nobody has trained
// them in this run. Before the first message about rows.
void ps_shard_begin_with(ps_shard *shard);

// Drops all rows, and nothing else: what workers have said so far about the dense exchange stays.
// Before the first message with rows. RT_NO_MEMORY: unchanged.
rt_status ps_shard_clear(ps_shard *shard);

// Every row whose version is below floor ends; *ended_p: how many. While no message about rows is
// under way, and no file is written from the table in this process. progress (may be NULL) is
// called now and then. RT_WIRE: rows of that kind are waited for (a pull, a gradient); what
// progress returned.
rt_status ps_shard_expire(ps_shard *shard, uint32_t floor, ps_progress progress, void *context,
                          uint64_t *ended_p, rt_error *error);

// The row of one key ends, whatever its version, after ps_shard_expire and as there. False: there
// is none. Files of changes do not tell of it: the next one has to have all rows.
bool ps_shard_forget(ps_shard *shard, uint64_t key);
// Where rows are on disk: a forked copy of the process sees them as they are now, until release
// says that the process has taken its own changes back (ps_store.h; RT_AGAIN: there is more to do).
rt_status ps_shard_hold(const ps_shard *shard, rt_error *error);
rt_status ps_shard_release(const ps_shard *shard, rt_error *error);

// Keys and versions of up to count_max rows, from row number `from` on. Returns how many.
uint32_t ps_shard_keys(const ps_shard *shard, uint64_t from, uint32_t count_max,
                       rt_wire_key *records);

// The epoch of the messages from now on; before the first one.
void ps_shard_begin_epoch(ps_shard *shard, uint32_t epoch);

#endif
