// rt_negatives - training on a share of the samples with label 0, and predictions that know of it.
//
// Of the negatives a share w is kept, chosen by a hash of the seed and of the sample's number or
// id: the same input keeps the same ones, on any machine. The odds that a model learns are 1 / w
// times too high; p / (p + (1 - p) / w) is the probability among all samples (He et al., ADKDD
// 2014, section 6.3). Pure functions.
#ifndef RT_NEGATIVES_H
#define RT_NEGATIVES_H

#include "runtime/rt_base.h"

// Whether the negative of this number, or id, is kept; share in (0, 1], 1: all are.
bool rt_negatives_keeps(uint64_t seed, uint64_t number, double share);

// Computed in double precision and rounded once; corrected may be predictions. share 1: a copy, bit
// for bit.
void rt_negatives_correct(const float *predictions, uint32_t count, double share, float *corrected);

#endif
