// When a feed plans a cut, and where it ends.
#include "dispatch/coordinator/dp_feed.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "dispatch/coordinator/dp_feed_parts.h"
#include "dispatch/coordinator/dp_stats.h"
#include "dispatch/planner/dp_setup.h"
#include "runtime/config/rt_formats.h"
#include "tests/support/fields_case.h"
#include "tests/support/said.h"
#include "tests/support/test.h"

#define WORKERS 2u
#define LEFT 3u // iterations

typedef struct {
    rt_config config;
    rt_stream *stream;
    dp_planner_config planner;
    int wake_fd;
} feed_case;

// files: of Criteo's format; NULL: generated samples.
static void begin(feed_case *c, const char *files)
{
    *c = (feed_case){.wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)};
    assert_int_equal(rt_config_init(&c->config), RT_OK);
    c->config.worker_count = WORKERS;
    c->config.samples_per_worker = 4;
    c->config.stream.format = files ? RT_FORMAT_CRITEO : RT_FORMAT_SYNTHETIC;
    c->config.cache.rows = 1000;
    if (files)
        assert_int_equal(rt_config_set(&c->config, files, NULL), RT_OK);
    assert_int_equal(rt_stream_open(&c->config.stream, 1, &c->stream, NULL), RT_OK);
    const rt_schema *schema = rt_stream_schema(c->stream);
    assert_int_equal(dp_setup(&c->config, schema, 0, &c->planner, NULL), RT_OK);
}

static void fini(feed_case *c)
{
    rt_config_fini(&c->config);
    close(c->wake_fd);
}

// A planner that has planned so many iterations, of which nothing is left.
static dp_planner *planner_at(const feed_case *c, uint32_t iteration)
{
    dp_planner *planner;
    dp_restored restored;
    rt_bytes state = {0};
    assert_int_equal(dp_planner_create(&c->planner, &planner, NULL), RT_OK);
    dp_planner_save(planner, &(rt_bytes){0}, &state);
    assert_false(state.failed);
    memcpy(state.data + fields_at(&state, 0, "iteration"), &iteration, sizeof iteration);
    rt_reader reader = rt_bytes_reader(&state);
    rt_status status = dp_planner_load(planner, &reader, true, &restored, NULL);
    assert_int_equal(status, iteration > DP_ITERATIONS_MAX ? RT_DATA : RT_OK);
    rt_bytes_fini(&state);
    return planner;
}

static rt_status await_planned(const feed_case *c, dp_feed *feed, dp_planned **planned_p,
                               rt_error *error)
{
    rt_status status;
    while ((status = dp_feed_take(feed, planned_p, error)) == RT_AGAIN) {
        struct pollfd wake = {.fd = c->wake_fd, .events = POLLIN};
        eventfd_t count;
        (void)poll(&wake, 1, -1);
        (void)eventfd_read(c->wake_fd, &count);
    }
    return status;
}

static dp_planned *take(const feed_case *c, dp_feed *feed)
{
    dp_planned *planned;
    rt_error error = {0};
    if (await_planned(c, feed, &planned, &error))
        fail_msg("%s", error.text);
    return planned;
}

static dp_feed_config config_of(const feed_case *c)
{
    const rt_schema *schema = rt_stream_schema(c->stream);
    const uint32_t samples = dp_planner_micro_batch_max(&c->planner);
    dp_feed_config config = {
        .config = &c->config,
        .planner = &c->planner,
        .planned_max = 2,
        .wake_fd = c->wake_fd,
        .sequence_first = 1,
        .limits = {.dense_count = schema->dense_count,
                   .field_count = schema->field_count,
                   .worker_count = WORKERS,
                   .batch_samples = c->planner.sample_count_max,
                   .sample_count_max = samples,
                   .lookup_count_max = samples * c->planner.keys_per_sample_max,
                   .slot_count = c->planner.slot_count[0]}};
    dp_account_init(&c->planner, &config.costs);
    return config;
}

static rt_wire_slice slice_of(const dp_planned *planned, uint32_t worker)
{
    rt_wire_slice counts;
    assert_non_null(planned->slices[worker].data);
    memcpy(&counts, rt_message_payload(&planned->slices[worker]), sizeof counts);
    return counts;
}

static void expect_iteration(const feed_case *c, dp_feed *feed, uint32_t iteration)
{
    dp_planned *planned = take(c, feed);
    assert_false(planned->is_cut);
    assert_int_equal(planned->iteration, iteration);
    dp_feed_give(feed, planned);
}

// Where it cannot go on from, nothing is read: the run ends, and says why.
static void a_position_that_cannot_be(void **state)
{
    (void)state;
    feed_case c;
    dp_feed *feed;
    dp_planned *planned;
    rt_error error = {0};
    begin(&c, NULL);
    dp_feed_config config = config_of(&c);
    config.iteration = 5;
    config.restored = planner_at(&c, config.iteration);
    rt_bytes position = {0};
    rt_bytes_put(&position, "nonsense", 8);
    config.position = &position;
    assert_int_equal(dp_feed_create(&config, c.stream, &feed, NULL), RT_OK);
    const rt_status status = await_planned(&c, feed, &planned, &error);
    assert_int_equal(status, RT_DATA);
    assert_true(error.text[0] != '\0');
    assert_int_equal(dp_feed_stream_stats(feed).samples, 0);
    dp_feed_destroy(feed);
    rt_bytes_fini(&position);
    fini(&c);
}

// Versions of rows are iterations and have 32 bits: a run ends before they start again from 0, when
// rows would be taken for never trained ones.
static void a_run_ends_before_its_iterations_wrap(void **state)
{
    (void)state;
    feed_case c;
    dp_feed *feed;
    begin(&c, NULL);
    dp_planner_destroy(planner_at(&c, DP_ITERATIONS_MAX + 1)); // no state of a run
    dp_feed_config config = config_of(&c);
    config.iteration = DP_ITERATIONS_MAX - LEFT;
    config.restored = planner_at(&c, config.iteration);
    rt_bytes position = {0};
    rt_stream_tell(c.stream, &position);
    config.position = &position;
    assert_int_equal(dp_feed_create(&config, c.stream, &feed, NULL), RT_OK);
    for (uint32_t t = 1; t <= LEFT; t++)
        expect_iteration(&c, feed, config.iteration + t);
    dp_planned *planned = take(&c, feed);
    assert_true(planned->is_last);
    dp_feed_give(feed, planned);
    dp_feed_destroy(feed);
    rt_bytes_fini(&position);
    fini(&c);
}

static void write_batch(const feed_case *c, int writer)
{
    char line[512] = "1"; // label, 13 numbers, 26 categories
    for (uint32_t f = 0; f < 39; f++)
        strcat(line, f < 13 ? "\t0" : "\t0000000a");
    strcat(line, "\n");
    const size_t size = strlen(line);
    for (uint32_t i = 0; i < WORKERS * c->config.samples_per_worker; i++)
        assert_int_equal(write(writer, line, size), size);
}

// Standard input tells when the planner gets on: a request that comes before a cut is due by the
// number of iterations is served by that one.
static void a_cut_serves_a_request(void **state)
{
    (void)state;
    feed_case c;
    dp_feed *feed;
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(dup2(ends[0], STDIN_FILENO), STDIN_FILENO);
    begin(&c, "stream.files=-");
    c.config.checkpoint.every_iterations = 2;
    dp_feed_config config = config_of(&c);
    config.cuts = true;
    assert_int_equal(dp_feed_create(&config, c.stream, &feed, NULL), RT_OK);
    for (uint32_t t = 1; t <= 2; t++) {
        write_batch(&c, ends[1]);
        expect_iteration(&c, feed, t);
    }
    dp_feed_request_cut(feed);
    write_batch(&c, ends[1]);
    dp_planned *planned = take(&c, feed);
    assert_true(planned->is_cut);
    assert_int_equal(planned->cut, 2);
    dp_feed_give(feed, planned);
    expect_iteration(&c, feed, 3);
    write_batch(&c, ends[1]);
    expect_iteration(&c, feed, 4);
    dp_feed_destroy(feed);
    close(ends[0]);
    close(ends[1]);
    fini(&c);
}

static int begin_pipe(feed_case *c)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(dup2(ends[0], STDIN_FILENO), STDIN_FILENO);
    close(ends[0]);
    begin(c, "stream.files=-");
    return ends[1];
}

// Nothing follows: the cut does not wait for the next batch.
static void a_cut_does_not_wait_for_input(void **state)
{
    (void)state;
    feed_case c;
    dp_feed *feed;
    const int writer = begin_pipe(&c);
    dp_feed_config config = config_of(&c);
    config.cuts = true;
    assert_int_equal(dp_feed_create(&config, c.stream, &feed, NULL), RT_OK);
    for (uint32_t t = 1; t <= 3; t++) {
        write_batch(&c, writer);
        expect_iteration(&c, feed, t);
        dp_feed_request_cut(feed);
        dp_planned *planned = take(&c, feed);
        assert_true(planned->is_cut && !planned->is_last);
        assert_int_equal(planned->cut, t);
        dp_feed_give(feed, planned);
        dp_feed_request_cut(feed); // nothing is new: it is kept for the next batch
    }
    dp_feed_destroy(feed);
    close(writer);
    fini(&c);
}

// What is said when nothing is planned.
static const char *said_of_take(dp_feed *feed)
{
    said_output out;
    dp_planned *planned;
    said_begin(&out, STDERR_FILENO);
    const rt_status status = dp_feed_take(feed, &planned, NULL);
    const char *text = said_end(&out);
    assert_int_equal(status, RT_AGAIN);
    return text;
}

// That a run waits for its input is said when it has waited for a while, and then more and more
// rarely; a batch begins that anew.
static void waiting_for_input_is_said(void **state)
{
    (void)state;
    static const char says[] = "waiting for the input: no batch of 8 samples has come for 0 s";
    feed_case c;
    dp_feed *feed;
    const int writer = begin_pipe(&c);
    dp_feed_config config = config_of(&c);
    assert_int_equal(dp_feed_create(&config, c.stream, &feed, NULL), RT_OK);
    feed->idle_limit_ns = 1;
    assert_string_equal(said_of_take(feed), "");
    assert_non_null(strstr(said_of_take(feed), says));
    assert_int_equal(feed->idle_limit_ns, 2);
    assert_non_null(strstr(said_of_take(feed), says));
    assert_int_equal(feed->idle_limit_ns, 4);
    write_batch(&c, writer);
    expect_iteration(&c, feed, 1);
    assert_string_equal(said_of_take(feed), "");
    assert_non_null(strstr(said_of_take(feed), says));
    feed->idle_limit_ns = UINT64_MAX;
    assert_string_equal(said_of_take(feed), "");
    dp_feed_destroy(feed);
    close(writer);
    fini(&c);
}

static void write_lines(int writer, const char *line, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        assert_int_equal(write(writer, line, strlen(line)), strlen(line));
}

// Begins with events that have names.
static int begin_named(feed_case *c, dp_feed_config *config)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(dup2(ends[0], STDIN_FILENO), STDIN_FILENO);
    close(ends[0]);
    begin(c, "stream.files=-");
    rt_stream_close(c->stream);
    assert_int_equal(rt_config_set(&c->config, "stream.id=41", NULL), RT_OK);
    assert_int_equal(rt_stream_open(&c->config.stream, 1, &c->stream, NULL), RT_OK);
    *config = config_of(c);
    config->cuts = true;
    return ends[1];
}

static void write_named(int writer, uint32_t first, uint32_t last)
{
    for (uint32_t name = first; name <= last; name++) {
        char line[512] = "1";
        for (uint32_t f = 0; f < 39; f++)
            strcat(line, f < 13 ? "\t0" : "\t0000000a");
        snprintf(line + strlen(line), 32, "\tevent-%u\n", name);
        write_lines(writer, line, 1);
    }
}

// What was read before a checkpoint is known behind it: its events are not trained again.
static void names_outlive_a_restart(void **state)
{
    (void)state;
    feed_case c;
    dp_feed *feed;
    dp_feed_config config;
    rt_bytes ids = {0}, position = {0};
    int writer = begin_named(&c, &config);
    assert_int_equal(dp_feed_create(&config, c.stream, &feed, NULL), RT_OK);
    write_named(writer, 1, 8);
    expect_iteration(&c, feed, 1);
    dp_feed_request_cut(feed);
    dp_planned *planned = take(&c, feed);
    assert_true(planned->is_cut);
    rt_bytes_put(&ids, planned->ids.data, planned->ids.size);
    dp_feed_give(feed, planned);
    dp_feed_destroy(feed);
    close(writer);
    fini(&c);

    writer = begin_named(&c, &config);
    config.iteration = 1;
    config.restored = planner_at(&c, 1);
    rt_stream_tell(c.stream, &position);
    config.position = &position;
    config.ids = &ids;
    assert_int_equal(dp_feed_create(&config, c.stream, &feed, NULL), RT_OK);
    write_named(writer, 5, 16); // four of them again
    expect_iteration(&c, feed, 2);
    assert_int_equal(dp_feed_stream_stats(feed).duplicates, 4);
    dp_feed_destroy(feed);
    close(writer);
    rt_bytes_fini(&ids);
    rt_bytes_fini(&position);
    fini(&c);
}

// A batch that does not fill is planned, and the journal says how large it was.
static void a_short_batch_is_in_the_journal(void **state)
{
    (void)state;
    feed_case c;
    dp_feed *feed;
    dp_inputs inputs;
    const int writer = begin_pipe(&c);
    c.config.batch_wait_ms = 1;
    dp_feed_config config = config_of(&c);
    config.journal = test_path("records.jsonl");
    assert_int_equal(dp_feed_create(&config, c.stream, &feed, NULL), RT_OK);
    write_batch(&c, writer);
    expect_iteration(&c, feed, 1);
    c.config.samples_per_worker = 2; // of the lines that are written
    write_batch(&c, writer);
    dp_planned *planned = take(&c, feed);
    assert_int_equal(planned->sample_count, 4);
    dp_feed_give(feed, planned);
    dp_feed_keep_journal(feed);
    dp_feed_destroy(feed);
    close(writer);
    assert_int_equal(dp_inputs_load(test_path("records.jsonl"), WORKERS, &inputs, NULL), RT_OK);
    assert_int_equal(inputs.batch_count, 1);
    assert_int_equal(dp_inputs_samples(&inputs, 1, 8), 8);
    assert_int_equal(dp_inputs_samples(&inputs, 2, 8), 4);
    assert_int_equal(dp_inputs_samples(&inputs, 3, 8), 8);
    dp_inputs_fini(&inputs);
    fini(&c);
}

// With a total the first batches are small, and grow to it with what has been read. Their sizes are in
// the journal, and where the optimizers stand follows the samples.
static void batches_grow(void **state)
{
    (void)state;
    enum { FULL = 22 }; // no multiple of the workers
    feed_case c;
    dp_feed *feed;
    dp_inputs inputs;
    uint32_t seen = 0, sizes[512], count = 0;
    begin(&c, NULL);
    c.config.samples_per_worker = 0;
    c.config.batch_samples = FULL;
    assert_int_equal(dp_setup(&c.config, rt_stream_schema(c.stream), 0, &c.planner, NULL), RT_OK);
    assert_int_equal(c.planner.sample_count_max, FULL);
    dp_feed_config config = config_of(&c);
    config.journal = test_path("records.jsonl");
    assert_int_equal(dp_feed_create(&config, c.stream, &feed, NULL), RT_OK);
    while (count < 3 || sizes[count - 3] < FULL) {
        dp_planned *planned = take(&c, feed);
        const uint32_t grown = seen < 8 * 64 ? 8 : seen / 64;
        sizes[count] = planned->sample_count;
        assert_int_equal(sizes[count], grown < FULL ? grown : FULL);
        seen += sizes[count++];
        const rt_wire_slice slice = slice_of(planned, 0);
        assert_int_equal(slice.batch_samples, FULL);
        assert_int_equal(slice.trained, sizes[count - 1]);
        assert_int_equal(slice.step, (seen + FULL - 1) / FULL);
        dp_feed_give(feed, planned);
    }
    dp_feed_keep_journal(feed);
    dp_feed_destroy(feed);
    assert_int_equal(dp_inputs_load(test_path("records.jsonl"), WORKERS, &inputs, NULL), RT_OK);
    for (uint32_t t = 0; t < count; t++)
        assert_int_equal(dp_inputs_samples(&inputs, t + 1, FULL), sizes[t]);
    dp_inputs_fini(&inputs);
    fini(&c);
}

// What came before bad data is planned to its end; bad data alone is a failure.
static void bad_data_ends_the_input(void **state)
{
    (void)state;
    for (uint32_t good = 0; good < 2; good++) {
        feed_case c;
        dp_feed *feed;
        dp_planned *planned;
        rt_error error = {0};
        const int writer = begin_pipe(&c);
        dp_feed_config config = config_of(&c);
        if (good)
            write_batch(&c, writer);
        write_lines(writer, "garbage\n", 1200);
        close(writer);
        assert_int_equal(dp_feed_create(&config, c.stream, &feed, NULL), RT_OK);
        if (good) {
            expect_iteration(&c, feed, 1);
            planned = take(&c, feed);
            assert_true(planned->is_last);
            dp_feed_give(feed, planned);
            dp_reading reading;
            assert_int_equal(dp_feed_input_failure(feed, &error), RT_DATA);
            dp_reading_take(feed, &reading); // what the summary says
            assert_string_equal(reading.failure.text, error.text);
            assert_true(reading.stats.malformed > 0 && reading.feed == feed);
        } else {
            rt_status status;
            while ((status = dp_feed_take(feed, &planned, &error)) == RT_AGAIN)
                (void)poll(&(struct pollfd){.fd = c.wake_fd, .events = POLLIN}, 1, -1);
            assert_int_equal(status, RT_DATA);
        }
        assert_non_null(strstr(error.text, "are malformed"));
        dp_feed_destroy(feed);
        fini(&c);
    }
}

// What is told counts from the next look-up on, once, whatever iteration it bears; of two of a kind
// the second.
static void what_is_told_takes_effect(void **state)
{
    (void)state;
    static const dp_input told[] = {
        {.kind = DP_INPUT_LINK_UP, .worker = 1, .value = 1e6},
        {.kind = DP_INPUT_LINK_DOWN, .worker = 1, .value = 2e6},
        {.kind = DP_INPUT_LINK_UP, .worker = 1, .value = 3e6, .iteration = 7},
        {.kind = DP_INPUT_LINK_UP, .worker = 0, .value = 4e6},
    };
    static const uint32_t order[] = {2, 1, 3};
    feed_case c;
    dp_feed *feed;
    dp_inputs inputs;
    const int writer = begin_pipe(&c);
    dp_feed_config config = config_of(&c);
    config.journal = test_path("records.jsonl");
    assert_int_equal(dp_feed_create(&config, c.stream, &feed, NULL), RT_OK);
    write_batch(&c, writer);
    expect_iteration(&c, feed, 1);
    for (size_t i = 0; i < RT_COUNT_OF(told); i++)
        dp_feed_tell(feed, &told[i]);
    for (uint32_t t = 2; t <= 3; t++) {
        write_batch(&c, writer);
        expect_iteration(&c, feed, t);
        dp_feed_tell(feed, &told[1]); // no news
    }
    dp_feed_keep_journal(feed);
    dp_feed_destroy(feed);
    close(writer);
    assert_int_equal(dp_inputs_load(test_path("records.jsonl"), WORKERS, &inputs, NULL), RT_OK);
    assert_int_equal(inputs.count, 3);
    for (uint32_t i = 0; i < 3; i++) {
        const dp_input *one = &inputs.items[i], *want = &told[order[i]];
        assert_int_equal(one->number, i + 1);
        assert_int_equal(one->iteration, 2);
        assert_int_equal(one->kind, want->kind);
        assert_int_equal(one->worker, want->worker);
        assert_true(one->value == want->value);
    }
    dp_inputs_fini(&inputs);
    fini(&c);
}

// Deciding is look-up and placement: neither is longer than both, nor than the iteration.
static void times_are_of_their_parts(void **state)
{
    (void)state;
    feed_case c;
    dp_feed *feed;
    begin(&c, NULL);
    dp_feed_config config = config_of(&c);
    const uint64_t begin_ns = rt_now_ns();
    assert_int_equal(dp_feed_create(&config, c.stream, &feed, NULL), RT_OK);
    for (uint32_t t = 1; t <= 10; t++) {
        dp_planned *planned = take(&c, feed);
        const uint64_t passed_ns = rt_now_ns() - begin_ns;
        assert_int_equal(planned->iteration, t);
        assert_true(planned->place_ns > 0 && planned->place_ns < planned->decision_ns);
        assert_true(planned->decision_ns + planned->commit_ns <= passed_ns);
        assert_true(planned->choice_ns > 0 && planned->choice_ns <= passed_ns);
        assert_true(planned->read_ns <= passed_ns);
        dp_feed_give(feed, planned);
    }
    dp_feed_destroy(feed);
    fini(&c);
}

static int compare_keys(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

// How many keys there are after each iteration, and how many of them are new: those of the batches.
static void keys_are_counted(void **state)
{
    (void)state;
    feed_case c;
    dp_feed *feed;
    rt_stream *again;
    rt_batch batch;
    static uint64_t keys[10 * WORKERS * 4 * RT_FIELDS_MAX];
    uint32_t count = 0;
    uint64_t fingerprint = 0;
    begin(&c, NULL);
    dp_feed_config config = config_of(&c);
    assert_int_equal(rt_stream_open(&c.config.stream, 1, &again, NULL), RT_OK);
    rt_batch_init(&batch, rt_stream_schema(again)->dense_count);
    assert_int_equal(dp_feed_create(&config, c.stream, &feed, NULL), RT_OK);
    for (uint32_t t = 1; t <= 10; t++) {
        const uint32_t before = count;
        assert_int_equal(rt_stream_read(again, &batch, WORKERS * 4, NULL), RT_OK);
        memcpy(keys + count, batch.keys, batch.key_count * sizeof *keys);
        qsort(keys, count + batch.key_count, sizeof *keys, compare_keys);
        const uint32_t all = count + batch.key_count;
        count = 0;
        for (uint32_t i = 0; i < all; i++) {
            if (count == 0 || keys[count - 1] != keys[i])
                keys[count++] = keys[i];
        }
        dp_planned *planned = take(&c, feed);
        rt_wire_slice head;
        memcpy(&head, rt_message_payload(&planned->slices[0]), sizeof head);
        assert_true(planned->fingerprint != 0 && planned->fingerprint != fingerprint);
        assert_true(head.fingerprint == planned->fingerprint); // of each plan
        fingerprint = planned->fingerprint;
        assert_int_equal(planned->keys, count);
        assert_int_equal(planned->admitted, count - before);
        dp_feed_give(feed, planned);
    }
    dp_feed_destroy(feed);
    rt_batch_fini(&batch);
    rt_stream_close(again);
    fini(&c);
}

// What worker 1, which sits out, gets of an iteration. left_out: nothing, or how many it did not
// get before.
static void expect_idle(const feed_case *c, dp_feed *feed, bool gets_none, uint32_t left_out)
{
    dp_planned *planned = take(c, feed);
    const uint64_t bytes = planned->slices[0].size + planned->slices[1].size;
    assert_int_equal(planned->participants, 1);
    assert_int_equal(planned->idle, gets_none ? 2 : 0);
    assert_int_equal(planned->slice_bytes, bytes);
    assert_int_equal(slice_of(planned, 0).left_out, 0);
    if (gets_none)
        assert_null(planned->slices[1].data);
    else
        assert_int_equal(slice_of(planned, 1).left_out, left_out);
    dp_feed_give(feed, planned);
}

// Who sits out gets one slice that says so, and then none, until there is something in it, which is
// in the next plan if it is called back. A cut is for all.
static void who_sits_out_gets_no_slices(void **state)
{
    (void)state;
    dp_input part = {.kind = DP_INPUT_PARTICIPATES, .worker = 1, .value = 0};
    feed_case c;
    dp_feed *feed;
    const int writer = begin_pipe(&c);
    c.planner.participants_min = 1;
    dp_feed_config config = config_of(&c);
    config.cuts = true;
    assert_int_equal(dp_feed_create(&config, c.stream, &feed, NULL), RT_OK);
    dp_feed_tell(feed, &part);
    for (uint32_t t = 1; t <= 4; t++) {
        write_batch(&c, writer);
        expect_idle(&c, feed, t > 1, 0);
    }
    dp_feed_request_cut(feed);
    write_batch(&c, writer);
    dp_planned *planned = take(&c, feed);
    assert_true(planned->is_cut);
    assert_int_equal(slice_of(planned, 1).left_out, 3);
    assert_int_equal(slice_of(planned, 1).cut, 4);
    assert_int_equal(slice_of(planned, 0).cut, 4);
    dp_feed_give(feed, planned);
    expect_idle(&c, feed, true, 0);
    part.value = 1;
    dp_feed_tell(feed, &part);
    write_batch(&c, writer);
    planned = take(&c, feed);
    assert_int_equal(planned->participants, 3);
    assert_int_equal(planned->idle, 0);
    assert_int_equal(slice_of(planned, 1).left_out, 1);
    assert_int_equal(slice_of(planned, 1).cut, 0);
    dp_feed_give(feed, planned);
    part.value = 0;
    dp_feed_tell(feed, &part);
    write_batch(&c, writer);
    expect_idle(&c, feed, false, 0);
    dp_feed_destroy(feed);
    close(writer);
    fini(&c);
}

// One of 64 goes out all the same.
static void who_sits_out_is_heard_of_again(void **state)
{
    (void)state;
    const dp_input part = {.kind = DP_INPUT_PARTICIPATES, .worker = 1, .value = 0};
    feed_case c;
    dp_feed *feed;
    const int writer = begin_pipe(&c);
    c.planner.participants_min = 1;
    dp_feed_config config = config_of(&c);
    assert_int_equal(dp_feed_create(&config, c.stream, &feed, NULL), RT_OK);
    dp_feed_tell(feed, &part);
    for (uint32_t t = 1; t <= 130; t++) {
        write_batch(&c, writer);
        expect_idle(&c, feed, t % 64 != 1, t == 1 ? 0 : 63);
    }
    dp_feed_destroy(feed);
    close(writer);
    fini(&c);
}

// An input that cannot be counted needs no key of the user: caches have a size of their own.
static void caches_of_an_input_of_unknown_length(void **state)
{
    (void)state;
    static const char *const sets[][2] = {
        {"stream.files=-", "stream.format=criteo"},
        {"stream.format=synthetic", "stream.files=[]"},
    };
    for (size_t i = 0; i < RT_COUNT_OF(sets); i++) {
        rt_config config;
        rt_schema schema;
        uint64_t keys = 1;
        dp_planner_config planner;
        assert_int_equal(rt_config_init(&config), RT_OK);
        assert_int_equal(rt_config_set(&config, sets[i][0], NULL), RT_OK);
        assert_int_equal(rt_config_set(&config, sets[i][1], NULL), RT_OK);
        assert_int_equal(rt_config_check(&config, NULL), RT_OK);
        assert_int_equal(rt_stream_read_schema(&config.stream, 1, &schema, NULL), RT_OK);
        assert_int_equal(dp_setup_count_keys(&config, &keys, NULL), RT_OK);
        assert_int_equal(keys, 0);
        assert_int_equal(dp_setup(&config, &schema, keys, &planner, NULL), RT_OK);
        assert_int_equal(planner.slot_count[0], (64 << 20) / 128); // 16 values, as much state
        config.samples_per_worker = 65536;
        assert_int_equal(dp_setup(&config, &schema, keys, &planner, NULL), RT_OK);
        assert_int_equal(planner.slot_count[0], 2 * 65536 * schema.keys_per_sample_max);
        rt_config_fini(&config);
    }
    // With an end generated input is counted.
    rt_config config;
    uint64_t keys;
    assert_int_equal(rt_config_init(&config), RT_OK);
    assert_int_equal(rt_config_set(&config, "stream.format=synthetic", NULL), RT_OK);
    assert_int_equal(rt_config_set(&config, "stream.samples_max=10", NULL), RT_OK);
    assert_int_equal(dp_setup_count_keys(&config, &keys, NULL), RT_OK);
    assert_true(keys > 26 && keys <= 260);
    rt_config_fini(&config);
}

TEST_MAIN(TEST(a_run_ends_before_its_iterations_wrap), TEST(a_cut_serves_a_request),
          TEST(a_cut_does_not_wait_for_input), TEST(a_short_batch_is_in_the_journal),
          TEST(bad_data_ends_the_input), TEST(batches_grow), TEST(names_outlive_a_restart),
          TEST(what_is_told_takes_effect), TEST(times_are_of_their_parts), TEST(keys_are_counted),
          TEST(a_position_that_cannot_be), TEST(waiting_for_input_is_said),
          TEST(who_sits_out_gets_no_slices), TEST(who_sits_out_is_heard_of_again),
          TEST(caches_of_an_input_of_unknown_length))
