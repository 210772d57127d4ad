#include "runtime/files/rt_ahead.h"
#include "runtime/rt_thread.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define PIECE_BYTES ((size_t)256 << 10) // of one read

// Shared by the user and the thread; who leaves last frees it.
struct rt_ahead {
    pthread_mutex_t lock; // all below but path and the bytes
    pthread_cond_t room;
    int wake_fd;
    int notify_fd;       // the user's, not to be touched once it has closed; -1: none
    bool closed;         // by the user
    bool ended;          // by the thread: nothing follows
    bool left;           // by either
    const char *failed;  // what could not be done; NULL: nothing
    int reason;          // its errno
    uint64_t got, taken; // bytes since the beginning
    char *path;
    uint8_t bytes[RT_AHEAD_BYTES]; // a ring: from taken to got the user's, the rest the thread's
};

static void destroy(rt_ahead *ahead)
{
    if (ahead->wake_fd >= 0)
        close(ahead->wake_fd);
    pthread_cond_destroy(&ahead->room);
    pthread_mutex_destroy(&ahead->lock);
    rt_free(ahead->path);
    rt_free(ahead);
}

static void leave(rt_ahead *ahead)
{
    pthread_mutex_lock(&ahead->lock);
    const bool is_last = ahead->left;
    ahead->left = true;
    pthread_mutex_unlock(&ahead->lock);
    if (is_last)
        destroy(ahead);
}

// With the lock.
static void wake(const rt_ahead *ahead)
{
    const uint64_t one = 1;
    if (write(ahead->wake_fd, &one, sizeof one) < 0 ||
        (ahead->notify_fd >= 0 && !ahead->closed &&
         write(ahead->notify_fd, &one, sizeof one) < 0)) {
        // it is readable already
    }
}

// ---- the thread ------------------------------------------------------------------------------

// Waits for room; how many bytes may be read in one piece. 0: nobody wants more.
static size_t await_room(rt_ahead *ahead)
{
    pthread_mutex_lock(&ahead->lock);
    while (!ahead->closed && ahead->got - ahead->taken > RT_AHEAD_BYTES - PIECE_BYTES)
        pthread_cond_wait(&ahead->room, &ahead->lock);
    const size_t at = ahead->got % RT_AHEAD_BYTES;
    size_t size = 0;
    if (!ahead->closed)
        size = rt_min_u64(PIECE_BYTES, RT_AHEAD_BYTES - at);
    pthread_mutex_unlock(&ahead->lock);
    return size;
}

static void add(rt_ahead *ahead, ssize_t got)
{
    pthread_mutex_lock(&ahead->lock);
    if (got > 0)
        ahead->got += (uint64_t)got;
    else if (got < 0) {
        ahead->failed = "read";
        ahead->reason = errno;
    }
    ahead->ended = got <= 0;
    wake(ahead);
    pthread_mutex_unlock(&ahead->lock);
}

static void read_all(rt_ahead *ahead, int file)
{
    size_t size;
    ssize_t got = 1;
    while (got > 0 && (size = await_room(ahead)) > 0) {
        do
            got = read(file, ahead->bytes + ahead->got % RT_AHEAD_BYTES, size);
        while (got < 0 && errno == EINTR);
        add(ahead, got);
    }
}

static void *run(void *context)
{
    rt_ahead *ahead = context;
    const int file = open(ahead->path, O_RDONLY | O_CLOEXEC);
    if (file >= 0) {
        (void)posix_fadvise(file, 0, 0, POSIX_FADV_SEQUENTIAL);
        read_all(ahead, file);
        close(file);
    } else {
        const int reason = errno;
        pthread_mutex_lock(&ahead->lock);
        ahead->failed = "open";
        ahead->reason = reason;
        ahead->ended = true;
        wake(ahead);
        pthread_mutex_unlock(&ahead->lock);
    }
    leave(ahead);
    return NULL;
}

// ---- the user --------------------------------------------------------------------------------

rt_status rt_ahead_open(const char *path, rt_ahead **ahead_p, rt_error *error)
{
    rt_ahead *ahead = rt_alloc(1, sizeof *ahead);
    if (!ahead)
        return rt_fail(error, RT_NO_MEMORY, "out of memory: %s", path);
    pthread_mutex_init(&ahead->lock, NULL);
    pthread_cond_init(&ahead->room, NULL);
    ahead->notify_fd = -1;
    ahead->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    ahead->path = rt_alloc(strlen(path) + 1, 1);
    rt_status status = RT_OK;
    int reason = errno;
    if (!ahead->path)
        status = rt_fail(error, RT_NO_MEMORY, "out of memory: %s", path);
    else if (ahead->wake_fd < 0 ||
             (reason = (strcpy(ahead->path, path), rt_thread_detach(run, ahead))) != 0)
        status =
            rt_fail(error, rt_thread_refusal(reason), "cannot start a thread that reads %s", path);
    if (status) {
        destroy(ahead);
        return status;
    }
    *ahead_p = ahead;
    return RT_OK;
}

void rt_ahead_close(rt_ahead *ahead)
{
    if (!ahead)
        return;
    pthread_mutex_lock(&ahead->lock);
    ahead->closed = true;
    pthread_cond_signal(&ahead->room);
    pthread_mutex_unlock(&ahead->lock);
    leave(ahead);
}

void rt_ahead_notify(rt_ahead *ahead, int wake_fd)
{
    pthread_mutex_lock(&ahead->lock);
    ahead->notify_fd = wake_fd;
    pthread_mutex_unlock(&ahead->lock);
}

int rt_ahead_fd(const rt_ahead *ahead)
{
    return ahead->wake_fd;
}

// How many bytes there are. 0: none, and the descriptor says when that changes, or ended is set.
static uint64_t look(rt_ahead *ahead, bool *ended)
{
    uint64_t woken;
    pthread_mutex_lock(&ahead->lock);
    const uint64_t count = ahead->got - ahead->taken;
    *ended = ahead->ended;
    if (count == 0 && !*ended && read(ahead->wake_fd, &woken, sizeof woken) < 0) {
        // nobody woke us
    }
    pthread_mutex_unlock(&ahead->lock);
    return count;
}

rt_status rt_ahead_take(rt_ahead *ahead, void *bytes, size_t size, size_t *got_p, rt_error *error)
{
    bool ended;
    const uint64_t count = look(ahead, &ended);
    if (count == 0 && !ended)
        return RT_AGAIN;
    if (count == 0 && ahead->failed)
        return rt_fail(error, rt_status_of_errno(ahead->reason), "cannot %s %s: %s", ahead->failed,
                       ahead->path, strerror(ahead->reason));
    if (count == 0)
        return RT_END;
    const size_t at = ahead->taken % RT_AHEAD_BYTES;
    *got_p = rt_min_u64(rt_min_u64(size, count), RT_AHEAD_BYTES - at);
    memcpy(bytes, ahead->bytes + at, *got_p);
    pthread_mutex_lock(&ahead->lock);
    ahead->taken += *got_p;
    pthread_cond_signal(&ahead->room);
    pthread_mutex_unlock(&ahead->lock);
    return RT_OK;
}
