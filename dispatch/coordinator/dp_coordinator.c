#include "dispatch/coordinator/dp_coordinator.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "dispatch/coordinator/dp_run.h"
#include "dispatch/planner/dp_setup.h"
#include "runtime/live/rt_standby.h"
#include "runtime/rt_log.h"
#include "runtime/rt_hash.h"
#include "runtime/transport/rt_member.h"

// ---- starting --------------------------------------------------------------------------------

static rt_status create_parts(dp_run *c, rt_stream *stream, rt_error *error)
{
    const rt_config *config = c->own.config;
    const rt_schema *schema = rt_stream_schema(stream);
    rt_status status = dp_watch_schema(config, schema, &c->watch, error);
    if (status)
        return status;
    dp_controller_init(config, &c->controller);
    dp_links_init(config, &c->links);
    dp_ages_init(&c->ages, config->rows.expire_s);
    status = dp_setup(config, schema, c->distinct_keys, &c->planner, error);
    if (status)
        return status;
    dp_setup_dense(config, c->own.dense_bytes, &c->planner);
    c->planner.measure_error = config->sim_dispatch_error;
    dp_account_init(&c->planner, &c->costs);
    c->limits = (dp_slice_limits){
        .dense_count = schema->dense_count,
        .more_labels = schema->label_count - 1,
        .field_count = schema->field_count,
        .worker_count = config->worker_count,
        .sample_count_max = dp_planner_micro_batch_max(&c->planner),
        .lookup_count_max =
            dp_planner_micro_batch_max(&c->planner) * c->planner.keys_per_sample_max,
        .slot_count = c->planner.slot_count[0],
        .shard_count = config->ps_homes == RT_HOMES_PLANNED ? config->ps_shard_count : 0,
        .hands = config->dispatch.hand_over,
        .sums = config->dispatch.reduce,
        .is_trained = c->own.model != NULL,
    };
    c->prober = (dp_prober){.roster = c->roster,
                            .links = &c->links,
                            .sender = DP_SELF,
                            .worker_count = config->worker_count,
                            .every_s = config->links.probe_s};
    dp_prober_init(&c->prober, rt_now_ns());
    dp_tally_config tally = {.config = config,
                             .costs = c->costs,
                             .dense_count = schema->dense_count,
                             .directory = c->own.directory,
                             .trace = c->own.trace,
                             .progress = c->own.progress,
                             .slices = c->watch.slices,
                             .keeps = c->own.resume != DP_RESUME_NO,
                             .resumed = c->resumes};
    status = dp_planner_check(&c->planner, error);
    if (!status)
        status = dp_tally_create(&tally, &c->tally, error);
    if (!status && c->watch.viewer)
        rt_metrics_tap(dp_tally_metrics(c->tally), rt_viewer_take, c->watch.viewer);
    if (status || !c->has_epoch)
        return status;
    return dp_resume_begin_epoch(c->checkpoints, &c->epoch, error);
}

// Reading and planning begin.
static rt_status create_feed(dp_run *c, rt_stream *stream, rt_error *error)
{
    char journal[RT_PATH_MAX + 32], ledger[RT_PATH_MAX + 32];
    const char *place = c->own.directory ? c->own.directory : c->checkpoints;
    const bool resumed = c->resumed.planner != NULL;
    snprintf(journal, sizeof journal, "%s/records.jsonl", c->own.directory ? c->own.directory : "");
    snprintf(ledger, sizeof ledger, "%s/stream.taken", place);
    dp_feed_config feed = {.config = c->own.config,
                           .planner = &c->planner,
                           .costs = c->costs,
                           .limits = c->limits,
                           .planned_max = c->flights.max + 2,
                           .wake_fd = c->wake_fd,
                           .sender = DP_SELF,
                           .journal = c->own.directory ? journal : NULL,
                           .ledger = *place ? ledger : NULL,
                           .is_fresh = c->own.resume == DP_RESUME_NO,
                           .cuts = c->checkpoint != NULL,
                           .slice_field = c->watch.slices ? c->watch.slices->field : UINT32_MAX,
                           .epoch = c->epoch,
                           .sequence_first = resumed ? c->resumed.sequence_next : 1,
                           .restored = c->resumed.planner,
                           .lineup = &c->resumed.restored.lineup,
                           .scale = resumed ? c->resumed.scale : c->initial.scale,
                           .iteration = c->resumed.restored.iteration,
                           .input_count = c->resumed.restored.input_count,
                           .position = &c->resumed.position,
                           .waiting = &c->resumed.waiting,
                           .ids = &c->resumed.ids};
    rt_status status = dp_feed_create(&feed, stream, &c->feed, error);
    if (!status)
        c->resumed.planner = NULL;
    rt_scale_destroy(c->resumed.scale);
    c->resumed.scale = NULL;
    rt_bytes_fini(&c->resumed.restored.lineup);
    c->cut.feed = c->prober.feed = c->feed;
    c->prober.metrics = dp_tally_metrics(c->tally);
    return status;
}

static rt_status welcome(dp_run *c, rt_error *error)
{
    const rt_config *config = c->own.config;
    rt_wire_welcome payload = {.worker_count = config->worker_count,
                               .shard_count = config->ps_shard_count,
                               .dense_count = c->limits.dense_count,
                               .field_count = c->limits.field_count,
                               .keys_per_sample_max =
                                   c->limits.lookup_count_max / c->limits.sample_count_max,
                               .slot_count = c->limits.slot_count,
                               .sample_count_max = c->limits.sample_count_max,
                               .run_ahead = c->flights.max,
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
    return (dp_resume_config){.config = c->own.config,
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

static rt_status create_checkpoint(dp_run *c, rt_error *error)
{
    const rt_config *own = c->own.config;
    const double every_s = own->publish.every_s;
    char published[RT_PATH_MAX + 16] = "";
    if (every_s > 0)
        snprintf(published, sizeof published, "%s%s",
                 *own->publish.folder ? own->publish.folder : c->own.directory,
                 *own->publish.folder ? "" : "/published");
    const dp_checkpoint_config config = {.directory = c->checkpoints,
                                         .published = published,
                                         .config = c->own.config,
                                         .config_hash = c->own.identity.config_hash,
                                         .schema = c->own.schema,
                                         .epoch = c->epoch,
                                         .metrics = dp_tally_metrics(c->tally),
                                         .collect = &c->collect,
                                         .is_of_others = c->resumed.is_of_others};
    if (!*c->checkpoints)
        return RT_OK;
    rt_status status = dp_checkpoint_create(&config, c->resumed.past, c->resumed.past_count,
                                            &c->checkpoint, error);
    c->cut = (dp_cut){.roster = c->roster,
                      .every_s = own->checkpoint.every_s,
                      .end_ns = rt_now_ns(),
                      .tally = c->tally,
                      .checkpoint = c->checkpoint,
                      .ages = &c->ages,
                      .sender = DP_SELF,
                      .worker_count = c->limits.worker_count,
                      .shard_count = own->ps_shard_count};
    const dp_shelf_config shelf = {.address = own->publish.address,
                                   .folder = published,
                                   .keys = c->own.keys,
                                   .key = "publish.address"};
    if (!status && every_s > 0 && *own->publish.address)
        status = dp_shelf_open(&shelf, &c->shelf, error);
    if (every_s > 0 && (c->cut.every_s == 0 || every_s < c->cut.every_s))
        c->cut.every_s = every_s;
    return status;
}

// The stream is taken over.
static rt_status begin_feed(dp_run *c, rt_stream *stream, rt_error *error)
{
    rt_status status = create_checkpoint(c, error);
    if (!status)
        status = create_feed(c, stream, error);
    if (!c->feed)
        rt_stream_close(stream);
    return status;
}

// All are there: to the end of the run. stream: NULL where the feed has begun already.
static rt_status conduct(dp_run *c, rt_stream *stream, rt_error *error)
{
    rt_status status = welcome(c, error);
    dp_run_put_off_taking_back(c);
    if (!status && c->resumes)
        status = resume(c, error);
    else if (!status)
        status = begin_with_model(c, error);
    if (!status)
        rt_mirror_lead(c->mirror); // all shards have answered, where they have rows
    if (!status && stream) {
        status = begin_feed(c, stream, error);
        if (!status)
            dp_control_resume(c);
    } else if (stream)
        rt_stream_close(stream);
    for (uint32_t w = 0; w < c->limits.worker_count && !status && stream; w++)
        dp_links_tell(&c->links, w, c->feed, dp_tally_metrics(c->tally));
    if (!status)
        status = dp_run_train(c, error);
    if (status)
        return status;
    return dp_run_finish(c, error);
}

// Those of a mask by their places among all.
static uint64_t places_of(uint64_t some, uint64_t all)
{
    uint64_t places = 0;
    for (uint64_t rest = some & all; rest; rest &= rest - 1)
        places |= rt_bit(rt_bits_under(all, rt_lowest_bit(rest)));
    return places;
}

// From now on the run is one of these workers, of those that it has. Caches, links and plans in a
// checkpoint are those of its members, so it has a hash of its own.
static void keep_workers(dp_run *c, uint64_t workers)
{
    const uint64_t both[2] = {c->own.identity.config_hash, workers};
    if (workers == c->members.workers)
        return;
    rt_config_keep_members(&c->kept, places_of(workers, c->members.workers), UINT64_MAX);
    c->own.identity.config_hash = rt_hash_bytes(both, sizeof both);
}

// The hash on which members agree tells nothing of the last spare boxes.
static uint64_t hash_of_boxes(const dp_run *c)
{
    const dp_members *m = &c->members;
    const uint32_t count = rt_config_site_boxes(c->given);
    const dp_members site = dp_members_of(c->given, rt_bits_below(count));
    uint64_t all[3 + RT_SITE_BOXES_MAX] = {c->own.identity.config_hash, m->workers, m->shards};
    uint32_t used = 3;
    if (m->workers == site.workers && m->shards == site.shards)
        return c->own.identity.config_hash;
    for (uint32_t b = count; b < c->given->box_count; b++) {
        if (m->boxes >> b & 1)
            all[used++] = rt_config_hash_box(c->given, b);
    }
    return rt_hash_bytes(all, used * sizeof *all);
}

// And one of these boxes, with the rates that were set. After the roster is made, whose members
// agree on the whole configuration.
static void keep_boxes(dp_run *c)
{
    const dp_members *m = &c->members;
    dp_members_set_rates(m, &c->kept);
    dp_members_set_rates(m, &c->control.in_force);
    if (rt_bit_count(m->workers) != c->given->worker_count ||
        rt_bit_count(m->shards) != c->given->ps_shard_count)
        rt_config_keep_members(&c->kept, m->workers, m->shards);
    c->own.identity.config_hash = hash_of_boxes(c);
}

// Workers that were lost too often of late; not all of them, for a run needs some.
static uint64_t put_aside(dp_run *c)
{
    char name[32];
    if (*c->checkpoints)
        dp_flaps_read(&c->flaps, c->checkpoints);
    if (!c->own.may_shrink)
        return 0;
    const uint64_t aside = dp_flaps_aside(&c->flaps, time(NULL));
    if ((aside & rt_bits_below(c->given->worker_count)) == rt_bits_below(c->given->worker_count))
        return 0;
    for (uint64_t rest = aside; rest; rest &= rest - 1)
        rt_warn("%s was lost %u times within %d s: it is put aside, the run goes on without it",
                rt_peer_name(rt_peer(RT_ROLE_WORKER, rt_lowest_bit(rest)), name), DP_FLAPS_MAX,
                DP_FLAPS_S);
    return aside;
}

// For the next start: who ended this one.
static void note_loss(dp_run *c)
{
    const uint32_t lost = c->roster ? dp_roster_lost(c->roster) : UINT32_MAX;
    if (lost >= RT_WORKERS_MAX || c->given->on_worker_loss != RT_LOSS_SHRINK || !*c->checkpoints)
        return;
    dp_flaps_note(&c->flaps, lost, time(NULL));
    dp_flaps_write(&c->flaps, c->checkpoints);
}

// A standby that was promoted says so before anything begins.
static rt_status open_mirror(dp_run *c, rt_error *error)
{
    const rt_config *config = c->given;
    const bool waits = config->standby_away == RT_STANDBY_WAIT;
    char address[RT_NAME_MAX + 16];
    if (!*config->standby)
        return RT_OK;
    if (!c->own.directory)
        return rt_fail(error, RT_CONFIG, "coordinator.standby: needs a folder of the run: --out");
    snprintf(address, sizeof address, "tcp://%s", config->standby);
    const rt_mirror_config mirror = {.ops = c->own.ops == &rt_transport_mixed ? &rt_transport_zmq
                                                                              : c->own.ops,
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
    status = rt_mirror_await(c->mirror, waits ? config->timeout_start_s : config->timeout_peer_s,
                             c->own.stop_fd, error);
    if (status != RT_TIMEOUT || waits)
        return status;
    rt_warn("%s: the run begins without it", error->text);
    *error = (rt_error){0};
    return RT_OK;
}

static rt_status open_live(dp_run *c, rt_error *error)
{
    char journal[RT_PATH_MAX + 16] = "";
    if (!rt_live_is_wanted(c->given))
        return RT_OK;
    if (c->own.directory)
        snprintf(journal, sizeof journal, "%s/journal", c->own.directory);
    rt_status status = rt_live_open_with(c->given, journal, c->mirror, &c->live, error);
    c->kept.stream.live = c->live;
    return status;
}

// running.json in the folder of the run: its configuration and where it listens, for `lanyard set`.
static void tell_running(dp_run *c)
{
    rt_config told;
    char path[RT_PATH_MAX + 32], *json = NULL;
    const char *address = dp_roster_address(c->roster);
    FILE *file = NULL;
    if (!c->own.directory || rt_config_copy(c->given, &told))
        return;
    snprintf(path, sizeof path, "%s/" DP_RUNNING, c->own.directory);
    if (strstr(address, "://"))
        address = strstr(address, "://") + 3;
    snprintf(told.network_coordinator, sizeof told.network_coordinator, "%s", address);
    if (!rt_config_to_json(&told, &json))
        file = fopen(path, "we");
    if (!file || fputs(json, file) < 0)
        rt_warn("%s: cannot be written: `lanyard set` does not find this run", path);
    if (file)
        fclose(file);
    rt_free(json);
    rt_config_fini(&told);
}

static void end_running(const dp_run *c)
{
    char path[RT_PATH_MAX + 32];
    if (!c->own.directory || !c->roster)
        return;
    snprintf(path, sizeof path, "%s/" DP_RUNNING, c->own.directory);
    (void)unlink(path);
}

// Its rows are at the shards: whoever touches one first pulls it.
static rt_status read_model(dp_run *c, const rt_stream *stream, rt_error *error)
{
    if (!c->own.model)
        return RT_OK;
    if (c->given->placement == RT_PLACEMENT_WORKER)
        return rt_fail(error, RT_CONFIG,
                       "--init needs planner.placement \"coordinator\": workers that plan by "
                       "themselves do not know of the model");
    if (c->given->ps_homes == RT_HOMES_PLANNED)
        return rt_fail(error, RT_CONFIG,
                       "--init needs ps.homes \"hashed\": rows of a model are pulled before the "
                       "planner has given them a home");
    if (rt_rows_are_admitted(&c->given->rows))
        return rt_fail(
            error, RT_CONFIG,
            "--init needs rows.admit 1 and rows.admit_share 1: keys of the model's rows would "
            "be left out until they had come often enough again");
    c->kept.dispatch.first_touch = RT_FIRST_TOUCH_PULL;
    return dp_initial_read(c->own.model, c->given, rt_stream_schema(stream), &c->initial, error);
}

static rt_status create_roster(dp_run *c, rt_error *error)
{
    const dp_members *members = &c->members;
    const uint64_t workers = rt_bits_below(c->given->worker_count);
    const uint64_t shards = rt_bits_below(c->given->ps_shard_count);
    const dp_roster_config roster = {.ops = c->own.ops,
                                     .transport = c->transport,
                                     .config = c->given,
                                     .identity = c->own.identity,
                                     .keys = c->own.keys,
                                     .added = &c->added,
                                     .may_shrink = c->own.may_shrink,
                                     .without = c->own.without,
                                     .aside = put_aside(c),
                                     .out_workers = workers & ~members->workers,
                                     .out_shards = shards & ~members->shards,
                                     .run = c->id,
                                     .epoch = c->id ? dp_checkpoint_epoch(c->checkpoints) + 1 : 0,
                                     .spares = dp_run_spares,
                                     .context = c,
                                     .notify = c->own.notify};
    rt_status status = dp_roster_create(&roster, &c->roster, error);
    c->collect.roster = c->roster;
    keep_boxes(c);
    return status;
}

static rt_status run(dp_run *c, rt_error *error)
{
    const rt_config *config = c->given;
    const bool may_shrink = c->own.may_shrink;
    rt_stream *stream = NULL;
    rt_status status = dp_resume_prepare(config, c->own.directory, c->own.resume, c->checkpoints,
                                         sizeof c->checkpoints, &c->resumes, &c->has_epoch, error);
    if (!status)
        status = open_mirror(c, error);
    if (!status && c->own.directory && c->has_epoch)
        status = rt_standby_read_id(c->own.directory, &c->id, error);
    if (!status)
        status = dp_added_begin(c, error);
    if (!status)
        status = dp_members_read(config, c->checkpoints, &c->members, error);
    if (!status)
        status = dp_setup_count_keys(config, &c->distinct_keys, error);
    if (!status)
        status = dp_watch_open(config, c->own.directory, c->own.resume != DP_RESUME_NO, &c->watch,
                               error);
    if (!status)
        status = dp_watch_note(config, &c->kept.stream.names, &c->watch, error);
    if (!status)
        status = open_live(c, error);
    if (!status)
        status = rt_stream_open(&c->kept.stream, config->seed, &stream, error);
    if (!status)
        status = read_model(c, stream, error);
    if (!status)
        status = create_roster(c, error);
    if (!status && !may_shrink)
        status = create_parts(c, stream, error);
    if (!status && !may_shrink && !c->resumes) { // a run of its own plans while others join
        status = begin_feed(c, stream, error);
        stream = NULL;
    }
    if (!status)
        rt_notify_ready(c->own.notify);
    if (!status)
        tell_running(c);
    if (!status && c->own.announce)
        c->own.announce(c->own.announce_context, dp_roster_address(c->roster));
    if (!status)
        status = dp_roster_assemble(c->roster, c->own.stop_fd, error);
    if (!status && may_shrink) {
        keep_workers(c, dp_roster_workers(c->roster));
        status = create_parts(c, stream, error);
    }
    if (!status)
        return conduct(c, stream, error);
    rt_stream_close(stream);
    return status;
}

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

static void close_all(dp_run *c)
{
    dp_flights_fini(&c->flights, c->feed);
    dp_collect_fini(&c->collect);
    dp_cut_fini(&c->cut);
    dp_checkpoint_destroy(c->checkpoint);
    dp_shelf_close(c->shelf);
    dp_feed_destroy(c->feed);
    rt_live_close(c->live);
    rt_mirror_close(c->mirror);
    dp_planner_destroy(c->resumed.planner);
    dp_tally_destroy(c->tally);
    dp_watch_close(&c->watch);
    dp_roster_destroy(c->roster);
    rt_free(c->resumed.past);
    rt_bytes_fini(&c->resumed.position);
    rt_bytes_fini(&c->resumed.waiting);
    rt_bytes_fini(&c->resumed.ids);
    rt_bytes_fini(&c->resumed.restored.lineup);
    rt_scale_destroy(c->resumed.scale);
    dp_initial_fini(&c->initial);
    if (c->transport)
        c->own.ops->close(c->transport);
    if (c->wake_fd >= 0)
        close(c->wake_fd);
    if (c->wait_fd >= 0)
        close(c->wait_fd);
}

static void drop_config(dp_run *c)
{
    dp_control_fini(&c->control);
    rt_config_fini(&c->kept);
    rt_config_fini(&c->whole);
}

static rt_status copy_config(const rt_config *config, dp_run *c)
{
    rt_status status = rt_config_copy(config, &c->whole);
    if (status)
        return status;
    status = rt_config_copy(config, &c->kept);
    if (status) {
        rt_config_fini(&c->whole);
        return status;
    }
    c->given = &c->whole;
    c->own.config = &c->kept;
    status = dp_control_init(config, &c->control);
    if (status)
        drop_config(c);
    return status;
}

rt_status dp_coordinator_run(const dp_coordinator_config *config, rt_error *error)
{
    dp_run c = {.own = *config,
                .overdue = {.limit_s = config->config->timeout_answer_s},
                .wake_fd = -1,
                .wait_fd = -1};
    const rt_dispatch_config *dispatch = &config->config->dispatch;
    if (copy_config(config->config, &c))
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    c.in_force = (dp_reloaded){dispatch->alpha, dispatch->alpha_auto, dispatch->search_evaluations,
                               dispatch->budget_ms};
    dp_reload_init(&config->reload, config->config, &c.reload);
    rt_status status = open_descriptors(&c, error);
    if (!status && dp_flights_init(&c.flights, config->config->run_ahead + 1))
        status = rt_fail(error, RT_NO_MEMORY, "out of memory");
    if (!status)
        status = rt_transport_open(config->ops, config->keys, &c.transport, error);
    if (!status)
        status = run(&c, error);
    if (status)
        note_loss(&c);
    // Members of one that was replaced start again, and find the other.
    const bool is_replaced = rt_mirror_check(c.mirror, NULL) == RT_REFUSED ||
                             (c.roster && dp_roster_is_replaced(c.roster));
    if (c.roster)
        dp_roster_stop(c.roster, is_replaced ? RT_PEER : status,
                       status ? error->text : RT_RUN_COMPLETE);
    if (!status && c.input_failure.status) // complete for all but whoever gave the input
        status = rt_fail(error, c.input_failure.status, "%s", c.input_failure.text);
    close_all(&c);
    end_running(&c);
    drop_config(&c);
    return status;
}
