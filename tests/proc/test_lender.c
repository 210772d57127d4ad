// Who hands rows out is asked by strangers: a LOOK_UP that is none gets one refusal, and a good one
// gets its rows after any number of others. docs/SERVING.md, "Rows of another box".
#include "tests/support/test.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "edge_worker/serve/ew_asker.h"
#include "edge_worker/serve/ew_lender.h"
#include "edge_worker/serve/ew_subscriber.h"
#include "runtime/rt_hash.h"
#include "runtime/transport/rt_transport.h"
#include "runtime/wire/rt_control.h"
#include "tests/support/run_case.h"
#include "tests/support/visitors.h"

#define DIM 8u
#define HALF (RT_RANKS_MAX / 2)
#define ASK_NS UINT64_C(60000000000)
#define ROWS 32u // of the model, that are asked for
#define SERVER rt_peer(RT_ROLE_COORDINATOR, 0)
#define SELF rt_peer(RT_ROLE_VISITOR, 3)
#define PAYLOAD_MAX (sizeof(rt_wire_look_up) + (RT_WIRE_LOOK_UPS_MAX + 1) * sizeof(rt_wire_wanted))

static const char config[] =
    "{\"workers\": 1, \"batch\": {\"samples_per_worker\": 64}, \"stream\": {\"format\": "
    "\"synthetic\", \"samples_max\": 1280, \"synthetic\": {\"shape\": \"criteo\", \"scale\": "
    "0.001}}, \"model\": {\"embedding_dim\": 8, \"mlp\": [8]}, \"cache\": {\"rows\": 20000},"
    " \"checkpoint\": {\"every_iterations\": 10}, \"publish\": {\"every_s\": 1000,"
    "  \"guard\": {\"log_loss\": 0, \"calibration\": 0}}}";

// A server that hands out, in this process, and who asks it.
typedef struct {
    ew_follower *copy;
    ew_lender *lender;
    rt_transport *transport;
    rt_endpoint *endpoint;
    ew_version version;
    uint64_t keys[ROWS]; // that have rows
    float rows[ROWS][DIM];
    char address[64];
    uint8_t *payload; // of the next question, PAYLOAD_MAX bytes
    uint64_t number;
} scene;

static void note_rows(scene *s)
{
    uint32_t side, count = 0;
    uint64_t at = 0;
    const ew_finished *weights = ew_follower_enter(s->copy, &side, &s->version);
    assert_int_equal(weights->config->model.embedding_dim, DIM);
    while (count < ROWS) {
        const ps_entry *entry = ps_table_next(weights->rows, &at);
        assert_non_null(entry);
        s->keys[count] = entry->key;
        memcpy(s->rows[count++], ps_table_row(weights->rows, entry), sizeof s->rows[0]);
    }
    ew_follower_leave(s->copy, side);
}

static void open_scene(scene *s)
{
    char folder[500], address[32];
    rt_error error = {0};
    *s = (scene){.payload = calloc(PAYLOAD_MAX, 1)};
    run_up(config, "out", NULL, NULL);
    snprintf(folder, sizeof folder, "%s", run_path("out/published"));
    const ew_follower_config follow = {.folder = folder};
    if (ew_follower_open(&follow, &s->copy, &error))
        fail_msg("%s", error.text);
    note_rows(s);
    snprintf(address, sizeof address, "127.0.0.1:%u", test_free_port());
    const ew_lender_config lend = {.address = address, .folder = folder, .copy = s->copy};
    if (ew_lender_open(&lend, &s->lender, &error))
        fail_msg("%s", error.text);
    assert_int_equal(rt_transport_open(&rt_transport_zmq, NULL, &s->transport, NULL), RT_OK);
    snprintf(s->address, sizeof s->address, "tcp://%s", address);
    assert_int_equal(
        rt_transport_zmq.connect(s->transport, SELF, SERVER, s->address, &s->endpoint, NULL),
        RT_OK);
}

static void close_scene(scene *s)
{
    rt_transport_zmq.end(s->endpoint, 0);
    rt_transport_zmq.close(s->transport);
    ew_lender_close(s->lender);
    ew_follower_close(s->copy);
    free(s->payload);
}

// A message of this type with so many bytes of s->payload; count: what its header says.
static void send_bytes(scene *s, rt_message_type type, size_t size, uint32_t count)
{
    rt_message message;
    rt_status status = RT_AGAIN;
    assert_int_equal(rt_message_create(&message, type, SELF, ++s->number, count, size), RT_OK);
    memcpy(rt_message_payload(&message), s->payload, size);
    while (status == RT_AGAIN) {
        bool ready;
        status = rt_transport_zmq.send(s->endpoint, SERVER, &message);
        if (status == RT_AGAIN) // it is not connected yet
            (void)rt_transport_zmq.wait(&s->endpoint, 1, -1, 20, &ready);
    }
    assert_int_equal(status, RT_OK);
    rt_message_release(&message);
}

// The next answer, which must be to the last question: what came before got none, or its own.
static rt_message receive(scene *s, rt_message_type type)
{
    for (;;) {
        bool ready;
        uint32_t peer;
        rt_message answer = {0};
        rt_error error = {0};
        const rt_status status = rt_transport_zmq.receive(s->endpoint, &peer, &answer, &error);
        if (status == RT_AGAIN) {
            (void)rt_transport_zmq.wait(&s->endpoint, 1, -1, 20, &ready);
            continue;
        }
        if (status)
            fail_msg("status %d: %s", status, error.text);
        assert_int_equal(rt_message_header(&answer)->type, type);
        assert_int_equal(rt_message_header(&answer)->iteration, s->number);
        return answer;
    }
}

static size_t put_question(scene *s, uint64_t version, const rt_wire_wanted *wanted, uint32_t count)
{
    const rt_wire_look_up head = {.version = version};
    memcpy(s->payload, &head, sizeof head);
    memcpy(s->payload + sizeof head, wanted, count * sizeof *wanted);
    return sizeof head + count * sizeof *wanted;
}

// An answer with rows: as long as what it says that it found. Returns how many it says.
static uint32_t must_be_whole(const scene *s, const rt_message *answer)
{
    rt_reader reader = rt_message_reader(answer);
    rt_wire_looked_up head;
    assert_true(rt_reader_get(&reader, &head, 1, sizeof head));
    assert_int_equal(head.status, RT_OK);
    assert_int_equal(head.dim, DIM);
    assert_true(head.version == s->version.id && head.iteration == s->version.iteration);
    const uint8_t *found = rt_reader_take(&reader, ((uint64_t)head.count + 7) / 8 * 8, 1);
    assert_non_null(found);
    uint32_t rows = 0;
    for (uint32_t i = 0; i < (head.count + 7) / 8 * 8; i++) {
        assert_true(found[i] <= (i < head.count ? RT_LOOK_UP_ROW : RT_LOOK_UP_NONE));
        rows += found[i] == RT_LOOK_UP_ROW;
    }
    assert_int_equal(reader.left, rows * DIM * sizeof(float));
    return head.count;
}

// All rows that are known here, with what who asks has of some.
static void a_good_one_is_answered(scene *s, uint64_t version)
{
    rt_wire_wanted wanted[ROWS + 1] = {{.key = UINT64_MAX - 1}}; // which has no row
    for (uint32_t i = 0; i < ROWS; i++)
        wanted[i + 1] = (rt_wire_wanted){
            s->keys[i], i % 3 == 0 ? rt_hash_bytes(s->rows[i], sizeof s->rows[i]) : i % 3 == 1};
    send_bytes(s, RT_MESSAGE_LOOK_UP, put_question(s, version, wanted, ROWS + 1), 0);
    rt_message answer = receive(s, RT_MESSAGE_LOOKED_UP);
    assert_int_equal(must_be_whole(s, &answer), ROWS + 1);
    const uint8_t *found = rt_message_payload(&answer) + sizeof(rt_wire_looked_up);
    const uint8_t *row = found + (ROWS + 1 + 7) / 8 * 8;
    assert_int_equal(found[0], RT_LOOK_UP_NONE);
    for (uint32_t i = 0; i < ROWS; i++) {
        assert_int_equal(found[i + 1], i % 3 == 0 ? RT_LOOK_UP_SAME : RT_LOOK_UP_ROW);
        if (i % 3 == 0)
            continue;
        assert_memory_equal(row, s->rows[i], sizeof s->rows[i]);
        row += sizeof s->rows[i];
    }
    rt_message_release(&answer);
}

static void must_be_refused(scene *s, size_t size)
{
    char text[200] = "";
    rt_wire_looked_up head;
    send_bytes(s, RT_MESSAGE_LOOK_UP, size, 0);
    rt_message answer = receive(s, RT_MESSAGE_LOOKED_UP);
    rt_reader reader = rt_message_reader(&answer);
    assert_true(rt_reader_get(&reader, &head, 1, sizeof head));
    if (head.status != RT_WIRE)
        fail_msg("a LOOK_UP of %zu bytes: status %u", size, head.status);
    assert_true(head.count == 0 && head.dim == 0);
    assert_true(reader.left < sizeof text);
    memcpy(text, reader.next, reader.left);
    assert_string_equal(text, "not a LOOK_UP of this version");
    rt_message_release(&answer);
}

// Cut within the head and within a key, of another width, and too many.
static void what_is_none_is_refused(void **state)
{
    scene s;
    (void)state;
    open_scene(&s);
    const size_t head = sizeof(rt_wire_look_up), one = sizeof(rt_wire_wanted);
    const size_t sizes[] = {0,
                            1,
                            head - 1,
                            head + 1,
                            head + sizeof(uint64_t), // a key alone
                            head + one - 1,
                            head + 3 * one + 4,
                            head + 3 * sizeof(uint64_t),
                            head + RT_WIRE_LOOK_UPS_MAX * one + 1,
                            PAYLOAD_MAX};
    for (size_t i = 0; i < RT_COUNT_OF(sizes); i++) {
        must_be_refused(&s, sizes[i]);
        a_good_one_is_answered(&s, s.version.id);
    }
    close_scene(&s);
}

// Sizes at the bounds: none, which asks whether somebody is there, and as many as there may be, of
// the same key. What the header counts is not believed, nor a version that nobody has.
static void what_is_odd_is_answered(void **state)
{
    scene s;
    (void)state;
    open_scene(&s);
    const uint32_t counts[] = {0, 1, ROWS, UINT32_MAX};
    for (size_t i = 0; i < RT_COUNT_OF(counts); i++) {
        const rt_wire_wanted one = {.key = s.keys[0]};
        send_bytes(&s, RT_MESSAGE_LOOK_UP, put_question(&s, s.version.id, &one, i > 0), counts[i]);
        rt_message answer = receive(&s, RT_MESSAGE_LOOKED_UP);
        assert_int_equal(must_be_whole(&s, &answer), i > 0);
        rt_message_release(&answer);
    }
    for (uint32_t i = 0; i < RT_WIRE_LOOK_UPS_MAX; i++) {
        const rt_wire_wanted one = {.key = s.keys[0]};
        memcpy(s.payload + sizeof(rt_wire_look_up) + i * sizeof one, &one, sizeof one);
    }
    send_bytes(&s, RT_MESSAGE_LOOK_UP, PAYLOAD_MAX - sizeof(rt_wire_wanted), 0);
    rt_message answer = receive(&s, RT_MESSAGE_LOOKED_UP);
    assert_int_equal(must_be_whole(&s, &answer), RT_WIRE_LOOK_UPS_MAX);
    rt_message_release(&answer);
    a_good_one_is_answered(&s, ~s.version.id);
    a_good_one_is_answered(&s, 0);
    close_scene(&s);
}

// Bytes and lengths by chance, and messages that are for others.
static void any_bytes_have_one_answer(void **state)
{
    scene s;
    rt_random random = {7};
    (void)state;
    open_scene(&s);
    for (uint32_t turn = 0; turn < 2000; turn++) {
        const size_t size = rt_random_below(&random, 400);
        for (size_t i = 0; i < size; i++)
            s.payload[i] = (uint8_t)rt_random_below(&random, 256);
        if (turn % 4 == 0 && size >= sizeof(rt_wire_look_up) + sizeof(uint64_t))
            memcpy(s.payload + sizeof(rt_wire_look_up), &s.keys[turn % ROWS], sizeof(uint64_t));
        const size_t records = size - rt_min_u64(size, sizeof(rt_wire_look_up));
        if (size >= sizeof(rt_wire_look_up) && records % sizeof(rt_wire_wanted) == 0) {
            send_bytes(&s, RT_MESSAGE_LOOK_UP, size, (uint32_t)rt_random_u64(&random));
            rt_message answer = receive(&s, RT_MESSAGE_LOOKED_UP);
            assert_int_equal(must_be_whole(&s, &answer), records / sizeof(rt_wire_wanted));
            rt_message_release(&answer);
        } else {
            must_be_refused(&s, size);
        }
        if (turn % 50 == 0) { // no answer: the next one is to the next question
            send_bytes(&s, RT_MESSAGE_LOOKED_UP, size, 0);
            send_bytes(&s, RT_MESSAGE_FETCH, size % sizeof(rt_wire_fetch), 0);
            send_bytes(&s, RT_MESSAGE_CONTROL, size, 0);
            a_good_one_is_answered(&s, s.version.id);
        }
    }
    close_scene(&s);
}

// Half of the numbers of visitors are taken, or the other half: who copies a model, and who asks
// for rows, finds one of the others.
static void others_have_numbers(void **state)
{
    scene s;
    visitors others;
    ew_subscriber *subscriber;
    ew_asker *asker;
    rt_error error = {0};
    const rt_wire_fetch fetch = {.name = "current.json"};
    const rt_wire_look_up none = {0};
    rt_message question, answer;
    (void)state;
    open_scene(&s);
    visitors_take(&others, s.address, 0, HALF, RT_MESSAGE_FETCH, &fetch, sizeof fetch);
    const ew_subscriber_config copies = {
        .address = s.address, .standby = "", .folder = run_path("copy"), .keep = 2};
    assert_int_equal(ew_subscriber_open(&copies, &subscriber, &error), RT_OK);
    while (ew_subscriber_find(subscriber, &error)) // or the time of the case is over
        (void)poll(NULL, 0, 10);
    ew_subscriber_close(subscriber);
    visitors_leave(&others);
    for (uint32_t half = 0; half < 2; half++) {
        visitors_take(&others, s.address, half * HALF, HALF, RT_MESSAGE_LOOK_UP, &none,
                      sizeof none);
        const ew_asker_config asks = {.address = s.address};
        assert_int_equal(ew_asker_open(&asks, &asker, &error), RT_OK);
        assert_int_equal(rt_message_create(&question, RT_MESSAGE_LOOK_UP, 0, 0, 0, sizeof none),
                         RT_OK);
        memcpy(rt_message_payload(&question), &none, sizeof none);
        if (ew_asker_ask(asker, &question, rt_now_ns() + ASK_NS, &answer, &error))
            fail_msg("%s", error.text);
        rt_message_release(&answer);
        ew_asker_close(asker);
        visitors_leave(&others);
    }
    close_scene(&s);
}

TEST_MAIN(TEST(what_is_none_is_refused), TEST(what_is_odd_is_answered),
          TEST(any_bytes_have_one_answer), TEST(others_have_numbers))
