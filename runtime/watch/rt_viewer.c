#include "runtime/watch/rt_viewer.h"

#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <time.h>

#include "runtime/http/rt_http.h"
#include "runtime/rt_build.h"
#include "runtime/rt_clock.h"
#include "runtime/rt_log.h"
#include "runtime/rt_thread.h"
#include "runtime/watch/rt_view_tail.h"
#include "runtime/watch/rt_view_write.h"
#include "runtime/wire/rt_bytes.h"

#define QUEUE_BYTES_MAX ((uint64_t)4 << 20)
#define CONNECTIONS_MAX 64u
#define LISTENERS_MAX 32u
#define BODY_BYTES_MAX 4096u // of requests, which need none
#define STEP_NS UINT64_C(1000000000)
#define PUBLISH_NS UINT64_C(2000000000)
#define SILENT_S 60.0 // the coordinator writes a record every few seconds
#define JSON "application/json"

struct rt_viewer {
    const rt_config *config;
    char directory[RT_PATH_MAX];
    uint64_t history_bytes; // of metrics.jsonl, before this start
    rt_http *http;          // NULL: it does not listen
    double begin_s;
    pthread_t thread;
    bool thread_runs;
    pthread_mutex_t lock; // the queue, and the end
    pthread_cond_t changed;
    rt_bytes queue, taken; // of each line the time, text, and a zero; taken: the thread's
    uint64_t lost;
    bool ends;
    pthread_mutex_t view_lock; // what follows; never held by who gives records
    rt_view view;
    rt_alerts alerts;
};

void rt_viewer_take(void *context, const char *line, size_t size)
{
    rt_viewer *viewer = context;
    const double now = rt_steady_s();
    pthread_mutex_lock(&viewer->lock);
    const bool has_room = viewer->queue.size + sizeof now + size + 1 <= QUEUE_BYTES_MAX;
    if (has_room) {
        rt_bytes_put(&viewer->queue, &now, sizeof now);
        rt_bytes_put(&viewer->queue, line, size);
        rt_bytes_put(&viewer->queue, "", 1);
    }
    viewer->lost += !has_room;
    pthread_mutex_unlock(&viewer->lock); // the thread looks every second
}

// ---- answers ---------------------------------------------------------------------------------

static void answer_page(rt_http_request *request, const char *type, const rt_page *page)
{
    if (page->failed)
        rt_http_refuse(request, 503, "out of memory");
    else
        rt_http_answer(request, 200, type, page->text, page->size);
}

static void answer_root(rt_viewer *viewer, rt_http_request *request)
{
    rt_page page = {0};
    rt_view_write_page(&viewer->view, &viewer->alerts, rt_steady_s(), &page);
    answer_page(request, "text/html; charset=utf-8", &page);
    rt_page_fini(&page);
}

static void publish(rt_viewer *viewer)
{
    rt_page body = {0}, event = {0};
    rt_view_write_body(&viewer->view, &viewer->alerts, rt_steady_s(), &body);
    rt_view_write_event(&body, &event);
    if (!body.failed && !event.failed)
        (void)rt_http_publish(viewer->http, event.text, event.size);
    rt_page_fini(&body);
    rt_page_fini(&event);
}

// What was published last may be old where nobody listened.
static void answer_events(rt_viewer *viewer, rt_http_request *request)
{
    if (rt_http_listeners(viewer->http) == 0)
        publish(viewer);
    if (!rt_http_listen(request, "text/event-stream"))
        rt_http_refuse(request, 503, "%u pages are open already", LISTENERS_MAX);
}

static void answer_metrics(rt_viewer *viewer, rt_http_request *request)
{
    rt_page text = {0};
    (void)rt_view_write_prometheus(&viewer->view, &viewer->alerts, rt_steady_s(), &text);
    answer_page(request, "text/plain; version=0.0.4; charset=utf-8", &text);
    rt_page_fini(&text);
}

static void answer_json(rt_http_request *request, unsigned code, rt_json *json)
{
    size_t size = 0;
    const char *text = rt_json_text(json, &size);
    if (text)
        rt_http_answer(request, code, JSON, text, size);
    else
        rt_http_refuse(request, 503, "out of memory");
    rt_json_fini(json);
}

static void answer_status(rt_viewer *viewer, rt_http_request *request)
{
    rt_json json;
    rt_json_init(&json, 0);
    rt_view_write_json(&viewer->view, &viewer->alerts, rt_steady_s(), &json);
    answer_json(request, 200, &json);
}

static void answer_state(rt_viewer *viewer, rt_http_request *request, bool is_fine,
                         const char *state)
{
    rt_json json;
    rt_json_init(&json, 0);
    rt_json_begin_object(&json, NULL);
    const rt_view *view = &viewer->view;
    const char *well = view->held > 0 ? "held" : "ok";
    rt_json_string(&json, "status", is_fine ? well : state);
    rt_json_string(&json, "state", state);
    if (view->in_force > 0)
        rt_json_double(&json, "in_force", view->in_force);
    if (view->held > 0) {
        rt_json_double(&json, "held", view->held);
        rt_json_string(&json, "why", view->held_why);
    }
    rt_json_double(&json, "up_s", rt_steady_s() - viewer->begin_s);
    rt_json_string(&json, "build", rt_build());
    rt_json_end_object(&json);
    const unsigned code = is_fine ? 200 : 503;
    answer_json(request, code, &json);
}

// The coordinator is well as long as it says something.
static void answer_health(rt_viewer *viewer, rt_http_request *request)
{
    const double now = rt_steady_s();
    const double silent_s = rt_view_age_s(&viewer->view, viewer->view.time_s, now);
    if (silent_s > SILENT_S) // not where it is unknown, NaN
        answer_state(viewer, request, false, "silent");
    else
        answer_state(viewer, request, true, rt_view_state(&viewer->view, now));
}

static void answer_ready(rt_viewer *viewer, rt_http_request *request)
{
    const char *state = rt_view_state(&viewer->view, rt_steady_s());
    answer_state(viewer, request, strcmp(state, "trains") == 0 || strcmp(state, "waits") == 0,
                 state);
}

static const struct {
    const char *path;
    void (*answer)(rt_viewer *viewer, rt_http_request *request);
} paths[] = {{"/", answer_root},           {"/events", answer_events}, {"/status", answer_status},
             {"/metrics", answer_metrics}, {"/health", answer_health}, {"/ready", answer_ready}};

static void handle(void *context, rt_http_request *request)
{
    rt_viewer *viewer = context;
    const char *method = rt_http_method(request), *path = rt_http_path(request);
    if (strcmp(method, "GET") != 0 && strcmp(method, "HEAD") != 0) {
        rt_http_refuse(request, 405, "%s: expected GET", method);
        return;
    }
    for (size_t i = 0; i < RT_COUNT_OF(paths); i++) {
        if (strcmp(path, paths[i].path) != 0)
            continue;
        pthread_mutex_lock(&viewer->view_lock);
        viewer->view.ahead_s = rt_unix_s() - rt_steady_s();
        paths[i].answer(viewer, request);
        pthread_mutex_unlock(&viewer->view_lock);
        return;
    }
    rt_http_refuse(request, 404, "no such path; expected /, /status, /metrics, /health or /ready");
}

// ---- the thread ------------------------------------------------------------------------------

// What came since the last time is taken; false: nothing follows.
static bool take_queue(rt_viewer *viewer, bool waits)
{
    struct timespec end;
    const uint64_t end_ns = rt_now_ns() + STEP_NS;
    end.tv_sec = (time_t)(end_ns / 1000000000u);
    end.tv_nsec = (long)(end_ns % 1000000000u);
    pthread_mutex_lock(&viewer->lock);
    while (waits && !viewer->ends &&
           pthread_cond_timedwait(&viewer->changed, &viewer->lock, &end) == 0)
        continue;
    const rt_bytes full = viewer->queue;
    viewer->queue = viewer->taken;
    rt_bytes_clear(&viewer->queue);
    viewer->taken = full;
    const bool goes_on = !viewer->ends;
    pthread_mutex_unlock(&viewer->lock);
    return goes_on;
}

static void read_history(rt_viewer *viewer)
{
    rt_view_tail tail;
    rt_error error = {0};
    if (viewer->history_bytes == 0)
        return;
    if (rt_view_tail_open(viewer->directory, &tail, &error)) {
        rt_debug("the pages begin without what was before: %s", error.text);
        return;
    }
    pthread_mutex_lock(&viewer->view_lock);
    (void)rt_view_tail_read(&tail, viewer->history_bytes, &viewer->view);
    rt_view_begin_anew(&viewer->view);
    viewer->view.time_s = NAN;
    pthread_mutex_unlock(&viewer->view_lock);
    rt_view_tail_close(&tail);
}

static void take_lines(rt_viewer *viewer)
{
    const char *at = (const char *)viewer->taken.data, *end = at + viewer->taken.size;
    if (viewer->taken.failed)
        return;
    while (at < end) {
        double unix_s;
        memcpy(&unix_s, at, sizeof unix_s);
        at += sizeof unix_s;
        pthread_mutex_lock(&viewer->view_lock); // for each: who asks does not wait for many
        (void)rt_view_take(&viewer->view, at, unix_s);
        pthread_mutex_unlock(&viewer->view_lock);
        at += strlen(at) + 1;
    }
}

static void *run(void *context)
{
    rt_viewer *viewer = context;
    uint64_t published_ns = 0;
    prctl(PR_SET_NAME, "viewer");
    read_history(viewer);
    for (bool goes_on = true; goes_on;) {
        goes_on = take_queue(viewer, true);
        take_lines(viewer);
        pthread_mutex_lock(&viewer->view_lock);
        viewer->view.ahead_s = rt_unix_s() - rt_steady_s();
        rt_alerts_step(&viewer->alerts, &viewer->view, rt_steady_s());
        const uint64_t now_ns = rt_now_ns();
        if (viewer->http && rt_http_listeners(viewer->http) > 0 &&
            (!goes_on || now_ns - published_ns >= PUBLISH_NS)) {
            publish(viewer);
            published_ns = now_ns;
        }
        pthread_mutex_unlock(&viewer->view_lock);
    }
    return NULL;
}

// ---- opening and closing ---------------------------------------------------------------------

static void note_history(rt_viewer *viewer, const char *directory)
{
    struct stat info;
    char path[RT_PATH_MAX + 32];
    snprintf(path, sizeof path, "%s/metrics.jsonl", directory);
    if (stat(path, &info) == 0)
        viewer->history_bytes = (uint64_t)info.st_size;
}

// After its folder.
static void name_run(rt_viewer *viewer)
{
    size_t end = strlen(viewer->directory), begin;
    while (end > 0 && viewer->directory[end - 1] == '/')
        end--;
    for (begin = end; begin > 0 && viewer->directory[begin - 1] != '/';)
        begin--;
    snprintf(viewer->view.name, sizeof viewer->view.name, "%.*s", (int)(end - begin),
             viewer->directory + begin);
}

static rt_status listen_on(rt_viewer *viewer, rt_error *error)
{
    rt_http_config http;
    rt_http_defaults(viewer->config, &http);
    http.name = "watch";
    http.key = "watch.listen";
    http.address = viewer->config->watch.listen;
    http.body_bytes_max = BODY_BYTES_MAX;
    http.bodies_bytes_max = CONNECTIONS_MAX * BODY_BYTES_MAX;
    http.connections_max = CONNECTIONS_MAX;
    http.listeners_max = LISTENERS_MAX;
    http.takes_password = true;
    http.handle = handle;
    http.context = viewer;
    pthread_mutex_lock(&viewer->view_lock); // who asks at once waits until viewer->http is there
    rt_status status = rt_http_open(&http, &viewer->http, error);
    pthread_mutex_unlock(&viewer->view_lock);
    return status;
}

static void init_locks(rt_viewer *viewer)
{
    pthread_condattr_t clock;
    pthread_mutex_init(&viewer->lock, NULL);
    pthread_mutex_init(&viewer->view_lock, NULL);
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&viewer->changed, &clock);
    pthread_condattr_destroy(&clock);
}

rt_status rt_viewer_open(const rt_config *config, const char *directory, bool goes_on,
                         rt_viewer **viewer_p, rt_error *error)
{
    *viewer_p = NULL;
    if (!*config->watch.listen && !*config->alerts.command)
        return RT_OK;
    rt_viewer *viewer = rt_alloc(1, sizeof *viewer);
    if (!viewer)
        return rt_fail(error, RT_NO_MEMORY, "out of memory for watch");
    viewer->config = config;
    viewer->begin_s = rt_steady_s();
    snprintf(viewer->directory, sizeof viewer->directory, "%s", directory ? directory : "");
    init_locks(viewer);
    rt_alerts_init(&config->alerts, viewer->directory, &viewer->alerts);
    if (directory && goes_on)
        note_history(viewer, directory);
    rt_status status = rt_view_init(&viewer->view, RT_VIEW_POINTS);
    name_run(viewer);
    if (status)
        rt_fail(error, status, "out of memory for watch");
    if (!status && *config->watch.listen)
        status = listen_on(viewer, error);
    if (!status)
        status = rt_thread_run(&viewer->thread, &viewer->thread_runs, run, viewer, error);
    if (status) {
        rt_viewer_close(viewer);
        return status;
    }
    *viewer_p = viewer;
    return RT_OK;
}

void rt_viewer_close(rt_viewer *viewer)
{
    if (!viewer)
        return;
    pthread_mutex_lock(&viewer->lock);
    viewer->ends = true;
    pthread_cond_signal(&viewer->changed);
    pthread_mutex_unlock(&viewer->lock);
    if (viewer->thread_runs)
        pthread_join(viewer->thread, NULL);
    rt_http_close(viewer->http);
    rt_alerts_fini(&viewer->alerts);
    if (viewer->lost)
        rt_info("watch: %" PRIu64 " records came too fast to be shown", viewer->lost);
    rt_view_fini(&viewer->view);
    rt_bytes_fini(&viewer->queue);
    rt_bytes_fini(&viewer->taken);
    pthread_cond_destroy(&viewer->changed);
    pthread_mutex_destroy(&viewer->lock);
    pthread_mutex_destroy(&viewer->view_lock);
    rt_free(viewer);
}
