// `lanyard serve`: answers over HTTP with a model, or with the newest that a run has published.
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "edge_worker/serve/ew_server.h"
#include "runtime/rt_log.h"

// The settings are those of the model's config.json with --set over them. They are read before any
// thread is there that could read the environment.
static rt_status serve(const char *folder, const char *const *sets, uint32_t set_count,
                       rt_error *error)
{
    const ew_follower_config follow = {folder, sets, set_count};
    ew_follower *copy = NULL;
    ew_server *server = NULL;
    sigset_t ends;
    rt_config config;
    int number;
    sigemptyset(&ends);
    sigaddset(&ends, SIGINT);
    sigaddset(&ends, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &ends, NULL);
    rt_status status = ew_follower_open(&follow, &copy, error);
    if (status)
        return status;
    status = rt_config_copy(ew_follower_model_config(copy), &config);
    if (status) {
        ew_follower_close(copy);
        return rt_fail(error, status, "out of memory");
    }
    rt_log_setup(config.log_level, "serve");
    status = ew_server_open(&config, copy, &server, error);
    if (!status) {
        printf("%s\n", ew_server_url(server));
        fflush(stdout);
        while (sigwait(&ends, &number) != 0)
            ;
        rt_info("ends");
    }
    ew_server_close(server);
    ew_follower_close(copy);
    rt_config_fini(&config);
    return status;
}

int cli_serve(int argc, char **argv)
{
    const char *folder = NULL, *sets[CLI_SETS_MAX];
    uint32_t set_count;
    rt_error error = {0};
    rt_log_setup(RT_LOG_INFO, "serve");
    if (!cli_parse(argc, argv, NULL, 0, &folder, sets, &set_count))
        return CLI_USAGE;
    if (!folder) {
        fprintf(stderr, "lanyard serve: which MODEL? The folder model/ of a run, or the one that a "
                        "run publishes to\n");
        return CLI_USAGE;
    }
    return serve(folder, sets, set_count, &error) ? cli_fail(&error) : CLI_OK;
}
