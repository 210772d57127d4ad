// rt_http - a small HTTP/1.1 server: whole requests in, answers at once or later.
//
// One thread of the server's own reads requests and calls the handler; any thread may answer.
// Beyond loopback it needs TLS and a token, or security.insecure (docs/SECURITY.md). Everything is
// bounded: connections, the bytes of one body and of all bodies together, the time of a request.
// What is refused before it reaches the handler (400, 401, 403, 408, 413, 415, 431, 503) never
// does.
#ifndef RT_HTTP_H
#define RT_HTTP_H

#include "runtime/config/rt_config.h"
#include "runtime/rt_base.h"

typedef struct rt_http rt_http;
typedef struct rt_http_request rt_http_request;

// Called once a request is there as a whole, in the server's thread, one at a time. It answers, or
// keeps the request and somebody answers later: every request is answered once.
typedef void (*rt_http_handler)(void *context, rt_http_request *request);

typedef struct {
    const char *name;        // of the section of keys, for messages: "stream.http"
    const char *key;         // that names address, for messages: "stream.http.listen"
    const char *address;     // HOST:PORT; port 0: any free one
    const char *certificate; // PEM files; "": no TLS
    const char *certificate_key;
    const char *token;         // file with the bearer token that every request must show; "": none
    bool insecure;             // beyond loopback without the three
    uint64_t body_bytes_max;   // of one request
    uint64_t bodies_bytes_max; // of all that are in memory
    uint32_t connections_max;  // rt_guests says who has to go when there are more
    const char *hosts;         // whom requests may be for, and whose pages may send them, too
    double head_s;             // so long a head may take
    double idle_s;             // a connection that is silent for so long is closed
    double body_s;             // and one whose body comes no faster than 1 KB/s, so much later
    double request_s;          // a request that takes longer to arrive is given up
    bool takes_password;    // the token may come as a browser's password, whatever the name with it
    uint32_t listeners_max; // of rt_http_listen at once; 0: none
    rt_http_handler handle;
    void *context;
} rt_http_config;

// Fills in certificate, key, token, insecure (they stay the config's) and bounds to start from.
void rt_http_defaults(const rt_config *config, rt_http_config *http);

// Listens. config is not kept, but for handle and context. RT_CONFIG: no address, or one beyond
// loopback without what that needs, or a file that others can read; RT_IO: it cannot be listened
// on, or a file cannot be read; error names the key.
rt_status rt_http_open(const rt_http_config *config, rt_http **http_p, rt_error *error);

// "https://HOST:PORT" with the port that was found. Valid while the server is.
const char *rt_http_url(const rt_http *http);

// From now on the handler is not called any more and does not run; requests are answered 503.
void rt_http_quiet(rt_http *http);

// All requests that were kept are answered. Waits up to a second until answers are out. NULL is
// fine.
void rt_http_close(rt_http *http);

// ---- of a request, until it is answered ------------------------------------------------------

const char *rt_http_method(const rt_http_request *request); // "GET"
const char *rt_http_path(const rt_http_request *request);   // "/events", without the query
const char *rt_http_body(const rt_http_request *request, size_t *size_p); // terminated by a zero

// Only while the handler runs. NULL: there is none. A parameter of the query; a header.
const char *rt_http_parameter(const rt_http_request *request, const char *name);
const char *rt_http_header(const rt_http_request *request, const char *name);

// The answer; type is a constant string ("application/json"). body is copied. Any thread, once.
// After it the request is gone.
void rt_http_answer(rt_http_request *request, unsigned code, const char *type, const void *body,
                    size_t size);

// {"error": "..."}; with 503 also Retry-After: 1.
void rt_http_refuse(rt_http_request *request, unsigned code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

// Instead of an answer, while the handler runs: the answer stays open and brings whatever is
// published from then on, and first what was published last (server-sent events, chunked). False:
// listeners_max are there already; the request waits for an answer as before.
bool rt_http_listen(rt_http_request *request, const char *type);

// The newest text for all that listen; those before, as far as they were not sent, are not sent any
// more. Copied. Any thread. RT_NO_MEMORY.
rt_status rt_http_publish(rt_http *http, const char *text, size_t size);
uint32_t rt_http_listeners(rt_http *http);

// What was refused without the handler, and answered by anybody. Any thread.
typedef struct {
    uint64_t answered, refused;
} rt_http_counts;
rt_http_counts rt_http_statistics(rt_http *http);

#endif
