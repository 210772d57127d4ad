// rt_parcel - a file on its way from one process to another, in PIECEs (rt_control.h).
//
// The sender has at most RT_WIRE_PIECES_MAX pieces under way that the receiver has not written; the
// receiver's disk is a thread's business (rt_behind). So neither side holds more than a megabyte of
// a file, and both go on with other messages, however slow link and disk are. Every piece has a
// checksum, and the whole file another. One thread each; plain values.
#ifndef RT_PARCEL_H
#define RT_PARCEL_H

#include "runtime/files/rt_ahead.h"
#include "runtime/files/rt_sink.h"
#include "runtime/rt_base.h"
#include "runtime/rt_hash.h"
#include "runtime/wire/rt_bytes.h"
#include "runtime/wire/rt_control.h"

// ---- rt_behind.c ------------------------------------------------------------------------------

// A file that a thread of its own writes: whoever has its bytes can do other work while they go to
// the disk, however slow it is.
//
// At most RT_BEHIND_BYTES wait to be written. Written as rt_file does: the name is absent, old, or
// complete. One user; the thread may stand still with the disk, and closing does not wait for it.

#define RT_BEHIND_BYTES (UINT32_C(1) << 20)

typedef struct rt_behind rt_behind;

// wake_fd: an eventfd of the user that is written whenever rt_behind_look has something new to say.
// RT_NO_MEMORY, RT_LIMIT. That the file cannot be created is told by look.
rt_status rt_behind_open(const char *path, int wake_fd, rt_behind **behind_p, rt_error *error);

// RT_LIMIT: there is no room for so many, nothing was taken.
rt_status rt_behind_put(rt_behind *behind, const void *bytes, size_t size);

// No more bytes come: the file is to be synced and get its name.
void rt_behind_commit(rt_behind *behind);

// RT_AGAIN: at work, *written_p bytes have been handed to the disk. RT_OK: the file is complete
// under its name. RT_IO, RT_NO_MEMORY: error names it.
rt_status rt_behind_look(rt_behind *behind, uint64_t *written_p, rt_error *error);

// Also NULL. A file that is not complete is removed, as soon as the disk lets the thread do so.
void rt_behind_close(rt_behind *behind);

// -----------------------------------------------------------------------------------------------

// ---- sending ---------------------------------------------------------------------------------

typedef struct {
    // Takes the message in every case.
    rt_status (*send)(void *context, rt_message *message, rt_error *error);
    void *context;
    uint32_t sender; // rt_peer
    uint32_t file;
    uint64_t iteration;
    uint64_t total; // bytes
} rt_parcel_config;

typedef struct {
    rt_parcel_config config;
    rt_hasher *sum; // NULL: nothing is being sent
    uint64_t sent, taken;
    rt_message piece; // being filled
    size_t filled;
    bool is_complete; // the receiver has all on disk
    rt_error refusal; // status RT_OK: none; otherwise the receiver cannot go on, and says why
} rt_parcel_out;

// RT_NO_MEMORY.
rt_status rt_parcel_begin(rt_parcel_out *out, const rt_parcel_config *config, rt_error *error);
void rt_parcel_end(rt_parcel_out *out); // also of one that was never begun

// How many bytes may be put; 0: as many pieces as may be are under way, or all is sent.
size_t rt_parcel_room(const rt_parcel_out *out);

// At most rt_parcel_room bytes. What config.send returned, RT_NO_MEMORY.
rt_status rt_parcel_put(rt_parcel_out *out, const void *bytes, size_t size, rt_error *error);

// The file cannot be sent: tells the receiver why. What config.send returned, RT_NO_MEMORY.
rt_status rt_parcel_give_up(rt_parcel_out *out, const rt_error *why, rt_error *error);

static inline bool rt_parcel_is_sent(const rt_parcel_out *out)
{
    return out->sum && out->sent == out->config.total;
}

// Takes a TAKEN. RT_WIRE: it fits nothing that was sent. That the receiver gave up is no error of
// this call: out->refusal has it.
rt_status rt_parcel_taken(rt_parcel_out *out, const rt_message *message, const char *peer,
                          rt_error *error);

// A file on this box's disk, sent as it is read ahead.
typedef struct {
    rt_parcel_out out;
    rt_ahead *file;
} rt_parcel_file;

// config->total is set here. wake_fd: as rt_ahead_notify. RT_IO, RT_NOT_FOUND, RT_NO_MEMORY,
// RT_LIMIT.
rt_status rt_parcel_open(rt_parcel_file *parcel, const char *path, rt_parcel_config *config,
                         int wake_fd, rt_error *error);
void rt_parcel_close(rt_parcel_file *parcel); // also of one that was never opened

// Sends what may be sent. That the file cannot be read, or has another size by now, is told to the
// receiver. What config.send returned, RT_NO_MEMORY.
rt_status rt_parcel_step(rt_parcel_file *parcel, rt_error *error);

// ---- receiving -------------------------------------------------------------------------------

typedef struct {
    char name[32]; // of the sender
    char path[RT_FOLDER_MAX + 64];
    uint32_t file;
    uint64_t iteration;
    rt_behind *behind; // NULL: none is being received
    rt_hasher *sum;
    uint64_t got, total, answered;
    uint64_t want_sum; // of the whole
    bool is_told;      // the last TAKEN is out
    rt_status status;  // RT_AGAIN: under way; RT_OK: on disk; others: failed, error says why
    rt_error error;
} rt_parcel_in;

// Of the sender `peer`; wake_fd: as rt_behind_open. RT_NO_MEMORY, RT_LIMIT, RT_CONFIG: the path is
// too long.
rt_status rt_parcel_expect(rt_parcel_in *in, uint32_t peer, uint64_t iteration, uint32_t file,
                           const char *path, int wake_fd, rt_error *error);
void rt_parcel_drop(rt_parcel_in *in); // also of one that was never expected

// Takes a PIECE. RT_WIRE: not the next one of this file, damaged on its way, or more than may be
// under way. What hinders the file only (no space left, the sender gave up) is in in->status.
rt_status rt_parcel_take(rt_parcel_in *in, const rt_message *message, rt_error *error);

// Looks what the disk has done. RT_OK: *answer is a TAKEN that is due; RT_AGAIN: none is.
// RT_NO_MEMORY.
rt_status rt_parcel_look(rt_parcel_in *in, uint32_t self, rt_message *answer);

// Of a file that has come: bytes and XXH3.
static inline uint64_t rt_parcel_sum(const rt_parcel_in *in)
{
    return in->want_sum;
}

#endif
