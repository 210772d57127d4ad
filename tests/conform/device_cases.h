// device_cases - buffers with guard zones and error bounds, for the tests of every device.
//
// Included by one test file each. Bounds: copies and element-wise results are compared bit by bit;
// a sum of n products may be off by n u of the sum of magnitudes, u = 2^-24, whatever its order
// (Higham, Accuracy and Stability of Numerical Algorithms, section 3.1).
#ifndef DEVICE_CASES_H
#define DEVICE_CASES_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/test.h"

#include "edge_worker/device/ew_device.h"
#include "runtime/rt_hash.h"
#include "tests/support/devices.h"

#define GUARD 64u // floats before and after
#define UNIT 0x1p-24

static inline float random_float(rt_random *random)
{
    return (float)(2 * rt_random_unit(random) - 1);
}

// A guarded device buffer and its host copy.
typedef struct {
    const ew_device *device;
    uint32_t count;
    float *block; // device, with guards
    float *device_values;
    float *values; // host
} buffer;

static inline float guard_value(uint32_t i)
{
    return -1e30f - (float)i * 1e25f;
}

static inline void upload(const buffer *b)
{
    b->device->ops->copy(b->device->state, EW_COPY_IN, b->device_values, b->values,
                         b->count * sizeof(float));
}

// Host values are random; so is what the device holds before an operation writes it.
static inline buffer buffer_create(const ew_device *device, uint32_t count, rt_random *random)
{
    buffer b = {.device = device, .count = count};
    uint32_t all = count + 2 * GUARD;
    float *host = calloc(all, sizeof *host);
    for (uint32_t i = 0; i < all; i++)
        host[i] = guard_value(i);
    b.block = device->ops->alloc(device->state, all);
    assert_non_null(b.block);
    device->ops->copy(device->state, EW_COPY_IN, b.block, host, all * sizeof *host);
    free(host);
    b.device_values = b.block + GUARD;
    b.values = calloc(count + 1, sizeof *b.values);
    for (uint32_t i = 0; i < count; i++)
        b.values[i] = random_float(random);
    upload(&b);
    return b;
}

static inline buffer buffer_of(const ew_device *device, const void *words, uint32_t count)
{
    rt_random random = {1};
    buffer b = buffer_create(device, count, &random);
    if (count > 0)
        memcpy(b.values, words, count * sizeof(float));
    upload(&b);
    return b;
}

// Fetches the device's values; the guards must be as they were.
static inline void download(const buffer *b)
{
    uint32_t all = b->count + 2 * GUARD;
    float *host = calloc(all, sizeof *host);
    b->device->ops->copy(b->device->state, EW_COPY_OUT, host, b->block, all * sizeof *host);
    assert_int_equal(b->device->ops->finish(b->device->state, NULL), RT_OK);
    for (uint32_t i = 0; i < all; i++)
        if ((i < GUARD || i >= GUARD + b->count) && host[i] != guard_value(i))
            fail_msg("float %d around a buffer of %u was overwritten", (int)i - (int)GUARD,
                     b->count);
    if (b->count > 0)
        memcpy(b->values, host + GUARD, b->count * sizeof *host);
    free(host);
}

static inline void buffer_destroy(buffer *b)
{
    b->device->ops->free(b->device->state, b->block);
    free(b->values);
}

static inline void expect(float got, double want, double magnitude, double n, const char *what,
                          uint32_t i)
{
    double bound = (n + 2) * UNIT * magnitude + 1e-37;
    if (!(fabs(got - want) <= bound))
        fail_msg("%s[%u] is %.9g, expected %.9g within %.3g", what, i, got, want, bound);
}

static inline void for_every_device(void (*check)(const ew_device *device))
{
    for (uint32_t i = 0; i < test_device_count(); i++) {
        ew_device device;
        rt_error error;
        if (test_device_open(i, &device, &error) != RT_OK)
            fail_msg("%s", error.text);
        printf("on %s\n", device.description);
        check(&device);
        ew_device_close(&device);
    }
}

#define ON_EVERY_DEVICE(name)        \
    static void name(void **state)   \
    {                                \
        (void)state;                 \
        for_every_device(name##_on); \
    }

#endif
