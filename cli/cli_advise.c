// `lanyard advise`: which configuration is fastest on the user's own stream and links.
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "dispatch/planner/dp_setup.h"
#include "dispatch/sim/dp_advise.h"
#include "runtime/numbers/rt_optimizer.h"
#include "runtime/rt_json.h"

#define ITERATIONS 48u // of each simulation
#define SHOWN 10u      // lines of the table

// What of the model is certain (docs/POLICIES.md). Every policy trains the same synchronous one.
#define SAME "same model"

static const char *guarantee(const dp_advice *one, char *text, size_t size)
{
    if (one->consistency.staleness == 0)
        return SAME;
    snprintf(text, size, "within %" PRIu32, one->consistency.staleness);
    return text;
}

static bool read_iterations(const char *text, uint32_t *iterations_p)
{
    char *end;
    const unsigned long value = strtoul(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || value < DP_ADVICE_ITERATIONS_MIN || value > 1000000) {
        fprintf(stderr,
                "lanyard advise: --iterations \"%s\": expected a number from %u to 1000000\n", text,
                DP_ADVICE_ITERATIONS_MIN);
        return false;
    }
    *iterations_p = (uint32_t)value;
    return true;
}

// What the box needs that has the table on it, and how fast it would be.
typedef struct {
    uint64_t row_bytes;
    double compute_s; // per iteration; 0: not known
} own_table;

static own_table own_table_of(const rt_config *config, const dp_advices *advices)
{
    const uint32_t dim = config->model.embedding_dim; // the largest
    const uint64_t floats = dim + rt_optimizer_state_floats(&config->optimizer_rows, dim);
    const double samples = rt_config_batch(config, config->worker_count);
    return (own_table){advices->keys * floats * sizeof(float),
                       config->compute_us_per_sample * 1e-6 * samples};
}

static void print_settings(const char *what, const dp_advice *one)
{
    printf("%s", what);
    for (uint32_t l = 0; l < DP_ADVICE_LINES; l++)
        printf("%s%s", *one->lines[l] ? " --set " : "", one->lines[l]);
    printf("\n");
}

static void print_table(const rt_config *config, const dp_advices *advices)
{
    const own_table own = own_table_of(config, advices);
    printf("%" PRIu32 " configurations, %" PRIu64 " iterations simulated in all", advices->count,
           advices->iterations);
    if (advices->too_small)
        printf("; %" PRIu32 " left out, their caches would not hold a micro-batch",
               advices->too_small);
    if (advices->refused)
        printf("; %" PRIu32 " of values that do not go together", advices->refused);
    if (advices->too_short)
        printf("; %" PRIu32 " for which the input is too short", advices->too_short);
    printf("\n\n%10s %12s %10s %6s  %-11s %s\n", "iter/s", "MB/iter", "cache MB", "boxes",
           "guaranteed", "configuration");
    for (uint32_t i = 0; i < advices->count && i < SHOWN; i++) {
        const dp_advice *one = &advices->items[i];
        char text[32];
        if (one->predicted_s > 0)
            printf("%10.2f", 1 / one->predicted_s);
        else // one box, and nothing moves
            printf("%10s", "?");
        printf(" %12.2f %10.1f %6u  %-11s", one->bytes * 1e-6, (double)one->cache_bytes * 1e-6,
               rt_bit_count(one->participants), guarantee(one, text, sizeof text));
        for (uint32_t l = 0; l < DP_ADVICE_LINES; l++)
            printf("%s%s", *one->lines[l] ? " " : "", one->lines[l]);
        printf("\n");
    }
    if (own.compute_s > 0)
        printf("%10.2f", 1 / own.compute_s);
    else
        printf("%10s", "?");
    printf(" %12.2f %10.1f %6u  %-11s one box with its own table", 0.0,
           (double)own.row_bytes * 1e-6, 1, SAME);
    printf(own.compute_s > 0 ? ": computing alone\n"
                             : ": computing alone; sim.compute_us_per_sample is not given\n");
    printf("\n");
    print_settings("To take the first:", &advices->items[0]);
    uint32_t strict = 0;
    while (strict < advices->count && advices->items[strict].consistency.staleness > 0)
        strict++;
    if (strict > 0 && strict < advices->count)
        print_settings("The first without stale reads:", &advices->items[strict]);
}

// What was measured of batches of 256 and of 1,024 samples: docs/results/learning.md, "Batches".
#define COST_MIN "0.0"
#define COST_MAX "1.1"

// A larger batch is faster, and learns later.
static void print_batch(const dp_advice_batch *batch)
{
    printf("Batches %u times as large, --set %s%s%s: %.2f times as many samples/s; 1,024 samples "
           "in place of 256 cost " COST_MIN " to " COST_MAX "%% of log loss where it was "
           "measured\n",
           DP_ADVICE_BATCH, batch->lines[0], *batch->lines[1] ? " --set " : "", batch->lines[1],
           batch->rate);
}

static void write_batch(rt_json *json, const dp_advice_batch *batch)
{
    rt_json_begin_object(json, "larger_batch");
    rt_json_begin_array(json, "set");
    for (uint32_t l = 0; l < RT_COUNT_OF(batch->lines); l++)
        if (*batch->lines[l])
            rt_json_string(json, NULL, batch->lines[l]);
    rt_json_end_array(json);
    rt_json_double(json, "samples_per_s_ratio", batch->rate);
    rt_json_end_object(json);
}

static void write_advice(rt_json *json, const dp_advice *one)
{
    char text[32];
    rt_json_begin_object(json, NULL);
    rt_json_begin_array(json, "set");
    for (uint32_t l = 0; l < DP_ADVICE_LINES; l++)
        if (*one->lines[l])
            rt_json_string(json, NULL, one->lines[l]);
    rt_json_end_array(json);
    rt_json_double(json, "iterations_per_s", 1 / one->predicted_s);
    rt_json_double(json, "predicted_iteration_ms", one->predicted_s * 1e3);
    rt_json_double(json, "bytes", one->bytes);
    rt_json_u64(json, "cache_bytes", one->cache_bytes);
    rt_json_begin_array(json, "participants");
    for (uint64_t rest = one->participants; rest; rest &= rest - 1)
        rt_json_u64(json, NULL, rt_lowest_bit(rest));
    rt_json_end_array(json);
    rt_json_string(json, "guaranteed", guarantee(one, text, sizeof text));
    rt_json_end_object(json);
}

static int print_json(const rt_config *config, const dp_advices *advices,
                      const dp_advice_batch *batch)
{
    const own_table own = own_table_of(config, advices);
    rt_json json;
    rt_json_init(&json, 2);
    rt_json_begin_object(&json, NULL);
    rt_json_u64(&json, "iterations", advices->iterations);
    rt_json_u64(&json, "too_small", advices->too_small);
    rt_json_u64(&json, "refused", advices->refused);
    rt_json_u64(&json, "too_short", advices->too_short);
    rt_json_begin_array(&json, "configurations");
    for (uint32_t i = 0; i < advices->count; i++)
        write_advice(&json, &advices->items[i]);
    rt_json_end_array(&json);
    rt_json_begin_object(&json, "own_table");
    rt_json_u64(&json, "row_bytes", own.row_bytes);
    rt_json_double(&json, "predicted_iteration_ms", own.compute_s * 1e3);
    rt_json_end_object(&json);
    if (batch)
        write_batch(&json, batch);
    rt_json_end_object(&json);
    const char *text = rt_json_text(&json, NULL);
    if (text)
        (void)puts(text); // main looks whether it was printed
    const int code = text ? CLI_OK : CLI_FAILED;
    rt_json_fini(&json);
    return code;
}

static rt_status prepare(const rt_config *config, rt_schema *schema, dp_sim_config *sim,
                         rt_error *error)
{
    *sim = (dp_sim_config){.config = config, .schema = schema, .progress = isatty(STDERR_FILENO)};
    if (!rt_format_is_generated(config->stream.format) && !rt_stream_is_countable(&config->stream))
        return rt_fail(error, RT_CONFIG,
                       "stream.files: standard input and pipes can be read only once, expected "
                       "files that every simulation can read");
    rt_status status = cli_schema(config, schema, error);
    if (!status && config->sim_dense)
        status = cli_dense_bytes(config, schema, &sim->dense_bytes, error);
    if (!status && dp_setup_needs_keys(config))
        status = rt_stream_count_keys(&config->stream, config->seed, &sim->distinct_keys, error);
    return status;
}

static int advise(rt_config *config, uint32_t iterations, bool json)
{
    rt_schema schema;
    dp_sim_config sim;
    dp_advices advices = {0};
    dp_advice_batch batch;
    rt_error error = {0};
    int code = CLI_OK;
    if (cli_end_input(config, false, &error) || prepare(config, &schema, &sim, &error) ||
        dp_advise(&sim, iterations, &advices, &error)) {
        code = cli_fail(&error);
    } else {
        const dp_advice *first = &advices.items[0];
        const bool moves = first->predicted_s > 0;
        const bool is_known =
            moves && dp_advise_batch(&sim, iterations, first, &batch, &error) == RT_OK;
        if (moves && !is_known)
            rt_warn("batches %u times as large are not simulated: %s", DP_ADVICE_BATCH, error.text);
        if (json)
            code = print_json(config, &advices, is_known ? &batch : NULL);
        else
            print_table(config, &advices);
        if (!json && is_known)
            print_batch(&batch);
    }
    dp_advices_fini(&advices);
    return code;
}

int cli_advise(int argc, char **argv)
{
    const char *path = NULL, *iterations_text = NULL;
    const char *sets[CLI_SETS_MAX];
    uint32_t set_count, iterations = ITERATIONS;
    bool json = false;
    rt_config config;
    const cli_option options[] = {{"iterations", &iterations_text, NULL}, {"json", NULL, &json}};
    if (!cli_parse(argc, argv, options, RT_COUNT_OF(options), &path, sets, &set_count) ||
        (iterations_text && !read_iterations(iterations_text, &iterations)))
        return CLI_USAGE;
    int code = cli_load(path, sets, set_count, "lanyard", &config);
    if (code != CLI_OK)
        return code;
    rt_config_leave_spares(&config);
    code = advise(&config, iterations, json);
    rt_config_fini(&config);
    return code;
}
