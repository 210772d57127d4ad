#include "runtime/rt_spawn.h"

#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int spawn(const char *program, char *const arguments[], int input, int output, int *child_p)
{
    extern char **environ;
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;
    sigset_t none, usual;
    pid_t child = 0;
    sigemptyset(&none);
    sigemptyset(&usual);
    sigaddset(&usual, SIGPIPE);
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_adddup2(&files, input, STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&files, output, STDOUT_FILENO);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK |
                                              POSIX_SPAWN_SETSIGDEF);
    posix_spawnattr_setpgroup(&attributes, 0);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &usual);
    const bool is_path = strchr(program, '/') != NULL;
    const int cause = (is_path ? posix_spawn : posix_spawnp)(&child, program, &files, &attributes,
                                                             arguments, environ);
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attributes);
    *child_p = cause ? 0 : (int)child;
    return cause;
}

int rt_spawn_shell(const char *command, const char *argument, int input, int *child_p)
{
    char *const arguments[] = {
        "sh", "-c", (char *)(uintptr_t)command, "sh", (char *)(uintptr_t)argument, NULL};
    return spawn("/bin/sh", arguments, input, STDERR_FILENO, child_p);
}

int rt_spawn_own(const char *program, const char *argument, int input, int output, int *child_p)
{
    char beside[4096];
    char *const arguments[] = {(char *)(uintptr_t)program, (char *)(uintptr_t)argument, NULL};
    const ssize_t length = readlink("/proc/self/exe", beside, sizeof beside - 1);
    beside[length > 0 ? length : 0] = '\0';
    char *slash = strrchr(beside, '/');
    const size_t room = slash ? sizeof beside - (size_t)(slash + 1 - beside) : 0;
    const bool fits = slash && (size_t)snprintf(slash + 1, room, "%s", program) < room;
    const bool is_beside = fits && access(beside, X_OK) == 0;
    return spawn(is_beside ? beside : program, arguments, input, output, child_p);
}
