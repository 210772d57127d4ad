// Dense gradients that become their sum by Open MPI. The cases run in a program of their own under
// mpirun: this one, started once more.
#include "tests/support/exchange_case.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/rt_plugin.h"
#include "tests/support/process_case.h"
#include "tests/support/test.h"

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
            w->host[i] = exchange_gradient(rank, t, i);
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
            sum += exchange_gradient(r, t, i);
            size += fabs((double)exchange_gradient(r, t, i));
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
    static const test_case cases[] = {TEST_SLOW(mpi_sums, 150), TEST(mpi_without_a_worker),
                                      TEST(mpi_needs_mpirun)};
    const char *rank = getenv("OMPI_COMM_WORLD_RANK"), *what = getenv("TEST_COLLECTIVES");
    if (rank && what)
        return mpi_worker((uint32_t)atoi(rank), (uint32_t)atoi(what + 1), what[0] == '-');
    return test_run(cases, RT_COUNT_OF(cases), argc, argv);
}
