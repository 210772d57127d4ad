// probe_link - a link that is made up, and its time: who probes it and who answers are one thread.
//
// Included by one file of a test program, which mk/tests.mk links with this clock in place of
// rt_now_ns: a look at it takes link_look_ns, a wait lasts until the next answer is due, and a busy
// machine changes nothing.
#ifndef PROBE_LINK_H
#define PROBE_LINK_H

#include "bandwidth_probe/bw_probe.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/rt_hash.h"
#include "tests/support/test.h"

#define LINK_QUEUE 4096u
#define LINK_STREAMS 4u

static uint64_t link_clock_ns = UINT64_C(1000000000), link_look_ns = 1000;

uint64_t __wrap_rt_now_ns(void);
uint64_t __wrap_rt_now_ns(void)
{
    return link_clock_ns += link_look_ns;
}

struct probe_link;

typedef struct {
    struct probe_link *link;
    uint64_t free_ns; // when it can take the next byte
    struct {
        rt_message message;
        uint64_t due_ns;
    } answers[LINK_QUEUE];
    uint32_t first, count;
    bw_stream_end end;
} link_stream;

// Answers come a round trip after their probe, and no faster than the link, and each stream, carry.
// 0: nothing of the kind.
typedef struct probe_link {
    double bytes_per_s, stream_bytes_per_s;
    uint32_t stream_count;
    uint64_t rtt_ns;
    uint64_t disturbed_ns; // so long an eighth, in 60 ms of 120, since the first message of 8 KB
    uint64_t slows_ns;     // a quarter so long after the first message of every train
    bool first_is_better;  // then half in the first train, and later
    uint32_t uneven;       // another rate every 40 ms, the slowest so many times below the quickest
    uint64_t seed;
    uint64_t tick_ns;   // what is sent arrives at multiples of it
    uint64_t jitter_ns; // so much later at most
    int64_t offset_ns;  // of the other side's clock
    uint32_t queue;     // messages of a stream that are under way at most
    uint32_t ends_at;   // sending the message of that number fails: the connection has ended
    uint32_t deaf_from; // messages from that number on get lost
    uint32_t wrong_at;  // the answer to that one is to another one
    uint32_t waits;     // that succeed
    uint32_t turns;     // after which whoever probes is told to end
    bool is_taken;      // another one has the turn

    uint32_t trains, sent, waited;
    uint64_t begin_ns, free_ns;
    bw_responder responder;
    link_stream streams[LINK_STREAMS];
} probe_link;

static uint64_t link_occupy(uint64_t *free_ns, uint64_t from_ns, double bytes, double bytes_per_s)
{
    *free_ns = rt_max_u64(*free_ns, from_ns) + (uint64_t)(bytes * 1e9 / bytes_per_s);
    return *free_ns;
}

static rt_status link_answer(rt_endpoint *endpoint, uint32_t peer, rt_message *message)
{
    link_stream *s = (link_stream *)(void *)endpoint;
    if (peer != s->end.self) { // whoever had the turn
        rt_message_release(message);
        return RT_OK;
    }
    assert_true(s->count < LINK_QUEUE);
    const uint32_t at = (s->first + s->count++) % LINK_QUEUE;
    s->answers[at].message = *message;
    s->answers[at].due_ns = 0;
    *message = (rt_message){0};
    return RT_OK;
}

static const rt_transport_ops link_server = {.name = "server", .send = link_answer};

static double link_rate(probe_link *link, size_t size, uint64_t now)
{
    if (!link->begin_ns && size > 8000) {
        link->begin_ns = now;
        link->trains++;
    }
    const uint64_t since = link->begin_ns ? now - link->begin_ns : 0;
    if (link->uneven)
        return link->bytes_per_s /
               (1 + (double)(rt_mix(link->seed + now / 40000000) % link->uneven));
    if (link->slows_ns && link->first_is_better && link->trains == 1)
        return link->bytes_per_s / (since > 170000000 ? 2 : 1);
    if (link->slows_ns)
        return link->bytes_per_s / (since > link->slows_ns ? 4 : 1);
    const bool slow = since < link->disturbed_ns && since / 60000000 % 2;
    return link->bytes_per_s / (slow ? 8 : 1);
}

// When a message that is sent now is there. The larger one of it and its answer counts.
static uint64_t link_carry(link_stream *s, size_t size, size_t answer_size)
{
    probe_link *link = s->link;
    const uint64_t now = rt_now_ns();
    const double bytes = (double)(size > answer_size ? size : answer_size);
    if (link->slows_ns && s->count == 1 && now - link->begin_ns > link->slows_ns)
        link->begin_ns = 0; // nothing else is under way
    const double rate = link_rate(link, size, now);
    uint64_t at = link_occupy(&s->free_ns, now, bytes, link->stream_bytes_per_s);
    at = rt_max_u64(at, link_occupy(&link->free_ns, now, bytes, rate));
    at += link->rtt_ns / 2 + rt_mix(link->seed ^ link->sent) % (link->jitter_ns + 1);
    if (link->tick_ns) // one behind the other all the same
        at = (at / link->tick_ns + 1) * link->tick_ns + link->sent;
    return at;
}

static void link_answered(link_stream *s, size_t size)
{
    probe_link *link = s->link;
    const uint32_t at = (s->first + s->count - 1) % LINK_QUEUE;
    rt_message *answer = &s->answers[at].message;
    const uint64_t there_ns = link_carry(s, size, answer->size);
    const rt_wire_probed probed = {there_ns + (uint64_t)link->offset_ns};
    memcpy(rt_message_payload(answer), &probed, sizeof probed);
    rt_message_header(answer)->iteration += link->sent == link->wrong_at;
    s->answers[at].due_ns = there_ns + link->rtt_ns / 2;
}

static rt_status link_send(rt_endpoint *endpoint, uint32_t peer, rt_message *message)
{
    link_stream *s = (link_stream *)(void *)endpoint;
    probe_link *link = s->link;
    rt_error error = {0};
    const bw_listener listener = {&link_server, endpoint, s->end.server};
    const uint32_t before = s->count;
    const size_t size = message->size;
    assert_int_equal(peer, s->end.server);
    if (link->queue && s->count >= link->queue)
        return RT_AGAIN;
    if (++link->sent == link->ends_at)
        return RT_NOT_FOUND;
    if (!link->deaf_from || link->sent < link->deaf_from)
        assert_int_equal(
            bw_responder_take(&link->responder, &listener, s->end.self, message, &error), RT_OK);
    rt_message_release(message);
    if (s->count > before)
        link_answered(s, size);
    return RT_OK;
}

static rt_status link_receive(rt_endpoint *endpoint, uint32_t *peer, rt_message *message,
                              rt_error *error)
{
    (void)error;
    link_stream *s = (link_stream *)(void *)endpoint;
    if (s->count == 0 || s->answers[s->first].due_ns > rt_now_ns())
        return RT_AGAIN;
    *peer = s->end.server;
    *message = s->answers[s->first].message;
    s->first = (s->first + 1) % LINK_QUEUE;
    s->count--;
    return RT_OK;
}

static rt_status link_wait(rt_endpoint *const *endpoints, uint32_t count, int wake_fd,
                           uint32_t timeout_ms, bool *ready)
{
    uint64_t due_ns = link_clock_ns + timeout_ms * UINT64_C(1000000);
    probe_link *link = ((link_stream *)(void *)endpoints[0])->link;
    (void)wake_fd;
    if (link->waits && link->waited++ == link->waits)
        return RT_LIMIT;
    for (uint32_t i = 0; i < count; i++) {
        const link_stream *s = (const link_stream *)(const void *)endpoints[i];
        ready[i] = true;
        if (s->count && s->answers[s->first].due_ns < due_ns)
            due_ns = s->answers[s->first].due_ns;
    }
    link_clock_ns = rt_max_u64(link_clock_ns, due_ns);
    return RT_OK;
}

static const rt_transport_ops link_client = {
    .name = "client", .send = link_send, .receive = link_receive, .wait = link_wait};

static rt_status link_progress(void *context, rt_error *error)
{
    probe_link *link = context;
    if (link->turns && --link->turns == 0)
        return rt_fail(error, RT_STOPPED, "enough");
    return RT_OK;
}

// Probes a link of that kind. The caller's (free): what became of it.
static probe_link *link_probe(const probe_link *like, double turn_s, double silence_s,
                              rt_status *status_p, bw_result *result, rt_error *error)
{
    bw_stream_end ends[LINK_STREAMS];
    probe_link *link = calloc(1, sizeof *link);
    assert_non_null(link);
    *link = *like;
    for (uint32_t i = 0; i < link->stream_count; i++) {
        link->streams[i].link = link;
        link->streams[i].end = ends[i] =
            (bw_stream_end){(rt_endpoint *)(void *)&link->streams[i],
                            rt_peer(RT_ROLE_WORKER, 3 + i), rt_peer(RT_ROLE_PS, i)};
    }
    if (link->is_taken)
        link->responder =
            (bw_responder){.peer = rt_peer(RT_ROLE_WORKER, 9), .heard_ns = link_clock_ns};
    const bw_probe_config config = {.ops = &link_client,
                                    .streams = ends,
                                    .stream_count = link->stream_count,
                                    .turn_s = turn_s,
                                    .silence_s = silence_s,
                                    .progress = link_progress,
                                    .context = link};
    *status_p = bw_probe_run(&config, result, error);
    for (uint32_t i = 0; i < link->stream_count; i++) {
        link_stream *s = &link->streams[i];
        assert_true(*status_p || s->count == 0);
        for (; s->count; s->count--, s->first = (s->first + 1) % LINK_QUEUE)
            rt_message_release(&s->answers[s->first].message);
    }
    return link;
}

#endif
