// Which coordinator a member has served, on its disk: no run is served in an epoch that is over.
#include "runtime/transport/rt_member.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "tests/support/test.h"

#define RUN UINT64_C(0xfedcba9876543210)

static void follow(rt_leaders *leaders, uint64_t run, uint32_t epoch, rt_status want)
{
    rt_error error = {0};
    assert_int_equal(rt_leaders_follow(test_path("leader"), run, epoch, leaders, &error), want);
    if (want) {
        assert_non_null(strstr(error.text, "Another coordinator leads it"));
        assert_true(leaders->of[0].epoch > epoch); // it is what the next HELLO says
    } else {
        assert_int_equal(leaders->of[0].epoch, epoch);
    }
    assert_true(leaders->of[0].run == run);
    rt_leaders read; // as a process that starts anew
    assert_int_equal(rt_leaders_read(test_path("leader"), &read, &error), RT_OK);
    assert_memory_equal(&read, leaders, sizeof read);
}

static void put_file(const char *text)
{
    FILE *file = fopen(test_path("leader"), "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    fclose(file);
}

static void epochs_of_a_run_only_rise(void **state)
{
    (void)state;
    rt_leaders leaders;
    assert_int_equal(rt_leaders_read(test_path("leader"), &leaders, NULL), RT_OK);
    assert_true(leaders.of[0].run == 0 && leaders.of[0].epoch == 0);
    follow(&leaders, RUN, 3, RT_OK);
    follow(&leaders, RUN, 3, RT_OK);
    follow(&leaders, RUN, UINT32_C(1) << 20, RT_OK);
    follow(&leaders, RUN, 4, RT_PEER);
    follow(&leaders, RUN, (UINT32_C(1) << 20) - 1, RT_PEER);
    follow(&leaders, RUN + 1, 1, RT_OK); // another run, which begins
}

// Members of two runs in one folder, one after the other: neither is forgotten for the other.
static void runs_are_kept_apart(void **state)
{
    (void)state;
    rt_leaders leaders = {0};
    follow(&leaders, RUN, UINT32_C(1) << 20, RT_OK);
    follow(&leaders, RUN + 1, 1, RT_OK);
    follow(&leaders, RUN, 4, RT_PEER);
    follow(&leaders, RUN + 1, 2, RT_OK);
    follow(&leaders, RUN, (UINT32_C(1) << 20) + 1, RT_OK);
    follow(&leaders, RUN + 1, 1, RT_PEER);
}

static void the_run_of_longest_ago_goes(void **state)
{
    (void)state;
    rt_leaders leaders = {0};
    for (uint32_t i = 0; i < RT_LEADER_RUNS_MAX; i++)
        follow(&leaders, RUN + i, 7, RT_OK);
    follow(&leaders, RUN, 6, RT_PEER); // there is room for that many, and it is heard of again
    follow(&leaders, RUN + RT_LEADER_RUNS_MAX, 7, RT_OK);
    for (uint32_t i = 2; i <= RT_LEADER_RUNS_MAX; i++)
        follow(&leaders, RUN + i, 6, RT_PEER);
    follow(&leaders, RUN, 6, RT_PEER);
    follow(&leaders, RUN + 1, 6, RT_OK);
}

// As builds wrote it that kept one run.
static void a_file_of_one_run_is_read(void **state)
{
    (void)state;
    rt_leaders leaders;
    put_file("run fedcba9876543210 epoch 3 acb64789afa4f89f\n");
    assert_int_equal(rt_leaders_read(test_path("leader"), &leaders, NULL), RT_OK);
    assert_true(leaders.of[0].run == RUN && leaders.of[0].epoch == 3 && !leaders.of[1].run);
    follow(&leaders, RUN + 1, 9, RT_OK);
    follow(&leaders, RUN, 2, RT_PEER);
}

static void what_is_not_on_disk_is_not_served(void **state)
{
    (void)state;
    rt_error error = {0};
    rt_leaders leaders = {0};
    assert_int_equal(
        rt_leaders_follow("/nonexistent/folder/leader", RUN, 3, &leaders, &error) != RT_OK, true);
    assert_int_equal(leaders.of[0].epoch, 0);
}

// A disk that takes only the first bytes of the file.
static void a_full_disk_leaves_what_was_there(void **state)
{
    (void)state;
    rt_error error = {0};
    rt_leaders leaders = {0}, read = {0};
    struct rlimit before;
    follow(&leaders, RUN, 3, RT_OK);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    const struct rlimit few = {8, before.rlim_max};
    assert_true(signal(SIGXFSZ, SIG_IGN) != SIG_ERR);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &few), 0);
    const rt_status status = rt_leaders_follow(test_path("leader"), RUN, 4, &leaders, &error);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(status, RT_IO);
    assert_int_equal(leaders.of[0].epoch, 3);
    assert_int_equal(rt_leaders_read(test_path("leader"), &read, &error), RT_OK);
    assert_true(read.of[0].run == RUN && read.of[0].epoch == 3);
    follow(&leaders, RUN, 4, RT_OK); // there is room again
}

static void other_files_are_errors(void **state)
{
    (void)state;
    rt_leaders leaders;
    char many[40 * 64] = "";
    for (uint32_t i = 0; i <= RT_LEADER_RUNS_MAX; i++)
        strcat(many, "run fedcba9876543210 epoch 3 acb64789afa4f89f\n");
    const char *const texts[] = {"", "\n", "run 0 epoch 0 0\n", many};
    for (size_t i = 0; i < RT_COUNT_OF(texts); i++) {
        put_file(texts[i]);
        assert_int_equal(rt_leaders_read(test_path("leader"), &leaders, NULL), RT_DATA);
        assert_true(leaders.of[0].run == 0);
    }
}

static void a_damaged_file_is_an_error(void **state)
{
    (void)state;
    rt_error error = {0};
    rt_leaders leaders = {0};
    char text[96] = "";
    follow(&leaders, RUN, 3, RT_OK);
    FILE *file = fopen(test_path("leader"), "r+");
    assert_non_null(file);
    assert_non_null(fgets(text, sizeof text, file));
    char *epoch = strstr(text, "epoch 3");
    assert_non_null(epoch);
    epoch[6] = '2';
    rewind(file);
    assert_true(fputs(text, file) >= 0);
    fclose(file);
    assert_int_equal(rt_leaders_read(test_path("leader"), &leaders, &error), RT_DATA);
    assert_non_null(strstr(error.text, "damaged"));
    assert_true(leaders.of[0].run == 0 && leaders.of[0].epoch == 0);
}

TEST_MAIN(TEST(epochs_of_a_run_only_rise), TEST(what_is_not_on_disk_is_not_served),
          TEST(runs_are_kept_apart), TEST(the_run_of_longest_ago_goes),
          TEST(a_file_of_one_run_is_read), TEST(a_full_disk_leaves_what_was_there),
          TEST(other_files_are_errors), TEST(a_damaged_file_is_an_error))
