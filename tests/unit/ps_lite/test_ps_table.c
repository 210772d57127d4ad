#include "ps_lite/ps_table.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "runtime/rt_hash.h"
#include "tests/support/test.h"

static ps_table *make(uint32_t row_floats, uint64_t bytes_max)
{
    ps_table *table = NULL;
    const ps_table_config config = {.row_floats = row_floats, .memory_bytes_max = bytes_max};
    assert_int_equal(ps_table_create(&config, &table), RT_OK);
    assert_int_equal(ps_table_bytes(table), ps_table_bytes_for(&config, 0));
    return table;
}

// The naive map: keys in order of insertion, looked up one by one.
typedef struct {
    uint64_t *keys;
    uint32_t *versions;
    uint32_t count;
} naive;

static uint32_t naive_find(const naive *map, uint64_t key)
{
    uint32_t i = 0;
    while (i < map->count && map->keys[i] != key)
        i++;
    return i;
}

static void fill_row(float *row, uint32_t floats, uint64_t key)
{
    for (uint32_t i = 0; i < floats; i++)
        row[i] = (float)(key % 100003) + (float)i;
}

static void check_row(const float *row, uint32_t floats, uint64_t key)
{
    for (uint32_t i = 0; i < floats; i++)
        assert_true(row[i] == (float)(key % 100003) + (float)i);
}

// Every entry once.
static void check_walk(const ps_table *table, const naive *map)
{
    uint64_t at = 0, count = 0, sum = 0;
    for (const ps_entry *entry; (entry = ps_table_next(table, &at)); count++) {
        assert_ptr_equal(entry, ps_table_find(table, entry->key));
        sum += rt_mix(entry->key);
    }
    for (uint32_t i = 0; i < map->count; i++)
        sum -= rt_mix(map->keys[i]);
    assert_int_equal(count, map->count);
    assert_true(sum == 0);
}

static void against_naive(uint32_t row_floats, uint32_t operations, uint64_t key_space)
{
    ps_table *table = make(row_floats, UINT64_C(1) << 30);
    naive map = {rt_alloc(operations, 8), rt_alloc(operations, 4), 0};
    rt_random random = {row_floats};
    for (uint32_t op = 0; op < operations; op++) {
        const uint64_t key = rt_key(op % 3, rt_random_u64(&random) % key_space);
        const uint32_t want = naive_find(&map, key);
        ps_entry *entry = ps_table_find(table, key);
        assert_int_equal(entry != NULL, want < map.count);
        if (!entry) {
            assert_int_equal(ps_table_reserve(table, 1, NULL), RT_OK);
            entry = ps_table_insert(table, key);
            assert_int_equal(entry->version, 0);
            fill_row(ps_table_row(table, entry), row_floats, key);
            map.keys[map.count++] = key;
        }
        assert_true(entry->key == key);
        assert_int_equal(entry->version, map.versions[want]);
        check_row(ps_table_row(table, entry), row_floats, key);
        entry->version = map.versions[want] = op;
        assert_int_equal(ps_table_count(table), map.count);
    }
    for (uint32_t i = 0; i < map.count; i++) {
        assert_true(ps_table_key(table, i) == map.keys[i]);
        const ps_entry *entry = ps_table_find(table, map.keys[i]);
        assert_non_null(entry);
        assert_int_equal(entry->version, map.versions[i]);
        check_row(ps_table_row(table, entry), row_floats, map.keys[i]);
    }
    check_walk(table, &map);
    ps_table_destroy(table);
    rt_free(map.keys);
    rt_free(map.versions);
}

// Rows below a floor go, again and again, while others come; blocks are given back.
static void erase_against_naive(uint32_t row_floats, uint64_t seed)
{
    ps_table *table = make(row_floats, UINT64_C(1) << 30);
    naive map = {rt_alloc(60000, 8), rt_alloc(60000, 4), 0};
    rt_random random = {seed};
    uint64_t bytes_max = 0;
    uint32_t next = 0;
    for (uint32_t round = 1; round <= 10; round++) {
        const uint32_t more = round % 2 ? 4000 : 300;
        for (uint32_t i = 0; i < more; i++) {
            const uint64_t key = rt_key(next % 3, rt_mix(next) >> 8);
            assert_int_equal(ps_table_reserve(table, 1, NULL), RT_OK);
            ps_entry *entry = ps_table_insert(table, key);
            entry->version = 1 + rt_random_below(&random, round * 100);
            fill_row(ps_table_row(table, entry), row_floats, key);
            next++;
            map.keys[map.count] = key;
            map.versions[map.count++] = entry->version;
        }
        bytes_max = rt_max_u64(bytes_max, ps_table_bytes(table));
        const uint32_t floor = round * 70;
        uint32_t left = 0, parts = 1;
        for (uint32_t i = 0; i < map.count; i++) {
            if (map.versions[i] < floor)
                continue;
            map.keys[left] = map.keys[i];
            map.versions[left++] = map.versions[i];
        }
        map.count = left;
        for (uint64_t at = 0; ps_table_erase_below(table, floor, &at); parts++)
            assert_true(parts < 100);
        assert_int_equal(ps_table_count(table), map.count);
        for (uint32_t i = 0; i < map.count; i++) {
            const ps_entry *entry = ps_table_find(table, map.keys[i]);
            assert_non_null(entry);
            assert_int_equal(entry->version, map.versions[i]);
            assert_true(ps_table_key(table, entry->row - 1) == map.keys[i]);
            check_row(ps_table_row(table, entry), row_floats, map.keys[i]);
        }
        check_walk(table, &map);
    }
    assert_false(ps_table_erase(table, UINT64_MAX)); // nobody has it
    while (map.count > 1) {                          // one by one, by name
        const uint32_t gone = map.count / 3;
        assert_true(ps_table_erase(table, map.keys[gone]));
        assert_false(ps_table_erase(table, map.keys[gone]));
        map.keys[gone] = map.keys[--map.count];
        map.versions[gone] = map.versions[map.count];
        assert_int_equal(ps_table_count(table), map.count);
        if (map.count % 64 == 1)
            check_walk(table, &map);
        const uint32_t other = map.count / 2;
        check_row(ps_table_row(table, ps_table_find(table, map.keys[other])), row_floats,
                  map.keys[other]);
    }
    uint64_t at = 0;
    while (ps_table_erase_below(table, UINT32_MAX, &at))
        continue;
    assert_int_equal(ps_table_count(table), 0);
    assert_true(ps_table_bytes(table) < bytes_max || row_floats < 900); // small rows: one block
    ps_table_destroy(table);
    rt_free(map.keys);
    rt_free(map.versions);
}

static void test_rows_below_a_floor_are_erased(void **context)
{
    (void)context;
    erase_against_naive(3, 1);
    erase_against_naive(32, 2);
    erase_against_naive(900, 3); // several blocks
}

static void test_table_equals_a_naive_map(void **context)
{
    (void)context;
    const uint32_t floats[] = {1, 3, 16, 17, 32, 100};
    for (size_t i = 0; i < RT_COUNT_OF(floats); i++)
        against_naive(floats[i], 6000, 1200);
    against_naive(4, 12000, UINT64_C(1) << 56);
}

static void test_rows_never_move_and_do_not_overlap(void **context)
{
    (void)context;
    enum { COUNT = 100000, FLOATS = 16 };
    ps_table *table = make(FLOATS, UINT64_C(1) << 30);
    float **rows = rt_alloc(COUNT, sizeof *rows);
    for (uint64_t key = 0; key < COUNT; key++) {
        assert_int_equal(ps_table_reserve(table, 1, NULL), RT_OK);
        rows[key] = ps_table_row(table, ps_table_insert(table, key));
        assert_int_equal((uintptr_t)rows[key] % 64, 0);
        fill_row(rows[key], FLOATS, key);
    }
    for (uint64_t key = 0; key < COUNT; key++) {
        const ps_entry *entry = ps_table_find(table, key);
        assert_non_null(entry);
        assert_ptr_equal(ps_table_row(table, entry), rows[key]);
        check_row(rows[key], FLOATS, key);
    }
    assert_null(ps_table_find(table, COUNT));
    ps_table_destroy(table);
    rt_free(rows);
}

// After a reserve of n, n inserts keep every entry where it is.
static void test_reserve_keeps_entries_in_place(void **context)
{
    (void)context;
    ps_table *table = make(2, UINT64_C(1) << 26);
    uint64_t key = 0;
    for (uint32_t batch = 1; batch < 20000; batch *= 3) {
        assert_int_equal(ps_table_reserve(table, batch, NULL), RT_OK);
        ps_entry *first = ps_table_insert(table, key);
        for (uint64_t end = key++ + batch; key < end; key++)
            ps_table_insert(table, key);
        assert_ptr_equal(ps_table_find(table, key - batch), first);
    }
    ps_table_destroy(table);
}

// A key that none of the first number of keys is, whose hash is in the last 2^-15 of all.
static uint64_t key_at_the_end(uint64_t *number)
{
    while (rt_mix(*number) >> 49 != 0x7fff)
        ++*number;
    return (*number)++;
}

static void check_some(const ps_table *table, const naive *map, rt_random *random)
{
    for (uint32_t i = 0; i < 4; i++) {
        const uint32_t at = rt_random_below(random, map->count);
        const ps_entry *entry = ps_table_find(table, map->keys[at]);
        assert_non_null(entry);
        assert_int_equal(entry->version, at);
        assert_null(ps_table_find(table, map->keys[at] | UINT64_C(1) << 63));
    }
}

// While the index grows every key is there once and only once, also those that stand at its begin
// because it ended: one of 16 keys, here.
static void test_all_is_there_while_the_index_grows(void **context)
{
    (void)context;
    enum { COUNT = 90000 };
    ps_table *table = make(1, UINT64_C(1) << 26);
    naive map = {rt_alloc(COUNT, 8), rt_alloc(COUNT, 4), 0};
    rt_random random = {5};
    uint64_t number = 1;
    while (map.count < COUNT) {
        const bool is_end = map.count < COUNT / 64 && map.count % 16 == 0;
        const uint64_t key =
            is_end ? key_at_the_end(&number) : UINT64_C(1) << 40 | (uint64_t)map.count;
        assert_int_equal(ps_table_reserve(table, 1, NULL), RT_OK);
        assert_null(ps_table_find(table, key));
        ps_table_insert(table, key)->version = map.count;
        map.keys[map.count++] = key;
        check_some(table, &map, &random);
        const uint32_t large = map.count > 80000 ? 81920 : 40960; // 5/8 of a power of two
        if (map.count > large && map.count < large + 40)
            check_walk(table, &map);
    }
    ps_table_destroy(table);
    rt_free(map.keys);
    rt_free(map.versions);
}

// The first key from *number on whose place in an index of 2^13 is this one.
static uint64_t key_at(uint64_t place, uint64_t *number)
{
    while (rt_mix(*number) >> 51 != place)
        ++*number;
    return (*number)++;
}

// An entry that has moved is not moved again, which would bring back the version of then. Those at
// the index's begin are looked at twice: in their turn, and when those are moved that stand there
// because the index ended.
static void test_what_has_moved_stays_as_it_is(void **context)
{
    (void)context;
    enum { EDGE = 8, COUNT = 5600 }; // 5120: an index of 2^13 grows, in more than one step
    ps_table *table = make(1, UINT64_C(1) << 26);
    uint64_t number = 1, keys[2 * EDGE];
    uint32_t version = 0;
    for (uint32_t i = 0; i < 2 * EDGE; i++)
        keys[i] = key_at(i < EDGE ? i : (1 << 13) - 1, &number);
    for (uint32_t inserted = 0; inserted < COUNT; inserted++) {
        const uint64_t key = inserted < 2 * EDGE ? keys[inserted] : UINT64_C(1) << 40 | inserted;
        assert_int_equal(ps_table_reserve(table, 1, NULL), RT_OK);
        for (uint32_t i = 0; i < 2 * EDGE && i < inserted; i++)
            assert_int_equal(ps_table_find(table, keys[i])->version, version);
        ps_table_insert(table, key);
        version++;
        for (uint32_t i = 0; i < 2 * EDGE && i <= inserted; i++)
            ps_table_find(table, keys[i])->version = version;
    }
    ps_table_destroy(table);
}

// So that a message waits for a few entries at most, and not for all of a large table.
static void test_the_index_grows_in_steps(void **context)
{
    (void)context;
    enum { COUNT = 400000, SAMPLE = 256 };
    ps_table *table = make(1, UINT64_C(1) << 26);
    const ps_entry *before[SAMPLE] = {NULL};
    uint32_t most = 0, all = 0;
    for (uint64_t key = 0; key < COUNT; key++) {
        uint32_t moved = 0;
        assert_int_equal(ps_table_reserve(table, 1, NULL), RT_OK);
        for (uint64_t i = 0; i < SAMPLE && key > COUNT / 4; i++) {
            const ps_entry *entry = ps_table_find(table, i);
            moved += before[i] && before[i] != entry;
            before[i] = entry;
        }
        ps_table_insert(table, key);
        most = moved > most ? moved : most;
        all += moved;
    }
    assert_int_equal(all, 2 * SAMPLE); // at 163,840 and 327,680 rows
    assert_true(most > 0 && most < SAMPLE / 8);
    ps_table_destroy(table);
}

// Bytes of an index of 2^10 places for up to 640 rows, of twice as many for each time as many rows;
// and of blocks of as many rows as 16 KB, a 64th of the bound, or 16 MB hold, with 8 bytes for the
// key of each. Rows are 64-byte aligned where that costs at most an eighth.
static void test_what_a_number_of_rows_takes(void **context)
{
    (void)context;
    const uint64_t small = UINT64_C(1) << 20, large = UINT64_C(1) << 34;
    const struct {
        uint32_t floats;
        uint64_t bytes_max, block_rows, block_bytes;
    } cases[] = {
        {16, small, 128, 128 * (8 + 64)},      {15, small, 128, 128 * (8 + 64)},
        {17, small, 128, 128 * (8 + 80)},      {113, small, 32, 32 * (8 + 464)},
        {120, small, 16, 16 * (8 + 512)},      {5000, small, 1, 8 + 20032},
        {16, 4 * small, 512, 512 * (8 + 64)},  {16, large, 131072, 131072 * (8 + 64)},
        {2, large, 524288, 524288 * (8 + 16)},
    };
    static const struct {
        uint64_t rows, index_bytes;
    } counts[] = {{1, 16384},    {640, 16384},   {641, 32768},  {1280, 32768},
                  {1281, 65536}, {5120, 131072}, {5121, 262144}};
    for (size_t c = 0; c < RT_COUNT_OF(cases); c++) {
        ps_table_config config = {.row_floats = cases[c].floats,
                                  .memory_bytes_max = cases[c].bytes_max};
        assert_int_equal(ps_table_bytes_for(&config, 0), 16384);
        for (size_t n = 0; n < RT_COUNT_OF(counts); n++) {
            const uint64_t rows = counts[n].rows;
            const uint64_t blocks = (rows + cases[c].block_rows - 1) / cases[c].block_rows;
            const uint64_t want = counts[n].index_bytes + blocks * cases[c].block_bytes;
            assert_int_equal(ps_table_bytes_for(&config, rows), want);
            ps_table *table = NULL;
            rt_error error = {0};
            const bool fits = want <= config.memory_bytes_max;
            assert_int_equal(ps_table_create(&config, &table), RT_OK);
            assert_int_equal(ps_table_reserve(table, rows, &error), fits ? RT_OK : RT_CONFIG);
            assert_int_equal(ps_table_bytes(table), fits ? want : 16384);
            ps_table_destroy(table);
        }
        config.is_on_disk = true; // keys alone are in memory, beside as large blocks as may be
        uint64_t rows = 1;
        const uint64_t stride = (cases[c].block_bytes / cases[c].block_rows) - 8;
        while ((8 + stride) * 2 * rows <= UINT64_C(16) << 20)
            rows *= 2;
        uint64_t index = 16384;
        while (rows + 1 > index / 16 / 8 * 5)
            index *= 2;
        assert_int_equal(ps_table_bytes_for(&config, rows + 1), index + 2 * 8 * rows);
    }
}

// The bound to the byte: what takes as much as it allows fits, and with one byte less nothing is
// taken at all.
static void test_the_bound_is_exact(void **context)
{
    (void)context;
    static const uint64_t counts[] = {1, 128, 129, 640, 641, 3000};
    for (size_t n = 0; n < RT_COUNT_OF(counts); n++) {
        // Blocks of 128 rows, whatever the bound below a megabyte is.
        const uint64_t bytes = (counts[n] > 2560  ? 131072
                                : counts[n] > 640 ? 32768
                                                  : 16384) +
                               (counts[n] + 127) / 128 * 128 * (8 + 64);
        for (uint32_t less = 0; less < 2; less++) {
            ps_table *table = make(16, bytes - less);
            assert_int_equal(ps_table_reserve(table, counts[n], NULL), less ? RT_CONFIG : RT_OK);
            assert_int_equal(ps_table_bytes(table), less ? 16384 : bytes);
            assert_int_equal(ps_table_reserve(table, (counts[n] + 127) / 128 * 128 + 1, NULL),
                             RT_CONFIG);
            ps_table_destroy(table);
        }
    }
}

// Blocks that are empty are freed, but for one, so that a row that comes and goes at the edge of a
// block takes no memory anew every time.
static void test_one_empty_block_stays(void **context)
{
    (void)context;
    enum { BLOCK = 128, ROWS = 5 * BLOCK };
    ps_table *table = make(16, 1 << 20);
    const uint64_t block_bytes = BLOCK * (8 + 64);
    assert_int_equal(ps_table_reserve(table, ROWS, NULL), RT_OK);
    for (uint64_t key = 0; key < ROWS; key++)
        ps_table_insert(table, key)->version = (uint32_t)key + 1;
    assert_int_equal(ps_table_bytes(table), 16384 + 5 * block_bytes);
    for (uint64_t left = ROWS; left-- > 0;) {
        const uint64_t used = (left + BLOCK - 1) / BLOCK, blocks = rt_min_u64(5, used + 1);
        assert_true(ps_table_erase(table, left));
        assert_int_equal(ps_table_bytes(table), 16384 + blocks * block_bytes);
    }
    assert_int_equal(ps_table_reserve(table, ROWS, NULL), RT_OK);
    for (uint64_t key = 0; key < ROWS; key++)
        ps_table_insert(table, key)->version = (uint32_t)key + 1;
    for (uint64_t at = 0; ps_table_erase_below(table, ROWS - BLOCK, &at);) // 129 rows stay
        continue;
    assert_int_equal(ps_table_count(table), BLOCK + 1);
    assert_int_equal(ps_table_bytes(table), 16384 + 3 * block_bytes);
    ps_table_destroy(table);
}

// A row that people ask to have forgotten is not found in memory, either.
static void test_an_erased_row_leaves_zeros(void **context)
{
    (void)context;
    enum { ROWS = 300, FLOATS = 16 };
    ps_table *table = make(FLOATS, 1 << 20);
    assert_int_equal(ps_table_reserve(table, ROWS, NULL), RT_OK);
    for (uint64_t key = 0; key < ROWS; key++)
        fill_row(ps_table_row(table, ps_table_insert(table, key)), FLOATS, key + 1);
    static const uint64_t gone[] = {7, 299, 150, 0};
    for (size_t i = 0; i < RT_COUNT_OF(gone); i++) {
        assert_true(ps_table_erase(table, gone[i]));
        ps_entry *entry = ps_table_insert(table, 1000 + i); // takes the place of the last row
        for (uint32_t k = 0; k < FLOATS; k++)
            assert_true(ps_table_row(table, entry)[k] == 0);
        fill_row(ps_table_row(table, entry), FLOATS, 1001 + i);
    }
    for (uint64_t key = 1; key < ROWS - 1; key++)
        if (key != 7 && key != 150)
            check_row(ps_table_row(table, ps_table_find(table, key)), FLOATS, key + 1);
    ps_table_destroy(table);
}

static void test_limit_is_an_error_that_names_it(void **context)
{
    (void)context;
    const uint64_t bytes_max = 1 << 20;
    ps_table *table = make(16, bytes_max);
    rt_error error = {RT_OK, ""};
    uint64_t key = 0;
    rt_status status;
    while ((status = ps_table_reserve(table, 1, &error)) == RT_OK) {
        fill_row(ps_table_row(table, ps_table_insert(table, key)), 16, key);
        key++;
        assert_true(ps_table_bytes(table) <= bytes_max);
    }
    assert_int_equal(status, RT_CONFIG);
    assert_non_null(strstr(error.text, "ps.memory_bytes_max"));
    assert_non_null(strstr(error.text, "1048576"));
    char rows[32];
    snprintf(rows, sizeof rows, "%" PRIu64 " rows take", key);
    assert_non_null(strstr(error.text, rows));
    assert_true(key * 64 > bytes_max / 2); // rows, not overhead, fill the bound
    assert_int_equal(ps_table_reserve(table, 0, NULL), RT_OK);
    for (uint64_t i = 0; i < key; i++)
        check_row(ps_table_row(table, ps_table_find(table, i)), 16, i);
    ps_table_destroy(table);
}

// Bytes of this process that are in memory.
static uint64_t resident(void)
{
    unsigned long pages[2] = {0};
    FILE *file = fopen("/proc/self/statm", "r");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%lu %lu", &pages[0], &pages[1]), 2);
    fclose(file);
    return pages[1] * (uint64_t)sysconf(_SC_PAGESIZE);
}

// Rows of a power of two bytes, the usual ones: chunks of them leave no huge page half empty.
static void test_memory_is_what_the_rows_take(void **context)
{
    (void)context;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    test_skip("sanitizers have memory of their own");
#endif
    enum { COUNT = 65536, FLOATS = 512 };
    ps_table *table = make(FLOATS, UINT64_C(1) << 30);
    const uint64_t before = resident();
    assert_int_equal(ps_table_reserve(table, COUNT, NULL), RT_OK);
    const uint64_t taken = resident() - before, bytes = ps_table_bytes(table);
    if (taken > bytes + bytes / 20)
        fail_msg("%" PRIu64 " bytes in memory, the table has %" PRIu64, taken, bytes);
    ps_table_destroy(table);
}

TEST_MAIN(TEST(test_table_equals_a_naive_map), TEST(test_rows_below_a_floor_are_erased),
          TEST(test_rows_never_move_and_do_not_overlap), TEST(test_reserve_keeps_entries_in_place),
          TEST(test_all_is_there_while_the_index_grows), TEST(test_what_has_moved_stays_as_it_is),
          TEST(test_the_index_grows_in_steps), TEST(test_limit_is_an_error_that_names_it),
          TEST(test_what_a_number_of_rows_takes), TEST(test_the_bound_is_exact),
          TEST(test_one_empty_block_stays), TEST(test_an_erased_row_leaves_zeros),
          TEST(test_memory_is_what_the_rows_take))
