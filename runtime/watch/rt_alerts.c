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

#define RECENT_S 300.0      // so long after it something is not over
#define STANDBY_AWAY_S 10.0 // a standby that starts again is back by then
#define LINES_MIN 100.0     // for a share of them
#define LAST_WAIT_MS 2000
#define LAST_TURN_MS 10

#define XX(name, text) #name,
static const char *const names[] = {RT_ALERTS_MAP(XX)};
#undef XX
#define XX(name, text) text,
static const char *const texts[] = {RT_ALERTS_MAP(XX)};
#undef XX

const char *rt_alert_name(rt_alert_kind kind)
{
    return names[kind];
}

const char *rt_alert_text(rt_alert_kind kind)
{
    return texts[kind];
}

void rt_alerts_init(const rt_alerts_config *config, const char *run, rt_alerts *alerts)
{
    *alerts = (rt_alerts){.config = config, .run = run};
}

// ---- conditions ------------------------------------------------------------------------------

// What a condition is about now: it fires where its value has passed the threshold.
typedef struct {
    double value, threshold; // value NAN: nothing is known
    bool is_below;           // it fires below the threshold
    char about[RT_VIEW_NAME];
} finding;

static void no_progress(const rt_alerts *alerts, const rt_view *view, double unix_s, finding *f)
{
    f->threshold = alerts->config->no_progress_s;
    if (view->iterations > 0 && !(view->waits_for_input > 0) && !view->has_ended)
        f->value = rt_view_age_s(view, view->iteration_time_s, unix_s);
}

static void loss_not_finite(const rt_alerts *alerts, const rt_view *view, double unix_s, finding *f)
{
    (void)alerts;
    f->threshold = RECENT_S;
    f->is_below = true;
    f->value = rt_view_age_s(view, view->bad_time_s, unix_s);
}

static void times_doubted(const rt_alerts *alerts, const rt_view *view, double unix_s, finding *f)
{
    (void)alerts;
    f->threshold = RECENT_S;
    f->is_below = true;
    f->value = rt_view_age_s(view, view->doubted_time_s, unix_s);
}

// A window, and as much before it to compare with.
static void loss_drift(const rt_alerts *alerts, const rt_view *view, double unix_s, finding *f)
{
    (void)unix_s;
    f->threshold = alerts->config->loss_drift;
    if (view->samples >= 2 * view->window_samples && view->reference_loss > 0)
        f->value = view->window_log_loss / view->reference_loss;
}

static void malformed(const rt_alerts *alerts, const rt_view *view, double unix_s, finding *f)
{
    f->threshold = alerts->config->malformed_share;
    if (view->samples + view->malformed >= LINES_MIN &&
        rt_view_age_s(view, view->iteration_time_s, unix_s) < RECENT_S)
        f->value = rt_view_rates_of(view, unix_s).malformed_share;
}

static void input_lost(const rt_alerts *alerts, const rt_view *view, double unix_s, finding *f)
{
    (void)alerts;
    f->threshold = RECENT_S;
    f->is_below = true;
    f->value = rt_view_age_s(view, view->lost_time_s, unix_s);
    snprintf(f->about, sizeof f->about, "%.0f lost, %.0f times another input", view->input_lost,
             view->input_breaks);
}

static void link_slow(const rt_alerts *alerts, const rt_view *view, double unix_s, finding *f)
{
    (void)unix_s;
    f->threshold = alerts->config->link_share;
    f->is_below = true;
    for (uint32_t j = 0; j < view->worker_count; j++) {
        static const char *const ways[2] = {"up", "down"};
        for (uint32_t way = 0; way < 2; way++) {
            const rt_view_way *one = &view->workers[j].ways[way];
            const double share = one->best > 0 ? one->bytes_per_s / one->best : (double)NAN;
            if (!isnan(share) && !(share >= f->value)) {
                f->value = share;
                snprintf(f->about, sizeof f->about, "worker %" PRIu32 ", %s", view->workers[j].rank,
                         ways[way]);
            }
        }
    }
}

static void checkpoint_old(const rt_alerts *alerts, const rt_view *view, double unix_s, finding *f)
{
    f->threshold = alerts->config->checkpoint_age * view->checkpoint_every_s;
    f->value = rt_view_unsaved_s(view, unix_s);
}

static void note_memory(finding *f, double bytes, double max, const char *who, uint32_t number)
{
    const double share = max > 0 ? bytes / max : (double)NAN;
    if (isnan(share) || share <= f->value)
        return;
    f->value = share;
    snprintf(f->about, sizeof f->about, "%s %" PRIu32, who, number);
}

static void memory(const rt_alerts *alerts, const rt_view *view, double unix_s, finding *f)
{
    (void)unix_s;
    f->threshold = alerts->config->memory_share;
    note_memory(f, view->coordinator.rss_bytes, view->coordinator.max_bytes, "coordinator", 0);
    for (uint32_t j = 0; j < view->worker_count; j++)
        note_memory(f, view->workers[j].memory.rss_bytes, view->workers[j].memory.max_bytes,
                    "worker", view->workers[j].rank);
    for (uint32_t s = 0; s < view->shard_count; s++)
        note_memory(f, view->shards[s].memory.rss_bytes, view->shards[s].memory.max_bytes, "ps", s);
}

static void worker_out(const rt_alerts *alerts, const rt_view *view, double unix_s, finding *f)
{
    (void)alerts;
    (void)unix_s;
    f->threshold = 0.5;
    f->value = view->out_count;
    if (view->out_count)
        snprintf(f->about, sizeof f->about, "worker %" PRIu32, view->out[0]);
}

static void standby_away(const rt_alerts *alerts, const rt_view *view, double unix_s, finding *f)
{
    (void)alerts;
    f->threshold = STANDBY_AWAY_S;
    f->value = rt_view_standby_away_s(view, unix_s);
}

static void model_held(const rt_alerts *alerts, const rt_view *view, double unix_s, finding *f)
{
    (void)alerts;
    (void)unix_s;
    f->threshold = 0.5;
    f->value = view->held;
    if (view->held > 0)
        snprintf(f->about, sizeof f->about, "iteration %.0f is in force", view->in_force);
}

#define XX(name, text) name,
static void (*const conditions[])(const rt_alerts *, const rt_view *, double,
                                  finding *) = {RT_ALERTS_MAP(XX)};
#undef XX

static bool holds(const finding *f)
{
    if (isnan(f->value) || !(f->threshold > 0))
        return false;
    if (f->is_below)
        return f->value < f->threshold;
    return f->value > f->threshold;
}

static void note_change(rt_alerts *alerts, rt_alert_kind kind, const finding *f, double unix_s)
{
    rt_alert *one = &alerts->alerts[kind];
    one->is_firing = !one->is_firing;
    if (one->is_firing) {
        one->since_unix_s = unix_s;
        one->is_waiting = true;
        const char *colon = *f->about ? ": " : "";
        rt_info("alert %s: %s%s%s (%.4g, threshold %.4g)", names[kind], texts[kind], colon,
                f->about, f->value, f->threshold);
        return;
    }
    rt_info("alert %s is over", names[kind]);
    one->is_waiting = one->is_told;
}

static void judge(rt_alerts *alerts, const rt_view *view, double unix_s)
{
    for (int kind = 0; kind < RT_ALERT_COUNT; kind++) {
        rt_alert *one = &alerts->alerts[kind];
        finding f = {.value = NAN, .threshold = NAN};
        conditions[kind](alerts, view, unix_s, &f);
        const bool changes = holds(&f) != one->is_firing;
        one->value = f.value;
        one->threshold = f.threshold;
        if (holds(&f))
            snprintf(one->about, sizeof one->about, "%s", f.about);
        if (changes)
            note_change(alerts, (rt_alert_kind)kind, &f, unix_s);
    }
}

// ---- the command -----------------------------------------------------------------------------

static void write_report(const rt_alerts *alerts, const rt_view *view, rt_alert_kind kind,
                         double unix_s, rt_json *json)
{
    const rt_alert *one = &alerts->alerts[kind];
    rt_json_begin_object(json, NULL);
    rt_json_string(json, "alert", names[kind]);
    rt_json_string(json, "state", one->is_firing ? "firing" : "over");
    rt_json_string(json, "text", texts[kind]);
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
