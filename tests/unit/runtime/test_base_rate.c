// The base rate as it becomes known: what may be learnt from which batch, and where the bias is.
#include "runtime/stream/rt_base_rate.h"

#include <math.h>
#include <string.h>

#include "tests/support/test.h"

static void setup(rt_base_rate *rate, const char *const *sets, size_t count, bool has_model)
{
    rt_config config;
    rt_error error = {0};
    assert_int_equal(rt_config_init(&config), RT_OK);
    for (size_t i = 0; i < count; i++)
        if (rt_config_set(&config, sets[i], &error))
            fail_msg("%s", error.text);
    rt_base_rate_init(rate, &config, has_model);
    rt_config_fini(&config);
}

// A batch of so many labels 0 and 1; the first is a 0 where there is one, the ones are spread.
static bool is_one(uint32_t i, uint32_t zeros, uint32_t ones)
{
    const uint32_t all = zeros + ones;
    return (uint64_t)(i + 1) * ones / all > (uint64_t)i * ones / all;
}

static rt_batch_learning note(rt_base_rate *rate, uint32_t zeros, uint32_t ones, double pending)
{
    const uint64_t key = 1;
    rt_batch batch;
    rt_batch_init(&batch, 0);
    for (uint32_t i = 0; i < zeros + ones; i++)
        assert_int_equal(rt_batch_append(&batch, is_one(i, zeros, ones), NULL, &key, 1), RT_OK);
    rt_base_rate_note(rate, &batch, pending);
    const rt_batch_learning learning = batch.learning;
    rt_batch_fini(&batch);
    return learning;
}

static void bias_is(const rt_base_rate *rate, double ones, double zeros)
{
    test_close(rate->labels[0].log_odds, log((ones + 0.5) / (zeros + 0.5)), 1e-6, 1, "log odds");
}

static void a_mixed_batch_is_learnt_at_once(void **state)
{
    (void)state;
    rt_base_rate rate;
    setup(&rate, NULL, 0, false);
    const rt_batch_learning learning = note(&rate, 95, 5, 0);
    assert_false(learning.is_untrained);
    assert_int_equal(learning.unknown, 0);
    test_close((double)learning.log_odds[0], log(4.5 / 76.5), 1e-6, 1,
               "log odds"); // of the last 80
    assert_true(rt_base_rate_is_known(&rate));
    assert_true(note(&rate, 10, 90, 0).log_odds[0] == 0); // from here on the training's
    assert_false(note(&rate, 100, 0, 0).is_untrained);
}

// A night of either class: predictions follow, nothing is learnt, and once both classes come it
// counts for nothing.
static void a_night_of_one_class_is_not_learnt(void **state)
{
    (void)state;
    for (uint32_t which = 0; which < 2; which++) {
        rt_base_rate rate;
        double bias = 0;
        setup(&rate, NULL, 0, false);
        for (uint32_t t = 1; t <= 40; t++) {
            const rt_batch_learning learning = note(&rate, which ? 0 : 100, which ? 100 : 0, 0);
            assert_true(learning.is_untrained);
            bias += (double)learning.log_odds[0];
            bias_is(&rate, which * 100 * t, (1 - which) * 100 * t);
        }
        const rt_batch_learning learning = note(&rate, 80, 20, 0);
        assert_false(learning.is_untrained);
        bias_is(&rate, which ? 20 : 19, which ? 79 : 76); // behind the first of the other class
        test_close(bias + (double)learning.log_odds[0], rate.labels[0].log_odds, 1e-5, 1, "bias");
    }
}

// What is rare is known once it has come RT_RATE_KNOWN times; until then the ones that came count
// beside all the zeros.
static void a_rare_label_is_waited_for(void **state)
{
    (void)state;
    rt_base_rate rate;
    setup(&rate, NULL, 0, false);
    assert_true(note(&rate, 1000, 0, 0).is_untrained);
    assert_true(note(&rate, 63, 1, 0).is_untrained);
    bias_is(&rate, 1, 1063);
    assert_true(note(&rate, 62, 2, 0).is_untrained);
    bias_is(&rate, 2 + 0.5, 62 + 0.5 * 1063);
    assert_true(note(&rate, 63, 1, 0).is_untrained);
    bias_is(&rate, 3 + 0.25, 125 + 0.25 * 1063);
    assert_false(note(&rate, 63, 1, 0).is_untrained);
    bias_is(&rate, 4, 188);
}

// Label 1 comes at once, label 0 when the window is over: events that wait stand for it.
static void a_join_counts_what_waits(void **state)
{
    (void)state;
    rt_base_rate rate;
    setup(&rate, NULL, 0, false);
    for (uint32_t t = 1; t <= 10; t++) {
        assert_true(note(&rate, 0, 50, 950 * t).is_untrained);
        bias_is(&rate, 50 * t, 950 * t);
    }
    assert_false(note(&rate, 95, 5, 9500).is_untrained);
    bias_is(&rate, 5, 94);
}

// A batch most of which is still of the first window: its ones would be far too many.
static void the_batch_at_the_end_of_a_window_is_not_learnt(void **state)
{
    (void)state;
    rt_base_rate rate;
    const uint64_t key = 1;
    rt_batch batch;
    setup(&rate, NULL, 0, false);
    (void)note(&rate, 0, 50, 1000);
    rt_batch_init(&batch, 0);
    for (uint32_t i = 0; i < 300; i++)
        assert_int_equal(rt_batch_append(&batch, i < 200 || i % 10 == 0, NULL, &key, 1), RT_OK);
    rt_base_rate_note(&rate, &batch, 1000);
    assert_true(batch.learning.is_untrained);
    bias_is(&rate, 9, 89);
    assert_false(note(&rate, 90, 10, 1000).is_untrained);
    bias_is(&rate, 9, 89);
    rt_batch_fini(&batch);
}

// Trained weight of label 1 over that of all, in steps of 100 samples of a join.
static double share_of_ones(rt_base_rate *rate, uint32_t zeros, uint32_t ones, double pending)
{
    const rt_batch_learning learning = note(rate, zeros, ones, pending);
    if (learning.is_untrained)
        return NAN;
    const double one = ones * (1 - (double)learning.less[1]);
    return one / (one + zeros * (1 - (double)learning.less[0]));
}

// Events of whom every tenth has label 1, at once, and the others label 0 after a window of ten
// steps. While as many come as before nothing is weighed; when ten times as many come, or none,
// what is trained keeps the share.
static void a_class_that_is_ahead_counts_less(void **state)
{
    (void)state;
    rt_base_rate rate;
    static const char *const joined[] = {"stream.join.source=http"};
    setup(&rate, joined, 1, false);
    double pending = 0;
    for (uint32_t t = 0; t < 10; t++)
        assert_true(note(&rate, 0, 100, pending += 900).is_untrained);
    for (uint32_t t = 0; t < 5; t++)
        test_close(share_of_ones(&rate, 900, 100, pending), 0.1, 1e-9, 1, "share");
    double zeros = 0, ones = 0;
    for (uint32_t t = 0; t < 10; t++) {
        const rt_batch_learning learning = note(&rate, 900, 1000, pending += 8100);
        ones += 1000 * (1 - (double)learning.less[1]);
        zeros += 900 * (1 - (double)learning.less[0]);
    }
    test_close(ones / (ones + zeros), 0.1, 0.03, 1, "share when many come");
    for (uint32_t t = 0; t < 5; t++)
        (void)note(&rate, 9000, 1000, pending);
    uint32_t trained = 0;
    while (pending > 0) // and now nobody comes any more: label 0 alone
        trained += !note(&rate, 900, 0, pending -= 900).is_untrained;
    assert_in_range(trained, 1, 40); // of 90 batches
}

static void without_a_join_nothing_is_ahead(void **state)
{
    (void)state;
    rt_base_rate rate;
    setup(&rate, NULL, 0, false);
    for (uint32_t t = 0; t < 20; t++) {
        const rt_batch_learning learning = note(&rate, 95, t % 2 ? 5 : 0, 0);
        assert_true(learning.less[0] == 0 && learning.less[1] == 0);
    }
}

// A rate that is given, or a model to begin with: the bias stays where it is.
static void a_bias_that_is_given_stays(void **state)
{
    (void)state;
    rt_base_rate rate;
    setup(&rate, (const char *[]){"model.base_rate=0.1"}, 1, false);
    rt_batch_learning learning = note(&rate, 100, 0, 0);
    assert_true(learning.is_untrained && learning.log_odds[0] == 0);
    learning = note(&rate, 90, 10, 0);
    assert_true(!learning.is_untrained && learning.log_odds[0] == 0);
    setup(&rate, NULL, 0, true);
    learning = note(&rate, 100, 0, 0);
    assert_true(!learning.is_untrained && learning.log_odds[0] == 0);
    static const char *const joined[] = {"stream.join.source=http"};
    setup(&rate, joined, 1, true); // whose first window gives label 1 alone
    learning = note(&rate, 0, 100, 1000);
    assert_true(learning.is_untrained && learning.log_odds[0] == 0);
    assert_false(note(&rate, 10, 100, 1000).is_untrained);
    static const char *const dropped[] = {"stream.join.source=http", "stream.join.unanswered=drop"};
    setup(&rate, dropped, 2, true);
    assert_false(note(&rate, 0, 100, 0).is_untrained);
}

// Every label for itself; what a sample lacks is not counted.
static void several_labels_each_for_itself(void **state)
{
    (void)state;
    rt_base_rate rate = {.follows = true, .label_count = 2};
    const uint64_t key = 1;
    for (uint32_t t = 1; t <= 3; t++) {
        rt_batch batch;
        rt_batch_init(&batch, 0);
        rt_batch_begin(&batch, 2, true);
        for (uint32_t i = 0; i < 40; i++) {
            const float labels[] = {i % 4 == 0, i % 2 ? NAN : t == 3 && i < 10};
            assert_int_equal(rt_batch_append(&batch, 0, NULL, &key, 1), RT_OK);
            rt_batch_set_labels(&batch, i, labels, 2);
        }
        rt_base_rate_note(&rate, &batch, 0);
        assert_false(batch.learning.is_untrained);
        assert_int_equal(batch.learning.unknown, t < 3 ? 2 : 0);
        assert_true((batch.learning.log_odds[0] != 0) == (t == 1));
        rt_batch_fini(&batch);
    }
    bias_is(&rate, 18, 58);
    test_close(rate.labels[1].log_odds, log(8.5 / 30.5), 1e-6, 1, "log odds");
}

// A correction of a label that came late is one label 1 more and one label 0 less.
static void a_correction_counts_as_it_is_trained(void **state)
{
    (void)state;
    rt_base_rate rate = {.follows = true, .label_count = 1};
    const uint64_t key = 1;
    rt_batch batch;
    assert_true(note(&rate, 100, 0, 0).is_untrained);
    rt_batch_init(&batch, 0);
    rt_batch_begin(&batch, 1, true);
    for (uint32_t i = 0; i < 16; i++) {
        assert_int_equal(rt_batch_append(&batch, 0, NULL, &key, 1), RT_OK);
        batch.labels[i] = i < 5;
        batch.weights[i] = i >= 5;
    }
    rt_base_rate_note(&rate, &batch, 0);
    assert_false(batch.learning.is_untrained);
    bias_is(&rate, 4, 7);
    rt_batch_fini(&batch);
}

// Zeros, then ones, that all weigh the same.
static rt_batch_learning note_weighed(rt_base_rate *rate, uint32_t zeros, uint32_t ones,
                                      double pending, float weight)
{
    const uint64_t key = 1;
    rt_batch batch;
    rt_batch_init(&batch, 0);
    rt_batch_begin(&batch, 1, true);
    for (uint32_t i = 0; i < zeros + ones; i++) {
        assert_int_equal(rt_batch_append(&batch, 0, NULL, &key, 1), RT_OK);
        batch.weights[i] = weight;
        batch.labels[i] = is_one(i, zeros, ones) ? weight : 0;
    }
    rt_base_rate_note(rate, &batch, pending);
    const rt_batch_learning learning = batch.learning;
    rt_batch_fini(&batch);
    return learning;
}

// Weights that are small, as where all of them add up to 1, make no rate less known, nor those
// that are large more; and what waits in a join is counted as what comes.
static void weights_do_not_say_how_much_is_known(void **state)
{
    (void)state;
    static const float weights[] = {1e-6f, 0.01f, 1, 100};
    static const char *const joined[] = {"stream.join.source=http"};
    for (size_t i = 0; i < RT_COUNT_OF(weights); i++) {
        rt_base_rate rate;
        setup(&rate, NULL, 0, false);
        assert_true(note_weighed(&rate, 97, 3, 0, weights[i]).is_untrained);
        assert_false(note_weighed(&rate, 97, 3, 0, weights[i]).is_untrained);
        test_close(rate.labels[0].log_odds, log(5.25 / 161), 0.05, 1, "log odds");
        setup(&rate, joined, 1, false);
        assert_true(note_weighed(&rate, 0, 50, 950, weights[i]).is_untrained);
        test_close(rate.labels[0].log_odds, log(50.0 / 950), 0.02, 1, "log odds");
        (void)note_weighed(&rate, 90, 10, 950, weights[i]);
        (void)note_weighed(&rate, 90, 10, 950, weights[i]);
        const rt_batch_learning learning = note_weighed(&rate, 80, 10, 960, weights[i]);
        test_close((double)learning.less[1], 0.051, 0.002, 1, "less"); // with those before
    }
}

static void several_classes_have_none(void **state)
{
    (void)state;
    rt_base_rate rate;
    setup(&rate,
          (const char *[]){"stream.format=table",
                           "stream.table.columns=[{\"name\": \"y\", \"kind\": \"label\", "
                           "\"classes\": 3}, {\"name\": \"a\", \"kind\": \"categorical\"}]"},
          2, false);
    const rt_batch_learning learning = note(&rate, 10, 0, 0);
    assert_true(!learning.is_untrained && learning.log_odds[0] == 0);
}

static void it_goes_on_from_a_checkpoint(void **state)
{
    (void)state;
    rt_base_rate rate, loaded;
    rt_bytes bytes = {0};
    rt_error error = {0};
    setup(&rate, NULL, 0, false);
    (void)note(&rate, 1000, 0, 0);
    (void)note(&rate, 62, 2, 0);
    rt_base_rate_save(&rate, &bytes);
    rt_bytes_put_u64(&bytes, 77); // what stands behind it
    rt_reader reader = rt_bytes_reader(&bytes);
    setup(&loaded, NULL, 0, false);
    assert_int_equal(rt_base_rate_load(&loaded, &reader, &error), RT_OK);
    assert_memory_equal(&loaded, &rate, sizeof rate);
    assert_int_equal(rt_reader_u64(&reader), 77);
    for (size_t size = 8; size + 8 < bytes.size; size++) {
        reader = (rt_reader){bytes.data, size, false};
        setup(&loaded, NULL, 0, false);
        assert_int_equal(rt_base_rate_load(&loaded, &reader, &error), RT_DATA);
    }
    // Known: nothing is saved, and where nothing was saved it is.
    (void)note(&rate, 20, 20, 0);
    rt_bytes_clear(&bytes);
    rt_base_rate_save(&rate, &bytes);
    assert_int_equal(bytes.size, 0);
    rt_bytes_put_u64(&bytes, 77);
    reader = rt_bytes_reader(&bytes);
    setup(&loaded, NULL, 0, false);
    assert_int_equal(rt_base_rate_load(&loaded, &reader, &error), RT_OK);
    assert_true(rt_base_rate_is_known(&loaded));
    assert_int_equal(rt_reader_u64(&reader), 77);
    rt_bytes_fini(&bytes);
}

// A bias that a model brings stands behind a checkpoint, too.
static void a_model_to_begin_with_is_not_forgotten(void **state)
{
    (void)state;
    static const char *const joined[] = {"stream.join.source=http"};
    rt_base_rate rate, loaded;
    rt_bytes bytes = {0};
    rt_error error = {0};
    setup(&rate, joined, 1, true);
    assert_true(note(&rate, 0, 100, 1000).is_untrained);
    rt_base_rate_save(&rate, &bytes);
    setup(&loaded, joined, 1, false);
    rt_reader reader = rt_bytes_reader(&bytes);
    assert_int_equal(rt_base_rate_load(&loaded, &reader, &error), RT_OK);
    const rt_batch_learning learning = note(&loaded, 10, 100, 1000);
    assert_true(!learning.is_untrained && learning.log_odds[0] == 0);
    rt_bytes_fini(&bytes);
}

// Of a build that saved none: what waits in the join has waited before, and is nothing new.
static void what_waited_before_is_not_owed(void **state)
{
    (void)state;
    static const char *const joined[] = {"stream.join.source=http"};
    rt_base_rate rate;
    rt_reader none = {0};
    rt_error error = {0};
    setup(&rate, joined, 1, false);
    assert_int_equal(rt_base_rate_load(&rate, &none, &error), RT_OK);
    for (uint32_t t = 0; t < 3; t++) {
        const rt_batch_learning learning = note(&rate, 95, 5, 100000);
        assert_true(!learning.is_untrained && learning.less[0] < 1e-6f && learning.less[1] < 1e-6f);
    }
}

TEST_MAIN(TEST(a_mixed_batch_is_learnt_at_once), TEST(a_night_of_one_class_is_not_learnt),
          TEST(a_rare_label_is_waited_for), TEST(a_join_counts_what_waits),
          TEST(the_batch_at_the_end_of_a_window_is_not_learnt),
          TEST(a_class_that_is_ahead_counts_less), TEST(without_a_join_nothing_is_ahead),
          TEST(a_bias_that_is_given_stays), TEST(several_labels_each_for_itself),
          TEST(a_correction_counts_as_it_is_trained), TEST(weights_do_not_say_how_much_is_known),
          TEST(several_classes_have_none), TEST(it_goes_on_from_a_checkpoint),
          TEST(a_model_to_begin_with_is_not_forgotten), TEST(what_waited_before_is_not_owed))
