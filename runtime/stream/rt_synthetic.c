#include "runtime/stream/rt_synthetic.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/rt_hash.h"
#include "runtime/stream/rt_source.h"
#include "runtime/stream/rt_synthetic_shape.h"

#define GOLDEN UINT64_C(0x9e3779b97f4a7c15) // rt_random's step
#define DRAWS_PER_SAMPLE 64u
#define LEVELS 3         // the last bucket of a level is split again in the next
#define BUCKETS 256u     // of a level, equally likely
#define EDGE_SHIFT 8     // fractional bits of a rank
#define NOISE_BITS 12    // quantiles of the logistic distribution
#define LOGIT_ONE 65536  // logits are fixed point numbers
#define KEY_LOGIT 0.55   // range of an id's effect, before the field's own factor
#define DENSE_LOGIT 0.25 // effect of a dense value one mean deviation away from the mean
#define CALIBRATION_SAMPLES (1u << 14)
#define CALIBRATION_SEED 1
#define IDS_PER_CLUSTER_MIN 8u
#define CLUSTER_BITS 2 // of a field: all zero, with probability 1/4, is outside the cluster

typedef struct {
    uint32_t edges[LEVELS][BUCKETS + 1]; // ranks from 1, EDGE_SHIFT fractional bits
    uint32_t cardinality;
    uint32_t missing, top; // shares, of 2^16; top is behind missing: P(top) = top - missing
    bool is_clustered;
    uint64_t salt;
    int32_t effect_max; // of an id on the logit
} field;

typedef struct {
    float values[BUCKETS]; // equally likely
    int32_t effects[BUCKETS];
} dense;

struct rt_synthetic {
    const rt_shape *shape;
    uint64_t base; // state of the generator before sample 0
    uint64_t position;
    uint32_t cluster_count;
    uint64_t drift_per_sample; // share of the ranks replaced, 2^-52
    uint32_t label_count;
    int32_t biases[RT_LABELS_MAX];
    int32_t noise[1u << NOISE_BITS];
    field fields[RT_SHAPE_FIELDS_MAX];
    dense dense[RT_SHAPE_DENSE_MAX];
};

// Logarithm and power of two out of + - * / alone. No product is ever added to anything (it is
// divided first), so that compilers have nothing to fuse and all machines round alike.
static double log_two(double x)
{
    const double ln_two = 0x1.62e42fefa39efp-1;
    int exponent;
    double m = frexp(x, &exponent);
    double z = (m - 1) / (m + 1), square = z * z, power = z, sum = 0;
    for (int k = 1; k < 40; k += 2) { // ln m = 2 artanh z, |z| <= 1/3
        sum += power / k;
        power *= square;
    }
    return exponent + 2 * sum / ln_two;
}

static double power_of_two(double x)
{
    const double ln_two = 0x1.62e42fefa39efp-1;
    double whole = floor(x), y = (x - whole) * ln_two, sum = 1;
    for (int k = 20; k > 0; k--)
        sum = 1 + y * sum / k;
    return ldexp(sum, (int)whole);
}

// x^(1/n)
static double root(double x, double n)
{
    return power_of_two(log_two(x) / n);
}

static double natural_log(double x)
{
    return log_two(x) / 0x1.71547652b82fep+0; // log2(e)
}

// The rank below which a share of count / total of the draws falls: density ~ x^-zipf on
// [1, ranks + 1).
static double inverse_zipf(uint32_t ranks, double zipf, uint32_t count, uint32_t total)
{
    double exponent = 1 - zipf;
    double last = root(ranks + 1.0, 1 / exponent);
    return root(1 + count * (last - 1) / total, exponent);
}

static void fill_edges(field *one, uint32_t ranks, double zipf)
{
    if (fabs(1 - zipf) < 1e-4)
        zipf = 1 + 1e-4; // 1 is the limit from both sides
    const uint32_t edge_min = 1u << EDGE_SHIFT, edge_max = (ranks + 1) << EDGE_SHIFT;
    uint32_t total = BUCKETS;
    for (uint32_t level = 0; level < LEVELS; level++) {
        for (uint32_t i = 0; i <= BUCKETS; i++) {
            double rank = inverse_zipf(ranks, zipf, total - BUCKETS + i, total);
            double edge = rank * edge_min;
            one->edges[level][i] = edge_max;
            if (edge < edge_max)
                one->edges[level][i] = (uint32_t)edge;
            if (edge < edge_min)
                one->edges[level][i] = edge_min;
        }
        one->edges[level][BUCKETS] = edge_max;
        total *= BUCKETS;
    }
}

static void init_field(field *one, uint32_t index, const rt_shape_field *shape,
                       const rt_stream_config *config)
{
    double scaled = shape->cardinality * config->synthetic_scale;
    one->cardinality = scaled > 2 ? (uint32_t)scaled : 2;
    one->missing = shape->missing * 65536 / 1000;
    one->top = one->missing + shape->top * 65536 / 1000;
    one->is_clustered = config->synthetic_clusters > 0 &&
                        one->cardinality / IDS_PER_CLUSTER_MIN >= config->synthetic_clusters;
    one->salt = rt_mix((uint64_t)config->synthetic_shape << 32 | (index + 1));
    double factor = 0.5 + (double)(one->salt % 1024) / 1024;
    one->effect_max = (int32_t)(KEY_LOGIT * LOGIT_ONE * factor);
    // Where the shape says how often the first rank comes, zipf shares out the others.
    fill_edges(one, one->cardinality - (shape->top > 0), config->synthetic_zipf);
}

static uint32_t quantile(const rt_shape_dense *shape, uint32_t per_mille)
{
    static const uint32_t marks[RT_SHAPE_QUANTILES] = {0, 100, 250, 500, 750, 900, 990, 1000};
    uint32_t i = 0;
    while (i + 2 < RT_SHAPE_QUANTILES && per_mille >= marks[i + 1])
        i++;
    uint64_t rise = shape->quantiles[i + 1] - shape->quantiles[i];
    return shape->quantiles[i] +
           (uint32_t)(rise * (per_mille - marks[i]) / (marks[i + 1] - marks[i]));
}

static void init_dense(dense *one, uint32_t index, const rt_shape_dense *shape)
{
    int64_t fixed[BUCKETS], mean = 0, deviation = 0;
    for (uint32_t i = 0; i < BUCKETS; i++) {
        uint32_t per_mille = (2 * i + 1) * 1000 / (2 * BUCKETS);
        bool is_missing = per_mille < shape->missing;
        uint32_t value = 0;
        if (!is_missing)
            value = quantile(shape, (per_mille - shape->missing) * 1000 / (1000 - shape->missing));
        double logarithm = natural_log(1.0 + value);
        one->values[i] = (float)logarithm;
        fixed[i] = (int64_t)(logarithm * LOGIT_ONE);
        mean += fixed[i];
    }
    mean /= BUCKETS;
    for (uint32_t i = 0; i < BUCKETS; i++)
        deviation += llabs(fixed[i] - mean);
    deviation = deviation / BUCKETS + 1;
    int64_t weight = (int64_t)(DENSE_LOGIT * LOGIT_ONE);
    if (rt_mix(index) & 1)
        weight = -weight;
    for (uint32_t i = 0; i < BUCKETS; i++)
        one->effects[i] = (int32_t)((fixed[i] - mean) * weight / deviation);
}

static uint32_t draw_rank(const field *one, uint64_t random)
{
    uint32_t level = 0, bucket = (uint32_t)(random >> 56);
    while (bucket == BUCKETS - 1 && level + 1 < LEVELS) {
        level++;
        bucket = (uint32_t)(random >> (56 - 8 * level)) & (BUCKETS - 1);
    }
    uint64_t low = one->edges[level][bucket], width = one->edges[level][bucket + 1] - low;
    uint32_t rank = (uint32_t)((low + (width * (random & 0xffffff) >> 24)) >> EDGE_SHIFT);
    return rank - 1;
}

// A bijection on 56 bits, so that the ids of a field do not collide.
static uint64_t scatter(uint64_t id)
{
    id = (id ^ id >> 29) * UINT64_C(0xbf58476d1ce4e5b9) & RT_ID_MASK;
    id = (id ^ id >> 27) * UINT64_C(0x94d049bb133111eb) & RT_ID_MASK;
    return id ^ id >> 31;
}

static int32_t id_effect(const field *one, uint64_t id)
{
    int64_t unit = (int64_t)((id * (one->salt | 1)) >> 40) - (1 << 23); // 24 bits, signed
    return (int32_t)(unit * one->effect_max >> 23);
}

// Of a further label: half of what it is for the first, and as much of its own.
static int32_t id_effect_of(const field *one, uint64_t id, uint32_t label)
{
    const uint64_t salt = rt_mix(one->salt + label);
    const int64_t unit = (int64_t)((id * (salt | 1)) >> 40) - (1 << 23);
    return (id_effect(one, id) + (int32_t)(unit * one->effect_max >> 23)) / 2;
}

static uint64_t id_of(const field *one, uint32_t rank, uint64_t generation)
{
    return scatter((rank | generation << 24) ^ (one->salt & RT_ID_MASK));
}

static uint64_t draw_id(const field *one, uint64_t random, bool in_cluster, uint32_t cluster,
                        uint32_t cluster_count, uint64_t drifted)
{
    uint32_t share = (uint32_t)(random >> 24) & 0xffff;
    if (share < one->missing)
        return RT_ID_MISSING;
    bool has_top = one->top > one->missing;
    uint32_t rank = 0;
    if (share >= one->top) {
        rank = draw_rank(one, random) + has_top;
        if (in_cluster && one->is_clustered) {
            uint32_t near = rank - rank % cluster_count + cluster;
            rank = near < one->cardinality ? near : rank;
        }
    }
    uint64_t date = (uint32_t)(rank * 0x9e3779b1u); // when the rank's first id is replaced
    uint64_t generation = (drifted + date) >> 32;
    return id_of(one, rank, generation);
}

// Writes one sample and returns its first label's logit, noise included but without the bias.
static int64_t draw_sample(const rt_synthetic *synthetic, uint64_t number, double *dense_out,
                           uint64_t *keys, int64_t *dense_effects)
{
    const rt_shape *shape = synthetic->shape;
    _Static_assert(CLUSTER_BITS * (RT_SHAPE_FIELDS_MAX + RT_SHAPE_ENTITIES) <= 64, "cluster_bits");
    rt_random random = {synthetic->base + number * (DRAWS_PER_SAMPLE * GOLDEN)};
    uint64_t cluster_bits = rt_random_u64(&random);
    uint32_t cluster_count = synthetic->cluster_count;
    uint32_t cluster = rt_random_below(&random, cluster_count ? cluster_count : 1);
    // In units of 2^-32.
    uint64_t drifted = (uint64_t)((unsigned __int128)number * synthetic->drift_per_sample >> 20);
    int64_t logit = synthetic->noise[rt_random_u64(&random) >> (64 - NOISE_BITS)];
    uint64_t shared[RT_SHAPE_ENTITIES]; // one draw for all fields of an entity
    for (uint32_t i = 0; i < RT_SHAPE_ENTITIES; i++)
        shared[i] = rt_random_u64(&random);
    for (uint32_t i = 0; i < shape->field_count; i++) {
        const field *one = &synthetic->fields[i];
        uint32_t entity = shape->fields[i].entity;
        uint64_t draw = entity ? shared[entity - 1] : rt_random_u64(&random);
        uint32_t group = entity ? RT_SHAPE_FIELDS_MAX + entity - 1 : i;
        bool in_cluster = cluster_bits >> (CLUSTER_BITS * group) & ((1 << CLUSTER_BITS) - 1);
        uint64_t id = draw_id(one, draw, in_cluster, cluster, cluster_count, drifted);
        keys[i] = rt_key(i, id);
        logit += id_effect(one, id);
    }
    uint64_t bits = 0;
    *dense_effects = 0;
    for (uint32_t i = 0; i < shape->dense_count; i++) {
        bits = i % 8 ? bits >> 8 : rt_random_u64(&random);
        dense_out[i] = (double)synthetic->dense[i].values[bits & 0xff];
        *dense_effects += synthetic->dense[i].effects[bits & 0xff];
    }
    return logit + *dense_effects;
}

static int compare_i64(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

// The logit of a further label of a sample that was drawn, likewise.
static int64_t draw_label(const rt_synthetic *synthetic, uint64_t number, uint32_t label,
                          const uint64_t *keys, int64_t dense_effects)
{
    const uint64_t draw = rt_mix(rt_mix(synthetic->base + number) + label);
    int64_t logit = synthetic->noise[draw >> (64 - NOISE_BITS)] + dense_effects;
    for (uint32_t i = 0; i < synthetic->shape->field_count; i++)
        logit += id_effect_of(&synthetic->fields[i], keys[i] & RT_ID_MASK, label);
    return logit;
}

// A sample is a click if its logit with noise and bias is above 0: the bias is the quantile of the
// noisy logits that leaves the wanted share of clicks above it, of each further label half of that.
static rt_status calibrate(rt_synthetic *synthetic, uint32_t label)
{
    int64_t *logits = rt_alloc(CALIBRATION_SAMPLES, sizeof *logits);
    if (!logits)
        return RT_NO_MEMORY;
    double dense_out[RT_SHAPE_DENSE_MAX];
    uint64_t keys[RT_SHAPE_FIELDS_MAX];
    int64_t dense_effects;
    synthetic->base = rt_mix(CALIBRATION_SEED);
    for (uint32_t i = 0; i < CALIBRATION_SAMPLES; i++) {
        logits[i] = draw_sample(synthetic, i, dense_out, keys, &dense_effects);
        if (label > 0)
            logits[i] = draw_label(synthetic, i, label, keys, dense_effects);
    }
    qsort(logits, CALIBRATION_SAMPLES, sizeof *logits, compare_i64);
    uint32_t below =
        (uint32_t)((uint64_t)CALIBRATION_SAMPLES * (1000 - synthetic->shape->clicks) / 1000);
    below = CALIBRATION_SAMPLES - ((CALIBRATION_SAMPLES - below) >> label);
    below -= below == CALIBRATION_SAMPLES;
    synthetic->biases[label] = (int32_t)-logits[below];
    rt_free(logits);
    return RT_OK;
}

static rt_status check(const rt_stream_config *config, rt_error *error)
{
    double scale = config->synthetic_scale, zipf = config->synthetic_zipf;
    if (!(scale > 0 && scale <= 1))
        return rt_fail(error, RT_CONFIG, "stream.synthetic.scale: expected (0, 1], found %g",
                       scale);
    if (!(zipf >= 0 && zipf <= RT_SYNTHETIC_ZIPF_MAX))
        return rt_fail(error, RT_CONFIG, "stream.synthetic.zipf: expected 0 to %g, found %g",
                       RT_SYNTHETIC_ZIPF_MAX, zipf);
    if (!(config->synthetic_drift >= 0 && config->synthetic_drift <= 1000))
        return rt_fail(error, RT_CONFIG, "stream.synthetic.drift: expected 0 to 1000, found %g",
                       config->synthetic_drift);
    return RT_OK;
}

rt_status rt_synthetic_create(const rt_stream_config *config, uint64_t seed,
                              rt_synthetic **synthetic_p, rt_error *error)
{
    rt_status status = check(config, error);
    if (status)
        return status;
    rt_synthetic *synthetic = rt_alloc(1, sizeof *synthetic);
    if (!synthetic)
        return rt_fail(error, RT_NO_MEMORY, "out of memory for the generator");
    const rt_shape *shape = rt_shape_of(config->synthetic_shape);
    synthetic->shape = shape;
    synthetic->cluster_count = config->synthetic_clusters;
    synthetic->drift_per_sample = (uint64_t)(config->synthetic_drift * (0x1p52 / 1e6));
    for (uint32_t i = 0; i < 1u << NOISE_BITS; i++) {
        uint32_t odd = 2 * i + 1; // the middle of the quantile, of 2^(NOISE_BITS + 1)
        double odds = odd / ((2u << NOISE_BITS) - (double)odd);
        synthetic->noise[i] = (int32_t)(natural_log(odds) * LOGIT_ONE);
    }
    for (uint32_t i = 0; i < shape->field_count; i++)
        init_field(&synthetic->fields[i], i, &shape->fields[i], config);
    for (uint32_t i = 0; i < shape->dense_count; i++)
        init_dense(&synthetic->dense[i], i, &shape->dense[i]);
    synthetic->label_count = rt_config_label_count(config);
    for (uint32_t l = 0; l < synthetic->label_count; l++) {
        if (!calibrate(synthetic, l))
            continue;
        rt_synthetic_destroy(synthetic);
        return rt_fail(error, RT_NO_MEMORY, "out of memory for the generator");
    }
    synthetic->base = rt_mix(seed + GOLDEN);
    synthetic->position = config->synthetic_first;
    *synthetic_p = synthetic;
    return RT_OK;
}

void rt_synthetic_destroy(rt_synthetic *synthetic)
{
    rt_free(synthetic);
}

uint32_t rt_synthetic_id_count(const rt_synthetic *synthetic, uint32_t field_index)
{
    return synthetic->fields[field_index].cardinality;
}

uint64_t rt_synthetic_key(const rt_synthetic *synthetic, uint32_t field_index, uint32_t rank)
{
    return rt_key(field_index, id_of(&synthetic->fields[field_index], rank, 0));
}

void rt_synthetic_schema(const rt_synthetic *synthetic, rt_schema *schema)
{
    memset(schema, 0, sizeof *schema);
    schema->dense_count = synthetic->shape->dense_count;
    schema->field_count = synthetic->shape->field_count;
    schema->keys_per_sample_max = schema->field_count;
    for (uint32_t i = 0; i < schema->field_count; i++)
        snprintf(schema->field_names[i], RT_NAME_MAX, "%s", synthetic->shape->fields[i].name);
}

static void put_labels(const rt_synthetic *synthetic, uint64_t number, const uint64_t *keys,
                       int64_t logit, int64_t dense_effects, rt_batch *batch, uint32_t i)
{
    float labels[RT_LABELS_MAX];
    labels[0] = logit + synthetic->biases[0] > 0;
    for (uint32_t l = 1; l < synthetic->label_count; l++)
        labels[l] =
            draw_label(synthetic, number, l, keys, dense_effects) + synthetic->biases[l] > 0;
    if (synthetic->label_count > 1)
        rt_batch_set_labels(batch, i, labels, 1);
    else
        batch->labels[i] = labels[0];
}

void rt_synthetic_fill(rt_synthetic *synthetic, rt_batch *batch, uint32_t sample_count)
{
    uint32_t dense_count = synthetic->shape->dense_count;
    uint32_t field_count = synthetic->shape->field_count;
    rt_assert(batch->dense_count == dense_count && batch->label_count == synthetic->label_count);
    rt_assert(batch->sample_capacity - batch->sample_count >= sample_count);
    rt_assert(batch->key_capacity - batch->key_count >= (uint64_t)sample_count * field_count);
    for (uint32_t n = 0; n < sample_count; n++) {
        uint32_t i = batch->sample_count++;
        int64_t dense_effects;
        const uint64_t *keys = batch->keys + batch->key_count;
        const int64_t logit =
            draw_sample(synthetic, synthetic->position, batch->read + (size_t)i * dense_count,
                        batch->keys + batch->key_count, &dense_effects);
        rt_batch_round(batch, i);
        put_labels(synthetic, synthetic->position++, keys, logit, dense_effects, batch, i);
        batch->key_offsets[i] = batch->key_count;
        batch->key_count += field_count;
        batch->key_offsets[i + 1] = batch->key_count;
    }
}

uint64_t rt_synthetic_position(const rt_synthetic *synthetic)
{
    return synthetic->position;
}

void rt_synthetic_seek(rt_synthetic *synthetic, uint64_t position)
{
    synthetic->position = position;
}

// ---- the table of operations -----------------------------------------------------------------

static bool serves(const rt_stream_config *config)
{
    return rt_format_is_generated(config->format);
}

static rt_status open_source(const rt_stream_config *config, uint64_t seed, void **source_p,
                             rt_error *error)
{
    rt_synthetic *synthetic;
    rt_status status = rt_synthetic_create(config, seed, &synthetic, error);
    if (!status)
        *source_p = synthetic;
    return status;
}

static void close_source(void *source)
{
    rt_synthetic_destroy(source);
}

static rt_status samples(void *source, rt_batch *batch, uint32_t sample_count, rt_error *error)
{
    (void)error;
    rt_synthetic_fill(source, batch, sample_count);
    return RT_OK;
}

static void source_schema(const void *source, rt_schema *schema)
{
    rt_synthetic_schema(source, schema);
}

static void tell(const void *source, rt_bytes *bytes)
{
    rt_bytes_put_u64(bytes, rt_synthetic_position(source));
}

static rt_status seek(void *source, rt_reader *bytes, const rt_source_place *place, rt_error *error)
{
    uint64_t position;
    if (bytes)
        position = rt_reader_u64(bytes);
    else
        position = place->offset;
    if (bytes && (bytes->failed || bytes->left > 0))
        return rt_fail(error, RT_DATA, "the position in the generated input is damaged");
    rt_synthetic_seek(source, position);
    return RT_OK;
}

static void counts(const void *source, rt_source_counts *counts)
{
    (void)source;
    *counts = (rt_source_counts){0};
}

const rt_source_ops rt_source_synthetic = {.name = "synthetic",
                                           .serves = serves,
                                           .open = open_source,
                                           .close = close_source,
                                           .samples = samples,
                                           .schema = source_schema,
                                           .tell = tell,
                                           .seek = seek,
                                           .counts = counts};
