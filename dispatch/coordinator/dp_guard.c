#include "dispatch/coordinator/dp_guard.h"

#include <math.h>
#include <stdio.h>

void dp_guard_add(dp_guard *guard, const rt_publish_config *config, const rt_quality *batch)
{
    const double count = (double)batch->sample_count;
    if (count == 0 || !isfinite(batch->log_loss) || !isfinite(batch->mean_label))
        return;
    const double stays = exp(-count / (double)config->guard_samples);
    guard->samples = guard->samples * stays + count;
    guard->loss = guard->loss * stays + count * batch->log_loss;
    guard->predicted = guard->predicted * stays + count * batch->mean_prediction;
    guard->labels = guard->labels * stays + count * batch->mean_label;
    guard->class_count = batch->class_count;
}

// Of a model that always says the mean label.
static double known_or_0(double value)
{
    return isnan(value) ? 0 : value;
}

static double entropy_of(double p)
{
    if (p > 0 && p < 1)
        return -p * log(p) - (1 - p) * log(1 - p);
    return NAN;
}

static void hold(dp_verdict *verdict, const char *what, double value, double most,
                 const char *whose)
{
    verdict->is_held = true;
    snprintf(verdict->why, sizeof verdict->why, "%s is %.4f, expected at most %.4f: %s", what,
             value, most, whose);
}

static void judge_entropy(const dp_guard *guard, double margin, dp_verdict *verdict)
{
    const double entropy = verdict->normalised_entropy;
    const double by_base = 1 + margin, by_good = guard->good_entropy * (1 + margin);
    if (margin <= 0 || isnan(entropy))
        return;
    if (entropy > by_base)
        hold(verdict, "log loss / base rate's", entropy, by_base, "the base rate's and the margin");
    else if (guard->good_entropy > 0 && entropy > by_good)
        hold(verdict, "log loss / base rate's", entropy, by_good,
             "the last good model's and the margin");
}

// Distances from 1 on a scale where twice and half as much are as far.
static void judge_calibration(const dp_guard *guard, double margin, dp_verdict *verdict)
{
    const double distance = fabs(log(verdict->calibration));
    double good = 0;
    if (guard->good_calibration > 0)
        good = fabs(log(guard->good_calibration));
    const double most = good + log1p(margin);
    if (margin > 0 && !isnan(verdict->calibration) && !verdict->is_held && !(distance <= most))
        hold(verdict, "calibration's factor from 1", exp(distance), exp(most),
             "the last good model's and the margin");
}

void dp_guard_judge(dp_guard *guard, const rt_publish_config *config, dp_verdict *verdict)
{
    *verdict = (dp_verdict){.log_loss = NAN, .normalised_entropy = NAN, .calibration = NAN};
    if (guard->samples > 0) {
        verdict->log_loss = guard->loss / guard->samples;
        double base;
        if (guard->class_count)
            base = log(guard->class_count);
        else
            base = entropy_of(guard->labels / guard->samples);
        verdict->normalised_entropy = verdict->log_loss / base;
        verdict->calibration = guard->labels > 0 ? guard->predicted / guard->labels : NAN;
    }
    judge_entropy(guard, config->guard_log_loss, verdict);
    judge_calibration(guard, config->guard_calibration, verdict);
    if (verdict->is_held)
        return;
    guard->good_entropy = known_or_0(verdict->normalised_entropy);
    guard->good_calibration = known_or_0(verdict->calibration);
}
