// `lanyard sim`: the planner on a stream, without workers; policies side by side.
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/cli_boxes.h"
#include "dispatch/planner/dp_setup.h"
#include "dispatch/sim/dp_fixed.h"
#include "dispatch/sim/dp_peers.h"
#include "runtime/config/rt_policies.h"
#include "runtime/numbers/rt_optimizer.h"
#include "runtime/rt_json.h"

#define RUNS_MAX 32u
#define SPEC_MAX 1024u // fae:profile=FILE

typedef struct {
    char spec[SPEC_MAX];
    rt_policy_kind policy;
    bool is_bounded; // consistency.staleness is not "off"
    bool is_chosen;  // dispatch.participants is "auto"
    bool is_plain;   // a reference that scores all tables
    dp_sim_result result;
    dp_fixed_set best;        // --fixed-sets; workers 0: not looked for
    double own_table_s;       // (one box): per iteration, with the table on it; it computes only
    uint64_t own_table_bytes; // of the rows of all keys so far; 0: another line
} sim_run;

// Commas separate SPECs.
static bool split_specs(const char *text, sim_run *runs, uint32_t *count_p)
{
    uint32_t count = 0;
    for (const char *at = text;; at++) {
        size_t length = strcspn(at, ",");
        if (count == RUNS_MAX || length == 0 || length >= SPEC_MAX) {
            fprintf(stderr,
                    "lanyard sim: --policies \"%s\": expected up to %u SPECs separated by commas, "
                    "SPEC = name[:key=value]...\n",
                    text, RUNS_MAX);
            return false;
        }
        memcpy(runs[count].spec, at, length);
        runs[count++].spec[length] = '\0';
        at += length;
        if (*at == '\0')
            break;
    }
    *count_p = count;
    return true;
}

static double per_iteration(const dp_account *account)
{
    return 1.0 / (double)account->iterations;
}

static double cost_of(const dp_sim_result *result)
{
    return dp_account_cost_s(&result->account, result->costs.worker_count) /
           dp_account_unit_s(&result->costs) * per_iteration(&result->account);
}

// Relative to the first plain LAIA among the runs; NAN without one.
static double reduction_vs_laia(const sim_run *runs, uint32_t count, const sim_run *run)
{
    for (uint32_t i = 0; i < count; i++) {
        if (runs[i].is_plain)
            return 1 - cost_of(&run->result) / cost_of(&runs[i].result);
    }
    return NAN;
}

static void write_by_worker(rt_json *json, const dp_sim_result *result)
{
    const dp_account *account = &result->account;
    double scale = per_iteration(account);
    uint32_t n = result->costs.worker_count;
    double up[RT_WORKERS_MAX], down[RT_WORKERS_MAX], samples[RT_WORKERS_MAX];
    rt_json_begin_array(json, "ops_by_worker");
    for (uint32_t j = 0; j < n; j++) {
        rt_counts_write(json, NULL, &account->workers[j], scale);
        up[j] = (double)account->traffic[j].up * scale;
        down[j] = (double)account->traffic[j].down * scale;
        samples[j] = (double)account->micro_batch[j] * scale;
    }
    rt_json_end_array(json);
    rt_json_doubles(json, "bytes_up", up, n);
    rt_json_doubles(json, "bytes_down", down, n);
    rt_json_doubles(json, "micro_batch", samples, n);
    cli_boxes_write(json, account, result->costs.boxes.count);
}

static void write_clocks(rt_json *json, const dp_clocks *clocks, double scale)
{
    rt_json_begin_object(json, "staleness");
    rt_json_double(json, "stale_keys", (double)clocks->stale_keys * scale);
    rt_json_double(json, "clock_messages", (double)clocks->clock_messages * scale);
    rt_json_u64(json, "clock_spread", clocks->clock_spread);
    rt_json_end_object(json);
}

static void write_run(rt_json *json, const sim_run *runs, uint32_t count, const sim_run *run)
{
    const dp_sim_result *result = &run->result;
    const dp_account *account = &result->account;
    rt_counts counts = dp_account_counts(account, result->costs.worker_count);
    double scale = per_iteration(account);
    rt_json_begin_object(json, NULL);
    rt_json_string(json, "policy", run->spec);
    rt_json_u64(json, "iterations", account->iterations);
    rt_json_double(json, "cost", cost_of(result));
    rt_json_double(json, "cost_ms",
                   dp_account_cost_s(account, result->costs.worker_count) * 1e3 * scale);
    rt_json_double(json, "reduction_vs_laia", reduction_vs_laia(runs, count, run));
    rt_counts_write(json, "ops", &counts, scale);
    write_by_worker(json, result);
    rt_json_double(
        json, "dense_bytes",
        dp_account_dense_bytes(&result->costs, result->warmup_iterations, account->iterations));
    rt_json_double(json, "reduce_bytes", (double)result->reduce_bytes * scale);
    rt_json_double(json, "reduce_critical_bytes", (double)result->reduce_critical_bytes * scale);
    rt_json_double(json, "rows_handed", (double)account->handed.rows * scale);
    rt_json_double(json, "gradients_handed", (double)account->handed.gradients * scale);
    rt_json_double(json, "window_rows", (double)result->window_rows * scale);
    rt_json_double(json, "window_batches", (double)result->window_batches * scale);
    rt_json_double(json, "predicted_iteration_ms", account->predicted_s * 1e3 * scale);
    rt_json_begin_object(json, "hit_ratio");
    rt_json_double(json, "lookups",
                   (double)account->hits.lookups_hit / (double)account->hits.lookups);
    rt_json_double(json, "keys", (double)account->hits.keys_hit / (double)account->hits.keys);
    rt_json_end_object(json);
    if (run->is_bounded)
        write_clocks(json, &account->clocks, scale);
    char fingerprint[32];
    snprintf(fingerprint, sizeof fingerprint, "%016" PRIx64, result->fingerprint);
    rt_json_string(json, "plan_fingerprint", fingerprint);
    rt_json_begin_array(json, "participants");
    for (uint64_t rest = result->participants; rest; rest &= rest - 1)
        rt_json_u64(json, NULL, rt_lowest_bit(rest));
    rt_json_end_array(json);
    if (run->best.workers) {
        rt_json_begin_object(json, "best_fixed_set");
        rt_json_begin_array(json, "participants");
        for (uint64_t rest = run->best.workers; rest; rest &= rest - 1)
            rt_json_u64(json, NULL, rt_lowest_bit(rest));
        rt_json_end_array(json);
        rt_json_double(json, "predicted_iteration_ms", run->best.predicted_s * 1e3);
        rt_json_u64(json, "sets", run->best.tried);
        rt_json_end_object(json);
    }
    if (run->own_table_bytes) {
        rt_json_begin_object(json, "own_table");
        rt_json_double(json, "predicted_iteration_ms", run->own_table_s * 1e3);
        rt_json_u64(json, "row_bytes", run->own_table_bytes);
        rt_json_end_object(json);
    }
    dp_decisions_write(&result->decisions, dp_account_unit_s(&result->costs), json);
    rt_json_double(json, "distinct_keys", (double)account->hits.distinct * scale);
    rt_json_u64(json, "cache_rows", result->slot_count);
    rt_json_u64(json, "sweeps", result->sweeps);
    rt_json_u64(json, "rows_ended", result->rows_ended);
    rt_json_double(json, "decision_ms_p50", result->decision_ms_p50);
    rt_json_double(json, "decision_ms_p99", result->decision_ms_p99);
    rt_json_double(json, "decision_ms_max", result->decision_ms_max);
    rt_json_double(json, "commit_ms_p50", result->commit_ms_p50);
    rt_json_double(json, "planned_samples_per_s", result->planned_samples_per_s);
    rt_json_u64(json, "directory_keys", result->directory_keys);
    rt_json_u64(json, "directory_bytes", result->directory_bytes);
    rt_json_end_object(json);
}

static int print_json(const sim_run *runs, uint32_t count)
{
    rt_json json;
    rt_json_init(&json, 2);
    rt_json_begin_object(&json, NULL);
    rt_json_begin_array(&json, "runs");
    for (uint32_t i = 0; i < count; i++)
        write_run(&json, runs, count, &runs[i]);
    rt_json_end_array(&json);
    rt_json_end_object(&json);
    const char *text = rt_json_text(&json, NULL);
    if (text)
        (void)puts(text); // main looks whether it was printed
    const int code = text ? CLI_OK : CLI_FAILED;
    rt_json_fini(&json);
    return code;
}

static void print_ranks(uint64_t workers)
{
    for (uint64_t rest = workers; rest; rest &= rest - 1)
        printf(" %u", rt_lowest_bit(rest));
}

// Who trains in the end, where that is not everybody.
static void print_participants(const sim_run *run)
{
    const dp_sim_result *result = &run->result;
    if (result->participants == rt_bits_below(result->costs.worker_count))
        return;
    printf("%s: in the end %u of %" PRIu32 " workers train:", run->spec,
           rt_bit_count(result->participants), result->costs.worker_count);
    print_ranks(result->participants);
    printf("\n");
}

// A decision is longest while participants are searched beside it.
static void print_longest(const sim_run *run)
{
    if (run->is_chosen)
        printf("%s: the longest decision took %.2f ms, with the choice of participants; median "
               "%.2f\n",
               run->spec, run->result.decision_ms_max, run->result.decision_ms_p50);
}

static double predicted_s(const sim_run *run)
{
    return run->result.account.predicted_s * per_iteration(&run->result.account);
}

static void print_best_set(const sim_run *run)
{
    if (run->best.workers == 0)
        return;
    printf("%s: the best of %" PRIu32 " fixed sets of workers,", run->spec, run->best.tried);
    print_ranks(run->best.workers);
    const double own = predicted_s(run), best = run->best.predicted_s;
    const double more = own == best ? 0 : 100 * (own / best - 1);
    printf(", takes %.2f ms; this takes ", best * 1e3);
    if (isfinite(more))
        printf("%.1f%% %s\n", fabs(more), more < 0 ? "less" : "more");
    else // nothing moves with the best one
        printf("%.2f ms\n", own * 1e3);
}

static void print_own_table(const sim_run *run)
{
    if (run->own_table_bytes == 0)
        return;
    printf("(one box, its own table): no row moves; ");
    if (run->own_table_s > 0)
        printf("computing takes %.2f ms", run->own_table_s * 1e3);
    else
        printf("it computes only, for a time that sim.compute_us_per_sample does not say");
    printf("; the rows of %" PRIu64 " keys are %.2f GB\n", run->result.directory_keys,
           (double)run->own_table_bytes * 1e-9);
}

// What a design of dp_peers.h does beside transfers of the parameter servers.
static void print_peer(const sim_run *run)
{
    const dp_sim_result *result = &run->result;
    const double scale = per_iteration(&result->account);
    if (!result->reduce_bytes)
        return;
    printf("%s: workers sum %.2f MB of rows among themselves", run->spec,
           (double)result->reduce_bytes * 1e-6 * scale);
    if (result->window_batches)
        printf(", %.2f MB before the next iteration; a window of %.1f batches has %.0f rows",
               (double)result->reduce_critical_bytes * 1e-6 * scale,
               (double)result->window_batches * scale, (double)result->window_rows * scale);
    printf("\n");
}

static void print_table(const rt_config *config, const sim_run *runs, uint32_t count)
{
    const dp_sim_result *first = &runs[0].result;
    printf("%" PRIu64 " iterations of %u samples after %" PRIu64 " of warm-up, %u workers, "
           "%" PRIu32 " cache rows each\n",
           first->account.iterations,
           (unsigned)(first->account.samples / first->account.iterations), first->warmup_iterations,
           first->costs.worker_count, first->slot_count);
    printf("per iteration; cost: rows on the fastest link\n\n");
    printf("%-34s %9s %8s %8s %8s %8s %8s %8s %6s %9s %9s %10s\n", "policy", "cost", "vs laia",
           "misspull", "updpush", "evipush", "grdpush", "1sttouch", "hits%", "predicted",
           "decision", "planned/s");
    for (uint32_t i = 0; i < count; i++) {
        const dp_sim_result *result = &runs[i].result;
        const dp_account *account = &result->account;
        rt_counts counts = dp_account_counts(account, result->costs.worker_count);
        double scale = per_iteration(account), reduction = reduction_vs_laia(runs, count, &runs[i]);
        char versus[16] = "";
        if (!isnan(reduction))
            snprintf(versus, sizeof versus, "%+.1f%%", 100 * (0 - reduction)); // never "-0.0%"
        printf("%-34s %9.0f %8s %8.0f %8.0f %8.0f %8.0f %8.0f %6.1f %6.2f ms %6.3f ms %10.0f\n",
               runs[i].spec, cost_of(result), versus, (double)counts.miss_pull * scale,
               (double)counts.update_push * scale, (double)counts.evict_push * scale,
               (double)counts.grad_push * scale, (double)counts.first_touch * scale,
               100 * (double)account->hits.lookups_hit /
                   (double)rt_max_u64(1, account->hits.lookups),
               account->predicted_s * 1e3 * scale, result->decision_ms_p50,
               result->planned_samples_per_s);
    }
    for (uint32_t i = 0; i < count; i++) {
        print_participants(&runs[i]);
        print_longest(&runs[i]);
        print_best_set(&runs[i]);
        print_own_table(&runs[i]);
        print_peer(&runs[i]);
        if (runs[i].result.costs.boxes.count)
            cli_boxes_print(runs[i].spec, config, &runs[i].result.account);
    }
}

static rt_status run_peer(const dp_sim_config *sim, const dp_peer *peer, sim_run *run,
                          rt_error *error)
{
    if (sim->config->box_count)
        return rt_fail(error, RT_CONFIG, "boxes: %s has one link for each worker, none for shards",
                       run->spec);
    const rt_status status = rt_config_check(sim->config, error);
    if (status)
        return status;
    run->policy = RT_POLICY_RANDOM;
    run->is_bounded = sim->config->consistency.bounded;
    if (sim->progress)
        fprintf(stderr, "%s\n", run->spec);
    return dp_peer_run(sim, peer, &run->result, error);
}

static rt_status run_policy(const dp_sim_config *sim, bool fixed_sets, sim_run *run,
                            rt_error *error)
{
    const rt_config *config = sim->config;
    rt_status status = rt_config_check(config, error);
    if (status)
        return status;
    run->policy = config->dispatch.policy;
    run->is_bounded = config->consistency.bounded;
    run->is_chosen = config->dispatch.participants == RT_PARTICIPANTS_AUTO;
    run->is_plain = dp_policy_can(run->policy, DP_POLICY_REFERENCE) &&
                    config->dispatch.tables == 0 && config->dispatch.budget_ms == 0;
    if (sim->progress)
        fprintf(stderr, "%s\n", run->spec);
    status = dp_sim_run(sim, &run->result, error);
    if (status || !fixed_sets)
        return status;
    return dp_fixed_best(sim, &run->best, error);
}

// What a spec says: a design that is simulated only, or values for a run. "": those of the configuration.
static rt_status run_spec(rt_config *config, const dp_sim_config *sim, bool fixed_sets,
                          sim_run *run, rt_error *error)
{
    dp_peer peer;
    rt_status status = RT_NOT_FOUND;
    if (!dp_policy_is_named(run->spec)) // by itself; its designs are simulated only
        status = dp_peer_parse(run->spec, &peer, error);
    if (!status)
        return run_peer(sim, &peer, run, error);
    if (status != RT_NOT_FOUND)
        return status;
    if (run->spec[0])
        status = dp_sim_apply_spec(config, run->spec, error);
    else
        status = RT_OK;
    if (status)
        return status;
    if (!run->spec[0])
        snprintf(run->spec, sizeof run->spec, "%s", "(config)");
    return run_policy(sim, fixed_sets, run, error);
}

static rt_status run_one(const rt_config *base, dp_sim_config sim, bool fixed_sets, sim_run *run,
                         rt_error *error)
{
    rt_config config;
    if (rt_config_copy(base, &config))
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    sim.config = &config;
    const rt_status status = run_spec(&config, &sim, fixed_sets, run, error);
    rt_config_fini(&config);
    return status;
}

// The same box with the table in its own memory: all that is left of an iteration is computing.
static void set_own_table(const rt_config *config, const dp_sim_config *sim, sim_run *run)
{
    const uint32_t dim = config->model.embedding_dim; // the largest
    const uint64_t floats = dim + rt_optimizer_state_floats(&config->optimizer_rows, dim);
    run->own_table_s = config->compute_us_per_sample * 1e-6 * rt_config_share(config);
    run->own_table_bytes =
        rt_max_u64(run->result.directory_keys, sim->distinct_keys) * floats * sizeof(float);
}

// All samples on the box with the fastest link, with one worker's cache (or as much as a batch
// needs): nothing is synchronised, only cache misses move. What several boxes must beat. With one
// worker every policy places alike.
static rt_status run_one_box(const rt_config *base, dp_sim_config sim, sim_run *run,
                             rt_error *error)
{
    rt_config config;
    uint32_t fastest = 0, batch = rt_config_batch(base, base->worker_count);
    if (rt_config_copy(base, &config))
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    for (uint32_t j = 1; j < base->worker_count; j++) {
        if (base->links.workers[j].gbps_down > base->links.workers[fastest].gbps_down)
            fastest = j;
    }
    config.links.workers[0] = base->links.workers[fastest];
    config.links.given_count = 1;
    config.box_count = 0;
    config.worker_count = 1;
    config.samples_per_worker = base->samples_per_worker ? batch : 0;
    config.cache.rows =
        rt_max_u64(run->result.slot_count, (uint64_t)batch * sim.schema->keys_per_sample_max);
    config.dispatch.policy = run->policy = RT_POLICY_ESD;
    sim.config = &config;
    sim.trace = NULL;
    sim.placements = NULL;
    sim.inputs = NULL; // they are about all workers
    sim.journal = NULL;
    snprintf(run->spec, sizeof run->spec, "%s", "(one box)");
    rt_status status = dp_sim_run(&sim, &run->result, error);
    if (!status)
        set_own_table(&config, &sim, run);
    rt_config_fini(&config);
    return status;
}

static bool reads_once(const rt_config *config)
{
    return !rt_format_is_generated(config->stream.format) &&
           !rt_stream_is_countable(&config->stream);
}

// Fewer boxes can win where communication dominates, so a policy that lowers the time of an
// iteration is shown beside one.
static bool wants_one_box(const rt_config *config, const sim_run *runs, uint32_t count)
{
    for (uint32_t i = 0; i < count && config->worker_count > 1 && !reads_once(config); i++) {
        if (dp_policy_can(runs[i].policy, DP_POLICY_TIME))
            return true;
    }
    return false;
}

static rt_status run_all(const rt_config *config, sim_run *runs, uint32_t *count_p,
                         dp_sim_config sim, bool fixed_sets, rt_error *error)
{
    uint32_t count = *count_p;
    rt_schema schema;
    sim.schema = &schema;
    sim.progress = isatty(STDERR_FILENO);
    if (reads_once(config) && (count > 1 || fixed_sets))
        return rt_fail(error, RT_CONFIG,
                       "standard input and pipes can be read only once: name one policy, and no "
                       "--fixed-sets");
    rt_status status = cli_schema(config, &schema, error);
    if (status)
        return status;
    if (config->sim_dense)
        status = cli_dense_bytes(config, &schema, &sim.dense_bytes, error);
    if (status)
        return status;
    if (dp_setup_needs_keys(config))
        status = rt_stream_count_keys(&config->stream, config->seed, &sim.distinct_keys, error);
    if (status)
        return status;
    for (uint32_t i = 0; i < *count_p; i++) {
        status = run_one(config, sim, fixed_sets, &runs[i], error);
        if (status)
            return status;
    }
    if (!wants_one_box(config, runs, *count_p))
        return RT_OK;
    runs[*count_p].result.slot_count = runs[0].result.slot_count;
    return run_one_box(config, sim, &runs[(*count_p)++], error);
}

// Files that a simulation writes beside its result.
typedef struct {
    const char *trace, *placements;
} output_paths;

static rt_status open_outputs(const output_paths *paths, uint32_t run_count, dp_sim_config *sim,
                              rt_error *error)
{
    if (sim->journal && run_count > 1)
        return rt_fail(error, RT_CONFIG, "--journal: expected one policy, found %u", run_count);
    if (paths->placements && run_count > 1)
        return rt_fail(error, RT_CONFIG, "--placements: expected one policy, found %u", run_count);
    if (paths->trace && !(sim->trace = fopen(paths->trace, "w")))
        return rt_fail(error, RT_IO, "%s: %s", paths->trace, strerror(errno));
    if (paths->placements && !(sim->placements = fopen(paths->placements, "w")))
        return rt_fail(error, RT_IO, "%s: %s", paths->placements, strerror(errno));
    return RT_OK;
}

static void close_output(FILE *file, const char *path, rt_status *status, rt_error *error)
{
    bool failed = file && ferror(file);
    if (file && (fclose(file) != 0 || failed) && !*status)
        *status = rt_fail(error, RT_IO, "%s: %s", path, strerror(errno));
}

int cli_sim(int argc, char **argv)
{
    static sim_run runs[RUNS_MAX + 1]; // 33 x 21 KB: too much for a stack
    const char *path = NULL, *policies = NULL, *records = NULL;
    output_paths paths = {0};
    const char *sets[CLI_SETS_MAX];
    uint32_t set_count, count = 1;
    bool json = false, fixed_sets = false;
    rt_config config;
    rt_error error = {0};
    dp_sim_config sim = {0};
    dp_inputs inputs = {0};
    const cli_option options[] = {
        {"policies", &policies, NULL},           {"trace", &paths.trace, NULL},
        {"placements", &paths.placements, NULL}, {"records", &records, NULL},
        {"journal", &sim.journal, NULL},         {"json", NULL, &json},
        {"fixed-sets", NULL, &fixed_sets}};
    if (!cli_parse(argc, argv, options, RT_COUNT_OF(options), &path, sets, &set_count) ||
        (policies && !split_specs(policies, runs, &count)))
        return CLI_USAGE;
    int code = cli_load(path, sets, set_count, "lanyard", &config);
    if (code != CLI_OK)
        return code;
    rt_config_leave_spares(&config);
    rt_status status = cli_end_input(&config, config.sim_iterations > 0, &error);
    if (!status && records) {
        status = dp_inputs_load(records, config.worker_count, &inputs, &error);
        sim.inputs = &inputs;
    }
    if (!status)
        status = open_outputs(&paths, count, &sim, &error);
    if (!status)
        status = run_all(&config, runs, &count, sim, fixed_sets, &error);
    dp_inputs_fini(&inputs);
    close_output(sim.trace, paths.trace, &status, &error);
    close_output(sim.placements, paths.placements, &status, &error);
    if (status)
        code = cli_fail(&error);
    else if (json)
        code = print_json(runs, count);
    else
        print_table(&config, runs, count);
    rt_config_fini(&config);
    return code;
}
