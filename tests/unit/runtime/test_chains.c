#include "runtime/rt_chains.h"

#include "runtime/rt_hash.h"
#include "tests/support/test.h"

#define KEYS 37u
#define HELD_MAX 5000u

typedef struct {
    uint64_t key, value;
} thing;

static void check_key(const rt_chains *chains, uint64_t key, const thing *held,
                      const uint32_t *numbers, uint32_t count)
{
    uint32_t found = 0, expected = 0;
    for (uint32_t at = rt_chains_first(chains, key); at != RT_NO_ITEM;
         at = rt_chains_next(chains, at)) {
        const thing *one = rt_chains_item(chains, at);
        assert_int_equal(one->key, key);
        found++;
    }
    for (uint32_t i = 0; i < count; i++) {
        if (held[i].key != key)
            continue;
        assert_memory_equal(rt_chains_item(chains, numbers[i]), &held[i], sizeof held[i]);
        expected++;
    }
    assert_int_equal(found, expected);
}

// Items come and go in any order, many of one key, beyond several growths: numbers and contents of
// those that are there stay.
static void what_is_in_is_found(void **state)
{
    (void)state;
    static thing held[HELD_MAX];
    static uint32_t numbers[HELD_MAX];
    uint32_t count = 0;
    rt_random random = {7};
    rt_chains chains;
    assert_int_equal(rt_chains_init(&chains, sizeof(thing)), RT_OK);
    for (uint32_t step = 0; step < 40000; step++) {
        const bool adds = count == 0 || (count < HELD_MAX && rt_random_u64(&random) % 5 < 3);
        if (adds) {
            held[count] = (thing){rt_random_u64(&random) % KEYS, rt_random_u64(&random)};
            assert_int_equal(rt_chains_reserve(&chains, 1), RT_OK);
            numbers[count] = rt_chains_add(&chains, held[count].key);
            const thing zero = {0}, *made = rt_chains_item(&chains, numbers[count]);
            assert_memory_equal(made, &zero, sizeof zero);
            *(thing *)rt_chains_item(&chains, numbers[count]) = held[count];
            count++;
        } else {
            const uint32_t i = (uint32_t)(rt_random_u64(&random) % count);
            rt_chains_remove(&chains, numbers[i]);
            held[i] = held[--count];
            numbers[i] = numbers[count];
        }
        assert_int_equal(chains.items.count, count);
        if (step % 100 == 0)
            check_key(&chains, step / 100 % KEYS, held, numbers, count);
    }
    assert_true(chains.items.capacity >= 4096); // it grew
    assert_int_equal(rt_chains_first(&chains, KEYS), RT_NO_ITEM);
    for (uint64_t key = 0; key < KEYS; key++)
        check_key(&chains, key, held, numbers, count);
    rt_chains_fini(&chains);
}

static void the_newest_comes_first(void **state)
{
    (void)state;
    rt_chains chains;
    assert_int_equal(rt_chains_init(&chains, sizeof(thing)), RT_OK);
    const uint32_t old = rt_chains_add(&chains, 1), other = rt_chains_add(&chains, 2);
    const uint32_t new = rt_chains_add(&chains, 1);
    assert_int_equal(rt_chains_first(&chains, 1), new);
    assert_int_equal(rt_chains_next(&chains, new), old);
    assert_int_equal(rt_chains_next(&chains, old), RT_NO_ITEM);
    rt_chains_remove(&chains, new);
    assert_int_equal(rt_chains_first(&chains, 1), old);
    assert_int_equal(rt_chains_first(&chains, 2), other);
    rt_chains_fini(&chains);
}

// A place that was given back is taken again before storage grows.
static void places_are_used_again(void **state)
{
    (void)state;
    rt_items items;
    assert_int_equal(rt_items_init(&items, sizeof(thing)), RT_OK);
    const uint32_t capacity = items.capacity;
    for (uint32_t round = 0; round < 3; round++) {
        assert_int_equal(rt_items_reserve(&items, capacity), RT_OK);
        assert_int_equal(items.capacity, capacity);
        for (uint32_t i = 0; i < capacity; i++)
            assert_true(rt_items_take(&items) < capacity);
        for (uint32_t i = 0; i < capacity; i++)
            rt_items_give(&items, i);
    }
    assert_int_equal(rt_items_reserve(&items, UINT32_MAX), RT_NO_MEMORY);
    assert_int_equal(items.capacity, capacity);
    rt_items_fini(&items);
}

TEST_MAIN(TEST(what_is_in_is_found), TEST(the_newest_comes_first), TEST(places_are_used_again))
