// Every way in which dense gradients become their sum (ew_exchange), with the same cases: messages
// to a PS shard, NCCL (what stands in for it, on the kernels-on-the-CPU plug-in), and Open MPI,
// whose cases run in a program of their own under mpirun: this one, started once more.
#include "tests/support/exchange_case.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/numbers/rt_bf16.h"
#include "runtime/numbers/rt_stripes.h"
#include "runtime/rt_plugin.h"
#include "tests/support/devices.h"
#include "tests/support/process_case.h"
#include "tests/support/test.h"

// ---- an iteration ----------------------------------------------------------------------------

static float gradient(uint32_t rank, uint64_t t, uint32_t i)
{
    uint64_t bits = rt_mix((t * 64 + rank) * UINT64_C(0x100000001) + i);
    return ((float)(bits & 0xfffff) - 524288) * 0x1p-10f;
}

static void copy_values(exchange_worker *w, ew_copy kind, uint32_t first, uint32_t count)
{
    rt_error error = {0};
    const ew_device *device = &w->of->device;
    if (!device->ops || w->values == w->host)
        return;
    count -= first + count == w->of->count; // the last float stays on the host
    float *to = w->values + first, *host = w->host + first;
    device->ops->copy(device->state, kind, kind == EW_COPY_IN ? to : host,
                      kind == EW_COPY_IN ? host : to, count * sizeof(float));
    if (device->ops->finish(device->state, &error))
        fail_msg("%s", error.text);
}

// The backward pass: gradients become final in pieces, while sums come back.
static void compute(exchange_worker *w, uint64_t t)
{
    exchange_group *g = w->of;
    rt_status status = RT_OK;
    rt_error error = {0};
    for (uint32_t end = g->count; end > 0;) {
        uint32_t piece = 1 + rt_random_below(&g->random, g->count), first = 0;
        first = piece >= end ? 0 : end - piece;
        for (uint32_t i = first; i < end; i++)
            w->host[i] = gradient(w->rank, t, i);
        copy_values(w, EW_COPY_IN, first, end - first);
        ew_exchange_final(w->exchange, first);
        end = first;
        (void)exchange_turn(g, &status, &error);
        if (status)
            fail_msg("%s", error.text);
    }
    ew_exchange_trained(w->exchange);
}

static bool take_all(exchange_group *g, rt_status *status_p, rt_error *error)
{
    bool done = true;
    for (uint32_t i = 0; i < g->n && !*status_p; i++) {
        exchange_worker *w = &g->workers[i];
        if (w->done || !w->exchange)
            continue;
        rt_status status = ew_exchange_take(w->exchange, error);
        w->done = !status;
        done &= w->done;
        if (status != RT_AGAIN)
            *status_p = status;
    }
    return done;
}

// Until all have the sum, or one says that there will be none.
static rt_status await_sums(exchange_group *g, rt_error *error)
{
    rt_status status = RT_OK;
    while (!status && !take_all(g, &status, error) && !status)
        if (!exchange_turn(g, &status, error) && !status)
            exchange_await_news(g);
    return status;
}

static void iterate(exchange_group *g, uint64_t t, uint32_t chunk_floats)
{
    rt_error error = {0};
    for (uint32_t i = 0; i < g->n; i++) {
        g->workers[i].done = false;
        assert_false(ew_exchange_busy(g->workers[i].exchange));
        ew_exchange_begin(g->workers[i].exchange, t, chunk_floats, rt_bits_below(g->n));
    }
    for (uint32_t i = 0; i < g->n; i++)
        compute(&g->workers[i], t);
    if (await_sums(g, &error))
        fail_msg("%s", error.text);
    for (uint32_t i = 0; i < g->n; i++) {
        float last;
        copy_values(&g->workers[i], EW_COPY_OUT, 0, g->count);
        assert_true(ew_exchange_last(g->workers[i].exchange, &last));
        assert_true(last == g->workers[i].host[g->count - 1]);
    }
}

// Bit for bit where sums are in worker order, which the one that stands in for NCCL keeps too.
static void check_sums(const exchange_group *g, uint64_t t)
{
    for (uint32_t i = 0; i < g->count; i++) {
        float sum = gradient(0, t, i);
        for (uint32_t rank = 1; rank < g->n; rank++)
            sum += gradient(rank, t, i);
        for (uint32_t rank = 0; rank < g->n; rank++)
            if (memcmp(&g->workers[rank].host[i], &sum, sizeof sum) != 0)
                fail_msg("worker %u of %u, iteration %" PRIu64
                         ", float %u of %u: %.9g, expected %.9g",
                         rank, g->n, t, i, g->count, g->workers[rank].host[i], sum);
    }
}

static void sums(rt_collective kind, bool overlap)
{
    static const uint32_t counts[] = {1, 2, 63, 1000, 65536, 65537, 300001};
    for (uint32_t n = 1; n <= EXCHANGE_WORKERS_MAX; n++) {
        for (size_t c = 0; c < RT_COUNT_OF(counts); c++) {
            rt_error error = {0};
            exchange_group *g =
                exchange_group_open(kind, n, counts[c], (ew_exchange_config){.overlap = overlap});
            if (exchange_join_all(g, &error))
                fail_msg("%s", error.text);
            for (uint64_t t = 1; t <= 3; t++) {
                iterate(g, t, t == 2 ? 100 : 4096); // the links may change
                check_sums(g, t);
            }
            exchange_group_close(g, true);
        }
    }
}

static void ps_sums(void **state)
{
    (void)state;
    sums(RT_COLLECTIVE_PS, true);
    sums(RT_COLLECTIVE_PS, false);
}

static void nccl_sums(void **state)
{
    (void)state;
    sums(RT_COLLECTIVE_NCCL, true);
    sums(RT_COLLECTIVE_NCCL, false);
}

// ---- the choice ------------------------------------------------------------------------------

static void auto_takes_nccl_where_all_can(void **state)
{
    (void)state;
    for (uint32_t distinct = 0; distinct < 2; distinct++) {
        rt_error error = {0};
        exchange_group *g = exchange_group_open(
            RT_COLLECTIVE_AUTO, 3, 10,
            (ew_exchange_config){.nccl = exchange_nccl(distinct), .overlap = true});
        if (exchange_join_all(g, &error))
            fail_msg("%s", error.text);
        for (uint32_t i = 0; i < 3; i++) {
            assert_string_equal(ew_exchange_name(g->workers[i].exchange), distinct ? "nccl" : "ps");
            assert_int_equal(ew_exchange_on_device(g->workers[i].exchange), distinct);
        }
        exchange_group_close(g, true);
    }
}

static void all_have(const exchange_group *g, const char *name)
{
    for (uint32_t i = 0; i < g->n; i++)
        assert_string_equal(ew_exchange_name(g->workers[i].exchange), name);
}

// Another version of NCCL, or messages that nobody is to read: the PS, and nothing else is tried.
static void auto_takes_ps_where_nccl_would_not_do(void **state)
{
    (void)state;
    for (uint32_t keyed = 0; keyed < 2; keyed++) {
        rt_error error = {0};
        exchange_group *g = exchange_group_open(
            RT_COLLECTIVE_AUTO, 3, 10,
            (ew_exchange_config){.nccl = keyed ? exchange_nccl(true) : exchange_nccl_of_versions(),
                                 .keyed = keyed,
                                 .overlap = true});
        if (exchange_join_all(g, &error))
            fail_msg("%s", error.text);
        all_have(g, "ps");
        exchange_group_close(g, true);
    }
}

// All could, but one does not get there: the others give up after a while, and all use the PS.
static void auto_falls_back_where_they_do_not_meet(void **state)
{
    void (*fail_rank)(int);
    (void)state;
    test_plugin_function("cuda_cpu_nccl_fail", &fail_rank);
    for (int rank = 0; rank < 3; rank++) {
        rt_error error = {0};
        exchange_group *g = exchange_group_open(
            RT_COLLECTIVE_AUTO, 3, 1000,
            (ew_exchange_config){.nccl = exchange_nccl(true), .overlap = true, .timeout_s = 0.3});
        fail_rank(rank);
        if (exchange_join_all(g, &error))
            fail_msg("%s", error.text);
        fail_rank(-1);
        all_have(g, "ps");
        for (uint32_t i = 0; i < 3; i++)
            assert_false(ew_exchange_on_device(g->workers[i].exchange));
        exchange_group_close(g, true);
    }
}

// One that computes on the CPU among others with a GPU: all of them use the PS.
static void auto_takes_ps_where_one_cannot(void **state)
{
    (void)state;
    rt_error error = {0};
    exchange_group *g =
        exchange_group_open(RT_COLLECTIVE_AUTO, 3, 1000,
                            (ew_exchange_config){.nccl = exchange_nccl(true), .overlap = true});
    exchange_worker_end(&g->workers[1], false);
    close(g->workers[1].wake_fd);
    rt_free(g->workers[1].host);
    const ew_exchange_config plain = {
        .collective = RT_COLLECTIVE_AUTO, .overlap = true, .timeout_s = 50};
    if (exchange_worker_open(g, 1, plain, &error) || exchange_join_all(g, &error))
        fail_msg("%s", error.text);
    for (uint32_t i = 0; i < 3; i++)
        assert_string_equal(ew_exchange_name(g->workers[i].exchange), "ps");
    exchange_group_close(g, true);
}

static void nccl_must_be_everywhere(void **state)
{
    (void)state;
    rt_error error = {0};
    exchange_group *g = exchange_group_open(RT_COLLECTIVE_AUTO, 1, 10, (ew_exchange_config){0});
    ew_exchange_config config = {.collective = RT_COLLECTIVE_NCCL, .timeout_s = 50};
    exchange_worker_end(&g->workers[0], false);
    close(g->workers[0].wake_fd);
    rt_free(g->workers[0].host);
    assert_int_equal(exchange_worker_open(g, 0, config, &error),
                     RT_UNSUPPORTED); // no plug-in, no GPU
    assert_non_null(strstr(error.text, "network.collective \"nccl\": "));
    exchange_group_close(g, false);
    // Two on one GPU.
    g = exchange_group_open(RT_COLLECTIVE_AUTO, 2, 10, (ew_exchange_config){0});
    for (uint32_t i = 0; i < 2; i++) {
        exchange_worker_end(&g->workers[i], false);
        close(g->workers[i].wake_fd);
        rt_free(g->workers[i].host);
        config.nccl = exchange_nccl(false);
        if (exchange_worker_open(g, i, config, &error))
            fail_msg("%s", error.text);
    }
    assert_int_equal(exchange_join_all(g, &error), RT_UNSUPPORTED);
    assert_string_equal(error.text, "network.collective \"nccl\": worker 1 cannot take part: it "
                                    "has no NCCL, another version of it, or no GPU of its own");
    exchange_group_close(g, false);
}

static void nobody_waits_for_ever_to_join(void **state)
{
    (void)state;
    rt_error error = {0};
    exchange_group *g = exchange_group_open(
        RT_COLLECTIVE_NCCL, 3, 10, (ew_exchange_config){.overlap = true, .timeout_s = 0.1});
    exchange_worker_end(&g->workers[2], false);
    assert_int_equal(exchange_join_all(g, &error), RT_TIMEOUT);
    assert_non_null(strstr(error.text, "not all workers joined"));
    exchange_group_close(g, false);
}

// ---- a worker dies ---------------------------------------------------------------------------

static void begin_without_the_last(exchange_group *g)
{
    rt_error error = {0};
    if (exchange_join_all(g, &error))
        fail_msg("%s", error.text);
    iterate(g, 1, 4096);
    for (uint32_t i = 0; i < g->n; i++) {
        g->workers[i].done = false;
        ew_exchange_begin(g->workers[i].exchange, 2, 4096, rt_bits_below(g->n));
    }
    exchange_worker_end(&g->workers[g->n - 1], false);
    for (uint32_t i = 0; i + 1 < g->n; i++)
        compute(&g->workers[i], 2);
}

// The PS waits, and that a worker is gone is noticed by its connection; ending does not wait.
static void ps_without_a_worker(void **state)
{
    (void)state;
    rt_status status = RT_OK;
    rt_error error = {0};
    exchange_group *g =
        exchange_group_open(RT_COLLECTIVE_PS, 3, 10000, (ew_exchange_config){.overlap = true});
    begin_without_the_last(g);
    while (exchange_turn(g, &status, &error))
        ;
    assert_int_equal(status, RT_OK);
    assert_false(take_all(g, &status, &error));
    assert_true(ew_exchange_busy(g->workers[0].exchange));
    exchange_group_close(g, false);
}

static void nccl_without_a_worker(void **state)
{
    (void)state;
    for (uint32_t limited = 0; limited < 2; limited++) {
        rt_error error = {0};
        exchange_group *g = exchange_group_open(
            RT_COLLECTIVE_NCCL, 3, 10000,
            (ew_exchange_config){.overlap = true, .timeout_s = limited ? 0.5 : 50});
        begin_without_the_last(g);
        if (limited) {
            assert_int_equal(await_sums(g, &error), RT_TIMEOUT);
            assert_non_null(strstr(error.text, "NCCL: all-reduce: not all workers within 0.5 s"));
        }
        exchange_group_close(g, false); // while the others wait
    }
}

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
                iterate(g, t, 5000);
                check_sums(g, t);
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
// with who sits out, and comes with its next gradient.
static void who_sits_out_keeps_its_residual(void **state)
{
    (void)state;
    enum { N = 3, COUNT = 700 };
    rt_error error = {0};
    const ew_exchange_config config = {.wire = RT_CODING_BF16, .shard_count = 2};
    exchange_group *g = exchange_group_open(RT_COLLECTIVE_PS, N, COUNT, config);
    float residual[COUNT] = {0}, sent[N][COUNT];
    static const uint64_t workers[] = {7, 5, 4, 1, 7, 2};
    if (exchange_join_all(g, &error))
        fail_msg("%s", error.text);
    for (uint64_t t = 1; t <= RT_COUNT_OF(workers); t++) {
        const uint64_t now = workers[t - 1];
        for (uint32_t i = 0; i < N; i++) {
            g->workers[i].done = !(now >> i & 1);
            for (uint32_t k = 0; k < COUNT; k++) // the others' are exact in 16 bits
                g->workers[i].host[k] = i == 1 ? 1 + 0x1p-12f * (float)(k % 16) : (float)(i + t);
        }
        for (uint32_t k = 0; k < COUNT && now & 2; k++) {
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
        if (await_sums(g, &error))
            fail_msg("%s", error.text);
        for (uint32_t k = 0; k < COUNT; k++) {
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
    for (int wire = RT_CODING_FP32; wire <= RT_CODING_INT8; wire++) {
        for (uint32_t up_max = 0; up_max <= 2; up_max++) {
            rt_error error = {0};
            const ew_exchange_config config = {.overlap = true, .wire = (rt_coding)wire};
            exchange_group *g = exchange_group_open(RT_COLLECTIVE_PS, N, COUNT, config);
            if (exchange_join_all(g, &error))
                fail_msg("%s", error.text);
            g->up_max = up_max;
            for (uint64_t t = 1; t <= 3; t++)
                iterate(g, t, 10);
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
        exchange_group_open(RT_COLLECTIVE_PS, 1, 1000, (ew_exchange_config){.overlap = true});
    ew_exchange *x = g->workers[0].exchange;
    static const struct {
        uint32_t from, bytes;
    } steps[] = {{950, 0}, {901, 0}, {900, 400}, {899, 400}, {650, 1200}, {1, 3600}};
    if (exchange_join_all(g, &error))
        fail_msg("%s", error.text);
    ew_exchange_begin(x, 1, 100, 1);
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
    enum { COUNT = 5003, ITERATIONS = 60 };
    static double sent[COUNT], wanted[COUNT], bound[COUNT];
    (void)state;
    for (uint32_t n = 1; n <= 4; n += 3) {
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
            iterate(g, t, 512);
            for (uint32_t i = 0; i < COUNT; i++) {
                const float sum = g->workers[0].host[i];
                uint32_t bits;
                for (uint32_t rank = 0; rank < n; rank++) {
                    assert_memory_equal(&g->workers[rank].host[i], &sum, sizeof sum);
                    wanted[i] += gradient(rank, t, i);
                }
                memcpy(&bits, &sum, sizeof bits);
                assert_int_equal(bits & 0xffff, 0);
                sent[i] += sum;
                bound[i] += n == 1 ? 0 : fabs(sum) * 0x1p-8;
                // Gradients are below 512, so rounding one loses at most 1, with what is carried 2.
                assert_true(fabs(sent[i] - wanted[i]) <= bound[i] + 2.0 * n);
            }
        }
        exchange_group_close(g, true);
    }
}

// ---- ps: int8 --------------------------------------------------------------------------------

// All workers hold the same bits; over many iterations the sums add up to the sum of all gradients,
// but for what each worker and the shards keep back: half a step of 1/127 of the largest there is,
// which carried on is at most twice that. The last float, the verdict, is exact.
static void int8_sums(void **state)
{
    enum { COUNT = 5003, ITERATIONS = 60 };
    static double sent[COUNT], wanted[COUNT];
    (void)state;
    for (uint32_t i = 0; i < 4; i++) {
        rt_error error = {0};
        const uint32_t n = i % 2 ? 4 : 1;
        exchange_group *g = exchange_group_open(
            RT_COLLECTIVE_PS, n, COUNT,
            (ew_exchange_config){
                .overlap = true, .wire = RT_CODING_INT8, .shard_count = i < 2 ? 1 : 3});
        if (exchange_join_all(g, &error))
            fail_msg("%s", error.text);
        memset(sent, 0, sizeof sent);
        memset(wanted, 0, sizeof wanted);
        for (uint64_t t = 1; t <= ITERATIONS; t++) {
            iterate(g, t, 512 + 100 * (uint32_t)(t % 3));
            for (uint32_t k = 0; k < COUNT; k++) {
                const float sum = g->workers[0].host[k];
                for (uint32_t rank = 0; rank < n; rank++) {
                    assert_memory_equal(&g->workers[rank].host[k], &sum, sizeof sum);
                    wanted[k] += gradient(rank, t, k);
                }
                sent[k] += sum;
                // Gradients are below 512: 512 / 127 x 1/2, of each worker and of the sum of n.
                assert_true(fabs(sent[k] - wanted[k]) <=
                            (k == COUNT - 1 ? 1e-3 : 2 * 2.03 * n));
            }
        }
        exchange_group_close(g, true);
    }
}

// ---- mpi -------------------------------------------------------------------------------------

// The plug-in that make built beside the program. NULL: error says why.
static const ew_collective_ops *mpi(rt_error *error)
{
    void *library;
    if (rt_plugin_load(process_beside(EW_MPI_FILE), true, &library, error))
        return NULL;
    const ew_mpi_plugin *plugin = dlsym(library, EW_MPI_SYMBOL);
    assert_true(plugin && plugin->abi == EW_MPI_ABI);
    return plugin->ops;
}

// One worker of as many as mpirun started. Every rank says that all can take part, as shard 0 does.
static ew_exchange *mpi_open(exchange_worker *w, exchange_group *g, uint32_t count, rt_error *error)
{
    rt_message joined;
    const uint32_t n = (uint32_t)atoi(getenv("OMPI_COMM_WORLD_SIZE"));
    *g = (exchange_group){.n = n, .count = count, .shard_count = 1, .random = {1}};
    const ew_exchange_config config = {
        .collective = RT_COLLECTIVE_MPI, .overlap = true, .timeout_s = 20, .mpi = mpi(error)};
    if (!config.mpi || exchange_worker_open(g, w->rank, config, error))
        return NULL;
    if (rt_message_create(&joined, RT_MESSAGE_DENSE_JOINED, rt_peer(RT_ROLE_PS, 0), 0, n,
                          n * sizeof(rt_wire_dense_join)))
        return NULL;
    memset(rt_message_payload(&joined), 0xff, n * sizeof(rt_wire_dense_join));
    ew_exchange *x = g->workers[w->rank].exchange;
    rt_status status = ew_exchange_join(x, error);
    if (!status)
        status = ew_exchange_receive(x, &joined, error);
    rt_message_release(&joined);
    while (!status && (status = ew_exchange_ready(x, error)) == RT_AGAIN) {
        exchange_await_news(g);
        status = RT_OK;
    }
    return status ? NULL : x;
}

static bool mpi_sum(exchange_group *g, uint32_t rank, uint64_t t)
{
    rt_error error = {0};
    exchange_worker *w = &g->workers[rank];
    rt_status status;
    ew_exchange_begin(w->exchange, t, 4096, rt_bits_below(g->n));
    for (uint32_t end = g->count; end > 0;) {
        uint32_t first = end > 70001 ? end - 70001 : 0;
        for (uint32_t i = first; i < end; i++)
            w->host[i] = gradient(rank, t, i);
        ew_exchange_final(w->exchange, first);
        end = first;
    }
    ew_exchange_trained(w->exchange);
    while ((status = ew_exchange_take(w->exchange, &error)) == RT_AGAIN)
        exchange_await_news(g);
    if (status)
        fprintf(stderr, "rank %u: %s\n", rank, error.text);
    return status == RT_OK;
}

// Any order of additions: the error of a sum of n floats (Higham, Accuracy and Stability, 4.4).
static bool mpi_check(const exchange_group *g, uint32_t rank, uint64_t t)
{
    for (uint32_t i = 0; i < g->count; i++) {
        double sum = 0, size = 0;
        for (uint32_t r = 0; r < g->n; r++) {
            sum += gradient(r, t, i);
            size += fabs((double)gradient(r, t, i));
        }
        if (!(fabs(g->workers[rank].host[i] - sum) <= size * g->n * 0x1p-24)) {
            fprintf(stderr, "rank %u, float %u of %u: %.9g, expected %.9g\n", rank, i, g->count,
                    (double)g->workers[rank].host[i], sum);
            return false;
        }
    }
    return true;
}

// What a rank of mpirun does: sums, and what came out as a hash, which must be the same for all.
static int mpi_worker(uint32_t rank, uint32_t count, bool dies)
{
    static exchange_group g;
    rt_error error = {0};
    uint64_t hash = 0;
    exchange_worker w = {.rank = rank};
    ew_exchange *x = mpi_open(&w, &g, count, &error);
    if (!x) {
        fprintf(stderr, "rank %u: %s\n", rank, error.text);
        return 1;
    }
    for (uint64_t t = 1; t <= 6; t++) {
        if (dies && rank == 1 && t == 3)
            _exit(7);
        if (!mpi_sum(&g, rank, t) || !mpi_check(&g, rank, t))
            return 1;
        for (uint32_t i = 0; i < g.count; i++) {
            uint32_t bits;
            memcpy(&bits, &g.workers[rank].host[i], sizeof bits);
            hash = rt_mix(hash + bits);
        }
    }
    ew_exchange_destroy(x, true);
    printf("hash %016" PRIx64 "\n", hash);
    return 0;
}

static int run_mpi(process *p, uint32_t n, uint32_t floats, bool dies)
{
    char program[512], count[16], variable[64];
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    assert_true(length > 0);
    program[length] = 0;
    snprintf(count, sizeof count, "%u", n);
    snprintf(variable, sizeof variable, "TEST_COLLECTIVES=%c%u", dies ? '-' : '+', floats);
    const char *const arguments[] = {"/usr/bin/env",
                                     variable,
                                     "ASAN_OPTIONS=" PROCESS_MPI_ASAN,
                                     "mpirun",
                                     "--allow-run-as-root",
                                     "--oversubscribe",
                                     "--bind-to",
                                     "none",
                                     "-n",
                                     count,
                                     program,
                                     NULL};
    return process_run(p, arguments, 50);
}

static void need_mpi(void)
{
    rt_error error = {0};
    process p = {0};
    const char *const probe[] = {"/usr/bin/env", "mpirun", "--version", NULL};
    if (!mpi(&error))
        test_skip("no Open MPI: %s", error.text);
    int status = process_run(&p, probe, 50);
    process_fini(&p);
    if (status)
        test_skip("mpirun does not start");
}

static void mpi_sums(void **state)
{
    (void)state;
    need_mpi();
    static const uint32_t counts[] = {1, 63, 1000, 700001}; // the last in several pieces
#ifdef __SANITIZE_THREAD__
    const uint32_t most = 2; // Open MPI spins while it waits: more take minutes on two cores
#else
    const uint32_t most = EXCHANGE_WORKERS_MAX;
#endif
    for (size_t c = 0; c < RT_COUNT_OF(counts); c++) {
        for (uint32_t n = most > 2 ? 1 : 2; n <= most; n += c % 2 ? 3 : 2) {
            process p = {0};
            uint32_t seen = 0;
            int status = run_mpi(&p, n, counts[c], false);
            if (status)
                fail_msg("%u processes, status %d: %s", n, status, p.text);
            const char *first = strstr(p.text, "hash ");
            for (const char *at = first; at; at = strstr(at + 1, "hash "), seen++)
                assert_memory_equal(at, first, 21); // equal bits on all
            assert_int_equal(seen, n);
            process_fini(&p);
        }
    }
}

// mpirun ends the others.
static void mpi_without_a_worker(void **state)
{
    process p = {0};
    (void)state;
    need_mpi();
    int status = run_mpi(&p, 3, 1000, true);
    assert_true(status != 0);
    assert_null(strstr(p.text, "hash "));
    process_fini(&p);
}

static void mpi_needs_mpirun(void **state)
{
    (void)state;
    need_mpi();
    rt_error error = {0};
    exchange_group *g = exchange_group_open(
        RT_COLLECTIVE_MPI, 2, 10, (ew_exchange_config){.overlap = true, .mpi = mpi(&error)});
    assert_int_equal(exchange_join_all(g, &error), RT_UNSUPPORTED);
    assert_non_null(strstr(error.text, "not started by mpirun"));
    exchange_group_close(g, false);
}

int main(int argc, char **argv)
{
    static const test_case cases[] = {TEST(ps_sums),
                                      TEST_SLOW(nccl_sums, 150),
                                      TEST(auto_takes_nccl_where_all_can),
                                      TEST(auto_takes_ps_where_nccl_would_not_do),
                                      TEST(auto_falls_back_where_they_do_not_meet),
                                      TEST(auto_takes_ps_where_one_cannot),
                                      TEST(nccl_must_be_everywhere),
                                      TEST(nobody_waits_for_ever_to_join),
                                      TEST(ps_without_a_worker),
                                      TEST(nccl_without_a_worker),
                                      TEST(shards_share_the_vector),
          TEST(who_sits_out_keeps_its_residual), TEST(strange_sums_are_refused),
                                      TEST(ps_waits_for_the_transport),
                                      TEST(early_bytes_are_counted),
                                      TEST(the_last_float_is_there_first),
                                      TEST(bf16_sums), TEST(int8_sums),
                                      TEST_SLOW(mpi_sums, 150),
                                      TEST(mpi_without_a_worker),
                                      TEST(mpi_needs_mpirun)};
    const char *rank = getenv("OMPI_COMM_WORLD_RANK"), *what = getenv("TEST_COLLECTIVES");
    if (rank && what)
        return mpi_worker((uint32_t)atoi(rank), (uint32_t)atoi(what + 1), what[0] == '-');
    return test_run(cases, RT_COUNT_OF(cases), argc, argv);
}
