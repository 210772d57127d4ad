#include "dispatch/coordinator/dp_live.h"

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
