// The reader of a feed: batches of the stream, scaled, with the place where it goes on behind each.
#include <inttypes.h>
#include <string.h>
#include <sys/prctl.h>
#include <math.h>
#include <stdio.h>

#include "dispatch/coordinator/dp_feed_parts.h"
#include "runtime/config/rt_formats.h"
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

// That the stream has come to the end of.
static uint32_t epochs_read(const dp_feed *feed)
{
    const rt_stream_config *config = &feed->config.config->stream;
    if (config->patience == 0)
        return 0;
    return rt_stream_statistics(feed->stream).inputs_read / config->file_count;
}

static rt_status read_one(dp_feed *feed, dp_feed_batch *into, rt_error *error)
{
    uint64_t begin = rt_now_ns();
    uint32_t samples = feed->batch_size;
    const uint32_t epochs = epochs_read(feed);
    if (feed->grows)
        samples = rt_batch_grown(samples, rt_stream_statistics(feed->stream).samples);
    rt_status status = rt_stream_read(feed->stream, &into->batch, samples, error);
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
    into->epochs = epochs_read(feed);
    if (into->epochs == epochs)
        into->epochs = 0;
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
    const rt_stream_config *config = &feed->config.config->stream;
    if (config->patience > 0)
        feed->end_epochs = (uint32_t)rt_min_u64(epochs_read(feed) + 1u, config->epochs);
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
        rt_status status = read_one(feed, item, &error);
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

// ---- what is said of the first batch ---------------------------------------------------------

// From here on whole numbers do not fit the 32 bits that a model takes.
#define UNSCALED_MAX 16777216.0f
// Below this share of a first batch label 1 is rare.
#define RARE 0.01

// Labels 1 and 2, or 1 to 5, and never 0: which of them is meant nobody can know.
static rt_status check_labels(const dp_feed *feed, const rt_stream_stats *stats, rt_error *error)
{
    const rt_stream_config *config = &feed->config.config->stream;
    const rt_schema *schema = rt_stream_schema(feed->stream);
    char name[RT_NAME_MAX + 3] = "";
    if (stats->doubtful == 0)
        return RT_OK;
    if (config->format == RT_FORMAT_LIBSVM)
        return rt_fail(error, RT_CONFIG,
                       "labels: none of the first %" PRIu64 " is below 1, and there is %g: from "
                       "which number on is it label 1? Give stream.libsvm.label_at_least",
                       stats->samples, stats->doubtful);
    if (schema->label_count > 1)
        snprintf(name, sizeof name, " \"%s\"", schema->label_names[stats->doubtful_label]);
    return rt_fail(error, RT_CONFIG,
                   "labels%s: none of the first %" PRIu64 " samples has 0, and one has %g: which "
                   "one is label 1? Give the column of the label \"value\": \"%g\" (or \"1.0\", if "
                   "it is 1), or \"rule\": \"at_least\" with it",
                   name, stats->samples, stats->doubtful, stats->doubtful);
}

static void tell_weights(const rt_batch *batch)
{
    uint32_t without = 0;
    for (uint32_t i = 0; batch->is_weighted && batch->label_count == 1 && i < batch->sample_count;
         i++)
        without += batch->weights[i] == 0;
    if (without == batch->sample_count)
        rt_warn("all weights of the first %" PRIu32
                " samples are 0: such samples are predicted, and "
                "train nothing",
                batch->sample_count);
    else if (without > 0)
        rt_info("%" PRIu32 " of the first %" PRIu32 " samples have weight 0: they are predicted, "
                "and train nothing",
                without, batch->sample_count);
}

static void tell_unscaled(const rt_stream_config *config, const dp_ranges *ranges)
{
    char name[RT_NAME_MAX];
    for (uint32_t k = 0; k < ranges->dense_count; k++) {
        const float most = fmaxf(-ranges->dense_min[k], ranges->dense_max[k]);
        if (!(most >= UNSCALED_MAX))
            continue;
        rt_parser_dense_name(config, k, name);
        rt_warn("stream.dense_scaling is none, and dense feature %s has values up to %g: the model "
                "takes them as they are, in 32 bits",
                name, (double)most);
    }
}

// Positives that are few are what clipping takes most from, and what a rate starts from.
static void tell_rare(const rt_config *config, const rt_stream_stats *stats)
{
    const uint64_t all = stats->samples + stats->left_out;
    const double share = (double)stats->positive / (double)rt_max_u64(all, 1);
    if (stats->positive == 0 || share >= RARE)
        return;
    const char *rate = config->model.base_rate_auto ? "as the input shows it" : "as configured";
    rt_info("label 1 is rare: %" PRIu64 " of the first %" PRIu64
            " samples. model.base_rate is taken "
            "%s; gradients are scaled down beyond optimizer.rows.clip_norm %g and "
            "optimizer.dense.clip_norm %g (0: never); stream.negatives_keep is %g, and predictions "
            "are of the whole input",
            stats->positive, all, rate, (double)config->optimizer_rows.clip_norm,
            (double)config->optimizer_dense.clip_norm, config->stream.negatives_keep);
}

rt_status dp_feed_look_at_first(dp_feed *feed, const dp_feed_batch *first, rt_error *error)
{
    const rt_config *config = feed->config.config;
    const rt_stream_stats stats = rt_stream_statistics(feed->stream);
    const rt_status status = check_labels(feed, &stats, error);
    if (status || first->batch.sample_count == 0 || rt_config_has_join(&config->stream))
        return status;
    tell_weights(&first->batch);
    if (!feed->scale)
        tell_unscaled(&config->stream, &first->ranges);
    tell_rare(config, &stats);
    return RT_OK;
}
