#include "runtime/files/rt_parcel.h"

#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "runtime/files/rt_file.h"
#include "runtime/rt_thread.h"

#define PIECE_BYTES ((size_t)256 << 10) // of one write

// Shared by the user and the thread; who leaves last frees it.
struct rt_behind {
    pthread_mutex_t lock; // all below but path and the bytes
    pthread_cond_t more;
    int wake_fd;         // the user's, not to be touched once it has closed
    bool closed;         // by the user
    bool commits;        // nothing follows
    bool left;           // by either
    bool ended;          // by the thread
    rt_error end;        // how
    uint64_t put, taken; // bytes since the beginning
    char *path;
    uint8_t bytes[RT_BEHIND_BYTES]; // a ring: from taken to put the thread's, the rest the user's
};

static void destroy(rt_behind *behind)
{
    pthread_cond_destroy(&behind->more);
    pthread_mutex_destroy(&behind->lock);
    rt_free(behind->path);
    rt_free(behind);
}

static void leave(rt_behind *behind)
{
    pthread_mutex_lock(&behind->lock);
    const bool is_last = behind->left;
    behind->left = true;
    pthread_mutex_unlock(&behind->lock);
    if (is_last)
        destroy(behind);
}

// With the lock.
static void wake(const rt_behind *behind)
{
    const uint64_t one = 1;
    if (!behind->closed && write(behind->wake_fd, &one, sizeof one) < 0) {
        // it is readable already
    }
}

// ---- the thread ------------------------------------------------------------------------------

// Waits for bytes; how many may be written in one piece. 0: none will come.
static size_t await_bytes(rt_behind *behind, bool *commits)
{
    pthread_mutex_lock(&behind->lock);
    while (!behind->closed && !behind->commits && behind->put == behind->taken)
        pthread_cond_wait(&behind->more, &behind->lock);
    const size_t at = behind->taken % RT_BEHIND_BYTES;
    size_t size = rt_min_u64(behind->put - behind->taken, RT_BEHIND_BYTES - at);
    size = rt_min_u64(size, PIECE_BYTES);
    if (behind->closed)
        size = 0;
    *commits = !behind->closed;
    pthread_mutex_unlock(&behind->lock);
    return size;
}

static void add(rt_behind *behind, size_t size)
{
    pthread_mutex_lock(&behind->lock);
    behind->taken += size;
    wake(behind);
    pthread_mutex_unlock(&behind->lock);
}

// Until no more will come; RT_STOPPED: and what came is not wanted.
static rt_status write_what_comes(rt_behind *behind, rt_file *file, rt_error *error)
{
    size_t size;
    bool commits = false;
    while ((size = await_bytes(behind, &commits)) > 0) {
        const uint8_t *bytes = behind->bytes + behind->taken % RT_BEHIND_BYTES;
        rt_status status = rt_file_write(file, bytes, size, error);
        if (status)
            return status;
        add(behind, size);
    }
    if (!commits)
        return RT_STOPPED;
    return RT_OK;
}

static rt_status write_all(rt_behind *behind, rt_error *error)
{
    rt_file *file;
    rt_status status = rt_file_create(behind->path, &file, error);
    if (status)
        return status;
    status = write_what_comes(behind, file, error);
    if (!status)
        return rt_file_commit(file, error);
    rt_file_abort(file);
    return status;
}

static void *run(void *context)
{
    rt_behind *behind = context;
    rt_error error = {0};
    const rt_status status = write_all(behind, &error);
    pthread_mutex_lock(&behind->lock);
    behind->end = error;
    behind->end.status = status;
    behind->ended = true;
    wake(behind);
    pthread_mutex_unlock(&behind->lock);
    leave(behind);
    return NULL;
}

// ---- the user --------------------------------------------------------------------------------

rt_status rt_behind_open(const char *path, int wake_fd, rt_behind **behind_p, rt_error *error)
{
    rt_behind *behind = rt_alloc(1, sizeof *behind);
    if (!behind)
        return rt_fail(error, RT_NO_MEMORY, "out of memory: %s", path);
    pthread_mutex_init(&behind->lock, NULL);
    pthread_cond_init(&behind->more, NULL);
    behind->wake_fd = wake_fd;
    behind->path = rt_alloc(strlen(path) + 1, 1);
    rt_status status = RT_OK;
    int reason = 0;
    if (!behind->path)
        status = rt_fail(error, RT_NO_MEMORY, "out of memory: %s", path);
    else if ((reason = (strcpy(behind->path, path), rt_thread_detach(run, behind))) != 0)
        status =
            rt_fail(error, rt_thread_refusal(reason), "cannot start a thread that writes %s", path);
    if (status) {
        destroy(behind);
        return status;
    }
    *behind_p = behind;
    return RT_OK;
}

rt_status rt_behind_put(rt_behind *behind, const void *bytes, size_t size)
{
    pthread_mutex_lock(&behind->lock);
    const uint64_t room = RT_BEHIND_BYTES - (behind->put - behind->taken);
    pthread_mutex_unlock(&behind->lock);
    if (size > room)
        return RT_LIMIT;
    const size_t at = behind->put % RT_BEHIND_BYTES;
    const size_t first = rt_min_u64(size, RT_BEHIND_BYTES - at);
    memcpy(behind->bytes + at, bytes, first);
    memcpy(behind->bytes, (const uint8_t *)bytes + first, size - first);
    pthread_mutex_lock(&behind->lock);
    behind->put += size;
    pthread_cond_signal(&behind->more);
    pthread_mutex_unlock(&behind->lock);
    return RT_OK;
}

void rt_behind_commit(rt_behind *behind)
{
    pthread_mutex_lock(&behind->lock);
    behind->commits = true;
    pthread_cond_signal(&behind->more);
    pthread_mutex_unlock(&behind->lock);
}

rt_status rt_behind_look(rt_behind *behind, uint64_t *written_p, rt_error *error)
{
    pthread_mutex_lock(&behind->lock);
    *written_p = behind->taken;
    const rt_status status = behind->ended ? behind->end.status : RT_AGAIN;
    if (status && status != RT_AGAIN && error)
        *error = behind->end;
    pthread_mutex_unlock(&behind->lock);
    return status;
}

void rt_behind_close(rt_behind *behind)
{
    if (!behind)
        return;
    pthread_mutex_lock(&behind->lock);
    behind->closed = true;
    pthread_cond_signal(&behind->more);
    pthread_mutex_unlock(&behind->lock);
    leave(behind);
}
