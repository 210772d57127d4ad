// Structs in files, by the names of their members: what builds read that have more of them, fewer,
// or the same in another order.
#include "runtime/wire/rt_fields.h"

#include <stdio.h>
#include <string.h>

#include "runtime/rt_hash.h"
#include "tests/support/test.h"

#define COUNT 3u

// One build's.
typedef struct {
    uint32_t up, down;
} part;

typedef struct {
    uint64_t samples;
    double share;
    part parts[4];
    uint32_t kind, unsaved;
    uint16_t words[6];
    uint32_t last;
} first;

#define PART_OF(XX, PART, NONE, T) \
    XX(T, up)                      \
    XX(T, down)
RT_FIELDS(part_fields, part, PART_OF, "up:4 down:4");
#define FIRST(XX, PART, NONE, T)             \
    XX(T, samples)                           \
    XX(T, share)                             \
    PART(T, parts, &part_fields) XX(T, kind) \
    NONE(T, unsaved)                         \
    XX(T, words)                             \
    XX(T, last)
RT_FIELDS(first_fields, first, FIRST,
          "samples:8 share:8 parts*4{up:4 down:4} kind:4 words:12 last:4");

// Another's: counters more, in the middle and within its parts; members in another order; one that
// has gone; longer and shorter arrays; a wider number.
typedef struct {
    uint32_t lost, up, down, more;
} longer_part;

typedef struct {
    uint64_t fresh;
    uint16_t words[4];
    longer_part parts[5];
    uint64_t kind, another;
    double share;
    uint32_t last, unsaved;
} second;

#define LONGER_PART(XX, PART, NONE, T) \
    XX(T, lost)                        \
    XX(T, up)                          \
    XX(T, down)                        \
    XX(T, more)
RT_FIELDS(longer_part_fields, longer_part, LONGER_PART, "");
#define SECOND(XX, PART, NONE, T)                   \
    XX(T, fresh)                                    \
    XX(T, words)                                    \
    PART(T, parts, &longer_part_fields) XX(T, kind) \
    XX(T, another)                                  \
    XX(T, share)                                    \
    XX(T, last)                                     \
    NONE(T, unsaved)
RT_FIELDS(second_fields, second, SECOND, "");

static void fill(void *all, size_t size)
{
    rt_random random = {size};
    for (size_t i = 0; i < size; i++)
        ((uint8_t *)all)[i] = (uint8_t)rt_random_below(&random, 256);
}

static void what_was_put_comes_back(void **state)
{
    (void)state;
    first one[COUNT], other[COUNT] = {0};
    rt_bytes bytes = {0};
    fill(one, sizeof one);
    rt_fields_put(&bytes, &first_fields, one, COUNT);
    rt_bytes_put_u32(&bytes, 77);
    rt_reader reader = rt_bytes_reader(&bytes);
    assert_true(rt_fields_are_next(&reader));
    for (uint32_t i = 0; i < COUNT; i++)
        other[i].unsaved = one[i].unsaved; // stays as it is
    assert_true(rt_fields_get(&reader, &first_fields, other, COUNT));
    assert_memory_equal(one, other, sizeof one);
    assert_int_equal(rt_reader_u32(&reader), 77);
    rt_bytes again = {0};
    rt_fields_begin(&again, &first_fields);
    for (uint32_t i = 0; i < COUNT; i++)
        rt_fields_add(&again, &first_fields, &one[i]);
    assert_int_equal(again.size + sizeof(uint32_t), bytes.size);
    assert_memory_equal(again.data, bytes.data, again.size);
    reader = rt_bytes_reader(&again);
    rt_bytes_fini(&bytes);
    rt_bytes_fini(&again);
}

static void a_build_with_more_of_it(void **state)
{
    (void)state;
    first one[COUNT];
    second other[COUNT];
    rt_bytes bytes = {0};
    fill(one, sizeof one);
    memset(other, 0xaa, sizeof other);
    rt_fields_put(&bytes, &first_fields, one, COUNT);
    rt_reader reader = rt_bytes_reader(&bytes);
    assert_true(rt_fields_get(&reader, &second_fields, other, COUNT));
    assert_int_equal(reader.left, 0);
    for (uint32_t i = 0; i < COUNT; i++) {
        assert_int_equal(other[i].fresh, 0);
        assert_int_equal(other[i].another, 0);
        assert_memory_equal(other[i].words, one[i].words, sizeof other[i].words);
        assert_int_equal(other[i].kind, one[i].kind);
        assert_memory_equal(&other[i].share, &one[i].share, sizeof(double));
        assert_int_equal(other[i].last, one[i].last);
        for (uint32_t k = 0; k < 5; k++) {
            assert_int_equal(other[i].parts[k].up, k < 4 ? one[i].parts[k].up : 0);
            assert_int_equal(other[i].parts[k].down, k < 4 ? one[i].parts[k].down : 0);
            assert_int_equal(other[i].parts[k].lost + other[i].parts[k].more, 0);
        }
    }
    rt_bytes_fini(&bytes);
}

static void a_build_with_less_of_it(void **state)
{
    (void)state;
    second one[COUNT];
    first other[COUNT];
    rt_bytes bytes = {0};
    fill(one, sizeof one);
    memset(other, 0xaa, sizeof other);
    rt_fields_put(&bytes, &second_fields, one, COUNT);
    rt_reader reader = rt_bytes_reader(&bytes);
    assert_true(rt_fields_get(&reader, &first_fields, other, COUNT));
    assert_int_equal(reader.left, 0);
    for (uint32_t i = 0; i < COUNT; i++) {
        assert_int_equal(other[i].samples, 0);
        assert_int_equal(other[i].kind, (uint32_t)one[i].kind);
        assert_memory_equal(other[i].words, one[i].words, sizeof one[i].words);
        assert_int_equal(other[i].words[4] + other[i].words[5], 0);
        assert_int_equal(other[i].unsaved, 0xaaaaaaaa);
        for (uint32_t k = 0; k < 4; k++)
            assert_int_equal(other[i].parts[k].up, one[i].parts[k].up);
    }
    reader = rt_bytes_reader(&bytes);
    assert_true(rt_fields_pass(&reader, 1));
    assert_int_equal(reader.left, 2 * (8 + 8 + 80 + 16 + 8 + 4));
    rt_bytes_fini(&bytes);
}

// Values of before files had descriptions, by the text that stands beside the list.
static void values_without_a_description(void **state)
{
    (void)state;
    first one = {0}, other;
    rt_bytes bytes = {0};
    fill(&one, sizeof one);
    rt_bytes_put_u64(&bytes, one.samples);
    rt_bytes_put_double(&bytes, one.share);
    rt_bytes_put(&bytes, one.parts, sizeof one.parts);
    rt_bytes_put_u32(&bytes, one.kind);
    rt_bytes_put(&bytes, one.words, sizeof one.words);
    rt_bytes_put_u32(&bytes, one.last);
    rt_reader reader = rt_bytes_reader(&bytes);
    other.unsaved = one.unsaved;
    assert_true(rt_fields_get(&reader, &first_fields, &other, 1));
    assert_int_equal(reader.left, 0);
    assert_memory_equal(&one, &other, sizeof one);
    reader = rt_bytes_reader(&bytes);
    assert_true(rt_fields_get_as(&reader, &first_fields, "samples:8", &other, 1));
    assert_int_equal(other.samples, one.samples);
    assert_int_equal(other.kind, 0);
    assert_int_equal(reader.left, bytes.size - 8);
    reader = rt_bytes_reader(&bytes);
    assert_false(rt_fields_get(&reader, &second_fields, &(second){0}, 1)); // nobody wrote any
    reader = rt_bytes_reader(&bytes);
    assert_true(rt_fields_pass(&reader, 20));
    assert_int_equal(reader.left, bytes.size - 20);
    rt_bytes_fini(&bytes);
}

// Cut short, or with any byte changed: refused or read, and nothing else happens.
static void damaged_descriptions(void **state)
{
    (void)state;
    second one[COUNT];
    first other[COUNT];
    rt_bytes bytes = {0};
    rt_random random = {5};
    fill(one, sizeof one);
    rt_fields_put(&bytes, &second_fields, one, COUNT);
    for (size_t size = 0; size < bytes.size; size++) {
        rt_reader reader = {bytes.data, size, false};
        assert_false(rt_fields_get(&reader, &first_fields, other, COUNT));
        assert_true(reader.failed);
    }
    for (uint32_t n = 0; n < 20000; n++) {
        const size_t at = rt_random_below(&random, (uint32_t)bytes.size - COUNT * 120);
        const uint8_t kept = bytes.data[at];
        bytes.data[at] = (uint8_t)rt_random_below(&random, 256);
        rt_reader reader = rt_bytes_reader(&bytes);
        (void)rt_fields_get(&reader, &first_fields, other, COUNT);
        bytes.data[at] = kept;
    }
    rt_bytes_fini(&bytes);
}

static void texts_that_describe_nothing(void **state)
{
    (void)state;
    static const char *const bad[] = {"",
                                      " ",
                                      "a",
                                      "a:",
                                      ":4",

                                      "a:4,b:4",
                                      "a*2",
                                      "a*2{",
                                      "a*2{b:4",
                                      "a*2{b:4}c:1",
                                      "a*{b:4}",
                                      "a:99999999999",
                                      "a*9999999{b:9999999}",
                                      "a*2{b*2{c*2{d*2{e*2{f:1}}}}}",
                                      "a:4 }",
                                      "a:4 {b:4}"};
    static const char *const good[] = {"last:4", "a:4 last:4", "a*2{b:4 c*3{d:1}} last:4"};
    uint8_t block[4096] = {0};
    first one;
    for (size_t i = 0; i < RT_COUNT_OF(bad); i++) {
        rt_reader reader = {block, sizeof block, false};
        if (rt_fields_get_as(&reader, &first_fields, bad[i], &one, 1))
            fail_msg("\"%s\" is taken", bad[i]);
    }
    for (size_t i = 0; i < RT_COUNT_OF(good); i++) {
        rt_reader reader = {block, sizeof block, false};
        if (!rt_fields_get_as(&reader, &first_fields, good[i], &one, 1))
            fail_msg("\"%s\" is refused", good[i]);
    }
}

TEST_MAIN(TEST(what_was_put_comes_back), TEST(a_build_with_more_of_it),
          TEST(a_build_with_less_of_it), TEST(values_without_a_description),
          TEST(damaged_descriptions), TEST(texts_that_describe_nothing))
