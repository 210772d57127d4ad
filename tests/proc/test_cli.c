// What the program says to somebody at a terminal: help, wrong usage, folders that are not free.
#define _GNU_SOURCE // posix_openpt
#include "tests/support/test.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include "runtime/rt_base.h"
#include "runtime/rt_hash.h"
#include "tests/support/run_case.h"

#define ARGUMENTS_MAX 12
#define SAY_S 20.0

static void write_file(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

// Runs the program with arguments, NULL at the end: the exit status and what is said.
static void must_say(const char *const *arguments, int want, const char *text)
{
    const char *all[ARGUMENTS_MAX + 2] = {process_lanyard()};
    process p = {0};
    for (size_t i = 0; arguments[i]; i++) {
        assert_true(i < ARGUMENTS_MAX);
        all[i + 1] = arguments[i];
    }
    int status = process_run(&p, all, SAY_S);
    if (status != want || !strstr(p.text, text))
        fail_msg("exit status %d, expected %d and \"%s\"; it said:\n%s", status, want, text,
                 p.text);
    process_fini(&p);
}

static size_t count_of(const char *text, const char *part)
{
    size_t count = 0;
    for (; (text = strstr(text, part)); text++)
        count++;
    return count;
}

#define SAYS(want, text, ...) must_say((const char *const[]){__VA_ARGS__, NULL}, want, text)

// By a shell: $0 is the program, $1 the case's folder.
static void must_say_in_shell(const char *command, int want, const char *text)
{
    process p = {0};
    const char *const all[] = {"/bin/sh", "-c", command, process_lanyard(), test_path("."), NULL};
    const int status = process_run(&p, all, SAY_S);
    if (status != want || (text && !strstr(p.text, text)))
        fail_msg("%s: exit status %d, expected %d and \"%s\"; it said:\n%s", command, status, want,
                 text ? text : "", p.text);
    process_fini(&p);
}

static void every_command_has_help(void **state)
{
    (void)state;
    process p = {0};
    size_t count = 0;
    const char *const all[] = {process_lanyard(), "--help", NULL};
    static const char begin[] = "\n  lanyard ";
    assert_int_equal(process_run(&p, all, SAY_S), 0);
    for (const char *at = p.text; (at = strstr(at, begin)); count++) {
        char name[32] = "", usage[64];
        at += sizeof begin - 1;
        assert_int_equal(sscanf(at, "%31[a-z]", name), 1);
        snprintf(usage, sizeof usage, "  lanyard %s ", name);
        SAYS(0, usage, name, "--help");
        SAYS(0, usage, name, "-h");
    }
    process_fini(&p);
    // The list has all that completion knows, each once, in groups.
    const char *const completion[] = {process_lanyard(), "help", "--completion", "zsh", NULL};
    assert_int_equal(process_run(&p, completion, SAY_S), 0);
    assert_int_equal(count_of(p.text, "\n_lanyard_of_"), count);
    process_fini(&p);
    SAYS(0, "\n\nSeveral boxes, for example: lanyard keygen keys\n", "--help");
    SAYS(0, "\n  workers                        Number of workers.\n", "help", "keys");
    SAYS(0, "  --rank N                 its number, from 0", "worker", "--help");
    SAYS(0, "  --rank N                 its number, from 0", "ps", "--help");
    SAYS(0, "alpha=0.5", "sim", "CONFIG", "--help");
}

static const char table[] =
    "{\"workers\": 2, \"batch\": {\"samples_per_worker\": 16},"
    " \"stream\": {\"format\": \"table\", \"table\": {\"columns\": ["
    "  {\"name\": \"label\", \"kind\": \"label\"}, {\"name\": \"user\", \"kind\": "
    "\"categorical\"}]}},"
    " \"model\": {\"embedding_dim\": 4, \"mlp\": [8, 4]}, \"timeouts\": {\"start_s\": 20}}";

static void wrong_usage_is_named(void **state)
{
    (void)state;
    SAYS(2, "which CONFIG?", "up");
    SAYS(2, "which CONFIG?", "sim");
    SAYS(2, "which CONFIG?", "check");
    SAYS(2, "--migrate takes one CONFIG, and no --set", "check", "--migrate");
    SAYS(2, "--migrate takes one CONFIG, and no --set", "check", "configs/demo.json", "--migrate",
         "--set", "seed=2");
    SAYS(0, "\"version\": 1,", "check", "configs/demo.json", "--migrate");
    SAYS(1, "/nowhere.json: cannot be opened", "check", "/nowhere.json", "--migrate");
    SAYS(2, "which CONFIG?", "doctor");
    SAYS(2, "which CONFIG?", "coordinator");
    SAYS(2, "which DIR?", "eval");
    SAYS(2, "unknown command \"trian\", did you mean \"up\"? (see lanyard --help)", "trian");
    SAYS(2, "unknown option \"--outt\", did you mean \"--out\"? (see lanyard up --help)", "up",
         "a.json", "--outt", "b");
    SAYS(2, "\"--out=b\", did you mean \"--out b\"?", "up", "a.json", "--out=b");
    SAYS(2, "unknown option \"--zzzzzzzz\" (see lanyard up --help)", "up", "a.json", "--zzzzzzzz");
    SAYS(2, "a key is given by --set model.name=dcn", "up", "a.json", "--model.name=dcn");
    SAYS(2, "a key is given by --set model.name=VALUE", "up", "a.json", "--model.name", "dcn");
    SAYS(2, "a key is given by --set workers=VALUE", "up", "a.json", "--workers", "4");
    SAYS(2, "\"seed=4\", did you mean --set seed=4?", "up", "a.json", "seed=4");
    SAYS(2, "unexpected argument \"no-such-file\" (see lanyard eval --help)", "eval", "model",
         "no-such-file");
    SAYS(2, "files of rows are given by --set stream.files=Makefile", "eval", "model", "Makefile");
    SAYS(2, "a value is missing after \"--out\"", "up", "a.json", "--out");
    SAYS(2, "a value is missing after \"--out\"", "up", "a.json", "--out", "");
    SAYS(2, "expected HOST:PORT", "probe");
    SAYS(2, "--set needs --config", "probe", "localhost:1", "--set", "seed=1");
    SAYS(1, "tcp://localhost: not an address", "probe", "localhost");
    SAYS(2, "--rows and --memory: expected one of them", "profile", "configs/demo.json", "--rows",
         "5", "--memory", "5000");
    SAYS(2, "--samples \"0\": expected a whole number from 1", "profile", "configs/demo.json",
         "--samples", "0");
    SAYS(1, "this input has no end; expected --samples N", "profile", "configs/demo.json", "--set",
         "stream.samples_max=0");
}

// Each says what that folder is instead, as far as one can see.
static void folders_without_a_model_are_named(void **state)
{
    (void)state;
    char run[500], published[500], file[600];
    snprintf(run, sizeof run, "%s", test_path("a run"));
    snprintf(published, sizeof published, "%s", test_path("a run/published"));
    SAYS(1, "a run: No such file or directory: expected the folder model/ of a run", "eval", run);
    assert_int_equal(mkdir(run, 0777), 0);
    assert_int_equal(mkdir(published, 0777), 0);
    SAYS(1, "a run: no config.json: expected the folder model/ of a run", "eval", run);
    SAYS(1, "a run/published: no model yet: the run has published none", "eval", published);
    SAYS(1, "a run: no current.json: expected the folder that a run publishes to", "rollback", run);
    snprintf(file, sizeof file, "%s/lock", published);
    write_file(file, "");
    SAYS(1, "a run/published: no model yet: the run has published none", "eval", published);
    snprintf(file, sizeof file, "%s/model", run);
    assert_int_equal(mkdir(file, 0777), 0);
    snprintf(file, sizeof file, "%s/model/config.json", run);
    write_file(file, "{}");
    SAYS(1, "stream.files: no input given", "predict", run); // it is the run's model that is meant
    snprintf(file, sizeof file, "%s/current.json", published);
    write_file(file, "{\"iteration\": 58, \"pinned\": false}");
    for (int i = 58; i < 60; i++) {
        snprintf(file, sizeof file, "%s/ckpt-%012d", published, i);
        assert_int_equal(mkdir(file, 0777), 0);
        snprintf(file, sizeof file, "%s/ckpt-%012d/manifest.json", published, i);
        write_file(file, "{}");
    }
    SAYS(1, "a run/published has none of iteration 3, but 58 59", "pin", published, "--version",
         "3");
}

// How often a process went to sleep: every look at what is not there yet ends so.
static unsigned long sleeps_of(pid_t pid)
{
    char path[64], line[256];
    unsigned long count = 0;
    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file))
        (void)sscanf(line, "voluntary_ctxt_switches: %lu", &count);
    fclose(file);
    return count;
}

// Says once what it waits for, however often it looks, and ends when it is told to.
static void must_wait(const char *folder, const char *option, const char *value, const char *text)
{
    process p = {0};
    process_start(&p,
                  (const char *const[]){process_lanyard(), "serve", folder, option, value, NULL});
    process_await(&p, 0, text, RUN_CASE_S);
    for (const unsigned long before = sleeps_of(p.pid); sleeps_of(p.pid) < before + 3;)
        usleep(10000);
    kill(p.pid, SIGINT);
    assert_int_equal(process_end(&p, RUN_CASE_S), 0);
    run_must_say(&p, "serve: ends, while it waited for a model");
    assert_int_equal(count_of(p.text, "waits for a model: "), 1);
    assert_null(strstr(p.text, "error: "));
    process_fini(&p);
}

static void a_server_waits_only_where_a_model_may_come(void **state)
{
    (void)state;
    char run[400], published[500], file[600], none[600];
    snprintf(run, sizeof run, "%s", test_path("a run"));
    snprintf(published, sizeof published, "%s/published/", run);
    snprintf(file, sizeof file, "%s/published/lock", run);
    snprintf(none, sizeof none, "%s/published/lock/model", run);
    SAYS(1, "published/: No such file or directory: expected", "serve", published); // nor "a run"
    assert_int_equal(mkdir(run, 0777), 0);
    must_wait(published, NULL, NULL, "waits for a model: ");
    assert_int_equal(mkdir(published, 0777), 0);
    must_wait(published, NULL, NULL, "no model yet: the run has published none");
    write_file(file, "");
    must_wait(published, NULL, NULL, "no model yet: the run has published none");
    must_wait(test_path("copy"), "--run", "127.0.0.1:1", "copy from tcp://127.0.0.1:1 yet: ");
    must_wait(run, NULL, NULL, "a run/published: no model yet: the run has published none");
    SAYS(1, "lock: Not a directory", "serve", file);
    SAYS(1, "lock/model: Not a directory: expected the folder model/", "serve", none);
}

// The hot rows of a file, in order, after its head.
static void hot_rows_go_from_profile_to_sim(void **state)
{
    (void)state;
    char out[300], rows[320], spec[320];
    snprintf(out, sizeof out, "%s", test_path("hot"));
    snprintf(spec, sizeof spec, "fae:profile=%s", out);
    write_file(test_path("table.json"), table);
    write_file(test_path("rows"), "1,u1\n0,u2\n0,u1\n1,u3\n0,u1\n");
    snprintf(rows, sizeof rows, "stream.files=%s", test_path("rows"));
    SAYS(0, "5 samples (the whole input), 5 look-ups of 3 rows", "profile", test_path("table.json"),
         "--set", rows, "--memory", "64", "--out", out);
    SAYS(0, "dispatch.policy=fae --set", "profile", test_path("table.json"), "--set", rows, "--out",
         out, "--rows", "2", "--set", "dispatch.policy=fae"); // whose file it makes
    SAYS(0, " --set cache.rows=18\n", "profile", test_path("table.json"), "--set", rows, "--out",
         out, "--rows", "2");
    SAYS(0, "\"lookups\": 3,\n    \"share\": 0.6,\n    \"value_bytes\": 16,\n    \"row_bytes\": 32",
         "profile", test_path("table.json"), "--set", rows, "--rows", "1", "--json");
    SAYS(0, "2 samples (as many as --samples), 2 look-ups of 2 rows", "profile",
         test_path("table.json"), "--set", rows, "--samples", "2");
    SAYS(0, "cost: rows on the fastest link", "sim", test_path("table.json"), "--set", rows,
         "--set", "sim.warmup=0", "--set", "cache.rows=100", "--policies", spec);
    SAYS(1, "has 1 rows, expected at least 18: 2 hot rows (dispatch.profile), and 16 that", "sim",
         test_path("table.json"), "--set", rows, "--set", "cache.rows=1", "--policies", spec);
    SAYS(1, "hot: taken with another stream.format (table)", "sim", "configs/demo.json",
         "--policies", spec);
}

// y is 1 where a and b are of the same kind, which neither says alone; c says nothing.
static void write_crossed_rows(const char *path, bool has_header)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    if (has_header)
        fprintf(file, "y,a,b,c\n");
    for (uint64_t i = 0; i < 4000; i++) {
        const uint64_t any = rt_mix(i + 1), a = any % 6, b = any / 6 % 10, c = any / 60 % 8;
        fprintf(file, "%d,a%d,b%d,c%d\n", (a & 1) == (b & 1), (int)a, (int)b, (int)c);
    }
    assert_int_equal(fclose(file), 0);
}

static const char crossed[] =
    "{\"stream\": {\"format\": \"table\", \"table\": {\"delimiter\": \",\", \"columns\": [\n"
    " {\"name\": \"y\", \"kind\": \"label\"}, {\"name\": \"a\", \"kind\": \"categorical\"},\n"
    " {\"name\": \"b\", \"kind\": \"categorical\"}, {\"name\": \"c\", \"kind\": \"categorical\"}\n"
    "%s]}}}";

static void write_crossed(const char *name, const char *more)
{
    char text[1000];
    snprintf(text, sizeof text, crossed, more);
    write_file(test_path(name), text);
}

// Of a file and of a configuration; what is printed goes into the configuration.
static void crosses_are_found_and_pasted(void **state)
{
    (void)state;
    static const char entry[] =
        "{\"name\":\"a x b\",\"kind\":\"categorical\",\"from\":[\"a\",\"b\"]}\n";
    char rows[320], line[400];
    write_crossed_rows(test_path("headed.csv"), true);
    write_crossed_rows(test_path("rows"), false);
    write_crossed("crossed.json", "");
    snprintf(rows, sizeof rows, "stream.files=%s", test_path("rows"));
    SAYS(0, entry, "crosses", test_path("headed.csv"));
    SAYS(0, entry, "crosses", test_path("crossed.json"), "--set", rows);
    SAYS(0, "3000 samples (as many as --samples); 3 columns in 3 pairs", "crosses",
         test_path("crossed.json"), "--set", rows, "--samples", "3000");
    SAYS(0, "\"rows\": 60,\n      \"row_bytes\": 7680,\n      \"rows_admitted\": 60", "crosses",
         test_path("crossed.json"), "--set", rows, "--set", "rows.admit=3", "--json");
    must_say_in_shell("test \"$(\"$0\" crosses \"$1/headed.csv\" 2>\"$1/said\")\" ="
                      " '{\"name\":\"a x b\",\"kind\":\"categorical\",\"from\":[\"a\",\"b\"]}'"
                      " && grep 'beside the crosses' \"$1/said\"",
                      0, NULL);
    snprintf(line, sizeof line, ",%s", entry);
    write_crossed("pasted.json", line);
    SAYS(0, "No cross gains more than chance would: none is proposed", "crosses",
         test_path("pasted.json"), "--set", rows);
    SAYS(0, "which two columns say more together: lanyard crosses", "init",
         test_path("headed.csv"));
    write_file(test_path("marked.json"), "\xef\xbb\xbf{\"stream\": {\"format\": \"criteo\"}}\n");
    SAYS(1, "stream.format: \"criteo\" has no columns that could be crossed", "crosses",
         test_path("marked.json"), "--set", rows);
    SAYS(2, "--label: ", "crosses", test_path("crossed.json"), "--label", "y");
    SAYS(1, "--label z: no column has this name", "crosses", test_path("headed.csv"), "--label",
         "z");
    SAYS(2, "which FILE? One that can be read twice", "crosses", "-");
    SAYS(2, "--samples \"10\": expected a whole number from 2000", "crosses",
         test_path("headed.csv"), "--samples", "10");
    SAYS(1, "stream.format: \"synthetic\" has no columns", "crosses", "configs/demo.json");
    SAYS(1, "this input has no end", "crosses", test_path("crossed.json"), "--set",
         "stream.source=http");
}

// ---- folders and inputs of runs ----------------------------------------------------------------

// A run that reads a pipe which stays open says that it waits, and has its folder for itself; after
// it the folder is free.
static void a_folder_has_one_run(void **state)
{
    (void)state;
    char config[300], out[300];
    struct stat info;
    process p = {.with_input = true};
    snprintf(config, sizeof config, "%s", test_path("table.json"));
    snprintf(out, sizeof out, "%s", test_path("out"));
    write_file(config, table);
    const char *const first[] = {
        process_lanyard(), "up",    config,           "--out", out, "--set",
        "stream.files=-",  "--set", "cache.rows=100", NULL};
    process_start(&p, first);
    process_await(&p, 0, "waiting for the input: no batch of 32 samples", RUN_CASE_S);
    SAYS(1, "out: another coordinator uses this folder", "up", config, "--out", out, "--set",
         "stream.files=-", "--set", "cache.rows=100");
    kill(p.pid, SIGINT);
    run_must_end(&p, 0);
    write_file(test_path("rows"), "1,u1\n0,u2\n");
    write_file(test_path("out/metrics.jsonl.1"), "what the first one put aside\n");
    char rows[320];
    snprintf(rows, sizeof rows, "stream.files=%s", test_path("rows"));
    SAYS(0, "1 iterations, 2 samples", "up", config, "--out", out, "--set", rows, "--set",
         "cache.rows=100");
    assert_int_not_equal(stat(test_path("out/metrics.jsonl.1"), &info), 0);
    SAYS(1, "out/model/dense.bin: tensor \"mlp.0.weight\"", "eval", test_path("out/model"), "--set",
         "model.mlp=[9]", "--set", rows);
}

// A model that was trained on nothing takes no other one's place.
static void an_empty_input_is_an_error(void **state)
{
    (void)state;
    struct stat info;
    char config[300], out[300], rows[320];
    snprintf(config, sizeof config, "%s", test_path("table.json"));
    snprintf(out, sizeof out, "%s", test_path("out"));
    write_file(config, table);
    write_file(test_path("rows"), "");
    snprintf(rows, sizeof rows, "stream.files=%s", test_path("rows"));
    SAYS(1, "the input has no sample", "up", config, "--out", out, "--set", rows, "--set",
         "cache.rows=100");
    assert_int_not_equal(stat(test_path("out/model"), &info), 0);
    SAYS(1, "no sample is in the input", "up", config, "--out", out, "--set", rows);
}

// ---- what cannot be -----------------------------------------------------------------------------

static void must_not_be_there(const char *name)
{
    struct stat info;
    if (stat(test_path(name), &info) == 0)
        fail_msg("%s is there", name);
}

// One error, which names the key, and nothing is left behind.
static void up_must_refuse(const char *set, const char *more, const char *text)
{
    process p = {0};
    const char *const all[] = {process_lanyard(),
                               "up",
                               "configs/demo.json",
                               "--out",
                               test_path("out"),
                               "--set",
                               set,
                               "--set",
                               more,
                               NULL};
    const int status = process_run(&p, all, SAY_S);
    if (status != 1 || !strstr(p.text, text) || count_of(p.text, "error: ") != 1)
        fail_msg("%s: exit status %d, expected 1 and one error \"%s\"; it said:\n%s", set, status,
                 text, p.text);
    process_fini(&p);
    must_not_be_there("out");
}

static void what_cannot_be_is_refused_once(void **state)
{
    (void)state;
    static const char seed[] = "seed=1", criteo[] = "stream.format=criteo";
    up_must_refuse("device=gpu", seed, "device: \"gpu\" is unknown, expected \"auto\", \"cpu\"");
    up_must_refuse("device=cuda:", seed, "device: \"cuda:\" is unknown");
    up_must_refuse("device=cuda:777", seed, "device: \"cuda:777\": ");
    up_must_refuse("dispatch=laia", seed,
                   "dispatch: is a section, not a key with a value "
                   "(\"laia\"); did you mean \"dispatch.policy\"?");
    up_must_refuse("dispatch=7", seed,
                   "dispatch: is a section, not a key with a value (7): "
                   "expected an object");
    up_must_refuse("cache.rows=67108864", seed,
                   "cache.rows: 67108864 is out of range, expected an "
                   "integer in [0, 67108863]");
    up_must_refuse("stream.files=/nowhere.tsv", criteo,
                   "stream.files: cannot open /nowhere.tsv: No such file");
    up_must_refuse("stream.files=/tmp", criteo, "stream.files: cannot open /tmp: it is a folder");
}

static void a_socket_is_no_input(void **state)
{
    (void)state;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    char set[300];
    const char *path = test_path("socket");
    assert_true(strlen(path) < sizeof address.sun_path);
    memcpy(address.sun_path, path, strlen(path));
    int one = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(bind(one, (const struct sockaddr *)&address, sizeof address), 0);
    snprintf(set, sizeof set, "stream.files=%s", path);
    up_must_refuse(set, "stream.format=criteo", "it is a socket: expected a file or a pipe");
    close(one);
}

static void a_model_needs_no_input(void **state)
{
    (void)state;
    SAYS(0, "26 fields", "check", "configs/criteo.json", "--model");
    SAYS(1, "may need 109051904 rows", "check", "configs/criteo.json", "--model", "--set",
         "batch.samples=4194304", "--set", "workers=1");
    SAYS(1, "stream.files: no input given", "check", "configs/criteo.json");
}

// What a process has said needs no second error about it.
static void a_coordinator_that_ends_early_has_said_why(void **state)
{
    (void)state;
    process p = {0};
    const char *const all[] = {process_lanyard(), "up",           "configs/demo.json",
                               "--set",           "cache.rows=1", NULL};
    assert_int_equal(process_run(&p, all, SAY_S), 1);
    run_must_say(&p, "coordinator: error: the cache of worker 0 has 1 rows");
    assert_int_equal(count_of(p.text, "error: "), 1);
    assert_null(strstr(p.text, "ended with status"));
    process_fini(&p);
}

// ---- where it is said ---------------------------------------------------------------------------

static void what_cannot_be_said_has_failed(void **state)
{
    (void)state;
    if (access("/dev/full", W_OK) != 0)
        test_skip("/dev/full is not here");
    static const char want[] = "lanyard: error: cannot write standard output";
    must_say_in_shell("\"$0\" --version > /dev/full", 1, want);
    must_say_in_shell("\"$0\" help sim > /dev/full", 1, want);
    must_say_in_shell("\"$0\" sim --help > /dev/full", 1, want);
    must_say_in_shell("\"$0\" check configs/demo.json > /dev/full", 1, want);
    must_say_in_shell("\"$0\" check --document > /dev/full", 1, want);
    must_say_in_shell("\"$0\" sim configs/demo.json --set sim.iterations=13 > /dev/full", 1, want);
    must_say_in_shell("\"$0\" sim configs/demo.json --set sim.iterations=13 >&-", 1, want);
    must_say_in_shell("\"$0\" sim configs/demo.json --set sim.iterations=13 --json > /dev/full", 1,
                      want);
}

// config.json, rows and out in the case's folder.
static void train_a_little(const char *sets)
{
    char line[600], *rows = NULL;
    size_t size;
    FILE *text = open_memstream(&rows, &size);
    for (int i = 0; i < 20000; i++)
        fprintf(text, "%d,u%d\n", i % 2, i % 7);
    fclose(text);
    write_file(test_path("rows"), rows);
    free(rows);
    write_file(test_path("config.json"), table);
    snprintf(line, sizeof line,
             "\"$0\" up \"$1/config.json\" --set stream.files=\"$1/rows\" --set cache.rows=100"
             " --set stream.samples_max=64%s --out \"$1/out\"",
             sets);
    must_say_in_shell(line, 0, NULL);
}

// A reader that has what it wanted, as `head` does, is no error: of what has been printed before it
// ended, nor of what comes then.
static void who_reads_no_more_ends_it_in_silence(void **state)
{
    (void)state;
    static const char *const commands[] = {
        "--version",
        "--help",
        "sim --help",
        "check --document",
        "help --completion bash",
        "sim configs/demo.json --set sim.iterations=13",
        "sim configs/demo.json --set sim.iterations=13 --json",
        "predict \"$1/out/model\" --set stream.files=\"$1/rows\" --set stream.samples_max=0",
        "eval \"$1/out/model\" --set stream.files=\"$1/rows\" --json"};
    train_a_little("");
    for (size_t i = 0; i < RT_COUNT_OF(commands); i++) {
        char line[400];
        process p = {0};
        const char *const all[] = {"/bin/sh", "-c", line, process_lanyard(), test_path("."), NULL};
        snprintf(line, sizeof line,
                 "exec 3>&1; { \"$0\" %s 2>&3; echo \"status $?\" >&3; } | head -c 1 >/dev/null",
                 commands[i]);
        assert_int_equal(process_run(&p, all, SAY_S), 0);
        if (strcmp(p.text, "status 0\n") != 0)
            fail_msg("%s: %s", commands[i], p.text);
        process_fini(&p);
    }
}

// By what a run held out it is judged: the summary keeps it, and samples that were trained are not
// taken for it. How far a run goes is no part of what it is: one that goes on further is the same.
static void what_was_held_out_judges(void **state)
{
    (void)state;
    static const struct {
        const char *line;
        int status;
        const char *says;
    } all[] = {
        {"tail -n 9 \"$1/out/summary.json\" | tr -d '\\n'", 0, "\"holdout\": {    \"samples\": "},
        {"\"$0\" eval \"$1/out\" --set stream.holdout=0.5", 1, "stream.holdout: which samples"},
        {"\"$0\" eval \"$1/out\" --set seed=9", 1, "seed: which samples were held out"},
        {"\"$0\" eval \"$1/out\" --set stream.holdout=0", 0,
         "also those that the model was trained"},
        {"\"$0\" eval \"$1/out\" --set stream.holdout=0.5 --set stream.files=\"$1/rows\"", 0,
         "64 samples: "},
        {"\"$0\" eval \"$1/out\" --set stream.files=/dev/null", 0, "0 samples: nothing was judged"},
    };
    train_a_little(" --set stream.holdout=0.4 --set checkpoint.at_end=true");
    must_say_in_shell("grep -h config \"$1\"/out/checkpoints/*/manifest.json >\"$1/hash\"", 0,
                      NULL);
    for (size_t i = 0; i < RT_COUNT_OF(all); i++)
        must_say_in_shell(all[i].line, all[i].status, all[i].says);
    must_say_in_shell("rm -r \"$1/out\"", 0, NULL);
    train_a_little(" --set stream.holdout=0.4 --set checkpoint.at_end=true --set sim.iterations=5"
                   " --set stream.samples_max=48 --set sim.warmup=2");
    must_say_in_shell("grep -h config \"$1\"/out/checkpoints/*/manifest.json | diff - \"$1/hash\"",
                      0, NULL);
}

// Who tells something at the end of the input does not wait for more of it: of the file that a run
// followed, of a FIFO whose writer has ended.
static void an_input_without_end_is_not_waited_for(void **state)
{
    (void)state;
    static const struct {
        const char *command;
        int status;
        const char *says;
    } all[] = {
        {"eval \"$1/out/model\" $ALL", 0, "20000 samples: log loss"},
        {"predict \"$1/out/model\" $ALL --out \"$1/p\"", 0, "20000 predictions"},
        {"sim \"$1/out/model/config.json\" $ALL --policies esd", 0, "read to its present end"},
        {"profile \"$1/out/model/config.json\" $ALL", 0, "read to its present end"},
        {"eval \"$1/out/model\" $ALL --set stream.files=\"$1/none\"", 1, "/none: No such file"},
        {"eval \"$1/out/model\" $ALL --set stream.source=file"
         " --set stream.files=\"$1/fifo\"",
         0, "20000 samples: log loss"},
        {"eval \"$1/out/model\" $ALL --set stream.source=kafka"
         " --set 'stream.files=[]'",
         1, "stream.source: "}}; // it has no end, or the build has none
    train_a_little(" --set stream.source=follow");
    must_say_in_shell("mkfifo \"$1/fifo\"", 0, NULL);
    for (size_t i = 0; i < RT_COUNT_OF(all); i++) {
        char line[400];
        snprintf(line, sizeof line, "ALL='--set stream.samples_max=0'; %s\"$0\" %s",
                 strstr(all[i].command, "fifo") ? "cat \"$1/rows\" > \"$1/fifo\" & " : "",
                 all[i].command);
        must_say_in_shell(line, all[i].status, all[i].says);
    }
}

// What ends a run of several processes is said by one of them.
static void a_failure_is_said_once(void **state)
{
    (void)state;
    process p = {0};
    train_a_little(" --set ps.shards=2 --set checkpoint.at_end=true");
    must_say_in_shell(": > $(echo \"$1\"/out/checkpoints/ckpt-*/planner.bin)", 0, NULL);
    const char *const all[] = {"/bin/sh",
                               "-c",
                               "exec \"$0\" up \"$1/config.json\" --set stream.files=\"$1/rows\""
                               " --set ps.shards=2 --set cache.rows=100 --resume --out \"$1/out\"",
                               process_lanyard(),
                               test_path("."),
                               NULL};
    assert_int_equal(process_run(&p, all, SAY_S), 1);
    if (count_of(p.text, "no checkpoint can be read") != 1 || count_of(p.text, "error: ") != 1)
        fail_msg("%s", p.text);
    process_fini(&p);
}

// Of rows that a shell makes of i from 1 to 600 ("$((i % 2)),u$i"), with more sets: what is said.
static void must_say_of_rows(const char *row, const char *sets, int want, const char *text)
{
    char line[700];
    write_file(test_path("config.json"), table);
    snprintf(line, sizeof line,
             "for i in $(seq 600); do echo \"%s\"; done > \"$1/rows\"; \"$0\" up"
             " \"$1/config.json\" --set stream.files=\"$1/rows\" --set cache.rows=100 %s",
             row, sets);
    must_say_in_shell(line, want, text);
}

#define LABEL(value)                                                                    \
    "--set 'stream.table.columns=[{\"name\": \"label\", \"kind\": \"label\"" value "}," \
    "{\"name\": \"user\", \"kind\": \"categorical\"}]'"

#define WEIGHTED                                                               \
    "--set 'stream.table.columns=[{\"name\": \"label\", \"kind\": \"label\"}," \
    "{\"name\": \"user\", \"kind\": \"categorical\"}, {\"name\": \"w\", \"kind\": \"weight\"}]'"

#define TWO_LABELS                                                                                  \
    "--set 'stream.table.columns=[{\"name\": \"seen\", \"kind\": \"label\"}, {\"name\": \"label\"," \
    "\"kind\": \"label\"}, {\"name\": \"user\", \"kind\": \"categorical\"}]'"

// Lines that are events, and once more their outcomes.
#define JOINED                                                                                       \
    "--set stream.join.outcomes=\"$1/rows\" --set stream.join.window_s=60"                           \
    " --set 'stream.table.columns=[{\"name\": \"id\", \"kind\": \"id\"}, {\"kind\": \"ignore\"},"    \
    "{\"name\": \"user\", \"kind\": \"categorical\"}, {\"name\": \"t\", \"kind\": \"time\","         \
    "\"time_format\": \"unix\"}]' --set 'stream.join.columns=[{\"name\": \"id\", \"kind\": \"id\"}," \
    "{\"name\": \"label\", \"kind\": \"label\"}, {\"kind\": \"ignore\"}, {\"name\": \"t\","          \
    "\"kind\": \"time\", \"time_format\": \"unix\"}]'"

// Before the first iteration: labels that may mean one thing or another are not guessed, and what
// weights of 0 and few labels mean is said.
static void what_is_meant_is_said_first(void **state)
{
    (void)state;
    must_say_of_rows("$((1 + i % 2)),u$((i % 7))", "", 1, "which one is label 1?");
    must_say_of_rows("$((1 + i % 5)),u$((i % 7))", "", 1, "none of the first 32 samples has 0");
    must_say_of_rows("$((1 + i % 2)),u$((i % 7))", LABEL(", \"value\": \"2\""), 0, "600 samples");
    must_say_of_rows("$((1 + i % 2)),u$((i % 7))", LABEL(", \"value\": \"1.0\""), 0, "600 samples");
    must_say_of_rows("$((i % 2 * 2 - 1)),u$((i % 7))", "", 0, "600 samples");
    must_say_of_rows("$((i % 2)),$((1 + i % 2)),u$((i % 7))", TWO_LABELS, 1,
                     "labels \"label\": none of the first 32 samples has 0, and one has 2");
    must_say_of_rows("e$i,$((1 + i % 2)),u$((i % 7)),$i", JOINED, 1, "which one is label 1?");
    must_say_of_rows("e$i,$((i % 2)),u$((i % 7)),$i", JOINED, 0, "600 samples");
    must_say_of_rows("$((1 + i % 2)) $((1 + i % 7)):1",
                     "--set stream.format=libsvm --set cache.rows=40000", 1,
                     "stream.libsvm.label_at_least");
    must_say_of_rows("$((i % 2)),u$((i % 7)),0", WEIGHTED, 0,
                     "all weights of the first 32 samples are 0");
    must_say_of_rows("$((i % 2)),u$((i % 7)),$((i % 4))", WEIGHTED, 0,
                     "8 of the first 32 samples have weight 0");
    must_say_of_rows("$((i == 5)),u$((i % 7))",
                     "--set batch.samples_per_worker=200 --set cache.rows=500", 0,
                     "label 1 is rare: 1 of the first 400 samples");
}

// `top` at a terminal of its own, which it leaves as it was.
static void q_ends_top(void **state)
{
    (void)state;
    static const char screen[] = "\033[H";
    struct termios before, after;
    char seen[4096];
    size_t length = 0;
    train_a_little("");
    const int master = posix_openpt(O_RDWR | O_NOCTTY);
    if (master < 0 || grantpt(master) != 0 || unlockpt(master) != 0)
        test_skip("no terminals here");
    const int held = open(ptsname(master), O_RDWR | O_NOCTTY); // it stays until the child has it
    assert_true(held >= 0);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        (void)setsid();
        const int terminal = open(ptsname(master), O_RDWR); // its own from now on
        for (int fd = 0; fd < 3; fd++)
            dup2(terminal, fd);
        execl(process_lanyard(), process_lanyard(), "top", test_path("out"), NULL);
        _exit(127);
    }
    assert_int_equal(tcgetattr(master, &before), 0);
    assert_true(before.c_lflag & ICANON);
    struct pollfd out = {.fd = master, .events = POLLIN};
    for (bool shows = false; !shows;) {
        assert_int_equal(poll(&out, 1, (int)(SAY_S * 1000)), 1);
        const ssize_t got = read(master, seen + length, sizeof seen - 1 - length);
        assert_true(got > 0);
        length += (size_t)got;
        seen[length] = '\0';
        shows = strstr(seen, screen) != NULL;
    }
    assert_int_equal(write(master, "xq", 2), 2);
    int status = -1;
    pid_t ended = 0;
    for (int i = 0; i < (int)(SAY_S * 100) && ended == 0; i++) {
        if (poll(&out, 1, 10) == 1 && (out.revents & POLLIN))
            (void)read(master, seen, sizeof seen);
        ended = waitpid(child, &status, WNOHANG);
    }
    if (ended == 0)
        kill(child, SIGKILL);
    assert_int_equal(ended, child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    assert_int_equal(tcgetattr(master, &after), 0);
    assert_int_equal(after.c_lflag, before.c_lflag);
    close(held);
    close(master);
}

// What is printed does not go to the file that was opened next.
static void closed_descriptors_are_not_files(void **state)
{
    (void)state;
    char *rows = NULL;
    size_t size;
    FILE *text = open_memstream(&rows, &size);
    for (int i = 0; i < 400; i++)
        fprintf(text, i == 250 ? "no sample\n" : "%d,u%d\n", i % 2, i % 7);
    fclose(text);
    write_file(test_path("rows"), rows);
    free(rows);
    write_file(test_path("config.json"), table);
    must_say_in_shell("\"$0\" sim \"$1/config.json\" --set stream.files=\"$1/rows\""
                      " --set cache.rows=100 --placements \"$1/placed\" >/dev/null 2>&-;"
                      " test -s \"$1/placed\" && ! grep -e warn -e cost \"$1/placed\"",
                      0, NULL);
}

TEST_MAIN(TEST(every_command_has_help), TEST(wrong_usage_is_named),
          TEST(folders_without_a_model_are_named), TEST(a_server_waits_only_where_a_model_may_come),
          TEST(hot_rows_go_from_profile_to_sim), TEST(crosses_are_found_and_pasted),
          TEST(a_folder_has_one_run), TEST(an_empty_input_is_an_error),
          TEST(what_cannot_be_is_refused_once), TEST(a_socket_is_no_input),
          TEST(a_model_needs_no_input), TEST(a_coordinator_that_ends_early_has_said_why),
          TEST(what_cannot_be_said_has_failed), TEST(who_reads_no_more_ends_it_in_silence),
          TEST(an_input_without_end_is_not_waited_for), TEST(what_was_held_out_judges),
          TEST(a_failure_is_said_once), TEST(q_ends_top),
          TEST_SLOW(what_is_meant_is_said_first, 120), TEST(closed_descriptors_are_not_files))
