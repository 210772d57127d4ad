// A checkpoint that is asked for while another one is being written waits for that, training does
// not.
#include "tests/support/test.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/rt_base.h"
#include "tests/support/process_case.h"

#define RUN_S 60.0
#define ASKED_MAX 200u

static const char config[] =
    "{\"workers\": 2, \"batch\": {\"samples_per_worker\": 16},"
    " \"stream\": {\"format\": \"synthetic\", \"synthetic\": {\"scale\": 0.01, \"clusters\": 4}},"
    " \"model\": {\"embedding_dim\": 64, \"mlp\": [8, 4]},"
    " \"dispatch\": {\"measure_compute\": false}, \"cache\": {\"rows\": 2000},"
    " \"checkpoint\": {\"full_every\": 1}}";

static void start(process *p)
{
    char file_name[300], out[300];
    snprintf(file_name, sizeof file_name, "%s", test_path("config.json"));
    snprintf(out, sizeof out, "%s", test_path("out"));
    const char *const arguments[] = {process_lanyard(), "up", file_name, "--out", out, NULL};
    FILE *file = fopen(file_name, "w");
    assert_non_null(file);
    assert_true(fputs(config, file) >= 0);
    assert_int_equal(fclose(file), 0);
    *p = (process){0};
    process_start(p, arguments);
}

// Lines of the metrics that have the text.
static uint32_t lines_with(const char *text)
{
    struct stat info;
    uint32_t count = 0;
    FILE *file = fopen(test_path("out/metrics.jsonl"), "r");
    if (!file || fstat(fileno(file), &info) != 0)
        return 0;
    char *bytes = calloc((size_t)info.st_size + 1, 1);
    assert_non_null(bytes);
    bytes[fread(bytes, 1, (size_t)info.st_size, file)] = '\0';
    fclose(file);
    for (const char *at = bytes; (at = strstr(at, text)); at++)
        count++;
    free(bytes);
    return count;
}

static void await_lines(const process *p, const char *text, uint32_t count)
{
    const uint64_t end = rt_now_ns() + (uint64_t)(RUN_S / 2 * 1e9);
    while (lines_with(text) < count) {
        if (rt_now_ns() > end)
            fail_msg("%u times %s, waited for %u; it said:\n%s", lines_with(text), text, count,
                     p->text);
        (void)poll(NULL, 0, 5);
    }
}

static uint32_t iterations(void)
{
    return lines_with("\"record\":\"iteration\"");
}

static uint32_t checkpoints(void)
{
    return lines_with("\"complete\":true");
}

// The copy of the shard that writes; 0: there is none.
static pid_t writer_of(pid_t shard)
{
    char path[64], text[32] = "";
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)shard, (int)shard);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file >= 0) {
        text[0] = '\0';
        const ssize_t got = read(file, text, sizeof text - 1);
        text[got > 0 ? got : 0] = '\0';
        close(file);
    }
    return (pid_t)atoi(text);
}

// Asks for checkpoints until one is caught while it is written, and holds its writer.
static pid_t hold_writer(process *p, pid_t shard)
{
    for (uint32_t asked = 0; asked < ASKED_MAX; asked++) {
        const uint32_t before = checkpoints();
        assert_int_equal(kill(p->pid, SIGUSR1), 0);
        const uint64_t end = rt_now_ns() + (uint64_t)(RUN_S / 2 * 1e9);
        for (uint32_t turn = 0; turn % 64 || checkpoints() == before; turn++) {
            const pid_t writer = writer_of(shard);
            if (writer > 0 && kill(writer, SIGSTOP) == 0 && writer_of(shard) == writer)
                return writer;
            if (rt_now_ns() > end)
                fail_msg("no checkpoint; it said:\n%s", p->text);
        }
    }
    fail_msg("none of %u writers could be held", ASKED_MAX);
    return 0;
}

static void training_goes_on(void **state)
{
    (void)state;
    process p;
    start(&p);
    await_lines(&p, "\"record\":\"iteration\"", 20);
    const pid_t writer = hold_writer(&p, process_child(&p, "ps"));
    const uint32_t complete = checkpoints();
    assert_int_equal(kill(p.pid, SIGUSR1), 0);
    await_lines(&p, "\"record\":\"iteration\"", iterations() + 100);
    assert_int_equal(checkpoints(), complete);
    assert_int_equal(kill(writer, SIGCONT), 0);
    await_lines(&p, "\"complete\":true", complete + 2); // the one that was held, and the one after
    assert_int_equal(kill(p.pid, SIGINT), 0);
    const int status = process_end(&p, RUN_S);
    if (status != 0 || strstr(p.text, "training waits for it"))
        fail_msg("exit status %d; it said:\n%s", status, p.text);
    process_fini(&p);
}

TEST_MAIN(TEST(training_goes_on))
