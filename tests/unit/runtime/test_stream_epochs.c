// Files that are read more than once, and samples that are held out: who trains and who judges
// have all of them between each other, in every epoch and after a restart.
#include "tests/unit/runtime/test_stream_support.h"

#include <sys/stat.h>

#include "tests/support/config_case.h"

#define ROWS 2000u

static rt_config config_of(const char *path, const char *const *sets)
{
    rt_config config = config_fresh();
    char files[600];
    snprintf(files, sizeof files, "stream.files=%s", path);
    config_must_set(&config, "stream.format=table");
    config_must_set(&config, "stream.table.columns=[{\"name\":\"y\",\"kind\":\"label\"},"
                             "{\"name\":\"u\",\"kind\":\"categorical\",\"id\":\"number\"}]");
    config_must_set(&config, files);
    for (; *sets; sets++)
        config_must_set(&config, *sets);
    return config;
}

// How often each row came; restart: after so many samples from a position, 0: never.
static void read_rows(const rt_stream_config *config, uint32_t restart, uint32_t times[ROWS])
{
    rt_stream *stream;
    rt_batch batch;
    rt_bytes position = {0};
    rt_error error = {0};
    rt_status status = RT_OK;
    uint32_t count = 0;
    memset(times, 0, ROWS * sizeof *times);
    assert_int_equal(rt_stream_open(config, 7, &stream, &error), RT_OK);
    rt_batch_init(&batch, 0);
    while ((status = rt_stream_read(stream, &batch, 64, &error)) == RT_OK) {
        for (uint32_t i = 0; i < batch.key_count; i++)
            times[batch.keys[i]]++;
        count += batch.sample_count;
        if (restart == 0 || count < restart)
            continue;
        restart = 0;
        rt_bytes_clear(&position);
        rt_stream_tell(stream, &position);
        rt_stream_close(stream);
        assert_int_equal(rt_stream_open(config, 7, &stream, &error), RT_OK);
        if (rt_stream_seek(stream, &position, &error))
            fail_msg("%s", error.text);
    }
    if (status != RT_END)
        fail_msg("%s", error.text);
    rt_bytes_fini(&position);
    rt_batch_fini(&batch);
    rt_stream_close(stream);
}

static char *put_rows(void)
{
    char *text = malloc(ROWS * 16);
    size_t size = 0;
    assert_non_null(text);
    for (uint32_t i = 0; i < ROWS; i++)
        size += (size_t)sprintf(text + size, "%u,%u\n", i % 3 == 0, i);
    char *path = put_bytes("rows", text, size);
    free(text);
    return path;
}

static void each_sample_is_trained_or_judged(void **state)
{
    (void)state;
    static uint32_t trained[ROWS], judged[ROWS], again[ROWS];
    char *path = put_rows();
    rt_config config =
        config_of(path, (const char *const[]){"stream.holdout=0.25", "stream.epochs=3", NULL});
    uint32_t held = 0;
    read_rows(&config.stream, 0, trained);
    read_rows(&config.stream, 2500, again); // in the second epoch
    rt_stream_config judge = config.stream;
    judge.epochs = 1;
    judge.reads_held_out = true;
    read_rows(&judge, 0, judged);
    for (uint32_t i = 0; i < ROWS; i++) {
        assert_int_equal(trained[i] + 3 * judged[i], 3);
        assert_int_equal(again[i], trained[i]);
        held += judged[i];
    }
    assert_true(held > ROWS / 4 - 100 && held < ROWS / 4 + 100); // five deviations of 19
    rt_config_fini(&config);
    free(path);
}

static void what_cannot_be_read_again(void **state)
{
    (void)state;
    static const struct {
        const char *sets[5], *words;
    } cases[] = {
        {{"stream.epochs=2", "stream.files=-", NULL}, "standard input can be read only once"},
        {{"stream.holdout=0.1", "stream.source=http", "stream.files=[]", NULL},
         "works only with files"},
        {{"stream.epochs=2", "stream.id=u", NULL}, "no event is trained twice"},
        {{"stream.epochs=256", "stream.files=[\"a\", \"b\"]", NULL},
         "more than 256 files in total"},
        {{"stream.patience=2", "stream.epochs=3", NULL}, "expected stream.holdout above 0"},
        {{"stream.patience=2", "stream.holdout=0.1", NULL}, "expected stream.epochs above 1"},
        {{"stream.patience=1", "stream.holdout=0.1", "stream.epochs=2", "publish.every_s=5", NULL},
         "publish.every_s take the newest"},
        {{"stream.patience=1", "stream.holdout=0.1", "stream.epochs=2", "checkpoint.copies=0",
          NULL},
         "needs checkpoint.copies 1"},
    };
    for (size_t i = 0; i < RT_COUNT_OF(cases); i++) {
        rt_config config = config_of("rows", cases[i].sets);
        rt_error error = {0};
        config_must_set(&config, "cache.rows=100");
        assert_int_equal(rt_config_check(&config, &error), RT_CONFIG);
        if (!strstr(error.text, cases[i].words))
            fail_msg("\"%s\" does not say \"%s\"", error.text, cases[i].words);
        rt_config_fini(&config);
    }
}

static void pipes(void **state)
{
    (void)state;
    char *path = put_text("pipe", "");
    unlink(path);
    assert_int_equal(mkfifo(path, 0600), 0);
    rt_config config = config_of(path, (const char *const[]){"stream.holdout=0.1", NULL});
    rt_error error = {0};
    config_must_set(&config, "cache.rows=100");
    assert_int_equal(rt_config_check(&config, &error), RT_CONFIG);
    assert_non_null(strstr(error.text, "pipe is a pipe, which can be read only once"));
    rt_config_fini(&config);
    free(path);
}

// What was trained is not judged by.
static void others_are_not_held_out(void **state)
{
    (void)state;
    static const struct {
        const char *before, *now;
        uint64_t seed;
        const char *words;
    } cases[] = {
        {"0.25", "0.5", 7, "stream.holdout was 0.25 with seed 7, it is 0.5 with seed 7"},
        {"0.25", "0.25", 8, "stream.holdout was 0.25 with seed 7, it is 0.25 with seed 8"},
        {"0.25", "0", 7, "or one with stream.join, stream.negatives_keep or stream.holdout"},
        {"0", "0.25", 7, "the position is one without stream."},
    };
    char *path = put_rows(), sets[2][32];
    for (size_t i = 0; i < RT_COUNT_OF(cases); i++) {
        rt_stream *stream;
        rt_batch batch;
        rt_bytes position = {0};
        rt_error error = {0};
        snprintf(sets[0], sizeof sets[0], "stream.holdout=%s", cases[i].before);
        snprintf(sets[1], sizeof sets[1], "stream.holdout=%s", cases[i].now);
        rt_config before = config_of(path, (const char *const[]){sets[0], NULL});
        rt_config now = config_of(path, (const char *const[]){sets[1], NULL});
        assert_int_equal(rt_stream_open(&before.stream, 7, &stream, &error), RT_OK);
        rt_batch_init(&batch, 0);
        assert_int_equal(rt_stream_read(stream, &batch, 64, &error), RT_OK);
        rt_stream_tell(stream, &position);
        rt_stream_close(stream);
        assert_int_equal(rt_stream_open(&now.stream, cases[i].seed, &stream, &error), RT_OK);
        assert_int_equal(rt_stream_seek(stream, &position, &error), RT_DATA);
        if (!strstr(error.text, cases[i].words))
            fail_msg("\"%s\" does not say \"%s\"", error.text, cases[i].words);
        rt_stream_close(stream);
        rt_bytes_fini(&position);
        rt_batch_fini(&batch);
        rt_config_fini(&before);
        rt_config_fini(&now);
    }
    free(path);
}

TEST_MAIN(TEST(each_sample_is_trained_or_judged), TEST(what_cannot_be_read_again), TEST(pipes),
          TEST(others_are_not_held_out))
