// A plan as memory: empty, cleared, gone.
#include "dispatch/plan/dp_plan.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "dispatch/plan/dp_trace.h"

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

// A line of a sample: iteration, worker, and its keys in hexadecimal.
static void a_placement_as_text(void **state)
{
    (void)state;
    const uint64_t keys[] = {rt_key(0, 10), rt_key(1, 255), rt_key(1, 3)};
    const uint32_t workers[] = {2, 0};
    char text[200] = "", want[200];
    rt_batch batch;
    FILE *file = fmemopen(text, sizeof text, "w");
    assert_non_null(file);
    rt_batch_init(&batch, 0);
    assert_int_equal(rt_batch_append(&batch, 0, NULL, keys, 2), RT_OK);
    assert_int_equal(rt_batch_append(&batch, 1, NULL, keys + 2, 1), RT_OK);
    dp_trace_placement(file, 7, &batch, workers);
    fclose(file);
    snprintf(want, sizeof want, "7 2 %" PRIx64 " %" PRIx64 "\n7 0 %" PRIx64 "\n", keys[0], keys[1],
             keys[2]);
    assert_string_equal(text, want);
    rt_batch_fini(&batch);
}

TEST_MAIN(TEST(a_placement_as_text), TEST(what_is_gone_can_be_used_again))
