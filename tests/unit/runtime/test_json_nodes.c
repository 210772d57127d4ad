// rt_json_nodes: the values of a text, and which texts are none; libcjson is asked for its opinion.
#include "runtime/rt_json_nodes.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/rt_hash.h"
#include "runtime/rt_json_read.h"
#include "tests/support/test.h"

// In a block of its own size, so that a byte behind it would be noticed; the caller's.
static char *copy_of(const char *text, size_t size)
{
    char *copy = malloc(size + (size == 0));
    memcpy(copy, text, size);
    return copy;
}

// That both have the same values. libcjson's names and strings end at a zero, here they have lengths.
static void compare(const rt_json_nodes *json, uint32_t number, const cJSON *tree)
{
    const rt_json_node *node = &json->nodes[number];
    const bool kinds[] = {cJSON_IsNull(tree),   cJSON_IsFalse(tree), cJSON_IsTrue(tree),
                          cJSON_IsNumber(tree), cJSON_IsString(tree), cJSON_IsArray(tree),
                          cJSON_IsObject(tree)};
    assert_true(kinds[node->kind]);
    assert_int_equal(node->name != NULL, tree->string != NULL);
    if (tree->string) {
        assert_int_equal(node->name_length, strlen(tree->string));
        assert_memory_equal(node->name, tree->string, node->name_length);
    }
    if (node->kind == RT_JSON_STRING) {
        assert_int_equal(node->length, strlen(tree->valuestring));
        assert_memory_equal(node->text, tree->valuestring, node->length);
    }
    if (node->kind == RT_JSON_NUMBER) {
        assert_true(rt_json_node_number(node) == tree->valuedouble);
        assert_int_equal(node->is_integer, strcspn(node->text, ".eE") >= node->length);
    }
    uint32_t child = node->child;
    for (const cJSON *one = tree->child; one; one = one->next) {
        assert_true(child > 0 && child < json->count);
        compare(json, child, one);
        child = json->nodes[child].next;
    }
    assert_int_equal(child, 0);
}

static void must_be(rt_json_nodes *json, const char *text)
{
    size_t byte, size = strlen(text);
    char *copy = copy_of(text, size);
    if (rt_json_nodes_parse(json, copy, size, &byte))
        fail_msg("refused at byte %zu: %s", byte, text);
    cJSON *tree = rt_json_parse(text, size, &byte);
    assert_non_null(tree);
    compare(json, 0, tree);
    cJSON_Delete(tree);
    free(copy);
}

static void values(void **state)
{
    static const char *const texts[] = {
        "1", " {} ", "[]", "null", "true", "false", "\"\"", "-0", "0", "-12.50e+3", "1E-7", "1e400",
        "123456789012345678901234567890", "[1, 2 ,3]\r\n\t ", "[[],{},[[]],null]",
        "\"a\\\\u0000\"", "\"\\u00e9\\u20ac\\ud83d\\ude00\\u0041\"", "\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"",
        "{\"a\": {\"b\": [1, \"x\", {}]}, \"\": 2, \"\\u0061\": \"\\n\", \"a\":3}\n",
        "[\"plain\", \"es\\tcaped\", \"plain\", \"\\\\\"]", "\"\xc3\xa9 \xff\""};
    rt_json_nodes json = {0};
    (void)state;
    for (size_t i = 0; i < RT_COUNT_OF(texts); i++)
        must_be(&json, texts[i]);
    rt_json_nodes_fini(&json);
}

static void texts_that_are_none(void **state)
{
    static const struct {
        const char *text;
        size_t size, byte;
    } cases[] = {
        {"", 0, 0},           {"  ", 2, 2},           {"[1] 2", 5, 4},      {"{\"a\": 1}}", 9, 8},
        {"[1, tru]", 8, 4},   {"[1,]", 4, 3},         {"[1 2]", 5, 3},      {"{\"a\" 1}", 7, 5},
        {"{a: 1}", 6, 1},     {"{\"a\": 1,}", 9, 8},  {"[", 1, 1},          {"[1", 2, 2},
        {"01", 2, 0},         {"-", 1, 0},            {"[1.]", 4, 1},       {"[.5]", 4, 1},
        {"[1e]", 4, 1},       {"[+1]", 4, 1},         {"\"a", 2, 0},        {"\"\\q\"", 4, 0},
        {"[1\0]", 4, 2},      {"\"a\0\"", 4, 0},      {"\"\\u0000\"", 8, 0}, {"\"\\ud800\"", 8, 0},
        {"\"\\ude00\"", 8, 0}, {"\"\\ud800\\u0041\"", 14, 0}, {"\"\\u00g0\"", 8, 0},
        {"\"\\u00", 5, 0},    {"\"\\", 2, 0},         {"nul", 3, 0},        {"[\"\\n\\", 5, 1}};
    rt_json_nodes json = {0};
    (void)state;
    for (size_t i = 0; i < RT_COUNT_OF(cases); i++) {
        size_t byte = SIZE_MAX;
        char *copy = copy_of(cases[i].text, cases[i].size);
        if (rt_json_nodes_parse(&json, copy, cases[i].size, &byte) != RT_DATA ||
            byte != cases[i].byte)
            fail_msg("%s: byte %zu, expected %zu", cases[i].text, byte, cases[i].byte);
        free(copy);
    }
    rt_json_nodes_fini(&json);
}

static void depth_has_a_bound(void **state)
{
    char text[2 * RT_JSON_NODES_DEPTH_MAX + 3];
    size_t byte;
    rt_json_nodes json = {0};
    (void)state;
    for (size_t depth = RT_JSON_NODES_DEPTH_MAX; depth <= RT_JSON_NODES_DEPTH_MAX + 1; depth++) {
        memset(text, '[', depth);
        memset(text + depth, ']', depth);
        assert_int_equal(rt_json_nodes_parse(&json, text, 2 * depth, &byte),
                         depth > RT_JSON_NODES_DEPTH_MAX ? RT_DATA : RT_OK);
    }
    rt_json_nodes_fini(&json);
}

// Texts with some bytes changed. What is taken is what libcjson takes; what it takes beyond that is
// numbers that are none ("01", "1.") and escapes without four digits ("\u0]e9"), which it reads as 0.
static void libcjson_agrees(void **state)
{
    static const char from[] = "{\"id\": \"a\\u00e9\\n\", \"list\": [1, -2.5e3, true, null, {\"x\": "
                               "[]}, \"\\ud83d\\ude00\"], \"n\": {\"\": false, \"k\": 10}}";
    static const char bytes[] = "\"\\{}[]:, 019.-eEun\0x";
    rt_json_nodes json = {0};
    rt_random random = {7};
    uint32_t taken = 0, refused = 0;
    (void)state;
    for (uint32_t turn = 0; turn < 60000; turn++) {
        char text[sizeof from];
        size_t byte, other;
        size_t size = sizeof from - 1 - (turn % 8 == 0 ? rt_random_below(&random, 20) : 0);
        memcpy(text, from, sizeof from);
        for (uint32_t i = 0; i <= turn % 3; i++)
            text[rt_random_below(&random, (uint32_t)size)] =
                bytes[rt_random_below(&random, sizeof bytes - 1)];
        char *copy = copy_of(text, size);
        const bool good = rt_json_nodes_parse(&json, copy, size, &byte) == RT_OK;
        cJSON *tree = rt_json_parse(copy, size, &other);
        if (good && !tree)
            fail_msg("libcjson refuses at byte %zu: %.*s", other, (int)size, text);
        if (good)
            compare(&json, 0, tree);
        const bool is_escape = text[byte] == '"' && strstr(text + byte, "\\u");
        if (!good && tree && !is_escape && !strchr("-0123456789", text[byte]))
            fail_msg("refused at byte %zu: %.*s", byte, (int)size, text);
        assert_true(good || byte <= size);
        taken += good;
        refused += !good;
        cJSON_Delete(tree);
        free(copy);
    }
    if (taken < 3000 || refused < 3000)
        fail_msg("%u taken, %u refused: that shows little", taken, refused);
    rt_json_nodes_fini(&json);
}

TEST_MAIN(TEST(values), TEST(texts_that_are_none), TEST(depth_has_a_bound), TEST(libcjson_agrees))
