// The slab of a device, whose rows go over in lists, against rows in host memory; on the CPU, which
// defines what its operations do.
#include "edge_worker/executor/ew_device_rows.h"

#include <string.h>

#include "edge_worker/executor/ew_rows.h"
#include "runtime/config/rt_optimizers.h"
#include "runtime/rt_hash.h"
#include "tests/support/test.h"

#define SEED 5u
#define SCALE 0.3f

static const rt_optimizer_config adagrad = {.kind = RT_OPTIMIZER_ADAGRAD,
                                            .learning_rate = 0.05f,
                                            .epsilon = 1e-10f,
                                            .initial_accumulator = 0.1f};

typedef struct {
    ew_device device;
    ew_device_rows there;
    ew_host_rows here;
    uint32_t slots, values;
} pair;

static void make(pair *p, uint32_t slots, uint32_t values)
{
    rt_error error = {0};
    *p = (pair){.slots = slots, .values = values};
    if (ew_device_open("cpu", &p->device, &error))
        test_skip("%s", error.text);
    assert_int_equal(
        ew_device_rows_init(&p->there, &p->device, slots, values, &adagrad, SEED, SCALE), RT_OK);
    assert_int_equal(ew_host_rows_init(&p->here, slots, values, &adagrad, SEED, SCALE), RT_OK);
}

static void destroy(pair *p)
{
    ew_device_rows_fini(&p->there);
    ew_host_rows_fini(&p->here);
    ew_device_close(&p->device);
}

// So many different slots.
static void choose(const pair *p, rt_random *random, uint32_t *slots, uint32_t count)
{
    const uint32_t first = rt_random_below(random, p->slots);
    const uint32_t step = 1 + 2 * rt_random_below(random, p->slots / 2); // odd: slots are 2^k
    for (uint32_t i = 0; i < count; i++)
        slots[i] = (first + i * step) % p->slots;
}

static float *floats(rt_random *random, uint32_t count)
{
    float *made = rt_alloc(count, sizeof *made);
    for (uint32_t i = 0; i < count; i++)
        made[i] = (float)rt_random_below(random, 1000) * 0.25f + 1;
    return made;
}

static void same_rows(pair *p, const uint32_t *slots, uint32_t count, uint32_t float_count)
{
    float *there = rt_alloc(count * float_count, sizeof *there);
    float *here = rt_alloc(count * float_count, sizeof *here);
    float **a = rt_alloc(count, sizeof *a), **b = rt_alloc(count, sizeof *b);
    for (uint32_t i = 0; i < count; i++) {
        a[i] = there + (size_t)i * float_count;
        b[i] = here + (size_t)i * float_count;
    }
    ew_device_rows_ops.read(&p->there, slots, count, float_count, a);
    ew_host_rows_ops.read(&p->here, slots, count, float_count, b);
    assert_memory_equal(there, here, count * float_count * sizeof *here);
    rt_free(there);
    rt_free(here);
    rt_free(a);
    rt_free(b);
}

// One call, with count slots, on both.
static void operate(pair *p, rt_random *random, uint32_t kind, const uint32_t *slots,
                    uint32_t count, uint64_t iteration)
{
    const uint32_t float_count = kind == 1 ? p->values : 2 * p->values;
    float *all = floats(random, count * float_count);
    const float **rows = rt_alloc(count, sizeof *rows);
    uint64_t *keys = rt_alloc(count, sizeof *keys);
    for (uint32_t i = 0; i < count; i++) {
        rows[i] = all + (size_t)i * float_count;
        keys[i] = rt_random_u64(random);
    }
    const ew_rows_ops *const ops[] = {&ew_device_rows_ops, &ew_host_rows_ops};
    void *const contexts[] = {&p->there, &p->here};
    for (uint32_t k = 0; k < 2; k++) {
        if (kind < 2)
            ops[k]->write(contexts[k], slots, count, float_count, rows);
        else if (kind == 2)
            ops[k]->init(contexts[k], slots, keys, count);
        else
            ops[k]->step(contexts[k], slots, rows, count, iteration);
    }
    rt_free(all);
    rt_free(rows);
    rt_free(keys);
}

static void any_order(uint32_t slot_count, uint32_t values, uint32_t rounds)
{
    pair p;
    rt_random random = {values};
    uint32_t slots[64];
    make(&p, slot_count, values);
    for (uint32_t i = 0; i < slot_count; i++)
        slots[i] = i;
    operate(&p, &random, 2, slots, slot_count, 1);
    p.there.batch = UINT32_MAX - rounds / 4; // the numbers of batches begin anew meanwhile
    for (uint32_t round = 0; round < rounds; round++) {
        const uint32_t count = 1 + rt_random_below(&random, slot_count);
        choose(&p, &random, slots, count);
        operate(&p, &random, rt_random_below(&random, 4), slots, count, 1 + round);
        if (round % 7 == 0)
            ew_device_rows_flush(&p.there);
        if (round % 3)
            continue;
        const uint32_t some = 1 + rt_random_below(&random, slot_count);
        choose(&p, &random, slots, some);
        same_rows(&p, slots, some, round % 2 ? values : 2 * values);
    }
    assert_true(p.there.batch < UINT32_MAX / 2);
    for (uint32_t i = 0; i < slot_count; i++)
        slots[i] = i;
    same_rows(&p, slots, slot_count, 2 * values);
    destroy(&p);
}

// Small rows, and rows so large that a list has room for 16.
static void rows_are_those_of_the_host(void **state)
{
    (void)state;
    any_order(32, 5, 400);
    any_order(64, 16, 200);
    any_order(32, 70000, 24);
}

static uint32_t pending(const pair *p, ew_rows_kind kind)
{
    return p->there.lists[kind].count;
}

// What is written goes over when its slot is named again, or its list is full, not before.
static void what_is_written_waits(void **state)
{
    (void)state;
    pair p;
    rt_random random = {3};
    const uint32_t slots[] = {1, 2, 3, 4, 5};
    make(&p, 32, 5);
    operate(&p, &random, 0, slots, 1, 1);     // slot 1
    operate(&p, &random, 1, slots + 1, 1, 1); // slot 2
    operate(&p, &random, 2, slots + 2, 2, 1); // slots 3 and 4
    assert_true(pending(&p, EW_ROWS_WHOLE) == 1 && pending(&p, EW_ROWS_VALUES) == 1);
    assert_int_equal(pending(&p, EW_ROWS_FRESH), 2);
    same_rows(&p, slots + 4, 1, 10); // another slot
    assert_int_equal(pending(&p, EW_ROWS_FRESH), 2);
    same_rows(&p, slots + 3, 2, 10);
    assert_true(pending(&p, EW_ROWS_WHOLE) == 0 && pending(&p, EW_ROWS_VALUES) == 0);
    assert_int_equal(pending(&p, EW_ROWS_FRESH), 0);
    operate(&p, &random, 3, slots, 2, 9);
    assert_int_equal(p.there.steps.count, 2);
    operate(&p, &random, 3, slots + 1, 2, 9); // one of them again: those before go first
    assert_int_equal(p.there.steps.count, 2);
    ew_device_rows_flush(&p.there);
    assert_int_equal(p.there.steps.count, 0);
    same_rows(&p, slots, 5, 10);
    destroy(&p);
}

// As many as 8 MB hold, within bounds; rows begin at multiples of 64 bytes.
static void lists_have_a_size(void **state)
{
    (void)state;
    static const struct {
        uint32_t values, stride, rows;
    } cases[] = {{5, 16, 16384},      {8, 16, 16384},      {9, 32, 16384},
                 {128, 256, 8192},    {129, 272, 8128},    {65536, 131072, 16},
                 {61680, 123360, 17}, {61681, 123376, 16}, {200000, 400000, 16}};
    for (size_t i = 0; i < RT_COUNT_OF(cases); i++) {
        pair p;
        make(&p, 1, cases[i].values);
        assert_int_equal(p.there.stride, cases[i].stride);
        assert_int_equal(p.there.batch_max, cases[i].rows);
        destroy(&p);
    }
}

TEST_MAIN(TEST(rows_are_those_of_the_host), TEST(what_is_written_waits), TEST(lists_have_a_size))
