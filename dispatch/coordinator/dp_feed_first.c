// What is said of a run's first batch, before it is trained: labels, weights and numbers of which a
// reader might think something else.
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "dispatch/coordinator/dp_feed_parts.h"
#include "runtime/rt_log.h"
#include "runtime/stream/rt_parser.h"

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
