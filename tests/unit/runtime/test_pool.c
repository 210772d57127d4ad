// Threads that share parts of work: each part once, whoever calls, and the shares of cores.
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "runtime/rt_pool.h"
#include "runtime/rt_thread.h"
#include "tests/support/test.h"

#define PARTS 37u
#define PIECES 3000u
#define SLOW_EVERY 16u // pieces of which a part takes long enough for others to come
#define SLOW_US 300u

typedef struct {
    atomic_uint done[PARTS];
    uint32_t plain[PARTS]; // written without atomics: what run returns from, all can read
    bool slow;
} counts;

static void count_part(void *context, uint32_t part)
{
    counts *c = context;
    if (c->slow && part < 2)
        usleep(SLOW_US);
    atomic_fetch_add(&c->done[part], 1);
    c->plain[part]++;
}

static rt_pool *pool_of(uint32_t thread_count)
{
    rt_pool *pool = NULL;
    rt_error error = {0};
    if (rt_pool_create(thread_count, &pool, &error))
        fail_msg("%s", error.text);
    assert_int_equal(rt_pool_threads(pool), thread_count);
    return pool;
}

static void every_part_runs_once(void **state)
{
    (void)state;
    for (uint32_t threads = 1; threads <= 5; threads += 2) {
        counts c = {0};
        rt_pool *pool = pool_of(threads);
        for (uint32_t piece = 0; piece < PIECES; piece++) {
            c.slow = piece % SLOW_EVERY == 0;
            rt_pool_run(pool, piece % (PARTS + 1), count_part, &c);
        }
        rt_pool_destroy(pool);
        for (uint32_t part = 0; part < PARTS; part++) {
            uint32_t expected = 0;
            for (uint32_t piece = 0; piece < PIECES; piece++)
                expected += part < piece % (PARTS + 1);
            assert_int_equal(c.done[part], expected);
            assert_int_equal(c.plain[part], expected);
        }
    }
}

// Pieces come and go while other parts are worked off beside them; a second one has no room there.
static void beside_other_pieces(void **state)
{
    (void)state;
    for (uint32_t threads = 1; threads <= 5; threads++) {
        rt_pool *pool = pool_of(threads);
        for (uint32_t piece = 0; piece < PIECES; piece++) {
            counts aside = {.slow = piece % SLOW_EVERY == 0}, second = {0}, run = {0};
            const bool is_pending = rt_pool_begin(pool, piece % (PARTS + 1), count_part, &aside);
            assert_int_equal(is_pending, threads > 1 && piece % (PARTS + 1) > 0);
            for (uint32_t i = 0; i < piece % 4; i++)
                rt_pool_run(pool, PARTS, count_part, &run);
            if (is_pending && piece % 3 == 0)
                assert_false(rt_pool_begin(pool, PARTS, count_part, &second));
            if (is_pending)
                rt_pool_end(pool);
            for (uint32_t part = 0; part < PARTS; part++) {
                assert_int_equal(aside.plain[part], part < piece % (PARTS + 1));
                assert_int_equal(second.plain[part], is_pending && piece % 3 == 0);
                assert_int_equal(run.plain[part], piece % 4);
            }
        }
        rt_pool_destroy(pool);
    }
}

// Threads that have nothing else to do take parts before anybody asks for the end.
static void nobody_asks_for_the_end(void **state)
{
    (void)state;
    counts aside = {0};
    rt_pool *pool = pool_of(3);
    assert_true(rt_pool_begin(pool, PARTS, count_part, &aside));
    for (uint32_t part = 0; part < PARTS; part++)
        while (atomic_load(&aside.done[part]) == 0)
            usleep(100); // the test's limit ends it
    rt_pool_end(pool);
    rt_pool_destroy(pool);
}

static void *run_pieces(void *context)
{
    rt_pool *pool = context;
    static const uint32_t parts = PARTS;
    for (uint32_t piece = 0; piece < PIECES; piece++) {
        counts c = {.slow = piece % SLOW_EVERY == 0};
        rt_pool_run(pool, parts, count_part, &c);
        for (uint32_t part = 0; part < PARTS; part++)
            if (c.plain[part] != 1)
                return "a part did not run once";
    }
    return NULL;
}

// The communication thread may come while the training thread's piece is being worked on.
static void two_callers_at_once(void **state)
{
    (void)state;
    rt_pool *pool = pool_of(3);
    pthread_t other;
    void *complaint;
    assert_int_equal(pthread_create(&other, NULL, run_pieces, pool), 0);
    const char *here = run_pieces(pool);
    pthread_join(other, &complaint);
    rt_pool_destroy(pool);
    if (here || complaint)
        fail_msg("%s", here ? here : (const char *)complaint);
}

static void without_a_pool_the_caller_works(void **state)
{
    (void)state;
    counts c = {0};
    rt_pool_run(NULL, PARTS, count_part, &c);
    assert_false(rt_pool_begin(NULL, PARTS, count_part, &c));
    for (uint32_t part = 0; part < PARTS; part++)
        assert_int_equal(c.plain[part], 2);
    assert_int_equal(rt_pool_threads(NULL), 1);
    rt_pool_destroy(NULL);
}

static void threads_that_sleep_end(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 50; i++)
        rt_pool_destroy(pool_of(4)); // some have not begun to sleep
}

static void cores_are_shared_fairly(void **state)
{
    (void)state;
    for (uint32_t cores = 1; cores < 20; cores++)
        for (uint32_t sharers = 1; sharers < 24; sharers++) {
            uint32_t sum = 0, least = UINT32_MAX, most = 0;
            for (uint32_t k = 0; k < sharers; k++) {
                const uint32_t share = rt_thread_share(cores, sharers, k);
                sum += share;
                least = share < least ? share : least;
                most = share > most ? share : most;
            }
            assert_int_equal(sum, cores > sharers ? cores : sharers);
            assert_true(least >= 1 && most - least <= 1);
        }
    assert_true(rt_thread_cores() >= 1);
}

TEST_MAIN(TEST(every_part_runs_once), TEST(beside_other_pieces), TEST(nobody_asks_for_the_end),
          TEST(two_callers_at_once), TEST(without_a_pool_the_caller_works),
          TEST(threads_that_sleep_end), TEST(cores_are_shared_fairly))
