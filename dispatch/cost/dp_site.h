// dp_site - what transfers cost depends on: how large rows are, and how fast the links.
#ifndef DP_SITE_H
#define DP_SITE_H

#include "runtime/config/rt_config.h"

// Floats per row by field.
typedef struct {
    uint32_t field_count;
    uint32_t values[RT_FIELDS_MAX];
    uint32_t state[RT_FIELDS_MAX]; // of the optimizer
} dp_layout;

typedef struct {
    double up_bytes_per_s;   // worker to PS
    double down_bytes_per_s; // PS to worker
} dp_link;

// Rows are spread over the shards by hash, evenly; the dense exchange goes by way of the first.
typedef struct {
    uint32_t count;
    double bytes_per_s[RT_SHARDS_MAX]; // each way, shared by all workers; 0: no limit
} dp_shards;

#endif
