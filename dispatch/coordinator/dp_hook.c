#include "dispatch/coordinator/dp_checkpoint_parts.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/rt_log.h"
#include "runtime/rt_spawn.h"

static void report(dp_hook *hook, bool is_done, double seconds)
{
    rt_json *json = rt_metrics_begin(hook->metrics, "after");
    rt_json_u64(json, "iteration", hook->iteration);
    rt_json_bool(json, "done", is_done);
    rt_json_double(json, "seconds", seconds);
    rt_json_u64(json, "failures", hook->failures);
    rt_json_u64(json, "passed_over", hook->passed_over);
    rt_metrics_end(hook->metrics);
}

static void fail(dp_hook *hook, const char *why, int number)
{
    hook->failures++;
    rt_warn("checkpoint.after failed for the checkpoint of iteration %" PRIu32 ": %s %d",
            hook->iteration, why, number);
    report(hook, false, (double)(rt_now_ns() - hook->begin_ns) * 1e-9);
}

static void start(dp_hook *hook)
{
    const int input = open("/dev/null", O_RDONLY | O_CLOEXEC);
    hook->iteration = hook->waiting;
    hook->waiting = 0;
    memcpy(hook->folder, hook->next, sizeof hook->folder);
    hook->begin_ns = rt_now_ns();
    int cause = errno;
    if (input >= 0) {
        cause = rt_spawn_shell(hook->command, hook->folder, input, &hook->child);
        close(input);
    }
    if (cause)
        fail(hook, "it cannot be started, errno", cause);
}

void dp_hook_put(dp_hook *hook, uint32_t iteration, const char *folder)
{
    if (!hook->command || !*hook->command)
        return;
    hook->passed_over += hook->waiting != 0;
    hook->waiting = iteration;
    snprintf(hook->next, sizeof hook->next, "%s", folder);
    dp_hook_step(hook);
}

void dp_hook_step(dp_hook *hook)
{
    int how = 0;
    if (hook->child && waitpid(hook->child, &how, WNOHANG) != 0) {
        hook->child = 0;
        if (WIFEXITED(how) && WEXITSTATUS(how) == 0)
            report(hook, true, (double)(rt_now_ns() - hook->begin_ns) * 1e-9);
        else if (WIFEXITED(how))
            fail(hook, "status", WEXITSTATUS(how));
        else
            fail(hook, "signal", WTERMSIG(how));
    }
    if (!hook->child && hook->waiting)
        start(hook);
}

void dp_hook_end(dp_hook *hook)
{
    dp_hook_step(hook);
    if (hook->waiting)
        start(hook);
}
