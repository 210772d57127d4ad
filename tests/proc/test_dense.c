// The dense exchange in whole runs: while layers below are computed, in 16 bits, by Open MPI.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cjson/cJSON.h>

#include "edge_worker/collective/ew_collective.h"
#include "tests/support/process_case.h"
#include "tests/support/test.h"

#define RUN_S 50.0

static const char *folder(void)
{
    static char path[200];
    if (!path[0])
        snprintf(path, sizeof path, "%s", test_directory());
    return path;
}

static cJSON *read_json(const char *path)
{
    static char text[1 << 16];
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    text[fread(text, 1, sizeof text - 1, file)] = 0;
    fclose(file);
    cJSON *json = cJSON_Parse(text);
    assert_non_null(json);
    return json;
}

// Three workers, some chunks of gradients; out: the folder of the run. Returns its summary.
static cJSON *run(const char *out, const char *const *sets, process *p)
{
    char path[300], summary[320];
    const char *arguments[64] = {process_lanyard(), "up", "configs/demo.json", "--out", path};
    size_t count = 5;
    static const char *const common[] = {"workers=3",
                                         "batch.samples_per_worker=64",
                                         "stream.samples_max=20000",
                                         "model.mlp=[64,32]",
                                         "links.workers=[0.02,0.02,0.02]", // small chunks
                                         "timeouts.start_s=20"};
    snprintf(path, sizeof path, "%s/%s", folder(), out);
    for (size_t i = 0; i < sizeof common / sizeof common[0]; i++) {
        arguments[count++] = "--set";
        arguments[count++] = common[i];
    }
    for (; *sets; sets++) {
        arguments[count++] = "--set";
        arguments[count++] = *sets;
    }
    arguments[count] = NULL;
    int status = process_run(p, arguments, RUN_S);
    if (status)
        fail_msg("exit status %d; it said:\n%s", status, p->text);
    snprintf(summary, sizeof summary, "%s/summary.json", path);
    return read_json(summary);
}

static double number(const cJSON *json, const char *name)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(json, name);
    if (!cJSON_IsNumber(item))
        fail_msg("no number \"%s\"", name);
    return item->valuedouble;
}

static double early_bytes(const cJSON *json)
{
    double sum = 0;
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(json, "dense_early_bytes"), *item;
    assert_int_equal(cJSON_GetArraySize(list), 3);
    cJSON_ArrayForEach(item, list) sum += item->valuedouble;
    return sum;
}

// Some bytes of every wire are sent while layers below are computed, and all are counted.
static void some_bytes_are_early(void **state)
{
    (void)state;
    static const char *const wires[] = {"network.dense_wire=fp32", "network.dense_wire=bf16",
                                        "network.dense_wire=int8"};
    double bytes[RT_COUNT_OF(wires)], iterations = 0;
    for (size_t wire = 0; wire < RT_COUNT_OF(wires); wire++) {
        process p = {0};
        cJSON *summary = run("out", (const char *[]){wires[wire], NULL}, &p);
        assert_true(early_bytes(summary) > 0);
        bytes[wire] = number(summary, "dense_bytes");
        iterations = number(summary, "iterations");
        assert_true(early_bytes(summary) <= 3 * bytes[wire] * 1.01); // heads of chunks
        cJSON_Delete(summary);
        process_fini(&p);
    }
    const double floats = bytes[0] / 4;
    assert_true(bytes[1] * 2 == bytes[0]);
    const double rounded = floats + 4 * ceil(floats / 256); // after 20 iterations in 32 bits
    const double mean = rounded + (bytes[0] - rounded) * 20 / fmax(iterations, 20);
    assert_true(fabs(bytes[2] - mean) < 1e-6 * mean && bytes[2] > rounded);
}

// As good a model: the spread between seeds is larger (0.01 in the AUC of the last fifth).
static void short_wires_train_as_well(void **state)
{
    (void)state;
    static const char *const wires[] = {"network.dense_wire=bf16", "network.dense_wire=int8"};
    process p[3] = {{0}};
    cJSON *fp32 = run("fp32", (const char *[]){"stream.samples_max=60000", NULL}, &p[0]);
    assert_true(number(fp32, "auc_last_fifth") > 0.6);
    for (size_t i = 0; i < RT_COUNT_OF(wires); i++) {
        cJSON *one =
            run("short", (const char *[]){"stream.samples_max=60000", wires[i], NULL}, &p[i + 1]);
        assert_true(fabs(number(fp32, "auc_last_fifth") - number(one, "auc_last_fifth")) < 0.01);
        assert_true(fabs(number(fp32, "logloss_last_fifth") - number(one, "logloss_last_fifth")) <
                    0.01);
        cJSON_Delete(one);
        process_fini(&p[i + 1]);
    }
    cJSON_Delete(fp32);
    process_fini(&p[0]);
}

static void workers_under_mpirun(void **state)
{
    (void)state;
    process probe = {0}, p[2] = {{0}};
    const char *const version[] = {"/usr/bin/env", "mpirun", "--version", NULL};
    if (access(process_beside(EW_MPI_FILE), R_OK) != 0)
        test_skip("%s was not built (no mpicc)", process_beside(EW_MPI_FILE));
    int status = process_run(&probe, version, RUN_S);
    process_fini(&probe);
    if (status)
        test_skip("mpirun does not start");
    cJSON *ps = run("ps", (const char *[]){NULL}, &p[0]);
    setenv("ASAN_OPTIONS", PROCESS_MPI_ASAN, 1);
    cJSON *mpi = run("mpi", (const char *[]){"network.collective=mpi", NULL}, &p[1]);
    assert_non_null(strstr(p[0].text, "dense gradients are summed by ps"));
    assert_non_null(strstr(p[1].text, "dense gradients are summed by mpi"));
    // Sums in another order.
    test_close(number(mpi, "logloss"), number(ps, "logloss"), 1e-3, 0, "log loss");
    assert_true(number(mpi, "stale_reads") == 0);
    cJSON_Delete(ps);
    cJSON_Delete(mpi);
    process_fini(&p[0]);
    process_fini(&p[1]);
}

static void short_wires_are_for_ps(void **state)
{
    static const char *const sets[] = {"network.dense_wire=bf16", "network.dense_wire=int8"};
    (void)state;
    for (size_t i = 0; i < RT_COUNT_OF(sets); i++) {
        process p = {0};
        const char *const arguments[] = {
            process_lanyard(), "check", "configs/demo.json",      "--set",
            sets[i],           "--set", "network.collective=mpi", NULL};
        assert_true(process_run(&p, arguments, RUN_S) != 0);
        assert_non_null(strstr(p.text, i ? "network.dense_wire: \"int8\" is for"
                                         : "network.dense_wire: \"bf16\" is for"));
        process_fini(&p);
    }
}

TEST_MAIN(TEST_SLOW(some_bytes_are_early, 120), TEST(short_wires_train_as_well),
          TEST(workers_under_mpirun), TEST(short_wires_are_for_ps))
