// Which time it is for a join: labels of whole inputs of which some senders' clocks are wrong,
// against what every event must come to by the times of when things happened.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/rt_hash.h"
#include "runtime/stream/rt_join_time.h"
#include "runtime/stream/rt_stream.h"
#include "tests/support/config_case.h"
#include "tests/support/test.h"

#define EVENTS_MAX 6000u
#define WINDOW_MS 600000
#define BEGIN_MS INT64_C(1760000000000)
#define HOUR_MS INT64_C(3600000)
#define DAY_MS (24 * HOUR_MS)
#define CENTURY_MS (36525 * DAY_MS)
#define SINCE_1970 INT64_MIN // a clock that was never set: it counts from 1970

typedef enum { OF_EVENTS = 1, OF_OUTCOMES = 2 } whose;

typedef struct {
    uint32_t events;
    int64_t gap_ms, window_ms;
    double share; // of the records whose clock is wrong
    int64_t wrong_ms;
    unsigned of;
    bool in_blocks;       // they come eight in a row
    uint32_t night_after; // so many events nothing comes for 8 hours; 0: there is no night
} setting;

typedef struct {
    int64_t time_ms; // when it happened
    uint32_t id;
    bool is_event, label, is_wrong;
} record;

typedef struct {
    record records[2 * EVENTS_MAX];
    uint32_t count;
    int64_t happened_ms[EVENTS_MAX];
    bool is_wrong[EVENTS_MAX], outcome_is_wrong[EVENTS_MAX];
    int64_t delay_ms[EVENTS_MAX]; // of its outcome; -1: there is none
    bool label[EVENTS_MAX];
} input;

static int by_time(const void *left, const void *right)
{
    const record *a = left, *b = right;
    return (a->time_ms > b->time_ms) - (a->time_ms < b->time_ms);
}

static int64_t wrong_time(const setting *s, int64_t time_ms)
{
    if (s->wrong_ms == SINCE_1970)
        return time_ms - BEGIN_MS;
    return time_ms + s->wrong_ms;
}

static bool is_wrong(const setting *s, whose of, rt_random *random, uint32_t number)
{
    rt_random block = {number / 8 + 1000u * of};
    if (!(s->of & of))
        return false;
    return rt_random_unit(s->in_blocks ? &block : random) < s->share;
}

static void make_input(const setting *s, uint64_t seed, input *in)
{
    rt_random random = {seed};
    int64_t time_ms = BEGIN_MS;
    in->count = 0;
    for (uint32_t i = 0; i < s->events; i++) {
        time_ms += 1 + rt_random_below(&random, (uint32_t)(2 * s->gap_ms));
        if (s->night_after && i && i % s->night_after == 0)
            time_ms += 8 * HOUR_MS;
        in->happened_ms[i] = time_ms;
        in->is_wrong[i] = is_wrong(s, OF_EVENTS, &random, i);
        in->delay_ms[i] = -1;
        in->outcome_is_wrong[i] = false;
        in->records[in->count++] = (record){time_ms, i, true, false, in->is_wrong[i]};
        if (rt_random_below(&random, 3) == 0)
            continue;
        in->delay_ms[i] = 1 + rt_random_below(&random, (uint32_t)(3 * s->window_ms / 2));
        in->label[i] = rt_random_below(&random, 4) > 0;
        in->outcome_is_wrong[i] = is_wrong(s, OF_OUTCOMES, &random, i);
        in->records[in->count++] =
            (record){time_ms + in->delay_ms[i], i, false, in->label[i], in->outcome_is_wrong[i]};
    }
    qsort(in->records, in->count, sizeof *in->records, by_time);
}

static void write_input(const setting *s, const input *in)
{
    FILE *events = fopen(test_path("events.csv"), "w");
    FILE *outcomes = fopen(test_path("outcomes.csv"), "w");
    assert_true(events && outcomes);
    for (uint32_t i = 0; i < in->count; i++) {
        const record *one = &in->records[i];
        const int64_t said = one->is_wrong ? wrong_time(s, one->time_ms) : one->time_ms;
        fprintf(one->is_event ? events : outcomes, "e%u,%lld,%u\n", one->id, (long long)said,
                one->is_event ? one->id : one->label);
    }
    fclose(events);
    fclose(outcomes);
}

static rt_config configure(const setting *s)
{
    char text[400];
    rt_config config = config_fresh();
    config_must_set(&config, "stream.format=table");
    config_must_set(&config,
                    "stream.table.columns=[{\"name\":\"id\",\"kind\":\"id\"},{\"name\":\"t\","
                    "\"kind\":\"time\",\"time_format\":\"unix_ms\"},{\"name\":\"c\",\"kind\":"
                    "\"categorical\",\"id\":\"number\"}]");
    config_must_set(&config,
                    "stream.join.columns=[{\"name\":\"id\",\"kind\":\"id\"},{\"name\":\"t\","
                    "\"kind\":\"time\",\"time_format\":\"unix_ms\"},{\"name\":\"y\",\"kind\":"
                    "\"label\"}]");
    snprintf(text, sizeof text, "stream.files=%s", test_path("events.csv"));
    config_must_set(&config, text);
    snprintf(text, sizeof text, "stream.join.outcomes=%s", test_path("outcomes.csv"));
    config_must_set(&config, text);
    snprintf(text, sizeof text, "stream.join.window_s=%g", (double)s->window_ms * 1e-3);
    config_must_set(&config, text);
    return config;
}

typedef struct {
    // Labels 1 that came in time, and others: there are so many, and so many were trained. [1]: of
    // events of which a clock was wrong, the event's or its outcome's.
    uint32_t in_time[2], answered[2], false_ones[2];
    uint64_t waiting_max;
    rt_join_counts counts;
    uint64_t hash; // of what came, in its order
} found;

static void judge(const input *in, const rt_batch *batch, const setting *s, found *f, bool *seen)
{
    for (uint32_t i = 0; i < batch->sample_count; i++) {
        const uint32_t e = (uint32_t)(batch->keys[i] & 0xffffff);
        const bool is_one = batch->labels[i] > 0;
        assert_true(e < s->events && !seen[e]);
        seen[e] = true;
        f->hash = rt_mix(f->hash ^ (2u * e + is_one));
        const bool comes_in_time = in->delay_ms[e] >= 0 && in->delay_ms[e] <= s->window_ms;
        const bool is_wrong = in->is_wrong[e] || in->outcome_is_wrong[e];
        f->in_time[is_wrong] += comes_in_time && in->label[e];
        f->answered[is_wrong] += comes_in_time && is_one;
        f->false_ones[is_wrong] += !comes_in_time && is_one;
        assert_false(comes_in_time && is_one && !in->label[e]);
    }
}

// All of it is read; checkpoint_at: after so many samples it goes on in another stream. 0: never.
static found read_all(const setting *s, const input *in, uint32_t checkpoint_at)
{
    static bool seen[EVENTS_MAX];
    rt_config config = configure(s);
    rt_stream *stream;
    rt_batch batch;
    rt_error error = {0};
    found f = {0};
    uint32_t count = 0;
    memset(seen, 0, sizeof seen);
    rt_batch_init(&batch, 0);
    if (rt_stream_open(&config.stream, 1, &stream, &error))
        fail_msg("%s", error.text);
    rt_stream_remember(stream);
    for (;;) {
        const rt_status status = rt_stream_read(stream, &batch, 50, &error);
        if (status == RT_END)
            break;
        if (status)
            fail_msg("%s", error.text);
        judge(in, &batch, s, &f, seen);
        count += batch.sample_count;
        const rt_join_counts counts = rt_stream_statistics(stream).join;
        if (counts.events < s->events && counts.waiting > f.waiting_max)
            f.waiting_max = counts.waiting;
        f.counts = counts;
        if (checkpoint_at && count >= checkpoint_at) {
            rt_bytes position = {0}, waiting = {0}, restored = {0};
            checkpoint_at = 0;
            rt_stream_tell(stream, &position);
            for (int ahead = 0; ahead < 3; ahead++) // the reader is ahead of what is saved
                (void)rt_stream_read(stream, &batch, 50, &error);
            rt_stream_save(stream, &position, &waiting);
            rt_stream_close(stream);
            assert_int_equal(rt_stream_open(&config.stream, 1, &stream, &error), RT_OK);
            rt_stream_remember(stream);
            rt_reader reader = rt_bytes_reader(&waiting);
            assert_true(rt_stream_take_waiting(&reader, &restored));
            if (rt_stream_seek(stream, &position, &error) ||
                rt_stream_restore(stream, &restored, &error))
                fail_msg("%s", error.text);
            rt_bytes_fini(&position);
            rt_bytes_fini(&waiting);
            rt_bytes_fini(&restored);
        }
    }
    f.counts = rt_stream_statistics(stream).join;
    assert_int_equal(count, s->events);
    rt_batch_fini(&batch);
    rt_stream_close(stream);
    rt_config_fini(&config);
    return f;
}

static void tell(const setting *s, const found *f)
{
    print_message("share %g, wrong by %lld ms, of %u, gap %lld ms%s: %u of %u labels, %u false; of "
                  "wrong clocks %u of %u, %u false; %llu waited, %llu doubted\n",
                  s->share, (long long)s->wrong_ms, s->of, (long long)s->gap_ms,
                  s->in_blocks ? ", in blocks" : "", f->answered[0], f->in_time[0],
                  f->false_ones[0], f->answered[1], f->in_time[1], f->false_ones[1],
                  (unsigned long long)f->waiting_max, (unsigned long long)f->counts.doubted);
}

static found run(const setting *s)
{
    static input in;
    make_input(s, 7, &in);
    write_input(s, &in);
    found f = read_all(s, &in, 0);
    tell(s, &f);
    return f;
}

// ---- files -----------------------------------------------------------------------------------

static const double shares[] = {0.001, 0.01, 0.05, 0.2};

static void check_ahead(setting s)
{
    static const int64_t aheads[] = {HOUR_MS, DAY_MS, CENTURY_MS};
    for (size_t a = 0; a < RT_COUNT_OF(aheads); a++) {
        for (size_t k = 0; k < RT_COUNT_OF(shares); k++) {
            s.wrong_ms = aheads[a];
            s.share = shares[k];
            const found f = run(&s);
            assert_int_equal(f.answered[0], f.in_time[0]);
            assert_true(f.false_ones[0] <= 3); // around a night, in the order of reading
            assert_true(f.answered[1] * 100 >= f.in_time[1] * 95);
            assert_true(f.counts.doubted > 0 || shares[k] < 0.01);
        }
    }
}

// Whether they are of events, of outcomes or of both, come one by one or in a row, among many
// records of a window or few.
static void a_clock_that_is_ahead_ends_no_window(void **state)
{
    (void)state;
    for (unsigned of = OF_EVENTS; of <= (OF_EVENTS | OF_OUTCOMES); of++) {
        check_ahead((setting){.events = 3000, .gap_ms = 400, .window_ms = WINDOW_MS, .of = of});
        check_ahead((setting){.events = 3000,
                              .gap_ms = 2000,
                              .window_ms = WINDOW_MS,
                              .of = of,
                              .in_blocks = true,
                              .night_after = 800});
        check_ahead((setting){.events = 1500, .gap_ms = 20000, .window_ms = WINDOW_MS, .of = of});
    }
}

// A clock that is behind costs the others nothing either, and its own records are waited for from
// when they come.
static void a_clock_that_is_behind_is_waited_for(void **state)
{
    (void)state;
    static const int64_t behinds[] = {-HOUR_MS, -DAY_MS, SINCE_1970};
    for (unsigned of = OF_EVENTS; of <= (OF_EVENTS | OF_OUTCOMES); of++) {
        for (size_t a = 0; a < RT_COUNT_OF(behinds); a++) {
            for (size_t k = 0; k < RT_COUNT_OF(shares); k++) {
                const setting s = {.events = 3000,
                                   .gap_ms = 400,
                                   .window_ms = WINDOW_MS,
                                   .share = shares[k],
                                   .wrong_ms = behinds[a],
                                   .of = of};
                const found f = run(&s);
                assert_true(f.answered[0] * 1000 >= f.in_time[0] * 990);
                assert_true(f.answered[1] * 100 >= f.in_time[1] * 90);
                if (shares[k] > 0.01 && s.wrong_ms == SINCE_1970)
                    assert_true(f.counts.doubted > 0);
            }
        }
    }
}

// Where all clocks are right a window ends as ever, and nothing is doubted: among many records,
// few, and with nights between them.
static void right_clocks_end_windows(void **state)
{
    (void)state;
    static const int64_t gaps_ms[] = {100, 2000, 20000, 120000};
    for (size_t i = 0; i < RT_COUNT_OF(gaps_ms); i++) {
        for (uint32_t night = 0; night < 2; night++) {
            const setting s = {.events = 6000,
                               .gap_ms = gaps_ms[i],
                               .window_ms = 60 * gaps_ms[i],
                               .night_after = night * 700};
            const found f = run(&s);
            assert_int_equal(f.answered[0], f.in_time[0]);
            assert_true(f.false_ones[0] <= 3);
            assert_int_equal(f.counts.doubted, 0);
            assert_true(f.waiting_max < 60 + 64 + 20);
        }
    }
}

// What is saved in between, and the reader is ahead of it, changes nothing.
static void a_checkpoint_changes_nothing(void **state)
{
    (void)state;
    static input in;
    setting s = {.events = 3000,
                 .gap_ms = 1000,
                 .window_ms = WINDOW_MS,
                 .share = 0.1,
                 .of = OF_EVENTS | OF_OUTCOMES,
                 .night_after = 1000};
    static const int64_t wrongs[] = {HOUR_MS, CENTURY_MS, -HOUR_MS, SINCE_1970};
    for (size_t i = 0; i < RT_COUNT_OF(wrongs); i++) {
        s.wrong_ms = wrongs[i];
        make_input(&s, 3 + i, &in);
        write_input(&s, &in);
        const found calm = read_all(&s, &in, 0);
        for (uint32_t at = 1; at < s.events; at += 611) {
            const found f = read_all(&s, &in, at);
            assert_true(f.hash == calm.hash);
            assert_memory_equal(&f.counts, &calm.counts, sizeof f.counts);
        }
    }
}

// A file of an earlier week behind one of a later: its events have their windows, too.
static void an_earlier_file_comes_later(void **state)
{
    (void)state;
    static input in;
    const setting s = {.events = 3000, .gap_ms = 1000, .window_ms = WINDOW_MS};
    make_input(&s, 5, &in);
    for (uint32_t i = 0; i < in.count; i++) // the second half happened a week before
        if (in.records[i].id >= s.events / 2)
            in.records[i].time_ms -= 7 * DAY_MS;
    // In the files they stand behind the others.
    input *sorted = malloc(sizeof *sorted);
    assert_non_null(sorted);
    *sorted = in;
    sorted->count = 0;
    for (uint32_t half = 0; half < 2; half++)
        for (uint32_t i = 0; i < in.count; i++)
            if ((in.records[i].id >= s.events / 2) == (half == 1))
                sorted->records[sorted->count++] = in.records[i];
    write_input(&s, sorted);
    const found f = read_all(&s, sorted, 0);
    free(sorted);
    tell(&s, &f);
    assert_true(f.answered[0] * 100 >= f.in_time[0] * 95);
    assert_true(f.counts.crowded == 0 && f.waiting_max < 1500);
}

// ---- the rule alone --------------------------------------------------------------------------

static int64_t say(rt_join_time *time, rt_flow flow, uint64_t origin, int64_t arrival_ms,
                   int64_t time_ms)
{
    const rt_join_word word = {time_ms, arrival_ms, origin, 1};
    uint64_t doubted;
    (void)rt_join_time_take(time, flow, &word, &doubted);
    return rt_join_time_move(time, &word);
}

// With arrivals who says little is not behind: one record a minute moves the clock by a minute.
static void a_quiet_sender_is_not_behind(void **state)
{
    (void)state;
    static rt_join_time time;
    rt_join_time_init(&time, WINDOW_MS);
    for (uint32_t i = 0; i < 100; i++) {
        const int64_t arrival_ms = BEGIN_MS + 60000 * (int64_t)i, said_ms = arrival_ms - 200;
        const int64_t moved_ms = say(&time, RT_FLOW_EVENTS, 0, arrival_ms, said_ms);
        if (i + 1 < RT_JOIN_TIME_FIRST)
            assert_true(moved_ms == RT_JOIN_TIME_UNKNOWN);
        else
            assert_true(moved_ms == said_ms);
    }
}

// Nobody is ahead of when what he sent came, whatever share he has, and in the night alone.
static void nothing_is_of_the_future(void **state)
{
    (void)state;
    static rt_join_time time;
    rt_join_time_init(&time, WINDOW_MS);
    for (uint32_t i = 0; i < 1000; i++) {
        const int64_t arrival_ms = BEGIN_MS + 1000 * (int64_t)i;
        const bool is_wrong = i % 3 > 0 || i > 500;
        const int64_t moved_ms =
            say(&time, i % 2 ? RT_FLOW_EVENTS : RT_FLOW_OUTCOMES, is_wrong ? 7 : 8, arrival_ms,
                arrival_ms + (is_wrong ? DAY_MS : 0));
        assert_true(moved_ms == RT_JOIN_TIME_UNKNOWN || moved_ms <= arrival_ms);
        assert_true(i < 50 || moved_ms >= arrival_ms - 1000);
    }
    assert_int_equal(time.doubted, 1000 - 501 / 3);
}

// A machine that began in 1970 takes the times for what they are not, but nothing jumps: it goes by
// arrivals.
static void a_machine_of_1970_goes_by_arrivals(void **state)
{
    (void)state;
    static rt_join_time time;
    int64_t before_ms = 0;
    rt_join_time_init(&time, WINDOW_MS);
    for (uint32_t i = 0; i < 1000; i++) {
        const int64_t arrival_ms = 100000 + 500 * (int64_t)i;
        const int64_t moved_ms = say(&time, RT_FLOW_EVENTS, 0, arrival_ms, BEGIN_MS + arrival_ms);
        assert_true(moved_ms == RT_JOIN_TIME_UNKNOWN || moved_ms == arrival_ms);
        assert_true(i < RT_JOIN_TIME_FIRST || moved_ms == before_ms + 500);
        before_ms = moved_ms;
    }
}

// Three feeders come back after a day without a link, and one of them is six hours ahead: what the
// other two have sent moves the clock.
static void most_feeders_decide(void **state)
{
    (void)state;
    static rt_join_time time;
    rt_join_time_init(&time, WINDOW_MS);
    for (uint32_t i = 0; i < 3000; i++) { // a frame of 50 lines by turns
        const uint64_t feeder = i / 50 % 3;
        const int64_t happened_ms = BEGIN_MS + 10000 * (int64_t)i;
        const int64_t moved_ms = say(&time, RT_FLOW_EVENTS, 1 + feeder, BEGIN_MS + DAY_MS + i,
                                     happened_ms + (feeder == 1 ? 6 * HOUR_MS : 0));
        assert_true(moved_ms == RT_JOIN_TIME_UNKNOWN || moved_ms <= happened_ms + 10000);
        assert_true(i < 200 || moved_ms > happened_ms - 300 * 10000);
    }
}

static void what_is_told_is_all(void **state)
{
    (void)state;
    static rt_join_time time, again;
    rt_random random = {1};
    rt_join_time_init(&time, WINDOW_MS);
    for (uint32_t i = 0; i < 2000; i++) {
        const rt_flow flow = i % 3 ? RT_FLOW_EVENTS : RT_FLOW_OUTCOMES;
        const int64_t arrival_ms = BEGIN_MS + 100 * (int64_t)i;
        (void)say(&time, flow, rt_random_below(&random, 12), arrival_ms,
                  arrival_ms - (int64_t)rt_random_below(&random, 4000000) + 2000000);
        if (i % 97)
            continue;
        rt_bytes bytes = {0};
        rt_join_time_tell(&time, &bytes);
        assert_false(bytes.failed);
        assert_true(bytes.size < 32768);
        for (size_t cut = 0; cut < bytes.size; cut += 1 + bytes.size / 50) {
            rt_reader short_one = {bytes.data, cut, false};
            rt_join_time_init(&again, WINDOW_MS);
            assert_false(rt_join_time_seek(&again, &short_one));
        }
        rt_reader reader = rt_bytes_reader(&bytes);
        rt_join_time_init(&again, WINDOW_MS);
        assert_true(rt_join_time_seek(&again, &reader) && reader.left == 0);
        assert_memory_equal(&again.voices[0][0].times, &time.voices[0][0].times,
                            sizeof time.voices[0][0].times);
        assert_true(rt_join_time_limit(&again) == rt_join_time_limit(&time));
        assert_int_equal(again.doubted, time.doubted);
        rt_bytes_fini(&bytes);
    }
}

TEST_MAIN(TEST(a_clock_that_is_ahead_ends_no_window), TEST(a_clock_that_is_behind_is_waited_for),
          TEST(right_clocks_end_windows), TEST(a_checkpoint_changes_nothing),
          TEST(an_earlier_file_comes_later), TEST(a_quiet_sender_is_not_behind),
          TEST(nothing_is_of_the_future), TEST(a_machine_of_1970_goes_by_arrivals),
          TEST(most_feeders_decide), TEST(what_is_told_is_all))
