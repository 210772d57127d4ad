#include "tests/support/test.h"

#include "runtime/rt_hash.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define EXIT_SKIPPED 77

static char directory[64];
// The case that runs, and the signal that ends all of them.
static volatile sig_atomic_t running, ending;

_Noreturn void test_skip(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    printf("SKIP ");
    vprintf(format, arguments);
    va_end(arguments);
    printf("\n");
    fflush(stdout);
    _exit(EXIT_SKIPPED);
}

unsigned test_limit_factor(void)
{
    const char *text = getenv("TEST_LIMIT_FACTOR");
    int factor = text ? atoi(text) : 1;
    return factor > 1 ? (unsigned)factor : 1;
}

const char *test_data_file(const char *name)
{
    static char path[4096];
    const char *folder = getenv("LANYARD_DATA");
    snprintf(path, sizeof path, "%s/%s", folder ? folder : "../shared/data", name);
    if (access(path, R_OK) != 0)
        test_skip("%s is not here (set LANYARD_DATA to the folder that holds it)", path);
    return path;
}

const char *test_directory(void)
{
    return directory;
}

const char *test_path(const char *name)
{
    static char folder[200], path[300];
    if (!folder[0])
        snprintf(folder, sizeof folder, "%s", test_directory());
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

bool test_file_has(const char *path, const char *text)
{
    static char all[16 << 20];
    FILE *file = fopen(path, "r");
    if (!file)
        return false;
    const size_t size = fread(all, 1, sizeof all - 1, file);
    fclose(file);
    all[size] = '\0';
    return strstr(all, text) != NULL;
}

// Below those that Linux hands out (ip_local_port_range: from 32768 on), and above the defaults of
// the program.
#define PORT_MIN 10000u
#define PORT_MAX 31999u
#define PORTS_OF_CASE 97u // then the next process's begin

uint16_t test_free_port(void)
{
    static uint32_t taken;
    const uint32_t count = PORT_MAX - PORT_MIN + 1, begin = (uint32_t)getpid() * PORTS_OF_CASE;
    for (uint32_t tried = 0; tried < count; tried++) {
        const uint16_t port = (uint16_t)(PORT_MIN + (begin + taken++) % count);
        const struct sockaddr_in place = {
            .sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}, .sin_port = htons(port)};
        const int one = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        const bool is_free = bind(one, (const struct sockaddr *)&place, sizeof place) == 0;
        close(one);
        if (is_free)
            return port;
    }
    fail_msg("no free port from %u to %u", PORT_MIN, PORT_MAX);
    return 0;
}

int test_connect(uint16_t port)
{
    const struct sockaddr_in place = {
        .sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}, .sin_port = htons(port)};
    const int one = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(one, (const struct sockaddr *)&place, sizeof place), 0);
    return one;
}

void test_close(double got, double want, double bound, double floor, const char *what)
{
    double scale = fabs(want) > floor ? fabs(want) : floor;
    if (!(fabs(got - want) <= bound * scale))
        fail_msg("%s: got %.9g, want %.9g, relative error %.3g > %.3g", what, got, want,
                 fabs(got - want) / scale, bound);
}

// By descriptors, as a case may have made paths longer than any call takes.
static void remove_entry(int folder, const char *name)
{
    if (unlinkat(folder, name, 0) == 0)
        return;
    const int inside = openat(folder, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *entries = inside < 0 ? NULL : fdopendir(inside);
    if (!entries)
        return;
    for (struct dirent *entry; (entry = readdir(entries));)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            remove_entry(inside, entry->d_name);
    closedir(entries);
    (void)unlinkat(folder, name, AT_REMOVEDIR);
}

static void end_case(int number)
{
    ending = number;
    if (running) {
        kill(running, SIGKILL); // it may not lead a group yet
        kill(-running, SIGKILL);
    }
}

// Ends what the case left running: what has lost its parent is this process's child, of whatever
// session. Without that file of Linux they stay.
static void end_leftovers(void)
{
    char path[64];
    int pid;
    FILE *children;
    snprintf(path, sizeof path, "/proc/self/task/%ld/children", (long)getpid());
    do {
        children = fopen(path, "r");
        while (children && fscanf(children, "%d", &pid) == 1)
            kill(pid, SIGKILL);
        if (children)
            fclose(children);
    } while (waitpid(-1, NULL, children ? 0 : WNOHANG) > 0);
}

static void run_child(const test_case *one, FILE *output)
{
    signal(SIGTERM, SIG_DFL);
    signal(SIGINT, SIG_DFL);
    fflush(NULL);
    dup2(fileno(output), STDOUT_FILENO);
    dup2(fileno(output), STDERR_FILENO);
    setpgid(0, 0); // so that what the case started can be ended with it
    alarm((one->limit_s ? one->limit_s : TEST_LIMIT_S) * test_limit_factor());
    const struct CMUnitTest single[] = {{one->name, one->run, NULL, NULL, NULL}};
    int failed = _cmocka_run_group_tests(one->name, single, 1, NULL, NULL);
    exit(failed ? EXIT_FAILURE : EXIT_SUCCESS); // exit, so that sanitizers report leaks
}

// Prints the captured output, indented, and returns the reason line of a skip if there is one.
static void print_output(FILE *output, const char *only_prefix)
{
    char line[4096];
    rewind(output);
    while (fgets(line, sizeof line, output)) {
        if (!only_prefix)
            printf("    %s", line);
        else if (strncmp(line, only_prefix, strlen(only_prefix)) == 0)
            printf("    %s", line + strlen(only_prefix));
    }
}

static int run_case(const test_case *one)
{
    FILE *output = tmpfile();
    // Not named by the process: one that was killed may have left its own, and numbers come again.
    snprintf(directory, sizeof directory, "/tmp/lanyard-test-XXXXXX");
    if (!output || !mkdtemp(directory)) {
        printf("FAIL %s (no directory for it: %s)\n", one->name, strerror(errno));
        return EXIT_FAILURE;
    }
    fflush(NULL);
    pid_t child = fork();
    if (child == 0)
        run_child(one, output);
    int status = 0;
    running = child;
    if (ending)
        end_case(ending);
    pid_t ended = child;
    // Others are orphans of the case: who waits for their end must not find them still there.
    while (child > 0 && (ended = waitpid(-1, &status, 0)) != child &&
           (ended > 0 || errno == EINTR)) {
    }
    running = 0;
    if (ended != child || child < 0) {
        perror("fork");
        fclose(output);
        return EXIT_FAILURE;
    }
    kill(-child, SIGKILL);
    end_leftovers();
    remove_entry(AT_FDCWD, directory);
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : EXIT_FAILURE;
    if (code == EXIT_SKIPPED) {
        printf("skip %s\n", one->name);
        print_output(output, "SKIP ");
    } else if (code != 0) {
        printf("FAIL %s", one->name);
        if (WIFSIGNALED(status))
            printf(" (%s%s)", strsignal(WTERMSIG(status)),
                   WTERMSIG(status) == SIGALRM ? ": time limit" : "");
        printf("\n");
        print_output(output, NULL);
    } else {
        printf("pass %s\n", one->name);
    }
    fclose(output);
    return code;
}

int test_run(const test_case *cases, size_t count, int argc, char **argv)
{
    int passed = 0, failed = 0, skipped = 0;
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    signal(SIGTERM, end_case);
    signal(SIGINT, end_case);
    for (size_t i = 0; i < count && !ending; i++) {
        if (argc > 1 && !strstr(cases[i].name, argv[1]))
            continue;
        int code = run_case(&cases[i]);
        passed += code == 0;
        skipped += code == EXIT_SKIPPED;
        failed += code != 0 && code != EXIT_SKIPPED;
    }
    printf("%d passed, %d failed, %d skipped\n", passed, failed, skipped);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

uint8_t *test_random_bytes(size_t size)
{
    rt_random random = {size};
    uint8_t *bytes = malloc(size + 1);
    assert_non_null(bytes);
    for (size_t i = 0; i < size; i++)
        bytes[i] = (uint8_t)rt_random_u64(&random);
    return bytes;
}
