// checkpoint.after: one command at a time, what is told of each, and which checkpoints are passed
// over.
#include "dispatch/coordinator/dp_checkpoint_parts.h"

#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cjson/cJSON.h>

#include "runtime/files/rt_file.h"
#include "tests/support/test.h"

typedef struct {
    char metrics[300], gate[300], text[700]; // the command waits until the file gate is there
    dp_hook hook;
} fixture;

static void begin(fixture *f, const char *then)
{
    *f = (fixture){0};
    snprintf(f->metrics, sizeof f->metrics, "%s", test_path("metrics.jsonl"));
    snprintf(f->gate, sizeof f->gate, "%s", test_path("gate"));
    snprintf(f->text, sizeof f->text, "until [ -e '%s' ]; do sleep 0.02; done; %s", f->gate, then);
    f->hook.command = f->text;
    assert_int_equal(rt_metrics_open(f->metrics, &f->hook.metrics, NULL), RT_OK);
}

static void open_gate(const fixture *f)
{
    FILE *file = fopen(f->gate, "w");
    assert_non_null(file);
    fclose(file);
}

// Steps until no command runs.
static void await(fixture *f)
{
    const struct timespec pause = {.tv_nsec = 1000000};
    while (f->hook.child) {
        nanosleep(&pause, NULL);
        dp_hook_step(&f->hook);
    }
}

// The record of a command, by its number; the caller's (cJSON_Delete). NULL: there are not so many.
static cJSON *record(const fixture *f, uint32_t number)
{
    char line[1000];
    FILE *file = fopen(f->metrics, "r");
    cJSON *found = NULL;
    assert_non_null(file);
    for (uint32_t at = 0; !found && fgets(line, sizeof line, file); at++)
        found = at == number ? cJSON_Parse(line) : NULL;
    fclose(file);
    return found;
}

static double number_in(const cJSON *object, const char *name)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, name);
    assert_true(cJSON_IsNumber(item));
    return item->valuedouble;
}

static void must_be(const fixture *f, uint32_t number, uint32_t iteration, bool done,
                    uint32_t failures, uint32_t passed_over)
{
    cJSON *object = record(f, number);
    assert_non_null(object);
    assert_string_equal(cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, "record")),
                        "after");
    assert_int_equal(number_in(object, "iteration"), iteration);
    assert_int_equal(cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(object, "done")), done);
    assert_int_equal(number_in(object, "failures"), failures);
    assert_int_equal(number_in(object, "passed_over"), passed_over);
    cJSON_Delete(object);
}

static void one_at_a_time_and_the_newest_next(void **state)
{
    (void)state;
    fixture f;
    begin(&f, "test \"$(basename \"$1\")\" = folder-1 || test \"$(basename \"$1\")\" = folder-4");
    for (uint32_t i = 1; i <= 4; i++) {
        char folder[32];
        snprintf(folder, sizeof folder, "folder-%u", i);
        dp_hook_put(&f.hook, 10 * i, folder);
    }
    assert_true(f.hook.child && f.hook.iteration == 10 && f.hook.waiting == 40);
    assert_null(record(&f, 0));
    open_gate(&f);
    await(&f); // both, one after the other
    must_be(&f, 0, 10, true, 0, 2);
    must_be(&f, 1, 40, true, 0, 2);
    assert_null(record(&f, 2));
    rt_metrics_close(f.hook.metrics);
}

// What a record says it took is as long as it took, whether it worked or not.
static void it_took_no_longer_than_the_case(void **state)
{
    (void)state;
    static const char *const ends[] = {"true", "exit 3", "kill -9 $$"};
    for (size_t i = 0; i < RT_COUNT_OF(ends); i++) {
        fixture f;
        begin(&f, ends[i]);
        const uint64_t begin_ns = rt_now_ns();
        dp_hook_put(&f.hook, 7, "folder");
        const struct timespec pause = {.tv_nsec = 100000000};
        nanosleep(&pause, NULL);
        const uint64_t opened_ns = rt_now_ns();
        open_gate(&f);
        await(&f);
        const double whole_s = (double)(rt_now_ns() - begin_ns) * 1e-9;
        must_be(&f, 0, 7, i == 0, i > 0, 0);
        cJSON *object = record(&f, 0);
        assert_true(number_in(object, "seconds") <= whole_s);
        assert_true(number_in(object, "seconds") > (double)(opened_ns - begin_ns) * 1e-9 / 2);
        cJSON_Delete(object);
        rt_metrics_close(f.hook.metrics);
        assert_int_equal(unlink(f.gate), 0);
    }
}

// The run does not wait for it: the newest begins beside the one that runs.
static void at_the_end_the_newest_begins(void **state)
{
    (void)state;
    fixture f;
    begin(&f, "true");
    dp_hook_put(&f.hook, 1, "a");
    const int first = f.hook.child;
    dp_hook_put(&f.hook, 2, "b");
    assert_int_equal(f.hook.child, first);
    dp_hook_end(&f.hook);
    assert_true(f.hook.child && f.hook.child != first && f.hook.iteration == 2);
    open_gate(&f);
    await(&f);
    assert_int_equal(waitpid(first, NULL, 0), first);
    rt_metrics_close(f.hook.metrics);
}

static void without_a_command_nothing_runs(void **state)
{
    (void)state;
    dp_hook none = {.command = ""}, unset = {0};
    dp_hook_put(&none, 3, "folder");
    dp_hook_put(&unset, 3, "folder");
    dp_hook_end(&none);
    assert_true(!none.child && !none.waiting && !unset.child && !unset.waiting);
}

TEST_MAIN(TEST(one_at_a_time_and_the_newest_next), TEST(it_took_no_longer_than_the_case),
          TEST(at_the_end_the_newest_begins), TEST(without_a_command_nothing_runs))
