// Formats of lines, columns and transforms against what Python's csv and json modules read
// (tests/golden/make_formats.py), and lines that no sample can be made of.
#include "tests/unit/runtime/test_stream_support.h"

#include <math.h>

#include "runtime/rt_date.h"
#include "tests/support/config_case.h"

#define UNIT '\x1f'
#define ITEM '\x1e'
#define END '\x1d'

#define COLUMNS(user, tags, word, when, shop)                                                   \
    "stream.table.columns=[{\"name\":\"rating\",\"kind\":\"label\",\"rule\":\"at_least\","      \
    "\"value\":\"4\"},{\"name\":\"weight\",\"kind\":\"weight\"},"                               \
    "{\"name\":\"when\",\"kind\":\"time\",\"time_format\":\"%Y-%m-%d %H:%M:%S\"" when "},"      \
    "{\"name\":\"price\",\"kind\":\"dense\",\"transform\":\"log1p\"},"                          \
    "{\"name\":\"gap\",\"kind\":\"dense\",\"missing\":\"-7.5\"},"                               \
    "{\"name\":\"word\",\"kind\":\"categorical\"" word "},"                                     \
    "{\"name\":\"user\",\"kind\":\"categorical\",\"id\":\"number\"" user "},"                   \
    "{\"name\":\"tags\",\"kind\":\"multi\"" tags "},"                                           \
    "{\"name\":\"shop\",\"kind\":\"ignore\"" shop "},"                                          \
    "{\"name\":\"hidden\",\"kind\":\"ignore\"},"                                                \
    "{\"name\":\"unused\",\"kind\":\"ignore\"},"                                                \
    "{\"name\":\"b\",\"kind\":\"dense\",\"from\":\"price\",\"transform\":\"bucket\",\"edges\":" \
    "[0,1.5,10,100]},"                                                                          \
    "{\"name\":\"hour\",\"kind\":\"categorical\",\"from\":\"when\",\"transform\":\"hour\","     \
    "\"time_format\":\"%Y-%m-%d %H:%M:%S\"},"                                                   \
    "{\"name\":\"day\",\"kind\":\"categorical\",\"from\":\"when\",\"transform\":\"weekday\","   \
    "\"time_format\":\"%Y-%m-%d %H:%M:%S\"},"                                                   \
    "{\"name\":\"class\",\"kind\":\"categorical\",\"from\":\"price\",\"transform\":\"bucket\"," \
    "\"edges\":[0,1.5,10,100]},"                                                                \
    "{\"name\":\"shop2\",\"kind\":\"categorical\",\"from\":\"shop\",\"missing\":\"none\"},"     \
    "{\"name\":\"x2\",\"kind\":\"categorical\",\"from\":[\"word\",\"hour\"]},"                  \
    "{\"name\":\"x3\",\"kind\":\"categorical\",\"from\":[\"user\",\"word\",\"hidden\"]}]"

static char *read_golden(const char *name)
{
    char path[128];
    snprintf(path, sizeof path, "tests/golden/formats/%s", name);
    FILE *file = fopen(path, "rb");
    if (!file)
        test_skip("%s is not here: run from the root of the tree", path);
    char *text = calloc(1, 1 << 20);
    assert_non_null(text);
    assert_true(fread(text, 1, (1 << 20) - 1, file) > 0);
    fclose(file);
    return text;
}

// Up to the mark, which becomes the end of the text; *at_p behind it.
static char *next(char **at_p, char mark)
{
    char *from = *at_p, *end = strchr(from, mark);
    *at_p = end ? end + 1 : from + strlen(from);
    if (end)
        *end = '\0';
    return from;
}

static uint64_t hash_id(const void *bytes, size_t size)
{
    const uint64_t id = rt_hash_bytes(bytes, size) & RT_ID_MASK;
    return id - (id == RT_ID_MISSING);
}

static uint64_t id_of(char *text)
{
    uint64_t ids[4];
    uint32_t count = 0;
    if (*text == '\0')
        return RT_ID_MISSING;
    if (*text == '=')
        return strtoull(text + 1, NULL, 10);
    if (*text != '*')
        return hash_id(text, strlen(text));
    for (char *at = text + 1, *end; at; at = end) {
        end = strchr(at, '+');
        if (end)
            *end++ = '\0';
        ids[count++] = id_of(at);
    }
    return hash_id(ids, count * sizeof *ids);
}

static uint32_t check_keys(const rt_batch *batch, uint32_t sample, char *at, uint32_t fields)
{
    uint32_t key = batch->key_offsets[sample];
    for (uint32_t f = 0; f < fields; f++) {
        char *field = next(&at, UNIT);
        do {
            assert_int_equal(batch->keys[key], rt_key(f, id_of(next(&field, ITEM))));
            key++;
        } while (*field);
    }
    return key;
}

static void check_golden(rt_config *config, const char *name, uint32_t batch_size)
{
    char path[128], out[128];
    snprintf(path, sizeof path, "stream.files=tests/golden/formats/%s.in", name);
    snprintf(out, sizeof out, "%s.out", name);
    char *text = read_golden(out), *at = text;
    config_must_set(config, path);
    rt_error error = {0};
    rt_stream *stream;
    rt_batch batch;
    if (rt_config_check(config, &error) || rt_stream_open(&config->stream, 1, &stream, &error))
        fail_msg("%s", error.text);
    const rt_schema *schema = rt_stream_schema(stream);
    rt_batch_init(&batch, schema->dense_count);
    rt_status status;
    uint32_t samples = 0;
    while (!(status = rt_stream_read(stream, &batch, batch_size, &error))) {
        for (uint32_t i = 0; i < batch.sample_count; i++, samples++) {
            char *line = next(&at, END);
            const float label = strtof(next(&line, UNIT), NULL);
            const float weight = strtof(next(&line, UNIT), NULL);
            next(&line, UNIT);
            assert_true(batch.labels[i] == (batch.is_weighted ? label * weight : label));
            assert_true(!batch.is_weighted || batch.weights[i] == weight);
            for (uint32_t k = 0; k < schema->dense_count; k++)
                assert_true(batch.dense[i * schema->dense_count + k] ==
                            (float)strtod(next(&line, UNIT), NULL));
            assert_int_equal(check_keys(&batch, i, line, schema->field_count),
                             batch.key_offsets[i + 1]);
        }
    }
    if (status != RT_END)
        fail_msg("%s", error.text);
    assert_true(*at == '\0' && samples >= 300);
    assert_int_equal(rt_stream_statistics(stream).malformed, 0);
    rt_batch_fini(&batch);
    rt_stream_close(stream);
    rt_config_fini(config);
    free(text);
}

static void check_table(const char *name, const char *delimiter)
{
    rt_config config = config_fresh();
    char set[64];
    snprintf(set, sizeof set, "stream.table.delimiter=%s", delimiter);
    config_must_set(&config, "stream.format=table");
    config_must_set(&config, set);
    config_must_set(&config, "stream.table.quotes=rfc4180");
    config_must_set(&config, COLUMNS("", "", "", "", ""));
    // The order of the input's cells.
    rt_column *columns = config.stream.table.columns;
    static const char *const order[] = {"rating", "weight", "when", "price",  "gap",   "word",
                                        "user",   "tags",   "shop", "hidden", "unused"};
    for (uint32_t i = 0; i < RT_COUNT_OF(order); i++)
        assert_string_equal(columns[i].name, order[i]);
    check_golden(&config, name, 64);
}

static void test_delimited_as_python_reads_it(void **state)
{
    (void)state;
    check_table("comma", ",");
    check_table("semicolon", ";");
    check_table("tab", "\t");
}

static void test_json_as_python_reads_it(void **state)
{
    (void)state;
    rt_config config = config_fresh();
    config_must_set(&config, "stream.format=json");
    config_must_set(&config, COLUMNS("", "", ",\"path\":\"words.0\"", ",\"path\":\"time.when\"",
                                     ",\"path\":\"shop.name\""));
    check_golden(&config, "json", 7);
}

static void test_libsvm_as_python_reads_it(void **state)
{
    (void)state;
    rt_config config = config_fresh();
    config_must_set(&config, "stream.format=libsvm");
    config_must_set(&config, "stream.libsvm={\"dense\": 3, \"fields\": [4, 10, 1000]}");
    check_golden(&config, "libsvm", 50);
}

// ---- lines that are none -----------------------------------------------------------------------

// One line after a good one; the message of the stream that ends because of it.
static void check_message(rt_config *config, const char *good, const char *bad, const char *said)
{
    char text[4096], set[512];
    rt_batch all;
    rt_error error = {0};
    snprintf(text, sizeof text, "%s\n%s\n", good, bad);
    char *path = put_text("bad.txt", text);
    snprintf(set, sizeof set, "stream.files=%s", path);
    config_must_set(config, set);
    assert_int_equal(read_all(&config->stream, 1, 10, &all, NULL, &error), RT_DATA);
    if (!strstr(error.text, "bad.txt:2: 1 of the last 2 lines") || !strstr(error.text, said))
        fail_msg("\"%s\" says \"%s\", expected \"%s\"", bad, error.text, said);
    assert_int_equal(all.sample_count, 1);
    rt_batch_fini(&all);
    free(path);
}

static void test_lines_of_json_that_are_none(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"{\"y\": 1, \"u\": \"a\"", "expected a JSON object, found an error at byte"},
        {"{\"y\": 1, \"u\": \"a\"} x", "found an error at byte 20"},
        {"[1]", "expected a JSON object"},
        {"{\"y\": 1, \"u\": {\"a\": 1}}", "u: expected one value, found an object"},
        {"{\"y\": 1, \"u\": [\"a\"]}", "u: expected one value, found an array (only kind multi"},
        {"{\"y\": 1, \"m\": [[\"a\"]]}",
         "m: expected an array of strings and numbers, found an array"},
        {"{\"y\": 1, \"u\": 12345678901234567890}", "u: an integer beyond 2^53 is not exact"},
        {"{\"y\": 1, \"u\": \"a\\u0000b\"}", "found an error at byte 17"},
        {"{\"y\": \"yes\"}",
         "column 1 (y): expected a number, or with `value` the text that is label 1, found \"yes\""},
        {"{\"u\": \"a\"}", "column 1 (y): expected a number, found \"\""},
        {"{\"y\": 1, \"d\": \"2024-02-30\"}",
         "(d): expected a time as time_format says, found \"2024-02-30\""},
        {"{\"y\": 1, \"w\": -1}", "(w): expected a number from 0 to 1e6, or nothing, found \"-1\""},
    };
    rt_config config = config_fresh();
    config_must_set(&config, "stream.format=json");
    config_must_set(&config,
                    "stream.table.columns=[{\"name\":\"y\",\"kind\":\"label\"},"
                    "{\"name\":\"u\",\"kind\":\"categorical\"},"
                    "{\"name\":\"m\",\"kind\":\"multi\"},{\"name\":\"w\",\"kind\":\"weight\"},"
                    "{\"name\":\"d\",\"kind\":\"categorical\",\"transform\":\"weekday\","
                    "\"time_format\":\"%Y-%m-%d\"}]");
    for (size_t i = 0; i < RT_COUNT_OF(cases); i++)
        check_message(&config, "{\"y\": 0, \"u\": true, \"m\": [\"a\", 1, null]}", cases[i][0],
                      cases[i][1]);
    rt_config_fini(&config);
}

static void test_lines_of_libsvm_that_are_none(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"x 1:1", "expected a label, a number, found \"x\""},
        {"1 5:1 4", "expected INDEX:NUMBER with an index from 1 on, found \"4\""},
        {"1 0:1", "found \"0:1\""},
        {"1 5:nan", "found \"5:nan\""},
        {"1 1:2 1:2", "index 1 stands twice"},
        {"1 7:1 7:1", "index 7 stands twice"},
        {"1 7:0.5", "index 7: expected 0 or 1, found 0.5"},
        {"1 3:1", "index 3: is in no field, the first one begins at 5"},
        {"1 1:1e300", "index 1: expected a number that fits 32 bits"},
        {"1 99999999999999999999:1", "found \"99999999999999999999:1\""},
    };
    rt_config config = config_fresh();
    config_must_set(&config, "stream.format=libsvm");
    config_must_set(&config, "stream.libsvm={\"dense\": 2, \"fields\": [5]}");
    for (size_t i = 0; i < RT_COUNT_OF(cases); i++)
        check_message(&config, "1 1:1 5:1", cases[i][0], cases[i][1]);
    rt_config_fini(&config);
}

// ---- columns that cannot be --------------------------------------------------------------------

// ---- several labels ---------------------------------------------------------------------------

#define NAMED_LABELS                                                                  \
    "stream.table.columns=[{\"name\":\"click\",\"kind\":\"label\"},"                  \
    "{\"name\":\"u\",\"kind\":\"categorical\"},{\"name\":\"w\",\"kind\":\"weight\"}," \
    "{\"name\":\"buy\",\"kind\":\"label\",\"rule\":\"at_least\",\"value\":\"2\","     \
    "\"loss_weight\":0.25},"                                                          \
    "{\"name\":\"kept\",\"kind\":\"label\",\"value\":\"yes\",\"missing\":\"no\"}]"

typedef struct {
    float labels[3], weights[3];
} labelled;

static void check_labels(const char *format, const char *text, bool is_optional,
                         const labelled *want, uint32_t count)
{
    rt_config config = config_fresh();
    rt_error error = {0};
    rt_stream *stream;
    rt_batch batch;
    char set[700];
    snprintf(set, sizeof set, "stream.files=%s", config_write_file("labels", text));
    config_must_set(&config, format);
    config_must_set(&config, NAMED_LABELS);
    config_must_set(&config, set);
    config_must_set(&config, "stream.malformed_share_max=1");
    config.stream.labels_optional = is_optional;
    assert_int_equal(rt_config_label_count(&config.stream), 3);
    assert_true(rt_config_label_weight(&config.stream, 1) == 0.25);
    if (rt_config_check(&config, &error) || rt_stream_open(&config.stream, 1, &stream, &error))
        fail_msg("%s", error.text);
    const rt_schema *schema = rt_stream_schema(stream);
    assert_int_equal(schema->label_count, 3);
    assert_string_equal(schema->label_names[2], "kept");
    rt_batch_init(&batch, schema->dense_count);
    assert_int_equal(rt_stream_read(stream, &batch, 16, &error), RT_OK);
    assert_true(batch.is_weighted);
    assert_int_equal(batch.label_count, 3);
    assert_int_equal(batch.sample_count, count);
    for (uint32_t i = 0; i < count; i++) {
        assert_memory_equal(batch.labels + 3 * i, want[i].labels, sizeof want->labels);
        assert_memory_equal(batch.weights + 3 * i, want[i].weights, sizeof want->weights);
        assert_int_equal(rt_key_field(batch.keys[i]), 0);
    }
    assert_int_equal(rt_stream_statistics(stream).malformed, is_optional ? 0 : 1);
    rt_batch_fini(&batch);
    rt_stream_close(stream);
    rt_config_fini(&config);
}

// An empty cell, null, and what is not there: the label is absent; with `missing` it is that.
static void test_several_labels(void **state)
{
    (void)state;
    static const labelled want[] = {{{1, 1, 1}, {1, 1, 1}},
                                    {{0, 0, 0}, {0, 3, 3}},
                                    {{0, 0, 2}, {2, 0, 2}},
                                    {{0, 0, 0}, {0, 0, 1}}};
    check_labels("stream.format=table", "1,a,,2,yes\n,b,3,1.5,\n0,c,2,,yes\n,d,,,\n1,e,,many,\n",
                 false, want, 4);
    check_labels("stream.format=json",
                 "{\"click\":1,\"u\":\"a\",\"buy\":2,\"kept\":\"yes\"}\n"
                 "{\"u\":\"b\",\"w\":3,\"buy\":1.5,\"click\":null}\n"
                 "{\"kept\":\"yes\",\"click\":0,\"u\":\"c\",\"w\":2,\"buy\":\"\"}\n"
                 "{\"u\":\"d\"}\n{\"click\":1,\"u\":\"e\",\"buy\":\"many\"}\n",
                 false, want, 4);
}

// Who predicts needs no labels: their cells may hold anything, or none of them be there. Weights
// are not looked at.
static void test_lines_without_labels(void **state)
{
    (void)state;
    static const labelled want[] = {{{0, 0, 0}, {1, 1, 1}}, {{0, 0, 0}, {1, 1, 1}}};
    check_labels("stream.format=table", "a,2\n?,b,heavy,many,\n", true, want, 2);
    check_labels("stream.format=json", "{\"u\":\"a\",\"w\":2}\n{\"u\":\"b\",\"buy\":\"many\"}\n",
                 true, want, 2);
}

static void test_no_negatives_of_several_labels(void **state)
{
    (void)state;
    rt_config config = config_fresh();
    rt_error error = {0};
    config_must_set(&config, "stream.format=table");
    config_must_set(&config, "stream.files=-");
    config_must_set(&config, NAMED_LABELS);
    assert_int_equal(rt_config_check(&config, &error), RT_OK);
    config_must_set(&config, "stream.negatives_keep=0.5");
    assert_int_equal(rt_config_check(&config, &error), RT_CONFIG);
    assert_non_null(strstr(error.text, "stream.negatives_keep: a sample with several labels"));
    rt_config_fini(&config);
}

// ---- classes -----------------------------------------------------------------------------------

#define CLASS_COLUMNS(more)                                                           \
    "stream.table.columns=[{\"name\":\"class\",\"kind\":\"label\",\"classes\":3" more \
    "},{\"name\":\"u\",\"kind\":\"categorical\"}"

static void class_config(rt_config *config, const char *columns)
{
    *config = config_fresh();
    config_must_set(config, "stream.format=table");
    config_must_set(config, "stream.files=-");
    config_must_set(config, columns);
}

// Whole numbers below 3; whoever predicts needs none.
static void test_classes(void **state)
{
    (void)state;
    static const float want[] = {0, 2, 1};
    for (uint32_t optional = 0; optional < 2; optional++) {
        rt_config config;
        rt_error error = {0};
        rt_stream *stream;
        rt_batch batch;
        char set[700], name[RT_NAME_MAX];
        class_config(&config, CLASS_COLUMNS("") "]");
        snprintf(set, sizeof set, "stream.files=%s",
                 config_write_file("classes", "0,a\n2,b\n1,c\n3,d\n-1,e\n0.5,f\n,g\nx,h\n"));
        config_must_set(&config, set);
        config_must_set(&config, "stream.malformed_share_max=1");
        config.stream.labels_optional = optional;
        assert_int_equal(rt_config_check(&config, &error), RT_OK);
        assert_int_equal(rt_stream_open(&config.stream, 1, &stream, &error), RT_OK);
        const rt_schema *schema = rt_stream_schema(stream);
        assert_int_equal(schema->label_count, 1);
        assert_int_equal(schema->class_count, 3);
        assert_int_equal(schema->output_count, 3);
        rt_schema_output_name(schema, 2, name);
        assert_string_equal(name, "2");
        rt_batch_init(&batch, schema->dense_count);
        assert_int_equal(rt_stream_read(stream, &batch, 16, &error), RT_OK);
        assert_int_equal(batch.sample_count, optional ? 8 : 3);
        for (uint32_t i = 0; i < batch.sample_count; i++)
            assert_true(batch.labels[i] == (optional ? 0 : want[i]));
        assert_int_equal(rt_stream_statistics(stream).malformed, optional ? 0 : 5);
        rt_batch_fini(&batch);
        rt_stream_close(stream);
        rt_config_fini(&config);
    }
}

static void test_classes_that_cannot_be(void **state)
{
    (void)state;
    static const char *const cases[][3] = {
        {CLASS_COLUMNS("") ",{\"name\":\"b\",\"kind\":\"label\"}]", NULL, "is for the only label"},
        {CLASS_COLUMNS("") ",{\"kind\":\"weight\"}]", NULL, "columns[2].kind: samples of several"},
        {CLASS_COLUMNS(",\"value\":\"2\"") "]", NULL, "rule and value do not apply"},
        {CLASS_COLUMNS(",\"rule\":\"at_least\"") "]", NULL, "rule and value do not apply"},
        {CLASS_COLUMNS("") "]", "stream.negatives_keep=0.5", "stream.negatives_keep: no class"},
        {CLASS_COLUMNS("") ",{\"name\":\"c\",\"kind\":\"dense\",\"classes\":4}]", NULL,
         "columns[2].classes: is for a label"},
        {"stream.table.columns=[{\"kind\":\"label\",\"classes\":1},{\"kind\":\"categorical\"}]",
         NULL, "classes: 1, expected 2 or more"},
    };
    for (size_t i = 0; i < RT_COUNT_OF(cases); i++) {
        rt_config config;
        rt_error error = {0};
        class_config(&config, cases[i][0]);
        if (cases[i][1])
            config_must_set(&config, cases[i][1]);
        assert_int_equal(rt_config_check(&config, &error), RT_CONFIG);
        if (!strstr(error.text, cases[i][2]))
            fail_msg("%s: \"%s\"", cases[i][2], error.text);
        rt_config_fini(&config);
    }
}

#define NINTH(number) "{\"name\":\"y" number "\",\"kind\":\"label\"}"

static void test_columns_that_cannot_be(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"{\"name\":\"c\",\"kind\":\"categorical\",\"from\":\"d\"}",
         "from[0]: no column before it is named \"d\""},
        {"{\"name\":\"c\",\"kind\":\"dense\",\"from\":[\"u\",\"y\"]}", "from[1]: \"y\" has no id"},
        {"{\"name\":\"c\",\"kind\":\"dense\",\"from\":[\"u\",\"u\"]}",
         "kind: a cross is \"categorical\""},
        {"{\"name\":\"c\",\"kind\":\"categorical\",\"transform\":\"log1p\"}",
         "transform: log1p is for dense"},
        {"{\"name\":\"c\",\"kind\":\"dense\",\"transform\":\"bucket\"}",
         "edges: is needed with transform \"bucket\""},
        {"{\"name\":\"c\",\"kind\":\"dense\",\"transform\":\"hour\",\"time_format\":\"%Y\"}",
         "time_format: \"%Y\" is not a time format"},
        {"{\"name\":\"c\",\"kind\":\"weight\"},{\"name\":\"e\",\"kind\":\"weight\"}",
         "2 columns of kind \"weight\""},
        {"{\"kind\":\"label\"}", "columns[2].name: is needed where there are several labels"},
        {"{\"name\":\"c\",\"kind\":\"dense\",\"loss_weight\":2}",
         "columns[2].loss_weight: is for one of several labels"},
        {NINTH("1") "," NINTH("2") "," NINTH("3") "," NINTH("4") "," NINTH("5") "," NINTH(
             "6") "," NINTH("7") "," NINTH("8"),
         "9 columns of kind \"label\", expected at most 8"},
    };
    for (size_t i = 0; i < RT_COUNT_OF(cases); i++) {
        rt_config config = config_fresh();
        char set[1024];
        rt_error error = {0};
        snprintf(set, sizeof set,
                 "stream.table.columns=[{\"name\":\"y\",\"kind\":\"label\"},{\"name\":\"u\","
                 "\"kind\":\"categorical\"},%s]",
                 cases[i][0]);
        config_must_set(&config, "stream.format=table");
        config_must_set(&config, "stream.files=-");
        config_must_set(&config, set);
        assert_int_equal(rt_config_check(&config, &error), RT_CONFIG);
        if (!strstr(error.text, cases[i][1]))
            fail_msg("%s: \"%s\"", cases[i][0], error.text);
        rt_config_fini(&config);
    }
}

// ---- dates -----------------------------------------------------------------------------------

// Every day of 400 years, counted one by one.
static void test_every_day_of_the_calendar(void **state)
{
    (void)state;
    static const int days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    int64_t day = -135140; // 1600-01-01
    uint32_t weekday = 5;  // a Saturday
    for (int year = 1600; year < 2000; year++) {
        const bool is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
        for (int month = 1; month <= 12; month++) {
            for (int d = 1; d <= days[month - 1] + (month == 2 && is_leap); d++, day++) {
                char text[32], again[32];
                int64_t ms;
                snprintf(text, sizeof text, "%04d%02d%02d23", year, month, d);
                assert_true(rt_date_parse("%Y%m%d%H", text, strlen(text), &ms));
                assert_int_equal(ms, day * RT_DAY_MS + 23 * 3600000);
                assert_int_equal(rt_date_hour(ms), 23);
                assert_int_equal(rt_date_weekday(ms), weekday);
                assert_int_equal(rt_date_format("%Y%m%d%H", ms + 999, again, sizeof again), 10);
                assert_string_equal(again, text);
                weekday = (weekday + 1) % 7;
            }
        }
    }
}

static void test_dates_as_text(void **state)
{
    char text[32];
    (void)state;
    assert_int_equal(rt_date_format("%d/%m/%y %H:%M:%S %%", INT64_C(1413849661500), text, 32), 19);
    assert_string_equal(text, "21/10/14 00:01:01 %");
    assert_int_equal(rt_date_format("%Y-%m-%d %H:%M:%S", -1, text, 32), 19);
    assert_string_equal(text, "1969-12-31 23:59:59");
    assert_int_equal(rt_date_format("%Y-%m-%d", 0, text, 8), 0);
}

static void test_dates_that_are_none(void **state)
{
    (void)state;
    static const char *const bad[] = {"1999-02-29", "2000-13-01",  "2000-00-01", "2000-04-31",
                                      "2000-001-1", "2000-01-01 ", "2000-01-0",  "",
                                      "0000-01-01", "2000/01/01"};
    int64_t ms;
    for (size_t i = 0; i < RT_COUNT_OF(bad); i++)
        assert_false(rt_date_parse("%Y-%m-%d", bad[i], strlen(bad[i]), &ms));
    assert_true(rt_date_parse("%y%m%d%H", "14102100", 8, &ms));
    assert_int_equal(ms, INT64_C(1413849600000));
    static const char *const patterns[] = {"%Y-%m", "%Y%m%d%M", "%Y%m%d%d", "%q", "%Y%m%d%"};
    for (size_t i = 0; i < RT_COUNT_OF(patterns); i++)
        assert_false(rt_date_format_is_good(patterns[i]));
}

static void test_times_as_programs_write_them(void **state)
{
    (void)state;
    const int64_t at = INT64_C(1790877600567); // 2026-10-01 18:00:00.567 UTC
    static const struct {
        const char *format, *text;
        int64_t less; // than that time
    } cases[] = {
        {"iso", "2026-10-01T18:00:00.567Z", 0},
        {"iso", "2026-10-01T20:00:00.567+02:00", 0},
        {"iso", "2026-10-01 12:30:00,567123 -0530", 0},
        {"iso", "2026-10-01t18:00:00z", 567},
        {"iso", "2026-10-01 18:00", 567},
        {"iso", "2026-10-01", 18 * 3600000 + 567},
        {"%Y-%m-%dT%H:%M:%S.%f%z", "2026-10-01T19:00:00.567+01", 0},
        {"%d.%m.%Y %H:%M", "1.10.2026 18:00", 567},
        {"%m/%d/%Y %I:%M:%S %p", "10/1/2026 6:00:00 PM", 567},
        {"%m/%d/%Y %I:%M %p", "10/01/2026 12:00 am", 18 * 3600000 + 567},
        {"%d/%b/%Y:%H:%M:%S %z", "01/Oct/2026:11:00:00 -0700", 567},
        {"%a, %d %b %Y %H:%M:%S %z", "Thu, 01 October 2026 18:00:00 GMT", 567},
    };
    for (size_t i = 0; i < RT_COUNT_OF(cases); i++) {
        int64_t ms = 0;
        char again[80];
        assert_true(rt_date_format_is_good(cases[i].format));
        if (!rt_date_parse(cases[i].format, cases[i].text, strlen(cases[i].text), &ms))
            fail_msg("%s as %s", cases[i].text, cases[i].format);
        assert_int_equal(ms, at - cases[i].less);
        const size_t length = rt_date_format(cases[i].format, ms, again, sizeof again);
        assert_true(rt_date_parse(cases[i].format, again, length, &ms));
        assert_int_equal(ms, at - cases[i].less); // what is written is read as the same
    }
    static const char *const bad[][2] = {{"iso", "2026-10-01T18:00:00.Z"},
                                         {"iso", "2026-10-01T"},
                                         {"iso", "2026-10-01T18:00:00+2"},
                                         {"iso", "2026-10-01T18:00:00+02:"},
                                         {"iso", "2026-10-01T18:00:00 CEST"},
                                         {"iso", "2026-10-01T24:00:00Z"},
                                         {"%m/%d/%Y %I %p", "10/1/2026 13 PM"},
                                         {"%m/%d/%Y %I %p", "10/1/2026 0 AM"},
                                         {"%Y%m%d", "2026101"},
                                         {"%d %b %Y", "1 Okt 2026"}};
    for (size_t i = 0; i < RT_COUNT_OF(bad); i++) {
        int64_t ms;
        if (rt_date_parse(bad[i][0], bad[i][1], strlen(bad[i][1]), &ms))
            fail_msg("%s as %s", bad[i][1], bad[i][0]);
    }
    assert_true(rt_date_unit_ms("unix") == 1000 && rt_date_unit_ms("unix_ns") == 1e-6);
    assert_true(rt_date_unit_ms("iso") == 0);
    static const char *const patterns[] = {"%Y-%m-%d %I", "%Y-%m-%d %H %p", "%Y-%m-%d %f",
                                           "%Y-%b-%m-%d"};
    for (size_t i = 0; i < RT_COUNT_OF(patterns); i++)
        assert_false(rt_date_format_is_good(patterns[i]));
}

TEST_MAIN(TEST(test_times_as_programs_write_them), TEST(test_delimited_as_python_reads_it),
          TEST(test_json_as_python_reads_it), TEST(test_libsvm_as_python_reads_it),
          TEST(test_lines_of_json_that_are_none), TEST(test_lines_of_libsvm_that_are_none),
          TEST(test_columns_that_cannot_be), TEST(test_classes), TEST(test_classes_that_cannot_be),
          TEST(test_several_labels), TEST(test_lines_without_labels),
          TEST(test_no_negatives_of_several_labels), TEST(test_every_day_of_the_calendar),
          TEST(test_dates_as_text), TEST(test_dates_that_are_none))
