// The end of a run: what workers still hold goes to the shards, the model comes in from all boxes.
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "dispatch/coordinator/dp_watch.h"
#include "dispatch/coordinator/dp_run.h"
#include "runtime/files/rt_checkpoint.h"
#include "runtime/files/rt_folder.h"
#include "runtime/files/rt_manifest.h"
#include "runtime/rt_hash.h"

#define SAID_NS UINT64_C(5000000000) // how often it is said how far the model has come

// ---- FINISH ----------------------------------------------------------------------------------

static rt_status ask(dp_run *run, uint32_t peer, rt_message_type type, rt_error *error)
{
    rt_message message;
    if (rt_control_create(&message, type, DP_SELF))
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    if (type == RT_MESSAGE_FINISH) // who is asked for the dense weights then
        rt_message_header(&message)->count = rt_peer_rank(dp_run_lead(run));
    return dp_roster_send(run->roster, peer, &message, error);
}

// Every worker has carried out all, and the shards have all that it changed.
static rt_status finish_workers(dp_run *run, rt_error *error)
{
    run->phase = DP_RUN_FINISHES;
    for (uint64_t rest = dp_run_workers(run); rest; rest &= rest - 1) {
        const rt_status status =
            ask(run, rt_peer(RT_ROLE_WORKER, rt_lowest_bit(rest)), RT_MESSAGE_FINISH, error);
        if (status)
            return status;
    }
    while (run->finished_workers != dp_run_workers(run)) {
        const rt_status status = dp_run_turn(run, error);
        if (status)
            return status;
    }
    return RT_OK;
}

// ---- the model -------------------------------------------------------------------------------

// Files of the model that members send: one worker the dense part, every shard its rows.
static uint32_t sender_count(const dp_run *run)
{
    return 1 + run->run_config.ps_shard_count;
}

static uint32_t sender_of(const dp_run *run, uint32_t i)
{
    if (i == 0)
        return dp_run_lead(run);
    return rt_peer(RT_ROLE_PS, i - 1);
}

static void name_of(const dp_run *run, uint32_t i, char *name, size_t size)
{
    if (i == 0)
        snprintf(name, size, "dense.bin");
    else
        snprintf(name, size, "rows-%03" PRIu32 "-of-%03" PRIu32 ".bin", i - 1,
                 run->run_config.ps_shard_count);
}

static rt_status ask_for_model(dp_run *run, const char *folder, rt_error *error)
{
    run->phase = DP_RUN_SAVES;
    run->collect.giver = rt_peer_rank(dp_run_lead(run));
    for (uint32_t i = 0; i < sender_count(run); i++) {
        char name[64], path[RT_FOLDER_MAX + 64];
        name_of(run, i, name, sizeof name);
        snprintf(path, sizeof path, "%s/%s", folder, name);
        rt_status status = dp_collect_expect(&run->collect, sender_of(run, i), 0, path, error);
        if (status)
            return status;
        status = ask(run, sender_of(run, i), RT_MESSAGE_SAVE, error);
        if (status)
            return status;
    }
    return RT_OK;
}

// RT_AGAIN: some of it is on its way.
static rt_status look_at_model(const dp_run *run, uint64_t *got_p, uint64_t *total_p,
                               rt_error *error)
{
    bool whole = true;
    *got_p = *total_p = 0;
    for (uint32_t i = 0; i < sender_count(run); i++) {
        const rt_parcel_in *in = dp_collect_of(&run->collect, sender_of(run, i));
        if (in->status != RT_OK && in->status != RT_AGAIN)
            return rt_fail(error, in->status, "%s", in->error.text);
        whole &= in->status == RT_OK;
        *got_p += in->got;
        *total_p += in->total;
    }
    if (!whole)
        return RT_AGAIN;
    return RT_OK;
}

static rt_status collect_model(dp_run *run, const char *folder, rt_error *error)
{
    uint64_t got, total, said_ns = rt_now_ns();
    rt_status status = ask_for_model(run, folder, error);
    if (status)
        return status;
    while ((status = look_at_model(run, &got, &total, error)) == RT_AGAIN) {
        status = dp_run_turn(run, error);
        if (status)
            return status;
        if (rt_now_ns() - said_ns < SAID_NS)
            continue;
        said_ns = rt_now_ns();
        rt_info("the model: %.1f of %.1f MB have come in", (double)got * 1e-6,
                (double)total * 1e-6);
    }
    return status;
}

// scale.bin, where dense features are scaled. Without it *part is of no bytes.
static rt_status write_scale(const dp_run *run, const char *folder, rt_manifest_part *part,
                             rt_error *error)
{
    rt_bytes file = {0};
    rt_status status;
    if (dp_feed_put_scale(run->feed, &file))
        status = rt_fail(error, RT_NO_MEMORY, "out of memory for the scale of the dense features");
    else
        status = dp_checkpoint_write_scale(&file, folder, error);
    *part = (rt_manifest_part){
        .sum.bytes = file.size, .xxh3 = rt_hash_bytes(file.data, file.size), .has_xxh3 = true};
    rt_bytes_fini(&file);
    return status;
}

static rt_status write_manifest(const dp_run *run, const char *folder, rt_error *error)
{
    rt_json json;
    rt_manifest_part part = {.has_xxh3 = true}, scale;
    rt_status status = dp_checkpoint_write_config(&run->run_config, folder, &part, error);
    if (!status)
        status = write_scale(run, folder, &scale, error);
    if (status)
        return status;
    rt_manifest_begin(&json, "model", RT_MANIFEST_FORMAT);
    rt_json_u64(&json, "iteration", dp_stats_iterations(run->stats));
    rt_json_u64(&json, "samples", dp_stats_samples(run->stats));
    if (scale.sum.bytes) // with those of the model that the run began with
        rt_json_u64(&json, "scale_samples", dp_feed_scale_samples(run->feed));
    rt_json_u64(&json, "shards", run->run_config.ps_shard_count);
    rt_manifest_put_labels(&json, &run->run_config.stream);
    rt_manifest_put_hash(&json, "schema", run->own.schema);
    rt_manifest_put_hash(&json, "config", run->own.identity.config_hash);
    rt_json_begin_array(&json, "parts");
    rt_manifest_put_part(&json, "config.json", &part);
    if (scale.sum.bytes)
        rt_manifest_put_part(&json, "scale.bin", &scale);
    for (uint32_t i = 0; i < sender_count(run); i++) {
        char name[64];
        const rt_parcel_in *in = dp_collect_of(&run->collect, sender_of(run, i));
        name_of(run, i, name, sizeof name);
        part =
            (rt_manifest_part){.sum.bytes = in->total, .xxh3 = rt_parcel_sum(in), .has_xxh3 = true};
        rt_manifest_put_part(&json, name, &part);
    }
    rt_json_end_array(&json);
    return rt_manifest_write(&json, folder, error);
}

// What is trained is not lost with the place for the model.
static void say_how_to_finish(const dp_run *run, rt_error *error)
{
    const uint32_t newest = dp_run_newest(run);
    char cause[sizeof error->text];
    snprintf(cause, sizeof cause, "%s", error->text);
    if (newest)
        rt_fail(error, error->status,
                "%.280s; all is trained, the model could not be written: once that is mended, "
                "--resume finishes it, from the checkpoint of iteration %" PRIu32,
                cause, newest);
    else
        rt_fail(error, error->status,
                "%.280s; all is trained, the model could not be written, and there is no "
                "checkpoint to finish it from (checkpoint.at_end makes one)",
                cause);
}

static rt_status fill_folder(dp_run *run, const char *folder, rt_error *error)
{
    const rt_status status = collect_model(run, folder, error);
    if (status)
        return status;
    return write_manifest(run, folder, error);
}

// Of the epochs that were judged (stream.patience); NULL: none was, or it is what is in memory.
static const dp_judgement *better_one(const dp_run *run)
{
    const dp_judgement *best = NULL;
    if (run->checkpoint && run->own.extract)
        best = dp_holdout_best(dp_checkpoint_judgements(run->checkpoint));
    if (best && best->iteration == dp_stats_iterations(run->stats))
        best = NULL;
    return best;
}

static rt_status save_best(const dp_run *run, const dp_judgement *best, const char *path)
{
    char checkpoint[RT_FOLDER_MAX];
    rt_error error = {0};
    rt_status status = rt_checkpoint_path(run->folder.checkpoints, best->iteration, checkpoint,
                                          sizeof checkpoint, &error);
    if (!status)
        status = run->own.extract(checkpoint, path, &error);
    if (status)
        rt_warn("the model of epoch %" PRIu32 ", the best, cannot be saved: %s; the last is saved",
                best->epochs, error.text);
    return status;
}

static rt_status save_model(dp_run *run, rt_error *error)
{
    char path[RT_PATH_MAX + 16];
    rt_folder folder = {.lock_fd = -1};
    const dp_judgement *best = better_one(run);
    if (!run->own.directory)
        return RT_OK;
    snprintf(path, sizeof path, "%s/model", run->own.directory);
    if (best && !save_best(run, best, path)) {
        run->saved_best = best;
        return RT_OK;
    }
    rt_status status = rt_folder_begin(&folder, path, error);
    if (!status)
        status = fill_folder(run, folder.draft, error);
    if (!status)
        return rt_folder_commit(&folder, error);
    dp_collect_fini(&run->collect);
    rt_folder_abort(&folder);
    return status;
}

static void say_what_is_saved(const dp_run *run)
{
    const dp_judgement *best = run->saved_best;
    if (best)
        printf("the model is saved as it was after epoch %" PRIu32 ", iteration %" PRIu32
               ", which had the best held-out log loss: %.4f%s\n",
               best->epochs, best->iteration, best->log_loss,
               run->stopped_early ? "; training ended early (stream.patience)" : "");
    fflush(stdout);
}

rt_status dp_run_finish(dp_run *run, rt_error *error)
{
    if (dp_stats_samples(run->stats) == 0 && !run->interrupted && !run->own.model)
        return rt_fail(error, RT_DATA, "the input has no sample, so no model is written");
    rt_status status = finish_workers(run, error);
    if (status)
        return status;
    status = save_model(run, error);
    if (status == RT_IO || status == RT_CONFIG)
        say_how_to_finish(run, error);
    if (status)
        return status;
    rt_traffic traffic;
    dp_reading reading;
    dp_reading_take(run->feed, &reading);
    if (run->live)
        dp_live_record(run->live, &reading.stats, dp_stats_metrics(run->stats));
    dp_run_watch_end(run);
    run->input_failure = reading.failure;
    dp_run_traffic(run, &traffic);
    dp_stats_traffic(run->stats, &traffic, run->watch.samples);
    status = dp_stats_finish(run->stats, &reading, run->interrupted, error);
    say_what_is_saved(run);
    if (!status && !run->input_failure.status && run->own.saved)
        run->own.saved(run->own.announce_context);
    return status;
}
