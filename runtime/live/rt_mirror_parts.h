// rt_mirror_parts - inside a mirror: its connection, and what is copied over it.
#ifndef RT_MIRROR_PARTS_H
#define RT_MIRROR_PARTS_H

#include <pthread.h>

#include "runtime/live/rt_mirror.h"
#include "runtime/rt_hash.h"
#include "runtime/rt_log.h"
#include "runtime/transport/rt_visitor.h"
#include "runtime/wire/rt_bytes.h"
#include "runtime/wire/rt_control.h"

#define RT_MIRROR_BESIDE 3u // files beside the checkpoints

typedef struct {
    struct rt_mirror *mirror;
    rt_flow flow;
    rt_journal *journal; // NULL: nothing of this flow is sent
    // The mirror's thread: what the standby has.
    rt_journal_extent *there;
    uint32_t there_count, there_capacity;
    // Under the lock: a block that a commit has offered, and where the last one ended.
    bool is_offered, is_done;
    uint64_t offer; // its number: one that was taken back and the next may begin at the same place
    uint64_t segment, offset;
    const uint8_t *bytes;
    size_t size;
    rt_journal_extent kept;
} rt_mirror_flow;

// Bytes of a segment that a reader waits for, on its stack.
typedef struct {
    rt_flow flow;
    uint64_t segment, offset, size;
    rt_bytes *to;
    bool is_under_way;
    rt_status status; // RT_AGAIN: it waits
    rt_error error;
} rt_mirror_fetch;

typedef struct {
    uint32_t iteration;
    uint64_t hash; // of its manifest
} rt_mirror_checkpoint;

struct rt_mirror {
    rt_mirror_config config;
    char address[RT_NAME_MAX + 16], checkpoints[RT_PATH_MAX];
    uint64_t id;
    rt_transport *transport;
    int wake_fd;
    pthread_t thread;
    bool runs;

    // The mirror's thread.
    rt_endpoint *endpoint;
    rt_visitor visitor;
    bool is_taken; // the listener has said that another one has our number
    uint64_t question, retry_ns, beat_ns, look_ns;
    rt_log_limit limit, unread;  // unread: of files here
    rt_mirror_checkpoint *saved; // that the standby has
    uint32_t saved_count, saved_capacity;
    uint64_t beside[RT_MIRROR_BESIDE]; // hashes of what was sent last; 0: not known
    uint8_t *buffer;                   // RT_WIRE_MIRROR_BYTES_MAX

    pthread_mutex_t lock; // the members below
    pthread_cond_t changed;
    rt_mirror_flow flows[RT_MIRROR_FLOWS];
    rt_mirror_fetch *fetch; // NULL: nobody waits
    bool stop, is_answered; // is_answered: once
    bool leads;             // rt_mirror_lead
    bool is_there, is_in_step;
    uint64_t away_ns; // since then
    uint64_t blocks, alone, behind_bytes;
    uint32_t checkpoint;
    rt_error refusal; // RT_REFUSED: it was replaced
    rt_error why;     // the standby is away
};

// One question and its answer. text (NULL: not wanted): of the answer, replaced. RT_PEER,
// RT_TIMEOUT: the connection is to be given up; RT_REFUSED; RT_IO: the standby could not do it;
// RT_STOPPED.
rt_status rt_mirror_ask(rt_mirror *mirror, const rt_wire_mirror *what, const void *bytes,
                        size_t size, rt_bytes *text, rt_error *error);

// The mirror's thread has something to do.
void rt_mirror_wake(const rt_mirror *mirror);

// Of rt_journal_copy; context: a rt_mirror_flow.
rt_status rt_mirror_fetch_bytes(void *context, uint64_t segment, uint64_t offset, size_t size,
                                rt_bytes *to, rt_error *error);

// What a reader waits for, if one does. As ask; what the standby could not do ends nothing.
rt_status rt_mirror_serve(rt_mirror *mirror, rt_error *error);

// Blocks that commits wait for, and what else journals have that the standby lacks. As ask.
rt_status rt_mirror_journals(rt_mirror *mirror, rt_error *error);

// The first segment of a journal here (0: there is no journal), and those before one end there.
uint64_t rt_mirror_journal_first(rt_mirror *mirror, rt_flow flow);
rt_status rt_mirror_journal_keep_from(rt_mirror *mirror, rt_flow flow, uint64_t first,
                                      rt_error *error);

// Copies checkpoints that the standby lacks, and lets those go that are gone here. As ask; and
// RT_NOT_FOUND: a file went meanwhile, to be tried again.
rt_status rt_mirror_files(rt_mirror *mirror, rt_error *error);

#endif
