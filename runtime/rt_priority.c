#define _GNU_SOURCE // SCHED_IDLE, syscall
#include "runtime/rt_priority.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SLICE_NS UINT64_C(500000)
#define NICE_BEHIND 10
#define SESSION_FILE "/proc/self/autogroup"
#define SESSION_NICE "19"

// The kernel's struct sched_attr, which glibc has from 2.41 on.
typedef struct {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime, deadline, period;
} attributes;
_Static_assert(sizeof(attributes) == 48, "SCHED_ATTR_SIZE_VER0");

static void lower_session(void)
{
    if (getsid(0) != getpid())
        return; // others are in it
    const int file = open(SESSION_FILE, O_WRONLY | O_CLOEXEC);
    if (file < 0)
        return; // a kernel that shares otherwise
    const ssize_t ignored = write(file, SESSION_NICE, strlen(SESSION_NICE));
    (void)ignored;
    close(file);
}

rt_status rt_priority_idle(rt_error *error)
{
    const struct sched_param none = {0};
    if (sched_setscheduler(0, SCHED_IDLE, &none) != 0)
        return rt_fail(error, RT_UNSUPPORTED, "SCHED_IDLE: %s", strerror(errno));
    lower_session();
    return RT_OK;
}

bool rt_priority_is_idle(void)
{
    return sched_getscheduler(0) == SCHED_IDLE;
}

void rt_priority_prompt(void)
{
    const attributes wanted = {.size = sizeof wanted,
                               .policy = SCHED_OTHER,
                               .nice = getpriority(PRIO_PROCESS, 0),
                               .runtime = SLICE_NS};
    if (sched_getscheduler(0) == SCHED_OTHER) // else somebody has chosen for this process
        (void)syscall(SYS_sched_setattr, 0, &wanted, 0);
}

void rt_priority_behind(void)
{
    const int nice = getpriority(PRIO_PROCESS, 0); // of the thread, as Linux has it
    if (nice < NICE_BEHIND)
        (void)setpriority(PRIO_PROCESS, 0, NICE_BEHIND);
}
