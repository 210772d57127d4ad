// The processes of a run: each reads the same configuration and joins the coordinator.
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/file.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cli.h"
#include "dispatch/coordinator/dp_coordinator.h"
#include "edge_worker/ew_worker.h"
#include "edge_worker/predict/ew_recall.h"
#include "ps_lite/ps_merge.h"
#include "ps_lite/ps_model_file.h"
#include "ps_lite/ps_server.h"
#include "runtime/transport/rt_keys.h"
#include "runtime/wire/rt_control.h"

_Static_assert(DP_MERGE_FILES_MAX == PS_MERGE_FILES_MAX, "what is merged at once");

static bool parse_number(const char *text, unsigned long most, unsigned long *number_p)
{
    char *end;
    errno = 0;
    if (!text || !*text)
        return false;
    *number_p = strtoul(text, &end, 10);
    return *end == '\0' && errno == 0 && *number_p <= most;
}

// Workers and shards: --rank and --coordinator; workers: --share.
typedef struct {
    rt_config config;
    rt_keys keys;
    rt_identity identity;
    uint32_t rank, box_workers; // 0: it was not said
    char coordinator[RT_NAME_MAX + 16], standby[RT_NAME_MAX + 16];
    const char *path; // of CONFIG
    bool is_anew;     // it was told that all start anew, at once
    int up_fd;        // of a shard under `up`, a socket to it; -1: none
    char leader[32];  // in the working directory: who led the run (rt_leader.c)
    rt_notify notify;
} member_arguments;

static void open_notify(rt_notify *notify)
{
    rt_notify_open(getenv("NOTIFY_SOCKET"), getenv("WATCHDOG_USEC"), getenv("WATCHDOG_PID"),
                   notify);
}

// --bind: the address that this process listens on, in place of network.bind.
static bool take_bind(const char *address, rt_config *config)
{
    if (!address)
        return true;
    if (rt_control_put_text(config->network_bind, sizeof config->network_bind, address))
        return true;
    fprintf(stderr, "lanyard: --bind %s: an address has at most %zu characters\n", address,
            sizeof config->network_bind - 1);
    return false;
}

// --coordinator, or network.coordinator, and where it is when it is not there.
// A coordinator that is given is the only one: the standby of the configuration may be another's.
static int take_coordinator(const char *given, member_arguments *arguments)
{
    const char *address = given ? given : arguments->config.network_coordinator;
    if (!*address) {
        fprintf(stderr, "lanyard: where is the coordinator? Give --coordinator HOST:PORT, or "
                        "network.coordinator in CONFIG\n");
        return CLI_USAGE;
    }
    if (!given && *arguments->config.standby &&
        !cli_address(arguments->config.standby, arguments->standby, sizeof arguments->standby))
        return CLI_USAGE;
    if (!cli_address(address, arguments->coordinator, sizeof arguments->coordinator))
        return CLI_USAGE;
    return CLI_OK;
}

static int check_rank(uint32_t rank, uint32_t count, const char *of_what)
{
    if (rank < count)
        return CLI_OK;
    fprintf(stderr,
            "lanyard: --rank %" PRIu32 ": the configuration has %" PRIu32 " %s, the first is 0\n",
            rank, count, of_what);
    return CLI_USAGE;
}

// As they stand on the command line.
typedef struct {
    const char *path, *rank, *bind, *coordinator, *share, *up_fd;
    const char *sets[CLI_SETS_MAX];
    uint32_t set_count;
} member_words;

static int read_numbers(const char *command, const member_words *words, member_arguments *arguments)
{
    unsigned long rank = 0, box_workers = 0, fd = 0;
    if (words->up_fd && !parse_number(words->up_fd, INT32_MAX, &fd)) {
        fprintf(stderr, "lanyard ps: --up-fd %s: expected a descriptor\n", words->up_fd);
        return CLI_USAGE;
    }
    arguments->up_fd = words->up_fd ? (int)fd : -1;
    if (!parse_number(words->rank, RT_WORKERS_MAX - 1, &rank)) {
        fprintf(stderr, "lanyard %s: expected --rank N\n", command);
        return CLI_USAGE;
    }
    if (words->share &&
        (!parse_number(words->share, RT_WORKERS_MAX, &box_workers) || box_workers == 0)) {
        fprintf(stderr, "lanyard worker: --share %s: expected 1 to %u workers on this box\n",
                words->share, RT_WORKERS_MAX);
        return CLI_USAGE;
    }
    arguments->rank = (uint32_t)rank;
    arguments->box_workers = (uint32_t)box_workers;
    return CLI_OK;
}

// What it says of this member, against its configuration.
static int take_words(const member_words *words, bool is_worker, member_arguments *arguments)
{
    const rt_config *config = &arguments->config;
    rt_error error = {0};
    if (!take_bind(words->bind, &arguments->config))
        return CLI_USAGE;
    int code = take_coordinator(words->coordinator, arguments);
    if (code != CLI_OK)
        return code;
    if (is_worker)
        code = check_rank(arguments->rank, config->worker_count, "workers");
    else
        code = check_rank(arguments->rank, config->ps_shard_count, "PS shards");
    if (code != CLI_OK)
        return code;
    if (rt_keys_load(config, &arguments->keys, &error)) {
        (void)cli_fail(&error);
        return CLI_MEND;
    }
    return CLI_OK;
}

// A configuration that cannot be loaded is as wrong at the next start.
static int mend_if_failed(int code)
{
    if (code == CLI_FAILED)
        return CLI_MEND;
    return code;
}

static int read_member(int argc, char **argv, const char *role, member_arguments *arguments)
{
    member_words words = {.set_count = 0};
    char name[32];
    *arguments = (member_arguments){0};
    const bool is_worker = strcmp(role, "worker") == 0;
    const cli_option options[] = {
        {"rank", &words.rank, NULL},
        {"coordinator", &words.coordinator, NULL},
        {"bind", &words.bind, NULL},
        {is_worker ? "share" : "up-fd", is_worker ? &words.share : &words.up_fd, NULL}};
    if (!cli_parse(argc, argv, options, RT_COUNT_OF(options), &words.path, words.sets,
                   &words.set_count))
        return CLI_USAGE;
    if (is_worker && !words.rank) // then mpirun may have started it
        words.rank = getenv("OMPI_COMM_WORLD_RANK");
    if (is_worker && !words.share)
        words.share = getenv("OMPI_COMM_WORLD_LOCAL_SIZE");
    int code = read_numbers(argv[0], &words, arguments);
    if (code != CLI_OK)
        return code;
    snprintf(name, sizeof name, "%s %" PRIu32, role, arguments->rank);
    snprintf(arguments->leader, sizeof arguments->leader, "leader.%s-%" PRIu32, role,
             arguments->rank);
    code = cli_load_run(words.path, words.sets, words.set_count, name, &arguments->config);
    if (code != CLI_OK)
        return mend_if_failed(code);
    arguments->path = words.path;
    arguments->identity = cli_identity(&arguments->config);
    code = take_words(&words, is_worker, arguments);
    if (code != CLI_OK) {
        rt_config_fini(&arguments->config);
        return code;
    }
    open_notify(&arguments->notify);
    return CLI_OK;
}

static void end_member(member_arguments *arguments)
{
    rt_notify_close(&arguments->notify);
    rt_keys_clear(&arguments->keys);
    rt_config_fini(&arguments->config);
}

static int fail(rt_status status, const rt_error *error)
{
    // What the coordinator told this member it also says itself, where `up` shows both.
    if (status != RT_REFUSED || !getenv(CLI_UP_VARIABLE))
        (void)cli_fail(error);
    return rt_status_lasts(status) ? CLI_MEND : CLI_FAILED;
}

// Whether this process may take its own place, when all start anew: then nobody waits for whoever
// watches over it. Under `up` that one does it; mpirun wants an end; and words that came
// by a pipe (CONFIG) cannot be read twice.
static bool may_begin_again(const char *path, const rt_config *config)
{
    struct stat info;
    return !getenv(CLI_UP_VARIABLE) && !getenv("OMPI_COMM_WORLD_RANK") &&
           config->collective != RT_COLLECTIVE_MPI && stat(path, &info) == 0 &&
           S_ISREG(info.st_mode);
}

// The end of a member: what the coordinator ordered is no failure of this process. That the run
// failed shows in the status, so that whoever watches the process can start it again, or leave it.
static int member_exit(const member_arguments *arguments, rt_status status, const rt_error *error)
{
    if (!status || (status == RT_STOPPED && strcmp(error->text, RT_RUN_COMPLETE) == 0))
        return CLI_OK;
    if (status != RT_STOPPED)
        return fail(status, error);
    if (!getenv(CLI_UP_VARIABLE))
        rt_info("told to end: %s", error->text);
    if (strcmp(error->text, RT_BOX_DRAINED) == 0)
        return CLI_DRAINED;
    if (arguments->is_anew && may_begin_again(arguments->path, &arguments->config))
        return CLI_AGAIN;
    return CLI_ENDED;
}

int cli_worker(int argc, char **argv)
{
    rt_error error = {0};
    member_arguments arguments;
    int code = read_member(argc, argv, "worker", &arguments);
    if (code != CLI_OK)
        return code;
    cli_give_way(&arguments.config);
    if (arguments.config.compute.nice > 0 &&
        setpriority(PRIO_PROCESS, 0, (int)arguments.config.compute.nice) != 0)
        rt_warn("compute.nice: %s", strerror(errno));
    ew_worker_config worker = {.config = &arguments.config,
                               .identity = arguments.identity,
                               .keys = &arguments.keys,
                               .rank = arguments.rank,
                               .box_workers = arguments.box_workers,
                               .coordinator = arguments.coordinator,
                               .standby = arguments.standby,
                               .leader = arguments.leader,
                               .is_anew = &arguments.is_anew,
                               .notify = &arguments.notify};
    rt_status status =
        cli_transport(&arguments.config, RT_ROLE_WORKER, arguments.rank, &worker.ops, &error);
    if (!status)
        status =
            cli_await(&arguments.config, CLI_WORKER, arguments.rank, -1, &arguments.notify, &error);
    if (!status)
        status = ew_worker_run(&worker, &error);
    code = member_exit(&arguments, status, &error);
    // The run may go on without this worker: others are to judge.
    if (status == RT_PEER && cli_may_shrink(&arguments.config))
        code = CLI_ENDED;
    end_member(&arguments);
    return code;
}

// ---- a shard that outlives a start -----------------------------------------------------------

#define PAUSE_MS 300 // between two starts, so that nobody is asked again and again

// `up` hears that the shard waits, and says where the next coordinator is. False: there is none.
static bool ask_up(member_arguments *arguments, rt_status why)
{
    char text[sizeof arguments->coordinator];
    ssize_t got;
    const char *told = why == RT_STOPPED ? CLI_TOLD : CLI_ALONE;
    if (send(arguments->up_fd, told, strlen(told), MSG_NOSIGNAL) < 0)
        return false;
    do
        got = recv(arguments->up_fd, text, sizeof text - 1, 0);
    while (got < 0 && errno == EINTR);
    if (got <= 0)
        return false;
    text[got] = '\0';
    return cli_address(text, arguments->coordinator, sizeof arguments->coordinator);
}

// is_new: the shard has served since it waited last. Where all start anew the coordinator is there
// soon.
static bool await_next(member_arguments *arguments, const ps_kept *kept, bool is_new,
                       const rt_error *why)
{
    if (is_new)
        rt_info("%s; the rows stay in memory, with how they were at the checkpoint of iteration "
                "%" PRIu32 ": this shard waits for the next start",
                why->text, ps_kept_iteration(kept));
    if (arguments->up_fd >= 0)
        return ask_up(arguments, why->status);
    (void)poll(NULL, 0, arguments->is_anew ? 0 : PAUSE_MS);
    return true;
}

// From start to start, while there are rows to go on with. One that was not taken in again ends as
// after a loss: a process with no past may fit, which reads its configuration anew.
static int serve(member_arguments *arguments, ps_server_config *server, rt_error *error)
{
    ps_kept *kept = NULL;
    bool was_welcome = false, has_waited = false;
    rt_status status;
    server->was_welcome = &was_welcome;
    if (arguments->config.on_worker_loss != RT_LOSS_STOP)
        server->kept = &kept;
    do {
        *error = (rt_error){0};
        was_welcome = false;
        status = ps_server_run(server, error);
        if (status && has_waited && !was_welcome && rt_status_lasts(status)) {
            rt_info("not taken in again: %s", error->text);
            ps_kept_destroy(kept);
            return CLI_ENDED;
        }
        has_waited = true;
    } while (kept && await_next(arguments, kept, was_welcome, error));
    ps_kept_destroy(kept);
    return member_exit(arguments, status, error);
}

int cli_ps(int argc, char **argv)
{
    rt_error error = {0};
    member_arguments arguments;
    int code = read_member(argc, argv, "ps", &arguments);
    if (code != CLI_OK)
        return code;
    cli_give_way(&arguments.config);
    ps_server_config server = {.keys = &arguments.keys,
                               .config = &arguments.config,
                               .rank = arguments.rank,
                               .coordinator = arguments.coordinator,
                               .standby = arguments.standby,
                               .leader = arguments.leader,
                               .identity = arguments.identity,
                               .schema = rt_config_schema(&arguments.config),
                               .is_anew = &arguments.is_anew,
                               .notify = &arguments.notify};
    rt_status status = cli_transport(&arguments.config, RT_ROLE_PS, 0, &server.transport, &error);
    if (!status)
        status =
            cli_await(&arguments.config, CLI_SHARD, arguments.rank, -1, &arguments.notify, &error);
    if (!status)
        code = serve(&arguments, &server, &error);
    else
        code = member_exit(&arguments, status, &error);
    end_member(&arguments);
    return code;
}

// SIGHUP and SIGUSR1 become readable, for every thread of the process.
static int open_signal_fd(void)
{
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGHUP);
    sigaddset(&signals, SIGUSR1);
    if (sigprocmask(SIG_BLOCK, &signals, NULL) != 0)
        return -1;
    return signalfd(-1, &signals, SFD_NONBLOCK | SFD_CLOEXEC);
}

// To whoever spawned this process, who waits for the address; or into the log.
static void announce(void *context, const char *address)
{
    int fd = *(const int *)context;
    if (fd < 0) {
        rt_info("listening on %s", address);
        return;
    }
    dprintf(fd, "%s\n", address);
}

static void say_saved(void *context)
{
    const int fd = *(const int *)context;
    if (fd >= 0)
        dprintf(fd, CLI_SAVED "\n");
}

// *made: it was not there before.
static rt_status prepare_directory(const char *directory, bool *made, rt_error *error)
{
    *made = directory && mkdir(directory, 0777) == 0;
    if (!directory || *made || errno == EEXIST)
        return RT_OK;
    return rt_fail(error, rt_status_of_errno(errno), "%s: cannot create it: %s", directory,
                   strerror(errno));
}

// Until this process ends no other coordinator takes the folder; NULL, or not there: nothing to
// take. Where the file system knows no locks there is none.
static rt_status hold_folder(const char *path, rt_error *error)
{
    if (!path)
        return RT_OK;
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK)
        return RT_OK;
    close(fd);
    return rt_fail(error, RT_IO,
                   "%s: another coordinator uses this folder: end it, or use another folder", path);
}

// "1,3": ranks of workers.
static bool parse_ranks(const char *text, uint64_t *ranks_p)
{
    for (const char *at = text; *at; at += *at == ',') {
        char *end;
        const unsigned long rank = strtoul(at, &end, 10);
        if (end == at || *at == '-' || rank >= RT_WORKERS_MAX || (*end && *end != ','))
            return false;
        *ranks_p |= rt_bit((uint32_t)rank);
        at = end;
    }
    return *ranks_p != 0;
}

// The status of a coordinator's end. is_anew: it goes on from its checkpoint by itself.
static int coordinator_exit(rt_status status, bool is_anew, const rt_error *error)
{
    if (status == RT_AGAIN) {
        rt_info("%s", error->text);
        return is_anew ? CLI_AGAIN : CLI_ANEW;
    }
    if (!status)
        return CLI_OK;
    const int code = fail(status, error);
    if (is_anew)
        return CLI_AGAIN;
    if (status == RT_PEER || status == RT_TIMEOUT)
        return CLI_ENDED; // another process was lost: with all of them started again it can go on
    return code;
}

// In its folder, which is there.
static rt_status run_in_folder(dp_coordinator_config *coordinator, rt_error *error)
{
    const rt_config *config = coordinator->config;
    rt_schema schema;
    rt_status status = hold_folder(coordinator->directory, error);
    if (status)
        return status;
    status = hold_folder(config->checkpoint.directory, error);
    if (status)
        return status;
    status =
        cli_await(config, CLI_COORDINATOR, 0, coordinator->stop_fd, coordinator->notify, error);
    if (status)
        return status;
    status = cli_schema(config, &schema, error);
    if (status)
        return status;
    status = cli_dense_bytes(config, &schema, &coordinator->dense_bytes, error);
    if (status)
        return status;
    return dp_coordinator_run(coordinator, error);
}

// Checks what it needs and runs it. keys: loaded here, cleared by the caller.
static rt_status run_coordinator(dp_coordinator_config *coordinator, rt_keys *keys, rt_error *error)
{
    const rt_config *config = coordinator->config;
    const char *out = coordinator->directory;
    bool made = false;
    if (rt_keys_load(config, keys, error))
        return RT_CONFIG;
    rt_status status = rt_config_check_input(config, error);
    if (status)
        return status;
    status = prepare_directory(out, &made, error);
    if (status)
        return status;
    status = run_in_folder(coordinator, error);
    if (status && made)
        (void)rmdir(out); // unless something is in it
    return status;
}

// site: the configuration as the other boxes have it, before this one's own values. Other than
// CLI_OK: both are given back.
static int take_site(rt_config *config, rt_config *site, const char *bind)
{
    cli_give_way(config);
    if (rt_config_copy(config, site)) {
        rt_config_fini(config);
        rt_error_log("out of memory");
        return CLI_FAILED;
    }
    if (take_bind(bind, config))
        return CLI_OK;
    rt_config_fini(site);
    rt_config_fini(config);
    return CLI_USAGE;
}

// As they stand on the command line.
typedef struct {
    const char *path, *out, *announce_fd, *watch, *bind, *without, *model;
    const char *sets[CLI_SETS_MAX];
    uint32_t set_count;
    bool trace, resume, restart, promoted;
    int fd;         // of announce_fd; -1: none
    uint64_t ranks; // of without
} coordinator_words;

static bool read_words(int argc, char **argv, coordinator_words *w)
{
    unsigned long fd = 0;
    const cli_option options[] = {
        {"out", &w->out, NULL},         {"resume", NULL, &w->resume},
        {"restart", NULL, &w->restart}, {"announce-fd", &w->announce_fd, NULL},
        {"watch", &w->watch, NULL},     {"bind", &w->bind, NULL},
        {"trace", NULL, &w->trace},     {"without", &w->without, NULL},
        {"init", &w->model, NULL},      {"promoted", NULL, &w->promoted}};
    if (!cli_parse(argc, argv, options, RT_COUNT_OF(options), &w->path, w->sets, &w->set_count))
        return false;
    w->fd = -1;
    if (w->announce_fd) {
        if (!parse_number(w->announce_fd, INT32_MAX, &fd))
            return false;
        w->fd = (int)fd;
    }
    if (w->without && !parse_ranks(w->without, &w->ranks)) {
        fprintf(stderr, "lanyard coordinator: expected --without RANK[,RANK]...\n");
        return false;
    }
    return true;
}

// A run goes on from its checkpoints, or begins, with a model if it is given one.
static void set_beginning(dp_coordinator_config *coordinator, const coordinator_words *w)
{
    coordinator->resume = DP_RESUME_NO;
    if (w->restart)
        coordinator->resume = DP_RESUME_IF_ANY;
    else if (w->resume)
        coordinator->resume = DP_RESUME_NEWEST;
    if (!w->resume)
        coordinator->model = w->model;
    coordinator->may_shrink = w->restart && cli_may_shrink(coordinator->config);
}

static rt_status begin_coordinator(dp_coordinator_config *coordinator, const coordinator_words *w,
                                   rt_config *config, rt_keys *keys, rt_error *error)
{
    rt_status status = cli_transport(config, RT_ROLE_COORDINATOR, 0, &coordinator->ops, error);
    if (!status && w->promoted)
        status = cli_begin_promoted(config, w->out, error);
    if (status)
        return status;
    if (w->promoted)
        cli_move_to_standby(config);
    return run_coordinator(coordinator, keys, error);
}

int cli_coordinator(int argc, char **argv)
{
    rt_error error = {0};
    rt_config config, site;
    rt_keys keys;
    coordinator_words words = {.set_count = 0};
    if (!read_words(argc, argv, &words))
        return CLI_USAGE;
    int code = cli_load_run(words.path, words.sets, words.set_count, "coordinator", &config);
    if (code != CLI_OK)
        return mend_if_failed(code);
    const rt_identity identity = cli_identity(&config);
    code = take_site(&config, &site, words.bind);
    if (code != CLI_OK)
        return code;
    rt_notify notify;
    open_notify(&notify);
    dp_coordinator_config coordinator = {
        .config = &config,
        .site = &site,
        .identity = identity,
        .keys = &keys,
        .schema = rt_config_schema(&config),
        .without = words.ranks,
        .spawned = words.announce_fd != NULL,
        .directory = words.out,
        .trace = words.trace,
        .stop_fd = cli_open_stop_fd(),
        .signal_fd = open_signal_fd(),
        .reload = {words.watch ? words.watch : words.path, words.sets, words.set_count, NULL},
        .progress = true,
        .notify = &notify,
        .recall = ew_recall,
        .merge = ps_merge,
        .extract = cli_extract,
        .values = ps_model_values,
        .announce = announce,
        .saved = say_saved,
        .announce_context = &words.fd};
    bool is_anew = false;
    if (words.restart && !words.announce_fd && may_begin_again(words.path, &config))
        coordinator.is_anew = &is_anew;
    set_beginning(&coordinator, &words);
    if (words.promoted)
        coordinator.reload.adapt = cli_move_to_standby;
    const rt_status status = begin_coordinator(&coordinator, &words, &config, &keys, &error);
    rt_notify_close(&notify);
    rt_keys_clear(&keys);
    rt_config_fini(&site);
    rt_config_fini(&config);
    return coordinator_exit(status, is_anew, &error);
}
