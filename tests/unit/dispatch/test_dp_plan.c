// A plan as memory: empty, cleared, gone.
#include "dispatch/plan/dp_plan.h"

#include <string.h>

#include "tests/support/test.h"

static void what_is_gone_can_be_used_again(void **state)
{
    (void)state;
    dp_plan plan;
    const dp_plan empty = {0};
    memset(&plan, 0xa5, sizeof plan);
    for (uint32_t n = 1; n <= 3; n++) {
        assert_int_equal(dp_plan_init(&plan, n), RT_OK);
        assert_int_equal(plan.worker_count, n);
        for (uint32_t w = 0; w < n; w++)
            assert_int_equal(plan.slices[w].sample_count, 0);
        dp_plan_fini(&plan);
        assert_memory_equal(&plan, &empty, sizeof plan);
        dp_plan_fini(&plan); // again: nothing is there
    }
}

TEST_MAIN(TEST(what_is_gone_can_be_used_again))
