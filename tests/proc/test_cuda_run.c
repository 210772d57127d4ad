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
    "--set dispatch.keeper=true --set optimizer.rows.name=adam "                                \
    "--set optimizer.rows.l2=0.001 --set optimizer.rows.clip_norm=0.002 "                       \
    "--set optimizer.dense.clip_norm=0.05 --set optimizer.dense.warmup_iterations=5"

#define PLUGIN_FOLDERS_BYTES 80u // of LD_LIBRARY_PATH, in rt_plugin.c

#define ITERATIONS 16 // 4096 samples, 4 workers x 64
#define WAITS_MAX 20u    // per iteration and process
#define LAUNCHES_MAX 30u // likewise

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

static void run(const char *folder, const char *device, const char *solver)
{
    char command[4096];
    snprintf(command, sizeof command,
             "CUDA_CPU_COUNTS=1 CUDA_CPU_DEVICES=3 LD_LIBRARY_PATH=%s %s/lanyard up "
             "configs/demo.json " OPTIONS
             " --set device=%s --set dispatch.solver=%s --out %s/%s >%s/%s.log 2>&1 || "
             "{ cat %s/%s.log; false; }",
             folder, folder, device, solver, folder, solver, folder, solver, folder, solver);
    shell(command);
}

// What a worker and the solver ask of a device, per iteration: launches cost microseconds each,
// waits for rows more, as nothing else of the communication thread goes on meanwhile.
static void check_waits(const char *log)
{
    char line[512];
    unsigned long launches, waits, processes = 0;
    FILE *file = fopen(log, "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file)) {
        const char *at = strstr(line, "cuda on the CPU: ");
        if (!at || sscanf(at, "cuda on the CPU: %lu launches, %lu waits", &launches, &waits) != 2)
            continue;
        processes++;
        if (waits > (ITERATIONS + 4) * WAITS_MAX) // 4: to begin, and to end
            fail_msg("%lu waits in %d iterations", waits, ITERATIONS);
        if (launches > (ITERATIONS + 4) * LAUNCHES_MAX)
            fail_msg("%lu launches in %d iterations", launches, ITERATIONS);
    }
    fclose(file);
    assert_int_equal(processes, 6); // four workers, the solver, and `up`, which looks at it first
}

// A folder with the program, the plug-in beside it, and something that passes for a driver.
static const char *make_folder(void)
{
    char command[8192];
    const char *program = getenv("LANYARD"), *folder = test_directory();
    if (!program || access("configs/demo.json", R_OK) != 0)
        test_skip("LANYARD does not name the program (make test sets it)");
    snprintf(command, sizeof command, "cp %s %s/lanyard && cp %s %s/libcuda.so.1 && cp %s %s/%s",
             program, folder, test_plugin_path(), folder, test_plugin_path(), folder,
             "liblanyard_cuda.so");
    shell(command);
    return folder;
}

static void training_with_the_plugin_is_training(void **state)
{
    char command[8192], summary[2][512];
    const char *folder;
    (void)state;
#ifdef __SANITIZE_THREAD__
    test_skip("emulated kernels take minutes under the thread sanitizer");
#endif
    folder = make_folder();
    run(folder, "cpu", "transport");
    run(folder, "cuda", "auction_cuda");
    snprintf(summary[0], sizeof summary[0], "%s/transport/summary.json", folder);
    snprintf(summary[1], sizeof summary[1], "%s/auction_cuda/summary.json", folder);
    double want = number_in(summary[0], "logloss");
    assert_true(want > 0.1);
    // Equal totals, but other placements: sums in another order, other rows pulled.
    test_close(number_in(summary[1], "logloss"), want, 1e-4, 0, "log loss");
    assert_true(number_in(summary[1], "stale_reads") == 0);
    // The time that the solver had the device; without a GPU, what its stand-in says.
    assert_true(number_in(summary[0], "dispatch_device_ms") == 0);
    assert_true(number_in(summary[1], "dispatch_device_ms") > 0);
    // Four workers on three GPUs, each by its number.
    for (uint32_t rank = 0; rank < 4; rank++) {
        snprintf(command, sizeof command,
                 "grep -q 'device cuda:%u: .*; for worker %u, of 3 GPUs here' "
                 "%s/auction_cuda.log",
                 rank % 3, rank, folder);
        shell(command);
    }
    snprintf(command, sizeof command, "%s/auction_cuda.log", folder);
    check_waits(command);
    snprintf(command, sizeof command, "! grep transport %s/auction_cuda.log", folder);
    shell(command);
}

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
    const char *folder = make_folder();
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
    const char *folder = make_folder();
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

TEST_MAIN(TEST_SLOW(training_with_the_plugin_is_training, 240),
          TEST(a_gpu_without_code_leaves_the_cpu), TEST(a_missing_library_leaves_the_cpu))
