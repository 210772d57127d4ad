// Messages of a shard on their way: in which order, in which message, and what waits. The case is
// the transport.
#include "ps_lite/ps_shard_parts.h"

#include <string.h>

#include "tests/support/test.h"

#define WORKERS 2u
#define MESSAGE_BYTES 64u
#define QUEUE 3u
#define SENT_MAX 64u
#define RECORD 16u

typedef struct {
    uint32_t full;    // mask of workers that take nothing
    rt_status broken; // what sending returns otherwise
    uint32_t count;
    struct {
        uint32_t peer;
        rt_wire_header header;
        uint8_t first; // of the payload
    } sent[SENT_MAX];
} wire;

static rt_status take(void *context, uint32_t peer, rt_message *message)
{
    wire *w = context;
    if (w->full >> rt_peer_rank(peer) & 1)
        return RT_AGAIN;
    if (w->broken)
        return w->broken;
    assert_true(w->count < SENT_MAX);
    w->sent[w->count].peer = peer;
    w->sent[w->count].header = *rt_message_header(message);
    if (message->size > sizeof(rt_wire_header))
        w->sent[w->count].first = *rt_message_payload(message);
    w->count++;
    rt_message_release(message);
    return RT_OK;
}

static ps_outbox *make(wire *w)
{
    ps_outbox *outbox;
    const ps_outbox_config config = {.self = rt_peer(RT_ROLE_PS, 5),
                                     .epoch = 9,
                                     .worker_count = WORKERS,
                                     .message_bytes = MESSAGE_BYTES,
                                     .queue_messages_max = QUEUE,
                                     .send = take,
                                     .context = w};
    *w = (wire){0};
    assert_int_equal(ps_outbox_create(&config, &outbox), RT_OK);
    return outbox;
}

static rt_status record(ps_outbox *outbox, uint32_t worker, rt_message_type type,
                        uint64_t iteration, size_t size, uint8_t value)
{
    uint8_t *at;
    rt_error error = {0};
    const rt_status status = ps_outbox_record(outbox, worker, type, iteration, size, &at, &error);
    if (!status)
        memset(at, value, size);
    return status;
}

static void put(ps_outbox *outbox, uint32_t worker, uint64_t iteration, uint8_t value)
{
    assert_int_equal(record(outbox, worker, RT_MESSAGE_ROWS, iteration, RECORD, value), RT_OK);
}

static void was_sent(const wire *w, uint32_t i, uint32_t worker, rt_message_type type,
                     uint64_t iteration, uint32_t count, uint8_t first)
{
    assert_true(i < w->count);
    const rt_wire_header *header = &w->sent[i].header;
    assert_int_equal(w->sent[i].peer, rt_peer(RT_ROLE_WORKER, worker));
    assert_int_equal(header->type, type);
    assert_int_equal(header->iteration, iteration);
    assert_int_equal(header->count, count);
    assert_int_equal(header->sender, rt_peer(RT_ROLE_PS, 5));
    assert_int_equal(header->epoch, 9);
    assert_int_equal(w->sent[i].first, first);
}

static void records_of_one_kind_share_a_message(void **state)
{
    (void)state;
    wire w;
    ps_outbox *outbox = make(&w);
    for (uint8_t i = 0; i < 4; i++) { // as many as fill one
        put(outbox, 0, 1, 10 + i);
        put(outbox, 1, 1, 20 + i);
    }
    assert_int_equal(w.count, 0);
    put(outbox, 0, 1, 14); // the full one goes out
    assert_int_equal(w.count, 1);
    was_sent(&w, 0, 0, RT_MESSAGE_ROWS, 1, 4, 10);
    assert_int_equal(w.sent[0].header.payload_bytes, 4 * RECORD);
    assert_int_equal(ps_outbox_flush(outbox, NULL), RT_OK);
    assert_int_equal(w.count, 3);
    was_sent(&w, 1, 0, RT_MESSAGE_ROWS, 1, 1, 14);
    assert_int_equal(w.sent[1].header.payload_bytes, RECORD);
    was_sent(&w, 2, 1, RT_MESSAGE_ROWS, 1, 4, 20);
    assert_int_equal(ps_outbox_flush(outbox, NULL), RT_OK); // nothing is left
    assert_int_equal(w.count, 3);
    ps_outbox_destroy(outbox);
}

static void a_record_may_be_larger_than_a_message(void **state)
{
    (void)state;
    wire w;
    ps_outbox *outbox = make(&w);
    put(outbox, 0, 1, 1);
    assert_int_equal(record(outbox, 0, RT_MESSAGE_ROWS, 1, 10 * MESSAGE_BYTES, 2), RT_OK);
    put(outbox, 0, 1, 3);
    assert_int_equal(ps_outbox_flush(outbox, NULL), RT_OK);
    assert_int_equal(w.count, 3);
    assert_int_equal(w.sent[1].header.payload_bytes, 10 * MESSAGE_BYTES);
    for (uint8_t i = 0; i < 3; i++)
        was_sent(&w, i, 0, RT_MESSAGE_ROWS, 1, 1, i + 1);
    ps_outbox_destroy(outbox);
}

// However many are open, the one that was begun first goes out first: when there is no room for
// another one, and at a flush.
static void messages_leave_in_the_order_in_which_they_began(void **state)
{
    (void)state;
    for (uint32_t before = 0; before < 8; before++) {
        wire w;
        ps_outbox *outbox = make(&w);
        uint32_t n = 0;
        for (uint64_t t = 1; t <= before; t++, n++)
            put(outbox, 0, t, (uint8_t)t);
        for (uint64_t t = 100; t < 103; t++, n++) {
            put(outbox, 0, t, (uint8_t)t);
            put(outbox, 0, 100, 100); // the one that is begun already
        }
        assert_int_equal(ps_outbox_flush(outbox, NULL), RT_OK);
        assert_int_equal(w.count, n);
        for (uint32_t i = 1; i < n; i++)
            assert_true(w.sent[i].header.iteration > w.sent[i - 1].header.iteration);
        ps_outbox_destroy(outbox);
    }
}

static void kinds_and_iterations_do_not_mix(void **state)
{
    (void)state;
    wire w;
    ps_outbox *outbox = make(&w);
    put(outbox, 0, 1, 1);
    assert_int_equal(record(outbox, 0, RT_MESSAGE_ROWS_CODED, 1, RECORD, 2), RT_OK);
    put(outbox, 0, 2, 3);
    put(outbox, 0, 1, 4);
    assert_int_equal(ps_outbox_flush(outbox, NULL), RT_OK);
    assert_int_equal(w.count, 3);
    was_sent(&w, 0, 0, RT_MESSAGE_ROWS, 1, 2, 1);
    was_sent(&w, 1, 0, RT_MESSAGE_ROWS_CODED, 1, 1, 2);
    was_sent(&w, 2, 0, RT_MESSAGE_ROWS, 2, 1, 3);
    ps_outbox_destroy(outbox);
}

// What the transport does not take waits, in order, and other workers do not wait with it. One that
// takes nothing for too long is named.
static void what_is_not_taken_waits(void **state)
{
    (void)state;
    wire w;
    rt_error error = {0};
    ps_outbox *outbox = make(&w);
    for (uint32_t round = 0; round < 3; round++) { // the ring of those that wait turns
        w = (wire){.full = 1};
        for (uint64_t t = 1; t <= QUEUE; t++)
            assert_int_equal(ps_outbox_notify(outbox, 0, RT_MESSAGE_PUSHED, t, &error), RT_OK);
        assert_int_equal(ps_outbox_notify(outbox, 1, RT_MESSAGE_PUSHED, 7, &error), RT_OK);
        assert_int_equal(w.count, 1);
        was_sent(&w, 0, 1, RT_MESSAGE_PUSHED, 7, 0, 0);
        assert_int_equal(ps_outbox_flush(outbox, &error), RT_AGAIN);
        assert_int_equal(ps_outbox_notify(outbox, 0, RT_MESSAGE_PUSHED, 99, &error), RT_LIMIT);
        assert_string_equal(error.text, "worker 0 does not read its messages: 3 wait");
        w.full = 0;
        assert_int_equal(ps_outbox_notify(outbox, 0, RT_MESSAGE_PUSHED, 50, &error), RT_OK);
        assert_int_equal(w.count, QUEUE + 2);
        for (uint32_t t = 1; t <= QUEUE; t++)
            was_sent(&w, t, 0, RT_MESSAGE_PUSHED, t, 0, 0);
        was_sent(&w, QUEUE + 1, 0, RT_MESSAGE_PUSHED, 50, 0, 0);
        assert_int_equal(ps_outbox_flush(outbox, &error), RT_OK);
    }
    w.full = 3;
    put(outbox, 1, 3, 1);
    assert_int_equal(ps_outbox_flush(outbox, &error), RT_AGAIN); // it waits in the queue
    assert_int_equal(ps_outbox_flush(outbox, &error), RT_AGAIN);
    ps_outbox_destroy(outbox);
}

static void a_broken_link_is_named_at_once(void **state)
{
    (void)state;
    wire w;
    rt_error error = {0};
    rt_message message;
    ps_outbox *outbox = make(&w);
    put(outbox, 1, 1, 1);
    w.broken = RT_PEER;
    assert_int_equal(ps_outbox_flush(outbox, &error), RT_PEER);
    assert_non_null(strstr(error.text, "cannot send to worker 1"));
    assert_int_equal(ps_outbox_notify(outbox, 0, RT_MESSAGE_PUSHED, 1, &error), RT_PEER);
    assert_non_null(strstr(error.text, "cannot send to worker 0"));
    assert_int_equal(rt_message_create(&message, RT_MESSAGE_DENSE_SUM, 0, 1, 0, 64), RT_OK);
    assert_int_equal(ps_outbox_send_to(outbox, 3, &message, &error), RT_PEER);
    for (uint8_t i = 0; i < 4; i++)
        put(outbox, 0, 1, i);
    assert_int_equal(record(outbox, 0, RT_MESSAGE_ROWS, 1, RECORD, 9), RT_PEER); // one is full
    w.broken = RT_OK;
    ps_outbox_destroy(outbox);
}

static void the_same_bytes_for_all(void **state)
{
    (void)state;
    wire w;
    rt_error error = {0};
    rt_message message;
    ps_outbox *outbox = make(&w);
    assert_int_equal(rt_message_create(&message, RT_MESSAGE_DENSE_SUM, 0, 4, 6, 64), RT_OK);
    memset(rt_message_payload(&message), 77, 64);
    w.full = 2;
    assert_int_equal(ps_outbox_send_to(outbox, 3, &message, &error), RT_OK);
    w.full = 0;
    assert_int_equal(ps_outbox_flush(outbox, &error), RT_OK);
    assert_int_equal(w.count, 2);
    for (uint32_t worker = 0; worker < 2; worker++)
        was_sent(&w, worker, worker, RT_MESSAGE_DENSE_SUM, 4, 6, 77);
    ps_outbox_begin_epoch(outbox, 12);
    put(outbox, 0, 1, 1);
    assert_int_equal(ps_outbox_notify(outbox, 1, RT_MESSAGE_PUSHED, 1, &error), RT_OK);
    assert_int_equal(ps_outbox_flush(outbox, &error), RT_OK);
    assert_int_equal(w.sent[2].header.epoch, 12);
    assert_int_equal(w.sent[3].header.epoch, 12);
    ps_outbox_destroy(outbox);
}

TEST_MAIN(TEST(records_of_one_kind_share_a_message), TEST(a_record_may_be_larger_than_a_message),
          TEST(messages_leave_in_the_order_in_which_they_began),
          TEST(kinds_and_iterations_do_not_mix), TEST(what_is_not_taken_waits),
          TEST(a_broken_link_is_named_at_once), TEST(the_same_bytes_for_all))
