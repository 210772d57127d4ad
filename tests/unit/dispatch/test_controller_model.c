// Controllers against a second implementation that keeps all that it was ever told and looks back,
// over random runs: times that are just at a limit, decisions of values no longer in force, reloads
// in between, records that wait.
#include "dispatch/planner/dp_controller.h"
#include "runtime/config/rt_policies.h"

#include <math.h>
#include <stdio.h>

#include "runtime/rt_hash.h"
#include "tests/support/config_case.h"
#include "tests/support/test.h"

#define STEPS 6000u
#define WORKERS 3u
#define WAITING_MAX 8u

typedef struct {
    double values[2 * STEPS]; // all, the oldest first
    uint32_t count;
} history;

static history *log_of(uint32_t number)
{
    static history logs[5 + WORKERS]; // every case is a process of its own
    return &logs[number];
}

typedef struct {
    // what was configured
    bool has_alpha, is_auto, measures;
    double share, budget_s;
    // alpha
    history *iterations, *decisions; // decisions: with the alpha in force
    uint32_t eighths, patience, waited;
    bool rose;
    // search, tables
    history *per_evaluation, *evaluated, *scorings;
    uint32_t evaluations, tables;
    // computing
    history *computed[WORKERS];
    double compute_s[WORKERS];
    // records
    dp_input waiting[WAITING_MAX];
    uint32_t waiting_count;
} model;

static void note(history *h, double value)
{
    assert_true(h->count < RT_COUNT_OF(h->values));
    h->values[h->count++] = value;
}

static uint32_t last_of(const history *h, uint32_t most)
{
    return h->count < most ? h->count : most;
}

// The one that as many of the last ones are below as its place in the middle says.
static double middle_of_last(const history *h, uint32_t most)
{
    const uint32_t count = last_of(h, most);
    const double *values = h->values + h->count - count;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t below = 0, same = 0;
        for (uint32_t k = 0; k < count; k++) {
            below += values[k] < values[i];
            same += values[k] == values[i];
        }
        if (below <= count / 2 && count / 2 < below + same)
            return values[i];
    }
    return 0;
}

static uint32_t above(const history *h, double limit)
{
    uint32_t count = 0;
    for (uint32_t i = h->count - last_of(h, 100); i < h->count; i++)
        count += h->values[i] > limit;
    return count;
}

// A record that waits is replaced where it stands.
static void say(model *m, dp_input_kind kind, uint32_t worker, double value)
{
    for (uint32_t i = 0; i < m->waiting_count; i++) {
        if (m->waiting[i].kind != kind || m->waiting[i].worker != worker)
            continue;
        m->waiting[i].value = value;
        return;
    }
    assert_true(m->waiting_count < WAITING_MAX);
    m->waiting[m->waiting_count++] = (dp_input){.kind = kind, .worker = worker, .value = value};
}

static void go_to(model *m, uint32_t eighths)
{
    m->eighths = eighths;
    m->waited = 0;
    m->decisions->count = 0;
    say(m, DP_INPUT_ALPHA, 0, eighths / 8.0);
}

static void decided_at_alpha(model *m, double seconds)
{
    const double limit = m->share * middle_of_last(m->iterations, 100);
    const bool full = m->decisions->count >= 99;
    note(m->decisions, seconds);
    m->waited++;
    if (m->iterations->count == 0)
        return;
    const bool fell = m->rose;
    if (above(m->decisions, limit) > 1) {
        m->rose = false;
        if (fell)
            m->patience = m->patience >= 6400 ? 12800 : 2 * m->patience;
        if (m->eighths)
            go_to(m, m->eighths - 1);
    } else if (full) {
        m->rose = false;
        if (fell)
            m->patience = 100;
        if (m->eighths == 8 || m->waited < m->patience || above(m->decisions, 0.8 * limit) > 1)
            return;
        go_to(m, m->eighths + 1);
        m->rose = true;
    }
}

static void forget_searches(model *m)
{
    m->per_evaluation->count = m->evaluated->count = 0;
}

static void searched(model *m, uint32_t evaluations, double seconds)
{
    double all = 0;
    note(m->per_evaluation, seconds / evaluations);
    note(m->evaluated, evaluations);
    if (m->evaluated->count < 32)
        return;
    for (uint32_t i = 0; i < 32; i++)
        all += m->evaluated->values[i];
    const double one = middle_of_last(m->per_evaluation, 32), takes = one * (all / 32);
    const double now = m->evaluations;
    forget_searches(m);
    if (takes <= m->budget_s && takes >= 0.85 * m->budget_s)
        return;
    if (takes <= m->budget_s && all / 32 <= 0.99 * now)
        return;
    double wanted = m->budget_s / one;
    wanted = wanted > 4 * now ? 4 * now : wanted < now / 4 ? now / 4 : wanted;
    wanted = rint(wanted < 64 ? 64 : wanted > UINT32_MAX ? UINT32_MAX : wanted);
    if (wanted == now)
        return;
    m->evaluations = (uint32_t)wanted;
    say(m, DP_INPUT_SEARCH_EVALUATIONS, 0, wanted);
}

static void scored(model *m, const dp_decision *d, double seconds)
{
    note(m->scorings, seconds);
    if (m->scorings->count < 32)
        return;
    const double takes = middle_of_last(m->scorings, 32);
    m->scorings->count = 0;
    if (takes <= m->budget_s && (takes >= 0.85 * m->budget_s || d->tables == d->table_count))
        return;
    double wanted = floor(d->tables * m->budget_s / takes);
    wanted = wanted < 1 ? 1 : wanted > d->table_count ? d->table_count : wanted;
    if (wanted == d->tables)
        return;
    m->tables = (uint32_t)wanted;
    say(m, DP_INPUT_TABLES, 0, wanted);
}

static void decided(model *m, const dp_decision *d, double seconds, double place_s)
{
    if (m->is_auto && m->has_alpha && d->alpha * 8 == m->eighths)
        decided_at_alpha(m, seconds);
    if (m->budget_s > 0 && d->evaluations && d->search_evaluations_max == m->evaluations)
        searched(m, d->evaluations, place_s);
    if (m->budget_s > 0 && d->table_count && (!m->tables || m->tables == d->tables))
        scored(m, d, place_s);
}

static void computed(model *m, uint32_t worker, double seconds, uint32_t samples)
{
    if (!m->measures || samples == 0 || seconds <= 0)
        return;
    note(m->computed[worker], seconds / samples);
    if (m->computed[worker]->count < 16)
        return;
    const double now = middle_of_last(m->computed[worker], 31);
    if (fabs(now - m->compute_s[worker]) <= 0.15 * m->compute_s[worker])
        return;
    m->compute_s[worker] = now;
    say(m, DP_INPUT_COMPUTE, worker, now);
}

static void set_alpha(model *m, bool is_auto, double alpha)
{
    m->is_auto = is_auto;
    if (!is_auto) {
        say(m, DP_INPUT_ALPHA, 0, alpha);
        return;
    }
    m->patience = 100;
    m->rose = false;
    go_to(m, (uint32_t)(alpha * 8));
}

static void set_search(model *m, uint32_t evaluations, double budget_ms)
{
    m->budget_s = budget_ms * 1e-3;
    if (budget_ms == 0 && evaluations != m->evaluations) {
        m->evaluations = evaluations;
        say(m, DP_INPUT_SEARCH_EVALUATIONS, 0, evaluations);
    }
    forget_searches(m);
    m->scorings->count = 0;
}

static void begin(const rt_config *config, model *m)
{
    *m = (model){.has_alpha = config->dispatch.policy == RT_POLICY_ESD,
                 .is_auto = config->dispatch.alpha_auto,
                 .measures = config->dispatch.measure_compute,
                 .share = config->dispatch.alpha_share,
                 .budget_s = config->dispatch.budget_ms * 1e-3,
                 .iterations = log_of(0),
                 .decisions = log_of(1),
                 .per_evaluation = log_of(2),
                 .evaluated = log_of(3),
                 .scorings = log_of(4),
                 .eighths = 8,
                 .patience = 100,
                 .evaluations = config->dispatch.search_evaluations};
    for (uint32_t number = 0; number < 5 + WORKERS; number++)
        log_of(number)->count = 0;
    for (uint32_t j = 0; j < WORKERS; j++) {
        m->computed[j] = log_of(5 + j);
        m->compute_s[j] = config->compute_us_per_sample * 1e-6;
    }
}

// ---- random runs ---------------------------------------------------------------------------

typedef struct {
    dp_controller c;
    model m;
    rt_random random;
    double iteration_s, load, share; // of this part of the run
    bool steady;                     // every decision of it takes that share
    uint32_t spends, tables;
} run;

static bool chance(run *r, uint32_t of)
{
    return rt_random_below(&r->random, of) == 0;
}

static void take_records(run *r, uint32_t most)
{
    dp_input got;
    for (; most > 0 && dp_controller_next(&r->c, &got); most--) {
        assert_true(r->m.waiting_count > 0);
        const dp_input want = r->m.waiting[0];
        if (got.kind != want.kind || got.worker != want.worker || got.value != want.value)
            fail_msg("%s of %u: %.17g, expected %s of %u: %.17g", dp_input_name(got.kind),
                     got.worker, got.value, dp_input_name(want.kind), want.worker, want.value);
        assert_true(got.iteration == 0 && got.number == 0);
        r->m.waiting_count--;
        for (uint32_t i = 0; i < r->m.waiting_count; i++)
            r->m.waiting[i] = r->m.waiting[i + 1];
    }
    assert_true(most == 0 || r->m.waiting_count == 0);
}

// Of the model's own values, or of others that were in force before.
static dp_decision a_decision(run *r)
{
    const uint32_t tables = 1 + rt_random_below(&r->random, 12);
    dp_decision d = {.alpha = r->m.eighths / 8.0, .search_evaluations_max = r->m.evaluations};
    if (chance(r, 9))
        d.alpha = rt_random_below(&r->random, 9) / 8.0;
    if (chance(r, 9))
        d.search_evaluations_max = 640;
    const uint32_t spent[] = {d.search_evaluations_max, (uint32_t)(0.99 * d.search_evaluations_max),
                              1};
    d.evaluations = chance(r, 40) ? 0 : spent[r->spends];
    d.table_count = chance(r, 40) ? 0 : r->tables;
    d.tables = chance(r, 40) ? tables : r->m.tables ? r->m.tables : r->tables;
    d.tables = d.tables > r->tables ? r->tables : d.tables;
    return d;
}

// What stays as it is for a while.
static void change_times(run *r)
{
    static const double shares[] = {1, 0.8, 0.85, 0.5, 0.999, 1.001, 0.7, 0.82, 1, 0.4};
    r->steady = chance(r, 2);
    r->share = shares[rt_random_below(&r->random, RT_COUNT_OF(shares))];
    r->spends = rt_random_below(&r->random, 8);
    r->spends = r->spends > 2 ? 0 : r->spends;
    r->tables = chance(r, 6) ? 1 : 12;
    if (chance(r, 7))
        r->load = 1;
}

static void one_event(run *r, bool iterates)
{
    static const double shares[] = {1, 1, 1, 0.8, 0.85, 0.5, 0.999, 1.001, 0.7, 0.82};
    if (chance(r, 90))
        change_times(r);
    const double share =
        r->load * (r->steady ? r->share : shares[rt_random_below(&r->random, RT_COUNT_OF(shares))]);
    if (chance(r, 700))
        r->load = 0.05 * (1 + rt_random_below(&r->random, 40));
    if (chance(r, 300))
        r->iteration_s = 1e-3 * (1 + rt_random_below(&r->random, 12));
    if (iterates) {
        dp_controller_iterated(&r->c, r->iteration_s);
        note(r->m.iterations, r->iteration_s);
    }
    const dp_decision d = a_decision(r);
    const double limit = r->m.share * r->iteration_s;
    const double at = chance(r, 60) ? 3 * limit : share * limit;
    const double place_s = share * (r->m.budget_s > 0 ? r->m.budget_s : 1e-3) *
                           (r->steady || chance(r, 2) ? 1 : r->m.eighths / 8.0);
    dp_controller_decided(&r->c, &d, at, place_s);
    decided(&r->m, &d, at, place_s);
    const uint32_t worker = rt_random_below(&r->random, WORKERS);
    const uint32_t samples = rt_random_below(&r->random, 9);
    const double compute_s = chance(r, 30) ? 0
                                           : 1e-5 * samples *
                                                 (share < 0.8   ? 1
                                                  : share < 0.9 ? 1.15
                                                                : 1.1) *
                                                 r->load;
    dp_controller_computed(&r->c, worker, compute_s, samples);
    computed(&r->m, worker, compute_s, samples);
}

static void reload(run *r)
{
    const double alpha = rt_random_below(&r->random, 17) / 16.0;
    const bool is_auto = !chance(r, 3);
    dp_controller_set_alpha(&r->c, is_auto, alpha);
    set_alpha(&r->m, is_auto, alpha);
    if (!chance(r, 3))
        return;
    const uint32_t evaluations = 64 + rt_random_below(&r->random, 3) * 1000;
    const double budget_ms = rt_random_below(&r->random, 4);
    dp_controller_set_search(&r->c, evaluations, budget_ms);
    set_search(&r->m, evaluations, budget_ms);
}

static void run_randomly(const char *const *sets, uint64_t seed)
{
    run *r = rt_alloc(1, sizeof *r);
    rt_config config = config_fresh();
    assert_non_null(r);
    config_must_set(&config, "workers=3");
    config_must_set(&config, "links.workers=[1,1,1]");
    for (; *sets; sets++)
        config_must_set(&config, *sets);
    r->random.state = seed;
    r->iteration_s = 10e-3;
    r->load = 1;
    dp_controller_init(&config, &r->c);
    begin(&config, &r->m);
    if (chance(r, 2)) { // a run goes on
        const double compute_s[WORKERS] = {1e-5, 2e-5, 0};
        dp_controller_resume(&r->c, 0.5, 3000, compute_s);
        r->m.eighths = 4;
        r->m.evaluations = 3000;
        for (uint32_t j = 0; j < WORKERS; j++)
            r->m.compute_s[j] = compute_s[j];
    }
    change_times(r);
    const uint32_t first = rt_random_below(&r->random, 130),
                   reload_one_of = chance(r, 2) ? 150 : 1500;
    for (uint32_t step = 0; step < STEPS; step++) {
        one_event(r, step < first ? step == first / 2 : !chance(r, 8));
        if (chance(r, reload_one_of))
            reload(r);
        if (!chance(r, 4))
            take_records(r, chance(r, 3) ? 1 : UINT32_MAX);
    }
    take_records(r, UINT32_MAX);
    rt_config_fini(&config);
    rt_free(r);
}

#define RUNS(name, ...)                                        \
    static void name(void **state)                             \
    {                                                          \
        (void)state;                                           \
        static const char *const sets[] = {__VA_ARGS__, NULL}; \
        for (uint64_t seed = 1; seed <= 12; seed++)            \
            run_randomly(sets, seed);                          \
    }

RUNS(alpha, "dispatch.policy=esd", "dispatch.alpha=auto")
RUNS(evaluations, "dispatch.policy=makespan", "dispatch.alpha=auto", "dispatch.budget_ms=4")
RUNS(tables, "dispatch.policy=laia", "dispatch.budget_ms=2", "sim.compute_us_per_sample=10")
RUNS(nothing_is_measured, "dispatch.policy=esd", "dispatch.measure_compute=false")

TEST_MAIN(TEST(alpha), TEST(evaluations), TEST(tables), TEST(nothing_is_measured))
