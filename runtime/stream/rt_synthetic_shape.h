// rt_synthetic_shape - what rt_synthetic imitates: fields, sizes and shares of public data sets.
//
// Constant data. Shares are in thousandths.
#ifndef RT_SYNTHETIC_SHAPE_H
#define RT_SYNTHETIC_SHAPE_H

#include "runtime/config/rt_config.h"

#define RT_SHAPE_FIELDS_MAX 28u
#define RT_SHAPE_ENTITIES 3u
#define RT_SHAPE_DENSE_MAX 16u
#define RT_SHAPE_QUANTILES 8u

typedef struct {
    const char *name;
    uint32_t cardinality; // below 2^24
    uint32_t missing;     // share of samples without a value
    uint32_t top;         // share of samples with the most frequent id; 0: as zipf has it
    uint32_t entity;      // fields of one thing (an ad, a site) come together; 0: on its own
} rt_shape_field;

typedef struct {
    const char *name;
    uint32_t missing;
    uint32_t quantiles[RT_SHAPE_QUANTILES]; // at 0, 10, 25, 50, 75, 90, 99, 100 percent
} rt_shape_dense;

typedef struct {
    uint32_t clicks; // share of samples with label 1
    uint32_t field_count;
    uint32_t dense_count;
    rt_shape_field fields[RT_SHAPE_FIELDS_MAX];
    rt_shape_dense dense[RT_SHAPE_DENSE_MAX];
} rt_shape;

const rt_shape *rt_shape_of(rt_synthetic_shape shape);

#endif
