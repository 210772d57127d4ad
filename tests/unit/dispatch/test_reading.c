// What a run says of its inputs at the end: every file, in the summary and for people.
#include "dispatch/coordinator/dp_stats.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dispatch/coordinator/dp_feed_parts.h"
#include "tests/support/config_case.h"
#include "tests/support/said.h"
#include "tests/support/test.h"

#define FILES 12u
#define LINES 2u // of each
#define LINE "1\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\n"
#define LINE_BYTES (sizeof LINE - 1)

static char folder[300];

static void put_line(uint32_t file)
{
    char path[400];
    snprintf(path, sizeof path, "%s/%02u", folder, file);
    FILE *to = fopen(path, "a");
    assert_non_null(to);
    fputs(LINE, to);
    assert_int_equal(fclose(to), 0);
}

static void make_files(rt_config *config)
{
    char set[FILES * 400];
    size_t size = (size_t)snprintf(set, sizeof set, "stream.files=");
    snprintf(folder, sizeof folder, "%s", test_path("input"));
    assert_int_equal(mkdir(folder, 0700), 0);
    for (uint32_t i = 0; i < FILES * LINES; i++)
        put_line(i / LINES);
    for (uint32_t i = 0; i < FILES; i++)
        size += (size_t)snprintf(set + size, sizeof set - size, "%s\"%s/%02u\"%s", i ? "," : "[",
                                 folder, i, i == FILES - 1 ? "]" : "");
    *config = config_fresh();
    config_must_set(config, set);
}

// Samples from there on; what comes then is *position, unless it is NULL.
static rt_stream *read_from(const rt_config *config, const rt_bytes *from, uint32_t samples,
                            rt_bytes *position)
{
    rt_error error = {0};
    rt_stream *stream;
    rt_batch batch;
    if (rt_stream_open(&config->stream, config->seed, &stream, &error) ||
        (from && rt_stream_seek(stream, from, &error)))
        fail_msg("%s", error.text);
    rt_batch_init(&batch, rt_stream_schema(stream)->dense_count);
    for (uint32_t i = 0; i < samples; i++) {
        if (rt_stream_read(stream, &batch, 1, &error))
            fail_msg("%s", error.text);
    }
    if (samples == FILES * LINES || samples == 0)
        assert_int_equal(rt_stream_read(stream, &batch, 1, &error), RT_END);
    rt_batch_fini(&batch);
    if (position)
        rt_stream_tell(stream, position);
    return stream;
}

static dp_reading reading_of(dp_feed *feed, rt_stream *stream)
{
    feed->stream = stream;
    return (dp_reading){.feed = feed};
}

static void must_print(const dp_reading *reading, const char *want)
{
    said_output out;
    said_begin(&out, STDOUT_FILENO);
    dp_reading_print(reading);
    fflush(stdout);
    assert_string_equal(said_end(&out), want);
}

typedef struct {
    const char *state;
    uint32_t from, to, lines; // from, to: lines
} input;

static void must_list(const dp_reading *reading, const input *wanted)
{
    rt_json json;
    rt_json_init(&json, 0);
    rt_json_begin_object(&json, NULL);
    dp_reading_write(reading, &json);
    rt_json_end_object(&json);
    cJSON *root = cJSON_Parse(rt_json_text(&json, NULL));
    const cJSON *inputs = cJSON_GetObjectItem(root, "inputs");
    assert_int_equal(cJSON_GetArraySize(inputs), FILES);
    for (uint32_t i = 0; i < FILES; i++) {
        char name[400];
        const cJSON *one = cJSON_GetArrayItem(inputs, (int)i);
        snprintf(name, sizeof name, "%s/%02u", folder, i);
        assert_string_equal(cJSON_GetObjectItem(one, "name")->valuestring, name);
        assert_string_equal(cJSON_GetObjectItem(one, "state")->valuestring, wanted[i].state);
        assert_true(cJSON_GetObjectItem(one, "from_byte")->valuedouble ==
                    (double)(wanted[i].from * LINE_BYTES));
        assert_true(cJSON_GetObjectItem(one, "to_byte")->valuedouble ==
                    (double)(wanted[i].to * LINE_BYTES));
        assert_true(cJSON_GetObjectItem(one, "lines")->valuedouble == wanted[i].lines);
    }
    cJSON_Delete(root);
    rt_json_fini(&json);
}

static void put_printed(char *text, size_t size, const input *wanted, uint32_t count)
{
    size_t used = 0;
    for (uint32_t i = 0; i < count; i++)
        used +=
            (size_t)snprintf(text + used, size - used, "%s/%02u: %s, bytes %zu to %zu, %u lines\n",
                             folder, i, wanted[i].state, wanted[i].from * LINE_BYTES,
                             wanted[i].to * LINE_BYTES, wanted[i].lines);
    if (count < FILES)
        snprintf(text + used, size - used, "... (%u inputs, all of them in summary.json)\n", FILES);
}

// Nothing for people of a run that reads all from the start.
static void a_first_run(void **state)
{
    (void)state;
    rt_config config;
    dp_feed feed = {0};
    input wanted[FILES];
    make_files(&config);
    for (uint32_t i = 0; i < FILES; i++)
        wanted[i] = i < 2    ? (input){"read", 0, 2, 2}
                    : i == 2 ? (input){"read", 0, 1, 1}
                             : (input){"not reached", 0, 0, 0};
    rt_stream *stream = read_from(&config, NULL, 5, NULL);
    const dp_reading reading = reading_of(&feed, stream);
    must_list(&reading, wanted);
    must_print(&reading, "");
    rt_stream_close(stream);
    rt_config_fini(&config);
}

static void a_run_that_goes_on(void **state)
{
    (void)state;
    rt_config config;
    rt_bytes position = {0};
    dp_feed feed = {0};
    input wanted[FILES];
    char text[4096];
    make_files(&config);
    rt_stream_close(read_from(&config, NULL, 5, &position));
    put_line(0); // of a file that was read to its end
    rt_stream *stream = read_from(&config, &position, 5, NULL);
    const dp_reading reading = reading_of(&feed, stream);
    for (uint32_t i = 0; i < FILES; i++)
        wanted[i] = i == 0   ? (input){"grown", 2, 3, 1}
                    : i == 1 ? (input){"read before", 2, 2, 0}
                    : i == 2 ? (input){"continued", 1, 2, 1}
                    : i == 3 ? (input){"read", 0, 2, 2}
                    : i == 4 ? (input){"read", 0, 1, 1}
                             : (input){"not reached", 0, 0, 0};
    must_list(&reading, wanted);
    put_printed(text, sizeof text, wanted, 8);
    must_print(&reading, text);
    rt_stream_close(stream);
    rt_bytes_fini(&position);
    rt_config_fini(&config);
}

static void a_run_without_anything_new(void **state)
{
    (void)state;
    rt_config config;
    rt_bytes position = {0};
    dp_feed feed = {0};
    make_files(&config);
    rt_stream_close(read_from(&config, NULL, FILES * LINES, &position));
    rt_stream *stream = read_from(&config, &position, 0, NULL);
    const dp_reading reading = reading_of(&feed, stream);
    must_print(&reading, "nothing was new in the input: it was read to its end before\n");
    rt_stream_close(stream);
    rt_bytes_fini(&position);
    rt_config_fini(&config);
}

// Each line where there is something to tell, and none where there is not.
static void what_was_left_out(void **state)
{
    (void)state;
    static const struct {
        dp_reading reading;
        const char *text;
    } cases[] = {
        {{.stats = {.lines = 9, .positive = 3, .samples = 7}}, ""},
        {{.stats = {.lines = 9, .malformed = 1}}, "1 of 9 lines were malformed and left out\n"},
        {{.stats = {.odd_labels = 1}}, "1 labels were neither 0 nor 1\n"},
        {{.stats = {.left_out = 1}},
         "1 samples with label 0 were left out (stream.negatives_keep)\n"},
        {{.stats = {.bytes_lost = 1}},
         "1 bytes that pipes gave were not trained: restarts lost "
         "them, or they were left when the run ended\n"},
        {{.stats = {.events_lost = 2}}, "2 events of the input are lost: the log says where\n"},
        {{.stats = {.breaks = 3}},
         "the input was not the one any more that had been read, 3 times: the log says where\n"},
        {{.stats = {.join = {.events = 1}}},
         "1 events, 0 outcomes: 0 events waited in vain, 0 "
         "outcomes came late and were trained\n"},
        {{.stats = {.join = {.outcomes = 1, .unanswered = 2, .late = 3, .waiting = 1}}},
         "0 events, 1 outcomes: 2 events waited in vain, 3 outcomes came late and were trained\n"
         "1 events still wait for their outcomes\n"},
        {{.stats = {.join = {.outcomes = 1, .unmatched = 1}}},
         "0 events, 1 outcomes: 0 events waited in vain, 0 outcomes came late and were trained\n"
         "1 outcomes found no event, 0 ids came again and were left out\n"},
        {{.stats = {.join = {.outcomes = 1, .repeated = 1, .crowded = 1}}},
         "0 events, 1 outcomes: 0 events waited in vain, 0 outcomes came late and were trained\n"
         "0 outcomes found no event, 1 ids came again and were left out\n"
         "1 events or outcomes went before their time: stream.join.events_max\n"},
        {{.stats = {.join = {.waiting = 5, .unmatched = 5, .crowded = 5}}}, ""},
    };
    for (size_t i = 0; i < RT_COUNT_OF(cases); i++)
        must_print(&cases[i].reading, cases[i].text);
}

TEST_MAIN(TEST(a_first_run), TEST(a_run_that_goes_on), TEST(a_run_without_anything_new),
          TEST(what_was_left_out))
