// Names of events (stream.id): where each format of lines has them, what comes again, a stream that
// goes on within a file, and places that are none.
#include "tests/unit/runtime/test_stream_support.h"

#include "tests/support/config_case.h"

#define TABLE                                                                          \
    "stream.table.columns=[{\"name\":\"n\",\"kind\":\"ignore\"},{\"name\":\"y\","      \
    "\"kind\":\"label\"},{\"name\":\"c\",\"kind\":\"categorical\",\"id\":\"number\"}," \
    "{\"name\":\"d\",\"kind\":\"categorical\",\"from\":\"c\"}]"
#define HEADER TABLE, "stream.table.header=true"
#define DERIVED_WITHIN                                                                    \
    "stream.table.columns=[{\"name\":\"y\",\"kind\":\"label\"},{\"name\":\"c\",\"kind\":" \
    "\"categorical\"},"                                                                   \
    "{\"name\":\"d\",\"kind\":\"categorical\",\"from\":\"c\"},{\"name\":\"n\",\"kind\":"  \
    "\"ignore\"}]"
#define JSON                                                                                 \
    "stream.format=json",                                                                    \
        "stream.table.columns=[{\"name\":\"y\",\"kind\":\"label\"},{\"name\":\"c\",\"kind\"" \
        ":\"categorical\"}]"
#define DENSE "1\t2\t3\t4\t5\t6\t7\t8\t9\t10\t11\t12\t13\t"
#define IDS_BUT_1                                                                              \
    "00000002\t00000003\t00000004\t00000005\t00000006\t00000007\t00000008\t00000009\t00000010" \
    "\t00000011\t00000012\t00000013\t00000014\t00000015\t00000016\t00000017\t00000018\t"       \
    "00000019\t00000020\t00000021\t00000022\t00000023\t00000024\t00000025\t00000026"
#define CRITEO(id) "1\t" DENSE id "\t" IDS_BUT_1

typedef struct {
    const char *sets[5]; // of the configuration; the first is stream.id
    const char *text;
    uint32_t samples, duplicates, malformed;
} name_case;

static const name_case named[] = {
    {{"stream.id=n", "stream.format=table", TABLE}, "a,1,1\nb,0,2\na,1,1\n,1,1\n,1,1\n", 4, 1, 0},
    {{"stream.id=1", "stream.format=table", TABLE}, "a,1,1\nb,0,2\na,0,3\n", 2, 1, 0},
    {{"stream.id=n", "stream.format=table", DERIVED_WITHIN}, "1,7,a\n1,7,b\n0,7,a\n", 2, 1, 0},
    {{"stream.id=n", "stream.format=table", TABLE, "stream.table.delimiter=;"},
     "\"a;b\";1;1\n\"a;c\";1;1\n\"a;b\";1;1\n",
     2,
     1,
     0},
    {{"stream.id=n", "stream.format=table", HEADER}, "y,c,n\n1,1,a\n1,1,b\n1,2,a\n", 2, 1, 0},
    {{"stream.id=till", "stream.format=table", HEADER}, "y,till,c\n1,a,1\n1,b,1\n1,a,2\n", 2, 1, 0},
    {{"stream.id=2", "stream.format=table", HEADER}, "y,till,c\n1,a,1\n1,b,1\n1,a,2\n", 2, 1, 0},
    {{"stream.id=e.i", JSON},
     "{\"y\":1,\"c\":\"u\",\"e\":{\"i\":17}}\n{\"y\":1,\"c\":\"u\",\"e\":{\"i\":18}}\n"
     "{\"y\":0,\"c\":\"v\",\"e\":{\"i\":\"17\"}}\n{\"y\":0,\"c\":\"v\"}\n{\"y\":0,\"c\":\"v\"}\n"
     "{\"y\":0,\"c\":\"w\",\"e\":{\"i\":[17]}}\n{\"e\":{\"i\":17}\n{\"e\":{\"i\":18},\"y\":1}\n",
     5,
     2,
     1},
    {{"stream.id=41", "stream.format=criteo"},
     CRITEO("0000000a") "\te1\n" CRITEO("0000000a") "\te2\n" CRITEO("0000000b") "\te1\n" CRITEO(
         "0000000b") "\t\n" CRITEO("0000000b") "\t\n" CRITEO("0000000b") "\n" CRITEO("") "\te3\te4"
                                                                                         "\n",
     4,
     1,
     2},
    {{"stream.id=C1", "stream.format=criteo"},
     CRITEO("0000000a") "\n" CRITEO("0000000b") "\n" CRITEO("0000000a") "\n" CRITEO("") "\n" CRITEO(
         "") "\n",
     4,
     1,
     0},
    {{"stream.id=15", "stream.format=criteo"},
     CRITEO("0000000a") "\n" CRITEO("0000000b") "\n" CRITEO("0000000a") "\n",
     2,
     1,
     0},
    {{"stream.id=#", "stream.format=libsvm"},
     "1 1:1 3:1 # e 1 \n0 1:1 #e 2\n1 4:1 #\te 1\n1 4:1 #\n1 4:1 #\n1 4:1\n",
     5,
     1,
     0},
};

static void configure(rt_config *config, const name_case *one, const char *path)
{
    char files[700];
    *config = config_fresh();
    snprintf(files, sizeof files, "stream.files=%s", path);
    config_must_set(config, files);
    config_must_set(config, "stream.malformed_share_max=1");
    for (size_t i = 0; i < RT_COUNT_OF(one->sets) && one->sets[i]; i++)
        config_must_set(config, one->sets[i]);
}

static void must_be(const name_case *one, const rt_stream_stats *stats)
{
    if (stats->samples != one->samples || stats->duplicates != one->duplicates ||
        stats->malformed != one->malformed)
        fail_msg("%s of %s: %llu samples, %llu duplicates, %llu malformed", one->sets[0], one->text,
                 (unsigned long long)stats->samples, (unsigned long long)stats->duplicates,
                 (unsigned long long)stats->malformed);
}

static void every_format_has_names(void **state)
{
    (void)state;
    for (size_t i = 0; i < RT_COUNT_OF(named); i++) {
        rt_config config;
        rt_batch all;
        rt_stream_stats stats;
        rt_error error = {0};
        char *path = put_text("named", named[i].text);
        configure(&config, &named[i], path);
        if (read_all(&config.stream, 1, 3, &all, &stats, &error) != RT_END)
            fail_msg("%s: %s", named[i].sets[0], error.text);
        must_be(&named[i], &stats);
        rt_batch_fini(&all);
        rt_config_fini(&config);
        free(path);
    }
}

// One sample at a time, each by a stream of its own that goes on where the one before stood.
static void names_go_on_within_a_file(void **state)
{
    (void)state;
    for (size_t i = 0; i < RT_COUNT_OF(named); i++) {
        rt_config config;
        rt_stream *stream;
        rt_batch batch;
        rt_bytes position = {0}, ids = {0};
        rt_stream_stats stats = {0};
        rt_error error = {0};
        rt_status status = RT_OK;
        char *path = put_text("named", named[i].text);
        configure(&config, &named[i], path);
        while (!status) {
            assert_int_equal(rt_stream_open(&config.stream, 1, &stream, &error), RT_OK);
            rt_batch_init(&batch, rt_stream_schema(stream)->dense_count);
            if (position.size > 0 && (rt_stream_seek(stream, &position, &error) ||
                                      rt_stream_load_ids(stream, &ids, &error)))
                fail_msg("%s: %s", named[i].sets[0], error.text);
            status = rt_stream_read(stream, &batch, 1, &error);
            rt_stream_tell(stream, &position);
            ids.size = 0;
            rt_stream_save_ids(stream, &position, &ids);
            stats = rt_stream_statistics(stream);
            rt_batch_fini(&batch);
            rt_stream_close(stream);
        }
        assert_int_equal(status, RT_END);
        must_be(&named[i], &stats);
        rt_bytes_fini(&position);
        rt_bytes_fini(&ids);
        rt_config_fini(&config);
        free(path);
    }
}

static void places_that_are_none(void **state)
{
    (void)state;
    static const struct {
        name_case input;
        rt_status want;
        const char *words;
    } bad[] = {
        {{{"stream.id=m", "stream.format=table", TABLE}, "a,1,1\n", 0, 0, 0},
         RT_CONFIG,
         "stream.id: no column of stream.table.columns has the name m, nor is it the number of "
         "one, 1 to 3"},
        {{{"stream.id=4", "stream.format=table", TABLE}, "a,1,1\n", 0, 0, 0}, RT_CONFIG, "1 to 3"},
        {{{"stream.id=m", "stream.format=table", HEADER}, "y,c,n\n1,1,a\n", 0, 0, 0},
         RT_DATA,
         "the header lacks the column of stream.id: m"},
        {{{"stream.id=4", "stream.format=table", HEADER}, "y,c,n\n1,1,a\n", 0, 0, 0},
         RT_DATA,
         "the header lacks the column of stream.id: 4"},
        {{{"stream.id=C27", "stream.format=criteo"}, "", 0, 0, 0}, RT_CONFIG, "C1 to C26"},
        {{{"stream.id=42", "stream.format=criteo"}, "", 0, 0, 0}, RT_CONFIG, "41: a column behind"},
        {{{"stream.id=n", "stream.format=libsvm"}, "", 0, 0, 0}, RT_CONFIG, "expected \"#\""},
    };
    for (size_t i = 0; i < RT_COUNT_OF(bad); i++) {
        rt_config config;
        rt_batch all;
        rt_error error = {0};
        char *path = put_text("named", bad[i].input.text);
        configure(&config, &bad[i].input, path);
        const rt_status status = read_all(&config.stream, 1, 3, &all, NULL, &error);
        if (status != bad[i].want || !strstr(error.text, bad[i].words))
            fail_msg("%s: %s: \"%s\"", bad[i].input.sets[0], rt_status_text(status), error.text);
        rt_batch_fini(&all);
        rt_config_fini(&config);
        free(path);
    }
}

TEST_MAIN(TEST(every_format_has_names), TEST(names_go_on_within_a_file), TEST(places_that_are_none))
