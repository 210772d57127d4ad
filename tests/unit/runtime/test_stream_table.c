// rt_table: against values worked out by hand, strtod and XXH3.
#include "tests/unit/runtime/test_stream_support.h"

#include <inttypes.h>
#include <math.h>
#include <xxhash.h>

#include "runtime/stream/rt_table.h"

#define MISSING 0xffffffffffffffull
#define ID_MASK 0xffffffffffffffull

typedef struct {
    rt_table *table;
    rt_schema schema;
    double dense[8];
    uint64_t keys[64];
    rt_line_sample sample;
    rt_line_problem problem;
} fixture;

// label, then the given columns.
static void setup(fixture *f, char delimiter, const rt_column *columns, uint32_t column_count)
{
    memset(f, 0, sizeof *f);
    rt_table_config config = {
        .delimiter = delimiter, .column_count = column_count, .columns = (rt_column *)columns};
    rt_error error = {0};
    if (rt_table_create(&config, RT_COLUMNS_SAMPLES, &f->table, &error))
        fail_msg("%s", error.text);
    rt_table_schema(f->table, &f->schema);
    assert_true(f->schema.dense_count <= 8 && f->schema.keys_per_sample_max <= 64);
    f->sample.dense = f->dense;
    f->sample.keys = f->keys;
}

static void teardown(fixture *f)
{
    rt_table_destroy(f->table);
}

static bool parse_bytes(fixture *f, const char *text, size_t length)
{
    char *block = malloc(length + 1 + RT_LINE_PAD);
    assert_non_null(block);
    memcpy(block, text, length);
    memset(block + length, '7', 1 + RT_LINE_PAD); // digits behind the line
    block[length] = '\n';
    rt_line line = {.text = block, .length = (uint32_t)length, .number = 1};
    bool is_good = rt_table_parse(f->table, &line, &f->sample, &f->problem);
    free(block);
    return is_good;
}

static bool parse(fixture *f, const char *text)
{
    return parse_bytes(f, text, strlen(text));
}

static uint64_t hash(const char *text)
{
    return XXH3_64bits(text, strlen(text)) & ID_MASK;
}

static const rt_column mixed[] = {
    {.name = "ad", .kind = RT_COLUMN_CATEGORICAL, .id = RT_ID_HASH},
    {.name = "price", .kind = RT_COLUMN_DENSE},
    {.name = "click", .kind = RT_COLUMN_LABEL, .label_value = "1"},
    {.name = "note", .kind = RT_COLUMN_IGNORE},
    {.name = "tags", .kind = RT_COLUMN_MULTI, .id = RT_ID_HASH, .separator = '|', .values_max = 3},
    {.name = "count", .kind = RT_COLUMN_DENSE, .transform = RT_TRANSFORM_LOG1P},
    {.name = "user", .kind = RT_COLUMN_CATEGORICAL, .id = RT_ID_NUMBER},
};

static void expect_keys(const fixture *f, const uint64_t *keys, uint32_t count)
{
    assert_int_equal(f->sample.key_count, count);
    for (uint32_t i = 0; i < count; i++)
        assert_int_equal(f->sample.keys[i], keys[i]);
}

static void columns_by_hand(void **state)
{
    (void)state;
    fixture f;
    setup(&f, ',', mixed, RT_COUNT_OF(mixed));
    assert_int_equal(f.schema.dense_count, 2);
    assert_int_equal(f.schema.field_count, 3);
    assert_int_equal(f.schema.keys_per_sample_max, 5);
    assert_string_equal(f.schema.field_names[0], "ad");
    assert_string_equal(f.schema.field_names[1], "tags");
    assert_string_equal(f.schema.field_names[2], "user");

    assert_true(parse(&f, "x7,-2.5,1,anything,a|b,20,0xFfFF"));
    assert_true(f.sample.label == 1 && f.dense[0] == -2.5f);
    test_close(f.dense[1], log(21), 1e-7, 0, "log1p");
    const uint64_t keys[] = {hash("x7"), 1ull << 56 | hash("a"), 1ull << 56 | hash("b"),
                             2ull << 56 | 0xffff};
    expect_keys(&f, keys, 4);

    assert_true(parse(&f, ",,0,,,,"));
    assert_true(f.sample.label == 0 && f.dense[0] == 0 && f.dense[1] == 0);
    const uint64_t empty[] = {MISSING, 1ull << 56 | MISSING, 2ull << 56 | MISSING};
    expect_keys(&f, empty, 3);

    assert_true(parse(&f, "a,0,1.0,,||b|b||a|b|c|d,-7,5"));
    assert_true(f.sample.label == 1 && f.dense[1] == 0);
    const uint64_t bag[] = {hash("a"), 1ull << 56 | hash("b"), 1ull << 56 | hash("a"),
                            1ull << 56 | hash("c"), 2ull << 56 | 5};
    expect_keys(&f, bag, 5);

    assert_true(parse(&f, "a,0,1,,|||,0,5"));
    const uint64_t hollow[] = {hash("a"), 1ull << 56 | MISSING, 2ull << 56 | 5};
    expect_keys(&f, hollow, 3);
    teardown(&f);
}

static void quoted_cells(void **state)
{
    (void)state;
    fixture f;
    setup(&f, ',', mixed, RT_COUNT_OF(mixed));
    assert_true(parse(&f, "\"x,\"\"7\"\"\",\"2.5\",\"1\",\",\"\",,\",\"a|\"\"|b\",\"1\",\"12\""));
    assert_true(f.sample.label == 1 && f.dense[0] == 2.5f);
    const uint64_t keys[] = {hash("x,\"7\""), 1ull << 56 | hash("a"), 1ull << 56 | hash("\""),
                             1ull << 56 | hash("b"), 2ull << 56 | 12};
    expect_keys(&f, keys, 5);
    assert_true(parse(&f, "\"\",\"\",\"0\",\"\"\"\",\"\",\"\",\"\""));
    const uint64_t empty[] = {MISSING, 1ull << 56 | MISSING, 2ull << 56 | MISSING};
    expect_keys(&f, empty, 3);
    assert_true(parse(&f, "a\"b\"c,1,1,,,,")); // a quote inside a cell is a byte
    assert_int_equal(f.keys[0], hash("a\"b\"c"));
    assert_true(parse(&f, "\"\"\"\",1,1,,,,"));
    assert_int_equal(f.keys[0], hash("\""));
    teardown(&f);
    setup(&f, '\t', mixed, RT_COUNT_OF(mixed));
    assert_true(parse(&f, "\"a,b\"\t1\t1\t\"\t\t\t"));
    assert_int_equal(f.keys[0], hash("\"a,b\""));
    teardown(&f);
}

static void labels_by_rule(void **state)
{
    (void)state;
    static const struct {
        rt_label_rule rule;
        const char *value, *cell;
        int want; // -1: malformed
    } cases[] = {
        {RT_LABEL_EQUALS, "1", "1", 1},       {RT_LABEL_EQUALS, "1", "1.00", 1},
        {RT_LABEL_EQUALS, "1", "0", 0},       {RT_LABEL_EQUALS, "1", "-1", 0},
        {RT_LABEL_EQUALS, "1", "10", 0},      {RT_LABEL_EQUALS, "1", "click", -1},
        {RT_LABEL_EQUALS, "1", "", -1},       {RT_LABEL_EQUALS, "click", "click", 1},
        {RT_LABEL_EQUALS, "click", "cli", 0}, {RT_LABEL_EQUALS, "click", "clicks", 0},
        {RT_LABEL_EQUALS, "click", "1", 0},   {RT_LABEL_EQUALS, "click", "", -1},
        {RT_LABEL_AT_LEAST, "4", "4", 1},     {RT_LABEL_AT_LEAST, "4", "3", 0},
        {RT_LABEL_AT_LEAST, "4", "3.999", 0}, {RT_LABEL_AT_LEAST, "4", "10", 1},
        {RT_LABEL_AT_LEAST, "4", "5e0", 1},   {RT_LABEL_AT_LEAST, "4", "x", -1},
        {RT_LABEL_AT_LEAST, "-1", "-2", 0},   {RT_LABEL_AT_LEAST, "4", "nan", -1},
    };
    for (uint32_t i = 0; i < RT_COUNT_OF(cases); i++) {
        rt_column columns[] = {{.name = "y", .kind = RT_COLUMN_LABEL, .label_rule = cases[i].rule},
                               {.name = "u", .kind = RT_COLUMN_CATEGORICAL}};
        strcpy(columns[0].label_value, cases[i].value);
        char line[64];
        sprintf(line, "%s\ta", cases[i].cell);
        fixture f;
        setup(&f, '\t', columns, 2);
        bool is_good = parse(&f, line);
        int got = is_good ? (int)f.sample.label : -1;
        if (got != cases[i].want)
            fail_msg("%s against %s: got %d, want %d", cases[i].cell, cases[i].value, got,
                     cases[i].want);
        teardown(&f);
    }
}

static const rt_column numbers[] = {
    {.name = "y", .kind = RT_COLUMN_LABEL, .label_value = "1"},
    {.name = "x", .kind = RT_COLUMN_DENSE},
    {.name = "id", .kind = RT_COLUMN_CATEGORICAL, .id = RT_ID_NUMBER},
};

static void expect_dense(fixture *f, const char *cell)
{
    char line[512];
    sprintf(line, "1,%s,", cell);
    if (!parse(f, line))
        fail_msg("%s: %s", cell, f->problem.text);
    const double want = strtod(cell, NULL);
    if (memcmp(&f->dense[0], &want, sizeof want) != 0)
        fail_msg("%s: got %.17g, want %.17g", cell, f->dense[0], want);
}

static void numbers_agree_with_strtod(void **state)
{
    (void)state;
    static const char *const cells[] = {"0",
                                        "-0",
                                        "-0.0",
                                        "1.",
                                        ".5",
                                        "-.5",
                                        "00012",
                                        "+3",
                                        "1e3",
                                        "1E-3",
                                        "1e+2",
                                        "1e-400",
                                        "3.4028234e38",
                                        "123456789012345",
                                        "1234567890123456",
                                        "12345678901234567890",
                                        "0.000000000000001",
                                        "0.00000000000000000000000001",
                                        "9007199254740993",
                                        "16777217",
                                        "16777217.0000001",
                                        "1.00000017881393432617187499",
                                        "1.00000017881393432617187500",
                                        "1.00000017881393432617187501"};
    fixture f;
    setup(&f, ',', numbers, 3);
    for (uint32_t i = 0; i < RT_COUNT_OF(cells); i++)
        expect_dense(&f, cells[i]);
    rt_random random = {11};
    for (int round = 0; round < 100000; round++) {
        char cell[64];
        uint64_t digits = rt_random_u64(&random) >> rt_random_below(&random, 63);
        switch (rt_random_below(&random, 3)) {
        case 0:
            sprintf(cell, "%lld", (long long)digits);
            break;
        case 1:
            sprintf(cell, "%" PRIu64 ".%" PRIu64, (digits % 100000),
                    (rt_random_u64(&random) >> rt_random_below(&random, 63)));
            break;
        default:
            sprintf(cell, "%s%.*e", digits & 1 ? "-" : "", (int)(digits % 20),
                    rt_random_unit(&random) * pow(10, rt_random_below(&random, 70) - 35.0));
        }
        expect_dense(&f, cell);
    }
    teardown(&f);
}

static void numbers_as_ids(void **state)
{
    (void)state;
    static const struct {
        const char *cell;
        uint64_t want;
    } good[] = {{"0", 0},
                {"00017", 17},
                {"72057594037927934", MISSING - 1},
                {"0x0", 0},
                {"0xFFFFFFFFFFFFFE", MISSING - 1},
                {"0X00000000000000ff", 255},
                {"0xabcDEF", 0xabcdef}};
    static const char *const bad[] = {"72057594037927935", // the missing id
                                      "72057594037927936",
                                      "0xffffffffffffff",
                                      "0x100000000000000",
                                      "18446744073709551617",
                                      "99999999999999999999999999",
                                      "0x10000000000000000",
                                      "0x",
                                      "x1",
                                      "-1",
                                      "+1",
                                      " 1",
                                      "1 ",
                                      "1.0",
                                      "ff",
                                      "0xg",
                                      "12:",
                                      "1/"};
    fixture f;
    setup(&f, ',', numbers, 3);
    char line[64];
    for (uint32_t i = 0; i < RT_COUNT_OF(good); i++) {
        sprintf(line, "1,,%s", good[i].cell);
        assert_true(parse(&f, line));
        assert_int_equal(f.keys[0], good[i].want);
    }
    for (uint32_t i = 0; i < RT_COUNT_OF(bad); i++) {
        sprintf(line, "1,,%s", bad[i]);
        if (parse(&f, line))
            fail_msg("%s was taken for an id", bad[i]);
        assert_non_null(strstr(f.problem.text, "column 3 (id): expected an id below"));
    }
    teardown(&f);
}

static void malformed_lines_say_why(void **state)
{
    (void)state;
    static const struct {
        const char *line, *problem;
    } cases[] = {
        {"1,2", "expected 3 cells, found 2"},
        {"1,2,3,4", "expected 3 cells, found 4"},
        {"1,2,3,", "expected 3 cells, found 4"},
        {"", "expected 3 cells, found 1"},
        {"1;2;3", "expected 3 cells, found 1: they seem to be divided by \";\" "
                  "(stream.table.delimiter)"},
        {"x,2", "expected 3 cells, found 2"}, // the count explains more than the cell
        {"1,\"2\",\"3\",\"a,b\"", "expected 3 cells, found 4"},
        {"x,2,3",
         "column 1 (y): expected a number, or with `value` the text that is label 1, found \"x\""},
        {"1,inf,3", "column 2 (x): expected a finite number or nothing, found \"inf\""},
        {"1,NaN,3", "column 2 (x): expected a finite number or nothing, found \"NaN\""},
        {"1,1e999,3", "column 2 (x): expected a finite number or nothing, found \"1e999\""},
        {"1,1e39,3", "column 2 (x): expected a finite number or nothing, found \"1e39\""},
        {"1,0x10,3", "column 2 (x): expected a finite number or nothing, found \"0x10\""},
        {"1, 2 4,3", "column 2 (x): expected a finite number or nothing, found \" 2 4\""},
        {"1,%,3", "column 2 (x): expected a finite number or nothing, found \"%\""},
        {"1,-,3", "column 2 (x): expected a finite number or nothing (`nulls` names texts "
                  "that mean nothing), found \"-\""},
        {"1,.,3", "column 2 (x): expected a finite number or nothing, found \".\""},
        {"1,1.2.3,3", "column 2 (x): expected a finite number or nothing, found \"1.2.3\""},
        {"1,1e,3", "column 2 (x): expected a finite number or nothing, found \"1e\""},
        {"1,\"2,3",
         "column 2 (x): expected a closing quote (a quoted cell may hold a few line feeds)"},
        {"1,2,\"3",
         "column 3 (id): expected a closing quote (a quoted cell may hold a few line feeds)"},
        {"1,2,\"3\"\"",
         "column 3 (id): expected a closing quote (a quoted cell may hold a few line feeds)"},
        {"1,\"2\"x,3", "column 2 (x): expected the closing quote at the end of the cell"},
        {"1,2,\"",
         "column 3 (id): expected a closing quote (a quoted cell may hold a few line feeds)"},
        {"1,\"a\"\"b\",3", "column 2 (x): expected a finite number or nothing, found \"a\"b\""},
    };
    fixture f;
    setup(&f, ',', numbers, 3);
    for (uint32_t i = 0; i < RT_COUNT_OF(cases); i++) {
        if (parse(&f, cases[i].line))
            fail_msg("%s was taken for a sample", cases[i].line);
        assert_string_equal(f.problem.text, cases[i].problem);
    }
    assert_false(parse_bytes(&f, "1,2\0,3", 6));
    assert_string_equal(f.problem.text, "expected text, found a zero byte");
    teardown(&f);
}

static void expect_config_error(const rt_column *columns, uint32_t count, const char *words)
{
    rt_table_config config = {
        .delimiter = ',', .column_count = count, .columns = (rt_column *)columns};
    rt_table *table = NULL;
    rt_error error = {0};
    assert_int_equal(rt_table_create(&config, RT_COLUMNS_SAMPLES, &table, &error), RT_CONFIG);
    assert_null(table);
    if (!strstr(error.text, words))
        fail_msg("\"%s\" does not say \"%s\"", error.text, words);
}

static void columns_that_make_no_sense(void **state)
{
    (void)state;
    rt_column columns[300] = {{.name = "y", .kind = RT_COLUMN_LABEL, .label_value = "1"}};
    for (uint32_t i = 1; i < 300; i++)
        columns[i] = (rt_column){.name = "u", .kind = RT_COLUMN_CATEGORICAL};
    expect_config_error(columns, 258, "at most 256");
    expect_config_error(columns, 1, "categorical or multi column");
    expect_config_error(columns + 1, 2, "expected a label, found 0");
    for (uint32_t i = 2; i < 10; i++)
        columns[i] = columns[0];
    expect_config_error(columns, 10, "at most 8 may be labels");
    columns[2] =
        (rt_column){.name = "m", .kind = RT_COLUMN_MULTI, .separator = ',', .values_max = 3};
    expect_config_error(columns, 3, "columns[2] (m): separator");
    columns[2].separator = '\0';
    expect_config_error(columns, 3, "columns[2] (m): separator");
    columns[2].separator = '|';
    columns[2].values_max = 0;
    expect_config_error(columns, 3, "columns[2] (m): values_max");
    columns[2].values_max = 65536;
    expect_config_error(columns, 3, "may have 65536 keys");
    columns[0].label_rule = RT_LABEL_AT_LEAST;
    strcpy(columns[0].label_value, "four");
    expect_config_error(columns, 2, "columns[0] (y): rule \"at_least\"");
}

static void numbers_as_countries_write_them(void **state)
{
    (void)state;
    static const struct {
        rt_number_format format;
        const char *cell;
        double number; // NAN: it is none
    } cases[] = {
        {RT_NUMBER_COMMA, "12,75", 12.75},
        {RT_NUMBER_COMMA, "-0,5", -0.5},
        {RT_NUMBER_COMMA, "12.75", 12.75}, // of a question in JSON
        {RT_NUMBER_COMMA, "1,2,3", NAN},
        {RT_NUMBER_COMMA, "1.234,5", NAN},
        {RT_NUMBER_COMMA_GROUPS, "1,234,567.5", 1234567.5},
        {RT_NUMBER_COMMA_GROUPS, "999", 999},
        {RT_NUMBER_COMMA_GROUPS, "12,34", NAN},
        {RT_NUMBER_COMMA_GROUPS, ",123", NAN},
        {RT_NUMBER_COMMA_GROUPS, "1.234,567", NAN},
        {RT_NUMBER_POINT_GROUPS, "1.234,5", 1234.5},
        {RT_NUMBER_POINT_GROUPS, "1.234.567", 1234567},
        {RT_NUMBER_QUOTE_GROUPS, "1'234.5", 1234.5},
        {RT_NUMBER_SPACE_GROUPS, "-1 234,5", -1234.5},
        {RT_NUMBER_SPACE_GROUPS, "1 23", NAN},
        {RT_NUMBER_PLAIN, "1,5", NAN},
        {RT_NUMBER_PLAIN, " 12 ", 12},
        {RT_NUMBER_PLAIN, "$1.50", 1.5},
        {RT_NUMBER_PLAIN, "7.5 %", 7.5},
        {RT_NUMBER_COMMA, "12,50 €", 12.5},
        {RT_NUMBER_PLAIN, "$", NAN},
        {RT_NUMBER_PLAIN, "12 a", NAN},
    };
    for (size_t i = 0; i < RT_COUNT_OF(cases); i++) {
        char text[32] = {0};
        double number;
        memcpy(text, cases[i].cell, strlen(cases[i].cell));
        const rt_cell cell = {text, strlen(text)};
        const bool is_one = rt_columns_number_as(cases[i].format, cell, &number);
        if (is_one == isnan(cases[i].number) || (is_one && number != cases[i].number))
            fail_msg("%s: %d %g", text, is_one, number);
    }
}

static void texts_that_mean_nothing(void **state)
{
    (void)state;
    fixture f;
    rt_column columns[] = {
        {.name = "y", .kind = RT_COLUMN_LABEL, .label_value = "yes"},
        {.name = "x", .kind = RT_COLUMN_DENSE, .null_count = 2, .nulls = {"NULL", "\\N"}},
        {.name = "u", .kind = RT_COLUMN_CATEGORICAL, .null_count = 1, .nulls = {"-"}},
        {.name = "z", .kind = RT_COLUMN_DENSE, .null_count = 1, .nulls = {"?"}, .missing = "7"},
    };
    setup(&f, ',', columns, 4);
    assert_true(parse(&f, "yes,NULL,-,?"));
    assert_true(f.sample.label == 1 && f.dense[0] == 0 && f.dense[1] == 7);
    expect_keys(&f, &(uint64_t){MISSING}, 1);
    assert_true(parse(&f, "no,\\N,--,"));
    assert_true(f.sample.label == 0 && f.dense[0] == 0 && f.dense[1] == 7);
    expect_keys(&f, &(uint64_t){hash("--")}, 1);
    assert_false(parse(&f, "no,NULLS,-,"));
    teardown(&f);
}

TEST_MAIN(TEST(numbers_as_countries_write_them), TEST(texts_that_mean_nothing),
          TEST(columns_by_hand), TEST(quoted_cells), TEST(labels_by_rule),
          TEST(numbers_agree_with_strtod), TEST(numbers_as_ids), TEST(malformed_lines_say_why),
          TEST(columns_that_make_no_sense))
