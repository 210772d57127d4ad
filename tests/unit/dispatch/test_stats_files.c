// Which files dp_stats replaces and which it goes on with; and the line of progress.
#define _GNU_SOURCE // posix_openpt
#include "tests/unit/dispatch/test_stats_support.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/test_clock.h"

// ---- files of an earlier run -----------------------------------------------------------------

static void write_file(const char *directory, const char *name, const char *text)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static bool has_file(const char *directory, const char *name)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    return access(path, F_OK) == 0;
}

static uint32_t lines_of(const char *directory, const char *name)
{
    uint32_t count = 0;
    for (const char *at = read_file(directory, name); at && *at; at++)
        count += *at == '\n';
    return count;
}

// They are there until the first iteration, and are replaced then.
static void a_fresh_run_replaces_files(void **state)
{
    (void)state;
    static scene s;
    static const char line[] = "{\"iteration\":1,\"worker\":1,\"samples\":4,\"miss_pull\":671,"
                               "\"update_push\":682,\"evict_push\":693,\"flush_push\":704,"
                               "\"grad_push\":715,\"first_touch\":726}\n";
    const char *directory = test_directory();
    write_file(directory, "trace.jsonl", "old\n");
    for (uint32_t iterations = 0; iterations < 2; iterations++) {
        open_scene(&s, 1, 0);
        s.traced = true;
        open_tally(&s, directory);
        assert_string_equal(read_file(directory, "trace.jsonl"), "old\n");
        assert_true(has_file(directory, "trace.jsonl.new"));
        if (iterations)
            run_iteration(&s, 1);
        close_scene(&s);
        assert_false(has_file(directory, "trace.jsonl.new"));
    }
    assert_non_null(strstr(read_file(directory, "trace.jsonl"), line));
    assert_int_equal(lines_of(directory, "trace.jsonl"), WORKERS);
    open_scene(&s, 1, 0); // without a trace
    open_tally(&s, directory);
    assert_false(has_file(directory, "trace.jsonl.new"));
    close_scene(&s);
}

// Of a start that goes on with the files, but not with the history, readers are told.
static void a_later_start_keeps_files(void **state)
{
    (void)state;
    static scene s;
    const char *directory = test_directory();
    for (uint32_t start = 0; start < 4; start++) { // 1, 3: resumed
        open_scene(&s, 1, 0);
        s.traced = s.keeps = true;
        s.resumed = start % 2;
        open_tally(&s, directory);
        assert_false(has_file(directory, "trace.jsonl.new"));
        run_iteration(&s, 1);
        close_scene(&s);
    }
    assert_int_equal(lines_of(directory, "trace.jsonl"), 4 * WORKERS);
    assert_int_equal(lines_of(directory, "metrics.jsonl"), 4 + 1);
    must_be_record(directory, "resumed",
                   "{\"record\":\"resumed\",\"iteration\":0,\"caches\":false}");
    assert_null(record_of(directory, "resumed", 2)); // not of the first start: there was nothing
}

// Who gets no slice stands in the trace all the same, with nothing.
static void a_trace_of_who_sits_out(void **state)
{
    (void)state;
    static scene s;
    const char *directory = test_directory();
    char line[64];
    open_scene(&s, 1, 0);
    s.traced = true;
    open_tally(&s, directory);
    s.left_out = 2;
    run_iteration(&s, 1);
    close_scene(&s);
    assert_int_equal(lines_of(directory, "trace.jsonl"), WORKERS);
    snprintf(line, sizeof line, "\"worker\":1,\"samples\":0");
    assert_non_null(strstr(read_file(directory, "trace.jsonl"), line));
    snprintf(line, sizeof line, "\"worker\":0,\"samples\":0");
    assert_null(strstr(read_file(directory, "trace.jsonl"), line));
}

static void a_trace_that_cannot_be_written(void **state)
{
    (void)state;
    static scene s;
    rt_error error = {0};
    char path[512];
    const char *directory = test_directory();
    snprintf(path, sizeof path, "%s/trace.jsonl.new", directory);
    assert_int_equal(mkdir(path, 0700), 0);
    open_scene(&s, 1, 0);
    const dp_stats_config config = {
        .config = &s.config, .directory = directory, .trace = true, .costs.worker_count = WORKERS};
    assert_int_equal(dp_stats_create(&config, &s.stats, &error), RT_IO);
    assert_non_null(strstr(error.text, "trace.jsonl.new: cannot be written"));
    assert_null(s.stats);
    close_scene(&s);
}

// ---- the line of progress --------------------------------------------------------------------

// To a terminal four times a second at most, with a rate and the time that is left from the second
// line on.
static void progress(void **state)
{
    (void)state;
    static scene s;
    static char text[4096];
    double rate = 0, left = 0, loss;
    const int terminal = posix_openpt(O_RDWR | O_NOCTTY);
    assert_true(terminal >= 0 && grantpt(terminal) == 0 && unlockpt(terminal) == 0);
    const int end = open(ptsname(terminal), O_RDWR | O_NOCTTY), own = dup(STDERR_FILENO);
    open_scene(&s, 1, 0);
    s.progress = true;
    dup2(end, STDERR_FILENO);
    test_clock_stop();
    open_tally(&s, NULL);
    run_iteration(&s, 1);
    test_clock_move(0.24);
    run_iteration(&s, 2); // it is too soon
    test_clock_move(0.06);
    run_iteration(&s, 3);
    dup2(own, STDERR_FILENO);
    for (size_t size = 0; !strstr(text, " s left"); size = strlen(text))
        assert_true(read(terminal, text + size, sizeof text - 1 - size) > 0);
    char *second = strstr(text, "\r\033[Kiteration 3: ");
    assert_ptr_equal(strstr(text, "\r\033[Kiteration 1: log loss "), text);
    assert_null(strstr(text, "iteration 2"));
    assert_non_null(second);
    assert_null(strchr(text, '\n'));
    assert_int_equal(sscanf(second + 4, "iteration 3: %lf samples/s, log loss %lf", &rate, &loss),
                     2);
    assert_true(rate > 0 && rate <= 2 * SAMPLES / 0.3 + 1);
    char want[128];
    snprintf(want, sizeof want, ", cost %.0f, hits 75.0%%, ", 0.25 * 3 * 12 / UNIT_S);
    const char *cost = strstr(second, want);
    assert_non_null(cost);
    assert_int_equal(sscanf(cost + strlen(want), "%lf s left", &left), 1);
    test_close(left, 1000.0 / 3, 0.1, 0, "seconds left"); // three quarters took a thousand
    *second = '\0';
    assert_null(strstr(text, "left"));
    assert_null(strstr(text, "samples/s"));
    close_scene(&s);
    close(end);
    close(own);
    close(terminal);
}

TEST_MAIN(TEST(a_fresh_run_replaces_files), TEST(a_later_start_keeps_files),
          TEST(a_trace_of_who_sits_out), TEST(a_trace_that_cannot_be_written), TEST(progress))
