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
        dp_losses_read(&c->losses, c->checkpoints);
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
        roster.aside = dp_losses_uninvite(&c->losses, config->worker_count, time(NULL));
    if (c->id)
        roster.epoch = dp_checkpoint_epoch(c->checkpoints) + 1;
    rt_status status = dp_roster_create(&roster, &c->roster, error);
    c->collect.roster = c->roster;
    dp_members_keep_boxes(members, config, &c->run_config, &c->own.identity.config_hash);
    return status;
}

static rt_status begin(dp_run *c, rt_error *error)
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

// ---- starting --------------------------------------------------------------------------------

static dp_slice_limits limits_of(const dp_run *c, const rt_schema *schema)
{
    const rt_config *config = &c->run_config;
    const uint32_t sample_count_max = dp_planner_micro_batch_max(&c->planner);
    dp_slice_limits limits = {.dense_count = schema->dense_count,
                              .more_labels = schema->label_count - 1,
                              .field_count = schema->field_count,
                              .worker_count = config->worker_count,
                              .batch_samples = c->planner.sample_count_max,
                              .sample_count_max = sample_count_max,
                              .lookup_count_max = sample_count_max * c->planner.keys_per_sample_max,
                              .slot_count = c->planner.slot_count[0],
                              .hands = config->dispatch.hand_over,
                              .sums = config->dispatch.reduce};
    if (config->ps_homes == RT_HOMES_PLANNED)
        limits.shard_count = config->ps_shard_count;
    return limits;
}

static rt_status create_planner(dp_run *c, const rt_schema *schema, rt_error *error)
{
    const rt_config *config = &c->run_config;
    dp_controller_init(config, &c->controller);
    dp_links_init(config, &c->links);
    dp_ages_init(&c->ages, config->rows.expire_s);
    rt_status status = dp_setup(config, schema, c->distinct_keys, &c->planner, error);
    if (status)
        return status;
    dp_setup_dense(config, c->own.dense_bytes, &c->planner);
    c->planner.measure_error = config->sim_dispatch_error;
    dp_account_init(&c->planner, &c->costs);
    c->limits = limits_of(c, schema);
    return dp_planner_check(&c->planner, error);
}

static rt_status create_tally(dp_run *c, const rt_schema *schema, rt_error *error)
{
    const dp_tally_config tally = {.config = &c->run_config,
                                   .costs = c->costs,
                                   .dense_count = schema->dense_count,
                                   .directory = c->own.directory,
                                   .trace = c->own.trace,
                                   .progress = c->own.progress,
                                   .slices = c->watch.slices,
                                   .keeps = c->own.resume != DP_RESUME_NO,
                                   .resumed = c->resumes};
    rt_status status = dp_tally_create(&tally, &c->tally, error);
    if (status)
        return status;
    if (c->watch.viewer)
        rt_metrics_tap(dp_tally_metrics(c->tally), rt_viewer_take, c->watch.viewer);
    return RT_OK;
}

// Who takes part is known, by c->run_config.
static rt_status create_parts(dp_run *c, rt_error *error)
{
    const rt_config *config = &c->run_config;
    const rt_schema *schema = rt_stream_schema(c->stream);
    rt_status status = dp_watch_schema(config, schema, &c->watch, error);
    if (status)
        return status;
    status = create_planner(c, schema, error);
    if (status)
        return status;
    c->prober = (dp_prober){.roster = c->roster,
                            .links = &c->links,
                            .sender = DP_SELF,
                            .worker_count = config->worker_count,
                            .every_s = config->links.probe_s};
    dp_prober_init(&c->prober, rt_now_ns());
    status = create_tally(c, schema, error);
    if (status || !c->has_epoch)
        return status;
    return dp_resume_begin_epoch(c->checkpoints, &c->epoch, error);
}

// What a run that goes on has read of its checkpoint.
static void feed_resumed(const dp_run *c, dp_feed_config *feed)
{
    feed->sequence_first = c->resumed.sequence_next;
    feed->restored = c->resumed.planner;
    feed->scale = c->resumed.beside.scale;
    feed->rate = &c->resumed.beside.rate;
}

// Reading and planning begin: the stream is the feed's.
static rt_status create_feed(dp_run *c, rt_error *error)
{
    char journal[RT_PATH_MAX + 32], ledger[RT_PATH_MAX + 32];
    dp_feed_config feed = {.config = &c->run_config,
                           .planner = &c->planner,
                           .costs = c->costs,
                           .limits = c->limits,
                           .planned_max = c->open.max + 2,
                           .wake_fd = c->wake_fd,
                           .sender = DP_SELF,
                           .is_fresh = c->own.resume == DP_RESUME_NO,
                           .cuts = c->checkpoint != NULL,
                           .slice_field = UINT32_MAX,
                           .epoch = c->epoch,
                           .sequence_first = 1,
                           .scale = c->initial.scale,
                           .has_model = c->own.model != NULL,
                           .lineup = &c->resumed.restored.lineup,
                           .iteration = c->resumed.restored.iteration,
                           .input_count = c->resumed.restored.input_count,
                           .position = &c->resumed.position,
                           .waiting = &c->resumed.beside.waiting,
                           .ids = &c->resumed.beside.ids};
    if (c->run_config.publish.every_s > 0 && c->own.recall)
        feed.heard_every = dp_evidence_every(&c->run_config.publish);
    const char *place = c->checkpoints;
    if (c->own.directory) {
        place = c->own.directory;
        snprintf(journal, sizeof journal, "%s/records.jsonl", place);
        feed.journal = journal;
    }
    if (*place) {
        snprintf(ledger, sizeof ledger, "%s/stream.taken", place);
        feed.ledger = ledger;
    }
    if (c->watch.slices)
        feed.slice_field = c->watch.slices->field;
    if (c->resumed.planner)
        feed_resumed(c, &feed);
    rt_status status = dp_feed_create(&feed, c->stream, &c->feed, error);
    if (!status) {
        c->resumed.planner = NULL;
        c->stream = NULL;
    }
    rt_scale_destroy(c->resumed.beside.scale);
    c->resumed.beside.scale = NULL;
    rt_bytes_fini(&c->resumed.restored.lineup);
    c->cut.feed = c->prober.feed = c->feed;
    c->prober.metrics = dp_tally_metrics(c->tally);
    return status;
}

static rt_status welcome(dp_run *c, rt_error *error)
{
    const rt_config *config = &c->run_config;
    rt_wire_welcome payload = {.worker_count = config->worker_count,
                               .shard_count = config->ps_shard_count,
                               .dense_count = c->limits.dense_count,
                               .field_count = c->limits.field_count,
                               .keys_per_sample_max =
                                   c->limits.lookup_count_max / c->limits.sample_count_max,
                               .slot_count = c->limits.slot_count,
                               .sample_count_max = c->limits.sample_count_max,
                               .run_ahead = c->open.max,
                               .dense_bytes = c->own.dense_bytes,
                               .epoch = c->epoch,
                               .row_rate = c->members.row_rate,
                               .dense_rate = c->members.dense_rate,
                               .run = c->id};
    rt_status status = dp_roster_welcome(c->roster, &payload, error);
    if (!status)
        dp_links_place(&c->links, payload.shards);
    return status;
}

// ---- going on --------------------------------------------------------------------------------

// Controllers and link table know what is in force.
static void take_over_values(dp_run *c)
{
    const dp_planner *planner = c->resumed.planner;
    c->costs.rates = *dp_planner_rates(planner);
    dp_links_resume(&c->links, planner);
    dp_controller_resume(&c->controller, dp_planner_value(planner, DP_INPUT_ALPHA, 0),
                         (uint32_t)dp_planner_value(planner, DP_INPUT_SEARCH_EVALUATIONS, 0),
                         c->costs.rates.compute_s_per_sample);
}

static dp_resume_config resume_config(dp_run *c)
{
    return (dp_resume_config){.config = &c->run_config,
                              .directory = c->checkpoints,
                              .schema = c->own.schema,
                              .config_hash = c->own.identity.config_hash,
                              .epoch = c->epoch,
                              .sender = DP_SELF,
                              .planner = &c->planner,
                              .limits = c->limits,
                              .roster = c->roster,
                              .tally = c->tally,
                              .stop_fd = c->own.stop_fd,
                              .wake_fd = c->wake_fd,
                              .other = dp_run_take,
                              .context = c};
}

static rt_status begin_with_model(dp_run *c, rt_error *error)
{
    const dp_resume_config config = resume_config(c);
    if (!c->own.model)
        return RT_OK;
    return dp_resume_begin_with(&config, &c->initial.saved, error);
}

static rt_status resume(dp_run *c, rt_error *error)
{
    const dp_resume_config config = resume_config(c);
    rt_status status = dp_resume_run(&config, &c->resumed, error);
    if (status == RT_NOT_FOUND && c->own.resume == DP_RESUME_IF_ANY) {
        rt_warn("%s: starting from the beginning", error->text);
        *error = (rt_error){0};
        dp_tally_begin_anew(c->tally);
        return begin_with_model(c, error);
    }
    if (status)
        return status;
    take_over_values(c);
    dp_ages_go_on(&c->ages, &c->resumed.ages, rt_now_ns());
    return RT_OK;
}

// ---- checkpoints -----------------------------------------------------------------------------

// Where models are published; "": nowhere.
static void published_folder(const dp_run *c, char *path, size_t size)
{
    const rt_publish_config *publish = &c->run_config.publish;
    if (publish->every_s <= 0)
        *path = '\0';
    else if (*publish->folder)
        snprintf(path, size, "%s", publish->folder);
    else
        snprintf(path, size, "%s/published", c->own.directory);
}

// A model that is published is that of a checkpoint: none may be longer away.
static double cut_every_s(const rt_config *config)
{
    const double published_s = config->publish.every_s, every_s = config->checkpoint.every_s;
    if (published_s > 0 && (every_s == 0 || published_s < every_s))
        return published_s;
    return every_s;
}

static rt_status create_checkpoint(dp_run *c, rt_error *error)
{
    const rt_config *own = &c->run_config;
    char published[RT_PATH_MAX + 16];
    if (!*c->checkpoints)
        return RT_OK;
    published_folder(c, published, sizeof published);
    const dp_checkpoint_config config = {.directory = c->checkpoints,
                                         .published = published,
                                         .config = own,
                                         .config_hash = c->own.identity.config_hash,
                                         .schema = c->own.schema,
                                         .epoch = c->epoch,
                                         .metrics = dp_tally_metrics(c->tally),
                                         .collect = &c->collect,
                                         .guard = dp_tally_guard(c->tally),
                                         .evidence = dp_tally_evidence(c->tally),
                                         .recall = c->own.recall,
                                         .is_of_others = c->resumed.is_of_others};
    rt_status status = dp_checkpoint_create(&config, c->resumed.past, c->resumed.past_count,
                                            &c->checkpoint, error);
    if (status)
        return status;
    c->cut = (dp_cut){.roster = c->roster,
                      .every_s = cut_every_s(own),
                      .end_ns = rt_now_ns(),
                      .tally = c->tally,
                      .checkpoint = c->checkpoint,
                      .ages = &c->ages,
                      .sender = DP_SELF,
                      .shard_count = own->ps_shard_count};
    if (!*published || !*own->publish.address)
        return RT_OK;
    const dp_shelf_config shelf = {.address = own->publish.address,
                                   .folder = published,
                                   .keys = c->own.keys,
                                   .key = "publish.address"};
    return dp_shelf_open(&shelf, &c->shelf, error);
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
static rt_status begin_feed(dp_run *c, rt_error *error)
{
    rt_status status = create_checkpoint(c, error);
    if (status)
        return status;
    return create_feed(c, error);
}

// Who takes part is known before anybody has joined. A run of its own plans while others join.
static rt_status plan_ahead(dp_run *c, rt_error *error)
{
    rt_status status = create_parts(c, error);
    if (status || c->resumes)
        return status;
    return begin_feed(c, error);
}

// Where members and people find the run.
static void announce(dp_run *c)
{
    const char *address = dp_roster_address(c->roster);
    rt_notify_ready(c->own.notify);
    if (c->own.directory)
        tell_running(&c->site_config, c->own.directory, address);
    if (c->own.announce)
        c->own.announce(c->own.announce_context, address);
}

// Until all have joined, or those without whom the run would be none.
static rt_status assemble(dp_run *c, rt_error *error)
{
    if (!c->own.may_shrink) {
        const rt_status status = plan_ahead(c, error);
        if (status)
            return status;
    }
    announce(c);
    const rt_status status = dp_roster_assemble(c->roster, c->own.stop_fd, error);
    if (status || !c->own.may_shrink)
        return status;
    dp_members_keep_workers(&c->members, dp_roster_members(c->roster)->worker_places,
                            &c->run_config, &c->own.identity.config_hash);
    return create_parts(c, error);
}

// Rows and caches are those of a checkpoint or a model, where there is one.
static rt_status fill(dp_run *c, rt_error *error)
{
    if (c->resumes)
        return resume(c, error);
    return begin_with_model(c, error);
}

// A feed that could not begin before is made of what fill has read.
static rt_status begin_late(dp_run *c, rt_error *error)
{
    rt_status status = begin_feed(c, error);
    if (status)
        return status;
    dp_control_resume(c);
    for (uint32_t w = 0; w < c->limits.worker_count; w++)
        dp_links_tell(&c->links, w, c->feed, dp_tally_metrics(c->tally));
    return RT_OK;
}

// All are there: to the end of the run.
static rt_status conduct(dp_run *c, rt_error *error)
{
    rt_status status = welcome(c, error);
    if (status)
        return status;
    dp_run_put_off_taking_back(c);
    status = fill(c, error);
    if (status)
        return status;
    rt_mirror_lead(c->mirror); // all shards have answered, where they have rows
    if (!c->feed)
        status = begin_late(c, error);
    if (status)
        return status;
    status = dp_run_train(c, error);
    if (status)
        return status;
    return dp_run_finish(c, error);
}

static rt_status run(dp_run *c, rt_error *error)
{
    rt_status status = begin(c, error);
    if (status)
        return status;
    status = assemble(c, error);
    if (status)
        return status;
    return conduct(c, error);
}

// ---- its process -----------------------------------------------------------------------------

static rt_status open_descriptors(dp_run *c, rt_error *error)
{
    struct epoll_event event = {.events = EPOLLIN};
    c->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    c->wait_fd = epoll_create1(EPOLL_CLOEXEC);
    c->collect = (dp_collect){.sender = DP_SELF, .wake_fd = c->wake_fd};
    if (c->wake_fd >= 0 && c->wait_fd >= 0 &&
        epoll_ctl(c->wait_fd, EPOLL_CTL_ADD, c->wake_fd, &event) == 0)
        return RT_OK;
    return rt_fail(error, RT_LIMIT, "out of descriptors");
}

static rt_status open_and_run(dp_run *c, rt_error *error)
{
    rt_status status = open_descriptors(c, error);
    if (status)
        return status;
    if (dp_open_init(&c->open, c->site_config.run_ahead + 1))
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    status = rt_transport_open(c->own.ops, c->own.keys, &c->transport, error);
    if (status)
        return status;
    return run(c, error);
}

// For the next start: who ended this one.
static void note_loss(dp_run *c)
{
    if (!c->roster || !*c->checkpoints || c->site_config.on_worker_loss != RT_LOSS_SHRINK)
        return;
    const uint32_t lost = dp_roster_lost(c->roster);
    if (lost >= RT_WORKERS_MAX)
        return;
    dp_losses_note(&c->losses, lost, time(NULL));
    dp_losses_write(&c->losses, c->checkpoints);
}

// Members are told how it ended. Those of one that was replaced start again, and find the other.
static void dismiss(dp_run *c, rt_status status, const char *why)
{
    if (!c->roster)
        return;
    if (rt_mirror_check(c->mirror, NULL) == RT_REFUSED || dp_roster_is_replaced(c->roster))
        dp_roster_stop(c->roster, RT_PEER, why);
    else
        dp_roster_stop(c->roster, status, why);
}

static void close_all(dp_run *c)
{
    const bool was_there = c->roster && c->own.directory;
    dp_open_fini(&c->open, c->feed);
    dp_collect_fini(&c->collect);
    dp_cut_fini(&c->cut);
    dp_checkpoint_destroy(c->checkpoint);
    dp_shelf_close(c->shelf);
    dp_feed_destroy(c->feed);
    rt_stream_close(c->stream);
    rt_live_close(c->live);
    rt_mirror_close(c->mirror);
    dp_planner_destroy(c->resumed.planner);
    dp_tally_destroy(c->tally);
    dp_watch_close(&c->watch);
    dp_roster_destroy(c->roster);
    rt_free(c->resumed.past);
    rt_bytes_fini(&c->resumed.position);
    rt_bytes_fini(&c->resumed.beside.waiting);
    rt_bytes_fini(&c->resumed.beside.ids);
    rt_bytes_fini(&c->resumed.restored.lineup);
    rt_scale_destroy(c->resumed.beside.scale);
    dp_initial_fini(&c->initial);
    if (c->transport)
        c->own.ops->close(c->transport);
    if (c->wake_fd >= 0)
        close(c->wake_fd);
    if (c->wait_fd >= 0)
        close(c->wait_fd);
    dp_control_fini(&c->control);
    rt_config_fini(&c->site_config);
    rt_config_fini(&c->run_config);
    if (was_there)
        end_running(c->own.directory);
}

rt_status dp_coordinator_run(const dp_coordinator_config *config, rt_error *error)
{
    dp_run c = {.own = *config,
                .overdue = {.limit_s = config->config->timeout_answer_s},
                .wake_fd = -1,
                .wait_fd = -1};
    const rt_dispatch_config *dispatch = &config->config->dispatch;
    if (rt_config_copy(config->config, &c.site_config))
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    if (rt_config_copy(config->config, &c.run_config)) {
        rt_config_fini(&c.site_config);
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    }
    c.in_force = (dp_reloaded){dispatch->alpha, dispatch->alpha_auto, dispatch->search_evaluations,
                               dispatch->budget_ms};
    dp_reload_init(&config->reload, config->config, &c.reload);
    rt_status status = open_and_run(&c, error);
    if (status) {
        note_loss(&c);
        dismiss(&c, status, error->text);
    } else {
        dismiss(&c, RT_OK, RT_RUN_COMPLETE);
    }
    if (!status && c.input_failure.status) // complete for all but whoever gave the input
        status = rt_fail(error, c.input_failure.status, "%s", c.input_failure.text);
    close_all(&c);
    return status;
}
