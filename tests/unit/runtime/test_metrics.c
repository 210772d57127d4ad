// The stream of measurements: whole lines, also when the disk is full for a while.
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cjson/cJSON.h>

#include "runtime/metrics/rt_metrics.h"
#include "tests/support/test.h"

static const char *metrics_path(void)
{
    static char path[512];
    if (!path[0])
        snprintf(path, sizeof path, "%s/metrics.jsonl", test_directory());
    return path;
}

static rt_metrics *open_metrics(const char *path)
{
    rt_metrics *metrics;
    rt_error error = {0};
    if (rt_metrics_open(path, &metrics, &error) != RT_OK)
        fail_msg("%s", error.text);
    return metrics;
}

static void write_record(rt_metrics *metrics, uint64_t iteration, uint32_t value_count)
{
    rt_json *json = rt_metrics_begin(metrics, "iteration");
    rt_json_u64(json, "iteration", iteration);
    rt_json_begin_array(json, "values");
    for (uint32_t i = 0; i < value_count; i++)
        rt_json_double(json, NULL, i % 7 ? i * 0.1 : (double)NAN);
    rt_json_end_array(json);
    rt_metrics_end(metrics);
}

// Checks that every line is an iteration record; returns their number and their sum.
static uint64_t read_records(const char *path, uint64_t *sum_p)
{
    static char line[1u << 16];
    uint64_t count = 0;
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    for (*sum_p = 0; fgets(line, sizeof line, file); count++) {
        cJSON *record = cJSON_Parse(line);
        if (!record || line[strlen(line) - 1] != '\n')
            fail_msg("line %lu is no record: %.80s", (unsigned long)count + 1, line);
        assert_string_equal(cJSON_GetObjectItem(record, "record")->valuestring, "iteration");
        assert_true(cJSON_IsNumber(cJSON_GetObjectItem(record, "time_s")));
        assert_true(cJSON_IsNull(cJSON_GetObjectItem(record, "values")->child));
        *sum_p += (uint64_t)cJSON_GetObjectItem(record, "iteration")->valuedouble;
        cJSON_Delete(record);
    }
    fclose(file);
    return count;
}

static void test_records(void **state)
{
    (void)state;
    uint64_t sum;
    rt_metrics *metrics = open_metrics(metrics_path());
    for (uint64_t i = 1; i <= 100; i++)
        write_record(metrics, i, (uint32_t)(i * 37 % 300) + 1);
    assert_int_equal(read_records(metrics_path(), &sum), 100); // before close: nothing is held back
    assert_int_equal(sum, 5050);
    rt_metrics_close(metrics);
    metrics = open_metrics(metrics_path()); // empties it
    write_record(metrics, 1, 1);
    rt_metrics_close(metrics);
    assert_int_equal(read_records(metrics_path(), &sum), 1);
}

static const char *older_path(void)
{
    static char path[520];
    snprintf(path, sizeof path, "%s.1", metrics_path());
    return path;
}

// The newest records stay, whole, in two files of half the bound each and a record more at most.
static void test_a_bound(void **state)
{
    (void)state;
    enum { BOUND = 20000, COUNT = 1000, RECORD = 1700 };
    uint64_t sum, older_sum, bytes = 0;
    struct stat now, older;
    rt_metrics *metrics = open_metrics(metrics_path());
    rt_metrics_limit(metrics, BOUND);
    for (uint64_t i = 1; i <= COUNT; i++) {
        write_record(metrics, i, (uint32_t)(i * 37 % 300) + 1);
        assert_int_equal(stat(metrics_path(), &now), 0);
        bytes = (uint64_t)now.st_size + (stat(older_path(), &older) == 0 ? older.st_size : 0);
        assert_true(bytes <= BOUND + 2 * RECORD);
    }
    rt_metrics_close(metrics);
    assert_true(bytes >= BOUND / 2);
    const uint64_t n = read_records(older_path(), &older_sum) + read_records(metrics_path(), &sum);
    assert_true(n >= 5); // the last n, none missing
    assert_int_equal(older_sum + sum, n * (2 * COUNT - n + 1) / 2);
}

static void write_beyond_the_bound(void)
{
    rt_metrics *metrics = open_metrics(metrics_path());
    rt_metrics_limit(metrics, 2000);
    for (uint64_t i = 1; i <= 100; i++)
        write_record(metrics, i, 20);
    rt_metrics_close(metrics);
}

static void test_quality_record(void **state)
{
    (void)state;
    rt_quality quality = {8, 2, 1, 0.5, (double)NAN, 0.75, 1.5, 0.25, 0.375, 0};
    rt_json json;
    rt_json_init(&json, 0);
    rt_json_begin_object(&json, NULL);
    rt_metrics_quality(&json, "quality", &quality);
    rt_json_end_object(&json);
    assert_string_equal(rt_json_text(&json, NULL),
                        "{\"quality\":{\"first_sample\":8,\"samples\":2,\"invalid\":1,"
                        "\"log_loss\":0.5,\"auc\":null,\"normalised_entropy\":0.75,"
                        "\"calibration\":1.5,\"mean_label\":0.25}}");
    rt_json_fini(&json);
    quality.class_count = 3;
    rt_json_init(&json, 0);
    rt_json_begin_object(&json, NULL);
    rt_metrics_quality(&json, "quality", &quality);
    rt_json_end_object(&json);
    assert_non_null(strstr(rt_json_text(&json, NULL), "\"calibration\":1.5,\"accuracy\":0.25}}"));
    rt_json_fini(&json);
}

static void test_without_a_file(void **state)
{
    (void)state;
    rt_metrics *metrics = open_metrics(NULL);
    write_record(metrics, 1, 1);
    rt_metrics_close(metrics);
    rt_metrics_close(NULL);
    rt_error error = {0};
    assert_int_equal(rt_metrics_open("/not/there", &metrics, &error), RT_IO);
    assert_string_equal(error.text, "/not/there: cannot be written: No such file or directory");
}

// What the log says while body runs, as one string.
static char *captured(void (*body)(void))
{
    static char text[4096];
    FILE *log = tmpfile();
    assert_non_null(log);
    int before = dup(STDERR_FILENO);
    dup2(fileno(log), STDERR_FILENO);
    body();
    dup2(before, STDERR_FILENO);
    close(before);
    rewind(log);
    text[fread(text, 1, sizeof text - 1, log)] = '\0';
    fclose(log);
    return text;
}

static void fill_device(void)
{
    rt_metrics *metrics = open_metrics("/dev/full");
    for (uint64_t i = 0; i < 5; i++)
        write_record(metrics, i, 10);
    rt_metrics_close(metrics);
}

static void test_full_disk_warns_once(void **state)
{
    (void)state;
    if (access("/dev/full", W_OK) != 0)
        test_skip("no /dev/full");
    assert_string_equal(captured(fill_device),
                        "lanyard: warn: metrics: /dev/full: cannot be written: No space left on "
                        "device; the run goes on without\n"
                        "lanyard: metrics: /dev/full: 5 records were lost\n");
}

static void limit_file_size(rlim_t bytes)
{
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = bytes;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

// The limit cuts a record in two, as a full disk would.
static void fill_file(void)
{
    signal(SIGXFSZ, SIG_IGN);
    rt_metrics *metrics = open_metrics(metrics_path());
    write_record(metrics, 1, 50);
    struct stat info;
    assert_int_equal(stat(metrics_path(), &info), 0);
    limit_file_size((rlim_t)info.st_size * 2 - 20); // the next record, but for its end
    for (uint64_t i = 0; i < 20; i++)
        write_record(metrics, 100, 50);
    limit_file_size(RLIM_INFINITY);
    write_record(metrics, 2, 1); // shorter than what was left of the last one
    rt_metrics_close(metrics);
}

static void test_lost_records_leave_whole_lines(void **state)
{
    (void)state;
    uint64_t sum;
    const char *path = metrics_path();
    char *log = captured(fill_file);
    uint64_t count = read_records(path, &sum);
    uint64_t kept = count - 2; // of those in the middle
    assert_true(count >= 2 && kept < 20);
    assert_int_equal(sum, 1 + 2 + 100 * kept);
    assert_non_null(strstr(log, "File too large"));
    char *second = strstr(strstr(log, "warn") + 1, "warn");
    assert_null(second);
}

// Nothing is lost where the file cannot be put aside.
static void test_a_bound_that_cannot_be_kept(void **state)
{
    (void)state;
    uint64_t sum;
    assert_int_equal(mkdir(older_path(), 0755), 0);
    char *log = captured(write_beyond_the_bound);
    assert_int_equal(read_records(metrics_path(), &sum), 100);
    assert_non_null(strstr(log, "cannot begin a new file: Is a directory"));
    assert_null(strstr(strstr(log, "warn") + 1, "warn"));
}

// A record that cannot be taken back (a pipe) is ended, so that the next one is whole.
static void test_pipe_gets_whole_lines_again(void **state)
{
    (void)state;
    static char text[1u << 18];
    char path[64];
    int ends[2];
    uint64_t sum;
    assert_int_equal(pipe(ends), 0);
    snprintf(path, sizeof path, "/proc/self/fd/%d", ends[1]);
    int own = dup(ends[1]); // the number that the writer's own description will have
    assert_int_equal(close(own), 0);
    rt_metrics *metrics = open_metrics(path);
    assert_int_equal(fcntl(own, F_SETFL, O_NONBLOCK), 0);
    for (uint64_t i = 0; i < 40; i++)
        write_record(metrics, 100, 1000); // more than the pipe holds
    ssize_t size = read(ends[0], text, sizeof text);
    assert_true(size > 0 && text[size - 1] != '\n'); // ends within a record
    write_record(metrics, 1, 50);
    ssize_t more = read(ends[0], text + size, sizeof text - (size_t)size);
    assert_true(more > 0);
    rt_metrics_close(metrics);
    char *last = strstr(text + size, "{\"record\"");
    assert_non_null(last);
    assert_int_equal(last[-1], '\n');
    const char *copy = metrics_path();
    FILE *file = fopen(copy, "w");
    assert_non_null(file);
    fputs(last, file);
    fclose(file);
    assert_int_equal(read_records(copy, &sum), 1);
    assert_int_equal(sum, 1);
}

// What an earlier run left stays until there is something to put in its place.
static void test_records_beside_those_of_before(void **state)
{
    (void)state;
    const char *path = metrics_path();
    char older[600], fresh[600];
    rt_error error = {0};
    uint64_t sum;
    snprintf(older, sizeof older, "%s.1", path);
    snprintf(fresh, sizeof fresh, "%s.new", path);
    for (uint32_t kept = 0; kept < 2; kept++) {
        rt_metrics *before = open_metrics(path), *metrics;
        write_record(before, 5, 1);
        rt_metrics_close(before);
        rt_metrics_close(open_metrics(older));
        assert_int_equal(rt_metrics_open_beside(path, &metrics, &error), RT_OK);
        write_record(metrics, 7, 1);
        assert_int_equal(read_records(path, &sum), 1);
        assert_int_equal(sum, 5);
        if (kept)
            rt_metrics_keep(metrics);
        write_record(metrics, 8, 1);
        rt_metrics_close(metrics);
        assert_int_equal(read_records(path, &sum), 1 + kept);
        assert_int_equal(sum, kept ? 15 : 5);
        assert_int_equal(access(fresh, F_OK), -1);
        assert_int_equal(access(older, F_OK), kept ? -1 : 0);
    }
}

TEST_MAIN(TEST(test_records_beside_those_of_before), TEST(test_records), TEST(test_a_bound),
          TEST(test_a_bound_that_cannot_be_kept), TEST(test_quality_record),
          TEST(test_without_a_file), TEST(test_full_disk_warns_once),
          TEST(test_lost_records_leave_whole_lines), TEST(test_pipe_gets_whole_lines_again))
