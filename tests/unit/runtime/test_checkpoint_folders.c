// Folders of checkpoints: what is set aside is bounded, and is no checkpoint any more.
#include "runtime/files/rt_checkpoint.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "tests/support/test.h"

static void make(const char *directory, uint32_t iteration, bool complete)
{
    char path[300], manifest[330];
    assert_int_equal(rt_checkpoint_path(directory, iteration, path, sizeof path, NULL), RT_OK);
    assert_int_equal(rt_checkpoint_make(path, NULL), RT_OK);
    snprintf(manifest, sizeof manifest, "%s/%s", path, complete ? "manifest.json" : "dense.bin");
    FILE *file = fopen(manifest, "w");
    assert_non_null(file);
    assert_int_equal(fclose(file), 0);
}

static uint32_t count_of(const char *directory, const char *prefix)
{
    uint32_t count = 0;
    DIR *folder = opendir(directory);
    assert_non_null(folder);
    for (struct dirent *entry; (entry = readdir(folder));)
        count += strncmp(entry->d_name, prefix, strlen(prefix)) == 0;
    closedir(folder);
    return count;
}

static void what_is_set_aside_is_bounded(void **state)
{
    (void)state;
    const char *directory = test_directory();
    uint32_t *iterations, count;
    for (uint32_t i = 1; i <= 8; i++) {
        make(directory, 100 * i, true);
        rt_checkpoint_set_aside(directory, 100 * i);
        assert_int_equal(count_of(directory, "damaged-ckpt-"),
                         i < RT_CHECKPOINT_ASIDE_MAX ? i : RT_CHECKPOINT_ASIDE_MAX);
    }
    char newest[300];
    snprintf(newest, sizeof newest, "%s/damaged-ckpt-000000000800", directory);
    struct stat info;
    assert_int_equal(stat(newest, &info), 0);
    make(directory, 900, false); // never complete: of no use to anybody
    rt_checkpoint_set_aside(directory, 900);
    assert_int_equal(count_of(directory, "damaged-ckpt-"), RT_CHECKPOINT_ASIDE_MAX);
    make(directory, 800, true); // the same again
    rt_checkpoint_set_aside(directory, 800);
    assert_int_equal(count_of(directory, "damaged-ckpt-"), RT_CHECKPOINT_ASIDE_MAX);
    assert_int_equal(rt_checkpoint_list(directory, &iterations, &count, NULL), RT_OK);
    assert_int_equal(count, 0);
}

TEST_MAIN(TEST(what_is_set_aside_is_bounded))
