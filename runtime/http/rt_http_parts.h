// rt_http_parts - what the HTTP server (rt_http.c) is made of, for the files that are it.
#ifndef RT_HTTP_PARTS_H
#define RT_HTTP_PARTS_H

#include <microhttpd.h>

#include "runtime/rt_base.h"

// ---- rt_http_head.c ---------------------------------------------------------------------------

// What is looked at of a request before anything else: whether one can tell where
// its body ends, for which host it is meant, and from which page a browser sends it.
//
// A browser carries requests of any page to any address that it reaches, this machine's loopback
// addresses too, and says so: Host is the name under which the page found the address, Origin and
// Sec-Fetch-Site say whose page it is. A page elsewhere that gives its own name our address (DNS
// rebinding) cannot give it another Host. What is no browser sends neither Origin nor
// Sec-Fetch-Site, and the address or name that it was told as its Host.

typedef struct rt_http_names rt_http_names; // under which a server may be asked for

// Addresses, localhost, the host of address, what this machine calls itself, and those that are
// listed: "NAME" or "NAME:PORT", commas between them. RT_CONFIG: no such list; RT_NO_MEMORY.
rt_status rt_http_names_open(const char *address, const char *listed, rt_http_names **names_p,
                             rt_error *error);
void rt_http_names_close(rt_http_names *names); // NULL is fine

typedef struct {
    unsigned code; // 0: go on; else what is answered, because
    char text[256];
    const char *origin; // of a page that is listed; NULL: none is
} rt_http_verdict;

// shows_token: no page could have sent it, whatever the Host.
void rt_http_judge_head(const rt_http_names *names, struct MHD_Connection *connection,
                        const char *method, const char *version, bool shows_token,
                        rt_http_verdict *verdict);

// ---- rt_http_channel.c ------------------------------------------------------------------------

// Answers that stay open: each listener is sent the newest text, again and again.
//
// One text is kept, whatever the number of listeners; who is slow gets the end of the one it is
// reading, then the newest, and never those between. Any thread may publish; listeners are the
// server's thread's.

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

// ---- rt_body.c --------------------------------------------------------------------------------

// The body of a request, as it comes.
//
// Memory is taken as bytes come, whatever was announced, and is the system's again once the body is
// gone: many large ones at once leave nothing behind. Plain value, zero-initialised; one thread.

typedef struct {
    char *bytes; // size of them, and a zero; NULL: none
    size_t size, capacity;
} rt_body;

// RT_NO_MEMORY: it is as before.
rt_status rt_body_add(rt_body *body, const char *part, size_t size);
void rt_body_fini(rt_body *body); // it is empty again

// What a body of that size takes: of a large one whole pages.
uint64_t rt_body_held(size_t size);

#endif
