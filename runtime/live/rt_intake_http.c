// Events by HTTP: POST /events, lines of stream.format, and POST /outcomes, lines of
// stream.join.format; the answer comes when they are on disk. They are parsed before, for the
// answer's sake: a request with a line that the run could not read is refused as a whole.
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "runtime/config/rt_sources.h"
#include "runtime/http/rt_http.h"
#include "runtime/live/rt_intake_core.h"
#include "runtime/rt_json.h"
#include "runtime/rt_log.h"

#define JSON "application/json"
#define WHY_BYTES 384u // a line's problem and its place

static const char *const paths[RT_FLOWS] = {"/events", "/outcomes"};

typedef struct {
    rt_intake_core core;
    rt_http *http;
    bool takes_anything;
    rt_log_limit refusals; // the server's thread's
} intake;

static void answer(void *request, uint32_t count, rt_status status)
{
    char text[64];
    const int length = snprintf(text, sizeof text, "{\"stored\":%" PRIu32 "}", count);
    if (status)
        rt_http_refuse(request, 503, "the lines could not be stored: send them again");
    else
        rt_http_answer(request, 200, JSON, text, (size_t)length);
}

// 0: the lines can be stored. Else what is answered, and why.
static unsigned judge(intake *in, rt_flow flow, const char *lines, size_t size, uint32_t *count_p,
                      char why[WHY_BYTES])
{
    uint32_t line;
    rt_line_problem problem;
    if (size == 0) {
        const char *what = flow == RT_FLOW_EVENTS ? "event" : "outcome";
        snprintf(why, WHY_BYTES, "the body is empty, expected one %s per line", what);
        return 400;
    }
    if (!rt_journal_count_lines(lines, size, count_p)) {
        snprintf(why, WHY_BYTES, "a line is longer than %u bytes", RT_LINE_MAX);
        return 413;
    }
    if (!in->takes_anything && rt_intake_is_packed(lines, size)) {
        snprintf(why, WHY_BYTES, "the body is a packed file, expected lines as they are");
        return 415;
    }
    if (rt_intake_reader_takes_all(in->core.readers[flow], lines, size, &line, &problem))
        return 0;
    snprintf(why, WHY_BYTES, "line %" PRIu32 ": %s; nothing of this request was stored", line,
             problem.text);
    return 400;
}

static void refuse(intake *in, rt_flow flow, rt_http_request *request, unsigned code,
                   const char *why)
{
    uint64_t count;
    rt_intake_count_refused(&in->core, 1);
    if (rt_log_due(&in->refusals, &count))
        rt_warn("stream.http: %" PRIu64 " bodies were refused; the last one: POST %s: %u, %s",
                count, paths[flow], code, why);
    rt_http_refuse(request, code, "%s", why);
}

static void take_lines(intake *in, rt_flow flow, rt_http_request *request)
{
    size_t size;
    uint32_t count;
    const char *body = rt_http_body(request, &size);
    const char *lines = rt_intake_trim(body, &size);
    char why[WHY_BYTES];
    const unsigned code = judge(in, flow, lines, size, &count, why);
    if (code) {
        refuse(in, flow, request, code, why);
        return;
    }
    const rt_journal_entry entry = {.lines = lines, .size = size, .count = count, .is_lent = true};
    const rt_status status = rt_intake_append(&in->core, flow, &entry, answer, request);
    if (!status)
        return;
    if (status == RT_LIMIT)
        rt_http_refuse(request, 413, "the body is too long");
    else if (status == RT_AGAIN)
        rt_http_refuse(request, 503, "the journal is full: training is behind");
    else
        rt_http_refuse(request, 503, "%s", rt_status_text(status));
}

static void answer_health(intake *in, rt_http_request *request)
{
    rt_json json;
    uint64_t bytes = 0;
    rt_json_init(&json, 0);
    rt_json_begin_object(&json, NULL);
    rt_json_string(&json, "status", "ok");
    for (rt_flow flow = 0; flow < RT_FLOWS; flow++) {
        if (!in->core.journals.of[flow])
            continue;
        const rt_journal_counts counts = rt_journal_statistics(in->core.journals.of[flow]);
        rt_json_u64(&json, paths[flow] + 1, counts.next - 1);
        bytes += counts.bytes;
    }
    rt_json_u64(&json, "journal_bytes", bytes);
    rt_json_end_object(&json);
    size_t size;
    const char *text = rt_json_text(&json, &size);
    rt_http_answer(request, 200, JSON, text, size);
    rt_json_fini(&json);
}

// "POST /events or ...": what there is.
static void refuse_path(const intake *in, rt_http_request *request, unsigned status)
{
    const rt_journals *journals = &in->core.journals;
    const char *health = status == 404 ? " or GET /health" : "";
    const char *posts = "POST /events, POST /outcomes";
    if (!journals->of[RT_FLOW_OUTCOMES])
        posts = "POST /events";
    else if (!journals->of[RT_FLOW_EVENTS])
        posts = "POST /outcomes";
    rt_http_refuse(request, status, "expected %s%s", posts, health);
}

static void handle(void *context, rt_http_request *request)
{
    intake *in = context;
    const char *path = rt_http_path(request);
    rt_flow flow = 0;
    if (strcmp(path, "/health") == 0) {
        answer_health(in, request);
        return;
    }
    while (flow < RT_FLOWS && (!in->core.journals.of[flow] || strcmp(path, paths[flow]) != 0))
        flow++;
    if (flow == RT_FLOWS)
        refuse_path(in, request, 404);
    else if (strcmp(rt_http_method(request), "POST") != 0)
        rt_http_refuse(request, 405, "expected POST %s", paths[flow]);
    else
        take_lines(in, flow, request);
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

static rt_status open_intake(const rt_config *config, const rt_journals *journals, void **intake_p,
                             rt_error *error)
{
    rt_http_config http;
    intake *in = rt_alloc(1, sizeof *in);
    if (!in)
        return rt_fail(error, RT_NO_MEMORY, "out of memory for stream.http");
    rt_status status = rt_intake_begin(&in->core, "stream.http", config, journals, error);
    rt_http_defaults(config, &http);
    http.name = "stream.http";
    http.key = "stream.http.listen";
    http.address = config->stream.http_listen;
    http.handle = handle;
    http.context = in;
    in->takes_anything = config->stream.take_anything;
    if (!status)
        status = rt_intake_read_lines(&in->core, config, error);
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
    counts->refused += http.refused;
}

const rt_intake_ops rt_intake_http = {.kind = RT_SOURCE_HTTP,
                                      .takes_both = true,
                                      .open = open_intake,
                                      .close = close_intake,
                                      .counts = counts};
