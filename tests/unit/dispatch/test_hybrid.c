// HybridDis on matrices, as printed and turned round: a greedy written anew from Algorithm 2, exhaustive
// search, and what alpha must never do.
#include "tests/support/test.h"

#include <string.h>

#include "dispatch/policies/dp_hybrid.h"
#include "dispatch/solvers/dp_solvers.h"
#include "runtime/rt_hash.h"

#define ROWS_MAX 60u
#define SINKS_MAX 6u

typedef struct {
    uint32_t rows, sinks;
    int32_t cost[ROWS_MAX * SINKS_MAX];
    uint32_t capacity[SINKS_MAX];
} matrix;

static dp_problem problem_of(const matrix *m)
{
    return (dp_problem){m->rows, m->sinks, m->sinks, m->cost, m->capacity};
}

// Costs as ESD's are: a row is cheap where its keys are, links differ tenfold, and ties are many.
static matrix random_matrix(rt_random *random, uint32_t rows_max)
{
    matrix m = {.sinks = 1 + rt_random_below(random, SINKS_MAX)};
    const uint32_t each = 1 + rt_random_below(random, rows_max / m.sinks);
    uint32_t places = 0;
    for (uint32_t j = 0; j < m.sinks; j++) {
        m.capacity[j] = rt_random_below(random, 4) ? each : rt_random_below(random, each + 1);
        places += m.capacity[j];
    }
    m.rows = rt_random_below(random, 3) ? places : rt_random_below(random, places + 1);
    for (uint32_t i = 0; i < m.rows; i++) {
        for (uint32_t j = 0; j < m.sinks; j++) {
            const uint32_t pulls = rt_random_below(random, 5);
            m.cost[i * m.sinks + j] = (int32_t)(pulls * (j % 2 ? 1 : 10));
        }
    }
    return m;
}

static dp_hybrid *hybrid_of(rt_hybrid_kind kind, rt_solver_kind solver)
{
    dp_hybrid *hybrid;
    assert_int_equal(dp_hybrid_create(kind, dp_solver_find(solver), ROWS_MAX, SINKS_MAX, &hybrid),
                     RT_OK);
    return hybrid;
}

static int64_t total(const matrix *m, const uint32_t *placement)
{
    uint32_t used[SINKS_MAX] = {0};
    int64_t sum = 0;
    for (uint32_t i = 0; i < m->rows; i++) {
        assert_true(placement[i] < m->sinks && used[placement[i]]++ < m->capacity[placement[i]]);
        sum += m->cost[i * m->sinks + placement[i]];
    }
    return sum;
}

// The k-th smallest cost of a row, k from 0.
static int32_t smallest(const matrix *m, uint32_t row, uint32_t k)
{
    for (uint32_t j = 0; j < m->sinks; j++) {
        const int32_t cost = m->cost[row * m->sinks + j];
        uint32_t below = 0, equal = 0;
        for (uint32_t other = 0; other < m->sinks; other++) {
            below += m->cost[row * m->sinks + other] < cost;
            equal += m->cost[row * m->sinks + other] == cost;
        }
        if (below <= k && k < below + equal)
            return cost;
    }
    fail();
    return 0;
}

// Algorithm 2 with alpha 0, one row after the other; and the sum of Theorem 1's bounds.
static int64_t greedy_total(const matrix *m, int64_t *bound)
{
    uint32_t room[SINKS_MAX];
    bool is_done[ROWS_MAX] = {false};
    int64_t sum = 0;
    *bound = 0;
    memcpy(room, m->capacity, sizeof room);
    for (uint32_t k = 0; k < m->rows; k++) {
        uint32_t row = ROWS_MAX, sink = SINKS_MAX, full = 0;
        int32_t most = -1;
        for (uint32_t i = 0; i < m->rows; i++) {
            const int32_t regret = m->sinks > 1 ? smallest(m, i, 1) - smallest(m, i, 0) : 0;
            if (!is_done[i] && regret > most) {
                row = i;
                most = regret;
            }
        }
        is_done[row] = true;
        for (uint32_t j = 0; j < m->sinks; j++) {
            full += !room[j];
            if (room[j] &&
                (sink == SINKS_MAX || m->cost[row * m->sinks + j] < m->cost[row * m->sinks + sink]))
                sink = j;
        }
        room[sink]--;
        sum += m->cost[row * m->sinks + sink];
        *bound += smallest(m, row, full);
    }
    return sum;
}

static int64_t least(matrix *m, uint32_t row)
{
    int64_t best = INT64_MAX;
    if (row == m->rows)
        return 0;
    for (uint32_t j = 0; j < m->sinks; j++) {
        if (!m->capacity[j])
            continue;
        m->capacity[j]--;
        const int64_t sum = m->cost[row * m->sinks + j] + least(m, row + 1);
        best = sum < best ? sum : best;
        m->capacity[j]++;
    }
    return best;
}

// The rows that are taken up again, by their definition, solved on the seats that they hold.
static int64_t refined_total(const matrix *m, uint32_t count, const uint32_t *greedy)
{
    const uint32_t n = m->sinks;
    bool taken[ROWS_MAX] = {false}, is_done[ROWS_MAX] = {false};
    matrix part = {.sinks = n};
    int64_t sum = 0;
    uint32_t placement[ROWS_MAX];
    void *solver;
    while (part.rows < count) {
        uint32_t row = ROWS_MAX, wanted = 0, partner = ROWS_MAX;
        int32_t most = 0, least_change = INT32_MAX;
        for (uint32_t i = 0; i < m->rows; i++) {
            const int32_t excess = m->cost[i * n + greedy[i]] - smallest(m, i, 0);
            if (!is_done[i] && excess > most) {
                row = i;
                most = excess;
            }
        }
        while (row < ROWS_MAX && m->cost[row * n + wanted] > smallest(m, row, 0))
            wanted++;
        const bool comes = row < ROWS_MAX && !taken[row];
        if (row < ROWS_MAX)
            is_done[row] = taken[row] = true;
        for (uint32_t i = 0; i < m->rows; i++) {
            if (taken[i] || (row < ROWS_MAX && greedy[i] != wanted))
                continue;
            for (uint32_t j = 0; j < n; j++) {
                const int32_t change = n == 1 ? 0 : m->cost[i * n + j] - m->cost[i * n + greedy[i]];
                if ((n == 1 || j != greedy[i]) && change < least_change) {
                    partner = i;
                    least_change = change;
                }
            }
        }
        const uint32_t both[2] = {comes ? row : ROWS_MAX,
                                  part.rows + comes < count ? partner : ROWS_MAX};
        for (uint32_t b = 0; b < 2; b++) {
            if (both[b] == ROWS_MAX)
                continue;
            taken[both[b]] = true;
            memcpy(part.cost + part.rows++ * n, m->cost + both[b] * n, n * sizeof *part.cost);
            part.capacity[greedy[both[b]]]++;
        }
    }
    for (uint32_t i = 0; i < m->rows; i++)
        sum += taken[i] ? 0 : m->cost[i * n + greedy[i]];
    const dp_problem problem = problem_of(&part);
    assert_int_equal(dp_solver_hungarian.create(ROWS_MAX, n, &solver), RT_OK);
    dp_solver_hungarian.solve(solver, &problem, placement);
    dp_solver_hungarian.destroy(solver);
    return sum + total(&part, placement);
}

static void who_is_taken_up_again(void **state)
{
    rt_random random = {3};
    uint32_t greedy[ROWS_MAX], placement[ROWS_MAX], better = 0;
    (void)state;
    for (uint32_t t = 0; t < 300; t++) {
        dp_hybrid *hybrid = hybrid_of(RT_HYBRID_REFINE, RT_SOLVER_TRANSPORT);
        const matrix m = random_matrix(&random, ROWS_MAX);
        const dp_problem problem = problem_of(&m);
        dp_hybrid_solve(hybrid, &problem, 0, greedy);
        const dp_hybrid_result result =
            dp_hybrid_solve(hybrid, &problem, (1 + t % 7) / 8.0, placement);
        if (result.heu_rows)
            assert_true(total(&m, placement) == refined_total(&m, result.opt_rows, greedy));
        better += total(&m, placement) < total(&m, greedy);
        dp_hybrid_destroy(hybrid);
    }
    assert_true(better > 100);
}

// From the greedy's cost to the optimum, and never up on the way.
static void more_alpha_never_costs_more(void **state)
{
    static const rt_solver_kind solvers[] = {RT_SOLVER_TRANSPORT, RT_SOLVER_HUNGARIAN};
    rt_random random = {1};
    uint32_t placement[ROWS_MAX], falls = 0, between = 0;
    (void)state;
    for (uint32_t t = 0; t < 400; t++) {
        dp_hybrid *hybrid = hybrid_of(RT_HYBRID_REFINE, solvers[t % 2]);
        const matrix m = random_matrix(&random, ROWS_MAX);
        const dp_problem problem = problem_of(&m);
        int64_t bound, first = greedy_total(&m, &bound), last = first, now = first;
        assert_true(first <= bound);
        for (uint32_t a = 0; a <= 16; a++) {
            dp_hybrid_solve(hybrid, &problem, a / 16.0, placement);
            now = total(&m, placement);
            if (a == 0)
                assert_true(now == first);
            assert_true(now <= last);
            falls += now < last;
            last = now;
        }
        assert_true(dp_placement_optimal(&problem, placement));
        between += now < first;
        dp_hybrid_destroy(hybrid);
    }
    assert_true(between > 100 && falls > between + 50); // not in one step
}

// Rows in falling order of min2 - min, the first of equals first.
static void order_of(const matrix *m, uint32_t *order)
{
    for (uint32_t k = 0; k < m->rows; k++) {
        uint32_t at = k;
        order[k] = k;
        const int32_t regret = m->sinks > 1 ? smallest(m, k, 1) - smallest(m, k, 0) : 0;
        while (at > 0 && m->sinks > 1 &&
               smallest(m, order[at - 1], 1) - smallest(m, order[at - 1], 0) < regret) {
            order[at] = order[at - 1];
            order[--at] = k;
        }
    }
}

// ESD's Theorem 1 (room for m everywhere): the i-th row of the greedy pays at most its
// (floor(i / m) + 1)-th smallest cost. Refined, rows that stayed where the greedy had them still do,
// and the sum over all rows stays below the sum of their bounds.
static void every_row_keeps_theorem_1(void **state)
{
    rt_random random = {7};
    uint32_t order[ROWS_MAX], greedy[ROWS_MAX], placement[ROWS_MAX], above = 0, later = 0;
    (void)state;
    for (uint32_t t = 0; t < 300; t++) {
        dp_hybrid *hybrid = hybrid_of(RT_HYBRID_REFINE, RT_SOLVER_TRANSPORT);
        matrix m = random_matrix(&random, ROWS_MAX);
        const uint32_t room = (m.rows + m.sinks - 1) / m.sinks;
        for (uint32_t j = 0; j < m.sinks; j++)
            m.capacity[j] = room;
        const dp_problem problem = problem_of(&m);
        order_of(&m, order);
        dp_hybrid_solve(hybrid, &problem, 0, greedy);
        dp_hybrid_solve(hybrid, &problem, (1 + t % 7) / 8.0, placement);
        int64_t bounds = 0;
        for (uint32_t k = 0; k < m.rows; k++) {
            const uint32_t i = order[k];
            const int32_t bound = smallest(&m, i, k / room);
            const int32_t pays = m.cost[i * m.sinks + placement[i]];
            bounds += bound;
            later += bound > smallest(&m, i, 0);
            assert_true(m.cost[i * m.sinks + greedy[i]] <= bound);
            assert_true(placement[i] != greedy[i] || pays <= bound);
            above += pays > bound;
        }
        assert_true(total(&m, placement) <= total(&m, greedy) && total(&m, greedy) <= bounds);
        dp_hybrid_destroy(hybrid);
    }
    assert_true(later > 1000 &&
                above > 0); // the bounds are not idle, and no row's alone is the sum
}

static void the_bound_holds(void **state)
{
    static const rt_hybrid_kind kinds[] = {RT_HYBRID_REFINE, RT_HYBRID_PAPER};
    static const rt_solver_kind solvers[] = {RT_SOLVER_TRANSPORT, RT_SOLVER_TRANSPORT,
                                             RT_SOLVER_GREEDY};
    rt_random random = {2};
    uint32_t placement[ROWS_MAX], errors = 0, tight = 0;
    (void)state;
    for (uint32_t t = 0; t < 900; t++) {
        dp_hybrid *hybrid = hybrid_of(kinds[t % 2], solvers[t % 3]);
        matrix m = random_matrix(&random, 8);
        const dp_problem problem = problem_of(&m);
        const double alpha = rt_random_below(&random, 9) / 8.0;
        const dp_hybrid_result result = dp_hybrid_solve(hybrid, &problem, alpha, placement);
        const int64_t error = total(&m, placement) - least(&m, 0);
        assert_int_equal(result.opt_rows + result.heu_rows, m.rows);
        assert_true(error >= 0 && error <= result.error_bound);
        errors += error > 0;
        tight += error > 0 && error == result.error_bound;
        dp_hybrid_destroy(hybrid);
    }
    assert_true(errors > 50 && tight > 5);
}

// More places than rows: Opt's rows could all be at their cheapest sinks, were it not for its seats. Two
// rows pay, though Heu has one alone.
static void seats_without_rows_count(void **state)
{
    static const int32_t rows[5][4] = {
        {0, 9, 9, 9}, {0, 9, 9, 9}, {9, 0, 9, 9}, {9, 0, 9, 9}, {0, 0, 0, 0}};
    matrix m = {.rows = 5, .sinks = 4, .capacity = {2, 2, 2, 2}};
    const dp_problem problem = problem_of(&m);
    uint32_t placement[ROWS_MAX];
    dp_hybrid *hybrid = hybrid_of(RT_HYBRID_PAPER, RT_SOLVER_TRANSPORT);
    (void)state;
    memcpy(m.cost, rows, sizeof rows);
    const dp_hybrid_result result = dp_hybrid_solve(hybrid, &problem, 0.5, placement);
    assert_int_equal(result.opt_rows, 4);
    assert_int_equal(total(&m, placement), 18);
    assert_int_equal(least(&m, 0), 0);
    assert_true(result.error_bound >= 18);
    dp_hybrid_destroy(hybrid);
}

// The example of dp_hybrid.h, three times over.
static void who_pays_most_changes_places(void **state)
{
    static const int32_t rows[3][3] = {{0, 4, 9}, {0, 3, 20}, {9, 0, 10}};
    static const uint32_t sinks[3] = {2, 0, 1};
    matrix m = {.rows = 9, .sinks = 3, .capacity = {3, 3, 3}};
    const dp_problem problem = problem_of(&m);
    uint32_t placement[ROWS_MAX];
    dp_hybrid *hybrid = hybrid_of(RT_HYBRID_REFINE, RT_SOLVER_TRANSPORT);
    (void)state;
    for (uint32_t i = 0; i < m.rows; i++)
        memcpy(m.cost + 3 * i, rows[i / 3], sizeof rows[0]);
    dp_hybrid_solve(hybrid, &problem, 0, placement);
    assert_int_equal(total(&m, placement), 3 * 20);
    const dp_hybrid_result result = dp_hybrid_solve(hybrid, &problem, 2.0 / 3, placement);
    assert_int_equal(result.opt_rows, 6);
    assert_int_equal(total(&m, placement), 3 * 9);
    for (uint32_t i = 0; i < m.rows; i++)
        assert_int_equal(placement[i], sinks[i / 3]);
    dp_hybrid_destroy(hybrid);
}

TEST_MAIN(TEST(more_alpha_never_costs_more), TEST(the_bound_holds), TEST(every_row_keeps_theorem_1),
          TEST(who_is_taken_up_again), TEST(seats_without_rows_count),
          TEST(who_pays_most_changes_places))
