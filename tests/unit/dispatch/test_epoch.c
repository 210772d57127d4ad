// The epoch of a run's start: above those of all starts before, whatever became of the file.
#include "tests/support/test.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "dispatch/coordinator/dp_checkpoint.h"

static uint32_t begin(void)
{
    rt_error error = {0};
    uint32_t epoch = 0;
    if (dp_checkpoint_begin_epoch(test_path(""), &epoch, &error))
        fail_msg("%s", error.text);
    return epoch;
}

static void write_epoch(const char *text)
{
    FILE *file = fopen(test_path("epoch"), "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static void every_start_has_its_own(void **state)
{
    (void)state;
    for (uint32_t start = 1; start <= 5; start++)
        assert_int_equal(begin(), start);
}

// Cut short, another number under the same checksum, no text at all: the clock is above all starts.
static void a_damaged_one_is_counted_on_by_the_clock(void **state)
{
    (void)state;
    static const char *const damaged[] = {"", "7", "7 ", "7 0123456789abcdef\n", "seven\n"};
    char good[64] = "";
    assert_int_equal(begin(), 1);
    FILE *file = fopen(test_path("epoch"), "r");
    assert_non_null(file);
    assert_non_null(fgets(good, sizeof good, file));
    fclose(file);
    for (size_t i = 0; i < RT_COUNT_OF(damaged); i++) {
        const uint32_t now = (uint32_t)time(NULL);
        write_epoch(damaged[i]);
        const uint32_t epoch = begin();
        assert_true(epoch > now);
        assert_int_equal(begin(), epoch + 1); // whole again
    }
    good[0] = '2'; // was 1
    write_epoch(good);
    assert_true(begin() > 2 + 1);
    good[0] = '1';
    write_epoch(good);
    assert_int_equal(begin(), 2);
}

static void a_folder_that_is_not_there(void **state)
{
    (void)state;
    rt_error error = {0};
    uint32_t epoch = 0;
    assert_int_equal(dp_checkpoint_begin_epoch(test_path("nowhere"), &epoch, &error), RT_IO);
    assert_non_null(strstr(error.text, "nowhere/epoch"));
}

// A start whose number is not on disk would share it with the next one.
static void a_disk_without_room(void **state)
{
    (void)state;
    rt_error error = {0};
    uint32_t epoch = 0;
    const struct rlimit none = {0, RLIM_INFINITY}, before = {RLIM_INFINITY, RLIM_INFINITY};
    assert_int_equal(begin(), 1);
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &none), 0);
    const rt_status status = dp_checkpoint_begin_epoch(test_path(""), &epoch, &error);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0); // messages of the case are files, too
    assert_int_equal(status, RT_IO);
    assert_int_equal(begin(), 2);
}

TEST_MAIN(TEST(a_disk_without_room), TEST(every_start_has_its_own),
          TEST(a_damaged_one_is_counted_on_by_the_clock), TEST(a_folder_that_is_not_there))
