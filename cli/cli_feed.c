// `lanyard feed`: events of this box go to the coordinator's, over a spool on this disk.
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "runtime/live/rt_feed.h"

static void print_counts(const char *what, const rt_feed_counts *counts)
{
    printf("%" PRIu64 " %s came, %" PRIu64 " are at the coordinator%s\n", counts->taken, what,
           counts->kept, counts->kept < counts->taken ? ", the others in the spool" : "");
}

int cli_feed(int argc, char **argv)
{
    const char *path = NULL, *spool = "", *sets[CLI_SETS_MAX];
    uint32_t set_count;
    rt_config config;
    rt_error error = {0};
    rt_feed_counts counts[RT_FLOWS] = {0};
    const cli_option options[] = {{"spool", &spool, NULL}};
    if (!cli_parse(argc, argv, options, RT_COUNT_OF(options), &path, sets, &set_count))
        return CLI_USAGE;
    const int code = cli_load(path, sets, set_count, "feed", &config);
    if (code != CLI_OK)
        return code;
    if (!*spool && !*config.journal_directory) {
        fprintf(stderr, "lanyard feed: where is the spool? Give --spool DIR, or journal.directory "
                        "in CONFIG\n");
        rt_config_fini(&config);
        return CLI_USAGE;
    }
    const int stop_fd = cli_open_stop_fd();
    rt_status status = cli_await(&config, CLI_FEEDER, 0, stop_fd, NULL, &error);
    if (!status)
        status = rt_feed_run(&config, spool, stop_fd, counts, &error);
    const bool has_outcomes = rt_config_has_join(&config.stream);
    rt_config_fini(&config);
    if (stop_fd >= 0)
        close(stop_fd);
    if (status && status != RT_END)
        return cli_fail(&error);
    print_counts("events", &counts[RT_FLOW_EVENTS]);
    if (has_outcomes)
        print_counts("outcomes", &counts[RT_FLOW_OUTCOMES]);
    return CLI_OK;
}
