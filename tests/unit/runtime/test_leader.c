// Which coordinator a member has served, on its disk: no run is served in an epoch that is over.
#include "runtime/transport/rt_leader.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "tests/support/test.h"

#define RUN UINT64_C(0xfedcba9876543210)

static void follow(rt_leader *leader, uint64_t run, uint32_t epoch, rt_status want)
{
    rt_error error = {0};
    const rt_leader before = *leader;
    assert_int_equal(rt_leader_follow(test_path("leader"), run, epoch, leader, &error), want);
    if (want) {
        assert_non_null(strstr(error.text, "Another coordinator leads it"));
        assert_int_equal(leader->epoch, before.epoch);
    } else {
        assert_int_equal(leader->epoch, epoch);
    }
    rt_leader read; // as a process that starts anew
    assert_int_equal(rt_leader_read(test_path("leader"), &read, &error), RT_OK);
    assert_true(read.run == leader->run && read.epoch == leader->epoch);
}

static void epochs_of_a_run_only_rise(void **state)
{
    (void)state;
    rt_leader leader;
    assert_int_equal(rt_leader_read(test_path("leader"), &leader, NULL), RT_OK);
    assert_true(leader.run == 0 && leader.epoch == 0);
    follow(&leader, RUN, 3, RT_OK);
    follow(&leader, RUN, 3, RT_OK);
    follow(&leader, RUN, UINT32_C(1) << 20, RT_OK);
    follow(&leader, RUN, 4, RT_PEER);
    follow(&leader, RUN, (UINT32_C(1) << 20) - 1, RT_PEER);
    follow(&leader, RUN + 1, 1, RT_OK); // another run, which begins
}

static void what_is_not_on_disk_is_not_served(void **state)
{
    (void)state;
    rt_error error = {0};
    rt_leader leader = {0};
    assert_int_equal(
        rt_leader_follow("/nonexistent/folder/leader", RUN, 3, &leader, &error) != RT_OK, true);
    assert_int_equal(leader.epoch, 0);
}

// A disk that takes only the first bytes of the file.
static void a_full_disk_leaves_what_was_there(void **state)
{
    (void)state;
    rt_error error = {0};
    rt_leader leader = {0}, read = {0};
    struct rlimit before;
    follow(&leader, RUN, 3, RT_OK);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    const struct rlimit few = {8, before.rlim_max};
    assert_true(signal(SIGXFSZ, SIG_IGN) != SIG_ERR);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &few), 0);
    const rt_status status = rt_leader_follow(test_path("leader"), RUN, 4, &leader, &error);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(status, RT_IO);
    assert_int_equal(leader.epoch, 3);
    assert_int_equal(rt_leader_read(test_path("leader"), &read, &error), RT_OK);
    assert_true(read.run == RUN && read.epoch == 3);
    follow(&leader, RUN, 4, RT_OK); // there is room again
}

static void a_damaged_file_is_an_error(void **state)
{
    (void)state;
    rt_error error = {0};
    rt_leader leader = {0};
    char text[96] = "";
    follow(&leader, RUN, 3, RT_OK);
    FILE *file = fopen(test_path("leader"), "r+");
    assert_non_null(file);
    assert_non_null(fgets(text, sizeof text, file));
    char *epoch = strstr(text, "epoch 3");
    assert_non_null(epoch);
    epoch[6] = '2';
    rewind(file);
    assert_true(fputs(text, file) >= 0);
    fclose(file);
    assert_int_equal(rt_leader_read(test_path("leader"), &leader, &error), RT_DATA);
    assert_non_null(strstr(error.text, "damaged"));
    assert_true(leader.run == 0 && leader.epoch == 0);
}

TEST_MAIN(TEST(epochs_of_a_run_only_rise), TEST(what_is_not_on_disk_is_not_served),
          TEST(a_full_disk_leaves_what_was_there), TEST(a_damaged_file_is_an_error))
