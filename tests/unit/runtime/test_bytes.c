// A block of bytes that grows, and what is read back of it.
#include "runtime/wire/rt_bytes.h"

#include <string.h>

#include "runtime/rt_hash.h"
#include "tests/support/test.h"

enum { ALL = 100000 };

// In pieces of any size, against one array; as much memory as the next power of two.
static void pieces_make_one_block(void **state)
{
    (void)state;
    rt_bytes bytes = {0};
    rt_random random = {1};
    uint8_t *want = rt_alloc(ALL, 1);
    size_t size = 0, capacity = 4096;
    for (size_t i = 0; i < ALL; i++)
        want[i] = (uint8_t)rt_random_u64(&random);
    while (size < ALL) {
        const size_t some = rt_min_u64(rt_random_below(&random, 700), ALL - size);
        rt_bytes_put(&bytes, want + size, some);
        size += some;
        while (capacity < size)
            capacity *= 2;
        assert_int_equal(bytes.size, size);
        assert_int_equal(bytes.capacity, size ? capacity : 0);
        assert_false(bytes.failed);
    }
    assert_memory_equal(bytes.data, want, ALL);
    rt_bytes_fini(&bytes);
    assert_true(!bytes.data && bytes.size == 0 && bytes.capacity == 0);
    // As much as there is room for needs no more.
    assert_non_null(rt_bytes_extend(&bytes, 4096));
    assert_int_equal(bytes.capacity, 4096);
    rt_bytes_put(&bytes, want, 1);
    assert_int_equal(bytes.capacity, 8192);
    assert_int_equal(bytes.data[4096], want[0]);
    rt_bytes_fini(&bytes);
    rt_free(want);
}

// What nobody has memory for is noted; nothing comes after it.
static void it_fails_once_and_for_all(void **state)
{
    (void)state;
    const size_t sizes[] = {SIZE_MAX, SIZE_MAX / 2 + 2, SIZE_MAX - 2};
    for (size_t i = 0; i < RT_COUNT_OF(sizes); i++) {
        rt_bytes bytes = {0};
        rt_bytes_put_u32(&bytes, 7);
        assert_null(rt_bytes_extend(&bytes, sizes[i]));
        assert_true(bytes.failed && bytes.size == 4);
        assert_null(rt_bytes_extend(&bytes, 1));
        rt_bytes_put_u64(&bytes, 8);
        assert_int_equal(bytes.size, 4);
        assert_int_equal(*bytes.data, 7);
        rt_bytes_fini(&bytes);
    }
}

static void values_are_read_back(void **state)
{
    (void)state;
    rt_bytes bytes = {0};
    uint16_t more[3] = {0}, none = 99;
    const uint16_t three[3] = {10, 20, 30};
    rt_bytes_put_u32(&bytes, 0xfedcba98);
    rt_bytes_put_double(&bytes, 0.25); // at a multiple of 4
    rt_bytes_put_u64(&bytes, UINT64_C(0x123456789abcdef0));
    rt_bytes_put(&bytes, three, sizeof three);
    rt_bytes_put(&bytes, NULL, 0);
    rt_reader reader = rt_bytes_reader(&bytes);
    assert_true(rt_reader_u32(&reader) == 0xfedcba98 && rt_reader_double(&reader) == 0.25);
    assert_true(rt_reader_u64(&reader) == UINT64_C(0x123456789abcdef0));
    assert_true(rt_reader_get(&reader, &none, 0, 2));
    assert_int_equal(none, 99);
    assert_true(rt_reader_get(&reader, more, 3, 2));
    assert_memory_equal(more, three, sizeof more);
    assert_true(reader.left == 0 && !reader.failed);
    assert_false(rt_reader_get(&reader, &none, 1, 2));
    assert_int_equal(none, 99);
    assert_true(reader.failed);
    assert_true(rt_reader_u32(&reader) == 0 && rt_reader_u64(&reader) == 0);
    assert_true(rt_reader_double(&reader) == 0);
    rt_bytes_fini(&bytes);
}

TEST_MAIN(TEST(pieces_make_one_block), TEST(it_fails_once_and_for_all), TEST(values_are_read_back))
