// A run whose configuration file changes under it: real processes, input through a pipe, so that
// the test decides when each batch comes.
#define _GNU_SOURCE // pipe2
#include "tests/support/test.h"

#include <cjson/cJSON.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "runtime/rt_hash.h"

#define BATCH 16u // two workers, eight samples each
#define WAIT_S 30
#define TEXT_MAX (1u << 20)

typedef struct {
    char directory[256], config[512], out[512], log[512], rows[512];
    pid_t pid;
    int input; // pipe to the run
    FILE *copy;
    rt_random random;
    uint32_t batches; // written
    char text[TEXT_MAX];
} scene;

static const char *program(void)
{
    const char *path = getenv("LANYARD");
    path = path && *path ? path : "build/lanyard";
    if (access(path, X_OK) != 0)
        test_skip("%s is not there", path);
    return path;
}

static void write_config(const scene *s, const char *alpha, uint32_t batch, const char *more)
{
    char fresh[600];
    snprintf(fresh, sizeof fresh, "%s.new", s->config);
    FILE *file = fopen(fresh, "w");
    assert_non_null(file);
    fprintf(file,
            "{\"include\": \"more.json\", \"workers\": 2, \"batch\": {\"samples_per_worker\": %u},"
            " \"stream\": {\"files\": [\"-\"]}, \"cache\": {\"rows\": 400},"
            " \"model\": {\"embedding_dim\": 4, \"mlp\": [8]},"
            " \"links\": {\"workers\": [5, 0.5]},"
            " \"dispatch\": {\"policy\": \"esd\", \"alpha\": %s, \"measure_compute\": false}%s",
            batch, alpha, more);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(rename(fresh, s->config), 0); // as editors do: never half a file
}

// The file that the configuration includes: it is not watched, only a signal has it read again.
static void write_included(const scene *s, uint32_t evaluations)
{
    char path[600];
    snprintf(path, sizeof path, "%s/more.json", s->directory);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fprintf(file, "{\"dispatch\": {\"search_evaluations\": %u}}", evaluations);
    assert_int_equal(fclose(file), 0);
}

static void start(scene *s)
{
    int pipes[2];
    const char *path = program();
    assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
    s->pid = fork();
    assert_true(s->pid >= 0);
    if (s->pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGTERM);
        int log = open(s->log, O_WRONLY | O_CREAT | O_TRUNC, 0644);
        dup2(pipes[0], STDIN_FILENO);
        dup2(log, STDOUT_FILENO);
        dup2(log, STDERR_FILENO);
        execl(path, path, "up", s->config, "--out", s->out, "--set", "seed=3", (char *)NULL);
        _exit(127);
    }
    close(pipes[0]);
    s->input = pipes[1];
}

static void setup(scene *s)
{
    *s = (scene){.random = {1}};
    snprintf(s->directory, sizeof s->directory, "%s", test_directory());
    snprintf(s->config, sizeof s->config, "%s/config.json", s->directory);
    snprintf(s->out, sizeof s->out, "%s/out", s->directory);
    snprintf(s->log, sizeof s->log, "%s/log", s->directory);
    snprintf(s->rows, sizeof s->rows, "%s/rows.tsv", s->directory);
    s->copy = fopen(s->rows, "w");
    assert_non_null(s->copy);
}

static void feed(scene *s, uint32_t batches)
{
    for (uint32_t i = 0; i < batches * BATCH; i++) {
        char line[1024];
        int used = snprintf(line, sizeof line, "%u", rt_random_below(&s->random, 2));
        for (uint32_t d = 0; d < 13; d++)
            used +=
                snprintf(line + used, sizeof line - used, "\t%u", rt_random_below(&s->random, 9));
        for (uint32_t f = 0; f < 26; f++)
            used += snprintf(line + used, sizeof line - used, "\t%08x",
                             rt_random_below(&s->random, 20));
        line[used++] = '\n';
        assert_int_equal(write(s->input, line, used), used);
        assert_int_equal(fwrite(line, 1, used, s->copy), used);
    }
    s->batches += batches;
}

static const char *read_text(scene *s, const char *path)
{
    size_t size = 0;
    FILE *file = fopen(path, "r");
    if (file) {
        size = fread(s->text, 1, TEXT_MAX - 1, file);
        fclose(file);
    }
    s->text[size] = '\0';
    return s->text;
}

// alpha[t - 1] of every iteration reported so far.
static uint32_t read_alphas(scene *s, double *alpha, uint32_t count_max)
{
    char path[600];
    uint32_t count = 0;
    snprintf(path, sizeof path, "%s/metrics.jsonl", s->out);
    read_text(s, path);
    for (char *line = s->text, *end; (end = strchr(line, '\n')); line = end + 1) {
        *end = '\0';
        cJSON *record = cJSON_Parse(line);
        assert_non_null(record);
        if (strcmp(cJSON_GetObjectItem(record, "record")->valuestring, "iteration") == 0) {
            assert_true(count < count_max);
            alpha[count++] = cJSON_GetObjectItem(record, "alpha")->valuedouble;
            assert_true(cJSON_GetObjectItem(record, "iteration")->valuedouble == count);
        }
        cJSON_Delete(record);
    }
    return count;
}

static void pause_or_fail(scene *s, time_t end, const char *what)
{
    int status;
    struct timespec pause = {.tv_nsec = 5000000};
    if (time(NULL) > end)
        fail_msg("%s did not happen; log:\n%s", what, read_text(s, s->log));
    if (waitpid(s->pid, &status, WNOHANG) == s->pid)
        fail_msg("the run ended before: %s; log:\n%s", what, read_text(s, s->log));
    nanosleep(&pause, NULL);
}

static void wait_for_log(scene *s, const char *text)
{
    time_t end = time(NULL) + WAIT_S;
    while (!strstr(read_text(s, s->log), text))
        pause_or_fail(s, end, text);
}

// Feeds batches and waits until they are trained. From the second one on, alpha is in force.
static void train(scene *s, uint32_t batches, double expected)
{
    double alpha[256];
    uint32_t before = s->batches;
    time_t end = time(NULL) + WAIT_S;
    feed(s, batches);
    while (read_alphas(s, alpha, 256) < s->batches)
        pause_or_fail(s, end, "training");
    for (uint32_t t = before + 1; t < s->batches; t++)
        test_close(alpha[t], expected, 0, 1, "alpha");
}

static void end_run(scene *s)
{
    int status;
    close(s->input);
    assert_int_equal(fclose(s->copy), 0);
    assert_int_equal(waitpid(s->pid, &status, 0), s->pid);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        fail_msg("status %x; log:\n%s", status, read_text(s, s->log));
}

// The value of "plan_fingerprint" in a JSON text.
static void find_fingerprint(const char *text, char fingerprint[17])
{
    const char *at = strstr(text, "\"plan_fingerprint\": \"");
    assert_non_null(at);
    memcpy(fingerprint, at + strlen("\"plan_fingerprint\": \""), 16);
    fingerprint[16] = '\0';
}

// records: NULL, or the name of a journal.
static void simulate(scene *s, const char *records, char fingerprint[17])
{
    char command[4000], replayed[1000] = "";
    if (records)
        snprintf(replayed, sizeof replayed, "--records %s/%s", s->out, records);
    snprintf(command, sizeof command,
             "%s sim %s --json --set seed=3 --set sim.warmup=0 --set stream.files=%s %s", program(),
             s->config, s->rows, replayed);
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    s->text[fread(s->text, 1, TEXT_MAX - 1, pipe)] = '\0';
    assert_int_equal(pclose(pipe), 0);
    find_fingerprint(s->text, fingerprint);
}

static void alpha_changes_while_it_runs(void **state)
{
    (void)state;
    static scene s;
    char path[600], run[17], again[17];
    setup(&s);
    write_included(&s, 100);
    write_config(&s, "1", 8, "}");
    start(&s);
    train(&s, 5, 1);

    write_config(&s, "0.25", 8, "}"); // the signal makes it read at once
    assert_int_equal(kill(s.pid, SIGHUP), 0);
    wait_for_log(&s, "dispatch.alpha reloaded: 1 -> 0.25");
    train(&s, 4, 0.25);
    wait_for_log(&s, "alpha 1 -> 0.25 from iteration ");

    write_config(&s, "0.5", 8, "!"); // no JSON
    assert_int_equal(kill(s.pid, SIGHUP), 0);
    wait_for_log(&s, "the configuration was not reloaded, the values in force stay: ");
    assert_non_null(strstr(s.text, "config.json: line 1, column"));
    train(&s, 4, 0.25);

    write_config(&s, "1.5", 8, "}"); // out of range
    assert_int_equal(kill(s.pid, SIGHUP), 0);
    wait_for_log(&s, "dispatch.alpha: 1.5 is out of range, expected a number in [0, 1]");
    train(&s, 4, 0.25);

    write_config(&s, "0.5", 9, ", \"planner\": {\"threads\": 3}}"); // it looks by itself
    wait_for_log(&s, "dispatch.alpha reloaded: 0.25 -> 0.5");
    wait_for_log(&s, "needs a restart to take effect: batch.samples_per_worker, "
                     "planner.threads\n");
    train(&s, 4, 0.5);

    write_config(&s, "\"auto\"", 8, "}"); // half a multiple of 1/8 or not, it goes on from there
    assert_int_equal(kill(s.pid, SIGHUP), 0);
    wait_for_log(&s, "dispatch.alpha reloaded: 0.5 -> \"auto\"");
    train(&s, 4, 0.5);

    write_config(&s, "1", 8, "}");
    assert_int_equal(kill(s.pid, SIGHUP), 0);
    wait_for_log(&s, "dispatch.alpha reloaded: \"auto\" -> 1");
    train(&s, 3, 1);

    write_included(&s, 200);
    assert_int_equal(kill(s.pid, SIGHUP), 0);
    wait_for_log(&s, "dispatch.search_evaluations reloaded: 100 -> 200");
    train(&s, 3, 1);
    end_run(&s);

    snprintf(path, sizeof path, "%s/summary.json", s.out);
    find_fingerprint(read_text(&s, path), run);
    simulate(&s, "records.jsonl", again);
    assert_string_equal(run, again);
    simulate(&s, NULL, again);
    assert_string_not_equal(run, again);
}

TEST_MAIN(TEST(alpha_changes_while_it_runs))
