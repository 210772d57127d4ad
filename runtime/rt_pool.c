#include "runtime/rt_pool.h"
#include "runtime/rt_thread.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/prctl.h>

#define SPIN_NS 20000u // about what putting a thread to sleep and waking it costs
#define SPINS_PER_LOOK 64u

// A piece of work is published under lock. A thread that takes part in it counts in busy, also
// under lock, so that the caller, who waits for busy to be 0, gives up its context only when nobody
// looks at it any more. The counters are atomic for those who spin without the lock.
struct rt_pool {
    pthread_mutex_t lock;
    pthread_cond_t wake, done;
    pthread_t threads[RT_THREADS_MAX];
    uint32_t thread_count, started; // with and without the caller
    bool closing;
    atomic_bool taken; // by a caller
    atomic_uint piece; // number of the newest
    atomic_uint busy;

    rt_pool_work work;
    void *context;
    uint32_t part_count; // 0: the piece is done
    atomic_uint next_part;

    // What is worked off beside, a part at a time. All under lock, but for who waits for `undone`.
    struct {
        rt_pool_work work;
        void *context;
        uint32_t part_count, next_part; // equal: every part is taken
        atomic_uint undone;
    } beside;
};

static inline void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

// Until *value is no longer (or has become) expected, or for a moment.
static void spin(const atomic_uint *value, uint32_t expected, bool equal)
{
    const uint64_t end = rt_now_ns() + SPIN_NS;
    do {
        for (uint32_t i = 0; i < SPINS_PER_LOOK; i++) {
            if ((atomic_load_explicit(value, memory_order_acquire) == expected) == equal)
                return;
            relax();
        }
    } while (rt_now_ns() < end);
}

static void work_off(rt_pool *pool, rt_pool_work work, void *context, uint32_t part_count)
{
    uint32_t part;
    while ((part = atomic_fetch_add(&pool->next_part, 1)) < part_count)
        work(context, part);
}

// Of what is beside, one part; under lock, which is given up meanwhile. false: all are taken.
static bool work_beside(rt_pool *pool)
{
    if (pool->beside.next_part == pool->beside.part_count)
        return false;
    const uint32_t part = pool->beside.next_part++;
    rt_pool_work work = pool->beside.work;
    void *context = pool->beside.context;
    pthread_mutex_unlock(&pool->lock);
    work(context, part);
    pthread_mutex_lock(&pool->lock);
    if (atomic_fetch_sub(&pool->beside.undone, 1) == 1)
        pthread_cond_broadcast(&pool->done);
    return true;
}

// Under lock. Returns once there is a piece that is not seen yet, or the pool closes; what is
// beside is for the time until then.
static void await_piece(rt_pool *pool, uint32_t seen)
{
    while (!pool->closing && atomic_load(&pool->piece) == seen && work_beside(pool))
        continue;
    if (!pool->closing && atomic_load(&pool->piece) == seen) {
        pthread_mutex_unlock(&pool->lock);
        spin(&pool->piece, seen, false);
        pthread_mutex_lock(&pool->lock);
    }
    while (!pool->closing && atomic_load(&pool->piece) == seen)
        pthread_cond_wait(&pool->wake, &pool->lock);
}

static void *help(void *argument)
{
    rt_pool *pool = argument;
    uint32_t seen = 0;
    prctl(PR_SET_NAME, "compute");
    pthread_mutex_lock(&pool->lock);
    for (;;) {
        await_piece(pool, seen);
        if (pool->closing)
            break;
        seen = atomic_load(&pool->piece);
        const uint32_t part_count = pool->part_count;
        if (!part_count) // it came late, or there is something beside
            continue;
        atomic_fetch_add(&pool->busy, 1);
        rt_pool_work work = pool->work;
        void *context = pool->context;
        pthread_mutex_unlock(&pool->lock);
        work_off(pool, work, context, part_count);
        pthread_mutex_lock(&pool->lock);
        if (atomic_fetch_sub(&pool->busy, 1) == 1)
            pthread_cond_broadcast(&pool->done);
    }
    pthread_mutex_unlock(&pool->lock);
    return NULL;
}

static rt_status start(rt_pool *pool, rt_error *error)
{
    int reason = 0;
    while (pool->started + 1 < pool->thread_count && !reason) {
        reason = rt_thread_start(&pool->threads[pool->started], help, pool);
        pool->started += !reason;
    }
    if (reason)
        return rt_fail(error, RT_LIMIT, "cannot start %u threads to compute: %s",
                       pool->thread_count - 1, strerror(reason));
    return RT_OK;
}

rt_status rt_pool_create(uint32_t thread_count, rt_pool **pool_p, rt_error *error)
{
    rt_assert(thread_count >= 1 && thread_count <= RT_THREADS_MAX);
    rt_pool *pool = rt_alloc(1, sizeof *pool);
    if (!pool)
        return rt_fail(error, RT_NO_MEMORY, "out of memory for threads");
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->wake, NULL);
    pthread_cond_init(&pool->done, NULL);
    pool->thread_count = thread_count;
    rt_status status = start(pool, error);
    if (status)
        rt_pool_destroy(pool);
    else
        *pool_p = pool;
    return status;
}

void rt_pool_destroy(rt_pool *pool)
{
    if (!pool)
        return;
    pthread_mutex_lock(&pool->lock);
    pool->closing = true;
    atomic_fetch_add(&pool->piece, 1); // for those who spin
    pthread_cond_broadcast(&pool->wake);
    pthread_mutex_unlock(&pool->lock);
    for (uint32_t i = 0; i < pool->started; i++)
        pthread_join(pool->threads[i], NULL);
    pthread_cond_destroy(&pool->done);
    pthread_cond_destroy(&pool->wake);
    pthread_mutex_destroy(&pool->lock);
    rt_free(pool);
}

uint32_t rt_pool_threads(const rt_pool *pool)
{
    return pool ? pool->thread_count : 1;
}

static void publish(rt_pool *pool, uint32_t part_count, rt_pool_work work, void *context)
{
    pthread_mutex_lock(&pool->lock);
    pool->work = work;
    pool->context = context;
    pool->part_count = part_count;
    atomic_store(&pool->next_part, 0);
    atomic_fetch_add(&pool->piece, 1);
    if (part_count > pool->started)
        pthread_cond_broadcast(&pool->wake);
    else
        for (uint32_t i = 1; i < part_count; i++)
            pthread_cond_signal(&pool->wake);
    pthread_mutex_unlock(&pool->lock);
}

static void await_helpers(rt_pool *pool)
{
    spin(&pool->busy, 0, true);
    pthread_mutex_lock(&pool->lock);
    pool->part_count = 0;
    while (atomic_load(&pool->busy) > 0)
        pthread_cond_wait(&pool->done, &pool->lock);
    pthread_mutex_unlock(&pool->lock);
}

void rt_pool_run(rt_pool *pool, uint32_t part_count, rt_pool_work work, void *context)
{
    bool was_taken = false;
    if (!pool || pool->started == 0 || part_count <= 1 ||
        !atomic_compare_exchange_strong(&pool->taken, &was_taken, true)) {
        for (uint32_t part = 0; part < part_count; part++)
            work(context, part);
        return;
    }
    publish(pool, part_count, work, context);
    work_off(pool, work, context, part_count);
    await_helpers(pool);
    atomic_store(&pool->taken, false);
}

// A number for the threads to wake up by; it is that of no piece.
static bool publish_beside(rt_pool *pool, uint32_t part_count, rt_pool_work work, void *context)
{
    pthread_mutex_lock(&pool->lock);
    const bool is_free = pool->beside.part_count == 0;
    if (is_free) {
        pool->beside.work = work;
        pool->beside.context = context;
        pool->beside.part_count = part_count;
        pool->beside.next_part = 0;
        atomic_store(&pool->beside.undone, part_count);
        atomic_fetch_add(&pool->piece, 1);
        pthread_cond_broadcast(&pool->wake);
    }
    pthread_mutex_unlock(&pool->lock);
    return is_free;
}

bool rt_pool_begin(rt_pool *pool, uint32_t part_count, rt_pool_work work, void *context)
{
    if (pool && pool->started > 0 && part_count > 0 &&
        publish_beside(pool, part_count, work, context))
        return true;
    for (uint32_t part = 0; part < part_count; part++)
        work(context, part);
    return false;
}

void rt_pool_end(rt_pool *pool)
{
    pthread_mutex_lock(&pool->lock);
    while (work_beside(pool))
        continue;
    pthread_mutex_unlock(&pool->lock);
    spin(&pool->beside.undone, 0, true);
    pthread_mutex_lock(&pool->lock);
    while (atomic_load(&pool->beside.undone) > 0)
        pthread_cond_wait(&pool->done, &pool->lock);
    pool->beside.part_count = pool->beside.next_part = 0;
    pthread_mutex_unlock(&pool->lock);
}
