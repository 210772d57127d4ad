// More policies than there are: what advise tries follows from the list, however long it is.
#include "runtime/config/rt_policies.h" // its enumerators are those of the real list
#undef RT_POLICY_MAP
#define RT_POLICY_MAP(XX) \
    XX(ESD, esd, "")      \
    XX(ESD, esd, "")      \
    XX(ESD, esd, "")      \
    XX(ESD, esd, "")      \
    XX(ESD, esd, "")      \
    XX(ESD, esd, "")      \
    XX(ESD, esd, "")      \
    XX(ESD, esd, "")      \
    XX(ESD, esd, "")
#include "dispatch/sim/dp_advise.c"
#include "runtime/config/rt_policies.h"

#include "tests/support/config_case.h"
#include "tests/support/test.h"

#define POLICIES 9u
#define COMBINATIONS (POLICIES * 2 * 3 * 3 * 2 * 2 * 2) // those of dp_advise.h

static void policies_without_end(void **state)
{
    (void)state;
    rt_config config = config_fresh();
    rt_schema schema;
    rt_error error = {0};
    dp_advices advices;
    static const char *const sets[] = {
        "stream.format=synthetic",    "stream.files=[]", "stream.synthetic.scale=0.0001",
        "batch.samples_per_worker=2", "cache.rows=200",  "workers=2",
        "links.workers=[5, 5]",       "links.ps_gbps=1", "sim.iterations=4",
    };
    for (size_t i = 0; i < RT_COUNT_OF(sets); i++)
        config_must_set(&config, sets[i]);
    assert_int_equal(rt_stream_read_schema(&config.stream, config.seed, &schema, NULL), RT_OK);
    const dp_sim_config sim = {.config = &config, .schema = &schema, .dense_bytes = 1000};
    if (dp_advise(&sim, DP_ADVICE_ITERATIONS_MIN, &advices, &error))
        fail_msg("%s", error.text);
    assert_in_range(advices.count, 2 * POLICIES, COMBINATIONS);
    assert_int_equal(advices.count % POLICIES, 0); // all of them did as esd does
    dp_advices_fini(&advices);
    rt_config_fini(&config);
}

TEST_MAIN(TEST(policies_without_end))
