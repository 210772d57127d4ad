// `lanyard pin` and `lanyard rollback`: which of the published models servers answer with.
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "runtime/files/rt_checkpoint.h"
#include "runtime/files/rt_published.h"

typedef rt_status (*choice)(const char *folder, const char *wanted, rt_published *published,
                            rt_error *error);

static rt_status change_locked(const char *folder, const char *wanted, choice choose,
                               rt_published *published, rt_error *error)
{
    rt_status status = rt_published_read(folder, published, error);
    if (status)
        return status;
    status = choose(folder, wanted, published, error);
    if (status)
        return status;
    return rt_published_write(folder, published, error);
}

// With the folder's lock held from reading to writing.
static rt_status change(const char *folder, const char *wanted, choice choose,
                        rt_published *published, rt_error *error)
{
    int lock;
    rt_status status = rt_published_read(folder, published, error); // before a lock file is made
    if (status == RT_NOT_FOUND)
        return rt_fail(error, status,
                       "%s: no " RT_PUBLISHED_CURRENT ": expected the folder that a run publishes "
                       "to (published/ in that of --out), and a model in it",
                       folder);
    if (status)
        return status;
    status = rt_published_lock(folder, &lock, error);
    if (status)
        return status;
    status = change_locked(folder, wanted, choose, published, error);
    close(lock);
    return status;
}

// Names those that there are.
static rt_status fail_without_version(const char *folder, uint32_t iteration, rt_error *error)
{
    uint32_t *iterations, count;
    char there[200] = "";
    if (rt_checkpoint_list(folder, &iterations, &count, NULL))
        return RT_NOT_FOUND;
    for (uint32_t i = 0; i < count; i++)
        snprintf(there + strlen(there), sizeof there - strlen(there), " %" PRIu32, iterations[i]);
    rt_free(iterations);
    return rt_fail(error, RT_NOT_FOUND, "--version: %s has none of iteration %" PRIu32 ", but%s",
                   folder, iteration, there);
}

static rt_status pin(const char *folder, const char *wanted, rt_published *published,
                     rt_error *error)
{
    rt_published_version version;
    char *end;
    published->pinned = true;
    if (!wanted)
        return RT_OK;
    const unsigned long number = strtoul(wanted, &end, 10);
    if (*wanted < '0' || *wanted > '9' || *end || number == 0 || number > UINT32_MAX)
        return rt_fail(error, RT_CONFIG, "--version: expected the iteration of a version, found %s",
                       wanted);
    published->iteration = (uint32_t)number;
    const rt_status status = rt_published_version_of(folder, published->iteration, &version, error);
    if (status == RT_NOT_FOUND)
        return fail_without_version(folder, published->iteration, error);
    return status;
}

// The newest good one is in force, and so are those that come.
static rt_status unpin(const char *folder, const char *wanted, rt_published *published,
                       rt_error *error)
{
    (void)wanted;
    published->pinned = false;
    return rt_published_before(folder, UINT32_MAX, &published->iteration, error);
}

static rt_status roll_back(const char *folder, const char *wanted, rt_published *published,
                           rt_error *error)
{
    (void)wanted;
    published->pinned = true;
    return rt_published_before(folder, published->iteration, &published->iteration, error);
}

static int tell(const char *folder, const char *wanted, choice choose)
{
    rt_published published;
    rt_error error = {0};
    if (change(folder, wanted, choose, &published, &error))
        return cli_fail(&error);
    const char *how = "";
    if (published.pinned)
        how = ", pinned: what is published does not replace it (--off ends that)";
    printf("%s: iteration %" PRIu32 "%s\n", folder, published.iteration, how);
    return CLI_OK;
}

int cli_pin(int argc, char **argv)
{
    const char *folder = NULL, *version = NULL, *sets[CLI_SETS_MAX];
    uint32_t set_count;
    bool off = false;
    const cli_option options[] = {{"version", &version, NULL}, {"off", NULL, &off}};
    rt_log_setup(RT_LOG_INFO, "lanyard");
    if (!cli_parse(argc, argv, options, RT_COUNT_OF(options), &folder, sets, &set_count))
        return CLI_USAGE;
    if (!folder || set_count || (off && version)) {
        fprintf(stderr, "lanyard pin: expected FOLDER [--version N | --off]; FOLDER is the one "
                        "that a run publishes to\n");
        return CLI_USAGE;
    }
    return tell(folder, version, off ? unpin : pin);
}

int cli_rollback(int argc, char **argv)
{
    const char *folder = NULL, *sets[CLI_SETS_MAX];
    uint32_t set_count;
    rt_log_setup(RT_LOG_INFO, "lanyard");
    if (!cli_parse(argc, argv, NULL, 0, &folder, sets, &set_count))
        return CLI_USAGE;
    if (!folder || set_count) {
        fprintf(stderr, "lanyard rollback: expected FOLDER, the one that a run publishes to\n");
        return CLI_USAGE;
    }
    return tell(folder, NULL, roll_back);
}
