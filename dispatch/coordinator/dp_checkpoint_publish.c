// A complete checkpoint becomes a published version, unless the guard holds it back.
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "dispatch/coordinator/dp_checkpoint_parts.h"
#include "runtime/files/rt_checkpoint.h"
#include "runtime/files/rt_manifest.h"
#include "runtime/files/rt_published.h"
#include "runtime/rt_log.h"

#define TELL_NS UINT64_C(60000000000) // between two warnings of versions that are held back

static rt_status write_version(void *context, const char *version, rt_error *error)
{
    const dp_checkpoint *c = context;
    const dp_verdict *verdict = &c->content.verdict;
    rt_json json;
    dp_checkpoint_begin_manifest(c, RT_MANIFEST_FORMAT, &json);
    rt_manifest_put_hash(&json, "run", c->run);
    rt_json_double(&json, "trained_s", c->content.trained_s);
    rt_json_double(&json, "since_s", c->published_s > 0 ? c->published_s : c->content.trained_s);
    rt_json_bool(&json, "held", verdict->is_held);
    rt_json_double(&json, "logloss", verdict->log_loss);
    rt_json_double(&json, "normalised_entropy", verdict->normalised_entropy);
    rt_json_double(&json, "calibration", verdict->calibration);
    dp_checkpoint_put_parts(c, &json, false);
    return rt_manifest_write(&json, version, error);
}

// How the version in force does on the samples that have come since it was trained. False: none is,
// or it is pinned, or cannot be read.
static bool compare(const dp_checkpoint *c, uint32_t *in_force_p, dp_comparison *comparison)
{
    rt_published current = {0};
    char folder[RT_FOLDER_MAX];
    rt_error error = {0};
    const dp_evidence *evidence = c->config.evidence;
    if (!c->config.recall || rt_published_read(c->published, &current, NULL) || current.pinned ||
        current.iteration >= c->content.iteration ||
        rt_checkpoint_path(c->published, current.iteration, folder, sizeof folder, NULL))
        return false;
    const uint32_t outputs = rt_config_output_count(&c->config.config->stream);
    const uint32_t first = dp_evidence_first(evidence, current.iteration);
    const uint32_t count = evidence->batch.sample_count - first;
    float *theirs = rt_alloc(rt_max_u64((uint64_t)count * outputs, 1), sizeof *theirs);
    rt_status status = RT_NO_MEMORY;
    if (theirs)
        status = c->config.recall(folder, &evidence->batch, first, outputs, theirs, &error);
    if (!status)
        dp_evidence_compare(evidence, first, theirs, outputs, comparison);
    else
        rt_warn("the version in force cannot be held against the newest: %s", error.text);
    rt_free(theirs);
    *in_force_p = current.iteration;
    return status == RT_OK;
}

// In the forked copy, whose verdict goes into the manifest; the process itself takes the same
// numbers and comes to the same.
static void judge(dp_checkpoint *c, rt_child_result *result)
{
    uint32_t in_force;
    dp_comparison comparison;
    dp_verdict *verdict = &c->content.verdict;
    if (!verdict->is_held || isnan(verdict->normalised_entropy) ||
        !compare(c, &in_force, &comparison))
        return;
    dp_guard_compare(&c->margins, &comparison, in_force, c->held_s, verdict);
    result->values[IN_FORCE] = in_force;
    result->values[COMPARED] = true;
    memcpy(result->values + OF_COMPARISON, &comparison, sizeof comparison);
}

rt_status dp_checkpoint_publish(dp_checkpoint *c, rt_child_result *result)
{
    rt_published current = {0};
    int lock;
    rt_error *error = &result->error;
    const uint32_t iteration = c->content.iteration;
    judge(c, result);
    rt_status status = rt_published_lock(c->published, &lock, error);
    if (status)
        return status;
    if (rt_published_read(c->published, &current, NULL))
        current = (rt_published){0};
    result->values[IS_FIRST] = current.iteration == 0;
    result->values[PINNED] = current.pinned ? current.iteration : 0;
    const dp_verdict *verdict = &c->content.verdict;
    if (!current.pinned && verdict->is_held && current.iteration > iteration) {
        result->values[LEFT_OUT] = true; // of another run: it stays in force until one passes
        close(lock);
        return RT_OK;
    }
    if (!current.pinned)
        rt_published_remove_above(c->published, iteration);
    status = rt_published_add(c->published, iteration, c->folder, write_version, c, error);
    const uint32_t before = current.held;
    if (!current.pinned && !verdict->is_held)
        current = (rt_published){.iteration = iteration};
    else if (!current.pinned && !verdict->is_early)
        current.held = iteration;
    if (!status && current.iteration && (current.iteration == iteration || current.held != before))
        status = rt_published_write(c->published, &current, error);
    if (!status)
        rt_published_prune(c->published, c->config.config->publish.keep, false);
    close(lock);
    return status;
}

// The process takes over what its copy has found.
static void take_verdict(dp_checkpoint *c, const rt_child_result *result, uint32_t *in_force_p,
                         dp_comparison *comparison)
{
    dp_verdict *verdict = &c->content.verdict;
    *in_force_p = (uint32_t)result->values[IN_FORCE];
    *comparison = (dp_comparison){0};
    if (result->values[COMPARED]) {
        memcpy(comparison, result->values + OF_COMPARISON, sizeof *comparison);
        dp_guard_compare(&c->margins, comparison, *in_force_p, c->held_s, verdict);
    }
    if (verdict->is_held) {
        const bool is_first = result->values[IS_FIRST];
        // Also of one that waits for samples to compare by: it may be that none come.
        if (!c->held_ns && (is_first || !verdict->is_early || result->values[COMPARED]))
            c->held_ns = rt_now_ns();
        verdict->is_early |= is_first && c->held_s < c->margins.guard_hold_s; // it has just begun
        c->held_count += !verdict->is_early;
        return;
    }
    dp_guard_pass(c->config.guard, verdict);
    c->held_ns = 0;
    c->held_count = 0;
}

static void tell_verdict(dp_checkpoint *c, bool is_first)
{
    const dp_verdict *verdict = &c->content.verdict;
    const uint64_t now_ns = rt_now_ns();
    const char *then = "the better of the newest and the one in force is published";
    if (is_first)
        then = "that is told, and servers wait as long as none is in force";
    if (verdict->is_chosen)
        rt_warn("alert: no version has passed the guard for %.0f s: that of iteration %" PRIu32
                " is in force now, as it is the better of the two: %s",
                c->held_s, c->content.iteration, verdict->why);
    if (!verdict->is_held || verdict->is_early ||
        (c->held_count > 1 && now_ns - c->told_ns < TELL_NS))
        return;
    c->told_ns = now_ns;
    rt_warn("alert: the model of iteration %" PRIu32 " is held back: %s. `lanyard set RUN "
            "publish.guard.log_loss 0.2` (and .calibration) changes what passes, 0 judges nothing; "
            "when none has passed for %.0f s (publish.guard.hold_s) %s",
            c->content.iteration, verdict->why, c->margins.guard_hold_s, then);
}

void dp_checkpoint_report_version(dp_checkpoint *c, const rt_child_result *result)
{
    uint32_t in_force;
    dp_comparison comparison;
    const dp_verdict *verdict = &c->content.verdict;
    c->is_chained = !result->error.status && !result->values[LEFT_OUT];
    if (result->error.status) {
        rt_warn("the model of iteration %" PRIu32 " could not be published: %s",
                c->content.iteration, result->error.text);
        return;
    }
    take_verdict(c, result, &in_force, &comparison);
    if (c->is_chained)
        c->published_s = c->content.trained_s;
    rt_json *json = rt_metrics_begin(c->config.metrics, "publish");
    rt_json_u64(json, "iteration", c->content.iteration);
    rt_json_bool(json, "held", verdict->is_held);
    rt_json_bool(json, "early", verdict->is_early);
    rt_json_u64(json, "held_count", c->held_count);
    if (result->values[PINNED])
        rt_json_u64(json, "pinned", result->values[PINNED]);
    rt_json_string(json, "why", verdict->why);
    rt_json_double(json, "logloss", verdict->log_loss);
    rt_json_double(json, "normalised_entropy", verdict->normalised_entropy);
    rt_json_double(json, "calibration", verdict->calibration);
    if (comparison.count) {
        rt_json_u64(json, "in_force", in_force);
        rt_json_u64(json, "compared", comparison.count);
        rt_json_double(json, "compared_logloss", comparison.log_loss[DP_OURS]);
        rt_json_double(json, "in_force_logloss", comparison.log_loss[DP_THEIRS]);
    }
    rt_metrics_end(c->config.metrics);
    tell_verdict(c, result->values[IS_FIRST]);
}
