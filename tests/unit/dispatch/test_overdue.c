// Members that are alive and do not answer.
#include "dispatch/coordinator/dp_membership.h"

#include <string.h>

#include "tests/support/test.h"

#define SECOND UINT64_C(1000000000)
#define LIMIT_S 10.0

static rt_status look(dp_overdue *overdue, uint64_t workers, uint64_t number, uint64_t seconds,
                      rt_error *error)
{
    const dp_awaited awaited = {
        .workers = workers, .what = "has not trained an iteration", .number = number};
    return dp_overdue_check(overdue, &awaited, seconds * SECOND, error);
}

// The limit holds for one answer, not for a run in which somebody is always waited for.
static void whoever_moves_is_not_overdue(void **state)
{
    (void)state;
    dp_overdue overdue = {.limit_s = LIMIT_S};
    for (uint64_t second = 0; second < 100; second++) // another iteration every 8 s
        assert_int_equal(look(&overdue, 6, second / 8, second, NULL), RT_OK);
    for (uint64_t second = 100; second < 200; second++) // one of two answers every 8 s
        assert_int_equal(look(&overdue, second / 8 % 2 ? 6 : 4, 1, second, NULL), RT_OK);
    for (uint64_t second = 200; second < 300; second++) // nobody is waited for
        assert_int_equal(look(&overdue, 0, 1, second, NULL), RT_OK);
    assert_int_equal(look(&overdue, 6, 1, 305, NULL), RT_OK);
}

static void who_does_not_answer_is_named(void **state)
{
    (void)state;
    rt_error error;
    dp_overdue overdue = {.limit_s = LIMIT_S};
    dp_awaited shards = {.workers = 1, .shards = 5, .what = "has not carried out a cut"};
    assert_int_equal(look(&overdue, 6, 1, 50, NULL), RT_OK);
    assert_int_equal(look(&overdue, 6, 1, 60, NULL), RT_OK);
    assert_int_equal(look(&overdue, 6, 1, 61, &error), RT_TIMEOUT);
    assert_string_equal(error.text, "worker 1, worker 2: alive, but has not trained an iteration "
                                    "within 11 s (timeouts.answer_s)");
    assert_int_equal(dp_overdue_check(&overdue, &shards, 62 * SECOND, NULL), RT_OK);
    assert_int_equal(dp_overdue_check(&overdue, &shards, 90 * SECOND, &error), RT_TIMEOUT);
    assert_non_null(strstr(error.text, "worker 0, ps 0, ps 2: "));
}

TEST_MAIN(TEST(whoever_moves_is_not_overdue), TEST(who_does_not_answer_is_named))
