// lanyard - the program: picks a subcommand and hands over.
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/close_range.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cli/cli_help.h"
#include "runtime/rt_edit.h"
#include "runtime/rt_locale.h"
#include "runtime/transport/rt_member.h"

#define FILES_MAX 65536 // descriptors

static int help(int argc, char **argv);

static const cli_command commands[] = {
    {"init", "FILE [--label NAME[=VALUE]]",
     "a configuration for a file of rows: what its columns are is guessed",
     "  FILE                  rows as CSV, by tabs or other characters, or JSON lines; also packed\n"
     "                        (gzip, xz, bzip2, zstd) or in UTF-16; - is standard input\n"
     "  --label NAME[=VALUE]  the column that is predicted, and which of its texts is 1\n"
     "The configuration is printed: `lanyard init sales.csv > shop.json`, then `lanyard up shop.json`.\n"
     "A table on standard error says why each column is what it is taken for (docs/FORMATS.md).\n",
     cli_init},
    {"up", "CONFIG [--out DIR] [--init MODEL | --resume] [--trace] [--set KEY=VALUE]...",
     "train: spawns coordinator, PS shards and workers on this machine (also: lanyard train)",
     "  --out DIR        metrics.jsonl, records.jsonl, summary.json, model/, checkpoints/ go "
     "there;\n"
     "                   those of an earlier run are replaced, but for checkpoints\n"
     "  --init MODEL     begin with a finished model, model/ of a run: with other workers, "
     "shards,\n"
     "                   caches, and more fields behind its own\n"
     "  --resume         go on from the newest checkpoint in DIR\n"
     "  --trace          DIR/trace.jsonl: what each worker did in each iteration, a line each\n"
     "Ctrl-C ends a run with its model; SIGUSR1 asks for a checkpoint, SIGHUP to read CONFIG "
     "again.\n",
     cli_up},
    {"sim",
     "CONFIG [--policies SPEC,...] [--json] [--trace FILE] [--placements FILE] "
     "[--records FILE] [--journal FILE] [--fixed-sets] [--set KEY=VALUE]...",
     "plan without workers: what would be transferred, and what it would cost",
     "  --policies SPEC,...  one simulation each; SPEC is a policy and keys of the section "
     "dispatch:\n"
     "                       laia,esd:alpha=0.5,makespan:micro_batch_min=32:micro_batch_max=224\n"
     "                       fae:profile=FILE (of `lanyard profile`); or a design that is only\n"
     "                       simulated (docs/POLICIES.md): bagpipe:window=N\n"
     "  --json               everything that was counted\n"
     "  --trace FILE         what each worker did in each iteration, a line each\n"
     "  --placements FILE    who gets which sample, and its keys, a line each: for "
     "tools/recount.py\n"
     "  --records FILE       plan a run again: records.jsonl in its folder\n"
     "  --journal FILE       write such records of this simulation\n"
     "  --fixed-sets         how far each is from the best fixed set of workers; one more "
     "simulation\n"
     "                       for each number of workers\n",
     cli_sim},
    {"advise", "CONFIG [--iterations N] [--json] [--set KEY=VALUE]...",
     "which policy, participants and caches are fastest on this stream and these links",
     "  --iterations N  batches of each simulation, the second half counts (48)\n"
     "  --json          all configurations, not only the first ten\n",
     cli_advise},
    {"crosses",
     "FILE [--label NAME[=VALUE]] [--samples N] [--memory BYTES] [--json] [--set KEY=VALUE]...",
     "which two columns say more together, as columns for the configuration",
     "  FILE                  CONFIG with stream.table.columns, or rows as `lanyard init` takes them\n"
     "  --label NAME[=VALUE]  of rows: the column that is predicted, and which of its texts is 1\n"
     "  --samples N           the first so many are read; default: 500000\n"
     "  --memory BYTES        for them and what is counted (1 GiB): when it is full reading ends\n"
     "  --json                as JSON\n"
     "Each pair of columns is judged by samples that it has not learned from. At most five are\n"
     "proposed, each with its gain and its cost in rows, in a table on standard error; standard\n"
     "output has the elements for the end of stream.table.columns (docs/FORMATS.md).\n",
     cli_crosses},
    {"profile",
     "CONFIG [--samples N] [--rows N | --memory BYTES] [--out FILE] [--count-memory BYTES] "
     "[--json] [--set KEY=VALUE]...",
     "which rows the stream looks up most, and how much of it they cover",
     "  --samples N           read so many; default: to the end of the input\n"
     "  --rows N              so many rows are hot; default: those that cover 90% of look-ups\n"
     "  --memory BYTES        as many as fit, with the state of the optimizer\n"
     "  --out FILE            the hot rows, for dispatch.profile and dispatch.policy fae\n"
     "  --count-memory BYTES  for counting (1 GiB: 25 million rows). Counts are exact: when it is\n"
     "                        full counting ends, and a line says after how many samples\n"
     "  --json                as JSON\n",
     cli_profile},
    {"eval", "DIR [--json] [--predictions FILE] [--set KEY=VALUE]...",
     "log loss and AUC of a saved model or checkpoint on other rows",
     "  DIR     model/ of a run, or one of its checkpoints/ckpt-...; its config.json is read\n"
     "  --json  as JSON\n"
     "  --predictions FILE  write the probability of label 1 of every sample, one a line; of\n"
     "          several labels or classes one column for each\n",
     cli_eval},
    {"predict", "MODEL [--out FILE] [--threads N] [--set KEY=VALUE]...",
     "the probability of label 1 of every line of an input, in its order",
     "  MODEL        model/ of a run, or one of its checkpoints/ckpt-...; its config.json is read\n"
     "  --out FILE   instead of standard output\n"
     "  --threads N  that score; default: the cores that it may use\n"
     "--set stream.files=- reads standard input. Lines need no label. A line that is no sample\n"
     "(malformed, blank) gives \"nan\", so that lines stay side by side; a header gives none.\n"
     "Of a model of several labels or classes one column for each, in their order, by tabs.\n",
     cli_predict},
    {"serve", "MODEL [--run ADDRESS[,ADDRESS]] [--set KEY=VALUE]...",
     "answer requests for predictions over HTTP",
     "  MODEL  model/ of a run, or the folder that a run publishes to (publish.every_s): what is\n"
     "         put there while it runs, it answers with; until there is one it waits\n"
     "  --run ADDRESS  what a run on another box publishes (HOST:PORT, publish.address) is copied "
     "to\n"
     "                 MODEL; the second one is asked where the first does not answer: the "
     "standby's\n"
     "The address is printed: POST /predict; GET /health, /metrics (docs/SERVING.md).\n",
     cli_serve},
    {"pin", "FOLDER [--version N | --off]",
     "keep servers at one of the models that a run has published",
     "  FOLDER       that a run publishes to\n"
     "  --version N  that of iteration N; default: the one in force\n"
     "  --off        the newest good one is in force again, and so are those that come\n",
     cli_pin},
    {"rollback", "FOLDER", "let servers go back to the published model before, and stay there",
     "  FOLDER  that a run publishes to; `lanyard pin FOLDER --off` ends it\n", cli_rollback},
    {"export", "SOURCE --out DIR", "make a model out of a checkpoint",
     "  SOURCE     a checkpoint; or the folder of a run, also of one that is training: its newest\n"
     "  --out DIR  the model takes the place of the one there, as a whole\n",
     cli_export},
    {"feed", "CONFIG [--spool DIR] [--set KEY=VALUE]...",
     "send events of this box to the coordinator of a run (feed.to), over a spool on this disk",
     "  --spool DIR  what the coordinator has not acknowledged waits there (journal.directory)\n"
     "Ends with its input, or by a signal; what is in the spool is sent by the next start.\n",
     cli_feed},
    {"set", "RUN KEY VALUE", "change a key of a run while it trains",
     "  RUN    the folder of the run, on the coordinator's box; or a CONFIG with "
     "network.coordinator,\n"
     "         from any box with a key: coordinator.standby is asked where that does not answer\n"
     "  KEY    dispatch.alpha, .search_evaluations, .budget_ms, .policy, .participants, "
     "log.level;\n"
     "         optimizer.rows.learning_rate, optimizer.dense.learning_rate: by a checkpoint from "
     "which\n"
     "         all processes start again\n"
     "  VALUE  as after --set\n"
     "What changes plans is in records.jsonl and in checkpoints (docs/OPERATIONS.md).\n",
     cli_set},
    {"add",
     "RUN BOX [--gbps G | --gbps-up G --gbps-down G] [--workers N] [--shards N] [--host HOST] "
     "[--port N] [--transport T] [--public-key FILE] [--set KEY=VALUE]...",
     "take a box into a run that trains",
     "  RUN                as of `lanyard set`\n"
     "  BOX                its name in boxes; its workers and shards are started before, where "
     "`up`\n"
     "                     does not\n"
     "  --gbps G           the box is new to the run: what it is, as in boxes (docs/CONFIG.md).\n"
     "                     The answer names its ranks, and the configuration to start them with\n"
     "  --public-key FILE  of `lanyard keygen` on the new box; all members of the run learn it.\n"
     "                     RUN is the folder of the run then\n"
     "Training stands still for a checkpoint, and goes on from it with the box, as soon as its "
     "members\nare there (docs/OPERATIONS.md).\n",
     cli_add},
    {"drain", "RUN BOX [--for-good]", "go on without a box, whose rows move to the others",
     "  RUN  as of `lanyard set`\n"
     "  BOX  its name in boxes\n"
     "Its workers and shards end with status 6, after which their units do not start them again.\n"
     "  --for-good  of a box that `lanyard add` has let in with its key: the key is taken off, "
     "too\n",
     cli_drain},
    {"standby", "CONFIG --out DIR [--set KEY=VALUE]...",
     "follow the coordinator of a run from another box, to take its place when it is promoted",
     "  --out DIR  what the coordinator has is kept there: journals, checkpoints\n"
     "It listens on coordinator.standby. Once it was promoted it is the coordinator, also after "
     "the\n"
     "next start (docs/OPERATIONS.md).\n",
     cli_standby},
    {"promote", "CONFIG | DIR [--set KEY=VALUE]...",
     "let the standby of a run lead it: its coordinator is lost, or is to be",
     "  CONFIG  with coordinator.standby\n"
     "  DIR     the folder of the standby, on its box\n"
     "The coordinator before acknowledges nothing any more and ends, with status 5, as soon as it\n"
     "hears of it (docs/OPERATIONS.md).\n",
     cli_promote},
    {"verify", "DIR", "read all of a model or of checkpoints, and say whether they are whole",
     "  DIR  a model, a checkpoint, or the folder of a run or of checkpoints: all of them\n"
     "Status 1 where one is damaged, or lacks what it builds on.\n",
     cli_verify},
    {"forget", "RUN COLUMN VALUE", "end the rows of a value, such as a person's id, in a run",
     "  RUN     as of `lanyard set`\n"
     "  COLUMN  its name: C1 to C26 of format criteo, or one of stream.table.columns\n"
     "Its row ends in shards and caches, and in checkpoints and published models from then on\n"
     "(docs/SECURITY.md).\n",
     cli_forget},
    {"check",
     "CONFIG [--count] [--set KEY=VALUE]... [--model] | CONFIG --migrate | --document | --sources",
     "check a configuration, print it with all defaults, and what it takes, or what its model "
     "costs",
     "  --count     read the input once to count its distinct keys: what a PS shard needs\n"
     "  --model     weights, operations and bytes of the model\n"
     "  --migrate   CONFIG itself, without defaults, by the names that keys have today\n"
     "  --document  the reference of all keys (docs/CONFIG.md)\n"
     "  --sources   what this build can read samples from (stream.source)\n",
     cli_check},
    {"doctor", "CONFIG [--out DIR] [--json] [--set KEY=VALUE]...",
     "test what this box needs for a run, and say what to fix",
     "  --out DIR  where the run will write: rights and space are tested there\n"
     "  --json     as JSON\n",
     cli_doctor},
    {"probe", "HOST:PORT [--json] [--listen] [--config CONFIG | --insecure]",
     "measure the link to a PS shard, or to another `lanyard probe --listen`",
     "  --listen         answer probes at this address, until a signal ends it\n"
     "  --config CONFIG  with the keys that its section security names\n"
     "  --insecure       beyond loopback without keys\n"
     "  --json           as JSON\n",
     cli_probe},
    {"top", "[ADDRESS[,ADDRESS] | RUN] [--once] [--json] [--token FILE]",
     "how a run stands: speed, quality, links, who takes part, memory",
     "  ADDRESS       HOST:PORT of its coordinator (watch.listen); default 127.0.0.1:7070; the\n"
     "                second one, of the standby, is asked where the first does not answer\n"
     "  RUN           what --out named; default: this folder, if it is one\n"
     "  --once        print it and end, as where standard output is no terminal\n"
     "  --json        the same as JSON (docs/WATCHING.md)\n"
     "  --token FILE  what security.token names, if the coordinator asks for it\n"
     "q or Ctrl-C ends it.\n",
     cli_top},
    {"report", "RUN... [--out FILE]", "one HTML file about runs",
     "  RUN         what --out of `lanyard up` named\n"
     "  --out FILE  instead of report.html\n",
     cli_report},
    {"trace", "RUN [--iteration N] [--count N] [--out FILE]",
     "where the time of iterations went on all boxes, as a Chrome trace",
     "  RUN            what --out of `lanyard up` named, also of a run that is training\n"
     "  --iteration N  the first one; default: the last ones\n"
     "  --count N      how many (1)\n"
     "  --out FILE     instead of standard output\n"
     "To look at: chrome://tracing, or https://ui.perfetto.dev, which reads it in the browser.\n",
     cli_trace},
    {"keygen", "DIR [--name BOX]", "make the key pair of a box, for runs on several",
     "  --name BOX  BOX.secret and BOX.public; default: the name of this machine\n", cli_keygen},
    {"coordinator",
     "CONFIG [--out DIR] [--init MODEL] [--resume | --restart] [--trace] [--bind HOST] [--set "
     "KEY=VALUE]...",
     "one process of a run",
     "  --out DIR        as with `lanyard up`, and so are --init, --resume and --trace\n"
     "  --restart        as --resume; from the beginning if no checkpoint was ever completed\n"
     "  --bind HOST      listen there, instead of network.bind\n"
     "`lanyard up` also gives --announce-fd FD (the address goes there), --watch CONFIG (file to\n"
     "read again) and --without RANK,... (workers not to wait for); `lanyard standby` "
     "--promoted.\n",
     cli_coordinator},
    {"ps", "CONFIG --rank N [--coordinator HOST:PORT] [--bind HOST] [--set KEY=VALUE]...",
     "one process of a run",
     "  --rank N                 its number, from 0: below ps.shards (of boxes: `lanyard check`)\n"
     "  --coordinator HOST:PORT  instead of network.coordinator\n"
     "  --bind HOST              listen there, instead of network.bind\n",
     cli_ps},
    {"worker",
     "CONFIG --rank N [--coordinator HOST:PORT] [--bind HOST] [--share N] [--set KEY=VALUE]...",
     "one process of a run",
     "  --rank N                 its number, from 0: below workers (of boxes: `lanyard check`)\n"
     "  --coordinator HOST:PORT  instead of network.coordinator\n"
     "  --bind HOST              listen there for other workers (dispatch.hand_over,\n"
     "                           dispatch.reduce), instead of network.bind\n"
     "  --share N                workers on this box, which share its cores (compute.threads 0)\n",
     cli_worker},
    {"help", "[COMMAND | keys | --man DIR | --completion bash|zsh]",
     "this list, what one command takes, manual pages, completion for a shell",
     "  keys                   the keys of CONFIG that matter most, a line each\n"
     "  --man DIR              writes the manual pages to DIR\n"
     "  --completion bash|zsh  prints what the shell reads: `. <(lanyard help --completion "
     "bash)`\n",
     help},
};

static const cli_commands all_commands = {commands, RT_COUNT_OF(commands)};

static int help(int argc, char **argv)
{
    return cli_help(&all_commands, argc, argv);
}

static bool asks_for_help(const char *argument)
{
    return strcmp(argument, "--help") == 0 || strcmp(argument, "-h") == 0;
}

// What these print is for who watches, and not what they were asked for.
static bool prints_aside(const cli_command *command)
{
    int (*const runs[])(int, char **) = {cli_up,      cli_coordinator, cli_ps,   cli_worker,
                                         cli_standby, cli_feed,        cli_serve};
    for (size_t i = 0; i < RT_COUNT_OF(runs); i++)
        if (command->run == runs[i])
            return true;
    return false;
}

// Who is told that all went well relies on what was printed, and who reads no more on nothing.
static int close_output(int code)
{
    const bool was_bad = ferror(stdout) != 0; // errno is of another time then
    if ((fflush(stdout) == 0 && !was_bad) || code != CLI_OK || cli_reader_has_gone())
        return code;
    if (was_bad)
        fprintf(stderr, "lanyard: error: cannot write standard output\n");
    else
        fprintf(stderr, "lanyard: error: cannot write standard output: %s\n", strerror(errno));
    return CLI_FAILED;
}

// The same program with the same words in this process: nobody has to start it again. It stays what
// it is to whoever watches it, and has nothing of the start before. Returns if that cannot be.
static void begin_again(char **argv)
{
    char path[PATH_MAX];
    const ssize_t size = readlink("/proc/self/exe", path, sizeof path - 1);
    if (size < 0)
        return;
    path[size] = '\0';
    char *replaced = strstr(path, " (deleted)"); // by another version, which is the one to start
    if (replaced)
        *replaced = '\0';
    (void)fflush(NULL);
    (void)syscall(SYS_close_range, STDERR_FILENO + 1, UINT_MAX,
                  CLOSE_RANGE_CLOEXEC); // of libraries
    (void)execv(path, argv);
}

static int run_command(const cli_command *command, int argc, char **argv)
{
    bool wants_help = false;
    for (int i = 1; i < argc; i++)
        wants_help = wants_help || asks_for_help(argv[i]);
    if (wants_help)
        return close_output(cli_help_command(command));
    const int code = command->run(argc, argv);
    if (prints_aside(command))
        return code;
    return close_output(code);
}

// Who starts a program may have closed them: the next file that is opened would get their number,
// and what is printed would be in it. These fail as closed ones do.
static void hold_standard_descriptors(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0)
            (void)open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
}

// Writing to a pipe that nobody reads is an error like others, and strangers' connections must not
// use up the descriptors that the program needs.
static void prepare_process(void)
{
    struct rlimit files;
    signal(SIGPIPE, SIG_IGN);
    if (getrlimit(RLIMIT_NOFILE, &files) != 0)
        return;
    files.rlim_cur = rt_min_u64(files.rlim_max, FILES_MAX);
    (void)setrlimit(RLIMIT_NOFILE, &files);
}

// What people type for what is called otherwise here.
static const struct {
    const char *word, *command;
} other_names[] = {{"train", "up"},       {"fit", "up"},        {"run", "up"},
                   {"start", "up"},       {"guess", "init"},    {"infer", "init"},
                   {"new", "init"},       {"score", "predict"}, {"evaluate", "eval"},
                   {"validate", "check"}, {"simulate", "sim"}};

static const cli_command *find_command(const char *name)
{
    for (size_t i = 0; i < RT_COUNT_OF(commands); i++)
        if (strcmp(name, commands[i].name) == 0)
            return &commands[i];
    return NULL;
}

static const char *nearest_command(const char *wanted)
{
    uint32_t least = rt_edit_limit(strlen(wanted));
    const char *nearest = NULL;
    for (size_t i = 0; i < RT_COUNT_OF(commands) + RT_COUNT_OF(other_names); i++) {
        const size_t other = i - RT_COUNT_OF(commands);
        const bool is_command = i < RT_COUNT_OF(commands);
        const char *name = is_command ? commands[i].name : other_names[other].word;
        const uint32_t distance = rt_edit_distance(wanted, strlen(wanted), name, strlen(name));
        if (distance >= least)
            continue;
        least = distance;
        nearest = is_command ? name : other_names[other].command;
    }
    return nearest;
}

static int unknown_command(int argc, char **argv)
{
    const char *nearest = nearest_command(argv[1]);
    fprintf(stderr, "lanyard: unknown command \"%s\"", argv[1]);
    if (access(argv[1], R_OK) == 0 && argc == 2)
        fprintf(stderr, "; for a file of rows: lanyard init %s > run.json", argv[1]);
    else if (nearest)
        fprintf(stderr, ", did you mean \"%s\"?", nearest);
    fprintf(stderr, " (see lanyard --help)\n");
    return CLI_USAGE;
}

int main(int argc, char **argv)
{
    static char up[] = "up";
    hold_standard_descriptors();
    (void)rt_locale_enter();
    rt_keep_freed_memory();
    prepare_process();
    // A file that may not grow (ulimit -f) is an error of that file, not the end of the process.
    (void)signal(SIGXFSZ, SIG_IGN);
    if (argc < 2)
        return cli_help_usage(&all_commands, stderr);
    if (asks_for_help(argv[1]))
        return close_output(cli_help_usage(&all_commands, stdout));
    if (strcmp(argv[1], "--version") == 0)
        return close_output(cli_help_version());
    if (strcmp(argv[1], "train") == 0)
        argv[1] = up;
    const cli_command *command = find_command(argv[1]);
    if (!command)
        return unknown_command(argc, argv);
    const int code = run_command(command, argc - 1, argv + 1);
    if (code != CLI_AGAIN)
        return code;
    begin_again(argv);
    return CLI_ANEW;
}
