#include "runtime/live/rt_feed.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/config/rt_address.h"
#include "runtime/live/rt_spool.h"
#include "runtime/rt_hash.h"
#include "runtime/rt_log.h"
#include "runtime/rt_thread.h"
#include "runtime/transport/rt_transport.h"

#define SERVER rt_peer(RT_ROLE_COORDINATOR, 0)
#define MESSAGE_BYTES ((size_t)256 << 10) // of lines, about
#define UNANSWERED_MAX 16u                // messages
#define SILENT_NS UINT64_C(5000000000)    // without an answer: another connection
#define AGAIN_NS UINT64_C(200000000)      // the coordinator's journal was full
#define RECONNECT_NS UINT64_C(1000000000)
#define WAIT_MS 200u

typedef struct {
    const rt_config *config;
    rt_spool *spool;
    rt_journal *journal;
    rt_keys keys;
    rt_transport *transport;
    rt_endpoint *endpoint; // NULL: no connection
    char address[RT_NAME_MAX + 16];
    uint64_t feeder;
    uint32_t self;
    rt_random random; // of ranks
    int wait_fd, wake_fd, stop_fd;
    bool is_answered;              // the coordinator has said what it has
    uint64_t sent, kept;           // last numbers
    uint64_t ends[UNANSWERED_MAX]; // last numbers of messages without an answer, a ring
    uint32_t end_first, end_count;
    rt_journal_frame frame; // what is left of one that was read
    uint64_t heard_ns, pause_until_ns;
    rt_log_limit limit;
    rt_feed_counts *counts;
} feed;

// ---- the feeder's name -----------------------------------------------------------------------

static rt_status write_name(const char *path, uint64_t name, rt_error *error)
{
    char text[32], fresh[RT_PATH_MAX + 32];
    snprintf(fresh, sizeof fresh, "%s.new", path);
    const int length = snprintf(text, sizeof text, "%016" PRIx64 "\n", name);
    const int file = open(fresh, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    const bool is_written =
        file >= 0 && write(file, text, (size_t)length) == length && fsync(file) == 0;
    if (file >= 0)
        close(file);
    if (is_written && rename(fresh, path) == 0)
        return RT_OK;
    return rt_fail(error, RT_IO, "%s: cannot be written: %s", path, strerror(errno));
}

// Random, once: another spool is another feeder.
static rt_status take_name(feed *f, const char *directory, rt_error *error)
{
    char path[RT_PATH_MAX + 16];
    snprintf(path, sizeof path, "%s/feeder", directory);
    FILE *file = fopen(path, "re");
    if (file) {
        const bool is_read = fscanf(file, "%" SCNx64, &f->feeder) == 1 && f->feeder;
        fclose(file);
        if (!is_read)
            return rt_fail(error, RT_DATA, "%s: no name of a feeder", path);
    } else {
        while (f->feeder == 0)
            if (getrandom(&f->feeder, sizeof f->feeder, 0) != sizeof f->feeder)
                f->feeder = 0;
        rt_status status = write_name(path, f->feeder, error);
        if (status)
            return status;
    }
    return RT_OK;
}

// ---- the connection --------------------------------------------------------------------------

static void disconnect(feed *f)
{
    if (f->endpoint)
        rt_transport_zmq.end(f->endpoint, 0);
    f->endpoint = NULL;
    f->is_answered = false;
    f->end_count = 0;
}

static rt_status send_events(feed *f, uint64_t first, uint32_t count, const char *lines,
                             size_t size)
{
    const rt_wire_events head = {f->feeder, rt_journal_statistics(f->journal).first};
    rt_message message;
    rt_status status =
        rt_message_create(&message, RT_MESSAGE_EVENTS, f->self, first, count, sizeof head + size);
    if (status)
        return status;
    memcpy(rt_message_payload(&message), &head, sizeof head);
    if (size)
        memcpy(rt_message_payload(&message) + sizeof head, lines, size);
    status = rt_transport_zmq.send(f->endpoint, SERVER, &message);
    rt_message_release(&message);
    return status;
}

static void connect_to(feed *f)
{
    rt_error error = {0};
    uint64_t count;
    const uint64_t now = rt_now_ns();
    if (f->endpoint || now < f->pause_until_ns)
        return;
    f->pause_until_ns = now + RECONNECT_NS;
    // Ranks are few: where another feeder has this one the coordinator says so (STOP).
    f->self = rt_peer(RT_ROLE_VISITOR, rt_random_below(&f->random, RT_WORKERS_MAX));
    const rt_status status =
        rt_transport_zmq.connect(f->transport, f->self, SERVER, f->address, &f->endpoint, &error);
    if (status) {
        f->endpoint = NULL;
        if (rt_log_due(&f->limit, &count))
            rt_warn("feed.to: %s; events stay in the spool", error.text);
        return;
    }
    f->heard_ns = rt_now_ns();
    f->pause_until_ns = 0;
    (void)send_events(f, 0, 0, NULL, 0); // what do you have?
}

// Goes on behind what the coordinator has.
static rt_status rewind_to(feed *f, uint64_t kept, rt_error *error)
{
    uint64_t lost;
    const rt_journal_counts counts = rt_journal_statistics(f->journal);
    const uint64_t from = rt_max_u64(rt_min_u64(kept + 1, counts.next), counts.first);
    if (kept + 1 > counts.next)
        return rt_fail(error, RT_DATA,
                       "the coordinator has event %" PRIu64
                       " of this spool, which ends with %" PRIu64
                       ": it is an old copy; put the right one back, or empty the folder",
                       kept, counts.next - 1);
    const rt_status status = rt_journal_seek(f->journal, from, &lost, error);
    f->frame.count = 0;
    f->end_count = 0;
    f->sent = from - 1;
    f->kept = rt_max_u64(f->kept, kept);
    f->counts->kept = f->kept;
    rt_journal_keep_from(f->journal, f->kept + 1);
    return status == RT_NOT_FOUND ? RT_OK : status;
}

static rt_status take_answer(feed *f, const rt_wire_header *header, rt_error *error)
{
    f->heard_ns = rt_now_ns();
    if (!f->is_answered || header->count) {
        if (!f->is_answered) {
            rt_info("feed: connected to %s, which has %" PRIu64 " of %" PRIu64 " events",
                    f->address, header->iteration, rt_journal_statistics(f->journal).next - 1);
            f->counts->connections++;
        }
        if (header->count)
            f->pause_until_ns = f->heard_ns + AGAIN_NS;
        f->is_answered = true;
        return rewind_to(f, header->iteration, error);
    }
    f->kept = rt_max_u64(f->kept, header->iteration);
    f->counts->kept = f->kept;
    while (f->end_count > 0 && f->ends[f->end_first % UNANSWERED_MAX] <= f->kept) {
        f->end_first++;
        f->end_count--;
    }
    rt_journal_keep_from(f->journal, f->kept + 1);
    return RT_OK;
}

static rt_status receive_all(feed *f, rt_error *error)
{
    rt_status status = RT_OK;
    while (f->endpoint && !status) {
        uint32_t peer;
        rt_message message = {0};
        rt_error failure = {0};
        status = rt_transport_zmq.receive(f->endpoint, &peer, &message, &failure);
        if (!status && rt_message_header(&message)->type == RT_MESSAGE_KEPT)
            status = take_answer(f, rt_message_header(&message), error);
        else if (status == RT_NOT_FOUND || !status) // STOP: another feeder has the rank
            disconnect(f);
        rt_message_release(&message);
        if (status == RT_AGAIN || status == RT_NOT_FOUND)
            return RT_OK;
        if (status == RT_WIRE && !error->status)
            status = RT_OK;
    }
    return status;
}

// ---- sending ---------------------------------------------------------------------------------

// The first lines of a frame, about as many as fit into a message.
static size_t part_of(const rt_journal_frame *frame, uint32_t *count_p)
{
    size_t size = 0;
    uint32_t count = 0;
    while (count < frame->count && (count == 0 || size < MESSAGE_BYTES)) {
        const char *end = memchr(frame->lines + size, '\n', frame->size - size);
        size = end ? (size_t)(end + 1 - frame->lines) : frame->size;
        count++;
    }
    *count_p = count;
    return size;
}

static rt_status send_some(feed *f, rt_error *error)
{
    while (f->endpoint && f->is_answered && f->end_count < UNANSWERED_MAX &&
           rt_now_ns() >= f->pause_until_ns) {
        uint32_t count;
        rt_status status = RT_OK;
        if (f->frame.count == 0)
            status = rt_journal_read(f->journal, &f->frame, error);
        if (status == RT_AGAIN) {
            f->frame.count = 0;
            return RT_OK;
        }
        if (status)
            return status;
        const size_t size = part_of(&f->frame, &count);
        status = send_events(f, f->frame.first, count, f->frame.lines, size);
        if (status == RT_AGAIN)
            return RT_OK;
        if (status == RT_NOT_FOUND) {
            disconnect(f);
            return RT_OK;
        }
        if (status)
            return rt_fail(error, status, "feed: cannot send: %s", rt_status_text(status));
        if (f->end_count == 0)
            f->heard_ns = rt_now_ns(); // from now on an answer is waited for
        f->sent = f->frame.first + count - 1;
        f->ends[(f->end_first + f->end_count++) % UNANSWERED_MAX] = f->sent;
        f->frame.lines += size;
        f->frame.size -= size;
        f->frame.first += count;
        f->frame.count -= count;
    }
    return RT_OK;
}

static void look_at_silence(feed *f)
{
    const bool waits = f->endpoint && (!f->is_answered || f->end_count > 0);
    if (!waits || rt_now_ns() - f->heard_ns < SILENT_NS)
        return;
    rt_info("feed: no answer from %s: connecting again", f->address);
    disconnect(f);
}

// ---- all of it -------------------------------------------------------------------------------

static bool is_readable(int fd)
{
    struct pollfd one = {fd, POLLIN, 0};
    return fd >= 0 && poll(&one, 1, 0) == 1;
}

static void wait_for_events(feed *f)
{
    bool ready;
    uint64_t wakes;
    if (f->endpoint) {
        (void)rt_transport_zmq.wait(&f->endpoint, 1, f->wait_fd, WAIT_MS, &ready);
    } else {
        struct pollfd one = {f->stop_fd, POLLIN, 0};
        (void)poll(&one, 1, (int)WAIT_MS);
    }
    if (read(f->wake_fd, &wakes, sizeof wakes) < 0) {
        // nobody has written to it
    }
}

static rt_status turn(feed *f, rt_error *error)
{
    connect_to(f);
    rt_status status = receive_all(f, error);
    if (!status)
        status = send_some(f, error);
    look_at_silence(f);
    const rt_journal_counts counts = rt_journal_statistics(f->journal);
    f->counts->taken = counts.next - 1;
    if (!status && f->spool)
        status = rt_spool_state(f->spool, error);
    if (status == RT_END && f->kept + 1 < counts.next)
        status = RT_OK;
    return status;
}

static rt_status watch(feed *f, rt_error *error)
{
    struct epoll_event event = {.events = EPOLLIN};
    const int fds[] = {f->wake_fd, f->stop_fd, rt_journal_fd(f->journal)};
    for (size_t i = 0; i < RT_COUNT_OF(fds); i++)
        if (fds[i] >= 0 && epoll_ctl(f->wait_fd, EPOLL_CTL_ADD, fds[i], &event) != 0)
            return rt_fail(error, RT_LIMIT, "out of descriptors");
    return RT_OK;
}

static rt_status open_all(feed *f, const char *directory, rt_error *error)
{
    const rt_config *config = f->config;
    char host[RT_NAME_MAX];
    uint32_t port;
    const char *place = *config->journal_directory ? config->journal_directory : directory;
    if (!rt_address_split(config->feed_to, host, sizeof host, &port) || port == 0)
        return rt_fail(error, RT_CONFIG,
                       "feed.to: \"%s\" is no address, expected \"HOST:PORT\" of the coordinator's "
                       "box",
                       config->feed_to);
    snprintf(f->address, sizeof f->address, "tcp://%s", config->feed_to);
    f->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    f->wait_fd = epoll_create1(EPOLL_CLOEXEC);
    if (f->wake_fd < 0 || f->wait_fd < 0)
        return rt_fail(error, RT_LIMIT, "out of descriptors");
    rt_status status = rt_keys_load(config, &f->keys, error);
    if (!status)
        status = rt_transport_open(&rt_transport_zmq, &f->keys, &f->transport, error);
    if (!status && !f->journal)
        status = rt_spool_open(config, directory, f->wake_fd, &f->spool, error);
    if (status)
        return status;
    place = f->journal ? directory : place;
    if (!f->journal)
        f->journal = rt_spool_journal(f->spool);
    status = take_name(f, place, error);
    return status ? status : watch(f, error);
}

static void close_all(feed *f)
{
    disconnect(f);
    if (f->transport)
        rt_transport_zmq.close(f->transport);
    rt_spool_close(f->spool);
    rt_keys_clear(&f->keys);
    if (f->wake_fd >= 0)
        close(f->wake_fd);
    if (f->wait_fd >= 0)
        close(f->wait_fd);
    rt_free(f);
}

static rt_status feed_journal(const rt_config *config, rt_journal *journal, const char *directory,
                              int stop_fd, rt_feed_counts *counts, rt_error *error)
{
    feed *f = rt_alloc(1, sizeof *f);
    if (!f)
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    *counts = (rt_feed_counts){0};
    f->config = config;
    f->journal = journal;
    f->counts = counts;
    f->wake_fd = f->wait_fd = -1;
    f->stop_fd = stop_fd;
    f->random.state = rt_now_ns();
    rt_status status = open_all(f, directory, error);
    while (!status && !is_readable(stop_fd)) {
        status = turn(f, error);
        if (!status)
            wait_for_events(f);
    }
    close_all(f);
    return status;
}

rt_status rt_feed_run(const rt_config *config, const char *directory, int stop_fd,
                      rt_feed_counts *counts, rt_error *error)
{
    return feed_journal(config, NULL, directory, stop_fd, counts, error);
}

// ---- events of this process ------------------------------------------------------------------

struct rt_feeder {
    const rt_config *config;
    char directory[RT_PATH_MAX];
    rt_journal *journal;
    int stop_fd;
    pthread_t thread;
    bool runs;
    rt_feed_counts counts;
    rt_status status;
    rt_error error;
};

static void *run_feeder(void *context)
{
    rt_feeder *f = context;
    f->status =
        feed_journal(f->config, f->journal, f->directory, f->stop_fd, &f->counts, &f->error);
    return NULL;
}

rt_status rt_feeder_open(const rt_config *config, const char *directory, rt_feeder **feeder_p,
                         rt_error *error)
{
    rt_feeder *f = rt_alloc(1, sizeof *f);
    if (!f)
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    f->config = config;
    snprintf(f->directory, sizeof f->directory, "%s", directory);
    f->stop_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    rt_status status =
        rt_journal_open(directory, config->journal_bytes_max, &f->journal, error);
    if (!status) {
        f->runs = rt_thread_start(&f->thread, run_feeder, f) == 0;
        status = f->runs ? RT_OK : rt_fail(error, RT_LIMIT, "cannot start a thread");
    }
    if (status) {
        rt_feeder_close(f);
        return status;
    }
    *feeder_p = f;
    return RT_OK;
}

void rt_feeder_close(rt_feeder *f)
{
    const uint64_t one = 1;
    if (!f)
        return;
    if (write(f->stop_fd, &one, sizeof one) < 0) {
        // it is readable already
    }
    if (f->runs)
        pthread_join(f->thread, NULL);
    rt_journal_close(f->journal);
    close(f->stop_fd);
    rt_free(f);
}

rt_journal *rt_feeder_journal(rt_feeder *f)
{
    return f->journal;
}

bool rt_feeder_counts(rt_feeder *f, rt_feed_counts *counts, rt_error *error)
{
    *counts = f->counts;
    if (f->status)
        *error = f->error;
    return !f->status;
}
