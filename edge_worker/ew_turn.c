// A worker's turns: training, the dense exchange, and what else is due. See ew_run.h.
#include <inttypes.h>
#include <string.h>
#include <sys/eventfd.h>

#include "edge_worker/ew_run.h"
#include "runtime/rt_log.h"

#define ENDPOINTS_MAX (1 + RT_SHARDS_MAX + RT_WORKERS_MAX)
_Static_assert(ENDPOINTS_MAX <= RT_ENDPOINTS_MAX, "one wait is for all of them");

static rt_status send_report(ew_run *w, const ew_trained *trained, const rt_counts *done,
                             uint32_t sample_count, uint64_t sequence, rt_error *error)
{
    rt_message message;
    const ew_executor_statistics all = ew_executor_get_statistics(w->executor);
    rt_wire_report *report = &w->report;
    report->sample_count = sample_count;
    report->stale_reads = (uint32_t)(all.stale_reads - w->so_far.stale_reads);
    report->handed = (uint32_t)(all.handed - w->so_far.handed);
    report->gradients = (uint32_t)(all.gradients - w->so_far.gradients);
    w->so_far = all;
    report->up_bytes_per_s = bw_passive_estimate(&w->link, BW_UP);
    report->down_bytes_per_s = bw_passive_estimate(&w->link, BW_DOWN);
    report->up_at_least = bw_passive_at_least(&w->link, BW_UP);
    report->down_at_least = bw_passive_at_least(&w->link, BW_DOWN);
    report->skipped = !w->apply;
    report->done = *done;
    rt_counts_add(&w->reported, done);
    report->fingerprint = w->fingerprint;
    report->loss_sum = 0;
    report->dense_early_bytes = 0;
    if (trained) {
        report->loss_sum = trained->loss_sum;
        report->dense_early_bytes = ew_exchange_early_bytes(w->exchange);
    }
    const size_t bytes = sample_count * (size_t)ew_model_output_count(w->model) * sizeof(float);
    rt_status status = rt_message_create(&message, RT_MESSAGE_REPORT, ew_run_self(w), sequence, 1,
                                         sizeof *report + bytes);
    if (status)
        return rt_fail(error, status, "out of memory");
    memcpy(rt_message_payload(&message), report, sizeof *report);
    if (sample_count)
        memcpy(rt_message_payload(&message) + sizeof *report, trained->predictions, bytes);
    return rt_member_send(&w->member, &message, error);
}

// The time since the last look went into what the executor waited for since then: between two
// looks nothing arrives.
static void account_wait(ew_run *w)
{
    const uint64_t now = rt_now_ns();
    if (!w->phase && !ew_exchange_busy(w->exchange) && w->idle_ns)
        w->waited_ns[ew_executor_waits_for(w->executor)] +=
            now - rt_max_u64(w->idle_ns, w->looked_ns);
    w->looked_ns = now;
}

// Whether iterations can begin: whoever trains needs the others' gradients.
static rt_status await_others(ew_run *w, rt_error *error)
{
    if (w->joined)
        return RT_OK;
    const rt_status status = ew_exchange_ready(w->exchange, error);
    if (status)
        return status;
    w->joined = true;
    if (w->rank == 0)
        rt_info("dense gradients are summed by %s", ew_exchange_name(w->exchange));
    return RT_OK;
}

static bool takes_part(const ew_run *w, const rt_wire_slice *slice)
{
    return slice->workers >> w->rank & 1;
}

// Whether the giver is to have the dense weights: at a cut that says so, and at the end.
static bool is_giver_asked(const ew_run *w)
{
    return (w->mark.waits && w->mark.wants_dense) || w->finish == EW_FINISH_ASKED;
}

// Who trained alone has the weights alone. The shards get them before others train, and, where
// nothing is to be trained, before the giver, which is another worker, asks for them.
// next: NULL, nothing is.
static bool are_shared(const ew_run *w, const rt_wire_slice *next)
{
    if (next)
        return next->workers != rt_bit(w->rank);
    return is_giver_asked(w) && w->rank != w->giver;
}

// After which iteration the weights are needed: before the one in which this worker trains next,
// or, of the giver, once all is trained. Else those that are here will do.
static uint64_t needed_weights(const ew_run *w, const rt_wire_slice *next)
{
    if (next && takes_part(w, next))
        return next->iteration - 1;
    const bool is_asked = is_giver_asked(w) && w->rank == w->giver;
    if (!next && is_asked)
        return rt_max_u64(ew_executor_iteration(w->executor), w->weights.version);
    return w->weights.version;
}

// RT_AGAIN: the shards are asked for them.
static rt_status await_weights(ew_run *w, rt_error *error)
{
    const rt_wire_slice *next = ew_executor_next_counts(w->executor);
    if (are_shared(w, next)) {
        const rt_status status = ew_weights_share(&w->weights, error);
        if (status)
            return status;
    }
    return ew_weights_get(&w->weights, needed_weights(w, next), error);
}

// Takes the next job, if it can begin. RT_AGAIN: not now.
static rt_status next_job(ew_run *w, rt_error *error)
{
    if (w->phase || ew_exchange_busy(w->exchange))
        return RT_AGAIN;
    rt_status status = await_weights(w, error);
    if (status)
        return status;
    status = ew_executor_next_job(w->executor, &w->job);
    if (status)
        return status;
    const rt_wire_slice *slice = &w->job.slice->counts;
    account_wait(w);
    w->fingerprint = slice->fingerprint;
    w->iteration = slice->iteration;
    w->place = dp_slice_place(slice);
    w->report.times = (rt_times){.plan_ns = w->waited_ns[EW_WAIT_PLAN],
                                 .push_ns = w->waited_ns[EW_WAIT_PUSH],
                                 .pull_ns = w->waited_ns[EW_WAIT_PULL]};
    if (slice->left_out) // others trained meanwhile: it is not the plan that was late
        w->report.times.plan_ns = 0;
    memset(w->waited_ns, 0, sizeof w->waited_ns);
    return RT_OK;
}

// The worker takes no part: it has no samples and no gradients, and does not hear of the verdict.
static rt_status sit_out(ew_run *w, rt_error *error)
{
    rt_counts done = {0};
    const rt_wire_slice *slice = &w->job.slice->counts;
    if (slice->sample_count || slice->row_count)
        return rt_fail(error, RT_WIRE,
                       "slice %" PRIu64 " has %" PRIu32 " samples for this worker, which takes no "
                       "part in iteration %" PRIu32,
                       w->job.sequence, slice->sample_count, slice->iteration);
    w->apply = true;
    w->idle_ns = rt_now_ns();
    rt_status status = ew_executor_trained(w->executor, NULL, true, &done, error);
    w->report.idle = ew_run_is_idle(w);
    if (!status)
        status = send_report(w, NULL, &done, 0, w->job.sequence, error);
    w->report.idle = 0;
    return status;
}

// In the run's first iteration the lowest rank of several tells the shards the weights.
static bool begins_weights(const ew_run *w, const rt_wire_slice *slice)
{
    return slice->iteration == w->weights.begun + 1 && w->rank == rt_lowest_bit(slice->workers) &&
           slice->workers != rt_bit(w->rank);
}

static rt_status start_training(ew_run *w, rt_error *error)
{
    const rt_wire_slice *slice = &w->job.slice->counts;
    if (begins_weights(w, slice)) {
        const rt_status status = ew_weights_begin(&w->weights, error);
        if (status)
            return status;
    }
    ew_weights_shift(&w->weights, slice->log_odds, w->job.slice->more_odds);
    w->is_untrained = slice->flags & DP_SLICE_UNTRAINED;
    w->phase = EW_PHASE_TRAINS;
    w->report.times.dense_ns = w->summed_ns - w->trained_ns;
    if (!w->device.unified)
        ew_device_rows_flush(&w->device_rows);
    ew_exchange_begin(w->exchange, slice->iteration, slice->dense_chunk_floats, slice->workers);
    ew_trainer_train(w->trainer, w->job.slice);
    return RT_OK;
}

// Iterations in which this worker sits out are over at once; then the next may begin. RT_AGAIN:
// none can.
static rt_status begin_job(ew_run *w, rt_error *error)
{
    rt_status status = await_others(w, error);
    if (status)
        return status;
    for (;;) {
        status = next_job(w, error);
        if (status)
            return status;
        if (takes_part(w, &w->job.slice->counts))
            return start_training(w, error);
        status = sit_out(w, error);
        if (status)
            return status;
    }
}

static rt_status start_job(ew_run *w, rt_error *error)
{
    const rt_status status = begin_job(w, error);
    if (status == RT_AGAIN)
        return RT_OK;
    return status;
}

// Rows wait for the verdict, for it may be that nothing counts; and where homes of rows are
// planned, because it says that all have pulled: only then may a shard forget what has gone
// elsewhere.
static bool awaits_verdict(const ew_run *w)
{
    return w->config->config->guard_skip_bad_batches ||
           w->config->config->ps_homes == RT_HOMES_PLANNED;
}

static void step_rows(ew_run *w, bool apply)
{
    w->phase = EW_PHASE_STEPS_ROWS;
    w->apply = !w->is_untrained && (apply || !w->config->config->guard_skip_bad_batches);
    ew_trainer_rows(w->trainer, w->job.slice, w->apply);
}

// The trainer has the job's gradients.
static rt_status take_gradients(ew_run *w, rt_error *error)
{
    w->phase = EW_PHASE_AWAITS_VERDICT;
    w->trained_ns = rt_now_ns();
    ew_exchange_trained(w->exchange);
    const rt_status status = ew_exchange_advance(w->exchange, error);
    if (status)
        return status;
    if (!awaits_verdict(w))
        step_rows(w, true);
    return RT_OK;
}

// And now its rows are stepped: the job is done. What of it is reported is read before the executor
// takes the slice away.
static rt_status end_job(ew_run *w, const ew_trained *trained, rt_error *error)
{
    rt_counts done = {0};
    const uint64_t sequence = w->job.sequence;
    const uint32_t samples = w->job.slice->counts.sample_count;
    w->phase = EW_PHASE_NONE;
    w->report.times.compute_ns = trained->compute_ns;
    const rt_status status =
        ew_executor_trained(w->executor, trained->row_gradients, w->apply, &done, error);
    if (status)
        return status;
    return send_report(w, trained, &done, samples, sequence, error);
}

static rt_status take_result(ew_run *w, rt_error *error)
{
    const ew_trained *trained;
    eventfd_t count;
    (void)eventfd_read(w->wake_fd, &count); // another wake-up may have emptied it
    if (!w->phase || ew_trainer_result(w->trainer, &trained))
        return RT_OK;
    if (trained->status) {
        *error = trained->error;
        return trained->status;
    }
    if (w->phase == EW_PHASE_TRAINS)
        return take_gradients(w, error);
    return end_job(w, trained, error);
}

// The verdict is the last float of the vector: its sum can be there before the others.
static rt_status take_sums(ew_run *w, rt_error *error)
{
    float verdict;
    if (w->phase == EW_PHASE_AWAITS_VERDICT && ew_exchange_last(w->exchange, &verdict))
        step_rows(w, verdict == 0);
    rt_status status = ew_exchange_take(w->exchange, error);
    if (status == RT_AGAIN)
        return RT_OK;
    if (status)
        return status;
    w->summed_ns = rt_now_ns();
    w->idle_ns = w->summed_ns;
    uint32_t count;
    const float *gradients = ew_trainer_dense_gradients(w->trainer, &count);
    status = ew_weights_step(&w->weights, w->iteration, w->place, w->apply,
                             ew_exchange_alone(w->exchange), gradients, error);
    ew_trainer_dense(w->trainer, w->place, w->apply);
    return status;
}

// Coordinator, shards, then other workers. ready: of the endpoints in this order.
static rt_status wait_for_messages(ew_run *w, bool ready[ENDPOINTS_MAX], rt_error *error)
{
    rt_endpoint *endpoints[ENDPOINTS_MAX];
    const uint32_t count = 1 + w->shard_count;
    uint32_t wait_ms = rt_member_wait_ms(&w->member);
    if (ew_exchange_is_held_up(w->exchange) || ew_executor_is_held_up(w->executor))
        wait_ms = 1; // the transport does not tell when it has room again
    const uint64_t begin_ns = rt_now_ns();
    memcpy(endpoints, w->endpoints, count * sizeof *endpoints);
    const uint32_t others = ew_peers_endpoints(&w->peers, endpoints + count);
    rt_status status = w->config->ops->wait(endpoints, count + others, w->wake_fd, wait_ms, ready);
    if (status)
        return rt_fail(error, status, "waiting for messages: %s", rt_status_text(status));
    w->prompt = rt_now_ns() - begin_ns >= BW_PROMPT_NS;
    account_wait(w);
    return RT_OK;
}

// Messages out, the next training.
static rt_status go_on(ew_run *w, rt_error *error)
{
    const rt_status status = ew_executor_flush(w->executor, error);
    if (status)
        return status;
    return start_job(w, error);
}

// What others have sent. ready: of the endpoints, as they are waited for.
static rt_status drain(ew_run *w, const bool ready[ENDPOINTS_MAX], rt_error *error)
{
    for (uint32_t s = 0; s < w->shard_count; s++) {
        if (!ready[1 + s])
            continue;
        const rt_status status = ew_run_drain_shard(w, s, error);
        if (status)
            return status;
    }
    if (w->peers.connected) {
        const rt_status status = ew_run_drain_peers(w, error);
        if (status)
            return status;
    }
    if (ready[0])
        return ew_run_drain_coordinator(w, error);
    return rt_member_check(&w->member, error);
}

// What the trainer, the exchange and the sockets have for this worker.
static rt_status take_in(ew_run *w, const bool ready[ENDPOINTS_MAX], rt_error *error)
{
    rt_status status = take_result(w, error);
    if (status)
        return status;
    status = ew_exchange_advance(w->exchange, error);
    if (status)
        return status;
    return drain(w, ready, error);
}

static rt_status keep_up(ew_run *w, rt_error *error)
{
    if (rt_member_vitals_due(&w->member)) {
        const rt_status status = ew_run_tell_vitals(w, error);
        if (status)
            return status;
    }
    return rt_member_beat(&w->member, error);
}

// One turn: waits for messages, then each part does what it can without waiting, in the order in
// which an iteration passes through them, so that what one part hands on is taken up in the same
// turn:
//
//     the trainer's result -> dense exchange -> rows and confirmations of the shards -> rows of
//     other workers -> slices and words of the coordinator -> plans of its own -> sums of the
//     exchange -> operations that have become possible -> messages out -> the next training, if all
//     its rows are here
//
// and where nothing is left to do the questions of the coordinator: a mark, a probe, the end.
// Training itself is in a thread of its own (ew_trainer), which ends the wait when it is done.
rt_status ew_run_turn(ew_run *w, rt_error *error)
{
    bool ready[ENDPOINTS_MAX] = {false};
    rt_status status = wait_for_messages(w, ready, error);
    if (status)
        return status;
    status = take_in(w, ready, error);
    if (status)
        return status;
    status = take_sums(w, error);
    if (status)
        return status;
    status = go_on(w, error);
    if (status)
        return status;
    status = ew_run_answer_if_idle(w, error);
    if (status)
        return status;
    return keep_up(w, error);
}
