// random_batches - seeded batches with Zipf-like keys, one key or a bag of keys per field.
//
// A value without hidden state: equal seeds give equal batches. Errors end the test.
#ifndef RANDOM_BATCHES_H
#define RANDOM_BATCHES_H

#include "runtime/stream/rt_batch.h"
#include "runtime/rt_hash.h"

typedef struct {
    rt_random random;
    uint32_t field_count;
    uint32_t ids_per_field; // at least bag_max
    uint32_t bag_max;       // a field has 1 to bag_max keys; 1: every sample is uniform
    double *cumulative;     // of the popularity, ids_per_field
} random_batches;

// Id i of a field has popularity (i + 1)^-exponent.
void random_batches_init(random_batches *batches, uint64_t seed, uint32_t field_count,
                         uint32_t ids_per_field, uint32_t bag_max, double exponent);
void random_batches_fini(random_batches *batches);

// Clears batch (made with dense_count 0) and fills it.
void random_batches_fill(random_batches *batches, rt_batch *batch, uint32_t sample_count);

#endif
