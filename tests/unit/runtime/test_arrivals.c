// The clock of what comes: nobody sets it, and from one process to the next it only goes on.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/live/rt_live_clock.h"
#include "runtime/rt_clock.h"
#include "tests/support/test.h"
#include "tests/support/test_clock.h"

#define S INT64_C(1000000000)
#define NOW_S INT64_C(1760000000)
#define DAY_S INT64_C(86400)

static void set_day(int64_t s)
{
    atomic_store(&test_clock.realtime_ns, s * S);
}

static int64_t arrival_s(void)
{
    return (int64_t)(rt_arrival_ns() / (uint64_t)S);
}

static void near(int64_t got_s, int64_t wanted_s)
{
    if (llabs(got_s - wanted_s) > 60)
        fail_msg("%lld s, expected about %lld s", (long long)got_s, (long long)wanted_s);
}

static void it_is_not_set(void **state)
{
    (void)state;
    static const int64_t steps_s[] = {7200, -7200, -NOW_S + 100, NOW_S, DAY_S};
    double by_s;
    set_day(NOW_S);
    near(arrival_s(), NOW_S);
    assert_false(rt_clock_was_set(&by_s));
    int64_t day_s = NOW_S;
    for (size_t i = 0; i < sizeof steps_s / sizeof *steps_s; i++) {
        day_s += steps_s[i];
        set_day(day_s);
        near(arrival_s(), NOW_S);
        assert_true(fabs(rt_steady_s() - (double)NOW_S) < 60);
        assert_true(rt_clock_was_set(&by_s));
        assert_true(fabs(by_s - (double)steps_s[i]) < 60);
        assert_false(rt_clock_was_set(&by_s)); // it is told once
    }
}

static void it_goes_on_from_stamps(void **state)
{
    (void)state;
    double by_s;
    set_day(NOW_S);
    near(arrival_s(), NOW_S);
    rt_clock_at_least((uint64_t)((NOW_S - 500) * S));
    near(arrival_s(), NOW_S);
    rt_clock_at_least((uint64_t)((NOW_S + 500) * S));
    near(arrival_s(), NOW_S + 500);
    assert_false(rt_clock_was_set(&by_s)); // that was nobody but us
}

// A file is as old as it was before the machine's clock was set.
static void files_do_not_age_by_it(void **state)
{
    (void)state;
    double by_s;
    set_day(100);
    near(arrival_s(), 100);
    near((int64_t)rt_clock_age_s(40), 60);
    set_day(NOW_S);
    assert_true(rt_clock_was_set(&by_s));
    near((int64_t)rt_clock_age_s(40), 60);
    near((int64_t)rt_clock_age_s(NOW_S - 1000), 1000); // written since then, or by another clock
    set_day(NOW_S - 3600);
    assert_true(rt_clock_was_set(&by_s));
    assert_true(rt_clock_age_s(NOW_S) == 0);
}

// ---- from one process to the next --------------------------------------------------------------

// A process that runs while the machine's clock is at day_s, and has stamps until last_s. What its
// clock is.
static int64_t in_a_process(int64_t day_s, int64_t last_s)
{
    int ends[2];
    int64_t found = 0;
    int how;
    assert_int_equal(pipe(ends), 0);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        set_day(day_s);
        rt_live_clock_resume(test_directory(), (uint64_t)(last_s * S));
        found = arrival_s();
        _exit(write(ends[1], &found, sizeof found) != sizeof found);
    }
    assert_true(waitpid(child, &how, 0) == child && how == 0);
    assert_int_equal(read(ends[0], &found, sizeof found), sizeof found);
    close(ends[0]);
    close(ends[1]);
    return found;
}

static void make_another_boot(void)
{
    char path[400];
    snprintf(path, sizeof path, "%s/clock", test_directory());
    FILE *file = fopen(path, "w");
    assert_true(file && fputs("1 another-boot 5\n", file) >= 0);
    assert_int_equal(fclose(file), 0);
}

// However the machine's clock was set meanwhile: a box that began in 1970, and one that was two
// hours behind.
static void the_same_boot_is_one_clock(void **state)
{
    (void)state;
    near(in_a_process(100, 0), 100);
    near(in_a_process(NOW_S, 110), 100);
    near(in_a_process(NOW_S + 7200, 120), 100);
    near(in_a_process(0, 5000), 5000); // later stamps are there: it is at least that
    near(in_a_process(NOW_S, 5000), 5000);
}

static void another_boot_is_believed_for_a_week(void **state)
{
    (void)state;
    static const struct {
        int64_t day_s, last_s, wanted_s;
    } cases[] = {
        {NOW_S, NOW_S - 3600, NOW_S},                    // it was down for an hour
        {NOW_S, NOW_S - 6 * DAY_S, NOW_S},               // for some days
        {NOW_S, NOW_S - 30 * DAY_S, NOW_S - 30 * DAY_S}, // nobody can tell
        {NOW_S, 86400, 86400},                           // its stamps are those of a clock not set
        {100, NOW_S, NOW_S},                             // it is not set now
        {NOW_S - 3600, NOW_S, NOW_S},                    // it was set back
        {NOW_S, 0, NOW_S},                               // nothing came yet
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        make_another_boot();
        near(in_a_process(cases[i].day_s, cases[i].last_s), cases[i].wanted_s);
        // From then on it is this boot's.
        near(in_a_process(NOW_S + 9 * DAY_S, cases[i].last_s), cases[i].wanted_s);
    }
}

TEST_MAIN(TEST(it_is_not_set), TEST(it_goes_on_from_stamps), TEST(files_do_not_age_by_it),
          TEST(the_same_boot_is_one_clock), TEST(another_boot_is_believed_for_a_week))
