#include "dispatch/coordinator/dp_coordinator.h"

#include <stdio.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>
#include <string.h>

#include "dispatch/coordinator/dp_control.h"
#include "dispatch/coordinator/dp_run.h"
#include "dispatch/planner/dp_setup.h"
#include "runtime/rt_log.h"
#include "runtime/transport/rt_member.h"
#include "runtime/live/rt_standby.h"
#include "runtime/files/rt_own.h"
#include "runtime/files/rt_file.h"

// ---- the folder ------------------------------------------------------------------------------

// A standby is on another box, whatever members use between each other.
static const rt_transport_ops *mirror_ops(const dp_run *run)
{
    if (run->site_config.network_transport == RT_NETWORK_MIXED)
        return &rt_transport_zmq;
    return run->own.ops;
}

// A standby that was promoted says so before anything begins.
static rt_status open_mirror(dp_run *run, rt_error *error)
{
    const rt_config *config = &run->site_config;
    const bool waits = config->standby_away == RT_STANDBY_WAIT;
    const double limit_s = waits ? config->timeout_start_s : config->timeout_peer_s;
    char address[RT_NAME_MAX + 16];
    if (!*config->standby)
        return RT_OK;
    if (!run->own.directory)
        return rt_fail(error, RT_CONFIG, "coordinator.standby: needs a folder of the run: --out");
    snprintf(address, sizeof address, "tcp://%s", config->standby);
    const rt_mirror_config mirror = {.ops = mirror_ops(run),
                                     .keys = run->own.keys,
                                     .address = address,
                                     .directory = run->own.directory,
                                     .checkpoints = run->folder.checkpoints,
                                     .epoch = dp_checkpoint_epoch(run->folder.checkpoints),
                                     .waits = waits,
                                     .timeout_peer_s = config->timeout_peer_s};
    rt_status status = rt_mirror_open(&mirror, &run->mirror, error);
    if (status)
        return status;
    rt_notify_ready(run->own.notify);
    status = rt_mirror_await(run->mirror, limit_s, run->own.stop_fd, error);
    if (status != RT_TIMEOUT || waits)
        return status;
    rt_warn("%s: the run begins without it", error->text);
    *error = (rt_error){0};
    return RT_OK;
}

// Now, not when there is something to be written to them.
static rt_status check_names(const dp_run *run, rt_error *error)
{
    const rt_config *config = &run->site_config;
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
        snprintf(path, sizeof path, "%s/%s", run->own.directory, all[i].name);
        if (!*all[i].elsewhere)
            status = rt_own_check_folder(path, error);
    }
    return status;
}

// Where checkpoints are, whether the run goes on from one, and what its folder is called.
static rt_status open_folder(dp_run *run, rt_error *error)
{
    rt_status status = run->own.directory ? check_names(run, error) : RT_OK;
    if (status)
        return status;
    status = dp_resume_prepare(&run->site_config, run->own.directory, run->own.resume,
                               run->folder.checkpoints, sizeof run->folder.checkpoints,
                               &run->folder.resumes, &run->folder.has_epoch, error);
    if (status)
        return status;
    status = dp_control_open(run, error);
    if (status)
        return status;
    status = open_mirror(run, error);
    if (status || !run->own.directory || !run->folder.has_epoch)
        return status;
    return rt_standby_read_id(run->own.directory, &run->folder.id, error);
}

// ---- what is read ----------------------------------------------------------------------------

static rt_status open_watch(dp_run *run, rt_error *error)
{
    const rt_config *config = &run->site_config;
    const bool goes_on = run->own.resume != DP_RESUME_NO;
    rt_status status = dp_watch_open(config, run->own.directory, goes_on, &run->watch, error);
    if (status)
        return status;
    return dp_watch_note(config, &run->run_config.stream.names, &run->watch, error);
}

static rt_status open_live(dp_run *run, rt_error *error)
{
    char journal[RT_PATH_MAX + 16] = "";
    if (!rt_live_is_wanted(&run->site_config))
        return RT_OK;
    if (run->own.directory)
        snprintf(journal, sizeof journal, "%s/journal", run->own.directory);
    rt_status status =
        rt_live_open_with(&run->site_config, journal, run->mirror, &run->live, error);
    run->run_config.stream.live = run->live;
    return status;
}

// The stream may point to journal and names of values.
static rt_status open_stream(dp_run *run, rt_error *error)
{
    return rt_stream_open(&run->run_config.stream, run->site_config.seed, &run->stream, error);
}

static rt_status read_initial(dp_run *run, rt_error *error)
{
    return dp_initial_read(run->own.model, &run->site_config, rt_stream_schema(run->stream),
                           &run->initial, error);
}

// Its rows are at the shards: whoever touches one first pulls it. A checkpoint has them all, so a
// run that goes on from one needs the model's files no more.
static rt_status read_model(dp_run *run, rt_error *error)
{
    const rt_config *config = &run->site_config;
    if (!run->own.model)
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
    run->run_config.dispatch.first_touch = RT_FIRST_TOUCH_PULL;
    if (run->folder.resumes)
        return RT_OK;
    return read_initial(run, error);
}

// ---- who takes part --------------------------------------------------------------------------

static rt_status count_keys(dp_run *run, rt_error *error)
{
    return dp_setup_count_keys(&run->site_config, &run->planning.distinct_keys, error);
}

static rt_status read_members(dp_run *run, rt_error *error)
{
    rt_status status = dp_adding_begin(run, error);
    if (status)
        return status;
    if (*run->folder.checkpoints)
        dp_losses_read(&run->losses, run->folder.checkpoints);
    return dp_members_read(&run->site_config, run->folder.checkpoints, &run->members, error);
}

// Where the run may shrink, workers that others told to do without are optional.
static void invite(const dp_run *run, dp_membership *all)
{
    const rt_config *config = &run->site_config;
    if (run->own.may_shrink) {
        const uint64_t workers = rt_bits_below(config->worker_count);
        dp_membership_invite(all, RT_ROLE_WORKER, run->own.without & workers, DP_INVITED_OPTIONAL);
        dp_membership_invite(all, RT_ROLE_WORKER,
                             dp_losses_uninvite(&run->losses, run->members.workers, time(NULL)),
                             DP_INVITED_LATER);
    }
    dp_membership_invite(all, RT_ROLE_WORKER,
                         rt_bits_below(config->worker_count) & ~run->members.workers,
                         DP_INVITED_NOT);
    dp_membership_invite(all, RT_ROLE_PS,
                         rt_bits_below(config->ps_shard_count) & ~run->members.shards,
                         DP_INVITED_NOT);
}

// Members agree on the whole configuration; from then on the run is of those that take part.
static rt_status create_roster(dp_run *run, rt_error *error)
{
    const rt_config *config = &run->site_config;
    dp_roster_config roster = {.ops = run->own.ops,
                               .transport = run->transport,
                               .config = config,
                               .identity = run->own.identity,
                               .keys = run->own.keys,
                               .added = &run->added,
                               .may_shrink = run->own.may_shrink,
                               .run = run->folder.id,
                               .spares = dp_run_spares,
                               .context = run,
                               .notify = run->own.notify};
    if (run->folder.id)
        roster.epoch = dp_checkpoint_epoch(run->folder.checkpoints) + 1;
    const rt_status status = dp_roster_create(&roster, &run->roster, error);
    if (status)
        return status;
    invite(run, dp_roster_members(run->roster));
    run->collect.roster = run->roster;
    dp_members_keep_boxes(&run->members, config, &run->run_config, &run->own.identity.config_hash);
    return RT_OK;
}

// ---- starting --------------------------------------------------------------------------------

static dp_slice_limits limits_of(const dp_run *run, const rt_schema *schema)
{
    const rt_config *config = &run->run_config;
    const uint32_t sample_count_max = dp_planner_micro_batch_max(&run->planning.planner);
    dp_slice_limits limits = {.dense_count = schema->dense_count,
                              .more_labels = schema->label_count - 1,
                              .field_count = schema->field_count,
                              .worker_count = config->worker_count,
                              .batch_samples = run->planning.planner.sample_count_max,
                              .sample_count_max = sample_count_max,
                              .lookup_count_max =
                                  sample_count_max * run->planning.planner.keys_per_sample_max,
                              .slot_count = run->planning.planner.slot_count[0],
                              .hands = config->dispatch.hand_over,
                              .sums = config->dispatch.reduce};
    if (config->ps_homes == RT_HOMES_PLANNED)
        limits.shard_count = config->ps_shard_count;
    return limits;
}

static rt_status create_planner(dp_run *run, const rt_schema *schema, rt_error *error)
{
    const rt_config *config = &run->run_config;
    dp_controller_init(config, &run->settings.controller);
    dp_links_init(config, &run->links);
    dp_ages_init(&run->ages, config->rows.expire_s);
    rt_status status =
        dp_setup(config, schema, run->planning.distinct_keys, &run->planning.planner, error);
    if (!status)
        status = dp_setup_hot(config, schema, &run->planning.planner, error);
    if (status)
        return status;
    dp_setup_dense(config, run->own.dense_bytes, &run->planning.planner);
    run->planning.planner.measure_error = config->sim_dispatch_error;
    dp_account_init(&run->planning.planner, &run->planning.costs);
    run->planning.limits = limits_of(run, schema);
    return dp_planner_check(&run->planning.planner, error);
}

static rt_status create_stats(dp_run *run, const rt_schema *schema, rt_error *error)
{
    const dp_stats_config stats = {.config = &run->run_config,
                                   .costs = run->planning.costs,
                                   .dense_count = schema->dense_count,
                                   .directory = run->own.directory,
                                   .trace = run->own.trace,
                                   .progress = run->own.progress,
                                   .slices = run->watch.slices,
                                   .keeps = run->own.resume != DP_RESUME_NO,
                                   .resumed = run->folder.resumes};
    rt_status status = dp_stats_create(&stats, &run->stats, error);
    if (status)
        return status;
    if (run->watch.viewer)
        rt_metrics_tap(dp_stats_metrics(run->stats), rt_viewer_take, run->watch.viewer);
    return RT_OK;
}

// Who takes part is known, by c->run_config.
static rt_status create_parts(dp_run *run, rt_error *error)
{
    const rt_config *config = &run->run_config;
    const rt_schema *schema = rt_stream_schema(run->stream);
    rt_status status = dp_watch_schema(config, schema, &run->watch, error);
    if (status)
        return status;
    status = create_planner(run, schema, error);
    if (status)
        return status;
    run->prober = (dp_prober){.roster = run->roster,
                              .links = &run->links,
                              .sender = DP_SELF,
                              .worker_count = config->worker_count,
                              .every_s = config->links.probe_s};
    dp_prober_init(&run->prober, rt_now_ns());
    status = create_stats(run, schema, error);
    if (status || !run->folder.has_epoch)
        return status;
    return dp_resume_begin_epoch(run->folder.checkpoints, &run->folder.epoch, error);
}

// What a run that goes on has read of its checkpoint.
static void feed_resumed(const dp_run *run, dp_feed_config *feed)
{
    feed->sequence_first = run->resumed.sequence_next;
    feed->restored = run->resumed.planner;
    feed->scale = run->resumed.beside.scale;
    feed->rate = &run->resumed.beside.rate;
}

// Reading and planning begin: the stream is the feed's.
static rt_status create_feed(dp_run *run, rt_error *error)
{
    char journal[RT_PATH_MAX + 32], ledger[RT_PATH_MAX + 32];
    dp_feed_config feed = {.config = &run->run_config,
                           .planner = &run->planning.planner,
                           .costs = run->planning.costs,
                           .limits = run->planning.limits,
                           .planned_max = run->open.max + 2,
                           .wake_fd = run->wake_fd,
                           .sender = DP_SELF,
                           .is_fresh = run->own.resume == DP_RESUME_NO,
                           .cuts = run->checkpoint != NULL,
                           .slice_field = UINT32_MAX,
                           .epoch = run->folder.epoch,
                           .sequence_first = 1,
                           .scale = run->initial.scale,
                           .has_model = run->own.model != NULL,
                           .chooser_state = &run->resumed.restored.chooser_state,
                           .iteration = run->resumed.restored.iteration,
                           .input_count = run->resumed.restored.input_count,
                           .position = &run->resumed.position,
                           .waiting = &run->resumed.beside.waiting,
                           .ids = &run->resumed.beside.ids,
                           .repeats = &run->resumed.beside.repeats};
    if (run->run_config.publish.every_s > 0 && run->own.recall)
        feed.heard_every = dp_evidence_every(&run->run_config.publish);
    const char *place = run->folder.checkpoints;
    if (run->own.directory) {
        place = run->own.directory;
        snprintf(journal, sizeof journal, "%s/records.jsonl", place);
        feed.journal = journal;
    }
    if (*place) {
        snprintf(ledger, sizeof ledger, "%s/stream.taken", place);
        feed.ledger = ledger;
    }
    if (run->watch.slices)
        feed.slice_field = run->watch.slices->field;
    if (run->resumed.planner)
        feed_resumed(run, &feed);
    rt_status status = dp_feed_create(&feed, run->stream, &run->feed, error);
    if (!status) {
        run->resumed.planner = NULL;
        run->stream = NULL;
    }
    rt_scale_destroy(run->resumed.beside.scale);
    run->resumed.beside.scale = NULL;
    rt_bytes_fini(&run->resumed.restored.chooser_state);
    run->cut.feed = run->prober.feed = run->feed;
    run->prober.metrics = dp_stats_metrics(run->stats);
    return status;
}

static rt_status welcome(dp_run *run, rt_error *error)
{
    const rt_config *config = &run->run_config;
    rt_wire_welcome payload = {.worker_count = config->worker_count,
                               .shard_count = config->ps_shard_count,
                               .dense_count = run->planning.limits.dense_count,
                               .field_count = run->planning.limits.field_count,
                               .keys_per_sample_max = run->planning.limits.lookup_count_max /
                                                      run->planning.limits.sample_count_max,
                               .slot_count = run->planning.limits.slot_count,
                               .sample_count_max = run->planning.limits.sample_count_max,
                               .run_ahead = run->open.max,
                               .dense_bytes = run->own.dense_bytes,
                               .epoch = run->folder.epoch,
                               .row_rate = run->members.row_rate,
                               .dense_rate = run->members.dense_rate,
                               .run = run->folder.id};
    rt_status status = dp_roster_welcome(run->roster, &payload, error);
    if (status)
        return status;
    dp_links_place(&run->links, payload.shards);
    dp_run_put_off_taking_back(run);
    return RT_OK;
}

// ---- going on --------------------------------------------------------------------------------

// Controllers and link table know what is in force.
static void take_over_values(dp_run *run)
{
    const dp_planner *planner = run->resumed.planner;
    run->planning.costs.rates = *dp_planner_rates(planner);
    dp_links_resume(&run->links, planner);
    dp_controller_resume(&run->settings.controller, dp_planner_value(planner, DP_INPUT_ALPHA, 0),
                         (uint32_t)dp_planner_value(planner, DP_INPUT_SEARCH_EVALUATIONS, 0),
                         run->planning.costs.rates.compute_s_per_sample);
}

static dp_resume_config resume_config(dp_run *run)
{
    return (dp_resume_config){.config = &run->run_config,
                              .directory = run->folder.checkpoints,
                              .schema = run->own.schema,
                              .config_hash = run->own.identity.config_hash,
                              .epoch = run->folder.epoch,
                              .sender = DP_SELF,
                              .planner = &run->planning.planner,
                              .limits = run->planning.limits,
                              .roster = run->roster,
                              .stats = run->stats,
                              .stop_fd = run->own.stop_fd,
                              .wake_fd = run->wake_fd,
                              .other = dp_run_take,
                              .context = run};
}

static rt_status begin_with_model(dp_run *run, rt_error *error)
{
    const dp_resume_config config = resume_config(run);
    rt_status status = RT_OK;
    if (!run->own.model)
        return RT_OK;
    if (!run->initial.saved.count) // no checkpoint was complete
        status = read_initial(run, error);
    if (status)
        return status;
    return dp_resume_begin_with(&config, &run->initial.saved, error);
}

static rt_status resume(dp_run *run, rt_error *error)
{
    const dp_resume_config config = resume_config(run);
    rt_status status = dp_resume_run(&config, &run->resumed, error);
    if (status == RT_NOT_FOUND && run->own.resume == DP_RESUME_IF_ANY) {
        rt_warn("%s: starting from the beginning", error->text);
        *error = (rt_error){0};
        dp_stats_begin_anew(run->stats);
        return begin_with_model(run, error);
    }
    if (status)
        return status;
    take_over_values(run);
    dp_ages_go_on(&run->ages, &run->resumed.ages, rt_now_ns());
    return RT_OK;
}

// ---- checkpoints -----------------------------------------------------------------------------

// Where models are published; "": nowhere.
static void published_folder(const dp_run *run, char *path, size_t size)
{
    const rt_publish_config *publish = &run->run_config.publish;
    if (publish->every_s <= 0)
        *path = '\0';
    else if (*publish->folder)
        snprintf(path, size, "%s", publish->folder);
    else
        snprintf(path, size, "%s/published", run->own.directory);
}

// A model that is published is that of a checkpoint: none may be longer away.
static double cut_every_s(const rt_config *config)
{
    const double published_s = config->publish.every_s, every_s = config->checkpoint.every_s;
    if (published_s > 0 && (every_s == 0 || published_s < every_s))
        return published_s;
    return every_s;
}

static rt_status create_checkpoint(dp_run *run, rt_error *error)
{
    const rt_config *own = &run->run_config;
    char published[RT_PATH_MAX + 16];
    if (!*run->folder.checkpoints && own->stream.patience)
        return rt_fail(error, RT_CONFIG,
                       "stream.patience: checkpoints are judged, and neither --out nor "
                       "checkpoint.directory says where they are made");
    if (!*run->folder.checkpoints)
        return RT_OK;
    published_folder(run, published, sizeof published);
    const dp_checkpoint_config config = {.directory = run->folder.checkpoints,
                                         .published = published,
                                         .config = own,
                                         .config_hash = run->own.identity.config_hash,
                                         .schema = run->own.schema,
                                         .epoch = run->folder.epoch,
                                         .metrics = dp_stats_metrics(run->stats),
                                         .collect = &run->collect,
                                         .guard = dp_stats_guard(run->stats),
                                         .evidence = dp_stats_evidence(run->stats),
                                         .recall = run->own.recall,
                                         .merge = run->own.merge,
                                         .merge_bytes_min = DP_MERGE_BYTES_MIN,
                                         .is_of_others = run->resumed.is_of_others};
    rt_status status = dp_checkpoint_create(&config, run->resumed.past, run->resumed.past_count,
                                            &run->checkpoint, error);
    if (status)
        return status;
    run->cut = (dp_cut){.roster = run->roster,
                        .every_s = cut_every_s(own),
                        .end_ns = rt_now_ns(),
                        .stats = run->stats,
                        .checkpoint = run->checkpoint,
                        .ages = &run->ages,
                        .sender = DP_SELF,
                        .shard_count = own->ps_shard_count};
    if (!*published || !*own->publish.address)
        return RT_OK;
    const dp_publisher_config publisher = {.address = own->publish.address,
                                           .folder = published,
                                           .keys = run->own.keys,
                                           .key = "publish.address",
                                           .values = run->own.values};
    return dp_publisher_open(&publisher, &run->publisher, error);
}

// ---- running.json ----------------------------------------------------------------------------

#define PATH_SIZE (RT_PATH_MAX + 32)

static void tell_running(const rt_config *config, const char *directory, const char *address)
{
    rt_config told;
    rt_error error = {0};
    char path[PATH_SIZE], *json = NULL;
    const char *scheme_end = strstr(address, "://");
    if (rt_config_copy(config, &told))
        return;
    if (scheme_end)
        address = scheme_end + 3;
    snprintf(told.network_coordinator, sizeof told.network_coordinator, "%s", address);
    snprintf(path, sizeof path, "%s/" DP_RUNNING, directory);
    rt_status status = rt_config_to_json(&told, &json);
    if (status)
        rt_fail(&error, status, "%s: cannot be written", path);
    else
        status = rt_file_save(path, json, strlen(json), &error);
    if (status)
        rt_warn("%s: `lanyard set` does not find this run", error.text);
    rt_free(json);
    rt_config_fini(&told);
}

static void end_running(const char *directory)
{
    char path[PATH_SIZE];
    snprintf(path, sizeof path, "%s/" DP_RUNNING, directory);
    (void)unlink(path);
}

// ---- a run -----------------------------------------------------------------------------------

// The stream is taken over.
static rt_status begin_feed(dp_run *run, rt_error *error)
{
    rt_status status = create_checkpoint(run, error);
    if (status)
        return status;
    return create_feed(run, error);
}

// Who takes part is known before anybody has joined. A run of its own plans while others join.
static rt_status plan_ahead(dp_run *run, rt_error *error)
{
    if (run->own.may_shrink)
        return RT_OK;
    const rt_status status = create_parts(run, error);
    if (status || run->folder.resumes)
        return status;
    return begin_feed(run, error);
}

// Where members and people find the run.
static void announce(dp_run *run)
{
    const char *address = dp_roster_address(run->roster);
    rt_notify_ready(run->own.notify);
    if (run->own.directory)
        tell_running(&run->site_config, run->own.directory, address);
    if (run->own.announce)
        run->own.announce(run->own.announce_context, address);
}

// Until all have joined, or those without whom the run would be none.
static rt_status assemble(dp_run *run, rt_error *error)
{
    announce(run);
    const rt_status status = dp_roster_assemble(run->roster, run->own.stop_fd, error);
    if (status || !run->own.may_shrink)
        return status;
    dp_members_keep_workers(&run->members, dp_roster_members(run->roster)->worker_places,
                            &run->run_config, &run->own.identity.config_hash);
    return create_parts(run, error);
}

// Rows and caches are those of a checkpoint or a model, where there is one.
static rt_status fill(dp_run *run, rt_error *error)
{
    if (run->folder.resumes)
        return resume(run, error);
    return begin_with_model(run, error);
}

// A feed that could not begin before is made of what fill has read.
static rt_status begin_late(dp_run *run, rt_error *error)
{
    rt_mirror_lead(run->mirror); // all shards have answered, where they have rows
    if (run->feed)
        return RT_OK;
    const rt_status status = begin_feed(run, error);
    if (status)
        return status;
    dp_control_resume(run);
    for (uint32_t w = 0; w < run->planning.limits.worker_count; w++)
        dp_links_tell(&run->links, w, run->feed, dp_stats_metrics(run->stats));
    return RT_OK;
}

// ---- its process -----------------------------------------------------------------------------

static rt_status open_descriptors(dp_run *run, rt_error *error)
{
    struct epoll_event event = {.events = EPOLLIN};
    run->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    run->wait_fd = epoll_create1(EPOLL_CLOEXEC);
    run->collect = (dp_collect){.sender = DP_SELF, .wake_fd = run->wake_fd};
    if (run->wake_fd >= 0 && run->wait_fd >= 0 &&
        epoll_ctl(run->wait_fd, EPOLL_CTL_ADD, run->wake_fd, &event) == 0)
        return dp_open_init(&run->open, run->site_config.run_ahead + 1, error);
    return rt_fail(error, RT_LIMIT, "out of descriptors");
}

static rt_status open_transport(dp_run *run, rt_error *error)
{
    return rt_transport_open(run->own.ops, run->own.keys, &run->transport, error);
}

// The life of a run.
static rt_status (*const steps[])(dp_run *run, rt_error *error) = {
    open_descriptors, open_transport, open_folder, read_members,  count_keys,   open_watch,
    open_live,        open_stream,    read_model,  create_roster, plan_ahead,   assemble,
    welcome,          fill,           begin_late,  dp_run_train,  dp_run_finish};

// For the next start: who ended this one.
static void note_loss(dp_run *run)
{
    if (!run->roster || !*run->folder.checkpoints ||
        run->site_config.on_worker_loss != RT_LOSS_SHRINK)
        return;
    const uint32_t lost = dp_roster_lost(run->roster);
    if (lost >= RT_WORKERS_MAX)
        return;
    dp_losses_note(&run->losses, lost, time(NULL));
    dp_losses_write(&run->losses, run->folder.checkpoints);
}

// After a loss, too, if a checkpoint of this start is complete: else it might begin again and again
// with nothing gained, and whoever watches it puts some time between.
static bool begins_anew(const dp_run *run, rt_status status)
{
    const bool is_loss = status == RT_PEER || status == RT_TIMEOUT;
    return run->own.is_anew && (status == RT_AGAIN || (is_loss && run->checkpoint &&
                                                       dp_checkpoint_newest(run->checkpoint) >
                                                           run->resumed.restored.iteration));
}

// Members are told how it ended. Those of one that was replaced start again, and find the other.
static void dismiss(dp_run *run, rt_status status, const char *why)
{
    if (!run->roster)
        return;
    if (rt_mirror_check(run->mirror, NULL) == RT_REFUSED || dp_roster_is_replaced(run->roster)) {
        dp_roster_stop(run->roster, RT_PEER, why);
        return;
    }
    if (begins_anew(run, status)) {
        *run->own.is_anew = true;
        status = RT_AGAIN;
    }
    dp_roster_stop(run->roster, status, why);
}

static void close_all(dp_run *run)
{
    const bool was_there = run->roster && run->own.directory;
    dp_open_fini(&run->open, run->feed);
    dp_collect_fini(&run->collect);
    dp_cut_fini(&run->cut);
    dp_checkpoint_destroy(run->checkpoint);
    dp_publisher_close(run->publisher);
    dp_feed_destroy(run->feed);
    rt_stream_close(run->stream);
    rt_live_close(run->live);
    rt_mirror_close(run->mirror);
    dp_planner_destroy(run->resumed.planner);
    dp_stats_destroy(run->stats);
    dp_watch_close(&run->watch);
    dp_roster_destroy(run->roster);
    rt_free(run->resumed.past);
    rt_bytes_fini(&run->resumed.position);
    rt_bytes_fini(&run->resumed.beside.waiting);
    rt_bytes_fini(&run->resumed.beside.ids);
    rt_bytes_fini(&run->resumed.beside.repeats);
    rt_bytes_fini(&run->resumed.restored.chooser_state);
    rt_scale_destroy(run->resumed.beside.scale);
    dp_initial_fini(&run->initial);
    if (run->transport)
        run->own.ops->close(run->transport);
    if (run->wake_fd >= 0)
        close(run->wake_fd);
    if (run->wait_fd >= 0)
        close(run->wait_fd);
    dp_control_fini(&run->control);
    rt_config_fini(&run->site_config);
    dp_setup_fini(&run->planning.planner);
    rt_config_fini(&run->run_config);
    if (was_there)
        end_running(run->own.directory);
}

rt_status dp_coordinator_run(const dp_coordinator_config *config, rt_error *error)
{
    dp_run run = {.own = *config,
                  .overdue = {.limit_s = config->config->timeout_answer_s},
                  .wake_fd = -1,
                  .wait_fd = -1};
    const rt_dispatch_config *dispatch = &config->config->dispatch;
    rt_traffic_begin();
    if (rt_config_copy(config->config, &run.site_config))
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    if (rt_config_copy(config->config, &run.run_config)) {
        rt_config_fini(&run.site_config);
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    }
    run.settings.in_force =
        (dp_reloaded){dispatch->alpha, dispatch->alpha_auto, dispatch->search_evaluations,
                      rt_dispatch_budget_ms(dispatch)};
    dp_reload_init(&config->reload, config->config, &run.settings.reload);
    rt_status status = RT_OK;
    for (size_t i = 0; i < RT_COUNT_OF(steps) && !status; i++)
        status = steps[i](&run, error);
    if (status) {
        note_loss(&run);
        dismiss(&run, status, error->text);
    } else {
        dismiss(&run, RT_OK, RT_RUN_COMPLETE);
    }
    if (!status && run.input_failure.status) // complete for all but whoever gave the input
        status = rt_fail(error, run.input_failure.status, "%s", run.input_failure.text);
    close_all(&run);
    return status;
}
