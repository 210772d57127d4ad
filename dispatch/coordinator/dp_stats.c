#include "dispatch/coordinator/dp_stats.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dispatch/coordinator/dp_quality.h"
#include "dispatch/plan/dp_trace.h"
#include "dispatch/policies/dp_policy.h"
#include "runtime/metrics/rt_latency.h"
#include "runtime/numbers/rt_negatives.h"
#include "runtime/files/rt_own.h"

#define SHOW_TTY_NS UINT64_C(250000000)
#define SHOW_FILE_NS UINT64_C(5000000000)

typedef struct {
    rt_times times;
    uint64_t dense_early_bytes;
} load;

#define LOAD(XX, PART, NONE, T) PART(T, times, &rt_times_fields) XX(T, dense_early_bytes)
#define LOAD_BEFORE \
    "times*1{compute_ns:8 dense_ns:8 push_ns:8 pull_ns:8 plan_ns:8} dense_early_bytes:8"
RT_FIELDS(load_fields, load, LOAD, LOAD_BEFORE);

// What the workers have reported so far on an iteration. One worker may be an iteration ahead: it
// needs the others' gradients for that, not their reports.
typedef struct {
    float *predictions; // worker by worker, as dp_planned has labels
    load workers[RT_WORKERS_MAX];
    uint64_t reported_ns[RT_WORKERS_MAX]; // by rt_now_ns
    uint64_t handed;                      // rows that came from other workers
    uint64_t gradients;                   // of rows, that went to other workers
    bool bad;                             // a loss is not finite
} reported;

struct dp_stats {
    bool is_weighted; // samples are, or negatives are left out
    dp_stats_config config;
    rt_meter *meter; // of the first label, which is what all numbers without a label's name are of
    dp_labels *labels; // of several; NULL: there is one
    rt_metrics *metrics;
    FILE *trace;
    reported *open; // by sequence
    uint32_t open_count;
    float *predictions; // of all open iterations
    dp_account planned;
    rt_counts executed[RT_WORKERS_MAX];
    load workers[RT_WORKERS_MAX]; // sums
    uint64_t stale_reads;
    uint64_t bad_batches;
    dp_ranges ranges;                // of the whole run
    rt_latency latency, latency_all; // of the last iteration; of this process
    uint64_t decision_ns, slice_bytes;
    dp_decisions decisions;
    uint64_t fingerprint; // of all plans so far
    uint64_t begin_ns, last_ns;
    uint64_t shown_ns, shown_samples; // of the last line of progress
    uint64_t past_ns;                 // of training before this process resumed it
    rt_traffic moved;                 // over the links, since this start
    uint64_t moved_samples;
    dp_guard guard;
    dp_evidence evidence;
    bool has_trained; // an iteration of this process; the first one is predicted by what was before
    bool tty;
};

// As many iterations are out at once as the coordinator sends ahead.
static rt_status create_open(dp_stats *stats, const rt_config *config)
{
    const uint32_t outputs = rt_config_output_count(&config->stream);
    size_t samples = (size_t)rt_config_batch(config, config->worker_count) * outputs;
    stats->open_count = config->run_ahead + 1;
    stats->open = rt_alloc(stats->open_count, sizeof *stats->open);
    stats->predictions = rt_alloc(stats->open_count * samples, sizeof *stats->predictions);
    if (!stats->open || !stats->predictions)
        return RT_NO_MEMORY;
    for (uint32_t i = 0; i < stats->open_count; i++)
        stats->open[i].predictions = stats->predictions + i * samples;
    return RT_OK;
}

static reported *open_of(const dp_stats *stats, const dp_planned *planned)
{
    return &stats->open[planned->sequence % stats->open_count];
}

// For readers: what came before is no part of this history.
void dp_stats_begin_anew(dp_stats *stats)
{
    rt_json *json = rt_metrics_begin(stats->metrics, "resumed");
    rt_json_u64(json, "iteration", 0);
    rt_json_bool(json, "caches", false);
    rt_metrics_end(stats->metrics);
}

// Files of before go on; otherwise they are replaced, with the first iteration.
static bool goes_on(const dp_stats *stats)
{
    return stats->config.resumed || stats->config.keeps;
}

static rt_status open_metrics(dp_stats *stats, rt_error *error)
{
    char path[RT_PATH_MAX + 32];
    const dp_stats_config *config = &stats->config;
    const char *place = NULL;
    bool begins_anew = false;
    if (config->directory) {
        struct stat info;
        place = path;
        snprintf(path, sizeof path, "%s/metrics.jsonl", config->directory);
        begins_anew =
            config->keeps && !config->resumed && stat(path, &info) == 0 && info.st_size > 0;
    }
    rt_status status;
    if (goes_on(stats))
        status = rt_metrics_append(place, &stats->metrics, error);
    else
        status = rt_metrics_open_beside(place, &stats->metrics, error);
    if (status)
        return status;
    rt_metrics_limit(stats->metrics, config->config->metrics_bytes_max);
    if (begins_anew)
        dp_stats_begin_anew(stats);
    return RT_OK;
}

static rt_status open_trace(dp_stats *stats, rt_error *error)
{
    char path[RT_PATH_MAX + 32];
    const char *directory = stats->config.directory;
    if (!directory || !stats->config.trace)
        return RT_OK;
    int file = -1;
    rt_status status;
    if (goes_on(stats)) {
        snprintf(path, sizeof path, "%s/trace.jsonl", directory);
        status = rt_own_open(path, 0666, &file, error);
    } else {
        snprintf(path, sizeof path, "%s/trace.jsonl.new", directory);
        status = rt_own_create(path, 0666, &file, error);
    }
    if (status)
        return status;
    stats->trace = fdopen(file, "a");
    if (!stats->trace || fseek(stats->trace, 0, SEEK_END) != 0)
        return rt_fail(error, RT_IO, "%s: cannot write", path);
    return RT_OK;
}

// RT_NO_MEMORY.
static rt_status allocate(dp_stats *stats)
{
    const rt_config *config = stats->config.config;
    const uint32_t class_count = rt_config_class_count(&config->stream);
    if (rt_meter_create(&stats->meter))
        return RT_NO_MEMORY;
    if (stats->is_weighted)
        rt_meter_weigh(stats->meter);
    if (class_count)
        rt_meter_classify(stats->meter, class_count);
    if (dp_labels_create(config, &stats->labels) ||
        dp_ranges_init(&stats->ranges, stats->config.dense_count, class_count > 0))
        return RT_NO_MEMORY;
    return create_open(stats, config);
}

static rt_status open_all(dp_stats *stats, rt_error *error)
{
    if (allocate(stats))
        return rt_fail(error, RT_NO_MEMORY, "out of memory for metrics");
    const rt_status status = open_metrics(stats, error);
    if (status)
        return status;
    return open_trace(stats, error);
}

rt_status dp_stats_create(const dp_stats_config *config, dp_stats **stats_p, rt_error *error)
{
    dp_stats *stats = rt_alloc(1, sizeof *stats);
    if (!stats)
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    stats->config = *config;
    stats->tty = isatty(STDERR_FILENO);
    const rt_stream_config *stream = &config->config->stream;
    stats->is_weighted = rt_stream_is_weighted(stream) || stream->negatives_keep < 1;
    dp_evidence_init(&stats->evidence, config->config, config->dense_count);
    const rt_status status = open_all(stats, error);
    if (status) {
        dp_stats_destroy(stats);
        return status;
    }
    *stats_p = stats;
    return RT_OK;
}

void dp_stats_destroy(dp_stats *stats)
{
    if (!stats)
        return;
    rt_meter_destroy(stats->meter);
    dp_labels_destroy(stats->labels);
    dp_ranges_fini(&stats->ranges);
    if (stats->metrics)
        rt_metrics_close(stats->metrics);
    if (stats->trace)
        fclose(stats->trace);
    if (stats->trace && stats->begin_ns == 0 && !goes_on(stats)) {
        char path[RT_PATH_MAX + 32];
        snprintf(path, sizeof path, "%s/trace.jsonl.new", stats->config.directory);
        (void)unlink(path);
    }
    rt_free(stats->open);
    rt_free(stats->predictions);
    dp_evidence_fini(&stats->evidence);
    rt_free(stats);
}

// Of a checkpoint, beside what other objects keep.
typedef struct {
    uint64_t stale_reads, bad_batches, decision_ns, slice_bytes, fingerprint;
    uint64_t past_ns;
} sums;

#define SUMS(XX, PART, NONE, T) \
    XX(T, stale_reads)          \
    XX(T, bad_batches)          \
    XX(T, decision_ns)          \
    XX(T, slice_bytes)          \
    XX(T, fingerprint)          \
    XX(T, past_ns)
RT_FIELDS(sums_fields, sums, SUMS, "");

void dp_stats_save(const dp_stats *t, rt_bytes *bytes)
{
    sums own = {.stale_reads = t->stale_reads,
                .bad_batches = t->bad_batches,
                .decision_ns = t->decision_ns,
                .slice_bytes = t->slice_bytes,
                .fingerprint = t->fingerprint,
                .past_ns = t->begin_ns ? t->last_ns - t->begin_ns : t->past_ns};
    rt_fields_put(bytes, &dp_account_fields, &t->planned, 1);
    rt_fields_put(bytes, &rt_counts_fields, t->executed, RT_WORKERS_MAX);
    rt_fields_put(bytes, &load_fields, t->workers, RT_WORKERS_MAX);
    rt_fields_put(bytes, &sums_fields, &own, 1);
    rt_fields_put(bytes, &dp_decisions_fields, &t->decisions, 1);
    dp_ranges_save(&t->ranges, bytes);
    rt_meter_save(t->meter, bytes);
    if (t->labels)
        dp_labels_save(t->labels, bytes);
}

#define UNUSED_BYTES 16u // then: placement_bytes, which no build keeps any more

// What stood between the sums of plans and the ranges before members had names in files. Their size
// comes first, and is another one for each version.
static bool take_before(dp_stats *t, sums *own, rt_reader *reader)
{
    const uint64_t size = rt_reader_u64(reader);
    const char *planned = NULL, *loads = NULL;
    for (uint32_t i = 0; i < 2 && !planned; i++) { // for a while a load had one more number
        const uint64_t others = RT_WORKERS_MAX * (56u + 48u + 8u * i) + UNUSED_BYTES;
        loads = i ? LOAD_BEFORE " reported_ns:8" : LOAD_BEFORE;
        if (size > others)
            planned = dp_account_before(size - others);
    }
    if (!planned)
        return false;
    rt_fields_get_as(reader, &dp_account_fields, planned, &t->planned, 1);
    rt_fields_get(reader, &rt_counts_fields, t->executed, RT_WORKERS_MAX);
    rt_fields_get_as(reader, &load_fields, loads, t->workers, RT_WORKERS_MAX);
    rt_fields_get_as(reader, &sums_fields,
                     "placement_bytes:16 stale_reads:8 bad_batches:8 decision_ns:8 slice_bytes:8",
                     own, 1);
    rt_fields_get(reader, &dp_decisions_fields, &t->decisions, 1);
    own->fingerprint = rt_reader_u64(reader);
    own->past_ns = rt_reader_u64(reader);
    return !reader->failed;
}

static bool take_sums(dp_stats *t, sums *own, rt_reader *reader)
{
    if (!rt_fields_are_next(reader))
        return take_before(t, own, reader);
    return rt_fields_get(reader, &dp_account_fields, &t->planned, 1) &&
           rt_fields_get(reader, &rt_counts_fields, t->executed, RT_WORKERS_MAX) &&
           rt_fields_get(reader, &load_fields, t->workers, RT_WORKERS_MAX) &&
           rt_fields_get(reader, &sums_fields, own, 1) &&
           rt_fields_get(reader, &dp_decisions_fields, &t->decisions, 1);
}

rt_status dp_stats_load(dp_stats *t, rt_reader *reader, rt_error *error)
{
    sums own = {0};
    const bool is_whole = take_sums(t, &own, reader) && dp_ranges_load(&t->ranges, reader) &&
                          rt_meter_load(t->meter, reader) == RT_OK &&
                          (!t->labels || dp_labels_load(t->labels, reader) == RT_OK);
    if (!is_whole) {
        own = (sums){0};
        t->planned = (dp_account){0};
        memset(t->executed, 0, sizeof t->executed);
        memset(t->workers, 0, sizeof t->workers);
        t->decisions = (dp_decisions){0};
        dp_ranges_clear(&t->ranges);
    }
    t->stale_reads = own.stale_reads;
    t->bad_batches = own.bad_batches;
    t->decision_ns = own.decision_ns;
    t->slice_bytes = own.slice_bytes;
    t->fingerprint = own.fingerprint;
    t->past_ns = own.past_ns;
    t->has_trained = t->planned.iterations > 0;
    if (is_whole)
        return RT_OK;
    return rt_fail(error, RT_DATA, "totals of the run: they are incomplete or invalid");
}

rt_metrics *dp_stats_metrics(const dp_stats *stats)
{
    return stats->metrics;
}

uint64_t dp_stats_samples(const dp_stats *stats)
{
    return stats->planned.samples;
}

uint64_t dp_stats_iterations(const dp_stats *stats)
{
    return stats->planned.iterations;
}

uint64_t dp_stats_bad_batches(const dp_stats *stats)
{
    return stats->bad_batches;
}

void dp_stats_report(dp_stats *stats, const dp_planned *planned, uint32_t worker,
                     const rt_wire_report *report, const float *predictions)
{
    reported *open = open_of(stats, planned);
    load *sum = &stats->workers[worker], *now = &open->workers[worker];
    rt_counts_add(&stats->executed[worker], &report->done);
    stats->stale_reads += report->stale_reads;
    open->bad |= !isfinite(report->loss_sum);
    open->handed += report->handed;
    open->gradients += report->gradients;
    *now = (load){report->times, report->dense_early_bytes};
    open->reported_ns[worker] = rt_now_ns();
    rt_times_add(&sum->times, &now->times);
    sum->dense_early_bytes += now->dense_early_bytes;
    const size_t count = rt_config_output_count(&stats->config.config->stream);
    memcpy(open->predictions + planned->label_offsets[worker] * count, predictions,
           report->sample_count * count * sizeof *predictions);
    if (stats->trace)
        dp_trace_counts(stats->trace, planned->iteration, worker, report->sample_count,
                        &report->done);
}

static void add_account(dp_account *sum, const dp_account *one, uint32_t worker_count)
{
    sum->iterations += one->iterations;
    sum->samples += one->samples;
    sum->predicted_s += one->predicted_s;
    sum->hits.lookups += one->hits.lookups;
    sum->hits.lookups_hit += one->hits.lookups_hit;
    sum->hits.keys += one->hits.keys;
    sum->hits.keys_hit += one->hits.keys_hit;
    sum->hits.distinct += one->hits.distinct;
    dp_clocks_add(&sum->clocks, &one->clocks);
    dp_handed_add(&sum->handed, &one->handed);
    for (uint32_t j = 0; j < worker_count; j++) {
        rt_counts_add(&sum->workers[j], &one->workers[j]);
        sum->traffic[j].up += one->traffic[j].up;
        sum->traffic[j].down += one->traffic[j].down;
        sum->micro_batch[j] += one->micro_batch[j];
        sum->cost_s[j] += one->cost_s[j];
    }
}

void dp_stats_flush(dp_stats *stats, const dp_planned *planned)
{
    add_account(&stats->planned, &planned->account, stats->config.costs.worker_count);
}

void dp_stats_flushed(dp_stats *stats, uint32_t worker, const rt_wire_report *report)
{
    rt_counts_add(&stats->executed[worker], &report->done);
}

static double share(uint64_t part, uint64_t whole)
{
    return whole ? (double)part / (double)whole : 0;
}

static double samples_per_s(const dp_stats *stats)
{
    uint64_t ns = stats->last_ns - stats->begin_ns;
    return ns ? (double)stats->planned.samples * 1e9 / (double)ns : 0;
}

static void write_loads(rt_json *json, const load *workers, uint32_t worker_count, double scale)
{
    rt_json_begin_array(json, "times_ms");
    for (uint32_t j = 0; j < worker_count; j++)
        rt_times_write(json, NULL, &workers[j].times, scale);
    rt_json_end_array(json);
    rt_json_begin_array(json, "dense_early_bytes");
    for (uint32_t j = 0; j < worker_count; j++)
        rt_json_double(json, NULL, (double)workers[j].dense_early_bytes * scale);
    rt_json_end_array(json);
}

static void write_traffic(rt_json *json, const dp_account *account, uint32_t worker_count,
                          double scale)
{
    rt_json_begin_array(json, "bytes_up");
    for (uint32_t j = 0; j < worker_count; j++)
        rt_json_double(json, NULL, (double)account->traffic[j].up * scale);
    rt_json_end_array(json);
    rt_json_begin_array(json, "bytes_down");
    for (uint32_t j = 0; j < worker_count; j++)
        rt_json_double(json, NULL, (double)account->traffic[j].down * scale);
    rt_json_end_array(json);
}

static void write_hits(rt_json *json, const dp_hits *hits)
{
    rt_json_begin_object(json, "hit_ratio");
    rt_json_double(json, "lookups", share(hits->lookups_hit, hits->lookups));
    rt_json_double(json, "keys", share(hits->keys_hit, hits->keys));
    rt_json_end_object(json);
}

// Of bounded staleness; counts times scale.
static void write_clocks(rt_json *json, const dp_clocks *clocks, double scale)
{
    rt_json_begin_object(json, "staleness");
    rt_json_double(json, "stale_keys", (double)clocks->stale_keys * scale);
    rt_json_double(json, "clock_messages", (double)clocks->clock_messages * scale);
    rt_json_u64(json, "clock_spread", clocks->clock_spread);
    rt_json_end_object(json);
}

// When what happened, before this record.
static void write_ages(dp_stats *stats, const dp_planned *planned, rt_json *json)
{
    const reported *open = open_of(stats, planned);
    const uint64_t now_ns = rt_now_ns();
    rt_json_double(json, "planned_before_ms", (double)(now_ns - planned->ready_ns) * 1e-6);
    rt_json_begin_array(json, "reported_before_ms");
    for (uint32_t j = 0; j < stats->config.costs.worker_count; j++) {
        double waited_ms = (double)NAN;
        if (open->reported_ns[j])
            waited_ms = (double)(now_ns - open->reported_ns[j]) * 1e-6;
        rt_json_double(json, NULL, waited_ms);
    }
    rt_json_end_array(json);
}

static void write_iteration(dp_stats *stats, const dp_planned *planned, const rt_quality *quality,
                            const rt_stream_stats *stream)
{
    uint32_t n = stats->config.costs.worker_count;
    const dp_account *account = &planned->account;
    rt_counts counts = dp_account_counts(account, n);
    rt_json *json = rt_metrics_begin(stats->metrics, "iteration");
    rt_json_u64(json, "iteration", planned->iteration);
    rt_json_u64(json, "samples", planned->sample_count);
    rt_json_begin_array(json, "participants");
    for (uint64_t rest = planned->participants; rest; rest &= rest - 1)
        rt_json_u64(json, NULL, rt_lowest_bit(rest));
    rt_json_end_array(json);
    rt_json_u64(json, "keys", planned->keys);
    rt_json_u64(json, "admitted", planned->admitted);
    rt_json_u64(json, "refused", planned->refused);
    rt_json_u64(json, "malformed_lines", stream->malformed);
    rt_json_u64(json, "odd_labels", stream->odd_labels);
    rt_metrics_quality(json, "quality", quality);
    const rt_quality window = rt_meter_rolled(stats->meter);
    rt_metrics_quality(json, "window", &window);
    if (stats->labels)
        dp_labels_write(stats->labels, json);
    rt_json_bool(json, "untrained", planned->is_untrained);
    rt_json_bool(json, "bad", open_of(stats, planned)->bad);
    rt_json_u64(json, "dense_clipped", planned->dense_clipped);
    dp_ranges_write(&planned->ranges, json, "ranges");
    rt_json_double(json, "cost",
                   dp_account_cost_s(account, n) / dp_account_unit_s(&stats->config.costs));
    rt_json_double(json, "predicted_ms", account->predicted_s * 1e3);
    dp_decisions decisions = {0};
    dp_decisions_add(&decisions, &planned->decision, planned->sample_count);
    dp_decisions_write(&decisions, dp_account_unit_s(&stats->config.costs), json);
    rt_json_double(json, "decision_ms", (double)planned->decision_ns * 1e-6);
    rt_json_double(json, "choice_ms", (double)planned->choice_ns * 1e-6);
    rt_json_double(json, "commit_ms", (double)planned->commit_ns * 1e-6);
    rt_json_double(json, "read_ms", (double)planned->read_ns * 1e-6);
    rt_latency_write(&stats->latency, json, "latency_ms");
    rt_json_u64(json, "slice_bytes", planned->slice_bytes);
    write_hits(json, &account->hits);
    if (stats->config.config->consistency.bounded)
        write_clocks(json, &account->clocks, 1);
    rt_counts_write(json, "ops", &counts, 1);
    if (stats->config.config->dispatch.hand_over)
        rt_json_u64(json, "rows_handed", open_of(stats, planned)->handed);
    if (stats->config.config->dispatch.reduce)
        rt_json_u64(json, "gradients_handed", open_of(stats, planned)->gradients);
    write_traffic(json, account, n, 1);
    write_loads(json, open_of(stats, planned)->workers, n, 1);
    write_ages(stats, planned, json);
    rt_metrics_end(stats->metrics);
}

// ", 12 s left", or nothing where the end is not known.
static void describe_end(const dp_stats *stats, const rt_stream_stats *stream, char text[32])
{
    const rt_config *config = stats->config.config;
    double done = share(stream->bytes_read, stream->bytes_all);
    if (config->stream.samples_max)
        done = fmax(done, share(stats->planned.samples, config->stream.samples_max));
    text[0] = '\0';
    if (done > 0 && done < 1)
        snprintf(text, 32, ", %.0f s left",
                 (double)(stats->last_ns - stats->begin_ns) * 1e-9 * (1 - done) / done);
}

// The rate is that since the line before: what happens now, also in a run of months. The first
// line comes with the first iteration, of which nobody can tell yet.
static void show(dp_stats *stats, const dp_planned *planned, const rt_quality *quality,
                 const rt_stream_stats *stream)
{
    const uint64_t passed_ns = stats->last_ns - stats->shown_ns;
    char rate[32] = "", end[32] = "", loss[RT_QUALITY_TEXT], auc[RT_QUALITY_TEXT];
    const uint64_t every_ns = stats->tty ? SHOW_TTY_NS : SHOW_FILE_NS;
    if (!stats->config.progress || passed_ns < every_ns)
        return;
    if (stats->shown_ns) {
        const uint64_t samples = stats->planned.samples - stats->shown_samples;
        snprintf(rate, sizeof rate, "%.0f samples/s, ", (double)samples * 1e9 / (double)passed_ns);
        describe_end(stats, stream, end);
    }
    stats->shown_ns = stats->last_ns;
    stats->shown_samples = stats->planned.samples;
    const dp_account *account = &planned->account;
    fprintf(stderr, "%siteration %" PRIu32 ": %slog loss %s, AUC %s, cost %.0f, hits %.1f%%%s%s",
            stats->tty ? "\r\033[K" : "", planned->iteration, rate,
            rt_quality_show(quality->log_loss, 4, loss), rt_quality_show(quality->auc, 4, auc),
            dp_account_cost_s(account, stats->config.costs.worker_count) /
                dp_account_unit_s(&stats->config.costs),
            100 * share(account->hits.lookups_hit, account->hits.lookups), end,
            stats->tty ? "" : "\n");
}

// From the first iteration on the folder is this run's: one that fails before leaves it as it was.
static void take_folder(dp_stats *stats)
{
    char path[RT_PATH_MAX + 32], fresh[RT_PATH_MAX + 32];
    rt_metrics_keep(stats->metrics);
    if (!stats->trace || goes_on(stats))
        return;
    snprintf(path, sizeof path, "%s/trace.jsonl", stats->config.directory);
    snprintf(fresh, sizeof fresh, "%s.new", path);
    if (rename(fresh, path) != 0)
        rt_warn("%s cannot be replaced: it is in %s", path, fresh);
}

// What the metrics say is of all samples, also of the negatives that were left out.
static void judge(dp_stats *stats, reported *open, const dp_planned *planned)
{
    const double keep = stats->config.config->stream.negatives_keep;
    if (stats->labels) {
        dp_labels_add(stats->labels, stats->meter, stats->config.slices, planned,
                      open->predictions);
        rt_meter_roll(stats->meter, stats->config.config->watch.window_samples);
        return;
    }
    if (rt_config_class_count(&stats->config.config->stream)) {
        rt_meter_add_classes(stats->meter, open->predictions, planned->labels,
                             planned->sample_count);
        rt_meter_roll(stats->meter, stats->config.config->watch.window_samples);
        return;
    }
    rt_negatives_correct(open->predictions, planned->sample_count, keep, open->predictions);
    if (stats->is_weighted)
        rt_meter_add_weighted(stats->meter, open->predictions, planned->labels, planned->weights,
                              1 / keep, planned->sample_count);
    else
        rt_meter_add(stats->meter, open->predictions, planned->labels, planned->sample_count);
    rt_meter_roll(stats->meter, stats->config.config->watch.window_samples);
    if (stats->config.slices)
        dp_slices_add(stats->config.slices, open->predictions, planned->labels, planned->weights,
                      planned->slice_keys, planned->sample_count);
}

// Who got no slice, or was lost with it, has executed nothing.
static void trace_idle(const dp_stats *stats, const dp_planned *planned, const reported *open)
{
    const rt_counts nothing = {0};
    if (!stats->trace)
        return;
    for (uint32_t j = 0; j < stats->config.costs.worker_count; j++) {
        if (!open->reported_ns[j])
            dp_trace_counts(stats->trace, planned->iteration, j, 0, &nothing);
    }
}

void dp_stats_iteration(dp_stats *stats, const dp_planned *planned, const rt_stream_stats *stream)
{
    reported *open = open_of(stats, planned);
    stats->last_ns = rt_now_ns();
    if (stats->begin_ns == 0)
        take_folder(stats);
    if (stats->begin_ns == 0) // the first iteration starts the clock, as far as it was waited for
        stats->begin_ns = stats->last_ns - open->workers[0].times.compute_ns - stats->past_ns;
    trace_idle(stats, planned, open);
    rt_meter_begin_window(stats->meter);
    judge(stats, open, planned);
    add_account(&stats->planned, &planned->account, stats->config.costs.worker_count);
    stats->decision_ns += planned->decision_ns;
    stats->slice_bytes += planned->slice_bytes;
    dp_decisions_add(&stats->decisions, &planned->decision, planned->sample_count);
    stats->fingerprint = dp_fingerprint_add(stats->fingerprint, planned->fingerprint);
    stats->bad_batches += open->bad;
    dp_ranges_merge(&stats->ranges, &planned->ranges);
    stats->latency = (rt_latency){0};
    rt_latency_add_arrivals(&stats->latency, planned->arrivals, planned->arrival_count);
    rt_latency_merge(&stats->latency_all, &stats->latency);
    rt_quality quality = rt_meter_window(stats->meter);
    if (stats->has_trained && planned->is_judged) {
        dp_guard_add(&stats->guard, &stats->config.config->publish, &quality);
        dp_evidence_add(&stats->evidence, &planned->heard, open->predictions,
                        rt_config_output_count(&stats->config.config->stream), planned->iteration);
    }
    stats->has_trained |= !planned->is_untrained;
    write_iteration(stats, planned, &quality, stream);
    open->bad = false;
    open->handed = open->gradients = 0;
    memset(open->workers, 0, sizeof open->workers); // who is idle next time reports nothing
    memset(open->reported_ns, 0, sizeof open->reported_ns);
    show(stats, planned, &quality, stream);
}

void dp_stats_judge(const dp_stats *stats, bool is_learnt, dp_verdict *verdict)
{
    dp_guard_judge(&stats->guard, &stats->config.config->publish, is_learnt, verdict);
}

dp_guard *dp_stats_guard(dp_stats *stats)
{
    return &stats->guard;
}

const dp_evidence *dp_stats_evidence(const dp_stats *stats)
{
    return &stats->evidence;
}

void dp_stats_swept(dp_stats *stats, const dp_sweep_record *sweep, uint64_t rows_ended,
                    double pause_ms)
{
    rt_json *json = rt_metrics_begin(stats->metrics, "sweep");
    rt_json_u64(json, "iteration", sweep->iteration);
    rt_json_u64(json, "floor", sweep->floor);
    rt_json_u64(json, "keys_ended", sweep->keys_ended);
    rt_json_u64(json, "forgotten", sweep->forgotten);
    rt_json_u64(json, "rows_ended", rows_ended);
    rt_json_u64(json, "keys", sweep->keys);
    rt_json_double(json, "pause_ms", pause_ms);
    rt_metrics_end(stats->metrics);
    rt_debug("%" PRIu64 " rows that were trained last before iteration %" PRIu32 " have ended, "
             "%" PRIu64 " are left (%.0f ms)",
             sweep->keys_ended, sweep->floor, sweep->keys, pause_ms);
}

void dp_stats_traffic(dp_stats *stats, const rt_traffic *traffic, uint64_t samples)
{
    stats->moved = *traffic;
    stats->moved_samples = samples;
}

// ---- summary ---------------------------------------------------------------------------------

static void write_quality(rt_json *json, const rt_quality *all, const rt_quality *last)
{
    rt_json_double(json, "logloss", all->log_loss);
    rt_json_double(json, "auc", all->auc);
    if (all->class_count) {
        rt_json_double(json, "accuracy", all->mean_label);
        rt_json_double(json, "accuracy_last_fifth", last->mean_label);
    }
    rt_json_double(json, "normalised_entropy", all->normalised_entropy);
    rt_json_double(json, "calibration", all->calibration);
    rt_json_double(json, "logloss_last_fifth", last->log_loss);
    rt_json_double(json, "auc_last_fifth", last->auc);
    rt_json_double(json, "normalised_entropy_last_fifth", last->normalised_entropy);
    rt_json_double(json, "calibration_last_fifth", last->calibration);
    rt_json_u64(json, "invalid_predictions", all->invalid_count);
}

static void write_workers(const dp_stats *stats, rt_json *json, double per_iteration)
{
    const dp_account *planned = &stats->planned;
    uint32_t n = stats->config.costs.worker_count;
    rt_json_begin_array(json, "ops_by_worker");
    for (uint32_t j = 0; j < n; j++)
        rt_counts_write(json, NULL, &stats->executed[j], per_iteration);
    rt_json_end_array(json);
    write_traffic(json, planned, n, per_iteration);
    write_loads(json, stats->workers, n, per_iteration);
}

static void write_labels(const dp_stats *stats, rt_json *json, const rt_quality *all,
                         const rt_quality *last)
{
    if (!stats->labels)
        return;
    rt_json_begin_object(json, "labels");
    for (uint32_t l = 0; l < dp_labels_count(stats->labels); l++) {
        rt_meter *meter = dp_labels_meter(stats->labels, l);
        rt_quality own = *all, own_last = *last;
        if (meter) {
            own = rt_meter_total(meter);
            own_last = rt_meter_last_fifth(meter);
        }
        rt_json_begin_object(json, rt_config_label(&stats->config.config->stream, l));
        rt_json_u64(json, "samples", own.sample_count);
        write_quality(json, &own, &own_last);
        rt_json_end_object(json);
    }
    rt_json_end_object(json);
}

static rt_status save_summary(const dp_stats *stats, const rt_quality *all, const rt_quality *last,
                              const dp_reading *reading, bool interrupted, rt_error *error)
{
    const dp_account *planned = &stats->planned;
    const double per_iteration = share(1, planned->iterations);
    uint32_t n = stats->config.costs.worker_count;
    rt_counts executed = {0};
    char path[RT_PATH_MAX + 32];
    rt_json json;
    for (uint32_t j = 0; j < n; j++)
        rt_counts_add(&executed, &stats->executed[j]);
    rt_json_init(&json, 2);
    rt_json_begin_object(&json, NULL);
    rt_json_u64(&json, "iterations", planned->iterations);
    rt_json_u64(&json, "samples", planned->samples);
    rt_json_double(&json, "samples_per_s", samples_per_s(stats));
    rt_json_double(&json, "seconds", (double)(stats->last_ns - stats->begin_ns) * 1e-9);
    write_quality(&json, all, last);
    write_labels(stats, &json, all, last);
    rt_json_u64(&json, "bad_batches", stats->bad_batches);
    dp_ranges_write(&stats->ranges, &json, "ranges");
    rt_json_u64(&json, "stale_reads", stats->stale_reads);
    rt_json_double(&json, "cost",
                   dp_account_cost_s(planned, n) * per_iteration /
                       dp_account_unit_s(&stats->config.costs));
    rt_counts_write(&json, "ops", &executed, per_iteration);
    if (stats->config.config->dispatch.hand_over)
        rt_json_double(&json, "rows_handed", (double)planned->handed.rows * per_iteration);
    if (stats->config.config->dispatch.reduce)
        rt_json_double(&json, "gradients_handed",
                       (double)planned->handed.gradients * per_iteration);
    write_workers(stats, &json, per_iteration);
    write_hits(&json, &planned->hits);
    if (stats->config.config->consistency.bounded)
        write_clocks(&json, &planned->clocks, per_iteration);
    rt_json_double(&json, "predicted_iteration_ms", planned->predicted_s * 1e3 * per_iteration);
    rt_json_double(&json, "decision_ms", (double)stats->decision_ns * 1e-6 * per_iteration);
    dp_decisions_write(&stats->decisions, dp_account_unit_s(&stats->config.costs), &json);
    const char *solver = dp_policy_solver(&stats->config.config->dispatch);
    if (solver)
        rt_json_string(&json, "solver", solver);
    snprintf(path, sizeof path, "%016" PRIx64, stats->fingerprint);
    rt_json_string(&json, "plan_fingerprint", path);
    rt_json_double(&json, "slice_bytes", (double)stats->slice_bytes * per_iteration);
    rt_json_double(&json, "dense_bytes",
                   dp_account_dense_bytes(&stats->config.costs, 0, planned->iterations));
    rt_traffic_write(&json, "traffic", &stats->moved, stats->moved_samples);
    dp_reading_write(reading, &json);
    rt_latency_write(&stats->latency_all, &json, "latency_ms");
    rt_json_u64(&json, "dense_clipped", reading->stats.dense_clipped);
    rt_json_bool(&json, "interrupted", interrupted);
    rt_json_end_object(&json);
    snprintf(path, sizeof path, "%s/summary.json", stats->config.directory);
    rt_status status = rt_json_save(&json, path, error);
    rt_json_fini(&json);
    return status;
}

static void print_quality(const rt_quality *all, const rt_quality *last)
{
    char text[4][RT_QUALITY_TEXT];
    printf("log loss %s, AUC %s; over the last fifth %s, %s\n",
           rt_quality_show(all->log_loss, 4, text[0]), rt_quality_show(all->auc, 4, text[1]),
           rt_quality_show(last->log_loss, 4, text[2]), rt_quality_show(last->auc, 4, text[3]));
    if (all->class_count)
        printf("accuracy %s; over the last fifth %s\n",
               rt_quality_show(all->mean_label, 4, text[0]),
               rt_quality_show(last->mean_label, 4, text[1]));
}

// Of each cause that is a hundredth of all or more.
static void print_traffic(const dp_stats *stats)
{
    static const char *const names[] = {
#define XX(name, text) #name,
        RT_CAUSES_MAP(XX)
#undef XX
    };
    const uint64_t all = rt_traffic_bytes(&stats->moved);
    const char *mark = ":";
    if (!all || !stats->moved_samples)
        return;
    printf("over the links %.0f bytes a sample", (double)all / (double)stats->moved_samples);
    for (uint32_t c = 0; c < RT_CAUSES; c++) {
        const double part = share(stats->moved.bytes[c], all);
        if (part < 0.01)
            continue;
        printf("%s %s %.0f%%", mark, names[c], 100 * part);
        mark = ",";
    }
    printf("\n");
}

rt_status dp_stats_finish(dp_stats *stats, const dp_reading *reading, bool interrupted,
                          rt_error *error)
{
    rt_quality all = rt_meter_total(stats->meter);
    rt_quality last = rt_meter_last_fifth(stats->meter);
    const dp_account *planned = &stats->planned;
    uint32_t n = stats->config.costs.worker_count;
    uint64_t iterations = rt_max_u64(planned->iterations, 1);
    if (stats->config.progress && stats->tty)
        fprintf(stderr, "\r\033[K");
    printf("%" PRIu64 " iterations, %" PRIu64 " samples, %.0f samples/s%s\n", planned->iterations,
           planned->samples, samples_per_s(stats), interrupted ? " (interrupted)" : "");
    if (planned->samples)
        print_quality(&all, &last);
    if (stats->labels)
        dp_labels_print(stats->labels, &all);
    printf("transmission cost per iteration %.0f rows on the fastest link, hits %.1f%% of "
           "look-ups, stale reads %" PRIu64 "\n",
           dp_account_cost_s(planned, n) / dp_account_unit_s(&stats->config.costs) /
               (double)iterations,
           100 * share(planned->hits.lookups_hit, planned->hits.lookups), stats->stale_reads);
    print_traffic(stats);
    if (stats->latency_all.count)
        printf("from arrival to trained rows %.0f ms (half of the samples), %.0f ms (99%%)\n",
               (double)rt_latency_quantile_ns(&stats->latency_all, 0.5) * 1e-6,
               (double)rt_latency_quantile_ns(&stats->latency_all, 0.99) * 1e-6);
    if (reading->stats.duplicates)
        printf("%" PRIu64 " events had come before (stream.id) and were dropped\n",
               reading->stats.duplicates);
    if (stats->bad_batches)
        printf("%" PRIu64 " batches had a loss that is not finite%s\n", stats->bad_batches,
               stats->config.config->guard_skip_bad_batches ? "; nothing of them was applied" : "");
    if (planned->samples && stats->ranges.label_min == stats->ranges.label_max)
        printf("all labels are %g: is the label column the right one?\n", stats->ranges.label_min);
    dp_reading_print(reading);
    if (reading->stats.dense_clipped)
        printf("%" PRIu64 " dense values lay beyond %g deviations and were clipped to that\n",
               reading->stats.dense_clipped, (double)RT_SCALE_LIMIT);
    fflush(stdout);
    if (!stats->config.directory)
        return RT_OK;
    return save_summary(stats, &all, &last, reading, interrupted, error);
}
