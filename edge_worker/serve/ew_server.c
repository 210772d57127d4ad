// Three kinds of threads: that of HTTP takes requests in and writes answers out, those that score
// (work) have everything else of a batch to themselves, and the follower's changes the model beside
// them. The queue has one lock; counts are atomic.
#include "edge_worker/serve/ew_server.h"

#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "edge_worker/predict/ew_scorer.h"
#include "edge_worker/serve/ew_log.h"
#include "edge_worker/serve/ew_question.h"
#include "runtime/http/rt_http.h"
#include "runtime/rt_log.h"
#include "runtime/rt_thread.h"

#define QUEUE_REQUESTS 4096u // more are told to come again
#define BATCH_REQUESTS 64u
#define THREADS_MAX 256u
#define CONNECTIONS_MAX 1024u
#define LATENCY_BINS 64u // powers of the square root of 2, from 10 us

typedef struct {
    rt_http_request *request;
    uint64_t came_ns;
} waiting;

typedef struct {
    rt_http_request *request;
    uint64_t came_ns;
    ew_question question;
    size_t lines; // where its events end in those of the batch
    ew_version version;
} asked;

typedef struct {
    ew_server *server;
    ew_scorer *scorer;
    ew_fetcher *fetcher; // NULL: all rows are here
    ew_cells *cells;
    ew_questions *questions;
    ew_event *event; // NULL: nothing is logged
    rt_bytes lines;  // events of the batch
    rt_batch batch;
    asked asked[BATCH_REQUESTS];
    uint32_t asked_count;
    rt_bytes answer;
    pthread_t thread;
    bool started;
} scoring;

struct ew_server {
    const rt_config *config;
    ew_follower *copy;
    ew_remote *remote; // NULL: all rows are in copy
    ew_device device;
    rt_http *http;
    ew_log *log; // NULL: nothing is logged
    scoring *threads;
    uint32_t thread_count;
    uint64_t begin_ns;

    pthread_mutex_t lock; // of all below
    pthread_cond_t came;
    waiting *queue; // a ring of QUEUE_REQUESTS
    uint64_t put, taken;
    uint32_t sleeping; // threads, for want of requests
    bool ends;

    atomic_uint_fast64_t questions, candidates, lookups, unknown, refused, batches;
    atomic_uint_fast64_t latency[LATENCY_BINS];
};

// ---- measurements ----------------------------------------------------------------------------

// Bins are powers, so that a quantile is off by the same share whether it is small or large.
static void note_latency(ew_server *server, uint64_t ns)
{
    const double steps = 2 * log2((double)ns / 10000.0);
    uint64_t bin = 0;
    if (steps > 0)
        bin = rt_min_u64((uint64_t)steps + 1, LATENCY_BINS - 1);
    atomic_fetch_add(&server->latency[bin], 1);
}

// Upper bound of the bin.
static double latency_ms(ew_server *server, double share)
{
    uint64_t all = 0, sum = 0;
    for (uint32_t i = 0; i < LATENCY_BINS; i++)
        all += atomic_load(&server->latency[i]);
    for (uint32_t i = 0; i < LATENCY_BINS && all > 0; i++) {
        sum += atomic_load(&server->latency[i]);
        if ((double)sum >= share * (double)all)
            return 0.01 * exp2(i / 2.0);
    }
    return (double)NAN;
}

static void put_model(ew_server *server, rt_json *json)
{
    ew_follower_state state;
    ew_follower_get_state(server->copy, &state);
    rt_json_begin_object(json, "model");
    rt_json_u64(json, "iteration", state.version.iteration);
    rt_json_u64(json, "samples", state.version.samples);
    rt_json_double(json, "age_s", rt_unix_s() - state.version.trained_s);
    rt_json_u64(json, "rows", state.rows);
    rt_json_u64(json, "updates", state.updates);
    rt_json_u64(json, "failures", state.failures);
    rt_json_double(json, "fresh_p50_s", state.fresh_p50_s);
    rt_json_double(json, "fresh_p99_s", state.fresh_p99_s);
    rt_json_double(json, "fresh_max_s", state.fresh_max_s);
    if (state.held)
        rt_json_u64(json, "held", state.held);
    if (state.failure[0])
        rt_json_string(json, "failure", state.failure);
    rt_json_end_object(json);
}

static void put_counts(ew_server *server, rt_json *json)
{
    const double lookups = (double)rt_max_u64(1, atomic_load(&server->lookups));
    pthread_mutex_lock(&server->lock);
    const uint64_t queued = server->put - server->taken;
    pthread_mutex_unlock(&server->lock);
    rt_json_u64(json, "questions", atomic_load(&server->questions));
    rt_json_u64(json, "candidates", atomic_load(&server->candidates));
    rt_json_u64(json, "refused", atomic_load(&server->refused));
    rt_json_u64(json, "batches", atomic_load(&server->batches));
    rt_json_u64(json, "queued", queued);
    rt_json_double(json, "unknown_lookups", (double)atomic_load(&server->unknown) / lookups);
    if (server->log) {
        const ew_log_counts log = ew_log_counted(server->log);
        rt_json_u64(json, "log_events", log.events);
        rt_json_u64(json, "log_dropped", log.dropped);
        rt_json_u64(json, "log_sent", log.sent);
    }
    rt_json_double(json, "latency_p50_ms", latency_ms(server, 0.5));
    rt_json_double(json, "latency_p99_ms", latency_ms(server, 0.99));
}

// Of rows that are elsewhere.
static void put_remote(ew_server *server, rt_json *json)
{
    if (!server->remote)
        return;
    const ew_remote_counts counts = ew_remote_counted(server->remote);
    rt_json_begin_object(json, "rows");
    rt_json_u64(json, "cached", counts.cached);
    rt_json_u64(json, "cache_bytes", counts.cached_bytes);
    rt_json_u64(json, "wanted", counts.wanted);
    rt_json_u64(json, "asked", counts.asked);
    rt_json_u64(json, "fetched", counts.fetched);
    rt_json_u64(json, "questions", counts.questions);
    rt_json_u64(json, "failures", counts.failures);
    rt_json_end_object(json);
}

static void answer_state(ew_server *server, rt_http_request *request, bool with_counts)
{
    rt_json json;
    size_t size = 0;
    rt_json_init(&json, 0);
    rt_json_begin_object(&json, NULL);
    ew_follower_state state;
    ew_follower_get_state(server->copy, &state);
    rt_json_string(&json, "status", state.held ? "held" : "ok");
    rt_json_double(&json, "up_s", (double)(rt_now_ns() - server->begin_ns) * 1e-9);
    if (with_counts)
        put_counts(server, &json);
    put_model(server, &json);
    put_remote(server, &json);
    rt_json_end_object(&json);
    const char *text = rt_json_text(&json, &size);
    if (text)
        rt_http_answer(request, 200, "application/json", text, size);
    else
        rt_http_refuse(request, 500, "out of memory");
    rt_json_fini(&json);
}

// ---- requests --------------------------------------------------------------------------------

static bool is_binary(const rt_http_request *request)
{
    const char *type = rt_http_header(request, "Content-Type");
    return type && strncmp(type, "application/octet-stream", 24) == 0;
}

// A full queue refuses at once: who asks can turn to another server.
static void enqueue(ew_server *server, rt_http_request *request)
{
    pthread_mutex_lock(&server->lock);
    const bool has_room = server->put - server->taken < QUEUE_REQUESTS && !server->ends;
    const bool wakes = has_room && server->sleeping > 0; // else one looks before it sleeps
    if (has_room)
        server->queue[server->put++ % QUEUE_REQUESTS] = (waiting){request, rt_now_ns()};
    pthread_mutex_unlock(&server->lock);
    if (wakes) // who wakes finds the lock free
        pthread_cond_signal(&server->came);
    if (!has_room) {
        atomic_fetch_add(&server->refused, 1);
        rt_http_refuse(request, 503, "%u requests are waiting", QUEUE_REQUESTS);
    }
}

typedef struct {
    const char *path, *method;
    bool predicts;
    bool is_binary;   // of one that predicts
    bool with_counts; // of one that does not
} resource;

static const resource resources[] = {
    {"/predict", "POST", .predicts = true},
    {"/predict.bin", "POST", .predicts = true, .is_binary = true},
    {"/health", "GET", .with_counts = false},
    {"/metrics", "GET", .with_counts = true},
};

static const resource *find_resource(const char *path)
{
    for (size_t i = 0; i < RT_COUNT_OF(resources); i++)
        if (strcmp(path, resources[i].path) == 0)
            return &resources[i];
    return NULL;
}

// In the HTTP server's thread, which must not wait: what takes time is for those that score.
static void handle(void *context, rt_http_request *request)
{
    ew_server *server = context;
    const resource *r = find_resource(rt_http_path(request));
    if (!r)
        rt_http_refuse(request, 404, "there are /predict, /predict.bin, /health and /metrics");
    else if (strcmp(rt_http_method(request), r->method) != 0)
        rt_http_refuse(request, 405, "%s expects %s", r->path, r->method);
    else if (!r->predicts)
        answer_state(server, request, r->with_counts);
    else if (is_binary(request) != r->is_binary)
        rt_http_refuse(request, 415,
                       "/predict expects JSON, /predict.bin expects application/octet-stream");
    else
        enqueue(server, request);
}

// ---- scoring ---------------------------------------------------------------------------------

// One of those that wait; false: none does.
static bool take(ew_server *server, bool waits, waiting *one)
{
    pthread_mutex_lock(&server->lock);
    while (waits && server->taken == server->put && !server->ends) {
        server->sleeping++;
        pthread_cond_wait(&server->came, &server->lock);
        server->sleeping--;
    }
    const bool has_one = server->taken < server->put;
    if (has_one)
        *one = server->queue[server->taken++ % QUEUE_REQUESTS];
    pthread_mutex_unlock(&server->lock);
    return has_one;
}

static unsigned http_code(rt_status status)
{
    static const struct {
        rt_status status;
        unsigned code;
    } codes[] = {
        {RT_DATA, 400},  // the question is wrong
        {RT_LIMIT, 413}, // it is too large
        {RT_PEER, 503},  // rows that it needs are elsewhere: it may be asked again
    };
    for (size_t i = 0; i < RT_COUNT_OF(codes); i++)
        if (codes[i].status == status)
            return codes[i].code;
    return 500;
}

static void refuse(ew_server *server, rt_http_request *request, const rt_error *error)
{
    atomic_fetch_add(&server->refused, 1);
    rt_http_refuse(request, http_code(error->status), "%s", error->text);
}

// Into the batch; or it is refused at once, alone, and the others stay.
static void take_question(scoring *s, const waiting *one)
{
    ew_server *server = s->server;
    rt_error error = {0};
    size_t size;
    const char *body = rt_http_body(one->request, &size);
    const bool binary = strcmp(rt_http_path(one->request), "/predict.bin") == 0;
    asked *a = &s->asked[s->asked_count];
    char name[EW_LOG_NAME_SIZE];
    if (s->event) {
        ew_log_name(server->log, name);
        ew_questions_name(s->questions, name);
    }
    *a = (asked){.request = one->request, .came_ns = one->came_ns};
    if (ew_question_take(s->questions, body, size, binary, server->config->serve.candidates_max,
                         &s->batch, &a->question, &error))
        refuse(server, one->request, &error);
    else
        s->asked_count++;
    a->lines = s->lines.size;
}

// Those that wait and fit into one batch. False: the server ends.
static bool gather(scoring *s)
{
    const uint32_t most = s->server->config->serve.candidates_max;
    waiting one;
    s->asked_count = 0;
    rt_bytes_clear(&s->lines);
    rt_batch_clear(&s->batch);
    if (!take(s->server, true, &one))
        return false;
    take_question(s, &one);
    while (s->asked_count < BATCH_REQUESTS && s->batch.sample_count < most &&
           take(s->server, false, &one))
        take_question(s, &one);
    return true;
}

// Of which version each answer is. Questions that lack rows are refused, and their events are none.
static uint32_t judge(scoring *s, const ew_version *version)
{
    const uint32_t *offsets = s->batch.key_offsets;
    uint32_t good = 0, samples = 0;
    size_t from = 0, kept = 0;
    for (uint32_t i = 0; i < s->asked_count; i++) {
        asked a = s->asked[i];
        const uint32_t first = a.question.first, end = first + a.question.count;
        const size_t lines = a.lines - from;
        rt_error error = {0};
        a.version = *version;
        if (s->fetcher &&
            ew_fetcher_judge(s->fetcher, offsets[first], offsets[end], &a.version, &error)) {
            refuse(s->server, a.request, &error);
        } else {
            if (lines > 0 && kept < from)
                memmove(s->lines.data + kept, s->lines.data + from, lines);
            kept += lines;
            samples += a.question.count;
            s->asked[good++] = a;
        }
        from += lines;
    }
    s->lines.size = kept;
    s->asked_count = good;
    return samples;
}

static void answer(scoring *s, const float *probabilities)
{
    ew_server *server = s->server;
    const double now_s = rt_unix_s();
    atomic_fetch_add(&server->batches, 1);
    for (uint32_t i = 0; i < s->asked_count; i++) {
        const asked *a = &s->asked[i];
        const bool binary = a->question.is_binary;
        if (ew_question_answer(s->questions, &a->question, probabilities, &a->version, now_s,
                               &s->answer)) {
            rt_http_refuse(a->request, 500, "out of memory");
            continue;
        }
        // Before it leaves: who has an answer finds it counted.
        note_latency(server, rt_now_ns() - a->came_ns);
        atomic_fetch_add(&server->questions, 1);
        atomic_fetch_add(&server->candidates, a->question.count);
        const char *type = binary ? "application/octet-stream" : "application/json";
        rt_http_answer(a->request, 200, type, s->answer.data, s->answer.size);
    }
}

// The model cannot change between enter and leave: *version is that of all rows that were read.
static rt_status run_model(scoring *s, ew_version *version, const float **probabilities_p,
                           rt_error *error)
{
    ew_server *server = s->server;
    uint32_t side;
    const ew_scorer_counts before = ew_scorer_counted(s->scorer);
    ew_finished view = *ew_follower_enter(server->copy, &side, version);
    if (s->fetcher)
        view.elsewhere = ew_fetcher_begin(s->fetcher, version);
    const rt_status status = ew_scorer_run(s->scorer, &view, &s->batch, probabilities_p, error);
    ew_follower_leave(server->copy, side);
    const ew_scorer_counts after = ew_scorer_counted(s->scorer);
    atomic_fetch_add(&server->lookups, after.lookups - before.lookups);
    atomic_fetch_add(&server->unknown, after.unknown - before.unknown);
    return status;
}

static void score(scoring *s)
{
    const float *probabilities;
    rt_error error = {0};
    ew_version version;
    if (run_model(s, &version, &probabilities, &error)) {
        for (uint32_t i = 0; i < s->asked_count; i++)
            refuse(s->server, s->asked[i].request, &error);
        return;
    }
    const uint32_t samples = judge(s, &version);
    if (s->lines.size > 0) // before anybody can say what became of it
        ew_log_put(s->server->log, s->lines.data, s->lines.size, samples);
    answer(s, probabilities);
}

static void *work(void *context)
{
    scoring *s = context;
    while (gather(s))
        if (s->asked_count > 0)
            score(s);
    return NULL;
}

// ---- beginning and end -----------------------------------------------------------------------

static rt_status create_thread(ew_server *server, scoring *s, const ew_finished *weights,
                               rt_error *error)
{
    const rt_config *model = weights->config;
    s->server = server;
    rt_batch_init(&s->batch, weights->schema.dense_count);
    // Whoever asks for as many as may be finds room behind others.
    rt_status status = ew_scorer_create(
        weights, &server->device, 2 * server->config->serve.candidates_max, &s->scorer, error);
    if (status)
        return status;
    if (server->remote && ew_fetcher_create(server->remote, &s->fetcher))
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    status = ew_cells_create(model, &s->cells, error);
    if (status)
        return status;
    if (ew_questions_create(s->cells, &weights->schema, &s->questions))
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    if (!server->log)
        return RT_OK;
    status = ew_event_create(model, s->cells, &s->event, error);
    if (!status)
        ew_questions_keep(s->questions, s->event, &s->lines);
    return status;
}

static rt_status create_each(ew_server *server, const ew_finished *weights, rt_error *error)
{
    for (uint32_t i = 0; i < server->thread_count; i++) {
        const rt_status status = create_thread(server, &server->threads[i], weights, error);
        if (status)
            return status;
    }
    return RT_OK;
}

static rt_status run_threads(ew_server *server, rt_error *error)
{
    for (uint32_t i = 0; i < server->thread_count; i++) {
        scoring *s = &server->threads[i];
        const rt_status status = rt_thread_run(&s->thread, &s->started, work, s, error);
        if (status)
            return status;
    }
    return RT_OK;
}

// One for each core that the process may use.
static uint32_t count_threads(void)
{
    return (uint32_t)rt_min_u64(rt_thread_cores(), THREADS_MAX);
}

static rt_status create_threads(ew_server *server, rt_error *error)
{
    uint32_t side;
    ew_version version;
    server->thread_count = count_threads();
    server->threads = rt_alloc(server->thread_count, sizeof *server->threads);
    if (!server->threads)
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    const ew_finished *weights = ew_follower_enter(server->copy, &side, &version);
    const rt_status status = create_each(server, weights, error);
    ew_follower_leave(server->copy, side);
    if (status)
        return status;
    return run_threads(server, error);
}

static rt_status listen_http(ew_server *server, rt_error *error)
{
    rt_http_config http;
    rt_http_defaults(server->config, &http);
    http.name = "http"; // the log begins its lines with "serve"
    http.key = "serve.address";
    http.address = server->config->serve.address;
    http.connections_max = CONNECTIONS_MAX;
    http.handle = handle;
    http.context = server;
    return rt_http_open(&http, &server->http, error);
}

static rt_status open_all(ew_server *server, rt_error *error)
{
    server->queue = rt_alloc(QUEUE_REQUESTS, sizeof *server->queue);
    if (!server->queue)
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    rt_status status = ew_scorer_open_device(1, &server->device, error);
    if (status)
        return status;
    if (*server->config->serve.log)
        status = ew_log_open(server->config, &server->log, error);
    if (status)
        return status;
    status = create_threads(server, error);
    if (status)
        return status;
    return listen_http(server, error); // last: there is somebody who answers what comes
}

rt_status ew_server_open(const rt_config *config, ew_follower *copy, ew_remote *remote,
                         ew_server **server_p, rt_error *error)
{
    ew_server *server = rt_alloc(1, sizeof *server);
    if (!server)
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    server->config = config;
    server->copy = copy;
    server->remote = remote;
    server->begin_ns = rt_now_ns();
    pthread_mutex_init(&server->lock, NULL);
    pthread_cond_init(&server->came, NULL);
    const rt_status status = open_all(server, error);
    if (status) {
        ew_server_close(server);
        return status;
    }
    *server_p = server;
    return RT_OK;
}

const char *ew_server_url(const ew_server *server)
{
    return rt_http_url(server->http);
}

void ew_server_close(ew_server *server)
{
    if (!server)
        return;
    if (server->http)
        rt_http_quiet(server->http);
    pthread_mutex_lock(&server->lock);
    server->ends = true;
    pthread_cond_broadcast(&server->came);
    pthread_mutex_unlock(&server->lock);
    for (uint32_t i = 0; server->threads && i < server->thread_count; i++) {
        scoring *s = &server->threads[i];
        if (s->started)
            pthread_join(s->thread, NULL);
        ew_questions_destroy(s->questions);
        ew_event_destroy(s->event);
        rt_bytes_fini(&s->lines);
        ew_cells_destroy(s->cells);
        ew_scorer_destroy(s->scorer);
        ew_fetcher_destroy(s->fetcher);
        rt_batch_fini(&s->batch);
        rt_bytes_fini(&s->answer);
    }
    rt_http_close(server->http);
    ew_log_close(server->log);
    rt_free(server->threads);
    rt_free(server->queue);
    ew_device_close(&server->device);
    pthread_cond_destroy(&server->came);
    pthread_mutex_destroy(&server->lock);
    rt_free(server);
}
