// `lanyard verify`: reads all of a model, a checkpoint, or every checkpoint of a folder.
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/cli.h"
#include "dispatch/coordinator/dp_checkpoint.h"
#include "dispatch/coordinator/dp_saved.h"
#include "runtime/files/rt_checkpoint.h"
#include "runtime/files/rt_manifest.h"
#include "runtime/files/rt_pack.h"
#include "runtime/stream/rt_parser.h"

// Whether a run could go on from it, as far as its files say.
static rt_status check_state(const char *path, const cJSON *manifest, dp_state_check *check,
                             const rt_bytes *state, rt_error *error)
{
    uint32_t iteration = 0;
    rt_error why = {0};
    (void)rt_manifest_u32(manifest, "iteration", UINT32_MAX, &iteration);
    const rt_status status = dp_state_check_end(check, state, iteration, &why);
    if (status)
        return rt_fail(error, status, "%s: %.400s", path, why.text);
    return RT_OK;
}

// What of a folder is not looked at by whoever reads rows: the dense part, the scale, the planner.
static rt_status read_others(const ew_source *source, const cJSON *manifest, dp_state_check *check,
                             rt_error *error)
{
    rt_manifest_part part;
    rt_file_sum sum = {0};
    char path[RT_PATH_MAX + 80];
    rt_tensors *dense, *scale = NULL;
    rt_bytes state = {0};
    snprintf(path, sizeof path, "%s/dense.bin", source->folder);
    rt_status status = rt_tensors_open(path, &dense, error);
    if (status)
        return status;
    rt_tensors_close(dense);
    status = ew_source_scale(source, 0, &scale, error);
    rt_tensors_close(scale);
    if (status || !rt_manifest_part_of(manifest, "planner.bin", &part))
        return status;
    snprintf(path, sizeof path, "%s/planner.bin", source->folder);
    status = rt_pack_read(path, DP_CHECKPOINT_MAGIC, &state, &sum, error);
    if (!status && part.has_hash && (sum.hash != part.sum.hash || sum.bytes != part.sum.bytes))
        status = rt_fail(error, RT_DATA, "%s is not the one that manifest.json names", path);
    if (!status)
        status = check_state(path, manifest, check, &state, error);
    rt_bytes_fini(&state);
    return status;
}

// check->planner NULL: of a model, from whose rows no run goes on.
static rt_status tell_rows(const ps_table *table, uint32_t shard, dp_state_check *check,
                           rt_error *error)
{
    uint64_t at = 0;
    if (!check->planner)
        return RT_OK;
    for (const ps_entry *one; (one = ps_table_next(table, &at));) {
        const rt_status status = dp_state_check_row(check, one->key, one->version, shard, error);
        if (status)
            return status;
    }
    return RT_OK;
}

// One shard's rows at a time, with those that the checkpoint builds on.
static rt_status read_rows(const ew_source *source, dp_state_check *check, uint64_t *rows_p,
                           rt_error *error)
{
    const rt_config *config = source->config;
    const ps_table_config bounds = {.row_floats = config->model.embedding_dim,
                                    .memory_bytes_max = UINT64_MAX / 2};
    for (uint32_t s = 0; s < config->ps_shard_count; s++) {
        ps_table *table;
        if (ps_table_create(&bounds, &table))
            return rt_fail(error, RT_NO_MEMORY, "out of memory");
        rt_status status = ew_source_rows(source, s, bounds.row_floats, table, NULL, error);
        if (!status)
            status = tell_rows(table, s, check, error);
        *rows_p += ps_table_count(table);
        ps_table_destroy(table);
        if (status)
            return status;
    }
    return RT_OK;
}

// Of a checkpoint that runs go on from.
static rt_status begin_check(const ew_source *source, const cJSON *manifest, dp_state_check *check,
                             rt_error *error)
{
    rt_manifest_part part;
    rt_schema schema;
    if (!rt_manifest_part_of(manifest, "planner.bin", &part))
        return RT_OK;
    rt_status status =
        rt_parser_read_schema(&source->config->stream, source->config->seed, &schema, error);
    if (!status)
        status = dp_state_check_begin(source->config, &schema, check, error);
    return status;
}

static rt_status read_all(const ew_source *source, uint64_t *iteration_p, uint64_t *rows_p,
                          rt_error *error)
{
    cJSON *manifest;
    dp_state_check check = {0};
    rt_status status = ew_source_check(source, error);
    if (status)
        return status;
    status = rt_manifest_read(source->folder, &manifest, error);
    if (status)
        return status;
    (void)rt_manifest_u64(manifest, "iteration", UINT64_C(1) << 53, iteration_p);
    status = begin_check(source, manifest, &check, error);
    if (!status)
        status = read_rows(source, &check, rows_p, error);
    if (!status)
        status = read_others(source, manifest, &check, error);
    dp_state_check_fini(&check);
    cJSON_Delete(manifest);
    return status;
}

static int verify(const char *folder)
{
    rt_config config;
    ew_source source;
    rt_error error = {0};
    uint64_t rows = 0, iteration = 0;
    int code = cli_open_source(folder, NULL, 0, false, &config, &source);
    if (code != CLI_OK)
        return code;
    const rt_status status = read_all(&source, &iteration, &rows, &error);
    rt_config_fini(&config);
    if (status)
        return cli_fail(&error);
    printf("%s: whole, iteration %" PRIu64 ", %" PRIu64 " rows\n", folder, iteration, rows);
    return CLI_OK;
}

static bool has_file(const char *folder, const char *name)
{
    char path[RT_PATH_MAX + 80];
    struct stat ignored;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return stat(path, &ignored) == 0;
}

// All of a folder of checkpoints. A run may be writing one, or was ended while it did: without a
// manifest it is none. CLI_USAGE: nothing is there.
static int verify_folder(const char *folder)
{
    char path[RT_PATH_MAX + 64];
    uint32_t *iterations, count, whole = 0;
    bool failed = false;
    if (rt_checkpoint_list(folder, &iterations, &count, NULL))
        return CLI_USAGE;
    for (uint32_t k = 0; k < count; k++) {
        if (rt_checkpoint_path(folder, iterations[k], path, sizeof path, NULL))
            continue;
        if (!has_file(path, "manifest.json"))
            printf("%s: not finished (no manifest.json), left out\n", path);
        else if (verify(path) == CLI_OK)
            whole++;
        else
            failed = true;
    }
    rt_free(iterations);
    if (count == 0)
        return CLI_USAGE;
    if (failed || whole == 0)
        return CLI_FAILED;
    return CLI_OK;
}

// The folder of a run, or of checkpoints. CLI_USAGE: it is none.
static int verify_all(const char *given)
{
    char inside[RT_PATH_MAX + 16];
    snprintf(inside, sizeof inside, "%s/checkpoints", given);
    int code = verify_folder(inside);
    if (code == CLI_USAGE)
        code = verify_folder(given);
    if (code != CLI_USAGE || !has_file(given, "metrics.jsonl"))
        return code;
    snprintf(inside, sizeof inside, "%s/model", given);
    if (has_file(inside, "manifest.json"))
        return verify(inside);
    fprintf(stderr,
            "lanyard verify: %s is a run without checkpoints (checkpoint.every_s) and, so "
            "far, without a model\n",
            given);
    return CLI_FAILED;
}

int cli_verify(int argc, char **argv)
{
    const char *given = NULL, *sets[CLI_SETS_MAX];
    uint32_t set_count;
    if (!cli_parse(argc, argv, NULL, 0, &given, sets, &set_count))
        return CLI_USAGE;
    if (!given || set_count) {
        fprintf(stderr,
                "lanyard verify: expected DIR, a model, a checkpoint, or the folder of a run "
                "or of checkpoints\n");
        return CLI_USAGE;
    }
    const int code = verify_all(given);
    if (code == CLI_USAGE)
        return verify(given);
    return code;
}
