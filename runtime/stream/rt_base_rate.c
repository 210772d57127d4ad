#include "runtime/stream/rt_base_rate.h"

#include <math.h>

#define MAGIC UINT64_C(0x455441525f455341) // "ASE_RATE"
#define NOT_NOTED (-1.0)                   // pending: what waits is older than these numbers

// Of a label in a checkpoint, in one word; above them the samples seen, 8 bits of each class.
#define IS_KNOWN 1u
#define STANDS 2u // the bias: nothing follows
#define SEEN_SHIFT 8u

void rt_base_rate_init(rt_base_rate *rate, const rt_config *config, bool has_model)
{
    const rt_stream_config *stream = &config->stream;
    const bool is_joined =
        rt_config_has_join(stream) && stream->join.unanswered == RT_JOIN_NEGATIVE;
    *rate = (rt_base_rate){.follows = config->model.base_rate_auto && !has_model};
    if (rt_config_class_count(stream))
        return;
    rate->label_count = rt_config_label_count(stream);
    rate->is_joined = is_joined && rate->label_count == 1;
    for (uint32_t l = 0; l < rate->label_count; l++)
        rate->labels[l].is_known = has_model && !is_joined;
}

static double rarer(const rt_label_rate *one)
{
    return fmin(one->seen[0], one->seen[1]);
}

// Mean weight of the samples that have one; 1: none has.
static double mean_weight(const rt_batch *batch, uint32_t label)
{
    double sum = 0, count = 0;
    for (uint32_t i = 0; batch->is_weighted && i < batch->sample_count; i++) {
        const double weight = (double)batch->weights[(size_t)i * batch->label_count + label];
        sum += weight;
        count += weight > 0;
    }
    return count > 0 ? sum / count : 1;
}

// The first of the second class ends the time of one class and belongs to it: what follows is a
// stretch that no label has chosen. Returns the share of the batch before it.
static double count(rt_label_rate *one, const rt_batch *batch, uint32_t label)
{
    uint32_t alone = 0;
    for (uint32_t i = 0; i < batch->sample_count; i++) {
        const size_t at = (size_t)i * batch->label_count + label;
        const double positive = (double)batch->labels[at];
        const double weight = batch->is_weighted ? (double)batch->weights[at] : 1;
        const bool is_first = one->alone[0] <= 0 || one->alone[1] <= 0;
        double *sums = is_first ? one->alone : one->both;
        sums[0] += weight - positive;
        sums[1] += positive;
        alone += is_first;
        if (!is_first && (weight > 0 || positive > 0) && one->seen[positive > 0] < RT_RATE_SEEN)
            one->seen[positive > 0]++;
    }
    return (double)alone / (double)rt_max_u64(batch->sample_count, 1);
}

// Half a sample of either label is added, which is less where samples weigh less: never infinite.
static double log_odds(const rt_label_rate *one, double pending, double mean)
{
    const double kept = fmax(0, 1 - rarer(one) / RT_RATE_KNOWN), half = 0.5 * fmin(mean, 1);
    const double zeros = one->both[0] + kept * (one->alone[0] + pending * mean);
    const double ones = one->both[1] + kept * one->alone[1];
    return log((fmax(ones, 0) + half) / (fmax(zeros, 0) + half));
}

static void note_label(rt_base_rate *rate, rt_batch *batch, uint32_t label, double pending)
{
    rt_label_rate *one = &rate->labels[label];
    const double enough = rate->follows ? RT_RATE_KNOWN : 0;
    const double alone = count(one, batch, label);
    const double mean = mean_weight(batch, label);
    if (rate->follows)
        batch->learning.log_odds[label] = (float)(log_odds(one, pending, mean) - one->log_odds);
    one->log_odds += (double)batch->learning.log_odds[label];
    one->is_known = one->alone[0] > 0 && one->alone[1] > 0 && rarer(one) >= enough;
    if (!one->is_known || alone > 0.5) // what came first says little of what comes
        batch->learning.unknown |= (uint8_t)(1u << label);
}

// Samples, as what waits is counted, whatever they weigh. Corrections of what came late are no
// samples of a time.
static void count_classes(const rt_batch *batch, double came[2])
{
    for (uint32_t i = 0; i < batch->sample_count; i++)
        if (!batch->is_weighted || batch->weights[i] >= batch->labels[i])
            came[batch->labels[i] > 0]++;
}

// Where what is too much is nearly all that comes, a batch of it alone is not trained.
static void count_less(rt_batch *batch, uint32_t label, double share, double others)
{
    batch->learning.less[label] = (float)(1 - fmax(share, RT_RATE_LEAST));
    batch->learning.is_untrained |= share < RT_RATE_LEAST && others == 0;
}

static void balance(rt_base_rate *rate, rt_batch *batch, double pending)
{
    const double horizon = fmax(RT_RATE_SAMPLES, pending / 16);
    const double stays = exp(-(double)batch->sample_count / horizon);
    double came[2] = {0};
    count_classes(batch, came);
    if (rate->pending < 0)
        rate->pending = pending;
    rate->zeros = rate->zeros * stays + came[0];
    rate->owed = rate->owed * stays + came[0] + pending - rate->pending;
    rate->pending = pending;
    const double owed = fmax(rate->owed, 0);
    if (rate->zeros < owed)
        count_less(batch, 1, rate->zeros / owed, came[0]);
    else if (rate->zeros > owed)
        count_less(batch, 0, owed / rate->zeros, came[1]);
}

void rt_base_rate_note(rt_base_rate *rate, rt_batch *batch, double pending)
{
    const uint8_t all = (uint8_t)rt_bits_below(rate->label_count);
    batch->learning = (rt_batch_learning){0};
    for (uint32_t l = 0; l < rate->label_count; l++)
        if (!rate->labels[l].is_known)
            note_label(rate, batch, l, pending);
    batch->learning.is_untrained = all && batch->learning.unknown == all;
    if (!rate->is_joined)
        return;
    if (batch->learning.is_untrained)
        rate->pending = pending;
    else
        balance(rate, batch, pending);
}

bool rt_base_rate_is_known(const rt_base_rate *rate)
{
    for (uint32_t l = 0; l < rate->label_count; l++)
        if (!rate->labels[l].is_known)
            return false;
    return true;
}

bool rt_base_rate_is_learnt(const rt_base_rate *rate)
{
    bool is_learnt = rate->label_count == 0;
    for (uint32_t l = 0; l < rate->label_count; l++)
        is_learnt |= rate->labels[l].is_known;
    return is_learnt;
}

// ---- what a checkpoint keeps -----------------------------------------------------------------

void rt_base_rate_save(const rt_base_rate *rate, rt_bytes *bytes)
{
    const double flows[] = {rate->pending, rate->zeros, rate->owed};
    if (rt_base_rate_is_known(rate) && !rate->is_joined)
        return;
    rt_bytes_put_u64(bytes, MAGIC);
    rt_bytes_put_u64(bytes, rate->label_count);
    rt_bytes_put(bytes, flows, sizeof flows);
    for (uint32_t l = 0; l < rate->label_count; l++) {
        const rt_label_rate *one = &rate->labels[l];
        const double numbers[] = {one->alone[0], one->alone[1], one->both[0], one->both[1],
                                  one->log_odds};
        const uint32_t seen = one->seen[0] | one->seen[1] << 8;
        rt_bytes_put(bytes, numbers, sizeof numbers);
        rt_bytes_put_u64(bytes, (one->is_known ? IS_KNOWN : 0) | (rate->follows ? 0 : STANDS) |
                                    (uint64_t)seen << SEEN_SHIFT);
    }
}

bool rt_base_rate_is_next(const rt_reader *reader)
{
    rt_reader head = *reader;
    return rt_reader_u64(&head) == MAGIC && !head.failed;
}

rt_status rt_base_rate_load(rt_base_rate *rate, rt_reader *reader, rt_error *error)
{
    double numbers[5], flows[3];
    for (uint32_t l = 0; l < rate->label_count; l++)
        rate->labels[l].is_known = true;
    rate->pending = NOT_NOTED;
    if (!rt_base_rate_is_next(reader))
        return RT_OK;
    (void)rt_reader_u64(reader);
    if (rt_reader_u64(reader) != rate->label_count)
        return rt_fail(error, RT_DATA, "the base rates so far are of other labels");
    if (!rt_reader_get(reader, flows, 1, sizeof flows))
        return rt_fail(error, RT_DATA, "the base rates so far are cut off");
    rate->pending = flows[0];
    rate->zeros = flows[1];
    rate->owed = flows[2];
    for (uint32_t l = 0; l < rate->label_count; l++) {
        if (!rt_reader_get(reader, numbers, 1, sizeof numbers))
            return rt_fail(error, RT_DATA, "the base rates so far are cut off");
        const uint64_t word = rt_reader_u64(reader), seen = word >> SEEN_SHIFT;
        rate->follows &= !(word & STANDS);
        rate->labels[l] = (rt_label_rate){.alone = {numbers[0], numbers[1]},
                                          .both = {numbers[2], numbers[3]},
                                          .log_odds = numbers[4],
                                          .seen = {seen & RT_RATE_SEEN, seen >> 8 & RT_RATE_SEEN},
                                          .is_known = (word & IS_KNOWN) != 0};
    }
    if (reader->failed)
        return rt_fail(error, RT_DATA, "the base rates so far are cut off");
    return RT_OK;
}
