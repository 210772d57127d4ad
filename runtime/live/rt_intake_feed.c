// Events from feeders on other boxes (`lanyard feed`), over ZeroMQ, with the keys of a run.
//
// A feeder numbers its events. The journal knows the last number of each, so that what comes again
// is left out, and takes nothing behind a gap. KEPT says how far it is on disk.
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "runtime/live/rt_intake.h"
#include "runtime/rt_log.h"
#include "runtime/rt_thread.h"
#include "runtime/transport/rt_transport.h"

#define SELF rt_peer(RT_ROLE_COORDINATOR, 0)
#define WAIT_MS 1000
#define LINGER_MS 200
#define ANSWERS_MAX 256u

typedef struct {
    uint32_t peer;
    uint64_t feeder;
    bool again; // something was not kept
} answer;

typedef struct {
    rt_journal *journal;
    rt_transport *transport;
    rt_endpoint *endpoint;
    int wake;
    bool names_events;
    pthread_t thread;
    bool runs;
    rt_log_limit limit;
    pthread_mutex_t lock; // the members below
    pthread_cond_t changed;
    bool stop;
    uint32_t open;               // entries that wait for the journal
    answer answers[ANSWERS_MAX]; // to be sent; one per peer
    uint32_t answer_count;
    rt_intake_counts counts;
} intake;

typedef struct {
    intake *in;
    uint32_t peer;
    uint64_t feeder;
} waiting;

static void wake(const intake *in)
{
    const uint64_t one = 1;
    if (write(in->wake, &one, sizeof one) < 0) {
        // it is readable already
    }
}

// Under the lock. A feeder that gets none asks again.
static void put_answer(intake *in, uint32_t peer, uint64_t feeder, bool again)
{
    uint32_t i = 0;
    while (i < in->answer_count && in->answers[i].peer != peer)
        i++;
    if (i == ANSWERS_MAX)
        return;
    if (i == in->answer_count)
        in->answers[in->answer_count++] = (answer){.peer = peer};
    in->answers[i].feeder = feeder;
    in->answers[i].again |= again;
}

static void kept(void *context, rt_status status)
{
    waiting *w = context;
    intake *in = w->in;
    pthread_mutex_lock(&in->lock);
    in->open--;
    put_answer(in, w->peer, w->feeder, status != RT_OK);
    wake(in); // before the lock is given up: whoever closes waits for it
    pthread_cond_broadcast(&in->changed);
    pthread_mutex_unlock(&in->lock);
    rt_free(w);
}

static bool append(intake *in, uint32_t peer, const rt_wire_header *header,
                   const rt_wire_events *events, const char *lines, size_t size)
{
    waiting *w = rt_alloc(1, sizeof *w);
    if (!w)
        return false;
    *w = (waiting){in, peer, events->feeder};
    pthread_mutex_lock(&in->lock);
    in->open++;
    pthread_mutex_unlock(&in->lock);
    const rt_journal_entry entry = {.lines = lines,
                                    .size = size,
                                    .count = header->count,
                                    .origin = events->feeder,
                                    .origin_first = header->iteration,
                                    .origin_left = events->left,
                                    .done = kept,
                                    .context = w};
    if (!rt_journal_append(in->journal, &entry))
        return true;
    pthread_mutex_lock(&in->lock);
    in->open--;
    pthread_mutex_unlock(&in->lock);
    rt_free(w);
    return false;
}

// False: this is no message of a feeder.
static bool take(intake *in, uint32_t peer, const rt_message *message)
{
    const rt_wire_header *header = rt_message_header(message);
    rt_reader reader = rt_message_reader(message);
    rt_wire_events events;
    uint32_t count = 0;
    const void *head = rt_reader_take(&reader, 1, sizeof events);
    if (header->type != RT_MESSAGE_EVENTS || !head)
        return false;
    memcpy(&events, head, sizeof events);
    const char *lines = (const char *)reader.next;
    if (events.feeder == 0 || (reader.left > 0 && lines[reader.left - 1] != '\n') ||
        !rt_journal_count_lines(lines, reader.left, &count) || count != header->count)
        return false;
    if (count > 0 && append(in, peer, header, &events, lines, reader.left))
        return true;
    pthread_mutex_lock(&in->lock); // a question, or the journal is full
    put_answer(in, peer, events.feeder, count > 0);
    in->counts.connections += count == 0;
    pthread_mutex_unlock(&in->lock);
    wake(in);
    return true;
}

static void receive_all(intake *in)
{
    const rt_transport_ops *ops = &rt_transport_zmq;
    uint64_t count;
    for (;;) {
        uint32_t peer;
        rt_message message = {0};
        rt_error error = {0};
        const rt_status status = ops->receive(in->endpoint, &peer, &message, &error);
        if (status == RT_AGAIN)
            return;
        if (!status && !take(in, peer, &message))
            rt_fail(&error, RT_WIRE, "no events of a feeder");
        rt_message_release(&message);
        if (error.status == RT_WIRE) { // a stranger's mistake ends nothing
            pthread_mutex_lock(&in->lock);
            in->counts.refused++;
            pthread_mutex_unlock(&in->lock);
            if (rt_log_due(&in->limit, &count))
                rt_warn("feed: %" PRIu64 " messages were refused; the last one: %s", count,
                        error.text);
        }
    }
}

static void send_answers(intake *in)
{
    answer answers[ANSWERS_MAX];
    pthread_mutex_lock(&in->lock);
    const uint32_t count = in->answer_count;
    memcpy(answers, in->answers, count * sizeof *answers);
    in->answer_count = 0;
    pthread_mutex_unlock(&in->lock);
    for (uint32_t i = 0; i < count; i++) {
        rt_message message;
        const uint64_t last = rt_journal_origin(in->journal, answers[i].feeder);
        if (rt_message_create(&message, RT_MESSAGE_KEPT, SELF, last, answers[i].again, 0))
            continue;
        if (rt_transport_zmq.send(in->endpoint, answers[i].peer, &message))
            rt_message_release(&message); // it asks again
    }
}

static void *run(void *context)
{
    intake *in = context;
    uint64_t wakes;
    bool ready, stop = false;
    prctl(PR_SET_NAME, "feed");
    while (!stop) {
        (void)rt_transport_zmq.wait(&in->endpoint, 1, in->wake, WAIT_MS, &ready);
        if (read(in->wake, &wakes, sizeof wakes) < 0) {
            // nobody has written to it
        }
        receive_all(in);
        send_answers(in);
        pthread_mutex_lock(&in->lock);
        stop = in->stop;
        pthread_mutex_unlock(&in->lock);
    }
    return NULL;
}

static void close_intake(void *context)
{
    intake *in = context;
    pthread_mutex_lock(&in->lock);
    in->stop = true;
    pthread_mutex_unlock(&in->lock);
    wake(in);
    if (in->runs)
        pthread_join(in->thread, NULL);
    pthread_mutex_lock(&in->lock);
    while (in->open > 0)
        pthread_cond_wait(&in->changed, &in->lock);
    pthread_mutex_unlock(&in->lock);
    if (in->endpoint)
        rt_transport_zmq.end(in->endpoint, LINGER_MS);
    if (in->transport)
        rt_transport_zmq.close(in->transport);
    if (in->wake >= 0)
        close(in->wake);
    pthread_cond_destroy(&in->changed);
    pthread_mutex_destroy(&in->lock);
    rt_free(in);
}

static rt_status listen_for_feeders(intake *in, const rt_config *config, rt_error *error)
{
    char address[RT_NAME_MAX + 16], bound[RT_NAME_MAX] = "";
    rt_keys *keys = rt_alloc(1, sizeof *keys);
    if (!keys)
        return rt_fail(error, RT_NO_MEMORY, "out of memory for feed");
    rt_status status = rt_keys_load(config, keys, error);
    if (!status)
        status = rt_transport_open(&rt_transport_zmq, keys, &in->transport, error);
    rt_keys_clear(keys);
    rt_free(keys);
    snprintf(address, sizeof address, "tcp://%s", config->feed_listen);
    if (!status)
        status = rt_transport_zmq.listen(in->transport, SELF, address, bound, &in->endpoint, error);
    if (status)
        return rt_fail_in(error, "feed.listen");
    rt_info("feed: listening on %s", bound);
    return RT_OK;
}

static rt_status open_intake(const rt_config *config, rt_journal *journal, void **intake_p,
                             rt_error *error)
{
    intake *in = rt_alloc(1, sizeof *in);
    if (!in)
        return rt_fail(error, RT_NO_MEMORY, "out of memory for feed");
    in->journal = journal;
    in->names_events = *config->stream.id;
    in->wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    pthread_mutex_init(&in->lock, NULL);
    pthread_cond_init(&in->changed, NULL);
    rt_status status = in->wake >= 0 ? listen_for_feeders(in, config, error)
                                     : rt_fail(error, RT_LIMIT, "cannot create a descriptor");
    if (!status) {
        in->runs = rt_thread_start(&in->thread, run, in) == 0;
        status = in->runs ? RT_OK : rt_fail(error, RT_LIMIT, "cannot start a thread for feeders");
    }
    if (status) {
        close_intake(in);
        return status;
    }
    *intake_p = in;
    return RT_OK;
}

static void counts(void *context, rt_intake_counts *counts)
{
    intake *in = context;
    pthread_mutex_lock(&in->lock);
    *counts = in->counts;
    pthread_mutex_unlock(&in->lock);
}

const rt_intake_ops rt_intake_feed = {
    .kind = RT_SOURCE_FEED, .open = open_intake, .close = close_intake, .counts = counts};
