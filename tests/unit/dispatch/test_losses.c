// Who is put aside, for how long, and that a new process knows it too.
#include "dispatch/coordinator/dp_losses.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/test.h"

#define T 1000000

static void five_in_ten_minutes(void **state)
{
    (void)state;
    dp_losses losses = {0};
    for (uint32_t i = 0; i < DP_LOSSES_MAX; i++) {
        assert_int_equal(dp_losses_too_often(&losses, T + 10 * i), 0);
        dp_losses_note(&losses, 3, T + 10 * i);
        dp_losses_note(&losses, 63, T + 400 * i); // slower
    }
    assert_int_equal(dp_losses_too_often(&losses, T + 1600), 0);
    assert_int_equal(dp_losses_too_often(&losses, T + 50), 8);
    assert_int_equal(dp_losses_too_often(&losses, T + DP_LOSSES_S), 8);
    assert_int_equal(dp_losses_too_often(&losses, T + DP_LOSSES_S + 1), 0);
    assert_int_equal(dp_losses_too_often(&losses, T), 0); // a clock that was set back
    dp_losses_note(&losses, 3, T + DP_LOSSES_S + 1);      // once more soon after
    assert_int_equal(dp_losses_too_often(&losses, T + DP_LOSSES_S + 2), 8);
}

static void a_new_process_knows(void **state)
{
    (void)state;
    dp_losses losses = {0}, got;
    const char *folder = test_directory();
    dp_losses_read(&got, folder);
    assert_memory_equal(&got, &losses, sizeof got);
    for (uint32_t i = 0; i < 2 * DP_LOSSES_MAX; i++)
        dp_losses_note(&losses, i % 3, T + i);
    dp_losses_write(&losses, folder);
    dp_losses_read(&got, folder);
    assert_memory_equal(&got, &losses, sizeof got);
    dp_losses_write(&losses, "/nowhere/at/all"); // a warning, nothing more
    char path[300];
    snprintf(path, sizeof path, "%s/checkpoints", folder); // of a run that has made none
    dp_losses_write(&losses, path);
    dp_losses_read(&got, path);
    assert_memory_equal(&got, &losses, sizeof got);
    snprintf(path, sizeof path, "%s/losses", folder);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs("7 x\n99 5\n", file) >= 0);
    assert_int_equal(fclose(file), 0);
    dp_losses_read(&got, folder);
    assert_memory_equal(&got, &(dp_losses){0}, sizeof got);
}

// The last worker that there may be, the first moment; those behind and before are nobody's.
static void only_what_can_be_is_read(void **state)
{
    (void)state;
    dp_losses got, want = {0};
    const char *folder = test_directory();
    char path[300];
    snprintf(path, sizeof path, "%s/losses", folder);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fprintf(file, "%u 1\n%u 5\n0 0\n0 -4\n2 9\n", RT_WORKERS_MAX - 1, RT_WORKERS_MAX);
    assert_int_equal(fclose(file), 0);
    dp_losses_read(&got, folder);
    dp_losses_note(&want, RT_WORKERS_MAX - 1, 1);
    dp_losses_note(&want, 2, 9);
    assert_memory_equal(&got, &want, sizeof got);
}

// A run needs a worker: where all were lost too often none is put aside.
static void one_at_least_stays(void **state)
{
    (void)state;
    dp_losses losses = {0};
    for (uint32_t i = 0; i < 2 * DP_LOSSES_MAX; i++)
        dp_losses_note(&losses, i % 2, T);
    assert_int_equal(dp_losses_uninvite(&losses, 7, T), 3);
    assert_int_equal(dp_losses_uninvite(&losses, 3, T), 0);
    assert_int_equal(dp_losses_uninvite(&losses, 5, T), 1);
    assert_int_equal(dp_losses_uninvite(&losses, 1, T), 0); // the other one's box takes no part
    assert_int_equal(dp_losses_uninvite(&losses, 7, T + DP_LOSSES_S + 1), 0);
}

TEST_MAIN(TEST(five_in_ten_minutes), TEST(a_new_process_knows), TEST(only_what_can_be_is_read),
          TEST(one_at_least_stays))
