// Policies against word-for-word versions of the papers' algorithms, on the states of real runs.
#include "tests/support/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "dispatch/policies/dp_policies.h"
#include "dispatch/planner/dp_snapshot.h"
#include "dispatch/solvers/dp_solver.h"
#include "runtime/config/rt_solvers.h"
#include "runtime/rt_hash.h"
#include "tests/support/planner_case.h"

// ---- an exact solver, slow and simple --------------------------------------------------------

// Successive shortest paths: rows enter one by one, each along the cheapest chain of moves.
static int64_t optimal_cost(const int32_t *const *rows, uint32_t row_count, uint32_t n,
                            const uint32_t *capacity)
{
    uint32_t *sink_of = rt_alloc(row_count + 1u, sizeof *sink_of);
    uint32_t load[RT_WORKERS_MAX] = {0};
    int64_t total = 0;
    assert_non_null(sink_of);
    for (uint32_t i = 0; i < row_count; i++) {
        int64_t move[RT_WORKERS_MAX][RT_WORKERS_MAX], distance[RT_WORKERS_MAX];
        uint32_t mover[RT_WORKERS_MAX][RT_WORKERS_MAX], from[RT_WORKERS_MAX];
        for (uint32_t u = 0; u < n; u++) {
            for (uint32_t v = 0; v < n; v++)
                move[u][v] = INT64_MAX / 2;
        }
        for (uint32_t r = 0; r < i; r++) {
            uint32_t u = sink_of[r];
            for (uint32_t v = 0; v < n; v++) {
                if (rows[r][v] - rows[r][u] < move[u][v]) {
                    move[u][v] = rows[r][v] - rows[r][u];
                    mover[u][v] = r;
                }
            }
        }
        for (uint32_t v = 0; v < n; v++) {
            distance[v] = rows[i][v];
            from[v] = n;
        }
        for (uint32_t round = 0; round < n; round++) { // Bellman, Ford
            for (uint32_t u = 0; u < n; u++) {
                for (uint32_t v = 0; v < n; v++) {
                    if (distance[u] + move[u][v] < distance[v]) {
                        distance[v] = distance[u] + move[u][v];
                        from[v] = u;
                    }
                }
            }
        }
        uint32_t end = n;
        for (uint32_t v = 0; v < n; v++) {
            if (load[v] < capacity[v] && (end == n || distance[v] < distance[end]))
                end = v;
        }
        assert_true(end < n);
        load[end]++;
        total += distance[end];
        for (; from[end] != n; end = from[end])
            sink_of[mover[from[end]][end]] = end;
        sink_of[i] = end;
    }
    rt_free(sink_of);
    return total;
}

// ---- ESD, Algorithm 2 ------------------------------------------------------------------------

typedef struct {
    uint32_t sample;
    int64_t weight;
} weighted;

static int descending(const void *a, const void *b)
{
    const weighted *x = a, *y = b;
    if (x->weight != y->weight)
        return x->weight > y->weight ? -1 : 1;
    return x->sample < y->sample ? -1 : x->sample > y->sample;
}

static int ascending(const void *a, const void *b)
{
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

static int64_t weight_of(const int32_t *row, uint32_t n)
{
    int32_t sorted[RT_WORKERS_MAX];
    memcpy(sorted, row, n * sizeof *row);
    qsort(sorted, n, sizeof *sorted, ascending);
    return sorted[n > 1 ? 1 : 0] - sorted[0];
}

typedef struct {
    const dp_view *view;
    int32_t *cost;
    weighted *order;
    const int32_t **rows; // in the order of Opt
    uint32_t *placement;
} hybrid;

static void hybrid_init(hybrid *h, const dp_view *view)
{
    uint32_t count = view->sample_count;
    *h = (hybrid){.view = view,
                  .cost = rt_alloc((size_t)count * view->worker_count, sizeof(int32_t)),
                  .order = rt_alloc(count, sizeof(weighted)),
                  .rows = rt_alloc(count, sizeof(int32_t *)),
                  .placement = rt_alloc(count, sizeof(uint32_t))};
    assert_true(h->cost && h->order && h->rows && h->placement);
    dp_cost_matrix(view, h->cost, view->worker_count);
}

static void hybrid_fini(hybrid *h)
{
    rt_free(h->cost);
    rt_free(h->order);
    rt_free(h->rows);
    rt_free(h->placement);
}

static const int32_t *row_of(const hybrid *h, uint32_t sample)
{
    return h->cost + (size_t)sample * h->view->worker_count;
}

// alpha in thousandths, so that the shares are integer arithmetic.
static void check_hybrid(const hybrid *h, uint32_t alpha)
{
    const dp_view *view = h->view;
    uint32_t n = view->worker_count, opt_count = 0;
    uint32_t share[RT_WORKERS_MAX], room[RT_WORKERS_MAX], taken[RT_WORKERS_MAX] = {0};
    for (uint32_t j = 0; j < n; j++) {
        room[j] = view->capacity[j];
        share[j] = alpha * view->capacity[j] / 1000;
        opt_count += share[j];
    }
    for (uint32_t i = 0; i < view->sample_count; i++)
        h->order[i] = (weighted){i, weight_of(row_of(h, i), n)};
    qsort(h->order, view->sample_count, sizeof *h->order, descending);
    int64_t opt_cost = 0;
    for (uint32_t k = 0; k < opt_count; k++) {
        uint32_t i = h->order[k].sample, j = h->placement[i];
        assert_true(j < n);
        h->rows[k] = row_of(h, i);
        opt_cost += h->rows[k][j];
        taken[j]++;
        room[j]--;
    }
    assert_memory_equal(taken, share, n * sizeof *taken);
    assert_int_equal(opt_cost, optimal_cost(h->rows, opt_count, n, share));
    for (uint32_t k = opt_count; k < view->sample_count; k++) { // Heu
        const int32_t *row = row_of(h, h->order[k].sample);
        uint32_t best = n;
        for (uint32_t j = 0; j < n; j++) {
            if (room[j] && (best == n || row[j] < row[best]))
                best = j;
        }
        assert_int_equal(h->placement[h->order[k].sample], best);
        room[best]--;
    }
}

static void *policy_state(const dp_policy_ops *ops, const planner_shape *shape)
{
    dp_policy_config config = {.worker_count = shape->worker_count,
                               .sample_count_max = shape->sample_count_max,
                               .distinct_count_max =
                                   shape->sample_count_max * shape->field_count * shape->bag_max,
                               .seed = shape->seed,
                               .dispatch = shape->dispatch};
    rt_error error = {0};
    void *state = NULL;
    if (ops->create(&config, &state, &error))
        fail_msg("%s", error.text);
    return state;
}

static void check_alphas(const planner_shape *base, const dp_view *view)
{
    static const uint32_t alphas[] = {0, 100, 125, 290, 300, 500, 999, 1000};
    planner_shape shape = *base;
    hybrid h;
    hybrid_init(&h, view);
    shape.dispatch = (rt_dispatch_config){.policy = RT_POLICY_ESD, .hybrid = RT_HYBRID_PAPER};
    void *state = policy_state(&dp_policy_esd, &shape);
    for (uint32_t a = 0; a < RT_COUNT_OF(alphas); a++) {
        dp_policy_esd.configure(state, &(rt_dispatch_config){.alpha = alphas[a] / 1000.0});
        memset(h.placement, 0xff, view->sample_count * sizeof *h.placement);
        dp_policy_esd.place(state, view, h.placement);
        check_hybrid(&h, alphas[a]);
    }
    dp_policy_esd.destroy(state);
    hybrid_fini(&h);
}

static void check_runs(uint32_t m, uint32_t n, uint32_t rounds, uint32_t fields, uint32_t bag_max)
{
    planner_shape shape = {.seed = m * 100 + n,
                           .worker_count = n,
                           .sample_count_max = m * n,
                           .field_count = fields,
                           .ids_per_field = 20 + 4 * m * n,
                           .bag_max = bag_max,
                           .zipf = 1,
                           .cache = CACHE_MIDDLE,
                           .dispatch.policy = RT_POLICY_LAIA};
    planner_case pc;
    planner_case_init(&pc, &shape);
    for (uint32_t j = 0; j < n && fields == RT_FIELDS_MAX; j++)
        dp_planner_set_link(pc.planner, j, (dp_link){5e7, 5e7}); // every transfer is a slow one
    for (uint32_t t = 0; t < rounds; t++) {
        bool last = t + 1 == rounds;
        planner_case_look_up(&pc, last ? 1 + rt_random_below(&pc.random, m * n) : m * n);
        if (t > 0)
            check_alphas(&shape, dp_planner_view(pc.planner));
        planner_case_commit(&pc);
    }
    planner_case_fini(&pc);
}

static void check_hybrid_runs(uint32_t m, uint32_t n, uint32_t rounds)
{
    check_runs(m, n, rounds, 6, 1);
}

static void hybrid_of_one_sample_each(void **state)
{
    (void)state;
    check_hybrid_runs(1, 1, 20);
    check_hybrid_runs(1, 2, 20);
    check_hybrid_runs(1, 8, 20);
}

static void hybrid_of_three_samples_each(void **state)
{
    (void)state;
    check_hybrid_runs(3, 1, 20);
    check_hybrid_runs(3, 2, 20);
    check_hybrid_runs(3, 8, 20);
    check_hybrid_runs(10, 3, 20);
}

static void hybrid_of_128_samples_each(void **state)
{
    (void)state;
    check_hybrid_runs(128, 1, 3);
    check_hybrid_runs(128, 2, 4);
    check_hybrid_runs(100, 8, 3); // 0.29 x 100 is 28.999999999999996
    check_hybrid_runs(128, 8, 4);
}

static void hybrid_of_64_workers(void **state)
{
    (void)state;
    check_hybrid_runs(2, 64, 4);
    check_runs(2, 64, 3, RT_FIELDS_MAX, 2); // sums of costs beyond 32 bits
}

// A planner takes alpha from its configuration.
static void planner_passes_alpha_on(void **state)
{
    (void)state;
    for (uint32_t alpha = 0; alpha <= 1000; alpha += 250) {
        planner_shape shape = {.seed = alpha,
                               .worker_count = 4,
                               .sample_count_max = 32,
                               .field_count = 4,
                               .ids_per_field = 100,
                               .bag_max = 2,
                               .zipf = 0.8,
                               .dispatch = {.policy = RT_POLICY_ESD,
                                            .hybrid = RT_HYBRID_PAPER,
                                            .alpha = alpha / 1000.0}};
        planner_case pc;
        planner_case_init(&pc, &shape);
        for (uint32_t t = 0; t < 30; t++) {
            hybrid h;
            planner_case_look_up(&pc, 32);
            hybrid_init(&h, dp_planner_view(pc.planner));
            planner_case_commit(&pc);
            memcpy(h.placement, dp_planner_placement(pc.planner), 32 * sizeof *h.placement);
            check_hybrid(&h, t < 15 ? alpha : 1000 - alpha);
            hybrid_fini(&h);
            if (t == 14)
                dp_planner_set_alpha(pc.planner, 1 - alpha / 1000.0);
        }
        planner_case_fini(&pc);
    }
}

// ---- Herald, Algorithm 1 ---------------------------------------------------------------------

// Every sample goes to one of the workers with room that hold most of its rows.
static uint32_t check_laia(const planner_case *pc, const uint32_t *placement, uint32_t *ties_of)
{
    const dp_view *view = dp_planner_view(pc->planner); // test_cost and test_viewed check it
    uint32_t n = pc->shape.worker_count, total = pc->batch.sample_count, tied = 0;
    uint32_t room[RT_WORKERS_MAX];
    for (uint32_t j = 0; j < n; j++)
        room[j] = total / n + (j < total % n);
    for (uint32_t i = 0; i < total; i++) {
        uint32_t score[RT_WORKERS_MAX] = {0}, best = 0, equal = 0;
        for (uint32_t k = pc->batch.key_offsets[i]; k < pc->batch.key_offsets[i + 1]; k++) {
            uint64_t holders = view->distinct[view->lookups[k]].holders;
            for (uint32_t j = 0; j < n; j++)
                score[j] += (uint32_t)(holders >> j & 1);
        }
        for (uint32_t j = 0; j < n; j++)
            best = room[j] && score[j] > best ? score[j] : best;
        for (uint32_t j = 0; j < n; j++)
            equal += room[j] && score[j] == best;
        assert_true(placement[i] < n && room[placement[i]] > 0);
        assert_int_equal(score[placement[i]], best);
        room[placement[i]]--;
        if (equal == n) { // room everywhere: all are equally likely
            ties_of[placement[i]]++;
            tied++;
        }
    }
    return tied;
}

// Within five standard deviations of a fair choice.
static void check_fair(const uint32_t *counts, uint32_t n, uint32_t total)
{
    double mean = (double)total / n, variance = mean * (1 - 1.0 / n);
    for (uint32_t j = 0; j < n; j++) {
        double off = counts[j] - mean;
        if (off * off > 25 * variance)
            fail_msg("worker %u: %u of %u choices", j, counts[j], total);
    }
}

static void laia_takes_the_best_holder(void **state)
{
    (void)state;
    uint32_t ties_of[8] = {0}, tied = 0;
    for (uint32_t i = 0; i < 12; i++) {
        planner_shape shape = {
            .seed = i,
            .worker_count = i < 6 ? 8 : 1 + i % 5,
            .sample_count_max = 64,
            .field_count = 4,
            .ids_per_field = i % 3 ? 3000 : 100,
            .bag_max = 1 + i % 2,
            .zipf = 0.9,
            .cache = (cache_size)(i % 3),
            .dispatch = {.policy = RT_POLICY_LAIA, .view = (rt_view_kind)(i / 3 % 3)}};
        planner_case pc;
        planner_case_init(&pc, &shape);
        for (uint32_t t = 0; t < 60; t++) {
            uint32_t placement[64], ignored[RT_WORKERS_MAX] = {0};
            planner_case_look_up(&pc, t % 7 ? 64 : 1 + rt_random_below(&pc.random, 64));
            dp_planner_place(pc.planner); // the commit below places again, with other ties
            memcpy(placement, dp_planner_placement(pc.planner), sizeof placement);
            if (shape.worker_count == 8)
                tied += check_laia(&pc, placement, ties_of);
            else
                check_laia(&pc, placement, ignored);
            planner_case_commit(&pc);
        }
        planner_case_fini(&pc);
    }
    assert_true(tied > 500);
    check_fair(ties_of, 8, tied);
}

// More look-ups in a sample than a byte counts, and more workers than one group has.
static void laia_counts_long_samples(void **state)
{
    (void)state;
    enum { MOST = 600, SECOND = 250, WORKERS = 20, LAST = WORKERS - 1 };
    static uint32_t lookups[MOST + SECOND];
    const uint32_t offsets[] = {0, MOST + SECOND};
    const dp_distinct distinct[] = {{.holders = rt_bit(LAST), .held = LAST},
                                    {.holders = rt_bit(3) | rt_bit(9), .held = DP_HELD_BY_MANY}};
    const uint8_t held[] = {LAST, DP_HELD_BY_MANY};
    static const dp_ticks ticks;
    uint32_t capacity[WORKERS], placement = 0;
    for (uint32_t k = 0; k < MOST + SECOND; k++)
        lookups[k] = k >= MOST;
    for (uint32_t j = 0; j < WORKERS; j++)
        capacity[j] = 1;
    const dp_view view = {.worker_count = WORKERS,
                          .sample_count = 1,
                          .lookup_count = MOST + SECOND,
                          .distinct_count = 2,
                          .offsets = offsets,
                          .lookups = lookups,
                          .distinct = distinct,
                          .held = held,
                          .capacity = capacity,
                          .ticks = &ticks};
    const dp_policy_config config = {.worker_count = WORKERS, .sample_count_max = 1};
    void *laia;
    assert_int_equal(dp_policy_laia.create(&config, &laia, NULL), RT_OK);
    dp_policy_laia.place(laia, &view, &placement);
    assert_int_equal(placement, LAST);
    dp_policy_laia.destroy(laia);
}

// ---- random ----------------------------------------------------------------------------------

static void random_is_fair(void **state)
{
    (void)state;
    static const uint32_t counts[] = {1, 5, 8, 13, 16};
    const uint32_t n = 5, rounds = 4000;
    planner_shape shape = {.seed = 9, .worker_count = n, .sample_count_max = 16};
    void *policy = policy_state(&dp_policy_random, &shape);
    for (uint32_t c = 0; c < RT_COUNT_OF(counts); c++) {
        uint32_t total = counts[c], capacity[5], seen[16][5] = {{0}}, pairs = 0;
        for (uint32_t j = 0; j < n; j++)
            capacity[j] = total / n + (j < total % n);
        dp_view view = {.worker_count = n, .sample_count = total, .capacity = capacity};
        for (uint32_t r = 0; r < rounds; r++) {
            uint32_t placement[16], load[5] = {0};
            dp_policy_random.place(policy, &view, placement);
            for (uint32_t i = 0; i < total; i++) {
                assert_true(placement[i] < n);
                seen[i][placement[i]]++;
                load[placement[i]]++;
            }
            assert_memory_equal(load, capacity, sizeof load);
            pairs += total > 1 && placement[0] == placement[1];
        }
        for (uint32_t i = 0; i < total; i++) {
            for (uint32_t j = 0; j < n; j++) { // a share of capacity[j] / total
                double p = (double)capacity[j] / total, off = seen[i][j] - rounds * p;
                assert_true(off * off <= 25 * rounds * p * (1 - p) + 1e-9);
            }
        }
        double together = 0;
        for (uint32_t j = 0; j < n; j++)
            together += total > 1 ? capacity[j] * (capacity[j] - 1.0) / total / (total - 1.0) : 0;
        double off = pairs - rounds * together;
        assert_true(off * off <= 25 * rounds * together * (1 - together) + 1e-9);
    }
    dp_policy_random.destroy(policy);
}

// ---- the list ----------------------------------------------------------------------------------

// Their lists have one line for a policy and one for a solver: a name in the configuration leads to
// the table of operations that bears it.
static void names_lead_to_their_tables(void **state)
{
    (void)state;
    for (int kind = 0; kind < RT_POLICY_COUNT; kind++)
        assert_string_equal(dp_policy_find((rt_policy_kind)kind)->name,
                            rt_config_choice_name("dispatch.policy", kind));
    assert_null(rt_config_choice_name("dispatch.policy", RT_POLICY_COUNT));
    for (int kind = 0; kind < RT_SOLVER_COUNT; kind++) {
        const dp_solver_ops *solver = dp_solver_find((rt_solver_kind)kind);
        const char *name = rt_config_choice_name("dispatch.solver", kind);
        assert_non_null(name);
        if (solver) // a GPU's is not everywhere
            assert_string_equal(solver->name, name);
    }
    assert_null(rt_config_choice_name("dispatch.solver", RT_SOLVER_COUNT));
}

// What others ask a policy instead of its name.
static void traits_are_theirs(void **state)
{
    (void)state;
    assert_true(dp_policy_can(RT_POLICY_ESD, DP_POLICY_ALPHA));
    assert_true(dp_policy_can(RT_POLICY_MAKESPAN, DP_POLICY_UNEQUAL | DP_POLICY_TIME));
    assert_false(dp_policy_can(RT_POLICY_MAKESPAN, DP_POLICY_UNEQUAL | DP_POLICY_ALPHA));
    assert_true(dp_policy_can(RT_POLICY_LAIA, DP_POLICY_TABLES));
    uint32_t references = 0;
    for (int kind = 0; kind < RT_POLICY_COUNT; kind++)
        references += dp_policy_can((rt_policy_kind)kind, DP_POLICY_REFERENCE);
    assert_int_equal(references, 1);
}

// Records and checkpoints of before have them.
static void numbers_stay(void **state)
{
    (void)state;
    static const char *const names[] = {"random", "laia",     "esd",
                                        "laia",   "makespan", "het"}; // 3: herald
    for (uint32_t number = 0; number < RT_COUNT_OF(names); number++) {
        const rt_policy_kind kind = (rt_policy_kind)rt_policy_of_number(number);
        assert_string_equal(dp_policy_find(kind)->name, names[number]);
        assert_int_equal(rt_policy_number(kind), number == 3 ? 1 : number);
    }
    assert_int_equal(rt_policy_of_number(RT_POLICY_COUNT + 1), RT_POLICY_COUNT);
    assert_int_equal(rt_policy_of_number(UINT32_MAX), RT_POLICY_COUNT);
}

// herald had counts of all tables in its state even where it scored all of them.
static void states_of_herald_are_laia_s(void **state)
{
    (void)state;
    const dp_policy_config config = {
        .worker_count = 3, .sample_count_max = 12, .seed = 5, .dispatch = {.tables = 2}};
    dp_policy_config plain = config;
    plain.dispatch.tables = 0;
    void *before, *after;
    rt_bytes bytes = {0}, again = {0};
    assert_int_equal(dp_policy_laia.create(&config, &before, NULL), RT_OK);
    assert_int_equal(dp_policy_laia.create(&plain, &after, NULL), RT_OK);
    dp_policy_laia.save(before, &bytes);
    rt_reader reader = {.next = bytes.data, .left = bytes.size};
    assert_true(dp_policy_laia.load(after, &reader) && reader.left == 0);
    dp_policy_laia.save(after, &again);
    assert_true(again.size < bytes.size);
    assert_memory_equal(again.data, bytes.data, again.size);
    reader = (rt_reader){.next = bytes.data, .left = bytes.size - 1};
    assert_false(dp_policy_laia.load(after, &reader));
    reader = (rt_reader){.next = again.data, .left = again.size};
    assert_true(dp_policy_laia.load(before, &reader) && reader.left == 0);
    dp_policy_laia.destroy(before);
    dp_policy_laia.destroy(after);
    rt_bytes_fini(&bytes);
    rt_bytes_fini(&again);
}

// ---- determinism -------------------------------------------------------------------------------

// Fingerprints of a run of 20 batches; batch_seed and the planner's own seed apart.
static void run_fingerprints(rt_policy_kind policy, uint64_t seed, uint64_t *prints)
{
    planner_shape shape = {.seed = 77,
                           .worker_count = 6,
                           .sample_count_max = 48,
                           .field_count = 5,
                           .ids_per_field = 60,
                           .bag_max = 2,
                           .zipf = 0.7,
                           .dispatch = {.policy = policy, .alpha = 0.5}};
    planner_case pc;
    planner_case_init(&pc, &shape);
    dp_planner *planner;
    rt_error error = {0};
    pc.config.seed = seed;
    assert_int_equal(dp_planner_create(&pc.config, &planner, &error), RT_OK);
    for (uint32_t t = 0; t < 20; t++) {
        const dp_plan *plan;
        random_batches_fill(&pc.batches, &pc.batch, 48);
        assert_int_equal(dp_planner_look_up(planner, &pc.batch), RT_OK);
        dp_planner_place(planner);
        assert_int_equal(dp_planner_commit(planner, &plan), RT_OK);
        prints[t] = dp_plan_fingerprint(plan);
    }
    dp_planner_destroy(planner);
    planner_case_fini(&pc);
}

static void equal_seeds_give_equal_plans(void **state)
{
    (void)state;
    for (rt_policy_kind policy = 0; policy < RT_POLICY_COUNT; policy++) {
        uint64_t a[20], b[20], other[20];
        run_fingerprints(policy, 1, a);
        run_fingerprints(policy, 1, b);
        run_fingerprints(policy, 2, other);
        assert_memory_equal(a, b, sizeof a);
        // These draw lots, if only among workers that are as good as each other.
        if (policy == RT_POLICY_RANDOM || policy == RT_POLICY_LAIA)
            assert_memory_not_equal(a, other, sizeof a);
        if (policy == RT_POLICY_ESD || policy == RT_POLICY_MAKESPAN)
            assert_memory_equal(a, other, sizeof a);
        for (uint32_t t = 1; t < 20; t++)
            assert_true(a[t] != a[t - 1]);
    }
}

static void check_changed(const dp_plan *plan, uint64_t before, const char *what)
{
    if (dp_plan_fingerprint(plan) == before)
        fail_msg("the fingerprint does not show %s", what);
}

static void fingerprint_shows_everything(void **state)
{
    (void)state;
    dp_plan plan;
    assert_int_equal(dp_plan_init(&plan, 2), RT_OK);
    dp_slice *slice = &plan.slices[1];
    assert_int_equal(dp_slice_reserve(slice, 4, 4), RT_OK);
    slice->sample_count = slice->lookup_count = slice->row_count = 2;
    dp_op *op = dp_ops_add(&slice->fill, DP_OP_PULL);
    uint64_t before = dp_plan_fingerprint(&plan);
    assert_int_equal(dp_plan_fingerprint(&plan), before);
#define SHOWS(lvalue)                          \
    do {                                       \
        (lvalue)++;                            \
        check_changed(&plan, before, #lvalue); \
        (lvalue)--;                            \
    } while (0)
    SHOWS(plan.iteration);
    SHOWS(slice->sample_count);
    SHOWS(slice->lookup_count);
    SHOWS(slice->row_count);
    SHOWS(slice->samples[1]);
    SHOWS(slice->lookup_rows[0]);
    SHOWS(slice->rows[1].slot);
    SHOWS(slice->rows[1].version);
    SHOWS(slice->rows[0].mode);
    SHOWS(op->key);
    SHOWS(op->mask);
    SHOWS(op->slot);
    SHOWS(op->version);
    SHOWS(op->base);
    SHOWS(op->kind);
    SHOWS(op->reason);
    SHOWS(op->peer);
    SHOWS(op->flags);
#undef SHOWS
    dp_ops fill = slice->fill; // the same operation in another list
    slice->fill = slice->after;
    slice->after = fill;
    check_changed(&plan, before, "the list of an operation");
    dp_plan_fini(&plan);
}

// Micro-batches that are not those of a whole batch would leave samples without a place.
static void state_of_makespan_fits_together(void **context)
{
    (void)context;
    const dp_policy_config config = {.worker_count = 2,
                                     .sample_count_max = 8,
                                     .distinct_count_max = 8,
                                     .dispatch = {.policy = RT_POLICY_MAKESPAN}};
    const dp_policy_ops *policy = &dp_policy_makespan;
    for (uint32_t samples = 0; samples < 2; samples++) { // of the batch before, placed nowhere
        void *state;
        rt_bytes bytes = {0};
        assert_int_equal(policy->create(&config, &state, NULL), RT_OK);
        policy->save(state, &bytes);
        assert_false(bytes.failed);
        memcpy(bytes.data + bytes.size - sizeof samples, &samples, sizeof samples);
        rt_reader reader = rt_bytes_reader(&bytes);
        assert_int_equal(policy->load(state, &reader), samples == 0);
        policy->destroy(state);
        rt_bytes_fini(&bytes);
    }
}

// Weights, generator and caches of makespan, the policy that computes with fractions.
static uint64_t state_of_a_run(void)
{
    planner_case pc;
    rt_bytes bytes = {0};
    const planner_shape shape = {.seed = 5,
                                 .worker_count = 4,
                                 .sample_count_max = 24,
                                 .field_count = 4,
                                 .ids_per_field = 200,
                                 .bag_max = 1,
                                 .zipf = 1.05,
                                 .cache = CACHE_MIDDLE,
                                 .dispatch = {.policy = RT_POLICY_MAKESPAN,
                                              .search_evaluations = 30,
                                              .micro_batch_max = 12}};
    planner_case_init(&pc, &shape);
    for (uint32_t t = 0; t < 4000; t++) {
        planner_case_look_up(&pc, shape.sample_count_max);
        planner_case_commit(&pc);
    }
    planner_case_flush(&pc);
    dp_planner_save(pc.planner, &(rt_bytes){0}, &bytes);
    assert_false(bytes.failed);
    const uint64_t hash = rt_hash_bytes(bytes.data, bytes.size);
    rt_bytes_fini(&bytes);
    planner_case_fini(&pc);
    return hash;
}

// glibc chooses its functions by the processor, and those with fused instructions round otherwise:
// planners elsewhere must agree all the same. The same again as on a processor
// without (no difference to a library that does not know the variable).
static void same_state_on_other_processors(void **context)
{
    (void)context;
    const char *told = getenv("STATE_OF_A_RUN");
    char path[512];
    const uint64_t own = state_of_a_run();
    uint64_t other;
    int how;
    snprintf(path, sizeof path, "%s", told ? told : test_path("states"));
    FILE *file = told ? fopen(path, "w") : NULL;
    if (told) {
        assert_int_equal(fwrite(&own, sizeof own, 1, file), 1);
        assert_int_equal(fclose(file), 0);
        return;
    }
    setenv("STATE_OF_A_RUN", path, 1);
    setenv("GLIBC_TUNABLES", "glibc.cpu.hwcaps=-FMA,-FMA4,-AVX2", 1);
    const pid_t child = fork();
    if (child == 0)
        _exit(execl("/proc/self/exe", "test_policies", __func__, (char *)NULL));
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_int_equal(how, 0);
    file = fopen(path, "r");
    assert_non_null(file);
    assert_int_equal(fread(&other, sizeof other, 1, file), 1);
    fclose(file);
    assert_true(own == other);
}

// Also where another one takes its place.
static void the_solver_that_places_is_named(void **state)
{
    rt_dispatch_config dispatch = {.policy = RT_POLICY_ESD, .solver = RT_SOLVER_HUNGARIAN};
    (void)state;
    assert_string_equal(dp_policy_solver(&dispatch), "hungarian");
    dispatch.solver = RT_SOLVER_HUNGARIAN_CUDA;
    assert_string_equal(dp_policy_solver(&dispatch),
                        dp_solver_find(RT_SOLVER_HUNGARIAN_CUDA) ? "hungarian_cuda" : "transport");
    dispatch.policy = RT_POLICY_LAIA;
    assert_null(dp_policy_solver(&dispatch));
}

TEST_MAIN(TEST(the_solver_that_places_is_named), TEST(hybrid_of_one_sample_each),
          TEST(hybrid_of_three_samples_each), TEST(hybrid_of_128_samples_each),
          TEST(hybrid_of_64_workers), TEST(planner_passes_alpha_on),
          TEST(laia_takes_the_best_holder), TEST(laia_counts_long_samples), TEST(random_is_fair),
          TEST(names_lead_to_their_tables), TEST(numbers_stay), TEST(states_of_herald_are_laia_s),
          TEST(traits_are_theirs), TEST(equal_seeds_give_equal_plans),
          TEST(fingerprint_shows_everything), TEST(state_of_makespan_fits_together),
          TEST(same_state_on_other_processors))
