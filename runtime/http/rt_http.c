#include "runtime/http/rt_http.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "runtime/config/rt_address.h"
#include "runtime/http/rt_http_guests.h"
#include "runtime/http/rt_http_parts.h"
#include "runtime/http/rt_http_secrets.h"
#include "runtime/rt_json.h"
#include "runtime/rt_locale.h"
#include "runtime/rt_log.h"
#include "runtime/rt_thread.h"

#define BODY_BYTES_MAX (UINT64_C(8) << 20)
#define BODIES_BYTES_MAX (UINT64_C(96) << 20)
#define CONNECTIONS_MAX 256u
#define HEAD_S 5.0
#define IDLE_S 30.0
#define BODY_S 10.0 // without a byte
#define BODY_BYTES_PER_S 1024u
#define REQUEST_S 120.0
#define HEAD_BYTES_MAX ((size_t)32 << 10)
#define LISTEN_BACKLOG SOMAXCONN // those that wait for a place come in turn
#define LAST_ANSWERS_NS UINT64_C(1000000000)
#define DROPPED_SHARE 4u // of body_bytes_max: who sends more after a 413 is cut off

struct rt_http {
    rt_http_config config;
    rt_http_secrets secrets;
    char url[RT_NAME_MAX + 16];
    bool is_loopback;
    struct MHD_Daemon *daemon;
    rt_http_guests *guests;
    rt_http_names *names;
    rt_http_channel *channel; // NULL: nobody may listen
    rt_log_limit refusals;
    pthread_mutex_t lock; // the members below
    pthread_cond_t changed;
    bool is_quiet, is_handling;
    uint32_t request_count;
    uint64_t bodies_bytes;
    rt_http_counts counts;
};

struct rt_http_request {
    rt_http *http;
    struct MHD_Connection *connection;
    char *method, *path;
    rt_body body;
    char *origin; // of a page that may read the answer; NULL: none
    uint64_t begin_ns, dropped_bytes;
    unsigned refused_code; // 0: none
    const char *refusal;
    bool is_handled;  // the handler was called
    bool listens;     // its answer does not end
    bool is_answered; // response is there; the members from here on under the server's lock
    bool is_suspended;
    unsigned code;
    struct MHD_Response *response;
};

void rt_http_defaults(const rt_config *config, rt_http_config *http)
{
    *http = (rt_http_config){.certificate = config->security_certificate,
                             .certificate_key = config->security_certificate_key,
                             .token = config->security_token,
                             .insecure = config->security_insecure,
                             .body_bytes_max = BODY_BYTES_MAX,
                             .bodies_bytes_max = BODIES_BYTES_MAX,
                             .connections_max = CONNECTIONS_MAX,
                             .hosts = config->security_hosts,
                             .head_s = HEAD_S,
                             .idle_s = IDLE_S,
                             .body_s = BODY_S,
                             .request_s = REQUEST_S};
}

// ---- requests --------------------------------------------------------------------------------

const char *rt_http_method(const rt_http_request *request)
{
    return request->method;
}

const char *rt_http_path(const rt_http_request *request)
{
    return request->path;
}

const char *rt_http_body(const rt_http_request *request, size_t *size_p)
{
    *size_p = request->body.size;
    if (request->body.size == 0)
        return "";
    return request->body.bytes;
}

const char *rt_http_parameter(const rt_http_request *request, const char *name)
{
    return MHD_lookup_connection_value(request->connection, MHD_GET_ARGUMENT_KIND, name);
}

const char *rt_http_header(const rt_http_request *request, const char *name)
{
    return MHD_lookup_connection_value(request->connection, MHD_HEADER_KIND, name);
}

static void free_request(rt_http_request *request)
{
    if (request->response)
        MHD_destroy_response(request->response);
    rt_body_fini(&request->body);
    rt_free(request->origin);
    rt_free(request->method);
    rt_free(request->path);
    rt_free(request);
}

static char *copy_text(const char *text)
{
    char *copy = rt_alloc(strlen(text) + 1, 1);
    if (copy)
        return strcpy(copy, text);
    return NULL;
}

static rt_http_request *create_request(rt_http *http, struct MHD_Connection *connection,
                                       const char *method, const char *path)
{
    rt_http_request *request = rt_alloc(1, sizeof *request);
    if (!request)
        return NULL;
    request->http = http;
    request->connection = connection;
    request->begin_ns = rt_now_ns();
    request->method = copy_text(method);
    request->path = copy_text(path);
    if (!request->method || !request->path) {
        free_request(request);
        return NULL;
    }
    pthread_mutex_lock(&http->lock);
    http->request_count++;
    pthread_mutex_unlock(&http->lock);
    return request;
}

// ---- answers ---------------------------------------------------------------------------------

// Nobody takes an answer for what it is not, and pages of other sites do not show it, but for those
// that are listed.
static void guard_response(struct MHD_Response *response, const char *origin)
{
    MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
    if (!origin) {
        MHD_add_response_header(response, "Cross-Origin-Resource-Policy", "same-origin");
        MHD_add_response_header(response, "X-Frame-Options", "SAMEORIGIN");
        return;
    }
    MHD_add_response_header(response, MHD_HTTP_HEADER_ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    MHD_add_response_header(response, MHD_HTTP_HEADER_VARY, MHD_HTTP_HEADER_ORIGIN);
}

static struct MHD_Response *make_response(const rt_http_request *request, unsigned code,
                                          const char *type, const void *body, size_t size)
{
    const bool asks_password = request->http->config.takes_password;
    if (size == 0)
        body = "";
    struct MHD_Response *response =
        MHD_create_response_from_buffer(size, (void *)(uintptr_t)body, MHD_RESPMEM_MUST_COPY);
    if (!response)
        return NULL;
    guard_response(response, request->origin);
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
    if (code == MHD_HTTP_BAD_REQUEST && !request->is_handled) // where its body ends is not known
        MHD_add_response_header(response, MHD_HTTP_HEADER_CONNECTION, "close");
    if (code == MHD_HTTP_SERVICE_UNAVAILABLE)
        MHD_add_response_header(response, MHD_HTTP_HEADER_RETRY_AFTER, "1");
    const char *scheme = asks_password ? "Basic realm=\"lanyard\"" : "Bearer";
    if (code == MHD_HTTP_UNAUTHORIZED)
        MHD_add_response_header(response, MHD_HTTP_HEADER_WWW_AUTHENTICATE, scheme);
    return response;
}

// NULL: nobody looks after this connection.
static rt_http_guest *guest_of(struct MHD_Connection *connection)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    if (info)
        return info->socket_context;
    return NULL;
}

// Without memory for it the connection is closed: no answer is one, too.
static enum MHD_Result send_response(rt_http_request *request)
{
    struct MHD_Response *response = request->response;
    request->response = NULL;
    if (!response)
        return MHD_NO;
    if (!request->listens) // who does not read it holds its place for no one else
        rt_http_guests_note(request->http->guests, guest_of(request->connection),
                            RT_HTTP_GUEST_READING);
    const enum MHD_Result result = MHD_queue_response(request->connection, request->code, response);
    MHD_destroy_response(response);
    return result;
}

void rt_http_answer(rt_http_request *request, unsigned code, const char *type, const void *body,
                    size_t size)
{
    rt_http *http = request->http;
    struct MHD_Response *response = make_response(request, code, type, body, size);
    pthread_mutex_lock(&http->lock);
    rt_assert(!request->is_answered);
    request->response = response;
    request->code = code;
    request->is_answered = true;
    http->counts.answered++;
    if (request->is_suspended) {
        request->is_suspended = false;
        MHD_resume_connection(request->connection);
    }
    pthread_mutex_unlock(&http->lock);
}

// ---- listeners -------------------------------------------------------------------------------

bool rt_http_listen(rt_http_request *request, const char *type)
{
    rt_http *http = request->http;
    if (!http->channel)
        return false;
    struct MHD_Response *response =
        rt_http_channel_listen(http->channel, request->connection, http->config.listeners_max);
    if (!response)
        return false;
    guard_response(response, request->origin);
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
    MHD_add_response_header(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
    pthread_mutex_lock(&http->lock);
    rt_assert(!request->is_answered);
    request->listens = true;
    request->response = response;
    request->code = MHD_HTTP_OK;
    request->is_answered = true;
    http->counts.answered++;
    pthread_mutex_unlock(&http->lock);
    return true;
}

rt_status rt_http_publish(rt_http *http, const char *text, size_t size)
{
    rt_assert(http->channel);
    return rt_http_channel_publish(http->channel, text, size);
}

uint32_t rt_http_listeners(rt_http *http)
{
    if (http->channel)
        return rt_http_channel_listeners(http->channel);
    return 0;
}

// ---- refusals --------------------------------------------------------------------------------

static void format_refusal(rt_json *json, const char *text)
{
    rt_json_init(json, 0);
    rt_json_begin_object(json, NULL);
    rt_json_string(json, "error", text);
    rt_json_end_object(json);
}

void rt_http_refuse(rt_http_request *request, unsigned code, const char *format, ...)
{
    char text[512];
    rt_json json;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    format_refusal(&json, text);
    size_t size = 0;
    const char *body = rt_json_text(&json, &size);
    rt_http_answer(request, code, "application/json", body, body ? size : 0);
    rt_json_fini(&json);
}

// Before the handler has seen it; the server's thread.
static enum MHD_Result refuse_now(rt_http_request *request, unsigned code, const char *text)
{
    rt_http *http = request->http;
    rt_json json;
    size_t size = 0;
    uint64_t count;
    format_refusal(&json, text);
    const char *body = rt_json_text(&json, &size);
    request->response = make_response(request, code, "application/json", body, body ? size : 0);
    request->code = code;
    request->is_answered = true;
    rt_json_fini(&json);
    pthread_mutex_lock(&http->lock);
    http->counts.refused++;
    pthread_mutex_unlock(&http->lock);
    if (rt_log_due(&http->refusals, &count))
        rt_warn("%s: %" PRIu64 " requests were refused; the last one: %s %s: %u, %s",
                http->config.name, count, request->method, request->path, code, text);
    return send_response(request);
}

static enum MHD_Result hand_over(rt_http_request *request)
{
    rt_http *http = request->http;
    pthread_mutex_lock(&http->lock);
    const bool is_quiet = http->is_quiet;
    http->is_handling = !is_quiet;
    pthread_mutex_unlock(&http->lock);
    if (is_quiet)
        return refuse_now(request, MHD_HTTP_SERVICE_UNAVAILABLE, "this server is about to end");
    request->is_handled = true;
    http->config.handle(http->config.context, request);
    pthread_mutex_lock(&http->lock);
    http->is_handling = false;
    pthread_cond_broadcast(&http->changed);
    const bool is_answered = request->is_answered;
    if (!is_answered) {
        MHD_suspend_connection(request->connection);
        request->is_suspended = true;
    }
    pthread_mutex_unlock(&http->lock);
    if (is_answered)
        return send_response(request);
    return MHD_YES;
}

// ---- connections -----------------------------------------------------------------------------

static void note_connection(void *context, struct MHD_Connection *connection, void **guest_p,
                            enum MHD_ConnectionNotificationCode what)
{
    rt_http *http = context;
    if (what == MHD_CONNECTION_NOTIFY_CLOSED) {
        rt_http_guests_leave(http->guests, *guest_p);
        *guest_p = NULL;
        return;
    }
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    const union MHD_ConnectionInfo *from =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    *guest_p = NULL;
    if (info)
        *guest_p =
            rt_http_guests_enter(http->guests, info->connect_fd, from ? from->client_addr : NULL);
}

// ---- bodies ----------------------------------------------------------------------------------

static bool is_declared_too_long(const rt_http_request *request)
{
    const char *text = rt_http_header(request, MHD_HTTP_HEADER_CONTENT_LENGTH);
    return text && strtoull(text, NULL, 10) > request->http->config.body_bytes_max;
}

// A packed body would be taken for text, be told that it is there, and be nothing that can be read.
static bool is_packed(const rt_http_request *request)
{
    const char *text = rt_http_header(request, MHD_HTTP_HEADER_CONTENT_ENCODING);
    return text && *text && !rt_locale_is(text, "identity");
}

// Counts what the body holds with so many bytes; false: there is no room for them.
static bool count_body(rt_http_request *request, size_t size)
{
    rt_http *http = request->http;
    const uint64_t before = rt_body_held(request->body.size);
    const uint64_t after = rt_body_held(size);
    pthread_mutex_lock(&http->lock);
    const bool has_room = http->bodies_bytes - before + after <= http->config.bodies_bytes_max;
    if (has_room)
        http->bodies_bytes += after - before;
    pthread_mutex_unlock(&http->lock);
    return has_room;
}

static enum MHD_Result give_up_body(rt_http_request *request, unsigned code, const char *why)
{
    (void)count_body(request, 0);
    rt_body_fini(&request->body);
    request->refused_code = code;
    request->refusal = why;
    return MHD_YES;
}

static enum MHD_Result take_part(rt_http_request *request, const char *part, size_t size)
{
    const rt_http_config *config = &request->http->config;
    const uint64_t late_ns = (uint64_t)(config->request_s * 1e9);
    const size_t whole = request->body.size + size;
    rt_http_guests_note_bytes(request->http->guests, guest_of(request->connection), size);
    if (rt_now_ns() - request->begin_ns > late_ns)
        return MHD_NO;
    if (request->refused_code) {
        request->dropped_bytes += size;
        if (request->dropped_bytes > DROPPED_SHARE * config->body_bytes_max)
            return MHD_NO;
        return MHD_YES;
    }
    if (whole > config->body_bytes_max)
        return give_up_body(request, MHD_HTTP_CONTENT_TOO_LARGE, "the body is too long");
    if (!count_body(request, whole))
        return give_up_body(request, MHD_HTTP_SERVICE_UNAVAILABLE, "too many requests at once");
    if (rt_body_add(&request->body, part, size)) {
        pthread_mutex_lock(&request->http->lock);
        request->http->bodies_bytes -= rt_body_held(whole);
        request->http->bodies_bytes += rt_body_held(request->body.size);
        pthread_mutex_unlock(&request->http->lock);
        return give_up_body(request, MHD_HTTP_SERVICE_UNAVAILABLE, "out of memory");
    }
    return MHD_YES;
}

// ---- heads -----------------------------------------------------------------------------------

// A browser asks first whether a listed page may send what it wants to.
static enum MHD_Result allow(rt_http_request *request)
{
    struct MHD_Response *response =
        make_response(request, MHD_HTTP_NO_CONTENT, "text/plain", "", 0);
    if (!response)
        return MHD_NO;
    MHD_add_response_header(response, MHD_HTTP_HEADER_ACCESS_CONTROL_ALLOW_METHODS, "GET, POST");
    MHD_add_response_header(response, MHD_HTTP_HEADER_ACCESS_CONTROL_ALLOW_HEADERS,
                            "Authorization, Content-Type");
    MHD_add_response_header(response, "Access-Control-Allow-Private-Network", "true");
    request->response = response;
    request->code = MHD_HTTP_NO_CONTENT;
    request->is_answered = true;
    return send_response(request);
}

static bool is_permitted(const rt_http_request *request, bool takes_password)
{
    return rt_http_secrets_permit(&request->http->secrets,
                                  rt_http_header(request, MHD_HTTP_HEADER_AUTHORIZATION),
                                  takes_password);
}

// Before the body.
static enum MHD_Result take_head(rt_http_request *request, const char *version)
{
    const rt_http *http = request->http;
    const bool has_token = http->secrets.token != NULL;
    rt_http_verdict verdict;
    rt_http_guests_note(http->guests, guest_of(request->connection), RT_HTTP_GUEST_SENDING);
    rt_http_judge_head(http->names, request->connection, request->method, version,
                       has_token && is_permitted(request, false), &verdict);
    if (verdict.code)
        return refuse_now(request, verdict.code, verdict.text);
    if (verdict.origin && !(request->origin = copy_text(verdict.origin)))
        return MHD_NO;
    if (verdict.origin && strcmp(request->method, MHD_HTTP_METHOD_OPTIONS) == 0)
        return allow(request);
    if (!is_permitted(request, http->config.takes_password))
        return refuse_now(request, MHD_HTTP_UNAUTHORIZED,
                          "expected the token: Authorization: Bearer TOKEN");
    if (has_token)
        rt_http_guests_note_worth(http->guests, guest_of(request->connection));
    if (is_declared_too_long(request))
        return refuse_now(request, MHD_HTTP_CONTENT_TOO_LARGE, "the body is too long");
    if (is_packed(request))
        return refuse_now(request, MHD_HTTP_UNSUPPORTED_MEDIA_TYPE,
                          "Content-Encoding: expected a body as it is");
    return MHD_YES;
}

static enum MHD_Result take_request(void *context, struct MHD_Connection *connection,
                                    const char *path, const char *method, const char *version,
                                    const char *part, size_t *part_size, void **request_p)
{
    rt_http *http = context;
    rt_http_request *request = *request_p;
    if (!request) {
        *request_p = request = create_request(http, connection, method, path);
        if (!request)
            return MHD_NO;
        return take_head(request, version);
    }
    if (*part_size > 0) {
        const size_t size = *part_size;
        *part_size = 0;
        return take_part(request, part, size);
    }
    if (request->is_handled)
        return send_response(request);
    if (request->refused_code)
        return refuse_now(request, request->refused_code, request->refusal);
    rt_http_guests_note(http->guests, guest_of(connection), RT_HTTP_GUEST_SERVED);
    return hand_over(request);
}

static void forget_request(void *context, struct MHD_Connection *connection, void **request_p,
                           enum MHD_RequestTerminationCode reason)
{
    rt_http *http = context;
    rt_http_request *request = *request_p;
    if (!request)
        return;
    if (request->is_handled && request->code < MHD_HTTP_BAD_REQUEST &&
        reason == MHD_REQUEST_TERMINATED_COMPLETED_OK)
        rt_http_guests_note_worth(http->guests, guest_of(connection));
    rt_http_guests_note(http->guests, guest_of(connection), RT_HTTP_GUEST_IDLE);
    pthread_mutex_lock(&http->lock);
    http->bodies_bytes -= rt_body_held(request->body.size);
    http->request_count--;
    pthread_cond_broadcast(&http->changed);
    pthread_mutex_unlock(&http->lock);
    free_request(request);
    *request_p = NULL;
}

// ---- opening and closing ---------------------------------------------------------------------

static void log_library(void *context, const char *format, va_list arguments)
{
    char text[256];
    const rt_http *http = context;
    vsnprintf(text, sizeof text, format, arguments);
    text[strcspn(text, "\n")] = '\0';
    rt_debug("%s: %s", http->config.name, text);
}

static rt_status check_address(const rt_http_config *config, rt_error *error)
{
    char host[RT_NAME_MAX];
    uint32_t port;
    if (rt_address_split(config->address, host, sizeof host, &port))
        return RT_OK;
    return rt_fail(error, RT_CONFIG, "%s: \"%s\" is no address, expected %s", config->key,
                   config->address, rt_address_form(config->address));
}

static rt_status listen_on(rt_http *http, const char *address, int *socket_p, rt_error *error)
{
    char text[RT_NAME_MAX + 16];
    struct sockaddr_storage place = {0};
    socklen_t length = sizeof place;
    const int on = 1;
    snprintf(text, sizeof text, "tcp://%s", address);
    if (!rt_address_resolve(text, &place, &length))
        return rt_fail(error, RT_IO, "%s: the host of %s is unknown", http->config.key, address);
    const int listener = socket(place.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (listener < 0)
        return rt_fail(error, RT_LIMIT, "%s: no socket: %s", http->config.key, strerror(errno));
    (void)setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(listener, (struct sockaddr *)&place, length) != 0 ||
        listen(listener, LISTEN_BACKLOG) != 0) {
        const int reason = errno;
        close(listener);
        rt_address_fail(error, "cannot listen on", address, reason, strerror(reason));
        return rt_fail_in(error, "%s", http->config.key);
    }
    length = sizeof place;
    if (getsockname(listener, (struct sockaddr *)&place, &length) != 0 ||
        !rt_address_write(&place, text, sizeof text)) {
        close(listener);
        return rt_fail(error, RT_IO, "%s: %s: the port cannot be read", http->config.key, address);
    }
    const char *scheme = http->secrets.certificate ? "https" : "http";
    snprintf(http->url, sizeof http->url, "%s%s", scheme, text + strlen("tcp"));
    *socket_p = listener;
    return RT_OK;
}

// The library's thread takes no signals: they are for those that were there before.
static rt_status start(rt_http *http, int listener, rt_error *error)
{
    const rt_http_config *config = &http->config;
    const rt_http_secrets *secrets = &http->secrets;
    const bool is_tls = secrets->certificate != NULL;
    const double idle_s = config->idle_s < 1 ? 1 : config->idle_s;
    struct MHD_OptionItem options[] = {
        {MHD_OPTION_EXTERNAL_LOGGER, (intptr_t)log_library, http},
        {MHD_OPTION_LISTEN_SOCKET, listener, NULL},
        {MHD_OPTION_NOTIFY_COMPLETED, (intptr_t)forget_request, http},
        {MHD_OPTION_NOTIFY_CONNECTION, (intptr_t)note_connection, http},
        {MHD_OPTION_CONNECTION_LIMIT, config->connections_max, NULL},
        {MHD_OPTION_CONNECTION_TIMEOUT, (intptr_t)idle_s, NULL},
        {MHD_OPTION_CONNECTION_MEMORY_LIMIT, HEAD_BYTES_MAX, NULL},
        {is_tls ? MHD_OPTION_HTTPS_MEM_CERT : MHD_OPTION_END, 0, secrets->certificate},
        {MHD_OPTION_HTTPS_MEM_KEY, 0, secrets->key},
        {MHD_OPTION_END, 0, NULL}};
    unsigned flags = MHD_USE_POLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG;
    if (is_tls)
        flags |= MHD_USE_TLS;
    const sigset_t before = rt_thread_hold_signals();
    http->daemon = MHD_start_daemon(flags, 0, NULL, NULL, take_request, http, MHD_OPTION_ARRAY,
                                    options, MHD_OPTION_END);
    rt_thread_take_signals(before);
    if (http->daemon)
        return RT_OK;
    close(listener);
    if (is_tls)
        return rt_fail(error, RT_CONFIG,
                       "%s: the server cannot be started: security.certificate and "
                       "security.certificate_key are no pair in PEM, or this libmicrohttpd knows "
                       "no TLS",
                       config->name);
    return rt_fail(error, RT_CONFIG, "%s: the server cannot be started", config->name);
}

// What fails stays open in part, for rt_http_close.
static rt_status open_parts(rt_http *http, rt_error *error)
{
    const rt_http_config *config = &http->config;
    int listener = -1;
    rt_status status = check_address(config, error);
    if (status)
        return status;
    if (config->listeners_max && rt_http_channel_create(&http->channel))
        return rt_fail(error, RT_NO_MEMORY, "out of memory for %s", config->name);
    const rt_http_guests_config guests = {.places = config->connections_max,
                                          .head_s = config->head_s,
                                          .idle_s = config->idle_s,
                                          .body_s = config->body_s,
                                          .body_bytes_per_s = BODY_BYTES_PER_S,
                                          .ends_late = true};
    if (rt_http_guests_open(&guests, &http->guests))
        return rt_fail(error, RT_LIMIT, "no memory or no thread for %s", config->name);
    status = rt_http_names_open(config->address, config->hosts, &http->names, error);
    if (status)
        return status;
    status = rt_http_secrets_load(config, http->is_loopback, &http->secrets, error);
    if (status)
        return status;
    status = listen_on(http, config->address, &listener, error);
    if (status)
        return status;
    return start(http, listener, error);
}

rt_status rt_http_open(const rt_http_config *config, rt_http **http_p, rt_error *error)
{
    rt_http *http = rt_alloc(1, sizeof *http);
    if (!http)
        return rt_fail(error, RT_NO_MEMORY, "out of memory for %s", config->name);
    http->config = *config;
    pthread_mutex_init(&http->lock, NULL);
    pthread_condattr_t clock;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&http->changed, &clock);
    pthread_condattr_destroy(&clock);
    http->is_loopback = rt_address_is_loopback(config->address);
    rt_status status = open_parts(http, error);
    if (status) {
        rt_http_close(http);
        return status;
    }
    http->config.address = http->config.certificate = http->config.certificate_key = NULL;
    http->config.token = http->config.hosts = NULL; // the caller's
    rt_info("%s: listening on %s", http->config.name, http->url);
    *http_p = http;
    return RT_OK;
}

const char *rt_http_url(const rt_http *http)
{
    return http->url;
}

void rt_http_quiet(rt_http *http)
{
    pthread_mutex_lock(&http->lock);
    http->is_quiet = true;
    while (http->is_handling)
        pthread_cond_wait(&http->changed, &http->lock);
    pthread_mutex_unlock(&http->lock);
}

static void await_answers(rt_http *http)
{
    struct timespec end;
    const uint64_t end_ns = rt_now_ns() + LAST_ANSWERS_NS;
    end.tv_sec = (time_t)(end_ns / 1000000000u);
    end.tv_nsec = (long)(end_ns % 1000000000u);
    pthread_mutex_lock(&http->lock);
    while (http->request_count > 0 &&
           pthread_cond_timedwait(&http->changed, &http->lock, &end) == 0)
        continue;
    pthread_mutex_unlock(&http->lock);
}

void rt_http_close(rt_http *http)
{
    if (!http)
        return;
    if (http->daemon) {
        rt_http_quiet(http);
        const int listener = MHD_quiesce_daemon(http->daemon);
        if (listener >= 0)
            close(listener);
        if (http->channel)
            rt_http_channel_close(http->channel);
        await_answers(http);
        MHD_stop_daemon(http->daemon);
    }
    rt_http_guests_close(http->guests);
    rt_http_names_close(http->names);
    rt_http_channel_destroy(http->channel);
    rt_http_secrets_clear(&http->secrets);
    pthread_cond_destroy(&http->changed);
    pthread_mutex_destroy(&http->lock);
    rt_free(http);
}

rt_http_counts rt_http_statistics(rt_http *http)
{
    pthread_mutex_lock(&http->lock);
    const rt_http_counts counts = http->counts;
    pthread_mutex_unlock(&http->lock);
    return counts;
}
