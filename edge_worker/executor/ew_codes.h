// ew_codes - rows as they came, by slot, where they travel rounded (network.row_wire).
//
// What is pushed of a row is what has changed since (docs/PROTOCOL.md), so a slot keeps the words
// in which its row came; of an initial row there is nothing to keep. In host memory, beside the
// slab of whatever device. With bounded staleness ew_bases keeps rows as they came, and this says
// only in which words they travel. One thread.
#ifndef EW_CODES_H
#define EW_CODES_H

#include "runtime/numbers/rt_coding.h"

typedef struct {
    rt_coding coding;
    uint32_t values, words; // of a row: floats, and what they travel in
    uint64_t seed;          // of initial rows
    float init_scale;
    uint32_t *rows;     // slot_count x words
    uint32_t *versions; // slot_count: of the row that came; 0: the initial one
    float *scratch;     // values
} ew_codes;

// RT_NO_MEMORY. slot_count 0: nothing is kept, and only ew_codes_init, fini and the fields coding,
// values, words are of use. The settings of initial rows are those of ew_rows.
rt_status ew_codes_init(ew_codes *codes, rt_coding coding, uint32_t slot_count, uint32_t values,
                        uint64_t seed, float init_scale);
void ew_codes_fini(ew_codes *codes);

// A row of a version came into a slot, in words (of version 0: in floats); values receives what
// that is.
void ew_codes_take(ew_codes *codes, uint32_t slot, uint32_t version, const void *words,
                   float *values);

// The slot has the initial row.
void ew_codes_first(ew_codes *codes, uint32_t slot);

// A row that went whole, and stays, in a version: values becomes what others get of it.
void ew_codes_round(ew_codes *codes, uint32_t slot, uint32_t version, float *values);

// What has changed of the row of a key since it came, rounded, in words; values is overwritten.
void ew_codes_change(ew_codes *codes, uint32_t slot, uint64_t key, float *values, void *words);

#endif
