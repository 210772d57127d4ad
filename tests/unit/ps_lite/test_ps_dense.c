#include "ps_lite/ps_dense.h"

#include <string.h>

#include "runtime/numbers/rt_bf16.h"
#include "runtime/numbers/rt_int8.h"
#include "runtime/rt_hash.h"
#include "runtime/numbers/rt_optimizer.h"
#include "tests/support/test.h"

#define FLOATS 37

static void *floats_of(const rt_message *message)
{
    return rt_message_payload(message) + sizeof(rt_wire_dense);
}

static rt_message chunk_of(rt_message_type type, uint32_t worker, uint64_t workers, uint64_t t,
                           uint32_t chunk, size_t bytes)
{
    rt_message message = {0};
    const rt_wire_dense head = {workers};
    assert_int_equal(rt_message_create(&message, type, rt_peer(RT_ROLE_WORKER, worker), t, chunk,
                                       sizeof head + bytes),
                     RT_OK);
    memcpy(rt_message_payload(&message), &head, sizeof head);
    assert_int_equal(rt_message_header(&message)->count, chunk);
    return message;
}

static rt_message gradient(uint32_t worker, uint64_t workers, uint64_t t, uint32_t chunk,
                           uint32_t floats)
{
    rt_message message =
        chunk_of(RT_MESSAGE_DENSE_GRAD, worker, workers, t, chunk, floats * sizeof(float));
    rt_row_init(t * 1000 + chunk, worker, 1, floats, floats_of(&message));
    return message;
}

static ps_dense *dense_of(uint32_t workers, uint64_t bytes_max)
{
    ps_dense *dense = NULL;
    const ps_dense_config config = {.worker_count = workers, .bytes_max = bytes_max};
    assert_int_equal(ps_dense_create(&config, &dense), RT_OK);
    return dense;
}

static rt_status receive(ps_dense *dense, uint32_t worker, rt_message *message, rt_message *sum,
                         rt_error *error)
{
    ps_dense_answer answer;
    rt_status status = ps_dense_receive(dense, worker, message, &answer, error);
    *sum = answer.message;
    assert_int_equal(answer.message.data != NULL, answer.workers != 0);
    return status;
}

static void expect_sum(const rt_message *sum, uint64_t workers)
{
    const rt_wire_header *header = rt_message_header(sum);
    float want[FLOATS], one[FLOATS];
    const uint64_t id = header->iteration * 1000 + header->count;
    assert_int_equal(header->type, RT_MESSAGE_DENSE_SUM);
    assert_int_equal(header->payload_bytes, sizeof(rt_wire_dense) + sizeof want);
    rt_row_init(id, rt_lowest_bit(workers), 1, FLOATS, want);
    for (uint64_t rest = workers & (workers - 1); rest; rest &= rest - 1) {
        rt_row_init(id, rt_lowest_bit(rest), 1, FLOATS, one);
        for (int i = 0; i < FLOATS; i++)
            want[i] += one[i];
    }
    assert_memory_equal(floats_of(sum), want, sizeof want);
}

// Some workers, other ones in every iteration; never none.
static uint64_t takes_part(uint32_t workers, uint64_t seed, uint64_t t)
{
    const uint64_t some = rt_mix(seed * 100 + t) & rt_bits_below(workers);
    return seed % 2 || !some ? rt_bits_below(workers) : some;
}

// Every worker sends its chunks in an order of its own, workers in random turns, several
// iterations open at once; against plain sums in worker order.
static void random_order(uint32_t workers, uint64_t seed)
{
    enum { ITERATIONS = 8, CHUNKS = 5 };
    rt_random random = {seed};
    uint32_t next[RT_WORKERS_MAX] = {0}, sums = 0;
    const uint64_t chunk_bytes = sizeof(rt_wire_dense) + UINT64_C(4) * FLOATS;
    ps_dense *dense = dense_of(workers, chunk_bytes * ITERATIONS * CHUNKS * workers);
    for (uint32_t left = workers * ITERATIONS * CHUNKS; left;) {
        const uint32_t worker = rt_random_below(&random, workers);
        const uint32_t t = next[worker] / CHUNKS + 1;
        const uint32_t chunk = (next[worker] % CHUNKS * (1 + worker % 4) + worker) % CHUNKS;
        const uint64_t who = takes_part(workers, seed, t);
        if (t > ITERATIONS)
            continue;
        next[worker]++;
        left--;
        if (!(who >> worker & 1))
            continue;
        rt_message message = gradient(worker, who, t, chunk, FLOATS);
        ps_dense_answer answer;
        assert_int_equal(ps_dense_receive(dense, worker, &message, &answer, NULL), RT_OK);
        assert_null(message.data);
        if (!answer.message.data)
            continue;
        assert_int_equal(answer.workers, who);
        expect_sum(&answer.message, who);
        rt_message_release(&answer.message);
        sums++;
    }
    assert_int_equal(sums, ITERATIONS * CHUNKS);
    assert_int_equal(ps_dense_open(dense), 0);
    ps_dense_destroy(dense);
}

static void test_random_orders_give_sums_in_worker_order(void **context)
{
    (void)context;
    for (uint64_t seed = 1; seed <= 40; seed++)
        random_order(1 + (uint32_t)seed % 9, seed);
    random_order(RT_WORKERS_MAX, 1);
}

// What is complete gives its bytes back: a bound for one sum lasts for any number of them.
static void test_bytes_are_given_back(void **context)
{
    (void)context;
    rt_error error = {RT_OK, ""};
    ps_dense *dense = dense_of(3, 3 * (sizeof(rt_wire_dense) + 4 * FLOATS));
    for (uint32_t t = 1; t <= 50; t++) {
        for (uint32_t worker = 3; worker-- > 0;) {
            rt_message message = gradient(worker, 7, t, 0, FLOATS), sum;
            assert_int_equal(receive(dense, worker, &message, &sum, &error), RT_OK);
            assert_int_equal(sum.data != NULL, worker == 0);
            rt_message_release(&sum);
        }
    }
    rt_message message, sum = {0};
    for (uint32_t chunk = 0; chunk < 3; chunk++) {
        message = gradient(0, 7, 51, chunk, FLOATS);
        assert_int_equal(receive(dense, 0, &message, &sum, &error), RT_OK);
    }
    message = gradient(0, 7, 51, 3, FLOATS);
    assert_int_equal(receive(dense, 0, &message, &sum, &error), RT_LIMIT);
    assert_non_null(message.data); // stays the caller's
    rt_message_release(&message);
    ps_dense_destroy(dense);
}

static void test_number_of_sums_is_bounded(void **context)
{
    (void)context;
    rt_message message, sum = {0};
    ps_dense *dense = dense_of(2, 1 << 30);
    for (uint32_t chunk = 0; chunk < PS_DENSE_OPEN_MAX; chunk++) {
        message = gradient(0, 3, 1, chunk, 1);
        assert_int_equal(receive(dense, 0, &message, &sum, NULL), RT_OK);
    }
    message = gradient(0, 3, 1, PS_DENSE_OPEN_MAX, 1);
    assert_int_equal(receive(dense, 0, &message, &sum, NULL), RT_LIMIT);
    rt_message_release(&message);
    message = gradient(1, 3, 1, 77, 1);
    assert_int_equal(receive(dense, 1, &message, &sum, NULL), RT_OK);
    assert_int_equal(rt_message_header(&sum)->count, 77);
    rt_message_release(&sum);
    message = gradient(0, 3, 1, PS_DENSE_OPEN_MAX, 1); // room again
    assert_int_equal(receive(dense, 0, &message, &sum, NULL), RT_OK);
    message = gradient(1, 3, 1, 3, RT_WIRE_DENSE_CHUNK_FLOATS_MAX + 1);
    assert_int_equal(receive(dense, 1, &message, &sum, NULL), RT_WIRE);
    rt_message_release(&message);
    ps_dense_destroy(dense);
}

// In 16 bits: the sum is that of the floats in worker order, rounded once at the end; both kinds do
// not mix, and what the sum itself takes counts too.
static void test_bf16_sums(void **context)
{
    (void)context;
    enum { WORKERS = 5, COUNT = 3001, HEAD = sizeof(rt_wire_dense) };
    rt_error error = {RT_OK, ""};
    rt_message message, sum = {0};
    static float values[COUNT], want[COUNT];
    static uint16_t packed[COUNT];
    // Five messages wait in turn, and one sum.
    ps_dense *dense = dense_of(WORKERS, COUNT * (2 * WORKERS + 4) + (WORKERS + 1) * HEAD);
    memset(want, 0, sizeof want);
    for (uint32_t worker = 0; worker < WORKERS; worker++) {
        rt_row_init(worker, 9, 1, COUNT, values);
        rt_bf16_pack(values, COUNT, packed);
        rt_bf16_unpack(packed, COUNT, values);
        for (uint32_t i = 0; i < COUNT; i++)
            want[i] = worker ? want[i] + values[i] : values[i];
    }
    for (uint32_t worker = WORKERS; worker-- > 0;) {
        rt_row_init(worker, 9, 1, COUNT, values);
        message = chunk_of(RT_MESSAGE_DENSE_GRAD_BF16, worker, 31, 3, 70, 2 * COUNT);
        rt_bf16_pack(values, COUNT, floats_of(&message));
        assert_int_equal(receive(dense, worker, &message, &sum, &error), RT_OK);
        assert_int_equal(sum.data != NULL, worker == 0);
        message = gradient(worker ? worker - 1 : 0, 31, 3, 70, FLOATS);
        rt_message none;
        if (worker)
            assert_int_equal(receive(dense, worker - 1, &message, &none, &error), RT_WIRE);
        rt_message_release(&message);
    }
    const rt_wire_header *header = rt_message_header(&sum);
    assert_int_equal(header->type, RT_MESSAGE_DENSE_SUM_BF16);
    assert_true(header->count == 70 && header->payload_bytes == HEAD + 2 * COUNT);
    assert_int_equal(sum.size, sizeof *header + HEAD + 2 * COUNT);
    rt_bf16_pack(want, COUNT, packed);
    assert_memory_equal(floats_of(&sum), packed, sizeof packed);
    rt_message_release(&sum);
    // One byte less than a sum needs.
    ps_dense_destroy(dense);
    dense = dense_of(WORKERS, 6 * FLOATS + 2 * HEAD - 1);
    message = chunk_of(RT_MESSAGE_DENSE_GRAD_BF16, 0, 31, 1, 0, 2 * FLOATS);
    assert_int_equal(receive(dense, 0, &message, &sum, &error), RT_LIMIT);
    rt_message_release(&message);
    ps_dense_destroy(dense);
}

// A gradient in 8 bits with its last `whole` floats as they are.
static rt_message blocks_message(uint32_t worker, uint64_t t, uint32_t first, const float *values,
                                 uint32_t count, uint32_t whole)
{
    const uint32_t rounded = count - whole;
    const rt_wire_dense_int8 head = {31, count, whole};
    rt_message message;
    assert_int_equal(rt_message_create(&message, RT_MESSAGE_DENSE_GRAD_INT8,
                                       rt_peer(RT_ROLE_WORKER, worker), t, first,
                                       sizeof head + whole * 4 + rt_int8_bytes(rounded)),
                     RT_OK);
    uint8_t *payload = rt_message_payload(&message);
    memcpy(payload, &head, sizeof head);
    memcpy(payload + sizeof head, values + rounded, whole * 4);
    rt_int8_pack_blocks(values, NULL, rounded, payload + sizeof head + whole * 4);
    return message;
}

// In 8 bits: the sum of what came, in worker order, and what rounding the sums of this place lost
// before, rounded; the whole floats are added as they are. Over iterations nothing gets lost.
static void test_int8_sums(void **context)
{
    (void)context;
    enum { WORKERS = 5, COUNT = 3001, WHOLE = 1, ROUNDED = COUNT - WHOLE, FIRST = 70 };
    rt_error error = {RT_OK, ""};
    static float values[COUNT], back[COUNT], want[COUNT], lost[COUNT];
    static uint32_t packed[COUNT];
    ps_dense *dense = dense_of(WORKERS, 1 << 20);
    memset(lost, 0, sizeof lost);
    for (uint64_t t = 1; t <= 4; t++) {
        rt_message sum = {0};
        for (uint32_t worker = 0; worker < WORKERS; worker++) {
            rt_row_init(worker + 100 * t, 9, 1, COUNT, values);
            rt_int8_pack_blocks(values, NULL, ROUNDED, packed);
            rt_int8_unpack_blocks(packed, ROUNDED, back);
            back[ROUNDED] = values[ROUNDED];
            for (uint32_t i = 0; i < COUNT; i++)
                want[i] = worker ? want[i] + back[i] : back[i];
        }
        for (uint32_t worker = WORKERS; worker-- > 0;) {
            rt_row_init(worker + 100 * t, 9, 1, COUNT, values);
            rt_message message = blocks_message(worker, t, FIRST, values, COUNT, WHOLE);
            assert_int_equal(receive(dense, worker, &message, &sum, &error), RT_OK);
            assert_int_equal(sum.data != NULL, worker == 0);
        }
        const rt_wire_header *header = rt_message_header(&sum);
        const uint8_t *payload = rt_message_payload(&sum);
        rt_wire_dense_int8 head;
        memcpy(&head, payload, sizeof head);
        assert_int_equal(header->type, RT_MESSAGE_DENSE_SUM_INT8);
        assert_true(header->count == FIRST && header->iteration == t);
        assert_true(head.workers == 31 && head.floats == COUNT && head.whole == WHOLE);
        assert_int_equal(header->payload_bytes, sizeof head + 4 + rt_int8_bytes(ROUNDED));
        assert_memory_equal(payload + sizeof head, &want[ROUNDED], 4);
        rt_int8_pack_blocks(want, lost, ROUNDED, packed);
        assert_memory_equal(payload + sizeof head + 4, packed, rt_int8_bytes(ROUNDED));
        rt_message_release(&sum);
    }
    ps_dense_destroy(dense);
}

// Payloads that say of themselves what cannot be; places beyond what a shard keeps.
static void test_strange_int8(void **context)
{
    (void)context;
    static float values[400];
    rt_error error = {RT_OK, ""};
    rt_message sum = {0};
    ps_dense *dense = dense_of(5, 1 << 20);
    for (uint32_t i = 0; i < 5; i++) {
        rt_message message = blocks_message(0, 1, i == 3 ? 1 << 18 : 0, values, 400, 1);
        rt_wire_dense_int8 head = {31, 400, 1};
        head.floats += i == 0;
        head.whole = i == 1 ? 401 : head.whole;
        head.whole += i == 2;
        memcpy(rt_message_payload(&message), &head, sizeof head);
        if (i == 4)
            rt_message_finish(&message, 0, 12);
        assert_int_equal(receive(dense, 0, &message, &sum, &error), i == 3 ? RT_LIMIT : RT_WIRE);
        rt_message_release(&message);
    }
    rt_message one = blocks_message(0, 1, 0, values, 400, 1);
    rt_message other = blocks_message(1, 1, 0, values, 400, 0);
    assert_int_equal(receive(dense, 0, &one, &sum, &error), RT_OK);
    assert_int_equal(receive(dense, 1, &other, &sum, &error), RT_WIRE); // another verdict
    rt_message_release(&other);
    ps_dense_destroy(dense);
}

// Messages of sizes at the edge of what may be: of one float, of as many as a message has, of none
// that are rounded; and just beyond.
static void test_sizes_at_the_edge(void **context)
{
    (void)context;
    const uint32_t most = RT_WIRE_DENSE_CHUNK_FLOATS_MAX;
    float *values = rt_alloc(most + 1, sizeof *values);
    const struct {
        uint32_t floats, whole;
        rt_status status;
    } cases[] = {{0, 0, RT_WIRE},        {1, 0, RT_OK},
                 {1, 1, RT_OK},          {most, 0, RT_OK},
                 {most, 7, RT_OK},       {most, most, RT_OK},
                 {most + 1, 0, RT_WIRE}, {most + 1, most + 1, RT_WIRE}};
    for (size_t i = 0; i < RT_COUNT_OF(cases); i++) {
        ps_dense *dense = dense_of(5, UINT64_C(1) << 30);
        rt_error error = {0};
        rt_message sum = {0};
        const uint32_t floats = cases[i].floats;
        rt_message message = blocks_message(0, 1, 0, values, floats, cases[i].whole);
        assert_int_equal(receive(dense, 0, &message, &sum, &error), cases[i].status);
        rt_message_release(&message);
        message = gradient(1, 31, 1, 9, floats);
        assert_int_equal(receive(dense, 1, &message, &sum, &error), cases[i].status);
        rt_message_release(&message);
        message = chunk_of(RT_MESSAGE_DENSE_GRAD_BF16, 2, 31, 1, 10, 2 * floats);
        assert_int_equal(receive(dense, 2, &message, &sum, &error), cases[i].status);
        rt_message_release(&message);
        ps_dense_destroy(dense);
    }
    rt_free(values);
}

// What rounding loses of a part is kept in as many floats as the part reaches to: within the bound,
// to the float.
static void test_what_is_lost_is_bounded(void **context)
{
    (void)context;
    enum { COUNT = 100, PLACES = 2000 }; // places of floats that the bound allows
    static float values[COUNT];
    for (uint32_t more = 0; more < 2; more++) {
        ps_dense *dense = dense_of(5, PLACES * sizeof(float));
        rt_error error = {0};
        rt_message sum = {0};
        rt_message message = blocks_message(0, 1, PLACES - COUNT + more, values, COUNT, 1);
        assert_int_equal(receive(dense, 0, &message, &sum, &error), more ? RT_LIMIT : RT_OK);
        rt_message_release(&message);
        ps_dense_destroy(dense);
    }
}

// Iterations do not go back, for each worker by itself; chunks of one may come in any order.
static void test_iterations_do_not_go_back(void **context)
{
    (void)context;
    ps_dense *dense = dense_of(2, 1 << 20);
    rt_error error = {0};
    rt_message sum = {0};
    static const struct {
        uint32_t worker, t, chunk;
        rt_status status;
    } cases[] = {{0, 5, 3, RT_OK}, {0, 5, 1, RT_OK},   {1, 4, 1, RT_OK}, {0, 4, 1, RT_WIRE},
                 {0, 6, 1, RT_OK}, {0, 5, 2, RT_WIRE}, {1, 5, 7, RT_OK}};
    for (size_t i = 0; i < RT_COUNT_OF(cases); i++) {
        rt_message message = gradient(cases[i].worker, 3, cases[i].t, cases[i].chunk, FLOATS);
        assert_int_equal(receive(dense, cases[i].worker, &message, &sum, &error), cases[i].status);
        rt_message_release(&message);
    }
    assert_int_equal(ps_dense_open(dense), 5);
    ps_dense_destroy(dense);
}

// The answer is for all, once, and has every worker's record in its place.
enum { JOINERS = 3 };

// All workers say what they can do; the last one's completes the answer.
static void join_round(ps_dense *dense, uint32_t number)
{
    rt_error error = {RT_OK, ""};
    rt_message answer = {0};
    for (uint32_t i = 0; i < JOINERS; i++) {
        const uint32_t worker = (i + 1) % JOINERS;
        const rt_wire_dense_join join = {.collectives = worker + number,
                                         .device = {(uint8_t)worker}};
        rt_message message;
        assert_int_equal(rt_message_create(&message, RT_MESSAGE_DENSE_JOIN,
                                           rt_peer(RT_ROLE_WORKER, worker), 0, 1, sizeof join),
                         RT_OK);
        memcpy(rt_message_payload(&message), &join, sizeof join);
        assert_int_equal(receive(dense, worker, &message, &answer, &error), RT_OK);
        assert_int_equal(answer.data != NULL, i == JOINERS - 1);
        if (i == 0)
            assert_int_equal(receive(dense, worker, &message, &answer, &error), RT_WIRE);
        rt_message_release(&message);
    }
    rt_wire_dense_join joins[JOINERS];
    assert_int_equal(rt_message_header(&answer)->type, RT_MESSAGE_DENSE_JOINED);
    assert_int_equal(rt_message_header(&answer)->count, JOINERS);
    assert_int_equal(rt_message_header(&answer)->iteration, 0);
    memcpy(joins, rt_message_payload(&answer), sizeof joins);
    for (uint32_t worker = 0; worker < JOINERS; worker++)
        assert_true(joins[worker].collectives == worker + number &&
                    joins[worker].device[0] == worker);
    rt_message_release(&answer);
}

static void test_joins(void **state)
{
    rt_error error = {RT_OK, ""};
    rt_message answer = {0}, message;
    (void)state;
    ps_dense *dense = dense_of(JOINERS, 100);
    join_round(dense, 10);
    join_round(dense, 20); // what has come of it
    assert_int_equal(rt_message_create(&message, RT_MESSAGE_DENSE_JOIN, rt_peer(RT_ROLE_WORKER, 0),
                                       0, 1, sizeof(rt_wire_dense_join)),
                     RT_OK);
    assert_int_equal(receive(dense, 0, &message, &answer, &error), RT_WIRE);
    rt_message_release(&message);
    ps_dense_destroy(dense);
}

TEST_MAIN(TEST(test_random_orders_give_sums_in_worker_order), TEST(test_bytes_are_given_back),
          TEST(test_number_of_sums_is_bounded), TEST(test_bf16_sums), TEST(test_int8_sums),
          TEST(test_strange_int8), TEST(test_sizes_at_the_edge), TEST(test_what_is_lost_is_bounded),
          TEST(test_iterations_do_not_go_back), TEST(test_joins))
