#include "runtime/live/rt_spool.h"

#include <pthread.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "runtime/rt_log.h"
#include "runtime/rt_thread.h"
#include "runtime/stream/rt_joined.h"
#include "runtime/stream/rt_source.h"

#define BLOCK_BYTES ((size_t)256 << 10)
#define BLOCK_NS UINT64_C(20000000) // so long lines are gathered
#define FULL_US 50000

struct rt_spool {
    rt_stream_config stream; // borrows from the configuration
    uint64_t seed;
    rt_journal *journal;
    const rt_source_ops *ops;
    void *source;
    int stop, wake;
    pthread_t thread;
    bool runs;
    rt_bytes lines, note; // the thread's
    uint32_t line_count;
    pthread_mutex_t lock; // the members below
    pthread_cond_t changed;
    bool is_stopped, is_waiting;
    rt_status committed, state;
    rt_error error;
};

rt_journal *rt_spool_journal(const rt_spool *spool)
{
    return spool->journal;
}

rt_status rt_spool_state(rt_spool *spool, rt_error *error)
{
    pthread_mutex_lock(&spool->lock);
    const rt_status status = spool->state;
    if (status && status != RT_END)
        *error = spool->error;
    pthread_mutex_unlock(&spool->lock);
    return status;
}

static void committed(void *context, rt_status status)
{
    rt_spool *spool = context;
    pthread_mutex_lock(&spool->lock);
    spool->committed = status;
    spool->is_waiting = false;
    pthread_cond_broadcast(&spool->changed);
    pthread_mutex_unlock(&spool->lock);
}

static bool is_stopped(rt_spool *spool)
{
    pthread_mutex_lock(&spool->lock);
    const bool stopped = spool->is_stopped;
    pthread_mutex_unlock(&spool->lock);
    return stopped;
}

// Lines and the position behind them go into the spool at once, before more is read.
static rt_status commit(rt_spool *spool)
{
    spool->note.size = 0;
    spool->ops->tell(spool->source, &spool->note);
    if (spool->lines.failed || spool->note.failed)
        return RT_NO_MEMORY;
    const rt_journal_entry entry = {.lines = (const char *)spool->lines.data,
                                    .size = spool->lines.size,
                                    .count = spool->line_count,
                                    .note = spool->note.data,
                                    .note_size = spool->note.size,
                                    .done = committed,
                                    .context = spool};
    rt_status status;
    do {
        spool->is_waiting = true;
        while ((status = rt_journal_append(spool->journal, &entry)) == RT_AGAIN) {
            if (is_stopped(spool))
                return RT_STOPPED;
            usleep(FULL_US);
        }
        pthread_mutex_lock(&spool->lock);
        while (!status && spool->is_waiting)
            pthread_cond_wait(&spool->changed, &spool->lock);
        status = status ? status : spool->committed;
        pthread_mutex_unlock(&spool->lock);
        if (status == RT_IO)
            usleep(FULL_US);
    } while (status == RT_IO && !is_stopped(spool)); // the disk is full, say
    spool->lines.size = 0;
    spool->line_count = 0;
    return status;
}

static rt_status read_block(rt_spool *spool, rt_error *error)
{
    uint64_t deadline_ns = 0;
    rt_status status = RT_OK;
    while (!status && spool->lines.size < BLOCK_BYTES) {
        rt_line line;
        status = spool->ops->line(spool->source, deadline_ns, 0, &line, error);
        if (status || line.is_too_long)
            continue;
        if (deadline_ns == 0)
            deadline_ns = rt_now_ns() + BLOCK_NS;
        rt_bytes_put(&spool->lines, line.text, line.length);
        rt_bytes_put(&spool->lines, "\n", 1);
        spool->line_count++;
    }
    return status == RT_AGAIN ? RT_OK : status;
}

static void *run(void *context)
{
    rt_spool *spool = context;
    const uint64_t one = 1;
    rt_error error = {0};
    rt_status status = RT_OK;
    prctl(PR_SET_NAME, "spool");
    while (!status) {
        status = read_block(spool, &error);
        const rt_status kept = spool->line_count ? commit(spool) : RT_OK;
        if (kept && kept != RT_STOPPED)
            rt_fail(&error, kept, "the spool cannot be written: %s", rt_status_text(kept));
        status = kept ? kept : status;
    }
    pthread_mutex_lock(&spool->lock);
    spool->state = status == RT_STOPPED ? RT_OK : status;
    spool->error = error;
    pthread_mutex_unlock(&spool->lock);
    if (write(spool->wake, &one, sizeof one) < 0) {
        // it is readable already
    }
    return NULL;
}

static rt_status open_source(rt_spool *spool, rt_error *error)
{
    const rt_stream_config *stream = &spool->stream;
    const rt_source_watch watch = {spool->stop, -1};
    rt_bytes note = {0};
    spool->ops = rt_source_of(stream);
    if (!spool->ops || !spool->ops->line)
        return rt_fail(error, RT_CONFIG,
                       "stream.source: expected a source of lines that this build has: a feeder "
                       "reads lines");
    rt_status status = spool->ops->open(stream, spool->seed, &spool->source, error);
    if (status)
        return status;
    if (spool->ops->watch)
        spool->ops->watch(spool->source, &watch);
    rt_journal_note(spool->journal, &note);
    rt_reader reader = rt_bytes_reader(&note);
    if (note.size > 0)
        status = spool->ops->seek(spool->source, &reader, NULL, error);
    rt_bytes_fini(&note);
    return status;
}

static rt_status start(rt_spool *spool, rt_error *error)
{
    spool->runs = rt_thread_start(&spool->thread, run, spool) == 0;
    return spool->runs ? RT_OK : rt_fail(error, RT_LIMIT, "cannot start the spool's thread");
}

rt_status rt_spool_open(const rt_config *config, rt_flow flow, const char *directory, int wake_fd,
                        rt_spool **spool_p, rt_error *error)
{
    char place[RT_PATH_MAX + 16];
    rt_spool *spool = rt_alloc(1, sizeof *spool);
    if (!spool)
        return rt_fail(error, RT_NO_MEMORY, "out of memory for a spool");
    spool->stream = flow == RT_FLOW_EVENTS ? config->stream : rt_joined_config(&config->stream);
    spool->seed = config->seed;
    rt_journal_place(directory, flow, place, sizeof place);
    spool->wake = wake_fd;
    spool->stop = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    pthread_mutex_init(&spool->lock, NULL);
    pthread_cond_init(&spool->changed, NULL);
    rt_status status = RT_OK;
    if (spool->stop < 0)
        status = rt_fail(error, RT_LIMIT, "cannot create an event descriptor");
    if (!status)
        status = rt_journal_open(place, config->journal_bytes_max, &spool->journal, error);
    if (!status)
        status = open_source(spool, error);
    if (!status)
        status = start(spool, error);
    if (status) {
        rt_spool_close(spool);
        return status;
    }
    *spool_p = spool;
    return RT_OK;
}

void rt_spool_close(rt_spool *spool)
{
    const uint64_t one = 1;
    if (!spool)
        return;
    pthread_mutex_lock(&spool->lock);
    spool->is_stopped = true;
    pthread_mutex_unlock(&spool->lock);
    if (spool->stop >= 0 && write(spool->stop, &one, sizeof one) < 0) {
        // it is readable already
    }
    if (spool->runs)
        pthread_join(spool->thread, NULL);
    if (spool->source)
        spool->ops->close(spool->source);
    rt_journal_close(spool->journal);
    if (spool->stop >= 0)
        close(spool->stop);
    rt_bytes_fini(&spool->lines);
    rt_bytes_fini(&spool->note);
    pthread_cond_destroy(&spool->changed);
    pthread_mutex_destroy(&spool->lock);
    rt_free(spool);
}
