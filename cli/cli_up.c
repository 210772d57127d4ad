// `lanyard up`: one run on this machine. Spawns the processes, watches them, cleans up.
//
// The first process that ends in an unexpected way is named and ends the run; all others are told
// to go, then made to. With on_worker_loss all of them are started again then, from the newest
// checkpoint: nothing of a failed attempt is kept but what is on disk. With "shrink" a lost worker
// stays away for timeouts.rejoin_s; then it is started beside the others and waits until the
// coordinator ends the attempt, at a checkpoint, so that all start anew. A shard that says that it
// waits, with its rows, is told where the next coordinator is; all others are new. Whether the loss ends the
// attempt is the coordinator's to say: it may go on without a worker that sat out. Children die
// with this process (PR_SET_PDEATHSIG), so nothing stays behind.
#define _GNU_SOURCE // memfd_create
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cli/cli.h"
#include "dispatch/coordinator/dp_losses.h"
#include "dispatch/coordinator/dp_members.h"
#include "edge_worker/device/ew_device.h"
#include "runtime/rt_hash.h"
#include "runtime/wire/rt_control.h"

#define GRACE_MS 2000u // between being told to end and being made to
#define CHILDREN_MAX (1 + RT_WORKERS_MAX + RT_SHARDS_MAX)
#define ARGUMENTS_MAX (24 + 2 * CLI_SETS_MAX)
#define RESTARTS_MAX 1024u // that are remembered
#define HOUR_NS (UINT64_C(3600) * 1000000000)

typedef struct {
    pid_t pid; // 0: ended
    pid_t past_pid;
    int failure; // as wait reports it; 0: none
    bool waits;  // a worker that the attempt goes on without
    bool stays;  // a shard that has said that it waits for the next attempt
    int talk_fd; // of a shard, a socket to it; -1: none
    uint32_t peer;
    char name[32];
} child;

typedef struct {
    rt_config *config;
    const char *path; // of the configuration as the user wrote it, and what the command line adds
    const char *sets[CLI_SETS_MAX];
    uint32_t set_count;
    const char *out, *init;
    bool trace, resume;
    char config_path[64]; // of the resolved configuration, in memory
    int config_fd;
    char address[RT_NAME_MAX];
    int announce_fd;              // what the coordinator says beside its log; -1: closed
    child children[CHILDREN_MAX]; // the coordinator is the first
    uint32_t child_count;
    child kept[RT_SHARDS_MAX]; // shards of the attempt before that wait
    uint32_t kept_count;
    uint64_t config_hash; // of what the children were given
    sigset_t signals;
    const child *first_failed;
    bool told;                          // children were told to end
    bool stop_asked;                    // by the user
    uint32_t lost;                      // peer that was lost; 0: none, or nobody knows
    uint64_t restarts_ns[RESTARTS_MAX]; // when, a ring
    uint32_t restart_count;
    bool again;            // an attempt was made before
    dp_losses losses;      // workers that were lost of late
    dp_members members;    // who takes part
    uint64_t absent, back; // workers that the attempt began without; of them, those that are back
    uint64_t left;         // workers that ended since, and the coordinator may have gone on without
    uint64_t back_ns[RT_WORKERS_MAX]; // when absent ones are to be started
} run;

// ---- children --------------------------------------------------------------------------------

// arguments[0] is "lanyard", which is this program, or another one on the path. ready_fd is closed
// once signals that the parent sends are heard.
_Noreturn static void exec_child(bool reads_input, pid_t parent, int ready_fd,
                                 char *const *arguments)
{
    static const int parents[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1};
    sigset_t none;
    sigemptyset(&none);
    // Ctrl-C reaches the parent, which passes it on to the coordinator alone; but who reads a
    // terminal has to stay in its foreground group. What came before the child left that group was
    // blocked, and is forgotten here.
    if (!(reads_input && isatty(STDIN_FILENO))) {
        setpgid(0, 0);
        for (size_t i = 0; i < RT_COUNT_OF(parents); i++) {
            void (*const usual)(int) = signal(parents[i], SIG_IGN);
            (void)signal(parents[i], usual);
        }
    }
    close(ready_fd);
    sigprocmask(SIG_SETMASK, &none, NULL);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(EXIT_FAILURE); // it ended before the line above
    bool own = strcmp(arguments[0], "lanyard") == 0;
    if (own)
        execv("/proc/self/exe", arguments);
    else
        execvp(arguments[0], arguments);
    fprintf(stderr, "lanyard: cannot start %s: %s\n", arguments[own], strerror(errno));
    _exit(EXIT_FAILURE);
}

// peer: 0 where it is several.
static rt_status spawn(run *r, uint32_t peer, const char *name, char *const *arguments,
                       rt_error *error)
{
    child *c = &r->children[r->child_count];
    pid_t parent = getpid();
    int ready[2];
    *c = (child){.peer = peer, .talk_fd = -1};
    snprintf(c->name, sizeof c->name, "%s", name);
    if (pipe2(ready, O_CLOEXEC) != 0)
        return rt_fail(error, RT_LIMIT, "cannot start %s: %s", c->name, strerror(errno));
    fflush(NULL);
    c->pid = fork();
    if (c->pid == 0)
        exec_child(r->child_count == 0, parent, ready[1], arguments);
    const int reason = errno;
    close(ready[1]);
    (void)!read(ready[0], &(char){0}, 1); // its end
    close(ready[0]);
    errno = reason;
    if (c->pid < 0) {
        c->pid = 0;
        return rt_fail(error, RT_LIMIT, "cannot start %s: %s", c->name, strerror(errno));
    }
    r->child_count++;
    return RT_OK;
}

// A shard that the attempt before has left, if it is still there.
static bool take_kept(run *r, uint32_t peer)
{
    for (uint32_t i = 0; i < r->kept_count; i++) {
        child *kept = &r->kept[i];
        if (kept->peer != peer || !kept->pid ||
            send(kept->talk_fd, r->address, strlen(r->address), MSG_NOSIGNAL) < 0)
            continue;
        kept->stays = false;
        r->children[r->child_count++] = *kept;
        *kept = (child){.talk_fd = -1};
        return true;
    }
    return false;
}

static void end_kept(run *r)
{
    for (uint32_t i = 0; i < r->kept_count; i++) {
        child *kept = &r->kept[i];
        if (kept->pid && kill(kept->pid, SIGKILL) == 0)
            (void)waitpid(kept->pid, NULL, 0);
        if (kept->talk_fd >= 0)
            close(kept->talk_fd);
    }
    r->kept_count = 0;
}

// Those that wait for the next attempt.
static void keep_children(run *r)
{
    uint32_t left = 0; // a start that failed half-way took only some of those of before
    for (uint32_t i = 0; i < r->kept_count; i++) {
        if (r->kept[i].pid)
            r->kept[left++] = r->kept[i];
    }
    r->kept_count = left;
    for (uint32_t i = 0; i < r->child_count; i++) {
        child *c = &r->children[i];
        if (c->pid && c->stays && r->kept_count < RT_COUNT_OF(r->kept))
            r->kept[r->kept_count++] = *c;
        else if (c->talk_fd >= 0)
            close(c->talk_fd);
    }
}

static rt_status spawn_shard(run *r, uint32_t rank, rt_error *error)
{
    char name[32], rank_text[16], fd_text[16];
    const uint32_t peer = rt_peer(RT_ROLE_PS, rank);
    int fds[2];
    char *arguments[] = {"lanyard",       "ps",       r->config_path, "--rank", rank_text,
                         "--coordinator", r->address, "--up-fd",      fd_text,  NULL};
    if (take_kept(r, peer))
        return RT_OK;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, fds) != 0)
        return rt_fail(error, RT_LIMIT, "cannot create a socket: %s", strerror(errno));
    (void)fcntl(fds[0], F_SETFD, FD_CLOEXEC);
    snprintf(rank_text, sizeof rank_text, "%" PRIu32, rank);
    snprintf(fd_text, sizeof fd_text, "%d", fds[1]);
    const rt_status status = spawn(r, peer, rt_peer_name(peer, name), arguments, error);
    close(fds[1]);
    if (status)
        close(fds[0]);
    else
        r->children[r->child_count - 1].talk_fd = fds[0];
    return status;
}

static rt_status spawn_member(run *r, rt_role role, uint32_t rank, rt_error *error)
{
    char name[32], rank_text[16], share[16];
    char *worker[] = {"lanyard",       "worker",   r->config_path, "--rank", rank_text,
                      "--coordinator", r->address, "--share",      share,    NULL};
    if (role == RT_ROLE_PS)
        return spawn_shard(r, rank, error);
    snprintf(rank_text, sizeof rank_text, "%" PRIu32, rank);
    snprintf(share, sizeof share, "%" PRIu32, r->config->worker_count);
    return spawn(r, rt_peer(role, rank), rt_peer_name(rt_peer(role, rank), name), worker, error);
}

// All workers, by mpirun, which gives each its rank.
static rt_status spawn_mpi_workers(run *r, rt_error *error)
{
    char program[RT_PATH_MAX], config_path[64], count[16];
    char *arguments[] = {"mpirun",
                         "--allow-run-as-root",
                         "--oversubscribe",
                         "--bind-to",
                         "none",
                         "-n",
                         count,
                         program,
                         "worker",
                         config_path,
                         "--coordinator",
                         r->address,
                         NULL};
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    if (length <= 0)
        return rt_fail(error, RT_IO, "/proc/self/exe: %s", strerror(errno));
    program[length] = '\0';
    snprintf(count, sizeof count, "%" PRIu32, r->config->worker_count);
    // mpirun closes what its children would inherit.
    snprintf(config_path, sizeof config_path, "/proc/%ld/fd/%d", (long)getpid(), r->config_fd);
    return spawn(r, 0, "mpirun (workers)", arguments, error);
}

// What the coordinator writes once it listens. The wait ends early when the coordinator ends,
// because then the pipe is closed.
static rt_status read_address(run *r, rt_error *error)
{
    size_t used = 0;
    while (used < sizeof r->address - 1) {
        struct pollfd one = {.fd = r->announce_fd, .events = POLLIN};
        struct timespec now = {0};
        if (poll(&one, 1, 100) < 0 && errno != EINTR)
            break;
        int signal = sigtimedwait(&r->signals, NULL, &now);
        if (signal == SIGINT || signal == SIGTERM) {
            r->stop_asked = true;
            return rt_fail(error, RT_STOPPED, "interrupted");
        }
        if (!(one.revents & (POLLIN | POLLHUP)))
            continue;
        ssize_t got = read(r->announce_fd, r->address + used, 1);
        if (got <= 0)
            break;
        used += (size_t)got;
        if (r->address[used - 1] == '\n') {
            r->address[used - 1] = '\0';
            return RT_OK;
        }
    }
    return rt_fail(error, RT_PEER, "the coordinator ended before it listened");
}

static rt_status spawn_coordinator(run *r, rt_error *error)
{
    int pipes[2];
    char fd_text[16], without_text[4 * RT_WORKERS_MAX] = "";
    char *arguments[ARGUMENTS_MAX] = {"lanyard", "coordinator", r->config_path, "--announce-fd",
                                      fd_text};
    uint32_t count = 5;
    if (pipe(pipes) != 0)
        return rt_fail(error, RT_LIMIT, "cannot create a pipe: %s", strerror(errno));
    snprintf(fd_text, sizeof fd_text, "%d", pipes[1]);
    for (uint64_t rest = r->absent; rest; rest &= rest - 1) {
        const size_t used = strlen(without_text);
        const char *comma = used ? "," : "";
        snprintf(without_text + used, sizeof without_text - used, "%s%" PRIu32, comma,
                 rt_lowest_bit(rest));
    }
    if (r->out) {
        arguments[count++] = "--out";
        arguments[count++] = (char *)(uintptr_t)r->out;
    }
    if (r->trace)
        arguments[count++] = "--trace";
    if (r->absent) {
        arguments[count++] = "--without";
        arguments[count++] = without_text;
    }
    if (r->again)
        arguments[count++] = "--restart";
    else if (r->resume)
        arguments[count++] = "--resume";
    if (r->init) {
        arguments[count++] = "--init";
        arguments[count++] = (char *)(uintptr_t)r->init;
    }
    arguments[count++] = "--watch";
    arguments[count++] = (char *)(uintptr_t)r->path;
    for (uint32_t i = 0; i < r->set_count; i++) { // for a reload; in the resolved file they are in
        arguments[count++] = "--set";
        arguments[count++] = (char *)(uintptr_t)r->sets[i];
    }
    rt_status status = spawn(r, rt_peer(RT_ROLE_COORDINATOR, 0), "coordinator", arguments, error);
    close(pipes[1]);
    r->announce_fd = pipes[0];
    (void)fcntl(r->announce_fd, F_SETFD, FD_CLOEXEC);
    if (status)
        return status;
    return read_address(r, error);
}

static rt_status spawn_members(run *r, rt_role role, uint64_t ranks, rt_error *error)
{
    for (; ranks; ranks &= ranks - 1) {
        const rt_status status = spawn_member(r, role, rt_lowest_bit(ranks), error);
        if (status)
            return status;
    }
    return RT_OK;
}

static rt_status spawn_all(run *r, rt_error *error)
{
    const uint64_t shards = r->members.shards & rt_bits_below(r->config->ps_shard_count);
    const uint64_t workers = r->members.workers & rt_bits_below(r->config->worker_count);
    rt_status status = spawn_coordinator(r, error);
    if (status)
        return status;
    status = spawn_members(r, RT_ROLE_PS, shards, error);
    if (status)
        return status;
    if (r->config->collective == RT_COLLECTIVE_MPI)
        return spawn_mpi_workers(r, error);
    return spawn_members(r, RT_ROLE_WORKER, workers & ~r->absent, error);
}

static void put_off_return(run *r, uint32_t rank)
{
    r->back_ns[rank] = rt_now_ns() + (uint64_t)(r->config->timeout_rejoin_s * 1e9);
}

// By then the coordinator has found that it is gone, and ended the run or not.
static void put_off_for_judgement(run *r, uint32_t rank)
{
    const double longer_s = fmax(r->config->timeout_rejoin_s, r->config->timeout_peer_s);
    r->back_ns[rank] = rt_now_ns() + (uint64_t)(longer_s * 1e9);
}

// A worker that the attempt goes on without, to wait beside it.
static void spawn_waiting(run *r, uint32_t rank)
{
    rt_error error = {0};
    put_off_return(r, rank);
    if (spawn_member(r, RT_ROLE_WORKER, rank, &error)) {
        rt_warn("%s", error.text);
        return;
    }
    r->children[r->child_count - 1].waits = true;
    r->back |= rt_bit(rank);
}

// Starts what has been away for long enough, while the run goes on without it. One that ended again
// leaves its place to the next.
static void spawn_absent(run *r)
{
    for (uint64_t rest = r->absent | r->left; rest; rest &= rest - 1) {
        const uint32_t rank = rt_lowest_bit(rest), peer = rt_peer(RT_ROLE_WORKER, rank);
        uint32_t at = 0;
        while (at < r->child_count && r->children[at].peer != peer)
            at++;
        if (rt_now_ns() < r->back_ns[rank] ||
            dp_losses_too_often(&r->losses, time(NULL)) >> rank & 1 ||
            (at < r->child_count && r->children[at].pid))
            continue;
        if (at < r->child_count)
            r->children[at] = r->children[--r->child_count];
        r->absent |= rt_bit(rank);
        r->left &= ~rt_bit(rank);
        spawn_waiting(r, rank);
    }
}

// ---- watching --------------------------------------------------------------------------------

// A worker was killed, or the coordinator did without it while it stood still: if the run cannot go
// on, the coordinator ends it.
static bool is_coordinators_to_judge(const run *r, const child *c, int status)
{
    const bool is_away =
        WIFSIGNALED(status) || (WIFEXITED(status) && WEXITSTATUS(status) == CLI_ENDED);
    return is_away && rt_peer_role(c->peer) == RT_ROLE_WORKER && cli_may_shrink(r->config) &&
           !r->told && r->children[0].pid;
}

static void judge(run *r, child *c, int status)
{
    if (c->waits)
        put_off_return(r, rt_peer_rank(c->peer));
    if (WIFEXITED(status) && WEXITSTATUS(status) == CLI_OK)
        return;
    c->failure = status;
    if (c->waits) {
        if (!WIFEXITED(status) || WEXITSTATUS(status) != CLI_ENDED) // not as it was told to
            r->back &= ~rt_bit(rt_peer_rank(c->peer));
        return;
    }
    if (c == r->children && WIFEXITED(status) && WEXITSTATUS(status) == CLI_ANEW)
        return;
    if (is_coordinators_to_judge(r, c, status)) {
        r->left |= rt_bit(rt_peer_rank(c->peer));
        put_off_for_judgement(r, rt_peer_rank(c->peer));
        return;
    }
    // The coordinator told it that the run has failed, and says itself why.
    if (c != r->children && WIFEXITED(status) &&
        (WEXITSTATUS(status) == CLI_ENDED || WEXITSTATUS(status) == CLI_DRAINED))
        return;
    if (r->told && WIFSIGNALED(status))
        return;
    if (!r->first_failed)
        r->first_failed = c;
}

// Ours say what is wrong before they end so.
static bool has_said_why(const child *c)
{
    const int code = WEXITSTATUS(c->failure);
    return c->peer && (code == CLI_FAILED || code == CLI_MEND || code == CLI_ENDED);
}

// Names the process that failed first; one that a signal ended goes before those that noticed it
// and said so themselves, however quick they were. A worker that is still there after the
// coordinator has gone is the one that it found silent.
static void report_failure(run *r)
{
    const child *c = r->first_failed;
    for (uint32_t i = 0; i < r->child_count && c && !WIFSIGNALED(c->failure); i++) {
        const child *other = &r->children[i];
        if (WIFSIGNALED(other->failure) && !other->waits)
            c = other;
    }
    // It told the others, some of which may have ended before it.
    if (c && WIFEXITED(c->failure) && WEXITSTATUS(c->failure) == CLI_MEND &&
        r->children[0].failure == c->failure)
        c = r->children;
    r->lost = 0;
    if (c)
        r->lost = c->peer;
    for (uint32_t i = 1; i < r->child_count && c == r->children; i++) {
        if (r->children[i].pid && !r->children[i].waits && !r->children[i].stays)
            r->lost = r->children[i].peer;
    }
    if (c && WIFSIGNALED(c->failure))
        rt_error_log("%s (pid %ld) was ended by signal %d (%s)", c->name, (long)c->past_pid,
                     WTERMSIG(c->failure), strsignal(WTERMSIG(c->failure)));
    else if (c && c->pid)
        rt_error_log("%s (pid %ld) does not answer", c->name, (long)c->pid);
    else if (c && !has_said_why(c))
        rt_error_log("%s (pid %ld) ended with status %d", c->name, (long)c->past_pid,
                     WEXITSTATUS(c->failure));
}

// What shards say: they wait for the next attempt. If one has lost the coordinator, the end of
// which nobody has seen, that stands still.
static void hear_shards(run *r)
{
    for (uint32_t i = 0; i < r->child_count; i++) {
        child *c = &r->children[i];
        char text[16] = "";
        if (c->talk_fd < 0 || !c->pid || c->stays ||
            recv(c->talk_fd, text, sizeof text - 1, MSG_DONTWAIT) <= 0)
            continue;
        c->stays = true;
        if (strcmp(text, CLI_ALONE) == 0 && r->children[0].pid && !r->first_failed)
            r->first_failed = r->children;
    }
}

static void reap(run *r)
{
    int status;
    pid_t pid;
    hear_shards(r);
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
        for (uint32_t i = 0; i < r->child_count; i++) {
            if (r->children[i].pid != pid)
                continue;
            r->children[i].past_pid = pid;
            r->children[i].pid = 0;
            judge(r, &r->children[i], status);
        }
        for (uint32_t i = 0; i < r->kept_count; i++) {
            if (r->kept[i].pid == pid)
                r->kept[i].pid = 0;
        }
    }
}

// That have yet to end.
static uint32_t alive(const run *r)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < r->child_count; i++)
        count += r->children[i].pid != 0 && !r->children[i].stays;
    return count;
}

static void signal_all(run *r, int signal)
{
    r->told = true;
    for (uint32_t i = 0; i < r->child_count; i++) {
        if (r->children[i].pid && !r->children[i].stays)
            kill(r->children[i].pid, signal);
    }
}

// Until all have ended or the time is over.
static void wait_for_end(run *r, uint32_t limit_ms)
{
    uint64_t end = rt_now_ns() + (uint64_t)limit_ms * 1000000;
    while (alive(r) && rt_now_ns() < end) {
        struct timespec pause = {.tv_nsec = 20000000};
        (void)sigtimedwait(&r->signals, NULL, &pause);
        reap(r);
    }
}

// While the coordinator runs, it judges the others; what it cannot see is that it is gone itself.
static void watch(run *r)
{
    while (r->children[0].pid && !r->first_failed) {
        struct timespec pause = {.tv_nsec = 200000000};
        siginfo_t info = {0};
        int signal = sigtimedwait(&r->signals, &info, &pause);
        bool hung_up = signal == SIGHUP && info.si_code == SI_KERNEL; // the terminal is gone
        if (signal == SIGINT || signal == SIGTERM || hung_up) {
            r->stop_asked = true;
            kill(r->children[0].pid, SIGINT);
        } else if (signal == SIGHUP || signal == SIGUSR1) {
            kill(r->children[0].pid, signal);
        }
        reap(r);
        spawn_absent(r);
    }
}

// Whether the coordinator came to the end of the run: model and summary are there, whoever was
// killed after that, itself included.
static bool is_complete(const run *r)
{
    char text[sizeof CLI_SAVED] = "";
    const child *coordinator = &r->children[0];
    struct pollfd one = {.fd = r->announce_fd, .events = POLLIN};
    if (r->child_count && coordinator->past_pid && !coordinator->pid && !coordinator->failure)
        return true;
    return r->announce_fd >= 0 && poll(&one, 1, 0) == 1 && one.revents & POLLIN &&
           read(r->announce_fd, text, sizeof CLI_SAVED) == (ssize_t)sizeof CLI_SAVED &&
           memcmp(text, CLI_SAVED, sizeof CLI_SAVED - 1) == 0;
}

static void end_all(run *r)
{
    // A member that failed has told the coordinator, which says so and ends by itself; one that was
    // killed has not.
    wait_for_end(r, GRACE_MS / 2);
    report_failure(r);
    // What is to start again has nothing to tidy up: one that stands still would only cost time.
    if (r->config->on_worker_loss == RT_LOSS_STOP || r->stop_asked) {
        for (uint32_t i = 0; i < r->child_count; i++)
            r->children[i].stays = false;
        signal_all(r, SIGTERM);
        wait_for_end(r, GRACE_MS);
    }
    signal_all(r, SIGKILL);
    wait_for_end(r, GRACE_MS);
}

static rt_status put_config(run *r, rt_error *error)
{
    char *json;
    if (rt_config_to_json(r->config, &json))
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    size_t length = strlen(json);
    r->config_fd = memfd_create("lanyard-config", 0); // inherited by the children
    const uint64_t hash = rt_hash_bytes(json, length);
    if (hash != r->config_hash) // what shards have read is not that of this attempt
        end_kept(r);
    r->config_hash = hash;
    bool written = r->config_fd >= 0 && write(r->config_fd, json, length) == (ssize_t)length;
    rt_free(json);
    snprintf(r->config_path, sizeof r->config_path, "/proc/self/fd/%d", r->config_fd);
    if (!written)
        return rt_fail(error, RT_IO, "cannot pass the configuration on: %s", strerror(errno));
    return RT_OK;
}

// Who takes part; boxes that were added are of the configuration from then on.
static rt_status read_members(run *r, rt_error *error)
{
    char folder[RT_PATH_MAX + 16] = "";
    dp_added added;
    if (*r->config->checkpoint.directory)
        snprintf(folder, sizeof folder, "%s", r->config->checkpoint.directory);
    else if (r->out)
        snprintf(folder, sizeof folder, "%s/checkpoints", r->out);
    rt_status status = dp_members_read_added(folder, r->config, &added, error);
    if (!status)
        status = dp_members_read(r->config, folder, &r->members, error);
    r->absent &= r->members.workers;
    return status;
}

// The coordinator ended the attempt because workers are back, or boxes come or go.
static bool is_planned(const run *r)
{
    const int how = r->children[0].failure;
    return r->child_count && !r->stop_asked && WIFEXITED(how) && WEXITSTATUS(how) == CLI_ANEW;
}

// One attempt, from the first process to the end of the last. True: it came to its end.
static bool attempt(run *r)
{
    rt_error error = {0};
    r->child_count = 0;
    r->back = r->left = 0;
    r->first_failed = NULL;
    r->told = false;
    rt_status status = read_members(r, &error);
    if (!status)
        status = put_config(r, &error);
    if (!status)
        status = spawn_all(r, &error);
    if (!status) {
        end_kept(r); // that this attempt does not need
        watch(r);
    }
    if (status && alive(r))
        signal_all(r, SIGTERM);
    end_all(r);
    keep_children(r);
    const bool complete = !status && is_complete(r);
    if (r->announce_fd >= 0)
        close(r->announce_fd);
    r->announce_fd = -1;
    if (r->config_fd >= 0)
        close(r->config_fd);
    r->config_fd = -1;
    if (status && !r->first_failed) // else that one has said why
        (void)cli_fail(&error);
    r->again = true;
    if (complete && r->first_failed)
        rt_warn("the run was complete before that: model and summary are there");
    return complete;
}

// ---- starting again --------------------------------------------------------------------------

// What a configuration, a stream or a disk is to blame for would only happen again.
static bool is_loss(const run *r)
{
    const int how = r->children[0].failure;
    return r->child_count && !r->stop_asked &&
           (WIFSIGNALED(how) || (WIFEXITED(how) && WEXITSTATUS(how) == CLI_ENDED));
}

static bool restart_is_allowed(const run *r)
{
    const uint32_t most = (uint32_t)rt_min_u64(r->config->restarts_max, RESTARTS_MAX);
    if (r->restart_count < most)
        return true;
    if (most > 0 &&
        rt_now_ns() - r->restarts_ns[(r->restart_count - most) % RESTARTS_MAX] > HOUR_NS)
        return true;
    rt_error_log("%" PRIu32 " restarts in an hour (restarts_max): giving up", most);
    return false;
}

// Who goes on, after a loss: all but the worker that was lost, and those that are away already.
static void choose_absent(run *r)
{
    const rt_config *config = r->config;
    const uint64_t all = r->members.workers;
    const uint32_t rank = rt_peer_rank(r->lost);
    r->absent &= ~r->back;
    if (rt_peer_role(r->lost) != RT_ROLE_WORKER || !cli_may_shrink(config))
        return;
    r->absent |= rt_bit(rank);
    put_off_return(r, rank);
    dp_losses_note(&r->losses, rank, time(NULL));
    if (r->absent == all)
        r->absent = 0;
}

static bool prepare_restart(run *r)
{
    const rt_config *config = r->config;
    char name[32];
    if (is_planned(r)) {
        r->absent &= ~r->back;
        return true;
    }
    if (config->on_worker_loss == RT_LOSS_STOP || !is_loss(r) || !restart_is_allowed(r))
        return false;
    choose_absent(r);
    r->restarts_ns[r->restart_count++ % RESTARTS_MAX] = rt_now_ns();
    const char *lost = r->lost ? rt_peer_name(r->lost, name) : "a process";
    rt_warn("restart %" PRIu32 ": %s was lost; %" PRIu32
            " workers go on from the newest checkpoint",
            r->restart_count, lost, rt_bit_count(r->members.workers & ~r->absent));
    return true;
}

// A FIFO stays open over restarts, so that its writers do not die with the coordinator; what they
// wrote waits in it. Closed with this process.
static void hold_fifos(const rt_stream_config *stream)
{
    int flags = O_NONBLOCK | O_CLOEXEC;
    flags |= stream->fifo_ends ? O_RDONLY : O_RDWR; // who holds it to write keeps it from ending
    for (uint32_t i = 0; i < stream->file_count; i++) {
        struct stat info;
        if (stat(stream->files[i], &info) == 0 && S_ISFIFO(info.st_mode) &&
            open(stream->files[i], flags) < 0)
            rt_warn("%s cannot be held open: %s", stream->files[i], strerror(errno));
    }
}

// What would end every process in the same way, each with an error of its own: once, beforehand.
static int check_here(const rt_config *config)
{
    rt_error error = {0};
    ew_device device;
    if (rt_config_check_input(config, &error))
        return cli_fail(&error);
    if (strncmp(config->device, "cuda", strlen("cuda")) != 0)
        return CLI_OK;
    if (ew_device_open(config->device, &device, &error)) {
        (void)rt_fail_in(&error, "device: \"%s\"", config->device);
        return cli_fail(&error);
    }
    ew_device_close(&device);
    return CLI_OK;
}

// What metrics and the summary say is of predictions that were made before a sample was trained.
static void say_what_is_progressive(const rt_stream_config *stream)
{
    if (stream->epochs > 1)
        printf("the log loss above is progressive, of all %" PRIu32
               " epochs: but for the first one, "
               "the samples were trained before%s\n",
               stream->epochs, stream->holdout > 0 ? "" : "; stream.holdout=0.1 judges by others");
}

// The model that is saved, by samples that it has not seen.
static int judge_held_out(const char *out)
{
    printf("held out (stream.holdout), judged by the model that is saved:\n");
    fflush(stdout);
    return cli_eval_held_out(out);
}

int cli_up(int argc, char **argv)
{
    rt_config config;
    (void)setenv(CLI_UP_VARIABLE, "1", 1);
    run r = {.config = &config, .config_fd = -1, .announce_fd = -1};
    const cli_option options[] = {{"out", &r.out, NULL},
                                  {"trace", NULL, &r.trace},
                                  {"resume", NULL, &r.resume},
                                  {"init", &r.init, NULL}};
    if (!cli_parse(argc, argv, options, RT_COUNT_OF(options), &r.path, r.sets, &r.set_count))
        return CLI_USAGE;
    if (r.init && r.resume) {
        fprintf(stderr, "lanyard up: --init begins with a model, --resume goes on from a "
                        "checkpoint: give one of them\n");
        return CLI_USAGE;
    }
    int code = cli_load_run(r.path, r.sets, r.set_count, "lanyard", &config);
    if (code != CLI_OK)
        return code;
    code = check_here(&config);
    if (code != CLI_OK) {
        rt_config_fini(&config);
        return code;
    }
    if (!r.out)
        rt_warn("no --out: the model, the metrics and the summary are gone when the run ends");
    cli_give_way(&config);
    hold_fifos(&config.stream);
    sigemptyset(&r.signals);
    sigaddset(&r.signals, SIGCHLD);
    sigaddset(&r.signals, SIGINT);
    sigaddset(&r.signals, SIGTERM);
    sigaddset(&r.signals, SIGHUP);  // read the configuration again
    sigaddset(&r.signals, SIGUSR1); // a checkpoint
    sigprocmask(SIG_BLOCK, &r.signals, NULL);
    bool complete = attempt(&r);
    while (!complete && prepare_restart(&r))
        complete = attempt(&r);
    end_kept(&r);
    code = complete ? CLI_OK : CLI_FAILED;
    if (complete)
        say_what_is_progressive(&config.stream);
    if (complete && r.out && config.stream.holdout > 0 && !r.stop_asked)
        code = judge_held_out(r.out);
    rt_config_fini(&config);
    return code;
}
