#include "runtime/rt_queue.h"

#include <pthread.h>
#include <unistd.h>

struct rt_queue {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int wake_fd;
    bool closed;
    bool woken; // a taker is to look up
    uint32_t capacity, count, first;
    void **items;
};

rt_status rt_queue_create(uint32_t capacity, int wake_fd, rt_queue **queue_p)
{
    rt_queue *queue = rt_alloc(1, sizeof *queue);
    void **items = rt_alloc(capacity, sizeof *items);
    if (!queue || !items) {
        rt_free(queue);
        rt_free(items);
        return RT_NO_MEMORY;
    }
    *queue = (rt_queue){.wake_fd = wake_fd, .capacity = capacity, .items = items};
    pthread_mutex_init(&queue->lock, NULL);
    pthread_cond_init(&queue->changed, NULL);
    *queue_p = queue;
    return RT_OK;
}

void rt_queue_destroy(rt_queue *queue)
{
    if (!queue)
        return;
    pthread_mutex_destroy(&queue->lock);
    pthread_cond_destroy(&queue->changed);
    rt_free(queue->items);
    rt_free(queue);
}

static void wake(const rt_queue *queue)
{
    uint64_t one = 1;
    if (queue->wake_fd >= 0 && write(queue->wake_fd, &one, sizeof one) < 0) {
        // the counter is full: the reader is awake already
    }
}

rt_status rt_queue_put(rt_queue *queue, void *item)
{
    rt_status status = RT_STOPPED;
    pthread_mutex_lock(&queue->lock);
    while (!queue->closed && queue->count == queue->capacity)
        pthread_cond_wait(&queue->changed, &queue->lock);
    if (!queue->closed) {
        queue->items[(queue->first + queue->count++) % queue->capacity] = item;
        pthread_cond_broadcast(&queue->changed);
        status = RT_OK;
    }
    pthread_mutex_unlock(&queue->lock);
    wake(queue);
    return status;
}

static rt_status take(rt_queue *queue, void **item_p, bool wait)
{
    rt_status status = RT_OK;
    pthread_mutex_lock(&queue->lock);
    while (wait && !queue->closed && !queue->woken && queue->count == 0)
        pthread_cond_wait(&queue->changed, &queue->lock);
    if (queue->count) {
        *item_p = queue->items[queue->first];
        queue->first = (queue->first + 1) % queue->capacity;
        queue->count--;
        pthread_cond_broadcast(&queue->changed);
    } else {
        status = queue->closed ? RT_END : RT_AGAIN;
        queue->woken &= !wait;
    }
    pthread_mutex_unlock(&queue->lock);
    return status;
}

rt_status rt_queue_take(rt_queue *queue, void **item_p)
{
    return take(queue, item_p, true);
}

rt_status rt_queue_try_take(rt_queue *queue, void **item_p)
{
    return take(queue, item_p, false);
}

void rt_queue_close(rt_queue *queue)
{
    pthread_mutex_lock(&queue->lock);
    queue->closed = true;
    pthread_cond_broadcast(&queue->changed);
    pthread_mutex_unlock(&queue->lock);
    wake(queue);
}

void rt_queue_wake(rt_queue *queue)
{
    pthread_mutex_lock(&queue->lock);
    queue->woken = true;
    pthread_cond_broadcast(&queue->changed);
    pthread_mutex_unlock(&queue->lock);
}
