// A whole run whose workers and dispatcher use the CUDA plug-in, here the one with the kernels on
// the CPU: it trains the model that a run on the CPU trains.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/devices.h"
#include "tests/support/test.h"

#define OPTIONS                                                                                 \
    "--set stream.samples_max=4096 --set batch.samples_per_worker=64 --set 'model.mlp=[16,8]' " \
    "--set optimizer.rows.name=adam "                                                           \
    "--set optimizer.rows.l2=0.001 --set optimizer.rows.clip_norm=0.002 "                       \
    "--set optimizer.dense.clip_norm=0.05 --set optimizer.dense.warmup_iterations=5"

#define PLUGIN_FOLDERS_BYTES 80u // of LD_LIBRARY_PATH, in rt_plugin.c
#define ITERATIONS 16            // 4096 samples, 4 workers x 64

// No two micro-batches are equal in samples, look-ups or rows. The file is in the run's folder.
#define UNEVEN                                                                                   \
    "--set stream.samples_max=24576 --set batch.samples_per_worker=64 --set 'model.mlp=[16,8]' " \
    "--set dispatch.policy=makespan --set stream.format=table --set stream.files=%s/values.csv " \
    "--set 'stream.table={\"delimiter\":\";\",\"header\":false,\"columns\":["                    \
    "{\"name\":\"label\",\"kind\":\"label\",\"rule\":\"equals\",\"value\":\"1\"},"               \
    "{\"name\":\"x\",\"kind\":\"dense\"},{\"name\":\"user\",\"kind\":\"categorical\",\"id\":"    \
    "\"number\"},{\"name\":\"item\",\"kind\":\"categorical\",\"id\":\"number\"},"                \
    "{\"name\":\"tags\",\"kind\":\"multi\",\"id\":\"number\",\"values_max\":4}]}'"
#define UNEVEN_ITERATIONS 96

#define WAITS_MAX 20u    // per iteration and process
#define LAUNCHES_MAX 20u // likewise
#define AT_THE_ENDS 4    // iterations more, to begin and to end

static void shell(const char *command)
{
    if (system(command) != 0)
        fail_msg("failed: %s", command);
}

static double number_in(const char *path, const char *name)
{
    char line[256], key[64];
    double value = -1;
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    snprintf(key, sizeof key, "\"%s\": %%lf", name);
    while (value < 0 && fgets(line, sizeof line, file))
        (void)sscanf(line + strspn(line, " "), key, &value);
    fclose(file);
    return value;
}

// In a folder with the program, the plug-in beside it, and something that passes for a driver.
// name: of what the run leaves there.
static void run(const char *folder, const char *name, const char *options, const char *device,
                const char *solver)
{
    char command[8192];
    snprintf(command, sizeof command,
             "CUDA_CPU_COUNTS=1 CUDA_CPU_DEVICES=3 LD_LIBRARY_PATH=%s %s/lanyard up "
             "configs/demo.json %s --set device=%s --set dispatch.solver=%s --out %s/%s "
             ">%s/%s.log 2>&1 || { cat %s/%s.log; false; }",
             folder, folder, options, device, solver, folder, name, folder, name, folder, name);
    shell(command);
}

// What a worker and the solver ask of a device, per iteration: launches cost microseconds each,
// waits for rows more, as nothing else of the communication thread goes on meanwhile. Of the
// workers' steps at least graphs_min are graphs.
static void check_counts(const char *folder, const char *name, uint32_t iterations,
                         uint32_t process_count, uint32_t graphs_min)
{
    char path[4096], line[512];
    unsigned long launches, waits, captures, graphs;
    uint32_t processes = 0, workers = 0;
    snprintf(path, sizeof path, "%s/%s.log", folder, name);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file)) {
        const char *at = strstr(line, "cuda on the CPU: ");
        if (!at || sscanf(at,
                          "cuda on the CPU: %lu launches, %lu waits, %lu captures, %lu launches "
                          "of graphs",
                          &launches, &waits, &captures, &graphs) != 4)
            continue;
        processes++;
        workers += captures > 0;
        if (waits > (iterations + AT_THE_ENDS) * WAITS_MAX)
            fail_msg("%lu waits in %u iterations", waits, iterations);
        if (launches > (iterations + AT_THE_ENDS) * LAUNCHES_MAX)
            fail_msg("%lu launches in %u iterations", launches, iterations);
        if (captures > 0 && graphs < graphs_min)
            fail_msg("%lu of %u steps were graphs, expected %u", graphs, iterations, graphs_min);
    }
    fclose(file);
    assert_int_equal(processes, process_count);
    assert_int_equal(workers, 4);
}

static const char *prepare_folder(void)
{
    char command[8192];
    const char *program = getenv("LANYARD"), *folder = test_directory();
#ifdef __SANITIZE_THREAD__
    test_skip("emulated kernels take minutes under the thread sanitizer");
#endif
    if (!program || access("configs/demo.json", R_OK) != 0)
        test_skip("LANYARD does not name the program (make test sets it)");
    snprintf(command, sizeof command, "cp %s %s/lanyard && cp %s %s/libcuda.so.1 && cp %s %s/%s",
             program, folder, test_plugin_path(), folder, test_plugin_path(), folder,
             "liblanyard_cuda.so");
    shell(command);
    return folder;
}

static double summary_number(const char *folder, const char *name, const char *key)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s/summary.json", folder, name);
    return number_in(path, key);
}

static void training_with_the_plugin_is_training(void **state)
{
    char command[8192];
    (void)state;
    const char *folder = prepare_folder();
    run(folder, "transport", OPTIONS, "cpu", "transport");
    run(folder, "hungarian_cuda", OPTIONS, "cuda", "hungarian_cuda");
    double want = summary_number(folder, "transport", "logloss");
    assert_true(want > 0.1);
    // Equal totals, but other placements: sums in another order, other rows pulled.
    test_close(summary_number(folder, "hungarian_cuda", "logloss"), want, 1e-4, 0, "log loss");
    assert_true(summary_number(folder, "hungarian_cuda", "stale_reads") == 0);
    // The time that the solver had the device; without a GPU, what its stand-in says.
    assert_true(summary_number(folder, "transport", "dispatch_device_ms") == 0);
    assert_true(summary_number(folder, "hungarian_cuda", "dispatch_device_ms") > 0);
    // Four workers on three GPUs, each by its number.
    for (uint32_t rank = 0; rank < 4; rank++) {
        snprintf(command, sizeof command,
                 "grep -q 'device cuda:%u: .*; for worker %u, of 3 GPUs here' "
                 "%s/hungarian_cuda.log",
                 rank % 3, rank, folder);
        shell(command);
    }
    // Four workers, the solver, and `up`, which looks at it first. The first of a shape is no
    // graph.
    check_counts(folder, "hungarian_cuda", ITERATIONS, 6, ITERATIONS / 2);
    snprintf(command, sizeof command, "! grep transport %s/hungarian_cuda.log", folder);
    shell(command);
}

static void write_values(const char *folder)
{
    char command[8192];
    snprintf(command, sizeof command,
             "awk 'BEGIN { srand(3); for (i = 0; i < 24576; i++) { u = int(exp(rand() * 7)); "
             "t = int(exp(rand() * 6)); s = \"\"; n = int(rand() * 5); for (k = 0; k < n; k++) "
             "s = s (k ? \"|\" : \"\") int(exp(rand() * 6)); "
             "print((u + t) %% 3 == 0) \";\" rand() \";\" u \";\" t \";\" s } }' "
             ">%s/values.csv",
             folder);
    shell(command);
}

// Shares are free, so that samples vary, and so do look-ups, of a field with up to four values.
static void uneven_steps_are_graphs_too(void **state)
{
    char options[8192];
    (void)state;
    const char *folder = prepare_folder();
    write_values(folder);
    snprintf(options, sizeof options, UNEVEN, folder);
    run(folder, "cpu", options, "cpu", "transport");
    run(folder, "cuda", options, "cuda", "transport");
    const double want = summary_number(folder, "cpu", "logloss");
    assert_true(want > 0.1);
    assert_true(summary_number(folder, "cuda", "iterations") == UNEVEN_ITERATIONS);
    test_close(summary_number(folder, "cuda", "logloss"), want, 1e-4, 0, "log loss");
    check_counts(folder, "cuda", UNEVEN_ITERATIONS, 5, UNEVEN_ITERATIONS / 2);
}

// ---- a device that fails ----------------------------------------------------------------------

// One batch, so that the last calls of a worker are those of its last flush.
#define SHORT                                                                                  \
    "--set workers=2 --set links.workers=[1,1] --set links.pin=true "                          \
    "--set stream.samples_max=128 --set batch.samples_per_worker=64 --set 'model.mlp=[16,8]' " \
    "--set device=cuda"
#define LAST_CALLS 16u

// Returns the exit status; in *calls_p what the worker with most calls of the runtime has.
static int run_short(const char *folder, const char *fail, const char *out, unsigned long *calls_p)
{
    char command[8192], line[512];
    snprintf(command, sizeof command,
             "%s CUDA_CPU_COUNTS=1 CUDA_CPU_DEVICES=2 LD_LIBRARY_PATH=%s %s/lanyard up "
             "configs/demo.json " SHORT " --out %s/%s >%s/short.log 2>&1",
             fail, folder, folder, folder, out, folder);
    const int status = system(command);
    snprintf(command, sizeof command, "%s/short.log", folder);
    FILE *file = fopen(command, "r");
    assert_non_null(file);
    *calls_p = 0;
    while (fgets(line, sizeof line, file)) {
        const char *at = strstr(line, "launches of graphs, ");
        unsigned long calls;
        if (at && sscanf(at, "launches of graphs, %lu calls", &calls) == 1 && calls > *calls_p)
            *calls_p = calls;
    }
    fclose(file);
    return status;
}

// The GPU of worker 1 fails, ever earlier before its end: either the run ends with that worker's
// name, or nothing of the model was lost. Nobody trains after the last flush, who would see it.
static void no_failure_leaves_another_model(void **state)
{
    char fail[64], command[8192];
    unsigned long calls, ignored;
    uint32_t told = 0;
    (void)state;
    const char *folder = prepare_folder();
    assert_int_equal(run_short(folder, "", "calm", &calls), 0);
    for (unsigned long before = 0; before < LAST_CALLS; before++) {
        snprintf(fail, sizeof fail, "CUDA_CPU_FAIL='1 %lu'", calls - before);
        const int status = run_short(folder, fail, "failing", &ignored);
        if (status)
            snprintf(command, sizeof command, "grep -q 'worker 1.*cuda:1: ' %s/short.log", folder);
        else
            snprintf(command, sizeof command, "diff -r %s/calm/model %s/failing/model", folder,
                     folder);
        if (system(command) != 0)
            fail_msg("%lu of %lu calls before the end, exit status %d: failed: %s", before, calls,
                     status, command);
        told += status != 0;
        snprintf(command, sizeof command, "rm -rf %s/failing", folder);
        shell(command);
    }
    assert_true(told > 0);
}

// ---- no device ----------------------------------------------------------------------------

// A short run with "device": "auto" in that environment; the line of its worker's device must begin
// with the CPU and end with the whole reason.
static void must_take_the_cpu(const char *folder, const char *environment, const char *reason)
{
    char command[4096], path[600], line[1200], end[700];
    snprintf(path, sizeof path, "%s/auto.log", folder);
    snprintf(command, sizeof command,
             "%s %s/lanyard up configs/demo.json --set device=auto --set workers=1 "
             "--set links.workers=[] --set stream.samples_max=256 --set 'model.mlp=[4]' "
             "--out %s/auto >%s 2>&1 || { cat %s; false; }",
             environment, folder, folder, path, path);
    shell(command);
    snprintf(end, sizeof end, "; not cuda: %s\n", reason);
    FILE *log = fopen(path, "r");
    assert_non_null(log);
    const char *found = NULL;
    while (!found && fgets(line, sizeof line, log))
        found = strstr(line, "worker 0: device cpu: ");
    fclose(log);
    if (!found || strlen(line) < strlen(end) || strcmp(line + strlen(line) - strlen(end), end) != 0)
        fail_msg("expected ...%s    got %s", end, found ? line : "no such line");
}

static void a_gpu_without_code_leaves_the_cpu(void **state)
{
    char environment[600];
    (void)state;
    const char *folder = prepare_folder();
    snprintf(environment, sizeof environment, "CUDA_CPU_NO_CODE=1 LD_LIBRARY_PATH=%s", folder);
    must_take_the_cpu(folder, environment,
                      "a CPU has compute capability 7.5, for which this build has no code: make "
                      "program GPUS=75");
}

// A library that the plug-in lacks: the loader names it, and then comes where it looked, as much of
// that as rt_plugin_load tells.
static void a_missing_library_leaves_the_cpu(void **state)
{
    char command[2048], environment[600], reason[640], folders[PLUGIN_FOLDERS_BYTES + 1];
    (void)state;
    const char *folder = prepare_folder();
    snprintf(command, sizeof command,
             "LC_ALL=C sed -i 's/libm\\.so\\.6/libq.so.6/g' %s/liblanyard_cuda.so", folder);
    shell(command);
    memset(folders, 'x', sizeof folders - 1);
    folders[sizeof folders - 1] = '\0';
    const size_t length = strlen(folder);
    assert_true(length + 2 < sizeof folders);
    memcpy(folders, folder, length);
    memcpy(folders + length, ":/", 2);
    snprintf(environment, sizeof environment, "LD_LIBRARY_PATH=%s", folders);
    snprintf(reason, sizeof reason,
             "libq.so.6: cannot open shared object file: No such file or directory "
             "(LD_LIBRARY_PATH, the folders to look in besides the system's, is \"%s\")",
             folders);
    must_take_the_cpu(folder, environment, reason);
}

TEST_MAIN(TEST_SLOW(no_failure_leaves_another_model, 240),
          TEST_SLOW(training_with_the_plugin_is_training, 240),
          TEST_SLOW(uneven_steps_are_graphs_too, 240), TEST(a_gpu_without_code_leaves_the_cpu),
          TEST(a_missing_library_leaves_the_cpu))
