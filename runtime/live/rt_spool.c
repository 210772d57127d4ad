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

_Static_assert(RT_POSITION_SOURCE_BYTES_MAX <= RT_JOURNAL_NOTE_MAX, "it is the spool's note");

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

// Returns once it is committed, or is not to be.
static rt_status append(rt_spool *spool, const rt_journal_entry *entry)
{
    rt_status status;
    spool->is_waiting = true;
    while ((status = rt_journal_append(spool->journal, entry)) == RT_AGAIN) {
        if (is_stopped(spool))
            return RT_STOPPED;
        usleep(FULL_US);
    }
    if (status)
        return status;
    pthread_mutex_lock(&spool->lock);
    while (spool->is_waiting)
        pthread_cond_wait(&spool->changed, &spool->lock);
    status = spool->committed;
    pthread_mutex_unlock(&spool->lock);
    return status;
}

// Lines and the position behind them go into the spool at once, before more is read.
static rt_status commit(rt_spool *spool)
{
    rt_bytes_clear(&spool->note);
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
    rt_status status = append(spool, &entry);
    while (status == RT_IO && !is_stopped(spool)) { // the disk is full, say
        usleep(FULL_US);
        status = append(spool, &entry);
    }
    if (status == RT_STOPPED)
        return status;
    rt_bytes_clear(&spool->lines);
    spool->line_count = 0;
    return status;
}

static rt_status read_block(rt_spool *spool, rt_error *error)
{
    uint64_t deadline_ns = 0;
    while (spool->lines.size < BLOCK_BYTES) {
        rt_line line;
        rt_status status = spool->ops->line(spool->source, deadline_ns, 0, &line, error);
        if (status == RT_AGAIN)
            return RT_OK;
        if (status)
            return status;
        if (line.is_too_long)
            continue;
        if (deadline_ns == 0)
            deadline_ns = rt_now_ns() + BLOCK_NS;
        rt_bytes_put(&spool->lines, line.text, line.length);
        rt_bytes_put(&spool->lines, "\n", 1);
        spool->line_count++;
    }
    return RT_OK;
}

// A block after the other, until the input ends or something fails.
static rt_status gather(rt_spool *spool, rt_error *error)
{
    for (;;) {
        const rt_status status = read_block(spool, error);
        rt_status kept = RT_OK;
        if (spool->line_count) // also what came before the end
            kept = commit(spool);
        if (kept && kept != RT_STOPPED)
            return rt_fail(error, kept, "the spool cannot be written: %s", rt_status_text(kept));
        if (kept)
            return kept;
        if (status)
            return status;
    }
}

static void *run(void *context)
{
    rt_spool *spool = context;
    const uint64_t one = 1;
    rt_error error = {0};
    prctl(PR_SET_NAME, "spool");
    const rt_status status = gather(spool, &error);
    pthread_mutex_lock(&spool->lock);
    if (status != RT_STOPPED)
        spool->state = status;
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
    if (!spool->runs)
        return rt_fail(error, RT_LIMIT, "cannot start the spool's thread");
    return RT_OK;
}

static rt_status open_parts(rt_spool *spool, const rt_config *config, const char *place,
                            rt_error *error)
{
    if (spool->stop < 0)
        return rt_fail(error, RT_LIMIT, "cannot create an event descriptor");
    rt_status status =
        rt_journal_open(place, config->journal_bytes_max, NULL, &spool->journal, error);
    if (status)
        return status;
    status = open_source(spool, error);
    if (status)
        return status;
    return start(spool, error);
}

rt_status rt_spool_open(const rt_config *config, rt_flow flow, const char *directory, int wake_fd,
                        rt_spool **spool_p, rt_error *error)
{
    char place[RT_PATH_MAX + 16];
    rt_spool *spool = rt_alloc(1, sizeof *spool);
    if (!spool)
        return rt_fail(error, RT_NO_MEMORY, "out of memory for a spool");
    spool->stream = config->stream;
    if (flow == RT_FLOW_OUTCOMES)
        spool->stream = rt_joined_config(&config->stream);
    spool->seed = config->seed;
    rt_journal_place(directory, flow, place, sizeof place);
    spool->wake = wake_fd;
    spool->stop = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    pthread_mutex_init(&spool->lock, NULL);
    pthread_cond_init(&spool->changed, NULL);
    rt_status status = open_parts(spool, config, place, error);
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
