// Manual pages, made from the tables of commands and keys; language: man(7).
#include <errno.h>
#include <string.h>

#include "cli/cli_help.h"
#include "cli/cli_words.h"
#include "runtime/rt_build.h"
#include "runtime/rt_roff.h"

#define LICENSE_LINE "Apache License, Version 2.0"

static const char description[] =
    "Lanyard trains click-through and recommendation models online, on the machines of one\n"
    "network. Embedding rows live in a parameter server, workers cache some of them, and every\n"
    "sample goes to the worker on which training it moves the fewest and cheapest bytes.\n"
    ".PP\n"
    "A run is described by one file, CONFIG:\n"
    ".BR lanyard\\-config (5).\n";

static const char statuses[] =
    ".SH EXIT STATUS\n"
    "0: done. 1: it failed. 2: wrong usage. Of\n"
    ".BR coordinator , \" ps\" \" and\" \" worker\"\n"
    "also 3: the run failed elsewhere; 4: all processes are to start again; 5: it would\n"
    "only happen again until somebody mends it.\n";

// Roff of the name of a page, "lanyard-up".
static void put_page_name(FILE *out, const char *command)
{
    fputs("lanyard", out);
    if (command)
        fprintf(out, "\\-%s", command);
}

static void put_title(FILE *out, const char *command, int section)
{
    fputs(".TH \"", out);
    put_page_name(out, command);
    fprintf(out, "\" %d \"%s\" \"lanyard %s\" \"Lanyard\"\n", section, RT_PROGRAM_DATE,
            RT_PROGRAM_VERSION);
}

static void put_name(FILE *out, const char *command, const char *help)
{
    fputs(".SH NAME\n", out);
    put_page_name(out, command);
    fputs(" \\- ", out);
    rt_roff_text(out, help);
    fputc('\n', out);
}

static void put_line(void *to, const char *line, size_t size)
{
    char text[256];
    rt_assert(size < sizeof text);
    memcpy(text, line, size);
    text[size] = '\0';
    rt_roff_text(to, text);
    fputc('\n', to);
}

static void put_words(FILE *out, const cli_command *command)
{
    cli_words words;
    cli_words_read(command, &words);
    for (uint32_t i = 0; i < words.count; i++) {
        const cli_word *word = &words.words[i];
        fputs(".TP\n\\fB", out);
        rt_roff_text(out, word->name);
        fputs("\\fR", out);
        if (word->value[0]) {
            fputs(" \\fI", out);
            rt_roff_text(out, word->value);
            fputs("\\fR", out);
        }
        fputc('\n', out);
        cli_word_lines(word, put_line, out);
    }
    fputs(".TP\n\\fB\\-\\-help\\fR, \\fB\\-h\\fR\nthis, in short\n", out);
    if (words.notes[0]) {
        fputs(".PP\n", out);
        rt_roff_text(out, words.notes);
    }
}

static void put_see_also(FILE *out, const char *rest)
{
    fprintf(out, ".SH SEE ALSO\n%s", rest);
}

static void put_command(FILE *out, const cli_command *command)
{
    put_title(out, command->name, 1);
    put_name(out, command->name, command->help);
    fprintf(out, ".SH SYNOPSIS\n.HP\n\\fBlanyard %s\\fR ", command->name);
    rt_roff_text(out, command->arguments);
    fputs("\n.SH OPTIONS\n", out);
    put_words(out, command);
    fputs(statuses, out);
    put_see_also(out, ".BR lanyard (1),\n.BR lanyard\\-config (5)\n");
}

static void put_program(FILE *out, const cli_commands *all)
{
    put_title(out, NULL, 1);
    put_name(out, NULL, "train click-through models on the machines of a local network");
    fputs(".SH SYNOPSIS\n.HP\n\\fBlanyard\\fR COMMAND [ARGUMENTS]\n.HP\n"
          "\\fBlanyard\\fR \\-\\-help | \\-\\-version\n.SH DESCRIPTION\n",
          out);
    fprintf(out, "%s.SH COMMANDS\n", description);
    for (size_t i = 0; i < all->count; i++) {
        fprintf(out, ".TP\n.BR lanyard\\-%s (1)\n", all->commands[i].name);
        rt_roff_text(out, all->commands[i].help);
        fputs(".\n", out);
    }
    fputs(
        ".SH OPTIONS\n.TP\n\\fB\\-\\-help\\fR, \\fB\\-h\\fR\nLists the commands; after a command "
        "explains its options.\n.TP\n\\fB\\-\\-version\\fR\nThe build, and what it was built with "
        "and without.\n",
        out);
    fputs(statuses, out);
    fputs(".SH FILES\n.TP\n.I /etc/lanyard/cluster.json\nThe configuration of the units "
          "lanyard\\-coordinator, lanyard\\-ps@N and lanyard\\-worker@N, or what\n"
          ".B LANYARD_CONFIG\nin\n.I /etc/lanyard/environment\nnames.\n.TP\n.I /var/lib/lanyard\n"
          "What the units write: metrics, models, checkpoints.\n"
          ".SH LICENSE\n" LICENSE_LINE ".\n",
          out);
    put_see_also(out, ".BR lanyard\\-config (5)\n");
}

static void put_config(FILE *out, const char *reference)
{
    put_title(out, "config", 5);
    put_name(out, "config", "the configuration of a run, a file in JSON");
    fputs(reference, out);
    put_see_also(out, ".BR lanyard (1),\n.BR lanyard\\-check (1)\n");
}

static FILE *begin(const char *folder, const char *command, int section, char *path, size_t size,
                   rt_error *error)
{
    if (command)
        snprintf(path, size, "%s/lanyard-%s.%d", folder, command, section);
    else
        snprintf(path, size, "%s/lanyard.%d", folder, section);
    FILE *out = fopen(path, "w");
    if (!out)
        rt_fail(error, RT_IO, "%s: %s", path, strerror(errno));
    return out;
}

static rt_status end(FILE *out, const char *path, rt_error *error)
{
    const bool failed = ferror(out) != 0;
    if (fclose(out) != 0 || failed)
        return rt_fail(error, RT_IO, "%s could not be written: %s", path, strerror(errno));
    return RT_OK;
}

static rt_status write_config(const char *folder, rt_error *error)
{
    char path[RT_PATH_MAX + 64], *reference;
    if (rt_config_manual(&reference))
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    FILE *out = begin(folder, "config", 5, path, sizeof path, error);
    if (out)
        put_config(out, reference);
    rt_free(reference);
    if (!out)
        return RT_IO;
    return end(out, path, error);
}

// NULL: of the program.
static rt_status write_page(const cli_commands *all, const cli_command *command, const char *folder,
                            rt_error *error)
{
    char path[RT_PATH_MAX + 64];
    const char *name = command ? command->name : NULL;
    FILE *out = begin(folder, name, 1, path, sizeof path, error);
    if (!out)
        return RT_IO;
    if (command)
        put_command(out, command);
    else
        put_program(out, all);
    return end(out, path, error);
}

rt_status cli_manual_write(const cli_commands *all, const char *folder, rt_error *error)
{
    rt_status status = write_page(all, NULL, folder, error);
    if (status)
        return status;
    for (size_t i = 0; i < all->count; i++) {
        status = write_page(all, &all->commands[i], folder, error);
        if (status)
            return status;
    }
    return write_config(folder, error);
}
