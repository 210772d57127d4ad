// rt_mirror - keeps the disk of a standby (rt_standby.h) as far as this coordinator's.
//
//   journal ──► block ──► this disk   ──► acknowledged once it is on both
//                 └─ MIRROR ─► the standby's, fsync ─┘
//   checkpoints ──► file by file, manifest last
//
// Journals are copied byte for byte, segment by segment, a block as it is committed; what a standby
// lacks that was away comes from the files. A checkpoint is complete there once the journal is as
// far as it was here when the checkpoint was complete. Nothing goes there that a checkpoint needs
// which only the standby has. A thread; the folder of a run has an id, so that two runs do not mix.
#ifndef RT_MIRROR_H
#define RT_MIRROR_H

#include "runtime/live/rt_journal.h"
#include "runtime/stream/rt_position.h"
#include "runtime/transport/rt_transport.h"

#define RT_MIRROR_FLOWS 2u // rt_flow

typedef struct rt_mirror rt_mirror;

typedef struct {
    const rt_transport_ops *ops;
    const rt_keys *keys;     // NULL: loopback only
    const char *address;     // "tcp://HOST:PORT" of the standby; copied
    const char *directory;   // of the run: its id is kept there, in "standby.id"
    const char *checkpoints; // their folder
    uint32_t epoch;          // of the start before
    bool waits;              // nothing is acknowledged without the standby
    double timeout_peer_s;
} rt_mirror_config;

typedef struct {
    bool is_there;         // it answers
    bool is_in_step;       // and has all of the journals
    uint64_t behind_bytes; // that it lacks of them
    uint64_t blocks;       // that were acknowledged by it
    uint64_t alone;        // commits that were acknowledged without it
    uint32_t checkpoint;   // the newest that it has as a whole; 0: none
    double away_s;         // for so long; 0: it is there
} rt_mirror_counts;

// Starts following at once. RT_CONFIG, RT_IO, RT_NO_MEMORY, RT_LIMIT.
rt_status rt_mirror_open(const rt_mirror_config *config, rt_mirror **mirror_p, rt_error *error);
void rt_mirror_close(rt_mirror *mirror); // after its journals; NULL is fine

// What the journal of a flow is opened with; and the journal, before its first append: it outlives
// rt_mirror_stop.
rt_journal_copy rt_mirror_copy(rt_mirror *mirror, rt_flow flow);
void rt_mirror_attach(rt_mirror *mirror, rt_flow flow, rt_journal *journal);

// Waits for the standby's first answer. RT_TIMEOUT; RT_REFUSED: it was promoted, or follows another
// run; RT_STOPPED: stop_fd is readable.
rt_status rt_mirror_await(rt_mirror *mirror, double limit_s, int stop_fd, rt_error *error);

// All shards of the run are here, and none has served a later coordinator: from now on what comes
// is acknowledged without a standby that is away, unless this one waits for it. NULL is fine.
void rt_mirror_lead(rt_mirror *mirror);

// RT_REFUSED: the standby has taken over, error says so: this coordinator has to end. Any thread.
rt_status rt_mirror_check(rt_mirror *mirror, rt_error *error);

// Whoever waits for the standby waits no more; what they had is not acknowledged.
void rt_mirror_stop(rt_mirror *mirror);

void rt_mirror_statistics(rt_mirror *mirror, rt_mirror_counts *counts);

#endif
