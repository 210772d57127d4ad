#define _GNU_SOURCE // pipe2
#include "tests/support/one_by_one.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define THREADS_MAX 256u
#define CHILDREN_MAX 64u
#define NS_PER_S UINT64_C(1000000000)
#define NS_PER_MS UINT64_C(1000000)
#define LOOK_NS 1000u
#define DAY_S INT64_C(1798761600) // the first of 2027

typedef struct {
    sem_t turn;
    pthread_t thread;
    void *(*run)(void *);
    void *context;
    const void *awaits; // a condition, or the slot of a thread; NULL: nothing
    bool ended;
} slot;

typedef struct {
    pid_t pid;
    int gate; // it waits until something is written to it; -1: it does not
    bool ended;
} child;

// Of a process. The case's thread has the first slot.
static struct {
    slot slots[THREADS_MAX];
    uint32_t count, current;
    bool rests; // the case's thread
    pid_t owner;
    child children[CHILDREN_MAX]; // that nobody has taken leave of
    uint32_t child_count;
    uint64_t now_ns;
} all = {.count = 1, .now_ns = 1000 * NS_PER_S};

int __real_pthread_create(pthread_t *thread, const pthread_attr_t *how, void *(*run)(void *),
                          void *context);
int __real_pthread_join(pthread_t thread, void **result);
int __real_pthread_cond_wait(pthread_cond_t *condition, pthread_mutex_t *lock);
int __real_pthread_cond_signal(pthread_cond_t *condition);
int __real_pthread_cond_broadcast(pthread_cond_t *condition);
int __real_clock_gettime(clockid_t clock, struct timespec *now);
int __real_poll(struct pollfd *files, nfds_t count, int timeout_ms);
pid_t __real_fork(void);
int __real_posix_spawn(pid_t *pid, const char *path, const posix_spawn_file_actions_t *files,
                       const posix_spawnattr_t *how, char *const arguments[], char *const names[]);
pid_t __real_waitpid(pid_t pid, int *how, int options);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *how, void *(*run)(void *),
                          void *context);
int __wrap_pthread_join(pthread_t thread, void **result);
int __wrap_pthread_cond_wait(pthread_cond_t *condition, pthread_mutex_t *lock);
int __wrap_pthread_cond_signal(pthread_cond_t *condition);
int __wrap_pthread_cond_broadcast(pthread_cond_t *condition);
int __wrap_clock_gettime(clockid_t clock, struct timespec *now);
int __wrap_poll(struct pollfd *files, nfds_t count, int timeout_ms);
time_t __wrap_time(time_t *now);
pid_t __wrap_fork(void);
int __wrap_posix_spawn(pid_t *pid, const char *path, const posix_spawn_file_actions_t *files,
                       const posix_spawnattr_t *how, char *const arguments[], char *const names[]);
pid_t __wrap_waitpid(pid_t pid, int *how, int options);
int __wrap_setpriority(int which, id_t who, int priority);
int __wrap_sched_setscheduler(pid_t pid, int policy, const void *how);
int __wrap_fsync(int file);
int __wrap_fdatasync(int file);

// Whether this is the process that has the threads, and not a copy of it.
static bool is_owner(void)
{
    return all.owner == getpid();
}

// Who runs next: the oldest of the others that can, else the case's thread.
static uint32_t choose(void)
{
    for (uint32_t i = 1; i < all.count; i++) {
        if (!all.slots[i].awaits && !all.slots[i].ended)
            return i;
    }
    if (all.rests || !all.slots[0].awaits)
        return 0;
    fprintf(stderr, "one_by_one: every thread waits for another one\n");
    abort();
}

static void take_turn(uint32_t own)
{
    while (sem_wait(&all.slots[own].turn) != 0) {
    }
}

// Others run until it is this thread's turn again.
static void give_turn(uint32_t own)
{
    const uint32_t next = choose();
    if (next == own)
        return;
    all.current = next;
    sem_post(&all.slots[next].turn);
    take_turn(own);
}

static void await(const void *what)
{
    const uint32_t own = all.current;
    all.slots[own].awaits = what;
    while (all.slots[own].awaits)
        give_turn(own);
}

static void wake(const void *what, bool only_one)
{
    for (uint32_t i = 0; i < all.count; i++) {
        if (all.slots[i].awaits != what)
            continue;
        all.slots[i].awaits = NULL;
        if (only_one)
            return;
    }
}

void one_by_one_rest(void)
{
    if (!is_owner())
        return;
    all.rests = true;
    give_turn(0);
    all.rests = false;
}

void one_by_one_end_children(void)
{
    siginfo_t info;
    for (uint32_t i = 0; i < all.child_count; i++) {
        child *one = &all.children[i];
        if (one->ended)
            continue;
        if (one->gate >= 0 && (write(one->gate, "", 1) != 1 || close(one->gate) != 0))
            abort();
        one->gate = -1;
        while (waitid(P_PID, (id_t)one->pid, &info, WEXITED | WNOWAIT) != 0 && errno == EINTR) {
        }
        one->ended = true;
    }
}

void one_by_one_pass(uint64_t ns)
{
    all.now_ns += ns;
}

uint64_t one_by_one_now_ns(void)
{
    return all.now_ns;
}

// ---- what the tested code calls ----------------------------------------------------------------

static void *run_in_turn(void *context)
{
    slot *own = context;
    take_turn((uint32_t)(own - all.slots));
    void *result = own->run(own->context);
    own->ended = true;
    wake(own, false);
    all.current = choose();
    sem_post(&all.slots[all.current].turn);
    return result;
}

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *how, void *(*run)(void *),
                          void *context)
{
    if (!all.owner) {
        all.owner = getpid();
        sem_init(&all.slots[0].turn, 0, 0);
    }
    if (!is_owner() || all.count == THREADS_MAX)
        return __real_pthread_create(thread, how, run, context);
    slot *own = &all.slots[all.count];
    *own = (slot){.run = run, .context = context};
    sem_init(&own->turn, 0, 0);
    const int reason = __real_pthread_create(&own->thread, how, run_in_turn, own);
    *thread = own->thread;
    all.count += reason == 0;
    return reason;
}

int __wrap_pthread_join(pthread_t thread, void **result)
{
    for (uint32_t i = 1; i < all.count && is_owner(); i++) {
        slot *one = &all.slots[i];
        if (!one->run || !pthread_equal(one->thread, thread))
            continue;
        if (!one->ended)
            await(one);
        one->run = NULL; // the next may get its name
    }
    return __real_pthread_join(thread, result);
}

int __wrap_pthread_cond_wait(pthread_cond_t *condition, pthread_mutex_t *lock)
{
    if (!is_owner())
        return __real_pthread_cond_wait(condition, lock);
    pthread_mutex_unlock(lock);
    await(condition);
    pthread_mutex_lock(lock);
    return 0;
}

int __wrap_pthread_cond_signal(pthread_cond_t *condition)
{
    if (!is_owner())
        return __real_pthread_cond_signal(condition);
    wake(condition, true);
    return 0;
}

int __wrap_pthread_cond_broadcast(pthread_cond_t *condition)
{
    if (!is_owner())
        return __real_pthread_cond_broadcast(condition);
    wake(condition, false);
    return 0;
}

int __wrap_clock_gettime(clockid_t clock, struct timespec *now)
{
    if (clock != CLOCK_MONOTONIC && clock != CLOCK_REALTIME)
        return __real_clock_gettime(clock, now);
    if (all.current != 0)
        all.now_ns += LOOK_NS;
    now->tv_sec = (time_t)(all.now_ns / NS_PER_S) + (clock == CLOCK_REALTIME ? DAY_S : 0);
    now->tv_nsec = (long)(all.now_ns % NS_PER_S);
    return 0;
}

time_t __wrap_time(time_t *now)
{
    const time_t seconds = (time_t)(all.now_ns / NS_PER_S) + DAY_S;
    if (now)
        *now = seconds;
    return seconds;
}

// A pause is over at once; what is waited for is there already, or does not come.
int __wrap_poll(struct pollfd *files, nfds_t count, int timeout_ms)
{
    const int ready = count ? __real_poll(files, count, 0) : 0;
    if (ready == 0 && timeout_ms > 0)
        all.now_ns += (uint64_t)timeout_ms * NS_PER_MS;
    return ready;
}

// ---- processes ---------------------------------------------------------------------------------

static void note_child(pid_t pid, int gate)
{
    if (all.child_count == CHILDREN_MAX)
        abort();
    all.children[all.child_count++] = (child){.pid = pid, .gate = gate};
}

// Before there are threads nobody has to be in step with anybody.
pid_t __wrap_fork(void)
{
    int gate[2];
    char byte;
    if (!all.owner || !is_owner())
        return __real_fork();
    if (pipe2(gate, O_CLOEXEC) != 0)
        return -1;
    const pid_t pid = __real_fork();
    if (pid == 0 && read(gate[0], &byte, 1) != 1)
        _exit(1);
    close(gate[0]);
    if (pid > 0)
        note_child(pid, gate[1]);
    return pid;
}

int __wrap_posix_spawn(pid_t *pid, const char *path, const posix_spawn_file_actions_t *files,
                       const posix_spawnattr_t *how, char *const arguments[], char *const names[])
{
    const int reason = __real_posix_spawn(pid, path, files, how, arguments, names);
    if (!reason && all.owner && is_owner())
        note_child(*pid, -1);
    return reason;
}

// A child that ends meanwhile has not ended yet.
pid_t __wrap_waitpid(pid_t pid, int *how, int options)
{
    for (uint32_t i = 0; i < all.child_count && is_owner(); i++) {
        child *one = &all.children[i];
        if (one->pid != pid)
            continue;
        if (options & WNOHANG && !one->ended)
            return 0;
        if (one->gate >= 0)
            close(one->gate);
        *one = all.children[--all.child_count];
        break;
    }
    return __real_waitpid(pid, how, options);
}

// ---- what would only take time -----------------------------------------------------------------

int __wrap_setpriority(int which, id_t who, int priority)
{
    (void)which;
    (void)who;
    (void)priority;
    return 0;
}

int __wrap_sched_setscheduler(pid_t pid, int policy, const void *how)
{
    (void)pid;
    (void)policy;
    (void)how;
    return 0;
}

int __wrap_fsync(int file)
{
    (void)file;
    return 0;
}

int __wrap_fdatasync(int file)
{
    (void)file;
    return 0;
}
