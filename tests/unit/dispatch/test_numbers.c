// The numbers of a batch's keys against those of a plain search, by one thread and by several.
#include "tests/support/test.h"

#include <stdlib.h>

#include "dispatch/planner/dp_numbers.h"
#include "runtime/rt_hash.h"

#define LOOK_UPS_MAX 6000u
#define GROWTH 5000u // distinct keys: the table grows several times

typedef struct {
    uint64_t keys[LOOK_UPS_MAX];
    uint32_t count;
    uint64_t distinct[LOOK_UPS_MAX]; // as they must be
    uint32_t uses[LOOK_UPS_MAX], look_ups[LOOK_UPS_MAX];
    uint32_t distinct_count;
} batch_of_keys;

static void find_numbers(batch_of_keys *b)
{
    b->distinct_count = 0;
    for (uint32_t i = 0; i < b->count; i++) {
        uint32_t n = 0;
        while (n < b->distinct_count && b->distinct[n] != b->keys[i])
            n++;
        if (n == b->distinct_count) {
            b->distinct[b->distinct_count++] = b->keys[i];
            b->uses[n] = 0;
        }
        b->uses[n]++;
        b->look_ups[i] = n;
    }
}

static void check(const batch_of_keys *b, const dp_numbers *numbers, const uint32_t *look_ups)
{
    assert_int_equal(numbers->count, b->distinct_count);
    assert_memory_equal(look_ups, b->look_ups, b->count * sizeof *look_ups);
    assert_memory_equal(numbers->keys, b->distinct, b->distinct_count * sizeof *b->distinct);
    assert_memory_equal(numbers->uses, b->uses, b->distinct_count * sizeof *b->uses);
}

// One thread, in steps of some look-ups.
static void check_steps(const batch_of_keys *b, dp_numbers *numbers, uint32_t step)
{
    static uint32_t look_ups[LOOK_UPS_MAX];
    dp_numbers_begin(numbers);
    for (uint32_t i = 0; i < b->count; i += step) {
        const uint32_t count = (uint32_t)rt_min_u64(step, b->count - i);
        assert_int_equal(dp_numbers_add(numbers, b->keys + i, count, look_ups + i), RT_OK);
    }
    check(b, numbers, look_ups);
}

static void check_all(const batch_of_keys *b, dp_numbers *numbers, rt_pool *pool)
{
    static uint32_t look_ups[LOOK_UPS_MAX];
    dp_numbers_begin(numbers);
    assert_int_equal(dp_numbers_add_all(numbers, pool, b->keys, b->count, look_ups), RT_OK);
    check(b, numbers, look_ups);
}

// One after the other with the same numbers, as a planner's batches are.
static void check_with_threads(batch_of_keys *batches, uint32_t batch_count, uint32_t threads)
{
    dp_numbers numbers;
    rt_pool *pool;
    assert_int_equal(dp_numbers_init(&numbers, LOOK_UPS_MAX), RT_OK);
    assert_int_equal(rt_pool_create(threads, &pool, NULL), RT_OK);
    for (uint32_t i = 0; i < batch_count; i++)
        check_all(&batches[i], &numbers, pool); // there is room for one part
    assert_int_equal(dp_numbers_share(&numbers, LOOK_UPS_MAX, threads), RT_OK);
    for (uint32_t i = 0; i < batch_count; i++) {
        check_all(&batches[i], &numbers, pool);
        check_steps(&batches[i], &numbers, 1 + i * 7);
    }
    rt_pool_destroy(pool);
    dp_numbers_fini(&numbers);
}

static void check_batches(batch_of_keys *batches, uint32_t batch_count)
{
    static const uint32_t threads[] = {
        1, 2, 3, 4, 7, DP_NUMBERS_PARTS_MAX, DP_NUMBERS_PARTS_MAX + 1};
    for (uint32_t i = 0; i < batch_count; i++)
        find_numbers(&batches[i]);
    for (size_t i = 0; i < RT_COUNT_OF(threads); i++)
        check_with_threads(batches, batch_count, threads[i]);
}

static batch_of_keys *batches_new(uint32_t count)
{
    batch_of_keys *batches = calloc(count, sizeof *batches);
    assert_non_null(batches);
    return batches;
}

// Few keys, in every part; many, most of them once; and what lies between.
static void at_random(void **state)
{
    (void)state;
    rt_random random = {11};
    batch_of_keys *batches = batches_new(12);
    for (uint32_t b = 0; b < 12; b++) {
        const uint32_t keys = 1 + rt_random_below(&random, b % 3 ? 60 : 2500);
        batches[b].count = 1 + rt_random_below(&random, 3000);
        for (uint32_t i = 0; i < batches[b].count; i++)
            batches[b].keys[i] =
                rt_key(rt_random_below(&random, 3), rt_random_below(&random, keys));
    }
    check_batches(batches, 12);
    free(batches);
}

// As many look-ups as threads, or some more or less; none, too.
static void around_the_ends_of_parts(void **state)
{
    (void)state;
    batch_of_keys *batches = batches_new(3 * DP_NUMBERS_PARTS_MAX);
    for (uint32_t b = 0; b < 3 * DP_NUMBERS_PARTS_MAX; b++) {
        batches[b].count = b;
        for (uint32_t i = 0; i < b; i++)
            batches[b].keys[i] = i * 5 % 7;
    }
    check_batches(batches, 3 * DP_NUMBERS_PARTS_MAX);
    free(batches);
}

static void one_key_and_all_different(void **state)
{
    (void)state;
    batch_of_keys *batches = batches_new(4);
    for (uint32_t b = 0; b < 4; b++) {
        batches[b].count = GROWTH;
        for (uint32_t i = 0; i < GROWTH; i++)
            batches[b].keys[i] = b == 0   ? UINT64_MAX
                                 : b == 1 ? i // the key 0 is one like any other
                                 : b == 2 ? rt_key(i % 26, rt_mix(i))
                                          : (uint64_t)i << 40;
    }
    check_batches(batches, 4);
    free(batches);
}

// Every part has all keys, the later ones in another order: none of them is new there.
static void the_same_in_every_part(void **state)
{
    (void)state;
    batch_of_keys *batches = batches_new(1);
    batches[0].count = 4000;
    for (uint32_t i = 0; i < 4000; i++)
        batches[0].keys[i] = i % 200 * (i / 200 * 2 + 1) % 200;
    check_batches(batches, 1);
    free(batches);
}

TEST_MAIN(TEST(at_random), TEST(around_the_ends_of_parts), TEST(one_key_and_all_different),
          TEST(the_same_in_every_part))
