// Checkpoints that a command copies, what `lanyard verify` says of copies, and a run that goes on
// from them in another folder; checkpoints and journals that are too old go.
#include "tests/support/test.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/rt_base.h"
#include "tests/support/process_case.h"
#include "tests/support/run_case.h"

static const char config[] =
    "{\"workers\": 2, \"batch\": {\"samples_per_worker\": 16},"
    " \"stream\": {\"format\": \"synthetic\", \"samples_max\": 1920,"
    "  \"synthetic\": {\"scale\": 0.001}},"
    " \"model\": {\"embedding_dim\": 4, \"mlp\": [8]}, \"ps\": {\"shards\": 2},"
    " \"dispatch\": {\"measure_compute\": false},"
    " \"checkpoint\": {\"every_iterations\": 15, \"full_every\": 3, \"keep\": 3},"
    " \"cache\": {\"rows\": 700}, \"timeouts\": {\"start_s\": 20}}";

// status: what it must end with. Returns what it printed, the caller's.
static char *verify(const char *name, int status)
{
    process p;
    const char *const words[] = {"verify", run_path(name), NULL};
    run_start(&p, words, NULL);
    run_must_end(&p, status);
    char *text = strdup(p.text);
    process_fini(&p);
    return text;
}

static uint32_t count_checkpoints(const char *name)
{
    uint32_t count = 0;
    DIR *folder = opendir(run_path(name));
    assert_non_null(folder);
    for (const struct dirent *one; (one = readdir(folder));)
        count += strncmp(one->d_name, "ckpt-", 5) == 0;
    closedir(folder);
    return count;
}

static void copy_all(char *command, size_t size)
{
    snprintf(command, size, "checkpoint.after=cp -r \"$1\" %s/", run_path("backup"));
    assert_int_equal(mkdir(run_path("backup"), 0777), 0);
}

// Waits for what a command does that goes on after its run.
static void await_checkpoint(const char *name)
{
    char path[600];
    snprintf(path, sizeof path, "%s/manifest.json", run_path(name));
    for (uint32_t i = 0; i < 1000 && access(path, F_OK) != 0; i++)
        usleep(10000);
    assert_int_equal(access(path, F_OK), 0);
}

static void a_copy_is_verified_and_gone_on_with(void **state)
{
    (void)state;
    char command[700], line[700];
    copy_all(command, sizeof command);
    const char *const half[] = {command, "stream.samples_max=960", "checkpoint.at_end=true", NULL};
    run_up(config, "whole", NULL, (const char *const[]){"checkpoint.every_iterations=15", NULL});
    run_up(config, "first", NULL, half);
    await_checkpoint("backup/ckpt-000000000030");
    char *text = verify("backup/ckpt-000000000030", 0);
    assert_non_null(strstr(text, "whole, iteration 30"));
    free(text);
    assert_int_equal(mkdir(run_path("second"), 0777), 0);
    snprintf(line, sizeof line, "cp -r %s %s/checkpoints", run_path("backup"), run_path("second"));
    assert_int_equal(system(line), 0);
    run_up(config, "second", "--resume", NULL);
    run_must_be_the_same("second", "whole", 2);
    free(verify("second", 0));
    free(verify("second/model", 0));
}

static void damage_is_found(void **state)
{
    (void)state;
    static const char *const parts[] = {"rows-001-of-002.bin", "dense.bin", "planner.bin",
                                        "manifest.json"};
    run_up(config, "out", NULL, (const char *const[]){"checkpoint.full_every=1", NULL});
    free(verify("out", 0));
    for (size_t i = 0; i < RT_COUNT_OF(parts); i++) {
        char path[700];
        uint8_t byte;
        snprintf(path, sizeof path, "%s/%s", run_path("out/checkpoints/ckpt-000000000045"),
                 parts[i]);
        FILE *file = fopen(path, "r+");
        assert_non_null(file);
        assert_int_equal(fseek(file, -40, SEEK_END), 0);
        assert_int_equal(fread(&byte, 1, 1, file), 1);
        byte ^= 1;
        assert_int_equal(fseek(file, -40, SEEK_END), 0);
        assert_int_equal(fwrite(&byte, 1, 1, file), 1);
        assert_int_equal(fclose(file), 0);
        char *text = verify("out", 1);
        assert_non_null(strstr(text, "ckpt-000000000045"));
        assert_non_null(strstr(text, "ckpt-000000000030: whole"));
        free(text);
        byte ^= 1;
        file = fopen(path, "r+");
        assert_int_equal(fseek(file, -40, SEEK_END), 0);
        assert_int_equal(fwrite(&byte, 1, 1, file), 1);
        assert_int_equal(fclose(file), 0);
    }
    free(verify("out", 0));
}

// A checkpoint that is being written, or was when its run ended, is none.
static void what_is_not_finished_is_left_out(void **state)
{
    (void)state;
    run_up(config, "out", NULL, NULL);
    assert_int_equal(mkdir(run_path("out/checkpoints/ckpt-000000000046"), 0777), 0);
    char *text = verify("out", 0);
    assert_non_null(strstr(text, "ckpt-000000000046: not finished (no manifest.json), left out"));
    assert_non_null(strstr(text, "ckpt-000000000045: whole"));
    free(text);
    assert_int_equal(mkdir(run_path("alone"), 0777), 0);
    assert_int_equal(mkdir(run_path("alone/ckpt-000000000046"), 0777), 0);
    free(verify("alone", 1));
}

// A run without checkpoints has its model, or nothing yet.
static void a_run_without_checkpoints_is_its_model(void **state)
{
    (void)state;
    static const char *const none[] = {"checkpoint.every_iterations=0", NULL};
    run_up(config, "out", NULL, none);
    char *text = verify("out", 0);
    assert_non_null(strstr(text, "out/model: whole"));
    free(text);
    assert_int_equal(unlink(run_path("out/model/manifest.json")), 0);
    text = verify("out", 1);
    assert_non_null(strstr(text, "a run without checkpoints"));
    free(text);
}

// A command that hangs, or fails, is no matter to training.
static void a_command_that_hangs_stops_nothing(void **state)
{
    (void)state;
    size_t size;
    run_up(config, "calm", NULL, NULL);
    run_up(config, "hangs", NULL, (const char *const[]){"checkpoint.after=sleep 5", NULL});
    run_up(config, "fails", NULL, (const char *const[]){"checkpoint.after=exit 3", NULL});
    run_must_be_the_same("hangs", "calm", 2);
    char *metrics = run_file("fails", "metrics.jsonl", &size);
    assert_non_null(strstr(metrics, "\"record\":\"after\""));
    assert_non_null(strstr(metrics, "\"done\":false"));
    free(metrics);
}

static void old_checkpoints_go(void **state)
{
    (void)state;
    process p;
    const char *const sets[] = {"checkpoint.keep_s=1",           "checkpoint.every_s=0.5",
                                "checkpoint.every_iterations=0", "checkpoint.keep=100",
                                "stream.samples_max=0",          NULL};
    run_start_up(&p, config, "out", NULL, sets);
    run_await_records(&p, "out", "\"record\":\"checkpoint\"", 9);
    kill(p.pid, SIGINT);
    run_must_end(&p, 0);
    process_fini(&p);
    assert_in_range(count_checkpoints("out/checkpoints"), 1, 7);
}

TEST_MAIN(TEST_SLOW(a_copy_is_verified_and_gone_on_with, 120), TEST_SLOW(damage_is_found, 120),
          TEST_SLOW(what_is_not_finished_is_left_out, 60),
          TEST_SLOW(a_run_without_checkpoints_is_its_model, 60),
          TEST_SLOW(a_command_that_hangs_stops_nothing, 120), TEST_SLOW(old_checkpoints_go, 60))
