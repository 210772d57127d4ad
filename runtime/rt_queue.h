// rt_queue - a bounded queue of pointers between two threads.
//
// Any thread may put, take and close. A taker that sleeps in a poll can be woken through an event
// file descriptor: one count per item.
#ifndef RT_QUEUE_H
#define RT_QUEUE_H

#include "runtime/rt_base.h"

typedef struct rt_queue rt_queue;

// wake_fd: an eventfd that every put and the close write to, or -1.
rt_status rt_queue_create(uint32_t capacity, int wake_fd, rt_queue **queue_p);
void rt_queue_destroy(rt_queue *queue); // the items are the caller's

// Waits for room. RT_STOPPED: the queue is closed, the item stays the caller's.
rt_status rt_queue_put(rt_queue *queue, void *item);

// Waits for an item. RT_END: closed and empty. RT_AGAIN: empty, and rt_queue_wake was called since
// the last RT_AGAIN.
rt_status rt_queue_take(rt_queue *queue, void **item_p);

// Ends the wait of a taker, or the next one. Any thread.
void rt_queue_wake(rt_queue *queue);

// RT_AGAIN: empty now. RT_END: closed and empty.
rt_status rt_queue_try_take(rt_queue *queue, void **item_p);

// No more puts; waiting threads return. Items inside can still be taken.
void rt_queue_close(rt_queue *queue);

#endif
