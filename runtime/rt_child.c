#define _GNU_SOURCE // pipe2, close_range, SCHED_BATCH
#include "runtime/rt_child.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/rt_log.h"
#include "runtime/rt_priority.h"

#define RESULT_FD (STDERR_FILENO + 1)

// The lowest priority that still gets on where processors are never idle.
static void be_modest(void)
{
    const struct sched_param none = {0};
    if (rt_priority_is_idle())
        return; // lower still
    (void)sched_setscheduler(0, SCHED_BATCH, &none);
    (void)setpriority(PRIO_PROCESS, 0, 19);
}

// Sockets that the copy held open would hide from peers that this process has gone.
_Noreturn static void become_child(pid_t parent, int fd,
                                   void (*work)(void *context, rt_child_result *result),
                                   void *context)
{
    rt_child_result result = {0};
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent || dup2(fd, RESULT_FD) < 0)
        _exit(1);
    (void)close_range(RESULT_FD + 1, ~0u, 0);
    (void)signal(SIGXFSZ, SIG_IGN); // a file that may not grow is an error like any other
    be_modest();
    prctl(PR_SET_NAME, "writer");
    work(context, &result);
    const bool told = write(RESULT_FD, &result, sizeof result) == (ssize_t)sizeof result;
    _exit(told ? 0 : 1);
}

pid_t rt_child_fork(void)
{
    rt_log_hold();
    const pid_t pid = fork();
    const int reason = errno;
    rt_log_release();
    errno = reason;
    return pid;
}

rt_status rt_child_start(rt_child *child, void (*work)(void *context, rt_child_result *result),
                         void *context, double limit_s, rt_error *error)
{
    int pipes[2];
    const pid_t parent = getpid();
    _Static_assert(sizeof(rt_child_result) < 4096, "a pipe takes it in one piece");
    if (pipe2(pipes, O_CLOEXEC | O_NONBLOCK) != 0)
        return rt_fail(error, RT_LIMIT, "cannot create a pipe: %s", strerror(errno));
    *child = (rt_child){.fd = pipes[0], .begin_ns = rt_now_ns()};
    child->deadline_ns = child->begin_ns + (uint64_t)(limit_s * 1e9);
    child->pid = rt_child_fork();
    if (child->pid == 0)
        become_child(parent, pipes[1], work, context);
    close(pipes[1]);
    if (child->pid > 0)
        return RT_OK;
    rt_fail(error, RT_LIMIT, "cannot start a process: %s", strerror(errno));
    close(pipes[0]);
    *child = (rt_child){.fd = -1};
    return RT_LIMIT;
}

static void reap(rt_child *child, int *how)
{
    while (waitpid(child->pid, how, 0) < 0 && errno == EINTR) {
    }
    close(child->fd);
    *child = (rt_child){.fd = -1};
}

rt_status rt_child_poll(rt_child *child, rt_child_result *result)
{
    int how = 0;
    const uint64_t begin_ns = child->begin_ns;
    const ssize_t got = read(child->fd, result, sizeof *result);
    const bool is_late = rt_now_ns() > child->deadline_ns;
    if (got < 0 && !is_late)
        return RT_AGAIN;
    if (got < 0)
        kill(child->pid, SIGKILL);
    reap(child, &how);
    if (got != (ssize_t)sizeof *result) {
        *result = (rt_child_result){0};
        if (is_late)
            rt_fail(&result->error, RT_TIMEOUT, "it took too long");
        else
            rt_fail(&result->error, RT_IO, "the process that wrote it ended (signal %d)",
                    WIFSIGNALED(how) ? WTERMSIG(how) : 0);
    }
    result->ns = rt_now_ns() - begin_ns;
    return RT_OK;
}

void rt_child_end(rt_child *child)
{
    int how;
    if (child->pid <= 0)
        return;
    kill(child->pid, SIGKILL);
    reap(child, &how);
}
