// Samples from cells by name: the keys and numbers are those of the same line read from a file.
#include "tests/support/test.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "edge_worker/predict/ew_cells.h"
#include "edge_worker/serve/ew_question.h"
#include "runtime/rt_hash.h"
#include "runtime/stream/rt_parser.h"

static rt_config config;

static ew_cells *cells_of(const char *const *sets)
{
    ew_cells *cells;
    rt_error error = {0};
    assert_int_equal(rt_config_init(&config), RT_OK);
    for (; *sets; sets++)
        if (rt_config_set(&config, *sets, &error))
            fail_msg("%s", error.text);
    if (ew_cells_create(&config, &cells, &error))
        fail_msg("%s", error.text);
    return cells;
}

static void put(ew_cells *cells, const char *name, const char *text)
{
    const uint32_t column = ew_cells_find(cells, name, strlen(name));
    assert_int_not_equal(column, EW_CELL_NONE);
    ew_cells_put(cells, column, text, strlen(text));
}

static uint64_t hashed(uint32_t field, const char *text)
{
    return rt_key(field, rt_hash_bytes(text, strlen(text)));
}

static const char *const table[] = {
    "stream.format=table",
    "stream.table={\"delimiter\": \"\\t\", \"header\": true, \"columns\": ["
    "{\"name\": \"y\", \"kind\": \"label\", \"value\": \"1\"},"
    "{\"name\": \"price\", \"kind\": \"dense\"},"
    "{\"name\": \"note\", \"kind\": \"ignore\"},"
    "{\"name\": \"shop\", \"kind\": \"categorical\", \"id\": \"hash\"},"
    "{\"name\": \"tags\", \"kind\": \"multi\", \"id\": \"number\", \"separator\": \"|\","
    " \"values_max\": 3}]}",
    NULL};

static void a_table(void **state)
{
    static const char odd[] = "a,\"b\"\nc\td";
    ew_cells *cells = cells_of(table);
    rt_batch batch;
    rt_error error = {0};
    (void)state;
    rt_batch_init(&batch, 1);
    assert_int_equal(ew_cells_count(cells), 4);
    assert_int_equal(ew_cells_find(cells, "y", 1), EW_CELL_NONE);
    assert_int_equal(ew_cells_find(cells, "sho", 3), EW_CELL_NONE);
    put(cells, "price", "2.5");
    put(cells, "shop", odd); // all that divides or quotes cells
    put(cells, "tags", "7|9|7");
    assert_int_equal(ew_cells_append(cells, &batch, &error), RT_OK);
    ew_cells_clear(cells);
    put(cells, "note", "whatever");
    assert_int_equal(ew_cells_append(cells, &batch, &error), RT_OK);
    const uint64_t want[] = {hashed(0, odd), rt_key(1, 7), rt_key(1, 9), rt_key(0, RT_ID_MISSING),
                             rt_key(1, RT_ID_MISSING)};
    assert_int_equal(batch.sample_count, 2);
    assert_int_equal(batch.key_count, 5);
    assert_memory_equal(batch.keys, want, sizeof want);
    assert_true(batch.dense[0] == 2.5f && batch.dense[1] == 0);
    put(cells, "price", "cheap");
    assert_int_equal(ew_cells_append(cells, &batch, &error), RT_DATA);
    assert_non_null(strstr(error.text, "price"));
    assert_int_equal(batch.sample_count, 2);
    static const char line[] = "0\t2.5\tx\ta\t7";
    bool goes_on;
    assert_int_equal(ew_cells_append_line(cells, line, strlen(line), &batch, &goes_on, &error),
                     RT_OK);
    assert_int_equal(
        ew_cells_append_line(cells, line + 2, strlen(line) - 2, &batch, &goes_on, &error), RT_OK);
    assert_int_equal(batch.keys[5], hashed(0, "a"));
    assert_memory_equal(&batch.keys[5], &batch.keys[7], 2 * sizeof *batch.keys);
    rt_batch_fini(&batch);
    ew_cells_destroy(cells);
    rt_config_fini(&config);
}

// Columns that are made of others, and what they are made of.
static const char *const made[] = {
    "stream.format=table",
    "stream.table.columns=["
    "{\"name\": \"note\", \"kind\": \"ignore\"},"
    "{\"name\": \"at\", \"kind\": \"time\"},"
    "{\"kind\": \"categorical\"},"
    "{\"name\": \"stars\", \"kind\": \"ignore\"},"
    "{\"name\": \"liked\", \"kind\": \"label\", \"from\": \"stars\", \"rule\": \"at_least\","
    " \"value\": \"4\"},"
    "{\"name\": \"hour\", \"kind\": \"ignore\", \"from\": \"at\", \"transform\": \"hour\"},"
    "{\"name\": \"seen\", \"kind\": \"ignore\"},"
    "{\"name\": \"cross\", \"kind\": \"categorical\", \"from\": [\"hour\", \"seen\"]},"
    "{\"name\": \"y\", \"kind\": \"label\"},"
    "{\"name\": \"again\", \"kind\": \"label\", \"from\": \"y\"},"
    "{\"kind\": \"weight\"}]",
    NULL};

static void what_a_question_has_to_say(void **state)
{
    static const rt_cell_use uses[] = {
        RT_CELL_BESIDE, RT_CELL_NEEDED, RT_CELL_NEEDED, RT_CELL_LABEL, RT_CELL_NONE,  RT_CELL_NONE,
        RT_CELL_NEEDED, RT_CELL_NONE,   RT_CELL_LABEL,  RT_CELL_NONE,  RT_CELL_BESIDE};
    static const char *const names[] = {"note", "at", "3", "stars", "seen"};
    // With labels, which may be anything, and without; weights are not looked at, nor notes.
    static const char *const lines[] = {"n,7300,a,5,s,1,2", "n,7300,a,many,s,,heavy", ",7300,a,s,"};
    ew_cells *cells = cells_of(made);
    rt_batch batch;
    rt_error error = {0};
    bool goes_on, is_header;
    (void)state;
    for (uint32_t i = 0; i < RT_COUNT_OF(uses); i++)
        assert_int_equal(rt_columns_use(ew_cells_columns(cells), i), uses[i]);
    assert_int_equal(ew_cells_count(cells), RT_COUNT_OF(names));
    for (uint32_t i = 0; i < RT_COUNT_OF(names); i++)
        assert_string_equal(ew_cells_name(cells, i), names[i]);
    rt_batch_init(&batch, 0);
    put(cells, "at", "7300");
    put(cells, "3", "a");
    put(cells, "seen", "s");
    assert_int_equal(ew_cells_append(cells, &batch, &error), RT_OK);
    for (uint32_t i = 0; i < RT_COUNT_OF(lines); i++) {
        if (ew_cells_append_line(cells, lines[i], strlen(lines[i]), &batch, &goes_on, &error))
            fail_msg("%s: %s", lines[i], error.text);
        assert_memory_equal(&batch.keys[2 * i + 2], batch.keys, 2 * sizeof *batch.keys);
    }
    static const char bad[] = "n,7300,a,5,s,1";
    assert_int_equal(ew_cells_append_line(cells, bad, strlen(bad), &batch, &goes_on, &error),
                     RT_DATA);
    assert_string_equal(error.text, "expected 7 cells, or 5 without labels, found 6");
    put(cells, "at", "noon");
    assert_int_equal(ew_cells_append(cells, &batch, &error), RT_DATA);
    assert_string_equal(error.text, "at: expected a time as time_format says, found \"noon\"");
    assert_int_equal(ew_cells_refuse_name(cells, "cross", 5, &error), RT_DATA);
    assert_string_equal(error.text, "\"cross\" is made of \"hour\" and others: say that");
    static const char header[] = "seen,at,else";
    assert_int_equal(ew_cells_take_header(cells, header, strlen(header), &is_header, &error),
                     RT_DATA);
    assert_true(is_header);
    assert_non_null(strstr(error.text, "lacks this column of stream.table.columns: "));
    rt_batch_fini(&batch);
    ew_cells_destroy(cells);
    rt_config_fini(&config);
}

// The cell that names an event (stream.id) need not be a column, nor a question have it.
static void what_names_an_event_is_not_asked_for(void **state)
{
    static const char *const headers[] = {"shop\tprice\ttags", "event\tshop\tprice\ttags"};
    static const char *const lines[] = {"a\t2.5\t7", "e1\ta\t2.5\t7"};
    const char *sets[RT_COUNT_OF(table) + 1] = {"stream.id=event"};
    rt_batch batch;
    rt_error error = {0};
    bool goes_on, is_header;
    (void)state;
    memcpy(sets + 1, table, sizeof table);
    ew_cells *cells = cells_of(sets);
    rt_batch_init(&batch, 1);
    put(cells, "shop", "a");
    put(cells, "price", "2.5");
    put(cells, "tags", "7");
    assert_int_equal(ew_cells_append(cells, &batch, &error), RT_OK);
    for (uint32_t i = 0; i < RT_COUNT_OF(lines); i++) {
        if (ew_cells_take_header(cells, headers[i], strlen(headers[i]), &is_header, &error) ||
            ew_cells_append_line(cells, lines[i], strlen(lines[i]), &batch, &goes_on, &error))
            fail_msg("%s: %s", headers[i], error.text);
        assert_true(is_header);
        assert_memory_equal(&batch.keys[2 * i + 2], batch.keys, 2 * sizeof *batch.keys);
    }
    rt_batch_fini(&batch);
    ew_cells_destroy(cells);
    rt_config_fini(&config);
}

static void criteo_and_the_generator(void **state)
{
    ew_cells *cells = cells_of((const char *const[]){"stream.format=criteo", NULL});
    rt_batch batch;
    rt_error error = {0};
    (void)state;
    rt_batch_init(&batch, 13);
    put(cells, "I13", "1");
    put(cells, "C1", "0000ffff");
    put(cells, "C26", "00000010");
    assert_int_equal(ew_cells_append(cells, &batch, &error), RT_OK);
    assert_true(batch.dense[0] == 0 && batch.dense[12] == 0x1.62e43p-1f); // log 2
    assert_int_equal(batch.keys[0], rt_key(0, 0xffff));
    assert_int_equal(batch.keys[1], rt_key(1, RT_ID_MISSING));
    assert_int_equal(batch.keys[25], rt_key(25, 16));
    ew_cells_destroy(cells);
    rt_config_fini(&config);
    cells = cells_of((const char *const[]){"stream.format=synthetic", NULL});
    put(cells, "D2", "-0.5");
    rt_batch_clear(&batch);
    assert_int_equal(ew_cells_append(cells, &batch, &error), RT_OK);
    assert_true(batch.dense[1] == -0.5f && batch.dense[0] == 0);
    put(cells, "D2", "x");
    assert_int_equal(ew_cells_append(cells, &batch, &error), RT_DATA);
    rt_batch_fini(&batch);
    ew_cells_destroy(cells);
    rt_config_fini(&config);
}

// ---- questions -------------------------------------------------------------------------------

#define MOST 3u

typedef struct {
    ew_cells *cells;
    ew_questions *questions;
    rt_batch batch;
    ew_question question;
    rt_error error;
} asking;

static asking ask_about(const char *const *sets)
{
    asking a = {.cells = cells_of(sets)};
    rt_schema schema;
    assert_int_equal(rt_parser_read_schema(&config.stream, 1, &schema, &a.error), RT_OK);
    assert_int_equal(ew_questions_create(a.cells, &schema, &a.questions), RT_OK);
    rt_batch_init(&a.batch, schema.dense_count);
    return a;
}

static rt_status ask(asking *a, const char *body)
{
    return ew_question_take(a->questions, body, strlen(body), false, MOST, &a->batch, &a->question,
                            &a->error);
}

static void end_asking(asking *a)
{
    rt_batch_fini(&a->batch);
    ew_questions_destroy(a->questions);
    ew_cells_destroy(a->cells);
    rt_config_fini(&config);
}

static void must_refuse(asking *a, const char *body, rt_status status, const char *text)
{
    const uint32_t samples = a->batch.sample_count, keys = a->batch.key_count;
    assert_int_equal(ask(a, body), status);
    if (!strstr(a->error.text, text))
        fail_msg("%s: \"%s\" is not in: %s", body, text, a->error.text);
    assert_int_equal(a->batch.sample_count, samples);
    assert_int_equal(a->batch.key_count, keys);
}

// What a number, a word, a string with escapes and an array are as a cell; what the context says.
static void questions_in_json(void **state)
{
    static const char *const values[][2] = {{"58", "58"},
                                            {"-7", "-7"},
                                            {"\"58\"", "58"},
                                            {"-0", "0"},
                                            {"1e2", "100"},
                                            {"2.50", "2.5"},
                                            {"1.0", "1"},
                                            {"true", "1"},
                                            {"false", "0"},
                                            {"-0.0", "0"},
                                            {"\"a\\u00e9\\\"\"", "a\xc3\xa9\""},
                                            {"9007199254740991", "9007199254740991"}};
    char body[400];
    asking a = ask_about(table);
    (void)state;
    for (size_t i = 0; i < RT_COUNT_OF(values); i++) {
        snprintf(body, sizeof body, "{\"candidates\": [{\"shop\": %s}]}", values[i][0]);
        rt_batch_clear(&a.batch);
        if (ask(&a, body))
            fail_msg("%s: %s", body, a.error.text);
        if (a.batch.keys[0] != hashed(0, values[i][1]))
            fail_msg("%s is not the cell %s", values[i][0], values[i][1]);
    }
    rt_batch_clear(&a.batch);
    assert_int_equal(ask(&a, "{\"id\": \"x\", \"candidates\": [{\"shop\": \"s\", \"tags\": [3, 4]},"
                             " {\"shop\": null}, {\"tags\": []}],"
                             " \"context\": {\"price\": 2.5, \"tags\": [7, 9], \"shop\": \"c\"}} "),
                     RT_OK);
    const uint64_t want[] = {
        hashed(0, "s"), rt_key(1, 3), rt_key(1, 4),   rt_key(0, RT_ID_MISSING),
        rt_key(1, 7),   rt_key(1, 9), hashed(0, "c"), rt_key(1, RT_ID_MISSING)};
    assert_int_equal(a.question.count, 3);
    assert_string_equal(a.question.id, "x");
    assert_int_equal(a.batch.key_count, RT_COUNT_OF(want));
    assert_memory_equal(a.batch.keys, want, sizeof want);
    assert_true(a.batch.dense[0] == 2.5f && a.batch.dense[2] == 2.5f);
    end_asking(&a);
}

// A question has the ids of a line with the same JSON, or neither has any.
static void questions_as_lines_of_json(void **state)
{
    static const char *const sets[] = {
        "stream.format=json",
        "stream.table.columns=[{\"name\": \"y\", \"kind\": \"label\"},"
        "{\"name\": \"shop\", \"kind\": \"categorical\"},"
        "{\"name\": \"tags\", \"kind\": \"multi\"}]",
        NULL};
    static const char *const values[] = {"true",
                                         "false",
                                         "null",
                                         "0",
                                         "-0",
                                         "-7",
                                         "0.1",
                                         "-2.50",
                                         "1e2",
                                         "1e-7",
                                         "1e21",
                                         "1e22",
                                         "1e300",
                                         "1e400",
                                         "9007199254740991",
                                         "9007199254740992",
                                         "9007199254740993",
                                         "-9007199254740992",
                                         "\"true\"",
                                         "\"0.1\"",
                                         "\"\\u00e9 \\\"\\n\"",
                                         "[1]",
                                         "{}"};
    char text[200];
    asking a = ask_about(sets);
    (void)state;
    static const char *const formats[] = {"\"shop\": %s", "\"tags\": [%s]", "\"tags\": [\"x\", %s]",
                                          "\"tags\": [%s, \"x\"]", "\"tags\": [%s, \"\"]"};
    for (size_t i = 0; i < RT_COUNT_OF(formats) * RT_COUNT_OF(values); i++) {
        const char *value = values[i / RT_COUNT_OF(formats)];
        const char *format = formats[i % RT_COUNT_OF(formats)];
        char members[100];
        bool goes_on;
        snprintf(members, sizeof members, format, value);
        rt_batch_clear(&a.batch);
        const int size = snprintf(text, sizeof text, "{%s}", members);
        const rt_status line =
            ew_cells_append_line(a.cells, text, (size_t)size, &a.batch, &goes_on, &a.error);
        const uint32_t keys = a.batch.key_count;
        snprintf(text, sizeof text, "{\"candidates\": [{%s}]}", members);
        const rt_status asked = ask(&a, text);
        if (asked != line || a.batch.key_count != 2 * keys ||
            memcmp(a.batch.keys, a.batch.keys + keys, keys * sizeof *a.batch.keys) != 0)
            fail_msg("%s: another id than in a line", members);
    }
    end_asking(&a);
}

static void binary_questions_have_numbers(void **state)
{
    struct {
        ew_question_header header;
        uint64_t keys[2];
        float price;
    } body = {{EW_QUESTION_MAGIC, 1, 2, 1}, {rt_key(0, 5), rt_key(1, 6)}, 2.5f};
    static const float none[] = {NAN, INFINITY, -INFINITY};
    const size_t size = offsetof(typeof(body), price) + sizeof body.price;
    asking a = ask_about(table);
    (void)state;
    assert_int_equal(ew_question_take(a.questions, (const char *)&body, size, true, MOST, &a.batch,
                                      &a.question, &a.error),
                     RT_OK);
    for (size_t i = 0; i < RT_COUNT_OF(none); i++) {
        body.price = none[i];
        assert_int_equal(ew_question_take(a.questions, (const char *)&body, size, true, MOST,
                                          &a.batch, &a.question, &a.error),
                         RT_DATA);
        assert_non_null(strstr(a.error.text, "candidate 0: dense feature 0 is not finite"));
    }
    assert_int_equal(a.batch.sample_count, 1);
    end_asking(&a);
}

// With 64 bits what was read is what was asked.
static void a_binary_question_of_64_bits(void **state)
{
    struct {
        ew_question_header header;
        uint64_t keys[2];
        double price;
    } body = {{EW_QUESTION_LONG_MAGIC, 1, 2, 1}, {rt_key(0, 5), rt_key(1, 6)}, 1764000000.25};
    asking a = ask_about(table);
    (void)state;
    assert_int_equal(ew_question_take(a.questions, (const char *)&body, sizeof body, true, MOST,
                                      &a.batch, &a.question, &a.error),
                     RT_OK);
    assert_true(a.batch.read[0] == 1764000000.25);
    body.price = 1e39;
    assert_int_equal(ew_question_take(a.questions, (const char *)&body, sizeof body, true, MOST,
                                      &a.batch, &a.question, &a.error),
                     RT_DATA);
    assert_non_null(strstr(a.error.text, "candidate 0: dense feature 0 is not finite"));
    assert_int_equal(ew_question_take(a.questions, (const char *)&body, sizeof body - 4, true, MOST,
                                      &a.batch, &a.question, &a.error),
                     RT_DATA);
    assert_non_null(strstr(a.error.text, "36 bytes, expected 40"));
    end_asking(&a);
}

// As in a line of JSON: objects in objects, columns by their paths; and by their names, as ever.
static void questions_have_objects_in_objects(void **state)
{
    (void)state;
    static const char *const sets[] = {
        "stream.format=json",
        "stream.table.columns=[{\"name\":\"y\",\"kind\":\"label\",\"path\":\"out.sold\"},"
        "{\"name\":\"who\",\"kind\":\"categorical\",\"path\":\"user.id\"},"
        "{\"name\":\"user.age\",\"kind\":\"dense\"},"
        "{\"name\":\"tags\",\"kind\":\"multi\",\"path\":\"item.more.tags\"}]",
        NULL};
    static const char *const alike[] = {
        "{\"context\": {\"who\": 7, \"user.age\": 30}, \"candidates\": [{\"tags\": [\"a\", \"b\"]}]}",
        "{\"context\": {\"user\": {\"id\": 7, \"age\": 30}},"
        " \"candidates\": [{\"item\": {\"more\": {\"tags\": [\"a\", \"b\"]}}}]}",
        "{\"context\": {\"user.id\": 7}, \"candidates\": [{\"user\": {\"age\": 30},"
        " \"item\": {\"more.tags\": [\"a\", \"b\"]}}]}"};
    asking a = ask_about(sets);
    for (size_t i = 0; i < RT_COUNT_OF(alike); i++) {
        if (ask(&a, alike[i]))
            fail_msg("%s: %s", alike[i], a.error.text);
        assert_int_equal(a.batch.key_count, 3 * (i + 1));
        assert_memory_equal(a.batch.keys + 3 * i, a.batch.keys, 3 * sizeof *a.batch.keys);
        assert_true(a.batch.read[i] == 30);
    }
    must_refuse(&a, "{\"candidates\": [{\"user\": {\"name\": 1}}]}", RT_DATA,
                "no column \"user.name\"; it has who, user.age, tags");
    must_refuse(&a, "{\"candidates\": [{\"user\": {\"id\": 1}, \"who\": 2}]}", RT_DATA,
                "\"who\" stands twice");
    must_refuse(&a, "{\"candidates\": [{\"user\": {\"id\": {}}}]}", RT_DATA, "expected a string");
    must_refuse(&a, "{\"candidates\": [{\"user\": [1]}]}", RT_DATA, "no column \"user\"");
    must_refuse(&a, "{\"candidates\": [{\"out\": {\"sold\": 1}}]}", RT_DATA,
                "no column \"out.sold\"");
    end_asking(&a);
}

// What columns there are is said, as far as there is room.
static void many_columns_are_cut(void **state)
{
    (void)state;
    asking a = ask_about((const char *const[]){NULL}); // Criteo's
    must_refuse(&a, "{\"candidates\": [{\"colour\": 1}]}", RT_DATA,
                "no column \"colour\"; it has I1, I2, ");
    if (!strstr(a.error.text, "C26") && !strstr(a.error.text, " more"))
        fail_msg("%s", a.error.text);
    end_asking(&a);
}

static void questions_that_are_none(void **state)
{
    asking a = ask_about(table);
    (void)state;
    must_refuse(&a, "", RT_DATA, "no JSON (byte 0)");
    must_refuse(&a, "[]", RT_DATA, "expected {\"context\"");
    must_refuse(&a, "{}", RT_DATA, "expected {\"context\"");
    must_refuse(&a, "{\"candidates\": {}}", RT_DATA, "expected {\"context\"");
    must_refuse(&a, "{\"context\": [], \"candidates\": [{}]}", RT_DATA, "expected {\"context\"");
    must_refuse(&a, "{\"candidates\": []}", RT_DATA, "no candidates");
    must_refuse(&a, "{\"candidates\": [{},{},{},{}]}", RT_LIMIT, "more than 3");
    must_refuse(&a, "{\"candidates\": [{}, 1]}", RT_DATA, "candidate 1: expected an object");
    must_refuse(&a, "{\"candidates\": [{\"shop\": {}}]}", RT_DATA, "\"shop\": expected a string");
    must_refuse(&a, "{\"candidates\": [{\"shop\": [1]}]}", RT_DATA, "expected one value");
    must_refuse(&a, "{\"candidates\": [{\"tags\": [[1]]}]}", RT_DATA, "values in an array");
    must_refuse(&a, "{\"candidates\": [{\"tags\": [\"1|2\"]}]}", RT_DATA, "contains the separator");
    must_refuse(&a, "{\"candidates\": [{\"shop\": 1e17}]}", RT_DATA, "beyond 2^53");
    must_refuse(&a, "{\"candidates\": [{\"shop\": 9007199254740995}]}", RT_DATA, "beyond 2^53");
    must_refuse(&a, "{\"candidates\": [{\"shop\": 9007199254740993}]}", RT_DATA, "beyond 2^53");
    must_refuse(&a, "{\"candidates\": [{\"shop\": 1, \"shop\": 2}]}", RT_DATA,
                "\"shop\" stands twice");
    must_refuse(&a, "{\"candidates\": [{\"sho\": 1}]}", RT_DATA, "no column \"sho\"");
    must_refuse(&a, "{\"candidates\": [{\"price\": \"x\"}]}", RT_DATA, "price");
    must_refuse(&a, "{\"context\": {\"y\": 1}, \"candidates\": [{}]}", RT_DATA, "context: ");
    must_refuse(&a, "{\"candidates\": [{}], \"more\": 1}", RT_DATA, "unknown member \"more\"");
    must_refuse(&a, "{\"candidates\": [{}], \"candidates\": [{}]}", RT_DATA, "stands twice");
    must_refuse(&a, "{\"id\": 7, \"candidates\": [{}]}", RT_DATA, "\"id\": expected a string");
    must_refuse(&a, "{\"candidates\": [{}]} x", RT_DATA, "no JSON (byte 21)");
    must_refuse(&a, "{\"candidates\": [{}, {\"shop\": tru}]}", RT_DATA, "no JSON (byte 29)");
    must_refuse(&a, "{\"candidates\": [{\"shop\": \"\\q\"}]}", RT_DATA, "no JSON");
    must_refuse(&a, "{\"candidates\": [{\"shop\": \"a\"", RT_DATA, "no JSON");
    static char wide[128 << 10];
    snprintf(wide, sizeof wide, "{\"candidates\": [{}]}%70000s", " ");
    assert_int_equal(ask(&a, wide), RT_OK);
    snprintf(wide, sizeof wide, "{\"candidates\": [{}]}%72000s", " ");
    must_refuse(&a, wide, RT_LIMIT, "expected at most 71680");
    end_asking(&a);
}

TEST_MAIN(TEST(questions_in_json), TEST(questions_as_lines_of_json), TEST(questions_that_are_none),
          TEST(questions_have_objects_in_objects), TEST(many_columns_are_cut),
          TEST(a_binary_question_of_64_bits), TEST(binary_questions_have_numbers), TEST(a_table),
          TEST(what_a_question_has_to_say), TEST(what_names_an_event_is_not_asked_for),
          TEST(criteo_and_the_generator))
