#include "dispatch/coordinator/dp_coordinator.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "dispatch/planner/dp_controller.h"
#include "dispatch/coordinator/dp_cut.h"
#include "dispatch/coordinator/dp_feed.h"
#include "dispatch/coordinator/dp_flights.h"
#include "dispatch/coordinator/dp_links.h"
#include "dispatch/coordinator/dp_overdue.h"
#include "dispatch/coordinator/dp_prober.h"
#include "dispatch/coordinator/dp_resume.h"
#include "dispatch/coordinator/dp_roster.h"
#include "dispatch/coordinator/dp_tally.h"
#include "dispatch/planner/dp_setup.h"
#include "runtime/files/rt_checkpoint.h"
#include "runtime/rt_hash.h"
#include "runtime/transport/rt_member.h"

#define SELF rt_peer(RT_ROLE_COORDINATOR, 0)

typedef struct {
    dp_coordinator_config own;
    rt_config kept;
    const dp_coordinator_config
        *config;            // &own, with &kept: its config is that of the workers that take part
    const rt_config *given; // that of all
    rt_transport *transport;
    dp_roster *roster;
    dp_feed *feed;
    dp_tally *tally;
    dp_slice_limits limits;
    dp_flights flights;                         // at most planner.run_ahead + 1
    uint64_t asked_workers, asked_shards;       // for FINISH or SAVE
    uint64_t finished_workers, finished_shards; // that answered it
    dp_overdue overdue;
    bool last_sent; // the flush is out
    bool interrupted;
    int wake_fd;                   // written by others
    int wait_fd;                   // readable when wake_fd is, or a part of a checkpoint is done
    char checkpoints[RT_PATH_MAX]; // their directory; "": none are made
    dp_checkpoint *checkpoint;
    dp_cut cut;
    uint64_t take_back_ns; // from then on workers that came back are taken back
    uint32_t hold;         // iteration of the checkpoint that does so, until it is written; else 0
    uint64_t distinct_keys;
    bool resumes;
    uint32_t epoch;
    dp_planner_config planner;
    dp_account_config costs;
    dp_resumed resumed; // planner NULL: a run of its own
    dp_controller controller;
    dp_links links;
    dp_prober prober;
    dp_reload reload;
    dp_reloaded in_force;  // of the keys that can be reloaded, as configured
    uint64_t iteration_ns; // end of the iteration before; 0: none yet
} coordinator;

// ---- starting --------------------------------------------------------------------------------

static rt_status create_parts(coordinator *c, rt_stream *stream, rt_error *error)
{
    const rt_config *config = c->config->config;
    const rt_schema *schema = rt_stream_schema(stream);
    dp_controller_init(config, &c->controller);
    dp_links_init(config, &c->links);
    rt_status status = dp_setup(config, schema, c->distinct_keys, &c->planner, error);
    if (status)
        return status;
    c->planner.dense_bytes = c->config->dense_bytes;
    c->planner.measure_error = config->sim_dispatch_error;
    dp_account_init(&c->planner, &c->costs);
    c->limits = (dp_slice_limits){
        .dense_count = schema->dense_count,
        .field_count = schema->field_count,
        .worker_count = config->worker_count,
        .sample_count_max = dp_planner_micro_batch_max(&c->planner),
        .lookup_count_max =
            dp_planner_micro_batch_max(&c->planner) * c->planner.keys_per_sample_max,
        .slot_count = c->planner.slot_count[0],
    };
    c->prober = (dp_prober){.roster = c->roster,
                            .links = &c->links,
                            .sender = SELF,
                            .worker_count = config->worker_count,
                            .every_s = config->links.probe_s};
    dp_prober_init(&c->prober, rt_now_ns());
    dp_tally_config tally = {.config = config,
                             .costs = c->costs,
                             .dense_count = schema->dense_count,
                             .directory = c->config->directory,
                             .trace = c->config->trace,
                             .progress = c->config->progress,
                             .resumed = c->resumes};
    return dp_tally_create(&tally, &c->tally, error);
}

// Reading and planning begin.
static rt_status create_feed(coordinator *c, rt_stream *stream, rt_error *error)
{
    char journal[RT_PATH_MAX + 32];
    const bool resumed = c->resumed.planner != NULL;
    snprintf(journal, sizeof journal, "%s/records.jsonl",
             c->config->directory ? c->config->directory : "");
    dp_feed_config feed = {.config = c->config->config,
                           .planner = &c->planner,
                           .costs = c->costs,
                           .limits = c->limits,
                           .planned_max = c->flights.max + 2,
                           .wake_fd = c->wake_fd,
                           .sender = SELF,
                           .journal = c->config->directory ? journal : NULL,
                           .cuts = c->checkpoint != NULL,
                           .epoch = c->epoch,
                           .sequence_first = resumed ? c->resumed.sequence_next : 1,
                           .restored = c->resumed.planner,
                           .scale = c->resumed.scale,
                           .iteration = c->resumed.restored.iteration,
                           .input_count = c->resumed.restored.input_count,
                           .position = c->resumed.position};
    rt_status status = dp_feed_create(&feed, stream, &c->feed, error);
    if (!status)
        c->resumed.planner = NULL;
    rt_scale_destroy(c->resumed.scale);
    c->resumed.scale = NULL;
    c->cut.feed = c->prober.feed = c->feed;
    c->prober.metrics = dp_tally_metrics(c->tally);
    return status;
}

static rt_status welcome(coordinator *c, rt_error *error)
{
    const rt_config *config = c->config->config;
    rt_wire_welcome payload = {.worker_count = config->worker_count,
                               .shard_count = config->ps_shard_count,
                               .dense_count = c->limits.dense_count,
                               .field_count = c->limits.field_count,
                               .keys_per_sample_max =
                                   c->limits.lookup_count_max / c->limits.sample_count_max,
                               .slot_count = c->limits.slot_count,
                               .sample_count_max = c->limits.sample_count_max,
                               .run_ahead = c->flights.max,
                               .dense_bytes = c->config->dense_bytes,
                               .epoch = c->epoch};
    rt_status status = dp_roster_welcome(c->roster, &payload, error);
    if (!status)
        dp_links_place(&c->links, payload.shards);
    return status;
}

static uint64_t all_workers(const coordinator *c)
{
    return UINT64_MAX >> (64 - c->limits.worker_count);
}

// ---- iterations ------------------------------------------------------------------------------

// Workers wait to be taken back, and it is time.
static bool takes_back(const coordinator *c)
{
    return c->checkpoint && !c->interrupted && dp_roster_waiting(c->roster) &&
           rt_now_ns() >= c->take_back_ns;
}

static rt_status send_planned(coordinator *c, dp_planned *planned, rt_error *error)
{
    rt_status status = RT_OK;
    for (uint32_t w = 0; w < c->limits.worker_count && !status; w++)
        status = dp_roster_send(c->roster, rt_peer(RT_ROLE_WORKER, w), &planned->slices[w], error);
    if (!status && planned->iteration == 0) // a flush trains nothing: MARK, FINISH ask for its end
        c->last_sent = planned->is_last;
    if (!status && planned->iteration == 0)
        dp_tally_flush(c->tally, planned);
    if (!status && planned->is_cut) {
        c->hold = !planned->is_last && takes_back(c) ? planned->cut : 0;
        return dp_cut_begin(&c->cut, planned, error);
    }
    if (status || planned->iteration == 0) {
        dp_feed_give(c->feed, planned);
        return status;
    }
    dp_flights_put(&c->flights, planned);
    return RT_OK;
}

static rt_status send_what_is_planned(coordinator *c, rt_error *error)
{
    while (!c->last_sent && !c->cut.planned && !c->hold && !c->prober.open &&
           !dp_flights_full(&c->flights)) {
        dp_planned *planned;
        rt_status status = dp_feed_take(c->feed, &planned, error);
        if (status == RT_AGAIN)
            return RT_OK;
        if (!status)
            status = send_planned(c, planned, error);
        if (status)
            return status;
    }
    return RT_OK;
}

static void tell_records(coordinator *c)
{
    dp_input input;
    while (dp_controller_next(&c->controller, &input))
        dp_feed_tell(c->feed, &input);
}

// All workers agree, and not too often.
static rt_status check_verdict(coordinator *c, const dp_flight *f, rt_error *error)
{
    const rt_config *config = c->config->config;
    const uint32_t iteration = f->planned->iteration, max = config->guard_bad_batches_max;
    if (f->skipped != (f->bad && config->guard_skip_bad_batches ? f->reported : 0))
        return rt_fail(error, RT_WIRE,
                       "iteration %" PRIu32 ": workers %#" PRIx64 " applied nothing, %s", iteration,
                       f->skipped, f->bad ? "the others did" : "but every loss is finite");
    if (!f->bad)
        return RT_OK;
    const uint64_t number = dp_tally_bad_batches(c->tally) + 1;
    if (number > max)
        return rt_fail(error, RT_DATA,
                       "iteration %" PRIu32 " is bad batch number %" PRIu64 ": its loss is not "
                       "finite; guards.bad_batches_max is %" PRIu32,
                       iteration, number, max);
    rt_warn("iteration %" PRIu32 ": the loss is not finite, %s (bad batch number %" PRIu64 ")",
            iteration,
            config->guard_skip_bad_batches ? "nothing of it is applied" : "and it is applied",
            number);
    return RT_OK;
}

// All workers have reported.
static void finish_iteration(coordinator *c, dp_flight *f)
{
    const dp_planned *planned = f->planned;
    rt_stream_stats stats = dp_feed_stream_stats(c->feed);
    uint64_t now = rt_now_ns();
    dp_tally_iteration(c->tally, planned, &stats);
    if (c->iteration_ns)
        dp_controller_iterated(&c->controller, (double)(now - c->iteration_ns) * 1e-9);
    c->iteration_ns = now;
    dp_controller_decided(&c->controller, &planned->decision, (double)planned->decision_ns * 1e-9,
                          (double)planned->place_ns * 1e-9);
    tell_records(c);
    dp_links_iterated(&c->links, planned->iteration, c->feed, dp_tally_metrics(c->tally));
    dp_feed_give(c->feed, dp_flights_take(&c->flights, f));
}

static rt_status take_report(coordinator *c, uint32_t peer, const rt_message *message,
                             rt_error *error)
{
    char name[32];
    rt_wire_report report;
    rt_reader reader = rt_message_reader(message);
    const void *head = rt_reader_take(&reader, 1, sizeof report);
    uint64_t sequence = rt_message_header(message)->iteration;
    uint32_t worker = rt_peer_rank(peer);
    dp_flight *f = dp_flights_find(&c->flights, sequence);
    rt_peer_name(peer, name);
    if (!head || rt_peer_role(peer) != RT_ROLE_WORKER || !f || f->reported >> worker & 1)
        return rt_fail(error, RT_WIRE, "%s: a report on slice %" PRIu64 " that nobody waits for",
                       name, sequence);
    memcpy(&report, head, sizeof report);
    uint32_t expected = f->planned->iteration ? f->planned->label_offsets[worker + 1] -
                                                    f->planned->label_offsets[worker]
                                              : 0;
    const float *predictions = rt_reader_take(&reader, report.sample_count, sizeof(float));
    if (report.sample_count != expected || !predictions || reader.left)
        return rt_fail(error, RT_WIRE, "%s: a report on %" PRIu32 " samples, expected %" PRIu32,
                       name, report.sample_count, expected);
    if (report.fingerprint != f->planned->fingerprint)
        return rt_fail(error, RT_WIRE,
                       "%s trained iteration %" PRIu32 " by another plan (fingerprint %016" PRIx64
                       ", here %016" PRIx64 ")",
                       name, f->planned->iteration, report.fingerprint, f->planned->fingerprint);
    f->reported |= rt_bit(worker);
    dp_tally_report(c->tally, f->planned, worker, &report, predictions);
    dp_links_reported(&c->links, worker, &report);
    dp_prober_reported(&c->prober, worker, &report, rt_now_ns());
    dp_controller_computed(&c->controller, worker, (double)report.times.compute_ns * 1e-9,
                           report.sample_count);
    f->skipped |= report.skipped ? rt_bit(worker) : 0;
    f->bad |= !isfinite(report.loss_sum);
    if (rt_bit_count(f->reported) < c->limits.worker_count)
        return RT_OK;
    rt_status status = check_verdict(c, f, error);
    if (!status)
        finish_iteration(c, f);
    return status;
}

// ---- checkpoints -----------------------------------------------------------------------------

static void put_off_taking_back(coordinator *c)
{
    c->take_back_ns = rt_now_ns() + (uint64_t)(c->given->timeout_rejoin_s * 1e9);
}

// The checkpoint with which workers are taken back, as soon as it is written or has failed. Until
// then no iteration goes out that would have to be done again.
static rt_status end_hold(coordinator *c, rt_error *error)
{
    if (!c->hold || c->cut.planned || dp_checkpoint_busy(c->checkpoint))
        return RT_OK;
    const bool is_written = dp_checkpoint_newest(c->checkpoint) == c->hold;
    c->hold = 0;
    if (is_written && takes_back(c))
        return rt_fail(error, RT_AGAIN, "workers are back: all start anew from iteration %" PRIu32,
                       dp_checkpoint_newest(c->checkpoint));
    put_off_taking_back(c);
    return RT_OK;
}

// What is due of a checkpoint, and whether one is due.
static rt_status go_on_with_checkpoint(coordinator *c, rt_error *error)
{
    if (!c->checkpoint)
        return RT_OK;
    dp_checkpoint_step(c->checkpoint);
    rt_status status = end_hold(c, error);
    if (!c->hold) {
        c->cut.is_wanted |= takes_back(c) && !c->cut.is_requested && !c->cut.planned;
        dp_cut_request(&c->cut);
    }
    return status || c->flights.count ? status : dp_cut_step(&c->cut, error);
}

// ---- probes ----------------------------------------------------------------------------------

// What is due of probes of links, and whether one is due. A pause is not an iteration's time.
static rt_status go_on_with_probes(coordinator *c, rt_error *error)
{
    const bool may_begin = !c->last_sent && !c->cut.planned && !c->hold && !c->interrupted;
    if (c->interrupted)
        dp_prober_stop(&c->prober);
    if (c->prober.open)
        c->iteration_ns = 0;
    return dp_prober_step(&c->prober, may_begin, c->flights.count == 0, rt_now_ns(), error);
}

// A worker's answer to FINISH says what it did since its last report: the flush.
static rt_status take_finished(coordinator *c, uint32_t peer, const rt_message *message,
                               rt_error *error)
{
    char name[32];
    rt_wire_report report;
    const bool is_worker = rt_peer_role(peer) == RT_ROLE_WORKER;
    uint64_t *finished = is_worker ? &c->finished_workers : &c->finished_shards;
    const bool has_counts = is_worker && rt_control_has(message, sizeof report);
    if ((!has_counts && !rt_control_has(message, 0)) || *finished >> rt_peer_rank(peer) & 1)
        return rt_fail(error, RT_WIRE, "%s: a FINISHED of %zu bytes that nobody waits for",
                       rt_peer_name(peer, name), message->size - sizeof(rt_wire_header));
    if (has_counts) {
        memcpy(&report, rt_message_payload(message), sizeof report);
        dp_tally_flushed(c->tally, rt_peer_rank(peer), &report);
    }
    *finished |= rt_bit(rt_peer_rank(peer));
    return RT_OK;
}

static rt_status take_message(void *context, uint32_t peer, const rt_message *message,
                              rt_error *error)
{
    coordinator *c = context;
    char name[32];
    uint32_t type = rt_message_header(message)->type;
    if (type == RT_MESSAGE_REPORT)
        return take_report(c, peer, message, error);
    if (type == RT_MESSAGE_LINK)
        return dp_prober_take(&c->prober, peer, message, rt_now_ns(), error);
    if (type == RT_MESSAGE_FINISHED)
        return take_finished(c, peer, message, error);
    if (type == RT_MESSAGE_MARK && c->prober.open)
        return dp_prober_mark(&c->prober, peer, message, error);
    if (type == RT_MESSAGE_MARK)
        return dp_cut_mark(&c->cut, peer, message, error);
    if (type == RT_MESSAGE_PART)
        return dp_cut_part(&c->cut, peer, message, error);
    if (type == RT_MESSAGE_CUT)
        return dp_cut_captured(&c->cut, peer, error);
    if (type == RT_MESSAGE_WRITTEN && rt_peer_role(peer) == RT_ROLE_PS && c->checkpoint)
        return dp_checkpoint_written(c->checkpoint, rt_peer_rank(peer), message, error);
    return rt_fail(error, RT_WIRE, "%s: unexpected %s", rt_peer_name(peer, name),
                   rt_message_type_name(type));
}

static rt_status receive_all(coordinator *c, rt_error *error)
{
    for (;;) {
        uint32_t peer;
        rt_message message = {0};
        rt_status status = dp_roster_receive(c->roster, &peer, &message, error);
        if (!status)
            status = take_message(c, peer, &message, error);
        rt_message_release(&message);
        if (status)
            return status == RT_AGAIN ? RT_OK : status;
    }
}

// The end of a part of a checkpoint ends a wait too. A descriptor that is closed leaves by itself.
static void watch_child(coordinator *c)
{
    const int fd = c->checkpoint ? dp_checkpoint_fd(c->checkpoint) : -1;
    struct epoll_event event = {.events = EPOLLIN};
    if (fd >= 0 && epoll_ctl(c->wait_fd, EPOLL_CTL_ADD, fd, &event) != 0) {
        // it is watched already; without it waits end all the same, later
    }
}

static dp_awaited awaited(const coordinator *c)
{
    const dp_flight *oldest = dp_flights_oldest(&c->flights);
    const dp_awaited end = {.workers = c->asked_workers & ~c->finished_workers,
                            .shards = c->asked_shards & ~c->finished_shards,
                            .what = "has not finished the run"};
    if (oldest)
        return (dp_awaited){.workers = all_workers(c) & ~oldest->reported,
                            .what = "has not trained an iteration",
                            .number = oldest->planned->sequence};
    if (c->prober.open)
        return dp_prober_awaited(&c->prober);
    return c->cut.planned ? dp_cut_awaited(&c->cut) : end;
}

// Waits for messages or plans, and notes a request to stop.
static rt_status wait_for_events(coordinator *c, rt_error *error)
{
    eventfd_t count;
    watch_child(c);
    rt_status status = dp_roster_wait(c->roster, c->wait_fd, error);
    (void)eventfd_read(c->wake_fd, &count);
    struct pollfd stop = {.fd = c->config->stop_fd, .events = POLLIN};
    if (!c->interrupted && stop.fd >= 0 && poll(&stop, 1, 0) == 1) {
        rt_info("stopping after the iterations that are under way");
        c->interrupted = true;
        c->hold = 0;
        dp_feed_stop(c->feed);
    }
    const dp_awaited from = awaited(c);
    return status ? status : dp_overdue_check(&c->overdue, &from, rt_now_ns(), error);
}

// ---- reloading -------------------------------------------------------------------------------

// True: the configuration should be read again. A request for a checkpoint is passed on.
static bool take_signals(coordinator *c)
{
    struct signalfd_siginfo one;
    bool reload = false;
    while (c->config->signal_fd >= 0 &&
           read(c->config->signal_fd, &one, sizeof one) == sizeof one) {
        reload |= one.ssi_signo == SIGHUP;
        if (one.ssi_signo == SIGUSR1 && c->checkpoint)
            c->cut.is_wanted = true;
        else if (one.ssi_signo == SIGUSR1)
            rt_warn("no checkpoint is made: neither --out nor checkpoint.directory says where");
    }
    return reload;
}

static void take_over(coordinator *c, const dp_reloaded *values)
{
    const dp_reloaded *old = &c->in_force;
    if (values->alpha != old->alpha || values->alpha_auto != old->alpha_auto)
        dp_controller_set_alpha(&c->controller, values->alpha_auto,
                                values->alpha_auto ? old->alpha : values->alpha);
    if (values->search_evaluations != old->search_evaluations ||
        values->budget_ms != old->budget_ms)
        dp_controller_set_search(&c->controller, values->search_evaluations, values->budget_ms);
    c->in_force = *values;
    tell_records(c);
}

static void reload_config(coordinator *c)
{
    dp_reloaded values;
    const bool asked = take_signals(c);
    if (dp_reload_look(&c->reload, asked, rt_now_ns(), &c->in_force, &values))
        take_over(c, &values);
}

static rt_status train(coordinator *c, rt_error *error)
{
    while (!c->last_sent || c->flights.count || c->cut.planned) {
        rt_status status = send_what_is_planned(c, error);
        reload_config(c);
        if (!status)
            status = wait_for_events(c, error);
        if (!status)
            status = receive_all(c, error);
        if (!status)
            status = go_on_with_checkpoint(c, error);
        if (!status)
            status = go_on_with_probes(c, error);
        if (status)
            return status;
    }
    return RT_OK;
}

// The last checkpoint is on disk, or has failed.
static rt_status end_checkpoints(coordinator *c, rt_error *error)
{
    rt_status status = RT_OK;
    while (c->checkpoint && dp_checkpoint_busy(c->checkpoint) && !status) {
        status = wait_for_events(c, error);
        if (!status)
            status = receive_all(c, error);
        if (!status)
            dp_checkpoint_step(c->checkpoint);
    }
    return status;
}

// ---- the end ---------------------------------------------------------------------------------

static rt_status ask_one(coordinator *c, uint32_t peer, const char *directory, rt_error *error)
{
    rt_message message;
    rt_status status = directory
                           ? rt_control_create_text(&message, RT_MESSAGE_SAVE, SELF, directory)
                           : rt_control_create(&message, RT_MESSAGE_FINISH, SELF);
    if (status)
        return rt_fail(error, status, "out of memory");
    return dp_roster_send(c->roster, peer, &message, error);
}

// Sends FINISH, or SAVE with a directory, to the members of the masks and waits for their answers.
static rt_status ask(coordinator *c, uint64_t workers, uint64_t shards, const char *directory,
                     rt_error *error)
{
    rt_status status = RT_OK;
    c->finished_workers = c->finished_shards = 0;
    c->asked_workers = workers;
    c->asked_shards = shards;
    for (uint64_t rest = workers; rest && !status; rest &= rest - 1)
        status = ask_one(c, rt_peer(RT_ROLE_WORKER, rt_lowest_bit(rest)), directory, error);
    for (uint64_t rest = shards; rest && !status; rest &= rest - 1)
        status = ask_one(c, rt_peer(RT_ROLE_PS, rt_lowest_bit(rest)), directory, error);
    while (!status && (c->finished_workers != workers || c->finished_shards != shards)) {
        status = wait_for_events(c, error);
        if (!status)
            status = receive_all(c, error);
    }
    return status;
}

static rt_status save_scale(const coordinator *c, const char *directory, rt_error *error)
{
    rt_bytes file = {0};
    rt_status status = RT_OK;
    if (dp_feed_put_scale(c->feed, &file))
        status = rt_fail(error, RT_NO_MEMORY, "out of memory for the scale of the dense features");
    else
        status = dp_checkpoint_write_scale(&file, directory, error);
    rt_bytes_fini(&file);
    return status;
}

static rt_status save_model(coordinator *c, rt_error *error)
{
    char directory[RT_PATH_MAX + 16];
    uint64_t shards = rt_bit(c->config->config->ps_shard_count) - 1;
    if (!c->config->directory)
        return RT_OK;
    snprintf(directory, sizeof directory, "%s/model", c->config->directory);
    rt_status status = rt_checkpoint_make(directory, error);
    if (!status)
        status = save_scale(c, directory, error);
    if (!status)
        status = ask(c, 1, shards, directory, error); // worker 0 has the dense part
    return status ? status : dp_checkpoint_write_config(c->config->config, directory, error);
}

static rt_status finish(coordinator *c, rt_error *error)
{
    if (dp_tally_samples(c->tally) == 0 && !c->interrupted)
        return rt_fail(error, RT_DATA, "no sample was in the input: no model is written");
    rt_status status = end_checkpoints(c, error);
    if (!status)
        status = ask(c, all_workers(c), 0, NULL, error);
    if (!status)
        status = save_model(c, error);
    if (status)
        return status;
    rt_stream_stats stats = dp_feed_stream_stats(c->feed);
    return dp_tally_finish(c->tally, &stats, c->interrupted, error);
}

// ---- going on --------------------------------------------------------------------------------

// Controllers and link table know what is in force.
static void take_over_values(coordinator *c)
{
    const dp_planner *planner = c->resumed.planner;
    c->costs.rates = *dp_planner_rates(planner);
    dp_links_resume(&c->links, planner);
    dp_controller_resume(&c->controller, dp_planner_value(planner, DP_INPUT_ALPHA, 0),
                         (uint32_t)dp_planner_value(planner, DP_INPUT_SEARCH_EVALUATIONS, 0),
                         c->costs.rates.compute_s_per_sample);
}

static rt_status resume(coordinator *c, rt_error *error)
{
    const dp_resume_config config = {.config = c->config->config,
                                     .directory = c->checkpoints,
                                     .schema = c->config->schema,
                                     .config_hash = c->config->config_hash,
                                     .epoch = c->epoch,
                                     .sender = SELF,
                                     .planner = &c->planner,
                                     .limits = c->limits,
                                     .roster = c->roster,
                                     .tally = c->tally,
                                     .stop_fd = c->config->stop_fd,
                                     .other = take_message,
                                     .context = c};
    rt_status status = dp_resume_run(&config, &c->resumed, error);
    if (status == RT_NOT_FOUND && c->config->resume == DP_RESUME_IF_ANY) {
        rt_warn("%s: starting from the beginning", error->text);
        *error = (rt_error){0};
        return RT_OK;
    }
    if (status)
        return status;
    take_over_values(c);
    return RT_OK;
}

static rt_status create_checkpoint(coordinator *c, rt_error *error)
{
    const dp_checkpoint_config config = {.directory = c->checkpoints,
                                         .config = c->config->config,
                                         .config_hash = c->config->config_hash,
                                         .schema = c->config->schema,
                                         .epoch = c->epoch,
                                         .metrics = dp_tally_metrics(c->tally)};
    if (!*c->checkpoints)
        return RT_OK;
    rt_status status = dp_checkpoint_create(&config, c->resumed.past, c->resumed.past_count,
                                            &c->checkpoint, error);
    c->cut = (dp_cut){.roster = c->roster,
                      .every_s = c->config->config->checkpoint.every_s,
                      .end_ns = rt_now_ns(),
                      .tally = c->tally,
                      .checkpoint = c->checkpoint,
                      .sender = SELF,
                      .worker_count = c->limits.worker_count,
                      .shard_count = c->config->config->ps_shard_count};
    return status;
}

// The stream is taken over.
static rt_status begin_feed(coordinator *c, rt_stream *stream, rt_error *error)
{
    rt_status status = create_checkpoint(c, error);
    if (!status)
        status = create_feed(c, stream, error);
    if (!c->feed)
        rt_stream_close(stream);
    return status;
}

// All are there: to the end of the run. stream: NULL where the feed has begun already.
static rt_status conduct(coordinator *c, rt_stream *stream, rt_error *error)
{
    rt_status status = welcome(c, error);
    put_off_taking_back(c);
    if (!status && c->resumes)
        status = resume(c, error);
    if (!status && stream)
        status = begin_feed(c, stream, error);
    else if (stream)
        rt_stream_close(stream);
    for (uint32_t w = 0; w < c->limits.worker_count && !status && stream; w++)
        dp_links_tell(&c->links, w, c->feed, dp_tally_metrics(c->tally));
    if (!status)
        status = train(c, error);
    return status ? status : finish(c, error);
}

// From now on the run is one of these workers. Caches, links and plans in a checkpoint are those of
// its workers, so it has a hash of its own.
static void keep_workers(coordinator *c, uint64_t workers)
{
    const uint64_t both[2] = {c->own.config_hash, workers};
    if (rt_bit_count(workers) == c->given->worker_count)
        return;
    rt_config_keep_workers(&c->kept, workers);
    c->own.config_hash = rt_hash_bytes(both, sizeof both);
}

static rt_status run(coordinator *c, rt_error *error)
{
    const rt_config *config = c->given;
    const bool may_shrink = c->config->may_shrink;
    rt_stream *stream = NULL;
    rt_status status =
        dp_resume_prepare(config, c->config->directory, c->config->resume, c->checkpoints,
                          sizeof c->checkpoints, &c->resumes, &c->epoch, error);
    if (!status)
        status = dp_setup_count_keys(config, &c->distinct_keys, error);
    if (!status)
        status = rt_stream_open(&config->stream, config->seed, &stream, error);
    if (!status) {
        const dp_roster_config roster = {.ops = c->config->ops,
                                         .transport = c->transport,
                                         .config = config,
                                         .config_hash = c->config->config_hash,
                                         .keys = c->config->keys,
                                         .may_shrink = may_shrink,
                                         .without = c->config->without};
        status = dp_roster_create(&roster, &c->roster, error);
    }
    if (!status && !may_shrink)
        status = create_parts(c, stream, error);
    if (!status && !may_shrink && !c->resumes) { // a run of its own plans while others join
        status = begin_feed(c, stream, error);
        stream = NULL;
    }
    if (!status && c->config->announce)
        c->config->announce(c->config->announce_context, dp_roster_address(c->roster));
    if (!status)
        status = dp_roster_assemble(c->roster, c->config->stop_fd, error);
    if (!status && may_shrink) {
        keep_workers(c, dp_roster_workers(c->roster));
        status = create_parts(c, stream, error);
    }
    if (!status)
        return conduct(c, stream, error);
    rt_stream_close(stream);
    return status;
}

static rt_status open_descriptors(coordinator *c, rt_error *error)
{
    struct epoll_event event = {.events = EPOLLIN};
    c->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    c->wait_fd = epoll_create1(EPOLL_CLOEXEC);
    if (c->wake_fd >= 0 && c->wait_fd >= 0 &&
        epoll_ctl(c->wait_fd, EPOLL_CTL_ADD, c->wake_fd, &event) == 0)
        return RT_OK;
    return rt_fail(error, RT_LIMIT, "out of descriptors");
}

static void close_all(coordinator *c)
{
    dp_flights_fini(&c->flights, c->feed);
    dp_cut_fini(&c->cut);
    dp_checkpoint_destroy(c->checkpoint);
    dp_feed_destroy(c->feed);
    dp_planner_destroy(c->resumed.planner);
    dp_tally_destroy(c->tally);
    dp_roster_destroy(c->roster);
    rt_free(c->resumed.past);
    rt_scale_destroy(c->resumed.scale);
    if (c->transport)
        c->config->ops->close(c->transport);
    if (c->wake_fd >= 0)
        close(c->wake_fd);
    if (c->wait_fd >= 0)
        close(c->wait_fd);
}

rt_status dp_coordinator_run(const dp_coordinator_config *config, rt_error *error)
{
    coordinator c = {.own = *config,
                     .given = config->config,
                     .overdue = {.limit_s = config->config->timeout_answer_s},
                     .wake_fd = -1,
                     .wait_fd = -1};
    const rt_dispatch_config *dispatch = &config->config->dispatch;
    if (rt_config_copy(config->config, &c.kept))
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    c.own.config = &c.kept;
    c.config = &c.own;
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
    if (c.roster)
        dp_roster_stop(c.roster, status, status ? error->text : RT_RUN_COMPLETE);
    close_all(&c);
    rt_config_fini(&c.kept);
    return status;
}
