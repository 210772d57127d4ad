#include "runtime/files/rt_parcel.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define WINDOW ((uint64_t)RT_WIRE_PIECES_MAX * RT_WIRE_PIECE_BYTES_MAX)
_Static_assert(WINDOW <= RT_BEHIND_BYTES, "the receiver has room for all that is under way");
#define TEXT_MAX 384

// ---- sending ---------------------------------------------------------------------------------

rt_status rt_parcel_begin(rt_parcel_out *out, const rt_parcel_config *config, rt_error *error)
{
    rt_assert(config->total > 0);
    *out = (rt_parcel_out){.config = *config, .sum = rt_hasher_create()};
    if (!out->sum)
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    return RT_OK;
}

void rt_parcel_end(rt_parcel_out *out)
{
    rt_hasher_destroy(out->sum);
    rt_message_release(&out->piece);
    *out = (rt_parcel_out){0};
}

// Bytes that have been put.
static uint64_t put_so_far(const rt_parcel_out *out)
{
    return out->sent + out->filled;
}

size_t rt_parcel_room(const rt_parcel_out *out)
{
    const uint64_t put = put_so_far(out);
    if (!out->sum || out->refusal.status)
        return 0;
    return (size_t)rt_min_u64(WINDOW - (put - out->taken), out->config.total - put);
}

static rt_status create_piece(rt_parcel_out *out, rt_error *error)
{
    const rt_parcel_config *c = &out->config;
    const uint64_t size = rt_min_u64(RT_WIRE_PIECE_BYTES_MAX, c->total - out->sent);
    const rt_wire_piece head = {.file = c->file, .offset = out->sent, .total = c->total};
    if (rt_message_create(&out->piece, RT_MESSAGE_PIECE, c->sender, c->iteration, 1,
                          sizeof head + size))
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    memcpy(rt_message_payload(&out->piece), &head, sizeof head);
    out->filled = 0;
    return RT_OK;
}

static uint8_t *bytes_of_piece(const rt_parcel_out *out)
{
    return rt_message_payload(&out->piece) + sizeof(rt_wire_piece);
}

static size_t size_of_piece(const rt_parcel_out *out)
{
    return out->piece.size - sizeof(rt_wire_header) - sizeof(rt_wire_piece);
}

static rt_status send_piece(rt_parcel_out *out, rt_error *error)
{
    rt_wire_piece head;
    rt_message message = out->piece;
    memcpy(&head, rt_message_payload(&message), sizeof head);
    head.checksum = rt_hash_bytes(bytes_of_piece(out), out->filled);
    rt_hasher_add(out->sum, bytes_of_piece(out), out->filled);
    out->sent += out->filled;
    out->filled = 0;
    if (out->sent == out->config.total)
        head.sum = rt_hasher_sum(out->sum);
    memcpy(rt_message_payload(&message), &head, sizeof head);
    out->piece = (rt_message){0};
    return out->config.send(out->config.context, &message, error);
}

rt_status rt_parcel_put(rt_parcel_out *out, const void *bytes, size_t size, rt_error *error)
{
    const uint8_t *next = bytes;
    rt_assert(size <= rt_parcel_room(out));
    while (size > 0) {
        rt_status status = RT_OK;
        if (!out->piece.data)
            status = create_piece(out, error);
        if (status)
            return status;
        const size_t some = rt_min_u64(size, size_of_piece(out) - out->filled);
        memcpy(bytes_of_piece(out) + out->filled, next, some);
        out->filled += some;
        next += some;
        size -= some;
        if (out->filled == size_of_piece(out))
            status = send_piece(out, error);
        if (status)
            return status;
    }
    return RT_OK;
}

rt_status rt_parcel_give_up(rt_parcel_out *out, const rt_error *why, rt_error *error)
{
    rt_message message;
    const rt_status reason = why->status ? why->status : RT_IO;
    const rt_wire_piece head = {.file = out->config.file,
                                .status = (uint32_t)reason,
                                .offset = out->sent,
                                .total = out->config.total};
    out->refusal = *why;
    out->refusal.status = reason;
    if (rt_control_create_struct(&message, RT_MESSAGE_PIECE, out->config.sender,
                                 out->config.iteration, &head, sizeof head, why->text))
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    return out->config.send(out->config.context, &message, error);
}

static void put_text(rt_error *to, uint32_t status, const char *peer, const rt_reader *reader)
{
    if (status == RT_OK || status > RT_REFUSED)
        status = RT_IO;
    rt_fail(to, (rt_status)status, "%s: %.*s", peer, (int)rt_min_u64(reader->left, TEXT_MAX),
            (const char *)reader->next);
}

rt_status rt_parcel_taken(rt_parcel_out *out, const rt_message *message, const char *peer,
                          rt_error *error)
{
    rt_wire_taken taken;
    rt_reader reader = rt_message_reader(message);
    const bool is_whole = rt_reader_get(&reader, &taken, 1, sizeof taken);
    if (!is_whole || !out->sum || rt_message_header(message)->iteration != out->config.iteration ||
        taken.file != out->config.file || taken.offset < out->taken || taken.offset > out->sent ||
        (taken.is_complete && taken.offset != out->config.total))
        return rt_fail(error, RT_WIRE, "%s: a TAKEN of bytes that were not sent", peer);
    out->taken = taken.offset;
    out->is_complete |= taken.is_complete != 0;
    if (taken.status)
        put_text(&out->refusal, taken.status, peer, &reader);
    return RT_OK;
}

// ---- a file ----------------------------------------------------------------------------------

rt_status rt_parcel_open(rt_parcel_file *parcel, const char *path, rt_parcel_config *config,
                         int wake_fd, rt_error *error)
{
    struct stat info;
    *parcel = (rt_parcel_file){0};
    if (stat(path, &info) != 0)
        return rt_fail(error, errno == ENOENT ? RT_NOT_FOUND : rt_status_of_errno(errno),
                       "cannot open %s: %s", path, strerror(errno));
    if (!S_ISREG(info.st_mode) || info.st_size == 0)
        return rt_fail(error, RT_IO, "%s: no file, or an empty one", path);
    config->total = (uint64_t)info.st_size;
    rt_status status = rt_ahead_open(path, &parcel->file, error);
    if (status)
        return status;
    rt_ahead_notify(parcel->file, wake_fd);
    status = rt_parcel_begin(&parcel->out, config, error);
    if (status)
        rt_parcel_close(parcel);
    return status;
}

void rt_parcel_close(rt_parcel_file *parcel)
{
    rt_ahead_close(parcel->file);
    rt_parcel_end(&parcel->out);
    parcel->file = NULL;
}

rt_status rt_parcel_step(rt_parcel_file *parcel, rt_error *error)
{
    size_t room;
    while (parcel->file && (room = rt_parcel_room(&parcel->out)) > 0) {
        uint8_t bytes[16384];
        size_t got = 0;
        rt_error why = {0};
        rt_status status =
            rt_ahead_take(parcel->file, bytes, rt_min_u64(room, sizeof bytes), &got, &why);
        if (status == RT_AGAIN)
            return RT_OK;
        if (status == RT_END)
            rt_fail(&why, RT_IO, "the file has become shorter");
        if (status)
            return rt_parcel_give_up(&parcel->out, &why, error);
        status = rt_parcel_put(&parcel->out, bytes, got, error);
        if (status)
            return status;
    }
    return RT_OK;
}

// ---- receiving -------------------------------------------------------------------------------

rt_status rt_parcel_expect(rt_parcel_in *in, uint32_t peer, uint64_t iteration, uint32_t file,
                           const char *path, int wake_fd, rt_error *error)
{
    *in = (rt_parcel_in){.iteration = iteration, .file = file, .status = RT_AGAIN};
    rt_peer_name(peer, in->name);
    if ((size_t)snprintf(in->path, sizeof in->path, "%s", path) >= sizeof in->path)
        return rt_fail(error, RT_CONFIG, "the path %s is too long", path);
    in->sum = rt_hasher_create();
    if (!in->sum)
        return rt_fail(error, RT_NO_MEMORY, "out of memory: %s", path);
    rt_status status = rt_behind_open(path, wake_fd, &in->behind, error);
    if (status)
        rt_parcel_drop(in);
    return status;
}

void rt_parcel_drop(rt_parcel_in *in)
{
    rt_behind_close(in->behind);
    rt_hasher_destroy(in->sum);
    in->behind = NULL;
    in->sum = NULL;
}

static void fail(rt_parcel_in *in, const rt_error *why)
{
    in->status = why->status;
    in->error = *why;
}

rt_status rt_parcel_take(rt_parcel_in *in, const rt_message *message, rt_error *error)
{
    rt_wire_piece piece;
    rt_reader reader = rt_message_reader(message);
    if (!rt_reader_get(&reader, &piece, 1, sizeof piece) || !in->behind ||
        rt_message_header(message)->iteration != in->iteration || piece.file != in->file)
        return rt_fail(error, RT_WIRE, "%s: a PIECE of a file that nobody waits for", in->name);
    if (in->status != RT_AGAIN)
        return RT_OK; // it has been told
    if (piece.status) {
        put_text(&in->error, piece.status, in->name, &reader);
        in->status = in->error.status;
        in->is_told = true; // it knows
        return RT_OK;
    }
    const size_t size = reader.left;
    if (piece.offset != in->got || size == 0 || size > RT_WIRE_PIECE_BYTES_MAX ||
        piece.total < in->got + size || (in->got > 0 && piece.total != in->total))
        return rt_fail(error, RT_WIRE,
                       "%s: %zu bytes from %" PRIu64 " of %" PRIu64 ", expected those from %" PRIu64
                       " on",
                       in->name, size, piece.offset, piece.total, in->got);
    if (piece.checksum != rt_hash_bytes(reader.next, size))
        return rt_fail(error, RT_WIRE, "%s: a PIECE was damaged on its way (checksum)", in->name);
    if (rt_behind_put(in->behind, reader.next, size))
        return rt_fail(error, RT_WIRE, "%s: more than %u PIECEs that are not written yet", in->name,
                       RT_WIRE_PIECES_MAX);
    rt_hasher_add(in->sum, reader.next, size);
    in->got += size;
    in->total = piece.total;
    if (in->got < in->total)
        return RT_OK;
    in->want_sum = piece.sum;
    if (rt_hasher_sum(in->sum) != piece.sum)
        return rt_fail(error, RT_WIRE, "%s: a file was damaged on its way (checksum)", in->name);
    rt_behind_commit(in->behind);
    return RT_OK;
}

rt_status rt_parcel_look(rt_parcel_in *in, uint32_t self, rt_message *answer)
{
    uint64_t written = in->answered;
    rt_error why = {0};
    if (!in->behind || in->is_told)
        return RT_AGAIN;
    if (in->status == RT_AGAIN) {
        const rt_status status = rt_behind_look(in->behind, &written, &why);
        if (!status)
            in->status = RT_OK;
        else if (status != RT_AGAIN)
            fail(in, &why);
    }
    if (in->status == RT_AGAIN && written == in->answered)
        return RT_AGAIN;
    const bool failed = in->status != RT_AGAIN && in->status != RT_OK;
    const char *reason = NULL;
    rt_wire_taken taken = {.file = in->file, .offset = written, .is_complete = in->status == RT_OK};
    if (failed) {
        taken.status = (uint32_t)in->status;
        taken.offset = in->answered;
        reason = in->error.text;
    }
    if (rt_control_create_struct(answer, RT_MESSAGE_TAKEN, self, in->iteration, &taken,
                                 sizeof taken, reason))
        return RT_NO_MEMORY;
    in->answered = taken.offset;
    in->is_told = in->status != RT_AGAIN;
    return RT_OK;
}
