// Journals of input records, line by line: what is read of each, and what is said of those that
// cannot be; and the range of every kind of record, from a second table.
#include "dispatch/plan/dp_journal.h"
#include "runtime/config/rt_policies.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "tests/support/config_case.h"
#include "tests/support/test.h"

#define WORKERS 3u

// Quotes are written as '.
static const char *quoted(const char *text)
{
    static char out[4096];
    snprintf(out, sizeof out, "%s", text);
    for (char *at = out; *at; at++)
        *at = *at == '\'' ? '"' : *at;
    return out;
}

#define NUMBER "expected an integer in [0, 4294967295]"
#define KEY "key: expected 16 hexadecimal digits"
#define LATER "expected a later iteration, with samples"
#define OBJECT "expected a JSON object that ends with the line"

static void what_cannot_be(void **state)
{
    (void)state;
    static const struct {
        const char *text, *error;
    } cases[] = {
        {"{'kind':'alpha','value':1}\n", "line 1: iteration: " NUMBER},
        {"{'kind':'alpha','iteration':1.5,'value':1}\n", "line 1: iteration: " NUMBER},
        {"{'kind':'alpha','iteration':4294967296,'value':1}\n", "line 1: iteration: " NUMBER},
        {"{'kind':'alpha','iteration':'1','value':1}\n", "line 1: iteration: " NUMBER},
        {"{'kind':'alpha','iteration':1}\n", "line 1: value: expected a number"},
        {"{'kind':'alpha','iteration':1,'value':'1'}\n", "line 1: value: expected a number"},
        {"{'kind':3,'iteration':1,'value':1}\n",
         "line 1: kind: expected the name of an input record"},
        {"{'record':'input','iteration':1,'value':1}\n",
         "line 1: kind: expected the name of an input record"},
        {"{'kind':'link_up','iteration':1,'value':9}\n", "line 1: worker: " NUMBER},
        {"{'kind':'link_up','iteration':1,'worker':-1,'value':9}\n", "line 1: worker: " NUMBER},
        {"{'kind':'link_down','iteration':1,'worker':3,'value':9}\n",
         "line 1: link_down: worker 3, expected one below 3"},
        {"{'kind':'shard_link','iteration':1,'value':9}\n", "line 1: shard: " NUMBER},
        {"{'kind':'shard_link','iteration':1,'shard':16,'value':9}\n",
         "line 1: shard_link: shard 16, expected one below 16"},
        {"{'kind':'forget','iteration':1,'value':9}\n", "line 1: " KEY},
        {"{'kind':'forget','iteration':1,'key':7}\n", "line 1: " KEY},
        {"{'kind':'forget','iteration':1,'key':'0123456789abcde'}\n", "line 1: " KEY},
        {"{'kind':'forget','iteration':1,'key':'0123456789abcdef0'}\n", "line 1: " KEY},
        {"{'kind':'forget','iteration':1,'key':'0123456789abcdeF'}\n", "line 1: " KEY},
        {"{'kind':'forget','iteration':1,'key':'0123456789abcde '}\n", "line 1: " KEY},
        {"{'kind':'forget','key':'0123456789abcdef'}\n", "line 1: iteration: " NUMBER},
        {"{'record':'batch','samples':3}\n", "line 1: iteration: " NUMBER},
        {"{'record':'batch','iteration':0,'samples':3}\n", "line 1: " LATER},
        {"{'record':'batch','iteration':1,'samples':0.5}\n", "line 1: samples: " NUMBER},
        {"\n{'record':'batch','iteration':5,'samples':3}\n\n"
         "{'record':'batch','iteration':4,'samples':3}\n",
         "line 4: " LATER},
        {"{'record':'resumed','iteration':1}\n", "line 1: inputs: " NUMBER},
        {"{'record':'resumed','inputs':1}\n", "line 1: iteration: " NUMBER},
        {"[]\n", "line 1: " OBJECT},
        {"{} {}\n{}\n", "line 1: kind: expected the name of an input record"},
        {"{\n", "line 1: " OBJECT},
        {"{'kind':'alpha','iteration':1,'value':1}\n{'kind\n{'kind':'alpha'}\n", "line 2: " OBJECT},
    };
    for (size_t i = 0; i < RT_COUNT_OF(cases); i++) {
        rt_error error = {0};
        dp_inputs inputs;
        const char *path = config_write_file("bad.jsonl", quoted(cases[i].text));
        const rt_status status = dp_inputs_load(path, WORKERS, &inputs, &error);
        if (status != RT_CONFIG || strncmp(error.text, path, strlen(path)) != 0 ||
            strcmp(error.text + strlen(path) + 2, cases[i].error) != 0)
            fail_msg("%s: %d, %s", cases[i].text, (int)status, error.text);
        assert_int_equal(error.status, RT_CONFIG);
        assert_int_equal(inputs.count + inputs.batch_count, 0);
        assert_null(inputs.items);
        assert_null(inputs.batches);
    }
}

static void files_that_cannot_be_read(void **state)
{
    (void)state;
    rt_error error = {0};
    dp_inputs inputs;
    char wanted[600];
    snprintf(wanted, sizeof wanted, "%s: No such file or directory", test_path("none"));
    assert_int_equal(dp_inputs_load(test_path("none"), WORKERS, &inputs, &error), RT_IO);
    assert_string_equal(error.text, wanted);
    snprintf(wanted, sizeof wanted, "%s: cannot be read", test_path("folder"));
    assert_int_equal(mkdir(test_path("folder"), 0700), 0);
    assert_int_equal(dp_inputs_load(test_path("folder"), WORKERS, &inputs, &error), RT_IO);
    assert_string_equal(error.text, wanted);
}

// What is read, in words: records by kind, iteration, worker, value and number; then batches.
static void describe(const dp_inputs *inputs, char *text, size_t size)
{
    size_t n = 0;
    text[0] = '\0';
    for (uint32_t i = 0; i < inputs->count; i++) {
        const dp_input *one = &inputs->items[i];
        n += (size_t)snprintf(text + n, size - n, "%s %" PRIu32 " ",
                              dp_input_name((dp_input_kind)one->kind), one->iteration);
        if (one->kind == DP_INPUT_FORGET)
            n += (size_t)snprintf(text + n, size - n, "%016" PRIx64, dp_input_key(one));
        else
            n += (size_t)snprintf(text + n, size - n, "%" PRIu32 "=%g", one->worker, one->value);
        n += (size_t)snprintf(text + n, size - n, " #%" PRIu64 "; ", one->number);
    }
    for (uint32_t i = 0; i < inputs->batch_count; i++)
        n += (size_t)snprintf(text + n, size - n, "%" PRIu32 ": %" PRIu32 "; ",
                              inputs->batches[i].iteration, inputs->batches[i].samples);
}

#define ALPHA(iteration, value) \
    "{'record':'input','kind':'alpha','iteration':" #iteration ",'value':" #value "}\n"
#define BATCH(iteration, samples) \
    "{'record':'batch','iteration':" #iteration ",'samples':" #samples "}\n"
#define RESUMED(iteration, inputs) \
    "{'record':'resumed','iteration':" #iteration ",'inputs':" #inputs "}\n"

static void what_is_read(void **state)
{
    (void)state;
    static const struct {
        const char *text, *wanted;
    } cases[] = {
        {"", ""},
        {"\n\n", ""},
        {ALPHA(0, 0) ALPHA(4294967295, 1), "alpha 0 0=0 #1; alpha 4294967295 0=1 #2; "},
        // By iteration, and those of one as they stand.
        {ALPHA(7, 0.5) ALPHA(3, 0.25) ALPHA(7, 0.75) ALPHA(3, 1),
         "alpha 3 0=0.25 #2; alpha 3 0=1 #4; alpha 7 0=0.5 #1; alpha 7 0=0.75 #3; "},
        {"{'kind':'lost','iteration':2,'worker':2,'value':1}\n"
         "{'kind':'shard_link','iteration':2,'shard':15,'value':0,'worker':9}\n",
         "lost 2 2=1 #1; shard_link 2 15=0 #2; "},
        {"{'kind':'forget','iteration':5,'key':'ffffffffffffffff'}\n"
         "{'kind':'forget','iteration':5,'key':'0123456789abcdef'}\n",
         "forget 5 ffffffffffffffff #1; forget 5 0123456789abcdef #2; "},
        {BATCH(1, 1) BATCH(2, 4294967295), "1: 1; 2: 4294967295; "},
        // What came after the checkpoint is taken back, and nothing else.
        {ALPHA(1, 0) ALPHA(2, 0.5) ALPHA(3, 1) RESUMED(2, 2) ALPHA(9, 0.25),
         "alpha 1 0=0 #1; alpha 2 0=0.5 #2; alpha 9 0=0.25 #3; "},
        {ALPHA(1, 0) RESUMED(2, 5) RESUMED(2, 1), "alpha 1 0=0 #1; "},
        {ALPHA(1, 0) RESUMED(2, 0), ""},
        {BATCH(2, 8) BATCH(4, 7) BATCH(5, 6) RESUMED(4, 0) BATCH(5, 3), "2: 8; 4: 7; 5: 3; "},
        {BATCH(2, 8) RESUMED(1, 0) BATCH(1, 3), "1: 3; "},
        // Half a line: the last one, and the one before a start.
        {ALPHA(1, 0) "{'rec", "alpha 1 0=0 #1; "},
        {ALPHA(1, 0) "{'rec\n" RESUMED(1, 1) "{'", "alpha 1 0=0 #1; "},
        {"{'record':'note','kind':5}\n{'record':'iteration','iteration':-4}\n" ALPHA(1, 0),
         "alpha 1 0=0 #1; "},
    };
    for (size_t i = 0; i < RT_COUNT_OF(cases); i++) {
        rt_error error = {0};
        dp_inputs inputs;
        char text[1000];
        const char *path = config_write_file("good.jsonl", quoted(cases[i].text));
        if (dp_inputs_load(path, WORKERS, &inputs, &error))
            fail_msg("%s: %s", cases[i].text, error.text);
        describe(&inputs, text, sizeof text);
        assert_string_equal(text, cases[i].wanted);
        dp_inputs_fini(&inputs);
    }
}

// So long that its end is read with it, and one byte more.
static void the_longest_line(void **state)
{
    (void)state;
    for (uint32_t more = 0; more < 2; more++) {
        rt_error error = {0};
        dp_inputs inputs;
        char text[1200];
        const char *record = quoted("{'kind':'alpha','iteration':1,'value':1}");
        memset(text, ' ', sizeof text);
        memcpy(text, record, strlen(record));
        memcpy(text + 1022 + more, "\n", 2);
        const rt_status status =
            dp_inputs_load(config_write_file("long.jsonl", text), WORKERS, &inputs, &error);
        assert_int_equal(status, more ? RT_CONFIG : RT_OK);
        assert_int_equal(inputs.count, !more);
        if (more)
            assert_non_null(strstr(error.text, "line 1: longer than 1024 bytes: no journal"));
        dp_inputs_fini(&inputs);
    }
}

// ---- kinds -------------------------------------------------------------------------------------

static const struct {
    dp_input_kind kind;
    const char *name, *subject;
    bool is_integer;
    double min, max, below, above; // values that are refused
    const char *said;
} ranges[] = {
    {DP_INPUT_LINK_UP, "link_up", "worker", false, 1, 1e15, 0.999, 1.01e15,
     "a number in [1, 1e+15]"},
    {DP_INPUT_LINK_DOWN, "link_down", "worker", false, 1, 1e15, 0.5, 2e15,
     "a number in [1, 1e+15]"},
    {DP_INPUT_COMPUTE, "compute", "worker", false, 0, 3600, -1e-9, 3601, "a number in [0, 3600]"},
    {DP_INPUT_ALPHA, "alpha", NULL, false, 0, 1, -0.1, 1.1, "a number in [0, 1]"},
    {DP_INPUT_SEARCH_EVALUATIONS, "search_evaluations", NULL, true, 0, 4294967295.0, -1,
     4294967296.0, "an integer in [0, 4.29497e+09]"},
    {DP_INPUT_TABLES, "tables", NULL, true, 0, 256, -1, 257, "an integer in [0, 256]"},
    {DP_INPUT_PS_LINK, "ps_link", NULL, false, 0, 1e15, -1, 2e15, "a number in [0, 1e+15]"},
    {DP_INPUT_SHARD_LINK, "shard_link", "shard", false, 0, 1e15, -1, 2e15,
     "a number in [0, 1e+15]"},
    {DP_INPUT_PARTICIPATES, "participates", "worker", true, 0, 1, -1, 2, "an integer in [0, 1]"},
    {DP_INPUT_ROWS_FLOOR, "rows_floor", NULL, true, 0, 4294967295.0, -1, 4294967296.0,
     "an integer in [0, 4.29497e+09]"},
    {DP_INPUT_POLICY, "policy", NULL, true, 0, RT_POLICY_COUNT, -1, RT_POLICY_COUNT + 1, NULL},
    {DP_INPUT_FORGET, "forget", NULL, true, 1, 4294967296.0, 0, 4294967297.0,
     "an integer in [1, 4.29497e+09]"},
    {DP_INPUT_LOST, "lost", "worker", true, 0, 1, -1, 2, "an integer in [0, 1]"},
};
_Static_assert(RT_COUNT_OF(ranges) == DP_INPUT_KINDS, "all of them");

static void must_refuse(const dp_input *input, const char *wanted)
{
    rt_error error = {0};
    assert_int_equal(dp_input_check(input, WORKERS, &error), RT_CONFIG);
    assert_int_equal(error.status, RT_CONFIG);
    if (wanted)
        assert_string_equal(error.text, wanted);
}

static void the_range_of_every_kind(void **state)
{
    (void)state;
    for (size_t i = 0; i < RT_COUNT_OF(ranges); i++) {
        dp_input_kind found = DP_INPUT_KINDS;
        char text[200];
        const char *subject = ranges[i].subject;
        uint32_t workers = subject ? WORKERS : 1;
        dp_input input = {.kind = ranges[i].kind, .value = ranges[i].min};
        assert_int_equal(dp_input_find(ranges[i].name, &found), RT_OK);
        assert_int_equal(found, ranges[i].kind);
        assert_string_equal(dp_input_name(found), ranges[i].name);
        assert_true(subject ? strcmp(dp_input_subject(found), subject) == 0
                            : dp_input_subject(found) == NULL);
        assert_int_equal(dp_input_check(&input, WORKERS, NULL), RT_OK);
        input.value = ranges[i].max;
        assert_int_equal(dp_input_check(&input, WORKERS, NULL), RT_OK);
        const double wrong[] = {ranges[i].below, ranges[i].above, NAN, INFINITY,
                                ranges[i].is_integer ? ranges[i].max - 0.5 : -INFINITY};
        for (size_t k = 0; k < RT_COUNT_OF(wrong); k++) {
            input.value = wrong[k];
            snprintf(text, sizeof text, "%s: %g, expected %s", ranges[i].name, wrong[k],
                     ranges[i].said ? ranges[i].said : "");
            must_refuse(&input, ranges[i].said ? text : NULL);
        }
        input.value = ranges[i].max;
        if (found == DP_INPUT_SHARD_LINK)
            workers = RT_SHARDS_MAX;
        input.worker = workers - 1;
        assert_int_equal(dp_input_check(&input, WORKERS, NULL), RT_OK);
        input.worker = workers;
        if (found == DP_INPUT_FORGET) { // any key has a lower half
            assert_int_equal(dp_input_check(&input, WORKERS, NULL), RT_OK);
            continue;
        }
        snprintf(text, sizeof text, "%s: %s %" PRIu32 ", expected one below %" PRIu32,
                 ranges[i].name, subject ? subject : "worker", workers, workers);
        must_refuse(&input, text);
    }
    dp_input_kind none;
    assert_int_equal(dp_input_find("alph", &none), RT_CONFIG);
}

TEST_MAIN(TEST(what_cannot_be), TEST(files_that_cannot_be_read), TEST(what_is_read),
          TEST(the_longest_line), TEST(the_range_of_every_kind))
