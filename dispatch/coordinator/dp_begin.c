#include "dispatch/coordinator/dp_begin.h"

#include <stdio.h>
#include <time.h>

#include "dispatch/coordinator/dp_adding.h"
#include "dispatch/coordinator/dp_run.h"
#include "dispatch/planner/dp_setup.h"
#include "runtime/live/rt_standby.h"
#include "runtime/files/rt_own.h"
#include "runtime/rt_log.h"

// ---- the folder ------------------------------------------------------------------------------

// A standby is on another box, whatever members use between each other.
static const rt_transport_ops *mirror_ops(const dp_run *c)
{
    if (c->site_config.network_transport == RT_NETWORK_MIXED)
        return &rt_transport_zmq;
    return c->own.ops;
}

// A standby that was promoted says so before anything begins.
static rt_status open_mirror(dp_run *c, rt_error *error)
{
    const rt_config *config = &c->site_config;
    const bool waits = config->standby_away == RT_STANDBY_WAIT;
    const double limit_s = waits ? config->timeout_start_s : config->timeout_peer_s;
    char address[RT_NAME_MAX + 16];
    if (!*config->standby)
        return RT_OK;
    if (!c->own.directory)
        return rt_fail(error, RT_CONFIG, "coordinator.standby: needs a folder of the run: --out");
    snprintf(address, sizeof address, "tcp://%s", config->standby);
    const rt_mirror_config mirror = {.ops = mirror_ops(c),
                                     .keys = c->own.keys,
                                     .address = address,
                                     .directory = c->own.directory,
                                     .checkpoints = c->checkpoints,
                                     .epoch = dp_checkpoint_epoch(c->checkpoints),
                                     .waits = waits,
                                     .timeout_peer_s = config->timeout_peer_s};
    rt_status status = rt_mirror_open(&mirror, &c->mirror, error);
    if (status)
        return status;
    rt_notify_ready(c->own.notify);
    status = rt_mirror_await(c->mirror, limit_s, c->own.stop_fd, error);
    if (status != RT_TIMEOUT || waits)
        return status;
    rt_warn("%s: the run begins without it", error->text);
    *error = (rt_error){0};
    return RT_OK;
}

// Now, not when there is something to be written to them.
static rt_status check_names(const dp_run *c, rt_error *error)
{
    const rt_config *config = &c->site_config;
    const struct {
        const char *name, *elsewhere;
    } all[] = {{"checkpoints", config->checkpoint.directory},
               {"journal", config->journal_directory},
               {"published", config->publish.folder},
               {"model", ""},
               {"model.tmp", ""},
               {"model.old", ""}};
    char path[RT_PATH_MAX + 16];
    rt_status status = RT_OK;
    for (size_t i = 0; i < RT_COUNT_OF(all) && !status; i++) {
        snprintf(path, sizeof path, "%s/%s", c->own.directory, all[i].name);
        if (!*all[i].elsewhere)
            status = rt_own_check_folder(path, error);
    }
    return status;
}

// Where checkpoints are, whether the run goes on from one, and what its folder is called.
static rt_status open_folder(dp_run *c, rt_error *error)
{
    rt_status status = c->own.directory ? check_names(c, error) : RT_OK;
    if (status)
        return status;
    status = dp_resume_prepare(&c->site_config, c->own.directory, c->own.resume, c->checkpoints,
                               sizeof c->checkpoints, &c->resumes, &c->has_epoch, error);
    if (status)
        return status;
    status = open_mirror(c, error);
    if (status || !c->own.directory || !c->has_epoch)
        return status;
    return rt_standby_read_id(c->own.directory, &c->id, error);
}

// ---- what is read ----------------------------------------------------------------------------

static rt_status open_watch(dp_run *c, rt_error *error)
{
    const rt_config *config = &c->site_config;
    const bool goes_on = c->own.resume != DP_RESUME_NO;
    rt_status status = dp_watch_open(config, c->own.directory, goes_on, &c->watch, error);
    if (status)
        return status;
    return dp_watch_note(config, &c->run_config.stream.names, &c->watch, error);
}

static rt_status open_live(dp_run *c, rt_error *error)
{
    char journal[RT_PATH_MAX + 16] = "";
    if (!rt_live_is_wanted(&c->site_config))
        return RT_OK;
    if (c->own.directory)
        snprintf(journal, sizeof journal, "%s/journal", c->own.directory);
    rt_status status = rt_live_open_with(&c->site_config, journal, c->mirror, &c->live, error);
    c->run_config.stream.live = c->live;
    return status;
}

// What is sent, or the files: the stream may point to journal and names of values.
static rt_status open_stream(dp_run *c, rt_error *error)
{
    rt_status status = open_watch(c, error);
    if (status)
        return status;
    status = open_live(c, error);
    if (status)
        return status;
    return rt_stream_open(&c->run_config.stream, c->site_config.seed, &c->stream, error);
}

// Its rows are at the shards: whoever touches one first pulls it.
static rt_status read_model(dp_run *c, rt_error *error)
{
    const rt_config *config = &c->site_config;
    if (!c->own.model)
        return RT_OK;
    if (config->ps_homes == RT_HOMES_PLANNED)
        return rt_fail(error, RT_CONFIG,
                       "--init needs ps.homes \"hashed\": rows of a model are pulled before the "
                       "planner has given them a home");
    if (rt_rows_are_admitted(&config->rows))
        return rt_fail(
            error, RT_CONFIG,
            "--init needs rows.admit 1 and rows.admit_share 1: keys of the model's rows would "
            "be left out until they had come often enough again");
    c->run_config.dispatch.first_touch = RT_FIRST_TOUCH_PULL;
    return dp_initial_read(c->own.model, config, rt_stream_schema(c->stream), &c->initial, error);
}

// ---- who takes part --------------------------------------------------------------------------

static rt_status read_members(dp_run *c, rt_error *error)
{
    rt_status status = dp_adding_begin(c, error);
    if (status)
        return status;
    if (*c->checkpoints)
        dp_flaps_read(&c->flaps, c->checkpoints);
    return dp_members_read(&c->site_config, c->checkpoints, &c->members, error);
}

// Members agree on the whole configuration; from then on the run is of those that take part.
static rt_status create_roster(dp_run *c, rt_error *error)
{
    const rt_config *config = &c->site_config;
    const dp_members *members = &c->members;
    dp_roster_config roster = {
        .ops = c->own.ops,
        .transport = c->transport,
        .config = config,
        .identity = c->own.identity,
        .keys = c->own.keys,
        .added = &c->added,
        .may_shrink = c->own.may_shrink,
        .without = c->own.without,
        .out_workers = rt_bits_below(config->worker_count) & ~members->workers,
        .out_shards = rt_bits_below(config->ps_shard_count) & ~members->shards,
        .run = c->id,
        .spares = dp_run_spares,
        .context = c,
        .notify = c->own.notify};
    if (c->own.may_shrink)
        roster.aside = dp_flaps_put_aside(&c->flaps, config->worker_count, time(NULL));
    if (c->id)
        roster.epoch = dp_checkpoint_epoch(c->checkpoints) + 1;
    rt_status status = dp_roster_create(&roster, &c->roster, error);
    c->collect.roster = c->roster;
    dp_members_keep_boxes(members, config, &c->run_config, &c->own.identity.config_hash);
    return status;
}

rt_status dp_begin(dp_run *c, rt_error *error)
{
    rt_status status = open_folder(c, error);
    if (status)
        return status;
    status = read_members(c, error);
    if (status)
        return status;
    status = dp_setup_count_keys(&c->site_config, &c->distinct_keys, error);
    if (status)
        return status;
    status = open_stream(c, error);
    if (status)
        return status;
    status = read_model(c, error);
    if (status)
        return status;
    return create_roster(c, error);
}
