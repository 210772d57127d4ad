// The planner's thread of a feed: batches become plans, plans messages; cuts and sweeps between.
#include <math.h>
#include <string.h>
#include <sys/prctl.h>
#include <inttypes.h>

#include "dispatch/coordinator/dp_feed_parts.h"
#include "dispatch/planner/dp_sweep.h"
#include "runtime/rt_log.h"
#include "runtime/stream/rt_position.h"

static void copy_labels(const dp_plan *plan, const rt_batch *batch, dp_planned *planned)
{
    const uint32_t count = batch->label_count;
    float *weights = planned->weights, *labels = planned->labels;
    uint32_t at = 0;
    for (uint32_t w = 0; w < plan->worker_count; w++) {
        const dp_slice *slice = &plan->slices[w];
        planned->label_offsets[w] = at;
        at += slice->sample_count;
        for (uint32_t k = 0; k < slice->sample_count * count; k++) {
            const size_t from = (size_t)slice->samples[k / count] * count + k % count;
            *weights++ = batch->is_weighted ? batch->weights[from] : 1.0f;
            *labels++ = batch->labels[from];
        }
    }
    planned->label_offsets[plan->worker_count] = at;
}

// Samples to judge by go along, each with its place among the predictions.
static void hand_heard(const dp_plan *plan, dp_heard *heard, dp_planned *planned)
{
    const dp_heard before = planned->heard;
    uint32_t place = 0;
    planned->heard = *heard;
    *heard = before;
    if (planned->heard.batch.sample_count == 0)
        return;
    for (uint32_t w = 0; w < plan->worker_count; w++) {
        const dp_slice *slice = &plan->slices[w];
        uint32_t next = 0; // both ascend
        for (uint32_t k = 0; k < slice->sample_count; k++, place++) {
            while (next < planned->heard.batch.sample_count &&
                   planned->heard.from[next] < slice->samples[k])
                next++;
            if (next < planned->heard.batch.sample_count &&
                planned->heard.from[next] == slice->samples[k])
                planned->heard.at[next] = place;
        }
    }
}

#define LEFT_OUT_MAX 63u // slices in a row; then one goes out, and its report tells of the worker

// Who sits out and has nothing to do gets no slice. The first empty ones go out all the same: by
// them a worker learns that it trains no more, and hands on what it alone has; with sums by
// trainers there are as many as a worker may have, the last of which it reports once its own sums
// are made.
static uint64_t find_idle(dp_feed *feed, const dp_plan *plan)
{
    const uint64_t told = feed->config.limits.sums ? feed->config.planned_max : 1;
    uint64_t idle = 0;
    for (uint32_t w = 0; w < plan->worker_count && plan->iteration; w++) {
        const bool has_part = plan->participants >> w & 1;
        const bool is_empty = !has_part && dp_slice_is_empty(&plan->slices[w]);
        feed->empty[w]++;
        if (!is_empty)
            feed->empty[w] = 0;
        const bool is_left_out = feed->empty[w] > told && feed->left_out[w] < LEFT_OUT_MAX;
        if (is_left_out)
            idle |= rt_bit(w);
    }
    return idle;
}

typedef struct {
    dp_feed *feed;
    const dp_plan *plan;
    const rt_batch *batch;
    dp_planned *planned;
    uint64_t workers; // a part for each
    rt_status status[RT_WORKERS_MAX];
} encoding;

static void encode_slice(void *context, uint32_t part)
{
    encoding *all = context;
    dp_feed *feed = all->feed;
    const dp_planned *planned = all->planned;
    const uint32_t w = rt_bit_at(all->workers, part);
    rt_message *slice = &all->planned->slices[w];
    all->status[w] = dp_slice_encode(all->plan, w, all->batch, &feed->config.limits,
                                     feed->config.sender, planned->sequence, slice);
    if (all->status[w])
        return;
    dp_slice_set_fingerprint(slice, planned->fingerprint);
    dp_slice_set_place(slice, feed->left_out[w], planned->iteration ? 0 : planned->cut);
    rt_message_header(slice)->epoch = feed->config.epoch;
    feed->left_out[w] = 0;
}

static rt_status encode_slices(dp_feed *feed, const dp_plan *plan, const rt_batch *batch,
                               dp_planned *planned)
{
    encoding all = {.feed = feed,
                    .plan = plan,
                    .batch = batch,
                    .planned = planned,
                    .workers = rt_bits_below(plan->worker_count) & ~planned->idle};
    rt_pool_run(feed->pool, rt_bit_count(all.workers), encode_slice, &all);
    for (uint32_t w = 0; w < plan->worker_count; w++) {
        if (all.status[w])
            return all.status[w];
        feed->left_out[w] += (uint32_t)(planned->idle >> w & 1);
    }
    return RT_OK;
}

static bool has_more_than_drops(const dp_ops *ops)
{
    for (uint32_t i = 0; i < ops->count; i++)
        if (ops->items[i].kind != DP_OP_DROP)
            return true;
    return false;
}

// Of who trains nothing, operations are few.
static uint64_t find_needed(const dp_plan *plan)
{
    uint64_t needed = plan->iteration ? plan->participants : 0;
    for (uint32_t w = 0; w < plan->worker_count; w++) {
        const dp_slice *slice = &plan->slices[w];
        if (!(needed >> w & 1) &&
            (has_more_than_drops(&slice->release) || has_more_than_drops(&slice->fill) ||
             has_more_than_drops(&slice->after)))
            needed |= rt_bit(w);
    }
    return needed;
}

static rt_status encode(dp_feed *feed, const dp_plan *plan, const rt_batch *batch,
                        dp_planned *planned)
{
    planned->needed = find_needed(plan);
    planned->clean = dp_planner_clean(feed->planner);
    planned->idle = find_idle(feed, plan);
    const rt_status status = encode_slices(feed, plan, batch, planned);
    for (uint32_t w = 0; !status && w < plan->worker_count; w++)
        planned->slice_bytes += planned->slices[w].size;
    return status;
}

static rt_status finish_plan(dp_feed *feed, const dp_plan *plan, dp_feed_batch *read,
                             dp_planned *planned)
{
    const rt_batch *batch = &read->batch;
    planned->iteration = plan->iteration;
    planned->sample_count = plan->sample_count;
    planned->is_untrained = batch->learning.is_untrained;
    planned->is_judged = !batch->learning.is_untrained &&
                         fmaxf(batch->learning.less[0], batch->learning.less[1]) < 0.5f;
    planned->participants = plan->participants;
    planned->fingerprint = dp_plan_fingerprint(plan);
    dp_account_add(&feed->config.costs, plan, &planned->account);
    copy_labels(plan, batch, planned);
    hand_heard(plan, &read->heard, planned);
    if (planned->slice_keys)
        dp_columns_keys(batch, plan, feed->config.slice_field, planned->slice_keys);
    planned->columns = (dp_columns){0};
    dp_columns_count(&planned->columns, batch, plan);
    planned->dense_clipped = read->dense_clipped;
    planned->arrival_count = read->arrival_count;
    memcpy(planned->arrivals, read->arrivals, read->arrival_count * sizeof *read->arrivals);
    dp_ranges_clear(&planned->ranges);
    dp_ranges_merge(&planned->ranges, &read->ranges);
    return encode(feed, plan, batch, planned);
}

static rt_status plan_one(dp_feed *feed, dp_feed_batch *read, dp_planned *planned,
                          const dp_plan **plan_p)
{
    const uint64_t known = dp_planner_directory(feed->planner)->key_count;
    if (feed->stood_repeats) // before keys are taken out
        rt_repeats_add(feed->stood_repeats, &rt_stream_schema(feed->stream)->tables, &read->batch);
    uint64_t chosen = rt_now_ns();
    rt_status status = dp_planner_admit(feed->planner, &read->batch, &planned->refused);
    const uint64_t admit_ns = rt_now_ns() - chosen;
    chosen += admit_ns;
    if (!status)
        status = dp_feed_choose(feed, &read->batch);
    const uint64_t begin = rt_now_ns() - admit_ns;
    planned->choice_ns = begin + admit_ns - chosen;
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
    planned->ready_ns = rt_now_ns();
    planned->commit_ns = planned->ready_ns - decided;
    planned->keys = dp_planner_directory(feed->planner)->key_count;
    planned->admitted = planned->keys - known;
    feed->iteration = dp_planner_view(feed->planner)->iteration;
    if (read->batch.sample_count < feed->batch_size)
        dp_journal_batch(feed->journal, feed->iteration, read->batch.sample_count);
    rt_bytes_clear(&feed->stood);
    rt_bytes_put(&feed->stood, read->end.data, read->end.size);
    rt_stream_settle(feed->stream, &feed->stood);
    if (feed->scale)
        rt_scale_copy(read->scale, feed->stood_scale);
    feed->stood_rate = read->rate;
    feed->epochs = read->epochs;
    feed->is_learnt |= !read->batch.learning.is_untrained;
    return status;
}

static rt_status plan_flush(dp_feed *feed, bool is_cut, bool is_last, dp_planned *planned)
{
    const dp_plan *plan;
    rt_status status = dp_planner_flush(feed->planner, &plan);
    if (status)
        return status;
    planned->iteration = 0;
    planned->sample_count = 0;
    planned->fingerprint = 0;
    for (uint32_t w = 0; w < plan->worker_count; w++)
        dp_counts_add_slice(&planned->account.workers[w], &plan->slices[w]);
    planned->is_cut = is_cut;
    planned->is_last = is_last;
    planned->cut = feed->iteration;
    planned->epochs = is_last && feed->input_end.size > 0 ? feed->end_epochs : feed->epochs;
    planned->is_learnt = feed->is_learnt;
    if (!is_cut)
        return encode(feed, plan, NULL, planned);
    feed->last_cut = feed->iteration;
    rt_bytes chooser_state = {0};
    if (feed->chooser)
        dp_participants_save(feed->chooser, &chooser_state);
    planned->events = rt_position_find_events(&feed->stood);
    rt_bytes_put(&planned->state, feed->stood.data, feed->stood.size);
    dp_planner_save(feed->planner, &chooser_state, &planned->state);
    rt_bytes_fini(&chooser_state);
    rt_stream_save_ids(feed->stream, &feed->stood, &planned->ids);
    if (feed->scale)
        rt_scale_save(feed->stood_scale, &planned->scale);
    planned->scale_samples = dp_feed_scale_samples(feed);
    rt_stream_save(feed->stream, &feed->stood, &planned->scale);
    rt_base_rate_save(&feed->stood_rate, &planned->scale);
    if (feed->stood_repeats)
        rt_repeats_save(feed->stood_repeats, &planned->scale);
    if (planned->state.failed || feed->stood.failed || planned->scale.failed ||
        planned->ids.failed || dp_feed_put_scale(feed, &planned->scale_bin))
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
static rt_status next_batch(dp_feed *feed, dp_feed_batch **batch_p)
{
    void *item;
    while (feed->ahead_count <= rt_config_batches_ahead(feed->config.config)) {
        rt_status status = await_batch(feed, &item);
        if (status == RT_AGAIN)
            return status;
        if (status)
            break;
        feed->ahead[feed->ahead_count++] = item;
        if (dp_planner_preview(feed->planner, &((dp_feed_batch *)item)->batch))
            return RT_NO_MEMORY;
    }
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
    (*planned_p)->is_sweep = false;
    (*planned_p)->floor = 0;
    (*planned_p)->ended = 0;
    (*planned_p)->account = (dp_account){0};
    return RT_OK;
}

// Every row goes to the parameter servers.
static rt_status plan_cut(dp_feed *feed, uint64_t sequence, bool is_cut, bool is_last)
{
    dp_planned *flush;
    rt_status status = next_planned(feed, sequence, &flush);
    if (!status)
        status = plan_flush(feed, is_cut, is_last, flush);
    if (status)
        return status;
    return rt_queue_put(feed->full_planned, flush);
}

// A sweep, where one is due: the records for the next batch are there.
static rt_status plan_sweep(dp_feed *feed, uint64_t *sequence)
{
    uint32_t floor;
    const dp_plan *plan;
    dp_planned *planned;
    if (!dp_sweep_due(feed->planner, &floor))
        return RT_OK;
    rt_status status = next_planned(feed, (*sequence)++, &planned);
    if (!status)
        status = dp_sweep(feed->planner, floor, &plan, &planned->ended);
    if (status)
        return status;
    planned->iteration = planned->sample_count = 0;
    planned->fingerprint = 0;
    planned->cut = feed->iteration;
    planned->is_sweep = true;
    planned->floor = floor;
    const uint64_t *forgotten = dp_sweep_forgotten(feed->planner, &planned->forgotten_count);
    memcpy(planned->forgotten, forgotten, planned->forgotten_count * sizeof *forgotten);
    planned->keys = dp_planner_directory(feed->planner)->key_count;
    status = encode(feed, plan, NULL, planned);
    if (status)
        return status;
    return rt_queue_put(feed->full_planned, planned);
}

static rt_status plan_end(dp_feed *feed, uint64_t sequence)
{
    const rt_config *config = feed->config.config;
    const bool is_judged = config->stream.patience > 0 && !atomic_load(&feed->stop);
    const bool is_wanted = config->checkpoint.at_end || config->publish.every_s > 0 || is_judged;
    const bool is_cut = feed->config.cuts && is_wanted && feed->iteration > feed->last_cut;
    if (feed->input_end.size > 0) { // files that are known to be at their end
        rt_bytes_clear(&feed->stood);
        rt_bytes_put(&feed->stood, feed->input_end.data, feed->input_end.size);
    }
    pthread_mutex_lock(&feed->lock);
    rt_status status = feed->failure.status ? RT_STOPPED : RT_OK; // the reader failed
    pthread_mutex_unlock(&feed->lock);
    if (status)
        return status;
    return plan_cut(feed, sequence, is_cut, true);
}

static bool cut_is_due(dp_feed *feed)
{
    const uint32_t every = feed->config.config->checkpoint.every_iterations;
    if (!feed->config.cuts || feed->iteration == feed->last_cut)
        return false;
    const bool is_requested = atomic_exchange(&feed->cut_requested, false);
    return is_requested || feed->epochs || (every && feed->iteration % every == 0);
}

// RT_STOPPED: the caller is gone.
static rt_status plan_batch(dp_feed *feed, uint64_t sequence, dp_feed_batch *batch)
{
    const dp_plan *plan;
    dp_planned *planned;
    rt_status status = next_planned(feed, sequence, &planned);
    if (!status)
        status = plan_one(feed, batch, planned, &plan);
    if (!status)
        status = finish_plan(feed, plan, batch, planned);
    if (!status)
        status = rt_queue_put(feed->free_batches, batch);
    if (status)
        return status;
    return rt_queue_put(feed->full_planned, planned);
}

static rt_status plan_all(dp_feed *feed)
{
    uint64_t sequence = feed->config.sequence_first;
    for (;;) {
        dp_feed_batch *batch;
        rt_status status = next_batch(feed, &batch);
        if (status == RT_END)
            return plan_end(feed, sequence);
        const bool has_batch = !status;
        if (status && status != RT_AGAIN)
            return status;
        if (cut_is_due(feed)) {
            status = plan_cut(feed, sequence++, true, false);
            if (status)
                return status;
        }
        if (!has_batch)
            continue;
        dp_feed_apply_told(feed);
        status = plan_sweep(feed, &sequence);
        if (status)
            return status;
        status = plan_batch(feed, sequence++, batch);
        if (status)
            return status;
    }
}

void *dp_feed_plan(void *context)
{
    dp_feed *feed = context;
    prctl(PR_SET_NAME, "planner");
    rt_status status = plan_all(feed);
    if (status && status != RT_END && status != RT_STOPPED) {
        rt_error error = {0};
        if (status == RT_PEER)
            rt_fail(&error, status, "the lost worker had the only latest copies of some rows");
        else
            rt_fail(&error, status, "planning failed: %s", rt_status_text(status));
        dp_feed_fail(feed, &error);
    }
    rt_queue_close(feed->free_batches);
    rt_queue_close(feed->full_planned);
    return NULL;
}

// ---- input records ---------------------------------------------------------------------------

// Whether a record takes the place of another one. Keys are about the same if all of them is: ids
// that are small numbers are the same in several columns.
static bool is_about(const dp_input *input, const dp_input *other)
{
    return input->kind == other->kind && input->worker == other->worker &&
           (input->kind != DP_INPUT_FORGET || dp_input_key(input) == dp_input_key(other));
}

void dp_feed_tell(dp_feed *feed, const dp_input *input)
{
    uint32_t at = 0;
    pthread_mutex_lock(&feed->lock);
    while (at < feed->told_count && !is_about(input, &feed->told[at]))
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
    const bool forgets = kind == DP_INPUT_FORGET;
    const double old = forgets ? 0 : dp_planner_value(feed->planner, kind, input->worker);
    if (old == input->value)
        return;
    input->iteration = 0;
    if (dp_planner_apply(feed->planner, input, &error)) {
        rt_warn("an input record was refused: %s", error.text);
        return;
    }
    dp_account_apply(input, &feed->config.costs);
    if (feed->chooser)
        dp_participants_apply(feed->chooser, input);
    dp_journal_write(feed->journal, input);
    if (forgets)
        rt_info("a row is forgotten before iteration %" PRIu32, input->iteration);
    else if (dp_input_subject(kind))
        rt_debug("%s %" PRIu32 ": %s %g -> %g from iteration %" PRIu32 " on",
                 dp_input_subject(kind), input->worker, dp_input_name(kind), old, input->value,
                 input->iteration);
    else
        rt_info("%s %g -> %g from iteration %" PRIu32 " on", dp_input_name(kind), old, input->value,
                input->iteration);
}

// All records that were told so far, for the look-up that follows.
void dp_feed_apply_told(dp_feed *feed)
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

void dp_feed_choose_on(dp_feed *feed, bool chooses)
{
    atomic_store(&feed->chooser_rests, !chooses);
}

// Who trains the batch that is planned next.
rt_status dp_feed_choose(dp_feed *feed, const rt_batch *batch)
{
    dp_input records[RT_WORKERS_MAX];
    uint32_t count;
    if (!feed->chooser || atomic_load(&feed->chooser_rests))
        return RT_OK;
    rt_status status =
        dp_participants_next(feed->chooser, batch, dp_planner_participants(feed->planner),
                             dp_planner_row_count(feed->planner), records, &count);
    if (status)
        return status;
    for (uint32_t i = 0; i < count; i++)
        apply_one(feed, &records[i]);
    return RT_OK;
}
