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

TEST_MAIN(TEST(a_link_that_drops_and_recovers), TEST(equal_sets_stay),
          TEST(small_caches_need_many_workers))
