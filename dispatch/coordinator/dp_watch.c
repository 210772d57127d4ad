#include "dispatch/coordinator/dp_watch.h"
#include "dispatch/coordinator/dp_run.h"
#include "dispatch/policies/dp_policy.h"
#include "runtime/rt_clock.h"
#include "runtime/rt_log.h"
#include "runtime/rt_memory.h"

#include <string.h>
#include <inttypes.h>
#include <math.h>

rt_status dp_watch_open(const rt_config *config, const char *directory, bool goes_on,
                        dp_watch *watch, rt_error *error)
{
    watch->checkpoint_ns = rt_now_ns();
    return rt_viewer_open(config, directory, goes_on, &watch->viewer, error);
}

rt_status dp_watch_note(const rt_config *config, rt_value_names **names_p, dp_watch *watch,
                        rt_error *error)
{
    if (!*config->watch.column)
        return RT_OK;
    if (rt_value_names_create(config->watch.column, &watch->names))
        return rt_fail(error, RT_NO_MEMORY, "out of memory for watch.column");
    *names_p = watch->names;
    return RT_OK;
}

rt_status dp_watch_schema(const rt_config *config, const rt_schema *schema, dp_watch *watch,
                          rt_error *error)
{
    const char *column = config->watch.column;
    uint32_t field = 0;
    watch->schema = *schema;
    if (!*column)
        return RT_OK;
    while (field < schema->field_count && strcmp(schema->field_names[field], column) != 0)
        field++;
    if (field == schema->field_count)
        return rt_fail(error, RT_CONFIG,
                       "watch.column: expected a categorical column of the stream, found \"%s\"",
                       column);
    if (schema->class_count)
        return rt_fail(error, RT_CONFIG,
                       "watch.column: is for labels of 0 and 1, not for one of several classes");
    watch->slices = rt_alloc(1, sizeof *watch->slices);
    if (!watch->slices)
        return rt_fail(error, RT_NO_MEMORY, "out of memory for watch.column");
    *watch->slices = (dp_slices){.column = column,
                                 .field = field,
                                 .window_samples = (double)config->watch.window_samples,
                                 .names = watch->names};
    return RT_OK;
}

void dp_watch_close(dp_watch *watch)
{
    rt_viewer_close(watch->viewer);
    rt_free(watch->slices);
    rt_value_names_destroy(watch->names);
    *watch = (dp_watch){0};
}

rt_status dp_watch_take(dp_watch *watch, uint32_t peer, const rt_message *message, rt_error *error)
{
    char name[32];
    const uint32_t rank = rt_peer_rank(peer);
    rt_wire_vitals *of = watch->shards;
    uint32_t count = RT_SHARDS_MAX;
    if (rt_peer_role(peer) == RT_ROLE_WORKER) {
        of = watch->workers;
        count = RT_WORKERS_MAX;
    }
    if (!rt_control_has(message, sizeof *of) || rank >= count)
        return rt_fail(error, RT_WIRE, "%s: VITALS of %zu bytes, expected %zu",
                       rt_peer_name(peer, name), message->size - sizeof(rt_wire_header),
                       sizeof *of);
    memcpy(&of[rank], rt_message_payload(message), sizeof *of);
    if (of == watch->shards)
        watch->image_bytes[rank] = rt_message_header(message)->iteration;
    return RT_OK;
}

// ---- events that are sent --------------------------------------------------------------------

static void put_counts(rt_live *live, rt_flow flow, rt_json *json)
{
    const rt_live_counts counts = rt_live_statistics(live, flow);
    const rt_journal_counts *journal = &counts.journal;
    const double commits = journal->commits ? (double)journal->commits : 1;
    rt_json_u64(json, "events", journal->next - 1);
    rt_json_u64(json, "read", counts.read - 1);
    rt_json_u64(json, "journal_first", journal->first);
    rt_json_u64(json, "journal_bytes", journal->bytes);
    rt_json_u64(json, "commits", journal->commits);
    rt_json_double(json, "commit_ms", (double)journal->commit_ns * 1e-6 / commits);
    rt_json_u64(json, "commits_failed", journal->failures);
    rt_json_u64(json, "full", journal->full);
    rt_json_u64(json, "repeated", journal->repeated);
    rt_json_u64(json, "lost", journal->lost);
    rt_json_u64(json, "connections", counts.intake.connections);
    rt_json_u64(json, "refused", counts.intake.refused);
}

void dp_live_record(rt_live *live, const rt_stream_stats *stats, rt_metrics *metrics)
{
    if (rt_live_journal(live, RT_FLOW_EVENTS)) {
        rt_json *json = rt_metrics_begin(metrics, "stream");
        put_counts(live, RT_FLOW_EVENTS, json);
        rt_json_u64(json, "unnamed", rt_live_statistics(live, RT_FLOW_EVENTS).intake.unnamed);
        rt_json_u64(json, "duplicates", stats->duplicates);
        rt_json_u64(json, "malformed_lines", stats->malformed);
        rt_metrics_end(metrics);
    }
    if (rt_live_journal(live, RT_FLOW_OUTCOMES)) {
        put_counts(live, RT_FLOW_OUTCOMES, rt_metrics_begin(metrics, "outcomes"));
        rt_metrics_end(metrics);
    }
}

// ---- records of a run ------------------------------------------------------------------------

#define FIRST_NS UINT64_C(1000000000) // after the first iteration
#define EVERY_NS UINT64_C(5000000000)

// null while nobody knows.
static void write_if(rt_json *json, const char *key, bool is_known, uint64_t value)
{
    rt_json_double(json, key, is_known ? (double)value : (double)NAN);
}

static void write_known(rt_json *json, const char *key, uint64_t value)
{
    write_if(json, key, value != 0, value);
}

static void write_memory(rt_json *json, uint64_t resident, uint64_t limit)
{
    write_known(json, "rss_bytes", resident);
    write_known(json, "memory_max_bytes", limit);
}

static void write_workers(const dp_run *run, rt_json *json)
{
    const dp_membership *members = dp_roster_members(run->roster);
    uint64_t rest = members->worker_places;
    rt_json_begin_array(json, "workers");
    for (uint32_t j = 0; j < run->planning.limits.worker_count; j++, rest &= rest - 1) {
        const rt_wire_vitals *vitals = &run->watch.workers[j];
        rt_json_begin_object(json, NULL);
        rt_json_u64(json, "rank", rest ? rt_lowest_bit(rest) : j);
        rt_json_double(json, "up", bw_table_rate(&run->links.table, j, BW_UP));
        rt_json_double(json, "down", bw_table_rate(&run->links.table, j, BW_DOWN));
        write_memory(json, vitals->resident_bytes, vitals->memory_max_bytes);
        rt_json_end_object(json);
    }
    rt_json_end_array(json);
    // Who was drained, or is spare, is missed by nobody.
    rt_json_begin_array(json, "out");
    for (rest = dp_membership_missing(members); rest; rest &= rest - 1)
        rt_json_u64(json, NULL, rt_lowest_bit(rest));
    rt_json_end_array(json);
}

static void write_shards(const dp_run *run, rt_json *json)
{
    rt_json_begin_array(json, "shards");
    for (uint32_t s = 0; s < run->run_config.ps_shard_count; s++) {
        const rt_wire_vitals *vitals = &run->watch.shards[s];
        const bool is_known = vitals->row_bytes_max != 0;
        rt_json_begin_object(json, NULL);
        write_if(json, "keys", is_known, vitals->rows);
        write_if(json, "row_bytes", is_known, vitals->row_bytes);
        write_known(json, "row_bytes_max", vitals->row_bytes_max);
        write_if(json, "image_bytes", is_known, run->watch.image_bytes[s]);
        write_memory(json, vitals->resident_bytes, vitals->memory_max_bytes);
        rt_json_end_object(json);
    }
    rt_json_end_array(json);
}

// What waits to be read, and for outcomes.
static void write_waiting(const dp_run *run, rt_json *json)
{
    const rt_stream_stats stats = dp_feed_stream_stats(run->feed);
    rt_json_begin_object(json, "lag");
    if (run->live && rt_live_journal(run->live, RT_FLOW_EVENTS)) {
        const rt_live_counts counts = rt_live_statistics(run->live, RT_FLOW_EVENTS);
        rt_json_double(json, "events", (double)counts.journal.next - (double)counts.read);
    }
    if (stats.bytes_all > 0)
        rt_json_double(json, "bytes", (double)stats.bytes_all - (double)stats.bytes_read);
    rt_json_end_object(json);
    if (stats.join.events == 0 && stats.join.outcomes == 0)
        return;
    rt_json_begin_object(json, "join");
    rt_json_u64(json, "waiting", stats.join.waiting);
    rt_json_u64(json, "doubted", stats.join.doubted);
    rt_json_end_object(json);
}

// Of a journal also what nobody has read up to yet.
static void write_losses(const dp_run *run, rt_json *json)
{
    const rt_stream_stats stats = dp_feed_stream_stats(run->feed);
    uint64_t lost = 0;
    for (rt_flow flow = 0; run->live && flow < RT_FLOWS; flow++)
        if (rt_live_journal(run->live, flow))
            lost += rt_live_statistics(run->live, flow).journal.lost;
    rt_json_begin_object(json, "input");
    rt_json_u64(json, "events_lost", rt_max_u64(stats.events_lost, lost));
    rt_json_u64(json, "breaks", stats.breaks);
    rt_json_end_object(json);
}

static void write_checkpoint(const dp_run *run, uint64_t now, rt_json *json)
{
    rt_json_begin_object(json, "checkpoint");
    rt_json_double(json, "every_s", run->checkpoint ? run->cut.every_s : 0);
    rt_json_u64(json, "iteration", run->watch.checkpoint);
    rt_json_double(json, "age_s", (double)(now - run->watch.checkpoint_ns) * 1e-9);
    rt_json_end_object(json);
}

static void write_standby(const dp_run *run, rt_json *json)
{
    rt_mirror_counts counts;
    if (!run->mirror)
        return;
    rt_mirror_statistics(run->mirror, &counts);
    rt_json_begin_object(json, "standby");
    rt_json_bool(json, "there", counts.is_there);
    rt_json_bool(json, "in_step", counts.is_in_step);
    rt_json_double(json, "away_s", counts.away_s);
    write_if(json, "behind_bytes", counts.is_there, counts.behind_bytes);
    rt_json_u64(json, "commits", counts.blocks);
    rt_json_u64(json, "commits_alone", counts.alone);
    rt_json_u64(json, "checkpoint", counts.checkpoint);
    rt_json_end_object(json);
}

// Nothing is under way, and it is not the run itself that holds it up.
static bool waits_for_input(const dp_run *run)
{
    return run->phase == DP_RUN_TRAINS && run->open.count == 0 && !run->cut.planned &&
           !run->restart.checkpoint && !run->prober.open;
}

void dp_run_traffic(const dp_run *run, rt_traffic *traffic)
{
    rt_traffic_share(RT_ROLE_COORDINATOR, traffic);
    for (uint32_t j = 0; j < RT_WORKERS_MAX; j++)
        rt_traffic_add(traffic, &run->watch.workers[j].traffic);
}

static void write_all_traffic(const dp_run *run, rt_json *json)
{
    rt_traffic traffic;
    dp_run_traffic(run, &traffic);
    rt_traffic_write(json, "traffic", &traffic, run->watch.samples);
}

static void record_members(dp_run *run, bool has_ended, uint64_t now)
{
    const rt_config *config = &run->run_config;
    rt_json *json = rt_metrics_begin(dp_stats_metrics(run->stats), "members");
    rt_json_double(json, "unix_s", rt_unix_s());
    rt_json_u64(json, "iteration", dp_stats_iterations(run->stats));
    rt_json_string(json, "policy",
                   rt_config_choice_name("dispatch.policy", (int)config->dispatch.policy));
    const char *solver = dp_policy_solver(&config->dispatch);
    if (solver)
        rt_json_string(json, "solver", solver);
    rt_json_u64(json, "dense_bytes", // of the next iteration, of one of several
                dp_dense_bytes(run->planning.planner.dense_bytes,
                               run->planning.planner.dense_whole_bytes,
                               (uint32_t)dp_stats_iterations(run->stats) + 1, 0));
    write_workers(run, json);
    write_shards(run, json);
    rt_json_begin_object(json, "coordinator");
    write_memory(json, rt_memory_resident(), rt_memory_limit());
    rt_json_end_object(json);
    write_checkpoint(run, now, json);
    write_waiting(run, json);
    write_losses(run, json);
    write_all_traffic(run, json);
    write_standby(run, json);
    rt_json_bool(json, "waits_for_input", waits_for_input(run));
    rt_json_bool(json, "ended", has_ended);
    rt_metrics_end(dp_stats_metrics(run->stats));
}

static void record_warnings(dp_run *run)
{
    char texts[RT_LOG_RECENT][RT_LOG_RECENT_BYTES];
    const uint32_t count = rt_log_recent(&run->watch.warnings_seen, texts);
    for (uint32_t i = 0; i < count; i++) {
        rt_json *json = rt_metrics_begin(dp_stats_metrics(run->stats), "warning");
        rt_json_string(json, "text", texts[i]);
        rt_metrics_end(dp_stats_metrics(run->stats));
    }
}

static void record_all(dp_run *run, bool has_ended, uint64_t now)
{
    rt_metrics *metrics = dp_stats_metrics(run->stats);
    const uint32_t iteration = (uint32_t)dp_stats_iterations(run->stats);
    record_members(run, has_ended, now);
    dp_columns_record(&run->watch.columns, &run->watch.schema, iteration, metrics);
    run->watch.columns = (dp_columns){0};
    if (run->watch.slices)
        dp_slices_record(run->watch.slices, iteration, metrics);
    record_warnings(run);
}

void dp_run_watch_iteration(dp_run *run, const dp_planned *planned)
{
    dp_columns_merge(&run->watch.columns, &planned->columns, run->watch.schema.field_count);
    run->watch.samples += planned->sample_count;
    if (run->watch.due_ns == 0)
        run->watch.due_ns = rt_now_ns() + FIRST_NS;
}

// The first record waits for what the shards hold, but not for longer than until the next one.
static bool awaits_shards(const dp_run *run, uint64_t now)
{
    if (run->watch.has_recorded || now >= run->watch.due_ns + EVERY_NS)
        return false;
    for (uint32_t s = 0; s < run->run_config.ps_shard_count; s++)
        if (!run->watch.shards[s].row_bytes_max)
            return true;
    return false;
}

// A clock without a battery is set when there is a network.
static void tell_of_clock(void)
{
    double by_s;
    if (rt_clock_was_set(&by_s))
        rt_warn(
            "the clock of this machine was set %s by %.0f s: what waits and what ages goes on as "
            "if it had not been",
            by_s < 0 ? "back" : "forward", fabs(by_s));
}

void dp_run_watch(dp_run *run)
{
    const uint64_t now = rt_now_ns();
    tell_of_clock();
    const uint32_t newest = dp_run_newest(run);
    if (newest != run->watch.checkpoint) {
        run->watch.checkpoint = newest;
        run->watch.checkpoint_ns = now;
    }
    if (run->watch.due_ns == 0 || now < run->watch.due_ns || awaits_shards(run, now))
        return;
    run->watch.has_recorded = true;
    run->watch.due_ns = now + EVERY_NS;
    record_all(run, false, now);
}

void dp_run_watch_end(dp_run *run)
{
    if (run->watch.due_ns)
        record_all(run, true, rt_now_ns());
}
