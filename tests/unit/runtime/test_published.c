// A folder of published models: which is in force, which stay, which one was before.
#include "tests/support/test.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "runtime/files/rt_checkpoint.h"
#include "runtime/files/rt_manifest.h"
#include "runtime/files/rt_published.h"

typedef struct {
    uint32_t iteration, base;
    bool is_held;
} made;

static rt_status put_manifest(void *context, const char *version, rt_error *error)
{
    const made *m = context;
    rt_json json;
    rt_manifest_begin(&json, "checkpoint", RT_MANIFEST_FORMAT);
    rt_json_u64(&json, "iteration", m->iteration);
    rt_json_u64(&json, "base", m->base);
    rt_json_u64(&json, "samples", m->iteration * UINT64_C(100));
    rt_json_bool(&json, "held", m->is_held);
    rt_json_begin_array(&json, "parts");
    rt_json_end_array(&json);
    return rt_manifest_write(&json, version, error);
}

static const char *folder(void)
{
    static char path[400];
    if (!*path)
        snprintf(path, sizeof path, "%s", test_path("published"));
    return path;
}

// Publishes versions from a checkpoint of two files, of which one is nobody's business.
static void publish(const made *all, size_t count)
{
    static const char *const files[] = {"dense.bin", "planner.bin"};
    char checkpoint[400], path[500];
    rt_error error = {0};
    snprintf(checkpoint, sizeof checkpoint, "%s", test_path("made"));
    assert_int_equal(rt_checkpoint_make(checkpoint, &error), RT_OK);
    assert_int_equal(rt_checkpoint_make(folder(), &error), RT_OK);
    for (size_t i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s", checkpoint, files[i]);
        FILE *file = fopen(path, "w");
        assert_non_null(file);
        assert_true(fputs(files[i], file) >= 0);
        assert_int_equal(fclose(file), 0);
    }
    for (size_t i = 0; i < count; i++)
        if (rt_published_add(folder(), all[i].iteration, checkpoint, put_manifest,
                             (void *)(uintptr_t)&all[i], &error))
            fail_msg("%s", error.text);
}

static void must_have(const uint32_t *want, uint32_t want_count)
{
    uint32_t *found, count;
    assert_int_equal(rt_checkpoint_list(folder(), &found, &count, NULL), RT_OK);
    assert_int_equal(count, want_count);
    for (uint32_t i = 0; i < count; i++)
        assert_int_equal(found[i], want[i]);
    rt_free(found);
}

static void pin(uint32_t iteration)
{
    const rt_published current = {iteration, true, 0};
    assert_int_equal(rt_published_write(folder(), &current, NULL), RT_OK);
}

static void current_is_read_back(void **state)
{
    rt_published current;
    rt_error error = {0};
    char path[500];
    (void)state;
    publish(NULL, 0);
    assert_int_equal(rt_published_read(folder(), &current, &error), RT_NOT_FOUND);
    pin(77);
    assert_int_equal(rt_published_read(folder(), &current, &error), RT_OK);
    assert_int_equal(current.iteration, 77);
    assert_true(current.pinned && current.held == 0);
    const rt_published held = {80, false, 95};
    assert_int_equal(rt_published_write(folder(), &held, NULL), RT_OK);
    assert_int_equal(rt_published_read(folder(), &current, &error), RT_OK);
    assert_true(current.iteration == 80 && !current.pinned && current.held == 95);
    snprintf(path, sizeof path, "%s/" RT_PUBLISHED_CURRENT, folder());
    static const char *const bad[] = {"{", "{}", "{\"iteration\": 0, \"pinned\": true}",
                                      "{\"iteration\": 3}", "[]"};
    for (size_t i = 0; i < RT_COUNT_OF(bad); i++) {
        FILE *file = fopen(path, "w");
        assert_non_null(file);
        fputs(bad[i], file);
        fclose(file);
        assert_int_equal(rt_published_read(folder(), &current, &error), RT_DATA);
        assert_non_null(strstr(error.text, RT_PUBLISHED_CURRENT));
    }
}

static void versions_have_what_answers_need(void **state)
{
    const made all[] = {{10, 0, false}, {20, 10, true}};
    rt_published_version version;
    char path[500];
    (void)state;
    publish(all, 2);
    assert_int_equal(rt_published_version_of(folder(), 20, &version, NULL), RT_OK);
    assert_int_equal(version.base, 10);
    assert_true(version.is_held);
    assert_int_equal(version.samples, 2000);
    snprintf(path, sizeof path, "%s/ckpt-000000000020/dense.bin", folder());
    assert_int_equal(access(path, R_OK), 0);
    snprintf(path, sizeof path, "%s/ckpt-000000000020/planner.bin", folder());
    assert_int_not_equal(access(path, F_OK), 0);
    assert_int_not_equal(rt_published_version_of(folder(), 30, &version, NULL), RT_OK);
}

static void the_newest_good_ones_stay(void **state)
{
    const made all[] = {{10, 0, false}, {20, 10, false}, {30, 0, false},
                        {40, 30, true}, {50, 40, false}, {60, 50, true}};
    (void)state;
    publish(all, 6);
    rt_published_prune(folder(), 9, false);
    must_have((const uint32_t[]){10, 20, 30, 40, 50, 60}, 6);
    rt_published_prune(folder(), 2, false); // 50 and 30
    must_have((const uint32_t[]){30, 40, 50, 60}, 4);
    rt_published_prune(folder(), 1, false); // 50 builds on 40, that on 30
    must_have((const uint32_t[]){30, 40, 50, 60}, 4);
}

static void the_one_in_force_stays(void **state)
{
    const made all[] = {{10, 0, false}, {20, 10, false}, {30, 0, false}, {40, 0, false}};
    (void)state;
    publish(all, 4);
    pin(20);
    rt_published_prune(folder(), 1, false);
    must_have((const uint32_t[]){10, 20, 30, 40}, 4); // 20 builds on 10
    pin(30);
    rt_published_prune(folder(), 1, false);
    must_have((const uint32_t[]){30, 40}, 2);
}

// A run that cannot be judged for days fills no disk with what nobody answers with.
static void where_none_has_passed_the_newest_stay(void **state)
{
    const made all[] = {{10, 0, true}, {20, 10, true}, {30, 20, true},
                        {40, 0, true}, {50, 40, true}, {60, 50, true}};
    (void)state;
    publish(all, 6);
    rt_published_prune(folder(), 9, false);
    must_have((const uint32_t[]){10, 20, 30, 40, 50, 60}, 6);
    rt_published_prune(folder(), 4, false); // 30 builds on 20 and 10
    must_have((const uint32_t[]){10, 20, 30, 40, 50, 60}, 6);
    rt_published_prune(folder(), 2, false); // 50 builds on 40
    must_have((const uint32_t[]){40, 50, 60}, 3);
}

static void the_one_before(void **state)
{
    const made all[] = {{10, 0, false}, {20, 10, true}, {30, 0, false}};
    uint32_t before = 0;
    rt_error error = {0};
    (void)state;
    publish(all, 3);
    assert_int_equal(rt_published_before(folder(), 30, &before, &error), RT_OK);
    assert_int_equal(before, 10); // 20 was held
    assert_int_equal(rt_published_before(folder(), 10, &before, &error), RT_NOT_FOUND);
    rt_published_remove_above(folder(), 15);
    must_have((const uint32_t[]){10}, 1);
}

TEST_MAIN(TEST(current_is_read_back), TEST(versions_have_what_answers_need),
          TEST(the_newest_good_ones_stay), TEST(the_one_in_force_stays),
          TEST(where_none_has_passed_the_newest_stay), TEST(the_one_before))
