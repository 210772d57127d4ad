// Configuration files: every way to be wrong, includes, and the files in configs/.
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/config/rt_models.h"
#include "runtime/config/rt_policies.h"
#include "runtime/rt_hash.h"
#include "tests/support/config_case.h"
#include "tests/support/test.h"

typedef struct {
    const char *text;
    const char *error; // after the file name
} bad_file;

static const bad_file bad_files[] = {
    {"{\"dispatch\": {\"alpha\": 1.5}}",
     "dispatch.alpha: 1.5 is out of range, expected a number in [0, 1], or \"auto\""},
    {"{\"dispatch\": {\"alpha\": \"high\"}}",
     "dispatch.alpha: \"high\" is not a number, expected a number in [0, 1], or \"auto\""},
    {"{\"workers\": 2.5}", "workers: 2.5 is not an integer, expected an integer in [1, 64]"},
    {"{\"workers\": null}", "workers: null is not a number, expected an integer in [1, 64]"},
    {"{\"workers\": [4]}", "workers: a list is not a number, expected an integer in [1, 64]"},
    {"{\"seed\": 9007199254740993}",
     "seed: 9007199254740992 is out of range, expected an integer in [0, 9007199254740991]"},
    {"{\"optimizer\": {\"rows\": {\"learning_rate\": 0}}}",
     "optimizer.rows.learning_rate: 0 is out of range, expected a number in (0, 1000]"},
    {"{\"optimizer\": {\"rows\": {\"learning_rate\": 1e-60}}}", // 0 as a float
     "optimizer.rows.learning_rate: 1e-60 is out of range, expected a number in (0, 1000]"},
    {"{\"optimizer\": {\"rows\": {\"name\": \"momentum\"}}}",
     "optimizer.rows.name: \"momentum\" is unknown, expected one of \"sgd\", \"adagrad\", "
     "\"rowwise_adagrad\", \"adam\", \"ftrl\""},
    {"{\"sim\": {\"dense\": 1}}", "sim.dense: 1 is not a truth value, expected true or false"},
    {"{\"dispatch\": 1}", "dispatch: is a section, not a key with a value (1): expected an object"},
    {"{\"dispatch\": {\"alhpa\": 1}}",
     "dispatch.alhpa: unknown key, did you mean \"dispatch.alpha\"?"},
    {"{\"dispach\": {\"alpha\": 1}}", "dispach: unknown key, did you mean \"dispatch\"?"},
    {"{\"alpha\": 1}", "alpha: unknown key, did you mean \"dispatch.alpha\"?"},
    {"{\"model\": {\"alpha\": 1}}", "model.alpha: unknown key, did you mean \"dispatch.alpha\"?"},
    {"{\"quite_something_else\": 1}",
     "quite_something_else: unknown key (docs/CONFIG.md lists all)"},
    {"{\"a\\u001b[31mb\": 1}", "a?[31mb: unknown key (docs/CONFIG.md lists all)"},
    {"{\"dispatch.alpha\": 1}", "dispatch.alpha: a key in a file has no dots: nest objects"},
    {"{\"Workers\": 2}", "Workers: unknown key, did you mean \"workers\"?"},
    {"{\"seed\": 1, \"workers\": 2, \"seed\": 1}", "seed: stands twice in its object"},
    {"{\"dispatch\": {\"alpha\": 1, \"alpha\": 1}}", "dispatch.alpha: stands twice in its object"},
    {"{\"dispatch\": {}, \"dispatch\": {}}", "dispatch: stands twice in its object"},
    {"{\"stream\": {\"table\": {\"columns\": [{\"kind\": \"label\"}, {\"name\": \"x\"}]}}}",
     "stream.table.columns[1]: the key \"kind\" is missing"},
    {"{\"stream\": {\"table\": {\"columns\": [{\"kind\": \"lable\"}]}}}",
     "stream.table.columns[0].kind: \"lable\" is unknown, expected one of \"label\", \"dense\", "
     "\"categorical\", \"multi\", \"weight\", \"id\", \"time\", \"ignore\""},
    {"{\"stream\": {\"table\": {\"columns\": [{\"kind\": \"label\", \"kind\": \"label\"}]}}}",
     "stream.table.columns[0].kind: stands twice in its object"},
    {"{\"stream\": {\"table\": {\"columns\": [{\"kind\": \"multi\", \"value_max\": 3}]}}}",
     "stream.table.columns[0].value_max: unknown key, did you mean \"values_max\"?"},
    {"{\"stream\": {\"table\": {\"columns\": [7]}}}",
     "stream.table.columns[0]: 7 is no column, expected an object"},
    {"{\"stream\": {\"table\": {\"columns\": 7}}}",
     "stream.table.columns: 7 is not a list, expected a list of at most 512 objects"},
    {"{\"stream\": {\"table\": {\"delimiter\": \"tab\"}}}",
     "stream.table.delimiter: \"tab\" is not allowed, expected one character other than a quote "
     "and a line end"},
    {"{\"stream\": {\"table\": {\"delimiter\": \"\"}}}",
     "stream.table.delimiter: \"\" is not allowed, expected one character other than a quote "
     "and a line end"},
    {"{\"stream\": {\"files\": [\"a\", \"\"]}}",
     "stream.files[1]: \"\" is no path, expected a string"},
    {"{\"stream\": {\"files\": [\"a\", 3]}}", "stream.files[1]: 3 is no path, expected a string"},
    {"{\"stream\": {\"files\": 3}}",
     "stream.files: 3 is not a list, expected a path, or a list of at most 256 paths"},
    {"{\"model\": {\"mlp\": [256, 0]}}",
     "model.mlp[1]: 0 is out of range, expected an integer in [1, 65536]"},
    {"{\"model\": {\"mlp\": []}}",
     "model.mlp: is empty, expected a list of 1 to 8 integers in [1, 65536]"},
    {"{\"model\": {\"mlp\": [1, 2, 3, 4, 5, 6, 7, 8, 9]}}",
     "model.mlp: has 9 elements, expected a list of 1 to 8 integers in [1, 65536]"},
    {"{\"links\": {\"workers\": [1, 0]}}",
     "links.workers[1]: 0 is out of range, expected a number in (0, 10000]"},
    {"{\"links\": {\"workers\": [\"fast\"]}}",
     "links.workers[0]: \"fast\" is no link, expected a number or an object"},
    {"{\"links\": {\"workers\": [{\"gbps\": 1, \"gbps_up\": 1}]}}",
     "links.workers[0]: expected either \"gbps\", or \"gbps_up\" and \"gbps_down\""},
    {"{\"links\": {\"workers\": [{\"gbps_up\": 1}]}}",
     "links.workers[0]: expected either \"gbps\", or \"gbps_up\" and \"gbps_down\""},
    {"{\"links\": {\"workers\": [{\"count\": 2}]}}",
     "links.workers[0]: expected either \"gbps\", or \"gbps_up\" and \"gbps_down\""},
    {"{\"links\": {\"workers\": [1, {\"count\": 64, \"gbps\": 1}]}}",
     "links.workers[1]: more than 64 links"},
    {"{\"links\": {\"workers\": [{\"count\": 65, \"gbps\": 1}]}}",
     "links.workers[0].count: 65 is out of range, expected an integer in [1, 64]"},
    {"", "line 1, column 1: the text ends in the middle of a JSON value"},
    {"\n\n", "line 3, column 1: the text ends in the middle of a JSON value"},
    {"[]", "line 1, column 1: a list, expected an object"},
    {"{\"seed\": 1\n \"workers\": 2}",
     "line 2, column 2: not JSON from here on (is a comma missing?): \"\"workers\": 2}\""},
    {"{\"seed\": 1,}", "line 1, column 11: JSON allows no comma before a closing bracket"},
    {"{\"model\": {\"mlp\": [8, 4,\n ]\n}}",
     "line 1, column 24: JSON allows no comma before a closing bracket"},
    {"{\"seed\": 1,\n @}", "line 2, column 2: not JSON from here on: \"@}\""},
    {"{\n  \"seed\": 1,\n  \"workers\": two\n}",
     "line 3, column 14: not JSON from here on: \"two\""},
    {"{\"seed\": 1} x", "line 1, column 13: not JSON from here on: \"x\""},
    {"{\"seed\": 1", "line 1, column 11: the text ends in the middle of a JSON value"},
    {"{\"\xc3\xa9\": @}", "line 1, column 7: not JSON from here on: \"@}\""},
    {"{\"network\": {\"bind\": \"a\tb\"}}",
     "line 1, column 24: a control character: this is not JSON text"},
    {"{\"network\": {\"bind\": \"wdl\\u0000x\"}}",
     "line 1, column 26: strings cannot hold zero bytes"},
    {"{\"network\": {\"bind\": \"\xff\"}}", "not UTF-8 text"},
    {"{\"include\": 3}", "include: 3 is no path, expected a string"},
    {"{\"include\": \"\"}", "include: \"\" is no path, expected a string"},
};

// A value that stands alone is one element, whatever stands beside it in its object.
static void test_a_value_that_stands_alone(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "{\"stream\": {\"files\": \"x.tsv\", \"format\": \"table\"}}",
        "{\"network\": {\"ps\": \"a:1\", \"coordinator\": \"b:2\", \"interface\": \"c\"}}",
        "{\"model\": {\"embedding_dim\": 7, \"cross_layers\": 2, \"init_scale\": 0.5}}"};
    for (size_t i = 0; i < RT_COUNT_OF(texts); i++) {
        rt_config config = config_fresh();
        rt_error error = {0};
        if (rt_config_load(&config, config_write_file("alone.json", texts[i]), &error))
            fail_msg("%s", error.text);
        assert_int_equal(config.stream.file_count, i == 0);
        assert_int_equal(config.network_ps_count, i == 1);
        assert_int_equal(config.model.embedding_dim_count, 0);
        if (i == 0)
            assert_string_equal(config.stream.files[0], "x.tsv");
        if (i == 1)
            assert_string_equal(config.network_ps[0], "a:1");
        if (i == 2)
            assert_int_equal(config.model.embedding_dim, 7);
        rt_config_fini(&config);
    }
}

static void test_every_error_of_a_file(void **state)
{
    (void)state;
    for (size_t i = 0; i < RT_COUNT_OF(bad_files); i++) {
        rt_config config = config_load_everything();
        rt_error error = {0};
        char *before = config_json(&config), want[700];
        const char *path = config_write_file("bad.json", bad_files[i].text);
        snprintf(want, sizeof want, "%s: %s", path, bad_files[i].error);
        assert_int_equal(rt_config_load(&config, path, &error), RT_CONFIG);
        assert_int_equal(error.status, RT_CONFIG);
        assert_string_equal(error.text, want);
        assert_int_equal(rt_config_load(&config, path, NULL), RT_CONFIG);
        char *after = config_json(&config);
        assert_string_equal(before, after);
        rt_free(before);
        rt_free(after);
        rt_config_fini(&config);
    }
}

static void expect_load(const char *path, rt_status status, const char *text)
{
    rt_config config = config_fresh();
    rt_error error = {0};
    char want[1200];
    snprintf(want, sizeof want, "%s: %s", path, text);
    assert_int_equal(rt_config_load(&config, path, &error), status);
    assert_string_equal(error.text, want);
    rt_config_fini(&config);
}

static void test_files_that_are_none(void **state)
{
    (void)state;
    char folder[256], path[512];
    snprintf(folder, sizeof folder, "%s", config_write_file("binary.json", ""));
    *strrchr(folder, '/') = '\0';
    snprintf(path, sizeof path, "%s/missing.json", folder);
    expect_load(path, RT_IO, "cannot be opened: No such file or directory");
    expect_load(folder, RT_IO, "not a regular file");
    snprintf(path, sizeof path, "%s/pipe", folder);
    assert_int_equal(mkfifo(path, 0600), 0); // must not wait for a writer
    expect_load(path, RT_IO, "not a regular file");
    snprintf(path, sizeof path, "%s", config_write_bytes("binary.json", "{\"seed\"\0: 1}", 12));
    expect_load(path, RT_CONFIG, "line 1, column 8: a control character: this is not JSON text");
    size_t size = (1u << 20) + 1;
    char *big = malloc(size);
    assert_non_null(big);
    memset(big, ' ', size);
    snprintf(path, sizeof path, "%s", config_write_bytes("big.json", big, size));
    expect_load(path, RT_CONFIG, "larger than 1048576 bytes: not a configuration");
    memcpy(big, "{}", 2); // the largest that is read
    snprintf(path, sizeof path, "%s", config_write_bytes("big.json", big, size - 1));
    rt_config config = config_fresh();
    assert_int_equal(rt_config_load(&config, path, NULL), RT_OK);
    rt_config_fini(&config);
    memset(big, '[', size - 1);
    snprintf(path, sizeof path, "%s", config_write_bytes("deep.json", big, size - 1));
    expect_load(path, RT_CONFIG, "line 1, column 17: nested too deeply");
    free(big);
}

static void test_unreadable_file(void **state)
{
    (void)state;
    const char *path = config_write_file("closed.json", "{}");
    assert_int_equal(chmod(path, 0), 0);
    bool is_root = geteuid() == 0; // who may read every file
    if (is_root && seteuid(65534) != 0)
        test_skip("root without the right to be somebody else");
    expect_load(path, RT_IO, "cannot be opened: Permission denied");
    if (is_root)
        assert_int_equal(seteuid(0), 0);
}

static void test_every_truncation(void **state)
{
    (void)state;
    rt_config config = config_fresh();
    rt_error error;
    for (size_t size = 0; size < strlen(config_everything); size++) {
        memset(&error, 0, sizeof error);
        const char *path = config_write_bytes("cut.json", config_everything, size);
        assert_int_equal(rt_config_load(&config, path, &error), RT_CONFIG);
        if (!strstr(error.text, "cut.json: line 1, column "))
            fail_msg("%zu bytes: \"%s\" names no line", size, error.text);
    }
    rt_config_fini(&config);
}

// A poor man's fuzzer for machines without libFuzzer (tests/fuzz/fuzz_config.c): no crash, no
// error without a text, and what loads can be written.
static void test_random_changes(void **state)
{
    (void)state;
    rt_random random = {2024};
    char text[8192];
    uint32_t size = (uint32_t)strlen(config_everything);
    assert_true(size < sizeof text);
    for (int round = 0; round < 1500; round++) {
        rt_config config = config_fresh();
        rt_error error = {0};
        memcpy(text, config_everything, size + 1);
        for (uint32_t i = rt_random_below(&random, 3) + 1; i > 0; i--) {
            uint32_t at = rt_random_below(&random, size);
            text[at] = i % 2 ? (char)rt_random_below(&random, 256)
                             : config_everything[rt_random_below(&random, size)];
        }
        const char *path = config_write_bytes("changed.json", text, size);
        rt_status status = rt_config_load(&config, path, &error);
        assert_true(status == RT_OK || (status == RT_CONFIG && error.text[0]) || status == RT_IO);
        rt_free(config_json(&config));
        (void)rt_config_check(&config, &error);
        rt_config_fini(&config);
    }
}

static void test_include(void **state)
{
    (void)state;
    char folder[256], path[512];
    rt_error error = {0};
    snprintf(folder, sizeof folder, "%s", config_write_file("root.json", ""));
    *strrchr(folder, '/') = '\0';
    snprintf(path, sizeof path, "%s/formats", folder);
    assert_int_equal(mkdir(path, 0700), 0);
    config_write_file("formats/one.json", "{\"include\": \"../two.json\", \"workers\": 7}");
    config_write_file("two.json", "{\"workers\": 5, \"seed\": 6, \"dispatch\": {\"alpha\": 0.5}}");
    // Values of the including file win, wherever its include stands.
    snprintf(path, sizeof path, "%s",
             config_write_file("root.json", "{\"dispatch\": {\"policy\": \"laia\"}, \"seed\": 9, "
                                            "\"include\": \"formats/one.json\"}"));
    rt_config config = config_fresh();
    if (rt_config_load(&config, path, &error) != RT_OK)
        fail_msg("%s", error.text);
    assert_int_equal(config.worker_count, 7);
    assert_int_equal(config.seed, 9);
    assert_true(config.dispatch.alpha == 0.5 && config.dispatch.policy == RT_POLICY_LAIA);
    rt_config_fini(&config);

    char text[1100];
    snprintf(text, sizeof text, "{\"include\": \"%s/two.json\"}", folder); // absolute
    config = config_fresh();
    assert_int_equal(rt_config_load(&config, config_write_file("absolute.json", text), &error),
                     RT_OK);
    assert_int_equal(config.worker_count, 5);
    rt_config_fini(&config);
}

static void test_include_errors(void **state)
{
    (void)state;
    char folder[200], path[512], text[1100];
    snprintf(folder, sizeof folder, "%s", config_write_file("a.json", "{\"include\": \"b.json\"}"));
    *strrchr(folder, '/') = '\0';
    snprintf(path, sizeof path, "%s/a.json", folder);
    snprintf(text, sizeof text, "include: %s/b.json: cannot be opened: No such file or directory",
             folder);
    expect_load(path, RT_IO, text);
    config_write_file("b.json", "{\"workers\": 0}");
    snprintf(text, sizeof text,
             "include: %s/b.json: workers: 0 is out of range, expected an integer in [1, 64]",
             folder);
    expect_load(path, RT_CONFIG, text);
    config_write_file("b.json", "{\"include\": \"./a.json\"}");
    snprintf(text, sizeof text, "include: %s/b.json: include: %s/./a.json: includes itself", folder,
             folder);
    expect_load(path, RT_CONFIG, text);
    config_write_file("b.json", "{}");
    config_write_file("a.json", "{\"include\": \"b.json\", \"include\": \"b.json\"}");
    expect_load(path, RT_CONFIG, "include: stands twice in its object");
}

static void test_include_depth(void **state)
{
    (void)state;
    char name[32], text[64], path[512] = "";
    rt_config config = config_fresh();
    rt_error error = {0};
    for (int depth = 0; depth <= 9; depth++) {
        snprintf(name, sizeof name, "n%d.json", depth);
        snprintf(text, sizeof text, depth ? "{\"include\": \"n%d.json\"}" : "{\"seed\": 99}",
                 depth - 1);
        snprintf(path, sizeof path, "%s", config_write_file(name, text));
        rt_status status = rt_config_load(&config, path, &error);
        assert_int_equal(status, depth <= 8 ? RT_OK : RT_CONFIG);
    }
    assert_int_equal(config.seed, 99);
    assert_non_null(strstr(error.text, "n1.json: include: files include each other more than 8"));
    rt_config_fini(&config);
}

static int check_folder(const char *folder)
{
    int count = 0;
    DIR *entries = opendir(folder);
    if (!entries)
        fail_msg("%s: %s (tests run in the root of the repository)", folder, strerror(errno));
    for (struct dirent *entry; (entry = readdir(entries));) {
        char path[512];
        struct stat info;
        rt_error error = {0};
        size_t length = strlen(entry->d_name);
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        if (entry->d_name[0] == '.' || stat(path, &info) != 0)
            continue;
        if (S_ISDIR(info.st_mode) && strcmp(entry->d_name, "grafana") != 0) // those are Grafana's
            count += check_folder(path);
        if (length < 5 || strcmp(entry->d_name + length - 5, ".json") != 0)
            continue;
        rt_config config = config_fresh();
        if (rt_config_load(&config, path, &error) != RT_OK)
            fail_msg("%s", error.text);
        if (!test_file_has(path, "{\n    \"version\": 1,\n")) // what docs/STABILITY.md advises
            fail_msg("%s does not begin with its \"version\"", path);
        if (config.stream.file_count == 0 && !rt_config_source_is_live(&config.stream))
            // these leave the input to the user
            config_must_set(&config, "stream.files=data.tsv");
        if (rt_config_check(&config, &error) != RT_OK)
            fail_msg("%s: %s", path, error.text);
        rt_config_fini(&config);
        count++;
    }
    closedir(entries);
    return count;
}

static void test_files_in_configs(void **state)
{
    (void)state;
    assert_true(check_folder("configs") >= 5);
    rt_config config = config_fresh();
    rt_error error = {0};
    assert_int_equal(rt_config_load(&config, "configs/paper/s2.json", &error), RT_OK);
    assert_true(config.model.kind == RT_MODEL_DFM && config.model.embedding_dim == 512);
    assert_true(config.worker_count == 8 && config.samples_per_worker == 128);
    assert_true(config.links.workers[3].gbps_up == 5 && config.links.workers[4].gbps_up == 0.5);
    rt_config_fini(&config);
}

TEST_MAIN(TEST(test_a_value_that_stands_alone), TEST(test_every_error_of_a_file),
          TEST(test_files_that_are_none), TEST(test_unreadable_file), TEST(test_every_truncation),
          TEST(test_random_changes), TEST(test_include), TEST(test_include_errors),
          TEST(test_include_depth), TEST(test_files_in_configs))
