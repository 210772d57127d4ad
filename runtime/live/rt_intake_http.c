// Events by HTTP: POST /events, lines of stream.format; the answer comes when they are on disk.
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "runtime/http/rt_http.h"
#include "runtime/live/rt_intake.h"

#define JSON "application/json"

typedef struct {
    rt_journal *journal;
    rt_http *http;
    bool names_events; // stream.id
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint32_t open; // requests that wait for the journal
    uint64_t unnamed;
} intake;

typedef struct {
    intake *in;
    rt_http_request *request;
    uint32_t count;
} waiting;

static void answer(void *context, rt_status status)
{
    waiting *w = context;
    intake *in = w->in;
    char text[64];
    if (status) {
        rt_http_refuse(w->request, 503, "the events could not be stored: send them again");
    } else {
        const int length = snprintf(text, sizeof text, "{\"accepted\":%" PRIu32 "}", w->count);
        rt_http_answer(w->request, 200, JSON, text, (size_t)length);
    }
    rt_free(w);
    pthread_mutex_lock(&in->lock);
    in->open--;
    pthread_cond_broadcast(&in->changed);
    pthread_mutex_unlock(&in->lock);
}

static void take_events(intake *in, rt_http_request *request)
{
    size_t size;
    uint32_t count;
    const char *body = rt_http_body(request, &size);
    if (size == 0) {
        rt_http_refuse(request, 400, "the body is empty, expected one event per line");
        return;
    }
    if (!rt_journal_count_lines(body, size, &count)) {
        rt_http_refuse(request, 413, "a line is longer than %u bytes", RT_LINE_MAX);
        return;
    }
    waiting *w = rt_alloc(1, sizeof *w);
    if (!w) {
        rt_http_refuse(request, 503, "out of memory");
        return;
    }
    *w = (waiting){in, request, count};
    pthread_mutex_lock(&in->lock);
    in->open++;
    in->unnamed += in->names_events ? 0 : count;
    pthread_mutex_unlock(&in->lock);
    const rt_journal_entry entry = {
        .lines = body, .size = size, .count = count, .done = answer, .context = w};
    const rt_status status = rt_journal_append(in->journal, &entry);
    if (!status)
        return;
    pthread_mutex_lock(&in->lock);
    in->open--;
    in->unnamed -= in->names_events ? 0 : count;
    pthread_mutex_unlock(&in->lock);
    rt_free(w);
    if (status == RT_LIMIT)
        rt_http_refuse(request, 413, "the body is too long");
    else
        rt_http_refuse(request, 503, "%s",
                       status == RT_AGAIN ? "the journal is full: training is behind"
                                          : rt_status_text(status));
}

static void answer_health(intake *in, rt_http_request *request)
{
    char text[256];
    const rt_journal_counts counts = rt_journal_statistics(in->journal);
    const int length =
        snprintf(text, sizeof text,
                 "{\"status\":\"ok\",\"events\":%" PRIu64 ",\"journal_bytes\":%" PRIu64 "}",
                 counts.next - 1, counts.bytes);
    rt_http_answer(request, 200, JSON, text, (size_t)length);
}

static void handle(void *context, rt_http_request *request)
{
    intake *in = context;
    const char *path = rt_http_path(request), *method = rt_http_method(request);
    const bool is_events = strcmp(path, "/events") == 0;
    if (strcmp(path, "/health") == 0)
        answer_health(in, request);
    else if (!is_events)
        rt_http_refuse(request, 404, "expected POST /events or GET /health");
    else if (strcmp(method, "POST") != 0)
        rt_http_refuse(request, 405, "expected POST /events");
    else
        take_events(in, request);
}

static void close_intake(void *context)
{
    intake *in = context;
    if (in->http) {
        rt_http_quiet(in->http);
        pthread_mutex_lock(&in->lock);
        while (in->open > 0)
            pthread_cond_wait(&in->changed, &in->lock);
        pthread_mutex_unlock(&in->lock);
        rt_http_close(in->http);
    }
    pthread_cond_destroy(&in->changed);
    pthread_mutex_destroy(&in->lock);
    rt_free(in);
}

static rt_status open_intake(const rt_config *config, rt_journal *journal, void **intake_p,
                             rt_error *error)
{
    rt_http_config http;
    intake *in = rt_alloc(1, sizeof *in);
    if (!in)
        return rt_fail(error, RT_NO_MEMORY, "out of memory for stream.http");
    in->journal = journal;
    in->names_events = *config->stream.id;
    pthread_mutex_init(&in->lock, NULL);
    pthread_cond_init(&in->changed, NULL);
    rt_http_defaults(config, &http);
    http.name = "stream.http";
    http.address = config->stream.http_listen;
    http.handle = handle;
    http.context = in;
    rt_status status = rt_http_open(&http, &in->http, error);
    if (status) {
        close_intake(in);
        return status;
    }
    *intake_p = in;
    return RT_OK;
}

static void counts(void *context, rt_intake_counts *counts)
{
    intake *in = context;
    const rt_http_counts http = rt_http_statistics(in->http);
    pthread_mutex_lock(&in->lock);
    *counts = (rt_intake_counts){
        .connections = http.answered, .refused = http.refused, .unnamed = in->unnamed};
    pthread_mutex_unlock(&in->lock);
}

const rt_intake_ops rt_intake_http = {
    .kind = RT_SOURCE_HTTP, .open = open_intake, .close = close_intake, .counts = counts};
