// Events over TCP: lines come in; how many of this connection's are on disk goes back, as a number
// in a line, after every commit. In the clear.
#define _GNU_SOURCE // accept4
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/live/rt_intake_core.h"
#include "runtime/rt_log.h"

#define CONNECTIONS_MAX 64u
#define READ_BYTES ((size_t)64 << 10)
#define UNCOMMITTED_MAX 8u // blocks of a connection that wait for the journal
#define FULL_MS 50

typedef struct intake intake;

typedef struct {
    intake *in;
    uint32_t references;   // the connection, and blocks that wait: under the core's lock
    uint64_t kept;         // lines: under the lock
    uint32_t waiting;      // blocks: under the lock
    bool failed;           // under the lock: the journal could not keep some
    int fd;                // from here on of the thread
    uint64_t told;         // lines
    bool is_ended;         // the other side has sent all
    bool is_skipping;      // inside a line that is too long
    bool is_held;          // the journal was full
    size_t size, capacity; // text that was not appended yet
    char *text;
    char answer[32]; // what of it could not be written
    size_t answer_size;
} connection;

struct intake {
    rt_intake_core core;
    rt_flow flow;
    int listener;
    connection *connections[CONNECTIONS_MAX]; // the thread's
    uint32_t connection_count;
    rt_log_limit limit;
};

// Under the lock.
static void release(connection *c)
{
    if (--c->references > 0)
        return;
    rt_free(c->text);
    rt_free(c);
}

// by: 1, or -1 where its block was not appended.
static void hold(connection *c, int by)
{
    pthread_mutex_lock(&c->in->core.lock);
    c->waiting += (uint32_t)by;
    c->references += (uint32_t)by;
    pthread_mutex_unlock(&c->in->core.lock);
}

static void kept(void *context, uint32_t count, rt_status status)
{
    connection *c = context;
    pthread_mutex_t *lock = &c->in->core.lock;
    pthread_mutex_lock(lock);
    if (!status)
        c->kept += count;
    c->failed |= status != RT_OK;
    c->waiting--;
    release(c);
    pthread_mutex_unlock(lock);
}

// Whole lines go to the journal. False: the connection cannot go on.
static bool append(connection *c, size_t size)
{
    uint32_t count;
    if (!rt_journal_count_lines(c->text, size, &count))
        return false;
    hold(c, 1);
    const rt_journal_entry entry = {.lines = c->text, .size = size, .count = count};
    const rt_status status = rt_intake_append(&c->in->core, c->in->flow, &entry, kept, c);
    c->is_held = status == RT_AGAIN;
    if (status) {
        hold(c, -1);
        return c->is_held;
    }
    c->size -= size;
    memmove(c->text, c->text + size, c->size);
    return true;
}

static size_t whole_lines(const connection *c)
{
    size_t size = c->size;
    while (size > 0 && c->text[size - 1] != '\n')
        size--;
    return size;
}

// What is there goes on. False: end the connection.
static bool go_on(connection *c)
{
    pthread_mutex_lock(&c->in->core.lock);
    const bool may = c->waiting < UNCOMMITTED_MAX;
    pthread_mutex_unlock(&c->in->core.lock);
    size_t size = whole_lines(c);
    if (size == 0 && c->size > RT_LINE_MAX)
        return false;
    if (size == 0 && c->is_ended) // half a line: who sent it was cut off, and not told of it
        c->size = 0;
    return !may || size == 0 || append(c, size);
}

static bool wants_bytes(const connection *c)
{
    return !c->is_ended && !c->is_held && c->capacity - c->size >= READ_BYTES;
}

static bool read_some(connection *c)
{
    const ssize_t count = read(c->fd, c->text + c->size, READ_BYTES);
    if (count < 0)
        return errno == EAGAIN || errno == EINTR;
    c->is_ended = count == 0;
    c->size += (size_t)count;
    return true;
}

// Tells how many lines are kept. False: nobody listens any more, or all was said.
static bool answer(connection *c)
{
    pthread_mutex_lock(&c->in->core.lock);
    const uint64_t lines = c->kept;
    const bool failed = c->failed, is_idle = c->waiting == 0;
    pthread_mutex_unlock(&c->in->core.lock);
    if (c->answer_size == 0 && lines > c->told) {
        c->told = lines;
        c->answer_size = (size_t)snprintf(c->answer, sizeof c->answer, "%" PRIu64 "\n", lines);
    }
    if (c->answer_size > 0) {
        const ssize_t count = send(c->fd, c->answer, c->answer_size, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (count < 0 && errno != EAGAIN && errno != EINTR)
            return false;
        if (count > 0) {
            c->answer_size -= (size_t)count;
            memmove(c->answer, c->answer + count, c->answer_size);
        }
    }
    const bool is_done = c->is_ended && c->size == 0 && is_idle && c->answer_size == 0;
    return !failed && !(is_done && c->told == lines);
}

static void end(intake *in, uint32_t i)
{
    connection *c = in->connections[i];
    close(c->fd);
    in->connections[i] = in->connections[--in->connection_count];
    pthread_mutex_lock(&in->core.lock);
    release(c);
    pthread_mutex_unlock(&in->core.lock);
}

static void accept_one(intake *in)
{
    uint64_t count;
    const int fd = accept4(in->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0)
        return;
    connection *c = NULL;
    if (in->connection_count < CONNECTIONS_MAX)
        c = rt_alloc(1, sizeof *c);
    const size_t capacity = RT_LINE_MAX + 2 * READ_BYTES;
    if (c)
        c->text = rt_alloc_lazy(capacity, 1);
    pthread_mutex_lock(&in->core.lock);
    in->core.counts.connections++;
    in->core.counts.refused += !c || !c->text;
    pthread_mutex_unlock(&in->core.lock);
    if (!c || !c->text) {
        rt_free(c);
        close(fd);
        if (rt_log_due(&in->limit, &count))
            rt_warn("%s: %" PRIu64 " connections were refused: at most %u at once", in->core.name,
                    count, CONNECTIONS_MAX);
        return;
    }
    c->in = in;
    c->fd = fd;
    c->capacity = capacity;
    c->references = 1;
    in->connections[in->connection_count++] = c;
}

static int fill_polls(const intake *in, struct pollfd *polls)
{
    int wait_ms = -1;
    polls[0] = (struct pollfd){in->core.wake, POLLIN, 0};
    polls[1] = (struct pollfd){in->listener, POLLIN, 0};
    for (uint32_t i = 0; i < in->connection_count; i++) {
        const connection *c = in->connections[i];
        short events = 0;
        if (wants_bytes(c))
            events |= POLLIN;
        if (c->answer_size)
            events |= POLLOUT;
        polls[2 + i] = (struct pollfd){events ? c->fd : -1, events, 0};
        if (c->is_held)
            wait_ms = FULL_MS;
    }
    return wait_ms;
}

static void *run(void *context)
{
    intake *in = context;
    struct pollfd polls[2 + CONNECTIONS_MAX];
    prctl(PR_SET_NAME, "tcp");
    for (;;) {
        const int wait_ms = fill_polls(in, polls);
        const uint32_t count = in->connection_count;
        (void)poll(polls, 2 + count, wait_ms);
        if (rt_intake_is_stopped(&in->core))
            break;
        if (polls[0].revents)
            rt_intake_wakes_seen(&in->core);
        for (uint32_t i = count; i-- > 0;) {
            connection *c = in->connections[i];
            bool goes_on = true;
            if (polls[2 + i].revents & (POLLIN | POLLHUP | POLLERR) && wants_bytes(c))
                goes_on = read_some(c);
            else if (polls[2 + i].revents & (POLLERR | POLLNVAL))
                goes_on = false;
            if (goes_on)
                goes_on = go_on(c);
            if (goes_on)
                goes_on = answer(c);
            if (!goes_on)
                end(in, i);
        }
        if (polls[1].revents)
            accept_one(in);
    }
    while (in->connection_count > 0)
        end(in, in->connection_count - 1);
    return NULL;
}

static void close_intake(void *context)
{
    intake *in = context;
    rt_intake_stop(&in->core);
    if (in->listener >= 0)
        close(in->listener);
    rt_intake_end(&in->core);
    rt_free(in);
}

static rt_status open_intake(const rt_config *config, const rt_journals *journals, void **intake_p,
                             rt_error *error)
{
    const rt_flow flow = journals->of[RT_FLOW_EVENTS] ? RT_FLOW_EVENTS : RT_FLOW_OUTCOMES;
    const bool is_events = flow == RT_FLOW_EVENTS;
    const char *name = is_events ? "stream.tcp" : "stream.join";
    const char *key = is_events ? "stream.tcp.listen" : "stream.join.listen";
    const char *address = is_events ? config->stream.tcp_listen : config->stream.join.listen;
    rt_status status = rt_intake_check_open(config, key, address, error);
    if (status)
        return status;
    intake *in = rt_alloc(1, sizeof *in);
    if (!in)
        return rt_fail(error, RT_NO_MEMORY, "out of memory for %s", name);
    in->flow = flow;
    in->listener = -1;
    status = rt_intake_begin(&in->core, name, config, journals, error);
    if (!status)
        in->listener = rt_intake_listen(name, key, address, error);
    if (!status && in->listener < 0)
        status = error->status;
    if (!status)
        status = rt_intake_start(&in->core, run, in, error);
    if (status) {
        close_intake(in);
        return status;
    }
    *intake_p = in;
    return RT_OK;
}

static void counts(void *context, rt_intake_counts *counts)
{
    rt_intake_read_counts(&((intake *)context)->core, counts);
}

const rt_intake_ops rt_intake_tcp = {
    .kind = RT_SOURCE_TCP, .open = open_intake, .close = close_intake, .counts = counts};
