#include "dispatch/coordinator/dp_guard.h"

#include <inttypes.h>
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

static void hold(dp_verdict *verdict, bool is_early, const char *what, double value, double most,
                 const char *whose)
{
    verdict->is_held = true;
    verdict->is_early = is_early;
    snprintf(verdict->why, sizeof verdict->why, "%s is %.4f, expected at most %.4f: %s", what,
             value, most, whose);
}

// What chance does to the ratio: it is made by the samples of the rarer label.
static double noise_of(const dp_guard *guard)
{
    const double rarer = fmin(guard->labels, guard->samples - guard->labels);
    if (guard->class_count)
        return 1 / sqrt(fmax(guard->samples, 1));
    return 1 / sqrt(fmax(rarer, 1));
}

static void judge_entropy(const dp_guard *guard, double margin, dp_verdict *verdict)
{
    const double entropy = verdict->normalised_entropy;
    const double by_base = 1 + margin, by_good = guard->good_entropy * (1 + margin);
    if (margin <= 0)
        return;
    if (entropy > by_base)
        hold(verdict, entropy <= by_base + noise_of(guard), "log loss / base rate's", entropy,
             by_base, "the base rate's and the margin");
    else if (guard->good_entropy > 0 && entropy > by_good)
        hold(verdict, false, "log loss / base rate's", entropy, by_good,
             "the last good model's and the margin");
}

// On a scale where twice and half as much are as far from 1.
static double distance_of(double calibration)
{
    return fabs(log(calibration));
}

static void judge_calibration(const dp_guard *guard, double margin, dp_verdict *verdict)
{
    const double distance = distance_of(verdict->calibration);
    double good = 0;
    if (guard->good_calibration > 0)
        good = distance_of(guard->good_calibration);
    const double most = good + log1p(margin);
    if (margin > 0 && !isnan(verdict->calibration) && !verdict->is_held && !(distance <= most))
        hold(verdict, distance <= most + noise_of(guard), "calibration's factor from 1",
             exp(distance), exp(most), "the last good model's and the margin");
}

static void wait(dp_verdict *verdict, const char *why)
{
    verdict->is_held = verdict->is_early = true;
    snprintf(verdict->why, sizeof verdict->why, "%s", why);
}

void dp_guard_judge(const dp_guard *guard, const rt_publish_config *config, bool is_learnt,
                    dp_verdict *verdict)
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
    if (!is_learnt)
        wait(verdict, "nothing has been learnt yet: labels of both classes have to come first");
    else if (config->guard_log_loss <= 0 && config->guard_calibration <= 0)
        return;
    else if (isnan(verdict->normalised_entropy))
        wait(verdict, "it cannot be judged yet: labels of both classes have to come first");
    else
        judge_entropy(guard, config->guard_log_loss, verdict);
    if (!verdict->is_held)
        judge_calibration(guard, config->guard_calibration, verdict);
}

static bool is_worse(const rt_publish_config *config, const dp_comparison *c)
{
    const double *loss = c->log_loss, *calibration = c->calibration;
    const double most = loss[DP_THEIRS] * (1 + config->guard_log_loss);
    if (config->guard_log_loss > 0 && !(loss[DP_OURS] <= most + 2 * c->difference_deviation))
        return true;
    if (config->guard_calibration <= 0 || isnan(calibration[DP_OURS]))
        return false;
    const double far = distance_of(calibration[DP_THEIRS]) + log1p(config->guard_calibration);
    return !(distance_of(calibration[DP_OURS]) <= far + 2 / sqrt(fmax(c->ones, 1)));
}

static void compared(const dp_comparison *c, uint32_t in_force, const char *so, char *why,
                     size_t size)
{
    char text[4][RT_QUALITY_TEXT];
    snprintf(why, size,
             "on the last %" PRIu32 " labelled samples its log loss is %s, calibration %s; those "
             "of the version in force (iteration %" PRIu32 ") are %s, %s%s",
             c->count, rt_quality_show(c->log_loss[DP_OURS], 4, text[0]),
             rt_quality_show(c->calibration[DP_OURS], 3, text[1]), in_force,
             rt_quality_show(c->log_loss[DP_THEIRS], 4, text[2]),
             rt_quality_show(c->calibration[DP_THEIRS], 3, text[3]), so);
}

// By samples of one label alone a model that says nothing but that one is the better.
#define RARER_LEAST 4u

void dp_guard_compare(const rt_publish_config *config, const dp_comparison *c, uint32_t in_force,
                      double held_s, dp_verdict *verdict)
{
    const bool is_over = held_s >= config->guard_hold_s;
    verdict->is_early = false;
    if (c->count == 0 || (c->rarer < RARER_LEAST && !is_over)) {
        if (!is_over)
            wait(verdict, "too few labelled samples, or too few of either label, have come since "
                          "the version in force was trained");
        return;
    }
    if (!is_worse(config, c)) {
        verdict->is_held = false;
        verdict->why[0] = '\0';
        return;
    }
    const bool is_better = c->log_loss[DP_OURS] <= c->log_loss[DP_THEIRS];
    verdict->is_held = !(is_over && is_better);
    verdict->is_chosen = !verdict->is_held;
    const char *so = "";
    if (is_over && !is_better)
        so = ", which stays in force: it is still the better of the two";
    compared(c, in_force, so, verdict->why, sizeof verdict->why);
}

void dp_guard_pass(dp_guard *guard, const dp_verdict *verdict)
{
    guard->good_entropy = known_or_0(verdict->normalised_entropy);
    guard->good_calibration = known_or_0(verdict->calibration);
}
