// Messages as frames, without copies where it can be done.
#include "runtime/transport/rt_zmq_parts.h"

#include <stdlib.h>
#include <string.h>

// A message on its way out; ZeroMQ's thread gives it back. (One for every message: small and not
// cleared, so of malloc.)
struct rt_zmq_sent {
    _Atomic(void (*)(void *hint)) release; // NULL: the caller has kept the message
    void *hint;
};

// A message that came in and was handed out in ZeroMQ's own memory.
typedef struct {
    zmq_msg_t frame;
} received_message;

static void give_back(void *data, void *hint)
{
    (void)data;
    rt_zmq_sent *sent = hint;
    void (*release)(void *) = atomic_load_explicit(&sent->release, memory_order_acquire);
    if (release)
        release(sent->hint);
    free(sent);
}

rt_status rt_zmq_frame_wrap(const rt_message *message, zmq_msg_t *frame, rt_zmq_sent **sent_p)
{
    rt_zmq_sent *sent = malloc(sizeof *sent);
    if (!sent)
        return RT_NO_MEMORY;
    sent->hint = message->hint;
    atomic_init(&sent->release, NULL);
    atomic_store_explicit(&sent->release, message->release, memory_order_release);
    if (zmq_msg_init_data(frame, message->data, message->size, give_back, sent) != 0) {
        free(sent);
        return RT_NO_MEMORY;
    }
    *sent_p = sent;
    return RT_OK;
}

void rt_zmq_frame_disown(zmq_msg_t *frame, rt_zmq_sent *sent)
{
    atomic_store_explicit(&sent->release, NULL, memory_order_release);
    zmq_msg_close(frame);
}

static void release_received(void *hint)
{
    received_message *received = hint;
    zmq_msg_close(&received->frame);
    free(received);
}

rt_status rt_zmq_frame_unwrap(zmq_msg_t *frame, rt_message *message)
{
    size_t size = zmq_msg_size(frame);
    uint8_t *data = zmq_msg_data(frame);
    if ((uintptr_t)data % sizeof(uint64_t) != 0) {
        void *copy = malloc(size + 1); // at least one byte: NULL means no memory
        if (copy) {
            memcpy(copy, data, size);
            *message = (rt_message){copy, size, free, copy};
        }
        zmq_msg_close(frame);
        if (!copy)
            return RT_NO_MEMORY;
        return RT_OK;
    }
    received_message *received = malloc(sizeof *received);
    if (!received) {
        zmq_msg_close(frame);
        return RT_NO_MEMORY;
    }
    zmq_msg_init(&received->frame);
    zmq_msg_move(&received->frame, frame);
    zmq_msg_close(frame);
    *message = (rt_message){zmq_msg_data(&received->frame), size, release_received, received};
    return RT_OK;
}
