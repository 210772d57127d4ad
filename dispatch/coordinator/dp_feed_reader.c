// The reader of a feed: batches of the stream, scaled, with the place where it goes on behind each.
#include <inttypes.h>
#include <string.h>
#include <sys/prctl.h>

#include "dispatch/coordinator/dp_feed_parts.h"
#include "runtime/rt_log.h"
#include "runtime/stream/rt_parser.h"

// Of one value among so many samples it is said that they have no other.
#define ONE_VALUE_SAMPLES 1000u

// Once: with the sample that makes it ONE_VALUE_SAMPLES, or at the end of fewer.
static void tell_one_values(const dp_feed *feed, uint64_t before, bool is_end)
{
    const uint64_t now = rt_scale_samples(feed->scale);
    char name[RT_NAME_MAX];
    double value;
    if (before >= ONE_VALUE_SAMPLES || (now < ONE_VALUE_SAMPLES && !is_end))
        return;
    for (uint32_t k = 0; k < feed->config.limits.dense_count; k++) {
        if (!rt_scale_is_one(feed->scale, k, &value))
            continue;
        rt_parser_dense_name(&feed->config.config->stream, k, name);
        rt_warn("dense feature %s was %.15g in all of the first %" PRIu64 " samples: it tells the "
                "model nothing before it has another value",
                name, value, now);
    }
}

static void scale_one(dp_feed *feed, dp_feed_batch *into)
{
    dp_ranges_clear(&into->ranges);
    dp_ranges_add(&into->ranges, &into->batch);
    if (!feed->scale)
        return;
    const uint64_t before = rt_scale_samples(feed->scale);
    rt_scale_learn(feed->scale, &into->batch);
    tell_one_values(feed, before, false);
    into->dense_clipped = rt_scale_apply(feed->scale, &into->batch);
    rt_scale_copy(feed->scale, into->scale);
}

static rt_status read_one(dp_feed *feed, dp_feed_batch *into, uint32_t batch_size, rt_error *error)
{
    uint64_t begin = rt_now_ns();
    rt_status status = rt_stream_read(feed->stream, &into->batch, batch_size, error);
    if (!status && feed->config.heard_every > 0 &&
        dp_heard_take(&into->heard, &into->batch, feed->config.heard_every, &feed->passed))
        status = rt_fail(error, RT_NO_MEMORY, "out of memory for a batch");
    if (!status) {
        const bool is_first = feed->stats.samples == 0; // only this thread writes it
        scale_one(feed, into);
        rt_base_rate_note(&feed->rate, &into->batch, rt_stream_pending(feed->stream));
        into->rate = feed->rate;
        if (is_first)
            status = dp_feed_look_at_first(feed, into, error);
    }
    if (!status && rt_tables_fold(&rt_stream_schema(feed->stream)->tables, &into->batch))
        status = rt_fail(error, RT_NO_MEMORY, "out of memory for a batch");
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
        dp_feed_fail(feed, error);
        return;
    }
    pthread_mutex_lock(&feed->lock);
    feed->input_failure = *error;
    pthread_mutex_unlock(&feed->lock);
    rt_info("the input cannot be read on: what came before is trained and saved");
}

// The planner looks at it once the queue of batches is closed and empty.
static void note_end(dp_feed *feed, const dp_feed_batch *last)
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

// Where the run before has read to, with what it had in hand.
static rt_status go_on(dp_feed *feed, rt_error *error)
{
    rt_status status = RT_OK;
    if (feed->config.restored)
        status = rt_stream_seek(feed->stream, &feed->stood, error);
    if (!status && feed->config.restored)
        status = rt_stream_load_ids(feed->stream, &feed->ids, error);
    if (!status && feed->waiting.size > 0)
        status = rt_stream_restore(feed->stream, &feed->waiting, error);
    return status;
}

void *dp_feed_read(void *context)
{
    dp_feed *feed = context;
    prctl(PR_SET_NAME, "reader");
    const uint32_t last = last_of(feed->config.config);
    uint32_t left = (uint32_t)rt_max_u64(last, feed->config.iteration) - feed->config.iteration;
    rt_error error = {0};
    bool has_read = false;
    const bool can_read = go_on(feed, &error) == RT_OK;
    if (!can_read) {
        dp_feed_fail(feed, &error);
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
        if (status == RT_END && feed->scale && has_read)
            tell_one_values(feed, rt_scale_samples(feed->scale), true);
        has_read = true;
        if (status == RT_END)
            note_end(feed, item);
        if (status || rt_queue_put(feed->full_batches, item))
            break;
    }
    if (can_read && left == 0 && last == DP_ITERATIONS_MAX)
        rt_warn("iteration %" PRIu32 " is the last that can be counted: the run ends with it",
                last);
    rt_queue_close(feed->full_batches);
    return NULL;
}
