#define _GNU_SOURCE // pipe2
#include "runtime/watch/rt_alerts.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/rt_log.h"
#include "runtime/rt_spawn.h"

#define RECENT_S RT_VIEW_RECENT_S
#define STANDBY_AWAY_S 10.0 // a standby that starts again is back by then
#define LAST_WAIT_MS 2000
#define LAST_TURN_MS 10

typedef struct {
    const char *name, *text;
    uint32_t metric;
    bool is_below;
    double limit;
    size_t key;     // of the limit, in rt_alerts_config; 0: none
    uint32_t times; // a metric that it is multiplied by; 0: none
} condition;

#define ABOVE(number) .limit = number
#define BELOW(number) .is_below = true, .limit = number
#define ABOVE_KEY(member) .key = offsetof(rt_alerts_config, member)
#define BELOW_KEY(member) .is_below = true, .key = offsetof(rt_alerts_config, member)
#define TIMES(other) .times = RT_RUN_##other
#define XX(alert, words, of, ...) \
    {.name = #alert, .text = words, .metric = RT_RUN_##of, __VA_ARGS__},
static const condition conditions[] = {RT_ALERTS_MAP(XX)};
#undef XX

const char *rt_alert_name(rt_alert_kind kind)
{
    return conditions[kind].name;
}

const char *rt_alert_text(rt_alert_kind kind)
{
    return conditions[kind].text;
}

void rt_alerts_init(const rt_alerts_config *config, const char *run, rt_alerts *alerts)
{
    *alerts = (rt_alerts){.config = config, .run = run};
}

// ---- conditions ------------------------------------------------------------------------------

static double threshold_of(const rt_alerts *alerts, const condition *c, const double *values)
{
    double limit = c->limit;
    if (c->key)
        memcpy(&limit, (const char *)alerts->config + c->key, sizeof limit);
    return c->times ? limit * values[c->times] : limit;
}

static bool holds(const condition *c, double value, double threshold)
{
    if (isnan(value) || !(threshold > 0))
        return false;
    return c->is_below ? value < threshold : value > threshold;
}

// Whom it is about, or how much; "": the run.
static void describe(const rt_view *view, rt_alert_kind kind, char about[RT_VIEW_NAME])
{
    *about = '\0';
    if (kind == RT_ALERT_input_lost)
        snprintf(about, RT_VIEW_NAME, "%.0f lost, %.0f times another input", view->input_lost,
                 view->input_breaks);
    else if (kind == RT_ALERT_link_slow)
        (void)rt_view_link_share(view, about);
    else if (kind == RT_ALERT_memory)
        (void)rt_view_memory_share(view, about);
    else if (kind == RT_ALERT_worker_out)
        snprintf(about, RT_VIEW_NAME, "worker %" PRIu32, view->out[0]);
    else if (kind == RT_ALERT_model_held)
        snprintf(about, RT_VIEW_NAME, "iteration %.0f is in force", view->in_force);
}

static void note_change(rt_alerts *alerts, rt_alert_kind kind, double unix_s)
{
    rt_alert *one = &alerts->alerts[kind];
    one->is_firing = !one->is_firing;
    if (one->is_firing) {
        one->since_unix_s = unix_s;
        one->is_waiting = true;
        rt_info("alert %s: %s%s%s (%.4g, threshold %.4g)", conditions[kind].name,
                conditions[kind].text, *one->about ? ": " : "", one->about, one->value,
                one->threshold);
        return;
    }
    rt_info("alert %s is over", conditions[kind].name);
    one->is_waiting = one->is_told;
}

static void judge(rt_alerts *alerts, const rt_view *view, double unix_s)
{
    double values[RT_RUN_METRICS];
    rt_view_values(view, unix_s, values);
    for (int kind = 0; kind < RT_ALERT_COUNT; kind++) {
        const condition *c = &conditions[kind];
        rt_alert *one = &alerts->alerts[kind];
        one->value = values[c->metric];
        one->threshold = threshold_of(alerts, c, values);
        const bool fires = holds(c, one->value, one->threshold);
        if (fires)
            describe(view, (rt_alert_kind)kind, one->about);
        if (fires != one->is_firing)
            note_change(alerts, (rt_alert_kind)kind, unix_s);
    }
}

// ---- the command -----------------------------------------------------------------------------

static void write_report(const rt_alerts *alerts, const rt_view *view, rt_alert_kind kind,
                         double unix_s, rt_json *json)
{
    const rt_alert *one = &alerts->alerts[kind];
    rt_json_begin_object(json, NULL);
    rt_json_string(json, "alert", conditions[kind].name);
    rt_json_string(json, "state", one->is_firing ? "firing" : "over");
    rt_json_string(json, "text", conditions[kind].text);
    rt_json_string(json, "about", one->about);
    rt_json_double(json, "value", one->value);
    rt_json_double(json, "threshold", one->threshold);
    rt_json_double(json, "since_unix_s", one->since_unix_s + view->ahead_s);
    rt_json_double(json, "unix_s", unix_s + view->ahead_s);
    rt_json_string(json, "run", alerts->run);
    rt_json_double(json, "iteration", view->iteration);
    rt_json_end_object(json);
}

// The report is shorter than what a pipe takes at once: writing never waits.
static void run_command(rt_alerts *alerts, const char *report, size_t size)
{
    int pipes[2] = {-1, -1};
    int cause = 0;
    if (pipe2(pipes, O_CLOEXEC) != 0 || fcntl(pipes[1], F_SETFL, O_NONBLOCK) != 0 ||
        write(pipes[1], report, size) != (ssize_t)size)
        cause = errno;
    if (!cause)
        cause = rt_spawn_shell(alerts->config->command, NULL, pipes[0], &alerts->child);
    for (int i = 0; i < 2; i++) {
        if (pipes[i] >= 0)
            close(pipes[i]);
    }
    alerts->child_ns = rt_now_ns();
    alerts->commands++;
    alerts->failures += cause != 0;
    if (cause)
        rt_warn("alerts.command cannot be run: %s", strerror(cause));
}

// As a shell has it.
static int status_of(int how)
{
    if (WIFEXITED(how))
        return WEXITSTATUS(how);
    return 128 + WTERMSIG(how);
}

static void look_after(rt_alerts *alerts)
{
    int how = 0;
    if (!alerts->child)
        return;
    const pid_t ended = waitpid(alerts->child, &how, WNOHANG);
    const bool is_late = (double)(rt_now_ns() - alerts->child_ns) * 1e-9 > RT_ALERTS_COMMAND_S;
    if (ended == 0 && !is_late)
        return;
    if (ended == 0) {
        (void)kill(-alerts->child, SIGKILL);
        (void)waitpid(alerts->child, &how, 0); // killed: it ends at once
    }
    alerts->child = 0;
    if (ended > 0 && WIFEXITED(how) && WEXITSTATUS(how) == 0)
        return;
    alerts->failures++;
    if (is_late)
        rt_warn("alerts.command took more than %.0f s and was ended", RT_ALERTS_COMMAND_S);
    else
        rt_warn("alerts.command failed (status %d)", status_of(how));
}

static void tell(rt_alerts *alerts, const rt_view *view, rt_alert_kind kind, double unix_s)
{
    rt_json json;
    size_t size;
    rt_alert *one = &alerts->alerts[kind];
    rt_json_init(&json, 0);
    write_report(alerts, view, kind, unix_s, &json);
    const char *text = rt_json_text(&json, &size);
    if (text) {
        json.text[size] = '\n'; // in the place of the terminating zero
        run_command(alerts, text, size + 1);
    }
    rt_json_fini(&json);
    one->is_waiting = false;
    one->is_told = one->is_firing;
    if (one->is_firing)
        one->told_unix_s = unix_s;
}

// What waits, one after the other; the beginning of an alert not before every_s are over
// since it began last, and only if it fires then.
static void tell_next(rt_alerts *alerts, const rt_view *view, double unix_s)
{
    for (int kind = 0; kind < RT_ALERT_COUNT && !alerts->child; kind++) {
        const rt_alert *one = &alerts->alerts[kind];
        const bool is_early = one->is_firing && one->told_unix_s > 0 &&
                              unix_s - one->told_unix_s < alerts->config->every_s;
        if (one->is_waiting && !is_early)
            tell(alerts, view, (rt_alert_kind)kind, unix_s);
    }
}

void rt_alerts_step(rt_alerts *alerts, const rt_view *view, double unix_s)
{
    judge(alerts, view, unix_s);
    if (!*alerts->config->command)
        return;
    look_after(alerts);
    tell_next(alerts, view, unix_s);
}

void rt_alerts_fini(rt_alerts *alerts)
{
    for (int i = 0; i < LAST_WAIT_MS / LAST_TURN_MS && alerts->child; i++) {
        (void)poll(NULL, 0, LAST_TURN_MS);
        look_after(alerts);
    }
    if (!alerts->child)
        return;
    (void)kill(-alerts->child, SIGKILL);
    (void)waitpid(alerts->child, NULL, 0);
    alerts->child = 0;
}
