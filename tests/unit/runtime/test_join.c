// rt_join against what every event must come to by the times of it and its outcome alone, and
// against itself: saved at any step and gone on from there, crowded, with wrong dates.
#include "tests/support/test.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/numbers/rt_negatives.h"
#include "runtime/rt_hash.h"
#include "runtime/stream/rt_join.h"
#include "runtime/stream/rt_join_time.h"

#define EVENTS 3000u
#define WINDOW_MS 50000
#define LATE_MS 200000
#define SEED 7u

typedef struct {
    uint64_t id;
    int64_t time_ms;
    bool is_event, label;
    float weight;
} input;

typedef struct {
    uint64_t id;
    float label, weight;
    double dense;
} output;

typedef struct {
    output items[3 * EVENTS];
    uint32_t count;
} outputs;

static int by_time(const void *left, const void *right)
{
    const input *a = left, *b = right;
    if (a->time_ms != b->time_ms)
        return a->time_ms < b->time_ms ? -1 : 1;
    return (a->is_event ? 0 : 1) - (b->is_event ? 0 : 1);
}

// Event i has id 1000 + i and a time of its own; two thirds have an outcome, after 0 to 300 s.
static uint32_t make_inputs(uint64_t seed, input *inputs)
{
    rt_random random = {seed};
    uint32_t count = 0;
    int64_t time_ms = 1000000;
    for (uint32_t i = 0; i < EVENTS; i++) {
        time_ms += 1 + rt_random_below(&random, 2000);
        const input event = {1000 + i, time_ms, true, false, 0.5f + (float)(i % 4)};
        inputs[count++] = event;
        if (rt_random_below(&random, 3) == 0)
            continue;
        inputs[count] = event;
        inputs[count].is_event = false;
        inputs[count].label = rt_random_below(&random, 4) > 0;
        inputs[count++].time_ms += rt_random_below(&random, 300000);
    }
    qsort(inputs, count, sizeof *inputs, by_time);
    return count;
}

static rt_join_settings settings_of(rt_join_late late, double keep)
{
    return (rt_join_settings){.join = {.window_s = WINDOW_MS / 1000.0,
                                       .late = late,
                                       .late_s = LATE_MS / 1000.0,
                                       .events_max = 1000000},
                              .dense_count = 1,
                              .seed = SEED,
                              .negatives_keep = keep};
}

static rt_join *make_join(const rt_join_settings *settings)
{
    rt_join *join;
    rt_error error = {0};
    assert_int_equal(rt_join_create(settings, &join, &error), RT_OK);
    return join;
}

static void drain(rt_join *join, outputs *out)
{
    rt_batch batch;
    rt_batch_init(&batch, 1);
    assert_int_equal(rt_batch_reserve(&batch, 1, 2), RT_OK);
    batch.is_weighted = true;
    while (rt_join_give(join, &batch)) {
        assert_int_equal(batch.key_count, 2);
        assert_int_equal(batch.keys[1], batch.keys[0] + 1);
        assert_true(out->count < 3 * EVENTS);
        out->items[out->count++] =
            (output){batch.keys[0], batch.labels[0], batch.weights[0], batch.read[0]};
        rt_batch_clear(&batch);
    }
    rt_batch_fini(&batch);
}

// 32 bits hold it, or do not.
static double dense_unit = 1;

static double dense_of(uint64_t id)
{
    return (double)id * dense_unit;
}

static void put_event(rt_join *join, const input *one, outputs *out)
{
    uint64_t keys[2] = {one->id, one->id + 1};
    double dense = dense_of(one->id);
    int64_t time_ms;
    const rt_line_sample sample = {.weight = one->weight,
                                   .key_count = 2,
                                   .id = one->id,
                                   .time_ms = one->time_ms,
                                   .dense = &dense,
                                   .keys = keys};
    if (!rt_join_has_offer(join, &time_ms))
        assert_int_equal(rt_join_offer(join, &sample), RT_OK);
    while (rt_join_has_offer(join, &time_ms)) {
        drain(join, out);
        assert_int_equal(time_ms, one->time_ms);
        assert_int_equal(rt_join_admit(join), RT_OK);
    }
    drain(join, out);
}

static void put_outcome(rt_join *join, const input *one, outputs *out)
{
    bool is_taken = false;
    while (!is_taken) {
        drain(join, out);
        assert_int_equal(rt_join_outcome(join, one->id, one->time_ms,
                                         (rt_join_labels){1, one->label}, &is_taken),
                         RT_OK);
    }
    drain(join, out);
}

static void put(rt_join *join, const input *one, outputs *out)
{
    (one->is_event ? put_event : put_outcome)(join, one, out);
}

static void finish(rt_join *join, outputs *out)
{
    rt_join_end(join);
    drain(join, out);
}

// ---- what every event comes to -----------------------------------------------------------------

static void expect(const outputs *out, uint32_t *at, uint64_t id, float label, float weight)
{
    for (; *at < out->count; (*at)++) {
        const output *one = &out->items[*at];
        if (one->id != id)
            continue;
        assert_true(one->label == label && one->weight == weight && one->dense == dense_of(id));
        (*at)++;
        return;
    }
    fail_msg("event %d: a sample of label %g and weight %g is missing", (int)id, (double)label,
             (double)weight);
}

static uint32_t expect_event(const outputs *out, const input *event, const input *outcome,
                             rt_join_late late, double keep)
{
    const int64_t delay = outcome ? outcome->time_ms - event->time_ms : INT64_MAX;
    const bool is_negative = delay > WINDOW_MS || !outcome->label;
    const bool is_kept = !is_negative || rt_negatives_keeps(SEED, event->id, keep);
    const float weight = event->weight;
    uint32_t at = 0, count = 0;
    if (is_kept) {
        expect(out, &at, event->id, is_negative ? 0 : weight, weight);
        count++;
    }
    if (late == RT_LATE_TRAIN && outcome && outcome->label && delay > WINDOW_MS &&
        delay <= WINDOW_MS + LATE_MS) {
        expect(out, &at, event->id, weight, is_kept ? 0 : weight);
        count++;
    }
    return count;
}

static const input *outcome_of(const input *inputs, uint32_t count, uint64_t id)
{
    for (uint32_t i = 0; i < count; i++) {
        if (!inputs[i].is_event && inputs[i].id == id)
            return &inputs[i];
    }
    return NULL;
}

static void check_events(rt_join_late late, double keep)
{
    static input inputs[2 * EVENTS];
    static outputs out;
    const rt_join_settings settings = settings_of(late, keep);
    rt_join *join = make_join(&settings);
    uint32_t count = make_inputs(3, inputs), expected = 0;
    out.count = 0;
    for (uint32_t i = 0; i < count; i++)
        put(join, &inputs[i], &out);
    finish(join, &out);
    for (uint32_t i = 0; i < count; i++) {
        if (inputs[i].is_event)
            expected +=
                expect_event(&out, &inputs[i], outcome_of(inputs, count, inputs[i].id), late, keep);
    }
    assert_int_equal(out.count, expected);
    assert_true(expected > EVENTS / 2 && expected < 2 * EVENTS);
    assert_int_equal(rt_join_statistics(join).events, EVENTS);
    rt_join_destroy(join);
}

static void test_what_every_event_comes_to(void **state)
{
    (void)state;
    check_events(RT_LATE_DROP, 1);
    check_events(RT_LATE_TRAIN, 1);
    check_events(RT_LATE_TRAIN, 0.3);
}

static void test_dropped_without_an_outcome(void **state)
{
    (void)state;
    static outputs out;
    rt_join_settings settings = settings_of(RT_LATE_DROP, 1);
    settings.join.unanswered = RT_JOIN_DROP;
    rt_join *join = make_join(&settings);
    const input inputs[] = {{1, 1000, true, false, 1},
                            {2, 2000, true, false, 1},
                            {2, 3000, false, false, 1},
                            {3, 1000 + WINDOW_MS + 1, true, false, 1}};
    out.count = 0;
    for (uint32_t i = 0; i < RT_COUNT_OF(inputs); i++)
        put(join, &inputs[i], &out);
    finish(join, &out);
    assert_int_equal(out.count, 1);
    assert_true(out.items[0].id == 2 && out.items[0].label == 0);
    assert_int_equal(rt_join_statistics(join).unanswered, 2);
    rt_join_destroy(join);
}

// ---- order and edges ---------------------------------------------------------------------------

static void test_edges_of_the_window(void **state)
{
    (void)state;
    static outputs out;
    const rt_join_settings settings = settings_of(RT_LATE_DROP, 1);
    const input inputs[] = {
        {1, 1000, true, false, 1},
        {2, 2000, false, true, 1}, // before its event
        {2, 3000, true, false, 1},
        {2, 3000, true, false, 1},             // again
        {1, 1000 + WINDOW_MS, false, true, 1}, // at the last moment
        {1, 1001 + WINDOW_MS, false, true, 1}, // again: there is no such event any more
        {4, 2000 + WINDOW_MS, true, false, 1},
        {4, 2001 + 2 * WINDOW_MS, false, true, 1}, // a moment too late
    };
    rt_join *join = make_join(&settings);
    out.count = 0;
    for (uint32_t i = 0; i < RT_COUNT_OF(inputs); i++)
        put(join, &inputs[i], &out);
    finish(join, &out);
    static const output wanted[] = {{2, 1, 1, 2}, {2, 0, 1, 2}, {1, 1, 1, 1}, {4, 0, 1, 4}};
    // The second event 2 is none of the first one's outcome, which was used: it waits in vain.
    assert_int_equal(out.count, RT_COUNT_OF(wanted));
    for (uint32_t i = 0; i < out.count; i++) {
        uint32_t at = 0;
        while (at < out.count &&
               (out.items[at].id != wanted[i].id || out.items[at].label != wanted[i].label))
            at++;
        assert_true(at < out.count);
    }
    assert_int_equal(rt_join_statistics(join).unmatched, 2);
    rt_join_destroy(join);
}

// A join that is held ends no window, whatever the clock says, and catches up when it is let go.
static void test_held_windows_end_later(void **state)
{
    (void)state;
    static outputs out;
    const rt_join_settings settings = settings_of(RT_LATE_DROP, 1);
    const input event = {1, 1000, true, false, 1}, other = {2, 1001, true, false, 1};
    const input outcome = {1, 5000 + WINDOW_MS, false, true, 1};
    rt_join *join = make_join(&settings);
    out.count = 0;
    rt_join_hold(join, true);
    put(join, &event, &out);
    put(join, &other, &out);
    rt_join_advance(join, 4000 + WINDOW_MS);
    drain(join, &out);
    assert_int_equal(out.count, 0);
    put(join, &outcome, &out);
    assert_int_equal(out.count, 1);
    assert_true(out.items[0].id == 1 && out.items[0].label == 1);
    rt_join_hold(join, false);
    drain(join, &out);
    assert_int_equal(out.count, 2);
    assert_true(out.items[1].id == 2 && out.items[1].label == 0);
    assert_int_equal(rt_join_statistics(join).unanswered, 1);
    rt_join_destroy(join);
}

// An id that waits comes again: it is left out.
static void test_an_event_that_waits_comes_again(void **state)
{
    (void)state;
    static outputs out;
    const rt_join_settings settings = settings_of(RT_LATE_DROP, 1);
    const input inputs[] = {{1, 1000, true, false, 1}, {1, 2000, true, false, 1}};
    rt_join *join = make_join(&settings);
    out.count = 0;
    put(join, &inputs[0], &out);
    put(join, &inputs[1], &out);
    finish(join, &out);
    assert_int_equal(out.count, 1);
    assert_int_equal(rt_join_statistics(join).repeated, 1);
    rt_join_destroy(join);
}

static void test_no_more_than_there_is_room_for(void **state)
{
    (void)state;
    static input inputs[2 * EVENTS];
    static outputs out;
    rt_join_settings settings = settings_of(RT_LATE_TRAIN, 1);
    settings.join.events_max = 20;
    rt_join *join = make_join(&settings);
    const uint32_t count = make_inputs(5, inputs);
    out.count = 0;
    for (uint32_t i = 0; i < count; i++) {
        put(join, &inputs[i], &out);
        const rt_join_counts counts = rt_join_statistics(join);
        assert_true(counts.waiting + counts.kept <= 21);
    }
    finish(join, &out);
    assert_true(rt_join_statistics(join).crowded > 1000);
    uint32_t events = 0; // every event gives one sample, late ones another
    for (uint32_t i = 0; i < out.count; i++)
        events += out.items[i].weight > 0;
    assert_int_equal(events, EVENTS);
    rt_join_destroy(join);
}

// What is ahead of the limit moves nothing; once it is doubted its window is one of now.
static void test_a_limit_holds_the_clock(void **state)
{
    (void)state;
    static outputs out;
    const rt_join_settings settings = settings_of(RT_LATE_DROP, 1);
    rt_join *join = make_join(&settings);
    int64_t clock_ms;
    const input inputs[] = {{1, 1000, true, false, 1},
                            {9, INT64_C(253402300799000), true, false, 1}, // the year 9999
                            {8, INT64_C(253402300799000), false, true, 1},
                            {1, 2000, false, true, 1},
                            {7, 3000, true, false, 1}};
    const input later = {2, 4001 + WINDOW_MS, true, false, 1};
    out.count = 0;
    rt_join_limit(join, 3000, 0);
    for (uint32_t i = 0; i < RT_COUNT_OF(inputs); i++)
        put(join, &inputs[i], &out);
    assert_int_equal(out.count, 1);
    assert_true(out.items[0].id == 1 && out.items[0].label == 1);
    assert_true(rt_join_clock(join, &clock_ms) && clock_ms == 3000);
    rt_join_doubt(join, 9);
    rt_join_doubt(join, 9); // once
    rt_join_limit(join, 4001 + WINDOW_MS, 0);
    put(join, &later, &out);
    assert_int_equal(out.count, 3); // 9 and 7, of 3000 both
    assert_int_equal(rt_join_statistics(join).waiting, 1);
    rt_join_destroy(join);
}

// Without a limit that is known nothing ends at all.
static void test_nothing_ends_before_a_clock(void **state)
{
    (void)state;
    static outputs out;
    const rt_join_settings settings = settings_of(RT_LATE_DROP, 1);
    const input first = {1, 1000, true, false, 1}, later = {2, 2001 + WINDOW_MS, true, false, 1};
    const input outcome = {1, 1001 + WINDOW_MS, false, true, 1}; // late by its own time
    rt_join *join = make_join(&settings);
    int64_t clock_ms;
    out.count = 0;
    rt_join_limit(join, RT_JOIN_TIME_UNKNOWN, RT_JOIN_TIME_UNKNOWN);
    put(join, &first, &out);
    put(join, &later, &out);
    assert_false(rt_join_clock(join, &clock_ms));
    assert_int_equal(out.count, 0);
    put(join, &outcome, &out);
    assert_int_equal(out.count, 1);
    assert_true(out.items[0].id == 1 && out.items[0].label == 0);
    rt_join_destroy(join);
}

// An event that is late by more than a window waits as long as others do, from when it comes.
static void test_what_is_late_has_its_window(void **state)
{
    (void)state;
    static outputs out;
    const rt_join_settings settings = settings_of(RT_LATE_DROP, 1);
    const input inputs[] = {{1, 10 * WINDOW_MS, true, false, 1},
                            {2, 1000, true, false, 1},
                            {3, 2000, true, false, 1},
                            {2, 11 * WINDOW_MS, false, true, 1},
                            {4, 11 * WINDOW_MS + 1, true, false, 1}};
    rt_join *join = make_join(&settings);
    out.count = 0;
    for (uint32_t i = 0; i < RT_COUNT_OF(inputs); i++)
        put(join, &inputs[i], &out);
    assert_int_equal(out.count, 3);
    assert_true(out.items[0].id == 2 && out.items[0].label == 1);
    assert_true(out.items[1].label == 0 && out.items[2].label == 0);
    rt_join_destroy(join);
}

// A clock that was wrong goes back: what waited by it does not wait for ever.
static void test_a_clock_goes_back(void **state)
{
    (void)state;
    static outputs out;
    const rt_join_settings settings = settings_of(RT_LATE_DROP, 1);
    const int64_t wrong_ms = INT64_C(3155760000000), far_ms = 1000;
    const input wrong = {1, wrong_ms, true, false, 1}, right = {2, 5000, true, false, 1};
    const input later = {3, 5000 + WINDOW_MS + far_ms + 2, true, false, 1};
    rt_join *join = make_join(&settings);
    out.count = 0;
    put(join, &wrong, &out);
    put(join, &right, &out);
    rt_join_set_back(join, 5000, far_ms);
    assert_int_equal(out.count, 0);
    put(join, &later, &out);
    assert_int_equal(out.count, 2);
    assert_int_equal(rt_join_statistics(join).waiting, 1);
    rt_join_destroy(join);
}

// ---- saved and gone on from --------------------------------------------------------------------

static rt_join *restore(const rt_join_settings *settings, const rt_bytes *told,
                        const rt_bytes *saved)
{
    rt_join *join = make_join(settings);
    rt_error error = {0};
    rt_reader at = rt_bytes_reader(told), waiting = rt_bytes_reader(saved);
    assert_true(rt_join_seek(join, &at));
    if (rt_join_load(join, &waiting, &error))
        fail_msg("%s", error.text);
    assert_int_equal(waiting.left, 0);
    return join;
}

// Steps of 37 inputs; each is saved when a few more have passed, as a planner does that lags.
static void go_on_from_any_step(uint32_t version)
{
    enum { STEP = 37, LAG = 5 };
    static input inputs[2 * EVENTS];
    static outputs out, again;
    static rt_bytes told[2 * EVENTS / STEP + 2];
    static uint32_t counts[2 * EVENTS / STEP + 2];
    const rt_join_settings settings = settings_of(RT_LATE_TRAIN, 0.5);
    const uint32_t count = make_inputs(11, inputs), steps = count / STEP;
    rt_join *join = make_join(&settings);
    rt_bytes saved[16] = {{0}};
    rt_join_remember(join);
    out.count = 0;
    for (uint32_t s = 0; s < steps; s++) {
        assert_int_equal(rt_join_step(join), s + 1);
        for (uint32_t i = s * STEP; i < (s + 1) * STEP; i++)
            put(join, &inputs[i], &out);
        rt_join_tell(join, &told[s]);
        counts[s] = out.count;
        if (s >= LAG && (s - LAG) % (steps / 8) == 0)
            rt_join_save(join, s - LAG + 1, &saved[(s - LAG) / (steps / 8)]);
        if (s >= LAG)
            rt_join_settle(join, s - LAG + 1);
    }
    finish(join, &out);
    for (uint32_t k = 0; k < 8 && k * (steps / 8) + LAG < steps; k++) {
        const uint32_t s = k * (steps / 8);
        assert_memory_equal(saved[k].data + sizeof(uint32_t), &version, sizeof version);
        rt_join *other = restore(&settings, &told[s], &saved[k]);
        again.count = counts[s];
        memcpy(again.items, out.items, counts[s] * sizeof *out.items);
        for (uint32_t i = (s + 1) * STEP; i < steps * STEP; i++)
            put(other, &inputs[i], &again);
        finish(other, &again);
        assert_int_equal(again.count, out.count);
        assert_memory_equal(again.items, out.items, out.count * sizeof *out.items);
        const rt_join_counts a = rt_join_statistics(join), b = rt_join_statistics(other);
        assert_memory_equal(&a, &b, sizeof a);
        rt_join_destroy(other);
    }
    rt_join_destroy(join);
    for (uint32_t s = 0; s < steps; s++)
        rt_bytes_fini(&told[s]);
    for (uint32_t k = 0; k < 16; k++)
        rt_bytes_fini(&saved[k]);
}

static void test_goes_on_from_any_step(void **state)
{
    (void)state;
    go_on_from_any_step(1);
    dense_unit = 1e6 / 3;
    go_on_from_any_step(2);
}

// ---- several labels ---------------------------------------------------------------------------

// Three labels. Bits: 1 click, 2 buy, 4 kept.
typedef struct {
    input what;
    rt_join_labels labels; // of an outcome
} labelled;

typedef struct {
    uint64_t id;
    float labels[3], weights[3];
} three;

static uint32_t take_three(rt_join *join, three *out, uint32_t count)
{
    rt_batch batch;
    rt_batch_init(&batch, 1);
    rt_batch_begin(&batch, 3, true);
    assert_int_equal(rt_batch_reserve(&batch, 1, 2), RT_OK);
    for (; rt_join_give(join, &batch); count++) {
        assert_true(count < 16);
        out[count].id = batch.keys[0];
        memcpy(out[count].labels, batch.labels, sizeof out->labels);
        memcpy(out[count].weights, batch.weights, sizeof out->weights);
        rt_batch_clear(&batch);
    }
    rt_batch_fini(&batch);
    return count;
}

static uint32_t put_three(rt_join *join, const labelled *one, three *out, uint32_t count)
{
    uint64_t keys[2] = {one->what.id, one->what.id + 1};
    double dense = 0;
    bool is_taken = one->what.is_event;
    const rt_line_sample sample = {.weight = one->what.weight,
                                   .key_count = 2,
                                   .id = one->what.id,
                                   .time_ms = one->what.time_ms,
                                   .dense = &dense,
                                   .keys = keys};
    int64_t time_ms;
    if (one->what.is_event)
        assert_int_equal(rt_join_offer(join, &sample), RT_OK);
    while (rt_join_has_offer(join, &time_ms)) {
        count = take_three(join, out, count);
        assert_int_equal(rt_join_admit(join), RT_OK);
    }
    while (!is_taken) {
        count = take_three(join, out, count);
        assert_int_equal(
            rt_join_outcome(join, one->what.id, one->what.time_ms, one->labels, &is_taken), RT_OK);
    }
    return take_three(join, out, count);
}

// Goes on in a new join from where a step ended, as it is known after two steps more.
static rt_join *move_three(rt_join *join, const rt_join_settings *settings, uint64_t step,
                           const labelled *next, uint32_t next_count)
{
    three lost[16];
    rt_bytes told = {0}, saved = {0};
    rt_error error = {0};
    rt_join_tell(join, &told);
    for (uint32_t i = 0; i < next_count && i < 2; i++) {
        rt_join_step(join);
        put_three(join, &next[i], lost, 0);
    }
    rt_join_save(join, step, &saved);
    rt_join_destroy(join);
    rt_reader told_reader = rt_bytes_reader(&told), saved_reader = rt_bytes_reader(&saved);
    join = make_join(settings);
    rt_join_remember(join);
    assert_true(rt_join_seek(join, &told_reader));
    if (rt_join_load(join, &saved_reader, &error))
        fail_msg("%s", error.text);
    rt_bytes_fini(&told);
    rt_bytes_fini(&saved);
    return join;
}

static uint32_t run_three(rt_join_late late, rt_join_unanswered unanswered, const labelled *steps,
                          uint32_t step_count, uint32_t moves_at, three *out)
{
    rt_join_settings settings = settings_of(late, 1);
    settings.join.unanswered = unanswered;
    settings.label_count = 3;
    rt_join *join = make_join(&settings);
    uint64_t step = 0;
    uint32_t count = 0;
    rt_join_remember(join);
    for (uint32_t i = 0; i < step_count; i++) {
        if (i == moves_at)
            join = move_three(join, &settings, step, &steps[i], step_count - i);
        step = rt_join_step(join);
        count = put_three(join, &steps[i], out, count);
    }
    rt_join_end(join);
    count = take_three(join, out, count);
    rt_join_destroy(join);
    return count;
}

static const labelled three_steps[] = {
    {{1, 1000, true, false, 2}, {0, 0}},
    {{2, 1000, true, false, 1}, {0, 0}},
    {{3, 1000, false, false, 1}, {6, 2}}, // before its event: buy 1, kept 0
    {{1, 2000, false, false, 1}, {1, 1}}, // click
    {{1, 3000, false, false, 1}, {3, 2}}, // buy; click was known: it stays 1
    {{3, 4000, true, false, 1}, {0, 0}},
    {{3, 5000, false, false, 1}, {1, 0}}, // the last one that event 3 lacked
    {{1, 6000, false, false, 1}, {4, 0}}, // likewise
    {{2, 7000, false, false, 1}, {4, 4}},
    {{9, 2001 + WINDOW_MS, true, false, 1}, {0, 0}},  // ends the window of 2
    {{2, 2002 + WINDOW_MS, false, false, 1}, {7, 3}}, // late: click and buy were trained as 0
    {{2, 2003 + WINDOW_MS, false, false, 1}, {7, 3}}, // there is one correction at most
};

static void expect_three(const three *out, uint32_t count, const three *want, uint32_t wanted)
{
    assert_int_equal(count, wanted);
    for (uint32_t i = 0; i < count; i++) {
        assert_int_equal(out[i].id, want[i].id);
        assert_memory_equal(out[i].labels, want[i].labels, sizeof want->labels);
        assert_memory_equal(out[i].weights, want[i].weights, sizeof want->weights);
    }
}

// Wherever a run is interrupted.
static void test_outcomes_fill_the_labels_that_they_name(void **state)
{
    (void)state;
    static const three want[] = {{3, {0, 1, 0}, {1, 1, 1}},
                                 {1, {2, 2, 0}, {2, 2, 2}},
                                 {2, {0, 0, 1}, {1, 1, 1}},
                                 {2, {1, 1, 0}, {0, 0, 0}},
                                 {9, {0, 0, 0}, {1, 1, 1}}};
    for (uint32_t i = 0; i <= RT_COUNT_OF(three_steps); i++) {
        three out[16];
        expect_three(out,
                     run_three(RT_LATE_TRAIN, RT_JOIN_NEGATIVE, three_steps,
                               RT_COUNT_OF(three_steps), i, out),
                     want, RT_COUNT_OF(want));
    }
}

// Without an answer to any of its labels an event is dropped, else what is not known is absent.
static void test_dropped_without_any_label(void **state)
{
    (void)state;
    static const three want[] = {
        {3, {0, 1, 0}, {1, 1, 1}}, {1, {2, 2, 0}, {2, 2, 2}}, {2, {0, 0, 1}, {0, 0, 1}}};
    three out[16];
    expect_three(
        out, run_three(RT_LATE_DROP, RT_JOIN_DROP, three_steps, RT_COUNT_OF(three_steps), 5, out),
        want, RT_COUNT_OF(want));
}

static void test_damaged_bytes_are_refused(void **state)
{
    (void)state;
    static outputs out;
    const rt_join_settings settings = settings_of(RT_LATE_TRAIN, 1);
    const input event = {1, 1000, true, false, 1};
    rt_bytes told = {0}, saved = {0};
    rt_error error = {0};
    rt_join *join = make_join(&settings);
    const uint64_t step = rt_join_step(join);
    out.count = 0;
    put(join, &event, &out);
    rt_join_tell(join, &told);
    rt_join_save(join, step, &saved);
    rt_join_destroy(join);
    for (size_t cut = 0; cut < saved.size; cut++) {
        rt_reader at = rt_bytes_reader(&told), short_one = {saved.data, cut, false};
        join = make_join(&settings);
        assert_true(rt_join_seek(join, &at));
        assert_int_equal(rt_join_load(join, &short_one, &error), RT_DATA);
        rt_join_destroy(join);
    }
    rt_bytes_fini(&told);
    rt_bytes_fini(&saved);
}

TEST_MAIN(TEST(test_what_every_event_comes_to), TEST(test_dropped_without_an_outcome),
          TEST(test_edges_of_the_window), TEST(test_held_windows_end_later),
          TEST(test_an_event_that_waits_comes_again), TEST(test_no_more_than_there_is_room_for),
          TEST(test_a_limit_holds_the_clock), TEST(test_nothing_ends_before_a_clock),
          TEST(test_what_is_late_has_its_window), TEST(test_a_clock_goes_back),
          TEST(test_goes_on_from_any_step), TEST(test_damaged_bytes_are_refused),
          TEST(test_outcomes_fill_the_labels_that_they_name), TEST(test_dropped_without_any_label))
