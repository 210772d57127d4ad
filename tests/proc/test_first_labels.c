// The labels that a run sees first, in whole runs: one class alone, a join's first window; what is
// learnt must not depend on the order in which they come, nor on where a run was interrupted.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/rt_base.h"
#include "runtime/rt_hash.h"
#include "tests/support/process_case.h"
#include "tests/support/run_case.h"
#include "tests/support/test.h"

#define SAMPLES 16000u
#define ALONE 3000u // samples of one class, first
#define WINDOW_S 500u

#define LABELLED                                                                          \
    "stream.table.columns=[{\"name\":\"x\",\"kind\":\"dense\"},{\"name\":\"i\",\"kind\":" \
    "\"categorical\"},{\"name\":\"y\",\"kind\":\"label\"}]"
#define EVENTS                                                                          \
    "stream.table.columns=[{\"name\":\"id\",\"kind\":\"id\"},{\"name\":\"t\",\"kind\":" \
    "\"time\"},{\"name\":\"x\",\"kind\":\"dense\"},{\"name\":\"i\",\"kind\":\"categorical\"}]"
#define JOIN \
    "stream.join.columns=[{\"name\":\"id\",\"kind\":\"id\"},{\"name\":\"t\",\"kind\":\"time\"}]"

static const char config[] =
    "{\"workers\": 2, \"batch\": {\"samples_per_worker\": 128}, \"stream\": {\"format\": \"table\"},"
    " \"model\": {\"name\": \"wdl\", \"deep_input\": \"all\", \"embedding_dim\": 4, \"mlp\": [16]},"
    " \"dispatch\": {\"measure_compute\": false}, \"cache\": {\"rows\": 600},"
    " \"timeouts\": {\"start_s\": 20}}";

typedef struct {
    double x;
    uint32_t item;
    bool label;
} sample;

static sample draw(rt_random *random, double base)
{
    sample one = {.x = rt_random_unit(random), .item = rt_random_below(random, 40)};
    const double z = base + 3 * (one.x - 0.5) + 0.5 * (double)(one.item % 4);
    one.label = rt_random_unit(random) < 1 / (1 + exp(-z));
    return one;
}

// Files mixed, zeros and ones, whose first labels are as they are, 0 and 1; and more of the same.
static void write_orders(double base)
{
    static const char *const names[] = {"mixed", "zeros", "ones", "more"};
    for (uint32_t f = 0; f < RT_COUNT_OF(names); f++) {
        rt_random random = {f < 3 ? 5 : 6};
        FILE *file = run_create(names[f]);
        for (uint32_t n = 0; n < SAMPLES; n++) {
            const sample one = draw(&random, base);
            const int label = (f == 1 || f == 2) && n < ALONE ? f == 2 : one.label;
            fprintf(file, "%.6f,i%u,%d\n", one.x, one.item, label);
        }
        assert_int_equal(fclose(file), 0);
    }
}

static const char *files(const char *key, const char *name)
{
    static char texts[8][400];
    static uint32_t next;
    char *text = texts[next++ % 8];
    snprintf(text, sizeof texts[0], "%s=%s/%s", key, run_folder(), name);
    return text;
}

static double number_behind(const char *text, const char *name)
{
    const char *at = strstr(text, name);
    if (!at)
        fail_msg("no %s in %s", name, text);
    return strtod(at + strlen(name), NULL);
}

typedef struct {
    double loss, calibration;
} quality;

static quality evaluate(const char *out)
{
    char model[64];
    process p;
    snprintf(model, sizeof model, "%s/model", out);
    run_start(&p, (const char *const[]){"eval", run_path(model), "--json", NULL},
              (const char *const[]){files("stream.files", "more"), LABELLED,
                                    "stream.join.columns=[]", "stream.join.outcomes=[]", NULL});
    run_must_end(&p, 0);
    const quality found = {number_behind(p.text, "\"logloss\":"),
                           number_behind(p.text, "\"calibration\":")};
    process_fini(&p);
    return found;
}

static void near(double got, double wanted, double share, const char *what)
{
    if (!(fabs(got / wanted - 1) <= share))
        fail_msg("%s: %g, expected %g within %g%%", what, got, wanted, 100 * share);
}

// Rare ones, as many as not, rare zeros.
static void the_order_does_not_matter(void **state)
{
    (void)state;
    static const double bases[] = {-4, -0.7, 3};
    for (size_t b = 0; b < RT_COUNT_OF(bases); b++) {
        write_orders(bases[b]);
        run_up(config, "mixed-out", NULL,
               (const char *const[]){files("stream.files", "mixed"), LABELLED, NULL});
        const quality mixed = evaluate("mixed-out");
        for (uint32_t f = 0; f < 2; f++) {
            run_up(
                config, "out", NULL,
                (const char *const[]){files("stream.files", f ? "ones" : "zeros"), LABELLED, NULL});
            const quality found = evaluate("out");
            near(found.loss, mixed.loss, 0.05, f ? "ones first" : "zeros first");
        }
    }
}

static void models_must_be_equal(const char *left, const char *right)
{
    size_t sizes[2];
    char *bytes[] = {run_file(left, "model/dense.bin", &sizes[0]),
                     run_file(right, "model/dense.bin", &sizes[1])};
    assert_non_null(bytes[0]);
    assert_int_equal(sizes[0], sizes[1]);
    assert_memory_equal(bytes[0], bytes[1], sizes[0]);
    free(bytes[0]);
    free(bytes[1]);
}

// With a checkpoint in the time of one class, and where workers plan for themselves.
static void all_ways_give_the_same_model(void **state)
{
    (void)state;
    write_orders(-3);
    run_up(config, "whole", NULL,
           (const char *const[]){files("stream.files", "ones"), LABELLED, NULL});
    run_up(config, "parts", NULL,
           (const char *const[]){files("stream.files", "ones"), LABELLED, "stream.samples_max=1024",
                                 "checkpoint.at_end=true", NULL});
    run_up(config, "parts", "--resume",
           (const char *const[]){files("stream.files", "ones"), LABELLED, NULL});
    models_must_be_equal("parts", "whole");
    run_up(config, "own", NULL,
           (const char *const[]){files("stream.files", "ones"), LABELLED,
                                 "planner.placement=worker", NULL});
    models_must_be_equal("own", "whole");
}

// The same events with labels at once, and with outcomes that come later.
static void write_join(void)
{
    static struct {
        uint64_t time_s;
        uint32_t id;
    } outcomes[SAMPLES];
    rt_random random = {7};
    uint32_t count = 0;
    FILE *events = run_create("events"), *held = run_create("held"),
         *later = run_create("outcomes");
    for (uint32_t n = 0; n < SAMPLES; n++) {
        const sample one = draw(&random, -3.5);
        const uint64_t at = 1000 + n / 4;
        fprintf(events, "e%u,%llu,%.6f,i%u\n", n, (unsigned long long)at, one.x, one.item);
        fprintf(held, "%.6f,i%u,%d\n", one.x, one.item, one.label);
        if (one.label) {
            outcomes[count].time_s = at + 40; // all after the same time: they stay in order
            outcomes[count++].id = n;
        }
    }
    for (uint32_t k = 0; k < count; k++)
        fprintf(later, "e%u,%llu\n", outcomes[k].id, (unsigned long long)outcomes[k].time_s);
    FILE *all[] = {events, held, later};
    for (size_t k = 0; k < RT_COUNT_OF(all); k++)
        assert_int_equal(fclose(all[k]), 0);
}

static void a_join_is_as_good_as_labels_at_once(void **state)
{
    (void)state;
    char window[64];
    write_orders(-3.5); // for what follows
    write_join();
    snprintf(window, sizeof window, "stream.join.window_s=%u", WINDOW_S);
    run_up(config, "held-out", NULL,
           (const char *const[]){files("stream.files", "held"), LABELLED, NULL});
    run_up(config, "out", NULL,
           (const char *const[]){files("stream.files", "events"), EVENTS, JOIN, window,
                                 files("stream.join.outcomes", "outcomes"), NULL});
    const quality held = evaluate("held-out"), joined = evaluate("out");
    near(joined.loss, held.loss, 0.03, "log loss of a join");
    near(joined.calibration, held.calibration, 0.2, "calibration of a join");
    size_t size;
    char *records = run_file("out", "metrics.jsonl", &size);
    assert_non_null(records);
    // Label 1 came alone for 500 s, 2000 events of which a tenth had it.
    assert_non_null(strstr(records, "\"untrained\":true"));
    assert_non_null(strstr(records, "\"untrained\":false"));
    free(records);
}

TEST_MAIN(TEST_SLOW(the_order_does_not_matter, 120), TEST_SLOW(all_ways_give_the_same_model, 120),
          TEST_SLOW(a_join_is_as_good_as_labels_at_once, 120))
