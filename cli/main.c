// lanyard - the program: picks a subcommand and hands over.
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "cli/cli.h"
#include "runtime/rt_member.h"

#define FILES_MAX 65536 // descriptors

static const cli_command commands[] = {
    {"up", "CONFIG [--out DIR] [--resume] [--set KEY=VALUE]... [--trace]",
     "train: spawns coordinator, PS shards and workers on this machine; --resume: go on from the "
     "newest checkpoint",
     cli_up},
    {"sim",
     "CONFIG [--policies SPEC,...] [--json] [--trace FILE] [--records FILE] [--journal FILE] "
     "[--set KEY=VALUE]...",
     "plan without workers: what would be transferred, and what it would cost", cli_sim},
    {"eval", "DIR [--json] [--set KEY=VALUE]...",
     "log loss and AUC of a saved model or checkpoint on other rows", cli_eval},
    {"check", "CONFIG [--count] [--set KEY=VALUE]... [--model] | --document",
     "check a configuration, print it with all defaults, and what it takes, or what its model "
     "costs",
     cli_check},
    {"doctor", "CONFIG [--out DIR] [--json] [--set KEY=VALUE]...",
     "test what this box needs for a run, and say what to fix", cli_doctor},
    {"bench", "dispatch | device [OPTION]...",
     "measure this build on this machine: `lanyard bench` lists what", cli_bench},
    {"probe", "ADDRESS [--json] [--listen] [--config CONFIG | --insecure]",
     "measure the link to a PS shard, or to another `lanyard probe --listen`", cli_probe},
    {"report", "RUN... [--out FILE]",
     "one HTML file (default report.html) about runs: RUN is what --out named", cli_report},
    {"keygen", "DIR [--name BOX]", "make the key pair of a box, for runs on several", cli_keygen},
    {"coordinator",
     "CONFIG [--out DIR] [--resume | --restart] [--announce-fd FD] [--watch CONFIG] [--bind HOST]",
     "one process of a run; --bind: listen there, instead of network.bind", cli_coordinator},
    {"ps", "CONFIG --rank N [--coordinator HOST:PORT] [--bind HOST]",
     "one process of a run; the coordinator is at network.coordinator if not given", cli_ps},
    {"worker", "CONFIG --rank N [--coordinator HOST:PORT]", "one process of a run", cli_worker},
};

static int usage(FILE *file)
{
    fprintf(file, "lanyard %s - trains click-through models on the machines of a local network\n\n",
            RT_PROGRAM_VERSION);
    for (size_t i = 0; i < RT_COUNT_OF(commands); i++)
        fprintf(file, "  lanyard %s %s\n      %s\n", commands[i].name, commands[i].arguments,
                commands[i].help);
    fprintf(file, "\nAll keys of CONFIG: docs/CONFIG.md, or `lanyard check --document`.\n");
    return file == stdout ? CLI_OK : CLI_USAGE;
}

// Writing to a pipe that nobody reads is an error like others, and strangers' connections must not
// use up the descriptors that the program needs.
static void prepare_process(void)
{
    struct rlimit files;
    signal(SIGPIPE, SIG_IGN);
    if (getrlimit(RLIMIT_NOFILE, &files) != 0)
        return;
    files.rlim_cur = files.rlim_max < FILES_MAX ? files.rlim_max : FILES_MAX;
    (void)setrlimit(RLIMIT_NOFILE, &files);
}

int main(int argc, char **argv)
{
    rt_keep_freed_memory();
    prepare_process();
    // A file that may not grow (ulimit -f) is an error of that file, not the end of the process.
    (void)signal(SIGXFSZ, SIG_IGN);
    if (argc < 2)
        return usage(stderr);
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "help") == 0)
        return usage(stdout);
    if (strcmp(argv[1], "--version") == 0) {
        printf("lanyard %s\n", RT_PROGRAM_VERSION);
        return CLI_OK;
    }
    for (size_t i = 0; i < RT_COUNT_OF(commands); i++) {
        if (strcmp(argv[1], commands[i].name) == 0)
            return commands[i].run(argc - 1, argv + 1);
    }
    fprintf(stderr, "lanyard: unknown command \"%s\"\n\n", argv[1]);
    return usage(stderr);
}
