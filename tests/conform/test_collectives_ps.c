// Dense gradients that become their sum at PS shards: spread over them, in fewer bits, by a
// transport that takes few messages, and strange ones.
#include "edge_worker/ew_lanes.h"
#include "tests/support/exchange_case.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

#include "runtime/numbers/rt_bf16.h"
#include "runtime/numbers/rt_coding.h"
#include "runtime/numbers/rt_stripes.h"
#include "tests/support/test.h"

// ---- ps: several shards ----------------------------------------------------------------------

// Spread over shards the sums are the same bits, and every shard has its share of the bytes, to a
// stripe; a vector of few stripes leaves shards without any.
static void shards_share_the_vector(void **state)
{
    (void)state;
    static const uint32_t counts[] = {1, 255, 256, 257, 1000, 65537, 300001};
    for (uint32_t shards = 1; shards <= RT_SHARDS_MAX; shards += shards < 5 ? 1 : 11) {
        for (size_t c = 0; c < RT_COUNT_OF(counts); c++) {
            rt_error error = {0};
            const uint64_t whole = counts[c] * sizeof(float);
            const ew_exchange_config config = {.overlap = c % 2, .shard_count = shards};
            exchange_group *g = exchange_group_open(RT_COLLECTIVE_PS, 3, counts[c], config);
            if (exchange_join_all(g, &error))
                fail_msg("%s", error.text);
            for (uint64_t t = 1; t <= 3; t++) {
                memset(g->bytes, 0, sizeof g->bytes);
                exchange_iterate(g, t, 5000);
                exchange_check_sums(g, t);
                for (uint32_t s = 0; s < shards; s++) {
                    const uint64_t stripe = RT_STRIPE_FLOATS * sizeof(float);
                    const uint64_t chunks = whole / shards / (5000 * sizeof(float)) + 2;
                    assert_in_range(g->bytes[s] + 3 * stripe, 3 * (whole / shards),
                                    3 * (whole / shards + 2 * stripe + 8 * chunks));
                }
            }
            exchange_group_close(g, true);
        }
    }
}

// Of the workers that take part only: others send nothing and get nothing. What bf16 has lost stays
// with who sits out, and comes with its next gradient. So it does where one takes part alone: it
// sends nothing, and its gradients, which nobody rounds, are the sum.
static void who_sits_out_keeps_its_residual(void **state)
{
    (void)state;
    enum { N = 3, COUNT = 700 };
    rt_error error = {0};
    const ew_exchange_config config = {.wire = RT_CODING_BF16, .shard_count = 2};
    exchange_group *g = exchange_group_open(RT_COLLECTIVE_PS, N, COUNT, config);
    float residual[COUNT] = {0}, sent[N][COUNT];
    static const uint64_t workers[] = {7, 5, 4, 1, 7, 2, 3};
    if (exchange_join_all(g, &error))
        fail_msg("%s", error.text);
    for (uint64_t t = 1; t <= RT_COUNT_OF(workers); t++) {
        const uint64_t now = workers[t - 1];
        const bool alone = rt_bit_count(now) == 1;
        memset(g->bytes, 0, sizeof g->bytes);
        for (uint32_t i = 0; i < N; i++) {
            g->workers[i].done = !(now >> i & 1);
            for (uint32_t k = 0; k < COUNT; k++) // the others' are exact in 16 bits
                g->workers[i].host[k] = i == 1 ? 1 + 0x1p-12f * (float)(k % 16) : (float)(i + t);
        }
        for (uint32_t k = 0; k < COUNT && now & 2 && !alone; k++) {
            uint16_t packed;
            rt_bf16_pack_feedback(&g->workers[1].host[k], &residual[k], 1, &packed);
            rt_bf16_unpack(&packed, 1, &sent[1][k]);
        }
        for (uint32_t i = 0; i < N; i++) {
            if (!(now >> i & 1))
                continue;
            ew_exchange_begin(g->workers[i].exchange, t, 100, now);
            ew_exchange_trained(g->workers[i].exchange);
        }
        if (exchange_await_sums(g, &error))
            fail_msg("%s", error.text);
        assert_int_equal(g->bytes[0] == 0, alone);
        for (uint32_t k = 0; k < COUNT && alone; k++) {
            const uint32_t i = rt_lowest_bit(now);
            const float own = i == 1 ? 1 + 0x1p-12f * (float)(k % 16) : (float)(i + t);
            assert_true(g->workers[i].host[k] == own);
        }
        for (uint32_t k = 0; k < COUNT && !alone; k++) {
            float sum = 0;
            uint16_t packed;
            for (uint64_t rest = now; rest; rest &= rest - 1)
                sum += rt_lowest_bit(rest) == 1 ? sent[1][k] : (float)(rt_lowest_bit(rest) + t);
            rt_bf16_pack(&sum, 1, &packed);
            rt_bf16_unpack(&packed, 1, &sum);
            for (uint64_t rest = now; rest; rest &= rest - 1)
                assert_true(g->workers[rt_lowest_bit(rest)].host[k] == sum);
        }
    }
    exchange_group_close(g, true);
}

// ---- ps: what comes from the wire ------------------------------------------------------------

static void refused(exchange_group *g, rt_message_type type, uint64_t t, uint32_t first,
                    uint32_t bytes)
{
    rt_message message;
    rt_error error = {0};
    bytes += type == RT_MESSAGE_DENSE_JOINED ? 0 : (uint32_t)sizeof(rt_wire_dense);
    assert_int_equal(rt_message_create(&message, type, rt_peer(RT_ROLE_PS, 0), t, first, bytes),
                     RT_OK);
    memset(rt_message_payload(&message), 0, bytes);
    assert_int_equal(ew_exchange_receive(g->workers[0].exchange, &message, &error), RT_WIRE);
    assert_non_null(strstr(error.text, "PS shard 0"));
    rt_message_release(&message);
}

static void strange_sums_are_refused(void **state)
{
    (void)state;
    rt_error error = {0};
    rt_status status = RT_OK;
    rt_message sum;
    exchange_group *g =
        exchange_group_open(RT_COLLECTIVE_PS, 2, 1000, (ew_exchange_config){.overlap = true});
    refused(g, RT_MESSAGE_DENSE_SUM, 1, 0, 400); // before the first iteration
    if (exchange_join_all(g, &error))
        fail_msg("%s", error.text);
    ew_exchange_begin(g->workers[0].exchange, 5, 100, 3);
    ew_exchange_final(g->workers[0].exchange, 500);
    assert_true(exchange_turn(g, &status, &error));
    refused(g, RT_MESSAGE_DENSE_SUM, 4, 900, 400);      // of another iteration
    refused(g, RT_MESSAGE_DENSE_SUM, 5, 901, 396);      // not a chunk
    refused(g, RT_MESSAGE_DENSE_SUM, 5, 900, 404);      // too long
    refused(g, RT_MESSAGE_DENSE_SUM, 5, 1000, 400);     // behind the end
    refused(g, RT_MESSAGE_DENSE_SUM, 5, UINT32_MAX, 4); // far behind
    refused(g, RT_MESSAGE_DENSE_SUM, 5, 400, 400);      // of what was not sent
    refused(g, RT_MESSAGE_DENSE_SUM_BF16, 5, 900, 200); // of another kind
    refused(g, RT_MESSAGE_DENSE_SUM_INT8, 5, 900, 116); // likewise
    refused(g, RT_MESSAGE_DENSE_JOINED, 0, 2, 2 * 152); // nothing is to be decided
    assert_int_equal(
        rt_message_create(&sum, RT_MESSAGE_DENSE_SUM, rt_peer(RT_ROLE_PS, 0), 5, 900, 408), RT_OK);
    memset(rt_message_payload(&sum), 0, 408);
    assert_int_equal(ew_exchange_receive(g->workers[0].exchange, &sum, &error), RT_OK);
    assert_int_equal(ew_exchange_receive(g->workers[0].exchange, &sum, &error), RT_WIRE); // twice
    rt_message_release(&sum);
    exchange_group_close(g, false);
}

// A transport that takes a few messages at a time delays the sum and does not change it.
static void ps_waits_for_the_transport(void **state)
{
    (void)state;
    enum { N = 3, COUNT = 1000 };
    float wanted[COUNT];
    for (int wire = 0; wire < RT_CODING_COUNT; wire++) {
        for (uint32_t up_max = 0; up_max <= 2; up_max++) {
            rt_error error = {0};
            const ew_exchange_config config = {.overlap = true, .wire = (rt_coding)wire};
            exchange_group *g = exchange_group_open(RT_COLLECTIVE_PS, N, COUNT, config);
            if (exchange_join_all(g, &error))
                fail_msg("%s", error.text);
            g->up_max = up_max;
            for (uint64_t t = 0; t < 3; t++)
                exchange_iterate(g, RT_CODING_WHOLE_ITERATIONS + t, 10); // int8: whole, then not
            for (uint32_t rank = 0; rank < N; rank++) {
                const float *sum = g->workers[rank].host;
                assert_false(ew_exchange_is_held_up(g->workers[rank].exchange));
                if (up_max == 0 && rank == 0)
                    memcpy(wanted, sum, sizeof wanted);
                assert_memory_equal(sum, wanted, sizeof wanted);
            }
            exchange_group_close(g, true);
        }
    }
}

// A verdict at the end of the vector need not wait for the rest of it.
static void the_last_float_is_there_first(void **state)
{
    (void)state;
    rt_error error = {0};
    rt_status status = RT_OK;
    float last;
    exchange_group *g =
        exchange_group_open(RT_COLLECTIVE_PS, 2, 1000, (ew_exchange_config){.overlap = true});
    if (exchange_join_all(g, &error))
        fail_msg("%s", error.text);
    for (uint32_t i = 0; i < 2; i++) {
        g->workers[i].host[999] = (float)i + 1;
        ew_exchange_begin(g->workers[i].exchange, 1, 100, 3);
        assert_false(ew_exchange_last(g->workers[i].exchange, &last));
        ew_exchange_final(g->workers[i].exchange, 900);
    }
    while (exchange_turn(g, &status, &error))
        ;
    for (uint32_t i = 0; i < 2; i++) {
        assert_true(ew_exchange_last(g->workers[i].exchange, &last) && last == 3);
        assert_int_equal(ew_exchange_take(g->workers[i].exchange, &error), RT_AGAIN);
    }
    exchange_group_close(g, false);
}

// What was sent before the end of the backward pass is counted, and goes in whole chunks.
static void early_bytes_are_counted(void **state)
{
    (void)state;
    rt_error error = {0};
    exchange_group *g =
        exchange_group_open(RT_COLLECTIVE_PS, 2, 1000, (ew_exchange_config){.overlap = true});
    ew_exchange *x = g->workers[0].exchange;
    static const struct {
        uint32_t from, bytes;
    } steps[] = {{950, 0}, {901, 0}, {900, 400}, {899, 400}, {650, 1200}, {1, 3600}};
    if (exchange_join_all(g, &error))
        fail_msg("%s", error.text);
    ew_exchange_begin(x, 1, 100, 3);
    for (size_t i = 0; i < RT_COUNT_OF(steps); i++) {
        uint64_t wakes = 0;
        const uint64_t before = ew_exchange_early_bytes(x);
        ew_exchange_final(x, steps[i].from);
        // One is woken when there is something to send, and only then.
        ssize_t got = read(g->workers[0].wake_fd, &wakes, sizeof wakes);
        assert_int_equal(got > 0, steps[i].bytes > before);
        assert_int_equal(ew_exchange_advance(x, &error), RT_OK);
        assert_int_equal(ew_exchange_early_bytes(x), steps[i].bytes);
    }
    ew_exchange_trained(x);
    assert_int_equal(ew_exchange_advance(x, &error), RT_OK);
    assert_int_equal(ew_exchange_early_bytes(x), 3600);
    assert_int_equal(g->workers[0].up.end, 10);
    exchange_group_close(g, false);
}

// ---- ps: bf16 --------------------------------------------------------------------------------

// All workers hold the same bits, halves of floats, close to the sum; and over many iterations the
// sums add up to the sum of all gradients, but for what the last rounding of each worker lost and
// what the PS's rounding loses: at most 2^-9 of a sum, either way.
static void bf16_sums(void **state)
{
    enum { COUNT = 5003, ITERATIONS = RT_CODING_WHOLE_ITERATIONS + 60 };
    static double sent[COUNT], wanted[COUNT], bound[COUNT];
    (void)state;
    for (uint32_t n = 2; n <= 4; n += 2) {
        rt_error error = {0};
        exchange_group *g =
            exchange_group_open(RT_COLLECTIVE_PS, n, COUNT,
                                (ew_exchange_config){.overlap = true, .wire = RT_CODING_BF16});
        if (exchange_join_all(g, &error))
            fail_msg("%s", error.text);
        memset(sent, 0, sizeof sent);
        memset(wanted, 0, sizeof wanted);
        memset(bound, 0, sizeof bound);
        for (uint64_t t = 1; t <= ITERATIONS; t++) {
            exchange_iterate(g, t, 512);
            for (uint32_t i = 0; i < COUNT; i++) {
                const float sum = g->workers[0].host[i];
                uint32_t bits;
                for (uint32_t rank = 0; rank < n; rank++) {
                    assert_memory_equal(&g->workers[rank].host[i], &sum, sizeof sum);
                    wanted[i] += exchange_gradient(rank, t, i);
                }
                memcpy(&bits, &sum, sizeof bits);
                assert_int_equal(bits & 0xffff, 0);
                sent[i] += sum;
                bound[i] += fabs(sum) * 0x1p-8;
                // Gradients are below 512, so rounding one loses at most 1, with what is carried 2.
                assert_true(fabs(sent[i] - wanted[i]) <= bound[i] + 2.0 * n);
            }
        }
        exchange_group_close(g, true);
    }
}

// ---- ps: int8 --------------------------------------------------------------------------------

// All workers hold the same bits; sums of the first iterations are those of 32 bits. Over many
// iterations the sums add up to the sum of all gradients, but for what each worker and the shards
// keep back: half a step of 1/127 of the largest there is, which carried on is at most twice that.
// The last float, the verdict, is exact.
static void int8_sums(void **state)
{
    enum { COUNT = 5003, ITERATIONS = RT_CODING_WHOLE_ITERATIONS + 60 };
    static double sent[COUNT], wanted[COUNT];
    (void)state;
    for (uint32_t i = 0; i < 4; i++) {
        rt_error error = {0};
        const uint32_t n = i % 2 ? 4 : 2;
        exchange_group *g = exchange_group_open(RT_COLLECTIVE_PS, n, COUNT,
                                                (ew_exchange_config){.overlap = true,
                                                                     .wire = RT_CODING_INT8,
                                                                     .shard_count = i < 2 ? 1 : 3});
        if (exchange_join_all(g, &error))
            fail_msg("%s", error.text);
        memset(sent, 0, sizeof sent);
        memset(wanted, 0, sizeof wanted);
        for (uint64_t t = 1; t <= ITERATIONS; t++) {
            uint32_t rounded = 0;
            exchange_iterate(g, t, 512 + 100 * (uint32_t)(t % 3));
            for (uint32_t k = 0; k < COUNT; k++) {
                const float sum = g->workers[0].host[k];
                float in_order = 0;
                for (uint32_t rank = 0; rank < n; rank++) {
                    assert_memory_equal(&g->workers[rank].host[k], &sum, sizeof sum);
                    in_order += exchange_gradient(rank, t, k);
                    wanted[k] += exchange_gradient(rank, t, k);
                }
                sent[k] += sum;
                rounded += sum != in_order;
                // Gradients are below 512: 512 / 127 x 1/2, of each worker and of the sum of n.
                assert_true(fabs(sent[k] - wanted[k]) <= (k == COUNT - 1 ? 1e-3 : 2 * 2.03 * n));
            }
            assert_int_equal(rounded > 0, t > RT_CODING_WHOLE_ITERATIONS);
        }
        exchange_group_close(g, true);
    }
}

TEST_MAIN(TEST(shards_share_the_vector), TEST(who_sits_out_keeps_its_residual),
          TEST(strange_sums_are_refused), TEST(ps_waits_for_the_transport),
          TEST(the_last_float_is_there_first), TEST(early_bytes_are_counted), TEST(bf16_sums),
          TEST(int8_sums))
