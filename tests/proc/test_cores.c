// Threads of a run, and of those who ask its model: each worker has its share of the cores, and no
// number of them changes a bit of what is trained or answered.
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/rt_hash.h"
#include "runtime/rt_thread.h"
#include "tests/support/run_case.h"
#include "tests/support/test.h"

#define ROWS 6000u
#define SHARDS 1u

// Large enough that every operation of a step is split.
static const char config[] =
    "{\"workers\": 2, \"batch\": {\"samples_per_worker\": 509}, \"device\": \"cpu\","
    " \"stream\": {\"format\": \"table\", \"table\": {\"delimiter\": \",\", \"columns\": ["
    "  {\"name\": \"bought\", \"kind\": \"label\"}, {\"name\": \"user\", \"kind\": "
    "\"categorical\"},"
    "  {\"name\": \"item\", \"kind\": \"categorical\"}, {\"name\": \"price\", \"kind\": "
    "\"dense\"}]}},"
    " \"model\": {\"embedding_dim\": 32, \"mlp\": [300, 61]}, \"cache\": {\"rows\": 20000},"
    " \"links\": {\"pin\": true}}";

// "stream.files=..." of rows that are there from then on.
static const char *input(void)
{
    static char set[500];
    const char *path = run_path("rows.csv");
    rt_random random = {7};
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    for (uint32_t i = 0; i < ROWS; i++) {
        const uint32_t user = rt_random_below(&random, 300), item = rt_random_below(&random, 200);
        fprintf(file, "%d,u%" PRIu32 ",i%" PRIu32 ",%.3f\n", (user + item) % 3 == 0, user, item,
                rt_random_unit(&random));
    }
    assert_int_equal(fclose(file), 0);
    snprintf(set, sizeof set, "stream.files=%s", path);
    return set;
}

// Trains; both workers must say that they have so many threads.
static void train(const char *out, const char *set, uint32_t first, uint32_t second)
{
    const uint32_t threads[] = {first, second};
    process p;
    run_start_up(&p, config, out, NULL, (const char *const[]){input(), set, NULL});
    run_must_end(&p, 0);
    for (uint32_t rank = 0; rank < RT_COUNT_OF(threads); rank++) {
        char begin[64], end[64];
        snprintf(begin, sizeof begin, "worker %" PRIu32 ": device cpu: ", rank);
        snprintf(end, sizeof end, ", %" PRIu32 " thread%s", threads[rank],
                 threads[rank] == 1 ? "" : "s");
        const char *line = strstr(p.text, begin);
        if (!line || strncmp(line + strcspn(line, "\n") - strlen(end), end, strlen(end)) != 0)
            fail_msg("no line \"%s...%s\" in:\n%s", begin, end, p.text);
    }
    process_fini(&p);
}

// `up` starts all workers of this box, and tells each how many they are.
static void workers_share_the_cores(void **state)
{
    const uint32_t cores = rt_thread_cores();
    (void)state;
    if (cores == 1)
        test_skip("one core: a worker that does not share it has one thread, too");
    train("out", "stream.samples_max=1024", rt_thread_share(cores, 2, 0),
          rt_thread_share(cores, 2, 1));
}

static void threads_change_no_bit_of_a_model(void **state)
{
    (void)state;
    train("one", "compute.threads=1", 1, 1);
    train("three", "compute.threads=3", 3, 3);
    run_must_be_the_same("one", "three", SHARDS);
}

// A command of words and sets, whose answers become the file OUT in the folder of the run.
static void ask(const char *const *words, const char *const *sets)
{
    process p;
    run_start(&p, words, sets);
    run_must_end(&p, 0);
    process_fini(&p);
}

static void threads_change_no_answer(void **state)
{
    static const char *const threads[] = {"1", "3"};
    char model[400], set[64];
    size_t size;
    (void)state;
    train("out", "compute.threads=1", 1, 1);
    snprintf(model, sizeof model, "%s", run_path("out/model"));
    for (uint32_t i = 0; i < RT_COUNT_OF(threads); i++) {
        snprintf(set, sizeof set, "compute.threads=%s", threads[i]);
        ask((const char *const[]){"eval", model, "--predictions",
                                  run_path(i ? "out/eval-3" : "out/eval-1"), NULL},
            (const char *const[]){input(), set, NULL});
        ask((const char *const[]){"predict", model, "--out",
                                  run_path(i ? "out/predict-3" : "out/predict-1"), "--threads",
                                  threads[i], NULL},
            (const char *const[]){input(), NULL});
    }
    static const char *const names[][2] = {{"eval-1", "eval-3"}, {"predict-1", "predict-3"}};
    for (uint32_t k = 0; k < RT_COUNT_OF(names); k++) {
        char *alone = run_file("out", names[k][0], &size);
        char *shared = run_file("out", names[k][1], &size);
        assert_true(alone && shared && size > ROWS * sizeof "0.5");
        assert_string_equal(alone, shared);
        free(alone);
        free(shared);
    }
}

static uint32_t threads_of(pid_t pid)
{
    char path[64];
    uint32_t count = 0;
    snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
    DIR *folder = opendir(path);
    assert_non_null(folder);
    for (const struct dirent *one; (one = readdir(folder));)
        count += one->d_name[0] != '.';
    closedir(folder);
    return count;
}

static uint32_t threads_of_server(void)
{
    process p;
    run_start(&p, (const char *const[]){"serve", run_path("out/model"), NULL},
              (const char *const[]){"serve.address=127.0.0.1:0", NULL});
    process_await(&p, 0, "listening on", RUN_CASE_S);
    const uint32_t count = threads_of(p.pid);
    kill(p.pid, SIGTERM);
    process_end(&p, RUN_CASE_S);
    process_fini(&p);
    return count;
}

// It has read one line, and waits for the next.
static uint32_t threads_of_prediction(const char *flag)
{
    process p = {.with_input = true};
    const char *const arguments[] = {process_lanyard(),
                                     "predict",
                                     run_path("out/model"),
                                     "--set",
                                     "stream.files=-",
                                     flag ? "--threads" : NULL,
                                     flag,
                                     NULL};
    process_start(&p, arguments);
    uint32_t count = 0, before = 0;
    for (uint32_t still = 0; still < 20; still++) { // until no thread is started any more
        (void)usleep(20000);
        count = threads_of(p.pid);
        still = count == before && count > 1 ? still : 0;
        before = count;
    }
    close(p.input);
    p.input = -1;
    process_end(&p, RUN_CASE_S);
    process_fini(&p);
    return count;
}

// A container with time for one core on a machine of many.
static void a_quota_is_kept(void **state)
{
    (void)state;
    const uint32_t cores = rt_thread_cores();
    if (cores == 1)
        test_skip("one core");
    train("out", "compute.threads=1", 1, 1);
    const uint32_t scoring = threads_of_server();
    process_in_group("cpu.max", "100000 100000");
    assert_int_equal(rt_thread_cores(), 1);
    train("shared", "stream.samples_max=1024", 1, 1);
    assert_int_equal(scoring - threads_of_server(), cores - 1);
    assert_int_equal(threads_of_prediction(NULL), threads_of_prediction("1"));
}

TEST_MAIN(TEST(a_quota_is_kept), TEST(workers_share_the_cores),
          TEST(threads_change_no_bit_of_a_model), TEST(threads_change_no_answer))
