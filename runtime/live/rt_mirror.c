#include "runtime/live/rt_mirror.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <unistd.h>

#include "runtime/files/rt_file.h"
#include "runtime/live/rt_mirror_parts.h"
#include "runtime/live/rt_standby.h"
#include "runtime/rt_hash.h"
#include "runtime/rt_thread.h"

#define STANDBY rt_peer(RT_ROLE_COORDINATOR, 0)
#define NS_PER_MS UINT64_C(1000000)
#define RETRY_NS (200 * NS_PER_MS)
#define BEAT_NS (500 * NS_PER_MS)
#define LOOK_NS (300 * NS_PER_MS) // for new checkpoints
#define TICK_MS 50
#define NS_PER_S 1e9

// ---- the id of a run's folder ----------------------------------------------------------------

static rt_status take_id(const char *directory, uint64_t *id_p, rt_error *error)
{
    char path[RT_PATH_MAX + 16], text[32];
    rt_status status = rt_standby_read_id(directory, id_p, error);
    if (status || *id_p)
        return status;
    snprintf(path, sizeof path, "%s/standby.id", directory);
    do {
        if (getrandom(id_p, sizeof *id_p, 0) != sizeof *id_p)
            return rt_fail(error, RT_IO, "no random numbers: %s", strerror(errno));
    } while (*id_p == 0);
    snprintf(text, sizeof text, "%016" PRIx64 "\n", *id_p);
    return rt_file_save(path, text, strlen(text), error);
}

// ---- the connection: the mirror's thread -----------------------------------------------------

static bool is_stopped(rt_mirror *m)
{
    pthread_mutex_lock(&m->lock);
    const bool stop = m->stop;
    pthread_mutex_unlock(&m->lock);
    return stop;
}

static const char *effect_of(const rt_mirror *m, const rt_error *why)
{
    if (why->status == RT_REFUSED)
        return "this coordinator ends";
    if (m->config.waits)
        return "nothing is acknowledged until it is there";
    return "what comes is acknowledged without it";
}

static void hang_up(rt_mirror *m, const rt_error *why)
{
    uint64_t count;
    if (m->endpoint)
        m->config.ops->end(m->endpoint, 0);
    m->endpoint = NULL;
    m->retry_ns = rt_now_ns() + RETRY_NS;
    pthread_mutex_lock(&m->lock);
    const bool was_there = m->is_there;
    if (was_there)
        m->away_ns = rt_now_ns();
    m->is_there = m->is_in_step = false;
    if (why && why->status == RT_REFUSED)
        m->refusal = *why;
    else if (why)
        m->why = *why;
    pthread_cond_broadcast(&m->changed);
    pthread_mutex_unlock(&m->lock);
    if (why && (was_there || why->status == RT_REFUSED || rt_log_due(&m->limit, &count)))
        rt_warn("coordinator.standby: %s: %s", why->text, effect_of(m, why));
}

static rt_status take_answer(rt_mirror *m, const rt_message *answer, rt_bytes *text,
                             rt_error *error)
{
    rt_wire_mirrored head;
    rt_reader reader = rt_message_reader(answer);
    if (!rt_reader_get(&reader, &head, 1, sizeof head))
        return rt_fail(error, RT_WIRE, "%s: an answer of %zu bytes", m->address, reader.left);
    const rt_status reason = head.status == RT_REFUSED ? RT_REFUSED : RT_IO;
    if (head.status)
        return rt_fail(error, reason, "%s: %.*s", m->address, (int)rt_min_u64(reader.left, 300),
                       (const char *)reader.next);
    if (text) {
        rt_bytes_clear(text);
        rt_bytes_put(text, reader.next, reader.left);
        rt_bytes_put(text, "", 1);
    }
    if (text && text->failed)
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    return RT_OK;
}

static rt_status await_answer(rt_mirror *m, rt_bytes *text, rt_error *error)
{
    const rt_transport_ops *ops = m->config.ops;
    const uint64_t end_ns = rt_now_ns() + (uint64_t)(m->config.timeout_peer_s * NS_PER_S);
    while (rt_now_ns() < end_ns) {
        bool ready;
        uint32_t peer;
        rt_message answer = {0};
        rt_status status = rt_transport_receive(ops, m->endpoint, &peer, &answer, error);
        if (status == RT_AGAIN) {
            if (is_stopped(m))
                return rt_fail(error, RT_STOPPED, "ends");
            (void)ops->wait(&m->endpoint, 1, -1, TICK_MS, &ready);
            continue;
        }
        if (status)
            return rt_fail(error, RT_PEER, "%s: the connection has ended", m->address);
        const rt_wire_header *header = rt_message_header(&answer);
        const bool is_ours =
            header->type == RT_MESSAGE_MIRRORED && header->iteration == m->question;
        const bool is_other = header->type == RT_MESSAGE_STOP;
        m->is_taken = rt_control_is_taken(&answer);
        if (is_ours)
            status = take_answer(m, &answer, text, error);
        rt_message_release(&answer);
        if (is_ours)
            return status;
        if (is_other)
            return rt_fail(error, RT_PEER, "%s ended the connection", m->address);
    }
    return rt_fail(error, RT_TIMEOUT, "%s does not answer within %g s (timeouts.peer_s)",
                   m->address, m->config.timeout_peer_s);
}

rt_status rt_mirror_ask(rt_mirror *m, const rt_wire_mirror *what, const void *bytes, size_t size,
                        rt_bytes *text, rt_error *error)
{
    rt_message message;
    if (!m->endpoint)
        return rt_fail(error, RT_PEER, "%s: not connected", m->address);
    if (rt_message_create(&message, RT_MESSAGE_MIRROR, rt_visitor_peer(&m->visitor), ++m->question,
                          1, sizeof *what + size))
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    memcpy(rt_message_payload(&message), what, sizeof *what);
    if (size)
        memcpy(rt_message_payload(&message) + sizeof *what, bytes, size);
    rt_status status = rt_transport_send(m->config.ops, m->endpoint, STANDBY, &message);
    rt_message_release(&message);
    if (status)
        return rt_fail(error, RT_PEER, "%s: cannot send: %s", m->address, rt_status_text(status));
    m->beat_ns = rt_now_ns() + BEAT_NS;
    return await_answer(m, text, error);
}

// What the standby says that it has.
static rt_status take_list(rt_mirror *m, char *text, rt_error *error)
{
    char *rest = text;
    m->saved_count = 0;
    for (uint32_t f = 0; f < RT_MIRROR_FLOWS; f++)
        m->flows[f].there_count = 0;
    for (char *line; (line = strsep(&rest, "\n")) && *line;) {
        uint32_t flow, iteration;
        rt_journal_extent one;
        rt_mirror_checkpoint saved;
        if (sscanf(line, "journal %" SCNu32 " %" SCNu64 " %" SCNu64, &flow, &one.first,
                   &one.bytes) == 3 &&
            flow < RT_MIRROR_FLOWS) {
            rt_mirror_flow *f = &m->flows[flow];
            if (rt_grow(&f->there, &f->there_capacity, f->there_count + 1u, sizeof *f->there))
                return rt_fail(error, RT_NO_MEMORY, "out of memory");
            f->there[f->there_count++] = one;
        } else if (sscanf(line, "checkpoint %" SCNu32 " %" SCNx64, &iteration, &saved.hash) == 2) {
            if (rt_grow(&m->saved, &m->saved_capacity, m->saved_count + 1u, sizeof *m->saved))
                return rt_fail(error, RT_NO_MEMORY, "out of memory");
            saved.iteration = iteration;
            m->saved[m->saved_count++] = saved;
        } else {
            return rt_fail(error, RT_WIRE, "%s: has \"%.80s\"", m->address, line);
        }
    }
    return RT_OK;
}

static rt_status begin(rt_mirror *m, rt_error *error)
{
    rt_bytes text = {0};
    const rt_wire_mirror what = {.kind = RT_MIRROR_BEGIN, .id = m->id, .epoch = m->config.epoch};
    rt_status status = rt_mirror_ask(m, &what, NULL, 0, &text, error);
    if (!status)
        status = take_list(m, (char *)text.data, error);
    rt_bytes_fini(&text);
    memset(m->beside, 0, sizeof m->beside);
    return status;
}

static rt_status connect_once(rt_mirror *m, rt_error *error)
{
    m->is_taken = false;
    rt_status status = m->config.ops->connect(m->transport, rt_visitor_peer(&m->visitor), STANDBY,
                                              m->address, &m->endpoint, error);
    if (status) {
        m->endpoint = NULL;
        return status;
    }
    status = begin(m, error);
    if (m->is_taken) {
        m->config.ops->end(m->endpoint, 0);
        m->endpoint = NULL;
    }
    return status;
}

static rt_status connect_to(rt_mirror *m, rt_error *error)
{
    const rt_keys *keys = m->config.keys;
    rt_status status = RT_OK;
    if (keys && keys->is_set)
        status = m->config.ops->trust(m->transport, STANDBY, keys->standby.bytes, error);
    if (status)
        return status;
    do
        status = connect_once(m, error);
    while (m->is_taken && !is_stopped(m) && rt_visitor_next(&m->visitor));
    if (status)
        return status;
    rt_visitor_settle(&m->visitor);
    pthread_mutex_lock(&m->lock);
    m->is_there = m->is_answered = true;
    m->why = (rt_error){0};
    pthread_cond_broadcast(&m->changed);
    pthread_mutex_unlock(&m->lock);
    rt_info("coordinator.standby: %s follows", m->address);
    m->look_ns = 0;
    return RT_OK;
}

static rt_status beat(rt_mirror *m, rt_error *error)
{
    const rt_wire_mirror what = {.kind = RT_MIRROR_BEAT, .id = m->id, .epoch = m->config.epoch};
    if (rt_now_ns() < m->beat_ns)
        return RT_OK;
    return rt_mirror_ask(m, &what, NULL, 0, NULL, error);
}

static rt_status follow(rt_mirror *m, rt_error *error)
{
    rt_status status = RT_OK;
    if (!m->endpoint && rt_now_ns() < m->retry_ns)
        return RT_AGAIN;
    if (!m->endpoint)
        status = connect_to(m, error);
    if (!status)
        status = rt_mirror_serve(m, error);
    if (!status)
        status = rt_mirror_journals(m, error);
    if (!status && rt_now_ns() >= m->look_ns) {
        status = rt_mirror_files(m, error);
        m->look_ns = rt_now_ns() + LOOK_NS;
    }
    if (status)
        return status;
    return beat(m, error);
}

static void *run(void *context)
{
    rt_mirror *m = context;
    prctl(PR_SET_NAME, "mirror");
    while (!is_stopped(m)) {
        struct pollfd wake = {m->wake_fd, POLLIN, 0};
        uint64_t wakes;
        rt_error error = {0};
        const rt_status status = follow(m, &error);
        if (status == RT_REFUSED) {
            hang_up(m, &error);
            return NULL;
        }
        if (status == RT_STOPPED)
            hang_up(m, NULL);
        else if (status && status != RT_AGAIN && status != RT_NOT_FOUND)
            hang_up(m, &error);
        (void)poll(&wake, 1, TICK_MS);
        if (read(m->wake_fd, &wakes, sizeof wakes) < 0) {
            // nobody has written to it
        }
    }
    return NULL;
}

// ---- what others ask -------------------------------------------------------------------------

rt_status rt_mirror_open(const rt_mirror_config *config, rt_mirror **mirror_p, rt_error *error)
{
    rt_mirror *m = rt_alloc(1, sizeof *m);
    if (!m)
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    m->config = *config;
    snprintf(m->address, sizeof m->address, "%s", config->address);
    snprintf(m->checkpoints, sizeof m->checkpoints, "%s", config->checkpoints);
    m->away_ns = rt_now_ns();
    for (uint32_t f = 0; f < RT_MIRROR_FLOWS; f++)
        m->flows[f] = (rt_mirror_flow){.mirror = m, .flow = f};
    pthread_mutex_init(&m->lock, NULL);
    pthread_cond_init(&m->changed, NULL);
    m->buffer = rt_alloc(1, RT_WIRE_MIRROR_BYTES_MAX);
    m->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    rt_status status;
    if (m->buffer)
        status = take_id(config->directory, &m->id, error);
    else
        status = rt_fail(error, RT_NO_MEMORY, "out of memory");
    if (!status)
        status = rt_visitor_init(&m->visitor, error);
    if (!status && m->wake_fd < 0)
        status = rt_fail(error, RT_LIMIT, "cannot create an event descriptor");
    if (!status)
        status = rt_transport_open(config->ops, config->keys, &m->transport, error);
    if (status) {
        rt_mirror_close(m);
        return status;
    }
    *mirror_p = m;
    return RT_OK;
}

void rt_mirror_wake(const rt_mirror *m)
{
    const uint64_t one = 1;
    if (write(m->wake_fd, &one, sizeof one) < 0) {
        // it is readable already
    }
}

void rt_mirror_stop(rt_mirror *m)
{
    if (!m)
        return;
    pthread_mutex_lock(&m->lock);
    m->stop = true;
    pthread_cond_broadcast(&m->changed);
    pthread_mutex_unlock(&m->lock);
    rt_mirror_wake(m);
    if (m->runs)
        pthread_join(m->thread, NULL);
    m->runs = false;
}

void rt_mirror_close(rt_mirror *m)
{
    if (!m)
        return;
    rt_mirror_stop(m);
    if (m->endpoint)
        m->config.ops->end(m->endpoint, 0);
    if (m->transport)
        m->config.ops->close(m->transport);
    if (m->wake_fd >= 0)
        close(m->wake_fd);
    for (uint32_t f = 0; f < RT_MIRROR_FLOWS; f++)
        rt_free(m->flows[f].there);
    rt_free(m->saved);
    rt_free(m->buffer);
    pthread_cond_destroy(&m->changed);
    pthread_mutex_destroy(&m->lock);
    rt_free(m);
}

rt_status rt_mirror_await(rt_mirror *m, double limit_s, int stop_fd, rt_error *error)
{
    const uint64_t end_ns = rt_now_ns() + (uint64_t)(limit_s * NS_PER_S);
    rt_status status = RT_OK;
    if (!m->runs)
        status = rt_thread_run(&m->thread, &m->runs, run, m, error);
    if (status)
        return status;
    status = RT_AGAIN;
    while (status == RT_AGAIN) {
        struct pollfd stop = {stop_fd, POLLIN, 0};
        rt_error why;
        pthread_mutex_lock(&m->lock);
        status = m->is_answered ? RT_OK : RT_AGAIN;
        why = m->why;
        if (m->refusal.status)
            status = rt_fail(error, RT_REFUSED, "%s", m->refusal.text);
        pthread_mutex_unlock(&m->lock);
        if (status == RT_AGAIN && rt_now_ns() >= end_ns)
            status =
                rt_fail(error, RT_TIMEOUT, "coordinator.standby: no answer from %s within %g s%s%s",
                        m->address, limit_s, why.text[0] ? ": " : "", why.text);
        if (status == RT_AGAIN && poll(&stop, 1, TICK_MS) > 0)
            status = rt_fail(error, RT_STOPPED, "interrupted before the run began");
    }
    return status;
}

rt_status rt_mirror_check(rt_mirror *m, rt_error *error)
{
    if (!m)
        return RT_OK;
    pthread_mutex_lock(&m->lock);
    rt_status status = RT_OK;
    if (m->refusal.status)
        status = rt_fail(error, RT_REFUSED, "%s", m->refusal.text);
    pthread_mutex_unlock(&m->lock);
    return status;
}

void rt_mirror_lead(rt_mirror *m)
{
    if (!m)
        return;
    pthread_mutex_lock(&m->lock);
    m->leads = true;
    pthread_cond_broadcast(&m->changed);
    pthread_mutex_unlock(&m->lock);
}

void rt_mirror_statistics(rt_mirror *m, rt_mirror_counts *counts)
{
    pthread_mutex_lock(&m->lock);
    *counts = (rt_mirror_counts){
        .is_there = m->is_there,
        .is_in_step = m->is_in_step,
        .behind_bytes = m->behind_bytes,
        .blocks = m->blocks,
        .alone = m->alone,
        .checkpoint = m->checkpoint,
        .away_s = m->is_there ? 0 : (double)(rt_now_ns() - m->away_ns) / NS_PER_S,
    };
    pthread_mutex_unlock(&m->lock);
}

// ---- commits: the journal's thread -----------------------------------------------------------

static void offer(void *context, uint64_t segment, uint64_t offset, const void *bytes, size_t size)
{
    rt_mirror_flow *f = context;
    pthread_mutex_lock(&f->mirror->lock);
    f->is_offered = true;
    f->offer++;
    f->is_done = false;
    f->segment = segment;
    f->offset = offset;
    f->bytes = bytes;
    f->size = size;
    pthread_mutex_unlock(&f->mirror->lock);
    rt_mirror_wake(f->mirror);
}

static rt_status settle(void *context, bool is_written, rt_error *error)
{
    rt_mirror_flow *f = context;
    rt_mirror *m = f->mirror;
    rt_status status = RT_OK;
    pthread_mutex_lock(&m->lock);
    while (is_written && !f->is_done && !m->stop && !m->refusal.status &&
           (m->config.waits || !m->leads || (m->is_there && m->is_in_step)))
        pthread_cond_wait(&m->changed, &m->lock);
    if (is_written && m->refusal.status)
        status = rt_fail(error, RT_REFUSED, "%s", m->refusal.text);
    else if (is_written && !f->is_done && m->stop && (m->config.waits || !m->leads))
        status = rt_fail(error, RT_STOPPED, "the standby did not have it when the run ended");
    m->blocks += is_written && !status && f->is_done;
    m->alone += is_written && !status && !f->is_done;
    f->is_offered = false;
    if (!is_written || status) // it goes here: it goes there, too
        f->kept = (rt_journal_extent){f->segment, f->offset};
    pthread_mutex_unlock(&m->lock);
    return status;
}

rt_journal_copy rt_mirror_copy(rt_mirror *m, rt_flow flow)
{
    return (rt_journal_copy){offer, settle, rt_mirror_fetch_bytes, &m->flows[flow]};
}

void rt_mirror_attach(rt_mirror *m, rt_flow flow, rt_journal *journal)
{
    pthread_mutex_lock(&m->lock);
    m->flows[flow].journal = journal;
    pthread_mutex_unlock(&m->lock);
}
