#include "cli/cli_help.h"

#include <string.h>

#include "cli/cli_words.h"
#include "edge_worker/collective/ew_collective.h"
#include "runtime/config/rt_sources.h"
#include "runtime/rt_build.h"
#include "runtime/rt_cuda.h"
#include "runtime/rt_plugin.h"
#include "runtime/transport/rt_ucx.h"

static void put_synopsis(FILE *file, const cli_command *command)
{
    fprintf(file, "  lanyard %s %s\n      %s\n", command->name, command->arguments, command->help);
}

// Every command stands in one of these, in the order in which people need them.
static const struct {
    const char *title, *example, *commands; // commands: with a space before and behind each
} groups[] = {
    {"Train", "lanyard init sales.csv > shop.json && lanyard up shop.json --out run",
     " init up eval export verify "},
    {"Ask a model", "lanyard predict run/model --set stream.files=new.csv",
     " predict serve pin rollback "},
    {"Watch a run", "lanyard top run", " top report trace "},
    {"Operate a run", "lanyard set run log.level debug",
     " set add drain forget feed standby promote "},
    {"Plan a run", "lanyard advise shop.json", " crosses check doctor sim advise profile "},
    {"Several boxes", "lanyard keygen keys", " keygen probe coordinator ps worker "},
    {"Help", "lanyard help up", " help "},
};

static bool is_in(const char *list, const char *name)
{
    char word[CLI_WORD_BYTES];
    snprintf(word, sizeof word, " %s ", name);
    return strstr(list, word) != NULL;
}

int cli_help_usage(const cli_commands *all, FILE *file)
{
    fprintf(file, "lanyard %s - trains click-through models on the machines of a local network\n",
            RT_PROGRAM_VERSION);
    for (size_t g = 0; g < RT_COUNT_OF(groups); g++) {
        fprintf(file, "\n%s, for example: %s\n", groups[g].title, groups[g].example);
        for (size_t i = 0; i < all->count; i++)
            if (is_in(groups[g].commands, all->commands[i].name))
                fprintf(file, "  lanyard %-12s %s\n", all->commands[i].name, all->commands[i].help);
    }
    fprintf(file,
            "\nArguments and options: `lanyard COMMAND --help`. The keys of CONFIG that matter "
            "most:\n`lanyard help keys`; all of them: docs/CONFIG.md, or `lanyard check "
            "--document`.\n");
    return file == stdout ? CLI_OK : CLI_USAGE;
}

// What most configurations say something about; the table of keys says what.
static const char *const keys[] = {"stream.files",
                                   "stream.format",
                                   "stream.source",
                                   "stream.table.columns",
                                   "stream.epochs",
                                   "stream.holdout",
                                   "stream.join.window_s",
                                   "model.name",
                                   "model.embedding_dim",
                                   "optimizer.rows.learning_rate",
                                   "optimizer.dense.learning_rate",
                                   "batch.samples",
                                   "workers",
                                   "ps.shards",
                                   "cache.rows",
                                   "boxes",
                                   "dispatch.policy",
                                   "checkpoint.every_s",
                                   "publish.every_s",
                                   "watch.listen"};

// The first sentence, or all of it where it has no other.
static size_t first_sentence(const char *help)
{
    const char *end = strstr(help, ". ");
    return end ? (size_t)(end - help) + 1 : strlen(help);
}

static int print_keys(void)
{
    for (size_t i = 0; i < RT_COUNT_OF(keys); i++) {
        const char *help = rt_config_key_help(keys[i]);
        rt_assert(help);
        printf("  %-30s %.*s\n", keys[i], (int)first_sentence(help), help);
    }
    printf(
        "\nIn CONFIG a key stands in its section, {\"model\": {\"name\": \"dlrm\"}}; on the command "
        "line\n--set model.name=dlrm. All keys: `lanyard check --document`.\n");
    return CLI_OK;
}

static const cli_command *find(const cli_commands *all, const char *name)
{
    for (size_t i = 0; i < all->count; i++)
        if (strcmp(all->commands[i].name, name) == 0)
            return &all->commands[i];
    return NULL;
}

int cli_help_command(const cli_command *command)
{
    put_synopsis(stdout, command);
    if (command->options)
        printf("\n%s", command->options);
    if (strstr(command->arguments, "--set "))
        printf("%s", CLI_SET_HELP);
    return CLI_OK;
}

static void put_plugins(bool wanted)
{
    static const char *const files[][2] = {
        {"cuda", RT_CUDA_FILE}, {"mpi", EW_MPI_FILE}, {"ucx", RT_UCX_FILE}};
    for (size_t i = 0; i < RT_COUNT_OF(files); i++)
        if (rt_plugin_is_there(files[i][1]) == wanted)
            printf(" %s", files[i][0]);
}

// What a build may be without: "has" or "has not".
static void put_features(bool wanted)
{
    const struct {
        const char *name;
        bool is_there;
    } parts[] = {{"mqtt", rt_source_is_built(RT_SOURCE_MQTT)},
                 {"kafka", rt_source_is_built(RT_SOURCE_KAFKA)}};
    for (size_t i = 0; i < RT_COUNT_OF(parts); i++)
        if (parts[i].is_there == wanted)
            printf(" %s", parts[i].name);
    put_plugins(wanted);
    printf("\n");
}

int cli_help_version(void)
{
    printf("lanyard %s\nsources:", rt_build());
    for (int kind = 0; kind < (int)RT_SOURCE_COUNT; kind++)
        if (rt_source_is_built((rt_source_kind)kind))
            printf(" %s", rt_config_choice_name("stream.source", kind));
    printf("\nwith:");
    put_features(true);
    printf("without:");
    put_features(false);
    return CLI_OK;
}

static int print_completion(const cli_commands *all, const char *shell)
{
    if (strcmp(shell, "bash") == 0)
        cli_completion_bash(all, stdout);
    else if (strcmp(shell, "zsh") == 0)
        cli_completion_zsh(all, stdout);
    else
        return CLI_USAGE;
    return CLI_OK;
}

static int explain_named(const cli_commands *all, const char *name)
{
    if (strcmp(name, "keys") == 0)
        return print_keys();
    const cli_command *command = find(all, name);
    if (!command)
        return CLI_USAGE;
    return cli_help_command(command);
}

int cli_help(const cli_commands *all, int argc, char **argv)
{
    const char *name = NULL, *folder = NULL, *shell = NULL, *sets[CLI_SETS_MAX];
    uint32_t set_count;
    rt_error error = {0};
    const cli_option options[] = {{"man", &folder, NULL}, {"completion", &shell, NULL}};
    if (!cli_parse(argc, argv, options, RT_COUNT_OF(options), &name, sets, &set_count))
        return CLI_USAGE;
    int code = CLI_USAGE;
    const bool is_one = (name != NULL) + (folder != NULL) + (shell != NULL) <= 1;
    if (set_count || !is_one)
        code = CLI_USAGE;
    else if (folder)
        code = cli_end(cli_manual_write(all, folder, &error), &error);
    else if (shell)
        code = print_completion(all, shell);
    else if (name)
        code = explain_named(all, name);
    else
        code = cli_help_usage(all, stdout);
    if (code == CLI_USAGE)
        fprintf(stderr,
                "lanyard help: expected one of the commands, keys, --man DIR, or --completion "
                "bash or zsh (see lanyard help)\n");
    return code;
}
