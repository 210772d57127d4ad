#include "dispatch/coordinator/dp_feed.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "dispatch/plan/dp_broadcast.h"
#include "dispatch/planner/dp_participants.h"
#include "dispatch/planner/dp_sweep.h"
#include "runtime/rt_log.h"
#include "runtime/rt_queue.h"
#include "runtime/rt_thread.h"
#include "runtime/stream/rt_position.h"

// One being read, one waiting, one being planned, one whose plan is not final; and cache.lookahead.
#define BATCHES 4u
#define BATCHES_MAX (BATCHES + DP_LOOKAHEAD_MAX)
#define IDLE_NS UINT64_C(5000000000)

typedef struct {
    rt_batch batch;
    rt_bytes end;     // of the batch: where the stream goes on
    rt_scale *scale;  // as it stood at the end; NULL: none
    dp_ranges ranges; // before scaling
    uint64_t dense_clipped;
    uint64_t read_ns;
    uint64_t *arrivals; // arrival_count of the batch's samples, the first ones
    uint32_t arrival_count;
} read_batch;

struct dp_feed {
    dp_feed_config config; // without planner: the caller's only while creating
    uint32_t batch_size;
    rt_stream *stream;
    rt_scale *scale; // the reader's; NULL: dense features stay as they are
    dp_planner *planner;
    dp_participants *chooser; // NULL: nobody chooses
    read_batch batches[BATCHES_MAX];
    uint32_t batch_count;
    read_batch *ahead[DP_LOOKAHEAD_MAX + 1]; // previewed, the next to plan first; planner thread's
    uint32_t ahead_count;
    uint32_t iteration;    // planned last
    uint32_t last_cut;     // iteration before the last cut, or where a run was resumed
    rt_bytes ids;          // of the events before the first that is read; the reader's
    rt_bytes stood;        // where the stream goes on after the batch that was planned last
    rt_scale *stood_scale; // likewise
    rt_bytes waiting;      // restored; the reader's
    rt_bytes input_end;    // where it ended, once the reader has seen that; else empty
    dp_planned *planned;   // config.planned_max
    rt_queue *free_batches, *full_batches;
    rt_queue *free_planned, *full_planned;
    pthread_t reader, planning;
    bool reader_runs, planning_runs;
    uint64_t idle_since_ns, idle_limit_ns; // the caller's: it has asked in vain; 0: it has not
    atomic_bool stop, cut_requested;
    int stop_fd;            // readable once stop is set: ends a wait for input
    int ledger_fd;          // -1: none
    rt_metrics *journal;    // the planner thread's
    dp_broadcast broadcast; // what the workers do not know yet; the planner thread's
    bool ended;             // no batch follows; the planner thread's
    pthread_mutex_t lock;   // the members below
    rt_error failure;
    rt_error input_failure; // of a stream that gave batches before
    rt_stream_stats stats;
    dp_input told[DP_INPUTS_WAITING_MAX];
    uint32_t told_count;
};

_Static_assert(DP_INPUTS_WAITING_MAX >= DP_INPUT_KINDS * RT_WORKERS_MAX, "one of each fits");

static void fail(dp_feed *feed, const rt_error *error)
{
    pthread_mutex_lock(&feed->lock);
    if (feed->failure.status == RT_OK)
        feed->failure = *error;
    pthread_mutex_unlock(&feed->lock);
}

static bool workers_plan(const dp_feed *feed)
{
    return feed->config.config->placement == RT_PLACEMENT_WORKER;
}

// ---- reader ----------------------------------------------------------------------------------

static void scale_one(dp_feed *feed, read_batch *into)
{
    dp_ranges_clear(&into->ranges);
    dp_ranges_add(&into->ranges, &into->batch);
    if (!feed->scale)
        return;
    rt_scale_learn(feed->scale, &into->batch);
    into->dense_clipped = rt_scale_apply(feed->scale, &into->batch);
    rt_scale_copy(feed->scale, into->scale);
}

static rt_status read_one(dp_feed *feed, read_batch *into, uint32_t batch_size, rt_error *error)
{
    uint64_t begin = rt_now_ns();
    rt_status status = rt_stream_read(feed->stream, &into->batch, batch_size, error);
    if (!status)
        scale_one(feed, into);
    const uint64_t *arrivals = rt_stream_arrivals(feed->stream, &into->arrival_count);
    if (into->arrival_count)
        memcpy(into->arrivals, arrivals, into->arrival_count * sizeof *arrivals);
    into->read_ns = rt_now_ns() - begin;
    rt_stream_tell(feed->stream, &into->end);
    if (!status && into->end.failed)
        status = rt_fail(error, RT_NO_MEMORY, "out of memory for the position in the input");
    pthread_mutex_lock(&feed->lock);
    feed->stats = rt_stream_statistics(feed->stream);
    feed->stats.dense_clipped = feed->scale ? rt_scale_clipped(feed->scale) : 0;
    pthread_mutex_unlock(&feed->lock);
    return status;
}

// The last iteration.
static uint32_t last_of(const rt_config *config)
{
    const uint64_t wanted = config->sim_iterations;
    return wanted ? (uint32_t)rt_min_u64(wanted, DP_ITERATIONS_MAX) : DP_ITERATIONS_MAX;
}

// What was read before is trained and saved: only a stream that gave nothing ends a run at once.
static void fail_reading(dp_feed *feed, const rt_error *error, bool has_read)
{
    if (!has_read) {
        fail(feed, error);
        return;
    }
    pthread_mutex_lock(&feed->lock);
    feed->input_failure = *error;
    pthread_mutex_unlock(&feed->lock);
    rt_info("the input cannot be read on: what came before is trained and saved");
}

// The planner looks at it once the queue of batches is closed and empty.
static void note_end(dp_feed *feed, const read_batch *last)
{
    rt_bytes_put(&feed->input_end, last->end.data, last->end.size);
}

static void tell_losses(const dp_feed *feed)
{
    const uint64_t bytes = rt_stream_statistics(feed->stream).bytes_lost;
    if (bytes > 0)
        rt_warn("%" PRIu64 " bytes that pipes or standard input gave before are in no checkpoint: "
                "they are lost",
                bytes);
}

static void *run_reader(void *context)
{
    dp_feed *feed = context;
    prctl(PR_SET_NAME, "reader");
    const uint32_t last = last_of(feed->config.config);
    uint32_t left = (uint32_t)rt_max_u64(last, feed->config.iteration) - feed->config.iteration;
    rt_error error = {0};
    bool has_read = false;
    if (feed->config.restored && (rt_stream_seek(feed->stream, &feed->stood, &error) ||
                                  rt_stream_load_ids(feed->stream, &feed->ids, &error))) {
        fail(feed, &error);
        left = 0;
    } else if (feed->waiting.size > 0 && rt_stream_restore(feed->stream, &feed->waiting, &error)) {
        fail(feed, &error);
        left = 0;
    }
    rt_bytes_fini(&feed->waiting);
    tell_losses(feed);
    for (; left > 0 && !atomic_load(&feed->stop); left--) {
        void *item;
        if (rt_queue_take(feed->free_batches, &item))
            break;
        rt_status status = read_one(feed, item, feed->batch_size, &error);
        if (status && status != RT_END)
            fail_reading(feed, &error, has_read);
        has_read = true;
        if (status == RT_END)
            note_end(feed, item);
        if (status || rt_queue_put(feed->full_batches, item))
            break;
    }
    if (left == 0 && last == DP_ITERATIONS_MAX)
        rt_warn("iteration %" PRIu32 " is the last that can be counted: the run ends with it",
                last);
    rt_queue_close(feed->full_batches);
    return NULL;
}

// ---- input records ---------------------------------------------------------------------------

void dp_feed_tell(dp_feed *feed, const dp_input *input)
{
    uint32_t at = 0;
    pthread_mutex_lock(&feed->lock);
    while (at < feed->told_count &&
           (feed->told[at].kind != input->kind || feed->told[at].worker != input->worker))
        at++;
    rt_assert(at < DP_INPUTS_WAITING_MAX);
    feed->told[at] = *input;
    feed->told_count += at == feed->told_count;
    pthread_mutex_unlock(&feed->lock);
}

static void apply_one(dp_feed *feed, dp_input *input)
{
    rt_error error = {0};
    dp_input_kind kind = (dp_input_kind)input->kind;
    double old = dp_planner_value(feed->planner, kind, input->worker);
    if (old == input->value)
        return;
    input->iteration = 0;
    if (dp_planner_apply(feed->planner, input, &error)) {
        rt_warn("an input record was refused: %s", error.text);
        return;
    }
    if (workers_plan(feed) && dp_broadcast_add_input(&feed->broadcast, input))
        rt_assert_failed("more records than can wait", __FILE__, __LINE__);
    dp_account_apply(input, &feed->config.costs);
    if (feed->chooser)
        dp_participants_apply(feed->chooser, input);
    dp_journal_write(feed->journal, input);
    if (dp_input_subject(kind))
        rt_debug("%s %" PRIu32 ": %s %g -> %g from iteration %" PRIu32 " on",
                 dp_input_subject(kind), input->worker, dp_input_name(kind), old, input->value,
                 input->iteration);
    else
        rt_info("%s %g -> %g from iteration %" PRIu32 " on", dp_input_name(kind), old, input->value,
                input->iteration);
}

// All records that were told so far, for the look-up that follows.
static void apply_told(dp_feed *feed)
{
    dp_input told[DP_INPUTS_WAITING_MAX];
    pthread_mutex_lock(&feed->lock);
    uint32_t count = feed->told_count;
    memcpy(told, feed->told, count * sizeof *told);
    feed->told_count = 0;
    pthread_mutex_unlock(&feed->lock);
    for (uint32_t i = 0; i < count; i++)
        apply_one(feed, &told[i]);
}

// Who trains from now on, where it is time to choose.
static rt_status choose_participants(dp_feed *feed)
{
    dp_input records[RT_WORKERS_MAX];
    uint32_t count;
    if (!feed->chooser)
        return RT_OK;
    rt_status status = dp_participants_records(
        feed->chooser, dp_planner_participants(feed->planner), records, &count);
    for (uint32_t i = 0; i < count && !status; i++)
        apply_one(feed, &records[i]);
    return status;
}

// ---- planner ---------------------------------------------------------------------------------

static void copy_labels(const dp_plan *plan, const rt_batch *batch, dp_planned *planned)
{
    uint32_t at = 0;
    for (uint32_t w = 0; w < plan->worker_count; w++) {
        const dp_slice *slice = &plan->slices[w];
        planned->label_offsets[w] = at;
        for (uint32_t k = 0; k < slice->sample_count; k++) {
            planned->weights[at] = batch->is_weighted ? batch->weights[slice->samples[k]] : 1.0f;
            planned->labels[at++] = batch->labels[slice->samples[k]];
        }
    }
    planned->label_offsets[plan->worker_count] = at;
}

static rt_status encode_slices(dp_feed *feed, const dp_plan *plan, const rt_batch *batch,
                               dp_planned *planned)
{
    for (uint32_t w = 0; w < plan->worker_count; w++) {
        rt_status status =
            dp_slice_encode(plan, w, batch, &feed->config.limits, feed->config.sender,
                            planned->sequence, &planned->slices[w]);
        if (status)
            return status;
        dp_slice_set_fingerprint(&planned->slices[w], planned->fingerprint);
        rt_message_header(&planned->slices[w])->epoch = feed->config.epoch;
    }
    return RT_OK;
}

static rt_status encode_batches(dp_feed *feed, uint32_t worker_count, dp_planned *planned)
{
    rt_message message;
    rt_status status = dp_broadcast_take(&feed->broadcast, feed->config.sender, planned->sequence,
                                         feed->ended, &message);
    if (!status)
        status = rt_message_share(&message, worker_count, planned->slices);
    return status;
}

static rt_status encode(dp_feed *feed, const dp_plan *plan, const rt_batch *batch,
                        dp_planned *planned)
{
    uint64_t *bytes = planned->placement_bytes;
    rt_status status = workers_plan(feed) ? encode_batches(feed, plan->worker_count, planned)
                                          : encode_slices(feed, plan, batch, planned);
    bytes[RT_PLACEMENT_COORDINATOR] = 0;
    bytes[RT_PLACEMENT_WORKER] = batch ? plan->worker_count * dp_broadcast_bytes(batch) : 0;
    for (uint32_t w = 0; w < plan->worker_count && !status; w++) {
        bytes[RT_PLACEMENT_COORDINATOR] += dp_slice_bytes(plan, w, batch, &feed->config.limits);
        planned->slice_bytes += planned->slices[w].size;
    }
    return status;
}

static rt_status finish_plan(dp_feed *feed, const dp_plan *plan, const read_batch *read,
                             dp_planned *planned)
{
    const rt_batch *batch = &read->batch;
    planned->iteration = plan->iteration;
    planned->sample_count = plan->sample_count;
    planned->participants = plan->participants;
    planned->fingerprint = dp_plan_fingerprint(plan);
    dp_account_add(&feed->config.costs, plan, &planned->account);
    copy_labels(plan, batch, planned);
    planned->dense_clipped = read->dense_clipped;
    planned->arrival_count = read->arrival_count;
    memcpy(planned->arrivals, read->arrivals, read->arrival_count * sizeof *read->arrivals);
    dp_ranges_clear(&planned->ranges);
    dp_ranges_merge(&planned->ranges, &read->ranges);
    return encode(feed, plan, batch, planned);
}

// *plan_p: the plan that is final now, of this batch or the one before, or NULL.
static rt_status plan_one(dp_feed *feed, read_batch *read, dp_planned *planned,
                          const dp_plan **plan_p)
{
    const uint64_t known = dp_planner_directory(feed->planner)->key_count;
    rt_status status = choose_participants(feed);
    uint64_t begin = rt_now_ns();
    if (!status)
        status = dp_planner_admit(feed->planner, &read->batch, &planned->refused);
    if (!status)
        status = dp_planner_look_up(feed->planner, &read->batch);
    if (status)
        return status;
    uint64_t looked_up = rt_now_ns();
    dp_planner_place(feed->planner);
    uint64_t decided = rt_now_ns();
    status = dp_planner_commit(feed->planner, plan_p);
    planned->read_ns = read->read_ns;
    planned->decision_ns = decided - begin;
    planned->place_ns = decided - looked_up;
    planned->decision = *dp_planner_decision(feed->planner);
    planned->commit_ns = rt_now_ns() - decided;
    planned->keys = dp_planner_directory(feed->planner)->key_count;
    planned->admitted = planned->keys - known;
    feed->iteration = dp_planner_view(feed->planner)->iteration;
    if (read->batch.sample_count < feed->batch_size)
        dp_journal_batch(feed->journal, feed->iteration, read->batch.sample_count);
    feed->stood.size = 0;
    rt_bytes_put(&feed->stood, read->end.data, read->end.size);
    rt_stream_settle(feed->stream, &feed->stood);
    if (feed->scale)
        rt_scale_copy(read->scale, feed->stood_scale);
    if (!status && feed->chooser)
        status = dp_participants_see(feed->chooser, &read->batch);
    return status;
}

static rt_status plan_flush(dp_feed *feed, bool is_cut, bool is_last, dp_planned *planned)
{
    const dp_plan *plan;
    rt_status status = dp_planner_flush(feed->planner, &plan);
    planned->iteration = 0;
    planned->sample_count = 0;
    planned->fingerprint = 0;
    for (uint32_t w = 0; !status && w < plan->worker_count; w++)
        dp_counts_add_slice(&planned->account.workers[w], &plan->slices[w]);
    planned->is_cut = is_cut;
    planned->is_last = is_last;
    planned->cut = feed->iteration;
    if (status || !is_cut)
        return status ? status : encode(feed, plan, NULL, planned);
    feed->last_cut = feed->iteration;
    rt_bytes lineup = {0};
    if (feed->chooser)
        dp_participants_save(feed->chooser, &lineup);
    planned->event = rt_position_event(&feed->stood);
    rt_bytes_put(&planned->state, feed->stood.data, feed->stood.size);
    dp_planner_save(feed->planner, &lineup, &planned->state);
    rt_bytes_fini(&lineup);
    rt_stream_save_ids(feed->stream, &feed->stood, &planned->ids);
    if (feed->scale)
        rt_scale_save(feed->stood_scale, &planned->scale);
    rt_stream_save(feed->stream, &feed->stood, &planned->scale);
    if (planned->state.failed || feed->stood.failed || planned->scale.failed ||
        planned->ids.failed ||
        dp_feed_put_scale(feed, &planned->scale_bin))
        return RT_NO_MEMORY;
    return encode(feed, plan, NULL, planned);
}

static bool cut_is_wanted(const dp_feed *feed)
{
    return feed->config.cuts && feed->iteration != feed->last_cut &&
           atomic_load(&feed->cut_requested);
}

// A batch that was read. RT_AGAIN: there is none, and a cut is wanted. RT_END.
static rt_status await_batch(dp_feed *feed, void **item_p)
{
    rt_status status = rt_queue_try_take(feed->full_batches, item_p);
    while (status == RT_AGAIN && !cut_is_wanted(feed))
        status = rt_queue_take(feed->full_batches, item_p);
    return status;
}

// The next batch to plan, once cache.lookahead batches behind it are known or the input has ended.
// RT_AGAIN: it is not there, and a cut is wanted. RT_END: there is none. RT_NO_MEMORY.
static rt_status next_batch(dp_feed *feed, read_batch **batch_p)
{
    void *item;
    while (feed->ahead_count <= feed->config.config->cache.lookahead) {
        rt_status status = await_batch(feed, &item);
        if (status == RT_AGAIN)
            return status;
        if (status)
            break;
        const rt_batch *batch = &((read_batch *)item)->batch;
        feed->ahead[feed->ahead_count++] = item;
        dp_planner_preview(feed->planner, batch);
        if (workers_plan(feed) && dp_broadcast_add_batch(&feed->broadcast, batch))
            return RT_NO_MEMORY;
    }
    feed->ended = feed->ahead_count <= feed->config.config->cache.lookahead;
    if (feed->ahead_count == 0)
        return RT_END;
    *batch_p = feed->ahead[0];
    memmove(feed->ahead, feed->ahead + 1, --feed->ahead_count * sizeof *feed->ahead);
    return RT_OK;
}

static rt_status next_planned(dp_feed *feed, uint64_t sequence, dp_planned **planned_p)
{
    void *item;
    rt_status status = rt_queue_take(feed->free_planned, &item);
    if (status)
        return status;
    *planned_p = item;
    (*planned_p)->sequence = sequence;
    (*planned_p)->slice_bytes = 0;
    (*planned_p)->is_cut = (*planned_p)->is_last = false;
    (*planned_p)->floor = 0;
    (*planned_p)->ended = 0;
    (*planned_p)->account = (dp_account){0};
    return RT_OK;
}

// Batches and their iterations on the way through the planner, the one planned last and the one
// before it.
typedef struct {
    dp_planned *planned;
    read_batch *batch;
} planning;

// Hands on the iteration whose plan became final. RT_STOPPED: the caller is gone.
static rt_status hand_on(dp_feed *feed, const dp_plan *plan, planning *at)
{
    rt_status status = finish_plan(feed, plan, at->batch, at->planned);
    if (!status)
        status = rt_queue_put(feed->free_batches, at->batch);
    if (!status)
        status = rt_queue_put(feed->full_planned, at->planned);
    *at = (planning){0};
    return status;
}

// What is planned so far becomes final.
static rt_status finish_planned(dp_feed *feed, planning *before)
{
    const dp_plan *plan = NULL;
    if (!before->planned)
        return RT_OK;
    rt_status status = dp_planner_finish(feed->planner, &plan);
    return status ? status : hand_on(feed, plan, before);
}

// What is planned so far becomes final, and every row goes to the parameter servers. No batch is on
// its way through the planner afterwards.
static rt_status plan_cut(dp_feed *feed, uint64_t *sequence, bool is_cut, bool is_last,
                          planning *before)
{
    dp_planned *flush;
    rt_status status = finish_planned(feed, before);
    if (!status)
        status = next_planned(feed, (*sequence)++, &flush);
    if (!status)
        status = plan_flush(feed, is_cut, is_last, flush);
    return status ? status : rt_queue_put(feed->full_planned, flush);
}

// A sweep, where one is due: the records for the next batch are there.
static rt_status plan_sweep(dp_feed *feed, uint64_t *sequence, planning *before)
{
    uint32_t floor;
    const dp_plan *plan;
    dp_planned *planned;
    if (!dp_sweep_due(feed->planner, &floor))
        return RT_OK;
    rt_status status = finish_planned(feed, before);
    if (!status)
        status = next_planned(feed, (*sequence)++, &planned);
    if (!status)
        status = dp_sweep(feed->planner, floor, &plan, &planned->ended);
    if (status)
        return status;
    planned->iteration = planned->sample_count = 0;
    planned->fingerprint = 0;
    planned->cut = feed->iteration;
    planned->floor = floor;
    planned->keys = dp_planner_directory(feed->planner)->key_count;
    status = encode(feed, plan, NULL, planned);
    return status ? status : rt_queue_put(feed->full_planned, planned);
}

static rt_status plan_end(dp_feed *feed, uint64_t sequence, planning *before)
{
    const rt_config *config = feed->config.config;
    const bool is_wanted = config->checkpoint.at_end || config->publish.every_s > 0;
    const bool is_cut = feed->config.cuts && is_wanted && feed->iteration > feed->last_cut;
    if (feed->input_end.size > 0) { // files that are known to be at their end
        feed->stood.size = 0;
        rt_bytes_put(&feed->stood, feed->input_end.data, feed->input_end.size);
    }
    pthread_mutex_lock(&feed->lock);
    rt_status status = feed->failure.status ? RT_STOPPED : RT_OK; // the reader failed
    pthread_mutex_unlock(&feed->lock);
    return status ? status : plan_cut(feed, &sequence, is_cut, true, before);
}

static bool cut_is_due(dp_feed *feed)
{
    const uint32_t every = feed->config.config->checkpoint.every_iterations;
    if (!feed->config.cuts || feed->iteration == feed->last_cut)
        return false;
    const bool is_requested = atomic_exchange(&feed->cut_requested, false);
    return is_requested || (every && feed->iteration % every == 0);
}

// One batch on its way: what it makes final is handed on.
static rt_status plan_batch(dp_feed *feed, uint64_t sequence, planning *now, planning *before)
{
    const dp_plan *plan = NULL;
    rt_status status = next_planned(feed, sequence, &now->planned);
    if (!status)
        status = plan_one(feed, now->batch, now->planned, &plan);
    if (!status && plan && before->planned)
        status = hand_on(feed, plan, before);
    else if (!status && plan)
        status = hand_on(feed, plan, now);
    if (!status && now->planned)
        *before = *now;
    return status;
}

static rt_status plan_all(dp_feed *feed)
{
    planning before = {0};
    uint64_t sequence = feed->config.sequence_first;
    for (;;) {
        planning now = {0};
        rt_status status = next_batch(feed, &now.batch);
        if (status == RT_END)
            return plan_end(feed, sequence, &before);
        const bool has_batch = !status;
        if (status == RT_AGAIN)
            status = RT_OK;
        if (!status && cut_is_due(feed))
            status = plan_cut(feed, &sequence, true, false, &before);
        if (!status && has_batch) {
            apply_told(feed);
            status = plan_sweep(feed, &sequence, &before);
        }
        if (!status && has_batch)
            status = plan_batch(feed, sequence++, &now, &before);
        if (status)
            return status;
    }
}

static void *run_planner(void *context)
{
    dp_feed *feed = context;
    prctl(PR_SET_NAME, "planner");
    rt_status status = plan_all(feed);
    if (status && status != RT_END && status != RT_STOPPED) {
        rt_error error = {0};
        rt_fail(&error, status, "planning failed: %s", rt_status_text(status));
        fail(feed, &error);
    }
    rt_queue_close(feed->free_batches);
    rt_queue_close(feed->full_planned);
    return NULL;
}

// ---- creation --------------------------------------------------------------------------------

static rt_status allocate_scales(dp_feed *feed)
{
    const dp_feed_config *config = &feed->config;
    const uint32_t dense_count = config->limits.dense_count;
    const bool wanted = config->restored
                            ? config->scale != NULL
                            : config->config->stream.dense_scaling == RT_SCALING_STANDARD;
    if (!wanted || dense_count == 0)
        return RT_OK;
    if (rt_scale_create(dense_count, feed->batch_size, &feed->scale) ||
        rt_scale_create(dense_count, 0, &feed->stood_scale))
        return RT_NO_MEMORY;
    for (uint32_t i = 0; i < feed->batch_count; i++)
        if (rt_scale_create(dense_count, 0, &feed->batches[i].scale))
            return RT_NO_MEMORY;
    if (config->scale) {
        rt_scale_copy(config->scale, feed->scale);
        rt_scale_copy(config->scale, feed->stood_scale);
    }
    return RT_OK;
}

static rt_status allocate(dp_feed *feed)
{
    const dp_feed_config *config = &feed->config;
    feed->planned = rt_alloc(config->planned_max, sizeof *feed->planned);
    feed->batch_count = BATCHES + config->config->cache.lookahead;
    if (!feed->planned || rt_queue_create(feed->batch_count, -1, &feed->free_batches) ||
        rt_queue_create(feed->batch_count, -1, &feed->full_batches) ||
        rt_queue_create(config->planned_max, -1, &feed->free_planned) ||
        rt_queue_create(config->planned_max, config->wake_fd, &feed->full_planned))
        return RT_NO_MEMORY;
    for (uint32_t i = 0; i < feed->batch_count; i++) {
        rt_batch_init(&feed->batches[i].batch, config->limits.dense_count);
        feed->batches[i].arrivals = rt_alloc_lazy(feed->batch_size, sizeof(uint64_t));
        if (!feed->batches[i].arrivals)
            return RT_NO_MEMORY;
        if (dp_ranges_init(&feed->batches[i].ranges, config->limits.dense_count))
            return RT_NO_MEMORY;
        (void)rt_queue_put(feed->free_batches, &feed->batches[i]);
    }
    for (uint32_t i = 0; i < config->planned_max; i++) {
        feed->planned[i].labels = rt_alloc(feed->batch_size, sizeof(float));
        feed->planned[i].weights = rt_alloc(feed->batch_size, sizeof(float));
        feed->planned[i].arrivals = rt_alloc_lazy(feed->batch_size, sizeof(uint64_t));
        if (!feed->planned[i].labels || !feed->planned[i].weights || !feed->planned[i].arrivals ||
            dp_ranges_init(&feed->planned[i].ranges, config->limits.dense_count))
            return RT_NO_MEMORY;
        (void)rt_queue_put(feed->free_planned, &feed->planned[i]);
    }
    return allocate_scales(feed);
}

// Stops the threads and frees everything but the stream.
static void release(dp_feed *feed)
{
    rt_queue *queues[] = {feed->free_batches, feed->full_batches, feed->free_planned,
                          feed->full_planned};
    dp_feed_stop(feed);
    for (size_t i = 0; i < RT_COUNT_OF(queues); i++) {
        if (queues[i])
            rt_queue_close(queues[i]);
    }
    if (feed->reader_runs)
        pthread_join(feed->reader, NULL);
    if (feed->planning_runs)
        pthread_join(feed->planning, NULL);
    for (size_t i = 0; i < RT_COUNT_OF(queues); i++)
        rt_queue_destroy(queues[i]);
    for (uint32_t i = 0; feed->planned && i < feed->config.planned_max; i++) {
        for (uint32_t w = 0; w < RT_WORKERS_MAX; w++)
            rt_message_release(&feed->planned[i].slices[w]);
        rt_bytes_fini(&feed->planned[i].state);
        rt_bytes_fini(&feed->planned[i].ids);
        rt_free(feed->planned[i].arrivals);
        rt_bytes_fini(&feed->planned[i].scale);
        rt_bytes_fini(&feed->planned[i].scale_bin);
        rt_free(feed->planned[i].labels);
        rt_free(feed->planned[i].weights);
        dp_ranges_fini(&feed->planned[i].ranges);
    }
    for (uint32_t i = 0; i < feed->batch_count; i++) {
        rt_batch_fini(&feed->batches[i].batch);
        rt_bytes_fini(&feed->batches[i].end);
        rt_free(feed->batches[i].arrivals);
        dp_ranges_fini(&feed->batches[i].ranges);
        rt_scale_destroy(feed->batches[i].scale);
    }
    rt_bytes_fini(&feed->ids);
    rt_bytes_fini(&feed->stood);
    rt_bytes_fini(&feed->input_end);
    rt_bytes_fini(&feed->waiting);
    rt_scale_destroy(feed->scale);
    rt_scale_destroy(feed->stood_scale);
    dp_planner_destroy(feed->planner);
    dp_participants_destroy(feed->chooser);
    dp_broadcast_fini(&feed->broadcast);
    rt_metrics_close(feed->journal);
    if (feed->stop_fd >= 0)
        close(feed->stop_fd);
    if (feed->ledger_fd >= 0)
        close(feed->ledger_fd);
    pthread_mutex_destroy(&feed->lock);
    rt_free(feed->planned);
    rt_free(feed);
}

// Without it only what restarts lost of pipes is not told.
static void open_ledger(dp_feed *feed, const char *path, bool is_fresh)
{
    if (!path)
        return;
    feed->ledger_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | (is_fresh ? O_TRUNC : 0), 0666);
    if (feed->ledger_fd < 0)
        rt_debug("%s: cannot be written: %s; what a restart loses of pipes is not counted", path,
                 strerror(errno));
}

rt_status dp_feed_create(const dp_feed_config *config, rt_stream *stream, dp_feed **feed_p,
                         rt_error *error)
{
    dp_feed *feed = rt_alloc(1, sizeof *feed);
    if (!feed)
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    feed->config = *config;
    feed->config.planner = NULL;
    feed->stop_fd = feed->ledger_fd = -1;
    feed->batch_size = config->planner->sample_count_max;
    feed->idle_limit_ns = IDLE_NS;
    pthread_mutex_init(&feed->lock, NULL);
    rt_status status = RT_OK;
    if (!config->restored)
        status = dp_planner_create(config->planner, &feed->planner, error);
    if (!status)
        status = (config->restored ? rt_metrics_append : rt_metrics_open_beside)(
            config->journal, &feed->journal, error);
    if (!status)
        rt_metrics_limit(feed->journal, config->config->metrics_bytes_max);
    if (!status && config->restored)
        dp_journal_resume(feed->journal, config->iteration, config->input_count);
    if (config->restored) {
        rt_bytes_put(&feed->stood, config->position->data, config->position->size);
        if (config->waiting)
            rt_bytes_put(&feed->waiting, config->waiting->data, config->waiting->size);
        if (config->ids)
            rt_bytes_put(&feed->ids, config->ids->data, config->ids->size);
        feed->iteration = feed->last_cut = config->iteration;
    }
    if (!status)
        status = dp_participants_open(config->planner, config->lineup,
                                      dp_planner_rates(feed->planner ? feed->planner
                                                                     : config->restored),
                                      &feed->chooser, error);
    feed->config.journal = feed->config.ledger = NULL; // the caller's, as is the scale below
    feed->config.position = feed->config.ids = feed->config.lineup = feed->config.waiting = NULL;
    if (!status && (feed->stood.failed || feed->waiting.failed || feed->ids.failed ||
                    allocate(feed) || rt_stream_keep_arrivals(stream)))
        status = rt_fail(error, RT_NO_MEMORY, "out of memory for the planner's queues");
    feed->config.scale = NULL;
    feed->stop_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (!status && feed->stop_fd < 0)
        status = rt_fail(error, RT_LIMIT, "cannot create an event descriptor");
    feed->stream = stream;
    if (!status && config->restored)
        feed->planner = config->restored;
    if (!status) {
        open_ledger(feed, config->ledger, config->is_fresh);
        rt_stream_watch(stream, feed->stop_fd, feed->ledger_fd);
        rt_stream_remember(stream);
        rt_stream_set_wait(stream, config->config->batch_wait_ms * UINT64_C(1000000));
        feed->reader_runs = rt_thread_start(&feed->reader, run_reader, feed) == 0;
        feed->planning_runs =
            feed->reader_runs && rt_thread_start(&feed->planning, run_planner, feed) == 0;
        if (!feed->planning_runs)
            status = rt_fail(error, RT_LIMIT, "cannot start the planner's threads");
    }
    if (status) {
        feed->planner = config->restored ? NULL : feed->planner; // it stays the caller's
        release(feed);
        rt_stream_watch(stream, -1, -1); // so does this
        return status;
    }
    *feed_p = feed;
    return RT_OK;
}

void dp_feed_destroy(dp_feed *feed)
{
    if (!feed)
        return;
    rt_stream *stream = feed->stream;
    release(feed);
    rt_stream_close(stream);
}

// ---- the caller's side -----------------------------------------------------------------------

// Says that it is the input that a run waits for: after a while, and then after pauses twice as
// long each, so that a slow stream does not fill the log.
static void note_idle(dp_feed *feed, bool idle)
{
    const uint64_t now = rt_now_ns();
    if (!idle || feed->idle_since_ns == 0) {
        feed->idle_since_ns = idle ? now : 0;
        return;
    }
    if (now - feed->idle_since_ns < feed->idle_limit_ns)
        return;
    rt_info("waiting for the input: no batch of %" PRIu32 " samples has come for %.0f s",
            feed->batch_size, (double)(now - feed->idle_since_ns) * 1e-9);
    feed->idle_limit_ns *= 2;
}

rt_status dp_feed_take(dp_feed *feed, dp_planned **planned_p, rt_error *error)
{
    void *item;
    rt_status status = rt_queue_try_take(feed->full_planned, &item);
    if (!status)
        *planned_p = item;
    note_idle(feed, status == RT_AGAIN);
    if (status != RT_END)
        return status;
    pthread_mutex_lock(&feed->lock);
    if (feed->failure.status != RT_OK) {
        *error = feed->failure;
        status = error->status;
    }
    pthread_mutex_unlock(&feed->lock);
    return status;
}

void dp_feed_give(dp_feed *feed, dp_planned *planned)
{
    for (uint32_t w = 0; w < RT_WORKERS_MAX; w++)
        rt_message_release(&planned->slices[w]);
    rt_bytes_fini(&planned->state);
    rt_bytes_fini(&planned->ids);
    rt_bytes_fini(&planned->scale);
    rt_bytes_fini(&planned->scale_bin);
    (void)rt_queue_put(feed->free_planned, planned);
}

void dp_feed_keep_journal(dp_feed *feed)
{
    rt_metrics_keep(feed->journal);
}

void dp_feed_request_cut(dp_feed *feed)
{
    atomic_store(&feed->cut_requested, true);
    rt_queue_wake(feed->full_batches);
}

rt_status dp_feed_input_failure(dp_feed *feed, rt_error *error)
{
    pthread_mutex_lock(&feed->lock);
    const rt_error failure = feed->input_failure;
    pthread_mutex_unlock(&feed->lock);
    return failure.status ? rt_fail(error, failure.status, "%s", failure.text) : RT_OK;
}

bool dp_feed_report(const dp_feed *feed, uint32_t number, rt_stream_input *input)
{
    return rt_stream_report(feed->stream, number, input);
}

void dp_feed_stop(dp_feed *feed)
{
    const uint64_t one = 1;
    atomic_store(&feed->stop, true);
    if (feed->stop_fd >= 0 && write(feed->stop_fd, &one, sizeof one) < 0) {
        // it is readable already
    }
}

rt_stream_stats dp_feed_stream_stats(dp_feed *feed)
{
    pthread_mutex_lock(&feed->lock);
    rt_stream_stats stats = feed->stats;
    pthread_mutex_unlock(&feed->lock);
    return stats;
}

rt_status dp_feed_put_scale(const dp_feed *feed, rt_bytes *file)
{
    rt_tensor tensors[RT_SCALE_TENSORS];
    if (!feed->scale)
        return RT_OK;
    rt_scale_tensors(feed->stood_scale, tensors);
    return rt_tensors_encode(tensors, RT_SCALE_TENSORS, file);
}
