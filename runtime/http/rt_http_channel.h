// rt_http_channel - answers that stay open: each listener is sent the newest text, again and again.
//
// One text is kept, whatever the number of listeners; who is slow gets the end of the one it is
// reading, then the newest, and never those between. Any thread may publish; listeners are the
// server's thread's.
#ifndef RT_HTTP_CHANNEL_H
#define RT_HTTP_CHANNEL_H

#include <microhttpd.h>

#include "runtime/rt_base.h"

typedef struct rt_http_channel rt_http_channel;

rt_status rt_http_channel_create(rt_http_channel **channel_p);
void rt_http_channel_destroy(rt_http_channel *channel); // once nobody listens; NULL is fine

// A response without an end for one more listener, that begins with what was published last. NULL:
// too many listen, the channel is closed, or there is no memory.
struct MHD_Response *rt_http_channel_listen(rt_http_channel *channel, struct MHD_Connection *who,
                                            uint32_t listeners_max);

// Replaces the text. RT_NO_MEMORY: the one before stays.
rt_status rt_http_channel_publish(rt_http_channel *channel, const char *text, size_t size);

uint32_t rt_http_channel_listeners(rt_http_channel *channel);

void rt_http_channel_close(rt_http_channel *channel); // all answers end

#endif
