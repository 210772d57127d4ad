// When alerts fire, and how often whose command is run.
#include <cjson/cJSON.h>
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/watch/rt_alerts.h"
#include "tests/support/test.h"

#define NOW 10000.0
#define WAIT_TURNS 1000 // of 10 ms

static const rt_alerts_config thresholds = {.every_s = 100,
                                            .no_progress_s = 60,
                                            .loss_drift = 1.2,
                                            .malformed_share = 0.1,
                                            .link_share = 0.5,
                                            .checkpoint_age = 3,
                                            .memory_share = 0.9};

// A run that is well, at NOW.
static rt_view *make_view(void)
{
    static rt_view view;
    assert_int_equal(rt_view_init(&view, RT_VIEW_POINTS), RT_OK);
    view.offset_s = NOW - 100;
    view.iterations = view.iteration = 50;
    view.iteration_time_s = view.time_s = 99;
    view.samples = 1000;
    view.window_samples = 500;
    view.window_log_loss = 0.5;
    view.reference_loss = 0.5;
    view.worker_count = 2;
    view.workers[0].ways[0] = view.workers[1].ways[1] = (rt_view_way){.bytes_per_s = 1, .best = 1};
    view.workers[0].memory = view.workers[1].memory = (rt_view_memory){10, 100};
    view.shard_count = 1;
    view.shards[0] =
        (rt_view_shard){.memory = {10, 100}, .keys = 5, .row_bytes = 10, .row_bytes_max = 100};
    view.checkpoint_every_s = 10;
    view.checkpoint_time_s = 90;
    view.recent[0] = (rt_view_tick){98, 500, 0, 5};
    view.recent[1] = (rt_view_tick){99, 1000, 0, 10};
    view.tick_count = 2;
    return &view;
}

static uint32_t firing(const rt_alerts *alerts)
{
    uint32_t mask = 0;
    for (int kind = 0; kind < RT_ALERT_COUNT; kind++)
        mask |= alerts->alerts[kind].is_firing ? 1u << kind : 0;
    return mask;
}

static void spoil(rt_view *view, rt_alert_kind kind)
{
    switch (kind) {
    case RT_ALERT_no_progress:
        view->iteration_time_s = 39;
        break;
    case RT_ALERT_loss_not_finite:
        view->bad_time_s = 99;
        break;
    case RT_ALERT_loss_drift:
        view->window_log_loss = 0.61;
        break;
    case RT_ALERT_malformed:
        view->recent[1].malformed = view->malformed = 60;
        break;
    case RT_ALERT_input_lost:
        view->lost_time_s = 99;
        break;
    case RT_ALERT_link_slow:
        view->workers[1].ways[1].bytes_per_s = 0.49;
        break;
    case RT_ALERT_checkpoint_old:
        view->unsaved_time_s = 69;
        break;
    case RT_ALERT_memory:
        view->shards[0].memory.rss_bytes = 91;
        break;
    case RT_ALERT_worker_out:
        view->out_count = 1;
        view->out[0] = 7;
        break;
    case RT_ALERT_standby_away: // 11 s
        view->standby_there = 0;
        view->standby_away_time_s = 89;
        break;
    case RT_ALERT_times_doubted:
        view->doubted_time_s = 99;
        break;
    case RT_ALERT_model_held:
        view->in_force = 3;
        view->held = 1;
        break;
    case RT_ALERT_COUNT:
        break;
    }
}

// Each condition makes its own alert fire, no other, and none below its threshold.
static void fires(void **state)
{
    (void)state;
    for (int kind = 0; kind < RT_ALERT_COUNT; kind++) {
        rt_alerts alerts;
        rt_view *view = make_view();
        rt_alerts_init(&thresholds, "", &alerts);
        rt_alerts_step(&alerts, view, NOW);
        if (firing(&alerts) != 0)
            fail_msg("%#x fire in a run that is well", firing(&alerts));
        spoil(view, (rt_alert_kind)kind);
        rt_alerts_step(&alerts, view, NOW);
        if (firing(&alerts) != 1u << kind)
            fail_msg("%s: %#x fire", rt_alert_name((rt_alert_kind)kind), firing(&alerts));
        rt_view_fini(view);
        view = make_view();
        view->iteration_time_s = view->checkpoint_time_s = 99 + 400;
        view->bad_time_s = view->doubted_time_s = view->lost_time_s = 99;
        rt_alerts_step(&alerts, view, NOW + 400); // all is well again
        if (firing(&alerts) != 0)
            fail_msg("%s does not end", rt_alert_name((rt_alert_kind)kind));
        rt_view_fini(view);
    }
}

static void stays_silent(void **state)
{
    (void)state;
    static const rt_alerts_config none = {.every_s = 1};
    rt_alerts alerts;
    rt_view *view = make_view();
    for (int kind = 0; kind < RT_ALERT_COUNT; kind++)
        if (kind != RT_ALERT_loss_not_finite && kind != RT_ALERT_input_lost &&
            kind != RT_ALERT_worker_out && kind != RT_ALERT_standby_away &&
            kind != RT_ALERT_times_doubted && kind != RT_ALERT_model_held)
            spoil(view, (rt_alert_kind)kind);
    rt_alerts_init(&none, "", &alerts);
    rt_alerts_step(&alerts, view, NOW);
    assert_int_equal(firing(&alerts), 0); // 0: never told
    rt_view_fini(view);
    view = make_view();
    spoil(view, RT_ALERT_no_progress);
    view->waits_for_input = true;
    rt_alerts_init(&thresholds, "", &alerts);
    rt_alerts_step(&alerts, view, NOW);
    assert_int_equal(firing(&alerts), 0); // there is nothing to be trained
    rt_view_fini(view);
}

// A stream that is quiet since long ago: nothing is wrong that is not done.
static void a_quiet_stream(void **state)
{
    (void)state;
    rt_alerts alerts;
    rt_view *view = make_view();
    view->waits_for_input = true;
    view->bad_batches = 1;
    view->bad_time_s = view->doubted_time_s = 99;
    view->recent[1].malformed = view->malformed = 60;
    rt_alerts_init(&thresholds, "", &alerts);
    rt_alerts_step(&alerts, view, NOW);
    assert_int_equal(firing(&alerts), 1u << RT_ALERT_malformed | 1u << RT_ALERT_loss_not_finite |
                                          1u << RT_ALERT_times_doubted);
    rt_alerts_step(&alerts, view, NOW + 100000); // the newest checkpoint has all of it
    assert_int_equal(firing(&alerts), 0);
    view->unsaved_time_s = 99; // or not
    rt_alerts_step(&alerts, view, NOW + 100000);
    assert_int_equal(firing(&alerts), 1u << RT_ALERT_checkpoint_old);
    rt_view_fini(view);
}

// ---- the command -----------------------------------------------------------------------------

// Until the command that runs has ended.
static void let_it_end(rt_alerts *alerts, const rt_view *view, double unix_s)
{
    for (int i = 0; i < WAIT_TURNS && alerts->child; i++) {
        (void)poll(NULL, 0, 10);
        rt_alerts_step(alerts, view, unix_s);
    }
    assert_int_equal(alerts->child, 0);
}

static char *read_told(void)
{
    static char text[8192];
    FILE *file = fopen(test_path("told"), "r");
    const size_t size = file ? fread(text, 1, sizeof text - 1, file) : 0;
    text[size] = '\0';
    if (file)
        fclose(file);
    return text;
}

static unsigned count_told(const char *part)
{
    unsigned count = 0;
    for (const char *at = read_told(); (at = strstr(at, part)); at++)
        count++;
    return count;
}

static rt_alerts_config with_command(const char *command)
{
    rt_alerts_config config = thresholds;
    snprintf(config.command, sizeof config.command, "%s", command);
    return config;
}

static rt_alerts_config with_note(void)
{
    char command[700];
    snprintf(command, sizeof command, "cat >>%s", test_path("told"));
    return with_command(command);
}

static void tells(void **state)
{
    (void)state;
    rt_alerts alerts;
    rt_view *view = make_view();
    const rt_alerts_config config = with_note();
    rt_alerts_init(&config, "/runs/a", &alerts);
    spoil(view, RT_ALERT_memory);
    rt_alerts_step(&alerts, view, NOW);
    let_it_end(&alerts, view, NOW);
    cJSON *json = cJSON_Parse(read_told());
    assert_non_null(json);
    assert_string_equal(cJSON_GetObjectItem(json, "alert")->valuestring, "memory");
    assert_string_equal(cJSON_GetObjectItem(json, "state")->valuestring, "firing");
    assert_string_equal(cJSON_GetObjectItem(json, "about")->valuestring, "ps 0");
    assert_string_equal(cJSON_GetObjectItem(json, "run")->valuestring, "/runs/a");
    assert_true(cJSON_GetObjectItem(json, "value")->valuedouble == 0.91);
    assert_true(cJSON_GetObjectItem(json, "threshold")->valuedouble == 0.9);
    assert_int_equal(cJSON_GetObjectItem(json, "iteration")->valuedouble, 50);
    cJSON_Delete(json);
    rt_alerts_fini(&alerts);
    rt_view_fini(view);
}

// On and off every five seconds: told at most once in 100 s, and the end of what was told.
static void tells_seldom(void **state)
{
    (void)state;
    rt_alerts alerts;
    rt_view *view = make_view();
    const rt_alerts_config config = with_note();
    rt_alerts_init(&config, "", &alerts);
    for (unsigned i = 0; i < 50; i++) { // 0 to 245 s
        const double now = NOW + 5 * i;
        view->iteration_time_s = view->checkpoint_time_s = now - view->offset_s;
        view->shards[0].memory.rss_bytes = i % 2 ? 10 : 95;
        rt_alerts_step(&alerts, view, now);
        let_it_end(&alerts, view, now);
    }
    assert_int_equal(count_told("\"firing\""), 3); // 0, 100, 200
    assert_int_equal(count_told("\"over\""), 3);
    assert_int_equal(alerts.commands, 6);
    assert_int_equal(alerts.failures, 0);
    rt_alerts_fini(&alerts);
    rt_view_fini(view);
}

// What fails, reads nothing or hangs does not hold anything up.
static void never_waits(void **state)
{
    (void)state;
    static const char *const commands[] = {"exit 3", "exec 0<&-; sleep 0.1", "/nonexistent/x",
                                           "kill -9 $$"};
    for (size_t i = 0; i < RT_COUNT_OF(commands); i++) {
        rt_alerts alerts;
        rt_view *view = make_view();
        const rt_alerts_config config = with_command(commands[i]);
        rt_alerts_init(&config, "", &alerts);
        spoil(view, RT_ALERT_memory);
        rt_alerts_step(&alerts, view, NOW);
        let_it_end(&alerts, view, NOW);
        assert_int_equal(alerts.commands, 1);
        assert_int_equal(alerts.failures, i != 1);
        rt_alerts_fini(&alerts);
        rt_view_fini(view);
    }
    rt_alerts alerts;
    rt_view *view = make_view();
    const rt_alerts_config config = with_command("sleep 1000 & sleep 1000");
    rt_alerts_init(&config, "", &alerts);
    spoil(view, RT_ALERT_memory);
    rt_alerts_step(&alerts, view, NOW);
    const int child = alerts.child;
    assert_true(child > 0);
    // On Linux at once; qemu-user's posix_spawn does not wait for it.
    while (getpgid(child) != child)
        (void)poll(NULL, 0, 1);
    spoil(view, RT_ALERT_worker_out);
    rt_alerts_step(&alerts, view, NOW + 1);
    assert_int_equal(alerts.child, child); // one at a time
    assert_int_equal(alerts.commands, 1);
    alerts.child_ns -= (uint64_t)(RT_ALERTS_COMMAND_S * 1e9);
    rt_alerts_step(&alerts, view, NOW + 2); // its time is over: the next one's turn
    assert_true(alerts.child > 0 && alerts.child != child);
    assert_int_equal(alerts.commands, 2);
    assert_int_equal(alerts.failures, 1);
    rt_alerts_fini(&alerts);
    assert_int_equal(alerts.child, 0);
    rt_view_fini(view);
}

TEST_MAIN(TEST(fires), TEST(stays_silent), TEST(a_quiet_stream), TEST(tells), TEST(tells_seldom),
          TEST(never_waits))
