#include "dispatch/coordinator/dp_control.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dispatch/coordinator/dp_move.h"
#include "dispatch/coordinator/dp_run.h"
#include "dispatch/policies/dp_policy.h"
#include "runtime/config/rt_policies.h"
#include "runtime/files/rt_file.h"
#include "runtime/rt_hash.h"
#include "runtime/rt_log.h"
#include "runtime/transport/rt_ask.h"

#define LIST "forgotten" // beside the checkpoints
#define SUM "sum "       // its first line: of all bytes behind that
#define KEY_BYTES 17u    // 16 digits and the end of a line
#define SUM_BYTES (sizeof SUM - 1 + KEY_BYTES)
#define LIST_BYTES_MAX (SUM_BYTES + DP_FORGET_MAX * KEY_BYTES)
#define HEXADECIMAL "0123456789abcdef"
#define PLANNED_MORE 8u                    // batches and plans on their way, beside run-ahead
#define ASK_AGAIN_NS UINT64_C(10000000000) // for a checkpoint, where the one before failed

// ---- set -------------------------------------------------------------------------------------

void dp_control_take_over(dp_run *run, const dp_reloaded *values)
{
    const dp_reloaded *old = &run->settings.in_force;
    const double alpha = values->alpha_auto ? old->alpha : values->alpha;
    if (values->alpha != old->alpha || values->alpha_auto != old->alpha_auto)
        dp_controller_set_alpha(&run->settings.controller, values->alpha_auto, alpha);
    if (values->search_evaluations != old->search_evaluations ||
        values->budget_ms != old->budget_ms)
        dp_controller_set_search(&run->settings.controller, values->search_evaluations,
                                 values->budget_ms);
    run->settings.in_force = *values;
    dp_run_tell_records(run);
}

static rt_status set_search(dp_run *run, const rt_config *fresh, rt_error *error)
{
    const rt_dispatch_config *dispatch = &fresh->dispatch;
    const dp_reloaded values = {dispatch->alpha, dispatch->alpha_auto, dispatch->search_evaluations,
                                rt_dispatch_budget_ms(dispatch)};
    (void)error;
    dp_control_take_over(run, &values);
    return RT_OK;
}

// Versions that begin to be judged from now on.
static rt_status set_guard(dp_run *run, const rt_config *fresh, rt_error *error)
{
    rt_publish_config *margins = &run->run_config.publish;
    (void)error;
    margins->guard_log_loss = fresh->publish.guard_log_loss;
    margins->guard_calibration = fresh->publish.guard_calibration;
    margins->guard_hold_s = fresh->publish.guard_hold_s;
    return RT_OK;
}

static rt_status set_log_level(dp_run *run, const rt_config *fresh, rt_error *error)
{
    (void)run;
    (void)error;
    rt_log_set_level(fresh->log_level);
    return RT_OK;
}

static rt_status set_policy(dp_run *run, const rt_config *fresh, rt_error *error)
{
    const dp_input input = {.kind = DP_INPUT_POLICY,
                            .value = rt_policy_number(fresh->dispatch.policy)};
    const rt_dispatch_config *dispatch = &fresh->dispatch;
    if (dp_policy_chooses_tables(dispatch) && dispatch->view == RT_VIEW_STRICT)
        return rt_fail(
            error, RT_CONFIG,
            "dispatch.policy: with dispatch.view \"strict\" a run must begin with \"%s\" of "
            "chosen tables",
            rt_config_choice_name("dispatch.policy", (int)dispatch->policy));
    if (dp_policy_can(dispatch->policy, DP_POLICY_HOT) != (run->planning.planner.hot != NULL))
        return rt_fail(
            error, RT_CONFIG,
            "dispatch.policy: workers keep the rows of dispatch.profile from the beginning "
            "of a run, or never: going over to or from \"fae\" takes a restart");
    const rt_config *now = &run->run_config;
    if (fresh->consistency.bounded != now->consistency.bounded ||
        fresh->consistency.staleness != now->consistency.staleness ||
        fresh->cache.eviction != now->cache.eviction)
        return rt_fail(error, RT_CONFIG,
                       "dispatch.policy: \"%s\" has another consistency.staleness or "
                       "cache.eviction for \"auto\" than this run uses: a restart is needed",
                       rt_config_choice_name("dispatch.policy", (int)dispatch->policy));
    dp_feed_tell(run->feed, &input);
    return RT_OK;
}

// People name workers by their ranks, plans by their places.
static rt_status places_of(const dp_membership *members, uint64_t ranks, uint64_t *places_p,
                           rt_error *error)
{
    char names[256] = "";
    dp_membership_names(RT_ROLE_WORKER, ranks & ~members->worker_places, names, sizeof names);
    if (*names)
        return rt_fail(error, RT_CONFIG, "dispatch.participants: not in this run now: %s", names);
    *places_p = 0;
    for (; ranks; ranks &= ranks - 1)
        *places_p |= rt_bit(dp_membership_place(members, &members->workers[rt_lowest_bit(ranks)]));
    return RT_OK;
}

// Shards have the dense weights for who comes back only where the run began that way.
static rt_status set_participants(dp_run *run, const rt_config *fresh, rt_error *error)
{
    const rt_dispatch_config *dispatch = &fresh->dispatch;
    uint64_t who = dp_run_workers(run);
    rt_status status = RT_OK;
    if (run->run_config.dispatch.participants == RT_PARTICIPANTS_ALL)
        return rt_fail(
            error, RT_CONFIG,
            "dispatch.participants: this run began with \"all\": its shards keep no dense "
            "weights for workers that come back");
    const bool chooses = dispatch->participants == RT_PARTICIPANTS_AUTO ||
                         dispatch->participants == RT_PARTICIPANTS_ROTATE;
    if (chooses && run->run_config.dispatch.participants != dispatch->participants)
        return rt_fail(error, RT_CONFIG,
                       "dispatch.participants: only a run that began with it can choose");
    if (dispatch->participants == RT_PARTICIPANTS_LIST)
        status = places_of(dp_roster_members(run->roster), dispatch->participant_mask, &who, error);
    if (status)
        return status;
    dp_feed_choose_on(run->feed, chooses);
    if (chooses)
        return RT_OK;
    for (uint32_t w = 0; w < run->planning.limits.worker_count; w++) {
        const dp_input input = {
            .kind = DP_INPUT_PARTICIPATES, .worker = w, .value = (double)(who >> w & 1)};
        dp_feed_tell(run->feed, &input);
    }
    return RT_OK;
}

static rt_status set_rate(dp_run *run, const char *key, const rt_config *fresh, rt_error *error)
{
    rt_status status = dp_move_ask_rates(run, key, fresh, error);
    if (!status)
        run->move.visitor = run->control.visitor;
    return status;
}

static rt_status set_row_rate(dp_run *run, const rt_config *fresh, rt_error *error)
{
    return set_rate(run, "optimizer.rows.learning_rate", fresh, error);
}

static rt_status set_dense_rate(dp_run *run, const rt_config *fresh, rt_error *error)
{
    return set_rate(run, "optimizer.dense.learning_rate", fresh, error);
}

static const char by_plan[] = "from the next plan on", at_once[] = "from now on",
                  by_checkpoint[] =
                      "from the next checkpoint on, with which all processes start again",
                  by_version[] = "from the next version on";

static const struct {
    const char *key;
    rt_status (*apply)(dp_run *run, const rt_config *fresh, rt_error *error);
    const char *when; // it holds
} settable[] = {{"dispatch.alpha", set_search, by_plan},
                {"dispatch.search_evaluations", set_search, by_plan},
                {"dispatch.budget_ms", set_search, by_plan},
                {"dispatch.policy", set_policy, by_plan},
                {"dispatch.participants", set_participants, by_plan},
                {"optimizer.rows.learning_rate", set_row_rate, by_checkpoint},
                {"optimizer.dense.learning_rate", set_dense_rate, by_checkpoint},
                {"publish.guard.log_loss", set_guard, by_version},
                {"publish.guard.calibration", set_guard, by_version},
                {"publish.guard.hold_s", set_guard, by_version},
                {"log.level", set_log_level, at_once}};

_Static_assert(RT_COUNT_OF(settable) <= DP_SETTABLE_MAX, "dp_control.set has room for all");

static rt_status find_settable(const char *key, size_t *index_p, rt_error *error)
{
    char names[512] = "";
    size_t used = 0;
    for (size_t i = 0; i < RT_COUNT_OF(settable); i++) {
        if (strcmp(settable[i].key, key) == 0) {
            *index_p = i;
            return RT_OK;
        }
        used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", used ? ", " : "",
                                 settable[i].key);
    }
    return rt_fail(error, RT_CONFIG, "%s: cannot be set while a run trains; expected one of %s",
                   key, names);
}

static rt_status set_and_check(rt_config *config, const char *assignment, rt_error *error)
{
    rt_status status = rt_config_set(config, assignment, error);
    if (status)
        return status;
    status = rt_config_check(config, error);
    if (status)
        return status;
    return rt_config_check_training(config, error);
}

// The configuration with all that is set, and this.
static rt_status make_config(const dp_run *run, const char *assignment, rt_config *fresh,
                             rt_error *error)
{
    rt_status status = RT_OK;
    if (rt_config_copy(&run->site_config, fresh))
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    dp_members_set_rates(&run->members, fresh);
    for (size_t i = 0; i < RT_COUNT_OF(settable) && !status; i++) {
        if (run->control.set[i])
            status = rt_config_set(fresh, run->control.set[i], error);
    }
    if (!status)
        status = set_and_check(fresh, assignment, error);
    if (status)
        rt_config_fini(fresh);
    return status;
}

// The learning rates are those of the members' file, from the start anew on.
static rt_status keep(dp_control *control, size_t index, const char *assignment, rt_error *error)
{
    rt_free(control->set[index]);
    control->set[index] = NULL;
    if (settable[index].when == by_checkpoint)
        return RT_OK;
    control->set[index] = strdup(assignment);
    if (!control->set[index])
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    return RT_OK;
}

void dp_control_fini(dp_control *control)
{
    for (size_t i = 0; i < RT_COUNT_OF(settable); i++)
        free(control->set[i]);
}

static rt_status set(dp_run *run, const char *key, const char *value, char *answer, size_t size,
                     rt_error *error)
{
    rt_config fresh;
    char assignment[RT_ASK_BYTES_MAX];
    size_t index = 0;
    rt_status status = find_settable(key, &index, error);
    if (status)
        return status;
    snprintf(assignment, sizeof assignment, "%s=%s", key, value);
    status = make_config(run, assignment, &fresh, error);
    if (status)
        return status;
    status = settable[index].apply(run, &fresh, error);
    rt_config_fini(&fresh);
    if (!status)
        status = keep(&run->control, index, assignment, error);
    if (status)
        return status;
    rt_json *json = rt_metrics_begin(dp_stats_metrics(run->stats), "set");
    rt_json_string(json, "key", key);
    rt_json_string(json, "value", value);
    rt_metrics_end(dp_stats_metrics(run->stats));
    snprintf(answer, size, "%s is %s %s", key, value, settable[index].when);
    return RT_OK;
}

// ---- forget ----------------------------------------------------------------------------------

static void path_of_list(const dp_run *run, char path[RT_PATH_MAX + 16])
{
    snprintf(path, RT_PATH_MAX + 16, "%s/" LIST, run->folder.checkpoints);
}

// Whoever goes on from a checkpoint that still has the rows ends them again: a file beside the
// checkpoints names their keys until there is one without them. The sum stands first: a file of an
// earlier build has none, and one that was cut short must not look like that.
static rt_status write_list(const dp_run *run, rt_error *error)
{
    char path[RT_PATH_MAX + 16], text[LIST_BYTES_MAX + 1], sum[SUM_BYTES + 1];
    const dp_control *control = &run->control;
    size_t size = SUM_BYTES;
    for (uint32_t i = 0; i < control->forgotten_count; i++, size += KEY_BYTES)
        snprintf(text + size, sizeof text - size, "%016" PRIx64 "\n", control->forgotten[i]);
    snprintf(sum, sizeof sum, SUM "%016" PRIx64 "\n",
             rt_hash_bytes(text + SUM_BYTES, size - SUM_BYTES));
    memcpy(text, sum, SUM_BYTES);
    path_of_list(run, path);
    if (mkdir(run->folder.checkpoints, 0777) != 0 && errno != EEXIST)
        return rt_fail(error, RT_IO, "cannot make %s: %s", run->folder.checkpoints,
                       strerror(errno));
    return rt_file_save(path, text, size, error);
}

// A line of 16 hexadecimal digits.
static bool take_number(const char *line, uint64_t *number_p)
{
    if (strspn(line, HEXADECIMAL) != KEY_BYTES - 1 || line[KEY_BYTES - 1] != '\n')
        return false;
    *number_p = strtoull(line, NULL, 16);
    return true;
}

// Of a file of an earlier build only its form is known.
static bool take_list(const char *text, size_t size, dp_control *control)
{
    uint64_t sum;
    const char *at = text, *end = text + size;
    const bool has_sum = strncmp(text, SUM, strlen(SUM)) == 0;
    if (has_sum) {
        at += SUM_BYTES;
        if (!take_number(text + strlen(SUM), &sum) || rt_hash_bytes(at, (size_t)(end - at)) != sum)
            return false;
    }
    for (; *at; at += KEY_BYTES) {
        if (control->forgotten_count == DP_FORGET_MAX ||
            !take_number(at, &control->forgotten[control->forgotten_count]))
            return false;
        control->forgotten_count++;
    }
    return at == end && (has_sum || size > 0);
}

rt_status dp_control_open(dp_run *run, rt_error *error)
{
    char path[RT_PATH_MAX + 16], text[LIST_BYTES_MAX + 2];
    if (!run->folder.resumes)
        return RT_OK;
    path_of_list(run, path);
    FILE *file = fopen(path, "re");
    if (!file && (errno == ENOENT || errno == ENOTDIR))
        return RT_OK;
    if (!file)
        return rt_fail(error, rt_status_of_errno(errno), "%s: %s", path, strerror(errno));
    const size_t size = fread(text, 1, sizeof text - 1, file);
    const bool failed = ferror(file) != 0;
    fclose(file);
    text[size] = '\0';
    if (!failed && take_list(text, size, &run->control))
        return RT_OK;
    return rt_fail(error, RT_DATA,
                   "%s is damaged: it named rows that were to be forgotten, and that checkpoints "
                   "still have. Put a copy in its place (a standby has one), or remove it and ask "
                   "for them again (`lanyard forget`)",
                   path);
}

static void tell_forgotten(dp_run *run, uint64_t key)
{
    const dp_input input = dp_input_forget(key);
    dp_feed_tell(run->feed, &input);
}

// Beyond the last iteration that may be planned without the records that were told just now.
static void want_all_rows(dp_run *run)
{
    const rt_config *config = &run->run_config;
    run->control.after = (uint32_t)dp_stats_iterations(run->stats) + config->run_ahead +
                         rt_config_batches_ahead(config) + PLANNED_MORE;
    if (run->checkpoint)
        dp_checkpoint_want_all(run->checkpoint, run->control.after);
}

static rt_status read_keys(const char *text, dp_control *control, uint32_t *count_p,
                           rt_error *error)
{
    uint32_t count = control->forgotten_count;
    for (const char *at = text; *at; at += *at == ',') {
        if (strspn(at, HEXADECIMAL) != 16 || (at[16] && at[16] != ','))
            return rt_fail(error, RT_WIRE, "forget: expected keys of 16 hexadecimal digits");
        if (count == DP_FORGET_MAX)
            return rt_fail(error, RT_AGAIN,
                           "forget: %u keys wait for a checkpoint without their rows: ask again "
                           "later",
                           DP_FORGET_MAX);
        control->forgotten[count++] = strtoull(at, NULL, 16);
        at += 16;
    }
    *count_p = count;
    return RT_OK;
}

static rt_status forget(dp_run *run, const char *keys, const char *second, char *answer,
                        size_t size, rt_error *error)
{
    dp_control *control = &run->control;
    const uint32_t before = control->forgotten_count;
    uint32_t count = before;
    (void)second;
    rt_status status = read_keys(keys, control, &count, error);
    if (status)
        return status;
    control->forgotten_count = count;
    if (*run->folder.checkpoints)
        status = write_list(run, error);
    if (status) {
        control->forgotten_count = before;
        return status;
    }
    for (uint32_t i = before; i < count; i++)
        tell_forgotten(run, control->forgotten[i]);
    want_all_rows(run);
    rt_json *json = rt_metrics_begin(dp_stats_metrics(run->stats), "forget");
    rt_json_u64(json, "keys", count - before);
    rt_metrics_end(dp_stats_metrics(run->stats));
    snprintf(answer, size, "%" PRIu32 " keys: their rows end before the next batch is trained%s",
             count - before,
             *run->folder.checkpoints ? "; checkpoints from then on do without" : "");
    return RT_OK;
}

void dp_control_resume(dp_run *run)
{
    const dp_control *control = &run->control;
    for (uint32_t i = 0; i < control->forgotten_count; i++)
        tell_forgotten(run, control->forgotten[i]);
    if (!control->forgotten_count)
        return;
    rt_info("%" PRIu32 " rows that were to be forgotten end again", control->forgotten_count);
    want_all_rows(run);
}

void dp_control_step(dp_run *run)
{
    dp_control *control = &run->control;
    char path[RT_PATH_MAX + 16];
    if (!control->forgotten_count || dp_stats_iterations(run->stats) <= control->after)
        return;
    if (!run->checkpoint || dp_checkpoint_has_all(run->checkpoint)) {
        control->forgotten_count = 0;
        path_of_list(run, path);
        if (*run->folder.checkpoints && unlink(path) != 0 && errno != ENOENT)
            rt_warn("cannot remove %s: %s", path, strerror(errno));
        return;
    }
    if (control->asked_ns && rt_now_ns() - control->asked_ns < ASK_AGAIN_NS)
        return;
    control->asked_ns = rt_now_ns();
    run->cut.is_wanted = true;
}

// ---- boxes -----------------------------------------------------------------------------------

static rt_status move(dp_run *run, bool joins, const char *box, char *answer, size_t size,
                      rt_error *error)
{
    rt_status status = dp_move_ask(run, joins, box, error);
    if (status)
        return status;
    run->move.visitor = run->control.visitor;
    snprintf(answer, size, "%s %s with the next checkpoint", box, joins ? "joins" : "leaves");
    return RT_OK;
}

static rt_status add(dp_run *run, const char *box, const char *second, char *answer, size_t size,
                     rt_error *error)
{
    (void)second;
    return move(run, true, box, answer, size, error);
}

// One that no configuration has.
static rt_status add_new(dp_run *run, const char *box, const char *text, char *answer, size_t size,
                         rt_error *error)
{
    rt_status status = dp_adding_ask(run, box, text, answer, size, error);
    if (!status && run->move.is_asked)
        run->move.visitor = run->control.visitor;
    return status;
}

static rt_status drain(dp_run *run, const char *box, const char *second, char *answer, size_t size,
                       rt_error *error)
{
    (void)second;
    if (dp_adding_let_go(run, box, answer, size))
        return RT_OK;
    return move(run, false, box, answer, size, error);
}

static rt_status drain_for_good(dp_run *run, const char *box, const char *how, char *answer,
                                size_t size, rt_error *error)
{
    if (strcmp(how, "for good") != 0)
        return rt_fail(error, RT_WIRE,
                       "a request to drain \"%.40s\", which this build does not know", how);
    const rt_status status = dp_move_ask_end(run, box, error);
    if (status)
        return status;
    run->move.visitor = run->control.visitor;
    snprintf(answer, size, "%s leaves for good with the next checkpoint", box);
    return RT_OK;
}

// ---- requests --------------------------------------------------------------------------------

typedef rt_status (*verb)(dp_run *run, const char *first, const char *second, char *answer,
                          size_t size, rt_error *error);

static const struct {
    const char *name;
    uint32_t arguments;
    verb run;
} verbs[] = {{"set", 2, set},     {"forget", 1, forget}, {"add", 1, add},
             {"add", 2, add_new}, {"drain", 1, drain},   {"drain", 2, drain_for_good}};

rt_status dp_control_do(dp_run *run, char *request, char *answer, size_t size, rt_error *error)
{
    const char *parts[3] = {request, NULL, NULL};
    uint32_t count = 1;
    for (char *at = request; (at = strchr(at, '\n')) && count < RT_COUNT_OF(parts);) {
        *at++ = '\0';
        parts[count++] = at;
    }
    if (run->phase != DP_RUN_TRAINS || run->interrupted)
        return rt_fail(error, RT_AGAIN, "the run does not train now: it is starting or ending");
    for (size_t i = 0; i < RT_COUNT_OF(verbs); i++) {
        if (strcmp(verbs[i].name, request) == 0 && count == verbs[i].arguments + 1)
            return verbs[i].run(run, parts[1], parts[2], answer, size, error);
    }
    if (strcmp(request, "promote") == 0)
        return rt_fail(error, RT_AGAIN, "the process there already leads the run");
    return rt_fail(error, RT_WIRE,
                   "a request \"%.40s\" with %" PRIu32 " arguments, which this build "
                   "does not know",
                   request, count - 1);
}
