// Events over TCP: lines come in; how many of this connection's are done with goes back, as a
// number in a line, after every commit. In the clear. A line that the run could not read is not
// stored, and is told before the number that counts it: "refused 41: column 1 (hour): expected a
// number, ...".
#define _GNU_SOURCE // accept4, memmem
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/config/rt_sources.h"
#include "runtime/http/rt_http_guests.h"
#include "runtime/live/rt_intake_core.h"
#include "runtime/rt_log.h"

#define CONNECTIONS_MAX 64u
#define SILENT_S 5.0 // who has sent nothing for a part of it is the first to go if others come
#define IDLE_S 600.0 // so is who has sent nothing since
#define READ_BYTES ((size_t)64 << 10)
#define UNCOMMITTED_MAX 8u // blocks of a connection that wait for the journal
#define FULL_MS 50
#define ANSWER_BYTES 4096u
#define NUMBER_BYTES 32u      // of it, for a number
#define REFUSED_TOLD_MAX 100u // of a connection; more are only counted

typedef struct intake intake;

typedef struct {
    intake *in;
    uint32_t references; // the connection, and blocks that wait: under the core's lock
    uint64_t done;       // lines that are kept, or refused: under the lock
    uint32_t waiting;    // blocks: under the lock
    bool failed;         // under the lock: the journal could not keep some
    int fd;              // from here on of the thread
    rt_http_guest *guest;
    bool is_known;         // it has sent a line that was kept
    bool is_served;        // blocks waited for the journal when it was looked at last
    bool has_begun;        // it has sent a line
    uint64_t told;         // lines
    uint32_t told_refused; // lines
    bool is_ended;         // the other side has sent all
    bool is_held;          // the journal was full
    size_t size, capacity; // text that was not appended yet
    size_t good;           // of it, whole lines that can be
    size_t bad;            // the line behind them, which cannot; 0: none yet
    rt_line_problem problem;
    char *text;
    char answer[ANSWER_BYTES]; // what of it could not be written
    size_t answer_size;
} connection;

struct intake {
    rt_intake_core core;
    rt_flow flow;
    int listener;
    rt_http_guests *guests;
    connection *connections[CONNECTIONS_MAX]; // the thread's
    uint32_t connection_count;
    rt_log_limit refusals;
};

static void note_refused(intake *in, const char *why)
{
    uint64_t count;
    rt_intake_count_refused(&in->core, 1);
    if (rt_log_due(&in->refusals, &count))
        rt_warn("%s: %" PRIu64 " lines or connections were refused; the last one: %s",
                in->core.name, count, why);
}

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
        c->done += count;
    c->failed |= status != RT_OK;
    c->waiting--;
    release(c);
    pthread_mutex_unlock(lock);
}

// ---- lines -----------------------------------------------------------------------------------

static void drop(connection *c, size_t size)
{
    c->size -= size;
    memmove(c->text, c->text + size, c->size);
}

// Good lines go to the journal. False: the connection cannot go on.
static bool append(connection *c)
{
    uint32_t count;
    if (!rt_journal_count_lines(c->text, c->good, &count))
        return false;
    hold(c, 1);
    const rt_journal_entry entry = {.lines = c->text, .size = c->good, .count = count};
    const rt_status status = rt_intake_append(&c->in->core, c->in->flow, &entry, kept, c);
    c->is_held = status == RT_AGAIN;
    if (status) {
        hold(c, -1);
        return c->is_held;
    }
    if (!c->is_known)
        rt_http_guests_note_worth(c->in->guests, c->guest);
    c->is_known = c->is_served = true;
    rt_http_guests_note(c->in->guests, c->guest, RT_HTTP_GUEST_SERVED);
    drop(c, c->good);
    c->good = 0;
    return true;
}

// A browser that was sent here by a page: what it posts may be lines, and is none of ours.
static bool is_request(const char *line, size_t length)
{
    const char *version = memmem(line, length, " HTTP/1.", strlen(" HTTP/1."));
    return version && version + strlen(" HTTP/1.") + 1 == line + length;
}

// Looks at the lines that came, up to one that cannot be read. False: the connection has to end.
static bool look(connection *c)
{
    rt_intake_reader *reader = c->in->core.readers[c->in->flow];
    const char *end = c->text + c->size, *stop;
    while (c->bad == 0) {
        const char *line = c->text + c->good;
        stop = memchr(line, '\n', (size_t)(end - line));
        if (!stop)
            return end - line <= (ptrdiff_t)RT_LINE_MAX;
        size_t length = (size_t)(stop - line);
        length -= length > 0 && line[length - 1] == '\r';
        if (!c->has_begun && is_request(line, length)) {
            note_refused(c->in, "it speaks HTTP");
            return false;
        }
        c->has_begun = true;
        c->problem.text[0] = '\0';
        if (length > 0 && rt_intake_reader_takes(reader, line, length, &c->problem))
            c->good += (size_t)(stop + 1 - line);
        else
            c->bad = (size_t)(stop + 1 - line);
    }
    return true;
}

// The first line is not stored. All before it are done with. An empty one is nobody's fault.
static void refuse(connection *c)
{
    pthread_mutex_lock(&c->in->core.lock);
    const uint64_t number = ++c->done;
    pthread_mutex_unlock(&c->in->core.lock);
    drop(c, c->bad);
    c->bad = 0;
    if (!c->problem.text[0])
        return;
    note_refused(c->in, c->problem.text);
    const size_t room = sizeof c->answer - c->answer_size;
    if (c->told_refused == REFUSED_TOLD_MAX || room < sizeof c->problem.text + 64)
        return;
    c->told_refused++;
    c->answer_size += (size_t)snprintf(c->answer + c->answer_size, room,
                                       "refused %" PRIu64 ": %s\n", number, c->problem.text);
}

// For a line that is longer than most. False: out of memory.
static bool widen(connection *c)
{
    const size_t capacity = RT_LINE_MAX + 2 * READ_BYTES;
    char *text = rt_alloc_lazy(capacity, 1);
    if (!text)
        return false;
    memcpy(text, c->text, c->size);
    rt_free(c->text);
    c->text = text;
    c->capacity = capacity;
    return true;
}

// What is there goes on. False: end the connection.
static bool go_on(connection *c)
{
    for (;;) {
        pthread_mutex_lock(&c->in->core.lock);
        const uint32_t waiting = c->waiting;
        pthread_mutex_unlock(&c->in->core.lock);
        if (!look(c))
            return false;
        if (c->good > 0)
            return waiting >= UNCOMMITTED_MAX || append(c);
        if (c->bad == 0 || waiting > 0)
            break;
        refuse(c);
    }
    const bool is_long = c->bad == 0 && c->capacity - c->size < READ_BYTES;
    if (is_long && c->capacity <= RT_LINE_MAX && !widen(c))
        return false;
    if (c->bad == 0 && c->is_ended) // half a line: who sent it was cut off, and not told of it
        c->size = 0;
    return true;
}

static bool wants_bytes(const connection *c)
{
    return !c->is_ended && !c->is_held && c->capacity - c->size >= READ_BYTES;
}

static void note_idle(connection *c)
{
    pthread_mutex_lock(&c->in->core.lock);
    const bool is_idle = c->waiting == 0;
    pthread_mutex_unlock(&c->in->core.lock);
    if (is_idle && c->is_served)
        rt_http_guests_note(c->in->guests, c->guest, RT_HTTP_GUEST_IDLE);
    c->is_served = c->is_served && !is_idle;
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
    const uint64_t lines = c->done;
    const bool failed = c->failed, is_idle = c->waiting == 0;
    pthread_mutex_unlock(&c->in->core.lock);
    if (lines > c->told && sizeof c->answer - c->answer_size > NUMBER_BYTES) {
        c->told = lines;
        c->answer_size +=
            (size_t)snprintf(c->answer + c->answer_size, NUMBER_BYTES, "%" PRIu64 "\n", lines);
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
    rt_http_guests_leave(in->guests, c->guest);
    close(c->fd);
    in->connections[i] = in->connections[--in->connection_count];
    pthread_mutex_lock(&in->core.lock);
    release(c);
    pthread_mutex_unlock(&in->core.lock);
}

static connection *create_connection(intake *in, int fd, const struct sockaddr *from)
{
    connection *c = rt_alloc(1, sizeof *c);
    const size_t capacity = 2 * READ_BYTES;
    if (c)
        c->text = rt_alloc_unset(capacity, 1);
    if (!c || !c->text) {
        rt_free(c);
        return NULL;
    }
    c->in = in;
    c->fd = fd;
    c->capacity = capacity;
    c->references = 1;
    c->guest = rt_http_guests_enter(in->guests, fd, from);
    return c;
}

static void accept_one(intake *in)
{
    struct sockaddr_storage from = {0};
    socklen_t size = sizeof from;
    const int fd =
        accept4(in->listener, (struct sockaddr *)&from, &size, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0)
        return;
    connection *c = create_connection(in, fd, (const struct sockaddr *)&from);
    pthread_mutex_lock(&in->core.lock);
    in->core.counts.connections++;
    pthread_mutex_unlock(&in->core.lock);
    if (!c) {
        close(fd);
        note_refused(in, "out of memory");
        return;
    }
    in->connections[in->connection_count++] = c;
}

static int fill_polls(const intake *in, struct pollfd *polls)
{
    int wait_ms = -1;
    polls[0] = (struct pollfd){in->core.wake, POLLIN, 0};
    const bool has_place = in->connection_count < CONNECTIONS_MAX; // else they wait for one
    polls[1] = (struct pollfd){has_place ? in->listener : -1, POLLIN, 0};
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
            if (goes_on)
                note_idle(c);
            else
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
    rt_http_guests_close(in->guests);
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
    const rt_http_guests_config guests = {.places = CONNECTIONS_MAX,
                                          .head_s = SILENT_S,
                                          .idle_s = IDLE_S,
                                          .body_s = SILENT_S,
                                          .body_bytes_per_s = 1};
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
        status = rt_intake_read_lines(&in->core, config, error);
    if (!status && rt_http_guests_open(&guests, &in->guests))
        status = rt_fail(error, RT_LIMIT, "no memory or no thread for %s", name);
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
