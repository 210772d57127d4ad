// A file that grows: renamed, truncated, read on after a restart, against the lines that were
// written.
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/config/rt_sources.h"
#include "runtime/stream/rt_source.h"
#include "tests/support/open_quote_case.h"
#include "tests/support/test.h"

#define WAIT_NS UINT64_C(5000000000)

static rt_config config;
static char *paths[1];

static const char *path_of(const char *name)
{
    static char texts[4][600];
    static uint32_t next;
    char *text = texts[next++ % 4];
    snprintf(text, sizeof texts[0], "%s", test_path(name));
    return text;
}

static void *open_follow(void)
{
    static char path[600];
    void *source;
    rt_error error = {0};
    snprintf(path, sizeof path, "%s", path_of("log"));
    paths[0] = path;
    assert_int_equal(rt_config_init(&config), RT_OK);
    config.stream.source = RT_SOURCE_FOLLOW;
    config.stream.files = paths;
    config.stream.file_count = 1;
    if (rt_source_follow.open(&config.stream, 1, &source, &error))
        fail_msg("%s", error.text);
    return source;
}

static void add(const char *name, const char *text)
{
    FILE *file = fopen(path_of(name), "a");
    assert_true(fputs(text, file) >= 0);
    fclose(file);
}

static void must_give(void *source, const char *want)
{
    rt_line line;
    rt_error error = {0};
    const rt_status status = rt_source_follow.line(source, rt_now_ns() + WAIT_NS, 0, &line, &error);
    if (status)
        fail_msg("no line, %s %s; expected %s", rt_status_text(status), error.text, want);
    assert_int_equal(line.length, strlen(want));
    assert_memory_equal(line.text, want, line.length);
}

static void must_wait(void *source)
{
    rt_line line;
    rt_error error = {0};
    assert_int_equal(rt_source_follow.line(source, rt_now_ns() + 50000000, 0, &line, &error),
                     RT_AGAIN);
}

static void gives_whole_lines(void **state)
{
    (void)state;
    void *source = open_follow(); // the file is not there yet
    must_wait(source);
    add("log", "one\ntw");
    must_give(source, "one");
    must_wait(source);
    add("log", "o\r\n\nfour\n");
    must_give(source, "two");
    must_give(source, "");
    must_give(source, "four");
    rt_source_follow.back(source);
    must_give(source, "four");
    must_wait(source);
    rt_source_follow.close(source);
}

static void follows_the_name(void **state)
{
    (void)state;
    add("log", "1\n2\n");
    void *source = open_follow();
    must_give(source, "1");
    assert_int_equal(rename(path_of("log"), path_of("log.1")), 0);
    add("log", "4\n");
    must_give(source, "2");
    must_wait(source);
    add("log.1", "3\n"); // its writer has it still open
    must_give(source, "3");
    must_give(source, "4");
    assert_int_equal(rename(path_of("log.1"), path_of("log.2")), 0);
    assert_int_equal(rename(path_of("log"), path_of("log.1")), 0);
    add("log", "5\n");
    must_give(source, "5");
    must_wait(source);
    rt_source_follow.close(source);
}

static void begins_again_when_truncated(void **state)
{
    (void)state;
    add("log", "a\nb\nc\n");
    void *source = open_follow();
    must_give(source, "a");
    must_give(source, "b");
    must_give(source, "c");
    must_wait(source);
    assert_int_equal(truncate(path_of("log"), 0), 0);
    add("log", "d\n");
    must_give(source, "d");
    must_wait(source);
    // As long as before, when it is looked at again: its first bytes tell.
    assert_int_equal(truncate(path_of("log"), 0), 0);
    add("log", "E\n");
    must_give(source, "E");
    must_wait(source);
    rt_source_follow.close(source);
}

static void *go_on_from(const rt_bytes *position)
{
    rt_error error = {0};
    void *source = open_follow();
    rt_reader reader = rt_bytes_reader(position);
    if (rt_source_follow.seek(source, &reader, NULL, &error))
        fail_msg("%s", error.text);
    return source;
}

// Closed in the middle of the first of four files, all of which were renamed before it goes on.
static void goes_on_after_renames(void **state)
{
    (void)state;
    rt_bytes position = {0};
    add("log", "1\n2\n3\n");
    void *source = open_follow();
    must_give(source, "1");
    rt_source_follow.tell(source, &position);
    rt_source_follow.close(source);
    for (int i = 3; i > 0; i--) {
        char from[16], to[16], line[16];
        for (int k = 3; k > 0; k--) {
            snprintf(from, sizeof from, k > 1 ? "log.%d" : "log", k - 1);
            snprintf(to, sizeof to, "log.%d", k);
            if (access(path_of(from), F_OK) == 0)
                assert_int_equal(rename(path_of(from), path_of(to)), 0);
        }
        usleep(20000); // the clock of files is coarse
        snprintf(line, sizeof line, "%d\n", 7 - i);
        add("log", line);
    }
    add("log.0.gz", "packed\n");
    source = go_on_from(&position);
    for (int i = 2; i <= 6; i++) {
        char line[16];
        snprintf(line, sizeof line, "%d", i);
        must_give(source, line);
    }
    must_wait(source);
    rt_source_follow.close(source);

    position.size = 0; // one that is gone, or was truncated meanwhile
    source = open_follow();
    must_give(source, "6");
    rt_source_follow.tell(source, &position);
    rt_source_follow.close(source);
    assert_int_equal(truncate(path_of("log"), 0), 0);
    add("log", "7\n");
    source = go_on_from(&position);
    must_give(source, "7");
    rt_source_follow.close(source);
    rt_bytes_fini(&position);
}

// Renamed or written more than a second ago, by the clock of files.
static bool is_long_ago(const char *path)
{
    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    return rt_unix_s() > (double)info.st_ctim.tv_sec + 1e-9 * (double)info.st_ctim.tv_nsec + 1;
}

// What was renamed long ago is read on without a wait: who reads it was away.
static void catches_up_at_once(void **state)
{
    char name[16];
    rt_line line;
    rt_error error = {0};
    uint32_t lines = 0;
    (void)state;
    add("log", "0\n");
    void *source = open_follow();
    must_give(source, "0");
    for (int i = 5; i > 0; i--) {
        snprintf(name, sizeof name, "log.%d", i);
        assert_int_equal(rename(path_of("log"), path_of(name)), 0);
        add("log", "x\n");
        usleep(20000); // files follow each other by their times
    }
    while (!is_long_ago(path_of("log.1")))
        usleep(20000);
    while (!rt_source_follow.line(source, 1, 0, &line, &error)) // what is there, no waiting
        lines++;
    assert_int_equal(lines, 5);
    rt_source_follow.close(source);
}

static void stops(void **state)
{
    (void)state;
    int ends[2];
    rt_line line;
    rt_error error = {0};
    assert_int_equal(pipe(ends), 0);
    add("log", "1\n");
    void *source = open_follow();
    const rt_source_watch watch = {ends[0], -1};
    rt_source_follow.watch(source, &watch);
    assert_int_equal(write(ends[1], "x", 1), 1);
    must_give(source, "1");
    assert_int_equal(rt_source_follow.line(source, 0, 0, &line, &error), RT_STOPPED);
    rt_source_follow.close(source);
}

static void an_open_quote_is_one_bad_line(void **state)
{
    (void)state;
    char files[700];
    rt_config grown = config_fresh();
    snprintf(files, sizeof files, "stream.files=%s", path_of("log"));
    config_must_set(&grown, files);
    config_must_set(&grown, "stream.source=follow");
    open_quote_configure(&grown);
    add("log", OPEN_QUOTE_LINES);
    open_quote_must_read(&grown);
    rt_config_fini(&grown);
}

TEST_MAIN(TEST(gives_whole_lines), TEST(follows_the_name), TEST(begins_again_when_truncated),
          TEST(goes_on_after_renames), TEST(catches_up_at_once), TEST(stops),
          TEST(an_open_quote_is_one_bad_line))
