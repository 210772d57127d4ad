// Limits of control groups, of both versions, as files that a case writes below a folder of its own.
#include "tests/support/test.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "runtime/rt_group.h"

static char mount[256], membership[300];

static void begin(const char *groups)
{
    snprintf(mount, sizeof mount, "%s/%s", test_directory(), "cgroup");
    assert_int_equal(mkdir(mount, 0700), 0);
    snprintf(membership, sizeof membership, "%s.of", mount);
    FILE *file = fopen(membership, "w");
    assert_non_null(file);
    assert_true(fputs(groups, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

// name: "a/b/cpu.max"; its folders are made.
static void put(const char *name, const char *text)
{
    char path[600];
    snprintf(path, sizeof path, "%s/%s", mount, name);
    for (char *at = path + strlen(mount) + 1; (at = strchr(at, '/')); at++) {
        *at = '\0';
        (void)mkdir(path, 0700);
        *at = '/';
    }
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static uint64_t cores(void)
{
    return rt_group_cores_in(mount, membership);
}

static uint64_t memory(void)
{
    return rt_group_memory_in(mount, membership);
}

static void without_limits(void **state)
{
    (void)state;
    begin("0::/\n");
    assert_int_equal(cores(), 0);
    assert_int_equal(memory(), 0);
    put("cpu.max", "max 100000\n");
    put("memory.max", "max\n");
    assert_int_equal(cores(), 0);
    assert_int_equal(memory(), 0);
    put("cpu.max", "rubbish\n");
    put("memory.max", "");
    assert_int_equal(cores(), 0);
    assert_int_equal(memory(), 0);
    strcat(membership, ".not"); // no /proc
    assert_int_equal(cores(), 0);
}

static void parts_of_a_core_are_rounded_up(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t want;
    } cases[] = {{"100000 100000", 1}, {"50000 100000", 1},  {"1000 100000", 1},
                 {"100001 100000", 2}, {"250000 100000", 3}, {"400000 50000", 8},
                 {"0 100000", 0},      {"100000 0", 0},      {"-1 100000", 0}};
    begin("0::/\n");
    for (size_t i = 0; i < RT_COUNT_OF(cases); i++) {
        put("cpu.max", cases[i].text);
        assert_int_equal(cores(), cases[i].want);
    }
}

// The least of its own and all above counts.
static void groups_in_groups(void **state)
{
    (void)state;
    begin("0::/site/train/worker\n");
    put("site/train/worker/cpu.max", "800000 100000");
    put("site/train/worker/memory.max", "max");
    put("site/memory.max", "1000000");
    assert_int_equal(cores(), 8);
    assert_int_equal(memory(), 1000000);
    put("site/cpu.max", "300000 100000");
    assert_int_equal(cores(), 3);
    put("site/train/cpu.max", "200000 100000");
    put("site/train/memory.max", "999");
    assert_int_equal(cores(), 2);
    assert_int_equal(memory(), 999);
    put("cpu.max", "100000 100000");
    assert_int_equal(cores(), 1);
    put("site/other/cpu.max", "1000 100000"); // not of this process
    put("site/train/worker/below/memory.max", "1");
    assert_int_equal(cores(), 1);
    assert_int_equal(memory(), 999);
}

// A container that is shown its own group as the root, and the whole path as its place.
static void a_mount_that_begins_within_the_path(void **state)
{
    (void)state;
    begin("0::/kubepods/pod7/box/inner\n");
    put("cpu.max", "400000 100000");
    assert_int_equal(cores(), 4);
    put("inner/cpu.max", "200000 100000");
    assert_int_equal(cores(), 2);
}

static void version_1(void **state)
{
    (void)state;
    begin("12:memory:/docker/7\n4:cpu,cpuacct:/docker/7\n1:name=systemd:/docker/7\n0::/docker/7\n");
    put("cpu,cpuacct/docker/7/cpu.cfs_quota_us", "-1");
    put("cpu,cpuacct/docker/7/cpu.cfs_period_us", "100000");
    put("memory/docker/7/memory.limit_in_bytes", "9223372036854771712");
    assert_int_equal(cores(), 0);
    assert_int_equal(memory(), UINT64_C(9223372036854771712));
    put("cpu,cpuacct/docker/cpu.cfs_quota_us", "150000");
    put("cpu,cpuacct/docker/cpu.cfs_period_us", "100000");
    assert_int_equal(cores(), 2);
    put("memory/memory.limit_in_bytes", "4096");
    assert_int_equal(memory(), 4096);
    put("cpuset/docker/7/cpu.cfs_quota_us", "1"); // of another controller
    put("cpuset/docker/7/cpu.cfs_period_us", "1");
    assert_int_equal(cores(), 2);
    put("cpu,cpuacct/docker/7/cpu.cfs_quota_us", "100000");
    assert_int_equal(cores(), 1);
}

// Both at once: the controllers are those of version 1, or of what lies in "unified".
static void both_versions(void **state)
{
    (void)state;
    begin("3:cpu:/a\n0::/b\n");
    put("cpu/a/cpu.cfs_quota_us", "500000");
    put("cpu/a/cpu.cfs_period_us", "100000");
    assert_int_equal(cores(), 5);
    put("unified/b/cpu.max", "400000 100000");
    assert_int_equal(cores(), 4);
}

static void this_process_has_some(void **state)
{
    (void)state;
    assert_true(rt_group_cores() <= INT32_MAX); // whatever this machine says
    (void)rt_group_memory();
}

TEST_MAIN(TEST(without_limits), TEST(parts_of_a_core_are_rounded_up), TEST(groups_in_groups),
          TEST(a_mount_that_begins_within_the_path), TEST(version_1), TEST(both_versions),
          TEST(this_process_has_some))
