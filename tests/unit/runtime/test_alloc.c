// Memory that grows keeps what is in it, and what is new is zeros, unless nobody asks for that.
#include "runtime/rt_base.h"

#include <string.h>

#include "tests/support/test.h"

static bool all_are(const uint8_t *bytes, size_t count, uint8_t value)
{
    for (size_t i = 0; i < count; i++) {
        if (bytes[i] != value)
            return false;
    }
    return true;
}

// Blocks that are given back first are not zeros: what is made of them must not rely on luck.
static void leave_traces(size_t bytes)
{
    void *blocks[8];
    for (uint32_t i = 0; i < RT_COUNT_OF(blocks); i++) {
        blocks[i] = rt_alloc_unset(bytes, 1);
        assert_non_null(blocks[i]);
        memset(blocks[i], 0xa5, bytes);
    }
    for (uint32_t i = 0; i < RT_COUNT_OF(blocks); i++)
        rt_free(blocks[i]);
}

static void blocks_are_zero(void **state)
{
    (void)state;
    for (size_t bytes = 1; bytes <= (size_t)1 << 16; bytes *= 4) {
        leave_traces(bytes);
        uint8_t *block = rt_alloc(bytes, 1);
        assert_non_null(block);
        assert_true(all_are(block, bytes, 0));
        rt_free(block);
    }
    assert_null(rt_alloc(SIZE_MAX, 2));
    assert_null(rt_alloc_unset(SIZE_MAX, 2));
}

static void what_grows_is_kept(void **state)
{
    (void)state;
    for (uint32_t unset = 0; unset <= 1; unset++) {
        uint8_t(*items)[24] = NULL;
        uint32_t capacity = 0, filled = 0;
        for (uint32_t count = 1; count < 5000; count = count * 2 + 1) {
            leave_traces((size_t)count * sizeof *items);
            const rt_status status = unset ? rt_grow_unset(&items, &capacity, count, sizeof *items)
                                           : rt_grow(&items, &capacity, count, sizeof *items);
            assert_int_equal(status, RT_OK);
            assert_true(capacity >= count);
            assert_true(all_are(items[0], filled * sizeof *items, 0x3c));
            if (!unset)
                assert_true(all_are(items[filled], (capacity - filled) * sizeof *items, 0));
            filled = capacity;
            memset(items, 0x3c, filled * sizeof *items);
        }
        const uint32_t before = capacity;
        assert_int_equal(rt_grow(&items, &capacity, before, sizeof *items), RT_OK);
        assert_int_equal(rt_grow_unset(&items, &capacity, UINT64_MAX / 2, sizeof *items),
                         RT_NO_MEMORY);
        assert_int_equal(capacity, before);
        rt_free(items);
    }
}

TEST_MAIN(TEST(blocks_are_zero), TEST(what_grows_is_kept))
