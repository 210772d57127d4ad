// A configuration file that changes while a run goes on. Time is what the case says.
#include "dispatch/coordinator/dp_reload.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/config_case.h"
#include "tests/support/test.h"

#define SECOND UINT64_C(1000000000)
#define STREAM "\"stream\": {\"format\": \"synthetic\"}"

typedef struct {
    char path[600];
    rt_config running;
    dp_reload_source source;
    dp_reload reload;
    dp_reloaded in_force, values;
    uint64_t now_ns;
} reload_case;

static const char first[] = "{\"workers\": 2, " STREAM ", \"dispatch\": {\"alpha\": 0.5,"
                            " \"search_evaluations\": 1000, \"budget_ms\": 10}}";

static void write_file(const reload_case *c, const char *text)
{
    FILE *file = fopen(c->path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static void begin(reload_case *c)
{
    rt_error error = {0};
    *c = (reload_case){.now_ns = 100 * SECOND};
    snprintf(c->path, sizeof c->path, "%s", test_path("run.json"));
    write_file(c, first);
    c->running = config_fresh();
    if (rt_config_load(&c->running, c->path, &error))
        fail_msg("%s", error.text);
    const rt_dispatch_config *d = &c->running.dispatch;
    c->in_force = (dp_reloaded){d->alpha, d->alpha_auto, d->search_evaluations, d->budget_ms};
    c->source = (dp_reload_source){.path = c->path};
    dp_reload_init(&c->source, &c->running, &c->reload);
}

static void fini(reload_case *c)
{
    rt_config_fini(&c->running);
}

// What a look says on standard error; *was_read: its result.
static const char *look(reload_case *c, bool asked, bool *was_read)
{
    static char text[8192];
    const int own = dup(STDERR_FILENO);
    const int said = open(test_path("said"), O_RDWR | O_CREAT | O_TRUNC, 0600);
    assert_true(own >= 0 && said >= 0);
    fflush(stderr);
    dup2(said, STDERR_FILENO);
    *was_read = dp_reload_look(&c->reload, asked, c->now_ns, &c->in_force, &c->values);
    fflush(stderr);
    dup2(own, STDERR_FILENO);
    close(own);
    const ssize_t length = pread(said, text, sizeof text - 1, 0);
    close(said);
    assert_true(length >= 0);
    text[length] = '\0';
    return text;
}

static void must_say(reload_case *c, bool asked, bool want, const char *words)
{
    bool was_read;
    const char *said = look(c, asked, &was_read);
    if (was_read != want || (*words ? !strstr(said, words) : *said != '\0'))
        fail_msg("read: %d, expected %d; said '%s', expected '%s'", was_read, want, said, words);
}

static void check_values(const dp_reloaded *values, double alpha, bool is_auto,
                         uint32_t evaluations, double budget_ms)
{
    assert_true(values->alpha_auto == is_auto && (is_auto || values->alpha == alpha));
    assert_int_equal(values->search_evaluations, evaluations);
    assert_true(values->budget_ms == budget_ms);
}

// It may have changed since the run began.
static void the_first_look_reads_it(void **state)
{
    (void)state;
    reload_case c;
    begin(&c);
    must_say(&c, false, true, "");
    check_values(&c.values, 0.5, false, 1000, 10);
    must_say(&c, false, false, "");
    fini(&c);
}

static void it_is_looked_at_once_a_second(void **state)
{
    (void)state;
    reload_case c;
    begin(&c);
    must_say(&c, false, true, "");
    write_file(&c, "{\"workers\": 2, " STREAM
                   ", \"dispatch\": {\"alpha\": 0.25, \"search_evaluations\": 1000,"
                   " \"budget_ms\": 10}}");
    c.now_ns += SECOND - 1;
    must_say(&c, false, false, "");
    c.now_ns += 1;
    must_say(&c, false, true, "dispatch.alpha reloaded: 0.5 -> 0.25\n");
    check_values(&c.values, 0.25, false, 1000, 10);
    c.in_force = c.values;
    c.now_ns += SECOND;
    must_say(&c, false, false, "");
    fini(&c);
}

static void whoever_asks_need_not_wait(void **state)
{
    (void)state;
    reload_case c;
    begin(&c);
    must_say(&c, false, true, "");
    must_say(&c, true, true, ""); // nothing is new
    write_file(&c, "{\"workers\": 2, " STREAM ", \"dispatch\": {\"alpha\": \"auto\","
                   " \"search_evaluations\": 77, \"budget_ms\": 2.5}}");
    must_say(&c, true, true, "dispatch.alpha reloaded: 0.5 -> \"auto\"\n");
    check_values(&c.values, 0, true, 77, 2.5);
    must_say(&c, true, true, "dispatch.search_evaluations reloaded: 1000 -> 77\n");
    must_say(&c, true, true, "dispatch.budget_ms reloaded: 10 -> 2.5\n");
    c.in_force = c.values;
    must_say(&c, true, true, "");
    fini(&c);
}

// The same text in a new file, under the old name: an editor's way of saving; one of the same
// length and time; and a file that is touched.
static void every_sign_of_a_change_counts(void **state)
{
    (void)state;
    reload_case c;
    struct stat info;
    char other[600];
    begin(&c);
    must_say(&c, false, true, "");
    assert_int_equal(stat(c.path, &info), 0);
    const struct timespec same[2] = {info.st_atim, info.st_mtim};
    snprintf(other, sizeof other, "%s", test_path("other.json"));
    FILE *file = fopen(other, "w"); // lives beside the first, so it is another inode
    assert_non_null(file);
    assert_true(fputs(first, file) >= 0);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(utimensat(AT_FDCWD, other, same, 0), 0);
    assert_int_equal(rename(other, c.path), 0);
    c.now_ns += SECOND;
    must_say(&c, false, true, "");
    struct timespec later[2] = {same[0], same[1]};
    later[1].tv_sec++;
    assert_int_equal(utimensat(AT_FDCWD, c.path, later, 0), 0);
    c.now_ns += SECOND;
    must_say(&c, false, true, "");
    later[1].tv_nsec = (later[1].tv_nsec + 1000000) % 1000000000;
    assert_int_equal(utimensat(AT_FDCWD, c.path, later, 0), 0);
    c.now_ns += SECOND;
    must_say(&c, false, true, "");
    file = fopen(c.path, "a"); // longer, at the same time
    assert_non_null(file);
    assert_true(fputs("\n", file) >= 0);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(utimensat(AT_FDCWD, c.path, later, 0), 0);
    c.now_ns += SECOND;
    must_say(&c, false, true, "");
    c.now_ns += SECOND;
    must_say(&c, false, false, "");
    fini(&c);
}

static void what_is_wrong_leaves_the_values(void **state)
{
    (void)state;
    static const char *const wrong[][2] = {
        {"{\"workers\": 2, ", "the values in force stay"},
        {"{" STREAM ", \"dispatch\": {\"alpha\": 2}}", "dispatch.alpha: 2 is out of range"},
        {"{\"workers\": 2, \"no_such_key\": 1}", "no_such_key"},
        {"{" STREAM ", \"links\": {\"workers\": [1, 2, 3]}, \"workers\": 2}", "links.workers"},
    };
    reload_case c;
    begin(&c);
    for (size_t i = 0; i < RT_COUNT_OF(wrong); i++) {
        write_file(&c, wrong[i][0]);
        must_say(&c, true, false, "the configuration was not reloaded");
        must_say(&c, true, false, wrong[i][1]);
    }
    assert_int_equal(unlink(c.path), 0);
    c.now_ns += SECOND;
    must_say(&c, false, false, "the configuration was not reloaded");
    c.now_ns += SECOND;
    must_say(&c, false, false, ""); // said once
    write_file(&c, first);
    c.now_ns += SECOND;
    must_say(&c, false, true, "");
    fini(&c);
}

static void the_command_line_follows_the_file(void **state)
{
    (void)state;
    static const char *const sets[] = {"dispatch.alpha=0.75", "dispatch.budget_ms=3"};
    reload_case c;
    begin(&c);
    c.source.sets = sets;
    c.source.set_count = RT_COUNT_OF(sets);
    must_say(&c, true, true, "dispatch.alpha reloaded: 0.5 -> 0.75\n");
    check_values(&c.values, 0.75, false, 1000, 3);
    fini(&c);
}

static void other_keys_need_a_restart(void **state)
{
    (void)state;
    reload_case c;
    begin(&c);
    write_file(&c, "{\"workers\": 3, " STREAM ", \"seed\": 99, \"dispatch\": {\"alpha\": 0.5,"
                   " \"search_evaluations\": 5, \"budget_ms\": 10}}");
    bool was_read;
    const char *said = look(&c, true, &was_read);
    const char *restart = strstr(said, "run.json: needs a restart to take effect: ");
    assert_true(was_read);
    assert_non_null(restart);
    assert_true(strstr(restart, "workers") && strstr(restart, "seed") && strstr(restart, ", "));
    assert_null(strstr(restart, "search_evaluations")); // that is in force without one
    assert_non_null(strstr(said, "dispatch.search_evaluations reloaded: 1000 -> 5\n"));
    fini(&c);
}

// A box that `lanyard add` let in is in no file, which does not make it a change.
static void boxes_that_were_added_need_no_restart(void **state)
{
    (void)state;
    static const char boxes[] = "{\"boxes\": [{\"name\": \"a\", \"gbps\": 1, \"workers\": 1, "
                                "\"shards\": 1}], " STREAM "}";
    reload_case c;
    begin(&c);
    rt_config_fini(&c.running);
    c.running = config_fresh();
    write_file(&c, boxes);
    assert_int_equal(rt_config_load(&c.running, c.path, NULL), RT_OK);
    const rt_dispatch_config *d = &c.running.dispatch;
    c.in_force = (dp_reloaded){d->alpha, d->alpha_auto, d->search_evaluations, d->budget_ms};
    static const char box[] = "{\"name\": \"b\", \"gbps\": 2, \"workers\": 2, \"shards\": 1}";
    assert_int_equal(rt_config_add_box(&c.running, box, NULL), RT_OK);
    must_say(&c, true, true, "needs a restart to take effect: boxes, ");
    c.reload.added_from = 1;
    must_say(&c, true, true, "");
    fini(&c);
}

static void without_a_file_there_is_nothing_to_look_at(void **state)
{
    (void)state;
    reload_case c;
    begin(&c);
    c.source.path = NULL;
    must_say(&c, true, false, "");
    must_say(&c, false, false, "");
    fini(&c);
}

TEST_MAIN(TEST(the_first_look_reads_it), TEST(it_is_looked_at_once_a_second),
          TEST(whoever_asks_need_not_wait), TEST(every_sign_of_a_change_counts),
          TEST(what_is_wrong_leaves_the_values), TEST(the_command_line_follows_the_file),
          TEST(other_keys_need_a_restart), TEST(boxes_that_were_added_need_no_restart),
          TEST(without_a_file_there_is_nothing_to_look_at))
