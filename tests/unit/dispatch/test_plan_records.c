// Plans of short simulations, one for each way of planning that there is, against those that were
// recorded (tests/golden/plans.golden): the same configuration, stream and records give the same
// plans, in every build and on every machine. What plans have to be, other tests say; this one
// notices that they became others.
//
// A change that is to make other plans: LANYARD_UPDATE_GOLDEN=1 writes the file anew. It begins
// with what was wanted, a line for each simulation, so that a new one is a new line with a colon.
#include "dispatch/sim/dp_peers.h"
#include "runtime/config/rt_policies.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/rt_hash.h"
#include "tests/support/config_case.h"
#include "tests/support/records.h"
#include "tests/support/test.h"

#define GOLDEN "tests/golden/plans.golden"
#define LINE_MAX_BYTES 1024u
#define PARTS 8u // of the file, each a case

// What a run would have learned on its way. All of it comes before the batch that it names.
static dp_input records[] = {
    {.iteration = 4, .kind = DP_INPUT_LINK_UP, .worker = 1, .value = 2e7},
    {.iteration = 4, .kind = DP_INPUT_LINK_DOWN, .worker = 3, .value = 9e8},
    {.iteration = 6, .kind = DP_INPUT_COMPUTE, .worker = 0, .value = 4e-5},
    {.iteration = 6, .kind = DP_INPUT_COMPUTE, .worker = 2, .value = 1e-5},
    {.iteration = 8, .kind = DP_INPUT_ALPHA, .value = 0.75},
    {.iteration = 8, .kind = DP_INPUT_SEARCH_EVALUATIONS, .value = 700},
    {.iteration = 8, .kind = DP_INPUT_TABLES, .value = 9},
    {.iteration = 9, .kind = DP_INPUT_PS_LINK, .value = 6e7},
    {.iteration = 10, .kind = DP_INPUT_SHARD_LINK, .worker = 0, .value = 3e7},
    {.iteration = 12, .kind = DP_INPUT_POLICY, .value = 1}, // laia
    {.iteration = 15, .kind = DP_INPUT_POLICY, .value = 4}, // makespan
};
static const dp_short_batch short_batches[] = {{5, 41}, {13, 3}};

// "key=value" parts, separated by spaces; records=true: those above; peer=SPEC: another system.
static dp_sim_config configure(char *sets, rt_config *config, const dp_inputs *inputs,
                               const char **peer)
{
    dp_sim_config sim = {.config = config, .dense_bytes = 6000};
    static const char *const common[] = {"stream.format=synthetic",
                                         "stream.samples_max=1100",
                                         "stream.synthetic.scale=0.002",
                                         "batch.samples_per_worker=12",
                                         "cache.rows=420",
                                         "links.workers=[5,5,0.5,0.5]",
                                         "sim.warmup=3",
                                         "planner.threads=1"};
    for (size_t i = 0; i < RT_COUNT_OF(common); i++)
        config_must_set(config, common[i]);
    for (char *rest = NULL, *set = strtok_r(sets, " \n", &rest); set;
         set = strtok_r(NULL, " \n", &rest)) {
        if (strcmp(set, "records=true") == 0)
            sim.inputs = inputs;
        else if (strncmp(set, "peer=", 5) == 0)
            *peer = set + 5;
        else
            config_must_set(config, set);
    }
    return sim;
}

// What was recorded has a seventh number of every worker, of an operation that is gone: always 0.
#define SEVENTH ",\"pull_sum\":0}\n"

static uint64_t hash_of(FILE *file)
{
    uint64_t sum = 0;
    char line[8192 + sizeof SEVENTH];
    rewind(file);
    while (fgets(line, 8192, file)) {
        char *end = strstr(line, "}\n");
        if (end)
            memcpy(end, SEVENTH, sizeof SEVENTH);
        sum = rt_mix(sum ^ rt_hash_bytes(line, strlen(line)));
    }
    (void)fclose(file);
    return sum;
}

static uint64_t hash_of_counts(const dp_sim_result *result)
{
    const dp_account *account = &result->account;
    uint64_t sum = rt_mix(result->reduce_bytes) ^ result->reduce_critical_bytes;
    uint64_t workers[RT_WORKERS_MAX][7] = {{0}};
    _Static_assert(sizeof account->workers[0] == 6 * sizeof(uint64_t), "all but the seventh");
    for (uint32_t w = 0; w < RT_WORKERS_MAX; w++)
        memcpy(workers[w], &account->workers[w], sizeof account->workers[w]);
    sum = rt_mix(sum ^ result->window_rows) + result->window_batches;
    sum = rt_mix(sum ^ rt_hash_bytes(workers, sizeof workers));
#define ADD(part) sum = rt_mix(sum ^ rt_hash_bytes(&account->part, sizeof account->part))
    ADD(traffic);
    ADD(micro_batch);
    ADD(hits);
    ADD(boxes.up);
    ADD(boxes.down);
    ADD(moved);
    ADD(handed);
#undef ADD
    sum = rt_mix(sum ^ account->clocks.stale_keys) + account->clocks.clock_spread;
    return rt_mix(sum ^ account->clocks.clock_messages);
}

// What holds of every plan, whatever is recorded: who makes the file anew records no plan that
// breaks it. The samples that lines of `placements` name are those that lines of `trace` count, of
// every worker and iteration, none beyond what a worker may get; and all samples of the stream are
// among them, in iterations one after another.
static void must_hold(const dp_sim_config *sim)
{
    const rt_config *config = sim->config;
    FILE *placements = sim->placements, *trace = sim->trace;
    static uint32_t placed[1200][RT_WORKERS_MAX];
    const bool is_free = sim->inputs != NULL || // other policies, too
                         (config->dispatch.policy == RT_POLICY_MAKESPAN &&
                          config->dispatch.micro_batches == RT_MICRO_BATCH_FREE);
    const bool is_even = !is_free && config->dispatch.participants == RT_PARTICIPANTS_ALL;
    const uint32_t most = config->samples_per_worker * (is_even ? 1 : config->worker_count);
    char line[8192];
    uint32_t worker, iteration, count, samples = 0, last = 0, traced = 0;
    memset(placed, 0, sizeof placed);
    rewind(placements);
    for (; fgets(line, sizeof line, placements); samples++) {
        if (!strchr(line, '\n')) // a long line goes on
            fail_msg("a longer line than %zu bytes", sizeof line);
        assert_int_equal(sscanf(line, "%u %u", &iteration, &worker), 2);
        assert_true(iteration >= last && iteration <= last + 1 && iteration < RT_COUNT_OF(placed));
        assert_true(worker < config->worker_count);
        placed[iteration][worker]++;
        last = iteration;
    }
    assert_int_equal(samples, config->stream.samples_max);
    rewind(trace);
    while (fgets(line, sizeof line, trace)) {
        if (sscanf(line, "{\"iteration\":%u,\"worker\":%u,\"samples\":%u,", &iteration, &worker,
                   &count) != 3)
            continue;
        assert_true(iteration < RT_COUNT_OF(placed) && worker < config->worker_count);
        assert_int_equal(count, placed[iteration][worker]);
        assert_true(count <= most);
        traced += count;
    }
    assert_int_equal(traced, samples);
}

// All that a simulation says, but for how long it took.
static void describe(char *sets, char *line, size_t size)
{
    const dp_inputs inputs = {.items = records,
                              .count = RT_COUNT_OF(records),
                              .batches = (dp_short_batch *)(uintptr_t)short_batches,
                              .batch_count = RT_COUNT_OF(short_batches)};
    rt_config config = config_fresh();
    rt_stream *stream;
    rt_error error = {0};
    dp_sim_result r;
    const char *spec = NULL;
    dp_peer peer;
    dp_sim_config sim = configure(sets, &config, &inputs, &spec);
    assert_int_equal(rt_stream_open(&config.stream, config.seed, &stream, NULL), RT_OK);
    const rt_schema schema = *rt_stream_schema(stream);
    rt_stream_close(stream);
    sim.schema = &schema;
    sim.trace = tmpfile();
    sim.placements = tmpfile();
    assert_true(sim.trace && sim.placements);
    if (rt_config_check(&config, &error) || (spec && dp_peer_parse(spec, &peer, &error)) ||
        (spec ? dp_peer_run(&sim, &peer, &r, &error) : dp_sim_run(&sim, &r, &error)))
        fail_msg("%s", error.text);
    if (!spec)
        must_hold(&sim);
    snprintf(line, size,
             "%016" PRIx64 " %016" PRIx64 " %016" PRIx64 " %016" PRIx64 " %" PRIx64 " %" PRIu64
             " %" PRIu64 " %.9g %.9g %.9g %.9g",
             r.fingerprint, hash_of(sim.trace), hash_of(sim.placements), hash_of_counts(&r),
             r.participants, r.directory_keys, r.rows_ended,
             dp_account_cost_s(&r.account, config.worker_count), r.account.predicted_s,
             r.decisions.error_bound_s, r.decisions.error_s);
    rt_config_fini(&config);
}

// The file's lines, each ended: sets, a colon, and what is recorded.
static char *next_line(FILE *file, char *line)
{
    while (fgets(line, LINE_MAX_BYTES, file)) {
        line[strcspn(line, "\n")] = '\0';
        if (*line && *line != '#')
            return line;
    }
    return NULL;
}

static void check_part(uint32_t part)
{
    char line[LINE_MAX_BYTES], sets[LINE_MAX_BYTES], got[LINE_MAX_BYTES];
    uint32_t number = 0, wrong = 0, checked = 0;
    FILE *file = fopen(GOLDEN, "r");
    assert_non_null(file);
    for (; next_line(file, line); number++) {
        if (number % PARTS != part)
            continue;
        char *colon = strstr(line, " : ");
        assert_non_null(colon);
        snprintf(sets, sizeof sets, "%.*s", (int)(colon - line), line);
        describe(sets, got, sizeof got);
        checked++;
        if (strcmp(got, colon + 3) == 0)
            continue;
        wrong++;
        printf("%.*s\n  recorded %s\n  now      %s\n", (int)(colon - line), line, colon + 3, got);
    }
    (void)fclose(file);
    assert_true(checked > 5);
    if (wrong)
        fail_msg("%u of %u simulations plan otherwise than recorded in " GOLDEN, wrong, checked);
}

// Writes the file anew, and says so.
static int record(void)
{
    char line[LINE_MAX_BYTES], sets[LINE_MAX_BYTES], got[LINE_MAX_BYTES];
    rt_bytes all = {0};
    FILE *file = fopen(GOLDEN, "r");
    while (file && fgets(line, sizeof line, file)) {
        char *colon = strstr(line, " :");
        if (*line == '#' || !colon) {
            rt_bytes_put(&all, line, strlen(line));
            continue;
        }
        snprintf(sets, sizeof sets, "%.*s", (int)(colon - line), line);
        rt_bytes_put(&all, line, (size_t)(colon - line));
        const bool had_one = colon[2] == ' ';
        describe(sets, got, sizeof got);
        if (had_one && strncmp(colon + 3, got, strlen(got)) != 0)
            printf("%.*s\n  recorded %s  now      %s\n", (int)(colon - line), line, colon + 3, got);
        rt_bytes_put(&all, " : ", 3);
        rt_bytes_put(&all, got, strlen(got));
        rt_bytes_put(&all, "\n", 1);
    }
    if (file)
        (void)fclose(file);
    file = fopen(GOLDEN, "w");
    const bool ok = file && !all.failed && fwrite(all.data, 1, all.size, file) == all.size;
    if (file && fclose(file) == 0 && ok)
        printf("wrote %s\n", GOLDEN);
    rt_bytes_fini(&all);
    return ok ? 0 : 1;
}

int main(int argc, char **argv)
{
    if (getenv("LANYARD_UPDATE_GOLDEN"))
        return record();
    return records_run(PARTS, 0, check_part, argc, argv);
}
