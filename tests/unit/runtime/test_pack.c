// Packed files, forked writers, names of checkpoints, growing bytes.
#include "tests/support/test.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/files/rt_checkpoint.h"
#include "runtime/rt_child.h"
#include "runtime/rt_hash.h"
#include "runtime/rt_log.h"
#include "runtime/files/rt_pack.h"

#define CHILD_S 20.0 // one that hangs is ended then
#define MAGIC UINT64_C(0x1122334455667788)

// Half of it random, half of it the same: some blocks are packed, some are not.
static void fill(rt_bytes *bytes, size_t size)
{
    rt_random random = {size};
    uint8_t *at = rt_bytes_extend(bytes, size);
    for (size_t i = 0; i < size; i++)
        at[i] = i >> 20 & 1 ? 7 : (uint8_t)rt_random_u64(&random);
}

static void what_is_packed_is_unpacked(void **state)
{
    (void)state;
    const size_t sizes[] = {0, 1, 4095, 1 << 20, (1 << 20) + 1, 5000000};
    for (size_t i = 0; i < RT_COUNT_OF(sizes); i++) {
        rt_bytes in = {0}, out = {0};
        rt_file_sum sums[2];
        struct stat info;
        if (sizes[i])
            fill(&in, sizes[i]);
        const char *path = test_path("one");
        assert_int_equal(rt_pack_write(path, MAGIC, in.data, in.size, &sums[0], NULL), RT_OK);
        assert_int_equal(rt_pack_read(path, MAGIC, &out, &sums[1], NULL), RT_OK);
        assert_int_equal(out.size, in.size);
        assert_true(in.size == 0 || memcmp(in.data, out.data, in.size) == 0);
        assert_memory_equal(&sums[0], &sums[1], sizeof sums[0]);
        assert_int_equal(stat(path, &info), 0);
        assert_int_equal(info.st_size, sums[0].bytes);
        rt_bytes_fini(&in);
        rt_bytes_fini(&out);
        assert_int_equal(rt_pack_read(path, MAGIC + 1, &out, &sums[1], NULL), RT_DATA);
    }
}

// Every byte once, and every length.
static void damage_is_found(void **state)
{
    (void)state;
    static uint8_t bytes[4096];
    rt_bytes in = {0}, out = {0};
    rt_file_sum sum;
    rt_error error = {0};
    const char *path = test_path("bent");
    fill(&in, 300);
    assert_int_equal(rt_pack_write(path, MAGIC, in.data, in.size, &sum, NULL), RT_OK);
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    size_t size = fread(bytes, 1, sizeof bytes, file);
    for (size_t i = 0; i < 2 * size; i++) {
        bytes[i % size] ^= 0x10;
        rewind(file);
        size_t length = i < size ? size : i - size;
        assert_int_equal(fwrite(bytes, 1, length, file), length);
        assert_int_equal(fflush(file), 0);
        assert_int_equal(ftruncate(fileno(file), (off_t)length), 0);
        bytes[i % size] ^= 0x10;
        assert_int_equal(rt_pack_read(path, MAGIC, &out, &sum, &error), RT_DATA);
        assert_non_null(strstr(error.text, path));
        rt_bytes_fini(&out);
    }
    fclose(file);
    rt_bytes_fini(&in);
}

// ---- children

static rt_child_result await(rt_child *child)
{
    rt_child_result result;
    while (rt_child_poll(child, &result) == RT_AGAIN)
        (void)usleep(1000);
    assert_int_equal(child->fd, -1);
    return result;
}

static uint64_t open_descriptors(void)
{
    uint64_t count = 0;
    for (int fd = 0; fd < 1024; fd++)
        count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

static void work_well(void *context, rt_child_result *result)
{
    result->values[0] = *(const uint64_t *)context;
    result->values[1] = open_descriptors();
}

static void work_never_ends(void *context, rt_child_result *result)
{
    (void)context;
    (void)result;
    for (;;)
        pause();
}

static void work_dies(void *context, rt_child_result *result)
{
    (void)context;
    (void)result;
    raise(SIGKILL);
}

static void work_on_a_full_disk(void *context, rt_child_result *result)
{
    const rt_bytes *bytes = context;
    rt_file_sum sum;
    (void)rt_pack_write(test_path("full"), MAGIC, bytes->data, bytes->size, &sum, &result->error);
}

// The child has the memory of the fork, and no descriptor but standard error and its pipe.
static void a_child_works_beside(void **state)
{
    (void)state;
    rt_child child;
    uint64_t value = 42;
    assert_int_equal(rt_child_start(&child, work_well, &value, 30, NULL), RT_OK);
    value = 7;
    const rt_child_result result = await(&child);
    assert_int_equal(result.error.status, RT_OK);
    assert_int_equal(result.values[0], 42);
    assert_true(result.values[1] <= 4);
}

static void children_that_fail(void **state)
{
    (void)state;
    rt_child child;
    assert_int_equal(rt_child_start(&child, work_dies, NULL, 30, NULL), RT_OK);
    assert_int_equal(await(&child).error.status, RT_IO);
    assert_int_equal(rt_child_start(&child, work_never_ends, NULL, 0.05, NULL), RT_OK);
    assert_int_equal(await(&child).error.status, RT_TIMEOUT);
    assert_int_equal(rt_child_start(&child, work_never_ends, NULL, 30, NULL), RT_OK);
    rt_child_end(&child);
    assert_int_equal(child.fd, -1);
}

static void work_warns(void *context, rt_child_result *result)
{
    (void)context;
    rt_warn("what the copy of %d says", (int)getppid());
    result->values[0] = 1;
}

// As one that writes a line, but nearly always inside.
static void *keep_the_log_busy(void *context)
{
    atomic_bool *stops = context;
    while (!atomic_load(stops)) {
        rt_log_hold();
        (void)usleep(500);
        rt_log_release();
        (void)usleep(50);
    }
    return NULL;
}

// Whoever is inside the log in the moment of the fork is not there in the copy to let go of it.
static void a_child_logs(void **state)
{
    (void)state;
    pthread_t thread;
    atomic_bool stops = false;
    assert_int_equal(pthread_create(&thread, NULL, keep_the_log_busy, &stops), 0);
    for (int i = 0; i < 50; i++) {
        rt_child child;
        assert_int_equal(rt_child_start(&child, work_warns, NULL, CHILD_S, NULL), RT_OK);
        const rt_child_result result = await(&child);
        if (result.error.status)
            fail_msg("child %d: %s", i, result.error.text);
        assert_int_equal(result.values[0], 1);
    }
    atomic_store(&stops, true);
    pthread_join(thread, NULL);
    rt_warn("and so does this process");
}

// A file that may not grow further, as on a full disk: an error, the old file stays.
static void a_full_disk(void **state)
{
    (void)state;
    rt_child child;
    rt_bytes small = {0}, large = {0}, out = {0};
    rt_file_sum sum;
    fill(&small, 1000);
    fill(&large, 900000);
    assert_int_equal(rt_pack_write(test_path("full"), MAGIC, small.data, small.size, &sum, NULL),
                     RT_OK);
    const struct rlimit limit = {65536, 65536};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    assert_int_equal(rt_child_start(&child, work_on_a_full_disk, &large, 30, NULL), RT_OK);
    const rt_child_result result = await(&child);
    assert_int_equal(result.error.status, RT_IO);
    assert_non_null(strstr(result.error.text, strerror(EFBIG)));
    assert_int_equal(rt_pack_read(test_path("full"), MAGIC, &out, &sum, NULL), RT_OK);
    assert_int_equal(out.size, 1000);
    assert_int_not_equal(access(test_path("full.tmp"), F_OK), 0);
    rt_bytes_fini(&small);
    rt_bytes_fini(&large);
    rt_bytes_fini(&out);
}

// ---- names

static void folders(void **state)
{
    (void)state;
    char path[400], root[300];
    uint32_t *iterations, count;
    snprintf(root, sizeof root, "%s", test_path("a/b"));
    assert_int_equal(rt_checkpoint_list(root, &iterations, &count, NULL), RT_OK);
    assert_int_equal(count, 0);
    const uint32_t made[] = {70, 3, UINT32_MAX};
    for (size_t i = 0; i < RT_COUNT_OF(made); i++) {
        assert_int_equal(rt_checkpoint_path(root, made[i], path, sizeof path, NULL), RT_OK);
        assert_int_equal(rt_checkpoint_make(path, NULL), RT_OK);
        assert_int_equal(rt_checkpoint_make(path, NULL), RT_OK);
    }
    assert_int_equal(mkdir(test_path("a/b/ckpt-12"), 0777), 0);
    assert_int_equal(mkdir(test_path("a/b/ckpt-00000000000x"), 0777), 0);
    assert_int_equal(mkdir(test_path("a/b/ckpt-999999999999"), 0777), 0);
    assert_int_equal(rt_checkpoint_list(root, &iterations, &count, NULL), RT_OK);
    assert_int_equal(count, 3);
    assert_true(iterations[0] == 3 && iterations[1] == 70 && iterations[2] == UINT32_MAX);
    rt_free(iterations);
    rt_checkpoint_remove(root, 70, NULL);
    rt_checkpoint_remove(root, 71, NULL);
    assert_int_equal(rt_checkpoint_list(root, &iterations, &count, NULL), RT_OK);
    assert_int_equal(count, 2);
    rt_free(iterations);
    FILE *file = fopen(test_path("a/file"), "w");
    assert_non_null(file);
    fclose(file);
    assert_int_equal(rt_checkpoint_make(test_path("a/file/x"), NULL), RT_IO);
    assert_int_equal(rt_checkpoint_list(test_path("a/file"), &iterations, &count, NULL), RT_IO);
}

TEST_MAIN(TEST(what_is_packed_is_unpacked), TEST(damage_is_found), TEST(a_child_works_beside),
          TEST(children_that_fail), TEST(a_child_logs), TEST(a_full_disk), TEST(folders))
