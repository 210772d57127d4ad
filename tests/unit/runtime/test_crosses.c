// Which crosses rt_crosses finds in rows whose labels are drawn by rules that the test knows: so it
// also knows what a cross can gain at most.
#include "runtime/guess/rt_crosses.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "runtime/rt_hash.h"
#include "tests/support/config_case.h"
#include "tests/support/test.h"

#define COLUMNS 8u
#define ROWS 20000u

// Values of columns a to h; low ones come more often.
static const uint32_t sizes[COLUMNS] = {3, 8, 20, 50, 100, 300, 12, 40};

// Two columns whose values together move the log-odds by `strength`, up or down.
typedef struct {
    uint32_t a, b;
    double strength;
} planted;

typedef struct {
    planted pairs[2]; // of strength 0: none
    uint32_t row_count;
    double gain[2]; // what knowing the pair gains of the log loss of the second half, beside the
                    // pairs before it
} rules;

static double unit(uint64_t seed)
{
    rt_random random = {rt_mix(seed)};
    return rt_random_unit(&random);
}

static double taste(uint32_t column, uint32_t value)
{
    return unit(column * 1000 + value) - 0.5;
}

static double pull(const planted *pair, const uint32_t *values)
{
    const uint64_t both = (uint64_t)values[pair->a] << 32 | values[pair->b];
    return unit(both * 31 + pair->a) < 0.5 ? -pair->strength : pair->strength;
}

static double loss(double margin, bool label)
{
    return log1p(exp(label ? -margin : margin));
}

// Without a pair that is there the log-odds at hand are the mean of its two cases.
static double flattened(double margin, double strength, uint32_t turns)
{
    double p = 0;
    for (uint32_t t = 0; t < turns; t++)
        p += 1 / (1 + exp(-margin - (t & 1 ? strength : -strength))) / turns;
    return log(p / (1 - p));
}

static void write_row(FILE *file, rules *drawn, uint64_t i, rt_random *random)
{
    uint32_t values[COLUMNS + 1];
    double margin = -0.5;
    for (uint32_t c = 0; c < COLUMNS; c++) {
        values[c] = (uint32_t)(sizes[c] * pow(rt_random_unit(random), 1.5));
        margin += taste(c, values[c]);
    }
    values[COLUMNS] = values[5] / 7; // of f
    const double first = margin + pull(&drawn->pairs[0], values);
    const double both = first + pull(&drawn->pairs[1], values);
    const bool label = rt_random_unit(random) < 1 / (1 + exp(-both));
    const uint64_t half = drawn->row_count / 2;
    if (i >= half) {
        const double without = flattened(first, drawn->pairs[1].strength, 2);
        drawn->gain[0] +=
            (loss(flattened(margin, drawn->pairs[0].strength, 2), label) - loss(first, label)) /
            (double)half;
        drawn->gain[1] += (loss(without, label) - loss(both, label)) / (double)half;
    }
    fprintf(file, "%d", label);
    for (uint32_t c = 0; c < COLUMNS; c++)
        fprintf(file, ",%c%u", 'a' + c, values[c]);
    fprintf(file, ",%u,%u\n", values[COLUMNS], values[0]);
}

static const char columns[] = "{\"name\": \"y\", \"kind\": \"label\"}"
                              ",{\"name\": \"a\", \"kind\": \"categorical\"}"
                              ",{\"name\": \"b\", \"kind\": \"categorical\"}"
                              ",{\"name\": \"c\", \"kind\": \"categorical\"}"
                              ",{\"name\": \"d\", \"kind\": \"categorical\"}"
                              ",{\"name\": \"e\", \"kind\": \"categorical\"}"
                              ",{\"name\": \"f\", \"kind\": \"categorical\"}"
                              ",{\"name\": \"g\", \"kind\": \"categorical\"}"
                              ",{\"name\": \"h\", \"kind\": \"categorical\"}"
                              ",{\"name\": \"group of f\", \"kind\": \"categorical\"}"
                              ",{\"name\": \"number\", \"kind\": \"dense\"}";

static rt_config configured(const char *path, const char *more)
{
    static char text[4000];
    rt_config config = config_fresh();
    snprintf(text, sizeof text,
             "stream={\"format\":\"table\",\"files\":\"%s\",\"table\":{\"delimiter\":\",\","
             "\"columns\":[%s%s]}}",
             path, columns, more);
    config_must_set(&config, text);
    return config;
}

static const char *write_rows(rules *drawn)
{
    const char *path = test_path("rows");
    FILE *file = fopen(path, "w");
    rt_random random = {7};
    assert_non_null(file);
    for (uint64_t i = 0; i < drawn->row_count; i++)
        write_row(file, drawn, i, &random);
    assert_int_equal(fclose(file), 0);
    return path;
}

static const rt_crosses_settings usual = {
    .samples_max = 1000000, .memory_max = UINT64_C(1) << 28, .admit = 2};

static rt_crosses found(rules *drawn, const char *more, const rt_crosses_settings *settings)
{
    rt_crosses crosses;
    rt_error error = {0};
    rt_config config = configured(write_rows(drawn), more);
    if (rt_crosses_find(&config, settings, &crosses, &error))
        fail_msg("%s", error.text);
    rt_config_fini(&config);
    return crosses;
}

static void expect_cross(const rt_crosses *crosses, uint32_t i, const char *a, const char *b)
{
    assert_true(i < crosses->count);
    assert_string_equal(crosses->items[i].from[0], a);
    assert_string_equal(crosses->items[i].from[1], b);
}

// What is learnt cannot be worth more than to know it. It is less by what single columns say of the
// pair, and by rows that come before it is learnt.
static void expect_gain(double gain, double most, double share)
{
    if (!(gain < most && gain > share * most))
        fail_msg("a gain of %g, where %g can be had", gain, most);
}

// ---- what is found -----------------------------------------------------------------------------

static void a_planted_cross_is_found(void **state)
{
    (void)state;
    rules drawn = {.pairs = {{2, 7, 1.5}}, .row_count = ROWS};
    const rt_crosses crosses = found(&drawn, "", &usual);
    assert_int_equal(crosses.columns, 9); // of them 36 pairs
    assert_int_equal(crosses.pairs, 36);
    assert_int_equal(crosses.count, 1);
    expect_cross(&crosses, 0, "c", "h");
    assert_string_equal(crosses.items[0].name, "c x h");
    expect_gain(crosses.items[0].gain, drawn.gain[0], 0.6);
    assert_int_equal(crosses.samples, ROWS);
    assert_int_equal(crosses.held_out, ROWS / 2);
    assert_int_equal(crosses.end, RT_CROSSES_INPUT);
    assert_true(crosses.items[0].values <= 800 && crosses.items[0].values > 780);
    assert_true(crosses.items[0].rows <= crosses.items[0].values && crosses.items[0].rows > 700);
}

static void where_nothing_is_planted_nothing_is_found(void **state)
{
    (void)state;
    rules drawn = {.row_count = ROWS};
    const rt_crosses crosses = found(&drawn, "", &usual);
    if (crosses.count > 0)
        fail_msg("%s, with a gain of %g", crosses.items[0].name, crosses.items[0].gain);
    assert_true(crosses.log_loss > 0.3 && crosses.log_loss < 0.693);
    const rt_crosses_one *best = &crosses.refused;
    assert_true(!*best->name || (best->gain > 0 && best->gain < 4 * best->error));
}

// The stronger one first; of the other one what it gains beside the first.
static void of_two_both_are_found(void **state)
{
    (void)state;
    rules drawn = {.pairs = {{2, 7, 2}, {1, 6, 1}}, .row_count = ROWS};
    const rt_crosses crosses = found(&drawn, "", &usual);
    assert_int_equal(crosses.count, 2);
    expect_cross(&crosses, 0, "c", "h");
    expect_cross(&crosses, 1, "b", "g");
    expect_gain(crosses.items[1].gain, drawn.gain[1], 0.3);
}

// With a finer column the cross would gain, too, but nothing beside the first.
static void what_is_known_by_then_gains_nothing(void **state)
{
    (void)state;
    rules drawn = {.pairs = {{2, COLUMNS, 2}}, .row_count = ROWS};
    const rt_crosses crosses = found(&drawn, "", &usual);
    expect_cross(&crosses, 0, "c", "group of f");
    assert_int_equal(crosses.count, 1);
}

// It is there already, in whatever order; and a name that is taken gets another one.
static void what_is_there_is_not_proposed(void **state)
{
    (void)state;
    rules drawn = {.pairs = {{2, 7, 1.5}}, .row_count = ROWS};
    rt_crosses crosses =
        found(&drawn, ",{\"name\":\"x\",\"kind\":\"categorical\",\"from\":[\"h\",\"c\"]}", &usual);
    assert_int_equal(crosses.count, 0);
    assert_int_equal(crosses.pairs, 35);
    assert_int_equal(crosses.left_out_other, 1);
    crosses = found(&drawn, ",{\"name\":\"c x h\",\"kind\":\"categorical\",\"from\":[\"a\",\"b\"]}",
                    &usual);
    assert_int_equal(crosses.count, 1);
    assert_string_equal(crosses.items[0].name, "cross 1");
}

// A column that is made of another one is paired, but for a copy, which would say the same.
static void columns_without_a_cell_are_paired(void **state)
{
    (void)state;
    rules drawn = {.pairs = {{2, 7, 1.5}}, .row_count = ROWS};
    const rt_crosses crosses =
        found(&drawn,
              ",{\"name\":\"h again\",\"kind\":\"categorical\",\"from\":\"h\"}"
              ",{\"name\":\"much\",\"kind\":\"categorical\",\"from\":\"number\","
              "\"transform\":\"bucket\",\"edges\":[1,2]}",
              &usual);
    assert_int_equal(crosses.left_out_same, 2);
    assert_int_equal(crosses.columns, 9);
    assert_int_equal(crosses.count, 1);
    expect_cross(&crosses, 0, "c", "h");
}

// ---- bounds ------------------------------------------------------------------------------------

static void it_says_the_same_again(void **state)
{
    (void)state;
    rules drawn = {.pairs = {{2, 7, 1}, {1, 6, 1}}, .row_count = 6000};
    const rt_crosses first = found(&drawn, "", &usual), second = found(&drawn, "", &usual);
    assert_int_equal(first.count, second.count);
    assert_true(first.count > 0 && first.log_loss == second.log_loss);
    for (uint32_t i = 0; i < first.count; i++) {
        assert_string_equal(first.items[i].name, second.items[i].name);
        assert_true(first.items[i].gain == second.items[i].gain);
    }
}

static void reading_ends_where_it_is_bound_to(void **state)
{
    (void)state;
    rules drawn = {.pairs = {{2, 7, 1.5}}, .row_count = 8000};
    rt_crosses_settings settings = usual;
    settings.samples_max = 5000;
    rt_crosses crosses = found(&drawn, "", &settings);
    assert_int_equal(crosses.samples, 5000);
    assert_int_equal(crosses.end, RT_CROSSES_SAMPLES);
    settings.memory_max = 1 << 20;
    crosses = found(&drawn, "", &settings);
    assert_true(crosses.samples >= RT_CROSSES_SAMPLES_MIN && crosses.samples < 5000);
    assert_int_equal(crosses.end, RT_CROSSES_MEMORY);
}

// ---- what cannot be ----------------------------------------------------------------------------

static void must_fail(rt_config *config, rt_status want, const char *text)
{
    rt_crosses crosses;
    rt_error error = {0};
    const rt_status status = rt_crosses_find(config, &usual, &crosses, &error);
    if (status != want || !strstr(error.text, text))
        fail_msg("%d, %s; expected %d, %s", status, error.text, want, text);
    rt_config_fini(config);
}

static const char *repeated(const char *name, const char *line, uint32_t count)
{
    const char *path = test_path(name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    for (uint32_t i = 0; i < count; i++)
        fprintf(file, line, i % 2, i % 7);
    assert_int_equal(fclose(file), 0);
    return path;
}

static void what_has_no_crosses_is_named(void **state)
{
    (void)state;
    rules few = {.row_count = 1999};
    rt_config config = configured(write_rows(&few), "");
    must_fail(&config, RT_DATA, "stream: 1999 samples, expected at least 2000");

    config = configured(repeated("zeros", "0,a%d,b%d,c,d,e,f,g,h,i,1\n", 3000), "");
    must_fail(&config, RT_DATA, "stream: all 3000 labels are 0, expected 0 and 1");
    config = configured(repeated("one", "%d,a%d,b,c,d,e,f,g,h,i,1\n", 3000), "");
    must_fail(&config, RT_CONFIG, "1 categorical columns whose values come again, expected at");
    config = configured(test_path("nowhere"), "");
    must_fail(&config, RT_IO, "nowhere");
    config = configured(repeated("torn", "%d,%d\n", 3000), "");
    must_fail(&config, RT_DATA, "torn:1");

    config = config_fresh();
    config_must_set(&config, config_write_criteo(10, 0));
    must_fail(&config, RT_CONFIG, "stream.format: \"criteo\" has no columns");
}

TEST_MAIN(TEST(a_planted_cross_is_found), TEST(where_nothing_is_planted_nothing_is_found),
          TEST(of_two_both_are_found), TEST(what_is_known_by_then_gains_nothing),
          TEST(what_is_there_is_not_proposed), TEST(columns_without_a_cell_are_paired),
          TEST(it_says_the_same_again), TEST(reading_ends_where_it_is_bound_to),
          TEST(what_has_no_crosses_is_named))
