// Names of before: this program has renamed keys of its own, in place of rt_config_renamed.c's.
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/config/rt_config_keys.h"
#include "runtime/config/rt_policies.h"
#include "runtime/config/rt_solvers.h"
#include "tests/support/config_case.h"
#include "tests/support/test.h"

const rt_config_renamed rt_config_renames[] = {
    {"dispatch.boldness", "dispatch.alpha", NULL, NULL},
    {"random", "seed", NULL, NULL},
    {"hoard.size.rows", "cache.rows", NULL, NULL}, // of sections that are no more
    {"cache.rule", "cache.eviction", NULL, NULL},
    {"cache.colour", NULL, "\"blue\"", "caches are blue"},
    {"dispatch.zeal.most", NULL, "3", "it is as large as it has to be"},
    {0},
};
const rt_config_replaced rt_config_replacements[] = {
    {"cache.eviction", "oldest", "lru"},
    {"dispatch.solver", "abacus", "greedy"},
    {0},
};

static const char file[] = "{\"random\": 9007199254740991, \"workers\": 3,"
                           " \"hoard\": {\"size\": {\"rows\": 77}},"
                           " \"dispatch\": {\"policy\": \"laia\", \"boldness\": 0.1},"
                           " \"cache\": {\"rule\": \"lru\"}}";

// What a call of load writes to standard error.
static const char *warnings_of(rt_config *config, const char *path)
{
    static char text[4096];
    rt_error error = {0};
    const int own = dup(STDERR_FILENO);
    char from[512];
    snprintf(from, sizeof from, "%s", path); // the next call may write over it
    const int written = open(config_write_file("warnings", ""), O_RDWR | O_TRUNC);
    assert_true(own >= 0 && written >= 0);
    fflush(stderr);
    dup2(written, STDERR_FILENO);
    rt_status status = rt_config_load(config, from, &error);
    fflush(stderr);
    dup2(own, STDERR_FILENO);
    close(own);
    const ssize_t length = pread(written, text, sizeof text - 1, 0);
    close(written);
    assert_true(length >= 0);
    text[length] = '\0';
    if (status != RT_OK)
        fail_msg("%s", error.text);
    return text;
}

static uint32_t count_of(const char *text, const char *word)
{
    uint32_t count = 0;
    for (; (text = strstr(text, word)); text += strlen(word))
        count++;
    return count;
}

static void check_values(const rt_config *config)
{
    assert_true(config->seed == 9007199254740991 && config->worker_count == 3);
    assert_true(config->cache.rows == 77 && config->cache.eviction == RT_EVICT_LRU);
    assert_true(config->dispatch.alpha == 0.1 && config->dispatch.policy == RT_POLICY_LAIA);
}

static void names_of_before_are_read(void **state)
{
    (void)state;
    rt_config config = config_fresh();
    const char *said = warnings_of(&config, config_write_file("old.json", file));
    check_values(&config);
    for (const rt_config_renamed *one = rt_config_renames; one->before; one++) {
        if (!one->now)
            continue;
        char words[128];
        snprintf(words, sizeof words, "old.json: %s is now called %s", one->before, one->now);
        if (count_of(said, words) != 1)
            fail_msg("%s is not said once in %s", words, said);
    }
    assert_int_equal(count_of(said, "\n"), 4);
    rt_config_fini(&config);
}

static void today_s_names_say_nothing(void **state)
{
    (void)state;
    rt_config config = config_fresh();
    const char *path =
        config_write_file("new.json", "{\"version\": 1, \"seed\": 5, \"cache\": {\"rows\": 3}}");
    assert_string_equal(warnings_of(&config, path), "");
    assert_true(config.seed == 5 && config.cache.rows == 3);
    rt_config_fini(&config);
}

static void set_takes_them_too(void **state)
{
    (void)state;
    rt_config config = config_fresh();
    rt_error error = {0};
    assert_int_equal(rt_config_set(&config, "dispatch.boldness=0.25", &error), RT_OK);
    assert_int_equal(rt_config_set(&config, "hoard.size.rows=12", &error), RT_OK);
    assert_int_equal(rt_config_set(&config, "cache.rule=lfu", &error), RT_OK);
    assert_true(config.dispatch.alpha == 0.25 && config.cache.rows == 12);
    assert_int_equal(config.cache.eviction, RT_EVICT_LFU);
    assert_int_equal(rt_config_set(&config, "dispatch.boldness=2", &error), RT_CONFIG);
    assert_non_null(strstr(error.text, "dispatch.alpha: 2 is out of range"));
    assert_int_equal(rt_config_set(&config, "version=1", &error), RT_CONFIG);
    rt_config_fini(&config);
}

static void migrating_changes_names_only(void **state)
{
    (void)state;
    char *json = NULL, *again = NULL;
    rt_error error = {0};
    if (rt_config_migrate(config_write_file("old.json", file), &json, &error))
        fail_msg("%s", error.text);
    rt_config config = config_fresh();
    char path[512];
    snprintf(path, sizeof path, "%s", config_write_file("migrated.json", json));
    assert_string_equal(warnings_of(&config, path), "");
    check_values(&config);
    assert_int_equal(rt_config_migrate(path, &again, &error), RT_OK);
    assert_string_equal(again, json);
    assert_null(strstr(json, "hoard"));
    assert_null(strstr(json, "samples_per_worker")); // no defaults
    assert_true(strncmp(json, "{\n  \"version\": 1,\n", 18) == 0);
    rt_free(json);
    rt_free(again);
    rt_config_fini(&config);
}

static void an_include_stays_one(void **state)
{
    (void)state;
    char *json = NULL;
    rt_error error = {0};
    config_write_file("base.json", "{\"random\": 8}");
    const char *path =
        config_write_file("top.json", "{\"include\": \"base.json\", \"workers\": 2}");
    assert_int_equal(rt_config_migrate(path, &json, &error), RT_OK);
    assert_non_null(strstr(json, "\"include\": \"base.json\""));
    assert_null(strstr(json, "seed")); // of the other file
    rt_free(json);
}

static void what_cannot_be_is_named(void **state)
{
    (void)state;
    static const struct {
        const char *text, *error;
    } cases[] = {
        {"{\"random\": 1, \"seed\": 2}", "random: is the old name of seed"},
        {"{\"random\": 1, \"random\": 2}", "random: stands twice"},
        {"{\"hoard\": {\"size\": {\"rows\": 5}}, \"cache\": 3}",
         "hoard.size.rows: is now called cache.rows"},
        {"{\"hoard\": {\"size\": {\"rows\": 5, \"more\": 1}}}", "hoard: unknown key"},
        {"{\"dispatch\": {\"boldness\": true}}", "dispatch.alpha: true"},
        {"{\"version\": 2}", "version: 2 is newer than this program, which knows 1"},
        {"{\"version\": \"1\"}", "version: \"1\", expected 1"},
        {"{\"version\": 0.5}", "version: 0.5, expected 1"},
        {"{\"version\": 1, \"version\": 1}", "version: stands twice"},
    };
    for (size_t i = 0; i < RT_COUNT_OF(cases); i++) {
        rt_config config = config_fresh();
        rt_error error = {0};
        char *json = NULL;
        const char *path = config_write_file("bad.json", cases[i].text);
        assert_int_equal(rt_config_load(&config, path, &error), RT_CONFIG);
        if (!strstr(error.text, cases[i].error) || !strstr(error.text, "bad.json: "))
            fail_msg("%s: %s", cases[i].text, error.text);
        assert_int_equal(rt_config_migrate(path, &json, &error), RT_CONFIG);
        assert_non_null(strstr(error.text, cases[i].error));
        assert_null(json);
        rt_config_fini(&config);
    }
}

static const char *warnings_of_text(rt_config *config, const char *text)
{
    *config = config_fresh();
    return warnings_of(config, config_write_file("gone.json", text));
}

// Models and checkpoints have all keys of their time.
static void of_what_happens_anyway_nothing_is_said(void **state)
{
    (void)state;
    rt_config config;
    assert_string_equal(
        warnings_of_text(&config, "{\"cache\": {\"colour\": \"blue\"}, \"seed\": 9}"), "");
    assert_int_equal(config.seed, 9);
    rt_config_fini(&config);
}

static void what_is_gone_goes_on_with_a_line_each(void **state)
{
    (void)state;
    rt_config config;
    const char *said = warnings_of_text(
        &config, "{\"cache\": {\"colour\": [1], \"rule\": \"oldest\"}, \"seed\": 9, \"dispatch\": "
                 "{\"zeal\": {\"most\": 4}, \"solver\": \"abacus\", \"policy\": \"laia\"}}");
    static const char *const lines[] = {
        "gone.json: cache.colour is gone, and has no effect: caches are blue\n",
        "gone.json: dispatch.zeal.most is gone, and has no effect: it is as large as it has to "
        "be\n",
        "gone.json: cache.eviction: \"oldest\" is gone, \"lru\" takes its place\n",
        "gone.json: dispatch.solver: \"abacus\" is gone, \"greedy\" takes its place\n",
        "gone.json: cache.rule is now called cache.eviction",
    };
    for (size_t i = 0; i < RT_COUNT_OF(lines); i++)
        if (count_of(said, lines[i]) != 1)
            fail_msg("%s is not said once in %s", lines[i], said);
    assert_int_equal(count_of(said, "\n"), RT_COUNT_OF(lines));
    assert_true(config.seed == 9 && config.cache.eviction == RT_EVICT_LRU);
    assert_true(config.dispatch.solver == RT_SOLVER_GREEDY);
    assert_true(config.dispatch.policy == RT_POLICY_LAIA);
    rt_config_fini(&config);
}

static void set_goes_on_too(void **state)
{
    (void)state;
    rt_config config = config_fresh();
    static const char *const sets[] = {
        "cache.colour=red",       "dispatch.zeal.most=4",
        "dispatch.solver=abacus", "cache.rule=oldest",
        "cache.colour=",          "cache={\"colour\": 3, \"rows\": 8}",
        "dispatch.zeal.most={",   "dispatch={\"solver\": \"abacus\"}"};
    for (size_t i = 0; i < RT_COUNT_OF(sets); i++) {
        rt_error error = {0};
        if (rt_config_set(&config, sets[i], &error))
            fail_msg("%s: %s", sets[i], error.text);
    }
    assert_true(config.cache.eviction == RT_EVICT_LRU && config.cache.rows == 8);
    assert_true(config.dispatch.solver == RT_SOLVER_GREEDY);
    assert_int_equal(rt_config_set(&config, "dispatch.zeal.least=4", NULL), RT_CONFIG);
    rt_config_fini(&config);
}

static void migrating_leaves_out_what_is_gone(void **state)
{
    (void)state;
    char *json = NULL;
    rt_error error = {0};
    const char *path = config_write_file(
        "gone.json", "{\"seed\": 9, \"cache\": {\"colour\": \"red\", \"eviction\": \"oldest\"},"
                     " \"dispatch\": {\"zeal\": {\"most\": 4}}}");
    if (rt_config_migrate(path, &json, &error))
        fail_msg("%s", error.text);
    assert_string_equal(json, "{\n  \"version\": 1,\n  \"seed\": 9,\n  \"cache\": {\n"
                              "    \"eviction\": \"lru\"\n  }\n}");
    rt_free(json);
}

TEST_MAIN(TEST(of_what_happens_anyway_nothing_is_said), TEST(what_is_gone_goes_on_with_a_line_each),
          TEST(set_goes_on_too), TEST(migrating_leaves_out_what_is_gone),
          TEST(names_of_before_are_read), TEST(today_s_names_say_nothing), TEST(set_takes_them_too),
          TEST(migrating_changes_names_only), TEST(an_include_stays_one),
          TEST(what_cannot_be_is_named))
