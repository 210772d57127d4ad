#include "bandwidth_probe/bw_probe.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/rt_log.h"

#define ECHOES 5u
#define PIECES 8u
#define PIECE_NS_MIN 1000000u // what was taken in one go did not arrive at that pace
#define CHUNK_BYTES_MIN 8192u
#define CHUNK_BYTES_MAX 65536u
#define CHUNK_S 0.004             // worth of one message
#define WINDOW_S 0.03             // worth of what is under way
#define WINDOW_BYTES_MIN 65536u   // of a stream, until the rate is known a little
#define WINDOW_BYTES_MAX 4194304u // of a stream: 64 messages, far below the queues' marks
#define FIRST_S 0.02              // a rate is not believed from less time than this
#define MESSAGES_MAX (BW_TRAIN_BYTES_MAX / CHUNK_BYTES_MIN)
#define WAIT_MS 100u
#define NS_PER_S 1e9

typedef struct {
    uint64_t arrived_ns;
    uint64_t bytes; // of the message; once all have arrived, of all up to it
    uint32_t stream;
} mark;

typedef struct {
    const bw_probe_config *config;
    bool down;
    double rtt_s, limit_s;
    uint64_t first_number; // of the train's messages
    uint64_t begin_ns;
    uint64_t sent_bytes, arrived_bytes;
    uint32_t sent, arrived;
    uint64_t noted_ns, noted_bytes;     // what had arrived a moment ago
    double recent_bytes_per_s;          // since the moment before that
    uint32_t next[BW_STREAMS_MAX];      // a message of the stream that has not arrived, or later
    uint64_t under_way[BW_STREAMS_MAX]; // bytes
    mark *marks;                        // MESSAGES_MAX
} train;

// ---- messages --------------------------------------------------------------------------------

static rt_status send_probe(const bw_probe_config *config, uint32_t stream, rt_probe_kind kind,
                            uint64_t number, uint32_t filler, uint32_t answer_bytes)
{
    rt_message message;
    const bw_stream_end *end = &config->streams[stream];
    const rt_wire_probe probe = {kind, answer_bytes};
    rt_status status =
        rt_message_create(&message, RT_MESSAGE_PROBE, end->self, number, 1, sizeof probe + filler);
    if (status)
        return status;
    memset(rt_message_payload(&message), 0, sizeof probe + filler); // no memory of ours goes out
    memcpy(rt_message_payload(&message), &probe, sizeof probe);
    status = rt_transport_send(config->ops, end->endpoint, end->server, &message);
    rt_message_release(&message);
    return status;
}

// The answer to a probe, if it has come. RT_AGAIN: it has not.
static rt_status take_answer(const bw_probe_config *config, uint32_t stream, uint64_t number,
                             uint32_t answer_bytes, rt_wire_probed *probed, rt_error *error)
{
    char name[32];
    uint32_t peer;
    rt_message message = {0};
    const bw_stream_end *end = &config->streams[stream];
    rt_status status = rt_transport_receive(config->ops, end->endpoint, &peer, &message, error);
    if (status)
        return status;
    const rt_wire_header *header = rt_message_header(&message);
    rt_reader reader = rt_message_reader(&message);
    const void *head = rt_reader_take(&reader, 1, sizeof *probed);
    if (header->type != RT_MESSAGE_PROBED || header->iteration != number || !head ||
        reader.left != answer_bytes)
        status = rt_fail(error, RT_WIRE,
                         "%s: %s number %" PRIu64 " with %zu bytes, expected the answer to probe "
                         "%" PRIu64 " with %zu",
                         rt_peer_name(end->server, name), rt_message_type_name(header->type),
                         header->iteration, message.size - sizeof *header, number,
                         sizeof *probed + answer_bytes);
    else
        memcpy(probed, head, sizeof *probed);
    rt_message_release(&message);
    return status;
}

static rt_status wait_for(const bw_probe_config *config, uint32_t count, rt_error *error)
{
    bool ready[BW_STREAMS_MAX];
    rt_endpoint *endpoints[BW_STREAMS_MAX];
    for (uint32_t i = 0; i < count; i++)
        endpoints[i] = config->streams[i].endpoint;
    const rt_status status = config->ops->wait(endpoints, count, -1, WAIT_MS, ready);
    if (status)
        return rt_fail(error, status, "waiting for a probe: %s", rt_status_text(status));
    return RT_OK;
}

static double silence_s(const bw_probe_config *config)
{
    if (config->silence_s > 0)
        return config->silence_s;
    return BW_DEADLINE_S;
}

static rt_status make_progress(const bw_probe_config *config, rt_error *error)
{
    if (!config->progress)
        return RT_OK;
    return config->progress(config->context, error);
}

static rt_status silent(const bw_probe_config *config, double limit_s, rt_error *error)
{
    char name[32];
    return rt_fail(error, RT_TIMEOUT, "%s did not answer a probe within %.1f s",
                   rt_peer_name(config->streams[0].server, name), limit_s);
}

static rt_status ask(const bw_probe_config *config, rt_probe_kind kind, uint64_t number,
                     double limit_s, rt_wire_probed *probed, rt_error *error)
{
    const uint64_t end_ns = rt_now_ns() + (uint64_t)(limit_s * NS_PER_S);
    rt_status status = send_probe(config, 0, kind, number, 0, 0);
    if (status)
        return rt_fail(error, status, "cannot send a probe: %s", rt_status_text(status));
    for (;;) {
        status = wait_for(config, 1, error);
        if (status)
            return status;
        status = take_answer(config, 0, number, 0, probed, error);
        if (status != RT_AGAIN)
            return status;
        if (rt_now_ns() > end_ns)
            return silent(config, limit_s, error);
        status = make_progress(config, error);
        if (status)
            return status;
    }
}

// ---- trains ----------------------------------------------------------------------------------

// What passes in so many seconds, at the rate so far, or (on a long link, which shows its rate only
// once enough is under way) at that of late.
static uint32_t worth(const train *t, double seconds, uint32_t least, uint32_t most)
{
    const double passed_s = (double)(rt_now_ns() - t->begin_ns) / NS_PER_S;
    const double rate =
        fmax((double)t->arrived_bytes / fmax(passed_s, FIRST_S), t->recent_bytes_per_s);
    return (uint32_t)fmin(fmax(rate * seconds, least), most);
}

static void note_rate(train *t)
{
    const uint64_t now = rt_now_ns();
    const double passed_s = (double)(now - t->noted_ns) / NS_PER_S;
    if (t->rtt_s < FIRST_S || passed_s < t->rtt_s)
        return;
    t->recent_bytes_per_s = (double)(t->arrived_bytes - t->noted_bytes) / passed_s;
    t->noted_ns = now;
    t->noted_bytes = t->arrived_bytes;
}

static uint32_t emptiest(const train *t)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < t->config->stream_count; i++)
        if (t->under_way[i] < t->under_way[best])
            best = i;
    return best;
}

// Sends what fits into the window.
static rt_status fill_window(train *t, rt_error *error)
{
    const uint32_t window =
        worth(t, WINDOW_S + 2 * t->rtt_s, WINDOW_BYTES_MIN * t->config->stream_count,
              WINDOW_BYTES_MAX * t->config->stream_count);
    const uint32_t chunk = worth(t, CHUNK_S, CHUNK_BYTES_MIN, CHUNK_BYTES_MAX);
    while (t->sent_bytes - t->arrived_bytes < window && t->sent_bytes < BW_TRAIN_BYTES_MAX &&
           t->sent < MESSAGES_MAX) {
        const uint32_t stream = emptiest(t), up = t->down ? 0 : chunk, down = chunk - up;
        const rt_status status =
            send_probe(t->config, stream, RT_PROBE_ECHO, t->first_number + t->sent, up, down);
        if (status == RT_AGAIN)
            return RT_OK;
        if (status)
            return rt_fail(error, status, "cannot send a probe: %s", rt_status_text(status));
        t->sent_bytes += chunk;
        t->under_way[stream] += chunk;
        t->marks[t->sent++] = (mark){.bytes = chunk, .stream = stream};
    }
    return RT_OK;
}

// The answers of one stream, which come in the order of its messages.
static rt_status take_arrivals(train *t, uint32_t stream, rt_error *error)
{
    for (;;) {
        uint32_t *at = &t->next[stream];
        while (*at < t->sent && t->marks[*at].stream != stream)
            ++*at;
        if (*at == t->sent)
            return RT_OK;
        mark *next = &t->marks[*at];
        rt_wire_probed probed;
        const uint32_t bytes = t->down ? (uint32_t)next->bytes : 0;
        const rt_status status =
            take_answer(t->config, stream, t->first_number + *at, bytes, &probed, error);
        if (status == RT_AGAIN)
            return RT_OK;
        if (status)
            return status;
        next->arrived_ns = probed.arrived_ns;
        if (t->down)
            next->arrived_ns = rt_now_ns();
        t->arrived_bytes += next->bytes;
        t->under_way[stream] -= next->bytes;
        t->arrived++;
        ++*at;
    }
}

static rt_status take_all_arrivals(train *t, rt_error *error)
{
    rt_status status = wait_for(t->config, t->config->stream_count, error);
    if (status)
        return status;
    for (uint32_t i = 0; i < t->config->stream_count; i++) {
        status = take_arrivals(t, i, error);
        if (status)
            return status;
    }
    note_rate(t);
    return RT_OK;
}

static double seconds_since(uint64_t ns)
{
    return (double)(rt_now_ns() - ns) / NS_PER_S;
}

static rt_status drive(train *t, rt_error *error)
{
    uint64_t heard_ns = t->begin_ns;
    for (;;) {
        rt_status status = RT_OK;
        const uint32_t arrived = t->arrived;
        const bool over = seconds_since(t->begin_ns) > t->limit_s ||
                          t->sent_bytes >= BW_TRAIN_BYTES_MAX || t->sent == MESSAGES_MAX;
        if (over && t->arrived == t->sent)
            return RT_OK;
        if (!over)
            status = fill_window(t, error);
        if (status)
            return status;
        status = take_all_arrivals(t, error);
        if (status)
            return status;
        if (t->arrived > arrived)
            heard_ns = rt_now_ns();
        else if (seconds_since(heard_ns) > silence_s(t->config))
            return silent(t->config, silence_s(t->config), error);
        status = make_progress(t->config, error);
        if (status)
            return status;
    }
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int compare_marks(const void *a, const void *b)
{
    const mark *x = a, *y = b;
    return (x->arrived_ns > y->arrived_ns) - (x->arrived_ns < y->arrived_ns);
}

// In the order of arrival over all streams, with the bytes up to each.
static void order_marks(const train *t)
{
    qsort(t->marks, t->arrived, sizeof *t->marks, compare_marks);
    for (uint32_t i = 1; i < t->arrived; i++)
        t->marks[i].bytes += t->marks[i - 1].bytes;
}

// A message counts at the moment when all of it has arrived, so a piece begins and ends with one.
static bw_rate rate_of(const train *t)
{
    double rates[PIECES];
    uint32_t count = 0, from = t->arrived / 3;
    order_marks(t);
    const uint64_t skipped = t->marks[from].bytes, all = t->arrived_bytes - skipped;
    for (uint32_t at = from; at < t->arrived && count < PIECES; at++) {
        const mark *begin = &t->marks[from], *end = &t->marks[at];
        if (end->bytes - skipped < all * (count + 1) / PIECES ||
            end->arrived_ns < begin->arrived_ns + PIECE_NS_MIN)
            continue;
        rates[count++] = (double)(end->bytes - begin->bytes) * NS_PER_S /
                         (double)(end->arrived_ns - begin->arrived_ns);
        from = at;
    }
    if (t->arrived == 0)
        return (bw_rate){.bytes = t->sent_bytes};
    if (count == 0) { // all came in one go: what can be said is from the beginning
        const uint64_t ns = t->marks[t->arrived - 1].arrived_ns - t->marks[0].arrived_ns;
        const uint64_t bytes = t->arrived_bytes - t->marks[0].bytes;
        return (bw_rate){.bytes_per_s = (double)bytes * NS_PER_S / fmax((double)ns, PIECE_NS_MIN),
                         .bytes = t->sent_bytes};
    }
    qsort(rates, count, sizeof *rates, compare);
    const double middle = (rates[count / 2] + rates[(count - 1) / 2]) / 2;
    return (bw_rate){.bytes_per_s = middle,
                     .spread = (rates[count * 3 / 4 - (count > 3)] - rates[count / 4]) / middle,
                     .bytes = t->sent_bytes};
}

static rt_status run_train(const bw_probe_config *config, bool down, double rtt_s, uint64_t *number,
                           mark *marks, bw_rate *rate, rt_error *error)
{
    const uint64_t now = rt_now_ns();
    train t = {.config = config,
               .down = down,
               .rtt_s = rtt_s,
               .limit_s = fmin(fmax(BW_TRAIN_S, BW_TRAIN_RTTS * rtt_s), BW_TRAIN_S_MAX),
               .first_number = *number,
               .begin_ns = now,
               .noted_ns = now,
               .marks = marks};
    rt_status status = drive(&t, error);
    *number += t.sent;
    if (status)
        return status;
    *rate = rate_of(&t);
    return RT_OK;
}

// The steadiest of a few trains.
static rt_status run_trains(const bw_probe_config *config, bool down, double rtt_s,
                            uint64_t *number, mark *marks, bw_rate *rate, rt_error *error)
{
    const uint64_t begin_ns = rt_now_ns();
    double last_s = 0;
    *rate = (bw_rate){.spread = INFINITY};
    while (rate->trains < BW_TRAINS_MAX && rate->spread > BW_STEADY &&
           seconds_since(begin_ns) + last_s <= BW_TRAIN_S_MAX) {
        bw_rate one = {0};
        const uint64_t from_ns = rt_now_ns();
        const rt_status status = run_train(config, down, rtt_s, number, marks, &one, error);
        if (status)
            return status;
        last_s = seconds_since(from_ns);
        one.bytes += rate->bytes;
        one.trains = rate->trains + 1;
        if (one.spread > rate->spread) {
            one.bytes_per_s = rate->bytes_per_s;
            one.spread = rate->spread;
        }
        *rate = one;
    }
    return RT_OK;
}

static int64_t less_us(uint64_t a_ns, uint64_t b_ns)
{
    return (int64_t)(a_ns - b_ns) / 1000;
}

static rt_status measure_rtt(const bw_probe_config *config, uint64_t *number, bw_result *result,
                             rt_error *error)
{
    double times[ECHOES];
    result->up_us = result->down_us = INT64_MAX;
    for (uint32_t i = 0; i < ECHOES; i++) {
        rt_wire_probed there;
        const uint64_t begin = rt_now_ns();
        rt_status status =
            ask(config, RT_PROBE_ECHO, (*number)++, silence_s(config), &there, error);
        if (status)
            return status;
        const uint64_t end = rt_now_ns();
        const int64_t up_us = less_us(there.arrived_ns, begin);
        const int64_t down_us = less_us(end, there.arrived_ns);
        if (up_us < result->up_us)
            result->up_us = up_us;
        if (down_us < result->down_us)
            result->down_us = down_us;
        times[i] = (double)(end - begin) / NS_PER_S;
    }
    qsort(times, ECHOES, sizeof *times, compare);
    result->rtt_s = times[ECHOES / 2];
    return RT_OK;
}

static rt_status measure(const bw_probe_config *config, mark *marks, bw_result *result,
                         rt_error *error)
{
    uint64_t number = 1;
    rt_wire_probed probed;
    // An ECHO is answered out of turn: it tells soon that nobody is there.
    rt_status status = ask(config, RT_PROBE_ECHO, number++, silence_s(config), &probed, error);
    if (status)
        return status;
    status = ask(config, RT_PROBE_BEGIN, number++, config->turn_s, &probed, error);
    if (status)
        return status;
    status = measure_rtt(config, &number, result, error);
    if (status)
        return status;
    status = run_trains(config, false, result->rtt_s, &number, marks, &result->up, error);
    if (status)
        return status;
    status = run_trains(config, true, result->rtt_s, &number, marks, &result->down, error);
    if (status)
        return status;
    return ask(config, RT_PROBE_END, number, silence_s(config), &probed, error);
}

rt_status bw_probe_run(const bw_probe_config *config, bw_result *result, rt_error *error)
{
    bw_result found = {0};
    rt_assert(config->stream_count >= 1 && config->stream_count <= BW_STREAMS_MAX);
    mark *marks = rt_alloc(MESSAGES_MAX, sizeof *marks);
    if (!marks)
        return rt_fail(error, RT_NO_MEMORY, "out of memory for a probe");
    const rt_status status = measure(config, marks, &found, error);
    rt_free(marks);
    if (status)
        return status;
    *result = found;
    return RT_OK;
}

bool bw_probe_is_long(const bw_result *result)
{
    const double most = fmax(result->up.bytes_per_s, result->down.bytes_per_s);
    return most * result->rtt_s > BW_STREAM_BYTES;
}

// ---- the side that answers -------------------------------------------------------------------

static void answer(const bw_listener *listener, uint32_t peer, uint64_t number, uint32_t bytes,
                   uint64_t arrived_ns)
{
    rt_message message;
    char name[32];
    const rt_wire_probed probed = {arrived_ns};
    if (rt_message_create(&message, RT_MESSAGE_PROBED, listener->self, number, 1,
                          sizeof probed + bytes))
        return;
    memset(rt_message_payload(&message), 0, sizeof probed + bytes);
    memcpy(rt_message_payload(&message), &probed, sizeof probed);
    rt_status status = rt_transport_send(listener->ops, listener->endpoint, peer, &message);
    if (status) // who probes keeps to its window, or waits in vain
        rt_debug("a probe of %s is not answered: %s", rt_peer_name(peer, name),
                 rt_status_text(status));
    rt_message_release(&message);
}

static void next_turn(bw_responder *r, const bw_listener *listener)
{
    r->peer = 0;
    if (r->waiting_count == 0)
        return;
    r->peer = r->waiting[0].peer;
    r->heard_ns = rt_now_ns();
    answer(listener, r->peer, r->waiting[0].number, 0, r->heard_ns);
    memmove(r->waiting, r->waiting + 1, --r->waiting_count * sizeof *r->waiting);
}

void bw_responder_tick(bw_responder *r, const bw_listener *listener)
{
    if (r->peer != 0 && rt_now_ns() - r->heard_ns > BW_TURN_NS)
        next_turn(r, listener);
}

// A peer waits once: who starts over gives its old place up.
static void queue_up(bw_responder *r, uint32_t peer, uint64_t number)
{
    uint32_t at = 0;
    while (at < r->waiting_count && r->waiting[at].peer != peer)
        at++;
    if (at == BW_WAITING_MAX)
        return; // not answered: it runs into its deadline
    r->waiting[at].peer = peer;
    r->waiting[at].number = number;
    r->waiting_count += at == r->waiting_count;
}

rt_status bw_responder_take(bw_responder *r, const bw_listener *listener, uint32_t peer,
                            const rt_message *message, rt_error *error)
{
    char name[32];
    rt_wire_probe probe = {0};
    const uint64_t now = rt_now_ns(), number = rt_message_header(message)->iteration;
    rt_reader reader = rt_message_reader(message);
    const void *head = rt_reader_take(&reader, 1, sizeof probe);
    if (head)
        memcpy(&probe, head, sizeof probe);
    if (!head || probe.kind < RT_PROBE_BEGIN || probe.kind > RT_PROBE_END ||
        probe.answer_bytes > RT_WIRE_PROBE_BYTES_MAX || reader.left > RT_WIRE_PROBE_BYTES_MAX)
        return rt_fail(error, RT_WIRE,
                       "%s: a probe of kind %" PRIu32 " with %zu bytes that asks for %" PRIu32
                       ", at most %u are allowed",
                       rt_peer_name(peer, name), probe.kind, message->size, probe.answer_bytes,
                       RT_WIRE_PROBE_BYTES_MAX);
    bw_responder_tick(r, listener);
    if (probe.kind == RT_PROBE_BEGIN && r->peer != 0 && r->peer != peer) {
        queue_up(r, peer, number);
        return RT_OK;
    }
    if (probe.kind == RT_PROBE_BEGIN)
        r->peer = peer;
    if (r->peer == peer)
        r->heard_ns = now;
    answer(listener, peer, number, probe.answer_bytes, now);
    if (probe.kind == RT_PROBE_END && r->peer == peer)
        next_turn(r, listener);
    return RT_OK;
}
