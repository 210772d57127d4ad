// Whether a run goes on, and from where: what is decided before it begins.
#include "dispatch/coordinator/dp_resume.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/files/rt_checkpoint.h"
#include "tests/support/config_case.h"
#include "tests/support/test.h"

typedef struct {
    rt_status status;
    rt_error error;
    char directory[RT_PATH_MAX];
    bool resumes, has_epoch;
} prepared;

static prepared prepare(const rt_config *config, const char *out, dp_resume_kind kind)
{
    prepared p = {.resumes = true, .has_epoch = true, .directory = "?"};
    p.status = dp_resume_prepare(config, out, kind, p.directory, sizeof p.directory, &p.resumes,
                                 &p.has_epoch, &p.error);
    return p;
}

static void must_be(const prepared *p, const char *directory, bool resumes, bool has_epoch)
{
    if (p->status)
        fail_msg("%s", p->error.text);
    assert_string_equal(p->directory, directory);
    assert_int_equal(p->resumes, resumes);
    assert_int_equal(p->has_epoch, has_epoch);
}

static void must_fail(const prepared *p, rt_status status, const char *words)
{
    if (p->status != status || !strstr(p->error.text, words))
        fail_msg("status %d (%s), expected %d with '%s'", p->status, p->error.text, status, words);
}

static rt_config config_with(const char *set)
{
    rt_config config = config_fresh();
    if (set && rt_config_set(&config, set, NULL))
        fail_msg("%s", set);
    return config;
}

static void make_checkpoint(const char *directory)
{
    char path[RT_FOLDER_MAX];
    assert_int_equal(rt_checkpoint_path(directory, 7, path, sizeof path, NULL), RT_OK);
    assert_int_equal(rt_checkpoint_make(path, NULL), RT_OK);
}

static void where_checkpoints_are(void **state)
{
    (void)state;
    char out[300], place[350], set[400];
    snprintf(out, sizeof out, "%s", test_path("out"));
    snprintf(place, sizeof place, "%s/checkpoints", out);
    rt_config config = config_with(NULL);
    prepared p = prepare(&config, out, DP_RESUME_NO); // when somebody asks for one
    must_be(&p, place, false, false);
    p = prepare(&config, NULL, DP_RESUME_NO);
    must_be(&p, "", false, false);
    p = prepare(&config, out, DP_RESUME_IF_ANY);
    must_be(&p, place, false, false);
    p = prepare(&config, NULL, DP_RESUME_NEWEST);
    must_fail(&p, RT_CONFIG, "set --out or checkpoint.directory");
    rt_config_fini(&config);
    static const char *const makes[] = {"checkpoint.every_iterations=5", "checkpoint.every_s=1",
                                        "checkpoint.at_end=true"};
    for (size_t i = 0; i < RT_COUNT_OF(makes); i++) {
        config = config_with(makes[i]);
        p = prepare(&config, out, DP_RESUME_NO);
        must_be(&p, place, false, true);
        p = prepare(&config, NULL, DP_RESUME_NO);
        must_fail(&p, RT_CONFIG, "set --out or checkpoint.directory");
        rt_config_fini(&config);
    }
    snprintf(set, sizeof set, "checkpoint.directory=%s", test_path("elsewhere"));
    config = config_with(set);
    p = prepare(&config, out, DP_RESUME_NO);
    must_be(&p, test_path("elsewhere"), false, false);
    p = prepare(&config, NULL, DP_RESUME_NO);
    must_be(&p, test_path("elsewhere"), false, false);
    rt_config_fini(&config);
}

static void whether_a_run_goes_on(void **state)
{
    (void)state;
    char out[300], place[350];
    snprintf(out, sizeof out, "%s", test_path("out"));
    snprintf(place, sizeof place, "%s/checkpoints", out);
    rt_config config = config_with(NULL);
    prepared p = prepare(&config, out, DP_RESUME_NEWEST);
    must_fail(&p, RT_NOT_FOUND, "out/checkpoints holds no checkpoint to resume from");
    make_checkpoint(place);
    p = prepare(&config, out, DP_RESUME_NEWEST);
    must_be(&p, place, true, true);
    p = prepare(&config, out, DP_RESUME_IF_ANY);
    must_be(&p, place, true, true);
    p = prepare(&config, out, DP_RESUME_NO);
    must_fail(&p, RT_CONFIG, "out/checkpoints holds checkpoints of an earlier run");
    rt_config_fini(&config);
}

// Much can still be wrong with the run: only the start of an epoch leaves something behind.
static void preparing_leaves_nothing_behind(void **state)
{
    (void)state;
    char out[300], file[400];
    uint32_t epoch = 0;
    snprintf(out, sizeof out, "%s", test_path("out"));
    rt_config config = config_with("checkpoint.at_end=true");
    prepared p = prepare(&config, out, DP_RESUME_IF_ANY);
    assert_int_equal(p.status, RT_OK);
    assert_int_not_equal(access(out, F_OK), 0);
    for (uint32_t start = 1; start <= 3; start++) {
        assert_int_equal(dp_resume_begin_epoch(p.directory, &epoch, NULL), RT_OK);
        assert_int_equal(epoch, start);
    }
    snprintf(file, sizeof file, "%s/checkpoints/epoch", out);
    assert_int_equal(access(file, F_OK), 0);
    rt_config_fini(&config);
}

TEST_MAIN(TEST(where_checkpoints_are), TEST(whether_a_run_goes_on),
          TEST(preparing_leaves_nothing_behind))
