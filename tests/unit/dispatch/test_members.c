// The file "boxes" beside the checkpoints: what is written is read; what is not there any more.
#include "dispatch/coordinator/dp_members.h"

#include <stdio.h>
#include <string.h>

#include "tests/support/config_case.h"
#include "tests/support/test.h"

// Each with a worker and a shard.
static rt_config config_with(const char *boxes)
{
    rt_config config = config_fresh();
    char set[600], *at = set;
    at += sprintf(at, "boxes=[");
    for (const char *name = boxes; *name; name++)
        at += sprintf(at, "%s{\"name\": \"%c\", \"gbps\": 1, \"shards\": 1}",
                      name > boxes ? "," : "", *name);
    sprintf(at, "]");
    config_must_set(&config, set);
    return config;
}

static const char *folder(void)
{
    static char path[400];
    snprintf(path, sizeof path, "%s", test_path("checkpoints"));
    return path;
}

static const dp_added none;

static void put(const char *text)
{
    char path[420];
    snprintf(path, sizeof path, "%s/boxes", folder());
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static void must_fail(const rt_config *config, const char *text, rt_status want, const char *words)
{
    dp_members members;
    rt_error error = {0};
    put(text);
    const rt_status status = dp_members_read(config, folder(), &members, &error);
    if (status != want || !strstr(error.text, words))
        fail_msg("%s: status %d (%s), expected %d with '%s'", text, status, error.text, want,
                 words);
}

static void what_is_written_is_read(void **state)
{
    (void)state;
    rt_config config = config_with("abcd"), fewer = config_with("abc");
    dp_members members;
    assert_int_equal(dp_members_read(&config, folder(), &members, NULL), RT_OK);
    assert_true(members.boxes == 15 && members.workers == 15 && members.shards == 15);
    dp_members some = dp_members_of(&config, 10);
    some.row_rate = 0.25f;
    some.still_s = 1.5e9;
    assert_int_equal(dp_members_write(&config, folder(), &some, &none, NULL), RT_OK);
    assert_int_equal(dp_members_read(&config, folder(), &members, NULL), RT_OK);
    assert_true(members.boxes == 10 && members.workers == 10 && members.shards == 10);
    assert_true(members.row_rate == 0.25f && members.dense_rate == 0 && members.still_s == 1.5e9);
    // A box that the configuration lacks is left out, and the rate is configured anew.
    fewer.optimizer_rows.learning_rate *= 2;
    assert_int_equal(dp_members_read(&fewer, folder(), &members, NULL), RT_OK);
    assert_true(members.boxes == 2 && members.workers == 2 && members.row_rate == 0);
    rt_config_fini(&config);
    rt_config_fini(&fewer);
}

static void files_that_cannot_be(void **state)
{
    (void)state;
    rt_config config = config_with("ab");
    const dp_members all = dp_members_of(&config, 3);
    assert_int_equal(dp_members_write(&config, folder(), &all, &none, NULL), RT_OK);
    must_fail(&config, "{\"boxes\": [\"a\", 7]}", RT_DATA, "expected names of boxes");
    must_fail(&config, "{\"boxes\": 7}", RT_DATA, "expected an object with a list \"boxes\"");
    must_fail(&config, "[]", RT_DATA, "expected an object");
    must_fail(&config, "{\"boxes\": [\"c\"]}", RT_CONFIG, "no worker is left");
    must_fail(&config, "{\"boxes\": []}", RT_CONFIG, "no worker is left");
    rt_config_fini(&config);
}

// Of three boxes: all, without the one in the middle, and of those without a worker that did not
// come.
static void a_part_has_a_hash_of_its_own(void **state)
{
    (void)state;
    const uint64_t hash = 7;
    rt_config whole = config_with("abc"), part = config_with("abc");
    dp_members members = dp_members_of(&whole, 7);
    uint64_t all = hash, two = hash, one;
    dp_members_keep_boxes(&members, &whole, &part, &all);
    assert_int_equal(all, hash);
    assert_int_equal(part.worker_count, 3);
    dp_members_keep_workers(&members, 7, &part, &all);
    assert_int_equal(all, hash);
    members = dp_members_of(&whole, 5);
    members.row_rate = 0.25f;
    dp_members_keep_boxes(&members, &whole, &part, &two);
    assert_int_not_equal(two, hash);
    assert_true(part.worker_count == 2 && part.ps_shard_count == 2);
    assert_true(part.optimizer_rows.learning_rate == 0.25f);
    one = two;
    dp_members_keep_workers(&members, 4, &part, &one); // by its rank among all
    assert_true(one != two && one != hash);
    assert_true(part.worker_count == 1 && part.ps_shard_count == 2);
    rt_config_fini(&part);
    rt_config_fini(&whole);
}

TEST_MAIN(TEST(what_is_written_is_read), TEST(files_that_cannot_be),
          TEST(a_part_has_a_hash_of_its_own))
