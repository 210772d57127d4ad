#include "runtime/http/rt_http_parts.h"

#include <pthread.h>
#include <string.h>

#define BLOCK_BYTES ((size_t)16 << 10) // of a listener's buffer

typedef struct {
    uint64_t version;
    uint32_t user_count; // listeners that read it, and the channel while it is the newest
    size_t size;
    char bytes[];
} text;

typedef struct listener listener;
struct listener {
    rt_http_channel *channel;
    struct MHD_Connection *connection;
    listener *next;
    text *reading; // NULL: it has all
    size_t offset;
    uint64_t seen; // version
    bool is_suspended;
};

struct rt_http_channel {
    pthread_mutex_t lock; // all that follows, and all listeners
    listener *first;
    uint32_t count;
    text *newest;
    uint64_t version;
    bool is_closed;
};

rt_status rt_http_channel_create(rt_http_channel **channel_p)
{
    rt_http_channel *channel = rt_alloc(1, sizeof *channel);
    if (!channel)
        return RT_NO_MEMORY;
    pthread_mutex_init(&channel->lock, NULL);
    *channel_p = channel;
    return RT_OK;
}

static void let_go(text *one)
{
    if (one && --one->user_count == 0)
        rt_free(one);
}

void rt_http_channel_destroy(rt_http_channel *channel)
{
    if (!channel)
        return;
    rt_assert(channel->count == 0);
    let_go(channel->newest);
    pthread_mutex_destroy(&channel->lock);
    rt_free(channel);
}

static void resume_all(rt_http_channel *channel)
{
    for (listener *one = channel->first; one; one = one->next) {
        if (one->is_suspended)
            MHD_resume_connection(one->connection);
        one->is_suspended = false;
    }
}

// The server's thread: the next bytes for one listener.
static ssize_t give(void *context, uint64_t position, char *buffer, size_t room)
{
    listener *one = context;
    rt_http_channel *channel = one->channel;
    ssize_t given = 0;
    (void)position;
    pthread_mutex_lock(&channel->lock);
    if (!one->reading && channel->newest && channel->newest->version != one->seen) {
        one->reading = channel->newest;
        one->reading->user_count++;
        one->offset = 0;
    }
    if (channel->is_closed) {
        given = MHD_CONTENT_READER_END_OF_STREAM;
    } else if (one->reading) {
        const size_t part = rt_min_u64(room, one->reading->size - one->offset);
        memcpy(buffer, one->reading->bytes + one->offset, part);
        one->offset += part;
        given = (ssize_t)part;
        if (one->offset == one->reading->size) {
            one->seen = one->reading->version;
            let_go(one->reading);
            one->reading = NULL;
        }
    } else {
        MHD_suspend_connection(one->connection);
        one->is_suspended = true;
    }
    pthread_mutex_unlock(&channel->lock);
    return given;
}

static void leave(void *context)
{
    listener *one = context;
    rt_http_channel *channel = one->channel;
    pthread_mutex_lock(&channel->lock);
    listener **at = &channel->first;
    while (*at != one)
        at = &(*at)->next;
    *at = one->next;
    channel->count--;
    let_go(one->reading);
    pthread_mutex_unlock(&channel->lock);
    rt_free(one);
}

static bool enter(rt_http_channel *channel, listener *one, uint32_t listeners_max)
{
    pthread_mutex_lock(&channel->lock);
    const bool may = !channel->is_closed && channel->count < listeners_max;
    if (may) {
        one->next = channel->first;
        channel->first = one;
        channel->count++;
    }
    pthread_mutex_unlock(&channel->lock);
    return may;
}

struct MHD_Response *rt_http_channel_listen(rt_http_channel *channel, struct MHD_Connection *who,
                                            uint32_t listeners_max)
{
    listener *one = rt_alloc(1, sizeof *one);
    if (!one)
        return NULL;
    *one = (listener){.channel = channel, .connection = who};
    if (!enter(channel, one, listeners_max)) {
        rt_free(one);
        return NULL;
    }
    struct MHD_Response *response =
        MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, BLOCK_BYTES, give, one, leave);
    if (!response)
        leave(one);
    return response;
}

rt_status rt_http_channel_publish(rt_http_channel *channel, const char *bytes, size_t size)
{
    text *one = rt_alloc(1, sizeof *one + size);
    if (!one)
        return RT_NO_MEMORY;
    one->user_count = 1;
    one->size = size;
    memcpy(one->bytes, bytes, size);
    pthread_mutex_lock(&channel->lock);
    one->version = ++channel->version;
    let_go(channel->newest);
    channel->newest = one;
    resume_all(channel);
    pthread_mutex_unlock(&channel->lock);
    return RT_OK;
}

uint32_t rt_http_channel_listeners(rt_http_channel *channel)
{
    pthread_mutex_lock(&channel->lock);
    const uint32_t count = channel->count;
    pthread_mutex_unlock(&channel->lock);
    return count;
}

void rt_http_channel_close(rt_http_channel *channel)
{
    pthread_mutex_lock(&channel->lock);
    channel->is_closed = true;
    resume_all(channel);
    pthread_mutex_unlock(&channel->lock);
}
