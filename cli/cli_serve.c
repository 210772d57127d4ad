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

// "HOST:PORT", or two with a comma between; standby: "", or the second one.
static rt_status read_addresses(serving *s, char standby[RT_NAME_MAX + 16], rt_error *error)
{
    char first[RT_NAME_MAX];
    const size_t size = strcspn(s->run, ",");
    const bool has_both = s->run[size] == ',';
    standby[0] = '\0';
    snprintf(first, sizeof first, "%.*s", (int)rt_min_u64(size, sizeof first - 1), s->run);
    if (size >= sizeof first || !cli_address(first, s->address, sizeof s->address) ||
        (has_both && !cli_address(s->run + size + 1, standby, RT_NAME_MAX + 16)))
        return rt_fail(error, RT_CONFIG, "--run: expected HOST:PORT, or two with a comma between");
    return RT_OK;
}

// config: the defaults, for what --set says.
static rt_status subscribe_with(serving *s, rt_config *config, const char *standby, rt_error *error)
{
    for (uint32_t i = 0; i < s->set_count; i++) {
        const rt_status status = rt_config_set(config, s->sets[i], error);
        if (status)
            return status;
    }
    const rt_status status = rt_keys_load(config, &s->keys, error);
    if (status)
        return status;
    s->fetches = config->serve.rows == RT_SERVE_ROWS_FETCHED;
    s->start_s = config->timeout_start_s;
    if (s->fetches && *standby)
        return rt_fail(
            error, RT_CONFIG,
            "--run: expected one address with serve.rows \"fetched\", because all rows come from "
            "that box");
    const ew_subscriber_config ask = {s->address,           standby,  s->folder,
                                      config->publish.keep, &s->keys, s->fetches};
    return ew_subscriber_open(&ask, &s->subscriber, error);
}

// With the keys that --set names: there is no model here yet that could name others.
static rt_status subscribe(serving *s, rt_error *error)
{
    char standby[RT_NAME_MAX + 16];
    rt_config config;
    rt_status status = read_addresses(s, standby, error);
    if (status)
        return status;
    status = rt_config_init(&config);
    if (status)
        return rt_fail(error, status, "out of memory");
    status = subscribe_with(s, &config, standby, error);
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
        rt_status status;
        if (s->subscriber)
            status = ew_subscriber_find(s->subscriber, error);
        else
            status = ew_source_find(s->folder, error);
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
        return rt_fail(error, RT_CONFIG,
                       "serve.rows: the model's config.json says otherwise: give "
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
    if (status)
        return status;
    if (!s->run && *config->serve.hand_out)
        status = rt_keys_load(config, &s->keys, error);
    if (status)
        return status;
    const ew_remote_config remote = {.address = s->address,
                                     .keys = &s->keys,
                                     .dim = config->model.embedding_dim,
                                     .cache_bytes_max = config->serve.cache_bytes_max,
                                     .fetch_ms = config->serve.fetch_ms};
    const ew_lender_config lender = {config->serve.hand_out, s->folder, &s->keys, s->follower};
    if (s->fetches)
        return ew_remote_open(&remote, &s->remote, error);
    if (*config->serve.hand_out)
        return ew_lender_open(&lender, &s->lender, error);
    return RT_OK;
}

static rt_status answer(serving *s, const rt_config *config, int stop_fd, const sigset_t *ends,
                        rt_error *error)
{
    int number;
    rt_status status = cli_await(config, CLI_SERVER, 0, stop_fd, NULL, error);
    if (status)
        return status;
    status = open_rows(s, config, error);
    if (status)
        return status;
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
    rt_status status = RT_OK;
    if (s->run)
        status = subscribe(s, error);
    if (status)
        return status;
    status = await_model(s, stop_fd, error);
    if (status)
        return status;
    const ew_follower_config follow = {s->folder, s->sets, s->set_count, s->fetches};
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
    static char model[RT_PATH_MAX];
    rt_error error = {0};
    const cli_option options[] = {{"run", &s.run, NULL}};
    rt_log_setup(RT_LOG_INFO, "serve");
    rt_priority_prompt();
    if (!cli_parse(argc, argv, options, RT_COUNT_OF(options), &s.folder, s.sets, &s.set_count))
        return CLI_USAGE;
    if (!s.folder) {
        fprintf(stderr, "lanyard serve: which MODEL? The folder of a run, the one that a "
                        "run publishes to, or with --run the one that a copy is kept in\n");
        return CLI_USAGE;
    }
    s.folder = cli_model_of(s.folder, model);
    rt_status status = serve(&s, &error);
    ew_lender_close(s.lender);
    ew_remote_close(s.remote);
    ew_follower_close(s.follower);
    ew_subscriber_close(s.subscriber);
    rt_keys_clear(&s.keys);
    return cli_end(status, &error);
}
