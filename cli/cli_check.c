// `lanyard check`: a configuration with all its defaults (standard output) and what it takes
// (standard error), what its model costs, or the reference of all keys.
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "cli/cli.h"
#include "cli/cli_plan.h"
#include "dispatch/planner/dp_setup.h"
#include "edge_worker/model/ew_count.h"
#include "runtime/config/rt_sources.h"

static int print_document(void)
{
    char *markdown;
    if (rt_config_document(&markdown))
        return CLI_FAILED;
    fputs(markdown, stdout);
    rt_free(markdown);
    return CLI_OK;
}

static int print_migrated(const char *path, uint32_t set_count)
{
    rt_error error = {0};
    char *json;
    rt_log_setup(RT_LOG_ERROR, "lanyard"); // the names of before are what this is for
    if (!path || set_count) {
        fprintf(stderr, "lanyard check: --migrate takes one CONFIG, and no --set\n");
        return CLI_USAGE;
    }
    if (rt_config_migrate(path, &json, &error))
        return cli_fail(&error);
    puts(json);
    rt_free(json);
    return CLI_OK;
}

static int print_sources(void)
{
    for (int kind = 0; kind < (int)RT_SOURCE_COUNT; kind++)
        if (rt_source_is_built((rt_source_kind)kind))
            puts(rt_config_choice_name("stream.source", kind));
    return CLI_OK;
}

static void print_counts(const char *what, const ew_counts *counts, uint32_t samples)
{
    const double flops = (double)(counts->gemm_flops + counts->flops) / samples;
    const double bytes = (double)(counts->gemm_bytes + counts->bytes) / samples;
    printf("  %-22s %12.0f operations, %3.0f%% in matrix products, %10.0f bytes\n", what, flops,
           100 * (double)counts->gemm_flops / samples / flops, bytes);
}

static int print_model(const rt_config *config)
{
    rt_schema schema;
    rt_error error = {0};
    ew_model_counts counts;
    uint64_t rows;
    const uint32_t samples = rt_config_share(config);
    rt_status status = rt_config_check_training(config, &error);
    if (!status)
        status = cli_schema(config, &schema, &error);
    if (!status)
        status = dp_setup_share_rows(config, &schema, &rows, &error);
    if (status)
        return cli_fail(&error);
    const ew_model_config model = cli_model(config, &schema);
    status = ew_count_model(&model, &config->optimizer_rows, samples, &counts, &error);
    if (status)
        return cli_fail(&error);
    const uint32_t dim = config->model.embedding_dim;
    const uint32_t state = rt_optimizer_state_floats(&config->optimizer_rows, dim);
    printf("%s: %" PRIu32 " dense features, %" PRIu32 " fields\n",
           rt_config_choice_name("model.name", (int)config->model.kind), schema.dense_count,
           schema.field_count);
    printf("  dense weights          %12" PRIu32 ", %zu bytes per exchange, each way\n",
           counts.parameter_count, counts.parameter_count * sizeof(float));
    printf("  a row                  %12" PRIu32 " values and %" PRIu32 " floats of state\n", dim,
           state);
    printf("per sample, in micro-batches of %" PRIu32 " with one key per field, all different:\n",
           samples);
    print_counts("prediction", &counts.forward, samples);
    print_counts("forward and backward", &counts.pass, samples);
    print_counts("optimizers", &counts.step, samples);
    return CLI_OK;
}

int cli_check(int argc, char **argv)
{
    const char *path = NULL, *sets[CLI_SETS_MAX];
    uint32_t set_count;
    bool document = false, model = false, count = false, migrate = false;
    bool sources = false;
    rt_config config;
    rt_error error = {0};
    cli_plan plan;
    char *json;
    const cli_option options[] = {{"document", NULL, &document},
                                  {"model", NULL, &model},
                                  {"count", NULL, &count},
                                  {"migrate", NULL, &migrate},
                                  {"sources", NULL, &sources}};
    if (!cli_parse(argc, argv, options, RT_COUNT_OF(options), &path, sets, &set_count))
        return CLI_USAGE;
    if (document)
        return print_document();
    if (sources)
        return print_sources();
    if (migrate)
        return print_migrated(path, set_count);
    int code;
    if (model) // which reads no input
        code = cli_load_model(path, sets, set_count, "lanyard", &config);
    else
        code = cli_load(path, sets, set_count, "lanyard", &config);
    if (code != CLI_OK)
        return code;
    if (model) {
        code = print_model(&config);
        rt_config_fini(&config);
        return code;
    }
    rt_status status = rt_config_to_json(&config, &json);
    if (status) {
        rt_config_fini(&config);
        rt_fail(&error, status, "out of memory");
        return cli_fail(&error);
    }
    puts(json);
    fflush(stdout); // before what goes to standard error
    rt_free(json);
    status = cli_plan_make(&config, count, &plan, &error);
    if (!status)
        cli_plan_print(&plan, &config, stderr);
    else if (status == RT_IO) // the data may be on another box
        fprintf(stderr, "no plan of memory and traffic: %s\n", error.text);
    else
        code = cli_fail(&error);
    rt_config_fini(&config);
    return code;
}
