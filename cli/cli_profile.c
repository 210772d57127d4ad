// `lanyard profile`: which rows a stream looks up most, and how much of it they cover.
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "dispatch/planner/dp_setup.h"
#include "dispatch/planner/dp_popularity.h"
#include "runtime/rt_json.h"

#define COUNT_MEMORY (UINT64_C(1) << 30)
#define LEVELS 6u // 1, 10, 100, ... rows
#define SHARE 0.9 // of look-ups, that hot rows cover unless told

static const uint64_t levels[LEVELS] = {1, 10, 100, 1000, 10000, 100000};
static const char *const level_names[LEVELS] = {"1", "10", "100", "1 k", "10 k", "100 k"};

typedef struct {
    const char *out;
    uint64_t rows, memory; // 0: not given
    bool json;
    dp_popularity_config counting;
} options_given;

// The hottest rows of all.
typedef struct {
    uint64_t rows, lookups;
    uint64_t value_bytes, row_bytes; // of vectors; of these with the optimizer's state
} coverage;

// The rows of a column, or of columns that share a table.
typedef struct {
    uint64_t rows, lookups;
    uint64_t hottest[LEVELS]; // look-ups of so many of its rows
} column;

typedef struct {
    const rt_config *config;
    const dp_popularity *profile;
    rt_schema schema;
    dp_layout layout;
    coverage levels[LEVELS + 1]; // the last: all rows
    uint32_t level_count;
    coverage hot;
    uint64_t batch_rows; // that one micro-batch may need
    uint64_t cache_rows; // suggested
    column columns[RT_FIELDS_MAX];
} result;

// ---- what was counted ------------------------------------------------------------------------

static void add_row(const result *r, const dp_popular *use, coverage *sum)
{
    const uint32_t field = rt_key_field(use->key);
    sum->rows++;
    sum->lookups += use->uses;
    sum->value_bytes += r->layout.values[field] * sizeof(float);
    sum->row_bytes += (r->layout.values[field] + r->layout.state[field]) * sizeof(float);
}

static void add_to_column(column *one, uint64_t uses)
{
    one->rows++;
    one->lookups += uses;
    for (uint32_t l = 0; l < LEVELS; l++)
        if (one->rows <= levels[l])
            one->hottest[l] += uses;
}

// Whether one row more is hot after these.
static bool takes_more(const result *r, const options_given *given, const coverage *with_it,
                       const coverage *so_far)
{
    if (given->rows)
        return with_it->rows <= given->rows;
    if (given->memory)
        return with_it->row_bytes <= given->memory;
    return (double)so_far->lookups < SHARE * (double)r->profile->lookups;
}

// Rows come by their rank: one pass finds how many are hot, and what the hottest of each column and
// of all cover.
static void cover(result *r, const options_given *given)
{
    const dp_popularity *profile = r->profile;
    coverage sum = {0};
    for (uint64_t i = 0; i < profile->row_count; i++) {
        const dp_popular *use = &profile->uses[i];
        const coverage before = sum;
        add_row(r, use, &sum);
        add_to_column(&r->columns[rt_key_field(use->key)], use->uses);
        if (r->hot.rows == i && takes_more(r, given, &sum, &before))
            r->hot = sum;
        if (r->level_count < LEVELS && sum.rows == levels[r->level_count])
            r->levels[r->level_count++] = sum;
    }
    if (r->level_count == 0 || r->levels[r->level_count - 1].rows < sum.rows)
        r->levels[r->level_count++] = sum;
    r->batch_rows = (uint64_t)rt_config_share(r->config) * r->schema.keys_per_sample_max;
    r->cache_rows = rt_min_u64(rt_max_u64(r->hot.rows, r->batch_rows), RT_CACHE_ROWS_MAX);
}

// ---- as a table ------------------------------------------------------------------------------

static double share(uint64_t part, uint64_t whole)
{
    return (double)part / (double)rt_max_u64(1, whole);
}

static void print_coverage(const result *r, const char *name, const coverage *one)
{
    printf("%14s %9.2f%% %12.3f %12.3f\n", name, 100 * share(one->lookups, r->profile->lookups),
           (double)one->value_bytes * 1e-6, (double)one->row_bytes * 1e-6);
}

static void print_columns(const result *r)
{
    const char *tables = "";
    if (r->schema.tables.are_shared)
        tables = "; columns that share a table under the first of them";
    printf("\nlook-ups of a column that its hottest rows cover%s\n", tables);
    printf("%-20s %12s %12s", "column", "rows", "look-ups");
    for (uint32_t l = 0; l < LEVELS; l++)
        printf(" %8s", level_names[l]);
    printf("\n");
    for (uint32_t f = 0; f < r->schema.field_count; f++) {
        const column *one = &r->columns[f];
        if (rt_tables_of(&r->schema.tables, f) != f)
            continue;
        printf("%-20s %12" PRIu64 " %12" PRIu64, r->schema.field_names[f], one->rows, one->lookups);
        for (uint32_t l = 0; l < LEVELS && (l == 0 || one->rows > levels[l - 1]); l++)
            printf(" %7.2f%%", 100 * share(one->hottest[l], one->lookups));
        printf("\n");
    }
}

static void print_table(const result *r, const options_given *given)
{
    static const char *const ends[] = {[DP_POPULARITY_INPUT] = "the whole input",
                                       [DP_POPULARITY_SAMPLES] = "as many as --samples",
                                       [DP_POPULARITY_MEMORY] = "until --count-memory was full"};
    char name[32];
    const dp_popularity *profile = r->profile;
    printf("%" PRIu64 " samples (%s), %" PRIu64 " look-ups of %" PRIu64 " rows\n\n",
           profile->samples, ends[profile->end], profile->lookups, profile->row_count);
    printf("%14s %10s %12s %12s\n", "hottest rows", "look-ups", "MB", "MB, state");
    for (uint32_t l = 0; l < r->level_count; l++) {
        snprintf(name, sizeof name, "%" PRIu64, r->levels[l].rows);
        print_coverage(r, name, &r->levels[l]);
    }
    print_columns(r);
    printf("\n%" PRIu64 " rows are hot:\n", r->hot.rows);
    print_coverage(r, "", &r->hot);
    if (given->out)
        printf("They are in %s. Every worker keeps them: --set dispatch.policy=fae --set "
               "dispatch.profile=%s --set cache.rows=%" PRIu64 "\n",
               given->out, given->out, r->hot.rows + r->batch_rows);
    const char *more = r->cache_rows > r->hot.rows ? ", and a micro-batch" : "";
    printf("A cache that holds them%s: --set cache.rows=%" PRIu64 "\n", more, r->cache_rows);
}

// ---- as JSON ---------------------------------------------------------------------------------

static void write_coverage(rt_json *json, const char *key, const result *r, const coverage *one)
{
    rt_json_begin_object(json, key);
    rt_json_u64(json, "rows", one->rows);
    rt_json_u64(json, "lookups", one->lookups);
    rt_json_double(json, "share", share(one->lookups, r->profile->lookups));
    rt_json_u64(json, "value_bytes", one->value_bytes);
    rt_json_u64(json, "row_bytes", one->row_bytes);
    rt_json_end_object(json);
}

static void write_column(rt_json *json, const char *name, const column *one)
{
    rt_json_begin_object(json, NULL);
    rt_json_string(json, "name", name);
    rt_json_u64(json, "rows", one->rows);
    rt_json_u64(json, "lookups", one->lookups);
    rt_json_u64s(json, "hottest_lookups", one->hottest, LEVELS);
    rt_json_end_object(json);
}

static int print_json(const result *r)
{
    rt_json json;
    rt_json_init(&json, 2);
    rt_json_begin_object(&json, NULL);
    rt_json_u64(&json, "samples", r->profile->samples);
    rt_json_string(&json, "end", dp_popularity_end_name(r->profile->end));
    rt_json_u64(&json, "lookups", r->profile->lookups);
    rt_json_u64(&json, "rows", r->profile->row_count);
    rt_json_begin_array(&json, "hottest");
    for (uint32_t l = 0; l < r->level_count; l++)
        write_coverage(&json, NULL, r, &r->levels[l]);
    rt_json_end_array(&json);
    rt_json_u64s(&json, "levels", levels, LEVELS);
    rt_json_begin_array(&json, "columns");
    for (uint32_t f = 0; f < r->schema.field_count; f++) {
        if (rt_tables_of(&r->schema.tables, f) == f)
            write_column(&json, r->schema.field_names[f], &r->columns[f]);
    }
    rt_json_end_array(&json);
    write_coverage(&json, "hot", r, &r->hot);
    rt_json_begin_object(&json, "set");
    rt_json_u64(&json, "cache.rows", r->cache_rows);
    rt_json_end_object(&json);
    rt_json_end_object(&json);
    const char *text = rt_json_text(&json, NULL);
    if (text)
        (void)puts(text); // main looks whether it was printed
    const int code = text ? CLI_OK : CLI_FAILED;
    rt_json_fini(&json);
    return code;
}

// ---- the command -----------------------------------------------------------------------------

static bool has_end(const rt_config *config)
{
    return config->stream.samples_max > 0 || (!rt_format_is_generated(config->stream.format) &&
                                              !rt_source_is_live(config->stream.source));
}

static rt_status take(const rt_config *config, const options_given *given, dp_popularity *profile,
                      result *r, rt_error *error)
{
    dp_planner_config planner;
    if (!given->counting.samples_max && !has_end(config))
        return rt_fail(error, RT_CONFIG,
                       "stream: this input has no end; expected --samples N or "
                       "stream.samples_max");
    rt_status status = cli_schema(config, &r->schema, error);
    if (status)
        return status;
    status = dp_setup(config, &r->schema, 0, &planner, error);
    if (status)
        return status;
    status = dp_popularity_take(config, &given->counting, profile, error);
    if (status)
        return status;
    if (profile->end == DP_POPULARITY_MEMORY)
        rt_warn("--count-memory: full after %" PRIu64 " samples with %" PRIu64
                " rows; what follows is about these",
                profile->samples, profile->row_count);
    r->config = config;
    r->profile = profile;
    r->layout = planner.layout;
    cover(r, given);
    if (r->hot.rows == 0)
        return rt_fail(error, RT_CONFIG, "--memory %" PRIu64 ": not one row fits", given->memory);
    if (!given->out)
        return RT_OK;
    return dp_popularity_write(profile, config, &r->schema, r->hot.rows, given->out, error);
}

static int profile_config(const rt_config *config, const options_given *given)
{
    rt_error error = {0};
    dp_popularity profile = {0};
    result *r = rt_alloc(1, sizeof *r);
    int code = CLI_OK;
    if (!r) {
        rt_fail(&error, RT_NO_MEMORY, "out of memory");
        return cli_fail(&error);
    }
    if (take(config, given, &profile, r, &error))
        code = cli_fail(&error);
    else if (given->json)
        code = print_json(r);
    else
        print_table(r, given);
    dp_popularity_fini(&profile);
    rt_free(r);
    return code;
}

int cli_profile(int argc, char **argv)
{
    const char *path = NULL, *samples = NULL, *rows = NULL, *memory = NULL, *count_memory = NULL;
    const char *sets[CLI_SETS_MAX];
    uint32_t set_count;
    rt_config config;
    rt_error error = {0};
    options_given given = {
        .counting = {.memory_max = COUNT_MEMORY, .progress = isatty(STDERR_FILENO)}};
    const cli_option options[] = {
        {"samples", &samples, NULL}, {"rows", &rows, NULL},
        {"memory", &memory, NULL},   {"count-memory", &count_memory, NULL},
        {"out", &given.out, NULL},   {"json", NULL, &given.json}};
    if (!cli_parse(argc, argv, options, RT_COUNT_OF(options), &path, sets, &set_count) ||
        !cli_number("profile", "samples", samples, 1, &given.counting.samples_max) ||
        !cli_number("profile", "rows", rows, 1, &given.rows) ||
        !cli_number("profile", "memory", memory, 1, &given.memory) ||
        !cli_number("profile", "count-memory", count_memory, DP_POPULARITY_MEMORY_MIN,
                    &given.counting.memory_max))
        return CLI_USAGE;
    if (rows && memory) {
        fprintf(stderr, "lanyard profile: --rows and --memory: expected one of them\n");
        return CLI_USAGE;
    }
    int code = cli_load(path, sets, set_count, "lanyard", &config);
    if (code != CLI_OK)
        return code;
    rt_config_leave_spares(&config);
    if (cli_end_input(&config, given.counting.samples_max > 0, &error))
        code = cli_fail(&error);
    else
        code = profile_config(&config, &given);
    rt_config_fini(&config);
    return code;
}
