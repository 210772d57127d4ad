// What the two halves of rt_crosses share: the samples that were read, and choosing among pairs.
#ifndef RT_CROSSES_PARTS_H
#define RT_CROSSES_PARTS_H

#include "runtime/guess/rt_crosses.h"

#define CROSS_BYTES 128u // of a sample beside its ids, with the tables of a pair's values

typedef struct {
    uint64_t count, capacity;
    uint32_t column_count;
    struct {
        uint32_t column; // of the configuration
        uint32_t values; // distinct ones
    } columns[RT_FIELDS_MAX];
    uint32_t *ids;  // column_count x capacity, within their columns
    float *margins; // log-odds by all columns, before the sample was learnt
    uint8_t *labels;
} cross_samples;

// Margins are changed: they take in the crosses that are chosen. RT_NO_MEMORY.
rt_status cross_choose(cross_samples *samples, const rt_config *config,
                       const rt_crosses_settings *settings, rt_crosses *crosses, rt_error *error);

#endif
