// `lanyard_bench`: planner, solvers and devices of this build, measured on this machine.
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "tests/bench/device/ew_bench.h"
#include "tests/bench/dispatch/dp_bench.h"

typedef struct {
    const char *name;
    rt_status (*run)(const dp_bench *bench, rt_error *error);
} section;

static const section dispatch_sections[] = {
    {"opt", dp_bench_opt},       {"alpha", dp_bench_alpha},    {"scaling", dp_bench_scaling},
    {"memory", dp_bench_memory}, {"planner", dp_bench_stages}, {"directory", dp_bench_directory},
    {"gap", dp_bench_gap},       {"demand", dp_bench_demand},  {"threads", dp_bench_threads},
};

static bool known_section(const char *name)
{
    if (!name)
        return true;
    for (size_t i = 0; i < RT_COUNT_OF(dispatch_sections); i++)
        if (strcmp(dispatch_sections[i].name, name) == 0)
            return true;
    fprintf(stderr, "lanyard_bench: no section \"%s\"; there are:", name);
    for (size_t i = 0; i < RT_COUNT_OF(dispatch_sections); i++)
        fprintf(stderr, " %s", dispatch_sections[i].name);
    fputc('\n', stderr);
    return false;
}

static rt_status run_sections(const dp_bench *bench, const char *only, rt_error *error)
{
    for (size_t i = 0; i < RT_COUNT_OF(dispatch_sections); i++) {
        const section *one = &dispatch_sections[i];
        if (only && strcmp(one->name, only) != 0)
            continue;
        const rt_status status = one->run(bench, error);
        if (status)
            return status;
    }
    return RT_OK;
}

static rt_status run_dispatch(const dp_bench *bench, const char *only, rt_error *error)
{
    if (bench->dump_dir)
        return dp_bench_dump(bench, error);
    return run_sections(bench, only, error);
}

// A report writes tables as they come; as JSON it is printed when all is there.
static bool create_report(bool json, rt_report **report_p)
{
    FILE *tables = json ? NULL : stdout;
    return rt_report_create(tables, report_p) == RT_OK;
}

static bool print_json(rt_report *report)
{
    const char *text = rt_report_json(report);
    if (text)
        (void)puts(text); // main looks whether it was printed
    return text != NULL;
}

// Destroys the report.
static int finish(rt_report *report, bool json, rt_status status, const rt_error *error)
{
    int code = cli_end(status, error);
    if (!status && json && !print_json(report))
        code = CLI_FAILED;
    rt_report_destroy(report);
    return code;
}

static int bench_dispatch(int argc, char **argv)
{
    const char *unexpected = NULL, *only = NULL, *sets[CLI_SETS_MAX];
    uint32_t set_count;
    bool json = false;
    rt_error error = {0};
    dp_bench bench = {0};
    const cli_option options[] = {{"json", NULL, &json},
                                  {"quick", NULL, &bench.quick},
                                  {"file", &bench.file, NULL},
                                  {"section", &only, NULL},
                                  {"dump-matrices", &bench.dump_dir, NULL}};
    if (!cli_parse(argc, argv, options, RT_COUNT_OF(options), &unexpected, sets, &set_count))
        return CLI_USAGE;
    if (unexpected || set_count || !known_section(only))
        return CLI_USAGE;
    rt_log_setup(RT_LOG_WARN, "lanyard_bench");
    if (!create_report(json, &bench.report))
        return cli_fail(&(rt_error){.text = "out of memory"});
    const rt_status status = run_dispatch(&bench, only, &error);
    return finish(bench.report, json, status, &error);
}

static int bench_device(int argc, char **argv)
{
    const char *unexpected = NULL, *sets[CLI_SETS_MAX];
    uint32_t set_count;
    bool json = false;
    rt_error error = {0};
    ew_bench bench = {.device = "cpu"};
    const cli_option options[] = {
        {"json", NULL, &json}, {"quick", NULL, &bench.quick}, {"device", &bench.device, NULL}};
    if (!cli_parse(argc, argv, options, RT_COUNT_OF(options), &unexpected, sets, &set_count))
        return CLI_USAGE;
    if (unexpected || set_count)
        return CLI_USAGE;
    rt_log_setup(RT_LOG_WARN, "lanyard_bench");
    if (!create_report(json, &bench.report))
        return cli_fail(&(rt_error){.text = "out of memory"});
    const rt_status status = ew_bench_device(&bench, &error);
    return finish(bench.report, json, status, &error);
}

static const char usage[] =
    "lanyard_bench dispatch [--section NAME] [--file ROWS] [--quick] [--json]\n"
    "lanyard_bench dispatch --dump-matrices DIR [--file ROWS]\n"
    "    solvers and planner: times, memory, distance to the optimum\n"
    "lanyard_bench device [--device cpu|cuda:N] [--quick] [--json]\n"
    "    operations and training steps: times, bytes, share of the machine's peaks\n\n"
    "  --section NAME       opt, alpha, scaling, memory, planner, directory, gap, demand or threads; "
    "default: all\n"
    "  --file ROWS          samples of this Criteo file, not generated ones\n"
    "  --dump-matrices DIR  cost matrices, one a file, for other solvers\n"
    "  --device cpu|cuda:N  what computes (cpu); the plug-in is beside this program or on\n"
    "                       LD_LIBRARY_PATH\n"
    "  --quick              the least that shows that it works\n"
    "  --json               as JSON\n";

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    rt_keep_freed_memory();
    if (strcmp(what, "--help") == 0)
        return fputs(usage, stdout) >= 0 ? CLI_OK : CLI_FAILED;
    int code = CLI_USAGE;
    if (strcmp(what, "dispatch") == 0)
        code = bench_dispatch(argc - 1, argv + 1);
    else if (strcmp(what, "device") == 0)
        code = bench_device(argc - 1, argv + 1);
    if (code == CLI_USAGE)
        fputs(usage, stderr);
    if (fflush(stdout) != 0 && code == CLI_OK)
        return CLI_FAILED;
    return code;
}
