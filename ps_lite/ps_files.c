#include "ps_lite/ps_files.h"

#include <inttypes.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "runtime/files/rt_checkpoint.h"

rt_status ps_files_init(ps_files *files, rt_member *member, uint32_t self, rt_error *error)
{
    *files = (ps_files){.member = member, .self = self};
    files->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (files->wake_fd < 0)
        return rt_fail(error, RT_LIMIT, "out of descriptors");
    return RT_OK;
}

void ps_files_fini(ps_files *files)
{
    if (!files->member)
        return;
    rt_parcel_end(&files->model);
    rt_parcel_close(&files->copy);
    rt_parcel_drop(&files->back);
    if (files->wake_fd >= 0)
        close(files->wake_fd);
    files->wake_fd = -1;
}

static rt_status send(void *context, rt_message *message, rt_error *error)
{
    ps_files *files = context;
    return rt_member_send(files->member, message, error);
}

static rt_parcel_config parcel_config(ps_files *files, uint64_t iteration, uint32_t file)
{
    return (rt_parcel_config){.send = send,
                              .context = files,
                              .sender = files->self,
                              .file = file,
                              .iteration = iteration};
}

// ---- the model -------------------------------------------------------------------------------

static rt_status open_model(void *context, uint64_t total, rt_error *error)
{
    ps_files *files = context;
    rt_parcel_config config = parcel_config(files, 0, rt_peer_rank(files->self));
    config.total = total;
    rt_parcel_end(&files->model);
    return rt_parcel_begin(&files->model, &config, error);
}

static rt_status write_model(void *context, const void *bytes, size_t size, rt_error *error)
{
    ps_files *files = context;
    rt_parcel_out *out = &files->model;
    const uint8_t *next = bytes;
    while (size > 0) {
        const size_t some = rt_min_u64(size, rt_parcel_room(out));
        rt_status status;
        if (out->refusal.status)
            return rt_fail(error, out->refusal.status, "%s", out->refusal.text);
        if (some > 0)
            status = rt_parcel_put(out, next, some, error);
        else // until what was sent is confirmed
            status = files->progress(files->context, files->wake_fd, error);
        if (status)
            return status;
        next += some;
        size -= some;
    }
    return RT_OK;
}

static rt_status commit_model(void *context, rt_error *error)
{
    const ps_files *files = context;
    rt_assert(rt_parcel_is_sent(&files->model));
    (void)error;
    return RT_OK;
}

static void abort_model(void *context)
{
    ps_files *files = context;
    rt_parcel_end(&files->model);
}

rt_sink ps_files_model(ps_files *files, ps_progress progress, void *context)
{
    files->progress = progress;
    files->context = context;
    return (rt_sink){open_model, write_model, commit_model, abort_model, files, "the model"};
}

// ---- checkpoints -----------------------------------------------------------------------------

rt_status ps_files_copy(ps_files *files, const char *path, uint64_t iteration, uint32_t file,
                        rt_error *error)
{
    rt_error why = {0};
    rt_parcel_config config = parcel_config(files, iteration, file);
    rt_parcel_close(&files->copy);
    rt_status status = rt_parcel_open(&files->copy, path, &config, files->wake_fd, &why);
    if (!status)
        return rt_parcel_step(&files->copy, error);
    rt_parcel_out nothing = {.config = config};
    return rt_parcel_give_up(&nothing, &why, error);
}

void ps_files_note_load(ps_files *files, uint64_t iteration, const rt_wire_load *load)
{
    files->load = *load;
    files->load_iteration = iteration;
}

// The first piece of a file that this box has lost.
static rt_status expect_back(ps_files *files, const rt_message *message, rt_error *error)
{
    rt_wire_piece piece;
    char path[RT_FOLDER_MAX + 64];
    rt_reader reader = rt_message_reader(message);
    const uint64_t iteration = rt_message_header(message)->iteration;
    if (!rt_reader_get(&reader, &piece, 1, sizeof piece) || iteration != files->load_iteration ||
        piece.file >= files->load.shard_count)
        return rt_fail(error, RT_WIRE, "coordinator: a PIECE of a file that no LOAD named");
    rt_parcel_drop(&files->back);
    const rt_status status = ps_model_file_path(files->load.folder, piece.file,
                                                files->load.shard_count, path, sizeof path, error);
    if (status)
        return status;
    (void)rt_checkpoint_make_own(files->load.folder, NULL); // that it failed shows with the file
    return rt_parcel_expect(&files->back, rt_peer(RT_ROLE_COORDINATOR, 0), iteration, piece.file,
                            path, files->wake_fd, error);
}

static rt_status take_piece(ps_files *files, const rt_message *message, rt_error *error)
{
    rt_wire_piece piece;
    rt_reader reader = rt_message_reader(message);
    const bool is_first = rt_reader_get(&reader, &piece, 1, sizeof piece) && piece.offset == 0;
    if (!is_first && !files->back.behind)
        return rt_fail(error, RT_WIRE, "coordinator: a PIECE of a file that no LOAD named");
    if (is_first) {
        const rt_status status = expect_back(files, message, error);
        if (status)
            return status;
    }
    return rt_parcel_take(&files->back, message, error);
}

static rt_status take_taken(ps_files *files, const rt_message *message, rt_error *error)
{
    const uint64_t iteration = rt_message_header(message)->iteration;
    if (iteration == 0)
        return rt_parcel_taken(&files->model, message, "coordinator", error);
    if (!files->copy.file || files->copy.out.config.iteration != iteration)
        return RT_OK; // of a copy that was given up
    rt_status status = rt_parcel_taken(&files->copy.out, message, "coordinator", error);
    if (!status && (files->copy.out.is_complete || files->copy.out.refusal.status))
        rt_parcel_close(&files->copy);
    return status;
}

rt_status ps_files_take(ps_files *files, const rt_message *message, rt_error *error)
{
    if (rt_message_header(message)->type == RT_MESSAGE_PIECE)
        return take_piece(files, message, error);
    return take_taken(files, message, error);
}

rt_status ps_files_step(ps_files *files, rt_error *error)
{
    eventfd_t count;
    rt_message answer = {0};
    (void)eventfd_read(files->wake_fd, &count); // before looking: what comes later wakes again
    rt_status status = rt_parcel_step(&files->copy, error);
    if (status)
        return status;
    status = rt_parcel_look(&files->back, files->self, &answer);
    if (status == RT_AGAIN)
        return RT_OK;
    if (status)
        return rt_fail(error, status, "out of memory: a message");
    if (files->back.is_told)
        rt_parcel_drop(&files->back);
    return rt_member_send(files->member, &answer, error);
}
