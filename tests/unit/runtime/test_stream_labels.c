// What a stream says of labels that are all the same is true of the lines that it has read.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/stream/rt_stream.h"
#include "tests/support/config_case.h"
#include "tests/support/said.h"
#include "tests/support/test.h"

#define LINES 22000u

static const char two[] = "stream.table.columns=[{\"name\":\"bought\",\"kind\":\"label\"},"
                          "{\"name\":\"item\",\"kind\":\"categorical\"}]";
static const char three[] = "stream.table.columns=[{\"name\":\"bought\",\"kind\":\"label\"},"
                            "{\"name\":\"liked\",\"kind\":\"label\"},"
                            "{\"name\":\"item\",\"kind\":\"categorical\"}]";

typedef const char *(*line_of)(uint32_t i);

static const char *zero(uint32_t i)
{
    (void)i;
    return "0,a";
}

static const char *one(uint32_t i)
{
    (void)i;
    return "1,a";
}

static const char *mixed(uint32_t i)
{
    return i % 3 ? "0,a" : "1,a";
}

// Whoever wrote the ones wrote them otherwise: those lines are no samples.
static const char *zero_or_broken(uint32_t i)
{
    return i % 6 ? "0,a" : "one,a";
}

static const char *far(uint32_t i)
{
    (void)i;
    return "2,a";
}

static const char *words(uint32_t i)
{
    return i % 2 ? "view,a" : "cart,a";
}

static const char *second_varies(uint32_t i)
{
    return i % 2 ? "0,1,a" : "0,0,a";
}

static const char *classes(uint32_t i)
{
    return i % 2 ? "1,a" : "2,a";
}

static const char *weightless(uint32_t i)
{
    return i % 2 ? "0,1,a" : "1,0,a"; // those that were bought count nothing
}

static const char *zeros_later(uint32_t i)
{
    return i < 1500 ? mixed(i) : "0,a";
}

// All that is said of reading so many batches of these lines, from `begin` on (NULL: the first);
// position (or NULL): where that ends.
static const char *say_from(const char *columns, const char *more, line_of line, uint32_t batches,
                            const rt_bytes *begin, rt_bytes *position)
{
    char set[600];
    rt_stream *stream;
    rt_batch batch;
    rt_error error = {0};
    said_output output;
    FILE *file = fopen(test_path("lines"), "w");
    for (uint32_t i = 0; i < LINES; i++)
        fprintf(file, "%s\n", line(i));
    fclose(file);
    rt_config config = config_fresh();
    snprintf(set, sizeof set, "stream.files=%s", test_path("lines"));
    config_must_set(&config, set);
    config_must_set(&config, "stream.format=table");
    config_must_set(&config, "stream.table.header=false");
    config_must_set(&config, "stream.malformed_share_max=1");
    config_must_set(&config, columns);
    if (*more)
        config_must_set(&config, more);
    said_begin(&output, STDERR_FILENO);
    assert_int_equal(rt_stream_open(&config.stream, 0, &stream, &error), RT_OK);
    if (begin)
        assert_int_equal(rt_stream_seek(stream, begin, &error), RT_OK);
    rt_batch_init(&batch, rt_stream_schema(stream)->dense_count);
    while (batches-- > 0 && !rt_stream_read(stream, &batch, 1000, &error)) {
    }
    if (position)
        rt_stream_tell(stream, position);
    rt_batch_fini(&batch);
    rt_stream_close(stream);
    rt_config_fini(&config);
    return said_end(&output);
}

static const char *say(const char *columns, const char *more, line_of line)
{
    return say_from(columns, more, line, LINES, NULL, NULL);
}

static void must_say(const char *columns, const char *more, line_of line, const char *want)
{
    const char *said = say(columns, more, line);
    if (!strstr(said, want))
        fail_msg("\"%s\" is not in:\n%s", want, said);
}

static void must_be_silent(const char *columns, const char *more, line_of line)
{
    const char *said = say(columns, more, line);
    if (strstr(said, " labels"))
        fail_msg("%s", said);
}

static void says_what_it_has_seen(void **state)
{
    (void)state;
    must_say(two, "", zero,
             "all 10000 labels that were read since the start are taken for 0: is it");
    must_say(two, "", one, "are taken for 1: is it");
    must_say(two, "", far, "are taken for 0; 10000 labels were neither 0 nor 1: is it");
    must_say(two, "", zero_or_broken,
             "are taken for 0; 2000 lines were malformed and left out: is");
    must_be_silent(two, "", mixed);
    char more[] = "stream.table.columns=[{\"name\":\"bought\",\"kind\":\"label\",\"value\":"
                  "\"buy\"},{\"name\":\"item\",\"kind\":\"categorical\"}]";
    must_say(two, more, words, "are taken for 0: is it");
}

static void every_label_is_looked_at(void **state)
{
    (void)state;
    must_say(three, "", second_varies, "all 10000 labels \"bought\" that were read since");
    assert_null(strstr(say(three, "", second_varies), "\"liked\""));
}

static void classes_are_no_ones(void **state)
{
    (void)state;
    const char more[] =
        "stream.table.columns=[{\"name\":\"bought\",\"kind\":\"label\",\"classes\":4},"
        "{\"name\":\"item\",\"kind\":\"categorical\"}]";
    must_be_silent(two, more, classes);
    must_say(two, more, far, "are taken for 2: is it");
}

// Zeros that were left out by choice, and samples that count nothing.
static void what_is_left_out_is_no_lie(void **state)
{
    (void)state;
    const char more[] =
        "stream.table.columns=[{\"name\":\"bought\",\"kind\":\"label\"},{\"name\":\"w\",\"kind\":"
        "\"weight\"},{\"name\":\"item\",\"kind\":\"categorical\"}]";
    must_say(two, more, weightless, "start and have a weight are taken for 0: is");
    must_be_silent(two, "stream.negatives_keep=0.000000001", mixed);
}

// A run that goes on speaks of what it read itself.
static void speaks_of_this_start(void **state)
{
    (void)state;
    rt_bytes position = {0};
    (void)say_from(two, "", zeros_later, 2, NULL, &position);
    assert_non_null(strstr(say_from(two, "", zeros_later, LINES, &position, NULL),
                           "all 10000 labels that were read since the start are taken for 0"));
    rt_bytes_fini(&position);
}

TEST_MAIN(TEST(says_what_it_has_seen), TEST(every_label_is_looked_at), TEST(classes_are_no_ones),
          TEST(what_is_left_out_is_no_lie), TEST(speaks_of_this_start))
