#include "runtime/stream/rt_base_rate.h"

#include <math.h>

#define MAGIC UINT64_C(0x455441525f455341) // "ASE_RATE"

void rt_base_rate_init(rt_base_rate *rate, const rt_config *config, bool has_model)
{
    const rt_stream_config *stream = &config->stream;
    const bool is_joined =
        rt_config_has_join(stream) && stream->join.unanswered == RT_JOIN_NEGATIVE;
    *rate = (rt_base_rate){.follows = config->model.base_rate_auto && !has_model};
    if (rt_config_class_count(stream))
        return;
    rate->label_count = rt_config_label_count(stream);
    for (uint32_t l = 0; l < rate->label_count; l++)
        rate->labels[l].is_known = has_model && !is_joined;
}

static double rarer(const rt_label_rate *one)
{
    return fmin(one->both[0], one->both[1]);
}

static void count(rt_label_rate *one, const rt_batch *batch, uint32_t label)
{
    double came[2] = {0};
    for (uint32_t i = 0; i < batch->sample_count; i++) {
        const size_t at = (size_t)i * batch->label_count + label;
        const double positive = (double)batch->labels[at];
        came[1] += positive;
        came[0] += (batch->is_weighted ? (double)batch->weights[at] : 1) - positive;
    }
    const bool are_both =
        one->alone[0] + one->both[0] + came[0] > 0 && one->alone[1] + one->both[1] + came[1] > 0;
    double *sums = are_both ? one->both : one->alone;
    sums[0] += came[0];
    sums[1] += came[1];
}

// Half a sample of either label is added: never infinite.
static double log_odds(const rt_label_rate *one, double pending)
{
    const double kept = fmax(0, 1 - rarer(one) / RT_RATE_KNOWN);
    const double zeros = one->both[0] + kept * (one->alone[0] + pending);
    const double ones = one->both[1] + kept * one->alone[1];
    return log((fmax(ones, 0) + 0.5) / (fmax(zeros, 0) + 0.5));
}

void rt_base_rate_note(rt_base_rate *rate, rt_batch *batch, double pending)
{
    const double enough = rate->follows ? RT_RATE_KNOWN : 1;
    const uint8_t all = (uint8_t)rt_bits_below(rate->label_count);
    batch->learning = (rt_batch_learning){0};
    for (uint32_t l = 0; l < rate->label_count; l++) {
        rt_label_rate *one = &rate->labels[l];
        if (one->is_known)
            continue;
        count(one, batch, l);
        if (rate->follows)
            batch->learning.log_odds[l] = (float)(log_odds(one, pending) - one->log_odds);
        one->log_odds += (double)batch->learning.log_odds[l];
        one->is_known = rarer(one) >= enough;
        if (!one->is_known)
            batch->learning.unknown |= (uint8_t)(1u << l);
    }
    batch->learning.is_untrained = all && batch->learning.unknown == all;
}

bool rt_base_rate_is_known(const rt_base_rate *rate)
{
    for (uint32_t l = 0; l < rate->label_count; l++)
        if (!rate->labels[l].is_known)
            return false;
    return true;
}

// ---- what a checkpoint keeps -----------------------------------------------------------------

void rt_base_rate_save(const rt_base_rate *rate, rt_bytes *bytes)
{
    if (rt_base_rate_is_known(rate))
        return;
    rt_bytes_put_u64(bytes, MAGIC);
    rt_bytes_put_u64(bytes, rate->label_count);
    for (uint32_t l = 0; l < rate->label_count; l++) {
        const rt_label_rate *one = &rate->labels[l];
        const double numbers[] = {one->alone[0], one->alone[1], one->both[0], one->both[1],
                                  one->log_odds};
        rt_bytes_put(bytes, numbers, sizeof numbers);
        rt_bytes_put_u64(bytes, one->is_known);
    }
}

bool rt_base_rate_is_next(const rt_reader *reader)
{
    rt_reader head = *reader;
    return rt_reader_u64(&head) == MAGIC && !head.failed;
}

rt_status rt_base_rate_load(rt_base_rate *rate, rt_reader *reader, rt_error *error)
{
    double numbers[5];
    for (uint32_t l = 0; l < rate->label_count; l++)
        rate->labels[l].is_known = true;
    if (!rt_base_rate_is_next(reader))
        return RT_OK;
    (void)rt_reader_u64(reader);
    if (rt_reader_u64(reader) != rate->label_count)
        return rt_fail(error, RT_DATA, "the base rates so far are of other labels");
    for (uint32_t l = 0; l < rate->label_count; l++) {
        if (!rt_reader_get(reader, numbers, 1, sizeof numbers))
            return rt_fail(error, RT_DATA, "the base rates so far are cut off");
        rate->labels[l] = (rt_label_rate){.alone = {numbers[0], numbers[1]},
                                          .both = {numbers[2], numbers[3]},
                                          .log_odds = numbers[4],
                                          .is_known = rt_reader_u64(reader) != 0};
    }
    if (reader->failed)
        return rt_fail(error, RT_DATA, "the base rates so far are cut off");
    return RT_OK;
}
