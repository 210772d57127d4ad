// Names of events against a plain list: what is known, what has left the window, what a restart
// has.
#include "runtime/stream/rt_ids.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/rt_hash.h"
#include "tests/support/test.h"

static rt_ids *make(uint32_t window, uint32_t ahead)
{
    rt_ids *ids;
    assert_int_equal(rt_ids_create(window, ahead, &ids), RT_OK);
    return ids;
}

static bool is_in_list(const uint64_t *list, uint64_t count, uint32_t window, uint64_t hash)
{
    for (uint64_t i = count > window ? count - window : 0; i < count; i++)
        if (list[i] == hash && hash)
            return true;
    return false;
}

static void agrees_with_a_list(void **state)
{
    (void)state;
    enum { COUNT = 20000, WINDOW = 300 };
    uint64_t *list = calloc(COUNT, sizeof *list), count = 0;
    rt_random random = {1};
    rt_ids *ids = make(WINDOW, 100);
    for (uint32_t i = 0; i < COUNT; i++) {
        // Few values, clustered in a small table, and some without a name.
        const uint64_t hash = rt_random_below(&random, 700) * 3u;
        const bool known = is_in_list(list, count, WINDOW, hash);
        assert_int_equal(rt_ids_has(ids, hash), known);
        if (known) {
            rt_ids_note(ids);
            continue;
        }
        list[count++] = hash;
        rt_ids_add(ids, hash);
    }
    assert_true(rt_ids_repeated(ids) > 1000);
    assert_int_equal(rt_ids_repeated(ids) + count, COUNT);
    rt_ids_destroy(ids);
    free(list);
}

// Saved as it was some events ago, while more came: the copy knows just what was known then.
static void comes_back_as_it_was(void **state)
{
    (void)state;
    enum { WINDOW = 50, AHEAD = 40 };
    for (uint64_t at = 1; at < 400; at += 37) {
        rt_ids *ids = make(WINDOW, AHEAD), *copy = make(WINDOW, AHEAD);
        rt_bytes bytes = {0};
        for (uint64_t i = 0; i < at + AHEAD; i++)
            rt_ids_add(ids, rt_mix(i + 1));
        rt_ids_save(ids, at, &bytes);
        rt_reader reader = rt_bytes_reader(&bytes);
        assert_true(rt_ids_are_next(&reader));
        assert_int_equal(rt_ids_load(copy, &reader, NULL), RT_OK);
        assert_int_equal(reader.left, 0);
        for (uint64_t i = 0; i < at + AHEAD; i++)
            assert_int_equal(rt_ids_has(copy, rt_mix(i + 1)), i < at && i + WINDOW >= at);
        rt_bytes more = {0};
        rt_ids_save(copy, at, &more);
        assert_int_equal(more.size, bytes.size);
        assert_memory_equal(more.data, bytes.data, bytes.size);
        rt_bytes_fini(&more);
        rt_bytes_fini(&bytes);
        rt_ids_destroy(ids);
        rt_ids_destroy(copy);
    }
}

static void refuses_other_bytes(void **state)
{
    (void)state;
    rt_bytes bytes = {0};
    rt_error error = {0};
    rt_ids *ids = make(10, 10);
    for (uint64_t i = 0; i < 10; i++)
        rt_ids_add(ids, rt_mix(i + 1));
    rt_ids_save(ids, 10, &bytes);
    for (size_t size = 0; size < bytes.size; size += 7) {
        rt_reader reader = {bytes.data, size, false};
        rt_ids *copy = make(10, 10);
        assert_int_equal(rt_ids_load(copy, &reader, &error), RT_DATA);
        rt_ids_destroy(copy);
    }
    bytes.data[0] ^= 1;
    rt_reader reader = rt_bytes_reader(&bytes);
    assert_false(rt_ids_are_next(&reader));
    rt_bytes_fini(&bytes);
    rt_ids_destroy(ids);
}

TEST_MAIN(TEST(agrees_with_a_list), TEST(comes_back_as_it_was), TEST(refuses_other_bytes))
