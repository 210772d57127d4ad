#include "cli/cli_plan.h"

#include <inttypes.h>
#include <string.h>

#include "cli/cli_boxes.h"
#include "dispatch/planner/dp_setup.h"
#include "ps_lite/ps_memory.h"
#include "ps_lite/ps_table.h"
#include "runtime/live/rt_live.h"
#include "runtime/numbers/rt_coding.h"
#include "runtime/numbers/rt_optimizer.h"
#include "runtime/wire/rt_wire.h"

#define MB 1e-6
#define DIRECTORY_BYTES_PER_KEY 32 // 16, at most 5/8 full, doubling
// Of a planner: record, chain, eviction order. As measured, when the caches are full of other rows.
#define RECORD_BYTES_PER_SLOT 160
#define SHOWN_BYTES_PER_SLOT 56 // where decisions are made on snapshots, which are caches, too
#define CLOCK_BYTES_PER_SLOT 16 // of copies that may be stale
#define EXECUTOR_BYTES_PER_SLOT 16
#define USE_BYTES 8       // of a key in sight, for each batch that it is in
#define IN_SIGHT_BYTES 64 // of the key itself: an entry of 16, at most half full, doubling
#define SHARE_MAX 1.05    // of the keys, on the fullest shard

static rt_status learn_input(const rt_config *config, bool count, cli_plan *plan, rt_error *error)
{
    rt_status status = cli_schema(config, &plan->schema, error);
    uint64_t rows;
    if (!status)
        status = dp_setup_share_rows(config, &plan->schema, &rows, error);
    plan->distinct_keys = config->cache.distinct_keys;
    if (!status && count && !plan->distinct_keys && rt_stream_is_countable(&config->stream))
        status = rt_stream_count_keys(&config->stream, config->seed, &plan->distinct_keys, error);
    return status;
}

static rt_status plan_caches(const rt_config *config, cli_plan *plan, rt_error *error)
{
    dp_planner_config planner = {0};
    rt_status status = dp_setup_hot(config, &plan->schema, &planner, error); // the file, if no more
    dp_setup_fini(&planner);
    if (status || (dp_setup_needs_keys(config) && !plan->distinct_keys))
        return status;
    status = dp_setup(config, &plan->schema, plan->distinct_keys, &planner, error);
    if (!status)
        status = dp_setup_hot(config, &plan->schema, &planner, error);
    if (!status)
        status = dp_planner_check(&planner, error);
    if (!status)
        plan->slot_count = planner.slot_count[0];
    plan->planner_slot_bytes = RECORD_BYTES_PER_SLOT;
    if (dp_planner_decides_on_snapshots(&planner))
        plan->planner_slot_bytes += SHOWN_BYTES_PER_SLOT;
    if (config->consistency.bounded)
        plan->planner_slot_bytes += CLOCK_BYTES_PER_SLOT;
    plan->rows_max = planner.rows.max;
    dp_setup_fini(&planner);
    return status;
}

static rt_status plan_shards(const rt_config *config, cli_plan *plan, rt_error *error)
{
    const ps_table_config table = {
        .row_floats = (uint32_t)((plan->row_bytes + plan->state_bytes) / sizeof(float)) +
                      (config->consistency.staleness > 0),
        .memory_bytes_max = config->ps_memory_bytes_max,
        .is_on_disk = config->ps_storage == RT_STORAGE_DISK};
    const double rows = (double)plan->distinct_keys / config->ps_shard_count;
    double fullest = rows;
    if (config->ps_shard_count > 1)
        fullest *= SHARE_MAX;
    plan->shard_bytes = ps_table_bytes_for(&table, (uint64_t)fullest);
    if (plan->distinct_keys == 0 || plan->shard_bytes <= config->ps_memory_bytes_max)
        return RT_OK;
    return rt_fail(error, RT_CONFIG,
                   "%" PRIu64 " distinct keys on %u shards: %.0f rows of %" PRIu64
                   " bytes take %.0f MB on a shard, ps.memory_bytes_max allows %.0f MB: raise it, "
                   "or ps.shards",
                   plan->distinct_keys, config->ps_shard_count, fullest,
                   plan->row_bytes + plan->state_bytes, (double)plan->shard_bytes * MB,
                   (double)config->ps_memory_bytes_max * MB);
}

static void plan_traffic(const rt_config *config, cli_plan *plan)
{
    const uint32_t words = rt_coding_words(config->row_wire, config->model.embedding_dim);
    const uint64_t record = sizeof(rt_wire_grad) + words * sizeof(float) + plan->state_bytes;
    const rt_schema *schema = &plan->schema;
    plan->rows_bytes = plan->lookups * record;
    // Per sample its features and look-ups, per row a slot and a version.
    plan->slice_bytes = plan->micro_batch * (schema->dense_count + 1) * sizeof(float) +
                        plan->lookups * (sizeof(uint32_t) + 16);
}

// Batches that are read and not planned yet: as rt_batch and dp_lookahead keep them.
static void plan_ahead(const rt_config *config, cli_plan *plan)
{
    const rt_schema *schema = &plan->schema;
    const uint32_t lookahead = rt_config_lookahead(config);
    const uint64_t samples = rt_config_batch(config, config->worker_count);
    const uint64_t keys = samples * schema->keys_per_sample_max;
    const uint64_t sample_bytes = 2 * schema->label_count * sizeof(float) +
                                  schema->dense_count * (sizeof(float) + sizeof(double)) +
                                  sizeof(uint32_t);
    plan->batches_ahead = rt_config_batches_ahead(config);
    plan->ahead_bytes = plan->batches_ahead * (samples * sample_bytes + keys * sizeof(uint64_t));
    uint64_t in_sight = lookahead * keys;
    plan->ahead_bytes += in_sight * USE_BYTES;
    if (plan->distinct_keys)
        in_sight = rt_min_u64(in_sight, plan->distinct_keys);
    plan->ahead_bytes += in_sight * IN_SIGHT_BYTES;
}

static void plan_memory(const rt_config *config, cli_plan *plan)
{
    const uint64_t row = plan->row_bytes + plan->state_bytes;
    const uint64_t dense_state = 2 + 1; // weights, gradients, optimizer
    plan->cache_bytes = plan->slot_count * row;
    if (config->consistency.staleness > 0)
        plan->cache_bytes *= 2; // rows as they came
    else if (config->row_wire != RT_CODING_FP32)
        plan->cache_bytes += plan->slot_count * (uint64_t)sizeof(uint32_t) *
                             (rt_coding_words(config->row_wire, config->model.embedding_dim) + 1);
    plan->worker_bytes = plan->cache_bytes + plan->slot_count * EXECUTOR_BYTES_PER_SLOT +
                         plan->dense_bytes * (dense_state + 1) +
                         plan->lookups * (plan->row_bytes * 3 + 32) +
                         plan->slice_bytes * (config->run_ahead + 2);
    plan->coordinator_bytes =
        plan->distinct_keys * DIRECTORY_BYTES_PER_KEY +
        (uint64_t)plan->slot_count * config->worker_count * plan->planner_slot_bytes +
        plan->slice_bytes * config->worker_count * (config->run_ahead + 2) + plan->ahead_bytes;
}

rt_status cli_plan_make(const rt_config *config, bool count, cli_plan *plan, rt_error *error)
{
    memset(plan, 0, sizeof *plan);
    rt_status status = learn_input(config, count, plan, error);
    if (status)
        return status;
    const uint32_t dim = config->model.embedding_dim;
    plan->row_bytes = dim * sizeof(float);
    plan->state_bytes = rt_optimizer_state_floats(&config->optimizer_rows, dim) * sizeof(float);
    plan->micro_batch =
        (uint32_t)rt_max_u64(rt_config_share(config), dp_setup_micro_batch_max(config));
    plan->lookups = (uint64_t)plan->micro_batch * plan->schema.keys_per_sample_max;
    status = plan_caches(config, plan, error);
    if (status)
        return status;
    status = cli_dense_bytes(config, &plan->schema, &plan->dense_bytes, error);
    if (status)
        return status;
    status = plan_shards(config, plan, error);
    if (status)
        return status;
    plan_traffic(config, plan);
    plan_ahead(config, plan);
    plan_memory(config, plan);
    return RT_OK;
}

// ---- a box -----------------------------------------------------------------------------------

// With key and version.
static double row_bytes_on_disk(const cli_plan *plan)
{
    return (double)(plan->row_bytes + plan->state_bytes + sizeof(uint64_t) + sizeof(uint32_t));
}

uint64_t cli_plan_memory(const cli_plan *plan, const cli_residents *who)
{
    return who->workers * (plan->worker_bytes + CLI_PROCESS_BYTES) +
           who->shards * (plan->shard_bytes + CLI_PROCESS_BYTES) +
           who->has_coordinator * (plan->coordinator_bytes + CLI_PROCESS_BYTES);
}

uint64_t cli_plan_disk(const cli_plan *plan, const rt_config *config, const cli_residents *who)
{
    const uint64_t dense = plan->dense_bytes * 3; // weights, the optimizer's state
    double share = 1;                             // on the coordinator's box a model is whole
    if (!who->has_coordinator)
        share = (double)who->shards / config->ps_shard_count;
    const double rows = (double)plan->distinct_keys * row_bytes_on_disk(plan) * share;
    return 2 * ((uint64_t)rows + who->has_coordinator * dense);
}

// With what they take beside what a process takes.
static void say_part(char *text, size_t size, const char *what, uint32_t count, uint64_t bytes)
{
    if (count)
        snprintf(text, size, "%" PRIu32 " %s%s (%.1f MB), ", count, what, count == 1 ? "" : "s",
                 (double)(count * bytes) * MB);
    else
        *text = '\0';
}

void cli_plan_tell_memory(const cli_plan *plan, const rt_config *config, const cli_residents *who,
                          char *text, size_t size)
{
    char workers[64], shards[64], coordinator[64] = "", rows[96] = "", rest[256] = "";
    const bool follows = who->shards || who->has_coordinator || !plan->slot_count;
    say_part(workers, sizeof workers, "worker", who->workers, plan->worker_bytes);
    say_part(shards, sizeof shards, "shard", who->shards, plan->shard_bytes);
    if (who->shards)
        snprintf(rows, sizeof rows, ", rows of at most %.1f MB on a shard (ps.memory_bytes_max)",
                 (double)config->ps_memory_bytes_max * MB);
    if (!plan->distinct_keys && follows)
        snprintf(rest, sizeof rest,
                 "; how many distinct keys there are is not known (cache.distinct_keys): what they "
                 "take comes on top%s",
                 rows);
    if (who->has_coordinator)
        snprintf(coordinator, sizeof coordinator, "the coordinator (%.1f MB), ",
                 (double)plan->coordinator_bytes * MB);
    snprintf(text, size, "%s%s%sabout %.1f MB of memory, with %.1f MB for each process itself%s",
             workers, shards, coordinator, (double)cli_plan_memory(plan, who) * MB,
             (double)CLI_PROCESS_BYTES * MB, rest);
}

void cli_plan_tell_disk(const cli_plan *plan, const rt_config *config, const cli_residents *who,
                        char *text, size_t size)
{
    const double bytes = (double)cli_plan_disk(plan, config, who);
    const char *rows = plan->distinct_keys ? "" : ", and their rows on top";
    if (!who->shards && !who->has_coordinator)
        snprintf(text, size, "no model is kept here");
    else
        snprintf(text, size, "a model and its successor, about %.1f MB of disk%s", bytes * MB,
                 rows);
}

static void print_box(const cli_plan *plan, const rt_config *config, FILE *file)
{
    char text[512];
    const cli_residents all = {config->worker_count, config->ps_shard_count, true};
    cli_plan_tell_memory(plan, config, &all, text, sizeof text);
    fprintf(file, "on one box: %s\n", text);
    cli_plan_tell_disk(plan, config, &all, text, sizeof text);
    fprintf(file, "on one box: %s\n", text);
}

// ---- in words --------------------------------------------------------------------------------

static double time_ms(uint64_t bytes, double gbps)
{
    return (double)bytes * 8 / (gbps * 1e6);
}

static void print_links(const cli_plan *plan, const rt_config *config, FILE *file)
{
    cli_boxes_print_site(config, file);
    for (uint32_t j = 0; j < config->worker_count; j++) {
        const rt_link_config *link = &config->links.workers[j];
        fprintf(file,
                "link of worker %" PRIu32 ", %g Gbit/s up, %g down: dense %.1f and %.1f ms, rows "
                "at most %.1f and %.1f ms, slices %.1f ms down\n",
                j, link->gbps_up, link->gbps_down, time_ms(plan->dense_bytes, link->gbps_up),
                time_ms(plan->dense_bytes, link->gbps_down),
                time_ms(plan->rows_bytes, link->gbps_up),
                time_ms(plan->rows_bytes, link->gbps_down),
                time_ms(plan->slice_bytes, link->gbps_down));
    }
    if (config->links.ps_gbps > 0)
        fprintf(file, "link of the parameter servers, %g Gbit/s: dense %.1f ms each way\n",
                config->links.ps_gbps,
                time_ms(plan->dense_bytes * config->worker_count, config->links.ps_gbps));
}

static const char *which_sees_ahead(const rt_config *config)
{
    return rt_config_lookahead(config) ? "cache.lookahead" : "dispatch.window";
}

static void print_bound(FILE *file, const char *what, double bytes, const char *key)
{
    if (bytes > 0)
        fprintf(file, "    %-44s %12.1f MB  %s\n", what, bytes * MB, key);
    else
        fprintf(file, "    %-44s %12s     %s\n", what, "no bound", key);
}

// What a run takes after a year, or ten: everything that grows has a bound (docs/OPERATIONS.md).
static void print_year(const cli_plan *plan, const rt_config *config, FILE *file)
{
    const rt_checkpoint_config *checkpoint = &config->checkpoint;
    const double row = row_bytes_on_disk(plan);
    const double rows = (double)plan->rows_max;
    const double folders = checkpoint->keep + checkpoint->full_every;
    const bool makes = checkpoint->every_iterations || checkpoint->every_s > 0 ||
                       checkpoint->at_end || config->publish.every_s > 0;
    fprintf(file, "after a year at most, beside about %.1f MB of memory of each process:\n",
            (double)CLI_PROCESS_BYTES * MB);
    if (plan->rows_max == 0) {
        fprintf(file, "    it follows from the distinct keys of the input, which --count counts\n");
        return;
    }
    fprintf(file, "  the coordinator's box\n");
    double memory = rows * DIRECTORY_BYTES_PER_KEY +
                    (double)config->worker_count * plan->slot_count * plan->planner_slot_bytes;
    if (config->rows.admit > 1)
        memory += (double)config->rows.admit_bytes;
    print_bound(file, "memory: keys, caches, counts", memory, "rows.max, rows.admit_bytes");
    if (plan->batches_ahead)
        print_bound(file, "memory: batches in sight", (double)plan->ahead_bytes,
                    which_sees_ahead(config));
    print_bound(file, "disk: metrics.jsonl, records.jsonl", 2.0 * (double)config->metrics_bytes_max,
                "metrics.bytes_max, each");
    if (rt_live_is_wanted(config))
        print_bound(file, "disk: journal", (double)config->journal_bytes_max, "journal.bytes_max");
    if (makes && (checkpoint->copies || config->network_ps_count == 0))
        print_bound(file, "disk: checkpoints", folders * rows * row,
                    "(checkpoint.keep + .full_every) x rows.max");
    if (config->publish.every_s > 0)
        print_bound(file, "disk: published models",
                    (double)(config->publish.keep + checkpoint->full_every) * rows * row,
                    "(publish.keep + checkpoint.full_every) x rows.max");
    fprintf(file, "  the box of a PS shard\n");
    print_bound(
        file, config->ps_storage == RT_STORAGE_DISK ? "memory: the index of rows" : "memory: rows",
        (double)config->ps_memory_bytes_max,
        "ps.memory_bytes_max; twice while a checkpoint is written");
    print_bound(file, "memory: images, gradients, dense weights",
                3.0 * (double)ps_memory_share(config), "a quarter of ps.memory_bytes_max each");
    if (config->ps_storage == RT_STORAGE_DISK)
        print_bound(file, "memory: rows changed during a checkpoint",
                    (double)ps_memory_held_max(config, 0),
                    "on this box: an eighth of its memory, or such a quarter");
    if (makes)
        print_bound(file, "disk: its files of checkpoints",
                    folders * rows * row / config->ps_shard_count, "as above, a shard's share");
    fprintf(file, "  the box of a worker\n");
    print_bound(file, "memory: cache, buffers", (double)plan->worker_bytes, "cache.rows");
}

// Who has to let others in, beside coordinator and shards.
static void print_workers_listen(const rt_config *config, FILE *file)
{
    const uint32_t port = config->network_worker_port;
    if (!rt_dispatch_is_mutual(&config->dispatch))
        return;
    const char *why = config->dispatch.hand_over ? "dispatch.hand_over" : "dispatch.reduce";
    fprintf(file, "workers listen for each other (%s): ", why);
    if (port)
        fprintf(file, "worker 0 at port %" PRIu32 ", worker %" PRIu32 " at %" PRIu32 "\n", port,
                config->worker_count - 1, port + config->worker_count - 1);
    else
        fprintf(file, "each at any free port (network.worker_port)\n");
}

void cli_plan_print(const cli_plan *plan, const rt_config *config, FILE *file)
{
    fprintf(file,
            "a batch: %" PRIu32 " samples on each of %" PRIu32 " workers, at most %" PRIu64
            " rows each; a row has %" PRIu64 " bytes and %" PRIu64 " of optimizer state\n",
            plan->micro_batch, config->worker_count, plan->lookups, plan->row_bytes,
            plan->state_bytes);
    print_workers_listen(config, file);
    if (plan->slot_count)
        fprintf(file, "worker: %.1f MB, of these %" PRIu32 " cached rows in %.1f MB\n",
                (double)plan->worker_bytes * MB, plan->slot_count, (double)plan->cache_bytes * MB);
    else
        fprintf(file, "worker: the cache follows from cache.ratio and the distinct keys of the "
                      "input, which --count counts\n");
    if (plan->distinct_keys)
        fprintf(file,
                "PS shard: %.1f MB for its share of %" PRIu64 " keys, at most %.1f MB are "
                "allowed; coordinator: %.1f MB\n",
                (double)plan->shard_bytes * MB, plan->distinct_keys,
                (double)config->ps_memory_bytes_max * MB, (double)plan->coordinator_bytes * MB);
    else
        fprintf(file,
                "PS shard: at most %.1f MB; cache.distinct_keys or --count would tell how much\n",
                (double)config->ps_memory_bytes_max * MB);
    fprintf(file,
            "an iteration, per worker and way: dense %.3f MB, rows at most %.3f MB (`lanyard sim` "
            "counts what they really are); a slice is about %.3f MB\n",
            (double)plan->dense_bytes * MB, (double)plan->rows_bytes * MB,
            (double)plan->slice_bytes * MB);
    if (plan->batches_ahead)
        fprintf(file,
                "batches in sight: %" PRIu32 " (%s), on the coordinator's box in at most %.1f MB\n",
                plan->batches_ahead, which_sees_ahead(config), (double)plan->ahead_bytes * MB);
    print_box(plan, config, file);
    print_links(plan, config, file);
    print_year(plan, config, file);
}
