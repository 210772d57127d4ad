// Probes of links that the cases make up, and whose time is theirs, too.
#include "tests/unit/bandwidth_probe/probe_link.h"

#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#define CLIENT rt_peer(RT_ROLE_WORKER, 3)
#define OTHER rt_peer(RT_ROLE_WORKER, 4)
#define SERVER rt_peer(RT_ROLE_PS, 0)

// Both sides in one thread: what the client sends is answered at once; answers wait in a queue, of
// which `pace` come out at a wait.
typedef struct {
    bw_responder responder;
    rt_message answers[LINK_QUEUE];
    uint32_t peers[LINK_QUEUE];
    uint32_t first, count, released, pace;
    uint64_t sent_bytes, answered_bytes;
    uint32_t filler_nonzero;
    bool deaf;                                               // messages get lost
    enum { RIGHT, NUMBER, KIND, SHORT, LONG, WRONG } answer; // what is wrong with answers
    bw_stream_end stream;
} world;

// The transport's callbacks know it by their endpoint.
static world *world_of(rt_endpoint *endpoint)
{
    return (world *)(void *)endpoint;
}

static rt_endpoint *endpoint_of(world *w)
{
    return (rt_endpoint *)(void *)w;
}

static bool all_zero(const uint8_t *bytes, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if (bytes[i])
            return false;
    return true;
}

static void lengthen(rt_message *message, size_t by)
{
    const size_t size = message->size;
    uint8_t *data = calloc(1, size + by);
    assert_non_null(data);
    memcpy(data, message->data, size);
    rt_message_release(message);
    *message = (rt_message){data, size + by, free, data};
}

static rt_status server_send(rt_endpoint *endpoint, uint32_t peer, rt_message *message)
{
    world *w = world_of(endpoint);
    size_t head = sizeof(rt_wire_header) + sizeof(rt_wire_probed);
    assert_true(w->count < LINK_QUEUE);
    w->answered_bytes += message->size - head;
    w->filler_nonzero += !all_zero(message->data + head, message->size - head);
    rt_message_header(message)->iteration += w->answer == NUMBER;
    if (w->answer == KIND)
        rt_message_header(message)->type = RT_MESSAGE_PROBE;
    if (w->answer == SHORT)
        message->size -= 8;
    if (w->answer == LONG)
        lengthen(message, 8);
    uint32_t at = (w->first + w->count++) % LINK_QUEUE;
    w->answers[at] = *message;
    w->peers[at] = peer;
    *message = (rt_message){0};
    return RT_OK;
}

static const rt_transport_ops server_ops = {.name = "server", .send = server_send};

static rt_status client_send(rt_endpoint *endpoint, uint32_t peer, rt_message *message)
{
    world *w = world_of(endpoint);
    rt_error error = {0};
    const bw_listener listener = {&server_ops, endpoint_of(w), SERVER};
    size_t head = sizeof(rt_wire_header) + sizeof(rt_wire_probe);
    assert_int_equal(peer, SERVER);
    assert_int_equal(rt_message_validate(message, CLIENT, &error), RT_OK);
    w->sent_bytes += message->size - head;
    w->filler_nonzero += !all_zero(message->data + head, message->size - head);
    if (!w->deaf)
        assert_int_equal(bw_responder_take(&w->responder, &listener, CLIENT, message, &error),
                         RT_OK);
    rt_message_release(message);
    return RT_OK;
}

static rt_status client_receive(rt_endpoint *endpoint, uint32_t *peer, rt_message *message,
                                rt_error *error)
{
    (void)error;
    world *w = world_of(endpoint);
    if (w->count == 0 || w->released == 0)
        return RT_AGAIN;
    *peer = SERVER;
    *message = w->answers[w->first];
    w->first = (w->first + 1) % LINK_QUEUE;
    w->count--;
    w->released--;
    return RT_OK;
}

static rt_status client_wait(rt_endpoint *const *endpoints, uint32_t count, int wake_fd,
                             uint32_t timeout_ms, bool *ready)
{
    (void)count;
    (void)wake_fd;
    world *w = world_of(endpoints[0]);
    link_clock_ns += w->count > 0 ? 100000 : timeout_ms * UINT64_C(1000000);
    w->released = w->pace;
    *ready = w->count > 0;
    return RT_OK;
}

static const rt_transport_ops client_ops = {
    .name = "client", .send = client_send, .receive = client_receive, .wait = client_wait};

static rt_status give_up(void *context, rt_error *error)
{
    uint32_t *calls = context;
    return --*calls ? RT_OK : rt_fail(error, RT_STOPPED, "enough");
}

static world *make_world(uint32_t pace)
{
    world *w = calloc(1, sizeof *w);
    assert_non_null(w);
    w->pace = pace;
    return w;
}

static void end_world(world *w)
{
    for (; w->count > 0; w->count--, w->first = (w->first + 1) % LINK_QUEUE)
        rt_message_release(&w->answers[w->first]);
    free(w);
}

static bw_probe_config client_config(world *w)
{
    w->stream = (bw_stream_end){endpoint_of(w), CLIENT, SERVER};
    return (bw_probe_config){
        .ops = &client_ops, .streams = &w->stream, .stream_count = 1, .turn_s = 1};
}

static void both_ways_within_bounds(void **state)
{
    (void)state;
    world *w = make_world(2);
    rt_error error = {0};
    bw_result result = {0};
    const bw_probe_config config = client_config(w);
    assert_int_equal(bw_probe_run(&config, &result, &error), RT_OK);
    assert_true(result.up.bytes_per_s > 0 && result.down.bytes_per_s > 0 && result.rtt_s >= 0);
    assert_true(result.up.bytes == w->sent_bytes && result.up.bytes > 0);
    assert_true(result.down.bytes == w->answered_bytes && result.down.bytes > 0);
    assert_true(w->sent_bytes < result.up.trains * (BW_TRAIN_BYTES_MAX + (1 << 16)));
    assert_true(w->answered_bytes < result.down.trains * (BW_TRAIN_BYTES_MAX + (1 << 16)));
    assert_in_range(result.up.trains, 1, BW_TRAINS_MAX);
    assert_int_equal(w->filler_nonzero, 0); // no memory of ours on the wire
    assert_int_equal(w->count, 0);          // every answer was taken
    assert_int_equal(w->responder.peer, 0); // the turn is given back
    end_world(w);
}

static void a_wrong_answer_is_named(void **state)
{
    (void)state;
    static const char *const got[WRONG] = {[NUMBER] = "PROBED number 2 with 8",
                                           [KIND] = "PROBE number 1 with 8",
                                           [SHORT] = "PROBED number 1 with 0",
                                           [LONG] = "PROBED number 1 with 16"};
    for (uint32_t how = NUMBER; how < WRONG; how++) {
        char want[128];
        world *w = make_world(1);
        rt_error error = {0};
        bw_result result = {.rtt_s = 7};
        const bw_probe_config config = client_config(w);
        w->answer = how;
        assert_int_equal(bw_probe_run(&config, &result, &error), RT_WIRE);
        snprintf(want, sizeof want, "ps 0: %s bytes, expected the answer to probe 1 with 8",
                 got[how]);
        assert_string_equal(error.text, want);
        assert_true(result.rtt_s == 7);
        end_world(w);
    }
}

static rt_message probe_message(uint32_t peer, rt_probe_kind kind, uint64_t number, uint32_t filler,
                                uint32_t answer)
{
    rt_message message;
    const rt_wire_probe probe = {kind, answer};
    assert_int_equal(
        rt_message_create(&message, RT_MESSAGE_PROBE, peer, number, 1, sizeof probe + filler),
        RT_OK);
    memset(rt_message_payload(&message), 0, sizeof probe + filler);
    memcpy(rt_message_payload(&message), &probe, sizeof probe);
    return message;
}

static rt_status take(world *w, uint32_t peer, rt_probe_kind kind, uint64_t number, uint32_t filler,
                      uint32_t answer, rt_error *error)
{
    const bw_listener listener = {&server_ops, endpoint_of(w), SERVER};
    rt_message message = probe_message(peer, kind, number, filler, answer);
    rt_status status = bw_responder_take(&w->responder, &listener, peer, &message, error);
    rt_message_release(&message);
    return status;
}

static void a_turn_that_does_not_come_ends_a_probe(void **state)
{
    (void)state;
    world *w = make_world(1);
    rt_error error = {0};
    bw_result result;
    bw_probe_config config = client_config(w);
    assert_int_equal(take(w, OTHER, RT_PROBE_BEGIN, 1, 0, 0, NULL), RT_OK);
    rt_message_release(&w->answers[w->first]);
    w->count = 0;
    config.turn_s = 0.01;
    assert_int_equal(bw_probe_run(&config, &result, &error), RT_TIMEOUT);
    assert_non_null(strstr(error.text, "ps 0"));
    end_world(w);
}

static void progress_ends_a_probe(void **state)
{
    (void)state;
    world *w = make_world(1);
    rt_error error = {0};
    bw_result result;
    uint32_t calls = 20;
    bw_probe_config config = client_config(w);
    w->deaf = true;
    config.progress = give_up;
    config.context = &calls;
    assert_int_equal(bw_probe_run(&config, &result, &error), RT_STOPPED);
    end_world(w);
}

static void turns_are_taken_in_order(void **state)
{
    (void)state;
    world *w = make_world(1);
    const uint32_t third = rt_peer(RT_ROLE_WORKER, 9);
    assert_int_equal(take(w, CLIENT, RT_PROBE_BEGIN, 1, 0, 0, NULL), RT_OK);
    assert_int_equal(w->count, 1);
    assert_int_equal(take(w, OTHER, RT_PROBE_BEGIN, 5, 0, 0, NULL), RT_OK);
    assert_int_equal(take(w, third, RT_PROBE_BEGIN, 6, 0, 0, NULL), RT_OK);
    assert_int_equal(take(w, OTHER, RT_PROBE_BEGIN, 8, 0, 0, NULL), RT_OK); // started over
    assert_int_equal(w->count, 1);                                          // both wait
    assert_int_equal(take(w, CLIENT, RT_PROBE_ECHO, 2, 10, 20, NULL), RT_OK);
    assert_int_equal(take(w, CLIENT, RT_PROBE_END, 3, 0, 0, NULL), RT_OK);
    assert_int_equal(w->count, 4);
    assert_int_equal(w->peers[3], OTHER);
    assert_int_equal(rt_message_header(&w->answers[3])->iteration, 8);
    // Who is silent loses its turn.
    const bw_listener listener = {&server_ops, endpoint_of(w), SERVER};
    bw_responder_tick(&w->responder, &listener);
    assert_int_equal(w->count, 4);
    w->responder.heard_ns -= BW_TURN_NS + 1;
    bw_responder_tick(&w->responder, &listener);
    assert_int_equal(w->count, 5);
    assert_int_equal(w->peers[4], third);
    assert_int_equal(rt_message_header(&w->answers[4])->iteration, 6);
    end_world(w);
}

// ---- whose turn it is, written down once more ---------------------------------------------------

#define PEERS 70u

typedef struct {
    uint32_t owner; // 0: nobody
    uint64_t heard_ns;
    uint32_t waiting, peers[PEERS];
    uint64_t numbers[PEERS];
} turns;

typedef struct {
    uint32_t peer, bytes;
    uint64_t number;
} answered;

// The first that waits, and what it is told.
static uint32_t pass_on(turns *t, answered *told)
{
    t->owner = 0;
    if (t->waiting == 0)
        return 0;
    t->owner = t->peers[0];
    t->heard_ns = link_clock_ns;
    *told = (answered){t->peers[0], 0, t->numbers[0]};
    t->waiting--;
    for (uint32_t i = 0; i < t->waiting; i++) {
        t->peers[i] = t->peers[i + 1];
        t->numbers[i] = t->numbers[i + 1];
    }
    return 1;
}

static uint32_t time_out(turns *t, answered *told)
{
    if (!t->owner || link_clock_ns - t->heard_ns <= BW_TURN_NS)
        return 0;
    return pass_on(t, told);
}

static uint32_t take_turn(turns *t, rt_probe_kind kind, const answered *asked, answered *told)
{
    uint32_t count = time_out(t, told), at = 0;
    if (kind == RT_PROBE_BEGIN && t->owner && t->owner != asked->peer) {
        while (at < t->waiting && t->peers[at] != asked->peer)
            at++;
        if (at == BW_WAITING_MAX)
            return count;
        t->peers[at] = asked->peer;
        t->numbers[at] = asked->number;
        t->waiting = at == t->waiting ? at + 1 : t->waiting;
        return count;
    }
    if (kind == RT_PROBE_BEGIN)
        t->owner = asked->peer;
    if (t->owner == asked->peer)
        t->heard_ns = link_clock_ns;
    told[count++] = *asked;
    if (kind == RT_PROBE_END && t->owner == asked->peer)
        count += pass_on(t, told + count);
    return count;
}

static void check_told(world *w, const answered *told, uint32_t count)
{
    const size_t head = sizeof(rt_wire_header) + sizeof(rt_wire_probed);
    assert_int_equal(w->count, count);
    for (uint32_t i = 0; i < count; i++) {
        rt_message *message = &w->answers[w->first];
        rt_wire_probed probed;
        memcpy(&probed, rt_message_payload(message), sizeof probed);
        assert_int_equal(w->peers[w->first], told[i].peer);
        assert_int_equal(rt_message_header(message)->type, RT_MESSAGE_PROBED);
        assert_int_equal(rt_message_header(message)->sender, SERVER);
        assert_true(rt_message_header(message)->iteration == told[i].number);
        assert_int_equal(message->size - head, told[i].bytes);
        assert_true(probed.arrived_ns == link_clock_ns);
        rt_message_release(message);
        w->first = (w->first + 1) % LINK_QUEUE;
    }
    w->count = 0;
}

// Crowds, and a few; in a hurry, and so slow that turns are over: just, and just not.
static void turns_of_many(void **state)
{
    (void)state;
    static const uint64_t steps_ns[] = {0, 1000000, BW_TURN_NS - 1, BW_TURN_NS, BW_TURN_NS + 1};
    uint32_t most = 0;
    link_look_ns = 0;
    for (uint64_t seed = 0; seed < 30; seed++) {
        world *w = make_world(1);
        turns t = {0};
        answered told[3];
        rt_random random = {seed};
        const uint32_t peers = seed % 3 ? 2 + rt_random_below(&random, 6) : PEERS;
        const bw_listener listener = {&server_ops, endpoint_of(w), SERVER};
        for (uint32_t i = 0; i < 600; i++) {
            link_clock_ns += steps_ns[rt_random_below(&random, seed % 3 ? 5 : 2)];
            if (rt_random_below(&random, 5) == 0) {
                bw_responder_tick(&w->responder, &listener);
                check_told(w, told, time_out(&t, told));
                continue;
            }
            const rt_probe_kind kind = rt_random_below(&random, 3)
                                           ? RT_PROBE_BEGIN
                                           : RT_PROBE_ECHO + rt_random_below(&random, 2);
            const answered asked = {rt_peer(RT_ROLE_WORKER, rt_random_below(&random, peers)),
                                    rt_random_below(&random, 100), i};
            assert_int_equal(
                take(w, asked.peer, kind, i, rt_random_below(&random, 50), asked.bytes, NULL),
                RT_OK);
            check_told(w, told, take_turn(&t, kind, &asked, told));
            most = t.waiting > most ? t.waiting : most;
        }
        end_world(w);
    }
    assert_int_equal(most, BW_WAITING_MAX);
}

static void a_wrong_probe_is_named(void **state)
{
    (void)state;
    world *w = make_world(1);
    rt_error error = {0};
    const uint32_t most = RT_WIRE_PROBE_BYTES_MAX;
    assert_int_equal(take(w, CLIENT, (rt_probe_kind)0, 1, 0, 0, &error), RT_WIRE);
    assert_int_equal(take(w, CLIENT, (rt_probe_kind)4, 1, 0, 0, &error), RT_WIRE);
    assert_int_equal(take(w, CLIENT, RT_PROBE_ECHO, 1, 0, most + 1, &error), RT_WIRE);
    assert_int_equal(take(w, CLIENT, RT_PROBE_ECHO, 1, most + 1, 0, &error), RT_WIRE);
    assert_non_null(strstr(error.text, "worker 3"));
    assert_int_equal(w->count, 0);
    assert_int_equal(take(w, CLIENT, RT_PROBE_ECHO, 1, most, most, &error), RT_OK);
    rt_message stub = probe_message(CLIENT, RT_PROBE_ECHO, 1, 0, 0);
    const bw_listener listener = {&server_ops, endpoint_of(w), SERVER};
    rt_message_finish(&stub, 1, 7);
    assert_int_equal(bw_responder_take(&w->responder, &listener, CLIENT, &stub, &error), RT_WIRE);
    rt_message_release(&stub);
    end_world(w);
}

// ---- long links ----------------------------------------------------------------------------

static void probe(const probe_link *like, bw_result *result)
{
    rt_error error = {0};
    rt_status status;
    free(link_probe(like, 5, 0, &status, result, &error));
    if (status)
        fail_msg("%s", error.text);
}

static void probe_long(double bytes_per_s, double stream_bytes_per_s, uint32_t streams,
                       bw_result *result)
{
    const probe_link like = {.bytes_per_s = bytes_per_s,
                             .stream_bytes_per_s = stream_bytes_per_s,
                             .stream_count = streams,
                             .rtt_ns = 80000000};
    probe(&like, result);
}

// Where a window stays too small, a tenth of the link shows, or less.
static void a_long_link_is_filled(void **state)
{
    (void)state;
    bw_result result;
    probe_long(40e6, 40e6, 1, &result);
    assert_true(bw_probe_is_long(&result));
    test_close(result.up.bytes_per_s, 40e6, 0.01, 0, "up");
    test_close(result.down.bytes_per_s, 40e6, 0.01, 0, "down");
    test_close(result.rtt_s, 0.08, 0.01, 0, "round trip");
    assert_true(result.up.spread < 0.01 && result.up.trains == 1 && result.down.trains == 1);
}

// More than any stream carries: not as much.
static void what_a_long_link_is(void **state)
{
    (void)state;
    bw_result result = {.down.bytes_per_s = 2 * BW_STREAM_BYTES, .rtt_s = 0.5};
    assert_false(bw_probe_is_long(&result));
    result.up.bytes_per_s = 2 * BW_STREAM_BYTES + 2;
    assert_true(bw_probe_is_long(&result));
    result = (bw_result){.down.bytes_per_s = 2 * BW_STREAM_BYTES + 2, .rtt_s = 0.5};
    assert_true(bw_probe_is_long(&result));
}

// Nobody looks at what is behind the last stream: there is nothing.
static void streams_that_end_with_memory(void **state)
{
    (void)state;
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    uint8_t *at = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(at != MAP_FAILED);
    assert_int_equal(mprotect(at + page, page, PROT_NONE), 0);
    world *w = make_world(2);
    rt_error error = {0};
    bw_result result;
    bw_probe_config config = client_config(w);
    bw_stream_end *last = (bw_stream_end *)(void *)(at + page - sizeof *last);
    *last = w->stream;
    config.streams = last;
    assert_int_equal(bw_probe_run(&config, &result, &error), RT_OK);
    end_world(w);
    assert_int_equal(munmap(at, 2 * page), 0);
}

// Something holds up the first train again and again.
static void a_disturbed_train_is_repeated(void **state)
{
    (void)state;
    bw_result result;
    const probe_link like = {.bytes_per_s = 10e6,
                             .stream_bytes_per_s = 10e6,
                             .stream_count = 1,
                             .rtt_ns = 1000000,
                             .disturbed_ns = (uint64_t)(BW_TRAIN_S * 1e9)};
    probe(&like, &result);
    assert_int_equal(result.up.trains, 2);
    assert_int_equal(result.down.trains, 1);
    assert_false(bw_probe_is_long(&result));
    test_close(result.up.bytes_per_s, 10e6, 0.01, 0, "up");
}

// Of eight pieces of what came, the first third aside, the middle two count: here one that is slow,
// and one in which the link becomes slow.
static void the_middle_pieces_count(void **state)
{
    (void)state;
    bw_result result;
    const probe_link like = {.bytes_per_s = 100e6,
                             .stream_bytes_per_s = 100e6,
                             .stream_count = 1,
                             .rtt_ns = 1000000,
                             .slows_ns = 100000000};
    probe(&like, &result);
    assert_int_equal(result.up.trains, BW_TRAINS_MAX);
    assert_true(result.up.bytes_per_s > 25.5e6 && result.up.bytes_per_s < 50e6);
}

// Those that follow are disturbed more than the first.
static void the_steadiest_train_counts(void **state)
{
    (void)state;
    bw_result same, result;
    probe_link like = {.bytes_per_s = 100e6,
                       .stream_bytes_per_s = 100e6,
                       .stream_count = 1,
                       .rtt_ns = 1000000,
                       .slows_ns = 100000000};
    probe(&like, &same);
    like.first_is_better = true;
    probe(&like, &result);
    assert_int_equal(result.up.trains, BW_TRAINS_MAX);
    assert_true(result.up.spread < same.up.spread);
    assert_true(result.up.bytes_per_s > 48e6 && same.up.bytes_per_s < 40e6);
}

static void streams_add_up(void **state)
{
    (void)state;
    bw_result one, four;
    probe_long(8e6, 2e6, 1, &one);
    probe_long(8e6, 2e6, LINK_STREAMS, &four);
    test_close(one.up.bytes_per_s, 2e6, 0.02, 0, "one stream, up");
    test_close(one.down.bytes_per_s, 2e6, 0.02, 0, "one stream, down");
    test_close(four.up.bytes_per_s, 8e6, 0.04, 0, "four streams, up");
    test_close(four.down.bytes_per_s, 8e6, 0.04, 0, "four streams, down");
}

TEST_MAIN(TEST(both_ways_within_bounds), TEST(a_wrong_answer_is_named),
          TEST(a_turn_that_does_not_come_ends_a_probe), TEST(progress_ends_a_probe),
          TEST(turns_are_taken_in_order), TEST(turns_of_many), TEST(a_wrong_probe_is_named),
          TEST(a_long_link_is_filled), TEST(a_disturbed_train_is_repeated),
          TEST(the_middle_pieces_count), TEST(the_steadiest_train_counts), TEST(streams_add_up),
          TEST(what_a_long_link_is), TEST(streams_that_end_with_memory))
