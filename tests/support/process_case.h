// process_case - programs that a test starts, their output, their children, their end.
//
// Output (both streams) comes through one pipe, which everything that the program starts inherits:
// the end of the output means that all of it has gone. Waits have deadlines; one that passes fails
// the test and prints what was said so far.
#ifndef PROCESS_CASE_H
#define PROCESS_CASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define PROCESS_OUTPUT_MAX (1u << 20)

// ASAN_OPTIONS of what is linked with Open MPI: its leaks are in modules that it has unloaded
// by the end, so no suppression can name them.
#define PROCESS_MPI_ASAN "detect_leaks=0"

typedef struct {
    pid_t pid;
    int output; // read end
    int input;  // write end of its standard input, or -1
    size_t length;
    char *text;      // output so far, terminated
    bool with_input; // set before the start: give it a pipe for standard input (else /dev/null)
} process;

// The program under test: environment variable LANYARD; skips the case without one.
const char *process_lanyard(void);

// Path of a file beside it; static, until the next call.
const char *process_beside(const char *file);

// arguments[0] is the path; NULL ends them.
void process_start(process *p, const char *const *arguments);

// Reads output until it has text after from (an offset into p->text). Returns the offset behind it.
size_t process_await(process *p, size_t from, const char *text, double limit_s);

// Reads what has been said by now, without waiting, so that nobody is held up by a full pipe.
// False: the program has ended, and all that it started. (One that was never started has not.)
bool process_goes_on(process *p);

// Waits for the end of the program and of all that it started. The exit status; 128 + signal.
int process_end(process *p, double limit_s);
// Fails the case if the output holds what a sanitizer reports.
void process_fini(process *p);

// start, end; the output stays in p->text.
int process_run(process *p, const char *const *arguments, double limit_s);

// The same of a program that must succeed; what it said is printed.
void process_must_run(const char *const *arguments, double limit_s);

// Whether Debian's Python has numpy, which some scripts of the tests need; and a skip without.
bool process_has_numpy(void);
void process_need_numpy(void);

// From here on this case, and what it starts, finds itself in a control group of version 2 that has
// this file with this text, and no other. A skip where nothing can be mounted.
void process_in_group(const char *file, const char *text);

// From here on this case, and what it starts, has so many bytes of memory, in a control group below
// its own, and is ended by the kernel when they do not do. A skip where no group can be made.
void process_limit_memory(uint64_t bytes);
void process_leave_limit(void); // back to where it was; what was started there has ended

// The child of p whose arguments contain all words of a command, as in "worker --rank 1".
pid_t process_child(const process *p, const char *command);

// The worker of that rank that `lanyard up`, which is p, has started.
pid_t process_worker(const process *p, unsigned rank);

#endif
