// Looking up many keys at once says the same as one by one.
#include "ps_lite/ps_table.h"
#include "runtime/rt_hash.h"
#include "tests/support/test.h"

#define KEYS_MAX 64
#define ROUNDS 2000

static void check_against_one_by_one(uint32_t row_floats)
{
    const ps_table_config config = {.row_floats = row_floats, .memory_bytes_max = 64 << 20};
    ps_table *table;
    rt_random random = {row_floats};
    uint32_t there = 0, missing = 0;
    assert_int_equal(ps_table_create(&config, &table), RT_OK);
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t keys[KEYS_MAX];
        ps_found found[KEYS_MAX];
        const uint32_t count = rt_random_below(&random, KEYS_MAX + 1);
        for (uint32_t i = 0; i < count; i++)
            keys[i] = rt_random_below(&random, 4 * ROUNDS);
        ps_table_prefetch(table, keys, count);
        ps_table_find_all(table, keys, count, found);
        for (uint32_t i = 0; i < count; i++) {
            ps_entry *entry = ps_table_find(table, keys[i]);
            assert_ptr_equal(found[i].entry, entry);
            assert_ptr_equal(found[i].row, entry ? ps_table_row(table, entry) : NULL);
            *(entry ? &there : &missing) += 1;
        }
        assert_int_equal(ps_table_reserve(table, 1, NULL), RT_OK);
        const uint64_t key = rt_random_below(&random, 4 * ROUNDS);
        if (!ps_table_find(table, key))
            ps_table_insert(table, key);
    }
    assert_true(there > ROUNDS && missing > ROUNDS);
    ps_table_destroy(table);
}

static void test_many_keys_at_once(void **state)
{
    (void)state;
    check_against_one_by_one(1);
    check_against_one_by_one(16);
    check_against_one_by_one(130);
}

TEST_MAIN(TEST(test_many_keys_at_once))
