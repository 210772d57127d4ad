// From slice to slice: what is planned goes out, messages of members come in, and beside that
// checkpoints, probes of links and a reload of the configuration go on. See dp_run.h.
#include <inttypes.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#include "dispatch/coordinator/dp_control.h"
#include "dispatch/coordinator/dp_watch.h"
#include "dispatch/coordinator/dp_move.h"
#include "dispatch/coordinator/dp_run.h"
#include "runtime/transport/rt_ask.h"

#define LIVE_RECORD_NS UINT64_C(1000000000)
#define PRESSED_CUT_NS UINT64_C(2000000000) // between checkpoints that a full journal asks for
#define AHEAD_MAX 3u // checkpoints beside training, before the one with which all start anew

// ---- iterations that are out -----------------------------------------------------------------

// Of these workers, those that have to report it and have not.
static uint64_t awaited_of(const dp_open_iteration *one, uint64_t workers)
{
    return workers & ~one->reported & ~one->planned->idle;
}

rt_status dp_open_init(dp_open_iterations *open, uint32_t max, rt_error *error)
{
    *open = (dp_open_iterations){.max = max, .list = rt_alloc(max, sizeof *open->list)};
    if (!open->list)
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    return RT_OK;
}

void dp_open_fini(dp_open_iterations *open, dp_feed *feed)
{
    for (uint32_t i = 0; i < open->max && open->list; i++) {
        if (open->list[i].planned)
            dp_feed_give(feed, open->list[i].planned);
    }
    rt_free(open->list);
    *open = (dp_open_iterations){0};
}

static void put_open(dp_open_iterations *open, dp_planned *planned)
{
    dp_open_iteration *one = &open->list[planned->sequence % open->max];
    rt_assert(!one->planned);
    *one = (dp_open_iteration){.planned = planned};
    open->count++;
}

static dp_planned *take_open(dp_open_iterations *open, dp_open_iteration *one)
{
    dp_planned *planned = one->planned;
    one->planned = NULL;
    open->count--;
    return planned;
}

// Of those that this worker has to report; 0: of all.
static dp_open_iteration *oldest_of(const dp_open_iterations *open, uint64_t worker)
{
    dp_open_iteration *oldest = NULL;
    for (uint32_t i = 0; i < open->max; i++) {
        dp_open_iteration *one = &open->list[i];
        if (one->planned && (!worker || awaited_of(one, worker)) &&
            (!oldest || one->planned->sequence < oldest->planned->sequence))
            oldest = one;
    }
    return oldest;
}

static dp_open_iteration *oldest_if_reported(const dp_open_iterations *open, uint64_t workers)
{
    dp_open_iteration *oldest = oldest_of(open, 0);
    if (!oldest || awaited_of(oldest, workers))
        return NULL;
    return oldest;
}

// ---- iterations ------------------------------------------------------------------------------

// Workers wait to be taken back, and it is time.
static bool takes_back(const dp_run *run)
{
    const uint64_t returning = dp_membership_returning(dp_roster_members(run->roster));
    return run->checkpoint && !run->interrupted && returning &&
           rt_now_ns() >= run->restart.not_before_ns &&
           returning & ~dp_losses_too_often(&run->losses, time(NULL));
}

// The next checkpoint ends the run for all, who then start anew from it.
static bool ends_for_all(const dp_run *run)
{
    return takes_back(run) || (run->move.is_asked && !run->interrupted);
}

static bool is_large(const dp_run *run)
{
    uint64_t bytes = 0;
    for (uint32_t s = 0; s < run->run_config.ps_shard_count; s++)
        bytes += run->watch.shards[s].row_bytes;
    return bytes >= DP_MERGE_BYTES_MIN;
}

// All wait for the checkpoint with which they start anew. So where it may be large one goes ahead
// of it, beside training, and another one while that halves what the last has to write.
static bool goes_ahead(dp_run *run, uint32_t cut)
{
    const uint32_t passed = cut - dp_checkpoint_newest(run->checkpoint);
    const bool is_less = run->restart.ahead == 0 || passed < run->restart.passed / 2;
    if (!is_large(run) || !is_less || run->restart.ahead == AHEAD_MAX)
        return false;
    run->restart.ahead++;
    run->restart.passed = passed;
    return true;
}

static rt_status send_slices(dp_run *run, dp_planned *planned, rt_error *error)
{
    const dp_membership_slice slice = {planned->sequence, planned->iteration, planned->participants,
                                       planned->needed, planned->clean};
    if (!dp_membership_sent(dp_roster_members(run->roster), &slice))
        return rt_fail(error, RT_PEER,
                       "an iteration that was planned earlier needs the lost worker");
    for (uint64_t rest = dp_run_workers(run) & ~planned->idle; rest; rest &= rest - 1) {
        const uint32_t w = rt_lowest_bit(rest);
        const rt_status status =
            dp_roster_send(run->roster, rt_peer(RT_ROLE_WORKER, w), &planned->slices[w], error);
        if (status)
            return status;
    }
    return RT_OK;
}

// A flush trains nothing: nobody reports on it, MARK and FINISH ask for its end.
static void note_flush(dp_run *run, const dp_planned *planned)
{
    if (planned->is_last)
        run->phase = DP_RUN_DRAINS;
    dp_stats_flush(run->stats, planned);
    if (!planned->is_cut)
        return;
    run->restart.checkpoint = 0;
    const bool is_wanted = !planned->is_last && ends_for_all(run);
    if (is_wanted && goes_ahead(run, planned->cut))
        return;
    run->restart.ahead = 0;
    if (is_wanted)
        run->restart.checkpoint = planned->cut;
}

static rt_status send_planned(dp_run *run, dp_planned *planned, rt_error *error)
{
    const rt_status status = send_slices(run, planned, error);
    if (status) {
        dp_feed_give(run->feed, planned);
        return status;
    }
    if (planned->iteration == 0)
        note_flush(run, planned);
    if (planned->is_cut || planned->is_sweep)
        return dp_cut_begin(&run->cut, planned, error);
    if (planned->iteration == 0) {
        dp_feed_give(run->feed, planned);
        return RT_OK;
    }
    put_open(&run->open, planned);
    return RT_OK;
}

static rt_status send_what_is_planned(dp_run *run, rt_error *error)
{
    while (run->phase == DP_RUN_TRAINS && !run->cut.planned && !run->restart.checkpoint &&
           !run->prober.open && run->open.count < run->open.max) {
        dp_planned *planned;
        rt_status status = dp_feed_take(run->feed, &planned, error);
        if (status == RT_AGAIN)
            return RT_OK;
        if (status)
            return status;
        status = send_planned(run, planned, error);
        if (status)
            return status;
    }
    return RT_OK;
}

// All workers agree, and not too often.
static rt_status check_verdict(dp_run *run, const dp_open_iteration *f, rt_error *error)
{
    const rt_config *config = &run->run_config;
    const uint32_t iteration = f->planned->iteration, max = config->guard_bad_batches_max;
    const uint64_t told =
        f->reported & f->planned->participants; // who sits out does not hear of it
    const bool is_skipped = f->planned->is_untrained || (f->bad && config->guard_skip_bad_batches);
    const uint64_t skips = is_skipped ? told : 0;
    const char *though = is_skipped ? "the others did" : "but every loss is finite";
    if (f->skipped != skips)
        return rt_fail(error, RT_WIRE,
                       "iteration %" PRIu32 ": workers %#" PRIx64 " applied nothing, %s", iteration,
                       f->skipped, though);
    if (!f->bad)
        return RT_OK;
    const uint64_t number = dp_stats_bad_batches(run->stats) + 1;
    if (number > max)
        return rt_fail(error, RT_DATA,
                       "iteration %" PRIu32 " is bad batch number %" PRIu64 ": its loss is not "
                       "finite; a run ends after more than %" PRIu32,
                       iteration, number, max);
    const char *outcome =
        config->guard_skip_bad_batches ? "nothing of it is applied" : "and it is applied";
    rt_warn("iteration %" PRIu32 ": the loss is not finite, %s (bad batch number %" PRIu64 ")",
            iteration, outcome, number);
    return RT_OK;
}

// Of an iteration without embedding traffic: the longest computing, and the shortest wait for the
// dense exchange, in which the last of the workers waits for nobody. 0: nobody trained.
static double necessary_s(const dp_open_iteration *f)
{
    return (double)(f->compute_ns + f->dense_ns) * 1e-9;
}

// All workers that have a slice of it have reported.
static void finish_iteration(dp_run *run, dp_open_iteration *f)
{
    const dp_planned *planned = f->planned;
    rt_stream_stats stats = dp_feed_stream_stats(run->feed);
    dp_input input;
    uint64_t now = rt_now_ns();
    if (run->iteration_ns == 0)
        dp_feed_keep_journal(run->feed);
    dp_stats_iteration(run->stats, planned, &stats);
    dp_run_watch_iteration(run, planned);
    dp_move_iterated(run);
    if (run->live && now - run->live_recorded_ns >= LIVE_RECORD_NS) {
        dp_live_record(run->live, &stats, dp_stats_metrics(run->stats));
        run->live_recorded_ns = now;
    }
    if (run->iteration_ns)
        dp_controller_iterated(&run->settings.controller, (double)(now - run->iteration_ns) * 1e-9);
    run->iteration_ns = now;
    dp_controller_necessary(
        &run->settings.controller, necessary_s(f),
        (double)(planned->decision_ns - planned->place_ns + planned->commit_ns) * 1e-9);
    dp_controller_decided(&run->settings.controller, &planned->decision,
                          (double)planned->decision_ns * 1e-9, (double)planned->place_ns * 1e-9);
    dp_run_tell_records(run);
    if (dp_ages_iterated(&run->ages, planned->iteration, now, &input))
        dp_feed_tell(run->feed, &input);
    dp_links_iterated(&run->links, planned->iteration, run->feed, dp_stats_metrics(run->stats));
    dp_membership_completed(dp_roster_members(run->roster), planned->iteration);
    dp_feed_give(run->feed, take_open(&run->open, f));
}

// In their order: workers that are left out of an iteration may have to report on one before it.
static rt_status finish_iterations(dp_run *run, rt_error *error)
{
    for (dp_open_iteration *f; (f = oldest_if_reported(&run->open, dp_run_workers(run)));) {
        const rt_status status = check_verdict(run, f, error);
        if (status)
            return status;
        finish_iteration(run, f);
    }
    return RT_OK;
}

static rt_status take_report(dp_run *run, uint32_t peer, const rt_message *message, rt_error *error)
{
    char name[32];
    rt_wire_report report;
    rt_reader reader = rt_message_reader(message);
    const void *head = rt_reader_take(&reader, 1, sizeof report);
    uint64_t sequence = rt_message_header(message)->iteration;
    uint32_t worker = rt_peer_rank(peer);
    dp_open_iteration *f = NULL;
    if (rt_peer_role(peer) == RT_ROLE_WORKER)
        f = oldest_of(&run->open, rt_bit(worker)); // a worker trains them in order
    rt_peer_name(peer, name);
    if (!head || !f || f->planned->sequence != sequence)
        return rt_fail(error, RT_WIRE, "%s: a report on slice %" PRIu64 " that nobody waits for",
                       name, sequence);
    memcpy(&report, head, sizeof report);
    uint32_t expected = 0;
    if (f->planned->iteration)
        expected = f->planned->label_offsets[worker + 1] - f->planned->label_offsets[worker];
    const float *predictions =
        rt_reader_take(&reader, report.sample_count,
                       rt_config_output_count(&run->run_config.stream) * sizeof(float));
    if (report.sample_count != expected || !predictions || reader.left)
        return rt_fail(error, RT_WIRE, "%s: a report on %" PRIu32 " samples, expected %" PRIu32,
                       name, report.sample_count, expected);
    if (report.fingerprint != f->planned->fingerprint)
        return rt_fail(error, RT_WIRE,
                       "%s trained iteration %" PRIu32 " by another plan (fingerprint %016" PRIx64
                       ", here %016" PRIx64 ")",
                       name, f->planned->iteration, report.fingerprint, f->planned->fingerprint);
    f->reported |= rt_bit(worker);
    dp_membership_reported(dp_roster_members(run->roster), worker, sequence, report.idle);
    dp_stats_report(run->stats, f->planned, worker, &report, predictions);
    dp_links_reported(&run->links, worker, &report);
    dp_prober_reported(&run->prober, worker, &report, rt_now_ns());
    dp_controller_computed(&run->settings.controller, worker,
                           (double)report.times.compute_ns * 1e-9, report.sample_count);
    if (report.sample_count > 0) {
        f->dense_ns =
            f->compute_ns ? rt_min_u64(f->dense_ns, report.times.dense_ns) : report.times.dense_ns;
        f->compute_ns = rt_max_u64(f->compute_ns, report.times.compute_ns);
    }
    if (report.skipped)
        f->skipped |= rt_bit(worker);
    f->bad |= !isfinite(report.loss_sum);
    return finish_iterations(run, error);
}

// ---- checkpoints -----------------------------------------------------------------------------

void dp_run_put_off_taking_back(dp_run *run)
{
    run->restart.not_before_ns = rt_now_ns() + (uint64_t)(run->site_config.timeout_rejoin_s * 1e9);
}

// The checkpoint with which workers are taken back, as soon as it is written or has failed. Until
// then no iteration goes out that would have to be done again.
static rt_status end_hold(dp_run *run, rt_error *error)
{
    if (!run->restart.checkpoint || run->cut.planned || dp_checkpoint_busy(run->checkpoint))
        return RT_OK;
    const bool is_written = dp_checkpoint_newest(run->checkpoint) == run->restart.checkpoint;
    run->restart.checkpoint = 0;
    if (run->move.is_asked)
        return dp_move_end(run, is_written, error);
    if (is_written && takes_back(run))
        return rt_fail(error, RT_AGAIN,
                       "workers are back: all processes start again from "
                       "iteration %" PRIu32,
                       dp_checkpoint_newest(run->checkpoint));
    dp_run_put_off_taking_back(run);
    return RT_OK;
}

// What no checkpoint needs any more goes; where there is little room, what the newest does not
// need. Then a checkpoint is due, too.
static void cut_journal(dp_run *run)
{
    for (rt_flow flow = 0; flow < RT_FLOWS; flow++) {
        rt_journal *journal = rt_live_journal(run->live, flow);
        const bool is_pressed =
            journal && (rt_journal_is_pressed(journal) || rt_journal_is_old(journal));
        const uint64_t event = dp_checkpoint_events(run->checkpoint, is_pressed).next[flow];
        if (journal && event)
            rt_journal_keep_from(journal, event);
        if (is_pressed && !run->cut.planned && !run->cut.is_requested &&
            rt_now_ns() - run->cut.end_ns > PRESSED_CUT_NS &&
            rt_live_statistics(run->live, flow).read > event)
            run->cut.is_wanted = true;
    }
}

// No epoch has been better for stream.patience of them: no more is read.
static void stop_early(dp_run *run)
{
    const dp_holdout *judged = dp_checkpoint_judgements(run->checkpoint);
    const uint32_t patience = run->run_config.stream.patience;
    if (run->stopped_early || patience == 0 || dp_holdout_since_best(judged) < patience)
        return;
    run->stopped_early = true;
    rt_info("training ends (stream.patience)");
    dp_feed_stop(run->feed);
}

// How far they have come, and whether one is due.
static rt_status look_at_checkpoints(dp_run *run, rt_error *error)
{
    dp_checkpoint_step(run->checkpoint);
    stop_early(run);
    if (run->live)
        cut_journal(run);
    const rt_status status = end_hold(run, error);
    if (status)
        return status;
    if (run->move.is_asked && dp_move_is_at_rest(run))
        return dp_move_end(run, true, error);
    if (!run->restart.checkpoint) {
        run->cut.is_wanted |= ends_for_all(run) && !run->cut.is_requested && !run->cut.planned;
        dp_cut_request(&run->cut);
    }
    return RT_OK;
}

// What is due of a checkpoint or a sweep, and whether a checkpoint is due.
static rt_status go_on_with_checkpoint(dp_run *run, rt_error *error)
{
    dp_control_step(run);
    dp_adding_step(run);
    if (run->checkpoint) {
        const rt_status status = look_at_checkpoints(run, error);
        if (status)
            return status;
    }
    if (run->open.count)
        return RT_OK;
    return dp_cut_step(&run->cut, error);
}

// ---- probes ----------------------------------------------------------------------------------

// What is due of probes of links, and whether one is due. A pause is not an iteration's time.
static rt_status go_on_with_probes(dp_run *run, rt_error *error)
{
    const bool may_begin = run->phase == DP_RUN_TRAINS && !run->cut.planned &&
                           !run->restart.checkpoint && !run->interrupted;
    if (run->interrupted)
        dp_prober_stop(&run->prober);
    if (run->prober.open)
        run->iteration_ns = 0;
    return dp_prober_step(&run->prober, may_begin, run->open.count == 0, rt_now_ns(), error);
}

// ---- messages --------------------------------------------------------------------------------

// A worker's answer to FINISH says what it did since its last report: the flush.
static rt_status take_finished(dp_run *run, uint32_t peer, const rt_message *message,
                               rt_error *error)
{
    char name[32];
    rt_wire_report report;
    if (rt_peer_role(peer) != RT_ROLE_WORKER || !rt_control_has(message, sizeof report) ||
        run->phase != DP_RUN_FINISHES || run->finished_workers >> rt_peer_rank(peer) & 1)
        return rt_fail(error, RT_WIRE, "%s: a FINISHED of %zu bytes that nobody waits for",
                       rt_peer_name(peer, name), message->size - sizeof(rt_wire_header));
    memcpy(&report, rt_message_payload(message), sizeof report);
    dp_stats_flushed(run->stats, rt_peer_rank(peer), &report);
    run->finished_workers |= rt_bit(rt_peer_rank(peer));
    return RT_OK;
}

static rt_status take_expired(dp_run *run, uint32_t peer, const rt_message *message,
                              rt_error *error)
{
    const dp_planned *planned = run->cut.planned;
    dp_sweep_record sweep = {0};
    bool is_over;
    if (planned) // it goes back to the feed when the sweep is over
        sweep = (dp_sweep_record){.floor = planned->floor,
                                  .iteration = planned->cut,
                                  .keys_ended = planned->ended,
                                  .forgotten = planned->forgotten_count,
                                  .keys = planned->keys};
    const rt_status status = dp_cut_expired(&run->cut, peer, message, &is_over, error);
    if (!status && is_over)
        dp_stats_swept(run->stats, &sweep, run->cut.ended_rows,
                       (double)(rt_now_ns() - run->cut.begin_ns) * 1e-6);
    return status;
}

// What somebody asks for; it ends nothing.
static rt_status take_control(dp_run *run, uint32_t peer, const rt_message *message)
{
    char request[RT_ASK_BYTES_MAX], answer[RT_ASK_BYTES_MAX] = "", name[32];
    rt_error why = {0};
    rt_status status = rt_control_text(message, request, sizeof request);
    const bool was_asked = run->move.is_asked;
    run->control.visitor = peer;
    if (!dp_roster_may_ask(run->roster, peer))
        status = rt_fail(&why, RT_REFUSED, RT_ASK_ELSEWHERE);
    else if (status)
        rt_fail(&why, status, "a request of too many bytes, or with a zero in it");
    else
        status = dp_control_do(run, request, answer, sizeof answer, &why);
    const char *text = status ? why.text : answer;
    rt_info("%s asked: %s", rt_peer_name(peer, name), text);
    if (run->move.is_asked && !was_asked) // dp_move_end answers
        return RT_OK;
    dp_roster_answer(run->roster, peer, status, text);
    return RT_OK;
}

rt_status dp_run_take(void *context, uint32_t peer, const rt_message *message, rt_error *error)
{
    dp_run *run = context;
    char name[32];
    uint32_t type = rt_message_header(message)->type;
    if (type == RT_MESSAGE_CONTROL)
        return take_control(run, peer, message);
    if (type == RT_MESSAGE_REPORT)
        return take_report(run, peer, message, error);
    if (type == RT_MESSAGE_VITALS)
        return dp_watch_take(&run->watch, peer, message, error);
    if (type == RT_MESSAGE_LINK)
        return dp_prober_take(&run->prober, peer, message, rt_now_ns(), error);
    if (type == RT_MESSAGE_FINISHED)
        return take_finished(run, peer, message, error);
    if (type == RT_MESSAGE_MARK && run->prober.open)
        return dp_prober_mark(&run->prober, peer, message, error);
    if (type == RT_MESSAGE_MARK)
        return dp_cut_mark(&run->cut, peer, message, error);
    if (type == RT_MESSAGE_PART)
        return dp_cut_part(&run->cut, peer, message, error);
    if (type == RT_MESSAGE_PIECE)
        return dp_collect_take(&run->collect, peer, message, error);
    if (type == RT_MESSAGE_CUT)
        return dp_cut_captured(&run->cut, peer, error);
    if (type == RT_MESSAGE_EXPIRE)
        return take_expired(run, peer, message, error);
    if (type == RT_MESSAGE_WRITTEN && rt_peer_role(peer) == RT_ROLE_PS && run->checkpoint)
        return dp_checkpoint_written(run->checkpoint, rt_peer_rank(peer), message, error);
    return rt_fail(error, RT_WIRE, "%s: unexpected %s", rt_peer_name(peer, name),
                   rt_message_type_name(type));
}

static rt_status receive_all(dp_run *run, rt_error *error)
{
    for (;;) {
        uint32_t peer;
        rt_message message = {0};
        rt_status status = dp_roster_receive(run->roster, &peer, &message, error);
        if (!status)
            status = dp_run_take(run, peer, &message, error);
        rt_message_release(&message);
        if (status == RT_AGAIN)
            return RT_OK;
        if (status)
            return status;
    }
}

// The end of a part of a checkpoint ends a wait too. A descriptor that is closed leaves by itself.
static void watch_child(dp_run *run)
{
    struct epoll_event event = {.events = EPOLLIN};
    if (!run->checkpoint)
        return;
    const int fds[] = {dp_checkpoint_fd(run->checkpoint), dp_checkpoint_merge_fd(run->checkpoint)};
    for (uint32_t i = 0; i < RT_COUNT_OF(fds); i++) {
        if (fds[i] >= 0 && epoll_ctl(run->wait_fd, EPOLL_CTL_ADD, fds[i], &event) != 0) {
            // it is watched already; without it waits end all the same, later
        }
    }
}

// Of whom the model is not all there yet, and how much is.
static dp_awaited awaited_of_model(const dp_run *run)
{
    dp_awaited from = {.what = "has sent nothing more of the model"};
    const uint32_t lead = dp_run_lead(run);
    const rt_parcel_in *in = dp_collect_of(&run->collect, lead);
    if (in->status == RT_AGAIN)
        from.workers = rt_bit(rt_peer_rank(lead));
    from.number = in->answered;
    for (uint32_t s = 0; s < run->run_config.ps_shard_count; s++) {
        in = dp_collect_of(&run->collect, rt_peer(RT_ROLE_PS, s));
        if (in->status == RT_AGAIN)
            from.shards |= rt_bit(s);
        from.number += in->answered;
    }
    return from;
}

static dp_awaited awaited(const dp_run *run)
{
    const dp_open_iteration *oldest = oldest_of(&run->open, 0);
    if (oldest)
        return (dp_awaited){.workers = awaited_of(oldest, dp_run_workers(run)),
                            .what = "has not trained an iteration",
                            .number = oldest->planned->sequence};
    if (run->prober.open)
        return dp_prober_awaited(&run->prober);
    if (run->cut.planned)
        return dp_cut_awaited(&run->cut);
    if (run->phase == DP_RUN_SAVES)
        return awaited_of_model(run);
    dp_awaited from = {.what = "has not finished the run"};
    if (run->phase == DP_RUN_FINISHES)
        from.workers = dp_run_workers(run) & ~run->finished_workers;
    return from;
}

// Waits for messages or plans, and notes a request to stop.
static rt_status wait_for_events(dp_run *run, rt_error *error)
{
    eventfd_t count;
    watch_child(run);
    rt_status status = dp_roster_wait(run->roster, run->wait_fd, error);
    (void)eventfd_read(run->wake_fd, &count);
    struct pollfd stop = {.fd = run->own.stop_fd, .events = POLLIN};
    if (!run->interrupted && stop.fd >= 0 && poll(&stop, 1, 0) == 1) {
        rt_info("stopping after the iterations that are under way");
        run->interrupted = true;
        run->restart.checkpoint = 0;
        dp_feed_stop(run->feed);
    }
    const dp_awaited from = awaited(run);
    if (status)
        return status;
    return dp_overdue_check(&run->overdue, &from, rt_now_ns(), error);
}

rt_status dp_run_turn(dp_run *run, rt_error *error)
{
    rt_status status = rt_mirror_check(run->mirror, error);
    if (status)
        return status;
    status = wait_for_events(run, error);
    if (status)
        return status;
    status = receive_all(run, error);
    if (status)
        return status;
    status = finish_iterations(run, error); // some may have waited for a worker that is lost
    if (status)
        return status;
    return dp_collect_step(&run->collect, error);
}

// ---- reloading -------------------------------------------------------------------------------

// Somebody asks for a checkpoint. Where nothing is new it has to wait for that, which is said.
static void want_checkpoint(dp_run *run)
{
    if (!run->checkpoint) {
        rt_warn("no checkpoint is made: neither --out nor checkpoint.directory says where");
        return;
    }
    run->cut.is_wanted = true;
    if (run->open.count || dp_stats_iterations(run->stats) > dp_checkpoint_newest(run->checkpoint))
        return;
    if (dp_checkpoint_newest(run->checkpoint))
        rt_info("nothing is new since the checkpoint of iteration %" PRIu32
                ": the next one is made once something is",
                dp_checkpoint_newest(run->checkpoint));
    else
        rt_info("nothing is trained yet: a checkpoint is made once something is");
}

// True: the configuration should be read again.
static bool take_signals(dp_run *run)
{
    struct signalfd_siginfo one;
    bool reload = false;
    while (run->own.signal_fd >= 0 && read(run->own.signal_fd, &one, sizeof one) == sizeof one) {
        reload |= one.ssi_signo == SIGHUP;
        if (one.ssi_signo == SIGUSR1)
            want_checkpoint(run);
    }
    return reload;
}

static void reload_config(dp_run *run)
{
    dp_reloaded values;
    const bool asked = take_signals(run);
    if (dp_reload_look(&run->settings.reload, asked, rt_now_ns(), &run->settings.in_force, &values))
        dp_control_take_over(run, &values);
}

// The last checkpoint is on disk, or has failed.
static rt_status end_checkpoints(dp_run *run, rt_error *error)
{
    while (run->checkpoint && dp_checkpoint_busy(run->checkpoint)) {
        const rt_status status = dp_run_turn(run, error);
        if (status)
            return status;
        dp_checkpoint_step(run->checkpoint);
    }
    return RT_OK;
}

// Plans, reports or the answers to a cut are still to come.
static bool is_under_way(const dp_run *run)
{
    return run->phase == DP_RUN_TRAINS || run->open.count || run->cut.planned;
}

// Sends what is planned, and takes what has come.
static rt_status train_on(dp_run *run, rt_error *error)
{
    rt_status status = send_what_is_planned(run, error);
    if (status)
        return status;
    reload_config(run);
    if (is_under_way(run)) // the last flush may have gone out just now
        status = dp_run_turn(run, error);
    if (status)
        return status;
    status = go_on_with_checkpoint(run, error);
    if (status)
        return status;
    return go_on_with_probes(run, error);
}

rt_status dp_run_train(dp_run *run, rt_error *error)
{
    run->phase = DP_RUN_TRAINS;
    while (is_under_way(run)) {
        const rt_status status = train_on(run, error);
        if (status)
            return status;
        dp_run_watch(run);
    }
    dp_move_drop(run);
    return end_checkpoints(run, error);
}
