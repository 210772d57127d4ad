// played - the members of a run, played for a coordinator of the same process.
//
// A transport whose other ends are here: what the coordinator sends is noted down and answered at
// once, as a worker or a shard would that has trained, pushed or written what it was told; answers
// wait until the coordinator takes them. Rows are not there, but which key has which version at
// which shard is, so that a run can go on from its checkpoints. Threads run one by one
// (one_by_one.h), and time passes only while the coordinator waits: all of it repeats. For a test
// that is linked with $(PLAYED) of mk/tests.mk a standby and journals are played, too.
#ifndef PLAYED_H
#define PLAYED_H

#include "runtime/config/rt_config.h"
#include "runtime/transport/rt_transport.h"
#include "runtime/wire/rt_bytes.h"
#include "runtime/wire/rt_control.h"
#include "runtime/wire/rt_counts.h"

#define PLAYED_VISITORS 4u
#define PLAYED_PEERS (RT_WORKERS_MAX + RT_SHARDS_MAX + PLAYED_VISITORS)
#define PLAYED_CUTS 64u

// How members behave. Masks are of workers' ranks, or of shards' where it says so.
typedef struct {
    uint64_t absent; // workers that do not join
    uint64_t absent_shards;
    uint64_t late;          // they answer two turns later
    uint32_t bad;           // iteration whose losses are not finite; 0: none
    uint32_t applied;       // such a one that a worker applies all the same
    bool rates;             // reports say what links carry
    bool busy;              // who sits out never says that it is idle
    uint32_t file_bytes;    // of a shard's file
    bool writes;            // shards' files are in the folder of the checkpoint
    uint32_t no_room;       // iteration of the checkpoint that a shard cannot write
    uint64_t unread;        // shards that cannot read a file before they have got the copy of it
    uint64_t unwanted;      // shards that cannot read it then either
    uint32_t wrong_version; // iteration of a checkpoint of which a row has another version
    uint32_t rows;          // that a shard says it has, beside some
    uint32_t turn_ms;       // that the coordinator waits each time; 0: one
    uint64_t no_vitals;     // shards that do not say how they are
    uint32_t live;          // flows that have a journal, a mask
    uint32_t pressed, old;  // iteration from which the journal has little room, or old events
    uint32_t standby;       // how waiting for it ends, a status
    uint32_t promoted;      // turn from which it leads the run; 0: none
    uint32_t deaf;          // nobody can listen
    uint32_t fails;         // turn in which waiting fails; 0: none
    uint32_t lies;          // bytes that a shard says it has written, beside those of its file
    uint32_t spoils;        // pieces of files: 1: with another checksum, 2: the sender gives up, 3:
                            // of a model only, likewise
    uint32_t slow;          // processes of the coordinator end in one of so many more turns
    uint64_t compute_ns[4]; // of a sample, by worker
} played_manners;

typedef struct {
    uint64_t key;
    uint32_t version, shard;
} played_row;

typedef struct {
    played_row *rows;
    uint32_t count, capacity, iteration;
    rt_counts done[RT_WORKERS_MAX]; // of a cut: reported until then
    uint64_t samples;
} played_rows;

typedef struct {
    uint32_t peer;
    uint64_t due; // turn
    rt_message message;
} played_letter;

// What a member was told, for played_rules.h.
typedef struct {
    uint32_t hellos, stops; // HELLOs that were taken, and STOPs: one may answer each
    bool has_left;          // it said that it failed
    bool is_welcome;
    bool is_marked;              // a MARK was answered since the last slice
    bool is_asked, has_finished; // FINISH came; it is answered
    uint64_t sequence;           // of the last slice
    uint32_t gap, trained, out;  // left out before it; iteration; slices without a report
    uint32_t cut;                // the last one
} played_told;

typedef struct {
    bool is_there, is_mute, is_gone, is_full, is_broken;
    uint64_t *keys; // of a worker: by slot
    played_told told;
} played_peer;

// What all workers were told of a slice, by its number.
typedef struct {
    bool is_known;
    uint32_t iteration;
    uint64_t fingerprint, workers;
    uint32_t samples;
} played_slice;

typedef struct played played;
struct played {
    const rt_config *config; // with which members join
    rt_identity identity;
    played_manners manners;
    uint32_t more_labels;
    bool has_keys;    // their listeners have the key of one that may join
    uint64_t allowed; // hash of the keys that they were told last
    // An iteration's slice goes out for the first time; a message does; a turn begins.
    void (*on_iteration)(played *p, uint32_t iteration);
    void (*on_message)(played *p, rt_message_type type);
    void (*on_turn)(played *p);
    void *context;

    rt_wire_welcome welcome;
    played_peer peers[PLAYED_PEERS];
    played_letter *letters; // to the coordinator, in the order in which they were written
    uint32_t letter_count, letter_capacity;
    uint64_t turns;
    uint32_t iteration; // of the last slice
    played_rows held;   // by shards
    played_rows cuts[PLAYED_CUTS];
    uint32_t cut_count;
    uint64_t given_copies; // shards that have got one

    // What rules look at: all of it is of one run, but for what was the last complete checkpoint.
    rt_bytes broken; // lines: rules that were
    rt_bytes heard;  // lines: answers to visitors, and why members are stopped, each once
    played_slice *slices;
    uint32_t slice_count, slice_capacity;
    played_rows trained, wanted;    // rows of slices, by the iteration; pulls
    rt_counts done[RT_WORKERS_MAX]; // reported, by rank
    uint64_t samples;               // likewise
    uint32_t cut_complete, written_of, written_count;
};

extern const rt_transport_ops played_ops;

// The one that played_ops is about from now on: one run at a time.
void played_begin(played *p);
// What was told is dropped, checkpoints stay for the next run.
void played_end(played *p);
void played_fini(played *p);

// A peer by its name: w0, p1, v0 (a visitor); UINT32_MAX: it is none.
uint32_t played_peer_of(const char *name);
played_peer *played_find(played *p, uint32_t peer);

// A message to the coordinator. It is the transport's.
void played_write(played *p, uint32_t peer, rt_message *message);
void played_say(played *p, uint32_t peer, rt_message_type type, uint64_t iteration, uint32_t count,
                const void *payload, size_t size);
// HELLO, as it should be but for what the caller changes.
rt_wire_hello played_hello(const played *p, uint32_t peer);
void played_join(played *p, uint32_t peer, const rt_wire_hello *hello);

#endif
