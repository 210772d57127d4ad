#include "dispatch/coordinator/dp_feed.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "dispatch/coordinator/dp_feed_parts.h"
#include "dispatch/planner/dp_setup.h"
#include "runtime/rt_log.h"
#include "runtime/rt_thread.h"
#include "runtime/files/rt_own.h"

#define IDLE_NS UINT64_C(5000000000)

void dp_feed_fail(dp_feed *feed, const rt_error *error)
{
    pthread_mutex_lock(&feed->lock);
    if (feed->failure.status == RT_OK)
        feed->failure = *error;
    pthread_mutex_unlock(&feed->lock);
}

// ---- creation --------------------------------------------------------------------------------

static rt_status allocate_scales(dp_feed *feed)
{
    const dp_feed_config *config = &feed->config;
    const uint32_t dense_count = config->limits.dense_count;
    bool wanted = config->config->stream.dense_scaling == RT_SCALING_STANDARD;
    if (config->restored)
        wanted = config->scale != NULL;
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
    const bool has_classes = rt_config_class_count(&config->config->stream) > 0;
    feed->planned = rt_alloc(config->planned_max, sizeof *feed->planned);
    feed->batch_count = DP_FEED_BATCHES + rt_config_batches_ahead(config->config);
    if (!feed->planned || rt_queue_create(feed->batch_count, -1, &feed->free_batches) ||
        rt_queue_create(feed->batch_count, -1, &feed->full_batches) ||
        rt_queue_create(config->planned_max, -1, &feed->free_planned) ||
        rt_queue_create(config->planned_max, config->wake_fd, &feed->full_planned))
        return RT_NO_MEMORY;
    for (uint32_t i = 0; i < feed->batch_count; i++) {
        rt_batch_init(&feed->batches[i].batch, config->limits.dense_count);
        dp_heard_init(&feed->batches[i].heard, config->limits.dense_count);
        feed->batches[i].arrivals = rt_alloc_lazy(feed->batch_size, sizeof(uint64_t));
        if (!feed->batches[i].arrivals)
            return RT_NO_MEMORY;
        if (dp_ranges_init(&feed->batches[i].ranges, config->limits.dense_count, has_classes))
            return RT_NO_MEMORY;
        (void)rt_queue_put(feed->free_batches, &feed->batches[i]);
    }
    const size_t label_bytes = (config->limits.more_labels + 1) * sizeof(float);
    for (uint32_t i = 0; i < config->planned_max; i++) {
        feed->planned[i].labels = rt_alloc(feed->batch_size, label_bytes);
        feed->planned[i].weights = rt_alloc(feed->batch_size, label_bytes);
        feed->planned[i].arrivals = rt_alloc_lazy(feed->batch_size, sizeof(uint64_t));
        if (config->slice_field < config->limits.field_count) {
            feed->planned[i].slice_keys = rt_alloc(feed->batch_size, sizeof(uint64_t));
            if (!feed->planned[i].slice_keys)
                return RT_NO_MEMORY;
        }
        if (!feed->planned[i].labels || !feed->planned[i].weights || !feed->planned[i].arrivals ||
            dp_ranges_init(&feed->planned[i].ranges, config->limits.dense_count, has_classes))
            return RT_NO_MEMORY;
        dp_heard_init(&feed->planned[i].heard, config->limits.dense_count);
        (void)rt_queue_put(feed->free_planned, &feed->planned[i]);
    }
    return allocate_scales(feed);
}

// Two of them: the reader is ahead of what a checkpoint keeps.
static rt_status open_repeats(dp_feed *feed, rt_error *error)
{
    const dp_feed_config *config = &feed->config;
    const uint32_t keys = rt_stream_schema(feed->stream)->keys_per_sample_max;
    rt_repeats **both[] = {&feed->repeats, &feed->stood_repeats};
    for (size_t i = 0; feed->grows && i < RT_COUNT_OF(both); i++) {
        if (rt_repeats_create(feed->batch_size, keys, both[i]))
            return rt_fail(error, RT_NO_MEMORY, "out of memory for the planner's queues");
        rt_reader reader = config->repeats ? rt_bytes_reader(config->repeats) : (rt_reader){0};
        const rt_status status = rt_repeats_load(*both[i], &reader, error);
        if (status)
            return status;
    }
    rt_stream_end_batches(feed->stream, feed->repeats);
    return RT_OK;
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
        rt_free(feed->planned[i].slice_keys);
        dp_heard_fini(&feed->planned[i].heard);
        dp_ranges_fini(&feed->planned[i].ranges);
    }
    for (uint32_t i = 0; i < feed->batch_count; i++) {
        rt_batch_fini(&feed->batches[i].batch);
        dp_heard_fini(&feed->batches[i].heard);
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
    rt_repeats_destroy(feed->repeats);
    rt_repeats_destroy(feed->stood_repeats);
    dp_planner_destroy(feed->planner);
    rt_pool_destroy(feed->pool);
    dp_participants_destroy(feed->chooser);
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
    rt_error error = {0};
    rt_status status;
    if (is_fresh)
        status = rt_own_create(path, 0666, &feed->ledger_fd, &error);
    else
        status = rt_own_open(path, 0666, &feed->ledger_fd, &error);
    if (status)
        rt_warn("%s; what a restart loses of pipes is not counted", error.text);
}

// What stays the caller's is of no use once the feed is made.
static void forget_callers(dp_feed_config *config)
{
    config->planner = NULL;
    config->journal = config->ledger = NULL;
    config->position = config->ids = config->chooser_state = config->waiting = NULL;
    config->repeats = NULL;
    config->scale = NULL;
    config->rate = NULL;
}

// To the planner, which is restored, or made already.
static rt_status lend_threads(dp_feed *feed, dp_planner *restored, rt_error *error)
{
    if (restored)
        feed->planner = restored;
    rt_status status = dp_setup_threads(feed->config.config, &feed->pool, error);
    if (!status && dp_planner_set_pool(feed->planner, feed->pool))
        status = rt_fail(error, RT_NO_MEMORY, "out of memory for the planner's threads");
    return status;
}

// A planner of its own, or what one that was restored goes on with.
static rt_status begin(dp_feed *feed, rt_error *error)
{
    const dp_feed_config *config = &feed->config;
    const rt_status status = dp_planner_create(config->planner, &feed->planner, error);
    if (status)
        return status;
    return rt_metrics_open_beside(config->journal, &feed->journal, error);
}

static rt_status go_on(dp_feed *feed, rt_error *error)
{
    const dp_feed_config *config = &feed->config;
    const rt_status status = rt_metrics_append(config->journal, &feed->journal, error);
    if (status)
        return status;
    dp_journal_resume(feed->journal, config->iteration, config->input_count);
    rt_bytes_put(&feed->stood, config->position->data, config->position->size);
    if (config->waiting)
        rt_bytes_put(&feed->waiting, config->waiting->data, config->waiting->size);
    if (config->ids)
        rt_bytes_put(&feed->ids, config->ids->data, config->ids->size);
    if (feed->stood.failed || feed->waiting.failed || feed->ids.failed)
        return rt_fail(error, RT_NO_MEMORY, "out of memory for the planner's queues");
    feed->iteration = feed->last_cut = config->iteration;
    return RT_OK;
}

static rt_status open_planner(dp_feed *feed, rt_error *error)
{
    const dp_feed_config *config = &feed->config;
    const dp_planner *planner = config->restored;
    rt_status status;
    if (planner) {
        status = go_on(feed, error);
    } else {
        status = begin(feed, error);
        planner = feed->planner;
    }
    if (status)
        return status;
    rt_metrics_limit(feed->journal, config->config->metrics_bytes_max);
    const dp_rates told = dp_planner_rates_told(planner);
    return dp_participants_open(config->planner, config->chooser_state, &told, &feed->chooser,
                                error);
}

static rt_status start_threads(dp_feed *feed, rt_error *error)
{
    feed->reader_runs = rt_thread_start(&feed->reader, dp_feed_read, feed) == 0;
    feed->planning_runs =
        feed->reader_runs && rt_thread_start(&feed->planning, dp_feed_plan, feed) == 0;
    if (!feed->planning_runs)
        return rt_fail(error, RT_LIMIT, "cannot start the planner's threads");
    return RT_OK;
}

static rt_status open_all(dp_feed *feed, rt_stream *stream, rt_error *error)
{
    const dp_feed_config *config = &feed->config;
    rt_status status = open_planner(feed, error);
    if (status)
        return status;
    if (allocate(feed) || rt_stream_keep_arrivals(stream))
        return rt_fail(error, RT_NO_MEMORY, "out of memory for the planner's queues");
    feed->stop_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (feed->stop_fd < 0)
        return rt_fail(error, RT_LIMIT, "cannot create an event descriptor");
    feed->stream = stream;
    status = open_repeats(feed, error);
    if (status)
        return status;
    rt_base_rate_init(&feed->rate, config->config, config->has_model);
    if (config->rate)
        feed->rate = *config->rate;
    feed->stood_rate = feed->rate;
    feed->is_learnt = config->restored && rt_base_rate_is_learnt(&feed->rate);
    status = lend_threads(feed, config->restored, error);
    if (status)
        return status;
    open_ledger(feed, config->ledger, config->is_fresh);
    rt_stream_watch(stream, feed->stop_fd, feed->ledger_fd);
    rt_stream_remember(stream);
    rt_stream_set_wait(stream, config->config->batch_wait_ms * UINT64_C(1000000));
    forget_callers(&feed->config);
    return start_threads(feed, error);
}

rt_status dp_feed_create(const dp_feed_config *config, rt_stream *stream, dp_feed **feed_p,
                         rt_error *error)
{
    dp_feed *feed = rt_alloc(1, sizeof *feed);
    if (!feed)
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    feed->config = *config;
    feed->stop_fd = feed->ledger_fd = -1;
    feed->batch_size = config->planner->sample_count_max;
    feed->grows = rt_config_batch_grows(config->config);
    feed->idle_limit_ns = IDLE_NS;
    pthread_mutex_init(&feed->lock, NULL);
    const rt_status status = open_all(feed, stream, error);
    if (status) {
        if (config->restored) {
            (void)dp_planner_set_pool(config->restored, NULL); // which cannot fail
            feed->planner = NULL;                              // it stays the caller's
        }
        release(feed);
        rt_stream_watch(stream, -1, -1); // so does this
        rt_stream_end_batches(stream, NULL);
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
        feed->idle_since_ns = 0;
        if (idle)
            feed->idle_since_ns = now;
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
    if (failure.status)
        return rt_fail(error, failure.status, "%s", failure.text);
    return RT_OK;
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

uint64_t dp_feed_scale_samples(const dp_feed *feed)
{
    if (!feed->stood_scale)
        return 0;
    return rt_scale_samples(feed->stood_scale);
}

rt_status dp_feed_put_scale(const dp_feed *feed, rt_bytes *file)
{
    rt_tensor tensors[RT_SCALE_TENSORS];
    if (!feed->scale)
        return RT_OK;
    return rt_tensors_encode(tensors, rt_scale_tensors(feed->stood_scale, tensors), file);
}
