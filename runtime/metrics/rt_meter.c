#include "runtime/metrics/rt_meter.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "runtime/wire/rt_fields.h"

#define BIN_COUNT 16384
#define LOGIT_MAX 16.0
#define BINS_PER_LOGIT (BIN_COUNT / (2 * LOGIT_MAX))

// The tail of the run is kept in segments of equal size. Segments that lie wholly before the last
// fifth can never be in it again, as its start only moves forward, and are dropped; when all
// segments are needed, neighbours are merged and the size doubles. At that moment
// SEGMENT_COUNT x size <= run / 5 + size, so a merged segment is at most 1/77 of the run and the
// nearest boundary at most half of that away.
#define SEGMENT_COUNT 32
#define WEIGHED 0x80000000u // beside the number of segments, in what was saved before
#define WEIGHT_UNIT 1048576.0
_Static_assert(SEGMENT_COUNT % 2 == 0, "neighbours are merged in pairs");

// What tallies of any kind begin with.
typedef struct {
    uint64_t seen; // samples, invalid ones included
    uint64_t invalid;
    // Numbers of samples; where there are weights, their sums in units of 1 / WEIGHT_UNIT. A
    // correction of what was trained before may leave a bin below zero.
    int64_t positives; // of classes: whose likeliest class was the right one
    double loss_sum;
    double prediction_sum; // of classes: of the likeliest one's
} sums;

typedef struct {
    sums sums;
    int64_t bins[2][BIN_COUNT]; // by label
} tally;

// The last samples, in segments of at least a twentieth of them: the oldest one goes once the
// others are enough. As a tally, with coarser bins.
#define COARSE_BINS 8u
#define COARSE_COUNT (BIN_COUNT / COARSE_BINS)
#define ROLLED_SHARE 20u
#define ROLLED_MAX 24u // closed ones, fewer than 21; one being filled

typedef struct {
    sums sums;
    int64_t bins[2][COARSE_COUNT];
} coarse;

#define SUMS(XX, PART, NONE, T) \
    XX(T, seen)                 \
    XX(T, invalid)              \
    XX(T, positives)            \
    XX(T, loss_sum)             \
    XX(T, prediction_sum)
RT_FIELDS(sums_fields, sums, SUMS, "seen:8 invalid:8 positives:8 loss_sum:8 prediction_sum:8");
#define TALLY(XX, PART, NONE, T) PART(T, sums, &sums_fields) XX(T, bins)
RT_FIELDS(tally_fields, tally, TALLY,
          "sums*1{seen:8 invalid:8 positives:8 loss_sum:8 prediction_sum:8} bins:262144");

// What is saved before the tallies.
typedef struct {
    uint64_t tail_start, segment_size;
    uint32_t segment_count, weighs; // before members had names: WEIGHED beside segment_count
} saved_head;

#define HEAD(XX, PART, NONE, T) \
    XX(T, tail_start)           \
    XX(T, segment_size)         \
    XX(T, segment_count)        \
    XX(T, weighs)
RT_FIELDS(head_fields, saved_head, HEAD, "tail_start:8 segment_size:8 segment_count:4");

struct rt_meter {
    bool weighs;
    uint32_t class_count;                                // 0: labels are 0 or 1
    coarse rolled[ROLLED_MAX], rolled_sum, rolled_batch; // the last one: scratch
    uint32_t rolled_first, rolled_count;                 // in use
    tally total;
    tally window;
    tally sum;           // scratch of last_fifth
    uint64_t tail_start; // index in the run of the first sample of the first segment
    uint64_t segment_size;
    uint32_t segment_count;         // in use, in the order of the run; the last one is being filled
    tally *segments[SEGMENT_COUNT]; // in use first, spare ones behind
    tally storage[SEGMENT_COUNT];
};

const char *rt_quality_show(double value, int decimals, char text[RT_QUALITY_TEXT])
{
    if (!isfinite(value))
        return "undefined";
    snprintf(text, RT_QUALITY_TEXT, "%.*f", decimals, value);
    return text;
}

rt_status rt_meter_create(rt_meter **meter_p)
{
    rt_meter *meter = rt_alloc(1, sizeof *meter);
    if (!meter)
        return RT_NO_MEMORY;
    for (uint32_t i = 0; i < SEGMENT_COUNT; i++)
        meter->segments[i] = &meter->storage[i];
    meter->segment_size = 1;
    meter->segment_count = 1;
    *meter_p = meter;
    return RT_OK;
}

void rt_meter_destroy(rt_meter *meter)
{
    rt_free(meter);
}

void rt_meter_save(const rt_meter *meter, rt_bytes *bytes)
{
    const saved_head head = {meter->tail_start, meter->segment_size, meter->segment_count,
                             meter->weighs};
    rt_fields_put(bytes, &head_fields, &head, 1);
    rt_fields_put(bytes, &tally_fields, &meter->total, 1);
    for (uint32_t i = 0; i < meter->segment_count; i++)
        rt_fields_put(bytes, &tally_fields, meter->segments[i], 1);
}

// What a file that ends early has brought.
static void forget(rt_meter *meter)
{
    memset(&meter->total, 0, sizeof meter->total);
    memset(meter->storage, 0, sizeof meter->storage);
    meter->tail_start = 0;
    meter->segment_size = meter->segment_count = 1;
}

rt_status rt_meter_load(rt_meter *meter, rt_reader *reader)
{
    saved_head head;
    const bool weighs = meter->weighs, is_read = rt_fields_get(reader, &head_fields, &head, 1);
    if (is_read && (head.segment_count & WEIGHED))
        head.weighs = 1;
    head.segment_count &= ~WEIGHED;
    if (!is_read || head.segment_size == 0 || head.segment_count == 0 ||
        head.segment_count > SEGMENT_COUNT)
        return RT_DATA;
    meter->tail_start = head.tail_start;
    meter->segment_size = head.segment_size;
    meter->segment_count = head.segment_count;
    bool is_whole = rt_fields_get(reader, &tally_fields, &meter->total, 1);
    for (uint32_t i = 0; i < head.segment_count; i++)
        is_whole &= rt_fields_get(reader, &tally_fields, meter->segments[i], 1);
    if (!is_whole) {
        forget(meter);
        return RT_DATA;
    }
    meter->weighs = head.weighs;
    if (weighs)
        rt_meter_weigh(meter);
    return RT_OK;
}

static void weigh(tally *one)
{
    one->sums.positives *= (int64_t)WEIGHT_UNIT;
    for (uint32_t label = 0; label < 2; label++) {
        for (uint32_t i = 0; i < BIN_COUNT; i++)
            one->bins[label][i] *= (int64_t)WEIGHT_UNIT;
    }
}

void rt_meter_classify(rt_meter *meter, uint32_t class_count)
{
    rt_assert(!meter->weighs && meter->total.sums.seen == 0);
    meter->class_count = class_count;
}

void rt_meter_weigh(rt_meter *meter)
{
    if (meter->weighs)
        return;
    meter->weighs = true;
    weigh(&meter->total);
    weigh(&meter->window);
    for (uint32_t i = 0; i < meter->segment_count; i++)
        weigh(meter->segments[i]);
}

static void clear(tally *one)
{
    memset(one, 0, sizeof *one);
}

static void add_sums(sums *to, const sums *from)
{
    to->seen += from->seen;
    to->invalid += from->invalid;
    to->positives += from->positives;
    to->loss_sum += from->loss_sum;
    to->prediction_sum += from->prediction_sum;
}

static void add_tally(tally *to, const tally *from)
{
    add_sums(&to->sums, &from->sums);
    for (uint32_t label = 0; label < 2; label++) {
        for (uint32_t i = 0; i < BIN_COUNT; i++)
            to->bins[label][i] += from->bins[label][i];
    }
}

static uint64_t last_fifth_start(uint64_t sample_count)
{
    return sample_count - sample_count / 5;
}

static void drop_first_segment(rt_meter *meter)
{
    tally *first = meter->segments[0];
    meter->tail_start += first->sums.seen;
    clear(first);
    meter->segment_count--;
    memmove(meter->segments, meter->segments + 1, meter->segment_count * sizeof first);
    meter->segments[meter->segment_count] = first;
}

static void merge_neighbours(rt_meter *meter)
{
    tally *merged[SEGMENT_COUNT];
    for (uint32_t i = 0; i < SEGMENT_COUNT / 2; i++) {
        merged[i] = meter->segments[2 * i];
        merged[SEGMENT_COUNT / 2 + i] = meter->segments[2 * i + 1];
        add_tally(merged[i], merged[SEGMENT_COUNT / 2 + i]);
        clear(merged[SEGMENT_COUNT / 2 + i]);
    }
    memcpy(meter->segments, merged, sizeof merged);
    meter->segment_count = SEGMENT_COUNT / 2;
    meter->segment_size *= 2;
}

// All segments in use are full.
static void begin_segment(rt_meter *meter)
{
    uint64_t start = last_fifth_start(meter->total.sums.seen);
    while (meter->segment_count > 1 && meter->tail_start + meter->segments[0]->sums.seen <= start)
        drop_first_segment(meter);
    if (meter->segment_count == SEGMENT_COUNT)
        merge_neighbours(meter);
    meter->segment_count++;
}

typedef struct {
    const float *predictions, *labels, *weights; // weights NULL: all are 1
    double negative_weight;
} samples;

// Of label 1 and of label 0.
static void masses_of(const samples *from, uint32_t i, double masses[2])
{
    const double weight = from->weights ? (double)from->weights[i] : 1;
    masses[1] = from->weights ? (double)from->labels[i] : from->labels[i] > 0.5f;
    masses[0] = (weight - masses[1]) * from->negative_weight;
}

static double clipped(double p)
{
    if (p < RT_METER_CLIP)
        return RT_METER_CLIP;
    if (p > 1 - RT_METER_CLIP)
        return 1 - RT_METER_CLIP;
    return p;
}

static uint32_t bin_of(double logit)
{
    const double position = (logit + LOGIT_MAX) * BINS_PER_LOGIT;
    if (position <= 0)
        return 0;
    if (position >= BIN_COUNT - 1)
        return BIN_COUNT - 1;
    return (uint32_t)position;
}

// Adds to the three tallies at once: the logarithms cost more than all the rest.
static void add_chunk(tally *const tallies[3], const samples *from, uint32_t count, double unit)
{
    uint64_t invalid = 0;
    int64_t positives = 0;
    double loss_sum = 0, prediction_sum = 0;
    for (uint32_t i = 0; i < count; i++) {
        double p = (double)from->predictions[i], masses[2];
        if (!(p >= 0 && p <= 1)) {
            invalid++;
            continue;
        }
        masses_of(from, i, masses);
        prediction_sum += p * (masses[0] + masses[1]);
        p = clipped(p);
        double log_p = log(p), log_q = log(1 - p);
        const uint32_t bin = bin_of(log_p - log_q);
        const int64_t added[2] = {llround(masses[0] * unit), llround(masses[1] * unit)};
        positives += added[1];
        loss_sum -= masses[1] * log_p + masses[0] * log_q;
        for (uint32_t k = 0; k < 3; k++) {
            tallies[k]->bins[0][bin] += added[0];
            tallies[k]->bins[1][bin] += added[1];
        }
    }
    for (uint32_t k = 0; k < 3; k++) {
        tallies[k]->sums.seen += count;
        tallies[k]->sums.invalid += invalid;
        tallies[k]->sums.positives += positives;
        tallies[k]->sums.loss_sum += loss_sum;
        tallies[k]->sums.prediction_sum += prediction_sum;
    }
}

// The class of the largest probability, the first of equal ones; class_count: one is none.
static uint32_t likeliest(const float *predictions, uint32_t class_count)
{
    uint32_t best = 0;
    for (uint32_t c = 0; c < class_count; c++) {
        if (!(predictions[c] >= 0 && predictions[c] <= 1))
            return class_count;
        if (predictions[c] > predictions[best])
            best = c;
    }
    return best;
}

// One sample of a label of classes.
static void add_class(tally *const tallies[3], uint32_t class_count, const float *predictions,
                      uint32_t own)
{
    const uint32_t best = likeliest(predictions, class_count);
    const double loss = best < class_count ? -log(clipped((double)predictions[own])) : 0;
    for (uint32_t k = 0; k < 3; k++) {
        sums *to = &tallies[k]->sums;
        to->seen++;
        to->invalid += best == class_count;
        to->positives += best == own;
        to->loss_sum += loss;
        to->prediction_sum += best < class_count ? (double)predictions[best] : 0;
    }
    for (uint32_t c = 0; c < class_count && best < class_count; c++) {
        const double p = clipped((double)predictions[c]);
        const uint32_t bin = bin_of(log(p) - log(1 - p));
        for (uint32_t k = 0; k < 3; k++)
            tallies[k]->bins[c == own][bin]++;
    }
}

void rt_meter_add_classes(rt_meter *meter, const float *predictions, const float *labels,
                          uint32_t count)
{
    const uint32_t class_count = meter->class_count;
    rt_assert(class_count > 0);
    for (uint32_t i = 0; i < count; i++) {
        while (meter->segments[meter->segment_count - 1]->sums.seen == meter->segment_size)
            begin_segment(meter);
        rt_assert(labels[i] >= 0 && labels[i] < (float)class_count);
        tally *const tallies[3] = {meter->segments[meter->segment_count - 1], &meter->window,
                                   &meter->total};
        add_class(tallies, class_count, predictions + (size_t)i * class_count, (uint32_t)labels[i]);
    }
}

static void add(rt_meter *meter, samples from, uint32_t count)
{
    const double unit = meter->weighs ? WEIGHT_UNIT : 1;
    while (count > 0) {
        tally *segment = meter->segments[meter->segment_count - 1];
        uint64_t room = meter->segment_size - segment->sums.seen;
        if (room == 0) {
            begin_segment(meter);
            continue;
        }
        uint32_t chunk = (uint32_t)rt_min_u64(count, room);
        tally *const tallies[3] = {segment, &meter->window, &meter->total};
        add_chunk(tallies, &from, chunk, unit);
        from.predictions += chunk;
        from.labels += chunk;
        if (from.weights)
            from.weights += chunk;
        count -= chunk;
    }
}

void rt_meter_add(rt_meter *meter, const float *predictions, const float *labels, uint32_t count)
{
    add(meter, (samples){predictions, labels, NULL, 1}, count);
}

void rt_meter_add_weighted(rt_meter *meter, const float *predictions, const float *labels,
                           const float *weights, double negative_weight, uint32_t count)
{
    rt_assert(meter->weighs);
    add(meter, (samples){predictions, labels, weights, negative_weight}, count);
}

void rt_meter_begin_window(rt_meter *meter)
{
    clear(&meter->window);
}

// What quality follows from, of a tally or a coarse one.
typedef struct {
    const sums *sums;
    const int64_t *bins[2];
    uint32_t bin_count;
} evidence;

static evidence evidence_of(const tally *one)
{
    return (evidence){&one->sums, {one->bins[0], one->bins[1]}, BIN_COUNT};
}

// The share of (positive, negative) pairs in the right order, ties half.
static double auc_of(const evidence *one)
{
    double negatives_below = 0, ordered = 0, positives = 0;
    for (uint32_t i = 0; i < one->bin_count; i++) {
        double negative = (double)one->bins[0][i], positive = (double)one->bins[1][i];
        ordered += positive * (negatives_below + 0.5 * negative);
        negatives_below += negative;
        positives += positive;
    }
    if (positives > 0 && negatives_below > 0)
        return ordered / (positives * negatives_below);
    return (double)NAN;
}

// Of all samples, by weight.
static double mass_of(const evidence *one, bool weighs)
{
    double mass = 0;
    for (uint32_t i = 0; weighs && i < one->bin_count; i++)
        mass += (double)(one->bins[0][i] + one->bins[1][i]);
    if (weighs)
        return mass / WEIGHT_UNIT;
    return (double)(one->sums->seen - one->sums->invalid);
}

static rt_quality quality_of(const rt_meter *meter, evidence of, uint64_t first_sample)
{
    const sums *one = of.sums;
    const bool weighs = meter->weighs;
    rt_quality quality = {.first_sample = first_sample,
                          .sample_count = one->seen - one->invalid,
                          .invalid_count = one->invalid,
                          .log_loss = (double)NAN,
                          .auc = auc_of(&of),
                          .normalised_entropy = (double)NAN,
                          .calibration = (double)NAN,
                          .mean_label = (double)NAN,
                          .mean_prediction = (double)NAN,
                          .class_count = meter->class_count};
    const double count = mass_of(&of, weighs);
    if (quality.sample_count == 0 || count <= 0)
        return quality;
    const double mean = (double)one->positives / (weighs ? WEIGHT_UNIT : 1) / count;
    quality.mean_label = mean;
    quality.mean_prediction = one->prediction_sum / count;
    quality.log_loss = one->loss_sum / count;
    if (mean > 0)
        quality.calibration = one->prediction_sum / count / mean;
    if (meter->class_count) {
        quality.normalised_entropy = quality.log_loss / log(meter->class_count);
    } else if (mean > 0 && mean < 1) {
        double entropy = -mean * log(mean) - (1 - mean) * log1p(-mean);
        quality.normalised_entropy = quality.log_loss / entropy;
    }
    return quality;
}

rt_quality rt_meter_total(const rt_meter *meter)
{
    return quality_of(meter, evidence_of(&meter->total), 0);
}

rt_quality rt_meter_window(const rt_meter *meter)
{
    return quality_of(meter, evidence_of(&meter->window),
                      meter->total.sums.seen - meter->window.sums.seen);
}

rt_quality rt_meter_last_fifth(rt_meter *meter)
{
    uint64_t wanted = last_fifth_start(meter->total.sums.seen), start = meter->tail_start;
    uint32_t first = 0;
    while (first + 1 < meter->segment_count && start < wanted) {
        uint64_t next = start + meter->segments[first]->sums.seen;
        if (next > wanted && next - wanted >= wanted - start)
            break; // this boundary is nearer
        start = next;
        first++;
    }
    clear(&meter->sum);
    for (uint32_t i = first; i < meter->segment_count; i++)
        add_tally(&meter->sum, meter->segments[i]);
    return quality_of(meter, evidence_of(&meter->sum), start);
}

// ---- the last samples ------------------------------------------------------------------------

static void add_window(coarse *to, const tally *from)
{
    add_sums(&to->sums, &from->sums);
    for (uint32_t label = 0; label < 2; label++) {
        for (uint32_t i = 0; i < COARSE_COUNT; i++) {
            const int64_t *fine = from->bins[label] + i * COARSE_BINS;
            int64_t sum = 0;
            for (uint32_t k = 0; k < COARSE_BINS; k++)
                sum += fine[k];
            to->bins[label][i] += sum;
        }
    }
}

static void add_coarse(coarse *to, const coarse *from)
{
    add_sums(&to->sums, &from->sums);
    for (uint32_t i = 0; i < COARSE_COUNT; i++) {
        to->bins[0][i] += from->bins[0][i];
        to->bins[1][i] += from->bins[1][i];
    }
}

// Summed anew: nothing of what has left stays as rounding.
static void drop_oldest(rt_meter *meter)
{
    meter->rolled_first = (meter->rolled_first + 1) % ROLLED_MAX;
    meter->rolled_count--;
    memset(&meter->rolled_sum, 0, sizeof meter->rolled_sum);
    for (uint32_t i = 0; i < meter->rolled_count; i++)
        add_coarse(&meter->rolled_sum, &meter->rolled[(meter->rolled_first + i) % ROLLED_MAX]);
}

void rt_meter_roll(rt_meter *meter, uint64_t sample_count)
{
    const uint32_t last = (meter->rolled_first + meter->rolled_count + ROLLED_MAX - 1) % ROLLED_MAX;
    uint32_t at = last;
    if (meter->rolled_count == 0 || meter->rolled[last].sums.seen * ROLLED_SHARE >= sample_count) {
        if (meter->rolled_count == ROLLED_MAX)
            drop_oldest(meter);
        at = (meter->rolled_first + meter->rolled_count++) % ROLLED_MAX;
        memset(&meter->rolled[at], 0, sizeof meter->rolled[at]);
    }
    coarse *batch = &meter->rolled_batch;
    memset(batch, 0, sizeof *batch);
    add_window(batch, &meter->window);
    add_coarse(&meter->rolled[at], batch);
    add_coarse(&meter->rolled_sum, batch);
    while (meter->rolled_count > 1 &&
           meter->rolled_sum.sums.seen - meter->rolled[meter->rolled_first].sums.seen >=
               sample_count)
        drop_oldest(meter);
}

rt_quality rt_meter_rolled(const rt_meter *meter)
{
    const coarse *one = &meter->rolled_sum;
    const evidence of = {&one->sums, {one->bins[0], one->bins[1]}, COARSE_COUNT};
    return quality_of(meter, of, meter->total.sums.seen - one->sums.seen);
}
