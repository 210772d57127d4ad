#include "dispatch/coordinator/dp_checkpoint_parts.h"

#include <errno.h>
#include <inttypes.h>
#include <malloc.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "runtime/files/rt_checkpoint.h"
#include "runtime/files/rt_file.h"
#include "runtime/files/rt_manifest.h"
#include "runtime/files/rt_published.h"
#include "runtime/rt_child.h"
#include "runtime/rt_clock.h"
#include "runtime/rt_hash.h"

#define WRITE_LIMIT_S 900.0

// The start that made a checkpoint, or published it; 0: it is not there, or not complete.
static uint64_t epoch_of(const char *directory, uint32_t iteration)
{
    char folder[RT_FOLDER_MAX];
    cJSON *root = NULL;
    uint64_t epoch = 0;
    if (rt_checkpoint_path(directory, iteration, folder, sizeof folder, NULL) ||
        rt_manifest_read(folder, &root, NULL))
        return 0;
    if (!rt_manifest_u64(root, "epoch", UINT32_MAX, &epoch))
        epoch = 0;
    cJSON_Delete(root);
    return epoch;
}

// Whether the checkpoint that the run goes on from is the newest of the versions.
static bool find_last(const dp_checkpoint *c, rt_published_version *version)
{
    uint32_t *iterations, count;
    if (c->past_count == 0 || c->config.is_of_others ||
        rt_checkpoint_list(c->published, &iterations, &count, NULL))
        return false;
    const uint32_t newest = c->past[c->past_count - 1].iteration;
    const bool is_last = count > 0 && iterations[count - 1] == newest;
    rt_free(iterations);
    if (!is_last)
        return false;
    const uint64_t epoch = epoch_of(c->published, newest);
    return epoch && epoch == epoch_of(c->directory, newest) &&
           rt_published_version_of(c->published, newest, version, NULL) == RT_OK && version->run;
}

// A run goes on with its versions: servers then need only what changes from here on. Where the
// history of the newest one is lost they are another run's, and servers read all rows.
static rt_status begin_publishing(dp_checkpoint *c, rt_error *error)
{
    rt_published_version last;
    const double now_s = rt_unix_s();
    c->run = rt_hash_bytes(&now_s, sizeof now_s);
    c->is_chained = find_last(c, &last);
    if (c->is_chained) {
        c->run = last.run;
        c->published_s = 0;
        if (!isnan(last.trained_s))
            c->published_s = last.trained_s;
    }
    return rt_checkpoint_make(c->published, error);
}

// It builds on those before.
static rt_status begin(dp_checkpoint *c, const dp_checkpoint_past *past, uint32_t past_count,
                       rt_error *error)
{
    if (rt_grow(&c->past, &c->past_capacity, past_count + 16u, sizeof *c->past))
        return rt_fail(error, RT_NO_MEMORY, "out of memory for checkpoints");
    if (past_count)
        memcpy(c->past, past, past_count * sizeof *past);
    c->past_count = past_count;
    if (c->config.is_of_others)
        dp_checkpoint_want_all(c, dp_checkpoint_newest(c));
    const rt_status status = dp_checkpoint_begin_judging(c, error);
    if (status || !*c->published)
        return status;
    return begin_publishing(c, error);
}

rt_status dp_checkpoint_create(const dp_checkpoint_config *config, const dp_checkpoint_past *past,
                               uint32_t past_count, dp_checkpoint **checkpoint_p, rt_error *error)
{
    dp_checkpoint *c = rt_alloc(1, sizeof *c);
    if (!c)
        return rt_fail(error, RT_NO_MEMORY, "out of memory for checkpoints");
    c->config = *config;
    c->child.fd = c->merger.fd = -1;
    c->after = (dp_hook){.command = config->config->checkpoint.after, .metrics = config->metrics};
    snprintf(c->directory, sizeof c->directory, "%s", config->directory);
    if (config->published)
        snprintf(c->published, sizeof c->published, "%s", config->published);
    rt_checkpoint_remove_draft(c->directory);
    if (*c->published)
        rt_checkpoint_remove_draft(c->published);
    const rt_status status = begin(c, past, past_count, error);
    if (status) {
        dp_checkpoint_destroy(c);
        return status;
    }
    *checkpoint_p = c;
    return RT_OK;
}

static void content_fini(dp_checkpoint *c)
{
    rt_bytes_fini(&c->content.state);
    rt_bytes_fini(&c->content.dense);
    rt_bytes_fini(&c->content.scale);
}

void dp_checkpoint_destroy(dp_checkpoint *c)
{
    if (!c)
        return;
    dp_hook_end(&c->after);
    rt_child_end(&c->child);
    dp_checkpoint_merge_end(c);
    content_fini(c);
    rt_free(c->past);
    rt_free(c);
}

bool dp_checkpoint_busy(const dp_checkpoint *c)
{
    return c->step != STEP_IDLE;
}

int dp_checkpoint_fd(const dp_checkpoint *c)
{
    return c->child.fd;
}

static rt_status write_bytes(const char *path, const rt_bytes *bytes, rt_file_sum *sum,
                             rt_error *error)
{
    *sum = (rt_file_sum){bytes->size, rt_hash_bytes(bytes->data, bytes->size)};
    return rt_file_save(path, bytes->data, bytes->size, error);
}

// ---- beginning -------------------------------------------------------------------------------

// Rows were forgotten, which files of changes do not tell: until one with all rows has come since.
static bool lacks_all_rows(const dp_checkpoint *c)
{
    for (uint32_t i = c->past_count; i-- > 0 && c->past[i].iteration > c->all_after;)
        if (c->past[i].base == 0)
            return false;
    return c->all_after > 0;
}

void dp_checkpoint_want_all(dp_checkpoint *c, uint32_t after)
{
    c->all_after = (uint32_t)rt_max_u64(c->all_after, after);
    dp_checkpoint_merge_end(c); // no file of what is to be forgotten is made any more
}

bool dp_checkpoint_has_all(const dp_checkpoint *c)
{
    return !lacks_all_rows(c);
}

// Changes since the newest one; where these become too many, and a merge does not help, all rows.
static uint32_t choose_base(const dp_checkpoint *c)
{
    if (*c->published && !c->is_chained)
        return 0;
    if (lacks_all_rows(c))
        return 0;
    if (c->past_count == 0 || (dp_checkpoint_is_long(c) && !dp_checkpoint_can_merge(c)))
        return 0;
    return c->past[c->past_count - 1].iteration;
}

// Complete ones that are older than checkpoint.keep_s: the first so many.
static uint32_t count_old(const dp_checkpoint *c)
{
    const double keep_s = c->config.config->checkpoint.keep_s;
    uint32_t old = 0;
    for (; keep_s > 0 && old < c->past_count; old++) {
        char path[RT_FOLDER_MAX + 32];
        struct stat info;
        if (rt_checkpoint_path(c->directory, c->past[old].iteration, path, sizeof path - 32, NULL))
            break;
        strcat(path, "/manifest.json");
        if (stat(path, &info) != 0 || rt_clock_age_s((double)info.st_mtim.tv_sec) < keep_s)
            break;
    }
    return old;
}

// The first of those that stay once this one is complete: the newest so many that are young enough,
// and what they build on. past_count: with this one.
static uint32_t choose_new_from(const dp_checkpoint *c, uint32_t iteration)
{
    const uint32_t keep = c->config.config->checkpoint.keep;
    const uint32_t old = count_old(c);
    if (c->past_count + 1 <= keep && !old)
        return 0;
    uint32_t first = old;
    if (c->past_count + 1 > keep)
        first = (uint32_t)rt_max_u64(c->past_count + 1 - keep, old);
    if (first == c->past_count) { // this one alone
        if (c->base == 0)
            return iteration;
        first--;
    }
    while (first > 0 && c->past[first].base)
        first--;
    return c->past[first].iteration;
}

// Likewise, and the best one so far stays (stream.patience).
static uint32_t choose_keep_from(const dp_checkpoint *c, uint32_t iteration)
{
    return (uint32_t)rt_min_u64(choose_new_from(c, iteration), dp_checkpoint_best_needs(c));
}

rt_status dp_checkpoint_write_scale(const rt_bytes *bytes, const char *directory, rt_error *error)
{
    char path[RT_FOLDER_MAX + 32];
    rt_file_sum sum;
    snprintf(path, sizeof path, "%s/scale.bin", directory);
    if (bytes->size)
        return write_bytes(path, bytes, &sum, error);
    if (unlink(path) != 0 && errno != ENOENT)
        return rt_fail(error, RT_IO, "cannot remove %s: %s", path, strerror(errno));
    return RT_OK;
}

rt_status dp_checkpoint_write_config(const rt_config *config, const char *directory,
                                     rt_manifest_part *part, rt_error *error)
{
    char path[RT_FOLDER_MAX + 32], *json;
    rt_file_sum sum;
    if (rt_config_to_json(config, &json))
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    const rt_bytes bytes = {.data = (uint8_t *)json, .size = strlen(json)};
    snprintf(path, sizeof path, "%s/config.json", directory);
    rt_status status = write_bytes(path, &bytes, &sum, error);
    rt_free(json);
    if (part)
        *part = (rt_manifest_part){.sum.bytes = sum.bytes, .xxh3 = sum.hash, .has_xxh3 = true};
    return status;
}

static rt_status write_own(const dp_checkpoint *c, rt_file_sum *planner, rt_file_sum *dense,
                           rt_error *error)
{
    char path[RT_FOLDER_MAX + 32];
    const rt_bytes *state = &c->content.state;
    rt_status status = rt_checkpoint_make_own(c->folder, error);
    if (status)
        return status;
    snprintf(path, sizeof path, "%s/planner.bin", c->folder);
    status = rt_pack_write(path, DP_CHECKPOINT_MAGIC, state->data, state->size, planner, error);
    if (status)
        return status;
    snprintf(path, sizeof path, "%s/dense.bin", c->folder);
    status = write_bytes(path, &c->content.dense, dense, error);
    if (status)
        return status;
    status = dp_checkpoint_write_scale(&c->content.scale, c->folder, error);
    if (status)
        return status;
    return dp_checkpoint_write_config(c->config.config, c->folder, NULL, error);
}

// In the forked copy; the error tells whether all is written.
static void write_parts(void *context, rt_child_result *result)
{
    rt_file_sum planner = {0}, dense = {0};
    (void)write_own(context, &planner, &dense, &result->error);
    result->values[0] = planner.bytes;
    result->values[1] = planner.hash;
    result->values[2] = dense.bytes;
    result->values[3] = dense.hash;
}

static void fail(dp_checkpoint *c, const rt_error *error)
{
    if (!c->failure.status)
        c->failure = *error;
}

rt_status dp_checkpoint_begin(dp_checkpoint *c, dp_checkpoint_content *content, rt_wire_cut *cut,
                              rt_error *error)
{
    rt_assert(c->step == STEP_IDLE);
    rt_status status = rt_checkpoint_path(c->directory, content->iteration, c->folder,
                                          RT_WIRE_LOAD_FOLDER_MAX, error);
    if (status)
        return status;
    rt_checkpoint_remove(c->directory, content->iteration, NULL); // one that was never complete
    content_fini(c);
    c->content = *content;
    content->state = content->dense = content->scale = (rt_bytes){0};
    c->scale = (rt_file_sum){c->content.scale.size,
                             rt_hash_bytes(c->content.scale.data, c->content.scale.size)};
    c->base = choose_base(c);
    if (c->base == 0)
        dp_checkpoint_merge_end(c); // nothing will build on it
    c->keep_from = choose_keep_from(c, c->content.iteration);
    c->failure = (rt_error){0};
    c->shards_done = c->copying = 0;
    c->own_done = c->is_apart = false;
    c->begin_ns = rt_now_ns();
    c->step = STEP_PARTS;
    // Shards remove what nobody needs already: this one may never be complete.
    *cut = (rt_wire_cut){.base = c->base};
    if (c->past_count)
        cut->keep_from = c->past[0].iteration;
    rt_control_put_text(cut->folder, sizeof cut->folder, c->folder);
    return RT_OK;
}

void dp_checkpoint_write(dp_checkpoint *c)
{
    rt_error failure = {0};
    c->own_done = rt_child_start(&c->child, write_parts, c, WRITE_LIMIT_S, &failure) != RT_OK;
    if (c->own_done)
        fail(c, &failure);
}

uint32_t dp_checkpoint_newest(const dp_checkpoint *c)
{
    if (c->past_count == 0)
        return 0;
    return c->past[c->past_count - 1].iteration;
}

rt_position_events dp_checkpoint_events(const dp_checkpoint *c, bool newest)
{
    if (c->past_count == 0)
        return (rt_position_events){{0}};
    return c->past[newest ? c->past_count - 1 : 0].events;
}

void dp_checkpoint_paused(dp_checkpoint *c, double pause_ms)
{
    c->content.pause_ms = pause_ms;
}

static void shard_path(const dp_checkpoint *c, uint32_t shard, char *path, size_t size)
{
    snprintf(path, size, "%s/rows-%03" PRIu32 "-of-%03" PRIu32 ".bin", c->folder, shard,
             c->config.config->ps_shard_count);
}

// On the same box, or in a folder that the boxes share, there is nothing to copy: the folder was
// empty when the checkpoint began, so a file of that size is the one that the shard wrote.
static bool is_here(const char *path, uint64_t bytes)
{
    struct stat info;
    return stat(path, &info) == 0 && (uint64_t)info.st_size == bytes;
}

static rt_status ask_for_copy(dp_checkpoint *c, uint32_t shard, rt_error *error)
{
    char path[RT_FOLDER_MAX + 64];
    rt_message message;
    rt_error failure = {0};
    const uint32_t peer = rt_peer(RT_ROLE_PS, shard), iteration = c->content.iteration;
    dp_collect *collect = c->config.collect;
    shard_path(c, shard, path, sizeof path);
    if (is_here(path, c->shards[shard].bytes))
        return RT_OK;
    c->is_apart = true;
    if (c->config.config->checkpoint.copies == 0)
        return RT_OK;
    // The coordinator's own part makes the folder, but may not have come to that yet.
    rt_status status = rt_checkpoint_make_own(c->folder, &failure);
    if (!status)
        status = dp_collect_expect(collect, peer, iteration, path, &failure);
    if (status) {
        fail(c, &failure);
        return RT_OK;
    }
    c->copying |= rt_bit(shard);
    c->copied_ns = rt_now_ns();
    if (rt_message_create(&message, RT_MESSAGE_SAVE, collect->sender, iteration, 0, 0))
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    return dp_roster_send(collect->roster, peer, &message, error);
}

rt_status dp_checkpoint_written(dp_checkpoint *c, uint32_t shard, const rt_message *message,
                                rt_error *error)
{
    rt_wire_written written;
    rt_reader reader = rt_message_reader(message);
    const uint64_t iteration = rt_message_header(message)->iteration;
    if (!rt_reader_get(&reader, &written, 1, sizeof written) || c->step != STEP_PARTS ||
        iteration != c->content.iteration || shard >= c->config.config->ps_shard_count ||
        c->shards_done >> shard & 1)
        return rt_fail(error, RT_WIRE, "ps %" PRIu32 ": WRITTEN that nobody waits for", shard);
    c->shards_done |= rt_bit(shard);
    c->shards[shard] = (rt_file_sum){written.bytes, written.hash};
    rt_status status = RT_OK;
    if (written.status) {
        rt_error failure = {0};
        rt_fail(&failure, RT_IO, "ps %" PRIu32 ": %.*s", shard, (int)rt_min_u64(reader.left, 384),
                (const char *)reader.next);
        fail(c, &failure);
    } else if (!c->failure.status) {
        status = ask_for_copy(c, shard, error);
    }
    dp_checkpoint_step(c);
    return status;
}

// One that has come is whole: its pieces and all of it had their sums.
static void look_at_copy(dp_checkpoint *c, uint32_t shard, uint64_t *bytes)
{
    const rt_parcel_in *in = dp_collect_of(c->config.collect, rt_peer(RT_ROLE_PS, shard));
    rt_error failure = in->error;
    *bytes += in->answered;
    if (in->status == RT_AGAIN)
        return;
    c->copying &= ~rt_bit(shard);
    if (in->status == RT_OK && in->total != c->shards[shard].bytes)
        rt_fail(&failure, RT_IO, "%s: %" PRIu64 " bytes came, %" PRIu64 " were written", in->path,
                in->total, c->shards[shard].bytes);
    if (failure.status)
        fail(c, &failure);
    dp_collect_drop(c->config.collect, rt_peer(RT_ROLE_PS, shard));
}

static void look_at_copies(dp_checkpoint *c)
{
    uint64_t bytes = 0;
    rt_error failure = {0};
    for (uint64_t rest = c->copying; rest; rest &= rest - 1)
        look_at_copy(c, rt_lowest_bit(rest), &bytes);
    const uint64_t now_ns = rt_now_ns();
    if (bytes != c->copied_bytes)
        c->copied_ns = now_ns;
    c->copied_bytes = bytes;
    if (c->copying && (double)(now_ns - c->copied_ns) * 1e-9 > WRITE_LIMIT_S) {
        rt_fail(&failure, RT_TIMEOUT, "ps %" PRIu32 ": nothing more of its file has come",
                rt_lowest_bit(c->copying));
        fail(c, &failure);
    }
    const uint64_t dropped = c->failure.status ? c->copying : 0;
    for (uint64_t rest = dropped; rest; rest &= rest - 1)
        dp_collect_drop(c->config.collect, rt_peer(RT_ROLE_PS, rt_lowest_bit(rest)));
    if (c->failure.status)
        c->copying = 0;
}

// ---- ending ----------------------------------------------------------------------------------

static void put_part(rt_json *json, const char *name, const rt_file_sum *sum)
{
    const rt_manifest_part one = {.sum = *sum, .has_hash = true};
    rt_manifest_put_part(json, name, &one);
}

void dp_checkpoint_begin_manifest(const dp_checkpoint *c, unsigned format, rt_json *json)
{
    const rt_config *config = c->config.config;
    rt_manifest_begin(json, "checkpoint", format);
    rt_json_u64(json, "iteration", c->content.iteration);
    rt_json_u64(json, "base", c->base);
    rt_json_u64(json, "samples", c->content.samples);
    if (c->scale.bytes)
        rt_json_u64(json, "scale_samples", c->content.scale_samples);
    rt_json_u64(json, "epoch", c->config.epoch);
    rt_json_u64(json, "workers", config->worker_count);
    rt_json_u64(json, "shards", config->ps_shard_count);
    rt_json_string(json, "homes", rt_config_choice_name("ps.homes", (int)config->ps_homes));
    rt_manifest_put_labels(json, &config->stream);
    rt_manifest_put_hash(json, "schema", c->config.schema);
    rt_manifest_put_hash(json, "config", c->config.config_hash);
}

void dp_checkpoint_put_parts(const dp_checkpoint *c, rt_json *json, bool with_planner)
{
    const rt_config *config = c->config.config;
    char name[64];
    rt_json_begin_array(json, "parts");
    for (uint32_t s = 0; s < config->ps_shard_count; s++) {
        snprintf(name, sizeof name, "rows-%03" PRIu32 "-of-%03" PRIu32 ".bin", s,
                 config->ps_shard_count);
        put_part(json, name, &c->shards[s]);
    }
    if (with_planner)
        put_part(json, "planner.bin", &c->planner);
    put_part(json, "dense.bin", &c->dense);
    if (c->scale.bytes)
        put_part(json, "scale.bin", &c->scale);
    rt_json_end_array(json);
}

// For dp_saved: iterations and how many milliseconds ago they were, the oldest first.
static void put_ages(const dp_checkpoint *c, rt_json *json)
{
    const dp_ages_kept *ages = &c->content.ages;
    uint64_t numbers[2 * DP_AGES_NOTES];
    for (uint32_t i = 0; i < ages->count; i++) {
        numbers[2 * i] = ages->notes[i].iteration;
        numbers[2 * i + 1] = ages->notes[i].age_ms;
    }
    if (ages->count)
        rt_json_u64s(json, "ages", numbers, 2 * ages->count);
}

// In a forked copy: syncing and removing may take long.
static void close_checkpoint(void *context, rt_child_result *result)
{
    dp_checkpoint *c = context;
    uint32_t *iterations, count;
    rt_json json;
    if (c->failure.status) {
        rt_checkpoint_remove(c->directory, c->content.iteration, NULL);
        return;
    }
    dp_checkpoint_begin_manifest(c, RT_MANIFEST_FORMAT_STATE, &json);
    put_ages(c, &json);
    if (c->content.epochs)
        rt_json_u64(&json, "epochs", c->content.epochs);
    dp_holdout_put(&c->holdout, &json);
    dp_checkpoint_put_parts(c, &json, true);
    if (rt_manifest_write(&json, c->folder, &result->error) ||
        rt_checkpoint_list(c->directory, &iterations, &count, NULL))
        return;
    for (uint32_t i = 0; i < count && iterations[i] < c->keep_from; i++)
        rt_checkpoint_remove(c->directory, iterations[i], NULL);
    rt_free(iterations);
    result->values[ONLY_PUBLISHING] = *c->published && dp_checkpoint_publish(c, result);
}

static uint64_t bytes_of_rows(const dp_checkpoint *c)
{
    uint64_t bytes = 0;
    for (uint32_t s = 0; s < c->config.config->ps_shard_count; s++)
        bytes += c->shards[s].bytes;
    return bytes;
}

static void report(const dp_checkpoint *c)
{
    const double write_s = (double)(rt_now_ns() - c->begin_ns) * 1e-9;
    const uint64_t bytes = bytes_of_rows(c) + c->planner.bytes + c->dense.bytes;
    rt_json *json = rt_metrics_begin(c->config.metrics, "checkpoint");
    rt_json_u64(json, "iteration", c->content.iteration);
    rt_json_u64(json, "base", c->base);
    rt_json_bool(json, "complete", !c->failure.status);
    rt_json_u64(json, "bytes", bytes);
    rt_json_double(json, "drain_ms", c->content.drain_ms);
    rt_json_double(json, "wait_ms", c->content.wait_ms);
    rt_json_double(json, "pause_ms", c->content.pause_ms);
    rt_json_double(json, "write_s", write_s);
    rt_metrics_end(c->config.metrics);
    if (!c->failure.status)
        rt_debug("checkpoint at iteration %" PRIu32 ": %.1f MB in %.2f s%s", c->content.iteration,
                 (double)bytes * 1e-6, write_s, c->base ? ", changes" : "");
    else if (c->past_count)
        rt_warn("the checkpoint at iteration %" PRIu32
                " could not be written, training goes on without it (the newest is that of "
                "iteration %" PRIu32 "): %s",
                c->content.iteration, c->past[c->past_count - 1].iteration, c->failure.text);
    else
        rt_warn("the checkpoint at iteration %" PRIu32
                " could not be written, training goes on without any: %s",
                c->content.iteration, c->failure.text);
}

static void finish(dp_checkpoint *c, const rt_child_result *result)
{
    if (result->error.status && !result->values[ONLY_PUBLISHING])
        fail(c, &result->error);
    c->step = STEP_IDLE;
    report(c);
    // What a checkpoint took stands in pieces all over the heap: over months it would add up.
    (void)malloc_trim(0);
    if (c->failure.status)
        return;
    if (*c->published)
        dp_checkpoint_report_version(c, result);
    uint32_t gone = 0;
    while (gone < c->past_count && c->past[gone].iteration < c->keep_from)
        gone++;
    c->past_count -= gone;
    memmove(c->past, c->past + gone, c->past_count * sizeof *c->past);
    if (rt_grow(&c->past, &c->past_capacity, c->past_count + 1u, sizeof *c->past)) {
        c->past_count = 0; // the next one has all rows
        return;
    }
    c->past[c->past_count++] =
        (dp_checkpoint_past){c->content.iteration, c->base, c->content.events, bytes_of_rows(c)};
    c->cannot_merge &= c->base != 0;
    dp_checkpoint_merge(c);
    dp_hook_put(&c->after, c->content.iteration, c->folder);
    dp_checkpoint_judge(c);
}

static void start_closing(dp_checkpoint *c)
{
    rt_child_result failed = {0};
    content_fini(c);
    c->step = STEP_CLOSING;
    c->margins = c->config.config->publish;
    c->held_s = c->held_ns ? (double)(rt_now_ns() - c->held_ns) * 1e-9 : 0;
    if (rt_child_start(&c->child, close_checkpoint, c, WRITE_LIMIT_S, &failed.error))
        finish(c, &failed);
}

static void take_own(dp_checkpoint *c, const rt_child_result *result)
{
    c->own_done = true;
    c->planner = (rt_file_sum){result->values[0], result->values[1]};
    c->dense = (rt_file_sum){result->values[2], result->values[3]};
    if (result->error.status)
        fail(c, &result->error);
}

void dp_checkpoint_step(dp_checkpoint *c)
{
    rt_child_result result = {0};
    const uint64_t shards = rt_bits_below(c->config.config->ps_shard_count);
    dp_hook_step(&c->after);
    dp_checkpoint_merge_step(c);
    if (c->child.fd >= 0 && rt_child_poll(&c->child, &result) == RT_OK) {
        if (c->step == STEP_CLOSING) {
            finish(c, &result);
            return;
        }
        if (c->step == STEP_JUDGING) {
            dp_checkpoint_judged(c, &result);
            return;
        }
        take_own(c, &result);
    }
    if (c->step == STEP_PARTS)
        look_at_copies(c);
    if (c->step == STEP_PARTS && c->own_done && c->shards_done == shards && !c->copying)
        start_closing(c);
}
