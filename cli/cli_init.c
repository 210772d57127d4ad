// `lanyard init`: a configuration for a file of rows (standard output), and a table that says of
// each column what it is taken for, and why (standard error).
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "runtime/guess/rt_guess.h"
#include "runtime/rt_printable.h"

#define NAME_WIDTH_MAX 28

static const char *kind_of(const rt_guess_column *column)
{
    switch (column->column.kind) {
    case RT_COLUMN_LABEL:
    case RT_COLUMN_DENSE:
    case RT_COLUMN_CATEGORICAL:
    case RT_COLUMN_MULTI:
        return rt_config_column_kind(column->column.kind);
    default:
        return column->has_hours || column->has_days ? "time" : "-";
    }
}

static int columns_of(const char *text)
{
    int width = 0;
    for (; *text; text++)
        width += (*text & 0xc0) != 0x80; // characters of UTF-8
    return width;
}

static void shown_name(const rt_guess_column *column, char name[3 * RT_NAME_MAX])
{
    if (!rt_printable_write(column->name, strlen(column->name), name, 3 * RT_NAME_MAX))
        strcpy(name, "...");
}

static void print_columns(const rt_guess *guess)
{
    char name[3 * RT_NAME_MAX];
    int widest = 6;
    for (uint32_t i = 0; i < guess->column_count; i++) {
        shown_name(&guess->columns[i], name);
        const int width = columns_of(name);
        if (width > widest && width <= NAME_WIDTH_MAX)
            widest = width;
    }
    for (uint32_t i = 0; i < guess->column_count; i++) {
        const rt_guess_column *one = &guess->columns[i];
        char why[2 * RT_GUESS_WHY];
        shown_name(one, name);
        rt_printable_write(one->why, strlen(one->why), why, sizeof why);
        fprintf(stderr, "  %s%*s  %-11s  %s\n", name, widest - columns_of(name), "", kind_of(one),
                why);
    }
}

static void print_persons(const rt_guess *guess)
{
    char name[3 * RT_NAME_MAX];
    for (uint32_t i = 0; i < guess->column_count; i++) {
        if (!guess->columns[i].is_person)
            continue;
        shown_name(&guess->columns[i], name);
        fprintf(stderr,
                "%s names a person: `lanyard forget RUN '%s' VALUE` ends what was learnt of one\n",
                name, name);
    }
}

static void print_crosses(const rt_guess *guess, const char *path)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < guess->column_count; i++)
        count += guess->columns[i].column.kind == RT_COLUMN_CATEGORICAL;
    if (count >= 2 && strcmp(path, "-") != 0)
        fprintf(stderr, "which two columns say more together: lanyard crosses %s\n", path);
}

static void print_guess(const rt_guess *guess, const char *path)
{
    fprintf(stderr, "%s: %s; %s%" PRIu64 " rows\n", path, guess->layout,
            guess->is_whole ? "" : "looked at the first ", guess->row_count);
    print_columns(guess);
    print_persons(guess);
    print_crosses(guess, path);
}

int cli_init(int argc, char **argv)
{
    const char *path = NULL, *label = NULL, *sets[CLI_SETS_MAX], *text;
    const cli_option options[] = {{"label", &label, NULL}};
    uint32_t set_count;
    rt_guess *guess;
    rt_error error = {0};
    rt_json json;
    if (!cli_parse(argc, argv, options, RT_COUNT_OF(options), &path, sets, &set_count))
        return CLI_USAGE;
    if (!path || set_count > 0) {
        fprintf(stderr, "lanyard init: which FILE? (see lanyard init --help)\n");
        return CLI_USAGE;
    }
    if (rt_guess_make(path, label, &guess, &error))
        return cli_fail(&error);
    print_guess(guess, path);
    rt_json_init(&json, 2);
    rt_guess_write(guess, path, &json);
    text = rt_json_text(&json, NULL);
    if (text)
        puts(text);
    const int code = text ? CLI_OK : CLI_FAILED;
    rt_json_fini(&json);
    rt_guess_destroy(guess);
    return code;
}
