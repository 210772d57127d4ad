// rt_synthetic - an endless stream of made-up click samples with the shape of a public data set.
//
// One thread. Integer arithmetic and single IEEE operations decide everything, so a seed gives the
// same samples on every machine. Ids and what they mean for the label depend on the shape alone:
// streams of different seeds are different users of the same shop, one can test what the other
// trained.
//
// How a sample comes about:
// - its number and the seed give the state of a splitmix64, so a stream can start anywhere;
// - a field is missing, or holds its most frequent id, with the shares of the data set; else its
//   popularity rank r is drawn with P(r) ~ r^-zipf by a table of the inverse distribution. Fields
//   of one entity (what is advertised, where) share the draw, so the finer all but decides the
//   coarser;
// - with clusters, the sample belongs to one, and each of its fields with at least 8 ids per
//   cluster takes, three times out of four, a rank of the cluster near r (r modulo clusters);
// - rank r stands for one id until drift replaces it by a new one. Every rank has a date of its own
//   for that, spread evenly;
// - dense features follow the quantiles of the data set;
// - the label is drawn from a logistic model: one effect per id, one weight per dense feature, and
// a
//   bias that gives the click rate of the data set.
#ifndef RT_SYNTHETIC_H
#define RT_SYNTHETIC_H

#include "runtime/stream/rt_batch.h"
#include "runtime/stream/rt_stream.h"

#define RT_SYNTHETIC_ZIPF_MAX 4.0

typedef struct rt_synthetic rt_synthetic;

// Uses the synthetic_ members of config. RT_CONFIG names a value out of range, RT_NO_MEMORY.
rt_status rt_synthetic_create(const rt_stream_config *config, uint64_t seed,
                              rt_synthetic **synthetic_p, rt_error *error);
void rt_synthetic_destroy(rt_synthetic *synthetic); // NULL is fine

void rt_synthetic_schema(const rt_synthetic *synthetic, rt_schema *schema);

// Ids of a field, and the key that stands at a popularity rank (from 0) at the start of a stream.
uint32_t rt_synthetic_id_count(const rt_synthetic *synthetic, uint32_t field);
uint64_t rt_synthetic_key(const rt_synthetic *synthetic, uint32_t field, uint32_t rank);

// Appends sample_count samples; the batch has room for them.
void rt_synthetic_fill(rt_synthetic *synthetic, rt_batch *batch, uint32_t sample_count);

// The number of the next sample, at first config's synthetic_first. Any number is as quick to reach
// as any other.
uint64_t rt_synthetic_position(const rt_synthetic *synthetic);
void rt_synthetic_seek(rt_synthetic *synthetic, uint64_t position);

#endif
