#include "ps_lite/ps_dense.h"

#include <string.h>

#include "runtime/numbers/rt_bf16.h"
#include "runtime/rt_hash.h"
#include "runtime/numbers/rt_optimizer.h"
#include "tests/support/test.h"

#define FLOATS 37

static rt_message gradient(uint32_t worker, uint64_t t, uint32_t chunk, uint32_t floats)
{
    rt_message message = {0};
    assert_int_equal(rt_message_create(&message, RT_MESSAGE_DENSE_GRAD,
                                       rt_peer(RT_ROLE_WORKER, worker), t, chunk,
                                       floats * sizeof(float)),
                     RT_OK);
    rt_wire_header *header = rt_message_header(&message);
    float *values = (float *)(void *)rt_message_payload(&message);
    rt_row_init(t * 1000 + chunk, worker, 1, floats, values);
    assert_int_equal(header->count, chunk);
    return message;
}

static void expect_sum(const rt_message *sum, uint32_t workers)
{
    const rt_wire_header *header = rt_message_header(sum);
    float want[FLOATS], one[FLOATS];
    const uint64_t id = header->iteration * 1000 + header->count;
    assert_int_equal(header->type, RT_MESSAGE_DENSE_SUM);
    assert_int_equal(header->payload_bytes, sizeof want);
    rt_row_init(id, 0, 1, FLOATS, want);
    for (uint32_t worker = 1; worker < workers; worker++) {
        rt_row_init(id, worker, 1, FLOATS, one);
        for (int i = 0; i < FLOATS; i++)
            want[i] += one[i];
    }
    assert_memory_equal(rt_message_payload(sum), want, sizeof want);
}

// Every worker sends its chunks in an order of its own, workers in random turns, several
// iterations open at once; against plain sums in worker order.
static void random_order(uint32_t workers, uint64_t seed)
{
    enum { ITERATIONS = 8, CHUNKS = 5 };
    ps_dense *dense = NULL;
    rt_random random = {seed};
    uint32_t next[RT_WORKERS_MAX] = {0}, sums = 0;
    const uint64_t bytes_max = UINT64_C(4) * FLOATS * ITERATIONS * CHUNKS * workers;
    assert_int_equal(ps_dense_create(workers, bytes_max, &dense), RT_OK);
    for (uint32_t left = workers * ITERATIONS * CHUNKS; left;) {
        const uint32_t worker = rt_random_below(&random, workers);
        const uint32_t t = next[worker] / CHUNKS + 1;
        const uint32_t chunk = (next[worker] % CHUNKS * (1 + worker % 4) + worker) % CHUNKS;
        if (t > ITERATIONS)
            continue;
        rt_message message = gradient(worker, t, chunk, FLOATS), sum;
        assert_int_equal(ps_dense_receive(dense, worker, &message, &sum, NULL), RT_OK);
        assert_null(message.data);
        next[worker]++;
        left--;
        if (!sum.data)
            continue;
        expect_sum(&sum, workers);
        rt_message_release(&sum);
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
    ps_dense *dense = NULL;
    rt_error error = {RT_OK, ""};
    assert_int_equal(ps_dense_create(3, 3 * 4 * FLOATS, &dense), RT_OK);
    for (uint32_t t = 1; t <= 50; t++) {
        for (uint32_t worker = 3; worker-- > 0;) {
            rt_message message = gradient(worker, t, 0, FLOATS), sum;
            assert_int_equal(ps_dense_receive(dense, worker, &message, &sum, &error), RT_OK);
            assert_int_equal(sum.data != NULL, worker == 0);
            rt_message_release(&sum);
        }
    }
    rt_message message, sum = {0};
    for (uint32_t chunk = 0; chunk < 3; chunk++) {
        message = gradient(0, 51, chunk, FLOATS);
        assert_int_equal(ps_dense_receive(dense, 0, &message, &sum, &error), RT_OK);
    }
    message = gradient(0, 51, 3, FLOATS);
    assert_int_equal(ps_dense_receive(dense, 0, &message, &sum, &error), RT_LIMIT);
    assert_non_null(message.data); // stays the caller's
    rt_message_release(&message);
    ps_dense_destroy(dense);
}

static void test_number_of_sums_is_bounded(void **context)
{
    (void)context;
    ps_dense *dense = NULL;
    rt_message message, sum = {0};
    assert_int_equal(ps_dense_create(2, 1 << 30, &dense), RT_OK);
    for (uint32_t chunk = 0; chunk < PS_DENSE_OPEN_MAX; chunk++) {
        message = gradient(0, 1, chunk, 1);
        assert_int_equal(ps_dense_receive(dense, 0, &message, &sum, NULL), RT_OK);
    }
    message = gradient(0, 1, PS_DENSE_OPEN_MAX, 1);
    assert_int_equal(ps_dense_receive(dense, 0, &message, &sum, NULL), RT_LIMIT);
    rt_message_release(&message);
    message = gradient(1, 1, 77, 1);
    assert_int_equal(ps_dense_receive(dense, 1, &message, &sum, NULL), RT_OK);
    assert_int_equal(rt_message_header(&sum)->count, 77);
    rt_message_release(&sum);
    message = gradient(0, 1, PS_DENSE_OPEN_MAX, 1); // room again
    assert_int_equal(ps_dense_receive(dense, 0, &message, &sum, NULL), RT_OK);
    message = gradient(1, 1, 3, RT_WIRE_DENSE_CHUNK_FLOATS_MAX + 1);
    assert_int_equal(ps_dense_receive(dense, 1, &message, &sum, NULL), RT_WIRE);
    rt_message_release(&message);
    ps_dense_destroy(dense);
}

// In 16 bits: the sum is that of the floats in worker order, rounded once at the end; both kinds do
// not mix, and what the sum itself takes counts too.
static void test_bf16_sums(void **context)
{
    (void)context;
    enum { WORKERS = 5, COUNT = 3001 };
    ps_dense *dense = NULL;
    rt_error error = {RT_OK, ""};
    rt_message message, sum = {0};
    static float values[COUNT], want[COUNT];
    static uint16_t packed[COUNT];
    // Five messages wait in turn, and one sum.
    assert_int_equal(ps_dense_create(WORKERS, COUNT * (2 * WORKERS + 4), &dense), RT_OK);
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
        assert_int_equal(rt_message_create(&message, RT_MESSAGE_DENSE_GRAD_BF16,
                                           rt_peer(RT_ROLE_WORKER, worker), 3, 70, 2 * COUNT),
                         RT_OK);
        rt_bf16_pack(values, COUNT, (uint16_t *)(void *)rt_message_payload(&message));
        assert_int_equal(ps_dense_receive(dense, worker, &message, &sum, &error), RT_OK);
        assert_int_equal(sum.data != NULL, worker == 0);
        message = gradient(worker ? worker - 1 : 0, 3, 70, FLOATS);
        if (worker)
            assert_int_equal(ps_dense_receive(dense, worker - 1, &message, &sum, &error), RT_WIRE);
        rt_message_release(&message);
    }
    const rt_wire_header *header = rt_message_header(&sum);
    assert_int_equal(header->type, RT_MESSAGE_DENSE_SUM_BF16);
    assert_true(header->count == 70 && header->payload_bytes == 2 * COUNT);
    assert_int_equal(sum.size, sizeof *header + 2 * COUNT);
    rt_bf16_pack(want, COUNT, packed);
    assert_memory_equal(rt_message_payload(&sum), packed, sizeof packed);
    rt_message_release(&sum);
    // One byte less than a sum needs.
    ps_dense_destroy(dense);
    assert_int_equal(ps_dense_create(WORKERS, 6 * FLOATS - 1, &dense), RT_OK);
    assert_int_equal(rt_message_create(&message, RT_MESSAGE_DENSE_GRAD_BF16,
                                       rt_peer(RT_ROLE_WORKER, 0), 1, 0, 2 * FLOATS),
                     RT_OK);
    assert_int_equal(ps_dense_receive(dense, 0, &message, &sum, &error), RT_LIMIT);
    rt_message_release(&message);
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
        assert_int_equal(ps_dense_receive(dense, worker, &message, &answer, &error), RT_OK);
        assert_int_equal(answer.data != NULL, i == JOINERS - 1);
        if (i == 0)
            assert_int_equal(ps_dense_receive(dense, worker, &message, &answer, &error), RT_WIRE);
        rt_message_release(&message);
    }
    rt_wire_dense_join joins[JOINERS];
    assert_int_equal(rt_message_header(&answer)->type, RT_MESSAGE_DENSE_JOINED);
    assert_int_equal(rt_message_header(&answer)->count, JOINERS);
    memcpy(joins, rt_message_payload(&answer), sizeof joins);
    for (uint32_t worker = 0; worker < JOINERS; worker++)
        assert_true(joins[worker].collectives == worker + number &&
                    joins[worker].device[0] == worker);
    rt_message_release(&answer);
}

static void test_joins(void **state)
{
    ps_dense *dense = NULL;
    rt_error error = {RT_OK, ""};
    rt_message answer = {0}, message;
    (void)state;
    assert_int_equal(ps_dense_create(JOINERS, 100, &dense), RT_OK);
    join_round(dense, 10);
    join_round(dense, 20); // what has come of it
    assert_int_equal(rt_message_create(&message, RT_MESSAGE_DENSE_JOIN, rt_peer(RT_ROLE_WORKER, 0),
                                       0, 1, sizeof(rt_wire_dense_join)),
                     RT_OK);
    assert_int_equal(ps_dense_receive(dense, 0, &message, &answer, &error), RT_WIRE);
    rt_message_release(&message);
    ps_dense_destroy(dense);
}

TEST_MAIN(TEST(test_random_orders_give_sums_in_worker_order), TEST(test_bytes_are_given_back),
          TEST(test_number_of_sums_is_bounded), TEST(test_bf16_sums), TEST(test_joins))
