// `lanyard serve`: answers over HTTP with a model, or with the newest that a run has published.
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "cli/cli.h"
#include "edge_worker/serve/ew_lender.h"
#include "edge_worker/serve/ew_server.h"
#include "edge_worker/serve/ew_subscriber.h"
#include "runtime/config/rt_await.h"
#include "runtime/rt_log.h"
#include "runtime/rt_priority.h"
#include "runtime/transport/rt_keys.h"

#define LOOK_MS 100                         // between two looks for the first model
#define SAY_AGAIN_NS UINT64_C(600000000000) // what is waited for

typedef struct {
    const char *folder, *run; // run: address, or two; NULL: nobody is asked
    const char *sets[CLI_SETS_MAX];
    uint32_t set_count;
    char address[RT_NAME_MAX + 16]; // of run
    bool fetches;                   // rows, from there
    double start_s;                 // it is waited for so long: timeouts.start_s
    rt_keys keys;
    ew_subscriber *subscriber;
    ew_follower *follower;
    ew_remote *remote;
    ew_lender *lender;
    ew_server *server;
} serving;

// With the keys that --set names: there is no model here yet that could name others.
static rt_status subscribe(serving *s, rt_error *error)
{
    char standby[RT_NAME_MAX + 16] = "", first[RT_NAME_MAX];
    const char *comma = strchr(s->run, ',');
    const size_t size = comma ? (size_t)(comma - s->run) : strlen(s->run);
    rt_config config;
    snprintf(first, sizeof first, "%.*s", (int)rt_min_u64(size, sizeof first - 1), s->run);
    if (size >= sizeof first || !cli_address(first, s->address, sizeof s->address) ||
        (comma && !cli_address(comma + 1, standby, sizeof standby)))
        return rt_fail(error, RT_CONFIG, "--run: expected HOST:PORT, or two with a comma between");
    rt_status status = rt_config_init(&config);
    if (status)
        return rt_fail(error, status, "out of memory");
    for (uint32_t i = 0; i < s->set_count && !status; i++)
        status = rt_config_set(&config, s->sets[i], error);
    if (!status)
        status = rt_keys_load(&config, &s->keys, error);
    s->fetches = config.serve.rows == RT_SERVE_ROWS_FETCHED;
    s->start_s = config.timeout_start_s;
    if (!status && s->fetches && comma)
        status =
            rt_fail(error, RT_CONFIG,
                    "--run: with serve.rows \"fetched\" one address: rows are asked of that box");
    const ew_subscriber_config ask = {s->address,          standby,  s->folder,
                                      config.publish.keep, &s->keys, s->fetches};
    if (!status)
        status = ew_subscriber_open(&ask, &s->subscriber, error);
    rt_config_fini(&config);
    return status;
}

// However long it takes until a run of this box has published: who starts first is not for the two
// to say. With --run it has an end, as for members of a run: whoever does not answer may be nobody.
static rt_status await_model(const serving *s, int stop_fd, rt_error *error)
{
    const uint64_t begin_ns = rt_now_ns();
    uint64_t said_ns = 0;
    for (;;) {
        const rt_status status = s->subscriber ? ew_subscriber_find(s->subscriber, error)
                                               : ew_source_find(s->folder, error);
        if (status != RT_AGAIN)
            return status;
        const uint64_t now_ns = rt_now_ns();
        if (s->subscriber && (double)(now_ns - begin_ns) > s->start_s * 1e9)
            return RT_TIMEOUT;
        if (!said_ns || now_ns - said_ns >= SAY_AGAIN_NS) {
            rt_info("waits for a model: %s", error->text);
            said_ns = now_ns;
        }
        if (!rt_await_pause(stop_fd, LOOK_MS))
            return rt_fail(error, RT_STOPPED, "ends, while it waited for a model");
    }
}

static rt_status check_rows(const serving *s, const rt_config *config, rt_error *error)
{
    const bool wants = config->serve.rows == RT_SERVE_ROWS_FETCHED;
    if (wants && !s->run)
        return rt_fail(error, RT_CONFIG,
                       "serve.rows: fetched rows come from another server: --run HOST:PORT, its "
                       "serve.hand_out");
    if (wants != s->fetches)
        return rt_fail(error, RT_CONFIG, "serve.rows: the model's config.json says otherwise: give "
                                         "it by --set");
    if (wants && *config->serve.hand_out)
        return rt_fail(error, RT_CONFIG,
                       "serve.hand_out: a server with fetched rows has none to hand out");
    return RT_OK;
}

// Where rows come from, or go to.
static rt_status open_rows(serving *s, const rt_config *config, rt_error *error)
{
    rt_status status = check_rows(s, config, error);
    if (!status && !s->run && *config->serve.hand_out)
        status = rt_keys_load(config, &s->keys, error);
    const ew_remote_config remote = {.address = s->address,
                                     .keys = &s->keys,
                                     .dim = config->model.embedding_dim,
                                     .cache_bytes_max = config->serve.cache_bytes_max,
                                     .fetch_ms = config->serve.fetch_ms};
    const ew_lender_config lender = {config->serve.hand_out, s->folder, &s->keys, s->follower};
    if (!status && s->fetches)
        status = ew_remote_open(&remote, &s->remote, error);
    if (!status && *config->serve.hand_out)
        status = ew_lender_open(&lender, &s->lender, error);
    return status;
}

static rt_status answer(serving *s, const rt_config *config, int stop_fd, const sigset_t *ends,
                        rt_error *error)
{
    int number;
    rt_status status = cli_await(config, CLI_SERVER, 0, stop_fd, NULL, error);
    if (!status)
        status = open_rows(s, config, error);
    if (!status)
        status = ew_server_open(config, s->follower, s->remote, &s->server, error);
    if (status)
        return status;
    printf("%s\n", ew_server_url(s->server));
    fflush(stdout);
    while (sigwait(ends, &number) != 0)
        ;
    rt_info("ends");
    return RT_OK;
}

static rt_status follow_and_answer(serving *s, int stop_fd, const sigset_t *ends, rt_error *error)
{
    rt_config config;
    rt_status status = s->run ? subscribe(s, error) : RT_OK;
    if (!status)
        status = await_model(s, stop_fd, error);
    const ew_follower_config follow = {s->folder, s->sets, s->set_count, s->fetches};
    if (!status)
        status = ew_follower_open(&follow, &s->follower, error);
    if (status)
        return status;
    status = ew_follower_copy_config(s->follower, &config);
    if (status)
        return rt_fail(error, status, "out of memory");
    rt_log_setup(config.log_level, "serve");
    status = answer(s, &config, stop_fd, ends, error);
    ew_server_close(s->server); // while config is there
    rt_config_fini(&config);
    return status;
}

static rt_status serve(serving *s, rt_error *error)
{
    sigset_t ends;
    sigemptyset(&ends);
    sigaddset(&ends, SIGINT);
    sigaddset(&ends, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &ends, NULL); // for sigwait, in all threads
    const int stop_fd = signalfd(-1, &ends, SFD_NONBLOCK | SFD_CLOEXEC);
    if (stop_fd < 0)
        return rt_fail(error, RT_IO, "signalfd: %s", strerror(errno));
    const rt_status status = follow_and_answer(s, stop_fd, &ends, error);
    close(stop_fd);
    if (status != RT_STOPPED)
        return status;
    rt_info("%s", error->text);
    return RT_OK;
}

int cli_serve(int argc, char **argv)
{
    static serving s; // only main's thread
    rt_error error = {0};
    const cli_option options[] = {{"run", &s.run, NULL}};
    rt_log_setup(RT_LOG_INFO, "serve");
    rt_priority_prompt();
    if (!cli_parse(argc, argv, options, RT_COUNT_OF(options), &s.folder, s.sets, &s.set_count))
        return CLI_USAGE;
    if (!s.folder) {
        fprintf(stderr, "lanyard serve: which MODEL? The folder model/ of a run, the one that a "
                        "run publishes to, or with --run the one that a copy is kept in\n");
        return CLI_USAGE;
    }
    rt_status status = serve(&s, &error);
    ew_lender_close(s.lender);
    ew_remote_close(s.remote);
    ew_follower_close(s.follower);
    ew_subscriber_close(s.subscriber);
    rt_keys_clear(&s.keys);
    return status ? cli_fail(&error) : CLI_OK;
}
