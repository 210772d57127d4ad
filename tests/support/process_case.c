#define _GNU_SOURCE // pipe2, memmem, unshare
#include "tests/support/process_case.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/rt_base.h"
#include "tests/support/test.h"

#define ARGUMENTS_MAX 64
#define NUMPY_S 60
#define PATH_SIZE 1024

const char *process_lanyard(void)
{
    const char *path = getenv("LANYARD");
    if (!path || !*path)
        test_skip("LANYARD does not name the program (make test sets it)");
    if (access(path, X_OK) != 0)
        fail_msg("LANYARD=%s: %s", path, strerror(errno));
    return path;
}

const char *process_beside(const char *file)
{
    static char path[4096];
    const char *program = process_lanyard(), *end = strrchr(program, '/');
    snprintf(path, sizeof path, "%.*s%s", end ? (int)(end + 1 - program) : 0, program, file);
    return path;
}

_Noreturn static void become(char *const *arguments, int input, int output)
{
    dup2(input, STDIN_FILENO);
    dup2(output, STDOUT_FILENO);
    dup2(output, STDERR_FILENO);
    execv(arguments[0], arguments);
    fprintf(stderr, "%s: %s\n", arguments[0], strerror(errno));
    _exit(127);
}

void process_start(process *p, const char *const *arguments)
{
    int in[2] = {-1, -1}, out[2];
    char *copies[ARGUMENTS_MAX] = {0};
    for (size_t i = 0; arguments[i]; i++) {
        assert_true(i + 1 < ARGUMENTS_MAX);
        copies[i] = strdup(arguments[i]);
    }
    bool with_input = p->with_input;
    *p = (process){.input = -1, .with_input = with_input};
    p->text = calloc(PROCESS_OUTPUT_MAX, 1);
    assert_non_null(p->text);
    assert_int_equal(pipe2(out, O_CLOEXEC), 0);
    if (with_input)
        assert_int_equal(pipe2(in, O_CLOEXEC), 0);
    else
        in[0] = open("/dev/null", O_RDONLY | O_CLOEXEC);
    p->pid = fork();
    if (p->pid == 0)
        become(copies, in[0], out[1]);
    assert_true(p->pid > 0);
    close(out[1]);
    close(in[0]);
    p->output = out[0];
    p->input = in[1];
    for (size_t i = 0; copies[i]; i++)
        free(copies[i]);
}

static bool is_readable(const process *p, int limit_ms)
{
    struct pollfd one = {p->output, POLLIN, 0};
    return poll(&one, 1, limit_ms) != 0;
}

// Reads what there is; false at the end of the output.
static bool take_output(process *p)
{
    assert_true(p->length + 1 < PROCESS_OUTPUT_MAX);
    ssize_t got = read(p->output, p->text + p->length, PROCESS_OUTPUT_MAX - 1 - p->length);
    if (got < 0 && errno == EINTR)
        return true;
    assert_true(got >= 0);
    p->length += (size_t)got;
    p->text[p->length] = '\0';
    return got > 0;
}

// The same, once there is something.
static bool pump(process *p, uint64_t deadline_ns, const char *awaited)
{
    const uint64_t now = rt_now_ns();
    const int left_ms = now < deadline_ns ? (int)((deadline_ns - now) / 1000000) + 1 : 0;
    if (!is_readable(p, left_ms))
        fail_msg("%s did not come in time; the program said:\n%s", awaited, p->text);
    return take_output(p);
}

bool process_goes_on(process *p)
{
    while (p->text && is_readable(p, 0)) {
        if (!take_output(p))
            return false;
    }
    return true;
}

static uint64_t deadline(double limit_s)
{
    return rt_now_ns() + (uint64_t)(limit_s * test_limit_factor() * 1e9);
}

size_t process_await(process *p, size_t from, const char *text, double limit_s)
{
    uint64_t end = deadline(limit_s);
    for (;;) {
        const char *found = strstr(p->text + from, text);
        if (found)
            return (size_t)(found - p->text) + strlen(text);
        if (!pump(p, end, text))
            fail_msg("the program ended without \"%s\"; it said:\n%s", text, p->text);
    }
}

int process_end(process *p, double limit_s)
{
    int status;
    uint64_t end = deadline(limit_s);
    while (pump(p, end, "the end of the program and its children")) {
    }
    // Nobody holds the pipe any more; what is left of the process is its exit status.
    assert_int_equal(waitpid(p->pid, &status, 0), p->pid);
    p->pid = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void process_fini(process *p)
{
    if (p->pid) {
        kill(p->pid, SIGKILL);
        waitpid(p->pid, NULL, 0);
    }
    if (p->output >= 0)
        close(p->output);
    if (p->input >= 0)
        close(p->input);
    // Of a child that ends with an error nobody else may see which one.
    if (!p->text) // it was never started
        return;
    if (strstr(p->text, "Sanitizer: ") || strstr(p->text, ": runtime error: "))
        fail_msg("a sanitizer reports; the program said:\n%s", p->text);
    free(p->text);
}

int process_run(process *p, const char *const *arguments, double limit_s)
{
    process_start(p, arguments);
    return process_end(p, limit_s);
}

void process_must_run(const char *const *arguments, double limit_s)
{
    process p = {0};
    const int status = process_run(&p, arguments, limit_s);
    if (status != 0)
        fail_msg("%s %s: exit status %d\n%s", arguments[0], arguments[1], status, p.text);
    printf("%s", p.text);
    process_fini(&p);
}

bool process_has_numpy(void)
{
    process p = {0};
    const char *const probe[] = {"/usr/bin/python3", "-c", "import numpy", NULL};
    if (access(probe[0], X_OK) != 0)
        return false;
    const bool found = process_run(&p, probe, NUMPY_S) == 0;
    process_fini(&p);
    return found;
}

void process_need_numpy(void)
{
    if (!process_has_numpy())
        test_skip("/usr/bin/python3 has no numpy (Debian package python3-numpy)");
}

// Words of a command line are separated by zero bytes.
static bool has_words(const char *line, size_t length, const char *command)
{
    char words[128] = "";
    size_t size = strlen(command) + 2;
    assert_true(size < sizeof words);
    memcpy(words + 1, command, size - 1);
    for (size_t i = 1; i + 1 < size; i++)
        words[i] = words[i] == ' ' ? '\0' : words[i];
    return memmem(line, length, words, size) != NULL;
}

static pid_t parent_of(const char *pid)
{
    char path[300], line[512] = "";
    int parent = 0;
    snprintf(path, sizeof path, "/proc/%s/stat", pid);
    FILE *file = fopen(path, "r");
    if (!file)
        return 0;
    if (fgets(line, sizeof line, file) && strrchr(line, ')'))
        (void)sscanf(strrchr(line, ')') + 1, " %*c %d", &parent);
    fclose(file);
    return parent;
}

// 0: there is none.
static pid_t find_child(const process *p, const char *command)
{
    pid_t found = 0;
    DIR *all = opendir("/proc");
    assert_non_null(all);
    for (struct dirent *entry; !found && (entry = readdir(all));) {
        char path[300], line[4096];
        if (entry->d_name[0] < '0' || entry->d_name[0] > '9' || parent_of(entry->d_name) != p->pid)
            continue;
        snprintf(path, sizeof path, "/proc/%s/cmdline", entry->d_name);
        FILE *file = fopen(path, "r");
        if (!file)
            continue;
        size_t length = fread(line, 1, sizeof line, file);
        fclose(file);
        if (has_words(line, length, command))
            found = atoi(entry->d_name);
    }
    closedir(all);
    return found;
}

pid_t process_child(const process *p, const char *command)
{
    const pid_t found = find_child(p, command);
    if (!found)
        fail_msg("no child \"%s\"; the program said:\n%s", command, p->text);
    return found;
}

// `up` gives its children the configuration in a descriptor.
pid_t process_worker(const process *p, unsigned rank)
{
    for (unsigned fd = 3; fd < 64; fd++) {
        char command[64];
        snprintf(command, sizeof command, "worker /proc/self/fd/%u --rank %u", fd, rank);
        const pid_t found = find_child(p, command);
        if (found)
            return found;
    }
    fail_msg("no worker %u; the program said:\n%s", rank, p->text);
    return 0;
}

void process_in_group(const char *file, const char *text)
{
    char path[128];
    snprintf(path, sizeof path, "/sys/fs/cgroup/%s", file);
    if (unshare(CLONE_NEWNS) != 0)
        test_skip("no namespace of mounts without root: %s", strerror(errno));
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("none", "/sys/fs/cgroup", "tmpfs", 0, NULL) != 0)
        test_skip("nothing can be mounted over /sys/fs/cgroup: %s", strerror(errno));
    FILE *group = fopen(path, "w");
    if (!group || fputs(text, group) < 0 || fclose(group) != 0)
        test_skip("no file in /sys/fs/cgroup: %s", strerror(errno));
}

// ---- a limit of memory -----------------------------------------------------------------------

static char group[PATH_SIZE]; // of the limit; "": there is none

// Of version 1 or 2: the folder that this process is in, and the file of the limit.
static bool find_group(char *folder, size_t size, const char **limit_p)
{
    char line[512];
    bool found = false;
    FILE *file = fopen("/proc/self/cgroup", "re");
    while (file && !found && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = '\0';
        const char *path = strstr(line, ":memory:"), *second = strstr(line, "0::");
        found = path || second == line;
        *limit_p = path ? "memory.limit_in_bytes" : "memory.max";
        if (path)
            snprintf(folder, size, "/sys/fs/cgroup/memory%s", path + strlen(":memory:"));
        else if (found)
            snprintf(folder, size, "/sys/fs/cgroup%s", line + strlen("0::"));
    }
    if (file)
        fclose(file);
    return found;
}

static bool write_number(const char *folder, const char *name, uint64_t number)
{
    char path[PATH_SIZE + 64];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "we");
    if (!file)
        return false;
    const bool written = fprintf(file, "%" PRIu64 "\n", number) > 0;
    return fclose(file) == 0 && written;
}

void process_limit_memory(uint64_t bytes)
{
    char parent[PATH_SIZE - 64];
    const char *limit;
    if (!find_group(parent, sizeof parent, &limit))
        test_skip("no control group has the memory of this process");
    snprintf(group, sizeof group, "%s/lanyard-test-%d", parent, (int)getpid());
    if (mkdir(group, 0700) != 0)
        test_skip("cannot make the control group %s: %s", group, strerror(errno));
    if (!write_number(group, limit, bytes) ||
        !write_number(group, "cgroup.procs", (uint64_t)getpid())) {
        const int reason = errno;
        rmdir(group);
        test_skip("cannot limit the memory of %s: %s", group, strerror(reason));
    }
}

void process_leave_limit(void)
{
    char parent[PATH_SIZE];
    memcpy(parent, group, sizeof parent);
    *strrchr(parent, '/') = '\0';
    assert_true(write_number(parent, "cgroup.procs", (uint64_t)getpid()));
    rmdir(group);
}
