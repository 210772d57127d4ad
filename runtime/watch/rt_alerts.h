// rt_alerts - when somebody should look at a run, by what a view knows of it; and who is told.
//
// The conditions are those of configs/prometheus/alerts.yml, with the thresholds of the section
// `alerts`. The command runs beside the run, one at a time, for at most RT_ALERTS_COMMAND_S; nobody
// waits for it. One thread.
//
// An alert says that something is wrong and not done: what nobody has trained is missed by nobody,
// and what was is over after a while.
#ifndef RT_ALERTS_H
#define RT_ALERTS_H

#include "runtime/watch/rt_view.h"

// clang-format off

// XX(name, what it says, a metric of the run, and when it fires): above or below a limit, or a key
// of the section `alerts`, which may be in units of another metric.
#define RT_ALERTS_MAP(XX)                                                                          \
    XX(no_progress, "no iteration was trained", idle_s, ABOVE_KEY(no_progress_s))                  \
    XX(loss_not_finite, "a batch had a loss that is not finite", bad_age_s, BELOW(RECENT_S))       \
    XX(loss_drift, "the log loss is higher than it was", loss_drift, ABOVE_KEY(loss_drift))        \
    XX(malformed, "many lines are malformed", malformed_now, ABOVE_KEY(malformed_share))           \
    XX(input_lost, "events are lost, or an input is another one", lost_age_s, BELOW(RECENT_S))     \
    XX(link_slow, "a link is slower than it was", link_share, BELOW_KEY(link_share))               \
    XX(checkpoint_old, "what was trained is in no checkpoint", unsaved_s,                          \
       ABOVE_KEY(checkpoint_age), TIMES(checkpoint_every_s))                                       \
    XX(memory, "memory is near its limit", memory_share, ABOVE_KEY(memory_share))                  \
    XX(worker_out, "a worker does not take part", workers_out, ABOVE(0.5))                         \
    XX(standby_away, "the standby does not answer", standby_away_s, ABOVE(STANDBY_AWAY_S))         \
    XX(times_doubted, "the times of some records are wrong", doubted_age_s, BELOW(RECENT_S))       \
    XX(model_held, "the guard holds back what is trained", held, ABOVE(0.5))

// clang-format on

#define XX(name, ...) RT_ALERT_##name,
typedef enum { RT_ALERTS_MAP(XX) RT_ALERT_COUNT } rt_alert_kind;
#undef XX

#define RT_ALERTS_COMMAND_S 30.0

typedef struct {
    bool is_firing;
    double value, threshold;
    double since_unix_s;
    char about[RT_VIEW_NAME]; // whom it is about; "": the run
    bool is_told;             // that it fires; the end is told, too
    bool is_waiting;          // to be told, or that it ended
    double told_unix_s;       // 0: never
} rt_alert;

typedef struct {
    const rt_alerts_config *config; // stays the caller's
    const char *run;                // its folder, for the command
    rt_alert alerts[RT_ALERT_COUNT];
    int child; // process group of the command that runs; 0: none
    uint64_t child_ns;
    uint64_t commands, failures; // that were run; that could not be, failed, or took too long
} rt_alerts;

void rt_alerts_init(const rt_alerts_config *config, const char *run, rt_alerts *alerts);

// Judges what is now, says it in the log when something changes, runs the command where it is due,
// and looks after one that runs. Returns at once.
void rt_alerts_step(rt_alerts *alerts, const rt_view *view, double unix_s);

// Waits for a command that runs, for two seconds at most, then ends it.
void rt_alerts_fini(rt_alerts *alerts);

const char *rt_alert_name(rt_alert_kind kind);
const char *rt_alert_text(rt_alert_kind kind);

#endif
