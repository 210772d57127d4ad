// Every way in which dense gradients become their sum (ew_exchange): which one is taken, and what
// becomes of it when a worker dies. NCCL is what stands in for it, on the kernels-on-the-CPU
// plug-in.
#include "tests/support/exchange_case.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/devices.h"
#include "tests/support/said.h"
#include "tests/support/test.h"

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
                exchange_iterate(g, t, t == 2 ? 100 : 4096); // the links may change
                exchange_check_sums(g, t);
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
// Who has a GPU, keys, and "auto" is told which of them it is.
static void auto_takes_ps_where_nccl_would_not_do(void **state)
{
    (void)state;
    for (uint32_t keyed = 0; keyed < 2; keyed++) {
        rt_error error = {0};
        said_output output;
        said_begin(&output, STDERR_FILENO);
        exchange_group *g = exchange_group_open(
            RT_COLLECTIVE_AUTO, 3, 10,
            (ew_exchange_config){.nccl = keyed ? exchange_nccl(true) : exchange_nccl_of_versions(),
                                 .keyed = keyed,
                                 .overlap = true});
        const char *said = said_end(&output);
        if (keyed != (strstr(said, "NCCL does not encrypt and keys are in use") != NULL))
            fail_msg("keys %u; said: %s", keyed, said);
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
    exchange_iterate(g, 1, 4096);
    for (uint32_t i = 0; i < g->n; i++) {
        g->workers[i].done = false;
        ew_exchange_begin(g->workers[i].exchange, 2, 4096, rt_bits_below(g->n));
    }
    exchange_worker_end(&g->workers[g->n - 1], false);
    for (uint32_t i = 0; i + 1 < g->n; i++)
        exchange_compute(&g->workers[i], 2);
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
    assert_false(exchange_take_all(g, &status, &error));
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
            assert_int_equal(exchange_await_sums(g, &error), RT_TIMEOUT);
            assert_non_null(strstr(error.text, "NCCL: all-reduce: not all workers within 0.5 s"));
        }
        exchange_group_close(g, false); // while the others wait
    }
}

// NCCL tells a worker, in the middle of a run, that its peers are lost: the sum fails with a
// sentence that says of whom, and the end waits for nobody.
static void nccl_that_breaks(void **state)
{
    void (*break_rank)(int, unsigned long, bool);
    (void)state;
    test_plugin_function("cuda_cpu_nccl_break", &break_rank);
    assert_non_null(break_rank);
    for (uint32_t by_result = 0; by_result < 2; by_result++) {
        for (int rank = 0; rank < 3; rank++) {
            rt_error error = {0};
            char want[64];
            exchange_group *g = exchange_group_open(RT_COLLECTIVE_NCCL, 3, 10000,
                                                    (ew_exchange_config){.overlap = true});
            if (exchange_join_all(g, &error))
                fail_msg("%s", error.text);
            exchange_iterate(g, 1, 4096);
            exchange_check_sums(g, 1);
            break_rank(rank, 3, by_result); // of an iteration: the gradients, and the last number
            for (uint32_t i = 0; i < g->n; i++) {
                g->workers[i].done = false;
                ew_exchange_begin(g->workers[i].exchange, 2, 4096, rt_bits_below(g->n));
            }
            for (uint32_t i = 0; i < g->n; i++)
                exchange_compute(&g->workers[i], 2);
            assert_int_equal(exchange_await_sums(g, &error), RT_PEER);
            snprintf(want, sizeof want, "NCCL: all-reduce of worker %d with the 2 others: ", rank);
            if (!strstr(error.text, want))
                fail_msg("expected \"%s\" in: %s", want, error.text);
            const uint64_t begin = rt_now_ns();
            exchange_group_close(g, false);
            assert_true(rt_now_ns() - begin < UINT64_C(4000000000));
            break_rank(-1, 0, false);
        }
    }
}

TEST_MAIN(TEST(ps_sums), TEST_SLOW(nccl_sums, 150), TEST(auto_takes_nccl_where_all_can),
          TEST(auto_takes_ps_where_nccl_would_not_do), TEST(auto_falls_back_where_they_do_not_meet),
          TEST(auto_takes_ps_where_one_cannot), TEST(nccl_must_be_everywhere),
          TEST(nobody_waits_for_ever_to_join), TEST(ps_without_a_worker),
          TEST(nccl_without_a_worker), TEST(nccl_that_breaks))
