// golden - the arrays of a dump of tests/golden (format: make_golden.py).
//
// A reader for tests: fails the case when the file or an array is missing. Holds the file until
// the case ends.
#ifndef GOLDEN_H
#define GOLDEN_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/test.h"

#define GOLDEN_ARRAYS_MAX 128

typedef struct {
    char name[64];
    uint32_t count;
    float *values;
} golden_array;

typedef struct {
    uint32_t count;
    golden_array arrays[GOLDEN_ARRAYS_MAX];
} golden;

static inline void golden_open(golden *dump, const char *name)
{
    char path[128], header[128];
    snprintf(path, sizeof path, "tests/golden/%s.golden", name);
    FILE *file = fopen(path, "rb");
    if (!file)
        fail_msg("%s is not here: run from the root of the tree", path);
    dump->count = 0;
    while (fgets(header, sizeof header, file)) {
        golden_array *one = &dump->arrays[dump->count++];
        assert_true(dump->count <= GOLDEN_ARRAYS_MAX);
        assert_int_equal(sscanf(header, "%63s %u", one->name, &one->count), 2);
        one->values = calloc(one->count + 1, sizeof(float));
        assert_int_equal(fread(one->values, sizeof(float), one->count, file), one->count);
    }
    fclose(file);
}

static inline void golden_close(golden *dump)
{
    for (uint32_t i = 0; i < dump->count; i++)
        free(dump->arrays[i].values);
}

static inline const golden_array *golden_find(const golden *dump, const char *name)
{
    for (uint32_t i = 0; i < dump->count; i++)
        if (strcmp(dump->arrays[i].name, name) == 0)
            return &dump->arrays[i];
    return NULL;
}

static inline const float *golden_values(const golden *dump, const char *name, uint32_t count)
{
    const golden_array *found = golden_find(dump, name);
    if (!found || found->count != count)
        fail_msg("the dump has %u floats \"%s\", expected %u", found ? found->count : 0, name,
                 count);
    return found->values;
}

static inline uint32_t golden_number(const golden *dump, const char *name)
{
    return (uint32_t)*golden_values(dump, name, 1);
}

// Integers, to be freed; NULL when the dump has none.
static inline uint32_t *golden_integers(const golden *dump, const char *name, uint32_t *count_p)
{
    const golden_array *found = golden_find(dump, name);
    if (!found)
        return NULL;
    uint32_t *integers = calloc(found->count + 1, sizeof *integers);
    for (uint32_t i = 0; i < found->count; i++)
        integers[i] = (uint32_t)found->values[i];
    *count_p = found->count;
    return integers;
}

// max |got - want| <= bound x max(max |want|, floor)
static inline void golden_compare(const float *got, const float *want, uint32_t count, double bound,
                                  double floor, const char *what)
{
    double largest = floor;
    for (uint32_t i = 0; i < count; i++)
        largest = largest > fabs((double)want[i]) ? largest : fabs((double)want[i]);
    for (uint32_t i = 0; i < count; i++)
        if (!(fabs((double)got[i] - want[i]) <= bound * largest))
            fail_msg("%s[%u] is %.9g, expected %.9g: off by %.3g of the largest, %.9g (bound %.3g)",
                     what, i, got[i], want[i], fabs((double)got[i] - want[i]) / largest, largest,
                     bound);
}

#endif
