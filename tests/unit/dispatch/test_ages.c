// Which iterations are old enough for their rows to end, in one process and over several.
#include "dispatch/coordinator/dp_ages.h"

#include "tests/support/test.h"

#define S UINT64_C(1000000000)

// Tells by how far rows end after an iteration; 0: none do.
static uint32_t floor_after(dp_ages *ages, uint32_t iteration, uint64_t now_ns)
{
    dp_input input = {0};
    if (!dp_ages_iterated(ages, iteration, now_ns, &input))
        return 0;
    assert_int_equal(input.kind, DP_INPUT_ROWS_FLOOR);
    return (uint32_t)input.value;
}

static void the_newest_that_is_old_enough(void **state)
{
    (void)state;
    dp_ages ages;
    dp_ages_init(&ages, 16);
    for (uint32_t t = 1; t <= 32; t++) // two in a second
        assert_int_equal(floor_after(&ages, t, 100 * S + t * S / 2), 0);
    assert_int_equal(floor_after(&ages, 33, 117 * S), 2);
    assert_int_equal(floor_after(&ages, 34, 117 * S), 0);
    assert_int_equal(floor_after(&ages, 35, 130 * S), 28);
    dp_ages_init(&ages, 0);
    for (uint32_t t = 1; t <= 32; t++)
        assert_int_equal(floor_after(&ages, t, t * 1000 * S), 0);
}

// A start has a clock of its own, which may have begun after the iterations that it is told of; the
// time between does not count.
static void starts_have_one_count(void **state)
{
    (void)state;
    dp_ages ages;
    dp_ages_kept kept;
    dp_ages_init(&ages, 16);
    for (uint32_t t = 1; t <= 10; t++)
        assert_int_equal(floor_after(&ages, t, (1000 + t) * S), 0);
    dp_ages_keep(&ages, 1012 * S, &kept);
    assert_int_equal(kept.count, 10);
    assert_true(kept.notes[0].iteration == 1 && kept.notes[0].age_ms == 11000);
    dp_ages_init(&ages, 16);
    dp_ages_go_on(&ages, &kept, 3 * S);
    assert_int_equal(floor_after(&ages, 11, 7 * S), 0);
    assert_int_equal(floor_after(&ages, 12, 8 * S), 2);
    assert_int_equal(floor_after(&ages, 13, 10 * S), 4);
    dp_ages_keep(&ages, 10 * S, &kept);
    dp_ages_init(&ages, 4); // by now they end sooner
    dp_ages_go_on(&ages, &kept, 0);
    assert_int_equal(floor_after(&ages, 14, 1), 11);
    dp_ages_init(&ages, 0);
    dp_ages_go_on(&ages, &kept, 0);
    assert_int_equal(floor_after(&ages, 14, 1000 * S), 0);
}

TEST_MAIN(TEST(the_newest_that_is_old_enough), TEST(starts_have_one_count))
