// Events by HTTP: POST /events, lines of stream.format; the answer comes when they are on disk.
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "runtime/http/rt_http.h"
#include "runtime/live/rt_intake_core.h"

#define JSON "application/json"

typedef struct {
    rt_intake_core core;
    rt_http *http;
} intake;

static void answer(void *request, uint32_t count, rt_status status)
{
    char text[64];
    const int length = snprintf(text, sizeof text, "{\"accepted\":%" PRIu32 "}", count);
    if (status)
        rt_http_refuse(request, 503, "the events could not be stored: send them again");
    else
        rt_http_answer(request, 200, JSON, text, (size_t)length);
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
    const rt_journal_entry entry = {.lines = body, .size = size, .count = count};
    const rt_status status = rt_intake_append(&in->core, &entry, answer, request);
    if (!status)
        return;
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
    const rt_journal_counts counts = rt_journal_statistics(in->core.journal);
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
    if (in->http)
        rt_http_quiet(in->http);
    rt_intake_stop(&in->core);
    if (in->http)
        rt_http_close(in->http);
    rt_intake_end(&in->core);
    rt_free(in);
}

static rt_status open_intake(const rt_config *config, rt_journal *journal, void **intake_p,
                             rt_error *error)
{
    rt_http_config http;
    intake *in = rt_alloc(1, sizeof *in);
    if (!in)
        return rt_fail(error, RT_NO_MEMORY, "out of memory for stream.http");
    rt_status status = rt_intake_begin(&in->core, "stream.http", config, journal, error);
    rt_http_defaults(config, &http);
    http.name = "stream.http";
    http.address = config->stream.http_listen;
    http.handle = handle;
    http.context = in;
    if (!status)
        status = rt_http_open(&http, &in->http, error);
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
    rt_intake_read_counts(&in->core, counts);
    counts->connections = http.answered;
    counts->refused = http.refused;
}

const rt_intake_ops rt_intake_http = {
    .kind = RT_SOURCE_HTTP, .open = open_intake, .close = close_intake, .counts = counts};
