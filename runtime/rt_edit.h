// rt_edit - how far a word is from another one, to say which was meant.
#ifndef RT_EDIT_H
#define RT_EDIT_H

#include "runtime/rt_base.h"

#define RT_EDIT_MAX 128u // bytes that are compared

// Levenshtein distance: characters that are put in, left out, or others.
uint32_t rt_edit_distance(const char *left, size_t left_length, const char *right,
                          size_t right_length);

// A word of so many bytes is taken for another one only if it is nearer than this.
static inline uint32_t rt_edit_limit(size_t length)
{
    return 2 + (uint32_t)length / 3;
}

#endif
