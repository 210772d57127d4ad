// What is known of a run by its records, against plain sums; and what is made of that for people,
// scripts and Prometheus.
#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/watch/rt_view_tail.h"
#include "runtime/watch/rt_view_write.h"
#include "tests/support/test.h"

#define BEGIN_S 1000.0 // of the clock of the day

static rt_view *make_view(void)
{
    static rt_view view;
    assert_int_equal(rt_view_init(&view, RT_VIEW_POINTS), RT_OK);
    return &view;
}

static void format_iteration(char *line, size_t size, unsigned t, double time_s, unsigned malformed,
                             double loss)
{
    snprintf(line, size,
             "{\"record\":\"iteration\",\"time_s\":%.9g,\"iteration\":%u,\"samples\":100,"
             "\"participants\":[0,3],\"malformed_lines\":%u,\"bad\":false,"
             "\"window\":{\"samples\":500,\"log_loss\":%.9g,\"auc\":0.75,\"calibration\":1.25},"
             "\"cost\":321,\"predicted_ms\":20,\"hit_ratio\":{\"lookups\":0.5,\"keys\":0.25},"
             "\"bytes_up\":[1000,2000],\"bytes_down\":[3000,4000],"
             "\"times_ms\":[{\"compute\":10,\"dense\":1,\"push\":2,\"pull\":3,\"plan\":4},"
             "{\"compute\":20,\"dense\":1,\"push\":2,\"pull\":3,\"plan\":4}]}",
             time_s, t, malformed, loss);
}

static void give(rt_view *view, unsigned t, double time_s, unsigned malformed, double loss)
{
    char line[1024];
    format_iteration(line, sizeof line, t, time_s, malformed, loss);
    assert_true(rt_view_take(view, line, BEGIN_S + time_s));
}

static const char members[] =
    "{\"record\":\"members\",\"time_s\":%.9g,\"unix_s\":%.9g,\"iteration\":3,\"policy\":\"esd\","
    "\"dense_bytes\":500,\"workers\":[{\"rank\":0,\"rss_bytes\":10,\"memory_max_bytes\":100,"
    "\"up\":1e6,\"down\":2e6},{\"rank\":2,\"rss_bytes\":20,\"memory_max_bytes\":100,\"up\":1e6,"
    "\"down\":2e6}],\"out\":[1],\"shards\":[{\"rss_bytes\":30,\"memory_max_bytes\":100,"
    "\"keys\":77,\"row_bytes\":40,\"row_bytes_max\":80,\"image_bytes\":9}],"
    "\"coordinator\":{\"rss_bytes\":5,\"memory_max_bytes\":100},\"checkpoint\":{\"every_s\":60,\"age_s\":7,\"iteration\":2},"
    "\"lag\":{\"events\":12,\"bytes\":null},\"waits_for_input\":false,\"ended\":false}";

static void give_members(rt_view *view, double time_s)
{
    char line[2048];
    snprintf(line, sizeof line, members, time_s, BEGIN_S + time_s);
    assert_true(rt_view_take(view, line, NAN));
}

static void adds_up(void **state)
{
    (void)state;
    rt_view *view = make_view();
    give(view, 1, 1, 0, 0.5);
    give_members(view, 1.5);
    for (unsigned t = 2; t <= 40; t++) // one in half a second; 10 of 110 lines malformed
        give(view, t, 1 + 0.5 * (t - 1), 10 * (t - 1), 0.5);
    const double now = BEGIN_S + 20.5;
    const rt_view_rates rates = rt_view_rates_of(view, now);
    test_close(rates.iterations_per_s, 2, 1e-9, 1, "iterations/s");
    test_close(rates.samples_per_s, 200, 1e-9, 1, "samples/s");
    test_close(rates.malformed_share, 10.0 / 110, 1e-9, 1, "malformed");
    assert_true(view->samples == 4000 && view->iteration == 40 && view->iterations == 40);
    test_close(view->workers[1].time_s[0], 40 * 0.020, 1e-9, 1, "computing time");
    test_close(view->workers[0].times_ms[0], 10, 1e-9, 1, "of an iteration");
    // The first one was taken before anybody said what the dense exchange moves.
    test_close(view->workers[0].ways[0].sum, 40 * 1000 + 39 * 500, 1e-9, 1, "bytes up");
    test_close(view->workers[1].ways[1].sum, 40 * 4000, 1e-9, 1, "who sits out sends no gradient");
    assert_true(view->workers[0].takes_part && !view->workers[1].takes_part);
    assert_int_equal(view->workers[1].rank, 2);
    assert_int_equal(view->out_count, 1);
    assert_true(view->shards[0].keys == 77 && view->lag_events == 12);
    test_close(rt_view_age_s(view, view->checkpoint_time_s, now), 20.5 - (1.5 - 7), 1e-9, 1, "age");
    assert_string_equal(rt_view_state(view, now), "trains");
    assert_string_equal(rt_view_state(view, now + 100), "stalls");
    assert_true(rt_view_rates_of(view, now + 100).samples_per_s == 0);
    rt_view_fini(view);
}

// Who trains alone has no dense exchange.
static void alone(void **state)
{
    (void)state;
    char line[1024];
    rt_view *view = make_view();
    give_members(view, 0.5);
    give(view, 1, 1, 0, 0.5);
    format_iteration(line, sizeof line, 2, 1.5, 0, 0.5);
    memcpy(strstr(line, "[0,3]"), "[0]  ", 5);
    assert_true(rt_view_take(view, line, BEGIN_S + 1.5));
    test_close(view->workers[0].ways[0].sum, 2 * 1000 + 500, 1e-9, 1, "bytes up");
    rt_view_fini(view);
}

// Ten thousand iterations: as many points as ever, and their mean is that of all.
static void stays_small(void **state)
{
    (void)state;
    rt_view *view = make_view();
    rt_page page = {0};
    double sum = 0, mean = 0;
    uint64_t records = 0;
    for (unsigned t = 1; t <= 10000; t++) {
        give(view, t, t, 0, t);
        sum += t;
    }
    assert_true(view->course.count <= RT_VIEW_POINTS);
    for (uint32_t p = 0; p < view->course.count; p++) {
        mean += view->course.points[p].values[rt_view_series(RT_RUN_window_log_loss)].sum;
        records += view->course.points[p].records;
    }
    assert_int_equal(records, 10000);
    test_close(mean, sum, 1e-9, 1, "sum over points");
    rt_view_write_page(view, NULL, BEGIN_S + 10000, &page);
    assert_true(page.size > 1000 && page.size < 100000);
    rt_page_fini(&page);
    rt_view_fini(view);
}

// What follows the checkpoint follows again; counters go on.
static void goes_back(void **state)
{
    (void)state;
    rt_view *view = make_view();
    for (unsigned t = 1; t <= 9; t++)
        give(view, t, t, 3, 0.5);
    assert_true(rt_view_take(view, "{\"record\":\"resumed\",\"time_s\":0.5,\"iteration\":4}",
                             BEGIN_S + 20));
    assert_int_equal(view->course.count, 4);
    assert_int_equal(view->iteration, 4);
    give(view, 5, 1, 2, 0.5);
    assert_int_equal(view->course.count, 5);
    assert_true(view->malformed == 5); // three, and two of the process that goes on
    assert_true(isnan(rt_view_rates_of(view, BEGIN_S + 21).samples_per_s));
    rt_view_fini(view);
}

static void takes_no_nonsense(void **state)
{
    (void)state;
    static const char *const lines[] = {"",
                                        "nonsense",
                                        "{}",
                                        "[]",
                                        "{\"record\":\"iteration\"}",
                                        "{\"record\":3,\"time_s\":1}",
                                        "{\"record\":\"iteration\",\"time_s\":\"x\"}"};
    static const char *const odd[] = {
        "{\"record\":\"iteration\",\"time_s\":1,\"times_ms\":5,\"participants\":[-1,99,\"x\"]}",
        "{\"record\":\"members\",\"time_s\":1,\"workers\":{\"a\":1},\"shards\":[1,2],\"out\":7}",
        "{\"record\":\"columns\",\"time_s\":1,\"columns\":[1,{}]}",
        "{\"record\":\"slices\",\"time_s\":1,\"values\":[{},null]}",
        "{\"record\":\"warning\",\"time_s\":1}",
        "{\"record\":\"something new\",\"time_s\":1}"};
    rt_view *view = make_view();
    for (size_t i = 0; i < RT_COUNT_OF(lines); i++)
        assert_false(rt_view_take(view, lines[i], 1));
    for (size_t i = 0; i < RT_COUNT_OF(odd); i++)
        assert_true(rt_view_take(view, odd[i], 1));
    rt_page page = {0};
    rt_view_write_page(view, NULL, 2, &page);
    assert_int_equal(rt_view_write_prometheus(view, NULL, 2, &page), RT_OK);
    rt_page_fini(&page);
    rt_view_fini(view);
}

// ---- for others ------------------------------------------------------------------------------

static rt_view *make_full_view(void)
{
    rt_view *view = make_view();
    give(view, 1, 1, 0, 0.5);
    give_members(view, 1.5);
    give(view, 2, 2, 0, 0.625);
    assert_true(rt_view_take(view,
                             "{\"record\":\"columns\",\"time_s\":2,\"columns\":[{\"name\":"
                             "\"<b>\\\"\\\\x\",\"values\":100,\"empty\":25,\"new\":10}]}",
                             BEGIN_S + 2));
    assert_true(rt_view_take(view,
                             "{\"record\":\"slices\",\"time_s\":2,\"column\":\"shop\",\"values\":"
                             "[{\"value\":\"a & b\",\"samples\":10,\"log_loss\":0.5,"
                             "\"calibration\":1,\"mean_label\":0.25}]}",
                             BEGIN_S + 2));
    assert_true(rt_view_take(
        view, "{\"record\":\"warning\",\"time_s\":2,\"text\":\"<script>\\n x\"}", BEGIN_S + 2));
    return view;
}

static void is_json(void **state)
{
    (void)state;
    rt_view *view = make_full_view();
    rt_json json;
    rt_json_init(&json, 0);
    rt_view_write_json(view, NULL, BEGIN_S + 3, &json);
    cJSON *parsed = cJSON_Parse(rt_json_text(&json, NULL));
    assert_non_null(parsed);
    const cJSON *window = cJSON_GetObjectItem(parsed, "window");
    assert_true(cJSON_GetObjectItem(window, "log_loss")->valuedouble == 0.625);
    assert_true(cJSON_GetObjectItem(parsed, "samples")->valuedouble == 200);
    assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItem(parsed, "workers")), 2);
    const cJSON *column = cJSON_GetArrayItem(cJSON_GetObjectItem(parsed, "columns"), 0);
    assert_true(cJSON_GetObjectItem(column, "empty")->valuedouble == 0.25);
    cJSON_Delete(parsed);
    rt_json_fini(&json);
    rt_view_fini(view);
}

static void give_checkpoint(rt_view *view, double time_s, unsigned iteration, double age_s,
                            unsigned doubted)
{
    char line[400];
    snprintf(line, sizeof line,
             "{\"record\":\"members\",\"time_s\":%.9g,\"checkpoint\":{\"every_s\":10,\"age_s\":"
             "%.9g,\"iteration\":%u},\"join\":{\"waiting\":5,\"doubted\":%u}}",
             time_s, age_s, iteration, doubted);
    assert_true(rt_view_take(view, line, BEGIN_S + time_s));
}

// What no checkpoint has counts from its own time, and from the end of the checkpoint before it;
// where all is in one nothing does, however long ago that was.
static void what_is_unsaved(void **state)
{
    (void)state;
    rt_view *view = make_view();
    assert_true(isnan(rt_view_unsaved_s(view, BEGIN_S)));
    give(view, 1, 1, 0, 0.5);
    give(view, 2, 2, 0, 0.5);
    give_checkpoint(view, 3, 0, 3, 0);
    test_close(rt_view_unsaved_s(view, BEGIN_S + 21), 20, 1e-9, 1, "before the first");
    give(view, 3, 22, 0, 0.5);
    give_checkpoint(view, 25, 2, 4, 0); // while the third one was trained
    test_close(rt_view_unsaved_s(view, BEGIN_S + 31), 10, 1e-9, 1, "since a checkpoint");
    give_checkpoint(view, 35, 3, 1, 0);
    assert_true(rt_view_unsaved_s(view, BEGIN_S + 36) == 0);
    assert_true(rt_view_unsaved_s(view, BEGIN_S + 100000) == 0); // a quiet night
    give(view, 4, 100001, 0, 0.5);
    give_checkpoint(view, 100002, 3, 99968, 0);
    test_close(rt_view_unsaved_s(view, BEGIN_S + 100003), 2, 1e-9, 1, "after a night");
    static const char one[] =
        "{\"record\":\"checkpoint\",\"time_s\":100003,\"iteration\":4,\"complete\":%s}";
    for (int complete = 0; complete < 2; complete++) {
        char line[200];
        snprintf(line, sizeof line, one, complete ? "true" : "false");
        assert_true(rt_view_take(view, line, BEGIN_S + 100003));
        assert_true((rt_view_unsaved_s(view, BEGIN_S + 100004) == 0) == complete);
    }
    rt_view_fini(view);
}

// Of what was said by a process before, nothing is said of now.
static void begins_anew(void **state)
{
    (void)state;
    const rt_alerts_config thresholds = {.no_progress_s = 1, .checkpoint_age = 1, .every_s = 1};
    rt_view *view = make_view();
    rt_alerts alerts;
    give(view, 1, 1, 0, 0.5);
    give_checkpoint(view, 2, 0, 2, 1);
    assert_true(
        rt_view_take(view, "{\"record\":\"iteration\",\"time_s\":3,\"bad\":true}", BEGIN_S));
    assert_true(view->bad_time_s == 3 && view->doubted_time_s == 2 && view->doubted == 1);
    for (int anew = 0; anew < 2; anew++) {
        rt_alerts_init(&thresholds, "", &alerts);
        rt_alerts_step(&alerts, view, BEGIN_S + 100);
        const rt_alert_kind kinds[] = {RT_ALERT_no_progress, RT_ALERT_loss_not_finite,
                                       RT_ALERT_checkpoint_old, RT_ALERT_times_doubted};
        for (size_t i = 0; i < RT_COUNT_OF(kinds); i++)
            assert_true(alerts.alerts[kinds[i]].is_firing == !anew);
        rt_view_begin_anew(view);
    }
    rt_view_fini(view);
}

static void give_standby(rt_view *view, const char *standby)
{
    char line[512];
    snprintf(line, sizeof line,
             "{\"record\":\"members\",\"time_s\":10,\"standby\":{%s,\"commits_alone\":7,"
             "\"checkpoint\":2}}",
             standby);
    assert_true(rt_view_take(view, line, BEGIN_S + 10));
}

// What all who are shown the run are told of its standby.
static void must_say(const rt_view *view, const char *in_json, const char *in_metrics,
                     const char *in_page)
{
    rt_json json;
    rt_page text = {0}, page = {0};
    rt_json_init(&json, 0);
    rt_view_write_json(view, NULL, BEGIN_S + 15, &json);
    rt_page_add(&text, "%s", rt_json_text(&json, NULL));
    assert_int_equal(rt_view_write_prometheus(view, NULL, BEGIN_S + 15, &text), RT_OK);
    rt_view_write_page(view, NULL, BEGIN_S + 15, &page);
    if (!strstr(text.text, in_json) || !strstr(text.text, in_metrics) ||
        !strstr(page.text, in_page))
        fail_msg("%s, %s or %s is not in %s%s", in_json, in_metrics, in_page, text.text, page.text);
    rt_json_fini(&json);
    rt_page_fini(&text);
    rt_page_fini(&page);
}

static void publish(rt_view *view, double time_s, uint32_t iteration, uint32_t held, bool is_early)
{
    char line[512];
    snprintf(line, sizeof line,
             "{\"record\":\"publish\",\"time_s\":%g,\"iteration\":%u,\"held\":%s,\"early\":%s,"
             "\"held_count\":%u,\"why\":\"it is worse\"}",
             time_s, iteration, held || is_early ? "true" : "false", is_early ? "true" : "false",
             held);
    assert_true(rt_view_take(view, line, BEGIN_S + time_s));
}

// Which version is in force, and how many since the guard holds back; those that it cannot judge
// yet are none of them.
static void tells_of_what_is_held(void **state)
{
    (void)state;
    rt_view *view = make_view();
    publish(view, 5, 20, 0, true);
    must_say(view, "\"lag\"", "lanyard_models_held 0\n", "");
    assert_true(view->in_force == 0 && view->held == 0);
    publish(view, 6, 40, 0, false);
    must_say(view, "\"published\":{\"in_force\":40,\"held\":0}",
             "lanyard_model_in_force_iteration 40\n", "<b id=\"in-force\">40</b>");
    publish(view, 7, 60, 1, false);
    publish(view, 9, 80, 2, false);
    publish(view, 9, 90, 2, true);
    must_say(view,
             "\"published\":{\"in_force\":40,\"held\":2,\"held_iteration\":80,\"held_s\":8,"
             "\"why\":\"it is worse\"}",
             "lanyard_models_held 2\n", "<b id=\"held\">2</b>");
    publish(view, 11, 100, 0, false);
    must_say(view, "\"published\":{\"in_force\":100,\"held\":0}", "lanyard_models_held 0\n",
             "<b id=\"in-force\">100</b>");
    static const char pinned[] = "{\"record\":\"publish\",\"time_s\":12,\"iteration\":120,"
                                 "\"held\":false,\"held_count\":0,\"pinned\":40}";
    assert_true(rt_view_take(view, pinned, BEGIN_S + 12));
    must_say(view, "\"published\":{\"in_force\":40,\"held\":0}", "lanyard_models_held 0\n",
             "<b id=\"in-force\">40</b>");
    rt_view_fini(view);
}

static void tells_of_the_standby(void **state)
{
    (void)state;
    rt_view *view = make_view();
    assert_true(isnan(rt_view_standby_away_s(view, BEGIN_S))); // there is none
    give_standby(view, "\"there\":true,\"in_step\":true,\"away_s\":0,\"behind_bytes\":0");
    assert_true(rt_view_standby_away_s(view, BEGIN_S + 15) == 0);
    must_say(view, "\"in_step\":true", "lanyard_standby_in_step 1\n",
             "<b id=\"standby\">in step</b>");
    give_standby(view, "\"there\":true,\"in_step\":false,\"away_s\":0,\"behind_bytes\":123");
    must_say(view, "\"behind_bytes\":123", "lanyard_standby_behind_bytes 123\n",
             "<b id=\"standby\">123</b>");
    give_standby(view, "\"there\":false,\"in_step\":false,\"away_s\":4,\"behind_bytes\":null");
    must_say(view, "\"away_s\":9,\"behind_bytes\":null,\"commits_alone\":7,\"checkpoint\":2",
             "lanyard_standby_away_seconds 9\n", "<b id=\"standby\">9 s</b>");
    must_say(view, "", "lanyard_standby_commits_alone_total 7\n", "");
    view->has_ended = true; // nobody looks for it any more
    assert_true(isnan(rt_view_standby_away_s(view, BEGIN_S + 15)));
    rt_view_fini(view);
}

// Each series once, and a line for each, whatever the records hold.
static void labels_are_apart(void **state)
{
    (void)state;
    rt_view *view = make_view();
    rt_page text = {0};
    uint32_t count = 0;
    char *lines[8] = {NULL};
    assert_true(rt_view_take(view,
                             "{\"record\":\"slices\",\"time_s\":2,\"column\":\"sh\\nop\\\"\","
                             "\"values\":[{\"value\":\"(empty)\",\"samples\":1},"
                             "{\"value\":\"(empty)\",\"samples\":2},"
                             "{\"value\":\"(empty) (2)\",\"samples\":3},"
                             "{\"value\":\"a\\r\\u001b\\u2028b\\\\\",\"samples\":4}]}",
                             BEGIN_S + 2));
    assert_int_equal(rt_view_write_prometheus(view, NULL, BEGIN_S + 2, &text), RT_OK);
    for (char *line = strtok(text.text, "\n"); line; line = strtok(NULL, "\n")) {
        for (const char *at = line; *at; at++)
            assert_true((unsigned char)*at >= 0x20 && *at != 0x7f);
        if (strncmp(line, "lanyard_slice_samples{", strlen("lanyard_slice_samples{")) == 0)
            lines[count++] = line;
    }
    assert_int_equal(count, 4);
    assert_string_equal(lines[0],
                        "lanyard_slice_samples{column=\"sh?op\\\"\",value=\"(empty)\"} 1");
    assert_non_null(strstr(lines[1], "value=\"(empty) (2)\"} 2"));
    assert_non_null(strstr(lines[2], "value=\"(empty) (2) (2)\"} 3"));
    assert_non_null(strstr(lines[3], "value=\"a?????b\\\\\"} 4"));
    rt_page_fini(&text);
    rt_view_fini(view);
}

// Of a label of 0 and 1 nobody is told of an accuracy.
static void tells_of_the_accuracy(void **state)
{
    (void)state;
    rt_view *view = make_view();
    rt_json json;
    rt_page page = {0};
    give(view, 1, 1, 0, 0.5);
    rt_json_init(&json, 0);
    rt_view_write_json(view, NULL, BEGIN_S + 2, &json);
    assert_int_equal(rt_view_write_prometheus(view, NULL, BEGIN_S + 2, &page), RT_OK);
    rt_view_write_page(view, NULL, BEGIN_S + 2, &page);
    assert_true(!strstr(rt_json_text(&json, NULL), "accuracy"));
    assert_true(!strstr(page.text, "ccuracy"));
    rt_json_fini(&json);
    rt_page_fini(&page);
    assert_true(rt_view_take(view,
                             "{\"record\":\"iteration\",\"time_s\":2,\"iteration\":2,"
                             "\"samples\":10,\"window\":{\"samples\":10,\"log_loss\":0.5,"
                             "\"auc\":0.75,\"calibration\":1,\"accuracy\":0.625}}",
                             BEGIN_S + 2));
    must_say(view, "\"accuracy\":0.625", "lanyard_window_accuracy_ratio 0.625\n",
             "<b id=\"accuracy\">0.6250</b>");
    must_say(view, "", "", "<h3>Accuracy, of the window");
    rt_view_fini(view);
}

// ---- every metric of the table ---------------------------------------------------------------

static const char standby[] =
    "{\"record\":\"members\",\"time_s\":12,\"unix_s\":1012,\"standby\":{\"there\":false,"
    "\"in_step\":false,\"away_s\":4,\"behind_bytes\":5,\"commits_alone\":7,\"checkpoint\":2},"
    "\"checkpoint\":{\"every_s\":60,\"age_s\":7,\"iteration\":1}}";

// The number of a status at a path of one name or two.
static double status_at(const cJSON *status, const rt_metric *metric)
{
    char group[32];
    const char *name = rt_metric_status_name(metric, group, sizeof group);
    const cJSON *one =
        cJSON_GetObjectItem(*group ? cJSON_GetObjectItem(status, group) : status, name);
    if (metric->is_truth && cJSON_IsBool(one))
        return cJSON_IsTrue(one);
    return cJSON_IsNumber(one) ? one->valuedouble : (double)NAN;
}

static void must_be_in(const rt_metric *metric, const char *text, const char *part)
{
    if (!strstr(text, part))
        fail_msg("%s: \"%s\" is not in %s", metric->name, part, text);
}

// Wherever its line says.
static void must_be_shown(const rt_view *view, const rt_metric *metric, double value, double now_s)
{
    rt_json json;
    rt_page text = {0}, page = {0};
    char part[256], number[32];
    rt_json_init(&json, 0);
    rt_view_write_json(view, NULL, now_s, &json);
    cJSON *status = cJSON_Parse(rt_json_text(&json, NULL)), *one, *other;
    cJSON_ArrayForEach(one, status) for (other = one->next; other; other = other->next)
        assert_string_not_equal(one->string, other->string);
    assert_int_equal(rt_view_write_prometheus(view, NULL, now_s, &text), RT_OK);
    rt_view_write_page(view, NULL, now_s, &page);
    if (metric->status && status_at(status, metric) != value)
        fail_msg("%s: expected %.9g in %s", metric->name, value, rt_json_text(&json, NULL));
    if (metric->series) {
        snprintf(part, sizeof part, "\n%s%s %s\n", metric->series,
                 metric->labels ? metric->labels : "",
                 rt_json_format_double(value * (metric->base_units > 0 ? metric->base_units : 1),
                                       number));
        must_be_in(metric, text.text, part);
    }
    if (metric->tile.title) {
        snprintf(part, sizeof part, "<small>%s</small><b id=\"%s\">%s</b>", metric->tile.title,
                 metric->tile.id, rt_form_text(metric->tile.form, value, number));
        must_be_in(metric, page.text, part);
    }
    if (metric->chart.where & RT_CHART_PAGE && view->iterations > 0) {
        snprintf(part, sizeof part, "<h3>%s <small>", metric->chart.title);
        must_be_in(metric, page.text, part);
    }
    cJSON_Delete(status);
    rt_json_fini(&json);
    rt_page_fini(&text);
    rt_page_fini(&page);
}

// The record with a value at a path, the caller's (cJSON_free).
static char *record_with(const char *record, const char *path, double value, bool is_truth)
{
    cJSON *json = cJSON_Parse(record), *at = json;
    char name[64];
    assert_non_null(json);
    while (strchr(path, '.')) {
        snprintf(name, sizeof name, "%.*s", (int)strcspn(path, "."), path);
        path = strchr(path, '.') + 1;
        if (!cJSON_GetObjectItem(at, name))
            assert_non_null(cJSON_AddObjectToObject(at, name));
        at = cJSON_GetObjectItem(at, name);
    }
    cJSON_DeleteItemFromObject(at, path);
    cJSON_AddItemToObject(at, path, is_truth ? cJSON_CreateTrue() : cJSON_CreateNumber(value));
    char *text = cJSON_PrintUnformatted(json);
    cJSON_Delete(json);
    return text;
}

// What a record says stands wherever the line of the table says, and is read by what it names.
static void metrics_are_shown(void **state)
{
    (void)state;
    char iteration[1024];
    uint32_t count = 0;
    format_iteration(iteration, sizeof iteration, 7, 12, 3, 0.5);
    for (uint32_t i = 0; i < RT_RUN_METRICS; i++) {
        const rt_metric *metric = rt_metric_of_run(i);
        const double value = metric->is_truth ? 1 : 11.4375 + i;
        if (!metric->from || strcmp(metric->from, "summary") == 0)
            continue;
        rt_view *view = make_view();
        const bool is_iteration = strcmp(metric->from, "iteration") == 0;
        char *line =
            record_with(is_iteration ? iteration : standby, metric->at, value, metric->is_truth);
        assert_true(rt_view_take(view, line, BEGIN_S + 12));
        if (view->values[i] != value)
            fail_msg("%s is %g after %s", metric->name, view->values[i], line);
        must_be_shown(view, metric, value, BEGIN_S + 15);
        if (metric->chart.where & RT_CHART_PAGE && !is_iteration) {
            give(view, 8, 13, 3, 0.5); // a point of its chart
            must_be_shown(view, metric, value, BEGIN_S + 15);
        }
        cJSON_free(line);
        rt_view_fini(view);
        count++;
    }
    assert_true(count > 20);
}

// What no record says as it is.
static void the_others_are_shown(void **state)
{
    (void)state;
    double values[RT_RUN_METRICS];
    rt_view *view = make_full_view();
    for (unsigned t = 3; t < 20; t++) // more than two windows
        give(view, t, 2 + 0.5 * t, 5, 0.5);
    assert_true(
        rt_view_take(view, "{\"record\":\"iteration\",\"time_s\":11.75,\"bad\":true,\"samples\":1}",
                     BEGIN_S + 12));
    assert_true(rt_view_take(view,
                             "{\"record\":\"members\",\"time_s\":12,\"join\":{\"doubted\":1},"
                             "\"input\":{\"events_lost\":1},\"coordinator\":{\"rss_bytes\":5,"
                             "\"memory_max_bytes\":100},\"workers\":[{\"rank\":0,\"up\":5}]}",
                             BEGIN_S + 12));
    publish(view, 12.25, 2, 0, false);
    publish(view, 12.5, 3, 1, false);
    assert_true(rt_view_take(view,
                             "{\"record\":\"members\",\"time_s\":12.75,\"standby\":{\"there\":"
                             "false,\"away_s\":4},\"coordinator\":{\"rss_bytes\":5,"
                             "\"memory_max_bytes\":100},\"workers\":[{\"rank\":0,\"up\":5}],"
                             "\"checkpoint\":{\"every_s\":60,\"age_s\":7,\"iteration\":1}}",
                             BEGIN_S + 12.75));
    give(view, 21, 13, 5, 0.5);
    rt_view_values(view, BEGIN_S + 15, values);
    for (uint32_t i = 0; i < RT_RUN_METRICS; i++) {
        const rt_metric *metric = rt_metric_of_run(i);
        if (metric->from)
            continue;
        if (!isfinite(values[i]))
            fail_msg("%s is not known", metric->name);
        must_be_shown(view, metric, values[i], BEGIN_S + 15);
    }
    rt_view_fini(view);
}

// The same of lists: of one item, by the list that it is in.
static void lists_are_shown(void **state)
{
    (void)state;
    static const struct {
        rt_metric_set_kind set;
        const char *before, *after;
    } lists[] = {{RT_SET_PROCESS, "\"coordinator\":{", "}"},
                 {RT_SET_SHARD, "\"shards\":[{", "}]"},
                 {RT_SET_COLUMN, "\"columns\":[{\"name\":\"c\",", "}]"},
                 {RT_SET_SLICE, "\"column\":\"c\",\"values\":[{\"value\":\"v\",", "}]"}};
    for (size_t l = 0; l < RT_COUNT_OF(lists); l++) {
        for (uint32_t i = 0; i < rt_metric_sets[lists[l].set].count; i++) {
            const rt_metric *metric = &rt_metric_sets[lists[l].set].metrics[i];
            const double value = 7000001 + 1000 * i; // in MB, too, a number of its own
            char line[512], number[32], want[128];
            if (!metric->from)
                continue;
            rt_view *view = make_view();
            rt_json json;
            rt_page text = {0}, page = {0};
            snprintf(line, sizeof line, "{\"record\":\"%s\",\"time_s\":1,%s\"%s\":%.0f%s}",
                     metric->from, lists[l].before, metric->at, value, lists[l].after);
            assert_true(rt_view_take(view, line, BEGIN_S));
            rt_json_init(&json, 0);
            rt_view_write_json(view, NULL, BEGIN_S, &json);
            assert_int_equal(rt_view_write_prometheus(view, NULL, BEGIN_S, &text), RT_OK);
            rt_view_write_page(view, NULL, BEGIN_S, &page);
            snprintf(want, sizeof want, "\"%s\":%.0f", metric->status, value);
            if (metric->status)
                must_be_in(metric, rt_json_text(&json, NULL), want);
            snprintf(want, sizeof want, "} %.0f\n", value);
            if (metric->series) {
                must_be_in(metric, text.text, want);
                must_be_in(metric, text.text, metric->series);
            }
            snprintf(want, sizeof want, "<td>%s</td>",
                     rt_form_text(metric->cell.form, metric->cell.scale * value, number));
            if (metric->cell.title)
                must_be_in(metric, page.text, want);
            rt_json_fini(&json);
            rt_page_fini(&text);
            rt_page_fini(&page);
            rt_view_fini(view);
        }
    }
}

// Nothing hides another one: names, places, and members are there once, and each says what it is.
static void lines_are_apart(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < RT_RUN_METRICS; i++) {
        const rt_metric *one = rt_metric_of_run(i);
        assert_true(strlen(one->help) > 5 && one->help[strlen(one->help) - 1] == '.');
        assert_true(!one->from == !one->at);
        for (uint32_t k = 0; k < i; k++) {
            const rt_metric *other = rt_metric_of_run(k);
            const bool same =
                (one->status && other->status && strcmp(one->status, other->status) == 0) ||
                (one->series && other->series && strcmp(one->series, other->series) == 0 &&
                 !(one->labels && other->labels && strcmp(one->labels, other->labels) != 0)) ||
                (one->tile.id && other->tile.id && strcmp(one->tile.id, other->tile.id) == 0) ||
                (one->top.place && one->top.place == other->top.place) ||
                (one->column.place && one->column.place == other->column.place) ||
                strcmp(one->name, other->name) == 0;
            if (same)
                fail_msg("%s and %s are at one place", other->name, one->name);
        }
    }
}

static void must_hold(const rt_page *page, const char *part, bool holds)
{
    if ((strstr(page->text, part) != NULL) != holds)
        fail_msg("\"%s\" is %sthere", part, holds ? "not " : "");
}

static void is_a_page(void **state)
{
    (void)state;
    rt_view *view = make_full_view();
    rt_page page = {0}, body = {0}, event = {0};
    rt_view_write_page(view, NULL, BEGIN_S + 3, &page);
    must_hold(&page, "<b id=\"iteration\">2</b>", true);
    must_hold(&page, "<b id=\"loss\">0.6250</b>", true);
    must_hold(&page, "a &amp; b", true);
    must_hold(&page, "&lt;b&gt;&quot;\\x", true);
    must_hold(&page, "<b>\"", false);
    must_hold(&page, "<script>\xef\xbf\xbd", false);
    must_hold(&page, "http://", false); // nothing of elsewhere is needed
    must_hold(&page, "https://", false);
    rt_view_write_body(view, NULL, BEGIN_S + 3, &body);
    rt_view_write_event(&body, &event);
    for (const char *at = event.text; *at; at = strchr(at, '\n') + 1) {
        const bool is_last = *at == '\n' && !at[1];
        assert_true(is_last || strncmp(at, "data: ", 6) == 0 || strncmp(at, "retry: ", 7) == 0);
    }
    rt_page_fini(&page);
    rt_page_fini(&body);
    rt_page_fini(&event);
    rt_view_fini(view);
}

// What fires says since when; what people ask first comes first; the name is text from outside.
static void has_an_order(void **state)
{
    (void)state;
    static const rt_alerts_config config = {.no_progress_s = 60};
    rt_alerts alerts;
    rt_view *view = make_full_view();
    rt_page page = {0};
    snprintf(view->name, sizeof view->name, "run<1>");
    rt_alerts_init(&config, "", &alerts);
    rt_alerts_step(&alerts, view, BEGIN_S + 70);
    rt_view_write_page(view, &alerts, BEGIN_S + 70 + 300, &page);
    must_hold(&page, "<title>run&lt;1&gt;</title>", true);
    must_hold(&page, "<small id=\"name\">run&lt;1&gt;</small>", true);
    must_hold(&page,
              "<p class=\"alert\" data-alert=\"no_progress\">no iteration was trained"
              " <small>since 1970-01-01 00:17 UTC</small><small> (for 5 min)</small></p>",
              true);
    must_hold(&page, "<p class=\"warn\"><small>6 min ago: </small>&lt;script&gt;", true);
    static const char *const titles[] = {"<h3>Log loss", "<h3>AUC", "<h3>Calibration", "<h3>Speed",
                                         "<h3>Transmission"};
    const char *at = page.text;
    for (size_t i = 0; i < RT_COUNT_OF(titles); i++) {
        at = strstr(at, titles[i]);
        if (!at)
            fail_msg("%s is not behind %s", titles[i], i ? titles[i - 1] : "the beginning");
    }
    rt_page_fini(&page);
    rt_view_fini(view);
}

// A thousand iterations in a second, all in its first half: ten seconds hold as many of both.
static void speed_of_a_quick_run_is_smooth(void **state)
{
    (void)state;
    rt_view *view = make_view();
    for (unsigned t = 0; t < 24000; t++) {
        give(view, t + 1, t / 1000 + 0.5e-3 * (t % 1000), 0, 0.5);
        const double now = rt_view_rates_of(view, NAN).iterations_per_s;
        if (t > 11000)
            test_close(now, 1000, 0.08, 1, "iterations/s");
    }
    rt_view_fini(view);
}

// The choice of the axis stands outside of what is replaced; both axes are drawn.
static void axes_can_be_chosen(void **state)
{
    (void)state;
    rt_view *view = make_view();
    rt_page page = {0};
    for (unsigned t = 0; t < 40; t++)
        give(view, t + 1, 10 * t, 0, 0.5);
    rt_view_write_page(view, NULL, BEGIN_S + 400, &page);
    const char *choice = strstr(page.text, "id=\"axis\""), *main = strstr(page.text, "<main");
    assert_true(choice && main && choice < main);
    must_hold(&page, "class=\"end\">minutes<", true);
    must_hold(&page, "class=\"end\">iteration<", true);
    must_hold(&page, "<g class=\"by-time\">", true);
    rt_page_fini(&page);
    rt_view_fini(view);
}

// A process that goes on begins with time 0: the axis does not.
static void time_goes_on(void **state)
{
    (void)state;
    double iterations[RT_VIEW_POINTS], times_s[RT_VIEW_POINTS], y[RT_VIEW_POINTS];
    rt_view *view = make_view();
    give(view, 1, 100, 0, 0.5);
    give(view, 2, 200, 0, 0.5);
    give(view, 3, 300, 0, 0.5);
    assert_true(
        rt_view_take(view, "{\"record\":\"resumed\",\"time_s\":0,\"iteration\":2}", BEGIN_S + 400));
    give(view, 3, 5, 0, 0.5);
    assert_true(rt_view_line(view, RT_RUN_window_log_loss, iterations, times_s, y));
    assert_int_equal(view->course.count, 3);
    assert_true(iterations[2] == 3 && times_s[1] == 200);
    test_close(times_s[2], 305, 0, 1e-9, "seconds of training");
    rt_view_fini(view);
}

// One worker with one shard: neither placing nor links can be another.
static void one_box_has_no_links(void **state)
{
    (void)state;
    static const char *const titles[] = {"<h3>Links", "<h3>Transmission cost",
                                         "<h3>Predicted time"};
    rt_view *view = make_full_view();
    for (unsigned alone = 0; alone < 2; alone++) {
        rt_page page = {0};
        if (alone)
            view->worker_count = view->worker_most = view->shard_count = 1;
        rt_view_write_page(view, NULL, BEGIN_S + 70, &page);
        for (size_t i = 0; i < RT_COUNT_OF(titles); i++)
            must_hold(&page, titles[i], !alone);
        must_hold(&page, "<h3>Speed", true);
        rt_page_fini(&page);
    }
    rt_view_fini(view);
}

// Iterations that come in bursts: the speed is that of ten seconds, not of the last two of them.
static void speed_is_smooth(void **state)
{
    (void)state;
    rt_view *view = make_view();
    for (unsigned t = 0; t < 100; t++) // four at once, every second
        give(view, t + 1, t / 4 + 1e-4 * (t % 4), 0, 0.5);
    const uint32_t series = rt_view_series(RT_RUN_samples_per_s);
    for (uint32_t p = 60; p < view->course.count; p++)
        test_close(rt_mean_of(&view->course.points[p].values[series]), 400, 0.1, 1, "samples/s");
    rt_view_fini(view);
}

static void is_for_prometheus(void **state)
{
    (void)state;
    static const rt_alerts_config config = {.no_progress_s = 300};
    rt_alerts alerts;
    rt_view *view = make_full_view();
    rt_page text = {0};
    rt_alerts_init(&config, "", &alerts);
    assert_int_equal(rt_view_write_prometheus(view, &alerts, BEGIN_S + 3, &text), RT_OK);
    must_hold(&text, "\nlanyard_samples_total 200\n", true);
    must_hold(&text, "\nlanyard_window_log_loss 0.625\n", true);
    must_hold(&text, "{worker=\"2\",direction=\"up\"} 4000\n", true);
    must_hold(&text, "lanyard_last_iteration_timestamp_seconds 1002\n", true);
    must_hold(&text, "lanyard_column_empty_total{column=\"<b>\\\"\\\\x\"} 25\n", true);
    must_hold(&text, "lanyard_slice_log_loss{column=\"shop\",value=\"a & b\"} 0.5\n", true);
    must_hold(&text, "lanyard_shard_row_limit_bytes{shard=\"0\"} 80\n", true);
    must_hold(&text, "lanyard_shard_image_bytes{shard=\"0\"} 9\n", true);
    must_hold(&text, "nan", false);
    if (system("command -v promtool >/dev/null") != 0)
        test_skip("promtool is not installed (tools/setup watch)");
    FILE *file = fopen(test_path("metrics"), "w");
    assert_non_null(file);
    fwrite(text.text, 1, text.size, file);
    fclose(file);
    char command[600];
    snprintf(command, sizeof command, "promtool check metrics <%s 2>&1", test_path("metrics"));
    if (system(command) != 0)
        fail_msg("promtool finds fault");
    rt_page_fini(&text);
    rt_view_fini(view);
}

// ---- files -----------------------------------------------------------------------------------

static void append(const char *path, const char *text)
{
    FILE *file = fopen(path, "a");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

// A line that is not whole yet, a file that takes the place of this one, lines that are none.
static void follows_a_file(void **state)
{
    (void)state;
    char line[1024], path[600], other[640], folder[600];
    rt_view *view = make_view();
    rt_view_tail tail;
    rt_error error = {0};
    snprintf(path, sizeof path, "%s", test_path("metrics.jsonl"));
    snprintf(other, sizeof other, "%s.1", path);
    snprintf(folder, sizeof folder, "%.*s", (int)(strrchr(path, '/') - path), path);
    assert_int_equal(rt_view_tail_open(folder, &tail, &error), RT_NOT_FOUND);
    assert_non_null(strstr(error.text, "metrics.jsonl"));
    format_iteration(line, sizeof line, 1, 1, 0, 0.5);
    append(path, line);
    assert_int_equal(rt_view_tail_open(folder, &tail, &error), RT_OK);
    assert_int_equal(rt_view_tail_read(&tail, UINT64_MAX, view), 0);
    append(path, "\nrubbish\n");
    assert_int_equal(rt_view_tail_read(&tail, UINT64_MAX, view), 1);
    assert_int_equal(rt_view_tail_read(&tail, UINT64_MAX, view), 0);
    format_iteration(line, sizeof line, 2, 2, 0, 0.5);
    append(path, line);
    append(path, "\n");
    assert_int_equal(rename(path, other), 0);
    format_iteration(line, sizeof line, 3, 3, 0, 0.5);
    append(path, line);
    append(path, "\n");
    assert_int_equal(rt_view_tail_read(&tail, UINT64_MAX, view), 2); // the rest, then the new file
    assert_int_equal(view->iteration, 3);
    rt_view_tail_close(&tail);
    rt_view_fini(view);
}

TEST_MAIN(TEST(adds_up), TEST(alone), TEST(stays_small), TEST(goes_back), TEST(takes_no_nonsense),
          TEST(is_json), TEST(tells_of_the_standby), TEST(tells_of_the_accuracy), TEST(is_a_page),
          TEST(labels_are_apart), TEST(is_for_prometheus), TEST(follows_a_file),
          TEST(what_is_unsaved), TEST(begins_anew), TEST(tells_of_what_is_held),
          TEST(metrics_are_shown), TEST(the_others_are_shown), TEST(has_an_order),
          TEST(speed_of_a_quick_run_is_smooth), TEST(axes_can_be_chosen), TEST(time_goes_on),
          TEST(one_box_has_no_links), TEST(speed_is_smooth), TEST(lists_are_shown),
          TEST(lines_are_apart))
