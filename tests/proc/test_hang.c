// A worker whose training hangs while its communication goes on: it is alive, and of no use.
#include "tests/support/test.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/run_case.h"

static const char config[] =
    "{\"workers\": 2, \"batch\": {\"samples_per_worker\": 16},"
    " \"stream\": {\"format\": \"synthetic\", \"samples_max\": 32000,"
    "  \"synthetic\": {\"scale\": 0.001, \"clusters\": 4}},"
    " \"model\": {\"embedding_dim\": 4, \"mlp\": [8]}, \"cache\": {\"rows\": 600},"
    " \"checkpoint\": {\"every_iterations\": 20}, \"on_worker_loss\": \"restart\","
    " \"timeouts\": {\"answer_s\": 2}}";

// Not the thread that communicates, which is the first, and not those of ZeroMQ.
static bool may_hang(pid_t pid, pid_t thread)
{
    char path[100], name[32] = "";
    snprintf(path, sizeof path, "/proc/%d/task/%d/comm", pid, thread);
    FILE *file = fopen(path, "r");
    if (file && !fgets(name, sizeof name, file))
        name[0] = '\0';
    if (file)
        fclose(file);
    return thread != pid && name[0] && strncmp(name, "ZMQ", 3) != 0;
}

// Stops all of them until the process is killed. Exit status: 0, or errno where that is not
// allowed.
static void hold_threads(pid_t pid, int told)
{
    char path[100], word = 1;
    snprintf(path, sizeof path, "/proc/%d/task", pid);
    DIR *all = opendir(path);
    for (struct dirent *entry; all && (entry = readdir(all));) {
        const pid_t thread = atoi(entry->d_name);
        if (thread <= 0 || !may_hang(pid, thread))
            continue;
        if (ptrace(PTRACE_SEIZE, thread, 0, 0) != 0 || ptrace(PTRACE_INTERRUPT, thread, 0, 0) != 0)
            _exit(errno);
    }
    if (!all || write(told, &word, 1) != 1)
        _exit(EIO);
    while (waitpid(-1, NULL, __WALL) > 0 || errno == EINTR) {
        // stops, and then the end of each
    }
    _exit(0);
}

static pid_t hang(pid_t pid)
{
    char word;
    int ends[2], status;
    assert_int_equal(pipe(ends), 0);
    pid_t holder = fork();
    assert_true(holder >= 0);
    if (holder == 0) {
        close(ends[0]);
        hold_threads(pid, ends[1]);
    }
    close(ends[1]);
    if (read(ends[0], &word, 1) != 1) {
        assert_int_equal(waitpid(holder, &status, 0), holder);
        test_skip("threads of another process cannot be stopped here: %s",
                  strerror(WEXITSTATUS(status)));
    }
    close(ends[0]);
    return holder;
}

static void a_worker_that_hangs_is_replaced(void **state)
{
    (void)state;
    char path[300], out[300];
    int status;
    process p = {0};
    snprintf(path, sizeof path, "%s/config.json", run_folder());
    snprintf(out, sizeof out, "%s/out", run_folder());
    const char *const arguments[] = {process_lanyard(), "up", path, "--out", out, NULL};
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(config, file) >= 0);
    assert_int_equal(fclose(file), 0);
    process_start(&p, arguments);
    run_await_checkpoint(&p, "out");
    const pid_t holder = hang(process_child(&p, "worker"));
    run_must_end(&p, 0);
    assert_int_equal(waitpid(holder, &status, 0), holder);
    run_must_say(&p, ": alive, but has not "); // trained an iteration, or carried out a cut
    run_must_say(&p, " within 2 s (timeouts.answer_s)");
    process_fini(&p);
    uint32_t workers[] = {2};
    run_must_train_once("out", 32000, workers, 1);
}

TEST_MAIN(TEST_SLOW(a_worker_that_hangs_is_replaced, 120))
