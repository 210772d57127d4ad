#include "dispatch/planner/dp_controller.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "dispatch/policies/dp_policy.h"

#define EXCEEDED 2u    // the 99th of 100 values is above a limit when two of them are
#define RISE_SHARE 0.8 // of the limit: alpha rises only when its decisions stay below
#define PATIENCE_MAX (128u * DP_CONTROLLER_WINDOW)
#define BUDGET_LOW 0.85       // of the budget: no change above it
#define BUDGET_LEAST_S 1e-9   // where a plan alone takes longer: the fewest tables or evaluations
#define SEARCH_FACTOR_MAX 4.0 // of one change
#define COMPUTE_CHANGE 0.15

// ---- times -----------------------------------------------------------------------------------

static void add_time(dp_times *times, double value)
{
    times->values[times->next] = value;
    times->next = (times->next + 1) % DP_CONTROLLER_WINDOW;
    times->count += times->count < DP_CONTROLLER_WINDOW;
}

static void clear_times(dp_times *times)
{
    times->count = times->next = 0;
}

static uint32_t count_above(const dp_times *times, double limit)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < times->count; i++)
        count += times->values[i] > limit;
    return count;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(const double *values, uint32_t count)
{
    double sorted[DP_CONTROLLER_WINDOW];
    memcpy(sorted, values, count * sizeof *sorted);
    qsort(sorted, count, sizeof *sorted, compare);
    return count ? sorted[count / 2] : 0;
}

// ---- records ---------------------------------------------------------------------------------

// A record that is still waiting is replaced: there is room for one of each.
static void emit(dp_controller *c, dp_input_kind kind, uint32_t worker, double value)
{
    uint32_t at = 0;
    while (at < c->ready_count && (c->ready[at].kind != kind || c->ready[at].worker != worker))
        at++;
    rt_assert(at < RT_COUNT_OF(c->ready));
    c->ready[at] = (dp_input){.kind = kind, .worker = worker, .value = value};
    c->ready_count += at == c->ready_count;
}

bool dp_controller_next(dp_controller *c, dp_input *input)
{
    if (c->ready_count == 0)
        return false;
    *input = c->ready[0];
    memmove(c->ready, c->ready + 1, --c->ready_count * sizeof *c->ready);
    return true;
}

static double alpha_of(uint32_t step)
{
    return (double)step / DP_CONTROLLER_ALPHA_STEPS;
}

void dp_controller_init(const rt_config *config, dp_controller *c)
{
    *c = (dp_controller){.alpha_share = config->dispatch.alpha_share,
                         .measure_compute = config->dispatch.measure_compute,
                         .worker_count = config->worker_count,
                         .budget_auto = config->dispatch.budget_auto,
                         .budget_s =
                             config->dispatch.budget_auto ? 0 : config->dispatch.budget_ms * 1e-3,
                         .evaluations_max = config->dispatch.search_evaluations,
                         .uses_alpha = dp_policy_can(config->dispatch.policy, DP_POLICY_ALPHA),
                         .alpha_auto = config->dispatch.alpha_auto,
                         .patience = DP_CONTROLLER_WINDOW,
                         .step = DP_CONTROLLER_ALPHA_STEPS};
    for (uint32_t j = 0; j < config->worker_count; j++)
        c->workers[j].compute_s = config->compute_us_per_sample * 1e-6;
}

void dp_controller_resume(dp_controller *c, double alpha, uint32_t evaluations,
                          const double *compute_s)
{
    c->step = (uint32_t)(alpha * DP_CONTROLLER_ALPHA_STEPS);
    c->evaluations_max = evaluations;
    for (uint32_t j = 0; j < c->worker_count; j++)
        c->workers[j].compute_s = compute_s[j];
}

// ---- alpha -----------------------------------------------------------------------------------

static void enter_step(dp_controller *c, uint32_t step)
{
    c->step = step;
    c->waited = 0;
    clear_times(&c->decisions);
    emit(c, DP_INPUT_ALPHA, 0, alpha_of(step));
}

void dp_controller_set_alpha(dp_controller *c, bool is_auto, double alpha)
{
    c->alpha_auto = is_auto;
    if (!is_auto) {
        emit(c, DP_INPUT_ALPHA, 0, alpha);
        return;
    }
    c->patience = DP_CONTROLLER_WINDOW;
    c->rose = false;
    enter_step(c, (uint32_t)(alpha * DP_CONTROLLER_ALPHA_STEPS));
}

// A step down as soon as the p99 is over the limit, a step up after a full window well below it.
// One that falls back at once makes the next try wait twice as long.
static void judge_alpha(dp_controller *c, double decision_s)
{
    double limit = c->alpha_share * median(c->iterations.values, c->iterations.count);
    add_time(&c->decisions, decision_s);
    c->waited++;
    if (c->iterations.count == 0)
        return;
    if (count_above(&c->decisions, limit) >= EXCEEDED) {
        if (c->rose)
            c->patience = (uint32_t)rt_min_u64(2 * c->patience, PATIENCE_MAX);
        c->rose = false;
        if (c->step > 0)
            enter_step(c, c->step - 1);
        return;
    }
    if (c->decisions.count < DP_CONTROLLER_WINDOW)
        return;
    if (c->rose)
        c->patience = DP_CONTROLLER_WINDOW;
    c->rose = false;
    if (c->step < DP_CONTROLLER_ALPHA_STEPS && c->waited >= c->patience &&
        count_above(&c->decisions, RISE_SHARE * limit) < EXCEEDED) {
        c->rose = true;
        enter_step(c, c->step + 1);
    }
}

// ---- search ----------------------------------------------------------------------------------

static void clear_searches(dp_controller *c)
{
    clear_times(&c->searches);
    c->evaluations = 0;
}

static void set_evaluations(dp_controller *c, uint32_t evaluations)
{
    c->evaluations_max = evaluations;
    emit(c, DP_INPUT_SEARCH_EVALUATIONS, 0, evaluations);
}

void dp_controller_set_search(dp_controller *c, uint32_t evaluations, double budget_ms)
{
    c->budget_auto = budget_ms == RT_BUDGET_AUTO;
    c->budget_s = c->budget_auto ? 0 : budget_ms * 1e-3;
    clear_times(&c->necessary);
    clear_times(&c->plans);
    if (evaluations != c->evaluations_max && budget_ms == 0)
        set_evaluations(c, evaluations);
    clear_searches(c);
    clear_times(&c->scorings);
}

// Herald's budget (NSDI '24, section 4.3): the "necessary iteration time", less the plan's.
void dp_controller_necessary(dp_controller *c, double necessary_s, double plan_s)
{
    if (!c->budget_auto || !c->measure_compute || necessary_s <= 0)
        return;
    add_time(&c->necessary, necessary_s);
    add_time(&c->plans, plan_s);
    if (c->necessary.count < DP_CONTROLLER_SEARCH)
        return;
    const double left_s =
        median(c->necessary.values, c->necessary.count) - median(c->plans.values, c->plans.count);
    c->budget_s = fmax(left_s, BUDGET_LEAST_S);
}

// The time of a placement is a fixed part and one per evaluation; scaling by the whole of it comes
// closer to the budget with every change.
static void judge_search(dp_controller *c, uint32_t evaluations, double place_s)
{
    add_time(&c->searches, place_s / evaluations);
    c->evaluations += evaluations;
    if (c->searches.count < DP_CONTROLLER_SEARCH)
        return;
    double spent = (double)c->evaluations / c->searches.count, now = c->evaluations_max;
    double evaluation_s = median(c->searches.values, c->searches.count),
           used_s = evaluation_s * spent;
    bool bound_by_count = spent > 0.99 * now;
    clear_searches(c);
    if (used_s <= c->budget_s && (used_s >= BUDGET_LOW * c->budget_s || !bound_by_count))
        return;
    double wanted = c->budget_s / evaluation_s;
    wanted = fmin(fmax(wanted, now / SEARCH_FACTOR_MAX), now * SEARCH_FACTOR_MAX);
    wanted = rint(fmin(fmax(wanted, DP_CONTROLLER_EVALUATIONS), UINT32_MAX));
    if (wanted != now)
        set_evaluations(c, (uint32_t)wanted);
}

// Herald's adaptive scheduler (NSDI '24, section 4.3): as many of the best tables as the budget
// allows. The time of a placement is about proportional to the tables that are scored.
static void judge_tables(dp_controller *c, const dp_decision *decision, double place_s)
{
    add_time(&c->scorings, place_s);
    if (c->scorings.count < DP_CONTROLLER_SEARCH)
        return;
    const double used_s = median(c->scorings.values, c->scorings.count), now = decision->tables;
    clear_times(&c->scorings);
    if (used_s <= c->budget_s &&
        (used_s >= BUDGET_LOW * c->budget_s || now == decision->table_count))
        return;
    double wanted = floor(now * c->budget_s / used_s);
    wanted = fmin(fmax(wanted, 1), decision->table_count);
    if (wanted == now)
        return;
    c->tables = (uint32_t)wanted;
    emit(c, DP_INPUT_TABLES, 0, wanted);
}

void dp_controller_decided(dp_controller *c, const dp_decision *decision, double decision_s,
                           double place_s)
{
    if (c->alpha_auto && c->uses_alpha && decision->alpha == alpha_of(c->step))
        judge_alpha(c, decision_s);
    if (c->budget_s > 0 && decision->evaluations > 0 &&
        decision->search_evaluations_max == c->evaluations_max)
        judge_search(c, decision->evaluations, place_s);
    if (c->budget_s > 0 && decision->table_count > 0 &&
        (c->tables == 0 || c->tables == decision->tables))
        judge_tables(c, decision, place_s);
}

void dp_controller_iterated(dp_controller *c, double iteration_s)
{
    add_time(&c->iterations, iteration_s);
}

// ---- computing time --------------------------------------------------------------------------

// The median follows a change only when it lasts: half of the reports must have it.
void dp_controller_computed(dp_controller *c, uint32_t worker, double compute_s,
                            uint32_t sample_count)
{
    rt_assert(worker < c->worker_count);
    dp_computing *w = &c->workers[worker];
    if (!c->measure_compute || sample_count == 0 || compute_s <= 0)
        return;
    w->recent[w->next] = compute_s / sample_count;
    w->next = (w->next + 1) % DP_CONTROLLER_COMPUTE;
    w->count += w->count < DP_CONTROLLER_COMPUTE;
    if (w->count <= DP_CONTROLLER_COMPUTE / 2)
        return;
    double now = median(w->recent, w->count);
    if (fabs(now - w->compute_s) <= COMPUTE_CHANGE * w->compute_s)
        return;
    w->compute_s = now;
    emit(c, DP_INPUT_COMPUTE, worker, now);
}
