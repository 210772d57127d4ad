// Events from feeders on other boxes (`lanyard feed`), over ZeroMQ, with the keys of a run.
//
// A feeder numbers its events. The journal knows the last number of each, so that what comes again
// is left out, and takes nothing behind a gap. KEPT says how far it is on disk.
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>

#include "runtime/config/rt_sources.h"
#include "runtime/live/rt_intake_core.h"
#include "runtime/rt_log.h"
#include "runtime/transport/rt_transport.h"

#define SELF rt_peer(RT_ROLE_COORDINATOR, 0)
#define WAIT_MS 1000
#define LINGER_MS 200
#define ANSWERS_MAX 256u

typedef struct {
    uint32_t peer;
    rt_flow flow;
    uint64_t feeder;
    bool again; // something was not kept
} answer;

typedef struct {
    rt_intake_core core;
    rt_transport *transport;
    rt_endpoint *endpoint;
    rt_log_limit limit;
    answer answers[ANSWERS_MAX]; // to be sent; one per peer; under the core's lock
    uint32_t answer_count;       // likewise
} intake;

typedef struct {
    intake *in;
    uint32_t peer;
    rt_flow flow;
    uint64_t feeder;
} waiting;

// Under the lock. A feeder that gets none asks again.
static void put_answer(intake *in, uint32_t peer, rt_flow flow, uint64_t feeder, bool again)
{
    uint32_t i = 0;
    while (i < in->answer_count && in->answers[i].peer != peer)
        i++;
    if (i == ANSWERS_MAX)
        return;
    if (i == in->answer_count)
        in->answers[in->answer_count++] = (answer){.peer = peer};
    in->answers[i].flow = flow;
    in->answers[i].feeder = feeder;
    in->answers[i].again |= again;
}

static void kept(void *context, uint32_t count, rt_status status)
{
    waiting *w = context;
    (void)count;
    pthread_mutex_lock(&w->in->core.lock);
    put_answer(w->in, w->peer, w->flow, w->feeder, status != RT_OK);
    pthread_mutex_unlock(&w->in->core.lock);
    rt_free(w);
}

static bool append(intake *in, uint32_t peer, rt_flow flow, const rt_wire_header *header,
                   const rt_wire_events *events, const char *lines, size_t size)
{
    waiting *w = rt_alloc(1, sizeof *w);
    if (!w)
        return false;
    *w = (waiting){in, peer, flow, events->feeder};
    const rt_journal_entry entry = {.lines = lines,
                                    .size = size,
                                    .count = header->count,
                                    .origin = events->feeder,
                                    .origin_first = header->iteration,
                                    .origin_left = events->left};
    if (!rt_intake_append(&in->core, flow, &entry, kept, w))
        return true;
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
    const rt_flow flow = header->type == RT_MESSAGE_EVENTS ? RT_FLOW_EVENTS : RT_FLOW_OUTCOMES;
    if ((header->type != RT_MESSAGE_EVENTS && header->type != RT_MESSAGE_OUTCOMES) || !head ||
        !in->core.journals.of[flow])
        return false;
    memcpy(&events, head, sizeof events);
    const char *lines = (const char *)reader.next;
    if (events.feeder == 0 || (reader.left > 0 && lines[reader.left - 1] != '\n') ||
        !rt_journal_count_lines(lines, reader.left, &count) || count != header->count)
        return false;
    if (count > 0 && append(in, peer, flow, header, &events, lines, reader.left))
        return true;
    pthread_mutex_lock(&in->core.lock); // a question, or the journal is full
    put_answer(in, peer, flow, events.feeder, count > 0);
    in->core.counts.connections += count == 0;
    pthread_mutex_unlock(&in->core.lock);
    rt_intake_wake(&in->core);
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
        const rt_status status = rt_transport_receive(ops, in->endpoint, &peer, &message, &error);
        if (status == RT_AGAIN)
            return;
        if (!status && !take(in, peer, &message))
            rt_fail(&error, RT_WIRE, "no events of a feeder");
        rt_message_release(&message);
        if (error.status == RT_WIRE) { // a stranger's mistake ends nothing
            rt_intake_count_refused(&in->core, 1);
            if (rt_log_due(&in->limit, &count))
                rt_warn("feed: %" PRIu64 " messages were refused; the last one: %s", count,
                        error.text);
        }
    }
}

static void send_answers(intake *in)
{
    answer answers[ANSWERS_MAX];
    pthread_mutex_lock(&in->core.lock);
    const uint32_t count = in->answer_count;
    memcpy(answers, in->answers, count * sizeof *answers);
    in->answer_count = 0;
    pthread_mutex_unlock(&in->core.lock);
    for (uint32_t i = 0; i < count; i++) {
        rt_message message;
        const uint64_t last =
            rt_journal_origin(in->core.journals.of[answers[i].flow], answers[i].feeder);
        if (rt_message_create(&message, RT_MESSAGE_KEPT, SELF, last, answers[i].again, 0))
            continue;
        if (rt_transport_send(&rt_transport_zmq, in->endpoint, answers[i].peer, &message))
            rt_message_release(&message); // it asks again
    }
}

static void *run(void *context)
{
    intake *in = context;
    bool ready;
    prctl(PR_SET_NAME, "feed");
    do {
        (void)rt_transport_zmq.wait(&in->endpoint, 1, in->core.wake, WAIT_MS, &ready);
        rt_intake_wakes_seen(&in->core);
        receive_all(in);
        send_answers(in);
    } while (!rt_intake_is_stopped(&in->core));
    return NULL;
}

static void close_intake(void *context)
{
    intake *in = context;
    rt_intake_stop(&in->core);
    if (in->endpoint)
        rt_transport_zmq.end(in->endpoint, LINGER_MS);
    if (in->transport)
        rt_transport_zmq.close(in->transport);
    rt_intake_end(&in->core);
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

static rt_status open_intake(const rt_config *config, const rt_journals *journals, void **intake_p,
                             rt_error *error)
{
    intake *in = rt_alloc(1, sizeof *in);
    if (!in)
        return rt_fail(error, RT_NO_MEMORY, "out of memory for feed");
    rt_status status = rt_intake_begin(&in->core, "feed", config, journals, error);
    in->core.names_events = true; // a feeder's numbers do
    if (!status)
        status = listen_for_feeders(in, config, error);
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

const rt_intake_ops rt_intake_feed = {.kind = RT_SOURCE_FEED,
                                      .takes_both = true,
                                      .open = open_intake,
                                      .close = close_intake,
                                      .counts = counts};
