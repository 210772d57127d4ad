// day - a machine's clock of the day that a test sets, for a program that it is loaded into
// (LD_PRELOAD).
//
// LANYARD_DAY=FILE: what the file says, in seconds, is added to the clock, in all processes that
// the program starts, too. Monotonic clocks stay as they are.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long ahead_s(void)
{
    char text[32] = "";
    const char *path = getenv("LANYARD_DAY");
    const int file = path ? (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0)
        return 0;
    (void)!syscall(SYS_read, file, text, sizeof text - 1);
    (void)syscall(SYS_close, file);
    return strtol(text, NULL, 10);
}

int clock_gettime(clockid_t id, struct timespec *now)
{
    const int status = (int)syscall(SYS_clock_gettime, id, now);
    if (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)
        now->tv_sec += ahead_s();
    return status;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
    struct timespec precise;
    (void)zone;
    (void)clock_gettime(CLOCK_REALTIME, &precise);
    *now = (struct timeval){precise.tv_sec, precise.tv_nsec / 1000};
    return 0;
}

time_t time(time_t *now)
{
    struct timespec precise;
    (void)clock_gettime(CLOCK_REALTIME, &precise);
    if (now)
        *now = precise.tv_sec;
    return precise.tv_sec;
}
