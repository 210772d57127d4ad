#include "dispatch/solvers/dp_moves.h"
#include "runtime/rt_hash.h"
#include "tests/support/test.h"

#include <stdlib.h>
#include <string.h>

// The model: which sink every row is on, NOWHERE when on none.
#define NOWHERE UINT32_MAX
#define ROWS 700u
#define SINKS_MAX 64u

typedef struct {
    dp_problem problem;
    int32_t cost[ROWS * (SINKS_MAX + 1)];
    uint32_t sink_of_row[ROWS];
    dp_moves moves;
} model;

static model *model_create(uint32_t sink_count, uint64_t seed)
{
    model *made = calloc(1, sizeof *made);
    assert_non_null(made);
    rt_random random = {seed};
    made->problem = (dp_problem){ROWS, sink_count, sink_count + 1, made->cost, NULL};
    for (size_t i = 0; i < RT_COUNT_OF(made->cost); i++)
        made->cost[i] = (int32_t)rt_random_below(&random, seed % 2 ? 5 : DP_COST_MAX);
    for (uint32_t i = 0; i < ROWS; i++)
        made->sink_of_row[i] = NOWHERE;
    assert_int_equal(dp_moves_init(&made->moves, ROWS, sink_count), RT_OK);
    dp_moves_reset(&made->moves, &made->problem);
    return made;
}

static void model_destroy(model *made)
{
    dp_moves_fini(&made->moves);
    free(made);
}

static int64_t change_of(const model *made, uint32_t row, uint32_t to)
{
    const int32_t *cost = made->cost + (size_t)row * made->problem.stride;
    return (int64_t)cost[to] - cost[made->sink_of_row[row]];
}

// All minima, and that find leads to a row that has them.
static void check(const model *made)
{
    const dp_moves *moves = &made->moves;
    for (uint32_t u = 0; u < made->problem.sink_count; u++) {
        uint32_t count = 0;
        int64_t least[SINKS_MAX];
        for (uint32_t v = 0; v < made->problem.sink_count; v++)
            least[v] = INT64_MAX;
        for (uint32_t i = 0; i < ROWS; i++) {
            count += made->sink_of_row[i] == u;
            for (uint32_t v = 0; made->sink_of_row[i] == u && v < made->problem.sink_count; v++)
                least[v] = change_of(made, i, v) < least[v] ? change_of(made, i, v) : least[v];
        }
        assert_int_equal(moves->row_count[u], count);
        for (uint32_t v = 0; count > 0 && v < made->problem.sink_count; v++) {
            assert_int_equal(dp_moves_least(moves, u)[v], least[v]);
            uint32_t row = dp_moves_row(moves, u, dp_moves_find(moves, u, v));
            assert_int_equal(made->sink_of_row[row], u);
            assert_int_equal(change_of(made, row, v), least[v]);
        }
    }
}

// Puts rows on the sinks, the first one getting most, as the solver does.
static void build(model *made, rt_random *random, uint32_t row_count)
{
    int32_t padded[SINKS_MAX];
    for (uint32_t i = 0; i < row_count; i++) {
        uint32_t sink = rt_random_below(random, made->problem.sink_count);
        sink = rt_random_below(random, sink + 1);
        memset(padded, 0, sizeof padded);
        memcpy(padded, made->cost + (size_t)i * made->problem.stride,
               made->problem.sink_count * sizeof *padded);
        dp_moves_add(&made->moves, sink, i, padded);
        made->sink_of_row[i] = sink;
    }
    dp_moves_build(&made->moves);
}

// Takes one row away, or puts one on, or exchanges one for another.
static void change_one(model *made, rt_random *random)
{
    uint32_t sink = rt_random_below(random, made->problem.sink_count);
    uint32_t row = rt_random_below(random, ROWS);
    uint32_t count = made->moves.row_count[sink];
    uint32_t slot = count > 0 ? rt_random_below(random, count) : 0;
    if (count > 0 && rt_random_below(random, 2)) {
        made->sink_of_row[dp_moves_row(&made->moves, sink, slot)] = NOWHERE;
        dp_moves_remove(&made->moves, sink, slot);
    } else if (made->sink_of_row[row] == NOWHERE && count > 0 && rt_random_below(random, 2)) {
        made->sink_of_row[dp_moves_row(&made->moves, sink, slot)] = NOWHERE;
        made->sink_of_row[row] = sink;
        dp_moves_replace(&made->moves, sink, slot, row);
    } else if (made->sink_of_row[row] == NOWHERE) {
        made->sink_of_row[row] = sink;
        dp_moves_append(&made->moves, sink, row);
    }
}

static void test_against_model(void **unused)
{
    (void)unused;
    static const uint32_t sinks[] = {1, 2, 3, 8, 9, 64};
    for (size_t s = 0; s < RT_COUNT_OF(sinks); s++) {
        model *made = model_create(sinks[s], s);
        rt_random random = {s};
        for (uint32_t round = 0; round < 3; round++) {
            for (uint32_t i = 0; i < ROWS; i++)
                made->sink_of_row[i] = NOWHERE;
            dp_moves_reset(&made->moves, &made->problem);
            build(made, &random, round == 0 ? 0 : ROWS - round);
            check(made);
            for (uint32_t step = 0; step < 600; step++) {
                change_one(made, &random);
                if (step % (sinks[s] < 10 ? 1 : 20) == 0)
                    check(made);
            }
        }
        model_destroy(made);
    }
}

// Up to all rows on one sink and down to none, over every boundary of blocks and chunks.
static void test_fill_and_drain(void **unused)
{
    (void)unused;
    model *made = model_create(3, 11);
    for (uint32_t i = 0; i < ROWS; i++) {
        made->sink_of_row[i] = 1;
        dp_moves_append(&made->moves, 1, i);
        check(made);
    }
    for (uint32_t i = 0; i < ROWS; i++) {
        uint32_t slot = i % 3 ? made->moves.row_count[1] - 1 : 0;
        made->sink_of_row[dp_moves_row(&made->moves, 1, slot)] = NOWHERE;
        dp_moves_remove(&made->moves, 1, slot);
        check(made);
    }
    model_destroy(made);
}

TEST_MAIN(TEST(test_against_model), TEST(test_fill_and_drain))
