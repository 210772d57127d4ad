#define _GNU_SOURCE // pipe2
#include "runtime/stream/rt_columnar.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/rt_spawn.h"

// The file by its descriptor: whoever opens it has an offset of its own.
#define ITS_INPUT "/proc/self/fd/0"

rt_status rt_columnar_start(rt_columnar *columnar, int file, const char *name, rt_error *error)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0)
        return rt_fail(error, RT_IO, "%s: pipe: %s", name, strerror(errno));
    const int cause = rt_spawn_own(RT_COLUMNAR_PROGRAM, ITS_INPUT, file, ends[1], &columnar->child);
    close(ends[1]);
    if (cause) {
        close(ends[0]);
        return rt_fail(error, RT_IO, "%s: " RT_COLUMNAR_PROGRAM ", which reads such files: %s",
                       name, strerror(cause));
    }
    columnar->lines = ends[0];
    return RT_OK;
}

static int wait_for(rt_columnar *columnar)
{
    int result = 0;
    while (waitpid(columnar->child, &result, 0) < 0 && errno == EINTR)
        ;
    close(columnar->lines);
    *columnar = RT_COLUMNAR_NONE;
    return result;
}

rt_status rt_columnar_end(rt_columnar *columnar, const char *name, rt_error *error)
{
    const int result = wait_for(columnar);
    if (WIFEXITED(result) && WEXITSTATUS(result) == 0)
        return RT_OK;
    return rt_fail(error, RT_DATA,
                   "%s: " RT_COLUMNAR_PROGRAM " has failed, and said why on standard error", name);
}

void rt_columnar_stop(rt_columnar *columnar)
{
    if (columnar->child == 0)
        return;
    kill(columnar->child, SIGKILL);
    wait_for(columnar);
}
