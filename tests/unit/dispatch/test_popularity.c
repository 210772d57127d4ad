// How often every row is used, against a naive count of the same samples; the file of hot rows.
#include "dispatch/planner/dp_popularity.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "dispatch/planner/dp_hot.h"
#include "tests/support/config_case.h"
#include "tests/support/test.h"

#define SAMPLES 900u
#define MEMORY (UINT64_C(1) << 26)

static rt_config config_of(const char *const *sets)
{
    rt_config config = config_fresh();
    config_must_set(&config, "stream.format=synthetic");
    config_must_set(&config, "stream.synthetic.scale=0.0005");
    config_must_set(&config, "stream.samples_max=900");
    config_must_set(&config, "batch.samples_per_worker=8");
    config_must_set(&config, "model.embedding_dim=8");
    config_must_set(&config, "cache.rows=2000");
    config_must_set(&config, "sim.warmup=0");
    for (; sets && *sets; sets++)
        config_must_set(&config, *sets);
    return config;
}

static rt_schema schema_of(const rt_config *config)
{
    rt_schema schema;
    assert_int_equal(rt_stream_read_schema(&config->stream, config->seed, &schema, NULL), RT_OK);
    return schema;
}

static dp_popularity take(const rt_config *config, uint64_t samples_max, uint64_t memory_max)
{
    dp_popularity profile;
    rt_error error = {0};
    const dp_popularity_config settings = {.samples_max = samples_max, .memory_max = memory_max};
    if (dp_popularity_take(config, &settings, &profile, &error))
        fail_msg("%s", error.text);
    return profile;
}

// ---- counts ------------------------------------------------------------------------------------

static int compare_keys(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

// Every key of the first samples, sorted; the caller's (free).
static uint64_t *read_keys(const rt_config *config, uint32_t samples, uint32_t *count_p)
{
    rt_batch batch;
    rt_stream *stream;
    assert_int_equal(rt_stream_open(&config->stream, config->seed, &stream, NULL), RT_OK);
    rt_batch_init(&batch, rt_stream_schema(stream)->dense_count);
    assert_int_equal(rt_stream_read(stream, &batch, samples, NULL), RT_OK);
    assert_int_equal(batch.sample_count, samples);
    uint64_t *keys = malloc(batch.key_count * sizeof *keys);
    memcpy(keys, batch.keys, batch.key_count * sizeof *keys);
    qsort(keys, batch.key_count, sizeof *keys, compare_keys);
    *count_p = batch.key_count;
    rt_batch_fini(&batch);
    rt_stream_close(stream);
    return keys;
}

// Its rows are those of the first samples, each as often as it is among their keys, in the order of
// their ranks.
static void check_counts(const rt_config *config, const dp_popularity *profile)
{
    uint32_t count;
    uint64_t distinct = 0;
    uint64_t *keys = read_keys(config, (uint32_t)profile->samples, &count);
    assert_int_equal(profile->lookups, count);
    for (uint32_t k = 0; k < count; k++)
        distinct += k == 0 || keys[k] != keys[k - 1];
    assert_int_equal(profile->row_count, distinct);
    for (uint64_t i = 0; i < profile->row_count; i++) {
        const dp_popular *row = &profile->uses[i], *next = row + 1;
        uint64_t uses = 0;
        for (uint32_t k = 0; k < count; k++)
            uses += keys[k] == row->key;
        assert_int_equal(row->uses, uses);
        if (i + 1 < profile->row_count)
            assert_true(row->uses > next->uses ||
                        (row->uses == next->uses && row->key < next->key));
    }
    free(keys);
}

static void counts_are_those_of_a_naive_count(void **state)
{
    (void)state;
    rt_config config = config_of(NULL);
    dp_popularity profile = take(&config, 0, MEMORY);
    assert_int_equal(profile.samples, SAMPLES);
    assert_int_equal(profile.end, DP_POPULARITY_INPUT);
    check_counts(&config, &profile);
    dp_popularity_fini(&profile);
    profile = take(&config, 137, MEMORY);
    assert_int_equal(profile.samples, 137);
    assert_int_equal(profile.end, DP_POPULARITY_SAMPLES);
    check_counts(&config, &profile);
    dp_popularity_fini(&profile);
    rt_config_fini(&config);
}

// Full, it has exact counts of fewer samples.
static void a_full_table_ends_the_count(void **state)
{
    (void)state;
    rt_config config = config_of((const char *const[]){"stream.synthetic.scale=1", NULL});
    const uint64_t room = DP_POPULARITY_MEMORY_MIN / 2 / sizeof(dp_popular) / 4 * 3;
    const uint32_t most = schema_of(&config).keys_per_sample_max;
    dp_popularity profile = take(&config, 0, DP_POPULARITY_MEMORY_MIN);
    assert_int_equal(profile.end, DP_POPULARITY_MEMORY);
    assert_true(profile.samples < SAMPLES);
    assert_true(profile.row_count <= room && profile.row_count + most > room);
    check_counts(&config, &profile);
    dp_popularity_fini(&profile);
    profile = take(&config, 0, 8 * DP_POPULARITY_MEMORY_MIN);
    assert_int_equal(profile.samples, SAMPLES);
    check_counts(&config, &profile);
    dp_popularity_fini(&profile);
    rt_config_fini(&config);
}

static void write_hot(const rt_config *config, const dp_popularity *profile, uint64_t rows,
                      const char *path)
{
    rt_error error = {0};
    const rt_schema schema = schema_of(config);
    if (dp_popularity_write(profile, config, &schema, rows, path, &error))
        fail_msg("%s", error.text);
}

// Columns that share a table: a row that a sample has in both is looked up once.
static void columns_that_share_a_table_share_counts(void **state)
{
    (void)state;
    char files[512], hot[520];
    rt_config config = config_fresh();
    snprintf(files, sizeof files, "stream.files=%s",
             config_write_file("rows.csv", "1,4,4\n0,4,7\n1,9,4\n0,4,4\n"));
    snprintf(hot, sizeof hot, "%s.hot", files + strlen("stream.files="));
    config_must_set(&config, "stream.format=table");
    config_must_set(&config,
                    "stream.table.columns=[{\"name\": \"l\", \"kind\": \"label\"},"
                    "{\"name\": \"item\", \"kind\": \"categorical\", \"id\": \"number\"},"
                    "{\"name\": \"before\", \"kind\": \"categorical\", \"id\": \"number\"}]");
    config_must_set(&config, "stream.table.delimiter=,");
    config_must_set(&config, "stream.tables=[\"before=item\"]");
    config_must_set(&config, files);
    dp_popularity profile = take(&config, 0, MEMORY);
    static const dp_popular want[] = {{4, 4}, {7, 1}, {9, 1}}; // field 0
    assert_int_equal(profile.row_count, RT_COUNT_OF(want));
    assert_memory_equal(profile.uses, want, sizeof want);
    assert_int_equal(profile.lookups, 6);
    // A file of these counts is none of columns with rows of their own.
    dp_popular *uses = NULL;
    uint64_t count = 0;
    rt_error error = {0};
    write_hot(&config, &profile, 3, hot);
    config_must_set(&config, "stream.tables=[]");
    const rt_schema schema = schema_of(&config);
    assert_int_equal(dp_popularity_read(hot, &config, &schema, &uses, &count, &error), RT_DATA);
    assert_non_null(strstr(error.text, "another stream.tables"));
    dp_popularity_fini(&profile);
    rt_config_fini(&config);
}

static void an_input_without_samples(void **state)
{
    (void)state;
    char files[512];
    dp_popularity profile;
    rt_error error = {0};
    const dp_popularity_config settings = {.memory_max = MEMORY};
    snprintf(files, sizeof files, "stream.files=%s", config_write_file("rows", ""));
    rt_config config = config_of((const char *const[]){"stream.format=criteo", files, NULL});
    assert_int_equal(dp_popularity_take(&config, &settings, &profile, &error), RT_DATA);
    assert_non_null(strstr(error.text, "no sample"));
    assert_null(profile.uses);
    rt_config_fini(&config);
}

// ---- the file ----------------------------------------------------------------------------------

static void must_be_refused(rt_config *config, const char *path, rt_status want, const char *text)
{
    const rt_schema schema = schema_of(config);
    dp_hot *hot = NULL;
    rt_error error = {0};
    snprintf(config->dispatch_profile, sizeof config->dispatch_profile, "%s", path);
    const rt_status got = dp_hot_read(config, &schema, &hot, &error);
    if (got != want || hot || !strstr(error.text, text) || !strstr(error.text, path))
        fail_msg("%d, expected %d: \"%s\", expected \"%s\"", got, want, error.text, text);
}

// The dimension of the model may be another.
static void a_file_of_another_stream_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *set, *text;
    } others[] = {
        {"seed=7", "another stream.synthetic and seed"},
        {"stream.synthetic.zipf=1.7", "another stream.synthetic and seed"},
        {"stream.synthetic.shape=avazu", "another stream.synthetic and seed"},
        {"stream.format=criteo", "another stream.format (synthetic), expected that of this "
                                 "configuration (criteo)"},
    };
    rt_config config = config_of(NULL);
    dp_popularity profile = take(&config, 0, MEMORY);
    const char *path = test_path("hot");
    write_hot(&config, &profile, 3, path);
    for (size_t i = 0; i < RT_COUNT_OF(others); i++) {
        rt_config other = config_of((const char *const[]){others[i].set, NULL});
        const rt_schema schema = schema_of(&other);
        dp_popular *uses = NULL;
        uint64_t count = 0;
        rt_error error = {0};
        assert_int_equal(dp_popularity_read(path, &other, &schema, &uses, &count, &error), RT_DATA);
        if (!strstr(error.text, others[i].text) || !strstr(error.text, path) || uses)
            fail_msg("\"%s\", expected \"%s\"", error.text, others[i].text);
        rt_config_fini(&other);
    }
    rt_config same = config_of((const char *const[]){"model.embedding_dim=32", NULL});
    const rt_schema schema = schema_of(&same);
    dp_hot *hot;
    snprintf(same.dispatch_profile, sizeof same.dispatch_profile, "%s", path);
    assert_int_equal(dp_hot_read(&same, &schema, &hot, NULL), RT_OK);
    assert_int_equal(hot->count, 3);
    dp_hot_destroy(hot);
    must_be_refused(&config, test_path("nowhere"), RT_DATA, "cannot open");
    rt_config_fini(&same);
    dp_popularity_fini(&profile);
    rt_config_fini(&config);
}

static void columns_have_their_names(void **state)
{
    (void)state;
    static const char *const columns[] = {
        "[{\"name\": \"l\", \"kind\": \"label\"}, {\"name\": \"a\", \"kind\": \"categorical\"}]",
        "[{\"name\": \"l\", \"kind\": \"label\"}, {\"name\": \"b\", \"kind\": \"categorical\"}]",
        "[{\"name\": \"l\", \"kind\": \"label\"}, {\"name\": \"a\", \"kind\": \"categorical\","
        " \"id\": \"number\"}]"};
    const dp_popularity profile = {.uses = (dp_popular[]){{1, 2}}, .row_count = 1};
    const char *path = test_path("hot");
    for (size_t i = 0; i < RT_COUNT_OF(columns); i++) {
        char set[512];
        dp_popular *uses = NULL;
        uint64_t count;
        rt_error error = {0};
        snprintf(set, sizeof set, "stream.table.columns=%s", columns[i]);
        rt_config config = config_of((const char *const[]){"stream.format=table", set, NULL});
        const rt_schema schema = schema_of(&config);
        if (i == 0)
            write_hot(&config, &profile, 1, path);
        const rt_status got = dp_popularity_read(path, &config, &schema, &uses, &count, &error);
        assert_int_equal(got, i ? RT_DATA : RT_OK);
        if (i)
            assert_non_null(strstr(error.text, "another stream.table.columns"));
        rt_free(uses);
        rt_config_fini(&config);
    }
}

#define COLUMNS(rest) "stream.table.columns=[{\"name\":\"l\",\"kind\":\"label\"}," rest "]"
#define COLUMN(name, rest) "{\"name\":\"" name "\",\"kind\":\"categorical\"" rest "}"
#define TWO COLUMN("a", "") "," COLUMN("b", "") ","

// Whatever says what a key means: each of these is refused where the other one was written.
static void every_meaning_counts(void **state)
{
    (void)state;
    static const char table[] = "stream.format=table", libsvm[] = "stream.format=libsvm";
    static const struct {
        const char *format, *one, *other, *key;
    } cases[] = {
        {table, COLUMNS(COLUMN("a", "")), COLUMNS(COLUMN("a", ",\"missing\":\"-\"")), "columns"},
        {table, COLUMNS(COLUMN("a", "")), COLUMNS("{\"name\":\"a\",\"kind\":\"multi\"}"),
         "columns"},
        {table, COLUMNS(TWO COLUMN("c", ",\"from\":[\"a\",\"b\"]")),
         COLUMNS(TWO COLUMN("c", ",\"from\":[\"b\",\"a\"]")), "columns"},
        {table, COLUMNS(COLUMN("a", ",\"edges\":[1,2]")), COLUMNS(COLUMN("a", ",\"edges\":[1,3]")),
         "columns"},
        {libsvm, "stream.libsvm.index_first=0", "stream.libsvm.index_first=1", "stream.libsvm"},
        {libsvm, "stream.libsvm.dense=2", "stream.libsvm.dense=3", "stream.libsvm"},
        {libsvm, "stream.libsvm.fields=[1,9]", "stream.libsvm.fields=[1,8]", "stream.libsvm"},
        {"seed=1", "stream.synthetic.first=0", "stream.synthetic.first=5", "synthetic and seed"},
        {"seed=1", "stream.synthetic.clusters=3", "stream.synthetic.clusters=4",
         "synthetic and seed"},
        {"seed=1", "stream.synthetic.drift=0", "stream.synthetic.drift=0.5", "synthetic and seed"},
    };
    const dp_popularity profile = {.uses = (dp_popular[]){{1, 2}}, .row_count = 1};
    const char *path = test_path("hot");
    for (size_t i = 0; i < 2 * RT_COUNT_OF(cases); i++) {
        const char *format = cases[i / 2].format, *one = cases[i / 2].one;
        rt_config written = config_of((const char *const[]){format, one, NULL});
        rt_config own =
            config_of((const char *const[]){format, i % 2 ? cases[i / 2].other : one, NULL});
        const rt_schema schema = schema_of(&own);
        dp_popular *uses = NULL;
        uint64_t count;
        rt_error error = {0};
        write_hot(&written, &profile, 1, path);
        const rt_status got = dp_popularity_read(path, &own, &schema, &uses, &count, &error);
        if (got != (i % 2 ? RT_DATA : RT_OK) || (got && !strstr(error.text, cases[i / 2].key)))
            fail_msg("%s: \"%s\"", i % 2 ? cases[i / 2].other : one, error.text);
        rt_free(uses);
        rt_config_fini(&written);
        rt_config_fini(&own);
    }
}

// What the first line says of the count, and the rows below it.
static void the_file_says_what_was_counted(void **state)
{
    (void)state;
    static const char *const says[] = {"\"version\"",    "\"dim\":24", "\"samples\":41",
                                       "\"lookups\":97", "\"rows\":3", "\"end\":\"memory\"",
                                       "\"hot_rows\":2", "\"xxh3\":\""};
    const dp_popularity profile = {.uses = (dp_popular[]){{7, 50}, {8, 40}, {9, 7}},
                                   .row_count = 3,
                                   .lookups = 97,
                                   .samples = 41,
                                   .end = DP_POPULARITY_MEMORY};
    rt_config config = config_of((const char *const[]){"model.embedding_dim=24", NULL});
    char head[4096], row[64], path[512];
    snprintf(path, sizeof path, "%s", test_path("hot"));
    write_hot(&config, &profile, 2, path);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    assert_non_null(fgets(head, sizeof head, file));
    for (size_t i = 0; i < RT_COUNT_OF(says); i++) {
        if (!strstr(head, says[i]))
            fail_msg("expected %s in %s", says[i], head);
    }
    assert_non_null(fgets(row, sizeof row, file));
    assert_string_equal(row, "0000000000000007 50\n");
    assert_non_null(fgets(row, sizeof row, file));
    assert_string_equal(row, "0000000000000008 40\n");
    assert_null(fgets(row, sizeof row, file));
    fclose(file);
    rt_config_fini(&config);
}

static void a_file_that_cannot_be_written(void **state)
{
    (void)state;
    const dp_popularity profile = {.uses = (dp_popular[]){{1, 2}}, .row_count = 1};
    rt_config config = config_of(NULL);
    const rt_schema schema = schema_of(&config);
    rt_error error = {0};
    const rt_status status =
        dp_popularity_write(&profile, &config, &schema, 1, test_path("no/such/folder"), &error);
    assert_int_equal(status, RT_IO);
    assert_non_null(strstr(error.text, "no/such/folder"));
    rt_config_fini(&config);
}

// The disk is full within the rows, of which there are more than are written at once: at the last
// of them, and before.
static void a_file_that_finds_no_room(void **state)
{
    (void)state;
    const uint64_t rows = 80000;
    dp_popularity profile = {.uses = calloc(rows, sizeof(dp_popular)), .row_count = rows};
    rt_config config = config_of(NULL);
    const rt_schema schema = schema_of(&config);
    rt_error error = {0};
    char path[512];
    snprintf(path, sizeof path, "%s", test_path("hot"));
    assert_int_equal(signal(SIGXFSZ, SIG_IGN) == SIG_ERR, 0);
    for (uint64_t room = UINT64_C(1) << 20; room >= 1 << 19; room /= 2) {
        const struct rlimit limit = {room, room};
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
        assert_int_equal(dp_popularity_write(&profile, &config, &schema, rows, path, &error),
                         RT_IO);
        assert_int_equal(access(path, F_OK), -1);
    }
    free(profile.uses);
    rt_config_fini(&config);
}

// One change of a good file's text; "" takes a part out.
static void damaged_files_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *from, *to, *text;
    } damages[] = {
        {"\"kind\":\"profile\"", "\"kind\":\"model\"", ":1: not a file of `lanyard profile`"},
        {"{\"version\"", "\"version\"", ":1: not a file of `lanyard profile`"},
        {"\"hot_rows\":3", "\"hot_rows\":2", ":4: expected the end after 2 rows"},
        {"\"hot_rows\":3", "\"hot_rows\":4", "3 rows, expected 4"},
        {"\"hot_rows\":3", "\"hot_rows\":-1", "expected \"hot_rows\" and \"xxh3\""},
        {"\"xxh3\"", "\"xxh4\"", "expected \"hot_rows\" and \"xxh3\""},
        {"\n0100000000000005 90\n", "\n0100000000000005 91\n", "damaged"},
        {"\n0100000000000005 90\n", "\n01000000000000005 90\n", ":2: expected 16 digits"},
        {"\n0100000000000005 90\n", "\n 100000000000005 90\n", ":2: expected 16 digits"},
        {"\n0100000000000005 90\n", "\n0100000000000005 -90\n", ":2: expected 16 digits"},
        {"\n0100000000000005 90\n", "\nff00000000000005 90\n", ":2: expected 16 digits"},
        {"\n0100000000000005 90\n", "\n1a00000000000005 90\n", ":2: expected 16 digits"},
        {" 70\n", " 70", ":4: expected 16 digits"},
    };
    const dp_popularity profile = {
        .uses = (dp_popular[]){{rt_key(1, 5), 90}, {rt_key(0, 7), 80}, {rt_key(2, 1), 70}},
        .row_count = 3};
    rt_config config = config_of(NULL);
    char text[4096], changed[4096], path[RT_PATH_MAX];
    snprintf(path, sizeof path, "%s", config_write_file("good", ""));
    write_hot(&config, &profile, 3, path);
    FILE *file = fopen(path, "r");
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    for (size_t i = 0; i < RT_COUNT_OF(damages); i++) {
        const char *at = strstr(text, damages[i].from);
        assert_non_null(at);
        snprintf(changed, sizeof changed, "%.*s%s%s", (int)(at - text), text, damages[i].to,
                 at + strlen(damages[i].from));
        snprintf(path, sizeof path, "%s", config_write_file("bad", changed));
        must_be_refused(&config, path, RT_DATA, damages[i].text);
    }
    snprintf(path, sizeof path, "%s", config_write_file("bad", ""));
    must_be_refused(&config, path, RT_DATA, ":1: not a file");
    snprintf(changed, sizeof changed, "{\"version\":2%s", strchr(text, ','));
    snprintf(path, sizeof path, "%s", config_write_file("later", changed));
    must_be_refused(&config, path, RT_UNSUPPORTED, " has format 2, written by another build");
    const dp_popularity twice = {
        .uses = (dp_popular[]){{rt_key(1, 5), 90}, {rt_key(0, 7), 80}, {rt_key(1, 5), 70}},
        .row_count = 3};
    snprintf(path, sizeof path, "%s", config_write_file("twice", ""));
    write_hot(&config, &twice, 3, path);
    must_be_refused(&config, path, RT_DATA, "a row is in it twice");
    rt_config_fini(&config);
}

TEST_MAIN(TEST(every_meaning_counts), TEST(the_file_says_what_was_counted),
          TEST(a_file_that_cannot_be_written), TEST(a_file_that_finds_no_room),
          TEST(counts_are_those_of_a_naive_count), TEST(a_full_table_ends_the_count),
          TEST(columns_that_share_a_table_share_counts), TEST(an_input_without_samples),
          TEST(a_file_of_another_stream_is_refused), TEST(columns_have_their_names),
          TEST(damaged_files_are_refused))
