#include "runtime/live/rt_intake_core.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "runtime/rt_thread.h"

typedef struct {
    rt_intake_core *core;
    uint32_t count;
    rt_intake_done done;
    void *context;
} block;

rt_status rt_intake_begin(rt_intake_core *core, const char *name, const rt_config *config,
                          const rt_journals *journals, rt_error *error)
{
    core->name = name;
    core->journals = *journals;
    core->names_events = *config->stream.id;
    pthread_mutex_init(&core->lock, NULL);
    pthread_cond_init(&core->changed, NULL);
    core->wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (core->wake < 0)
        return rt_fail(error, RT_LIMIT, "%s: cannot create an event descriptor", name);
    return RT_OK;
}

rt_status rt_intake_read_lines(rt_intake_core *core, const rt_config *config, rt_error *error)
{
    for (rt_flow flow = 0; flow < RT_FLOWS; flow++) {
        if (!core->journals.of[flow])
            continue;
        rt_status status = rt_intake_reader_create(config, flow, &core->readers[flow], error);
        if (status)
            return status;
    }
    return RT_OK;
}

rt_status rt_intake_start(rt_intake_core *core, void *(*run)(void *), void *context,
                          rt_error *error)
{
    core->runs = rt_thread_start(&core->thread, run, context) == 0;
    if (!core->runs)
        return rt_fail(error, RT_LIMIT, "%s: cannot start a thread", core->name);
    return RT_OK;
}

void rt_intake_wake(const rt_intake_core *core)
{
    const uint64_t one = 1;
    if (core->wake >= 0 && write(core->wake, &one, sizeof one) < 0) {
        // it is readable already
    }
}

void rt_intake_wakes_seen(const rt_intake_core *core)
{
    uint64_t wakes;
    if (read(core->wake, &wakes, sizeof wakes) < 0) {
        // nobody has written to it
    }
}

void rt_intake_pause(const rt_intake_core *core, int ms)
{
    struct pollfd wake = {core->wake, POLLIN, 0};
    (void)poll(&wake, 1, ms);
}

bool rt_intake_is_stopped(rt_intake_core *core)
{
    pthread_mutex_lock(&core->lock);
    const bool stop = core->stop;
    pthread_mutex_unlock(&core->lock);
    return stop;
}

// by: 1, or -1 where it was not appended. Outcomes have the names of their events.
static void count_block(rt_intake_core *core, rt_flow flow, uint32_t count, int by)
{
    const bool is_named = core->names_events || flow == RT_FLOW_OUTCOMES;
    pthread_mutex_lock(&core->lock);
    core->open += (uint32_t)by;
    if (!is_named)
        core->counts.unnamed += (uint64_t)((int64_t)by * count);
    pthread_mutex_unlock(&core->lock);
}

static void kept(void *context, rt_status status)
{
    block *b = context;
    rt_intake_core *core = b->core;
    b->done(b->context, b->count, status);
    rt_free(b);
    pthread_mutex_lock(&core->lock);
    core->open--;
    rt_intake_wake(core); // before the lock is given up: whoever stops waits for it
    pthread_cond_broadcast(&core->changed);
    pthread_mutex_unlock(&core->lock);
}

rt_status rt_intake_append(rt_intake_core *core, rt_flow flow, const rt_journal_entry *entry,
                           rt_intake_done done, void *context)
{
    rt_journal_entry mine = *entry;
    block *b = rt_alloc(1, sizeof *b);
    if (!b)
        return RT_NO_MEMORY;
    *b = (block){core, entry->count, done, context};
    mine.done = kept;
    mine.context = b;
    count_block(core, flow, entry->count, 1);
    rt_status status = rt_journal_append(core->journals.of[flow], &mine);
    if (status) {
        count_block(core, flow, entry->count, -1);
        rt_free(b);
    }
    return status;
}

void rt_intake_count_refused(rt_intake_core *core, uint64_t count)
{
    pthread_mutex_lock(&core->lock);
    core->counts.refused += count;
    pthread_mutex_unlock(&core->lock);
}

void rt_intake_read_counts(rt_intake_core *core, rt_intake_counts *counts)
{
    pthread_mutex_lock(&core->lock);
    *counts = core->counts;
    pthread_mutex_unlock(&core->lock);
}

void rt_intake_settle(rt_intake_core *core)
{
    pthread_mutex_lock(&core->lock);
    while (core->open > 0)
        pthread_cond_wait(&core->changed, &core->lock);
    pthread_mutex_unlock(&core->lock);
}

void rt_intake_stop(rt_intake_core *core)
{
    pthread_mutex_lock(&core->lock);
    core->stop = true;
    pthread_mutex_unlock(&core->lock);
    rt_intake_wake(core);
    if (core->runs)
        pthread_join(core->thread, NULL);
    core->runs = false;
    rt_intake_settle(core);
}

void rt_intake_end(rt_intake_core *core)
{
    if (core->wake >= 0)
        close(core->wake);
    for (rt_flow flow = 0; flow < RT_FLOWS; flow++)
        rt_intake_reader_destroy(core->readers[flow]);
    pthread_cond_destroy(&core->changed);
    pthread_mutex_destroy(&core->lock);
}
