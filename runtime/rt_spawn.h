// rt_spawn - another program, run beside this process.
//
// In a process group of its own, with no signal blocked. Whoever starts one waits for it (waitpid).
#ifndef RT_SPAWN_H
#define RT_SPAWN_H

#include "runtime/rt_base.h"

// A command of the user, run by the shell, its output on standard error. argument: $1 of the
// command, or NULL. input: descriptor of its standard input. *child_p: its process, 0 where it
// could not be started. Returns 0, or why not (errno).
int rt_spawn_shell(const char *command, const char *argument, int input, int *child_p);

// A program that belongs to this one: beside it, or else by PATH. output: descriptor of its
// standard output.
int rt_spawn_own(const char *program, const char *argument, int input, int output, int *child_p);

#endif
