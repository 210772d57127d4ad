// rt_criteo: against values worked out by hand and a parser that does it the slow way.
#include "runtime/config/rt_formats.h"
#include "tests/support/config_case.h"
#include "tests/unit/runtime/test_stream_support.h"

#include <math.h>

#include "runtime/stream/rt_criteo.h"

typedef struct {
    float label;
    float dense[13];
    uint64_t keys[26];
} naive_sample;

// strsep and the C library; false where a line is not what the format says.
static bool naive_parse(const char *line, naive_sample *out)
{
    char *copy = strdup(line), *rest = copy, *end;
    int column = 0;
    bool is_good = true;
    for (char *cell; is_good && (cell = strsep(&rest, "\t")); column++) {
        size_t length = strlen(cell);
        if (column == 0) {
            is_good = strcmp(cell, "0") == 0 || strcmp(cell, "1") == 0;
            out->label = (float)atoi(cell);
        } else if (column <= 13) {
            size_t digits = strspn(cell + (*cell == '-'), "0123456789");
            is_good = digits + (*cell == '-') == length && digits <= 18 && strcmp(cell, "-") != 0;
            double value = (double)strtoll(cell, NULL, 10);
            out->dense[column - 1] = (float)log1p(value > 0 ? value : 0);
        } else if (column < 40) {
            is_good = length == 0 || (length == 8 && strspn(cell, "0123456789abcdefABCDEF") == 8);
            uint64_t field = (uint64_t)(column - 14);
            out->keys[field] = field << 56 | (length ? strtoul(cell, &end, 16) : (1ull << 56) - 1);
        }
    }
    free(copy);
    return is_good && column == 40;
}

typedef struct {
    rt_criteo *criteo;
    double dense[13];
    uint64_t keys[26];
    rt_line_sample sample;
    rt_line_problem problem;
} fixture;

static void setup(fixture *f)
{
    memset(f, 0, sizeof *f);
    assert_int_equal(rt_criteo_create(&f->criteo), RT_OK);
    f->sample.dense = f->dense;
    f->sample.keys = f->keys;
}

// The line in a block of exactly the size that the contract promises.
static bool parse(fixture *f, const char *text)
{
    size_t length = strlen(text);
    char *block = malloc(length + 1 + RT_LINE_PAD);
    assert_non_null(block);
    memcpy(block, text, length);
    memset(block + length, 'a', 1 + RT_LINE_PAD); // hexadecimal digits behind the line
    block[length] = '\n';
    rt_line line = {.text = block, .length = (uint32_t)length, .number = 1};
    bool is_good = rt_criteo_parse(f->criteo, &line, &f->sample, &f->problem);
    free(block);
    return is_good;
}

#define DENSE_EMPTY "\t\t\t\t\t\t\t\t\t\t\t\t\t"
#define IDS_EMPTY "\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t"

static void values_by_hand(void **state)
{
    (void)state;
    fixture f;
    setup(&f);
    assert_true(parse(&f, "1\t0\t1\t-5\t\t999999999999999999\t16383\t16384\t-0\t007\t\t\t\t2"
                          "\t00000000\tffffffff\tDEADbeef\t\t80000001" IDS_EMPTY) ==
                false); // too many columns
    assert_string_equal(f.problem.text, "expected 40 tab separated columns, found 45");
    assert_true(parse(&f, "1\t0\t1\t-5\t\t999999999999999999\t16383\t16384\t-0\t007\t\t\t\t2"
                          "\t00000000\tffffffff\tDEADbeef\t\t80000001"
                          "\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t0000000a"));
    assert_true(f.sample.label == 1);
    assert_int_equal(f.sample.key_count, 26);
    const float dense[13] = {0, 0.69314718f, 0, 0, 41.4465317f, 9.70406053f, 9.70412156f,
                             0, 2.07944154f, 0, 0, 0,           1.09861229f};
    for (int i = 0; i < 13; i++)
        test_close(f.dense[i], dense[i], 1e-7, 1e-3, "dense");
    const uint64_t missing = 0xffffffffffffffull;
    assert_int_equal(f.keys[0], 0);
    assert_int_equal(f.keys[1], 0x01000000ffffffffull);
    assert_int_equal(f.keys[2], 0x02000000deadbeefull);
    assert_int_equal(f.keys[3], 3ull << 56 | missing);
    assert_int_equal(f.keys[4], 0x0400000080000001ull);
    for (uint64_t i = 5; i < 25; i++)
        assert_int_equal(f.keys[i], i << 56 | missing);
    assert_int_equal(f.keys[25], 0x190000000000000aull);
    assert_true(parse(&f, "0" DENSE_EMPTY IDS_EMPTY));
    assert_true(f.sample.label == 0);
    rt_criteo_destroy(f.criteo);
}

static void schema_names_the_fields(void **state)
{
    (void)state;
    rt_schema schema;
    rt_criteo_schema(&schema);
    assert_int_equal(schema.dense_count, 13);
    assert_int_equal(schema.field_count, 26);
    assert_int_equal(schema.keys_per_sample_max, 26);
    assert_string_equal(schema.field_names[0], "C1");
    assert_string_equal(schema.field_names[25], "C26");
}

static void malformed_lines_say_why(void **state)
{
    (void)state;
    static const struct {
        const char *line, *problem;
    } cases[] = {
        {"", "expected 40 tab separated columns, found 1"},
        {"1", "expected 40 tab separated columns, found 1"},
        {"0" DENSE_EMPTY, "expected 40 tab separated columns, found 14"},
        {"0" DENSE_EMPTY IDS_EMPTY "\t", "expected 40 tab separated columns, found 41"},
        {"2" DENSE_EMPTY IDS_EMPTY, "column 1 (label): expected 0 or 1, found \"2\""},
        {"" DENSE_EMPTY IDS_EMPTY, "column 1 (label): expected 0 or 1, found \"\""},
        {"01" DENSE_EMPTY IDS_EMPTY, "column 1 (label): expected 0 or 1, found \"01\""},
        {"0\tx\t\t\t\t\t\t\t\t\t\t\t\t" IDS_EMPTY,
         "column 2 (I1): expected an integer of up to 18 digits or nothing, found \"x\""},
        {"0\t\t\t\t\t\t\t\t\t\t\t\t\t1.5" IDS_EMPTY,
         "column 14 (I13): expected an integer of up to 18 digits or nothing, found \"1.5\""},
        {"0\t-\t\t\t\t\t\t\t\t\t\t\t\t" IDS_EMPTY,
         "column 2 (I1): expected an integer of up to 18 digits or nothing, found \"-\""},
        {"0\t1000000000000000000\t\t\t\t\t\t\t\t\t\t\t\t" IDS_EMPTY,
         "column 2 (I1): expected an integer of up to 18 digits or nothing, found "
         "\"1000000000000000000\""},
        {"0\t 1\t\t\t\t\t\t\t\t\t\t\t\t" IDS_EMPTY,
         "column 2 (I1): expected an integer of up to 18 digits or nothing, found \" 1\""},
        {"0" DENSE_EMPTY IDS_EMPTY "0123456",
         "column 40 (C26): expected 8 hexadecimal digits or nothing, found \"0123456\""},
        {"0" DENSE_EMPTY IDS_EMPTY "012345678",
         "column 40 (C26): expected 8 hexadecimal digits or nothing, found \"012345678\""},
        {"0" DENSE_EMPTY IDS_EMPTY "0123456g",
         "column 40 (C26): expected 8 hexadecimal digits or nothing, found \"0123456g\""},
        {"0" DENSE_EMPTY "\x01\tab"
         "\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t",
         "column 14 (I13): expected an integer of up to 18 digits or nothing, found \"\\x01\""},
        {"0" DENSE_EMPTY "\t12345678"
         "\t123456789"
         "\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t",
         "column 16 (C2): expected 8 hexadecimal digits or nothing, found \"123456789\""},
        {"0\taaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\t\t\t\t\t\t\t\t\t\t\t\t" IDS_EMPTY,
         "column 2 (I1): expected an integer of up to 18 digits or nothing, found "
         "\"aaaaaaaaaaaaaaaaaaaaaaaa...\""},
    };
    fixture f;
    setup(&f);
    for (uint32_t i = 0; i < RT_COUNT_OF(cases); i++) {
        naive_sample naive;
        assert_false(naive_parse(cases[i].line, &naive));
        assert_false(parse(&f, cases[i].line));
        assert_string_equal(f.problem.text, cases[i].problem);
    }
    rt_criteo_destroy(f.criteo);
}

// Good lines with a few bytes changed: both parsers agree whether they are good, and on values.
static void mutated_lines_agree_with_the_naive_parser(void **state)
{
    (void)state;
    fixture f;
    setup(&f);
    rt_random random = {7};
    uint32_t good = 0, bad = 0;
    for (int round = 0; round < 60000; round++) {
        char line[1024];
        int size = sprintf(line, "%u", rt_random_below(&random, 2));
        for (int i = 0; i < 13; i++) {
            uint64_t value = rt_random_u64(&random) >> (8 + rt_random_below(&random, 56));
            const char *format = rt_random_below(&random, 4) ? "\t%llu" : "\t-%llu";
            size += rt_random_below(&random, 4) ? sprintf(line + size, format, value)
                                                : sprintf(line + size, "\t");
        }
        for (int i = 0; i < 26; i++)
            size += rt_random_below(&random, 4)
                        ? sprintf(line + size, "\t%08x", (unsigned)rt_random_u64(&random))
                        : sprintf(line + size, "\t");
        for (uint32_t changes = rt_random_below(&random, 3); changes > 0; changes--)
            line[rt_random_below(&random, (uint32_t)size)] =
                "\t0123456789abcdefF-x \x80"[rt_random_below(&random, 21)];
        naive_sample naive;
        bool want = naive_parse(line, &naive), got = parse(&f, line);
        if (want != got)
            fail_msg("naive %d, parser %d: %s", want, got, line);
        good += want;
        bad += !want;
        if (!want)
            continue;
        assert_true(f.sample.label == naive.label);
        for (uint32_t k = 0; k < 13; k++)
            assert_true((float)f.dense[k] == naive.dense[k]);
        assert_memory_equal(f.keys, naive.keys, sizeof f.keys);
    }
    assert_true(good > 20000 && bad > 20000);
    rt_criteo_destroy(f.criteo);
}

// The whole chain, stream and all, over real data.
static void real_data_agrees_with_the_naive_parser(void **state)
{
    (void)state;
    char *path = strdup(test_data_file("criteo_kaggle_100k.tsv.zst"));
    rt_stream_config config = {.format = RT_FORMAT_CRITEO, .file_count = 1, .files = &path};
    rt_error error = {0};
    rt_batch all;
    rt_stream_stats stats;
    assert_int_equal(read_all(&config, 0, 4096, &all, &stats, &error), RT_END);
    assert_int_equal(all.sample_count, 100000);
    assert_int_equal(stats.lines, 100000);
    assert_int_equal(stats.malformed, 0);
    assert_int_equal(stats.bytes_read, stats.bytes_all);
    size_t size;
    char *text = slurp(path, &size), *rest = text;
    for (uint32_t i = 0; i < all.sample_count; i++) {
        naive_sample naive;
        assert_true(naive_parse(strsep(&rest, "\n"), &naive));
        assert_true(all.labels[i] == naive.label);
        assert_int_equal(all.key_offsets[i], i * 26);
        assert_memory_equal(all.dense + i * 13, naive.dense, sizeof naive.dense);
        assert_memory_equal(all.keys + i * 26, naive.keys, sizeof naive.keys);
    }
    assert_int_equal(all.key_offsets[100000], 2600000);
    assert_string_equal(rest, "");
    rt_batch_fini(&all);
    free(text);
    free(path);
}

// configs/formats/criteo.json: the same samples as a table, whose columns can be crossed; its ids are
// hashes of the digits.
static void a_table_says_the_same(void **state)
{
    (void)state;
    rt_config config = config_fresh();
    rt_batch want, got;
    rt_error error = {0};
    config_must_set(&config, config_write_criteo(700, 0));
    config_must_set(&config, "stream.format=criteo");
    assert_int_equal(read_all(&config.stream, 0, 100, &want, NULL, &error), RT_END);
    if (rt_config_load(&config, "configs/formats/criteo.json", &error))
        fail_msg("%s", error.text);
    assert_int_equal(read_all(&config.stream, 0, 100, &got, NULL, &error), RT_END);
    assert_int_equal(got.sample_count, 700);
    assert_int_equal(distinct_of(&got), distinct_of(&want));
    for (uint32_t i = 0; i < got.key_count; i++)
        got.keys[i] = want.keys[i];
    assert_same(&got, &want);
    rt_batch_fini(&got);
    rt_batch_fini(&want);
    rt_config_fini(&config);
}

TEST_MAIN(TEST(a_table_says_the_same), TEST(values_by_hand), TEST(schema_names_the_fields),
          TEST(malformed_lines_say_why), TEST(mutated_lines_agree_with_the_naive_parser),
          TEST(real_data_agrees_with_the_naive_parser))
