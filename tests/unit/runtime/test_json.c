// JSON writing: layout, escapes, numbers that read back bit for bit, files.
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cjson/cJSON.h>

#include "runtime/rt_hash.h"
#include "runtime/rt_json.h"
#include "runtime/rt_json_read.h"
#include "tests/support/test.h"

static void write_sample(rt_json *json)
{
    rt_json_begin_object(json, NULL);
    rt_json_string(json, "name", "a\"b\\c\n\x1f\x7f");
    rt_json_u64(json, "count", UINT64_MAX);
    rt_json_begin_array(json, "list");
    rt_json_double(json, NULL, 0.1);
    rt_json_bool(json, NULL, true);
    rt_json_begin_object(json, NULL);
    rt_json_end_object(json);
    rt_json_begin_array(json, NULL);
    rt_json_end_array(json);
    rt_json_end_array(json);
    rt_json_doubles(json, "doubles", (const double[]){1, -2.5}, 2);
    rt_json_u64s(json, "integers", (const uint64_t[]){7}, 1);
    rt_json_end_object(json);
}

static void test_layout(void **state)
{
    (void)state;
    rt_json json;
    size_t size;
    rt_json_init(&json, 0);
    for (int round = 0; round < 2; round++) { // the buffer is reused
        rt_json_clear(&json);
        write_sample(&json);
        const char *text = rt_json_text(&json, &size);
        assert_string_equal(text, "{\"name\":\"a\\\"b\\\\c\\u000a\\u001f\\u007f\","
                                  "\"count\":18446744073709551615,"
                                  "\"list\":[0.1,true,{},[]],"
                                  "\"doubles\":[1,-2.5],\"integers\":[7]}");
        assert_int_equal(size, strlen(text));
    }
    rt_json_fini(&json);
    rt_json_init(&json, 2);
    write_sample(&json);
    assert_string_equal(rt_json_text(&json, NULL),
                        "{\n  \"name\": \"a\\\"b\\\\c\\u000a\\u001f\\u007f\",\n"
                        "  \"count\": 18446744073709551615,\n"
                        "  \"list\": [\n    0.1,\n    true,\n    {},\n    []\n  ],\n"
                        "  \"doubles\": [\n    1,\n    -2.5\n  ],\n"
                        "  \"integers\": [\n    7\n  ]\n}");
    rt_json_fini(&json);
}

static void check_double(double value)
{
    char text[32];
    rt_json_format_double(value, text);
    double back = strtod(text, NULL);
    assert_memory_equal(&back, &value, sizeof back);
    cJSON *tree = cJSON_Parse(text);
    assert_non_null(tree);
    assert_memory_equal(&tree->valuedouble, &value, sizeof value);
    cJSON_Delete(tree);
}

static void test_numbers_read_back(void **state)
{
    (void)state;
    rt_random random = {7};
    char text[32];
    for (int i = 0; i < 30000; i++) {
        uint64_t bits = rt_random_u64(&random);
        uint32_t low = (uint32_t)bits;
        double value;
        float narrow;
        memcpy(&value, &bits, sizeof value);
        memcpy(&narrow, &low, sizeof narrow);
        if (isfinite(value))
            check_double(value);
        if (!isfinite(narrow))
            continue;
        float back = strtof(rt_json_format_float(narrow, text), NULL);
        assert_memory_equal(&back, &narrow, sizeof back);
    }
    static const double values[] = {0,
                                    -0.0,
                                    1,
                                    0.1,
                                    1e15,
                                    1e16,
                                    9007199254740991.0,
                                    5e-324,
                                    1.7976931348623157e308,
                                    0.30000000000000004};
    for (size_t i = 0; i < RT_COUNT_OF(values); i++)
        check_double(values[i]);
    assert_string_equal(rt_json_format_double(0.1, text), "0.1"); // shortest
    assert_string_equal(rt_json_format_double(9007199254740991.0, text), "9007199254740991");
    assert_string_equal(rt_json_format_float(0.02f, text), "0.02");
}

// Probabilities have a way of their own: no digit more than printf needs.
static void test_fractions_read_back(void **state)
{
    (void)state;
    rt_random random = {9};
    char text[32], want[32];
    const float ends[] = {1e-4f, 0.001f, 0.01f, 0.1f, 0x1.fffffep-1f, 0.5f, 0x1.a36e2ep-14f};
    for (size_t i = 0; i < 30000 + RT_COUNT_OF(ends); i++) {
        const double drawn = exp(rt_random_unit(&random) * log(1e-4));
        const float value = i < RT_COUNT_OF(ends) ? ends[i] : (float)drawn;
        for (int digits = 6; digits <= 9; digits++) {
            snprintf(want, sizeof want, "%.*g", digits, (double)value);
            if (strtof(want, NULL) == value)
                break;
        }
        assert_string_equal(rt_json_format_float(value, text), want);
    }
}

static void test_not_finite_is_null(void **state)
{
    (void)state;
    rt_json json;
    rt_json_init(&json, 0);
    rt_json_begin_array(&json, NULL);
    rt_json_double(&json, NULL, (double)NAN);
    rt_json_double(&json, NULL, -(double)INFINITY);
    rt_json_float(&json, NULL, INFINITY);
    rt_json_float(&json, NULL, NAN);
    rt_json_end_array(&json);
    assert_string_equal(rt_json_text(&json, NULL), "[null,null,null,null]");
    rt_json_fini(&json);
}

// Decodes one code point by the bit patterns of RFC 3629, section 3; -1 where there is none.
static int32_t decode(const unsigned char *text, size_t *length_p)
{
    static const int32_t least[5] = {0, 0, 0x80, 0x800, 0x10000};
    size_t length = text[0] < 0x80             ? 1
                    : (text[0] & 0xe0) == 0xc0 ? 2
                    : (text[0] & 0xf0) == 0xe0 ? 3
                    : (text[0] & 0xf8) == 0xf0 ? 4
                                               : 0;
    if (length <= 1) {
        *length_p = length;
        return length ? text[0] : -1;
    }
    int32_t point = text[0] & (0x7f >> length);
    for (size_t i = 1; i < length; i++) {
        if ((text[i] & 0xc0) != 0x80)
            return -1;
        point = point << 6 | (text[i] & 0x3f);
    }
    *length_p = length;
    return point < least[length] || point > 0x10ffff || (point >= 0xd800 && point <= 0xdfff)
               ? -1
               : point;
}

static void test_utf8(void **state)
{
    (void)state;
    rt_random random = {11};
    static const unsigned char edges[] = {0x41, 0x7f, 0x80, 0x8f, 0x90, 0x9f, 0xa0,
                                          0xbf, 0xc0, 0xc1, 0xc2, 0xdf, 0xe0, 0xed,
                                          0xef, 0xf0, 0xf4, 0xf5, 0xff};
    uint32_t valid_count = 0;
    for (int i = 0; i < 300000; i++) {
        unsigned char text[5] = {0};
        for (int k = 0; k < 4; k++)
            text[k] = edges[rt_random_below(&random, sizeof edges)];
        bool is_valid = true;
        for (size_t at = 0, length; at < 4 && is_valid; at += length)
            is_valid = decode(text + at, &length) >= 0;
        valid_count += is_valid;
        assert_int_equal(rt_json_is_utf8((const char *)text, 4), is_valid);
    }
    assert_true(valid_count > 1000);
    rt_json json;
    rt_json_init(&json, 0);
    rt_json_string(&json, NULL, "\xc3\xa9 \xff\xc3 \xf0\x9f\x98\x80");
    assert_string_equal(rt_json_text(&json, NULL), "\"\xc3\xa9 \\ufffd\\ufffd \xf0\x9f\x98\x80\"");
    rt_json_fini(&json);
}

static void test_save(void **state)
{
    (void)state;
    char path[512], missing[600], text[64] = "";
    rt_error error = {0};
    rt_json json;
    struct stat info;
    rt_json_init(&json, 0);
    rt_json_u64s(&json, NULL, (const uint64_t[]){1, 2}, 2);
    snprintf(path, sizeof path, "%s/summary.json", test_directory());
    for (int round = 0; round < 2; round++) { // the second replaces the first
        assert_int_equal(rt_json_save(&json, path, &error), RT_OK);
        FILE *file = fopen(path, "r");
        assert_non_null(file);
        assert_int_equal(fread(text, 1, sizeof text - 1, file), 6);
        assert_string_equal(text, "[1,2]\n");
        fclose(file);
    }
    snprintf(missing, sizeof missing, "%s.new", path);
    assert_int_not_equal(stat(missing, &info), 0); // nothing is left beside
    snprintf(missing, sizeof missing, "%s/not/there", path);
    assert_int_equal(rt_json_save(&json, missing, &error), RT_IO);
    assert_non_null(strstr(error.text, "/not/there.new: cannot be written: "));
    rt_json_fini(&json);
}

// ---- reading -----------------------------------------------------------------------------------

// In a block of its own size, so that a byte behind it would be noticed. NULL: refused, at *byte_p.
static cJSON *parse(const char *text, size_t size, size_t *byte_p)
{
    char *copy = malloc(size + (size == 0));
    memcpy(copy, text, size);
    cJSON *tree = rt_json_parse(copy, size, byte_p);
    free(copy);
    return tree;
}

static void test_parse(void **state)
{
    static const char *const texts[] = {
        "1",     " {} ",        "[1, 2]\r\n\t ",         "\"a\\\\u0000\"",
        "null ", "\"\\u00e9\"", "{\"a\": {\"b\": []}}\n"};
    (void)state;
    for (size_t i = 0; i < RT_COUNT_OF(texts); i++) {
        size_t byte = SIZE_MAX;
        cJSON *tree = parse(texts[i], strlen(texts[i]), &byte);
        if (!tree)
            fail_msg("refused at byte %zu: %s", byte, texts[i]);
        cJSON_Delete(tree);
    }
    cJSON *tree = rt_json_parse("\"a\\\\u0000\"", 10, NULL);
    assert_string_equal(cJSON_GetStringValue(tree), "a\\u0000");
    cJSON_Delete(tree);
}

static void test_parse_refuses(void **state)
{
    static const struct {
        const char *text;
        size_t size, byte;
    } cases[] = {
        {"", 0, 0},
        {"[1] 2", 5, 4},
        {"{\"a\": 1}}", 9, 8},
        {"[1, tru]", 8, 4},
        {"[1\0]", 4, 2},
        {"1\0", 2, 1},
        {"\"\\u0000\"", 8, 1},
        {"\"\\\\\\u0000\"", 10, 3},
        {"\"\\\\u0000 \\u0000\"", 16, 9},
        {"[\"\\u0000\", \0]", 13, 2},
        {"\"\\ud800\"", 8, 1},
    };
    (void)state;
    for (size_t i = 0; i < RT_COUNT_OF(cases); i++) {
        size_t byte = SIZE_MAX;
        cJSON *tree = parse(cases[i].text, cases[i].size, &byte);
        if (tree)
            fail_msg("accepted: %s", cases[i].text);
        if (byte != cases[i].byte)
            fail_msg("byte %zu, expected %zu: %s", byte, cases[i].byte, cases[i].text);
    }
}

TEST_MAIN(TEST(test_parse), TEST(test_parse_refuses), TEST(test_layout),
          TEST(test_numbers_read_back), TEST(test_fractions_read_back),
          TEST(test_not_finite_is_null), TEST(test_utf8), TEST(test_save))
