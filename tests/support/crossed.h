// crossed - what a numbered case takes of each thing that it varies.
//
// With i % 5 of one thing and i % 5, or i % 10, of another the same pairs meet again and again, and
// most never do. Here each thing is drawn for itself, the same on every machine: with some cases
// more than there are pairs of two things, nearly all of them come.
#ifndef CROSSED_H
#define CROSSED_H

#include "runtime/rt_hash.h"

// Below count. thing: a number of its own.
static inline uint32_t crossed(uint64_t number, uint32_t thing, uint32_t count)
{
    return (uint32_t)(rt_mix(rt_mix(number) + thing) % count);
}

#endif
