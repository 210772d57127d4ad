#define _GNU_SOURCE // pthread_timedjoin_np
#include "edge_worker/ew_reducer.h"
#include "runtime/rt_thread.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <unistd.h>

#define LEAVE_S 5

struct ew_reducer {
    ew_reducer_config config;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool stop;        // written under the lock, and read without it by the collective
    bool is_complete; // with stop
    bool busy;        // until the others are met, and while a sum is made
    uint32_t final_from;
    bool trained;
    rt_status status;
    rt_error error;
    void *state; // of the collective; the thread's, and the training thread's for mark
};

static void wake(const ew_reducer *r)
{
    const uint64_t one = 1;
    if (write(r->config.wake_fd, &one, sizeof one) < 0) {
        // it is full of wake-ups
    }
}

static void end_work(ew_reducer *r, rt_status status, const rt_error *error)
{
    pthread_mutex_lock(&r->lock);
    r->busy = false;
    r->status = status;
    if (status)
        r->error = *error;
    pthread_mutex_unlock(&r->lock);
    wake(r);
}

// Waits until a sum was begun. False: the end.
static bool await_work(ew_reducer *r)
{
    pthread_mutex_lock(&r->lock);
    while (!r->busy && !r->stop)
        pthread_cond_wait(&r->changed, &r->lock);
    bool stop = r->stop;
    pthread_mutex_unlock(&r->lock);
    return !stop;
}

static bool await_trained(ew_reducer *r)
{
    pthread_mutex_lock(&r->lock);
    while (!r->trained && !r->stop)
        pthread_cond_wait(&r->changed, &r->lock);
    bool stop = r->stop;
    pthread_mutex_unlock(&r->lock);
    return !stop;
}

static bool await_final(ew_reducer *r, uint32_t from)
{
    pthread_mutex_lock(&r->lock);
    while (r->final_from > from && !r->stop)
        pthread_cond_wait(&r->changed, &r->lock);
    bool stop = r->stop;
    pthread_mutex_unlock(&r->lock);
    return !stop;
}

// The collective's state stays until then, whatever has failed: the training thread may mark it.
static bool await_stop(ew_reducer *r)
{
    pthread_mutex_lock(&r->lock);
    while (!r->stop)
        pthread_cond_wait(&r->changed, &r->lock);
    bool is_complete = r->is_complete;
    pthread_mutex_unlock(&r->lock);
    return is_complete;
}

static rt_status reduce_all(ew_reducer *r, rt_error *error)
{
    const ew_reducer_config *config = &r->config;
    for (uint32_t end = config->count; end > 0;) {
        uint32_t first = (end - 1) / config->chunk_floats * config->chunk_floats;
        if (!await_final(r, first))
            return rt_fail(error, RT_STOPPED, "stopped");
        rt_status status =
            config->ops->reduce(r->state, config->values + first, end - first, error);
        if (status)
            return status;
        end = first;
    }
    if (!await_trained(r))
        return rt_fail(error, RT_STOPPED, "stopped");
    return config->ops->reduce_host(r->state, config->last, error);
}

static void *run(void *context)
{
    ew_reducer *r = context;
    const ew_reducer_config *config = &r->config;
    rt_error error = {0};
    const ew_collective_config collective = {.rank = config->rank,
                                             .worker_count = config->worker_count,
                                             .timeout_s = config->timeout_s,
                                             .id = config->id,
                                             .device_state = config->device_state,
                                             .stop = &r->stop};
    prctl(PR_SET_NAME, "reducer");
    rt_status status = config->ops->create(&collective, &r->state, &error);
    end_work(r, status, &error);
    while (!status && await_work(r)) {
        status = reduce_all(r, &error);
        end_work(r, status, &error);
    }
    bool is_complete = await_stop(r) && !status;
    if (r->state)
        config->ops->destroy(r->state, is_complete);
    return NULL;
}

rt_status ew_reducer_create(const ew_reducer_config *config, ew_reducer **reducer_p,
                            rt_error *error)
{
    ew_reducer *r = rt_alloc(1, sizeof *r);
    if (!r)
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    r->config = *config;
    r->busy = true;
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->changed, NULL);
    if (rt_thread_start(&r->thread, run, r) != 0) {
        rt_free(r);
        return rt_fail(error, RT_LIMIT, "cannot start the thread of the dense exchange");
    }
    *reducer_p = r;
    return RT_OK;
}

// The join with a limit that sanitizers know goes by a clock that can be set.
static bool joins_within(pthread_t thread, unsigned limit_s)
{
    const uint64_t end_ns = rt_now_ns() + limit_s * UINT64_C(1000000000);
    int status;
    while ((status = pthread_tryjoin_np(thread, NULL)) == EBUSY && rt_now_ns() < end_ns)
        (void)poll(NULL, 0, 1);
    return status == 0;
}

void ew_reducer_destroy(ew_reducer *r, bool is_complete)
{
    if (!r)
        return;
    pthread_mutex_lock(&r->lock);
    r->is_complete = is_complete;
    __atomic_store_n(&r->stop, true, __ATOMIC_RELEASE);
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->lock);
    if (!joins_within(r->thread, LEAVE_S)) {
        pthread_detach(r->thread); // the process is about to end
        return;
    }
    pthread_cond_destroy(&r->changed);
    pthread_mutex_destroy(&r->lock);
    rt_free(r);
}

void ew_reducer_begin(ew_reducer *r)
{
    pthread_mutex_lock(&r->lock);
    rt_assert(!r->busy);
    r->busy = true;
    r->final_from = r->config.count;
    r->trained = false;
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->lock);
}

static void set_final(ew_reducer *r, uint32_t from, bool trained)
{
    pthread_mutex_lock(&r->lock);
    r->trained = trained;
    r->final_from = from;
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->lock);
}

void ew_reducer_final(ew_reducer *r, uint32_t from)
{
    if (r->config.ops->mark)
        r->config.ops->mark(r->state);
    set_final(r, from, false);
}

void ew_reducer_trained(ew_reducer *r)
{
    set_final(r, 0, true);
}

rt_status ew_reducer_state(ew_reducer *r, rt_error *error)
{
    pthread_mutex_lock(&r->lock);
    rt_status status = r->status;
    if (r->busy)
        status = RT_AGAIN;
    if (status && status != RT_AGAIN)
        *error = r->error;
    pthread_mutex_unlock(&r->lock);
    return status;
}
