// A server's copy of a model, and a version that is not there when it is named.
#include "tests/support/test.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "edge_worker/serve/ew_follower.h"
#include "tests/support/run_case.h"

#define LOOKS_MS 2000 // many looks at the folder
#define WAIT_MS 60000

static const char config[] =
    "{\"workers\": 1, \"batch\": {\"samples_per_worker\": 64}, \"stream\": {\"format\": "
    "\"synthetic\", \"samples_max\": 1280, \"synthetic\": {\"shape\": \"criteo\", \"scale\": "
    "0.001}}, \"model\": {\"embedding_dim\": 8, \"mlp\": [8]}, \"cache\": {\"rows\": 20000},"
    " \"checkpoint\": {\"every_iterations\": 10}, \"publish\": {\"every_s\": 1000,"
    "  \"guard\": {\"log_loss\": 0, \"calibration\": 0}}}";

static ew_follower_state state_of(ew_follower *copy)
{
    ew_follower_state state;
    ew_follower_get_state(copy, &state);
    return state;
}

// It counts once, however often it is tried; and it is tried until it is there.
static void a_version_that_comes_late(void **state)
{
    (void)state;
    char command[1200], folder[500];
    ew_follower *copy;
    rt_error error = {0};
    run_up(config, "out", NULL, NULL);
    snprintf(folder, sizeof folder, "%s", run_path("out/published"));
    const ew_follower_config follow = {.folder = folder};
    if (ew_follower_open(&follow, &copy, &error))
        fail_msg("%s", error.text);
    snprintf(command, sizeof command,
             "cd %s && echo '{\"iteration\":40,\"pinned\":false}' > fresh && "
             "mv fresh current.json",
             folder);
    assert_int_equal(system(command), 0);
    for (int ms = 0; ms < WAIT_MS && state_of(copy).failures == 0; ms += 10)
        (void)poll(NULL, 0, 10);
    (void)poll(NULL, 0, LOOKS_MS);
    assert_int_equal(state_of(copy).failures, 1);
    assert_int_equal(state_of(copy).updates, 0);
    snprintf(command, sizeof command,
             "cd %s && cp -r ckpt-000000000020 fresh && mv fresh ckpt-000000000040", folder);
    assert_int_equal(system(command), 0);
    for (int ms = 0; ms < WAIT_MS && state_of(copy).updates == 0; ms += 10)
        (void)poll(NULL, 0, 10);
    assert_int_equal(state_of(copy).updates, 1);
    assert_int_equal(state_of(copy).failures, 1);
    ew_follower_close(copy);
}

// Its server is there first, and answers once the run has published.
static void a_run_that_comes_late(void **state)
{
    (void)state;
    process p = {0};
    char folder[500];
    snprintf(folder, sizeof folder, "%s", run_path("out"));
    assert_int_equal(mkdir(folder, 0777), 0);
    snprintf(folder, sizeof folder, "%s", run_path("out/published"));
    process_start(&p, (const char *const[]){process_lanyard(), "serve", folder, "--set",
                                            "serve.address=127.0.0.1:0", NULL});
    const size_t waits = process_await(&p, 0, "waits for a model: ", RUN_CASE_S);
    run_up(config, "out", NULL, NULL);
    process_await(&p, waits, "http://127.0.0.1:", RUN_CASE_S);
    kill(p.pid, SIGTERM);
    run_must_end(&p, 0);
    process_fini(&p);
}

TEST_MAIN(TEST(a_version_that_comes_late), TEST(a_run_that_comes_late))
