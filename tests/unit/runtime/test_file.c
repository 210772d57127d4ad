// Files written in pieces of any size, past the page cache or not; the priority of forked writers.
#define _GNU_SOURCE // O_DIRECT, SCHED_BATCH, mincore
#include "tests/support/test.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/rt_child.h"
#include "runtime/files/rt_file.h"
#include "runtime/files/rt_own.h"
#include "runtime/rt_hash.h"
#include "runtime/rt_priority.h"

#define MEGABYTE ((size_t)1 << 20)

// size bytes in writes of at most most.
static rt_status write_to(rt_file *file, const uint8_t *bytes, size_t size, size_t most,
                          rt_error *error)
{
    rt_random random = {most};
    rt_status status = RT_OK;
    for (size_t at = 0, some; at < size && !status; at += some) {
        some = rt_min_u64(size - at, 1 + rt_random_u64(&random) % most);
        status = rt_file_write(file, bytes + at, some, error);
    }
    if (!status)
        return rt_file_commit(file, error);
    rt_file_abort(file);
    return status;
}

static rt_status write_file(const char *path, const uint8_t *bytes, size_t size, size_t most,
                            rt_error *error)
{
    rt_file *file;
    const rt_status status = rt_file_create(path, &file, error);
    if (status)
        return status;
    return write_to(file, bytes, size, most, error);
}

static rt_status write_named(const char *path, const uint8_t *bytes, size_t size, size_t most,
                             rt_error *error)
{
    rt_file *file;
    const rt_status status = rt_file_create_named(path, &file, error);
    if (status)
        return status;
    return write_to(file, bytes, size, most, error);
}

static void must_hold(const char *path, const uint8_t *bytes, size_t size)
{
    struct stat info;
    uint8_t *found = malloc(size + 1);
    FILE *file = fopen(path, "r");
    assert_true(file && found);
    assert_int_equal(fread(found, 1, size + 1, file), size);
    assert_true(memcmp(found, bytes, size) == 0);
    fclose(file);
    free(found);
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_size, size);
}

static void pieces_of_any_size(void **state)
{
    (void)state;
    const size_t sizes[] = {0, 1, 4096, MEGABYTE - 1, MEGABYTE, MEGABYTE + 1, 3 * MEGABYTE + 777};
    const size_t most[] = {1000, 70000, 5 * MEGABYTE};
    for (size_t i = 0; i < RT_COUNT_OF(sizes); i++) {
        uint8_t *bytes = test_random_bytes(sizes[i]);
        for (size_t k = 0; k < RT_COUNT_OF(most); k++) {
            const char *path = test_path("pieces");
            assert_int_equal(write_file(path, bytes, sizes[i], most[k], NULL), RT_OK);
            must_hold(path, bytes, sizes[i]);
        }
        free(bytes);
    }
}

static bool can_be_direct(void)
{
    int descriptor = open(test_path("probe"), O_WRONLY | O_CREAT | O_DIRECT | O_CLOEXEC, 0600);
    void *page = NULL;
    bool can = descriptor >= 0 && posix_memalign(&page, 4096, 4096) == 0 && memset(page, 0, 4096) &&
               write(descriptor, page, 4096) == 4096;
    free(page);
    if (descriptor >= 0)
        close(descriptor);
    return can;
}

// Pages of a file that are in memory.
static size_t cached_pages(const char *path, size_t size)
{
    const size_t pages = (size + 4095) / 4096;
    unsigned char *is_cached = calloc(pages, 1);
    int descriptor = open(path, O_RDONLY | O_CLOEXEC);
    void *map = mmap(NULL, size, PROT_READ, MAP_SHARED, descriptor, 0);
    size_t count = 0;
    assert_true(is_cached && map != MAP_FAILED);
    assert_int_equal(mincore(map, size, is_cached), 0);
    for (size_t i = 0; i < pages; i++)
        count += is_cached[i] & 1;
    munmap(map, size);
    close(descriptor);
    free(is_cached);
    return count;
}

static void a_large_file_stays_out_of_the_page_cache(void **state)
{
    (void)state;
    const size_t size = 16 * MEGABYTE;
    if (!can_be_direct())
        test_skip("this file system has no direct writes");
    uint8_t *bytes = test_random_bytes(size);
    const char *path = test_path("large");
    assert_int_equal(write_file(path, bytes, size, 100000, NULL), RT_OK);
    const size_t cached = cached_pages(path, size);
    if (cached > size / 4096 / 8)
        fail_msg("%zu of %zu pages are in memory", cached, size / 4096);
    must_hold(path, bytes, size);
    free(bytes);
}

// The end of the room is no multiple of anything: what a direct write cannot do is tried again, and
// the reason is the disk's.
static void a_disk_that_gets_full(void **state)
{
    (void)state;
    const size_t limits[] = {1000, MEGABYTE, 2 * MEGABYTE + 512, 2 * MEGABYTE + 100};
    uint8_t *bytes = test_random_bytes(5 * MEGABYTE);
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    signal(SIGXFSZ, SIG_IGN);
    for (size_t i = 0; i < 2 * RT_COUNT_OF(limits); i++) {
        rt_error error = {0};
        limit.rlim_cur = limits[i / 2];
        const size_t size = i % 2 ? 5 * MEGABYTE : limits[i / 2] + 9; // or all but a few bytes
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
        assert_int_equal(write_file(test_path("full"), bytes, size, 70000, &error), RT_IO);
        if (!strstr(error.text, strerror(EFBIG)))
            fail_msg("room for %zu of %zu bytes: %s", limits[i / 2], size, error.text);
        assert_int_not_equal(access(test_path("full"), F_OK), 0);
        assert_int_not_equal(access(test_path("full.tmp"), F_OK), 0);
    }
    free(bytes);
}

// ---- the copy that writes

static void tell_priority(void *context, rt_child_result *result)
{
    (void)context;
    result->values[0] = (uint64_t)sched_getscheduler(0);
    result->values[1] = (uint64_t)getpriority(PRIO_PROCESS, 0);
}

static void a_child_gives_way(void **state)
{
    (void)state;
    rt_child child;
    rt_child_result result;
    const int policy = sched_getscheduler(0), priority = getpriority(PRIO_PROCESS, 0);
    assert_int_equal(rt_child_start(&child, tell_priority, NULL, 30, NULL), RT_OK);
    while (rt_child_poll(&child, &result) == RT_AGAIN)
        sched_yield();
    assert_int_equal(result.error.status, RT_OK);
    assert_int_equal(result.values[0], SCHED_BATCH);
    assert_int_equal(result.values[1], 19);
    assert_int_equal(sched_getscheduler(0), policy);
    assert_int_equal(getpriority(PRIO_PROCESS, 0), priority);
}

static void a_thread_behind_others(void **state)
{
    (void)state;
    if (getpriority(PRIO_PROCESS, 0) > 10)
        test_skip("runs at a lower priority itself (nice)");
    rt_priority_prompt();
    assert_int_equal(sched_getscheduler(0), SCHED_OTHER);
    rt_priority_behind();
    assert_int_equal(getpriority(PRIO_PROCESS, 0), 10);
    assert_int_equal(setpriority(PRIO_PROCESS, 0, 15), 0);
    rt_priority_behind();
    assert_int_equal(getpriority(PRIO_PROCESS, 0), 15);
}

static void a_child_of_an_idle_one_stays_so(void **state)
{
    (void)state;
    rt_child child;
    rt_child_result result;
    rt_error error = {0};
    assert_false(rt_priority_is_idle());
    if (rt_priority_idle(&error))
        fail_msg("%s", error.text);
    assert_true(rt_priority_is_idle());
    assert_int_equal(rt_child_start(&child, tell_priority, NULL, 30, NULL), RT_OK);
    while (rt_child_poll(&child, &result) == RT_AGAIN)
        sched_yield();
    assert_int_equal(result.error.status, RT_OK);
    assert_int_equal(result.values[0], SCHED_IDLE);
}

// As two shards of a box do that lack the same file of a checkpoint.
static void two_writers_of_one_name(void **state)
{
    (void)state;
    rt_file *first, *second;
    rt_error error = {0};
    const size_t size = 2 * MEGABYTE + 77;
    uint8_t *bytes = malloc(size);
    assert_non_null(bytes);
    for (size_t i = 0; i < size; i++)
        bytes[i] = (uint8_t)rt_mix(i);
    const char *path = "two_writers";
    assert_int_equal(rt_file_create(path, &first, &error), RT_OK);
    assert_int_equal(rt_file_write(first, bytes, MEGABYTE + 5, &error), RT_OK);
    assert_int_equal(rt_file_create(path, &second, &error), RT_OK);
    assert_int_equal(rt_file_write(second, bytes, MEGABYTE, &error), RT_OK);
    assert_int_equal(rt_file_write(first, bytes + MEGABYTE + 5, size - MEGABYTE - 5, &error),
                     RT_OK);
    assert_int_equal(rt_file_commit(first, &error), RT_OK);
    must_hold(path, bytes, size);
    assert_int_equal(rt_file_write(second, bytes + MEGABYTE, size - MEGABYTE, &error), RT_OK);
    assert_int_equal(rt_file_commit(second, &error), RT_OK);
    must_hold(path, bytes, size);
    assert_int_equal(rt_file_create(path, &first, &error), RT_OK);
    assert_int_equal(rt_file_create(path, &second, &error), RT_OK);
    rt_file_abort(first);
    assert_int_equal(rt_file_commit(second, &error), RT_OK);
    must_hold(path, bytes, 0);
    assert_int_not_equal(access("two_writers.tmp", F_OK), 0);
    assert_int_not_equal(access("two_writers.1.tmp", F_OK), 0);
    assert_int_equal(unlink(path), 0);
    free(bytes);
}

// A run writes where it is told to: what links of its names lead to stays as it was.
static void a_link_leads_nowhere(void **state)
{
    static const uint8_t old[] = "old", new[] = "new one";
    char file[600], link[600], beside[700];
    struct stat info;
    int descriptor;
    rt_error error = {0};
    (void)state;
    snprintf(file, sizeof file, "%s", test_path("file"));
    snprintf(link, sizeof link, "%s", test_path("link"));
    snprintf(beside, sizeof beside, "%s.tmp", link);
    assert_int_equal(write_file(file, old, sizeof old, 4, &error), RT_OK);
    assert_int_equal(symlink("file", link), 0);
    assert_int_equal(symlink("file", beside), 0);
    assert_int_equal(write_file(link, new, sizeof new, 4, &error), RT_OK);
    must_hold(file, old, sizeof old);
    must_hold(link, new, sizeof new);
    assert_int_equal(lstat(link, &info), 0);
    assert_true(S_ISREG(info.st_mode));

    assert_int_equal(unlink(link), 0);
    assert_int_equal(symlink("file", link), 0);
    assert_int_equal(rt_own_open(link, 0666, &descriptor, &error), RT_IO);
    assert_non_null(strstr(error.text, "a symbolic link"));
    assert_int_equal(rt_own_reopen(link, &descriptor, &error), RT_IO);
    assert_int_equal(rt_own_check_folder(link, &error), RT_CONFIG);
    assert_int_equal(rt_own_create(link, RT_OWN_EVENTS_MODE, &descriptor, &error), RT_OK);
    assert_int_equal(write(descriptor, new, sizeof new), sizeof new);
    assert_int_equal(fstat(descriptor, &info), 0);
    assert_int_equal(info.st_mode & 0007, 0);
    close(descriptor);
    must_hold(file, old, sizeof old);
    must_hold(link, new, sizeof new);
    assert_int_equal(unlink(link), 0);
    assert_int_equal(mkfifo(link, 0600), 0);
    assert_int_equal(rt_own_open(link, 0666, &descriptor, &error), RT_IO); // nor is it waited for
    assert_int_equal(rt_own_open(file, 0666, &descriptor, &error), RT_OK);
    assert_int_equal(fchmod(descriptor, 0644), 0);
    rt_own_hide(descriptor);
    assert_int_equal(fstat(descriptor, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0640);
    close(descriptor);
}

// What a name that somebody gives stands for stays: a link, and what is no file.
static void a_link_stays_one(void **state)
{
    static const uint8_t old[] = "old", new[] = "new one";
    char file[600], link[600];
    struct stat info;
    rt_error error = {0};
    (void)state;
    snprintf(file, sizeof file, "%s", test_path("file"));
    snprintf(link, sizeof link, "%s", test_path("link"));
    assert_int_equal(write_file(file, old, sizeof old, 4, &error), RT_OK);
    assert_int_equal(symlink("file", link), 0);
    assert_int_equal(write_named(link, new, sizeof new, 4, &error), RT_OK);
    assert_int_equal(lstat(link, &info), 0);
    assert_true(S_ISLNK(info.st_mode));
    must_hold(file, new, sizeof new);
}

static void what_is_no_file_stays(void **state)
{
    static uint8_t bytes[2 * MEGABYTE + 5];
    static uint8_t got[sizeof bytes + 1];
    char path[600];
    struct stat info;
    rt_error error = {0};
    size_t size = 0;
    (void)state;
    snprintf(path, sizeof path, "%s", test_path("pipe"));
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(i * i >> 7);
    assert_int_equal(mkfifo(path, 0600), 0);
    const pid_t writer = fork();
    if (writer == 0)
        _exit(write_named(path, bytes, sizeof bytes, MEGABYTE, &error) ? 1 : 0);
    const int reader = open(path, O_RDONLY);
    for (ssize_t some; (some = read(reader, got + size, sizeof got - size)) > 0;)
        size += (size_t)some;
    close(reader);
    int status = -1;
    assert_int_equal(waitpid(writer, &status, 0), writer);
    assert_int_equal(status, 0);
    assert_int_equal(size, sizeof bytes);
    assert_memory_equal(got, bytes, size);
    assert_int_equal(lstat(path, &info), 0);
    assert_true(S_ISFIFO(info.st_mode));
    if (access("/dev/full", W_OK) == 0) {
        assert_int_equal(symlink("/dev/full", test_path("full")), 0);
        assert_int_not_equal(write_named(test_path("full"), bytes, 9, 9, &error), RT_OK);
        assert_int_equal(lstat(test_path("full"), &info), 0);
        assert_true(S_ISLNK(info.st_mode));
    }
    rt_file *file;
    assert_int_not_equal(rt_file_create(test_path("."), &file, &error), RT_OK);
    assert_non_null(strstr(error.text, "Is a directory"));
}

TEST_MAIN(TEST(two_writers_of_one_name), TEST(pieces_of_any_size),
          TEST(a_large_file_stays_out_of_the_page_cache), TEST(a_disk_that_gets_full),
          TEST(a_child_gives_way), TEST(a_thread_behind_others),
          TEST(a_child_of_an_idle_one_stays_so), TEST(a_link_leads_nowhere), TEST(a_link_stays_one),
          TEST(what_is_no_file_stays))
