// `lanyard crosses`: which two columns say more together than each for itself. Standard output has
// the columns for the configuration, standard error says what each gains and costs.
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cli.h"
#include "runtime/guess/rt_crosses.h"
#include "runtime/guess/rt_guess.h"
#include "runtime/numbers/rt_optimizer.h"
#include "runtime/rt_json.h"
#include "runtime/rt_printable.h"

#define SAMPLES 500000u
#define MEMORY (UINT64_C(1) << 30)
#define MEMORY_MIN (UINT64_C(1) << 24)
#define ADMIT_MIN 2u // what came once says nothing of rows to come

typedef struct {
    const char *path, *label;
    bool json, has_samples;
    rt_crosses_settings settings;
} options_given;

static uint64_t row_bytes(const rt_config *config)
{
    const uint32_t dim = config->model.embedding_dim; // the largest
    return (dim + rt_optimizer_state_floats(&config->optimizer_rows, dim)) * sizeof(float);
}

// ---- what was found --------------------------------------------------------------------------

static void shown(const char *text, char out[4 * RT_NAME_MAX])
{
    if (!rt_printable_write(text, strlen(text), out, 4 * RT_NAME_MAX))
        strcpy(out, "...");
}

static const char *end_of(rt_crosses_end end)
{
    static const char *const ends[] = {[RT_CROSSES_INPUT] = "the whole input",
                                       [RT_CROSSES_SAMPLES] = "as many as --samples",
                                       [RT_CROSSES_MEMORY] = "until --memory was full"};
    return ends[end];
}

static void say_left_out(uint32_t count, const char *which)
{
    if (count > 0)
        fprintf(stderr, "Left out: %" PRIu32 " column%s %s\n", count, count > 1 ? "s" : "", which);
}

static void say_what_was_tried(const options_given *given, const rt_crosses *crosses)
{
    fprintf(stderr,
            "%s: %" PRIu64 " samples (%s); %" PRIu32 " columns in %" PRIu32
            " pairs; log loss %.5f of the last %" PRIu64 " by the columns alone\n",
            given->path, crosses->samples, end_of(crosses->end), crosses->columns, crosses->pairs,
            crosses->log_loss, crosses->held_out);
    if (crosses->screened < crosses->samples)
        fprintf(stderr, "All pairs were tried on the first %" PRIu64 ", the best ones on all\n",
                crosses->screened);
    say_left_out(crosses->left_out_one, "of one value");
    say_left_out(crosses->left_out_many, "whose values hardly come again");
    say_left_out(crosses->left_out_same, "that say the same as another one");
    say_left_out(crosses->left_out_other, "of several values, crosses, or without a name");
}

static void print_table(const options_given *given, const rt_config *config,
                        const rt_crosses *crosses)
{
    char again[32], name[4 * RT_NAME_MAX];
    say_what_was_tried(given, crosses);
    if (crosses->count == 0)
        fprintf(stderr, "No cross gains more than chance would: none is proposed\n");
    if (*crosses->refused.name) {
        shown(crosses->refused.name, name);
        fprintf(stderr, "The best of the others: %s, with a gain of %.5f +- %.5f\n", name,
                crosses->refused.gain, crosses->refused.error);
    }
    if (crosses->count == 0)
        return;
    snprintf(again, sizeof again, "%" PRIu32 " times", given->settings.admit);
    fprintf(stderr, "\n%10s %9s %7s %10s %10s %10s  %s\n", "gain", "+-", "", "rows", "MB", again,
            "cross");
    for (uint32_t i = 0; i < crosses->count; i++) {
        const rt_crosses_one *one = &crosses->items[i];
        shown(one->name, name);
        fprintf(stderr, "%10.5f %9.5f %6.2f%% %10" PRIu64 " %10.3f %10" PRIu64 "  %s\n", one->gain,
                one->error, 100 * one->gain / crosses->log_loss, one->values,
                (double)(one->values * row_bytes(config)) * 1e-6, one->rows, name);
    }
    fprintf(
        stderr,
        "\ngain: of log loss, beside the crosses above it. rows: one for each pair of values, so "
        "far;\nof these came at least %s: what rows.admit=%" PRIu32 " keeps\n",
        again, given->settings.admit);
    if (config->model.embedding_dim_count > 0)
        fprintf(stderr, "model.embedding_dim is a list: each new column needs a number in it\n");
    fprintf(stderr, "Append to stream.table.columns:\n");
}

static void write_entry(rt_json *json, const rt_crosses_one *one, const char *key)
{
    rt_json_begin_object(json, key);
    rt_json_string(json, "name", one->name);
    rt_json_string(json, "kind", "categorical");
    rt_json_begin_array(json, "from");
    for (uint32_t k = 0; k < 2; k++)
        rt_json_string(json, NULL, one->from[k]);
    rt_json_end_array(json);
    rt_json_end_object(json);
}

static int put(rt_json *json, const char *behind)
{
    const char *text = rt_json_text(json, NULL);
    if (text)
        printf("%s%s\n", text, behind); // main looks whether it was printed
    const int code = text ? CLI_OK : CLI_FAILED;
    rt_json_fini(json);
    return code;
}

static int print_entries(const rt_crosses *crosses)
{
    int code = CLI_OK;
    for (uint32_t i = 0; i < crosses->count && code == CLI_OK; i++) {
        rt_json json;
        rt_json_init(&json, 0);
        write_entry(&json, &crosses->items[i], NULL);
        code = put(&json, i + 1 < crosses->count ? "," : "");
    }
    return code;
}

static int print_json(const rt_config *config, const options_given *given,
                      const rt_crosses *crosses)
{
    rt_json json;
    rt_json_init(&json, 2);
    rt_json_begin_object(&json, NULL);
    rt_json_u64(&json, "samples", crosses->samples);
    rt_json_u64(&json, "held_out", crosses->held_out);
    rt_json_double(&json, "logloss", crosses->log_loss);
    rt_json_u64(&json, "columns", crosses->columns);
    rt_json_u64(&json, "pairs", crosses->pairs);
    rt_json_u64(&json, "admit", given->settings.admit);
    rt_json_begin_array(&json, "crosses");
    for (uint32_t i = 0; i < crosses->count; i++) {
        const rt_crosses_one *one = &crosses->items[i];
        rt_json_begin_object(&json, NULL);
        write_entry(&json, one, "column");
        rt_json_double(&json, "gain", one->gain);
        rt_json_double(&json, "standard_error", one->error);
        rt_json_u64(&json, "rows", one->values);
        rt_json_u64(&json, "row_bytes", one->values * row_bytes(config));
        rt_json_u64(&json, "rows_admitted", one->rows);
        rt_json_end_object(&json);
    }
    rt_json_end_array(&json);
    rt_json_end_object(&json);
    return put(&json, "");
}

// ---- the command -----------------------------------------------------------------------------

static bool is_regular(const char *path)
{
    struct stat status;
    return stat(path, &status) == 0 && S_ISREG(status.st_mode);
}

static rt_status configure(const options_given *given, const char *const *sets, uint32_t set_count,
                           rt_config *config, rt_error *error)
{
    rt_guess *guess;
    rt_status status = rt_guess_make(given->path, given->label, &guess, error);
    if (status)
        return status;
    status = rt_guess_configure(guess, given->path, config, error);
    rt_guess_destroy(guess);
    for (uint32_t i = 0; i < set_count && !status; i++)
        status = rt_config_set(config, sets[i], error);
    if (!status)
        status = rt_config_check(config, error);
    return status;
}

// What `lanyard init` would write, over the defaults.
static int load_rows(const options_given *given, const char *const *sets, uint32_t set_count,
                     rt_config *config)
{
    rt_error error = {0};
    rt_log_setup(RT_LOG_INFO, "lanyard");
    if (rt_config_init(config)) {
        rt_fail(&error, RT_NO_MEMORY, "out of memory");
        return cli_fail(&error);
    }
    if (configure(given, sets, set_count, config, &error) == RT_OK)
        return CLI_OK;
    rt_config_fini(config);
    return cli_fail(&error);
}

static int load(const options_given *given, const char *const *sets, uint32_t set_count,
                rt_config *config)
{
    if (is_regular(given->path) && cli_holds_rows(given->path))
        return load_rows(given, sets, set_count, config);
    if (given->label) {
        fprintf(stderr,
                "lanyard crosses: --label: %s is no file of rows; a configuration says itself "
                "which column is the label\n",
                given->path);
        return CLI_USAGE;
    }
    return cli_load(given->path, sets, set_count, "lanyard", config);
}

static rt_status prepare(const options_given *given, rt_config *config, rt_error *error)
{
    config->stream.epochs = 1;
    if (!given->has_samples && !config->stream.samples_max &&
        rt_source_is_live(config->stream.source))
        return rt_fail(error, RT_CONFIG,
                       "stream: this input has no end; expected --samples N or "
                       "stream.samples_max");
    return cli_end_input(config, given->has_samples, error);
}

static int find(rt_config *config, options_given *given)
{
    rt_error error = {0};
    rt_crosses crosses;
    given->settings.admit = (uint32_t)rt_max_u64(ADMIT_MIN, config->rows.admit);
    if (prepare(given, config, &error) ||
        rt_crosses_find(config, &given->settings, &crosses, &error))
        return cli_fail(&error);
    if (given->json)
        return print_json(config, given, &crosses);
    print_table(given, config, &crosses);
    return print_entries(&crosses);
}

int cli_crosses(int argc, char **argv)
{
    const char *samples = NULL, *memory = NULL, *sets[CLI_SETS_MAX];
    uint32_t set_count;
    rt_config config;
    options_given given = {.settings = {.samples_max = SAMPLES,
                                        .memory_max = MEMORY,
                                        .progress = isatty(STDERR_FILENO)}};
    const cli_option options[] = {{"label", &given.label, NULL},
                                  {"samples", &samples, NULL},
                                  {"memory", &memory, NULL},
                                  {"json", NULL, &given.json}};
    if (!cli_parse(argc, argv, options, RT_COUNT_OF(options), &given.path, sets, &set_count) ||
        !cli_number("crosses", "samples", samples, RT_CROSSES_SAMPLES_MIN,
                    &given.settings.samples_max) ||
        !cli_number("crosses", "memory", memory, MEMORY_MIN, &given.settings.memory_max))
        return CLI_USAGE;
    if (!given.path || strcmp(given.path, "-") == 0) {
        fprintf(stderr, "lanyard crosses: which FILE? One that can be read twice: a configuration, "
                        "or rows (see lanyard crosses --help)\n");
        return CLI_USAGE;
    }
    given.has_samples = samples != NULL;
    int code = load(&given, sets, set_count, &config);
    if (code != CLI_OK)
        return code;
    code = find(&config, &given);
    rt_config_fini(&config);
    return code;
}
