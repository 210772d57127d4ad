// Who should train: after a link dropped and recovered, with caches that are too small, with many
// workers; and when it is time to ask.
#include "dispatch/planner/dp_participants.h"

#include "tests/support/random_batches.h"
#include "tests/support/test.h"

#define WORKERS 4u
#define SAMPLES 32u
#define FIELDS 4u
#define FAST 1e8
#define DENSE 1000000u // bytes: 10 ms on a fast link, 100 ms on a slow one

typedef struct {
    dp_planner_config config;
    dp_participants *chooser;
    random_batches batches;
    rt_batch batch;
} scene;

static void open_scene(scene *s, uint32_t worker_count, uint32_t slots)
{
    *s = (scene){.config = {.worker_count = worker_count,
                            .sample_count_max = SAMPLES,
                            .keys_per_sample_max = FIELDS,
                            .layout.field_count = FIELDS,
                            .dense_bytes = DENSE,
                            .participants_min = 1,
                            .dispatch = {.policy = RT_POLICY_ESD, .alpha = 1}}};
    for (uint32_t f = 0; f < FIELDS; f++)
        s->config.layout.values[f] = 16;
    for (uint32_t w = 0; w < worker_count; w++) {
        s->config.slot_count[w] = slots;
        s->config.rates.links[w] = (dp_link){FAST, FAST};
        s->config.rates.compute_s_per_sample[w] = 0.001; // 32 ms of one, 8 ms of four
    }
    assert_int_equal(dp_participants_create(&s->config, &s->chooser), RT_OK);
    random_batches_init(&s->batches, 7, FIELDS, 50, 1, 1.0);
    rt_batch_init(&s->batch, 0);
}

static void close_scene(scene *s)
{
    dp_participants_destroy(s->chooser);
    random_batches_fini(&s->batches);
    rt_batch_fini(&s->batch);
}

static void see(scene *s, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        random_batches_fill(&s->batches, &s->batch, SAMPLES);
        assert_int_equal(dp_participants_see(s->chooser, &s->batch), RT_OK);
    }
}

static uint64_t choose(scene *s, uint64_t current)
{
    uint64_t workers;
    assert_int_equal(dp_participants_choose(s->chooser, current, &workers, NULL, NULL), RT_OK);
    return workers;
}

static void tell_link(scene *s, uint32_t worker, double rate)
{
    for (uint32_t way = 0; way < 2; way++) {
        const dp_input input = {
            .kind = way ? DP_INPUT_LINK_DOWN : DP_INPUT_LINK_UP, .worker = worker, .value = rate};
        dp_participants_apply(s->chooser, &input);
    }
}

static void a_link_that_drops_and_recovers(void **state)
{
    (void)state;
    scene s;
    open_scene(&s, WORKERS, SAMPLES * FIELDS);
    see(&s, DP_PARTICIPANTS_FIRST - 1);
    assert_false(dp_participants_due(s.chooser));
    see(&s, 1);
    assert_true(dp_participants_due(s.chooser));
    assert_int_equal(choose(&s, 15), 15); // computing is slow: all are needed
    assert_false(dp_participants_due(s.chooser));
    tell_link(&s, 2, FAST / 10);
    assert_false(dp_participants_due(s.chooser)); // so soon after a choice
    see(&s, DP_PARTICIPANTS_GAP);
    assert_true(dp_participants_due(s.chooser));
    assert_int_equal(choose(&s, 15), 11); // its dense exchange alone is 100 ms
    tell_link(&s, 2, FAST * 0.95);
    see(&s, DP_PARTICIPANTS_GAP);
    assert_true(dp_participants_due(s.chooser));
    assert_int_equal(choose(&s, 11), 15);
    tell_link(&s, 2, FAST); // by less than a tenth
    see(&s, DP_PARTICIPANTS_GAP);
    assert_false(dp_participants_due(s.chooser));
    see(&s, 3 * (DP_PARTICIPANTS_FIRST + 3 * DP_PARTICIPANTS_GAP)); // more than the ring holds
    assert_true(dp_participants_due(s.chooser));
    assert_int_equal(choose(&s, 15), 15);
    close_scene(&s);
}

// One that is a little better is not worth cold caches.
static void equal_sets_stay(void **state)
{
    (void)state;
    scene s;
    uint32_t count;
    dp_candidate candidates[RT_WORKERS_MAX];
    uint64_t workers;
    open_scene(&s, WORKERS, SAMPLES * FIELDS);
    see(&s, 20);
    // Another set of three equal boxes is as good as the prefix of three.
    for (uint32_t w = 0; w < WORKERS; w++) {
        const dp_input free = {.kind = DP_INPUT_COMPUTE, .worker = w, .value = 0};
        dp_participants_apply(s.chooser, &free);
    }
    assert_int_equal(dp_participants_choose(s.chooser, 1, &workers, candidates, &count), RT_OK);
    assert_int_equal(count, WORKERS);
    double best = candidates[0].predicted_s, first = 0;
    for (uint32_t i = 0; i < count; i++) {
        best = candidates[i].predicted_s < best ? candidates[i].predicted_s : best;
        first = candidates[i].workers == 1 ? candidates[i].predicted_s : first;
    }
    const bool stays = best >= (1 - DP_PARTICIPANTS_GAIN) * first;
    assert_int_equal(workers == 1, stays);
    close_scene(&s);
}

// A set whose caches cannot hold its micro-batches is not tried.
static void small_caches_need_many_workers(void **state)
{
    (void)state;
    scene s;
    uint32_t count;
    dp_candidate candidates[RT_WORKERS_MAX];
    uint64_t workers;
    open_scene(&s, WORKERS, (SAMPLES + 2) / 3 * FIELDS); // of three workers, not of two
    see(&s, 10);
    assert_int_equal(dp_participants_choose(s.chooser, 15, &workers, candidates, &count), RT_OK);
    assert_int_equal(count, 2);
    assert_int_equal(candidates[0].workers, 7);
    assert_int_equal(candidates[1].workers, 15);
    close_scene(&s);
}

static void must_be_same(scene *a, scene *b, uint32_t *choices)
{
    dp_input records[2][RT_WORKERS_MAX];
    uint32_t counts[2];
    assert_int_equal(dp_participants_records(a->chooser, 15, records[0], &counts[0]), RT_OK);
    assert_int_equal(dp_participants_records(b->chooser, 15, records[1], &counts[1]), RT_OK);
    assert_int_equal(counts[0], counts[1]);
    assert_memory_equal(records[0], records[1], counts[0] * sizeof records[0][0]);
    *choices += counts[0];
}

// One made from the bytes of another chooses as that does: at the same time, by the same batches,
// before and after the ring is full. A rate that changed before is known.
static void a_state_goes_on(void **state)
{
    (void)state;
    static const uint32_t seen[] = {1, 7, 30, 48, 100};
    uint32_t choices = 0;
    for (size_t i = 0; i < RT_COUNT_OF(seen); i++) {
        scene one, other;
        rt_bytes bytes = {0};
        rt_error error = {0};
        open_scene(&one, WORKERS, SAMPLES * FIELDS);
        open_scene(&other, WORKERS, SAMPLES * FIELDS);
        for (uint32_t k = 0; k < seen[i]; k++) {
            uint32_t ignored;
            dp_input records[RT_WORKERS_MAX];
            if (k == 20)
                tell_link(&one, 2, FAST / 10);
            see(&one, 1);
            random_batches_fill(&other.batches, &other.batch, SAMPLES); // the stream goes on
            assert_int_equal(dp_participants_records(one.chooser, 15, records, &ignored), RT_OK);
        }
        dp_participants_save(one.chooser, &bytes);
        dp_rates rates = one.config.rates;
        if (seen[i] > 20)
            rates.links[2] = (dp_link){FAST / 10, FAST / 10};
        rt_reader reader = rt_bytes_reader(&bytes);
        if (dp_participants_load(other.chooser, &rates, &reader, &error))
            fail_msg("%s", error.text);
        assert_int_equal(reader.left, 0);
        for (uint32_t k = 0; k < 120; k++) {
            if (k == 60) {
                tell_link(&one, 1, FAST / 20);
                tell_link(&other, 1, FAST / 20);
            }
            must_be_same(&one, &other, &choices);
            see(&one, 1);
            see(&other, 1);
        }
        rt_bytes_fini(&bytes);
        close_scene(&one);
        close_scene(&other);
    }
    assert_true(choices > 0);
}

// Cut short anywhere, or with any byte changed, it is refused or harmless.
static void damaged_states(void **state)
{
    (void)state;
    scene one;
    rt_bytes bytes = {0};
    open_scene(&one, WORKERS, SAMPLES * FIELDS);
    see(&one, 3);
    dp_participants_save(one.chooser, &bytes);
    for (size_t at = 0; at < bytes.size; at += 1 + at / 64) {
        rt_error error = {0};
        for (uint32_t flip = 0; flip < 2; flip++) {
            scene other;
            open_scene(&other, WORKERS, SAMPLES * FIELDS);
            rt_reader reader = rt_bytes_reader(&bytes);
            reader.left = flip ? bytes.size : at;
            bytes.data[at] ^= flip ? 0x80 : 0;
            rt_status status =
                dp_participants_load(other.chooser, &one.config.rates, &reader, &error);
            bytes.data[at] ^= flip ? 0x80 : 0;
            assert_true(status == RT_DATA || (flip && !status));
            see(&other, DP_PARTICIPANTS_FIRST);
            (void)choose(&other, 15);
            close_scene(&other);
        }
    }
    rt_bytes_fini(&bytes);
    close_scene(&one);
}

// Another set every few iterations, by the seed alone, never fewer than may be; from a state, too.
static void sets_rotate(void **state)
{
    (void)state;
    scene s;
    uint64_t current = 15, sets = 0, last = 0;
    rt_error error = {0};
    open_scene(&s, WORKERS, SAMPLES * FIELDS);
    dp_participants_destroy(s.chooser);
    s.config.dispatch.participants = RT_PARTICIPANTS_ROTATE;
    s.config.participants_min = 2;
    assert_int_equal(dp_participants_open(&s.config, NULL, NULL, &s.chooser, &error), RT_OK);
    for (uint32_t t = 0; t < 60; t++) {
        dp_input records[RT_WORKERS_MAX];
        uint32_t count;
        if (t == 31) {
            rt_bytes bytes = {0};
            dp_participants_save(s.chooser, &bytes);
            dp_participants_destroy(s.chooser);
            assert_int_equal(
                dp_participants_open(&s.config, &bytes, &s.config.rates, &s.chooser, &error),
                RT_OK);
            rt_bytes_fini(&bytes);
        }
        assert_int_equal(dp_participants_records(s.chooser, current, records, &count), RT_OK);
        assert_true(count == 0 || t % DP_PARTICIPANTS_TURN == 0);
        for (uint32_t i = 0; i < count; i++)
            current ^= rt_bit(records[i].worker);
        assert_true(rt_bit_count(current) >= 2 && current < 16);
        sets += current != last;
        last = current;
        see(&s, 1);
    }
    assert_true(sets > 10);
    s.config.dispatch.participants = RT_PARTICIPANTS_ALL;
    dp_participants *none;
    assert_int_equal(dp_participants_open(&s.config, NULL, NULL, &none, &error), RT_OK);
    assert_null(none);
    close_scene(&s);
}

TEST_MAIN(TEST(a_state_goes_on), TEST(damaged_states), TEST(sets_rotate), TEST(a_link_that_drops_and_recovers), TEST(equal_sets_stay),
          TEST(small_caches_need_many_workers))
